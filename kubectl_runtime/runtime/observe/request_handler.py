"""`RequestHandler`: the requests of one connection, in turn, handed to a WSGI application.

wsgiref's, for connections that stay: HTTP/1.1, one thread, one write an answer. The API server keeps its connections to
a webhook, and a handshake costs more than most answers. The handler reports each phase to its connection (see
`listener`), which is cut when a phase takes too long. An answer that does not take the whole body, or has no length, is
the last one of its connection.
"""
from __future__ import annotations

import contextlib
import io
import re
import socket
import sys
import time
from collections.abc import Callable
from typing import Any, BinaryIO, Protocol, cast
from wsgiref.simple_server import ServerHandler, WSGIRequestHandler

from kubectl_runtime.core.base.guarded_log import guarded_logger

log = guarded_logger(__name__)

LONGEST_LINE = 65536
_LENGTH = re.compile(r"[0-9]{1,18}")
LINGER = 1.0
"""Seconds in which a client that still sends may read why nobody listens any more."""


def linger(connection: socket.socket, read: Callable[[int], bytes]) -> None:
    """Send no more, and listen for a moment to a client that may still be sending: otherwise what it was told would be
    lost with a connection that is reset. Blocks for at most `LINGER` seconds; raises OSError when that is over."""
    until = time.monotonic() + LINGER
    socket.socket.shutdown(connection, socket.SHUT_WR)
    while (left := until - time.monotonic()) > 0:
        connection.settimeout(left)
        if not read(1 << 16):
            return


class Served(Protocol):
    """What a handler needs of its connection. Safe to use from any thread."""

    @property
    def limit(self) -> float:
        """Seconds in which a request has to come."""

    @property
    def is_draining(self) -> bool:
        """Whether every answer is the last one of its connection."""

    def begin_idle(self) -> bool:
        """The next request is waited for; whether one may come."""

    def begin_reading(self) -> float:
        """A request begins; by when all of it has to be there."""

    def head_is_read(self, until: float) -> None:
        """The head is there, and the body may come until then."""

    def begin_answering(self) -> None:
        """The request is read, and the application works."""

    def begin_writing(self) -> None:
        """The answer begins."""

    def get_app(self) -> Any:
        """The application that answers."""


class _Body(io.RawIOBase):
    """The body of a request: no byte more than it has, and none after its time."""

    def __init__(self, connection: socket.socket, source: io.BufferedReader, length: int, until: float,
                 when_read: Callable[[], None]) -> None:
        self.left = length
        self._when_read = when_read
        if not length:
            when_read()
        self._connection, self._source, self._until = connection, source, until

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if not self.left:
            return 0
        left = self._until - time.monotonic()
        if left <= 0:
            raise TimeoutError("the body came too slowly")
        self._connection.settimeout(left)
        chunk = self._source.read1(min(len(buffer), self.left))
        buffer[:len(chunk)] = chunk
        self.left -= len(chunk)
        if not self.left:
            self._when_read()
        return len(chunk)


class _Exchange(ServerHandler):
    """One request and its answer."""

    http_version = "1.1"
    server_software = "kubectl-runtime"
    headers: Any
    """The application's, from when it gives them; None before."""

    def __init__(self, handler: RequestHandler, served: Served, body: _Body, *, is_last: bool) -> None:
        super().__init__(cast("BinaryIO", io.BufferedReader(body, 1 << 16)), cast("BinaryIO", handler.wfile),
                         sys.stderr, handler.get_environ(), multithread=True)
        self.request_handler = handler  # where wsgiref looks for it
        self.is_last = is_last
        """Whether the connection ends with the answer; known when that begins."""
        self._served, self._body = served, body

    def send_preamble(self) -> None:
        self._served.begin_writing()
        # What the application left of the body stands in the way; without a length only the end tells the end.
        self.is_last = (self.is_last or self._served.is_draining or self._body.left > 0
                        or "Content-Length" not in self.headers)
        super().send_preamble()
        if self.is_last:
            self._write(b"Connection: close\r\n")

    def log_exception(self, exc_info: Any) -> None:
        error = exc_info[1]
        if isinstance(error, OSError):
            log.debug("a client has gone: %s", error)
        else:
            request: Any = self.request_handler
            log.error("the application failed on %s %s", request.command, request.path, exc_info=error)


class RequestHandler(WSGIRequestHandler):
    """Reads the requests of one connection, one after the other, and answers them by the application."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # else the end of an answer waits for the client's word that it has the beginning
    wbufsize = 1 << 16
    error_content_type = "text/plain; charset=utf-8"
    error_message_format = "%(code)d %(message)s: %(explain)s\n"

    def handle(self) -> None:
        """Serve the connection until it ends. Blocks."""
        while self._handle_next():
            pass

    def _handle_next(self) -> bool:
        """Whether another request may follow."""
        served = cast("Served", self.server)
        if not served.begin_idle():
            return False
        self.connection.settimeout(None)  # the listener ends each phase
        source = cast("io.BufferedReader", self.rfile)
        if not source.peek(1):
            return False
        until = served.begin_reading()
        self.connection.settimeout(served.limit)
        self.raw_requestline = source.readline(LONGEST_LINE + 1)
        if not self.raw_requestline:
            return False
        if len(self.raw_requestline) > LONGEST_LINE:
            self.requestline = self.request_version = self.command = ""
            self.send_error(414)
            return self._end()
        if not self.parse_request():  # it has answered
            return self._end()
        served.head_is_read(until)
        return self._exchange(served, until)

    def _exchange(self, served: Served, until: float) -> bool:
        body = _Body(self.connection, cast("io.BufferedReader", self.rfile), self._length(), until,
                     served.begin_answering)
        exchange = _Exchange(self, served, body, is_last=self.close_connection or self.command == "HEAD")
        exchange.run(served.get_app())
        self.connection.settimeout(served.limit)
        self.wfile.flush()
        return self._end() if exchange.is_last else True

    def _length(self) -> int:
        """Of the body; 0 where it is not said, or in another way, which this server does not read."""
        said = self.headers.get_all("Content-Length", ["0"])
        if "Transfer-Encoding" in self.headers or len(said) > 1 or not _LENGTH.fullmatch(said[0]):
            self.close_connection = True
            del self.headers["Content-Length"]
            return 0
        return int(said[0])

    def handle_expect_100(self) -> bool:
        """Tell a client that waits for it to send the body; True."""
        found = super().handle_expect_100()
        self.wfile.flush()
        return found

    def _end(self) -> bool:
        with contextlib.suppress(OSError):
            self.wfile.flush()
            linger(self.connection, cast("io.BufferedReader", self.rfile).read1)
        return False

    def log_message(self, format: str, *args: Any) -> None:
        """Log at DEBUG what http.server would print."""
        log.debug("%s: " + format, self.client_address[0], *args)


