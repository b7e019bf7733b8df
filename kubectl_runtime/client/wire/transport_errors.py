"""Converts exceptions of requests and urllib3 to the library's errors, which name operation, server and remedy."""
from __future__ import annotations

import http.client
import re
import ssl
from http import HTTPStatus
from typing import Any

import requests
import urllib3

from kubectl_runtime.client.config.proxies import without_password
from kubectl_runtime.client.http.retry import ConnectionFailed, Failure
from kubectl_runtime.client.wire.streams import FramingError
from kubectl_runtime.core.base.errors import RequestTimeout, TransportError, text_of

ENDED = (ssl.SSLEOFError, ssl.SSLZeroReturnError)
"""Exceptions of TLS when the connection has ended; no certificate can cause them."""

_NO_WHOLE_ANSWER = (OSError, FramingError, http.client.RemoteDisconnected, http.client.IncompleteRead,
                    requests.exceptions.ConnectionError, urllib3.exceptions.ProtocolError)
"""Exceptions for an answer that does not come or breaks off, but not for an answer that is not HTTP."""

# A request that requests sent raises requests' exceptions; a request that the carrier sent raises urllib3's.
_NOT_TRUSTED = (requests.exceptions.SSLError, urllib3.exceptions.SSLError)
_BY_A_PROXY = (requests.exceptions.ProxyError, urllib3.exceptions.ProxyError)

_OUT_OF_TIME = frozenset((9, 10))
"""OpenSSL's numbers for a certificate that is not valid yet, or has expired."""


_LONGEST_TEXT = 200
"""The maximum number of characters shown of an exception of http.client, which may quote a line of the answer."""

_tunnel_refused = re.compile(r"Tunnel connection failed: (\d{3})").match
"""http.client's message when a proxy answered CONNECT with anything but 200."""


def transport_error(error: Exception, operation: str, server: str, origin: str, limit: float | None,
                    proxy: str | None = None, *, sent: bool = True) -> TransportError:
    """The error for an exception of requests or urllib3. `server` is host:port, `limit` the seconds that were allowed,
    `proxy` the URL of the proxy, if one is used; its user and password are not shown. `sent`: whether a byte of the
    request may have left, for exceptions that do not show this themselves."""
    inner = _innermost(error)
    said = _text(inner)
    named = f"the proxy {without_password(proxy)}" if proxy else "the proxy"
    reached = f"{server} through {named}" if proxy else server
    ended = isinstance(inner, ENDED)  # only from a user's adapter; the library's adapters raise other exceptions
    if isinstance(error, _NOT_TRUSTED) and not ended:
        return ConnectionFailed(f"{operation}: no trusted connection to {server}: {said}. {_remedy(inner, origin)}",
                                Failure(sent=False, permanent=True))
    if isinstance(error, _BY_A_PROXY) and isinstance(inner, ssl.SSLError) and not ended:
        return ConnectionFailed(f"{operation}: no trusted connection to {named}: {said}. {_proxy_trust(inner)}",
                                Failure(sent=False, permanent=True))
    if isinstance(error, _BY_A_PROXY):
        refused = _tunnel_refused(said)
        code = int(refused.group(1)) if refused is not None else 0
        if isinstance(inner, PermissionError) and inner.errno is None:  # from a SOCKS proxy; the OS would set errno
            code = HTTPStatus.PROXY_AUTHENTICATION_REQUIRED
        return ConnectionFailed(f"{operation}: {named} gives no connection to {server}: {said}. "
                                f"{_proxy_remedy(code, server, origin)}",
                                Failure(sent=False, permanent=0 < code < HTTPStatus.INTERNAL_SERVER_ERROR))
    if isinstance(inner, (urllib3.exceptions.NewConnectionError, urllib3.exceptions.ClosedPoolError)):
        return ConnectionFailed(f"{operation}: cannot connect to {server} ({said}). Is the API server running there? "
                                f"The address comes from {origin}", Failure(sent=False))
    if isinstance(error, (requests.exceptions.ConnectTimeout, urllib3.exceptions.ConnectTimeoutError)):
        return ConnectionFailed(f"{operation}: cannot connect to {reached} in time. Is the address right, and does no "
                                f"firewall drop the packets? It comes from {origin}", Failure(sent=False))
    if isinstance(error, (requests.exceptions.Timeout, urllib3.exceptions.TimeoutError, TimeoutError)):
        within = f" within {limit:.3g} s" if limit is not None else " in time"
        return RequestTimeout(f"{operation}: no answer from {reached}{within}", sent=sent)
    if isinstance(inner, TimeoutError) and inner.errno is None:  # an errno would mean that the OS gave up
        return RequestTimeout(f"{operation}: {reached} did not take the whole request in time", sent=sent)
    unread = isinstance(inner, _NO_WHOLE_ANSWER)
    no_http = isinstance(inner, http.client.HTTPException) and not unread
    return ConnectionFailed(f"{operation}: the connection to {reached} was lost ({said})",
                            Failure(sent=sent, answered=not unread, permanent=no_http))


def _proxy_remedy(code: int, server: str, origin: str) -> str:
    """The remedy for a proxy that gives no connection; `code`: its answer to CONNECT, 0 if there was none."""
    settings = f"proxy-url of {origin}, HTTPS_PROXY"
    if code == HTTPStatus.PROXY_AUTHENTICATION_REQUIRED:
        return f"It asks for user and password: put them into its URL ({settings}), or bypass it with NO_PROXY"
    if 0 < code < HTTPStatus.INTERNAL_SERVER_ERROR:
        return f"It must allow connections to {server}; or use another proxy ({settings}), or bypass it with NO_PROXY"
    return f"Check the proxy settings ({settings}, NO_PROXY)"


def is_about_our_certificate(error: BaseException) -> bool:
    """Whether the server refused the client certificate; servers do so before they read a request."""
    reason = getattr(error, "reason", None) or ""
    return "ALERT" in reason and ("CERTIFICATE" in reason or "UNKNOWN_CA" in reason)


def _remedy(error: BaseException, origin: str) -> str:
    """The remedy for a TLS error on the connection to the server."""
    if getattr(error, "verify_code", 0) in _OUT_OF_TIME:
        return "The server's certificate must be renewed, or the clock of this machine is wrong"
    if is_about_our_certificate(error):
        return f"The server rejects the client certificate of {origin}: it must belong to this cluster and be valid"
    if getattr(error, "reason", None) == "WRONG_VERSION_NUMBER":
        return f"Perhaps the server speaks HTTP without TLS; if so, use http:// in {origin}"
    return f"Check the certificate authority and tls-server-name of {origin}"


def _proxy_trust(error: BaseException) -> str:
    """The remedy for a TLS error on the connection to the proxy."""
    if getattr(error, "verify_code", 0) in _OUT_OF_TIME:
        return "The proxy's certificate must be renewed, or the clock of this machine is wrong"
    if getattr(error, "reason", None) == "WRONG_VERSION_NUMBER":
        return "Perhaps the proxy speaks HTTP without TLS; if so, its URL must begin with http://"
    return "Check the certificate authority of the proxy, and the host in its URL"


def _innermost(error: BaseException) -> BaseException:
    """The exception inside all the wrappers of requests and urllib3."""
    while True:
        reason: Any = getattr(error, "reason", None)
        wrapped = reason if isinstance(reason, BaseException) else next(
            (argument for argument in reversed(error.args) if isinstance(argument, BaseException)), None)
        if wrapped is None or isinstance(error, urllib3.exceptions.NewConnectionError):
            return error
        error = wrapped


def _text(error: BaseException) -> str:
    """The text of an exception, without the object addresses that urllib3 adds."""
    if isinstance(error, urllib3.exceptions.NameResolutionError):
        return str(error).rpartition("] ")[2].removesuffix(")") or str(error)
    if isinstance(error, urllib3.exceptions.NewConnectionError):
        said = str(error).removeprefix(f"{error.conn}: ")
        return said.rpartition("] ")[2] or said
    if isinstance(error, http.client.BadStatusLine) and not isinstance(error, http.client.RemoteDisconnected):
        # The received bytes are not shown, since they may be the body of another answer and hold a Secret.
        tls = ". It looks like TLS: perhaps https:// is right" if str(error).startswith("\x15\x03") else ""
        return f"the answer is not HTTP{tls}"
    said = text_of(error)
    return said[:_LONGEST_TEXT] if isinstance(error, http.client.HTTPException) else said
