"""Pruning of custom resources by their structural schema. The functions change the object in place.

A rule of the real server that surprises, kept on purpose: below ``x-kubernetes-preserve-unknown-fields`` undeclared
fields stay, but declared ones are still pruned inside.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Node = Mapping[str, Any]
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
