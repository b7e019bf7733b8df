"""The half of the watch machine that brings the list, by pages or as a stream.

    state      input                                    out                           next state
    Listing    first page                               Init, then as any page        as any page
    Listing    page with token                          InitApply of each             Listing(that token)
    Listing    page with a token that came before       Failed                        Listing from the start (1)
    Listing    last page with a version                 InitApply of each, InitDone   Listed(the page's version)
    Listing    last page without a version              InitApply of each, Failed     Listing from the start
    Listing    failure 410 of a later page              Failed                        Listing from the start (1)
    Listing    failure 410, "version too large"         Failed                        Listing anew, most recent
    Listing    any other failure                        Failed                        Listing from the start
    Listing    400, 403 or 422 for a stream             - (logged)                    Listing in pages (2)
    Listing    stream opened                            Init                          Streaming
    Streaming  ADDED, MODIFIED / DELETED                InitApply / Delete            Streaming
    Streaming  the bookmark that ends the list          InitDone                      Watching(its version)
    Streaming  that bookmark without a version          - (logged)                    Listing in pages (2)
    Streaming  any other bookmark                       -                             Streaming
    Streaming  ERROR 400, 403 or 422                    - (logged)                    Listing in pages (2)
    Streaming  any other ERROR, a broken stream         Failed                        Listing from the start
    Streaming  the end                                  Failed                        Listing from the start (3)
    Streaming  30 s without that bookmark               - (logged)                    Listing in pages (2)

(1) Counted: after three such restarts the list is asked for in one piece, which has no token that could expire.
(2) The driver remembers it for the resource: for an hour nobody asks for a stream of it. Not after 429, a 5xx, or when
    nobody answers: those pass.
(3) Counted: after three such ends the list is asked for in pages, as after (2).

A list that has to be `suspect` stays so until one of them is complete. What a stream brought before it broke off is
nowhere shown: the next `Init` empties what was gathered.
"""
from __future__ import annotations

from dataclasses import replace

from kubectl_runtime.core.base.errors import ApiError
from kubectl_runtime.core.base.guarded_log import guarded_logger
from kubectl_runtime.core.base.status import Status
from kubectl_runtime.core.codec.record import Record
from kubectl_runtime.runtime.watcher.event import INIT, INIT_DONE, Delete, Event, Failed, Init, InitApply
from kubectl_runtime.runtime.watcher.watch_api import WatchBatch
from kubectl_runtime.runtime.watcher.watch_states import (
    INITIAL_EVENTS_SECONDS,
    MAX_STREAMED_TRIES,
    Listed,
    Listing,
    PageRead,
    Step,
    Streaming,
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
    """A page, or opening a stream, failed."""
    if streaming and isinstance(error, ApiError) and error.code in _NO_STREAMS:
        return _in_pages(state, str(error))
    expired = expired or (state.token is not None and isinstance(error, ApiError) and error.is_expired)
    first = state.first and not is_bad_version(error)
    return Step(Listing(first=first, expired=state.expired + expired, suspect=state.suspect,
                        unfinished=state.unfinished), [failed(error, "list")])


def stream_opened(state: Listing, server: str, now: float) -> Step:
    """A list as a stream begins."""
    return Step(Streaming(state, now, server), [_init(state)])


def streamed(state: Streaming, events: WatchBatch, now: float) -> tuple[Step, WatchBatch]:
    """What the events mean, and those of them that follow the end of the list."""
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
    """The stream ended, or failed with `error`, before the list was complete."""
    if now - state.opened >= INITIAL_EVENTS_SECONDS:
        return _no_end(state)
    if error is None:
        error = WatchError(f"the streaming list ended after {now - state.opened:.1f} s, before it was complete")
    listing, unfinished = state.listing, state.listing.unfinished + 1
    if unfinished >= MAX_STREAMED_TRIES:
        return _in_pages(listing, f"{unfinished} streams in a row ended before the list was complete")
    return list_failed(replace(listing, unfinished=unfinished), error)


def is_bad_version(error: Exception) -> bool:
    """Whether a version will never be watchable (again)."""
    return isinstance(error, ApiError) and (
        error.code in _BAD_VERSION or error.is_expired or error.is_not_found or error.is_too_large_resource_version)


def error_of(status: Status | None) -> ApiError:
    """An ERROR event as the exception that the same Status makes as an HTTP answer."""
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
    log.warning("the server does not stream the list (%s): it is read in pages", why)
    return Step(Listing(first=state.first, suspect=state.suspect, in_pages=True), [])
