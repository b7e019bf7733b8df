"""Namespaces and Nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import ClassVar

from kubectl_runtime.apiserver import errors
from kubectl_runtime.apiserver.errors import Cause
from kubectl_runtime.apiserver.kinds import rules as r
from kubectl_runtime.apiserver.kinds.base import (
    CIDR_MESSAGE,
    NOT_NEGATIVE,
    BuiltinStrategy,
    fill,
    parse_cidr,
    put_default,
)
from kubectl_runtime.apiserver.names import dns_label_errors
from kubectl_runtime.apiserver.objectmeta import STANDARD_FINALIZERS, collector_finalizers
from kubectl_runtime.apiserver.policies.podsecurity import label_problems
from kubectl_runtime.apiserver.strategy import StrategyContext
from kubectl_runtime.apiserver.wire import Object
from kubectl_runtime.core.meta.quantities import value_of

NAME_LABEL = "kubernetes.io/metadata.name"


def _finalizer(name: str, path: str) -> list[Cause]:
    causes = [*r.ANY_QUALIFIED(name, path)]
    if "/" not in name and name not in STANDARD_FINALIZERS:
        causes.append(errors.invalid_value(path, name,
                                           "name is neither a standard finalizer name nor is it fully qualified"))
    return causes


def _security_levels(labels: Object | None, path: str) -> list[Cause]:
    return [errors.invalid_value(f"{path}[{label}]", value, why) for label, value, why in label_problems(labels or {})]


_FINALIZERS = r.Rules(("spec.finalizers[*]", _finalizer))


class NamespaceStrategy(BuiltinStrategy):
    """Namespaces. spec.finalizers delays a deletion until the namespace is empty."""

    terminates = True
    immortal = frozenset({"default", "kube-public", "kube-system"})
    name_errors = staticmethod(dns_label_errors)
    rules = r.Rules(("spec.finalizers", r.each(_finalizer)), ("metadata.labels", _security_levels))
    fields: ClassVar[dict[str, str | Callable[[Object], str]]] = {"status.phase": "status.phase"}
    delete_returns_object = True

    def default(self, obj: Object) -> None:
        fill(obj.setdefault("status", {}), phase="Active")
        if name := obj.setdefault("metadata", {}).get("name"):
            labels = obj["metadata"].get("labels") or {}
            obj["metadata"]["labels"] = {**labels, NAME_LABEL: name}

    def prepare_create(self, obj: Object, ctx: StrategyContext) -> None:
        """Set the phase Active and the finalizer of the namespace controller."""
        finalizers = (obj.get("spec") or {}).get("finalizers") or []
        obj["spec"] = {"finalizers": finalizers if "kubernetes" in finalizers else [*finalizers, "kubernetes"]}
        obj["status"] = {"phase": "Active"}

    def canonicalize(self, obj: Object, ctx: StrategyContext) -> bool:
        """Set the label with the Namespace's name, also for a name that was generated after `default` ran."""
        self.default(obj)
        return False

    def prepare_update(self, new: Object, old: Object, subresource: str, ctx: StrategyContext) -> None:
        """Restore spec.finalizers, which only /finalize may change."""
        if subresource == "finalize":
            self.keep("status", new, old)
            return
        super().prepare_update(new, old, subresource, ctx)
        self.keep("spec", new, old)

    def validate_update(self, new: Object, old: Object, subresource: str, ctx: StrategyContext) -> list[Cause]:
        """Validate an update. The phase must be Terminating if and only if the Namespace is being deleted."""
        if subresource == "finalize":
            return list(_FINALIZERS(new))
        phase, deleting = (new.get("status") or {}).get("phase"), bool(old["metadata"].get("deletionTimestamp"))
        if subresource != "status" or phase == ("Terminating" if deleting else "Active"):
            return []
        rule = ("may only be 'Terminating' if `deletionTimestamp` is not empty" if deleting else
                "may only be 'Active' if `deletionTimestamp` is empty")
        return [errors.invalid_value("status.Phase", phase, rule)]

    def holds_deletion(self, obj: Object) -> bool:
        """True for the first delete request, as in the real server, and while the Namespace has spec.finalizers."""
        return bool((obj.get("spec") or {}).get("finalizers")) or not obj["metadata"].get("deletionTimestamp")

    def prepare_delete(self, obj: Object, policy: str, ctx: StrategyContext) -> None:
        """Set the phase Terminating. The propagation policy may add a finalizer."""
        meta = obj["metadata"]
        finalizers = collector_finalizers(meta.get("finalizers") or [], policy)
        if finalizers:
            meta["finalizers"] = finalizers
        else:
            meta.pop("finalizers", None)
        obj.setdefault("status", {})["phase"] = "Terminating"


EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
NOT_READY = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}


_TAINT = r.Rules(
    ("key", r.ANY_QUALIFIED),
    ("value", r.LABEL_VALUE),
    ("effect", r.REQUIRED, r.choice(*EFFECTS)),
)


def _taints(obj: Object, path: str) -> Iterator[Cause]:
    seen = set()
    for index, taint in enumerate(obj["spec"].get("taints") or ()):
        at = f"metadata.taints[{index}]"  # this is the real server's path
        yield from _TAINT(taint, path + at)
        key, effect = taint.get("key", ""), taint.get("effect", "")
        if (key, effect) in seen:
            cause = errors.duplicate(at, {"Key": key, "Value": taint.get("value", ""), "Effect": effect,
                                          "TimeAdded": taint.get("timeAdded")})
            yield Cause(cause.reason, f"{cause.message}: taints must be unique by key and effect pair", at)
        seen.add((key, effect))


def _amounts(amounts: Object | None, path: str) -> Iterator[Cause]:
    yield from (errors.invalid_value(f"{path}.{name}", amount, NOT_NEGATIVE)
                for name, amount in (amounts or {}).items() if value_of(amount) < 0)


def _of_different_families(blocks: list[str]) -> bool:
    versions = [block.version for block in map(parse_cidr, blocks) if block]
    return len(blocks) <= 2 and len(set(versions)) == len(versions)


def _set_once(key: str, title: str) -> tuple[str, r.Fixed]:
    why = f'node updates may not change {title} except from "" to valid'
    return f"spec.{key}", r.Fixed(lambda path, _: errors.forbidden_field(path, why), changed=r.once_set)


_SET_ONCE = (_set_once("podCIDRs", "podCIDR"), _set_once("providerID", "providerID"))


class NodeStrategy(BuiltinStrategy):
    """Nodes. A kubelet creates its Node with a status, so a create keeps the status."""

    rules = r.Rules(
        ("", _taints),
        ("status.capacity", _amounts),
        ("status.allocatable", _amounts),
        ("spec.podCIDRs[*]", r.must(lambda block: parse_cidr(block) is not None, CIDR_MESSAGE)),
        ("spec.podCIDRs", r.must(_of_different_families, "may specify no more than one CIDR for each IP family")),
        *_SET_ONCE,
    )
    status_rules = r.Rules(*_SET_ONCE)
    fields: ClassVar[dict[str, str | Callable[[Object], str]]] = {
        "spec.unschedulable": lambda obj: "true" if (obj.get("spec") or {}).get("unschedulable") else "false"}

    def default(self, obj: Object) -> None:
        """Fill in allocatable from capacity, and make podCIDR and podCIDRs agree."""
        spec, status = obj["spec"], obj.setdefault("status", {})
        if status.get("capacity"):
            put_default(status, "allocatable", dict(status["capacity"]))
        blocks = spec.get("podCIDRs") or []
        if block := spec.get("podCIDR") or (blocks[0] if blocks else ""):
            spec["podCIDR"] = block
            spec["podCIDRs"] = blocks if blocks and blocks[0] == block else [block]

    def prepare_create(self, obj: Object, ctx: StrategyContext) -> None:
        """Taint a new Node as not ready until its conditions are known, as admission does."""
        obj["spec"].pop("configSource", None)  # a removed feature
        taints = obj["spec"].get("taints") or []
        if not any(all(entry.get(key) == value for key, value in NOT_READY.items()) for entry in taints):
            obj["spec"]["taints"] = [*taints, dict(NOT_READY)]

    def warnings(self, obj: Object, old: Object | None) -> list[str]:
        found = []
        if obj["spec"].get("configSource") is not None:
            found.append("spec.configSource: the feature is removed")
        if obj["spec"].get("externalID"):
            found.append("spec.externalID: this field is deprecated, and is unused by Kubernetes")
        return found
