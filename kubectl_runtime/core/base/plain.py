"""From values of Python classes to plain JSON values under the wire's keys.

Every field is included, except those that are None or unset, so that two views of one object can be compared; one that
has no default, and so must be there to be read, is null when it is None. What
would reach the server as something else without a word is refused: bytes where text is declared and text where bytes
are, NaN and the infinities (null in JSON, which deletes in a merge patch), times without a time zone.
"""
from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from datetime import datetime
from enum import Enum
from functools import cache
from typing import Any

import msgspec
import msgspec.structs

from kubectl_runtime.core.base.errors import RequestError
from kubectl_runtime.core.base.texts import to_text
from kubectl_runtime.core.base.wire import (
    alternatives,
    field_types,
    is_record_type,
    map_keys,
    member_type,
    record_in,
    wire_names,
)


class Omit(Enum):
    """Which fields of records `to_plain` leaves out, besides those that are None or unset."""

    NOTHING = "nothing"
    DECLARED = "declared"
    """What a Struct class with `omit_defaults` would: right for new objects only."""
    DEFAULTS = "defaults"
    """All that equal their class's default, at every depth; keys that tell a list's items apart stay."""


def to_plain(value: Any, hint: Any = Any, *, omit: Omit = Omit.NOTHING, path: str = "$") -> Any:
    """`value` as plain JSON values. Fields with a default are left out when they are None, and all that are unset;
    entries of dicts are not.

    `hint` is the declared type, hashable. Raises RequestError, with the place below `path`, for what JSON cannot carry.
    """
    kind = type(value)
    if kind is str:
        if hint is not Any and _is_bytes(hint):
            raise RequestError(f"{path} is text where bytes are declared, which the wire carries as base64: give bytes "
                               f"(b'…' or text.encode()){_STRING_DATA if path.startswith('$.data') else ''}")
        return value
    if value is None or kind is int or kind is bool:
        return value
    if kind is float:
        return finite(value, path)
    if isinstance(value, msgspec.Struct):
        return _tag(value) | _fields_to_plain(value, omit, path)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _fields_to_plain(value, omit, path)
    if isinstance(value, Mapping):
        item = _values_of(hint)
        text = item is Any or not _is_bytes(item)
        return {key if type(key) is str else to_plain(key): entry if text and type(entry) is str else to_plain(
            entry, item, omit=omit, path=f"{path}.{key}") for key, entry in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return _items_to_plain(value, hint, omit, path)
    return _leaf(value, hint, path)


_STRING_DATA = ", or use string_data for text"


def _items_to_plain(value: Any, hint: Any, omit: Omit, path: str) -> list[Any]:
    item = _items_of(hint)
    plain = [to_plain(entry, item, omit=omit, path=f"{path}[{index}]") for index, entry in enumerate(value)]
    if omit is Omit.DEFAULTS and (keys := map_keys(hint)):
        for entry, sent in zip(value, plain, strict=True):
            if isinstance(sent, dict) and not sent.keys() >= set(keys) and is_record_type(type(entry)):
                whole = _fields_to_plain(entry, Omit.NOTHING, path)
                sent.update((key, whole[key]) for key in keys if key in whole)
    return plain


def finite(number: float, path: str) -> float:
    """`number`, if it is finite. Raises RequestError for NaN and the infinities, which encoders write as null."""
    if not math.isfinite(number):
        raise RequestError(f"{path} is {number}, which JSON cannot carry")
    return number


def _leaf(value: Any, hint: Any, path: str) -> Any:
    """Enums, times, bytes and whatever else msgspec knows; subclasses of text and numbers as what they extend."""
    if isinstance(value, float):
        return finite(float(value), path)
    if isinstance(value, datetime) and value.tzinfo is None:
        raise RequestError(f"{path} is a time without a time zone: give an aware datetime, such as datetime.now(UTC)")
    if isinstance(value, bytes | bytearray | memoryview) and hint is not Any and not _is_bytes(hint):
        raise RequestError(f"{path} is bytes where {_named(hint)} is declared: decode them (value.decode())")
    try:
        return msgspec.to_builtins(value, str_keys=True, enc_hook=to_text)
    except TypeError:
        base = next((atom for atom in _ATOMS if isinstance(value, atom)), None)
        if base is None:
            raise RequestError(f"{path}: a {type(value).__name__} is no JSON value") from None
        return base(value)


_ATOMS = (str, int, float, bool)
_BYTES = (bytes, bytearray, memoryview)


@cache
def _is_bytes(hint: Any) -> bool:
    """Whether only bytes fit the type, besides None."""
    return all(part in _BYTES or part is type(None) for part in alternatives(hint))


def _named(hint: Any) -> str:
    names = [getattr(part, "__name__", str(part)) for part in alternatives(hint) if part is not type(None)]
    return " or ".join("text" if name == "str" else name for name in names)


def _fields_to_plain(value: Any, omit: Omit, path: str) -> dict[str, Any]:
    cls: Any = type(value)
    plain: dict[str, Any] = {}
    for name, key, hint, default, required, text in _layout(cls, omit):
        item = getattr(value, name)
        if item is None or item is _UNSET:
            if required and item is None:
                plain[key] = None
            continue
        kind = type(item)
        declared = type(default)
        # A whole number is one of those that a float may be. (True is no 1, and an empty tuple no list.)
        if default is not _UNSET and (declared is kind or (kind is int and declared is float)) and default == item:
            continue
        plain[key] = item if (kind is str and text) or kind is int or kind is bool else to_plain(
            item, hint, omit=omit, path=f"{path}.{key}")
    return plain


_UNSET: Any = msgspec.UNSET


@cache
def _layout(cls: Any, omit: Omit) -> tuple[tuple[str, str, Any, Any, bool, bool], ...]:
    """Of each field of a Struct or dataclass: attribute name, wire key, type, the default that is left out (UNSET for
    none), whether it has no default at all, and whether text goes as it is."""
    known = defaults_of(cls)
    defaults = known if omit is Omit.DEFAULTS or (omit is Omit.DECLARED and _omits_defaults(cls)) else {}
    try:
        hints = field_types(cls)
    except TypeError:  # a local class: what it declares cannot be looked at
        hints = {}
    found = []
    for name, key in wire_names(cls).items():
        hint = hashable(hints.get(key, Any))
        found.append((name, key, hint, defaults.get(name, msgspec.UNSET), name not in known,
                      hint is Any or not _is_bytes(hint)))
    return tuple(found)


def without_defaults(plain: Any, hint: Any) -> Any:
    """The plain form of a value of type `hint` without what its classes omit: as `Omit.DECLARED` would have made it."""
    if isinstance(plain, list):
        item = _items_of(hashable(hint))
        return plain if item is Any else [without_defaults(entry, item) for entry in plain]
    if not isinstance(plain, dict):
        return plain
    cls = record_in(hint)
    if cls is None:
        entry = _values_of(hashable(hint))
        return plain if entry is Any else {key: without_defaults(value, entry) for key, value in plain.items()}
    layout = {key: (inner, default) for _, key, inner, default in _plain_layout(cls)}
    nothing = (Any, _UNSET)
    return {key: without_defaults(value, inner) for key, value in plain.items()
            for inner, default in (layout.get(key, nothing),) if default is _UNSET or _differs(default, value)}


def _differs(default: Any, value: Any) -> bool:
    return type(default) is not type(value) or bool(default != value)


@cache
def _plain_layout(cls: Any) -> tuple[tuple[str, str, Any, Any], ...]:
    """As `_layout` for `Omit.DECLARED`, the defaults in their plain form."""
    return tuple((name, key, hint, default if default is _UNSET else to_plain(default, hint))
                 for name, key, hint, default, _, _ in _layout(cls, Omit.DECLARED))


def _omits_defaults(cls: Any) -> bool:
    return issubclass(cls, msgspec.Struct) and cls.__struct_config__.omit_defaults


def defaults_of(cls: Any) -> dict[str, Any]:
    """Attribute name -> default, for the fields of a Struct or dataclass that have one."""
    if issubclass(cls, msgspec.Struct):
        fields: Any = msgspec.structs.fields(cls)
        missing: Any = msgspec.NODEFAULT
    else:
        fields, missing = dataclasses.fields(cls), dataclasses.MISSING
    found = {}
    for field in fields:
        if field.default is not missing:
            found[field.name] = field.default
        elif field.default_factory is not missing:
            found[field.name] = field.default_factory()
    return found


def _tag(value: msgspec.Struct) -> dict[str, Any]:
    config = value.__struct_config__
    return {config.tag_field: config.tag} if config.tag_field is not None else {}


@cache
def _values_of(hint: Any) -> Any:
    return Any if hint is Any else hashable(member_type(hint, ""))


@cache
def _items_of(hint: Any) -> Any:
    return Any if hint is Any else hashable(member_type(hint, None))


def hashable(hint: Any) -> Any:
    """`hint`, or Any for one that cannot be remembered: it is annotated with a dict, say."""
    try:
        hash(hint)
    except TypeError:
        return Any
    return hint
