"""A write's questions to webhooks: what they see of its object, and what their answers mean for it.

The cluster's lock is held, and free while a webhook is asked.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kubectl_runtime.apiserver import errors
from kubectl_runtime.apiserver.context import RequestContext
from kubectl_runtime.apiserver.objectmeta import metadata
from kubectl_runtime.apiserver.webhooks.chain import admit, approve
from kubectl_runtime.core.codec.jsonvalues import json_copy

Object = dict[str, Any]

NOT_ON_CREATE = ("selfLink", "deletionTimestamp", "deletionGracePeriodSeconds")


def shown(ctx: RequestContext, obj: Object) -> Object:
    """A copy of an object in storage form as the request's API version shows it."""
    copy = json_copy({key: value for key, value in obj.items() if key not in ("kind", "apiVersion")})
    if ctx.type.strategy.converts:
        copy = ctx.type.strategy.from_storage(copy, ctx.type.version)
    return {"kind": ctx.type.kind, "apiVersion": ctx.type.api_version, **copy}


def admitted(ctx: RequestContext, operation: str, new: Object, old: Object | None) -> Object:
    """What mutating webhooks make of a new state. (managedFields do not tell of it: so the real server has it.)"""
    new["kind"], new["apiVersion"] = ctx.type.kind, ctx.type.api_version
    if old is None:  # what a client cannot set is not shown
        for key in ("uid", "creationTimestamp"):
            new["metadata"].pop(key, None)
    new = admit(ctx, operation, new, old)
    for key in NOT_ON_CREATE if old is None else ():
        new["metadata"].pop(key, None)
    ctx.warnings += metadata.tidy_owners(new["metadata"], patched=True)
    return new


def approved(ctx: RequestContext, operation: str, new: Object, old: Object | None,
             causes: Callable[[], list[errors.Cause]]) -> None:
    """Ask the validating webhooks; what others have stored meanwhile may have taken what the object needs."""
    before = ctx.cluster.storage.rv
    approve(ctx, operation, new, old)
    if ctx.cluster.storage.rv != before and (found := causes()):
        name = new["metadata"].get("name") or ""
        raise errors.invalid(ctx.type.storage_group, ctx.type.kind, name, found)
