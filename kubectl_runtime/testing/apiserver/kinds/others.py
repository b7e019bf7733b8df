"""Kinds with few rules: Lease, PodDisruptionBudget, PriorityClass, CertificateSigningRequest, ControllerRevision."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from kubectl_runtime.testing.apiserver import errors
from kubectl_runtime.testing.apiserver.errors import Cause
from kubectl_runtime.testing.apiserver.kinds.base import (
    NOT_NEGATIVE,
    BuiltinStrategy,
    amount_or_percent_causes,
    dig,
    fill,
    one_of,
    put_default,
    selector_causes,
)
from kubectl_runtime.testing.apiserver.strategy import Object, StrategyContext


class LeaseStrategy(BuiltinStrategy):
    """Leases."""


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
        return [] if subresource == "status" else self.validate_create(new, ctx)


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
        if name.startswith("system-"):
            return []
        return [errors.forbidden_field("value", "maximum allowed value of a user defined priority is 1000000000")
                ] if value > 1_000_000_000 else []

    def validate_update(self, new: Object, old: Object, subresource: str, ctx: StrategyContext) -> list[Cause]:
        """Value and policy stay."""
        causes = []
        if new.get("value") != old.get("value"):
            causes.append(errors.invalid_value("value", new.get("value", 0), "field is immutable"))
        if new.get("preemptionPolicy") != old.get("preemptionPolicy"):
            causes.append(errors.immutable("preemptionPolicy", new.get("preemptionPolicy")))
        return causes


class SigningRequestStrategy(BuiltinStrategy):
    """CertificateSigningRequests: the server writes who asks."""

    has_status = True
    fields: ClassVar[dict[str, str | Callable[[Object], str]]] = {"spec.signerName": "spec.signerName"}

    def default(self, obj: Object) -> None:
        """What the certificate is for."""
        if not obj["spec"].get("usages"):
            obj["spec"]["usages"] = ["digital signature", "key encipherment"]

    def prepare_create(self, obj: Object, ctx: StrategyContext) -> None:
        """The user of the request, not what the body says."""
        super().prepare_create(obj, ctx)
        for key in ("uid", "groups", "extra"):
            obj["spec"].pop(key, None)
        obj["spec"]["username"] = ctx.user

    def prepare_update(self, new: Object, old: Object, subresource: str, ctx: StrategyContext) -> None:
        """The spec is fixed; /approval changes conditions of the status only."""
        if subresource == "approval":
            super().prepare_update(new, old, "status", ctx)
            return
        super().prepare_update(new, old, subresource, ctx)
        self.keep("spec", new, old)

    def validate_create(self, obj: Object, ctx: StrategyContext) -> list[Cause]:
        """A request and a signer."""
        spec = obj["spec"]
        return [errors.required(f"spec.{key}") for key in ("request", "signerName") if not spec.get(key)]


class GenerationStrategy(BuiltinStrategy):
    """Kinds with a generation and, where discovery says so, a status; no rules else."""

    has_generation = True


class FlowSchemaStrategy(GenerationStrategy):
    """FlowSchemas; the server stores them and treats all requests alike."""

    def default(self, obj: Object) -> None:
        """The middle of the order."""
        fill(obj["spec"], matchingPrecedence=1000)


class PriorityLevelStrategy(GenerationStrategy):
    """PriorityLevelConfigurations; stored like FlowSchemas."""

    def default(self, obj: Object) -> None:
        """Shares and queues."""
        spec = obj["spec"]
        for key, shares in (("limited", 30), ("exempt", 0)):
            if (part := spec.get(key)) is not None:
                put_default(part, "nominalConcurrencyShares", shares)
                put_default(part, "lendablePercent", 0)
        if (queuing := dig(spec, "limited.limitResponse.queuing")) is not None:
            fill(queuing, queues=64, handSize=8, queueLengthLimit=50)


class APIServiceStrategy(BuiltinStrategy):
    """APIServices; the server stores them and proxies to none."""

    def default(self, obj: Object) -> None:
        """The port of the Service."""
        if (service := obj["spec"].get("service")) is not None:
            put_default(service, "port", 443)


class DeviceClassStrategy(GenerationStrategy):
    """DeviceClasses."""

    delete_returns_object = True


class ResourceClaimStrategy(BuiltinStrategy):
    """ResourceClaims and, with their spec one level lower, ResourceClaimTemplates."""

    delete_returns_object = True

    def default(self, obj: Object) -> None:
        """One device for each request."""
        spec = obj["spec"].get("spec") or obj["spec"]
        for request in (spec.get("devices") or {}).get("requests") or ():
            for part in [request.get("exactly"), *(request.get("firstAvailable") or ())]:
                if part is not None:
                    fill(part, allocationMode="ExactCount")
                    if part["allocationMode"] == "ExactCount":
                        fill(part, count=1)


class ResourceSliceStrategy(DeviceClassStrategy):
    """ResourceSlices."""

    fields: ClassVar[dict[str, str | Callable[[Object], str]]] = {
        "spec.nodeName": "spec.nodeName", "spec.driver": "spec.driver"}
    unsupported_field = "field label not supported for resource.k8s.io/v1, Kind=ResourceSlice: {}"


class ControllerRevisionStrategy(BuiltinStrategy):
    """ControllerRevisions: their data is fixed."""

    def validate_create(self, obj: Object, ctx: StrategyContext) -> list[Cause]:
        """There is data, and a number."""
        causes = [] if obj.get("data") is not None else [errors.required("data", "data is mandatory")]
        return causes + [errors.invalid_value("revision", obj["revision"], NOT_NEGATIVE)
                         for _ in range(1) if obj.get("revision", 0) < 0]

    def validate_update(self, new: Object, old: Object, subresource: str, ctx: StrategyContext) -> list[Cause]:
        """Data stays."""
        return [] if new.get("data") == old.get("data") else [errors.immutable("data", new.get("data"))]
