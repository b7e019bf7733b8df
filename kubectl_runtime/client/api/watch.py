"""`open_watch`: one watch request, as batches of events.

It knows nothing of resuming or listing again: that is the watcher's. A cut, a reset, the end of the body and the stop
token end the iteration alike, since all of them mean "ask again from the last version"; `WatchStream.broke` tells a
connection that failed from one that ended.

    what follows the last newline        at an orderly end            at a cut
    a whole event                        that event                   dropped: it comes again
    a Status                             an ERROR event               an ERROR event
    anything else                        dropped                      dropped
"""
from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, Self, TypeVar

import msgspec

from kubectl_runtime.client.api.api_base import Form
from kubectl_runtime.client.http.retry import decode_status, unexpected_answer
from kubectl_runtime.client.http.sockets import LARGEST_OBJECT, LineSplitter
from kubectl_runtime.core.base.errors import RequestTimeout, Status, TransportError
from kubectl_runtime.core.base.guard import guarded_logger
from kubectl_runtime.core.base.stop import StopToken
from kubectl_runtime.core.codec.jsonbytes import Bookmark, Carried
from kubectl_runtime.core.codec.views import Record
from kubectl_runtime.core.meta.problems import DecodeError, is_json
from kubectl_runtime.core.requests.request import Request

if TYPE_CHECKING:
    from kubectl_runtime.client.api.client import Client
    from kubectl_runtime.client.wire.streams import ByteStream

log = guarded_logger(__name__)

K = TypeVar("K")

_LONGEST_STATUS = 1 << 16


class RecordEvent(msgspec.Struct, frozen=True, gc=False):
    """One event of a `WatchStream`: ADDED, MODIFIED, DELETED (with a record), BOOKMARK (with a version), ERROR (with a
    status).

    `resource_version` is where to resume after this event; empty when it does not say (errors).
    """

    type: str
    record: Record | None = None
    resource_version: str = ""
    status: Status | None = None
    initial_events_end: bool = False


@dataclass(frozen=True, slots=True)
class WatchEvent(Generic[K]):
    """One event of `Api.watch`: ADDED, MODIFIED, DELETED with an `obj`; ERROR with a `status`; BOOKMARK with
    neither, where `params` asked for them."""

    type: str
    obj: K | None
    resource_version: str = ""
    status: Status | None = None


class WatchStream:
    """The batches of an open watch, one for each piece that brings any; an empty one means that nothing is ready
    (simulated transports only). One thread iterates and closes it; others set the stop token."""

    def __init__(self, stream: ByteStream, request: Request, form: Form) -> None:
        self._stream = stream
        self._pieces = _Pieces(stream)
        self._batches = _batches(stream, self._pieces, request, form)

    @property
    def broke(self) -> TransportError | None:
        """Why the connection failed, if that is how the iteration ended; None for an orderly end."""
        return self._pieces.broke

    @property
    def flow_schema(self) -> str:
        """The uid of the server's FlowSchema for this request, empty when the server does not say. Another uid than
        before for the same request: another cluster may answer, or its FlowSchemas have changed."""
        found: str = self._stream.headers.get("X-Kubernetes-Pf-Flowschema-Uid", "")
        return found

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> list[RecordEvent]:
        return next(self._batches)

    def close(self) -> None:
        """Close the connection. Safe to repeat."""
        self._batches.close()
        self._stream.close()  # a generator that never ran closes nothing

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def open_watch(client: Client, request: Request, form: Form, stop: StopToken | None = None, *,
               read_timeout: float | None = None, deadline: float | None = None) -> WatchStream:
    """Open a watch: send `request` and wait for the head of its answer.

    `read_timeout`: the longest silence, in seconds. `deadline` is for its opening. Raises ApiError when the server
    refuses (410 too), TransportError when it cannot be reached. Iterating raises RequestTimeout after too long a
    silence, DecodeError for a line that is not a watch event or is longer than 16 MiB, after the events before it, and
    UnexpectedAnswer for a web page; otherwise it ends. Close it when leaving early.
    """
    return WatchStream(client.stream(request, stop=stop, read_timeout=read_timeout, deadline=deadline), request, form)


class _Pieces:
    """The chunks of a stream until it ends, in whatever way; only RequestTimeout passes. `broke`: what ended it, unless
    it was an orderly end."""

    def __init__(self, stream: ByteStream) -> None:
        self._stream = stream
        self.broke: TransportError | None = None

    def __iter__(self) -> Generator[bytes]:
        try:
            yield from self._stream.chunks()
        except RequestTimeout:
            raise
        except TransportError as error:
            log.debug("%s; it will be asked for again", error)
            self.broke = error


def _batches(stream: ByteStream, arriving: _Pieces, request: Request, form: Form) -> Generator[list[RecordEvent]]:
    splitter = LineSplitter()
    begun = False
    with closing(stream), closing(iter(arriving)) as pieces:
        for piece in pieces:
            batch = [line for line in splitter.feed(piece) if line and not line.isspace()]
            if batch and batch[0].rstrip() == b"{":  # no event: a whole document over many lines
                yield [_document(batch, splitter, pieces, request)]
                return
            if batch and len(batch[0]) > LARGEST_OBJECT:  # the others lie within one piece
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
    # What is half of a line may look like an object with less in it to a decoder that salvages what it can
    elif arriving.broke is None and is_json(rest):
        events, _ = _decoded([rest], form)
        if events:
            yield events


def _decoded(batch: list[bytes], form: Form) -> tuple[list[RecordEvent], DecodeError | None]:
    """The events of the lines up to the first that is not an event, and what is wrong with that one."""
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
        if type(content) is Record:  # nearly always, and faster than isinstance
            events.append(RecordEvent(kind, content, content.head.resource_version))
        else:
            events.append(_other_event(kind, content))
    return events, None


def _too_long(request: Request) -> DecodeError:
    return DecodeError(None, "$", f"{request.operation}: an event is longer than {LARGEST_OBJECT >> 20} MiB, the most "
                       "that is read of one object")


def _other_event(kind: str, content: Carried) -> RecordEvent:
    """An event without an object."""
    if isinstance(content, Bookmark):
        return RecordEvent(kind, None, content.resource_version, None, content.initial_events_end)
    if isinstance(content, Status):
        return RecordEvent(kind, status=content)
    return RecordEvent(kind)  # of a type nobody knows: for the watcher to say so


def _document(begun: list[bytes], splitter: LineSplitter, pieces: Iterator[bytes], request: Request) -> RecordEvent:
    """The Status that an indented document is. Raises DecodeError when it is something else."""
    text = b"\n".join([*begun, splitter.rest()])
    for piece in pieces:
        text += piece
        if len(text) > _LONGEST_STATUS:
            break
    status = decode_status(text)
    if status is None:
        raise DecodeError(None, "$", f"{request.operation}: the server sent no watch events")
    return RecordEvent("ERROR", status=status)
