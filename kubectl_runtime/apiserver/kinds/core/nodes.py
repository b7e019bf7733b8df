"""Nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import ClassVar

from kubectl_runtime.apiserver import errors
from kubectl_runtime.apiserver.errors import Cause
from kubectl_runtime.apiserver.kinds.base import NOT_NEGATIVE, BuiltinStrategy, one_of, put_default
from kubectl_runtime.apiserver.kinds.networking.addresses import CIDR_MESSAGE, parse_cidr
from kubectl_runtime.apiserver.objectmeta.names import label_value_errors, qualified_name_errors
from kubectl_runtime.apiserver.strategy import Object, StrategyContext
from kubectl_runtime.core.meta.quantities import value_of

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
