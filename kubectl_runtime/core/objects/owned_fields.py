"""What a field manager has applied of an object, with the present values: client-go's `ExtractX` functions, on plain
JSON values.

managedFields says which fields a manager owns, as a tree (FieldsV1) whose keys are `f:name` a field, `k:{"name":"x"}`
an item of a list by its keys, `v:"x"` an item by its value, `i:0` one by its place; an empty tree is the whole value,
and `.` the item or map as such. A manager that applies again has to send all that it wants to keep.
"""
from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

_NOTHING: Any = object()


def applied_fields(content: Mapping[str, Any], manager: str, subresource: str = "") -> dict[str, Any] | None:
    """The fields of an object, as plain JSON values, that `manager` has applied (through `subresource`, if one is
    named) and still owns. None when the object does not say: it was read without its managedFields.

    New dicts and lists down to the owned values, which are shared with `content`. Pure.
    """
    entries = (content.get("metadata") or {}).get("managedFields")
    if entries is None:
        return None
    for entry in entries:
        found = (entry.get("manager") or "", entry.get("operation"), entry.get("subresource") or "")
        if found == (manager, "Apply", subresource):
            owned = _of_map(entry.get("fieldsV1") or {}, content)
            return {} if owned is _NOTHING else owned
    return {}


def _owned(tree: Mapping[str, Any], value: Any) -> Any:
    if not tree or value is None or value is _NOTHING:
        return value
    if isinstance(value, dict):
        return _of_map(tree, value)
    return _of_list(tree, value) if isinstance(value, list) else value


def _of_map(tree: Mapping[str, Any], value: Mapping[str, Any]) -> Any:
    found = {}
    for key, below in tree.items():
        if key.startswith("f:"):
            owned = _owned(below, value.get(key[2:], _NOTHING))
            if owned is not _NOTHING:
                found[key[2:]] = owned
    return found if found or "." in tree else _NOTHING


def _of_list(tree: Mapping[str, Any], items: list[Any]) -> Any:
    selectors = [(key[0], json.loads(key[2:]), below) for key, below in tree.items() if key[:2] in ("k:", "v:", "i:")]
    found = []
    for place, item in enumerate(items):
        for kind, wanted, below in selectors:
            if kind == "k" and isinstance(item, dict) and wanted.items() <= item.items():
                owned = _owned(below, item)
                found.append({**wanted, **owned} if owned is not _NOTHING else dict(wanted))
            elif (kind == "v" and item == wanted) or (kind == "i" and place == wanted):
                found.append(_owned(below, item))
    return found if found or "." in tree else _NOTHING
