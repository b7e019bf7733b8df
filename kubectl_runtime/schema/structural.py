"""Structural schemas: the checks of a CustomResourceDefinition's schema, defaulting, and pruning.

- `structural_causes`: in a structural schema every field and every item has a type (or int-or-string, or preserves
  unknown fields), and `allOf`, `anyOf`, `oneOf` and `not` only narrow fields that are declared outside of them. Checks
  and texts are those of apiextensions-apiserver (`ValidateStructural`).
- `schema_definition_causes`: the whole check (`validateCustomResourceDefinitionOpenAPISchema`), which also refuses
  unsupported keywords, types, patterns, list and map types, and invalid defaults. Unknown string formats are not
  errors; `unknown_formats` lists them for a warning.
- `apply_defaults` and `prune_value` change the value in place, as the real server does. A default applies if the
  parent exists (or has a default). A null where null is not allowed counts as missing, so the null is replaced by the
  default or removed. Below ``x-kubernetes-preserve-unknown-fields`` undeclared fields stay, but the contents of
  declared fields are still pruned.
- `resolve_field`: the part of a schema at a path.
"""
from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Literal

from kubectl_runtime.core.codec.jsonbytes import json_copy
from kubectl_runtime.schema import validation
from kubectl_runtime.schema.formats import is_known
from kubectl_runtime.schema.patterns import PatternError, compiled
from kubectl_runtime.schema.validation import Cause, below, schema_causes

Node = Mapping[str, Any]


def apply_defaults(value: Any, node: Node | None, *, keep_nulls: bool = False) -> None:
    """Fill in the schema's defaults, also for nulls that are not allowed. Such nulls without a default are dropped, but
    with `keep_nulls` they stay in fields that have a type."""
    if not node:
        return
    if isinstance(value, list):
        items = node.get("items") or {}
        for index, item in enumerate(value):
            if _is_unwanted_null(item, items) and "default" in items:
                value[index] = json_copy(items["default"])
            apply_defaults(value[index], items, keep_nulls=keep_nulls)
    elif isinstance(value, dict):
        _default_map(value, node, keep_nulls)


def _default_map(value: dict[str, Any], node: Node, keep_nulls: bool) -> None:
    properties = node.get("properties") or {}
    extra = node.get("additionalProperties")
    for name, child in properties.items():
        if "default" in child and (name not in value or _is_unwanted_null(value[name], child)):
            value[name] = json_copy(child["default"])
    for key in list(value):
        child = properties.get(key, extra)
        if not isinstance(child, dict):
            continue
        if not _is_unwanted_null(value[key], child):
            apply_defaults(value[key], child, keep_nulls=keep_nulls)
        elif "default" in child:
            value[key] = json_copy(child["default"])
        elif not (keep_nulls and (child.get("type") or child.get("x-kubernetes-int-or-string"))):
            del value[key]


def _is_unwanted_null(value: Any, node: Node) -> bool:
    return value is None and bool(node) and not node.get("nullable")


RESOURCE_FIELDS = frozenset({"apiVersion", "kind", "metadata"})


def prune(obj: dict[str, Any], node: Node | None) -> list[str]:
    """Drop fields that the schema does not declare; returns the dropped paths, sorted (``bogus``, ``spec.list[0].x``).

    apiVersion, kind and metadata of the object and of embedded resources stay; metadata is not checked.
    """
    if node is None:
        return []
    dropped: list[str] = []
    _prune_map(obj, node, "", True, dropped)
    return sorted(dropped)


def prune_value(value: Any, node: Node) -> list[str]:
    """Like `prune`, for a value inside an object, where apiVersion, kind and metadata are normal fields."""
    dropped: list[str] = []
    _prune(value, node, "", dropped)
    return sorted(path.removeprefix(".") for path in dropped)


def _prune(value: Any, node: Node, path: str, dropped: list[str]) -> None:
    if isinstance(value, dict):
        _prune_map(value, node, path + ".", bool(node.get("x-kubernetes-embedded-resource")), dropped)
    elif isinstance(value, list):
        items = node.get("items") or ({"x-kubernetes-preserve-unknown-fields": True} if _is_open(node) else {})
        for index, item in enumerate(value):
            _prune(item, items, f"{path}[{index}]", dropped)


def _prune_map(value: dict[str, Any], node: Node, prefix: str, resource: bool, dropped: list[str]) -> None:
    properties = node.get("properties") or {}
    extra = node.get("additionalProperties")
    for key in list(value):
        if resource and key in RESOURCE_FIELDS:
            continue
        child = properties.get(key)
        if child is None and isinstance(extra, dict):
            child = extra
        if child is not None:
            _prune(value[key], child, prefix + key, dropped)
        elif not extra and not _is_open(node):
            dropped.append(prefix + key)
            del value[key]


def _is_open(node: Node) -> bool:
    return bool(node.get("x-kubernetes-preserve-unknown-fields"))


Level = Literal["root", "item", "field"]

JUNCTORS = ("allOf", "anyOf", "oneOf")
INT_OR_STRING, PRESERVE = "x-kubernetes-int-or-string", "x-kubernetes-preserve-unknown-fields"
EMBEDDED = "x-kubernetes-embedded-resource"
RULES = "x-kubernetes-validations"
_INT_OR_STRING_BRANCHES = [{"type": "integer"}, {"type": "string"}]
_EMPTY_TYPE = {"root": "must not be empty at the root", "item": "must not be empty for specified array items",
               "field": "must not be empty for specified object fields"}
_OWN_TO_THE_OUTSIDE = {
    "must be empty to be structural": ("type", "title", "description", "x-kubernetes-list-map-keys",
                                       RULES),
    "must be undefined to be structural": ("additionalProperties", "default", "x-kubernetes-list-type",
                                           "x-kubernetes-map-type"),
    "must be false to be structural": ("nullable", PRESERVE, EMBEDDED, INT_OR_STRING)}


def structural_causes(schema: Node, path: str = "") -> list[Cause]:
    """The errors that make a schema not structural; `path` is the schema's place."""
    found = [*_invariants(schema, "root", path), *_completeness(schema, path)]
    return sorted(found, key=Cause.text)


def children(node: Node, path: str) -> Iterator[tuple[Node, Level, str]]:
    """Yield (schema, level, path) for each direct subschema: properties, additionalProperties and items."""
    for name, child in (node.get("properties") or {}).items():
        yield child, "field", f"{path}.properties[{name}]"
    if isinstance(extra := node.get("additionalProperties"), Mapping):
        yield extra, "field", f"{path}.additionalProperties"
    if isinstance(items := node.get("items"), Mapping):
        yield items, "item", f"{path}.items"


def branches(node: Node, path: str) -> Iterator[tuple[Node, str]]:
    """Yield (schema, path) for each subschema in a schema's allOf, anyOf, oneOf and not."""
    for junctor in JUNCTORS:
        for index, branch in enumerate(node.get(junctor) or ()):
            yield branch, f"{path}.{junctor}[{index}]"
    if isinstance(negated := node.get("not"), Mapping):
        yield negated, f"{path}.not"


def declares_rules(schema: Node) -> bool:
    """Whether a schema contains rules (rules.py), even in places where rules are not allowed."""
    below = (*(child for child, *_ in children(schema, "")), *(branch for branch, _ in branches(schema, "")))
    return bool(schema.get(RULES)) or any(map(declares_rules, below))


def _invariants(node: Node, level: Level, path: str) -> Iterator[Cause]:
    for child, inner, place in children(node, path):
        yield from _invariants(child, inner, place)
    skipped = _int_or_string_branch(node)
    for branch, place in branches(node, path):
        if skipped != "anyOf" or not place.startswith(f"{path}.anyOf"):
            yield from _branch_invariants(branch, place, skip_any_of=skipped == "allOf" and
                                          place == f"{path}.allOf[0]")
    kind, embedded = node.get("type") or "", bool(node.get(EMBEDDED))
    if embedded and kind != "object":
        yield wrong_type(f"{path}.type", kind, f"must be object if {EMBEDDED} is true")
    elif not kind and not node.get(INT_OR_STRING) and not node.get(PRESERVE):
        yield validation.required(f"{path}.type", _EMPTY_TYPE[level])
    if level == "root" and kind not in ("", "object"):
        yield validation.invalid_value(f"{path}.type", kind, "must be object at the root")
    if level == "root" and node.get("additionalProperties"):
        yield validation.forbidden_field(f"{path}.additionalProperties", "must not be used at the root")
    if embedded and node.get("additionalProperties"):
        yield validation.forbidden_field(f"{path}.additionalProperties", f"must not be used if {EMBEDDED} is set")
    if embedded and not node.get(PRESERVE) and not node.get("properties"):
        yield validation.required(f"{path}.properties", f"must not be empty if {EMBEDDED} is true without {PRESERVE}")
    if level == "root" or embedded:
        yield from _resource_field_causes(node.get("properties") or {}, f"{path}.properties")


def wrong_type(path: str, kind: str, detail: str) -> Cause:
    """The error for a type that is missing or is not the required type."""
    return validation.invalid_value(path, kind, detail) if kind else validation.required(path, detail)


def _int_or_string_branch(node: Node) -> str:
    """The keyword in which an int-or-string names its types: "anyOf", "allOf" (in its first schema), or "" for none."""
    if node.get("anyOf") == _INT_OR_STRING_BRANCHES:
        return "anyOf"
    first = (node.get("allOf") or [{}])[0]
    return "allOf" if first.get("anyOf") == _INT_OR_STRING_BRANCHES else ""


def _branch_invariants(node: Node, path: str, *, skip_any_of: bool = False) -> Iterator[Cause]:
    for detail, keys in _OWN_TO_THE_OUTSIDE.items():
        for key in keys:
            if node.get(key) not in (None, "", False, []):
                yield validation.forbidden_field(f"{path}.{key}", detail)
    if "metadata" in (node.get("properties") or {}):
        yield validation.forbidden_field(f"{path}.properties[metadata]", "must not be specified in a nested context")
    for child, _, place in children(node, path):
        if not place.endswith(".additionalProperties"):
            yield from _branch_invariants(child, place)
    for branch, place in branches(node, path):
        if not (skip_any_of and place.startswith(f"{path}.anyOf")):
            yield from _branch_invariants(branch, place)


def _resource_field_causes(properties: Node, path: str) -> Iterator[Cause]:
    for name in ("apiVersion", "kind"):
        if name in properties and properties[name].get("type") != "string":
            yield validation.invalid_value(f"{path}[{name}].type", properties[name].get("type", ""), "must be string")
    metadata = properties.get("metadata")
    if metadata is None:
        return
    if metadata.get("type") != "object":
        yield validation.invalid_value(f"{path}[metadata].type", metadata.get("type", ""), "must be object")
    more = {key for key, value in metadata.items() if value not in (None, "", False, [], {})} - {"type", "default"}
    if not more <= {"properties"} or not (metadata.get("properties") or {}).keys() <= {"name", "generateName"}:
        yield validation.forbidden_field(f"{path}[metadata]", "must not specify anything other than name "
                                         "and generateName, but metadata is implicitly specified")


def _completeness(node: Node, path: str) -> Iterator[Cause]:
    """The errors of fields that only branches name. Only the root's branches are checked, as on the server."""
    for branch, place in branches(node, path):
        yield from _declared(branch, node, place, path)


def _declared(branch: Node, node: Node, path: str, outside: str) -> Iterator[Cause]:
    """The errors for fields that a branch names but the schema itself does not declare."""
    declared = {place.removeprefix(outside): child for child, _, place in children(node, outside)}
    for child, _, place in children(branch, path):
        key = place.removeprefix(path)
        if key == ".additionalProperties":
            continue
        if key in declared:
            yield from _declared(child, declared[key], place, outside + key)
        else:
            yield validation.required(outside + key, f"because it is defined in {place}")
    for inner, place in branches(branch, path):
        yield from _declared(inner, node, place, outside)


TYPES = ("array", "boolean", "integer", "number", "object", "string")
_SCALARS = ("boolean", "integer", "number", "string")
_UNSUPPORTED = ("$ref", "additionalItems", "definitions", "dependencies", "id", "patternProperties")
_LIST_TYPE, _MAP_KEYS, _MAP_TYPE = "x-kubernetes-list-type", "x-kubernetes-list-map-keys", "x-kubernetes-map-type"
_PRESERVE = "x-kubernetes-preserve-unknown-fields"
_TWICE = "FieldValueDuplicate"  # duplicates in lists are not checked in a default


def schema_definition_causes(schema: Node, path: str = "") -> list[Cause]:
    """All errors of a version's `openAPIV3Schema` except the errors of its rules; `path` is the schema's place."""
    found = list(_keyword_causes(schema, path))
    if schema.get("nullable"):
        found.append(validation.forbidden_field(f"{path}.nullable", "nullable cannot be true at the root"))
    if hidden := _unreadable(schema):  # the real server cannot check the structure of such a schema
        return found or [validation.invalid_value(path, "", f"OpenAPIV3Schema '{hidden}' is not supported")]
    found += structural_causes(schema, path)
    return found or list(_default_causes(schema, path))


def every_node(schema: Node, path: str = "") -> Iterator[tuple[Node, str]]:
    """Yield (schema, path) for a schema and all of its subschemas, including those in allOf, anyOf, oneOf and not."""
    yield schema, path
    for child, _, place in children(schema, path):
        yield from every_node(child, place)
    for branch, place in branches(schema, path):
        yield from every_node(branch, place)


def unknown_formats(schema: Node) -> list[str]:
    """The formats in a schema that the server does not know, each once, sorted."""
    return sorted({text for node, _ in every_node(schema)
                   if (text := node.get("format")) and not is_known(text, node.get("type") or "")})


def _unreadable(schema: Node) -> str:
    for node, _ in every_node(schema):
        for key in ("id", "$schema", *_UNSUPPORTED):
            if node.get(key):
                return key.removeprefix("$") if key == "$schema" else key
        if isinstance(node.get("items"), list):
            return "items"
    return ""


def _keyword_causes(schema: Node, path: str) -> Iterator[Cause]:
    for node, place in every_node(schema, path):
        for key in _UNSUPPORTED:
            if node.get(key):
                yield validation.forbidden_field(f"{place}.{key}", f"{key} is not supported")
        yield from _type_causes(node, place)
        yield from _list_type_causes(node, place)
        yield from _map_type_causes(node, place)
        if node.get("uniqueItems"):
            yield validation.forbidden_field(f"{place}.uniqueItems", "uniqueItems cannot be set to true since the "
                                             "runtime complexity becomes quadratic")
        if node.get("properties") and node.get("additionalProperties") is not None:
            yield validation.forbidden_field(f"{place}.additionalProperties",
                                         "additionalProperties and properties are mutual exclusive")
        if node.get(_PRESERVE) is False:
            yield validation.invalid_value(f"{place}.{_PRESERVE}", False, "must be true or undefined")
        if pattern := node.get("pattern"):
            try:
                compiled(pattern)
            except PatternError as error:
                yield validation.invalid_value(f"{place}.pattern", pattern,
                                           f"must be a valid regular expression, but isn't: {error}")


def _type_causes(node: Node, path: str) -> Iterator[Cause]:
    kind, items = node.get("type") or "", node.get("items")
    if kind and kind not in TYPES:
        yield validation.not_supported(f"{path}.type", kind, TYPES)
    if kind == "null":
        yield validation.forbidden_field(f"{path}.type", "type cannot be set to null, use nullable as an alternative")
    if isinstance(items, list):
        yield validation.forbidden_field(f"{path}.items", "items must be a schema object and not an array")
    elif kind == "array" and items is None:
        yield validation.required(f"{path}.items", "must be specified")


def _map_type_causes(node: Node, path: str) -> Iterator[Cause]:
    given = node.get(_MAP_TYPE)
    if given is None:
        return
    if node.get("type") != "object":
        yield wrong_type(f"{path}.type", node.get("type") or "", f"must be object if {_MAP_TYPE} is specified")
    if given not in ("atomic", "granular"):
        yield validation.not_supported(f"{path}.{_MAP_TYPE}", given, ("atomic", "granular"))


def _list_type_causes(node: Node, path: str) -> Iterator[Cause]:
    given, keys = node.get(_LIST_TYPE), node.get(_MAP_KEYS) or []
    if given is not None and node.get("type") != "array":
        yield wrong_type(f"{path}.type", node.get("type") or "", f"must be array if {_LIST_TYPE} is specified")
    if given is not None and given not in ("atomic", "set", "map"):
        yield validation.not_supported(f"{path}.{_LIST_TYPE}", given, ("atomic", "set", "map"))
    if keys and given != "map":
        yield wrong_type(f"{path}.{_LIST_TYPE}", given or "", f"must be map if {_MAP_KEYS} is non-empty")
    items = node.get("items")
    if given == "map":
        yield from _map_key_causes(keys, items, path)
    elif given == "set" and isinstance(items, Mapping):
        yield from _set_item_causes(items, f"{path}.items")


def _map_key_causes(keys: list[str], items: Any, path: str) -> Iterator[Cause]:
    if not keys:
        yield validation.required(f"{path}.{_MAP_KEYS}", f"must not be empty if {_LIST_TYPE} is map")
    if not isinstance(items, Mapping):
        yield validation.required(f"{path}.items", f"must have a schema if {_LIST_TYPE} is map")
        return
    if items.get("type") != "object":
        yield wrong_type(f"{path}.items.type", items.get("type") or "",
                         f"must be object if parent array's {_LIST_TYPE} is map")
        return
    if items.get("nullable"):
        yield validation.forbidden_field(f"{path}.items.nullable", f"cannot be nullable when {_LIST_TYPE} is map")
    if len(set(keys)) < len(keys):
        yield validation.invalid_value(f"{path}.{_MAP_KEYS}", keys, "must not contain duplicate entries")
    properties = items.get("properties") or {}
    for key in dict.fromkeys(keys):
        if key not in properties:
            yield validation.invalid_value(f"{path}.{_MAP_KEYS}", keys, "entries must all be names of item properties")
            continue
        at, declared = f"{path}.items.properties[{key}]", properties[key]
        if declared.get("type") and declared["type"] not in _SCALARS:
            yield validation.invalid_value(f"{at}.type", declared["type"],
                                       f"must be a scalar type if parent array's {_LIST_TYPE} is map")
        if "default" not in declared and key not in (items.get("required") or ()):
            yield validation.required(f"{at}.default", f"this property is in {_MAP_KEYS}, so it must have a "
                                      "default or be a required property")
        if declared.get("nullable"):
            yield validation.forbidden_field(f"{at}.nullable", f"this property is in {_MAP_KEYS}, "
                                             "so it cannot be nullable")


def _set_item_causes(items: Node, path: str) -> Iterator[Cause]:
    if items.get("nullable"):
        yield validation.forbidden_field(f"{path}.nullable", f"cannot be nullable when {_LIST_TYPE} is set")
    detail = f"must be atomic as item of a list with {_LIST_TYPE}=set"
    if items.get("type") == "object" and items.get(_MAP_TYPE) != "atomic":
        yield validation.invalid_value(f"{path}.{_MAP_TYPE}", items.get(_MAP_TYPE), detail)
    if items.get("type") == "array" and items.get(_LIST_TYPE) not in (None, "atomic"):
        yield validation.invalid_value(f"{path}.{_LIST_TYPE}", items[_LIST_TYPE], detail)


def _default_causes(schema: Node, path: str) -> Iterator[Cause]:
    """Each default must be valid by its own schema: of the right type, without unknown fields."""
    for child, _, place in children(schema, path):
        if child.get("default") is not None:
            at, value = f"{place}.default", json_copy(child["default"])
            if prune_value(value, child):
                yield validation.invalid_value(at, child["default"], "must not have unknown fields")
            apply_defaults(value, child)
            yield from (cause for cause in below(at, schema_causes(value, child)) if cause.reason != _TWICE)
        yield from _default_causes(child, place)


Schema = dict[str, Any]

_PATH_PART = re.compile(r"\.([A-Za-z_][\w-]*)|\['((?:[^'\\]|\\.)+)'\]")


def resolve_field(path: str, schema: Schema) -> tuple[Schema | None, str]:
    """The schema at the path (``.spec.color``) of a selectable field, or None and the reason."""
    if path[0] not in ".[":
        return None, f"expected [ or . but got: {path.partition('.')[0]}"
    if "[" in path:
        return None, "array notation is not allowed"
    found: Any = schema
    for part in path[1:].split("."):
        found = (found.get("properties") or {}).get(part) or found.get("additionalProperties")
        if not isinstance(found, dict):
            return None, "does not refer to a valid field"
    return found, ""


def leads_somewhere(path: str, node: Mapping[str, Any]) -> bool:
    """Whether the `fieldPath` of a rule, ``.a.b`` or ``.a['b']``, leads to a field below a schema."""
    found: Any = node
    parts = list(_PATH_PART.finditer(path))
    if "".join(part[0] for part in parts) != path:
        return False
    for part in parts:
        name = part[1] or part[2].replace("\\'", "'")
        found = (found.get("properties") or {}).get(name) or found.get("additionalProperties")
        if not isinstance(found, Mapping):
            return False
    return True
