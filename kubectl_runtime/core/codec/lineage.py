"""Which items of a changed view's lists are still the objects that were decoded, and where each of them came from.

    lists = RecordLists.of(hint)             None when no list of records can stand in a value of the type
    kept = lists.items(view)                 when the view is handed out: its lists' items, in the order of a walk
    lists.lineage(kept, base, now)           when it is written back

Two views of the same bytes are walked the same way: so a list of the view decoded again (`base`) and the items of the
one that was handed out (`kept`) have the same number.
"""
from __future__ import annotations

import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from operator import is_
from typing import Any, NamedTuple

import msgspec
import msgspec.structs

from kubectl_runtime.core.base.plain import to_plain
from kubectl_runtime.core.base.wire import alternatives, field_types, is_record_type, wire_names

FEW = 3
"""Fewer attributes of a Struct are read one by one, more of them all at once: `Part.__getattr__` makes a read dear."""
DEEP = 3
"""Classes whose lines stand within each other's: Python allows 20 loops in one another."""

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
    of_plain: bool = False
    """Whether it is the plain form that is merged, into what the views' changes have made of the object."""

    def origins(self, base: list[Any], now: list[Any]) -> list[int | None]:
        """For each item of `now` its place in `base`; None for one that is not an object of it, or of which that is not
        known."""
        places = self._places.get(id(now))
        number = self._numbers.get(id(base))
        if places is None or number is None:
            return [None] * len(now)
        return [place[1] if place is not None and place[0] == number else None for place in places]

    def strangers(self, base: list[Any], now: list[Any]) -> list[tuple[int, int, int]]:
        """The items of `now` that came out of another list than `base`: place in `now`, the `id` of the list of the
        base form that they were in, place there."""
        number = self._numbers.get(id(base))
        found = [(index, place) for index, place in enumerate(self._places.get(id(now), ()))
                 if place is not None and place[0] != number]
        lists = {number: of for of, number in self._numbers.items()} if found else {}
        return [(index, lists[place[0]], place[1]) for index, place in found if place[0] in lists]


class _Fields:
    """The fields of a record class below which there are lists."""

    __slots__ = ("known", "members")

    def __init__(self) -> None:
        self.members: list[tuple[str, str, _Shape]] = []
        """Attribute, wire key, what is below it."""
        self.known = False
        """Whether all are there: while not, a type within itself may have some yet."""


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

    __slots__ = ("_shape", "_walk")

    def __init__(self, shape: _Shape) -> None:
        self._shape = shape
        self._walk = _Walks().of(shape)

    @classmethod
    def of(cls, hint: Any) -> RecordLists | None:
        """For a resolved type; None when its values have no such list. Raises TypeError as `field_types` does."""
        shape = _shape_of(hint, {})
        return None if shape.is_empty() else cls(shape)

    def items(self, view: Any) -> Kept:
        """The items of the lists as they are now."""
        found: Kept = []
        self._walk(view, found)
        return found

    def are_in_place(self, kept: Kept, view: Any) -> bool:
        """Whether each list has the very items that it had, in their order, and no other one has any."""
        items = self.items(view)
        return len(items) == len(kept) and all(
            len(now) == len(then) and all(map(is_, now, then)) for now, then in zip(items, kept, strict=True))

    def lineage(self, kept: Kept | None, base: View, now: View) -> Lineage:
        """Where the items of `now` come from; `base` is decoded from the same bytes as the view of `kept` was.

        `kept` is None when all are in place; then the plain forms may be of some fields only, the same ones.
        """
        known: list[tuple[tuple[Any, ...], Any]] = []
        changed: list[tuple[tuple[Any, ...], Any]] = []
        _collect_both(self._shape, base.value, base.plain, known)
        _collect_both(self._shape, now.value, now.plain, changed)
        if kept is None:
            kept = [items for items, _ in changed]
        places = {id(item): (number, index) for number, items in enumerate(kept) for index, item in enumerate(items)}
        found = {id(plain): tuple(places.get(id(item)) for item in items) for items, plain in changed}
        moved = any(place is not None and place != (number, index) for number, items in enumerate(found.values())
                    for index, place in enumerate(items))
        return Lineage({id(plain): number for number, (_, plain) in enumerate(known)}, found, [kept, known, changed],
                       moved)


def _collect_both(shape: _Shape, value: Any, plain: Any, found: list[tuple[tuple[Any, ...], Any]]) -> None:
    """Append the items of each list below `value`, and the list that stands for it in the plain form of `value`."""
    kind = type(value)
    if kind is list or kind is tuple:
        if shape.kept and value:
            found.append((tuple(value), plain))
            if (item := shape.item) is not None:
                for index, entry in enumerate(value):
                    _collect_both(item, entry, None if plain is None else plain[index], found)
    elif (fields := shape.fields.get(kind)) is not None:
        for name, key, inner in fields.members:
            if (plain is None or key in plain) and (part := getattr(value, name)):
                _collect_both(inner, part, None if plain is None else plain[key], found)
    elif shape.entries is not None and isinstance(value, Mapping):
        for key, entry in value.items():
            _collect_both(shape.entries, entry, None if plain is None else plain[to_plain(key)], found)


class _Walks:
    """Writes the functions that collect items only, each the same as `_collect_both` of its shape: straight code for
    each record class, since they run whenever a view is read. A walk of a Pod's spec takes a third of the time so."""

    def __init__(self) -> None:
        self._names: dict[type, str] = {}
        """Of the functions."""
        self._classes: dict[type, str] = {}
        self._within: set[type] = set()
        """The classes whose lines are being written in place."""
        self._space: dict[str, Any] = {"lists": (list, tuple), "astuple": msgspec.structs.astuple}

    def of(self, shape: _Shape) -> Callable[[Any, Kept], None]:
        """A function that appends to its second argument the items of each list below its first."""
        call = self._call(shape, "value")
        exec(f"def walk(value, found):\n{_indented(call)}", self._space)
        walk: Callable[[Any, Kept], None] = self._space["walk"]
        return walk

    def _call(self, shape: _Shape, part: str) -> list[str]:
        """The lines that walk what `part` names."""
        if shape.kept and not shape.fields and shape.entries is None:
            lines = [f"if {part} and type({part}) in lists:", f"    found.append(tuple({part}))"]
            if shape.item is not None:
                inner = self._call(shape.item, f"{part}_")
                lines += [f"    for {part}_ in {part}:", *(f"        {line}" for line in inner)]
            return lines
        if len(shape.fields) == 1 and not shape.kept and shape.entries is None:
            (cls, fields), = shape.fields.items()
            if len(fields.members) == 1 and cls not in self._within and len(self._within) < DEEP:  # not worth a call
                return [f"if type({part}) is {self._class(cls)}:", *self._only_member(cls, fields, part)]
            name = self._function(cls, fields)
            return [f"if type({part}) is {self._class(cls)}:", f"    {name}({part}, found)"]
        name = f"shape_{len(self._space)}"
        self._space[name] = lambda value, found: found.extend(_items(shape, value))
        return [f"if {part}:", f"    {name}({part}, found)"]

    def _only_member(self, cls: type, fields: _Fields, part: str) -> list[str]:
        """The lines of a record class that has one list below it, or one field with some, where its value is met."""
        (attribute, _, inner), = fields.members
        self._within.add(cls)
        lines = self._call(inner, f"{part}_{attribute}")
        self._within.discard(cls)
        return [f"    {part}_{attribute} = {part}.{attribute}", *(f"    {line}" for line in lines)]

    def _class(self, cls: type) -> str:
        """The name that the class has in the written code."""
        if cls not in self._classes:
            self._classes[cls] = f"class_{len(self._classes)}"
            self._space[self._classes[cls]] = cls
        return self._classes[cls]

    def _function(self, cls: type, fields: _Fields) -> str:
        """The name of the function for a record class, which is written if it is not there yet."""
        if (known := self._names.get(cls)) is not None:
            return known
        name = self._names[cls] = f"walk_{len(self._names)}"
        lines, read = _reads(cls, [attribute for attribute, _, _ in fields.members])
        for attribute, _, inner in fields.members:
            lines += [f"part = {read[attribute]}", *self._call(inner, "part")]
        exec(f"def {name}(value, found):\n{_indented(lines)}", self._space)
        return name


def _reads(cls: Any, attributes: list[str]) -> tuple[list[str], dict[str, str]]:
    """Lines to begin with, and how each of these attributes of `value` is read then."""
    if len(attributes) < FEW or not issubclass(cls, msgspec.Struct):
        return [], {name: f"value.{name}" for name in attributes}
    places = {name: place for place, name in enumerate(cls.__struct_fields__)}
    return ["fields = astuple(value)"], {name: f"fields[{places[name]}]" for name in attributes}


def _items(shape: _Shape, value: Any) -> Kept:
    found: list[tuple[tuple[Any, ...], Any]] = []
    _collect_both(shape, value, None, found)
    return [items for items, _ in found]


def _indented(lines: list[str]) -> str:
    return "\n".join(f"    {line}" for line in lines or ["pass"])


def _shape_of(hint: Any, known: dict[type, _Fields]) -> _Shape:
    """`known`: the fields of each record class that was met, so that recursive types come to an end."""
    shape = _Shape()
    for part in alternatives(hint):
        arguments = typing.get_args(part)
        origin = typing.get_origin(part)
        if is_record_type(part):
            fields = known[part] if part in known else _fields_of(part, known)
            if fields.members or not fields.known:
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
            fields.members.append((name, key, inner))
    fields.known = True
    return fields
