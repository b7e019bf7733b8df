"""Converts values of Python classes to plain JSON values under their wire keys. Defines `Key`, an object's identity in
its kind.

Every field is included, except those that are None or unset, so that two views of one object can be compared. A field
without a default must be present when the value is read again, so it is written as null when it is None.

Values that would arrive at the server in another form are refused: bytes for a text field, text for a bytes field, and
times without a time zone. NaN and the infinities are refused because JSON has only null for them, which deletes the
field in a merge patch. Bytes and spans of time are also refused where no type is declared.

A `Key` is the namespace and name of an object. Stores and queues use keys, since tuples hash far faster than refs. In a
key, None means no namespace. On the wire a namespace may be absent or empty: `namespace_or_none` and `key_of` make
comparable keys from values on the wire or from users.
"""
from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Mapping
from datetime import datetime
from enum import Enum, StrEnum
from functools import cache
from typing import Any, TypeAlias

import msgspec
import msgspec.structs
from msgspec.structs import astuple

from kubectl_runtime.core.base.errors import RequestError
from kubectl_runtime.core.base.wire import (
    NAIVE,
    UNKNOWN,
    AlwaysSent,
    DeclaredType,
    check_undeclared,
    declared_type,
    field_types,
    hashable,
    is_model,
    is_record_type,
    map_keys,
    marks_of,
    misfit,
    record_in,
    to_text,
    type_name,
    wire_names,
)


class Omit(StrEnum):
    """Which fields of records `to_plain` leaves out, in addition to those that are None or unset."""

    NOTHING = "nothing"
    DECLARED = "declared"
    """Leaves out the fields that msgspec leaves out for a Struct class with `omit_defaults`. This is correct only for
    new objects."""
    DEFAULTS = "defaults"
    """Leaves out all fields that equal their class's default, at every depth; keys that identify a list's items are
    kept."""


def to_plain(value: Any, hint: Any = Any, *, omit: Omit = Omit.NOTHING, path: str = "$",
             only: Only = None) -> Any:
    """`value` as plain JSON values. Unset fields, and fields that have a default and are None, are left out; entries of
    dicts are kept.

    `hint` is the declared type, which must be hashable; `only` selects parts of the value. Raises RequestError for
    values that JSON cannot carry; the message names the wrong part by its path, which starts with `path`.
    """
    try:
        return _to_plain(value, declared_type(hint), _LAYOUTS[omit], path, only)
    except RecursionError:
        raise RequestError(f"{path} is nested too deeply, or contains itself") from None


Only: TypeAlias = "dict[str, Only] | list[Only] | None"
"""The wanted parts of a value: for a Struct, some attributes and the wanted parts of each; for a list, the wanted parts
of each item, to which the keys that identify the item are added; None for the whole value."""


_Place: TypeAlias = "str | tuple[_Place, str | int]"
"""The place of a value: a path, or a place and the key or index below it. A place becomes text only in messages."""


def _told(place: _Place) -> str:
    if isinstance(place, str):
        return place
    outer, inner = place
    return f"{_told(outer)}[{inner}]" if isinstance(inner, int) else f"{_told(outer)}.{inner}"


def _to_plain(value: Any, declared: DeclaredType, layouts: _Layouts, place: _Place, only: Only = None) -> Any:
    kind = type(value)
    if kind is str:
        return value if declared.text else misfit("text", declared, _told(place))
    if value is None:
        return value
    if kind is int:
        return value if declared.number else misfit("a number", declared, _told(place))
    if kind is bool:
        return value if declared.truth else misfit(str(value), declared, _told(place))
    if kind is float:
        return finite(value, place) if declared.number else misfit("a number", declared, _told(place))
    if kind in layouts or isinstance(value, msgspec.Struct) or (
            kind is not dict and kind is not list and is_record_type(kind)):
        if not declared.map:
            misfit(f"a {kind.__name__}", declared, _told(place))
        return _fields_to_plain(value, layouts, place, only)
    if kind is dict or isinstance(value, Mapping):
        if not declared.map:
            misfit("a map", declared, _told(place))
        item = declared.values
        text = item.text
        return {key if type(key) is str else _key(key, place): entry if text and type(entry) is str else _to_plain(
            entry, item, layouts, (place, str(key))) for key, entry in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        if not declared.list:
            misfit(f"a {kind.__name__}", declared, _told(place))
        return (_items_to_plain if only is None else _parts_of_items)(value, declared, layouts, place, only)
    if is_model(kind):
        return _to_plain(_of_model(value, place, layouts.omit), declared_type(Any), layouts, place)
    return _leaf(value, declared, place)


def _of_model(value: Any, place: _Place, omit: Omit) -> Any:
    """The plain form that a pydantic model writes: under its aliases, without nulls and computed fields."""
    try:
        return value.model_dump(mode="json", by_alias=True, exclude_none=True, round_trip=True, warnings="error",
                                exclude_defaults=omit is Omit.DEFAULTS)
    except ValueError as error:  # its text quotes the value and must not be shown
        fields = ", ".join(sorted(set(re.findall(r"field_name='(\w+)'", str(error)))))
        raise RequestError(f"{_told(place)}: a {type(value).__name__} has a value that its type does not allow"
                           f"{f' ({fields})' if fields else ''}") from None


def _key(key: Any, place: _Place) -> Any:
    plain = to_plain(key, path=f"a key of {_told(place)}")
    if isinstance(plain, list | dict):
        raise RequestError(f"{_told(place)} has a {type(key).__name__} as a key, which JSON cannot carry")
    return plain


def _parts_of_items(value: Any, declared: DeclaredType, layouts: _Layouts, place: _Place, only: Any) -> list[Any]:
    keys = map_keys(declared.hint)
    return [_fields_to_plain(entry, layouts, (place, index), wanted, keys)
            for index, (entry, wanted) in enumerate(zip(value, only, strict=True))]


def _items_to_plain(value: Any, declared: DeclaredType, layouts: _Layouts, place: _Place, _only: Any) -> list[Any]:
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


def _leaf(value: Any, declared: DeclaredType, place: _Place) -> Any:
    """Convert enums, times, bytes and other types that msgspec knows. Subclasses of text and numbers become their base
    type."""
    if isinstance(value, float):
        return finite(float(value), place)
    if isinstance(value, Enum):  # msgspec would send any member's value, even one that JSON cannot carry
        return to_plain(value.value, path=_told(place))
    if declared.hint is Any:
        check_undeclared(value, _told(place))
    if isinstance(value, datetime) and value.tzinfo is None:
        raise RequestError(f"{_told(place)} {NAIVE}")
    if isinstance(value, bytes | bytearray | memoryview) and declared.hint is not UNKNOWN and not declared.bytes:
        raise RequestError(f"{_told(place)} is bytes where {type_name(declared.hint)} is declared: decode them "
                           "(value.decode())")
    try:
        return msgspec.to_builtins(value, str_keys=True, enc_hook=to_text)
    except TypeError:
        base = next((atom for atom in _ATOMS if isinstance(value, atom)), None)
        if base is None:
            kind = type(value).__name__
            raise RequestError(f"{_told(place)}: a value of type {kind} cannot be sent as JSON") from None
        return base(value)


_ATOMS = (str, int, float, bool)


def _fields_to_plain(value: Any, layouts: _Layouts, place: _Place, only: Any = None, keys: tuple[str, ...] = ()) -> Any:
    struct, tag, fields = layouts[type(value)]
    plain: dict[str, Any] = tag.copy()
    values = astuple(value) if struct else [getattr(value, field[0]) for field in fields]
    for item, field in zip(values, fields, strict=True):
        if item is None or item is _UNSET:
            if field[4] and item is None and (only is None or field[0] in only or field[1] in keys):
                plain[field[1]] = None
            continue
        name, key, declared, default, _ = field
        if only is None:
            wanted = None
        elif name in only or key in keys:
            wanted = only.get(name)
        else:
            continue
        kind = type(item)
        # The types are compared too: True equals 1 but is not sent as 1. A float field also accepts whole numbers.
        if default is not _UNSET and (type(default) is kind or (kind is int and type(default) is float)) and (
                default == item):
            continue
        if declared.text if kind is str else declared.number if kind is int else kind is bool and declared.truth:
            plain[key] = item
        else:
            plain[key] = [] if kind is list and not item else _to_plain(item, declared, layouts, (place, key), wanted)
    return plain


_UNSET: Any = msgspec.UNSET


_Field: TypeAlias = tuple[str, str, DeclaredType, Any, bool]
"""For a field of a Struct or dataclass: attribute name, wire key, type, the default that is left out (UNSET for none),
and whether it has no default at all."""
_Layout: TypeAlias = tuple[bool, dict[str, Any], tuple[_Field, ...]]
"""How a class becomes plain: whether it is a Struct, its tag, its fields. Tuples, since Python unpacks them fastest."""


class _Layouts(dict[Any, _Layout]):
    """Class -> its layout, which is made on first use. Safe from any thread."""

    def __init__(self, omit: Omit) -> None:
        super().__init__()
        self.omit = omit

    def __missing__(self, cls: Any) -> _Layout:
        known = defaults_of(cls)
        defaults = known if self.omit is Omit.DEFAULTS or (
            self.omit is Omit.DECLARED and _omits_defaults(cls)) else {}
        try:
            hints = field_types(cls)
        except TypeError:  # a local class, whose annotations cannot be resolved
            hints = {}
        sent = {key for key, hint in hints.items() if self.omit is Omit.DECLARED and any(
            isinstance(mark, AlwaysSent) for mark in marks_of(hint))}
        fields = tuple((name, key, declared_type(hashable(hints.get(key, UNKNOWN))),
                        _UNSET if key in sent else defaults.get(name, _UNSET), name not in known)
                       for name, key in wire_names(cls).items())
        return self.setdefault(cls, (issubclass(cls, msgspec.Struct), _tag(cls), fields))


_LAYOUTS = {omit: _Layouts(omit) for omit in Omit}


def without_defaults(plain: Any, hint: Any) -> Any:
    """Return `plain` without the fields that `to_plain` with `Omit.DECLARED` leaves out. `plain` is the plain form of a
    value of type `hint`."""
    if isinstance(plain, list):
        item = declared_type(hashable(hint)).items.hint
        return plain if item is Any else [without_defaults(entry, item) for entry in plain]
    if not isinstance(plain, dict):
        return plain
    cls = record_in(hint)
    if cls is None:
        entry = declared_type(hashable(hint)).values.hint
        return plain if entry is Any else {key: without_defaults(value, entry) for key, value in plain.items()}
    layout = _plain_layout(cls)
    nothing = (Any, _UNSET)
    return {key: without_defaults(value, inner) for key, value in plain.items()
            for inner, default in (layout.get(key, nothing),) if default is _UNSET or _differs(default, value)}


def _differs(default: Any, value: Any) -> bool:
    return type(default) is not type(value) or bool(default != value)


@cache
def _plain_layout(cls: Any) -> dict[str, tuple[Any, Any]]:
    """Wire key -> its type, and its default in plain form, which `Omit.DECLARED` leaves out."""
    _, _, fields = _LAYOUTS[Omit.DECLARED][cls]
    return {key: (declared.hint, default if default is _UNSET
                  else _to_plain(default, declared, _LAYOUTS[Omit.NOTHING], "$"))
            for _, key, declared, default, _ in fields}


def _omits_defaults(cls: Any) -> bool:
    return issubclass(cls, msgspec.Struct) and cls.__struct_config__.omit_defaults


def defaults_of(cls: Any) -> dict[str, Any]:
    """Attribute name -> default, for the fields of a record class that have a default."""
    if issubclass(cls, msgspec.Struct):
        fields: Any = msgspec.structs.fields(cls)
        missing: Any = msgspec.NODEFAULT
    elif dataclasses.is_dataclass(cls):
        fields, missing = dataclasses.fields(cls), dataclasses.MISSING
    else:
        return _defaults_of_attrs(cls)
    found = {}
    for field in fields:
        if field.default is not missing:
            found[field.name] = field.default
        elif field.default_factory is not missing:
            found[field.name] = field.default_factory()
    return found


def _defaults_of_attrs(cls: Any) -> dict[str, Any]:
    """The defaults of an attrs class, like `defaults_of`; a default that is computed from other fields is left out."""
    found = {}
    for field in cls.__attrs_attrs__:
        if hasattr(factory := field.default, "takes_self"):
            if not factory.takes_self:
                found[field.name] = factory.factory()
        elif type(field.default).__name__ != "_Nothing":
            found[field.name] = field.default
    return found


def _tag(cls: Any) -> dict[str, Any]:
    config = cls.__struct_config__ if issubclass(cls, msgspec.Struct) else None
    return {config.tag_field: config.tag} if config is not None and config.tag_field is not None else {}


Key: TypeAlias = tuple[str | None, str]
"""Namespace (None: the object is cluster-scoped) and name."""


def namespace_or_none(namespace: str | None) -> str | None:
    """`namespace`, or None if it is None or empty."""
    return namespace or None


def key_of(namespace: str | None, name: str) -> Key:
    """The key of an object; `namespace` may be empty."""
    return namespace or None, name
