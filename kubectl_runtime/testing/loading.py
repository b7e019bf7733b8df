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

from kubectl_runtime.core.objects import Resource
from kubectl_runtime.testing.apiserver.access import ADMIN
from kubectl_runtime.testing.apiserver.core import ApiCore
from kubectl_runtime.testing.apiserver.loopback import path_of
from kubectl_runtime.testing.apiserver.registry import ServedResource
from kubectl_runtime.testing.apiserver.wire import HttpRequest, HttpResponse

Object = dict[str, Any]
Manifests = str | Path | Object | Iterable[Object | Resource]

_CRD = "CustomResourceDefinition"
_SUFFIXES = (".yaml", ".yml", ".json")


def load_objects(core: ApiCore, manifests: Manifests) -> int:
    """Load everything; returns the number of objects. Raises ValueError naming what was refused and where it stands,
    and OSError."""
    count = 0
    for place, document in _documents(manifests):
        for obj in _objects(document, place):
            _load(core, obj, place)
            count += 1
    return count


def _documents(manifests: Manifests) -> Iterator[tuple[str, Any]]:
    """The documents, each with where it stands."""
    if isinstance(manifests, dict):
        yield "the object given", manifests
    elif isinstance(manifests, Path):
        yield from _of_files(manifests)
    elif isinstance(manifests, str):
        if "\n" not in manifests and Path(manifests).exists():
            yield from _of_files(Path(manifests))
        else:
            yield from _of_text(manifests, "the YAML text")
    else:
        for number, obj in enumerate(manifests, 1):
            yield f"object {number}", obj


def _of_files(path: Path) -> Iterator[tuple[str, Any]]:
    files = sorted(file for file in path.iterdir() if file.suffix in _SUFFIXES) if path.is_dir() else [path]
    for file in files:
        try:
            text = file.read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            raise ValueError(f"{file} is no UTF-8: {error}") from None
        yield from _of_text(text, str(file))


def _of_text(text: str, source: str) -> Iterator[tuple[str, Any]]:
    import yaml

    from kubectl_runtime.testing.apiserver.encoding.yaml_body import json_types_loader

    try:
        documents = list(yaml.load_all(text, Loader=json_types_loader()))
    except (yaml.YAMLError, ValueError, TypeError, RecursionError) as error:
        raise ValueError(f"{source} is no YAML: {error}") from None
    for number, document in enumerate(documents, 1):
        if document is not None:
            yield source if len(documents) == 1 else f"{source}, document {number}", document


def _objects(document: Any, place: str) -> Iterator[Object]:
    """The object in a document, or those of a list. Items of a typed list (``PodList``) may leave out their kind."""
    if isinstance(document, Resource):
        document = document.to_dict()
    if not isinstance(document, dict):
        hint = f"; there is no file {document!r} either" if isinstance(document, str) else ""
        raise ValueError(f"{place} holds {type(document).__name__} where a Kubernetes object is expected{hint}")
    kind, items = document.get("kind"), document.get("items")
    if not (isinstance(kind, str) and kind.endswith("List") and isinstance(items, list)):
        yield document
        return
    item_kind = kind.removesuffix("List")
    typed = {"apiVersion": document.get("apiVersion"), "kind": item_kind} if item_kind else {}
    for number, item in enumerate(items, 1):
        yield from _objects({**typed, **item} if isinstance(item, dict) else item, f"{place}, item {number}")


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
