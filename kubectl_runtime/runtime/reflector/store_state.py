"""`StoreState`: what one watch keeps, for its writer and all who read: records, indexes, writes of this process."""
from __future__ import annotations

import threading
from collections.abc import Callable

from kubectl_runtime.core.base.clock import Clock
from kubectl_runtime.core.base.keys import Key
from kubectl_runtime.core.codec.record import Record
from kubectl_runtime.core.interpreter.forks import renewed_in_children
from kubectl_runtime.core.meta.gvk import ApiResource
from kubectl_runtime.runtime.reflector.indexes import Indexes, IndexFunction, IndexName
from kubectl_runtime.runtime.reflector.overlay import Overlay, Own
from kubectl_runtime.runtime.watcher.watch_state import WatchState


class StoreState:
    """What a store and its writer share. `condition` guards everything else here but `trouble`, a text that only the
    writer replaces; nobody's code runs while it is held. `lock` is the condition's own, which costs half to enter."""

    def __init__(self, resource: ApiResource, clock: Clock) -> None:
        self.resource = resource
        self.clock = clock
        self.lock = threading.RLock()
        self.condition = threading.Condition(self.lock)
        self.records: dict[Key, Record] = {}
        self.bytes = 0
        """Of JSON in `records`; declared fields have none."""
        self.ready = False
        self.ended: str | None = None
        self.watch_state: Callable[[], WatchState] | None = None
        self.trouble = ""
        """The last failure of the watch, for callers whose wait timed out; empty while all is well."""
        self.unstarted = ""
        """What its user forgot, where nothing feeds it yet: its controller was never started."""
        self.trouble_of: Callable[[], str] = lambda: ""
        """The same, of a stream that tells only who asks it."""
        self.indexes = Indexes(clock)
        self.overlay = Overlay()
        self.on_ready: tuple[Callable[[], None], ...] = ()
        """To be called once the store is complete, without the lock; must neither block nor raise."""
        renewed_in_children(self)

    def renew(self) -> None:
        """Be free of whoever holds the lock. For the child of a fork alone."""
        self.lock = threading.RLock()
        self.condition = threading.Condition(self.lock)

    def when_ready(self, callback: Callable[[], None]) -> None:
        """Call `callback` once the store is complete, now if it is."""
        with self.condition:
            if not self.ready:
                self.on_ready = (*self.on_ready, callback)
                return
        callback()

    def end(self, reason: str) -> None:
        """Nothing will be written any more: wake those who wait for a complete list. Only the first call counts."""
        with self.condition:
            if self.ended is None:
                self.ended = reason
            self.condition.notify_all()

    def left(self) -> None:
        """Somebody reads elsewhere from now on: whoever waits here has to look again."""
        with self.condition:
            callbacks, self.on_ready = self.on_ready, ()
            self.condition.notify_all()
        for callback in callbacks:
            callback()

    # What readers see. Under the lock

    def find(self, key: Key, own_writes: bool) -> Record | None:
        """The object as it is read."""
        if not self.overlay.seen:
            return self.records.get(key)
        own = self.entry(key, own_writes)
        return self.records.get(key) if own is None else own.record

    def snapshot(self, own_writes: bool) -> dict[Key, Record]:
        """All objects as they are read; the very dictionary that changes, where no write of this process does."""
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
        """What a write of this process makes readers see of the key, where that is not what the watch knows."""
        own = self.overlay.seen.get(key)
        return own if own is not None and self.ready and (own_writes or own.live) else None

    def own_entries(self, own_writes: bool) -> dict[Key, Own]:
        """The same of every key."""
        return {key: own for key in self.overlay.seen if (own := self.entry(key, own_writes)) is not None}

    # Indexes. The functions are user code, and run without the lock

    def add_index(self, name: IndexName, function: IndexFunction) -> None:
        """Keep an index; it is complete when this returns, unless another thread was about to make it."""
        with self.condition:
            if self.indexes.is_declared(name):
                return
            self.indexes.declare(name, function)
            snapshot = dict(self.records)
        values = {key: self.indexes.values_of(name, function, record) for key, record in snapshot.items()}
        with self.condition:
            if not self.indexes.is_declared(name):
                return  # its user has gone meanwhile
            # What changed since was indexed by its writer, who has known of the index since it was declared.
            problems = [self.indexes.put(name, key, values[key]) for key, record in snapshot.items()
                        if self.records.get(key) is record]
            self.indexes.complete(name)
        self.indexes.report(problems)

    def forget_indexes(self, scope: object) -> None:
        """That user is gone, and so are its indexes."""
        with self.condition:
            self.indexes.forget(scope)

    def by_index(self, name: IndexName, function: IndexFunction, value: object, own_writes: bool) -> list[Record]:
        """The objects for which `function` gives `value`: by the index `name`, or one by one where there is none."""
        with self.condition:
            complete = self.indexes.is_complete(name)
            own = self.own_entries(own_writes)
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
