"""`Shutdown`: the tokens by which a controller ends, and how a grace period is divided.

    running    -> draining   a stop was asked for, a signal came, or the library failed: no new runs, watches close
    draining   -> aborted    the grace period nears its end: runs in progress are told to stop; reads and waits end
    aborted    -> cut        half of what is left has passed: their writes end too
    cut        nothing more; a run that still does not return is reported as stuck

`draining` is what the library's own threads watch. `aborted` is what a reconciler sees as `ctx.stop`, so that a run
which only needs a moment more is left alone. The last tenth of the grace period, at most 2 s, is the time to heed
`aborted`. A write that a run has begun by then gets half of that to be answered, so that the stop itself breaks none.
"""
from __future__ import annotations

import sys
import threading
import traceback

from kubectl_runtime.core.base.clock import Clock
from kubectl_runtime.core.base.stop import StopToken

DEFAULT_GRACE = 25.0
"""Seconds; Kubernetes gives a Pod 30 between SIGTERM and SIGKILL, so this leaves it 5 to end the process."""

ABORT_SHARE, ABORT_MOST = 0.1, 2.0


class Shutdown:
    """Three tokens and the times between them. Safe to use from any thread."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.draining = StopToken(clock=clock)
        self.aborted = StopToken(clock=clock)
        self.cut = StopToken(clock=clock)
        self._lock = threading.Lock()
        self.deadline: float | None = None
        """When runs are told to stop, on the monotonic clock; None before anybody has asked for a stop."""
        self.give_up_at: float | None = None
        """When runs that have not heeded it are given up."""

    def begin(self, reason: str, grace: float = DEFAULT_GRACE) -> None:
        """Drain: no new runs, and `grace` seconds from now those in progress are given up.

        A later call may shorten the time, not lengthen it.
        """
        give_up = self._clock.monotonic() + grace
        abort = give_up - min(grace * ABORT_SHARE, ABORT_MOST)
        with self._lock:
            self.give_up_at = give_up if self.give_up_at is None else min(self.give_up_at, give_up)
            self.deadline = abort if self.deadline is None else min(self.deadline, abort)
        self.draining.set(reason)

    @property
    def cut_at(self) -> float | None:
        """When writes of runs are given up."""
        deadline, give_up = self.deadline, self.give_up_at
        return None if deadline is None or give_up is None else (deadline + give_up) / 2

    def time_left(self) -> float:
        """Seconds until everything is given up; 0 when that has passed, and before the stop."""
        return max(0.0, (self.give_up_at or 0.0) - self._clock.monotonic())

    def abort(self, reason: str) -> None:
        """Tell runs in progress to stop now."""
        self.draining.set(reason)
        self.aborted.set(reason)


def stack_of(thread_id: int | None) -> str:
    """The stack of a thread as text; empty when it has ended. The current line of each frame, no values."""
    # Private by name only: this is the documented way to another thread's stack.
    frame = sys._current_frames().get(thread_id) if thread_id is not None else None
    return "".join(traceback.format_stack(frame)) if frame is not None else ""
