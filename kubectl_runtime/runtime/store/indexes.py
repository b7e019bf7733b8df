"""The indexes of a store: for each function, the values of every key and the keys of every value.

    declare    add an index: the writer computes its values from then on, but reads do not use the index yet
    put, drop  set or remove the values of one key
    complete   mark an index as complete: reads use the index from then on
    forget     remove the indexes of a scope

An index has a name and a scope. The scope is the `Store` to which the index was added, since several stores may read
the state of one watch and each may have its own `by_node`. Not thread-safe: the store's lock guards everything except
`values_of`, which calls the user's function. `epoch` counts declarations, so that a writer notices an index that was
declared after the writer computed its values.

Hashing a value, and comparing it with the same object's other values, happens outside the lock. Comparing the value
with other objects' values needs the lock. If the value's `==` or `hash` fails under the lock, the value is left out and
`put` returns the error. `put` never raises, since a half-written store would be worse than an index that lacks a value.
"""
from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any, TypeAlias, TypeVar

from kubectl_runtime.core.base.guard import Guard, check_callback, check_type
from kubectl_runtime.core.base.plain import Key
from kubectl_runtime.core.base.threads import SYSTEM_CLOCK, Clock
from kubectl_runtime.core.codec.views import Record

K = TypeVar("K")

IndexFunctions = Mapping[str, Callable[[K], Iterable[Hashable] | Hashable | None]]
"""The functions of indexes by name, as users pass them; see `Store.add_index`."""

IndexFunction = Callable[[Record], Any]
Values = tuple[Hashable, ...]
"""The values that an index function returned for one object, each once."""
IndexName: TypeAlias = tuple[object, str]
"""Scope and name."""


class Indexes:
    """All indexes of one store."""

    def __init__(self, clock: Clock = SYSTEM_CLOCK) -> None:
        self._clock = clock
        self._guards: dict[IndexName, Guard] = {}
        self._values = Guard(
            "the comparison of an index's value, by which its object is therefore not found,", clock=clock)
        self._undeclared = Guard("an index function", clock=clock)
        self.functions: dict[IndexName, IndexFunction] = {}
        """Replaced as a whole, never changed in place."""
        self.epoch = 0
        self._complete: set[IndexName] = set()
        self._buckets: dict[IndexName, dict[Key, list[tuple[Hashable, set[Key]]]]] = {}
        """For each key its values, each with the set of all keys that have it. So removing a key compares nothing."""
        self._keys: dict[IndexName, dict[Hashable, set[Key]]] = {}

    def declare(self, name: IndexName, function: IndexFunction) -> None:
        """Add an index. Reads do not use it before `complete` is called."""
        self._buckets[name] = {}
        self._keys[name] = {}
        self._guards = {**self._guards, name: Guard(f"index {name[1]}", clock=self._clock)}
        self.functions = {**self.functions, name: function}
        self.epoch += 1

    def complete(self, name: IndexName) -> None:
        """Mark the index as complete: it now has every object of the store."""
        self._complete.add(name)

    def is_declared(self, name: IndexName) -> bool:
        """Whether there is an index of this name, complete or not."""
        return name in self.functions

    def is_complete(self, name: IndexName) -> bool:
        """Whether the index has every object of the store."""
        return name in self._complete

    def forget(self, scope: object) -> None:
        """Remove the indexes of this scope."""
        gone = [name for name in self.functions if name[0] is scope]
        for name in gone:
            del self._buckets[name], self._keys[name]
            self._complete.discard(name)
        self._guards = {name: guard for name, guard in self._guards.items() if name not in gone}
        self.functions = {name: function for name, function in self.functions.items() if name not in gone}
        self.epoch += 1

    def keys(self, name: IndexName, value: Hashable) -> list[Key]:
        """The keys that have `value` in a complete index."""
        return [*self._keys[name].get(value, ())]

    def put(self, name: IndexName, key: Key, values: Values) -> BaseException | None:
        """Set the values of `key`. Returns the error of a value that cannot be kept, if any."""
        self._remove(name, key)
        problem, buckets = None, []
        for value in values:
            try:
                bucket = self._keys[name].setdefault(value, set())
            except BaseException as error:  # noqa: BLE001 - the value's own `==` may raise anything
                problem = error
                continue
            bucket.add(key)
            buckets.append((value, bucket))
        if buckets:
            self._buckets[name][key] = buckets
        return problem

    def drop(self, key: Key) -> None:
        """Remove the values of `key`."""
        for name in self.functions:
            self._remove(name, key)

    def values_of(self, name: IndexName, function: IndexFunction, record: Record) -> Values:
        """The values that the user's function returns for an object. If the function raises, the error is logged, and
        no values are returned. Must be called without the lock."""
        return self._guards.get(name, self._undeclared).call((), _described, _checked_values, function, record)

    def report(self, problems: Iterable[BaseException | None]) -> None:
        """Log the errors that `put` returned. Must be called without the lock: `str` of an exception is user code."""
        for problem in problems:
            if problem is not None:
                self._values.failed(problem)

    def _remove(self, name: IndexName, key: Key) -> None:
        for value, bucket in self._buckets[name].pop(key, ()):
            bucket.discard(key)
            if not bucket:
                try:
                    del self._keys[name][value]
                except BaseException:  # noqa: BLE001 - as in `put`; the empty bucket is kept
                    continue


def check_indexes(what: str, given: Any) -> Any:
    """Return `given` if it maps names to index functions or is None. Raises RequestError for anything else."""
    if given is not None:
        check_type(what, given, Mapping, "{'app': function}")
        for name, function in given.items():
            check_type(f"the name of an index in {what}", name, str, "'app'")
            check_callback(f"the index {name!r}", function, "obj", may_yield=True)
    return given


def _checked_values(function: IndexFunction, record: Record) -> Values:
    """The values, each once. Raises what the function, or a value's `hash` or `==`, raises."""
    found = function(record)
    if found is None:
        return ()
    several = isinstance(found, Iterable) and not isinstance(found, str | bytes)
    return tuple(dict.fromkeys(found if several else (found,)))


def _described(_: IndexFunction, record: Record) -> str:
    return str(record.ref)
