"""The states, inputs and steps of the watch machine: values. `watch_machine` says what follows from them."""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from kubectl_runtime.client.api.paging import TokenTrail
from kubectl_runtime.core.base.errors import KubeError
from kubectl_runtime.core.codec.record import Record
from kubectl_runtime.runtime.watcher.event import Event, Failed
from kubectl_runtime.runtime.watcher.watch_api import WatchBatch

MIN_WATCH_SECONDS = 1.0
"""A watch that ends earlier is a failure if it brought nothing new; else the next one waits until then."""
MAX_PAGED_TRIES = 3
MAX_STREAMED_TRIES = 3
"""Streaming lists that break off before their end, in a row, until the list is asked for in pages."""
MAX_STALLS = 5
INITIAL_EVENTS_SECONDS = 30.0
"""So long a streaming list may take to say that it is complete."""


class WatchError(KubeError):
    """The server answered, but not as a watch or list has to be: a version is missing, a watch ends at once."""


@dataclass(frozen=True, slots=True)
class Listing:
    """Wants a page. `first`: no list was complete yet, and none was refused, so an old one may do."""

    token: str | None = None
    first: bool = False
    expired: int = 0
    trail: TokenTrail = field(default=TokenTrail(), compare=False)
    suspect: bool = False
    """Versions that are the same as before prove nothing (see `event.Init`)."""
    unfinished: int = 0
    """Streaming lists in a row that broke off."""
    in_pages: bool = False
    """A streaming list was refused."""

    @property
    def paged(self) -> bool:
        """Whether the list is asked for in pages: not after pages expired too often."""
        return self.expired < MAX_PAGED_TRIES


@dataclass(frozen=True, slots=True)
class Streaming:
    """A watch that begins with the present objects is open since `opened`: they come in place of the pages of
    `listing`."""

    listing: Listing
    opened: float
    server: str = ""


@dataclass(frozen=True, slots=True)
class Listed:
    """Wants a watch from `version`. `stalls`: failures in a row since something new was seen. `server`: what the server
    of the watch before said of itself, if anything. `doubt`: the connection failed, so the server may have gone back to
    older data meanwhile."""

    version: str
    not_before: float = 0.0
    stalls: int = 0
    server: str = ""
    doubt: bool = False


@dataclass(frozen=True, slots=True)
class Watching:
    """A watch is open since `opened`; `began` is the version it was opened with. With `doubt` it first wants to know
    the server's own version. `shortest`: seconds before which its end is premature. `stranger`: what the server says of
    itself while it is not certain that this is the cluster of the watch before; until then `server` is the earlier
    name."""

    version: str
    began: str
    opened: float
    stalls: int = 0
    server: str = ""
    doubt: bool = False
    shortest: float = MIN_WATCH_SECONDS
    stranger: str = ""


State: TypeAlias = Listing | Streaming | Listed | Watching

BEGIN = Listing(first=True)
"""Where every watcher begins."""


class PageRead(NamedTuple):
    """A page of the list arrived."""

    version: str | None
    token: str | None
    records: Sequence[Record]


class Opened(NamedTuple):
    """The watch was opened, for `timeout` seconds at most, by the server that says `server` of itself (the uid of a
    FlowSchema)."""

    server: str = ""
    timeout: float = float("inf")


class VersionRead(NamedTuple):
    """The version at which the server is now; None when it does not say. `known`: False when the server has none of the
    objects that were seen last, so that it has to be another cluster."""

    version: str | None
    known: bool = True


class BatchRead(NamedTuple):
    """Events of the open watch arrived."""

    events: WatchBatch


class Ended(NamedTuple):
    """The watch is over without an error: its time was up, or (`broke`) the connection was cut or silent for too long.
    """

    broke: bool = False


class Broke(NamedTuple):
    """What the state wanted failed; `streaming`: it was a list as a stream."""

    error: Exception
    streaming: bool = False


Input: TypeAlias = PageRead | Opened | VersionRead | BatchRead | Ended | Broke


class Step(NamedTuple):
    """The next state, and what comes out, in order."""

    state: State
    out: list[Event[Record] | Failed]
