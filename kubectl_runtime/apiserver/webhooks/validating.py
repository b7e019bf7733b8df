"""Validating webhooks: all that match are asked about the object as it will be stored; any of them can refuse it.

All are asked even when one has refused; the first refusal, in their order, is the answer. (The real server asks them at
the same time, so that there the quickest refusal is the first one.)
"""

from __future__ import annotations

from kubectl_runtime.apiserver import errors
from kubectl_runtime.apiserver.context import RequestContext
from kubectl_runtime.apiserver.webhooks.admission_attributes import Attributes
from kubectl_runtime.apiserver.webhooks.attempts import time_left, timed_out
from kubectl_runtime.apiserver.webhooks.calls import CallingFailed, ask, failed
from kubectl_runtime.apiserver.webhooks.hooks import Hook
from kubectl_runtime.apiserver.webhooks.matching import Invocation, invocation
from kubectl_runtime.apiserver.webhooks.versions import as_version


def validate(ctx: RequestContext, asked: Attributes, hooks: tuple[Hook, ...]) -> None:
    """Raises StatusError for what refuses the operation. The cluster's lock is held, and free while they are asked."""
    matching = [called for hook in hooks if (called := invocation(ctx, hook, asked)) is not None]
    if not matching:
        return
    if time_left(ctx) <= 0:
        raise timed_out()
    with ctx.cluster.released():
        refusals = [refusal for called in matching if (refusal := _refusal(ctx, called, asked)) is not None]
    if refusals:
        raise refusals[0]


def _refusal(ctx: RequestContext, called: Invocation, asked: Attributes) -> errors.StatusError | None:
    shown, old = (as_version(obj, asked, called.resource) for obj in (asked.object, asked.old))
    try:
        ask(ctx, called, asked, shown, old, mutating=False)
    except errors.StatusError as error:
        return error
    except CallingFailed as error:
        return failed(ctx, called.hook, error)
    return None
