"""`Replicas`: which replicas there are, as one of them sees it: by the Leases that each keeps for itself.

The number of replicas decides how many shards each one takes. It is counted by a Lease for each replica, with a label,
because nothing else says it: who holds no shard yet does not show in the shards' Leases; a Deployment's `replicas`
counts Pods that are not there, or cannot work, and reading it or its Pods needs rights and names that a program which
runs elsewhere does not have. The rule for all Leases is the same: one counts until it has not changed, as far as we
have seen, for the time that is written in it. So a replica that dies is missed at the same time as its shards.

    listed   a Lease that has changed, or is new       counts from now on
             the same                                  counts until its time is over
             without a holder, or none any more        does not count

What a list has shown counts until another list shows it to be over, however long that takes: nobody is taken for dead
because the server does not answer us.
"""
from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import inf

from kubectl_runtime.runtime.sharding.shard_events import Sight

FORGOTTEN_AFTER = 10
"""So many times the time of a Lease after it was last seen to change, one of a shard of another number is deleted."""


@dataclass(frozen=True, slots=True)
class Seen:
    """A Lease, and since when it has been as it is."""

    sight: Sight
    since: float
    counts: bool

    def until(self, otherwise: float) -> float:
        """When its time is over; `otherwise`: seconds, where it does not say."""
        duration = self.sight.record.duration
        return self.since + (otherwise if duration is None else duration)


@dataclass(frozen=True, slots=True)
class Replicas:
    """Which replicas share the work, as far as this one has seen. Immutable. `lease`: the seconds that count where a
    Lease does not say any; times are on the caller's clock."""

    identity: str
    shards: int
    lease: int
    seen: Mapping[str, Seen] = field(default_factory=dict)

    def listed(self, sights: Iterable[Sight], at: float) -> Replicas:
        """What is known after a list, of Leases of other replicas and of shards of another number."""
        seen: dict[str, Seen] = {}
        for sight in sights:
            if sight.record.holder == self.identity or (sight.shard is not None and sight.shards == self.shards):
                continue
            before = self.seen.get(sight.name)
            since = before.since if before is not None and before.sight.record == sight.record else at
            one = Seen(sight, since, counts=False)
            seen[sight.name] = Seen(sight, since, bool(sight.record.holder) and at < one.until(self.lease))
        return Replicas(self.identity, self.shards, self.lease, seen)

    @property
    def members(self) -> list[str]:
        """Who shares our shards, ourselves among them: identities, in an order that is the same for all."""
        others = {one.sight.record.holder for one in self.seen.values()
                  if one.counts and one.sight.shard is None and one.sight.shards == self.shards}
        return sorted({self.identity, *others})

    @property
    def others_numbers(self) -> list[int]:
        """Into how many shards others divide the same objects: as long as there are any, two could work for one."""
        return sorted({one.sight.shards for one in self.seen.values() if one.counts} - {self.shards})

    @property
    def quota(self) -> int:
        """How many shards are ours to take: the quotas of all members together are all shards, and differ by one."""
        members = self.members
        least, more = divmod(self.shards, len(members))
        return least + (members.index(self.identity) < more)

    @property
    def next_end(self) -> float:
        """When the next of those that count has had its time: then a list tells."""
        return min((one.until(self.lease) for one in self.seen.values() if one.counts), default=inf)

    def forgotten(self, at: float) -> dict[str, str]:
        """Leases to delete, and their versions: of dead replicas at once, so that one that comes now does not count
        them for the time of a Lease, as it would anything that it sees for the first time; of shards of another number
        when nobody has used them for long."""
        return {name: one.sight.version for name, one in self.seen.items() if not one.counts and (
            one.sight.shard is None or at >= one.since + FORGOTTEN_AFTER * (one.until(self.lease) - one.since))}
