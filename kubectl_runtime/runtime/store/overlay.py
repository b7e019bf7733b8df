"""`Overlay`: writes of this process that a watch has not shown yet.

An entry keeps what the server returned for a write of one key:

    shown     the object, as the store keeps objects; reads see it instead of the watched object
    hidden    the selector does not match the object (any more); reads see nothing
    gone      the object was deleted; reads see no object with this uid
    unknown   the version is known, but the answer lacks the content that the store keeps (a scale, for example); reads
              see the watched object

    input                        effect on the entry
    write                        made, but not if the store has already seen this version, a newer version or the
                                 object's deletion, and not if the key's present entry is newer, or is a deletion of
                                 this uid
    deletion                     made, but not if the store has already seen the deletion, and not if a newer object may
                                 have taken the name: the present entry has another uid, or the stored object has
                                 another uid and not a lower version
    event of the key             a write's entry is dropped if the event is at least as new as the write; a deletion's
                                 entry is dropped if the event is this deletion or shows a newer object of another uid
    progress to a version        a write's entry is dropped unless the write is newer (a watch shows changes in the
                                 order of their versions)
    complete list                dropped if the list's request began after the write was answered, or the list's version
                                 is at least as new; a deletion's entry stays while an older list still shows the object

If a list that drops an entry lacks the written object, or has another uid for it, the object was deleted unseen: `lost`
returns the object, so that its deletion is delivered. Two signs show that the server's data was restored from a copy
older than the write: the watch passes the version of the write without an event of the key, or a list that drops the
entry shows the state before the write. The entry is then added to `unseen`, and its deletion or former state is
delivered.

Versions are compared as Kubernetes defines since 1.35: as decimal numbers, for one kind on one server. Versions of
another form cannot be compared, so an entry that only a comparison could remove is not made. The answer to a deletion
has no version. If neither the store nor a write of this process knew the object, the deletion's entry is dropped as
soon as the watch shows another uid under this name.

An `Overlay` is not thread-safe: the store's lock guards it. It runs no user code.

`Written` turns a write of this process into an entry for one store, as its selection, form and `modify` require:

    write                                          entry
    of another kind, version or namespace          none
    object deleted, or its last finalizer removed  gone
    labels or fields do not match                  hidden
    selection cannot be evaluated locally          unknown
    content is not in the answer                   unknown (a scale; metadata only, for a store of whole objects)
    else                                           shown

`modify` is user code: it runs in the thread that wrote, without a lock. Only the server knows all field selectors;
`Written` compares the name, the namespace and text fields of the object.
"""
from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from kubectl_runtime.core.base.errors import RequestError
from kubectl_runtime.core.base.plain import Key, namespace_or_none
from kubectl_runtime.core.base.wire import decoder_of
from kubectl_runtime.core.codec.jsonbytes import decode_object
from kubectl_runtime.core.codec.views import Record
from kubectl_runtime.core.meta.gvk import ObjectRef
from kubectl_runtime.core.meta.problems import DECODE_FAILURES
from kubectl_runtime.core.meta.selectors import Selector
from kubectl_runtime.core.objects.partial import FieldsForm
from kubectl_runtime.runtime.store.indexes import IndexName, Values
from kubectl_runtime.runtime.watch.config import WatcherConfig
from kubectl_runtime.runtime.watch.driver import Modifier
from kubectl_runtime.runtime.watch.event import Apply, obj_of
from kubectl_runtime.runtime.watch.machine import is_lower
from kubectl_runtime.runtime.watch.states import WatchApi

if TYPE_CHECKING:
    from kubectl_runtime.client.api.client import Write

REMEMBERED_DELETIONS = 4096
"""How many uids of deleted objects are remembered, so that a write that is reported late does not revive its object."""


class Own(msgspec.Struct):
    """The last write of one object by this process. Readers see `record`, unless `known` is False."""

    uid: str
    version: str
    """The version of the answer; for a deletion, the last known version, if any."""
    record: Record | None = None
    known: bool = True
    gone: bool = False
    last: Record | None = None
    """The object's last state that matched the store's selectors; None if there is none. Observers receive this state
    as the deleted object if the watch shows neither the object nor its deletion."""
    predecessors: tuple[Record, ...] = ()
    """The last state of each earlier object of this name that this process wrote. These objects have been deleted."""
    mark: int = 0
    """The number of the write. If the overlay's `count` was at least this number when a list began, the list began
    after the answer."""
    values: dict[IndexName, Values] = msgspec.field(default_factory=dict)
    """The results of the index functions that were already called for `record`."""


def number_of(version: str | None) -> int | None:
    """A version as a number; None if versions of this form cannot be compared."""
    if not version or not (version.isascii() and version.isdigit()) or version[0] == "0":
        return None
    return int(version)


class Overlay:
    """The writes of this process that the watch of a store has not shown yet. Pure; the owner serialises the calls."""

    def __init__(self) -> None:
        self.entries: dict[Key, Own] = {}
        self.seen: dict[Key, Own] = {}
        """The entries that change what readers see; reads consult only these entries. If neither the entry nor the
        watch shows an object, the entry is left out, since it changes nothing for readers."""
        self.count = 0
        """The number of reported writes. A list stores this number when it begins and passes it on when complete."""
        self.shown = ""
        """The version up to which the watch has shown everything. Used only if this process wrote something."""
        self.unseen: list[Own] = []
        """Writes that the server has undone, until the watch's thread takes them."""
        self._due: list[tuple[int, Key]] = []
        """The versions and keys of entries, smallest version first; some entries may already be dropped."""
        self._deleted: dict[str, str] = {}
        """For each uid of an object that was deleted or left the selection: the version at which this happened."""

    # Writes

    def wrote(self, key: Key, own: Own, stored: Record | None) -> Record | None:
        """Record that this process wrote the object `key`. `stored`: the object as the watch last delivered it.

        Returns the object if it is now known to have been deleted unseen: the watch is ahead of the write and has
        neither the object nor its deletion.
        """
        self.count += 1
        own.mark = self.count
        before = self.entries.get(key)
        if own.gone:
            self._deleted_by_us(key, own, before, stored)
            return None
        version = number_of(own.version)
        if version is None or (own.uid in self._deleted and version <= (number_of(self._deleted[own.uid]) or version)):
            return None
        shown = number_of(self.shown) or 0
        if before is not None and self._is_older(own, version, before) and (
                version > shown or (before.uid == own.uid and not before.gone)):
            _inherit(before, own)
            return None
        if stored is not None and stored.uid == own.uid and (number_of(stored.resource_version) or version) >= version:
            return None
        if version <= shown:
            unseen = own.last is not None and (stored is None or stored.uid != own.uid)
            if unseen:
                self._remember(own.uid, own.version)
                if before is not None and before.uid == own.uid:
                    self._drop(key)
            return own.last if unseen else None
        _inherit(own, before)
        self._put(key, own, stored)
        heapq.heappush(self._due, (version, key))
        return None

    @staticmethod
    def _is_older(own: Own, version: int, before: Own) -> bool:
        if before.gone and before.uid == own.uid:
            return True
        known = number_of(before.version)
        return known is not None and known >= version

    def _deleted_by_us(self, key: Key, own: Own, before: Own | None, stored: Record | None) -> None:
        candidates = [(before.uid, before.version, before.last)] if before is not None else []
        candidates += [(stored.uid, stored.resource_version, stored)] if stored is not None else []
        if not own.uid and candidates:
            own.uid = candidates[0][0]
        same = [(number_of(version) or 0, version, last) for uid, version, last in candidates if uid == own.uid]
        if not own.uid or (own.uid in self._deleted and not same):
            return
        if before is not None and before.uid != own.uid:
            return  # this process wrote another object of this name, which may be the successor
        for _, version, last in sorted(same, key=lambda one: one[0]):
            own.version, own.last = own.version or version, last or own.last
            if (number_of(version) or 0) > (number_of(own.version) or 0):
                own.version = version
        if stored is not None and stored.uid != own.uid and not is_lower(stored.resource_version, own.version):
            if before is not None and before.uid == own.uid:
                self._drop(key)
            return  # the watch shows a successor, or an object of unknown age: do not hide it
        _inherit(own, before)
        self._put(key, own, stored)

    def _put(self, key: Key, own: Own, stored: Record | None) -> None:
        self.entries[key] = own
        self._see(key, own, stored)

    def _drop(self, key: Key) -> None:
        del self.entries[key]
        self.seen.pop(key, None)

    def _see(self, key: Key, own: Own, stored: Record | None) -> None:
        """Decide whether reads must consult the entry, given that the watch has stored `stored` under the key."""
        if own.known and (own.record is not None or stored is not None):
            self.seen[key] = own
        else:
            self.seen.pop(key, None)

    # What the watch shows

    def changed(self, changes: Mapping[Key, Record | None], gone: Iterable[Record], version: str) -> None:
        """Process stored events. `changes`: the current object of each key. `gone`: the objects that the events
        deleted. `version`: the version that the watch has reached with these events (empty if unknown)."""
        entries = self.entries
        for record in gone:
            self._remember(record.uid, record.resource_version)
            own = entries.get(record.key) if entries else None
            if own is not None and _ends(own, record):
                self._drop(record.key)
        if entries:
            for key, changed in changes.items():
                own = entries.get(key)
                if own is None:
                    continue
                if changed is not None and _catches_up(own, changed):
                    self._drop(key)
                else:
                    self._see(key, own, changed)
        self.progressed(version)
        if not entries:
            self._due.clear()

    def progressed(self, version: str) -> None:
        """Record that the watch has shown everything up to `version`."""
        if version:
            self.shown = version
            if self.entries:
                self._drop_due(number_of(version))

    def _drop_due(self, shown: int | None) -> None:
        due, entries = self._due, self.entries
        while shown is not None and due and due[0][0] <= shown:
            version, key = heapq.heappop(due)
            own = entries.get(key)
            if own is not None and not own.gone and number_of(own.version) == version:
                self._drop(key)
                if own.last is not None:
                    self.unseen.append(own)
        if not entries:
            due.clear()

    # Lists

    def lost(self, new: Mapping[Key, Record], old: Mapping[Key, Record], version: str,
             mark: int | None) -> list[Record]:
        """The written objects that were deleted before the store had them, as a complete list of `version` proves.

        `mark`: the `count` when the list's request began; None if the list may be older than its request.
        """
        missing = []
        for key, own in self.entries.items():
            item, stored = new.get(key), old.get(key)
            states, own.predecessors = own.predecessors, ()
            if self._is_covered(own, item, version, mark):
                states = states if own.last is None else (*states, own.last)
            else:  # the list may still prove that some predecessors were deleted
                listed = number_of(version) or 0
                own.predecessors = tuple(one for one in states if (number_of(one.resource_version) or 0) > listed)
                states = tuple(one for one in states if one not in own.predecessors)
            alive = {record.uid for record in (item, stored) if record is not None}
            missing += [record for record in states if record.uid not in alive]
        return missing

    def listed(self, new: Mapping[Key, Record], vanished: Iterable[Record], version: str, mark: int | None) -> None:
        """Record that a list has replaced all stored objects. Arguments as for `lost`; `vanished`: the stored and the
        written objects that the list proves to be deleted."""
        covered = [(key, own) for key, own in self.entries.items()
                   if self._is_covered(own, new.get(key), version, mark)]
        for key, own in covered:
            self._drop(key)
            item = new.get(key)
            # Without a last state there is nothing to report as deleted. The uid is not remembered, so that a write
            # that is reported late can still report the deletion.
            if own.last is None:
                continue
            if item is None or item.uid != own.uid:
                self._remember(own.uid, version)
            elif _is_before(item, own):
                self.unseen.append(own)
        for key, own in self.entries.items():
            self._see(key, own, new.get(key))
        for record in vanished:
            self._remember(record.uid, version)
        self.shown = version
        if not self.entries:
            self._due.clear()

    def _is_covered(self, own: Own, item: Record | None, version: str, mark: int | None) -> bool:
        if mark is not None and own.mark <= mark:
            return True
        listed, known = number_of(version), number_of(own.version)
        if not own.gone:
            return listed is not None and known is not None and known <= listed
        if item is not None and item.uid == own.uid:
            return False
        return listed is None or known is None or known <= listed

    def _remember(self, uid: str, version: str) -> None:
        deleted = self._deleted
        if uid:
            deleted[uid] = version
            if len(deleted) > REMEMBERED_DELETIONS:
                del deleted[next(iter(deleted))]


def _inherit(own: Own, older: Own | None) -> None:
    """Take over the states that must be delivered as deleted if a list shows that the objects are gone."""
    if older is None:
        return
    own.predecessors = (*own.predecessors, *older.predecessors)
    if older.uid == own.uid:
        own.last = own.last or older.last
    elif older.last is not None:
        own.predecessors = (*own.predecessors, older.last)


def _is_before(item: Record, own: Own) -> bool:
    """Whether a list requested after the write shows the object in a state before the write."""
    known, listed = number_of(own.version), number_of(item.resource_version)
    return item.uid == own.uid and (own.gone or (known is not None and listed is not None and listed < known))


def _ends(own: Own, deleted: Record) -> bool:
    """Whether the deletion event for `deleted` drops the entry. If the object only left the selection, a later write
    may have brought it back."""
    if own.uid != deleted.uid:
        return _succeeds(own, deleted)
    known, shown = number_of(own.version), number_of(deleted.resource_version)
    return own.gone or known is None or shown is None or shown >= known


def _catches_up(own: Own, changed: Record) -> bool:
    """Whether the watch event with the state `changed` is at least as new as the write."""
    if own.gone:
        return _succeeds(own, changed)
    if changed.uid == own.uid and changed.resource_version == own.version:
        return True
    known, shown = number_of(own.version), number_of(changed.resource_version)
    return known is not None and shown is not None and shown >= known


def _succeeds(own: Own, record: Record) -> bool:
    """Whether an object of another uid is newer than the written object."""
    if own.uid == record.uid:
        return False
    known, shown = number_of(own.version), number_of(record.resource_version)
    return known is None or shown is None or shown > known


class _Grace(msgspec.Struct, rename="camel"):
    deletion_grace_period_seconds: int | None = None


class _Graceful(msgspec.Struct):
    metadata: _Grace


class _Whole(msgspec.Struct):
    metadata: msgspec.Raw


_graceful = decoder_of(_Graceful)
_whole = decoder_of(_Whole)


class Written:
    """Turns writes of this process into entries for one store. Safe to use from any thread."""

    def __init__(self, api: WatchApi[Any], config: WatcherConfig, modify: Modifier | None) -> None:
        self._resource = api.resource
        self._namespace = namespace_or_none(api.namespace)
        self._form = api.form
        self.metadata_only = api.place.metadata_only
        self._labels = _selector(config.label_text)
        self._fields = config.field_text
        self._shard = config.shard
        self._modify = modify

    def is_about(self, ref: ObjectRef) -> bool:
        """Whether the kind and namespace of this ref are those of the store's objects."""
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
        """Whether the object is in none of the store's hash ranges, which is permanent. False if the uid is unknown."""
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
        """Whether the store's selectors match; None if only the server knows."""
        labels = self._labels
        if labels is None:
            return None
        if not labels.matches(record.head.labels):
            return False
        return self._fields is None or _matches_fields(self._fields, record)

    def _in_form(self, record: Record) -> Record | None:
        """The object in the store's form; None if the answer does not contain enough."""
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
    """Whether the object in the answer has been deleted completely: no finalizer or grace period keeps the object.

    A server that only waits for finalizers writes a grace period of 0. A Namespace, which waits for its content, has no
    grace period.
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
