"""The one exponential delay, and the four rules that are made of it."""
from __future__ import annotations

import random
import re
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubectl_runtime.client.http.retry import Failure, RetryPolicy
from kubectl_runtime.core.base.backoff import Backoff
from kubectl_runtime.core.base.errors import RequestError
from kubectl_runtime.runtime.queue.runs import KeyBackoff
from kubectl_runtime.runtime.retry import ConflictBackoff
from kubectl_runtime.runtime.watch.backoff import WatchBackoff

INITIAL = st.floats(1e-9, 1e3)
TIMES = st.floats(1, 1e9)
"""How many times the first delay the maximum is."""
FACTORS = st.floats(1, 1e308) | st.integers(1, 10**400)
COUNTS = st.integers(1, 100) | st.integers(1, 10**9) | st.integers(10**300, 10**400)
DRAWN = st.floats(0, 1, exclude_max=True)
ROUNDING = 1 + 1e-12


def key(initial: float, factor: float, maximum: float) -> Callable[[int, float], float]:
    return lambda count, drawn: KeyBackoff(initial, factor, maximum).delay(count, Drawn(drawn))


def watch(initial: float, factor: float, maximum: float) -> Callable[[int, float], float]:
    return lambda count, drawn: WatchBackoff(initial, factor, maximum).delay(count, Drawn(drawn))


def call(initial: float, factor: float, maximum: float) -> Callable[[int, float], float]:
    def delay(count: int, drawn: float) -> float:
        policy = RetryPolicy(initial, factor, maximum, retries=count, random=lambda: drawn)
        found = policy.next(count - 1, Failure(429))
        assert found is not None
        return found

    return delay


class Drawn(random.Random):
    """Chance always gives the same number."""

    def __init__(self, number: float) -> None:
        self._number = number
        super().__init__()

    def random(self) -> float:
        return self._number


@pytest.mark.parametrize(("rule", "least", "most"), [(key, 0.5, 1), (call, 0.5, 1), (watch, 1, 2)])
@given(initial=INITIAL, times=TIMES, factor=FACTORS, count=COUNTS, drawn=DRAWN)
def test_no_count_and_no_factor_overflows_and_the_range_of_the_delay_is_kept(
        rule: Any, least: float, most: float, initial: float, times: float, factor: float, count: int,
        drawn: float) -> None:
    maximum = initial * times
    delay = rule(initial, factor, maximum)(count, drawn)
    assert initial * least / ROUNDING <= delay <= maximum * most * ROUNDING
    if count > 1 and factor >= times:
        assert delay >= maximum * least / ROUNDING


@given(initial=INITIAL, times=TIMES, factor=st.floats(1, 1e308), count=COUNTS, drawn=DRAWN, jitter=st.floats(0, 1))
def test_the_maximum_is_a_maximum_and_jitter_only_takes_off(
        initial: float, times: float, factor: float, count: int, drawn: float, jitter: float) -> None:
    exact = Backoff(initial, factor, initial * times)
    jittered = Backoff(initial, factor, initial * times, jitter)
    whole = exact.delay(count, Drawn(drawn))
    assert whole <= initial * times
    assert whole <= exact.delay(count + 1, Drawn(drawn))
    assert whole * (1 - jitter) / ROUNDING <= jittered.delay(count, Drawn(drawn)) <= whole


def test_a_factor_of_a_million_reaches_the_maximum_and_stays_there() -> None:
    rule = KeyBackoff(factor=1e6, jitter=0)
    rng = random.Random(1)
    assert [rule.delay(failures, rng) for failures in (1, 2, 3, 65, 10**6)] == [0.005, 1000, 1000, 1000, 1000]


def test_watches_wait_from_d_to_less_than_2d_with_d_from_0_8_s_doubling_to_30_s() -> None:
    rule = WatchBackoff()
    assert [rule.delay(n, Drawn(0.0)) for n in (1, 2, 6, 7, 99)] == pytest.approx([0.8, 1.6, 25.6, 30, 30])
    assert [rule.delay(n, Drawn(0.5)) for n in (1, 2, 6, 7, 99)] == pytest.approx([1.2, 2.4, 38.4, 45, 45])
    assert 59.9 < rule.delay(99, Drawn(0.999)) < 60


@given(attempts=st.integers(1, 50), count=COUNTS, initial=st.floats(1e-3, 1e3) | st.just(0.0), drawn=DRAWN)
def test_each_rule_gives_up_after_its_attempts_and_not_before(attempts: int, count: int, initial: float,
                                                             drawn: float) -> None:
    rules = [Backoff(initial, attempts=attempts), KeyBackoff(initial, attempts=attempts),
             ConflictBackoff(attempts, initial).rule]
    waits = [rule.next(count, Drawn(drawn)) for rule in rules]
    if initial:
        policy = RetryPolicy(initial, maximum=1e9, retries=attempts - 1)
        waits.append(policy.next(count - 1, Failure(429, retry_after=0)))
    assert [wait is None for wait in waits] == [count >= attempts] * len(waits)
    assert all(wait is None or (wait > 0) == (initial > 0) for wait in waits)


@pytest.mark.parametrize("attempts", [0, -1, 0.5, float("nan"), True, "3", None])
def test_a_limit_that_allows_no_attempt_or_is_no_number_is_refused(attempts: Any) -> None:
    for kind in (KeyBackoff, partial(Backoff, 1)):
        with pytest.raises(RequestError, match="attempts"):
            kind(attempts=attempts)
    assert KeyBackoff(attempts=10).next(9) is not None


@pytest.mark.parametrize("kind", [Backoff, KeyBackoff, WatchBackoff, RetryPolicy])
def test_a_first_delay_of_0_is_refused_where_no_limit_ends_the_attempts_or_a_server_gets_them(kind: Any) -> None:
    with pytest.raises(RequestError, match="first"):
        kind(0)


def test_an_infinite_maximum_is_no_maximum() -> None:
    rule = Backoff(1, 10, float("inf"))
    assert [rule.delay(n) for n in (1, 300, 400)] == pytest.approx([1, 1e299, float("inf")])


@pytest.mark.parametrize("wrong", [
    {"initial": 0}, {"initial": -1}, {"initial": 31}, {"initial": float("nan")}, {"maximum": float("nan")},
    {"factor": 0.99}, {"factor": float("nan")}, {"jitter": -0.1}, {"jitter": 1.1}, {"maximum": timedelta(0)}])
def test_numbers_that_make_no_sense_are_refused_by_name(wrong: dict[str, Any]) -> None:
    with pytest.raises(RequestError, match="first delay <= maximum, factor >= 1 and jitter within"):
        Backoff(**{"initial": 1, "factor": 2, "maximum": 30, **wrong})


@pytest.mark.parametrize("kind", [KeyBackoff, WatchBackoff])
def test_the_rules_refuse_them_as_well(kind: Any) -> None:
    with pytest.raises(RequestError, match=r"maximum 0\.1,"):
        kind(initial=1, maximum=0.1)
    with pytest.raises(RequestError, match=r"maximum 0\.1,"):
        RetryPolicy(base=1, maximum=0.1)


@pytest.mark.parametrize("kind", [KeyBackoff, WatchBackoff, Backoff])
@pytest.mark.parametrize("wrong", ["1", "", None, True, [1], b"1"])
@pytest.mark.parametrize("name", ["initial", "maximum", "factor"])
def test_what_is_no_number_is_refused_even_where_python_would_make_one_of_it(kind: Any, wrong: Any, name: str) -> None:
    with pytest.raises(RequestError, match=f"not {re.escape(repr(wrong))}$"):
        kind(**{"initial": 1, "factor": 2, "maximum": 30, name: wrong})


def test_calls_name_the_first_wait_as_all_others_do_and_by_the_old_name_as_well() -> None:
    assert RetryPolicy(initial=3) == RetryPolicy(base=3) == RetryPolicy(3)
    assert (RetryPolicy(base=3).initial, RetryPolicy(initial=3).base) == (3, 3)
    assert replace(RetryPolicy(base=3), retries=1) == RetryPolicy(3, retries=1)
    assert replace(RetryPolicy(base=3), initial=1) == RetryPolicy(1)
    assert repr(RetryPolicy()) == "RetryPolicy(initial=0.2, factor=2.0, maximum=10.0, retries=8)"


@pytest.mark.parametrize(("rule", "waits"), [
    (ConflictBackoff(4, 0.01, 5.0, 0.1), [0.01, 0.05, 0.25]), (ConflictBackoff(initial=0), [0, 0, 0]),
    (ConflictBackoff(initial=timedelta(seconds=1), jitter=2), [1, 1, 1])])
def test_conflicts_wait_up_to_their_jitter_longer(rule: ConflictBackoff, waits: list[float]) -> None:
    assert [rule.delay(attempt, Drawn(0.0)) for attempt in range(3)] == pytest.approx(waits)
    longer = [wait * (1 + rule.jitter / 2) for wait in waits]
    assert [rule.delay(attempt, Drawn(0.5)) for attempt in range(3)] == pytest.approx(longer)
