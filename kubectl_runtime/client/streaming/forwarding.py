r"""`PortForward`: connections to ports of a Pod, all over one websocket; `LocalPort`: a local port that forwards to a
port of a Pod.

    with pods.portforward("web", [80, 5432]) as forward:
        http = forward.socket(80)
        http.sendall(b"GET / HTTP/1.0\r\n\r\n")
        print(b"".join(http))

    with pods.portforward_local("db-0", 5432) as local:
        psycopg.connect(host=local.host, port=local.port)

Port number i uses channel 2i for data and 2i + 1 for errors; each channel begins with the port in two bytes,
little-endian (Kubernetes, `kubelet/pkg/cri/streaming/portforward/websocket.go`). Each port is one connection to the
Pod. For another connection, open another port-forward. The subprotocol cannot half-close a connection or end a single
port.

Each connection to a `LocalPort` is a separate port-forward with two threads, one for each direction. When the local
side has ended, the connection still receives what the Pod sends, until nothing has come for some seconds.
"""
from __future__ import annotations

import selectors
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Self

from kubectl_runtime.client.streaming.process import Channels
from kubectl_runtime.core.base.errors import KubeError, RequestError, TransportError
from kubectl_runtime.core.base.guard import guarded_logger
from kubectl_runtime.core.base.threads import Duration, Thread, seconds


class ForwardedPort:
    """The connection to one port of a Pod, with the methods of a socket. One thread may read; any thread may write."""

    def __init__(self, channels: Channels, index: int, port: int) -> None:
        self.port = port
        self._channels, self._data, self._errors = channels, 2 * index, 2 * index + 1

    def sendall(self, data: bytes) -> None:
        """Send all of `data`. Blocks while 1 MiB is unsent because the Pod does not read. Raises TransportError when
        the connection has ended or the port failed."""
        self._raise()
        self._channels.write(self._data, data)

    def recv(self, timeout: Duration | None = None) -> bytes:
        """The next bytes; empty at the end. Blocks until bytes have come, `timeout` at most.

        Raises RequestTimeout after `timeout`, and TransportError for a broken connection and a failed port (for example
        if no process listens on it). Bytes that came before the failure are returned first.
        """
        found = self._channels.read(self._data, None if timeout is None else seconds(timeout), or_on=self._errors)
        if not found:
            self._raise()
        return found

    def __iter__(self) -> Iterator[bytes]:
        """The bytes as they come, until the end. Raises like `recv`."""
        while piece := self.recv():
            yield piece

    @property
    def error(self) -> str | None:
        """The error that the Pod's node has reported for this port so far; None without one."""
        return self._channels.held_text(self._errors)

    def _raise(self) -> None:
        if (said := self.error) is not None:
            raise TransportError(f"{self._channels.websocket.operation}: port {self.port}: {said}")


class PortForward:
    """Ports of a Pod, as streams in this process: made by `Api.portforward`.

    A context manager: leaving it closes the connection with all its ports. Each port's stream is read and written like
    a socket. Safe to use from any thread. (The embedded API server refuses port-forwards unless
    `server.kubelet.portforward` has set a function for the port.)

    >>> Api.namespaced(client, Pod, "default").portforward("web-0", [80])
    Traceback (most recent call last):
        ...
    ApiError: ...
    """

    def __init__(self, channels: Channels, ports: Sequence[int]) -> None:
        self._channels = channels
        self._ports = {port: ForwardedPort(channels, index, port) for index, port in enumerate(ports)}

    @property
    def ports(self) -> tuple[int, ...]:
        """The ports of the Pod that are forwarded."""
        return tuple(self._ports)

    def socket(self, port: int) -> ForwardedPort:
        """The connection to `port`, the same object each time. Raises RequestError for a port that is not forwarded."""
        if port not in self._ports:
            raise RequestError(f"{self._channels.websocket.operation}: port {port} is not forwarded; the forwarded "
                               f"ports are {', '.join(map(str, self._ports))}")
        return self._ports[port]

    def close(self) -> None:
        """Close the connection; takes about a second at most. Safe to repeat."""
        self._channels.websocket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class PortChannels(Channels):
    """Channels that each begin with their port number, which is removed and checked."""

    def __init__(self, ports: Sequence[int]) -> None:
        super().__init__()
        self._begin = {channel: bytearray() for channel in range(2 * len(ports))}
        self._ports = ports

    def put(self, message: bytes) -> None:
        """Process one message; removes the port number at the beginning of each channel. Raises TransportError when the
        number is wrong."""
        begin = self._begin.get(message[0]) if message else None
        if begin is None:
            super().put(message)
            return
        missing = 2 - len(begin)
        begin += message[1:1 + missing]
        if len(begin) == 2:
            del self._begin[message[0]]
            if (found := int.from_bytes(begin, "little")) != (wanted := self._ports[message[0] // 2]):
                raise TransportError(f"channel {message[0]} belongs to port {found}, where port {wanted} was expected")
        super().put(message[:1] + message[1 + missing:])


log = guarded_logger(__name__)

LINGER = 5.0
"""A connection whose local side has ended is closed when the Pod has sent nothing for this many seconds."""

JOIN_SECONDS = 2.0
"""Seconds for which `close` waits for the threads, which end in milliseconds."""

_PIECE = 65536


class LocalPort:
    """A local port whose connections lead to a port of a Pod: made by `Api.portforward_local`.

    A context manager: leaving it closes the port and all of its connections. A connection that the Pod refuses is
    closed and the reason is logged. Safe to use from any thread. (The embedded API server refuses port-forwards unless
    `server.kubelet.portforward` has set a function for the port.)

    >>> Api.namespaced(client, Pod, "default").portforward_local("web-0", 80)
    Traceback (most recent call last):
        ...
    ApiError: ...
    """

    def __init__(self, connect: Callable[[], PortForward], remote: int, *, host: str, port: int) -> None:
        """`connect` opens a port-forward of the single port `remote`. The constructor calls `connect` once, so that a
        missing Pod is reported at once. Raises whatever `connect` raises, and OSError if the local port is not
        available."""
        self._connect, self._remote = connect, remote
        connect().close()
        try:
            self._listener = socket.create_server((host, port))
        except OSError as error:
            raise OSError(error.errno, f"cannot listen at {host}:{port}: {error.strerror or error}; pass port 0 for "
                          "any free port") from error
        self.host = host
        """The address on which the port listens."""
        self.port: int = self._listener.getsockname()[1]
        """The local port."""
        self._wake, self._woken = socket.socketpair()
        self._lock = threading.Lock()
        self._closed = False
        self._open: set[_Connection] = set()
        self._thread = Thread(target=self._accept, name=f"port-forward {host}:{self.port}", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Close the port and its connections, within about two seconds. Safe to repeat, from any thread."""
        with self._lock:
            closed, self._closed = self._closed, True
            connections = [*self._open]
        if closed:
            return
        self._wake.close()
        for connection in connections:
            connection.close()
        for thread in (self._thread, *(thread for connection in connections for thread in connection.threads)):
            if thread is not threading.current_thread():
                thread.join(JOIN_SECONDS)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<LocalPort {self.host}:{self.port}{' (closed)' if self._closed else ''}>"

    def _accept(self) -> None:
        with self._listener, self._woken, selectors.DefaultSelector() as ready:
            ready.register(self._listener, selectors.EVENT_READ)
            ready.register(self._woken, selectors.EVENT_READ)
            while True:
                ready.select()
                if self._closed:
                    return
                try:
                    peer, _ = self._listener.accept()
                except OSError as error:  # the peer left before it was accepted, or no descriptors are left
                    log.warning("port-forward %s:%d: a connection was not accepted: %s", self.host, self.port, error)
                    continue
                Thread(target=self._serve, args=(peer,), name=f"port-forward of {peer.fileno()}", daemon=True).start()

    def _serve(self, peer: socket.socket) -> None:
        try:
            connection = _Connection(peer, self._connect(), self._remote, self._open.discard)
        except KubeError as error:
            peer.close()
            if not self._closed:
                log.warning("port-forward %s:%d: a connection was refused: %s", self.host, self.port, error)
            return
        with self._lock:
            closed = self._closed
            if not closed:
                self._open.add(connection)
        if closed:
            connection.close()
        else:
            connection.run()


class _Connection:
    """One local connection and its port-forward."""

    def __init__(self, peer: socket.socket, forward: PortForward, port: int,
                 on_end: Callable[[_Connection], object]) -> None:
        self._peer, self._forward, self._stream = peer, forward, forward.socket(port)
        self._on_end = on_end
        self._ended = threading.Event()
        self._moved = False
        self.threads = (threading.current_thread(),
                        Thread(target=self._down, name=f"{threading.current_thread().name}, back", daemon=True))

    def run(self) -> None:
        """Copy in both directions until the Pod's side has ended, or until the Pod is silent after the local side
        has ended."""
        self.threads[1].start()
        try:
            while piece := self._peer.recv(_PIECE):
                self._stream.sendall(piece)
            while not self._ended.wait(LINGER) and self._moved:
                self._moved = False
        except (OSError, KubeError) as error:
            log.debug("%s: %s", self.threads[0].name, error)
        finally:
            self.close()

    def close(self) -> None:
        """End both sides, which also ends their threads. Safe to repeat."""
        self._ended.set()
        self._on_end(self)
        with suppress(OSError):  # the peer has already ended the connection
            self._peer.shutdown(socket.SHUT_RDWR)
        self._peer.close()
        self._forward.close()

    def _down(self) -> None:
        try:
            for piece in self._stream:
                self._moved = True
                self._peer.sendall(piece)
        except (OSError, KubeError) as error:
            if not self._ended.is_set():
                log.warning("%s: %s", self.threads[0].name, error)
        finally:
            self.close()
