"""The websocket handshake (RFC 6455, section 4.1) as one call of the client.

It goes through the client's whole stack as any GET does, so that credentials, headers, proxies, TLS, retries and the
user's layers are the same; what refuses it is an ApiError with the server's Status. Of the answer, 101, the socket is
kept: whatever the server has sent after the head comes first.

Websocket frames from bytes and to bytes: the only place that imports websocket-client.

`FrameReader.feed` takes what a socket gave, `messages` yields what is whole: (opcode, content). Fragments of a message
have been put together; control frames may come between them. Raises TransportError for what is not a websocket, and
for a message above 32 MiB.

`Inbox`: where the messages of a websocket go, and `Messages`, the plain one.
"""
from __future__ import annotations

import base64
import binascii
import hashlib
import os
import socket
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Protocol

from msgspec.structs import replace
from requests.models import Response
from websocket import ABNF, WebSocketException, continuous_frame, frame_buffer

from kubectl_runtime.client.http.sockets import TlsInTls
from kubectl_runtime.core.base.errors import TransportError
from kubectl_runtime.core.requests.request import Request

_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"  # RFC 6455, section 1.3


@dataclass
class Opened:
    """The socket of a websocket, not blocking, and the first bytes after the head. `close` closes it."""

    socket: socket.socket | TlsInTls
    first: bytes
    protocol: str
    response: Response

    def close(self) -> None:
        """Close the socket."""
        self.response.raw.close()


def upgrading(request: Request, protocols: Sequence[str]) -> tuple[Request, str]:
    """`request` with the handshake's headers, and its key. `protocols`: subprotocols, the preferred first."""
    key = base64.b64encode(os.urandom(16)).decode("ascii")
    headers = [("Connection", "Upgrade"), ("Upgrade", "websocket"), ("Sec-WebSocket-Version", "13"),
               ("Sec-WebSocket-Key", key)]
    if protocols:
        headers.append(("Sec-WebSocket-Protocol", ", ".join(protocols)))
    return replace(request, headers=(*request.headers, *headers)), key


def opened(response: Response, request: Request, key: str, protocols: Sequence[str]) -> Opened:
    """The websocket that `response` opens. Raises TransportError for an answer that does not open one; then the
    connection is closed."""
    try:
        return _opened(response, request.operation, key, protocols)
    except BaseException:
        response.close()
        raise


def _opened(response: Response, operation: str, key: str, protocols: Sequence[str]) -> Opened:
    if response.status_code != HTTPStatus.SWITCHING_PROTOCOLS:
        raise TransportError(f"{operation}: the answer is HTTP {response.status_code} instead of a websocket: old "
                             "API servers and some proxies cannot open one")
    accepted = response.headers.get("Sec-WebSocket-Accept") or ""
    if response.headers.get("Upgrade", "").lower() != "websocket" or accepted.encode() != _accepted(key):
        raise TransportError(f"{operation}: the server switched to something that is not a websocket")
    protocol = response.headers.get("Sec-WebSocket-Protocol") or ""
    if protocols and protocol not in protocols:
        raise TransportError(f"{operation}: the server chose the subprotocol {protocol!r}; "
                             f"asked for was {' or '.join(protocols)}")
    raw: Any = response.raw
    found = getattr(getattr(raw, "connection", None), "sock", None)
    file = getattr(getattr(raw, "_fp", None), "fp", None)  # as wire.content.raw_response
    if not isinstance(found, socket.socket | TlsInTls) or file is None:
        raise TransportError(f"{operation}: the adapter of this client cannot carry a websocket: there is no socket "
                             "below its answers (a mock)")
    found.setblocking(False)
    return Opened(found, _buffered(file), protocol, response)


def _accepted(key: str) -> bytes:
    digest = hashlib.sha1(key.encode("ascii") + _GUID, usedforsecurity=False).digest()
    return binascii.b2a_base64(digest, newline=False)


def _buffered(file: Any) -> bytes:
    """What was read from the socket together with the answer's head."""
    try:
        found: bytes = file.peek()
    except OSError:  # nothing has come yet; or the connection has broken off, as the next read will find
        return b""
    return found


TEXT, BINARY, CLOSE, PING, PONG = (ABNF.OPCODE_TEXT, ABNF.OPCODE_BINARY, ABNF.OPCODE_CLOSE, ABNF.OPCODE_PING,
                                   ABNF.OPCODE_PONG)
LONGEST_MESSAGE = 32 << 20
"""Bytes, as golang.org/x/net/websocket, which kubelets use. (They send some 32 KiB at once.)"""
_DATA = (TEXT, BINARY, ABNF.OPCODE_CONT)


def frame(opcode: int, content: bytes = b"") -> memoryview:
    """One whole frame, masked as a client's have to be."""
    return memoryview(ABNF.create_frame(content, opcode).format())


class FrameReader:
    """The frames of one connection. For one thread."""

    def __init__(self, first: bytes = b"") -> None:
        self._unread = bytearray(first)
        self._frames = frame_buffer(self._take, skip_utf8_validation=True)
        self._fragments = continuous_frame(False, True)
        self._taken = 0  # bytes of the message that is not whole yet

    def feed(self, data: bytes) -> None:
        """Take bytes as they came from the connection."""
        self._unread += data

    def messages(self) -> Iterator[tuple[int, bytes]]:
        """What is whole, until more has to come; it may be left and begun again at any item."""
        try:
            while self._unread:
                found = self._frames.recv_frame()
                if found.opcode not in _DATA:
                    self._taken = self._taken if self._fragments.recving_frames else 0
                    yield found.opcode, _bytes(found.data)
                    continue
                self._fragments.validate(found)
                self._fragments.add(found)
                if self._fragments.is_fire(found):
                    self._taken = 0
                    opcode, whole = self._fragments.extract(found)
                    yield opcode, _bytes(whole.data)
        except BlockingIOError:
            return
        except WebSocketException as error:
            raise TransportError(f"what came is not a websocket: {error}") from None

    def _take(self, size: int) -> bytes:
        """What websocket-client reads from. It keeps what it has of a frame when this raises, and goes on from there.
        """
        if not self._unread:
            raise BlockingIOError
        if self._taken > LONGEST_MESSAGE:
            raise TransportError(f"a message is longer than {LONGEST_MESSAGE >> 20} MiB")
        found = bytes(self._unread[:size])
        del self._unread[:size]
        self._taken += len(found)
        return found


def _bytes(content: str | bytes) -> bytes:
    return content.encode() if isinstance(content, str) else bytes(content)


class Inbox(Protocol):
    """Where messages go. Both methods are called with the websocket's condition held."""

    def put(self, message: bytes) -> None:
        """Take one message. Raises TransportError for what breaks the protocol, which ends the websocket."""

    def held(self) -> int:
        """The bytes that nobody has read."""


class Messages:
    """An inbox of whole messages, in their order."""

    def __init__(self) -> None:
        self._queue: deque[bytes] = deque()
        self._held = 0

    def put(self, message: bytes) -> None:
        """Take one message."""
        self._queue.append(message)
        self._held += len(message)

    def held(self) -> int:
        """The bytes that nobody has read yet."""
        return self._held

    def __len__(self) -> int:
        return len(self._queue)

    def take(self) -> bytes | None:
        """Take out the message that came first; None when there is none."""
        if not self._queue:
            return None
        message = self._queue.popleft()
        self._held -= len(message)
        return message
