"""From values of Python classes to plain JSON values under the wire's keys.

Every field is included, except those that are None or unset, so that two views of one object can be compared; one that
has no default, and so must be there to be read, is null when it is None. What
would reach the server as something else without a word is refused: bytes where text is declared and text where bytes
are, NaN and the infinities (null in JSON, which deletes in a merge patch), times without a time zone.
"""
from __future__ import annotations

import dataclasses
import math
from collections.abc import Container, Mapping
from datetime import datetime
from enum import Enum
from functools import cache
from typing import Any, TypeAlias

import msgspec
import msgspec.structs
from msgspec.structs import astuple

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


def to_plain(value: Any, hint: Any = Any, *, omit: Omit = Omit.NOTHING, path: str = "$",
             only: Container[str] | None = None) -> Any:
    """`value` as plain JSON values. Fields with a default are left out when they are None, and all that are unset;
    entries of dicts are not.

    `hint` is the declared type, hashable; `only`: the attributes that are wanted of a Struct, its own alone. Raises
    RequestError, with the place below `path`, for what JSON cannot carry.
    """
    if only is not None:
        return _fields_to_plain(value, _LAYOUTS[omit], path, only)
    return _to_plain(value, _type_of(hint), _LAYOUTS[omit], path)


_Place: TypeAlias = "str | tuple[_Place, str | int]"
"""Where a value stands: a path, or a place and the key or index below it. It is put together when it is told."""


def _told(place: _Place) -> str:
    if isinstance(place, str):
        return place
    outer, inner = place
    return f"{_told(outer)}[{inner}]" if isinstance(inner, int) else f"{_told(outer)}.{inner}"


class _Type:
    """What has to be known of a declared type, found out once."""

    __slots__ = ("_items", "_values", "hint", "text")

    def __init__(self, hint: Any) -> None:
        self.hint = hint
        self.text = hint is Any or not _is_bytes(hint)
        """Whether text fits it."""
        self._items: _Type | None = None
        self._values: _Type | None = None

    @property
    def items(self) -> _Type:
        """Of the items of a list."""
        if self._items is None:
            self._items = _type_of(hashable(member_type(self.hint, None)))
        return self._items

    @property
    def values(self) -> _Type:
        """Of the values of a map."""
        if self._values is None:
            self._values = _type_of(hashable(member_type(self.hint, "")))
        return self._values


@cache
def _type_of(hint: Any) -> _Type:
    return _Type(hint)


def _to_plain(value: Any, declared: _Type, layouts: _Layouts, place: _Place) -> Any:
    kind = type(value)
    if kind is str:
        if not declared.text:
            path = _told(place)
            raise RequestError(f"{path} is text where bytes are declared, which the wire carries as base64: give bytes "
                               f"(b'…' or text.encode()){_STRING_DATA if path.startswith('$.data') else ''}")
        return value
    if value is None or kind is int or kind is bool:
        return value
    if kind is float:
        return finite(value, place)
    if kind in layouts or isinstance(value, msgspec.Struct) or (
            dataclasses.is_dataclass(value) and not isinstance(value, type)):
        return _fields_to_plain(value, layouts, place)
    if isinstance(value, Mapping):
        item = declared.values
        text = item.text
        return {key if type(key) is str else to_plain(key): entry if text and type(entry) is str else _to_plain(
            entry, item, layouts, (place, str(key))) for key, entry in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return _items_to_plain(value, declared, layouts, place)
    return _leaf(value, declared, place)


_STRING_DATA = ", or use string_data for text"


def _items_to_plain(value: Any, declared: _Type, layouts: _Layouts, place: _Place) -> list[Any]:
    item = declared.items
    plain = [_to_plain(entry, item, layouts, (place, index)) for index, entry in enumerate(value)]
    if layouts.omit is Omit.DEFAULTS and (keys := map_keys(declared.hint)):
        for entry, sent in zip(value, plain, strict=True):
            if isinstance(sent, dict) and not sent.keys() >= set(keys) and is_record_type(type(entry)):
                whole = _fields_to_plain(entry, _LAYOUTS[Omit.NOTHING], place)
                sent.update((key, whole[key]) for key in keys if key in whole)
    return plain


def finite(number: float, place: _Place) -> float:
    """`number`, if it is finite. Raises RequestError for NaN and the infinities, which encoders write as null."""
    if not math.isfinite(number):
        raise RequestError(f"{_told(place)} is {number}, which JSON cannot carry")
    return number


def _leaf(value: Any, declared: _Type, place: _Place) -> Any:
    """Enums, times, bytes and whatever else msgspec knows; subclasses of text and numbers as what they extend."""
    if isinstance(value, float):
        return finite(float(value), place)
    if isinstance(value, datetime) and value.tzinfo is None:
        raise RequestError(f"{_told(place)} is a time without a time zone: give an aware datetime, such as "
                           "datetime.now(UTC)")
    if isinstance(value, bytes | bytearray | memoryview) and declared.hint is not Any and declared.text:
        raise RequestError(f"{_told(place)} is bytes where {_named(declared.hint)} is declared: decode them "
                           "(value.decode())")
    try:
        return msgspec.to_builtins(value, str_keys=True, enc_hook=to_text)
    except TypeError:
        base = next((atom for atom in _ATOMS if isinstance(value, atom)), None)
        if base is None:
            raise RequestError(f"{_told(place)}: a {type(value).__name__} is no JSON value") from None
        return base(value)


_ATOMS = (str, int, float, bool)
_BYTES = (bytes, bytearray, memoryview)


def _is_bytes(hint: Any) -> bool:
    """Whether only bytes fit the type, besides None."""
    return all(part in _BYTES or part is type(None) for part in alternatives(hint))


def _named(hint: Any) -> str:
    names = [getattr(part, "__name__", str(part)) for part in alternatives(hint) if part is not type(None)]
    return " or ".join("text" if name == "str" else name for name in names)


def _fields_to_plain(value: Any, layouts: _Layouts, place: _Place, only: Container[str] | None = None) -> Any:
    struct, tag, fields = layouts[type(value)]
    plain: dict[str, Any] = tag.copy()
    values = astuple(value) if struct else [getattr(value, field[0]) for field in fields]
    for item, field in zip(values, fields, strict=True):
        if item is None or item is _UNSET:
            if field[4] and item is None and (only is None or field[0] in only):
                plain[field[1]] = None
            continue
        name, key, declared, default, _ = field
        if only is not None and name not in only:
            continue
        kind = type(item)
        # A whole number is one of those that a float may be. (True is no 1, and an empty tuple no list.)
        if default is not _UNSET and (type(default) is kind or (kind is int and type(default) is float)) and (
                default == item):
            continue
        if kind is bool or kind is int or (kind is str and declared.text):
            plain[key] = item
        else:
            plain[key] = [] if kind is list and not item else _to_plain(item, declared, layouts, (place, key))
    return plain


_UNSET: Any = msgspec.UNSET


_Field: TypeAlias = tuple[str, str, _Type, Any, bool]
"""Of a Struct or dataclass: attribute name, wire key, type, the default that is left out (UNSET for none), and whether
it has no default at all."""
_Layout: TypeAlias = tuple[bool, dict[str, Any], tuple[_Field, ...]]
"""How a class becomes plain: whether it is a Struct, its tag, its fields. Tuples, which Python takes apart fastest."""


class _Layouts(dict[Any, _Layout]):
    """Class -> its layout, which is made when it is first asked for. Safe from any thread."""

    def __init__(self, omit: Omit) -> None:
        super().__init__()
        self.omit = omit

    def __missing__(self, cls: Any) -> _Layout:
        known = defaults_of(cls)
        defaults = known if self.omit is Omit.DEFAULTS or (
            self.omit is Omit.DECLARED and _omits_defaults(cls)) else {}
        try:
            hints = field_types(cls)
        except TypeError:  # a local class: what it declares cannot be looked at
            hints = {}
        fields = tuple((name, key, _type_of(hashable(hints.get(key, Any))), defaults.get(name, _UNSET),
                        name not in known) for name, key in wire_names(cls).items())
        return self.setdefault(cls, (issubclass(cls, msgspec.Struct), _tag(cls), fields))


_LAYOUTS = {omit: _Layouts(omit) for omit in Omit}


def without_defaults(plain: Any, hint: Any) -> Any:
    """The plain form of a value of type `hint` without what its classes omit: as `Omit.DECLARED` would have made it."""
    if isinstance(plain, list):
        item = _type_of(hashable(hint)).items.hint
        return plain if item is Any else [without_defaults(entry, item) for entry in plain]
    if not isinstance(plain, dict):
        return plain
    cls = record_in(hint)
    if cls is None:
        entry = _type_of(hashable(hint)).values.hint
        return plain if entry is Any else {key: without_defaults(value, entry) for key, value in plain.items()}
    layout = _plain_layout(cls)
    nothing = (Any, _UNSET)
    return {key: without_defaults(value, inner) for key, value in plain.items()
            for inner, default in (layout.get(key, nothing),) if default is _UNSET or _differs(default, value)}


def _differs(default: Any, value: Any) -> bool:
    return type(default) is not type(value) or bool(default != value)


@cache
def _plain_layout(cls: Any) -> dict[str, tuple[Any, Any]]:
    """Wire key -> its type, and the default that `Omit.DECLARED` leaves out in its plain form."""
    _, _, fields = _LAYOUTS[Omit.DECLARED][cls]
    return {key: (declared.hint, default if default is _UNSET
                  else _to_plain(default, declared, _LAYOUTS[Omit.NOTHING], "$"))
            for _, key, declared, default, _ in fields}


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


def _tag(cls: Any) -> dict[str, Any]:
    config = cls.__struct_config__ if issubclass(cls, msgspec.Struct) else None
    return {config.tag_field: config.tag} if config is not None and config.tag_field is not None else {}


def hashable(hint: Any) -> Any:
    """`hint`, or Any for one that cannot be remembered: it is annotated with a dict, say."""
    try:
        hash(hint)
    except TypeError:
        return Any
    return hint
