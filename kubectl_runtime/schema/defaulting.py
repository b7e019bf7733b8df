"""Defaulting of custom resources by their structural schema. The functions change the object in place.

Rules of the real server that surprise, kept on purpose: a default applies where the parent is there (or has a default
itself); a null where null is not allowed counts as missing, so it becomes the default or goes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kubectl_runtime.core.codec.jsonvalues import json_copy

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
