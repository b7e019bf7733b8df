"""Websocket frames from bytes and to bytes: the only place that imports websocket-client.

`FrameReader.feed` takes what a socket gave, `messages` yields what is whole: (opcode, content). Fragments of a message
have been put together; control frames may come between them. Raises TransportError for what is not a websocket, and
for a message above 32 MiB.
"""
from __future__ import annotations

from collections.abc import Iterator

from websocket import ABNF, WebSocketException, continuous_frame, frame_buffer

from kubectl_runtime.core.base.errors import TransportError

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
