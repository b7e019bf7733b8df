"""The `discovery.k8s.io` group: `discovery.k8s.io/v1`."""
from __future__ import annotations

from typing import Any

from kubectl_runtime.core.objects.resource import Resource


class EndpointSlice(Resource, group="discovery.k8s.io", version="v1", kind="EndpointSlice"):
    address_type: str | None = None
    endpoints: list[dict[str, Any]]
    ports: list[dict[str, Any]]
