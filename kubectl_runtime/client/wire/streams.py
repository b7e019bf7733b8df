"""`ByteStream`: the body of an open answer, piece by piece as the server sends it.

    open -> chunks() ... -> end of body          the iteration ends
                         -> shutdown() or stop   the iteration ends; an idle read is woken within milliseconds
                         -> cut, reset           TransportError
                         -> silence too long     RequestTimeout

The bytes are read below urllib3 (`Content`); an answer without http.client's response object (a mock) is read with
urllib3's own `stream()`.

One thread reads and closes; `shutdown()` may come from any.
"""
from __future__ import annotations

import http.client
import os
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import requests
import urllib3
from requests.models import Response

from kubectl_runtime.client.wire.chunked import FramingError
from kubectl_runtime.client.wire.content import PIECE, Content, raw_file
from kubectl_runtime.core.base.errors import RequestTimeout, TransportError, text_of
from kubectl_runtime.core.base.guarded_log import guarded_logger
from kubectl_runtime.core.base.stop import StopToken

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
