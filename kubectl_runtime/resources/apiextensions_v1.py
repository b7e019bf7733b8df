"""The `apiextensions.k8s.io` group: `apiextensions.k8s.io/v1`."""
from __future__ import annotations

from typing import Annotated, Any

import msgspec

from kubectl_runtime.core.base.wire import MapKeys
from kubectl_runtime.core.meta.gvk import Scope
from kubectl_runtime.core.meta.metav1 import Condition, Part
from kubectl_runtime.core.objects.resource import Resource


class CustomResourceDefinitionNames(Part):
    kind: str = ""
    plural: str = ""
    singular: str | None = None
    list_kind: str | None = None
    short_names: list[str] = []
    categories: list[str] = []


class CustomResourceDefinitionSpec(Part):
    group: str = ""
    scope: str = ""
    names: CustomResourceDefinitionNames = msgspec.field(default_factory=CustomResourceDefinitionNames)
    versions: list[dict[str, Any]] = []
    conversion: dict[str, Any] | None = None


class CustomResourceDefinitionStatus(Part):
    conditions: Annotated[list[Condition], MapKeys("type")] = []
    accepted_names: CustomResourceDefinitionNames | None = None
    stored_versions: list[str] = []


class CustomResourceDefinition(Resource, group="apiextensions.k8s.io", version="v1", kind="CustomResourceDefinition",
                               scope=Scope.CLUSTER):
    spec: CustomResourceDefinitionSpec
    status: CustomResourceDefinitionStatus
