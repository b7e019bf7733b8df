"""Exec, attach and port-forward over websockets, answered by a test's functions; container logs that a test writes.

The messages of exec and attach have a kubelet's format. A message's first byte is its channel: 0 stdin, 1 stdout, 2
stderr, 3 the Status at the end, 4 the terminal's size. In protocol v5 a message on channel 255 names a channel that has
ended. An exec or attach runs in the connection's thread: if the test's function does not read, the client has to wait.

A log is a list of pieces, each with its time. A piece contains a newline only at its end, and a line may consist of
several pieces. With timestamps, the line's first piece gets the timestamp. `Selection` is the part that a client
requests, and `LogTail` is the `EventStream` of a follower.
"""
from __future__ import annotations

import contextlib
import functools
import json
import queue
import socket
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from kubectl_runtime.apiserver.wire import MessageConnection
from kubectl_runtime.core.base.guard import guarded_logger
from kubectl_runtime.core.base.threads import Clock, Thread
from kubectl_runtime.core.meta.metav1 import format_micro_time

log = guarded_logger(__name__)

V5, V4 = "v5.channel.k8s.io", "v4.channel.k8s.io"
STDIN, STDOUT, STDERR, ERROR, RESIZE, CLOSE_SIGNAL = 0, 1, 2, 3, 4, 255


class ClientGone(ConnectionError):
    """The client has closed the connection. Raised by writing to the connection."""


@dataclass(frozen=True, slots=True)
class ExecRequest:
    """The parameters of an exec or attach; `command` is empty for an attach."""

    namespace: str
    pod: str
    container: str
    command: tuple[str, ...]
    stdin: bool
    stdout: bool
    stderr: bool
    tty: bool


class _Output:
    """The stream stdout or stderr. If the client did not request the stream, written data is dropped."""

    def __init__(self, connection: MessageConnection, channel: int, asked: bool) -> None:
        self._connection, self._mark, self._asked = connection, bytes((channel,)), asked

    def write(self, data: bytes) -> None:
        """Send `data` as one message. Blocks while the client does not read. Raises ClientGone."""
        if self._asked and data:
            try:
                self._connection.send(self._mark + data)
            except OSError as error:
                raise ClientGone(str(error)) from None


@dataclass
class ExecCall:
    """One exec or attach, as its handler sees it. `stdin` iterates over the input until its end."""

    request: ExecRequest
    stdout: _Output
    stderr: _Output
    size: tuple[int, int] | None = None
    """The terminal's width and height, from the last message that contained them; None before that message."""
    _connection: MessageConnection | None = field(default=None, repr=False)
    _waiting: deque[bytes] = field(default_factory=deque, repr=False)
    _ended: bool = False

    @property
    def command(self) -> tuple[str, ...]:
        return self.request.command

    @property
    def stdin(self) -> Iterator[bytes]:
        return iter(self.read, b"")

    def read(self) -> bytes:
        """Block until the next piece of stdin arrives, and return it; empty at the end or if the client is gone."""
        while not self._waiting and not self._ended:
            self._next()
        return self._waiting.popleft() if self._waiting else b""

    def wait_for_size(self) -> tuple[int, int] | None:
        """Block until the terminal's size changes, and return it; None if the client is gone or stdin has ended."""
        before, self.size = self.size, None
        while self.size is None and not self._ended:
            self._next()
        found, self.size = self.size, self.size or before
        return found

    def _next(self) -> None:
        """Read one message from the client."""
        message = self._connection.receive() if self._connection is not None else None
        if message is None:
            self._ended = True
        elif message[:1] == bytes((STDIN,)):
            if len(message) > 1:
                self._waiting.append(message[1:])
        elif message == bytes((CLOSE_SIGNAL, STDIN)):
            self._ended = True
        elif message[:1] == bytes((RESIZE,)):
            self.size = _size(message[1:]) or self.size


ExecHandler = Callable[[ExecCall], int | None]
"""Answers one exec or attach, and returns the exit code (None for 0)."""


class ExecSession:
    """The websocket session of one exec or attach, answered by a handler. Implements `wire.Session`."""

    def __init__(self, request: ExecRequest, handler: ExecHandler) -> None:
        self._request, self._handler = request, handler

    def run(self, connection: MessageConnection) -> None:
        """Answer until the end of the session. Raises OSError if the connection breaks."""
        request = self._request
        call = ExecCall(request, _Output(connection, STDOUT, request.stdout),
                        _Output(connection, STDERR, request.stderr), _connection=connection)
        if request.stdout or request.stderr:  # like a kubelet, send an empty message when the streams are open
            connection.send(bytes((STDOUT if request.stdout else STDERR,)))
        try:
            status = _exit_status(self._handler(call) or 0)
        except ClientGone:
            return
        except Exception as error:  # a bug in the test's function must not look like a lost connection
            log.exception("the handler of %s in %s/%s failed", " ".join(request.command) or "attach",
                          request.namespace, request.pod)
            status = {"metadata": {}, "status": "Failure", "reason": "InternalError", "code": 500,
                      "message": f"error executing command: {type(error).__name__}: {error}"}
        connection.send(bytes((ERROR,)) + json.dumps(status).encode())


def _exit_status(code: int) -> dict[str, Any]:
    if code == 0:
        return {"metadata": {}, "status": "Success"}
    return {"metadata": {}, "status": "Failure", "reason": "NonZeroExitCode",
            "message": f"command terminated with non-zero exit code: exit status {code}",
            "details": {"causes": [{"reason": "ExitCode", "message": str(code)}]}}


class ForwardedConnection:
    """One connection to a Pod's port, as its handler sees it."""

    def __init__(self, port: int, send: Callable[[bytes], None]) -> None:
        self.port = port
        self._send = send
        self._arrived: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._over = False

    def read(self) -> bytes:
        """Block until the client sends the next piece, and return it; empty at the end."""
        if self._over:
            return b""
        piece = self._arrived.get()
        self._over = not piece
        return piece

    def write(self, data: bytes) -> None:
        """Send to the client. Blocks while the client does not read. Raises ClientGone."""
        for start in range(0, len(data), _PIECE):
            self._send(data[start:start + _PIECE])

    def put(self, data: bytes) -> None:
        """Add data from the client. Empty data marks the end."""
        self._arrived.put(data)


ForwardHandler = Callable[[ForwardedConnection], object]
"""Answers one connection to a Pod's port."""

_PIECE = 32 << 10


def to_local_port(port: int) -> ForwardHandler:
    """A handler that forwards connections to a port of 127.0.0.1."""
    def forward(connection: ForwardedConnection) -> None:
        with socket.create_connection(("127.0.0.1", port), timeout=10) as local:
            local.settimeout(None)

            def upload() -> None:
                with contextlib.suppress(OSError):
                    while piece := connection.read():
                        local.sendall(piece)
                    local.shutdown(socket.SHUT_WR)

            thread = Thread(target=upload, name=f"forward-to-{port}", daemon=True)
            thread.start()
            try:
                while piece := local.recv(_PIECE):
                    connection.write(piece)
            finally:
                with contextlib.suppress(OSError):
                    local.shutdown(socket.SHUT_RDWR)
                connection.put(b"")
    return forward


class ForwardSession:
    """Port-forward over a websocket: two channels for each port, data and errors. Implements `wire.Session`."""

    def __init__(self, pod: str, handlers: Sequence[tuple[int, ForwardHandler]]) -> None:
        self._pod, self._handlers = pod, handlers

    def run(self, connection: MessageConnection) -> None:
        """Answer until the client closes the connection. Raises OSError if the connection breaks."""
        lock = threading.Lock()

        def send(channel: int, data: bytes) -> None:
            try:
                with lock:
                    connection.send(bytes((channel,)) + data)
            except OSError as error:
                raise ClientGone(str(error)) from None

        open_connections = []
        for index, (port, handler) in enumerate(self._handlers):
            for channel in (2 * index, 2 * index + 1):
                send(channel, port.to_bytes(2, "little"))
            one = ForwardedConnection(port, functools.partial(send, 2 * index))
            open_connections.append(one)
            Thread(target=functools.partial(self._answer, handler, one, functools.partial(send, 2 * index + 1)),
                   name=f"port-forward-{port}", daemon=True).start()
        try:
            while (message := connection.receive()) is not None:
                index, is_error = divmod(message[0], 2) if message else (len(open_connections), 0)
                if index < len(open_connections) and not is_error and len(message) > 1:
                    open_connections[index].put(message[1:])
        finally:
            for one in open_connections:
                one.put(b"")

    def _answer(self, handler: ForwardHandler, one: ForwardedConnection, fail: Callable[[bytes], None]) -> None:
        try:
            handler(one)
        except ClientGone:
            pass
        except Exception as error:  # noqa: BLE001 - goes to the client; a test's bug must not end the server
            log.warning("the port-forward handler for port %d of Pod %s failed: %s: %s", one.port, self._pod,
                        type(error).__name__, error)
            with contextlib.suppress(ClientGone):
                fail(f"error forwarding port {one.port} to pod {self._pod}: {type(error).__name__}: {error}".encode())


def _size(content: bytes) -> tuple[int, int] | None:
    try:
        size = json.loads(content)
        return int(size["Width"]), int(size["Height"])
    except (ValueError, KeyError, TypeError):
        return None


@dataclass(frozen=True, slots=True)
class Selection:
    """A part of a log: the last `tail` lines among those written at `since` or later, at most `limit` bytes."""

    tail: int | None = None
    since: datetime | None = None
    limit: int | None = None
    timestamps: bool = False


@dataclass(frozen=True, slots=True)
class _Piece:
    time: datetime
    begins: bool  # whether the piece is the first one of its line
    data: bytes


class ContainerLog:
    """The log of a container. Safe to use from any thread."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._pieces: list[_Piece] = []
        self._ended = False
        self._followers: list[LogTail] = []

    def write(self, content: bytes | str) -> None:
        """Append to the log, with the server clock's time. Followers see the content at once. Raises ValueError if the
        log has ended."""
        data = content.encode() if isinstance(content, str) else bytes(content)
        with self._lock:
            if self._ended:
                raise ValueError("the container has ended, so nothing can be added to its log")
            now = self._clock.now()
            for line in _lines(data):
                begins = not self._pieces or self._pieces[-1].data.endswith(b"\n")
                self._pieces.append(_Piece(now, begins, line))
            followers = list(self._followers)
        for follower in followers:
            follower.notify()

    def end(self) -> None:
        """End the log, as when its container ends. Requests that follow the log also end. May be called repeatedly."""
        with self._lock:
            self._ended = True
            followers = list(self._followers)
        for follower in followers:
            follower.notify()

    def read(self, selection: Selection) -> bytes:
        """The selected part of the log, as it is now."""
        tail = LogTail(self, selection)
        return tail.poll() or b""

    def follow(self, selection: Selection) -> LogTail:
        """A stream of the selected part and of everything written later."""
        tail = LogTail(self, selection)
        with self._lock:
            self._followers.append(tail)
        return tail

    # Called by tails.

    def start(self, selection: Selection) -> int:
        """The index of the first selected piece."""
        with self._lock:
            begins = [index for index, piece in enumerate(self._pieces)
                      if piece.begins and (selection.since is None or piece.time >= selection.since)]
            if selection.tail is not None:
                begins = begins[-selection.tail:] if selection.tail else []
            return begins[0] if begins else len(self._pieces)

    def since(self, index: int) -> tuple[list[_Piece], bool]:
        """The pieces from `index` on, and whether the log has ended."""
        with self._lock:
            return self._pieces[index:], self._ended

    def forget(self, tail: LogTail) -> None:
        with self._lock:
            if tail in self._followers:
                self._followers.remove(tail)


class LogTail:
    """A follower's view of a log. Implements `wire.EventStream`."""

    deadline: float | None = None

    def __init__(self, log: ContainerLog, selection: Selection) -> None:
        self._log, self._selection = log, selection
        self._next = log.start(selection)
        self._left = selection.limit
        self._over = False
        self._ready: Callable[[], None] = lambda: None

    @property
    def closed(self) -> bool:
        return self._over

    def poll(self) -> bytes | None:
        """The log bytes since the last call, or None if there are none."""
        pieces, ended = self._log.since(self._next)
        self._next += len(pieces)
        data = b"".join(self._shown(piece) for piece in pieces)
        if self._left is not None:
            data = data[:self._left]
            self._left -= len(data)
        self._over = ended or self._left == 0
        return data or None

    def on_ready(self, callback: Callable[[], None]) -> None:
        self._ready = callback

    def notify(self) -> None:
        """Signal that the log has new content or has ended."""
        self._ready()

    def close(self) -> None:
        self._over = True
        self._log.forget(self)

    def _shown(self, piece: _Piece) -> bytes:
        if not (self._selection.timestamps and piece.begins):
            return piece.data
        return format_micro_time(piece.time)[:-1].encode() + b"000Z " + piece.data


def _lines(data: bytes) -> list[bytes]:
    """The lines, each with its newline. (bytes.splitlines would also split at a carriage return.)"""
    lines = [line + b"\n" for line in data.split(b"\n")]
    lines[-1] = lines[-1][:-1]
    return lines if lines[-1] else lines[:-1]
