"""Which items of a changed view's lists are still the objects that were decoded, and where each of them came from.

    lists = RecordLists.of(hint)             None when no list of records can stand in a value of the type
    kept = lists.items(view)                 when the view is handed out: its lists' items, in the order of a walk
    lists.lineage(kept, base, now)           when it is written back

Two views of the same bytes are walked the same way: so a list of the view decoded anew (`base`) and the items of the
one that was handed out (`kept`) have the same number. An item that was put into another list is a new one there.
"""
from __future__ import annotations

import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import compress
from operator import attrgetter
from typing import Any, NamedTuple

from kubectl_runtime.core.base.wire import alternatives, field_types, is_record_type, wire_names

Kept = list[tuple[Any, ...]]
"""The items of each list of records, in the order of the walk."""


class View(NamedTuple):
    """A view and its plain form, made from it by `to_plain`."""

    value: Any
    plain: Any


@dataclass(slots=True, eq=False)
class Lineage:
    """Where the items of lists come from; the lists are those of the plain forms that it was made of."""

    _numbers: dict[int, int] = field(default_factory=dict)
    _places: dict[int, tuple[tuple[int, int] | None, ...]] = field(default_factory=dict)
    _alive: list[Any] = field(default_factory=list)
    moved: bool = False
    """Whether any item stands elsewhere than where it was."""
    rearranged: list[list[Any]] = field(default_factory=list)
    """The merged lists whose items do not stand where they were received."""

    def origins(self, base: list[Any], now: list[Any]) -> list[int | None]:
        """For each item of `now` its place in `base`; None for one that is no object of it, or of which that is not
        known."""
        places = self._places.get(id(now))
        number = self._numbers.get(id(base))
        if places is None or number is None:
            return [None] * len(now)
        return [place[1] if place is not None and place[0] == number else None for place in places]


class _Fields:
    """The fields of a record class below which there are lists: all read at once, which is what a walk costs."""

    __slots__ = ("attributes", "inner", "keys", "known", "read")

    def __init__(self) -> None:
        self.known = False
        """Whether all are there: while not, a type within itself may have some yet."""
        self.attributes: list[str] = []
        self.keys: list[str] = []
        self.inner: list[_Shape] = []
        self.read: Callable[[Any], tuple[Any, ...]] = attrgetter("__class__", "__class__")

    def add(self, attribute: str, key: str, inner: _Shape) -> None:
        self.attributes.append(attribute)
        self.keys.append(key)
        self.inner.append(inner)
        # With two names at least, it gives a tuple.
        self.read = attrgetter(*self.attributes, *(["__class__"] if len(self.attributes) == 1 else []))


class _Shape:
    """Where lists of records are below values of one type."""

    __slots__ = ("entries", "fields", "item", "kept")

    def __init__(self) -> None:
        self.fields: dict[type, _Fields] = {}
        """By record class."""
        self.entries: _Shape | None = None
        """What is below the values of a map, if anything is."""
        self.item: _Shape | None = None
        """What is below the items of a list, if anything is."""
        self.kept = False
        """Whether a list's items are to be recognised: they are records, or lists of them."""

    def is_empty(self) -> bool:
        return not (self.fields or self.kept or self.entries is not None)


class RecordLists:
    """The lists of records in values of one type. Immutable, safe to use from any thread."""

    __slots__ = ("_shape",)

    def __init__(self, shape: _Shape) -> None:
        self._shape = shape

    @classmethod
    def of(cls, hint: Any) -> RecordLists | None:
        """For a resolved type; None when its values have no such list. Raises TypeError as `field_types` does."""
        shape = _shape_of(hint, {})
        return None if shape.is_empty() else cls(shape)

    def items(self, view: Any) -> Kept:
        """The items of the lists as they are now."""
        found: Kept = []
        _collect(self._shape, view, found)
        return found

    def lineage(self, kept: Kept, base: View, now: View) -> Lineage:
        """Where the items of `now` come from; `base` is decoded from the same bytes as the view of `kept` was."""
        known: list[tuple[tuple[Any, ...], Any]] = []
        changed: list[tuple[tuple[Any, ...], Any]] = []
        _collect_both(self._shape, base.value, base.plain, known)
        _collect_both(self._shape, now.value, now.plain, changed)
        places = {id(item): (number, index) for number, items in enumerate(kept) for index, item in enumerate(items)}
        found = {id(plain): tuple(places.get(id(item)) for item in items) for items, plain in changed}
        moved = any(place is not None and place[1] != index for items in found.values()
                    for index, place in enumerate(items))
        return Lineage({id(plain): number for number, (_, plain) in enumerate(known)}, found, [kept, known, changed],
                       moved)


def _collect(shape: _Shape, value: Any, found: Kept) -> None:
    """Append the items of each list below `value`: in the order of `_collect_both`, and at every read of a view."""
    kind = type(value)
    if (fields := shape.fields.get(kind)) is not None:
        parts = fields.read(value)
        for part, inner in compress(zip(parts, fields.inner, strict=False), parts):
            if type(part) is list and inner.kept:  # what is met most
                found.append(tuple(part))
                if (item := inner.item) is not None:
                    for entry in part:
                        _collect(item, entry, found)
            else:
                _collect(inner, part, found)
    elif kind is list or kind is tuple:
        if shape.kept:
            found.append(tuple(value))
            if (item := shape.item) is not None:
                for entry in value:
                    _collect(item, entry, found)
    elif shape.entries is not None and isinstance(value, Mapping):
        for entry in value.values():
            _collect(shape.entries, entry, found)


def _collect_both(shape: _Shape, value: Any, plain: Any, found: list[tuple[tuple[Any, ...], Any]]) -> None:
    """The same, with the list that stands for each in `plain`, the plain form of `value`."""
    kind = type(value)
    if kind is list or kind is tuple:
        if shape.kept:
            found.append((tuple(value), plain))
            if (item := shape.item) is not None:
                for index, entry in enumerate(value):
                    _collect_both(item, entry, plain[index], found)
    elif (fields := shape.fields.get(kind)) is not None:
        for part, key, inner in zip(fields.read(value), fields.keys, fields.inner, strict=False):
            if part:
                _collect_both(inner, part, plain[key], found)
    elif shape.entries is not None and isinstance(value, Mapping):
        for entry, below in zip(value.values(), plain.values(), strict=True):
            _collect_both(shape.entries, entry, below, found)


def _shape_of(hint: Any, known: dict[type, _Fields]) -> _Shape:
    """`known`: the fields of each record class that was met, so that recursive types come to an end."""
    shape = _Shape()
    for part in alternatives(hint):
        arguments = typing.get_args(part)
        origin = typing.get_origin(part)
        if is_record_type(part):
            fields = known[part] if part in known else _fields_of(part, known)
            if fields.keys or not fields.known:
                shape.fields[part] = fields
        elif not isinstance(origin, type) or not arguments:
            continue
        elif issubclass(origin, Mapping):
            entries = _shape_of(arguments[-1], known)
            shape.entries = shape.entries if entries.is_empty() else entries
        elif issubclass(origin, list | tuple):
            item = _shape_of(arguments[0], known)
            shape.item = None if item.is_empty() else item
            shape.kept = shape.item is not None or any(map(is_record_type, alternatives(arguments[0])))
    return shape


def _fields_of(cls: Any, known: dict[type, _Fields]) -> _Fields:
    fields = known[cls] = _Fields()
    types = field_types(cls)
    for name, key in wire_names(cls).items():
        inner = _shape_of(types[key], known)
        if not inner.is_empty():
            fields.add(name, key, inner)
    fields.known = True
    return fields
