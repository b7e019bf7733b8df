"""Deployments create a ReplicaSet for each version of their template and shift the replicas to the newest ReplicaSet.

The controller takes one of these steps at a time for a Deployment:

- The Deployment is paused: scale its ReplicaSets to the Deployment's size, without creating a new ReplicaSet.
- The Deployment's size has changed: scale the ReplicaSets (several in proportion), then write the status.
- RollingUpdate: create or scale up the new ReplicaSet; else scale the old ReplicaSets down; else clean up.
- Recreate: scale the old ReplicaSets down, wait for their Pods to end, then create the new ReplicaSet.

Each write of the controller enqueues the Deployment again, which leads to the next step. Each template has one
ReplicaSet, which is created or reused, and annotated with its revision. Superfluous old ReplicaSets are deleted.

ReplicaSets create Pods, adopt orphans that match their selector, release Pods that no longer match, and delete
superfluous Pods. Without the controller ``kubelet`` no Pod runs, so rollouts wait until a test writes the Pods' status.
"""
from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from kubectl_runtime.apiserver.controllers.loop import PER_STEP, KeyQueue, record_event
from kubectl_runtime.apiserver.controllers.rollout import (
    DESIRED,
    MOST,
    NEVER,
    Limits,
    Size,
    change_of,
    complete,
    condition,
    counted,
    differs,
    limits_of,
    new_replicas,
    old_replicas,
    proportional,
    set_condition,
    tell_progress,
)
from kubectl_runtime.apiserver.kinds.base import dig, label_selector
from kubectl_runtime.apiserver.loopback import create, delete, patch, patch_status
from kubectl_runtime.apiserver.output.negotiation import encode
from kubectl_runtime.apiserver.storage import Cluster, Version
from kubectl_runtime.apiserver.wire import Object
from kubectl_runtime.core.meta.metav1 import format_time

_API_VERSIONS = {"Job": "batch/v1", "CronJob": "batch/v1"}  # all other owner kinds are in apps/v1


def owner_reference(owner: Version, kind: str) -> Object:
    """The owner reference that makes `owner` the controller of a child."""
    return {"apiVersion": _API_VERSIONS.get(kind, "apps/v1"), "kind": kind, "name": owner.name, "uid": owner.uid,
            "controller": True, "blockOwnerDeletion": True}


def pod_metadata(owner: Version, kind: str, template: Object, labels: Object) -> Object:
    """The metadata for a Pod created from its owner's template, with `labels` added."""
    kept = {key: value for key, value in (template.get("metadata") or {}).items()
            if key in ("labels", "annotations", "finalizers")}
    return {**kept, "generateName": f"{owner.name}-", "labels": {**(kept.get("labels") or {}), **labels},
            "ownerReferences": [owner_reference(owner, kind)]}


def claim(cluster: Cluster, owner: Version, kind: str, selector: Object, children: str, *,
          fits: Callable[[Version], bool] = lambda _: True) -> list[Version]:
    """The objects of type `children` that an owner controls, after adopting and releasing objects. An object for which
    `fits` is false is not adopted, whatever its labels are."""
    matches, claimed = label_selector(selector), []
    for child in list(cluster.storage.bucket(children).scan(owner.namespace)):
        controller = None
        for ref in child.owners:  # a loop is faster than a generator: this runs for each object in the namespace
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
        patch(cluster, children, child, change)
        if controller is None and (adopted := cluster.storage.get(children, child.namespace, child.name)) is not None:
            claimed.append(adopted)
    return claimed


REPLICA_SETS, PODS = "apps/replicasets", "/pods"
REPLICASETS = "replicaset-controller"
DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"
ENDED = ("Succeeded", "Failed")
_PHASES = {"Pending": 0, "Unknown": 1, "Running": 2}


class ReplicaSetController(KeyQueue):
    """Creates and deletes Pods until each ReplicaSet has the number of Pods that its spec wants."""

    name = "replicaset"
    storage = REPLICA_SETS
    kind = "ReplicaSet"
    children = (PODS,)

    def reconcile(self, cluster: Cluster, version: Version) -> None:
        """Adopt, release, create or delete Pods, then write the status."""
        replica_set = version.decode()
        spec = replica_set["spec"]
        claimed = [(pod, pod.decode()) for pod in claim(cluster, version, self.kind, spec["selector"], PODS)]
        current = [(pod, obj) for pod, obj in claimed if dig(obj, "status.phase") not in ENDED]
        active = [(pod, obj) for pod, obj in current if not pod.deleting]
        missing = spec.get("replicas", 1) - len(active)
        if missing and not version.deleting:
            for _ in range(min(missing, PER_STEP)):
                self._make(cluster, version, spec["template"])
            for pod, _ in sorted(active, key=lambda entry: _rank(*entry))[:-missing] if missing < 0 else ():
                delete(cluster, PODS, pod)
                record_event(cluster, REPLICA_SETS, version, "SuccessfulDelete", f"Deleted pod: {pod.name}",
                             component=REPLICASETS)
            return  # the Pods' changes enqueue the ReplicaSet again
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
    def _make(cluster: Cluster, owner: Version, template: Object) -> None:
        made = create(cluster, PODS, owner.namespace, {
            "spec": template["spec"], "metadata": pod_metadata(owner, "ReplicaSet", template, {})})
        if made is not None:
            record_event(cluster, REPLICA_SETS, owner, "SuccessfulCreate", f"Created pod: {made['metadata']['name']}",
                         component=REPLICASETS)


def _condition(pod: Object) -> Object | None:
    return next((entry for entry in dig(pod, "status.conditions") or () if entry.get("type") == "Ready"
                 and entry.get("status") == "True"), None)


def ready_for(pod: Object, now: datetime) -> float | None:
    """How many seconds a Pod has been ready; None if the Pod is not ready."""
    ready = _condition(pod)
    if ready is None:
        return None
    since = ready.get("lastTransitionTime")
    return (now - datetime.fromisoformat(since)).total_seconds() if since else 0.0


def _rank(version: Version, pod: Object) -> tuple[Any, ...]:
    """The sort key for deletion. Pods without a node come first, then Pods that are not running, not ready, cheap to
    delete, ready only recently, or new."""
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
    """Write the status if it changed. Zeros are left out, except for `replicas` and `terminatingReplicas`."""
    kept = {key: value for key, value in counts.items() if value or key in ("replicas", "terminatingReplicas")}
    wanted = {**kept, "observedGeneration": obj["metadata"].get("generation", 1)}
    before = obj.get("status") or {}
    if {key: value for key, value in before.items() if key != "conditions"} != wanted:
        cleared = {key: None for key in counts if key not in kept}
        patch_status(cluster, REPLICA_SETS, version, {**cleared, **wanted})


DEPLOYMENTS = "apps/deployments"
COMPONENT = "deployment-controller"
REVISION, HISTORY = "deployment.kubernetes.io/revision", "deployment.kubernetes.io/revision-history"
HASH_LABEL = "pod-template-hash"


@dataclass(slots=True)
class ReplicaSet:
    """One ReplicaSet with its decoded object."""

    version: Version
    obj: Object

    @property
    def replicas(self) -> int:
        return int(self.obj["spec"].get("replicas", 1))

    @property
    def notes(self) -> Object:
        return self.obj["metadata"].get("annotations") or {}

    @property
    def revision(self) -> int:
        """The revision in the ReplicaSet's annotations; 0 if there is none."""
        text = self.notes.get(REVISION, "")
        return int(text) if text.isdecimal() else 0

    @property
    def size(self) -> Size:
        """The ReplicaSet's numbers for the arithmetic in rollout.py."""
        return Size(self.replicas, dig(self.obj, "status.availableReplicas") or 0, int(self.notes.get(MOST, 0)))


@dataclass(slots=True)
class Rollout:
    """One Deployment with its ReplicaSets: `new` has the current template, `old` are the others, oldest first."""

    cluster: Cluster
    version: Version
    obj: Object
    limits: Limits
    new: ReplicaSet | None
    old: list[ReplicaSet] = field(default_factory=list)

    @property
    def sets(self) -> list[ReplicaSet]:
        return [*self.old, self.new] if self.new else self.old


def look(cluster: Cluster, version: Version) -> Rollout:
    """Adopt and release ReplicaSets of a Deployment, and return the state of its rollout."""
    obj = version.decode()
    found = [ReplicaSet(child, child.decode())
             for child in claim(cluster, version, "Deployment", obj["spec"]["selector"], REPLICA_SETS)]
    found.sort(key=lambda one: (one.obj["metadata"]["creationTimestamp"], one.version.name))
    new = next((one for one in found if _bare(one.obj["spec"]["template"]) == _bare(obj["spec"]["template"])), None)
    return Rollout(cluster, version, obj, limits_of(obj["spec"]), new, [one for one in found if one is not new])


def _bare(template: Object) -> Object:
    """A template without the label pod-template-hash."""
    labels = {key: value for key, value in (dig(template, "metadata.labels") or {}).items() if key != HASH_LABEL}
    return {**template, "metadata": {**(template.get("metadata") or {}), "labels": labels}}


def annotated_sizes(limits: Limits) -> Object:
    """The annotations that record which size of the Deployment a ReplicaSet was scaled for."""
    return {DESIRED: str(limits.replicas), MOST: str(limits.replicas + limits.surge if limits.replicas else 0)}


def scale(rollout: Rollout, found: ReplicaSet | None, replicas: int) -> bool:
    """Set a ReplicaSet's replicas. Returns whether the number changed."""
    if found is None or found.replicas == replicas:
        return False
    return resize(rollout, found, replicas)


def resize(rollout: Rollout, found: ReplicaSet, replicas: int) -> bool:
    """Set a ReplicaSet's replicas and the annotations for the Deployment's size. Returns whether anything changed."""
    sizes = annotated_sizes(rollout.limits)
    if found.replicas == replicas and all(found.notes.get(key) == value for key, value in sizes.items()):
        return False
    patch(rollout.cluster, REPLICA_SETS, found.version,
          {"metadata": {"annotations": sizes}, "spec": {"replicas": replicas}})
    if found.replicas != replicas:
        tell_scaled(rollout, found.version.name, found.replicas, replicas)
    return True


def tell_scaled(rollout: Rollout, name: str, before: int, after: int) -> None:
    """Write the Event for a scaled ReplicaSet."""
    record_event(rollout.cluster, DEPLOYMENTS, rollout.version, "ScalingReplicaSet",
                 f"Scaled {'up' if after > before else 'down'} replica set {name} from {before} to {after}",
                 component=COMPONENT)


def scale_all(rollout: Rollout) -> bool:
    """Scale the ReplicaSets to the Deployment's size. Returns whether any of them changed.

    If several ReplicaSets have replicas, they are scaled in proportion (not with the strategy Recreate). Otherwise only
    one is scaled: the ReplicaSet that has replicas, or else the newest.
    """
    active = [found for found in rollout.sets if found.replicas]
    if len(active) <= 1:
        latest = active[0] if active else rollout.new or next(reversed(rollout.old), None)
        return latest is not None and scale(rollout, latest, rollout.limits.replicas)
    if dig(rollout.obj, "spec.strategy.type") == "Recreate":
        return False
    active.sort(key=lambda found: -found.replicas)
    sizes = proportional(rollout.limits, {found.version.name: found.size for found in active})
    resized = [resize(rollout, found, sizes[found.version.name]) for found in active]  # a list: any() would stop early
    return any(resized)


_OWN = (REVISION, HISTORY, DESIRED, MOST, "kubectl.kubernetes.io/last-applied-configuration",
        "deprecated.deployment.rollback.to")  # annotations that ReplicaSets do not inherit from the Deployment
_HASH_ALPHABET = "bcdf56789h"  # ten of the characters that generated names use


def template_hash(template: Object) -> str:
    """A short hash of a Pod template."""
    digest = hashlib.sha256(encode(template)).digest()
    return "".join(_HASH_ALPHABET[byte % len(_HASH_ALPHABET)] for byte in digest[:10])


def make_new(rollout: Rollout) -> bool:
    """Create the template's ReplicaSet, or give the existing one the newest revision. Returns whether anything was
    written."""
    revision = max((found.revision for found in rollout.old), default=0) + 1
    notes = {key: value for key, value in (rollout.obj["metadata"].get("annotations") or {}).items() if key not in _OWN}
    if rollout.new is None:
        _create(rollout, revision, notes)
        return True
    new, cluster = rollout.new, rollout.cluster
    if new.revision < revision:
        notes[REVISION] = str(revision)
        if new.revision:
            notes[HISTORY] = ",".join(filter(None, (new.notes.get(HISTORY), str(new.revision))))
    change: Object = {}
    if any(new.notes.get(key) != value for key, value in notes.items()):
        change["metadata"] = {"annotations": notes}
    if new.obj["spec"].get("minReadySeconds", 0) != rollout.obj["spec"].get("minReadySeconds", 0):
        change["spec"] = {"minReadySeconds": rollout.obj["spec"].get("minReadySeconds", 0)}
    if change:
        patch(cluster, REPLICA_SETS, new.version, change)
        return True
    return _announce(rollout, new.revision, "FoundNewReplicaSet", f'Found new replica set "{new.version.name}"',
                     always=False)


def _create(rollout: Rollout, revision: int, notes: Object) -> None:
    cluster, spec, limits, owner = rollout.cluster, rollout.obj["spec"], rollout.limits, rollout.version
    template, name = spec["template"], template_hash(spec["template"])
    labels = {**(dig(template, "metadata.labels") or {}), HASH_LABEL: name}
    selector = {**spec["selector"], "matchLabels": {**(spec["selector"].get("matchLabels") or {}), HASH_LABEL: name}}
    replicas = new_replicas(limits, 0, sum(found.replicas for found in rollout.old))
    made = create(cluster, REPLICA_SETS, owner.namespace, {
        "metadata": {"name": f"{owner.name}-{name}", "labels": labels,
                     "annotations": {**notes, REVISION: str(revision), **annotated_sizes(limits)},
                     "ownerReferences": [owner_reference(owner, "Deployment")]},
        "spec": {"replicas": replicas, "selector": selector, "minReadySeconds": spec.get("minReadySeconds", 0),
                 "template": {**template, "metadata": {**(template.get("metadata") or {}), "labels": labels}}}})
    if made is None:
        return
    made_name = made["metadata"]["name"]
    if replicas:
        tell_scaled(rollout, made_name, 0, replicas)
    _announce(rollout, revision, "NewReplicaSetCreated", f'Created new replica set "{made_name}"', always=True)


def _announce(rollout: Rollout, revision: int, reason: str, message: str, *, always: bool) -> bool:
    """Write the revision, and report the ReplicaSet in the condition Progressing. Returns whether anything was written.
    """
    status: Object = {"conditions": dig(rollout.obj, "status.conditions") or []}
    told = rollout.obj["spec"].get("progressDeadlineSeconds", NEVER) != NEVER and (
        always or condition(status, "Progressing") is None)
    noted = dig(rollout.obj, "metadata.annotations") or {}
    if not told and noted.get(REVISION) == str(revision):
        return False
    if told:
        set_condition(status, "Progressing", "True", reason, message, format_time(rollout.cluster.clock.now()))
    patch(rollout.cluster, DEPLOYMENTS, rollout.version,
          {"metadata": {"annotations": {REVISION: str(revision)}}, "status": status}, subresource="status")
    return True


def clean_up(rollout: Rollout) -> None:
    """Delete the oldest empty ReplicaSets, down to revisionHistoryLimit."""
    limit = rollout.obj["spec"].get("revisionHistoryLimit")
    alive = sorted((found for found in rollout.old if not found.version.deleting), key=lambda found: found.revision)
    for found in alive[:max(0, len(alive) - limit)] if limit is not None else ():
        seen = dig(found.obj, "status.observedGeneration") or 0
        if found.replicas or dig(found.obj, "status.replicas") or seen < found.obj["metadata"].get("generation", 1):
            continue
        delete(rollout.cluster, REPLICA_SETS, found.version)


_PATIENCE = 2.0  # seconds during which a ReplicaSet counts as new; above 1, as creation times are whole seconds


class DeploymentController(KeyQueue):
    name = "deployment"
    storage = DEPLOYMENTS
    kind = "Deployment"
    children = (REPLICA_SETS,)

    def reconcile(self, cluster: Cluster, version: Version) -> None:
        rollout = look(cluster, version)
        spec = rollout.obj["spec"]
        if version.deleting:
            self._tell(rollout, progress=False)
        elif _note_pause(rollout):
            return  # the write enqueues the Deployment again
        elif spec.get("paused") or any(found.replicas and found.notes.get(DESIRED, str(rollout.limits.replicas)) != str(
                rollout.limits.replicas) for found in rollout.sets):
            if not scale_all(rollout):
                if spec.get("paused"):
                    clean_up(rollout)
                self._tell(rollout, progress=False)
        elif not (self._recreate(rollout) if dig(spec, "strategy.type") == "Recreate" else _roll(rollout)):
            if _just_made(rollout):
                self.look_later(cluster, version, _PATIENCE)
                return
            status, _ = self._tell(rollout, progress=True)
            if complete(rollout.obj, status):
                clean_up(rollout)

    def _recreate(self, rollout: Rollout) -> bool:
        """Take one step of a Recreate rollout. Returns whether anything was written; the controller observes the write.
        """
        scaled = [scale(rollout, found, 0) for found in rollout.old]  # a list: any() would stop early
        if any(scaled):
            return True
        if _old_pods_run(rollout):
            # The end of a Pod does not enqueue the Deployment, so the controller looks again after a second.
            self.look_later(rollout.cluster, rollout.version, 1.0)
            return False
        if rollout.new is None and self._tell(rollout, progress=True)[1]:
            return True  # the status with 0 updated replicas is written before the new ReplicaSet exists
        return make_new(rollout) or scale(rollout, rollout.new, rollout.limits.replicas)

    def _tell(self, rollout: Rollout, *, progress: bool) -> tuple[Object, bool]:
        """Write the status if it changed. Returns the status, and whether it changed."""
        cluster, deployment = rollout.cluster, rollout.obj
        now, newest = cluster.clock.now(), rollout.new.obj if rollout.new else None
        status = counted(deployment, [found.obj for found in rollout.sets], newest, rollout.limits, format_time(now))
        if progress and (wait := tell_progress(deployment, status, newest, now)) is not None:
            self.look_later(cluster, rollout.version, wait)
        changed = differs(status, deployment.get("status") or {})
        if changed:
            patch_status(cluster, DEPLOYMENTS, rollout.version, change_of(status))
        return status, changed


def _just_made(rollout: Rollout) -> bool:
    """Whether the newest ReplicaSet was just created, so that its own controller may not have written its counts.

    In this case the real controller gets a conflict with its own write, and writes the status only in its next run.
    """
    if rollout.new is None or dig(rollout.new.obj, "status.observedGeneration"):
        return False
    made = datetime.fromisoformat(rollout.new.obj["metadata"]["creationTimestamp"])
    return (rollout.cluster.clock.now() - made).total_seconds() < _PATIENCE


def _note_pause(rollout: Rollout) -> bool:
    """Record in the condition Progressing that the rollout is paused or resumed. Returns whether that was written."""
    spec, status = rollout.obj["spec"], {"conditions": dig(rollout.obj, "status.conditions") or []}
    if spec.get("progressDeadlineSeconds", NEVER) == NEVER:
        return False
    known = condition(status, "Progressing")
    paused = bool(known and known["reason"] == "DeploymentPaused")
    if (known and known["reason"] == "ProgressDeadlineExceeded") or paused == bool(spec.get("paused")):
        return False
    told = ("DeploymentResumed", "Deployment is resumed") if paused else ("DeploymentPaused", "Deployment is paused")
    set_condition(status, "Progressing", "Unknown", *told, format_time(rollout.cluster.clock.now()))
    patch_status(rollout.cluster, DEPLOYMENTS, rollout.version, status)
    return True


def _roll(rollout: Rollout) -> bool:
    """Take one step of a rolling update. Returns whether anything was written; the controller observes the write."""
    if make_new(rollout):
        return True
    new = rollout.new
    assert new is not None
    others = sum(found.replicas for found in rollout.old)
    if scale(rollout, new, new_replicas(rollout.limits, new.replicas, others)):
        return True
    by_name = {found.version.name: found for found in rollout.old}
    steps = old_replicas(rollout.limits, new.size, {name: found.size for name, found in by_name.items()})
    for name, size in steps.items():
        scale(rollout, by_name[name], size)
    return bool(steps)


def _old_pods_run(rollout: Rollout) -> bool:
    owners = {found.version.uid for found in rollout.old}
    pods = rollout.cluster.storage.bucket(PODS).scan(rollout.version.namespace)
    return any(owner.get("uid") in owners for pod in pods
               for owner in pod.owners if dig(pod.decode(), "status.phase") not in ("Succeeded", "Failed"))
