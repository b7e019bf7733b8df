"""The `policy` group: `policy/v1`."""
from __future__ import annotations

from typing import Any

from kubectl_runtime.core.objects.resource import Resource


class PodDisruptionBudget(Resource, group="policy", version="v1", kind="PodDisruptionBudget"):
    spec: dict[str, Any]
    status: dict[str, Any]
