"""`QuickResponse` and `quick_answer`: http.client's response and urllib3's around it, for less.

The e-mail parser with which the standard library reads heads took a sixth of the CPU time of a call. Heads of the usual
form, `Name: value` lines, are split here; any other (folded lines, lines without a colon, empty names) goes to the
standard parser as it came. The limits are the standard library's.
"""
from __future__ import annotations

import http.client
import io
from http import HTTPStatus
from typing import Any

from urllib3 import HTTPHeaderDict, HTTPResponse
from urllib3.connection import HTTPConnection

_LONGEST_LINE = 65536
_MOST_LINES = 100


class QuickResponse(http.client.HTTPResponse):
    """As its base class, in every attribute."""

    def begin(self) -> None:
        """Read the head. Raises http.client.HTTPException as the base class does."""
        this: Any = self  # http.client's own names for its state are not in its stubs
        if this.headers is not None:
            return
        version, status, reason = this._read_status()
        while status == HTTPStatus.CONTINUE:
            _read_headers(this.fp)
            version, status, reason = this._read_status()
        if version in ("HTTP/1.0", "HTTP/0.9"):
            this.version = 10
        elif version.startswith("HTTP/1."):
            this.version = 11
        else:
            raise http.client.UnknownProtocol(version)
        this.code = this.status = status
        this.reason = reason.strip()
        this.headers = this.msg = headers = _read_headers(this.fp)
        this.chunked = (headers.get("transfer-encoding") or "").lower() == "chunked"
        if this.chunked:
            this.chunk_left = None
        this.will_close = this._check_close()
        this.length = None if this.chunked else _length(headers.get("content-length"))
        if status in (HTTPStatus.NO_CONTENT, HTTPStatus.NOT_MODIFIED) or status < 200 or this._method == "HEAD":
            this.length = 0
        if not this.will_close and not this.chunked and this.length is None:
            this.will_close = True


def quick_answer(connection: Any) -> HTTPResponse:
    """As urllib3's `HTTPConnection.getresponse`, without its second look at the headers, for which the parser's first
    is enough. Blocks until the head is there."""
    try:
        options = connection._response_options
    except AttributeError:  # private, and gone from a urllib3 of another make: its own way is always right
        return HTTPConnection.getresponse(connection)
    if options is None:
        raise http.client.ResponseNotReady
    connection._response_options = None
    connection.sock.settimeout(connection.timeout)
    shutdown = getattr(connection.sock, "shutdown", None)
    answer = http.client.HTTPConnection.getresponse(connection)
    return HTTPResponse(
        body=answer, headers=HTTPHeaderDict(answer.headers.raw_items()),
        status=answer.status, version=answer.version, reason=answer.reason, preload_content=options.preload_content,
        decode_content=options.decode_content, original_response=answer,
        enforce_content_length=options.enforce_content_length, request_method=options.request_method,
        request_url=options.request_url, sock_shutdown=shutdown)


def _read_headers(file: Any) -> http.client.HTTPMessage:
    """The header lines up to the empty one."""
    lines: list[bytes] = []
    usual = True
    while True:
        line: bytes = file.readline(_LONGEST_LINE + 1)
        if len(line) > _LONGEST_LINE:
            raise http.client.LineTooLong("header line")
        if line in (b"\r\n", b"\n", b""):
            break
        if len(lines) >= _MOST_LINES:
            raise http.client.HTTPException(f"got more than {_MOST_LINES} headers")
        usual = usual and line[0] not in b" \t:" and b":" in line
        lines.append(line)
    if not usual:
        return http.client.parse_headers(io.BytesIO(b"".join(lines) + b"\r\n"))
    message = http.client.HTTPMessage()
    keep: Any = message.set_raw
    for line in lines:
        name, _, value = line.decode("latin-1").partition(":")
        keep(name, value.strip(" \t\r\n"))
    return message


def _length(text: str | None) -> int | None:
    try:
        length = int(text) if text else None
    except ValueError:
        return None
    return length if length is None or length >= 0 else None
