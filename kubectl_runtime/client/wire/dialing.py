"""From a host name to a connected socket: look-up, addresses, SOCKS proxies. A deadline or stop token ends each step.

getaddrinfo cannot be interrupted, so it runs in a daemon thread, one for each host and port being looked up; a caller
whose deadline passes or whose stop token is set leaves the thread behind. Addresses are tried one after the other, as
in Go: each address gets its share of the remaining time, at least 2 s.
"""
from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

from urllib3.exceptions import LocationParseError, ProxyError

from kubectl_runtime.client.config.proxies import Proxy, address_of
from kubectl_runtime.client.http.send import Interrupt
from kubectl_runtime.client.http.sockets import ApiSocket, remaining
from kubectl_runtime.core.base.threads import ForkSafeLock, Thread, unforked

Options = Sequence[tuple[int, int, int | bytes]]
Address = tuple[socket.AddressFamily, socket.SocketKind, int, str, Any]

_LEAST_SHARE = 2.0
"""The minimum number of seconds for one address, if that many are left."""

_running: dict[tuple[int, str, int], Future[list[Address]]] = {}
_lock = ForkSafeLock()


def look_up(host: str, port: int, by: float, interrupt: Interrupt) -> list[Address]:
    """The addresses of `host`, as getaddrinfo returns them. Blocks until `by` on `time.monotonic` at most, or until
    `interrupt` ends the wait. Raises socket.gaierror for a name without addresses, LocationParseError for an invalid
    name, TimeoutError at `by`, and ConnectionAbortedError after a stop."""
    host = host.strip("[]")
    if address_of(host) is not None:
        return _addresses(host, port)
    try:
        host.encode("idna")
    except UnicodeError:
        raise LocationParseError(f"'{host}', label empty or too long") from None
    key = os.getpid(), host, port  # a forked child process does not have the look-up threads of the parent
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
    interrupt.wait(done, max(0.0, by - time.monotonic()))
    if not found.done():
        remaining(by)
        raise ConnectionAbortedError("given up before the address was known")
    return found.result()


def _addresses(host: str, port: int) -> list[Address]:
    return socket.getaddrinfo(host, port, 0, socket.SOCK_STREAM)  # type: ignore[return-value] # TCP's addresses


def _resolve(key: tuple[int, str, int], found: Future[list[Address]]) -> None:
    result: list[Address] = []
    error = None
    try:
        result = _addresses(key[1], key[2])
    except BaseException as failure:  # noqa: BLE001 - waiting callers must get the error
        error = failure
    with _lock:
        _running.pop(key, None)
    if error is not None:
        found.set_exception(error)
    else:
        found.set_result(result)


def dial(host: str, port: int, by: float, interrupt: Interrupt, options: Options | None,
         connected: Callable[[Address, float], ApiSocket] | None = None) -> ApiSocket:
    """A connected socket to the first address of `host` that accepts a connection. `options` are set before connecting.
    Blocks and raises like `look_up`, and raises the last address's error (a TimeoutError or another OSError).

    `connected(address, by)` makes the connection to one address; by default a plain connection.
    """
    addresses = look_up(host, port, by, interrupt)
    failure: Exception = OSError("the name has no address")
    for index, address in enumerate(addresses):
        left = by - time.monotonic()
        if left <= 0:
            raise failure if index else TimeoutError("timed out")
        until = time.monotonic() + min(left, max(_LEAST_SHARE, left / (len(addresses) - index)))
        try:
            if connected is not None:
                return connected(address, until)
            return _connected(address, until, options, interrupt)
        except (OSError, ProxyError) as error:
            failure = error
    raise failure


def _connected(address: Address, by: float, options: Options | None, interrupt: Interrupt) -> ApiSocket:
    family, kind, protocol, _, place = address
    connection = ApiSocket(family, kind, protocol)
    try:
        _prepare(connection, by, options, interrupt)
        connection.connect(place)
    except BaseException:
        connection.close()
        raise
    return connection


def _prepare(connection: socket.socket, by: float, options: Options | None, interrupt: Interrupt) -> None:
    for option in options or ():
        connection.setsockopt(*option)
    connection.settimeout(remaining(by))
    if not interrupt.attach(connection):
        raise ConnectionAbortedError("given up before the connection was made")


def dial_by_socks(proxy: Proxy, host: str, port: int, by: float, interrupt: Interrupt,
                  options: Options | None) -> ApiSocket:
    """A socket that a SOCKS proxy has connected to `host`. Blocks and raises like `dial`; also raises ProxyError if the
    proxy refuses.

    With `socks5h` and `socks4a` the proxy looks the name up; with `socks5` and `socks4` this process does. With
    `socks5`, a name that this process cannot look up goes to the proxy after all, because kubectl leaves all names to
    the proxy."""
    with unforked():  # few programs need PySocks
        import socks

    host, by_name = _for_socks(proxy, host, port, by, interrupt)

    class Socket(socks.socksocket):  # type: ignore[misc] # without types
        def recv_into(self, *arguments: Any) -> int:
            socket.socket.settimeout(self, remaining(self.by))
            return super().recv_into(*arguments)  # type: ignore[no-any-return]

    def connected(address: Address, by: float) -> ApiSocket:
        family, kind, protocol, _, place = address
        connection = Socket(family, kind, protocol)
        connection.by = by
        try:
            connection.set_proxy(socks.SOCKS5 if proxy.scheme.startswith("socks5") else socks.SOCKS4, place[0],
                                 place[1], by_name, proxy.username, proxy.password)
            _prepare(connection, by, options, interrupt)
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

    return dial(proxy.host, proxy.port, by, interrupt, options, connected)


def _for_socks(proxy: Proxy, host: str, port: int, by: float, interrupt: Interrupt) -> tuple[str, bool]:
    """The destination to send to the proxy, and whether the proxy accepts a host name there."""
    host = host.strip("[]")
    if proxy.scheme in ("socks5h", "socks4a"):
        return host, True
    try:
        found = look_up(host, port, by, interrupt)
    except socket.gaierror:
        if proxy.scheme != "socks5":
            raise
        return host, True
    if proxy.scheme == "socks4":
        found = [address for address in found if address[0] == socket.AF_INET]
    if not found:
        raise ProxyError(f"the SOCKS proxy {proxy.place}", OSError("SOCKS 4 does not support IPv6, and "
                                                                  f"{host} has no IPv4 address"))
    return found[0][4][0], False
