"""`ManagerView`: a manager as its server shows it, at `/readyz` and on the status page."""
from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial

from kubectl_runtime.runtime.manager.elector import LeaderLock
from kubectl_runtime.runtime.manager.given_checks import CONTROLLER, ELECTION, MANAGER, SERVERS, SHARDING, Checks
from kubectl_runtime.runtime.manager.manager_running import Phase, RunningManager
from kubectl_runtime.runtime.manager.members import ControllerMember, Member
from kubectl_runtime.runtime.manager.servers import Server, expect_ready
from kubectl_runtime.runtime.observe.debug_snapshot import Inspected
from kubectl_runtime.runtime.observe.debug_state import ManagerState
from kubectl_runtime.runtime.observe.health_checks import Check, OwnCheck, TimedCheck, store_checks


class ManagerView:
    """A manager as its server shows it. Safe to ask from any thread; takes no lock but for the list of members."""

    def __init__(self, running: RunningManager, lock: LeaderLock | None, members: Callable[[], Iterable[Member]], *,
                 sharded: bool, given: Checks, servers: Sequence[Server]) -> None:
        self._running = running
        self._lock = lock
        self._members = members
        self._sharded = sharded
        self._given = given
        self._servers = ({} if not any(hasattr(one, "why_not_ready") for one in servers)
                         else {SERVERS: TimedCheck(SERVERS, partial(expect_ready, servers))})

    def ready_checks(self) -> dict[str, Check]:
        """What makes it ready at this moment, by name: itself, each controller and store, and what the program added.

            manager    servers    election    sharding    controller widget    store pods    database

        `servers` is about the servers alone, for a Pod that serves a webhook which its own stores need.
        Does not block; the program's own checks and servers may, when they are asked."""
        running = self._running
        members = [*self._members()]
        controllers = [member.running for member in members
                       if isinstance(member, ControllerMember) and member.running is not None]
        found: dict[str, Check] = {MANAGER: OwnCheck(lambda: running.why_not_serving), **self._servers}
        if (lock := self._lock) is not None:
            found[ELECTION] = OwnCheck(lambda: lock.trouble)
        if self._sharded:
            found[SHARDING] = OwnCheck(lambda: running.part.trouble)
        found |= {f"{CONTROLLER}{member.name}".replace("/", "-"): OwnCheck(member.why_not_working) for member in members
                  if isinstance(member, ControllerMember)}
        return {**found, **store_checks(controllers), **self._given.all()}

    def controllers(self) -> Sequence[Inspected]:
        """The controllers that were started, in the order they were added."""
        return [member.running for member in self._members()
                if isinstance(member, ControllerMember) and member.running is not None]

    def manager(self) -> ManagerState:
        """How the manager is, without its checks: those are the program's own, and may block."""
        running, lock = self._running, self._lock
        phase = "running" if lock is None and running.phase is Phase.LEADING else str(running.phase)
        return ManagerState(phase=phase, reason=running.reason,
                            leader=None if lock is None else running.is_leader,
                            lease="" if lock is None else f"{lock.namespace}/{lock.election.name}",
                            shards=sorted(running.shards) if self._sharded else None)
