"""The server's side of a websocket, by hand: tests say which frames come, and when."""
from __future__ import annotations

import base64
import hashlib
import json
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from kubectl_runtime import Api
from kubectl_runtime.resources.core_v1 import Pod
from tests.client.wire_server import Peer, Received, WireServer

CLOSE, PING, PONG = 8, 9, 10


class SocketPeer:
    """A connection whose client has asked for a websocket, and got it."""

    def __init__(self, peer: Peer, request: Received, protocol: str = "v5.channel.k8s.io", first: bytes = b"") -> None:
        self.peer, self.request = peer, request
        key = request.header("Sec-WebSocket-Key") or ""
        digest = hashlib.sha1(key.encode() + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest()
        peer.send(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
                  b"Sec-WebSocket-Accept: " + base64.b64encode(digest) + b"\r\n"
                  b"Sec-WebSocket-Protocol: " + protocol.encode() + b"\r\n\r\n" + first)

    def send(self, channel: int, data: bytes = b"") -> None:
        self.peer.send(frame(bytes((channel,)) + data))

    def frame(self, data: bytes, opcode: int = 2, fin: bool = True) -> None:
        self.peer.send(frame(data, opcode, fin))

    def read(self) -> tuple[int, bytes]:
        """The next frame: opcode and content."""
        first, second = self.peer._file.read(2)
        assert second & 0x80, "a client masks its frames"
        length = second & 0x7F
        if length == 126:
            (length,) = struct.unpack("!H", self.peer._file.read(2))
        elif length == 127:
            (length,) = struct.unpack("!Q", self.peer._file.read(8))
        mask = self.peer._file.read(4)
        data = self.peer._file.read(length)
        repeated = (mask * (length // 4 + 1))[:length]
        return first & 0x0F, (int.from_bytes(data, "big") ^ int.from_bytes(repeated, "big")).to_bytes(length, "big")

    def message(self) -> tuple[int, bytes]:
        """The next message: its channel, and its data."""
        opcode, content = self.read()
        assert opcode == 2, f"opcode {opcode}: {content!r}"
        return content[0], content[1:]

    def end(self, status: dict[str, Any] | None = None, *, code: int = 1000) -> None:
        """The status of the process, then a clean close, and whatever the client still says."""
        if status is not None:
            self.send(3, json.dumps(status).encode())
        self.frame(struct.pack("!H", code), CLOSE)
        while self.read()[0] != CLOSE:
            pass


SUCCESS = {"metadata": {}, "status": "Success"}


def exited(code: int) -> dict[str, Any]:
    return {"metadata": {}, "status": "Failure", "reason": "NonZeroExitCode",
            "message": f"command terminated with non-zero exit code: exit status {code}",
            "details": {"causes": [{"reason": "ExitCode", "message": str(code)}]}}


def frame(data: bytes, opcode: int = 2, fin: bool = True) -> bytes:
    """One frame as a server sends it: unmasked."""
    head = bytes((opcode | (0x80 if fin else 0),))
    if len(data) < 126:
        return head + bytes((len(data),)) + data
    if len(data) < 1 << 16:
        return head + b"\x7e" + struct.pack("!H", len(data)) + data
    return head + b"\x7f" + struct.pack("!Q", len(data)) + data


@contextmanager
def pods(server: WireServer, **config: Any) -> Iterator[Api[Pod]]:
    """The Pods of namespace default, at `server`, which runs as long as this is entered."""
    with server, server.client(**config) as client:
        yield Api.namespaced(client, Pod, "default")


def serving(script: Callable[[SocketPeer], None], protocol: str = "v5.channel.k8s.io", **how: Any) -> WireServer:
    """A server that opens each websocket and then does what `script` says."""

    def serve(peer: Peer) -> None:
        request = peer.receive()
        if request is not None:
            script(SocketPeer(peer, request, protocol))

    return WireServer(serve, **how)
