"""ServiceAccounts."""

from __future__ import annotations

from kubectl_runtime.apiserver.kinds.base import (
    BuiltinStrategy,
)
from kubectl_runtime.apiserver.strategy import Object, StrategyContext

_MOUNTABLE = "kubernetes.io/enforce-mountable-secrets"


class ServiceAccountStrategy(BuiltinStrategy):
    """ServiceAccounts."""

    delete_returns_object = True

    def prepare_create(self, obj: Object, ctx: StrategyContext) -> None:
        """Of references to Secrets only the names are kept."""
        if obj.get("secrets"):
            obj["secrets"] = [{"name": entry["name"]} if entry.get("name") else {} for entry in obj["secrets"]]

    def prepare_update(self, new: Object, old: Object, subresource: str, ctx: StrategyContext) -> None:
        """As at creation."""
        self.prepare_create(new, ctx)

    def warnings(self, obj: Object, old: Object | None) -> list[str]:
        """An annotation that has been replaced by namespaces."""
        known = ((old or {}).get("metadata") or {}).get("annotations") or {}
        if _MOUNTABLE in (obj["metadata"].get("annotations") or {}) and _MOUNTABLE not in known:
            return [f"metadata.annotations[{_MOUNTABLE}]: deprecated in v1.32+; prefer separate namespaces to isolate "
                    "access to mounted secrets"]
        return []
