"""The review kinds (SubjectAccessReview, TokenReview, …). The server answers a review and does not store it.

`REVIEWS` maps (group, plural) to a function. Each function takes the request's context and the decoded object with the
usual metadata, and returns the answer. The request itself has been authorized like any other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from kubectl_runtime.apiserver.access.authn import User, with_authenticated
from kubectl_runtime.apiserver.access.rbac import Attributes
from kubectl_runtime.apiserver.context import RequestContext
from kubectl_runtime.apiserver.errors import (
    Cause,
    StatusError,
    bad_request,
    forbidden_field,
    invalid,
    invalid_value,
    required,
)
from kubectl_runtime.apiserver.query import parse_labels, parse_terms
from kubectl_runtime.apiserver.wire import Object
from kubectl_runtime.core.meta.metav1 import format_time

Review = Callable[[RequestContext, Object], Object]

_SELECTORS: dict[str, Callable[[str], object]] = {"fieldSelector": parse_terms, "labelSelector": parse_labels}
_OPERATORS = {"fieldSelector": ("In", "NotIn"), "labelSelector": ("In", "NotIn", "Exists", "DoesNotExist")}
AUDIENCE = "https://kubernetes.default.svc"  # the default audience of tokens: the API server itself
AUTHORIZATION = "authorization.k8s.io"
AUTHENTICATION = "authentication.k8s.io"


def self_subject_access(ctx: RequestContext, obj: Object) -> Object:
    """Answer a SelfSubjectAccessReview: may I do this?"""
    _refuse(_attribute_causes(obj) + _metadata_causes(obj))
    return _answer(ctx, obj, ctx.user_info)


def subject_access(ctx: RequestContext, obj: Object) -> Object:
    """Answer a SubjectAccessReview: may this user do this?"""
    _refuse(_attribute_causes(obj) + _subject_causes(obj) + _metadata_causes(obj))
    return _answer(ctx, obj, _subject(obj))


def local_subject_access(ctx: RequestContext, obj: Object) -> Object:
    """Answer a LocalSubjectAccessReview: may this user do this in this namespace?"""
    causes = (_attribute_causes(obj) + _subject_causes(obj)
              + _metadata_causes(obj, "must be empty except for namespace"))
    spec = obj.get("spec") or {}
    asked = (spec.get("resourceAttributes") or {}).get("namespace", "")
    if spec.get("resourceAttributes") is not None and asked != ctx.info.namespace:
        causes.append(invalid_value("spec.resourceAttributes.namespace", asked, "must match metadata.namespace"))
    if spec.get("nonResourceAttributes") is not None:
        causes.append(invalid_value("spec.nonResourceAttributes", _go_attributes(spec["nonResourceAttributes"]),
                                    "disallowed on this kind of request"))
    _refuse(causes)
    return _answer(ctx, obj, _subject(obj))


def self_subject_rules(ctx: RequestContext, obj: Object) -> Object:
    """Answer a SelfSubjectRulesReview: what may I do in this namespace?"""
    namespace = (obj.get("spec") or {}).get("namespace", "")
    if not namespace:
        raise bad_request("no namespace on request")
    found, error = ctx.access.rules_for(ctx.user_info, namespace)
    status: Object = {
        "resourceRules": [_resource_rule(rule) for rule in found if rule.get("resources")],
        "nonResourceRules": [{"verbs": rule.get("verbs") or [], "nonResourceURLs": rule["nonResourceURLs"]}
                             for rule in found if rule.get("nonResourceURLs")],
        "incomplete": bool(error)}
    if error:
        status["evaluationError"] = error
    return {"kind": obj["kind"], "apiVersion": obj["apiVersion"], "metadata": {}, "spec": {}, "status": status}


def self_subject(ctx: RequestContext, obj: Object) -> Object:
    """Answer a SelfSubjectReview: who am I?"""
    metadata = {"creationTimestamp": format_time(ctx.now)}
    return {**obj, "metadata": metadata, "status": {"userInfo": user_info(ctx.user_info)}}


def token(ctx: RequestContext, obj: Object) -> Object:
    """Answer a TokenReview: whose token is this?"""
    spec = obj.get("spec") or {}
    if not spec.get("token"):
        raise bad_request("token is required for TokenReview in authentication")
    user = ctx.access.user_of_token(spec["token"])
    if user is None or AUDIENCE not in (spec.get("audiences") or [AUDIENCE]):
        return {**obj, "status": {"user": {}, "error": "invalid bearer token"}}
    return {**obj, "status": {"authenticated": True, "user": user_info(with_authenticated(user)),
                              "audiences": [AUDIENCE]}}


REVIEWS: dict[tuple[str, str], Review] = {
    (AUTHORIZATION, "selfsubjectaccessreviews"): self_subject_access,
    (AUTHORIZATION, "subjectaccessreviews"): subject_access,
    (AUTHORIZATION, "localsubjectaccessreviews"): local_subject_access,
    (AUTHORIZATION, "selfsubjectrulesreviews"): self_subject_rules,
    (AUTHENTICATION, "selfsubjectreviews"): self_subject,
    (AUTHENTICATION, "tokenreviews"): token,
}


def _answer(ctx: RequestContext, obj: Object, user: User) -> Object:
    decision = ctx.access.authorize(_attributes(obj["spec"], user))
    status: Object = {"allowed": decision.allowed}
    if decision.reason:
        status["reason"] = decision.reason
    if problems := [*filter(None, [decision.error]), *_ignored_selectors(obj["spec"])]:
        status["evaluationError"] = "; ".join(problems)
    return {**obj, "status": status}


def user_info(user: User) -> Object:
    info: Object = {"username": user.name} if user.name else {}
    if user.uid:
        info["uid"] = user.uid
    if user.groups:
        info["groups"] = list(user.groups)
    if user.extra:
        info["extra"] = {key: list(values) for key, values in user.extra}
    return info


def _attributes(spec: Object, user: User) -> Attributes:
    asked = spec.get("resourceAttributes")
    if asked is None:
        asked = spec["nonResourceAttributes"]
        return Attributes(user, asked.get("verb", ""), path=asked.get("path", ""), is_resource=False)
    return Attributes(user, asked.get("verb", ""), asked.get("group", ""), asked.get("resource", ""),
                      asked.get("subresource", ""), asked.get("namespace", ""), asked.get("name", ""))


def _subject(obj: Object) -> User:
    spec = obj["spec"]
    extra = tuple((key, tuple(values or ())) for key, values in (spec.get("extra") or {}).items())
    return User(spec.get("user", ""), spec.get("uid", ""), tuple(spec.get("groups") or ()), extra)


def _refuse(causes: list[Cause]) -> None:
    if causes:
        raise invalid(AUTHORIZATION, "", "", causes)  # the real server omits kind and name of a review


def _attribute_causes(obj: Object) -> list[Cause]:
    spec = obj.get("spec") or {}
    resource, other = spec.get("resourceAttributes"), spec.get("nonResourceAttributes")
    if resource is not None and other is not None:
        return [invalid_value("spec.nonResourceAttributes", _go_attributes(other),
                              "cannot be specified in combination with resourceAttributes")]
    if resource is None and other is None:
        return [invalid_value("spec.resourceAttributes", None,
                              "exactly one of nonResourceAttributes or resourceAttributes must be specified")]
    return [cause for kind in _SELECTORS
            for cause in _selector_causes((resource or {}).get(kind), f"spec.resourceAttributes.{kind}")]


def _selector_causes(selector: Object | None, path: str) -> list[Cause]:
    """The causes if a selector that restricts a list is invalid. Unknown operators are allowed: a later API version may
    add some."""
    if selector is None:
        return []
    raw, requirements = selector.get("rawSelector"), selector.get("requirements") or []
    causes = []
    if raw and requirements:
        causes.append(invalid_value(f"{path}.rawSelector", raw, "may not specified at the same time as requirements"))
    if not raw and not requirements:
        causes.append(required(f"{path}.requirements",
                               f"when {path} is specified, requirements or rawSelector is required"))
    for index, requirement in enumerate(requirements):
        at, operator, values = f"{path}.requirements[{index}]", requirement.get("operator"), requirement.get("values")
        if operator in ("In", "NotIn") and not values:
            causes.append(required(f"{at}.values", "must be specified when `operator` is 'In' or 'NotIn'"))
        if operator in ("Exists", "DoesNotExist") and values:
            causes.append(forbidden_field(f"{at}.values",
                                          "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"))
    return causes


def _ignored_selectors(spec: Object) -> Iterator[str]:
    """A text for each selector that the authorizer ignores, wholly or partially, because it cannot parse it."""
    for kind, parse in _SELECTORS.items():
        selector = (spec.get("resourceAttributes") or {}).get(kind) or {}
        requirements = selector.get("requirements") or []
        read = [requirement for requirement in requirements if requirement.get("operator") in _OPERATORS[kind]]
        unread = len(read) < len(requirements)
        try:
            parse(selector.get("rawSelector") or "")
        except StatusError:
            unread = True
        if unread:
            yield f"spec.resourceAttributes.{kind} {'partially ' if read else ''}ignored due to parse error"


def _subject_causes(obj: Object) -> list[Cause]:
    spec = obj.get("spec") or {}
    if spec.get("user") or spec.get("groups"):
        return []
    return [invalid_value("spec.user", "", "at least one of user or group must be specified")]


def _metadata_causes(obj: Object, why: str = "must be empty") -> list[Cause]:
    metadata = obj.get("metadata") or {}
    allowed = ("managedFields",) if why == "must be empty" else ("managedFields", "namespace")
    if all(key in allowed for key in metadata):
        return []
    return [invalid_value("metadata", metadata, why)]


def _go_attributes(other: Object) -> Object:
    """nonResourceAttributes as the real server prints its internal type."""
    return {"Path": other.get("path", ""), "Verb": other.get("verb", "")}


def _resource_rule(rule: Object) -> Object:
    shown = {"verbs": rule.get("verbs") or [], "apiGroups": rule.get("apiGroups") or [], "resources": rule["resources"]}
    if rule.get("resourceNames"):
        shown["resourceNames"] = rule["resourceNames"]
    return shown
