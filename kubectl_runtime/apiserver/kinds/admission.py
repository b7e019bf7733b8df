"""Webhook configurations, and admission policies with their bindings.

Each expression of a policy is compiled. If an expression cannot be evaluated here, because the extra `cel` is missing
or the engine does not know a name, the policy is refused with the reason.
"""
from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import urlsplit

from kubectl_runtime.apiserver import errors
from kubectl_runtime.apiserver.errors import Cause
from kubectl_runtime.apiserver.kinds import rules as r
from kubectl_runtime.apiserver.kinds.base import PORT_RANGE, BuiltinStrategy, selector_causes
from kubectl_runtime.apiserver.names import dns_subdomain_errors, qualified_name_errors
from kubectl_runtime.apiserver.wire import Object
from kubectl_runtime.core.base.errors import MissingExtra
from kubectl_runtime.schema.cel import CelError
from kubectl_runtime.schema.cel import condition as match_condition
from kubectl_runtime.schema.policycel import ANNOTATION, APPLY, BOOL, JSON_PATCH, STRING, Expressions, Kind

REVIEW_VERSIONS = ("v1", "v1beta1")
_FORM = "desired format: https://host[/path]"
_MATCH_POLICY = ("matchPolicy", r.choice("Equivalent", "Exact"))
_FAILURE_POLICY = r.choice("Fail", "Ignore")


def _filled_text(why: str = "") -> r.Check:
    """Refuse an empty text and a text of blanks."""
    return r.required(why, unless=lambda value: bool((value or "").strip()))


def _url(url: str | None, path: str) -> Iterator[Cause]:
    if url is None:
        return
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


def _url_path(target: str | None, path: str) -> Iterator[Cause]:
    if target in (None, "", "/"):
        return
    if not target.startswith("/"):
        yield errors.invalid_value(path, target, "must start with a '/'")
    for index, segment in enumerate(target[1:].removesuffix("/").split("/")):
        found = [f": {why}" for why in dns_subdomain_errors(segment)] if segment else [" may not be empty"]
        yield from (errors.invalid_value(path, target, f"segment[{index}]{why}") for why in found)


#: A reference to a Service.
SERVICE_ADDRESS = r.Rules(
    ("name", r.REQUIRED),
    ("namespace", r.REQUIRED),
    ("port", r.between(1, 65535, f"port is not valid: {PORT_RANGE}")),
    ("path", _url_path),
)

#: A webhook's clientConfig: a URL or a Service.
CLIENT = r.Rules(
    r.when(lambda config: r.has("url")(config) == r.has("service")(config),
           ("", r.missing("exactly one of url or service is required"))),
    r.when(lambda config: r.has("url")(config) != r.has("service")(config),
           ("url", _url),
           ("service", SERVICE_ADDRESS)),
)


def _starred(what: str) -> r.Check:
    """Refuse an empty list, and a ``*`` beside other values."""
    return lambda values, path: (
        (errors.required(path),) if not values else
        (errors.invalid_value(path, values, f"if '*' is present, must not specify other {what}"),)
        if "*" in values and len(values) > 1 else ())


def _resources(resources: list[str] | None, path: str) -> Iterator[Cause]:
    names = resources or []
    if not names:
        yield errors.required(path)
    if "*/*" in names and len(names) > 1:
        yield errors.invalid_value(path, names, "if '*/*' is present, must not specify other resources")
    elif "*" in names and any("/" not in name for name in names if name != "*"):
        yield errors.invalid_value(path, names,
                                   "if '*' is present, must not specify other resources without subresources")


RULE = r.Rules(
    ("apiGroups", _starred("API groups")),
    ("apiVersions", _starred("API versions")),
    ("resources", _resources),
    ("operations", _starred("operations")),
    ("operations[*]", r.REQUIRED, r.choice("*", "CONNECT", "CREATE", "DELETE", "UPDATE")),
    ("scope", r.choice("*", "Cluster", "Namespaced")),
)


def _compiles(expression: str | None, path: str) -> Iterator[Cause]:
    try:
        if expression and expression.strip():
            match_condition(expression)
    except (MissingExtra, CelError) as error:
        yield errors.invalid_value(path, expression, str(error))


def _condition(*checks: r.Check) -> r.Rules:
    """The rules of a match condition, with further `checks` of its expression."""
    return r.Rules(("expression", _filled_text(), *checks), ("name", r.REQUIRED, r.QUALIFIED, r.UNIQUE))


_SELECTORS = (("namespaceSelector", selector_causes), ("objectSelector", selector_causes))


def _review_versions(given: list[str] | None, path: str) -> Iterator[Cause]:
    versions = given or []
    if not versions:
        yield errors.required(path, f"must specify one of {', '.join(REVIEW_VERSIONS)}")
        return
    yield from (errors.invalid_value(f"{path}[{index}]", version, "duplicate version")
                for index, version in enumerate(versions) if version in versions[:index])
    if not set(versions) & set(REVIEW_VERSIONS):
        yield errors.invalid_value(path, versions, f"must include at least one of {', '.join(REVIEW_VERSIONS)}")


_WEBHOOK = r.Rules(
    ("name", r.REQUIRED, r.DNS_SUBDOMAIN, r.must(
        lambda name: not name or name.count(".") >= 2,
        "should be a domain with at least three segments separated by dots"), r.UNIQUE_IF_SET),
    ("admissionReviewVersions", _review_versions),
    ("rules[*]", RULE),
    ("failurePolicy", _FAILURE_POLICY),
    _MATCH_POLICY,
    ("sideEffects", r.present("must specify one of None, NoneOnDryRun"), r.choice("None", "NoneOnDryRun")),
    ("timeoutSeconds", r.between(1, 30, "the timeout value must be between 1 and 30 seconds")),
    *_SELECTORS,
    ("clientConfig", CLIENT),
    ("matchConditions[*]", _condition(_compiles)),
    ("reinvocationPolicy", r.choice("IfNeeded", "Never")),
)


class WebhookStrategy(BuiltinStrategy):
    has_generation = True
    generation_path = "webhooks"
    defaults = r.Defaults({
        "webhooks[*].failurePolicy": "Fail", "webhooks[*].matchPolicy": "Equivalent",
        "webhooks[*].namespaceSelector": {}, "webhooks[*].objectSelector": {}, "webhooks[*].timeoutSeconds": 10,
        "webhooks[*].clientConfig.service.port": 443, "webhooks[*].rules[*].scope": "*"})
    rules = r.Rules(("webhooks[*]", _WEBHOOK))


class MutatingWebhookStrategy(WebhookStrategy):
    """MutatingWebhookConfigurations. By default, reinvocationPolicy is Never."""

    defaults = WebhookStrategy.defaults | r.Defaults({"webhooks[*].reinvocationPolicy": "Never"})


def _match_defaults(path: str) -> dict[str, object]:
    return {f"{path}.matchPolicy": "Equivalent", f"{path}.namespaceSelector": {}, f"{path}.objectSelector": {},
            f"{path}.resourceRules[*].scope": "*", f"{path}.excludeResourceRules[*].scope": "*"}


_MATCH = r.Rules(_MATCH_POLICY, *_SELECTORS, ("resourceRules[*]", RULE), ("excludeResourceRules[*]", RULE))


def _annotations(obj: Object, path: str) -> Iterator[Cause]:
    """Yield a cause for each error of an audit annotation: an invalid key, or a missing valueExpression.

    The policy's name is the prefix of each key.
    """
    for index, annotation in enumerate(obj["spec"].get("auditAnnotations") or ()):
        at = f"{path}spec.auditAnnotations[{index}]"
        key = f"{obj['metadata'].get('name', '')}/{annotation.get('key') or ''}"
        yield from (errors.invalid_value(f"{at}.key", key, why) for why in qualified_name_errors(key))
        if not (annotation.get("valueExpression") or "").strip():
            yield errors.required(f"{at}.valueExpression", "valueExpression is not specified")


def _expression_causes(spec: Object, path: str) -> Iterator[Cause]:
    """Yield a cause for each expression that does not compile, and for each variable whose name is invalid.

    If the extra `cel` is missing, no expression is compiled, and the only cause reports the missing extra.
    """
    try:
        known = Expressions((), has_params=bool(spec.get("paramKind")))
    except MissingExtra as error:
        yield errors.forbidden_field(path, str(error))
        return
    for index, variable in enumerate(spec.get("variables") or ()):
        name, expression = variable.get("name") or "", variable.get("expression") or ""
        if not name.strip() or not expression.strip():
            continue
        at = f"{path}.variables[{index}]"
        if not name.isidentifier() or not name.isascii():
            yield errors.invalid_value(f"{at}.name", name, "name is not a valid CEL identifier")
            continue
        try:
            known.add_variable(name, expression)
        except CelError as error:
            yield errors.invalid_value(f"{at}.expression", expression, str(error))
    for at, expression, kind in _expressions(spec, path):
        if not expression.strip():
            continue
        try:
            known.check(expression, kind)
        except CelError as error:
            yield errors.invalid_value(at, expression, str(error))


def _expressions(spec: Object, path: str) -> Iterator[tuple[str, str, Kind]]:
    """(path, expression, result kind) of all expressions in a policy's spec, except its variables."""
    for field, key, kind in (("matchConditions", "expression", BOOL), ("validations", "expression", BOOL),
                             ("validations", "messageExpression", STRING),
                             ("auditAnnotations", "valueExpression", ANNOTATION)):
        for index, entry in enumerate(spec.get(field) or ()):
            yield f"{path}.{field}[{index}].{key}", entry.get(key) or "", kind
    for index, mutation in enumerate(spec.get("mutations") or ()):
        for key, kind in (("applyConfiguration", APPLY), ("jsonPatch", JSON_PATCH)):
            expression = (mutation.get(key) or {}).get("expression") or ""
            yield f"{path}.mutations[{index}].{key}.expression", expression, kind


_EXPRESSION = ("expression", _filled_text("expression is not specified"))

_POLICY = (
    ("spec.failurePolicy", _FAILURE_POLICY),
    ("spec.paramKind", r.Rules(("apiVersion", r.REQUIRED), ("kind", r.REQUIRED))),
    ("spec.matchConstraints", r.present(), _MATCH, r.Rules(("resourceRules", r.REQUIRED))),
    ("spec.matchConditions[*]", _condition()),
    ("spec.variables[*]", r.Rules(("name", _filled_text("name is not specified")), _EXPRESSION)),
)


def _patch(patch_type: str, key: str) -> r.When:
    """The rows for the patch field (`key`) that belongs to a patchType."""
    return r.when(r.equals("patchType", patch_type),
                  (key, r.present(f"must be specified when patchType is {patch_type}"), r.Rules(_EXPRESSION)))


class MutatingPolicyStrategy(BuiltinStrategy):
    has_generation = True
    defaults = r.Defaults({"spec.failurePolicy": "Fail", **_match_defaults("spec.matchConstraints")})
    rules = r.Rules(
        *_POLICY,
        ("spec.reinvocationPolicy", r.REQUIRED, r.choice("IfNeeded", "Never")),
        ("spec.mutations", r.required("mutations must contain at least one item")),
        ("spec.mutations[*]", r.Rules(
            ("patchType", r.REQUIRED, r.choice("ApplyConfiguration", "JSONPatch")),
            _patch("ApplyConfiguration", "applyConfiguration"),
            _patch("JSONPatch", "jsonPatch"))),
        ("spec", _expression_causes),
    )


class ValidatingPolicyStrategy(MutatingPolicyStrategy):
    rules = r.Rules(
        *_POLICY,
        r.when(r.lacks("spec.validations", "spec.auditAnnotations"),
               ("spec.validations", r.missing("validations or auditAnnotations must contain at least one item")),
               ("spec.auditAnnotations", r.missing("validations or auditAnnotations must contain at least one item"))),
        ("spec.validations[*]", r.Rules(
            _EXPRESSION,
            ("reason", r.choice("Forbidden", "Invalid", "RequestEntityTooLarge")))),
        ("", _annotations),
        ("spec", _expression_causes),
    )


_BINDING = (
    ("spec.policyName", r.REQUIRED, r.DNS_SUBDOMAIN),
    ("spec.paramRef", r.Rules(
        r.when(lambda reference: bool(reference.get("name")) and r.has("selector")(reference),
               ("name", r.forbidden("name and selector are mutually exclusive")),
               ("selector", r.forbidden("name and selector are mutually exclusive", empty=True))),
        r.when(lambda reference: not reference.get("name") and not r.has("selector")(reference),
               ("", r.missing("one of name or selector must be specified"))),
        ("parameterNotFoundAction", r.present(), r.choice("Deny", "Allow")))),
    ("spec.matchResources", _MATCH),
)


class MutatingBindingStrategy(BuiltinStrategy):
    """MutatingAdmissionPolicyBindings."""

    has_generation = True
    defaults = r.Defaults(_match_defaults("spec.matchResources"))
    rules = r.Rules(*_BINDING)


def _actions(given: list[str] | None, path: str) -> Iterator[Cause]:
    actions, supported = given or [], ("Audit", "Deny", "Warn")
    for index, action in enumerate(actions):
        at = f"{path}[{index}]"
        if action in actions[:index]:
            yield errors.duplicate(at, action)
        else:
            yield from (*r.REQUIRED(action, at), *r.choice(*supported)(action, at))
    if {"Deny", "Warn"} <= set(actions):
        yield errors.invalid_value(path, actions, "must not contain both Deny and Warn (repeating the same validation "
                                   "failure information in the API response and headers serves no purpose)")


class ValidatingBindingStrategy(MutatingBindingStrategy):
    """ValidatingAdmissionPolicyBindings. Unlike mutating bindings, they must have validationActions."""

    rules = r.Rules(*_BINDING, ("spec.validationActions", r.required("at least one validation action is required"),
                              _actions))
