"""Periodic work of a dispatcher. `Housekeeping` calls checks; each returns the seconds until its next call.

`Resync` triggers every object at random intervals of 90 % to 110 % of the period, as in controller-runtime, so that
controllers that began together do not resync together.

`SyncGate`: nothing is reconciled before every store of a controller is complete, because a reconciler with an
incomplete store would create children that already exist. Every 30 s a warning names the incomplete stores. After the
timeout the gate raises SyncTimeoutError.

`RunTimeouts`: each run gets a stop token that is set at its `run_timeout` or by the shutdown; the library's calls in
the run's thread obey the token. Code that polls the token or waits on it notices the timeout by itself. The token may
also have callbacks, for example of a request in progress or of a wait for several tokens: at the timeout the dispatcher
calls `check`, which calls the callbacks. Without `run_timeout` there is no cost.

`BlockedLog` logs a warning when all workers have been occupied by the same runs for `AFTER` seconds while keys are due,
and again when that time has doubled. It logs at INFO when runs end again. Within `SILENCE` seconds after a warning,
another blockage is logged only if it lasts twice as long as the previous one. Blocked workers affect neither readiness
nor liveness: the blockage is over when one run ends, and a restart would begin the same calls again.

`OutageLog` logs when the retries of a controller are held back, and when its last failing object works again. An outage
begins when more than `MANY` objects fail; `RunLog` logs the beginning. An outage within `WITHIN` seconds after the last
one is not logged, so a flapping dependency costs at most two lines a minute.
"""
from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable, Iterable, Sequence

from kubectl_runtime.core.base.errors import KubeError
from kubectl_runtime.core.base.guard import GuardedLogger
from kubectl_runtime.core.base.threads import Clock
from kubectl_runtime.core.scope import RunScope, StopToken, time_left
from kubectl_runtime.runtime.lifecycle.lifecycle import Shutdown
from kubectl_runtime.runtime.logs import said
from kubectl_runtime.runtime.queue.runs import Outcome, Run
from kubectl_runtime.runtime.reconcile.invoker import SINGLY, WITHIN, readable


class Housekeeping:
    """The dispatcher's periodic tasks. For one thread at a time."""

    def __init__(self, *checks: Callable[[], float | None]) -> None:
        """`checks` are called in this order. Each returns the seconds until its next call, or None if it needs none."""
        self._checks = checks

    def __call__(self) -> float | None:
        """Call all checks. Returns the seconds until the next call, or None if none is needed.

        Raises SyncTimeoutError if the stores were not complete in time.
        """
        return min((wait for check in self._checks if (wait := check()) is not None), default=None)


WARN_EVERY = 30.0
"""Seconds between two warnings about incomplete stores."""


class SyncTimeoutError(KubeError, TimeoutError):
    """A controller's stores were not complete within its `sync_timeout`.

    >>> issubclass(SyncTimeoutError, KubeError)
    True
    """


class SyncGate:
    """Opens when every store of a controller is complete. Safe to use from any thread. `on_open` and `trouble_of` are
    called without a lock."""

    def __init__(self, names: Iterable[str], *, on_open: Callable[[], None], trouble_of: Callable[[str], str],
                 clock: Clock, logger: GuardedLogger, timeout: float | None = None, then: str = "reconciling") -> None:
        """`names`: the stores that must become complete. `trouble_of(name)`: the last error of that store, empty
        without one. `then`: the next step, for the log."""
        self._missing = dict.fromkeys(names)
        self._on_open = on_open
        self._trouble_of = trouble_of
        self._clock = clock
        self._logger = logger
        self._timeout = timeout
        self._then = then
        self._changed = threading.Condition()
        self._since = clock.monotonic()
        self._warn_at = self._since + WARN_EVERY
        self.is_open = False

    def arrived(self, name: str) -> None:
        """Record that the store `name` is complete."""
        with self._changed:
            self._missing.pop(name, None)
            if self._missing or self.is_open:
                return
            self.is_open = True
            self._changed.notify_all()
        self._logger.info("all stores are complete after %.1f s: %s", self._clock.monotonic() - self._since, self._then)
        self._on_open()

    def expect(self, name: str) -> None:
        """Add a store that must be complete, if the gate is not open yet."""
        with self._changed:
            if not self.is_open:
                self._missing[name] = None

    def wait(self, timeout: float | None, stop: StopToken) -> bool:
        """Block until the gate is open, `timeout` seconds have passed, or `stop` is set. Returns whether it is open."""
        deadline = None if timeout is None else self._clock.monotonic() + timeout
        forget = stop.on_set(self._wake)
        try:
            with self._changed:
                while not self.is_open and not stop.is_set():
                    left = time_left(None if deadline is None else deadline - self._clock.monotonic(), self._clock)
                    if left is not None and left <= 0:
                        break
                    self._clock.wait(self._changed, left)
                return self.is_open
        finally:
            forget()

    def missing(self) -> str:
        """The stores that are not complete, with their errors, as text."""
        return "; ".join(f"{name} ({trouble})" for name, trouble in self.troubles().items())

    def troubles(self) -> dict[str, str]:
        """The incomplete stores: by name, the last error or "no answer yet"."""
        with self._changed:
            names = list(self._missing)
        return {name: self._trouble_of(name) or "no answer yet" for name in names}

    def check(self) -> float | None:
        """Log a warning if one is due. Returns the seconds until the next check; None once the gate is open.

        Raises SyncTimeoutError when the sync timeout has passed.
        """
        now = self._clock.monotonic()
        if self.is_open:
            return None
        waited = now - self._since
        if self._timeout is not None and waited >= self._timeout:
            raise SyncTimeoutError(f"stores are not complete after {waited:.0f} s, so nothing is reconciled: "
                                   f"{self.missing()}")
        if now >= self._warn_at:
            self._warn_at = now + WARN_EVERY
            self._logger.warning("nothing is reconciled yet, after %.0f s: waiting for %s", waited, self.missing())
        next_check = self._warn_at if self._timeout is None else min(self._warn_at, self._since + self._timeout)
        return max(0.0, next_check - now)

    def _wake(self) -> None:
        with self._changed:
            self._changed.notify_all()


JITTER = 0.1


class Resync:
    """Triggers every stored object at intervals. For one thread at a time."""

    def __init__(self, period: float | None, trigger_all: Callable[[], None], clock: Clock, rng: random.Random) -> None:
        """`period` in seconds; None: never."""
        self._period = period
        self._trigger_all = trigger_all
        self._clock = clock
        self._rng = rng
        self._next = None if period is None else clock.monotonic() + self._draw(period)

    def check(self) -> float | None:
        """Trigger every object if a resync is due. Returns the seconds until the next check; None without a period."""
        if self._next is None or self._period is None:
            return None
        now = self._clock.monotonic()
        if now >= self._next:
            self._next = now + self._draw(self._period)
            self._trigger_all()
        return self._next - now

    def _draw(self, period: float) -> float:
        return period * self._rng.uniform(1 - JITTER, 1 + JITTER)


class RunStop(StopToken):
    """The stop token of a run: set when the shutdown's token is set, or when the run's time is over."""

    def __init__(self, aborted: StopToken, at: float, clock: Clock) -> None:
        super().__init__(clock=clock)
        self._aborted = aborted
        self.at = at

    @property
    def reason(self) -> str:
        """Why the token was set; empty if it is not set."""
        return self._aborted.reason or ("its time is up" if self._left() <= 0 else "")

    def is_set(self) -> bool:
        """Whether the run should end."""
        return self._aborted.is_set() or self._left() <= 0

    def set(self, reason: str = "") -> None:
        """Set the shutdown's token. `ctx.stop.set()` then has the same effect as in a run without `run_timeout`, where
        `ctx.stop` is the shutdown's token."""
        self._aborted.set(reason)

    def expire(self) -> None:
        """Call the callbacks of this token. Must be called when the run's time is up."""
        super().set("its time is up")

    def wait(self, timeout: float | None = None) -> bool:
        """Block until the run should end, or `timeout` seconds have passed. Returns whether the run should end."""
        left = max(0.0, self._left())
        return self._aborted.wait(left if timeout is None else min(timeout, left)) or self.is_set()

    def on_set(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback` when the run should end. Returns a function that removes the callback. The callback may be
        called twice: at the run's timeout and at the shutdown."""
        if self._left() <= 0:
            self.expire()
        forget_time, forget_shutdown = super().on_set(callback), self._aborted.on_set(callback)

        def forget() -> None:
            forget_time()
            forget_shutdown()

        return forget

    def _left(self) -> float:
        return self.at - self._clock.monotonic()


class RunTimeouts:
    """Ends the runs of one controller that take longer than `run_timeout`. Safe to use from any thread."""

    def __init__(self, limit: float | None, shutdown: Shutdown, clock: Clock, wake: Callable[[], None]) -> None:
        """`limit`: the maximum seconds of a run; None: no limit. `wake` makes `check` run soon; it must not block."""
        self._limit = limit
        self._shutdown = shutdown
        self._clock = clock
        self._wake = wake
        self._lock = threading.Lock()
        self._stops: dict[int, RunStop] = {}

    def begin(self, run: Run, scope: RunScope) -> bool:
        """Start the timeout of `run`, which begins in this thread; the run's calls obey the timeout. Like
        `RunPart.begin`."""
        if self._limit is None:
            return True
        run.stop = scope.stop = stop = RunStop(self._shutdown.aborted, run.started + self._limit, self._clock)
        with self._lock:
            first = not self._stops
            self._stops[id(run)] = stop
        if first:
            self._wake()
        return True

    def end(self, run: Run, outcome: Outcome) -> None:  # noqa: ARG002
        """`run` has ended. Like `RunPart.end`."""
        if self._limit is not None:
            with self._lock:
                self._stops.pop(id(run), None)

    def check(self) -> float | None:
        """Set the tokens whose time is up. Returns the seconds until the next timeout; None if no run has one."""
        if not self._stops:
            return None
        now = self._clock.monotonic()
        with self._lock:
            over = [number for number, stop in self._stops.items() if stop.at <= now]
            expired = [self._stops.pop(number) for number in over]
            wait = min((stop.at - now for stop in self._stops.values()), default=None)
        for stop in expired:
            stop.expire()
        return wait

    def see_through(self) -> None:
        """During a drain, continue to call `check` until every run has ended or reached its timeout."""
        while (wait := self.check()) is not None and not self._shutdown.aborted.wait(wait):
            pass


AFTER = 60.0
"""Seconds without an ended run before `BlockedLog` warns."""

SILENCE = 3600.0
"""Seconds after a warning until `AFTER` applies again."""

LOOK_EVERY = 1.0
"""Seconds between two checks while all workers are blocked or objects fail, so that the end is logged soon."""

IDLE_LOOK = 10.0
"""Seconds between two checks of old runs while no key waits for a worker."""

NAMED = 3

Held = tuple[Sequence[Run], int]
"""The runs that occupy all workers, in the order in which they began, and the number of due keys."""


class BlockedLog:
    """Logs when all workers are blocked by runs that do not end, and when runs end again. For one thread at a time."""

    def __init__(self, logger: GuardedLogger, clock: Clock, held: Callable[[], Held | None],
                 run_timeout: float | None) -> None:
        """`held()` returns None while a worker is free. `run_timeout`: the controller's run timeout."""
        self._logger = logger
        self._clock = clock
        self._held = held
        self._remedy = "Give the calls that the runs wait for a timeout, or set .run_timeout(seconds)" \
            if run_timeout is None else \
            f"They exceed the run timeout of {run_timeout:g} s: give the calls that the runs wait for a timeout, or " \
            "check ctx.stop in the reconciler"
        self._limit = AFTER
        self._warned_at = float("-inf")
        self._since: float | None = None
        """When the workers began the runs of the last warning; None if runs have ended since that warning."""

    def check(self) -> float | None:
        """Log what has changed. Returns the seconds until the next check; None while a worker is free."""
        held = self._held()
        now = self._clock.monotonic()
        if held is None or not held[0]:
            self._ended(now)
            return None if held is None else IDLE_LOOK
        runs, due = held
        since = max(run.started for run in runs)
        if self._since is not None and since > self._since:
            self._ended(now)
        if now - self._warned_at >= SILENCE:
            self._limit = AFTER
        left = since + self._limit - now
        if left <= 0 and due:
            self._warn(runs, due, now, since)
        if self._since is not None:
            return LOOK_EVERY
        return left if left > 0 else IDLE_LOOK

    def _warn(self, runs: Sequence[Run], due: int, now: float, since: float) -> None:
        longest = ", ".join(f"{said(run.request.ref)} for {readable(now - run.started)}" for run in runs[:NAMED])
        more = f" and {len(runs) - NAMED} more" if len(runs) > NAMED else ""
        keys = "1 key waits" if due == 1 else f"{due} keys wait"
        workers = "the only worker has been at the same run" if len(runs) == 1 else \
            f"all {len(runs)} workers have been at the same runs"
        self._logger.warning("no run ends: %s for %s, and %s. The longest runs: %s%s. %s; "
                             "Controller(concurrency=…) allows more runs at once", workers, readable(now - since),
                             keys, longest, more, self._remedy)
        self._warned_at, self._since, self._limit = now, since, 2 * self._limit

    def _ended(self, now: float) -> None:
        if self._since is not None:
            self._logger.info("runs end again: none had ended for %s", readable(now - self._since))
            self._since = None


MANY = SINGLY
"""If more objects than this fail, it is an outage; up to this many, `RunLog` names them one by one."""

class OutageLog:
    """Logs when retries are held back because many objects fail, and when no object fails any more. For one thread at a
    time."""

    def __init__(self, logger: GuardedLogger, clock: Clock, failing: Callable[[], tuple[int, int]],
                 rate: float | None) -> None:
        """`failing()` returns the number of objects whose last run failed, and the number of retries that the rate
        limit holds back. `rate`: the retries per second that the limit allows; None without a limit."""
        self._logger = logger
        self._clock = clock
        self._failing = failing
        self._rate = rate
        self._since: float | None = None
        self._most = 0
        self._limited = False
        self._quiet_until = float("-inf")

    def check(self) -> float | None:
        """Log what has changed. Returns the seconds until the next check; None without an outage."""
        failing, held_back = self._failing()
        now = self._clock.monotonic()
        if self._since is None:
            if failing <= MANY:
                return None
            self._since, self._most, self._limited = now, 0, False
        self._most = max(self._most, failing)
        quiet = now < self._quiet_until
        if not failing:
            if not quiet:
                self._quiet_until = now + WITHIN
                self._say("no object fails any more; the outage lasted %s, with up to %d failing objects at once",
                          readable(now - self._since), self._most)
            self._since = None
            return None
        if held_back and not self._limited and not quiet:
            self._limited = True
            self._say("retries are held back: %d objects fail, and %d of them are due; %g retries a second begin, "
                      "more when they succeed", failing, held_back, self._rate)
        return LOOK_EVERY

    def _say(self, message: str, *args: object) -> None:
        if self._logger.isEnabledFor(logging.INFO):
            self._logger.info(message, *args)
