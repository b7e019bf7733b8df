"""A server core on a clock that stands still, and short ways to ask it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kubectl_runtime.apiserver.core import ApiCore
from kubectl_runtime.apiserver.wire import HttpRequest
from kubectl_runtime.testing.clock import SimClock

PLURALS = {"Ingress": "ingresses", "NetworkPolicy": "networkpolicies", "Endpoints": "endpoints",
           "StorageClass": "storageclasses", "PriorityClass": "priorityclasses"}
CLUSTER_SCOPED = {"Namespace", "Node", "PersistentVolume", "StorageClass", "PriorityClass", "ClusterRole",
                  "CustomResourceDefinition"}


@dataclass
class Answer:
    """Status, headers (lower case) and the decoded body."""

    status: int
    headers: dict[str, str]
    body: Any
    raw: bytes

    def causes(self) -> list[tuple[str, str]]:
        """(field, message) of a refusal's causes."""
        return [(cause.get("field", ""), cause["message"]) for cause in self.body["details"]["causes"]]


class Api:
    """Requests to the core."""

    def __init__(self) -> None:
        self.clock = SimClock()
        self.core = ApiCore(self.clock, seed=1)

    def __call__(self, method: str, path: str, body: Any = None, query: dict[str, str] | None = None,
                 **headers: str) -> Answer:
        data = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        fields = {name.replace("_", "-"): value for name, value in headers.items()}
        response = self.core.handle(HttpRequest(method, path, list((query or {}).items()), fields, data))
        try:
            decoded = json.loads(response.body) if response.body else None
        except ValueError:
            decoded = response.body.decode(errors="replace")
        return Answer(response.status, {key.lower(): value for key, value in response.headers}, decoded, response.body)

    def path(self, obj: dict[str, Any], name: str = "") -> str:
        """The path of an object's collection, or of the object."""
        kind, api_version = obj["kind"], obj["apiVersion"]
        plural = PLURALS.get(kind, kind.lower() + "s")
        base = f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}"
        scope = "" if kind in CLUSTER_SCOPED else "/namespaces/default"
        return f"{base}{scope}/{plural}" + (f"/{name}" if name else "")

    def create(self, obj: dict[str, Any]) -> Answer:
        """POST of an object."""
        return self("POST", self.path(obj), obj, content_type="application/json")

    def made(self, obj: dict[str, Any]) -> dict[str, Any]:
        """The created object; fails if it was refused."""
        answer = self.create(obj)
        assert answer.status == 201, answer.body
        created: dict[str, Any] = answer.body
        return created

    def merge(self, obj: dict[str, Any], patch: dict[str, Any], subresource: str = "") -> Answer:
        """A merge patch of an object."""
        path = self.path(obj, obj["metadata"]["name"]) + (f"/{subresource}" if subresource else "")
        return self("PATCH", path, patch, content_type="application/merge-patch+json")

    def row(self, obj: dict[str, Any]) -> dict[str, Any]:
        """The cells of an object by column, wide ones too."""
        table = self("GET", self.path(obj, obj["metadata"]["name"]),
                     accept="application/json;as=Table;g=meta.k8s.io;v=v1").body
        names = [column["name"] for column in table["columnDefinitions"]]
        return dict(zip(names, table["rows"][0]["cells"], strict=True))


def pod_spec(**more: Any) -> dict[str, Any]:
    """A minimal pod spec."""
    return {"containers": [{"name": "main", "image": "example/app:1"}], **more}


Maker = Callable[..., dict[str, Any]]
