"""When a running controller says that it is ready and alive; with threads, on a clock that the test moves."""
from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from kubectl_runtime.core.base.threads import SYSTEM_CLOCK, Clock
from kubectl_runtime.core.meta.gvk import ObjectRef
from kubectl_runtime.runtime.controller.controller import Controller
from kubectl_runtime.runtime.controller.housekeeping import SyncGate
from kubectl_runtime.runtime.controller.running import DISPATCHER_LIMIT, Running
from kubectl_runtime.runtime.observe.health import HealthApplication, HealthServer
from kubectl_runtime.runtime.queue.scheduler import Scheduler
from kubectl_runtime.runtime.reconcile.reconciler import Action, Context
from kubectl_runtime.runtime.triggers.shared_watches import SLACK, Watch
from kubectl_runtime.runtime.triggers.triggers import ReconcileRequest
from kubectl_runtime.runtime.watch.backoff import WatchBackoff
from kubectl_runtime.runtime.watch.config import WatcherConfig
from kubectl_runtime.testing.clock import SimClock
from tests.runtime.scripted_cluster import Child, Cluster, Parent

LONG = 30.0
QUICK = WatchBackoff(initial=0.001, maximum=0.001, jitter=False)


def satisfied(obj: Parent, ctx: Context[Any]) -> Action:
    return Action.await_change()


def eventually(done: Callable[[], bool]) -> None:
    """Of what other threads do; in real time."""
    deadline = time.monotonic() + LONG
    while not done():
        assert time.monotonic() < deadline
        threading.Event().wait(0.002)


@contextmanager
def started(cluster: Cluster, reconcile: Any = satisfied, **options: Any) -> Iterator[Running[Parent]]:
    controller = Controller(cluster.api(Parent), name="c", watch=WatcherConfig(backoff=QUICK), **options)
    running = controller.owns(cluster.api(Child)).start(reconcile)
    try:
        yield running
    finally:
        running.stop(1)


def cluster_on(clock: Clock = SYSTEM_CLOCK) -> Cluster:
    return Cluster(clock, blocking=True)


def test_it_is_not_ready_before_every_store_is_complete_and_says_which_is_not_and_why() -> None:
    cluster = cluster_on()
    cluster.failing.add(Child.api_resource)
    with started(cluster) as running:
        eventually(lambda: "cannot be reached" in running.why_not_ready)
        assert "it waits for children.test.example" in running.why_not_ready
        assert not running.is_ready
        assert running.why_not_alive == ""
        cluster.failing.clear()
        eventually(lambda: running.is_ready)
        assert running.why_not_ready == ""


def test_a_watch_that_keeps_failing_makes_it_unready_but_not_dead_until_it_works_again(
        monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kubectl_runtime.client.http.send.PROBE_SECONDS", 0.2)
    cluster = cluster_on()
    with started(cluster) as running:
        running.wait_until_ready(LONG)
        cluster.failing.add(Parent.api_resource)
        with cluster.changed:
            cluster.epoch[Parent.api_resource] += 1
            cluster.changed.notify_all()
        eventually(lambda: not running.is_ready)
        assert "parents.test.example has failed" in running.why_not_ready
        assert "cannot be reached" in running.why_not_ready
        assert running.why_not_alive == ""
        cluster.failing.clear()
        eventually(lambda: running.is_ready)


def test_one_that_stops_is_unready_but_not_dead() -> None:
    with started(cluster_on()) as running:
        running.wait_until_ready(LONG)
        running.stop(LONG)
        assert running.why_not_ready == "it stops: stop() was called"
        assert running.why_not_alive == ""


def test_one_whose_watch_thread_died_of_a_defect_is_dead_and_unready(monkeypatch: pytest.MonkeyPatch) -> None:
    def defect(watch: Watch[Any]) -> None:
        raise SystemExit("a defect")

    monkeypatch.setattr(Watch, "step", defect)
    with started(cluster_on()) as running:
        eventually(lambda: running.error is not None)
        assert "ended by itself: SystemExit: a defect" in running.why_not_alive
        eventually(lambda: not running.is_ready)


def test_one_whose_worker_died_of_a_defect_is_dead(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = cluster_on()
    cluster.put(Parent, "a")

    def defect(*_: Any) -> Any:
        raise RuntimeError("a defect")

    monkeypatch.setattr("kubectl_runtime.runtime.queue.work_queue.WorkQueue.finish", defect)
    with started(cluster) as running:
        eventually(lambda: "RuntimeError: a defect" in running.why_not_alive)


def test_a_run_that_takes_for_ever_is_no_reason_to_die() -> None:
    clock = SimClock()
    cluster = cluster_on(clock)
    cluster.put(Parent, "a")
    entered, release = threading.Event(), threading.Event()

    def reconcile(obj: Parent, ctx: Context[Any]) -> Action:
        entered.set()
        release.wait(LONG)
        return Action.await_change()

    with started(cluster, reconcile, concurrency=1) as running:
        try:
            assert entered.wait(LONG)
            cluster.put(Parent, "b")  # no worker is left for it
            runner = running._assembly.runner
            eventually(lambda: runner.depth() == 1)
            for _ in range(200):  # 100 minutes, in steps between which the dispatcher has its turn
                eventually(lambda: any(waits is runner._changed and until > clock.monotonic()
                                       for waits, until in [*clock._waiters.values()]))
                assert "dispatcher" not in running.why_not_alive
                clock.advance(30)
        finally:
            release.set()


def test_an_idle_dispatcher_is_no_stuck_one_however_long_nothing_happens() -> None:
    clock = SimClock()
    with started(cluster_on(clock)) as running:
        running.wait_until_ready(LONG)
        eventually(lambda: running._assembly.runner._turn_since is None)
        clock.advance(1e6)
        eventually(lambda: "dispatcher" not in running.why_not_alive)


@pytest.mark.parametrize("place", ["in its housekeeping", "with its lock", "in the queue"])
def test_a_dispatcher_that_is_stuck_is_dead_when_its_limit_is_over(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SimClock()
    cluster = cluster_on(clock)
    entered, release = threading.Event(), threading.Event()
    stuck = {"now": False}

    def block() -> None:
        if stuck["now"] and threading.current_thread().name == "c dispatcher":
            entered.set()
            release.wait(LONG)

    check, due = SyncGate.check, Scheduler.next_due

    def housekeeping(gate: SyncGate) -> float | None:
        if place == "in its housekeeping":
            block()
        return check(gate)

    def next_due(scheduler: Scheduler) -> float | None:
        if place == "in the queue":
            block()
        return due(scheduler)

    monkeypatch.setattr(SyncGate, "check", housekeeping)
    monkeypatch.setattr(Scheduler, "next_due", next_due)
    with started(cluster) as running:
        runner = running._assembly.runner
        running.wait_until_ready(LONG)
        eventually(lambda: runner._turn_since is None)
        try:
            stuck["now"] = True
            if place == "with its lock":
                assert runner._lock.acquire(timeout=LONG)
                runner._wake_at = clock.monotonic()  # as by a trigger, which notifies it
                runner._changed.notify_all()
            else:
                runner.wake()
                assert entered.wait(LONG)
            clock.advance(DISPATCHER_LIMIT - 1)
            assert running.why_not_alive == ""
            clock.advance(2)
            assert running.why_not_alive == f"its dispatcher has been stuck for {DISPATCHER_LIMIT + 1:.0f} s"
        finally:
            stuck["now"] = False
            if place == "with its lock":
                runner._lock.release()
            release.set()
        eventually(lambda: running.why_not_alive == "")


def test_a_watch_that_is_stuck_in_a_mapper_is_dead_after_longer_than_any_silence() -> None:
    clock = SimClock()
    cluster = cluster_on(clock)
    entered, release = threading.Event(), threading.Event()

    def mapper(obj: Child) -> list[ObjectRef]:
        entered.set()
        release.wait(LONG)
        return []

    controller = Controller(cluster.api(Parent), name="c").watches(cluster.api(Child), mapper)
    running = controller.start(satisfied)
    try:
        running.wait_until_ready(LONG)
        cluster.put(Child, "x")
        assert entered.wait(LONG)
        clock.advance(290 + 5 + SLACK - 1)
        assert "children" not in running.why_not_alive
        clock.advance(2)
        assert "the watch of children.test.example has been stuck for 1 s" in running.why_not_alive
        release.set()
        eventually(lambda: "children" not in running.why_not_alive)
    finally:
        release.set()
        running.stop(1)


def test_the_health_server_answers_for_the_controllers_that_it_watches() -> None:
    cluster = cluster_on()
    cluster.failing.add(Child.api_resource)
    server = HealthServer("127.0.0.1:0")

    def status(path: str) -> int:
        return status_of(server.application, path)

    with started(cluster) as running:
        server.watch(running)
        assert [status("/healthz/c"), status("/readyz/c"), status("/readyz")] == [200, 500, 500]
        stores = [f"/readyz/store {kind.api_resource.full_name}" for kind in (Parent, Child)]
        eventually(lambda: [status(path) for path in stores] == [200, 500])
        cluster.failing.clear()
        eventually(lambda: status("/readyz") == 200)
        running.fail("a thread", RuntimeError("a defect"))
        assert [status("/healthz/c"), status("/readyz/c")] == [500, 500]


def status_of(application: HealthApplication, path: str) -> int:
    found: list[Any] = []
    application({"REQUEST_METHOD": "GET", "PATH_INFO": path, "QUERY_STRING": ""},
                lambda status, _headers, _error=None: found.append(status))  # type: ignore[arg-type,return-value,misc]
    return int(found[0][:3])


def test_a_request_schedules_nothing_that_a_dispatcher_would_be_late_for() -> None:
    clock = SimClock()
    with started(cluster_on(clock)) as running:
        running.wait_until_ready(LONG)
        runner = running._assembly.runner
        eventually(lambda: runner._turn_since is None)
        runner.trigger_all([ReconcileRequest(ObjectRef(Parent.api_resource, "gone", "default"), "a test")])
        eventually(lambda: not runner.depth())
        assert runner.dispatcher_late() == 0
