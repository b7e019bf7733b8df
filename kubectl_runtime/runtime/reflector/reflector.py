"""`Reflector`: writes what a watcher says into a store, and passes on what that changed.

    input                  store                                  passes on
    Init                   (side buffer emptied)                  nothing
    InitApply              (into the side buffer)                 nothing
    InitDone               the buffer takes its place at once     Delete for what vanished; Delete and Apply for another
                                                                  uid; Apply for what is new or has another version;
                                                                  InitDone
    Apply, unknown         stored                                 Apply
    Apply, same version    unchanged                              nothing
    Apply, other version   stored                                 Apply, with the previous state
    Apply, other uid       stored                                 Delete of the old object, Apply
    Delete                 removed                                Delete
    Delete, unknown        unchanged                              Delete
    Delete, other uid      unchanged: it is about a predecessor   nothing

A trigger never comes before the data it is about: the store is written first. Objects that a list shows unchanged
keep their record and pass on nothing, unless `relist_triggers` is set, which makes an Apply of each. Versions are
compared for equality only. In a list whose `Init` is `suspect`, an object with the same version is unchanged only if
its content is the same, and each makes an Apply. A Delete within a list, as a stream brings it, also takes the object
out of the side buffer. An object without a name cannot be stored; it is logged and left out.

Records go in and out; `reflector` is the form for streams of readers. For one thread at a time.
"""
from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from typing import Any, NamedTuple, TypeVar

from kubectl_runtime.core.base.keys import Key, key_of
from kubectl_runtime.core.codec.record import Record
from kubectl_runtime.core.codec.sameness import same_content
from kubectl_runtime.runtime.reflector.store_writer import Observers, StoreWriter
from kubectl_runtime.runtime.streams import closing_source
from kubectl_runtime.runtime.usercode import guarded_logger
from kubectl_runtime.runtime.watcher.event import INIT_DONE, Apply, Delete, Event, Init, InitApply, InitDone, with_obj

log = guarded_logger(__name__)

K = TypeVar("K")


class Commit(NamedTuple):
    """One write to the store: what it changed, in order, who was observing when it happened, and whether it completed a
    list."""

    changes: list[Event[Record]]
    observers: Observers
    completes: bool = False


class Reflector:
    """Feeds one store. See the module's table."""

    def __init__(self, writer: StoreWriter[Any], *, relist_triggers: bool = False) -> None:
        self._writer = writer
        self._relist_triggers = relist_triggers
        self._buffer: dict[Key, Record] = {}
        self._suspect = False
        self._pending: dict[Key, Record | None] = {}
        self._changes: list[Event[Record]] = []

    def feed(self, *events: Event[Record]) -> list[Event[Record]]:
        """Write these events to the store; what they changed."""
        return [change for commit in self.commits(events) for change in commit.changes]

    def commits(self, events: Sequence[Event[Record]]) -> list[Commit]:
        """As `feed`, with one lock for the changes of a whole batch; a completed list is a commit of its own."""
        done: list[Commit] = []
        for event in events:
            kind = type(event)
            if kind is Apply:
                self._applied(event.obj)  # type: ignore[union-attr]  # `kind` narrows, faster than isinstance
            elif kind is InitApply:
                self._listed(event.obj)  # type: ignore[union-attr]
            elif kind is Delete:
                self._deleted(event.obj)  # type: ignore[union-attr]
            elif kind is InitDone:
                self._flush(done)
                done.append(self._swap())
            elif kind is Init:
                self._buffer, self._suspect = {}, event.suspect  # type: ignore[union-attr]
        self._flush(done)
        return done

    def _applied(self, record: Record) -> None:
        head = record.head
        key = key_of(head.namespace, head.name)
        old = self._pending[key] if key in self._pending else self._writer.get(key)
        if old is not None:
            if _same_version(old, record):
                return
            if _other_object(old, record):
                self._changes.append(Delete(old))
                old = None
        elif not head.name:
            _nameless(record)
            return
        self._pending[key] = record
        self._changes.append(Apply(record, old))

    def _deleted(self, record: Record) -> None:
        head = record.head
        key = key_of(head.namespace, head.name)
        old = self._pending[key] if key in self._pending else self._writer.get(key)
        self._buffer.pop(key, None)
        if old is not None:
            if _other_object(old, record):
                return
            self._pending[key] = None
        elif not head.name:
            _nameless(record)
            return
        self._changes.append(Delete(record))

    def _listed(self, record: Record) -> None:
        head = record.head
        if not head.name:
            _nameless(record)
            return
        key = key_of(head.namespace, head.name)
        old = self._writer.get(key)
        # The stored record of an unchanged object is kept, so that two copies of everything never exist at once.
        unchanged = old is not None and _same_version(old, record) and (not self._suspect or same_content(old, record))
        self._buffer[key] = old if old is not None and unchanged else record

    def _swap(self) -> Commit:
        new, old = self._buffer, self._writer.records()
        self._buffer = {}
        changed: dict[Key, Record | None] = {}
        events: list[Event[Record]] = []
        for key, record in old.items():
            if key not in new:
                changed[key] = None
                events.append(Delete(record))
        for key, record in new.items():
            before = old.get(key)
            if before is record:
                if self._relist_triggers or self._suspect:
                    events.append(Apply(record))
                continue
            if before is not None and _other_object(before, record):
                events.append(Delete(before))
                before = None
            changed[key] = record
            events.append(Apply(record, before))
        events.append(INIT_DONE)
        self._suspect = False
        return Commit(events, self._writer.replace(new, changed), completes=True)

    def _flush(self, done: list[Commit]) -> None:
        if self._changes:
            observers = self._writer.commit(self._pending)
            done.append(Commit(self._changes, observers))
            self._pending, self._changes = {}, []


def reflector(writer: StoreWriter[K], events: Iterable[Event[K]], *,
              relist_triggers: bool = False) -> Generator[Event[K]]:
    """The store is written in passing; yields what each event changed, with fresh readers.

    `events` carry readers, as those of `watcher` do. Closes `events` when it is closed.
    """
    inner = Reflector(writer, relist_triggers=relist_triggers)
    with closing_source(events):
        for event in events:
            for change in inner.feed(with_obj(event, _record_of)):
                yield with_obj(change, writer.read)


def _record_of(obj: Any) -> Record:
    """The record behind a reader; a record is its own."""
    return obj if isinstance(obj, Record) else obj.record


def _same_version(old: Record, new: Record) -> bool:
    before, after = old.head, new.head
    return before.resource_version == after.resource_version != "" and before.uid == after.uid


def _other_object(old: Record, new: Record) -> bool:
    """Whether the name now belongs to another object; a uid that could not be read says nothing."""
    before, after = old.head.uid, new.head.uid
    return before != after and bool(before) and bool(after)


def _nameless(record: Record) -> None:
    problem = record.problem.text if record.problem is not None else "it has no name"
    log.warning("an object of %s (version %s) is left out: %s", record.resource.full_name,
                record.head.resource_version or "unknown", problem)
