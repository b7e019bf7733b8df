"""PriorityClasses: the value never changes.

The PriorityClasses that are always there.

RuntimeClasses.

PodDisruptionBudgets.
"""
from __future__ import annotations

from kubectl_runtime.apiserver import errors
from kubectl_runtime.apiserver.errors import Cause
from kubectl_runtime.apiserver.kinds.base import (
    BuiltinStrategy,
    amount_or_percent_causes,
    label_causes,
    labels_causes,
    non_negative,
    one_of,
    put_default,
    selector_causes,
)
from kubectl_runtime.apiserver.kinds.pod.containers import resource_causes
from kubectl_runtime.apiserver.kinds.pod.pod_validation import toleration_causes
from kubectl_runtime.apiserver.strategy import Object, StrategyContext

SYSTEM_PRIORITIES = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}


class PriorityClassStrategy(BuiltinStrategy):
    """PriorityClasses: the value never changes."""

    has_generation = True

    def default(self, obj: Object) -> None:
        """Preempting."""
        put_default(obj, "preemptionPolicy", "PreemptLowerPriority")

    def generation_part(self, obj: Object) -> object:
        """Nothing that could change raises it."""
        return None

    def validate_create(self, obj: Object, ctx: StrategyContext) -> list[Cause]:
        """User-defined priorities end at a thousand million."""
        name, value = obj["metadata"].get("name", ""), obj.get("value", 0)
        causes = one_of(obj.get("preemptionPolicy"), ("PreemptLowerPriority", "Never"), "preemptionPolicy")
        if name.startswith("system-") and name not in SYSTEM_PRIORITIES:
            causes.append(errors.forbidden_field(
                "metadata.name", "priority class names with 'system-' prefix are reserved for system use only. error: "
                f"{name} is not a known system priority class"))
        elif value > 1_000_000_000 and name not in SYSTEM_PRIORITIES:
            causes.append(errors.forbidden_field("value",
                                                 "maximum allowed value of a user defined priority is 1000000000"))
        return causes

    def validate_update(self, new: Object, old: Object, subresource: str, ctx: StrategyContext) -> list[Cause]:
        """Value and policy stay."""
        causes = []
        if new.get("value") != old.get("value"):
            causes.append(errors.forbidden_field("value", "may not be changed in an update."))
        if new.get("preemptionPolicy") != old.get("preemptionPolicy"):
            causes.append(errors.immutable("preemptionPolicy", new.get("preemptionPolicy")))
        return causes


_TOLERATION = (("Key", ""), ("Operator", ""), ("Value", ""), ("Effect", ""), ("TolerationSeconds", None))


class RuntimeClassStrategy(BuiltinStrategy):
    """RuntimeClasses."""

    def validate_create(self, obj: Object, ctx: StrategyContext) -> list[Cause]:
        """The handler's name; overhead and scheduling."""
        handler, scheduling = obj.get("handler") or "", obj.get("scheduling") or {}
        causes = label_causes(handler, "handler")
        causes += resource_causes({"limits": (obj.get("overhead") or {}).get("podFixed")}, "overhead")
        causes += labels_causes(scheduling.get("nodeSelector") or {}, "scheduling.nodeSelector")
        tolerations = scheduling.get("tolerations") or []
        causes += toleration_causes(tolerations, "scheduling.tolerations")
        return causes + [
            errors.duplicate(f"scheduling.tolerations[{index}]",
                             {key: toleration.get(key[:1].lower() + key[1:], empty) for key, empty in _TOLERATION})
            for index, toleration in enumerate(tolerations) if toleration in tolerations[:index]]

    def validate_update(self, new: Object, old: Object, subresource: str, ctx: StrategyContext) -> list[Cause]:
        """The handler stays."""
        causes = [] if new.get("handler") == old.get("handler") else [errors.immutable("handler", new.get("handler"))]
        return causes + self.validate_create(new, ctx)


class DisruptionBudgetStrategy(BuiltinStrategy):
    """PodDisruptionBudgets."""

    has_status = True
    has_generation = True

    def validate_create(self, obj: Object, ctx: StrategyContext) -> list[Cause]:
        """One bound, not both."""
        spec = obj["spec"]
        causes = []
        if spec.get("minAvailable") is not None and spec.get("maxUnavailable") is not None:
            shown = {"MinAvailable": spec["minAvailable"], "Selector": spec.get("selector"),
                     "MaxUnavailable": spec["maxUnavailable"],
                     "UnhealthyPodEvictionPolicy": spec.get("unhealthyPodEvictionPolicy")}
            causes.append(errors.invalid_value("spec", shown, "minAvailable and maxUnavailable cannot be both set"))
        for key in ("minAvailable", "maxUnavailable"):
            causes += amount_or_percent_causes(spec.get(key), f"spec.{key}", most_all=True)
        causes += one_of(spec.get("unhealthyPodEvictionPolicy"), ("AlwaysAllow", "IfHealthyBudget"),
                         "spec.unhealthyPodEvictionPolicy")
        return causes + selector_causes(spec.get("selector") or {}, "spec.selector")

    def validate_update(self, new: Object, old: Object, subresource: str, ctx: StrategyContext) -> list[Cause]:
        """As at creation."""
        if subresource != "status":
            return self.validate_create(new, ctx)
        return [cause for key in ("disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods")
                for cause in non_negative(new.get("status") or {}, key, "status")]
