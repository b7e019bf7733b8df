"""`RunTimeouts`: each run of a controller gets a stop token that is set at its `run_timeout`, or with the shutdown.

    begin(run, scope)    its token; the calls that the library makes in this thread obey it as well
    check()              sets the tokens whose time has come; the seconds until the next one
    end(run, outcome)    its time does not count any more

A token tells the time by itself to whoever looks at it or waits for it. `check` is for the others, who are called
back: a request that waits for its answer, a wait for several tokens. It belongs to the dispatcher, which is woken for
it when a run begins while none is in progress. Where there is no `run_timeout`, all of this costs nothing.

`BlockedLog`: says when all workers of a controller are held by runs that do not end, while keys wait for one.

    all workers have been at the same runs for    said
    `AFTER` seconds, and keys are due             a warning: the longest runs, how many keys wait, and what helps
    twice as long as was told last                the same again
    a run has ended since                         info: that runs end again, and for how long none did

Runs that take so long by nature, one after the other, are told once: within `SILENCE` seconds only what lasts twice as
long as was told before is told.

A log line, and no reason to be not ready or not alive: one run that ends is all it takes, so readiness would come and
go with the load, and a restart begins the same calls again. The status page names the longest runs anyway. The
dispatcher looks. A run costs nothing, and a controller with a free worker one comparison a turn. Pure but for the log.
"""
from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from kubectl_runtime.core.base.clock import Clock
from kubectl_runtime.core.base.guard import GuardedLogger
from kubectl_runtime.core.base.stop import StopToken
from kubectl_runtime.core.scope import RunScope
from kubectl_runtime.runtime.lifecycle.shutdown import Shutdown
from kubectl_runtime.runtime.logs import said
from kubectl_runtime.runtime.queue.runs import Outcome, Run
from kubectl_runtime.runtime.reconcile.run_log import readable


class RunStop(StopToken):
    """Set when the shutdown's token is, or when a time has come; then it stays set."""

    def __init__(self, aborted: StopToken, at: float, clock: Clock) -> None:
        super().__init__(clock=clock)
        self._aborted = aborted
        self.at = at

    @property
    def reason(self) -> str:
        """Why it was set; empty before."""
        return self._aborted.reason or ("its time is up" if self._left() <= 0 else "")

    def is_set(self) -> bool:
        """Whether the run should end."""
        return self._aborted.is_set() or self._left() <= 0

    def set(self, reason: str = "") -> None:
        """Set the shutdown's own token, which `ctx.stop` is without a `run_timeout`."""
        self._aborted.set(reason)

    def expire(self) -> None:
        """Call back those who wait for it. To be called when its time has come."""
        super().set("its time is up")

    def wait(self, timeout: float | None = None) -> bool:
        """Block until the run should end, or `timeout` seconds have passed; whether it should."""
        left = max(0.0, self._left())
        return self._aborted.wait(left if timeout is None else min(timeout, left)) or self.is_set()

    def on_set(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback` when the run should end; returns a function that takes it back. It may be called
        twice, at its time and at the shutdown."""
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
        """`limit`: seconds that a run has; None: no limit. `wake` has `check` called soon; it must not block."""
        self._limit = limit
        self._shutdown = shutdown
        self._clock = clock
        self._wake = wake
        self._lock = threading.Lock()
        self._stops: dict[int, RunStop] = {}

    def begin(self, run: Run, scope: RunScope) -> bool:
        """`run` begins in this thread; its calls obey its end. As `RunPart.begin`."""
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
        """`run` has ended; as `RunPart.end`."""
        if self._limit is not None:
            with self._lock:
                self._stops.pop(id(run), None)

    def check(self) -> float | None:
        """Set the tokens whose time has come; the seconds until the next one's has, None when there is none."""
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
        """Go on with `check` for the runs that a drain waits for, until each has had its time or is told to stop."""
        while (wait := self.check()) is not None and not self._shutdown.aborted.wait(wait):
            pass


AFTER = 60.0
"""Seconds."""

SILENCE = 3600.0
"""Seconds after the last warning; then it begins with `AFTER` again."""

LOOK_EVERY = 1.0
"""Seconds between two looks while it stands, so that its end is told soon."""

IDLE_LOOK = 10.0
"""Seconds between two looks at runs that are old enough, while no key waits for them."""

NAMED = 3

Held = tuple[Sequence[Run], int]
"""The runs that hold all workers, in the order they began, and how many keys are due."""


class BlockedLog:
    """Says in the log that all workers are held by runs that do not end, and when it goes on. For one thread at a
    time."""

    def __init__(self, logger: GuardedLogger, clock: Clock, held: Callable[[], Held | None],
                 run_timeout: float | None) -> None:
        """`held()`: None while a worker is free. `run_timeout`: what the controller was given."""
        self._logger = logger
        self._clock = clock
        self._held = held
        self._remedy = "Give the calls they wait for a timeout, or the controller a Controller(run_timeout=…)" \
            if run_timeout is None else \
            f"They go on beyond run_timeout={run_timeout:g}: give the calls they wait for a timeout, or let them " \
            "look at ctx.stop"
        self._limit = AFTER
        self._told = float("-inf")
        self._since: float | None = None
        """Since when the workers have been at the runs that were told; None when there is nothing to tell an end of."""

    def check(self) -> float | None:
        """Look, and say what has changed. The seconds until it wants to look again; None while a worker is free."""
        held = self._held()
        now = self._clock.monotonic()
        if held is None or not held[0]:
            self._ended(now)
            return None if held is None else IDLE_LOOK
        runs, due = held
        since = max(run.started for run in runs)
        if self._since is not None and since > self._since:
            self._ended(now)
        if now - self._told >= SILENCE:
            self._limit = AFTER
        left = since + self._limit - now
        if left <= 0 and due:
            self._tell(runs, due, now, since)
        if self._since is not None:
            return LOOK_EVERY
        return left if left > 0 else IDLE_LOOK

    def _tell(self, runs: Sequence[Run], due: int, now: float, since: float) -> None:
        longest = ", ".join(f"{said(run.request.ref)} for {readable(now - run.started)}" for run in runs[:NAMED])
        more = f" and {len(runs) - NAMED} more" if len(runs) > NAMED else ""
        keys = "1 key waits" if due == 1 else f"{due} keys wait"
        workers = "the only worker has been at the same run" if len(runs) == 1 else \
            f"all {len(runs)} workers have been at the same runs"
        self._logger.warning("no run ends: %s for %s, and %s. The longest runs: %s%s. %s; "
                             "Controller(concurrency=…) allows more runs at once", workers, readable(now - since),
                             keys, longest, more, self._remedy)
        self._told, self._since, self._limit = now, since, 2 * self._limit

    def _ended(self, now: float) -> None:
        if self._since is not None:
            self._logger.info("runs end again: none had ended for %s", readable(now - self._since))
            self._since = None
