r"""`PortForward`: connections to ports of a Pod, all over one websocket.

    with pods.portforward("web", [80, 5432]) as forward:
        http = forward.socket(80)
        http.sendall(b"GET / HTTP/1.0\r\n\r\n")
        print(b"".join(http))

Channels: 2i data and 2i + 1 errors of port number i, each beginning with the port in two bytes, little-endian
(Kubernetes, `kubelet/pkg/cri/streaming/portforward/websocket.go`). What the subprotocol cannot say: that one side of a
connection, or one port alone, has ended. A port is one connection of the Pod; the next is another port-forward.
"""
from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Self

from kubectl_runtime.client.streaming.channels import Channels
from kubectl_runtime.core.base.clock import Duration, seconds
from kubectl_runtime.core.base.errors import RequestError, TransportError


class ForwardedPort:
    """The connection to one port of a Pod, as a socket has it. Read by one thread, written by any."""

    def __init__(self, channels: Channels, index: int, port: int) -> None:
        self.port = port
        self._channels, self._data, self._errors = channels, 2 * index, 2 * index + 1

    def sendall(self, data: bytes) -> None:
        """Send all of `data`. Blocks while the Pod does not read and 1 MiB is unsent. Raises TransportError when the
        connection has ended, or the port failed."""
        self._raise()
        self._channels.write(self._data, data)

    def recv(self, timeout: Duration | None = None) -> bytes:
        """What came next; empty at the end. Blocks until something comes, `timeout` at most.

        Raises RequestTimeout, and TransportError for a connection that broke off and a port that failed (nobody
        listens on it, say): what came before is returned first.
        """
        found = self._channels.read(self._data, None if timeout is None else seconds(timeout), or_on=self._errors)
        if not found:
            self._raise()
        return found

    def __iter__(self) -> Iterator[bytes]:
        """What comes, until the end. Raises as `recv` does."""
        while piece := self.recv():
            yield piece

    @property
    def error(self) -> str | None:
        """What the Pod's node has said so far about a failure of this port; None without a failure."""
        return self._channels.held_text(self._errors)

    def _raise(self) -> None:
        if (said := self.error) is not None:
            raise TransportError(f"{self._channels.websocket.operation}: port {self.port}: {said}")


class PortForward:
    """Ports of a Pod, as streams in this process: made by `Api.portforward`.

    A context manager: leaving it closes the connection with all its ports. Each port's stream is read and written like
    a socket. Safe to use from any thread. (The embedded server forwards no ports and says so.)

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
        """The connection to `port`; the same one each time. Raises RequestError for one that is not forwarded."""
        if port not in self._ports:
            raise RequestError(f"{self._channels.websocket.operation}: port {port} is not forwarded; forwarded are "
                               f"{', '.join(map(str, self._ports))}")
        return self._ports[port]

    def close(self) -> None:
        """Close the connection, about a second at most. Safe to repeat."""
        self._channels.websocket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class PortChannels(Channels):
    """Channels that each begin with the number of their port, which is taken off and checked."""

    def __init__(self, ports: Sequence[int]) -> None:
        super().__init__()
        self._begin = {channel: bytearray() for channel in range(2 * len(ports))}
        self._ports = ports

    def put(self, message: bytes) -> None:
        """Take one message, without the port number in front of the first one of each channel. Raises TransportError
        when the number is wrong."""
        begin = self._begin.get(message[0]) if message else None
        if begin is None:
            super().put(message)
            return
        missing = 2 - len(begin)
        begin += message[1:1 + missing]
        if len(begin) == 2:
            del self._begin[message[0]]
            if (found := int.from_bytes(begin, "little")) != (wanted := self._ports[message[0] // 2]):
                raise TransportError(f"channel {message[0]} is of port {found}, where port {wanted} was expected")
        super().put(message[:1] + message[1 + missing:])

