"""`Channels`: what the messages of one websocket are divided into. The first byte of each says which channel.

    subprotocol           channels
    v4.channel.k8s.io     data only: a channel ends with the connection
    v5.channel.k8s.io     and channel 255, whose second byte says which channel has ended: a half-close, either way

(Kubernetes, `apimachinery/pkg/util/remotecommand/constants.go`.) Each channel keeps its bytes until they are read; see
websocket.py for how much. Channels are read by one thread each.
"""
from __future__ import annotations

from collections import deque
from collections.abc import Callable

from kubectl_runtime.client.streaming.websocket import WebSocket
from kubectl_runtime.core.base.errors import DiscoveryError, RequestTimeout

V5 = "v5.channel.k8s.io"
V4 = "v4.channel.k8s.io"
CLOSE_SIGNAL = 255

_LONGEST_MESSAGE = 1 << 15
"""Bytes of data in a message that is sent: what kubectl sends at most."""


class Channels:
    """The inbox of a websocket (`websocket.Inbox`), and the ways to read and write its channels."""

    def __init__(self) -> None:
        self._pieces: dict[int, deque[bytes]] = {}
        self._ended: set[int] = set()
        self._held = 0
        self._websocket: WebSocket | None = None

    def carried_by(self, websocket: WebSocket) -> None:
        """What `read` and `write` go through; it was made with this inbox."""
        self._websocket = websocket

    @property
    def websocket(self) -> WebSocket:
        """The websocket that carries the channels. Raises nothing: it is set when the connection is made."""
        assert self._websocket is not None
        return self._websocket

    # With the websocket's condition held

    def put(self, message: bytes) -> None:
        """Take one message from the websocket and give it to its channel. Raises TransportError for one that breaks the
        protocol."""
        if not message:
            return
        channel = message[0]
        if channel == CLOSE_SIGNAL:
            self._ended.update(message[1:2])
            return
        if len(message) > 1:  # an empty message opens a channel, and says nothing
            self._pieces.setdefault(channel, deque()).append(message[1:])
            self._held += len(message) - 1

    def held(self) -> int:
        """The bytes, of all channels, that nobody has read yet."""
        return self._held

    # From any thread

    def read(self, channel: int, timeout: float | None = None, *, or_on: int | None = None) -> bytes:
        """The next bytes of `channel`; empty at its end, and when something came on channel `or_on` instead. Blocks
        until there are some.

        Raises RequestTimeout after `timeout` seconds, TransportError when the connection broke off: what had come
        before is read first.
        """
        with self.websocket.condition:
            piece = self._next(channel, timeout, or_on)
            if piece:
                self._pieces[channel].popleft()
                self._held -= len(piece)
                self.websocket.read_on()
            return piece

    def gathered(self, channel: int, is_enough: Callable[[bytes], bool], timeout: float | None = None) -> bytes:
        """All that has come on `channel`, once `is_enough` of it or nothing more comes. It stays there, so that any
        number of threads may wait for it. Blocks until then; raises as `read`, but for what came before the connection
        broke off.

        `is_enough` is called with the condition held, also by the websocket's thread.
        """
        websocket = self.websocket

        def content() -> bytes:
            return b"".join(self._pieces.get(channel, ()))

        with websocket.condition:
            arrived = websocket.wait(lambda: channel in self._ended or is_enough(content()), timeout)
            found = content()
            if not (arrived or found) and websocket.error is not None:
                raise websocket.error
            if not (arrived or websocket.ended):
                raise RequestTimeout(f"{websocket.operation}: {'not all' if found else 'nothing'} came within "
                                     f"{timeout or 0:.3g} s")
            return found

    def _next(self, channel: int, timeout: float | None, or_on: int | None) -> bytes:
        """What `read` gives, with the condition held and without taking it."""
        websocket = self.websocket
        arrived = websocket.wait(lambda: bool(self._pieces.get(channel)) or channel in self._ended
                                 or (or_on is not None and bool(self._pieces.get(or_on))), timeout)
        if pieces := self._pieces.get(channel):
            return pieces[0]
        if not arrived and websocket.error is not None:
            raise websocket.error
        if not arrived and not websocket.ended:
            raise RequestTimeout(f"{websocket.operation}: nothing came within {timeout or 0:.3g} s")
        return b""

    def held_text(self, channel: int) -> str | None:
        """What has come on `channel` as text, without taking it; None when nothing has."""
        with self.websocket.condition:
            pieces = self._pieces.get(channel)
            return b"".join(pieces).decode("utf-8", "replace") if pieces else None

    def write(self, channel: int, data: bytes, timeout: float | None = None) -> None:
        """Send all of `data` on `channel`. Blocks while 1 MiB is unsent. Raises TransportError after the end, and
        RequestTimeout when any piece had to wait for `timeout` seconds."""
        mark = bytes((channel,))
        for begin in range(0, len(data), _LONGEST_MESSAGE):
            self.websocket.send(mark + data[begin:begin + _LONGEST_MESSAGE], timeout)

    def end(self, channel: int) -> None:
        """Say that nothing more will be sent on `channel`. Raises DiscoveryError where the subprotocol cannot say so.
        """
        if self.websocket.protocol != V5:
            raise DiscoveryError(f"{self.websocket.operation}: the server speaks {self.websocket.protocol}, which "
                                 f"cannot end stdin and leave the rest open; that needs {V5} (Kubernetes 1.30)")
        self.websocket.send(bytes((CLOSE_SIGNAL, channel)))
