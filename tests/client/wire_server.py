"""A server of raw sockets, for answers that no HTTP library would send: tests write every byte of them."""

from __future__ import annotations

import json
import socket
import ssl
import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Self

from kubectl_runtime import Client, Config


@dataclass
class Received:
    """One request as it came."""

    method: str
    target: str
    headers: list[tuple[str, str]]
    body: bytes = field(default=b"", repr=False)
    connection: int = 0

    def header(self, name: str) -> str | None:
        return next((value for key, value in self.headers if key.lower() == name.lower()), None)

    def all_of(self, name: str) -> list[str]:
        return [value for key, value in self.headers if key.lower() == name.lower()]


class Peer:
    """One connection, seen from the server."""

    def __init__(self, server: WireServer, connection: socket.socket, number: int) -> None:
        self.server = server
        self.number = number
        self._socket = connection
        self._file = connection.makefile("rb")

    def receive(self) -> Received | None:
        """The next request; None when the client has closed."""
        line = self._file.readline()
        if not line:
            return None
        method, target, _ = line.decode("latin-1").split(" ", 2)
        headers = []
        while row := self._file.readline().decode("latin-1").strip():
            name, _, value = row.partition(":")
            headers.append((name, value.strip()))
        request = Received(method, target, headers, connection=self.number)
        request.body = self._file.read(int(request.header("Content-Length") or 0))
        self.server.note(request)
        return request

    def take(self, size: int) -> bytes:
        """So many bytes as they come, whatever they are."""
        return self._file.read(size)

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def answer(
        self,
        status: int = 200,
        body: bytes | dict[str, Any] = b"{}",
        *,
        kind: str = "application/json",
        headers: tuple[str, ...] = (),
    ) -> None:
        """A whole answer with a Content-Length."""
        content = json.dumps(body).encode() if isinstance(body, dict) else body
        lines = [f"HTTP/1.1 {status} Whatever", f"Content-Type: {kind}", f"Content-Length: {len(content)}", *headers]
        self.send("\r\n".join(lines).encode() + b"\r\n\r\n" + content)

    def start_stream(self) -> None:
        """The head of a chunked answer."""
        self.send(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n")

    def chunk(self, data: bytes) -> None:
        self.send(b"%x\r\n%s\r\n" % (len(data), data))

    def end_stream(self) -> None:
        self.send(b"0\r\n\r\n")

    def reset(self) -> None:
        """Close with a TCP reset: what is under way is lost."""
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close()

    def close(self) -> None:
        self._file.close()
        self._socket.close()

    def hold(self) -> None:
        """Say nothing until the client goes away or the test ends."""
        with suppress(OSError, ValueError):
            self._file.read(1)


Serve = Callable[[Peer], None]


class WireServer:
    """Runs `serve` in a thread for each connection. A context manager; it fails the test if `serve` failed."""

    def __init__(self, serve: Serve, *, tls: ssl.SSLContext | None = None) -> None:
        self._serve, self._tls = serve, tls
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port = self._listener.getsockname()[1]
        self.requests: list[Received] = []
        self.connections = 0
        self._failures: list[BaseException] = []
        self._open: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()
        self._stopped = False
        self._acceptor = threading.Thread(target=self._accept, name="wire-server")

    @property
    def url(self) -> str:
        return f"{'https' if self._tls else 'http'}://127.0.0.1:{self.port}"

    def client(self, *, client: dict[str, Any] | None = None, **config: Any) -> Client:
        return Client(Config(cluster_url=self.url, **config), **(client or {}))

    def note(self, request: Received) -> None:
        with self._lock:
            self.requests.append(request)

    def __enter__(self) -> Self:
        self._acceptor.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.stop()
        if kind is None and self._failures:
            raise self._failures[0]

    def stop(self) -> None:
        """Close the port and all connections, as a server that dies."""
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._acceptor.join(20)
        with self._lock:
            self._stopped = True
            connections = list(self._open)
        for connection in connections:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(20)

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with self._lock:
                self.connections += 1
                self._open.append(connection)
            thread = threading.Thread(target=self._run, args=(connection, self.connections), name="wire-connection")
            self._threads.append(thread)
            thread.start()

    def _run(self, connection: socket.socket, number: int) -> None:
        try:
            if self._tls is not None:
                raw = connection
                try:
                    connection = self._tls.wrap_socket(raw, server_side=True)
                except (ssl.SSLError, OSError):
                    raw.close()
                    return
                with self._lock:
                    self._open[self._open.index(raw)] = connection
                    if self._stopped:  # which reached the socket of before
                        return
            peer = Peer(self, connection, number)
            try:
                self._serve(peer)
            finally:
                peer.close()
        except (ConnectionError, ValueError, ssl.SSLError):
            pass  # the client went away, or the test is over
        except BaseException as error:
            self._failures.append(error)
        finally:
            connection.close()
            with self._lock, suppress(ValueError):
                self._open.remove(connection)


def answering(*answers: Callable[[Peer, Received], None]) -> Serve:
    """Gives the answers one after the other, over all connections, and the last one for ever."""
    left = list(answers)
    lock = threading.Lock()

    def serve(peer: Peer) -> None:
        while (request := peer.receive()) is not None:
            with lock:
                answer = left.pop(0) if len(left) > 1 else left[0]
            answer(peer, request)

    return serve


def status(code: int, reason: str = "", message: str = "", **more: Any) -> dict[str, Any]:
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "code": code,
        "reason": reason,
        "message": message,
        "metadata": {},
        **more,
    }


def says(code: int = 200, body: Any = b"{}", **how: Any) -> Callable[[Peer, Received], None]:
    """An answer for `answering`."""
    return lambda peer, _: peer.answer(code, body, **how)


def config_map(name: str = "a", version: str = "7", **more: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}", "resourceVersion": version},
        **more,
    }
