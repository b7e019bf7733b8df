"""`step`: a pure function that decides which shards a replica takes, keeps and gives up.

`lease_machine` handles each single Lease: the replica's own Lease and the shards' Leases. This module decides when to
ask for a shard's Lease and when to give the shard up. A shard, as one replica sees it:

    shard      event                                                    -> shard
    away       the Lease is free, the quota has room, no run for the    asking     read the Lease, then write ourselves
               shard is left here, and the replica "may take" (below)              as its holder
    asking     written                                                  at work    runs begin for all its objects
    asking     another holder, conflict, failed                         away       ask again after `retry`, or at expiry
    at work    more shards than the quota, or this replica quits        draining   no new runs begin
    at work,   not renewed before the deadline, or another holder       away       runs are stopped; writes are refused
    draining
    draining   the quota has room again                                 at work    runs begin for all its objects
    draining   no run for the shard is left                             releasing  release the Lease
    draining   `grace` has passed since draining began                  away       runs are stopped; writes are
                                                                                   refused; the Lease expires by itself
    releasing  the Lease is released, or the time for it has passed     away

The replica itself:

    waiting       Join   -> taking part   renews its own Lease; while that is valid, lists all Leases every `retry` s
    any           Quit   -> quitting      deletes its own Lease at once, so that the other quotas grow; its own is 0
    quitting      all shards are away and its own Lease is deleted, or the time is over   -> gone

A *division* is the number of shards and the `by` of a replica's Sharding. A replica *may take* a shard if it takes
part, its own Lease is valid, and a list that began after its own Lease was written has returned no replica with another
division. Of two replicas with different divisions, the replica that starts later finds the other's Lease in its list,
so the two never reconcile at the same time. Within one division the shard's Lease alone ensures that only one replica
reconciles the shard's objects. If objects are divided by ranges (by namespace or uid), the list must have begun at
least `retry` after the replica's own Lease was written, so that replicas that start together see each other first.

The other replicas notice a dead replica within `lease + retry`, when its own Lease and its shards' Leases have expired.
The quotas of all replicas add up to the number of shards, so each shard has a holder within `lease + retry` after a
replica died, and within `retry` after a replica gave the shard up.

A shard is *expected* if its Lease has not been renewed for `renew_deadline`: its holder cannot write any more, and is
probably dead. If objects are divided by ranges, the replica that will take an expected shard lists the shard's objects
before the Lease expires. All replicas compute the same assignment of expected shards.
"""
from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from hashlib import sha256
from math import inf
from random import Random

from kubectl_runtime.manager import lease_machine
from kubectl_runtime.manager.lease_machine import LeaseState, Rules
from kubectl_runtime.manager.lease_machine import Phase as LeasePhase
from kubectl_runtime.manager.leases import Campaign, Leave, Now, Tick, Wait
from kubectl_runtime.manager.sharding import (
    OWN,
    Action,
    Answered,
    Ask,
    Delete,
    Deleted,
    Division,
    Input,
    Join,
    Listed,
    ListLeases,
    Look,
    NotListed,
    Quit,
    Replicas,
    Sharding,
)


class Phase(StrEnum):
    """The phase of a replica in its group."""

    WAITING = "waiting for its stores"
    TAKING_PART = "taking part"
    QUITTING = "quitting"
    GONE = "gone"


@dataclass(frozen=True, slots=True)
class ShardRules:
    """A replica's constants. `lease`: the Leases' times and this replica's identity; `own_name`: the name of the
    replica's own Lease; `shards`: the number of shards; `grace`: seconds that runs get to end when a shard is given
    up."""

    lease: Rules
    own_name: str
    shards: int
    grace: float
    order: tuple[int, ...]
    """The order in which the replica asks for shards. It differs between replicas, so that two replicas seldom ask for
    the same shard."""
    by: str = "name"
    """The property of an object that decides its shard: name, namespace or uid."""

    @property
    def company(self) -> float:
        """Seconds that a replica waits for other replicas to appear before it takes its first shard. If objects are
        divided by ranges, each shard that moves costs a LIST request, so the first of several starting replicas should
        not take all shards."""
        return 0.0 if self.by == "name" else float(self.lease.retry)

    @property
    def division(self) -> Division:
        """How this replica divides the objects."""
        return self.shards, self.by

    @classmethod
    def of(cls, sharding: Sharding, identity: str, grace: float) -> ShardRules:
        """The rules of `sharding` for the replica `identity`."""
        mark = sha256(identity.encode()).hexdigest()[:16]
        order = list(range(sharding.shards))
        Random(mark).shuffle(order)
        return cls(Rules.of(sharding.election(0), identity), f"{sharding.name}-replica-{mark}", sharding.shards, grace,
                   tuple(order), sharding.by)


@dataclass(frozen=True, slots=True)
class ShardState:
    """The state of a replica. Other code may call `works`, `writes_until` and `held`."""

    replicas: Replicas
    shards: tuple[LeaseState, ...]
    own: LeaseState = field(default_factory=LeaseState)
    phase: Phase = Phase.WAITING
    draining: Mapping[int, float] = field(default_factory=dict)
    """The draining shards, each with the latest time at which it is given up."""
    counted_since: float = inf
    """The time since which the replica's own Lease has been valid; `inf` if it is not."""
    listed: float = -inf
    """The time at which the last successful list began."""
    list_asked: float | None = None
    """The time at which the pending list began; None without a pending list."""
    list_at: float = -inf
    """The time at which the next list is due."""
    delete: Mapping[str, str | None] = field(default_factory=dict)
    """The Leases to delete, by name, with their resourceVersions. A Lease moves to `deleting` when its deletion is
    requested."""
    deleting: frozenset[str] = frozenset()
    gone_by: float = inf
    """The time at which this replica leaves, even if it still holds shards."""

    @classmethod
    def first(cls, rules: ShardRules) -> ShardState:
        """The state of a replica before its first step."""
        replicas = Replicas(rules.lease.identity, rules.shards, rules.lease.lease, by=rules.by)
        return cls(replicas, (LeaseState(),) * rules.shards)

    def works(self, shard: int, at: float) -> bool:
        """Whether runs for objects of `shard` may begin at the time `at`."""
        return shard not in self.draining and self.shards[shard].leads_at(at)

    def writes_until(self, shard: int) -> float | None:
        """The time until which runs for objects of `shard` may write; None if they may not."""
        lease = self.shards[shard]
        return lease.deadline if lease.phase is LeasePhase.LEADING else None

    @property
    def held(self) -> frozenset[int]:
        """The shards whose Lease this replica holds, as of its last step; draining shards are included."""
        return frozenset(n for n, lease in enumerate(self.shards) if lease.phase is LeasePhase.LEADING)

    @property
    def at_work(self) -> frozenset[int]:
        """The held shards that are not draining."""
        return self.held - self.draining.keys()

    @property
    def quota(self) -> int:
        """How many shards this replica may have; 0 unless it takes part."""
        return self.replicas.quota if self.phase is Phase.TAKING_PART else 0

    def may_take(self, at: float) -> bool:
        """Whether this replica may take further shards at the time `at`."""
        return (self.phase is Phase.TAKING_PART and self.own.leads_at(at) and self.listed >= self.counted_since
                and not self.replicas.other_divisions)

    def expected(self, rules: ShardRules) -> frozenset[int]:
        """The shards that this replica will probably take when their Leases expire: its share of the shards whose
        Leases have not changed for `renew_deadline`, as of the last list."""
        if rules.by == "name" or self.phase is not Phase.TAKING_PART or self.replicas.other_divisions:
            return frozenset()
        unrenewed_since = self.listed - rules.lease.renew_deadline
        own, held, stale = rules.lease.identity, Counter[str](), dict[int, str]()
        for n, lease in enumerate(self.shards):
            holder = "" if lease.seen is None else lease.seen.holder
            if lease.phase is LeasePhase.STANDBY and holder not in ("", own) and lease.seen_at <= unrenewed_since:
                stale[n] = holder
            else:
                held[holder] += 1
        # A dead replica's last renewals of its Leases are at most `retry` apart. So the holder of a stale Lease counts
        # as living if its own Lease has changed more than `retry` after `unrenewed_since`.
        living = self.replicas.without(stale.values(), unless_seen_since=unrenewed_since + rules.lease.retry)
        takers = [member for member in living.members for _ in range(living.quota_of(member) - held[member])]
        return frozenset(n for n, member in zip(stale, takers, strict=False) if member == own)

    @property
    def asking(self) -> int:
        """The number of shards that this replica is asking for."""
        return sum(lease.phase is LeasePhase.STANDBY and lease.asked_at is not None for lease in self.shards)

    @property
    def room(self) -> int:
        """The number of further shards that this replica may ask for."""
        return self.quota - len(self.at_work) - self.asking


Busy = Sequence[int]
"""This process's number of runs in progress, for each shard."""


def step(rules: ShardRules, state: ShardState, happened: Input, now: Now, busy: Busy
         ) -> tuple[ShardState, Action]:
    """Return the next state and the action. A request in the action counts as begun at `now`. Only a Tick or an answer
    causes a request. Pure."""
    follows: Action = Wait(now.at)
    match happened:
        case Answered(which, answer):
            lease, action = lease_machine.step(rules.lease, _lease(state, which), answer, now)
            state = _with(state, which, lease)
            if not isinstance(action, Wait):
                follows = Ask(which, action)
        case Listed():
            state = _noted(rules, state, happened, now)
        case NotListed():
            state = replace(state, list_asked=None)
        case Deleted(name):
            state = replace(state, deleting=state.deleting - {name})
        case Join() if state.phase is Phase.WAITING:
            state = replace(state, phase=Phase.TAKING_PART)
        case Quit(within):
            state = _quitting(rules, state, now.at + within)
    state = _settled(rules, state, now, busy)
    if not isinstance(follows, Wait):
        return state, follows
    if isinstance(happened, Look | Join | Quit):
        return state, Wait(_next_end(state))
    return _next(rules, state, now, busy)


def _lease(state: ShardState, which: int) -> LeaseState:
    return state.own if which == OWN else state.shards[which]


def _with(state: ShardState, which: int, lease: LeaseState) -> ShardState:
    if which == OWN:
        return replace(state, own=lease)
    return replace(state, shards=(*state.shards[:which], lease, *state.shards[which + 1:]))


def _noted(rules: ShardRules, state: ShardState, happened: Listed, now: Now) -> ShardState:
    """Return the state after a list. If a request for a shard was made since the list began, the request's outcome is
    kept."""
    began = state.list_asked
    assert began is not None, "nothing was listed"
    records = {sight.shard: sight.record for sight in happened.leases
               if sight.shard is not None and sight.division == rules.division}
    shards = tuple(
        lease if lease.phase is not LeasePhase.STANDBY or lease.asked_at is not None or lease.seen_at > began
        else lease_machine.noted(lease, records.get(n), now.at) for n, lease in enumerate(state.shards))
    replicas = state.replicas.listed(happened.leases, now.at)
    delete = {**state.delete, **{name: version for name, version in replicas.forgotten(now.at).items()
                                 if name not in state.deleting}}
    return replace(state, shards=shards, replicas=replicas, listed=began, list_asked=None, delete=delete,
                   list_at=min(state.list_at, replicas.next_end))


def _quitting(rules: ShardRules, state: ShardState, gone_by: float) -> ShardState:
    if state.phase in (Phase.QUITTING, Phase.GONE):
        return replace(state, gone_by=min(state.gone_by, gone_by))
    delete = {rules.own_name: None} if state.own.may_be_ours else {}
    return replace(state, phase=Phase.QUITTING, gone_by=gone_by, delete=delete)


def _settled(rules: ShardRules, state: ShardState, now: Now, busy: Busy) -> ShardState:
    """Return the state after all changes that follow from the time and the quota, without a request."""
    state = _own_settled(rules, state, now)
    state = _shards_settled(rules, state, now)
    held = state.held
    draining = {n: at for n, at in state.draining.items() if n in held}
    excess = len(held) - len(draining) - state.quota
    if excess > 0:
        chosen = sorted(held - draining.keys(), key=lambda n: (busy[n] > 0, -n))[:excess]
        draining |= dict.fromkeys(chosen, now.at + rules.grace)
    while draining and state.quota > len(held) - len(draining):
        del draining[min(draining)]
    for n, give_up_at in draining.items():
        if min(give_up_at, state.gone_by) <= now.at:
            state = _leave(rules, state, n, Leave(release=False, within=0), now)
        elif not busy[n]:
            state = _leave(rules, state, n, Leave(release=True, within=rules.lease.renew_deadline), now)
    if draining or state.draining:
        state = _shards_settled(rules, state, now)
        held = state.held
        state = replace(state, draining={n: at for n, at in draining.items() if n in held})
    if state.phase is Phase.QUITTING and (_has_left(state) or state.gone_by <= now.at):
        for n in range(rules.shards):
            state = _leave(rules, state, n, Leave(release=False, within=0), now)
        state = replace(state, phase=Phase.GONE, draining={})
    return state


def _leave(rules: ShardRules, state: ShardState, shard: int, leave: Leave, now: Now) -> ShardState:
    return _with(state, shard, lease_machine.step(rules.lease, state.shards[shard], leave, now)[0])


def _own_settled(rules: ShardRules, state: ShardState, now: Now) -> ShardState:
    own = lease_machine.expired(state.own, now)
    if own.phase is LeasePhase.LOST:
        own, _ = lease_machine.step(rules.lease, own, Campaign(), now)
    if state.phase in (Phase.QUITTING, Phase.GONE) and own.phase is not LeasePhase.ENDED:
        own, _ = lease_machine.step(rules.lease, own, Leave(release=False, within=0), now)
    since = state.counted_since if own.phase is LeasePhase.LEADING else inf
    if own.phase is LeasePhase.LEADING and since == inf:
        since = now.at
    if own is state.own and since == state.counted_since:
        return state
    return replace(state, own=own, counted_since=since)


def _shards_settled(rules: ShardRules, state: ShardState, now: Now) -> ShardState:
    """Return the state in which the replica may ask again for Leases that it lost or gave up."""
    for n, lease in enumerate(state.shards):
        if lease.phase is LeasePhase.STANDBY:
            continue
        settled = lease_machine.expired(lease, now)
        if settled.phase is LeasePhase.LOST:
            settled, _ = lease_machine.step(rules.lease, settled, Campaign(), now)
        elif settled.phase is LeasePhase.ENDED and settled.asked_at is None:
            settled = LeaseState(seen=settled.seen, seen_at=settled.seen_at)
        if settled is not lease:
            state = _with(state, n, settled)
    return state


def _has_left(state: ShardState) -> bool:
    idle = all(lease.phase in (LeasePhase.STANDBY, LeasePhase.ENDED) and lease.asked_at is None
               for lease in state.shards)
    return idle and not state.delete and not state.deleting


def _next_end(state: ShardState) -> float:
    """The next time at which the state changes without a request."""
    if state.phase is Phase.GONE:
        return inf
    ends = [lease.deadline for lease in (*state.shards, state.own)
            if lease.phase in (LeasePhase.LEADING, LeasePhase.RELEASING)]
    return min((*ends, *state.draining.values(), state.gone_by), default=inf)


def _next(rules: ShardRules, state: ShardState, now: Now, busy: Busy) -> tuple[ShardState, Action]:
    """The most urgent request that is due, or a wait until the next request is due."""
    if state.phase in (Phase.WAITING, Phase.GONE):
        return state, Wait(inf)
    until = inf
    kept = [n for n, lease in enumerate(state.shards) if lease.phase in (LeasePhase.LEADING, LeasePhase.RELEASING)]
    for which in (*([OWN] if state.phase is Phase.TAKING_PART else ()), *kept):
        lease, action = lease_machine.step(rules.lease, _lease(state, which), Tick(), now)
        if not isinstance(action, Wait):
            return _with(state, which, lease), Ask(which, action)
        if lease.asked_at is None:
            until = min(until, action.until)
    if state.phase is Phase.TAKING_PART and state.list_asked is None and state.counted_since < inf:
        if state.list_at <= now.at:
            pause = lease_machine.jittered(rules.lease, now)
            return replace(state, list_asked=now.at, list_at=pause), ListLeases()
        until = min(until, state.list_at)
    if state.room > 0 and state.may_take(now.at) and state.listed >= state.counted_since + rules.company:
        expected = state.expected(rules)
        for which in sorted(rules.order, key=lambda n: n not in expected):
            lease = state.shards[which]
            if lease.phase is LeasePhase.STANDBY and lease.asked_at is None and not busy[which]:
                due = max(lease.next_at, lease_machine.held_until(rules.lease, lease))
                if due <= now.at:
                    lease, action = lease_machine.step(rules.lease, lease, Tick(), now)
                    assert not isinstance(action, Wait)
                    return _with(state, which, lease), Ask(which, action)
                until = min(until, due)
    if state.delete:
        name, version = next(iter(state.delete.items()))
        rest = {other: known for other, known in state.delete.items() if other != name}
        return replace(state, delete=rest, deleting=state.deleting | {name}), Delete(name, version)
    return state, Wait(min(until, state.gone_by))
