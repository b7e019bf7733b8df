"""`Sharder`: takes part in a sharding for one replica, with threads of its own.

    thread                 task                                                     ends
    "sharding NAME 1" ...  makes the requests of `shard_machine`                    when the replica has left
    "sharding NAME"        notices deadlines, also while requests hang; notifies    when the replica has left
                           the controllers of gained and lost shards

Controllers are notified of changes in order, by one thread. Whether a run may begin is decided by the current state,
even before the controller is notified.

`ShardLeases` carries out the requests of the shard machine on these Leases. All of them have the label
sharding.kubectl-runtime.dev/name: my-operator

    my-operator-3-of-16             one for each shard, held by the replica that reconciles the shard's objects
    my-operator-3-of-16-by-uid      the same if objects are divided by uid; `-by-namespace` if by namespace
    my-operator-replica-<hash>      one for each replica, labelled with its number of shards and `by`

One LIST request returns the Leases of all replicas and shards. The list is consistent (no resourceVersion), so that
replicas with different numbers of shards never reconcile at the same time.

`Sharder.guard` uses the same fence as an election (`only_while_leading`), applied to the shard of the run that writes:

- A write by a run is sent if this replica holds the shard of the run's object and the write begins before the deadline
  of the shard's Lease. Otherwise the write raises NotLeaderError, and nothing is sent. Once the shard is lost, all
  later writes of the run are refused: this replica does not take the shard again while the run lasts.
- A write outside of a run is sent while this replica's own Lease is valid. It is also sent after the replica has begun
  to quit, even if the Lease has expired or is deleted. Threads that a reconciler started count as outside of the run,
  since the run's object is not known there. A thread with a copy of the run's context (`contextvars.copy_context`,
  `asyncio.to_thread`) counts as part of the run while the run lasts.
- A read is always sent.

A run's write is refused through `ctx.client` and also through the client that the program passed to the Manager. As in
an election, the shard can still be lost between the check and the arrival of the write at the server. In that case a
resourceVersion in the write protects the object. A blind write (apply, merge patch, delete without preconditions) is
not protected.
"""
from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from http import HTTPStatus
from math import inf

from kubectl_runtime.client.api.api import Api
from kubectl_runtime.client.api.client import Client
from kubectl_runtime.core.base.errors import ApiError, KubeError
from kubectl_runtime.core.base.guard import guarded_logger
from kubectl_runtime.core.base.plain import Key
from kubectl_runtime.core.base.threads import Thread, renewed_in_children, seconds
from kubectl_runtime.core.requests.params import DeleteParams, ListParams, Preconditions
from kubectl_runtime.core.scope import StopToken, current_scope
from kubectl_runtime.manager.elector import only_while_leading
from kubectl_runtime.manager.lease_machine import Phase as LeasePhase
from kubectl_runtime.manager.lease_machine import held_until
from kubectl_runtime.manager.leases import LeaseRecord, LeaseStore, Now, Request, Tick, Trouble, Wait, own_identity
from kubectl_runtime.manager.shard_machine import Phase, ShardRules, ShardState, step
from kubectl_runtime.manager.sharding import (
    MOST_SHARDS,
    OWN,
    Action,
    Answered,
    Ask,
    Delete,
    Deleted,
    Division,
    Input,
    InShards,
    Join,
    Listed,
    ListLeases,
    Look,
    NotListed,
    Quit,
    Sharding,
    Sight,
    shard_of,
)
from kubectl_runtime.resources.coordination_v1 import Lease
from kubectl_runtime.runtime.reconcile.runner import DividedBy, PartitionListener
from kubectl_runtime.runtime.triggers.triggers import ReconcileRequest

NAME = "sharding.kubectl-runtime.dev/name"
SHARDS = "sharding.kubectl-runtime.dev/shards"
BY = "sharding.kubectl-runtime.dev/by"
"""The label is only informative, since the value of the label SHARDS also depends on `by`."""
NUMBERED_FROM = {"name": 0, "namespace": 1000, "uid": 2000}
"""The number that is added to the number of shards in the label SHARDS. A replica with an older version of this
library, which divides only by name, therefore reads a different number of shards, and does not reconcile at the same
time."""
SHARD = "sharding.kubectl-runtime.dev/shard"
"""A label that only the Leases of shards have."""


class ShardLeases:
    """Reads and writes the Leases of a group, with one request per Lease at a time. Thread-safe; raises nothing."""

    def __init__(self, client: Client, sharding: Sharding, namespace: str, own_name: str) -> None:
        """Sends no request. `own_name`: the name of the replica's own Lease."""
        self._api = Api.namespaced(client, Lease, namespace)
        whose, repeated_within = f"sharding {namespace}/{sharding.name}", seconds(sharding.renew_deadline)
        self.trouble = Trouble(whose, client.clock, repeated_within)
        self._deletions = Trouble(whose, client.clock, repeated_within)
        """Records failed deletions separately, since a failed deletion does not keep the replica from taking part."""
        labels = {NAME: sharding.name, SHARDS: str(NUMBERED_FROM[sharding.by] + sharding.shards), BY: sharding.by}
        self._params = ListParams(label_selector={NAME: sharding.name})
        self._stores = {n: LeaseStore(client, sharding.election(n).name, namespace, self.trouble,
                                      labels={**labels, SHARD: str(n)}) for n in range(sharding.shards)}
        self._stores[OWN] = LeaseStore(client, own_name, namespace, self.trouble, labels=labels)

    def perform(self, action: Action, timeout: float) -> Input:
        """Make the requested call and return its outcome."""
        match action:
            case Ask(which, request):
                return self.ask(which, request, timeout)
            case ListLeases():
                return self.list(timeout)
            case Delete(name, version):
                return self.delete(name, version, timeout)
        return Tick()

    def ask(self, which: int, request: Request, timeout: float) -> Answered:
        """Make the request for a Lease. Blocks for `timeout` seconds at most, like the other methods."""
        return Answered(which, self._stores[which].perform(request, timeout))

    def list(self, timeout: float) -> Listed | NotListed:
        """List all Leases of the group."""
        try:
            sights = tuple(sight for lease in self._api.list(self._params, timeout=timeout)
                           if (sight := _sight(lease)) is not None)
        except BaseException as error:  # noqa: BLE001 - layers, credentials and observers are other people's code
            self.trouble.failed("", ListLeases(), error)
            return NotListed()
        self.trouble.worked("", ListLeases())
        return Listed(sights)

    def delete(self, name: str, version: str | None, timeout: float) -> Deleted:
        """Delete a Lease, unless it has changed or is gone. A failure is only logged, since a leftover Lease no longer
        counts once it has expired."""
        guard = None if version is None else Preconditions(resource_version=version)
        try:
            self._api.delete(name, DeleteParams(preconditions=guard), timeout=timeout)
        except BaseException as error:  # noqa: BLE001 - as above
            if not isinstance(error, ApiError) or error.code not in (HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT):
                self._deletions.failed(name, Delete(name, version), error)
        return Deleted(name)


def _sight(lease: Lease) -> Sight | None:
    """Read a listed Lease. Returns None if the Lease has the label but was not written by a replica."""
    try:
        shard, number = lease.labels.get(SHARD), int(lease.labels.get(SHARDS, ""))
        by = next((by for by, start in NUMBERED_FROM.items() if start < number <= start + MOST_SHARDS), "")
        return Sight(lease.name or "", lease.resource_version or "", None if shard is None else int(shard),
                     number - NUMBERED_FROM.get(by, 0), LeaseRecord.of(lease), by)
    except (ValueError, KubeError):
        return None


log = guarded_logger(__name__)

REQUESTS = 4
"""The number of concurrent requests. There are several, so that a hanging request does not keep other Leases from being
renewed."""

TOGETHER = 0.5
"""Seconds for which gained shards are collected into one notification, since a listener goes through all objects for
each notification."""
_JOIN_SECONDS = 2.0


class Sharder:
    """The `Partition` of each controller of a manager whose replicas share the objects. Thread-safe."""

    def __init__(self, client: Client, sharding: Sharding, *, grace: float,
                 failed: Callable[[BaseException], None], rng: random.Random | None = None) -> None:
        """Makes no request before `join`. `grace`: seconds that runs get to end when a shard is given up. If a bug ends
        this replica's participation, `failed` is called with the exception; `failed` must not block."""
        self.sharding = sharding
        self.namespace = sharding.namespace or client.default_namespace
        self._client, self._clock, self._observer = client, client.clock, client.observer
        self._rng, self._failed, self._grace = rng or random.Random(), failed, grace
        self._begin_as_another()
        self._fence = only_while_leading(self._may_write_until, self._why_not, client.clock)
        self._view: tuple[frozenset[int], float] = frozenset(), inf
        """The shards at work, and the earliest deadline of their Leases. Every trigger reads this value, so it is
        computed in advance."""
        self._busy = [0] * sharding.shards
        self._lost = [StopToken(clock=self._clock) for _ in range(sharding.shards)]
        self._terms = [0] * sharding.shards
        """By shard, how many times the shard has entered the state "at work" in this process."""
        self._holds = [0] * sharding.shards
        """By shard, how many times this replica has acquired the shard's Lease."""
        self._told: dict[int, int] = {}
        """The shards at work known to the listeners, each with its number in `_terms`."""
        self._told_held: dict[int, int] = {}
        """The held shards known to the listeners, draining shards included, each with its number in `_holds`."""
        self._told_expected = InShards(frozenset(), sharding.shards)
        self._listeners: dict[object, PartitionListener] = {}
        self._fresh: set[object] = set()
        """Listeners that have not been notified of anything yet."""
        self._divisions: list[Division] = []
        self._changed = threading.Condition()
        self._changes = 0
        self._threads: list[Thread] = []
        renewed_in_children(self)

    def renew(self) -> None:
        """In a forked child process, become another replica, since the shards held so far belong to the parent."""
        self._changed, self._view = threading.Condition(), (frozenset(), inf)
        self._begin_as_another()

    def _begin_as_another(self) -> None:
        self.identity = self.sharding.identity or own_identity()
        self._rules = ShardRules.of(self.sharding, self.identity, self._grace)
        self._leases = ShardLeases(self._client, self.sharding, self.namespace, self._rules.own_name)
        self._state = ShardState.first(self._rules)

    # Queries

    @property
    def by(self) -> DividedBy:
        """Like `Partition.by`."""
        return self.sharding.by

    @property
    def parts(self) -> int:
        """Like `Partition.parts`."""
        return self.sharding.shards

    @property
    def shards(self) -> frozenset[int]:
        """The shards whose objects this replica reconciles now."""
        at = self._clock.boottime()
        shards, until = self._view
        return shards if at < until else frozenset(n for n in shards if self._state.works(n, at))

    @property
    def replicas(self) -> dict[str, list[int]]:
        """The shards that each replica holds, by the replica's identity, according to the Leases seen so far. Does not
        block."""
        state, at = self._state, self._clock.boottime()
        found: dict[str, list[int]] = {member: [] for member in state.replicas.members}
        for n, lease in enumerate(state.shards):
            if lease.leads_at(at):
                found[self.identity].append(n)
            elif lease.seen is not None and held_until(self._rules.lease, lease) > at:
                found.setdefault(lease.seen.holder, []).append(n)
        return found

    @property
    def trouble(self) -> str:
        """Why this replica cannot take part: the failing request for a Lease. Empty while requests succeed, and once
        the replica has left. Does not block."""
        return "" if self.has_left else self._leases.trouble.reason

    def owned(self, requests: list[ReconcileRequest]) -> list[ReconcileRequest]:
        """Like `Partition.owned`."""
        mine, shards = self.shards, self.sharding.shards
        return [request for request in requests if shard_of(request.ref.key, shards) in mine] if mine else []

    def begin(self, key: Key) -> StopToken | None:
        """Like `Partition.begin`."""
        return self.begin_in(shard_of(key, self.sharding.shards))

    def end(self, key: Key) -> None:
        """Like `Partition.end`."""
        self.end_in(shard_of(key, self.sharding.shards))

    def begin_in(self, shard: int) -> StopToken | None:
        """Begin a run for an object of `shard`, like `Partition.begin`."""
        with self._changed:
            if not self._state.works(shard, self._clock.boottime()):
                return None
            self._busy[shard] += 1
            return self._lost[shard]

    def end_in(self, shard: int) -> None:
        """End a run for an object of `shard`, like `Partition.end`."""
        with self._changed:
            self._busy[shard] -= 1
            if not self._busy[shard] and shard not in self._state.at_work:
                self._changes += 1
                self._changed.notify_all()

    def listen(self, listener: PartitionListener) -> Callable[[], None]:
        """Like `Partition.listen`. With `by="name"`, a new listener is not notified of the shards that are already at
        work, since its first list covers them. With any other `by`, it is notified."""
        key = object()
        with self._changed:
            self._listeners[key] = listener
            if self.by != "name":
                self._fresh.add(key)
                self._changes += 1
                self._changed.notify_all()

        def forget() -> None:
            with self._changed:
                self._listeners.pop(key, None)

        return forget

    def guard(self, client: Client) -> Client:
        """Return a copy of `client` that refuses writes as the module's docstring describes."""
        return client.with_layer(self._fence)

    def _shard_of_run(self) -> int | None:
        """The shard of the run in which this thread is; None outside of runs that this sharder allowed."""
        scope = current_scope()
        if scope is None or scope.run is None or self._fence not in scope.fences:
            return None
        return shard_of(scope.run.key, self.sharding.shards) if self.sharding.by == "name" else scope.shard

    def _may_write_until(self) -> float | None:
        state, shard = self._state, self._shard_of_run()
        if shard is not None:
            return state.writes_until(shard)
        if state.phase in (Phase.QUITTING, Phase.GONE):
            return inf
        return state.own.deadline if state.own.phase is LeasePhase.LEADING else None

    def _why_not(self) -> str:
        group, shard = f"{self.namespace}/{self.sharding.name}", self._shard_of_run()
        if shard is not None:
            return f"shard {shard} of {group} does not (or no longer) belong to {self.identity}"
        return f"{self.identity} has no Lease of its own in sharding {group}"

    # Lifecycle

    def join(self) -> None:
        """Join the group and start the threads. Does not block."""
        self._client.grow(REQUESTS)
        name = self.sharding.name
        bodies = {f"sharding {name}": self._keep_telling,
                  **{f"sharding {name} {number + 1}": self._keep_asking for number in range(REQUESTS)}}
        threads = [Thread(target=partial(self._guarded, body), name=what, daemon=True)
                   for what, body in bodies.items()]
        with self._changed:
            if self._threads or self._state.phase is not Phase.WAITING:
                return
            self._threads = threads
        log.info("sharding %s/%s: %s takes part", self.namespace, name, self.identity)
        for n in range(self.sharding.shards):
            self._observer.leadership_changed(self.sharding.election(n).name, False)
        self.step(Join())
        for thread in threads:
            thread.start()

    def quit(self, within: float) -> None:
        """Begin to give up all shards, each as soon as its runs have ended, at the latest after `within` seconds. Does
        not block. A later call can only shorten the time."""
        self.step(Quit(within))

    def close(self, timeout: float) -> None:
        """Quit, and block until this replica has left and its threads have ended, at most for `timeout` + 2 seconds."""
        timeout = 0.0 if self._client.is_closed else timeout  # a closed client cannot release anything
        self.quit(timeout)
        patience = time.monotonic() + timeout + _JOIN_SECONDS  # real time, as join uses
        for thread in self._threads:
            if thread is not threading.current_thread() and thread.ident is not None:
                thread.join(max(0.0, patience - time.monotonic()))
                if thread.is_alive():
                    log.warning("sharding %s: thread %r does not end", self.sharding.name, thread.name)
        if self._threads:
            for n in range(self.sharding.shards):
                self._observer.election_ended(self.sharding.election(n).name)

    def owns(self, thread: threading.Thread) -> bool:
        """Whether `thread` belongs to the sharder."""
        return thread in self._threads

    @property
    def has_left(self) -> bool:
        """Whether all shards have been given up permanently."""
        return self._state.phase is Phase.GONE

    # Steps, for the threads or for tests

    def step(self, happened: Input) -> Action:
        """Process an input and return the action."""
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
        """Make the requested call and return its outcome. Blocks for the request."""
        which = action.which if isinstance(action, Ask) else None
        return self._leases.perform(action, self._request_timeout(which))

    def tell(self) -> None:
        """Notify the listeners of shards gained and lost since the last notification. Only one thread may call it."""
        with self._changed:
            state = self._state
            now = {n: self._terms[n] for n in state.at_work}
            held = {n: self._holds[n] for n in state.held}
            expected = InShards(state.expected(self._rules), self.sharding.shards)
            fresh, self._fresh = self._fresh, set()
            listeners = [listener for key, listener in self._listeners.items() if key not in fresh]
            newcomers = [listener for key, listener in self._listeners.items() if key in fresh]
        before, self._told = self._told, now
        held_before, self._told_held = self._told_held, held
        left = frozenset(n for n, hold in held_before.items() if held.get(n) != hold)
        lost = frozenset(n for n, term in before.items() if now.get(n) != term)
        gained = frozenset(n for n, term in now.items() if before.get(n) != term)
        # A lost shard was given up on purpose if it is draining, releasing or released, or if this replica quits. All
        # other lost shards were taken away.
        taken = frozenset(n for n in lost if n not in state.draining and state.shards[n].phase in (
            LeasePhase.STANDBY, LeasePhase.LOST, LeasePhase.LEADING) and state.phase is Phase.TAKING_PART)
        if lost or gained:
            log.log(logging.WARNING if taken else logging.INFO, "sharding %s/%s: works for %d of %d shards%s%s%s",
                    self.namespace, self.sharding.name, len(now), self.sharding.shards, _names("; gained", gained),
                    _names("; gave up", lost - taken), _names("; lost", taken))
        for listener in listeners:
            if lost:
                listener.lost(InShards(lost, self.sharding.shards))
            if left:
                listener.left(InShards(left, self.sharding.shards))
            if gained:
                listener.gained(InShards(gained, self.sharding.shards))
        for listener in newcomers:
            if now:
                listener.gained(InShards(frozenset(now), self.sharding.shards))
        if expected != self._told_expected:
            self._told_expected = expected
            for listener in (*listeners, *newcomers):
                listener.expected(expected)

    def _what_follows(self, before: ShardState, state: ShardState) -> list[Callable[[], object]]:
        """Update what depends on the state, and return the calls that must be made without the lock."""
        follows: list[Callable[[], object]] = []
        self._view = state.at_work, min((state.shards[n].deadline for n in state.at_work), default=inf)
        for n in state.at_work - before.at_work:
            self._terms[n] += 1
        for n in state.held - before.held:
            self._lost[n] = StopToken(clock=self._clock)
            self._holds[n] += 1
        for n in before.held - state.held:
            reason = f"shard {n} of {self.sharding.name} no longer belongs to this replica"
            follows.append(partial(self._lost[n].set, reason))
        follows += [partial(self._observer.leadership_changed, self.sharding.election(n).name, n in state.held)
                    for n in state.held ^ before.held]
        divisions = state.replicas.other_divisions
        if divisions != self._divisions:
            self._divisions = divisions
            follows.append(partial(self._say_divisions, divisions))
        return follows

    def _say_divisions(self, divisions: list[Division]) -> None:
        name, own = f"{self.namespace}/{self.sharding.name}", self._rules.division
        if divisions:
            log.warning("sharding %s: some replicas divide the work into %s, but this replica into %s: it takes no "
                        "shards until the others have ended", name,
                        " and into ".join(_division(one, own) for one in divisions), _division(own, own))
        else:
            log.info("sharding %s: all replicas now divide the work into %s", name, _division(own, own))

    # Threads

    def _guarded(self, body: Callable[[], None]) -> None:
        try:
            body()
        except BaseException as error:  # a bug has ended this thread: the replica leaves the group
            log.critical("sharding %s failed; this replica no longer takes part", self.sharding.name, exc_info=error)
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
            if not self._state.asking or self._has_lost or tell_by <= self._clock.boottime():
                self.tell()
                tell_by = inf
            if isinstance(action, Wait):
                self._pause(min(action.until, tell_by), seen)
        self.tell()

    @property
    def _has_lost(self) -> bool:
        """Whether a lost shard has not been reported to the listeners yet. A loss must be reported at once, a gain can
        wait."""
        return not (self._told.keys() <= self._state.at_work and self._told_held.keys() <= self._state.held)

    def _pause(self, until: float, seen: int) -> None:
        """Wait until the time `until`, or until `_changes` differs from `seen`. Wait at most `retry` seconds, since the
        wait does not count time for which the machine is suspended."""
        with self._changed:
            left = min(until - self._clock.boottime(), self._rules.lease.retry)
            if left > 0 and self._changes == seen and not self.has_left:
                self._clock.wait(self._changed, left)

    def _request_timeout(self, which: int | None) -> float:
        state = self._state
        lease = None if which is None else state.own if which == OWN else state.shards[which]
        return self._rules.lease.request_timeout(lease, self._clock.boottime())


def _names(what: str, shards: frozenset[int]) -> str:
    return f"{what} {', '.join(map(str, sorted(shards)))}" if shards else ""


def _division(one: Division, own: Division) -> str:
    """Describe a division. "by name" is left out if our own division is also by name."""
    number, by = one
    return f"{number} shards" + (f" by {by or 'something else'}" if (by, own[1]) != ("name", "name") else "")
