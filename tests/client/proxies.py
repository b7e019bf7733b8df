"""Proxies to send a client's traffic through: http (CONNECT and whole URLs), https, socks5."""
from __future__ import annotations

import base64
import selectors
import socket
import ssl
import struct
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Self
from urllib.parse import quote, urlsplit

_HOP_BY_HOP = ("connection", "proxy-connection", "proxy-authorization", "upgrade", "te", "trailer")


class ProxyServer:
    """A proxy on loopback. A context manager. `kind`: http, https (with `tls`), or socks5, which takes names, too.

    As a proxy of the real world it takes what concerns one hop off the requests that it passes on, so that no websocket
    gets through but in a tunnel. `asked` has the host and port that each connection was for.
    """

    def __init__(self, kind: str = "http", *, tls: ssl.SSLContext | None = None,
                 login: tuple[str, str] | None = None, names: dict[str, str] | None = None) -> None:
        self.kind, self._tls, self._login, self._names = kind, tls, login, names or {}
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port = self._listener.getsockname()[1]
        self.asked: list[tuple[str, int]] = []
        self.methods: list[str] = []
        self.accepted = 0
        self._open: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()
        self._stopped = False
        self._acceptor = threading.Thread(target=self._accept, name="proxy", daemon=True)

    @property
    def url(self) -> str:
        return f"{self.kind}://127.0.0.1:{self.port}"

    @property
    def url_with_login(self) -> str:
        if self._login is None:
            return self.url
        name, password = (quote(text, safe="") for text in self._login)
        return f"{self.kind}://{name}:{password}@127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        self._acceptor.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._acceptor.join(20)
        with self._lock:
            self._stopped = True
            for connection in self._open:
                with suppress(OSError):
                    socket.socket.shutdown(connection, socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(20)

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self.accepted += 1
            self._threads = [thread for thread in self._threads if thread.is_alive()]
            thread = threading.Thread(target=self._run, args=(connection,), name="proxied", daemon=True)
            self._threads.append(thread)
            self._keep(connection)
            thread.start()

    def _keep(self, connection: socket.socket) -> socket.socket:
        with self._lock:
            self._open.add(connection)
            if self._stopped:
                with suppress(OSError):
                    socket.socket.shutdown(connection, socket.SHUT_RDWR)
        return connection

    def _run(self, connection: socket.socket) -> None:
        kept = [connection]
        try:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._tls is not None:
                connection = self._keep(self._tls.wrap_socket(connection, server_side=True))
                kept.append(connection)
            server = self._socks(connection) if self.kind.startswith("socks") else self._http(connection)
            if server is not None:
                kept.append(server)
                _pump(connection, server)
        except (OSError, ValueError):
            pass  # one of the two went away, or the test is over
        finally:
            for each in kept:
                each.close()
            with self._lock:
                self._open.difference_update(kept)

    def _connected(self, host: str, port: int) -> socket.socket:
        self.asked.append((host, port))
        server = socket.create_connection((self._names.get(host, host), port), timeout=20)
        server.settimeout(None)
        server.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return self._keep(server)

    def _http(self, connection: socket.socket) -> socket.socket | None:
        """One tunnel, or requests one after the other until the connection ends."""
        file = connection.makefile("rb")
        server: socket.socket | None = None
        try:
            while line := file.readline():
                method, target, _ = line.decode("latin-1").split(" ", 2)
                lines = list(iter(lambda: file.readline().decode("latin-1").rstrip("\r\n"), ""))
                headers = {name.lower(): value.strip() for name, _, value in (each.partition(":") for each in lines)}
                self.methods.append(method)
                if self._login is not None and headers.get("proxy-authorization") != "Basic " + base64.b64encode(
                        ":".join(self._login).encode()).decode():
                    connection.sendall(b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n")
                    return None
                if method == "CONNECT":
                    host, _, port = target.rpartition(":")
                    try:
                        server = self._connected(host.strip("[]"), int(port))
                    except OSError:
                        connection.sendall(b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n")
                        return None
                    connection.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
                    return server
                parts = urlsplit(target)
                if server is None:
                    server = self._connected(parts.hostname or "", parts.port or 80)
                    back = threading.Thread(target=_copy, args=(server, connection), daemon=True)
                    self._threads.append(back)
                    back.start()
                kept = [each for each in lines if each.partition(":")[0].lower() not in _HOP_BY_HOP]
                path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
                server.sendall("\r\n".join([f"{method} {path} HTTP/1.1", *kept, "", ""]).encode("latin-1"))
                server.sendall(file.read(int(headers.get("content-length", 0))))
            return None
        finally:
            file.close()
            if server is not None and "CONNECT" not in self.methods[-1:]:
                with suppress(OSError):
                    server.shutdown(socket.SHUT_RDWR)
                server.close()

    def _socks(self, connection: socket.socket) -> socket.socket | None:
        """RFC 1928, and RFC 1929 for a login."""
        wanted = 0 if self._login is None else 2
        _, count = _exactly(connection, 2)
        if wanted not in _exactly(connection, count):
            connection.sendall(b"\x05\xff")
            return None
        connection.sendall(bytes((5, wanted)))
        if self._login is not None:
            _exactly(connection, 1)
            given = [_exactly(connection, _exactly(connection, 1)[0]).decode() for _ in range(2)]
            connection.sendall(b"\x01\x00" if tuple(given) == self._login else b"\x01\x01")
        kind = _exactly(connection, 4)[3]
        if kind == 3:
            host = _exactly(connection, _exactly(connection, 1)[0]).decode()
        elif kind == 1:
            host = socket.inet_ntop(socket.AF_INET, _exactly(connection, 4))
        else:
            host = socket.inet_ntop(socket.AF_INET6, _exactly(connection, 16))
        (port,) = struct.unpack("!H", _exactly(connection, 2))
        try:
            server = self._connected(host, port)
        except OSError:
            connection.sendall(b"\x05\x05\x00\x01" + bytes(6))
            return None
        connection.sendall(b"\x05\x00\x00\x01" + bytes(6))
        return server


def _exactly(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        piece = connection.recv(size - len(data))
        if not piece:
            raise ConnectionError
        data += piece
    return data


def _copy(source: socket.socket, target: socket.socket) -> None:
    """An http server's answers; TLS sockets may be written by one thread and read by another."""
    with suppress(OSError, ValueError):
        while data := source.recv(1 << 16):
            target.sendall(data)
    with suppress(OSError):
        socket.socket.shutdown(target, socket.SHUT_RDWR)


def _pump(one: socket.socket, other: socket.socket) -> None:
    """What either says goes to the other, until one has ended."""
    other_way = {one: other, other: one}
    with selectors.DefaultSelector() as selector:
        for each in other_way:
            selector.register(each, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                source: socket.socket = key.fileobj  # type: ignore[assignment]
                while True:
                    data = source.recv(1 << 16)
                    if not data:
                        return
                    try:
                        other_way[source].sendall(data)
                    except OSError:  # it has ended; what it said before, such as why, is passed on
                        with suppress(OSError):
                            while data := other_way[source].recv(1 << 16):
                                source.sendall(data)
                        return
                    if not isinstance(source, ssl.SSLSocket) or not source.pending():
                        break


def main(kind: str, trusted: str) -> None:
    """A proxy in a process of its own, until its input ends. It prints its URL; the authority that it has its
    certificate from, as an https proxy, goes into the file `trusted`."""
    tls = None
    if kind == "https":
        from kubectl_runtime.certificates.authority import Authority
        from kubectl_runtime.certificates.bundles import server_context

        authority = Authority("the proxy's")
        Path(trusted).write_bytes(authority.pem)
        tls = server_context(authority.server(("127.0.0.1",)))
    with ProxyServer(kind, tls=tls) as proxy:
        print(proxy.url, flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main(*sys.argv[1:])
