"""Path elements of list items: what identifies an item of a map list or of a set (``k:{"name":"x"}``, ``v:"x"``)."""

from __future__ import annotations

import json
from functools import lru_cache
from json.encoder import encode_basestring
from typing import Any

from kubectl_runtime.apiserver.schemas import Schema


class ItemError(ValueError):
    """An item that cannot be identified; the text is the server's."""


def item_element(schema: Schema, item: Any) -> str:
    """The path element of an item of a list of type map or set; `ItemError` if it has none."""
    if schema.list_type == "map":
        return _keyed(schema, item)
    if isinstance(item, str):
        return "v:" + encode_basestring(item)
    if isinstance(item, dict):
        raise ItemError("associative list without keys has an element that's a map type")
    if isinstance(item, list):
        raise ItemError("not supported: associative list with lists as elements")
    if item is None:
        raise ItemError("associative list without keys has an element that's an explicit null")
    return "v:" + json.dumps(item)


def _keyed(schema: Schema, item: Any) -> str:
    if not isinstance(item, dict):
        what = "a null element" if item is None else "non-map elements"
        raise ItemError(f"associative list with keys may not have {what}")
    keys = schema.map_keys
    parts = []
    # A key that is left out stands for its default; without default it is no part of the identity, which then differs.
    for key in sorted(keys):
        if key in item:
            value = item[key]
        else:
            field = schema.element.field(key) if schema.element else None
            value = field.default if field else None
            if value is None:
                continue
        parts.append(f"{encode_basestring(key)}:{_scalar_text(value)}")
    if not parts:
        names = "[" + " ".join(f'"{key}"' for key in keys) + "]"
        raise ItemError(f"associative list with keys has an element that omits all key fields {names} "
                        "(and doesn't have default values for any key fields)")
    return "k:{" + ",".join(parts) + "}"


def _scalar_text(value: Any) -> str:
    if isinstance(value, str):
        return encode_basestring(value)
    return str(value) if type(value) is int else json.dumps(value, separators=(",", ":"))


@lru_cache(maxsize=4096)
def _named(key: str, name: str) -> str:
    """The element of an item that is identified by one text, as most are."""
    return f"k:{{{encode_basestring(key)}:{encode_basestring(name)}}}"


def by_element(schema: Schema, items: Any) -> dict[str, list[Any]]:
    """The items of a list by their path element, in order; items that cannot be identified are left out."""
    index: dict[str, list[Any]] = {}
    key = schema.map_keys[0] if len(schema.map_keys) == 1 else ""
    for item in items or ():
        name = item.get(key) if key and isinstance(item, dict) else None
        try:
            element = _named(key, name) if isinstance(name, str) else item_element(schema, item)
        except ItemError:
            continue
        index.setdefault(element, []).append(item)
    return index
