"""Whatever user code raises or returns, the controller goes on and reconciles everything else."""
from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest

from kubectl_runtime.runtime.controller.controller import Controller
from kubectl_runtime.runtime.reconcile.reconciler import Action, Context
from tests.runtime.scripted_cluster import Cluster, Parent

LIMIT = 10.0


class Unprintable(Exception):
    """Its text cannot be had, as with many an exception that formats its arguments late."""

    def __str__(self) -> str:
        raise RuntimeError("no text")

    __repr__ = __str__


class Quitter(Exception):
    def __str__(self) -> str:
        raise SystemExit(2)


def raises(error: BaseException) -> Callable[[], Any]:
    def answer() -> Any:
        raise error

    return answer


class BrokenSource:
    """An iterable that fails, and cannot be shown either."""

    def __init__(self) -> None:
        self.asked = threading.Event()

    def __iter__(self) -> Iterator[Any]:
        self.asked.set()
        raise Unprintable

    def __repr__(self) -> str:
        raise Unprintable


def test_a_trigger_source_that_fails_does_not_end_the_controller() -> None:
    cluster, source, seen = Cluster(), BrokenSource(), threading.Event()

    def reconcile(obj: Parent, ctx: Context[Any]) -> Action:
        seen.set()
        return Action.await_change()

    with Controller(cluster.api(Parent)).reconcile_on(source).start(reconcile) as running:
        assert source.asked.wait(LIMIT)
        for thread in threading.enumerate():
            if "trigger source" in thread.name:
                thread.join(LIMIT)
        cluster.put(Parent, "good")
        assert seen.wait(LIMIT)
        assert running.error is None


HOSTILE = {
    "an exception without text": raises(Unprintable()),
    "an exception that exits when shown": raises(Quitter()),
    "GeneratorExit": raises(GeneratorExit()),
    "StopIteration": raises(StopIteration(1)),
    "an Action that waits for a text": lambda: Action("soon"),  # type: ignore[arg-type]
    "an Action that waits until yesterday": lambda: Action(-1.0),
    "an Action that waits for no number": lambda: Action(float("nan")),
    "an Action that waits for ever": lambda: Action.requeue(float("inf")),
    "an Action that waits for longer than threads can": lambda: Action.requeue(timedelta.max),
    "the class": lambda: Action,
    "a number": lambda: 5,
}


@pytest.mark.parametrize("hostile", HOSTILE.values(), ids=HOSTILE.keys())
@pytest.mark.parametrize("place", ["reconciler", "error policy"])
def test_nothing_that_user_code_raises_or_returns_ends_the_controller(
        place: str, hostile: Callable[[], Any]) -> None:
    cluster = Cluster()
    bad, good = threading.Event(), threading.Event()

    def reconcile(obj: Parent, ctx: Context[Any]) -> Any:
        if obj.name == "good":
            good.set()
            return Action.await_change()
        if place == "error policy":
            raise ValueError("planned")
        bad.set()
        return hostile()

    def policy(obj: Parent, error: BaseException, ctx: Context[Any]) -> Any:
        bad.set()
        return hostile()

    cluster.put(Parent, "bad")
    controller = Controller(cluster.api(Parent), concurrency=1)
    with controller.start(reconcile, error_policy=policy if place == "error policy" else None) as running:
        assert bad.wait(LIMIT)
        cluster.put(Parent, "good")
        assert good.wait(LIMIT)
        assert running.error is None
        assert running.stop() == []


def test_a_log_handler_that_asks_for_the_stop_itself_does_not_block_it() -> None:
    """Log handlers are user code too: no lock is held while the end is reported."""
    cluster = Cluster()
    controller = Controller(cluster.api(Parent), concurrency=1, name="logged")
    running = controller.start(lambda obj, ctx: Action.await_change())
    answers: list[object] = []

    class Asking(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if record.getMessage() == "stopped":
                answers.append(running.stop(LIMIT))

    logger = logging.getLogger("kubectl_runtime.controller.logged")
    handler, before = Asking(), logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        stopper = threading.Thread(target=lambda: answers.append(running.stop(LIMIT)), daemon=True)
        stopper.start()
        stopper.join(LIMIT)
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)
    assert answers == [[], []]
