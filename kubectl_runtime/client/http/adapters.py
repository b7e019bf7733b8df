"""`ApiAdapter`: the requests adapter to one API server; a client has two, one for calls and one for streams.

It keeps `HTTPAdapter.send`, so that whatever patches that sees our traffic, and replaces the steps around it which
depend only on the server: one connection pool made once, with the client's own SSLContext (no public CA added to the
cluster's), TCP keepalive, no retries of its own, and no waiting for a free connection. Idle connections beyond the
pool's size are closed without a word.
"""
from __future__ import annotations

import queue
import socket
import ssl
import sys
from collections import deque
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from requests.adapters import HTTPAdapter
from requests.models import PreparedRequest, Response
from urllib3 import HTTPConnectionPool, HTTPSConnectionPool, PoolManager
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.exceptions import ConnectTimeoutError, NameResolutionError, NewConnectionError
from urllib3.response import HTTPResponse

from kubectl_runtime.client.http.connect import dial
from kubectl_runtime.client.http.heads import QuickResponse, quick_answer
from kubectl_runtime.client.http.interrupt import released, waits_on
from kubectl_runtime.client.http.tls import TlsSource
from kubectl_runtime.core.base.forks import ForkSafeLock

KEEPALIVE_IDLE = 30
"""Seconds of silence before the first keepalive probe; then one each 10 s, and the connection is dead after 3 in
vain.
"""


def _socket_options() -> list[tuple[int, int, int]]:
    options = [*HTTPConnection.default_socket_options, (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)]
    for name, value in (("TCP_KEEPIDLE", KEEPALIVE_IDLE), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3)):
        if hasattr(socket, name):  # not on every system
            options.append((socket.IPPROTO_TCP, getattr(socket, name), value))
    return options


class _IdleConnections:
    """The idle connections of a pool, the one used last first: without limit to urllib3, which would log each one too
    many, but only `limit` are kept. As much of a LifoQueue as urllib3 uses, without its locks: nobody waits for a
    connection here, and a deque's ends are safe from any thread."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._idle: deque[Any] = deque()

    def put(self, item: Any, block: bool = True, timeout: float | None = None) -> None:  # noqa: ARG002 - urllib3's
        if item is None:  # urllib3 fills its queues with places for connections; here a place is no thing
            return
        if len(self._idle) >= self.limit:
            item.close()
        else:
            self._idle.append(item)

    def get(self, block: bool = True, timeout: float | None = None) -> Any:  # noqa: ARG002 - urllib3's signature
        try:
            return self._idle.pop()
        except IndexError:
            raise queue.Empty from None

    def qsize(self) -> int:
        return len(self._idle)


class _HttpConnection(HTTPConnection):
    response_class = QuickResponse

    def _new_conn(self) -> socket.socket:
        return _connected(self)

    def getresponse(self) -> HTTPResponse:  # type: ignore[override] # as in the base class
        waits_on(self.sock)
        return quick_answer(self)


class _HttpsConnection(HTTPSConnection):
    """Takes its context from a `TlsSource` each time it connects, so that files which were replaced count."""

    response_class = QuickResponse

    def __init__(self, *arguments: Any, ssl_context: TlsSource, **options: Any) -> None:
        self._tls = ssl_context
        super().__init__(*arguments, ssl_context=ssl_context.current(), **options)

    def _new_conn(self) -> socket.socket:
        return _connected(self)

    def connect(self) -> None:
        self.ssl_context = self._tls.current()
        try:
            super().connect()
        except ssl.SSLError as error:
            self._tls.explain(error)
            raise

    def getresponse(self) -> HTTPResponse:  # type: ignore[override] # as in the base class
        waits_on(self.sock)
        try:
            return quick_answer(self)
        except ssl.SSLError as error:  # the server's view of our certificate comes only now
            self._tls.explain(error)
            raise


def _connected(connection: Any) -> socket.socket:
    """What urllib3's connections do to connect, in a way that can be interrupted."""
    try:
        made = dial(connection._dns_host, connection.port, connection.timeout, connection.source_address,
                    connection.socket_options)
    except socket.gaierror as error:
        raise NameResolutionError(connection.host, connection, error) from error
    except TimeoutError as error:
        raise ConnectTimeoutError(
            connection, f"Connection to {connection.host} timed out. (connect timeout={connection.timeout})") from error
    except OSError as error:
        raise NewConnectionError(connection, f"Failed to establish a new connection: {error}") from error
    sys.audit("http.client.connect", connection, connection.host, connection.port)
    return made


def _given_back(connection: Any) -> Any:
    """`connection`, closed if an interrupt shut it down: in the pool it would break the next request."""
    if released() and connection is not None:
        connection.close()
    return connection


class _HttpPool(HTTPConnectionPool):
    ConnectionCls = _HttpConnection
    QueueCls = _IdleConnections  # type: ignore[assignment] # what urllib3 uses of a LifoQueue

    def _put_conn(self, conn: Any) -> None:
        super()._put_conn(_given_back(conn))


class _HttpsPool(HTTPSConnectionPool):
    ConnectionCls = _HttpsConnection
    QueueCls = _IdleConnections  # type: ignore[assignment] # what urllib3 uses of a LifoQueue

    def _put_conn(self, conn: Any) -> None:
        super()._put_conn(_given_back(conn))


class ApiAdapter(HTTPAdapter):
    """Sends prepared requests to the one server of `base_url`. Safe to use from any thread."""

    def __init__(self, base_url: str, *, size: int, tls: TlsSource | None = None,
                 server_hostname: str | None = None, proxy: str | None = None) -> None:
        """`size`: how many idle connections to keep. `server_hostname`: for SNI and verification instead of the URL's
        host. Opens no connection."""
        parts = urlsplit(base_url)
        self._target: dict[str, Any] = {"scheme": parts.scheme, "host": parts.hostname, "port": parts.port}
        self._origin_length = len(f"{parts.scheme}://{parts.netloc}")
        self._forwarded = proxy is not None and parts.scheme == "http" and not proxy.startswith("socks")
        self._proxy = proxy
        self._limit = size
        self._tls: dict[str, Any] = {}
        if parts.scheme == "https":
            self._tls = {"ssl_context": tls, **({"server_hostname": server_hostname} if server_hostname else {})}
        self._resize = ForkSafeLock()
        super().__init__(pool_connections=1, pool_maxsize=size, max_retries=0, pool_block=False)
        self._pool = self._make_pool()

    def init_poolmanager(self, connections: int, maxsize: int, block: bool = False, **options: Any) -> None:
        super().init_poolmanager(connections, maxsize, block, socket_options=_socket_options(), **options)
        _use_our_pools(self.poolmanager)

    def grow(self, size: int) -> None:
        """Keep at least `size` idle connections from now on."""
        with self._resize:
            self._limit = max(self._limit, size)
            idle: Any = self._pool.pool
            if isinstance(idle, _IdleConnections):  # None once the pool is closed
                idle.limit = self._limit

    def close(self) -> None:
        """Close the idle connections, and those in use when their answer has been read."""
        super().close()  # which forgets its pools and leaves their connections to the garbage collector
        self._pool.close()

    def _make_pool(self) -> HTTPConnectionPool:
        if self._proxy is None:
            manager: PoolManager = self.poolmanager
        else:
            manager = self.proxy_manager_for(self._proxy, socket_options=_socket_options())
            _use_our_pools(manager)
        return manager.connection_from_host(**self._target, pool_kwargs=self._tls)

    # What HTTPAdapter.send asks for each request

    def get_connection_with_tls_context(self, *_: Any, **__: Any) -> HTTPConnectionPool:
        """The one pool, whatever the arguments: everything they say was settled when it was made."""
        return self._pool

    def cert_verify(self, conn: Any, url: str, verify: Any, cert: Any) -> None:
        """Nothing: the SSLContext was complete when it was made."""

    def request_url(self, request: PreparedRequest, proxies: Mapping[str, str] | None) -> str:  # noqa: ARG002
        url = request.url or ""
        return url if self._forwarded else url[self._origin_length:]

    def build_response(self, req: PreparedRequest, resp: Any) -> Response:
        """As the base class, without cookies."""
        response = Response()
        response.status_code = resp.status
        response.headers = resp.headers  # as insensitive to case as requests' own mapping, and already there
        response.raw = resp
        response.reason = resp.reason
        response.url = req.url or ""
        response.request = req
        response.connection = self
        return response


def _use_our_pools(manager: PoolManager) -> None:
    manager.pool_classes_by_scheme = {"http": _HttpPool, "https": _HttpsPool}
