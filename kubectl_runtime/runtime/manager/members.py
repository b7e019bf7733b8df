"""What a manager runs: controllers and plain functions, each with a life of its own below the manager's.

                start()                                 elected()                       when `stop` is set
    controller  its threads; its stores fill            its runs begin                  drains
    one that    likewise; then it works for the         nothing                         drains; its shards are given up
    shares      objects of this replica's shards
    runnable    its thread, if it needs no leadership   its thread, if it needs it      is told so by its token

Without an election `elected()` follows at once. A member that fails tells the manager, which ends everything; one that
just ends does not.
"""
from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol, TypeVar

from kubectl_runtime.core.base.clock import MAIN_THREAD_WAIT, Clock
from kubectl_runtime.core.base.guarded_log import guarded_logger
from kubectl_runtime.core.base.stop import StopToken
from kubectl_runtime.core.interpreter.contexts import Thread
from kubectl_runtime.runtime.controller.controller_error import ControllerError
from kubectl_runtime.runtime.controller.plan import Plan
from kubectl_runtime.runtime.controller.running import Running
from kubectl_runtime.runtime.manager.elector import LeaderLock
from kubectl_runtime.runtime.manager.manager_end import ManagerEnd
from kubectl_runtime.runtime.manager.partaking import Partaking
from kubectl_runtime.runtime.reconcile.reconciler import ErrorPolicy, ReconcileFunction
from kubectl_runtime.runtime.shutdown import stack_of

log = guarded_logger(__name__)

T = TypeVar("T")

HEED = 2.0
"""Seconds for runs that are told to end at once."""

OnFailure = Callable[[str, BaseException], None]
"""Told by a member, by its name, what ended it. Does not block."""


@dataclass(frozen=True, slots=True)
class StillRunning:
    """A thread that has not ended in time. `owner`: the controller or runnable; `what` it does: the reconciler of a
    key, or the thread's name; `stack`: where it was."""

    owner: str
    what: str
    stack: str


class Member(Protocol):
    """Something that a manager runs: a controller, or a function. `finish` comes after `stop` was set; all is safe from
    any thread."""

    name: str
    needs_leader: bool
    stop: StopToken

    def start(self) -> None:
        """Start its threads. Does not block; what it raises ends the manager's start."""

    def elected(self) -> None:
        """This process leads: begin what needs the leadership. Does not block."""

    def finish_work(self, timeout: float) -> bool:
        """Block until nothing of it needs the leadership any more, at most `timeout` seconds; whether that is so."""

    def finish(self, timeout: float) -> list[StillRunning]:
        """Block until it has ended, at most `timeout` seconds and a moment for its threads."""

    def abort(self) -> None:
        """Tell what still runs after `stop` to end at once. Does not block."""

    def why_not_ready(self) -> str:
        """What it waits for, for people; empty when it is ready. Does not block."""

    def why_not_alive(self) -> str:
        """What only a new process can heal; empty when all is well. Does not block."""

    def owns(self, thread: threading.Thread) -> bool:
        """Whether `thread`, which asks, belongs to it, and so cannot wait for its end."""


class ControllerMember:
    """A controller below a manager, which has the signals and the grace period in its place."""

    def __init__(self, plan: Plan, reconcile: ReconcileFunction[Any], error_policy: ErrorPolicy[Any] | None, data: Any,
                 *, lock: LeaderLock | None, part: Partaking | None, grace: float, failed: OnFailure) -> None:
        """Held until it is elected, and its `ctx.client` guarded, if there is a `lock`; runs for its shards only, and
        is guarded by their Leases, if there is a `part`."""
        self.name = plan.name
        self.plan = plan
        """As it was added."""
        self._part = part
        self.needs_leader = lock is not None
        self.stop = StopToken(clock=plan.clock)
        self._elected = StopToken(clock=plan.clock)
        self._failed = failed
        if plan.stop is not None:
            given = plan.stop
            self._forget = given.on_set(lambda: self.stop.set(given.reason or "its stop token was set"))
        else:
            self._forget = lambda: None
        plan = replace(plan, signals=False, stop=self.stop, grace=grace)
        if lock is not None:
            plan = replace(plan, client=lock.guard(plan.client), events=plan.client, hold=self._hold)
        if part is not None and part.sharder is not None:
            part.expect(self.name)
            plan = replace(plan, client=part.sharder.guard(plan.client), events=plan.client, partition=part.sharder,
                           hold=self._join)
        self._make: Callable[[], Running[Any]] = partial(Running, plan, reconcile, error_policy, data)
        self._running: Running[Any] | None = None
        self._launched = threading.Event()

    @property
    def running(self) -> Running[Any] | None:
        """The running controller; None before its start."""
        return self._running

    def start(self) -> None:
        """Start the controller, whose stores fill from now on. Raises as `Controller.start`."""
        try:
            running = self._running = self._make()
            running.launch(signal_thread=False)
        finally:
            self._launched.set()
        running.on_stop(self._ended)

    def elected(self) -> None:
        """Let runs begin, once the stores are complete."""
        self._elected.set()

    def finish_work(self, timeout: float) -> bool:
        """Stop the controller's runs, in at most `timeout` seconds; whether none is stuck. Blocks."""
        deadline = time.monotonic() + timeout
        self._launched.wait(timeout)
        running = self._running
        return running is None or not running.stop_runs(max(0.0, deadline - time.monotonic()))

    def finish(self, timeout: float) -> list[StillRunning]:
        """Stop the controller, in at most `timeout` seconds; what still runs. Blocks."""
        deadline = time.monotonic() + timeout
        self._launched.wait(timeout)
        self._forget()
        running = self._running
        if running is None:
            return []
        running.stop(max(0.0, deadline - time.monotonic()))
        return [StillRunning(self.name, what, stack_of(thread)) for what, thread in running.still_running()]

    def abort(self) -> None:
        """Tell runs in progress to end within `HEED` seconds. Does not block."""
        if self._running is not None:
            self._running.abandon(HEED)

    def why_not_ready(self) -> str:
        """What the controller waits for, for people; empty when it is ready."""
        running = self._running
        return self._why(None if running is None else running.why_not_ready)

    def why_not_working(self) -> str:
        """What of `why_not_ready` is not about a store: those have checks of their own."""
        running = self._running
        return self._why(None if running is None else running.why_not_working)

    def _why(self, reason: str | None) -> str:
        running = self._running
        if running is None or reason is None:
            return f"controller {self.name} is not started"
        if running.wait(0):
            return f"controller {self.name} has ended: {running.reason}"
        return f"controller {self.name}: {reason}" if reason else ""

    def why_not_alive(self) -> str:
        """What only a new process can heal; empty when all is well."""
        running = self._running
        reason = "" if running is None else running.why_not_alive
        return f"controller {self.name}: {reason}" if reason else ""

    def owns(self, thread: threading.Thread) -> bool:
        """Whether `thread` is one of the controller's own, or in one of its runs."""
        return self._running is not None and self._running.owns(thread)

    def _hold(self, begin: Callable[[], None]) -> None:
        self._elected.on_set(begin)

    def _join(self, begin: Callable[[], None]) -> None:
        begin()
        if self._part is not None:
            self._part.ready(self.name)

    def _ended(self) -> None:
        if self._part is not None:
            self._part.ready(self.name)
        running = self._running
        if running is not None and running.error is not None:
            try:
                running.raise_error()
            except ControllerError as error:
                self._failed(f"controller {self.name}", error)


class RunnableMember:
    """A function that blocks until its token is set, in a thread of its own."""

    def __init__(self, function: Callable[[StopToken], object], name: str, *, needs_leader: bool, clock: Clock,
                 failed: OnFailure) -> None:
        self.name = name
        self.needs_leader = needs_leader
        self.stop = StopToken(clock=clock)
        self._function = function
        self._failed = failed
        self._thread = Thread(target=self._run, name=f"runnable {name}", daemon=True)
        self._once = threading.Lock()
        self._started = self._over = False

    def start(self) -> None:
        """Start its thread, if it does not need the leadership."""
        if not self.needs_leader:
            self._begin()

    def elected(self) -> None:
        """Start its thread, if it needs the leadership."""
        if self.needs_leader:
            self._begin()

    def finish_work(self, timeout: float) -> bool:
        """Wait for its function to return, at most `timeout` seconds; whether it has."""
        return self._has_returned(timeout)

    def finish(self, timeout: float) -> list[StillRunning]:
        """Wait for its function to return, at most `timeout` seconds; what still runs."""
        if self._has_returned(timeout):
            return []
        left = StillRunning(self.name, f"thread {self._thread.name!r}", stack_of(self._thread.ident))
        log.error("runnable %s does not end; its stack:\n%s", self.name, left.stack)
        return [left]

    def _has_returned(self, timeout: float) -> bool:
        with self._once:
            begun, self._over = self._started, True  # from now on it never begins
        if begun:
            self._thread.join(min(timeout, threading.TIMEOUT_MAX))
        return not self._thread.is_alive()

    def abort(self) -> None:
        """Do nothing: the function has no second token."""

    def why_not_ready(self) -> str:
        """Empty: a function is always ready."""
        return ""

    def why_not_alive(self) -> str:
        """Empty: nothing is known of how a function gets on."""
        return ""

    def owns(self, thread: threading.Thread) -> bool:
        """Whether `thread` is the one that runs the function."""
        return thread is self._thread

    def _begin(self) -> None:
        with self._once:
            if self._started or self._over or self.stop.is_set():
                return
            self._started = True
            self._thread.start()

    def _run(self) -> None:
        try:
            self._function(self.stop)
        except BaseException as error:  # noqa: BLE001 - SystemExit too ends the manager, not just this thread
            self._failed(f"runnable {self.name}", error)
        else:
            if not self.stop.is_set():
                log.info("runnable %s has ended by itself", self.name)


def finish_all(members: list[Member], end: ManagerEnd) -> list[StillRunning]:
    """Finish `members` side by side in the time that is left; what of them still runs."""
    nothing: list[StillRunning] = []
    return sum(side_by_side(members, lambda member: member.finish(end.time_left()), nothing, end), nothing)


def still_leading(members: list[Member], end: ManagerEnd) -> set[str]:
    """The names of those `members` whose work under the leadership has not ended in the time that is left."""
    needing = [member for member in members if member.needs_leader]
    ended = side_by_side(needing, lambda member: member.finish_work(end.time_left()), False, end)
    return {member.name for member, has_ended in zip(needing, ended, strict=True) if not has_ended}


def side_by_side(members: list[Member], finish: Callable[[Member], T], otherwise: T, end: ManagerEnd) -> list[T]:
    """`finish` each of `members` in a thread of its own, so that none takes the time of another; what came of each, and
    `otherwise` where it raised."""
    found = [otherwise] * len(members)

    def one(number: int) -> None:
        with end.words.taken_down():
            found[number] = finish(members[number])

    threads = [Thread(target=partial(one, number), name=f"end of {member.name}", daemon=True)
               for number, member in enumerate(members)]
    for number, thread in enumerate(threads):
        try:
            thread.start()
        except RuntimeError:  # the interpreter ends, or there are no more threads
            one(number)
    for thread in threads:
        while thread.is_alive():
            thread.join(MAIN_THREAD_WAIT)
    return found
