"""Decoders of the values without children of their own in a typed object, and the texts for places and wrong types.

A decoder takes a value that is not null, its place, and the list that collects unknown fields. Places are linked tuples
``(outer place, name or index, Go struct)``; they become text only for an error or an unknown field.
"""

from __future__ import annotations

import binascii
import json
from base64 import b64decode
from collections.abc import Callable
from typing import Any

from kubectl_runtime.apiserver.errors import BodyDecodeError
from kubectl_runtime.apiserver.kinds.typed.times import canonical_micro_time, canonical_time
from kubectl_runtime.core.meta.quantities import canonical

Place = tuple[Any, str | int, str] | None
Decoder = Callable[[Any, Place, list[str]], Any]

_INTEGERS = {"int32": 2**31, "int64": 2**63}
_SCALARS: dict[str, tuple[type, ...]] = {"string": (str,), "bool": (bool,), "float64": (int, float)}
_JSON_KINDS = {str: "string", int: "number", float: "number", bool: "bool", list: "array", dict: "object"}
_BASE64 = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/")


def leaf_decoder(base: str, go_name: str) -> Decoder | None:
    """The decoder of a scalar or a type with a JSON form of its own; None if the name is neither."""
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
    text: str = value.replace("\n", "").replace("\r", "")  # line breaks are no part of the data
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
    """A value of the wrong JSON type, in the words of Go's decoder. `base`: the kind of a scalar."""
    kind = kind or _JSON_KINDS[type(value)]
    holder, names = "", []
    while place is not None:
        outer, name, go_struct = place
        if go_struct:  # indexes and keys of maps are not part of Go's path
            holder = holder or go_struct
            names.append(str(name))
        place = outer
    target = f"Go struct field {'.'.join([holder, *reversed(names)])}" if names else "Go value"
    error = BodyDecodeError(f"json: cannot unmarshal {kind} into {target} of type {go_name}")
    if base or go_name.startswith(("map[", "[]")) or (type(value) is not dict and "." in go_name):
        error.misfit = (value, go_name, base)
    return error


def strict_path(place: Place) -> str:
    """A place as strict field validation names it: ``spec.containers[0].x``."""
    parts: list[str] = []
    while place is not None:
        outer, name, _ = place
        parts.append(f"[{name}]" if isinstance(name, int) else f".{name}")
        place = outer
    return "".join(reversed(parts)).removeprefix(".")
