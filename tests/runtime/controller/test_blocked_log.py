"""What a controller's log says while all its workers are at runs that do not end."""
from __future__ import annotations

import logging
import threading

import pytest

from kubectl_runtime.core.base.guard import guarded_logger
from kubectl_runtime.core.meta.gvk import ObjectRef
from kubectl_runtime.runtime.controller.controller import Controller
from kubectl_runtime.runtime.controller.housekeeping import AFTER, IDLE_LOOK, LOOK_EVERY, SILENCE, BlockedLog
from kubectl_runtime.runtime.queue.runs import Run
from kubectl_runtime.runtime.reconcile.reconciler import Action, Context
from kubectl_runtime.runtime.triggers.triggers import ReconcileRequest
from kubectl_runtime.testing.asking import eventually
from kubectl_runtime.testing.clock import SimClock
from tests.runtime.scripted_cluster import Cluster, Parent

PATIENCE = 40.0
"""Seconds; only what hangs needs them."""
REMEDY = ("Give the calls that the runs wait for a timeout, or set .run_timeout(seconds); "
          "Controller(concurrency=…) allows more runs at once")


class Looks:
    """A `BlockedLog` and what it sees."""

    def __init__(self, caplog: pytest.LogCaptureFixture, run_timeout: float | None = None) -> None:
        caplog.set_level(logging.INFO, "kubectl_runtime")
        self.caplog = caplog
        self.clock = SimClock()
        self.runs: list[Run] = []
        self.due = 0
        self.full = True
        self.blocked = BlockedLog(guarded_logger("kubectl_runtime.controller.x"), self.clock,
                                  lambda: (self.runs, self.due) if self.full else None, run_timeout)

    def run(self, name: str) -> Run:
        ref = ObjectRef(Parent.api_resource, name, "default")
        run = Run(ref.key, ReconcileRequest(ref), None, self.clock.monotonic())
        self.runs.append(run)
        return run

    def look(self, after: float = 0) -> tuple[float | None, list[str]]:
        """When it wants to look again, and what it says, `after` so many seconds."""
        self.clock.advance(after)
        self.caplog.clear()
        return self.blocked.check(), [f"{record.levelname} {record.getMessage()}" for record in self.caplog.records]


def test_workers_at_the_same_runs_are_told_after_a_minute_again_at_each_doubling_and_so_is_the_end(
        caplog: pytest.LogCaptureFixture) -> None:
    looks = Looks(caplog)
    looks.due = 37
    for name in "abcd":
        looks.run(name)
        looks.clock.advance(1)
    assert looks.look() == (AFTER - 1, [])
    assert looks.look(AFTER - 1) == (LOOK_EVERY, [
        "WARNING no run ends: all 4 workers have been at the same runs for 60.0 s, and 37 keys wait. The longest "
        "runs: Parent default/a for 63.0 s, Parent default/b for 62.0 s, Parent default/c for 61.0 s and 1 more. "
        + REMEDY])
    assert looks.look(AFTER - 1) == (LOOK_EVERY, [])
    again = looks.look(1)[1]
    assert len(again) == 1
    assert "for 2 min, and 37 keys wait" in again[0]
    assert looks.look(AFTER)[1] == []
    assert len(looks.look(AFTER)[1]) == 1
    del looks.runs[0]
    looks.run("e")
    assert looks.look() == (4 * AFTER * 2, ["INFO runs end again: none had ended for 4 min"])


def test_runs_that_take_long_by_nature_are_told_once_an_hour(caplog: pytest.LogCaptureFixture) -> None:
    looks, said = Looks(caplog), []
    looks.due = 1
    for number in range(39):  # 58.5 min
        looks.runs.clear()
        looks.run(f"p-{number}")
        said += looks.look(AFTER)[1]
        said += looks.look(AFTER / 2)[1]
    assert [line.split(":")[0] for line in said] == ["WARNING no run ends", "INFO runs end again"]
    assert said[0].startswith("WARNING no run ends: the only worker has been at the same run for 60.0 s, and 1 key "
                              "waits. The longest runs: Parent default/p-0 for 60.0 s. ")
    looks.clock.advance(SILENCE)
    looks.runs.clear()
    looks.run("later")
    assert len(looks.look(AFTER)[1]) == 1


def test_while_no_key_waits_or_a_worker_is_free_nothing_is_said(caplog: pytest.LogCaptureFixture) -> None:
    looks = Looks(caplog)
    assert looks.look() == (IDLE_LOOK, []), "the worker is called, but has not taken its key"
    looks.run("a")
    assert looks.look(10 * AFTER) == (IDLE_LOOK, [])
    looks.due = 1
    assert len(looks.look()[1]) == 1
    looks.full = False
    assert looks.look()[1] == ["INFO runs end again: none had ended for 10 min"]
    assert looks.look(10 * AFTER) == (None, [])


def test_runs_beyond_their_run_timeout_are_told_with_what_they_do_not_heed(caplog: pytest.LogCaptureFixture) -> None:
    looks = Looks(caplog, run_timeout=30)
    looks.due = 1
    looks.run("a")
    assert ("They exceed the run timeout of 30 s: give the calls that the runs wait for a timeout, or check ctx.stop "
            "in the reconciler") in \
        looks.look(AFTER)[1][0]


def test_a_controller_whose_reconcilers_block_for_ever_says_so_and_says_when_it_goes_on(
        caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "kubectl_runtime.controller")
    clock, hang = SimClock(), threading.Event()
    cluster = Cluster(clock)
    for number in range(3):
        cluster.put(Parent, f"p-{number}")

    def reconcile(obj: Parent, ctx: Context[object]) -> Action:
        hang.wait(PATIENCE)
        return Action.await_change()

    def said(text: str) -> bool:
        clock.advance(AFTER / 4)  # the dispatcher is the one who looks
        return text in caplog.text

    with Controller(cluster.api(Parent), concurrency=2).start(reconcile) as running:
        eventually(lambda: len(running.assembly.runner.running()) == 2, timeout=PATIENCE)
        eventually(lambda: said("all 2 workers have been at the same runs for"), timeout=PATIENCE)
        assert ", and 1 key waits" in caplog.text
        assert (running.why_not_ready, running.why_not_alive) == ("", "")
        hang.set()
        eventually(lambda: said("runs end again"), timeout=PATIENCE)


def test_runs_that_block_after_the_controller_was_idle_are_logged_without_a_further_trigger(
        caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "kubectl_runtime.controller")
    clock, hang, hangs = SimClock(), threading.Event(), threading.Event()
    cluster = Cluster(clock, blocking=True)

    def reconcile(obj: Parent, ctx: Context[object]) -> Action:
        if hangs.is_set():
            hang.wait(PATIENCE)
        return Action.await_change()

    def advanced(seconds: float, text: str) -> bool:
        clock.advance(seconds)
        return text in caplog.text

    with Controller(cluster.api(Parent), concurrency=1).start(reconcile) as running:
        running.wait_until_ready(PATIENCE)
        runner = running.assembly.runner
        eventually(lambda: runner._turn_since is None, timeout=PATIENCE)  # it sleeps, and no timer will wake it
        hangs.set()
        try:
            for name in "abc":
                cluster.put(Parent, name)
            eventually(lambda: runner.depth() == 2, timeout=PATIENCE)
            clock.advance(AFTER - 1)
            assert "no run ends" not in caplog.text
            eventually(lambda: advanced(0.5, "no run ends: the only worker has been at the same run for"),
                       timeout=PATIENCE)
            assert clock.monotonic() < 4 * AFTER
        finally:
            hang.set()
        eventually(lambda: advanced(LOOK_EVERY, "runs end again"), timeout=PATIENCE)


def test_all_workers_busy_wake_the_dispatcher_at_most_once_within_the_limit_of_the_log() -> None:
    clock = SimClock()
    cluster = Cluster(clock, blocking=True)
    looked: list[float] = []

    def reconcile(obj: Parent, ctx: Context[object]) -> Action:
        return Action.await_change()

    with Controller(cluster.api(Parent), concurrency=1).start(reconcile) as running:
        running.wait_until_ready(PATIENCE)
        runner = running.assembly.runner
        eventually(lambda: runner._turn_since is None, timeout=PATIENCE)
        step = runner._step
        runner._step = lambda: looked.append(clock.monotonic()) or step()  # type: ignore[func-returns-value,method-assign]
        for turn in range(20):
            runner.trigger_all([ReconcileRequest(ObjectRef(Parent.api_resource, f"p-{turn}-{number}", "default"))
                                for number in range(5)])
            eventually(lambda: not runner.depth() and not runner.running(), timeout=PATIENCE)
        assert len(looked) <= 1


def test_a_far_timer_does_not_hide_runs_that_block(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "kubectl_runtime.controller")
    clock, hang = SimClock(), threading.Event()
    cluster = Cluster(clock, blocking=True)
    cluster.put(Parent, "far")

    def reconcile(obj: Parent, ctx: Context[object]) -> Action:
        if obj.name == "far":
            return Action.requeue(36_000)
        hang.wait(PATIENCE)
        return Action.await_change()

    def advanced(text: str) -> bool:
        clock.advance(0.5)
        return text in caplog.text

    with Controller(cluster.api(Parent), concurrency=1).start(reconcile) as running:
        running.wait_until_ready(PATIENCE)
        runner = running.assembly.runner
        eventually(lambda: runner.depth() == 1 and runner._turn_since is None, timeout=PATIENCE)
        try:
            for name in "abc":
                cluster.put(Parent, name)
            eventually(lambda: runner.depth() == 3, timeout=PATIENCE)
            clock.advance(AFTER - 1)
            eventually(lambda: advanced("no run ends: the only worker has been at the same run for"), timeout=PATIENCE)
            assert clock.monotonic() < 4 * AFTER
        finally:
            hang.set()
