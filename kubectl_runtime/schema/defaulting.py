"""Defaulting of custom resources by their structural schema. The functions change the object in place.

Rules of the real server that surprise, kept on purpose: a default applies where the parent is there (or has a default
itself); a null where null is not allowed counts as missing, so it becomes the default or goes.

Pruning of custom resources by their structural schema. The functions change the object in place.

A rule of the real server that surprises, kept on purpose: below ``x-kubernetes-preserve-unknown-fields`` undeclared
fields stay, but declared ones are still pruned inside.
"""
from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kubectl_runtime.core.codec.sameness import json_copy

Node = Mapping[str, Any]


def apply_defaults(value: Any, node: Node | None, *, keep_nulls: bool = False) -> None:
    """Fill in the schema's defaults, and drop nulls that are not allowed where there is none, unless `keep_nulls`."""
    if not node:
        return
    if isinstance(value, list):
        items = node.get("items") or {}
        for index, item in enumerate(value):
            if _is_unwanted_null(item, items) and "default" in items:
                value[index] = json_copy(items["default"])
            apply_defaults(value[index], items, keep_nulls=keep_nulls)
    elif isinstance(value, dict):
        _default_map(value, node, keep_nulls)


def _default_map(value: dict[str, Any], node: Node, keep_nulls: bool) -> None:
    properties = node.get("properties") or {}
    extra = node.get("additionalProperties")
    for name, child in properties.items():
        if "default" in child and (name not in value or _is_unwanted_null(value[name], child)):
            value[name] = json_copy(child["default"])
    for key in list(value):
        child = properties.get(key, extra)
        if not isinstance(child, dict):
            continue
        if not _is_unwanted_null(value[key], child):
            apply_defaults(value[key], child, keep_nulls=keep_nulls)
        elif "default" in child:
            value[key] = json_copy(child["default"])
        elif not (keep_nulls and (child.get("type") or child.get("x-kubernetes-int-or-string"))):
            del value[key]


def _is_unwanted_null(value: Any, node: Node) -> bool:
    return value is None and bool(node) and not node.get("nullable")


RESOURCE_FIELDS = frozenset({"apiVersion", "kind", "metadata"})


def prune(obj: dict[str, Any], node: Node | None) -> list[str]:
    """Drop what the schema does not declare; returns the dropped paths, sorted (``bogus``, ``spec.list[0].x``).

    apiVersion, kind and metadata of the object and of embedded resources stay; what is wrong in metadata is not
    looked at.
    """
    if node is None:
        return []
    dropped: list[str] = []
    _prune_map(obj, node, "", True, dropped)
    return sorted(dropped)


def prune_value(value: Any, node: Node) -> list[str]:
    """`prune` for a value inside an object, such as a default: apiVersion, kind and metadata are fields as others."""
    dropped: list[str] = []
    _prune(value, node, "", dropped)
    return sorted(path.removeprefix(".") for path in dropped)


def _prune(value: Any, node: Node, path: str, dropped: list[str]) -> None:
    if isinstance(value, dict):
        _prune_map(value, node, path + ".", bool(node.get("x-kubernetes-embedded-resource")), dropped)
    elif isinstance(value, list):
        items = node.get("items") or ({"x-kubernetes-preserve-unknown-fields": True} if _is_open(node) else {})
        for index, item in enumerate(value):
            _prune(item, items, f"{path}[{index}]", dropped)


def _prune_map(value: dict[str, Any], node: Node, prefix: str, resource: bool, dropped: list[str]) -> None:
    properties = node.get("properties") or {}
    extra = node.get("additionalProperties")
    for key in list(value):
        if resource and key in RESOURCE_FIELDS:
            continue
        child = properties.get(key)
        if child is None and isinstance(extra, dict):
            child = extra
        if child is not None:
            _prune(value[key], child, prefix + key, dropped)
        elif not extra and not _is_open(node):
            dropped.append(prefix + key)
            del value[key]


def _is_open(node: Node) -> bool:
    return bool(node.get("x-kubernetes-preserve-unknown-fields"))
