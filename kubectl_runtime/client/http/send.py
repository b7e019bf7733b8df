"""The innermost step of the client: one prepared request through one adapter, and its answer.

A prepared request is built directly, not by `Session.prepare_request`, and handed to the adapter's `send`. The body of
a call is read here, piece by piece, so that a server that trickles cannot hold it past its deadline. The stop token
ends a read that waits, not a write.
"""
from __future__ import annotations

import http.client
import io
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import requests
import urllib3
from requests.models import PreparedRequest, Response
from requests.structures import CaseInsensitiveDict

from kubectl_runtime.client.config.config import UNLIMITED
from kubectl_runtime.client.http.chunked import ChunkedDecoder, FramingError
from kubectl_runtime.client.http.failures import ConnectionFailed, transport_error
from kubectl_runtime.client.http.interrupt import Interrupt
from kubectl_runtime.client.http.middleware import Answer, Call, Send
from kubectl_runtime.client.http.reachability import Reachability
from kubectl_runtime.client.http.retry import Failure
from kubectl_runtime.client.http.session import Adapters, SessionRules
from kubectl_runtime.client.http.streams import raw_file
from kubectl_runtime.core.base.clock import Clock, seconds
from kubectl_runtime.core.base.errors import RequestError, RequestTimeout
from kubectl_runtime.core.base.scope import call_scope

_PIECE = 1 << 18
_HTTP_1_1 = 11
_LEAST = 0.001
"""Seconds; a timeout of zero is an error of its own."""


def exchange(rules: SessionRules, adapters: Callable[[str], Adapters], clock: Clock,
             reachability: Reachability) -> Send:
    """Sends a call as it is, once. `adapters` gives the ones to use for an operation at this moment; `reachability`
    says how long connecting may take."""
    config = rules.config
    server = urlsplit(config.cluster_url).netloc
    connect_timeout = seconds(config.connect_timeout)

    def send(call: Call) -> Answer:
        now = clock.monotonic()
        left = min(call.deadline - now, UNLIMITED)
        if left <= 0:
            raise RequestTimeout(f"{call.request.operation}: its time was up before it could be sent to {server}")
        limit = call.read_timeout if call.streaming else left
        current = adapters(call.request.operation)
        interrupt = _interrupt(call)
        try:
            with interrupt:
                if interrupt.has_ended:
                    raise _given_up(call, interrupt)
                response = rules.send(
                    current.streams if call.streaming else current.calls, _prepared(call, plain=rules.session is None),
                    {"stream": True, "timeout": (max(_LEAST, min(reachability.connect_limit(connect_timeout), left,
                                                                 call.send_by - now)), limit),
                     **current.arguments})
                opened = call.streaming and response.status_code < 300
                body = b"" if opened else _body(response, call, clock, whole=bool(rules.hooks))
        except (requests.RequestException, urllib3.exceptions.HTTPError, OSError) as error:
            if interrupt.stopped:
                raise _given_up(call, interrupt) from None
            raise transport_error(error, call.request.operation, server, config.origin, limit) from None
        except (ValueError, TypeError) as error:
            if rules.session is not None:  # the user's adapter or hook
                raise
            # A layer's work: what the client itself puts there was checked before. Headers are not shown.
            unsendable = isinstance(error, UnicodeError) or "header" in str(error).lower()
            raise RequestError(f"{call.request.operation}: it cannot be sent as a layer has changed it: "
                               f"{'a header is no text that a header can carry' if unsendable else error}") from None
        if interrupt.stopped:  # what looks like an answer may be the beginning of one
            response.close()
            raise _given_up(call, interrupt)
        return Answer(response.status_code, response.headers, body, response if opened else None)

    return send


def _interrupt(call: Call) -> Interrupt:
    if call.request.method == "GET":
        return Interrupt(call.stop)
    scope = call_scope()
    return Interrupt(None if scope is None else scope.cut)


def _given_up(call: Call, interrupt: Interrupt) -> ConnectionFailed:
    text = f"{call.request.operation}: given up, as {interrupt.reason or 'its stop token was set'}"
    if call.request.method != "GET":
        text += "; whether the server has carried it out is not known"
    return ConnectionFailed(text, Failure(permanent=True))


def _prepared(call: Call, *, plain: bool) -> PreparedRequest:
    """The request as requests knows it. `plain`: nobody but urllib3 will look at its headers, so a dict will do."""
    prepared = PreparedRequest()
    prepared.method = call.request.method
    prepared.url = call.url
    prepared.body = body = call.request.body
    if body is not None:
        call.headers["Content-Length"] = str(len(body))
    headers: Any = call.headers
    if any(type(value) is tuple for value in headers.values()):
        headers = _repeated(headers)
    elif not plain:
        headers = CaseInsensitiveDict(headers)
    prepared.headers = headers
    return prepared


def _repeated(headers: dict[str, str | tuple[str, ...]]) -> urllib3.HTTPHeaderDict:
    """Several values for one name, which only urllib3's own mapping can hold."""
    repeated = urllib3.HTTPHeaderDict()
    for name, value in headers.items():
        for line in value if isinstance(value, tuple) else (value,):
            repeated.add(name, line)
    return repeated


def _body(response: Response, call: Call, clock: Clock, *, whole: bool) -> bytes:
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
