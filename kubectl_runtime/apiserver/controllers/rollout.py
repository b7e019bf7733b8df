"""The arithmetic of a Deployment's rollout and status: sizes of ReplicaSets, counts, conditions. Pure functions.

A ReplicaSet's annotations record which size of the Deployment it was last scaled for: the desired replicas (`DESIRED`),
and the replicas including the surge (`MOST`). The annotations distinguish a changed size of the Deployment from a step
of a rollout. The status has counts and the conditions Available and Progressing.
"""
from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from kubectl_runtime.apiserver.kinds.base import dig
from kubectl_runtime.apiserver.wire import Object
from kubectl_runtime.core.meta.metav1 import format_time

DESIRED, MOST = "deployment.kubernetes.io/desired-replicas", "deployment.kubernetes.io/max-replicas"


@dataclass(frozen=True, slots=True)
class Limits:
    """The bounds of a rollout: wanted replicas, maximum surge, and maximum unavailable replicas."""

    replicas: int
    surge: int
    unavailable: int


@dataclass(frozen=True, slots=True)
class Size:
    """One ReplicaSet's replicas (from its spec), available replicas, and annotation ``max-replicas``."""

    replicas: int
    available: int
    annotated: int = 0


def limits_of(spec: Object) -> Limits:
    """The limits that a Deployment's spec sets. Only RollingUpdate allows a surge and unavailable replicas."""
    replicas = spec.get("replicas", 1)
    rolling = dig(spec, "strategy.rollingUpdate")
    if rolling is None or dig(spec, "strategy.type") == "Recreate":
        return Limits(replicas, 0, 0)
    surge = _share(rolling.get("maxSurge", 0), replicas, up=True)
    unavailable = _share(rolling.get("maxUnavailable", 0), replicas, up=False)
    if not surge and not unavailable:
        unavailable = 1  # with surge and unavailable both 0, the rollout could not start
    return Limits(replicas, surge, min(unavailable, replicas))


def _share(value: Any, whole: int, *, up: bool) -> int:
    if isinstance(value, int):
        return value
    part = whole * int(str(value).rstrip("%")) / 100
    return math.ceil(part) if up else math.floor(part)


def new_replicas(limits: Limits, new: int, others: int) -> int:
    """The next size of the newest ReplicaSet, which has `new` replicas while the older ones have `others`."""
    if new >= limits.replicas:
        return limits.replicas
    room = limits.replicas + limits.surge - new - others
    return new if room <= 0 else new + min(room, limits.replicas - new)


def old_replicas(limits: Limits, new: Size, old: Mapping[str, Size]) -> dict[str, int]:
    """The sizes of older ReplicaSets after one step down, oldest first. Only changed sizes are returned.

    Unavailable replicas are removed first, then available replicas as long as enough are left.
    """
    least = limits.replicas - limits.unavailable
    total = new.replicas + sum(size.replicas for size in old.values())
    budget = total - least - (new.replicas - new.available)
    sizes = {name: size.replicas for name, size in old.items()}
    if budget <= 0:
        return {}
    for name, size in old.items():
        step = min(budget, max(0, size.replicas - size.available))
        sizes[name] -= step
        budget -= step
    spare = new.available + sum(size.available for size in old.values()) - least
    for name, replicas in list(sizes.items()):
        step = min(replicas, max(0, spare))
        sizes[name] -= step
        spare -= step
    return {name: size for name, size in sizes.items() if size != old[name].replicas}


def proportional(limits: Limits, sizes: Mapping[str, Size]) -> dict[str, int]:
    """The new sizes of several ReplicaSets (largest first) when the Deployment is scaled during a rollout."""
    total = sum(size.replicas for size in sizes.values())
    allowed = limits.replicas + limits.surge if limits.replicas else 0
    left = allowed - total
    result = {name: size.replicas for name, size in sizes.items()}
    if not left:
        return result
    for name, size in sizes.items():
        share = round(size.replicas * (limits.replicas + limits.surge) / (size.annotated or total)) - size.replicas
        step = min(share, left) if left > 0 else max(share, left)
        result[name] = max(0, size.replicas + step)
        left -= step
    first: Sequence[str] = list(result)[:1]
    for name in first:
        result[name] = max(0, result[name] + left)
    return result


NEVER = (1 << 31) - 1  # the progressDeadlineSeconds of a Deployment without a deadline
_COUNTS = ("replicas", "updatedReplicas", "readyReplicas", "availableReplicas", "unavailableReplicas")


def condition(status: Object, kind: str) -> Object | None:
    return next((entry for entry in status.get("conditions") or () if entry["type"] == kind), None)


def set_condition(status: Object, kind: str, state: str, reason: str, message: str, now: str, *,
                  renew: bool = False) -> None:
    """Set a condition and move it to the end of the list. If the condition already has this state and reason, change it
    only with `renew`."""
    known = condition(status, kind)
    if known and known["status"] == state and known["reason"] == reason and not renew:
        return
    since = known["lastTransitionTime"] if known and known["status"] == state else now
    status["conditions"] = [entry for entry in status.get("conditions") or () if entry["type"] != kind] + [
        {"type": kind, "status": state, "lastUpdateTime": now, "lastTransitionTime": since, "reason": reason,
         "message": message}]


def counted(deployment: Object, sets: Iterable[Object], newest: Object | None, limits: Limits, now: str) -> Object:
    """The status computed from the ReplicaSets: the counts and the condition Available. Progressing is unchanged."""
    statuses = [replica_set.get("status") or {} for replica_set in sets]
    sums = {key: sum(status.get(key, 0) for status in statuses)
            for key in ("replicas", "readyReplicas", "availableReplicas", "terminatingReplicas")}
    wanted = sum(replica_set["spec"].get("replicas", 1) for replica_set in sets)
    status: Object = {
        "observedGeneration": deployment["metadata"].get("generation", 1), **sums,
        "updatedReplicas": ((newest or {}).get("status") or {}).get("replicas", 0),
        "unavailableReplicas": max(0, wanted - sums["availableReplicas"]),
        "conditions": list(dig(deployment, "status.conditions") or ())}
    if sums["availableReplicas"] >= limits.replicas - limits.unavailable:
        set_condition(status, "Available", "True", "MinimumReplicasAvailable", "Deployment has minimum availability.",
                      now)
    else:
        set_condition(status, "Available", "False", "MinimumReplicasUnavailable",
                      "Deployment does not have minimum availability.", now)
    return status


def complete(deployment: Object, status: Object) -> bool:
    replicas = deployment["spec"].get("replicas", 1)
    return bool(status["updatedReplicas"] == status["replicas"] == status["availableReplicas"] == replicas)


def tell_progress(deployment: Object, status: Object, newest: Object | None, now: datetime) -> float | None:
    """Set the condition Progressing. Returns the seconds until the progress deadline, or None without a deadline."""
    deadline: float = deployment["spec"].get("progressDeadlineSeconds", NEVER)
    if deadline == NEVER:
        status["conditions"] = [entry for entry in status["conditions"] if entry["type"] != "Progressing"]
        return None
    known = condition(status, "Progressing")
    if known and known["reason"] == "NewReplicaSetAvailable" and status["replicas"] == status["updatedReplicas"]:
        return None
    name = f'ReplicaSet "{newest["metadata"]["name"]}"' if newest else f'Deployment "{deployment["metadata"]["name"]}"'
    before, moment = deployment.get("status") or {}, format_time(now)
    if complete(deployment, status):
        set_condition(status, "Progressing", "True", "NewReplicaSetAvailable",
                      f"{name} has successfully progressed.", moment)
        return None
    if _progressing(before, status):
        set_condition(status, "Progressing", "True", "ReplicaSetUpdated", f"{name} is progressing.", moment, renew=True)
        return deadline
    if known is None or known["reason"] in ("NewReplicaSetAvailable", "ProgressDeadlineExceeded", "DeploymentPaused"):
        return None
    left = deadline - (now - datetime.fromisoformat(known["lastUpdateTime"])).total_seconds()
    if left < 0:
        set_condition(status, "Progressing", "False", "ProgressDeadlineExceeded",
                      f"{name} has timed out progressing.", moment)
        return None
    return float(left) + 1


def _progressing(before: Object, status: Object) -> bool:
    """Whether more Pods are updated, ready or available, or fewer old Pods exist, than in the previous status."""
    def old(counts: Object) -> int:
        return int(counts.get("replicas", 0) - counts.get("updatedReplicas", 0))

    return old(status) < old(before) or any(status[key] > before.get(key, 0) for key in (
        "updatedReplicas", "readyReplicas", "availableReplicas"))


def change_of(status: Object) -> Object:
    """A merge patch that sets `status` and removes its zero counts, except the count of terminating Pods."""
    return {key: None if key in _COUNTS and not value else value for key, value in status.items()}


def differs(status: Object, before: Object) -> bool:
    return any(before.get(key) != value for key, value in change_of(status).items())
