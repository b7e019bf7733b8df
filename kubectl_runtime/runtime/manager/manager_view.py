"""`ManagerView`: a manager as its status page shows it."""
from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from kubectl_runtime.runtime.manager.elector import LeaderLock
from kubectl_runtime.runtime.manager.manager_running import Phase, RunningManager
from kubectl_runtime.runtime.manager.members import ControllerMember, Member
from kubectl_runtime.runtime.observe.debug_snapshot import Inspected
from kubectl_runtime.runtime.observe.debug_state import ManagerState


class ManagerView:
    """Safe to ask from any thread; takes no lock but for the list of members."""

    def __init__(self, running: RunningManager, lock: LeaderLock | None, members: Callable[[], Iterable[Member]], *,
                 sharded: bool) -> None:
        self._running = running
        self._lock = lock
        self._members = members
        self._sharded = sharded

    def controllers(self) -> Sequence[Inspected]:
        """Those that were started, in the order they were added."""
        return [member.running for member in self._members()
                if isinstance(member, ControllerMember) and member.running is not None]

    def manager(self) -> ManagerState:
        """How it is, without its checks: those are the program's own, and may block."""
        running, lock = self._running, self._lock
        phase = "running" if lock is None and running.phase is Phase.LEADING else str(running.phase)
        return ManagerState(phase=phase, reason=running.reason,
                            leader=None if lock is None else running.is_leader,
                            lease="" if lock is None else f"{lock.namespace}/{lock.election.name}",
                            shards=sorted(running.shards) if self._sharded else None)
