"""`RunningManager`: a manager with its servers, members and candidacy, from start to end.

    phase      what happens                                                then
    starting   servers start, one after the other; then controllers (their standing by, until elected or, without an
               stores fill) and what needs no leadership                   election, leading at once
    standing   the Lease is watched; held controllers only fill their      leading
    by         stores
    leading    held controllers begin their runs, and what needs the       stopping
               leadership starts
    stopping   every member is told at once; when the runs and functions   stopped
               that need the Lease have ended, it is released; then the
               rest of the members is waited for, such as events that are
               still to be sent; then the servers stop, the last one first

It stops after `stop()`, a signal (with `run`), the first failure of a member, or the loss of the Lease. Stopping takes
`grace` seconds at most; threads that still run then are returned, and logged with their stacks. The Lease is renewed
until the work has ended. When it is lost, runs are told at once to end (`ctx.stop`) and get only 2 s.

`Checks`: what a program adds to the question whether it is ready. `TimedCheck` says when one fails.

`Candidacy`: a manager's part in the leader election. Without an election it leads as soon as it starts.

    start()    -> standing for election; elected -> `lead` is called, once
    the lock   fails before that: `failed` is called; is lost after that: `lost` is called, and nothing is released
    end()      the Lease is given back, unless somebody still works under it
"""
from __future__ import annotations

import atexit
import threading
import time
from collections.abc import Callable, Sequence
from enum import StrEnum
from functools import partial
from signal import Signals
from types import TracebackType

from kubectl_runtime.client.api.client import Client
from kubectl_runtime.core.base.clock import MAIN_THREAD_WAIT, Duration, seconds
from kubectl_runtime.core.base.errors import RequestError
from kubectl_runtime.core.base.guard import guarded_logger
from kubectl_runtime.core.base.interpreter import Thread
from kubectl_runtime.core.base.stop import StopToken
from kubectl_runtime.manager.elector import LeaderLock, NotLeaderError
from kubectl_runtime.manager.members import (
    HEED,
    LEAST,
    LeadershipLost,
    ManagerEnd,
    Member,
    Partaking,
    Server,
    ServerGroup,
    StillRunning,
    finish_all,
    still_leading,
)
from kubectl_runtime.manager.sharding import Sharding
from kubectl_runtime.runtime.lifecycle.signals import ShutdownSignals
from kubectl_runtime.runtime.observe.health_checks import TIMEOUT, TimedCheck, answers
from kubectl_runtime.runtime.usercode import described

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


MANAGER = "manager"
CONTROLLER = "controller "
STORE = "store "
SERVERS = "servers"
ELECTION, SHARDING = "election", "sharding"
"""How the checks of the manager itself are called, or begin."""


class Checks:
    """Named checks. Safe to use from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._checks: dict[str, TimedCheck] = {}
        self._asked: list[threading.Thread] = []
        """The threads that are in one at this moment."""

    def add(self, name: str, check: Callable[[], object], timeout: Duration = TIMEOUT) -> None:
        """Add a check. Raises RequestError when the name is taken, is one of the manager's own, or cannot be the last
        part of a path, and for a timeout of 0 seconds or less."""
        if not name or "/" in name:
            raise RequestError(f"a check cannot be called {name!r}: the name is the last part of its path")
        if name in ("ping", MANAGER, SERVERS, ELECTION, SHARDING) or name.startswith((CONTROLLER, STORE)):
            raise RequestError(f"a check cannot be called {name!r}: the manager's own checks have such names; name it "
                               "after what it checks, such as 'database'")
        with self._lock:
            if name in self._checks:
                raise RequestError(f"there is a check called {name} already")
            self._checks = {**self._checks, name: TimedCheck(name, partial(self._ask, check), timeout)}

    def owns(self, thread: threading.Thread) -> bool:
        """Whether `thread` is in one of these checks. Takes no lock."""
        return thread in self._asked

    def _ask(self, check: Callable[[], object]) -> object:
        thread = threading.current_thread()
        self._asked.append(thread)
        try:
            return check()
        finally:
            self._asked.remove(thread)

    def all(self) -> dict[str, TimedCheck]:
        """Those that were added, by name, in this order."""
        return dict(self._checks)

    def failing(self) -> dict[str, str]:
        """Name and reason of each check that fails, in the order in which they were added. Blocks as they do."""
        return {name: reason for name, reason in answers(self._checks).items() if reason}


class Phase(StrEnum):
    """What a manager does, from its start to its end."""

    STARTING = "starting"
    STANDING_BY = "standing by"
    LEADING = "leading"
    STOPPING = "stopping"
    STOPPED = "stopped"


class RunningManager:
    """A manager that runs, made by `Manager.start`; leaving it as a context stops it. Safe to use from any thread."""

    def __init__(self, client: Client, lock: LeaderLock | None, sharding: Sharding | None, grace: float,
                 checks: Checks) -> None:
        self._grace = grace
        self._checks = checks
        self._change = threading.Lock()
        self._phase = Phase.STARTING
        self._members: list[Member] = []
        self._end = ManagerEnd(client.clock)
        self._servers = ServerGroup(self._end.words)
        self._candidacy = Candidacy(lock, self._end.token, lead=self._lead, lost=self._lost,
                                    failed=partial(self.fail, "the leader election"))
        self.part = Partaking(client, sharding, grace, failed=partial(self.fail, "the sharding"))
        self._signals = ShutdownSignals()
        self._threads: list[Thread] = []
        self._ended = threading.Event()
        self._supervisor: Thread | None = None
        self._ending = False
        self._left: list[StillRunning] = []

    @property
    def is_ready(self) -> bool:
        """Whether every store is complete, every check passes, and no stop has begun; one that stands by may be."""
        return not self.why_not_ready

    @property
    def why_not_ready(self) -> str:
        """What is missing, for people; empty when it is ready. Blocks as the checks that were added do."""
        if reason := self.why_not_serving:
            return reason
        with self._change:
            members = list(self._members)
        reasons = [reason for reason in (self._candidacy.trouble, self.part.trouble) if reason]
        reasons += [reason for member in members if (reason := member.why_not_ready())]
        reasons += [f"check {name}: {reason}" for name, reason in self.failing_checks().items()]
        return "; ".join(reasons)

    @property
    def why_not_serving(self) -> str:
        """What keeps the manager itself from being ready: it starts, or stops; else empty. Does not block."""
        if self.phase in (Phase.STANDING_BY, Phase.LEADING):
            return ""
        return f"the manager is {self.phase}" + (f": {self.reason}" if self.reason else "")

    def failing_checks(self) -> dict[str, str]:
        """Each check that was added and fails, and why. Blocks as they do."""
        return self._checks.failing()

    @property
    def error(self) -> BaseException | None:
        """The first failure, which ended it; None as long as there was none."""
        return self._end.error

    @property
    def phase(self) -> Phase:
        """What it does now."""
        return Phase.STOPPED if self._end.is_elsewhere else self._phase

    @property
    def is_leader(self) -> bool:
        """Whether what needs the leadership may work at this moment: always, without an election."""
        return self.phase is Phase.LEADING and self._candidacy.is_leader

    @property
    def shards(self) -> frozenset[int]:
        """The shards that this replica works for at this moment, counted from 0; none without a sharding."""
        return self.part.shards

    @property
    def reason(self) -> str:
        """Why the manager stops or has stopped; empty while it does not."""
        return self._end.token.reason

    def wait(self, timeout: Duration | None = None) -> bool:
        """Block until it begins to stop, for whatever reason, at most `timeout` seconds; whether it does."""
        return self._end.token.wait(None if timeout is None else seconds(timeout))

    def launch(self, servers: Sequence[Server], members: Sequence[Member], *, foreground: bool) -> None:
        """Start everything, servers first. `foreground`: the caller waits by `obey_signal`.

        Blocks until the servers listen. Raises what one of them raises, when what was started has stopped again.
        """
        self._end.is_awaited = True
        if foreground and threading.current_thread() is threading.main_thread():
            self._signals.install()
        try:
            self._servers.start(servers)
        except BaseException:
            self._signals.close()
            raise
        with self._change:
            self._phase = Phase.STANDING_BY
        try:
            self._supervisor = self._add_thread("manager", self._supervise)
            for member in members:
                if self._admitted(member):  # one before it may have failed already
                    self._begin(member)
            self._candidacy.start(self._add_thread)
            self.part.start()
        except BaseException:  # no memory, no more threads: what was started must not stay
            self._begin_stop("it could not be started", 0)
            self._await_end()
            raise
        atexit.register(self._at_exit)

    def add(self, member: Member) -> None:
        """Start `member`, too. Raises RequestError when the end has begun."""
        if self._end.is_elsewhere or not self._admitted(member):
            raise RequestError(f"{member.name} cannot be added: the manager is {self.phase}")
        self._begin(member)

    def _admitted(self, member: Member) -> bool:
        with self._change:
            admitted = self._phase not in (Phase.STOPPING, Phase.STOPPED)
            if admitted:
                self._members.append(member)
            return admitted

    def _begin(self, member: Member) -> None:
        # An end that begins here has set the member's token already: then it starts only to end.
        member.start()
        if self._phase is Phase.LEADING:
            member.elected()

    def _lead(self) -> None:
        with self._change:
            if self._phase is not Phase.STANDING_BY:
                return
            self._phase = Phase.LEADING
            members = list(self._members)
        for member in members:
            member.elected()

    def fail(self, what: str, error: BaseException, grace: float | None = None) -> None:
        """Something has ended by itself: end everything, within `grace` seconds (the manager's). Does not block."""
        self._end.failed(what, error)
        self._begin_stop(f"{what} failed: {described(error)}", self._grace if grace is None else grace)

    def stop(self, timeout: Duration | None = None) -> list[StillRunning]:
        """End the manager; what of it still runs after `timeout` seconds (its `grace` by default), by thread.

        Blocks until everything has ended or the time is over. Later calls return the same. From a thread that the end
        waits for (a run, a runnable, a callback of the election, a check) it only begins the stop, as no thread can
        wait for itself. Does nothing in the child of a fork.
        """
        if self._end.is_elsewhere:
            return []
        self._begin_stop("stop() was called", self._grace if timeout is None else seconds(timeout))
        return [] if self._owns(threading.current_thread()) else self._await_end()

    def _owns(self, thread: threading.Thread) -> bool:
        waited_for = [self._candidacy.owns, self.part.owns, self._checks.owns,
                      *(member.owns for member in list(self._members))]
        return thread in self._threads or any(owns(thread) for owns in waited_for)

    def obey_signal(self) -> int | None:
        """Block until a signal comes or the end begins, and begin the end; the signal's number, None without one."""
        number = self._signals.wait()
        if number is not None:
            self._begin_stop(Signals(number).name, self._grace)
            log.info("a second signal ends the process at once")
        return number

    @property
    def obeys_signals(self) -> bool:
        """Whether SIGINT and SIGTERM are this manager's now."""
        return self._signals.installed

    def abandon(self) -> None:
        """Tell everything to stop at once, and wait for nothing any more."""
        self._begin_stop("abandoned", 0)
        for member in list(self._members):
            member.abort()
        self._signals.close()
        atexit.unregister(self._at_exit)

    def raise_error(self) -> None:
        """Raise the first failure, if there was one."""
        if self.error is not None:
            raise self.error

    def __enter__(self) -> RunningManager:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        try:
            self.stop()
        except KeyboardInterrupt:  # the person does not want to wait
            self.abandon()
            raise
        if error is None:
            self.raise_error()

    def _lost(self, reason: str) -> None:
        self.fail("the leader election", LeadershipLost(reason), min(HEED, self._grace))
        for member in list(self._members):
            if member.needs_leader:
                member.abort()

    def _begin_stop(self, reason: str, grace: float) -> None:
        """Tell everybody. A later call may shorten the time, not lengthen it."""
        with self._change:
            if self._phase is not Phase.STOPPED:
                self._phase = Phase.STOPPING
            members = list(self._members)
        self._end.begin(reason, grace)
        for member in members:
            member.stop.set(reason)
        self.part.quit(self._end.time_left())
        self._signals.release()

    def _await_end(self) -> list[StillRunning]:
        if self._supervisor is None or not self._supervisor.is_alive():
            self._finish()
        # In pieces, so that a signal which comes just before the wait is seen.
        while not self._ended.wait(MAIN_THREAD_WAIT):
            pass
        return self._left

    def _finish(self) -> None:
        with self._change:
            mine, self._ending = not self._ending, True
            members = list(self._members)
        if mine:
            try:
                self._end_all(members)
            finally:
                self._ended.set()

    def _end_all(self, members: list[Member]) -> None:
        # Others wait for the Lease; what is left of a controller without its runs needs it no more.
        leading = still_leading(members, self._end)
        with self._end.words.taken_down():
            self._candidacy.end(leading, self._end.time_left())
        left = finish_all(members, self._end)
        with self._end.words.taken_down():
            self.part.end(self._end.time_left())
            self._servers.stop(self._end.time_left)
            log.info("manager: stopped%s", f"; still running: {len(left)}" if left else "")
        with self._change:
            self._left, self._phase = left, Phase.STOPPED
        self._end.words.finish(time.monotonic() + LEAST)
        self._signals.close()
        atexit.unregister(self._at_exit)
        for thread in {*self._threads} - {threading.current_thread()}:
            thread.join(LEAST)

    def _supervise(self) -> None:
        self._end.token.wait()
        self._finish()

    def _add_thread(self, name: str, body: Callable[[], None]) -> Thread:
        thread = Thread(target=body, name=name, daemon=True)
        self._threads.append(thread)
        thread.start()
        return thread

    def _at_exit(self) -> None:
        """The program ends and nobody called `stop`."""
        if not self._end.is_elsewhere:
            self._begin_stop("the program ends", self._grace)
            self._await_end()
