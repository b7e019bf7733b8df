"""`Store`: what is known of one kind of objects, as readers see it.

    not complete   before the first whole list: reads find nothing, `is_ready` is False, `wait_until_ready` blocks
    complete       a list and all changes since; a later list takes its place in one step, never page by page
    ended          nobody feeds it any more: it keeps answering with the last it knew; who waits for it is told

Each read hands out fresh readers of the stored records, so what one caller does to an object is seen by nobody else.
The lock is held only to look at or swap dictionaries: predicates, selectors and index functions run outside it. Safe
to use from any thread; only `wait_until_ready` blocks.
"""
from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Any, Generic, TypeAlias, TypeVar

from kubectl_runtime.core.base.clock import Clock, Duration, seconds
from kubectl_runtime.core.base.errors import KubeError, RequestError
from kubectl_runtime.core.base.keys import Key, key_of
from kubectl_runtime.core.codec.record import Record
from kubectl_runtime.core.meta.gvk import ApiResource
from kubectl_runtime.core.meta.refs import ObjectRef
from kubectl_runtime.core.meta.selectors import LabelSelection, Selector
from kubectl_runtime.runtime.reflector.indexes import Indexes
from kubectl_runtime.runtime.watcher.watch_state import WatchState

K = TypeVar("K")

Objects: TypeAlias = list[K]
Records: TypeAlias = list[Record]


class StoreNotReady(KubeError, TimeoutError):
    """A store was not complete within the time given, or its watch ended before it ever was."""


class StoreState:
    """What reader and writer share. `condition` guards everything else here but `trouble`, a text that only the writer
    replaces; nobody's code runs while it is held."""

    def __init__(self, resource: ApiResource, clock: Clock) -> None:
        self.resource = resource
        self.clock = clock
        self.condition = threading.Condition()
        self.records: dict[Key, Record] = {}
        self.hidden = False
        """Whether readers see none of the records, since parts are missing."""
        self.ready = False
        self.ended: str | None = None
        self.watch_state: Callable[[], WatchState] | None = None
        self.trouble = ""
        """The last failure of the watch, for who waits in vain; empty while all is well."""
        self.indexes = Indexes()
        self.on_ready: tuple[Callable[[], None], ...] = ()
        """To be called once the store is complete, without the lock; must neither block nor raise."""

    def renew(self) -> None:
        """Another life begins: nothing is stored, nobody has ended it. Indexes stay declared."""
        with self.condition:
            for key in self.records:
                self.indexes.drop(key)
            self.records = {}
            self.ready = False
            self.ended = None
            self.trouble = ""

    @property
    def shown(self) -> dict[Key, Record]:
        """What readers see."""
        return {} if self.hidden else self.records

    def when_ready(self, callback: Callable[[], None]) -> None:
        """Call `callback` once the store is complete, now if it is."""
        with self.condition:
            if not self.ready:
                self.on_ready = (*self.on_ready, callback)
                return
        callback()


class Store(Generic[K]):
    """The reading side. Made by `store()`, `Watch` or a controller."""

    def __init__(self, state: StoreState, read: Callable[[Record], K]) -> None:
        """`read` makes a fresh reader of a record; it must not block."""
        self._state = state
        self._read = read

    @property
    def resource(self) -> ApiResource:
        """The kind of the stored objects."""
        return self._state.resource

    @property
    def watch_state(self) -> WatchState | None:
        """What the watch that feeds the store does, since when, and its error; None when a given stream feeds it."""
        state = self._state.watch_state
        return None if state is None else state()

    @property
    def is_ready(self) -> bool:
        """Whether a complete list has been stored."""
        return self._state.ready

    def wait_until_ready(self, timeout: Duration | None = None) -> None:
        """Block until the store is complete; any number of threads may wait.

        Raises StoreNotReady after `timeout` seconds (None: waits as long as the watch lives), and as soon as the
        watch has ended without a complete list.
        """
        state, clock = self._state, self._state.clock
        deadline = None if timeout is None else clock.monotonic() + seconds(timeout)
        with state.condition:
            while not state.ready:
                if state.ended is not None:
                    raise StoreNotReady(f"the watch of {self.resource.full_name} ended ({state.ended}) "
                                        f"before its list was complete{_because(state)}")
                left = None if deadline is None else deadline - clock.monotonic()
                if left is not None and left <= 0:
                    raise StoreNotReady(f"{self.resource.full_name}: no complete list after "
                                        f"{seconds(timeout or 0):g} s{_because(state)}")
                clock.wait(state.condition, left)

    def when_ready(self, callback: Callable[[], None]) -> None:
        """Have `callback` called once when the store is complete, by the thread that completes it; now, if it is.

        It must neither block nor raise.
        """
        self._state.when_ready(callback)

    def get(self, key: ObjectRef | str, namespace: str | None = None) -> K | None:
        """The object with this ref, or this name and namespace; None when the store has none.

        A cluster-scoped object is found whatever namespace is given. Raises RequestError for a ref of another kind.
        """
        record = self._record(key, namespace)
        return None if record is None else self._read(record)

    def __contains__(self, key: object) -> bool:
        """Whether the object with this ref is stored; False for refs of other kinds."""
        return isinstance(key, ObjectRef) and self._is_own(key) and self._record(key, None) is not None

    def __len__(self) -> int:
        return len(self._state.shown)

    def __iter__(self) -> Iterator[K]:
        return iter(self.list())

    def list(self) -> Objects[K]:
        """All objects as of now, in no particular order."""
        return [self._read(record) for record in self.records()]

    state = list

    def records(self) -> Records:
        """All objects as of now, in the form they are stored: immutable, and cheaper than readers."""
        with self._state.condition:
            return [*self._state.shown.values()]

    def record(self, key: ObjectRef | str, namespace: str | None = None) -> Record | None:
        """As `get`, but the object in the form it is stored."""
        return self._record(key, namespace)

    def reader(self, record: Record) -> K:
        """A fresh reader of a record of this store: what `get` makes of it."""
        return self._read(record)

    def find(self, predicate: Callable[[K], bool]) -> K | None:
        """Some object for which `predicate` is true, or None. What `predicate` raises is passed on."""
        return next(self._matching(self.records(), predicate), None)

    def filter(self, wanted: Callable[[K], bool] | LabelSelection) -> Objects[K]:
        """The objects for which a function is true, or whose labels a selector matches (see `core.selectors`).

        Raises RequestError for what is neither.
        """
        records = self.records()
        if callable(wanted):
            return [*self._matching(records, wanted)]
        selector = Selector.of(wanted)
        return [self._read(record) for record in records if selector.matches(record.head.labels)]

    def by_index(self, index: str, value: Hashable) -> Objects[K]:
        """The objects for which the index function `index` gave `value`. Raises RequestError for an unknown index."""
        state = self._state
        with state.condition:
            keys = state.indexes.keys(index, value)
            shown = state.shown
            records = None if keys is None else [shown[key] for key in keys if key in shown]
            known = sorted(state.indexes.functions)
        if records is None:
            raise RequestError(f"the store of {self.resource.full_name} has no index {index!r} "
                               f"(it has {', '.join(known) or 'none'}): call add_index first")
        return [self._read(record) for record in records]

    def add_index(self, index: str, function: Callable[[K], Iterable[Hashable] | Hashable | None]) -> None:
        """Keep an index from each value of `function(obj)` (one, an iterable of several, or None) to the objects.

        May be called at any time, also while the watch runs; the index is complete when this returns. `function` must
        depend on nothing but the object, and may be called more than once for it. If it raises, that is logged and the
        object is in no bucket. Raises RequestError when the name is taken.
        """
        state = self._state

        def indexed(record: Record) -> Any:
            return function(self._read(record))

        with state.condition:
            if index in state.indexes.functions:
                raise RequestError(f"the store of {self.resource.full_name} already has an index {index!r}")
            state.indexes.declare(index, indexed)
            snapshot = dict(state.records)
        values = {key: state.indexes.values_of(index, indexed, record) for key, record in snapshot.items()}
        with state.condition:
            # What changed meanwhile was indexed by its writer, who has known of the index since it was declared.
            for key, record in snapshot.items():
                if state.records.get(key) is record:
                    state.indexes.put(index, key, values[key])
            state.indexes.complete(index)

    def __repr__(self) -> str:
        return f"<Store of {self.resource.full_name}: {len(self)} objects{'' if self.is_ready else ', not complete'}>"

    def _record(self, key: ObjectRef | str, namespace: str | None) -> Record | None:
        if isinstance(key, ObjectRef):
            if not self._is_own(key):
                raise RequestError(f"{key} is not in a store of {self.resource.full_name}")
            name, namespace = key.name, key.namespace
        else:
            name = key
        state = self._state
        with state.condition:
            shown = state.shown
            found = shown.get(key_of(namespace, name))
            # Objects of a namespaced kind all have a namespace, so this finds cluster-scoped ones only.
            return found if found is not None or not namespace else shown.get((None, name))

    def _is_own(self, ref: ObjectRef) -> bool:
        return ref.kind == self.resource.kind and ref.group == self.resource.group

    def _matching(self, records: Iterable[Record], predicate: Callable[[K], bool]) -> Iterator[K]:
        return (obj for obj in map(self._read, records) if predicate(obj))


def _because(state: StoreState) -> str:
    return f"; last failure: {state.trouble}" if state.trouble else ""
