"""FlowSchemas and PriorityLevelConfigurations; the server stores them and treats all requests alike."""

from __future__ import annotations

from collections.abc import Iterator

from kubectl_runtime.apiserver import errors
from kubectl_runtime.apiserver.errors import Cause
from kubectl_runtime.apiserver.kinds.base import BuiltinStrategy, dig, fill, one_of, put_default
from kubectl_runtime.apiserver.strategy import Object, StrategyContext

MAX_PRECEDENCE = 10000


class FlowSchemaStrategy(BuiltinStrategy):
    """FlowSchemas."""

    has_generation = True

    def default(self, obj: Object) -> None:
        """The middle of the order."""
        fill(obj["spec"], matchingPrecedence=1000)

    def validate_create(self, obj: Object, ctx: StrategyContext) -> list[Cause]:
        """Precedence, level and rules."""
        return list(_schema_causes(obj["spec"]))

    def validate_update(self, new: Object, old: Object, subresource: str, ctx: StrategyContext) -> list[Cause]:
        """As at creation."""
        return [] if subresource else self.validate_create(new, ctx)


def _schema_causes(spec: Object) -> Iterator[Cause]:
    precedence = spec.get("matchingPrecedence") or 0
    if precedence <= 0:
        yield errors.invalid_value("spec.matchingPrecedence", precedence, "must be a positive value")
    elif precedence > MAX_PRECEDENCE:
        yield errors.invalid_value("spec.matchingPrecedence", precedence,
                                   f"must not be greater than {MAX_PRECEDENCE}")
    if (method := spec.get("distinguisherMethod")) is not None and method.get("type") not in ("ByNamespace", "ByUser"):
        yield errors.not_supported("spec.distinguisherMethod.type", {"Type": method.get("type")},
                                   ("ByNamespace", "ByUser"))
    if not (spec.get("priorityLevelConfiguration") or {}).get("name"):
        yield errors.required("spec.priorityLevelConfiguration.name", "must reference a priority level")
    for index, rule in enumerate(spec.get("rules") or ()):
        at = f"spec.rules[{index}]"
        if not rule.get("subjects"):
            yield errors.required(f"{at}.subjects", "subjects must contain at least one value")
        for number, subject in enumerate(rule.get("subjects") or ()):
            yield from one_of(subject.get("kind"), ("Group", "ServiceAccount", "User"),
                              f"{at}.subjects[{number}].kind", required=True)
        if not rule.get("resourceRules") and not rule.get("nonResourceRules"):
            yield errors.required(at, "at least one of resourceRules and nonResourceRules has to be non-empty")


class PriorityLevelStrategy(BuiltinStrategy):
    """PriorityLevelConfigurations."""

    has_generation = True

    def default(self, obj: Object) -> None:
        """Shares and queues."""
        spec = obj["spec"]
        for key, shares in (("limited", 30), ("exempt", 0)):
            if (part := spec.get(key)) is not None:
                put_default(part, "nominalConcurrencyShares", shares)
                put_default(part, "lendablePercent", 0)
        if (queuing := dig(spec, "limited.limitResponse.queuing")) is not None:
            fill(queuing, queues=64, handSize=8, queueLengthLimit=50)

    def validate_create(self, obj: Object, ctx: StrategyContext) -> list[Cause]:
        """The type and what belongs to it."""
        return list(_level_causes(obj["spec"], obj["metadata"].get("name") or ""))

    def validate_update(self, new: Object, old: Object, subresource: str, ctx: StrategyContext) -> list[Cause]:
        """As at creation."""
        return [] if subresource else self.validate_create(new, ctx)


def _level_causes(spec: Object, name: str) -> Iterator[Cause]:
    kind, limited = spec.get("type") or "", spec.get("limited")
    if kind not in ("Exempt", "Limited"):
        yield errors.not_supported("spec.type", kind, ("Exempt", "Limited"))
    elif (kind == "Exempt") != (name == "exempt"):
        yield errors.invalid_value("spec.type", kind, "must be 'Exempt' if and only if `name` is 'exempt'")
    elif kind == "Limited" and limited is None:
        yield errors.required("spec.limited", "must not be empty when type is Limited")
    if kind == "Limited" and limited is not None:
        yield from _limited_causes(limited, "spec.limited")


def _limited_causes(limited: Object, path: str) -> Iterator[Cause]:
    shares, percent = limited.get("nominalConcurrencyShares") or 0, limited.get("lendablePercent") or 0
    if shares < 0:
        yield errors.invalid_value(f"{path}.nominalConcurrencyShares", shares, "must be a non-negative integer")
    if not 0 <= percent <= 100:
        yield errors.invalid_value(f"{path}.lendablePercent", percent, "must be between 0 and 100, inclusive")
    response = limited.get("limitResponse") or {}
    kind, queuing, at = response.get("type") or "", response.get("queuing"), f"{path}.limitResponse"
    if kind not in ("Queue", "Reject"):
        yield errors.not_supported(f"{at}.type", kind, ("Queue", "Reject"))
    elif kind == "Reject" and queuing is not None:
        yield errors.forbidden_field(f"{at}.queuing", "must be nil if limited.limitResponse.type is not Limited")
    elif kind == "Queue" and queuing is None:
        yield errors.required(f"{at}.queuing", "must not be empty if limited.limitResponse.type is Limited")
    elif queuing is not None and queuing["handSize"] > queuing["queues"]:
        yield errors.invalid_value(f"{at}.queuing.handSize", queuing["handSize"],
                                   f"should not be greater than queues ({queuing['queues']})")
