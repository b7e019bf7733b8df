"""`Status`: the API server's own word on what went wrong (or, for some deletes, right)."""
from __future__ import annotations

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
