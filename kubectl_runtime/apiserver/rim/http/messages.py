"""HTTP/1.1 answers as bytes: heads, chunks, and what is said to a client that speaks no HTTP."""

from __future__ import annotations

from datetime import datetime
from email.utils import format_datetime
from functools import lru_cache
from http import HTTPStatus

from kubectl_runtime.apiserver.wire import HttpResponse

_PLAIN = "Content-Type: text/plain; charset=utf-8\r\n"
# The real server's timeout has its own way of writing: no kind, and a media type that is guessed from the text.
_TIMED_OUT = ('{"metadata":{},"status":"Failure","message":"Timeout: request did not complete within the allotted '
              'timeout","reason":"Timeout","details":{},"code":504}\n')


class BadMessage(Exception):
    """A request that cannot be served; the connection ends after the answer."""

    def __init__(self, status: str = "400 Bad Request", body: str | None = None, headers: str = _PLAIN) -> None:
        super().__init__(status)
        self.status = status
        self._text = status if body is None else body
        self._headers = headers

    def answer(self) -> bytes:
        """What the real server says, in plain text; without a length, as the connection ends with it."""
        return f"HTTP/1.1 {self.status}\r\n{self._headers}Connection: close\r\n\r\n{self._text}".encode()


def unsupported_encoding() -> BadMessage:
    """A Transfer-Encoding other than chunked."""
    return BadMessage("501 Not Implemented", "Unsupported transfer encoding")


def expectation_failed() -> BadMessage:
    """An Expect header that asks for anything but 100-continue."""
    return BadMessage("417 Expectation Failed", "", "Content-Length: 0\r\n")


def timed_out() -> BadMessage:
    """The body did not arrive in time."""
    return BadMessage("504 Gateway Timeout", _TIMED_OUT)


BUFFER = 2048  # bytes that Go's net/http gathers of an answer
_REASONS = {status.value: status.phrase for status in HTTPStatus}


@lru_cache(maxsize=4)
def _date(second: datetime) -> str:
    """The Date header of all answers within a second."""
    return format_datetime(second, usegmt=True)


def head(response: HttpResponse, now: datetime, extra: list[tuple[str, str]]) -> bytes:
    """Status line and headers, with the empty line."""
    caching = [] if response.header("cache-control") else [("Cache-Control", "no-cache, private")]
    headers = [*caching, *response.headers, ("Date", _date(now.replace(microsecond=0))), *extra]
    lines = [f"HTTP/1.1 {response.status} {_REASONS.get(response.status, 'status code')}"]
    lines += [f"{name}: {value}" for name, value in headers]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("utf-8")


def whole_head(response: HttpResponse, now: datetime, *, close: bool) -> bytes:
    """The head of an answer whose body is known; `close` announces the end of the connection."""
    extra = [("Content-Length", str(len(response.body)))]
    if close:
        extra.append(("Connection", "close"))
    return head(response, now, extra)


def whole(response: HttpResponse, now: datetime, *, close: bool, chunks: bool) -> tuple[bytes, bytes]:
    """The head and the body of an answer that is no stream. As Go's server has it, what was compressed goes out as it
    is made, so that its length is known only if it fits into the buffer; else it comes in `chunks`, if the client knows
    them."""
    body = response.body
    if not chunks or len(body) <= BUFFER or not response.header("content-encoding"):
        return whole_head(response, now, close=close), body
    extra = [("Transfer-Encoding", "chunked"), *([("Connection", "close")] if close else [])]
    pieces = [chunk(body[begin:begin + BUFFER]) for begin in range(0, len(body), BUFFER)]
    return head(response, now, extra), b"".join([*pieces, chunk(b"")])


def chunk(data: bytes) -> bytes:
    """One chunk of a chunked answer; an empty one is the last."""
    return b"%x\r\n%s\r\n" % (len(data), data)
