"""The promises of a controller, against any interleaving: simulation, one thread, seeded.

Each test is a property of a seed and of what the outside world does. A failing example prints both and reproduces.
"""
from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kubectl_runtime.core.meta.gvk import ObjectRef
from kubectl_runtime.runtime.controller.controller import Controller
from kubectl_runtime.runtime.controller.options import Debounce
from kubectl_runtime.runtime.reconcile.reconciler import Action, Context
from kubectl_runtime.runtime.store.reflector import Reflector, StoreWriter
from kubectl_runtime.runtime.triggers.triggers import ReconcileRequest, Subscriber
from kubectl_runtime.runtime.watch.event import Apply, Delete, Event
from kubectl_runtime.testing.simulation import SimulatedController, Simulation
from tests.runtime.scripted_cluster import Child, Cluster, Parent
from tests.thoroughness import examples

NAMES = ("a", "b", "c", "d")

WORLD = st.lists(st.tuples(st.sampled_from(["put", "put", "put", "delete", "orphan", "cut", "compact", "break", "mend",
                                            "trigger", "all", "steps", "steps", "steps", "time"]),
                           st.sampled_from(NAMES), st.integers(1, 40)), min_size=5, max_size=60)
SEEDS = st.integers(0, 2**32)
OFTEN = settings(max_examples=examples(400), deadline=None, suppress_health_check=[HealthCheck.too_slow])


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL + 1)


class Story:
    """A controller that copies `spec.value` of parents to children, in a world that a test moves."""

    def __init__(self, seed: int, *, failures: float = 0.2, concurrency: int = 3, debounce: float = 0.0) -> None:
        self.sim = Simulation(seed)
        self.cluster = Cluster(self.sim.clock)
        self.failures = failures
        self.runs: Counter[str] = Counter()
        self.active: list[str] = []
        self.begun_after_stop: list[str] = []
        self.reconciled: dict[str, str] = {}
        for name in NAMES[:2]:
            self.cluster.put(Parent, name, 1)
        controller = Controller(self.cluster.api(Parent), concurrency=concurrency, debounce=debounce)
        controller.owns(self.cluster.api(Child), whole=True)
        self.controller: SimulatedController[Any] = self.sim.start(controller, self.reconcile, error_policy=self.policy)
        self.stopping = False

    def reconcile(self, obj: Parent, ctx: Context[Any]) -> Action:
        self.check_user_code()
        assert self.controller.is_ready, "a run before the stores were complete"
        assert all(watch.store.is_ready for watch in self.controller.assembly.watches.values())
        assert not self.stopping or str(ctx.ref.name) in self.active, "a run began after the stop"
        running = Counter(self.controller.running)
        assert max(running.values()) == 1, f"two runs of one key: {running}"
        assert running[ctx.ref] == 1
        self.runs[obj.name] += 1
        if self.sim.random.random() < self.failures:
            if self.sim.random.random() < 0.5:
                self.cluster.put(Child, obj.name, -1, owner=obj.name, verb="apply")
            raise self.sim.random.choice([ValueError, SystemExit, KeyError, MemoryError])("planned")
        value = obj.spec["value"]
        if self.cluster.value(Child, obj.name) != value:
            self.cluster.put(Child, obj.name, value, owner=obj.name, verb="apply")
        self.reconciled[obj.name] = obj.resource_version
        if self.sim.random.random() < 0.3:
            return Action.requeue(self.sim.random.choice([0.5, 30, 4000]))
        return Action.await_change()

    def policy(self, obj: Parent, error: BaseException, ctx: Context[Any]) -> Action:
        self.check_user_code()
        if self.sim.random.random() < 0.1:
            raise RuntimeError("the policy fails too")
        return Action.requeue(ctx.backoff_delay)

    def check_user_code(self) -> None:
        """No lock of the library is held while user code runs."""
        assert self.controller.assembly.runner._lock.acquire(blocking=False), "the runner's lock is held in user code"
        self.controller.assembly.runner._lock.release()
        for watch in self.controller.assembly.watches.values():
            assert not watch.stored.condition._is_owned(), "a store's lock is held in user code"

    def act(self, what: str, name: str, number: int) -> None:
        cluster = self.cluster
        if what == "put":
            cluster.put(Parent, name, number)
        elif what == "delete":
            cluster.delete(Parent, name)
        elif what == "orphan":
            # What appears and vanishes while nobody can watch leaves no trace that any watch could find.
            if any(child.name == name for child in self.controller.assembly.store_of(Child)):
                cluster.delete(Child, name)
        elif what == "cut":
            cluster.cut(*((Parent, Child) if number % 3 else (Child,)))
        elif what == "compact":
            cluster.compact(*((Parent, Child) if number % 3 else (Parent,)))
        elif what == "break":
            cluster.failing.add((Parent if number % 2 else Child).api_resource)
        elif what == "mend":
            cluster.failing.clear()
        elif what == "trigger":
            self.controller.trigger(ObjectRef(Parent.api_resource, name, "default"))
        elif what == "all":
            self.controller.trigger_all()
        elif what == "time":
            self.sim.clock.advance(number / 4)
        else:
            self.sim.run(number)

    def play(self, world: list[tuple[str, str, int]]) -> None:
        for what, name, number in world:
            self.act(what, name, number)
            self.sim.run(2)

    def come_to_rest(self) -> None:
        self.cluster.failing.clear()
        self.failures = 0.0
        self.sim.settle(2000)


@OFTEN
@given(SEEDS, WORLD, st.sampled_from([1, 3]), st.sampled_from([0.0, 1.0]))
def test_whatever_happened_the_controller_ends_in_the_right_state(
        seed: int, world: list[tuple[str, str, int]], concurrency: int, debounce: float) -> None:
    """Invariants 1, 2, 4, 6 and 9: checked in the reconciler on the way; nothing lost is checked at the end."""
    story = Story(seed, concurrency=concurrency, debounce=debounce)
    story.play(world)
    story.come_to_rest()
    assert story.controller.is_ready
    parents = story.cluster.objects[Parent.api_resource]
    assert {obj.name for obj in story.controller.store} == set(parents)
    for name, record in parents.items():
        assert story.cluster.value(Child, name) == story.cluster.value(Parent, name)
        assert story.reconciled[name] == record.resource_version
    assert story.controller.running == []
    assert story.controller.assembly.runner._queue.failing == 0


@OFTEN
@given(SEEDS, WORLD, WORLD)
def test_a_stop_at_any_moment_begins_no_run_and_ends_everything(
        seed: int, before: list[tuple[str, str, int]], after: list[tuple[str, str, int]]) -> None:
    """Invariant 7."""
    story = Story(seed)
    story.play(before)
    story.active = [ref.name for ref in story.controller.running]
    story.stopping = True
    story.controller.begin_stop()
    runs = story.runs.copy()
    story.play([entry for entry in after if entry[0] != "time"])
    story.sim.settle(60)
    assert story.controller.has_ended
    assert story.controller.running == []
    assert story.controller.scheduled == 0
    more = [name for name in NAMES if story.runs[name] - runs[name] > story.active.count(name)]
    assert not more, "more runs than were in progress"


@OFTEN
@given(SEEDS, WORLD)
def test_the_same_seed_is_the_same_story(seed: int, world: list[tuple[str, str, int]]) -> None:
    stories = []
    for _ in range(2):
        story = Story(seed)
        story.play(world)
        stories.append((story.runs, story.cluster.version, story.sim.clock.monotonic(), story.sim.random.getstate()))
    assert stories[0] == stories[1]


@OFTEN
@given(SEEDS, st.integers(1, 6), st.lists(st.sampled_from(["own event", "other"]), max_size=6))
def test_a_failing_key_backs_off_alone_and_its_own_writes_do_not_hurry_it(seed: int, failures: int,
                                                                          noise: list[str]) -> None:
    """Invariant 6: delays double; only a foreign change comes before; the healthy key is served at once all the while.
    """
    sim = Simulation(seed)
    cluster = Cluster(sim.clock)
    times: list[tuple[float, int, float]] = []
    healthy: list[float] = []
    left = failures

    def reconcile(obj: Parent, ctx: Context[Any]) -> Action:
        nonlocal left
        if obj.name == "good":
            healthy.append(sim.clock.monotonic())
            return Action.await_change()
        times.append((sim.clock.monotonic(), ctx.attempt, ctx.backoff_delay))
        if left:
            left -= 1
            cluster.put(Parent, "bad", left, verb="patch")
            raise ValueError("planned")
        return Action.await_change()

    controller = sim.start(Controller(cluster.api(Parent), concurrency=1), reconcile)
    cluster.put(Parent, "good")
    cluster.put(Parent, "bad", 100)
    sim.run_until(lambda: len(times) == 1)
    for what in noise:
        if what == "other":
            cluster.put(Parent, "good")
            at = sim.clock.monotonic()
            count = len(healthy)
            sim.settle(0)
            assert healthy[count:] == [at], "the healthy key had to wait"
        else:
            sim.settle(0)
    sim.settle(2000)
    attempts = [attempt for _, attempt, _ in times]
    assert attempts[:failures + 1] == list(range(1, failures + 2))
    for (begun, attempt, delay), (again, _, _) in pairwise(times[:failures + 1]):
        assert 0.5 <= delay / (0.005 * 2 ** (attempt - 1)) <= 1.0
        assert again - begun >= delay - 1e-9, "its own write brought the retry forward"
    assert controller.assembly.runner._queue.failing == 0


@OFTEN
@given(SEEDS, st.lists(st.integers(0, 30), min_size=1, max_size=30))
def test_debounced_triggers_become_few_runs_and_none_later_than_the_longest_wait(seed: int, gaps: list[int]) -> None:
    """Invariant 3, through the whole controller: debounce 2 s, at most 6 s."""
    sim = Simulation(seed)
    cluster = Cluster(sim.clock)
    seen: list[tuple[float, int]] = []

    def reconcile(obj: Parent, ctx: Context[Any]) -> Action:
        seen.append((sim.clock.monotonic(), obj.spec["value"]))
        return Action.await_change()

    sim.start(Controller(cluster.api(Parent), debounce=Debounce(2, max_wait=6)), reconcile)
    sim.settle(1)
    puts: list[tuple[float, int]] = []
    for value, gap in enumerate(gaps):
        cluster.put(Parent, "a", value)
        puts.append((sim.clock.monotonic(), value))
        sim.settle(gap / 10)
    sim.settle(60)
    for at, value in puts:
        served = [when for when, seen_value in seen if seen_value >= value]
        assert served, "a change was never seen"
        assert min(served) <= at + 6 + 1e-9
    assert all(later - earlier >= 2 - 1e-9 for (earlier, _), (later, _) in pairwise(seen))


@OFTEN
@given(SEEDS, st.integers(0, 3))
def test_a_failing_watch_backs_off_alone(seed: int, outages: int) -> None:
    """Invariant 6: while children cannot be watched, parents still lead to runs."""
    sim = Simulation(seed)
    cluster = Cluster(sim.clock)
    seen: list[int] = []

    def reconcile(obj: Parent, ctx: Context[Any]) -> Action:
        seen.append(obj.spec["value"])
        return Action.await_change()

    controller = sim.start(Controller(cluster.api(Parent)).owns(cluster.api(Child), whole=True), reconcile)
    cluster.put(Parent, "a", 0)
    sim.run_until(lambda: seen == [0])
    for outage in range(1, outages + 1):
        cluster.refused.add(Child.api_resource)
        cluster.compact(Child)
        sim.settle(5)
        cluster.put(Parent, "a", outage)
        sim.settle(0.5)
        assert seen[-1] == outage, "a healthy watch had to wait for a failing one"
        cluster.put(Child, "a", outage, owner="a")
        cluster.refused.clear()
        sim.settle(70)
        assert len(controller.assembly.store_of(Child)) == 1


@contextmanager
def defects(sim: Simulation, probability: float) -> Iterator[None]:
    """Meanwhile what moves a change on raises now and then: before its work, or after it, so that it was done."""
    def failing(whole: Callable[..., Any]) -> Callable[..., Any]:
        def work(*args: Any, **options: Any) -> Any:
            if sim.random.random() < probability:
                raise ZeroDivisionError("a defect before")
            done = whole(*args, **options)
            if sim.random.random() < probability:
                raise ZeroDivisionError("a defect after")
            return done

        return work

    places = [(Reflector, "commits"), (StoreWriter, "commit"), (StoreWriter, "replace"), (Subscriber, "deliver")]
    with ExitStack() as stack:
        for owner, name in places:
            stack.enter_context(patch.object(owner, name, failing(getattr(owner, name))))
        yield


@settings(OFTEN, max_examples=examples(300))
@given(SEEDS, WORLD, st.sampled_from([0.02, 0.2]))
def test_whatever_raised_on_the_way_of_a_change_store_subscribers_and_queue_agree_in_the_end(
        seed: int, world: list[tuple[str, str, int]], probability: float) -> None:
    """Invariant 13: nothing is half done, and one list triggers everything after a defect."""
    story = Story(seed)
    stored, children = story.controller.store, story.controller.assembly.store_of(Child)
    stored.add_index("value", lambda obj: [obj.spec["value"], "all"])
    heard: dict[str, str] = {}

    def hear(event: Event[Any]) -> Iterable[ReconcileRequest]:
        if isinstance(event, Apply):
            heard[event.obj.name] = event.obj.resource_version
        elif isinstance(event, Delete):
            heard.pop(event.obj.name, None)
        return ()

    parents = next(iter(story.controller.assembly.watches.values()))
    parents.subscribe(hear, lambda requests: None)
    with defects(story.sim, probability):
        story.play(world)
        story.sim.settle(100)
    story.come_to_rest()
    versions = {name: record.resource_version for name, record in story.cluster.objects[Parent.api_resource].items()}
    assert {obj.name: obj.resource_version for obj in stored} == versions
    assert heard == versions
    assert {name: story.reconciled.get(name) for name in versions} == versions
    assert {child.name: child.resource_version for child in children} == {
        name: record.resource_version for name, record in story.cluster.objects.get(Child.api_resource, {}).items()}
    by_value = {value: {obj.name for obj in stored.by_index("value", value)} for value in [*range(41), "all"]}
    assert by_value["all"] == set(versions)
    assert all(story.cluster.value(Parent, name) == value
               for value, names in by_value.items() if value != "all" for name in names)
    assert sum(len(names) for names in by_value.values()) == 2 * len(versions)
