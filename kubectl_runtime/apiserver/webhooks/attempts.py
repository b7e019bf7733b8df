"""Writes that give the lock free in between, to ask a webhook: what they have read may be old when they go on.

As the real server's: a write is stored only over the version that it has read, and begins anew if that is no longer the
present one. `attempt` runs a write so; `still` is asked right before it stores. How long a request may take altogether
counts from the first time that it asks a webhook.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeVar

from kubectl_runtime.apiserver import errors
from kubectl_runtime.apiserver.context import RequestContext
from kubectl_runtime.apiserver.storage.storage import Version
from kubectl_runtime.core.meta.godurations import nanoseconds_of

T = TypeVar("T")

REQUEST_TIMEOUT = 34.0  # seconds that a write may take, as the real server's
MAX_ATTEMPTS = 100  # on a clock that stands still nothing else would end two webhooks that overtake each other


class Overtaken(Exception):
    """Somebody has changed meanwhile what the write has read."""


def attempt(ctx: RequestContext, write: Callable[[], T]) -> T:
    """Run a write under the cluster's lock, anew each time that it is overtaken. Raises what it raises, and the 504 of
    one that is overtaken until its time is over."""
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
    """Raises Overtaken if a version is no longer the present one of its object: to be asked after each wait."""
    if ctx.cluster.storage.get(ctx.type.storage, current.namespace, current.name) is not current:
        raise Overtaken


def time_left(ctx: RequestContext) -> float:
    """Seconds until the request has to be answered; a deletion of a collection has no such limit."""
    now = ctx.cluster.clock.monotonic()
    if ctx.deadline is None:
        wanted = nanoseconds_of(ctx.request.param("timeout") or "0") / 1e9
        limit = min(wanted, REQUEST_TIMEOUT) if wanted > 0 else REQUEST_TIMEOUT
        ctx.deadline = math.inf if ctx.info.verb == "deletecollection" else now + limit
    return ctx.deadline - now


def timed_out() -> errors.StatusError:
    """504 of a request that took longer than a request may."""
    return errors.StatusError(504, "Timeout", "Timeout: request did not complete within requested timeout - context "
                                              "deadline exceeded", details={})
