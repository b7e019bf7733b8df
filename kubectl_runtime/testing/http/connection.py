"""One connection, served by one thread: requests in turn, answers as a whole, watches chunk by chunk.

While a watch is idle its thread waits on a condition that the watch, the reaper (the client has gone) and the listener (the
server stops) notify; it wakes otherwise only for the watch's own deadline.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import struct
import threading
from collections.abc import Callable
from dataclasses import dataclass

from kubectl_runtime.core.clock import Clock
from kubectl_runtime.testing.apiserver.wire import HttpRequest, HttpResponse, WatchStream
from kubectl_runtime.testing.http.hooks import Drop, Hooks
from kubectl_runtime.testing.http.messages import BadMessage, Reader, body_message, chunk, head
from kubectl_runtime.testing.http.reaper import Reaper

log = logging.getLogger(__name__)

SEND_TIMEOUT = 60.0  # seconds in which a client must take what it is sent


@dataclass(frozen=True)
class Service:
    """What all connections of a server share."""

    handle: Callable[[HttpRequest], HttpResponse]
    clock: Clock
    hooks: Hooks
    reaper: Reaper
    prepare: Callable[[socket.socket], socket.socket]  # TLS: the handshake, in the connection's thread
    subject: Callable[[socket.socket], tuple[tuple[str, str], ...] | None]  # of a verified client certificate


class Connection:
    """A connection; `run` serves it to its end, `stop` ends it from another thread."""

    def __init__(self, connection: socket.socket, service: Service) -> None:
        self._socket = connection
        self._service = service
        self._condition = threading.Condition()
        self._events = 0  # counts notifications, so that none is missed between a poll and a wait
        self._gone = False
        self._stopping = False
        self._idle = True  # between requests

    def send(self, data: bytes) -> None:
        """`hooks.Sink`: to the socket."""
        self._socket.settimeout(SEND_TIMEOUT)
        self._socket.sendall(data)

    def stop(self) -> None:
        """End after the answer under way; an idle connection and watches end at once."""
        with self._condition:
            self._stopping = True
            self._events += 1
            self._condition.notify_all()
            idle = self._idle
        if idle:
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)

    def abort(self) -> None:
        """End now, whatever is under way."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self.stop()

    def run(self) -> None:
        """Serve requests until one side ends it; raises nothing."""
        try:
            self._service.hooks.accepted()
            self._socket = self._service.prepare(self._socket)
            self._serve()
        except Drop as drop:
            if drop.reset:
                self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        except OSError:
            pass  # the client has gone, or the server stops
        except Exception:
            log.exception("a connection failed")
        finally:
            with contextlib.suppress(OSError):
                self._socket.close()

    def _serve(self) -> None:
        reader = Reader(self._socket)
        subject = self._service.subject(self._socket)
        while not self._stopping:
            try:
                request = reader.next()
            except BadMessage as problem:
                self.send(problem.answer())
                return
            if request is None or not self._begin():
                return
            request.peer_cert_subject = subject
            self._answer(request, close=not reader.keep_alive)
            if not reader.keep_alive or not self._end():
                return

    def _begin(self) -> bool:
        with self._condition:
            self._idle = False
            return not self._stopping

    def _end(self) -> bool:
        with self._condition:
            self._idle = True
            return not self._stopping

    def _answer(self, request: HttpRequest, *, close: bool) -> None:
        service = self._service
        response = service.hooks.before(request)
        if response is None:
            response = service.handle(request)
        response = service.hooks.answered(request, response)
        sink = service.hooks.sink(request, self)
        if response.delay:
            self._wait(service.clock.monotonic() + response.delay, lambda: False)
        if response.stream is not None:
            self._watch(request, response, response.stream)
        else:
            sink.send(body_message(request, response, service.clock.now(), close=close or self._stopping))

    def _watch(self, request: HttpRequest, response: HttpResponse, stream: WatchStream) -> None:
        service = self._service
        sink = service.hooks.sink(request, self)
        service.reaper.watch(self._socket, self._client_gone)
        try:
            sink.send(head(response, service.clock.now(), [("Transfer-Encoding", "chunked")]))
            stream.on_ready(self._notify)
            self._stream(request, stream, sink.send)
            if not self._gone:
                sink.send(chunk(b""))
        finally:
            service.reaper.forget(self._socket)
            stream.close()

    def _stream(self, request: HttpRequest, stream: WatchStream, send: Callable[[bytes], None]) -> None:
        """Send events as they come until the watch, the client or the server ends it."""
        while not (self._gone or self._stopping):
            seen = self._events
            data = stream.poll()
            if data is None:
                if stream.closed:
                    return
                self._wait(stream.deadline, lambda seen=seen: self._events != seen)  # type: ignore[misc]
                continue
            data = self._service.hooks.chunk(request, data)
            if data:
                send(chunk(data))

    def _wait(self, deadline: float | None, ready: Callable[[], bool]) -> None:
        clock = self._service.clock
        with self._condition:
            while not (ready() or self._gone or self._stopping):
                left = None if deadline is None else deadline - clock.monotonic()
                if left is not None and left <= 0:
                    return
                clock.wait(self._condition, left)

    def _notify(self) -> None:
        with self._condition:
            self._events += 1
            self._condition.notify_all()

    def _client_gone(self) -> None:
        self._gone = True
        self._notify()
