"""Strategic merge patch: a merge patch that merges lists by the keys in the schema.

Directives in the patch:

- ``$patch: replace`` in a map: the patch replaces the map. In a list item: the patch replaces the whole list.
- ``$patch: delete`` in a map: empty the map. In a list item: delete the item with the same key.
- ``$deleteFromPrimitiveList/NAME``: delete these values from a list of scalars.
- ``$setElementOrder/NAME``: the order of the merged list; items that are only in the live list keep their place.
- ``$retainKeys``: drop all other keys of the map.

Surprising details of the real server: without ``$setElementOrder`` the patch's items keep the patch's order, so a new
item may come before items of the live list (see `in_order`). A null for a missing key is ignored.
"""
from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kubectl_runtime.apiserver.errors import StatusError, bad_request
from kubectl_runtime.apiserver.patching.json_patch import rejected
from kubectl_runtime.apiserver.schemas import Schema
from kubectl_runtime.apiserver.wire import Object
from kubectl_runtime.core.codec.jsonbytes import json_copy
from kubectl_runtime.core.codec.views import without_nulls

UNKNOWN = -1


def by_key(item: Any, key: str) -> Any:
    """The identity of an item in a merged list: the value of its merge key, or the item itself without a merge key."""
    value = item.get(key) if key and isinstance(item, dict) else item
    return str(value) if isinstance(value, dict | list) else value


def in_order(merged: list[Any], wanted: list[Any], before: list[Any], key: str) -> list[Any]:
    """Sort a merged list. Items in `wanted` get its order. The other items get the order of `before`, the live list.

    An item that is not in `wanted` comes directly before the first item of `wanted` that follows it in the live list.
    If there is no such item, it comes at the end.
    """
    rank = _ranks(wanted, key)
    live = _ranks(before, key)
    named = sorted((item for item in merged if by_key(item, key) in rank), key=lambda item: rank[by_key(item, key)])
    own = sorted((item for item in merged if by_key(item, key) not in rank),
                 key=lambda item: live.get(by_key(item, key), len(live)))
    result: list[Any] = []
    position = 0
    for item in named:
        here = live.get(by_key(item, key), UNKNOWN)
        while position < len(own) and UNKNOWN < live.get(by_key(own[position], key), UNKNOWN) < here:
            result.append(own[position])
            position += 1
        result.append(item)
    return result + own[position:]


def _ranks(items: list[Any], key: str) -> dict[Any, int]:
    ranks: dict[Any, int] = {}
    for index, item in enumerate(items):
        ranks.setdefault(by_key(item, key), index)
    return ranks


PATCH = "$patch"
RETAIN_KEYS = "$retainKeys"
DELETE_FROM = "$deleteFromPrimitiveList"
SET_ORDER = "$setElementOrder"


def apply_strategic_merge_patch(current: Object, patch: Object, schema: Schema) -> Object:
    """Merge a patch into `current` by the kind's schema. Neither is changed or shared with the result.

    Raises StatusError: 400 for a malformed directive; 422 for lists of lists; 500, like the real server, for an unknown
    ``$patch``, a list item without its merge key, or a merged list without a merge key.
    """
    return _merge_map(json_copy(current), json_copy(patch), schema)


def _merge_map(original: Object, patch: Object, schema: Schema | None) -> Object:
    """Merge two maps; both are copies and may be changed."""
    if PATCH in patch:
        return _directed_map(patch)
    _retain_keys(original, patch)
    for key in [key for key in patch if key.startswith(SET_ORDER)]:
        _merge_ordered_list(original, patch, key, schema)
    for key, value in patch.items():
        if key.startswith(DELETE_FROM):
            name = _directive_target(key, DELETE_FROM, "primitive list")
            if isinstance(original.get(name), list) and isinstance(value, list):
                original[name] = _delete_scalars(original[name], value)
        elif value is None:
            original.pop(key, None)
        else:
            _merge_field(original, key, value, schema)
    return original


def _merge_field(original: Object, key: str, value: Any, schema: Schema | None) -> None:
    """Merge a value that is not null into a field of the map."""
    below = schema.field(key) if schema else None
    before = original.get(key)
    replaced = below is not None and "replace" in below.patch_strategy.split(",")
    if isinstance(value, dict) and isinstance(before, dict):
        original[key] = value if replaced else _merge_map(before, value, below)
    elif isinstance(value, list) and isinstance(before, list) and _is_merged(below):
        original[key] = _merge_list(before, value, below)
    elif isinstance(value, list) and isinstance(before, list):
        original[key] = value
    else:
        cleaned, kept = _without_directives(without_nulls(value))
        if kept:
            original[key] = cleaned
        else:
            original.pop(key, None)


def _is_merged(schema: Schema | None) -> bool:
    return schema is not None and "merge" in schema.patch_strategy.split(",")


def _directed_map(patch: Object) -> Object:
    directive = patch.pop(PATCH)
    if directive == "replace":
        return patch
    if directive == "delete":
        return {}
    raise _unknown_directive(directive)


def _retain_keys(original: Object, patch: Object) -> None:
    retained = patch.pop(RETAIN_KEYS, None)
    if retained is None:
        return
    named = [key for key, value in patch.items() if value is not None and not key.startswith((DELETE_FROM, SET_ORDER))]
    if not isinstance(retained, list) or any(key not in retained for key in named):
        raise bad_request("invalid patch format of retainKeys")
    for key in [key for key in original if key not in retained]:
        del original[key]


def _merge_ordered_list(original: Object, patch: Object, directive: str, schema: Schema | None) -> None:
    """Merge a list in the order of ``$setElementOrder``; the list and the directive are removed from the patch."""
    order = patch.pop(directive)
    name = _directive_target(directive, SET_ORDER, "setElementOrder list")
    below = schema.field(name) if schema else None
    key = below.patch_merge_key if below else ""
    before, after = original.get(name), patch.get(name)
    if not all(value is None or isinstance(value, list) for value in (order, before, after)):
        raise _internal("expected a []interface {}, but received another type")
    order = order or []
    _check_order(after or [], order, key)
    if before is None and after is None:
        return
    if after is None:
        merged = before
    elif before is None:
        merged, _ = _without_directives(after)
    else:
        merged = _merge_list(before, after, below) if _is_merged(below) else after
    patch.pop(name, None)
    original[name] = in_order(merged or [], order, before or [], key)


def _check_order(items: list[Any], order: list[Any], key: str) -> None:
    """Check that the directive contains all items of the patch, in the same relative order."""
    if not order or not items:
        return
    wanted = [by_key(item, key) for item in items if not (isinstance(item, dict) and PATCH in item)]
    named = iter([by_key(item, key) for item in order])
    if not all(any(value == candidate for candidate in named) for value in wanted):
        raise _internal(f"The order in patch list doesn't match {SET_ORDER} list")


def _merge_list(original: list[Any], patch: list[Any], schema: Schema | None) -> list[Any]:
    items = [*original, *patch]
    if not items:
        return original
    if any(isinstance(item, list) for item in items):
        raise rejected()
    if len({isinstance(item, dict) for item in items}) > 1:
        raise _internal("list element types are not identical")
    if not isinstance(items[0], dict):
        return in_order(list(dict.fromkeys(items)), patch, original, "")
    key = schema.patch_merge_key if schema else ""
    if not key:
        raise _internal("cannot merge lists without merge key")
    original, patch = _special_items(original, patch, key)
    merged = list(original)
    positions = {by_key(item, key): index for index, item in reversed(list(enumerate(merged)))}
    for item in patch:
        position = positions.get(_required_key(item, key))
        if position is None:
            positions[item[key]] = len(merged)
            merged.append(item)
        else:
            merged[position] = _merge_map(merged[position], item, schema.element if schema else None)
    return in_order(merged, patch, original, key)


def _special_items(original: list[Any], patch: list[Any], key: str) -> tuple[list[Any], list[Any]]:
    """Returns (list, patch) after the patch items with a ``$patch`` directive were applied and removed."""
    plain = []
    replace = False
    for item in patch:
        directive = item.get(PATCH)
        if PATCH not in item:
            plain.append(item)
        elif directive == "delete":
            value = _required_key(item, key)
            original = [other for other in original if by_key(other, key) != value]
        elif directive == "replace":
            replace = True
        elif directive == "merge":
            raise _internal("merging lists cannot yet be specified in the patch")
        else:
            raise _unknown_directive(directive)
    return (plain, []) if replace else (original, plain)


def _required_key(item: Object, key: str) -> Any:
    if key not in item:
        shown = " ".join(f"{name}:{item[name]}" for name in sorted(item))
        raise _internal(f"map: map[{shown}] does not contain declared merge key: {key}")
    value = item[key]
    if isinstance(value, dict | list):
        raise _internal(f"merge key {key} is not a scalar")
    return value


def _delete_scalars(items: list[Any], unwanted: Iterable[Any]) -> list[Any]:
    gone = list(unwanted)
    return [item for item in items if item not in gone]


def _without_directives(value: Any) -> tuple[Any, bool]:
    """Returns (a new value without its directives, whether the value is kept)."""
    if isinstance(value, dict):
        if PATCH in value:
            return None, False
        cleaned = {key: _without_directives(child) for key, child in value.items()}
        return {key: child for key, (child, kept) in cleaned.items() if kept}, True
    if isinstance(value, list):
        return [child for child, kept in map(_without_directives, value) if kept], True
    return value, True


def _directive_target(key: str, prefix: str, what: str) -> str:
    head, slash, name = key.partition("/")
    if head != prefix or not slash:
        raise bad_request(f"invalid patch format of {what}")
    return name


def _unknown_directive(directive: Any) -> StatusError:
    return _internal(f"unknown patch type: {directive}")


def _internal(message: str) -> StatusError:
    """A bare 500, for cases that the real server does not handle."""
    return StatusError(500, "", message)
