"""`Overlay`: what this process has written and its watch has not shown yet, for one watch.

An entry says of one key what a write was answered:

    shown     the object, as the store keeps objects; reads see it instead of what the watch knows
    hidden    it is not one of the store's: the selector does not match it (any more); reads see nothing
    gone      it was deleted; reads see nothing of this uid
    unknown   its version, but not its content in the store's form (a scale, say); reads see what the watch knows

    input                        an entry is
    write                        made, unless the store has seen that version, a newer one, or the deletion; or a newer
                                 write, or a deletion of this uid, stands there already
    event of the key             dropped by a version at least as new, for a deletion also by that of its uid, and by
                                 another uid later
    progress to a version        dropped, if it is not newer (a watch shows changes in the order of their versions)
    complete list                dropped, if the list's request began after the answer, or its version is at least as
                                 new; a deletion stays while an older list still shows the object

A written object that such a list lacks, or has under another uid, was deleted without anybody having seen it: `listed`
names it, unless it was stored, so that the difference tells it as any other deletion. A write that progress passes over
without an event of the key, or of which such a list shows the state before, is not in the history that the watch sees:
the server went back to a copy from before it. It is `unseen`: whoever made it has to hear that it is no more.

Versions are compared as Kubernetes compares them since 1.35: digits only, of one kind on one server, as numbers. Of
others nothing is concluded, and no entry is made that only a comparison could end. The answer to a deletion has no
version: of an object that neither the store nor a write of this process had known, it is not known how far the watch
has to come, so there the first sign of another uid ends the entry.

Not thread-safe: the store's lock guards it. No user code runs here.
"""
from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from kubectl_runtime.core.base.plain import Key
from kubectl_runtime.core.codec.views import Record
from kubectl_runtime.runtime.store.indexes import IndexName, Values

REMEMBERED_DELETIONS = 4096
"""Uids of deleted objects that are remembered, so that a write which is told late is not taken for news."""


@dataclass(slots=True)
class Own:
    """What this process wrote of one object. What readers see is `record`, unless `known` is False."""

    uid: str
    version: str
    """Of the answer; of a deletion: the last one known, if any."""
    record: Record | None = None
    known: bool = True
    gone: bool = False
    last: Record | None = None
    """The last state that would have been stored, for who has to hear of its deletion."""
    predecessors: tuple[Record, ...] = ()
    """The last states of objects of this name that this process had written before, and that are no more."""
    mark: int = 0
    """The number of the write; a list that began when `count` was at least this one began after the answer."""
    values: dict[IndexName, Values] = field(default_factory=dict)
    """What index functions said of `record`, once they were asked."""


def number_of(version: str | None) -> int | None:
    """A version that can be compared, as a number; None for one that cannot."""
    if not version or not (version.isascii() and version.isdigit()) or version[0] == "0":
        return None
    return int(version)


class Overlay:
    """What this process wrote and the watch of a store has not shown yet. Pure; its owner serialises the calls."""

    def __init__(self) -> None:
        self.entries: dict[Key, Own] = {}
        self.seen: dict[Key, Own] = {}
        """The entries by which reads differ from what the watch knows; for example not that of an object outside the
        selection, while the watch does not show it either. Reads look at these alone: writes that no watch selects
        leave them as cheap as they were."""
        self.count = 0
        """Writes that were heard of. Who begins a list remembers it, and says it when the list is complete."""
        self.shown = ""
        """The version up to which the watch has shown everything. Looked at only where something was written."""
        self.unseen: list[Own] = []
        """What was written and is undone; to be taken by the watch's thread."""
        self._due: list[tuple[int, Key]] = []
        """Versions of entries, smallest first; of some that are no more, too."""
        self._deleted: dict[str, str] = {}
        """Of objects that were deleted, or left the selection and may come back: the version at which they did."""

    # Writes

    def wrote(self, key: Key, own: Own, stored: Record | None) -> Record | None:
        """This process wrote the object `key`, of which the watch knows `stored`.

        Returns an object of which now is known that it was deleted, unseen: the watch is further than the write, and
        has neither it nor its deletion.
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
        if before is not None and self._is_older(own, version, before):
            return None
        if stored is not None and stored.uid == own.uid and (number_of(stored.resource_version) or version) >= version:
            return None
        if version <= (number_of(self.shown) or 0):
            unseen = own.last is not None and (stored is None or stored.uid != own.uid)
            if unseen:
                self._remember(own.uid, own.version)
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
        if before is not None and before.uid != own.uid and same:
            return  # the store still has what was deleted, and a write of its successor is known
        for _, version, last in sorted(same, key=lambda one: one[0]):
            own.version, own.last = own.version or version, last or own.last
            if (number_of(version) or 0) > (number_of(own.version) or 0):
                own.version = version
        if stored is not None and stored.uid != own.uid and before is not None and before.uid == own.uid and (
                number_of(stored.resource_version) or 0) > (number_of(own.version) or 0):
            self._drop(key)  # the watch is further already: it shows a successor
            return
        _inherit(own, before)
        self._put(key, own, stored)

    def _put(self, key: Key, own: Own, stored: Record | None) -> None:
        self.entries[key] = own
        self._see(key, own, stored)

    def _drop(self, key: Key) -> None:
        del self.entries[key]
        self.seen.pop(key, None)

    def _see(self, key: Key, own: Own, stored: Record | None) -> None:
        """Decide whether reads have to look at the entry, now that the watch knows `stored` of the key."""
        if own.known and (own.record is not None or stored is not None):
            self.seen[key] = own
        else:
            self.seen.pop(key, None)

    # What the watch shows

    def changed(self, changes: Mapping[Key, Record | None], gone: Iterable[Record], version: str) -> None:
        """Events were stored: what keys became, which objects were said to be deleted, and the version that the watch
        has reached by that (empty: unknown)."""
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
        """The watch has shown everything up to `version`."""
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
        """What this process wrote, what a complete list of `version` lacks, and what was not stored: it was deleted.

        `mark`: the `count` when the list's request began, None when it may be older than that (not consistent).
        """
        missing = []
        for key, own in self.entries.items():
            item, stored = new.get(key), old.get(key)
            states, own.predecessors = own.predecessors, ()
            if self._is_covered(own, item, version, mark):
                states = states if own.last is None else (*states, own.last)
            else:  # of the predecessors, the list may show that some are no more
                listed = number_of(version) or 0
                own.predecessors = tuple(one for one in states if (number_of(one.resource_version) or 0) > listed)
                states = tuple(one for one in states if one not in own.predecessors)
            alive = {record.uid for record in (item, stored) if record is not None}
            missing += [record for record in states if record.uid not in alive]
        return missing

    def listed(self, new: Mapping[Key, Record], vanished: Iterable[Record], version: str, mark: int | None) -> None:
        """That list took the place of everything, arguments as of `lost`; `vanished` is what was stored and it lacks.
        """
        covered = [(key, own) for key, own in self.entries.items()
                   if self._is_covered(own, new.get(key), version, mark)]
        for key, own in covered:
            self._drop(key)
            item = new.get(key)
            if item is None:
                self._remember(own.uid, version)
            elif own.last is not None and _is_before(item, own):
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


def _inherit(own: Own, before: Own | None) -> None:
    """Take over from the entry that stood there what has to be told if a list shows that it is no more."""
    if before is None:
        return
    own.predecessors = before.predecessors
    if before.uid == own.uid:
        own.last = own.last or before.last
    elif before.last is not None:
        own.predecessors = (*before.predecessors, before.last)


def _is_before(item: Record, own: Own) -> bool:
    """Whether a list from after the write shows the object as it was before it."""
    known, listed = number_of(own.version), number_of(item.resource_version)
    return item.uid == own.uid and (own.gone or (known is not None and listed is not None and listed < known))


def _ends(own: Own, deleted: Record) -> bool:
    """Whether the event that `deleted` is gone ends the entry. An object that only left the selection may have been
    brought back by a later write."""
    if own.uid != deleted.uid:
        return _succeeds(own, deleted)
    known, shown = number_of(own.version), number_of(deleted.resource_version)
    return own.gone or known is None or shown is None or shown >= known


def _catches_up(own: Own, changed: Record) -> bool:
    """Whether an event that shows `changed` is at least as new as the write."""
    if own.gone:
        return _succeeds(own, changed)
    if changed.uid == own.uid and changed.resource_version == own.version:
        return True
    known, shown = number_of(own.version), number_of(changed.resource_version)
    return known is not None and shown is not None and shown >= known


def _succeeds(own: Own, record: Record) -> bool:
    """Whether an object of another uid came after the one that was written, and not before it."""
    if own.uid == record.uid:
        return False
    known, shown = number_of(own.version), number_of(record.resource_version)
    return known is None or shown is None or shown > known
