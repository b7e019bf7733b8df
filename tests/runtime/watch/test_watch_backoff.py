"""Backoff of watches, and what their failures look like in the log."""
from __future__ import annotations

import logging
import random
from collections.abc import Iterator
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubectl_runtime.core.base.errors import TransportError
from kubectl_runtime.core.meta.gvk import ApiResource
from kubectl_runtime.core.scope import StopToken
from kubectl_runtime.runtime.watch.backoff import FailureLog, WatchBackoff, WatchFailures, WatchTarget, backoff
from kubectl_runtime.runtime.watch.event import IDLE, INIT, INIT_DONE, MAX_RETRY_AFTER, Apply, Failed
from kubectl_runtime.testing.clock import SimClock
from tests.runtime.watch.scripted_watch import THING, api_error, thing

TARGET = WatchTarget(THING, "default")
PLAIN = WatchBackoff(jitter=False)
FAILED = Failed(TransportError("connection refused"), "list")


def test_delays_double_up_to_the_maximum() -> None:
    rng = random.Random(1)
    assert [PLAIN.delay(n, rng) for n in (1, 2, 3, 4, 5, 6, 7, 10_000)] == [0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30.0, 30.0]


@given(st.integers(1, 10**6), st.randoms(use_true_random=False))
def test_jitter_is_added_on_top_of_the_cap(failures: int, rng: random.Random) -> None:
    exact = PLAIN.delay(failures, rng)
    assert exact <= WatchBackoff().delay(failures, rng) <= 2 * exact  # equal only by rounding


def test_a_seed_reproduces_the_delays_and_another_spreads_them() -> None:
    def delays(seed: int) -> list[float]:
        state = WatchFailures(rng=random.Random(seed))
        return [state.next(float(n)) for n in range(5)]

    assert delays(1) == delays(1) != delays(2)


def test_two_minutes_of_health_after_the_wait_start_it_over() -> None:
    state = WatchFailures(PLAIN)
    assert [state.next(0), state.next(0.8)] == [0.8, 1.6]
    assert state.next(0.8 + 1.6 + 119.9) == 3.2
    healthy = 122.3 + 3.2
    assert state.next(healthy + 120.1) == 0.8
    assert state.failures == 1


def test_a_long_wait_is_not_health() -> None:
    state = WatchFailures(WatchBackoff(initial=timedelta(seconds=100), maximum=1000, reset_after=timedelta(minutes=2),
                                 jitter=False))
    assert [state.next(0), state.next(100), state.next(300), state.next(700)] == [100, 200, 400, 800]


def test_what_the_server_asks_for_is_a_floor() -> None:
    state = WatchFailures(PLAIN)
    assert state.next(0, at_least=7) == 7
    assert state.next(7, at_least=0.1) == 1.6


@pytest.mark.parametrize("wrong", [{"initial": 0}, {"initial": 2, "maximum": 1}, {"factor": 0.5}, {"reset_after": -1}])
def test_senseless_rules_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="a backoff needs"):
        WatchBackoff(**wrong)  # type: ignore[arg-type]


def test_the_stage_waits_after_failures_and_init_does_not_reset_it() -> None:
    clock = SimClock(self_advancing=True)
    times: list[float] = []

    def steps() -> Iterator[object]:
        for _ in range(4):
            yield INIT
            times.append(clock.monotonic())
            yield FAILED

    events = backoff(steps(), StopToken(clock=clock), TARGET, PLAIN, clock=clock)  # type: ignore[arg-type]
    assert list(events) == [INIT] * 4
    assert times == pytest.approx([0, 0.8, 2.4, 5.6])


def test_the_stage_skips_idle_steps_without_spinning() -> None:
    clock = SimClock(self_advancing=True)
    assert list(backoff([IDLE, IDLE, INIT], StopToken(clock=clock), TARGET, clock=clock)) == [INIT]
    assert clock.monotonic() > 0


def test_the_stage_ends_at_once_when_stopped_and_closes_its_source() -> None:
    clock, closed = SimClock(self_advancing=True), []
    stop = StopToken(clock=clock)

    def steps() -> Iterator[object]:
        try:
            yield INIT
            stop.set()
            yield FAILED
            raise AssertionError("pulled again")
        finally:
            closed.append(True)

    assert list(backoff(steps(), stop, TARGET, clock=clock)) == [INIT]  # type: ignore[arg-type]
    assert closed == [True]
    assert clock.monotonic() == 0


def log_of(*failures: Failed, target: WatchTarget = TARGET) -> FailureLog:
    log = FailureLog(target)
    for at, failure in enumerate(failures):
        log.failed(failure, float(at), 1.5)
    return log


def test_each_attempt_is_one_line_and_repetitions_are_short(caplog: pytest.LogCaptureFixture) -> None:
    failure = Failed(api_error(403, "Forbidden", message="user x cannot list things"), "list")
    log_of(failure, failure, failure)
    first, *others = [record.getMessage() for record in caplog.records]
    assert first.startswith(
        "cannot list things.test.example in namespace default: user x cannot list things (403 Forbidden)"
    )
    assert "grant the verb 'list' on resource 'things' of API group 'test.example'" in first
    assert others == ["cannot list things.test.example in namespace default: still failing after 2 failures in 1 s; "
                      "next attempt in 1.5 s",
                      "cannot list things.test.example in namespace default: still failing after 3 failures in 2 s; "
                      "next attempt in 1.5 s"]
    assert {record.levelno for record in caplog.records} == {logging.WARNING}


def test_another_failure_is_told_in_full_and_a_version_that_expired_is_no_warning(
        caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    expired = Failed(api_error(410, "Expired"), "watch")
    log_of(FAILED, FAILED, expired, expired)
    assert "410 Expired" in caplog.records[-2].getMessage()
    assert [record.levelname for record in caplog.records] == ["WARNING", "WARNING", "INFO", "WARNING"]


def test_recovery_is_told_once_and_only_when_something_is_proved(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    log = log_of(FAILED)
    log.succeeded(INIT, 2)
    assert len(caplog.records) == 1
    log.succeeded(INIT_DONE, 3)
    log.succeeded(Apply(thing()), 4)
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]
    assert caplog.records[-1].getMessage().endswith(": works again after 1 failure in 3 s")
    log_of(FAILED, FAILED).succeeded(INIT_DONE, 5)
    assert caplog.records[-1].getMessage().endswith(": works again after 2 failures in 5 s")


def test_what_a_server_says_to_a_read_of_secrets_is_shown(caplog: pytest.LogCaptureFixture) -> None:
    secrets = WatchTarget(ApiResource("", "v1", "Secret", "secrets"))
    said = 'unable to transform key "/registry/secrets/a/b": no matching key was found'
    log_of(Failed(api_error(500, "InternalError", message=said), "list"), target=secrets)
    assert f"cannot list secrets: {said} (500 InternalError)" in caplog.text


def test_of_a_long_message_a_kilobyte_is_shown(caplog: pytest.LogCaptureFixture) -> None:
    log_of(Failed(api_error(500, "InternalError", message="x" * 200_000), "list"))
    assert len(caplog.text) < 2000
    assert "more characters" in caplog.text


def test_the_target_names_its_selectors() -> None:
    assert str(WatchTarget(THING, None, "app=web", None)) == "things.test.example (labels app=web)"


def test_a_server_that_asks_for_a_day_is_obeyed_for_five_minutes(caplog: pytest.LogCaptureFixture) -> None:
    failure = Failed(api_error(429, retry_after=86400), "watch", 86400)
    delay = WatchFailures(PLAIN).after(failure, 0)
    assert delay == MAX_RETRY_AFTER == 300
    FailureLog(TARGET).failed(failure, 0, delay)
    assert "next attempt in 300.0 s (the server asks for 86400 s)" in caplog.text


def test_the_first_expired_version_costs_no_wait_and_a_permanent_one_does() -> None:
    state, expired, now, waits = WatchFailures(PLAIN), Failed(api_error(410, "Expired")), 0.0, []
    for _ in range(8):
        waits.append(state.after(expired, now))
        now += waits[-1]
    assert waits == [0, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30]
    assert state.after(expired, now + 120) == 0


def test_what_failed_before_an_outage_does_not_count_after_it_and_waits_are_short_for_a_minute() -> None:
    state = WatchFailures(PLAIN)
    for _ in range(10):
        state.next(0)
    unavailable = Failed(api_error(503))
    assert state.after(Failed(api_error(503), outage_over=True), 100) == 0.8
    assert [state.after(unavailable, 101) for _ in range(4)] == [1.6, 2, 2, 2]
    assert state.after(unavailable, 161) == 25.6


def test_jitter_leaves_the_short_waits_below_four_seconds() -> None:
    state = WatchFailures(rng=random.Random(1))
    waits = [state.after(Failed(api_error(503), outage_over=not n), 0) for n in range(50)]
    assert max(waits) < 4


def test_while_nobody_answers_there_is_no_wait_of_its_own_and_few_lines(caplog: pytest.LogCaptureFixture) -> None:
    away, state, log = Failed(TransportError("refused"), away=True), WatchFailures(PLAIN), FailureLog(TARGET)
    for at in range(100):
        assert state.after(away, at) == 0
        log.failed(away, float(at), 0)
    assert state.failures == 0
    assert len(caplog.records) == 7  # 1, 2, 4, ... 64
    assert "one watch of this client tries every 5 s until the server answers" in caplog.records[-1].getMessage()
