"""What is sent for a series, and what an answer means for it. Pure."""
from __future__ import annotations

import socket
from http import HTTPStatus
from typing import Any, NamedTuple

from msgspec.structs import replace

from kubectl_runtime.client.http.failures import KindNotServedError
from kubectl_runtime.core.base.errors import (
    ApiError,
    AuthError,
    OutcomeUnknownError,
    RequestError,
    TransportError,
    reason_of,
)
from kubectl_runtime.core.meta.gvk import ApiResource
from kubectl_runtime.core.meta.metav1 import format_micro_time
from kubectl_runtime.core.requests import request as build
from kubectl_runtime.core.requests.patch import Patch, pointer
from kubectl_runtime.core.requests.request import Place, Request, Retry
from kubectl_runtime.runtime.events.ledger import Result, Series
from kubectl_runtime.runtime.events.texts import qualified_name, short

EVENT = ApiResource("events.k8s.io", "v1", "Event", "events")
TERMINATING = "NamespaceTerminating"
"""The reason of a cause where something was to be made in a namespace that goes."""
_SERIES = pointer("series")
_COUNT = pointer("series", "count")
_LATER = frozenset((HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.UNAUTHORIZED, HTTPStatus.SERVICE_UNAVAILABLE))
"""Answers of a server that has not looked at the request. A 503 that says no time comes as OutcomeUnknownError."""


class Reporter(NamedTuple):
    """Who says it: `kubectl describe` shows the controller."""

    controller: str
    instance: str

    @classmethod
    def of(cls, controller: str, instance: str | None) -> Reporter:
        """With names that the server takes; the instance is by default the controller on this host. Raises
        RequestError when nothing of `controller` can be one."""
        name = qualified_name(controller)
        if not name:
            raise RequestError(f"{controller!r} cannot name a controller in Events: give it a name with letters, such "
                               "as 'database-operator' or 'example.com/database-operator'")
        return cls(name, short(instance or f"{name}-{socket.gethostname()}", name))


def request_for(series: Series, reporter: Reporter) -> Request:
    """The request that brings what the server knows of `series` to its goal. It is not repeated by the client."""
    place = Place(EVENT, series.subject.regarding.home)
    if not series.exists:
        return replace(build.create(place, _event(series, reporter)), retry=Retry.NEVER)
    known = series.told - series.before
    test = {"op": "test", "path": _SERIES, "value": None} if known == 1 else {"op": "test", "path": _COUNT,
                                                                               "value": known}
    step = {"op": "add", "path": _SERIES, "value": _series(series)}
    return replace(build.patch(place, series.name, Patch.json([test, step])), retry=Retry.NEVER)


def _event(series: Series, reporter: Reporter) -> dict[str, Any]:
    subject = series.subject
    event = {
        "apiVersion": EVENT.api_version, "kind": EVENT.kind,
        "metadata": {"name": series.name, "namespace": subject.regarding.home},
        "eventTime": format_micro_time(series.begun),
        "reportingController": reporter.controller, "reportingInstance": reporter.instance,
        "type": "Warning" if subject.warning else "Normal", "reason": subject.reason, "action": subject.action,
        "note": series.note, "regarding": subject.regarding.to_dict()}
    if subject.related is not None:
        event["related"] = subject.related.to_dict()
    if series.goal - series.before > 1:
        event["series"] = _series(series)
    return event


def _series(series: Series) -> dict[str, Any]:
    return {"count": series.goal - series.before, "lastObservedTime": format_micro_time(series.last)}


def result_of(error: BaseException | None, *, patched: bool) -> Result:
    """What became of a request that ended with `error`; `patched`: it was a patch."""
    if error is None:
        return Result.DONE
    if isinstance(error, OutcomeUnknownError):
        return Result.UNKNOWN
    if isinstance(error, ApiError):
        return _answered(error, patched)
    if isinstance(error, RequestError):
        return Result.REFUSED
    unsent = isinstance(error, AuthError) or (isinstance(error, TransportError) and not error.sent)
    return Result.LATER if unsent else Result.UNKNOWN


def _answered(error: ApiError, patched: bool) -> Result:
    if isinstance(error, KindNotServedError):
        return Result.REFUSED
    if error.code >= HTTPStatus.INTERNAL_SERVER_ERROR and error.code != HTTPStatus.SERVICE_UNAVAILABLE:
        return Result.UNKNOWN
    if error.code in _LATER:
        return Result.LATER
    if error.is_not_found:
        return Result.MISSING
    if patched and error.is_invalid:  # its `test` failed
        return Result.CHANGED
    if error.is_already_exists:
        return Result.EXISTS
    return Result.LATER if error.is_conflict else Result.REFUSED  # a conflict: the server gave up, and wrote nothing


def is_about_the_recorder(error: BaseException | None) -> bool:
    """Whether the error says that no Event can be written at this time, rather than something about this one."""
    return isinstance(reason_of(error), TransportError | AuthError)


def is_expected(error: BaseException | None) -> bool:
    """Whether it is how Events end in a namespace that is being deleted, or is gone: nothing to warn of."""
    return isinstance(error, ApiError) and not isinstance(error, KindNotServedError) and (
        error.is_not_found or any(cause.reason == TERMINATING for cause in error.status.causes))
