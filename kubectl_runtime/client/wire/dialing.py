"""`dial`: a connected socket to an address, or through a SOCKS proxy, until a moment and not beyond.

    look-up    of a name (an address needs none): the system's getaddrinfo, which nothing can interrupt, runs in one
               daemon thread for each host and port that is looked up at the moment; a caller whose time is up, or whose
               stop token is set, leaves it behind
    addresses  one after the other, as Go does it: each gets its share of the time that is left, 2 s at least
"""
from __future__ import annotations

import ipaddress
import os
import socket
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, Self

from urllib3 import Timeout
from urllib3.exceptions import LocationParseError, ProxyError

from kubectl_runtime.client.config.config import UNLIMITED
from kubectl_runtime.client.config.proxies import Proxy
from kubectl_runtime.client.http.send import connects, waits_for
from kubectl_runtime.client.http.sockets import ApiSocket, remaining
from kubectl_runtime.core.base.interpreter import ForkSafeLock, Thread, unforked

Options = Sequence[tuple[int, int, int | bytes]]
Address = tuple[socket.AddressFamily, socket.SocketKind, int, str, Any]

_LEAST_SHARE = 2.0
"""Seconds that an address gets at least, if there are so many."""


class Limits(Timeout):
    """When the parts of one request have to be over, on `time.monotonic`. requests and urllib3 hand it on as a Timeout,
    which for them has no limits: the sockets obey these."""

    connect_timeout = read_timeout = None  # of the base class properties, which look at the clock

    def start_connect(self) -> float:
        """Measures nothing: the deadlines are fixed already."""
        return 0.0

    def clone(self) -> Self:
        """Itself: urllib3 copies a Timeout for each request, and these are of one request."""
        return self

    def __init__(self, connect: float, left: float, *, streaming: bool = False, silence: float | None = None) -> None:
        """Seconds: `connect` until the request begins to leave, `left` until all is over, for a stream the head of its
        answer; after that `silence` is the longest one (None: any)."""
        now = time.monotonic()
        self.connect_by = now + min(connect, left)
        self.seconds = left if silence is None or not streaming else min(left, silence)
        self.deadline = now + self.seconds
        self.streaming, self.silence = streaming, silence
        self.sent = True
        """Whether a byte of the request may have left; certain from when a connection is taken for it."""

    @classmethod
    def of(cls, timeout: Any) -> Self:
        """Those of a request that somebody else sends through the adapter."""
        connect, read = (getattr(timeout, name, None) for name in ("connect_timeout", "read_timeout"))
        return cls(*(seconds if isinstance(seconds, int | float) else UNLIMITED for seconds in (connect, read)))

    def __repr__(self) -> str:
        return f"<Limits of {self.seconds:.3g} s, {self.connect_by - self.deadline + self.seconds:.3g} s to connect>"


_running: dict[tuple[int, str, int], Future[list[Address]]] = {}
_lock = ForkSafeLock()


def look_up(host: str, port: int, by: float) -> list[Address]:
    """The addresses of `host`, as getaddrinfo has them. Blocks until `by` at most. Raises socket.gaierror for a name
    without any, TimeoutError, LocationParseError for what is no name, ConnectionAbortedError after a stop."""
    host = host.strip("[]")
    if _is_address(host):
        return _addresses(host, port)
    try:
        host.encode("idna")
    except UnicodeError:
        raise LocationParseError(f"'{host}', label empty or too long") from None
    key = os.getpid(), host, port  # a look-up of the parent has no thread in the child of a fork
    with _lock:
        found = _running.get(key)
        is_new = found is None
        if found is None:
            found = _running[key] = Future()
    if is_new:
        try:
            Thread(target=_resolve, args=(key, found), daemon=True, name=f"look-up of {host}").start()
        except RuntimeError:  # no more threads, or the interpreter ends
            _resolve(key, found)
    done = threading.Event()
    found.add_done_callback(lambda _: done.set())
    waits_for(done, max(0.0, by - time.monotonic()))
    if not found.done():
        remaining(by)
        raise ConnectionAbortedError("given up before the address was known")
    return found.result()


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _addresses(host: str, port: int) -> list[Address]:
    return socket.getaddrinfo(host, port, 0, socket.SOCK_STREAM)  # type: ignore[return-value] # TCP's addresses


def _resolve(key: tuple[int, str, int], found: Future[list[Address]]) -> None:
    result: list[Address] = []
    error = None
    try:
        result = _addresses(key[1], key[2])
    except BaseException as failure:  # noqa: BLE001 - whatever it is, those who wait must learn of it
        error = failure
    with _lock:
        _running.pop(key, None)
    if error is not None:
        found.set_exception(error)
    else:
        found.set_result(result)


def dial(host: str, port: int, by: float, options: Options | None,
         connected: Callable[[Address, float, Options | None], ApiSocket] | None = None) -> ApiSocket:
    """A connected socket to the first address of `host` that takes one, with `options` set before. Blocks until `by`
    on `time.monotonic` at most. Raises as `look_up`, and what the last address raised: TimeoutError, OSError.

    `connected(address, by, options)` makes the connection to one address; by default a plain one.
    """
    addresses = look_up(host, port, by)
    failure: Exception = OSError("the name has no address")
    for index, address in enumerate(addresses):
        left = by - time.monotonic()
        if left <= 0:
            raise failure if index else TimeoutError("timed out")
        share = min(left, max(_LEAST_SHARE, left / (len(addresses) - index)))
        try:
            return (connected or _connected)(address, time.monotonic() + share, options)
        except (OSError, ProxyError) as error:
            failure = error
    raise failure


def _connected(address: Address, by: float, options: Options | None) -> ApiSocket:
    family, kind, protocol, _, place = address
    connection = ApiSocket(family, kind, protocol)
    try:
        _prepare(connection, by, options)
        connection.connect(place)
    except BaseException:
        connection.close()
        raise
    return connection


def _prepare(connection: socket.socket, by: float, options: Options | None) -> None:
    for option in options or ():
        connection.setsockopt(*option)
    connection.settimeout(remaining(by))
    if not connects(connection):
        raise ConnectionAbortedError("given up before it was made")


def dial_by_socks(proxy: Proxy, host: str, port: int, by: float, options: Options | None) -> ApiSocket:
    """A socket that a SOCKS proxy has connected to `host`. Blocks and raises as `dial`, and ProxyError for what the
    proxy refuses.

    `socks5h` and `socks4a` have the name looked up by the proxy, `socks5` and `socks4` here. A name that is not known
    here goes to the proxy with `socks5`, too: kubectl leaves all of them to it."""
    with unforked():  # few programs need PySocks
        import socks

    host, by_name = _for_socks(proxy, host, port, by)

    class Socket(socks.socksocket):  # type: ignore[misc] # without types
        def recv_into(self, *arguments: Any) -> int:
            socket.socket.settimeout(self, remaining(self.by))
            return super().recv_into(*arguments)  # type: ignore[no-any-return]

    def connected(address: Address, by: float, options: Options | None) -> ApiSocket:
        family, kind, protocol, _, place = address
        connection = Socket(family, kind, protocol)
        connection.by = by
        try:
            connection.set_proxy(socks.SOCKS5 if proxy.scheme.startswith("socks5") else socks.SOCKS4, place[0],
                                 place[1], by_name, proxy.username, proxy.password)
            _prepare(connection, by, options)
            connection.connect((host, port))
            return ApiSocket(family, kind, protocol, fileno=connection.detach())
        except socks.ProxyError as error:
            cause = error.socket_err
            if isinstance(cause, TimeoutError | ConnectionAbortedError):
                raise cause from None
            if isinstance(cause, socks.SOCKS5AuthError):
                raise ProxyError(f"the SOCKS proxy {proxy.place}", PermissionError(str(cause))) from None
            raise ProxyError(f"the SOCKS proxy {proxy.place}", OSError(str(error))) from None
        finally:
            connection.close()

    return dial(proxy.host, proxy.port, by, options, connected)


def _for_socks(proxy: Proxy, host: str, port: int, by: float) -> tuple[str, bool]:
    """What the proxy is told to connect to, and whether that may be a name."""
    host = host.strip("[]")
    if proxy.scheme in ("socks5h", "socks4a"):
        return host, True
    try:
        found = look_up(host, port, by)
    except socket.gaierror:
        if proxy.scheme != "socks5":
            raise
        return host, True
    if proxy.scheme == "socks4":
        found = [address for address in found if address[0] == socket.AF_INET]
    if not found:
        raise ProxyError(f"the SOCKS proxy {proxy.place}", OSError(f"SOCKS 4 knows no IPv6, and {host} has no more"))
    return found[0][4][0], False
