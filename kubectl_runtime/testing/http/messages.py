"""HTTP/1.1 messages: `Reader` takes requests from a socket, `head`, `whole_head` and `chunk` make the bytes of answers.

What is malformed is answered as Go's server answers it: a short plain-text 400 and the end of the connection. A body
above the limit is read to its end (up to a bound) and left out, so that the client hears the 413 instead of a reset.
"""

from __future__ import annotations

import socket
from datetime import datetime
from email.utils import format_datetime
from http import HTTPStatus
from urllib.parse import parse_qsl

from kubectl_runtime.testing.apiserver.body import MAX_BODY
from kubectl_runtime.testing.apiserver.wire import HttpRequest, HttpResponse

MAX_HEAD = 1 << 20
MAX_DISCARDED = 64 << 20  # bytes of a body that is too large that are read to keep the connection in order
IDLE_TIMEOUT = 90.0  # seconds between requests
READ_TIMEOUT = 32.0  # seconds without a byte within a request
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "CONNECT", "TRACE"})


class BadMessage(Exception):
    """A request that is no HTTP; the connection ends after the answer."""

    def __init__(self, status: str = "400 Bad Request") -> None:
        super().__init__(status)
        self.status = status

    def answer(self) -> bytes:
        """What Go's server says."""
        return (f"HTTP/1.1 {self.status}\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n"
                f"{self.status}").encode()


class Reader:
    """Requests from one connection."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._buffer = bytearray()
        self.keep_alive = True

    def next(self) -> HttpRequest | None:
        """The next request, None if the client is done; raises BadMessage, OSError."""
        head = self._head()
        if head is None:
            return None
        lines = head.split(b"\r\n")
        try:
            method, target, version = lines[0].decode("ascii").split(" ")
        except ValueError:
            raise BadMessage from None
        if not version.startswith("HTTP/"):
            raise BadMessage
        if version not in ("HTTP/1.1", "HTTP/1.0"):
            raise BadMessage("505 HTTP Version Not Supported: unsupported protocol version")
        if not method.isalpha() or not (target.startswith("/") or target == "*" or "://" in target):
            raise BadMessage
        headers = _headers(lines[1:])
        if version == "HTTP/1.1" and "host" not in headers:
            raise BadMessage("400 Bad Request: missing required Host header")
        connection = headers.get("connection", "").lower()
        self.keep_alive = "close" not in connection if version == "HTTP/1.1" else "keep-alive" in connection
        body = self._body(headers)
        path, _, query = target.partition("?")
        return HttpRequest(method, path, parse_qsl(query, keep_blank_values=True) if query else [], headers, body)

    def _head(self) -> bytes | None:
        self._socket.settimeout(IDLE_TIMEOUT)
        while True:
            end = self._buffer.find(b"\r\n\r\n")
            if end >= 0:
                head = bytes(self._buffer[:end])
                del self._buffer[:end + 4]
                return head
            if len(self._buffer) > MAX_HEAD:
                raise BadMessage("431 Request Header Fields Too Large")
            if not self._more():
                if self._buffer.strip():
                    raise BadMessage
                return None
            self._socket.settimeout(READ_TIMEOUT)

    def _more(self) -> bool:
        try:
            data = self._socket.recv(1 << 16)
        except TimeoutError:
            return False
        self._buffer += data
        return bool(data)

    def _body(self, headers: dict[str, str]) -> bytes:
        encoding = headers.get("transfer-encoding", "").lower()
        if encoding:
            if encoding != "chunked":
                raise BadMessage("501 Not Implemented: unsupported transfer encoding")
            self._continue(headers)
            return self._chunked()
        text = headers.get("content-length", "0")
        if not (text.isascii() and text.isdigit()):
            raise BadMessage
        length = int(text)
        if length:
            self._continue(headers)
        return self._limited(length)

    def _continue(self, headers: dict[str, str]) -> None:
        if headers.get("expect", "").lower() == "100-continue" and not self._buffer:
            self._socket.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")

    def _limited(self, length: int) -> bytes:
        """A body of that length; of one that is too large the first bytes, just enough to be too large for the core."""
        if length <= MAX_BODY:
            return self._exactly(length)
        kept = self._exactly(MAX_BODY + 1)
        self._discard(length - len(kept))
        return kept

    def _exactly(self, length: int) -> bytes:
        while len(self._buffer) < length:
            if not self._more():
                raise BadMessage  # the body is shorter than announced
        data = bytes(self._buffer[:length])
        del self._buffer[:length]
        return data

    def _discard(self, length: int) -> None:
        self.keep_alive = self.keep_alive and length <= MAX_DISCARDED
        length = min(length, MAX_DISCARDED)
        while length > 0:
            step = min(length, 1 << 16)
            self._exactly(step)
            length -= step

    def _line(self) -> bytes:
        while (end := self._buffer.find(b"\r\n")) < 0:
            if len(self._buffer) > MAX_HEAD or not self._more():
                raise BadMessage
        line = bytes(self._buffer[:end])
        del self._buffer[:end + 2]
        return line

    def _chunked(self) -> bytes:
        body = bytearray()
        discarded = 0
        while True:
            try:
                size = int(self._line().partition(b";")[0], 16)
            except ValueError:
                raise BadMessage from None
            if size < 0 or size > MAX_DISCARDED or discarded > MAX_DISCARDED:
                raise BadMessage
            data = self._exactly(size)
            if size and self._line():
                raise BadMessage
            if not size:
                while self._line():
                    pass  # trailers
                return bytes(body)
            room = MAX_BODY + 1 - len(body)
            body += data[:room]
            discarded += max(0, size - room)


def _headers(lines: list[bytes]) -> dict[str, str]:
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(b":")
        if not colon or not name or name != name.strip():
            raise BadMessage
        key, text = name.decode("latin-1").lower(), value.strip().decode("utf-8", "replace")
        if key == "content-length" and headers.get(key, text) != text:
            raise BadMessage
        headers[key] = text if key not in headers or key == "content-length" else f"{headers[key]}, {text}"
    return headers


def _reason(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "status code"


def head(response: HttpResponse, now: datetime, extra: list[tuple[str, str]]) -> bytes:
    """Status line and headers, with the empty line."""
    headers = [("Cache-Control", "no-cache, private"), *response.headers,
               ("Date", format_datetime(now.replace(microsecond=0), usegmt=True)), *extra]
    lines = [f"HTTP/1.1 {response.status} {_reason(response.status)}"]
    lines += [f"{name}: {value}" for name, value in headers]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("utf-8")


def whole_head(response: HttpResponse, now: datetime, *, close: bool) -> bytes:
    """The head of an answer whose body is known; `close` announces the end of the connection."""
    extra = [("Content-Length", str(len(response.body)))]
    if close:
        extra.append(("Connection", "close"))
    return head(response, now, extra)


def chunk(data: bytes) -> bytes:
    """One chunk of a chunked answer; an empty one is the last."""
    return b"%x\r\n%s\r\n" % (len(data), data)
