"""The `rbac.authorization.k8s.io` group: `rbac.authorization.k8s.io/v1`."""
from __future__ import annotations

from typing import Any

import msgspec

from kubectl_runtime.core.meta.gvk import Scope
from kubectl_runtime.core.meta.metav1 import FrozenPart, Part
from kubectl_runtime.core.objects.resource import Resource


class PolicyRule(Part):
    verbs: list[str] = []
    api_groups: list[str] = []
    resources: list[str] = []
    resource_names: list[str] = []
    non_resource_urls: list[str] = msgspec.field(name="nonResourceURLs", default_factory=list)


class RoleRef(FrozenPart, frozen=True):
    api_group: str = ""
    kind: str = ""
    name: str = ""


class Subject(FrozenPart, frozen=True):
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
