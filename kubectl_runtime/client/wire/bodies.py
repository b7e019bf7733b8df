"""The body of a call's answer, read piece by piece: a server that trickles cannot hold the call past its deadline."""
from __future__ import annotations

import http.client
import io
from typing import Any

import urllib3
from requests.models import Response

from kubectl_runtime.client.http.middleware import Call
from kubectl_runtime.client.wire.chunked import ChunkedDecoder, FramingError
from kubectl_runtime.client.wire.streams import raw_file
from kubectl_runtime.core.base.clock import Clock

_PIECE = 1 << 18
_HTTP_1_1 = 11


def whole_body(response: Response, call: Call, clock: Clock, *, whole: bool) -> bytes:
    """The answer's body; the connection goes back to its pool, or is closed when the body could not be read to its
    end.
    """
    raw = response.raw
    try:
        if whole or not isinstance(raw, urllib3.HTTPResponse):
            return response.content
        if (plain := _plain_body(raw)) is not None:
            return _read_plain(raw, plain, call, clock)
        if raw.chunked and (file := raw_file(raw)) is not None:
            return _read_chunked(raw, file, call, clock)
        pieces = []
        while piece := raw.read1(_PIECE, decode_content=True):
            pieces.append(piece)
            if raw.length_remaining == 0:
                break
            if clock.monotonic() >= call.deadline:
                raise TimeoutError
        if not pieces and _ends_with_the_connection(raw):
            raise urllib3.exceptions.ProtocolError("the answer broke off in its head")
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)
    except BaseException:
        response.close()
        raise


def _plain_body(raw: urllib3.HTTPResponse) -> http.client.HTTPResponse | None:
    """http.client's response below urllib3's, when nothing has to be taken off its body and its length is known."""
    inner = raw._original_response
    if not isinstance(inner, http.client.HTTPResponse) or not inner.length or "Content-Encoding" in raw.headers:
        return None
    return inner


def _read_plain(raw: urllib3.HTTPResponse, inner: http.client.HTTPResponse, call: Call, clock: Clock) -> bytes:
    """The body, read below urllib3, whose own way costs more than the rest of reading an answer."""
    pieces = []
    while inner.length:
        piece = inner.read1(min(_PIECE, inner.length))
        if not piece:
            raise urllib3.exceptions.ProtocolError(f"{inner.length} bytes of the answer are missing")
        pieces.append(piece)
        if inner.length and clock.monotonic() >= call.deadline:
            raise TimeoutError
    inner.close()
    raw.release_conn()
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def _read_chunked(raw: urllib3.HTTPResponse, file: io.BufferedReader, call: Call, clock: Clock) -> bytes:
    """The same for a body in chunks: API servers send whatever is larger than two kilobytes in chunks of that size."""
    decoder, pieces = ChunkedDecoder(), []
    try:
        while not decoder.finished:
            data = file.read1(_PIECE)
            if not data:
                decoder.end()
            pieces.append(decoder.feed(data))
            if not decoder.finished and clock.monotonic() >= call.deadline:
                raise TimeoutError
    except FramingError as error:
        raise urllib3.exceptions.ProtocolError(str(error)) from None
    inner: Any = raw._original_response
    inner.close()
    raw.release_conn()
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def _ends_with_the_connection(raw: urllib3.HTTPResponse) -> bool:
    """Whether nothing says how long the body is. http.client takes a connection that is cut within the head for the
    head's end; what is left of the head then says no length, and there is no body. (HTTP/1.0 and mocks may do so on
    purpose.)"""
    return raw.version == _HTTP_1_1 and raw.length_remaining is None and not raw.chunked
