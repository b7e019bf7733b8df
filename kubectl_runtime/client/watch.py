"""`open_watch`: one watch request, as batches of events.

It knows nothing of resuming or listing again: that is the watcher's. A cut, a reset, the end of the body and the stop token end
the iteration alike, since all of them mean "ask again from the last version"; an event that was cut off is dropped.
"""
from __future__ import annotations

import logging
from collections.abc import Generator, Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kubectl_runtime.client.failures import decode_status
from kubectl_runtime.client.stream import ByteStream, LineSplitter
from kubectl_runtime.core.errors import DecodeError, RequestTimeout, TransportError
from kubectl_runtime.core.gvk import ApiResource
from kubectl_runtime.core.head import Bookmark, decode_event
from kubectl_runtime.core.record import Record
from kubectl_runtime.core.request import Request
from kubectl_runtime.core.status import Status
from kubectl_runtime.core.stop import StopToken

if TYPE_CHECKING:
    from kubectl_runtime.client.client import Client

log = logging.getLogger(__name__)

_LONGEST_STATUS = 1 << 16


@dataclass(frozen=True, slots=True)
class WatchEvent:
    """One event of a watch. `type`: ADDED, MODIFIED, DELETED (with a record), BOOKMARK (with a version), ERROR (with a status).

    `resource_version` is where to resume after this event; empty when it does not say (errors).
    """

    type: str
    record: Record | None = None
    resource_version: str = ""
    status: Status | None = None
    initial_events_end: bool = False


def open_watch(client: Client, request: Request, resource: ApiResource, stop: StopToken | None = None, *,
               read_timeout: float | None = None) -> Iterator[list[WatchEvent]]:
    """Send the watch `request` now; the iterator that comes back yields a batch of events for each piece that arrives.

    An empty batch means that nothing is ready (simulated transports only). `read_timeout`: the longest silence, in seconds.
    Raises ApiError when the server refuses (410 too), TransportError when it cannot be reached; the iterator raises
    RequestTimeout after too long a silence and DecodeError for what is no watch stream, and otherwise ends.
    Close it (`contextlib.closing`) when leaving early. It belongs to one thread; others set `stop`.
    """
    return _batches(client.stream(request, stop=stop, read_timeout=read_timeout), request, resource)


def _batches(stream: ByteStream, request: Request, resource: ApiResource) -> Iterator[list[WatchEvent]]:
    splitter = LineSplitter()
    with closing(stream), closing(_pieces(stream)) as pieces:
        for piece in pieces:
            batch = [line for line in splitter.feed(piece) if line and not line.isspace()]
            if batch and batch[0].rstrip() == b"{":  # no event: a whole document over many lines
                yield [_document(batch, pieces, request)]
                return
            events, failure = _decoded(batch, resource)
            if events or not piece:
                yield events
            if failure is not None:
                raise failure
    if (status := decode_status(splitter.rest())) is not None:
        yield [WatchEvent("ERROR", status=status)]


def _pieces(stream: ByteStream) -> Generator[bytes]:
    """The stream's chunks, until it ends in whatever way; RequestTimeout passes."""
    try:
        yield from stream.chunks()
    except RequestTimeout:
        raise
    except TransportError as error:
        log.debug("%s; it will be asked for again", error)


def _decoded(batch: list[bytes], resource: ApiResource) -> tuple[list[WatchEvent], DecodeError | None]:
    """The events of the lines, up to the first that is none, and what is wrong with that one."""
    events: list[WatchEvent] = []
    try:
        for line in batch:
            events.append(_event(line, resource))
    except DecodeError as error:
        return events, error
    return events, None


def _event(line: bytes, resource: ApiResource) -> WatchEvent:
    try:
        kind, content = decode_event(line, resource)
    except DecodeError:
        status = decode_status(line)  # some servers send a bare Status instead of an ERROR event
        if status is None:
            raise
        return WatchEvent("ERROR", status=status)
    if isinstance(content, Record):
        return WatchEvent(kind, content, content.head.resource_version)
    if isinstance(content, Bookmark):
        return WatchEvent(kind, None, content.resource_version, None, content.initial_events_end)
    return WatchEvent(kind, status=content)


def _document(begun: list[bytes], pieces: Iterator[bytes], request: Request) -> WatchEvent:
    """The Status that an indented document is. Raises DecodeError when it is something else."""
    text = b"\n".join(begun)
    for piece in pieces:
        text += piece
        if len(text) > _LONGEST_STATUS:
            break
    status = decode_status(text)
    if status is None:
        raise DecodeError(None, "$", f"{request.operation}: the server sent no watch events")
    return WatchEvent("ERROR", status=status)
