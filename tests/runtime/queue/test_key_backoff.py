"""Per-key failures and the backoff rule."""
from __future__ import annotations

import random
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubectl_runtime.runtime.queue.runs import (
    MAX_REMEMBERED_IN_ALL,
    MAX_REMEMBERED_WRITES,
    Failures,
    KeyBackoff,
    Subject,
)

EXACT = KeyBackoff(jitter=0)


def test_the_delay_doubles_from_5_ms_to_1000_s_and_a_huge_count_does_not_overflow() -> None:
    rng = random.Random(1)
    assert [EXACT.delay(n, rng) for n in (1, 2, 3, 4)] == [0.005, 0.01, 0.02, 0.04]
    assert EXACT.delay(19, rng) == EXACT.delay(10**6, rng) == 1000.0


@given(st.integers(1, 10**5), st.integers())
def test_jitter_takes_off_at_most_half(failures: int, seed: int) -> None:
    delay = KeyBackoff().delay(failures, random.Random(seed))
    exact = EXACT.delay(failures, random.Random(seed))
    assert exact / 2 <= delay <= exact


@pytest.mark.parametrize("values", [{"initial": 0}, {"initial": 5, "maximum": 1}, {"factor": 0.5}, {"jitter": 2}])
def test_a_rule_that_makes_no_sense_is_refused(values: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="backoff"):
        KeyBackoff(**values)


def test_durations_may_be_timedeltas() -> None:
    rule = KeyBackoff(initial=timedelta(milliseconds=20), maximum=timedelta(seconds=1), jitter=0)
    assert [rule.delay(failures, random.Random(0)) for failures in (1, 2, 99)] == [0.02, 0.04, 1.0]


def test_counts_are_per_key_and_forgotten_without_a_trace() -> None:
    failures: Failures[str] = Failures()
    assert failures.failed("a", 3, {}).count == 3
    assert failures.failed("b", 1, {}).count == 1
    failures.forget("a")
    assert failures.get("a") is None
    assert len(failures) == 1


def test_own_events_are_known_over_several_failures_and_only_for_the_key_that_wrote() -> None:
    failures: Failures[str] = Failures()
    failures.failed("a", 1, {("uid", "1"): None})
    failures.failed("a", 2, {("uid", "2"): None, ("gone", ""): None})
    assert failures.is_own_event("a", ("uid", "1"))
    assert failures.is_own_event("a", ("uid", "2"))
    assert failures.is_own_event("a", ("gone", "7"))
    assert not failures.is_own_event("a", ("uid", "3"))
    assert not failures.is_own_event("a", None)
    assert not failures.is_own_event("b", ("uid", "1"))


def test_a_key_that_writes_without_end_is_remembered_in_bounded_memory() -> None:
    failures: Failures[str] = Failures()
    for number in range(0, 3 * MAX_REMEMBERED_WRITES, 1000):
        state = failures.failed("a", 1, {("uid", str(n)): None for n in range(number, number + 1000)})
    assert len(state.writes) == MAX_REMEMBERED_WRITES
    assert failures.is_own_event("a", ("uid", str(3 * MAX_REMEMBERED_WRITES - 1)))


def test_many_keys_that_write_much_share_a_bound_and_the_newest_keeps_what_it_wrote() -> None:
    failures: Failures[int] = Failures()
    written = {("uid", str(n)): None for n in range(5000)}
    for key in range(100):
        failures.failed(key, 1, written)
        assert sum(len(state.writes) for state in failures.states.values()) <= MAX_REMEMBERED_IN_ALL
    assert failures.is_own_event(99, ("uid", "0"))
    failures.clear()
    assert failures._remembered == 0


@pytest.mark.parametrize(("before", "now", "differs"), [
    (Subject("u", 1), Subject("u", 1), False), (Subject("u", 1), Subject("u", 2), True),
    (Subject("u", 1), Subject("v", 1), True), (Subject("u"), Subject("u"), False), (Subject("u"), Subject("v"), True),
    (Subject("u", 1), Subject("u"), False)])
def test_an_object_is_another_one_by_uid_or_by_a_generation_that_is_counted(before: Subject, now: Subject,
                                                                           differs: bool) -> None:
    assert now.differs_from(before) is differs


@pytest.mark.parametrize(("factor", "maximum"), [(1e6, 1000.0), (1e300, 1e300)])
def test_no_factor_and_no_count_overflow(factor: float, maximum: float) -> None:
    rule = KeyBackoff(factor=factor, maximum=maximum, jitter=0)
    assert [rule.delay(count, random.Random(0)) for count in (10, 400, 10**9)] == [maximum] * 3
