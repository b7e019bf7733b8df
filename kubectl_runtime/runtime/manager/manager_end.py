"""`ManagerEnd`: the one end of a manager. Why, by when, and the failure that began it.

    begin(reason, grace)    the first sets the token and the deadline; a later one may shorten the time, not lengthen it
    failed(what, error)     the first is kept, to be raised; all are logged
"""
from __future__ import annotations

import threading

from kubectl_runtime.core.base.clock import Clock
from kubectl_runtime.core.base.errors import KubeError
from kubectl_runtime.core.base.stop import StopToken
from kubectl_runtime.core.interpreter.forks import renewed_in_children
from kubectl_runtime.runtime.controller.stopping.last_words import LastWords
from kubectl_runtime.runtime.usercode import described, guarded_logger

log = guarded_logger(__name__)


class LeadershipLost(KubeError):
    """This process led, and does so no more: its manager has ended. Start a new one, usually as a new process.

    >>> issubclass(LeadershipLost, KubeError)
    True
    """


class ManagerEnd:
    """Why and until when a manager ends. Safe to use from any thread. Times are seconds."""

    def __init__(self, clock: Clock) -> None:
        self.token = StopToken(clock=clock)
        self.words = LastWords(log, "manager last words")
        """What is logged at the end: a log handler that blocks must not keep the others."""
        self.error: BaseException | None = None
        self._clock = clock
        self._lock = threading.Lock()
        self._deadline: float | None = None
        self.is_awaited = False
        """The manager runs, and so it will have an end."""
        self.is_elsewhere = False
        """This is the child of a fork: the manager is its parent's, and nothing of it runs here."""
        renewed_in_children(self)

    def renew(self) -> None:
        """In the child of a fork: say so, to who asks. A manager that was not started can be started there."""
        if self.is_awaited:
            self._lock, self.is_elsewhere, self.token = threading.Lock(), True, StopToken(clock=self._clock)
            self.token.set("it runs in the process that this one was forked from")

    def begin(self, reason: str, grace: float) -> None:
        """Begin the end, which has `grace` seconds."""
        deadline = self._clock.monotonic() + grace
        with self._lock:
            first = self._deadline is None
            self._deadline = deadline if self._deadline is None else min(self._deadline, deadline)
        if first:
            self.words.info("manager: stopping: %s", reason)
        self.token.set(reason)

    def failed(self, what: str, error: BaseException) -> None:
        """Note a failure. Does not begin the end."""
        with self._lock:
            first = self.error is None
            if first:
                self.error = error
        with self.words.taken_down():
            if first:
                log.critical("%s failed; the manager ends: %s", what, described(error),
                             exc_info=None if isinstance(error, KubeError) else error)
            else:
                log.error("%s failed, too: %s", what, described(error))

    def time_left(self) -> float:
        """Until the deadline; 0 when it has passed, or the end has not begun."""
        return max(0.0, (self._deadline or 0.0) - self._clock.monotonic())
