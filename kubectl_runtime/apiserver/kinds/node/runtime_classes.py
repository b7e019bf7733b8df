"""RuntimeClasses."""

from __future__ import annotations

from kubectl_runtime.apiserver import errors
from kubectl_runtime.apiserver.errors import Cause
from kubectl_runtime.apiserver.kinds.base import (
    BuiltinStrategy,
    label_causes,
    labels_causes,
)
from kubectl_runtime.apiserver.kinds.pod.amounts import resource_causes
from kubectl_runtime.apiserver.kinds.pod.scheduling import toleration_causes
from kubectl_runtime.apiserver.strategy import Object, StrategyContext

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
