"""What became of a request that may have been carried out although no whole answer came.

    at the end of the call                                         the call
    a write, whose outcome or that of an attempt before it         raises OutcomeUnknownError
    is unknown (`Failure.is_open`)
    a delete of one uid, sent again, is answered 404               is done: the first attempt has deleted it
    a delete of one uid, sent again, is answered by a 409          is done: the name belongs to another object by now
    about the uid
    anything else                                                  ends as its last attempt

Pure. The retry layer knows the attempts (`Call.in_doubt`); which requests are writes `Request.is_read` says.
"""
from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from http import HTTPStatus

from kubectl_runtime.client.http.failures import decode_status, is_unserved
from kubectl_runtime.client.http.retry import Failure, retry_after
from kubectl_runtime.core.base.errors import (
    AuthError,
    KubeError,
    OutcomeUnknownError,
    RequestTimeout,
    TransportError,
    WriteTimeout,
)
from kubectl_runtime.core.base.status import Status
from kubectl_runtime.core.codec.encode import encode_plain
from kubectl_runtime.core.requests.request import Request, Retry

_uid_in_precondition = re.compile(r"UID in (?:the )?precondition").search
"""Kubernetes has two sentences for a precondition that is not met; both name what it was about so."""


def failure_of(code: int, headers: Mapping[str, str], body: bytes, now: datetime) -> Failure:
    """What the retry policy has to know of an answer that is an error."""
    status = decode_status(body)
    details = status.details.retry_after_seconds if status is not None and status.details is not None else None
    return Failure(code=code, answered=True, retry_after=retry_after(headers.get("Retry-After"), details, now),
                   message=(status.message or "") if status is not None else body[:1024].decode("utf-8", "replace"))


def deleted_before(request: Request, code: int, body: bytes) -> bytes | None:
    """The Status of success that the answer to a repeated `request` stands for, when it says that the earlier attempt
    has deleted the object; None when it does not."""
    uid = request.deleted_uid if code in (HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT) else ""
    status = decode_status(body) if uid else None
    if status is None:
        return None
    gone = not is_unserved(request, status) if code == HTTPStatus.NOT_FOUND else is_about_the_uid(status)
    details = {"name": request.name, "uid": uid, "kind": request.resource.plural if request.resource else ""}
    return encode_plain({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success",
                         "details": details}) if gone else None


def is_about_the_uid(status: Status) -> bool:
    """Whether a conflict means that the object of this name has another uid than the precondition says."""
    return _uid_in_precondition(status.message or "") is not None


def unknown_outcome(request: Request, error: KubeError, failure: Failure | None, *,
                    in_doubt: bool) -> OutcomeUnknownError | None:
    """What a call that ended with `error` has to raise instead, since its outcome is unknown; None: `error` itself.

    `failure`: of the answer, None when there was none. `in_doubt`: the outcome of an earlier attempt is unknown.
    """
    if failure is not None:
        # What an earlier attempt did is not told by an answer that was given without looking at the request.
        unread = failure.code in (HTTPStatus.UNAUTHORIZED, HTTPStatus.TOO_MANY_REQUESTS) or \
            (failure.code or 0) >= HTTPStatus.INTERNAL_SERVER_ERROR
        is_open = failure.is_open or (in_doubt and unread)
    else:
        is_open = isinstance(error, TransportError | AuthError) and (in_doubt or getattr(error, "sent", False))
    if not is_open or request.is_read:
        return None
    once = "" if request.retry is Retry.SAFE else ", so it was not sent again"
    resource = request.resource
    kind = WriteTimeout if isinstance(error, RequestTimeout) else OutcomeUnknownError
    return kind(
        f"{error}; whether the server has carried it out is not known{once}: {_remedy(request)}",
        cause=error.with_traceback(None), operation=request.operation, verb=request.verb,
        kind=resource.kind if resource is not None else "", namespace=request.namespace, name=request.name)


def _remedy(request: Request) -> str:
    if request.resource is None or request.method == "GET":  # a GET that does something, as exec
        return "find out what has happened before it is sent again"
    if request.name:
        return f"read the object before you write again ({request.words('get', request.name)})"
    return f"see what is there before you write again ({request.words('list')})"
