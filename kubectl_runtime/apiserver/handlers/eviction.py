"""Eviction of a Pod: a delete that PodDisruptionBudgets may refuse, and that first tells why in the Pod's conditions.

A Pod that is not (or no longer) running disturbs nobody: it goes whatever the budgets say. A Pod that is not ready goes
if its budget has enough healthy ones. Otherwise the one budget that selects it must allow a disruption, which is then
counted there; no controller counts it back, so a test writes the budget's status.
"""

from __future__ import annotations

from typing import Any

from kubectl_runtime.apiserver import errors
from kubectl_runtime.apiserver.context import RequestContext
from kubectl_runtime.apiserver.errors import Cause
from kubectl_runtime.apiserver.handlers.answers import answer_success, stored
from kubectl_runtime.apiserver.handlers.delete import check_preconditions, remove
from kubectl_runtime.apiserver.handlers.pod_subresources import read_request
from kubectl_runtime.apiserver.kinds.base import label_selector, true_conditions
from kubectl_runtime.apiserver.loopback import submit
from kubectl_runtime.apiserver.query.delete_options import checked
from kubectl_runtime.apiserver.query.options import write_options
from kubectl_runtime.apiserver.storage.storage import Version
from kubectl_runtime.apiserver.webhooks.attempts import attempt, still
from kubectl_runtime.apiserver.webhooks.chain import admit_unstored
from kubectl_runtime.apiserver.wire import HttpResponse
from kubectl_runtime.core.meta.metav1 import format_time

Object = dict[str, Any]

BUDGETS = ("policy", "poddisruptionbudgets")
_UNGUARDED = ("Succeeded", "Failed", "Pending")
_RETRY_AFTER = 10  # seconds, while the budget's controller has not seen its last change


def evict(ctx: RequestContext) -> HttpResponse:
    """Delete a Pod by way of an Eviction."""
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
            still(ctx, current)  # the budget is another object, about which webhooks are asked too
            current = _tell(ctx, current, pod)
        if wanted.get("resourceVersion"):
            raw["preconditions"]["resourceVersion"] = str(current.rv)  # the eviction's own change is no other's
        remove(ctx, current, checked(raw), asks=False)  # webhooks were asked about the eviction

    attempt(ctx, write)
    return answer_success(ctx)


def _tell(ctx: RequestContext, current: Version, pod: Object) -> Version:
    """Store the condition that announces the disruption, if it is not there yet."""
    conditions = list(pod["status"].get("conditions") or ())
    wanted = {"type": "DisruptionTarget", "status": "True", "lastProbeTime": None,
              "lastTransitionTime": format_time(ctx.now), "reason": "EvictionByEvictionAPI",
              "message": "Eviction API: evicting"}
    if wanted["type"] in true_conditions(pod["status"]):
        return current
    pod["status"]["conditions"] = [entry for entry in conditions if entry.get("type") != wanted["type"]] + [wanted]
    return ctx.cluster.storage.put(ctx.type.storage, pod, current.fields)


def _ask_budgets(ctx: RequestContext, current: Version, pod: Object, *, dry_run: bool) -> None:
    """Raises what refuses the eviction; counts it in the budget otherwise."""
    budgets = [budget for budget in ctx.objects(*BUDGETS) if budget["metadata"]["namespace"] == ctx.namespace
               and (selector := label_selector(budget["spec"].get("selector"))) is not None
               and selector.matches(current.labels)]
    if len(budgets) > 1:
        raise errors.bare_500("This pod has more than one PodDisruptionBudget, which the eviction subresource does not "
                              "support.")
    if not budgets or _unready_may_go(pod, budgets[0]):
        return
    budget = budgets[0]
    _check(budget)
    if not dry_run:
        _count(ctx, budget, current.name)


def _count(ctx: RequestContext, budget: Object, pod: str) -> None:
    """Note the disruption in the budget's status, as the server's own client."""
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
    """Whether a Pod that is not ready goes without asking how many disruptions are allowed."""
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
