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
from collections import deque
from collections.abc import Mapping
from functools import cache, cached_property
from http.client import HTTPException
from typing import Any
from urllib.parse import urlsplit

import urllib3.exceptions
from requests.adapters import HTTPAdapter
from requests.cookies import RequestsCookieJar
from requests.models import PreparedRequest, Response
from urllib3 import HTTPConnectionPool, HTTPSConnectionPool, Timeout
from urllib3.connection import HTTPConnection
from urllib3.exceptions import ProtocolError, ProxyError, SSLError

from kubectl_runtime.client.config.proxies import Proxy
from kubectl_runtime.client.http.send import released
from kubectl_runtime.client.http.tls import TlsSource
from kubectl_runtime.client.wire.connections import ApiConnection, ApiTlsConnection
from kubectl_runtime.client.wire.dialing import Limits
from kubectl_runtime.core.base.interpreter import ForkSafeLock

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
        if item is None:  # urllib3 fills its queues with places for connections; here a place is not a connection
            return
        if released():  # an interrupt shut it down: it would break the next request
            item.close()
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


class _Pool(HTTPConnectionPool):
    ConnectionCls = ApiConnection
    QueueCls = _IdleConnections  # type: ignore[assignment] # what urllib3 uses of a LifoQueue

    def urlopen(self, method: str, url: str, body: Any = None, headers: Any = None,  # type: ignore[override]
                retries: Any = None, *more: Any, **options: Any) -> Any:
        """As the base class, for what `HTTPAdapter.send` asks of a client's adapter: one attempt, whose answer is not
        read yet and leads nowhere else."""
        timeout = options.get("timeout")
        if more or options.get("chunked") or not isinstance(timeout, Timeout):
            return super().urlopen(method, url, body, headers, retries, *more, **options)
        connection: Any = self._get_conn()
        connection.limits = limits = timeout if isinstance(timeout, Limits) else Limits.of(timeout)
        limits.sent = False
        try:
            return self._make_request(connection, method, url, body=body, headers=headers, timeout=timeout,
                                      retries=retries, response_conn=connection, preload_content=False,
                                      decode_content=False)
        except BaseException as error:
            connection.close()
            if not isinstance(error, _FAILED):
                raise
            if isinstance(error, ssl.SSLError):  # ssl.CertificateError is one
                reason: Exception = SSLError(error)
            elif isinstance(error, OSError | HTTPException):
                reason = ProtocolError("Connection aborted.", error)
            else:
                reason = error
            retries.increment(method, url, error=reason, _pool=self, _stacktrace=error.__traceback__)  # which raises
            raise


class _TlsPool(_Pool, HTTPSConnectionPool):
    ConnectionCls = ApiTlsConnection  # type: ignore[assignment] # it takes a TlsSource for a context


_FAILED = (urllib3.exceptions.TimeoutError, HTTPException, OSError, ProtocolError, SSLError, ProxyError)
"""What a connection may raise."""


class _Answer(Response):
    """A response whose jar of cookies, in which nothing is, is made when somebody looks: it costs most."""

    def __init__(self) -> None:
        self.__dict__.update(_blank())
        self.history = []

    @cached_property
    def cookies(self) -> RequestsCookieJar:  # type: ignore[override] # an attribute of the base class
        return RequestsCookieJar()


@cache
def _blank() -> dict[str, Any]:
    """What requests gives to every response."""
    return {name: value for name, value in vars(Response()).items() if name not in ("cookies", "headers", "history")}


class ApiAdapter(HTTPAdapter):
    """Sends prepared requests to the one server of `base_url`. Safe to use from any thread."""

    def __init__(self, base_url: str, *, size: int, tls: TlsSource | None = None,
                 server_hostname: str | None = None, proxy: str | None = None) -> None:
        """`size`: how many idle connections to keep. `server_hostname`: for SNI and verification instead of the URL's
        host. Opens no connection."""
        parts = urlsplit(base_url)
        self._scheme, self._host = parts.scheme, parts.hostname or ""
        self._port = parts.port or (443 if parts.scheme == "https" else 80)
        self._origin_length = len(f"{parts.scheme}://{parts.netloc}")
        self._forwarded = proxy is not None and parts.scheme == "http" and not proxy.startswith("socks")
        self._limit = size
        self._resize = ForkSafeLock()
        super().__init__(pool_connections=1, pool_maxsize=size, max_retries=0, pool_block=False)
        self._pool = self._make_pool(None if proxy is None else Proxy.of(proxy), tls, server_hostname)

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

    def _make_pool(self, via: Proxy | None, tls: TlsSource | None, server_hostname: str | None) -> HTTPConnectionPool:
        """The one pool of connections, to the one server. A proxy is none of urllib3's, so that it takes no other way.
        """
        options: dict[str, Any] = {"maxsize": self._limit, "block": False, "socket_options": _socket_options()}
        if via is not None:
            options["via"] = via
            if via.scheme == "https":
                options["via_tls"] = TlsSource(ca=None, ca_source="the system's CAs (SSL_CERT_FILE names others), not "
                                               "the cluster's: it is the proxy's certificate")
        if self._scheme == "http":
            return _Pool(self._host, self._port, **options)
        if server_hostname:
            options["server_hostname"] = server_hostname
        return _TlsPool(self._host, self._port, ssl_context=tls, **options)

    # What HTTPAdapter.send asks for each request

    def get_connection_with_tls_context(self, *_: Any, **__: Any) -> HTTPConnectionPool:
        """The one pool, whatever the arguments: everything they say was settled when it was made."""
        return self._pool

    def cert_verify(self, conn: Any, url: str, verify: Any, cert: Any) -> None:
        """Do nothing: the SSLContext was complete when it was made."""

    def request_url(self, request: PreparedRequest, proxies: Mapping[str, str] | None) -> str:  # noqa: ARG002
        """The path and query that stand in the request's first line."""
        url = request.url or ""
        # A websocket is no request that a proxy could pass on.
        return url if self._forwarded and "Upgrade" not in (request.headers or ()) else url[self._origin_length:]

    def build_response(self, req: PreparedRequest, resp: Any) -> Response:
        """What requests makes of an answer, without looking for cookies."""
        response = _Answer()
        response.status_code = resp.status
        response.headers = resp.headers  # as insensitive to case as requests' own mapping, and already there
        response.raw = resp
        response.reason = resp.reason
        response.url = req.url or ""
        response.request = req
        response.connection = self
        return response

