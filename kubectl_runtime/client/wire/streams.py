"""`ByteStream`: the body of an open answer, piece by piece as the server sends it.

    open -> chunks() ... -> end of body          the iteration ends
                         -> shutdown() or stop   the iteration ends; an idle read is woken within milliseconds
                         -> cut, reset           TransportError
                         -> silence too long     RequestTimeout

The bytes are read below urllib3 (`Content`); an answer without http.client's response object (a mock) is read with
urllib3's own `stream()`.

One thread reads and closes; `shutdown()` may come from any.

The body of a call's answer, read whole: within the call's deadline, to the end of its content, and up to a size.

    16 MiB     one object, and any error
    2 GiB      anything else, such as a list without `limit`
    512 MiB    of that, what gzip has made more than a hundredfold: lists are compressed some ten times

A body that is longer raises UnexpectedAnswer, since it would be as long the next time.
"""
from __future__ import annotations

import http.client
import io
import os
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import requests
import urllib3
from requests.models import Response

from kubectl_runtime.client.http.middleware import Call
from kubectl_runtime.client.http.retry import UnexpectedAnswer
from kubectl_runtime.client.http.wire_rules import LARGEST_OBJECT
from kubectl_runtime.client.wire.content import (
    PIECE,
    Content,
    FramingError,
    UnknownCoding,
    content_coding,
    raw_file,
    raw_response,
)
from kubectl_runtime.core.base.clock import Clock
from kubectl_runtime.core.base.errors import RequestTimeout, TransportError, text_of
from kubectl_runtime.core.base.guard import guarded_logger
from kubectl_runtime.core.base.stop import StopToken
from kubectl_runtime.core.requests.request import Request

log = guarded_logger(__name__)

class ByteStream:
    """The body of a streamed answer. A context manager: leaving it closes the connection."""

    def __init__(self, response: Response, operation: str, *, stops: Iterable[StopToken] = ()) -> None:
        """`operation` names the request in errors. The stream ends when one of `stops` is set."""
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
        """The body in the pieces in which it arrives; b"" means that nothing is ready (simulated transports only).

        Blocks until something arrives, the connection ends, the stream is shut down, or the read timeout passes.
        Raises TransportError when the connection breaks off, RequestTimeout after too long a silence.
        """
        file = raw_file(self._response.raw)
        pieces = self._foreign() if file is None else self._direct(Content(self._response.raw, file))
        try:
            for piece in pieces:
                if self._stopped:  # whatever came: a TLS socket that was shut down yields what is below its encryption
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
        """The pieces of a body that http.client has not begun to read."""
        self._check_process()
        for piece in content:
            if piece:
                yield piece
            self._check_process()

    def _check_process(self) -> None:
        if self._process != os.getpid():
            raise TransportError(f"{self._operation}: it was opened in the process that this one was forked from, "
                                 "which reads from the same connection: open another one here")

    def _foreign(self) -> Iterator[bytes]:
        stream = getattr(self._response.raw, "stream", None)
        if stream is None:
            return iter(self._response.iter_content(PIECE))
        pieces: Iterator[bytes] = stream(PIECE, decode_content=True)
        return pieces

    def shutdown(self) -> None:
        """End the stream, from any thread. Does not block; the reading thread closes the connection. Safe to repeat.

        In the child of a fork nothing: the parent reads from the same socket.
        """
        if self._process != os.getpid():
            return
        self._stopped = True
        try:
            self._response.raw.shutdown()
        except AttributeError:  # a foreign answer: closing is all there is
            self._response.close()
        except (OSError, ValueError, RuntimeError) as error:  # already at its end
            log.debug("%s: nothing to shut down: %s", self._operation, error)

    def close(self) -> None:
        """Close the connection. For the reading thread; others call `shutdown`. Safe to repeat."""
        if self._closed:
            return
        self._closed = True
        self._stopped = True
        for forget in self._forget:
            forget()
        # Not Response.close(), which would give the closed connection back to a pool that does not want it.
        close = getattr(self._response.raw, "close", self._response.close)
        close()

    def __enter__(self) -> ByteStream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


_BROKEN = (OSError, FramingError, ValueError, urllib3.exceptions.HTTPError, http.client.HTTPException,
           requests.RequestException)
"""What a broken connection may raise; ValueError when the file was closed under the reader."""


LARGEST_ANSWER = 2 << 30
LARGEST_EXPANDED = 512 << 20
"""What gzip may expand to, however little it was."""
_EXPANSION = 100
"""How many times as long as it came an answer above that may be."""

_MANY = frozenset(("list", "deletecollection"))
_TEXTS = frozenset(("log", "proxy"))
"""Subresources that are no objects."""
_HTTP_1_1 = 11


def whole_body(response: Response, call: Call, clock: Clock) -> bytes:
    """The answer's body; the connection goes back to its pool, or is closed when the body could not be read to its
    end. One that was read already is given again.

    Of an error whose Content-Encoding is unknown the body says that.
    Raises FramingError for an answer that is cut, TimeoutError after the deadline, UnexpectedAnswer for one that is too
    long or has another unknown Content-Encoding, and what requests and urllib3 raise.
    """
    try:
        check_coding(response, call.request)
        file, given = raw_file(response.raw), vars(response)
        if file is None or given.get("_content") is not False or given.get("_content_consumed"):  # as requests notes it
            return response.content
        return _read(response.raw, file, call, clock, is_error=response.status_code >= 300)
    except UnknownCoding as coding:
        response.close()
        return f"HTTP {response.status_code} with {coding}, which cannot be read".encode()
    except BaseException:
        response.close()
        raise


def check_coding(response: Response, request: Request) -> None:
    """Raises UnexpectedAnswer for a Content-Encoding that cannot be read; for an error, whose status counts more than
    its text, UnknownCoding."""
    try:
        content_coding(response.headers)
    except UnknownCoding as coding:
        if response.status_code >= 300:
            raise
        response.close()
        raise UnexpectedAnswer(f"{request.operation}: the answer has {coding}, which was not asked for and cannot be "
                               "read. Is a proxy in the way?") from None


def _read(raw: urllib3.HTTPResponse, file: io.BufferedReader, call: Call, clock: Clock, *, is_error: bool) -> bytes:
    """The body, read below urllib3, whose own way costs more than the rest of reading an answer."""
    content, pieces, size = Content(raw, file), [], 0
    one_object = is_error or _is_one_object(call.request)
    for piece in content:
        size += len(piece)
        pieces.append(piece)
        if size > LARGEST_OBJECT and size > (limit := _limit(content.received, one_object=one_object)):
            raise UnexpectedAnswer(f"{call.request.operation}: the answer is longer than {limit >> 20} MiB, the most "
                                   f"that is read of {'one object' if one_object else 'one answer'}"
                                   f"{'' if one_object else '; lists come in pages with a limit'}")
        if not content.ended and clock.monotonic() >= call.deadline:
            raise TimeoutError
    if not content.received and _ends_with_the_connection(raw):
        raise FramingError("the answer broke off in its head")
    raw_response(raw).close()
    raw.release_conn()
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def _limit(received: int, *, one_object: bool) -> int:
    """The most bytes of an answer of which `received` have come over the connection."""
    return LARGEST_OBJECT if one_object else max(LARGEST_EXPANDED, min(LARGEST_ANSWER, received * _EXPANSION))


def _is_one_object(request: Request) -> bool:
    return request.resource is not None and request.verb not in _MANY and request.subresource not in _TEXTS


def _ends_with_the_connection(raw: urllib3.HTTPResponse) -> bool:
    """Whether nothing says how long the body is. http.client takes a connection that is cut within the head for the
    head's end; what is left of the head then says no length, and there is no body. (HTTP/1.0 and mocks may do so on
    purpose.)"""
    return raw.version == _HTTP_1_1 and raw.length_remaining is None and not raw.chunked
