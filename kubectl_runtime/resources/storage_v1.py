"""The `storage.k8s.io` group: `storage.k8s.io/v1`."""
from __future__ import annotations

from typing import Any

from kubectl_runtime.core.meta.gvk import Scope
from kubectl_runtime.core.objects.resource import Resource


class StorageClass(Resource, group="storage.k8s.io", version="v1", kind="StorageClass", scope=Scope.CLUSTER):
    provisioner: str | None = None
    parameters: dict[str, str]
    reclaim_policy: str | None = None
    volume_binding_mode: str | None = None
    allow_volume_expansion: bool | None = None


class CSIDriver(Resource, group="storage.k8s.io", version="v1", kind="CSIDriver", scope=Scope.CLUSTER):
    spec: dict[str, Any]


class VolumeAttachment(Resource, group="storage.k8s.io", version="v1", kind="VolumeAttachment", scope=Scope.CLUSTER):
    spec: dict[str, Any]
    status: dict[str, Any]
