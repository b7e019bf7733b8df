"""`Sharding`: how several replicas share their controllers' objects. `shard_of` returns an object's shard.

Objects are divided into a fixed number of shards. Each shard has a Lease, and the Lease's holder reconciles the shard's
objects. The number of shards is independent of the number of replicas: replicas come and go, and whole shards move.

    by          the shard is decided by                      the objects that a replica watches and stores
    name        a rendezvous hash of namespace and name      all objects
    namespace   the range that contains the hash of the      the objects of its shards, for the kinds that a controller
                namespace                                    reconciles or owns; all objects of other kinds
    uid         the range that contains the hash of the uid  the objects of its shards, for the kind that a controller
                                                             reconciles; all objects of other kinds

`Replicas` counts the replicas; the number decides how many shards each replica takes. To be counted, each replica
renews a labelled Lease of its own. The shards' Leases cannot be used for the count, since they do not name a replica
without shards. A Deployment's `replicas` cannot be used either: it includes Pods that do not exist or do not run, and
reading it needs permissions and names that a program outside of the cluster lacks. A replica's Lease expires when it
has not changed for the duration written in it. A dead replica's own Lease therefore expires at the same time as its
shards' Leases. Expiry is evaluated only when a list arrives, so while the API server is unreachable no replica counts
as dead.

The remaining classes are the inputs and actions in the table of `shard_machine`.
"""
from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import lru_cache
from hashlib import shake_128
from math import inf
from struct import Struct
from typing import TypeAlias, get_args

from kubectl_runtime.core.base.errors import RequestError
from kubectl_runtime.core.base.plain import Key
from kubectl_runtime.core.base.threads import Duration
from kubectl_runtime.core.requests.request import checked_label
from kubectl_runtime.manager.leases import Answer, LeaderElection, LeaseRecord, Request, Tick, Wait
from kubectl_runtime.runtime.controller.plan import Plan, WatchPlan
from kubectl_runtime.runtime.reconcile.runner import DividedBy

MOST_SHARDS = 256
"""The maximum number of shards. It is limited because each shard costs its holder a request every `retry` seconds."""

_WORD = 4


@dataclass(frozen=True)
class Sharding:
    """Divides the controllers' objects among replicas: `Sharding("my-operator", shards=16)`. Durations are seconds or
    `timedelta`.

    All replicas of a group must have the same `name` and `namespace` (default: the client's, in a cluster the Pod's).
    `shards` is the number of parts into which the objects are divided. It should be several times the number of
    replicas, so that each replica has about the same share. To change the number, start replicas with the new number
    beside the old replicas: the new replicas take no shard until the last old replica has ended. Each shard has a
    Lease; `lease`, `renew_deadline`, `retry` and `identity` mean the same as for a `LeaderElection`.

    `by` is the property that decides an object's shard. "name" divides runs and writes, but each replica watches all
    objects. "namespace" and "uid" are experimental, since the server's feature gate ShardedListAndWatch is alpha. They
    also divide the watches: a replica receives and stores only the objects of its own shards. With "namespace" a
    controller's watches of the reconciled kind and of the kinds that it `owns` are divided. The reconciled kind must be
    namespaced. Namespaces whose names differ only in their last letters mostly belong to the same shard. With "uid"
    only the watch of the reconciled kind is divided. If an object is deleted and created again under the same name, the
    new object may belong to another replica while a run for the old object lasts. Then only the resourceVersion
    protects the new object from the old run's writes. A server without the gate sends all objects to each replica,
    which is logged once. A replica takes no shard while other replicas use another number of shards or another `by`.

    Needs the verbs get, list, create, update and delete on leases. Raises RequestError for a name that is not a label
    value, a number of shards outside of 1 to 256, an unknown `by`, and times that contradict each other.

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
            raise RequestError(f"sharding {self.name}: shards must be a whole number from 1 to {MOST_SHARDS}, not "
                               f"{self.shards!r}")
        if self.by not in get_args(DividedBy):
            raise RequestError(f"sharding {self.name}: by must be 'name', 'namespace' or 'uid', not {self.by!r}")
        self.election(0)  # checks the remaining fields

    def election(self, shard: int) -> LeaderElection:
        """The election that decides which replica holds `shard`."""
        by = "" if self.by == "name" else f"-by-{self.by}"
        return LeaderElection(f"{self.name}-{shard}-of-{self.shards}{by}", self.namespace, identity=self.identity,
                              lease=self.lease, renew_deadline=self.renew_deadline, retry=self.retry)


def check_divisible(plan: Plan, sharding: Sharding) -> None:
    """Raise RequestError for a controller whose objects this sharding cannot divide."""
    by, main, name = sharding.by, plan.main, f"controller {plan.name}"
    if by == "name":
        return
    if by == "namespace" and not plan.resource.namespaced:
        raise RequestError(f"{name}: {plan.resource.full_name} is cluster-scoped and cannot be divided by namespace: "
                           'use Sharding(by="uid")')
    if not isinstance(main, WatchPlan):
        raise RequestError(f"{name}: its objects come from a stream of the program, which Sharding(by={by!r}) cannot "
                           'divide: use Sharding(by="name")')
    if any(known.config.shard is not None for known in (main, *plan.related) if known is main or known.is_owned):
        raise RequestError(f"{name}: WatcherConfig(shard=...) divides its objects already, and Sharding(by={by!r}) "
                           "would divide them again: leave out one of them")


def shard_of(key: Key, shards: int) -> int:
    """Return the shard, counted from 0, of the object with this namespace and name. Takes about 2 microseconds for 16
    shards.

    The function is a rendezvous hash (Thaler and Ravishankar, 1996): each shard draws a number from the key, and the
    shard with the highest number wins. When shards are added, a key stays in its shard or moves to one of the new
    shards. The result is the same in all processes. The numbers are the words of SHAKE128 of `namespace/name`. A longer
    output of SHAKE128 begins with the shorter output, so the numbers of existing shards do not change. Cluster-scoped
    objects have an empty namespace.
    """
    drawn = _words(shards)(shake_128(f"{key[0] or ''}/{key[1]}".encode()).digest(_WORD * shards))
    return drawn.index(max(drawn))


@dataclass(frozen=True, slots=True)
class InShards:
    """A function of a key: whether the key's object belongs to one of the shards `numbers` by `Sharding(by="name")`.
    `shards` is the number of all shards."""

    numbers: frozenset[int]
    shards: int

    def __call__(self, key: Key) -> bool:
        return shard_of(key, self.shards) in self.numbers


@lru_cache(maxsize=16)
def _words(shards: int) -> Callable[[bytes], tuple[int, ...]]:
    return Struct(f"<{shards}I").unpack


OWN = -1
"""The number that stands for the replica's own Lease, where otherwise a shard's number is expected."""


Division: TypeAlias = tuple[int, str]
"""The number of shards and the `by` of a Sharding. Replicas with different divisions must not reconcile at the same
time."""


@dataclass(frozen=True, slots=True)
class Look:
    """Time has passed, but the caller cannot make a request."""


@dataclass(frozen=True, slots=True)
class Join:
    """This replica joins the group, since its stores are complete."""


@dataclass(frozen=True, slots=True)
class Quit:
    """This replica leaves. `within`: seconds until it has left; a later Quit may only shorten the time."""

    within: float


@dataclass(frozen=True, slots=True)
class Answered:
    """The request for the Lease of shard `which` succeeded or failed. OWN stands for the replica's own Lease."""

    which: int
    answer: Answer


@dataclass(frozen=True, slots=True)
class Listed:
    """A consistent list of all Leases of the group."""

    leases: tuple[Sight, ...]


@dataclass(frozen=True, slots=True)
class NotListed:
    """The list failed."""


@dataclass(frozen=True, slots=True)
class Deleted:
    """The deletion of this Lease succeeded or failed."""

    name: str


@dataclass(frozen=True, slots=True)
class Sight:
    """A listed Lease of the group. `shard`: the Lease's shard, or None for a replica's own Lease. `shards` and `by`:
    how the replica that wrote the Lease divides the objects."""

    name: str
    version: str
    shard: int | None
    shards: int
    record: LeaseRecord
    by: str = "name"

    @property
    def division(self) -> Division:
        """`shards` and `by`: how the replica that wrote the Lease divides the objects."""
        return self.shards, self.by


Input: TypeAlias = Tick | Look | Join | Quit | Answered | Listed | NotListed | Deleted

# Actions


@dataclass(frozen=True, slots=True)
class Ask:
    """Make this request for the Lease of shard `which`. OWN stands for the replica's own Lease."""

    which: int
    request: Request


@dataclass(frozen=True, slots=True)
class ListLeases:
    """List all Leases of the group."""


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete the Lease `name` if it still has this resourceVersion; None deletes any version."""

    name: str
    version: str | None


Action: TypeAlias = Ask | ListLeases | Delete | Wait


FORGOTTEN_AFTER = 10
"""A shard's Lease from another division is deleted after this many lease durations without a change."""


@dataclass(frozen=True, slots=True)
class Seen:
    """A Lease, and the time since which it has been unchanged."""

    sight: Sight
    since: float
    counts: bool

    def until(self, otherwise: float) -> float:
        """The time at which the Lease expires. `otherwise`: the duration in seconds if the Lease states none."""
        duration = self.sight.record.duration
        return self.since + (otherwise if duration is None else duration)


@dataclass(frozen=True, slots=True)
class Replicas:
    """The replicas of the group, according to the Leases that this replica has listed. Immutable. `lease`: the duration
    in seconds of a Lease that states none. Times are on the caller's clock."""

    identity: str
    shards: int
    lease: int
    seen: Mapping[str, Seen] = field(default_factory=dict)
    by: str = "name"

    @property
    def division(self) -> Division:
        """The number of shards, and the property by which this replica divides the objects among them."""
        return self.shards, self.by

    def listed(self, sights: Iterable[Sight], at: float) -> Replicas:
        """Return the replicas after a list of Leases. The result contains the other replicas' own Leases, and the
        Leases of the shards of other divisions."""
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
        """The identities of all replicas with this replica's division, including this replica. The order is the same in
        every replica."""
        others = {one.sight.record.holder for one in self.seen.values()
                  if one.counts and one.sight.shard is None and one.sight.division == self.division}
        return sorted({self.identity, *others})

    @property
    def other_divisions(self) -> list[Division]:
        """The divisions of replicas that divide the objects differently. Such a replica and this replica could
        reconcile the same object at the same time."""
        return sorted({one.sight.division for one in self.seen.values() if one.counts} - {self.division})

    @property
    def quota(self) -> int:
        """The number of shards that this replica may hold. The quotas of all replicas add up to the number of shards,
        and differ by at most one."""
        return self.quota_of(self.identity)

    def quota_of(self, member: str) -> int:
        """The quota of one of the `members`."""
        members = self.members
        least, more = divmod(self.shards, len(members))
        return least + (members.index(member) < more)

    def without(self, identities: Collection[str], *, unless_seen_since: float) -> Replicas:
        """Return the replicas without the Leases held by `identities`. A Lease that has changed after
        the time `unless_seen_since` is kept."""
        return replace(self, seen={name: one for name, one in self.seen.items()
                                   if one.sight.record.holder not in identities or one.since > unless_seen_since})

    @property
    def next_end(self) -> float:
        """The time at which the next counted Lease expires, so that a new list is needed."""
        return min((one.until(self.lease) for one in self.seen.values() if one.counts), default=inf)

    def forgotten(self, at: float) -> dict[str, str]:
        """The Leases to delete, by name, with their resourceVersions. Dead replicas' Leases are deleted at once,
        because a new replica would count every Lease that it lists for the first time. The Leases of shards
        that belong to another `division` are deleted when they have not changed for `FORGOTTEN_AFTER` lease durations.
        """
        return {name: one.sight.version for name, one in self.seen.items() if not one.counts and (
            one.sight.shard is None or at >= one.since + FORGOTTEN_AFTER * (one.until(self.lease) - one.since))}
