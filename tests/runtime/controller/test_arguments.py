"""What could only fail at each run, or never do what it says, is refused when it is given, by its name."""
from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any

import pytest

from kubectl_runtime.core.base.errors import RequestError
from kubectl_runtime.core.codec.views import strip_managed_fields
from kubectl_runtime.runtime.controller.controller import Controller
from kubectl_runtime.runtime.controller.options import Debounce
from kubectl_runtime.runtime.queue.runs import KeyBackoff
from kubectl_runtime.runtime.reconcile.reconciler import Action, Reconciler
from kubectl_runtime.runtime.triggers import predicates
from kubectl_runtime.runtime.watch.config import WatcherConfig
from tests.runtime.scripted_cluster import Child, Cluster, Parent


def new(**options: Any) -> Controller[Parent]:
    return Controller(Cluster().api(Parent), **options)


def related() -> Any:
    return Cluster().api(Child)


class Callable1:
    def __call__(self, obj: Any) -> Any: ...


class NeedsMore(Reconciler[Parent]):
    def reconcile(self, obj: Parent, ctx: Any, more: Any) -> Action: ...  # type: ignore[override, empty-body]


class WrongSuccess(Reconciler[Parent]):
    def reconcile(self, obj: Parent, ctx: Any) -> Action: ...  # type: ignore[empty-body]

    def on_success(self, obj: Parent) -> None: ...  # type: ignore[override]


class WrongPolicy(Reconciler[Parent]):
    def reconcile(self, obj: Parent, ctx: Any) -> Action: ...  # type: ignore[empty-body]

    def error_policy(self, obj: Parent) -> Action: ...  # type: ignore[override, empty-body]


REFUSED: dict[str, tuple[Callable[[], object], str]] = {
    "a reconciler of one argument": (lambda: new().bind(lambda obj: None), "the reconciler .* 2 arguments"),
    "a partial that takes one": (lambda: new().bind(functools.partial(lambda a, b: None, 1)), "the reconciler"),
    "an object to call with one": (lambda: new().bind(Callable1()), "the reconciler .*Callable1"),
    "a reconciler that needs more": (lambda: new().bind(NeedsMore()), "missing a required argument: 'more'"),
    "a ctx by keyword": (lambda: new().bind(lambda obj, *, ctx: None), "the reconciler"),
    "on_success of one argument": (lambda: new().bind(WrongSuccess()), "on_success, .*obj and action and ctx"),
    "error_policy of one argument": (lambda: new().bind(WrongPolicy()), "error policy, .*obj and error and ctx"),
    "on_result of none": (lambda: new().on_result(lambda: None), "on_result, .*1 arguments, report"),
    "on_result that is None": (lambda: new().on_result(None), r"on_result must be a function \(report\), not None"),
    "a function as a predicate": (lambda: new(predicate=lambda event: True), "predicates.when"),
    "the same for owned ones": (lambda: new().owns(related(), predicate=lambda event: True), "predicates.when"),
    "the same for related ones": (
        lambda: new().watches(related(), lambda obj: None, predicate=lambda event: True), "predicates.when"),
    "modify of no argument": (lambda: new(modify=lambda: None), "modify, .*1 arguments, obj"),
    "a text as modify": (lambda: new(modify="x"), "modify must be a function"),
    "a number as watch": (lambda: new(watch=3), r"watch must be a WatcherConfig, such as .*, not 3"),
    "a text as watch of owned ones": (lambda: new().owns(related(), watch="x"), "watch must be a WatcherConfig"),
    "a text as watch of related ones": (
        lambda: new().watches(related(), lambda obj: None, watch="x"), "watch must be a WatcherConfig"),
    "a number as backoff": (lambda: new(backoff=3), "backoff must be a KeyBackoff"),
    "a number as watch_backoff": (lambda: new(watch=WatcherConfig(backoff=3)), "backoff must be a WatchBackoff"),
    "a number as name": (lambda: new(name=3), "name must be a str"),
    "True as concurrency": (lambda: new(concurrency=True), "concurrency must be a whole number"),
    "a text as retry rate": (lambda: new(retry_rate="10"), "retry_rate must be a number of retries per second"),
    "a boolean as retry rate": (lambda: new(retry_rate=True), "retry_rate must be a number of retries per second"),
    "an event as stop token": (lambda: new().graceful_shutdown_on(threading.Event()), "stop must be a StopToken"),
    "a text as source": (lambda: new().reconcile_on("abc"), "a trigger source must be an iterable or a queue, not str"),
    "bytes as source": (lambda: new().reconcile_all_on(b"abc"), "a trigger source must be an iterable or a queue"),
    **{f"a text as {name}": (functools.partial(new, **{name: "3"}), f"{name} must be seconds or a timedelta, not '3'")
       for name in ("debounce",)},
    "a text as resync": (lambda: new().resync("3"), "resync must be seconds or a timedelta, not '3'"),
    "a text as run_timeout": (lambda: new().run_timeout("3"), "run_timeout must be seconds or a timedelta, not '3'"),
    "a text as max_wait": (lambda: Debounce(1, max_wait="3"), "max_wait must be seconds or a timedelta, not '3'"),
    "a text as sync_timeout": (lambda: new().sync_timeout("3"), "sync_timeout must be seconds or a timedelta, not '3'"),
    "a number as on_gone": (lambda: new().on_gone(3), r"on_gone must be a function \(ref, ctx\), not 3"),
    "a text as grace": (lambda: new().shutdown_on_signal(grace="3"), "grace must be seconds or a timedelta"),
}


@pytest.mark.parametrize("given", REFUSED.values(), ids=REFUSED.keys())
def test_what_does_not_fit_is_refused_by_name(given: tuple[Callable[[], object], str]) -> None:
    give, said = given
    with pytest.raises(RequestError, match=said):
        give()


def test_what_fits_is_taken_whatever_its_form() -> None:
    def three(more: Any, obj: Any, ctx: Any) -> Action:
        return Action.await_change()

    controller = new(predicate=predicates.when(lambda event: True) & predicates.generation,
                     modify=strip_managed_fields, name="x", retry_rate=1, backoff=KeyBackoff()).on_result(print)
    for reconciler in (lambda *_: Action.await_change(), functools.partial(three, 1),
                       lambda obj, ctx, more=1: Action.await_change()):
        controller.bind(reconciler)
