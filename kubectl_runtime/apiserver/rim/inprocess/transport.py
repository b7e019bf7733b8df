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

from typing import Any
from urllib.parse import urlsplit
from weakref import WeakSet

import requests
import urllib3
from requests.adapters import BaseAdapter

from kubectl_runtime.apiserver.core import refusal
from kubectl_runtime.apiserver.errors import StatusError
from kubectl_runtime.apiserver.rim.compression import compressed
from kubectl_runtime.apiserver.rim.faults import Exchange, RecordedRequest, Wait
from kubectl_runtime.apiserver.rim.http.messages import head, whole_head
from kubectl_runtime.apiserver.rim.inprocess.transport_bodies import Line, PlannedBody, Service, WatchBody
from kubectl_runtime.apiserver.wire import HttpRequest, HttpResponse, parse_query


class ApiTransport(BaseAdapter):
    """See the module. For the thread that runs the simulation; no lock is held while a request is answered."""

    def __init__(self, service: Service) -> None:
        super().__init__()
        self._service = service
        self._watches: WeakSet[WatchBody] = WeakSet()
        self._late: list[tuple[float, HttpRequest, Exchange, RecordedRequest]] = []  # (when it is handled, …)

    def send(self, request: requests.PreparedRequest, *_: Any, timeout: Any = None, **__: Any) -> requests.Response:
        """Answer a request; of the other arguments that requests gives an adapter none matters here.

        Blocks, on the clock, for delays and at most for the read timeout of a stall. Raises requests.ConnectionError
        and ReadTimeout where a fault breaks the connection or keeps the answer back.
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
        """Nothing is kept open."""

    def end_watches(self, *, broken: bool) -> None:
        """End the watches that are open: in order, or as when the network breaks. The server calls this."""
        for body in list(self._watches):
            body.interrupt(broken=broken)

    def _delay(self, line: Line, wanted: HttpRequest, exchange: Exchange, entry: RecordedRequest) -> None:
        """Let what is to pass before a request pass. A client that gives up meanwhile does not undo the request: the
        server handles it at its time, when nobody listens any more."""
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
        """Do what is due by the clock: late requests, controllers, compaction."""
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
    """The read timeout of what requests calls a timeout: a number, a pair, or urllib3's."""
    if isinstance(timeout, urllib3.Timeout):
        timeout = timeout.read_timeout
    elif isinstance(timeout, tuple):
        timeout = timeout[1]
    return float(timeout) if isinstance(timeout, int | float) else None


def read_request(request: requests.PreparedRequest) -> HttpRequest:
    """A request as the server reads it."""
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
