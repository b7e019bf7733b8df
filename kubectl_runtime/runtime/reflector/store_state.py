"""`StoreState`: what a store and its writers share: records, indexes, what this process wrote, and who waits."""
from __future__ import annotations

import threading
from collections.abc import Callable

from kubectl_runtime.core.base.clock import Clock
from kubectl_runtime.core.base.keys import Key
from kubectl_runtime.core.codec.record import Record
from kubectl_runtime.core.meta.gvk import ApiResource
from kubectl_runtime.runtime.reflector.indexes import Indexes
from kubectl_runtime.runtime.reflector.overlay import Overlay, Own
from kubectl_runtime.runtime.watcher.watch_state import WatchState


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
        self.trouble_of: Callable[[], str] = lambda: ""
        """The same, of a stream that tells only who asks it."""
        self.indexes = Indexes()
        self.overlays: tuple[Overlay, ...] = ()
        """What was written, one for each writer; each has keys of its own."""
        self.on_ready: tuple[Callable[[], None], ...] = ()
        """To be called once the store is complete, without the lock; must neither block nor raise."""

    def renew(self) -> None:
        """Another life begins: nothing is stored, nobody has ended it. Indexes stay declared."""
        with self.condition:
            for key in self.records:
                self.indexes.drop(key)
            self.records = {}
            self.overlays = ()
            self.ready = False
            self.ended = None
            self.trouble = ""

    @property
    def shown(self) -> dict[Key, Record]:
        """What readers see, but for writes of this process."""
        return {} if self.hidden else self.records

    def when_ready(self, callback: Callable[[], None]) -> None:
        """Call `callback` once the store is complete, now if it is."""
        with self.condition:
            if not self.ready:
                self.on_ready = (*self.on_ready, callback)
                return
        callback()

    @property
    def written(self) -> list[Key]:
        """Of which objects a write is not shown yet."""
        return [key for overlay in self.overlays for key in overlay.entries]

    def find(self, key: Key, own_writes: bool) -> Record | None:
        """The object as it is read. Under the lock."""
        own = self.entry(key, own_writes)
        return self.shown.get(key) if own is None else own.record

    def snapshot(self, own_writes: bool) -> dict[Key, Record]:
        """All objects as they are read. Under the lock."""
        records = dict(self.shown)
        if self.ready:
            for key in self.written:
                own = self.entry(key, own_writes)
                if own is not None and own.record is not None:
                    records[key] = own.record
                elif own is not None:
                    records.pop(key, None)
        return records

    def entry(self, key: Key, own_writes: bool) -> Own | None:
        """What a write of this process makes readers see of the key, if anything. Under the lock."""
        if not self.ready:
            return None
        own = next((found for overlay in self.overlays if (found := overlay.entries.get(key)) is not None), None)
        return own if own is not None and own.known and (own_writes or own.live) else None
