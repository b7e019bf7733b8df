"""Stop tokens: set once, seen by everybody, on whatever clock."""
from __future__ import annotations

import gc
import logging
import sys
import threading
import weakref
from collections.abc import Callable
from datetime import timedelta
from fractions import Fraction

import pytest

from kubectl_runtime.core.base.errors import RequestError
from kubectl_runtime.core.base.threads import SYSTEM_CLOCK, seconds
from kubectl_runtime.core.scope import StopToken


class JumpingClock:
    """Every wait ends at once, and moves time by its timeout."""

    def __init__(self) -> None:
        self.time = 0.0

    def monotonic(self) -> float:
        return self.time

    def now(self):  # type: ignore[no-untyped-def]
        raise AssertionError("not asked for")

    def wait(self, condition: threading.Condition, timeout: float | None) -> bool:
        assert timeout is not None, "it would wait forever"
        self.time += timeout / 2 + 0.01
        return False


def test_only_the_first_reason_counts() -> None:
    token = StopToken()
    assert not token.is_set()
    token.set("first")
    token.set("second")
    assert (token.is_set(), token.reason, token.wait()) == (True, "first", True)


def test_waiting_ends_at_the_timeout_on_the_tokens_clock() -> None:
    clock = JumpingClock()
    assert StopToken(clock=clock).wait(30) is False
    assert 30 <= clock.time < 31


def test_a_waiting_thread_is_woken() -> None:
    token, woken = StopToken(), []
    thread = threading.Thread(target=lambda: woken.append(token.wait(30)))
    thread.start()
    token.set("done")
    thread.join(10)
    assert woken == [True]


def test_callbacks_run_once_and_late_ones_at_once() -> None:
    token, calls = StopToken(), []
    token.on_set(lambda: calls.append("early"))
    forget = token.on_set(lambda: calls.append("forgotten"))
    forget()
    token.set()
    token.set()
    token.on_set(lambda: calls.append("late"))
    assert calls == ["early", "late"]


def test_callbacks_run_outside_the_lock_and_one_that_fails_stops_no_other(caplog: pytest.LogCaptureFixture) -> None:
    token, calls = StopToken(), []
    token.on_set(lambda: 1 / 0)
    token.on_set(lambda: calls.append(threading.Thread(target=token.is_set) and token.wait(0)))
    with caplog.at_level(logging.ERROR):
        token.set()
    assert calls == [True]
    assert "stop callback failed" in caplog.text


@pytest.mark.parametrize("raised", [SystemExit("enough"), KeyboardInterrupt(), GeneratorExit(), RuntimeError("no")])
def test_all_callbacks_are_told_whatever_one_of_them_raises(
    raised: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    token, told = StopToken(), []

    def fails() -> None:
        raise raised

    token.on_set(lambda: told.append("first"))
    token.on_set(fails)
    token.on_set(lambda: told.append("last"))
    thread = threading.Thread(target=lambda: [token.set("over"), told.append("set returned")])
    thread.start()
    thread.join(10)
    assert told == ["first", "last", "set returned"]
    assert [record.levelname for record in caplog.records] == ["ERROR"]
    assert caplog.records[0].exc_info is not None
    assert caplog.records[0].exc_info[1] is raised


def test_a_late_callback_that_wants_to_exit_ends_nothing_either(caplog: pytest.LogCaptureFixture) -> None:
    token = StopToken()
    token.set()
    token.on_set(sys.exit)
    assert "stop callback failed" in caplog.text


def test_an_interrupt_from_the_keyboard_passes_when_all_have_been_told() -> None:
    token, told = StopToken(), []

    def interrupted() -> None:
        raise KeyboardInterrupt

    token.on_set(interrupted)
    token.on_set(lambda: told.append("told"))
    with pytest.raises(KeyboardInterrupt):
        token.set()
    assert told == ["told"]
    assert token.is_set()


def test_callbacks_that_were_taken_back_or_called_are_not_kept() -> None:
    token = StopToken()
    kept = [weakref.ref(callback) for callback in (_subscribed(token) for _ in range(100)) if callback]
    gc.collect()
    assert all(reference() is None for reference in kept)


def _subscribed(token: StopToken) -> Callable[[], None]:
    """A callback that was asked for and taken back."""

    def callback() -> None:
        pass

    token.on_set(callback)()
    return callback


def test_the_system_clock_is_real() -> None:
    before = SYSTEM_CLOCK.monotonic()
    condition = threading.Condition()
    with condition:
        assert SYSTEM_CLOCK.wait(condition, 0.001) is False
    assert SYSTEM_CLOCK.monotonic() > before
    assert SYSTEM_CLOCK.now().tzinfo is not None


def test_a_duration_is_seconds_or_a_timedelta_and_nothing_that_could_be_taken_for_one() -> None:
    assert [seconds(duration) for duration in (2, 0.5, timedelta(minutes=1), Fraction(1, 4))] == [2.0, 0.5, 60.0, 0.25]
    for wrong in ("1", "", b"1", True, None, [1], 10**400):
        with pytest.raises(RequestError, match="a duration must be seconds or a timedelta, not "):
            seconds(wrong)  # type: ignore[arg-type]
