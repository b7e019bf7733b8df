"""HorizontalPodAutoscaler: stored as autoscaling/v2; v1 knows only a target for CPU utilisation."""

from __future__ import annotations

import contextlib
import json
from typing import Any

from kubectl_runtime.apiserver.errors import Cause
from kubectl_runtime.apiserver.kinds.autoscaling.autoscaler_validation import autoscaler_causes
from kubectl_runtime.apiserver.kinds.base import BuiltinStrategy, non_negative, put_default
from kubectl_runtime.apiserver.strategy import Object, StrategyContext
from kubectl_runtime.core.codec.jsonvalues import json_copy

METRICS_ANNOTATION = "autoscaling.alpha.kubernetes.io/metrics"  # where v1 keeps the metrics that it cannot express
_PERCENT = {"type": "Percent", "value": 100, "periodSeconds": 15}
_BEHAVIOR: dict[str, Object] = {
    "scaleUp": {"stabilizationWindowSeconds": 0, "selectPolicy": "Max",
                "policies": [{"type": "Pods", "value": 4, "periodSeconds": 15}, _PERCENT]},
    "scaleDown": {"selectPolicy": "Max", "policies": [_PERCENT]},
}
_TARGET, _CURRENT = "targetCPUUtilizationPercentage", "currentCPUUtilizationPercentage"


class AutoscalerStrategy(BuiltinStrategy):
    """HorizontalPodAutoscalers of autoscaling/v2."""

    has_status = True

    def default(self, obj: Object) -> None:
        """At least one replica; 80 % CPU if no metric is named."""
        spec = obj["spec"]
        put_default(spec, "minReplicas", 1)
        if self.type_name.startswith("autoscaling.v2") and not spec.get("metrics"):
            spec["metrics"] = [_cpu(80)]
        if (behavior := spec.get("behavior")) is not None:
            for direction, defaults in _BEHAVIOR.items():
                behavior[direction] = {**json_copy(defaults), **(behavior.get(direction) or {})}

    def validate_create(self, obj: Object, ctx: StrategyContext) -> list[Cause]:
        """The spec, as autoscaling/v2 has it."""
        return list(autoscaler_causes(obj["spec"]))

    def validate_update(self, new: Object, old: Object, subresource: str, ctx: StrategyContext) -> list[Cause]:
        """As at creation; of the status, that nothing is negative."""
        if subresource != "status":
            return self.validate_create(new, ctx)
        status = new.get("status") or {}
        return non_negative(status, "currentReplicas", "status") + non_negative(status, "desiredReplicas", "status")


class OldAutoscalerStrategy(AutoscalerStrategy):
    """HorizontalPodAutoscalers of autoscaling/v1."""

    @property
    def converts(self) -> bool:
        """The stored form is v2's."""
        return True

    def to_storage(self, obj: Object, version: str) -> Object:
        """As autoscaling/v2; metrics that an earlier answer put into the annotation come back."""
        stored = json_copy(obj)
        spec, status = stored["spec"], stored.get("status") or {}
        metrics = [_cpu(spec.pop(_TARGET))] if spec.get(_TARGET) is not None else []
        annotations = stored["metadata"].get("annotations") or {}
        kept = annotations.pop(METRICS_ANNOTATION, "")
        with contextlib.suppress(ValueError):  # whatever a client wrote there, it is no list of metrics
            metrics += json.loads(kept) if kept else []
        spec["metrics"] = metrics or [_cpu(80)]
        if (current := status.pop(_CURRENT, None)) is not None:
            status["currentMetrics"] = [{"type": "Resource", "resource": {
                "name": "cpu", "current": {"averageUtilization": current}}}]
        status.setdefault("currentMetrics", None)
        stored["status"] = status
        if "annotations" in stored["metadata"] and not annotations:
            del stored["metadata"]["annotations"]
        return stored

    def from_storage(self, obj: Object, version: str) -> Object:
        """As autoscaling/v1."""
        shown = json_copy(obj)
        spec, status = shown["spec"], shown.get("status") or {}
        others = []
        for metric in spec.pop("metrics", None) or ():
            target: Any = _utilization(metric)
            if target is not None and _TARGET not in spec:
                spec[_TARGET] = target
            else:
                others.append(metric)
        for metric in status.pop("currentMetrics", None) or ():
            current = ((metric.get("resource") or {}).get("current") or {}).get("averageUtilization")
            if current is not None:
                status[_CURRENT] = current
        spec.pop("behavior", None)
        put_default(status, "currentReplicas", 0)
        shown["status"] = status
        if others:
            annotations = shown["metadata"].setdefault("annotations", {})
            annotations[METRICS_ANNOTATION] = json.dumps(others, separators=(",", ":"))
        return shown


def _cpu(percent: int) -> Object:
    return {"type": "Resource", "resource": {
        "name": "cpu", "target": {"type": "Utilization", "averageUtilization": percent}}}


def _utilization(metric: Object) -> int | None:
    resource = metric.get("resource") or {}
    found: int | None = (resource.get("target") or {}).get("averageUtilization")
    return found if metric.get("type") == "Resource" and resource.get("name") == "cpu" else None
