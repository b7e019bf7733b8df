"""The kind CustomResourceDefinition: defaults, checks, conditions, and what its deletion sets.

(crds.py serves the types.)
"""

from __future__ import annotations

from typing import Any

from kubectl_runtime.core.metav1 import format_time
from kubectl_runtime.testing.apiserver import errors
from kubectl_runtime.testing.apiserver.errors import Cause
from kubectl_runtime.testing.apiserver.kinds.base import BuiltinStrategy, dig, put_default
from kubectl_runtime.testing.apiserver.strategy import StrategyContext

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
        if not spec.get("conversion"):
            spec["conversion"] = {"strategy": "None"}
        if (service := dig(spec, "conversion.webhook.clientConfig.service")) is not None:
            put_default(service, "port", 443)

    def to_storage(self, obj: Object, version: str) -> Object:
        """Stored as JSON, which keeps empty lists."""
        return obj

    def prepare_create(self, obj: Object, ctx: StrategyContext) -> None:
        """Status is the server's; the storage version is stored from now on."""
        obj["status"] = {"conditions": None, "acceptedNames": {"plural": "", "kind": ""},
                         "storedVersions": _storage(obj)}

    def prepare_update(self, new: Object, old: Object, subresource: str, ctx: StrategyContext) -> None:
        """A new storage version joins status.storedVersions."""
        super().prepare_update(new, old, subresource, ctx)
        if subresource or "status" not in new:
            return
        stored = list(new["status"].get("storedVersions") or ())
        new["status"] = {**new["status"],
                         "storedVersions": stored + [name for name in _storage(new) if name not in stored]}

    def validate_create(self, obj: Object, ctx: StrategyContext) -> list[Cause]:
        """The checks without which the type cannot be served; schemas are taken as they are."""
        return _spec_causes(obj)

    def validate_update(self, new: Object, old: Object, subresource: str, ctx: StrategyContext) -> list[Cause]:
        """As on create; group, scope and names of the type cannot change."""
        if subresource:
            return []
        causes = _spec_causes(new)
        spec, before = new.get("spec") or {}, old.get("spec") or {}
        if is_true(old, "Established"):
            causes += [errors.immutable(f"spec.{key}", spec.get(key)) for key in ("group", "scope")
                       if spec.get(key) != before.get(key)]
            causes += [errors.immutable(f"spec.names.{key}", spec["names"].get(key)) for key in ("kind", "plural")
                       if not causes and spec["names"].get(key) != before["names"].get(key)]
        return causes

    def holds_deletion(self, obj: Object) -> bool:
        """Until its instances are gone."""
        meta = obj["metadata"]
        return "deletionTimestamp" not in meta or CLEANUP in (meta.get("finalizers") or ())

    def prepare_delete(self, obj: Object, policy: str, ctx: StrategyContext) -> None:
        """The finalizer and the condition that a deletion sets."""
        meta = obj["metadata"]
        if CLEANUP not in (meta.get("finalizers") or ()):
            meta["finalizers"] = [*(meta.get("finalizers") or ()), CLEANUP]
        set_condition(obj, "Terminating", "True", "InstanceDeletionPending",
                      "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon",
                      format_time(ctx.now))


def _storage(crd: Object) -> list[str]:
    return [version["name"] for version in (crd.get("spec") or {}).get("versions") or () if version.get("storage")]


def _spec_causes(crd: Object) -> list[Cause]:
    spec = crd.get("spec") or {}
    names = spec.get("names") or {}
    causes = [errors.required(f"spec.{key}") for key in ("group", "scope") if not spec.get(key)]
    causes += [errors.required(f"spec.names.{key}") for key in ("plural", "singular", "kind", "listKind")
               if not names.get(key)]
    if not spec.get("versions"):
        causes.append(errors.required("spec.versions", "must have at least one version"))
    elif len(_storage(crd)) != 1:
        causes.append(errors.invalid_value("spec.versions", spec["versions"],
                                           "must have exactly one version marked as storage version"))
    for index, version in enumerate(spec.get("versions") or ()):
        if not (version.get("schema") or {}).get("openAPIV3Schema"):
            causes.append(errors.required(f"spec.versions[{index}].schema.openAPIV3Schema", "schemas are required"))
    if spec.get("scope") and spec["scope"] not in ("Cluster", "Namespaced"):
        causes.append(errors.not_supported("spec.scope", spec["scope"], ["Cluster", "Namespaced"]))
    wanted = f"{names.get('plural', '')}.{spec.get('group', '')}"
    return causes + [errors.invalid_value(f"metadata.{key}", crd["metadata"][key],
                                          'must be spec.names.plural+"."+spec.group')
                     for key in ("generateName", "name")
                     if not causes and crd["metadata"].get(key) not in (None, "", wanted)]
