"""Time, threads, and locks after a fork.

- `SystemClock` is real time; `kubectl_runtime.testing.SimClock` moves only when a test moves it. A clock also does the
  waiting, so that a simulated clock can wake a waiting thread when its time has come.
- `Thread` is a thread of the library. It starts in an empty context and may outlive its starter's context. (From Python
  3.14 on, on a build without the GIL or under `-X thread_inherit_context`, other new threads copy the starter's
  context.)
- A fork copies every lock in its current state, but no thread except the forking one. A lock held by another thread
  would therefore stay held in the child forever. A `ForkSafeLock` is free in the child. The state that the lock guards
  must be usable while half changed, because the child may find it in this state. A fork by another thread waits until
  an `unforked` block ends.
"""
from __future__ import annotations

import os
import sys
import threading
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import Context
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
    given: Any = duration  # at run time a caller can pass any value
    if isinstance(given, bool) or not isinstance(given, float | int | Real):  # Real is for numpy's numbers
        raise RequestError(f"a duration must be seconds or a timedelta, not {duration!r}")
    try:
        return float(given)
    except OverflowError:
        raise RequestError("a duration must be seconds or a timedelta, not an integer of hundreds of digits") from None


def duration_of(what: str, duration: Duration) -> float:
    """Return `duration` in seconds. Raises RequestError, which begins with `what`, for a negative duration and for
    anything but a duration."""
    length = _length(what, duration)
    if not length >= 0:
        raise RequestError(f"{what} must be at least 0 seconds, not {duration}")
    return length


def period_of(what: str, duration: Duration) -> float:
    """Like `duration_of`, but the duration must be more than 0."""
    length = _length(what, duration)
    if not length > 0:
        raise RequestError(f"{what} must be more than 0 seconds, not {duration}")
    return length


def _length(what: str, duration: Duration) -> float:
    if isinstance(duration, bool) or not isinstance(duration, int | float | timedelta):
        raise RequestError(f"{what} must be seconds or a timedelta, not {duration!r}")
    return seconds(duration)


_BOOTTIME: int | None = getattr(time, "CLOCK_MONOTONIC" if sys.platform == "darwin" else "CLOCK_BOOTTIME", None)


class Clock(Protocol):
    """A source of time. Implementations are safe to use from any thread."""

    def monotonic(self) -> float:
        """Seconds that never go back; only differences are meaningful."""

    def boottime(self) -> float:
        """Seconds like `monotonic`, but including the time for which the machine was suspended, on systems that count
        it. Compare the value only with other values of `boottime`: its zero differs from that of `monotonic`."""

    def now(self) -> datetime:
        """The current time as an aware datetime in UTC."""

    def wait(self, condition: threading.Condition, timeout: float | None) -> bool:
        """Wait on `condition`, which the caller holds, until it is notified or `timeout` seconds have passed.

        Returns False after a timeout, like `threading.Condition.wait`. The wait may also end spuriously: check in a
        loop.
        """


class SystemClock:
    """Real time: `time.monotonic`, the system's date, and real waiting.

    `boottime` reads CLOCK_BOOTTIME on Linux. On macOS it reads CLOCK_MONOTONIC, which counts sleep there (Python's own
    monotonic clock does not). Windows' monotonic clock counts suspensions already; other systems do not report them.
    """

    # `time.monotonic` itself: a Python method would be slower, and each event reads the time several times.
    monotonic = staticmethod(time.monotonic)

    def boottime(self) -> float:
        """Seconds since the machine was started, suspended time included."""
        return time.monotonic() if _BOOTTIME is None else time.clock_gettime(_BOOTTIME)

    def now(self) -> datetime:
        """The system's time as an aware datetime in UTC."""
        return datetime.now(UTC)

    def wait(self, condition: threading.Condition, timeout: float | None) -> bool:
        """Wait on `condition`, like `condition.wait(timeout)`. An infinite timeout is allowed."""
        longest = threading.TIMEOUT_MAX  # 292 years; Python refuses a longer one
        if threading.current_thread() is threading.main_thread():
            longest = MAIN_THREAD_WAIT
        return condition.wait(longest if timeout is None else min(timeout, longest))


MAIN_THREAD_WAIT = 0.5
"""Seconds after which a wait in the main thread wakes spuriously. Python runs signal handlers there, between two
instructions: a signal that comes just before the wait begins would otherwise be handled only after the wait."""

SYSTEM_CLOCK = SystemClock()


class Thread(threading.Thread):
    """A `threading.Thread` that always starts in an empty context."""

    def start(self) -> None:
        """Like `threading.Thread.start`."""
        Context().run(super().start)


class ForkSafeLock:
    """A lock like `threading.Lock` that is free again in a forked child process. Not reentrant."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        renewed_in_children(self)

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """Take the lock and return True, or return False if it is held. If `blocking`, first wait until the lock is
        free, for `timeout` seconds at most (-1: no limit; the largest value is `threading.TIMEOUT_MAX`)."""
        return self._lock.acquire(blocking, timeout)

    def release(self) -> None:
        """Release the lock. Does nothing when it is not held."""
        with suppress(RuntimeError):  # in a forked child process the lock is free, even if the forking thread held it
            self._lock.release()

    def renew(self) -> None:
        """Free the lock, whichever thread holds it. Only for a forked child process."""
        self._lock = threading.Lock()

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


class Renewed(Protocol):
    """Holds a lock, and replaces it when `renew` is called."""

    def renew(self) -> None:
        """Replace the lock with a new, free lock, whichever thread holds the old one."""


_held: weakref.WeakSet[Renewed] = weakref.WeakSet()
_registered: list[bool] = []


def renewed_in_children(holder: Renewed) -> None:
    """Call `holder.renew()` in the child of each fork, as long as the holder exists."""
    _held.add(holder)
    # No lock is needed: if two threads register at once, each fork renews the locks twice, which does no harm.
    if not _registered:
        _registered.append(True)
        if hasattr(os, "register_at_fork"):  # not on Windows, which has no fork
            os.register_at_fork(after_in_child=_renew_all)


def _renew_all() -> None:
    for holder in list(_held):
        holder.renew()


_whole = threading.RLock()
_gated: list[bool] = []


@contextmanager
def unforked() -> Iterator[None]:
    """Run the block in one thread at a time; a fork by another thread waits until the block ends.

    This context manager is for imports: if a process forks in the middle of an import, the child finds the module's
    lock held by a thread that does not exist in the child, and waits forever. The block must be short and must not wait
    for anything.
    """
    if not _gated:
        _gated.append(True)
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(before=_whole.acquire, after_in_parent=_whole.release, after_in_child=_whole.release)
    with _whole:
        yield
