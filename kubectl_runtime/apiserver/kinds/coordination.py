"""Leases."""

from __future__ import annotations

from kubectl_runtime.apiserver import errors
from kubectl_runtime.apiserver.errors import Cause
from kubectl_runtime.apiserver.kinds.base import BuiltinStrategy
from kubectl_runtime.apiserver.strategy import Object, StrategyContext


class LeaseStrategy(BuiltinStrategy):
    """Leases."""

    def prepare_create(self, obj: Object, ctx: StrategyContext) -> None:
        """Fields of coordinated leader election, which is off, go."""
        for key in ("strategy", "preferredHolder"):
            (obj.get("spec") or {}).pop(key, None)

    def prepare_update(self, new: Object, old: Object, subresource: str, ctx: StrategyContext) -> None:
        """As at creation."""
        self.prepare_create(new, ctx)


    def validate_create(self, obj: Object, ctx: StrategyContext) -> list[Cause]:
        """A duration is positive, transitions are not negative."""
        spec = obj.get("spec") or {}
        duration = spec.get("leaseDurationSeconds")
        causes = []
        if duration is not None and duration <= 0:
            causes.append(errors.invalid_value("spec.leaseDurationSeconds", duration, "must be greater than 0"))
        if (spec.get("leaseTransitions") or 0) < 0:
            causes.append(errors.invalid_value("spec.leaseTransitions", spec["leaseTransitions"],
                                               "must be greater than or equal to 0"))
        return causes

    def validate_update(self, new: Object, old: Object, subresource: str, ctx: StrategyContext) -> list[Cause]:
        """As at creation."""
        return self.validate_create(new, ctx)
