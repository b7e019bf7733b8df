"""Whether and when a failed attempt is retried, and which errors the answers of a server become. Pure functions.

    what happened                              repeatable    any other write
    not connected at all                       retry         retry
    429, 503 with a wait                       retry         retry: the server refused it unread
    429 without a wait                         retry         no: it may be an eviction that a budget forbids
    sent, and no whole answer (lost)           retry         no: the outcome is unknown
    502, 504, 503 without a wait,              retry         no: the outcome is unknown
    500 "etcdserver: request timed out"
    another status, not trusted (TLS),         no            no
    refused by a proxy (4xx), no HTTP
    the deadline passed                        no            no: the outcome is unknown, if it was sent

`Request.retry` says which requests are repeatable: reads, reviews, dry runs, applies, and deletes with a uid. The wait
is `initial * factor ** attempt`, at most `maximum`, minus a random part of up to half (see `Backoff`), and never
shorter than the wait that the server asks for (`Retry-After`, `details.retryAfterSeconds`). There are at most `retries`
retries, and none past the call's deadline.

Messages name the operation (verb, kind, namespace, name), the server as host:port, and the remedy. If a write of a
Secret fails, the message contains only the answer's reason, field names and error types, because the rest of the answer
may quote the content. (Errors of connections are in client/wire/transport_errors.py.)

A write raises OutcomeUnknownError when its outcome, or the outcome of an earlier attempt, is unknown
(`Failure.is_open`). A repeated delete with a uid succeeds when it is answered with 404 (the first attempt deleted the
object), or with a 409 about the uid (the name now belongs to another object).
"""
from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http import HTTPStatus

import msgspec

from kubectl_runtime.core.base.backoff import Backoff
from kubectl_runtime.core.base.errors import (
    ApiError,
    AuthError,
    DiscoveryError,
    KubeError,
    OutcomeUnknownError,
    RequestError,
    RequestTimeout,
    Status,
    StatusCause,
    TransportError,
    WriteTimeout,
    reason_of,
)
from kubectl_runtime.core.base.threads import Duration, seconds
from kubectl_runtime.core.base.wire import decoder_of
from kubectl_runtime.core.codec.jsonbytes import encode_plain
from kubectl_runtime.core.meta.gvk import ApiResource
from kubectl_runtime.core.meta.problems import DECODE_FAILURES
from kubectl_runtime.core.requests.request import Request, Retry
from kubectl_runtime.core.requests.rights import ROLES, bind_of

_REFUSED_UNREAD = frozenset((HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE))
_GATEWAY = frozenset((HTTPStatus.BAD_GATEWAY, HTTPStatus.GATEWAY_TIMEOUT))
_ETCD_TIMED_OUT = "etcdserver: request timed out"
_LONGEST = 4e9
"""Seconds: more than a century. The server asks for a longer wait only by mistake, and no thread can wait longer."""
_JITTER = 0.5


class Failure(msgspec.Struct, frozen=True):
    """How an attempt failed. `code`: the HTTP status, None when no answer came.

    `sent`: a byte of the request may have reached the server. `answered`: a byte of an answer came.
    `permanent`: a retry cannot succeed (the server's certificate is not trusted, the deadline passed).
    `message`: the server's message, where the status alone is ambiguous.
    """

    code: int | None = None
    sent: bool = True
    answered: bool = False
    permanent: bool = False
    retry_after: float | None = None
    message: str = ""

    @property
    def is_open(self) -> bool:
        """Whether the server may have carried out the request, as far as the failure shows."""
        match self.code:
            case None:
                return self.sent
            case HTTPStatus.SERVICE_UNAVAILABLE:
                return self.retry_after is None
            case HTTPStatus.INTERNAL_SERVER_ERROR:
                return _ETCD_TIMED_OUT in self.message
        return self.code in _GATEWAY


_draw = random.random  # needed because the class has a field called random


@dataclass(frozen=True, init=False)
class RetryPolicy:
    """Decides which failures are retried, and after what wait. Immutable; durations are seconds or `timedelta`.

    The default: wait 0.2 s, doubling up to 10 s, and retry at most 8 times.
    `RetryPolicy.never()` retries nothing.

    >>> patient = Client(Config(cluster_url=server.url), retry=RetryPolicy(retries=20, maximum=30))
    >>> patient.close()
    >>> never = Client(Config(cluster_url=server.url), retry=RetryPolicy.never())
    >>> never.close()
    """

    initial: Duration
    factor: float
    maximum: Duration
    retries: int
    random: Callable[[], float] = field(compare=False, repr=False)

    def __init__(self, initial: Duration = 0.2, factor: float = 2.0, maximum: Duration = 10.0, retries: int = 8,
                 random: Callable[[], float] = _draw, *, base: Duration | None = None) -> None:
        """`base` is the name that `initial` had before 0.3. Raises RequestError for numbers out of range."""
        numbers = {"initial": initial if base is None else base, "factor": factor, "maximum": maximum,
                   "retries": retries, "random": random}
        for name, number in numbers.items():
            object.__setattr__(self, name, number)
        if retries < 0 or not seconds(self.initial):
            raise RequestError(f"a RetryPolicy needs retries >= 0 and a first wait > 0, not {retries} and "
                               f"{self.initial}")
        _ = self._backoff  # raises for numbers out of range

    @property
    def base(self) -> Duration:
        """`initial`, by the name that it had before 0.3."""
        return self.initial

    @classmethod
    def never(cls) -> RetryPolicy:
        """A policy that retries nothing."""
        return cls(retries=0)

    def next(self, attempt: int, failure: Failure, *, repeatable: bool = True) -> float | None:
        """Seconds to wait after the failed attempt number `attempt` (the first is 0); None means no retry.

        `repeatable`: the server may carry out the call twice without harm, as with a GET or a PUT.
        """
        delay = self._backoff.next(attempt + 1, self) if _may_retry(failure, repeatable) else None
        return None if delay is None else max(delay, failure.retry_after or 0.0)

    @property
    def _backoff(self) -> Backoff:
        return Backoff(self.initial, self.factor, self.maximum, _JITTER, attempts=self.retries + 1)


def _may_retry(failure: Failure, repeatable: bool) -> bool:
    if failure.permanent:
        return False
    if failure.is_open:
        return repeatable
    if failure.code is None:
        return True
    return failure.code in _REFUSED_UNREAD and (repeatable or failure.retry_after is not None)


def retry_after(header: str | None, details: int | None, now: datetime) -> float | None:
    """Seconds that the server asked to wait: its `Retry-After` header (seconds or date), else the value in the Status;
    None if the server asked for no wait.

    The header is ignored if it is invalid, negative, or beyond `_LONGEST`. A date in the past means 0.
    """
    parsed = _parse_header(header.strip(), now) if header else None
    if parsed is None and details is not None and details > 0:
        parsed = details
    return float(parsed) if parsed is not None and parsed <= _LONGEST else None


def _parse_header(text: str, now: datetime) -> float | None:
    if text.isascii() and text.isdigit():
        return float(text) if float(text) <= _LONGEST else None
    from email.utils import parsedate_to_datetime  # slow to import, and servers hardly ever send a date

    try:
        moment = parsedate_to_datetime(text)
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        wait = max(0.0, (moment - now).total_seconds())
    except (ValueError, TypeError, IndexError, OverflowError):  # a part is not a number, or too large for a date
        return None
    return wait if wait <= _LONGEST else None


_PHRASES = {status.value: status.phrase for status in HTTPStatus}
_TELLING_NAMES_ONLY = frozenset((
    HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT, HTTPStatus.GONE,
    HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.GATEWAY_TIMEOUT))
"""Answers whose message names the object and fields. The message quotes no values, unless an admission policy
has written it."""
_WRITTEN_BY_USERS = r"admission webhook|AdmissionPolicy"
_WRITES = frozenset(("create", "replace", "patch", "apply"))
_UNSERVED = "the server could not find the requested resource"
_LONGEST_TEXT = 1024


class ConnectionFailed(TransportError):
    """A failed connection, with the `Failure` for the retry policy."""

    def __init__(self, message: str, failure: Failure) -> None:
        super().__init__(message, sent=failure.sent)
        self.failure = failure


class UnexpectedAnswer(TransportError):
    """Something other than a Kubernetes API server answered, for example a proxy or a login page.

    >>> issubclass(UnexpectedAnswer, TransportError)
    True
    """


class KindNotServedError(ApiError, DiscoveryError):
    """The server does not serve the kind: an ApiError with code 404 that does not mean a missing object.

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
    """The Status in an answer's body; None when the body is anything else. The Status may lack its kind, as in answers
    of a real API server's timeout filter."""
    try:
        marks = _marks(body)
        is_status = marks.kind == "Status" or (not marks.kind and bytes(marks.status) == b'"Failure"')
        return _status(body) if is_status else None
    except DECODE_FAILURES:
        return None


def error_of(request: Request, code: int, headers: Mapping[str, str], body: bytes, now: datetime,
             origin: str = "the configuration") -> ApiError:
    """The error for an answer with `code` >= 300. `origin`: where the credentials come from."""
    found = None if code < HTTPStatus.BAD_REQUEST else decode_status(body)  # a redirect has no Status in its body
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
                    remedy=_remedy(request, status, code, origin))


def _remedy(request: Request, status: Status, code: int, origin: str) -> str:
    if code == HTTPStatus.UNAUTHORIZED:
        return (f"The server does not accept the credentials of {origin}: log in again, or check that the token or "
                "client certificate belongs to this cluster and has not expired")
    if code == HTTPStatus.PROXY_AUTHENTICATION_REQUIRED:
        return (f"A proxy asks for user and password: put them into its URL (proxy-url of {origin}, HTTP_PROXY), or "
                "bypass it with NO_PROXY")
    if code == HTTPStatus.FORBIDDEN and " cannot " in (status.message or ""):
        return "No Role or ClusterRole that is bound to this user allows it"
    if code == HTTPStatus.FORBIDDEN and " attempting to grant RBAC permissions " in (status.message or ""):
        return f"Grant this user the permissions not currently held, or grant the verb {_granting_verb(request)}"
    return ""


def _granting_verb(request: Request) -> str:
    """The verb that allows a user to write a role or binding without having the role's permissions, and its object."""
    resource = request.resource
    if resource is not None and resource.plural in ROLES:
        return f"escalate on {resource.plural}{'/' + request.name if request.name else ''}"
    bind = bind_of(request)
    return f"bind on {bind.resource}/{bind.name}" if bind is not None else "bind on the role of the binding"


def _is_of_secrets(request: Request) -> bool:
    resource = request.resource
    return resource is not None and resource.kind == "Secret" and not resource.group


def _tells_names_only(status: Status, code: int) -> bool:
    return code in _TELLING_NAMES_ONLY and not re.search(_WRITTEN_BY_USERS, status.message or "")


_QUOTES_NOTHING = (r"illegal base64 data at input byte \d+|cannot unmarshal \w+ into Go struct field [\w.]+ of type "
                   r"[\w\[\].]+|unknown field \"[A-Za-z][A-Za-z.]{0,60}\"|"
                   r"a lowercase RFC 1123 subdomain must consist of[^(]+|a valid config key must consist of[^(]+|"
                   r"Too long: may not be more than \d+ bytes")
"""Parts of an API server's messages that name fields, types and rules, and no value."""


def _without_values(status: Status) -> Status:
    """The server's answer to a write of a Secret, without the values that it may quote."""
    causes = [StatusCause(reason=cause.reason, field=cause.field) for cause in status.causes]
    faults = ", ".join([*(f"{cause.field}: {cause.reason or 'not valid'}" for cause in causes if cause.field),
                        *re.findall(_QUOTES_NOTHING, status.message or "")])
    message = (f"{status.code} {status.reason}{': ' + faults if faults else ''}; the rest of the server's message "
               "is withheld: it may quote the content of the Secret")
    details = None if status.details is None else msgspec.structs.replace(status.details, causes=causes or None)
    return msgspec.structs.replace(status, message=message, details=details)


def unexpected_answer(request: Request, code: int, headers: Mapping[str, str], body: bytes) -> UnexpectedAnswer | None:
    """The error for a successful answer that could not be decoded; it reports that no API server has answered. None if
    the answer looks like JSON, because then the API server itself has sent an invalid body."""
    kind = headers.get("Content-Type") or ""
    is_page = body.lstrip()[:1] == b"<"  # whatever its content type says
    if ("json" in kind.lower() and not is_page) or (not kind and body.lstrip()[:1] in (b"", b"{", b"[")):
        return None
    return no_api_server(request, code, headers, body)


def no_api_server(request: Request, code: int, headers: Mapping[str, str], body: bytes) -> UnexpectedAnswer:
    """The error for an answer that does not come from an API server. Its message quotes nothing that may be
    a Secret."""
    kind = headers.get("Content-Type") or ""
    shown = " ".join(body[:200].decode("utf-8", "replace").split())[:100]
    begins = f"begins with {shown!r}" if shown else "is empty"
    if shown and _is_of_secrets(request):
        begins = f"has {len(body)} bytes, not shown since they may be a Secret's"
    of_kind = f"with content type {kind}" if kind else "without content type"
    return UnexpectedAnswer(f"{request.operation}: no Kubernetes API server answered: HTTP {code} {of_kind}, which "
                            f"{begins}. Is a proxy or a login page in the way?")


def is_web_page(headers: Mapping[str, str]) -> bool:
    """Whether an answer is a web page, which is never an API server's successful answer to a request of this client."""
    return (headers.get("Content-Type") or "").lower().startswith("text/html")


def _made_up(code: int, headers: Mapping[str, str], body: bytes) -> Status:
    return Status(status="Failure", code=code, reason=reason_of(code), message=_message(code, headers, body))


def _message(code: int, headers: Mapping[str, str], body: bytes) -> str:
    phrase = _PHRASES.get(code, "")
    if 300 <= code < 400:
        return (f"HTTP {code} {phrase}: the server redirects to {headers.get('Location', 'nowhere')}; "
                "redirects are not followed: correct the server URL")
    text = body[:64 * _LONGEST_TEXT].decode("utf-8", "replace").strip()
    if text[:200].lower().lstrip().startswith(("<!doctype", "<html", "<head", "<?xml")):
        title = _title(text)
        said = f": {title}" if title else ""
        return f"HTTP {code} {phrase} with a web page{said} (is a proxy or another server in the way?)"
    return text[:_LONGEST_TEXT] if text else f"HTTP {code} {phrase} without a body"


def _title(page: str) -> str:
    """The title of a web page, as one line of at most 200 characters; empty if there is none. One pass over the
    page."""
    tag = re.search("(?i)<title", page)
    begin = page.find(">", tag.end()) + 1 if tag else 0
    end = re.compile("(?i)</title>").search(page, begin) if begin else None
    return " ".join(page[begin:end.start()].split())[:200] if end else ""


def is_unserved(request: Request, status: Status | None) -> bool:
    """Whether a 404 means that the kind is not served, and not that an object is missing. A 404 to a list always means
    this, because every served kind can be listed."""
    if status is None or request.verb in ("list", "watch", "deletecollection"):
        return True
    return status.message == _UNSERVED and not (status.details is not None and status.details.name)


def _unserved(request: Request, resource: ApiResource) -> str:
    kind = f"{resource.full_name} in {resource.api_version}"
    if request.subresource is not None:
        return (f"the server does not serve the subresource {request.subresource!r} of {kind}: does the kind have this "
                "subresource, and does its CRD, if any, declare it?")
    return f"the server does not serve {kind}: is its CRD installed, and are version and plural right?"


def subresource_not_served(request: Request, resource: ApiResource, error: ApiError) -> KindNotServedError:
    """The error for a 404 of a subresource that the kind does not have, as discovery shows."""
    return KindNotServedError(msgspec.structs.replace(error.status, message=_unserved(request, resource)),
                              request.operation)


_uid_in_precondition = re.compile(r"UID in (?:the )?precondition").search
"""Kubernetes has two messages for a failed precondition; both contain these words."""


def failure_of(code: int, headers: Mapping[str, str], body: bytes, now: datetime) -> Failure:
    """The `Failure` of an answer that is an error, for the retry policy."""
    status = decode_status(body)
    details = status.details.retry_after_seconds if status is not None and status.details is not None else None
    return Failure(code=code, answered=True, retry_after=retry_after(headers.get("Retry-After"), details, now),
                   message=(status.message or "") if status is not None else body[:1024].decode("utf-8", "replace"))


def deleted_before(request: Request, code: int, body: bytes) -> bytes | None:
    """The success Status for a repeated `request` whose answer shows that the earlier attempt deleted the object;
    otherwise None."""
    uid = request.deleted_uid if code in (HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT) else ""
    status = decode_status(body) if uid else None
    if status is None:
        return None
    gone = not is_unserved(request, status) if code == HTTPStatus.NOT_FOUND else is_about_the_uid(status)
    details = {"name": request.name, "uid": uid, "kind": request.resource.plural if request.resource else ""}
    return encode_plain({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success",
                         "details": details}) if gone else None


def is_about_the_uid(status: Status) -> bool:
    """Whether a conflict means that the object of this name has another uid than the precondition."""
    return _uid_in_precondition(status.message or "") is not None


def unknown_outcome(request: Request, error: KubeError, failure: Failure | None, *,
                    in_doubt: bool) -> OutcomeUnknownError | None:
    """The error to raise instead of `error` because the outcome of the call is unknown; None if `error` itself is to be
    raised.

    `failure`: the failure of the last answer; None when no answer came. `in_doubt`: the outcome of an earlier attempt
    is unknown.
    """
    if failure is not None:
        # A server gives the following answers without reading the request, so they do not show whether an earlier
        # attempt was carried out.
        unread = failure.code in (HTTPStatus.UNAUTHORIZED, HTTPStatus.TOO_MANY_REQUESTS) or \
            not HTTPStatus.BAD_REQUEST <= (failure.code or 0) < HTTPStatus.INTERNAL_SERVER_ERROR
        is_open = failure.is_open or (in_doubt and unread)
    else:
        is_open = isinstance(error, TransportError | AuthError) and (in_doubt or getattr(error, "sent", False))
    if not is_open or request.is_read:
        return None
    once = "" if request.retry is Retry.SAFE else ", so it was not sent again"
    resource = request.resource
    kind = WriteTimeout if isinstance(error, RequestTimeout) else OutcomeUnknownError
    return kind(
        f"{error}; whether the server has carried it out is not known{once}: {_unknown_remedy(request)}",
        cause=error.with_traceback(None), operation=request.operation, verb=request.verb,
        kind=resource.kind if resource is not None else "", namespace=request.namespace, name=request.name)


def _unknown_remedy(request: Request) -> str:
    if request.resource is None or request.method == "GET":  # no kind is known, or a GET has effects, such as exec
        return "find out what happened before you send it again"
    if request.name:
        return f"read the object before you write again ({request.words('get', request.name)})"
    return f"look at what exists before you write again ({request.words('list')})"
