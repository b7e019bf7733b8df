"""The body of an answer: framing, decompression and size limits, read whole (a call) or piece by piece (a stream).

- `ByteStream` yields the body of an open answer as the server sends it. The iteration ends when the body ends, when
  `shutdown()` is called, and when a stop token is set; the last two wake an idle read within milliseconds. A cut or
  reset raises TransportError, and too long a silence raises RequestTimeout. One thread reads and closes; any thread may
  call `shutdown()`.
- `whole_body` reads the body of a call's answer within its deadline. One object or an error may have 16 MiB, any other
  body (such as a list without `limit`) 2 GiB. A body of more than 512 MiB may be at most a hundred times as large as
  its compressed form; lists are usually about ten times as large. A longer body raises UnexpectedAnswer, which is not
  retried, since the body would be as long the next time.
- `Content` reads a body below urllib3: any framing (chunked, Content-Length, end of the connection) and gzip with any
  number of members. A body that ends before the end of its framing, and gzip that does not end where the framing ends,
  raise FramingError, since the answer was cut or damaged. urllib3's `stream()` costs twice as much, its `read(n)` waits
  for n bytes, and its `read1` hides how many decompressed bytes it holds. `Content` needs http.client's response inside
  urllib3's; an answer without it (a mock) is read by urllib3's own methods.
- `ChunkedDecoder` decodes HTTP/1.1 chunked framing without I/O. The input may be cut anywhere; time is linear in its
  length:

    state     input                          next
    size      "hex[;extension]" CR LF        data, or trailer after size 0
    data      that many bytes                data end
    data end  CR LF                          size
    trailer   lines up to an empty one       finished; anything after it is ignored
"""
from __future__ import annotations

import http.client
import io
import os
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any, Protocol

import requests
import urllib3
from requests.models import Response

from kubectl_runtime.client.http.middleware import Call
from kubectl_runtime.client.http.retry import UnexpectedAnswer
from kubectl_runtime.client.http.sockets import LARGEST_OBJECT
from kubectl_runtime.core.base.errors import RequestTimeout, TransportError, text_of
from kubectl_runtime.core.base.guard import guarded_logger
from kubectl_runtime.core.base.threads import Clock
from kubectl_runtime.core.requests.request import Request
from kubectl_runtime.core.scope import StopToken

LONGEST_LINE = 1 << 16
"""The maximum size in bytes of a size line, and of a trailer; anything longer is not HTTP."""
_LONGEST_PLAIN = 18
"""The maximum size in bytes of a plain size line: sixteen digits and CR LF."""
_is_hex = re.compile(rb"[0-9A-Fa-f]{1,16}").fullmatch  # int() alone would also take signs, 0x and underscores


class FramingError(Exception):
    """The bytes are not a chunked body, or end in the middle of one."""


class ChunkedDecoder:
    """Decodes one body. Not for use from several threads."""

    __slots__ = ("_left", "_line", "_trailer", "finished")

    def __init__(self) -> None:
        self._left = 0
        """Remaining bytes of the current chunk, including the CR LF behind it. At 0 the next input is a line."""
        self._line = b""
        self._trailer = 0
        """The number of bytes of the trailer so far, plus one; 0 before the trailer."""
        self.finished = False

    def feed(self, data: bytes) -> bytes:
        """The part of the body in `data`; may be empty. Raises FramingError."""
        pieces: list[bytes] = []
        position, end, left = 0, len(data), self._left
        if left == 0 and not self._line and not self._trailer:
            position = _whole_chunks(data, 0, pieces)
        while position < end and not self.finished:
            if left == 0:
                newline = data.find(b"\n", position)
                if newline < 0:
                    self._keep(data[position:])
                    break
                left = self._begin(data[position:newline])
                position = newline + 1
                continue
            # The chunk's last two bytes are not content, and perhaps only one of them has arrived.
            content = min(left - 2, end - position)
            if content > 0:
                pieces.append(data[position:position + content])
                position += content
                left -= content
            while 0 < left <= 2 and position < end:
                if data[position] != b"\r\n"[2 - left]:
                    raise FramingError("a chunk is longer than its declared size")
                position += 1
                left -= 1
            if left == 0:
                position = _whole_chunks(data, position, pieces)
        self._left = left
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def end(self) -> None:
        """Note that the connection has ended. Raises FramingError unless the body has ended, too."""
        if not self.finished:
            raise FramingError("the connection ended in the middle of the body")

    def _keep(self, part: bytes) -> None:
        self._line += part
        if len(self._line) > LONGEST_LINE:
            raise FramingError("a chunk's size line has no end")

    def _begin(self, line: bytes) -> int:
        """Process a complete line; returns how many bytes follow before the next line."""
        if self._line:
            self._keep(line)
            line, self._line = self._line, b""
        line = line.rstrip(b"\r")
        if self._trailer:
            self._trailer += len(line)
            if self._trailer > LONGEST_LINE:
                raise FramingError("the body's trailer has no end")
            self.finished = not line
            return 0
        digits = line.partition(b";")[0].strip()
        if not _is_hex(digits):
            raise FramingError("a chunk has no size")
        size = int(digits, 16)
        self._trailer = int(size == 0)
        return size + 2 if size else 0


def _whole_chunks(data: bytes, position: int, pieces: list[bytes]) -> int:
    """Take the whole chunks in `data`, beginning at `position`; nearly all chunks arrive whole. Returns the new
    position.

    Stops at anything unusual, which the general code then handles.
    """
    find, take = data.find, pieces.append
    while True:
        begin = find(b"\n", position, position + _LONGEST_PLAIN) + 1
        after = begin + _plain_size(data[position:begin])
        if after == begin or data[after:after + 2] != b"\r\n":
            return position
        take(data[begin:after])
        position = after + 2


@lru_cache(maxsize=64)
def _plain_size(line: bytes) -> int:
    """The size in a size line with its CR LF; 0 for a size of 0, and for any line that is not plain.

    Cached, since a server that cuts its answers at two kilobytes sends the same few lines again and again.
    """
    return int(line[:-2], 16) if line.endswith(b"\r\n") and _is_hex(line[:-2]) else 0


GZIP = "gzip"

PIECE = 1 << 19
"""The maximum size of a piece in bytes. Each read lets other threads run, so under a flood of events larger pieces mean
fewer switches between the watch and the workers: the whole pipeline was a quarter faster with 256 KiB than with 64 KiB,
and another twentieth faster with 512 KiB."""

_PACKED = 1 << 14
"""The maximum number of compressed bytes per read: zlib copies its unused input after each piece and each member."""


class UnknownCoding(Exception):
    """The body has a Content-Encoding that this library did not request and cannot read. The error text names the
    encoding."""


def content_coding(headers: Mapping[str, str]) -> str:
    """`gzip`, or empty for an uncompressed body. Raises UnknownCoding for any other Content-Encoding."""
    named = headers.get("Content-Encoding")
    if named is None:  # the common case
        return ""
    coding = named.strip().lower()
    if coding in ("", "identity"):
        return ""
    if coding != GZIP:
        raise UnknownCoding(f"Content-Encoding {named[:100]!r}")
    return GZIP


class Framed(Protocol):
    """The head of an answer, urllib3's or http.client's: how its body is framed and coded."""

    @property
    def headers(self) -> Any:
        """The headers; a mapping."""

    @property
    def version(self) -> int:
        """11 for HTTP/1.1."""

    @property
    def chunked(self) -> Any:
        """Whether the body comes in chunks."""

    @property
    def length_remaining(self) -> int | None:
        """The remaining bytes of the body; None if its end is marked by a chunk or by the end of the connection."""


class Content:
    """The content of one answer. A Content can be read once, by one thread.

    Iterating yields pieces of `PIECE` bytes at most, and an empty piece after a read that brought no content. Iterating
    blocks and raises like a read of the connection, and also raises FramingError.
    """

    def __init__(self, raw: Framed, file: io.BufferedReader) -> None:
        """`raw` has an open, unread body, which is read from `file`. Raises UnknownCoding."""
        length = raw.length_remaining
        self._framing = ChunkedDecoder() if raw.chunked and length is None else _Unframed(length)
        self._gunzip = Gunzip() if content_coding(raw.headers) else None
        self._file = file
        self.received = 0
        """Bytes of the body received so far; for a compressed body, compressed bytes."""

    @property
    def ended(self) -> bool:
        """Whether the whole body has come, if the framing shows this before the connection ends."""
        return self._framing.finished

    def __iter__(self) -> Iterator[bytes]:
        framing, gunzip, read = self._framing, self._gunzip, self._file.read1
        most = PIECE if gunzip is None else _PACKED
        while not framing.finished:
            data = read(most)
            if not data:
                framing.end()
                break
            body = framing.feed(data)
            self.received += len(body)
            if gunzip is None:
                yield body
            else:
                yield from gunzip.feed(body)
        if gunzip is not None:
            gunzip.end()


class _Unframed:
    """A body without framing: `length` bytes, or until the connection ends."""

    def __init__(self, length: int | None) -> None:
        self._left = length
        self.finished = length == 0

    def feed(self, data: bytes) -> bytes:
        if self._left is None:
            return data
        data = data[:self._left]
        self._left -= len(data)
        self.finished = self._left == 0
        return data

    def end(self) -> None:
        if self._left:
            raise FramingError(f"{self._left} bytes of the answer are missing")


class Gunzip:
    """Decompresses gzip data that arrives in pieces of any size. The data may have several members, each followed by
    any number of NUL bytes."""

    def __init__(self) -> None:
        self._member: Any = None  # zlib's class has no public name
        self._after_one = False

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Yield the decompressed `data` in pieces of `PIECE` bytes at most. Yields at least one piece, which may be
        empty. Raises FramingError for anything but gzip."""
        while True:
            if self._member is None:
                if self._after_one:
                    data = data.lstrip(b"\0")
                if not data:
                    yield b""
                    return
                self._member = zlib.decompressobj(16 + zlib.MAX_WBITS)
            try:
                piece = self._member.decompress(data, PIECE)
            except zlib.error as error:
                raise FramingError(f"the gzip data is damaged: {str(error).rpartition(': ')[2]}") from None
            yield piece
            if self._member.eof:
                data = self._member.unused_data
                self._member, self._after_one = None, True
                if not data:
                    return
            else:
                data = self._member.unconsumed_tail
                if not data and len(piece) < PIECE:  # a short piece means that zlib holds no more
                    return

    def end(self) -> None:
        """Note that the input has ended. Raises FramingError in the middle of a member."""
        if self._member is not None:
            raise FramingError("the gzip data is cut off")


def raw_file(raw: Any) -> io.BufferedReader | None:
    """The file below urllib3 and http.client from which the body can be read; None for an answer without one."""
    inner = raw_response(raw)
    if not isinstance(raw, urllib3.HTTPResponse) or not isinstance(inner, http.client.HTTPResponse):
        return None
    return inner.fp if isinstance(inner.fp, io.BufferedReader) else None


def raw_response(raw: Any) -> Any:
    """http.client's response inside urllib3's response; a mock may have None or something else."""
    return getattr(raw, "_fp", None)


log = guarded_logger(__name__)

class ByteStream:
    """The body of a streamed answer. A context manager: leaving it closes the connection."""

    def __init__(self, response: Response, operation: str, *, stops: Iterable[StopToken] = ()) -> None:
        """`operation` names the request in errors. The stream ends when any of `stops` is set."""
        self._response = response
        self._operation = operation
        self._stopped = False
        self._closed = False
        self._process = os.getpid()
        self._forget: list[Callable[[], None]] = [stop.on_set(self.shutdown) for stop in stops]

    @property
    def status(self) -> int:
        """The HTTP status of the answer."""
        return self._response.status_code

    @property
    def headers(self) -> Any:
        """The headers of the answer."""
        return self._response.headers

    def chunks(self) -> Iterator[bytes]:
        """The body in pieces as they arrive; b"" means that nothing is ready (simulated transports only).

        Blocks until something arrives, the connection ends, the stream is shut down, or the read timeout passes.
        Raises TransportError when the connection breaks off, RequestTimeout after too long a silence.
        """
        file = raw_file(self._response.raw)
        pieces = self._foreign() if file is None else self._direct(Content(self._response.raw, file))
        try:
            for piece in pieces:
                if self._stopped:  # drop the data, since a TLS socket that was shut down yields encrypted bytes
                    return
                yield piece
        except (TimeoutError, urllib3.exceptions.ReadTimeoutError, requests.exceptions.Timeout):
            if not self._stopped:
                raise RequestTimeout(f"{self._operation}: the server was silent for too long") from None
        except _BROKEN as error:
            if not self._stopped:
                raise TransportError(f"{self._operation}: the connection broke off ({text_of(error)})") from None
        finally:
            self.close()

    def _direct(self, content: Content) -> Iterator[bytes]:
        """The pieces of a body, read from the connection's file. http.client must not have read from the body."""
        self._check_process()
        for piece in content:
            if piece:
                yield piece
            self._check_process()

    def _check_process(self) -> None:
        if self._process != os.getpid():
            raise TransportError(f"{self._operation}: the stream was opened in the parent process, which reads from "
                                 "the same connection: open another stream in this process")

    def _foreign(self) -> Iterator[bytes]:
        stream = getattr(self._response.raw, "stream", None)
        if stream is None:
            return iter(self._response.iter_content(PIECE))
        pieces: Iterator[bytes] = stream(PIECE, decode_content=True)
        return pieces

    def shutdown(self) -> None:
        """End the stream, from any thread. Does not block; the reading thread closes the connection. Safe to repeat.

        Does nothing in a forked child process: the parent reads from the same socket.
        """
        if self._process != os.getpid():
            return
        self._stopped = True
        try:
            self._response.raw.shutdown()
        except AttributeError:  # an answer of another library: it can only be closed
            self._response.close()
        except (OSError, ValueError, RuntimeError) as error:  # the body has already ended
            log.debug("%s: nothing to shut down: %s", self._operation, error)

    def close(self) -> None:
        """Close the connection. Only the reading thread may call it; other threads call `shutdown`. Safe to repeat."""
        if self._closed:
            return
        self._closed = True
        self._stopped = True
        for forget in self._forget:
            forget()
        # Not Response.close(), which would return the closed connection to a pool that rejects it.
        close = getattr(self._response.raw, "close", self._response.close)
        close()

    def __enter__(self) -> ByteStream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


_BROKEN = (OSError, FramingError, ValueError, urllib3.exceptions.HTTPError, http.client.HTTPException,
           requests.RequestException)
"""Exceptions of a broken connection; ValueError when the file was closed while it was read."""


LARGEST_ANSWER = 2 << 30
LARGEST_EXPANDED = 512 << 20
"""The size in bytes up to which gzip may expand without a further limit."""
_EXPANSION = 100
"""The maximum ratio of expanded to received bytes for a body of more than `LARGEST_EXPANDED` bytes."""

_MANY = frozenset(("list", "deletecollection"))
_TEXTS = frozenset(("log", "proxy"))
"""Subresources whose answer is not an object."""
_HTTP_1_1 = 11


def whole_body(response: Response, call: Call, clock: Clock) -> bytes:
    """The body of an answer. The connection goes back to its pool, or is closed if the body could not be read to its
    end. A body that has already been read is returned again.

    If an error answer has an unknown Content-Encoding, the returned text says so. Raises FramingError for an answer
    that is cut, TimeoutError after the deadline, and UnexpectedAnswer for an answer that is too long. A successful
    answer with an unknown Content-Encoding raises UnexpectedAnswer, too. Also raises whatever requests and urllib3
    raise.
    """
    try:
        check_coding(response, call.request)
        file, given = raw_file(response.raw), vars(response)
        # The library `requests` has already read the body, or there is no file to read it from.
        if file is None or given.get("_content") is not False or given.get("_content_consumed"):
            return response.content
        body = read_body(response.raw, file, call, clock, is_error=response.status_code >= 300)
        raw_response(response.raw).close()
        response.raw.release_conn()
        return body
    except UnknownCoding as coding:
        response.close()
        return unread_error(response.status_code, coding)
    except BaseException:
        response.close()
        raise


def check_coding(response: Response, request: Request) -> None:
    """Raise UnexpectedAnswer for an unreadable Content-Encoding. For an error answer, whose status matters more than
    its text, raises UnknownCoding instead."""
    try:
        content_coding(response.headers)
    except UnknownCoding as coding:
        if response.status_code >= 300:
            raise
        response.close()
        raise unread_answer(request, coding) from None


def unread_error(status: int, coding: UnknownCoding) -> bytes:
    """The text that replaces the body of an error answer with this Content-Encoding."""
    return f"HTTP {status} with {coding}, which cannot be read".encode()


def unread_answer(request: Request, coding: UnknownCoding) -> UnexpectedAnswer:
    """The exception for a successful answer with this Content-Encoding."""
    return UnexpectedAnswer(f"{request.operation}: the answer has {coding}, which was not requested and cannot be "
                            "read. Is a proxy in the way?")


def read_body(raw: Framed, file: io.BufferedReader, call: Call, clock: Clock, *, is_error: bool) -> bytes:
    """The body that follows the head `raw`. It is read without urllib3's methods, which would cost more than all other
    work for an answer. Raises like `whole_body`, and UnknownCoding."""
    content, pieces, size = Content(raw, file), [], 0
    one_object = is_error or _is_one_object(call.request)
    for piece in content:
        size += len(piece)
        pieces.append(piece)
        if size > LARGEST_OBJECT and size > (limit := _limit(content.received, one_object=one_object)):
            raise UnexpectedAnswer(f"{call.request.operation}: the answer is longer than {limit >> 20} MiB, the "
                                   f"maximum for {'one object' if one_object else 'one answer'}"
                                   f"{'' if one_object else '; read a list in pages (limit=)'}")
        if not content.ended and clock.monotonic() >= call.deadline:
            raise TimeoutError
    if not content.received and _ends_with_the_connection(raw):
        raise FramingError("the connection ended within the answer's head")
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def _limit(received: int, *, one_object: bool) -> int:
    """The size limit of an answer after `received` bytes have come over the connection."""
    return LARGEST_OBJECT if one_object else max(LARGEST_EXPANDED, min(LARGEST_ANSWER, received * _EXPANSION))


def _is_one_object(request: Request) -> bool:
    return request.resource is not None and request.verb not in _MANY and request.subresource not in _TEXTS


def _ends_with_the_connection(raw: Framed) -> bool:
    """Whether the length of the body is unknown. If the connection is cut within the head, http.client takes the cut
    for the end of the head: the head may then lack Content-Length, and there is no body. (HTTP/1.0 and mocks may leave
    Content-Length out on purpose.)"""
    return raw.version == _HTTP_1_1 and raw.length_remaining is None and not raw.chunked
