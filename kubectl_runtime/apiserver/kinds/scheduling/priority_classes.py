"""PriorityClasses: the value never changes."""

from __future__ import annotations

from kubectl_runtime.apiserver import errors
from kubectl_runtime.apiserver.errors import Cause
from kubectl_runtime.apiserver.kinds.base import (
    BuiltinStrategy,
    one_of,
    put_default,
)
from kubectl_runtime.apiserver.kinds.scheduling.priorities import SYSTEM_PRIORITIES
from kubectl_runtime.apiserver.strategy import Object, StrategyContext


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
