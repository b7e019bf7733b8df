"""`StoreWriter`: the one that feeds a store. One thread at a time; every change is seen whole or not at all.

    commit(changes)            some objects changed (a Record) or went (None)
    replace(records, changes)  a complete list takes the place of everything; the store is complete from now on
    attach(observer)           from the next commit on, `observer` is among those returned by it; what was stored until
                               then is returned here, so that the two together are everything, once

Index functions are user code and run before the lock is taken. An index that is declared meanwhile is noticed by its
epoch, and the values are computed again.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Generic, TypeVar, cast

from kubectl_runtime.core.base.clock import SYSTEM_CLOCK, Clock
from kubectl_runtime.core.base.keys import Key
from kubectl_runtime.core.codec.record import Record
from kubectl_runtime.core.meta.gvk import ApiResource, HasApiResource, api_resource_of
from kubectl_runtime.runtime.reflector.indexes import Values
from kubectl_runtime.runtime.reflector.store import Store, StoreState
from kubectl_runtime.runtime.watcher.readers import reader_of
from kubectl_runtime.runtime.watcher.watch_state import WatchState

K = TypeVar("K")

Changes = Mapping[Key, Record | None]
"""What became of keys: the new record, or None for one that is gone."""

Observers = tuple[object, ...]


class StoreWriter(Generic[K]):
    """The writing side of a store; `store` is the reading side."""

    def __init__(self, resource: ApiResource, read: Callable[[Record], K], *, clock: Clock = SYSTEM_CLOCK) -> None:
        """`read` makes what readers get of a record."""
        self._set_up(StoreState(resource, clock), read)

    def _set_up(self, state: StoreState, read: Callable[[Record], K]) -> None:
        self._state = state
        self.read = read
        self.store: Store[K] = Store(state, read)
        self._observers: Observers = ()

    @property
    def resource(self) -> ApiResource:
        return self._state.resource

    def get(self, key: Key) -> Record | None:
        """What is stored. Only for the thread that writes, which is why it needs no lock."""
        return self._state.records.get(key)

    def records(self) -> Mapping[Key, Record]:
        """Everything stored. As `get`; not to be kept beyond the next write."""
        return self._state.records

    def commit(self, changes: Changes) -> Observers:
        """Make these changes; who has to be told of them."""
        state = self._state
        while True:
            epoch, values = self._index(changes)
            with state.condition:
                if state.indexes.epoch != epoch:
                    continue
                records = state.records
                for key, record in changes.items():
                    if record is None:
                        records.pop(key, None)
                    else:
                        records[key] = record
                self._set_indexes(changes, values)
                return self._observers

    def replace(self, records: dict[Key, Record], changes: Changes) -> Observers:
        """Make `records`, which the store takes over, all there is; `changes` is how they differ from before."""
        state = self._state
        while True:
            epoch, values = self._index(changes)
            with state.condition:
                if state.indexes.epoch != epoch:
                    continue
                self._replace(records)
                self._set_indexes(changes, values)
                callbacks, state.on_ready = (state.on_ready, ()) if state.ready else ((), state.on_ready)
                state.condition.notify_all()
                observers = self._observers
            for callback in callbacks:  # the library's own, and outside the lock
                callback()
            return observers

    @property
    def _complete(self) -> bool:
        """Whether a complete list was written. Under the lock."""
        return self._state.ready

    def _replace(self, records: dict[Key, Record]) -> None:
        """A complete list takes the place of everything that this writer wrote. Under the lock."""
        self._state.records = records
        self._state.ready = True

    def attach(self, observer: object) -> tuple[bool, list[Record]]:
        """Add an observer; whether the store is complete now, and what is in it."""
        state = self._state
        with state.condition:
            self._observers = (*self._observers, observer)
            return self._complete, [*self.records().values()]

    def detach(self, observer: object) -> None:
        """Remove an observer; commits that are under way may still have it."""
        state = self._state
        with state.condition:
            self._observers = tuple(other for other in self._observers if other is not observer)

    def watched(self, state: Callable[[], WatchState]) -> None:
        """A watch feeds the store; `state` says how it is doing."""
        self._state.watch_state = state

    def trouble(self, text: str) -> None:
        """The last failure, for the error of those who wait in vain; empty when it is over."""
        self._state.trouble = text

    def end(self, reason: str) -> None:
        """Nothing will be written any more: wake those who wait for a complete list. Only the first call counts."""
        state = self._state
        with state.condition:
            if state.ended is None:
                state.ended = reason
            state.condition.notify_all()

    def _index(self, changes: Changes) -> tuple[int, dict[str, dict[Key, Values]]]:
        indexes = self._state.indexes
        with self._state.condition:
            epoch, functions = indexes.epoch, dict(indexes.functions)
        present = {key: record for key, record in changes.items() if record is not None} if functions else {}
        return epoch, {name: {key: indexes.values_of(name, function, record) for key, record in present.items()}
                       for name, function in functions.items()}

    def _set_indexes(self, changes: Changes, values: dict[str, dict[Key, Values]]) -> None:
        if not values:
            return
        indexes = self._state.indexes
        for key, record in changes.items():
            if record is None:
                indexes.drop(key)
        for name, of_keys in values.items():
            for key, found in of_keys.items():
                indexes.put(name, key, found)


def store(kind: type[K], *, clock: Clock = SYSTEM_CLOCK) -> tuple[Store[K], StoreWriter[K]]:
    """A store for objects of a resource class: the side that reads and the side that a `reflector` writes to."""
    writer = StoreWriter(api_resource_of(cast(HasApiResource, kind)), reader_of(kind), clock=clock)
    return writer.store, writer
