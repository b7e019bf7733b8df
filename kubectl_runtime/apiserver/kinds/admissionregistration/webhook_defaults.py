"""Defaults of webhook configurations, and of admission policies, which are stored and not evaluated."""

from __future__ import annotations

from typing import Any

from kubectl_runtime.apiserver.errors import Cause
from kubectl_runtime.apiserver.kinds.admissionregistration.webhook_validation import (
    binding_causes,
    policy_causes,
    webhook_causes,
)
from kubectl_runtime.apiserver.kinds.base import BuiltinStrategy, put_default
from kubectl_runtime.apiserver.strategy import Object, StrategyContext


def default_webhook_client(config: Object) -> None:
    """The port of the Service."""
    if (service := config.get("service")) is not None:
        put_default(service, "port", 443)


def _default_rule(rule: Object) -> None:
    put_default(rule, "scope", "*")


class WebhookStrategy(BuiltinStrategy):
    """ValidatingWebhookConfigurations; subclassed for mutating ones."""

    has_generation = True

    def default(self, obj: Object) -> None:
        """Each webhook's."""
        for webhook in obj.get("webhooks") or ():
            put_default(webhook, "failurePolicy", "Fail")
            put_default(webhook, "matchPolicy", "Equivalent")
            put_default(webhook, "namespaceSelector", {})
            put_default(webhook, "objectSelector", {})
            put_default(webhook, "timeoutSeconds", 10)
            default_webhook_client(webhook.get("clientConfig") or {})
            for rule in webhook.get("rules") or ():
                _default_rule(rule)

    def generation_part(self, obj: Object) -> Any:
        """The webhooks."""
        return obj.get("webhooks")

    def validate_create(self, obj: Object, ctx: StrategyContext) -> list[Cause]:
        """Each webhook."""
        names: set[str] = set()
        return [cause for index, webhook in enumerate(obj.get("webhooks") or ())
                for cause in webhook_causes(webhook, f"webhooks[{index}]", names)]

    def validate_update(self, new: Object, old: Object, subresource: str, ctx: StrategyContext) -> list[Cause]:
        """As at creation."""
        return self.validate_create(new, ctx)


class MutatingWebhookStrategy(WebhookStrategy):
    """MutatingWebhookConfigurations."""

    def default(self, obj: Object) -> None:
        """And called once, unless asked again."""
        super().default(obj)
        for webhook in obj.get("webhooks") or ():
            put_default(webhook, "reinvocationPolicy", "Never")


class AdmissionPolicyStrategy(BuiltinStrategy):
    """Validating- and MutatingAdmissionPolicies; they are stored, not evaluated."""

    has_generation = True

    def default(self, obj: Object) -> None:
        """Failing closed, matching equivalent requests."""
        put_default(obj["spec"], "failurePolicy", "Fail")
        _default_match(obj["spec"].get("matchConstraints"))

    def validate_create(self, obj: Object, ctx: StrategyContext) -> list[Cause]:
        """What is validated and how (of mutating policies nothing is checked)."""
        return list(policy_causes(obj)) if self.type_name.endswith(".ValidatingAdmissionPolicy") else []

    def validate_update(self, new: Object, old: Object, subresource: str, ctx: StrategyContext) -> list[Cause]:
        """As at creation."""
        return [] if subresource else self.validate_create(new, ctx)


class AdmissionPolicyBindingStrategy(BuiltinStrategy):
    """Bindings of admission policies."""

    has_generation = True

    def default(self, obj: Object) -> None:
        """The match, if there is one."""
        _default_match(obj["spec"].get("matchResources"))

    def validate_create(self, obj: Object, ctx: StrategyContext) -> list[Cause]:
        """The policy's name, parameters, and what follows a denial."""
        return list(binding_causes(obj["spec"], validating="Validating" in self.type_name))

    def validate_update(self, new: Object, old: Object, subresource: str, ctx: StrategyContext) -> list[Cause]:
        """As at creation."""
        return self.validate_create(new, ctx)


def _default_match(match: Object | None) -> None:
    if match is None:
        return
    put_default(match, "matchPolicy", "Equivalent")
    put_default(match, "namespaceSelector", {})
    put_default(match, "objectSelector", {})
    for key in ("resourceRules", "excludeResourceRules"):
        for rule in match.get(key) or ():
            _default_rule(rule)
