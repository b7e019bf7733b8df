"""`Sharding`: how several replicas share the objects of their controllers; `shard_of`: the shard of an object.

Objects are divided into a fixed number of shards. Each shard has a Lease, and its holder works for the objects of the
shard. The number of shards is independent of the number of replicas: replicas come and go, and whole shards move.

    by          an object's shard                            what a replica watches and stores
    name        a rendezvous hash of namespace and name      everything
    namespace   the range in which the hash of its           the objects of its shards, of the kinds that a controller
                namespace is                                 reconciles and owns
    uid         the range in which the hash of its uid is    the objects of its shards, of the kind that a controller
                                                             reconciles

`Replicas` counts the replicas; the count decides how many shards each takes. To be counted, each replica keeps a
labelled Lease of its own. The shards' Leases would not do, since they do not name a replica without shards. Nor would a
Deployment's `replicas`: it counts Pods that do not exist or cannot work, and reading it needs permissions and names
that a program outside of the cluster lacks. A Lease counts until it has been seen unchanged for its own duration, so a
dead replica and its shards expire at the same time. This is evaluated only when a list arrives, so an unreachable API
server makes no replica count as dead.

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
"""The most shards, because each shard costs its holder a request every `retry` seconds."""

_WORD = 4


@dataclass(frozen=True)
class Sharding:
    """Divides the work among replicas: `Sharding("my-operator", shards=16)`. Durations are seconds or `timedelta`.

    All replicas of a group have the same `name` and `namespace` (default: the client's own, which in a cluster is the
    Pod's). `shards` is the number of parts; if it is several times the number of replicas, each replica gets about the
    same share. To change the number, start replicas with the new number beside the old replicas: the new replicas take
    nothing until the last old replica has ended. Each shard has a Lease with the times `lease`, `renew_deadline` and
    `retry` and the `identity` of a `LeaderElection`.

    `by` decides in which shard an object is. "name" divides runs and writes only. "namespace" and "uid" are
    experimental, since the server's feature gate ShardedListAndWatch is alpha. They also divide the watches: a replica
    receives and stores only its own shards. With "namespace" this holds for the kind that a controller reconciles,
    which must be namespaced, and for the kinds that it `owns`. Namespaces whose names differ only in their last letters
    mostly share a shard. With "uid" it holds for the reconciled kind. When a name is created again, the new object may
    belong to another replica while a run for the old object lasts, and only the resourceVersion separates their writes.
    A server without the gate sends everything to each replica, which is logged once. A replica takes no shard while
    other replicas use another division.

    Needs the verbs get, list, create, update and delete on leases. Raises RequestError for a name that is not a label
    value, a number of shards outside of 1 to 256, an unknown `by`, and times that do not fit together.

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
    """The shard, counted from 0, of the object with this namespace and name. Takes about 2 microseconds for 16 shards.

    This is a rendezvous hash (Thaler and Ravishankar, 1996): each shard draws a number from the key, and the highest
    number wins. When shards are added, a key stays or moves to a new shard. All processes on all machines agree. The
    numbers are the words of SHAKE128 of `namespace/name`; a longer output begins with the shorter output, so the
    numbers of existing shards do not change. Cluster-scoped objects have an empty namespace.
    """
    drawn = _words(shards)(shake_128(f"{key[0] or ''}/{key[1]}".encode()).digest(_WORD * shards))
    return drawn.index(max(drawn))


@dataclass(frozen=True, slots=True)
class InShards:
    """Whether the object of a key is in one of the shards `numbers` of `shards`, as `Sharding(by="name")` divides."""

    numbers: frozenset[int]
    shards: int

    def __call__(self, key: Key) -> bool:
        return shard_of(key, self.shards) in self.numbers


@lru_cache(maxsize=16)
def _words(shards: int) -> Callable[[bytes], tuple[int, ...]]:
    return Struct(f"<{shards}I").unpack


OWN = -1
"""The number that stands for the replica's own Lease in place of a shard."""


Division: TypeAlias = tuple[int, str]
"""The number of shards and the `by`. Replicas with different divisions must not work at the same time."""


@dataclass(frozen=True, slots=True)
class Look:
    """Time has passed; the caller makes no requests."""


@dataclass(frozen=True, slots=True)
class Join:
    """This replica can work: its stores are complete."""


@dataclass(frozen=True, slots=True)
class Quit:
    """This replica leaves. `within`: seconds for its runs to end; a later Quit may only shorten them."""

    within: float


@dataclass(frozen=True, slots=True)
class Answered:
    """The request for the Lease of shard `which`, or OWN, succeeded or failed."""

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
    """A listed Lease of the group. `shard`: its shard, None for a replica's own Lease; `shards` and `by`: how its
    writer divides the objects."""

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

# Actions


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
    """Delete the Lease `name`, if it still has this version (None: any version)."""

    name: str
    version: str | None


Action: TypeAlias = Ask | ListLeases | Delete | Wait


FORGOTTEN_AFTER = 10
"""A shard's Lease from another division is deleted after this many lease durations without a change."""


@dataclass(frozen=True, slots=True)
class Seen:
    """A Lease, and since when it has been unchanged."""

    sight: Sight
    since: float
    counts: bool

    def until(self, otherwise: float) -> float:
        """When the Lease expires; `otherwise`: its duration in seconds, if it states none."""
        duration = self.sight.record.duration
        return self.since + (otherwise if duration is None else duration)


@dataclass(frozen=True, slots=True)
class Replicas:
    """The replicas that share the work, as far as this replica has seen. Immutable. `lease`: the duration in seconds
    for a Lease that states none; times are on the caller's clock."""

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
        """Return the replicas after a list, which counts Leases of other replicas and of other divisions' shards."""
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
        """The identities of all replicas of our division, ourselves included, in the same order in every replica."""
        others = {one.sight.record.holder for one in self.seen.values()
                  if one.counts and one.sight.shard is None and one.sight.division == self.division}
        return sorted({self.identity, *others})

    @property
    def other_divisions(self) -> list[Division]:
        """The divisions of replicas that divide differently: beside such a replica, two could work for one object."""
        return sorted({one.sight.division for one in self.seen.values() if one.counts} - {self.division})

    @property
    def quota(self) -> int:
        """The number of shards for this replica. All quotas add up to all shards and differ by at most one."""
        return self.quota_of(self.identity)

    def quota_of(self, member: str) -> int:
        """The quota of one of the `members`."""
        members = self.members
        least, more = divmod(self.shards, len(members))
        return least + (members.index(member) < more)

    def without(self, identities: Collection[str], *, unless_seen_since: float) -> Replicas:
        """The replicas without `identities`; a replica whose own Lease has changed after `unless_seen_since` stays."""
        return replace(self, seen={name: one for name, one in self.seen.items()
                                   if one.sight.record.holder not in identities or one.since > unless_seen_since})

    @property
    def next_end(self) -> float:
        """When the next counted Lease expires, so that a new list is needed."""
        return min((one.until(self.lease) for one in self.seen.values() if one.counts), default=inf)

    def forgotten(self, at: float) -> dict[str, str]:
        """The Leases to delete, with their versions. Leases of dead replicas are deleted at once, so that a new
        replica, which counts each Lease that it sees for the first time, does not count them. Leases of another
        division's shards are deleted when they have been unused for long."""
        return {name: one.sight.version for name, one in self.seen.items() if not one.counts and (
            one.sight.shard is None or at >= one.since + FORGOTTEN_AFTER * (one.until(self.lease) - one.since))}
