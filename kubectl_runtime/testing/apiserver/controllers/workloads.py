"""Deployments make ReplicaSets, ReplicaSets make Pods: as far as a cluster without nodes goes.

No Pod ever runs, since there is no kubelet: a test that wants ready Pods writes their status, and the counts follow. A
rollout goes from the old ReplicaSets to the new one at once; surge and pauses between steps are not imitated.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

from kubectl_runtime.testing.apiserver.controllers.client import delete, patch, path_of, served_type, submit
from kubectl_runtime.testing.apiserver.controllers.queue import PER_STEP, KeyQueue, controlled
from kubectl_runtime.testing.apiserver.negotiation import encode
from kubectl_runtime.testing.apiserver.storage import Version

if TYPE_CHECKING:
    from kubectl_runtime.testing.apiserver.core import ApiCore

Object = dict[str, Any]

DEPLOYMENTS, REPLICA_SETS, PODS = "apps/deployments", "apps/replicasets", "/pods"
REVISION = "deployment.kubernetes.io/revision"
HASH_LABEL = "pod-template-hash"
AGENT = "kube-controller-manager"
_HASH_ALPHABET = "bcdf56789h"  # ten of the characters that generated names use


def owner_reference(owner: Version, kind: str) -> Object:
    """The reference of a child to its controller."""
    return {"apiVersion": "apps/v1", "kind": kind, "name": owner.name, "uid": owner.uid, "controller": True,
            "blockOwnerDeletion": True}


def template_hash(template: Object) -> str:
    """A short name for a Pod template; equal templates have equal ones."""
    digest = hashlib.sha256(encode(template)).digest()
    return "".join(_HASH_ALPHABET[byte % len(_HASH_ALPHABET)] for byte in digest[:10])


class DeploymentController(KeyQueue):
    """Keeps one ReplicaSet for a Deployment's template and scales the others down."""

    name = "deployment"
    storage = DEPLOYMENTS
    kind = "Deployment"
    children = (REPLICA_SETS,)

    def reconcile(self, core: ApiCore, version: Version) -> None:
        """Make or scale ReplicaSets, then tell the status."""
        if version.deleting:
            return
        deployment = version.decode()
        spec = deployment["spec"]
        found = {replica_set.labels.get(HASH_LABEL, ""): replica_set
                 for replica_set in controlled(core, REPLICA_SETS, version)}
        name = template_hash(spec["template"])
        revisions = {hashed: _revision(replica_set) for hashed, replica_set in found.items()}
        newest = max(revisions.values(), default=0)
        if not spec.get("paused"):
            if name not in found:
                self._make(core, version, spec, name, revision=newest + 1)
                return  # its creation comes back here
            if revisions[name] < newest:  # back to an older template: that is a new revision
                patch(core, _type(core, REPLICA_SETS), found[name], _revised(newest + 1), agent=AGENT)
                return
            self._scale(core, found, name, spec.get("replicas", 1))
        self._tell(core, version, deployment, found, name)

    @staticmethod
    def _make(core: ApiCore, owner: Version, spec: Object, name: str, *, revision: int) -> None:
        template = spec["template"]
        labels = {**template.get("metadata", {}).get("labels", {}), HASH_LABEL: name}
        selector = {**spec["selector"], "matchLabels": {**spec["selector"].get("matchLabels", {}), HASH_LABEL: name}}
        submit(core, "POST", path_of(_type(core, REPLICA_SETS), owner.namespace), {
            "apiVersion": "apps/v1", "kind": "ReplicaSet",
            "metadata": {"name": f"{owner.name}-{name}", "labels": labels, "annotations": {REVISION: str(revision)},
                         "ownerReferences": [owner_reference(owner, "Deployment")]},
            "spec": {"replicas": spec.get("replicas", 1), "selector": selector,
                     "template": {**template, "metadata": {**template.get("metadata", {}), "labels": labels}}}},
                     agent=AGENT)

    @staticmethod
    def _scale(core: ApiCore, found: dict[str, Version], current: str, replicas: int) -> None:
        for name, replica_set in found.items():
            wanted = replicas if name == current else 0
            if not replica_set.deleting and replica_set.decode()["spec"].get("replicas") != wanted:
                patch(core, _type(core, REPLICA_SETS), replica_set, {"spec": {"replicas": wanted}}, agent=AGENT)

    @staticmethod
    def _tell(core: ApiCore, version: Version, deployment: Object, found: dict[str, Version], current: str) -> None:
        statuses = {name: replica_set.decode().get("status", {}) for name, replica_set in found.items()}
        total = sum(status.get("replicas", 0) for status in statuses.values())
        available = sum(status.get("availableReplicas", 0) for status in statuses.values())
        counts = {"replicas": total, "updatedReplicas": statuses.get(current, {}).get("replicas", 0),
                  "readyReplicas": sum(status.get("readyReplicas", 0) for status in statuses.values()),
                  "availableReplicas": available,
                  "unavailableReplicas": max(0, deployment["spec"].get("replicas", 1) - available)}
        revision = _revised(_revision(found[current])) if current in found else {}
        _write_status(core, DEPLOYMENTS, version, deployment, counts, revision)


class ReplicaSetController(KeyQueue):
    """Makes and deletes Pods until there are as many as wanted."""

    name = "replicaset"
    storage = REPLICA_SETS
    kind = "ReplicaSet"
    children = (PODS,)

    def reconcile(self, core: ApiCore, version: Version) -> None:
        """Make or delete Pods, then tell the status."""
        replica_set = version.decode()
        pods = [(pod, pod.decode()) for pod in controlled(core, PODS, version, lambda pod: not pod.deleting)]
        active = [(pod, obj) for pod, obj in pods if obj.get("status", {}).get("phase") not in ("Succeeded", "Failed")]
        if not version.deleting:
            missing = replica_set["spec"].get("replicas", 1) - len(active)
            for _ in range(min(missing, PER_STEP)):
                self._make(core, version, replica_set["spec"]["template"])
            for pod, _ in active[len(active) + missing:] if missing < 0 else ():
                delete(core, _type(core, PODS), pod, agent=AGENT)
            if missing:
                return  # the changes of the Pods come back here
        ready = sum(1 for _, obj in active if _is_ready(obj))
        counts = {"replicas": len(active), "fullyLabeledReplicas": len(active), "readyReplicas": ready,
                  "availableReplicas": ready}
        _write_status(core, REPLICA_SETS, version, replica_set, counts)

    @staticmethod
    def _make(core: ApiCore, owner: Version, template: Object) -> None:
        metadata = {key: value for key, value in template.get("metadata", {}).items()
                    if key in ("labels", "annotations")}
        submit(core, "POST", path_of(_type(core, PODS), owner.namespace), {
            "apiVersion": "v1", "kind": "Pod", "spec": template["spec"],
            "metadata": {**metadata, "generateName": f"{owner.name}-",
                         "ownerReferences": [owner_reference(owner, "ReplicaSet")]}}, agent=AGENT)


def _is_ready(pod: Object) -> bool:
    return any(condition.get("type") == "Ready" and condition.get("status") == "True"
               for condition in pod.get("status", {}).get("conditions") or ())


def _type(core: ApiCore, storage: str) -> Any:
    return served_type(core, storage)


def _revision(version: Version) -> int:
    """The revision of a ReplicaSet, 0 if it has none."""
    text = version.decode()["metadata"].get("annotations", {}).get(REVISION, "")
    return int(text) if text.isdecimal() else 0


def _revised(revision: int) -> Object:
    """The change that notes a revision."""
    return {"metadata": {"annotations": {REVISION: str(revision)}}}


def _write_status(core: ApiCore, storage: str, version: Version, obj: Object, counts: Object,
                  revision: Object | None = None) -> None:
    """Write what changed of counts and revision; zeros are left out but for terminatingReplicas and a ReplicaSet's
    replicas."""
    kept = {key: value for key, value in counts.items() if value or (key == "replicas" and storage == REPLICA_SETS)}
    status = {"observedGeneration": obj["metadata"].get("generation", 1), **kept, "terminatingReplicas": 0}
    before, keys = obj.get("status") or {}, (*counts, *status)
    wanted = ((revision or {}).get("metadata") or {}).get("annotations", {})
    noted = obj["metadata"].get("annotations", {})
    if (all(noted.get(key) == value for key, value in wanted.items())
            and {key: before.get(key, 0) for key in keys} == {key: status.get(key, 0) for key in keys}):
        return
    cleared = {key: None for key in counts if key not in kept}
    change = {**(revision or {}), "status": {**cleared, **status}}
    patch(core, _type(core, storage), version, change, agent=AGENT, subresource="status")
