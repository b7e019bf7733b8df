"""`ApiTransport`: an embedded server as a `requests` adapter, without sockets and threads, for simulation.

    session.mount("http://", server.transport())

Each request is answered in the caller's thread; what is due by the clock (controllers, compaction) is done before.
The body of a watch never blocks: its `stream()` yields b"" when nothing is ready, and whoever drives the simulation
moves the clock.

The server's fault script applies as on the wire: plans are carried out on the clock, a stall ends with the request's
read timeout, and a broken connection raises what requests and urllib3 raise. (A cut within the framing of a chunk is
one within its data here.)
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import requests
import urllib3
from requests.adapters import BaseAdapter

from kubectl_runtime.testing.apiserver.wire import HttpRequest, HttpResponse, WatchStream, parse_query
from kubectl_runtime.testing.faults import Close, Exchange, Plan, RecordedRequest, Reset, Send, Wait
from kubectl_runtime.testing.http.messages import head, whole_head

if TYPE_CHECKING:
    from kubectl_runtime.testing.server import ApiServer


class ApiTransport(BaseAdapter):
    """See the module. For the thread that runs the simulation; no lock is held while a request is answered."""

    def __init__(self, server: ApiServer) -> None:
        super().__init__()
        self._server = server

    def send(self, request: requests.PreparedRequest, *_: Any, timeout: Any = None, **__: Any) -> requests.Response:
        """Answer a request; of the other arguments that requests gives an adapter none matters here.

        Blocks, on the clock, for delays and at most for the read timeout of a stall. Raises requests.ConnectionError
        and ReadTimeout where a fault breaks the connection or keeps the answer back.
        """
        wanted, server = _read(request), self._server
        line = Line(server, _read_timeout(timeout))
        try:
            line.wait_for(server.faults.connect(), b"")
            entry = line.entry = server.requests.add(wanted)
            exchange = server.faults.begin(wanted) or Exchange(server.clock)
            line.wait_for(exchange.before, b"")
            for effect in exchange.effects:
                effect()
            answer = exchange.answer(exchange.instead or self._handle(wanted))
            server.requests.answered(entry, answer.status)
            line.pause(answer.delay)
            return self._response(request, exchange, answer, line)
        except urllib3.exceptions.ReadTimeoutError as error:
            raise requests.ReadTimeout(error, request=request) from None
        except urllib3.exceptions.ProtocolError as error:
            raise requests.ConnectionError(error, request=request) from None

    def close(self) -> None:
        """Nothing is kept open."""

    def _handle(self, wanted: HttpRequest) -> HttpResponse:
        settle(self._server)
        answer = self._server.core.handle(wanted)
        settle(self._server)
        return answer

    def _response(self, request: requests.PreparedRequest, exchange: Exchange, answer: HttpResponse,
                  line: Line) -> requests.Response:
        headers = urllib3.HTTPHeaderDict(answer.headers)
        now = self._server.clock.now()
        body: WatchBody | PlannedBody
        if answer.stream is not None:
            start = head(answer, now, [])
            rest = line.wait_for(exchange.head(start), start)
            body = WatchBody(self._server, exchange, answer.stream, line, rest)
        else:
            start = whole_head(answer, now, close=False)
            content = b"" if request.method == "HEAD" else answer.body
            headers["Content-Length"] = str(len(answer.body))
            rest = line.wait_for(exchange.whole(start, content), start)
            body = PlannedBody(line, rest, len(content))
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


class Line:
    """The connection of one request: carries out plans on the clock, as far as the client would notice."""

    def __init__(self, server: ApiServer, timeout: float | None) -> None:
        self.entry: RecordedRequest | None = None
        self._server, self._timeout = server, timeout
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
        clock, condition = self._server.clock, threading.Condition()
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
            self._server.requests.answered(self.entry, None, how)


class PlannedBody:
    """A body that comes as a plan says, as the part of urllib3's response that clients use."""

    headers: urllib3.HTTPHeaderDict
    status: int

    def __init__(self, line: Line, plan: Plan, length: int) -> None:
        self._line, self._plan, self._left = line, deque(plan), length

    def stream(self, amt: int = 1 << 16, decode_content: bool | None = None) -> Iterator[bytes]:  # noqa: ARG002
        """The pieces; blocks on the clock. Raises urllib3's ProtocolError and ReadTimeoutError."""
        while self._left > 0:
            data = self._line.carry(self._plan.popleft()) if self._plan else b""
            self._left -= len(data)
            if data:
                yield data

    def read(self, amt: int | None = None, decode_content: bool | None = None) -> bytes:  # noqa: ARG002
        """All that is left."""
        return b"".join(self.stream())

    def shutdown(self) -> None:
        """End the body."""
        self._left = 0

    close = release_conn = shutdown


class WatchBody:
    """The body of a watch, as the part of urllib3's response that clients use."""

    headers: urllib3.HTTPHeaderDict
    status: int

    def __init__(self, server: ApiServer, exchange: Exchange, stream: WatchStream, line: Line, plan: Plan) -> None:
        self._server, self._exchange, self._stream, self._line = server, exchange, stream, line
        self._plan = deque(plan)
        self._due: float | None = None  # when the wait at the front of the plan is over
        self._ended = self._closing = False

    def stream(self, amt: int = 1 << 16, decode_content: bool | None = None) -> Iterator[bytes]:  # noqa: ARG002
        """Chunks as they are ready, b"" when nothing is; ends with the watch."""
        while not self._ended:
            settle(self._server)
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
        step, now = self._plan[0], self._server.clock.monotonic()
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


def settle(server: ApiServer) -> None:
    """Do what is due by the clock."""
    core = server.core
    while (due := core.next_wakeup()) is not None and due <= server.clock.monotonic():
        core.tick()


def _read_timeout(timeout: Any) -> float | None:
    """The read timeout of what requests calls a timeout: a number, a pair, or urllib3's."""
    if isinstance(timeout, urllib3.Timeout):
        timeout = timeout.read_timeout
    elif isinstance(timeout, tuple):
        timeout = timeout[1]
    return float(timeout) if isinstance(timeout, int | float) else None


def _read(request: requests.PreparedRequest) -> HttpRequest:
    parts = urlsplit(request.url or "")
    body: Any = request.body or b""  # bytes and text, or what iterates over them
    if isinstance(body, str):
        body = body.encode()
    if not isinstance(body, bytes):
        body = b"".join(body)
    headers: dict[str, str] = {}
    sent: Any = request.headers  # bytes are allowed, whatever the types say
    for name, value in sent.items():
        text = value.decode() if isinstance(value, bytes) else value
        key = name.lower()
        headers[key] = f"{headers[key]}, {text}" if key in headers else text
    query = parse_query(parts.query)
    return HttpRequest(request.method or "GET", parts.path or "/", query, headers, body)
