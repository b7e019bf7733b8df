"""When a workload is ready: a function for each kind, from the object to what is still missing, empty when nothing is.

    Deployment, StatefulSet, DaemonSet    the latest version is rolled out: kubectl's `rollout status`
    ReplicaSet, ReplicationController     all replicas are ready
    Job                                   complete; one that is suspended need not be
    Pod                                   ready, or succeeded

What has failed for good raises `NeverReady`: there is no sense in waiting on. A claim for a volume is not waited for,
since many are only bound when a Pod uses them, and that Pod is waited for. Pure functions on plain JSON values.
Source of the three rollouts: kubectl's `pkg/polymorphichelpers/rollout_status.go`, with two additions: a Deployment
that is paused is as ready as it gets, and with the strategy OnDelete only the number of ready replicas counts.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from kubectl_runtime.core.base.errors import KubeError
from kubectl_runtime.core.meta.gvk import GroupVersionKind
from kubectl_runtime.core.objects.resource import Resource
from kubectl_runtime.runtime.parts import condition_of, holds, is_current, mapping, number_of, part_of

Missing: TypeAlias = Callable[[Any], str]
"""From the object, or None while it does not exist, to what is missing; empty when nothing is."""

ABSENT = "it does not exist"


class NeverReady(KubeError):
    """What an object has come to is its end, and is not ready: for example a Job that failed."""


def rule_of(gvk: GroupVersionKind) -> Missing | None:
    """What is missing of an object of this kind; None for a kind of which nothing is known."""
    return RULES.get((gvk.group, gvk.kind))


def rollout_failure(obj: Any) -> str:
    """Why the latest rollout of a Deployment failed; empty while it has not."""
    progressing = condition_of(obj, "Progressing")
    if progressing.get("reason") != "ProgressDeadlineExceeded" or not is_current(obj, progressing):
        return ""
    return f"it exceeded its progress deadline: {progressing.get('message') or ''}"


def job_failure(obj: Any) -> str:
    """Why a Job failed; empty while it has not."""
    if not holds(obj, "Failed"):
        return ""
    failed = condition_of(obj, "Failed")
    return f"the Job failed: {failed.get('reason') or ''}: {failed.get('message') or ''}"


def names_refused(obj: Any) -> str:
    """Why the names of a CustomResourceDefinition are not accepted, so that it is not established; empty otherwise."""
    if holds(obj, "Established") or not holds(obj, "NamesAccepted", "False"):
        return ""
    names = condition_of(obj, "NamesAccepted")
    return f"its names are taken: {names.get('reason')}: {names.get('message')}"


def _deployment(obj: Any) -> str:
    spec, status = part_of(obj, "spec"), part_of(obj, "status")
    if spec.get("paused"):
        return ""
    if why := rollout_failure(obj):
        raise NeverReady(why)
    wanted, updated = number_of(spec, "replicas", 1), number_of(status, "updatedReplicas")
    total, available = number_of(status, "replicas"), number_of(status, "availableReplicas")
    if updated < wanted:
        return f"{updated} of {wanted} replicas are updated"
    if total > updated:
        return f"{total - updated} old replicas are still there"
    return "" if available >= updated else f"{available} of {updated} updated replicas are available"


def _stateful_set(obj: Any) -> str:
    spec, status = part_of(obj, "spec"), part_of(obj, "status")
    strategy = mapping(spec.get("updateStrategy"))
    wanted, ready = number_of(spec, "replicas", 1), number_of(status, "readyReplicas")
    if ready < wanted:
        return f"{ready} of {wanted} replicas are ready"
    if strategy.get("type") == "OnDelete":
        return ""
    updated = number_of(status, "updatedReplicas")
    if partition := number_of(mapping(strategy.get("rollingUpdate")), "partition"):
        return "" if updated >= wanted - partition else f"{updated} of {wanted - partition} replicas are updated"
    if status.get("updateRevision") != status.get("currentRevision"):
        return f"{updated} of {wanted} replicas are updated"
    return ""


def _daemon_set(obj: Any) -> str:
    status = part_of(obj, "status")
    wanted = number_of(status, "desiredNumberScheduled")
    updated, available = number_of(status, "updatedNumberScheduled"), number_of(status, "numberAvailable")
    on_delete = mapping(part_of(obj, "spec").get("updateStrategy")).get("type") == "OnDelete"
    if updated < wanted and not on_delete:
        return f"{updated} of {wanted} Pods are updated"
    return "" if available >= wanted else f"{available} of {wanted} Pods are available"


def _replicas(obj: Any) -> str:
    wanted, ready = number_of(part_of(obj, "spec"), "replicas", 1), number_of(part_of(obj, "status"), "readyReplicas")
    return "" if ready >= wanted else f"{ready} of {wanted} replicas are ready"


def _job(obj: Any) -> str:
    if why := job_failure(obj):
        raise NeverReady(why)
    if holds(obj, "Complete") or part_of(obj, "spec").get("suspend"):
        return ""
    status = part_of(obj, "status")
    return (f"it is not complete: {number_of(status, 'active')} active, {number_of(status, 'succeeded')} succeeded, "
            f"{number_of(status, 'failed')} failed")


def _pod(obj: Any) -> str:
    phase = part_of(obj, "status").get("phase") or "Pending"
    if phase == "Failed":
        raise NeverReady(f"the Pod failed: {part_of(obj, 'status').get('reason') or 'see its containers'}")
    if phase == "Succeeded" or holds(obj, "Ready"):
        return ""
    return f"it is {phase} and not ready"


def _observed(missing: Missing, *, always: bool = True) -> Missing:
    """Asked only about a status that speaks of the latest generation. `always`: the controller always says of which."""
    def checked(obj: Resource | None) -> str:
        if obj is None:
            return ABSENT
        generation = obj.generation or 0
        if number_of(part_of(obj, "status"), "observedGeneration", otherwise=-1 if always else generation) < generation:
            return "its controller has not seen the latest change"
        return missing(obj)

    return checked


RULES: dict[tuple[str, str], Missing] = {
    ("apps", "Deployment"): _observed(_deployment),
    ("apps", "StatefulSet"): _observed(_stateful_set),
    ("apps", "DaemonSet"): _observed(_daemon_set),
    ("apps", "ReplicaSet"): _observed(_replicas),
    ("", "ReplicationController"): _observed(_replicas),
    ("batch", "Job"): _observed(_job, always=False),
    ("", "Pod"): _observed(_pod, always=False),
}
"""By group and kind."""
