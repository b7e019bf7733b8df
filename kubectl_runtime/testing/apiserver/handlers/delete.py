"""DELETE of an object and of a collection; `remove` is what evictions and controllers use too.

==============================  ====================================================================================
before                          a delete
==============================  ====================================================================================
nothing keeps the object        removes it
finalizers, or a policy that    sets deletionTimestamp (and deletionGracePeriodSeconds 0, generation + 1); the object
adds one                        stays until the last finalizer is removed
a kind with grace (Pod)         sets deletionTimestamp and the grace period first; with a period of 0 it then removes
a Namespace, a CRD              becomes Terminating; its contents go first
deletion has begun, with grace  changes nothing, but for a shorter grace period
deletion has begun, without     changes nothing, but for a propagation policy other than the one before
==============================  ====================================================================================
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from kubectl_runtime.testing.apiserver import errors
from kubectl_runtime.testing.apiserver.context import RequestContext
from kubectl_runtime.testing.apiserver.forms import Form
from kubectl_runtime.testing.apiserver.handlers.answers import answer_bytes, answer_deleted, answer_one, stored
from kubectl_runtime.testing.apiserver.handlers.read import read_list_request, select
from kubectl_runtime.testing.apiserver.metadata import FOREGROUND, ORPHAN, timestamp
from kubectl_runtime.testing.apiserver.options import DeleteOptions, delete_options
from kubectl_runtime.testing.apiserver.storage import Version, make_version
from kubectl_runtime.testing.apiserver.wire import HttpResponse

Object = dict[str, Any]

MAX_GRACE = 1 << 31  # seconds; a longer period has no end that can be written as a date


def delete(ctx: RequestContext) -> HttpResponse:
    """Delete one object."""
    options = delete_options(ctx.request)
    _warn(ctx, options)
    with ctx.core.locked():
        current = stored(ctx)
        if current is None:
            raise errors.not_found(ctx.type.group, ctx.type.plural, ctx.info.name)
        version, gone = remove(ctx, current, options)
    if gone and not ctx.type.strategy.delete_returns_object:
        return answer_deleted(ctx, version)
    return answer_one(ctx, version)


def delete_collection(ctx: RequestContext) -> HttpResponse:
    """Delete all objects that the selectors match; the answer lists them as they were."""
    if ctx.type.namespaced and not ctx.info.namespace:
        raise errors.method_not_allowed()
    form = Form(ctx.type, ctx.media, ctx.request, ctx.core.clock.now, is_list=True)
    listing = read_list_request(ctx)
    options = delete_options(ctx.request)
    _warn(ctx, options)
    with ctx.core.locked():
        bucket = ctx.core.storage.bucket(ctx.type.storage)
        found = [version for version in bucket.scan(ctx.namespace) if select(listing, version)]
        for version in found:
            remove(ctx, version, options)
        rv = ctx.core.storage.rv
    return answer_bytes(ctx, form.many(found, {"resourceVersion": str(rv)}))


def remove(ctx: RequestContext, current: Version, options: DeleteOptions) -> tuple[Version, bool]:
    """Delete an object as far as it can go now; the answer's version, and whether the object is gone."""
    strategy = ctx.type.strategy
    _check_preconditions(ctx, current, options)
    obj = current.decode()
    meta = obj["metadata"]
    if strategy.holds_deletion(obj):
        return _terminate(ctx, current, obj, options), False
    if current.deleting and strategy.supports_grace and _already_pending(meta, options):
        return current, False
    graceful = strategy.supports_grace and not (current.deleting and meta.get("deletionGracePeriodSeconds") is None)
    if graceful:
        _shorten_or_begin(meta, strategy.grace_period(obj, options.grace), ctx.now)
    finalizers = _finalizers(meta, options, orphans=strategy.default_orphans(obj))
    if current.deleting and not graceful and finalizers == meta.get("finalizers"):
        return current, False
    if finalizers:
        meta["finalizers"] = finalizers
        if not graceful:
            _mark(meta, ctx.now)
    else:
        meta.pop("finalizers", None)
    if graceful or finalizers:
        current = _store(ctx, current, obj, options)
    if finalizers or meta.get("deletionGracePeriodSeconds"):
        return current, False
    if options.dry_run:
        return current, True
    return ctx.core.storage.delete(ctx.type.storage, current), True


def _warn(ctx: RequestContext, options: DeleteOptions) -> None:
    if not options.propagation and (text := ctx.type.strategy.delete_warning):
        ctx.warnings.append(text)


def _store(ctx: RequestContext, current: Version, obj: Object, options: DeleteOptions) -> Version:
    if options.dry_run:
        return make_version(obj, current.rv, current.fields)
    return ctx.core.storage.put(ctx.type.storage, obj, ctx.type.strategy.selectable_fields(obj))


def _terminate(ctx: RequestContext, current: Version, obj: Object, options: DeleteOptions) -> Version:
    """A Namespace or CRD with contents: it becomes Terminating, once."""
    if current.deleting:
        return current
    obj["metadata"]["deletionTimestamp"] = timestamp(ctx.now)
    ctx.type.strategy.prepare_delete(obj, ctx)
    return _store(ctx, current, obj, options)


def _check_preconditions(ctx: RequestContext, current: Version, options: DeleteOptions) -> None:
    if options.uid and options.uid != current.uid:
        raise errors.conflict(ctx.type.group, ctx.type.kind, current.name, (
            f"the UID in the precondition ({options.uid}) does not match the UID in record ({current.uid}). The object "
            "might have been deleted and then recreated"))
    if options.resource_version and options.resource_version != str(current.rv):
        raise errors.conflict(ctx.type.group, ctx.type.kind, current.name, (
            f"the ResourceVersion in the precondition ({options.resource_version}) does not match the ResourceVersion "
            f"in record ({current.rv}). The object might have been modified"))


def _already_pending(meta: Object, options: DeleteOptions) -> bool:
    """Whether a deletion that has begun goes on as it is: only a shorter grace period changes it."""
    period = meta.get("deletionGracePeriodSeconds")
    if period is None:
        return False
    return options.grace is None or options.grace >= period


def _shorten_or_begin(meta: Object, period: int, now: datetime) -> None:
    period = min(period, MAX_GRACE)
    if "deletionTimestamp" in meta:
        sooner = timedelta(seconds=period - meta["deletionGracePeriodSeconds"])
        meta["deletionTimestamp"] = timestamp(datetime.fromisoformat(meta["deletionTimestamp"]) + sooner)
    else:
        meta["deletionTimestamp"] = timestamp(now + timedelta(seconds=period))
        if meta.get("generation"):
            meta["generation"] += 1
    meta["deletionGracePeriodSeconds"] = period


def _mark(meta: Object, now: datetime) -> None:
    """A deletion without grace begins."""
    if "deletionTimestamp" not in meta:
        meta["deletionTimestamp"] = timestamp(now)
        if meta.get("generation"):
            meta["generation"] += 1
    meta["deletionGracePeriodSeconds"] = 0


def _finalizers(meta: Object, options: DeleteOptions, *, orphans: bool) -> list[str]:
    """The finalizers after the propagation policy has added or removed its own."""
    before: list[str] = meta.get("finalizers") or []
    policy = options.propagation
    orphan = policy == "Orphan" or (not policy and (ORPHAN in before or (orphans and FOREGROUND not in before)))
    foreground = policy == "Foreground" or (not policy and FOREGROUND in before)
    after = [name for name in before if (name != ORPHAN or orphan) and (name != FOREGROUND or foreground)]
    after += [name for name, wanted in ((ORPHAN, orphan), (FOREGROUND, foreground)) if wanted and name not in after]
    return after
