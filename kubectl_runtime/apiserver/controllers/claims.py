"""Controllers for PersistentVolumeClaims and PersistentVolumes: deletion protection, binding, provisioning, reclaiming.

``persistentvolumeclaim-protection`` removes a terminating claim's finalizer when no scheduled Pod uses the claim.
``persistentvolume-protection`` removes a terminating volume's finalizer when the volume is not bound.
``persistentvolume-binder`` binds claims to volumes, provisions volumes, and reclaims the volumes of deleted claims.

The binder stands in for every provisioner except ``kubernetes.io/no-provisioner``: a claim with a StorageClass gets a
volume of the requested size at once, or with WaitForFirstConsumer as soon as a Pod uses the claim. A claim without a
class binds to a volume without a class; if there is no such volume, the claim gets the default class, even if this
class is newer than the claim. Nothing is mounted.
"""
from __future__ import annotations

from collections.abc import Iterator

from kubectl_runtime.apiserver.controllers.deployments import ENDED
from kubectl_runtime.apiserver.controllers.loop import KeyQueue, record_event
from kubectl_runtime.apiserver.errors import StatusError
from kubectl_runtime.apiserver.kinds.base import class_of, default_class, dig, label_selector
from kubectl_runtime.apiserver.kinds.storage import DEFAULT_CLASS
from kubectl_runtime.apiserver.loopback import create, delete, patch, patch_status
from kubectl_runtime.apiserver.storage import Bucket, Change, Cluster, Version
from kubectl_runtime.apiserver.wire import Object
from kubectl_runtime.core.base.guard import guarded_logger
from kubectl_runtime.core.meta.quantities import value_of
from kubectl_runtime.schema.formats import dns_subdomain_errors

log = guarded_logger(__name__)

CLAIMS, VOLUMES, PODS = "/persistentvolumeclaims", "/persistentvolumes", "/pods"
CLASSES = "storage.k8s.io/storageclasses"
COMPONENT = "persistentvolume-controller"
CLAIM_PROTECTION, VOLUME_PROTECTION = "kubernetes.io/pvc-protection", "kubernetes.io/pv-protection"
_BOUND_BY, _COMPLETED = "pv.kubernetes.io/bound-by-controller", "pv.kubernetes.io/bind-completed"
_PROVISIONED_BY = "pv.kubernetes.io/provisioned-by"
_NO_PROVISIONER = "kubernetes.io/no-provisioner"


def claims_of(pod: Object) -> Iterator[str]:
    """The names of the claims that a Pod uses, including those of ephemeral volumes."""
    for volume in dig(pod, "spec.volumes") or ():
        if (claim := volume.get("persistentVolumeClaim")) is not None:
            yield claim["claimName"]
        elif "ephemeral" in volume:
            yield f"{pod['metadata']['name']}-{volume['name']}"


def users_of(cluster: Cluster, claim: Version, *, scheduled: bool) -> Iterator[Object]:
    """The Pods that use a claim and have not ended. With `scheduled`, only Pods that have a node."""
    for version in cluster.storage.bucket(PODS).scan(claim.namespace):
        if version.fields.get("status.phase") in ENDED or (scheduled and not version.fields.get("spec.nodeName")):
            continue
        pod = version.decode()
        if claim.name in claims_of(pod):
            yield pod


def claim_problem(cluster: Cluster, version: Version, pod: Object) -> str:
    """Why a Pod cannot be scheduled because of its claims, in the scheduler's words; "" if the claims allow it."""
    names = [volume["persistentVolumeClaim"]["claimName"] for volume in dig(pod, "spec.volumes") or ()
             if "persistentVolumeClaim" in volume]
    for name in names:
        claim = cluster.storage.get(CLAIMS, version.namespace, name)
        if claim is None:
            return f'persistentvolumeclaim "{name}" not found'
        if claim.deleting:
            return f'persistentvolumeclaim "{name}" is being deleted'
        if not is_bound(claim.decode()):
            return "pod has unbound immediate PersistentVolumeClaims"
    return ""


def _release(cluster: Cluster, storage: str, version: Version, finalizer: str) -> None:
    kept = [name for name in version.finalizers if name != finalizer]
    patch(cluster, storage, version, {"metadata": {"finalizers": kept or None}})


class ClaimProtection(KeyQueue):
    """Removes the protection finalizer of terminating claims that no scheduled Pod uses."""

    name = "persistentvolumeclaim-protection"
    storage = CLAIMS

    def _observe(self, bucket: Bucket, change: Change) -> None:
        super()._observe(bucket, change)
        if bucket.key == PODS and self._cluster is not None:
            claims = self._cluster.storage.bucket(CLAIMS)
            self._keys |= {version.key: None for version in claims.scan(change.new.namespace) if version.deleting}

    def reconcile(self, cluster: Cluster, version: Version) -> None:
        if version.deleting and CLAIM_PROTECTION in version.finalizers and not any(
                users_of(cluster, version, scheduled=True)):
            _release(cluster, CLAIMS, version, CLAIM_PROTECTION)


class VolumeProtection(KeyQueue):
    """Removes the protection finalizer of terminating volumes that are not bound."""

    name = "persistentvolume-protection"
    storage = VOLUMES

    def reconcile(self, cluster: Cluster, version: Version) -> None:
        if version.deleting and VOLUME_PROTECTION in version.finalizers and (
                dig(version.decode(), "status.phase") != "Bound"):
            _release(cluster, VOLUMES, version, VOLUME_PROTECTION)


class VolumeBinder(KeyQueue):
    """Binds claims, and provisions and reclaims volumes. The `KeyQueue` holds claims; volumes have their own queue."""

    name = "persistentvolume-binder"
    storage = CLAIMS

    def __init__(self) -> None:
        super().__init__()
        self._volumes: dict[str, None] = {}

    def start(self, cluster: Cluster) -> None:
        super().start(cluster)
        self._volumes = dict.fromkeys(cluster.storage.bucket(VOLUMES).keys)

    def look_again(self, cluster: Cluster) -> None:
        super().look_again(cluster)
        self._volumes |= dict.fromkeys(cluster.storage.bucket(VOLUMES).keys)

    def _observe(self, bucket: Bucket, change: Change) -> None:
        super()._observe(bucket, change)
        if self._cluster is None:
            return
        claims = self._cluster.storage.bucket(CLAIMS)
        if bucket.key == VOLUMES:
            self._volumes[change.new.key] = None
        elif bucket.key == CLAIMS and change.deleted:
            self._volumes |= dict.fromkeys(self._cluster.storage.bucket(VOLUMES).keys)
        if bucket.key in (VOLUMES, CLASSES):
            self._keys |= dict.fromkeys(claims.keys)
        elif bucket.key == PODS and change.old is None:  # the new Pod may be a claim's first consumer
            self._keys |= {version.key: None for version in claims.scan(change.new.namespace)}

    def due(self) -> float | None:
        return 0.0 if self._volumes else super().due()

    def step(self, cluster: Cluster) -> None:
        """Process the changed volumes, then reconcile some claims."""
        with cluster.locked():
            changed, self._volumes = self._volumes, {}
            for key in changed:
                volume = cluster.storage.bucket(VOLUMES).objects.get(key)
                if volume is not None:
                    _look_at_volume(cluster, volume)
        super().step(cluster)

    def reconcile(self, cluster: Cluster, version: Version) -> None:
        """Bind a claim if a volume fits or can be provisioned. Otherwise an Event explains why the claim waits."""
        claim = version.decode()
        if version.deleting:
            return
        if name := dig(claim, "spec.volumeName"):
            _complete(cluster, version, claim, name)
            return
        volume = next(iter(_fitting(cluster, version, claim)), None)
        class_name = class_of(claim) or ""
        found = cluster.storage.get(CLASSES, "", class_name) if class_name else None
        storage_class = found.decode() if found is not None else None
        if volume is None and class_of(claim) is None and (default := default_class(
                (each.decode() for each in cluster.storage.bucket(CLASSES).scan("")), DEFAULT_CLASS)):
            patch(cluster, CLAIMS, version, {"spec": {"storageClassName": default}})  # the change enqueues the claim
            return
        waits = storage_class is not None and storage_class.get("volumeBindingMode") == "WaitForFirstConsumer"
        if waits and not any(users_of(cluster, version, scheduled=False)):
            _explain(cluster, version, "WaitForFirstConsumer",
                     "waiting for first consumer to be created before binding", kind="Normal")
        elif volume is not None:
            _bind(cluster, version, volume)
        elif storage_class is not None and storage_class["provisioner"] != _NO_PROVISIONER:
            _provision(cluster, version, claim, storage_class)
        elif class_name and storage_class is None:
            _explain(cluster, version, "ProvisioningFailed",
                     f'storageclass.storage.k8s.io "{class_name}" not found', kind="Warning")
        else:
            _explain(cluster, version, "FailedBinding", "no persistent volumes available for this claim and no storage "
                     "class is set", kind="Normal")


def is_bound(claim: Object) -> bool:
    return bool(dig(claim, "status.phase") == "Bound")


def _explain(cluster: Cluster, version: Version, reason: str, message: str, *, kind: str) -> bool:
    """Write an Event that explains why a claim waits, unless an Event with this reason exists. Returns whether it was
    written."""
    known = any(event.get("reason") == reason and dig(event, "involvedObject.uid") == version.uid
                for event in (each.decode() for each in cluster.storage.bucket("/events").scan(version.namespace)))
    if not known:
        record_event(cluster, CLAIMS, version, reason, message, component=COMPONENT, kind=kind)
    return not known


def _fitting(cluster: Cluster, version: Version, claim: Object) -> list[Version]:
    """The volumes that fit a claim, best first: a volume that names the claim, then the others by size."""
    spec, found = claim["spec"], []
    wanted = value_of(dig(spec, "resources.requests.storage") or "0")
    selector = label_selector(spec.get("selector"))
    for volume in cluster.storage.bucket(VOLUMES).scan(""):
        obj = volume.decode()
        reference = dig(obj, "spec.claimRef")
        mine = reference is not None and (reference.get("namespace"), reference.get("name")) == (
            version.namespace, version.name) and reference.get("uid") in (None, "", version.uid)
        size = value_of(dig(obj, "spec.capacity.storage") or "0")
        if volume.deleting or (reference is not None and not mine) or size < wanted:
            continue
        if (class_of(obj) or "") != (class_of(claim) or ""):
            continue
        if not set(spec.get("accessModes") or ()) <= set(dig(obj, "spec.accessModes") or ()):
            continue
        if (dig(obj, "spec.volumeMode") or "Filesystem") != (spec.get("volumeMode") or "Filesystem"):
            continue
        if mine or selector is None or selector.matches(volume.labels):
            found.append((not mine, size, volume.name, volume))
    return [entry[-1] for entry in sorted(found, key=lambda entry: entry[:-1])]


def _provision(cluster: Cluster, version: Version, claim: Object, storage_class: Object) -> None:
    spec, provisioner, name = claim["spec"], storage_class["provisioner"], f"pvc-{version.uid}"
    if cluster.storage.get(VOLUMES, "", name) is not None:
        return

    def refused(error: StatusError) -> None:
        if _explain(cluster, version, "ProvisioningFailed", "failed to provision volume with StorageClass "
                    f'"{storage_class["metadata"]["name"]}": {error.message}', kind="Warning"):
            log.warning("the volume of PersistentVolumeClaim %s was refused: %s", version.key, error.message)

    made = create(cluster, VOLUMES, "", {
        "metadata": {"name": name, "annotations": {_PROVISIONED_BY: provisioner}},
        "spec": {"capacity": {"storage": dig(spec, "resources.requests.storage") or "1Gi"},
                 "accessModes": spec.get("accessModes") or [], "volumeMode": spec.get("volumeMode") or "Filesystem",
                 "persistentVolumeReclaimPolicy": storage_class.get("reclaimPolicy") or "Delete",
                 "storageClassName": storage_class["metadata"]["name"], "claimRef": _reference(version),
                 "mountOptions": storage_class.get("mountOptions") or [],
                 **_source(provisioner, name)}}, refused=refused)
    if made is not None:
        record_event(cluster, CLAIMS, version, "ProvisioningSucceeded", f"Successfully provisioned volume {name}",
                     component=provisioner)
        volume = cluster.storage.get(VOLUMES, "", name)
        if volume is not None:
            _bind(cluster, version, volume)


def _source(provisioner: str, name: str) -> Object:
    """The volume's source. A provisioner whose name is not valid as the name of a CSI driver makes folders of the node.
    """
    driver = provisioner.replace("kubernetes.io/", "")
    if dns_subdomain_errors(driver.lower()):
        return {"hostPath": {"path": f"/var/lib/volumes/{name}", "type": "DirectoryOrCreate"}}
    return {"csi": {"driver": driver, "volumeHandle": name}}


def _reference(claim: Version) -> Object:
    return {"kind": "PersistentVolumeClaim", "apiVersion": "v1", "namespace": claim.namespace, "name": claim.name,
            "uid": claim.uid, "resourceVersion": str(claim.rv)}


def _bind(cluster: Cluster, version: Version, volume: Version) -> None:
    """Bind a claim and a volume: first the volume, then the claim."""
    notes = {} if _PROVISIONED_BY in (volume.decode()["metadata"].get("annotations") or {}) else {_BOUND_BY: "yes"}
    patch(cluster, VOLUMES, volume, {"metadata": {"annotations": notes}, "spec": {"claimRef": _reference(version)}})
    patch(cluster, CLAIMS, version, {
        "metadata": {"annotations": {_COMPLETED: "yes", _BOUND_BY: "yes"}}, "spec": {"volumeName": volume.name}})
    current = cluster.storage.get(CLAIMS, version.namespace, version.name)
    if current is not None:
        _complete(cluster, current, current.decode(), volume.name)


def _complete(cluster: Cluster, version: Version, claim: Object, name: str) -> None:
    """Write the status of a claim that names its volume, and complete the volume's claimRef."""
    volume = cluster.storage.get(VOLUMES, "", name)
    if volume is None:
        status: Object = {"phase": "Lost"} if _COMPLETED in (claim["metadata"].get("annotations") or {}) else {}
    else:
        obj = volume.decode()
        reference = dig(obj, "spec.claimRef")
        if reference is None:
            patch(cluster, VOLUMES, volume, {
                "metadata": {"annotations": {_BOUND_BY: "yes"}}, "spec": {"claimRef": _reference(version)}})
        elif reference.get("uid") not in (None, "", version.uid) or reference.get("name") != version.name:
            return
        if _COMPLETED not in (claim["metadata"].get("annotations") or {}):
            patch(cluster, CLAIMS, version, {"metadata": {"annotations": {_COMPLETED: "yes"}}})
        status = {"phase": "Bound", "accessModes": obj["spec"].get("accessModes") or [],
                  "capacity": obj["spec"].get("capacity") or {}}
    before = claim.get("status") or {}
    if any(before.get(key) != value for key, value in status.items()):
        patch_status(cluster, CLAIMS, version, status)


def _look_at_volume(cluster: Cluster, version: Version) -> None:
    """Write a volume's phase, and reclaim the volume if its claim is gone."""
    volume = version.decode()
    reference, phase = dig(volume, "spec.claimRef"), dig(volume, "status.phase")
    wanted = "Available"
    if reference is not None:
        claim = cluster.storage.get(CLAIMS, reference.get("namespace") or "", reference.get("name") or "")
        uid = reference.get("uid")
        if claim is not None and uid in (None, "", claim.uid):
            wanted = "Bound" if dig(claim.decode(), "spec.volumeName") == version.name else phase or "Available"
            wanted = "Available" if wanted == "Pending" else wanted
        elif uid:
            wanted = "Released"
    if wanted != phase and not (version.deleting and wanted == "Available"):
        patch_status(cluster, VOLUMES, version, {"phase": wanted})
    if wanted == "Released" and dig(volume, "spec.persistentVolumeReclaimPolicy") == "Delete" and not version.deleting:
        delete(cluster, VOLUMES, version)
