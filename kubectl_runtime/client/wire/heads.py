"""`QuickResponse`: http.client's response, whose head is read in one step.

The e-mail parser with which the standard library reads heads took a sixth of the CPU time of a call, and reading them
line by line another. A head of the usual form (HTTP/1.1, `Name: value` lines, all of it in what arrives first) is taken
from the buffer at once; any other (folded lines, lines without a colon, one that comes in pieces) is read by the
standard library's ways, as it came. The limits are the standard library's.
"""
from __future__ import annotations

import http.client
import re
from http import HTTPStatus
from typing import Any

from urllib3 import HTTPHeaderDict

_MOST_LINES = 100
_is_status = re.compile(r"HTTP/1\.1 ([1-9][0-9]{2})(?<!100)(| [^\r\n]*)").fullmatch
_LINES = re.compile(r"^([^\s:][^:\r\n]*):[ \t]*([^\r\n]*?)[ \t]*\r\n", re.MULTILINE)

Head = tuple[int, str, HTTPHeaderDict]
"""Status, reason, headers."""


class QuickResponse(http.client.HTTPResponse):
    """The response of http.client, whose head is read faster; `headers` (and `msg`) are urllib3's mapping of
    headers."""

    def begin(self) -> None:
        """Read the head. Raises http.client.HTTPException as the base class does."""
        this: Any = self  # http.client's own names for its state are not in its stubs
        if this.headers is not None:
            return
        head = answer_head(this.fp)
        if head is None:
            super().begin()
            this.headers = this.msg = HTTPHeaderDict(this.msg.raw_items())
            return
        status, this.reason, headers = head
        this.version = 11
        this.code = this.status = status
        this.headers = this.msg = headers
        this.chunked = (headers.get("transfer-encoding") or "").lower() == "chunked"
        if this.chunked:
            this.chunk_left = None
        this.will_close = "close" in (headers.get("connection") or "").lower()
        this.length = None if this.chunked else _length(headers.get("content-length"))
        if status in (HTTPStatus.NO_CONTENT, HTTPStatus.NOT_MODIFIED) or status < 200 or this._method == "HEAD":
            this.length = 0
        if not this.will_close and not this.chunked and this.length is None:
            this.will_close = True


def answer_head(file: Any) -> Head | None:
    """The head with which a buffered `file` begins, taken from it; None, and nothing taken, for one that is not of the
    usual form. Blocks until something is there."""
    seen: bytes = file.peek(1)
    end = seen.find(b"\r\n\r\n")
    if end < 0:
        return None
    first, _, rest = seen[:end + 2].decode("latin-1").partition("\r\n")
    status = _is_status(first)
    lines: list[tuple[str, str]] = _LINES.findall(rest)
    if status is None or not len(lines) == rest.count("\n") < _MOST_LINES:
        return None
    headers = HTTPHeaderDict()
    for name, value in lines:
        headers.add(name, value)
    file.read(end + 4)
    return int(status[1]), status[2].strip(), headers


def _length(text: str | None) -> int | None:
    try:
        length = int(text) if text else None
    except ValueError:
        return None
    return length if length is None or length >= 0 else None
