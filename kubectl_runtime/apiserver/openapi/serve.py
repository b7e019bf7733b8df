"""The paths below ``/openapi`` and the cache of documents."""

from __future__ import annotations

import hashlib
from typing import Any
from weakref import WeakKeyDictionary

from kubectl_runtime.apiserver.discovery import cached
from kubectl_runtime.apiserver.openapi import documents
from kubectl_runtime.apiserver.openapi.protobuf_document import DEPRECATED_MEDIA, MEDIA, encode_document
from kubectl_runtime.apiserver.output.negotiation import clauses, encode
from kubectl_runtime.apiserver.storage.registry import Registry
from kubectl_runtime.apiserver.wire import HttpRequest, HttpResponse

JSON = "application/json"
_PROTOBUF = "/openapi/v2 in protobuf"
_TEXT = "text/plain; charset=utf-8"
_FOREVER = (("Cache-Control", "public, immutable"), ("Expires", "Fri, 01 Jan 2100 00:00:00 GMT"))


class _Cache:
    """Encoded documents of one state of a registry, by path."""

    def __init__(self, revision: int) -> None:
        self.revision = revision
        self.bodies: dict[str, bytes] = {}


_caches: WeakKeyDictionary[Registry, _Cache] = WeakKeyDictionary()


def respond(registry: Registry, request: HttpRequest) -> HttpResponse | None:
    """The answer to a request below ``/openapi``, or None; the registry's lock is held."""
    path = request.path
    if not path.startswith("/openapi/"):
        return None
    if path == "/openapi/v3":
        return HttpResponse(200, [("Content-Type", _TEXT)], _body(registry, path))
    if path == "/openapi/v2":
        if _takes(request, JSON):
            return cached(request, _body(registry, path), JSON)
        if _takes(request, MEDIA) or _takes(request, DEPRECATED_MEDIA):
            return cached(request, _body(registry, _PROTOBUF), MEDIA)
        return HttpResponse(406)
    if not path.startswith("/openapi/v3/"):
        return None
    body = _body(registry, path)
    if not body:
        return HttpResponse(404)  # without a body and without a content type
    if not _takes(request, JSON):
        return HttpResponse(406)
    return cached(request, body, JSON, *(_FOREVER if request.has_param("hash") else ()))


def _takes(request: HttpRequest, media: str) -> bool:
    header = request.header("accept")
    return not header or any(clause.takes(media) for clause in clauses(header))


def _body(registry: Registry, path: str) -> bytes:
    """An encoded document; b"" if there is none."""
    cache = _caches.get(registry)
    if cache is None or cache.revision != registry.revision:
        cache = _caches[registry] = _Cache(registry.revision)
    if path == _PROTOBUF and path not in cache.bodies:
        cache.bodies[path] = encode_document(documents.v2(registry))
    if path not in cache.bodies:
        document = _build(registry, path)
        cache.bodies[path] = encode(document) if document is not None else b""
    return cache.bodies[path]


def _build(registry: Registry, path: str) -> dict[str, Any] | None:
    if path == "/openapi/v2":
        return documents.v2(registry)
    if path == "/openapi/v3":
        return _index(registry)
    parts = path.removeprefix("/openapi/v3/").split("/")
    if parts[0] == "apis" and len(parts) == 3:
        types = registry.of(parts[1], parts[2])
    elif parts[0] == "api" and len(parts) == 2:
        types = registry.of("", parts[1])
    else:
        return documents.other(parts)
    return documents.v3(types) if types else None


def _index(registry: Registry) -> dict[str, Any]:
    """The paths of all documents, with hashes under which clients may keep them for ever.

    They are made of what the documents are made of, so that the index builds none of them: of the schemas of custom
    resources, as built-in types never change.
    """
    paths = {"version": hashlib.sha256(), "api/v1": hashlib.sha256()}
    for group in registry.groups():
        for version in registry.versions(group):
            if group:
                paths[f"apis/{group}/{version}"] = hashlib.sha256()
    for found in registry:
        if found.is_custom:
            paths[f"apis/{found.api_version}"].update(encode([
                found.plural, found.kind, found.list_kind, [sub.name for sub in found.subresources],
                found.schema.node if found.schema else None]))
    for path, digest in paths.items():
        digest.update(f"{path} {documents.INFO['version']}".encode())
    return {"paths": {path: {"serverRelativeURL": f"/openapi/v3/{path}?hash={digest.hexdigest().upper()}"}
                      for path, digest in sorted(paths.items())}}
