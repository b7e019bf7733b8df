"""The decisions of a watcher: a pure step from (state, input, now) to the next state and the resulting events.

States
    Listing(token, ...)   wants a page of a list, the first (no token) or the next; or wants the list as a stream
    Streaming(listing)    a stream of the existing objects is open
    Listed(version)       wants a watch that continues from `version`; must not open it before the time `not_before`
    Watching(version)     a watch is open and everything up to `version` has been seen; if in `doubt`, it first wants a
                          VersionRead

    state     input                                    out                           next state
    Listing, Streaming    see the second table
    Listed    watch opened                             -                             Watching(version)
    Listed    watch opened, another FlowSchema (3)     -                             Watching(version), in doubt
    Listed    failure that a new list can mend (1)     Failed                        Listing from the start, most recent
    Listed    any other failure                        Failed                        Listed(version) (2), in doubt (4)
    Watching  ADDED, MODIFIED / DELETED                Apply / Delete                Watching(the object's version)
    Watching  BOOKMARK with / without a version        -                             Watching(its version) / unchanged
    Watching  object without a version                 Failed                        Listing from the start
    Watching  undecodable object without a version     Apply / Delete                unchanged
    Watching  ERROR that a new list can mend (1)       Failed                        Listing from the start, most recent
    Watching  any other ERROR, or a broken stream      Failed                        Listed(last version) (2)
    Watching  event of an unknown type                 - (logged)                    unchanged
    Watching  end, nothing new seen, younger than 1 s  Failed                        Listed(last version) (2)
    Watching  end, younger than 1 s                    -                             Listed(last version), delayed
    Watching  end, or cut or silent (4)                -                             Listed(last version), in doubt
    in doubt  the server's version is lower            -                             Listing from the start, suspect
    in doubt  the server lacks all seen objects (3)    Failed                        Listing from the start
    in doubt  any other version, or no version         -                             Watching(version)
    in doubt  failure (5)                              Failed                        Listed(version), in doubt

(1) 410, 404, 400, 422 and "resource version too large", as an HTTP status or inside the stream: this version can never
    be watched again. For 403, 405 and 429 a list would not help.
(2) Such failures are counted. After five in a row that are the server's fault (5xx, broken streams, watches that end at
    once), with nothing new in between, everything is listed again, since some servers keep reporting an expired version
    as an internal error.
(3) The uid of the FlowSchema in an answer changes with the cluster, but also when a flow rule is added or removed, so a
    new uid only raises the doubt. If the server still has one of the last seen objects, with the same uid, the cluster
    is the same. The FlowSchemas of a list and of its first watch are not compared: they may match different rules.
(4) A server whose database was restored from an older copy accepts a watch from a future version and sends nothing
    until its own version reaches that version. Such a restore cuts connections, so the server's version is requested
    after a connection has failed. Versions are compared only when both are decimal numbers.
(5) An answer that another try would not change (403, for example) proves nothing, so the watch goes on.

Events that follow an ERROR in the same batch are dropped. The server sends them again, since the version does not move
past the ERROR. Apart from the comparison in (4) a version is opaque: it comes from a list's metadata, an event or a
bookmark, and is passed back unchanged. After each `Failed` the caller waits as its backoff requires, at least
`retry_after`. Everything else continues at once, but at most one new watch is opened per second (two per second if the
requested timeout is less than 2 s), so that no behaviour of a server causes a tight loop.

The list, in pages or as a stream:

    state      input                                    out                           next state
    Listing    first page                               Init, then as any page        as any page
    Listing    page with token                          InitApply of each             Listing(that token)
    Listing    page with a token that came before       Failed                        Listing from the start (6)
    Listing    last page with a version                 InitApply of each, InitDone   Listed(the page's version)
    Listing    last page without a version              InitApply of each, Failed     Listing from the start
    Listing    failure 410 of a later page              Failed                        Listing from the start (6)
    Listing    failure 410, "version too large"         Failed                        Listing, most recent
    Listing    any other failure                        Failed                        Listing from the start
    Listing    400, 403 or 422 for a stream             - (logged)                    Listing in pages (7)
    Listing    stream opened                            Init                          Streaming
    Streaming  ADDED, MODIFIED / DELETED                InitApply / Delete            Streaming
    Streaming  the bookmark that ends the list          InitDone                      Watching(its version)
    Streaming  that bookmark without a version          - (logged)                    Listing in pages (7)
    Streaming  any other bookmark                       -                             Streaming
    Streaming  ERROR 400, 403 or 422                    - (logged)                    Listing in pages (7)
    Streaming  any other ERROR, a broken stream         Failed                        Listing from the start
    Streaming  the end                                  Failed                        Listing from the start (8)
    Streaming  30 s without that bookmark               - (logged)                    Listing in pages (7)

(6) Such restarts are counted. After three, the list is requested in one piece, without a token that could expire.
(7) The driver remembers the refusal and requests no stream of the resource for an hour. 429, 5xx and an unreachable
    server do not count as refusals, since they are temporary.
(8) Such ends are counted. After three, the list is read in pages, as in (7).

`suspect` stays set until a list is complete. Readers never see objects of a stream that broke off: the next `Init`
drops these objects.
"""
from __future__ import annotations

from msgspec.structs import replace

from kubectl_runtime.core.base.errors import ApiError, Status, TransportError
from kubectl_runtime.core.base.guard import guarded_logger
from kubectl_runtime.core.codec.views import Record
from kubectl_runtime.runtime.watch.event import INIT, INIT_DONE, Apply, Delete, Event, Failed, Init, InitApply
from kubectl_runtime.runtime.watch.states import (
    INITIAL_EVENTS_SECONDS,
    MAX_STALLS,
    MAX_STREAMED_TRIES,
    MIN_WATCH_SECONDS,
    BatchRead,
    Broke,
    Ended,
    Input,
    Listed,
    Listing,
    Opened,
    PageRead,
    State,
    Step,
    Streaming,
    VersionRead,
    WatchBatch,
    WatchError,
    Watching,
)

log = guarded_logger(__name__)

_BAD_VERSION = frozenset((400, 404, 410, 422))
_NO_STREAMS = frozenset((400, 403, 422))


def page_read(state: Listing, page: PageRead) -> Step:
    """A page arrived."""
    trail = state.trail.after(page.token) if page.token else state.trail
    if trail is None:
        return list_failed(state, WatchError("the list never ends: a continue token was repeated"),
                           expired=True)
    out: list[Event[Record] | Failed] = [] if state.token else [_init(state)]
    out.extend(map(InitApply, page.records))
    if page.token:
        return Step(replace(state, token=page.token, trail=trail), out)
    if not page.version:
        error = WatchError("the list has no resourceVersion to watch from")
        return Step(Listing(suspect=state.suspect), [*out, failed(error, "list")])
    out.append(INIT_DONE)
    return Step(Listed(page.version), out)


def list_failed(state: Listing, error: Exception, *, expired: bool = False, streaming: bool = False) -> Step:
    """The step after a page could not be read, or a stream could not be opened."""
    if streaming and isinstance(error, ApiError) and error.code in _NO_STREAMS:
        return _in_pages(state, str(error))
    expired = expired or (state.token is not None and isinstance(error, ApiError) and error.is_expired)
    first = state.first and not is_bad_version(error)
    return Step(Listing(first=first, expired=state.expired + expired, suspect=state.suspect,
                        unfinished=state.unfinished), [failed(error, "list")])


def stream_opened(state: Listing, server: str, now: float) -> Step:
    """The step after a streaming list was opened."""
    return Step(Streaming(state, now, server), [_init(state)])


def streamed(state: Streaming, events: WatchBatch, now: float) -> tuple[Step, WatchBatch]:
    """Returns the step for `events` up to the end of the list, and the events that follow the end."""
    out: list[Event[Record] | Failed] = []
    for number, event in enumerate(events):
        kind, record = event.type, event.record
        if record is not None and kind in ("ADDED", "MODIFIED"):
            out.append(InitApply(record))
        elif record is not None and kind == "DELETED":
            out.append(Delete(record))
        elif kind == "BOOKMARK" and event.initial_events_end:
            if not event.resource_version:
                return _in_pages(state.listing, "the list ends without a resourceVersion"), ()
            version = event.resource_version
            watching = Watching(version, version, state.opened, server=state.server)
            return Step(watching, [*out, INIT_DONE]), events[number + 1:]
        elif kind == "ERROR":
            return list_failed(state.listing, error_of(event.status), streaming=True), ()
        elif kind != "BOOKMARK":
            log.warning("ignored an event of type %r in a watch", kind)
    if now - state.opened > INITIAL_EVENTS_SECONDS:
        return _no_end(state), ()
    return Step(state, out), ()


def stream_ended(state: Streaming, now: float, error: Exception | None = None) -> Step:
    """The step after the stream ended, or failed with `error`, before the list was complete."""
    if now - state.opened >= INITIAL_EVENTS_SECONDS:
        return _no_end(state)
    if error is None:
        error = WatchError(f"the streaming list ended after {now - state.opened:.1f} s, before it was complete")
    listing, unfinished = state.listing, state.listing.unfinished + 1
    if unfinished >= MAX_STREAMED_TRIES:
        return _in_pages(listing, f"{unfinished} streams in a row ended before the list was complete")
    return list_failed(replace(listing, unfinished=unfinished), error)


def is_bad_version(error: Exception) -> bool:
    """Whether `error` means that the requested version can never be watched again."""
    return isinstance(error, ApiError) and (
        error.code in _BAD_VERSION or error.is_expired or error.is_not_found or error.is_too_large_resource_version)


def error_of(status: Status | None) -> ApiError:
    """The exception for an ERROR event, the same as for an HTTP answer with this Status."""
    status = status or Status(message="the server sent an ERROR event without a Status")
    after = status.details.retry_after_seconds if status.details else None
    return ApiError(status, retry_after=after)


def failed(error: Exception, verb: str) -> Failed:
    """The failure of a request, with the wait that the server asks for."""
    return Failed(error, verb, (error.retry_after or 0.0) if isinstance(error, ApiError) else 0.0)


def _init(state: Listing) -> Init:
    return Init(suspect=True) if state.suspect else INIT


def _no_end(state: Streaming) -> Step:
    return _in_pages(state.listing, f"no end of the list within {INITIAL_EVENTS_SECONDS:.0f} s")


def _in_pages(state: Listing, why: str) -> Step:
    log.warning("the server does not stream the list (%s); reading the list in pages", why)
    return Step(Listing(first=state.first, suspect=state.suspect, in_pages=True), [])


_NOT_HEALED_BY_LISTING = frozenset((401, 403, 405, 429))


def step(state: State, given: Input, now: float) -> Step:
    """One step of the table. `now` is monotonic. Raises AssertionError for an input that the state cannot have."""
    if isinstance(state, Watching):
        return _watching(state, given, now)
    if isinstance(state, Streaming):
        return _streaming(state, given, now)
    if isinstance(state, Listed):
        if isinstance(given, Opened):
            return _opened(state, given, now)
        assert isinstance(given, Broke), given
        lost = isinstance(given.error, TransportError)
        return _watch_failed(replace(state, doubt=True) if lost else state, given.error)
    if isinstance(given, PageRead):
        return page_read(state, given)
    if isinstance(given, Opened):
        return stream_opened(state, given.server, now)
    assert isinstance(given, Broke), given
    return list_failed(state, given.error, streaming=given.streaming)


def _streaming(state: Streaming, given: Input, now: float) -> Step:
    if isinstance(given, BatchRead):
        found, rest = streamed(state, given.events, now)
        if rest and isinstance(found.state, Watching):
            further = _batch(found.state, rest)
            return Step(further.state, found.out + further.out)
        return found
    if isinstance(given, Ended):
        return stream_ended(state, now)
    assert isinstance(given, Broke), given
    return stream_ended(state, now, given.error)


def _watching(state: Watching, given: Input, now: float) -> Step:
    if isinstance(given, BatchRead):
        return _batch(state, given.events)
    if isinstance(given, Ended):
        return _ended(state, given.broke, now)
    if isinstance(given, VersionRead):
        if is_lower(given.version, state.version):
            return Step(Listing(suspect=True), [])
        if not given.known:
            return Step(Listing(), [failed(WatchError("another cluster answers at this address now: it has none of the "
                                                      "objects that were seen last"), "watch")])
        return Step(_certain(state), [])
    assert isinstance(given, Broke), given
    error = given.error
    if state.doubt and isinstance(error, ApiError) and error.code != 429 and 0 < error.code < 500:
        return Step(_certain(state), [])
    lost = state.doubt or isinstance(error, TransportError)
    return _watch_failed(Listed(state.version, 0.0, _stalls(state), state.server, lost), error)


def _opened(state: Listed, opened: Opened, now: float) -> Step:
    server = state.server or opened.server
    other_server = opened.server if opened.server != server else ""
    return Step(Watching(state.version, state.version, now, state.stalls, server, state.doubt or bool(other_server),
                         min(MIN_WATCH_SECONDS, opened.timeout / 2), other_server), [])


def _certain(state: Watching) -> Watching:
    """The same state without doubt about the server."""
    return replace(state, doubt=False, server=state.other_server or state.server, other_server="")


def _watch_failed(state: Listed, error: Exception) -> Step:
    if is_bad_version(error):
        return Step(Listing(), [failed(error, "watch")])
    stalls = state.stalls + _is_servers_fault(error)
    if stalls >= MAX_STALLS:
        return Step(Listing(), [failed(error, "watch")])
    return Step(replace(state, not_before=0.0, stalls=stalls), [failed(error, "watch")])


def _batch(state: Watching, events: WatchBatch) -> Step:
    out: list[Event[Record] | Failed] = []
    version = state.version
    for event in events:
        kind, record = event.type, event.record
        if record is not None and (change := _CHANGES.get(kind)) is not None:
            seen = record.head.resource_version
            if seen:
                version = seen
            elif record.problem is None:
                error = WatchError(f"the event {kind} of {record.ref} has no resourceVersion")
                return Step(Listing(), [*out, Failed(error, "watch")])
            out.append(change(record))
        elif kind == "BOOKMARK":
            version = event.resource_version or version
        elif kind == "ERROR":
            listed = Listed(version, 0.0, 0 if version != state.began else state.stalls, state.server)
            refused = _watch_failed(listed, error_of(event.status))
            return Step(refused.state, out + refused.out)
        else:
            log.warning("ignored an event of type %r in a watch", kind)
    if version == state.version:
        return Step(state, out)
    return Step(Watching(version, state.began, state.opened, state.stalls, state.server, False, state.shortest), out)


_CHANGES: dict[str, type[Apply[Record]] | type[Delete[Record]]] = {"ADDED": Apply, "MODIFIED": Apply, "DELETED": Delete}


def _ended(state: Watching, broke: bool, now: float) -> Step:
    oldest = state.opened + state.shortest
    listed = Listed(state.version, server=state.server, doubt=broke)
    if now >= oldest:
        return Step(listed, [])
    if state.version != state.began:
        return Step(replace(listed, not_before=oldest), [])
    error = WatchError(f"the watch ended after {now - state.opened:.1f} s without an event")
    return _watch_failed(replace(listed, stalls=state.stalls), error)


def _stalls(state: Watching) -> int:
    return state.stalls if state.version == state.began else 0


def _is_servers_fault(error: Exception) -> bool:
    """Whether the server answered wrongly. An unreachable server does not count: it would not answer a list either."""
    if isinstance(error, ApiError):
        return error.code not in _NOT_HEALED_BY_LISTING
    return not isinstance(error, TransportError)


def is_lower(version: str | None, than: str) -> bool:
    """Whether both versions are decimal numbers, and `version` is the smaller one."""
    if version is None or not (_is_decimal(version) and _is_decimal(than)):
        return False
    a, b = version.lstrip("0"), than.lstrip("0")
    return (len(a), a) < (len(b), b)


def _is_decimal(text: str) -> bool:
    return text.isascii() and text.isdecimal()
