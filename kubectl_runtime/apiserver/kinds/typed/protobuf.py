"""Reads objects in Kubernetes' protobuf encoding, which typed Go clients (for example kubectl) send for built-in kinds.

``decode_protobuf(body)`` returns the object's JSON form. The server answers in JSON, which these clients accept. An
object is sent in an envelope: ``k8s`` and a zero byte, then apiVersion, kind and the message. The field numbers come
from types.json.gz. Unknown fields are skipped, as in the real decoder.
"""

from __future__ import annotations

import base64
import struct as binary
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

import msgspec

from kubectl_runtime.apiserver.kinds.typed.decode import types
from kubectl_runtime.apiserver.wire import Object

Fields = dict[int, "tuple[str, str] | Fields"]  # number -> (name, type), or the fields of a struct that JSON inlines

MAGIC = b"k8s\x00"
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class ProtobufError(ValueError):
    """The bytes are not a protobuf-encoded object."""


class UnknownTypeError(ProtobufError):
    """The object's kind has no protobuf form, for example because the object is a custom resource."""


def decode_protobuf(body: bytes) -> Object:
    """The object in its JSON form. Raises ProtobufError."""
    if not body.startswith(MAGIC):
        raise ProtobufError("provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]")
    envelope = dict(_fields(body[len(MAGIC):]))
    try:
        meta = dict(_fields(envelope.get(1, b"")))
        api_version, kind = meta.get(1, b"").decode(), meta.get(2, b"").decode()
    except (AttributeError, UnicodeDecodeError, TypeError):
        raise ProtobufError("the envelope names no kind") from None
    type_name = _type_name(api_version, kind)
    try:
        obj = _message(envelope.get(2, b""), _plan(type_name))
    except (UnicodeDecodeError, TypeError, ValueError, OverflowError, RecursionError, binary.error) as error:
        raise ProtobufError(f"{kind}: {error}") from None
    return {"apiVersion": api_version, "kind": kind, **obj}


def _type_name(api_version: str, kind: str) -> str:
    group, _, version = api_version.rpartition("/")
    for package in (group.partition(".")[0] or "core", "meta"):
        if (name := f"{package}.{version}.{kind}") in types():
            return name
    raise UnknownTypeError(f'no kind "{kind}" is registered for version "{api_version}"')


@cache
def _plan(type_name: str) -> Fields:
    """The fields of a type, by field number."""
    plan: Fields = {}
    for name, spec in types()[type_name].items():
        typed, _, number = spec.rpartition("@")
        *outer, last = number.split(".")
        if not last:
            continue
        place = plan
        for step in outer:
            inner = place.setdefault(int(step), {})
            assert isinstance(inner, dict), f"{type_name}.{name} is declared inside a field that is not a struct"
            place = inner
        place[int(last)] = (name, typed.lstrip("*!"))
    return plan


def _message(data: bytes, plan: Fields) -> Object:
    obj: Object = {}
    for number, value in _fields(data):
        field = plan.get(number)
        if field is None:
            continue
        if isinstance(field, dict):
            obj.update(_message(value, field))
            continue
        name, spec = field
        if spec.startswith("[]"):
            obj.setdefault(name, []).append(_value(value, spec[2:]))
        elif spec.startswith("{"):
            key, item = _entry(value, spec.partition("}")[2])
            obj.setdefault(name, {})[key] = item
        else:
            obj[name] = _value(value, spec)
    return obj


def _entry(data: bytes, spec: str) -> tuple[str, Any]:
    fields = dict(_fields(data))
    return fields.get(1, b"").decode(), _value(fields.get(2, b""), spec)


def _value(value: Any, spec: str) -> Any:
    if spec.startswith("."):
        return _message(value, _plan(spec[1:]))
    if spec.startswith("#[]"):
        return [_value(item, spec[3:]) for number, item in _fields(value) if number == 1]
    base = spec.partition(":")[0]
    if base == "string":
        return value.decode()
    if base == "bool":
        return bool(value)
    if base in ("int32", "int64"):
        return value - (1 << 64) if value >= 1 << 63 else value
    if base == "float64":
        return binary.unpack("<d", binary.pack("<Q", value))[0]
    return _special(value, base)


def _special(value: bytes, base: str) -> Any:
    if base == "bytes":
        return base64.b64encode(value).decode()
    fields = dict(_fields(value))
    if base in ("Time", "MicroTime"):
        return _time(fields, micro=base == "MicroTime")
    if base == "Quantity":
        return fields.get(1, b"0").decode()
    if base == "IntOrString":
        return fields.get(3, b"").decode() if fields.get(1) else _value(fields.get(2, 0), "int32")
    if base == "Duration":
        return f"{_value(fields.get(1, 0), 'int64') / 1e9:g}s"
    raw = fields.get(1)
    return msgspec.json.decode(raw) if raw else None


def _time(fields: dict[int, Any], *, micro: bool) -> str | None:
    if not fields:
        return None
    seconds = _value(fields.get(1, 0), "int64")
    moment = _EPOCH + timedelta(seconds=seconds, microseconds=fields.get(2, 0) // 1000)
    text = moment.replace(tzinfo=None).isoformat(timespec="microseconds" if micro else "seconds")
    return f"{text}Z"


def _fields(data: bytes) -> Iterator[tuple[int, Any]]:
    """(number, value) of each field in a message. A value is an int or bytes."""
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        kind = tag & 7
        if kind == _VARINT:
            value, at = _varint(data, at)
            yield tag >> 3, value
        elif kind == _BYTES:
            size, at = _varint(data, at)
            if at + size > len(data):
                raise ProtobufError("unexpected EOF")
            yield tag >> 3, data[at:at + size]
            at += size
        elif kind in (_FIXED64, _FIXED32):
            size = 8 if kind == _FIXED64 else 4
            if at + size > len(data):
                raise ProtobufError("unexpected EOF")
            yield tag >> 3, int.from_bytes(data[at:at + size], "little")
            at += size
        else:
            raise ProtobufError(f"proto: illegal wireType {kind}")


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(data) and shift < 70:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & (1 << 64) - 1, at
        shift += 7
    raise ProtobufError("unexpected EOF" if at >= len(data) else "proto: integer overflow")
