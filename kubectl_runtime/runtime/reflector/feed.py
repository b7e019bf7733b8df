"""`Feed`: a store that is there before its watches are, and the writers of them: one, or one for each namespace.

    one writer                as a `StoreWriter` of its own
    one for each namespace    each writes the objects of its namespace; the store is complete when the list of each is,
                              and shows before that none of them (a part of a list would look like the whole)

A feed has several lives, as a controller may be started again: `renew` empties the store, in whosever hands it is.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Generic, TypeVar

from kubectl_runtime.core.base.clock import Clock
from kubectl_runtime.core.base.keys import Key
from kubectl_runtime.core.codec.record import Record
from kubectl_runtime.core.meta.gvk import ApiResource
from kubectl_runtime.runtime.reflector.store import Store
from kubectl_runtime.runtime.reflector.store_state import StoreState
from kubectl_runtime.runtime.reflector.store_writer import StoreWriter

K = TypeVar("K")


class Feed(Generic[K]):
    """A store and its writers. Each writer is for one thread at a time."""

    def __init__(self, resource: ApiResource, read: Callable[[Record], K], namespaces: Sequence[str | None],
                 clock: Clock, *, own_writes: bool = True) -> None:
        """`namespaces` of the watches; with a single one, whatever it is, the store has no parts. `own_writes`: whether
        reads of the store see what this process wrote before the watch shows it."""
        self._read = read
        self._namespaces = namespaces
        self._state = StoreState(resource, clock)
        self.store: Store[K] = Store(self._state, read, own_writes=own_writes)

    def renew(self) -> list[StoreWriter[K]]:
        """Empty the store; the writers of its next life, in the order of the namespaces."""
        self._state.renew()
        if len(self._namespaces) == 1:
            return [_Writer(self._state, self._read)]
        self._state.hidden = True
        parts = _Parts(set(self._namespaces))
        return [_PartWriter(self._state, self._read, namespace, parts) for namespace in self._namespaces]


class _Writer(StoreWriter[K]):
    """A writer of a state that exists."""

    def __init__(self, state: StoreState, read: Callable[[Record], K]) -> None:
        self._set_up(state, read)


class _Parts:
    """What the writers of one store have in common; the store's lock guards it."""

    def __init__(self, missing: set[str | None]) -> None:
        self.missing = missing
        self.troubles: dict[str | None, str] = {}


class _PartWriter(_Writer[K]):
    """Writes the objects of one namespace."""

    def __init__(self, state: StoreState, read: Callable[[Record], K], namespace: str | None, parts: _Parts) -> None:
        super().__init__(state, read)
        self._namespace = namespace
        self._parts = parts

    def records(self) -> Mapping[Key, Record]:
        with self._state.condition:  # reentrant; other parts change what is gone through here
            return {key: record for key, record in self._state.records.items() if key[0] == self._namespace}

    def trouble(self, text: str) -> None:
        with self._state.condition:
            self._parts.troubles[self._namespace] = text
            super().trouble("; ".join(one for one in self._parts.troubles.values() if one))

    @property
    def _complete(self) -> bool:
        return self._namespace not in self._parts.missing

    def _replace(self, records: dict[Key, Record]) -> None:
        state = self._state
        others = {key: record for key, record in state.records.items() if key[0] != self._namespace}
        state.records = {**others, **records}
        self._parts.missing.discard(self._namespace)
        if not self._parts.missing:
            state.hidden, state.ready = False, True
