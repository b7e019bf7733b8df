"""The kind CustomResourceDefinition: defaults, checks, conditions, and what its deletion sets.

(controller.py serves the types.)
"""

from __future__ import annotations

from typing import Any

from kubectl_runtime.apiserver.crds.definition_validation import (
    create_causes,
    name_causes,
    storage_versions,
    update_causes,
)
from kubectl_runtime.apiserver.errors import Cause
from kubectl_runtime.apiserver.kinds.base import BuiltinStrategy, dig, put_default
from kubectl_runtime.apiserver.managedfields.tracking import ResetFields
from kubectl_runtime.apiserver.strategy import StrategyContext
from kubectl_runtime.core.meta.metav1 import format_time
from kubectl_runtime.schema.keywords import unknown_formats

Object = dict[str, Any]

CLEANUP = "customresourcecleanup.apiextensions.k8s.io"


def condition(crd: Object, kind: str) -> Object | None:
    """The condition of a type."""
    conditions = (crd.get("status") or {}).get("conditions") or []
    return next((entry for entry in conditions if entry["type"] == kind), None)


def is_true(crd: Object, kind: str) -> bool:
    """Whether a condition is True."""
    return (condition(crd, kind) or {}).get("status") == "True"


def set_condition(crd: Object, kind: str, status: str, reason: str, message: str, now: str) -> None:
    """Set a condition; its time moves only with its status."""
    wanted = {"type": kind, "status": status, "lastTransitionTime": now, "reason": reason, "message": message}
    known = crd.setdefault("status", {})
    known["conditions"] = conditions = list(known.get("conditions") or [])
    for index, entry in enumerate(conditions):
        if entry["type"] == kind:
            if entry["status"] == status:
                wanted["lastTransitionTime"] = entry["lastTransitionTime"]
            conditions[index] = wanted
            return
    conditions.append(wanted)


class CrdStrategy(BuiltinStrategy):
    """Rules of CustomResourceDefinition."""

    has_generation = True
    has_status = True
    terminates = True

    def default(self, obj: Object) -> None:
        """Names that can be derived, and no conversion."""
        spec = obj.get("spec")
        if not isinstance(spec, dict):
            return
        names = spec.get("names")
        if isinstance(names, dict) and names.get("kind"):
            names["singular"] = names.get("singular") or names["kind"].lower()
            names["listKind"] = names.get("listKind") or names["kind"] + "List"
        if spec.get("conversion") is None:
            spec["conversion"] = {"strategy": "None"}
        if (service := dig(spec, "conversion.webhook.clientConfig.service")) is not None:
            put_default(service, "port", 443)
        if "status" in obj and not obj["status"].get("storedVersions"):
            obj["status"]["storedVersions"] = storage_versions(obj)[:1]

    def to_storage(self, obj: Object, version: str) -> Object:
        """Stored as JSON, which keeps empty lists."""
        return obj

    def prepare_create(self, obj: Object, ctx: StrategyContext) -> None:
        """Status is the server's; the storage version is stored from now on."""
        obj["status"] = {"conditions": None, "acceptedNames": {"plural": "", "kind": ""},
                         "storedVersions": storage_versions(obj)[:1]}

    def prepare_update(self, new: Object, old: Object, subresource: str, ctx: StrategyContext) -> None:
        """A new storage version joins status.storedVersions; /status writes metadata too, as it does there alone."""
        if subresource == "status":
            self.keep("spec", new, old)
            return
        super().prepare_update(new, old, subresource, ctx)
        if "status" in new:
            stored = list(new["status"].get("storedVersions") or ())
            new["status"] = {**new["status"], "storedVersions": stored + [name for name in storage_versions(new)[:1]
                                                                          if name not in stored]}

    def reset(self, subresource: str) -> ResetFields:
        """See `prepare_update`."""
        return ResetFields(drop=(("spec",),)) if subresource == "status" else super().reset(subresource)

    def validate_create(self, obj: Object, ctx: StrategyContext) -> list[Cause]:
        """Names, versions, schemas, columns, paths."""
        return create_causes(obj)

    def validate_update(self, new: Object, old: Object, subresource: str, ctx: StrategyContext) -> list[Cause]:
        """As on create; group, scope and names of the type cannot change."""
        if subresource:
            return name_causes(dig(new, "status.acceptedNames") or {}, "status.acceptedNames")
        return update_causes(new, old, established=is_true(old, "Established"))

    def warnings(self, obj: Object, old: Object | None) -> list[str]:
        """A format that the server does not know is not checked."""
        found = {name: None for version in dig(obj, "spec.versions") or ()
                 for name in unknown_formats(dig(version, "schema.openAPIV3Schema") or {})}
        return [f'unrecognized format "{name}"' for name in found]

    def holds_deletion(self, obj: Object) -> bool:
        """The first delete only sets the finalizer."""
        return "deletionTimestamp" not in obj["metadata"]

    def prepare_delete(self, obj: Object, policy: str, ctx: StrategyContext) -> None:
        """The finalizer and the condition that a deletion sets."""
        meta = obj["metadata"]
        if CLEANUP not in (meta.get("finalizers") or ()):
            meta["finalizers"] = [*(meta.get("finalizers") or ()), CLEANUP]
        set_condition(obj, "Terminating", "True", "InstanceDeletionPending",
                      "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon",
                      format_time(ctx.now))
