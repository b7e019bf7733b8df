"""Whole OpenAPI documents: one of v3 for each group and version, one of v2 for everything."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kubectl_runtime.apiserver.openapi.definitions import V2_PREFIX, V3_PREFIX, kind_name, schemas
from kubectl_runtime.apiserver.openapi.paths import paths_of
from kubectl_runtime.apiserver.storage.registry import Registry, ServedResource

Object = dict[str, Any]

INFO = {"title": "Kubernetes", "version": "v1.36.2"}
_TOKEN = {"BearerToken": {"description": "Bearer Token authentication", "type": "apiKey", "name": "authorization",
                          "in": "header"}}


def v3(types: Iterable[ServedResource]) -> Object:
    """The document of one group and version."""
    types = list(types)
    paths = {path: item for found in types for path, item in paths_of(found, V3_PREFIX)}
    return {"openapi": "3.0.0", "info": INFO, "paths": dict(sorted(paths.items())),
            "components": {"schemas": schemas(types, V3_PREFIX, _of_subresources(types)), "securitySchemes": _TOKEN}}


def v2(registry: Registry) -> Object:
    """The document of everything that is served."""
    types = list(registry)
    paths = {path: item for found in types for path, item in paths_of(found, V2_PREFIX)}
    return {"swagger": "2.0", "info": INFO, "paths": dict(sorted(paths.items())),
            "definitions": schemas(types, V2_PREFIX, _of_subresources(types)), "securityDefinitions": _TOKEN,
            "security": [{"BearerToken": []}]}


def other(parts: list[str]) -> Object | None:
    """The document of a path that is no group: only ``version`` has one."""
    if parts != ["version"]:
        return None
    operation = {"operationId": "getCodeVersion", "tags": ["version"], "responses": {"200": {"description": "OK"}}}
    return {"openapi": "3.0.0", "info": INFO, "paths": {"/version/": {"get": operation}}, "components": {}}


def _of_subresources(types: Iterable[ServedResource]) -> list[str]:
    """Schemas of kinds that only subresources use (Scale, Eviction)."""
    return [kind_name(sub.group or found.group, sub.version or found.version, sub.kind)
            for found in types for sub in found.subresources if sub.kind != found.kind]
