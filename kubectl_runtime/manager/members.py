"""What a manager runs: controllers and plain functions, each with a life of its own below the manager's.

                start()                                 elected()                       when `stop` is set
    controller  its threads; its stores fill            its runs begin                  drains
    one that    likewise; then it works for the         nothing                         drains; its shards are given up
    shares      objects of this replica's shards
    runnable    its thread, if it needs no leadership   its thread, if it needs it      is told so by its token

Without an election `elected()` follows at once. A member that fails tells the manager, which ends everything; one that
just ends does not.

`Partaking`: a manager's part in a sharding. Without one, all of this does nothing.

    expect(name)   a controller that shares; before `start`, this replica waits for its stores before it takes a shard
    start()        from now on it joins as soon as nothing is waited for
    ready(name)    the stores of one are complete, or it has ended
    quit(within)   the end begins: each shard is given up as soon as no run of it is left
    end(left)      what is left of it has so many seconds

What a manager serves: the protocol of its servers, and the one place that makes those of its own.

Servers start before everything else and stop after it, so that probes are answered while stores fill, while the process
stands by, and while it drains.

`ManagerEnd`: the one end of a manager. Why, by when, and the failure that began it.

    begin(reason, grace)    the first sets the token and the deadline; a later one may shorten the time, not lengthen it
    failed(what, error)     the first is kept, to be raised; all are logged
"""
from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol, TypeVar

from kubectl_runtime.client.api.client import Client
from kubectl_runtime.core.base.clock import MAIN_THREAD_WAIT, Clock, seconds
from kubectl_runtime.core.base.errors import KubeError
from kubectl_runtime.core.base.guard import guarded_logger
from kubectl_runtime.core.base.interpreter import Thread, renewed_in_children
from kubectl_runtime.core.base.observer import Observer, parts_of
from kubectl_runtime.core.base.stop import StopToken
from kubectl_runtime.manager.elector import LeaderLock
from kubectl_runtime.manager.sharder import Sharder
from kubectl_runtime.manager.sharding import Sharding
from kubectl_runtime.runtime.controller.plan import ControllerError, Plan
from kubectl_runtime.runtime.controller.running import Running
from kubectl_runtime.runtime.lifecycle.ending import LastWords
from kubectl_runtime.runtime.lifecycle.shutdown import stack_of
from kubectl_runtime.runtime.observe.debug import Debugged, DebugPage
from kubectl_runtime.runtime.observe.health import HealthServer
from kubectl_runtime.runtime.observe.health_checks import Check, OwnCheck, Unhealthy
from kubectl_runtime.runtime.observe.listener import ListenAddress
from kubectl_runtime.runtime.reconcile.reconciler import ErrorPolicy, ReconcileFunction
from kubectl_runtime.runtime.usercode import described

log = guarded_logger(__name__)


class LeadershipLost(KubeError):
    """This process was the leader and lost the leadership: its manager has ended. Start a new one, usually as a new
    process.

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


LEAST = 1.0
"""Seconds that each server gets to stop, when everything before it has used up the time."""


class Server(Protocol):
    """Something that listens while a manager runs."""

    @property
    def name(self) -> str:
        """What it is called in logs, and as a check of readiness."""

    def start(self) -> None:
        """Listen, in threads of its own, and log where. Returns when it does; what it raises (the port is taken, say)
        ends the manager's start."""

    def stop(self, timeout: float) -> None:
        """Listen no more; blocks until its threads have ended, at most `timeout` seconds. What it raises is logged; a
        second later nobody waits for it any more."""


def expect_ready(servers: Iterable[Any]) -> None:
    """Raise Unhealthy when a server has `why_not_ready`, and it says why. Blocks as they do."""
    reasons = [reason for server in servers if (reason := getattr(server, "why_not_ready", ""))]
    if reasons:
        raise Unhealthy("; ".join(reasons))


class ServerGroup:
    """Starts servers in their order, and stops them in the reverse one. For one thread at a time."""

    def __init__(self, words: LastWords) -> None:
        """`words` takes down what is logged at the end."""
        self._started: list[Server] = []
        self._words = words

    def start(self, servers: Iterable[Server]) -> None:
        """Start each of `servers`. Raises what one of them raises, when those before it have stopped again."""
        for server in servers:
            try:
                server.start()
            except BaseException:
                self.stop(lambda: 0.0)
                raise
            self._started.append(server)

    def stop(self, time_left: Callable[[], float]) -> None:
        """Stop each in the time that is left then, `LEAST` seconds at least."""
        while self._started:
            server = self._started.pop()
            timeout = max(LEAST, time_left())
            # It may be the program's own: then nothing bounds its time but this.
            thread = Thread(target=partial(self._stop, server, timeout), name=f"end of {server.name}", daemon=True)
            try:
                thread.start()
            except RuntimeError:  # the interpreter ends, or there are no more threads
                self._stop(server, timeout)
                continue
            thread.join(timeout + LEAST)
            if thread.is_alive():
                log.error("manager: %s does not stop; it is here:\n%s", server.name, stack_of(thread.ident))

    def _stop(self, server: Server, timeout: float) -> None:
        with self._words.taken_down():
            try:
                server.stop(timeout)
            except BaseException as error:
                log.error("manager: %s did not stop well: %s", server.name, described(error), exc_info=error)


def servers_for(address: ListenAddress, ready_checks: Callable[[], Mapping[str, Check]],
                why_not_alive: Callable[[], str], observer: Observer, debug: DebugPage | None,
                debugged: Debugged) -> Sequence[Server]:
    """The servers that `Manager(serve=...)` stands for: `/healthz`, `/readyz`, `/metrics` of the Metrics in `observer`,
    and `/debug` as `debug` says. `ready_checks` gives the checks of `/readyz` at this moment; `why_not_alive` says what
    only a new process can heal; neither blocks.

    Called once, at the manager's start, before it starts them. The only place that joins the two.
    """
    # Programs without a manager's server do not pay for prometheus-client.
    module = sys.modules.get("kubectl_runtime.runtime.observe.metrics")
    metrics = None if module is None else next(
        (part for part in parts_of(observer) if isinstance(part, module.Metrics)), None)
    return [HealthServer((address.host, address.port), metrics=metrics, debug=debug, debugged=debugged,
                         checks=ready_checks, live_checks={"manager": OwnCheck(why_not_alive)})]


class Partaking:
    """A manager's part in a group of replicas that share the objects. Safe to use from any thread."""

    def __init__(self, client: Client, sharding: Sharding | None, grace: float,
                 failed: Callable[[BaseException], None]) -> None:
        """`grace`: seconds that runs have when a shard is given up; `failed` hears of a defect."""
        self.sharder = None if sharding is None else Sharder(client, sharding, grace=grace, failed=failed)
        self._lock = threading.Lock()
        self._awaited: set[str] = set()
        self._started = False
        self._joined = False

    @property
    def shards(self) -> frozenset[int]:
        """The shards that this replica works for at this moment."""
        return frozenset() if self.sharder is None else self.sharder.shards

    @property
    def trouble(self) -> str:
        """Why this replica cannot take part; empty when it can, and before it begins."""
        return "" if self.sharder is None else self.sharder.trouble

    def expect(self, name: str) -> None:
        """Wait for the controller `name` before taking part."""
        with self._lock:
            if not self._joined:
                self._awaited.add(name)

    def start(self) -> None:
        """Every controller was announced by `expect`: take part as soon as all are ready."""
        self._go_on(None)

    def ready(self, name: str) -> None:
        """The controller `name` can work, or has ended."""
        self._go_on(name)

    def quit(self, within: float) -> None:
        """Give up the shards, each when its runs have ended, in `within` seconds at most. Does not block."""
        if self.sharder is not None:
            self.sharder.quit(within)

    def end(self, time_left: float) -> None:
        """Block until this replica has left, for at most about `time_left` seconds."""
        if self.sharder is not None:
            self.sharder.close(min(max(LEAST, time_left), seconds(self.sharder.sharding.renew_deadline)))

    def owns(self, thread: threading.Thread) -> bool:
        """Whether `thread` is one of the sharding's."""
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
