"""The `apiextensions.k8s.io` group: `apiextensions.k8s.io/v1`."""
from __future__ import annotations

from typing import Annotated, Any

import msgspec

from kubectl_runtime.core.gvk import Scope
from kubectl_runtime.core.metav1 import Condition
from kubectl_runtime.core.objects import Resource
from kubectl_runtime.core.wire import MapKeys


class _Part(msgspec.Struct, kw_only=True, rename="camel", omit_defaults=True):
    """A typed part: it names what is read often; what it does not name stays with the object."""


class CustomResourceDefinitionNames(_Part):
    kind: str = ""
    plural: str = ""
    singular: str | None = None
    list_kind: str | None = None
    short_names: list[str] = []
    categories: list[str] = []


class CustomResourceDefinitionSpec(_Part):
    group: str = ""
    scope: str = ""
    names: CustomResourceDefinitionNames = msgspec.field(default_factory=CustomResourceDefinitionNames)
    versions: list[dict[str, Any]] = []
    conversion: dict[str, Any] | None = None


class CustomResourceDefinitionStatus(_Part):
    conditions: Annotated[list[Condition], MapKeys("type")] = []
    accepted_names: CustomResourceDefinitionNames | None = None
    stored_versions: list[str] = []


class CustomResourceDefinition(Resource, group="apiextensions.k8s.io", version="v1", kind="CustomResourceDefinition",
                               scope=Scope.CLUSTER):
    spec: CustomResourceDefinitionSpec
    status: CustomResourceDefinitionStatus
