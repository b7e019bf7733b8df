"""The AdmissionReview (`v1` or `v1beta1`) that is sent to a webhook, and the verdict in the webhook's answer.

`invocation` decides by selectors, rules, equivalent resources and conditions whether a webhook is called for an
operation, and with which version of the object. It returns None if the webhook is not called. It raises a refusal if
the namespace is missing or a condition cannot be evaluated. Callers hold the cluster's lock, which is released during
calls of a conversion webhook.

`verified` raises `InvalidAnswer` with the text that follows ``received invalid webhook response: `` in refusals. As in
the real server, version and uid of a v1beta1 answer are not checked.
"""
from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from kubectl_runtime.apiserver import errors
from kubectl_runtime.apiserver.access import Attributes as Checked
from kubectl_runtime.apiserver.access import as_user
from kubectl_runtime.apiserver.context import RequestContext
from kubectl_runtime.apiserver.crds.instances import CustomStrategy
from kubectl_runtime.apiserver.errors import go_quoted
from kubectl_runtime.apiserver.kinds import typed
from kubectl_runtime.apiserver.query import LabelSelector, raw_delete_options
from kubectl_runtime.apiserver.storage import ServedResource
from kubectl_runtime.apiserver.webhooks.hooks import Hook
from kubectl_runtime.apiserver.wire import Object
from kubectl_runtime.core.base.errors import MissingExtra
from kubectl_runtime.core.codec.jsonbytes import json_copy
from kubectl_runtime.core.objects import admission
from kubectl_runtime.schema.cel import CelError, condition
from kubectl_runtime.schema.cellibrary import Decide

CREATE, UPDATE, DELETE, CONNECT = "CREATE", "UPDATE", "DELETE", "CONNECT"


class Kind(NamedTuple):
    group: str
    version: str
    kind: str

    @property
    def api_version(self) -> str:
        """The apiVersion, for example ``v1`` or ``apps/v1``."""
        return f"{self.group}/{self.version}" if self.group else self.version


@dataclass(slots=True)
class Attributes:
    """One operation as admission sees it. It writes an object, writes a subresource that has its own kind, or is a
    CONNECT such as exec.

    For DELETE `object` is None, and for CONNECT it has the options (PodExecOptions, …). `old` is set for UPDATE and
    DELETE, and must not be changed. The objects have kind and apiVersion.
    """

    operation: str
    resource: ServedResource
    subresource: str
    kind: Kind
    namespace: str
    name: str
    object: Object | None
    old: Object | None
    options: Object | None
    dry_run: bool

    @property
    def is_own_kind(self) -> bool:
        """Whether the objects have the resource's kind instead of a subresource's own kind (Scale, Binding)."""
        return self.kind == (self.resource.group, self.resource.version, self.resource.kind)


def attributes(ctx: RequestContext, operation: str, new: Object | None, old: Object | None, *,
               name: str | None = None) -> Attributes:
    """The attributes of a request's operation on an object or on a subresource's object."""
    shown = new or old or {}
    resource, group_version = ctx.type, (shown.get("apiVersion") or ctx.type.api_version)
    group, _, version = group_version.rpartition("/")
    if name is None:
        name = ctx.info.name or (shown.get("metadata") or {}).get("name") or ""
    namespace = ctx.namespace
    if (resource.group, resource.plural) == ("", "namespaces"):
        namespace = name  # a Namespace counts as an object in the namespace of this name
    kind = Kind(group, version, shown.get("kind") or ctx.type.kind)
    return Attributes(operation, resource, ctx.info.subresource, kind, namespace, name, new, old,
                      _options(ctx, operation), _is_dry_run(ctx, operation))


def _is_dry_run(ctx: RequestContext, operation: str) -> bool:
    if operation == DELETE:
        return bool(raw_delete_options(ctx.request, custom=ctx.type.is_custom).get("dryRun"))
    return operation != CONNECT and ctx.dry_run


def _options(ctx: RequestContext, operation: str) -> Object | None:
    """The CreateOptions, UpdateOptions or DeleteOptions of the request; None for CONNECT."""
    if operation == CONNECT:
        return None
    kind = f"{operation.capitalize()}Options"
    if operation == DELETE:
        given = raw_delete_options(ctx.request, custom=ctx.type.is_custom)
    else:
        given = {"dryRun": ctx.request.params("dryRun"), "fieldManager": ctx.request.param("fieldManager"),
                 "fieldValidation": ctx.request.param("fieldValidation")}
    options = {**{key: value for key, value in given.items() if key != "preconditions" or any(value.values())},
               "kind": kind, "apiVersion": "meta.k8s.io/v1"}
    typed.decode(f"meta.v1.{kind}", options)
    return options


JSON_PATCH = "JSONPatch"
_API_VERSION = admission.API_VERSION


class InvalidAnswer(Exception):
    """A webhook's answer is invalid."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """A webhook's answer. (Audit annotations are dropped, because there is no audit log.)"""

    allowed: bool
    status: Object | None
    patch: bytes
    patch_type: str
    warnings: tuple[str, ...]


def request_of(ctx: RequestContext, kind: Kind, resource: ServedResource, asked: Attributes) -> Object:
    """The review's request without uid and objects, with fields in the real server's order. Conditions see it as
    `request`."""
    user, own = ctx.user_info, asked.resource
    request: Object = {
        "kind": kind._asdict(), "resource": _resource(resource), "subResource": asked.subresource,
        "requestKind": asked.kind._asdict(), "requestResource": _resource(own), "requestSubResource": asked.subresource,
        "name": asked.name, "namespace": asked.namespace, "operation": asked.operation,
        "userInfo": {"username": user.name, "uid": user.uid, "groups": list(user.groups),
                     "extra": {key: list(values) for key, values in user.extra}}}
    request["userInfo"] = {key: value for key, value in request["userInfo"].items() if value}
    request = {key: value for key, value in request.items() if value != ""}
    return {**request, "dryRun": asked.dry_run, "options": asked.options}


def _resource(resource: ServedResource) -> Object:
    return {"group": resource.group, "version": resource.version, "resource": resource.plural}


def review_of(uid: str, request: Object, shown: Object | None, old: Object | None, version: str) -> Object:
    """The AdmissionReview to send."""
    before = {key: value for key, value in request.items() if key not in ("dryRun", "options")}
    return {"kind": admission.KIND, "apiVersion": f"{admission.GROUP}/{version}",
            "request": {"uid": uid, **before, "object": shown, "oldObject": old, "dryRun": request["dryRun"],
                        "options": request["options"]}}


def verified(uid: str, content: Object, version: str, *, mutating: bool) -> Verdict:
    """The verdict in an answer. Raises InvalidAnswer."""
    response = content.get("response")
    if response is None:
        raise InvalidAnswer("webhook response was absent")
    patch, patch_type = base64.b64decode(response.get("patch") or ""), response.get("patchType")
    if version == "v1":
        if response.get("uid") != uid:
            raise InvalidAnswer(f"expected response.uid={go_quoted(uid)}, got {go_quoted(response.get('uid') or '')}")
        if (content["apiVersion"], content["kind"]) != (_API_VERSION, admission.KIND):
            group, _, found = content["apiVersion"].rpartition("/")
            raise InvalidAnswer(f"expected webhook response of {_API_VERSION}, Kind={admission.KIND}, got "
                                f"{group}/{found}, Kind={content['kind']}")
        _check_patch(patch, patch_type, mutating=mutating)
    elif patch:
        patch_type = JSON_PATCH
    return Verdict(bool(response.get("allowed")), response.get("status"), patch if mutating else b"", patch_type or "",
                   tuple(response.get("warnings") or ()))


def _check_patch(patch: bytes, patch_type: str | None, *, mutating: bool) -> None:
    if not mutating and patch:
        raise InvalidAnswer("validating webhook may not return response.patch")
    if not mutating and patch_type is not None:
        raise InvalidAnswer("validating webhook may not return response.patchType")
    if patch and patch_type is None:
        raise InvalidAnswer("webhook returned response.patch but not response.patchType")
    if not patch and patch_type is not None:
        raise InvalidAnswer("webhook returned response.patchType but not response.patch")
    if patch_type == "":
        raise InvalidAnswer('webhook returned invalid response.patchType of ""')


def as_version(obj: Object | None, asked: Attributes, target: ServedResource) -> Object | None:
    """The object in the target's version; the same object if it already has that version."""
    if obj is None or target is asked.resource or not asked.is_own_kind:
        return obj
    return between(obj, asked.resource, target)


def back(obj: Object, asked: Attributes, source: ServedResource) -> Object:
    """Convert an object from `source`'s version back to the request's version; the reverse of `as_version`."""
    if source is asked.resource or not asked.is_own_kind:
        return obj
    return between(obj, source, asked.resource)


def between(obj: Object, source: ServedResource, target: ServedResource) -> Object:
    """A copy of an object, converted from the source's version to the target's version."""
    copy = json_copy(obj)
    if isinstance(target.strategy, CustomStrategy):
        try:
            (copy,) = target.strategy.converted([(_bare(copy), source.version)])
        except errors.StatusError as error:
            raise errors.internal(error.message) from None
    else:
        copy = target.strategy.from_storage(source.strategy.to_storage(copy, source.version), target.version)
    return {**copy, "kind": target.kind, "apiVersion": target.api_version}


def _bare(obj: Object) -> Object:
    return {key: value for key, value in obj.items() if key not in ("kind", "apiVersion")}


_EXEMPT = {f"{scope}{what}" for scope in ("Validating", "Mutating")
           for what in ("WebhookConfiguration", "AdmissionPolicy", "AdmissionPolicyBinding")}


@dataclass(frozen=True, slots=True)
class Invocation:
    """A webhook to call, with the resource and kind under which it sees the operation."""

    hook: Hook
    resource: ServedResource
    kind: Kind


def is_exempt(asked: Attributes) -> bool:
    """Whether webhooks are skipped: a broken webhook must not prevent the repair of its own configuration."""
    return asked.kind.group == "admissionregistration.k8s.io" and asked.kind.kind in _EXEMPT


class Match(Protocol):
    """The operations to which a webhook, a policy or a binding applies."""

    @property
    def rules(self) -> tuple[Object, ...] | None: ...

    @property
    def matches_equivalents(self) -> bool: ...

    @property
    def namespace_selector(self) -> LabelSelector: ...

    @property
    def object_selector(self) -> LabelSelector: ...


def invocation(ctx: RequestContext, hook: Hook, asked: Attributes) -> Invocation | None:
    """The resource and kind under which a webhook sees an operation; None if the webhook is not called. See the module
    docstring for errors."""
    target = matched(ctx, hook, asked)
    if target is None:
        return None
    found = Invocation(hook, *target)
    return found if not hook.conditions or _holds(ctx, found, asked) else None


def matched(ctx: RequestContext, match: Match, asked: Attributes, *, rules: tuple[Object, ...] | None = None
            ) -> tuple[ServedResource, Kind] | None:
    """The resource and kind under which `match` applies to the operation; None if it does not apply. `rules`, if given,
    replace the rules in `match`. Raises a 404 if the namespace is missing."""
    missing: errors.StatusError | None = None
    try:
        if not _is_in_namespace(ctx, match.namespace_selector, asked):
            return None
    except errors.StatusError as error:
        missing = error
    if match.object_selector and not any(
            match.object_selector.matches((obj.get("metadata") or {}).get("labels") or {})
            for obj in (asked.object, asked.old) if obj is not None):
        return None
    found = _by_rules(ctx, rules if rules is not None else match.rules or (), match, asked)
    if found is not None and missing is not None:
        raise missing
    return found


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


def _by_rules(ctx: RequestContext, rules: tuple[Object, ...], match: Match, asked: Attributes
              ) -> tuple[ServedResource, Kind] | None:
    if any(_matches(rule, asked, asked.resource) for rule in rules):
        return asked.resource, asked.kind
    if not match.matches_equivalents:
        return None
    others = [other for other in ctx.cluster.registry.of_storage(asked.resource.storage)
              if other is not asked.resource
              and (not asked.subresource or other.subresource(asked.subresource) is not None)]
    for rule in rules:
        for other in others:
            if _matches(rule, asked, other):
                kind = Kind(other.group, other.version, other.kind) if asked.is_own_kind else asked.kind
                return other, kind
    return None


def _matches(rule: Object, asked: Attributes, resource: ServedResource) -> bool:
    is_namespace = (resource.group, resource.version, resource.plural) == ("", "v1", "namespaces")
    scope = "Cluster" if is_namespace or not asked.namespace else "Namespaced"
    return (rule.get("scope") in (None, "*", scope) and _has(rule, "operations", asked.operation)
            and _has(rule, "apiGroups", resource.group) and _has(rule, "apiVersions", resource.version)
            and any(_names(text, resource.plural, asked.subresource) for text in rule.get("resources") or ())
            and (not rule.get("resourceNames") or asked.name in rule["resourceNames"]))


def _has(rule: Object, key: str, value: str) -> bool:
    values = rule.get(key) or ()
    return "*" in values or value in values


def _names(text: str, plural: str, subresource: str) -> bool:
    resource, _, part = text.partition("/")
    return resource in ("*", plural) and part in ("*", subresource)


def decision_of(ctx: RequestContext) -> Decide:
    """Returns a function that answers `authorizer` checks in expressions. It decides by the permissions of the
    request's user, or of the ServiceAccount that the check names."""
    def decide(asked: Mapping[str, str]) -> tuple[bool, str, str]:
        user = as_user(f"system:serviceaccount:{asked['account']}") if "account" in asked else ctx.user_info
        parts = {key: value for key, value in asked.items() if key in _CHECKED}
        found = ctx.access.authorize(Checked(user, is_resource="path" not in asked, **parts))
        return found.allowed, found.reason, found.error
    return decide


_CHECKED = ("verb", "group", "resource", "subresource", "namespace", "name", "path")


def _holds(ctx: RequestContext, found: Invocation, asked: Attributes) -> bool:
    """Whether all conditions are true. If no condition is false and one cannot be evaluated, the failurePolicy decides:
    Ignore skips the webhook, and Fail refuses the request."""
    shown, old = (as_version(obj, asked, found.resource) for obj in (asked.object, asked.old))
    request = request_of(ctx, found.kind, found.resource, asked)
    failures = []
    for _, expression in found.hook.conditions:
        try:
            if not condition(expression).holds(shown, old, request, decision_of(ctx)):
                return False
        except (CelError, MissingExtra) as error:
            failures.append(f"expression '{expression}' resulted in error: {error}")
    if not failures:
        return True
    if not found.hook.fails_closed:
        return False
    why = failures[0] if len(failures) == 1 else f"[{', '.join(failures)}]"
    raise errors.forbidden(asked.resource.group, asked.resource.plural, asked.name, why)
