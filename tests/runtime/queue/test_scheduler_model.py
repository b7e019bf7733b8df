"""The scheduler against a plain model of it: a dictionary of keys, which is looked through as a whole at each step."""
from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from kubectl_runtime.runtime.queue.scheduler import HELD, READY, Scheduler
from tests.thoroughness import examples


@dataclass(frozen=True)
class Planned:
    """What the model knows of a key."""

    at: float
    limit: float
    retry: bool
    background: bool
    held: bool = False


KEYS = st.sampled_from("ab")
# Few values, all of them sums of few others: times have to meet.
DELAYS = st.sampled_from([-0.5, 0.0, 0.5, 1.0, 1.5])
PAUSES = st.sampled_from([0.0, 0.5, 1.0])


class SchedulerModel(RuleBasedStateMachine):
    """Without a limit of retries, so that a key is either waiting for its time, or ready, or held since it runs."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.plans: dict[str, Planned] = {}
        self.running: set[str] = set()

    @initialize(timing=st.sampled_from([(0.0, 0.0), (1.0, 10.0), (1.0, 1.5), (0.5, 0.5)]))
    def begin(self, timing: tuple[float, float]) -> None:
        self.debounce, self.max_wait = timing
        self.scheduler: Scheduler[str, str] = Scheduler(debounce=self.debounce, max_wait=self.max_wait)

    def _merge(self, key: str, plan: Planned) -> None:
        """A request comes to what is known of `key`, which keeps its times once it is due."""
        known = self.plans[key]
        background = known.background and (plan.retry or plan.background)
        joined = replace(known, retry=known.retry and plan.retry, background=background)
        if known.at > self.now:
            joined = replace(joined, at=plan.at, limit=plan.limit)
        self.plans[key] = joined

    @rule(key=KEYS, background=st.booleans(), after=PAUSES)
    def trigger(self, key: str, background: bool, after: float) -> None:
        self.now += after
        self.scheduler.trigger(key, "", self.now, background=background)
        limit = self.now + self.max_wait
        if key not in self.plans:
            self.plans[key] = Planned(self.now + self.debounce, limit, False, background)
            return
        limit = min(limit, self.plans[key].limit)
        self._merge(key, Planned(min(self.now + self.debounce, limit), limit, False, background))

    @rule(key=KEYS, delay=DELAYS, background=st.booleans(), retry=st.booleans(), after=PAUSES)
    def add(self, key: str, delay: float, background: bool, retry: bool, after: float) -> None:
        self.now += after
        self.scheduler.add(key, "", self.now + delay, self.now, background=background, retry=retry)
        at = self.now + max(0.0, delay)
        if key not in self.plans:
            self.plans[key] = Planned(at, at, retry, background)
            return
        known = self.plans[key]
        self._merge(key, Planned(min(at, known.at), min(at, known.limit), retry, background))

    @rule(after=PAUSES)
    def pop(self, after: float) -> None:
        self.now += after
        due = {key: plan for key, plan in self.plans.items() if plan.at <= self.now and not plan.held}
        entry = self.scheduler.pop_due(self.now, self.running)
        runnable = due.keys() - self.running
        if entry is None:
            assert not runnable
            self._hold(due.keys())
            return
        assert entry.key in runnable
        plan = self.plans.pop(entry.key)
        assert (entry.at, entry.limit, entry.background) == (plan.at, plan.limit, plan.background)
        self.running.add(entry.key)
        self._hold(due.keys() - {entry.key})

    def _hold(self, looked_at: set[str]) -> None:
        """Of the keys that run, those that were looked at on the way are held."""
        for key in looked_at:
            entry = self.scheduler.entry(key)
            assert entry is not None
            if entry.place == HELD:
                assert key in self.running
                self.plans[key] = replace(self.plans[key], held=True)

    @rule(key=KEYS)
    def ends(self, key: str) -> None:
        self.running.discard(key)
        self.scheduler.release(key)
        self._free(key)

    @rule(key=KEYS)
    def ends_with_an_own_event(self, key: str) -> None:
        self.running.discard(key)
        entry = self.scheduler.entry(key)
        due = entry is not None and entry.place in (READY, HELD)
        self.scheduler.to_background(key)
        if due:
            self.plans[key] = replace(self.plans[key], background=True, held=False)

    def _free(self, key: str) -> None:
        if key in self.plans:
            self.plans[key] = replace(self.plans[key], held=False)

    @rule(key=KEYS)
    def removed(self, key: str) -> None:
        assert self.scheduler.remove(key) == (self.plans.pop(key, None) is not None)

    @rule()
    def cleared(self) -> None:
        assert self.scheduler.clear() == len(self.plans)
        self.plans.clear()

    @invariant()
    def has_what_was_asked_for(self) -> None:
        if hasattr(self, "scheduler"):
            assert set(self.scheduler.keys()) == set(self.plans)
            assert {key: self.scheduler.due_at(key) for key in self.plans} == {k: p.at for k, p in self.plans.items()}

    # Not invariants: these tidy up as they look, which must not be needed for what comes next.
    @rule()
    def looked_at(self) -> None:
        scheduler, now = self.scheduler, self.now
        ready = {key for key, plan in self.plans.items() if plan.at <= now and not plan.held}
        waiting = {key for key, plan in self.plans.items() if plan.at > now}
        assert scheduler.ready_count(now) == len(ready)
        at_front, later = scheduler.first(100)
        assert sorted(entry.key for entry in at_front) == sorted(ready)
        assert sorted(e.key for e in later) == sorted(key for key in waiting if not self.plans[key].retry)
        assert scheduler.waiting_retries == sum(self.plans[key].retry for key in waiting)
        assert (scheduler.next_due() or inf) == min((self.plans[key].at for key in waiting), default=inf)
        assert scheduler.held_back == 0

    def teardown(self) -> None:
        if hasattr(self, "scheduler"):
            self.looked_at()


SchedulerModel.TestCase.settings = settings(max_examples=examples(1500), stateful_step_count=40, deadline=None)
TestSchedulerModel = SchedulerModel.TestCase


@pytest.mark.parametrize(("debounce", "story"), [
    (1.0, [("trigger", 0.0), ("trigger", 0.5), ("add", 1.0)]),
    (1.0, [("trigger", 0.0), ("trigger", 0.0), ("trigger", 0.5), ("add", 1.5)]),
    (2.0, [("trigger", 0.0), ("trigger", 1.0), ("retry", 2.0)]),
    (2.0, [("add later", 0.0), ("trigger", 0.5), ("trigger", 1.0), ("add", 2.5)]),
])
def test_a_key_that_comes_back_to_an_earlier_time_of_its_own_stands_in_its_lane_once(
        debounce: float, story: list[tuple[str, float]]) -> None:
    scheduler: Scheduler[str, str] = Scheduler(debounce=debounce)
    for what, now in story:
        if what == "trigger":
            scheduler.trigger("a", "", now)
        else:
            scheduler.add("a", "", now + 5 if what == "add later" else now, now, retry=what == "retry")
    now = story[-1][1]
    assert scheduler.ready_count(now) == 1
    assert [entry.key for entry in scheduler.first(10)[0]] == ["a"]
    assert scheduler.pop_due(now, ()) is not None
    assert scheduler.pop_due(now + 100, ()) is None
    assert scheduler.ready_count(now + 100) == 0
