"""The OpenAPI v2 document in protobuf, as gnostic's `OpenAPIv2.proto` defines it.

kubectl accepts only this form when it validates an object whose kind no v3 document describes, for example because its
CRD is not installed. The field numbers are those of gnostic-models; the tables have only the messages that the document
uses.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterator, Mapping
from typing import Any

PROTOBUF_MEDIA = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
DEPRECATED_MEDIA = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"
"""The media type in requests. Its @ is not valid in a media type, so the answer has another media type."""

Object = Mapping[str, Any]
Encode = Callable[[Any], bytes]
Fields = dict[str, tuple[int, Encode]]
_DELIMITED, _DOUBLE = 2, 1


def encode_document(document: Object) -> bytes:
    return _message(_DOCUMENT, 16)(document)


def _varint(number: int) -> bytes:
    found = bytearray()
    number &= (1 << 64) - 1
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    found.append(number)
    return bytes(found)


def _field(number: int, content: bytes) -> bytes:
    return _varint(number << 3 | _DELIMITED) + _varint(len(content)) + content


def _any(value: Any) -> bytes:
    """Encode gnostic's Any, which holds YAML; JSON is valid YAML."""
    return _field(2, json.dumps(value, separators=(",", ":")).encode())


def _text(value: Any) -> bytes:
    return str(value).encode()


class _Number:
    """Encodes a field without a length prefix: an integer, boolean or double."""

    def __init__(self, *, double: bool = False) -> None:
        self.double = double

    def __call__(self, value: Any) -> bytes:
        return struct.pack("<d", value) if self.double else _varint(int(value))


_INTEGER, _FLOAT = _Number(), _Number(double=True)


def _entries(number: int, encode: Encode, value: Any) -> Iterator[bytes]:
    """Encode one field for each item of a list, or one field for a single value."""
    for item in value if isinstance(value, list) else (value,):
        if isinstance(encode, _Number):
            yield _varint(number << 3 | (_DOUBLE if encode.double else 0)) + encode(item)
        else:
            yield _field(number, encode(item))


def _message(fields: Fields, extensions: int = 0) -> Encode:
    """Encodes a message with these fields. Keys that start with `x-` become named vendor extensions."""
    def encode(value: Any) -> bytes:
        parts: list[bytes] = []
        for key, item in value.items():
            if key in fields:
                parts += _entries(*fields[key], [item] if key == "default" else item)
            elif extensions and key.startswith("x-"):
                parts.append(_field(extensions, _field(1, key.encode()) + _field(2, _any(item))))
        return b"".join(parts)
    return encode


def _named(encode: Encode, number: int = 1) -> Encode:
    """Encodes a map as repeated pairs of name and value."""
    def encoded(value: Any) -> bytes:
        return b"".join(_field(number, _field(1, str(key).encode()) + _field(2, encode(item)))
                        for key, item in value.items())
    return encoded


def _inside(number: int, encode: Encode) -> Encode:
    """Encodes a message that has alternatives; this server uses only the alternative `number`."""
    return lambda value: _field(number, encode(value))


def _schema(value: Any) -> bytes:
    return _SCHEMA_MESSAGE(value)


def _additional(value: Any) -> bytes:
    return _varint(2 << 3) + _varint(value) if isinstance(value, bool) else _field(1, _schema(value))


def _texts(values: Any) -> bytes:
    return b"".join(_field(1, _text(value)) for value in values)


def _parameter(value: Any) -> bytes:
    if value["in"] == "body":
        return _field(1, _field(1, _BODY(value)))
    number, encode = {"query": (3, _QUERY), "path": (4, _PATH)}[value["in"]]
    return _field(1, _field(2, _field(number, encode(value))))


_SCHEMA_MESSAGE = _message({
    "$ref": (1, _text), "format": (2, _text), "title": (3, _text), "description": (4, _text), "default": (5, _any),
    "multipleOf": (6, _FLOAT), "maximum": (7, _FLOAT), "exclusiveMaximum": (8, _INTEGER), "minimum": (9, _FLOAT),
    "exclusiveMinimum": (10, _INTEGER), "maxLength": (11, _INTEGER), "minLength": (12, _INTEGER),
    "pattern": (13, _text), "maxItems": (14, _INTEGER), "minItems": (15, _INTEGER), "uniqueItems": (16, _INTEGER),
    "maxProperties": (17, _INTEGER), "minProperties": (18, _INTEGER), "required": (19, _text), "enum": (20, _any),
    "additionalProperties": (21, _additional), "type": (22, _inside(1, _text)),
    "items": (23, _inside(1, _schema)), "allOf": (24, _schema), "properties": (25, _named(_schema)),
    "readOnly": (27, _INTEGER)}, 31)
_BODY = _message({"description": (1, _text), "name": (2, _text), "in": (3, _text), "required": (4, _INTEGER),
                  "schema": (5, _schema)}, 6)
_QUERY = _message({"required": (1, _INTEGER), "in": (2, _text), "description": (3, _text), "name": (4, _text),
                   "type": (6, _text), "format": (7, _text), "uniqueItems": (20, _INTEGER)}, 23)
_PATH = _message({"required": (1, _INTEGER), "in": (2, _text), "description": (3, _text), "name": (4, _text),
                  "type": (5, _text), "format": (6, _text), "uniqueItems": (19, _INTEGER)}, 22)
_RESPONSE = _message({"description": (1, _text), "schema": (2, _inside(1, _schema))}, 5)
_OPERATION = _message({
    "tags": (1, _text), "summary": (2, _text), "description": (3, _text), "operationId": (5, _text),
    "produces": (6, _text), "consumes": (7, _text), "parameters": (8, _parameter),
    "responses": (9, _named(_inside(1, _RESPONSE))), "schemes": (10, _text), "deprecated": (11, _INTEGER)}, 13)
_ITEM = _message({"get": (2, _OPERATION), "put": (3, _OPERATION), "post": (4, _OPERATION), "delete": (5, _OPERATION),
                  "options": (6, _OPERATION), "head": (7, _OPERATION), "patch": (8, _OPERATION),
                  "parameters": (9, _parameter)}, 10)
_API_KEY = _message({"type": (1, _text), "name": (2, _text), "in": (3, _text), "description": (4, _text)}, 5)
_DOCUMENT: Fields = {
    "swagger": (1, _text), "info": (2, _message({"title": (1, _text), "version": (2, _text)})),
    "paths": (8, _named(_ITEM, 2)), "definitions": (9, _named(_schema)), "security": (12, _named(_texts)),
    "securityDefinitions": (13, _named(_inside(2, _API_KEY)))}
