"""HorizontalPodAutoscalers. They are stored and validated as autoscaling/v2; v1 has only a CPU utilization target."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from typing import Any

from kubectl_runtime.apiserver import errors
from kubectl_runtime.apiserver.errors import Cause
from kubectl_runtime.apiserver.kinds import rules as r
from kubectl_runtime.apiserver.kinds.base import BuiltinStrategy, put_default
from kubectl_runtime.apiserver.kinds.pod.containers import name_causes
from kubectl_runtime.apiserver.wire import Object
from kubectl_runtime.core.codec.jsonbytes import json_copy

MAX_PERIOD, MAX_WINDOW = 1800, 3600  # seconds
METRIC_TYPES = ("ContainerResource", "External", "Object", "Pods", "Resource")


def _bounds(spec: Object, path: str) -> Iterator[Cause]:
    least, most = spec.get("minReplicas"), spec.get("maxReplicas") or 0
    if most == 0:
        yield errors.required(f"{path}.maxReplicas", "must be set and greater than 0")
    elif most < 0:
        yield errors.invalid_value(f"{path}.maxReplicas", most, "must be greater than or equal to 1")
    if least is not None and most < least:
        yield errors.invalid_value(f"{path}.maxReplicas", most, "must be greater than or equal to `minReplicas`")


def _no_zero(spec: Object, path: str) -> Iterator[Cause]:
    if spec.get("minReplicas") == 0 and not any(
            metric.get("type") in ("Object", "External") for metric in spec.get("metrics") or ()):
        yield errors.forbidden_field(f"{path}.metrics", "must specify at least one Object or External metric to "
                                                        "support scaling to zero replicas")


def _group_version(version: str | None, path: str) -> Iterator[Cause]:
    if version and version.count("/") > 1:
        yield errors.invalid_value(path, version, f"unexpected GroupVersion string: {version}")


_OBJECT = (("kind", r.REQUIRED, r.PATH_SEGMENT), ("name", r.REQUIRED, r.PATH_SEGMENT), ("apiVersion", _group_version))
_POSITIVE = r.quantity(lambda amount: amount > 0, "must be positive")
_TARGET = (
    ("target.type", r.required("must specify a metric target type"), r.must(
        ("Utilization", "Value", "AverageValue").__contains__, "must be either Utilization, Value, or AverageValue",
        zero="")),
    ("target.value", _POSITIVE),
    ("target.averageValue", _POSITIVE),
    ("target.averageUtilization", r.must(lambda percent: percent >= 1, "must be greater than 0")),
)
_METRIC = (("metric.name", r.required("must specify a metric name"), r.PATH_SEGMENT), *_TARGET)
_NO_VALUE = r.absent("target.value", "target.averageValue")
_RESOURCE = (
    *_TARGET,
    r.when(r.absent("target.averageUtilization", "target.averageValue"), ("target.averageUtilization", r.missing(
        "must set either a target raw value or a target utilization"))),
    r.when(r.has("target.averageUtilization", "target.averageValue"), ("target.averageValue", r.prohibited(
        "may not set both a target raw value and a target utilization"))),
)

# In the real server's order: only the first field that is set is checked.
_SOURCES = {
    "object": r.Rules(
        ("describedObject", r.Rules(*_OBJECT)),
        *_METRIC,
        r.when(_NO_VALUE, ("target.averageValue", r.missing("must set either a target value or averageValue"))),
    ),
    "external": r.Rules(
        *_METRIC,
        r.when(_NO_VALUE, ("target.averageValue", r.missing(
            "must set either a target value for metric or a per-pod target"))),
        r.when(r.has("target.value", "target.averageValue"), ("target.value", r.prohibited(
            "may not set both a target value for metric and a per-pod target"))),
    ),
    "pods": r.Rules(*_METRIC, ("target.averageValue", r.present("must specify a positive target averageValue"))),
    "resource": r.Rules(("name", r.required("must specify a resource name")), *_RESOURCE),
    "containerResource": r.Rules(
        ("container", r.required("must specify a container"), r.DNS_LABEL),
        ("name", r.required("must specify a resource name")),
        r.when(r.has("container"), r.filled("name"), ("name", name_causes)),
        *_RESOURCE,
    ),
}


def _metric(metric: Object, path: str) -> Iterator[Cause]:
    kind = metric.get("type") or ""
    if not kind:
        yield errors.required(f"{path}.type", "must specify a metric source type")
    if kind not in METRIC_TYPES:
        for _ in range(2):  # the real server reports this cause twice
            yield errors.not_supported(f"{path}.type", kind, METRIC_TYPES)
    given = [key for key in _SOURCES if metric.get(key) is not None]
    if given:
        yield from _SOURCES[given[0]](metric[given[0]], f"{path}.{given[0]}")
    expected = kind[:1].lower() + kind[1:]
    if expected in _SOURCES and expected not in given:
        yield errors.required(f"{path}.{expected}", "must populate information for the given metric source")
    if len(given) > 1:
        yield from (errors.forbidden_field(f"{path}.{key}", "must populate the given metric source only")
                    for key in given if key != expected)


_SCALING = r.Rules(
    ("stabilizationWindowSeconds",
     r.at_least(0, "must be greater than or equal to zero"),
     r.must(lambda window: window <= MAX_WINDOW, f"must be less than or equal to {MAX_WINDOW}")),
    ("selectPolicy", r.choice("Disabled", "Max", "Min")),
    ("policies", r.required("must specify at least one Policy")),
    ("policies[*]", r.Rules(
        ("type", r.choice("Percent", "Pods", zero="")),
        ("value", r.at_least(1, "must be greater than zero", zero=0)),
        ("periodSeconds",
         r.at_least(1, "must be greater than zero", zero=0),
         r.must(lambda period: period <= MAX_PERIOD, f"must be less than or equal to {MAX_PERIOD}")))),
)


METRICS_ANNOTATION = "autoscaling.alpha.kubernetes.io/metrics"  # holds the metrics that v1 has no field for
_PERCENT = {"type": "Percent", "value": 100, "periodSeconds": 15}
_BEHAVIOR: dict[str, Object] = {
    "scaleUp": {"stabilizationWindowSeconds": 0, "selectPolicy": "Max",
                "policies": [{"type": "Pods", "value": 4, "periodSeconds": 15}, _PERCENT]},
    "scaleDown": {"selectPolicy": "Max", "policies": [_PERCENT]},
}
_CPU_TARGET, _CURRENT = "targetCPUUtilizationPercentage", "currentCPUUtilizationPercentage"


class AutoscalerStrategy(BuiltinStrategy):
    """HorizontalPodAutoscalers of autoscaling/v2."""

    rules = r.Rules(
        ("spec.minReplicas", r.at_least(1)),
        ("spec", _bounds),
        ("spec.scaleTargetRef", r.Rules(*_OBJECT, ("apiVersion", r.must(
            lambda version: "/" in version, "apiVersion must specify API group", zero="")))),
        ("spec.metrics[*]", _metric),
        ("spec", _no_zero),
        ("spec.behavior.scaleUp", _SCALING),
        ("spec.behavior.scaleDown", _SCALING),
    )
    status_rules = r.Rules(("status.currentReplicas", r.NATURAL), ("status.desiredReplicas", r.NATURAL))

    def default(self, obj: Object) -> None:
        """Fill in minReplicas 1, and a target of 80 % CPU utilization if there are no metrics."""
        spec = obj["spec"]
        put_default(spec, "minReplicas", 1)
        if self.type_name.startswith("autoscaling.v2") and not spec.get("metrics"):
            spec["metrics"] = [_cpu(80)]
        if (behavior := spec.get("behavior")) is not None:
            for direction, defaults in _BEHAVIOR.items():
                behavior[direction] = {**json_copy(defaults), **(behavior.get(direction) or {})}


class OldAutoscalerStrategy(AutoscalerStrategy):
    """HorizontalPodAutoscalers of autoscaling/v1."""

    @property
    def converts(self) -> bool:
        """True, because the object is stored as v2."""
        return True

    def to_storage(self, obj: Object, version: str) -> Object:
        """The object as autoscaling/v2, with the metrics from the annotation that `from_storage` wrote."""
        stored = json_copy(obj)
        spec, status = stored["spec"], stored.get("status") or {}
        metrics = [_cpu(spec.pop(_CPU_TARGET))] if spec.get(_CPU_TARGET) is not None else []
        annotations = stored["metadata"].get("annotations") or {}
        kept = annotations.pop(METRICS_ANNOTATION, "")
        with contextlib.suppress(ValueError):  # a client may have written anything into the annotation
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
        """The object as autoscaling/v1."""
        shown = json_copy(obj)
        spec, status = shown["spec"], shown.get("status") or {}
        others = []
        for metric in spec.pop("metrics", None) or ():
            target: Any = _utilization(metric)
            if target is not None and _CPU_TARGET not in spec:
                spec[_CPU_TARGET] = target
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
