"""Unusual combinations of controllers, finalizers, waits, the Recorder, elections and managers: nothing hangs, nothing
is lost, and what cannot end is told of."""
from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from kubectl_runtime import (
    Action,
    Api,
    Client,
    Context,
    Controller,
    FinalizingReconciler,
    LeaderElection,
    Manager,
    Patch,
    Reconciler,
    Recorder,
    StopToken,
    await_condition,
    elect,
    finalizer,
)
from kubectl_runtime.errors import NotLeaderError, WaitStopped
from kubectl_runtime.resources import ConfigMap
from kubectl_runtime.testing import ApiServer, eventually

LIMIT = 20.0
ONE, TWO = "example.com/one", "example.com/two"


@pytest.fixture
def client() -> Iterator[Client]:
    with ApiServer(controllers=["*"]) as server, Client(server.config()) as made:
        yield made


@pytest.fixture
def maps(client: Client) -> Api[ConfigMap]:
    return Api.namespaced(client, ConfigMap, "default")


def create(maps: Api[ConfigMap], name: str = "a", *finalizers: str) -> ConfigMap:
    return maps.create({"metadata": {"name": name, "finalizers": list(finalizers)}})


def forever(obj: ConfigMap) -> Action:
    return Action.await_change()


# --- runs ---


class Cleaning(FinalizingReconciler[ConfigMap]):
    finalizer_name = ONE

    def __init__(self, raised: list[BaseException] | None = None, blocks: bool = False) -> None:
        self.raised, self.calls = raised or [], 0
        self.entered, self.free, self.applied = threading.Event(), threading.Event(), threading.Event()
        if not blocks:
            self.free.set()

    def apply(self, obj: ConfigMap, ctx: Context[Any]) -> Action:
        if obj.name == "good":
            self.applied.set()
        return Action.await_change()

    def cleanup(self, obj: ConfigMap, ctx: Context[Any]) -> Action:
        self.calls += 1
        self.entered.set()
        self.free.wait()
        if self.raised:
            raise self.raised.pop()
        return Action.await_change()


def test_a_cleanup_that_raises_anything_keeps_its_object_and_is_called_again(maps: Api[ConfigMap]) -> None:
    reconciler = Cleaning([SystemExit(3), KeyboardInterrupt(), GeneratorExit(), MemoryError()])
    with Controller(maps).start(reconciler) as running:
        create(maps)
        eventually(lambda: maps.get("a").finalizers == (ONE,), timeout=LIMIT)
        maps.delete("a")
        eventually(lambda: maps.get_opt("a") is None, timeout=LIMIT)
        assert running.error is None
        assert running.stop(LIMIT) == []
    assert reconciler.calls == 5


def test_a_cleanup_that_blocks_for_ever_holds_nobody_else_and_is_reported_by_its_key(maps: Api[ConfigMap]) -> None:
    reconciler = Cleaning(blocks=True)
    running = Controller(maps, concurrency=2).start(reconciler)
    create(maps)
    eventually(lambda: maps.get("a").finalizers == (ONE,), timeout=LIMIT)
    maps.delete("a")
    assert reconciler.entered.wait(LIMIT)
    create(maps, "good")
    assert reconciler.applied.wait(LIMIT)
    (report,) = running.stop(0.3)
    assert "default/a" in str(report) or "a.default" in str(report)
    assert maps.get("a").finalizers == (ONE,)
    reconciler.free.set()


def test_an_on_success_that_exits_is_a_failure_of_its_run(maps: Api[ConfigMap]) -> None:
    attempts: list[int] = []

    class Told(Reconciler[ConfigMap]):
        def reconcile(self, obj: ConfigMap, ctx: Context[Any]) -> Action:
            return Action.await_change()

        def on_success(self, obj: ConfigMap, action: Action, ctx: Context[Any]) -> None:
            if obj.name == "a":
                attempts.append(ctx.attempt)
                if len(attempts) < 3:
                    raise SystemExit(3)

    create(maps)
    with Controller(maps).start(Told()) as running:
        eventually(lambda: len(attempts) == 3, timeout=LIMIT)
        assert running.stop(LIMIT) == []
    assert attempts == [1, 2, 3]


def test_an_error_policy_that_blocks_for_ever_holds_only_its_worker(maps: Api[ConfigMap]) -> None:
    entered, free, seen = threading.Event(), threading.Event(), threading.Event()

    def reconcile(obj: ConfigMap, ctx: Context[None]) -> Action:
        if obj.name == "a":
            raise ValueError("planned")
        seen.set()
        return Action.await_change()

    def policy(obj: ConfigMap, error: BaseException, ctx: Context[None]) -> Action:
        entered.set()
        free.wait()
        return Action.requeue(1)

    create(maps)
    running = Controller(maps, concurrency=2).start(reconcile, error_policy=policy)
    assert entered.wait(LIMIT)
    create(maps, "good")
    assert seen.wait(LIMIT)
    assert len(running.stop(0.3)) == 1
    free.set()


def test_a_reconciler_may_close_its_client(client: Client, maps: Api[ConfigMap]) -> None:
    ran = threading.Event()

    def reconcile(obj: ConfigMap, ctx: Context[None]) -> Action:
        ctx.client.close()
        ran.set()
        return Action.await_change()

    create(maps)
    running = Controller(Api.namespaced(Client(client.config), ConfigMap, "default")).start(reconcile)
    assert ran.wait(LIMIT)
    assert running.stop(LIMIT) == []


# --- finalizers ---


def test_a_finalizer_within_a_finalizer(maps: Api[ConfigMap]) -> None:
    def inner(now: ConfigMap) -> Action:
        return finalizer(maps, TWO, now, apply=lambda obj: Action.requeue(5), cleanup=forever)

    assert finalizer(maps, ONE, create(maps), apply=inner, cleanup=inner) == Action.requeue(5)
    assert maps.get("a").finalizers == (ONE, TWO)
    maps.delete("a")
    finalizer(maps, ONE, maps.get("a"), apply=inner, cleanup=inner)
    assert maps.get_opt("a") is None


def test_a_finalizer_within_a_finalizer_that_waits_keeps_both(maps: Api[ConfigMap]) -> None:
    def inner(now: ConfigMap) -> Action:
        return finalizer(maps, TWO, now, apply=forever, cleanup=lambda obj: Action.waiting("Dropping", "one moment"))

    create(maps, "a", ONE, TWO)
    maps.delete("a")
    assert finalizer(maps, ONE, maps.get("a"), apply=inner, cleanup=inner).reason == "Dropping"
    assert maps.get("a").finalizers == (ONE, TWO)


def test_a_cleanup_after_which_a_namesake_stands_there_leaves_that_one_alone(maps: Api[ConfigMap]) -> None:
    create(maps, "a", ONE)
    maps.delete("a")

    def cleanup(now: ConfigMap) -> Action:
        maps.patch("a", Patch.merge({"metadata": {"finalizers": None}}))
        create(maps, "a", ONE)
        return Action.await_change()

    assert finalizer(maps, ONE, maps.get("a"), apply=forever, cleanup=cleanup) == Action.await_change()
    assert maps.get("a").finalizers == (ONE,)


# --- waits ---


def alarms() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name == "deadline-of-a-wait"]


@pytest.mark.parametrize("error", [SystemExit(3), StopIteration(1), GeneratorExit(), KeyboardInterrupt()], ids=repr)
def test_what_a_condition_raises_passes_and_no_thread_is_left(maps: Api[ConfigMap], error: BaseException) -> None:
    def condition(found: ConfigMap | None) -> bool:
        raise error

    with pytest.raises(type(error)):
        await_condition(maps, "a", condition, timeout=LIMIT)
    assert alarms() == []


def test_a_condition_may_wait_itself_delete_what_it_looks_at_and_stop_its_own_wait(maps: Api[ConfigMap]) -> None:
    stop = StopToken()

    def both(found: ConfigMap | None) -> bool:
        return found is not None and await_condition(maps, "b", lambda other: other is not None, timeout=5) is not None

    def deleted(found: ConfigMap | None) -> bool:
        if found is not None:
            maps.delete("a")
        return found is None

    def stopping(found: ConfigMap | None) -> bool:
        stop.set("enough")
        return False

    create(maps), create(maps, "b")
    found = await_condition(maps, "a", both, timeout=LIMIT)
    assert found is not None
    assert await_condition(maps, "a", deleted, timeout=LIMIT) is None
    with pytest.raises(WaitStopped, match="enough"):
        await_condition(maps, "a", stopping, timeout=LIMIT, stop=stop)
    assert alarms() == []


def test_a_wait_within_a_run_ends_with_it(maps: Api[ConfigMap]) -> None:
    ended: list[str] = []

    def reconcile(obj: ConfigMap, ctx: Context[None]) -> Action:
        try:
            await_condition(maps, "never", lambda found: found is not None, timeout=1000)
        except BaseException as error:
            ended.append(type(error).__name__)
            raise
        return Action.await_change()

    create(maps)
    running = Controller(maps).start(reconcile)
    eventually(lambda: bool(alarms()), timeout=LIMIT)
    assert running.stop(1) == []
    assert set(ended) == {"WaitStopped"}


# --- the Recorder ---


def test_a_recorder_that_is_closed_by_what_it_records(client: Client, maps: Api[ConfigMap]) -> None:
    recorder, obj = Recorder(client, "x"), create(maps)

    class Closing:
        def __str__(self) -> str:
            recorder.close(1)
            return "Reason"

    recorder.publish(obj, Closing(), "note")  # type: ignore[arg-type]
    recorder.publish(obj, "After", "note")
    assert recorder.close(1)


def test_a_recorder_that_records_its_own_log_lines(client: Client, maps: Api[ConfigMap]) -> None:
    obj, heard = create(maps), 0

    class Recording(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            nonlocal heard
            heard += 1
            recorder.publish(obj, "Logged", record.getMessage())

    library, handler = logging.getLogger("kubectl_runtime"), Recording()
    library.addHandler(handler)
    try:
        with Recorder(client, "x", queue=1) as recorder:
            for number in range(50):
                recorder.publish(obj, f"Reason{number}", "note")
            recorder.publish(7, "Reason", "note")
            recorder.flush(5)
    finally:
        library.removeHandler(handler)
    assert 0 < heard < 20


# --- elections and managers ---


def test_a_callback_that_blocks_for_ever_keeps_neither_the_lease_nor_the_end(client: Client) -> None:
    entered, free, stopped = threading.Event(), threading.Event(), threading.Event()

    def started() -> None:
        entered.set()
        free.wait()

    with elect(client, LeaderElection("c", "default", on_started=started, on_stopped=stopped.set)) as lock:
        assert lock.wait(LIMIT)
        assert entered.wait(LIMIT)
        lock.close(timeout=0.3)
        assert not lock.is_leader
        with elect(client, LeaderElection("c", "default")) as next_one:
            assert next_one.wait(LIMIT)
        free.set()
    assert stopped.wait(LIMIT)


def test_a_lock_that_is_closed_by_its_own_loss_lets_no_write_through(client: Client) -> None:
    lock = elect(client, LeaderElection("t", "default"))
    with lock:
        assert lock.wait(LIMIT)
        lock.lost.on_set(lock.close)
        elected = Api.namespaced(lock.client, ConfigMap, "default")
    with pytest.raises(NotLeaderError):
        elected.create({"metadata": {"name": "q"}})


def test_a_runnable_that_exits_ends_its_manager_and_one_may_stop_it(client: Client) -> None:
    def leaves(stop: StopToken) -> None:
        raise SystemExit(5)

    with pytest.raises(SystemExit):
        Manager(client, serve=None).add_runnable(leaves, "leaves").run()

    go_on, reports = threading.Event(), list[object]()

    def stops(stop: StopToken) -> None:
        go_on.wait(LIMIT)
        reports.append(running.stop(0.3))

    running = Manager(client, serve=None).add_runnable(stops, "stops").start()
    go_on.set()
    eventually(lambda: bool(reports), timeout=LIMIT)
    running.stop(LIMIT)
