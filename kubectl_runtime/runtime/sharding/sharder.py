"""`Sharder`: one replica's part in a sharding, with threads of its own.

    thread                 does                                                     ends
    "sharding NAME 1" ...  make the requests that `shard_machine` asks for          when the replica has left
    "sharding NAME"        notices deadlines, also while requests hang; tells the   likewise
                           controllers which objects have come and gone

A controller hears of one change after the other, from one thread, in the order in which they happened; whether a run
may begin is asked of the state itself, at its moment.

What `guard` makes of a client is the fence of a shard, and is like that of the elected one (`elected_client`), by the
key of the run that writes:

    a write by a run           sent while the shard of its object is this replica's, and begun before the deadline of
                               the shard's Lease; else NotLeaderError, and nothing was sent. A run that began before its
                               shard was lost stays refused: while it lasts, this replica does not take the shard again
    a write by anything else   sent while this replica's own Lease is good, or while it quits: of a thread that a
                               reconciler has started itself nobody knows for which object it works. In a thread to
                               which the context was copied (`contextvars.copy_context`, `asyncio.to_thread`) it is
                               the run's
    a read                     sent

Between this check and the first byte at the server is the same window as there, and what it leaves open is left to the
object's resourceVersion: a blind write (apply, merge patch, delete without preconditions) has no fence inside of it.
"""
from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import replace
from functools import partial
from math import inf
from typing import NamedTuple

from kubectl_runtime.client.api.client import Client
from kubectl_runtime.core.base.keys import Key
from kubectl_runtime.core.base.stop import StopToken
from kubectl_runtime.runtime.controller.share import Listener
from kubectl_runtime.runtime.manager.elected_client import only_while_leading
from kubectl_runtime.runtime.manager.leader_election import own_identity
from kubectl_runtime.runtime.manager.lease_events import Now, Tick, Wait
from kubectl_runtime.runtime.manager.lease_machine import Phase as LeasePhase
from kubectl_runtime.runtime.queue.runs import Outcome
from kubectl_runtime.runtime.sharding.shard_events import (
    OWN,
    Action,
    Ask,
    Delete,
    Input,
    Join,
    ListLeases,
    Look,
    Quit,
)
from kubectl_runtime.runtime.sharding.shard_leases import ShardLeases
from kubectl_runtime.runtime.sharding.shard_machine import step
from kubectl_runtime.runtime.sharding.shard_state import Phase, ShardRules, ShardState
from kubectl_runtime.runtime.sharding.sharding import Sharding, shard_of
from kubectl_runtime.runtime.triggers.triggers import ReconcileRequest
from kubectl_runtime.runtime.usercode import guarded_logger

log = guarded_logger(__name__)

REQUESTS = 4
"""At once: one that hangs must not cost the other shards."""

TOGETHER = 0.5
"""Seconds for which shards that come one after the other are told together, as listeners go through all objects."""

_JOIN_SECONDS = 2.0


class _Work(NamedTuple):
    """What a thread works for."""

    sharder: Sharder
    shard: int


_work: ContextVar[_Work | None] = ContextVar("kubectl_runtime_shard", default=None)


class Sharder:
    """Safe to use from any thread. A `Share` for each controller of a manager."""

    def __init__(self, client: Client, sharding: Sharding, *, grace: float,
                 failed: Callable[[BaseException], None], rng: random.Random | None = None) -> None:
        """Nothing is requested before `join`. `grace`: seconds that runs have when a shard is given up. `failed` hears
        of a defect, which ends this replica's part; it must not block."""
        self.sharding = sharding
        self.identity = sharding.identity or own_identity()
        self.namespace = sharding.namespace or client.default_namespace
        self._client, self._clock, self._observer = client, client.clock, client.observer
        self._rng = rng or random.Random()
        self._failed = failed
        self._rules = ShardRules.of(sharding, self.identity, grace)
        self._leases = ShardLeases(client, sharding, self.namespace, self._rules.own_name)
        self._state = ShardState.first(self._rules)
        self._view: tuple[frozenset[int], float] = frozenset(), inf
        """The shards at work, and until when that is so by the clock alone: what each trigger asks for."""
        self._busy = [0] * sharding.shards
        self._lost = [StopToken(clock=self._clock) for _ in range(sharding.shards)]
        self._terms = [0] * sharding.shards
        """How often work for each shard has begun here."""
        self._told: dict[int, int] = {}
        """The shards that the listeners know of, and as of which term."""
        self._listeners: dict[object, Listener] = {}
        self._numbers: list[int] = []
        self._changed = threading.Condition()
        self._changes = 0
        self._threads: list[threading.Thread] = []

    # What one can ask

    @property
    def shards(self) -> frozenset[int]:
        """Those that this replica works for at this moment."""
        at = self._clock.boottime()
        shards, until = self._view
        return shards if at < until else frozenset(n for n in shards if self._state.works(n, at))

    def owned(self, requests: list[ReconcileRequest]) -> list[ReconcileRequest]:
        """As `Share.owned`."""
        mine, shards = self.shards, self.sharding.shards
        return [request for request in requests if shard_of(request.ref.key, shards) in mine] if mine else []

    def run(self, key: Key, body: Callable[[StopToken], Outcome]) -> Outcome | None:
        """As `Share.run`. Blocks as `body` does, and raises what it raises."""
        shard = shard_of(key, self.sharding.shards)
        with self._changed:
            if not self._state.works(shard, self._clock.boottime()):
                return None
            self._busy[shard] += 1
            lost = self._lost[shard]
        token = _work.set(_Work(self, shard))
        try:
            return body(lost)
        finally:
            _work.reset(token)
            with self._changed:
                self._busy[shard] -= 1
                if not self._busy[shard] and shard not in self._state.at_work:
                    self._changes += 1
                    self._changed.notify_all()

    def listen(self, listener: Listener) -> Callable[[], None]:
        """As `Share.listen`. What it has missed it is told as soon as its store is complete: by its first list."""
        key = object()
        with self._changed:
            self._listeners[key] = listener

        def forget() -> None:
            with self._changed:
                self._listeners.pop(key, None)

        return forget

    def guard(self, client: Client) -> Client:
        """`client`, whose writes are refused as the module says."""
        return client.with_layer(only_while_leading(self._may_write_until, self._describe, self._clock))

    # From its beginning to its end

    def join(self) -> None:
        """Take part, in threads. Does not block."""
        self._client.grow(REQUESTS)
        name = self.sharding.name
        bodies = {f"sharding {name}": self._keep_telling,
                  **{f"sharding {name} {number + 1}": self._keep_asking for number in range(REQUESTS)}}
        threads = [threading.Thread(target=partial(self._guarded, body), name=what, daemon=True)
                   for what, body in bodies.items()]
        with self._changed:
            if self._threads or self._state.phase is not Phase.WAITING:
                return
            self._threads = threads
        log.info("sharding %s/%s: %s takes part in %d shards", self.namespace, name, self.identity,
                 self.sharding.shards)
        for n in range(self.sharding.shards):
            self._observer.leadership_changed(self.sharding.election(n).name, False)
        self.step(Join())
        for thread in threads:
            thread.start()

    def quit(self, within: float) -> None:
        """Give up all shards, each when no run of it is left, in `within` seconds at most. Does not block. Safe to
        repeat: a later one can only shorten the time."""
        self.step(Quit(within))

    def close(self, timeout: float) -> None:
        """What is left of `quit` has so many seconds; blocks for them at most, and a moment for its threads."""
        self.quit(timeout)
        patience = time.monotonic() + timeout + _JOIN_SECONDS  # real time: these are threads of the operating system
        for thread in self._threads:
            if thread is not threading.current_thread() and thread.ident is not None:
                thread.join(max(0.0, patience - time.monotonic()))
                if thread.is_alive():
                    log.warning("sharding %s: thread %r does not end", self.sharding.name, thread.name)

    @property
    def has_left(self) -> bool:
        return self._state.phase is Phase.GONE

    def __repr__(self) -> str:
        return f"<Sharder {self.namespace}/{self.sharding.name}: {self._state.phase}, {sorted(self.shards)}>"

    # Steps, for the threads or by hand

    def step(self, happened: Input) -> Action:
        """Let this have happened; what to do."""
        follows: list[Callable[[], object]] = []
        with self._changed:
            before = self._state
            now = Now(self._clock.boottime(), self._clock.now(), self._rng.random())
            state, action = step(self._rules, before, happened, now, self._busy)
            if state != before:
                self._state = state
                self._changes += 1
                self._changed.notify_all()
                follows = self._what_follows(before, state)
        for call in follows:
            call()
        return action

    def perform(self, action: Action) -> Input:
        """Make the request that is asked for; what came of it. Blocks as requests do."""
        match action:
            case Ask(which, request):
                return self._leases.ask(which, request, self._request_timeout(which))
            case ListLeases():
                return self._leases.list(self._longest_request)
            case Delete(name, version):
                return self._leases.delete(name, version, self._longest_request)
        return Tick()

    def tell(self) -> None:
        """Tell the listeners what has come and gone since they were told last. For one thread."""
        with self._changed:
            now = {n: self._terms[n] for n in self._state.at_work}
            listeners = list(self._listeners.values())
        before, self._told = self._told, now
        lost = frozenset(n for n, term in before.items() if now.get(n) != term)
        gained = frozenset(n for n, term in now.items() if before.get(n) != term)
        if lost or gained:
            log.info("sharding %s/%s: works for %d of %d shards%s%s", self.namespace, self.sharding.name, len(now),
                     self.sharding.shards, _names("; gained", gained), _names("; gave up", lost))
        for listener in listeners:
            if lost:
                listener.lost(partial(_is_in, self.sharding.shards, lost))
            if gained:
                listener.gained(partial(_is_in, self.sharding.shards, gained))

    def _what_follows(self, before: ShardState, state: ShardState) -> list[Callable[[], object]]:
        """What is to be done without the lock."""
        follows: list[Callable[[], object]] = []
        self._view = state.at_work, min((state.shards[n].deadline for n in state.at_work), default=inf)
        for n in state.at_work - before.at_work:
            self._terms[n] += 1
        for n in state.held - before.held:
            self._lost[n] = StopToken(clock=self._clock)
        for n in before.held - state.held:
            reason = f"shard {n} of {self.sharding.name} is this replica's no more"
            follows.append(partial(self._lost[n].set, reason))
        follows += [partial(self._observer.leadership_changed, self.sharding.election(n).name, n in state.held)
                    for n in state.held ^ before.held]
        numbers = state.replicas.others_numbers
        if numbers != self._numbers:
            self._numbers = numbers
            follows.append(partial(self._say_numbers, numbers))
        return follows

    def _say_numbers(self, numbers: list[int]) -> None:
        if numbers:
            log.warning("sharding %s/%s: there are replicas with %s shards, and this one has %d: it takes none until "
                        "they have gone", self.namespace, self.sharding.name,
                        " and ".join(map(str, numbers)), self.sharding.shards)
        else:
            log.info("sharding %s/%s: all replicas have %d shards", self.namespace, self.sharding.name,
                     self.sharding.shards)

    # Threads

    def _guarded(self, body: Callable[[], None]) -> None:
        try:
            body()
        except BaseException as error:  # a defect: nobody must go on half alive
            log.critical("sharding %s failed; this replica takes part no more", self.sharding.name, exc_info=error)
            with self._changed:
                before, self._state = self._state, replace(ShardState.first(self._rules), phase=Phase.GONE)
                self._changes += 1
                self._changed.notify_all()
                follows = self._what_follows(before, self._state)
            for call in follows:
                call()
            self._failed(error)

    def _keep_asking(self) -> None:
        happened: Input = Tick()
        while not self.has_left:
            seen = self._changes
            action = self.step(happened)
            if isinstance(action, Wait):
                self._pause(action.until, seen)
                happened = Tick()
            else:
                happened = self.perform(action)
        if not isinstance(happened, Tick):
            self.step(happened)

    def _keep_telling(self) -> None:
        tell_by = inf
        while not self.has_left:
            seen = self._changes
            action = self.step(Look())
            tell_by = min(tell_by, self._clock.boottime() + TOGETHER)
            if not self._state.asking or tell_by <= self._clock.boottime():
                self.tell()
                tell_by = inf
            if isinstance(action, Wait):
                self._pause(min(action.until, tell_by), seen)
        self.tell()

    def _pause(self, until: float, seen: int) -> None:
        """Until that time, or until something has changed since `seen`; `retry` seconds at most, since the time for
        which the machine is suspended does not count here."""
        with self._changed:
            left = min(until - self._clock.boottime(), self._rules.lease.retry)
            if left > 0 and self._changes == seen and not self.has_left:
                self._clock.wait(self._changed, left)

    @property
    def _longest_request(self) -> float:
        """As the elector's: half the renew deadline, so that a second attempt fits in."""
        return max(1.0, self._rules.lease.renew_deadline / 2)

    def _request_timeout(self, which: int) -> float:
        lease = self._state.own if which == OWN else self._state.shards[which]
        if lease.phase not in (LeasePhase.LEADING, LeasePhase.RELEASING):
            return self._longest_request
        return max(0.0, min(self._longest_request, lease.deadline - self._clock.boottime()))

    # The fence

    def _may_write_until(self) -> float | None:
        state, work = self._state, _work.get()
        if work is not None and work.sharder is self:
            return state.writes_until(work.shard)
        if state.phase in (Phase.QUITTING, Phase.GONE):
            return inf
        return state.own.deadline if state.own.phase is LeasePhase.LEADING else None

    def _describe(self) -> str:
        work = _work.get()
        if work is not None and work.sharder is self:
            return (f"shard {work.shard} of {self.namespace}/{self.sharding.name} is not, or no more, that of "
                    f"{self.identity}")
        return f"{self.identity} has no Lease of its own in sharding {self.namespace}/{self.sharding.name}"


def _is_in(shards: int, wanted: frozenset[int], key: Key) -> bool:
    return shard_of(key, shards) in wanted


def _names(what: str, shards: frozenset[int]) -> str:
    return f"{what} {', '.join(map(str, sorted(shards)))}" if shards else ""
