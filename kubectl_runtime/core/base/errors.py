"""The error tree. Everything the library raises on purpose is a `KubeError`.

    KubeError
      ConfigError           no usable cluster configuration; names the files that were tried
      RequestError          the call itself is wrong; nothing was sent (also a ValueError)
        PartialObjectError  `replace` got an object that was read only in part
        WriteBackError      a changed view cannot be merged into the received object
      TransportError        no answer: could not connect, connection lost, time is up
        RequestTimeout      the call's deadline passed
        OutcomeUnknownError a write was sent, and no complete answer says whether the server executed it
          WriteTimeout      because the call's deadline passed (also a RequestTimeout)
      ApiError              the server answered with an error Status
      AuthError             credentials could not be obtained
      DecodeError           an object's content does not fit its type; see `core.meta.problems`
      DiscoveryError        the server does not serve a kind
      MissingExtra          an extra of this library is not installed (also an ImportError)

Messages name the verb, kind, namespace and name, and say what to do. They never contain an object's content or a
credential. Errors can be pickled and copied: class, text and attributes stay, traceback and cause do not.

`Status` is the API server's answer for an error (and for some deletes). `nearest` finds the name that was probably
meant.
"""
from __future__ import annotations

from collections.abc import Iterable
from http import HTTPStatus
from pathlib import Path
from typing import Any

import msgspec


class StatusCause(msgspec.Struct, frozen=True, kw_only=True):
    """One cause of an error: the field at fault, and the reason."""

    reason: str | None = ""
    message: str | None = ""
    field: str | None = ""


class StatusDetails(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The object that the Status is about, and details of the error."""

    name: str | None = ""
    group: str | None = ""
    kind: str | None = ""
    uid: str | None = ""
    causes: list[StatusCause] | None = None
    retry_after_seconds: int | None = None


class StatusMeta(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """List metadata of a Status. The answer to an expired `continue` token has a new token here."""

    resource_version: str | None = ""
    continue_token: str | None = msgspec.field(name="continue", default="")


class Status(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The `Status` object of the API, with the fields that clients use.

    >>> try:
    ...     Api.namespaced(client, ConfigMap, "default").get("absent")
    ... except ApiError as error:
    ...     error.status.reason, error.status.code
    ('NotFound', 404)
    """

    status: str | None = ""
    message: str | None = ""
    reason: str | None = ""
    code: int | None = 0
    details: StatusDetails | None = None
    metadata: StatusMeta | None = None

    @property
    def causes(self) -> list[StatusCause]:
        """The problems of the request, field by field; empty when the server names no fields."""
        return (self.details.causes if self.details else None) or []


_REASONS = {
    400: "BadRequest", 401: "Unauthorized", 403: "Forbidden", 404: "NotFound", 405: "MethodNotAllowed",
    406: "NotAcceptable", 408: "Timeout", 409: "Conflict", 410: "Gone", 413: "RequestEntityTooLarge",
    415: "UnsupportedMediaType", 422: "Invalid", 429: "TooManyRequests", 500: "InternalError",
    503: "ServiceUnavailable", 504: "Timeout",
}


def reason_of(code: int) -> str:
    """Kubernetes's reason for an HTTP status, such as `NotFound` for 404; empty when there is none. kubectl shows the
    reason in brackets."""
    return _REASONS.get(code, "")


class KubeError(Exception):
    """The root of all errors of this library. Exceptions of your own code are not KubeErrors, nor is a TypeError for an
    argument of a wrong type.

    >>> try:
    ...     Api.namespaced(client, ConfigMap, "default").get("absent")
    ... except KubeError as error:
    ...     print(type(error).__name__)
    ApiError
    """

    def __reduce__(self) -> tuple[Any, ...]:
        # By default pickle calls the class with `args`, which here is the text and not the arguments of __init__: the
        # error could not be unpickled, and a multiprocessing pool whose worker raised it would wait forever.
        return _restored, (type(self), self.args), dict(self.__dict__)


def _restored(cls: type[KubeError], args: tuple[Any, ...]) -> KubeError:
    """An error with these `args`; pickle or copy sets its attributes afterwards."""
    return cls.__new__(cls, *args)


class ConfigError(KubeError):
    """A client configuration that cannot work: a wrong kubeconfig field, a CA that is not a certificate, no cluster.

    The text names file, path and field, and shows no credential.

    >>> Config(cluster_url="ftp://example.com")
    Traceback (most recent call last):
        ...
    ConfigError: Config: the server URL must look like https://host:port/path
    """


class AuthError(KubeError):
    """Credentials could not be obtained, for example because an exec plugin failed or a token file cannot be read.

    >>> issubclass(AuthError, KubeError)
    True
    """


class RequestError(KubeError, ValueError):
    """The arguments of a call are wrong; nothing was sent.

    >>> Api.namespaced(client, ConfigMap, "default").get("")
    Traceback (most recent call last):
        ...
    RequestError: ...
    """


class UnknownFieldError(RequestError, TypeError):
    """An object, or a part of an object, was made with a field that its class lacks; the text suggests a similar name.

    >>> ConfigMap(name="a", dta={})
    Traceback (most recent call last):
        ...
    UnknownFieldError: ...
    """


class PartialObjectError(RequestError):
    """The object was read only in part, so it cannot replace the whole object: use patch or apply.

    >>> meta = Api.namespaced(client, ConfigMap, "default").with_metadata_only().get("settings")
    >>> Api.namespaced(client, ConfigMap, "default").replace(meta)
    Traceback (most recent call last):
        ...
    PartialObjectError: ...
    """


class WriteBackError(RequestError):
    """A change to a view cannot be merged into the received object; `path` is the JSON path of the change.

    >>> issubclass(WriteBackError, KubeError)
    True
    """

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(f"{path}: {problem}")
        self.path = path


class TransportError(KubeError):
    """The server did not answer: no connection, a broken connection, or no answer in time. `sent`: whether any byte of
    the request may have reached the server.

    >>> own = Client(Config(cluster_url="http://127.0.0.1:1"), retry=RetryPolicy.never())
    >>> try:
    ...     Api.all(own, ConfigMap).list()
    ... except TransportError as error:
    ...     error.sent
    False
    """

    def __init__(self, message: str, *, sent: bool = True) -> None:
        super().__init__(message)
        self.sent = sent


class RequestTimeout(TransportError):
    """The server did not answer within the call's deadline.

    >>> issubclass(RequestTimeout, TransportError)
    True
    """


class OutcomeUnknownError(TransportError):
    """A write was sent and no complete answer arrived, so the server may or may not have executed it. The connection
    was lost, the deadline passed, or the answer does not say what happened: a 502 or 504, a 503 without Retry-After, or
    etcd's "request timed out".

    The client does not retry such a write, since a retry might execute it twice: read the object before you write
    again. A reconciler should let this error pass: its run is then repeated with backoff, and reads the current state.
    `cause` is the error of the last attempt, and `operation` is the request in words. `verb`, `kind`, `namespace` and
    `name` describe the request; an attribute that does not apply to the request is empty or None.

    >>> issubclass(OutcomeUnknownError, TransportError)
    True
    """

    def __init__(self, message: str, *, cause: KubeError | None = None, operation: str = "", verb: str = "",
                 kind: str = "", namespace: str | None = None, name: str | None = None) -> None:
        super().__init__(message, sent=True)
        self.cause = cause
        self.operation = operation
        self.verb = verb
        self.kind = kind
        self.namespace = namespace
        self.name = name


class WriteTimeout(OutcomeUnknownError, RequestTimeout):
    """The server did not answer a write within the call's deadline, so the outcome of the write is unknown.

    >>> issubclass(WriteTimeout, RequestTimeout)
    True
    """


class MissingExtra(KubeError, ImportError):
    """A feature was used that needs an extra of this library; the error's text says how to install the extra, and
    `extra` is its name. If the extra's package is installed but cannot be imported, the text says why.

    >>> issubclass(MissingExtra, KubeError)
    True
    """

    def __init__(self, what: str, extra: str, package: str = "", failure: ImportError | None = None) -> None:
        """`what`: the feature with a verb, such as `rules in CEL need`. `failure`: the error of importing `package`."""
        text = f"{what} the extra '{extra}': pip install '{_requirement(_ROOT)}[{extra}]'"
        absent = isinstance(failure, ModuleNotFoundError) and (failure.name or "").partition(".")[0] == package
        if failure is not None and not absent:
            text += f". The installed package cannot be imported: {type(failure).__name__}: {failure}"
        super().__init__(text)
        self.extra = extra


class DiscoveryError(KubeError):
    """The server does not serve the requested kind, group or subresource.

    >>> client.discovery.resolve("unicorns")
    Traceback (most recent call last):
        ...
    DiscoveryError: the server does not serve ...
    """


class ApiError(KubeError):
    """The server's answer is an error. `status` is its Status, `operation` the request (`get pods default/a`).

    The server's message may quote a whole object, so the error's text has at most about a kilobyte of the message. If
    the message is cut, the text names the fields at fault; `status.message` is the whole message. `remedy` is advice on
    how to fix the cause, or empty.

    >>> try:
    ...     Api.namespaced(client, ConfigMap, "default").get("absent")
    ... except ApiError as error:
    ...     print(error.is_not_found, error.status.code, error)
    True 404 get configmaps default/absent: ...
    """

    def __init__(self, status: Status, operation: str = "", *, retry_after: float | None = None,
                 remedy: str = "") -> None:
        text = message_of(status)
        said = f"{operation}: {text}" if operation else text
        super().__init__(f"{said}. {remedy}" if remedy else said)
        self.status = status
        self.operation = operation
        self.remedy = remedy
        self.retry_after = retry_after
        """Seconds that the server asked to wait, in `Retry-After` or the Status; None if it asked for no wait."""

    @property
    def code(self) -> int:
        """The HTTP status of the answer; 0 when it is not known."""
        return self.status.code or 0

    @property
    def reason(self) -> str:
        """Kubernetes's reason, such as `NotFound`; empty when the server gave none."""
        return self.status.reason or ""

    @property
    def is_not_found(self) -> bool:
        """Whether the object does not exist, or the kind is not served (the error is then a `KindNotServedError`)."""
        return self._is("NotFound", HTTPStatus.NOT_FOUND)

    @property
    def is_already_exists(self) -> bool:
        """Whether an object of this name exists already. Only the reason counts: a 409 without a reason may also be a
        conflict."""
        return self.reason == "AlreadyExists"

    @property
    def is_conflict(self) -> bool:
        """Whether the object was changed since it was read, or another manager owns an applied field."""
        return self._is("Conflict", HTTPStatus.CONFLICT)

    @property
    def is_forbidden(self) -> bool:
        """Whether the user lacks the permission; the message names user, verb and resource."""
        return self._is("Forbidden", HTTPStatus.FORBIDDEN)

    @property
    def is_unauthorized(self) -> bool:
        """Whether the server does not accept the credentials."""
        return self._is("Unauthorized", HTTPStatus.UNAUTHORIZED)

    @property
    def is_invalid(self) -> bool:
        """Whether the object violates the schema or a rule of its kind; the message names the fields."""
        return self._is("Invalid", HTTPStatus.UNPROCESSABLE_ENTITY)

    @property
    def is_expired(self) -> bool:
        """Whether the resourceVersion or continue token is too old (410): list again."""
        return self.reason in ("Expired", "Gone") or self._is("Expired", HTTPStatus.GONE)

    @property
    def is_too_large_resource_version(self) -> bool:
        """Whether the resourceVersion is newer than this server's latest (after a restore, or on a lagging replica)."""
        # Servers before 1.19 and aggregated servers report this only in the message; client-go looks for the same text.
        told = [self.status.message, *(cause.message for cause in self.status.causes)]
        return any(cause.reason == "ResourceVersionTooLarge" for cause in self.status.causes) or any(
            _TOO_LARGE in (text or "") for text in told)

    def _is(self, reason: str, code: int) -> bool:
        """Compare the Status's reason; compare the code if the reason is absent or not defined by Kubernetes."""
        if self.reason in _KNOWN_REASONS:
            return self.reason == reason
        return self.code == code


def error_behind(error: BaseException | None) -> BaseException | None:
    """The error of the last attempt if `error` is an OutcomeUnknownError; otherwise `error` itself."""
    return error.cause or error if isinstance(error, OutcomeUnknownError) else error


def text_of(error: BaseException) -> str:
    """An exception in one line: the system's message for an OSError; otherwise the exception's text, or its class if it
    has no text."""
    said = error.strerror if isinstance(error, OSError) else None
    return said or " ".join(str(error).split()) or type(error).__name__


def class_named(given: object) -> str:
    """The name of a wrong value in messages: "the class Pod" for a class, "None" for None, otherwise the name of the
    value's class."""
    return f"the class {given.__name__}" if isinstance(given, type) else \
        "None" if given is None else type(given).__name__


_ROOT = Path(__file__).parents[3]
"""The folder that holds the package: `site-packages`, or a clone."""


def _requirement(root: Path) -> str:
    """The argument for `pip install`: the path of the clone that contains the package, or the package's name."""
    return str(root) if (root / "setup.cfg").is_file() and (root / "pyproject.toml").is_file() else "kubectl_runtime"


def message_of(status: Status) -> str:
    """The server's message. A long message is cut, and the fields named by the Status's causes are appended."""
    text = status.message or status.reason or f"HTTP {status.code}"
    if len(text) <= LONGEST_TEXT:
        return text
    fields = list(dict.fromkeys(cause.field for cause in status.causes if cause.field))
    named = ", ".join(fields)[:LONGEST_TEXT // 2]
    kept = text[:LONGEST_TEXT - len(named)]
    return f"{kept}… ({len(text) - len(kept)} more characters{'; fields: ' + named if named else ''})"


LONGEST_TEXT = 1024
"""The maximum length of a server's message in an error. A 422 response to an update may quote both versions of the
object."""

FIELD_CONFLICT = "FieldManagerConflict"
"""The cause's reason if another manager owns an applied field. Unlike after a stale write, a retry does not help."""


def is_lost_race(error: BaseException) -> bool:
    """Whether reading again may help, because the object has changed since it was read. False when another manager owns
    an applied field: a retry would fail in the same way."""
    return isinstance(error, ApiError) and error.is_conflict and all(
        cause.reason != FIELD_CONFLICT for cause in error.status.causes)


def is_lost_test(error: BaseException) -> bool:
    """Like `is_lost_race`, for a JSON patch with `test` operations: servers answer a failed test with Invalid."""
    return is_lost_race(error) or (isinstance(error, ApiError) and error.is_invalid)


_TOO_LARGE = "Too large resource version"
_KNOWN_REASONS = frozenset((
    "Unauthorized", "Forbidden", "NotFound", "AlreadyExists", "Conflict", "Gone", "Invalid", "ServerTimeout",
    "StoreReadError", "Timeout", "TooManyRequests", "BadRequest", "MethodNotAllowed", "NotAcceptable",
    "RequestEntityTooLarge", "UnsupportedMediaType", "InternalError", "Expired", "ServiceUnavailable"))


def nearest(wrong: str, known: Iterable[str]) -> str | None:
    """The name in `known` that is most similar to `wrong`; None when no name is similar.

    `restartPolicy`, `restart_Policy` and `RestartPolicy` match `restart_policy` before any other name.
    """
    import difflib  # imported here because only errors need it

    names = list(known)
    bare = _bare(wrong)
    same = next((name for name in names if _bare(name) == bare), None)
    if same is not None:
        return same
    near = difflib.get_close_matches(wrong, names, n=1) or difflib.get_close_matches(
        bare, [_bare(name) for name in names], n=1)
    return next((name for name in names if near and near[0] in (name, _bare(name))), None)


def did_you_mean(wrong: str, known: Iterable[str]) -> str:
    """` (did you mean 'restart_policy'?)`, to follow the wrong name in a message; empty when no name is similar."""
    found = nearest(wrong, known)
    return f" (did you mean {found!r}?)" if found is not None else ""


def _bare(name: str) -> str:
    return name.replace("_", "").lower()
