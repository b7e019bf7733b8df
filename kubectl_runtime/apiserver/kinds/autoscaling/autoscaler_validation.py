"""Validation of HorizontalPodAutoscalers, in the form of autoscaling/v2."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from kubectl_runtime.apiserver import errors
from kubectl_runtime.apiserver.errors import Cause
from kubectl_runtime.apiserver.kinds.base import label_causes
from kubectl_runtime.apiserver.kinds.pod.amounts import name_causes
from kubectl_runtime.apiserver.objectmeta.names import path_segment_errors
from kubectl_runtime.apiserver.strategy import Object
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
