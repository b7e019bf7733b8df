"""`WebhookListener`: a `WsgiListener` for the API server's calls: TLS, connections that stay, and many of them.

    a connection    has a thread; the handshake is made there, with the certificate of that moment, within HANDSHAKE
    a request       `limit` seconds to come, as many to be answered; who needs longer is cut
    CONNECTIONS     at most at once; more are closed without an answer

A certificate that clients refuse is told of in the log, once a minute: nobody else would say it on this side.
"""
from __future__ import annotations

import contextlib
import math
import socket
import ssl
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kubectl_runtime.core.base.guarded_log import guarded_logger
from kubectl_runtime.core.interpreter.contexts import Thread
from kubectl_runtime.runtime.observe.wsgi_listener import WsgiListener
from kubectl_runtime.runtime.webhooks.request_handler import IDLE, RequestHandler, linger

if TYPE_CHECKING:
    from wsgiref.types import WSGIApplication

log = guarded_logger(__name__)

CONNECTIONS = 1000
"""Each API server has one for every call under way; it limits itself to 600 requests by default."""
HANDSHAKE = 10.0
"""Seconds; Go's own limit."""
BACKLOG = 1024
MOMENT = 0.05
"""Seconds that threads whose connections were cut have to end."""
TOLD_AGAIN = 60.0
"""Seconds until a refused certificate is told of again."""
_HANDSHAKE_RECORD = 0x16  # the first byte that a TLS client sends
_PLAIN = (b"HTTP/1.0 400 Bad Request\r\nConnection: close\r\n\r\nClient sent an HTTP request to an HTTPS server.\n")


class WebhookListener(WsgiListener):
    """Accepts connections for a webhook application, makes the TLS handshake and gives each a thread. `turn` and
    `server_close` are for one thread at a time, the rest is safe from any."""

    def __init__(self, sock: socket.socket, application: WSGIApplication, name: str, limit: float,
                 context: Callable[[], ssl.SSLContext]) -> None:
        """`context`: asked for each connection."""
        super().__init__(sock, application, name, limit)
        sock.listen(BACKLOG)
        self.RequestHandlerClass = RequestHandler
        self.limit = limit
        self.is_draining = False
        self._context = context
        self._idle: set[Any] = set()
        self._talking: set[threading.Thread] = set()
        self._told = -math.inf

    def drain(self) -> None:
        """Let every answer be the last of its connection, and cut those that wait for a question."""
        with self._change:
            self.is_draining = True
            idle = list(self._idle)
        for connection in idle:
            with contextlib.suppress(OSError):
                socket.socket.shutdown(connection, socket.SHUT_RDWR)

    def wait_idle(self, timeout: float) -> None:
        """As the listener's, and for the threads to end; one that is in an application for longer is left alone."""
        end = time.monotonic() + timeout
        with self._change:
            threads = set(self._talking)
        super().wait_idle(timeout)
        end = max(end, time.monotonic() + MOMENT)
        for thread in threads - {threading.current_thread()}:
            thread.join(max(0.0, end - time.monotonic()))

    def begin_idle(self, connection: Any) -> bool:
        """Wait for the next request on `connection`; whether one may come."""
        with self._change:
            if self.is_draining or connection not in self._open:
                return False
            self._open[connection] = time.monotonic() + IDLE
            self._idle.add(connection)
            return True

    def begin_busy(self, connection: Any) -> float:
        """A request begins; by when its body has to be there."""
        now = time.monotonic()
        with self._change:
            self._idle.discard(connection)
            if self._open.get(connection, math.inf) < math.inf:
                self._open[connection] = now + 2 * self.limit
        return now + self.limit

    def verify_request(self, request: Any, client_address: Any) -> bool:  # noqa: ARG002
        with self._change:
            return len(self._open) < CONNECTIONS

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._change:
            self._open[request] = time.monotonic() + HANDSHAKE
        request.settimeout(HANDSHAKE)
        thread = Thread(target=self.process_request_thread, args=(request, client_address),
                        name=f"{self._name} connection", daemon=True)
        thread.start()
        with self._change:
            self._talking = {one for one in self._talking if one.is_alive()} | {thread}

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        connection = request
        try:
            connection = self._secured(request, client_address)
            if connection is not None:
                self.finish_request(connection, client_address)
        except Exception:  # noqa: BLE001 - a client that goes, or is too slow, is none of our failures
            self.handle_error(request, client_address)
        finally:
            self._say_goodbye(connection)
            self.shutdown_request(request if connection is None else connection)

    def close_request(self, request: Any) -> None:
        with self._change:
            self._idle.discard(request)
        super().close_request(request)

    def _secured(self, raw: socket.socket, address: Any) -> ssl.SSLSocket | None:
        """The connection after its handshake; None when there was none."""
        first = raw.recv(1, socket.MSG_PEEK)
        if first and first[0] != _HANDSHAKE_RECORD:
            raw.sendall(_PLAIN)
            linger(raw, raw.recv)
            return None
        connection = self._context().wrap_socket(raw, server_side=True, do_handshake_on_connect=False)
        with self._change:  # the socket lives on in the new one
            until = self._open.pop(raw, 0.0)
            self._open[connection] = until
        try:
            connection.do_handshake()
        except BaseException as error:
            self._tell_refused(error, address)
            self.shutdown_request(connection)
            raise
        return connection

    def _tell_refused(self, error: BaseException, address: Any) -> None:
        if not isinstance(error, ssl.SSLError) or "ALERT" not in (error.reason or "").upper():
            return  # a scanner, a slow or broken client: not about the certificate
        now = time.monotonic()
        with self._change:
            if now - self._told < TOLD_AGAIN:
                return
            self._told = now
        log.warning("%s: the client at %s refuses this server's certificate (%s): its caBundle has to hold the "
                    "authority that issued it, and its certificate the name that is called", self._name, address[0],
                    error.reason)

    @staticmethod
    def _say_goodbye(connection: Any) -> None:
        """The end is announced, so that the client does not take it for an attack."""
        if isinstance(connection, ssl.SSLSocket):
            with contextlib.suppress(OSError, ValueError):
                connection.settimeout(0)  # the client's own announcement is not waited for
                connection.unwrap()
