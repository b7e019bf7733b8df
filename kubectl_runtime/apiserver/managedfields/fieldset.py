"""Sets of field paths in the stored form of managedFields (FieldsV1), set operations, and the comparison of values.

A set is a dict of path elements, each with its child node: ``f:name`` is a field or map key, ``k:{"name":"x"}`` an item
of a list of type map, ``v:"x"`` an item of a list of type set. ``"."`` in a node means that the path itself belongs to
the set. A node without children, ``{}``, also belongs to the set. So ``{"f:data": {".": {}, "f:k": {}}}`` contains
``.data`` and ``.data.k``, but ``{"f:data": {"f:k": {}}}`` contains only ``.data.k``. The root is not a path: an empty
root is the empty set.

All functions are pure: they never change their arguments, but results may share nodes with them. Functions that only
remove paths keep the order of keys; `ordered` and `compare` return the real server's order.

Surprising details of the real server: a map or list that becomes non-empty is itself a new path (``"."``) only if it
was absent before, but not if it was null or empty. Two empty values that differ (null and {}) count as one modified
leaf.
"""
from __future__ import annotations

import json
from collections.abc import Iterator
from functools import lru_cache
from json.encoder import encode_basestring
from typing import Any

import msgspec

from kubectl_runtime.apiserver.schemas import ANY, Schema
from kubectl_runtime.core.codec.jsonbytes import equal_json

Fields = dict[str, Any]
SELF = "."
_encode = msgspec.json.Encoder().encode
_REMEMBERED_BYTES = 4096  # maximum size of a list whose node is cached


def is_member(node: Fields) -> bool:
    """Whether the path of a node (not of a root) belongs to the set."""
    return not node or SELF in node


def _node(member: bool, children: Fields) -> Fields | None:
    """A node from its parts, None if it contains no path."""
    if not children:
        return {} if member else None
    return {SELF: {}, **children} if member else children


def union(first: Fields, second: Fields) -> Fields:
    """The paths that are in at least one of the sets."""
    if not first or not second:
        return first or second
    result = dict(first)
    for key, node in second.items():
        result[key] = _union_node(result[key], node) if key in result else node
    return result


def _union_node(first: Fields, second: Fields) -> Fields:
    if first == second:
        return first
    children = union(_children(first), _children(second))
    return _node(is_member(first) or is_member(second), children) or {}


def _children(node: Fields) -> Fields:
    return {key: child for key, child in node.items() if key != SELF} if SELF in node else node


def difference(first: Fields, second: Fields) -> Fields:
    """The paths of the first set that are not in the second."""
    if not first or not second:
        return first
    result: Fields = {}
    for key, node in first.items():
        if key not in second:
            result[key] = node
            continue
        other = second[key]
        member = is_member(node) and not is_member(other)
        rest = _node(member, difference(_children(node), _children(other)))
        if rest is not None:
            result[key] = rest
    return result


def intersection(first: Fields, second: Fields) -> Fields:
    """The paths that are in both sets."""
    result: Fields = {}
    for key in first.keys() & second.keys():
        member = is_member(first[key]) and is_member(second[key])
        common = _node(member, intersection(_children(first[key]), _children(second[key])))
        if common is not None:
            result[key] = common
    return result


def contains(fields: Fields, path: tuple[str, ...]) -> bool:
    """Whether a path of path elements, such as ``("f:data", "f:k")``, belongs to the set."""
    node = fields
    for element in path:
        if element not in node:
            return False
        node = node[element]
    return bool(path) and is_member(node)


def without(fields: Fields, path: tuple[str, ...]) -> Fields:
    """The set without a path and everything below it."""
    head, *rest = path
    if head not in fields:
        return fields
    below = _node(is_member(fields[head]), without(_children(fields[head]), tuple(rest))) if rest else None
    if below is None:
        return {key: node for key, node in fields.items() if key != head}
    return {**fields, head: below}


def only(fields: Fields, path: tuple[str, ...]) -> Fields:
    """The part of the set at a path or below it."""
    head, *rest = path
    if head not in fields:
        return {}
    if not rest:
        return {head: fields[head]}
    kept = only(fields[head], tuple(rest))
    return {head: kept} if kept else {}


def paths(fields: Fields, above: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The paths of the set in the real server's order: at each level its members, then the deeper paths."""
    names = sorted(name for name in fields if name != SELF)
    for name in names:
        if is_member(fields[name]):
            yield (*above, name)
    for name in names:
        yield from paths(fields[name], (*above, name))


def ordered(fields: Fields) -> Fields:
    """The same set with its keys in the real server's order."""
    result: Fields = {}
    for key in sorted(fields):
        node = fields[key]
        result[key] = ordered(node) if node else node
    return result


def path_text(path: tuple[str, ...]) -> str:
    """A path as messages show it: ``.spec.containers[name="main"].image``."""
    return "".join(element_text(element) for element in path)


def element_text(element: str) -> str:
    """A path element as messages show it: ``.data``, ``[name="main"]``, ``[="value"]``, ``[0]``."""
    kind, _, rest = element.partition(":")
    if kind == "f":
        return "." + rest
    if kind == "k":
        return "[" + ",".join(f"{name}={json.dumps(value, ensure_ascii=False)}"
                              for name, value in json.loads(rest).items()) + "]"
    return f"[={rest}]" if kind == "v" else f"[{rest}]"


class ItemError(ValueError):
    """A list item cannot be identified; the message is the real server's."""


def item_element(schema: Schema, item: Any) -> str:
    """The path element of an item in a list of type map or set. Raises `ItemError` if the item has none."""
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
    # A missing key counts as its default; a key without a default is not part of the identity.
    for key in sorted(keys):
        if key in item:
            value = item[key]
        else:
            field = schema.element.field(key) if schema.element else None
            value = field.default if field else None
            if value is None:
                continue
        parts.append(f"{encode_basestring(key)}:{_key_text(value)}")
    if not parts:
        names = "[" + " ".join(f'"{key}"' for key in keys) + "]"
        raise ItemError(f"associative list with keys has an element that omits all key fields {names} "
                        "(and doesn't have default values for any key fields)")
    return "k:{" + ",".join(parts) + "}"


def _key_text(value: Any) -> str:
    if isinstance(value, str):
        return encode_basestring(value)
    return str(value) if type(value) is int else json.dumps(value, separators=(",", ":"))


@lru_cache(maxsize=4096)
def _named(key: str, name: str) -> str:
    """The path element of an item with a single string key, the usual case."""
    return f"k:{{{encode_basestring(key)}:{encode_basestring(name)}}}"


def by_element(schema: Schema, items: Any) -> dict[str, list[Any]]:
    """The items of a list by path element, in order; items without identity are left out."""
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


Value = dict[str, Any]


def compare(old: Value, new: Value, schema: Schema) -> tuple[Fields, Fields]:
    """Returns (added or modified paths, removed paths) from `old` to `new`, two complete objects of the schema."""
    changed: Fields = {}
    removed: Fields = {}
    _compare_maps(old, new, schema, changed, removed)
    return changed, removed


def all_paths(value: Any, schema: Schema) -> Fields:
    """The node of a value that is completely new or removed: its own path and every path below it."""
    if schema.leaf or not value:
        return {}
    if isinstance(value, dict):
        if schema.kind in ("list", "scalar"):
            return {}
        flat = _flat_node(schema, tuple(value))
        if flat is not None:
            return flat
        node: Fields = {SELF: {}}
        fields, element = schema.fields, schema.element
        for key in sorted(value):
            below = fields.get(key) or element or ANY
            node["f:" + key] = {} if below.leaf else all_paths(value[key], below)
        return node
    if isinstance(value, list) and schema.kind == "list":
        text = _encode(value)
        return _list_paths(schema, text) if len(text) <= _REMEMBERED_BYTES else _items(value, schema)
    return {}


def _items(value: list[Any], schema: Schema) -> Fields:
    items: Fields = {SELF: {}}
    below = schema.element or ANY
    for name, found in sorted(by_element(schema, value).items()):
        items[name] = all_paths(found[0], below) if len(found) == 1 else {}
    return items


@lru_cache(maxsize=512)
def _list_paths(schema: Schema, text: bytes) -> Fields:
    """The node of a completely new list. Cached, since objects of one template have equal container and port lists."""
    return _items(msgspec.json.decode(text), schema)


@lru_cache(maxsize=1024)
def _flat_node(schema: Schema, keys: tuple[str, ...]) -> Fields | None:
    """The node of a map with these keys, whatever their values are; None if a field is not a leaf."""
    if all((schema.field(key) or ANY).leaf for key in keys):
        return {SELF: {}, **{"f:" + key: {} for key in sorted(keys)}}
    return None


def _compare_maps(old: Value, new: Value, schema: Schema, changed: Fields, removed: Fields) -> None:
    fields, element = schema.fields, schema.element
    for key in sorted(new):
        after = new[key]
        below = fields.get(key) or element or ANY
        if key not in old:
            changed["f:" + key] = {} if below.leaf else all_paths(after, below)
            continue
        before = old[key]
        if not equal_json(before, after):
            _compare(before, after, below, name="f:" + key, changed=changed, removed=removed)
    for key in sorted(old.keys() - new.keys()):
        removed["f:" + key] = all_paths(old[key], fields.get(key) or element or ANY)


def _compare(before: Any, after: Any, schema: Schema, *, name: str, changed: Fields, removed: Fields) -> None:
    """Compare two values that are both present and differ; `name` is their path element."""
    below_changed: Fields = {}
    below_removed: Fields = {}
    itself = False
    if schema.leaf:
        itself = True
    elif schema.kind == "list":
        old_items = before if isinstance(before, list) else None
        new_items = after if isinstance(after, list) else None
        if old_items or new_items:
            _compare_lists(old_items, new_items, schema, below_changed, below_removed)
        else:
            itself = True
    else:
        old_map = before if isinstance(before, dict) else None
        new_map = after if isinstance(after, dict) else None
        # If any value is allowed, replacing a map by a scalar or list (or the reverse) changes the path itself.
        mixed = schema.kind == "any" and not all(value is None or isinstance(value, dict) for value in (before, after))
        itself = mixed or not (old_map or new_map)
        _compare_maps(old_map or {}, new_map or {}, schema, below_changed, below_removed)
    if itself:
        changed[name] = {SELF: {}, **below_changed} if below_changed else {}
    elif below_changed:
        changed[name] = below_changed
    if below_removed:
        removed[name] = below_removed


def _compare_lists(old: Any, new: Any, schema: Schema, changed: Fields, removed: Fields) -> None:
    if not old:
        changed |= {name: node for name, node in all_paths(new, schema).items() if name != SELF}
        return
    before, after = by_element(schema, old), by_element(schema, new)
    element = schema.element or ANY
    for name in sorted(before | after):
        olds, news = before.get(name, []), after.get(name, [])
        if equal_json(olds, news):
            continue
        if len(olds) > 1 and len(news) > 1:  # an item that is repeated before and after is one modified leaf
            changed[name] = {}
            continue
        # If an item is repeated on one side only, its repetitions are one leaf, which is removed or added as a whole.
        if len(olds) > 1:
            removed[name] = {}
        elif olds and len(news) != 1:
            removed[name] = all_paths(olds[0], element)
        if len(news) > 1:
            changed[name] = {}
        elif news and len(olds) != 1:
            changed[name] = all_paths(news[0], element)
        if len(olds) == len(news) == 1:
            _compare(olds[0], news[0], element, name=name, changed=changed, removed=removed)
