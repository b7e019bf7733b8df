"""The body of a call's answer, read whole: within the call's deadline, to the end of its content, and up to a size.

    16 MiB     one object, and any error
    2 GiB      anything else, such as a list without `limit`
    512 MiB    of that, what gzip has made more than a hundredfold: lists are compressed some ten times

A body that is longer raises UnexpectedAnswer, since it would be as long the next time.
"""
from __future__ import annotations

import io
from typing import Any

import urllib3
from requests.models import Response

from kubectl_runtime.client.http.failures import UnexpectedAnswer
from kubectl_runtime.client.http.lines import LARGEST_OBJECT
from kubectl_runtime.client.http.middleware import Call
from kubectl_runtime.client.wire.chunked import FramingError
from kubectl_runtime.client.wire.content import Content, UnknownCoding, content_coding, raw_file
from kubectl_runtime.core.base.clock import Clock
from kubectl_runtime.core.requests.request import Request

LARGEST_ANSWER = 2 << 30
LARGEST_EXPANDED = 512 << 20
"""What gzip may expand to, however little it was."""
_EXPANSION = 100
"""How many times as long as it came an answer above that may be."""

_MANY = frozenset(("list", "deletecollection"))
_TEXTS = frozenset(("log", "proxy"))
"""Subresources that are no objects."""
_HTTP_1_1 = 11


def whole_body(response: Response, call: Call, clock: Clock) -> bytes:
    """The answer's body; the connection goes back to its pool, or is closed when the body could not be read to its
    end. One that was read already is given again.

    Of an error whose Content-Encoding is unknown the body says that.
    Raises FramingError for an answer that is cut, TimeoutError after the deadline, UnexpectedAnswer for one that is too
    long or has another unknown Content-Encoding, and what requests and urllib3 raise.
    """
    try:
        check_coding(response, call.request)
        file, given = raw_file(response.raw), vars(response)
        if file is None or given.get("_content") is not False or given.get("_content_consumed"):  # as requests notes it
            return response.content
        return _read(response.raw, file, call, clock, is_error=response.status_code >= 300)
    except UnknownCoding as coding:
        response.close()
        return f"HTTP {response.status_code} with {coding}, which cannot be read".encode()
    except BaseException:
        response.close()
        raise


def check_coding(response: Response, request: Request) -> None:
    """Raises UnexpectedAnswer for a Content-Encoding that cannot be read; for an error, whose status counts more than
    its text, UnknownCoding."""
    try:
        content_coding(response.headers)
    except UnknownCoding as coding:
        if response.status_code >= 300:
            raise
        response.close()
        raise UnexpectedAnswer(f"{request.operation}: the answer has {coding}, which was not asked for and cannot be "
                               "read. Is a proxy in the way?") from None


def _read(raw: urllib3.HTTPResponse, file: io.BufferedReader, call: Call, clock: Clock, *, is_error: bool) -> bytes:
    """The body, read below urllib3, whose own way costs more than the rest of reading an answer."""
    content, pieces, size = Content(raw, file), [], 0
    one_object = is_error or _is_one_object(call.request)
    for piece in content:
        size += len(piece)
        pieces.append(piece)
        if size > LARGEST_OBJECT and size > (limit := _limit(content.received, one_object=one_object)):
            raise UnexpectedAnswer(f"{call.request.operation}: the answer is longer than {limit >> 20} MiB, the most "
                                   f"that is read of {'one object' if one_object else 'one answer'}"
                                   f"{'' if one_object else '; lists come in pages with a limit'}")
        if not content.ended and clock.monotonic() >= call.deadline:
            raise TimeoutError
    if not content.received and _ends_with_the_connection(raw):
        raise FramingError("the answer broke off in its head")
    inner: Any = raw._original_response
    inner.close()
    raw.release_conn()
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def _limit(received: int, *, one_object: bool) -> int:
    """The most bytes of an answer of which `received` have come over the connection."""
    return LARGEST_OBJECT if one_object else max(LARGEST_EXPANDED, min(LARGEST_ANSWER, received * _EXPANSION))


def _is_one_object(request: Request) -> bool:
    return request.resource is not None and request.verb not in _MANY and request.subresource not in _TEXTS


def _ends_with_the_connection(raw: urllib3.HTTPResponse) -> bool:
    """Whether nothing says how long the body is. http.client takes a connection that is cut within the head for the
    head's end; what is left of the head then says no length, and there is no body. (HTTP/1.0 and mocks may do so on
    purpose.)"""
    return raw.version == _HTTP_1_1 and raw.length_remaining is None and not raw.chunked
