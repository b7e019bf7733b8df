"""`StoreWriter`: the writing half of a store. For one thread at a time; each change is seen as a whole or not at all.

    commit(changes)            some objects changed (a Record) or went (None)
    replace(records, changes)  a complete list replaces everything; the store is then complete
    wrote(key, own)            this process wrote an object; readers see it from then on
    attach(observer)           later commits return `observer`; this call returns what is stored, so that together they
                               are everything, once

Index functions are user code and run before the lock is taken. If an index is declared in between, the epoch shows it
and the values are computed again. Store, indexes and overlay change together: once one is written, nothing can raise.

`Written` turns a write of this process into an entry for one store, by the store's selection, form and `modify`:

    write                                          entry
    of another kind, version or namespace          none
    deleted, or its last finalizer removed         gone
    labels or fields that do not match             hidden
    selection that cannot be judged here           unknown
    content that is not in the answer              unknown (a scale; metadata only, for a store of whole objects)
    else                                           shown

`modify` is user code: it runs in the thread that wrote, without a lock. Only the server knows all field selectors; here
name, namespace and text fields of the object are compared.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar, overload

import msgspec

from kubectl_runtime.core.base.clock import SYSTEM_CLOCK, Clock
from kubectl_runtime.core.base.errors import RequestError
from kubectl_runtime.core.base.plain import Key, namespace_or_none
from kubectl_runtime.core.base.wire import decoder_of
from kubectl_runtime.core.codec.jsonbytes import decode_object
from kubectl_runtime.core.codec.views import Record
from kubectl_runtime.core.meta.gvk import ApiResource, ObjectRef, api_resource_of
from kubectl_runtime.core.meta.problems import DECODE_FAILURES
from kubectl_runtime.core.meta.selectors import Selector
from kubectl_runtime.core.objects.partial import DynamicObject, FieldsForm, dynamic
from kubectl_runtime.runtime.store.indexes import IndexName, Values
from kubectl_runtime.runtime.store.overlay import Own
from kubectl_runtime.runtime.store.store import Store, StoreState
from kubectl_runtime.runtime.watch.config import WatcherConfig
from kubectl_runtime.runtime.watch.driver import Held, Identity, Modifier, reader_of
from kubectl_runtime.runtime.watch.event import Apply, Event, obj_of
from kubectl_runtime.runtime.watch.states import WatchApi, WatchState

if TYPE_CHECKING:
    from kubectl_runtime.client.api.client import Write

K = TypeVar("K")

Changes = Mapping[Key, Record | None]
"""The new record of each changed key; None for a deleted object."""



class StoreObserver(Protocol):
    """Is notified of what is stored: a subscription of the watch that feeds the store."""

    def deliver(self, events: Sequence[Event[Record]], *, by_watch: bool = False) -> None:
        """These changes were stored; `by_watch`: the caller is the thread that feeds the store."""

    def complete(self) -> None:
        """The store holds a complete list."""


Observers = tuple[StoreObserver, ...]


class StoreWriter(Generic[K]):
    """The writing half of a store, for one thread, usually a `reflector`'s; `store` is the reading half."""

    def __init__(self, resource: ApiResource, read: Callable[[Record], K], *, clock: Clock = SYSTEM_CLOCK) -> None:
        """`read` makes a reader of a record."""
        self.resource = resource
        self.state = StoreState(resource, clock)
        self.read = read
        self.store: Store[K] = Store(resource, read, self.state)
        self._observers: Observers = ()

    def get(self, key: Key) -> Record | None:
        """The stored object; None when there is none. Only for the writing thread, so it needs no lock."""
        return self.state.records.get(key)

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
        """Make these changes; returns the observers to notify.

        `gone`: the objects that events deleted. `version`: what the watch has reached with these changes, if known.
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
                elif version:  # nothing was written, so nothing has to be compared
                    overlay.shown = version
                observers = self._observers
            if problems:
                state.indexes.report(problems)
            return observers

    def replace(self, records: dict[Key, Record], changes: Changes, version: str = "",
                mark: int | None = None) -> tuple[Observers, list[Record]]:
        """Replace everything by `records`, which the store takes over; `changes` is how they differ from before.
        Returns the observers to notify, and written objects that were not stored and that the list shows to be deleted.

        `version`: of the list. `mark`: what `mark()` returned when its request began; None when the list may be older.
        """
        state, size = self.state, sum(len(record.raw) for record in records.values())
        while True:
            epoch, values = self._index(changes)
            with state.condition:
                if state.indexes.epoch != epoch:
                    continue
                old = self.records()
                lost = state.overlay.lost(records, old, version, mark)
                vanished = (old[key] for key, record in changes.items() if record is None)
                state.overlay.listed(records, vanished, version, mark)
                state.records, state.bytes, state.ready = records, size, True
                problems = self._set_indexes(changes, values)
                callbacks, state.on_ready = state.on_ready, ()
                state.condition.notify_all()
                observers = self._observers
            state.indexes.report(problems)
            for callback in callbacks:  # the library's own, and outside the lock
                callback()
            return observers, lost

    def progressed(self, version: str) -> None:
        """The watch has shown everything up to `version`, without a change."""
        with self.state.condition:
            self.state.overlay.progressed(version)

    def unseen(self) -> tuple[list[Own], Observers]:
        """Writes of this process that the server has undone (see `Overlay`), each once; and the observers to notify.
        Only for the writing thread."""
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
        """Record a write of this process. Returns an object now known to be deleted, if any, and the observers to
        notify. Safe from any thread."""
        state = self.state
        with state.condition:
            return state.overlay.wrote(key, own, state.records.get(key)), self._observers

    def mark(self) -> int:
        """A mark for a list that begins now, to be passed when the list is complete."""
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
        """A watch feeds the store; `state` returns how it is doing."""
        self.state.watch_state = state

    def begin(self, trouble_of: Callable[[], str]) -> None:
        """A stream begins to write; `trouble_of` returns what keeps it from going on, or an empty text."""
        state = self.state
        with state.condition:
            state.ended = None
            state.trouble_of = trouble_of

    def trouble(self, text: str) -> None:
        """Set the last failure, for the error of a wait that times out; empty when it is over."""
        self.state.trouble = text

    def end(self, reason: str) -> None:
        """Nothing will be written any more: end the waits for a complete list. Only the first call counts."""
        self.state.end(reason)

    def _index(self, changes: Changes) -> tuple[int, dict[IndexName, dict[Key, Values]]]:
        indexes = self.state.indexes
        epoch, functions = indexes.epoch, indexes.functions  # in this order; replaced as a whole, so no lock is needed
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


@overload
def store(kind: type[K], *, clock: Clock = ...) -> tuple[Store[K], StoreWriter[K]]: ...
@overload
def store(kind: ApiResource, *, clock: Clock = ...) -> tuple[Store[DynamicObject], StoreWriter[DynamicObject]]: ...
def store(kind: Any, *, clock: Clock = SYSTEM_CLOCK) -> tuple[Store[Any], StoreWriter[Any]]:
    """A store for objects of a resource class, or of an ApiResource: the reading half, and the writing half that a
    `reflector` feeds.

    >>> reader, writer = store(ConfigMap)
    >>> reader.is_ready
    False
    """
    found: Any = dynamic(kind) if isinstance(kind, ApiResource) else kind
    writer: StoreWriter[Any] = StoreWriter(api_resource_of(found), reader_of(found), clock=clock)
    return writer.store, writer


class _Grace(msgspec.Struct, rename="camel"):
    deletion_grace_period_seconds: int | None = None


class _Graceful(msgspec.Struct):
    metadata: _Grace


class _Whole(msgspec.Struct):
    metadata: msgspec.Raw


_graceful = decoder_of(_Graceful)
_whole = decoder_of(_Whole)


class Written:
    """Decides what the writes of this process mean for one store. Safe to use from any thread."""

    def __init__(self, api: WatchApi[Any], config: WatcherConfig, modify: Modifier | None) -> None:
        self._resource = api.resource
        self._namespace = namespace_or_none(api.namespace)
        self._form: Any = getattr(api, "form", None)
        self.metadata_only = bool(getattr(getattr(api, "place", None), "metadata_only", False))
        self._labels = _selector(config.label_text)
        self._fields = config.field_text
        self._shard = config.shard
        self._modify = modify

    def is_about(self, ref: ObjectRef) -> bool:
        """Whether the store could hold the object with this ref, by its kind and namespace."""
        own, resource = self._resource, ref.resource
        return (ref.kind == own.kind and ref.group == own.group and resource.version == own.version
                and (self._namespace is None or ref.namespace == self._namespace))

    def entry(self, write: Write) -> Own | None:
        """The entry for `write`; None when the store does not hold such objects. Raises nothing."""
        record = write.record
        if not self.is_about(write.ref) or self._is_in_another_shard(write):
            return None
        if record is None:
            gone = write.verb == "delete" and write.subresource is None
            return Own(write.uid, write.resource_version, known=gone, gone=gone)
        if record.problem is not None:
            return Own(record.uid, record.resource_version, known=False)
        if _is_gone(write.verb, write.subresource, record):
            return Own(record.uid, record.resource_version, gone=True)
        return self.present(record)

    def _is_in_another_shard(self, write: Write) -> bool:
        """Whether the object is in none of the store's ranges, which never changes. False if the uid is unknown."""
        shard, uid = self._shard, write.uid if write.record is None else write.record.uid
        return shard is not None and (bool(uid) or shard.by != "uid") and not shard.matches(uid, write.ref.namespace)

    def present(self, record: Record) -> Own:
        """The entry of an existing object."""
        selected = self._selects(record)
        uid, version = record.uid, record.resource_version
        if selected is False:
            return Own(uid, version)
        kept = self._in_form(record) if selected else None
        if kept is None:
            return Own(uid, version, known=False, last=record if selected else None)
        if self._modify is not None:
            kept = obj_of(self._modify(Apply(kept)))
        return Own(uid, version, kept, last=kept)

    def _selects(self, record: Record) -> bool | None:
        """Whether the store's selectors match; None when that is unknown here."""
        labels = self._labels
        if labels is None:
            return None
        if not labels.matches(record.head.labels):
            return False
        return self._fields is None or _matches_fields(self._fields, record)

    def _in_form(self, record: Record) -> Record | None:
        """The object as the store keeps objects; None when it cannot be made from the answer."""
        form = self._form
        if isinstance(form, FieldsForm):
            if record.view is not None:
                return record if isinstance(record.view, form.view) else None
            if record.partial or record.enveloped:
                return None
            found = form.decode_object(record.raw)
            return found if found.problem is None else None
        if record.view is not None:
            return None
        if self.metadata_only:
            return record if record.partial else _metadata_alone(record)
        return None if record.partial else record


def _selector(text: str | None) -> Selector | None:
    """The selector; None if only the server understands it."""
    try:
        return Selector.of(text)
    except RequestError:
        return None


def _is_gone(verb: str, subresource: str | None, record: Record) -> bool:
    """Whether an answered object is deleted and nothing holds it back.

    A server that only waits for finalizers writes a grace period of 0. A Namespace, which waits for its content, has
    none.
    """
    head = record.head
    if head.finalizers:
        return False
    if head.deletion_timestamp is None:
        return verb == "delete" and subresource is None
    try:
        return bool(_graceful(record.raw).metadata.deletion_grace_period_seconds == 0)
    except DECODE_FAILURES:
        return False


def _matches_fields(text: str, record: Record) -> bool | None:
    """Whether a field selector matches; None when only the server knows."""
    if "\\" in text or "!=" in text:
        return None
    verdict: bool | None = True
    for part in text.split(","):
        path, _, wanted = part.partition("=")
        found = _field(path.strip(), record)
        if found is None:
            verdict = None
        elif found != wanted.removeprefix("=").strip():
            return False
    return verdict


def _field(path: str, record: Record) -> str | None:
    if path == "metadata.name":
        return record.head.name
    if path == "metadata.namespace":
        return record.head.namespace or ""
    try:
        value: Any = msgspec.json.decode(record.raw) if record.raw and not record.partial else None
    except DECODE_FAILURES:
        return None
    for name in path.split("."):
        value = value.get(name) if isinstance(value, dict) else None
    return value if isinstance(value, str) else None


def _metadata_alone(record: Record) -> Record | None:
    """The object as a server sends it when only its metadata is requested."""
    try:
        metadata = _whole(record.raw).metadata
    except DECODE_FAILURES:
        return None
    raw = msgspec.json.encode({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata})
    kept = decode_object(raw, record.resource)
    return Record(kept.head, kept.resource, kept.raw, partial=True, problem=kept.problem)
