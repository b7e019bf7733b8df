"""`Store`: the objects of one kind, as readers see them.

    not complete   before the first complete list: reads find nothing, `is_ready` is False, `wait_until_ready` blocks
    complete       a list and all later changes; a later list replaces everything in one step, never page by page
    ended          no watch feeds the store any more: the store keeps its last state; waits end with an error

A store reads the state of one watch, or of several watches (one for each namespace). With several watches, the store is
complete when every watch is; until then reads find nothing, because a part would look like the whole. The watches may
change: a controller's store exists before its watches, and is used again when the controller starts again.

Each read makes new objects from the stored records, so a caller's changes to an object affect no other caller. For a
write of this process that the watch has not shown yet, reads return the server's answer (see `overlay`). The lock is
held only to read or swap dictionaries; predicates, selectors and index functions run without it. Safe to use from any
thread; only `wait_until_ready` blocks.

`StoreState`: the data of one watch, shared by its writer and all readers: records, indexes, writes of this process.
"""
from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Any, Generic, TypeAlias, TypeVar

from kubectl_runtime.core.base.errors import KubeError, RequestError
from kubectl_runtime.core.base.guard import check_callback, guarded, guarded_logger, name_of, not_awaitable
from kubectl_runtime.core.base.plain import Key, key_of
from kubectl_runtime.core.base.threads import Clock, Duration, renewed_in_children, seconds
from kubectl_runtime.core.codec.views import Record
from kubectl_runtime.core.meta.gvk import ApiResource, ObjectRef
from kubectl_runtime.core.meta.selectors import LabelSelection, Selector
from kubectl_runtime.core.scope import time_left
from kubectl_runtime.runtime.store.indexes import Indexes, IndexFunction, IndexFunctions, IndexName
from kubectl_runtime.runtime.store.overlay import Overlay, Own, number_of
from kubectl_runtime.runtime.watch.states import WatchState


class StoreState:
    """The state that a store and its writer share.

    `condition` guards everything here except `trouble`, a text that only the writer replaces. No user code runs while
    the condition is held. `lock` is the condition's own lock; entering the lock directly costs half as much.
    """

    def __init__(self, resource: ApiResource, clock: Clock) -> None:
        self.resource = resource
        self.clock = clock
        self.lock = threading.RLock()
        self.condition = threading.Condition(self.lock)
        self.records: dict[Key, Record] = {}
        self.bytes = 0
        """Bytes of JSON in `records`; views of declared fields keep no JSON."""
        self.ready = False
        self.ended: str | None = None
        self.watch_state: Callable[[], WatchState] | None = None
        self.trouble = ""
        """The last failure of the watch, for callers whose wait timed out; empty while all is well."""
        self.unstarted = ""
        """What the user must do if the store's watch was never started; otherwise empty."""
        self.trouble_of: Callable[[], str] = lambda: ""
        """Returns the last failure of a stream that reports failures only on request."""
        self.indexes = Indexes(clock)
        self.overlay = Overlay()
        self.on_ready: tuple[Callable[[], None], ...] = ()
        """Callbacks, called without the lock once the store is complete. They must neither block nor raise."""
        renewed_in_children(self)

    def renew(self) -> None:
        """Make new locks. Only for a forked child process, since a thread of the parent may have held the old locks."""
        self.lock = threading.RLock()
        self.condition = threading.Condition(self.lock)

    def when_ready(self, callback: Callable[[], None]) -> None:
        """Call `callback` once the store is complete; at once if the store already is."""
        with self.condition:
            if not self.ready:
                self.on_ready = (*self.on_ready, callback)
                return
        callback()

    def end(self, reason: str) -> None:
        """End the waits for a complete list, because nothing more will be written. Only the first call counts."""
        with self.condition:
            if self.ended is None:
                self.ended = reason
            self.condition.notify_all()

    def left(self) -> None:
        """Wake the threads that wait for this state. Their store now reads other states, so they must check again."""
        with self.condition:
            callbacks, self.on_ready = self.on_ready, ()
            self.condition.notify_all()
        for callback in callbacks:
            callback()

    # What readers see. The caller must hold the lock

    def find(self, key: Key, own_writes: bool) -> Record | None:
        """The object as readers see it."""
        if not self.overlay.seen:
            return self.records.get(key)
        own = self.entry(key, own_writes)
        return self.records.get(key) if own is None else own.record

    def snapshot(self, own_writes: bool) -> dict[Key, Record]:
        """All objects as readers see them. Without entries of the overlay, this is the internal dictionary."""
        own = self.own_entries(own_writes)
        if not own:
            return self.records
        records = dict(self.records)
        for key, entry in own.items():
            if entry.record is not None:
                records[key] = entry.record
            else:
                records.pop(key, None)
        return records

    def size(self, own_writes: bool) -> int:
        """How many objects `snapshot` has."""
        own = self.own_entries(own_writes)
        return len(self.records) + sum((entry.record is not None) - (key in self.records) for key, entry in own.items())

    def entry(self, key: Key, own_writes: bool) -> Own | None:
        """The overlay's entry for this key, if readers see the entry instead of the watched object."""
        return self.overlay.seen.get(key) if own_writes and self.ready else None

    def own_entries(self, own_writes: bool) -> dict[Key, Own]:
        """All entries of the overlay that readers see instead of the watched objects."""
        return self.overlay.seen if own_writes and self.ready else {}

    # Indexes. Index functions are user code and run without the lock

    def add_index(self, name: IndexName, function: IndexFunction) -> None:
        """Add an index. It is complete when the call returns, unless another thread is building the same index."""
        with self.condition:
            if self.indexes.is_declared(name):
                return
            self.indexes.declare(name, function)
            snapshot = dict(self.records)
        values = {key: self.indexes.values_of(name, function, record) for key, record in snapshot.items()}
        with self.condition:
            if not self.indexes.is_declared(name):
                return  # the index's user has released the watch in the meantime
            # The writer has indexed everything that changed since the snapshot, because it knew of the index by then.
            problems = [self.indexes.put(name, key, values[key]) for key, record in snapshot.items()
                        if self.records.get(key) is record]
            self.indexes.complete(name)
        self.indexes.report(problems)

    def forget_indexes(self, scope: object) -> None:
        """Drop the indexes of a user that has released the watch."""
        with self.condition:
            self.indexes.forget(scope)

    def by_index(self, name: IndexName, function: IndexFunction, value: object, own_writes: bool) -> list[Record]:
        """The objects for which `function` returns `value`, from the index `name`; without such an index, by a scan."""
        with self.condition:
            complete = self.indexes.is_complete(name)
            own = dict(self.own_entries(own_writes))  # a copy: functions run below without the lock
            keys = self.indexes.keys(name, value) if complete else [*self.records]
            records = [self.records[key] for key in keys if key in self.records and key not in own]
        if not complete:
            records = [one for one in records if value in self.indexes.values_of(name, function, one)]
        for entry in own.values():
            if entry.record is not None:
                if name not in entry.values:
                    entry.values[name] = self.indexes.values_of(name, function, entry.record)
                if value in entry.values[name]:
                    records.append(entry.record)
        return records


log = guarded_logger(__name__)


def _owner_uids(record: Record) -> list[str]:
    return [reference.uid for reference in record.head.owner_references or ()]


K = TypeVar("K")
R = TypeVar("R")

Objects: TypeAlias = list[K]
Records: TypeAlias = list[Record]


class StoreNotReady(KubeError, TimeoutError):
    """A store was not complete within the given time, or its watch ended before the store was ever complete.

    >>> issubclass(StoreNotReady, TimeoutError)
    True
    """


class Store(Generic[K]):
    """The objects of a watch, kept in memory. Read them by key, by index, by label, or all at once.

    Created by `store()`, `watch_store` or a controller (`running.store`, `ctx.store(Kind)`). Safe to use from any
    thread; only `wait_until_ready` blocks. Each returned object belongs to the caller. Only the fields that the caller
    reads are decoded.

    >>> with watch_store(Api.all(client, ConfigMap)) as maps:
    ...     maps.wait_until_ready(10)
    ...     maps.get("settings", "default").data, "absent" in maps
    ...     [each.name for each in maps.filter("app=web")]
    ({'color': 'blue'}, False)
    ['settings']
    """

    _owners = " owners"
    """The index of `owned_by`; no name of a user's index begins with a blank."""

    def __init__(self, resource: ApiResource, read: Callable[[Record], K], *states: StoreState,
                 own_writes: bool = True) -> None:
        """`read` makes a new object from a record and must not block. `states`: the state of one watch, or of several
        watches that are read together. `own_writes`: whether reads return writes of this process that the watch has not
        shown yet."""
        self.resource = resource
        """The kind of the stored objects."""
        self._read = read
        self._own_writes = own_writes
        self._states = states
        self._only: Callable[[Record], bool] | None = None
        self._apart = True
        self._functions: dict[str, IndexFunction] = {}
        self._given: dict[str, Callable[[Any], Any]] = {}
        """The index functions, as the user passed them."""
        self.declared_by = ""
        """The code that declares the indexes, with `{...}` in their place; empty if only `add_index` declares them."""
        self._warned = False

    def shows(self, *states: StoreState, only: Callable[[Record], bool] | None = None, apart: bool = True) -> None:
        """Serve reads from `states`; each state holds the objects of one watch. The store's indexes are built on
        `states`, and threads that wait for the previous states wait for `states` instead. For internal use.

        `only` selects the objects that reads return. `apart=False`: two states may briefly have an object of the same
        name; reads then return the newer object.
        """
        before = self._states
        self._apart = self._apart and apart  # set first, so that no reader takes overlapping states for disjoint ones
        self._states, self._only, self._apart = states, only, apart
        for name, function in [*self._functions.items()]:
            for state in states:
                state.add_index((self, name), function)
        for state in before:
            if state not in states:
                state.forget_indexes(self)
            state.left()

    def drop_indexes(self) -> None:
        """Drop this store's indexes, while other users may keep the watch. `by_index` then scans all objects."""
        for state in self._states:
            state.forget_indexes(self)

    @property
    def watch_state(self) -> WatchState | None:
        """The state of the watch that feeds the store, with its last error. With several watches, the state of the
        watch with the most consecutive failures. None when a stream of the program feeds the store."""
        states = [state.watch_state() for state in self._states if state.watch_state is not None]
        return max(states, key=lambda state: state.consecutive_failures, default=None)

    @property
    def is_ready(self) -> bool:
        """Whether a complete list has been stored."""
        states = self._states
        return bool(states) and all(state.ready for state in states)

    def wait_until_ready(self, timeout: Duration | None = None) -> None:
        """Block until the store is complete; any number of threads may wait.

        Raises StoreNotReady after `timeout` seconds (None waits as long as the watch lives), or as soon as the watch
        has ended without a complete list. If the watch was never started, the error says so.
        """
        self._warn_unstarted("has a caller waiting")
        clock = self._states[0].clock
        deadline = None if timeout is None else clock.monotonic() + seconds(timeout)
        while (state := next((state for state in self._states if not state.ready), None)) is not None:
            with state.condition:
                while not state.ready and state in self._states:
                    if state.ended is not None:
                        raise StoreNotReady(f"the watch of {self.resource.full_name} ended ({state.ended}) "
                                            f"before its list was complete{self._because}")
                    left = time_left(None if deadline is None else deadline - clock.monotonic(), clock)
                    if left is not None and left <= 0:
                        if unstarted := self._unstarted:
                            raise StoreNotReady(f"{self.resource.full_name}: no complete list after "
                                                f"{seconds(timeout or 0):g} s: {unstarted}")
                        raise StoreNotReady(f"{self.resource.full_name}: no complete list after "
                                            f"{seconds(timeout or 0):g} s{self._because}")
                    clock.wait(state.condition, left)

    def when_ready(self, callback: Callable[[], None]) -> None:
        """Call `callback` once the store is complete, in the thread that completes it; at once if the store already is.

        `callback` must not block. An exception that `callback` raises is logged.
        """
        missing = next((state for state in self._states if not state.ready), None)
        if missing is None:
            guarded(None, f"the callback for the complete store of {self.resource.full_name}", callback)
        else:
            missing.when_ready(lambda: self.when_ready(callback))

    @property
    def has_ended(self) -> bool:
        """Whether the watch has ended, so that the store gets no more changes."""
        return any(state.ended is not None for state in self._states)

    @property
    def trouble(self) -> str:
        """The last failure of the watch, or a note that the watch was never started; empty while all is well."""
        failures = "; ".join(filter(None, (state.trouble or state.trouble_of() for state in self._states)))
        return failures or self._unstarted

    def get(self, key: ObjectRef | str, namespace: str | None = None) -> K | None:
        """The object with this ref, or this name and namespace; None if the store has no such object.

        For a cluster-scoped object the namespace is ignored. Raises RequestError for a ref of another kind, and for a
        name without a namespace if the kind is namespaced.
        """
        record = self._record(key, namespace, self._own_writes)
        return None if record is None else self._read(record)

    def __contains__(self, key: object) -> bool:
        """Whether the object with this ref is stored; False for refs of other kinds."""
        if not isinstance(key, ObjectRef) or not self._is_own(key):
            return False
        return self._record(key, None, self._own_writes) is not None

    def __len__(self) -> int:
        if self._only is not None or not self._apart:
            return len(self.records())
        found = 0
        for state in self._read_now:
            with state.condition:
                found += state.size(self._own_writes)
        if not found:
            self._found_nothing()
        return found

    def __iter__(self) -> Iterator[K]:
        return iter(self.list())

    def list(self) -> Objects[K]:
        """A list of all objects, in no particular order."""
        return [self._read(record) for record in self.records()]

    state = list

    def records(self) -> Records:
        """A list of all stored records: immutable, and cheaper than objects made from them."""
        found: Records = []
        for state in self._read_now:
            with state.condition:
                found += state.snapshot(self._own_writes).values()
        found = self._shown(found)
        if not found:
            self._found_nothing()
        return found

    def record(self, key: ObjectRef | str, namespace: str | None = None) -> Record | None:
        """The stored record with this ref, or name and namespace; None if the store has no such record."""
        return self._record(key, namespace, self._own_writes)

    def record_at(self, namespace: str | None, name: str) -> Record | None:
        """The stored record with exactly this namespace and name. The fastest read."""
        wanted, own_writes = key_of(namespace, name), self._own_writes
        for state in self._read_now:
            with state.lock:
                found = state.find(wanted, own_writes)
            if found is not None:
                return found
        return None

    def read_as(self, read: Callable[[Record], R]) -> Store[R]:
        """A store of the same states, whose objects are made by `read`. Its `by_index` accepts the names of this
        store's indexes, but scans all objects. For internal use."""
        made = Store(self.resource, read, *self._states, own_writes=self._own_writes)
        made._functions, made._given, made.declared_by = self._functions, self._given, self.declared_by
        return made

    def as_watched(self, ref: ObjectRef) -> Record | None:
        """The record as the watch last delivered it, without later writes of this process."""
        return self._record(ref, None, False)

    def reader(self, record: Record) -> K:
        """Make a new object from a record of this store, as `get` does."""
        return self._read(record)

    def find(self, predicate: Callable[[K], bool]) -> K | None:
        """An object for which `predicate` is true, or None. Raises what `predicate` raises."""
        return next(self._matching(self.records(), predicate), None)

    def filter(self, wanted: Callable[[K], bool] | LabelSelection) -> Objects[K]:
        """The objects for which a function is true, or whose labels a selector matches (see `Selector.of`).

        Raises RequestError for anything else.
        """
        records = self.records()
        if callable(wanted):
            return [*self._matching(records, wanted)]
        selector = Selector.of(wanted)
        return [self._read(record) for record in records if selector.matches(record.head.labels)]

    def by_index(self, index: str, value: Hashable) -> Objects[K]:
        """The objects for which the index function `index` returned `value`. Raises RequestError for an unknown index.
        """
        function = self._functions.get(index)
        if function is None:
            known = ", ".join(sorted(self._functions.keys() - {self._owners})) or "none"
            declared = self.declared_by.replace("{...}", f"{{{index!r}: function}}")
            raise RequestError(f"the store of {self.resource.full_name} has no index {index!r} (it has {known}): "
                               f"{declared or f'its add_index({index!r}, function)'} adds one")
        records = [record for state in self._read_now
                   for record in state.by_index((self, index), function, value, self._own_writes)]
        found = [self._read(record) for record in self._shown(records)]
        if not found:
            self._found_nothing()
        return found

    def owned_by(self, uid: str) -> Records:
        """The stored records that have an owner reference with this uid. The first call builds an index for this."""
        if self._owners not in self._functions:
            self._functions[self._owners] = _owner_uids
            self._index(self._owners, _owner_uids)
        return [record for state in self._read_now
                for record in state.by_index((self, self._owners), _owner_uids, uid, self._own_writes)]

    def add_index(self, index: str, function: Callable[[K], Iterable[Hashable] | Hashable | None]) -> None:
        """Index the objects by the values of `function(obj)`: one value, an iterable of several, or None.

        May be called at any time, even while the watch runs; the index is complete when the call returns. `function`
        must depend only on the object, and may be called more than once for the same object. If `function` raises, the
        error is logged and the index does not find the object. An existing index with an equal function stays as it is.
        Raises RequestError if the name already has another function, and for an invalid function.
        """
        check_callback(f"the index {index!r}", function, "obj", may_yield=True)

        def indexed(record: Record) -> Any:
            return not_awaitable(function(self._read(record)), function, may_yield=True)

        there = self._given.setdefault(index, function)
        if self._functions.setdefault(index, indexed) is not indexed:
            if there is function or there == function:
                return
            raise RequestError(f"the store of {self.resource.full_name} already has an index {index!r}, which uses "
                               f"{name_of(there)}: choose another name for the index that uses {name_of(function)}")
        self._index(index, indexed)

    def _index(self, index: str, indexed: IndexFunction) -> None:
        states = None
        while states is not self._states:  # the states may have changed in between
            states = self._states
            for state in states:
                state.add_index((self, index), indexed)

    def add_indexes(self, indexes: IndexFunctions[Any] | None) -> None:
        """Call `add_index` for each function."""
        for name, function in (indexes or {}).items():
            self.add_index(name, function)

    def __repr__(self) -> str:
        return f"<Store of {self.resource.full_name}: {len(self)} objects{'' if self.is_ready else ', not complete'}>"

    def _record(self, key: ObjectRef | str, namespace: str | None, own_writes: bool) -> Record | None:
        if isinstance(key, ObjectRef):
            if not self._is_own(key):
                raise RequestError(f"{key} is not of the kind {self.resource.full_name}, which this store holds")
            name, namespace = key.name, key.namespace
        else:
            name = key
        wanted, states = (namespace or None, name), self._states
        older: Records = []
        for state in states if len(states) == 1 else self._read_now:  # saves a call in the common case
            with state.lock:
                found = state.find(wanted, own_writes)
                if found is None and namespace:
                    # Objects of a namespaced kind all have a namespace, so this finds only cluster-scoped ones.
                    found = state.find((None, name), own_writes)
            if found is not None and (self._only is None or self._only(found)):
                if self._apart:
                    return found
                older.append(found)
        if older:
            return max(older, key=_age)
        if not namespace and self.resource.namespaced and not isinstance(key, ObjectRef):
            raise RequestError(f"{self.resource.full_name} are namespaced, so the name {name!r} is not enough: "
                               f"get({name!r}, namespace), or get(obj.ref)")
        self._found_nothing()
        return None

    @property
    def _unstarted(self) -> str:
        """What the program must do before there is anything to read; empty if nothing."""
        return next((state.unstarted for state in self._states if state.unstarted), "")

    def _found_nothing(self) -> None:
        """Warn that a read found nothing, if the watch was never started."""
        self._warn_unstarted("was read, but is empty")

    def _warn_unstarted(self, what: str) -> None:
        if not self._warned and (unstarted := self._unstarted):
            self._warned = True
            log.warning("the store of %s %s: %s", self.resource.full_name, what, unstarted)

    @property
    def _read_now(self) -> tuple[StoreState, ...]:
        """The states to read; none while any of several states is incomplete."""
        states = self._states
        return states if len(states) == 1 or all(state.ready for state in states) else ()

    def _shown(self, records: Records) -> Records:
        """The records that reads return, one for each name."""
        if (only := self._only) is not None:
            records = [record for record in records if only(record)]
        if self._apart:
            return records
        newest: dict[Key, Record] = {}
        for record in records:
            other = newest.get(record.key)
            if other is None or _age(other) < _age(record):
                newest[record.key] = record
        return [*newest.values()]

    def _is_own(self, ref: ObjectRef) -> bool:
        return ref.kind == self.resource.kind and ref.group == self.resource.group

    def _matching(self, records: Iterable[Record], predicate: Callable[[K], bool]) -> Iterator[K]:
        return (obj for obj in map(self._read, records) if not_awaitable(predicate(obj), predicate))

    @property
    def _because(self) -> str:
        trouble = self.trouble
        return f"; last failure: {trouble}" if trouble else ""


def _age(record: Record) -> int:
    """The version as a number, which orders objects of one name; 0 if the version is not a number."""
    return number_of(record.resource_version) or 0
