"""Whether a webhook is asked about an operation: selectors, rules, equivalent resources, conditions.

`invocation` gives as what it is asked, None if it is not; it raises the refusal of a namespace that is missing, and of
a condition that cannot be evaluated. The cluster's lock is held.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kubectl_runtime.apiserver import errors
from kubectl_runtime.apiserver.context import RequestContext
from kubectl_runtime.apiserver.query.selectors import LabelSelector
from kubectl_runtime.apiserver.storage.registry import ServedResource
from kubectl_runtime.apiserver.webhooks.admission_attributes import CREATE, UPDATE, Attributes, Kind
from kubectl_runtime.apiserver.webhooks.admission_review import request_of
from kubectl_runtime.apiserver.webhooks.hooks import Hook
from kubectl_runtime.apiserver.webhooks.versions import as_version
from kubectl_runtime.core.base.errors import MissingExtra
from kubectl_runtime.schema.cel import CelError
from kubectl_runtime.schema.celconditions import condition

Object = dict[str, Any]

_EXEMPT = {f"{scope}{what}" for scope in ("Validating", "Mutating")
           for what in ("WebhookConfiguration", "AdmissionPolicy", "AdmissionPolicyBinding")}


@dataclass(frozen=True, slots=True)
class Invocation:
    """A webhook, and the resource and kind as which it wants to see the operation."""

    hook: Hook
    resource: ServedResource
    kind: Kind


def is_exempt(asked: Attributes) -> bool:
    """Whether no webhook may be asked: they could not be repaired any more."""
    return asked.kind.group == "admissionregistration.k8s.io" and asked.kind.kind in _EXEMPT


def invocation(ctx: RequestContext, hook: Hook, asked: Attributes) -> Invocation | None:
    """See the module."""
    missing: errors.StatusError | None = None
    try:
        if not _is_in_namespace(ctx, hook.namespace_selector, asked):
            return None
    except errors.StatusError as error:
        missing = error
    if hook.object_selector and not any(
            hook.object_selector.matches((obj.get("metadata") or {}).get("labels") or {})
            for obj in (asked.object, asked.old) if obj is not None):
        return None
    found = _by_rules(ctx, hook, asked)
    if found is None:
        return None
    if missing is not None:
        raise missing
    return found if not hook.conditions or _holds(ctx, found, asked) else None


def _is_in_namespace(ctx: RequestContext, selector: LabelSelector, asked: Attributes) -> bool:
    is_namespaces = asked.resource.plural == "namespaces"
    if not selector or (not asked.namespace and not is_namespaces):
        return True
    if is_namespaces and not asked.subresource and asked.operation in (CREATE, UPDATE) and asked.object is not None:
        return selector.matches(asked.object["metadata"].get("labels") or {})
    found = ctx.cluster.storage.get("/namespaces", "", asked.namespace)
    if found is None:
        raise errors.not_found("", "namespaces", asked.namespace)
    return selector.matches(found.labels)


def _by_rules(ctx: RequestContext, hook: Hook, asked: Attributes) -> Invocation | None:
    if any(_matches(rule, asked, asked.resource) for rule in hook.rules):
        return Invocation(hook, asked.resource, asked.kind)
    if not hook.matches_equivalents:
        return None
    others = [other for other in ctx.cluster.registry.of_storage(asked.resource.storage)
              if other is not asked.resource
              and (not asked.subresource or other.subresource(asked.subresource) is not None)]
    for rule in hook.rules:
        for other in others:
            if _matches(rule, asked, other):
                kind = Kind(other.group, other.version, other.kind) if asked.is_own_kind else asked.kind
                return Invocation(hook, other, kind)
    return None


def _matches(rule: Object, asked: Attributes, resource: ServedResource) -> bool:
    is_namespace = (resource.group, resource.version, resource.plural) == ("", "v1", "namespaces")
    scope = "Cluster" if is_namespace or not asked.namespace else "Namespaced"
    return (rule.get("scope") in (None, "*", scope) and _has(rule, "operations", asked.operation)
            and _has(rule, "apiGroups", resource.group) and _has(rule, "apiVersions", resource.version)
            and any(_names(text, resource.plural, asked.subresource) for text in rule.get("resources") or ()))


def _has(rule: Object, key: str, value: str) -> bool:
    values = rule.get(key) or ()
    return "*" in values or value in values


def _names(text: str, plural: str, subresource: str) -> bool:
    resource, _, part = text.partition("/")
    return resource in ("*", plural) and part in ("*", subresource)


def _holds(ctx: RequestContext, found: Invocation, asked: Attributes) -> bool:
    """Whether all conditions are true. One that is false decides; then one that cannot be evaluated, as the failure
    policy says."""
    shown, old = (as_version(obj, asked, found.resource) for obj in (asked.object, asked.old))
    request = request_of(ctx, found.kind, found.resource, asked)
    failures = []
    for _, expression in found.hook.conditions:
        try:
            if not condition(expression).holds(shown, old, request):
                return False
        except (CelError, MissingExtra) as error:
            failures.append(f"expression '{expression}' resulted in error: {error}")
    if not failures:
        return True
    if not found.hook.fails_closed:
        return False
    why = failures[0] if len(failures) == 1 else f"[{', '.join(failures)}]"
    raise errors.forbidden(asked.resource.group, asked.resource.plural, asked.name, why)
