"""HorizontalPodAutoscaler: stored as autoscaling/v2; v1 knows only a target for CPU utilisation.

Validation of HorizontalPodAutoscalers, in the form of autoscaling/v2.
"""
from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from typing import Any

from kubectl_runtime.apiserver import errors
from kubectl_runtime.apiserver.errors import Cause
from kubectl_runtime.apiserver.kinds.base import BuiltinStrategy, label_causes, non_negative, put_default
from kubectl_runtime.apiserver.kinds.pod.containers import name_causes
from kubectl_runtime.apiserver.objectmeta.names import path_segment_errors
from kubectl_runtime.apiserver.strategy import Object, StrategyContext
from kubectl_runtime.core.codec.sameness import json_copy
from kubectl_runtime.core.meta.quantities import value_of

MAX_PERIOD, MAX_WINDOW = 1800, 3600  # seconds
METRIC_TYPES = ("ContainerResource", "External", "Object", "Pods", "Resource")
_POPULATE = "must populate information for the given metric source"


def autoscaler_causes(spec: Object) -> Iterator[Cause]:
    """What is wrong with the spec."""
    least, most, metrics = spec.get("minReplicas"), spec.get("maxReplicas") or 0, spec.get("metrics") or ()
    if least is not None and least < 1:
        yield errors.invalid_value("spec.minReplicas", least, "must be greater than or equal to 1")
    if most == 0:
        yield errors.required("spec.maxReplicas", "must be set and greater than 0")
    elif most < 0:
        yield errors.invalid_value("spec.maxReplicas", most, "must be greater than or equal to 1")
    if least is not None and most < least:
        yield errors.invalid_value("spec.maxReplicas", most, "must be greater than or equal to `minReplicas`")
    yield from _reference_causes(spec.get("scaleTargetRef") or {}, "spec.scaleTargetRef")
    for index, metric in enumerate(metrics):
        yield from _metric_causes(metric, f"spec.metrics[{index}]")
    if least == 0 and not any(metric.get("type") in ("Object", "External") for metric in metrics):
        yield errors.forbidden_field("spec.metrics", "must specify at least one Object or External metric to support "
                                                     "scaling to zero replicas")
    for direction in ("scaleUp", "scaleDown"):
        if (rules := (spec.get("behavior") or {}).get(direction)) is not None:
            yield from _rule_causes(rules, f"spec.behavior.{direction}")


def _reference_causes(reference: Object, path: str, *, core: bool = False) -> Iterator[Cause]:
    for key in ("kind", "name"):
        value = reference.get(key) or ""
        if not value:
            yield errors.required(f"{path}.{key}")
        yield from (errors.invalid_value(f"{path}.{key}", value, why) for why in path_segment_errors(value))
    version = reference.get("apiVersion") or ""
    if version.count("/") > 1:
        yield errors.invalid_value(f"{path}.apiVersion", version, f"unexpected GroupVersion string: {version}")
    elif not core and "/" not in version:
        yield errors.invalid_value(f"{path}.apiVersion", version, "apiVersion must specify API group")


def _metric_causes(metric: Object, path: str) -> Iterator[Cause]:
    kind = metric.get("type") or ""
    if not kind:
        yield errors.required(f"{path}.type", "must specify a metric source type")
    if kind not in METRIC_TYPES:
        for _ in range(2):  # the real server says it twice
            yield errors.not_supported(f"{path}.type", kind, METRIC_TYPES)
    given = [key for key in _SOURCES if metric.get(key) is not None]
    if given:
        yield from _SOURCES[given[0]](metric[given[0]], f"{path}.{given[0]}")
    expected = kind[:1].lower() + kind[1:]
    if expected in _SOURCES and expected not in given:
        yield errors.required(f"{path}.{expected}", _POPULATE)
    if len(given) > 1:
        yield from (errors.forbidden_field(f"{path}.{key}", "must populate the given metric source only")
                    for key in given if key != expected)


def _target_causes(target: Object, path: str) -> Iterator[Cause]:
    kind = target.get("type") or ""
    if not kind:
        yield errors.required(f"{path}.type", "must specify a metric target type")
    if kind not in ("Utilization", "Value", "AverageValue"):
        yield errors.invalid_value(f"{path}.type", kind, "must be either Utilization, Value, or AverageValue")
    for key in ("value", "averageValue"):
        if target.get(key) is not None and value_of(target[key]) <= 0:
            yield errors.invalid_value(f"{path}.{key}", target[key], "must be positive")
    if target.get("averageUtilization") is not None and target["averageUtilization"] < 1:
        yield errors.invalid_value(f"{path}.averageUtilization", target["averageUtilization"],
                                   "must be greater than 0")


def _identifier_causes(source: Object, path: str) -> Iterator[Cause]:
    name = (source.get("metric") or {}).get("name") or ""
    if not name:
        yield errors.required(f"{path}.metric.name", "must specify a metric name")
    yield from (errors.invalid_value(f"{path}.metric.name", name, why) for why in path_segment_errors(name))
    yield from _target_causes(source.get("target") or {}, f"{path}.target")


def _object(source: Object, path: str) -> Iterator[Cause]:
    target = source.get("target") or {}
    yield from _reference_causes(source.get("describedObject") or {}, f"{path}.describedObject", core=True)
    yield from _identifier_causes(source, path)
    if target.get("value") is None and target.get("averageValue") is None:
        yield errors.required(f"{path}.target.averageValue", "must set either a target value or averageValue")


def _external(source: Object, path: str) -> Iterator[Cause]:
    target = source.get("target") or {}
    yield from _identifier_causes(source, path)
    if target.get("value") is None and target.get("averageValue") is None:
        yield errors.required(f"{path}.target.averageValue",
                              "must set either a target value for metric or a per-pod target")
    if target.get("value") is not None and target.get("averageValue") is not None:
        yield errors.forbidden_field(f"{path}.target.value",
                                     "may not set both a target value for metric and a per-pod target")


def _pods(source: Object, path: str) -> Iterator[Cause]:
    yield from _identifier_causes(source, path)
    if (source.get("target") or {}).get("averageValue") is None:
        yield errors.required(f"{path}.target.averageValue", "must specify a positive target averageValue")


def _resource(source: Object, path: str) -> Iterator[Cause]:
    name, target = source.get("name") or "", source.get("target") or {}
    if not name:
        yield errors.required(f"{path}.name", "must specify a resource name")
    elif "container" in source:
        yield from name_causes(name, f"{path}.name")
    yield from _target_causes(target, f"{path}.target")
    utilization, value = target.get("averageUtilization"), target.get("averageValue")
    if utilization is None and value is None:
        yield errors.required(f"{path}.target.averageUtilization",
                              "must set either a target raw value or a target utilization")
    if utilization is not None and value is not None:
        yield errors.forbidden_field(f"{path}.target.averageValue",
                                     "may not set both a target raw value and a target utilization")


def _container_resource(source: Object, path: str) -> Iterator[Cause]:
    container = source.get("container") or ""
    if not container:
        yield errors.required(f"{path}.container", "must specify a container")
    else:
        yield from label_causes(container, f"{path}.container")
    yield from _resource(source, path)


# In the order in which the real server looks: only the first that is there is checked.
_SOURCES: dict[str, Callable[[Object, str], Iterator[Cause]]] = {
    "object": _object, "external": _external, "pods": _pods, "resource": _resource,
    "containerResource": _container_resource}


def _rule_causes(rules: Object, path: str) -> Iterator[Cause]:
    window, policies = rules.get("stabilizationWindowSeconds"), rules.get("policies") or ()
    if window is not None and window < 0:
        yield errors.invalid_value(f"{path}.stabilizationWindowSeconds", window,
                                   "must be greater than or equal to zero")
    if window is not None and window > MAX_WINDOW:
        yield errors.invalid_value(f"{path}.stabilizationWindowSeconds", window,
                                   f"must be less than or equal to {MAX_WINDOW}")
    if rules.get("selectPolicy") not in ("Disabled", "Max", "Min"):
        yield errors.not_supported(f"{path}.selectPolicy", rules.get("selectPolicy"), ("Disabled", "Max", "Min"))
    if not policies:
        yield errors.required(f"{path}.policies", "must specify at least one Policy")
    for index, policy in enumerate(policies):
        at, period = f"{path}.policies[{index}]", policy.get("periodSeconds") or 0
        if policy.get("type") not in ("Percent", "Pods"):
            yield errors.not_supported(f"{at}.type", policy.get("type") or "", ("Percent", "Pods"))
        if (policy.get("value") or 0) <= 0:
            yield errors.invalid_value(f"{at}.value", policy.get("value") or 0, "must be greater than zero")
        if period <= 0:
            yield errors.invalid_value(f"{at}.periodSeconds", period, "must be greater than zero")
        elif period > MAX_PERIOD:
            yield errors.invalid_value(f"{at}.periodSeconds", period, f"must be less than or equal to {MAX_PERIOD}")


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
