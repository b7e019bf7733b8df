"""Kinds with few rules, one from a group: leases, budgets, priorities, revisions, runtime classes, API services."""

from __future__ import annotations

from kubectl_runtime.testing.apiserver import errors
from kubectl_runtime.testing.apiserver.errors import Cause
from kubectl_runtime.testing.apiserver.kinds.admissionregistration.validation import service_causes
from kubectl_runtime.testing.apiserver.kinds.base import (
    NOT_NEGATIVE,
    BuiltinStrategy,
    amount_or_percent_causes,
    label_causes,
    labels_causes,
    non_negative,
    one_of,
    put_default,
    selector_causes,
)
from kubectl_runtime.testing.apiserver.kinds.pod.amounts import resource_causes
from kubectl_runtime.testing.apiserver.kinds.pod.scheduling import toleration_causes
from kubectl_runtime.testing.apiserver.kinds.priorities import SYSTEM_PRIORITIES
from kubectl_runtime.testing.apiserver.names import dns_1035_label_errors
from kubectl_runtime.testing.apiserver.strategy import Object, StrategyContext


class LeaseStrategy(BuiltinStrategy):
    """Leases."""

    def prepare_create(self, obj: Object, ctx: StrategyContext) -> None:
        """Fields of coordinated leader election, which is off, go."""
        for key in ("strategy", "preferredHolder"):
            (obj.get("spec") or {}).pop(key, None)

    def prepare_update(self, new: Object, old: Object, subresource: str, ctx: StrategyContext) -> None:
        """As at creation."""
        self.prepare_create(new, ctx)


    def validate_create(self, obj: Object, ctx: StrategyContext) -> list[Cause]:
        """A duration is positive, transitions are not negative."""
        spec = obj.get("spec") or {}
        duration = spec.get("leaseDurationSeconds")
        causes = []
        if duration is not None and duration <= 0:
            causes.append(errors.invalid_value("spec.leaseDurationSeconds", duration, "must be greater than 0"))
        if (spec.get("leaseTransitions") or 0) < 0:
            causes.append(errors.invalid_value("spec.leaseTransitions", spec["leaseTransitions"],
                                               "must be greater than or equal to 0"))
        return causes

    def validate_update(self, new: Object, old: Object, subresource: str, ctx: StrategyContext) -> list[Cause]:
        """As at creation."""
        return self.validate_create(new, ctx)


class DisruptionBudgetStrategy(BuiltinStrategy):
    """PodDisruptionBudgets."""

    has_status = True
    has_generation = True

    def validate_create(self, obj: Object, ctx: StrategyContext) -> list[Cause]:
        """One bound, not both."""
        spec = obj["spec"]
        causes = []
        if spec.get("minAvailable") is not None and spec.get("maxUnavailable") is not None:
            shown = {"MinAvailable": spec["minAvailable"], "Selector": spec.get("selector"),
                     "MaxUnavailable": spec["maxUnavailable"],
                     "UnhealthyPodEvictionPolicy": spec.get("unhealthyPodEvictionPolicy")}
            causes.append(errors.invalid_value("spec", shown, "minAvailable and maxUnavailable cannot be both set"))
        for key in ("minAvailable", "maxUnavailable"):
            causes += amount_or_percent_causes(spec.get(key), f"spec.{key}", most_all=True)
        causes += one_of(spec.get("unhealthyPodEvictionPolicy"), ("AlwaysAllow", "IfHealthyBudget"),
                         "spec.unhealthyPodEvictionPolicy")
        return causes + selector_causes(spec.get("selector") or {}, "spec.selector")

    def validate_update(self, new: Object, old: Object, subresource: str, ctx: StrategyContext) -> list[Cause]:
        """As at creation."""
        if subresource != "status":
            return self.validate_create(new, ctx)
        return [cause for key in ("disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods")
                for cause in non_negative(new.get("status") or {}, key, "status")]


class PriorityClassStrategy(BuiltinStrategy):
    """PriorityClasses: the value never changes."""

    has_generation = True

    def default(self, obj: Object) -> None:
        """Preempting."""
        put_default(obj, "preemptionPolicy", "PreemptLowerPriority")

    def generation_part(self, obj: Object) -> object:
        """Nothing that could change raises it."""
        return None

    def validate_create(self, obj: Object, ctx: StrategyContext) -> list[Cause]:
        """User-defined priorities end at a thousand million."""
        name, value = obj["metadata"].get("name", ""), obj.get("value", 0)
        causes = one_of(obj.get("preemptionPolicy"), ("PreemptLowerPriority", "Never"), "preemptionPolicy")
        if name.startswith("system-") and name not in SYSTEM_PRIORITIES:
            causes.append(errors.forbidden_field(
                "metadata.name", "priority class names with 'system-' prefix are reserved for system use only. error: "
                f"{name} is not a known system priority class"))
        elif value > 1_000_000_000 and name not in SYSTEM_PRIORITIES:
            causes.append(errors.forbidden_field("value",
                                                 "maximum allowed value of a user defined priority is 1000000000"))
        return causes

    def validate_update(self, new: Object, old: Object, subresource: str, ctx: StrategyContext) -> list[Cause]:
        """Value and policy stay."""
        causes = []
        if new.get("value") != old.get("value"):
            causes.append(errors.forbidden_field("value", "may not be changed in an update."))
        if new.get("preemptionPolicy") != old.get("preemptionPolicy"):
            causes.append(errors.immutable("preemptionPolicy", new.get("preemptionPolicy")))
        return causes


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


_TOLERATION = (("Key", ""), ("Operator", ""), ("Value", ""), ("Effect", ""), ("TolerationSeconds", None))


class APIServiceStrategy(BuiltinStrategy):
    """APIServices; the server stores them and proxies to none."""

    def default(self, obj: Object) -> None:
        """The port of the Service."""
        if (service := obj["spec"].get("service")) is not None:
            put_default(service, "port", 443)

    def validate_create(self, obj: Object, ctx: StrategyContext) -> list[Cause]:
        """The name, the priorities, the Service."""
        spec, name = obj["spec"], obj["metadata"].get("name") or ""
        wanted, service = f"{spec.get('version') or ''}.{spec.get('group') or ''}", spec.get("service")
        causes = [] if name == wanted else [errors.invalid_value(
            "metadata.name", name, f'must be `spec.version+"."+spec.group`: "{wanted}"')]
        causes += [errors.invalid_value("spec.version", spec.get("version") or "", why)
                   for why in dns_1035_label_errors(spec.get("version") or "")]
        for key, limit in (("groupPriorityMinimum", 20000), ("versionPriority", 1000)):
            if not 0 < spec.get(key, 0) <= limit:
                causes.append(errors.invalid_value(f"spec.{key}", spec.get(key, 0),
                                                   f"must be positive and less than {limit}"))
        if service is None:
            if spec.get("caBundle") or spec.get("insecureSkipTLSVerify"):
                causes.append(errors.invalid_value("spec.caBundle", "", "local APIServices may not have a caBundle"))
            return causes
        causes += service_causes({key: value for key, value in service.items() if key != "path"}, "spec.service")
        if spec.get("insecureSkipTLSVerify") and spec.get("caBundle"):
            causes.append(errors.invalid_value("spec.insecureSkipTLSVerify", True,
                                               "may not be true if caBundle is present"))
        return causes

    def validate_update(self, new: Object, old: Object, subresource: str, ctx: StrategyContext) -> list[Cause]:
        """As at creation."""
        return [] if subresource else self.validate_create(new, ctx)
