"""Validation of LimitRanges and ResourceQuotas."""

from __future__ import annotations

from collections.abc import Iterator

from kubectl_runtime.apiserver import errors
from kubectl_runtime.apiserver.errors import Cause
from kubectl_runtime.apiserver.kinds.pod.amounts import (
    STANDARD,
    amount_causes,
    is_extended,
    name_causes,
)
from kubectl_runtime.apiserver.objectmeta.names import qualified_name_errors
from kubectl_runtime.apiserver.strategy import Object
from kubectl_runtime.core.meta.quantities import value_of

LIMIT_TYPES = ("Pod", "Container", "PersistentVolumeClaim")
SCOPES = ("Terminating", "NotTerminating", "BestEffort", "NotBestEffort", "PriorityClass",
          "CrossNamespacePodAffinity", "VolumeAttributesClass")
_CONFLICTS = ({"BestEffort", "NotBestEffort"}, {"Terminating", "NotTerminating"})
_COMPUTE = {"cpu", "memory", "requests.cpu", "requests.memory", "limits.cpu", "limits.memory"}
_COUNTED = {"pods", "services", "replicationcontrollers", "resourcequotas", "secrets", "configmaps",
            "persistentvolumeclaims", "services.nodeports", "services.loadbalancers"}
_NOT_ON_PODS = ("default", "defaultRequest")
_PARTS = ("max", "min", "default", "defaultRequest", "maxLimitRequestRatio")
# (part, its name, the part that it may not exceed, the name of that)
_ORDERS = (("min", "min", "max", "max"), ("defaultRequest", "default request", "max", "max"),
           ("default", "default", "max", "max"), ("defaultRequest", "default request", "default", "default limit"),
           ("min", "min", "defaultRequest", "default request"), ("min", "min", "default", "default"))


def limit_causes(spec: Object) -> Iterator[Cause]:
    """What is wrong with the limits of a LimitRange."""
    seen = set()
    for index, limit in enumerate(spec.get("limits") or ()):
        at, kind = f"spec.limits[{index}]", limit.get("type") or ""
        found = qualified_name_errors(kind)
        yield from (errors.invalid_value(f"{at}.type", kind, why) for why in found)
        if not found and "/" not in kind and kind not in LIMIT_TYPES:
            yield errors.invalid_value(f"{at}.type", kind, "must be a standard limit type or fully qualified")
        if kind in seen:
            yield errors.duplicate(f"{at}.type", kind)
        seen.add(kind)
        if kind == "Pod":
            yield from (errors.forbidden_field(f"{at}.{key}", "may not be specified when `type` is 'Pod'")
                        for key in _NOT_ON_PODS if limit.get(key))
        if kind == "PersistentVolumeClaim" and not any("storage" in (limit.get(key) or {}) for key in ("max", "min")):
            yield errors.required(f"{at}.limits", "either minimum or maximum storage value is required, but neither "
                                                  "was provided")
        yield from _amounts(limit, at, kind)
        yield from _orders(limit, at)
        yield from _ratios(limit, f"{at}.maxLimitRequestRatio")


def _amounts(limit: Object, path: str, kind: str) -> Iterator[Cause]:
    for part in _PARTS:
        for name, amount in (limit.get(part) or {}).items():
            if kind == "Container":
                yield from name_causes(name, f"{path}.{part}[{name}]")
            elif "/" not in name and name not in STANDARD and not name.startswith("hugepages-"):
                yield errors.invalid_value(f"{path}.{part}[{name}]", name,
                                           "must be a standard resource type or fully qualified")
            if is_extended(name) and value_of(amount).denominator != 1:  # that one is negative, nobody minds
                yield errors.invalid_value(f"{path}.{part}[{name}]", amount, "must be an integer")


def _orders(limit: Object, path: str) -> Iterator[Cause]:
    for lower, lower_name, upper, upper_name in _ORDERS:
        for name, amount in (limit.get(lower) or {}).items():
            most = (limit.get(upper) or {}).get(name)
            if most is None or value_of(amount) <= value_of(most):
                continue
            # Which of the two fields is blamed, and which value is shown, is as the real server has it.
            blamed = upper if lower == "min" and upper != "max" else lower
            shown = most if (lower, upper) in (("default", "max"), ("min", "defaultRequest")) else amount
            yield errors.invalid_value(f"{path}.{blamed}[{name}]", shown, f"{lower_name} value {amount} is greater "
                                       f"than {upper_name} value {most}")


def _ratios(limit: Object, path: str) -> Iterator[Cause]:
    for name, ratio in (limit.get("maxLimitRequestRatio") or {}).items():
        if value_of(ratio) < 1:
            yield errors.invalid_value(f"{path}[{name}]", ratio, f"ratio {ratio} is less than 1")
        most, least = ((limit.get(part) or {}).get(name) for part in ("max", "min"))
        if most is not None and least is not None and value_of(least) > 0 and (
                value_of(ratio) > (quotient := value_of(most) / value_of(least))):
            yield errors.invalid_value(f"{path}[{name}]", ratio,
                                       f"ratio {ratio} is greater than max/min = {float(quotient):f}")


def quota_causes(spec: Object) -> Iterator[Cause]:
    """What is wrong with the resources and scopes of a ResourceQuota."""
    hard, scopes = spec.get("hard") or {}, spec.get("scopes") or []
    for name, amount in hard.items():
        yield from _quota_name_causes(name, f"spec.hard[{name}]")
        yield from amount_causes(name, amount, f"spec.hard[{name}]")
        if value_of(amount).denominator != 1 and (name in _COUNTED or name.startswith("count/")):
            yield errors.invalid_value(f"spec.hard[{name}]", amount, "must be an integer")
    for scope in scopes:
        if scope not in SCOPES:
            yield errors.invalid_value("spec.scopes", scopes, "unsupported scope")
        elif any(_is_beside(scope, name) for name in hard):
            yield errors.invalid_value("spec.scopes", scopes, "unsupported scope applied to resource")
    yield from (errors.invalid_value("spec.scopes", scopes, "conflicting scopes")
                for pair in _CONFLICTS if pair <= set(scopes))
    path = "spec.scopeSelector.matchExpressions"  # the real server's paths have no index here
    for entry in (spec.get("scopeSelector") or {}).get("matchExpressions") or ():
        scope, operator, values = entry.get("scopeName", ""), entry.get("operator", ""), entry.get("values") or ()
        if scope not in SCOPES:
            yield errors.invalid_value(f"{path}.scopeName", scope, "unsupported scope")
        if operator in ("In", "NotIn") and not values:
            yield errors.required(f"{path}.values", "must be at least one value when `operator` is 'In' or 'NotIn' for "
                                                    "scope selector")
        elif operator in ("Exists", "DoesNotExist") and values:
            yield errors.invalid_value(f"{path}.values", values, "must be no value when `operator` is 'Exist' or "
                                                                 "'DoesNotExist' for scope selector")
        elif operator not in ("In", "NotIn", "Exists", "DoesNotExist"):
            yield errors.invalid_value(f"{path}.operator", operator, "not a valid selector operator")


def _quota_name_causes(name: str, path: str) -> Iterator[Cause]:
    found = qualified_name_errors(name)
    yield from (errors.invalid_value(path, name, why) for why in found)
    if not found and "/" not in name and name not in STANDARD and "hugepages-" not in name:
        yield errors.invalid_value(path, name, "must be a standard resource type or fully qualified")
        yield errors.invalid_value(path, name, "must be a standard resource for quota")


def _is_beside(scope: str, name: str) -> bool:
    """Whether a scope says nothing of a resource: best effort counts Pods only, others their compute resources too."""
    if name not in STANDARD:
        return False
    return name != "pods" if scope == "BestEffort" else name not in {"pods", *_COMPUTE}
