"""The `rbac.authorization.k8s.io` group: `rbac.authorization.k8s.io/v1`."""
from __future__ import annotations

from typing import Any

import msgspec

from kubectl_runtime.core.gvk import Scope
from kubectl_runtime.core.objects import Resource


class PolicyRule(msgspec.Struct, kw_only=True, rename="camel", omit_defaults=True):
    verbs: list[str] = []
    api_groups: list[str] = []
    resources: list[str] = []
    resource_names: list[str] = []
    non_resource_urls: list[str] = msgspec.field(name="nonResourceURLs", default_factory=list)


class RoleRef(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    api_group: str = ""
    kind: str = ""
    name: str = ""


class Subject(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    kind: str = ""
    name: str = ""
    namespace: str | None = None
    api_group: str | None = None


class Role(Resource, group="rbac.authorization.k8s.io", version="v1", kind="Role"):
    rules: list[PolicyRule]


class RoleBinding(Resource, group="rbac.authorization.k8s.io", version="v1", kind="RoleBinding"):
    role_ref: RoleRef
    subjects: list[Subject]


class ClusterRole(Resource, group="rbac.authorization.k8s.io", version="v1", kind="ClusterRole", scope=Scope.CLUSTER):
    rules: list[PolicyRule]
    aggregation_rule: dict[str, Any] | None = None


class ClusterRoleBinding(Resource, group="rbac.authorization.k8s.io", version="v1", kind="ClusterRoleBinding",
                         scope=Scope.CLUSTER):
    role_ref: RoleRef
    subjects: list[Subject]
