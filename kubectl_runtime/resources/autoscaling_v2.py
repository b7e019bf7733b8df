"""The `autoscaling` group: `autoscaling/v2`."""
from __future__ import annotations

from typing import Any

from kubectl_runtime.core.objects.resource import Resource


class HorizontalPodAutoscaler(Resource, group="autoscaling", version="v2", kind="HorizontalPodAutoscaler"):
    spec: dict[str, Any]
    status: dict[str, Any]
