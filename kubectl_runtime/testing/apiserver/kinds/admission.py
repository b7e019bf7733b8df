"""Defaults of webhook configurations and admission policies; the server stores them and calls no webhook."""

from __future__ import annotations

from typing import Any

from kubectl_runtime.testing.apiserver.kinds.base import BuiltinStrategy, put_default
from kubectl_runtime.testing.apiserver.strategy import Object


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


class AdmissionPolicyBindingStrategy(BuiltinStrategy):
    """Bindings of admission policies."""

    has_generation = True

    def default(self, obj: Object) -> None:
        """The match, if there is one."""
        _default_match(obj["spec"].get("matchResources"))


def _default_match(match: Object | None) -> None:
    if match is None:
        return
    put_default(match, "matchPolicy", "Equivalent")
    put_default(match, "namespaceSelector", {})
    put_default(match, "objectSelector", {})
    for key in ("resourceRules", "excludeResourceRules"):
        for rule in match.get(key) or ():
            _default_rule(rule)
