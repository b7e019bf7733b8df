"""The error tree. Everything the library raises on purpose is a `KubeError`.

    KubeError
      ConfigError           no usable cluster configuration; names the files that were tried
      RequestError          the call itself is wrong; nothing was sent (also a ValueError)
        PartialObjectError  `replace` of an object of which only a part is held
        WriteBackError      a changed view cannot be merged into the received object
      TransportError        no answer: could not connect, connection lost, time is up
        RequestTimeout      the call's deadline passed
        OutcomeUnknownError a write was sent, and no whole answer says whether it was carried out
          WriteTimeout      because the call's deadline passed (also a RequestTimeout)
      ApiError              the server answered with an error Status
      AuthError             credentials could not be obtained
      DecodeError           an object's content is not what its type says; see `core.meta.problems`
      DiscoveryError        the server does not serve a kind
      MissingExtra          an extra of this library is not installed (also an ImportError)

Messages name the verb, kind, namespace and name, and what to do; never the content of an object or a credential.
Errors are data: they pickle and copy to the same class, text and attributes (without traceback and cause).

`Status`: the API server's own word on what went wrong (or, for some deletes, right).

The name that was probably meant: for errors about names that there are not.
"""
from __future__ import annotations

from collections.abc import Iterable
from http import HTTPStatus
from pathlib import Path
from typing import Any

import msgspec


class StatusCause(msgspec.Struct, frozen=True, kw_only=True):
    """One of several reasons: which field, and why."""

    reason: str | None = ""
    message: str | None = ""
    field: str | None = ""


class StatusDetails(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What the Status is about."""

    name: str | None = ""
    group: str | None = ""
    kind: str | None = ""
    uid: str | None = ""
    causes: list[StatusCause] | None = None
    retry_after_seconds: int | None = None


class StatusMeta(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """List metadata of a Status; an expired `continue` token comes with a new one here."""

    resource_version: str | None = ""
    continue_token: str | None = msgspec.field(name="continue", default="")


class Status(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The `Status` object of the API, as far as clients act on it.

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
        """What was wrong, field by field; empty when the server says nothing of fields."""
        return (self.details.causes if self.details else None) or []


_REASONS = {
    400: "BadRequest", 401: "Unauthorized", 403: "Forbidden", 404: "NotFound", 405: "MethodNotAllowed",
    406: "NotAcceptable", 408: "Timeout", 409: "Conflict", 410: "Gone", 413: "RequestEntityTooLarge",
    415: "UnsupportedMediaType", 422: "Invalid", 429: "TooManyRequests", 500: "InternalError",
    503: "ServiceUnavailable", 504: "Timeout",
}


def reason_of(code: int) -> str:
    """Kubernetes's reason for an HTTP status, which kubectl shows in brackets; empty when there is none."""
    return _REASONS.get(code, "")


class KubeError(Exception):
    """The root of all errors of this library. What your own code raises is not one of them, nor is a TypeError for an
    argument of a wrong type.

    >>> try:
    ...     Api.namespaced(client, ConfigMap, "default").get("absent")
    ... except KubeError as error:
    ...     print(type(error).__name__)
    ApiError
    """

    def __reduce__(self) -> tuple[Any, ...]:
        # Python's own way calls the class with `args`, which here is the text and not what __init__ takes: the error
        # could not be read back, and a multiprocessing pool whose worker raised it would wait for ever.
        return _restored, (type(self), self.args), dict(self.__dict__)


def _restored(cls: type[KubeError], args: tuple[Any, ...]) -> KubeError:
    """An error with these `args`, whose attributes pickle or copy then sets."""
    return cls.__new__(cls, *args)


class ConfigError(KubeError):
    """A configuration of a cluster that cannot work: a wrong field of a kubeconfig, a CA that is not a certificate, no
    cluster at all.

    The text names file, path and field, and shows no credential.

    >>> Config(cluster_url="ftp://example.com")
    Traceback (most recent call last):
        ...
    ConfigError: Config: the server URL must look like https://host:port/path
    """


class AuthError(KubeError):
    """Credentials could not be obtained: an exec plugin failed, a token file cannot be read.

    >>> issubclass(AuthError, KubeError)
    True
    """


class RequestError(KubeError, ValueError):
    """The arguments of a call are wrong; it was not sent.

    >>> Api.namespaced(client, ConfigMap, "default").get("")
    Traceback (most recent call last):
        ...
    RequestError: ...
    """


class UnknownFieldError(RequestError, TypeError):
    """An object or a part of one was made with a field that its class does not have; the text names the nearest.

    >>> ConfigMap(name="a", dta={})
    Traceback (most recent call last):
        ...
    UnknownFieldError: ...
    """


class PartialObjectError(RequestError):
    """Only a part of the object is held, so it cannot replace the whole: use patch or apply.

    >>> meta = Api.namespaced(client, ConfigMap, "default").with_metadata_only().get("settings")
    >>> Api.namespaced(client, ConfigMap, "default").replace(meta)
    Traceback (most recent call last):
        ...
    PartialObjectError: ...
    """


class WriteBackError(RequestError):
    """A change to a view cannot be merged into the object as received; `path` says where.

    >>> issubclass(WriteBackError, KubeError)
    True
    """

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(f"{path}: {problem}")
        self.path = path


class TransportError(KubeError):
    """The server's answer did not come: no connection, a broken one, or none in time. `sent` tells whether any byte of
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
    """The server's answer did not come within the call's deadline.

    >>> issubclass(RequestTimeout, TransportError)
    True
    """


class OutcomeUnknownError(TransportError):
    """A write was sent and no whole answer came, so it may have been carried out or not: the connection was lost, the
    time was up, or the answer was a 502, a 504, a 503 without Retry-After, or etcd's "request timed out".

    The client does not send such a write again, since a second one might do it twice: read the object before you write
    again. In a controller let it pass: the run is repeated with backoff, and sees what is there. `cause` is the error
    of the last attempt, `operation` the request in words; `verb`, `kind`, `namespace` and `name` are the request's,
    empty or None where it has none.

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
    """The answer to a write did not come within the call's deadline, so its outcome is unknown.

    >>> issubclass(WriteTimeout, RequestTimeout)
    True
    """


class MissingExtra(KubeError, ImportError):
    """Something was used that needs an extra of this library; the text says how to install it, `extra` which it is.
    Where the extra's package is installed and cannot be imported, the text says why.

    >>> issubclass(MissingExtra, KubeError)
    True
    """

    def __init__(self, what: str, extra: str, package: str = "", failure: ImportError | None = None) -> None:
        """`what`: with its verb, such as `rules in CEL need`. `failure`: what importing its `package` raised."""
        text = f"{what} the extra '{extra}': pip install '{_requirement(_ROOT)}[{extra}]'"
        absent = isinstance(failure, ModuleNotFoundError) and (failure.name or "").partition(".")[0] == package
        if failure is not None and not absent:
            text += f". What is installed cannot be imported: {type(failure).__name__}: {failure}"
        super().__init__(text)
        self.extra = extra


class DiscoveryError(KubeError):
    """The server does not serve what was asked for.

    >>> client.discovery.resolve("unicorns")
    Traceback (most recent call last):
        ...
    DiscoveryError: the server does not serve ...
    """


class ApiError(KubeError):
    """The server's answer is an error. `status` is what it said, `operation` what was asked (`get pods default/a`).

    The error's text has at most about a kilobyte of the server's message, which may quote a whole object, and the
    fields that are at fault; `status.message` has all of it. `remedy`: what may help, where that is known.

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
        """Seconds the server asked to wait, from `Retry-After` or the Status; None when it did not."""

    @property
    def code(self) -> int:
        """The HTTP status of the answer; 0 when it is not known."""
        return self.status.code or 0

    @property
    def reason(self) -> str:
        """Kubernetes's word for the error, such as `NotFound`; empty when the server gave none."""
        return self.status.reason or ""

    @property
    def is_not_found(self) -> bool:
        """Whether the object does not exist, or the kind: then it is a `KindNotServedError`."""
        return self._is("NotFound", HTTPStatus.NOT_FOUND)

    @property
    def is_already_exists(self) -> bool:
        """Whether an object of this name exists already, by the reason only: a 409 without a reason may as well be a
        conflict."""
        return self.reason == "AlreadyExists"

    @property
    def is_conflict(self) -> bool:
        """Whether the object was changed since it was read, or another manager owns a field that was applied."""
        return self._is("Conflict", HTTPStatus.CONFLICT)

    @property
    def is_forbidden(self) -> bool:
        """Whether the user lacks the right; the message names user, verb and resource."""
        return self._is("Forbidden", HTTPStatus.FORBIDDEN)

    @property
    def is_unauthorized(self) -> bool:
        """Whether the server does not accept the credentials."""
        return self._is("Unauthorized", HTTPStatus.UNAUTHORIZED)

    @property
    def is_invalid(self) -> bool:
        """Whether the object does not fit the schema or a rule of its kind; the message names the fields."""
        return self._is("Invalid", HTTPStatus.UNPROCESSABLE_ENTITY)

    @property
    def is_expired(self) -> bool:
        """Whether the resourceVersion or continue token is too old (410): list again."""
        return self.reason in ("Expired", "Gone") or self._is("Expired", HTTPStatus.GONE)

    @property
    def is_too_large_resource_version(self) -> bool:
        """Whether the resourceVersion is newer than what this server has seen (after a restore, or on a lagging
        replica)."""
        # Servers before 1.19 and aggregated ones say it in words only, as client-go looks for them.
        told = [self.status.message, *(cause.message for cause in self.status.causes)]
        return any(cause.reason == "ResourceVersionTooLarge" for cause in self.status.causes) or any(
            _TOO_LARGE in (text or "") for text in told)

    def _is(self, reason: str, code: int) -> bool:
        """By the Status's reason; by the code when it gives none or one that Kubernetes does not define."""
        if self.reason in _KNOWN_REASONS:
            return self.reason == reason
        return self.code == code


def error_behind(error: BaseException | None) -> BaseException | None:
    """The error of the last attempt, where it was that which left the outcome unknown; else `error` itself."""
    return error.cause or error if isinstance(error, OutcomeUnknownError) else error


def text_of(error: BaseException) -> str:
    """What an exception says, in one line: the system's words for an OSError, or else its text, or else its class."""
    said = error.strerror if isinstance(error, OSError) else None
    return said or " ".join(str(error).split()) or type(error).__name__


def class_named(given: object) -> str:
    """What somebody gave in place of what was expected, in a word: a class's own name, None, or its class."""
    return given.__name__ if isinstance(given, type) else "None" if given is None else type(given).__name__


_ROOT = Path(__file__).parents[3]
"""What holds the package: `site-packages`, or a clone."""


def _requirement(root: Path) -> str:
    """What pip is to install: the path of the clone that the package is in, or else its name."""
    return str(root) if (root / "setup.cfg").is_file() and (root / "pyproject.toml").is_file() else "kubectl_runtime"


def message_of(status: Status) -> str:
    """The server's message; a long one cut, with the fields that its causes name."""
    text = status.message or status.reason or f"HTTP {status.code}"
    if len(text) <= LONGEST_TEXT:
        return text
    fields = list(dict.fromkeys(cause.field for cause in status.causes if cause.field))
    named = ", ".join(fields)[:LONGEST_TEXT // 2]
    kept = text[:LONGEST_TEXT - len(named)]
    return f"{kept}… ({len(text) - len(kept)} more characters{'; fields: ' + named if named else ''})"


LONGEST_TEXT = 1024
"""Characters of a server's message that an error shows. A 422 of an update may quote both versions of the object."""

FIELD_CONFLICT = "FieldManagerConflict"
"""The reason of a cause where an apply met a field of another manager: unlike a stale write, no retry helps."""


def is_lost_race(error: BaseException) -> bool:
    """Whether reading again may help, because the object has changed since it was read. False when another manager
    owns a field that was applied: that would be so the next time as well."""
    return isinstance(error, ApiError) and error.is_conflict and all(
        cause.reason != FIELD_CONFLICT for cause in error.status.causes)


def is_lost_test(error: BaseException) -> bool:
    """The same of a JSON patch with `test` operations: servers answer a failed one as what is invalid."""
    return is_lost_race(error) or (isinstance(error, ApiError) and error.is_invalid)


_TOO_LARGE = "Too large resource version"
_KNOWN_REASONS = frozenset((
    "Unauthorized", "Forbidden", "NotFound", "AlreadyExists", "Conflict", "Gone", "Invalid", "ServerTimeout",
    "StoreReadError", "Timeout", "TooManyRequests", "BadRequest", "MethodNotAllowed", "NotAcceptable",
    "RequestEntityTooLarge", "UnsupportedMediaType", "InternalError", "Expired", "ServiceUnavailable"))


def nearest(wrong: str, known: Iterable[str]) -> str | None:
    """Of the names in `known` the one most like `wrong`; None when none is.

    `restartPolicy`, `restart_Policy` and `RestartPolicy` are `restart_policy`, whatever else may be near.
    """
    import difflib  # only errors need it

    names = list(known)
    bare = _bare(wrong)
    same = next((name for name in names if _bare(name) == bare), None)
    if same is not None:
        return same
    near = difflib.get_close_matches(wrong, names, n=1) or difflib.get_close_matches(
        bare, [_bare(name) for name in names], n=1)
    return next((name for name in names if near and near[0] in (name, _bare(name))), None)


def did_you_mean(wrong: str, known: Iterable[str]) -> str:
    """` (did you mean 'restart_policy'?)`, for behind the wrong name in a message; empty when no name is near."""
    found = nearest(wrong, known)
    return f" (did you mean {found!r}?)" if found is not None else ""


def _bare(name: str) -> str:
    return name.replace("_", "").lower()
