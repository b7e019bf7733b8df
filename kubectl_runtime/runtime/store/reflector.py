"""`Reflector`: writes the events of a watcher into a store, and passes on what they changed.

    input                  store                                  passes on
    Init                   (side buffer emptied)                  nothing
    InitApply              (into the side buffer)                 nothing
    InitDone               the buffer replaces everything at once Delete for what vanished, stored or only known from a
                                                                  write of this process; Delete and Apply for another
                                                                  uid; Apply for what is new or has another version;
                                                                  InitDone
    Apply, unknown         stored                                 Apply
    Apply, same version    unchanged                              nothing
    Apply, other version   stored                                 Apply, with the previous state
    Apply, other uid       stored                                 Delete of the old object, Apply
    Delete                 removed                                Delete
    Delete, unknown        unchanged                              Delete
    Delete, other uid      unchanged: it is about a predecessor   nothing

The store is written before a change is passed on. Listed objects that are unchanged keep their record and pass on
nothing, unless `relist_triggers` is set, which passes on an Apply for each. Versions are compared only for equality. In
a list whose `Init` is `suspect`, an object is unchanged only if its content is the same as well, and each passes on an
Apply. A Delete within a list (of a stream) also removes the object from the side buffer. An object without a name is
logged and left out. After a defect a new reflector takes over; its first list also delivers what was written and not
passed on (`untold`).

If the server went back to older data and so undid a write of this process, it passes on a Delete, or an Apply of the
stored state, once the versions have overtaken the write.

Records go in and out; `reflector` is the form for streams of readers. For one thread at a time.
"""
from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from kubectl_runtime.core.base.guard import closing_source, described, guarded_logger
from kubectl_runtime.core.base.plain import Key, key_of
from kubectl_runtime.core.codec.sameness import same_content
from kubectl_runtime.core.codec.views import Record
from kubectl_runtime.runtime.store.overlay import Own
from kubectl_runtime.runtime.store.store_writer import Observers, StoreWriter
from kubectl_runtime.runtime.watch.driver import record_of
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

log = guarded_logger(__name__)

K = TypeVar("K")


class Commit(NamedTuple):
    """One write to the store: the changes in order, the observers at that moment, and whether it completed a list."""

    changes: list[Event[Record]]
    observers: Observers
    completes: bool = False


class Reflector:
    """Writes the events of one watch into one store, and returns what they changed."""

    def __init__(self, writer: StoreWriter[Any], *, relist_triggers: bool = False,
                 untold: Sequence[Record] = ()) -> None:
        """`untold`: of a reflector that failed before; the first list delivers what became of these objects."""
        self._writer = writer
        self._relist_triggers = relist_triggers
        self._untold = untold
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
        """The request of the next list is made now. `mark`: from the writer; None for a list that may be older than its
        request."""
        self._mark = mark

    def commits(self, events: Sequence[Event[Record]], version: str = "") -> list[Commit]:
        """As `feed`, with one lock for all changes of a batch; a completed list is a commit of its own.

        `version`: what the watch has reached with the last event, if known.
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

    def untold(self) -> list[Record]:
        """After an error of this reflector or of the code that passes on its commits: overwritten states that may not
        have been delivered. No list would show that they ever existed."""
        changes = [*self._swapped, *self._changes, *(change for commit in self._done for change in commit.changes)]
        states = (change.previous if isinstance(change, Apply) else obj_of(change) for change in changes)
        return [*self._untold, *(state for state in states if state is not None)]

    def _applied(self, record: Record, stored: Mapping[Key, Record]) -> None:
        head, pending = record.head, self._pending
        key = head.namespace or None, head.name  # `key_of` without the call, since this runs for each event
        old = pending[key] if key in pending else stored.get(key)
        if old is not None:
            if _same_version(old, record):
                return
            if _other_object(old, record):
                self._changes.append(Delete(old))
                old = None
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
        there = {record.uid: record for record in new.values()} if self._untold else {}
        events[-1:-1] = [Apply(there[state.uid], state) for state in self._untold if state.uid in there]
        gone = [*lost, *(state for state in self._untold if state.uid not in there)]
        events[vanished:vanished] = map(Delete, gone)
        self._buffer, self._suspect, self._swapped, self._untold = {}, False, [], ()
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
            done.append(Commit([*map(self._undone, unseen)], observers))

    def _undone(self, own: Own) -> Event[Record]:
        """The event for a write that the server has undone by going back to older data."""
        assert own.last is not None
        stored = self._writer.get(own.last.key)
        return Apply(stored, own.last) if stored is not None and stored.uid == own.uid else Delete(own.last)


def reflector(writer: StoreWriter[K], events: Iterable[Event[K]], *,
              relist_triggers: bool = False) -> Generator[Event[K]]:
    """Write each of `events` into a store, and yield what it changed, with fresh readers.

    `events` come from `watcher` or look like its events. It yields each `Failed` too, and shows it to callers whose
    wait for the store times out. Closing this closes `events`; waits for the store then end with StoreNotReady.

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
                    yield event  # only if the stream's own type has it
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
    log.warning("an object of %s (version %s) is left out: %s", record.resource.full_name,
                record.head.resource_version or "unknown", problem)
