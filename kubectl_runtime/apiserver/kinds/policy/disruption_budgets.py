"""PodDisruptionBudgets."""

from __future__ import annotations

from kubectl_runtime.apiserver import errors
from kubectl_runtime.apiserver.errors import Cause
from kubectl_runtime.apiserver.kinds.base import (
    BuiltinStrategy,
    amount_or_percent_causes,
    non_negative,
    one_of,
    selector_causes,
)
from kubectl_runtime.apiserver.strategy import Object, StrategyContext


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
