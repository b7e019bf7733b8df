"""The server's side of a websocket (RFC 6455): the handshake headers, and frames from and to a client.

A websocket must be used only by its connection's thread. A client that violates the protocol gets a close frame (1002,
or 1009 for a message above 32 MiB) and counts as gone.
"""

from __future__ import annotations

import base64
import hashlib
import struct
from collections.abc import Callable

from kubectl_runtime.apiserver.wire import HttpRequest

LONGEST_MESSAGE = 32 << 20  # the limit of golang.org/x/net/websocket, which kubelets use

CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10
NORMAL, PROTOCOL_ERROR, TOO_BIG = 1000, 1002, 1009
_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


def handshake_headers(request: HttpRequest) -> list[tuple[str, str]]:
    """The headers of a 101 response, except for the subprotocol."""
    digest = hashlib.sha1(request.header("sec-websocket-key").encode("latin-1") + _GUID, usedforsecurity=False).digest()
    return [("Upgrade", "websocket"), ("Connection", "Upgrade"),
            ("Sec-WebSocket-Accept", base64.b64encode(digest).decode("ascii"))]


class BrokenFrame(Exception):
    """The client violates the protocol; the argument is the code of the close frame."""


class ServerWebSocket:
    """One websocket. Implements `wire.MessageConnection`; answers pings while it receives."""

    def __init__(self, read: Callable[[int], bytes], write: Callable[[bytes], None]) -> None:
        """`read(n)` returns n bytes, or fewer at the end of the connection. `read` and `write` may raise OSError."""
        self._read, self._write = read, write
        self._over = False

    def send(self, data: bytes) -> None:
        """Send one binary message. Raises OSError if the client is gone."""
        if self._over:
            raise ConnectionError("the client has closed the websocket")
        self._write(frame(data))

    def receive(self) -> bytes | None:
        message = bytearray()
        begun = False
        while not self._over:
            try:
                opcode, fin, content = self._frame(LONGEST_MESSAGE - len(message))
                if opcode in (TEXT, BINARY, CONTINUATION) and begun != (opcode == CONTINUATION):
                    raise BrokenFrame(PROTOCOL_ERROR)
            except BrokenFrame as broken:
                self._goodbye(struct.pack("!H", broken.args[0]))
                return None
            except OSError:
                self._over = True
                return None
            if opcode == PING:
                self._write(frame(content, PONG))
            elif opcode == CLOSE:
                self._goodbye(content[:2])
            elif opcode != PONG:
                message += content
                begun = not fin
                if fin:
                    return bytes(message)
        return None

    def close(self) -> None:
        """Send a close frame, and read until the client's close frame. Raises OSError if the client is gone."""
        if self._over:
            return
        self._write(frame(struct.pack("!H", NORMAL), CLOSE))
        while self.receive() is not None:
            pass

    def _goodbye(self, content: bytes) -> None:
        self._over = True
        try:
            self._write(frame(content, CLOSE))
        except OSError:
            return

    def _frame(self, most: int) -> tuple[int, bool, bytes]:
        first, second = self._exactly(2)
        opcode, fin, length = first & 0x0F, bool(first & 0x80), second & 0x7F
        control = opcode >= CLOSE
        known = opcode in (CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG)
        if not known or first & 0x70 or not second & 0x80 or (control and (not fin or length > 125)):
            raise BrokenFrame(PROTOCOL_ERROR)  # such as a frame that the client has not masked
        if length == 126:
            (length,) = struct.unpack("!H", self._exactly(2))
        elif length == 127:
            (length,) = struct.unpack("!Q", self._exactly(8))
        if length > most:
            raise BrokenFrame(TOO_BIG)
        mask = self._exactly(4)
        return opcode, fin, _unmasked(self._exactly(length), mask)

    def _exactly(self, size: int) -> bytes:
        data = self._read(size)
        if len(data) < size:
            raise ConnectionError("the client has gone")
        return data


def frame(content: bytes, opcode: int = BINARY) -> bytes:
    """One complete frame. It is not masked, because a server sends unmasked frames."""
    first = bytes((0x80 | opcode,))
    if len(content) < 126:
        return first + bytes((len(content),)) + content
    if len(content) < 1 << 16:
        return first + b"\x7e" + struct.pack("!H", len(content)) + content
    return first + b"\x7f" + struct.pack("!Q", len(content)) + content


def _unmasked(data: bytes, mask: bytes) -> bytes:
    size = len(data)
    repeated = mask * (size // 4) + mask[:size % 4]
    return (int.from_bytes(data, "little") ^ int.from_bytes(repeated, "little")).to_bytes(size, "little")
