"""`Sharding`: how several replicas share the objects of their controllers; and `shard_of`: which shard an object is in.

Objects are divided into a fixed number of shards by their namespace and name, and each shard has a Lease. Whoever holds
it works for the objects of that shard. The number of shards does not follow the number of replicas: these may come and
go, and only shards move, whole, from one to another.
"""
from __future__ import annotations

from collections.abc import Callable, Container
from dataclasses import KW_ONLY, dataclass
from functools import lru_cache
from hashlib import shake_128
from struct import Struct

from kubectl_runtime.core.base.clock import Duration
from kubectl_runtime.core.base.errors import RequestError
from kubectl_runtime.core.base.keys import Key
from kubectl_runtime.core.requests.names import checked_label
from kubectl_runtime.runtime.manager.leader_election import LeaderElection

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

    Needs the verbs get, list, create, update and delete on leases. Raises RequestError for a name that is not a label
    value, a number of shards outside of 1 to 256, and times that do not fit together.

    >>> manager = Manager(client, sharding=Sharding("my-operator", "default", shards=16), serve=None)
    """

    name: str
    namespace: str | None = None
    _: KW_ONLY
    shards: int = 16
    identity: str | None = None
    lease: Duration = 15
    renew_deadline: Duration = 10
    retry: Duration = 2

    def __post_init__(self) -> None:
        checked_label(self.name, "the name of a sharding")
        if type(self.shards) is not int or not 1 <= self.shards <= MOST_SHARDS:
            raise RequestError(f"sharding {self.name}: shards is a whole number from 1 to {MOST_SHARDS}, not "
                               f"{self.shards!r}")
        self.election(0)  # checks the rest

    def election(self, shard: int) -> LeaderElection:
        """The election of a shard's holder."""
        return LeaderElection(f"{self.name}-{shard}-of-{self.shards}", self.namespace, identity=self.identity,
                              lease=self.lease, renew_deadline=self.renew_deadline, retry=self.retry)


def shard_of(key: Key, shards: int) -> int:
    """The shard, counted from 0, of the object with this namespace and name. About 2 microseconds for 16 shards.

    A rendezvous hash (Thaler and Ravishankar, 1996): each shard draws a number from the key, and the highest wins. So
    with more shards a key stays where it is or goes to one of the new ones, and it is the same in every process, on
    every machine. The numbers are the words of SHAKE128 of `namespace/name`, of which a longer output begins with the
    shorter one. Cluster-scoped objects have an empty namespace.
    """
    drawn = _words(shards)(shake_128(f"{key[0] or ''}/{key[1]}".encode()).digest(_WORD * shards))
    return drawn.index(max(drawn))


def is_in(wanted: Container[int], shards: int, key: Key) -> bool:
    """Whether the object is in one of the `wanted` shards."""
    return shard_of(key, shards) in wanted


@lru_cache(maxsize=16)
def _words(shards: int) -> Callable[[bytes], tuple[int, ...]]:
    return Struct(f"<{shards}I").unpack
