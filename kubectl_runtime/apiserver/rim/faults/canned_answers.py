"""Ready-made answers: a Status of any kind, and 429 with each form of Retry-After."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from email.utils import format_datetime
from typing import Any, Literal

from kubectl_runtime.apiserver.wire import HttpResponse

JSON = "application/json"
RetryAfter = Literal["seconds", "date", "details", "none"]

REASONS = {400: "BadRequest", 401: "Unauthorized", 403: "Forbidden", 404: "NotFound", 405: "MethodNotAllowed",
           406: "NotAcceptable", 409: "Conflict", 410: "Expired", 413: "RequestEntityTooLarge",
           415: "UnsupportedMediaType", 422: "Invalid", 429: "TooManyRequests", 500: "InternalError",
           503: "ServiceUnavailable", 504: "Timeout"}

Headers = Mapping[str, str] | Iterable[tuple[str, str]]
Body = bytes | str | Mapping[str, Any] | list[Any]


def response(status: int, body: Body = b"", headers: Headers = ()) -> HttpResponse:
    """An answer; a mapping or list becomes JSON, a text plain text. A given content-type is kept."""
    given = list(headers.items() if isinstance(headers, Mapping) else headers)
    content_type = ""
    if isinstance(body, str):
        body, content_type = body.encode(), "text/plain; charset=utf-8"
    elif not isinstance(body, bytes):
        body, content_type = json.dumps(body, separators=(",", ":")).encode(), JSON
    if content_type and not any(key.lower() == "content-type" for key, _ in given):
        given.append(("Content-Type", content_type))
    return HttpResponse(status, given, body)


def status_object(code: int, reason: str | None = None, message: str = "",
                  details: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """A ``v1.Status`` of a failure; the reason that goes with the code is filled in unless it is given."""
    reason = REASONS.get(code, "") if reason is None else reason
    status: dict[str, Any] = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
                              "message": message or f"the fault script answers {code}"}
    if reason:
        status["reason"] = reason
    if details is not None:
        status["details"] = dict(details)
    status["code"] = code
    return status


def throttled(retry_after: float | str, form: RetryAfter, now: datetime) -> HttpResponse:
    """429 that asks to wait, in the given form; a text for `retry_after` is sent as it is."""
    headers, details = [], None
    if isinstance(retry_after, str):
        headers = [("Retry-After", retry_after)]
    elif form == "seconds":
        headers = [("Retry-After", f"{retry_after:g}")]
    elif form == "date":
        later = now + timedelta(seconds=retry_after)
        headers = [("Retry-After", format_datetime(later.replace(microsecond=0), usegmt=True))]
    elif form == "details":
        details = {"retryAfterSeconds": int(retry_after)}
    elif form != "none":
        raise ValueError(f"{form!r} is no form of Retry-After: choose one of seconds, date, details, none")
    return response(429, status_object(429, message="too many requests, try again later", details=details), headers)


def event_line(event: Body) -> bytes:
    """An event of a watch as a line: bytes and texts as they are, with the line's end if it is missing."""
    if isinstance(event, str):
        event = event.encode()
    line = event if isinstance(event, bytes) else json.dumps(event, separators=(",", ":")).encode()
    return line if line.endswith(b"\n") else line + b"\n"
