"""Roles and bindings. Their names only have to fit into a path; escalation is checked by access, not here."""

from __future__ import annotations

from kubectl_runtime.apiserver import errors
from kubectl_runtime.apiserver.errors import Cause
from kubectl_runtime.apiserver.kinds.base import BuiltinStrategy, selector_causes
from kubectl_runtime.apiserver.kinds.rules import (
    DNS_SUBDOMAIN,
    PATH_SEGMENT,
    REQUIRED,
    Defaults,
    Fixed,
    Rules,
    choice,
    equals,
    filled,
    has,
    invalid,
    lacks,
    required,
    some,
    when,
)
from kubectl_runtime.apiserver.objectmeta.names import path_segment_errors
from kubectl_runtime.apiserver.strategy import Object

GROUP = "rbac.authorization.k8s.io"

_VERBS = ("verbs", required("verbs must contain at least one value"))
_RULE = (
    when(filled("nonResourceURLs"), when(some("apiGroups", "resources", "resourceNames"), ("nonResourceURLs", invalid(
        "rules cannot apply to both regular resources and non-resource URLs")))),
    when(lacks("nonResourceURLs"),
         ("apiGroups", required("resource rules must supply at least one api group")),
         ("resources", required("resource rules must supply at least one resource"))),
)


class RoleStrategy(BuiltinStrategy):
    """Roles: each rule has verbs and resources."""

    name_errors = staticmethod(path_segment_errors)
    rules = Rules(("rules[*]", Rules(
        _VERBS,
        when(filled("nonResourceURLs"),
             ("nonResourceURLs", invalid("namespaced rules cannot apply to non-resource URLs"))),
        *_RULE)))


def _aggregated(selector: Object, path: str) -> list[Cause]:
    wrong = selector_causes(selector, path)
    return [*wrong, errors.invalid_value(path, None, "invalid label selector.")] if wrong else []


class ClusterRoleStrategy(BuiltinStrategy):
    """ClusterRoles: their rules may have URLs, and they may be made of others."""

    name_errors = staticmethod(path_segment_errors)
    rules = Rules(
        ("rules[*]", Rules(_VERBS, *_RULE)),
        when(has("aggregationRule"), ("aggregationRule.clusterRoleSelectors", required(
            "at least one clusterRoleSelector required if aggregationRule is non-nil"))),
        ("aggregationRule.clusterRoleSelectors[*]", _aggregated),
    )


def _internal(role: Object) -> Object:
    """A roleRef as the real server prints its internal type."""
    return {"APIGroup": role["apiGroup"], "Kind": role.get("kind", ""), "Name": role.get("name", "")}


_ROLE = (
    ("roleRef", Fixed(lambda path, role: errors.invalid_value(path, _internal(role), "cannot change roleRef"))),
    ("roleRef.apiGroup", choice(GROUP)),
)
_ROLE_NAME = ("roleRef.name", REQUIRED, PATH_SEGMENT)
_SUBJECT = (
    ("name", REQUIRED),
    ("kind", choice("ServiceAccount", "User", "Group", zero="")),
    when(equals("kind", "ServiceAccount"), ("name", DNS_SUBDOMAIN)),
)
_SUBJECT_GROUP = (
    when(equals("kind", "ServiceAccount"), ("apiGroup", choice(""))),
    when(equals("kind", "User", "Group"), ("apiGroup", choice(GROUP, zero=""))),
)


def _group_of(subject: Object) -> str | None:
    return GROUP if subject.get("kind") in ("User", "Group") else None


class BindingStrategy(BuiltinStrategy):
    """RoleBindings: the role is fixed, the subjects are not."""

    name_errors = staticmethod(path_segment_errors)
    defaults = Defaults({"roleRef": {}}, zero={"roleRef.apiGroup": GROUP, "subjects[*].apiGroup": _group_of})
    rules = Rules(
        *_ROLE,
        ("roleRef.kind", choice("Role", "ClusterRole", zero="")),
        _ROLE_NAME,
        ("subjects[*]", Rules(*_SUBJECT, *_SUBJECT_GROUP)),
    )


class ClusterBindingStrategy(BindingStrategy):
    """ClusterRoleBindings: for ClusterRoles alone, and with the namespaces of ServiceAccounts."""

    rules = Rules(
        *_ROLE,
        ("roleRef.kind", choice("ClusterRole", zero="")),
        _ROLE_NAME,
        ("subjects[*]", Rules(
            *_SUBJECT,
            when(equals("kind", "ServiceAccount"), ("namespace", REQUIRED)),
            *_SUBJECT_GROUP)),
    )
