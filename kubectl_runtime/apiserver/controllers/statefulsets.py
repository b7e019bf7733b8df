"""StatefulSets create numbered Pods, one after the other or in parallel, each with its own claims.

One step of the controller for a StatefulSet:

- A Pod that has ended is deleted, and created again under its name.
- A missing Pod is created with its claims. With OrderedReady, a Pod is created only when all Pods with lower ordinals
  are available.
- If there are too many Pods, the Pod with the highest ordinal is deleted. With OrderedReady, Pods are deleted one at a
  time, when the others are healthy.
- After a change of the template, RollingUpdate deletes one Pod of an old revision, as soon as all Pods with higher
  ordinals are healthy. This is the Pod with the highest ordinal, and ordinals below `partition` are left out. OnDelete
  deletes nothing. If a client deletes a Pod, the Pod is created again with the new template.

With the persistentVolumeClaimRetentionPolicy Retain, claims stay. With Delete, the set or the deleted Pod owns the
claims, and the garbage collector deletes them. Each write of the controller enqueues the StatefulSet again,
which leads to the next step.
"""
from __future__ import annotations

from kubectl_runtime.apiserver.controllers import revisions
from kubectl_runtime.apiserver.controllers.deployments import (
    ENDED,
    PODS,
    claim,
    owner_reference,
    pod_metadata,
    ready_for,
)
from kubectl_runtime.apiserver.controllers.loop import PER_STEP, KeyQueue, record_event
from kubectl_runtime.apiserver.controllers.revisions import HASH, Revision
from kubectl_runtime.apiserver.kinds.base import dig
from kubectl_runtime.apiserver.loopback import create, delete, patch, patch_status
from kubectl_runtime.apiserver.storage import Bucket, Change, Cluster, Version
from kubectl_runtime.apiserver.wire import Object

SETS, CLAIMS = "apps/statefulsets", "/persistentvolumeclaims"
COMPONENT = "statefulset-controller"
POD_NAME, POD_INDEX = "statefulset.kubernetes.io/pod-name", "apps.kubernetes.io/pod-index"


class Member:
    """One Pod of a set."""

    def __init__(self, version: Version, ordinal: int, cluster: Cluster, wait: float) -> None:
        self.version, self.ordinal, self.obj = version, ordinal, version.decode()
        phase = dig(self.obj, "status.phase")
        self.ended = phase in ENDED
        ready = ready_for(self.obj, cluster.clock.now()) if phase == "Running" else None
        self.ready = ready is not None
        self.waits = None if ready is None or ready >= wait else wait - ready
        self.available = self.ready and self.waits is None
        self.revision = version.labels.get(HASH, "")

    @property
    def healthy(self) -> bool:
        """Whether the Pod is ready and not being deleted."""
        return self.ready and not self.version.deleting


class StatefulSetController(KeyQueue):
    name = "statefulset"
    storage = SETS
    kind = "StatefulSet"
    children = (PODS,)

    def _observe(self, bucket: Bucket, change: Change) -> None:
        super()._observe(bucket, change)
        if bucket.key == CLAIMS and change.deleted:  # a Pod may need the claim again
            self._keys |= {version.key: None for version in
                           self._cluster.storage.bucket(SETS).scan(change.new.namespace)} if self._cluster else {}

    def reconcile(self, cluster: Cluster, version: Version) -> None:
        obj = version.decode()
        spec, before = obj["spec"], obj.get("status") or {}
        known = revisions.newest(cluster, version, self.kind, obj, label="controller.kubernetes.io/hash")
        if not known:
            return
        update = known[-1]
        current = next((one for one in known if one.name == before.get("currentRevision")), update)
        members = self._members(cluster, version, spec)
        status = _status(obj, before, members, current, update)
        if _differs(status, before):
            patch_status(cluster, SETS, version, status)
        if version.deleting:
            return
        current = next((one for one in known if one.name == status["currentRevision"]), update)
        own = OneSet(cluster, version, obj, members, current, update)
        own.keep_claims()
        if not own.advance():
            revisions.forget(cluster, known, {current.name, update.name, *(one.revision for one in members.values())},
                             spec.get("revisionHistoryLimit", 10))
        if waits := [one.waits for one in members.values() if one.waits is not None]:
            self.look_later(cluster, version, min(waits))

    def _members(self, cluster: Cluster, version: Version, spec: Object) -> dict[int, Member]:
        wait, found = spec.get("minReadySeconds", 0), {}
        for pod in claim(cluster, version, self.kind, spec["selector"], PODS,
                         fits=lambda pod: ordinal_of(version.name, pod.name) is not None):
            ordinal = ordinal_of(version.name, pod.name)
            if ordinal is not None:
                found[ordinal] = Member(pod, ordinal, cluster, wait)
        return found


def ordinal_of(owner: str, pod: str) -> int | None:
    """The ordinal in the name of a set's Pod; None if the name does not belong to the set."""
    prefix, _, number = pod.rpartition("-")
    return int(number) if prefix == owner and number.isdecimal() and str(int(number)) == number else None


def _status(obj: Object, before: Object, members: dict[int, Member], current: Revision, update: Revision) -> Object:
    spec, staying = obj["spec"], [one for one in members.values() if not one.version.deleting]
    status = {"replicas": len(members), "readyReplicas": sum(one.ready for one in members.values()),
              "availableReplicas": sum(one.available for one in members.values()),
              "currentReplicas": sum(one.revision == current.name for one in staying),
              "updatedReplicas": sum(one.revision == update.name for one in staying),
              "currentRevision": current.name, "updateRevision": update.name,
              "collisionCount": before.get("collisionCount", 0),
              "observedGeneration": obj["metadata"].get("generation", 1)}
    replicas = spec.get("replicas", 1)
    done = status["updatedReplicas"] == status["replicas"] == status["readyReplicas"] == replicas
    if spec["updateStrategy"]["type"] == "RollingUpdate" and done:
        status["currentRevision"], status["currentReplicas"] = update.name, status["updatedReplicas"]
    kept = {key: value for key, value in status.items()
            if value or key in ("replicas", "collisionCount", "availableReplicas")}
    return {**dict.fromkeys(status.keys() - kept.keys()), **kept}


def _differs(status: Object, before: Object) -> bool:
    return any(before.get(key) != value for key, value in status.items())


class OneSet:
    """One StatefulSet during one step of the controller."""

    def __init__(self, cluster: Cluster, version: Version, obj: Object, members: dict[int, Member],
                 current: Revision, update: Revision) -> None:
        self.cluster, self.version, self.spec = cluster, version, obj["spec"]
        self.members, self.current, self.update = members, current, update
        self.start = int(dig(self.spec, "ordinals.start") or 0)
        self.end = self.start + int(self.spec.get("replicas", 1))
        self.ordered = self.spec.get("podManagementPolicy") != "Parallel"
        self.condemned = sorted((ordinal for ordinal in members if not self.start <= ordinal < self.end), reverse=True)

    def advance(self) -> bool:
        """Take the next step. Returns False only if there was nothing to do and nothing to wait for."""
        changed = 0
        for ordinal in range(self.start, self.end):
            acted, waits = self._advance_one(ordinal)
            changed += acted
            if waits or changed >= PER_STEP:
                return True
        return self._scale_down() or bool(changed) or self._update()

    def _advance_one(self, ordinal: int) -> tuple[bool, bool]:
        """Take one Pod a step forward. Returns whether something was done, and whether later Pods have to wait.
        """
        one = self.members.get(ordinal)
        if one is None:
            self._make(ordinal)
            return True, self.ordered
        if one.ended:
            if not one.version.deleting:
                self._delete(one)
            return True, self.ordered
        if dig(one.obj, "status.phase") == "Pending":
            self._make_claims(ordinal)
        return False, self.ordered and not (one.available and one.healthy)

    def _scale_down(self) -> bool:
        unhealthy = [ordinal for ordinal, one in sorted(self.members.items()) if not one.healthy]
        for ordinal in self.condemned:
            one = self.members[ordinal]
            if not self.ordered and one.version.deleting:
                continue
            if one.version.deleting or (self.ordered and not one.ready and ordinal != unhealthy[0]):
                return True
            self._delete(one)
            if self.ordered:
                return True
        return bool(self.condemned)

    def _update(self) -> bool:
        if self.spec["updateStrategy"]["type"] == "OnDelete":
            return False
        first = self.start + int(dig(self.spec, "updateStrategy.rollingUpdate.partition") or 0)
        for ordinal in range(self.end - 1, max(first, self.start) - 1, -1):
            one = self.members[ordinal]
            if one.revision != self.update.name and not one.version.deleting:
                self._delete(one)
                return True
            if not one.healthy:
                return True
        return False

    # --- Pods ---------------------------------------------------------------------------------------------------------

    def _revision_for(self, ordinal: int) -> Revision:
        """The revision that a missing Pod is created with."""
        if self.spec["updateStrategy"]["type"] != "RollingUpdate":
            return self.update
        partition = int(dig(self.spec, "updateStrategy.rollingUpdate.partition") or 0)
        return self.current if ordinal < self.start + partition else self.update

    def _make(self, ordinal: int) -> None:
        if not self._make_claims(ordinal):
            return
        revision, name = self._revision_for(ordinal), f"{self.version.name}-{ordinal}"
        template = revision.template
        labels = {POD_NAME: name, POD_INDEX: str(ordinal), HASH: revision.name}
        claimed = {each["metadata"]["name"]: self._claim_name(each, ordinal)
                   for each in self.spec.get("volumeClaimTemplates") or ()}
        volumes = [volume for volume in template["spec"].get("volumes") or () if volume["name"] not in claimed]
        volumes += [{"name": volume, "persistentVolumeClaim": {"claimName": claim_name}}
                    for volume, claim_name in claimed.items()]
        made = create(self.cluster, PODS, self.version.namespace, {
            "spec": {**template["spec"], "hostname": name, "subdomain": self.spec.get("serviceName") or "",
                     **({"volumes": volumes} if volumes else {})},
            "metadata": {**pod_metadata(self.version, "StatefulSet", template, labels), "name": name}})
        if made is not None:
            self._tell("SuccessfulCreate", f"Create Pod {name} in StatefulSet {self.version.name} successful")

    def _delete(self, one: Member) -> None:
        delete(self.cluster, PODS, one.version)
        self._tell("SuccessfulDelete", f"Delete Pod {one.version.name} in StatefulSet {self.version.name} successful")

    def _tell(self, reason: str, message: str, *, kind: str = "Normal") -> None:
        record_event(self.cluster, SETS, self.version, reason, message, component=COMPONENT, kind=kind)

    # --- claims -------------------------------------------------------------------------------------------------------

    def _claim_name(self, template: Object, ordinal: int) -> str:
        return f"{template['metadata']['name']}-{self.version.name}-{ordinal}"

    def _make_claims(self, ordinal: int) -> bool:
        """Create a Pod's missing claims. Returns whether all claims exist and none is terminating."""
        for template in self.spec.get("volumeClaimTemplates") or ():
            name = self._claim_name(template, ordinal)
            known = self.cluster.storage.get(CLAIMS, self.version.namespace, name)
            if known is not None and known.deleting:
                return False
            if known is not None:
                continue
            meta = template["metadata"]
            owners = [self._owner()] if self._retention("whenDeleted") == "Delete" else []
            made = create(self.cluster, CLAIMS, self.version.namespace, {
                "spec": template["spec"], "metadata": {
                    "name": name, "annotations": meta.get("annotations") or {}, "ownerReferences": owners,
                    "labels": {**(meta.get("labels") or {}), **(self.spec["selector"].get("matchLabels") or {})}}})
            if made is None:
                self._tell("FailedCreate", f"Create Claim {name} for Pod {self.version.name}-{ordinal} in StatefulSet "
                           f"{self.version.name} failed", kind="Warning")
                return False
            self._tell("SuccessfulCreate", f"Create Claim {name} Pod {self.version.name}-{ordinal} in StatefulSet "
                       f"{self.version.name} success")
        return True

    def _owner(self) -> Object:
        return owner_reference(self.version, "StatefulSet")

    def _retention(self, when: str) -> str:
        return str(dig(self.spec, f"persistentVolumeClaimRetentionPolicy.{when}") or "Retain")

    def keep_claims(self) -> None:
        """Give the Pods' claims the owner references that the retention policy asks for."""
        for ordinal, one in self.members.items():
            pod = {"apiVersion": "v1", "kind": "Pod", "name": one.version.name, "uid": one.version.uid}
            wanted: Object | None = self._owner() if self._retention("whenDeleted") == "Delete" else None
            if ordinal in self.condemned and self._retention("whenScaled") == "Delete":
                wanted = pod
            for template in self.spec.get("volumeClaimTemplates") or ():
                name = self._claim_name(template, ordinal)
                found = self.cluster.storage.get(CLAIMS, self.version.namespace, name)
                if found is None or found.deleting:
                    continue
                others = [ref for ref in found.owners if ref.get("uid") != self.version.uid
                          and not (ref.get("kind") == "Pod" and ref.get("name") == one.version.name)]
                owners = [*others, wanted] if wanted else others
                if {ref["uid"] for ref in owners} != {ref["uid"] for ref in found.owners}:
                    patch(self.cluster, CLAIMS, found, {"metadata": {"ownerReferences": owners or None}})
