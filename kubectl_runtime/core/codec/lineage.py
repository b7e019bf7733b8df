"""Finds where the items of a changed view's lists come from: an item that is still the same Python object as after
decoding has its old list and index as its origin.

    lists = RecordLists.of(hint)             None when values of the type have no list of records
    kept = lists.items(view)                 called before the reader gets the view: the items of all its lists
    lists.lineage(kept, base, now)           called when the view is written back

For the write-back the same bytes are decoded again, to the view `base`. A walk visits the lists of both views in the
same order, so entry n of `kept` and list number n of `base` stand for the same list of the object.
"""
from __future__ import annotations

import typing
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from operator import attrgetter, is_, itemgetter
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import astuple

from kubectl_runtime.core.base.plain import to_plain
from kubectl_runtime.core.base.wire import alternatives, field_types, is_record_type, record_class, wire_names

FEW = 3
"""If at least this many attributes are needed, a Struct's attributes are read all at once: `Part.__getattr__` makes
single reads expensive."""
LISTS = (list, tuple)

Kept = list[tuple[Any, ...]]
"""The items of each list of records, in the order in which a walk visits the lists."""


class View(NamedTuple):
    """A view and the plain form that `to_plain` made of it."""

    value: Any
    plain: Any


@dataclass(slots=True, eq=False)
class Lineage:
    """A merge compares an old and a new plain form. For each item of the new form's lists, a Lineage has the list of
    the old form, and the index in it, from which the item comes, if these are known."""

    _numbers: dict[int, int] = field(default_factory=dict)
    _places: dict[int, tuple[tuple[int, int] | None, ...]] = field(default_factory=dict)
    _alive: list[Any] = field(default_factory=list)
    moved: bool = False
    """Whether any item has moved."""
    rearranged: list[list[Any]] = field(default_factory=list)
    """The merged lists whose items have moved since they were received."""
    of_plain: bool = False
    """False for the first merge, which adds the changes of the views to the object. True for the second merge, which
    adds the changes of the plain form to the first merge's result."""

    def origins(self, base: list[Any], now: list[Any]) -> list[int | None]:
        """For each item of `now` its index in `base`; None if it is not from `base`, or its origin is unknown."""
        places = self._places.get(id(now))
        number = self._numbers.get(id(base))
        if places is None or number is None:
            return [None] * len(now)
        return [place[1] if place is not None and place[0] == number else None for place in places]

    def strangers(self, base: list[Any], now: list[Any]) -> list[tuple[int, int, int]]:
        """The items of `now` whose origin is another list than `base`. The result has three
        numbers for each item: its index in `now`, the `id` of the list that it comes from, and its index there. All
        lists are plain forms."""
        number = self._numbers.get(id(base))
        found = [(index, place) for index, place in enumerate(self._places.get(id(now), ()))
                 if place is not None and place[0] != number]
        lists = {number: of for of, number in self._numbers.items()} if found else {}
        return [(index, lists[place[0]], place[1]) for index, place in found if place[0] in lists]


class _Fields:
    """The fields of a record class that contain lists."""

    __slots__ = ("known", "members")

    def __init__(self) -> None:
        self.members: list[tuple[str, str, _Shape]] = []
        """Attribute, wire key, shape of the value."""
        self.known = False
        """Whether all fields are known; until then a recursive type may get more fields."""


class _Shape:
    """The places in values of one type that hold lists of records."""

    __slots__ = ("entries", "fields", "item", "kept")

    def __init__(self) -> None:
        self.fields: dict[type, _Fields] = {}
        """The fields, by record class."""
        self.entries: _Shape | None = None
        """The shape of the values of a map, if they contain lists."""
        self.item: _Shape | None = None
        """The shape of the items of a list, if they contain lists."""
        self.kept = False
        """Whether a list's items must be recognized: they are records, or lists of records."""

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
        """The lists for a resolved type; None when there are none. Raises TypeError like `field_types`."""
        shape = _shape_of(hint, {})
        return None if shape.is_empty() else cls(shape)

    def items(self, view: Any) -> Kept:
        """The current items of the lists."""
        found: Kept = []
        self._walk(view, found)
        return found

    def are_in_place(self, kept: Kept, view: Any) -> bool:
        """Whether the lists of `view` have exactly the items of `kept`, the same objects in the same order."""
        items = self.items(view)
        return len(items) == len(kept) and all(
            len(now) == len(then) and all(map(is_, now, then)) for now, then in zip(items, kept, strict=True))

    def lineage(self, kept: Kept | None, base: View, now: View) -> Lineage:
        """The origins of the items of `now`. `kept` has the items that its lists had after decoding; `base` is another
        view of the same bytes.

        `kept` is None when all items are in their original places. In this case the plain forms of `base` and `now` may
        be incomplete, but both must have the same fields. In all other cases they must be complete.
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
    """Append the items of each list below `value`, and the corresponding list in the plain form of `value`."""
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


Walk = Callable[[Any, Kept], None]
"""Appends the items of each list below the first argument to the second argument, in the order of `_collect_both`."""


class _Walks:
    """Makes the functions that only collect items: they run whenever a view is read, so each does no more than its
    shape needs."""

    def __init__(self) -> None:
        self._records: dict[tuple[type, int], Walk] = {}
        """Walks by record class and its fields, since `Box[int]` and `Box[str]` have the same class. This cache also
        ends the recursion for recursive types."""

    def of(self, shape: _Shape) -> Walk:
        """The walk for values of one shape."""
        if shape.kept and not shape.fields and shape.entries is None:
            return _of_list(None if shape.item is None else self.of(shape.item))
        if len(shape.fields) == 1 and not shape.kept and shape.entries is None:
            (cls, fields), = shape.fields.items()
            return self._of_record(cls, fields)
        return lambda value, found: found.extend(_items(shape, value))

    def _of_record(self, cls: Any, fields: _Fields) -> Walk:
        if (known := self._records.get((cls, id(fields)))) is not None:
            return known
        inner: list[Walk] = []
        parts = _reader(cls, [name for name, _, _ in fields.members])

        def walk(value: Any, found: Kept) -> None:
            if type(value) is cls:
                for part, collect in zip(parts(value), inner):  # noqa: B905 - as many as fields; `strict` costs time
                    if part:
                        collect(part, found)

        self._records[cls, id(fields)] = walk
        inner += [self.of(shape) for _, _, shape in fields.members]
        return walk


def _of_list(item: Walk | None) -> Walk:
    if item is None:
        def walk(value: Any, found: Kept) -> None:
            if value and type(value) in LISTS:
                found.append(tuple(value))
    else:
        def walk(value: Any, found: Kept) -> None:
            if value and type(value) in LISTS:
                found.append(tuple(value))
                for entry in value:
                    item(entry, found)
    return walk


def _reader(cls: Any, names: list[str]) -> Callable[[Any], Iterable[Any]]:
    """A function that reads these fields of a record of `cls`."""
    if len(names) >= FEW and issubclass(cls, msgspec.Struct):
        places = itemgetter(*map(cls.__struct_fields__.index, names))
        return lambda record: places(astuple(record))
    if len(names) == 1:
        name, = names
        return lambda record: (getattr(record, name),)
    return attrgetter(*names)


def _items(shape: _Shape, value: Any) -> Kept:
    found: list[tuple[tuple[Any, ...], Any]] = []
    _collect_both(shape, value, None, found)
    return [items for items, _ in found]


def _shape_of(hint: Any, known: dict[type, _Fields]) -> _Shape:
    """The shape of a type. `known`: the fields of the record classes found so far, so that recursive types end."""
    shape = _Shape()
    for part in alternatives(hint):
        arguments = typing.get_args(part)
        origin = typing.get_origin(part)
        if is_record_type(part):
            fields = known[part] if part in known else _fields_of(part, known)
            if fields.members or not fields.known:
                shape.fields[record_class(part)] = fields
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
