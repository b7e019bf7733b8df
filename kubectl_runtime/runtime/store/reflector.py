"""`Reflector`: writes a watcher's events into a store, and passes on the resulting changes.

    input                  store                                  passes on
    Init                   (side buffer emptied)                  nothing
    InitApply              (into the side buffer)                 nothing
    InitDone               the buffer replaces everything at once Delete for each vanished object, stored or only known
                                                                  from a write of this process; Delete and Apply for
                                                                  another uid; Apply for a new object or version;
                                                                  InitDone
    Apply, unknown         stored                                 Apply
    Apply, same version    unchanged                              nothing
    Apply, other version   stored                                 Apply, with the previous state
    Apply, other uid       stored                                 Delete of the old object, Apply
    Delete                 removed                                Delete
    Delete, unknown        unchanged                              Delete
    Delete, other uid      unchanged: it is about a predecessor   nothing

The store is written before a change is passed on. A listed object that is unchanged keeps its record. For such an
object, an Apply is passed on only with `relist_triggers`. Versions are compared only for equality. In a list whose
`Init` is `suspect`, an object counts as unchanged only if its content is equal too, and an Apply is passed on for every
object. A Delete within a streaming list also removes the object from the side buffer. An object without a name is
logged and left out. After an error in a reflector, a new reflector takes over, whose first list also delivers changes
that were written but not passed on (`undelivered`).

If a restore from older data undid a write of this process, the reflector passes on a Delete, or an Apply of the stored
state, once the server's versions have passed the version of the write.

The last event for a name is always about the existing object: if the deletion of a predecessor becomes known late, an
Apply of the stored object follows the Delete.

`Reflector` takes and returns events with records; the function `reflector` does the same for a stream of events with
`Resource` objects, like those that `watcher` yields.

`StoreWriter`: the writing half of a store. Readers see each change as a whole or not at all.

    commit(changes)            some objects changed (a Record) or were deleted (None)
    replace(records, changes)  a complete list replaces everything; the store is then complete
    wrote(key, own)            this process wrote an object; readers see the written object from then on
    attach(observer)           returns the stored objects; later commits return `observer`, so that the observer gets
                               everything exactly once

Index functions are user code and run before the lock is taken. If an index is declared in between, the epoch shows this
and the values are computed again. Store, indexes and overlay change together: after the first of them is written,
nothing can raise. `Reflector` and `StoreWriter` are for one thread at a time.
"""
from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from typing import Any, Generic, NamedTuple, Protocol, TypeVar, overload

from kubectl_runtime.core.base.guard import closing_source, described, guarded_logger
from kubectl_runtime.core.base.plain import Key, key_of
from kubectl_runtime.core.base.threads import SYSTEM_CLOCK, Clock
from kubectl_runtime.core.codec.jsonbytes import same_content
from kubectl_runtime.core.codec.views import Record
from kubectl_runtime.core.meta.gvk import ApiResource, api_resource_of
from kubectl_runtime.core.objects.partial import DynamicObject, dynamic
from kubectl_runtime.runtime.store.indexes import IndexName, Values
from kubectl_runtime.runtime.store.overlay import Own
from kubectl_runtime.runtime.store.store import Store, StoreState
from kubectl_runtime.runtime.watch.driver import Held, Identity, reader_of, record_of
from kubectl_runtime.runtime.watch.event import (
    INIT_DONE,
    Apply,
    Delete,
    Event,
    Failed,
    Init,
    InitApply,
    InitDone,
    obj_of,
    with_obj,
)
from kubectl_runtime.runtime.watch.states import WatchState

log = guarded_logger(__name__)

K = TypeVar("K")

Changes = Mapping[Key, Record | None]
"""The new record of each changed key; None for a deleted object."""


class StoreObserver(Protocol):
    """An observer of stored changes: a subscription of the watch that feeds the store."""

    def deliver(self, changes: Sequence[Event[Record]] | Callable[[], Sequence[Event[Record]]], *,
                by_watch: bool = False) -> None:
        """Accept stored changes, or a function that returns them and is called once all earlier changes are delivered.
        `by_watch`: whether the caller is the thread that feeds the store."""

    def complete(self) -> None:
        """Called when the store holds a complete list."""


Observers = tuple[StoreObserver, ...]


class StoreWriter(Generic[K]):
    """The writing half of a store, for one thread, usually a `reflector`'s; `store` is the reading half."""

    def __init__(self, resource: ApiResource, read: Callable[[Record], K], *, clock: Clock = SYSTEM_CLOCK) -> None:
        """`read` makes an object for users of the store from a record."""
        self.resource = resource
        self.state = StoreState(resource, clock)
        self.read = read
        self.store: Store[K] = Store(resource, read, self.state)
        self._observers: Observers = ()

    def get(self, key: Key) -> Record | None:
        """The stored object; None if there is no such object. Safe to call from any thread."""
        with self.state.lock:
            return self.state.records.get(key)

    def deletion(self, deleted: Record) -> list[Event[Record]]:
        """The events for an object whose deletion becomes known late. If the store has a successor, an `Apply` of the
        successor follows the `Delete`, even if an `Apply` was delivered before, so that the last event for the name is
        about the existing object. Safe to call from any thread."""
        successor = self.get(deleted.key)
        return [Delete(deleted)] if successor is None else [Delete(deleted), Apply(successor)]

    def records(self) -> Mapping[Key, Record]:
        """All stored objects. Only for the writing thread, and only until its next write."""
        return self.state.records

    def states(self) -> dict[Key, Record]:
        """All stored objects, including writes of this process that the watch has not shown yet. Only for the writing
        thread."""
        state = self.state
        with state.condition:
            own = {key: entry.last for key, entry in state.overlay.entries.items() if entry.last is not None}
            return {**own, **state.records}

    def commit(self, changes: Changes, gone: Sequence[Record] = (), version: str = "") -> Observers:
        """Store these changes; returns the observers to notify.

        `gone`: the objects that events deleted. `version`: the version that the watch has reached with these changes,
        if known.
        """
        state = self.state
        while True:
            epoch, values = self._index(changes)
            with state.condition:
                if state.indexes.epoch != epoch:
                    continue
                problems = self._set_indexes(changes, values)
                records, size = state.records, state.bytes
                for key, record in changes.items():
                    old = records.get(key)
                    if old is not None:
                        size -= len(old.raw)
                    if record is None:
                        records.pop(key, None)
                    else:
                        records[key] = record
                        size += len(record.raw)
                state.bytes = size
                overlay = state.overlay
                if gone or overlay.entries:
                    overlay.changed(changes, gone, version)
                elif version:  # no write of this process is pending, so `version` needs no comparison
                    overlay.shown = version
                observers = self._observers
            if problems:
                state.indexes.report(problems)
            return observers

    def replace(self, records: dict[Key, Record], changes: Changes, version: str = "",
                mark: int | None = None) -> tuple[Observers, list[Record]]:
        """Replace everything with `records`, which the store takes over; `changes` is the difference from before.

        Returns the observers to notify, and the objects that this process wrote and that were deleted before the store
        ever had them, as the list proves. `version`: the list's version. `mark`: what `mark()` returned when the list's
        request began; None if the list may be older than its request.
        """
        state, size = self.state, sum(len(record.raw) for record in records.values())
        while True:
            epoch, values = self._index(changes)
            with state.condition:
                if state.indexes.epoch != epoch:
                    continue
                old = self.records()
                lost = state.overlay.lost(records, old, version, mark)
                vanished = [before for key, record in changes.items() if (before := old.get(key)) is not None
                            and (record is None or _other_object(before, record))]
                state.overlay.listed(records, [*lost, *vanished], version, mark)
                state.records, state.bytes, state.ready = records, size, True
                problems = self._set_indexes(changes, values)
                callbacks, state.on_ready = state.on_ready, ()
                state.condition.notify_all()
                observers = self._observers
            state.indexes.report(problems)
            for callback in callbacks:  # the callbacks belong to the library and run without the lock
                callback()
            return observers, lost

    def progressed(self, version: str) -> None:
        """Record that the watch has delivered everything up to `version`, without a change."""
        with self.state.condition:
            self.state.overlay.progressed(version)

    def unseen(self) -> tuple[list[Own], Observers]:
        """The writes of this process that the server has undone (see `Overlay`) and that no earlier call returned, and
        the observers to notify. Only for the writing thread."""
        overlay = self.state.overlay
        if not overlay.unseen:
            return [], ()
        with self.state.condition:
            found, overlay.unseen = overlay.unseen, []
            return found, self._observers

    def held(self) -> dict[Key, Held]:
        """Uid and version of every object, as stored and as readers see it."""
        with self.state.condition:
            records, entries = self.state.records, self.state.overlay.entries
            stored: dict[Key, Identity] = {
                key: (record.uid, record.resource_version) for key, record in records.items()}
            held: dict[Key, Held] = {key: (identity, identity) for key, identity in stored.items()}
            for key, own in entries.items():
                if own.known:
                    held[key] = stored.get(key), None if own.record is None else (own.uid, own.version)
        return held

    # Writes of this process

    def wrote(self, key: Key, own: Own) -> tuple[Record | None, Observers]:
        """Record a write of this process. Returns the last state of the written object if the object is already known
        to be deleted, otherwise None; also returns the observers to notify. Safe to call from any thread."""
        state = self.state
        with state.condition:
            return state.overlay.wrote(key, own, state.records.get(key)), self._observers

    def mark(self) -> int:
        """A mark for a list that begins now. Pass the mark to `replace` when the list is complete."""
        with self.state.condition:
            return self.state.overlay.count

    def attach(self, observer: StoreObserver) -> tuple[bool, list[Record]]:
        """Add an observer. Returns whether the store is complete, and its objects."""
        state = self.state
        with state.condition:
            self._observers = (*self._observers, observer)
            return state.ready, [*state.records.values()]

    def detach(self, observer: StoreObserver) -> None:
        """Remove an observer; commits in progress may still notify it."""
        state = self.state
        with state.condition:
            self._observers = tuple(other for other in self._observers if other is not observer)

    def watched(self, state: Callable[[], WatchState]) -> None:
        """Record that a watch now feeds the store. `state` returns the watch's current state."""
        self.state.watch_state = state

    def begin(self, trouble_of: Callable[[], str]) -> None:
        """Record that a stream now feeds the store. `trouble_of` returns the failure that delays the stream, or ''."""
        state = self.state
        with state.condition:
            state.ended = None
            state.trouble_of = trouble_of

    def trouble(self, text: str) -> None:
        """Set the last failure (empty once the failure is over). If a wait times out, its error quotes this text."""
        self.state.trouble = text

    def end(self, reason: str) -> None:
        """End the waits for a complete list, because nothing more will be written. Only the first call counts."""
        self.state.end(reason)

    def _index(self, changes: Changes) -> tuple[int, dict[IndexName, dict[Key, Values]]]:
        indexes = self.state.indexes
        # `epoch` is read before `functions`, so that the caller notices an index that is declared in between. No lock
        # is needed, because a declaration replaces `functions` and does not change the old dict.
        epoch, functions = indexes.epoch, indexes.functions
        present = {key: record for key, record in changes.items() if record is not None} if functions else {}
        return epoch, {name: {key: indexes.values_of(name, function, record) for key, record in present.items()}
                       for name, function in functions.items()}

    def _set_indexes(self, changes: Changes, values: dict[IndexName, dict[Key, Values]]) -> list[BaseException]:
        if not values:
            return []
        indexes = self.state.indexes
        for key, record in changes.items():
            if record is None:
                indexes.drop(key)
        problems = (indexes.put(name, key, found) for name, of_keys in values.items() for key, found in of_keys.items())
        return [problem for problem in problems if problem is not None]


class Commit(NamedTuple):
    """One write to the store: the changes in order, the observers at that moment, and whether a list is complete."""

    changes: list[Event[Record]]
    observers: Observers
    completes: bool = False


class Reflector:
    """Writes the events of one watch into one store, and returns what they changed."""

    def __init__(self, writer: StoreWriter[Any], *, relist_triggers: bool = False,
                 undelivered: Sequence[Record] = ()) -> None:
        """`undelivered`: objects that a failed reflector did not deliver; the first list delivers their present
        state."""
        self._writer = writer
        self._relist_triggers = relist_triggers
        self._undelivered = undelivered
        self._done: list[Commit] = []
        self._swapped: list[Event[Record]] = []
        self._mark: int | None = None
        self._gone: list[Record] = []
        self._buffer: dict[Key, Record] = {}
        self._suspect = False
        self._pending: dict[Key, Record | None] = {}
        self._changes: list[Event[Record]] = []

    def feed(self, *events: Event[Record]) -> list[Event[Record]]:
        """Write these events to the store; returns what they changed."""
        return [change for commit in self.commits(events) for change in commit.changes]

    def list_begins(self, mark: int | None) -> None:
        """Record that the next list is requested now. `mark`: what the writer's `mark()` returned; None for a list that
        may be older than its request."""
        self._mark = mark

    def commits(self, events: Sequence[Event[Record]], version: str = "") -> list[Commit]:
        """Like `feed`, but takes the lock once for all changes of a batch; a completed list is a separate commit.

        `version`: the version that the watch has reached with the last event, if known.
        """
        done: list[Commit] = []
        self._done = done
        stored = self._writer.records()
        for event in events:
            kind = type(event)
            if kind is Apply:
                self._applied(event.obj, stored)  # type: ignore[union-attr]  # `kind` narrows, faster than isinstance
            elif kind is InitApply:
                self._listed(event.obj, stored)  # type: ignore[union-attr]
            elif kind is Delete:
                self._deleted(event.obj, stored)  # type: ignore[union-attr]
            elif kind is InitDone:
                self._flush(done, "")
                done.append(self._swap(version))
                stored = self._writer.records()
            elif kind is Init:
                self._buffer, self._suspect = {}, event.suspect  # type: ignore[union-attr]
        self._flush(done, version)
        return done

    def undelivered(self) -> list[Record]:
        """The overwritten states that may not have been delivered. Used after an error in this reflector or in the code
        that passes on its commits, since no list would show that these states ever existed."""
        changes = [*self._swapped, *self._changes, *(change for commit in self._done for change in commit.changes)]
        states = (change.previous if isinstance(change, Apply) else obj_of(change) for change in changes)
        return [*self._undelivered, *(state for state in states if state is not None)]

    def _applied(self, record: Record, stored: Mapping[Key, Record]) -> None:
        head, pending = record.head, self._pending
        key = head.namespace or None, head.name  # `key_of`, inlined because this runs for each event
        old = pending[key] if key in pending else stored.get(key)
        if old is not None:
            before = old.head
            if before.uid != head.uid:
                if _other_object(old, record):
                    self._changes.append(Delete(old))
                    old = None
            elif before.resource_version == head.resource_version != "":
                return
        elif not head.name:
            _nameless(record)
            return
        pending[key] = record
        self._changes.append(Apply(record, old))

    def _deleted(self, record: Record, stored: Mapping[Key, Record]) -> None:
        head = record.head
        key = key_of(head.namespace, head.name)
        old = self._pending[key] if key in self._pending else stored.get(key)
        self._buffer.pop(key, None)
        self._gone.append(record)
        if old is not None:
            if _other_object(old, record):
                return
            self._pending[key] = None
        elif not head.name:
            _nameless(record)
            return
        self._changes.append(Delete(record))

    def _listed(self, record: Record, stored: Mapping[Key, Record]) -> None:
        head = record.head
        if not head.name:
            _nameless(record)
            return
        key = key_of(head.namespace, head.name)
        old = stored.get(key)
        # The stored record of an unchanged object is kept, so that two copies of everything never exist at once.
        unchanged = old is not None and _same_version(old, record) and (not self._suspect or same_content(old, record))
        self._buffer[key] = old if old is not None and unchanged else record

    def _swap(self, version: str) -> Commit:
        new, old, mark = self._buffer, self._writer.records(), self._mark
        everything = self._relist_triggers or self._suspect
        changed: dict[Key, Record | None] = {}
        events: list[Event[Record]] = []
        for key, record in old.items():
            if key not in new:
                changed[key] = None
                events.append(Delete(record))
        vanished = len(events)
        for key, record in new.items():
            before = old.get(key)
            if before is record:
                if everything:
                    events.append(Apply(record))
                continue
            if before is not None and _other_object(before, record):
                events.append(Delete(before))
                before = None
            changed[key] = record
            events.append(Apply(record, before))
        events.append(INIT_DONE)
        self._swapped = events
        observers, lost = self._writer.replace(new, changed, version, mark)
        there = {record.uid: record for record in new.values()} if self._undelivered else {}
        events[-1:-1] = [Apply(there[state.uid], state) for state in self._undelivered if state.uid in there]
        gone = [*lost, *(state for state in self._undelivered if state.uid not in there)]
        events[vanished:vanished] = map(Delete, gone)
        events[-1:-1] = [Apply(new[key]) for key in {state.key for state in gone}
                         if not everything and key in new and new[key] is old.get(key)]  # as `StoreWriter.deletion`
        self._buffer, self._suspect, self._swapped, self._undelivered = {}, False, [], ()
        return Commit(events, observers, completes=True)

    def _flush(self, done: list[Commit], version: str) -> None:
        if self._changes or self._gone:
            observers = self._writer.commit(self._pending, self._gone, version)
            if self._changes:
                done.append(Commit(self._changes, observers))
            self._pending, self._changes, self._gone = {}, [], []
        elif version:
            self._writer.progressed(version)
        unseen, observers = self._writer.unseen()
        if unseen:
            done.append(Commit([event for own in unseen for event in self._undone(own)], observers))

    def _undone(self, own: Own) -> list[Event[Record]]:
        """The events for a write that the server has undone by going back to older data."""
        assert own.last is not None
        stored = self._writer.get(own.last.key)
        if stored is not None and stored.uid == own.uid:
            return [Apply(stored, own.last)]
        return self._writer.deletion(own.last)


def reflector(writer: StoreWriter[K], events: Iterable[Event[K]], *,
              relist_triggers: bool = False) -> Generator[Event[K]]:
    """Write each of `events` into a store, and yield the resulting changes as events, each with a new object.

    `events` come from `watcher` or have the same form. Each `Failed` is yielded too; if a wait for the store times out,
    the error quotes the last failure. Closing the generator closes `events`; waits for the store then end with
    StoreNotReady.

    >>> stop = StopToken()
    >>> reader, writer = store(ConfigMap)
    >>> for event in reflector(writer, watcher(Api.namespaced(client, ConfigMap, "default"), stop=stop)):
    ...     if isinstance(event, InitDone):
    ...         stop.set()
    >>> [obj.name for obj in reader]
    ['settings']
    """
    inner = Reflector(writer, relist_triggers=relist_triggers)
    writer.begin(lambda: str(getattr(events, "trouble", "")))
    reason = "its stream was closed"
    try:
        with closing_source(events):
            for event in events:
                if isinstance(event, Failed):
                    writer.trouble(described(event.error))
                    yield event  # happens only if the type of `events` includes Failed
                    continue
                if writer.store.trouble and not isinstance(event, Init | InitApply):
                    writer.trouble("")
                for change in inner.feed(with_obj(event, record_of)):
                    yield with_obj(change, writer.read)
        reason = "its stream is over"
    except Exception as error:
        reason = f"its stream failed: {described(error)}"
        raise
    finally:
        writer.end(reason)


def _same_version(old: Record, new: Record) -> bool:
    before, after = old.head, new.head
    return before.resource_version == after.resource_version != "" and before.uid == after.uid


def _other_object(old: Record, new: Record) -> bool:
    """Whether the name now belongs to another object; an unreadable uid proves nothing."""
    before, after = old.head.uid, new.head.uid
    return before != after and bool(before) and bool(after)


def _nameless(record: Record) -> None:
    problem = record.problem.text if record.problem is not None else "it has no name"
    log.warning("ignored an object of %s (version %s): %s", record.resource.full_name,
                record.head.resource_version or "unknown", problem)


@overload
def store(kind: type[K], *, clock: Clock = ...) -> tuple[Store[K], StoreWriter[K]]: ...
@overload
def store(kind: ApiResource, *, clock: Clock = ...) -> tuple[Store[DynamicObject], StoreWriter[DynamicObject]]: ...
def store(kind: Any, *, clock: Clock = SYSTEM_CLOCK) -> tuple[Store[Any], StoreWriter[Any]]:
    """Make a store for a resource class or an ApiResource: the reading half, and the writing half for a `reflector`.

    >>> reader, writer = store(ConfigMap)
    >>> reader.is_ready
    False
    """
    found: Any = dynamic(kind) if isinstance(kind, ApiResource) else kind
    writer: StoreWriter[Any] = StoreWriter(api_resource_of(found), reader_of(found), clock=clock)
    return writer.store, writer
