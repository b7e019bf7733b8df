"""The garbage collector: what happens to dependents when their owner goes.

====================================================  ==============================================================
object                                                what is done
====================================================  ==============================================================
has owners, none of them exists                       it is deleted
has owners, some of them exist                        references to those that do not exist are removed
its owners exist but wait for their dependents to go  it is deleted (in the foreground, if it has dependents itself)
deleted in the foreground (foregroundDeletion)        its finalizer goes when no dependent that blocks it is left
deleted as orphaning (orphan)                         dependents lose their reference to it, then its finalizer goes
====================================================  ==============================================================

An owner is known by its uid; a namespaced owner counts only in the dependent's own namespace. An owner of a kind that
the server does not serve is left alone: it may be served later.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from kubectl_runtime.testing.apiserver.controllers.client import delete, patch, served_type
from kubectl_runtime.testing.apiserver.metadata import FOREGROUND, ORPHAN
from kubectl_runtime.testing.apiserver.registry import ResourceType
from kubectl_runtime.testing.apiserver.storage import Bucket, Change, Version

if TYPE_CHECKING:
    from kubectl_runtime.testing.apiserver.core import ApiCore

Object = dict[str, Any]
Place = tuple[str, str]  # (key of the bucket, key of the object)

AGENT = "garbage-collector"
PER_STEP = 50  # objects that one step looks at, so that requests get their turn


class GarbageCollector:
    """See the module. Keeps where each uid is and who depends on it."""

    name = "garbage-collector"

    def __init__(self) -> None:
        self._places: dict[str, Place] = {}
        self._dependents: dict[str, dict[Place, None]] = {}
        self._queue: deque[Place] = deque()
        self._queued: set[Place] = set()
        self._started = False

    def start(self, core: ApiCore) -> None:
        """Learn what is stored."""
        self._places.clear()
        self._dependents.clear()
        for bucket in core.storage.buckets.values():
            for version in bucket.objects.values():
                self._learn((bucket.key, version.key), version)
        if not self._started:
            self._started = True
            core.storage.observers.append(self._observe)

    def due(self) -> float | None:
        """At once if there is something to look at."""
        return 0.0 if self._queue else None

    def step(self, core: ApiCore) -> None:
        """Look at some objects."""
        for _ in range(min(PER_STEP, len(self._queue))):
            place = self._queue.popleft()
            self._queued.discard(place)
            self._look_at(core, place)

    # --- what changed -------------------------------------------------------------------------------------------------

    def _observe(self, bucket: Bucket, change: Change) -> None:
        place = (bucket.key, change.new.key)
        if change.old is not None and (change.deleted or change.old.owners != change.new.owners):
            for owner in change.old.owners:
                self._forget_dependent(owner.get("uid", ""), place)
        if change.deleted:
            self._forget(change.new)
        else:
            self._learn(place, change.new)

    def _learn(self, place: Place, version: Version) -> None:
        self._places[version.uid] = place
        for owner in version.owners:
            self._dependents.setdefault(owner.get("uid", ""), {})[place] = None
        if version.owners or (version.deleting and (FOREGROUND in version.finalizers or ORPHAN in version.finalizers)):
            self._enqueue(place)
        if version.deleting:
            self._enqueue_dependents(version.uid)

    def _forget(self, version: Version) -> None:
        self._places.pop(version.uid, None)
        self._enqueue_dependents(version.uid)

    def _forget_dependent(self, owner: str, place: Place) -> None:
        dependents = self._dependents.get(owner)
        if dependents is None:
            return
        dependents.pop(place, None)
        if not dependents:
            del self._dependents[owner]
        if owner in self._places:
            self._enqueue(self._places[owner])  # it may wait for this dependent to go

    def _enqueue_dependents(self, uid: str) -> None:
        for place in self._dependents.get(uid, ()):
            self._enqueue(place)

    def _enqueue(self, place: Place) -> None:
        if place not in self._queued:
            self._queued.add(place)
            self._queue.append(place)

    # --- what is to be done -------------------------------------------------------------------------------------------

    def _look_at(self, core: ApiCore, place: Place) -> None:
        version, resource_type = _stored(core, place), served_type(core, place[0])
        if version is None or resource_type is None:
            return
        if version.deleting:
            if FOREGROUND in version.finalizers:
                self._finish_foreground(core, resource_type, version)
            elif ORPHAN in version.finalizers:
                self._orphan(core, resource_type, version)
            return
        if version.owners:
            self._check_owners(core, resource_type, version)

    def _check_owners(self, core: ApiCore, resource_type: ResourceType, version: Version) -> None:
        solid, waiting, gone = [], [], []
        for owner in version.owners:
            found = self._owner(core, version, owner)
            if found is None:
                gone.append(owner)
            elif isinstance(found, Version) and found.deleting and FOREGROUND in found.finalizers:
                waiting.append(owner)
            else:
                solid.append(owner)
        if solid:
            if len(solid) < len(version.owners):
                patch(core, resource_type, version, {"metadata": {"ownerReferences": solid}}, agent=AGENT)
        elif waiting and version.uid in self._dependents:
            delete(core, resource_type, version, agent=AGENT, policy="Foreground")
        else:
            held = version.finalizers
            policy = "Orphan" if ORPHAN in held else "Foreground" if FOREGROUND in held else "Background"
            delete(core, resource_type, version, agent=AGENT, policy=policy)

    def _owner(self, core: ApiCore, version: Version, owner: Object) -> Version | bool | None:
        """The owner; True if it cannot be told because its kind is not served; None if it does not exist."""
        group, _, api_version = owner.get("apiVersion", "").rpartition("/")
        kind = core.registry.by_kind(group, api_version, owner.get("kind", ""))
        if kind is None:
            return True
        place = self._places.get(owner.get("uid", ""))
        if place is None:
            return None
        found = _stored(core, place)
        if found is None or (kind.namespaced and found.namespace != version.namespace):
            return None
        return found

    def _finish_foreground(self, core: ApiCore, resource_type: ResourceType, version: Version) -> None:
        for place in list(self._dependents.get(version.uid, ())):
            dependent = _stored(core, place)
            if dependent is not None and any(owner.get("uid") == version.uid and owner.get("blockOwnerDeletion")
                                             for owner in dependent.owners):
                return
        self._drop_finalizer(core, resource_type, version, FOREGROUND)

    def _orphan(self, core: ApiCore, resource_type: ResourceType, version: Version) -> None:
        for place in list(self._dependents.get(version.uid, ())):
            dependent, dependent_type = _stored(core, place), served_type(core, place[0])
            if dependent is None or dependent_type is None:
                continue
            kept = [owner for owner in dependent.owners if owner.get("uid") != version.uid]
            patch(core, dependent_type, dependent, {"metadata": {"ownerReferences": kept}}, agent=AGENT)
        self._drop_finalizer(core, resource_type, version, ORPHAN)

    @staticmethod
    def _drop_finalizer(core: ApiCore, resource_type: ResourceType, version: Version, name: str) -> None:
        kept = [finalizer for finalizer in version.finalizers if finalizer != name]
        patch(core, resource_type, version, {"metadata": {"finalizers": kept}}, agent=AGENT)


def _stored(core: ApiCore, place: Place) -> Version | None:
    bucket = core.storage.buckets.get(place[0])
    return bucket.objects.get(place[1]) if bucket else None
