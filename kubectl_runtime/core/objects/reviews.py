"""What admission and conversion reviews have in common: the envelope, and the Status of an answer."""
from __future__ import annotations

from typing import Any, Protocol, TypeVar

import msgspec

from kubectl_runtime.core.base import building
from kubectl_runtime.core.base.status import Status
from kubectl_runtime.core.meta.problems import DECODE_FAILURES, DecodeError, problem_of


class Request(Protocol):
    """A question, which its answer names by the uid."""

    @property
    def uid(self) -> str:
        """What the answer has to repeat."""


class Review(Protocol):
    """The envelope of a question and its answer."""

    @property
    def api_version(self) -> str:
        """The version in which the server asks, such as `admission.k8s.io/v1`."""

    @property
    def kind(self) -> str:
        """The kind of the review."""

    @property
    def request(self) -> Request | None:
        """The question; None in an answer."""


V = TypeVar("V", bound=Review)


def decoded(body: bytes, review: type[V], group: str, kind: str) -> V:
    """A review that holds a request, from what the server sent. Raises DecodeError for anything else."""
    try:
        found = building.decoded(body, review)
    except DECODE_FAILURES as error:
        raise DecodeError(None, *problem_of(error)) from None
    if found.kind != kind or found.api_version.partition("/")[0] != group:
        raise DecodeError(None, "$.kind", f"$.kind: {found.kind} of {found.api_version} is not a {kind}")
    if found.request is None or not found.request.uid:
        raise DecodeError(None, "$.request", "$.request: a review without a request, or without its uid")
    return found


def invalid_status(reason: str) -> Status:
    """The Status for a body that is not a review: 400, reason `InvalidRequest`."""
    return failure_status(reason, 400, "InvalidRequest")


def failure_status(message: str, code: int, reason: str = "") -> Status:
    """A Status that refuses, with this message, HTTP code and reason."""
    return Status(status="Failure", message=message, reason=reason, code=code)


def status_dict(status: Status) -> dict[str, Any]:
    """What a Status says, without what it leaves open."""
    plain: dict[str, Any] = msgspec.to_builtins(status)
    return {key: value for key, value in plain.items() if value}
