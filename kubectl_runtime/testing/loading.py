"""`load_objects`: objects into a server's storage by way of its handlers, so that every rule holds for them.

Namespaces that are missing are made, CRDs are established before what follows them is loaded, and an object that is
there is replaced. A status in a manifest is written through /status.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from kubectl_runtime.testing.apiserver.access import ADMIN
from kubectl_runtime.testing.apiserver.controllers.client import path_of
from kubectl_runtime.testing.apiserver.registry import ResourceType
from kubectl_runtime.testing.apiserver.wire import HttpRequest, HttpResponse

if TYPE_CHECKING:
    from kubectl_runtime.testing.apiserver.core import ApiCore

Object = dict[str, Any]
Manifests = str | Path | Object | Iterable[Object]

_SUFFIXES = (".yaml", ".yml", ".json")


def load_objects(core: ApiCore, manifests: Manifests) -> int:
    """Load everything; returns the number of objects. Raises ValueError naming what was refused."""
    count = 0
    for obj in _flat(_objects(manifests)):
        _load(core, obj)
        count += 1
    return count


def _objects(manifests: Manifests) -> Iterator[Object]:
    if isinstance(manifests, dict):
        yield manifests
    elif isinstance(manifests, Path):
        yield from _files(manifests)
    elif isinstance(manifests, str):
        if "\n" not in manifests and Path(manifests).exists():
            yield from _files(Path(manifests))
        else:
            yield from _documents(manifests, "the YAML text")
    else:
        yield from manifests


def _files(path: Path) -> Iterator[Object]:
    files = sorted(file for file in path.iterdir() if file.suffix in _SUFFIXES) if path.is_dir() else [path]
    for file in files:
        yield from _documents(file.read_text(encoding="utf-8"), str(file))


def _documents(text: str, source: str) -> Iterator[Object]:
    import yaml

    from kubectl_runtime.testing.apiserver.yaml_body import json_types_loader

    try:
        documents = list(yaml.load_all(text, Loader=json_types_loader()))
    except yaml.YAMLError as error:
        raise ValueError(f"{source} is no YAML: {error}") from None
    for document in documents:
        if document is None:
            continue
        if not isinstance(document, dict):
            raise ValueError(f"{source} holds {type(document).__name__} where a Kubernetes object is expected")
        yield document


def _flat(objects: Iterable[Object]) -> Iterator[Object]:
    for obj in objects:
        if str(obj.get("kind", "")).endswith("List") and isinstance(obj.get("items"), list):
            yield from obj["items"]
        else:
            yield obj


def _load(core: ApiCore, obj: Object) -> None:
    api_version, kind = obj.get("apiVersion") or "", obj.get("kind") or ""
    name = (obj.get("metadata") or {}).get("name") or (obj.get("metadata") or {}).get("generateName") or ""
    group, _, version = api_version.rpartition("/")
    resource_type = core.registry.by_kind(group, version, kind)
    if resource_type is None:
        raise ValueError(f"cannot load {kind or 'an object without kind'} {name!r}: the server does not serve {kind!r} "
                         f"of {api_version!r}; load its CustomResourceDefinition first")
    namespace = (obj.get("metadata") or {}).get("namespace") or "default" if resource_type.namespaced else ""
    if namespace and core.storage.get("/namespaces", "", namespace) is None:
        _send(core, "POST", "/api/v1/namespaces",
              {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
    response = _send(core, "POST", path_of(resource_type, namespace), obj)
    if response.status == 409 and (obj.get("metadata") or {}).get("name"):
        response = _replace(core, resource_type, namespace, obj)
    if response.status >= 300:
        message = msgspec.json.decode(response.body).get("message", "")
        raise ValueError(f"cannot load {kind} {namespace + '/' if namespace else ''}{name}: {message}")
    if obj.get("status") and resource_type.subresource("status"):
        stored = msgspec.json.decode(response.body)["metadata"]["name"]
        _send(core, "PATCH", path_of(resource_type, namespace, stored, "status"), {"status": obj["status"]})
    if core.next_wakeup() == 0.0:
        _settle(core, kind)


def _settle(core: ApiCore, kind: str) -> None:
    """After a CRD: until it is served."""
    if kind != "CustomResourceDefinition":
        return
    while core.next_wakeup() == 0.0:
        core.tick()


def _replace(core: ApiCore, resource_type: ResourceType, namespace: str, obj: Object) -> HttpResponse:
    path = path_of(resource_type, namespace, obj["metadata"]["name"])
    current = msgspec.json.decode(_send(core, "GET", path).body)
    metadata = {**obj["metadata"], "resourceVersion": current.get("metadata", {}).get("resourceVersion")}
    return _send(core, "PUT", path, {**obj, "metadata": metadata})


def _send(core: ApiCore, method: str, path: str, body: Object | None = None) -> HttpResponse:
    media = "application/merge-patch+json" if method == "PATCH" else "application/json"
    return core.handle(HttpRequest(method, path, [("fieldValidation", "Ignore")], {
        "user-agent": "load", "content-type": media}, msgspec.json.encode(body) if body is not None else b""),
        user=ADMIN)
