"""The simulated clock, with threads and without."""
from __future__ import annotations

import threading
from datetime import timedelta

import pytest

from kubectl_runtime.core.scope import StopToken
from kubectl_runtime.testing.clock import EPOCH, SimClock


def waiter(clock: SimClock, seconds: float | None, results: list[tuple[bool, float]]) -> threading.Thread:
    condition = threading.Condition()

    def wait() -> None:
        with condition:
            results.append((clock.wait(condition, seconds), clock.monotonic()))

    thread = threading.Thread(target=wait)
    thread.start()
    return thread


def test_time_moves_only_when_told() -> None:
    clock = SimClock()
    assert clock.monotonic() == 0
    clock.advance(timedelta(minutes=1))
    assert clock.monotonic() == 60
    assert clock.now() == EPOCH + timedelta(seconds=60)


def test_a_suspension_counts_for_the_date_and_the_boottime_and_wakes_nobody() -> None:
    clock, results = SimClock(), []
    thread = waiter(clock, 5.0, results)
    clock.settle()
    clock.suspend(60)
    assert (clock.monotonic(), clock.boottime(), clock.now()) == (0, 60, EPOCH + timedelta(seconds=60))
    assert results == []
    clock.advance(5)
    thread.join(10)
    assert results == [(False, 5.0)]


def test_waiting_threads_wake_each_at_its_own_time_in_order() -> None:
    clock, results = SimClock(), []
    threads = [waiter(clock, seconds, results) for seconds in (3.0, 1.0, 2.0)]
    clock.settle(3)
    clock.advance(10)
    for thread in threads:
        thread.join(10)
    assert results == [(False, 1.0), (False, 2.0), (False, 3.0)]


def test_time_does_not_go_on_before_the_woken_have_looked_at_it() -> None:
    clock, condition, next_is_awake = SimClock(), threading.Condition(), threading.Event()
    seen: list[float] = []

    def looks_late() -> None:
        with condition:
            clock.wait(condition, 1.0)
            next_is_awake.wait(0.2)  # a busy machine may let it stand here
            seen.append(clock.monotonic())

    def wakes_next() -> None:
        with other:
            clock.wait(other, 2.0)
            next_is_awake.set()
            seen.append(clock.monotonic())

    other = threading.Condition()
    threads = [threading.Thread(target=target) for target in (looks_late, wakes_next)]
    for thread in threads:
        thread.start()
    clock.settle(2)
    clock.advance(10)
    for thread in threads:
        thread.join(10)
    assert seen == [1.0, 2.0]


def test_a_thread_whose_time_has_not_come_goes_on_waiting() -> None:
    clock, results = SimClock(), []
    thread = waiter(clock, 5.0, results)
    clock.settle()
    clock.advance(4.9)
    assert results == []
    clock.advance(0.1)
    thread.join(10)
    assert results == [(False, 5.0)]


def test_a_token_that_waits_on_the_clock_wakes_by_time_and_by_being_set() -> None:
    clock = SimClock()
    token = StopToken(clock=clock)
    results: list[bool] = []
    thread = threading.Thread(target=lambda: results.append(token.wait(5)))
    thread.start()
    clock.settle()
    clock.advance(5)
    thread.join(10)
    thread = threading.Thread(target=lambda: results.append(token.wait(5)))
    thread.start()
    clock.settle()
    token.set()
    thread.join(10)
    assert results == [False, True]


def test_in_one_thread_a_wait_moves_the_time_itself() -> None:
    clock = SimClock(self_advancing=True)
    assert StopToken(clock=clock).wait(30) is False
    assert clock.monotonic() == 30


def test_in_one_thread_a_wait_that_could_never_end_raises() -> None:
    with pytest.raises(RuntimeError, match=r"for ever|without a timeout"):
        StopToken(clock=SimClock(self_advancing=True)).wait()


def test_run_until_stops_at_the_condition_and_complains_at_the_limit() -> None:
    clock = SimClock()
    clock.run_until(lambda: clock.monotonic() >= 3)
    assert clock.monotonic() == 3
    with pytest.raises(AssertionError, match="not done"):
        clock.run_until(lambda: False, limit=5)


def test_settle_says_how_many_threads_wait_when_too_few_do() -> None:
    with pytest.raises(AssertionError, match="0 threads"):
        SimClock().settle(1, within=0.01)
