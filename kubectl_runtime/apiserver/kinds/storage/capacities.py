"""CSIStorageCapacities."""

from __future__ import annotations

from kubectl_runtime.apiserver import errors
from kubectl_runtime.apiserver.errors import Cause
from kubectl_runtime.apiserver.kinds.base import (
    NOT_NEGATIVE,
    BuiltinStrategy,
    selector_causes,
)
from kubectl_runtime.apiserver.objectmeta.names import dns_subdomain_errors
from kubectl_runtime.apiserver.strategy import Object, StrategyContext
from kubectl_runtime.core.meta.quantities import value_of


class CapacityStrategy(BuiltinStrategy):
    """CSIStorageCapacities."""

    def validate_create(self, obj: Object, ctx: StrategyContext) -> list[Cause]:
        """The class, the topology and the amounts."""
        name = obj.get("storageClassName") or ""
        causes = [errors.invalid_value("storageClassName", name, why) for why in dns_subdomain_errors(name)]
        causes += selector_causes(obj.get("nodeTopology") or {}, "nodeTopology")
        return causes + [errors.invalid_value(key, obj[key], NOT_NEGATIVE) for key in ("capacity", "maximumVolumeSize")
                         if obj.get(key) is not None and value_of(obj[key]) < 0]

    def validate_update(self, new: Object, old: Object, subresource: str, ctx: StrategyContext) -> list[Cause]:
        """Class and topology stay."""
        fixed = [errors.immutable(key, new.get(key)) for key in ("nodeTopology", "storageClassName")
                 if new.get(key) != old.get(key)]
        return self.validate_create(new, ctx) + fixed
