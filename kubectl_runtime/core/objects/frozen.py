"""Makes the fields of a view (see `partial`) read-only, because many readers share them.

Records (Structs, dataclasses) must be of a frozen class: `must_freeze` refuses others. After decoding, `frozen`
replaces lists, dicts and sets at any depth by read-only ones. All other values are immutable.
"""
from __future__ import annotations

import typing
from collections.abc import Collection
from typing import Any

import msgspec
from msgspec.structs import force_setattr

from kubectl_runtime.core.base.errors import RequestError
from kubectl_runtime.core.base.wire import alternatives, field_types, is_record_type, wire_names
from kubectl_runtime.core.codec.views import Head
from kubectl_runtime.core.meta.metav1 import ReadOnlyDict, ReadOnlyList


def must_freeze(hint: Any, place: str, seen: frozenset[Any] = frozenset()) -> bool:
    """Whether values of type `hint` may contain something that `frozen` replaces. Raises RequestError, which names
    `place`, for a mutable record or a bytearray."""
    found = False
    for part in alternatives(hint):
        kind = typing.get_origin(part) or part
        if is_record_type(kind):
            if kind in seen:
                continue
            _check_frozen(kind, place)
            for name, inner in field_types(kind).items():
                found = must_freeze(inner, f"{place}.{name}", seen | {kind}) or found
            continue
        if kind is bytearray:
            raise RequestError(f"{place} is a bytearray, which is mutable, but all readers share it: declare bytes")
        if not isinstance(kind, type) or kind is object:
            # A value of Any or of a type variable may be any JSON value. The Ellipsis of `tuple[T, ...]` is no type.
            found = found or kind is not Ellipsis
        elif issubclass(kind, Collection) and not issubclass(kind, str | bytes | tuple | frozenset):
            found = True
        for inner in typing.get_args(part):
            if typing.get_origin(part) is not typing.Literal:
                found = must_freeze(inner, place, seen) or found
    return found


def _check_frozen(kind: Any, place: str) -> None:
    if issubclass(kind, msgspec.Struct):
        if not kind.__struct_config__.frozen:
            raise RequestError(f"{place} is a {kind.__name__}, which is mutable, but all readers share it: declare "
                               f"a class of the fields to keep, `class {kind.__name__}(Struct, frozen=True)`")
    elif not kind.__dataclass_params__.frozen:
        raise RequestError(f"{place} is a {kind.__name__}, which is mutable, but all readers share it: declare it "
                           "with `@dataclass(frozen=True)`")


def frozen(value: Any) -> Any:
    """`value` with read-only collections at every depth. Records are changed in place, so only the thread that decoded
    `value` may call this, before it shares the value."""
    kind: Any = type(value)
    if kind is dict:
        return ReadOnlyDict({key: frozen(item) for key, item in value.items()})
    if kind is list:
        return ReadOnlyList(map(frozen, value))
    if kind is set:
        return frozenset(value)
    if isinstance(value, tuple):
        items = map(frozen, value)
        return kind._make(items) if hasattr(kind, "_make") else tuple(items)
    if is_record_type(kind) and not isinstance(value, Head):  # a Head exposes nothing mutable
        put = force_setattr if isinstance(value, msgspec.Struct) else object.__setattr__
        for name in wire_names(kind):
            before = getattr(value, name)
            after = frozen(before)
            if after is not before:
                put(value, name, after)
    return value
