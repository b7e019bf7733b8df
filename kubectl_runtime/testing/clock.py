"""`SimClock`: a clock that only a test moves. `SimExecutor`: runs the work of several threads in one thread, in an
order that a seed decides.

In a test with several threads, `SimClock().wait` blocks its thread, and `advance` wakes each waiter whose time has
come. Before it calls `advance`, a test calls `settle(n)`, which blocks (for a limited real time) until n threads wait
on the clock. Otherwise the time could advance before the thread that the test wants to wake has begun to wait.

In a test with one thread, `SimClock(self_advancing=True).wait` moves the time itself, since no other thread could end
the wait. A wait without a timeout would be a deadlock, so it raises RuntimeError.

`SimExecutor` runs iterators; each `yield` is a point at which threads could switch. `step` chooses an iterator by the
seed and runs it to its next `yield`. The pieces of several iterators therefore interleave as those of threads do, but
reproducibly.
"""
from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta

from kubectl_runtime.core.base.threads import Duration, seconds

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
"""The date at which simulated time begins."""
_DEPARTURE = 10.0
"""The maximum number of real seconds for which `advance` waits until woken threads have left."""


class SimClock:
    """A `Clock` whose time passes only when a test moves it. Safe to use from any thread."""

    def __init__(self, *, start: datetime = EPOCH, self_advancing: bool = False) -> None:
        """Time begins at `start`; `monotonic()` begins at 0."""
        self._start = start
        self._self_advancing = self_advancing
        self._elapsed = 0.0
        self._suspended = 0.0
        self._changed = threading.Condition()
        self._waiters: dict[object, tuple[threading.Condition, float]] = {}

    @property
    def self_advancing(self) -> bool:
        """Whether `wait` moves the time. If it does, only one thread may wait."""
        return self._self_advancing

    def monotonic(self) -> float:
        """Simulated seconds, without the time for which the machine was suspended."""
        return self._elapsed

    def boottime(self) -> float:
        """Simulated seconds, suspended time included."""
        return self._elapsed + self._suspended

    def now(self) -> datetime:
        """The simulated date and time, as an aware datetime in UTC."""
        return self._start + timedelta(seconds=self.boottime())

    def suspend(self, duration: Duration) -> None:
        """Simulate a suspended machine: `now` and `boottime` advance by `duration`; `monotonic` and the waiters'
        timeouts do not."""
        self._suspended += seconds(duration)

    def wait(self, condition: threading.Condition, timeout: float | None) -> bool:
        """Wait on `condition` until it is notified, or until the time has advanced by `timeout` seconds; returns False
        after a timeout. Raises RuntimeError if a self-advancing clock would wait forever."""
        if self._self_advancing:
            return self._skip(timeout)
        due = float("inf") if timeout is None else self._elapsed + timeout
        if due <= self._elapsed:
            return False
        key = object()
        with self._changed:
            self._waiters[key] = (condition, due)
            self._changed.notify_all()
        try:
            condition.wait()
        finally:
            with self._changed:
                del self._waiters[key]
                self._changed.notify_all()
        return self._elapsed < due

    def advance(self, duration: Duration) -> None:
        """Move time forward and wake each waiter at its own time, in order."""
        target = self._elapsed + seconds(duration)
        while True:
            with self._changed:
                due = min((when for _, when in self._waiters.values()), default=float("inf"))
                step = min(target, due)
                self._elapsed = max(self._elapsed, step)
                woken = [condition for condition, when in self._waiters.values() if when <= self._elapsed]
            for condition in woken:
                # Entering the condition also ensures that the waiter already waits: the waiter registered while it held
                # the condition.
                with condition:
                    condition.notify_all()
            if self._elapsed >= target:
                return
            self._await_departure(woken)

    def run_until(self, done: Callable[[], bool], *, step: Duration = 1.0, limit: Duration = 3600.0) -> None:
        """Advance by `step` until `done()` is true. Raises AssertionError after `limit` simulated seconds."""
        end = self._elapsed + seconds(limit)
        while not done():
            if self._elapsed >= end:
                raise AssertionError(f"not done after {seconds(limit):g} s of simulated time")
            self.advance(step)

    def settle(self, waiters: int = 1, *, within: float = 10.0) -> None:
        """Block until at least `waiters` threads wait on this clock. Raises AssertionError after `within` real
        seconds."""
        with self._changed:
            if not self._changed.wait_for(lambda: len(self._waiters) >= waiters, within):
                raise AssertionError(f"{len(self._waiters)} threads wait on the clock, not {waiters}")

    def _skip(self, timeout: float | None) -> bool:
        if timeout is None:
            raise RuntimeError("the simulation's only thread waits without a timeout, so it could never wake")
        self._elapsed += max(0.0, timeout)
        return False

    def _await_departure(self, woken: list[threading.Condition]) -> None:
        """Block until woken threads have left `wait` and released their conditions. Each thread then sees the time for
        which it waited, before time advances further. The wait is limited in real time, since the thread that moves the
        time may itself hold a condition."""
        gone = {id(condition) for condition in woken}
        with self._changed:
            deadline = self._elapsed
            self._changed.wait_for(lambda: not any(id(c) in gone and when <= deadline
                                                   for c, when in self._waiters.values()), _DEPARTURE)
        for condition in woken:
            with condition:  # can be entered only after the woken thread has released it
                pass


class SimExecutor:
    """Runs submitted iterators piece by piece when `step` is called. Only one thread may use it."""

    one_run = False

    def __init__(self, seed: int | random.Random = 0) -> None:
        """`seed`, a number or a random generator, decides the order."""
        self._random = seed if isinstance(seed, random.Random) else random.Random(seed)
        self._work: list[Iterator[None]] = []

    def __len__(self) -> int:
        """The number of unfinished iterators."""
        return len(self._work)

    def submit(self, work: Iterator[None]) -> None:
        """Queue the iterator `work`, which `step` runs piece by piece."""
        self._work.append(work)

    def step(self, choice: int | None = None) -> bool:
        """Run one piece of one iterator, chosen by the seed, or by `choice` if given. Returns False if no work is left.
        Raises what the iterator raises."""
        if not self._work:
            return False
        index = self._random.randrange(len(self._work)) if choice is None else choice % len(self._work)
        try:
            next(self._work[index])
        except BaseException as end:
            del self._work[index]
            if not isinstance(end, StopIteration):
                raise
        return True

    def run(self) -> None:
        """Step until there is no work left."""
        while self.step():
            pass
