"""What happens to a replica that shares work, and what it does: the words of `shard_machine`'s table."""
from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from kubectl_runtime.runtime.manager.lease_events import Answer, Request, Tick, Wait
from kubectl_runtime.runtime.manager.lease_record import LeaseRecord

OWN = -1
"""In place of a shard: the replica's own Lease."""


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
    """A Lease of the group, as it was listed. `shard`: whose it is, None for a replica's own; `shards`: into how many
    its writer divides the objects."""

    name: str
    version: str
    shard: int | None
    shards: int
    record: LeaseRecord


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
