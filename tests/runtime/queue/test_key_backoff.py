"""Per-key failures and the backoff rule."""
from __future__ import annotations

import random
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubectl_runtime.runtime.queue.key_backoff import MAX_REMEMBERED_WRITES, Failures, KeyBackoff

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
    assert [failures.failed("a", {}).count for _ in range(3)] == [1, 2, 3]
    assert failures.failed("b", {}).count == 1
    failures.forget("a")
    assert failures.get("a") is None
    assert len(failures) == 1
    assert failures.failed("a", {}).count == 1


def test_echoes_are_known_over_several_failures_and_only_for_the_key_that_wrote() -> None:
    failures: Failures[str] = Failures()
    failures.failed("a", {("uid", "1"): None})
    failures.failed("a", {("uid", "2"): None})
    assert failures.is_echo("a", ("uid", "1"))
    assert failures.is_echo("a", ("uid", "2"))
    assert not failures.is_echo("a", ("uid", "3"))
    assert not failures.is_echo("a", None)
    assert not failures.is_echo("b", ("uid", "1"))


def test_a_key_that_writes_without_end_is_remembered_in_bounded_memory() -> None:
    failures: Failures[str] = Failures()
    for number in range(1000):
        state = failures.failed("a", {("uid", str(number)): None})
    assert len(state.writes) == MAX_REMEMBERED_WRITES
    assert failures.is_echo("a", ("uid", "999"))
