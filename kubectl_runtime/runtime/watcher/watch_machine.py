"""The decisions of a watcher: a pure step from (state, input, now) to the next state and what comes out.

States
    Listing(token, ...)   wants the page of a list: the first one (no token) or the next
    Listed(version)       wants a watch that begins after `version`, not before the time `not_before`
    Watching(version)     a watch is open and everything up to `version` has been seen

    state     input                                    out                           next state
    Listing   first page                               Init, then as any page        as any page
    Listing   page with token                          InitApply of each             Listing(that token)
    Listing   page with its own token again            Failed                        Listing from the start (1)
    Listing   last page with a version                 InitApply of each, InitDone   Listed(the page's version)
    Listing   last page without a version              InitApply of each, Failed     Listing from the start
    Listing   failure 410 of a later page              Failed                        Listing from the start (1)
    Listing   failure 410, "version too large"         Failed                        Listing from the start, most recent
    Listing   any other failure                        Failed                        Listing from the start
    Listed    watch opened                             -                             Watching(version)
    Listed    watch opened by another cluster (4)      Failed                        Listing from the start
    Listed    failure that a new list can mend (2)     Failed                        Listing from the start, most recent
    Listed    any other failure                        Failed                        Listed(version) (3)
    Watching  ADDED, MODIFIED / DELETED                Apply / Delete                Watching(the object's version)
    Watching  BOOKMARK with / without a version        -                             Watching(its version) / unchanged
    Watching  object without a version                 Failed                        Listing from the start
    Watching  undecodable object without a version     Apply / Delete                unchanged
    Watching  ERROR that a new list can mend (2)       Failed                        Listing from the start, most recent
    Watching  any other ERROR, or a broken stream      Failed                        Listed(last version) (3)
    Watching  event of an unknown type                 - (logged)                    unchanged
    Watching  end, nothing new seen, younger than 1 s  Failed                        Listed(last version) (3)
    Watching  end, younger than 1 s                    -                             Listed(last version) at its 1 s
    Watching  end                                      -                             Listed(last version)

(1) Counted: after three such restarts the list is asked for in one piece, which has no token that could expire.
(2) 410, 404, 400, 422 and "resource version too large", as an HTTP status or inside the stream: this version will never
    be watchable (again). Not 403, 405, 429: a list would not help.
(3) Counted: after five in a row that are the server's fault (5xx, broken streams, watches that end at once) without
    anything new, a list is made: some servers report an expired version as an internal error for ever.
(4) Told by the uid of the FlowSchema in its answer, which was another one in the watch before. A cluster made anew
    under the old address may have any version, so nothing else would show it. If it was only a new rule for flows, a
    list does no harm. Between a list and its first watch nothing tells: lists and watches may match different rules.

What follows an ERROR in its batch is dropped, and comes again: the version does not move past it. A version is
opaque; it comes from a list's metadata, an event or a bookmark, is passed back as it is, and is never empty in a
watch. After each `Failed` whoever drives this waits as its backoff says, at least `retry_after` of it. Everything
else goes on at once, at most one new watch a second, so that no behaviour of a server makes a tight loop.
"""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeAlias

from kubectl_runtime.core.base.errors import ApiError, KubeError, TransportError
from kubectl_runtime.core.base.status import Status
from kubectl_runtime.core.codec.record import Record
from kubectl_runtime.runtime.usercode import guarded_logger
from kubectl_runtime.runtime.watcher.event import INIT, INIT_DONE, Apply, Delete, Event, Failed, InitApply
from kubectl_runtime.runtime.watcher.watch_api import WatchBatch

log = guarded_logger(__name__)

MIN_WATCH_SECONDS = 1.0
"""A watch that ends earlier is a failure if it brought nothing new; else the next one waits until then."""
MAX_PAGED_TRIES = 3
MAX_STALLS = 5

_BAD_VERSION = frozenset((400, 404, 410, 422))
_NOT_HEALED_BY_LISTING = frozenset((401, 403, 405, 429))


class WatchError(KubeError):
    """The server answered, but not as a watch or list has to be: a version is missing, a watch ends at once."""


@dataclass(frozen=True, slots=True)
class Listing:
    """Wants a page. `first`: no list was complete yet, and none was refused, so an old one may do."""

    token: str | None = None
    first: bool = False
    expired: int = 0

    @property
    def paged(self) -> bool:
        return self.expired < MAX_PAGED_TRIES


@dataclass(frozen=True, slots=True)
class Listed:
    """Wants a watch from `version`. `stalls`: failures in a row since something new was seen. `server`: what the server
    of the watch before said of itself, if anything."""

    version: str
    not_before: float = 0.0
    stalls: int = 0
    server: str = ""


@dataclass(frozen=True, slots=True)
class Watching:
    """A watch is open since `opened`; `began` is the version it was opened with."""

    version: str
    began: str
    opened: float
    stalls: int = 0
    server: str = ""


State: TypeAlias = Listing | Listed | Watching

BEGIN = Listing(first=True)
"""Where every watcher begins."""


class PageRead(NamedTuple):
    """A page of the list arrived."""

    version: str | None
    token: str | None
    records: Sequence[Record]


class Opened(NamedTuple):
    """The watch was opened, by the server that says `server` of itself (the uid of a FlowSchema)."""

    server: str = ""


class BatchRead(NamedTuple):
    """Events of the open watch arrived."""

    events: WatchBatch


class Ended(NamedTuple):
    """The watch is over without an error: its time was up, the connection was cut, nothing came for too long."""


class Broke(NamedTuple):
    """What the state wanted failed."""

    error: Exception


Input: TypeAlias = PageRead | Opened | BatchRead | Ended | Broke


class Step(NamedTuple):
    """The next state, and what comes out, in order."""

    state: State
    out: list[Event[Record] | Failed]


def step(state: State, given: Input, now: float) -> Step:
    """See the table. `now` is a monotonic clock's. An input that the state does not wait for is an AssertionError."""
    if isinstance(state, Watching):
        if isinstance(given, BatchRead):
            return _batch(state, given.events)
        if isinstance(given, Ended):
            return _ended(state, now)
        assert isinstance(given, Broke), given
        return _watch_failed(Listed(state.version, 0.0, _stalls(state), state.server), given.error)
    if isinstance(state, Listed):
        if isinstance(given, Opened):
            return _opened(state, given.server, now)
        assert isinstance(given, Broke), given
        return _watch_failed(state, given.error)
    if isinstance(given, PageRead):
        return _page(state, given)
    assert isinstance(given, Broke), given
    return _list_failed(state, given.error)


def _page(state: Listing, page: PageRead) -> Step:
    if page.token and page.token == state.token:
        return _list_failed(state, WatchError("a page of the list continues with its own token"), expired=True)
    out: list[Event[Record] | Failed] = [] if state.token else [INIT]
    out.extend(map(InitApply, page.records))
    if page.token:
        return Step(replace(state, token=page.token), out)
    if not page.version:
        return Step(Listing(), [*out, _failed(WatchError("the list has no resourceVersion to watch from"), "list")])
    out.append(INIT_DONE)
    return Step(Listed(page.version), out)


def _opened(state: Listed, server: str, now: float) -> Step:
    if server and state.server and server != state.server:
        return Step(Listing(), [_failed(WatchError("another cluster answers at this address now"), "watch")])
    return Step(Watching(state.version, state.version, now, state.stalls, server or state.server), [])


def _list_failed(state: Listing, error: Exception, *, expired: bool = False) -> Step:
    expired = expired or (state.token is not None and isinstance(error, ApiError) and error.is_expired)
    first = state.first and not _is_bad_version(error)
    return Step(Listing(first=first, expired=state.expired + expired), [_failed(error, "list")])


def _watch_failed(state: Listed, error: Exception) -> Step:
    if _is_bad_version(error):
        return Step(Listing(), [_failed(error, "watch")])
    stalls = state.stalls + _is_servers_fault(error)
    if stalls >= MAX_STALLS:
        return Step(Listing(), [_failed(error, "watch")])
    return Step(replace(state, not_before=0.0, stalls=stalls), [_failed(error, "watch")])


def _batch(state: Watching, events: WatchBatch) -> Step:
    out: list[Event[Record] | Failed] = []
    version = state.version
    for event in events:
        kind, record = event.type, event.record
        if record is not None and kind in _CHANGES:
            seen = record.head.resource_version
            if seen:
                version = seen
            elif record.problem is None:
                error = WatchError(f"the event {kind} of {record.ref} has no resourceVersion")
                return Step(Listing(), [*out, Failed(error, "watch")])
            out.append(_CHANGES[kind](record))
        elif kind == "BOOKMARK":
            version = event.resource_version or version
        elif kind == "ERROR":
            listed = Listed(version, 0.0, 0 if version != state.began else state.stalls, state.server)
            failed = _watch_failed(listed, _error_of(event.status))
            return Step(failed.state, out + failed.out)
        else:
            log.warning("ignored an event of type %r in a watch", kind)
    if version == state.version:
        return Step(state, out)
    return Step(Watching(version, state.began, state.opened, state.stalls, state.server), out)


_CHANGES: dict[str, type[Apply[Record]] | type[Delete[Record]]] = {"ADDED": Apply, "MODIFIED": Apply, "DELETED": Delete}


def _ended(state: Watching, now: float) -> Step:
    oldest = state.opened + MIN_WATCH_SECONDS
    if now >= oldest:
        return Step(Listed(state.version, server=state.server), [])
    if state.version != state.began:
        return Step(Listed(state.version, oldest, server=state.server), [])
    error = WatchError(f"the watch ended after {now - state.opened:.1f} s without an event")
    return _watch_failed(Listed(state.version, 0.0, state.stalls, state.server), error)


def _stalls(state: Watching) -> int:
    return state.stalls if state.version == state.began else 0


def _error_of(status: Status | None) -> ApiError:
    """An ERROR event as the exception that the same Status makes as an HTTP answer."""
    status = status or Status(message="the server sent an ERROR event without a Status")
    after = status.details.retry_after_seconds if status.details else None
    return ApiError(status, retry_after=after)


def _failed(error: Exception, verb: str) -> Failed:
    return Failed(error, verb, (error.retry_after or 0.0) if isinstance(error, ApiError) else 0.0)


def _is_bad_version(error: Exception) -> bool:
    return isinstance(error, ApiError) and (
        error.code in _BAD_VERSION or error.is_expired or error.is_not_found or error.is_too_large_resource_version)


def _is_servers_fault(error: Exception) -> bool:
    """Whether the server was there and did wrong. A server that cannot be reached would not answer a list either."""
    if isinstance(error, ApiError):
        return error.code not in _NOT_HEALED_BY_LISTING
    return not isinstance(error, TransportError)


