"""Defaults of webhook configurations, and of admission policies, which are stored and not evaluated.

Validation of webhook configurations and admission policies; of policies, which are not evaluated, no expression is
compiled.
"""
from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

from kubectl_runtime.apiserver import errors
from kubectl_runtime.apiserver.errors import Cause
from kubectl_runtime.apiserver.kinds.base import PORT_RANGE, BuiltinStrategy, one_of, put_default, selector_causes
from kubectl_runtime.apiserver.objectmeta.names import dns_subdomain_errors, qualified_name_errors
from kubectl_runtime.apiserver.strategy import Object, StrategyContext
from kubectl_runtime.core.base.errors import MissingExtra
from kubectl_runtime.schema.cel import CelError
from kubectl_runtime.schema.cel import condition as match_condition

OPERATIONS = ("*", "CONNECT", "CREATE", "DELETE", "UPDATE")
REVIEW_VERSIONS = ("v1", "v1beta1")
_FORM = "desired format: https://host[/path]"


def webhook_causes(webhook: Object, path: str, names: set[str]) -> Iterator[Cause]:
    """What is wrong with a webhook; `names` are those before it."""
    name = webhook.get("name") or ""
    if not name:
        yield errors.required(f"{path}.name")
    else:
        yield from (errors.invalid_value(f"{path}.name", name, why) for why in dns_subdomain_errors(name))
        if name.count(".") < 2:
            yield errors.invalid_value(f"{path}.name", name,
                                       "should be a domain with at least three segments separated by dots")
        if name in names:
            yield errors.duplicate(f"{path}.name", name)
    names.add(name)
    yield from _review_causes(webhook.get("admissionReviewVersions") or [], f"{path}.admissionReviewVersions")
    for index, rule in enumerate(webhook.get("rules") or ()):
        yield from rule_causes(rule, f"{path}.rules[{index}]")
    yield from one_of(webhook.get("failurePolicy"), ("Fail", "Ignore"), f"{path}.failurePolicy")
    yield from one_of(webhook.get("matchPolicy"), ("Equivalent", "Exact"), f"{path}.matchPolicy")
    effects = webhook.get("sideEffects")
    if effects is None:
        yield errors.required(f"{path}.sideEffects", "must specify one of None, NoneOnDryRun")
    yield from one_of(effects, ("None", "NoneOnDryRun"), f"{path}.sideEffects")
    seconds = webhook.get("timeoutSeconds")
    if seconds is not None and not 1 <= seconds <= 30:
        yield errors.invalid_value(f"{path}.timeoutSeconds", seconds,
                                   "the timeout value must be between 1 and 30 seconds")
    for key in ("namespaceSelector", "objectSelector"):
        yield from selector_causes(webhook.get(key) or {}, f"{path}.{key}")
    yield from client_causes(webhook.get("clientConfig") or {}, f"{path}.clientConfig")
    yield from condition_causes(webhook, path, compiled=True)
    yield from one_of(webhook.get("reinvocationPolicy"), ("IfNeeded", "Never"), f"{path}.reinvocationPolicy")


def _review_causes(versions: list[str], path: str) -> Iterator[Cause]:
    if not versions:
        yield errors.required(path, f"must specify one of {', '.join(REVIEW_VERSIONS)}")
        return
    yield from (errors.invalid_value(f"{path}[{index}]", version, "duplicate version")
                for index, version in enumerate(versions) if version in versions[:index])
    if not set(versions) & set(REVIEW_VERSIONS):
        yield errors.invalid_value(path, versions, f"must include at least one of {', '.join(REVIEW_VERSIONS)}")


def client_causes(config: Object, path: str) -> Iterator[Cause]:
    """What is wrong with where a webhook is: a URL, or a Service."""
    url, service = config.get("url"), config.get("service")
    if (url is None) == (service is None):
        yield errors.required(path, "exactly one of url or service is required")
    elif url is not None:
        yield from _url_causes(url, f"{path}.url")
    else:
        yield from service_causes(service or {}, f"{path}.service")


def _url_causes(url: str, path: str) -> Iterator[Cause]:
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError as error:
        yield errors.required(path, f"url must be a valid URL: parse {errors.go_quoted(url)}: {error}; {_FORM}")
        return
    if parts.scheme != "https":
        yield errors.invalid_value(path, parts.scheme, f"'https' is the only allowed URL scheme; {_FORM}")
    if not parts.netloc:
        yield errors.invalid_value(path, parts.netloc, f"host must be specified; {_FORM}")
    user = parts.netloc.rpartition("@")[0]
    for part, title, verb in ((user, "user information", "is"), (parts.fragment, "fragments", "are"),
                              (parts.query, "query parameters", "are")):
        if part:
            yield errors.invalid_value(path, part, f"{title} {verb} not permitted in the URL")


def service_causes(service: Object, path: str) -> Iterator[Cause]:
    """A reference to a Service behind which something listens."""
    for key in ("name", "namespace"):
        if not service.get(key):
            yield errors.required(f"{path}.{key}")
    port, target = service.get("port"), service.get("path")
    if port is not None and not 1 <= port <= 65535:
        yield errors.invalid_value(f"{path}.port", port, f"port is not valid: {PORT_RANGE}")
    if target in (None, "", "/"):
        return
    if not target.startswith("/"):
        yield errors.invalid_value(f"{path}.path", target, "must start with a '/'")
    for index, segment in enumerate(target[1:].removesuffix("/").split("/")):
        found = dns_subdomain_errors(segment) if segment else []
        if not segment:
            yield errors.invalid_value(f"{path}.path", target, f"segment[{index}] may not be empty")
        yield from (errors.invalid_value(f"{path}.path", target, f"segment[{index}]: {why}") for why in found)


def rule_causes(rule: Object, path: str) -> Iterator[Cause]:
    """What is wrong with the operations and resources that a rule names."""
    groups, versions = rule.get("apiGroups") or (), rule.get("apiVersions") or ()
    resources, operations = rule.get("resources") or (), rule.get("operations") or ()
    yield from _starred(groups, f"{path}.apiGroups", "must not specify other API groups")
    yield from _starred(versions, f"{path}.apiVersions", "must not specify other API versions")
    if not resources:
        yield errors.required(f"{path}.resources")
    if "*/*" in resources and len(resources) > 1:
        yield errors.invalid_value(f"{path}.resources", resources,
                                   "if '*/*' is present, must not specify other resources")
    elif "*" in resources and any("/" not in name for name in resources if name != "*"):
        yield errors.invalid_value(f"{path}.resources", resources,
                                   "if '*' is present, must not specify other resources without subresources")
    yield from _starred(operations, f"{path}.operations", "must not specify other operations")
    for index, operation in enumerate(operations):
        yield from one_of(operation, OPERATIONS, f"{path}.operations[{index}]", required=True)
    yield from one_of(rule.get("scope"), ("*", "Cluster", "Namespaced"), f"{path}.scope")


def _starred(values: list[str] | tuple[()], path: str, why: str) -> Iterator[Cause]:
    if not values:
        yield errors.required(path)
    elif "*" in values and len(values) > 1:
        yield errors.invalid_value(path, values, f"if '*' is present, {why}")


def _compilation_problem(expression: str) -> str:
    try:
        match_condition(expression)
    except (MissingExtra, CelError) as error:
        return str(error)
    return ""


def condition_causes(owner: Object, path: str, *, compiled: bool = False) -> Iterator[Cause]:
    """Names and expressions of match conditions."""
    seen = set()
    for index, condition in enumerate(owner.get("matchConditions") or ()):
        at, name = f"{path}.matchConditions[{index}]", condition.get("name") or ""
        expression = condition.get("expression") or ""
        if not expression.strip():
            yield errors.required(f"{at}.expression")
        elif compiled and (wrong := _compilation_problem(expression)):
            yield errors.invalid_value(f"{at}.expression", expression, wrong)
        if not name:
            yield errors.required(f"{at}.name")
        else:
            yield from (errors.invalid_value(f"{at}.name", name, why) for why in qualified_name_errors(name))
        if name in seen:
            yield errors.duplicate(f"{at}.name", name)
        seen.add(name)


def match_causes(match: Object | None, path: str, *, required: bool) -> Iterator[Cause]:
    """What is wrong with the match of a policy or binding."""
    if match is None:
        if required:
            yield errors.required(path)
        return
    yield from one_of(match.get("matchPolicy"), ("Equivalent", "Exact"), f"{path}.matchPolicy")
    for key in ("namespaceSelector", "objectSelector"):
        yield from selector_causes(match.get(key) or {}, f"{path}.{key}")
    for key in ("resourceRules", "excludeResourceRules"):
        for index, rule in enumerate(match.get(key) or ()):
            yield from rule_causes(rule, f"{path}.{key}[{index}]")
    if required and not match.get("resourceRules"):
        yield errors.required(f"{path}.resourceRules")


def policy_causes(obj: Object) -> Iterator[Cause]:
    """What is wrong with a ValidatingAdmissionPolicy."""
    spec, nothing = obj["spec"], "validations or auditAnnotations must contain at least one item"
    yield from one_of(spec.get("failurePolicy"), ("Fail", "Ignore"), "spec.failurePolicy")
    yield from kind_causes(spec.get("paramKind"), "spec.paramKind")
    yield from match_causes(spec.get("matchConstraints"), "spec.matchConstraints", required=True)
    yield from condition_causes(spec, "spec")
    yield from variable_causes(spec, "spec")
    if not spec.get("validations") and not spec.get("auditAnnotations"):
        yield errors.required("spec.validations", nothing)
        yield errors.required("spec.auditAnnotations", nothing)
    for index, validation in enumerate(spec.get("validations") or ()):
        at = f"spec.validations[{index}]"
        if not (validation.get("expression") or "").strip():
            yield errors.required(f"{at}.expression", "expression is not specified")
        yield from one_of(validation.get("reason"), ("Forbidden", "Invalid", "RequestEntityTooLarge"), f"{at}.reason")
    for index, annotation in enumerate(spec.get("auditAnnotations") or ()):
        at, key = f"spec.auditAnnotations[{index}]", f"{obj['metadata'].get('name', '')}/{annotation.get('key') or ''}"
        yield from (errors.invalid_value(f"{at}.key", key, why) for why in qualified_name_errors(key))
        if not (annotation.get("valueExpression") or "").strip():
            yield errors.required(f"{at}.valueExpression", "valueExpression is not specified")


def kind_causes(kind: Object | None, path: str) -> Iterator[Cause]:
    """The kind of a policy's parameters."""
    if kind is not None:
        yield from (errors.required(f"{path}.{key}") for key in ("apiVersion", "kind") if not kind.get(key))


def variable_causes(spec: Object, path: str) -> Iterator[Cause]:
    """Names and expressions of variables."""
    for index, variable in enumerate(spec.get("variables") or ()):
        for key in ("name", "expression"):
            if not (variable.get(key) or "").strip():
                yield errors.required(f"{path}.variables[{index}].{key}", f"{key} is not specified")


def binding_causes(spec: Object, *, validating: bool) -> Iterator[Cause]:
    """What is wrong with the binding of a policy."""
    name, actions = spec.get("policyName") or "", spec.get("validationActions") or []
    if not name:
        yield errors.required("spec.policyName")
    else:
        yield from (errors.invalid_value("spec.policyName", name, why) for why in dns_subdomain_errors(name))
    if (reference := spec.get("paramRef")) is not None:
        yield from _parameter_causes(reference, "spec.paramRef")
    yield from match_causes(spec.get("matchResources"), "spec.matchResources", required=False)
    if not validating:
        return
    if not actions:
        yield errors.required("spec.validationActions", "at least one validation action is required")
    for index, action in enumerate(actions):
        if action in actions[:index]:
            yield errors.duplicate(f"spec.validationActions[{index}]", action)
        else:
            yield from one_of(action, ("Audit", "Deny", "Warn"), f"spec.validationActions[{index}]", required=True)
    if {"Deny", "Warn"} <= set(actions):
        yield errors.invalid_value("spec.validationActions", actions, "must not contain both Deny and Warn (repeating "
                                   "the same validation failure information in the API response and headers serves no "
                                   "purpose)")


def _parameter_causes(reference: Object, path: str) -> Iterator[Cause]:
    name, selector = reference.get("name"), reference.get("selector")
    if name and selector is not None:
        for key in ("name", "selector"):
            yield errors.forbidden_field(f"{path}.{key}", "name and selector are mutually exclusive")
    elif not name and selector is None:
        yield errors.required(path, "one of name or selector must be specified")
    if reference.get("parameterNotFoundAction") is None:
        yield errors.required(f"{path}.parameterNotFoundAction")
    yield from one_of(reference.get("parameterNotFoundAction"), ("Deny", "Allow"), f"{path}.parameterNotFoundAction")


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
