"""The `networking.k8s.io` group: `networking.k8s.io/v1`."""
from __future__ import annotations

from typing import Any

from kubectl_runtime.core.meta.gvk import Scope
from kubectl_runtime.core.objects.resource import Resource


class Ingress(Resource, group="networking.k8s.io", version="v1", kind="Ingress"):
    spec: dict[str, Any]
    status: dict[str, Any]


class IngressClass(Resource, group="networking.k8s.io", version="v1", kind="IngressClass", scope=Scope.CLUSTER):
    spec: dict[str, Any]


class NetworkPolicy(Resource, group="networking.k8s.io", version="v1", kind="NetworkPolicy", plural="networkpolicies"):
    spec: dict[str, Any]
