"""ReplicaSets make Pods, adopt those that their selector matches, and delete those that are too many.

Without the controller ``kubelet`` no Pod ever runs: a test that wants ready Pods writes their status, and the counts
follow.

Controllers adopt orphans that their selector matches, and release children that it no longer matches.
"""
from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

import msgspec

from kubectl_runtime.apiserver.controllers.loop import PER_STEP, KeyQueue, tell
from kubectl_runtime.apiserver.kinds.base import dig, label_selector
from kubectl_runtime.apiserver.loopback import delete, patch, path_of, served_type, submit
from kubectl_runtime.apiserver.storage.registry import ServedResource
from kubectl_runtime.apiserver.storage.storage import Cluster, Version

Object = dict[str, Any]

AGENT = "kube-controller-manager"
_API_VERSIONS = {"Job": "batch/v1", "CronJob": "batch/v1"}  # others are of apps/v1


def owner_reference(owner: Version, kind: str) -> Object:
    """The reference of a child to its controller."""
    return {"apiVersion": _API_VERSIONS.get(kind, "apps/v1"), "kind": kind, "name": owner.name, "uid": owner.uid,
            "controller": True, "blockOwnerDeletion": True}


def claim(cluster: Cluster, owner: Version, kind: str, selector: Object, children: str, *,
          fits: Callable[[Version], bool] = lambda _: True) -> list[Version]:
    """The objects of a type that an owner controls, after it has adopted and released what it should. Objects that do
    not fit are no children, whatever their labels are."""
    matches, claimed = label_selector(selector), []
    for child in list(cluster.storage.bucket(children).scan(owner.namespace)):
        controller = None
        for ref in child.owners:  # no generator: most children are another's, and there are many
            if ref.get("controller"):
                controller = ref
                break
        if controller is not None and controller.get("uid") != owner.uid:
            continue
        matching = matches is not None and matches.matches(child.labels) and fits(child)
        if controller is None:
            if not matching or owner.deleting or child.deleting:
                continue
            kept = [*child.owners, owner_reference(owner, kind)]
        elif matching or owner.deleting:
            claimed.append(child)
            continue
        else:
            kept = [ref for ref in child.owners if ref.get("uid") != owner.uid]
        change = {"metadata": {"ownerReferences": kept or None}}
        patch(cluster, served_type(cluster, children), child, change, agent=AGENT)
        if controller is None and (adopted := cluster.storage.get(children, child.namespace, child.name)) is not None:
            claimed.append(adopted)
    return claimed


REPLICA_SETS, PODS = "apps/replicasets", "/pods"
COMPONENT = "replicaset-controller"
DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"
_ENDED = ("Succeeded", "Failed")
_PHASES = {"Pending": 0, "Unknown": 1, "Running": 2}


class ReplicaSetController(KeyQueue):
    """Makes and deletes Pods until there are as many as wanted."""

    name = "replicaset"
    storage = REPLICA_SETS
    kind = "ReplicaSet"
    children = (PODS,)

    def reconcile(self, cluster: Cluster, version: Version) -> None:
        """Adopt, release, make or delete Pods, then tell the status."""
        replica_set = version.decode()
        spec = replica_set["spec"]
        claimed = [(pod, pod.decode()) for pod in claim(cluster, version, self.kind, spec["selector"], PODS)]
        current = [(pod, obj) for pod, obj in claimed if dig(obj, "status.phase") not in _ENDED]
        active = [(pod, obj) for pod, obj in current if not pod.deleting]
        missing = spec.get("replicas", 1) - len(active)
        if missing and not version.deleting:
            own, pods = served_type(cluster, REPLICA_SETS), served_type(cluster, PODS)
            if own is None or pods is None:
                return
            for _ in range(min(missing, PER_STEP)):
                self._make(cluster, own, pods, version, spec["template"])
            for pod, _ in sorted(active, key=lambda entry: _rank(*entry))[:-missing] if missing < 0 else ():
                delete(cluster, pods, pod, agent=AGENT)
                tell(cluster, own, version, "SuccessfulDelete", f"Deleted pod: {pod.name}", component=COMPONENT)
            return  # the changes of the Pods come back here
        wait = spec.get("minReadySeconds", 0)
        ages = [ready_for(obj, cluster.clock.now()) for _, obj in active]
        template = dig(spec, "template.metadata.labels") or {}
        _write_status(cluster, version, replica_set, {
            "replicas": len(active),
            "fullyLabeledReplicas": sum(template.items() <= pod.labels.items() for pod, _ in active),
            "readyReplicas": sum(age is not None for age in ages),
            "availableReplicas": sum(age is not None and age >= wait for age in ages),
            "terminatingReplicas": len(current) - len(active)})
        if young := [age for age in ages if age is not None and age < wait]:
            self.look_later(cluster, version, wait - max(young))

    @staticmethod
    def _make(cluster: Cluster, own: ServedResource, pods: ServedResource, owner: Version, template: Object) -> None:
        metadata = {key: value for key, value in (template.get("metadata") or {}).items()
                    if key in ("labels", "annotations", "finalizers")}
        made = submit(cluster, "POST", path_of(pods, owner.namespace), {
            "apiVersion": "v1", "kind": "Pod", "spec": template["spec"],
            "metadata": {**metadata, "generateName": f"{owner.name}-",
                         "ownerReferences": [owner_reference(owner, "ReplicaSet")]}}, agent=AGENT)
        if made is not None:
            name = msgspec.json.decode(made.body)["metadata"]["name"]
            tell(cluster, own, owner, "SuccessfulCreate", f"Created pod: {name}", component=COMPONENT)


def _condition(pod: Object) -> Object | None:
    return next((entry for entry in dig(pod, "status.conditions") or () if entry.get("type") == "Ready"
                 and entry.get("status") == "True"), None)


def ready_for(pod: Object, now: datetime) -> float | None:
    """How many seconds a Pod has been ready; None if it is not."""
    ready = _condition(pod)
    if ready is None:
        return None
    since = ready.get("lastTransitionTime")
    return (now - datetime.fromisoformat(since)).total_seconds() if since else 0.0


def _rank(version: Version, pod: Object) -> tuple[Any, ...]:
    """Which Pods go first: without node, not running, not ready, cheap, ready or made only lately."""
    ready = _condition(pod)
    cost = dig(pod, "metadata.annotations") or {}
    restarts = sum(entry.get("restartCount", 0) for entry in dig(pod, "status.containerStatuses") or ())
    since = (ready or {}).get("lastTransitionTime") or ""
    return (bool(dig(pod, "spec.nodeName")), _PHASES.get(dig(pod, "status.phase"), 0), ready is not None,
            int(cost.get(DELETION_COST, "0")), _latest_first(since), -restarts,
            _latest_first(pod["metadata"]["creationTimestamp"]), -version.rv)


def _latest_first(moment: str) -> float:
    return -datetime.fromisoformat(moment).timestamp() if moment else 0.0


def _write_status(cluster: Cluster, version: Version, obj: Object, counts: Object) -> None:
    """Write what changed; zeros are left out but for the number of replicas and of those that end."""
    kept = {key: value for key, value in counts.items() if value or key in ("replicas", "terminatingReplicas")}
    wanted = {**kept, "observedGeneration": obj["metadata"].get("generation", 1)}
    before = obj.get("status") or {}
    if {key: value for key, value in before.items() if key != "conditions"} != wanted:
        cleared = {key: None for key in counts if key not in kept}
        patch(cluster, served_type(cluster, REPLICA_SETS), version, {"status": {**cleared, **wanted}}, agent=AGENT,
              subresource="status")
