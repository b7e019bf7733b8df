"""The ledger alone, against a model of a server: what is told is what was observed, whatever becomes of requests."""
from __future__ import annotations

import random
from collections import Counter
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kubectl_runtime.runtime.events.ledger import (
    SILENCE,
    Ledger,
    Lost,
    Reference,
    Result,
    Series,
    SpamFilter,
    Subject,
)
from tests.thoroughness import examples

MOMENT = datetime(2026, 1, 1, tzinfo=UTC)


class World:
    """A server that holds counts by name, and requests that arrive later than their answers were waited for."""

    def __init__(self, burst: int = 1000) -> None:
        self.now = 0.0
        rng, timer = random.Random(0), lambda: self.now
        self.ledger = Ledger(1000, SpamFilter(burst, 300, timer), rng, timer)
        self.counts: dict[str, int] = {}
        self.late: list[tuple[str, int | None, int]] = []
        self.observed = 0

    def observe(self, reason: str) -> Lost | None:
        self.observed += 1
        about = Reference("v1", "ConfigMap", "a", "default")
        return self.ledger.observe(Subject(about, None, False, reason, reason), "x", MOMENT)

    def handle(self, name: str, known: int | None, goal: int) -> Result:
        if known is None:
            if name in self.counts:
                return Result.EXISTS
        elif name not in self.counts:
            return Result.MISSING
        elif self.counts[name] != known:
            return Result.CHANGED
        self.counts[name] = goal
        return Result.DONE

    def send(self, fate: str, *, urgent: bool = False) -> None:
        series = self.ledger.take(urgent=urgent)
        if series is None:
            return
        request = request_of(series)
        if fate == "done":
            self.settle(series, self.handle(*request))
        elif fate == "lost":
            self.handle(*request)
            self.settle(series, Result.UNKNOWN)
        elif fate == "late":
            self.late.append(request)
            self.settle(series, Result.UNKNOWN)
        else:
            self.settle(series, {"later": Result.LATER, "refused": Result.REFUSED}[fate])

    def settle(self, series: Series, result: Result) -> None:
        self.ledger.settle(series, result, counts=False)

    def arrive(self) -> None:
        if self.late:
            self.handle(*self.late.pop(0))

    @property
    def reported(self) -> int:
        return sum(self.counts.values())


def request_of(series: Series) -> tuple[str, int | None, int]:
    return series.name, series.reported - series.before if series.exists else None, series.goal - series.before


STEPS = st.lists(st.sampled_from(["A", "A", "B", "done", "done", "lost", "late", "later", "arrive", "wait", "end"]),
                 max_size=80)


def play(world: World, steps: list[str]) -> None:
    for step in steps:
        if step in "AB":
            assert world.observe(step) is None
        elif step == "arrive":
            world.arrive()
        elif step in ("wait", "end"):
            world.now += SILENCE if step == "end" else 20
        else:
            world.send(step)
        assert world.reported <= world.observed


@settings(max_examples=examples(300))
@given(STEPS)
def test_when_all_requests_end_well_in_the_end_each_observation_is_counted_once(steps: list[str]) -> None:
    world = World()
    play(world, steps)
    while world.ledger.open:
        world.send("done", urgent=True)
    assert world.reported == world.observed
    while world.late:
        world.arrive()
    assert world.reported == world.observed
    assert world.ledger.lost.total() == 0


@settings(max_examples=examples(300))
@given(STEPS, st.integers(0, 2**32))
def test_what_is_refused_is_counted_as_lost_or_told_later_and_never_both(steps: list[str], seed: int) -> None:
    """No request is lost or late here, since then a refused one may have been told: then both may be said."""
    world, chance = World(burst=3), random.Random(seed)
    for step in steps:
        if step in "AB":
            world.observe(step)
        elif step in ("wait", "end"):
            world.now += SILENCE if step == "end" else 20
        elif step != "arrive":
            world.send(chance.choice(["done", "later", "refused"]))
        lost, ledger = world.ledger.lost, world.ledger
        waiting = sum(series.unreported - series.refused for series in ledger.open.values())
        assert world.reported + lost.total() + waiting == world.observed, Counter(lost)
    world.ledger.drop_all()
    assert world.reported + world.ledger.lost.total() == world.observed


def test_a_name_that_is_taken_by_somebody_else_is_given_up_for_another() -> None:
    world = World()
    world.observe("A")
    series = world.ledger.take(urgent=False)
    assert series is not None
    taken, series_name = series.name, series.name
    world.counts[taken] = 7
    world.settle(series, world.handle(*request_of(series)))
    world.send("done")
    assert series.name != series_name
    assert world.counts == {taken: 7, series.name: 1}


@pytest.mark.parametrize("since", [0, 1, 3])
@pytest.mark.parametrize(("answer", "reported"), [(Result.UNKNOWN, True), (Result.LATER, False)])
def test_of_an_event_that_is_gone_what_may_have_been_counted_is_not_counted_again(
        answer: Result, reported: bool, since: int) -> None:
    """The second observation's patch may have arrived before somebody deleted the Event. `since`: observed after it."""
    world = World()
    world.observe("A")
    world.send("done")
    world.observe("A")
    series = world.ledger.take(urgent=True)
    assert series is not None
    world.settle(series, answer)
    for _ in range(since):
        world.observe("A")
    again = world.ledger.take(urgent=True)
    assert again is series
    assert again.goal == 2
    world.settle(again, Result.MISSING)
    assert sum(one.unreported for one in world.ledger.open.values()) == since + (not reported)
    if since or not reported:
        last = world.ledger.take(urgent=True)
        assert last is not None
        assert (last.exists, last.goal - last.before) == (False, since + (not reported))


def test_a_new_event_is_sent_before_counts_that_wait() -> None:
    world = World()
    world.observe("A")
    world.send("done")
    world.observe("A")
    world.now += 0.5
    world.observe("B")
    series = world.ledger.take(urgent=True)
    assert series is not None
    assert series.subject.reason == "B"


def test_nothing_of_what_ended_is_remembered() -> None:
    world = World()
    for number in range(100):
        world.observe(f"R{number}")
        world.send("done")
    world.now += SILENCE
    assert (world.ledger.open, len(world.ledger._known), world.ledger.delay(urgent=True)) == ({}, 0, None)
