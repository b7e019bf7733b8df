"""Merges an applied configuration into an object, validates it, computes its field set, and removes paths.

Order of merged lists: items in both lists follow the order of the applied list. Items in only one list keep their place
relative to their neighbours in that list.

A configuration is checked against its schema: types, undeclared fields, list items without a distinct identity. The
messages are those of the real server, which answers with a 500 without a reason. They contain values as Go prints them.
"""
from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from kubectl_runtime.apiserver.managedfields.fieldset import (
    SELF,
    Fields,
    ItemError,
    by_element,
    element_text,
    is_member,
    item_element,
)
from kubectl_runtime.apiserver.schemas import ANY, Schema

MISSING: Any = object()


def merge(live: Any, applied: Any, schema: Schema) -> Any:
    """Merge `applied` into `live`. Neither is changed; the result may share parts with both."""
    if applied is MISSING:
        return live
    if live is MISSING or schema.leaf:
        return applied
    if schema.kind == "list":
        old_items, new_items = _as(list, live), _as(list, applied)
        return _merge_lists(old_items, new_items, schema) if old_items or new_items else applied
    if schema.kind == "any" and not isinstance(applied, dict) and applied is not None:
        return applied
    old_map, new_map = _as(dict, live), _as(dict, applied)
    if not old_map and not new_map:
        return applied
    result = dict(old_map)
    for key, value in new_map.items():
        below = schema.field(key) or ANY
        result[key] = merge(result.get(key, MISSING), value, below)
    return result


def _as(kind: type, value: Any) -> Any:
    return value if isinstance(value, kind) else kind()


def _merge_lists(live: list[Any], applied: list[Any], schema: Schema) -> list[Any]:
    element = schema.element or ANY
    mine = {item_element(schema, item): item for item in applied}  # validated: no repeated items
    theirs = by_element(schema, live)
    wanted = list(mine)
    shared = [name for name in wanted if name in theirs]
    result: list[Any] = []
    position = 0  # in `wanted`
    next_shared = 0  # in `shared`
    merged: set[str] = set()

    def take() -> None:
        nonlocal position, next_shared
        name = wanted[position]
        found = theirs.get(name, [])
        result.append(merge(found[0] if len(found) == 1 else MISSING, mine[name], element))
        merged.add(name)
        position += 1
        if next_shared < len(shared) and shared[next_shared] == name:
            next_shared += 1

    for item in live:
        name = _element_or_none(schema, item)
        if name is None or name not in mine:
            result.append(item)
            continue
        if next_shared < len(shared) and shared[next_shared] != name:
            continue  # the item is added later, at its place in the applied list
        if name in merged and position < len(wanted):
            take()  # the real server replaces a repeated item by the next applied item
        while name not in merged:
            take()
    while position < len(wanted):
        take()
    return result


def _element_or_none(schema: Schema, item: Any) -> str | None:
    try:
        return item_element(schema, item)
    except ItemError:
        return None


def field_set(value: Any, schema: Schema) -> Fields:
    """The paths that a configuration sets: leaves, map keys and list items, but not the structs that contain them."""
    result: Fields = {}
    for key, child in value.items():
        below = schema.field(key) or ANY
        node = _set_node(child, below)
        # The key of a map is itself in the set. The key of a struct is in the set only if the struct is null or empty.
        if child is None or child == {} or key not in schema.fields:
            node = {SELF: {}, **node} if node else {}
        if node is not None:
            result["f:" + key] = node
    return result


def _set_node(value: Any, schema: Schema) -> Fields | None:
    """The node of a value, None if it adds nothing to the set."""
    if schema.leaf:
        return {}
    if isinstance(value, dict) and schema.kind != "list":
        return field_set(value, schema) or None
    if isinstance(value, list) and schema.kind == "list":
        items: Fields = {}
        for name, found in by_element(schema, value).items():
            below = _set_node(found[0], schema.element or ANY) if len(found) == 1 else None
            items[name] = {SELF: {}, **below} if below else {}
        return items or None
    return None if schema.kind in ("struct", "map", "list") or value is None else {}


def remove(value: Any, fields: Fields, schema: Schema) -> Any:
    """`value` without the paths in `fields`; None if whole items were removed and the map or list is empty now.

    Surprising: a value that lost parts inside its items or fields stays, even if it is empty now.
    """
    if schema.leaf:
        return value if schema.kind in ("scalar", "opaque") and not isinstance(value, list | dict) else None
    if isinstance(value, dict) and schema.kind != "list":
        kept, inside = {}, False
        for key, child in value.items():
            node = fields.get("f:" + key)
            if node is None:
                kept[key] = child
            elif not is_member(node):
                kept[key], inside = _remove_inside(child, node, schema.field(key) or ANY), True
        return kept if kept or inside else None
    if isinstance(value, list) and schema.kind == "list":
        items = []
        for item in value:
            name = _element_or_none(schema, item)
            node = fields.get(name) if name else None
            if node is None:
                items.append(item)
            elif not is_member(node):
                items.append(_remove_inside(item, node, schema.element or ANY))
        return items or None
    return value if not isinstance(value, list | dict) else None


def _remove_inside(value: Any, fields: Fields, schema: Schema) -> Any:
    left = remove(value, fields, schema)
    return type(value)() if left is None and isinstance(value, dict | list) else left


def named_members(fields: Fields, schema: Schema | None) -> Fields:
    """The set, plus the path of every declared field that contains a path of the set."""
    result: Fields = {}
    for key, node in fields.items():
        if key == SELF:
            result[key] = node
            continue
        name = key[2:] if key.startswith("f:") else None
        below = (schema.element if name is None else schema.field(name)) if schema else None
        child = named_members(node, below)
        if child and SELF not in child and name is not None and schema and name in schema.fields:
            child = {SELF: {}, **child}
        result[key] = child
    return result


def typed_errors(value: Any, schema: Schema) -> str:
    """The errors of a configuration as one text; "" if there are none."""
    errors = [f"{path}: {message}" if path else message for path, message in _errors(value, schema, "")]
    if len(errors) > 1:
        return "\n".join(["errors:", *("  " + error for error in errors)])
    return "".join(errors)


def _errors(value: Any, schema: Schema, path: str) -> Iterator[tuple[str, str]]:
    kind = schema.kind
    if value is None or kind == "opaque":
        return
    if kind == "scalar":
        if message := _scalar_error(value, schema.scalar):
            yield path, message
    elif kind == "list":
        if not isinstance(value, list):
            yield path, f"expected list, got {go_value(value)}"
        else:
            yield from _list_errors(value, schema, path)
    elif isinstance(value, dict):
        for key in sorted(value):
            below = schema.field(key)
            if below is None:
                yield f"{path}.{key}", "field not declared in schema"
                return
            yield from _errors(value[key], below, f"{path}.{key}")
    elif kind != "any":
        yield path, f"expected map, got {go_value(value)}"


def _list_errors(items: list[Any], schema: Schema, path: str) -> Iterator[tuple[str, str]]:
    seen: set[str] = set()
    for index, item in enumerate(items):
        position = f"[{index}]"
        if schema.list_type != "atomic":
            try:
                element = item_element(schema, item)
            except ItemError as error:
                yield path, f"element {index}: {error}"
                return
            position = element_text(element)
            if element in seen:
                yield path, f"duplicate entries for key {position}"
            seen.add(element)
        if schema.element is not None:
            yield from _errors(item, schema.element, path + position)


def _scalar_error(value: Any, scalar: str) -> str:
    if scalar == "string":
        return "" if isinstance(value, str) else f"expected string, got {go_syntax(value)}"
    if scalar == "numeric":
        number = isinstance(value, int | float) and not isinstance(value, bool)
        return "" if number else f"expected numeric (int or float), got {go_type(value)}"
    if scalar == "boolean":
        return "" if isinstance(value, bool) else f"expected boolean, got {go_value(value)}"
    return f"expected any scalar, got {go_value(value)}" if isinstance(value, dict | list) else ""


def go_value(value: Any) -> str:
    """A wrapped value as Go's %v prints it: ``&{x}``."""
    return "&{" + go_plain(value) + "}"


def go_syntax(value: Any) -> str:
    """A wrapped value as Go's %#v prints it: ``&value.valueUnstructured{Value:5}``."""
    return "&value.valueUnstructured{Value:" + _syntax(value) + "}"


def go_type(value: Any) -> str:
    """The Go type of a decoded JSON value."""
    names = {str: "string", bool: "bool", int: "int64", float: "float64", list: "[]interface {}"}
    return names.get(type(value), "map[string]interface {}")


def go_plain(value: Any) -> str:
    """A decoded JSON value as Go's %v prints it: ``map[a:[1 2]]``."""
    if isinstance(value, dict):
        return "map[" + " ".join(f"{key}:{go_plain(value[key])}" for key in sorted(value)) + "]"
    if isinstance(value, list):
        return "[" + " ".join(go_plain(item) for item in value) + "]"
    if isinstance(value, bool):
        return "true" if value else "false"
    return "<nil>" if value is None else str(value)


def _syntax(value: Any) -> str:
    if isinstance(value, dict):
        body = ", ".join(f"{json.dumps(key)}:{_syntax(value[key])}" for key in sorted(value))
        return "map[string]interface {}{" + body + "}"
    if isinstance(value, list):
        return "[]interface {}{" + ", ".join(_syntax(item) for item in value) + "}"
    return "interface {}(nil)" if value is None else json.dumps(value, ensure_ascii=False)
