"""Runs in a pool of the user's, with real threads."""
from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from typing import Any

import pytest

from kubectl_runtime.core.base.errors import RequestError
from kubectl_runtime.runtime.controller.controller import Controller
from kubectl_runtime.runtime.reconcile.reconciler import Action, Context
from kubectl_runtime.runtime.reconcile.runner import check_pool
from kubectl_runtime.testing import eventually
from tests.runtime.scripted_cluster import Cluster, Parent

LIMIT = 20


class Counting(ThreadPoolExecutor):
    """Counts what is submitted and not done."""

    def __init__(self, size: int) -> None:
        super().__init__(size, thread_name_prefix="pool")
        self.submitted = 0
        self.most = 0
        self.open: set[Future[Any]] = set()

    def submit(self, *args: Any, **options: Any) -> Future[Any]:
        self.submitted += 1
        future = super().submit(*args, **options)
        self.open = {other for other in self.open if not other.done()} | {future}
        self.most = max(self.most, len(self.open))
        return future


@pytest.fixture
def cluster() -> Cluster:
    return Cluster(blocking=True)


@pytest.fixture
def pool() -> Iterator[Counting]:
    with Counting(4) as made:
        yield made


def test_each_key_is_a_submit_of_its_own_in_the_users_threads_and_the_pool_outlives_the_controller(
        cluster: Cluster, pool: Counting) -> None:
    names = {f"p-{number}" for number in range(50)}
    for name in names:
        cluster.put(Parent, name)
    seen: dict[str, str] = {}
    all_seen = threading.Event()

    def reconcile(obj: Parent, ctx: Context[Any]) -> Action:
        seen[obj.name] = threading.current_thread().name
        if len(seen) == len(names):
            all_seen.set()
        return Action.await_change()

    for _ in range(2):  # the second life uses the same pool
        seen.clear()
        all_seen.clear()
        submitted = pool.submitted
        with Controller(cluster.api(Parent), concurrency=3, executor=pool).start(reconcile):
            assert all_seen.wait(LIMIT)
        assert set(seen) == names
        assert all(thread.startswith("pool") for thread in seen.values())
        assert pool.submitted - submitted >= len(names)
    assert pool.most <= 6  # three, and as many whose runs have ended and that are about to be done
    assert pool.submit(lambda: "still there").result(LIMIT) == "still there"


def test_what_has_not_begun_is_cancelled_when_the_controller_stops_and_the_stop_does_not_wait_for_the_pool(
        cluster: Cluster) -> None:
    for number in range(5):
        cluster.put(Parent, f"p-{number}")
    began, go_on = threading.Event(), threading.Event()
    seen: list[str] = []

    def reconcile(obj: Parent, ctx: Context[Any]) -> Action:
        seen.append(obj.name)
        began.set()
        go_on.wait(LIMIT)
        return Action.await_change()

    with ThreadPoolExecutor(1) as pool:
        running = Controller(cluster.api(Parent), concurrency=5, executor=pool).start(reconcile)
        assert began.wait(LIMIT)
        stopper = threading.Thread(target=lambda: stuck.extend(running.stop(LIMIT)))
        stuck: list[Any] = []
        stopper.start()
        assert running.wait(LIMIT)
        eventually(lambda: running._assembly.runner._queue.closed, timeout=LIMIT)
        go_on.set()
        stopper.join(LIMIT)
        assert not stopper.is_alive()
    assert stuck == []
    assert len(seen) == 1


def test_a_pool_that_others_keep_busy_does_not_hold_up_a_stop(cluster: Cluster) -> None:
    cluster.put(Parent, "a")
    go_on = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        busy = pool.submit(go_on.wait, LIMIT)
        running = Controller(cluster.api(Parent), executor=pool).start(lambda obj, ctx: Action.await_change())
        running.wait_until_ready(LIMIT)
        assert running.stop(LIMIT) == []
        assert not busy.done()
        go_on.set()


def test_a_reconciler_in_the_users_thread_may_stop_its_controller(cluster: Cluster, pool: Counting) -> None:
    cluster.put(Parent, "a")
    box: list[Any] = []
    ready = threading.Event()

    def reconcile(obj: Parent, ctx: Context[Any]) -> Action:
        ready.wait(LIMIT)
        box[0].stop()
        return Action.await_change()

    box.append(Controller(cluster.api(Parent), executor=pool).start(reconcile))
    ready.set()
    assert box[0].wait(LIMIT)
    assert box[0].stop(LIMIT) == []


def test_a_pool_that_is_shut_down_under_a_running_controller_ends_it_with_the_reason(cluster: Cluster) -> None:
    pool = ThreadPoolExecutor(1)
    running = Controller(cluster.api(Parent), executor=pool).start(lambda obj, ctx: Action.await_change())
    running.wait_until_ready(LIMIT)
    pool.shutdown()
    cluster.put(Parent, "a")
    assert running.wait(LIMIT)
    assert running.stop(LIMIT) == []
    assert isinstance(running.error, RuntimeError)
    assert "shutdown" in str(running.error)


def test_a_run_that_somebody_else_cancels_ends_the_controller_with_the_reason(cluster: Cluster) -> None:
    go_on = threading.Event()
    pool = ThreadPoolExecutor(1)
    pool.submit(go_on.wait, LIMIT)
    running = Controller(cluster.api(Parent), executor=pool).start(lambda obj, ctx: Action.await_change())
    cluster.put(Parent, "a")
    running.wait_until_ready(LIMIT)
    while not pool._work_queue.qsize():  # the run waits in the pool
        running.wait(0.01)
    pool.shutdown(wait=False, cancel_futures=True)
    assert running.wait(LIMIT)
    assert running.stop(LIMIT) == []
    assert "cancelled a run" in str(running.error)
    go_on.set()
    pool.shutdown()


def test_pools_of_processes_or_interpreters_and_what_is_no_pool_are_refused_at_start(cluster: Cluster) -> None:
    class InterpreterPoolExecutor(ThreadPoolExecutor):
        """As Python 3.14 has one."""

    with ProcessPoolExecutor(1) as processes, InterpreterPoolExecutor(1) as interpreters:
        for wrong in (processes, interpreters, 4, ThreadPoolExecutor):
            with pytest.raises(RequestError, match="executor"):
                Controller(cluster.api(Parent), executor=wrong).start(  # type: ignore[arg-type]
                    lambda obj, ctx: Action.await_change())
    check_pool(Executor())
