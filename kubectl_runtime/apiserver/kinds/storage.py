"""PersistentVolumes and their claims, and the kinds of storage.k8s.io."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from kubectl_runtime.apiserver import errors
from kubectl_runtime.apiserver.errors import Cause
from kubectl_runtime.apiserver.kinds import limits
from kubectl_runtime.apiserver.kinds import rules as r
from kubectl_runtime.apiserver.kinds.base import (
    CLASS_ANNOTATION,
    NOT_NEGATIVE,
    BuiltinStrategy,
    class_of,
    default_class,
    difference,
    dig,
    put_default,
    selector_causes,
)
from kubectl_runtime.apiserver.kinds.pod.pod_validation import NODE_SELECTOR
from kubectl_runtime.apiserver.kinds.pod.pod_volumes import ACCESS_MODES, VOLUME_SOURCES, claim_causes, source_causes
from kubectl_runtime.apiserver.kinds.pod.pods import default_volume_source
from kubectl_runtime.apiserver.kinds.pod.warnings import (
    DEPRECATED_VOLUMES,
    claim_spec_warnings,
    selector_term_warnings,
)
from kubectl_runtime.apiserver.strategy import StrategyContext
from kubectl_runtime.apiserver.wire import Object
from kubectl_runtime.core.meta.metav1 import format_time
from kubectl_runtime.core.meta.quantities import value_of

_DEPRECATED_ANNOTATIONS = {
    CLASS_ANNOTATION: 'deprecated since v1.8; use "storageClassName" attribute instead',
    "volume.beta.kubernetes.io/mount-options": 'deprecated since v1.31; use "mountOptions" attribute instead',
}
_SINCE = "lastPhaseTransitionTime"
DEFAULT_CLASS = "storageclass.kubernetes.io/is-default-class"


def protect(obj: Object, finalizer: str) -> None:
    """Add the finalizer that prevents the deletion of an object in use, as admission does."""
    finalizers = obj["metadata"].get("finalizers") or []
    if finalizer not in finalizers:
        obj["metadata"]["finalizers"] = [*finalizers, finalizer]


_SOURCE = r.Rules(
    ("name", r.REQUIRED),
    ("kind", r.REQUIRED),
    r.when(r.lacks("apiGroup"), r.negated(r.equals("kind", "", "PersistentVolumeClaim")), ("", lambda source, path: (
        errors.invalid_value(path, source.get("kind"),
                             "must be 'PersistentVolumeClaim' when referencing the default apiGroup"),))),
)
_FIXED_MODE = r.Fixed(lambda _, value: errors.immutable("volumeMode", value))  # this is the real server's path


class ClaimStrategy(BuiltinStrategy):
    delete_returns_object = True

    defaults = r.Defaults({"spec.volumeMode": "Filesystem", "status": {}, "status.phase": "Pending"})

    def admit(self, obj: Object, ctx: StrategyContext) -> None:
        """Add the protection finalizer, and the default StorageClass if there is one."""
        protect(obj, "kubernetes.io/pvc-protection")
        if class_of(obj) is None and (
                default := default_class(ctx.objects("storage.k8s.io", "storageclasses"), DEFAULT_CLASS)):
            obj["spec"]["storageClassName"] = default

    def prepare_create(self, obj: Object, ctx: StrategyContext) -> None:
        """Set the initial status, make dataSource and dataSourceRef equal, and apply `admit`."""
        obj["status"] = {"phase": "Pending"}
        _normalize_data_source(obj["spec"], created=True)
        self.admit(obj, ctx)

    def prepare_update(self, new: Object, old: Object, subresource: str, ctx: StrategyContext) -> None:
        super().prepare_update(new, old, subresource, ctx)
        if not subresource:
            _normalize_data_source(new["spec"], created=False)

    def warnings(self, obj: Object, old: Object | None) -> list[str]:
        """Warn about the deprecated class annotation and about fractions of bytes."""
        return [*(f'metadata.annotations[{CLASS_ANNOTATION}]: deprecated since v1.8; use "storageClassName" attribute '
                  "instead" for key in obj["metadata"].get("annotations") or () if key == CLASS_ANNOTATION),
                *claim_spec_warnings(obj["spec"], "spec")]

    def canonicalize(self, obj: Object, ctx: StrategyContext) -> bool:
        """Set a new claim's phase, which the real server adds as a default on reading."""
        return True

    rules = r.Rules(
        ("spec", claim_causes),
        ("spec.selector", selector_causes),
        ("spec.volumeAttributesClassName", r.DNS_SUBDOMAIN),
        ("spec.dataSource", _SOURCE),
        ("spec.dataSourceRef", _SOURCE),
        r.when(r.has("spec.dataSource", "spec.dataSourceRef"),
               lambda obj: obj["spec"]["dataSource"] != obj["spec"]["dataSourceRef"],
                  ("spec", r.invalid("must match dataSourceRef", shown={}))),
    )

    def validate_create(self, obj: Object, ctx: StrategyContext) -> list[Cause]:
        """Evaluate `rules`, then check the namespace's LimitRanges if there are no causes. May raise a 403."""
        causes = super().validate_create(obj, ctx)
        if not causes:
            limits.check_claim(obj, ctx)
        return causes

    def validate_update(self, new: Object, old: Object, subresource: str, ctx: StrategyContext) -> list[Cause]:
        """Validate an update. A bound claim may grow; the rest of its spec is fixed."""
        if subresource == "status":
            return []
        causes = self.validate_create(new, ctx)
        fixed, before_it = (_fixed_parts(spec, old["spec"]) for spec in (new["spec"], old["spec"]))
        if fixed != before_it:
            changeable = {key: value for key, value in old["spec"].items() if key not in before_it}
            resources = {"resources": {**(fixed.get("resources") or {}),
                                       "requests": dig(old, "spec.resources.requests")}}
            causes.append(errors.forbidden_field(
                "spec", "spec is immutable after creation except resources.requests and volumeAttributesClassName for "
                "bound claims\n" + difference(_as_in_go(old["spec"]), _as_in_go(
                    {**changeable, **fixed, **(resources if old["spec"].get("volumeName") else {})}), as_given=True)))
        if new["spec"].get("volumeMode") != old["spec"].get("volumeMode"):
            causes.append(_FIXED_MODE.refuse("", new["spec"].get("volumeMode")))
        size, before = (dig(obj, "spec.resources.requests.storage") for obj in (new, old))
        if size is not None and before is not None and value_of(size) < value_of(before):
            causes.append(errors.forbidden_field("spec.resources.requests.storage",
                                                 "field can not be less than status.capacity"))
        if not causes and size is not None and before is not None and value_of(size) > value_of(before):
            _refuse_growth(new, old, ctx)
        return causes


def _refuse_growth(new: Object, old: Object, ctx: StrategyContext) -> None:
    """Raise a 403 unless the claim's class allows volume expansion."""
    name = class_of(new)
    if name and name == class_of(old) and any(
            found.get("allowVolumeExpansion") for found in ctx.objects("storage.k8s.io", "storageclasses")
            if found["metadata"]["name"] == name):
        return
    raise errors.forbidden("", "persistentvolumeclaims", new["metadata"]["name"], (
        "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support "
        "resize"))


def _normalize_data_source(spec: Object, *, created: bool) -> None:
    """Make dataSource and its successor dataSourceRef equal. An invalid dataSource is dropped, as in old versions."""
    source, reference = spec.get("dataSource"), spec.get("dataSourceRef")
    if created and reference is not None and reference.get("namespace"):
        # In the real server the feature for sources in other namespaces is off by default.
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


def _as_in_go(spec: Object) -> Object:
    """A claim's spec with the field names and field order of the real server's struct."""
    resources = spec.get("resources") or {}
    return {"AccessModes": spec.get("accessModes"), "Selector": spec.get("selector"),
            "Resources": {"Limits": resources.get("limits"), "Requests": resources.get("requests")},
            "VolumeName": spec.get("volumeName") or "",
            **{key[:1].upper() + key[1:]: spec.get(key) for key in (
                "storageClassName", "volumeMode", "dataSource", "dataSourceRef", "volumeAttributesClassName")}}


def _fixed_parts(spec: Object, before: Object) -> Object:
    """The parts of a claim's spec that an update cannot change. A missing volume or class can still be set once."""
    mutable = ["volumeAttributesClassName"] if before.get("volumeName") else []
    mutable += [key for key, unset in (("volumeName", ""), ("storageClassName", None))
                if before.get(key, unset) in (unset, None)]
    rest = {key: value for key, value in spec.items() if key not in mutable}
    if before.get("volumeName"):
        rest["resources"] = {key: value for key, value in (spec.get("resources") or {}).items() if key != "requests"}
    return rest


def _capacity(capacity: Object | None, path: str) -> Iterator[Cause]:
    if not capacity or list(capacity) != ["storage"]:
        yield errors.not_supported(path, dict(sorted(capacity.items())) if capacity else None, ("storage",))
    for name, amount in (capacity or {}).items():
        if value_of(amount) <= 0:
            yield errors.invalid_value(f"{path}[{name}]", amount, "must be greater than zero")


def _sources(spec: Object) -> Object:
    return {key: spec[key] for key in VOLUME_SOURCES if spec.get(key) is not None}


def _source(spec: Object, path: str) -> Iterator[Cause]:
    yield from source_causes(_sources(spec), path, required="must specify a volume type")


class VolumeStrategy(BuiltinStrategy):
    delete_returns_object = True
    defaults = r.Defaults({"status": {}, "status.phase": "Pending", "spec.persistentVolumeReclaimPolicy": "Retain",
                         "spec.volumeMode": "Filesystem"})
    rules = r.Rules(
        ("spec.accessModes", r.REQUIRED, *ACCESS_MODES),
        ("spec.capacity", r.REQUIRED, _capacity),
        ("spec.persistentVolumeReclaimPolicy", r.choice("Delete", "Recycle", "Retain")),
        ("spec.nodeAffinity", r.Rules(
            ("required", r.present("must specify required node constraints"), NODE_SELECTOR))),
        ("spec", _source),
        r.when(r.has("spec.csi"), ("spec.csi.volumeHandle", r.REQUIRED)),
        r.when(r.has("spec.local"), ("spec.nodeAffinity", r.present("Local volume requires node affinity"))),
        r.when(r.equals("spec.hostPath.path", "/"), r.equals("spec.persistentVolumeReclaimPolicy", "Recycle"),
               ("spec.persistentVolumeReclaimPolicy", r.prohibited(
                   "may not be 'recycle' for a hostPath mount of '/'"))),
        r.when(r.has("spec.volumeAttributesClassName"),
               ("spec.volumeAttributesClassName", r.required("an empty string is disallowed")),
               ("spec.csi", r.present("has to be specified when using volumeAttributesClassName"))),
        ("spec.storageClassName", r.DNS_SUBDOMAIN),
        ("spec.volumeMode", r.choice("Block", "Filesystem")),
        ("spec", r.Fixed(lambda *_: errors.forbidden_field(
            "spec.persistentvolumesource", "spec.persistentvolumesource is immutable after creation\n"), of=_sources)),
        ("spec.nodeAffinity", r.Fixed(changed=r.once_set, refuse=lambda _, value: errors.invalid_value(
            "nodeAffinity", value, "field is immutable, except for updating from beta label to GA"))),
        ("spec.volumeMode", _FIXED_MODE),
    )

    def default(self, obj: Object) -> None:
        super().default(obj)
        default_volume_source(obj["spec"])

    def admit(self, obj: Object, ctx: StrategyContext) -> None:
        protect(obj, "kubernetes.io/pv-protection")

    def prepare_create(self, obj: Object, ctx: StrategyContext) -> None:
        """Set the initial status with lastPhaseTransitionTime, and apply `admit`."""
        obj["status"] = {"phase": "Pending", _SINCE: format_time(ctx.now)}
        self.admit(obj, ctx)

    def prepare_update(self, new: Object, old: Object, subresource: str, ctx: StrategyContext) -> None:
        """Set lastPhaseTransitionTime if the phase changes, unless the client sets the time."""
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
        """Warn about deprecated annotations, policies, labels and volume types."""
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


def _no_empty_name(parameters: Object | None, path: str) -> list[Cause]:
    return [errors.invalid_value(path, "", "field can not be empty.")] if "" in (parameters or {}) else []


def _topologies(terms: Sequence[Object] | None, path: str) -> Iterator[Cause]:
    for index, term in enumerate(terms or ()):
        if not term.get("matchLabelExpressions"):  # the real server reports an empty term as a duplicate
            yield errors.duplicate(f"{path}[{index}].matchLabelExpressions", "")
        yield from _TOPOLOGY(term, f"{path}[{index}]")


_TOPOLOGY = r.Rules(("matchLabelExpressions[*]", r.Rules(("values", r.REQUIRED), ("key", r.ANY_QUALIFIED))))


def _provisioner(text: str | None, path: str) -> Iterable[Cause]:
    return r.QUALIFIED((text or "").lower(), path)


class StorageClassStrategy(BuiltinStrategy):
    delete_returns_object = True
    defaults = r.Defaults({"reclaimPolicy": "Delete", "volumeBindingMode": "Immediate"})
    rules = r.Rules(
        *((key, r.FIXED) for key in ("parameters", "provisioner", "reclaimPolicy", "volumeBindingMode")),
        ("provisioner", r.REQUIRED, _provisioner),
        ("parameters", _no_empty_name),
        ("reclaimPolicy", r.choice("Delete", "Retain")),
        ("allowedTopologies", _topologies),
        ("volumeBindingMode", r.choice("Immediate", "WaitForFirstConsumer")),
    )


class AttributesClassStrategy(BuiltinStrategy):
    delete_returns_object = True
    rules = r.Rules(
        *((key, r.fixed(f"updates to {key} are forbidden.")) for key in ("driverName", "parameters")),
        ("driverName", r.REQUIRED, r.LOWERED_SUBDOMAIN),
        ("parameters", r.required("must contain at least one key/value pair")),
    )

    def prepare_create(self, obj: Object, ctx: StrategyContext) -> None:
        protect(obj, "kubernetes.io/vac-protection")


class CSIDriverStrategy(BuiltinStrategy):
    delete_returns_object = True
    defaults = r.Defaults({
        "spec.attachRequired": True, "spec.podInfoOnMount": False, "spec.storageCapacity": False,
        "spec.fsGroupPolicy": "ReadWriteOnceWithFSType", "spec.requiresRepublish": False, "spec.seLinuxMount": False,
    }, zero={"spec.volumeLifecycleModes": ["Persistent"]})
    rules = r.Rules(
        ("spec.volumeLifecycleModes", r.each(r.REQUIRED, r.choice("Persistent", "Ephemeral"))),
        ("spec.fsGroupPolicy", r.choice("File", "None", "ReadWriteOnceWithFSType")),
        ("spec.tokenRequests[*]", r.Rules(
            ("audience", r.UNIQUE),
            ("expirationSeconds", r.at_least(600, "may not specify a duration less than 10 minutes")))),
        ("spec.nodeAllocatableUpdatePeriodSeconds", r.at_least(10, "must be greater than or equal to 10 seconds")),
        ("spec.attachRequired", r.FIXED),
        ("spec.volumeLifecycleModes", r.FIXED),
    )

    def warnings(self, obj: Object, old: Object | None) -> list[str]:
        """Warn if serviceAccountTokenInSecrets is unset, because tokens may then be logged."""
        tokens = obj["spec"].get("tokenRequests")
        changed = old is None or old["spec"].get("tokenRequests") != tokens
        if changed and tokens and obj["spec"].get("serviceAccountTokenInSecrets") is None:
            return ["spec.serviceAccountTokenInSecrets is unset; if supported by this CSI driver, set to true to "
                    "prevent possible logging of tokens in volume attributes"]
        return []


def _topology_keys(driver: Object, path: str) -> Iterator[Cause]:
    keys = driver.get("topologyKeys") or []
    for index, key in enumerate(keys):  # as on the real server, the causes have the path of the driver entry
        yield from [errors.duplicate(path, key)] if key in keys[:index] else ()
        yield from r.ANY_QUALIFIED(key, path)


class CSINodeStrategy(BuiltinStrategy):
    delete_returns_object = True
    rules = r.Rules(("spec.drivers[*]", r.Rules(
        ("name", r.REQUIRED, r.LOWERED_SUBDOMAIN),
        ("nodeID", r.REQUIRED),
        ("name", r.UNIQUE),
        ("", _topology_keys),
        ("allocatable.count", r.NATURAL),
    )))


_ONE_VOLUME = "must specify exactly one of inlineVolumeSpec and persistentVolumeName"
_NOT_INLINE = r.forbidden("may not be specified in the context of inline volumes")


class AttachmentStrategy(BuiltinStrategy):
    delete_returns_object = True
    rules = r.Rules(
        ("spec.attacher", r.REQUIRED, r.LOWERED_SUBDOMAIN),
        ("spec.nodeName", r.ANY_SUBDOMAIN),
        r.when(r.absent("spec.source.persistentVolumeName", "spec.source.inlineVolumeSpec"),
               ("spec.source", r.missing(_ONE_VOLUME))),
        r.when(r.has("spec.source.persistentVolumeName", "spec.source.inlineVolumeSpec"),
               ("spec.source", r.prohibited(_ONE_VOLUME))),
        r.when(r.absent("spec.source.inlineVolumeSpec"), r.has("spec.source.persistentVolumeName"),
               ("spec.source.persistentVolumeName", r.REQUIRED, r.DNS_SUBDOMAIN)),
        r.when(r.absent("spec.source.persistentVolumeName"), ("spec.source.inlineVolumeSpec", r.Rules(
            ("capacity", _NOT_INLINE), ("claimRef", _NOT_INLINE), ("storageClassName", _NOT_INLINE)))),
    )
    update_rules = r.Rules(("spec", r.FIXED))


class CapacityStrategy(BuiltinStrategy):
    rules = r.Rules(
        ("storageClassName", r.ANY_SUBDOMAIN),
        ("nodeTopology", selector_causes),
        ("capacity", r.quantity(lambda amount: amount >= 0, NOT_NEGATIVE)),
        ("maximumVolumeSize", r.quantity(lambda amount: amount >= 0, NOT_NEGATIVE)),
        ("nodeTopology", r.FIXED),
        ("storageClassName", r.FIXED),
    )
