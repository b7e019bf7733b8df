"""The indexes of a store: for each function, the values of every key and the keys of every value.

    declare    the writer computes its values from now on; reads do not see it yet
    put, drop  set or remove the values of one key
    complete   reads see it

Not thread-safe: the store's lock guards all of it but `values_of`, which calls the user's function and needs no lock.
`epoch` counts declarations, so that a writer notices an index that appeared after it computed its values.
"""
from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Any

from kubectl_runtime.core.base.keys import Key
from kubectl_runtime.core.codec.record import Record
from kubectl_runtime.runtime.usercode import guarded

IndexFunction = Callable[[Record], Any]
Values = tuple[Hashable, ...]


class Indexes:
    """All indexes of one store."""

    def __init__(self) -> None:
        self.functions: dict[str, IndexFunction] = {}
        self.epoch = 0
        self._complete: set[str] = set()
        self._values: dict[str, dict[Key, Values]] = {}
        self._keys: dict[str, dict[Hashable, set[Key]]] = {}

    def declare(self, name: str, function: IndexFunction) -> None:
        self.functions[name] = function
        self._values[name] = {}
        self._keys[name] = {}
        self.epoch += 1

    def complete(self, name: str) -> None:
        self._complete.add(name)

    def keys(self, name: str, value: Hashable) -> list[Key] | None:
        """The keys that have `value`; None when there is no such index (yet)."""
        if name not in self._complete:
            return None
        return [*self._keys[name].get(value, ())]

    def put(self, name: str, key: Key, values: Values) -> None:
        """`key` has exactly these values."""
        self._remove(name, key)
        if values:
            self._values[name][key] = values
            for value in values:
                self._keys[name].setdefault(value, set()).add(key)

    def drop(self, key: Key) -> None:
        """`key` is gone."""
        for name in self.functions:
            self._remove(name, key)

    @staticmethod
    def values_of(name: str, function: IndexFunction, record: Record) -> Values:
        """What the user's function says of an object; nothing when it raises (reported). Call it without the lock."""
        return guarded((), lambda *_: f"index {name} of {record.ref}", _checked_values, function, record)

    def _remove(self, name: str, key: Key) -> None:
        buckets = self._keys[name]
        for value in self._values[name].pop(key, ()):
            bucket: set[Key] = buckets[value]
            bucket.discard(key)
            if not bucket:
                del buckets[value]


def _checked_values(function: IndexFunction, record: Record) -> Values:
    values = _one_or_many(function(record))
    hash(values)
    return values


def _one_or_many(found: Any) -> Values:
    """A user's answer as a tuple: None is no value, an iterable other than text several, anything else one."""
    if found is None:
        return ()
    several = isinstance(found, Iterable) and not isinstance(found, str | bytes)
    return tuple(found) if several else (found,)
