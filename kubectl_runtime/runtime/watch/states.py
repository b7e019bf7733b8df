"""The states, inputs and steps of the watch machine (all plain values), and the Apis that can be watched.

`WatchState` describes a watch to readers of a store, to the owner of a controller, and to the status page.
"""
from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import Any, NamedTuple, TypeAlias, TypeVar

import msgspec

from kubectl_runtime.client.api.api import Api, Namespaces
from kubectl_runtime.client.api.api_base import TokenTrail
from kubectl_runtime.client.api.selected import NAMESPACE, SelectedNamespaces
from kubectl_runtime.client.api.watch import RecordEvent
from kubectl_runtime.core.base.errors import KubeError
from kubectl_runtime.core.codec.views import Record
from kubectl_runtime.core.meta.gvk import ApiResource
from kubectl_runtime.runtime.watch.config import WatcherConfig
from kubectl_runtime.runtime.watch.event import Event, Failed

K = TypeVar("K")


WatchBatch: TypeAlias = Sequence[RecordEvent]
"""Events of a watch as the client decodes them; an empty batch means that nothing is ready (simulated transports only).
"""

WatchApi: TypeAlias = Api[K] | SelectedNamespaces[K]
"""The Api of one watch."""

WatchApis: TypeAlias = WatchApi[K] | Namespaces[K]
"""The Api of one store: one watch, or one watch for each namespace."""


def apis_of(api: WatchApis[K]) -> Sequence[WatchApi[K]]:
    """The Apis that are watched, one for each watch."""
    return api.apis if isinstance(api, Namespaces) else (api,)


def namespaces_of(api: WatchApis[Any]) -> frozenset[str]:
    """The watched namespaces; empty when all are watched, or the kind has none."""
    found = {one.namespace for one in apis_of(api)}
    return frozenset() if None in found or not api.resource.namespaced else frozenset(filter(None, found))


def places_of(api: WatchApis[Any]) -> Iterator[tuple[ApiResource, str | None]]:
    """Each watched kind with its namespace (None for all). Includes Namespace if labels select the namespaces."""
    for one in apis_of(api):
        yield one.resource, one.namespace
    if isinstance(api, SelectedNamespaces) and api.selection.labels is not None:
        yield NAMESPACE, None


def pattern_of(api: WatchApis[Any]) -> str:
    """The pattern for the names of the watched namespaces; empty if there is none."""
    return (isinstance(api, SelectedNamespaces) and api.selection.like) or ""


def as_configured(api: WatchApi[Any], config: WatcherConfig) -> WatchApi[Any]:
    """The `api`, limited to the fields that `config` keeps."""
    return api if config.fields is None else api.with_fields(config.fields)


MIN_WATCH_SECONDS = 1.0
"""A watch that ends sooner with nothing new has failed. If the watch delivered something new, the next watch starts
only once this time has passed since the first watch was opened."""
MAX_PAGED_TRIES = 3
MAX_STREAMED_TRIES = 3
"""After this many incomplete streaming lists in a row the list is read in pages."""
MAX_STALLS = 5
INITIAL_EVENTS_SECONDS = 30.0
"""The time in which a streaming list must be complete."""


class WatchError(KubeError):
    """The server's answer is not a valid watch or list; for example, a version is missing or a watch ends at once."""


class Listing(msgspec.Struct, frozen=True):
    """Wants a page of a list. `first`: no list has been complete or refused so far, so an older list is acceptable."""

    token: str | None = None
    first: bool = False
    expired: int = 0
    trail: TokenTrail = TokenTrail()
    suspect: bool = False
    """Whether objects of equal version may have different contents (see `event.Init`)."""
    unfinished: int = 0
    """Streaming lists in a row that ended before they were complete."""
    in_pages: bool = False
    """Whether the server refused a streaming list."""

    @property
    def paged(self) -> bool:
        """Whether the list is read in pages; False after pages have expired too often."""
        return self.expired < MAX_PAGED_TRIES


class Streaming(msgspec.Struct, frozen=True):
    """A watch that begins with the existing objects has been open since `opened`. These objects replace the pages of
    `listing`."""

    listing: Listing
    opened: float
    server: str = ""


class Listed(msgspec.Struct, frozen=True):
    """Wants a watch from `version`. `stalls`: failures in a row since something new was seen. `server`: the FlowSchema
    that the last watch reported, if any. `doubt`: the connection failed, so the server may have gone back to older
    data."""

    version: str
    not_before: float = 0.0
    stalls: int = 0
    server: str = ""
    doubt: bool = False


class Watching(msgspec.Struct, frozen=True):
    """A watch has been open since `opened`, and began at version `began`. If in `doubt`, it first needs the server's
    current version. `shortest`: a watch that ends within this many seconds ended too early. `other_server`: a new
    FlowSchema that the server reports, while it is uncertain whether the server belongs to another cluster; during
    that time `server` keeps the earlier FlowSchema."""

    version: str
    began: str
    opened: float
    stalls: int = 0
    server: str = ""
    doubt: bool = False
    shortest: float = MIN_WATCH_SECONDS
    other_server: str = ""


State: TypeAlias = Listing | Streaming | Listed | Watching

BEGIN = Listing(first=True)
"""The first state of every watcher."""


class PageRead(NamedTuple):
    """A page of the list arrived."""

    version: str | None
    token: str | None
    records: Sequence[Record]


class Opened(NamedTuple):
    """The watch was opened, for `timeout` seconds at most. `server`: the uid of the FlowSchema that the server reports.
    """

    server: str = ""
    timeout: float = float("inf")


class VersionRead(NamedTuple):
    """The server's current version; None if the server sends no version. `known`: False if the server has none of the
    objects that were seen last, which means that it belongs to another cluster."""

    version: str | None
    known: bool = True


class BatchRead(NamedTuple):
    """Events of the open watch arrived."""

    events: WatchBatch


class Ended(NamedTuple):
    """The watch ended without an error: its time was up, or (`broke`) the connection was cut or silent for too long."""

    broke: bool = False


class Broke(NamedTuple):
    """The state's request failed. `streaming`: whether the request was for a streaming list."""

    error: Exception
    streaming: bool = False


Input: TypeAlias = PageRead | Opened | VersionRead | BatchRead | Ended | Broke


class Step(NamedTuple):
    """The next state, and the resulting events in order."""

    state: State
    out: list[Event[Record] | Failed]


class Phase(StrEnum):
    """The phase of a watch: listing, watching, waiting after a failure, or ended.

    >>> with watch_store(Api.all(client, ConfigMap)) as maps:
    ...     maps.wait_until_ready(10)
    ...     maps.watch_state.phase in (Phase.LISTING, Phase.WATCHING)
    True
    """

    LISTING = "listing"
    WATCHING = "watching"
    WAITING = "waiting"
    STOPPED = "stopped"


class WatchState(msgspec.Struct, frozen=True):
    """The current state of a watch: its phase and when that began, its last error, and counts of failures and relists.

    Times are readings of the client's monotonic clock.

    >>> with watch_store(Api.all(client, ConfigMap)) as maps:
    ...     maps.wait_until_ready(10)
    ...     maps.watch_state.consecutive_failures, maps.watch_state.last_error
    (0, '')
    """

    phase: Phase = Phase.LISTING
    since: float = 0.0
    """When this phase began."""
    last_error: str = ""
    """The last failure, as it was logged; empty again once a list is complete or a watch is open."""
    consecutive_failures: int = 0
    """Failures since the last complete list or opened watch. While the server is unreachable, this counts the attempts
    of all watches of the client. (The backoff keeps counting until a watch has delivered something.)"""
    last_event: float | None = None
    """When a page, an event or a bookmark last arrived."""
    relists: int = 0
    """Complete lists after the first one."""
