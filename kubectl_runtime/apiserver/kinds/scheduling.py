"""PriorityClasses, RuntimeClasses and PodDisruptionBudgets."""

from __future__ import annotations

from kubectl_runtime.apiserver import errors
from kubectl_runtime.apiserver.errors import Cause
from kubectl_runtime.apiserver.kinds import rules as r
from kubectl_runtime.apiserver.kinds.base import AMOUNT_OR_PERCENT, BuiltinStrategy, labels_causes, selector_causes
from kubectl_runtime.apiserver.kinds.pod.containers import resource_causes
from kubectl_runtime.apiserver.kinds.pod.pod_validation import TOLERATION
from kubectl_runtime.apiserver.strategy import Object

SYSTEM_PRIORITIES = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}


def _priority(obj: Object, path: str) -> list[Cause]:
    """User-defined priorities end at a thousand million."""
    name = obj["metadata"].get("name", "")
    if name in SYSTEM_PRIORITIES:
        return []
    if name.startswith("system-"):
        return [errors.forbidden_field(f"{path}metadata.name", "priority class names with 'system-' prefix are "
                                       "reserved for system use only. error: "
                                       f"{name} is not a known system priority class")]
    return [errors.forbidden_field(f"{path}value", "maximum allowed value of a user defined priority is 1000000000")
            ] if obj.get("value", 0) > 1_000_000_000 else []


class PriorityClassStrategy(BuiltinStrategy):
    """PriorityClasses: value and policy never change."""

    has_generation = True
    immortal = frozenset(SYSTEM_PRIORITIES)
    immortal_text = "this is a system priority class and cannot be deleted"
    generation_path = "spec"  # there is none: nothing raises the generation
    defaults = r.Defaults({"preemptionPolicy": "PreemptLowerPriority"})
    rules = r.Rules(("preemptionPolicy", r.choice("PreemptLowerPriority", "Never")), ("", _priority))
    update_rules = r.Rules(("value", r.fixed("may not be changed in an update.")), ("preemptionPolicy", r.FIXED))


_TOLERATION = (("Key", ""), ("Operator", ""), ("Value", ""), ("Effect", ""), ("TolerationSeconds", None))


def _internal(toleration: Object) -> Object:
    """A toleration as the real server prints its internal type."""
    return {key: toleration.get(key[:1].lower() + key[1:], empty) for key, empty in _TOLERATION}


class RuntimeClassStrategy(BuiltinStrategy):
    """RuntimeClasses."""

    rules = r.Rules(
        ("handler", r.FIXED, r.REQUIRED, r.DNS_LABEL),
        ("overhead", lambda overhead, path: resource_causes({"limits": (overhead or {}).get("podFixed")}, path)),
        ("scheduling.nodeSelector", labels_causes),
        ("scheduling.tolerations[*]", TOLERATION),
        ("scheduling.tolerations[*]", r.Unique(lambda toleration: tuple(_internal(toleration).values()), _internal)),
    )


def _both_bounds(spec: Object, path: str) -> list[Cause]:
    shown = {"MinAvailable": spec["minAvailable"], "Selector": spec.get("selector"),
             "MaxUnavailable": spec["maxUnavailable"],
             "UnhealthyPodEvictionPolicy": spec.get("unhealthyPodEvictionPolicy")}
    return [errors.invalid_value(path, shown, "minAvailable and maxUnavailable cannot be both set")]


class DisruptionBudgetStrategy(BuiltinStrategy):
    """PodDisruptionBudgets."""

    has_status = True
    has_generation = True
    rules = r.Rules(
        r.when(r.has("spec.minAvailable", "spec.maxUnavailable"), ("spec", _both_bounds)),
        ("spec.minAvailable", AMOUNT_OR_PERCENT),
        ("spec.maxUnavailable", AMOUNT_OR_PERCENT),
        ("spec.unhealthyPodEvictionPolicy", r.choice("AlwaysAllow", "IfHealthyBudget")),
        ("spec.selector", selector_causes),
    )
    status_rules = r.Rules(*((f"status.{key}", r.NATURAL) for key in (
        "disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods")))
