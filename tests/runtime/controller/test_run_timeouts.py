"""The end of a run's time: who looks sees it, who waits is woken, and calls of the library end with it."""
from __future__ import annotations

import threading
import time

import pytest

from kubectl_runtime.core.base.threads import SYSTEM_CLOCK
from kubectl_runtime.core.meta.gvk import ObjectRef
from kubectl_runtime.core.scope import FirstOf, RunScope, StopToken, current_scope
from kubectl_runtime.runtime.controller.controller import Controller
from kubectl_runtime.runtime.controller.housekeeping import RunTimeouts
from kubectl_runtime.runtime.lifecycle.lifecycle import Shutdown
from kubectl_runtime.runtime.queue.runs import SUCCEEDED, Run
from kubectl_runtime.runtime.reconcile.reconciler import Action, Context
from kubectl_runtime.runtime.triggers.triggers import ReconcileRequest
from kubectl_runtime.testing.clock import SimClock
from tests.runtime.scripted_cluster import Cluster, Parent

LIMIT = 20


class Rig:
    def __init__(self, limit: float | None) -> None:
        self.clock = SimClock()
        self.shutdown = Shutdown(self.clock)
        self.woken = 0
        self.timeouts = RunTimeouts(limit, self.shutdown, self.clock, self.wake)

    def wake(self) -> None:
        self.woken += 1

    def run(self, name: str) -> Run:
        ref = ObjectRef(Parent.api_resource, name, "default")
        return Run(ref.key, ReconcileRequest(ref), None, self.clock.monotonic())


def stop_of(run: Run) -> StopToken:
    assert run.stop is not None
    return run.stop


def test_each_run_has_its_own_time_and_the_dispatcher_is_woken_for_the_first_one() -> None:
    rig, called = Rig(10), []
    a = rig.run("a")
    rig.timeouts.begin(a, RunScope())
    rig.clock.advance(4)
    b = rig.run("b")
    rig.timeouts.begin(b, RunScope())
    stop_of(a).on_set(lambda: called.append("a"))
    stop_of(b).on_set(lambda: called.append("b"))
    assert (rig.woken, rig.timeouts.check()) == (1, 6)
    rig.clock.advance(6)
    assert (stop_of(a).is_set(), stop_of(b).is_set(), called) == (True, False, [])
    assert (rig.timeouts.check(), called, stop_of(a).reason) == (4, ["a"], "its time is up")
    rig.timeouts.end(a, SUCCEEDED)
    rig.timeouts.end(b, SUCCEEDED)
    rig.clock.advance(4)
    assert (rig.timeouts.check(), called) == (None, ["a"])
    rig.timeouts.begin(rig.run("c"), RunScope())
    assert rig.woken == 2


def test_the_shutdown_ends_a_run_before_its_time_and_what_comes_too_late_is_called_at_once() -> None:
    rig, called = Rig(10), []
    a = rig.run("a")
    scope = RunScope(rig.shutdown.aborted, rig.shutdown.cut)
    assert rig.timeouts.begin(a, scope)
    assert (scope.stop, scope.cut) == (a.stop, rig.shutdown.cut)
    forget = stop_of(a).on_set(lambda: called.append("taken back"))
    forget()
    stop_of(a).on_set(lambda: called.append("shutdown"))
    rig.shutdown.abort("enough")
    assert (called, stop_of(a).reason, stop_of(a).wait(100)) == (["shutdown"], "enough", True)

    late = Rig(10)
    b = late.run("b")
    late.timeouts.begin(b, RunScope())
    late.clock.advance(11)
    stop_of(b).on_set(lambda: called.append("late"))
    assert called == ["shutdown", "late"]


def test_without_a_limit_a_run_obeys_the_shutdown_alone() -> None:
    rig = Rig(None)
    a = rig.run("a")
    scope = RunScope(rig.shutdown.aborted, rig.shutdown.cut)
    assert rig.timeouts.begin(a, scope)
    assert (scope.stop, scope.cut) == (rig.shutdown.aborted, rig.shutdown.cut)
    rig.timeouts.end(a, SUCCEEDED)
    assert (a.stop, rig.timeouts.check(), rig.woken) == (None, None, 0)


@pytest.mark.parametrize("draining", [False, True], ids=["in time", "while the controller drains"])
def test_a_wait_of_the_library_inside_a_run_ends_at_its_time(draining: bool) -> None:
    cluster, waited, begun = Cluster(blocking=True), [], threading.Event()
    cluster.put(Parent, "a")

    def reconcile(obj: Parent, ctx: Context[None]) -> Action:
        scope = current_scope()
        assert scope is not None
        assert scope.stop is ctx.stop
        begun.set()
        waited.append((FirstOf(StopToken(), scope.stop, clock=SYSTEM_CLOCK).wait(LIMIT), time.monotonic() - began))
        return Action.await_change()

    controller = Controller(cluster.api(Parent)).run_timeout(0.3)
    began = time.monotonic()  # not later than the run
    with controller.start(reconcile) as running:
        assert begun.wait(LIMIT)
        if draining:
            running.stop(LIMIT)
        else:
            until = time.monotonic() + LIMIT
            while not waited:
                assert time.monotonic() < until
                threading.Event().wait(0.01)
    ((ended, seconds),) = waited
    assert ended
    assert 0.3 <= seconds < LIMIT / 2
