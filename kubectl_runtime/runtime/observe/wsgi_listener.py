"""`WsgiListener`: a small WSGI server on a listening socket, for short answers to clients that may be anybody.

    a connection   one request, in a thread of its own, `limit` seconds from its first byte to the last of the answer:
                   who is slower is cut, whatever it does meanwhile
    CONNECTIONS    at most at once; more are closed without an answer

It resolves no names, writes nothing to stderr, and its threads are daemons. `turn` accepts, by one thread.
"""
from __future__ import annotations

import contextlib
import socket
import threading
import time
from socketserver import ThreadingMixIn
from typing import TYPE_CHECKING, Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from kubectl_runtime.core.base.guarded_log import guarded_logger
from kubectl_runtime.core.interpreter.contexts import Thread

if TYPE_CHECKING:
    from wsgiref.types import WSGIApplication

log = guarded_logger(__name__)

CONNECTIONS = 64
"""A kubelet, a scraper or two and somebody curious need five; slow ones take their places until they are cut."""

POLL = 1.0
"""Seconds between two looks for those that are too slow."""


class _Handler(WSGIRequestHandler):
    """Writes its log where the library's is."""

    def log_message(self, format: str, *args: Any) -> None:
        log.debug("%s: " + format, self.client_address[0], *args)


class WsgiListener(ThreadingMixIn, WSGIServer):
    """Accepts connections for a WSGI application, gives each a thread, and cuts clients that are too slow. `turn` and
    `server_close` are for one thread at a time, the rest is safe from any."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, sock: socket.socket, application: WSGIApplication, name: str, limit: float) -> None:
        super().__init__(sock.getsockname()[:2], _Handler, bind_and_activate=False)
        self.socket.close()
        self.socket, self.timeout = sock, POLL
        self.server_name, self.server_port = sock.getsockname()[:2]
        self.setup_environ()
        self.set_app(application)
        self._name, self._limit = name, limit
        self._change = threading.Condition()
        self._open: dict[Any, float] = {}
        """Connections that are served, and when each is cut. Real time: they are the operating system's."""

    def turn(self) -> None:
        """Accept one connection, if there is one within `POLL` seconds, and cut who is too slow."""
        self.handle_request()
        self._cut(lambda until: until <= time.monotonic())

    def wait_idle(self, timeout: float) -> None:
        """Block until nobody is served, at most `timeout` seconds; then cut who still is."""
        with self._change:
            self._change.wait_for(lambda: not self._open, timeout)
        self._cut(lambda _until: True)

    def _cut(self, is_over: Any) -> None:
        with self._change:
            slow = [request for request, until in self._open.items() if is_over(until)]
            for request in slow:
                self._open[request] = float("inf")
        for request in slow:
            log.debug("%s: a client was too slow", self._name)
            with contextlib.suppress(OSError):  # that of TLS would take the connection apart under its reader
                socket.socket.shutdown(request, socket.SHUT_RDWR)

    def get_request(self) -> tuple[Any, Any]:
        try:
            return super().get_request()
        except OSError:  # no more file descriptors, say; not at once again
            with self._change:
                self._change.wait(0.05)
            raise

    def verify_request(self, request: Any, client_address: Any) -> bool:  # noqa: ARG002
        with self._change:
            return len(self._open) < CONNECTIONS

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._change:
            self._open[request] = time.monotonic() + self._limit
        request.settimeout(self._limit)
        Thread(target=self.process_request_thread, args=(request, client_address),
               name=f"{self._name} request", daemon=True).start()

    def close_request(self, request: Any) -> None:
        with self._change:
            self._open.pop(request, None)
            self._change.notify_all()
        super().close_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002
        log.debug("%s: a connection of %s failed", self._name, client_address[0], exc_info=True)
