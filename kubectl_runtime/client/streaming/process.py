"""`AttachedProcess`: a process in a container, started by exec or found by attach, with its streams.

    with pods.exec("web", ["cat"], stdin=True) as process:
        process.stdin.write(b"hello")
        process.stdin.close()
        print(b"".join(process.stdout), process.returncode())

    done = pods.exec("web", ["ls", "/"]).run()  # waits for the end of the process
    print(done.returncode, done.stdout, done.stderr)

`Channels` sorts the messages of a websocket into channels by their first byte: 0 stdin, 1 stdout, 2 stderr, 3 the
Status at the end, 4 the terminal's size. With the subprotocol v4.channel.k8s.io a channel ends with the connection;
v5.channel.k8s.io adds channel 255, whose second byte names a channel that has ended, in either direction (Kubernetes,
`apimachinery/pkg/util/remotecommand/constants.go`). Each channel keeps its bytes until they are read or the session is
closed; see websocket.py for when the process has to wait. Each channel is read by one thread.
"""
from __future__ import annotations

import math
import re
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Self

import msgspec

from kubectl_runtime.client.streaming.logs import decoded_lines
from kubectl_runtime.client.streaming.websocket import WebSocket
from kubectl_runtime.core.base.errors import (
    ApiError,
    DiscoveryError,
    KubeError,
    RequestError,
    RequestTimeout,
    Status,
    TransportError,
)
from kubectl_runtime.core.base.guard import guarded_logger
from kubectl_runtime.core.base.threads import Duration, seconds
from kubectl_runtime.core.base.wire import decoded
from kubectl_runtime.core.meta.problems import DECODE_FAILURES, is_json
from kubectl_runtime.core.requests.pods import AttachParams

V5 = "v5.channel.k8s.io"
V4 = "v4.channel.k8s.io"
CLOSE_SIGNAL = 255

_LONGEST_MESSAGE = 1 << 15
"""The maximum number of data bytes in a message to the server, as in kubectl."""
_is_exit_code = re.compile(r"-?[0-9]{1,10}").fullmatch


class Channels:
    """The inbox of a websocket (`websocket.Inbox`), with methods to read and write its channels."""

    def __init__(self) -> None:
        self._pieces: dict[int, deque[bytes]] = {}
        self._ended: set[int] = set()
        self._held = 0
        self._websocket: WebSocket | None = None

    def carried_by(self, websocket: WebSocket) -> None:
        """Set the websocket for `read` and `write`. The websocket must have been made with this inbox."""
        self._websocket = websocket

    @property
    def websocket(self) -> WebSocket:
        """The websocket that carries the channels. Always set: the connection exists before the channels are used."""
        assert self._websocket is not None
        return self._websocket

    # The methods below are called with the websocket's condition held

    def put(self, message: bytes) -> None:
        """Add one message from the websocket to its channel. Raises TransportError for a message that breaks the
        protocol."""
        if not message:
            return
        channel = message[0]
        if channel == CLOSE_SIGNAL:
            self._ended.update(message[1:2])
            return
        if len(message) > 1:  # an empty message opens a channel and has no content
            self._pieces.setdefault(channel, deque()).append(message[1:])
            self._held += len(message) - 1

    def held(self) -> int:
        """The number of unread bytes of all channels."""
        return self._held

    # The methods below are called from any thread

    def read(self, channel: int, timeout: float | None = None, *, or_on: int | None = None) -> bytes:
        """The next bytes of `channel`; empty at its end, or when something came on channel `or_on` instead. Blocks
        until one of these has happened.

        Raises RequestTimeout after `timeout` seconds, and TransportError when the connection broke. Bytes that came
        before the connection broke are returned first.
        """
        with self.websocket.condition:
            piece = self._next(channel, timeout, or_on)
            if piece:
                self._pieces[channel].popleft()
                self._held -= len(piece)
                self.websocket.read_on()
            return piece

    def gathered(self, channel: int, is_enough: Callable[[bytes], bool], timeout: float | None = None) -> bytes:
        """All bytes of `channel`. Blocks until `is_enough` is true for these bytes or no more bytes will come. The
        bytes stay in the channel, so that any number of threads may wait for them. Raises like `read`, except that it
        returns the bytes that came before the connection broke, if there are any.

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
                raise RequestTimeout(f"{websocket.operation}: {'only a part' if found else 'nothing'} came within "
                                     f"{timeout or 0:.3g} s")
            return found

    def _next(self, channel: int, timeout: float | None, or_on: int | None) -> bytes:
        """Like `read`, but the caller must hold the condition."""
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
        """The data received on `channel` so far, as text, without removing it; None if nothing was received."""
        with self.websocket.condition:
            pieces = self._pieces.get(channel)
            return b"".join(pieces).decode("utf-8", "replace") if pieces else None

    def write(self, channel: int, data: bytes, timeout: float | None = None) -> None:
        """Send all of `data` on `channel`. Blocks while 1 MiB is unsent. Raises TransportError after the websocket has
        ended, and RequestTimeout when any piece had to wait for `timeout` seconds."""
        mark = bytes((channel,))
        for begin in range(0, len(data), _LONGEST_MESSAGE):
            self.websocket.send(mark + data[begin:begin + _LONGEST_MESSAGE], timeout)

    def end(self, channel: int) -> None:
        """End `channel`: nothing more will be sent on it. Raises DiscoveryError if the subprotocol has no
        half-close."""
        if self.websocket.protocol != V5:
            raise DiscoveryError(f"{self.websocket.operation}: the server speaks {self.websocket.protocol}, which "
                                 f"cannot end stdin alone; this needs {V5} (Kubernetes 1.30)")
        self.websocket.send(bytes((CLOSE_SIGNAL, channel)))


log = guarded_logger(__name__)

STDIN, STDOUT, STDERR, ERROR, RESIZE = range(5)
_PIECE = 1 << 15
_LONGEST_STATUS = 1 << 16


@dataclass(frozen=True, slots=True)
class CompletedExec:
    r"""How a process in a container ended: its exit code, and its standard output and error as bytes.

    >>> CompletedExec(0, b"hello\n", b"").stdout.decode()
    'hello\n'
    """

    returncode: int
    stdout: bytes = field(repr=False)
    stderr: bytes = field(repr=False)


class ExecFailed(KubeError):
    """A process in a container ended with an exit code other than 0: raised by `run(check=True)`.

    `completed` has the exit code and the output. The message leaves the output out, since it may hold secrets.

    >>> server.kubelet.exec("web-0", lambda call: (call.stderr.write(b"no such table"), 3)[1])
    >>> try:
    ...     Api.namespaced(client, Pod, "default").exec("web-0", ["psql"]).run(check=True)
    ... except ExecFailed as error:
    ...     error.completed.returncode, error.completed.stderr
    (3, b'no such table')
    """

    def __init__(self, operation: str, completed: CompletedExec) -> None:
        self.operation = operation
        """The call that ran the process."""
        self.completed = completed
        """The exit code, and all of the output."""
        super().__init__(f"{operation}: the process ended with exit code {completed.returncode}; what it wrote is in "
                         "completed.stdout and completed.stderr of this error")


class ProcessInput:
    """The standard input of a process."""

    def __init__(self, channels: Channels) -> None:
        self._channels = channels

    def write(self, data: bytes) -> None:
        """Send `data`. Blocks while 1 MiB is unsent because the process does not read. Raises TransportError when the
        process or the connection has ended."""
        self._channels.write(STDIN, data)

    def close(self) -> None:
        """End the input: the process reads the end of its input, and its output stays open. Raises DiscoveryError if
        the server is older than Kubernetes 1.30, because such a server cannot end only the input."""
        self._channels.end(STDIN)


class ProcessOutput:
    """The standard output, or standard error, of a process. Only one thread may read it."""

    def __init__(self, channels: Channels, channel: int) -> None:
        self._channels, self._channel = channels, channel

    def read(self, timeout: Duration | None = None) -> bytes:
        """The next piece; empty at the end. Blocks until a piece comes, at most `timeout` seconds (None: without
        limit). Raises RequestTimeout when this time is up, and TransportError if the connection broke before the
        process ended."""
        try:
            return self._channels.read(self._channel, None if timeout is None else seconds(timeout))
        except RequestTimeout:
            raise
        except TransportError:
            # A node sends the status last, after all output, so if the status has come, no output is missing
            if _status((self._channels.held_text(ERROR) or "").encode()) is None:
                raise
            return b""

    def __iter__(self) -> Iterator[bytes]:
        """The pieces as they come, until the end. Raises like `read`."""
        while piece := self.read():
            yield piece

    def lines(self) -> Iterator[str]:
        """The output as lines of text, without their newlines; bytes that are not UTF-8 are replaced by U+FFFD. Blocks
        and raises like `read`."""
        return decoded_lines(self)


class AttachedProcess:
    r"""A process in a container, attached by `Api.exec` or `Api.attach`: its standard input and output, and its end.

    A context manager: leaving it closes the connection; the process may go on. Safe to use from any thread, but each
    output must be read by one thread. Reads block until there is output, or the process ends.

    >>> server.kubelet.exec("web-0", lambda call: call.stdout.write(b"hello\n") and 0)
    >>> with Api.namespaced(client, Pod, "default").exec("web-0", ["echo", "hello"]) as process:
    ...     for piece in process.stdout:
    ...         print(piece)
    b'hello\n'
    """

    def __init__(self, channels: Channels, params: AttachParams) -> None:
        self._channels, self._params = channels, params

    @property
    def protocol(self) -> str:
        """The subprotocol that the server chose."""
        return self._channels.websocket.protocol

    @property
    def stdin(self) -> ProcessInput:
        """The standard input of the process. Raises RequestError when `stdin` was not requested."""
        self._check("stdin", self._params.stdin)
        return ProcessInput(self._channels)

    @property
    def stdout(self) -> ProcessOutput:
        """The standard output of the process, as it comes. Raises RequestError when `stdout` was turned off."""
        self._check("stdout", self._params.stdout)
        return ProcessOutput(self._channels, STDOUT)

    @property
    def stderr(self) -> ProcessOutput:
        """The standard error of the process, as it comes. Raises RequestError when `stderr` was turned off, or when the
        process has a terminal (`tty`)."""
        self._check("stderr", self._params.stderr)
        return ProcessOutput(self._channels, STDERR)

    def terminal_size(self, width: int, height: int) -> None:
        """Set the size of the process's terminal, in characters. Raises RequestError without a terminal (`tty`)."""
        self._check("tty", self._params.tty)
        self._channels.write(RESIZE, msgspec.json.encode({"Width": width, "Height": height}))

    def status(self, timeout: Duration | None = None) -> Status:
        """How the process ended: Success, or Failure with reason NonZeroExitCode or with the reason why it did not run.

        Blocks until the process has ended, `timeout` at most. Raises RequestTimeout, and TransportError when the
        connection ended before a Status came, or when something other than a Status came.
        """
        channels = self._channels
        content = channels.gathered(ERROR, _is_whole, None if timeout is None else seconds(timeout))
        found = _status(content)
        if found is None:
            said = f"with {content[:200].decode('utf-8', 'replace')!r}" if content else "without a status"
            raise TransportError(f"{channels.websocket.operation}: the connection ended {said}; how the process ended "
                                 "is not known")
        return found

    def returncode(self, timeout: Duration | None = None) -> int:
        """The exit code. Blocks and raises like `status`; raises ApiError for a process that could not be run."""
        status = self.status(timeout)
        if status.status == "Success":
            return 0
        if status.reason == "NonZeroExitCode":
            for cause in status.causes:
                if cause.reason == "ExitCode" and _is_exit_code(cause.message or ""):
                    return int(cause.message or "")
        raise ApiError(status, self._channels.websocket.operation)

    def run(self, input: bytes | None = None, *, timeout: Duration | None = None, check: bool = False) -> CompletedExec:
        """Send `input` and end stdin, read all output, wait for the end of the process, and close the connection.

        Blocks until the process has ended; `timeout` limits the whole call. Raises like `returncode`, and like
        `stdin.close` when there is a stdin. With `check`, also raises ExecFailed for an exit code other than 0.
        """
        clock = self._channels.websocket.clock
        deadline = math.inf if timeout is None else clock.monotonic() + seconds(timeout)

        def left() -> float | None:
            return None if timeout is None else max(0.0, deadline - clock.monotonic())

        def rest(output: ProcessOutput) -> bytes:
            return b"".join(iter(lambda: output.read(left()), b""))

        with self:
            if self._params.stdin:
                self._feed(input or b"", left)
            elif input:
                self._check("stdin", False)
            stdout = rest(self.stdout) if self._params.stdout else b""
            stderr = rest(self.stderr) if self._params.stderr else b""
            completed = CompletedExec(self.returncode(left()), stdout, stderr)
        if check and completed.returncode:
            raise ExecFailed(self._channels.websocket.operation, completed)
        return completed

    def _feed(self, input: bytes, left: Callable[[], float | None]) -> None:
        """Send `input`, then end stdin. It is no error if the process ends before it has read all of the input."""
        pieces = (input[begin:begin + _PIECE] for begin in range(0, len(input), _PIECE))
        try:
            for piece in pieces:
                self._channels.write(STDIN, piece, left())
            self._channels.end(STDIN)
        except RequestTimeout:
            raise
        except TransportError as error:
            log.debug("%s: not all of the input was sent: %s", self._channels.websocket.operation, error)

    def close(self) -> None:
        """Close the connection; takes about a second at most. Safe to repeat."""
        self._channels.websocket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _check(self, name: str, asked: bool | None) -> None:
        if not asked:
            raise RequestError(f"{self._channels.websocket.operation}: there is no {name}: request it with "
                               f"{name}=True")


def _status(content: bytes) -> Status | None:
    """The Status in `content`; None for anything else. A Status from a kubelet has no `kind`."""
    try:
        found = decoded(content, Status)
    except DECODE_FAILURES:
        return None
    return found if found.status in ("Success", "Failure") else None


def _is_whole(content: bytes) -> bool:
    """Whether no further bytes of a status are needed, because the bytes are complete, are not the beginning of a
    status, or are too many. A status may come in several messages."""
    if len(content) > _LONGEST_STATUS:
        return True
    begin, end = content.lstrip()[:1], content.rstrip()[-1:]
    if begin != b"{":
        return bool(begin)
    return end == b"}" and is_json(content)
