"""Volumes: PersistentVolume, PersistentVolumeClaim, StorageClass, CSIDriver, VolumeAttachment.

StorageClasses and VolumeAttributesClasses.

CSIDrivers, and CSINodes with the drivers of a node.

VolumeAttachments.

CSIStorageCapacities.
"""
from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

from kubectl_runtime.apiserver import errors
from kubectl_runtime.apiserver.errors import Cause
from kubectl_runtime.apiserver.kinds import limits
from kubectl_runtime.apiserver.kinds.base import (
    NOT_NEGATIVE,
    BuiltinStrategy,
    dig,
    immutable_causes,
    non_negative,
    one_of,
    put_default,
    selector_causes,
)
from kubectl_runtime.apiserver.kinds.pod.pod_defaults import default_volume_source
from kubectl_runtime.apiserver.kinds.pod.pod_validation import node_selector_causes
from kubectl_runtime.apiserver.kinds.pod.pod_volumes import (
    VOLUME_SOURCES,
    access_mode_causes,
    claim_causes,
    source_causes,
)
from kubectl_runtime.apiserver.kinds.pod.warnings import (
    DEPRECATED_VOLUMES,
    claim_spec_warnings,
    selector_term_warnings,
)
from kubectl_runtime.apiserver.objectmeta.names import dns_subdomain_errors, qualified_name_errors
from kubectl_runtime.apiserver.strategy import Object, StrategyContext
from kubectl_runtime.core.meta.metav1 import format_time
from kubectl_runtime.core.meta.quantities import value_of

_CLASS_ANNOTATION = "volume.beta.kubernetes.io/storage-class"
_DEPRECATED_ANNOTATIONS = {
    _CLASS_ANNOTATION: 'deprecated since v1.8; use "storageClassName" attribute instead',
    "volume.beta.kubernetes.io/mount-options": 'deprecated since v1.31; use "mountOptions" attribute instead',
}
_SINCE = "lastPhaseTransitionTime"
DEFAULT_CLASS = "storageclass.kubernetes.io/is-default-class"


def protect(obj: Object, finalizer: str) -> None:
    """Admission adds a finalizer so that what is in use is not deleted."""
    finalizers = obj["metadata"].get("finalizers") or []
    if finalizer not in finalizers:
        obj["metadata"]["finalizers"] = [*finalizers, finalizer]


class ClaimStrategy(BuiltinStrategy):
    """PersistentVolumeClaims."""

    has_status = True
    delete_returns_object = True

    def default(self, obj: Object) -> None:
        """A file system, pending."""
        put_default(obj["spec"], "volumeMode", "Filesystem")
        put_default(obj.setdefault("status", {}), "phase", "Pending")

    def admit(self, obj: Object, ctx: StrategyContext) -> None:
        """The protection; the default storage class, if there is one."""
        protect(obj, "kubernetes.io/pvc-protection")
        if obj["spec"].get("storageClassName") is None and (default := _default_class(ctx)):
            obj["spec"]["storageClassName"] = default

    def prepare_create(self, obj: Object, ctx: StrategyContext) -> None:
        """A fresh status, the data source in both fields, and what admission adds."""
        obj["status"] = {"phase": "Pending"}
        _normalize_data_source(obj["spec"], created=True)
        self.admit(obj, ctx)

    def prepare_update(self, new: Object, old: Object, subresource: str, ctx: StrategyContext) -> None:
        """The data source in both fields."""
        super().prepare_update(new, old, subresource, ctx)
        if not subresource:
            _normalize_data_source(new["spec"], created=False)

    def warnings(self, obj: Object, old: Object | None) -> list[str]:
        """The annotation that the class had before it became a field; fractions of bytes."""
        return [*(f'metadata.annotations[{_CLASS_ANNOTATION}]: deprecated since v1.8; use "storageClassName" attribute '
                  "instead" for key in obj["metadata"].get("annotations") or () if key == _CLASS_ANNOTATION),
                *claim_spec_warnings(obj["spec"], "spec")]

    def canonicalize(self, obj: Object, ctx: StrategyContext) -> bool:
        """The phase of a new claim is a default of reading."""
        return True

    def validate_create(self, obj: Object, ctx: StrategyContext) -> list[Cause]:
        """Access modes, size, class; the source of the data."""
        spec = obj["spec"]
        causes = list(claim_causes(spec, "spec")) + selector_causes(spec.get("selector") or {}, "spec.selector")
        if name := spec.get("volumeAttributesClassName"):
            causes += [errors.invalid_value("spec.volumeAttributesClassName", name, why)
                       for why in dns_subdomain_errors(name)]
        causes += _source_causes(spec)
        if not causes:
            limits.check_claim(obj, ctx)
        return causes

    def validate_update(self, new: Object, old: Object, subresource: str, ctx: StrategyContext) -> list[Cause]:
        """A claim may grow once it is bound; the rest of its spec is fixed."""
        if subresource == "status":
            return []
        causes = self.validate_create(new, ctx)
        if _fixed_parts(new["spec"], old["spec"]) != _fixed_parts(old["spec"], old["spec"]):
            causes.append(errors.forbidden_field(
                "spec", "spec is immutable after creation except resources.requests and volumeAttributesClassName for "
                "bound claims\n"))
        causes += immutable_causes(new["spec"], old["spec"], ("volumeMode",), "")
        size, before = (dig(obj, "spec.resources.requests.storage") for obj in (new, old))
        if size is not None and before is not None and value_of(size) < value_of(before):
            causes.append(errors.forbidden_field("spec.resources.requests.storage",
                                                 "field can not be less than status.capacity"))
        return causes


def _normalize_data_source(spec: Object, *, created: bool) -> None:
    """dataSource and its successor dataSourceRef tell the same; what is of no use is dropped, as it once was."""
    source, reference = spec.get("dataSource"), spec.get("dataSourceRef")
    if created and reference is not None and reference.get("namespace"):  # of a feature that is off
        spec.pop("dataSourceRef")
        reference = None
    if source is not None and reference is None:
        known = source.get("kind") == "PersistentVolumeClaim" and not source.get("apiGroup")
        snapshot = source.get("kind") == "VolumeSnapshot" and source.get("apiGroup") == "snapshot.storage.k8s.io"
        if created and not known and not snapshot:
            spec.pop("dataSource")
        else:
            spec["dataSourceRef"] = dict(source)
    elif reference is not None and source is None:
        spec["dataSource"] = dict(reference)


def _source_causes(spec: Object) -> Iterator[Cause]:
    source, reference = spec.get("dataSource"), spec.get("dataSourceRef")
    for key, value in (("dataSource", source), ("dataSourceRef", reference)):
        if value is None:
            continue
        for part in ("name", "kind"):
            if not value.get(part):
                yield errors.required(f"spec.{key}.{part}")
        if not value.get("apiGroup") and value.get("kind") not in ("", "PersistentVolumeClaim"):
            yield errors.invalid_value(f"spec.{key}", value.get("kind"),
                                       "must be 'PersistentVolumeClaim' when referencing the default apiGroup")
    if source is not None and reference is not None and source != reference:
        yield errors.invalid_value("spec", {}, "must match dataSourceRef")


def _fixed_parts(spec: Object, before: Object) -> Object:
    """What may not change in the spec of a claim that was `before`: a volume and a class can still be set once."""
    mutable = ["volumeAttributesClassName"] if before.get("volumeName") else []
    mutable += [key for key, unset in (("volumeName", ""), ("storageClassName", None))
                if before.get(key, unset) in (unset, None)]
    rest = {key: value for key, value in spec.items() if key not in mutable}
    if before.get("volumeName"):
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

    def admit(self, obj: Object, ctx: StrategyContext) -> None:
        """The protection."""
        protect(obj, "kubernetes.io/pv-protection")

    def prepare_create(self, obj: Object, ctx: StrategyContext) -> None:
        """What admission adds, and when the phase began."""
        obj["status"] = {"phase": "Pending", _SINCE: format_time(ctx.now)}
        self.admit(obj, ctx)

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
        """Access modes, capacity, policy, and one source."""
        return list(_volume_causes(obj["spec"]))

    def validate_update(self, new: Object, old: Object, subresource: str, ctx: StrategyContext) -> list[Cause]:
        """As at creation; the source stays."""
        if subresource:
            return []
        causes = self.validate_create(new, ctx)
        sources = [{key: value for key, value in obj["spec"].items() if key in VOLUME_SOURCES} for obj in (new, old)]
        if sources[0] != sources[1]:
            causes.append(errors.forbidden_field("spec.persistentvolumesource",
                                                 "spec.persistentvolumesource is immutable after creation\n"))
        if old["spec"].get("nodeAffinity") not in (None, new["spec"].get("nodeAffinity")):
            causes.append(errors.invalid_value("nodeAffinity", new["spec"].get("nodeAffinity"),
                                               "field is immutable, except for updating from beta label to GA"))
        return causes + immutable_causes(new["spec"], old["spec"], ("volumeMode",), "")


def _volume_causes(spec: Object) -> Iterator[Cause]:
    if not spec.get("accessModes"):
        yield errors.required("spec.accessModes")
    else:
        yield from access_mode_causes(spec, "spec")
    capacity = spec.get("capacity")
    if not capacity:
        yield errors.required("spec.capacity")
    if not capacity or list(capacity) != ["storage"]:
        shown = dict(sorted(capacity.items())) if capacity else None
        yield errors.not_supported("spec.capacity", shown, ("storage",))
    for name, amount in (capacity or {}).items():
        if value_of(amount) <= 0:
            yield errors.invalid_value(f"spec.capacity[{name}]", amount, "must be greater than zero")
    policy = spec.get("persistentVolumeReclaimPolicy")
    yield from one_of(policy, ("Delete", "Recycle", "Retain"), "spec.persistentVolumeReclaimPolicy")
    if (affinity := spec.get("nodeAffinity")) is not None:
        if affinity.get("required") is None:
            yield errors.required("spec.nodeAffinity.required", "must specify required node constraints")
        else:
            yield from node_selector_causes(affinity["required"], "spec.nodeAffinity.required")
    yield from _backing_causes(spec, policy)
    if name := spec.get("storageClassName"):
        yield from (errors.invalid_value("spec.storageClassName", name, why) for why in dns_subdomain_errors(name))
    yield from one_of(spec.get("volumeMode"), ("Block", "Filesystem"), "spec.volumeMode")


def _backing_causes(spec: Object, policy: str | None) -> Iterator[Cause]:
    """The one thing that a volume is made of, and what depends on it."""
    sources = {key: spec[key] for key in VOLUME_SOURCES if spec.get(key) is not None}
    yield from source_causes(sources, "spec", required="must specify a volume type")
    if "csi" in sources and not sources["csi"].get("volumeHandle"):
        yield errors.required("spec.csi.volumeHandle")
    if "local" in sources and spec.get("nodeAffinity") is None:
        yield errors.required("spec.nodeAffinity", "Local volume requires node affinity")
    if (sources.get("hostPath") or {}).get("path") == "/" and policy == "Recycle":
        yield errors.forbidden_field("spec.persistentVolumeReclaimPolicy",
                                     "may not be 'recycle' for a hostPath mount of '/'")
    if (name := spec.get("volumeAttributesClassName")) is not None:
        if not name:
            yield errors.required("spec.volumeAttributesClassName", "an empty string is disallowed")
        if "csi" not in sources:
            yield errors.required("spec.csi", "has to be specified when using volumeAttributesClassName")


class FixedStrategy(BuiltinStrategy):
    """Kinds of which some top-level fields cannot be changed."""

    immutable: ClassVar[Sequence[str]] = ()

    def validate_update(self, new: Object, old: Object, subresource: str, ctx: StrategyContext) -> list[Cause]:
        """As at creation; fixed fields stay."""
        causes = [self.refused(key, new.get(key)) for key in self.immutable if new.get(key) != old.get(key)]
        return causes + self.validate_create(new, ctx)

    def refused(self, key: str, value: Any) -> Cause:
        """What is said of a field that changed."""
        return errors.forbidden_field(key, f"updates to {key} are forbidden.")


class StorageClassStrategy(FixedStrategy):
    """StorageClasses."""

    immutable: ClassVar[Sequence[str]] = ("parameters", "provisioner", "reclaimPolicy", "volumeBindingMode")
    delete_returns_object = True

    def refused(self, key: str, value: Any) -> Cause:
        """This kind says it in other words."""
        return errors.immutable(key, value)

    def default(self, obj: Object) -> None:
        """Deleted with its claim, bound at once."""
        put_default(obj, "reclaimPolicy", "Delete")
        put_default(obj, "volumeBindingMode", "Immediate")

    def validate_create(self, obj: Object, ctx: StrategyContext) -> list[Cause]:
        """The provisioner and the modes."""
        provisioner = (obj.get("provisioner") or "").lower()
        causes = [errors.invalid_value("provisioner", provisioner, why) for why in qualified_name_errors(provisioner)
                  ] if provisioner else [errors.required("provisioner")]
        if "" in (obj.get("parameters") or {}):
            causes.append(errors.invalid_value("parameters", "", "field can not be empty."))
        causes += one_of(obj.get("reclaimPolicy"), ("Delete", "Retain"), "reclaimPolicy")
        causes += _topology_causes(obj.get("allowedTopologies") or ())
        return causes + one_of(obj.get("volumeBindingMode"), ("Immediate", "WaitForFirstConsumer"), "volumeBindingMode")


class AttributesClassStrategy(FixedStrategy):
    """VolumeAttributesClasses."""

    immutable: ClassVar[Sequence[str]] = ("driverName", "parameters")
    delete_returns_object = True

    def prepare_create(self, obj: Object, ctx: StrategyContext) -> None:
        """The protection."""
        protect(obj, "kubernetes.io/vac-protection")

    def validate_create(self, obj: Object, ctx: StrategyContext) -> list[Cause]:
        """A driver and parameters."""
        driver = obj.get("driverName") or ""
        causes = [errors.invalid_value("driverName", driver, why) for why in dns_subdomain_errors(driver.lower())
                  ] if driver else [errors.required("driverName")]
        if not obj.get("parameters"):
            causes.append(errors.required("parameters", "must contain at least one key/value pair"))
        return causes


def _topology_causes(terms: Sequence[Object]) -> Iterator[Cause]:
    for index, term in enumerate(terms):
        at = f"allowedTopologies[{index}].matchLabelExpressions"
        expressions = term.get("matchLabelExpressions") or ()
        if not expressions:  # an empty term selects what the one before selected
            yield errors.duplicate(at, "")
        for number, expression in enumerate(expressions):
            key, values = expression.get("key") or "", expression.get("values") or ()
            if not values:
                yield errors.required(f"{at}[{number}].values")
            yield from (errors.invalid_value(f"{at}[{number}].key", key, why) for why in qualified_name_errors(key))


MIN_TOKEN_SECONDS, MIN_PERIOD_SECONDS = 600, 10


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

    def validate_create(self, obj: Object, ctx: StrategyContext) -> list[Cause]:
        """Modes, policy, tokens."""
        spec, audiences = obj["spec"], set()
        causes = []
        for mode in spec.get("volumeLifecycleModes") or ():
            causes += one_of(mode, ("Persistent", "Ephemeral"), "spec.volumeLifecycleModes", required=True)
        causes += one_of(spec.get("fsGroupPolicy"), ("File", "None", "ReadWriteOnceWithFSType"), "spec.fsGroupPolicy")
        for index, token in enumerate(spec.get("tokenRequests") or ()):
            at, audience = f"spec.tokenRequests[{index}]", token.get("audience")
            seconds = token.get("expirationSeconds")
            if audience in audiences:
                causes.append(errors.duplicate(f"{at}.audience", audience))
            audiences.add(audience)
            if seconds is not None and seconds < MIN_TOKEN_SECONDS:
                causes.append(errors.invalid_value(f"{at}.expirationSeconds", seconds,
                                                   "may not specify a duration less than 10 minutes"))
        period = spec.get("nodeAllocatableUpdatePeriodSeconds")
        if period is not None and period < MIN_PERIOD_SECONDS:
            causes.append(errors.invalid_value("spec.nodeAllocatableUpdatePeriodSeconds", period,
                                               f"must be greater than or equal to {MIN_PERIOD_SECONDS} seconds"))
        return causes

    def validate_update(self, new: Object, old: Object, subresource: str, ctx: StrategyContext) -> list[Cause]:
        """Whether volumes are attached, and the modes, stay."""
        fixed = ("attachRequired", "volumeLifecycleModes")
        return self.validate_create(new, ctx) + immutable_causes(new["spec"], old["spec"], fixed)

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

    def validate_create(self, obj: Object, ctx: StrategyContext) -> list[Cause]:
        """Names of the drivers, and of the node as they know it."""
        seen: set[str] = set()
        return [cause for index, driver in enumerate((obj.get("spec") or {}).get("drivers") or ())
                for cause in _driver_causes(driver, f"spec.drivers[{index}]", seen)]

    def validate_update(self, new: Object, old: Object, subresource: str, ctx: StrategyContext) -> list[Cause]:
        """As at creation."""
        return self.validate_create(new, ctx)


def _driver_causes(driver: Object, path: str, seen: set[str]) -> Iterator[Cause]:
    name, node = driver.get("name") or "", driver.get("nodeID") or ""
    if not name:
        yield errors.required(f"{path}.name")
    else:
        yield from (errors.invalid_value(f"{path}.name", name, why) for why in dns_subdomain_errors(name.lower()))
    if not node:
        yield errors.required(f"{path}.nodeID")
    if name in seen:
        yield errors.duplicate(f"{path}.name", name)
    seen.add(name)
    keys = driver.get("topologyKeys") or []
    for index, key in enumerate(keys):
        if key in keys[:index]:
            yield errors.duplicate(path, key)
        yield from (errors.invalid_value(path, key, why) for why in qualified_name_errors(key))
    yield from non_negative(driver.get("allocatable") or {}, "count", f"{path}.allocatable")


_ONE_VOLUME = "must specify exactly one of inlineVolumeSpec and persistentVolumeName"


class AttachmentStrategy(BuiltinStrategy):
    """VolumeAttachments."""

    has_status = True
    delete_returns_object = True

    def validate_create(self, obj: Object, ctx: StrategyContext) -> list[Cause]:
        """The driver, the node, and one volume."""
        spec = obj["spec"]
        attacher, node, source = spec.get("attacher") or "", spec.get("nodeName") or "", spec.get("source") or {}
        causes = [errors.invalid_value("spec.attacher", attacher, why) for why in dns_subdomain_errors(attacher.lower())
                  ] if attacher else [errors.required("spec.attacher")]
        causes += [errors.invalid_value("spec.nodeName", node, why) for why in dns_subdomain_errors(node)]
        name, inline = source.get("persistentVolumeName"), source.get("inlineVolumeSpec")
        if name is None and inline is None:
            causes.append(errors.required("spec.source", _ONE_VOLUME))
        elif name is not None and inline is not None:
            causes.append(errors.forbidden_field("spec.source", _ONE_VOLUME))
        elif name is not None:
            causes += [errors.invalid_value("spec.source.persistentVolumeName", name, why)
                       for why in dns_subdomain_errors(name)] if name else [
                errors.required("spec.source.persistentVolumeName")]
        elif inline is not None:
            causes += [errors.forbidden_field(f"spec.source.inlineVolumeSpec.{key}",
                                              "may not be specified in the context of inline volumes")
                       for key in ("capacity", "claimRef", "storageClassName")
                       if inline.get(key)]
        return causes

    def validate_update(self, new: Object, old: Object, subresource: str, ctx: StrategyContext) -> list[Cause]:
        """The spec is fixed."""
        return [] if subresource == "status" or new["spec"] == old["spec"] else [
            errors.immutable("spec", new["spec"])]


class CapacityStrategy(BuiltinStrategy):
    """CSIStorageCapacities."""

    def validate_create(self, obj: Object, ctx: StrategyContext) -> list[Cause]:
        """The class, the topology and the amounts."""
        name = obj.get("storageClassName") or ""
        causes = [errors.invalid_value("storageClassName", name, why) for why in dns_subdomain_errors(name)]
        causes += selector_causes(obj.get("nodeTopology") or {}, "nodeTopology")
        return causes + [errors.invalid_value(key, obj[key], NOT_NEGATIVE) for key in ("capacity", "maximumVolumeSize")
                         if obj.get(key) is not None and value_of(obj[key]) < 0]

    def validate_update(self, new: Object, old: Object, subresource: str, ctx: StrategyContext) -> list[Cause]:
        """Class and topology stay."""
        fixed = [errors.immutable(key, new.get(key)) for key in ("nodeTopology", "storageClassName")
                 if new.get(key) != old.get(key)]
        return self.validate_create(new, ctx) + fixed
