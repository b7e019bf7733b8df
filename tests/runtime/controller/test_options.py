"""The options of a controller: each through both constructors, their signature, and those of 0.2."""
from __future__ import annotations

import inspect
import re
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from kubectl_runtime.client.api.client import OwnWrites
from kubectl_runtime.core.base.errors import RequestError
from kubectl_runtime.core.base.observer import Observer, together
from kubectl_runtime.core.codec.views import strip_managed_fields
from kubectl_runtime.runtime.controller.controller import Controller
from kubectl_runtime.runtime.controller.options import RENAMED, ControllerOptions, Debounce
from kubectl_runtime.runtime.controller.plan import Plan
from kubectl_runtime.runtime.queue.runs import KeyBackoff
from kubectl_runtime.runtime.store.reflector import reflector, store
from kubectl_runtime.runtime.triggers import predicates
from kubectl_runtime.runtime.triggers.shared_watches import selection_of
from kubectl_runtime.runtime.watch.backoff import WatchBackoff
from kubectl_runtime.runtime.watch.config import WatcherConfig
from tests.runtime.scripted_cluster import Child, Cluster, Parent

OBSERVER = together(Observer())
POOL = ThreadPoolExecutor(1)
RULE = WatchBackoff(maximum=60)
INDEXES = {"name": lambda obj: obj.name}

GIVEN: dict[str, tuple[Any, Any]] = {
    "watch": (WatcherConfig("a=b"), WatcherConfig("a=b")),
    "concurrency": (3, 3),
    "debounce": (timedelta(seconds=2), Debounce(timedelta(seconds=2))),
    "backoff": (KeyBackoff(maximum=60), KeyBackoff(maximum=60)),
    "name": ("web", "web"),
    "predicate": (predicates.generation, predicates.generation),
    "modify": (strip_managed_fields, strip_managed_fields),
    "observer": (OBSERVER, OBSERVER),
    "executor": (POOL, POOL),
    "retry_rate": (None, None),
    "own_writes": (OwnWrites.OFF, OwnWrites.OFF),
    "record": ("flight.jsonl", Path("flight.jsonl")),
    "ready": ("Ready", "Ready"),
    "indexes": (INDEXES, INDEXES),
}
"""Of each option what is passed, and what the parts read."""

OF_A_WATCH = {"watch", "modify", "record", "indexes"}


def by_api(**options: Any) -> Controller[Parent]:
    return Controller(Cluster().api(Parent), **options)


def by_stream(**options: Any) -> Controller[Parent]:
    cluster = Cluster()
    parents, writer = store(Parent)
    return Controller.for_stream(reflector(writer, []), parents, client=cluster.client, **options)


def test_every_option_is_tried_here() -> None:
    assert {option.name for option in fields(ControllerOptions)} == GIVEN.keys()
    assert len(GIVEN) == 14


@pytest.mark.parametrize("name", GIVEN)
@pytest.mark.parametrize("make", [by_api, by_stream])
def test_an_option_is_what_the_parts_read(make: Callable[..., Controller[Parent]], name: str) -> None:
    passed, read = GIVEN[name]
    if make is by_stream and name in OF_A_WATCH:
        with pytest.raises(TypeError, match=rf"for_stream\(\) got an unexpected keyword argument '{name}'"):
            make(**{name: passed})
        return
    plan = make(**{name: passed}).plan()
    assert getattr(plan.options, name) == read
    assert plan.name == ("web" if name == "name" else "parent")


def test_an_observer_that_is_not_guarded_becomes_so_once() -> None:
    plan = by_api(observer=Observer(), record="flight.jsonl").plan()
    assert together(plan.options.observer) is plan.options.observer
    assert (plan.without_record().options.record, plan.without_record().options.observer) == (
        None, plan.options.observer)


@pytest.mark.parametrize(("make", "left_out"), [(Controller, set()), (Controller.for_stream, OF_A_WATCH)])
def test_the_signature_shows_each_option_with_its_default(make: Any, left_out: set[str]) -> None:
    shown = inspect.signature(make).parameters
    assert {name for name in GIVEN if name in shown} == GIVEN.keys() - left_out
    assert not RENAMED.keys() & shown.keys()
    assert (shown["concurrency"].default, shown["name"].default) == (10, None)
    assert shown["executor"].annotation == "Executor | None"


def test_the_docstring_lists_each_option_once() -> None:
    assert re.findall(r"^\s*- `(\w+)`", Controller.__init__.__doc__ or "", re.MULTILINE) == [*GIVEN]


def test_an_option_touches_no_other_field_of_the_plan() -> None:
    assert not {*Plan.__struct_fields__} & GIVEN.keys()


@pytest.mark.parametrize("make", [by_api, by_stream])
@pytest.mark.parametrize("name", ["concurency", "index", "self"])
def test_a_name_that_is_no_option_is_refused(make: Callable[..., object], name: str) -> None:
    with pytest.raises(TypeError, match=f"'{name}'|multiple values"):
        make(**{name: 1})


@pytest.mark.parametrize("own", [None, WatchBackoff(maximum=5)])
def test_the_backoff_of_the_main_watch_is_that_of_the_others_unless_they_have_one(own: WatchBackoff | None) -> None:
    cluster = Cluster()
    controller = Controller(cluster.api(Parent), watch=WatcherConfig(backoff=RULE))
    controller.owns(cluster.api(Child), watch=WatcherConfig(backoff=own)).watches(cluster.api(Child), lambda obj: None)
    assert [plan.config.failure_backoff for plan in controller.plan().related] == [own or RULE, RULE]


def test_watches_are_the_same_only_with_the_same_backoff() -> None:
    api = Cluster().api(Parent)
    default, said, other = (selection_of(api, WatcherConfig(backoff=rule))
                            for rule in (None, WatchBackoff(), WatchBackoff(maximum=60)))
    assert default == said != other
    assert hash(default) == hash(said)
    assert hash(WatcherConfig(backoff=RULE)) == hash(WatcherConfig(backoff=WatchBackoff(maximum=60)))


def gone(ref: object, ctx: object) -> None: ...


OLD: dict[str, tuple[dict[str, Any], Callable[[Plan], Any], Any]] = {
    "watch_backoff": ({"watch": WatcherConfig("a=b"), "watch_backoff": RULE},
                      lambda plan: plan.options.watch, WatcherConfig("a=b", backoff=RULE)),
    "max_wait": ({"debounce": 1, "max_wait": 5}, lambda plan: plan.options.debounce, Debounce(1, max_wait=5)),
    "resync": ({"resync": timedelta(minutes=1)}, lambda plan: plan.resync, 60.0),
    "run_timeout": ({"run_timeout": 5}, lambda plan: plan.run_timeout, 5.0),
    "sync_timeout": ({"sync_timeout": timedelta(minutes=1)}, lambda plan: plan.sync_timeout, 60.0),
    "on_gone": ({"on_gone": gone}, lambda plan: plan.on_gone, gone),
}


@pytest.mark.parametrize("name", RENAMED)
@pytest.mark.parametrize("make", [by_api, by_stream])
def test_an_option_of_0_2_works_and_warns_with_its_new_place(make: Callable[..., Controller[Parent]],
                                                             name: str) -> None:
    options, read, wanted = OLD[name]
    if make is by_stream and name in {"watch_backoff", "on_gone"}:
        with pytest.raises(TypeError, match="unexpected keyword argument"):
            make(**options)
        return
    with pytest.warns(DeprecationWarning, match=re.escape(f"({name}=) is deprecated and will be removed in 0.4: use "
                                                          f"{RENAMED[name]}")) as warned:
        plan = make(**options).plan()
    assert read(plan) == wanted
    assert [Path(one.filename) for one in warned] == [Path(__file__)]


def test_an_option_of_0_2_that_says_the_default_changes_nothing() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        plan = by_api(max_wait=None, sync_timeout=None, on_gone=None).plan()
    assert (plan.options.debounce, plan.sync_timeout, plan.on_gone) == (Debounce(0), None, None)


@pytest.mark.parametrize(("options", "said"), [
    ({"watch_backoff": 3}, "watch_backoff must be a WatchBackoff"),
    ({"debounce": 5, "max_wait": 1}, r"debounce must be at most max_wait \(1\), not 5"),
    ({"sync_timeout": -1}, "sync_timeout must be at least 0"),
    ({"on_gone": 3}, "on_gone must be a function"),
    ({"resync": 0}, "resync"),
    ({"run_timeout": -1}, "run_timeout"),
])
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_an_option_of_0_2_is_checked_as_before(options: dict[str, Any], said: str) -> None:
    with pytest.raises(RequestError, match=said):
        by_api(**options)


@pytest.mark.parametrize("wrong", ["", "not ready", "Ready/", "a/b/c", "-Ready", 5, True, ["Ready"]])
def test_ready_is_the_type_of_a_condition(wrong: Any) -> None:
    with pytest.raises(RequestError, match="ready must be the type of a condition, such as 'Ready'"):
        by_api(ready=wrong)
    assert by_api(ready="example.com/Synced").plan().options.ready == "example.com/Synced"


@pytest.mark.parametrize("wrong", [["app"], {"app": 3}, {5: len}, {"app": lambda: None}, "app"])
def test_indexes_are_functions_by_name_wherever_a_watch_is_declared(wrong: Any) -> None:
    cluster = Cluster()
    for declare in (lambda: by_api(indexes=wrong), lambda: by_api().owns(cluster.api(Child), indexes=wrong),
                    lambda: by_api().watches(cluster.api(Child), lambda obj: None, indexes=wrong)):
        with pytest.raises(RequestError, match="index"):
            declare()
