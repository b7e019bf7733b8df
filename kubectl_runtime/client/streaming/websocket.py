"""`WebSocket`: messages over one websocket. Each websocket has a thread, and only this thread uses the socket.

    open       the thread reads while the inbox has room, writes what is queued, answers pings, and pings each 60 s
    closing    `close` was called: queued data and a close frame are written; the peer's close frame is awaited for 1 s
    ended      cleanly (a close frame came, or `close` was called), or with the error that broke it; socket closed

A slow reader slows the server down: while 1 MiB is unread, nothing more is read from the socket, unless a reader waits
for bytes that have not come. Without this exception, a program that waits for one channel while another channel fills
up would block forever. The inbox then holds more than 1 MiB of the other channel's bytes. Writers wait while 1 MiB is
unsent.

The handshake (RFC 6455, section 4.1) is a call of the client like any GET, so that credentials, headers, proxies, TLS,
retries and the user's layers apply; a refusal is an ApiError with the server's Status. The socket of the 101 answer is
kept, with the bytes that the server sent after the head.

`WebSocketThread` sleeps in a selector until the socket or a caller has work for it; `condition` guards all shared
state. `FrameReader` decodes frames, and is the only user of websocket-client: `feed` takes bytes from the socket,
`messages` yields whole messages as (opcode, content). Fragments are joined; control frames may come between fragments.
`FrameReader` raises TransportError for bytes that are not websocket frames, and for a message above 32 MiB. `Inbox`
receives the messages; `Messages` is the plain inbox.
"""
from __future__ import annotations

import base64
import binascii
import contextlib
import hashlib
import os
import selectors
import socket
import ssl
import struct
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Protocol, Self

from msgspec.structs import replace
from requests.models import Response
from websocket import ABNF, WebSocketException, frame_buffer

from kubectl_runtime.client.http.sockets import TlsInTls
from kubectl_runtime.core.base.errors import RequestTimeout, TransportError, text_of
from kubectl_runtime.core.base.guard import guarded_logger, printable
from kubectl_runtime.core.base.threads import SYSTEM_CLOCK, Clock, Thread
from kubectl_runtime.core.requests.request import Request
from kubectl_runtime.core.scope import StopToken

_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"  # RFC 6455, section 1.3


@dataclass
class Opened:
    """The non-blocking socket of a websocket, and the first bytes that came after the answer's head. `close` closes
    the socket."""

    socket: socket.socket | TlsInTls
    first: bytes
    protocol: str
    response: Response

    def close(self) -> None:
        """Close the socket."""
        self.response.raw.close()


def upgrading(request: Request, protocols: Sequence[str]) -> tuple[Request, str]:
    """Return `request` with the handshake's headers, and the handshake's key. `protocols`: subprotocols, the preferred
    first."""
    key = base64.b64encode(os.urandom(16)).decode("ascii")
    headers = [("Connection", "Upgrade"), ("Upgrade", "websocket"), ("Sec-WebSocket-Version", "13"),
               ("Sec-WebSocket-Key", key)]
    if protocols:
        headers.append(("Sec-WebSocket-Protocol", ", ".join(protocols)))
    return replace(request, headers=(*request.headers, *headers)), key


def opened(response: Response, request: Request, key: str, protocols: Sequence[str]) -> Opened:
    """The websocket that `response` opens. If the answer does not open a websocket, closes the connection and raises
    TransportError."""
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
        raise TransportError(f"{operation}: the server chose the subprotocol {protocol!r} "
                             f"instead of {' or '.join(protocols)}")
    raw: Any = response.raw
    found = getattr(getattr(raw, "connection", None), "sock", None)
    file = getattr(getattr(raw, "_fp", None), "fp", None)  # as in wire.streams.raw_response
    if not isinstance(found, socket.socket | TlsInTls) or file is None:
        raise TransportError(f"{operation}: the client's adapter cannot open a websocket: its answers have no socket, "
                             "as with a mock")
    found.setblocking(False)
    return Opened(found, _buffered(file), protocol, response)


def _accepted(key: str) -> bytes:
    digest = hashlib.sha1(key.encode("ascii") + _GUID, usedforsecurity=False).digest()
    return binascii.b2a_base64(digest, newline=False)


def _buffered(file: Any) -> bytes:
    """The bytes that were read from the socket together with the answer's head."""
    try:
        found: bytes = file.peek()
    except OSError:  # nothing has come yet, or the connection broke, which the next read will report
        return b""
    return found


TEXT, BINARY, CLOSE, PING, PONG = (ABNF.OPCODE_TEXT, ABNF.OPCODE_BINARY, ABNF.OPCODE_CLOSE, ABNF.OPCODE_PING,
                                   ABNF.OPCODE_PONG)
LONGEST_MESSAGE = 32 << 20
"""The maximum size of a message in bytes: the limit of golang.org/x/net/websocket, which kubelets use. (Kubelets send
about 32 KiB at once.)"""
_DATA = (TEXT, BINARY, ABNF.OPCODE_CONT)


def frame(opcode: int, content: bytes = b"") -> memoryview:
    """One whole frame, masked as a client's frames must be."""
    return memoryview(ABNF.create_frame(content, opcode).format())


class FrameReader:
    """Decodes the frames of one connection. For one thread."""

    def __init__(self, first: bytes = b"") -> None:
        self._unread = bytearray(first)
        self._frames = frame_buffer(self._take, skip_utf8_validation=True)
        self._opcode: int | None = None  # the opcode of a message whose fragments are arriving
        self._fragments: list[bytes] = []  # joined once, since there may be any number
        self._taken = 0  # bytes of the message that is not whole yet

    def feed(self, data: bytes) -> None:
        """Add bytes that came from the connection."""
        self._unread += data

    def messages(self) -> Iterator[tuple[int, bytes]]:
        """Yield whole messages until more bytes are needed. The caller may stop the iteration at any item and start a
        new one later."""
        try:
            while self._unread:
                found = self._frames.recv_frame()
                if found.opcode not in _DATA:
                    self._taken = self._taken if self._opcode is not None else 0
                    yield found.opcode, _bytes(found.data)
                    continue
                if (found.opcode == ABNF.OPCODE_CONT) != (self._opcode is not None):
                    raise TransportError("the received data is not a websocket message: a fragment belongs to no "
                                         "message")
                opcode = self._opcode = found.opcode if self._opcode is None else self._opcode
                self._fragments.append(_bytes(found.data))
                if found.fin:
                    whole, self._fragments, self._opcode = b"".join(self._fragments), [], None
                    self._taken = 0
                    yield opcode, whole
        except BlockingIOError:
            return
        except WebSocketException as error:
            raise TransportError(f"the received data is not a websocket message: {error}") from None

    def _take(self, size: int) -> bytes:
        """Return at most `size` unread bytes, for websocket-client. After BlockingIOError, websocket-client keeps the
        part of the frame that it has, and continues from there later."""
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
    """Receives messages. Both methods are called with the websocket's condition held."""

    def put(self, message: bytes) -> None:
        """Process one message. Raises TransportError for a breach of the protocol, which ends the websocket."""

    def held(self) -> int:
        """The number of unread bytes."""


class Messages:
    """An inbox of whole messages, in order."""

    def __init__(self) -> None:
        self._queue: deque[bytes] = deque()
        self._held = 0

    def put(self, message: bytes) -> None:
        """Add one message."""
        self._queue.append(message)
        self._held += len(message)

    def held(self) -> int:
        """The number of unread bytes."""
        return self._held

    def __len__(self) -> int:
        return len(self._queue)

    def take(self) -> bytes | None:
        """Remove and return the oldest message; None when there is none."""
        if not self._queue:
            return None
        message = self._queue.popleft()
        self._held -= len(message)
        return message


log = guarded_logger(__name__)

ROOM = 1 << 20
"""Bytes that are held unread, or unsent, before the other side has to wait."""
PING_INTERVAL = 60.0
"""Seconds between pings, so that no device on the path drops an idle connection (kube-rs's number)."""
CLOSING_TIME = 1.0
"""Seconds for the peer to answer a close frame."""

_PIECE = 1 << 16
_NORMAL = 1000  # RFC 6455, section 7.4.1
_NOT_NOW = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError, InterruptedError)


class WebSocketThread:
    """The thread of a `WebSocket`, and the state that it shares with callers."""

    def __init__(self, opened: Opened, operation: str, *, inbox: Inbox | None = None, stops: Iterable[StopToken] = (),
                 clock: Clock = SYSTEM_CLOCK) -> None:
        """`operation` names the request in errors. The websocket ends when one of `stops` is set. Starts the thread."""
        self.protocol = opened.protocol
        """The subprotocol that the server chose."""
        self.operation = operation
        self.condition = threading.Condition()
        """Guards the inbox; notified whenever something was received or taken."""
        self.clock = clock
        self._opened, self._socket = opened, opened.socket
        self._messages = Messages()
        self._inbox: Inbox = self._messages if inbox is None else inbox
        self._frames = FrameReader(opened.first)
        self._outgoing: deque[memoryview] = deque()
        self._unsent = 0
        self._waiters: list[Callable[[], bool]] = []  # for each waiting reader: whether its bytes have come
        self._asleep = False  # whether the thread may be waiting for the socket and has to be woken
        self._held_back = False  # whether messages may have arrived that the inbox had no room for
        self._closing = False
        self._close_sent = False
        self._deaf = False  # whether the peer accepts nothing more
        self._deadline: float | None = None
        self._ended = False
        self._error: TransportError | None = None
        self._awake, self._waker = socket.socketpair()
        for end in (self._awake, self._waker):
            end.setblocking(False)
        self._forget = [stop.on_set(self._stop) for stop in stops]
        self._thread = Thread(target=self._run, name=f"websocket {operation}", daemon=True)
        self._thread.start()

    @property
    def ended(self) -> bool:
        """Whether the connection is over, cleanly or not."""
        return self._ended

    @property
    def error(self) -> TransportError | None:
        """Why the websocket ended; None while it is open, and after a clean end."""
        return self._error

    def _stop(self) -> None:
        """End at once, without waiting for the peer, because a stop token was set."""
        with self.condition:
            self._closing = True
            self._deadline = time.monotonic()
            self._wake()

    # The methods below are called with the condition held

    def _queue(self, framed: memoryview) -> None:
        if self._deaf:
            return
        self._outgoing.append(framed)
        self._unsent += len(framed)

    def _wake(self) -> None:
        if self._asleep:
            self._asleep = False
            with contextlib.suppress(OSError):  # the waker is full: the thread will wake anyway
                self._waker.send(b"\0")

    def _may_read(self) -> bool:
        if self._closing or self._inbox.held() < ROOM:
            return True
        # While the inbox is full, the thread reads on only for a caller whose bytes have not come. A caller whose bytes
        # have come may still be listed, because it has not woken yet.
        return any(not has_come() for has_come in self._waiters)

    # The methods below run in this thread

    def _run(self) -> None:
        error: TransportError | None = None
        try:
            self._serve()
        except _Ended as end:
            error = end.error
        except TransportError as broken:  # raised by the inbox
            error = TransportError(f"{self.operation}: {broken}")
        except (OSError, ValueError) as broken:
            error = TransportError(f"{self.operation}: the connection broke off ({text_of(broken)})")
        except Exception as defect:  # whatever it was, waiting callers must get an error
            log.exception("%s: the websocket's thread failed", self.operation)
            error = TransportError(f"{self.operation}: {type(defect).__name__}")
        with self.condition:
            self._error = None if self._closing else error
            self._ended = True
            self.condition.notify_all()
        for forget in self._forget:
            forget()
        self._opened.close()
        with self.condition:
            self._asleep = False  # so that `_wake` does not write to the closed `_waker`
            self._awake.close()
            self._waker.close()

    def _serve(self) -> None:
        ping = self.clock.monotonic() + PING_INTERVAL
        with selectors.DefaultSelector() as selector:
            selector.register(self._awake, selectors.EVENT_READ)
            watched = 0
            self._messages_in()
            while True:
                if self.clock.monotonic() >= ping:
                    ping = self.clock.monotonic() + PING_INTERVAL
                    with self.condition:
                        self._queue(frame(PING))
                with self.condition:
                    self._goodbye()
                    wanted = self._wanted()
                    limit = ping - self.clock.monotonic()
                    if self._deadline is not None:
                        limit = min(limit, self._deadline - time.monotonic())
                    may_read = bool(wanted & selectors.EVENT_READ)
                    pending = isinstance(self._socket, ssl.SSLSocket | TlsInTls) and self._socket.pending() > 0
                    ready = may_read and pending
                    # With `_held_back` this thread must not sleep: a reader may have made room in the inbox already,
                    # and a reader wakes the thread only while it is asleep.
                    at_once = ready or (may_read and self._held_back)
                    self._asleep = not at_once
                if wanted != watched:
                    _watch(selector, self._socket, watched, wanted)
                    watched = wanted
                events = selector.select(0 if at_once else max(0.0, limit))
                with self.condition:
                    self._asleep = False
                happened = {key.fileobj: mask for key, mask in events}
                if self._awake in happened:
                    with contextlib.suppress(BlockingIOError):
                        self._awake.recv(_PIECE)
                if ready or happened.get(self._socket, 0) & selectors.EVENT_READ:
                    self._read()
                if wanted & selectors.EVENT_WRITE:
                    self._write()
                self._messages_in()

    def _wanted(self) -> int:
        wanted = selectors.EVENT_READ if self._may_read() else 0
        return wanted | (selectors.EVENT_WRITE if self._outgoing else 0)

    def _goodbye(self) -> None:
        """While closing: queue the close frame once; end when the time is up."""
        if not self._closing:
            return
        if not self._close_sent:
            self._close_sent = True
            self._queue(frame(CLOSE, struct.pack("!H", _NORMAL)))
            self._write_now()
        if self._deadline is not None and time.monotonic() >= self._deadline:
            raise _Ended(None)

    def _read(self) -> None:
        how = ""
        try:
            data = self._socket.recv(_PIECE)
        except _NOT_NOW:
            return
        except OSError as error:
            data, how = b"", f" ({text_of(error)})"
        if not data:
            self._messages_in(last=True)  # what has come still counts, including a close frame
            raise _Ended(TransportError(f"{self.operation}: the connection broke off{how}"))
        self._frames.feed(data)

    def _write(self) -> None:
        with self.condition:
            self._write_now()
            self.condition.notify_all()

    def _write_now(self) -> None:
        while self._outgoing:
            first = self._outgoing[0]
            try:
                sent = self._socket.send(first[:_PIECE])
            except _NOT_NOW:
                return
            except OSError as error:  # the peer accepts nothing more, but what it has sent is still to be read
                log.debug("%s: no more can be sent: %s", self.operation, error)
                self._outgoing.clear()
                self._unsent, self._deaf = 0, True
                return
            self._unsent -= sent
            if sent < len(first):
                self._outgoing[0] = first[sent:]
            else:
                self._outgoing.popleft()

    def _messages_in(self, *, last: bool = False) -> None:
        """Give whole messages to the inbox while it has room; with `last` give it all of them."""
        arrived = self._frames.messages()
        self._held_back = True
        while last or self._room():
            if (found := next(arrived, None)) is None:
                self._held_back = False
                return
            opcode, content = found
            if opcode in (BINARY, TEXT):
                with self.condition:
                    self._inbox.put(content)
                    self.condition.notify_all()
            elif opcode == CLOSE:
                self._closed_by_peer(content)
            elif opcode == PING:
                with self.condition:
                    if self._unsent < ROOM:  # otherwise the peer sends pings but does not read, and gets no pong
                        self._queue(frame(PONG, content))

    def _room(self) -> bool:
        with self.condition:
            return self._may_read()

    def _closed_by_peer(self, content: bytes) -> None:
        code = struct.unpack("!H", content[:2])[0] if len(content) >= 2 else _NORMAL
        with self.condition:
            if not self._close_sent:
                self._close_sent = True
                self._queue(frame(CLOSE, content[:2]))
                self._write_now()
        if code == _NORMAL:
            raise _Ended(None)
        said = printable(content[2:].decode("utf-8", "replace"))
        raise _Ended(TransportError(f"{self.operation}: the server ended the connection: {said or f'code {code}'}"))


class _Ended(Exception):
    """The websocket is over."""

    def __init__(self, error: TransportError | None) -> None:
        super().__init__()
        self.error = error


def _watch(selector: selectors.BaseSelector, connection: socket.socket | TlsInTls, watched: int, wanted: int) -> None:
    if not watched:
        selector.register(connection, wanted)
    elif not wanted:
        selector.unregister(connection)
    else:
        selector.modify(connection, wanted)


class WebSocket(WebSocketThread):
    """One websocket. A context manager: leaving the block closes the websocket. Safe to use from any thread."""

    def send(self, message: bytes, timeout: float | None = None) -> None:
        """Queue one binary message. Blocks while 1 MiB is unsent, `timeout` seconds at most.

        Raises TransportError when the websocket has ended, and RequestTimeout after `timeout`. In both cases nothing
        was queued.
        """
        framed = frame(BINARY, message)
        with self.condition:
            room = self.wait(lambda: self._unsent < ROOM or self._closing or self._deaf, timeout)
            if self._ended or self._closing or self._deaf:
                raise self._error or TransportError(f"{self.operation}: the connection was closed")
            if not room:
                raise RequestTimeout(f"{self.operation}: the other side has not read for {timeout or 0:.3g} s")
            self._queue(framed)
            self._wake()

    def receive(self, timeout: float | None = None) -> bytes | None:
        """The next message; None after a clean end. Usable only for a websocket with its default inbox.

        Blocks until there is a message. Raises TransportError for a broken connection, RequestTimeout after `timeout`
        seconds.
        """
        with self.condition:
            self.wait(lambda: len(self._messages) > 0, timeout)
            message = self._messages.take()
            if message is not None:
                self.read_on()
                return message
            if self._error is not None:
                raise self._error
            if self._ended:
                return None
            raise RequestTimeout(f"{self.operation}: nothing came within {timeout or 0:.3g} s")

    def wait(self, ready: Callable[[], bool], timeout: float | None = None) -> bool:
        """Wait, with the condition held, until `ready()` is true, the websocket ends, or `timeout` has passed. Returns
        the last result of `ready()`.

        The websocket's thread also calls `ready`, with the condition held; `ready` must change nothing.
        """
        if ready():
            return True
        deadline = None if timeout is None else self.clock.monotonic() + timeout
        self._waiters.append(ready)
        try:
            while not (found := ready()) and not self._ended:
                self._wake()  # another reader may have taken the bytes: the thread must read more
                left = None if deadline is None else deadline - self.clock.monotonic()
                if left is not None and left <= 0:
                    break
                self.clock.wait(self.condition, left)
            return found
        finally:
            self._waiters.remove(ready)

    def read_on(self) -> None:
        """Notify the thread, with the condition held, that the inbox has more room."""
        if self._inbox.held() < ROOM:
            self._wake()

    def close(self) -> None:
        """Write what is queued, send a close frame and end. Blocks until the thread has ended, about a second at most.
        Safe to repeat; may be called from the thread itself."""
        with self.condition:
            if not self._closing:
                self._closing = True
                self._deadline = time.monotonic() + CLOSING_TIME
            self._wake()
            self.condition.notify_all()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
