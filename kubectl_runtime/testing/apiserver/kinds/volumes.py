"""Volumes: PersistentVolume, PersistentVolumeClaim, StorageClass, CSIDriver, VolumeAttachment."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from kubectl_runtime.core.metav1 import format_time
from kubectl_runtime.testing.apiserver import errors
from kubectl_runtime.testing.apiserver.errors import Cause
from kubectl_runtime.testing.apiserver.kinds.base import BuiltinStrategy, dig, immutable_causes, one_of, put_default
from kubectl_runtime.testing.apiserver.kinds.pod_warnings import (
    DEPRECATED_VOLUMES,
    claim_spec_warnings,
    selector_term_warnings,
)
from kubectl_runtime.testing.apiserver.kinds.podspec import default_volume_source
from kubectl_runtime.testing.apiserver.kinds.typed.quantity import value_of
from kubectl_runtime.testing.apiserver.strategy import Object, StrategyContext

ACCESS_MODES = ("ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod")
_CLASS_ANNOTATION = "volume.beta.kubernetes.io/storage-class"
_DEPRECATED_ANNOTATIONS = {
    _CLASS_ANNOTATION: 'deprecated since v1.8; use "storageClassName" attribute instead',
    "volume.beta.kubernetes.io/mount-options": 'deprecated since v1.31; use "mountOptions" attribute instead',
}
_SINCE = "lastPhaseTransitionTime"
DEFAULT_CLASS = "storageclass.kubernetes.io/is-default-class"


def _protect(obj: Object, finalizer: str) -> None:
    """Admission adds a finalizer so that what is in use is not deleted."""
    finalizers = obj["metadata"].get("finalizers") or []
    if finalizer not in finalizers:
        obj["metadata"]["finalizers"] = [*finalizers, finalizer]


def _access_mode_causes(spec: Object) -> list[Cause]:
    modes = spec.get("accessModes") or ()
    if not modes:
        return [errors.required("spec.accessModes", "at least 1 access mode is required")]
    return [cause for mode in modes for cause in one_of(mode, ACCESS_MODES, "spec.accessModes")]


class ClaimStrategy(BuiltinStrategy):
    """PersistentVolumeClaims."""

    has_status = True
    delete_returns_object = True

    def default(self, obj: Object) -> None:
        """A file system, pending."""
        put_default(obj["spec"], "volumeMode", "Filesystem")
        put_default(obj.setdefault("status", {}), "phase", "Pending")

    def prepare_create(self, obj: Object, ctx: StrategyContext) -> None:
        """The protection; the default storage class, if there is one."""
        obj["status"] = {"phase": "Pending"}
        _mirror_data_source(obj["spec"])
        _protect(obj, "kubernetes.io/pvc-protection")
        if obj["spec"].get("storageClassName") is None and (default := _default_class(ctx)):
            obj["spec"]["storageClassName"] = default

    def prepare_update(self, new: Object, old: Object, subresource: str, ctx: StrategyContext) -> None:
        """The data source in both fields."""
        super().prepare_update(new, old, subresource, ctx)
        if not subresource:
            _mirror_data_source(new["spec"])

    def warnings(self, obj: Object, old: Object | None) -> list[str]:
        """The annotation that the class had before it became a field; fractions of bytes."""
        return [*(f'metadata.annotations[{_CLASS_ANNOTATION}]: deprecated since v1.8; use "storageClassName" attribute '
                  "instead" for key in obj["metadata"].get("annotations") or () if key == _CLASS_ANNOTATION),
                *claim_spec_warnings(obj["spec"], "spec")]

    def validate_create(self, obj: Object, ctx: StrategyContext) -> list[Cause]:
        """Access modes and size."""
        spec = obj["spec"]
        causes = _access_mode_causes(spec)
        storage = dig(spec, "resources.requests.storage")
        if storage is None:
            causes.append(errors.required("spec.resources[storage]"))
        elif value_of(storage) <= 0:
            causes.append(errors.invalid_value("spec.resources[storage]", storage, "must be greater than zero"))
        return causes + one_of(spec.get("volumeMode"), ("Block", "Filesystem"), "spec.volumeMode")

    def validate_update(self, new: Object, old: Object, subresource: str, ctx: StrategyContext) -> list[Cause]:
        """A claim may grow once it is bound; the rest of its spec is fixed."""
        if subresource == "status":
            return []
        causes = self.validate_create(new, ctx)
        fixed = [_without_mutable_parts(obj["spec"], bound=bool(old["spec"].get("volumeName"))) for obj in (new, old)]
        if fixed[0] != fixed[1]:
            causes.append(errors.forbidden_field(
                "spec", "spec is immutable after creation except resources.requests and volumeAttributesClassName for "
                "bound claims\n"))
        size, before = (dig(obj, "spec.resources.requests.storage") for obj in (new, old))
        if size is not None and before is not None and value_of(size) < value_of(before):
            causes.append(errors.forbidden_field("spec.resources.requests.storage",
                                                 "field can not be less than status.capacity"))
        return causes


def _mirror_data_source(spec: Object) -> None:
    """dataSource and its successor dataSourceRef tell the same, unless the latter names another namespace."""
    source, reference = spec.get("dataSource"), spec.get("dataSourceRef")
    if source is not None and reference is None:
        spec["dataSourceRef"] = dict(source)
    elif reference is not None and source is None and not reference.get("namespace"):
        spec["dataSource"] = dict(reference)


def _without_mutable_parts(spec: Object, *, bound: bool) -> Object:
    rest = {key: value for key, value in spec.items() if key not in ("volumeName", "volumeAttributesClassName")}
    if bound:
        rest["resources"] = {key: value for key, value in (spec.get("resources") or {}).items() if key != "requests"}
    return rest


def _default_class(ctx: StrategyContext) -> str:
    defaults = [entry["metadata"] for entry in ctx.objects("storage.k8s.io", "storageclasses")
                if (entry["metadata"].get("annotations") or {}).get(DEFAULT_CLASS) == "true"]
    newest = max(defaults, key=lambda metadata: (metadata.get("creationTimestamp", ""), metadata["name"]), default=None)
    return str(newest["name"]) if newest else ""


class VolumeStrategy(BuiltinStrategy):
    """PersistentVolumes."""

    has_status = True
    delete_returns_object = True

    def default(self, obj: Object) -> None:
        """Retained, a file system, pending."""
        spec = obj["spec"]
        put_default(obj.setdefault("status", {}), "phase", "Pending")
        put_default(spec, "persistentVolumeReclaimPolicy", "Retain")
        put_default(spec, "volumeMode", "Filesystem")
        default_volume_source(spec)

    def prepare_create(self, obj: Object, ctx: StrategyContext) -> None:
        """The protection, and when the phase began."""
        obj["status"] = {"phase": "Pending", _SINCE: format_time(ctx.now)}
        _protect(obj, "kubernetes.io/pv-protection")

    def prepare_update(self, new: Object, old: Object, subresource: str, ctx: StrategyContext) -> None:
        """A change of the phase is dated, unless the client does it."""
        super().prepare_update(new, old, subresource, ctx)
        if subresource != "status":
            return
        status, before = new["status"], old.get("status") or {}
        if status.get("phase") == before.get("phase"):
            if _SINCE in before:
                put_default(status, _SINCE, before[_SINCE])
        elif status.get(_SINCE) in (None, before.get(_SINCE)):
            status[_SINCE] = format_time(ctx.now)

    def warnings(self, obj: Object, old: Object | None) -> list[str]:
        """Deprecated annotations, policies, labels and kinds of volumes."""
        spec = obj["spec"]
        found = [f"metadata.annotations[{key}]: {why}" for key, why in _DEPRECATED_ANNOTATIONS.items()
                 if key in (obj["metadata"].get("annotations") or {})]
        if spec.get("persistentVolumeReclaimPolicy") == "Recycle":
            found.append("spec.persistentVolumeReclaimPolicy: The Recycle reclaim policy is deprecated. Instead, the "
                         "recommended approach is to use dynamic provisioning.")
        for index, term in enumerate(dig(spec, "nodeAffinity.required.nodeSelectorTerms") or ()):
            found += selector_term_warnings(term, f"spec.nodeAffinity.required.nodeSelectorTerms[{index}]",
                                            values=False)
        return found + [f"spec.{'storageOS' if kind == 'storageos' else kind}: {why}"
                        for kind, why in DEPRECATED_VOLUMES.items() if spec.get(kind) is not None]

    def validate_create(self, obj: Object, ctx: StrategyContext) -> list[Cause]:
        """Access modes, capacity, policy."""
        spec = obj["spec"]
        causes = _access_mode_causes(spec)
        if not spec.get("capacity"):
            causes.append(errors.required("spec.capacity"))
        causes += one_of(spec.get("persistentVolumeReclaimPolicy"), ("Delete", "Recycle", "Retain"),
                         "spec.persistentVolumeReclaimPolicy")
        return causes + one_of(spec.get("volumeMode"), ("Block", "Filesystem"), "spec.volumeMode")


class FixedStrategy(BuiltinStrategy):
    """Kinds of which some top-level fields cannot be changed."""

    immutable: ClassVar[Sequence[str]] = ()

    def validate_update(self, new: Object, old: Object, subresource: str, ctx: StrategyContext) -> list[Cause]:
        """As at creation; fixed fields stay."""
        causes = [errors.forbidden_field(key, f"updates to {key} are forbidden.") for key in self.immutable
                  if new.get(key) != old.get(key)]
        return causes + self.validate_create(new, ctx)


class StorageClassStrategy(FixedStrategy):
    """StorageClasses."""

    immutable: ClassVar[Sequence[str]] = ("parameters", "provisioner", "reclaimPolicy", "volumeBindingMode")
    delete_returns_object = True

    def default(self, obj: Object) -> None:
        """Deleted with its claim, bound at once."""
        put_default(obj, "reclaimPolicy", "Delete")
        put_default(obj, "volumeBindingMode", "Immediate")

    def validate_create(self, obj: Object, ctx: StrategyContext) -> list[Cause]:
        """The provisioner and the modes."""
        causes = [] if obj.get("provisioner") else [errors.required("provisioner")]
        causes += one_of(obj.get("reclaimPolicy"), ("Delete", "Retain"), "reclaimPolicy")
        return causes + one_of(obj.get("volumeBindingMode"), ("Immediate", "WaitForFirstConsumer"), "volumeBindingMode")


class CSIDriverStrategy(BuiltinStrategy):
    """CSIDrivers."""

    delete_returns_object = True

    def default(self, obj: Object) -> None:
        """What a driver can do, unless it says otherwise."""
        spec = obj["spec"]
        defaults: dict[str, Any] = {"attachRequired": True, "podInfoOnMount": False, "storageCapacity": False,
                                    "fsGroupPolicy": "ReadWriteOnceWithFSType", "requiresRepublish": False,
                                    "seLinuxMount": False}
        for key, value in defaults.items():
            put_default(spec, key, value)
        if not spec.get("volumeLifecycleModes"):
            spec["volumeLifecycleModes"] = ["Persistent"]


    def warnings(self, obj: Object, old: Object | None) -> list[str]:
        """Tokens belong into secrets."""
        tokens = obj["spec"].get("tokenRequests")
        changed = old is None or old["spec"].get("tokenRequests") != tokens
        if changed and tokens and obj["spec"].get("serviceAccountTokenInSecrets") is None:
            return ["spec.serviceAccountTokenInSecrets is unset; if supported by this CSI driver, set to true to "
                    "prevent possible logging of tokens in volume attributes"]
        return []


class CSINodeStrategy(BuiltinStrategy):
    """CSINodes."""

    delete_returns_object = True


class AttributesClassStrategy(FixedStrategy):
    """VolumeAttributesClasses."""

    immutable: ClassVar[Sequence[str]] = ("driverName", "parameters")
    delete_returns_object = True

    def prepare_create(self, obj: Object, ctx: StrategyContext) -> None:
        """The protection."""
        _protect(obj, "kubernetes.io/vac-protection")


class AttachmentStrategy(BuiltinStrategy):
    """VolumeAttachments."""

    has_status = True
    delete_returns_object = True

    def validate_update(self, new: Object, old: Object, subresource: str, ctx: StrategyContext) -> list[Cause]:
        """The spec is fixed."""
        return [] if subresource == "status" else immutable_causes(new, old, ("spec",), "")
