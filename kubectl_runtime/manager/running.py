"""`RunningManager`: a running manager; a `Lifecycle` with servers, several members and an election.

    phase      what happens                                                next phase
    starting   servers start, one after the other                          standing by
    standing   controllers and functions that need no leadership start;    leading; without an election at once
    by         controllers that need it only fill their stores; the
               process stands for election
    leading    controllers that need the leadership begin their runs;      stopping
               functions that need it start
    stopping   all members begin to stop at the same time, then:           stopped
      work       runs and functions that need the Lease end; then the
                 Lease is released
      rest       the other members end and pending Events are sent; the
                 shards are given up; then the servers stop in reverse
                 order

The manager stops after `stop()`, a signal (with `run`), the first failure of a member, or the loss of the Lease.
Stopping takes `grace` seconds at most. Threads that still run after that are returned, and logged with their stacks.
The Lease is renewed until the work that needs it has ended. When the Lease is lost, `ctx.stop` is set at once, and runs
have only 2 s to end.

`Candidacy` lets a manager take part in the election. Without an election it reports the leadership as soon as it
starts. At the end it releases the Lease, unless work that needs the Lease still runs.
"""
from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial

from kubectl_runtime.client.api.client import Client
from kubectl_runtime.core.base.errors import KubeError, RequestError
from kubectl_runtime.core.base.guard import described, guarded_logger
from kubectl_runtime.core.base.threads import SYSTEM_CLOCK, Duration, Thread, seconds
from kubectl_runtime.core.scope import StopToken
from kubectl_runtime.manager.elector import LeaderLock, NotLeaderError
from kubectl_runtime.manager.members import ABORT_GRACE, LeadershipLost, Member, ShardMembership
from kubectl_runtime.manager.serving import LEAST_SECONDS, Checks, Server, ServerGroup
from kubectl_runtime.manager.sharding import Sharding
from kubectl_runtime.runtime.controller.housekeeping import SyncTimeoutError
from kubectl_runtime.runtime.controller.plan import ControllerError
from kubectl_runtime.runtime.lifecycle.lifecycle import Lifecycle, Phase, Shutdown, StillRunning, join
from kubectl_runtime.runtime.observe.health import HealthServer

log = guarded_logger(__name__)

LOOK = 0.05
"""Seconds between two checks of `wait_until_ready`."""


class Candidacy:
    """Stands for election on behalf of a manager and reports the outcome. Thread-safe. The callbacks may be called in
    any thread: `lead` once when this process leads, `failed` if the lock fails before this process leads, and `lost` if
    the leadership is lost afterwards."""

    def __init__(self, lock: LeaderLock | None, stop: StopToken, *, lead: Callable[[], None],
                 lost: Callable[[str], None], failed: Callable[[BaseException], None]) -> None:
        """When `stop` is set, the wait for the leadership ends. `lost` is called with the reason."""
        self._lock = lock
        self._stop = stop
        self._lead = lead
        self._lost = lost
        self._failed = failed
        self._leaving = False
        self._thread = Thread(target=self._await_leadership, name="manager election", daemon=True)

    @property
    def is_leader(self) -> bool:
        """Whether this process leads; True without an election."""
        return self._lock is None or self._lock.is_leader

    @property
    def trouble(self) -> str:
        """Why this process cannot stand for election; empty when it can, and without an election."""
        return "" if self._lock is None else self._lock.trouble

    def start(self) -> None:
        """Stand for election, in a thread of its own. Does not block."""
        if self._lock is None:
            self._lead()
        else:
            self._lock.start()
            self._thread.start()

    def end(self, still_working: set[str], time_left: float) -> None:
        """End the candidacy, and release the Lease if no work needs it any more. Blocks for about `time_left` seconds
        at most."""
        if self._lock is None:
            return
        if still_working:
            log.warning("the Lease %s/%s is not released, and expires instead: %s still runs", self._lock.namespace,
                        self._lock.election.name, ", ".join(sorted(still_working)))
        self._leaving = True
        within = min(max(LEAST_SECONDS, time_left), seconds(self._lock.election.renew_deadline))
        self._lock.close(release=False if still_working else None, timeout=within)
        join([self._thread], LEAST_SECONDS)

    def owns(self, thread: threading.Thread) -> bool:
        """Whether `thread` belongs to the election, such as the thread that calls its callbacks."""
        return thread is self._thread or (self._lock is not None and self._lock.owns(thread))

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


class RunningManager(Lifecycle):
    """A running manager, made by `Manager.start`; leaving its `with` block stops it. Thread-safe.

    >>> with Manager(client, serve="127.0.0.1:0").start() as running:
    ...     running.wait_until_ready(timeout=10)
    ...     running.port > 0
    True
    """

    def __init__(self, client: Client, lock: LeaderLock | None, sharding: Sharding | None, grace: float,
                 checks: Checks) -> None:
        super().__init__("manager", Shutdown(client.clock), log, grace, prefix="manager: ")
        self._checks = checks
        self._change = threading.Lock()
        self._leads = False
        self._members: list[Member] = []
        self._servers = ServerGroup(self._log)
        self._own: HealthServer | None = None
        self._candidacy = Candidacy(lock, self._shutdown.draining, lead=self._lead, lost=self._lost,
                                    failed=partial(self.fail, "the leader election"))
        self.part = ShardMembership(client, sharding, grace, failed=partial(self.fail, "the sharding"))

    @property
    def is_ready(self) -> bool:
        """Whether every store is complete, every check passes, and no stop has begun; a standby can be ready."""
        return not self.why_not_ready

    @property
    def why_not_ready(self) -> str:
        """The reason why the manager is not ready, as text; empty when it is ready. Blocks as the added checks do."""
        if reason := self.why_not_serving:
            return reason
        with self._change:
            members = list(self._members)
        reasons = [reason for reason in (self._candidacy.trouble, self.part.trouble) if reason]
        reasons += [reason for member in members if (reason := member.why_not_ready())]
        reasons += [f"check {name}: {reason}" for name, reason in self.failing_checks().items()]
        return "; ".join(reasons)

    def wait_until_ready(self, timeout: Duration | None = None) -> None:
        """Block until the manager is ready; a standby can be ready. Raises SyncTimeoutError, with the reason, after
        `timeout` seconds of real time, and ControllerError if the manager ends before it is ready."""
        pause = StopToken()  # never set
        until = None if timeout is None else SYSTEM_CLOCK.monotonic() + seconds(timeout)
        while reason := self.why_not_ready:
            if self._is_elsewhere or self._shutdown.draining.is_set():
                raise ControllerError(f"the manager ended ({reason}) before it was ready") from self.error
            if until is not None and SYSTEM_CLOCK.monotonic() >= until:
                raise SyncTimeoutError(f"the manager is not ready after {seconds(timeout or 0):g} s: {reason}")
            pause.wait(LOOK)

    @property
    def why_not_serving(self) -> str:
        """Why the manager itself is not ready, for example because it is starting or stopping; empty when it is ready.
        Does not block."""
        if self.phase in (Phase.STANDING_BY, Phase.LEADING):
            return ""
        return f"the manager is {self.phase}" + (f": {self.reason}" if self.reason else "")

    def failing_checks(self) -> dict[str, str]:
        """The failing checks' names, each with the reason. Blocks as the checks do."""
        return self._checks.failing()

    @property
    def phase(self) -> Phase:
        """The current phase."""
        phase = super().phase
        if phase is not Phase.RUNNING:
            return phase
        return Phase.LEADING if self._leads else Phase.STANDING_BY

    @property
    def is_leader(self) -> bool:
        """Whether work that needs the leadership may run now. Without an election it is True while the manager runs."""
        return self.phase is Phase.LEADING and self._candidacy.is_leader

    @property
    def shards(self) -> frozenset[int]:
        """The shards whose objects this replica reconciles now, counted from 0; empty without a sharding."""
        return self.part.shards

    @property
    def port(self) -> int | None:
        """The port of `/healthz`, `/readyz` and `/metrics`, also if `serve` asks for port 0; None without a server."""
        return None if self._own is None else self._own.port

    def launch(self, own: HealthServer | None, servers: Sequence[Server], members: Sequence[Member], *,
               foreground: bool) -> None:
        """Start `own`, the server for health and metrics, then `servers`, then the members. `foreground`: whether the
        caller then waits in `serve`.

        Blocks until the servers listen. If a server raises, stops the servers started before and raises that error.
        """
        if foreground and threading.current_thread() is threading.main_thread():
            self._signals.install()
        try:
            self._own = own
            self._servers.start([*(() if own is None else (own,)), *servers])
        except BaseException:
            self._signals.close()
            raise
        self._launch(partial(self._start, members))

    def _start(self, members: Sequence[Member]) -> None:
        for member in members:
            if self._admitted(member):  # false after an earlier member has failed and stopped the manager
                self._begin(member)
        self._candidacy.start()
        self.part.start()

    def add(self, member: Member) -> None:
        """Start another member. Raises RequestError when the stop has begun."""
        if self._is_elsewhere or not self._admitted(member):
            raise RequestError(f"{member.name} cannot be added: the manager is {self.phase}")
        self._begin(member)

    def remove(self, member: Member, within: float) -> list[StillRunning]:
        """Stop only `member`; returns the runs and threads that have not ended after `within` seconds. A call from one
        of the member's threads only begins the stop."""
        with self._change:
            if member in self._members:
                self._members.remove(member)
        member.begin_stop("it was removed from its manager", within)
        return [] if member.owns(threading.current_thread()) else member.finish(within)

    def _admitted(self, member: Member) -> bool:
        with self._change:
            admitted = not self._shutdown.draining.is_set()
            if admitted:
                self._members.append(member)
            return admitted

    def _begin(self, member: Member) -> None:
        # If a stop has begun, the member's stop has begun too, so the member ends right after its start.
        member.start()
        if self.phase is Phase.LEADING:
            member.elected()

    def _lead(self) -> None:
        with self._change:
            if self.phase is not Phase.STANDING_BY:
                return
            self._leads = True
            members = list(self._members)
        for member in members:
            member.elected()

    def _lost(self, reason: str) -> None:
        self.fail("the leader election", LeadershipLost(reason), min(ABORT_GRACE, self._grace))
        for member in list(self._members):
            if member.needs_leader:
                member.abort()

    def stop(self, timeout: Duration | None = None) -> list[StillRunning]:
        """Stop the manager; returns the threads that still run after `timeout` seconds (default: its `grace`).

        Blocks until every thread has ended or the time is over. Later calls return the same list. A call from a thread
        that the stop waits for (a run, a runnable, a callback of the election, a check, a webhook) only begins the
        stop, since a thread cannot wait for itself. Does nothing in a forked child process.
        """
        return self.still_running if self._stop(self._grace if timeout is None else seconds(timeout)) else []

    def owns(self, thread: threading.Thread) -> bool:
        """Whether the stop waits for `thread`, so that the thread cannot wait for the stop."""
        return any(owns(thread) for owns in (super().owns, self._candidacy.owns, self.part.owns, self._checks.owns,
                                             self._servers.owns, *(member.owns for member in list(self._members))))

    def begin_stop(self, reason: str, grace: float) -> None:
        """Begin to stop; the stop may take `grace` seconds. A later call may shorten the time, not lengthen it. Does
        not block."""
        super().begin_stop(reason, grace)
        self._stop_members()  # again, since the time may be shorter now

    def abandon(self, heed: float = 0.0) -> None:
        """Stop running work at once, and stop waiting for it. Does not block."""
        super().abandon(heed)
        for member in list(self._members):
            member.abort()

    # --- the hooks of the engine ---

    def _begin_ending(self) -> None:
        self._stop_members()
        super()._begin_ending()

    def _stop_members(self) -> None:
        with self._change:
            members = list(self._members)
        left = self._shutdown.time_left()
        for member in members:
            member.begin_stop(self.reason, left)
        self.part.quit(left)

    def _log_failure(self, what: str, error: BaseException, *, is_first: bool) -> None:
        if is_first:
            log.critical("%s failed; the manager ends: %s", what, described(error),
                         exc_info=None if isinstance(error, KubeError) else error)
        else:
            log.error("%s also failed: %s", what, described(error))

    def _end_work(self) -> None:
        # Release the Lease as early as possible, since other candidates wait for it: it is needed only until the runs
        # have ended.
        needing = [member for member in list(self._members) if member.needs_leader]
        working = {member.name for member in needing if not member.finish_work(self._shutdown.time_left())}
        self._candidacy.end(working, self._shutdown.time_left())

    def _end_rest(self) -> list[StillRunning]:
        left = [one for member in list(self._members) for one in member.finish(self._shutdown.time_left())]
        self.part.end(self._shutdown.time_left())
        self._servers.stop(self._shutdown.time_left)
        return left
