"""Gives JSON the shape of the real server's typed objects, as if it were decoded into a Go struct and encoded again.

types.json.gz (written by tests/tools/generate.py) declares each field.

- An empty optional value is removed. A pointer is removed only if it is null. A struct or a required field is written
  even if it is empty (``resources: {}``, ``machineID: ""``, ``lastProbeTime: null``).
- Unknown fields are dropped. Their paths are collected in the order of the text.
- Times, quantities and durations get their canonical form.
- Fields get the order of the Go struct, as in the real server's answers.
- A value of the wrong JSON type raises `BodyDecodeError` with the message of Go's decoder. For a text that is
  not a time, the message is that of Go's time package.

A decoder takes a value that is not null, its place, and the list that collects unknown fields. Places are linked tuples
``(outer place, name or index, Go struct)``, which become text only for an error or an unknown field. ``Time`` has
seconds and ``MicroTime`` has six further digits; both are in UTC.

Types are compiled on first use. Thread-safe: at worst, two threads compile the same type twice.
"""
from __future__ import annotations

import binascii
import gzip
import json
import re
from base64 import b64decode
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache, cached_property
from importlib import resources
from typing import Any

import msgspec

from kubectl_runtime.apiserver.errors import BodyDecodeError
from kubectl_runtime.apiserver.wire import Object
from kubectl_runtime.core.meta.quantities import canonical

TIME_LAYOUT = "2006-01-02T15:04:05Z07:00"
MICRO_LAYOUT = "2006-01-02T15:04:05.000000Z07:00"

_plain = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
_plain_micro = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z")
# The parts of a time in order: (text before the part, layout in errors, pattern, minimum, maximum, name in errors).
_PARTS = (
    ("", "2006", r"\d{4}", 0, 9999, "year"),
    ("-", "01", r"\d\d", 1, 12, "month"),
    ("-", "02", r"\d\d", 0, 99, "day"),  # the last day depends on the month; it is checked at the end
    ("T", "15", r"\d{1,2}", 0, 23, "hour"),
    (":", "04", r"\d\d", 0, 59, "minute"),
    (":", "05", r"\d\d", 0, 59, "second"),
)
_zone = re.compile(r"Z|([+-])(\d\d):(\d\d)")
_fraction = re.compile(r"[.,]\d+")
_micros = re.compile(r"\.\d{6}")


def canonical_time(text: str) -> str:
    """The time in UTC with whole seconds (fractions are cut off), as Go's Time writes it. Raises ValueError."""
    return text if _is_canonical(text, _plain) else _parse(text, TIME_LAYOUT).isoformat(timespec="seconds") + "Z"


def canonical_micro_time(text: str) -> str:
    """The time in UTC with six digits after the seconds, as Go's MicroTime writes it. Raises ValueError."""
    if _is_canonical(text, _plain_micro):
        return text
    return _parse(text, MICRO_LAYOUT).isoformat(timespec="microseconds") + "Z"


def _is_canonical(text: str, pattern: re.Pattern[str]) -> bool:
    """Whether a text is already in canonical form and is a date that exists."""
    if not pattern.fullmatch(text):
        return False
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return True


def _parse(text: str, layout: str) -> datetime:
    """The moment that a text describes, in UTC, as a datetime without time zone. Raises ValueError."""
    rest, numbers = text, []
    for before, element, pattern, least, most, name in _PARTS:
        if not rest.startswith(before):
            raise _refusal(text, layout, rest, before)
        rest = rest.removeprefix(before)
        match = re.match(pattern, rest)
        if match is None:
            raise _refusal(text, layout, rest, element)
        if not least <= int(match[0]) <= most:
            raise ValueError(f"parsing time {json.dumps(text)}: {name} out of range")
        numbers.append(int(match[0]))
        rest = rest[match.end():]
    micro = 0
    if layout == MICRO_LAYOUT:
        digits = _micros.match(rest)
        if digits is None:
            raise _refusal(text, layout, rest, ".000000")
        micro, rest = int(digits[0][1:]), rest[7:]
        if rest[:1].isdecimal():
            raise _refusal(text, layout, rest, "Z07:00")
    elif digits := _fraction.match(rest):  # Go accepts a fraction that the layout lacks
        rest = rest[digits.end():]
    zone = _zone.match(rest)
    if zone is None:
        raise _refusal(text, layout, rest, "Z07:00")
    if rest[zone.end():]:
        raise ValueError(f"parsing time {json.dumps(text)}: extra text: {json.dumps(rest[zone.end():])}")
    try:
        offset = "+00:00" if zone[0] == "Z" else zone[0]
        year, month, day, hour, minute, second = numbers
        moment = datetime.fromisoformat(
            f"{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{micro:06}{offset}")
        return moment.astimezone(UTC).replace(tzinfo=None)
    except (ValueError, OverflowError):
        raise ValueError(f"parsing time {json.dumps(text)}: day out of range") from None


def _refusal(text: str, layout: str, rest: str, element: str) -> ValueError:
    return ValueError(f'parsing time {json.dumps(text)} as "{layout}": '
                      f"cannot parse {json.dumps(rest)} as {json.dumps(element)}")


Place = tuple[Any, str | int, str] | None
Decoder = Callable[[Any, Place, list[str]], Any]

_INTEGERS = {"int32": 2**31, "int64": 2**63}
_SCALARS: dict[str, tuple[type, ...]] = {"string": (str,), "bool": (bool,), "float64": (int, float)}
_JSON_KINDS = {str: "string", int: "number", float: "number", bool: "bool", list: "array", dict: "object"}
_BASE64 = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/")


def leaf_decoder(base: str, go_name: str) -> Decoder | None:
    """The decoder for a scalar or for a type with its own JSON form; None for other types."""
    if base in _INTEGERS:
        return _integer(base, _INTEGERS[base], go_name)
    if base in _SCALARS:
        return _scalar(base, _SCALARS[base], go_name)
    return {"bytes": _bytes, "Time": _text(canonical_time), "MicroTime": _text(canonical_micro_time),
            "Duration": _text(str), "Quantity": _quantity, "IntOrString": _int_or_string, "any": _any}.get(base)


def _scalar(base: str, expected: tuple[type, ...], go_name: str) -> Decoder:
    def decode_scalar(value: Any, place: Place, _unknown: list[str]) -> Any:
        if type(value) not in expected:
            raise mismatch(value, place, go_name, base=base)
        return value

    return decode_scalar


def _integer(base: str, limit: int, go_name: str) -> Decoder:
    def decode_integer(value: Any, place: Place, _unknown: list[str]) -> Any:
        if type(value) is int and -limit <= value < limit:
            return value
        if type(value) is int or type(value) is float:
            raise mismatch(value, place, go_name, kind=f"number {json.dumps(value)}", base=base)
        raise mismatch(value, place, go_name, base=base)

    return decode_integer


def _text(convert: Callable[[str], str]) -> Decoder:
    def decode_text(value: Any, place: Place, _unknown: list[str]) -> Any:
        if type(value) is not str:
            raise mismatch(value, place, "string")
        try:
            return convert(value)
        except ValueError as error:
            raise BodyDecodeError(str(error)) from None

    return decode_text


def _quantity(value: Any, _place: Place, _unknown: list[str]) -> Any:
    try:
        return canonical(value.strip() if type(value) is str else json.dumps(value))
    except ValueError as error:
        raise BodyDecodeError(str(error)) from None


def _int_or_string(value: Any, place: Place, _unknown: list[str]) -> Any:
    if type(value) is str or (type(value) is int and -(2**31) <= value < 2**31):
        return value
    raise mismatch(value, place, "int32", kind=f"number {json.dumps(value)}" if type(value) in (int, float) else "")


def _bytes(value: Any, place: Place, _unknown: list[str]) -> Any:
    if type(value) is not str:
        raise mismatch(value, place, "[]uint8")
    text: str = value.replace("\n", "").replace("\r", "")  # line breaks are not part of the data
    try:
        b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise BodyDecodeError(f"illegal base64 data at input byte {_first_bad_byte(value)}") from None
    return text


def _first_bad_byte(text: str) -> int:
    return next((index for index, character in enumerate(text) if character not in _BASE64), len(text) // 4 * 4)


def _any(value: Any, _place: Place, _unknown: list[str]) -> Any:
    return value


def mismatch(value: Any, place: Place, go_name: str, kind: str = "", base: str = "") -> BodyDecodeError:
    """The error for a value of the wrong JSON type, in the words of Go's decoder. `base` is the type of a scalar."""
    kind = kind or _JSON_KINDS[type(value)]
    holder, names = "", []
    while place is not None:
        outer, name, go_struct = place
        if go_struct:  # Go's path contains no indexes and no keys of maps
            holder = holder or go_struct
            names.append(str(name))
        place = outer
    target = f"Go struct field {'.'.join([holder, *reversed(names)])}" if names else "Go value"
    error = BodyDecodeError(f"json: cannot unmarshal {kind} into {target} of type {go_name}")
    if base or go_name.startswith(("map[", "[]")) or (type(value) is not dict and "." in go_name):
        error.misfit = (value, go_name, base)
    return error


def strict_path(place: Place) -> str:
    """A place as strict field validation prints it: ``spec.containers[0].x``."""
    parts: list[str] = []
    while place is not None:
        outer, name, _ = place
        parts.append(f"[{name}]" if isinstance(name, int) else f".{name}")
        place = outer
    return "".join(reversed(parts)).removeprefix(".")


_ZEROS = {"string": "", "bool": False, "int32": 0, "int64": 0, "float64": 0, "Quantity": "0", "IntOrString": 0,
          "Duration": "0s"}  # for all other types (lists, maps, bytes, times) the zero is null
_PLAIN = {"string": str, "bool": bool}
_REMEMBERED, _REMEMBERED_BYTES = 64, 4096  # for each list type: the number of remembered shapes, and their maximum size
_encode = msgspec.json.Encoder().encode


def decode(type_name: str, obj: Object) -> list[str]:
    """Shape an object as a type (``core.v1.Pod``), in place. Returns the paths of unknown fields.

    Raises BodyDecodeError.
    """
    unknown: list[str] = []
    try:
        shaped = struct(type_name).decode(obj, None, unknown)
    except RecursionError:
        raise BodyDecodeError("exceeded max depth") from None
    obj.clear()
    obj.update(shaped)
    return unknown


def blank(type_name: str) -> Object:
    """A new empty object in the shape of the type."""
    return struct(type_name).zero()


@cache
def written_lists(type_name: str) -> tuple[tuple[str, ...], ...]:
    """The paths of lists and maps that are written even if empty, except lists and maps inside other lists."""
    found: list[tuple[str, ...]] = []
    for name, spec in types()[type_name].items():
        typed = spec.rpartition("@")[0]
        bare = typed.lstrip("*!")
        if bare.startswith(".") and bare[1:] != type_name:
            found += [(name, *rest) for rest in written_lists(bare[1:])]
        elif "!" in typed[:len(typed) - len(bare)] and bare.lstrip("#").startswith(("[]", "{")):
            found.append((name,))
    return tuple(found)


def known(type_name: str) -> bool:
    """Whether the type exists."""
    return type_name in types()


@cache
def types() -> dict[str, dict[str, str]]:
    """The declarations in types.json.gz. Read-only. (tests/tools/generators/gotypes.py describes the format.)"""
    data = resources.files(__package__).joinpath("types.json.gz").read_bytes()
    declared: dict[str, dict[str, str]] = msgspec.json.decode(gzip.decompress(data))
    return declared


@dataclass(slots=True)
class _Field:
    """One field: its decoder, whether it is written if empty, and its empty value."""

    index: int
    decode: Decoder
    plain: type | None  # values of this Python type need no decoding
    pointer: bool
    always: bool
    zero: Callable[[], Any]


class _Struct:
    """A struct type. Its fields are compiled on first use, because types may contain themselves."""

    def __init__(self, type_name: str) -> None:
        self.go_name = type_name.rpartition(".")[2]
        self.go_type = _go_name(f".{type_name}")
        self._declared = types()[type_name]

    @cached_property
    def fields(self) -> dict[str, _Field]:
        """The fields by name, in Go's order."""
        return {name: _field(index, spec) for index, (name, spec) in enumerate(self._declared.items())}

    @cached_property
    def _always(self) -> list[str]:
        return [name for name, field in self.fields.items() if field.always]

    def zero(self) -> Object:
        """The encoded empty struct."""
        return {name: self.fields[name].zero() for name in self._always}

    def decode(self, value: Any, place: Place, unknown: list[str]) -> Object:
        if type(value) is not dict:
            raise mismatch(value, place, self.go_type)
        fields, shaped = self.fields, {}
        in_order, last = True, -1
        for name, given in value.items():
            field = fields.get(name)
            if field is None:
                unknown.append(strict_path((place, name, "")))
                continue
            if type(given) is field.plain:
                result = given
            elif given is None:
                result = None if field.pointer else field.zero()
            else:
                result = field.decode(given, (place, name, self.go_name), unknown)
            if not result and not field.always and (result is None or not field.pointer):
                continue
            shaped[name] = result
            if field.index < last:
                in_order = False
            last = field.index
        for name in self._always:
            if name not in shaped:
                shaped[name] = fields[name].zero()
                in_order = False
        if in_order:
            return shaped
        return {name: shaped[name] for name in sorted(shaped, key=lambda name: fields[name].index)}


@cache
def struct(type_name: str) -> _Struct:
    """The struct type named `type_name`. Raises KeyError for an unknown type."""
    return _Struct(type_name)


def _field(index: int, spec: str) -> _Field:
    """Compile a field from its declaration: ``*!string:v1.PodPhase@2``."""
    typed = spec.rpartition("@")[0]
    bare = typed.lstrip("*!")
    flags = typed[:len(typed) - len(bare)]
    pointer = "*" in flags or bare == "any"  # a field of type `any` stays unchanged, even {}
    return _Field(index, _decoder(bare), _PLAIN.get(bare.partition(":")[0]), pointer, "!" in flags,
                  (lambda: None) if pointer else _zero(bare))


def _zero(spec: str) -> Callable[[], Any]:
    if spec.startswith("."):
        return struct(spec[1:]).zero
    constant = _ZEROS.get(spec.partition(":")[0])
    return lambda: constant


def _empty() -> str:
    return ""


def _decoder(spec: str) -> Decoder:
    spec = spec.removeprefix("#")
    if spec.startswith("."):
        return struct(spec[1:]).decode
    if spec.startswith("[]"):
        return _list_decoder(spec)
    if spec.startswith("{"):
        return _map_decoder(spec)
    base, _, alias = spec.partition(":")
    return leaf_decoder(base, alias or base) or _schema_or


def _list_decoder(spec: str) -> Decoder:
    """A decoder for lists. It caches recent results, since objects from one template have equal lists (containers)."""
    element, zero = _decoder(spec[2:]), _zero(spec[2:])
    go_name = _go_name(spec)
    shapes: dict[bytes, bytes] | None = {} if spec.startswith("[].") else None

    def decode_list(value: Any, place: Place, unknown: list[str]) -> Any:
        if type(value) is not list:
            raise mismatch(value, place, go_name)
        text = _encode(value) if shapes is not None and value else b""
        if shapes is not None and (known := shapes.get(text)) is not None:
            return msgspec.json.decode(known)
        before = len(unknown)
        shaped = [zero() if item is None else element(item, (place, index, ""), unknown)
                  for index, item in enumerate(value)]
        if shapes is not None and 0 < len(text) <= _REMEMBERED_BYTES and len(unknown) == before:
            if len(shapes) >= _REMEMBERED:
                shapes.clear()
            shapes[text] = _encode(shaped)
        return shaped

    return decode_list


def _map_decoder(spec: str) -> Decoder:
    element_spec = spec.partition("}")[2]
    element = _decoder(element_spec)
    zero = _empty if element_spec == "bytes" else _zero(element_spec)  # the stored form has no null in maps
    go_name = _go_name(spec)

    def decode_map(value: Any, place: Place, unknown: list[str]) -> Any:
        if type(value) is not dict:
            raise mismatch(value, place, go_name)
        shaped = {key: zero() if item is None else element(item, (place, key, ""), unknown)
                  for key, item in value.items()}
        return dict(sorted(shaped.items())) if len(shaped) > 1 else shaped  # Go writes maps in this order

    return decode_map


def _schema_or(value: Any, place: Place, unknown: list[str]) -> Any:
    """Decode a field that holds a JSON schema or an alternative: a list of schemas, a boolean, a list of names."""
    schema = struct("apiextensions.v1.JSONSchemaProps")
    if type(value) is dict:
        return schema.decode(value, place, unknown)
    if type(value) is list:
        return [schema.decode(item, (place, index, ""), unknown) if type(item) is dict else item
                for index, item in enumerate(value)]
    return value


def _go_name(spec: str) -> str:
    """A type in Go's notation: ``[]v1.Container``, ``map[string]string``."""
    spec = spec.lstrip("*!#")
    if spec.startswith("[]"):
        return "[]" + _go_name(spec[2:])
    if spec.startswith("{"):
        key, _, element = spec[1:].partition("}")
        return f"map[{key}]{_go_name(element)}"
    if spec.startswith("."):
        return ".".join(spec.rsplit(".", 2)[1:])
    base, _, alias = spec.partition(":")
    return alias or {"bytes": "[]uint8", "Quantity": "resource.Quantity", "any": "interface {}"}.get(base, base)
