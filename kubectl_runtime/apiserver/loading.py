"""`load_objects`: objects into a server's storage by way of its handlers, so that every rule holds for them.

Namespaces that are missing are made, CRDs are established before what follows them is loaded, and an object that is
there is replaced. A status in a manifest is written through /status. What is wrong is told with the document that it
stands in; what came before it stays loaded.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from kubectl_runtime.apiserver.access import ADMIN
from kubectl_runtime.apiserver.core import ApiCore
from kubectl_runtime.apiserver.loopback import path_of
from kubectl_runtime.apiserver.storage.registry import ServedResource
from kubectl_runtime.apiserver.wire import HttpRequest, HttpResponse
from kubectl_runtime.core.objects.resource import Resource
from kubectl_runtime.manifests.documents import Document, read_text
from kubectl_runtime.manifests.files import read_files
from kubectl_runtime.manifests.objects import objects_of
from kubectl_runtime.manifests.problems import ManifestError

Object = dict[str, Any]
Manifests = str | Path | Object | Resource | Iterable[Object | Resource]

_CRD = "CustomResourceDefinition"


def load_objects(core: ApiCore, manifests: Manifests) -> int:
    """Load everything; returns the number of objects. Raises ValueError naming what was refused and where it stands,
    and OSError."""
    count = 0
    for value, place in _values(manifests):
        for obj, stands in objects_of(value, place):
            _load(core, obj, stands)
            count += 1
    return count


def _values(manifests: Manifests) -> Iterator[tuple[Any, str]]:
    """The values of the documents, each with where it stands."""
    if isinstance(manifests, dict):
        yield manifests, "the object given"
    elif isinstance(manifests, Resource):
        yield manifests.to_dict(), "the object given"
    elif isinstance(manifests, str | Path):
        for document in _documents(manifests):
            yield document.value, document.place
    else:
        for number, obj in enumerate(manifests, 1):
            yield obj.to_dict() if isinstance(obj, Resource) else obj, f"object {number}"


def _documents(manifests: str | Path) -> Iterator[Document]:
    if isinstance(manifests, Path):
        yield from read_files(manifests)
    elif "\n" not in manifests and Path(manifests).exists():
        yield from read_files(Path(manifests))
    else:
        documents = read_text(manifests, "the YAML text")
        if len(documents) == 1 and isinstance(documents[0].value, str):
            raise ManifestError("the YAML text", f"it is no Kubernetes object, and there is no file "
                                                 f"{documents[0].value!r} either")
        yield from documents


def _load(core: ApiCore, obj: Object, place: str) -> None:
    api_version, kind, metadata = obj.get("apiVersion") or "", obj.get("kind") or "", obj.get("metadata") or {}
    if not (isinstance(api_version, str) and isinstance(kind, str) and isinstance(metadata, dict)):
        raise ValueError(f"{place} is no Kubernetes object: apiVersion and kind are texts, metadata is a mapping")
    name = metadata.get("name") or metadata.get("generateName") or ""
    group, _, version = api_version.rpartition("/")
    resource_type = core.cluster.registry.by_kind(group, version, kind)
    if resource_type is None:
        raise ValueError(f"cannot load {kind or 'an object without kind'} {name!r} ({place}): the server does not "
                         f"serve {kind!r} of {api_version!r}; load its CustomResourceDefinition first")
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
