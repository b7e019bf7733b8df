"""`load_objects`: objects into a server's storage by way of its handlers, so that every rule holds for them.

Namespaces that are missing are made, CRDs are established before what follows them is loaded, and an object that is
there is replaced. A status in a manifest is written through /status. What is wrong is told with the document that it
stands in; what came before it stays loaded.
"""

from __future__ import annotations

import msgspec

from kubectl_runtime.apiserver.access import ADMIN
from kubectl_runtime.apiserver.core import ApiCore
from kubectl_runtime.apiserver.loopback import path_of
from kubectl_runtime.apiserver.storage.registry import ServedResource
from kubectl_runtime.apiserver.wire import HttpRequest, HttpResponse
from kubectl_runtime.manifests.objects import Object
from kubectl_runtime.manifests.sources import Manifests, read_objects

_CRD = "CustomResourceDefinition"


def load_objects(core: ApiCore, manifests: Manifests) -> int:
    """Load everything; returns the number of objects. Raises ValueError naming what was refused and where it stands,
    and OSError."""
    count = 0
    for obj, place in read_objects(manifests):
        _load(core, obj, place)
        count += 1
    return count


def _load(core: ApiCore, obj: Object, place: str) -> None:
    api_version, kind, metadata = obj.get("apiVersion") or "", obj.get("kind") or "", obj.get("metadata") or {}
    if not (isinstance(api_version, str) and isinstance(kind, str) and isinstance(metadata, dict)):
        raise ValueError(f"{place} is no Kubernetes object: apiVersion and kind are texts, metadata is a mapping")
    name = metadata.get("name") or metadata.get("generateName") or ""
    if missing := [field for field, value in (("apiVersion", api_version), ("kind", kind)) if not value]:
        raise ValueError(f"cannot load {kind or 'the object'} {name!r} ({place}): it has no {' and no '.join(missing)}")
    group, _, version = api_version.rpartition("/")
    resource_type = core.cluster.registry.by_kind(group, version, kind)
    if resource_type is None:
        raise ValueError(f"cannot load {kind} {name!r} ({place}): the server does not serve {kind!r} of "
                         f"{api_version!r}; load its CustomResourceDefinition first")
    namespace = str(metadata.get("namespace") or "default") if resource_type.namespaced else ""
    title = f"{kind} {namespace + '/' if namespace else ''}{name} ({place})"
    if namespace and core.cluster.storage.get("/namespaces", "", namespace) is None:
        _check(title, _send(core, "POST", "/api/v1/namespaces",
                            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}))
    response = _send(core, "POST", path_of(resource_type, namespace), obj)
    if response.status == 409 and metadata.get("name"):
        response = _replace(core, resource_type, namespace, obj)
    _check(title, response)
    if obj.get("status") and resource_type.subresource("status") and kind != _CRD:  # whose status is the server's
        stored = msgspec.json.decode(response.body)["metadata"]["name"]
        path = path_of(resource_type, namespace, stored, "status")
        _check(title, _send(core, "PATCH", path, {"status": obj["status"]}))
    if core.next_wakeup() == 0.0:
        _settle(core, kind)


def _check(title: str, response: HttpResponse) -> None:
    if response.status >= 300:
        raise ValueError(f"cannot load {title}: {msgspec.json.decode(response.body).get('message', '')}")


def _settle(core: ApiCore, kind: str) -> None:
    """After a CRD: until it is served."""
    if kind != _CRD:
        return
    while core.next_wakeup() == 0.0:
        core.tick()


def _replace(core: ApiCore, resource_type: ServedResource, namespace: str, obj: Object) -> HttpResponse:
    path = path_of(resource_type, namespace, obj["metadata"]["name"])
    current = msgspec.json.decode(_send(core, "GET", path).body)
    metadata = {**obj["metadata"], "resourceVersion": current.get("metadata", {}).get("resourceVersion")}
    return _send(core, "PUT", path, {**obj, "metadata": metadata})


def _send(core: ApiCore, method: str, path: str, body: Object | None = None) -> HttpResponse:
    media = "application/merge-patch+json" if method == "PATCH" else "application/json"
    return core.handle(HttpRequest(method, path, [("fieldValidation", "Ignore")], {
        "user-agent": "load", "content-type": media}, msgspec.json.encode(body) if body is not None else b""),
        user=ADMIN)
