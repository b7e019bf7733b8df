"""Namespaces: spec.finalizers holds a deletion until the namespace is empty."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from kubectl_runtime.apiserver import errors
from kubectl_runtime.apiserver.errors import Cause
from kubectl_runtime.apiserver.kinds.base import (
    BuiltinStrategy,
    fill,
)
from kubectl_runtime.apiserver.objectmeta.metadata import STANDARD_FINALIZERS, collector_finalizers
from kubectl_runtime.apiserver.objectmeta.names import dns_label_errors, qualified_name_errors
from kubectl_runtime.apiserver.strategy import Object, StrategyContext

NAME_LABEL = "kubernetes.io/metadata.name"
_SECURITY_LABELS = {f"pod-security.kubernetes.io/{mode}" for mode in ("enforce", "audit", "warn")}
_SECURITY_LEVELS = ("privileged", "baseline", "restricted")


def _finalizer_causes(name: str, path: str) -> list[Cause]:
    causes = [errors.invalid_value(path, name, why) for why in qualified_name_errors(name)]
    if "/" not in name and name not in STANDARD_FINALIZERS:
        causes.append(errors.invalid_value(path, name,
                                           "name is neither a standard finalizer name nor is it fully qualified"))
    return causes


class NamespaceStrategy(BuiltinStrategy):
    """Namespaces: spec.finalizers holds a deletion until the namespace is empty."""

    has_status = True
    terminates = True
    immortal = frozenset({"default", "kube-public", "kube-system"})
    fields: ClassVar[dict[str, str | Callable[[Object], str]]] = {"status.phase": "status.phase"}
    delete_returns_object = True

    def default(self, obj: Object) -> None:
        """The label with the name, and the phase."""
        fill(obj.setdefault("status", {}), phase="Active")
        if name := obj.setdefault("metadata", {}).get("name"):
            labels = obj["metadata"].get("labels") or {}
            obj["metadata"]["labels"] = {**labels, NAME_LABEL: name}

    def prepare_create(self, obj: Object, ctx: StrategyContext) -> None:
        """Active, held by the namespace controller."""
        finalizers = (obj.get("spec") or {}).get("finalizers") or []
        obj["spec"] = {"finalizers": finalizers if "kubernetes" in finalizers else [*finalizers, "kubernetes"]}
        obj["status"] = {"phase": "Active"}

    def canonicalize(self, obj: Object, ctx: StrategyContext) -> bool:
        """A generated name gets its label when it has been checked."""
        self.default(obj)
        return False

    def prepare_update(self, new: Object, old: Object, subresource: str, ctx: StrategyContext) -> None:
        """Finalizers of the spec change through /finalize only."""
        if subresource == "finalize":
            self.keep("status", new, old)
            return
        super().prepare_update(new, old, subresource, ctx)
        self.keep("spec", new, old)

    def validate_name(self, name: str, *, prefix: bool = False) -> list[str]:
        """A DNS label."""
        return dns_label_errors(name, prefix=prefix)

    def validate_create(self, obj: Object, ctx: StrategyContext) -> list[Cause]:
        """Finalizers of the spec; the levels of Pod security."""
        causes = []
        for finalizer in (obj.get("spec") or {}).get("finalizers") or ():
            causes += _finalizer_causes(finalizer, "spec.finalizers")
        for label, level in (obj["metadata"].get("labels") or {}).items():
            if label in _SECURITY_LABELS and level not in _SECURITY_LEVELS:
                causes.append(errors.invalid_value(f"metadata.labels[{label}]", level,
                                                   "must be one of privileged, baseline, restricted"))
        return causes

    def validate_update(self, new: Object, old: Object, subresource: str, ctx: StrategyContext) -> list[Cause]:
        """The phase belongs to the deletion."""
        if subresource == "finalize":
            return [cause for index, name in enumerate((new.get("spec") or {}).get("finalizers") or ())
                    for cause in _finalizer_causes(name, f"spec.finalizers[{index}]")]
        phase, deleting = (new.get("status") or {}).get("phase"), bool(old["metadata"].get("deletionTimestamp"))
        if subresource != "status" or phase == ("Terminating" if deleting else "Active"):
            return []
        rule = ("may only be 'Terminating' if `deletionTimestamp` is not empty" if deleting else
                "may only be 'Active' if `deletionTimestamp` is empty")
        return [errors.invalid_value("status.Phase", phase, rule)]

    def holds_deletion(self, obj: Object) -> bool:
        """While the spec has finalizers. Surprising: a first deletion never removes it, even without any."""
        return bool((obj.get("spec") or {}).get("finalizers")) or not obj["metadata"].get("deletionTimestamp")

    def prepare_delete(self, obj: Object, policy: str, ctx: StrategyContext) -> None:
        """The phase shows the deletion; the policy may add a finalizer."""
        meta = obj["metadata"]
        finalizers = collector_finalizers(meta.get("finalizers") or [], policy)
        if finalizers:
            meta["finalizers"] = finalizers
        else:
            meta.pop("finalizers", None)
        obj.setdefault("status", {})["phase"] = "Terminating"
