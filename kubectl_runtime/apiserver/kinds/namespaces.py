"""Namespaces: spec.finalizers holds a deletion until the namespace is empty.

Nodes.
"""
from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import ClassVar

from kubectl_runtime.apiserver import errors
from kubectl_runtime.apiserver.errors import Cause
from kubectl_runtime.apiserver.kinds.base import (
    CIDR_MESSAGE,
    NOT_NEGATIVE,
    BuiltinStrategy,
    fill,
    one_of,
    parse_cidr,
    put_default,
)
from kubectl_runtime.apiserver.objectmeta.metadata import STANDARD_FINALIZERS, collector_finalizers
from kubectl_runtime.apiserver.objectmeta.names import dns_label_errors, label_value_errors, qualified_name_errors
from kubectl_runtime.apiserver.strategy import Object, StrategyContext
from kubectl_runtime.core.meta.quantities import value_of

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


EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
NOT_READY = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}


class NodeStrategy(BuiltinStrategy):
    """Nodes: a kubelet brings the status along when it creates its Node."""

    has_status = True
    fields: ClassVar[dict[str, str | Callable[[Object], str]]] = {
        "spec.unschedulable": lambda obj: "true" if (obj.get("spec") or {}).get("unschedulable") else "false"}

    def default(self, obj: Object) -> None:
        """What can be had is all there is; the first network is named twice."""
        spec, status = obj["spec"], obj.setdefault("status", {})
        if status.get("capacity"):
            put_default(status, "allocatable", dict(status["capacity"]))
        blocks = spec.get("podCIDRs") or []
        if block := spec.get("podCIDR") or (blocks[0] if blocks else ""):
            spec["podCIDR"] = block
            spec["podCIDRs"] = blocks if blocks and blocks[0] == block else [block]

    def prepare_create(self, obj: Object, ctx: StrategyContext) -> None:
        """Admission taints a new Node until its conditions are known."""
        obj["spec"].pop("configSource", None)  # of a feature that is gone
        taints = obj["spec"].get("taints") or []
        if not any(all(entry.get(key) == value for key, value in NOT_READY.items()) for entry in taints):
            obj["spec"]["taints"] = [*taints, dict(NOT_READY)]

    def validate_create(self, obj: Object, ctx: StrategyContext) -> list[Cause]:
        """Taints, networks, amounts."""
        return list(_causes(obj))

    def validate_update(self, new: Object, old: Object, subresource: str, ctx: StrategyContext) -> list[Cause]:
        """As at creation; networks and the provider's name stay once they are set."""
        causes = self.validate_create(new, ctx) if not subresource else []
        spec, before = new["spec"], old["spec"]
        if before.get("podCIDRs") and spec.get("podCIDRs") != before["podCIDRs"]:
            causes.append(errors.forbidden_field("spec.podCIDRs",
                                                 "node updates may not change podCIDR except from \"\" to valid"))
        if before.get("providerID") and spec.get("providerID") != before["providerID"]:
            causes.append(errors.forbidden_field("spec.providerID",
                                                 "node updates may not change providerID except from \"\" to valid"))
        return causes

    def warnings(self, obj: Object, old: Object | None) -> list[str]:
        """Fields that nobody uses any more."""
        found = []
        if obj["spec"].get("configSource") is not None:
            found.append("spec.configSource: the feature is removed")
        if obj["spec"].get("externalID"):
            found.append("spec.externalID: this field is deprecated, and is unused by Kubernetes")
        return found


def _causes(obj: Object) -> Iterator[Cause]:
    seen = set()
    for index, taint in enumerate(obj["spec"].get("taints") or ()):
        at = f"metadata.taints[{index}]"  # the real server's path
        key, value, effect = taint.get("key", ""), taint.get("value", ""), taint.get("effect", "")
        yield from (errors.invalid_value(f"{at}.key", key, why) for why in qualified_name_errors(key))
        yield from (errors.invalid_value(f"{at}.value", value, why) for why in label_value_errors(value))
        yield from one_of(effect, EFFECTS, f"{at}.effect", required=True)
        if (key, effect) in seen:
            shown = {"Key": key, "Value": value, "Effect": effect, "TimeAdded": taint.get("timeAdded")}
            cause = errors.duplicate(at, shown)
            yield Cause(cause.reason, f"{cause.message}: taints must be unique by key and effect pair", at)
        seen.add((key, effect))
    status = obj.get("status") or {}
    yield from (errors.invalid_value(f"status.{part}.{name}", amount, NOT_NEGATIVE)
                for part in ("capacity", "allocatable") for name, amount in (status.get(part) or {}).items()
                if value_of(amount) < 0)
    blocks = obj["spec"].get("podCIDRs") or []
    parsed = [parse_cidr(block) for block in blocks]
    yield from (errors.invalid_value(f"spec.podCIDRs[{index}]", block, CIDR_MESSAGE)
                for index, block in enumerate(blocks) if parsed[index] is None)
    if len(blocks) > 2 or len({block.version for block in parsed if block}) < len([block for block in parsed if block]):
        yield errors.invalid_value("spec.podCIDRs", blocks, "may specify no more than one CIDR for each IP family")
