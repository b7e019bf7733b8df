"""Roles and bindings. Their names only have to fit into a path; escalation is checked by access, not here."""

from __future__ import annotations

from kubectl_runtime.apiserver import errors
from kubectl_runtime.apiserver.errors import Cause
from kubectl_runtime.apiserver.kinds import rules as r
from kubectl_runtime.apiserver.kinds.base import BuiltinStrategy, selector_causes
from kubectl_runtime.apiserver.objectmeta.names import path_segment_errors
from kubectl_runtime.apiserver.strategy import Object

GROUP = "rbac.authorization.k8s.io"

_VERBS = ("verbs", r.required("verbs must contain at least one value"))
_RULE = (
    r.when(r.filled("nonResourceURLs"), r.some("apiGroups", "resources", "resourceNames"),
           ("nonResourceURLs", r.invalid("rules cannot apply to both regular resources and non-resource URLs"))),
    r.when(r.lacks("nonResourceURLs"),
           ("apiGroups", r.required("resource rules must supply at least one api group")),
           ("resources", r.required("resource rules must supply at least one resource"))),
)


class RoleStrategy(BuiltinStrategy):
    """Roles: each rule has verbs and resources."""

    name_errors = staticmethod(path_segment_errors)
    rules = r.Rules(("rules[*]", r.Rules(
        _VERBS,
        r.when(r.filled("nonResourceURLs"),
               ("nonResourceURLs", r.invalid("namespaced rules cannot apply to non-resource URLs"))),
        *_RULE)))


def _aggregated(selector: Object, path: str) -> list[Cause]:
    wrong = selector_causes(selector, path)
    return [*wrong, errors.invalid_value(path, None, "invalid label selector.")] if wrong else []


class ClusterRoleStrategy(BuiltinStrategy):
    """ClusterRoles: their rules may have URLs, and they may be made of others."""

    name_errors = staticmethod(path_segment_errors)
    rules = r.Rules(
        ("rules[*]", r.Rules(_VERBS, *_RULE)),
        r.when(r.has("aggregationRule"), ("aggregationRule.clusterRoleSelectors", r.required(
            "at least one clusterRoleSelector required if aggregationRule is non-nil"))),
        ("aggregationRule.clusterRoleSelectors[*]", _aggregated),
    )


def _internal(role: Object) -> Object:
    """A roleRef as the real server prints its internal type."""
    return {"APIGroup": role["apiGroup"], "Kind": role.get("kind", ""), "Name": role.get("name", "")}


_ROLE = (
    ("roleRef", r.Fixed(lambda path, role: errors.invalid_value(path, _internal(role), "cannot change roleRef"))),
    ("roleRef.apiGroup", r.choice(GROUP)),
)
_ROLE_NAME = ("roleRef.name", r.REQUIRED, r.PATH_SEGMENT)
_SUBJECT = (
    ("name", r.REQUIRED),
    ("kind", r.choice("ServiceAccount", "User", "Group", zero="")),
    r.when(r.equals("kind", "ServiceAccount"), ("name", r.DNS_SUBDOMAIN)),
)
_SUBJECT_GROUP = (
    r.when(r.equals("kind", "ServiceAccount"), ("apiGroup", r.choice(""))),
    r.when(r.equals("kind", "User", "Group"), ("apiGroup", r.choice(GROUP, zero=""))),
)


def _group_of(subject: Object) -> str | None:
    return GROUP if subject.get("kind") in ("User", "Group") else None


class BindingStrategy(BuiltinStrategy):
    """RoleBindings: the role is fixed, the subjects are not."""

    name_errors = staticmethod(path_segment_errors)
    defaults = r.Defaults({"roleRef": {}}, zero={"roleRef.apiGroup": GROUP, "subjects[*].apiGroup": _group_of})
    rules = r.Rules(
        *_ROLE,
        ("roleRef.kind", r.choice("Role", "ClusterRole", zero="")),
        _ROLE_NAME,
        ("subjects[*]", r.Rules(*_SUBJECT, *_SUBJECT_GROUP)),
    )


class ClusterBindingStrategy(BindingStrategy):
    """ClusterRoleBindings: for ClusterRoles alone, and with the namespaces of ServiceAccounts."""

    rules = r.Rules(
        *_ROLE,
        ("roleRef.kind", r.choice("ClusterRole", zero="")),
        _ROLE_NAME,
        ("subjects[*]", r.Rules(
            *_SUBJECT,
            r.when(r.equals("kind", "ServiceAccount"), ("namespace", r.REQUIRED)),
            *_SUBJECT_GROUP)),
    )
