"""`Candidacy`: a manager's part in the leader election. Without an election it leads as soon as it starts.

    start()    -> standing for election; elected -> `lead` is called, once
    the lock   fails before that: `failed` is called; is lost after that: `lost` is called, and nothing is released
    end()      the Lease is given back, unless somebody still works under it
"""
from __future__ import annotations

import threading
from collections.abc import Callable

from kubectl_runtime.core.base.clock import seconds
from kubectl_runtime.core.base.guarded_log import guarded_logger
from kubectl_runtime.core.base.stop import StopToken
from kubectl_runtime.runtime.manager.elected_client import NotLeaderError
from kubectl_runtime.runtime.manager.elector import LeaderLock
from kubectl_runtime.runtime.manager.servers import LEAST

log = guarded_logger(__name__)


class Candidacy:
    """A manager's part in the election: it stands for it, and tells of its outcome. Safe to use from any thread. The
    callbacks come in whatever thread finds out."""

    def __init__(self, lock: LeaderLock | None, stop: StopToken, *, lead: Callable[[], None],
                 lost: Callable[[str], None], failed: Callable[[BaseException], None]) -> None:
        """`stop` ends the wait for the leadership; `lost` is told why."""
        self._lock = lock
        self._stop = stop
        self._lead = lead
        self._lost = lost
        self._failed = failed
        self._leaving = False

    @property
    def is_leader(self) -> bool:
        """Whether the Lease is this process's; without an election always."""
        return self._lock is None or self._lock.is_leader

    @property
    def trouble(self) -> str:
        """Why this process cannot stand for election; empty when it can, and without an election."""
        return "" if self._lock is None else self._lock.trouble

    def start(self, add_thread: Callable[[str, Callable[[], None]], object]) -> None:
        """Stand for election, in a thread that `add_thread(name, body)` starts. Does not block."""
        if self._lock is None:
            self._lead()
        else:
            self._lock.start()
            add_thread("manager election", self._await_leadership)

    def end(self, still_working: set[str], time_left: float) -> None:
        """Give the Lease back, if nobody works under it any more. Blocks for at most about `time_left` seconds."""
        if self._lock is None:
            return
        if still_working:
            log.warning("the Lease %s/%s is not released, and expires instead: %s still runs", self._lock.namespace,
                        self._lock.election.name, ", ".join(sorted(still_working)))
        self._leaving = True
        within = min(max(LEAST, time_left), seconds(self._lock.election.renew_deadline))
        self._lock.close(release=False if still_working else None, timeout=within)

    def owns(self, thread: threading.Thread) -> bool:
        """Whether `thread` is one of the election's, which call its callbacks."""
        return self._lock is not None and self._lock.owns(thread)

    def _await_leadership(self) -> None:
        lock = self._lock
        assert lock is not None
        try:
            if not lock.wait(stop=self._stop):
                return
        except NotLeaderError as error:
            if not self._leaving:
                self._failed(error)
            return
        lost = lock.lost
        self._lead()
        lost.on_set(lambda: None if self._leaving else self._lost(lost.reason))
