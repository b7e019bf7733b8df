"""The webhooks of one write: `admit` runs before the object is prepared and validated, `approve` before it is stored.

Without configured webhooks each of the two functions costs only two dict look-ups. Callers hold the cluster's lock,
which is released during a webhook call. Objects read before the call may therefore be outdated afterwards (see
`calls.attempt`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from kubectl_runtime.apiserver import errors, objectmeta
from kubectl_runtime.apiserver.context import RequestContext
from kubectl_runtime.apiserver.errors import StatusError
from kubectl_runtime.apiserver.policies.judging import judge
from kubectl_runtime.apiserver.webhooks.admitting import keep_managers, mutate, validate
from kubectl_runtime.apiserver.webhooks.review import CREATE, DELETE, attributes, is_exempt
from kubectl_runtime.apiserver.wire import Object
from kubectl_runtime.core.codec.jsonbytes import json_copy


def admit(ctx: RequestContext, operation: str, new: Object, old: Object | None) -> Object:
    """The object after the mutating policies and webhooks; the same object if there are none. Raises StatusError."""
    if not ctx.hooks:
        return new
    hooks, policies = ctx.hooks.mutating(), ctx.hooks.policies.mutating()
    if not hooks and not policies:
        return new
    asked = attributes(ctx, operation, json_copy(new), old)
    if is_exempt(asked):
        return new
    with _refusing():
        mutate(ctx, asked, (*policies, *hooks))
    changed = asked.object
    assert changed is not None
    if "metadata" in new:
        keep_managers(ctx, changed, new["metadata"].get("managedFields"))
    return changed


def approve(ctx: RequestContext, operation: str, new: Object, old: Object | None) -> None:
    """Evaluate the validating policies, then call the validating webhooks. Raises StatusError."""
    if not ctx.hooks:
        return
    hooks, policies = ctx.hooks.validating(), ctx.hooks.policies.validating()
    if not hooks and not policies:
        return
    asked = attributes(ctx, operation, new, old)
    if not is_exempt(asked):
        with _refusing():
            judge(ctx, asked, policies)
            validate(ctx, asked, hooks)


def admit_deletion(ctx: RequestContext, old: Object) -> None:
    """Apply mutating and validating webhooks and policies to a deletion. Raises StatusError."""
    hooks = ctx.hooks
    if not hooks:
        return
    # For a deletecollection request the real server's review has no object name.
    asked = attributes(ctx, DELETE, None, old, name=ctx.info.name)
    if not is_exempt(asked):
        with _refusing():
            mutate(ctx, asked, hooks.mutating())
            judge(ctx, asked, hooks.policies.validating())
            validate(ctx, asked, hooks.validating())


def admit_unstored(ctx: RequestContext, obj: Object, operation: str = CREATE) -> Object:
    """Apply webhooks to an object that is itself a request (a review, a Binding, the options of an exec).

    Returns the object after mutation. Raises StatusError. The lock need not be held.
    """
    if not ctx.hooks:
        return obj
    with ctx.cluster.locked():
        obj = admit(ctx, operation, obj, None)
        approve(ctx, operation, obj, None)
    return obj


@contextmanager
def _refusing() -> Iterator[None]:
    """Mark a StatusError as coming from a webhook: a retry may succeed although nothing in the cluster changes."""
    try:
        yield
    except StatusError as error:
        error.from_webhook = True
        raise


NOT_ON_CREATE = ("selfLink", "deletionTimestamp", "deletionGracePeriodSeconds")


def shown(ctx: RequestContext, obj: Object) -> Object:
    """A copy of an object in storage form, in the request's API version."""
    copy = json_copy({key: value for key, value in obj.items() if key not in ("kind", "apiVersion")})
    if ctx.type.strategy.converts:
        copy = ctx.type.strategy.from_storage(copy, ctx.type.version)
    return {"kind": ctx.type.kind, "apiVersion": ctx.type.api_version, **copy}


def admitted(ctx: RequestContext, operation: str, new: Object, old: Object | None) -> Object:
    """The new object after mutating webhooks. (As in the real server, managedFields do not record their changes.)"""
    new["kind"], new["apiVersion"] = ctx.type.kind, ctx.type.api_version
    if old is None:  # webhooks do not see fields that a client cannot set
        for key in ("uid", "creationTimestamp"):
            new["metadata"].pop(key, None)
    new = admit(ctx, operation, new, old)
    for key in NOT_ON_CREATE if old is None else ():
        new["metadata"].pop(key, None)
    ctx.warnings += objectmeta.tidy_owners(new["metadata"], patched=True)
    return new


def approved(ctx: RequestContext, operation: str, new: Object, old: Object | None,
             causes: Callable[[], list[errors.Cause]]) -> None:
    """Call the validating webhooks. If anything was stored during the calls, call `causes`, and raise a 422 with the
    causes that it returns, if any."""
    before = ctx.cluster.storage.rv
    approve(ctx, operation, new, old)
    if ctx.cluster.storage.rv != before and (found := causes()):
        name = new["metadata"].get("name") or ""
        raise errors.invalid(ctx.type.storage_group, ctx.type.kind, name, found)
