"""What the type that is declared for a value says of how it becomes plain, found out once for each type; and the words
for values that do not fit it."""
from __future__ import annotations

import typing
from collections.abc import Mapping
from datetime import datetime, time, timedelta
from decimal import Decimal
from functools import cache
from types import NoneType
from typing import Any, NoReturn

from kubectl_runtime.core.base.errors import RequestError
from kubectl_runtime.core.base.wire import alternatives, is_record_type, member_type

_STRING_DATA = ", or use string_data for text"
NAIVE = "is a time without a time zone: give an aware datetime, such as datetime.now(UTC)"
"""What is wrong with such a time, behind its place."""
_BYTES = (bytes, bytearray, memoryview)
_SHAPES: dict[type, str] = {
    str: "text", **dict.fromkeys(_BYTES, "bytes"), int: "number", float: "number", bool: "truth", dict: "map",
    Mapping: "map", list: "list", tuple: "list", set: "list", frozenset: "list", NoneType: "nothing"}
"""Of the types that take values of one shape only. Of others (enums, times, quantities) it is not said here."""

UNKNOWN: Any = object()
"""The type of a value of which cannot be said what is declared, `Any` included."""


class DeclaredType:
    """One type. Safe to use from any thread."""

    __slots__ = ("_items", "_values", "bytes", "hint", "list", "map", "number", "text", "truth")

    def __init__(self, hint: Any) -> None:
        self.hint = hint
        shapes = {_shape_of(part) for part in alternatives(hint)}
        everything = "any" in shapes
        self.text = everything or "text" in shapes
        """Whether a text fits it; `number`, `truth` (True and False), `map` and `list` likewise."""
        self.bytes = "bytes" in shapes
        self.number = everything or "number" in shapes
        self.truth = self.number or "truth" in shapes  # Python has it for a number
        self.map = everything or "map" in shapes
        self.list = everything or "list" in shapes
        self._items: DeclaredType | None = None
        self._values: DeclaredType | None = None

    @property
    def items(self) -> DeclaredType:
        """Of the items of a list."""
        if self._items is None:
            self._items = self._member(None)
        return self._items

    @property
    def values(self) -> DeclaredType:
        """Of the values of a map."""
        if self._values is None:
            self._values = self._member("")
        return self._values

    def _member(self, key: str | None) -> DeclaredType:
        return self if self.hint is UNKNOWN else declared_type(hashable(member_type(self.hint, key)))


def _shape_of(part: Any) -> str:
    if is_record_type(part):
        return "map"
    return _SHAPES.get(typing.get_origin(part) or part, "any")


@cache
def declared_type(hint: Any) -> DeclaredType:
    """For a hashable type: the same one for the same type."""
    return DeclaredType(hint)


def hashable(hint: Any) -> Any:
    """`hint`, or UNKNOWN for one that cannot be remembered: it is annotated with a dict, say."""
    try:
        hash(hint)
    except TypeError:
        return UNKNOWN
    return hint


def misfit(given: str, declared: DeclaredType, path: str) -> NoReturn:
    """Raise RequestError for a value of a shape that is not declared, without quoting it."""
    if given == "text" and not (declared.number or declared.truth or declared.map or declared.list):
        raise RequestError(f"{path} is text where bytes are declared, which the wire carries as base64: give bytes "
                           f"(b'…' or text.encode()){_STRING_DATA if path.startswith('$.data') else ''}")
    raise RequestError(f"{path} is {given} where {type_name(declared.hint)} is declared")


def type_name(hint: Any) -> str:
    """A declared type in words."""
    names = [getattr(part, "__name__", str(part)) for part in alternatives(hint) if part is not type(None)]
    return " or ".join(_WORDS.get(name, name) for name in names)


_WORDS = {"str": "text", "int": "a number", "float": "a number", "bool": "True or False", "dict": "a map",
          "Mapping": "a map", "list": "a list"}


def check_undeclared(value: Any, path: str) -> None:
    """Raise RequestError for a value that has several forms in JSON, where no type says which one is meant."""
    if isinstance(value, bytes | bytearray | memoryview):
        raise RequestError(f"{path} is bytes, which JSON has not: decode text (value.decode()); a Secret's "
                           "data takes base64 text, or text as it is in stringData")
    if isinstance(value, timedelta):
        raise RequestError(f"{path} is a timedelta: write a duration as the kind wants it, such as '5s' or a "
                           "number")
    if isinstance(value, datetime | time) and value.tzinfo is None:
        raise RequestError(f"{path} {NAIVE}")
    if isinstance(value, Decimal) and not value.is_finite():
        raise RequestError(f"{path} is {value}, which JSON cannot carry")
