"""What changed between two values: the field paths that were added or modified, and those that were removed.

The sets come in the order in which the server writes them (see `fieldset.ordered`).

Surprising truths of the real server: a map or list that becomes non-empty is itself a new path (``"."``) only if it
was absent before, not if it was null or empty; two empty values that differ (null and {}) count as one modified leaf.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from kubectl_runtime.apiserver.managedfields.elements import by_element
from kubectl_runtime.apiserver.managedfields.fieldset import SELF, Fields
from kubectl_runtime.apiserver.schemas import ANY, Schema
from kubectl_runtime.core.codec.jsonvalues import equal_json

Value = dict[str, Any]


def compare(old: Value, new: Value, schema: Schema) -> tuple[Fields, Fields]:
    """(added or modified paths, removed paths) on the way from `old` to `new`, two whole objects of the schema."""
    changed: Fields = {}
    removed: Fields = {}
    _compare_maps(old, new, schema, changed, removed)
    return changed, removed


def all_paths(value: Any, schema: Schema) -> Fields:
    """The node of a value that is wholly new (or gone): its own path and every path below it."""
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
        items: Fields = {SELF: {}}
        below = schema.element or ANY
        for name, found in sorted(by_element(schema, value).items()):
            items[name] = all_paths(found[0], below) if len(found) == 1 else {}
        return items
    return {}


@lru_cache(maxsize=1024)
def _flat_node(schema: Schema, keys: tuple[str, ...]) -> Fields | None:
    """The node of a map that has these keys, whatever its values are; None if one of them is no leaf."""
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
    """Two present values that are not equal; `name` is their path element."""
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
        # Where any value is allowed, a scalar or list that takes the place of a map, or leaves it, changes the path.
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
    before, after = by_element(schema, old), by_element(schema, new)
    element = schema.element or ANY
    for name in sorted(before | after):
        olds, news = before.get(name, []), after.get(name, [])
        if equal_json(olds, news):
            continue
        if len(olds) > 1 and len(news) > 1:  # repeated items are one value as a whole
            changed[name] = {}
            continue
        # Repeated items are a leaf of their own: they come and go as such, whatever the single item that replaces them.
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
