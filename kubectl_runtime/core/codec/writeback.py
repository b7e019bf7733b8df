"""The three-way merge behind `replace`: the received object, plus the reader's changes in a view.

    merge(received, base, now)

`base` is the view as it was decoded and `now` its current state, both as plain JSON values, so that additions by the
view's types (defaults, normal forms of dates) cancel out. `received` is the JSON itself, with everything that the view
does not declare.

    now equals base          received stays, byte for byte
    maps                     key by key: changed keys are merged, new ones added, removed ones removed
    lists                    in the order of `now`, each item merged into the received item that it comes from
    anything else            the new value

The received item for an item of a list is found by the first of these rules that applies:

- identity: the item is still the object that was decoded from this list or another list of the view (see lineage.py),
  however it was changed
- keys: `MapKeys` marks the list, and one received item has the same keys; an absent key counts as the view's default
- equality: the item equals one received item
- otherwise the item is new

A received item without a counterpart is removed with its undeclared fields. But if an item of `now` has no counterpart
either, it might be a changed copy of that received item. (In a list with keys only an item with the same keys might be
such a copy.) If the received item has undeclared fields, it is then unclear which item they belong to, and
WriteBackError(path) is raised. The same error is raised for an object that occurs twice in a list and has undeclared
fields, and for a new item with another item's key.

`changes` finds where two views of one object differ, so that write-back converts little more than the changed parts.
Values are compared as msgpack, which unlike JSON distinguishes NaN from null and bytes from text. This compares a whole
Pod's spec in the time that Python needs for one container.
"""
from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from typing import Any

import msgspec
import msgspec.msgpack
from msgspec.structs import astuple

from kubectl_runtime.core.base.errors import WriteBackError
from kubectl_runtime.core.base.plain import Only, without_defaults
from kubectl_runtime.core.base.wire import map_keys, member_type, to_text
from kubectl_runtime.core.codec.lineage import Lineage

_IN_BOTH = "was changed both in the view and in obj[…]: change it in one of them"

ABSENT: Any = object()
"""Stands for no value: the key is absent before or after the change."""


def merge(received: Any, base: Any, now: Any, path: str = "$", hint: Any = Any, lineage: Lineage | None = None) -> Any:
    """The object to send. Changes none of its arguments; parts of `received` are shared with the result.

    `hint` is the declared type, which may have `MapKeys` marks; `lineage` says which received item each list item was
    decoded from. Raises WriteBackError.
    """
    return _Merge(lineage or Lineage(), received, base).value(received, base, now, path, hint)


class _Merge:
    """One merge."""

    __slots__ = ("_lineage", "_lists", "_whole")

    def __init__(self, lineage: Lineage, received: Any, base: Any) -> None:
        self._lineage = lineage
        self._whole = (received, base)
        self._lists: dict[int, tuple[list[Any], list[Any]]] | None = None

    def value(self, received: Any, base: Any, now: Any, path: str, hint: Any) -> Any:
        return received if self._stays(received, base, now) else self._changed(received, base, now, path, hint)

    def _stays(self, received: Any, base: Any, now: Any) -> bool:
        # Equal items may have different undeclared fields, so equal lists whose items moved are not the same list.
        return _same(base, now) and not (self._lineage.moved and isinstance(received, dict | list))

    def _changed(self, received: Any, base: Any, now: Any, path: str, hint: Any) -> Any:
        if received is ABSENT or received is None:
            if base is ABSENT and isinstance(now, list):
                return self._list([], [], now, path, hint)
            if base is ABSENT:
                return _new(now, hint)
            received = _empty_like(now)
        if isinstance(received, dict) and isinstance(now, dict):
            return self._map(received, base if isinstance(base, dict) else {}, now, path, hint)
        if isinstance(received, list) and isinstance(base, list) and isinstance(now, list):
            return self._list(received, base, now, path, hint)
        return _copied(now)

    def _map(self, received: dict[str, Any], base: dict[str, Any], now: dict[str, Any], path: str, hint: Any) -> Any:
        merged = {key: value for key, value in received.items() if key in now or key not in base}
        for key, value in now.items():
            inner, old = received.get(key, ABSENT), base.get(key, ABSENT)
            if not self._stays(inner, old, value):
                inner = self._changed(inner, old, value, f"{path}.{key}", member_type(hint, key))
            if inner is not ABSENT:
                merged[key] = inner
        return merged

    def _list(self, received: list[Any], base: list[Any], now: list[Any], path: str, hint: Any) -> list[Any]:
        item = member_type(hint, None)
        strangers = self._strangers(base, now)
        if not received and not strangers:
            return [_new(value, item) for value in now]
        if not any(isinstance(value, dict | list) for value in (*received, *now)):
            return now.copy()
        if len(received) != len(base) or any(received is moved for moved in self._lineage.rearranged):
            raise WriteBackError(path, f"this list {_IN_BOTH}")
        found = _Pairs(received, base, now, path)
        found.by_identity(self._lineage.origins(base, now))
        found.know(strangers)
        keys = map_keys(hint)
        if keys:
            found.by_keys(keys)
        found.by_equality()
        if self._lineage.of_plain:
            found.check_no_change_is_lost()
        found.check_nothing_is_lost()
        merged = []
        for index, (place, value) in enumerate(zip(found.places, now, strict=True)):
            origin = strangers.get(index) if place is None else (received[place], base[place])
            merged.append(_new(value, item) if origin is None
                          else self.value(*origin, value, f"{path}[{index}]", item))
        if found.places != list(range(len(base))):
            self._lineage.rearranged.append(merged)
        return merged

    def _strangers(self, base: list[Any], now: list[Any]) -> dict[int, tuple[Any, Any]]:
        """For items of `now` that came from another list: the received item and its base form."""
        places = self._lineage.strangers(base, now)
        if not places:
            return {}
        if self._lists is None:
            self._lists = {}
            _collect_lists(*self._whole, self._lists)
        return {index: (self._lists[of][0][place], self._lists[of][1][place])
                for index, of, place in places if of in self._lists}


def _collect_lists(received: Any, base: Any, found: dict[int, tuple[list[Any], list[Any]]]) -> None:
    """Map the `id` of each list in the base form to the received list and the base list."""
    if isinstance(received, dict) and isinstance(base, dict):
        for key in base.keys() & received.keys():
            _collect_lists(received[key], base[key], found)
    elif isinstance(received, list) and isinstance(base, list) and len(received) == len(base):
        found[id(base)] = received, base
        for item, shown in zip(received, base, strict=True):
            _collect_lists(item, shown, found)


class _Pairs:
    """Finds for each item of `now` the received item that it comes from."""

    def __init__(self, received: list[Any], base: list[Any], now: list[Any], path: str) -> None:
        self.places: list[int | None] = [None] * len(now)
        self._received, self._base, self._now = received, base, now
        self._path = path
        self._left = dict.fromkeys(range(len(base)))
        self._strangers: Collection[int] = ()
        self._base_keys: list[Any] = [None] * len(base)
        self._now_keys: list[Any] = [None] * len(now)

    def _pair(self, index: int, place: int) -> None:
        self.places[index] = place
        del self._left[place]

    def _hides(self, place: int) -> bool:
        return not _shows_all(self._received[place], self._base[place])

    def know(self, strangers: Collection[int]) -> None:
        """Record that these items come from another list."""
        self._strangers = strangers

    def _unmatched(self) -> list[int]:
        return [index for index, place in enumerate(self.places) if place is None and index not in self._strangers]

    def by_identity(self, origins: list[int | None]) -> None:
        for index, place in enumerate(origins):
            if place is None:
                continue
            if place in self._left:
                self._pair(index, place)
            elif self._hides(place):
                raise WriteBackError(f"{self._path}[{index}]", "the same object is in this list twice, and it has "
                                     "fields that the view does not declare: replace one of the two by a copy, or use "
                                     "patch or apply")

    def by_keys(self, keys: tuple[str, ...]) -> None:
        self._base_keys = [_key_of(item, keys) for item in self._base]
        self._now_keys = [_key_of(item, keys) for item in self._now]
        before, after = Counter(self._base_keys), Counter(self._now_keys)
        for key, times in after.items():
            if times > max(1, before[key]):
                raise WriteBackError(self._path, f"two items have the same {', '.join(keys)} ({_label(key)})")
        left = _groups(self._left, self._base_keys)
        for key, indexes in _groups(self._unmatched(), self._now_keys).items():
            if len(indexes) == 1 and len(left.get(key, ())) == 1:
                self._pair(indexes[0], left[key][0])

    def by_equality(self) -> None:
        """Compare the items that are still unmatched; if the list has keys, only items with the same keys."""
        unmatched = self._unmatched()
        if not unmatched or not self._left:
            return
        shown = [(key, _text(item)) for key, item in zip(self._base_keys, self._base, strict=True)]
        wanted = [(key, _text(item)) for key, item in zip(self._now_keys, self._now, strict=True)]
        left = _groups(self._left, shown)
        for text, indexes in _groups(unmatched, wanted).items():
            places = left.get(text, [])
            if len(indexes) > len(places) and any(self._hides(place) for place in places):
                continue
            if len(places) == 1 or len({_text(self._received[place]) for place in places}) == 1:
                for index, place in zip(indexes, places, strict=False):
                    self._pair(index, place)

    def check_no_change_is_lost(self) -> None:
        """Raise WriteBackError if an item has no counterpart and the view has changed a received item without a
        counterpart: the two might be the same item."""
        if self._unmatched() and not all(_same(self._base[place], self._received[place]) for place in self._left):
            raise WriteBackError(self._path, f"an item of this list {_IN_BOTH}")

    def check_nothing_is_lost(self) -> None:
        lost = {self._base_keys[place] for place in self._left if self._hides(place)}
        if any(self._now_keys[index] in lost for index in self._unmatched()):
            raise WriteBackError(self._path, "items of this list have fields that the view does not declare, and it is "
                                 "not certain which item they belong to now: change the items in place, declare these "
                                 "fields, mark the list with MapKeys, or use patch or apply")


def _new(now: Any, hint: Any) -> Any:
    return _copied(without_defaults(now, hint))


def _copied(value: Any) -> Any:
    """A copy that shares no dict and no list with `value`, which the user may own: a value assigned to `obj[…]`."""
    try:
        return _copy(value)
    except RecursionError:  # the value contains itself, and is refused later, when it is sent
        return value


def _copy(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _copy(item) for key, item in value.items()}
    return [_copy(item) for item in value] if isinstance(value, list) else value


def _groups(indexes: Any, keys: list[Any]) -> dict[Any, list[int]]:
    groups: dict[Any, list[int]] = {}
    for index in indexes:
        groups.setdefault(keys[index], []).append(index)
    return groups


def _key_of(item: Any, keys: tuple[str, ...]) -> tuple[Any, ...]:
    return tuple(_scalar(item.get(name)) if isinstance(item, dict) else None for name in keys)


def _scalar(value: Any) -> Any:
    return value if isinstance(value, str | int | float | bool) else None


def _label(key: tuple[Any, ...]) -> str:
    return ",".join(map(str, key))


def _text(value: Any) -> bytes:
    """Equal bytes for equal JSON; anything that is not JSON is refused later, when it is sent."""
    try:
        return _encode(value)
    except (TypeError, ValueError):
        return repr(value).encode()


_encode = msgspec.json.Encoder(order="sorted").encode


def _empty_like(now: Any) -> Any:
    return type(now)() if isinstance(now, dict | list) else ABSENT


def _same(base: Any, now: Any) -> bool:
    """Equality that distinguishes true from 1, as the API server does; Python's does not.

    Both steps run in C; in Python they would take most of the time of a write-back.
    """
    if base != now:
        return False
    return _text(base) == _text(now) if isinstance(base, dict | list) else type(base) is type(now)


def _shows_all(received: Any, base: Any) -> bool:
    """Whether the view has every received field; a null does not count as a field."""
    if isinstance(received, dict):
        return isinstance(base, dict) and all(
            value is None or (key in base and _shows_all(value, base[key])) for key, value in received.items())
    if isinstance(received, list):
        return isinstance(base, list) and len(received) == len(base) and all(map(_shows_all, received, base))
    return True


SAME: Only = {}
"""The result of `changes` when nothing differs."""


def changes(base: Any, now: Any, *, in_place: bool) -> Only:
    """The parts in which two views differ, in the form in which `to_plain` takes them (`only`). None means the whole
    value, for example when the values cannot be compared.

    `in_place` asserts that lists of equal length have the same items in the same order.
    """
    try:
        return SAME if _packed(base) == _packed(now) else _below(base, now, in_place)
    except (TypeError, ValueError, OverflowError, RecursionError):
        return None


def _below(base: Any, now: Any, in_place: bool) -> Only:
    """Like `changes`, for values that differ."""
    if type(base) is not type(now):
        return None
    if isinstance(base, msgspec.Struct):
        return {name: _below(one, other, in_place)
                for name, one, other in zip(base.__struct_fields__, astuple(base), astuple(now), strict=True)
                if one is not other and _packed(one) != _packed(other)}
    if in_place and type(base) is list and len(base) == len(now) and all(
            isinstance(item, msgspec.Struct) for item in (*base, *now)):
        return [SAME if _packed(one) == _packed(other) else _below(one, other, in_place)
                for one, other in zip(base, now, strict=True)]
    return None


_packed = msgspec.msgpack.Encoder(enc_hook=to_text).encode
