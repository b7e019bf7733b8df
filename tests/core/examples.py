"""Resource classes and JSON that the tests of core share."""
from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Annotated, Any

import msgspec

from kubectl_runtime.core.base.wire import MapKeys
from kubectl_runtime.core.meta.gvk import ApiResource, Scope
from kubectl_runtime.core.objects.resource import Resource

PODS = ApiResource("", "v1", "Pod", "pods")
NODES = ApiResource("", "v1", "Node", "nodes", Scope.CLUSTER)
DEPLOYMENTS = ApiResource("apps", "v1", "Deployment", "deployments")


class Strategy(msgspec.Struct, rename="camel"):
    type: str = "RollingUpdate"
    max_surge: int | str | None = None


class Port(msgspec.Struct, rename="camel"):
    container_port: int


class Container(msgspec.Struct):
    name: str
    image: str = ""
    ports: list[Port] = []


class WidgetSpec(msgspec.Struct, rename="camel"):
    replicas: int = 1
    min_ready_seconds: int = 0
    strategy: Strategy = msgspec.field(default_factory=Strategy)
    containers: Annotated[list[Container], MapKeys("name")] = []
    unkeyed: list[Container] = []
    args: list[str] = []


@dataclass
class Endpoint:
    ip_address: str
    port_number: int = 80


@dataclass
class WidgetStatus:
    ready_replicas: int = 0
    pod_ip: str | None = field(default=None, metadata={"name": "podIP"})
    end_points: list[Endpoint] = field(default_factory=list)
    by_zone: dict[str, Endpoint] = field(default_factory=dict)


class Widget(Resource, group="demo.example.com", version="v1", kind="Widget"):
    spec: WidgetSpec
    status: WidgetStatus | None = None
    extra_data: dict[str, Any]


class Cluster(Resource, group="demo.example.com", version="v1", kind="Cluster", scope=Scope.CLUSTER):
    spec: dict[str, Any]


def metadata(name: str = "a", **more: Any) -> dict[str, Any]:
    return {"name": name, "namespace": "ns", "uid": "u-1", "resourceVersion": "5", **more}


def widget(name: str = "a", **content: Any) -> Widget:
    """As received from a server."""
    return Widget.from_dict({"apiVersion": "demo.example.com/v1", "kind": "Widget",
                             "metadata": content.pop("metadata", metadata(name)), **content})


def encoded(value: Any) -> bytes:
    return json.dumps(value).encode()


def event(kind: str, obj: Any) -> bytes:
    return encoded({"type": kind, "object": obj})
