"""`elect` and `LeaderLock`: one process's candidacy for a Lease, with threads of its own.

    with elect(client, LeaderElection("my-job")) as lock:
        while lock.wait():                       # blocks until this process leads
            work(lock.client, until=lock.lost)   # ends soon after lock.lost is set
    # here the Lease has been released

    thread       task                                              ends
    elector      makes the requests of `lease_machine`             when the candidacy has ended
    deadline     notices the deadline, even if a request hangs     when the candidacy has ended
    callbacks    calls the election's callbacks, if there are any  after the last callback

After this process has lost the leadership, it is not a candidate until `wait` is called again. The caller must call
`wait` only when the work of the lost leadership has ended. Each leadership has its own `lost` token. The child of a
fork does not lead.

`lock.client` and an elected controller's `ctx.client` send no write while this process does not lead:

- A GET is sent.
- A request with any other method is sent while this process leads, if its first byte is sent before the deadline.
- Otherwise the call raises NotLeaderError, and nothing is sent.

Within a run of an elected controller, the same holds for every client that shares the connections of `ctx.client`, so
that an Api made outside of the run cannot bypass the check (see `client.http.send`). A thread with a copy of the run's
context (`contextvars.copy_context`) counts as part of the run. A thread that the run started without that copy does not
count as part of the run. The check never covers a client that was created independently of `ctx.client`. In threads
outside of the run, use an Api made from `ctx.client`. In place of an independent client, use `lock.guard(client)`.

Each attempt of a request is checked twice: after credentials and every other layer, and again right before the first
byte is sent, after name lookup, connection and handshake. A window remains that no check can close: the thread, the
process or the machine may be stopped right after the check, and the network may delay the bytes. On a running machine
the window lasts microseconds. Another leader begins no earlier than `lease - renew_deadline` (5 s) after the deadline,
so the old leader's write can overlap with the new leader's only if the old leader was stopped for longer than that. The
object's resourceVersion guards against such a late write: a `replace`, or a patch that tests the resourceVersion, fails
if another process has written the object since it was read. A blind write (an apply, a merge patch, a delete without
preconditions) is not protected inside the window.
"""
from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from math import inf
from queue import SimpleQueue
from typing import Self

from kubectl_runtime.client.api.client import Client
from kubectl_runtime.client.http.middleware import Call
from kubectl_runtime.client.http.send import Fence
from kubectl_runtime.core.base.errors import KubeError, RequestError
from kubectl_runtime.core.base.guard import described, guarded, guarded_logger
from kubectl_runtime.core.base.threads import Clock, Duration, Thread, renewed_in_children, seconds
from kubectl_runtime.core.scope import StopToken, time_left
from kubectl_runtime.manager.lease_machine import LeaseState, Phase, Rules, expired, step
from kubectl_runtime.manager.leases import (
    Action,
    Campaign,
    Input,
    LeaderElection,
    LeaseStore,
    Leave,
    Now,
    Tick,
    Trouble,
    Wait,
    checked_election,
    own_identity,
)
from kubectl_runtime.runtime.children.applied import memory_of


class NotLeaderError(KubeError):
    """A write was refused, or a wait ended, because this process is not the leader or no longer leads.

    >>> issubclass(NotLeaderError, KubeError)
    True
    """


def only_while_leading(deadline: Callable[[], float | None], describe: Callable[[], str], clock: Clock) -> Fence:
    """Return a Fence that lets writes pass only while this process leads. `deadline()` returns the time, on the clock's
    `boottime`, until which this process leads, or None. `describe()` returns the error text: why this process does not
    lead."""

    def check(call: Call) -> None:
        until = deadline()
        left = 0.0 if until is None else until - clock.boottime()
        if left <= 0:
            raise NotLeaderError(f"{call.request.operation}: not sent, because {describe()}")
        call.send_by = clock.monotonic() + left

    return Fence(check)


Callback = Callable[[], object]


class ElectionCallbacks:
    """Calls the functions of a LeaderElection one after the other, in a thread that no other code waits for.
    Thread-safe; only `run` blocks."""

    def __init__(self, name: str) -> None:
        """`name`: the name of the election, for messages."""
        self._what = f"a callback of election {name}"
        self._waiting: SimpleQueue[Callback | None] = SimpleQueue()

    def tell(self, callback: Callback | None) -> None:
        """Queue a callback; None is ignored."""
        if callback is not None:
            self._waiting.put(callback)

    def end(self) -> None:
        """Let `run` return once the callbacks queued so far have been called."""
        self._waiting.put(None)

    def run(self) -> None:
        """Call the queued callbacks in order. Returns after `end`."""
        while (callback := self._waiting.get()) is not None:
            guarded(None, self._what, callback)


log = guarded_logger(__name__)
_JOIN_SECONDS = 2.0
_CALLBACK_SECONDS = 1.0


def elect(client: Client, election: LeaderElection) -> LeaderLock:
    """Take part in `election` inside a `with` block. The block's LeaderLock tells whether this process leads.

    Leave the block only when the leader's work has ended: the end of the block releases the Lease if this process still
    holds it. Needs the verbs get, create and update on leases. Does not close `client`. Raises RequestError if
    `election` is not a LeaderElection.

    >>> with elect(client, LeaderElection("my-program", "default")) as lock:
    ...     lock.wait(timeout=10), lock.is_leader
    (True, True)
    """
    return LeaderLock(client, election)


class LeaderLock:
    """This process's candidacy for the Lease of an election; made by `elect`. Thread-safe once it is entered."""

    def __init__(self, client: Client, election: LeaderElection, *, rng: random.Random | None = None) -> None:
        """Makes no request before the candidacy begins. `rng` draws the jitter of the retries."""
        self.election = checked_election(client, election)
        self.identity = election.identity or own_identity()
        """The identity of this process in the Lease."""
        self.namespace = election.namespace or client.default_namespace
        self._client, self._clock, self._observer = client, client.clock, client.observer
        self._rng = rng or random.Random()
        self._rules = Rules.of(election, self.identity)
        self._trouble = Trouble(f"lease {self.namespace}/{election.name}", client.clock, self._rules.renew_deadline)
        self._store = LeaseStore(client, election.name, self.namespace, self._trouble)
        self._state = LeaseState()
        self._changed = threading.Condition()
        self._poked = False
        self._lost = StopToken(clock=self._clock)
        self._leader = ""
        self._callbacks = ElectionCallbacks(election.name)
        self._threads: list[Thread] = []
        self._caller: Thread | None = None
        """The thread that calls the callbacks, if there are any."""
        self.client = self.guard(client)
        """The client for work that needs the Lease. It sends a write only while this process leads, and raises
        NotLeaderError otherwise. The module's docstring describes which writes the check can prevent and which it
        cannot."""
        renewed_in_children(self)

    def renew(self) -> None:
        """Adapt this copy of the lock to a forked child process. If the candidacy had begun, it stays with the parent,
        and the child is not a candidate. If it had not begun, give the child an identity of its own."""
        self._changed = threading.Condition()
        if self._threads:
            self._state = LeaseState(phase=Phase.ENDED, reason="it belongs to the process that forked this one")
            self._lost = StopToken(clock=self._clock)
            self._lost.set(self._describe())
        else:
            self.identity = self.election.identity or own_identity()
            self._rules = Rules.of(self.election, self.identity)

    @property
    def is_leader(self) -> bool:
        """Whether this process leads now. After the deadline it is False, even if no thread has noticed the deadline
        yet."""
        return self._state.leads_at(self._clock.boottime())

    @property
    def lost(self) -> StopToken:
        """The token of the present leadership; while this process stands by, the token of its next leadership. It is
        set, with a reason, when that leadership ends, which is no later than the deadline. If the machine was suspended
        beyond the deadline, the token is set at most `retry` seconds after the machine wakes."""
        return self._lost

    @property
    def leader(self) -> str:
        """The holder's identity in the Lease, as last seen; empty without a holder."""
        return self._leader

    @property
    def trouble(self) -> str:
        """Why this process cannot stand for election: the failing request for the Lease. Empty while requests succeed.
        Does not block."""
        return self._trouble.reason

    def guard(self, client: Client) -> Client:
        """Return a copy of `client` that is guarded like `self.client`; `client` may belong to another cluster."""
        return client.with_layer(only_while_leading(self._until, self._describe, self._clock))

    def wait(self, timeout: Duration | None = None, *, stop: StopToken | None = None) -> bool:
        """Block until this process leads, `timeout` seconds have passed, or `stop` is set. Returns whether this process
        leads.

        After a lost leadership this call makes the process a candidate again. Call it only when the work of the lost
        leadership has ended. Raises NotLeaderError if the candidacy has ended, and RequestError if it has not begun.
        """
        if not self._threads:
            raise RequestError(f"election {self.election.name} has not begun: write `with elect(...) as lock:`")
        give_up = None if timeout is None else self._clock.monotonic() + seconds(timeout)
        forget = stop.on_set(self._wake) if stop is not None else lambda: None
        try:
            while True:
                self._step(Campaign())
                with self._changed:
                    if self.is_leader:
                        return True
                    if self._state.phase in (Phase.RELEASING, Phase.ENDED):
                        raise NotLeaderError(f"election {self.election.name}: the candidacy has ended"
                                             + (f": {self._state.reason}" if self._state.reason else ""))
                    left = time_left(None if give_up is None else give_up - self._clock.monotonic(), self._clock)
                    if (left is not None and left <= 0) or (stop is not None and stop.is_set()):
                        return False
                    if self._state.phase is not Phase.LOST:
                        self._clock.wait(self._changed, left)
        finally:
            forget()

    def start(self) -> Self:
        """Begin the candidacy, as entering the `with` block does. Does not block."""
        if self._threads:
            raise RequestError(f"election {self.election.name} was entered before: call elect(...) again")
        bodies = {"elector": self._elect, "deadline": self._watch_deadline}
        election = self.election
        if election.on_started or election.on_stopped or election.on_new_leader:
            bodies["callbacks"] = self._callbacks.run
        self._threads = [Thread(target=body, name=f"election {election.name} {what}", daemon=True)
                         for what, body in bodies.items()]
        self._caller = self._threads[2] if "callbacks" in bodies else None
        log.info("election %s/%s: %s is a candidate", self.namespace, election.name, self.identity)
        self._observer.leadership_changed(election.name, False)
        for thread in self._threads:
            thread.start()
        return self

    def owns(self, thread: threading.Thread) -> bool:
        """Whether `thread` belongs to the lock, such as the thread that calls the callbacks."""
        return thread in self._threads

    def close(self, *, release: bool | None = None, timeout: Duration | None = None) -> None:
        """End the candidacy, as leaving the `with` block does. May be called repeatedly; each call blocks until the
        end.

        The work that needs the Lease must have ended, or `release` must be False. Without a release, or if the client
        is already closed, the Lease expires by itself. Blocks until the Lease is released or `timeout` seconds
        (default: the renew deadline) have passed, and at most one more second for a callback that does not return. A
        call from inside a callback does not wait for the end.
        """
        wanted = (self.election.release if release is None else release) and not self._client.is_closed
        within = self._rules.renew_deadline if timeout is None else seconds(timeout)
        self._step(Leave(wanted, within))
        if self.owns(threading.current_thread()):
            return
        patience = time.monotonic() + within + _JOIN_SECONDS  # real time, as join uses
        for thread in self._threads:
            left = patience - time.monotonic()
            # The thread `_caller` runs callbacks of the user, which may never return, so this method waits for this
            # thread for `_CALLBACK_SECONDS` at most.
            thread.join(max(0.0, min(left, _CALLBACK_SECONDS) if thread is self._caller else left))
            if thread.is_alive():
                log.warning("election %s: thread %r does not end", self.election.name, thread.name)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<LeaderLock {self.namespace}/{self.election.name}: {self._state.phase}>"

    # Threads

    def _elect(self) -> None:
        try:
            self._campaign()
        except BaseException as error:  # a bug: end the candidacy, so that no caller of `wait` waits for this thread
            log.critical("election %s failed; this process is no longer a candidate", self.election.name,
                         exc_info=error)
            reason = f"a defect: {described(error)}"
            self._move(lambda state, _: replace(state, phase=Phase.ENDED, reason=reason))

    def _campaign(self) -> None:
        happened: Input = Tick()
        while True:
            action = self._step(happened)
            if self._state.phase is Phase.ENDED:
                return
            if isinstance(action, Wait):
                self._pause(action.until)
                happened = Tick()
            else:
                happened = self._store.perform(action, self._rules.request_timeout(self._state, self._clock.boottime()))

    def _watch_deadline(self) -> None:
        while self._state.phase is not Phase.ENDED:
            self._move(expired)
            with self._changed:
                state = self._state
                if state.phase in (Phase.LEADING, Phase.RELEASING):
                    left = max(0.0, state.deadline - self._clock.boottime())
                elif state.phase is Phase.ENDED:
                    return
                else:
                    left = None
                # The wait does not count time for which the machine is suspended, so it is limited to `retry`.
                self._clock.wait(self._changed, left if left is None else min(left, self._rules.retry))

    def _pause(self, until: float) -> None:
        with self._changed:
            while not self._poked and (left := until - self._clock.boottime()) > 0:
                self._clock.wait(self._changed, min(left, self._rules.retry))
            self._poked = False

    # State

    def _now(self) -> Now:
        return Now(self._clock.boottime(), self._clock.now(), self._rng.random())

    def _step(self, happened: Input) -> Action:
        action: Action = Wait(inf)

        def move(state: LeaseState, now: Now) -> LeaseState:
            nonlocal action
            state, action = step(self._rules, state, happened, now)
            return state

        self._move(move)
        return action

    def _move(self, move: Callable[[LeaseState, Now], LeaseState]) -> None:
        """Change the state, then make the calls that the change requires without holding the lock."""
        follows: list[Callable[[], object]] = []
        with self._changed:
            before = self._state
            state = self._state = move(before, self._now())
            self._note_leader(state)
            if state.phase is not before.phase:
                follows = self._entered(state, before.phase)
                self._poked = True
            if state.phase is not before.phase or state.deadline != before.deadline:
                self._changed.notify_all()
        for call in follows:
            call()

    def _entered(self, state: LeaseState, before: Phase) -> list[Callable[[], object]]:
        """Queue the callbacks for a new phase, in order, and return the other calls, which must be made without the
        lock."""
        name, follows = f"{self.namespace}/{self.election.name}", list[Callable[[], object]]()
        if state.phase is Phase.LEADING:
            self._callbacks.tell(self.election.on_started)
            follows += [partial(log.info, "election %s: %s leads", name, self.identity),
                        partial(self._observer.leadership_changed, self.election.name, True)]
        if before is Phase.LEADING:
            reason = f"the leadership of {name} has ended: {state.reason or 'it was given up'}"
            self._callbacks.tell(self.election.on_stopped)
            # From here on another leader may change the child objects, so the remembered states of these objects are no
            # longer valid.
            follows += [partial(self._lost.set, reason), memory_of(self._client).forget,
                        partial(log.info, "%s", reason),
                        partial(self._observer.leadership_changed, self.election.name, False)]
        elif before is Phase.STANDBY and state.phase is not Phase.LEADING:
            follows.append(partial(self._lost.set, f"the candidacy for {name} has ended"))
        if state.phase is Phase.STANDBY:
            self._lost = StopToken(clock=self._clock)
        if state.phase is Phase.ENDED:
            follows.append(partial(log.info, "election %s: the candidacy of %s has ended%s", name, self.identity,
                                   f": {state.reason}" if state.reason else ""))
            follows.append(partial(self._observer.election_ended, self.election.name))
            self._callbacks.end()
        return follows

    def _note_leader(self, state: LeaseState) -> None:
        holder = state.seen.holder if state.seen is not None else ""
        if holder != self._leader:
            self._leader = holder
            if holder and self.election.on_new_leader is not None:
                self._callbacks.tell(partial(self.election.on_new_leader, holder))

    def _until(self) -> float | None:
        state = self._state
        return state.deadline if state.phase is Phase.LEADING else None

    def _describe(self) -> str:
        phase, reason = self._state.phase, self._state.reason
        why = reason or ("its deadline has passed" if phase is Phase.LEADING else phase)
        return f"{self.identity} does not lead {self.namespace}/{self.election.name} ({why})"

    def _wake(self) -> None:
        with self._changed:
            self._changed.notify_all()
