"""Parses HTTP/1.1 requests, exactly as strictly as the real server (Go), and encodes answers.

Client errors and their results:

- The client is silent between requests, or stops in a head: the connection ends without an answer (`IDLE_TIMEOUT`,
  `HEAD_TIMEOUT`).
- The client sends an invalid head: `BadMessage`, a short plain-text 400, 417, 431, 501 or 505; the connection ends.
- The client stops within a body: `BadMessage` with the 504 after `BODY_TIMEOUT`; the connection ends.
- The client ends the connection or breaks the framing within a body: the request is served with `broken_body`; then the
  connection ends.
- The client sends a body above the limit: the body is read to its end, up to a bound, and discarded, so that the client
  gets the 413 and not a reset (the real server closes the connection).

The timeouts are in real time, independent of the server's clock: they protect its threads from clients that hang.
"""
from __future__ import annotations

import re
import socket
import time
from datetime import datetime
from email.utils import format_datetime
from functools import lru_cache
from http import HTTPStatus

from kubectl_runtime.apiserver.encoding import MAX_BODY
from kubectl_runtime.apiserver.wire import HttpRequest, HttpResponse, parse_query

_PLAIN = "Content-Type: text/plain; charset=utf-8\r\n"
# The real server writes this Status in an unusual form: without a kind, and with a media type guessed from the text.
_TIMED_OUT = ('{"metadata":{},"status":"Failure","message":"Timeout: request did not complete within the allotted '
              'timeout","reason":"Timeout","details":{},"code":504}\n')


class BadMessage(Exception):
    """A request cannot be served; the connection ends after the answer."""

    def __init__(self, status: str = "400 Bad Request", body: str | None = None, headers: str = _PLAIN) -> None:
        super().__init__(status)
        self.status = status
        self._text = status if body is None else body
        self._headers = headers

    def answer(self) -> bytes:
        """The real server's plain-text answer. The answer has no Content-Length, since the connection ends after it."""
        return f"HTTP/1.1 {self.status}\r\n{self._headers}Connection: close\r\n\r\n{self._text}".encode()


def unsupported_encoding() -> BadMessage:
    """The 501 for a Transfer-Encoding other than chunked."""
    return BadMessage("501 Not Implemented", "Unsupported transfer encoding")


def expectation_failed() -> BadMessage:
    """The 417 for an Expect header other than 100-continue."""
    return BadMessage("417 Expectation Failed", "", "Content-Length: 0\r\n")


def timed_out() -> BadMessage:
    """The 504 for a body that did not arrive in time."""
    return BadMessage("504 Gateway Timeout", _TIMED_OUT)


BUFFER = 2048  # bytes of an answer that Go's net/http buffers before it sends them
_REASONS = {status.value: status.phrase for status in HTTPStatus}


@lru_cache(maxsize=4)
def _date(second: datetime) -> str:
    """The Date header, cached for the answers within a second."""
    return format_datetime(second, usegmt=True)


def head(response: HttpResponse, now: datetime, extra: list[tuple[str, str]]) -> bytes:
    """Status line, headers and the empty line."""
    caching = [] if response.header("cache-control") else [("Cache-Control", "no-cache, private")]
    headers = [*caching, *response.headers, ("Date", _date(now.replace(microsecond=0))), *extra]
    lines = [f"HTTP/1.1 {response.status} {_REASONS.get(response.status, 'status code')}"]
    lines += [f"{name}: {value}" for name, value in headers]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("utf-8")


def whole_head(response: HttpResponse, now: datetime, *, close: bool) -> bytes:
    """The head of an answer with a known body. With `close` it announces the end of the connection."""
    extra = [("Content-Length", str(len(response.body)))]
    if close:
        extra.append(("Connection", "close"))
    return head(response, now, extra)


def whole(response: HttpResponse, now: datetime, *, close: bool, chunks: bool) -> tuple[bytes, bytes]:
    """The head and the body of an answer that is not a stream.

    Go's server sends a compressed body while it compresses, so it knows the length only of a body that fits into the
    buffer. A longer compressed body is therefore sent in chunks here too, if the client accepts `chunks`.
    """
    body = response.body
    if not chunks or len(body) <= BUFFER or not response.header("content-encoding"):
        return whole_head(response, now, close=close), body
    extra = [("Transfer-Encoding", "chunked"), *([("Connection", "close")] if close else [])]
    pieces = [chunk(body[begin:begin + BUFFER]) for begin in range(0, len(body), BUFFER)]
    return head(response, now, extra), b"".join([*pieces, chunk(b"")])


def chunk(data: bytes) -> bytes:
    """One chunk of a chunked answer; an empty chunk ends the answer."""
    return b"%x\r\n%s\r\n" % (len(data), data)


MAX_HEAD = 1 << 20
MAX_DISCARDED = 64 << 20  # bytes of a too large body that are read and discarded to keep the connection usable
MAX_CHUNK_LINE = 4096
MAX_CHUNK_EXCESS = 16 << 10  # bytes of framing beyond what normal chunks need
IDLE_TIMEOUT = 90.0  # seconds between requests
HEAD_TIMEOUT = 32.0  # seconds for a whole head
BODY_TIMEOUT = 60.0  # seconds for a whole body

_END_OF_HEAD = re.compile(rb"\r?\n\r?\n")  # a bare newline also ends a line
_TOKEN = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+"  # RFC 9110: a method or a field name
_REQUEST_LINE = re.compile(rb"(" + _TOKEN + rb") ([^ ]+) HTTP/([0-9])\.([0-9])")
_ABSOLUTE = re.compile(rb"[A-Za-z][A-Za-z0-9+.-]*://[^/?]*")
_CONTROL = re.compile(rb"[\x00-\x20\x7f]")
_NOT_ASCII = re.compile(rb"[\x80-\xff]")
_BAD_ESCAPE = re.compile(rb"%(?![0-9A-Fa-f]{2})")
_NAME = re.compile(_TOKEN)
_BAD_VALUE = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")
_HOST = re.compile(r"[!$%&'()*+,.:;=\[\]_~0-9A-Za-z-]*")
_CHUNK_SIZE = re.compile(rb"[0-9A-Fa-f]*")
_TRAILER = re.compile(_TOKEN + rb":")


RequestLine = tuple[str, str, tuple[int, int]]  # method, target in origin form, version


class BrokenBody(Exception):
    """The body ends too early or is malformed; the argument is the real server's message."""


class Reader:
    """Reads the requests of one connection."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._buffer = bytearray()
        self._after_post = False
        self.keep_alive = True
        self.chunks = True  # whether the client accepts chunked answers (HTTP/1.0 clients do not)

    def next(self) -> HttpRequest | None:
        """The next request, None if the client has closed the connection.

        Raises BadMessage, and OSError if the client is silent for too long.
        """
        found = self._head()
        if found is None:
            return None
        (method, target, version), lines = found
        headers = _headers(lines)
        if version == (1, 1) and "host" not in headers and method != "CONNECT":
            raise BadMessage("400 Bad Request: missing required Host header")
        if _HOST.fullmatch(headers.get("host", "")) is None:
            raise BadMessage("400 Bad Request: malformed Host header")
        wishes = [token.strip() for token in headers.get("connection", "").lower().split(",")]
        self.chunks = version >= (1, 1)
        self.keep_alive = "close" not in wishes if self.chunks else "keep-alive" in wishes
        self._after_post = method == "POST"
        path, _, query = target.partition("?")
        request = HttpRequest(method, path, parse_query(query), headers)
        self._read_body(request, version)
        return request

    def take(self, size: int) -> bytes:
        """The next `size` bytes after the last request, or fewer at the end of the connection.

        Waits without a timeout. Raises OSError.
        """
        self._socket.settimeout(None)
        while len(self._buffer) < size and (data := self._socket.recv(1 << 16)):
            self._buffer += data
        data = bytes(self._buffer[:size])
        del self._buffer[:size]
        return data

    # --- the head -----------------------------------------------------------------------------------------------------

    def _head(self) -> tuple[RequestLine, list[bytes]] | None:
        """The request line and the header lines, None at the end of the connection."""
        if not self._buffer and not self._more(time.monotonic() + IDLE_TIMEOUT):
            return None
        deadline = time.monotonic() + HEAD_TIMEOUT
        if self._after_post:  # old clients send an extra newline after the body of a POST
            start = bytes(self._buffer[:4])
            del self._buffer[:len(start) - len(start.lstrip(b"\r\n"))]
        first: RequestLine | None = None
        while True:
            if first is None and (line_end := self._buffer.find(b"\n")) >= 0:
                # parse at once, so that the answer to an invalid line does not wait for the headers
                first = _request_line(bytes(self._buffer[:line_end]).removesuffix(b"\r"))
            end = _END_OF_HEAD.search(self._buffer)
            if first is not None and end is not None:
                lines = bytes(self._buffer[:end.start()]).split(b"\n")[1:]
                del self._buffer[:end.end()]
                return first, [line.removesuffix(b"\r") for line in lines]
            if len(self._buffer) > MAX_HEAD:
                raise BadMessage("431 Request Header Fields Too Large")
            if not self._more(deadline):
                if self._buffer:
                    raise BadMessage
                return None

    def _more(self, deadline: float) -> bool:
        """Wait for more bytes; False at the end of the connection. Raises TimeoutError."""
        self._socket.settimeout(max(0.001, deadline - time.monotonic()))
        data = self._socket.recv(1 << 16)
        self._buffer += data
        return bool(data)

    # --- the body -----------------------------------------------------------------------------------------------------

    def _read_body(self, request: HttpRequest, version: tuple[int, int]) -> None:
        headers = request.headers
        expected = headers.get("expect", "").lower()
        if expected and expected != "100-continue":
            raise expectation_failed()
        chunked = version >= (1, 1) and "transfer-encoding" in headers  # Transfer-Encoding overrides Content-Length
        if chunked and headers["transfer-encoding"].lower() != "chunked":
            raise unsupported_encoding()
        length = 0 if chunked else _length(headers)
        if not (chunked or length):
            return
        if expected and version >= (1, 1) and not self._buffer:
            self._socket.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        self._deadline = time.monotonic() + BODY_TIMEOUT
        try:
            request.body = self._chunked() if chunked else self._limited(length)
        except BrokenBody as problem:
            request.broken_body = str(problem)
            self.keep_alive = False
        except TimeoutError:
            raise timed_out() from None

    def _limited(self, length: int) -> bytes:
        """Read a body of `length` bytes. If it is too large, return only enough bytes for the core to refuse it."""
        if length <= MAX_BODY:
            return self._exactly(length)
        kept = self._exactly(MAX_BODY + 1)
        self._discard(length - len(kept))
        return kept

    def _exactly(self, length: int) -> bytes:
        while len(self._buffer) < length:
            if not self._more(self._deadline):
                raise BrokenBody("unexpected EOF")
        data = bytes(self._buffer[:length])
        del self._buffer[:length]
        return data

    def _discard(self, length: int) -> None:
        self.keep_alive = self.keep_alive and length <= MAX_DISCARDED
        length = min(length, MAX_DISCARDED)
        while length > 0:
            length -= len(self._exactly(min(length, 1 << 16)))

    def _line(self, too_long: str) -> bytes:
        """A line of a chunked body, including its line end."""
        while (end := self._buffer.find(b"\n")) < 0:
            if len(self._buffer) >= MAX_CHUNK_LINE:
                raise BrokenBody(too_long)
            if not self._more(self._deadline):
                raise BrokenBody("unexpected EOF")
        if end >= MAX_CHUNK_LINE:
            raise BrokenBody(too_long)
        line = bytes(self._buffer[:end + 1])
        del self._buffer[:end + 1]
        return line

    def _chunked(self) -> bytes:
        body = bytearray()
        discarded = excess = 0
        while True:
            line = self._line("header line too long")
            size = _chunk_size(line)
            excess = max(0, excess + len(line) + 2 - 16 - 2 * size)
            if excess > MAX_CHUNK_EXCESS:
                raise BrokenBody("chunked encoding contains too much non-data")
            if not size:
                break
            kept = min(size, MAX_BODY + 1 - len(body))
            body += self._exactly(kept)
            discarded += size - kept
            self._discard(size - kept)
            if discarded > MAX_DISCARDED:  # the last chunk was not read to its end
                self.keep_alive = False
                return bytes(body)
            if self._exactly(2) != b"\r\n":
                raise BrokenBody("malformed chunked encoding")
        self._trailers()
        return bytes(body)

    def _trailers(self) -> None:
        """Read and discard the trailer after the last chunk."""
        long, size = "http: suspiciously long trailer after chunked body", 0
        while line := self._line(long).rstrip(b"\r\n"):
            size += len(line)
            if size > MAX_CHUNK_LINE:
                raise BrokenBody(long)
            if _TRAILER.match(line) is None:
                raise BrokenBody(f'malformed MIME header: missing colon: "{line.decode("ascii", "replace")}"')


def _request_line(line: bytes) -> RequestLine:
    """Parse a request line. Raises BadMessage."""
    match = _REQUEST_LINE.fullmatch(line)
    if match is None:
        raise BadMessage
    method, target, major, minor = match.groups()
    if major != b"1":
        raise BadMessage("505 HTTP Version Not Supported: unsupported protocol version")
    if absolute := _ABSOLUTE.match(target):
        target = target[absolute.end():]
        target = target if target.startswith(b"/") else b"/" + target
    elif not target.startswith(b"/") and target != b"*" and method != b"CONNECT":
        raise BadMessage
    if _CONTROL.search(target) or _BAD_ESCAPE.search(target.partition(b"?")[0]):
        raise BadMessage
    escaped = _NOT_ASCII.sub(lambda byte: b"%%%02X" % byte[0][0], target)
    return method.decode(), escaped.decode(), (int(major), int(minor))


def _headers(lines: list[bytes]) -> dict[str, str]:
    headers: dict[str, str] = {}
    for line in _unfolded(lines):
        name, colon, value = line.partition(b":")
        if not colon or _NAME.fullmatch(name.replace(b" ", b"")) is None or line.startswith((b" ", b"\t")):
            raise BadMessage
        if b" " in name:  # the line is readable, but the name is invalid
            raise BadMessage("400 Bad Request: invalid header name")
        if b"\r" in value:
            raise BadMessage
        if _BAD_VALUE.search(value):
            raise BadMessage("400 Bad Request: invalid header value")
        key, text = name.decode().lower(), value.strip().decode("utf-8", "replace")
        if key in headers and (key == "host" or (key == "content-length" and headers[key] != text)):
            raise BadMessage
        headers[key] = text if key not in headers or key == "content-length" else f"{headers[key]}, {text}"
    return headers


def _unfolded(lines: list[bytes]) -> list[bytes]:
    """The header lines; continuation lines, which start with white space, are joined to the line before."""
    joined: list[bytes] = []
    for line in lines:
        if joined and line.startswith((b" ", b"\t")):
            joined[-1] += b" " + line.strip()
        else:
            joined.append(line)
    return joined


def _length(headers: dict[str, str]) -> int:
    text = headers.get("content-length", "0")
    if not (text.isascii() and text.isdigit()) or len(text) > 19 or int(text) >= 1 << 63:
        raise BadMessage
    return int(text)


def _chunk_size(line: bytes) -> int:
    end = line.find(b"\r")
    if end < 0:
        raise BrokenBody("chunked line ends with bare LF")
    if end != len(line) - 2:
        raise BrokenBody("invalid CR in chunked line")
    text = line[:end].rstrip().partition(b";")[0]
    if not text:
        raise BrokenBody("empty hex number for chunk length")
    if _CHUNK_SIZE.fullmatch(text) is None:
        raise BrokenBody("invalid byte in chunk length")
    if len(text) > 16:
        raise BrokenBody("http chunk length too large")
    return int(text, 16)
