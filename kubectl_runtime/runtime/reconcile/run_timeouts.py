"""`RunTimeouts`: each run of a controller gets a stop token that is set at its `run_timeout`, or with the shutdown.

    begin(run)   its token; the calls that the library makes in this thread obey it as well
    check()      sets the tokens whose time has come; the seconds until the next one
    end(run)     nobody waits for its time any more

A token tells the time by itself to whoever looks at it or waits for it. `check` is for the others, who are called
back: a request that waits for its answer, a wait for several tokens. It belongs to the dispatcher, which is woken for
it when a run begins while none is in progress. Where there is no `run_timeout`, all of this costs nothing.
"""
from __future__ import annotations

import threading
from collections.abc import Callable

from kubectl_runtime.core.base.clock import Clock
from kubectl_runtime.core.base.scope import CallScope, enter_scope, leave_scope
from kubectl_runtime.core.base.stop import StopToken
from kubectl_runtime.runtime.queue.runs import Outcome, Run
from kubectl_runtime.runtime.shutdown import Shutdown


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

    def begin(self, run: Run) -> CallScope:
        """`run` begins in this thread; what its calls obey."""
        if self._limit is None:
            return self._shutdown.calls
        run.stop = stop = RunStop(self._shutdown.aborted, run.started + self._limit, self._clock)
        with self._lock:
            first = not self._stops
            self._stops[id(run)] = stop
        if first:
            self._wake()
        return CallScope(stop, self._shutdown.cut)

    def end(self, run: Run) -> None:
        """`run` has ended."""
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

    def around(self, execute: Callable[[Run], Outcome]) -> Callable[[Run], Outcome]:
        """`execute`, in which the library's calls see when the run is to end."""
        if self._limit is None:
            scope = self._shutdown.calls

            def scoped(run: Run) -> Outcome:
                entered = enter_scope(scope)
                try:
                    return execute(run)
                finally:
                    leave_scope(entered)

            return scoped

        def ended(run: Run) -> Outcome:
            entered = enter_scope(self.begin(run))
            try:
                return execute(run)
            finally:
                leave_scope(entered)
                self.end(run)

        return ended
