"""`Sharding`: how several replicas share the objects of their controllers; and `shard_of`: which shard an object is in.

Objects are divided into a fixed number of shards, and each shard has a Lease. Whoever holds it works for the objects of
that shard. The number of shards does not follow the number of replicas: these may come and go, and only shards move,
whole, from one to another.

    by          an object's shard                            what a replica watches and stores
    name        a rendezvous hash of namespace and name      everything
    namespace   the range in which the hash of its           the objects of its shards, of the kinds that a controller
                namespace is                                 reconciles and owns
    uid         the range in which the hash of its uid is    the objects of its shards, of the kind that a controller
                                                             reconciles

What happens to a replica that shares work, and what it does: the words of `shard_machine`'s table.

`Replicas`: which replicas there are, as one of them sees it: by the Leases that each keeps for itself.

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

from collections.abc import Callable, Iterable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from functools import lru_cache
from hashlib import shake_128
from math import inf
from struct import Struct
from typing import TypeAlias, get_args

from kubectl_runtime.core.base.clock import Duration
from kubectl_runtime.core.base.errors import RequestError
from kubectl_runtime.core.base.plain import Key
from kubectl_runtime.core.requests.request import checked_label
from kubectl_runtime.manager.leases import Answer, LeaderElection, LeaseRecord, Request, Tick, Wait
from kubectl_runtime.runtime.controller.plan import Plan, WatchPlan
from kubectl_runtime.runtime.reconcile.runner import DividedBy

MOST_SHARDS = 256
"""Each one costs its holder a request every `retry` seconds."""

_WORD = 4


@dataclass(frozen=True)
class Sharding:
    """How replicas share the work: `Sharding("my-operator", shards=16)`. Durations are seconds or `timedelta`.

    All replicas that share have the same `name` and `namespace` (default: the client's own, which in a cluster is the
    Pod's). `shards` is the number of parts of the objects: take several times the number of replicas, then each
    replica gets about the same share. To change it, start replicas with the new number beside the old ones. They take
    nothing until the last replica with the old number has ended. Each shard has a Lease: `identity`, `lease`,
    `renew_deadline` and `retry` are those of a `LeaderElection`.

    `by`: what decides in which shard an object is. "name" divides runs and writes alone. "namespace" and "uid" are
    experimental, as the server's feature gate ShardedListAndWatch is alpha. They divide the watches as well: a replica
    receives and stores only what is in its shards. By "namespace" this holds for the kind that a controller reconciles,
    which has to be namespaced, and for those that it `owns`; namespaces whose names differ only in their last letters
    mostly share a shard. By "uid" it holds for the reconciled kind. A name that is created again may then belong to
    another replica while a run for the old object lasts: the fence between both is the resourceVersion. A server
    without the gate sends everything to each replica, which is logged once. A replica takes no shard while others
    divide by something else, or into another number.

    Needs the verbs get, list, create, update and delete on leases. Raises RequestError for a name that is not a label
    value, a number of shards outside of 1 to 256, another `by`, and times that do not fit together.

    >>> manager = Manager(client, sharding=Sharding("my-operator", "default", shards=16), serve=None)
    """

    name: str
    namespace: str | None = None
    _: KW_ONLY
    shards: int = 16
    by: DividedBy = "name"
    identity: str | None = None
    lease: Duration = 15
    renew_deadline: Duration = 10
    retry: Duration = 2

    def __post_init__(self) -> None:
        checked_label(self.name, "the name of a sharding")
        if type(self.shards) is not int or not 1 <= self.shards <= MOST_SHARDS:
            raise RequestError(f"sharding {self.name}: shards is a whole number from 1 to {MOST_SHARDS}, not "
                               f"{self.shards!r}")
        if self.by not in get_args(DividedBy):
            raise RequestError(f"sharding {self.name}: objects are divided by name, namespace or uid, not {self.by!r}")
        self.election(0)  # checks the rest

    def election(self, shard: int) -> LeaderElection:
        """The election of a shard's holder."""
        by = "" if self.by == "name" else f"-by-{self.by}"
        return LeaderElection(f"{self.name}-{shard}-of-{self.shards}{by}", self.namespace, identity=self.identity,
                              lease=self.lease, renew_deadline=self.renew_deadline, retry=self.retry)


def check_divisible(plan: Plan, sharding: Sharding) -> None:
    """Raise RequestError for a controller whose objects this sharding cannot divide."""
    by, main, name = sharding.by, plan.main, f"controller {plan.name}"
    if by == "name":
        return
    if by == "namespace" and not plan.resource.namespaced:
        raise RequestError(f"{name}: {plan.resource.full_name} is cluster-scoped and has no namespace to be divided "
                           'by: Sharding(by="uid")')
    if not isinstance(main, WatchPlan):
        raise RequestError(f"{name}: its objects come from a stream of the program, which Sharding(by={by!r}) cannot "
                           'divide: Sharding(by="name")')
    if any(known.config.shard is not None for known in (main, *plan.related) if known is main or known.is_owned):
        raise RequestError(f"{name}: WatcherConfig(shard=...) divides its objects already, and Sharding(by={by!r}) "
                           "would divide them again: leave out one of them")


def shard_of(key: Key, shards: int) -> int:
    """The shard, counted from 0, of the object with this namespace and name. About 2 microseconds for 16 shards.

    A rendezvous hash (Thaler and Ravishankar, 1996): each shard draws a number from the key, and the highest wins. So
    with more shards a key stays where it is or goes to one of the new ones, and it is the same in every process, on
    every machine. The numbers are the words of SHAKE128 of `namespace/name`, of which a longer output begins with the
    shorter one. Cluster-scoped objects have an empty namespace.
    """
    drawn = _words(shards)(shake_128(f"{key[0] or ''}/{key[1]}".encode()).digest(_WORD * shards))
    return drawn.index(max(drawn))


@dataclass(frozen=True, slots=True)
class InShards:
    """Whether the object of a key is in one of these `numbers` of `shards`, as `Sharding(by="name")` divides."""

    numbers: frozenset[int]
    shards: int

    def __call__(self, key: Key) -> bool:
        return shard_of(key, self.shards) in self.numbers


@lru_cache(maxsize=16)
def _words(shards: int) -> Callable[[bytes], tuple[int, ...]]:
    return Struct(f"<{shards}I").unpack


OWN = -1
"""In place of a shard: the replica's own Lease."""


Division: TypeAlias = tuple[int, str]
"""Into how many shards objects are divided, and by what: replicas that differ must not work side by side."""


@dataclass(frozen=True, slots=True)
class Look:
    """Time has passed, and whoever asks makes no requests."""


@dataclass(frozen=True, slots=True)
class Join:
    """This replica can work: its stores are complete."""


@dataclass(frozen=True, slots=True)
class Quit:
    """This replica takes no more part. `within`: seconds for its runs to end; a later one may only shorten them."""

    within: float


@dataclass(frozen=True, slots=True)
class Answered:
    """The request for the Lease of shard `which`, or OWN, was answered, or failed."""

    which: int
    answer: Answer


@dataclass(frozen=True, slots=True)
class Listed:
    """All Leases of the group, in one moment."""

    leases: tuple[Sight, ...]


@dataclass(frozen=True, slots=True)
class NotListed:
    """The list failed."""


@dataclass(frozen=True, slots=True)
class Deleted:
    """The deletion of this Lease was answered, or failed."""

    name: str


@dataclass(frozen=True, slots=True)
class Sight:
    """A Lease of the group, as it was listed. `shard`: whose it is, None for a replica's own; `shards` and `by`: into
    how many its writer divides the objects, and by what."""

    name: str
    version: str
    shard: int | None
    shards: int
    record: LeaseRecord
    by: str = "name"

    @property
    def division(self) -> Division:
        """How its writer divides the objects."""
        return self.shards, self.by


Input: TypeAlias = Tick | Look | Join | Quit | Answered | Listed | NotListed | Deleted

# What to do.


@dataclass(frozen=True, slots=True)
class Ask:
    """Make this request for the Lease of shard `which`, or OWN."""

    which: int
    request: Request


@dataclass(frozen=True, slots=True)
class ListLeases:
    """List all Leases of the group."""


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete the Lease `name`, if it still has this version (None: whatever it is)."""

    name: str
    version: str | None


Action: TypeAlias = Ask | ListLeases | Delete | Wait


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
    by: str = "name"

    @property
    def division(self) -> Division:
        """How this replica divides the objects."""
        return self.shards, self.by

    def listed(self, sights: Iterable[Sight], at: float) -> Replicas:
        """What is known after a list, of Leases of other replicas and of shards of another number."""
        seen: dict[str, Seen] = {}
        for sight in sights:
            if sight.record.holder == self.identity or (sight.shard is not None and sight.division == self.division):
                continue
            before = self.seen.get(sight.name)
            since = before.since if before is not None and before.sight.record == sight.record else at
            one = Seen(sight, since, counts=False)
            seen[sight.name] = Seen(sight, since, bool(sight.record.holder) and at < one.until(self.lease))
        return Replicas(self.identity, self.shards, self.lease, seen, self.by)

    @property
    def members(self) -> list[str]:
        """Who shares our shards, ourselves among them: identities, in an order that is the same for all."""
        others = {one.sight.record.holder for one in self.seen.values()
                  if one.counts and one.sight.shard is None and one.sight.division == self.division}
        return sorted({self.identity, *others})

    @property
    def other_divisions(self) -> list[Division]:
        """How others divide the same objects: as long as there are any, two could work for one."""
        return sorted({one.sight.division for one in self.seen.values() if one.counts} - {self.division})

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
