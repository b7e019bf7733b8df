"""Validation of custom resources by the OpenAPI keywords of their schema: types, required, enum, bounds, patterns,
formats, list types.

CEL rules (``x-kubernetes-validations``) are not looked at here: see rules.py. The texts are those of the real
server. An update may keep what was wrong before (ratcheting): a value that equals the old one at its place is not
looked at again.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from kubectl_runtime.core.codec.jsonvalues import same_json
from kubectl_runtime.schema import causes
from kubectl_runtime.schema.causes import Cause
from kubectl_runtime.schema.formats import number_fits, text_fits
from kubectl_runtime.schema.patterns import PatternError, compiled

Node = Mapping[str, Any]
NOTHING: Any = object()
"""Stands for an old value where there is none."""


def schema_causes(value: Any, node: Node | None, old: Any = NOTHING, path: str = "") -> list[Cause]:
    """What is wrong with a value by its schema; `old` is the value before an update, `path` where the value stands."""
    return list(_causes(value, node, old, path)) if node else []


def _causes(value: Any, node: Node, old: Any, path: str) -> Iterator[Cause]:
    if (value is None and node.get("nullable")) or _unchanged(value, old):
        return
    yield from _type_causes(value, node, path)
    if "enum" in node and not any(same_json(value, allowed) for allowed in node["enum"]):
        yield causes.not_supported(path, value, [item if isinstance(item, str) else json.dumps(item)
                                                 for item in node["enum"]])
    if isinstance(value, str):
        yield from _text_causes(value, node, path)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield from _number_causes(value, node, path)
    elif isinstance(value, list):
        yield from _list_causes(value, node, old, path)
    elif isinstance(value, dict):
        yield from _object_causes(value, node, old, path)
    yield from _composite_causes(value, node, path)


def _unchanged(value: Any, old: Any) -> bool:
    return old is not NOTHING and same_json(value, old)


def _json_type(value: Any) -> str:
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, float):
        return "integer" if value.is_integer() and abs(value) < 1 << 63 else "number"
    if type(value) is int and not -(1 << 63) <= value < 1 << 63:
        return "number"  # what does not fit 64 bits is a float to the real server
    names = {int: "integer", str: "string", list: "array", dict: "object"}
    return names.get(type(value), "null")


def _type_causes(value: Any, node: Node, path: str) -> Iterator[Cause]:
    wanted = "integer,string" if node.get("x-kubernetes-int-or-string") else node.get("type", "")
    found = _json_type(value)
    if not wanted or found in wanted.split(",") or (wanted == "number" and found == "integer"):
        return
    yield causes.type_invalid(path, found, f"{path} in body must be of type {wanted}: {causes.go_value(found)}")


def _text_causes(value: str, node: Node, path: str) -> Iterator[Cause]:
    longest = node.get("maxLength")
    if longest is not None and len(value) > longest:
        yield causes.too_long(path, longest)
    shortest = node.get("minLength")
    if shortest is not None and len(value) < shortest:
        yield causes.invalid_value(path, value, f"{path} in body should be at least {shortest} chars long")
    pattern = node.get("pattern")
    if pattern and not _matches(pattern, value):
        yield causes.invalid_value(path, value, f"{path} in body should match '{pattern}'")
    form = node.get("format")
    if form and node.get("type") == "string" and not text_fits(value, form):
        yield causes.type_invalid(path, value, f"{path} in body must be of type {form}: {causes.go_value(value)}")


def _matches(pattern: str, value: str) -> bool:
    try:
        return compiled(pattern).search(value) is not None
    except PatternError:  # stored before such patterns were refused
        return True


def _range_causes(value: float, node: Node, path: str) -> Iterator[Cause]:
    """The value and the bounds themselves must fit type and format; the real server tells so without a field."""
    kind, form = node.get("type") or "", node.get("format") or ""
    for what, number in (("Checked", value), ("MultipleOf", node.get("multipleOf")),
                         ("Maximum boundary", node.get("maximum")), ("Minimum boundary", node.get("minimum"))):
        if number is not None and not number_fits(number, kind, form):
            told = f"with format {form}" if form else "(default format)"
            yield causes.invalid_value("<nil>", "", f"{what} value must be of type {kind} {told} in {path}")


def _number_causes(value: float, node: Node, path: str) -> Iterator[Cause]:
    if node.get("type") in ("integer", "number"):
        yield from _range_causes(value, node, path)
    highest, lowest, factor = node.get("maximum"), node.get("minimum"), node.get("multipleOf")
    wrong = ""
    if factor and value % factor:
        wrong = f"be a multiple of {factor}"
    elif highest is not None and (value >= highest if node.get("exclusiveMaximum") else value > highest):
        wrong = f"be less than {'' if node.get('exclusiveMaximum') else 'or equal to '}{highest}"
    elif lowest is not None and (value <= lowest if node.get("exclusiveMinimum") else value < lowest):
        wrong = f"be greater than {'' if node.get('exclusiveMinimum') else 'or equal to '}{lowest}"
    if wrong:
        yield causes.invalid_value(path, value, f"{path} in body should {wrong}")


def _size_causes(count: int, least: int | None, most: int | None, what: str, path: str) -> Iterator[Cause]:
    if least is not None and count < least:
        yield causes.invalid_value(path, count, f"{path} in body should have at least {least} {what}")
    if most is not None and count > most:
        yield Cause("FieldValueTooMany", f"Too many: {count}: must have at most {most} items", path)


def _list_causes(items: list[Any], node: Node, old: Any, path: str) -> Iterator[Cause]:
    yield from _size_causes(len(items), node.get("minItems"), node.get("maxItems"), "items", path)
    keys = node.get("x-kubernetes-list-map-keys") or ()
    before = {_identity(item, keys): item for item in old} if keys and isinstance(old, list) else {}
    unique = node.get("x-kubernetes-list-type") in ("map", "set")
    seen: set[str] = set()
    for index, item in enumerate(items):
        place = f"{path}[{index}]"
        identity = _identity(item, keys) if keys or unique else ""
        yield from _causes(item, node.get("items") or {}, before.get(identity, NOTHING), place)
        if not unique:
            continue
        if identity in seen:
            shown = {key: item[key] for key in keys if key in item} if keys and isinstance(item, dict) else item
            yield causes.duplicate(place, shown)
        seen.add(identity)


def _identity(item: Any, keys: Any) -> str:
    return json.dumps([item.get(key) for key in keys] if keys and isinstance(item, dict) else item, sort_keys=True)


def _object_causes(value: dict[str, Any], node: Node, old: Any, path: str) -> Iterator[Cause]:
    yield from _size_causes(len(value), node.get("minProperties"), node.get("maxProperties"), "properties", path)
    prefix = path + "." if path else ""
    for name in node.get("required") or ():
        if name not in value:
            yield causes.required(prefix + name)
    if node.get("x-kubernetes-embedded-resource"):
        yield from (causes.required(prefix + name, "must not be empty") for name in ("apiVersion", "kind")
                    if name not in value)
    properties, extra = node.get("properties") or {}, node.get("additionalProperties")
    before = old if isinstance(old, dict) else {}
    for name, child in value.items():
        below = properties.get(name, extra)
        if isinstance(below, dict):
            yield from _causes(child, below, before.get(name, NOTHING), prefix + name)


def _composite_causes(value: Any, node: Node, path: str) -> Iterator[Cause]:
    """allOf, anyOf, oneOf and not; int-or-string nodes carry an anyOf that says the same again."""
    for branch in node.get("allOf") or ():
        yield from _causes(value, branch, NOTHING, path)
    any_of, one_of = node.get("anyOf") or (), node.get("oneOf") or ()
    if any_of and not node.get("x-kubernetes-int-or-string") and not any(_fits(value, branch) for branch in any_of):
        yield causes.invalid_value(path, "", f'"{path}" must validate at least one schema (anyOf)')
    if one_of and sum(_fits(value, branch) for branch in one_of) != 1:
        yield causes.invalid_value(path, "", f'"{path}" must validate one and only one schema (oneOf)')
    if node.get("not") and _fits(value, node["not"]):
        yield causes.invalid_value(path, "", f'"{path}" must not validate the schema (not)')


def _fits(value: Any, node: Node) -> bool:
    return next(_causes(value, node, NOTHING, ""), None) is None
