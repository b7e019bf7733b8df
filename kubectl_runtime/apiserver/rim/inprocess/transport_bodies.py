"""What the client of a simulated transport holds: the line to the server and the body of its answer.

`Line` carries out plans on the clock as far as the client would notice; `PlannedBody` and `WatchBody` are the part of
urllib3's response that clients use.
"""

from __future__ import annotations

import threading
import zlib
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import urllib3

from kubectl_runtime.apiserver.core import ApiCore
from kubectl_runtime.apiserver.rim.faults import (
    Close,
    Exchange,
    Faults,
    Plan,
    RecordedRequest,
    Recording,
    Reset,
    Send,
    Wait,
)
from kubectl_runtime.apiserver.wire import EventStream
from kubectl_runtime.core.base.clock import Clock


class Service(Protocol):
    """The server behind a transport, as `server.ApiServer` is one. Its core may change from one request to the next: a
    server that begins anew has another."""

    @property
    def clock(self) -> Clock: ...

    @property
    def core(self) -> ApiCore: ...

    @property
    def faults(self) -> Faults: ...

    @property
    def requests(self) -> Recording: ...


class Line:
    """The connection of one request: carries out plans on the clock, as far as the client would notice."""

    def __init__(self, service: Service, timeout: float | None) -> None:
        self.entry: RecordedRequest | None = None
        self._service, self._timeout = service, timeout
        self._silent = 0.0  # seconds since the client last heard something

    def wait_for(self, plan: Plan, expected: bytes) -> Plan:
        """Carry out a plan until the expected bytes have been sent; what is left of it."""
        left, steps = len(expected), deque(plan)
        while steps:
            step = steps[0]
            if isinstance(step, Send):
                if left == 0:
                    break
                taken = min(left, len(step.data))
                left -= taken
                steps.popleft()
                if taken < len(step.data):
                    steps.appendleft(Send(step.data[taken:]))
            else:
                if left == 0 and expected:
                    break
                self.carry(steps.popleft())
        return list(steps)

    def carry(self, step: Any) -> bytes:
        """Carry out one step; the bytes that it brings. Raises urllib3's errors."""
        if isinstance(step, Send):
            self._silent = 0.0
            return step.data
        if isinstance(step, Wait):
            self.pause(step.seconds)
            return b""
        if isinstance(step, Reset):
            raise self.broken("reset", ConnectionResetError(104, "Connection reset by peer"))
        if isinstance(step, Close):
            raise self.broken("close", ConnectionAbortedError("the server closed the connection"))
        self.note("stall")
        self.pause(float("inf"))
        return b""

    def pause(self, seconds: float) -> None:
        """Let time pass; raises ReadTimeoutError once the client would have given up."""
        patience = None if self._timeout is None else self._timeout - self._silent
        given_up = patience is not None and seconds >= patience
        self._sleep(patience if given_up else seconds)
        self._silent += seconds
        if given_up:
            # the pool and URL of a real one say nothing here
            raise urllib3.exceptions.ReadTimeoutError(None, "", "Read timed out.")  # type: ignore[arg-type]

    def _sleep(self, seconds: float | None) -> None:
        clock, condition = self._service.clock, threading.Condition()
        if seconds == float("inf"):
            seconds = None  # for ever: a simulated clock tells that nobody will end this
        deadline = None if seconds is None else clock.monotonic() + seconds
        with condition:
            while deadline is None or (left := deadline - clock.monotonic()) > 0:
                clock.wait(condition, None if deadline is None else left)

    def broken(self, how: str, cause: Exception) -> urllib3.exceptions.ProtocolError:
        """The error of a connection that ends this way."""
        self.note(how)
        return urllib3.exceptions.ProtocolError("Connection aborted.", cause)

    def note(self, how: str) -> None:
        """Record how the connection ended."""
        if self.entry is not None:
            self._service.requests.answered(self.entry, None, how)


class PlannedBody:
    """A body that comes as a plan says, as the part of urllib3's response that clients use."""

    headers: urllib3.HTTPHeaderDict
    status: int

    def __init__(self, line: Line, plan: Plan, length: int, *, packed: bool) -> None:
        """`length`: of the body as it is sent. `packed`: it is gzip."""
        self._line, self._plan, self._left = line, deque(plan), length
        self._packed = packed

    def stream(self, amt: int = 1 << 16, decode_content: bool | None = None) -> Iterator[bytes]:
        """The pieces, decompressed unless `decode_content` is false; blocks on the clock. Raises urllib3's
        ProtocolError and ReadTimeoutError."""
        unpack: Callable[[bytes], bytes] = bytes
        if self._packed and decode_content is not False:
            unpack = zlib.decompressobj(16 + zlib.MAX_WBITS).decompress
        while self._left > 0:
            data = self._line.carry(self._plan.popleft()) if self._plan else b""
            self._left -= len(data)
            if piece := unpack(data):
                yield piece
        if self._plan and isinstance(self._plan[-1], Close | Reset):  # each request here has a connection of its own,
            self._line.note("close" if isinstance(self._plan[-1], Close) else "reset")  # so that nobody will miss it
            self._plan.clear()

    def read(self, amt: int | None = None, decode_content: bool | None = None) -> bytes:
        """All that is left."""
        return b"".join(self.stream(decode_content=decode_content))

    def shutdown(self) -> None:
        """End the body."""
        self._left = 0

    close = release_conn = shutdown


class WatchBody:
    """The body of a watch, as the part of urllib3's response that clients use."""

    headers: urllib3.HTTPHeaderDict
    status: int

    def __init__(self, clock: Clock, settle: Callable[[], None], exchange: Exchange, stream: EventStream, line: Line,
                 plan: Plan) -> None:
        self._clock, self._settle = clock, settle
        self._exchange, self._stream, self._line = exchange, stream, line
        self._plan = deque(plan)
        self._due: float | None = None  # when the wait at the front of the plan is over
        self._ended = self._closing = self._broken = False

    def interrupt(self, *, broken: bool) -> None:
        """The server ends the watch, or the network does; a stall is over too."""
        self._plan.clear()
        self._broken = broken
        self._stream.close()

    def stream(self, amt: int = 1 << 16, decode_content: bool | None = None) -> Iterator[bytes]:
        """Chunks as they are ready, b"" when nothing is; ends with the watch."""
        while not self._ended:
            self._settle()
            if self._broken:
                self._ended = True
                raise self._line.broken("", ConnectionResetError(104, "Connection reset by peer"))
            if self._plan:
                yield self._step()
                continue
            if self._closing:
                return
            data = self._stream.poll()
            if data is not None:
                self._plan.extend(self._exchange.data(data))
            elif self._stream.closed:
                self._plan.extend(self._exchange.end(lambda line: line, b""))
                self._closing = True
            else:
                yield b""

    def _step(self) -> bytes:
        """Carry out the next step of the plan if its time has come; never blocks."""
        step, now = self._plan[0], self._clock.monotonic()
        if isinstance(step, Wait):
            self._due = now + step.seconds if self._due is None else self._due
            if now >= self._due:
                self._due = None
                self._plan.popleft()
            return b""
        if isinstance(step, Send | Close | Reset):
            self._plan.popleft()
            return self._line.carry(step)
        self._line.note("stall")
        return b""  # a stall stays at the front for ever

    def shutdown(self) -> None:
        """End the stream."""
        self._ended = True

    def close(self) -> None:
        """The client is done."""
        self._ended = True
        self._stream.close()

    release_conn = close
