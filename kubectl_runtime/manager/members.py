"""The members of a manager: controllers and plain functions, each with its own lifecycle.

                start()                                 elected()                       begin_stop()
    controller  starts threads; its stores fill         lets runs begin                 drains runs
    sharded     starts threads; its stores fill; then   nothing                         drains runs; its shards are
    controller  runs begin for this replica's shards                                    given up
    runnable    starts its thread, unless it needs      starts its thread, if it needs  sets its token
                the leadership                          the leadership

Without an election the manager calls `elected()` right after `start()`. A member that fails ends the manager; a
runnable that returns does not.

`ShardMembership` lets a manager take part in a sharding. It joins the group once the stores of all sharded controllers
are complete, and gives the shards up at the end. Without a sharding it does nothing.
"""
from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from msgspec.structs import replace

from kubectl_runtime.client.api.client import Client
from kubectl_runtime.core.base.errors import KubeError
from kubectl_runtime.core.base.guard import Home, guarded_logger, not_awaitable
from kubectl_runtime.core.base.threads import Clock, Thread, seconds
from kubectl_runtime.core.scope import StopToken
from kubectl_runtime.manager.elector import LeaderLock
from kubectl_runtime.manager.serving import LEAST_SECONDS
from kubectl_runtime.manager.sharder import Sharder
from kubectl_runtime.manager.sharding import Sharding
from kubectl_runtime.runtime.controller.plan import ControllerError, Plan
from kubectl_runtime.runtime.controller.running import Running
from kubectl_runtime.runtime.lifecycle.lifecycle import StillRunning, alive
from kubectl_runtime.runtime.reconcile.reconciler import ErrorPolicy, ReconcileFunction

log = guarded_logger(__name__)


class LeadershipLost(KubeError):
    """This process was the leader and lost the leadership, so its manager has ended. Start a new manager, usually in a
    new process.

    >>> issubclass(LeadershipLost, KubeError)
    True
    """


class ShardMembership:
    """Joins and leaves the group of replicas that share the objects, for one manager. Thread-safe."""

    def __init__(self, client: Client, sharding: Sharding | None, grace: float,
                 failed: Callable[[BaseException], None]) -> None:
        """`grace`: seconds that runs get to end when a shard is given up. `failed` is called with the exception of a
        bug."""
        self.sharder = None if sharding is None else Sharder(client, sharding, grace=grace, failed=failed)
        self._lock = threading.Lock()
        self._awaited: set[str] = set()
        self._started = False
        self._joined = False

    @property
    def shards(self) -> frozenset[int]:
        """The shards whose objects this replica reconciles now."""
        return frozenset() if self.sharder is None else self.sharder.shards

    @property
    def trouble(self) -> str:
        """Why this replica cannot take part in the sharding; empty if it can, and before it joins."""
        return "" if self.sharder is None else self.sharder.trouble

    def expect(self, name: str) -> None:
        """Let the replica join only after `ready` was called for the controller `name`."""
        with self._lock:
            if not self._joined:
                self._awaited.add(name)

    def start(self) -> None:
        """Join the group as soon as all controllers that `expect` has named are ready."""
        self._go_on(None)

    def ready(self, name: str) -> None:
        """Record that the stores of the controller `name` are complete, or that it has ended."""
        self._go_on(name)

    def quit(self, within: float) -> None:
        """Give up each shard when its runs have ended, at the latest after `within` seconds. Does not block."""
        if self.sharder is not None:
            self.sharder.quit(within)

    def end(self, time_left: float) -> None:
        """Block until this replica has left the group, for about `time_left` seconds at most."""
        if self.sharder is not None:
            self.sharder.close(min(max(LEAST_SECONDS, time_left), seconds(self.sharder.sharding.renew_deadline)))

    def owns(self, thread: threading.Thread) -> bool:
        """Whether `thread` belongs to the sharding."""
        return self.sharder is not None and self.sharder.owns(thread)

    def _go_on(self, ready: str | None) -> None:
        with self._lock:
            if ready is None:
                self._started = True
            else:
                self._awaited.discard(ready)
            joins = self._started and not self._awaited and not self._joined
            self._joined |= joins
        if joins and self.sharder is not None:
            self.sharder.join()


ABORT_GRACE = 2.0
"""Seconds that runs get when they must end at once."""

OnFailure = Callable[[str, BaseException], None]
"""Called by a failing member with its name and the error. Does not block."""


class Member:
    """A controller or a function that a manager runs. `begin_stop` must be called before `finish`. All methods are
    thread-safe. `begin_stop` does not block, so all members stop in parallel while the manager waits for one after the
    other."""

    def __init__(self, name: str, *, needs_leader: bool, clock: Clock, failed: OnFailure) -> None:
        self.name = name
        self.needs_leader = needs_leader
        self.stop = StopToken(clock=clock)
        self._failed = failed

    def start(self) -> None:
        """Start the member's threads. Does not block. If it raises, the manager's start fails."""

    def elected(self) -> None:
        """Begin the work that needs the leadership, because this process leads now. Does not block."""

    def begin_stop(self, reason: str, within: float) -> None:  # noqa: ARG002 - for controllers
        """Begin to stop; the stop may take `within` seconds. A later call may shorten the time. Does not block."""
        self.stop.set(reason)

    def finish_work(self, timeout: float) -> bool:
        """Block until all of the member's work that needs the leadership has ended, for at most `timeout` seconds;
        returns whether it has."""
        raise NotImplementedError

    def finish(self, timeout: float) -> list[StillRunning]:
        """Block until the member has ended, for little more than `timeout` seconds at most. Returns the runs and
        threads that have not ended."""
        raise NotImplementedError

    def abort(self) -> None:
        """After `begin_stop`, end running work at once; a runnable ignores the call. Does not block."""

    def why_not_ready(self) -> str:
        """Why the member is not ready, as text; empty when it is ready. A function is always ready. Does not block."""
        return ""

    def why_not_alive(self) -> str:
        """The failure that only a restart of the process repairs; empty when there is none. Does not block."""
        return ""

    def owns(self, thread: threading.Thread) -> bool:
        """Whether `thread` belongs to the member. Such a thread must not wait for the member's end."""
        raise NotImplementedError


class ControllerMember(Member):
    """A controller in a manager, which handles signals and the grace period in the controller's place."""

    def __init__(self, plan: Plan, reconcile: ReconcileFunction[Any], error_policy: ErrorPolicy[Any] | None, data: Any,
                 *, lock: LeaderLock | None, part: ShardMembership | None, grace: float, failed: OnFailure) -> None:
        """With a `lock`, runs begin only when this process leads, and `ctx.client` refuses writes when it does not.
        With a `part`, the controller reconciles only this replica's shards, and `ctx.client` refuses writes for any
        other shard."""
        super().__init__(plan.name, needs_leader=lock is not None, clock=plan.clock, failed=failed)
        self.plan = plan
        """The plan as it was added."""
        self._part = part
        self._elected = StopToken(clock=plan.clock)
        self._forget: Callable[[], None] = lambda: None
        if (given := plan.stop) is not None:
            self._forget = given.on_set(lambda: self.stop.set(given.reason or "its stop token was set"))
        plan = replace(plan, signals=False, stop=self.stop, grace=grace)
        if lock is not None:
            plan = replace(plan, client=lock.guard(plan.client), events=plan.client, hold=self._hold)
        if part is not None and part.sharder is not None:
            part.expect(self.name)
            plan = replace(plan, client=part.sharder.guard(plan.client), events=plan.client, partition=part.sharder,
                           hold=self._join)
        self._make: Callable[[], Running[Any]] = partial(Running, plan, reconcile, error_policy, data)
        self.running: Running[Any] | None = None
        """None before the start."""
        self._launched = threading.Event()

    def start(self) -> None:
        """Start the controller, whose stores begin to fill. Raises like `Controller.start`."""
        try:
            running = self.running = self._make()
            running.launch(signal_thread=False)
        finally:
            self._launched.set()
        running.on_stop(self._ended)

    def elected(self) -> None:
        """Let runs begin as soon as the stores are complete."""
        self._elected.set()

    def begin_stop(self, reason: str, within: float) -> None:
        """Begin the controller's stop. If the controller is still starting, its stop token makes it stop after the
        start."""
        super().begin_stop(reason, within)
        if self.running is not None and self._launched.is_set():
            self.running.begin_stop(reason, within)

    def finish_work(self, timeout: float) -> bool:
        """Stop the controller's runs within `timeout` seconds; returns whether all runs have ended. Blocks."""
        left = self._await_launch(timeout)
        return self.running is None or not self.running.stop_runs(left)

    def finish(self, timeout: float) -> list[StillRunning]:
        """Stop the controller within `timeout` seconds; returns the runs and threads that have not ended. Blocks."""
        left = self._await_launch(timeout)
        self._forget()
        if self.running is None:
            return []
        self.running.stop(left)
        return self.running.still_running

    def _await_launch(self, timeout: float) -> float:
        """Wait for a start in progress; returns the seconds left."""
        began = time.monotonic()
        self._launched.wait(min(timeout, threading.TIMEOUT_MAX))
        return max(0.0, timeout - (time.monotonic() - began))

    def abort(self) -> None:
        """End runs in progress within `ABORT_GRACE` seconds. Does not block."""
        if self.running is not None:
            self.running.abandon(ABORT_GRACE)

    def why_not_ready(self) -> str:
        """The reason why the controller is not ready, as text; empty when it is ready."""
        return self._why(lambda running: running.why_not_ready)

    def why_not_working(self) -> str:
        """Like `why_not_ready`, but without the reasons that concern a store, since each store has its own check."""
        return self._why(lambda running: running.why_not_working)

    def _why(self, reason_of: Callable[[Running[Any]], str]) -> str:
        running = self.running
        if running is None:
            return f"controller {self.name} is not started"
        if running.wait(0):
            return f"controller {self.name} has ended: {running.reason}"
        reason = reason_of(running)
        return f"controller {self.name}: {reason}" if reason else ""

    def why_not_alive(self) -> str:
        """The failure that only a restart of the process can repair; empty when the controller is healthy."""
        reason = "" if self.running is None else self.running.why_not_alive
        return f"controller {self.name}: {reason}" if reason else ""

    def owns(self, thread: threading.Thread) -> bool:
        """Whether `thread` belongs to the controller or is in one of its runs."""
        return self.running is not None and self.running.owns(thread)

    def _hold(self, begin: Callable[[], None]) -> None:
        self._elected.on_set(begin)

    def _join(self, begin: Callable[[], None]) -> None:
        begin()
        if self._part is not None:
            self._part.ready(self.name)

    def _ended(self) -> None:
        if self._part is not None:
            self._part.ready(self.name)
        try:
            if self.running is not None:
                self.running.raise_error()
        except ControllerError as error:
            self._failed(f"controller {self.name}", error)


class RunnableMember(Member):
    """Runs a function in a thread of its own. The function must return when its token is set."""

    def __init__(self, function: Callable[[StopToken], object], name: str, *, needs_leader: bool, clock: Clock,
                 failed: OnFailure) -> None:
        super().__init__(name, needs_leader=needs_leader, clock=clock, failed=failed)
        self._function = function
        self._thread = Thread(target=self._run, name=f"runnable {name}", daemon=True)
        self._once = threading.Lock()
        self._started = self._over = False

    def start(self) -> None:
        """Start the thread, if the function does not need the leadership."""
        if not self.needs_leader:
            self._begin()

    def elected(self) -> None:
        """Start the thread, if the function needs the leadership."""
        if self.needs_leader:
            self._begin()

    def finish_work(self, timeout: float) -> bool:
        """Wait for the function to return, for at most `timeout` seconds; returns whether the function has returned."""
        return self._has_returned(timeout)

    def finish(self, timeout: float) -> list[StillRunning]:
        """Wait for the function to return, for at most `timeout` seconds; returns its thread if it still runs."""
        if self._has_returned(timeout):
            return []
        found = alive(self.name, [self._thread])
        for one in found:
            log.error("runnable %s does not end; its stack:\n%s", self.name, one.stack)
        return found

    def _has_returned(self, timeout: float) -> bool:
        with self._once:
            begun, self._over = self._started, True  # the thread cannot start after this
        if begun:
            self._thread.join(min(timeout, threading.TIMEOUT_MAX))
        return not self._thread.is_alive()

    def owns(self, thread: threading.Thread) -> bool:
        """Whether `thread` runs the function."""
        return thread is self._thread

    def _begin(self) -> None:
        with self._once:
            if self._started or self._over or self.stop.is_set():
                return
            self._started = True
            self._thread.start()

    def _run(self) -> None:
        home = Home()
        try:
            not_awaitable(self._function(self.stop), self._function)
            home.check(f"runnable {self.name}")
        except BaseException as error:  # noqa: BLE001 - SystemExit also ends the manager, not just this thread
            home.check(f"runnable {self.name}", error)
            self._failed(f"runnable {self.name}", error)
        else:
            if not self.stop.is_set():
                log.info("runnable %s has ended by itself", self.name)
