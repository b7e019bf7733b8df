"""The merge of an applied configuration into an object, the field set of a configuration, and the removal of paths.

Order of merged lists: items that both have follow the order of the applied list; items that only one has keep their
place relative to their neighbours in their own list.
"""

from __future__ import annotations

from typing import Any

from kubectl_runtime.apiserver.managedfields.elements import ItemError, by_element, item_element
from kubectl_runtime.apiserver.managedfields.fieldset import SELF, Fields, is_member
from kubectl_runtime.apiserver.schemas import ANY, Schema

MISSING: Any = object()


def merge(live: Any, applied: Any, schema: Schema) -> Any:
    """`applied` laid over `live`. Neither is changed; the result may share parts with both."""
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
            continue  # it stands elsewhere in the applied list: its place is decided there
        if name in merged and position < len(wanted):
            take()  # a repeated item goes, and the server puts the next applied one in its place
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
    """The paths that a configuration sets: leaves, keys of maps and items of lists, but not the structs on the way."""
    result: Fields = {}
    for key, child in value.items():
        below = schema.field(key) or ANY
        node = _set_node(child, below)
        # Structs are not owned for their own sake, unless they are null or empty: there is nothing else to own.
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
    """A value without the paths of a set; None where a map or list has nothing left, if whole items went.

    Surprising but true: one that lost something inside its items or fields stays, though it may be empty then.
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
    """The set together with every declared field that has something of the set below it."""
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
