"""The states, inputs and steps of the watch machine, which are plain values; and what a watcher needs of an `Api`.

`WatchState` shows how a watch is doing: to the reader of a store, the owner of a controller, the status page.
"""
from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple, Protocol, TypeAlias, TypeVar, cast

import msgspec

from kubectl_runtime.client.api.api_base import TokenTrail
from kubectl_runtime.client.api.selected import NAMESPACE
from kubectl_runtime.core.base.errors import KubeError, RequestError, Status
from kubectl_runtime.core.base.stop import StopToken
from kubectl_runtime.core.codec.views import Record
from kubectl_runtime.core.meta.gvk import ApiResource
from kubectl_runtime.core.meta.metav1 import ListMeta
from kubectl_runtime.core.requests.params import ListParams, WatchParams
from kubectl_runtime.core.requests.request import Retry
from kubectl_runtime.runtime.watch.config import WatcherConfig
from kubectl_runtime.runtime.watch.event import Event, Failed

K = TypeVar("K")
K_co = TypeVar("K_co", covariant=True)


class WatchItem(Protocol):
    """One event of a watch as the client decodes it."""

    @property
    def type(self) -> str:
        """The type of the event: ADDED, MODIFIED, DELETED, BOOKMARK or ERROR."""

    @property
    def record(self) -> Record | None:
        """The object; None for a bookmark and an error."""

    @property
    def resource_version(self) -> str | None:
        """Where to resume after this event; None for an error."""

    @property
    def status(self) -> Status | None:
        """The Status of an error event; else None."""

    @property
    def initial_events_end(self) -> bool:
        """Whether this bookmark ends the initial events of a streaming list."""


WatchBatch: TypeAlias = Sequence[WatchItem]


class WatchApi(Protocol[K_co]):
    """The part of `Api` that watchers use. Calls that fail raise, also `open_watch` itself.

    The iterator of batches ends with the watch. It raises RequestTimeout when nothing came for longer than the watch
    was to live. An empty batch means that nothing is ready (simulated transports only).

    Optional attributes: of the batches `flow_schema`, which tells clusters apart, and `broke`, which says that the
    connection failed (see `client.api.watch.WatchStream`); of the Api `client`, whose watches share what is known of
    the server, and `with_fields`, which a config with `fields` needs.
    """

    @property
    def resource(self) -> ApiResource:
        """The kind."""

    @property
    def namespace(self) -> str | None:
        """The namespace; None for all of them."""

    @property
    def kind(self) -> type[K_co]:
        """The class that reads the objects."""

    def list_page(self, params: ListParams, *, stop: StopToken, retry: Retry) -> tuple[ListMeta, list[Record]]:
        """One page of a list, as records. Blocks and raises as `Api.list_page`."""

    def open_watch(self, params: WatchParams, resource_version: str, stop: StopToken) -> Iterator[WatchBatch]:
        """An open watch, as an iterator of batches. Blocks and raises as `Api.open_watch`."""


class WatchApis(Protocol[K_co]):
    """`Namespaces`: several Apis whose objects belong into one store."""

    @property
    def resource(self) -> ApiResource:
        """The kind."""

    @property
    def kind(self) -> type[K_co]:
        """The class that reads the objects."""

    @property
    def apis(self) -> Sequence[WatchApi[K_co]]:
        """The Api of each namespace."""


def apis_of(api: WatchApi[K] | WatchApis[K]) -> Sequence[WatchApi[K]]:
    """The Apis that are watched, one for each namespace."""
    apis: Sequence[WatchApi[K]] = getattr(api, "apis", None) or (cast(WatchApi[K], api),)
    return apis


def namespaces_of(api: WatchApi[Any] | WatchApis[Any]) -> frozenset[str]:
    """The watched namespaces; empty when all are watched, or the kind has none."""
    found = {getattr(one, "namespace", None) for one in apis_of(api)}
    return frozenset() if None in found or not api.resource.namespaced else frozenset(filter(None, found))


def places_of(api: WatchApi[Any] | WatchApis[Any]) -> Iterator[tuple[ApiResource, str | None]]:
    """Each kind that is watched, and its namespace: None for all. Namespaces themselves, where their labels choose."""
    for one in apis_of(api):
        yield one.resource, getattr(one, "namespace", None)
    if getattr(getattr(api, "selection", None), "labels", None) is not None:
        yield NAMESPACE, None


def pattern_of(api: WatchApi[Any] | WatchApis[Any]) -> str:
    """The pattern that the names of the watched namespaces match; empty where there is none."""
    return getattr(getattr(api, "selection", None), "like", None) or ""


def as_configured(api: WatchApi[Any], config: WatcherConfig) -> WatchApi[Any]:
    """The `api` in the form that `config` requests. Raises RequestError when it has no such form."""
    if config.fields is None:
        return api
    with_fields = getattr(api, "with_fields", None)
    if with_fields is None:
        raise RequestError(f"fields={config.fields.__name__}: {type(api).__name__} cannot keep single fields")
    found: WatchApi[Any] = with_fields(config.fields)
    return found


MIN_WATCH_SECONDS = 1.0
"""A watch that ends earlier and brought nothing new has failed. Otherwise the next watch waits until this time."""
MAX_PAGED_TRIES = 3
MAX_STREAMED_TRIES = 3
"""After this many incomplete streaming lists in a row the list is read in pages."""
MAX_STALLS = 5
INITIAL_EVENTS_SECONDS = 30.0
"""The time in which a streaming list must be complete."""


class WatchError(KubeError):
    """The server's answer is not a valid watch or list: a version is missing, a watch ends at once."""


@dataclass(frozen=True, slots=True)
class Listing:
    """Wants a page. `first`: no list was complete yet and none was refused, so an old list may do."""

    token: str | None = None
    first: bool = False
    expired: int = 0
    trail: TokenTrail = field(default=TokenTrail(), compare=False)
    suspect: bool = False
    """Equal versions do not prove equal contents (see `event.Init`)."""
    unfinished: int = 0
    """Streaming lists in a row that ended before they were complete."""
    in_pages: bool = False
    """The server refused a streaming list."""

    @property
    def paged(self) -> bool:
        """Whether the list is read in pages; not after pages have expired too often."""
        return self.expired < MAX_PAGED_TRIES


@dataclass(frozen=True, slots=True)
class Streaming:
    """A watch that begins with the present objects is open since `opened`; they take the place of the pages of
    `listing`."""

    listing: Listing
    opened: float
    server: str = ""


@dataclass(frozen=True, slots=True)
class Listed:
    """Wants a watch from `version`. `stalls`: failures in a row since something new was seen. `server`: the FlowSchema
    that the last watch reported, if any. `doubt`: the connection failed, so the server may have gone back to older
    data."""

    version: str
    not_before: float = 0.0
    stalls: int = 0
    server: str = ""
    doubt: bool = False


@dataclass(frozen=True, slots=True)
class Watching:
    """A watch is open since `opened`; `began` is the version it was opened with. In `doubt` it first needs the server's
    current version. `shortest`: a watch that ends within this many seconds ended too early. `stranger`: the FlowSchema
    that the server reports while it may be another cluster; until that is certain, `server` is the earlier one."""

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
    """The server's current version; None when it does not give one. `known`: False when the server has none of the
    objects that were seen last, so it must be another cluster."""

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
    """The request of the state failed; `streaming`: it was a streaming list."""

    error: Exception
    streaming: bool = False


Input: TypeAlias = PageRead | Opened | VersionRead | BatchRead | Ended | Broke


class Step(NamedTuple):
    """The next state, and the events that come out, in order."""

    state: State
    out: list[Event[Record] | Failed]


class Phase(StrEnum):
    """What a watch is doing: listing, watching, waiting after a failure, or ended.

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
    """What a watch does at this moment: its phase and since when, its last error, how often it failed and listed again.

    Times are of the client's monotonic clock.

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
    """Failures since a list was complete or a watch was opened. While the server is away it counts the attempts of all
    watches of the client. (The backoff counts on until a watch has brought something.)"""
    last_event: float | None = None
    """When a page, an event or a bookmark last arrived."""
    relists: int = 0
    """Complete lists after the first one."""
