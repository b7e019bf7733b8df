"""`RequestsCarrier`: the wire of one process with one client certificate; each call goes through one of two adapters.

A prepared request is built directly, not by `Session.prepare_request`, and handed to the adapter's `send`.
"""
from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

import requests
import urllib3
from requests.adapters import BaseAdapter
from requests.cookies import RequestsCookieJar
from requests.models import PreparedRequest, Response
from requests.structures import CaseInsensitiveDict

from kubectl_runtime.client.config.secrets import secret_headers
from kubectl_runtime.client.http.middleware import Answer, Call
from kubectl_runtime.client.http.tls import TlsSource
from kubectl_runtime.client.http.wire_rules import WireRules
from kubectl_runtime.client.wire.adapters import ApiAdapter
from kubectl_runtime.client.wire.bodies import check_coding, whole_body
from kubectl_runtime.client.wire.chunked import FramingError
from kubectl_runtime.client.wire.dialing import Limits
from kubectl_runtime.client.wire.transport_errors import transport_error
from kubectl_runtime.core.base.clock import Clock
from kubectl_runtime.core.base.errors import KubeError, RequestError

STREAM_CONNECTIONS = 16
"""Idle connections that the streams' adapter keeps: only those of watches that were refused ever become idle."""


class RequestsCarrier:
    """As `Carrier` says. Opens no connection before it is used; safe to use from any thread."""

    def __init__(self, rules: WireRules, tls: TlsSource | None, clock: Clock) -> None:
        self._rules = rules
        self._clock = clock
        self._server = urlsplit(rules.config.cluster_url).netloc
        self.calls: BaseAdapter
        self.streams: BaseAdapter
        if rules.mounted is not None:
            self.calls = self.streams = rules.mounted
        else:
            self.calls, self.streams = (
                ApiAdapter(rules.config.cluster_url, size=size, tls=tls, proxy=rules.proxy,
                           server_hostname=rules.config.tls_server_name)
                for size in (rules.connections, STREAM_CONNECTIONS))

    def carry(self, call: Call, connect: float, left: float) -> Answer:
        """As `Carrier`. Raises RequestError for what a layer has put there and HTTP cannot carry."""
        rules, adapter = self._rules, self.streams if call.streaming else self.calls
        limits = Limits(connect, left, streaming=call.streaming, silence=call.read_timeout)
        timeout: Any = limits
        if rules.mounted is not None:  # it may know no other form
            timeout = (connect, call.read_timeout if call.streaming else left)
        arguments = {"stream": True, "timeout": timeout, **rules.arguments}
        try:
            if rules.session is None:
                response = adapter.send(_prepared(call, plain=True), **arguments)
            else:
                response = _sent_as_the_session_says(rules, adapter, _prepared(call, plain=False), arguments)
                if rules.hooks and not rules.through_session:
                    response = self._hooked(response, call, arguments)
            opened = call.streaming and response.status_code < 300
            if opened:
                check_coding(response, call.request)
            body = b"" if opened else whole_body(response, call, self._clock)
            return Answer(response.status_code, response.headers, body, response if opened else None)
        except (requests.RequestException, urllib3.exceptions.HTTPError, FramingError, OSError) as error:
            problem: KubeError = transport_error(error, call.request.operation, self._server, rules.config.origin,
                                                 limits.seconds, rules.proxy, sent=limits.sent)
        except (ValueError, TypeError) as error:
            if rules.session is not None:  # the user's adapter or hook
                raise
            # A layer's work: what the client itself puts there was checked before. Headers are not shown.
            unsendable = isinstance(error, UnicodeError) or "header" in str(error).lower()
            problem = RequestError(f"{call.request.operation}: it cannot be sent as a layer has changed it: "
                                   f"{'a header has characters that cannot be sent' if unsendable else error}")
        except (KeyboardInterrupt, SystemExit) as error:
            raise error.with_traceback(None) from None
        # Not within the handlers, nor with the frames of what they caught: below here headers are plain bytes.
        raise problem

    def _hooked(self, response: Response, call: Call, arguments: dict[str, Any]) -> Response:
        """What the session's hooks make of the response. They may look at its body, whose end requests would not
        check: so it is read before."""
        if not call.streaming:
            response._content = whole_body(response, call, self._clock)
        for hook in self._rules.hooks:  # as requests calls them: each may replace the response
            response = hook(response, **arguments) or response
        return response

    def grow(self, size: int) -> None:
        """Keep at least `size` idle connections for calls from now on."""
        if isinstance(self.calls, ApiAdapter):
            self.calls.grow(size)

    def close(self) -> None:
        """Close idle connections; those in use are closed when their answer has been read. The program closes an
        adapter of its own."""
        if self._rules.mounted is None:
            self.calls.close()
            self.streams.close()


def _sent_as_the_session_says(rules: WireRules, adapter: BaseAdapter, request: PreparedRequest,
                              arguments: dict[str, Any]) -> Response:
    if rules.auth is not None:
        request = rules.auth(request)
        request.headers.update(secret_headers(request.headers))
    if rules.through_session:
        assert rules.session is not None
        request._cookies = RequestsCookieJar()  # type: ignore[attr-defined] # Session.send expects one
        return rules.session.send(request, allow_redirects=False, **arguments)
    return adapter.send(request, **arguments)


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


class _Lines(urllib3.HTTPHeaderDict):
    """Headers of which some have several values, which only urllib3's own mapping can hold."""

    def __repr__(self) -> str:
        return f"<headers {', '.join(self)}>"  # it would make plain texts of secret ones


def _repeated(headers: dict[str, str | tuple[str, ...]]) -> urllib3.HTTPHeaderDict:
    repeated = _Lines()
    for name, value in headers.items():
        for line in value if isinstance(value, tuple) else (value,):
            repeated.add(name, line)
    return repeated
