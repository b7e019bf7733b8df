"""One call of a webhook for one operation: sending the review, verifying the answer, applying its effect.

A call without a valid answer refuses the request with a 500, ``failed calling webhook "x": …``. With failurePolicy
Ignore the failed call is logged and has no effect. Under both policies a denial is answered with the webhook's own
Status, and a dry run is refused with a 400 if the webhook has side effects. A call blocks for at most the webhook's
timeout, and at most for the request's remaining time. No lock is held during the call.

A write releases the lock while it calls a webhook, so objects that it has read may be outdated afterwards. As in the
real server, the write succeeds only if the stored version is still the version that the write has read. Otherwise the
write starts again. `attempt` runs a write in this way, and `still` checks the version right before the write is stored.
A request's time limit starts with its first webhook call.
"""
from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeVar

from kubectl_runtime.apiserver import errors
from kubectl_runtime.apiserver.context import RequestContext
from kubectl_runtime.apiserver.storage import Version
from kubectl_runtime.apiserver.webhooks.hooks import REVIEW_VERSIONS, Hook, PostError, send
from kubectl_runtime.apiserver.webhooks.review import (
    Attributes,
    InvalidAnswer,
    Invocation,
    Verdict,
    request_of,
    review_of,
    verified,
)
from kubectl_runtime.apiserver.wire import Object
from kubectl_runtime.core.base.guard import guarded_logger
from kubectl_runtime.core.meta.metav1 import nanoseconds_of

T = TypeVar("T")

REQUEST_TIMEOUT = 34.0  # seconds that a write may take, as in the real server
# A test's clock may stand still. Then only this limit ends writes that overtake each other again and again.
MAX_ATTEMPTS = 100


class Overtaken(Exception):
    """Another request has changed an object that the write has read."""


def attempt(ctx: RequestContext, write: Callable[[], T]) -> T:
    """Run a write under the cluster's lock, and repeat the write whenever it raises Overtaken. Raises the write's other
    errors, and a 504 at the request's time limit."""
    warned = len(ctx.warnings)
    for _ in range(MAX_ATTEMPTS):
        try:
            with ctx.cluster.locked():
                ctx.asks = bool(ctx.hooks)
                return write()
        except Overtaken:
            del ctx.warnings[warned:]
        if time_left(ctx) <= 0:
            break
    raise timed_out()


def still(ctx: RequestContext, current: Version) -> None:
    """Raise Overtaken if `current` is no longer its object's stored version. Must be called after each webhook call."""
    if ctx.cluster.storage.get(ctx.type.storage, current.namespace, current.name) is not current:
        raise Overtaken


def time_left(ctx: RequestContext) -> float:
    """Seconds until the request must be answered; infinite for a deletecollection request."""
    now = ctx.cluster.clock.monotonic()
    if ctx.deadline is None:
        wanted = nanoseconds_of(ctx.request.param("timeout") or "0") / 1e9
        limit = min(wanted, REQUEST_TIMEOUT) if wanted > 0 else REQUEST_TIMEOUT
        ctx.deadline = math.inf if ctx.info.verb == "deletecollection" else now + limit
    return ctx.deadline - now


def timed_out() -> errors.StatusError:
    """The 504 for a request that exceeded its time limit."""
    return errors.StatusError(504, "Timeout", "Timeout: request did not complete within requested timeout - context "
                                              "deadline exceeded", details={})


log = guarded_logger(__name__)

MAX_CODE = 999


class CallingFailed(Exception):
    """A webhook could not be called, or its answer is invalid."""

    def __init__(self, hook: Hook, why: str) -> None:
        super().__init__(f'failed calling webhook "{hook.name}": {why}')


def ask(ctx: RequestContext, called: Invocation, asked: Attributes, shown: Object | None, old: Object | None, *,
        mutating: bool) -> Verdict:
    """Call the webhook and return its verdict. Raises CallingFailed, and a 400 if the webhook does not support dry run.
    """
    hook = called.hook
    if asked.dry_run and not hook.may_run_dry:
        raise errors.bad_request(f'admission webhook "{hook.name}" does not support dry run')
    version = next((version for version in hook.review_versions if version in REVIEW_VERSIONS), "")
    if not version:
        raise CallingFailed(hook, "could not create admission objects: webhook does not accept known AdmissionReview "
                                  f"versions ({', '.join(REVIEW_VERSIONS)})")
    with ctx.cluster.locked():
        uid = ctx.cluster.new_uid()
    review = review_of(uid, request_of(ctx, called.kind, called.resource, asked), shown, old, version)
    timeout = min(hook.timeout, time_left(ctx))
    try:
        content = send(ctx.hooks.caller, hook.target, review, "admission.v1.AdmissionReview", timeout=timeout)
    except PostError as error:
        raise CallingFailed(hook, f"failed to call webhook: {error}") from None
    try:
        verdict = verified(uid, content, version, mutating=mutating)
    except InvalidAnswer as error:
        raise CallingFailed(hook, f"received invalid webhook response: {error}") from None
    return verdict


def accept(ctx: RequestContext, hook: Hook, verdict: Verdict) -> None:
    """Add a verdict's warnings to the response. Raises StatusError if the verdict is a denial."""
    ctx.warnings += verdict.warnings
    if not verdict.allowed:
        raise denied(hook, verdict.status or {})


def denied(hook: Hook, status: Object) -> errors.StatusError:
    """The error for a denial, with the webhook's Status."""
    by, code = f'admission webhook "{hook.name}" denied the request', status.get("code") or 0
    reason = status.get("reason") or ""
    why = status.get("message") or reason
    if not 400 <= code <= MAX_CODE:
        code = 400 if code < 400 else 500  # not a valid HTTP code: the real server would close the connection
    error = errors.StatusError(code, reason, f"{by}: {why}" if why else f"{by} without explanation",
                               details=status.get("details"), metadata=status.get("metadata"))
    seconds = (status.get("details") or {}).get("retryAfterSeconds")
    if seconds:
        error.headers.append(("Retry-After", str(seconds)))
    return error


def failed(ctx: RequestContext, hook: Hook, error: CallingFailed) -> errors.StatusError | None:
    """The error with which a failed call refuses the request, or None if the failure is ignored."""
    if hook.fails_closed:
        return errors.internal(str(error))
    log.warning("%s %s: %s; ignored, because failurePolicy is Ignore", ctx.request.method, ctx.request.path, error)
    return timed_out() if time_left(ctx) <= 0 else None
