"""`ApiTransport`: an embedded server as a `requests` adapter, without sockets and threads, for simulation.

    session.mount("http://", server.transport())

Each request is answered in the caller's thread, after the work that is due on the clock (controllers, compaction). The
body of a watch never blocks: its `stream()` yields b"" if nothing is ready, and the simulation moves the clock.

The server's fault script applies as on the wire: plans run on the clock, a stall ends with the request's read timeout,
and a broken connection raises the errors of requests and urllib3. (A cut within a chunk's framing becomes a cut within
the chunk's data.)
"""
from __future__ import annotations

import threading
import zlib
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Protocol
from urllib.parse import urlsplit
from weakref import WeakSet

import requests
import urllib3
from requests.adapters import BaseAdapter

from kubectl_runtime.apiserver.core import ApiCore, refusal
from kubectl_runtime.apiserver.encoding import compressed
from kubectl_runtime.apiserver.errors import StatusError
from kubectl_runtime.apiserver.transport.faults import (
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
from kubectl_runtime.apiserver.transport.http.reader import head, whole_head
from kubectl_runtime.apiserver.wire import EventStream, HttpRequest, HttpResponse, parse_query
from kubectl_runtime.core.base.threads import Clock


class Service(Protocol):
    """The server behind a transport, such as `server.ApiServer`. A fresh restart replaces its core."""

    @property
    def clock(self) -> Clock: ...

    @property
    def core(self) -> ApiCore: ...

    @property
    def faults(self) -> Faults: ...

    @property
    def requests(self) -> Recording: ...


class Line:
    """The connection of one request. It executes plans: waits pass on the server's clock, and a broken connection
    raises the error that a client would get."""

    def __init__(self, service: Service, timeout: float | None) -> None:
        self.entry: RecordedRequest | None = None
        self._service, self._timeout = service, timeout
        self._silent = 0.0  # seconds since the client last received data

    def wait_for(self, plan: Plan, expected: bytes) -> Plan:
        """Execute a plan until the expected bytes have been sent. Returns the rest of the plan."""
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
        """Execute one step. Returns the bytes that it sends. Raises urllib3's errors."""
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
        """Let time pass. Raises ReadTimeoutError at the time when the client's read timeout ends."""
        patience = None if self._timeout is None else self._timeout - self._silent
        given_up = patience is not None and seconds >= patience
        self._sleep(patience if given_up else seconds)
        self._silent += seconds
        if given_up:
            # the pool and URL are not needed
            raise urllib3.exceptions.ReadTimeoutError(None, "", "Read timed out.")  # type: ignore[arg-type]

    def _sleep(self, seconds: float | None) -> None:
        clock, condition = self._service.clock, threading.Condition()
        if seconds == float("inf"):
            seconds = None  # forever; a simulated clock reports that nothing will end this wait
        deadline = None if seconds is None else clock.monotonic() + seconds
        with condition:
            while deadline is None or (left := deadline - clock.monotonic()) > 0:
                clock.wait(condition, None if deadline is None else left)

    def broken(self, how: str, cause: Exception) -> urllib3.exceptions.ProtocolError:
        """Record that the connection ended with `how`, and return the error to raise."""
        self.note(how)
        return urllib3.exceptions.ProtocolError("Connection aborted.", cause)

    def note(self, how: str) -> None:
        """Record how the connection ended."""
        if self.entry is not None:
            self._service.requests.answered(self.entry, None, how)


class PlannedBody:
    """A body that is delivered by a plan, with the methods of urllib3's response that clients use."""

    headers: urllib3.HTTPHeaderDict
    status: int

    def __init__(self, line: Line, plan: Plan, length: int, *, packed: bool) -> None:
        """`length` is the length of the body as sent; `packed` is whether the body is compressed with gzip."""
        self._line, self._plan, self._left = line, deque(plan), length
        self._packed = packed

    def stream(self, amt: int = 1 << 16, decode_content: bool | None = None) -> Iterator[bytes]:
        """Yield the pieces, decompressed unless `decode_content` is false. Blocks on the clock.

        Raises urllib3's ProtocolError and ReadTimeoutError.
        """
        unpack: Callable[[bytes], bytes] = bytes
        if self._packed and decode_content is not False:
            unpack = zlib.decompressobj(16 + zlib.MAX_WBITS).decompress
        while self._left > 0:
            data = self._line.carry(self._plan.popleft()) if self._plan else b""
            self._left -= len(data)
            if piece := unpack(data):
                yield piece
        # The body is complete, and no other request uses the connection, so its end is only recorded.
        if self._plan and isinstance(self._plan[-1], Close | Reset):
            self._line.note("close" if isinstance(self._plan[-1], Close) else "reset")
            self._plan.clear()

    def read(self, amt: int | None = None, decode_content: bool | None = None) -> bytes:
        """The rest of the body."""
        return b"".join(self.stream(decode_content=decode_content))

    def shutdown(self) -> None:
        """End the body."""
        self._left = 0

    close = release_conn = shutdown


class WatchBody:
    """The body of a watch, with the methods of urllib3's response that clients use."""

    headers: urllib3.HTTPHeaderDict
    status: int

    def __init__(self, clock: Clock, settle: Callable[[], None], exchange: Exchange, stream: EventStream, line: Line,
                 plan: Plan) -> None:
        self._clock, self._settle = clock, settle
        self._exchange, self._stream, self._line = exchange, stream, line
        self._plan = deque(plan)
        self._due: float | None = None  # when the wait at the front of the plan ends
        self._ended = self._closing = self._broken = False

    def interrupt(self, *, broken: bool) -> None:
        """End the watch, like a broken network if `broken`, else like a server. This also ends a stall."""
        self._plan.clear()
        self._broken = broken
        self._stream.close()

    def stream(self, amt: int = 1 << 16, decode_content: bool | None = None) -> Iterator[bytes]:
        """Yield each chunk that is ready, or b"" if no chunk is ready. The iterator ends with the watch."""
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
        """Execute the next step of the plan if it is due. Never blocks."""
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
        return b""  # the stall stays at the front of the plan forever

    def shutdown(self) -> None:
        """End the stream."""
        self._ended = True

    def close(self) -> None:
        """End the stream and the watch, because the client is done."""
        self._ended = True
        self._stream.close()

    release_conn = close


class ApiTransport(BaseAdapter):
    """A `requests` adapter for the thread that runs the simulation. It holds no lock while it answers a request."""

    def __init__(self, service: Service) -> None:
        super().__init__()
        self._service = service
        self._watches: WeakSet[WatchBody] = WeakSet()
        self._late: list[tuple[float, HttpRequest, Exchange, RecordedRequest]] = []  # (time of handling, …)

    def send(self, request: requests.PreparedRequest, *_: Any, timeout: Any = None, **__: Any) -> requests.Response:
        """Answer a request; an adapter's other arguments are ignored.

        Blocks on the clock for delays, and for a stall until the read timeout. Raises requests.ConnectionError if a
        fault breaks the connection, and requests.ReadTimeout if a fault holds the answer back for too long.
        """
        wanted, service = read_request(request), self._service
        line = Line(service, _read_timeout(timeout))
        try:
            line.wait_for(service.faults.connect(), b"")
            entry = line.entry = service.requests.add(wanted)
            exchange = service.faults.begin(wanted) or Exchange(service.clock)
            self._delay(line, wanted, exchange, entry)
            answer = compressed(wanted, self._answer(wanted, exchange, entry))
            line.pause(answer.delay)
            return self._response(request, exchange, answer, line)
        except urllib3.exceptions.ReadTimeoutError as error:
            raise requests.ReadTimeout(error, request=request) from None
        except urllib3.exceptions.ProtocolError as error:
            raise requests.ConnectionError(error, request=request) from None

    def close(self) -> None:
        """Does nothing: no connection is kept open."""

    def end_watches(self, *, broken: bool) -> None:
        """End the open watches, like a broken network if `broken`, else normally. The server calls this."""
        for body in list(self._watches):
            body.interrupt(broken=broken)

    def _delay(self, line: Line, wanted: HttpRequest, exchange: Exchange, entry: RecordedRequest) -> None:
        """Let a request's delay pass.

        A client that gives up during the delay does not undo the request: the server still handles it when it is due,
        although no client waits for the answer.
        """
        due = self._service.clock.monotonic() + sum(step.seconds for step in exchange.before if isinstance(step, Wait))
        try:
            line.wait_for(exchange.before, b"")
        except urllib3.exceptions.ReadTimeoutError:
            if not exchange.unhandled:
                self._late.append((due, wanted, exchange, entry))
            raise

    def _answer(self, wanted: HttpRequest, exchange: Exchange, entry: RecordedRequest) -> HttpResponse:
        for effect in exchange.effects:
            effect()
        answer = exchange.answer(exchange.instead or self._handle(wanted))
        self._service.requests.answered(entry, answer.status)
        return answer

    def _handle(self, wanted: HttpRequest) -> HttpResponse:
        self.settle()
        answer = self._service.core.handle(wanted)
        if answer.session is not None:
            answer = refusal(wanted, StatusError(501, "NotImplemented", "a transport without sockets carries no "
                                                 "websocket: start the server, and use server.client()", details={}))
        self.settle()
        return answer

    def settle(self) -> None:
        """Do the work that is due on the clock: late requests, controllers, compaction."""
        core, now = self._service.core, self._service.clock.monotonic()
        due = [late for late in self._late if late[0] <= now]
        self._late = [late for late in self._late if late[0] > now]
        for _, wanted, exchange, entry in due:
            answer = self._answer(wanted, exchange, entry)
            if answer.stream is not None:
                answer.stream.close()
        while (wakeup := core.next_wakeup()) is not None and wakeup <= self._service.clock.monotonic():
            if not core.tick():
                return

    def _response(self, request: requests.PreparedRequest, exchange: Exchange, answer: HttpResponse,
                  line: Line) -> requests.Response:
        headers = urllib3.HTTPHeaderDict(answer.headers)
        now = self._service.clock.now()
        body: WatchBody | PlannedBody
        if answer.stream is not None:
            start = head(answer, now, [])
            rest = line.wait_for(exchange.head(start), start)
            body = WatchBody(self._service.clock, self.settle, exchange, answer.stream, line, rest)
            self._watches.add(body)
        else:
            start = whole_head(answer, now, close=False)
            content = b"" if request.method == "HEAD" else answer.body
            headers["Content-Length"] = str(len(answer.body))
            rest = line.wait_for(exchange.whole(start, content), start)
            body = PlannedBody(line, rest, len(content), packed=answer.header("content-encoding") == "gzip")
        body.headers, body.status = headers, answer.status
        response = requests.Response()
        response.status_code = answer.status
        response.request = request
        response.url = request.url or ""
        response.connection = self  # type: ignore[assignment] # requests' adapters set it, too
        response.raw = body
        response.headers = requests.structures.CaseInsensitiveDict(headers)
        response.encoding = "utf-8"
        return response


def _read_timeout(timeout: Any) -> float | None:
    """The read timeout from requests' `timeout` argument: a number, a pair, or a urllib3.Timeout."""
    if isinstance(timeout, urllib3.Timeout):
        timeout = timeout.read_timeout
    elif isinstance(timeout, tuple):
        timeout = timeout[1]
    return float(timeout) if isinstance(timeout, int | float) else None


def read_request(request: requests.PreparedRequest) -> HttpRequest:
    """Convert a `requests` request to an `HttpRequest`."""
    parts = urlsplit(request.url or "")
    body: Any = request.body or b""  # bytes, a string, or an iterable of bytes
    if isinstance(body, str):
        body = body.encode()
    if not isinstance(body, bytes):
        body = b"".join(body)
    headers: dict[str, str] = {}
    sent: Any = request.headers  # values may be bytes, despite the type hints
    for name, value in sent.items():
        text = value.decode() if isinstance(value, bytes) else value
        key = name.lower()
        headers[key] = f"{headers[key]}, {text}" if key in headers else text
    query = parse_query(parts.query)
    return HttpRequest(request.method or "GET", parts.path or "/", query, headers, body)
