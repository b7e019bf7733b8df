"""The documents below ``/openapi``, their paths and operations, and their cache.

Clients read three parts of an operation: its kind (``x-kubernetes-group-version-kind``), its action
(``x-kubernetes-action``), and its query parameters (kubectl looks for ``fieldValidation`` and ``dryRun`` in the patch
operation). The deprecated ``/watch/`` paths are left out.
"""
from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any
from weakref import WeakKeyDictionary

from kubectl_runtime.apiserver.discovery import cached
from kubectl_runtime.apiserver.openapi.definitions import (
    DELETE_OPTIONS,
    META,
    PATCH,
    STATUS,
    V2_PREFIX,
    V3_PREFIX,
    kind_name,
    list_name_of,
    name_of,
    named,
    reference,
    schemas,
)
from kubectl_runtime.apiserver.openapi.protobuf_document import DEPRECATED_MEDIA, PROTOBUF_MEDIA, encode_document
from kubectl_runtime.apiserver.output.negotiation import clauses, encode
from kubectl_runtime.apiserver.storage import Registry, ServedResource, Subresource
from kubectl_runtime.apiserver.wire import HttpRequest, HttpResponse, Object

MEDIA = ("application/json", "application/yaml", "application/vnd.kubernetes.protobuf")
PATCH_MEDIA = ("application/json-patch+json", "application/merge-patch+json", "application/strategic-merge-patch+json",
               "application/apply-patch+yaml")
# kubectl picks the patch format from the document: custom resources have no strategic merge patch
CUSTOM_PATCH_MEDIA = tuple(media for media in PATCH_MEDIA if "strategic" not in media)
_METHODS = {"list": "get", "create": "post", "deletecollection": "delete", "get": "get", "update": "put",
            "patch": "patch", "delete": "delete"}
_ACTIONS = {"create": "post", "update": "put"}
_WORDS = {"list": "list", "create": "create", "deletecollection": "delete", "get": "read", "update": "replace",
          "patch": "patch", "delete": "delete"}
_WRITE = ("dryRun", "fieldManager", "fieldValidation")
_LIST = ("allowWatchBookmarks", "continue", "fieldSelector", "labelSelector", "limit", "resourceVersion",
         "resourceVersionMatch", "sendInitialEvents", "timeoutSeconds", "watch")
_DELETE = ("dryRun", "gracePeriodSeconds", "ignoreStoreReadErrorWithClusterBreakingPotential", "orphanDependents",
           "propagationPolicy")
_PARAMETERS: dict[str, tuple[str, ...]] = {
    "list": _LIST, "create": _WRITE, "update": _WRITE, "patch": (*_WRITE, "force"), "get": (), "delete": _DELETE,
    "deletecollection": (*_DELETE, *_LIST[1:8])}
_TYPES = {"allowWatchBookmarks": "boolean", "sendInitialEvents": "boolean", "watch": "boolean", "force": "boolean",
          "orphanDependents": "boolean", "ignoreStoreReadErrorWithClusterBreakingPotential": "boolean",
          "limit": "integer", "timeoutSeconds": "integer", "gracePeriodSeconds": "integer"}
_DESCRIPTIONS = {
    "dryRun": "When present, indicates that modifications should not be persisted. Valid values are: All.",
    "fieldManager": "The name of the actor or entity that makes these changes.",
    "fieldValidation": "How to treat unknown and duplicate fields. Valid values are: Ignore, Warn, Strict.",
    "force": "Whether an apply takes over fields that other managers own.",
    "pretty": "If 'true', then the output is pretty printed.",
}


def paths_of(resource_type: ServedResource, prefix: str) -> Iterator[tuple[str, Object]]:
    """Yield (path, path item) for a type's collection, objects and subresources. References start with `prefix`."""
    base = f"/apis/{resource_type.api_version}" if resource_type.group else f"/api/{resource_type.version}"
    plural, scoped = resource_type.plural, resource_type.namespaced
    collection = f"{base}/namespaces/{{namespace}}/{plural}" if scoped else f"{base}/{plural}"
    builder = _Builder(resource_type, prefix)
    verbs = resource_type.verbs
    on_collection = [verb for verb in ("list", "create", "deletecollection") if verb in verbs]
    yield collection, builder.item(on_collection, named=False)
    if scoped and "list" in verbs:
        yield f"{base}/{plural}", builder.item(["list"], named=False, everywhere=True)
    objects = [verb for verb in ("get", "update", "patch", "delete") if verb in verbs]
    if objects:
        yield f"{collection}/{{name}}", builder.item(objects, named=True)
    for sub in resource_type.subresources:
        known = [verb for verb in ("get", "create", "update", "patch", "delete") if verb in sub.verbs]
        yield f"{collection}/{{name}}/{sub.name}", builder.item(known, named=True, sub=sub)


class _Builder:
    def __init__(self, resource_type: ServedResource, prefix: str) -> None:
        self.type = resource_type
        self.prefix = prefix
        self.v3 = prefix == V3_PREFIX
        group = resource_type.group or "core"
        self.tag = f"{camel_case(group)}_{resource_type.version}"
        self.title = camel_case(group, first=True) + camel_case(resource_type.version, first=True)

    def item(self, verbs: Sequence[str], *, named: bool, sub: Subresource | None = None,
             everywhere: bool = False) -> Object:
        """The path item of one path, with an operation for each verb."""
        parameters = [self._path_parameter("name", f"name of the {self.type.kind}")] if named else []
        if self.type.namespaced and not everywhere:
            parameters.append(self._path_parameter("namespace", "namespace of the objects"))
        parameters.append(self._query("pretty"))
        item: Object = {_METHODS[verb]: self._operation(verb, sub, everywhere=everywhere) for verb in verbs}
        item["parameters"] = parameters
        return item

    def _operation(self, verb: str, sub: Subresource | None, *, everywhere: bool) -> Object:
        kind, group, version, schema = self._about(sub)
        scope = "Namespaced" if self.type.namespaced and not everywhere else ""
        tail = "".join([scope, self.type.kind, (sub.name[:1].upper() + sub.name[1:]) if sub else "",
                        "ForAllNamespaces" if everywhere else ""])
        collection = "Collection" if verb == "deletecollection" else ""
        answer = STATUS if verb == "deletecollection" or (verb == "delete" and not sub) else schema
        if verb == "list":
            answer = list_name_of(self.type)
        objects = "objects of kind" if verb in ("list", "deletecollection") else "the specified"
        operation: Object = {
            "description": f"{_WORDS[verb]} {objects} {kind}",
            "operationId": f"{_WORDS[verb]}{self.title}{collection}{tail}",
            "tags": [self.tag],
            "x-kubernetes-action": _ACTIONS.get(verb, verb),
            "x-kubernetes-group-version-kind": {"group": group, "version": version, "kind": kind},
        }
        operation["parameters"] = [self._query(name) for name in _PARAMETERS[verb]]
        body = {"create": schema, "update": schema, "patch": PATCH, "delete": DELETE_OPTIONS,
                "deletecollection": DELETE_OPTIONS}.get(verb, "")
        patches = CUSTOM_PATCH_MEDIA if self.type.is_custom else PATCH_MEDIA
        self._body(operation, body, patches if verb == "patch" else MEDIA)
        codes = {"create": ("200", "201", "202"), "update": ("200", "201"), "patch": ("200", "201"),
                 "delete": ("200", "202")}.get(verb, ("200",))
        operation["responses"] = {code: self._response(answer) for code in codes}
        operation["responses"]["401"] = {"description": "Unauthorized"}
        return operation

    def _about(self, sub: Subresource | None) -> tuple[str, str, str, str]:
        """The kind, group, version and schema name of the objects that the operation reads or writes."""
        if sub is None or sub.kind == self.type.kind:
            return self.type.kind, self.type.group, self.type.version, name_of(self.type)
        group, version = (sub.group, sub.version) if sub.group else (self.type.group, self.type.version)
        return sub.kind, group, version, kind_name(group, version, sub.kind)

    def _schema(self, name: str) -> Object:
        return reference(name, self.prefix) if name else {"type": "string"}

    def _body(self, operation: Object, name: str, media: tuple[str, ...]) -> None:
        if not name:
            return
        required = name != DELETE_OPTIONS
        if self.v3:
            content = {kind: {"schema": self._schema(name)} for kind in (media if media is not MEDIA else ("*/*",))}
            operation["requestBody"] = {"content": content, **({"required": True} if required else {})}
        else:
            operation["consumes"] = list(media)
            parameter = {"in": "body", "name": "body", "schema": self._schema(name)}
            operation["parameters"].append({**parameter, "required": True} if required else parameter)

    def _response(self, name: str) -> Object:
        schema = self._schema(name)
        if self.v3:
            return {"description": "OK", "content": {kind: {"schema": schema} for kind in MEDIA}}
        return {"description": "OK", "schema": schema}

    def _path_parameter(self, name: str, description: str) -> Object:
        return {"name": name, "in": "path", "description": description, "required": True, **self._string("string")}

    def _query(self, name: str) -> Object:
        described = {"description": _DESCRIPTIONS[name]} if name in _DESCRIPTIONS else {}
        return {"name": name, "in": "query", **described, **self._string(_TYPES.get(name, "string"))}

    def _string(self, kind: str) -> Object:
        node = {"type": kind, "uniqueItems": True}
        return {"schema": node} if self.v3 else node


INFO = {"title": "Kubernetes", "version": "v1.36.2"}
_TOKEN = {"BearerToken": {"description": "Bearer Token authentication", "type": "apiKey", "name": "authorization",
                          "in": "header"}}


def v3(types: Iterable[ServedResource]) -> Object:
    """The v3 document of one group and version."""
    types = list(types)
    paths = {path: item for found in types for path, item in paths_of(found, V3_PREFIX)}
    return {"openapi": "3.0.0", "info": INFO, "paths": dict(sorted(paths.items())),
            "components": {"schemas": schemas(types, V3_PREFIX, _of_subresources(types)), "securitySchemes": _TOKEN}}


def v2(registry: Registry) -> Object:
    """The v2 document of all served types."""
    types = list(registry)
    paths = {path: item for found in types for path, item in paths_of(found, V2_PREFIX)}
    return {"swagger": "2.0", "info": INFO, "paths": dict(sorted(paths.items())),
            "definitions": schemas(types, V2_PREFIX, _of_subresources(types)), "securityDefinitions": _TOKEN,
            "security": [{"BearerToken": []}]}


_GROUPS = {"api": ("get available API versions", "getCoreAPIVersions", "core", "APIVersions"),
           "apis": ("get available API versions", "getAPIVersions", "apis", "APIGroupList")}


def other(registry: Registry, parts: list[str]) -> Object | None:
    """The v3 document of a path without types: ``version``, ``api``, ``apis`` and the groups of built-in types."""
    if parts == ["version"]:
        operation = {"operationId": "getCodeVersion", "tags": ["version"], "responses": {"200": {"description": "OK"}}}
        return {"openapi": "3.0.0", "info": INFO, "paths": {"/version/": {"get": operation}}, "components": {}}
    path = "/".join(parts)
    if path not in group_paths(registry):
        return None
    text, operation_id, tag, kind = _GROUPS.get(path) or (
        "get information of a group", f"get{camel_case(parts[-1], first=True)}APIGroup", camel_case(parts[-1]),
        "APIGroup")
    schema = {"schema": reference(f"{META}.{kind}", V3_PREFIX)}
    operation = {"tags": [tag], "description": text, "operationId": operation_id, "responses": {
        "200": {"description": "OK", "content": dict.fromkeys(sorted(MEDIA), schema)},
        "401": {"description": "Unauthorized"}}}
    return {"openapi": "3.0.0", "info": INFO, "paths": {f"/{path}/": {"get": operation}},
            "components": {"schemas": named([f"{META}.{kind}"], V3_PREFIX), "securitySchemes": _TOKEN}}


def group_paths(registry: Registry) -> list[str]:
    """The document paths of groups; groups that contain only custom resources have no such document."""
    builtin = {found.group for found in registry if found.group and not found.is_custom}
    return ["api", "apis", *(f"apis/{group}" for group in sorted(builtin))]


def camel_case(group: str, *, first: bool = False) -> str:
    """A group or version as in operationIds and tags: ``rbacAuthorization``, or ``RbacAuthorization`` if `first`."""
    words = group.removesuffix(".k8s.io").split(".")
    return "".join(word[:1].upper() + word[1:] if index or first else word for index, word in enumerate(words))


def _of_subresources(types: Iterable[ServedResource]) -> list[str]:
    """The schema names of kinds that only subresources use (Scale, Eviction)."""
    return [kind_name(sub.group or found.group, sub.version or found.version, sub.kind)
            for found in types for sub in found.subresources if sub.kind != found.kind]


JSON = "application/json"
_PROTOBUF = "/openapi/v2 in protobuf"
_TEXT = "text/plain; charset=utf-8"
_FOREVER = (("Cache-Control", "public, immutable"), ("Expires", "Fri, 01 Jan 2100 00:00:00 GMT"))


class _Cache:
    """The encoded documents of one revision of a registry, by path."""

    def __init__(self, revision: int) -> None:
        self.revision = revision
        self.bodies: dict[str, bytes] = {}


_caches: WeakKeyDictionary[Registry, _Cache] = WeakKeyDictionary()


def respond(registry: Registry, request: HttpRequest) -> HttpResponse | None:
    """The answer to a request below ``/openapi``, None for other paths. The caller must hold the cluster's lock."""
    path = request.path
    if not path.startswith("/openapi/"):
        return None
    if path == "/openapi/v3":
        return HttpResponse(200, [("Content-Type", _TEXT)], _body(registry, path))
    if path == "/openapi/v2":
        if _takes(request, JSON):
            return cached(request, _body(registry, path), JSON)
        if _takes(request, PROTOBUF_MEDIA) or _takes(request, DEPRECATED_MEDIA):
            return cached(request, _body(registry, _PROTOBUF), PROTOBUF_MEDIA)
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
    """The encoded document of a path; b"" if it does not exist."""
    cache = _caches.get(registry)
    if cache is None or cache.revision != registry.revision:
        cache = _caches[registry] = _Cache(registry.revision)
    if path == _PROTOBUF and path not in cache.bodies:
        cache.bodies[path] = encode_document(v2(registry))
    if path not in cache.bodies:
        document = _build(registry, path)
        cache.bodies[path] = encode(document) if document is not None else b""
    return cache.bodies[path]


def _build(registry: Registry, path: str) -> dict[str, Any] | None:
    if path == "/openapi/v2":
        return v2(registry)
    if path == "/openapi/v3":
        return _index(registry)
    parts = path.removeprefix("/openapi/v3/").split("/")
    if parts[0] == "apis" and len(parts) == 3:
        types = registry.of(parts[1], parts[2])
    elif parts[0] == "api" and len(parts) == 2:
        types = registry.of("", parts[1])
    else:
        return other(registry, parts)
    return v3(types) if types else None


def _index(registry: Registry) -> dict[str, Any]:
    """The paths of all documents, with hashes in their URLs so that clients may cache the documents forever.

    The hashes are computed from the schemas of custom resources, because nothing else in the documents changes. So the
    documents need not be built for the index.
    """
    paths = {path: hashlib.sha256() for path in ("version", "api/v1", *group_paths(registry))}
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
        digest.update(f"{path} {INFO['version']}".encode())
    return {"paths": {path: {"serverRelativeURL": f"/openapi/v3/{path}?hash={digest.hexdigest().upper()}"}
                      for path, digest in sorted(paths.items())}}
