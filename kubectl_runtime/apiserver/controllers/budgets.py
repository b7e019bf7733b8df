"""Controllers that only write computed values: status of PodDisruptionBudgets and ResourceQuotas, taints of Nodes.

A budget's status reports how many selected Pods are healthy, how many must be healthy, and how many may be
evicted (computed from both). With maxUnavailable or a percentage, `expectedPods` is the sum of replicas of the Pods'
controllers; otherwise it is the number of selected Pods.

A quota's status reports what its namespace uses. The quota is enforced even before its status is written
(policies/quotas.py).

Each bad condition of a Node becomes a taint with the effect NoSchedule. Nothing else of kube-controller-manager's
node-lifecycle-controller exists here: no Pod is evicted, and a Node without heartbeats does not become Unknown.
"""
from __future__ import annotations

import math
from datetime import datetime, timedelta
from typing import Any

from kubectl_runtime.apiserver.controllers.loop import KeyQueue
from kubectl_runtime.apiserver.kinds.base import dig, label_selector, true_conditions
from kubectl_runtime.apiserver.loopback import patch, patch_status
from kubectl_runtime.apiserver.policies.quotas import QUOTAS, text_of, usage
from kubectl_runtime.apiserver.storage import Bucket, Change, Cluster, Version
from kubectl_runtime.apiserver.wire import Object
from kubectl_runtime.core.meta.metav1 import format_time

BUDGETS, PODS = "policy/poddisruptionbudgets", "/pods"
_PATIENCE = timedelta(minutes=2)  # how long an evicted Pod may wait for its deletion and still count as disrupted


class DisruptionController(KeyQueue):
    """Writes the status of PodDisruptionBudgets."""

    name = "disruption"
    storage = BUDGETS
    kind = "PodDisruptionBudget"

    def _observe(self, bucket: Bucket, change: Change) -> None:
        super()._observe(bucket, change)
        if bucket.key in (PODS, *_SCALED.values()) and self._cluster is not None:
            budgets = self._cluster.storage.buckets.get(BUDGETS)
            if budgets is not None and budgets.objects:
                self._keys |= {version.key: None for version in budgets.scan(change.new.namespace)}

    def reconcile(self, cluster: Cluster, version: Version) -> None:
        """Count the Pods, and write the status if it changed."""
        if version.deleting:
            return
        budget = version.decode()
        spec, before, now = budget["spec"], budget.get("status") or {}, cluster.clock.now()
        selector = label_selector(spec.get("selector"))
        pods = [pod for pod in cluster.storage.bucket(PODS).scan(version.namespace)
                if selector is not None and selector.matches(pod.labels)
                and pod.fields.get("status.phase") not in ("Succeeded", "Failed")]
        expected, wanted = _bounds(cluster, version.namespace, spec, pods)
        states = {pod.name: true_conditions(pod.decode().get("status") or {}) for pod in pods if not pod.deleting}
        # A new Pod with the name of an evicted Pod has no condition DisruptionTarget.
        disrupted = {name: since for name, since in (before.get("disruptedPods") or {}).items()
                     if "DisruptionTarget" in states.get(name, ()) and datetime.fromisoformat(since) + _PATIENCE > now}
        healthy = sum("Ready" in state and name not in disrupted for name, state in states.items())
        allowed = max(0, healthy - wanted) if expected else 0
        if disrupted:
            self.look_later(cluster, version, _PATIENCE.total_seconds())
        _write(cluster, version, budget, {"currentHealthy": healthy, "desiredHealthy": wanted, "expectedPods": expected,
                                          "disruptionsAllowed": allowed, "disruptedPods": disrupted or None}, now)


_SCALED = {"ReplicaSet": "apps/replicasets", "StatefulSet": "apps/statefulsets", "Deployment": "apps/deployments",
           "ReplicationController": "/replicationcontrollers"}


def _bounds(cluster: Cluster, namespace: str, spec: Object, pods: list[Version]) -> tuple[int, int]:
    """The expected number of Pods, and the number of Pods that must be healthy."""
    least, most = spec.get("minAvailable"), spec.get("maxUnavailable")
    if most is not None:
        expected = _expected(cluster, namespace, pods)
        return expected, max(0, expected - _share(most, expected))
    if isinstance(least, str):
        expected = _expected(cluster, namespace, pods)
        return expected, _share(least, expected)
    return len(pods), least if least is not None else 1


def _share(value: Any, whole: int) -> int:
    return value if isinstance(value, int) else math.ceil(whole * int(str(value).rstrip("%")) / 100)


def _expected(cluster: Cluster, namespace: str, pods: list[Version]) -> int:
    """The sum of replicas of the Pods' controllers. A Deployment counts instead of its ReplicaSets."""
    wanted: dict[str, int] = {}
    for pod in pods:
        owner = next((ref for ref in pod.owners if ref.get("controller")), None)
        found = _controller(cluster, namespace, owner)
        if found is not None and (above := next((ref for ref in found.owners if ref.get("controller")), None)):
            found = _controller(cluster, namespace, above) or found
        if found is not None:
            wanted[found.uid] = int(dig(found.decode(), "spec.replicas") or 0)
    return sum(wanted.values())


def _controller(cluster: Cluster, namespace: str, owner: Object | None) -> Version | None:
    key = _SCALED.get((owner or {}).get("kind", ""))
    found = cluster.storage.get(key, namespace, owner["name"]) if key and owner else None
    return found if found is not None and owner is not None and found.uid == owner.get("uid") else None


def _write(cluster: Cluster, version: Version, budget: Object, counts: Object, now: datetime) -> None:
    before = budget.get("status") or {}
    allowed = counts["disruptionsAllowed"] > 0
    conditions = before.get("conditions") or ()
    known: Object = next((entry for entry in conditions if entry["type"] == "DisruptionAllowed"), {})
    state = "True" if allowed else "False"
    generation = budget["metadata"].get("generation", 1)
    since = known["lastTransitionTime"] if known.get("status") == state else format_time(now)
    condition = {"type": "DisruptionAllowed", "status": state, "observedGeneration": generation,
                 "reason": "SufficientPods" if allowed else "InsufficientPods", "message": "",
                 "lastTransitionTime": since}
    others = [entry for entry in conditions if entry["type"] != "DisruptionAllowed"]
    status = {**counts, "observedGeneration": generation, "conditions": [*others, condition]}
    gone = set(before.get("disruptedPods") or ()) - set(counts["disruptedPods"] or ())
    if gone and counts["disruptedPods"]:
        status["disruptedPods"] = {**counts["disruptedPods"], **dict.fromkeys(gone)}
    if any(before.get(key) != value for key, value in status.items()):
        patch_status(cluster, BUDGETS, version, status)


class QuotaController(KeyQueue):
    """Writes the status of ResourceQuotas."""

    name = "resourcequota"
    storage = QUOTAS
    kind = "ResourceQuota"

    def _observe(self, bucket: Bucket, change: Change) -> None:
        super()._observe(bucket, change)
        quotas = self._cluster.storage.buckets.get(QUOTAS) if self._cluster is not None else None
        if quotas is not None and quotas.objects and change.new.namespace:
            self._keys |= {version.key: None for version in quotas.scan(change.new.namespace)}

    def reconcile(self, cluster: Cluster, version: Version) -> None:
        """Write the namespace's usage if it changed."""
        quota = version.decode()
        hard = dig(quota, "spec.hard") or {}
        used = {name: text_of(amount, hard[name]) for name, amount in usage(cluster.storage, quota).items()}
        before = quota.get("status") or {}
        status = {"hard": hard, "used": used}
        if all(before.get(key, {}) == value for key, value in status.items()):
            return
        cleared = {key: {**dict.fromkeys(before.get(key) or ()), **value} for key, value in status.items()}
        patch_status(cluster, QUOTAS, version, cleared)


NODES = "/nodes"
_TAINTS = {("Ready", "False"): "not-ready", ("Ready", "Unknown"): "unreachable",
           ("MemoryPressure", "True"): "memory-pressure", ("DiskPressure", "True"): "disk-pressure",
           ("PIDPressure", "True"): "pid-pressure", ("NetworkUnavailable", "True"): "network-unavailable"}


class NodeLifecycleController(KeyQueue):
    """Writes the taints of Nodes."""

    name = "node-lifecycle"
    storage = NODES

    def reconcile(self, cluster: Cluster, version: Version) -> None:
        """Give a Node the taints that its conditions imply. A Node without reported conditions keeps its taints."""
        node = version.decode()
        conditions = (node.get("status") or {}).get("conditions") or ()
        if not any(entry["type"] == "Ready" for entry in conditions):
            return
        wanted = {f"node.kubernetes.io/{taint}" for entry in conditions
                  if (taint := _TAINTS.get((entry["type"], entry["status"])))}
        known = {f"node.kubernetes.io/{taint}" for taint in _TAINTS.values()}
        before = (node.get("spec") or {}).get("taints") or []
        own = {taint["key"] for taint in before if taint["key"] in known and taint.get("effect") == "NoSchedule"}
        if own == wanted:
            return
        taints = [taint for taint in before if taint["key"] not in own - wanted or taint.get("effect") != "NoSchedule"]
        taints += [{"key": key, "effect": "NoSchedule"} for key in sorted(wanted - own)]
        patch(cluster, NODES, version, {"spec": {"taints": taints or None}})
