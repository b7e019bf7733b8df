"""`open_watch`: sends one watch request and yields the events in batches.

Resuming and listing again is the watcher's task. A connection reset, the end of the body and a set stop token all end
the iteration without an error, because the watcher can resume from the last version. `WatchStream.broke` distinguishes
a failed connection from an orderly end. Data after the last newline is used if it is a Status, or if it is a whole
event and the stream ended normally. Otherwise it is dropped, and the server sends it again to the next watch.
"""
from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import closing
from typing import TYPE_CHECKING, Generic, Self, TypeVar

import msgspec

from kubectl_runtime.client.api.api_base import Form
from kubectl_runtime.client.http.retry import decode_status, unexpected_answer
from kubectl_runtime.client.http.sockets import LARGEST_OBJECT, LineSplitter
from kubectl_runtime.core.base.errors import RequestTimeout, Status, TransportError
from kubectl_runtime.core.base.guard import guarded_logger
from kubectl_runtime.core.codec.jsonbytes import Bookmark, Carried
from kubectl_runtime.core.codec.views import Record
from kubectl_runtime.core.meta.problems import DecodeError, is_json
from kubectl_runtime.core.requests.request import Request
from kubectl_runtime.core.scope import StopToken

if TYPE_CHECKING:
    from kubectl_runtime.client.api.client import Client
    from kubectl_runtime.client.wire.streams import ByteStream

log = guarded_logger(__name__)

K = TypeVar("K")

_LONGEST_STATUS = 1 << 16


class RecordEvent(msgspec.Struct, frozen=True, gc=False):
    """One event of a `WatchStream`: ADDED, MODIFIED, DELETED (with a record), BOOKMARK (with a version), ERROR (with a
    status).

    `resource_version` is where to resume after this event; it is empty for errors.
    """

    type: str
    record: Record | None = None
    resource_version: str = ""
    status: Status | None = None
    initial_events_end: bool = False


class WatchEvent(msgspec.Struct, Generic[K], frozen=True):
    """One event of `Api.watch`: ADDED, MODIFIED, DELETED with an `obj`; ERROR with a `status`; BOOKMARK with neither,
    if `params` requested bookmarks."""

    type: str
    obj: K | None
    resource_version: str = ""
    status: Status | None = None


class WatchStream:
    """The batches of an open watch, one for each received chunk that completes an event. An empty batch means that
    nothing is ready (simulated transports only). One thread iterates over the stream and closes it; other threads set
    the stop token."""

    def __init__(self, stream: ByteStream, request: Request, form: Form) -> None:
        self._stream = stream
        self._pieces = _Pieces(stream)
        self._batches = _batches(stream, self._pieces, request, form)

    @property
    def broke(self) -> TransportError | None:
        """Why the connection failed, if that ended the iteration; None for an orderly end."""
        return self._pieces.broke

    @property
    def flow_schema(self) -> str:
        """The uid of the server's FlowSchema for this request; empty when the server sends none. A different uid for
        the same request means that the answer may come from another cluster, or that this cluster's FlowSchemas have
        changed."""
        found: str = self._stream.headers.get("X-Kubernetes-Pf-Flowschema-Uid", "")
        return found

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> list[RecordEvent]:
        return next(self._batches)

    def close(self) -> None:
        """Close the connection. Safe to repeat."""
        self._batches.close()
        self._stream.close()  # needed as well: closing a generator that never ran closes nothing

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def open_watch(client: Client, request: Request, form: Form, stop: StopToken | None = None, *,
               read_timeout: float | None = None, deadline: float | None = None) -> WatchStream:
    """Open a watch: send `request`, and wait for the answer's headers.

    `read_timeout`: the longest silence, in seconds. `deadline` applies only to opening the watch. Raises ApiError when
    the server refuses the watch (also with 410), TransportError when the server cannot be reached. The iteration raises
    RequestTimeout after too long a silence, and UnexpectedAnswer for a web page. For a line that is not a watch event
    or is longer than 16 MiB, the iteration yields the earlier events and then raises DecodeError. In all other cases
    the iteration ends without an error. Close the stream if you stop reading before its end.
    """
    return WatchStream(client.stream(request, stop=stop, read_timeout=read_timeout, deadline=deadline), request, form)


class _Pieces:
    """Yields the chunks of a stream until the stream ends for any reason; raises only RequestTimeout. `broke` is the
    error that ended the stream; None after an orderly end."""

    def __init__(self, stream: ByteStream) -> None:
        self._stream = stream
        self.broke: TransportError | None = None

    def __iter__(self) -> Generator[bytes]:
        try:
            yield from self._stream.chunks()
        except RequestTimeout:
            raise
        except TransportError as error:
            log.debug("%s; the watch will be opened again", error)
            self.broke = error


def _batches(stream: ByteStream, arriving: _Pieces, request: Request, form: Form) -> Generator[list[RecordEvent]]:
    splitter = LineSplitter()
    begun = False
    with closing(stream), closing(iter(arriving)) as pieces:
        for piece in pieces:
            batch = [line for line in splitter.feed(piece) if line and not line.isspace()]
            if batch and batch[0].rstrip() == b"{":  # not an event but an indented document over many lines
                yield [_document(batch, splitter, pieces, request)]
                return
            if batch and len(batch[0]) > LARGEST_OBJECT:  # only the first line can span several chunks
                raise _too_long(request)
            events, failure = _decoded(batch, form)
            if events or not piece:
                yield events
            begun = begun or bool(events)
            if failure is not None:
                raise (None if begun else unexpected_answer(request, stream.status, stream.headers, piece)) or failure
            if splitter.held > LARGEST_OBJECT:
                raise _too_long(request)
    rest = splitter.rest()
    if (status := decode_status(rest)) is not None:
        yield [RecordEvent("ERROR", status=status)]
    elif rest and not begun and (unexpected := unexpected_answer(request, stream.status, stream.headers, rest)):
        raise unexpected
    # A line that was cut off is not decoded: the decoder reads as much as it can, and would return an object that
    # lacks the missing fields.
    elif arriving.broke is None and is_json(rest):
        events, _ = _decoded([rest], form)
        if events:
            yield events


def _decoded(batch: list[bytes], form: Form) -> tuple[list[RecordEvent], DecodeError | None]:
    """The events of the lines up to the first line that is not an event, and the error of that line."""
    events: list[RecordEvent] = []
    decode = form.decode_event
    for line in batch:
        try:
            kind, content = decode(line)
        except DecodeError as error:
            status = decode_status(line)  # some servers send a bare Status instead of an ERROR event
            if status is None:
                return events, error
            kind, content = "ERROR", status
        if type(content) is Record:  # the common case, and faster than isinstance
            events.append(RecordEvent(kind, content, content.head.resource_version))
        else:
            events.append(_other_event(kind, content))
    return events, None


def _too_long(request: Request) -> DecodeError:
    return DecodeError(None, "$", f"{request.operation}: an event is longer than {LARGEST_OBJECT >> 20} MiB, the limit "
                       "for one object")


def _other_event(kind: str, content: Carried) -> RecordEvent:
    """An event without an object."""
    if isinstance(content, Bookmark):
        return RecordEvent(kind, None, content.resource_version, None, content.initial_events_end)
    if isinstance(content, Status):
        return RecordEvent(kind, status=content)
    return RecordEvent(kind)  # an unknown type, which the watcher reports


def _document(begun: list[bytes], splitter: LineSplitter, pieces: Iterator[bytes], request: Request) -> RecordEvent:
    """The Status in an indented document. Raises DecodeError for any other document."""
    text = b"\n".join([*begun, splitter.rest()])
    for piece in pieces:
        text += piece
        if len(text) > _LONGEST_STATUS:
            break
    status = decode_status(text)
    if status is None:
        raise DecodeError(None, "$", f"{request.operation}: the server sent no watch events")
    return RecordEvent("ERROR", status=status)
