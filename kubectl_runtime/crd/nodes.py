"""What cannot be said by the keyword that is meant for it: enums that take a null, base64 that takes an empty text.

The API server holds a null against an ``enum``, in which it finds none even if one stands there, and takes no empty
text as ``format: byte``. A null is never held against an ``allOf``, and an ``anyOf`` names the empty text besides.
"""
from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Schema = dict[str, Any]

BASE64: Schema = {"type": "string", "anyOf": [{"format": "byte"}, {"maxLength": 0}]}


def nullable(schema: Schema) -> Schema:
    """A schema that takes a null as well."""
    if "enum" in schema:
        choices = [value for value in schema["enum"] if value is not None]
        schema = {key: value for key, value in schema.items() if key != "enum"} | {"allOf": [{"enum": choices}]}
    return {**schema, "nullable": True}


def plain(node: Mapping[str, Any]) -> Mapping[str, Any]:
    """A schema with `enum` and ``format: byte`` where `nullable` and `BASE64` spell them otherwise."""
    match node:
        case {"nullable": True, "allOf": [{"enum": choices, **others}]} if not others and "enum" not in node:
            return {key: value for key, value in node.items() if key != "allOf"} | {"enum": choices}
        case {"type": "string", "anyOf": branches} if branches == BASE64["anyOf"] and "format" not in node:
            return {key: value for key, value in node.items() if key != "anyOf"} | {"format": "byte"}
    return node


def enum_schema(values: list[Any], where: str) -> Schema:
    """The schema of these values; `where` is for the TypeError of mixed ones."""
    present = [value for value in values if value is not None]
    types = {type(value) for value in present}
    if types not in ({str}, {int}):
        raise TypeError(f"{where}: the values of an enum must all be text or all be integers")
    schema: Schema = {"type": "string" if types == {str} else "integer", "enum": present}
    return schema if len(present) == len(values) else nullable(schema)
