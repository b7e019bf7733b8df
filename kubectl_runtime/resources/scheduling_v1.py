"""The `scheduling.k8s.io` group: `scheduling.k8s.io/v1`."""
from __future__ import annotations

from kubectl_runtime.core.meta.gvk import Scope
from kubectl_runtime.core.objects.resource import Resource


class PriorityClass(Resource, group="scheduling.k8s.io", version="v1", kind="PriorityClass", scope=Scope.CLUSTER):
    value: int = 0
    global_default: bool = False
    description: str | None = None
    preemption_policy: str | None = None
