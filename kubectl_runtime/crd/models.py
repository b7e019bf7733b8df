"""Structural schemas of pydantic models, from pydantic's JSON schemas.

The schemas are those of `kubectl_runtime.crd.schema`, also for parts of the API and for marks, with these differences:

- nested models, generics and RootModel are inlined, never a $ref; a model that contains itself is refused
- `T | None` is nullable, although null is never sent
- a discriminated union has all members' properties, its tag as an enum, and one `oneOf` branch per tag; it is refused
  if two members declare a property differently. `int | str` is `x-kubernetes-int-or-string`; other unions are refused
- Decimal is a string with a pattern, timedelta an ISO 8601 string with a pattern, bytes a UTF-8 string
- `Field(ge=…, max_length=…, pattern=…)` sets the same limits in the schema; pydantic refuses patterns that RE2
  does not support
- `Field(alias=…)` and alias_generator set the key on the wire, which by default is the attribute's name. A validation
  alias that differs from the alias, or has several keys, is refused
- defaults become `default`, except for empty lists and maps
- `set[T]` is a list of type set and may hold only scalars; `tuple[T, T]` is a list of two items
- dicts with constrained keys, tuples of mixed types, null alone, and conditions (if, not) are refused
- `extra="allow"` preserves unknown fields; computed fields are never in the schema and never sent

Two keywords of JSON Schema cannot be used directly. The API server refuses a null for an ``enum`` even if null is one
of the enum's values, and refuses an empty text for ``format: byte``. Therefore `nullable` writes the enum into an
``allOf``, which the server does not apply to null, and `BASE64` is an ``anyOf`` that includes the empty text.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from kubectl_runtime.crd.marks import rules_on

Schema = dict[str, Any]

BASE64: Schema = {"type": "string", "anyOf": [{"format": "byte"}, {"maxLength": 0}]}


def nullable(schema: Schema) -> Schema:
    """Return a schema that also accepts null."""
    if "enum" in schema:
        choices = [value for value in schema["enum"] if value is not None]
        schema = {key: value for key, value in schema.items() if key != "enum"} | {"allOf": [{"enum": choices}]}
    return {**schema, "nullable": True}


def plain(node: Mapping[str, Any]) -> Mapping[str, Any]:
    """Undo `nullable` and `BASE64`: return the schema with a plain `enum` and with ``format: byte``."""
    match node:
        case {"nullable": True, "allOf": [{"enum": choices, **others}]} if not others and "enum" not in node:
            return {key: value for key, value in node.items() if key != "allOf"} | {"enum": choices}
        case {"type": "string", "anyOf": branches} if branches == BASE64["anyOf"] and "format" not in node:
            return {key: value for key, value in node.items() if key != "anyOf"} | {"format": "byte"}
    return node


def enum_schema(values: list[Any], where: str) -> Schema:
    """Return the schema of these values. Raises TypeError, which names `where`, for mixed types."""
    present = [value for value in values if value is not None]
    types = {type(value) for value in present}
    if types not in ({str}, {int}):
        raise TypeError(f"{where}: the values of an enum must all be text or all be integers")
    schema: Schema = {"type": "string" if types == {str} else "integer", "enum": present}
    return schema if len(present) == len(values) else nullable(schema)


_KEPT = ("type", "format", "description", "pattern", "minimum", "maximum", "multipleOf", "minLength", "maxLength",
         "minItems", "maxItems", "minProperties", "maxProperties", "nullable", "exclusiveMinimum", "exclusiveMaximum")
_DROPPED = {"title", "examples", "deprecated", "readOnly", "writeOnly", "discriminator", "contentMediaType",
            "contentEncoding", "$defs"}
_READ = {"$ref", "anyOf", "oneOf", "allOf", "enum", "const", "properties", "required", "additionalProperties", "items",
         "prefixItems", "uniqueItems", "default", *_KEPT}
_FORMATS_OF_OURS = {"binary", "duration", "path", "file-path", "directory-path"}
_ISO_DURATION = r"^[-+]?P(\d+(\.\d+)?W|(\d+(\.\d+)?D)?(T(\d+H)?(\d+M)?(\d+(\.\d+)?S)?)?)$"
_DECIMAL = r"^[-+]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][-+]?[0-9]+)?$"
_PRESERVE, _INT_OR_STRING = "x-kubernetes-preserve-unknown-fields", "x-kubernetes-int-or-string"
_SCALAR = ("string", "integer", "number", "boolean")


def model_schema(cls: Any, where: str, other: Callable[[Any, str], Schema]) -> Schema:
    """Return the structural schema of a model. If a field has one of this library's own types, such as `Quantity`,
    `other` makes the field's schema. Raises TypeError, which names the field, for a type without a schema."""
    for name, field in cls.model_fields.items():
        if not isinstance(field.validation_alias, (str, type(None))) or (
                field.validation_alias or name) != (field.serialization_alias or name):
            raise TypeError(f"{where}.{name}: a field must be read and written under the same key; use alias= "
                            "instead of validation_alias= and serialization_alias=")
    try:
        found = cls.model_json_schema(by_alias=True, schema_generator=_generator())
    except Exception as error:  # noqa: BLE001 - pydantic's errors have no common base
        raise TypeError(f"{where}: {cls.__name__} has no schema: {type(error).__name__}: {error}") from None
    schema = _Structure(found.get("$defs") or {}, other).of(found, where, ())
    if own := rules_on(cls):
        schema["x-kubernetes-validations"] = [rule.to_dict() for rule in own]
    return schema


@cache
def _generator() -> Any:
    """Pydantic's schema generator, except that a Decimal is a string, as it is serialized, and not `float | str`."""
    from pydantic.json_schema import GenerateJsonSchema

    class Generator(GenerateJsonSchema):
        def decimal_schema(self, schema: Any) -> dict[str, Any]:  # noqa: ARG002 - pydantic's signature
            return {"type": "string", "pattern": _DECIMAL}

    return Generator


class _Structure:
    """Converts one model's JSON schema; `definitions` are the schemas that the model's schema refers to."""

    def __init__(self, definitions: Mapping[str, Schema], other: Callable[[Any, str], Schema]) -> None:
        self._definitions = definitions
        self._other = other

    def of(self, node: Schema, where: str, inside: tuple[str, ...]) -> Schema:
        """Return the structural form of a node. Raises TypeError."""
        if (reference := node.get("$ref")) is not None:
            name = reference.rpartition("/")[2]
            if name in inside:
                way = " -> ".join((*inside[inside.index(name):], name))
                raise TypeError(f"{where}: {name} contains itself ({way}): structural schemas cannot be recursive")
            rest = {key: value for key, value in node.items() if key != "$ref"}
            return self.of({**self._definitions[name], **rest}, where, (*inside, name))
        if (by_hand := node.get("x-kubernetes-field-schema")) is not None:
            return dict(by_hand)
        if (part := node.get("x-kubernetes-python-type")) is not None:
            return self._other(part, where)
        if strange := [key for key in node if key not in _READ | _DROPPED and not key.startswith("x-kubernetes-")]:
            raise TypeError(f"{where}: {', '.join(strange)} cannot be in a structural schema; annotate the "
                            "field with Annotated[..., FieldSchema({...})]")
        if len(parts := node.get("allOf") or []) == 1:
            return self.of({**parts[0], **{key: value for key, value in node.items() if key != "allOf"}}, where, inside)
        found = self._bare(node, where, inside)
        found |= {key: value for key, value in node.items() if key.startswith("x-kubernetes-")}
        default = node.get("default")
        if default is not None and (default not in ([], {}) or "properties" in found):
            found["default"] = default
        if node.get("description") and "description" not in found:
            found["description"] = node["description"]
        return found

    def _bare(self, node: Schema, where: str, inside: tuple[str, ...]) -> Schema:
        if _INT_OR_STRING in node or (_PRESERVE in node and "properties" not in node):
            return {"type": "object"} if node.get("type") == "object" else {}
        if node.get("oneOf"):
            return self._tagged(node, where, inside)
        if options := node.get("anyOf"):
            return self._union(options, where, inside)
        if values := [node["const"]] if "const" in node else node.get("enum"):
            return enum_schema(values, where)
        kept = {key: value for key, value in node.items() if key in _KEPT}
        for key, limit in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
            if key in kept:
                kept |= {limit: kept[key], key: True}
        kind = node.get("type")
        if kind == "string":
            return _text(kept)
        if kind == "object":
            return {**kept, **self._object(node, where, inside)}
        if kind == "array":
            return {**kept, **self._array(node, where, inside)}
        if kind is None and not kept.keys() - {"description"}:
            return {**kept, _PRESERVE: True}
        if kind not in _SCALAR:
            raise TypeError(f"{where}: the type {kind} alone has no structural schema")
        return kept

    def _object(self, node: Schema, where: str, inside: tuple[str, ...]) -> Schema:
        extra, found = node.get("additionalProperties"), Schema()
        if properties := node.get("properties"):
            found["properties"] = {key: self.of(child, f"{where}.{key}", inside) for key, child in properties.items()}
            if node.get("required"):
                found["required"] = list(node["required"])
        elif isinstance(extra, Mapping) and extra:
            value = self.of(dict(extra), f"{where}[…]", inside)
            return {_PRESERVE: True} if value == {_PRESERVE: True} else {"additionalProperties": value}
        # For dict[str, Any], pydantic 2.7 writes no additionalProperties.
        any_map = extra == {} if "additionalProperties" in node else "properties" not in node
        return {**found, _PRESERVE: True} if extra is True or (any_map and not properties) else found

    def _array(self, node: Schema, where: str, inside: tuple[str, ...]) -> Schema:
        if (parts := node.get("prefixItems")) is not None:
            schemas = [self.of(part, f"{where}[{index}]", inside) for index, part in enumerate(parts)]
            if not schemas or any(schema != schemas[0] for schema in schemas):
                raise TypeError(f"{where}: a tuple of different types has no structural schema; use a model")
            return {"items": schemas[0], "minItems": len(schemas), "maxItems": len(schemas)}
        items = self.of(node.get("items") or {}, f"{where}[]", inside)
        if not node.get("uniqueItems"):
            return {"items": items}
        if items.get("nullable") or items.get("type") not in _SCALAR:
            raise TypeError(f"{where}: a set must hold scalars that cannot be null; use list")
        return {"items": items, "x-kubernetes-list-type": "set"}

    def _union(self, options: list[Schema], where: str, inside: tuple[str, ...]) -> Schema:
        others = [option for option in options if option.get("type") != "null"]
        if len(others) == 1 and len(options) == 2:
            return nullable(self.of(others[0], where, inside))
        kinds = sorted(str(option.get("type")) for option in others)
        empty = {"nullable": True} if len(others) < len(options) else {}
        if kinds == ["integer", "string"]:
            return {_INT_OR_STRING: True, **empty}
        raise TypeError(f"{where}: a union of {', '.join(kinds)} has no structural schema; use T | None, "
                        "int | str or a union with a discriminator, or give the schema with "
                        "Annotated[..., FieldSchema({...})]")

    def _tagged(self, node: Schema, where: str, inside: tuple[str, ...]) -> Schema:
        field = (node.get("discriminator") or {}).get("propertyName")
        if field is None:
            raise TypeError(f"{where}: a union without a discriminator has no structural schema")
        properties: Schema = {field: {"type": "string", "enum": []}}
        branches = []
        for option in node["oneOf"]:
            member = self.of(option, where, inside)
            name = option.get("$ref", "").rpartition("/")[2] or member.get("description", "a member")
            tags = member.get("properties", {}).get(field, {}).get("enum")
            if not tags:
                raise TypeError(f"{where}: {name} does not declare its {field} as a Literal")
            properties[field]["enum"] += tags
            for key, child in member["properties"].items():
                shared = {part: value for part, value in child.items() if part != "default"}
                if key != field and properties.setdefault(key, shared) != shared:
                    raise TypeError(f"{where}: {key} is declared differently by {name} and another member of the "
                                    "union, which a structural schema cannot express: rename one of the two fields")
            required = [key for key in member.get("required", ()) if key != field]
            branches.append({"properties": {field: {"enum": tags}}, "required": [field, *required]})
        return {"type": "object", "properties": properties, "required": [field], "oneOf": branches}


def _text(kept: Schema) -> Schema:
    form = kept.get("format")
    if form == "duration":
        kept["pattern"] = _ISO_DURATION
    if form in _FORMATS_OF_OURS:
        del kept["format"]
    return kept
