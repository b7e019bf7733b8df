"""`Shutdown`: the two tokens by which a controller ends, and how a grace period is divided.

    running    -> draining   a stop was asked for, a signal came, or the library failed: no new runs, watches close
    draining   -> aborted    the grace period nears its end, or a second signal came: runs in progress are told to stop
    aborted    nothing more; a run that still does not return is reported as stuck

`draining` is what the library's own threads watch. `aborted` is what a reconciler sees as `ctx.stop`, so that a run which only needs
a moment more is left alone. The last tenth of the grace period, at most 2 s, is the time to heed `aborted`.
"""
from __future__ import annotations

import sys
import traceback
from dataclasses import dataclass

from kubectl_runtime.core.clock import Clock
from kubectl_runtime.core.stop import StopToken

DEFAULT_GRACE = 30.0
"""Seconds; Kubernetes' own default between SIGTERM and SIGKILL."""

ABORT_SHARE, ABORT_MOST = 0.1, 2.0


class Shutdown:
    """Two tokens and the time between them. Safe to use from any thread."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.draining = StopToken(clock=clock)
        self.aborted = StopToken(clock=clock)
        self.deadline: float | None = None
        """When runs are told to stop, on the monotonic clock; None before anybody has asked for a stop."""

    def begin(self, reason: str, grace: float = DEFAULT_GRACE) -> float:
        """Drain. `grace` seconds from now runs in progress are given up, and told to stop a little before.

        Returns the time at which they are given up. A later call may shorten the time, not lengthen it.
        """
        now = self._clock.monotonic()
        abort_at = now + grace - min(grace * ABORT_SHARE, ABORT_MOST)
        self.deadline = abort_at if self.deadline is None else min(self.deadline, abort_at)
        self.draining.set(reason)
        return now + grace

    def abort(self, reason: str) -> None:
        """Tell runs in progress to stop now."""
        self.draining.set(reason)
        self.aborted.set(reason)


@dataclass(frozen=True, slots=True)
class Stuck:
    """Something that did not end in time: a reconciler, or other user code that a thread of the library runs."""

    what: str
    """The key, or what the thread does."""
    thread: str
    seconds: float | None
    """How long it has been running, where that is known."""
    stack: str
    """Where it is, as a traceback."""

    def __str__(self) -> str:
        return self.what


def stack_of(thread_id: int | None) -> str:
    """The stack of a thread as text; empty when it has ended. The current line of each frame, no values."""
    frame = sys._current_frames().get(thread_id) if thread_id is not None else None
    return "".join(traceback.format_stack(frame)) if frame is not None else ""
