"""`ShardState`: what one of several replicas that share work knows, and what follows from that. `ShardRules`: what of
it does not change. `shard_machine` has the steps."""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from hashlib import sha256
from math import inf
from random import Random

from kubectl_runtime.runtime.manager.lease_machine import LeaseState, Rules
from kubectl_runtime.runtime.manager.lease_machine import Phase as LeasePhase
from kubectl_runtime.runtime.sharding.replicas import Replicas
from kubectl_runtime.runtime.sharding.sharding import Sharding


class Phase(StrEnum):
    """Where a replica stands in its group."""

    WAITING = "waiting for its stores"
    TAKING_PART = "taking part"
    QUITTING = "quitting"
    GONE = "gone"


@dataclass(frozen=True, slots=True)
class ShardRules:
    """What does not change. `lease`: the Leases' times and this replica's name; `own_name`: of its own Lease; `shards`:
    into how many the objects are divided; `grace`: seconds for runs to end when a shard is given up."""

    lease: Rules
    own_name: str
    shards: int
    grace: float
    order: tuple[int, ...]
    """In which it stands for shards: each replica in another, so that they seldom meet."""

    @classmethod
    def of(cls, sharding: Sharding, identity: str, grace: float) -> ShardRules:
        """The rules of `sharding` for the replica `identity`."""
        mark = sha256(identity.encode()).hexdigest()[:16]
        order = list(range(sharding.shards))
        Random(mark).shuffle(order)
        return cls(Rules.of(sharding.election(0), identity), f"{sharding.name}-replica-{mark}", sharding.shards, grace,
                   tuple(order))


@dataclass(frozen=True, slots=True)
class ShardState:
    """What a replica knows. Others may ask `works`, `writes_until` and `held`."""

    replicas: Replicas
    shards: tuple[LeaseState, ...]
    own: LeaseState = field(default_factory=LeaseState)
    phase: Phase = Phase.WAITING
    draining: Mapping[int, float] = field(default_factory=dict)
    """Shards that are being given up, and when at the latest."""
    counted_since: float = inf
    """Since when our own Lease has been good."""
    listed: float = -inf
    """When the last list began that was answered."""
    list_asked: float | None = None
    """When the one began that has not been answered yet."""
    list_at: float = -inf
    """When the next one is due."""
    delete: Mapping[str, str | None] = field(default_factory=dict)
    """Leases to delete, and their versions; `deleting` is asked for."""
    deleting: frozenset[str] = frozenset()
    gone_by: float = inf
    """When this replica is gone, whatever is left."""

    @classmethod
    def first(cls, rules: ShardRules) -> ShardState:
        """The state before anything has happened."""
        replicas = Replicas(rules.lease.identity, rules.shards, rules.lease.lease)
        return cls(replicas, (LeaseState(),) * rules.shards)

    def works(self, shard: int, at: float) -> bool:
        """Whether runs for objects of `shard` may begin at that moment."""
        return shard not in self.draining and self.shards[shard].leads_at(at)

    def writes_until(self, shard: int) -> float | None:
        """Until when runs for objects of `shard` may write; None: not any more."""
        lease = self.shards[shard]
        return lease.deadline if lease.phase is LeasePhase.LEADING else None

    @property
    def held(self) -> frozenset[int]:
        """The shards whose Lease is ours as far as we have noticed, those that are being given up included."""
        return frozenset(n for n, lease in enumerate(self.shards) if lease.phase is LeasePhase.LEADING)

    @property
    def at_work(self) -> frozenset[int]:
        """Those of them that are not being given up."""
        return self.held - self.draining.keys()

    @property
    def quota(self) -> int:
        """How many shards this replica may have; 0 unless it takes part."""
        return self.replicas.quota if self.phase is Phase.TAKING_PART else 0

    def may_take(self, at: float) -> bool:
        """Whether this replica may take further shards at that moment."""
        return (self.phase is Phase.TAKING_PART and self.own.leads_at(at) and self.listed >= self.counted_since
                and not self.replicas.others_numbers)

    @property
    def asking(self) -> int:
        """How many shards are being asked for."""
        return sum(lease.phase is LeasePhase.STANDBY and lease.asked_at is not None for lease in self.shards)

    @property
    def room(self) -> int:
        """How many shards may be asked for besides."""
        return self.quota - len(self.at_work) - self.asking
