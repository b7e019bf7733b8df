"""Which items of a changed view's lists are still the objects that were decoded, and where each of them came from.

    lists = RecordLists.of(hint)             None when no list of records can stand in a value of the type
    kept = lists.items(view)                 when the view is handed out: its lists' items, in the order of a walk
    lists.lineage(kept, base, now)           when it is written back

Two views of the same bytes are walked the same way: so a list of the view decoded anew (`base`) and the items of the
one that was handed out (`kept`) have the same number. An item that was put into another list is a new one there.
"""
from __future__ import annotations

import typing
from collections.abc import Mapping
from dataclasses import dataclass, field
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


class _Shape:
    """Where lists of records are below values of one type."""

    __slots__ = ("entries", "fields", "item")

    def __init__(self) -> None:
        self.fields: dict[type, list[tuple[str, str, _Shape]]] = {}
        """Record class -> attribute, wire key, what is below it."""
        self.entries: _Shape | None = None
        """What is below the values of a map."""
        self.item: _Shape | None = None
        """What is below the items of a list, which are records."""

    def __bool__(self) -> bool:
        return bool(self.fields) or self.entries is not None or self.item is not None


class RecordLists:
    """The lists of records in values of one type. Immutable, safe to use from any thread."""

    __slots__ = ("_shape",)

    def __init__(self, shape: _Shape) -> None:
        self._shape = shape

    @classmethod
    def of(cls, hint: Any) -> RecordLists | None:
        """For a resolved type; None when its values have no such list. Raises TypeError as `field_types` does."""
        shape = _shape_of(hint, {})
        return cls(shape) if shape else None

    def items(self, view: Any) -> Kept:
        """The items of the lists as they are now."""
        found: list[tuple[tuple[Any, ...], Any]] = []
        _walk(self._shape, view, None, found)
        return [items for items, _ in found]

    def lineage(self, kept: Kept, base: View, now: View) -> Lineage:
        """Where the items of `now` come from; `base` is decoded from the same bytes as the view of `kept` was."""
        known: list[tuple[tuple[Any, ...], Any]] = []
        changed: list[tuple[tuple[Any, ...], Any]] = []
        _walk(self._shape, base.value, base.plain, known)
        _walk(self._shape, now.value, now.plain, changed)
        places = {id(item): (number, index) for number, items in enumerate(kept) for index, item in enumerate(items)}
        found = {id(plain): tuple(places.get(id(item)) for item in items) for items, plain in changed}
        moved = any(place is not None and place[1] != index for items in found.values()
                    for index, place in enumerate(items))
        return Lineage({id(plain): number for number, (_, plain) in enumerate(known)}, found, [kept, known, changed],
                       moved)


def _walk(shape: _Shape, value: Any, plain: Any, found: list[tuple[tuple[Any, ...], Any]]) -> None:
    """Append the items of each list below `value`, and the list that stands for it in `plain`, if that is there."""
    if isinstance(value, list | tuple):
        if (item := shape.item) is not None and value:
            found.append((tuple(value), plain))
            if item:
                for index, entry in enumerate(value):
                    _walk(item, entry, plain[index] if isinstance(plain, list) else None, found)
    elif isinstance(value, Mapping):
        if shape.entries is not None:
            for key, entry in value.items():
                _walk(shape.entries, entry, plain.get(key) if isinstance(plain, dict) else None, found)
    else:
        for name, key, inner in shape.fields.get(type(value), ()):
            if (part := getattr(value, name)) is not None:
                _walk(inner, part, plain.get(key) if isinstance(plain, dict) else None, found)


def _shape_of(hint: Any, known: dict[type, list[tuple[str, str, _Shape]]]) -> _Shape:
    """`known`: the fields of each record class that was met, so that recursive types come to an end."""
    shape = _Shape()
    for part in alternatives(hint):
        arguments = typing.get_args(part)
        origin = typing.get_origin(part)
        if is_record_type(part):
            under_way = part in known
            fields = known[part] if under_way else _fields_of(part, known)
            if fields or under_way:
                shape.fields[part] = fields
        elif not isinstance(origin, type) or not arguments:
            continue
        elif issubclass(origin, Mapping):
            shape.entries = _shape_of(arguments[-1], known) or shape.entries
        elif issubclass(origin, list | tuple):
            item = _shape_of(arguments[0], known)
            if item or any(map(is_record_type, alternatives(arguments[0]))):
                shape.item = item
    return shape


def _fields_of(cls: Any, known: dict[type, list[tuple[str, str, _Shape]]]) -> list[tuple[str, str, _Shape]]:
    fields = known[cls] = []
    types = field_types(cls)
    for name, key in wire_names(cls).items():
        if inner := _shape_of(types[key], known):
            fields.append((name, key, inner))
    return fields
