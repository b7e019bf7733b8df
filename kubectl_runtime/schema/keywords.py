"""What the API server refuses in the schema of a CustomResourceDefinition besides its not being structural: keywords
that it does not know, types, patterns, list and map types, defaults that are not valid themselves.

`schema_definition_causes` is the whole check, as `validateCustomResourceDefinitionOpenAPISchema` of
apiextensions-apiserver puts it together. Unknown string formats are not errors; `unknown_formats` names them, for the
warning.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from kubectl_runtime.core.codec.jsonvalues import json_copy
from kubectl_runtime.schema import causes
from kubectl_runtime.schema.causes import Cause
from kubectl_runtime.schema.defaulting import apply_defaults
from kubectl_runtime.schema.formats import is_known
from kubectl_runtime.schema.patterns import PatternError, compiled
from kubectl_runtime.schema.pruning import prune_value
from kubectl_runtime.schema.structural import branches, children, structural_causes, wrong_type
from kubectl_runtime.schema.validation import below, schema_causes

Node = Mapping[str, Any]

TYPES = ("array", "boolean", "integer", "number", "object", "string")
_SCALARS = ("boolean", "integer", "number", "string")
_UNSUPPORTED = ("$ref", "additionalItems", "definitions", "dependencies", "id", "patternProperties")
_LIST_TYPE, _MAP_KEYS, _MAP_TYPE = "x-kubernetes-list-type", "x-kubernetes-list-map-keys", "x-kubernetes-map-type"
_PRESERVE = "x-kubernetes-preserve-unknown-fields"
_TWICE = "FieldValueDuplicate"  # what is there twice in a list is not looked at in a default


def schema_definition_causes(schema: Node, path: str = "") -> list[Cause]:
    """Everything that is wrong with a version's `openAPIV3Schema` except its rules; `path` is where it stands."""
    found = list(_keyword_causes(schema, path))
    if schema.get("nullable"):
        found.append(causes.forbidden_field(f"{path}.nullable", "nullable cannot be true at the root"))
    if hidden := _unreadable(schema):  # then the real server cannot look whether it is structural
        return found or [causes.invalid_value(path, "", f"OpenAPIV3Schema '{hidden}' is not supported")]
    found += structural_causes(schema, path)
    return found or list(_default_causes(schema, path))


def every_node(schema: Node, path: str = "") -> Iterator[tuple[Node, str]]:
    """(schema, path) of a schema and of all that is below it, junctors included."""
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
                yield causes.forbidden_field(f"{place}.{key}", f"{key} is not supported")
        yield from _type_causes(node, place)
        yield from _list_type_causes(node, place)
        yield from _map_type_causes(node, place)
        if node.get("uniqueItems"):
            yield causes.forbidden_field(f"{place}.uniqueItems", "uniqueItems cannot be set to true since the runtime "
                                         "complexity becomes quadratic")
        if node.get("properties") and node.get("additionalProperties") is not None:
            yield causes.forbidden_field(f"{place}.additionalProperties",
                                         "additionalProperties and properties are mutual exclusive")
        if node.get(_PRESERVE) is False:
            yield causes.invalid_value(f"{place}.{_PRESERVE}", False, "must be true or undefined")
        if pattern := node.get("pattern"):
            try:
                compiled(pattern)
            except PatternError as error:
                yield causes.invalid_value(f"{place}.pattern", pattern,
                                           f"must be a valid regular expression, but isn't: {error}")


def _type_causes(node: Node, path: str) -> Iterator[Cause]:
    kind, items = node.get("type") or "", node.get("items")
    if kind and kind not in TYPES:
        yield causes.not_supported(f"{path}.type", kind, TYPES)
    if kind == "null":
        yield causes.forbidden_field(f"{path}.type", "type cannot be set to null, use nullable as an alternative")
    if isinstance(items, list):
        yield causes.forbidden_field(f"{path}.items", "items must be a schema object and not an array")
    elif kind == "array" and items is None:
        yield causes.required(f"{path}.items", "must be specified")


def _map_type_causes(node: Node, path: str) -> Iterator[Cause]:
    given = node.get(_MAP_TYPE)
    if given is None:
        return
    if node.get("type") != "object":
        yield wrong_type(f"{path}.type", node.get("type") or "", f"must be object if {_MAP_TYPE} is specified")
    if given not in ("atomic", "granular"):
        yield causes.not_supported(f"{path}.{_MAP_TYPE}", given, ("atomic", "granular"))


def _list_type_causes(node: Node, path: str) -> Iterator[Cause]:
    given, keys = node.get(_LIST_TYPE), node.get(_MAP_KEYS) or []
    if given is not None and node.get("type") != "array":
        yield wrong_type(f"{path}.type", node.get("type") or "", f"must be array if {_LIST_TYPE} is specified")
    if given is not None and given not in ("atomic", "set", "map"):
        yield causes.not_supported(f"{path}.{_LIST_TYPE}", given, ("atomic", "set", "map"))
    if keys and given != "map":
        yield wrong_type(f"{path}.{_LIST_TYPE}", given or "", f"must be map if {_MAP_KEYS} is non-empty")
    items = node.get("items")
    if given == "map":
        yield from _map_key_causes(keys, items, path)
    elif given == "set" and isinstance(items, Mapping):
        yield from _set_item_causes(items, f"{path}.items")


def _map_key_causes(keys: list[str], items: Any, path: str) -> Iterator[Cause]:
    if not keys:
        yield causes.required(f"{path}.{_MAP_KEYS}", f"must not be empty if {_LIST_TYPE} is map")
    if not isinstance(items, Mapping):
        yield causes.required(f"{path}.items", f"must have a schema if {_LIST_TYPE} is map")
        return
    if items.get("type") != "object":
        yield wrong_type(f"{path}.items.type", items.get("type") or "",
                         f"must be object if parent array's {_LIST_TYPE} is map")
        return
    if items.get("nullable"):
        yield causes.forbidden_field(f"{path}.items.nullable", f"cannot be nullable when {_LIST_TYPE} is map")
    if len(set(keys)) < len(keys):
        yield causes.invalid_value(f"{path}.{_MAP_KEYS}", keys, "must not contain duplicate entries")
    properties = items.get("properties") or {}
    for key in dict.fromkeys(keys):
        if key not in properties:
            yield causes.invalid_value(f"{path}.{_MAP_KEYS}", keys, "entries must all be names of item properties")
            continue
        at, declared = f"{path}.items.properties[{key}]", properties[key]
        if declared.get("type") and declared["type"] not in _SCALARS:
            yield causes.invalid_value(f"{at}.type", declared["type"],
                                       f"must be a scalar type if parent array's {_LIST_TYPE} is map")
        if "default" not in declared and key not in (items.get("required") or ()):
            yield causes.required(f"{at}.default", f"this property is in {_MAP_KEYS}, so it must have a default or be "
                                  "a required property")
        if declared.get("nullable"):
            yield causes.forbidden_field(f"{at}.nullable", f"this property is in {_MAP_KEYS}, so it cannot be nullable")


def _set_item_causes(items: Node, path: str) -> Iterator[Cause]:
    if items.get("nullable"):
        yield causes.forbidden_field(f"{path}.nullable", f"cannot be nullable when {_LIST_TYPE} is set")
    detail = f"must be atomic as item of a list with {_LIST_TYPE}=set"
    if items.get("type") == "object" and items.get(_MAP_TYPE) != "atomic":
        yield causes.invalid_value(f"{path}.{_MAP_TYPE}", items.get(_MAP_TYPE), detail)
    if items.get("type") == "array" and items.get(_LIST_TYPE) not in (None, "atomic"):
        yield causes.invalid_value(f"{path}.{_LIST_TYPE}", items[_LIST_TYPE], detail)


def _default_causes(schema: Node, path: str) -> Iterator[Cause]:
    """Each default is a value that its own schema takes whole: of the right type, nothing of it pruned."""
    for child, _, place in children(schema, path):
        if child.get("default") is not None:
            at, value = f"{place}.default", json_copy(child["default"])
            if prune_value(value, child):
                yield causes.invalid_value(at, child["default"], "must not have unknown fields")
            apply_defaults(value, child)
            yield from (cause for cause in below(at, schema_causes(value, child)) if cause.reason != _TWICE)
        yield from _default_causes(child, place)
