"""The kinds of storage.k8s.io."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

from kubectl_runtime.testing.apiserver import errors
from kubectl_runtime.testing.apiserver.errors import Cause
from kubectl_runtime.testing.apiserver.kinds.base import (
    NOT_NEGATIVE,
    BuiltinStrategy,
    immutable_causes,
    non_negative,
    one_of,
    put_default,
    selector_causes,
)
from kubectl_runtime.testing.apiserver.kinds.core.volumes import protect
from kubectl_runtime.testing.apiserver.kinds.typed.quantity import value_of
from kubectl_runtime.testing.apiserver.names import dns_subdomain_errors, qualified_name_errors
from kubectl_runtime.testing.apiserver.strategy import Object, StrategyContext

MIN_TOKEN_SECONDS, MIN_PERIOD_SECONDS = 600, 10


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


_ONE_VOLUME = "must specify exactly one of inlineVolumeSpec and persistentVolumeName"


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
