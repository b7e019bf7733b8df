"""LimitRanges and ResourceQuotas."""

from __future__ import annotations

from typing import Any

from kubectl_runtime.apiserver.errors import Cause
from kubectl_runtime.apiserver.kinds.base import (
    BuiltinStrategy,
    immutable_causes,
)
from kubectl_runtime.apiserver.kinds.core.quotas import limit_causes, quota_causes
from kubectl_runtime.apiserver.strategy import Object, StrategyContext


class LimitRangeStrategy(BuiltinStrategy):
    """LimitRanges: what is left out follows from the other limits, as in the real server."""

    def default(self, obj: Object) -> None:
        """Container limits default from max, requests from limits, then from min."""
        for item in (obj.get("spec") or {}).get("limits") or ():
            if item.get("type") != "Container":
                continue
            default: Object = {**(item.get("max") or {}), **(item.get("default") or {})}
            request: Object = {**(item.get("min") or {}), **default, **(item.get("defaultRequest") or {})}
            _set_if_any(item, "default", default)
            _set_if_any(item, "defaultRequest", request)

    def validate_create(self, obj: Object, ctx: StrategyContext) -> list[Cause]:
        """Each limit."""
        return list(limit_causes(obj.get("spec") or {}))

    def validate_update(self, new: Object, old: Object, subresource: str, ctx: StrategyContext) -> list[Cause]:
        """As at creation."""
        return self.validate_create(new, ctx)


def _set_if_any(item: Object, key: str, value: Any) -> None:
    if value:
        item[key] = value


class ResourceQuotaStrategy(BuiltinStrategy):
    """ResourceQuotas; they are stored, not enforced."""

    has_status = True
    delete_returns_object = True

    def validate_create(self, obj: Object, ctx: StrategyContext) -> list[Cause]:
        """The resources and the scopes."""
        return list(quota_causes(obj.get("spec") or {}))

    def validate_update(self, new: Object, old: Object, subresource: str, ctx: StrategyContext) -> list[Cause]:
        """As at creation; the scopes stay."""
        if subresource:
            return []
        spec, before = new.get("spec") or {}, old.get("spec") or {}
        return self.validate_create(new, ctx) + immutable_causes(spec, before, ("scopes",))
