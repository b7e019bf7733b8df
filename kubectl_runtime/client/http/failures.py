"""From what went wrong below to the library's errors: answers that are errors, and exceptions of requests and urllib3.

Messages name the operation (verb, kind, namespace, name), the server as host:port, and the remedy. A server's message
about a Secret is withheld where it may quote the content.
"""
from __future__ import annotations

import http.client
import re
from collections.abc import Mapping
from datetime import datetime
from http import HTTPStatus
from typing import Any

import msgspec
import requests
import urllib3

from kubectl_runtime.client.http.retry import Failure, retry_after
from kubectl_runtime.core.base.errors import ApiError, DiscoveryError, RequestTimeout, TransportError
from kubectl_runtime.core.base.status import Status, StatusDetails
from kubectl_runtime.core.meta.gvk import ApiResource
from kubectl_runtime.core.requests.request import Request

_REASONS = {
    400: "BadRequest", 401: "Unauthorized", 403: "Forbidden", 404: "NotFound", 405: "MethodNotAllowed",
    406: "NotAcceptable", 409: "Conflict", 410: "Gone", 413: "RequestEntityTooLarge", 415: "UnsupportedMediaType",
    422: "Invalid",
    429: "TooManyRequests", 500: "InternalError", 503: "ServiceUnavailable", 504: "Timeout",
}
_QUOTING = frozenset((HTTPStatus.BAD_REQUEST, HTTPStatus.UNPROCESSABLE_ENTITY, HTTPStatus.INTERNAL_SERVER_ERROR))
"""Answers whose message may quote what was sent."""
_UNSERVED = "the server could not find the requested resource"
_LONGEST = 1024
_TITLE = re.compile(r"(?is)<title[^>]*>(.*?)</title>")


class ConnectionFailed(TransportError):
    """A connection that failed, with what the retry policy must know of it."""

    def __init__(self, message: str, failure: Failure) -> None:
        super().__init__(message, sent=failure.sent)
        self.failure = failure


class KindNotServedError(ApiError, DiscoveryError):
    """The server does not know the kind at all: an ApiError with code 404 that must not be taken for a missing
    object.
    """


class _StatusBody(msgspec.Struct):
    kind: str = ""


_kind = msgspec.json.Decoder(_StatusBody).decode
_status = msgspec.json.Decoder(Status, strict=False).decode


def decode_status(body: bytes) -> Status | None:
    """The Status in an answer's body; None when it is something else."""
    try:
        return _status(body) if _kind(body).kind == "Status" else None
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None


def error_of(request: Request, code: int, headers: Mapping[str, str], body: bytes, now: datetime) -> ApiError:
    """The error that an answer with `code` >= 300 is."""
    found = decode_status(body)
    status = found or _made_up(code, headers, body)
    if not status.code:
        status = msgspec.structs.replace(status, code=code)
    resource = request.resource
    if resource is not None and code == HTTPStatus.NOT_FOUND and _is_unserved(request, found):
        return KindNotServedError(msgspec.structs.replace(status, message=_unserved(request, resource)),
                                  request.operation)
    if resource is not None and resource.kind == "Secret" and not resource.group and code in _QUOTING:
        status = msgspec.structs.replace(status, message=_withheld(status),
                                         details=_without_causes(status.details))
    details = status.details.retry_after_seconds if status.details is not None else None
    return ApiError(status, request.operation, retry_after=retry_after(headers.get("Retry-After"), details, now))


def _withheld(status: Status) -> str:
    return f"{status.code} {status.reason}; what the server says about a Secret is withheld, it may quote the content"


def _made_up(code: int, headers: Mapping[str, str], body: bytes) -> Status:
    return Status(status="Failure", code=code, reason=_REASONS.get(code, ""), message=_message(code, headers, body))


def _message(code: int, headers: Mapping[str, str], body: bytes) -> str:
    phrase = http.client.responses.get(code, "")
    if 300 <= code < 400:
        return (f"HTTP {code} {phrase}: the server redirects to {headers.get('Location', 'nowhere')}; "
                "redirects are not followed: correct the server URL")
    text = body[:64 * _LONGEST].decode("utf-8", "replace").strip()
    if text[:200].lower().lstrip().startswith(("<!doctype", "<html", "<head", "<?xml")):
        title = _TITLE.search(text)
        said = f": {' '.join(title.group(1).split())[:200]}" if title else ""
        return f"HTTP {code} {phrase} with a web page{said} (is a proxy or another server in the way?)"
    return text[:_LONGEST] if text else f"HTTP {code} {phrase} without a body"


def _is_unserved(request: Request, status: Status | None) -> bool:
    """Whether a 404 is about the kind, not about an object: what can be listed at all is there, be it empty."""
    if status is None or request.verb in ("list", "watch", "deletecollection"):
        return True
    return status.message == _UNSERVED and not (status.details is not None and status.details.name)


def _unserved(request: Request, resource: ApiResource) -> str:
    kind = f"{resource.full_name} in {resource.api_version}"
    subresource = request.path.rpartition("/")[2]
    if request.name and request.verb != "create" and subresource in ("status", "scale") and subresource != request.name:
        return (f"the server does not serve the subresource {subresource!r} of {kind}: does the kind have one, "
                "and its CRD, if it has a CRD, declare it?")
    return f"the server does not serve {kind}: is its CRD installed, and the version and plural right?"


def _without_causes(details: StatusDetails | None) -> StatusDetails | None:
    return None if details is None else msgspec.structs.replace(details, causes=None)


def transport_error(error: Exception, operation: str, server: str, origin: str, limit: float | None) -> TransportError:
    """What an exception of requests or urllib3 means. `server` is host:port, `limit` the seconds that were allowed."""
    inner = _innermost(error)
    said = _text(inner)
    if isinstance(error, requests.exceptions.SSLError):
        return ConnectionFailed(
            f"{operation}: no trusted connection to {server}: {said}. Check the certificate authority and "
            f"tls-server-name of {origin}", Failure(sent=False, permanent=True))
    if isinstance(error, requests.exceptions.ProxyError):
        return ConnectionFailed(f"{operation}: the proxy gives no connection to {server}: {said}. Check the proxy "
                                f"settings (proxy-url of {origin}, HTTPS_PROXY, NO_PROXY)", Failure(sent=False))
    if isinstance(error, requests.exceptions.ConnectTimeout):
        return ConnectionFailed(f"{operation}: cannot connect to {server} in time. Is the address right, and does no "
                                f"firewall drop the packets? It comes from {origin}", Failure(sent=False))
    if isinstance(error, (requests.exceptions.Timeout, urllib3.exceptions.TimeoutError, TimeoutError)):
        within = f" within {limit:.0f} s" if limit is not None else " in time"
        return RequestTimeout(f"{operation}: no answer from {server}{within}")
    if isinstance(inner, (urllib3.exceptions.NewConnectionError, urllib3.exceptions.ClosedPoolError)):
        return ConnectionFailed(f"{operation}: cannot connect to {server} ({said}). Is the API server running there? "
                                f"The address comes from {origin}", Failure(sent=False))
    unread = isinstance(inner, (http.client.RemoteDisconnected, OSError, requests.exceptions.ConnectionError))
    return ConnectionFailed(f"{operation}: the connection to {server} was lost ({said})",
                            Failure(answered=not unread))


def _innermost(error: BaseException) -> BaseException:
    """The exception at the core of what requests and urllib3 wrap around it."""
    while True:
        reason: Any = getattr(error, "reason", None)
        wrapped = reason if isinstance(reason, BaseException) else next(
            (argument for argument in reversed(error.args) if isinstance(argument, BaseException)), None)
        if wrapped is None or isinstance(error, urllib3.exceptions.NewConnectionError):
            return error
        error = wrapped


def _text(error: BaseException) -> str:
    """What an exception says, without the object addresses that urllib3 puts in."""
    if isinstance(error, urllib3.exceptions.NewConnectionError):
        return str(error).rpartition("] ")[2] or str(error)
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return " ".join(str(error).split()) or type(error).__name__
