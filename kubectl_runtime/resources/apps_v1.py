"""The `apps` group: `apps/v1`."""
from __future__ import annotations

from typing import Annotated, Any

import msgspec

from kubectl_runtime.core.base.wire import MapKeys
from kubectl_runtime.core.meta.metav1 import Condition, LabelSelector, Part
from kubectl_runtime.core.objects.resource import Resource
from kubectl_runtime.resources.core_v1 import PodTemplateSpec


class DeploymentSpec(Part):
    replicas: int | None = None
    selector: LabelSelector | None = None
    template: PodTemplateSpec = msgspec.field(default_factory=PodTemplateSpec)
    strategy: dict[str, Any] | None = None
    paused: bool = False


class DeploymentStatus(Part):
    observed_generation: int | None = None
    replicas: int = 0
    updated_replicas: int = 0
    ready_replicas: int = 0
    available_replicas: int = 0
    unavailable_replicas: int = 0
    conditions: Annotated[list[Condition], MapKeys("type")] = []


class Deployment(Resource, group="apps", version="v1", kind="Deployment"):
    spec: DeploymentSpec
    status: DeploymentStatus


class ReplicaSetSpec(Part):
    replicas: int | None = None
    selector: LabelSelector | None = None
    template: PodTemplateSpec = msgspec.field(default_factory=PodTemplateSpec)


class ReplicaSetStatus(Part):
    observed_generation: int | None = None
    replicas: int = 0
    ready_replicas: int = 0
    available_replicas: int = 0


class ReplicaSet(Resource, group="apps", version="v1", kind="ReplicaSet"):
    spec: ReplicaSetSpec
    status: ReplicaSetStatus


class StatefulSetSpec(Part):
    replicas: int | None = None
    service_name: str | None = None
    selector: LabelSelector | None = None
    template: PodTemplateSpec = msgspec.field(default_factory=PodTemplateSpec)


class StatefulSetStatus(Part):
    observed_generation: int | None = None
    replicas: int = 0
    ready_replicas: int = 0
    updated_replicas: int = 0
    available_replicas: int = 0
    current_revision: str = ""
    update_revision: str = ""


class StatefulSet(Resource, group="apps", version="v1", kind="StatefulSet"):
    spec: StatefulSetSpec
    status: StatefulSetStatus


class DaemonSetSpec(Part):
    selector: LabelSelector | None = None
    template: PodTemplateSpec = msgspec.field(default_factory=PodTemplateSpec)


class DaemonSetStatus(Part):
    observed_generation: int | None = None
    desired_number_scheduled: int = 0
    current_number_scheduled: int = 0
    updated_number_scheduled: int = 0
    number_ready: int = 0
    number_available: int = 0


class DaemonSet(Resource, group="apps", version="v1", kind="DaemonSet"):
    spec: DaemonSetSpec
    status: DaemonSetStatus


class ControllerRevision(Resource, group="apps", version="v1", kind="ControllerRevision"):
    data: Any
    revision: int = 0
