"""Sets of field paths in the form in which managedFields store them (FieldsV1), and their algebra.

A set is a dict of path elements: ``f:name`` a field or map key, ``k:{"name":"x"}`` an item of a map list, ``v:"x"``
an item of a set, each with the node below it. In a node ``"."`` says that the path itself belongs to the set; a node
without anything below it is a member and written ``{}``. So ``{"f:data": {".": {}, "f:k": {}}}`` holds ``.data`` and
``.data.k``, and ``{"f:data": {"f:k": {}}}`` only the latter. The root is no path: an empty root is the empty set.

All functions are pure: arguments are never changed, results may share nodes with them. What only takes away keeps the
order of keys; `ordered` puts them in the server's.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

Fields = dict[str, Any]
SELF = "."


def is_member(node: Fields) -> bool:
    """Whether the path of a node (not of a root) belongs to the set."""
    return not node or SELF in node


def _node(member: bool, children: Fields) -> Fields | None:
    """A node, or None where nothing is left of it."""
    if not children:
        return {} if member else None
    return {SELF: {}, **children} if member else children


def union(first: Fields, second: Fields) -> Fields:
    """The paths of either set."""
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
    """Whether a path (of path elements, ``("f:data", "f:k")``) belongs to the set."""
    node = fields
    for element in path:
        if element not in node:
            return False
        node = node[element]
    return bool(path) and is_member(node)


def without(fields: Fields, path: tuple[str, ...]) -> Fields:
    """The set without a path and all that is below it."""
    head, *rest = path
    if head not in fields:
        return fields
    below = _node(is_member(fields[head]), without(_children(fields[head]), tuple(rest))) if rest else None
    if below is None:
        return {key: node for key, node in fields.items() if key != head}
    return {**fields, head: below}


def only(fields: Fields, path: tuple[str, ...]) -> Fields:
    """What of the set is at a path or below it."""
    head, *rest = path
    if head not in fields:
        return {}
    if not rest:
        return {head: fields[head]}
    kept = only(fields[head], tuple(rest))
    return {head: kept} if kept else {}


def paths(fields: Fields, above: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The paths of the set in order, each before those below it."""
    for key in sorted(fields):
        if key == SELF:
            continue
        path = (*above, key)
        if is_member(fields[key]):
            yield path
        yield from paths(fields[key], path)


def ordered(fields: Fields) -> Fields:
    """The same set with its keys in the order in which the server writes them."""
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
        return "[" + ",".join(f"{name}={_scalar_text(value)}" for name, value in json.loads(rest).items()) + "]"
    return f"[={rest}]" if kind == "v" else f"[{rest}]"


def _scalar_text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
