"""A run begins and ends in one place: its scope, and the parts that it has beside the reconciler."""
from __future__ import annotations

from typing import Any

import pytest

from kubectl_runtime import Action, Context
from kubectl_runtime.core.base.observer import Observer, RunResult
from kubectl_runtime.core.base.threads import SYSTEM_CLOCK
from kubectl_runtime.core.scope import RunScope, StopToken, current_scope
from kubectl_runtime.resources import ConfigMap
from kubectl_runtime.runtime.queue.runs import SUCCEEDED, Outcome, Run
from kubectl_runtime.runtime.reconcile.invoker import Invoker, RunObserver, RunPart
from kubectl_runtime.runtime.reconcile.runner import Owned
from kubectl_runtime.testing import context_for

log: list[str] = []


class Part:
    def __init__(self, name: str, *, refuses: bool = False, breaks: bool = False) -> None:
        self.name, self.refuses, self.breaks = name, refuses, breaks

    def begin(self, run: Run, scope: RunScope) -> bool:
        assert current_scope() is scope
        log.append(f"{self.name} begins")
        if self.breaks:
            raise MemoryError
        return not self.refuses

    def end(self, run: Run, outcome: Outcome) -> None:
        assert current_scope() is not None
        log.append(f"{self.name} ends: {outcome.result}")


@pytest.fixture(autouse=True)
def emptied() -> None:
    log.clear()


def invoked(*parts: RunPart, defect: type[BaseException] | None = None) -> Outcome:
    obj = ConfigMap(name="a", namespace="default", data={})
    ctx = context_for(obj)

    def reconcile(obj: ConfigMap, ctx: Context[None]) -> Action:
        log.append("reconciles")
        return Action.await_change()

    invoker = Invoker(reconcile, None, ctx.store(ConfigMap), ctx._environment, parts=parts)
    if defect is not None:
        invoker.invoke = lambda run: (_ for _ in ()).throw(defect("planned"))
    try:
        return invoker(ctx._run)
    finally:
        assert current_scope() is None


def test_parts_begin_in_their_order_and_end_in_the_reverse_order() -> None:
    assert invoked(Part("a"), Part("b")).result is RunResult.SUCCESS
    assert log == ["a begins", "b begins", "reconciles", "b ends: success", "a ends: success"]


def test_a_part_that_refuses_the_run_has_no_end_and_nothing_runs() -> None:
    assert invoked(Part("a"), Part("b", refuses=True), Part("c")).result is RunResult.SKIPPED
    assert log == ["a begins", "b begins", "a ends: skipped"]


def test_what_began_ends_with_an_error_after_a_defect_of_a_part() -> None:
    with pytest.raises(MemoryError):
        invoked(Part("a"), Part("b", breaks=True), Part("c"))
    assert log == ["a begins", "b begins", "a ends: error"]


@pytest.mark.parametrize("defect", [MemoryError, ZeroDivisionError, SystemExit])
def test_what_began_ends_with_an_error_after_a_defect_inside(defect: type[BaseException]) -> None:
    with pytest.raises(defect):
        invoked(Part("a"), Part("b"), defect=defect)
    assert log == ["a begins", "b begins", "b ends: error", "a ends: error"]


def test_the_scope_is_left_whatever_an_end_raises() -> None:
    class Broken(Part):
        def end(self, run: Run, outcome: Outcome) -> None:
            raise MemoryError

    with pytest.raises(MemoryError):
        invoked(Broken("a"))


class Raises(Observer):
    def run_started(self, *arguments: Any) -> None:
        log.append("started")
        raise ValueError("planned")

    def run_ended(self, controller: str, key: Any, result: RunResult, *arguments: Any) -> None:
        log.append(f"ended: {result}")
        raise SystemExit


@pytest.mark.parametrize("defect", [None, MemoryError])
def test_an_observer_is_notified_of_both_ends_and_may_raise(defect: type[BaseException] | None) -> None:
    observer = RunObserver("maps", Raises(), SYSTEM_CLOCK)
    if defect is None:
        invoked(observer)
        assert log == ["started", "reconciles", "ended: success"]
    else:
        with pytest.raises(defect):
            invoked(observer, defect=defect)
        assert log == ["started", "ended: error"]


class Elsewhere:
    """A partition that loses one object when the test says so."""

    def __init__(self, lost: StopToken | None) -> None:
        self.lost = lost

    def begin(self, key: Any) -> StopToken | None:
        log.append(f"takes {key[1]}")
        return self.lost

    def end(self, key: Any) -> None:
        log.append(f"gives back {key[1]}")


@pytest.mark.parametrize("how", ["lost", "aborted"])
def test_calls_and_the_context_see_that_the_object_is_another_replicas(how: str) -> None:
    partition: Any = Elsewhere(StopToken())
    run, scope = context_for(ConfigMap(name="a", namespace="default"))._run, RunScope(StopToken(), StopToken())
    token = partition.lost if how == "lost" else scope.stop
    part = Owned(partition, SYSTEM_CLOCK)
    assert part.begin(run, scope)
    stops = [run.stop, scope.stop]
    assert [stop is not None and stop.is_set() for stop in stops] == [False, False]
    token.set("it is over")
    assert [stop is not None and stop.is_set() for stop in stops] == [True, True]
    part.end(run, SUCCEEDED)
    assert log == ["takes a", "gives back a"]


def test_what_is_another_replicas_does_not_run() -> None:
    partition: Any = Elsewhere(None)
    assert invoked(Part("a"), Owned(partition, SYSTEM_CLOCK)).result is RunResult.SKIPPED
    assert log == ["a begins", "takes a", "a ends: skipped"]
