"""The Statuses with which the server refuses requests: `StatusError`, and a constructor for each kind of refusal.

The messages are the real server's, since kubectl prints them and controllers match them. `Cause` (one wrong field) and
its constructors come from `schema.validation`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from kubectl_runtime.apiserver.wire import Object
from kubectl_runtime.schema.validation import (
    Cause,
    duplicate,
    forbidden_field,
    go_value,
    immutable,
    invalid_value,
    not_found_value,
    not_supported,
    required,
    too_long,
    too_many,
    type_invalid,
)

__all__ = ["MODIFIED", "BodyDecodeError", "Cause", "StatusError", "already_exists", "bad_request", "bare_500",
           "conflict", "duplicate", "expired", "forbidden", "forbidden_field", "go_quoted", "go_value", "immutable",
           "internal", "invalid", "invalid_value", "method_not_allowed", "no_such_resource", "not_acceptable",
           "not_found", "not_found_value", "not_supported", "qualified", "required", "resource_version_too_large",
           "too_large", "too_long", "too_many", "type_invalid", "unauthorized", "unsupported_media_type"]

_GO_ESCAPES = {'"': '\\"', "\\": "\\\\", "\a": "\\a", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r",
               "\t": "\\t", "\v": "\\v"}


class StatusError(Exception):
    """A refusal; `to_status()` is the ``v1.Status`` that answers the request."""

    from_webhook = False  # whether the refusal came from a webhook, policy or quota: a retry may succeed

    def __init__(self, code: int, reason: str, message: str, *, details: Object | None = None,
                 causes: Sequence[Cause] = (), metadata: Object | None = None, headers: Sequence[tuple[str, str]] = (),
                 delay: float = 0.0) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.details = details
        self.causes = list(causes)
        self.metadata = metadata or {}
        self.headers = list(headers)
        self.delay = delay

    def to_status(self) -> Object:
        details = dict(self.details) if self.details is not None else {}
        if self.causes:
            details["causes"] = [cause.to_dict() for cause in self.causes]
        status: Object = {"kind": "Status", "apiVersion": "v1", "metadata": self.metadata, "status": "Failure",
                          "message": self.message}
        if self.reason:
            status["reason"] = self.reason
        if details or self.details is not None:
            status["details"] = details
        status["code"] = self.code
        return status


class BodyDecodeError(ValueError):
    """A value that does not fit the typed object of a built-in kind; the message is the real decoder's."""

    misfit: tuple[Any, str, str] | None = None
    """The value, the Go type that it does not fit, and the Go kind of that type; None if only the message is known."""


def qualified(group: str, plural: str) -> str:
    """``configmaps`` or ``widgets.example.com``: the name of a resource type in messages."""
    return f"{plural}.{group}" if group else plural


def _details(group: str, kind: str, name: str) -> Object:
    details: Object = {}
    if name:
        details["name"] = name
    if group:
        details["group"] = group
    if kind:
        details["kind"] = kind
    return details


def not_found(group: str, plural: str, name: str) -> StatusError:
    """404 for a missing object."""
    return StatusError(404, "NotFound", f'{qualified(group, plural)} "{name}" not found',
                       details=_details(group, plural, name))


def no_such_resource() -> StatusError:
    """404 for a path that names an unknown resource of a known group."""
    return StatusError(404, "NotFound", "the server could not find the requested resource", details={})


def already_exists(group: str, plural: str, name: str, *, generated: bool = False) -> StatusError:
    """409 for a create of an existing object. With `generated` (the name is from generateName) a retry may succeed."""
    message, details = f'{qualified(group, plural)} "{name}" already exists', _details(group, plural, name)
    if not generated:
        return StatusError(409, "AlreadyExists", message, details=details)
    return StatusError(409, "AlreadyExists",
                       f"{message}, the server was not able to generate a unique name for the object",
                       details={**details, "retryAfterSeconds": 1}, headers=[("Retry-After", "1")])


MODIFIED = "the object has been modified; please apply your changes to the latest version and try again"


def conflict(group: str, plural: str, name: str, why: str = MODIFIED) -> StatusError:
    """409 for a stale resourceVersion or an unmet precondition."""
    return StatusError(409, "Conflict", f'Operation cannot be fulfilled on {qualified(group, plural)} "{name}": {why}',
                       details=_details(group, plural, name))


def invalid(group: str, kind: str, name: str, causes: Iterable[Cause]) -> StatusError:
    """422 with a cause for each field that is wrong; `kind` is the Kind, not the plural."""
    found = list(causes)
    texts = list(dict.fromkeys(cause.text() for cause in found))  # the message names a repeated cause once
    summary = texts[0] if len(texts) == 1 else "[" + ", ".join(texts) + "]"
    title = f"{kind}.{group}" if group else kind
    return StatusError(422, "Invalid", f'{title} "{name}" is invalid: {summary}', details=_details(group, kind, name),
                       causes=found)


def bad_request(message: str) -> StatusError:
    """400."""
    return StatusError(400, "BadRequest", message)


def unauthorized() -> StatusError:
    """401."""
    return StatusError(401, "Unauthorized", "Unauthorized")


def forbidden(group: str, plural: str, name: str, why: str, causes: Sequence[Cause] = ()) -> StatusError:
    """403; `why` follows ``is forbidden:``."""
    title = qualified(group, plural)
    subject = f'{title} "{name}"' if name else title
    return StatusError(403, "Forbidden", f"{subject} is forbidden: {why}", details=_details(group, plural, name),
                       causes=causes)


def method_not_allowed() -> StatusError:
    """405 for a method that the path does not support."""
    return StatusError(405, "MethodNotAllowed", "the server does not allow this method on the requested resource",
                       details={})


def not_acceptable(accepted: Iterable[str]) -> StatusError:
    """406 with the accepted media types."""
    return StatusError(406, "NotAcceptable", "only the following media types are accepted: " + ", ".join(accepted))


def unsupported_media_type(accepted: Iterable[str]) -> StatusError:
    """415 with the accepted media types."""
    return StatusError(415, "UnsupportedMediaType",
                       "the body of the request was in an unknown format - accepted media types include: "
                       + ", ".join(accepted))


def expired(message: str, continue_token: str = "") -> StatusError:
    """410 for an expired continue token or resourceVersion.

    With `continue_token` the client gets the rest of the list, which is not consistent with the earlier pages.
    """
    return StatusError(410, "Expired", message, metadata={"continue": continue_token} if continue_token else {})


def resource_version_too_large(wanted: int, current: int) -> StatusError:
    """504 for a resourceVersion that does not exist yet. The real server waits 3 s before this answer."""
    return StatusError(504, "Timeout", f"Timeout: Too large resource version: {wanted}, current: {current}",
                       details={"retryAfterSeconds": 1},
                       causes=[Cause("ResourceVersionTooLarge", "Too large resource version")],
                       headers=[("Retry-After", "1")], delay=3.0)


def too_large(limit: int) -> StatusError:
    """413 for a body above the limit."""
    return StatusError(413, "RequestEntityTooLarge", f"Request entity too large: limit is {limit}")


def internal(message: str) -> StatusError:
    """500 in the real server's form for an unexpected error."""
    return StatusError(500, "InternalError", f"Internal error occurred: {message}", details={
        "causes": [{"message": message}]})


def bare_500(message: str) -> StatusError:
    """500 without a reason, for an error that the real server does not turn into a specific Status."""
    return StatusError(500, "", message)


def go_quoted(text: str) -> str:
    """A text in double quotes with unprintable characters escaped, as Go's ``%q`` writes it."""
    return '"' + "".join(_GO_ESCAPES.get(character) or _go_printed(character) for character in text) + '"'


def _go_printed(character: str) -> str:
    number = ord(character)
    if character.isprintable():
        return character
    return f"\\x{number:02x}" if number < 0x80 else f"\\u{number:04x}" if number < 1 << 16 else f"\\U{number:08x}"
