"""From answers that are errors to the library's errors. (Those of connections: client/wire/transport_errors.py.)

Messages name the operation (verb, kind, namespace, name), the server as host:port, and the remedy. Of what a server
says to a write of a Secret only the reason, the fields and the kinds of error are kept: the rest may quote the content.
"""
from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from http import HTTPStatus

import msgspec

from kubectl_runtime.client.http.retry import Failure, retry_after
from kubectl_runtime.core.base.building import decoder_of
from kubectl_runtime.core.base.errors import ApiError, DiscoveryError, TransportError
from kubectl_runtime.core.base.status import Status, StatusCause, reason_of
from kubectl_runtime.core.meta.gvk import ApiResource
from kubectl_runtime.core.meta.problems import DECODE_FAILURES
from kubectl_runtime.core.requests.request import Request

_PHRASES = {status.value: status.phrase for status in HTTPStatus}
_TELLING_NAMES_ONLY = frozenset((
    HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT, HTTPStatus.GONE,
    HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.GATEWAY_TIMEOUT))
"""Answers whose message, unless somebody's admission rule wrote it, names the object and fields but quotes nothing."""
_WRITTEN_BY_USERS = r"admission webhook|AdmissionPolicy"
_WRITES = frozenset(("create", "replace", "patch", "apply"))
_UNSERVED = "the server could not find the requested resource"
_LONGEST = 1024


class ConnectionFailed(TransportError):
    """A connection that failed, with what the retry policy must know of it."""

    def __init__(self, message: str, failure: Failure) -> None:
        super().__init__(message, sent=failure.sent)
        self.failure = failure


class UnexpectedAnswer(TransportError):
    """The call was answered, but not by a Kubernetes API server: a proxy's or a login page, say.

    >>> issubclass(UnexpectedAnswer, TransportError)
    True
    """


class KindNotServedError(ApiError, DiscoveryError):
    """The server does not know the kind at all: an ApiError with code 404 that must not be taken for a missing
    object.

    >>> try:
    ...     Api.all(client, ApiResource("example.com", "v1", "Widget", "widgets")).list()
    ... except KindNotServedError as error:
    ...     print(error.status.code)
    404
    """


class _StatusBody(msgspec.Struct):
    kind: str | None = ""
    status: msgspec.Raw = msgspec.Raw()


_marks = decoder_of(_StatusBody)
_status = decoder_of(Status, strict=False)


def decode_status(body: bytes) -> Status | None:
    """The Status in an answer's body; None when the body is something else. The timeout filter of a real API server
    leaves its kind out."""
    try:
        marks = _marks(body)
        is_status = marks.kind == "Status" or (not marks.kind and bytes(marks.status) == b'"Failure"')
        return _status(body) if is_status else None
    except DECODE_FAILURES:
        return None


def error_of(request: Request, code: int, headers: Mapping[str, str], body: bytes, now: datetime,
             origin: str = "the configuration") -> ApiError:
    """The error that an answer with `code` >= 300 is. `origin`: where the credentials come from."""
    found = None if code < HTTPStatus.BAD_REQUEST else decode_status(body)  # a redirect says where to, in its headers
    status = found or _made_up(code, headers, body)
    if not status.code:
        status = msgspec.structs.replace(status, code=code)
    resource = request.resource
    if resource is not None and code == HTTPStatus.NOT_FOUND and is_unserved(request, found):
        return KindNotServedError(msgspec.structs.replace(status, message=_unserved(request, resource)),
                                  request.operation)
    if _is_of_secrets(request) and request.verb in _WRITES and not (found and _tells_names_only(found, code)):
        status = _without_values(status)
    details = status.details.retry_after_seconds if status.details is not None else None
    return ApiError(status, request.operation, retry_after=retry_after(headers.get("Retry-After"), details, now),
                    remedy=_remedy(status, code, origin))


def _remedy(status: Status, code: int, origin: str) -> str:
    if code == HTTPStatus.UNAUTHORIZED:
        return (f"The server does not accept the credentials of {origin}: log in again, or check that the token or "
                "client certificate is of this cluster and has not expired")
    if code == HTTPStatus.PROXY_AUTHENTICATION_REQUIRED:
        return (f"A proxy asks for user and password: put them into its URL (proxy-url of {origin}, HTTP_PROXY), or go "
                "around it by NO_PROXY")
    if code == HTTPStatus.FORBIDDEN and " cannot " in (status.message or ""):
        return "A Role or ClusterRole that allows it, bound to this user, is missing"
    return ""


def _is_of_secrets(request: Request) -> bool:
    resource = request.resource
    return resource is not None and resource.kind == "Secret" and not resource.group


def _tells_names_only(status: Status, code: int) -> bool:
    return code in _TELLING_NAMES_ONLY and not re.search(_WRITTEN_BY_USERS, status.message or "")


def _without_values(status: Status) -> Status:
    """What the server said to a write of a Secret, without the values that it may quote."""
    causes = [StatusCause(reason=cause.reason, field=cause.field) for cause in status.causes]
    faults = ", ".join(f"{cause.field}: {cause.reason or 'not valid'}" for cause in causes if cause.field)
    message = (f"{status.code} {status.reason}{': ' + faults if faults else ''}; the rest of the server's message "
               "is withheld: it may quote the content of the Secret")
    details = None if status.details is None else msgspec.structs.replace(status.details, causes=causes or None)
    return msgspec.structs.replace(status, message=message, details=details)


def unexpected_answer(request: Request, code: int, headers: Mapping[str, str], body: bytes) -> UnexpectedAnswer | None:
    """The error that a good answer is whose body did not decode and is no JSON; None for JSON, which is the server's
    own mistake."""
    kind = headers.get("Content-Type") or ""
    is_page = body.lstrip()[:1] == b"<"  # whatever it says that it is
    if ("json" in kind.lower() and not is_page) or (not kind and body.lstrip()[:1] in (b"", b"{", b"[")):
        return None
    return no_api_server(request, code, headers, body)


def no_api_server(request: Request, code: int, headers: Mapping[str, str], body: bytes) -> UnexpectedAnswer:
    """The error that an answer of somebody else is. Of what may be a Secret nothing is shown."""
    kind = headers.get("Content-Type") or ""
    shown = " ".join(body[:200].decode("utf-8", "replace").split())[:100]
    begins = f"begins with {shown!r}" if shown else "is empty"
    if shown and _is_of_secrets(request):
        begins = f"has {len(body)} bytes, not shown since they may be a Secret's"
    of_kind = f"with content type {kind}" if kind else "without content type"
    return UnexpectedAnswer(f"{request.operation}: no Kubernetes API server answered: HTTP {code} {of_kind}, which "
                            f"{begins}. Is a proxy or a login page in the way?")


def is_web_page(headers: Mapping[str, str]) -> bool:
    """Whether an answer says that it is for people: no API server answers a request of ours so when it succeeds."""
    return (headers.get("Content-Type") or "").lower().startswith("text/html")


def _made_up(code: int, headers: Mapping[str, str], body: bytes) -> Status:
    return Status(status="Failure", code=code, reason=reason_of(code), message=_message(code, headers, body))


def _message(code: int, headers: Mapping[str, str], body: bytes) -> str:
    phrase = _PHRASES.get(code, "")
    if 300 <= code < 400:
        return (f"HTTP {code} {phrase}: the server redirects to {headers.get('Location', 'nowhere')}; "
                "redirects are not followed: correct the server URL")
    text = body[:64 * _LONGEST].decode("utf-8", "replace").strip()
    if text[:200].lower().lstrip().startswith(("<!doctype", "<html", "<head", "<?xml")):
        title = _title(text)
        said = f": {title}" if title else ""
        return f"HTTP {code} {phrase} with a web page{said} (is a proxy or another server in the way?)"
    return text[:_LONGEST] if text else f"HTTP {code} {phrase} without a body"


def _title(page: str) -> str:
    """The title of a web page, in one line of 200 characters; empty if it has none. In one pass over the page."""
    tag = re.search("(?i)<title", page)
    begin = page.find(">", tag.end()) + 1 if tag else 0
    end = re.compile("(?i)</title>").search(page, begin) if begin else None
    return " ".join(page[begin:end.start()].split())[:200] if end else ""


def is_unserved(request: Request, status: Status | None) -> bool:
    """Whether a 404 is about the kind, not about an object: what can be listed exists, even if the list is empty."""
    if status is None or request.verb in ("list", "watch", "deletecollection"):
        return True
    return status.message == _UNSERVED and not (status.details is not None and status.details.name)


def _unserved(request: Request, resource: ApiResource) -> str:
    kind = f"{resource.full_name} in {resource.api_version}"
    if request.subresource is not None:
        return (f"the server does not serve the subresource {request.subresource!r} of {kind}: does the kind have one, "
                "and its CRD, if it has a CRD, declare it?")
    return f"the server does not serve {kind}: is its CRD installed, and the version and plural right?"


def subresource_not_served(request: Request, resource: ApiResource, error: ApiError) -> KindNotServedError:
    """What a 404 for a subresource means when discovery says that the kind has none of this name."""
    return KindNotServedError(msgspec.structs.replace(error.status, message=_unserved(request, resource)),
                              request.operation)
