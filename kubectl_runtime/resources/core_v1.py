"""The core group: `v1`."""
from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

import msgspec

from kubectl_runtime.core.base.wire import MapKeys
from kubectl_runtime.core.meta.gvk import Scope
from kubectl_runtime.core.meta.metav1 import Condition, FrozenPart, Part
from kubectl_runtime.core.objects.resource import Resource

Plain = dict[str, Any]


class ConfigMap(Resource, version="v1", kind="ConfigMap"):
    """`data` is text; `binary_data` is decoded from base64."""

    data: dict[str, str]
    binary_data: dict[str, bytes]
    immutable: bool | None = None


class Secret(Resource, version="v1", kind="Secret"):
    """`data` is decoded from base64; `string_data` is for writing only."""

    data: dict[str, bytes]
    string_data: dict[str, str]
    type: str | None = None
    immutable: bool | None = None


class NamespaceSpec(Part):
    finalizers: list[str] = []


class NamespaceStatus(Part):
    phase: str = ""
    conditions: Annotated[list[Condition], MapKeys("type")] = []


class Namespace(Resource, version="v1", kind="Namespace", scope=Scope.CLUSTER):
    spec: NamespaceSpec
    status: NamespaceStatus


class EnvVar(Part):
    name: str = ""
    value: str | None = None
    value_from: Plain | None = None


class ContainerPort(Part):
    name: str | None = None
    container_port: int = 0
    protocol: str = "TCP"


class Container(Part):
    name: str = ""
    image: str | None = None
    command: list[str] | None = None
    args: list[str] | None = None
    env: Annotated[list[EnvVar], MapKeys("name")] = []
    ports: Annotated[list[ContainerPort], MapKeys("containerPort", "protocol")] = []
    resources: Plain | None = None


class PodSpec(Part):
    node_name: str | None = None
    service_account_name: str | None = None
    restart_policy: str | None = None
    node_selector: dict[str, str] = {}
    containers: Annotated[list[Container], MapKeys("name")] = []
    init_containers: Annotated[list[Container], MapKeys("name")] = []
    volumes: list[Plain] = []


class PodTemplateMeta(Part):
    name: str | None = None
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}


class PodTemplateSpec(Part):
    metadata: PodTemplateMeta = msgspec.field(default_factory=PodTemplateMeta)
    spec: PodSpec = msgspec.field(default_factory=PodSpec)


class ContainerStatus(Part):
    name: str = ""
    ready: bool = False
    restart_count: int = 0
    image: str = ""
    image_id: str = msgspec.field(name="imageID", default="")
    state: Plain = {}


class PodStatus(Part):
    phase: str = ""
    reason: str = ""
    message: str = ""
    pod_ip: str | None = msgspec.field(name="podIP", default=None)
    host_ip: str | None = msgspec.field(name="hostIP", default=None)
    start_time: datetime | None = None
    conditions: Annotated[list[Condition], MapKeys("type")] = []
    container_statuses: Annotated[list[ContainerStatus], MapKeys("name")] = []


class Pod(Resource, version="v1", kind="Pod"):
    spec: PodSpec
    status: PodStatus


class PodTemplate(Resource, version="v1", kind="PodTemplate"):
    template: PodTemplateSpec


class ReplicationController(Resource, version="v1", kind="ReplicationController"):
    spec: Plain
    status: Plain


class ServicePort(Part):
    name: str | None = None
    port: int = 0
    target_port: int | str | None = None
    node_port: int | None = None
    protocol: str = "TCP"


class ServiceSpec(Part):
    type: str | None = None
    selector: dict[str, str] = {}
    ports: Annotated[list[ServicePort], MapKeys("port", "protocol")] = []
    cluster_ip: str | None = msgspec.field(name="clusterIP", default=None)
    external_name: str | None = None


class Service(Resource, version="v1", kind="Service"):
    spec: ServiceSpec
    status: Plain


class ServiceAccount(Resource, version="v1", kind="ServiceAccount"):
    secrets: list[Plain]
    image_pull_secrets: list[Plain]
    automount_service_account_token: bool | None = None


class Endpoints(Resource, version="v1", kind="Endpoints"):
    subsets: list[Plain]


class ObjectReference(FrozenPart, frozen=True):
    api_version: str = ""
    kind: str = ""
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    field_path: str = ""


class Event(Resource, version="v1", kind="Event"):
    """The core group's events. `event_time` is a MicroTime: text, see `format_micro_time`."""

    involved_object: ObjectReference
    reason: str | None = None
    message: str | None = None
    type: str | None = None
    action: str | None = None
    count: int | None = None
    first_timestamp: datetime | None = None
    last_timestamp: datetime | None = None
    event_time: str | None = None
    series: Plain | None = None
    source: Plain | None = None
    related: ObjectReference | None = None
    reporting_component: str | None = None
    reporting_instance: str | None = None


class NodeSpec(Part):
    provider_id: str | None = msgspec.field(name="providerID", default=None)
    unschedulable: bool = False
    taints: list[Plain] = []


class NodeStatus(Part):
    capacity: dict[str, str] = {}
    allocatable: dict[str, str] = {}
    conditions: Annotated[list[Condition], MapKeys("type")] = []
    addresses: list[Plain] = []
    node_info: Plain = {}


class Node(Resource, version="v1", kind="Node", scope=Scope.CLUSTER):
    spec: NodeSpec
    status: NodeStatus


class PersistentVolume(Resource, version="v1", kind="PersistentVolume", scope=Scope.CLUSTER):
    spec: Plain
    status: Plain


class PersistentVolumeClaim(Resource, version="v1", kind="PersistentVolumeClaim"):
    spec: Plain
    status: Plain


class ResourceQuota(Resource, version="v1", kind="ResourceQuota"):
    spec: Plain
    status: Plain


class LimitRange(Resource, version="v1", kind="LimitRange"):
    spec: Plain
