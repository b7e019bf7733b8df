"""Validation of custom resources by the OpenAPI keywords of their schema: types, required, enum, bounds, patterns,
formats, allOf, anyOf, oneOf and not, list types.

CEL rules (``x-kubernetes-validations``) are in rules.py. An update may keep what was wrong before (ratcheting): a value
that equals the old value at its place is not checked again. No item may occur twice in a list of type set, and
no key in a list of type map (``x-kubernetes-list-type``). The real server checks duplicates separately from the
other keywords; only the errors of that check write map keys in brackets: ``spec.ports[web][1]``.

A `Cause` is one wrong field; there is a constructor for each kind of the real server's ``field.Error``. Texts are the
real server's, since kubectl prints them and controllers match them.
"""
from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from kubectl_runtime.core.codec.jsonbytes import same_json
from kubectl_runtime.schema.formats import known_format, number_fits, text_fits, type_fault, wanted_type
from kubectl_runtime.schema.patterns import PatternError, compiled


class Cause(msgspec.Struct, frozen=True):
    """One cause in a Status's ``details.causes``: the reason (FieldValueInvalid, ...), the message without the
    field, and the field."""

    reason: str
    message: str
    field: str = ""

    def text(self) -> str:
        """The text for this cause in the Status's message."""
        return f"{self.field}: {self.message}" if self.field else self.message

    def to_dict(self) -> dict[str, Any]:
        """The entry for ``details.causes``."""
        entry: dict[str, Any] = {"reason": self.reason} if self.reason else {}
        entry["message"] = self.message
        if self.field:
            entry["field"] = self.field
        return entry


def required(field: str, detail: str = "") -> Cause:
    """A `Cause` that reports a required field that is missing."""
    return Cause("FieldValueRequired", f"Required value: {detail}" if detail else "Required value", field)


def invalid_value(field: str, value: Any, detail: str) -> Cause:
    """A `Cause` that reports a field whose value is not allowed."""
    text = f"Invalid value: {go_value(value)}"
    return Cause("FieldValueInvalid", f"{text}: {detail}" if detail else text, field)


def immutable(field: str, value: Any) -> Cause:
    """A `Cause` that reports a change of a field that cannot be changed."""
    return invalid_value(field, value, "field is immutable")


def forbidden_field(field: str, detail: str) -> Cause:
    """A `Cause` that reports a field that must not be set, or must not be set in this way."""
    return Cause("FieldValueForbidden", f"Forbidden: {detail}", field)


def not_supported(field: str, value: Any, supported: Iterable[str]) -> Cause:
    """A `Cause` that reports a field whose value is outside its enumeration."""
    known = ", ".join(json.dumps(choice) for choice in supported)
    return Cause("FieldValueNotSupported", f"Unsupported value: {go_value(value)}: supported values: {known}", field)


def duplicate(field: str, value: Any) -> Cause:
    """A `Cause` that reports a value that occurs twice."""
    return Cause("FieldValueDuplicate", f"Duplicate value: {go_value(value)}", field)


def not_found_value(field: str, value: Any) -> Cause:
    """A `Cause` that reports a reference to something that does not exist."""
    return Cause("FieldValueNotFound", f"Not found: {go_value(value)}", field)


def too_long(field: str, limit: int) -> Cause:
    """A `Cause` that reports a text that is too long."""
    unit = "byte" if limit == 1 else "bytes"
    return Cause("FieldValueTooLong", f"Too long: may not be more than {limit} {unit}", field)


def too_many(field: str, count: int, limit: int) -> Cause:
    """A `Cause` that reports a list that is too long."""
    return Cause("FieldValueTooMany", f"Too many: {count}: must have at most {limit} item{'s' * (limit != 1)}", field)


def type_invalid(field: str, value: Any, detail: str) -> Cause:
    """A `Cause` that reports a value of the wrong type."""
    return Cause("FieldValueTypeInvalid", f"Invalid value: {go_value(value)}: {detail}", field)


def go_value(value: Any) -> str:
    """A value as the real server prints it in a cause: strings quoted, the rest as JSON."""
    if value is None:
        return "null"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


Node = Mapping[str, Any]


def list_type_causes(value: Any, node: Node, path: str = "") -> Iterator[Cause]:
    """The `Cause`s that report duplicates in a value's lists of type set or map; each duplicate is reported once."""
    if isinstance(value, dict):
        properties, extra = node.get("properties") or {}, node.get("additionalProperties")
        for name, child in value.items():
            if isinstance(extra, Mapping):
                yield from list_type_causes(child, extra, f"{path}[{name}]")
            if name in properties:
                yield from list_type_causes(child, properties[name], f"{path}.{name}" if path else name)
    elif isinstance(value, list):
        if node.get("x-kubernetes-list-type") in ("set", "map"):
            yield from _repeated(value, node, path)
        if isinstance(items := node.get("items"), Mapping):
            for index, item in enumerate(value):
                yield from list_type_causes(item, items, f"{path}[{index}]")


def breaks_list_type(items: list[Any], node: Node) -> bool:
    """Whether a list itself has duplicates; lists inside its items are not checked."""
    return next(_repeated(items, node, ""), None) is not None


def _repeated(items: list[Any], node: Node, path: str) -> Iterator[Cause]:
    is_map = node["x-kubernetes-list-type"] == "map"
    keys = node.get("x-kubernetes-list-map-keys") or ()
    if is_map:
        wrong = next((index for index, item in enumerate(items) if not isinstance(item, dict | None)), None)
        if wrong is not None:
            yield invalid_value(f"{path}[{wrong}]", items[wrong], "must be an object for an array of list-type map")
            return
    seen: dict[str, int] = {}
    for index, item in enumerate(items):
        shown = {key: item[key] for key in keys if key in (item or ())} if is_map else item
        identity = json.dumps(shown, sort_keys=True)
        seen[identity] = seen.get(identity, 0) + 1
        if seen[identity] == 2:  # a third occurrence is not reported again
            yield duplicate(f"{path}[{index}]", shown)


NOTHING: Any = object()
"""Stands for a missing old value."""
_LIST_TYPE_BROKEN = Cause("", "")


def schema_causes(value: Any, node: Node | None, old: Any = NOTHING, path: str = "") -> list[Cause]:
    """The errors of a value by its schema; `old` is the value before an update, `path` the place of the value."""
    if not node:
        return []
    found = list(dict.fromkeys(_causes(value, node, old, path)))
    if _LIST_TYPE_BROKEN not in found:
        return found
    found.remove(_LIST_TYPE_BROKEN)
    if old is not NOTHING and next(list_type_causes(old, node), None):
        return found  # the old value has duplicates already, so an update may keep them
    return [*found, *list_type_causes(value, node, path)]


def below(path: str, found: Iterable[Cause]) -> list[Cause]:
    """Put `path` before the field of each cause, for a value that was checked alone. Messages do not get the path."""
    return [replace(cause, field=path + (f".{cause.field}" if cause.field not in ("", "<nil>") else ""))
            for cause in found]


def _causes(value: Any, node: Node, old: Any, path: str) -> Iterator[Cause]:
    if old is not NOTHING and same_json(value, old):
        return
    yield from _type_causes(value, node, path)
    if value is not None:
        yield from _junctor_causes(value, node, path)
    if isinstance(value, str):
        yield from _text_causes(value, node, path)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield from _number_causes(value, node, path)
    elif isinstance(value, list):
        yield from _list_causes(value, node, old, path)
    if (choices := node.get("enum")) and not any(_equals(value, choice) for choice in choices):
        yield not_supported(path, value, [choice if isinstance(choice, str) else json.dumps(choice)
                                                 for choice in choices])
    if isinstance(value, dict):
        yield from _object_causes(value, node, old, path)


def _equals(value: Any, choice: Any) -> bool:
    """Equality with an enum's value: null never equals, even if the enum lists null; 1.0 equals 1."""
    if value is None or isinstance(value, bool) or isinstance(choice, bool):
        return value is choice and value is not None
    return bool(value == choice) if isinstance(value, int | float) else same_json(value, choice)


def _type_causes(value: Any, node: Node, path: str) -> Iterator[Cause]:
    if fault := type_fault(value, node):
        wanted, found = fault
        yield type_invalid(path, found, f"{path} in body must be of type {wanted}: {go_value(found)}")


def _text_causes(value: str, node: Node, path: str) -> Iterator[Cause]:
    longest, shortest, pattern = node.get("maxLength"), node.get("minLength"), node.get("pattern")
    if longest is not None and len(value) > longest:
        yield too_long(path, longest)
    elif shortest is not None and len(value) < shortest:
        yield invalid_value(path, value, f"{path} in body should be at least {shortest} chars long")
    elif pattern and not _matches(pattern, value):
        yield invalid_value(path, value, f"{path} in body should match '{pattern}'")
    form = known_format(node)
    if form and not text_fits(value, form):
        yield type_invalid(path, value, f"{path} in body must be of type {form}: {go_value(value)}")


def _matches(pattern: str, value: str) -> bool:
    try:
        return compiled(pattern).search(value) is not None
    except PatternError:  # the schema was stored before such patterns were refused
        return True


def _number_causes(value: float, node: Node, path: str) -> Iterator[Cause]:
    """The value and the bounds themselves must fit type and format; the real server's error names no field."""
    highest, lowest, factor = node.get("maximum"), node.get("minimum"), node.get("multipleOf")
    yield from _range_causes("Checked", value, node, path)
    if factor is not None:
        yield from _range_causes("MultipleOf", factor, node, path)
        if factor <= 0:
            told = f"factor MultipleOf declared for {path} must be positive: {factor}"
            yield invalid_value(path, factor, told)
        elif value % factor:
            yield invalid_value(path, value, f"{path} in body should be a multiple of {factor}")
    if lowest is not None:
        yield from _range_causes("Minimum boundary", lowest, node, path)
        if value <= lowest if node.get("exclusiveMinimum") else value < lowest:
            told = f"greater than {'' if node.get('exclusiveMinimum') else 'or equal to '}{lowest}"
            yield invalid_value(path, value, f"{path} in body should be {told}")
    if highest is not None:
        yield from _range_causes("Maximum boundary", highest, node, path)
        if value >= highest if node.get("exclusiveMaximum") else value > highest:
            told = f"less than {'' if node.get('exclusiveMaximum') else 'or equal to '}{highest}"
            yield invalid_value(path, value, f"{path} in body should be {told}")


def _range_causes(what: str, number: float, node: Node, path: str) -> Iterator[Cause]:
    kind, form = node.get("type"), known_format(node)
    if kind in ("integer", "number") and not number_fits(number, kind, form):
        told = f"with format {form}" if form else "(default format)"
        yield invalid_value("<nil>", "", f"{what} value must be of type {kind} {told} in {path}")


def _size_causes(count: int, least: int | None, most: int | None, what: str, path: str) -> Iterator[Cause]:
    if least is not None and count < least:
        yield invalid_value(path, count, f"{path} in body should have at least {least} {what}")
    if most is not None and count > most:
        yield too_many(path, count, most)


def _list_causes(items: list[Any], node: Node, old: Any, path: str) -> Iterator[Cause]:
    keys = node.get("x-kubernetes-list-map-keys") or ()
    before = {_identity(item, keys): item for item in old} if keys and isinstance(old, list) else {}
    each = node.get("items") or {}
    for index, item in enumerate(items):
        was = before.get(_identity(item, keys), NOTHING) if before else NOTHING
        yield from _causes(item, each, was, f"{path}[{index}]")
    yield from _size_causes(len(items), node.get("minItems"), node.get("maxItems"), "items", path)
    if node.get("x-kubernetes-list-type") in ("map", "set") and breaks_list_type(items, node):
        yield _LIST_TYPE_BROKEN


def _identity(item: Any, keys: Any) -> str:
    return json.dumps([item.get(key) for key in keys] if isinstance(item, dict) else item, sort_keys=True)


def _object_causes(value: dict[str, Any], node: Node, old: Any, path: str) -> Iterator[Cause]:
    yield from _size_causes(len(value), node.get("minProperties"), node.get("maxProperties"), "properties", path)
    prefix = path + "." if path else ""
    properties, extra = node.get("properties") or {}, node.get("additionalProperties")
    before = old if isinstance(old, dict) else {}
    for name, child in value.items():
        inner = properties.get(name, extra)
        if isinstance(inner, dict):
            yield from _causes(child, inner, before.get(name, NOTHING), prefix + name)
    for name in node.get("required") or ():
        if name not in value:
            yield required(prefix + name)
    if node.get("x-kubernetes-embedded-resource"):
        yield from (required(prefix + name, "must not be empty") for name in ("apiVersion", "kind")
                    if name not in value)


def _junctor_causes(value: Any, node: Node, path: str) -> Iterator[Cause]:
    """The `Cause`s that report errors of anyOf, oneOf, allOf and not. If no branch fits, the nearest branch's errors
    are included."""
    any_of, one_of, all_of = node.get("anyOf"), node.get("oneOf"), node.get("allOf")
    if any_of and not any(_fits(value, branch) for branch in any_of):
        yield _junctor(path, "must validate at least one schema (anyOf)")
        yield from _causes(value, _nearest(value, any_of), NOTHING, path)
    if one_of and (fitting := sum(_fits(value, branch) for branch in one_of)) != 1:
        told = f"Found {fitting} valid alternatives" if fitting else "Found none valid"
        yield _junctor(path, f"must validate one and only one schema (oneOf). {told}")
        if not fitting:
            yield from _causes(value, _nearest(value, one_of), NOTHING, path)
    if all_of:
        found = [list(_causes(value, branch, NOTHING, path)) for branch in all_of]
        for branch_causes in found:
            yield from branch_causes
        if any(found):
            yield _junctor(path, f"must validate all the schemas (allOf){'. None validated' if all(found) else ''}")
    if node.get("not") is not None and _fits(value, node["not"]):
        yield _junctor(path, "must not validate the schema (not)")


def _junctor(path: str, told: str) -> Cause:
    """A `Cause` that reports an error of allOf, anyOf, oneOf or not. Like the real server's, it has no field: the
    message names the place."""
    return invalid_value("<nil>", "", f'"{path}" {told}')


def _fits(value: Any, node: Node) -> bool:
    return next(_causes(value, node, NOTHING, ""), None) is None


def _nearest(value: Any, branches: Sequence[Node]) -> Node:
    """The schema that comes nearest to a value when none fits: the schema with the most successful checks.

    Checks are counted as in the server's copy of go-openapi: each group of checks that applies to a value counts once,
    whatever the result. The groups for numbers, for lists, and for allOf, anyOf, oneOf and not count twice, and a type
    that fits counts once more.
    """
    return max(branches, key=lambda branch: _checks(value, branch))


def _checks(value: Any, node: Node) -> int:
    if value is None:
        return int(type_fault(value, node) is None)
    count = 4  # 1 for the schema itself, 1 for the enum, and 2 for the group of allOf, anyOf, oneOf and not
    form = known_format(node)
    if wanted_type(node) or form:
        count += 1 + (type_fault(value, node) is None)
    for junctor in ("anyOf", "oneOf"):
        count += max((_checks(value, branch) for branch in node.get(junctor) or ()), default=0)
    count += sum(_checks(value, branch) for branch in node.get("allOf") or ())
    if isinstance(value, str):
        return count + 1 + bool(form)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return count + 2
    if isinstance(value, list):
        items = node.get("items")
        return count + 2 + (sum(_checks(item, items) for item in value) if isinstance(items, Mapping) else 0)
    if isinstance(value, dict):
        properties, extra = node.get("properties") or {}, node.get("additionalProperties")
        inner = [(child, properties.get(name, extra)) for name, child in value.items()]
        count += 1 + sum(_checks(child, schema) for child, schema in inner if isinstance(schema, Mapping))
    return count
