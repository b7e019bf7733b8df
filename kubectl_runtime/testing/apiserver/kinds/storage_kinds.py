"""The kinds of storage.k8s.io."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from kubectl_runtime.testing.apiserver import errors
from kubectl_runtime.testing.apiserver.errors import Cause
from kubectl_runtime.testing.apiserver.kinds.base import BuiltinStrategy, immutable_causes, one_of, put_default
from kubectl_runtime.testing.apiserver.kinds.volumes import protect
from kubectl_runtime.testing.apiserver.strategy import Object, StrategyContext


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
        protect(obj, "kubernetes.io/vac-protection")


class AttachmentStrategy(BuiltinStrategy):
    """VolumeAttachments."""

    has_status = True
    delete_returns_object = True

    def validate_update(self, new: Object, old: Object, subresource: str, ctx: StrategyContext) -> list[Cause]:
        """The spec is fixed."""
        return [] if subresource == "status" else immutable_causes(new, old, ("spec",), "")
