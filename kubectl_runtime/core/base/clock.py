"""The library's time, through a `Clock` that the caller can replace.

`SystemClock` is real time; `kubectl_runtime.testing.SimClock` moves only when a test moves it. A clock also does the
waiting, so that a simulated clock can wake a waiting thread when its time has come.
"""
from __future__ import annotations

import sys
import threading
import time
from datetime import UTC, datetime, timedelta
from numbers import Real
from typing import Any, Protocol

from kubectl_runtime.core.base.errors import RequestError

Duration = float | int | timedelta
"""A span of time: seconds, or a `timedelta`."""


def seconds(duration: Duration) -> float:
    """`duration` in seconds. Raises RequestError for anything but a number or a `timedelta`: text and booleans are
    refused, though Python would convert them."""
    if isinstance(duration, timedelta):
        return duration.total_seconds()
    given: Any = duration  # callers may not check their types
    if isinstance(given, bool) or not isinstance(given, float | int | Real):  # Real is for numpy's numbers
        raise RequestError(f"a duration is seconds or a timedelta, not {duration!r}")
    try:
        return float(given)
    except OverflowError:
        raise RequestError("a duration is seconds or a timedelta, not an integer with hundreds of digits") from None


def duration_of(what: str, duration: Duration) -> float:
    """The argument called `what` in seconds. Raises RequestError when it is negative, or is not a duration."""
    length = _length(what, duration)
    if not length >= 0:
        raise RequestError(f"{what} must be at least 0 seconds, not {duration}")
    return length


def period_of(what: str, duration: Duration) -> float:
    """The seconds of a duration like `duration_of`, which must be more than 0."""
    length = _length(what, duration)
    if not length > 0:
        raise RequestError(f"{what} must be more than 0 seconds, not {duration}")
    return length


def _length(what: str, duration: Duration) -> float:
    if isinstance(duration, bool) or not isinstance(duration, int | float | timedelta):
        raise RequestError(f"{what} is seconds or a timedelta, not {duration!r}")
    return seconds(duration)


_BOOTTIME: int | None = getattr(time, "CLOCK_MONOTONIC" if sys.platform == "darwin" else "CLOCK_BOOTTIME", None)


class Clock(Protocol):
    """A source of time. Implementations are safe to use from any thread."""

    def monotonic(self) -> float:
        """Seconds that never go back; only differences are meaningful."""

    def boottime(self) -> float:
        """Seconds like `monotonic`, but including the time for which the machine was suspended, on systems that count
        it. It has its own origin: compare it only with other values of `boottime`."""

    def now(self) -> datetime:
        """The date and time, aware, in UTC."""

    def wait(self, condition: threading.Condition, timeout: float | None) -> bool:
        """Wait on `condition`, which the caller holds, until it is notified or `timeout` seconds have passed.

        False after a timeout, as `threading.Condition.wait`; it may also wake spuriously, so check in a loop.
        """


class SystemClock:
    """Real time: `time.monotonic`, the system's date, and real waiting.

    `boottime` is Linux's CLOCK_BOOTTIME, and macOS's CLOCK_MONOTONIC, which counts sleep there (Python's own monotonic
    clock does not). Windows' monotonic clock counts suspensions already; on other systems they cannot be detected.
    """

    monotonic = staticmethod(time.monotonic)  # without a Python frame, as it is read several times for each event

    def boottime(self) -> float:
        """Seconds since the machine was started, suspended time included."""
        return time.monotonic() if _BOOTTIME is None else time.clock_gettime(_BOOTTIME)

    def now(self) -> datetime:
        """The system's date and time, aware, in UTC."""
        return datetime.now(UTC)

    def wait(self, condition: threading.Condition, timeout: float | None) -> bool:
        """Wait on `condition`, as `condition.wait(timeout)`. An infinite timeout is allowed."""
        longest = threading.TIMEOUT_MAX  # 292 years; Python refuses a longer one
        if threading.current_thread() is threading.main_thread():
            longest = MAIN_THREAD_WAIT
        return condition.wait(longest if timeout is None else min(timeout, longest))


MAIN_THREAD_WAIT = 0.5
"""Seconds after which a wait in the main thread wakes spuriously. Python runs signal handlers there, between two
instructions: a signal that comes just before the wait begins would otherwise be handled only after the wait."""

SYSTEM_CLOCK = SystemClock()
