"""`ByteStream`: the body of an open answer, piece by piece as the server sends it.

    open -> chunks() ... -> end of body          the iteration ends
                         -> shutdown() or stop   the iteration ends; an idle read is woken within milliseconds
                         -> cut, reset           TransportError
                         -> silence too long     RequestTimeout

The bytes are read below urllib3, whose `stream()` costs twice as much and whose `read(n)` waits for n bytes: one
`read1` on the response's buffered file brings what has arrived, and `ChunkedDecoder` takes the framing off. That needs
http.client's response object inside urllib3's; an answer without it (a mock, a compressing proxy) is read with
urllib3's own `stream()`.

One thread reads and closes; `shutdown()` may come from any.
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

from kubectl_runtime.client.wire.chunked import ChunkedDecoder, FramingError
from kubectl_runtime.core.base.errors import RequestTimeout, TransportError, text_of
from kubectl_runtime.core.base.guarded_log import guarded_logger
from kubectl_runtime.core.base.stop import StopToken

log = guarded_logger(__name__)

PIECE = 1 << 19
"""The most bytes that one read takes. Each read lets other threads run, so under a flood of events larger pieces mean
fewer switches between the watch and the workers: with 256 KiB the whole pipeline was a quarter faster than with 64,
with 512 a twentieth more."""


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
        pieces = self._foreign() if file is None else self._direct(file)
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

    def _direct(self, file: io.BufferedReader) -> Iterator[bytes]:
        """The pieces of a body that http.client has not begun to read."""
        decoder = _decoder(self._response.raw)
        while not decoder.finished:
            if self._process != os.getpid():
                raise TransportError(f"{self._operation}: it was opened in the process that this one was forked from, "
                                     "which reads from the same connection: open another one here")
            data = file.read1(PIECE)
            if not data:
                decoder.end()
                return
            piece = decoder.feed(data)
            if piece:
                yield piece

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


class _PlainDecoder:
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
            raise FramingError(f"{self._left} bytes of the body are missing")


_BROKEN = (OSError, FramingError, ValueError, urllib3.exceptions.HTTPError, http.client.HTTPException,
           requests.RequestException)
"""What a broken connection may raise; ValueError when the file was closed under the reader."""


def raw_file(raw: Any) -> io.BufferedReader | None:
    """The file below urllib3 and http.client, when the body can be read from it as it stands."""
    inner = getattr(raw, "_fp", None)
    if not isinstance(raw, urllib3.HTTPResponse) or not isinstance(inner, http.client.HTTPResponse):
        return None
    if raw.headers.get("Content-Encoding", "identity") != "identity":
        return None
    return inner.fp if isinstance(inner.fp, io.BufferedReader) else None


def _decoder(raw: urllib3.HTTPResponse) -> ChunkedDecoder | _PlainDecoder:
    return ChunkedDecoder() if raw.chunked else _PlainDecoder(raw.length_remaining)
