"""DELETE of an object and of a collection, and eviction of Pods.

The effect of a delete:

- Without finalizers the object is removed.
- With finalizers, or a policy that adds a finalizer, the delete sets deletionTimestamp (and deletionGracePeriodSeconds
  0, generation + 1). The object stays until the last finalizer is removed.
- For a kind with a grace period (Pod) the delete first sets deletionTimestamp and the grace period. If the period is 0,
  the object is then removed.
- A Namespace or CRD becomes Terminating; its contents are deleted first.
- A second delete has an effect only if it shortens the grace period or, for kinds without a grace period, changes the
  propagation policy.

An eviction is a delete that PodDisruptionBudgets may refuse. Before the delete, the Pod's status gets the condition
DisruptionTarget.
Budgets do not protect a Pod that is Pending, finished or terminating. A Pod that is not ready is evicted if its budget
has enough healthy Pods. Otherwise the budget that selects the Pod must allow a disruption, which is then counted in its
status. Only the ``disruption`` controller resets that count; without this controller a test must write the budget's
status.
"""
from __future__ import annotations

from datetime import datetime, timedelta
from functools import partial

from kubectl_runtime.apiserver import errors
from kubectl_runtime.apiserver.context import (
    RequestContext,
    answer_bytes,
    answer_deleted,
    answer_one,
    answer_success,
    stored,
)
from kubectl_runtime.apiserver.errors import Cause
from kubectl_runtime.apiserver.handlers.pods import read_request
from kubectl_runtime.apiserver.handlers.read import page, read_list_request, validate
from kubectl_runtime.apiserver.kinds.base import label_selector, true_conditions
from kubectl_runtime.apiserver.loopback import submit
from kubectl_runtime.apiserver.objectmeta import collector_finalizers
from kubectl_runtime.apiserver.output.negotiation import Form
from kubectl_runtime.apiserver.query import DeleteOptions, checked, delete_options, write_options
from kubectl_runtime.apiserver.storage import Version, make_version
from kubectl_runtime.apiserver.webhooks.calls import attempt, still
from kubectl_runtime.apiserver.webhooks.chain import admit_deletion, admit_unstored
from kubectl_runtime.apiserver.wire import HttpResponse, Object
from kubectl_runtime.apiserver.writes import request_form
from kubectl_runtime.core.codec.jsonbytes import json_copy
from kubectl_runtime.core.meta.metav1 import format_time

MAX_GRACE = 1 << 31  # seconds; the end of a longer period may not be representable as a date


def delete(ctx: RequestContext) -> HttpResponse:
    options = delete_options(ctx.request, custom=ctx.type.is_custom)
    _warn(ctx, options)

    def write() -> tuple[Version, bool]:
        current = stored(ctx)
        if current is None:
            raise errors.not_found(ctx.type.group, ctx.type.plural, ctx.info.name)
        return remove(ctx, current, options)

    version, gone = attempt(ctx, write)
    if gone and not ctx.type.strategy.delete_returns_object:
        return answer_deleted(ctx, version)
    return answer_one(ctx, version, 202 if options.cascades and not gone else 200)


def delete_collection(ctx: RequestContext) -> HttpResponse:
    """Delete the objects that a list with the same options returns. The answer lists them as they were before."""
    if ctx.type.namespaced and not ctx.info.namespace:
        raise errors.method_not_allowed()
    form = Form(ctx.type, ctx.media, ctx.request, ctx.cluster.clock.now, is_list=True)
    listing = read_list_request(ctx)
    validate(ctx, listing)
    options = delete_options(ctx.request, custom=ctx.type.is_custom)
    _warn(ctx, options)
    with ctx.cluster.locked():
        found, metadata = page(ctx, listing)
        found = form.own(found)  # raises before any deletion if an object cannot be converted
        for version in found:
            attempt(ctx, partial(_remove_listed, ctx, version, options))
    return answer_bytes(ctx, form.many(found, metadata))


def _remove_listed(ctx: RequestContext, listed: Version, options: DeleteOptions) -> None:
    current = ctx.cluster.storage.get(ctx.type.storage, listed.namespace, listed.name)
    if current is not None:  # a page may contain objects that have been deleted since
        remove(ctx, current, options)


def remove(ctx: RequestContext, current: Version, options: DeleteOptions, *, asks: bool = True
           ) -> tuple[Version, bool]:
    """Remove the object, or mark it as terminating. Returns the version for the answer, and whether the object is gone.

    Webhooks are called first, unless `asks` is false. Raises Overtaken if the object changed during these calls.
    """
    strategy = ctx.type.strategy
    check_preconditions(ctx, current, uid=options.uid, rv=options.resource_version)
    if current.name in strategy.immortal:
        raise errors.forbidden(ctx.type.group, ctx.type.plural, current.name,
                               strategy.immortal_text or f"this {ctx.type.singular} may not be deleted")
    obj = current.decode()
    meta = obj["metadata"]
    pending = current.deleting and strategy.supports_grace and _already_pending(meta, options)
    asks = asks and ctx.asks
    if ctx.may_wait:
        _consult(ctx, current, asks=asks and not pending and not (current.deleting and strategy.terminates))
    if strategy.holds_deletion(obj):
        return _terminate(ctx, current, obj, options), False
    if pending:
        return current, False
    graceful = strategy.supports_grace and not (current.deleting and meta.get("deletionGracePeriodSeconds") is None)
    if graceful:
        _shorten_or_begin(meta, strategy.grace_period(obj, options.grace), ctx.now)
    policy = options.propagation if strategy.collects_dependents else "Background"
    finalizers = collector_finalizers(meta.get("finalizers") or [], policy, orphans=strategy.default_orphans())
    marked = current.deleting and meta.get("deletionGracePeriodSeconds") == 0
    if marked and not graceful and finalizers == meta.get("finalizers"):
        return current, False
    meta.pop("finalizers", None)
    if finalizers:
        meta["finalizers"] = finalizers
    if finalizers and not graceful:
        _mark(meta, ctx.now)
    if graceful or finalizers:
        current = _store(ctx, current, obj, options)
    if finalizers or meta.get("deletionGracePeriodSeconds"):
        return current, False
    if options.dry_run:
        return current, True
    if asks and graceful:
        # Surprising: webhooks are called twice, since the real server deletes such an object in two steps.
        _consult(ctx, current, asks=True)
    return ctx.cluster.storage.delete(ctx.type.storage, current), True


def _consult(ctx: RequestContext, current: Version, *, asks: bool) -> None:
    """Check that the object can be converted, and call webhooks if `asks` is true. Both can refuse the deletion."""
    shown = request_form(ctx, current)
    if asks:
        admit_deletion(ctx, shown)
    still(ctx, current)


def _warn(ctx: RequestContext, options: DeleteOptions) -> None:
    if not options.propagation and (text := ctx.type.strategy.delete_warning):
        ctx.warnings.append(text)


def _store(ctx: RequestContext, current: Version, obj: Object, options: DeleteOptions) -> Version:
    if options.dry_run:
        return make_version(obj, current.rv, current.fields, current.stored_as)
    return ctx.cluster.storage.put(ctx.type.storage, obj, ctx.type.strategy.selectable_fields(obj),
                                   stored_as=current.stored_as)


def _terminate(ctx: RequestContext, current: Version, obj: Object, options: DeleteOptions) -> Version:
    """Mark a Namespace or CRD with contents as Terminating, unless it already is."""
    if current.deleting:
        return current
    obj["metadata"]["deletionTimestamp"] = format_time(ctx.now)
    ctx.type.strategy.prepare_delete(obj, "Foreground" if options.cascades else options.propagation, ctx)
    return _store(ctx, current, obj, options)


def check_preconditions(ctx: RequestContext, current: Version, *, uid: str | None, rv: str | None) -> None:
    """Raise a 409 unless the object matches the client's preconditions (None: the client set no precondition)."""
    terminates = ctx.type.strategy.terminates
    plural = ctx.type.plural if terminates else ctx.type.kind
    for field, wanted, found, happened in (("UID", uid, current.uid, "deleted and then recreated"),
                                           ("ResourceVersion", rv, str(current.rv), "modified")):
        if wanted is None or wanted == found:
            continue
        why = (f"Precondition failed: {field} in precondition: {wanted}, {field} in object meta: {found}" if terminates
               else f"the {field} in the precondition ({wanted}) does not match the {field} in record ({found}). "
               f"The object might have been {happened}")
        raise errors.conflict(ctx.type.group, plural, current.name, why)


def _already_pending(meta: Object, options: DeleteOptions) -> bool:
    """Whether a deletion in progress continues unchanged, because the request does not shorten the grace period."""
    period = meta.get("deletionGracePeriodSeconds")
    if period is None:
        return False
    return options.grace is None or options.grace >= period


def _shorten_or_begin(meta: Object, period: int, now: datetime) -> None:
    period = min(period, MAX_GRACE)
    if "deletionTimestamp" in meta:
        sooner = timedelta(seconds=period - meta["deletionGracePeriodSeconds"])
        meta["deletionTimestamp"] = format_time(datetime.fromisoformat(meta["deletionTimestamp"]) + sooner)
    else:
        meta["deletionTimestamp"] = format_time(now + timedelta(seconds=period))
        if meta.get("generation"):
            meta["generation"] += 1
    meta["deletionGracePeriodSeconds"] = period


def _mark(meta: Object, now: datetime) -> None:
    """Mark the start of a deletion without a grace period."""
    if "deletionTimestamp" not in meta:
        meta["deletionTimestamp"] = format_time(now)
        if meta.get("generation"):
            meta["generation"] += 1
    meta["deletionGracePeriodSeconds"] = 0


BUDGETS = ("policy", "poddisruptionbudgets")
_UNGUARDED = ("Succeeded", "Failed", "Pending")
_RETRY_AFTER = 10  # seconds; used until the budget's controller has observed the budget's last change


def evict(ctx: RequestContext) -> HttpResponse:
    """Delete a Pod through an Eviction, if its PodDisruptionBudget allows that."""
    ctx.options = write_options(ctx.request, "CreateOptions")
    eviction = read_request(ctx, "policy.v1.Eviction")
    if not eviction["metadata"].get("name"):
        raise errors.bad_request("name in URL does not match name in Eviction object")
    eviction = admit_unstored(ctx, {"kind": "Eviction", "apiVersion": "policy/v1", **eviction})
    raw = eviction.get("deleteOptions") or {}
    asked, written = ctx.request.params("dryRun"), raw.get("dryRun") or []
    if asked and written and asked != written:
        raise errors.bare_500("Non-matching dry-run options in request and content: "
                              f"[{' '.join(asked)}] and [{' '.join(written)}]")
    raw["dryRun"] = written or asked
    counted = False

    def write() -> None:
        nonlocal counted
        current = stored(ctx)
        if current is None:
            raise errors.not_found("", "pods", ctx.info.name)
        pod = current.decode()
        if not counted and not current.deleting and pod["status"].get("phase") not in _UNGUARDED:
            counted = True
            _ask_budgets(ctx, current, pod, dry_run=bool(raw["dryRun"]))
        wanted = raw.get("preconditions") or {}
        check_preconditions(ctx, current, uid=wanted.get("uid") or None, rv=wanted.get("resourceVersion") or None)
        if not raw["dryRun"]:
            still(ctx, current)  # webhooks were perhaps called for the budget, and the Pod may have changed then
            current = _tell(ctx, current, pod)
        if wanted.get("resourceVersion"):
            raw["preconditions"]["resourceVersion"] = str(current.rv)  # the eviction's own write has changed it
        remove(ctx, current, checked(raw), asks=False)  # webhooks were called for the eviction

    attempt(ctx, write)
    return answer_success(ctx)


def _tell(ctx: RequestContext, current: Version, pod: Object) -> Version:
    """Store the DisruptionTarget condition in the Pod's status, if it is missing."""
    conditions = list(pod["status"].get("conditions") or ())
    wanted = {"type": "DisruptionTarget", "status": "True", "lastProbeTime": None,
              "lastTransitionTime": format_time(ctx.now), "reason": "EvictionByEvictionAPI",
              "message": "Eviction API: evicting"}
    if wanted["type"] in true_conditions(pod["status"]):
        return current
    pod["status"]["conditions"] = [entry for entry in conditions if entry.get("type") != wanted["type"]] + [wanted]
    return ctx.cluster.storage.put(ctx.type.storage, pod, current.fields)


def _ask_budgets(ctx: RequestContext, current: Version, pod: Object, *, dry_run: bool) -> None:
    """Raise a StatusError if a budget does not allow the eviction; otherwise count the eviction in the budget."""
    budgets = [budget for budget in ctx.objects(*BUDGETS, ctx.namespace)
               if (selector := label_selector(budget["spec"].get("selector"))) is not None
               and selector.matches(current.labels)]
    if len(budgets) > 1:
        raise errors.bare_500("This pod has more than one PodDisruptionBudget, which the eviction subresource does not "
                              "support.")
    if not budgets or _unready_may_go(pod, budgets[0]):
        return
    budget = json_copy(budgets[0])
    _check(budget)
    if not dry_run:
        _count(ctx, budget, current.name)


def _count(ctx: RequestContext, budget: Object, pod: str) -> None:
    """Record the disruption in the budget's status, with a request by a cluster component."""
    status, meta = budget["status"], budget["metadata"]
    left = status["disruptionsAllowed"] - 1
    change: Object = {"disruptionsAllowed": left, "disruptedPods": {pod: format_time(ctx.now)}}
    if not left:
        others = [entry for entry in status.get("conditions") or () if entry["type"] != "DisruptionAllowed"]
        change["conditions"] = [*others, {
            "type": "DisruptionAllowed", "status": "False", "observedGeneration": status.get("observedGeneration", 0),
            "lastTransitionTime": format_time(ctx.now), "reason": "InsufficientPods", "message": ""}]
    path = f"/apis/policy/v1/namespaces/{meta['namespace']}/poddisruptionbudgets/{meta['name']}/status"
    submit(ctx.cluster, "PATCH", path, {"status": change}, agent="kube-apiserver")


def _unready_may_go(pod: Object, budget: Object) -> bool:
    """Whether a Pod that is not ready may be evicted without an allowed disruption."""
    if "Ready" in true_conditions(pod["status"]):
        return False
    healthy, wanted = (budget["status"].get(key) or 0 for key in ("currentHealthy", "desiredHealthy"))
    return budget["spec"].get("unhealthyPodEvictionPolicy") == "AlwaysAllow" or healthy >= wanted > 0


def _check(budget: Object) -> None:
    name, status = budget["metadata"]["name"], budget["status"]
    if (status.get("observedGeneration") or 0) < budget["metadata"].get("generation", 0):
        raise _refusal(f"The disruption budget {name} is still being processed by the server.", _RETRY_AFTER)
    allowed = status.get("disruptionsAllowed") or 0
    if allowed < 0:
        raise errors.forbidden("policy", "poddisruptionbudget", name, "pdb disruptions allowed is negative")
    if allowed:
        return
    healthy, wanted = (status.get(key) or 0 for key in ("currentHealthy", "desiredHealthy"))
    why = (f"needs {wanted} healthy pods and has {healthy} currently" if healthy <= wanted
           else "does not allow evicting pods currently")
    raise _refusal(f"The disruption budget {name} {why}", 0)


def _refusal(why: str, retry_after: int) -> errors.StatusError:
    details = {"retryAfterSeconds": retry_after} if retry_after else {}
    return errors.StatusError(
        429, "TooManyRequests", "Cannot evict pod as it would violate the pod's disruption budget.", details=details,
        causes=[Cause("DisruptionBudget", why)], headers=[("Retry-After", str(retry_after))] if retry_after else [])
