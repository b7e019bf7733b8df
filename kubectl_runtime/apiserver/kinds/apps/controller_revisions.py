"""ControllerRevisions: their data is fixed."""

from __future__ import annotations

from kubectl_runtime.apiserver import errors
from kubectl_runtime.apiserver.errors import Cause
from kubectl_runtime.apiserver.kinds.base import (
    NOT_NEGATIVE,
    BuiltinStrategy,
)
from kubectl_runtime.apiserver.strategy import Object, StrategyContext


class ControllerRevisionStrategy(BuiltinStrategy):
    """ControllerRevisions: their data is fixed."""

    def validate_create(self, obj: Object, ctx: StrategyContext) -> list[Cause]:
        """There is data, and a number."""
        data, revision = obj.get("data"), obj.get("revision") or 0
        causes = [] if revision >= 0 else [errors.invalid_value("revision", revision, NOT_NEGATIVE)]
        if data is None:
            return [*causes, errors.required("data", "data is mandatory")]
        return causes if isinstance(data, dict) else [
            *causes, errors.required("data", "data must be a valid JSON object")]

    def validate_update(self, new: Object, old: Object, subresource: str, ctx: StrategyContext) -> list[Cause]:
        """Data stays."""
        return [] if new.get("data") == old.get("data") else [errors.immutable("data", new.get("data"))]
