"""Failures that people have met with queues, runners and stops of other libraries, played on whole controllers."""
from __future__ import annotations

import logging
import queue
import threading
import time
from collections import Counter
from collections.abc import Callable
from itertools import count
from typing import Any

import pytest

from kubectl_runtime.core.base.errors import RequestError
from kubectl_runtime.core.meta.gvk import ApiResource, ObjectRef
from kubectl_runtime.runtime.controller.controller import Controller
from kubectl_runtime.runtime.controller.housekeeping import SyncTimeoutError
from kubectl_runtime.runtime.controller.plan import ControllerError
from kubectl_runtime.runtime.controller.running import Running
from kubectl_runtime.runtime.queue.runs import KeyBackoff
from kubectl_runtime.runtime.reconcile.reconciler import Action, Context
from kubectl_runtime.testing.clock import SimClock
from kubectl_runtime.testing.simulation import Simulation
from tests.runtime.controller.told_to_stop import stop_when_told
from tests.runtime.scripted_cluster import Child, Cluster, Parent

LIMIT = 20.0

Answer = Callable[[Parent, Context[Any]], Action]


class World:
    """A controller of Parents on simulated time; what ran, and when."""

    def __init__(self, answer: Answer, *, policy: Any = None, run_timeout: float | None = None, **options: Any) -> None:
        self.simulation = Simulation(5)
        self.clock = self.simulation.clock
        self.cluster = Cluster(self.clock)
        self.runs: list[tuple[str, float]] = []

        def reconcile(obj: Parent, ctx: Context[Any]) -> Action:
            self.runs.append((obj.name, round(self.clock.monotonic(), 6)))
            return answer(obj, ctx)

        controller = Controller(self.cluster.api(Parent), backoff=KeyBackoff(jitter=0), **options)
        if run_timeout is not None:
            controller.run_timeout(run_timeout)
        self.running = self.simulation.start(controller, reconcile, error_policy=policy)

    def ref(self, name: str) -> ObjectRef:
        return ObjectRef.of(Parent, name, "default")


def do_nothing(obj: Parent, ctx: Context[Any]) -> Action:
    return Action.await_change()


def until(reached: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LIMIT
    while not reached():
        assert time.monotonic() < deadline
        threading.Event().wait(0.002)


# The queue

def test_a_run_that_was_asked_for_in_five_hours_does_not_come_after_one_that_came_at_once() -> None:
    asked = [Action.requeue(5 * 3600)]
    world = World(lambda obj, ctx: asked.pop() if asked else Action.await_change())
    world.cluster.put(Parent, "a")
    world.simulation.settle(60)
    world.running.trigger(world.ref("a"))
    world.simulation.settle(24 * 3600)
    assert world.runs == [("a", 0.0), ("a", 60.0)]
    assert world.running.scheduled == 0


def test_the_next_result_replaces_the_timer_of_the_run_before() -> None:
    asked = [Action.requeue(100), Action.requeue(1000), Action.await_change()]
    world = World(lambda obj, ctx: asked.pop(0))
    world.cluster.put(Parent, "a")
    world.simulation.settle(50)
    world.running.trigger(world.ref("a"))
    world.simulation.settle(10_000)
    assert world.runs == [("a", 0.0), ("a", 50.0), ("a", 1050.0)]


def test_three_triggers_during_a_run_are_one_run_after_it_and_others_run_meanwhile() -> None:
    cluster = Cluster(blocking=True)
    cluster.put(Parent, "slow")
    begun, go_on, other = queue.SimpleQueue[str](), threading.Event(), threading.Event()
    at_once: Counter[str] = Counter()
    most: Counter[str] = Counter()

    def reconcile(obj: Parent, ctx: Context[Any]) -> Action:
        at_once[obj.name] += 1
        most[obj.name] = max(most[obj.name], at_once[obj.name])
        if obj.name == "slow":
            begun.put(obj.name)
            go_on.wait(LIMIT)
        else:
            other.set()
        at_once[obj.name] -= 1
        return Action.await_change()

    with Controller(cluster.api(Parent)).start(reconcile) as running:
        begun.get(timeout=LIMIT)
        for value in range(1, 4):
            cluster.put(Parent, "slow", value)
        cluster.put(Parent, "other")
        assert other.wait(LIMIT), "another key waited for the slow one"
        until(lambda: (found := running.store.get("slow", "default")) is not None and found.spec["value"] == 3)
        assert begun.empty()
        go_on.set()
        begun.get(timeout=LIMIT)
        running.trigger(ObjectRef.of(Parent, "other", "default"))
        until(lambda: not at_once["slow"])
    assert begun.empty()
    assert most == {"slow": 1, "other": 1}


def test_a_retry_works_on_the_newest_object_and_not_on_the_one_that_failed() -> None:
    seen: list[int] = []

    def answer(obj: Parent, ctx: Context[Any]) -> Action:
        seen.append(obj.spec["value"])
        if len(seen) == 1:
            world.cluster.put(Parent, "a", 6)  # it comes while the run goes on
            raise ValueError("planned")
        return Action.await_change()

    world = World(answer)
    world.cluster.put(Parent, "a", 5)
    world.simulation.settle(10)
    assert seen == [5, 6]


@pytest.mark.parametrize("error", [SystemExit(1), GeneratorExit(), MemoryError(), RecursionError(), StopIteration()],
                         ids=lambda error: type(error).__name__)
def test_a_key_is_free_again_after_a_run_that_raised_anything_while_its_object_was_deleted(
        error: BaseException) -> None:
    def answer(obj: Parent, ctx: Context[Any]) -> Action:
        if len(world.runs) == 1:
            world.cluster.delete(Parent, "a")
            raise error
        return Action.await_change()

    world = World(answer)
    world.cluster.put(Parent, "a")
    world.simulation.settle(100)
    assert (len(world.runs), world.running.scheduled, world.running.running) == (1, 0, [])
    world.cluster.put(Parent, "a")
    world.simulation.settle(100)
    assert len(world.runs) == 2


def test_one_slow_object_blocks_neither_the_others_nor_the_watch() -> None:
    cluster = Cluster(blocking=True)
    cluster.put(Parent, "slow")
    begun, release, ran = threading.Event(), threading.Event(), queue.SimpleQueue[str]()

    def reconcile(obj: Parent, ctx: Context[Any]) -> Action:
        if obj.name == "slow":
            begun.set()
            release.wait(LIMIT)
        else:
            ran.put(f"{obj.name}{obj.spec['value']}")
        return Action.await_change()

    running = Controller(cluster.api(Parent), concurrency=2).start(reconcile)
    assert begun.wait(LIMIT)
    for value in range(5):
        for name in "bcd":
            cluster.put(Parent, name, value)
    last = set()
    while not {"b4", "c4", "d4"} <= last:
        last.add(ran.get(timeout=LIMIT))
    assert [ref.name for ref in running.stop(0.1)] == ["slow"]
    release.set()


def test_a_retry_of_an_object_that_is_gone_runs_nothing_and_says_nothing(caplog: pytest.LogCaptureFixture) -> None:
    def answer(obj: Parent, ctx: Context[Any]) -> Action:
        raise ValueError("planned")

    world = World(answer)
    world.cluster.put(Parent, "a")
    world.simulation.settle(1)
    ran = len(world.runs)
    world.cluster.delete(Parent, "a")
    caplog.clear()
    world.simulation.settle(10_000)
    assert len(world.runs) == ran
    assert caplog.records == []
    assert world.running.assembly.runner.failing() == (0, 0)


def test_an_object_that_is_made_anew_after_failures_begins_with_the_shortest_wait() -> None:
    delays: list[tuple[str, float]] = []

    def answer(obj: Parent, ctx: Context[Any]) -> Action:
        if obj.name == "good":
            return Action.await_change()
        delays.append((obj.uid, ctx.backoff_delay))
        raise ValueError("planned")

    world = World(answer)
    world.cluster.put(Parent, "a")
    world.cluster.put(Parent, "good")
    world.simulation.settle(0.3)
    assert len(delays) > 4
    world.cluster.delete(Parent, "a")
    world.simulation.settle(1)
    world.cluster.put(Parent, "a")
    first = len(delays)
    world.simulation.settle()
    assert delays[first][0] != delays[0][0]
    assert delays[first][1] == 0.005


def test_an_owner_reference_to_a_namesake_that_is_gone_runs_once_for_nothing_and_adopts_nobody() -> None:
    simulation = Simulation(1)
    cluster = Cluster(simulation.clock)
    uids: list[str] = []
    cluster.put(Parent, "a")
    controller = Controller(cluster.api(Parent)).owns(cluster.api(Child))
    simulation.start(controller, lambda obj, ctx: uids.append(obj.uid) or Action.await_change())
    simulation.settle()
    before = len(uids)
    cluster.put(Child, "c", owner="a")  # with a uid that this owner does not have
    cluster.put(Child, "d", owner="never-there")
    simulation.settle(60)
    assert len(uids) == before + 1
    assert len(set(uids)) == 1


# The start

def test_two_threads_that_start_one_controller_get_one_life_and_one_refusal() -> None:
    cluster = Cluster(blocking=True)
    controller = Controller(cluster.api(Parent))
    barrier, results = threading.Barrier(8), queue.SimpleQueue[Any]()

    def start() -> None:
        barrier.wait(LIMIT)
        try:
            results.put(controller.start(do_nothing))
        except RequestError as error:
            results.put(error)

    threads = [threading.Thread(target=start) for _ in range(8)]
    for thread in threads:
        thread.start()
    got = [results.get(timeout=LIMIT) for _ in threads]
    started = [one for one in got if isinstance(one, Running)]
    assert len(started) == 1
    assert sum("is already running" in str(one) for one in got) == 7
    assert started[0].stop() == []


def test_a_watch_whose_request_is_never_answered_ends_the_start_with_a_timeout_that_names_it() -> None:
    clock = SimClock()
    cluster = Cluster(clock, blocking=True)
    asked, release = threading.Event(), threading.Event()

    def hold(resource: ApiResource) -> None:
        if resource is Child.api_resource:
            asked.set()
            release.wait(LIMIT)
            raise TimeoutError

    cluster.on_request = hold
    running = Controller(cluster.api(Parent)).sync_timeout(10).owns(cluster.api(Child)).start(do_nothing)
    assert asked.wait(LIMIT)
    for _ in range(60):
        if running._shutdown.draining.is_set():
            break
        clock.settle(1)
        clock.advance(0.5)
    assert running.wait(LIMIT)
    release.set()
    running.stop()
    assert isinstance(running.error, SyncTimeoutError)
    with pytest.raises(ControllerError, match=r"children.test.example \(no answer yet\)"):
        running.raise_error()


def test_a_stop_before_the_stores_are_complete_is_no_error(caplog: pytest.LogCaptureFixture) -> None:
    cluster = Cluster(blocking=True)
    cluster.failing.add(Child.api_resource)
    with Controller(cluster.api(Parent)).sync_timeout(60).owns(cluster.api(Child)).start(do_nothing) as running:
        pass
    assert running.error is None
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


def test_a_trigger_wakes_a_controller_that_has_nothing_to_do() -> None:
    cluster = Cluster(blocking=True)
    cluster.put(Parent, "a")
    ran: queue.SimpleQueue[str] = queue.SimpleQueue()
    controller = Controller(cluster.api(Parent))
    with controller.start(lambda obj, ctx: ran.put(obj.name) or Action.await_change()) as running:
        for _ in range(20):
            assert ran.get(timeout=LIMIT) == "a"
            until(lambda: not running._assembly.runner._workers)
            running.trigger(ObjectRef.of(Parent, "a", "default"))
        assert ran.get(timeout=LIMIT) == "a"


# The deadline of a run

def test_only_a_run_that_took_too_long_by_itself_is_called_overdue(caplog: pytest.LogCaptureFixture) -> None:
    takes = {"in-time": 9.9, "late": 10.5}

    def answer(obj: Parent, ctx: Context[Any]) -> Action:
        world.clock.advance(takes[obj.name])
        return Action.await_change()

    world = World(answer, run_timeout=10, concurrency=1)
    for name in takes:
        world.cluster.put(Parent, name)
    for _ in range(2):
        world.simulation.settle()
        world.running.trigger_all()
    world.simulation.settle()
    overdue = [record.getMessage() for record in caplog.records if "longer than the" in record.getMessage()]
    assert Counter(line.split(":")[0] for line in overdue) == {"Parent default/late": 3}


def test_a_run_that_the_shutdown_ended_before_its_time_is_not_called_overdue(
        caplog: pytest.LogCaptureFixture) -> None:
    clock = SimClock()
    cluster = Cluster(clock, blocking=True)
    cluster.put(Parent, "a")
    begun = threading.Event()

    def reconcile(obj: Parent, ctx: Context[Any]) -> Action:
        begun.set()
        assert ctx.stop.wait(LIMIT)
        raise TimeoutError(ctx.stop.reason)

    running = Controller(cluster.api(Parent)).run_timeout(60).start(reconcile)
    assert begun.wait(LIMIT)
    assert stop_when_told(running, clock) == []
    assert "longer than the" not in caplog.text
    assert "ended by the shutdown: TimeoutError: the grace period is over" in caplog.text


@pytest.mark.parametrize("timeout", [0, -1, float("nan")])
def test_a_run_timeout_of_nothing_is_refused_since_none_means_none(timeout: float) -> None:
    with pytest.raises(RequestError, match="run_timeout"):
        Controller(Cluster().api(Parent)).run_timeout(timeout)


# The end

def test_a_stop_begins_no_run_drops_the_queue_waits_for_what_ends_and_tells_the_rest_to_stop() -> None:
    cluster = Cluster(blocking=True)
    for number in range(100):
        cluster.put(Parent, f"p-{number:03}")
    begun, told = queue.SimpleQueue[str](), threading.Event()
    finished: list[str] = []

    def reconcile(obj: Parent, ctx: Context[Any]) -> Action:
        begun.put(obj.name)
        if next(numbers) == 0:
            stopping.wait(LIMIT)  # needs a moment more, and is left alone
            assert not ctx.stop.is_set()
        else:
            assert ctx.stop.wait(LIMIT)  # would go on for a minute
            told.set()
        finished.append(obj.name)
        return Action.await_change()

    numbers, stopping = count(), threading.Event()
    running = Controller(cluster.api(Parent), concurrency=2).start(reconcile)
    for _ in range(2):
        begun.get(timeout=LIMIT)
    running.on_stop(stopping.set)
    assert running.stop(1.5) == []
    assert told.is_set()
    assert len(finished) == 2
    assert begun.empty()


def test_a_second_stop_with_less_patience_cuts_the_first_one_short() -> None:
    cluster = Cluster(blocking=True)
    cluster.put(Parent, "a")
    begun, release = threading.Event(), threading.Event()

    def reconcile(obj: Parent, ctx: Context[Any]) -> Action:
        begun.set()
        cluster.put(Parent, "a", 1)  # to be reconciled once more, which a stop drops
        release.wait(2 * LIMIT)
        return Action.await_change()

    running = Controller(cluster.api(Parent)).start(reconcile)
    assert begun.wait(LIMIT)
    answers: list[list[str]] = []
    patient = threading.Thread(target=lambda: answers.append([ref.name for ref in running.stop(2 * LIMIT)]))
    patient.start()
    assert running.wait(LIMIT)
    began = time.monotonic()
    assert [ref.name for ref in running.stop(0.1)] == ["a"]
    patient.join(LIMIT)
    release.set()
    assert answers == [["a"]]
    assert time.monotonic() - began < LIMIT / 2


def test_a_controller_that_is_stopped_and_started_again_runs_everything_anew_each_time() -> None:
    cluster = Cluster(blocking=True)
    for name in "abc":
        cluster.put(Parent, name)
    ran: queue.SimpleQueue[str] = queue.SimpleQueue()
    controller = Controller(cluster.api(Parent))
    for _ in range(3):
        with controller.start(lambda obj, ctx: ran.put(obj.name) or Action.requeue(3600)):
            assert {ran.get(timeout=LIMIT) for _ in "abc"} == set("abc")
