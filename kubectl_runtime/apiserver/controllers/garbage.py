"""The garbage collector: what happens to dependents when their owner is deleted.

- An object whose owners are all gone is deleted. If some owners stay, the references to the other owners are removed.
  (The other owners are gone, or are being deleted in the foreground and wait for the deletion of their dependents.)
- If all remaining owners of an object are being deleted in the foreground, the object is deleted. Its own deletion is
  in the foreground too if it has dependents.
- The finalizer foregroundDeletion of a terminating object is removed when no dependent blocks the deletion.
- If an object is deleted with the policy Orphan, its dependents lose their references to it, and after that its
  finalizer ``orphan`` is removed.

An owner is looked up by kind and name (if namespaced, in the dependent's namespace), and its uid must match. An owner
cannot be looked up if its kind is not served, or if the owner is namespaced and the dependent is not. The dependent is
then left alone. An Event reports an owner that exists in another namespace.
"""

from __future__ import annotations

from collections import deque

from kubectl_runtime.apiserver.controllers.loop import record_event, under_lock
from kubectl_runtime.apiserver.loopback import delete, patch, served_type
from kubectl_runtime.apiserver.objectmeta import FOREGROUND, ORPHAN
from kubectl_runtime.apiserver.storage import Bucket, Change, Cluster, ServedResource, Version
from kubectl_runtime.apiserver.wire import Object

Place = tuple[str, str]  # (storage key of the type, key of the object)

COMPONENT = "garbage-collector-controller"
PER_STEP = 50  # objects per step, so that other requests are served in between


class GarbageCollector:
    """Deletes and orphans dependents. Indexes each object's storage key and dependents by uid."""

    name = "garbage-collector"

    def __init__(self) -> None:
        self._places: dict[str, Place] = {}
        self._dependents: dict[str, dict[Place, None]] = {}
        self._queue: deque[Place] = deque()
        self._queued: set[Place] = set()
        self._reported: set[tuple[str, str]] = set()  # (uid of the dependent, uid of the owner)
        self._started = False

    def start(self, cluster: Cluster) -> None:
        """Index the stored objects, and observe changes."""
        self._places.clear()
        self._dependents.clear()
        for bucket in cluster.storage.buckets.values():
            for version in bucket.objects.values():
                self._learn((bucket.key, version.key), version)
        if not self._started:
            self._started = True
            cluster.storage.observers.append(self._observe)

    def look_again(self, cluster: Cluster) -> None:
        """Enqueue all objects that have owners or are being deleted."""
        self.start(cluster)

    def due(self) -> float | None:
        """0 (due now) if an object is queued, else None."""
        return 0.0 if self._queue else None

    @under_lock
    def step(self, cluster: Cluster) -> None:
        """Process some queued objects."""
        for _ in range(min(PER_STEP, len(self._queue))):
            place = self._queue.popleft()
            self._queued.discard(place)
            self._look_at(cluster, place)

    # --- observed changes
    # --------------------------------------------------------------------------------------------------

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
            self._enqueue(self._places[owner])  # the owner may wait for the deletion of this dependent

    def _enqueue_dependents(self, uid: str) -> None:
        for place in self._dependents.get(uid, ()):
            self._enqueue(place)

    def _enqueue(self, place: Place) -> None:
        if place not in self._queued:
            self._queued.add(place)
            self._queue.append(place)

    # --- the work
    # ----------------------------------------------------------------------------------------------------------

    def _look_at(self, cluster: Cluster, place: Place) -> None:
        version, resource_type = _stored(cluster, place), served_type(cluster, place[0])
        if version is None or resource_type is None:
            return
        if version.deleting:
            if FOREGROUND in version.finalizers:
                self._finish_foreground(cluster, resource_type, version)
            elif ORPHAN in version.finalizers:
                self._orphan(cluster, resource_type, version)
            return
        if version.owners:
            self._check_owners(cluster, resource_type, version)

    def _check_owners(self, cluster: Cluster, resource_type: ServedResource, version: Version) -> None:
        self._report_misplaced(cluster, resource_type, version)
        solid: list[Object] = []
        waiting: list[Object] = []
        for owner in version.owners:
            kind = _kind_of(cluster, owner)
            if kind is None or (kind.namespaced and not version.namespace):
                return
            namespace = version.namespace if kind.namespaced else ""
            found = cluster.storage.get(kind.storage, namespace, owner.get("name", ""))
            if found is None or found.uid != owner.get("uid"):
                continue
            (waiting if found.deleting and FOREGROUND in found.finalizers else solid).append(owner)
        if solid:
            if len(solid) < len(version.owners):
                patch(cluster, resource_type, version, {"metadata": {"ownerReferences": solid}})
        elif waiting and version.uid in self._dependents:
            delete(cluster, resource_type, version, policy="Foreground")
        else:
            held = version.finalizers
            policy = "Orphan" if ORPHAN in held else "Foreground" if FOREGROUND in held else "Background"
            delete(cluster, resource_type, version, policy=policy)

    def _report_misplaced(self, cluster: Cluster, resource_type: ServedResource, version: Version) -> None:
        """Write one Event about the first owner that is in another namespace."""
        for owner in version.owners:
            place = self._places.get(owner.get("uid", ""))
            found = _stored(cluster, place) if place else None
            if found is None or not found.namespace or found.namespace == version.namespace:
                continue
            if (version.uid, found.uid) not in self._reported:
                self._reported.add((version.uid, found.uid))
                _warn(cluster, resource_type, version, owner)
            return

    def _finish_foreground(self, cluster: Cluster, resource_type: ServedResource, version: Version) -> None:
        for place in list(self._dependents.get(version.uid, ())):
            dependent = _stored(cluster, place)
            if dependent is not None and any(owner.get("uid") == version.uid and owner.get("blockOwnerDeletion")
                                             for owner in dependent.owners):
                return
        self._drop_finalizer(cluster, resource_type, version, FOREGROUND)

    def _orphan(self, cluster: Cluster, resource_type: ServedResource, version: Version) -> None:
        for place in list(self._dependents.get(version.uid, ())):
            dependent, dependent_type = _stored(cluster, place), served_type(cluster, place[0])
            if dependent is None or dependent_type is None:
                continue
            kept = [owner for owner in dependent.owners if owner.get("uid") != version.uid]
            patch(cluster, dependent_type, dependent, {"metadata": {"ownerReferences": kept}})
        self._drop_finalizer(cluster, resource_type, version, ORPHAN)

    @staticmethod
    def _drop_finalizer(cluster: Cluster, resource_type: ServedResource, version: Version, name: str) -> None:
        kept = [finalizer for finalizer in version.finalizers if finalizer != name]
        patch(cluster, resource_type, version, {"metadata": {"finalizers": kept}})


def _stored(cluster: Cluster, place: Place) -> Version | None:
    bucket = cluster.storage.buckets.get(place[0])
    return bucket.objects.get(place[1]) if bucket else None


def _kind_of(cluster: Cluster, owner: Object) -> ServedResource | None:
    group, _, version = owner.get("apiVersion", "").rpartition("/")
    return cluster.registry.by_kind(group, version, owner.get("kind", ""))


def _warn(cluster: Cluster, resource_type: ServedResource, version: Version, owner: Object) -> None:
    named = (f"{owner.get('apiVersion')}/{owner.get('kind')}, namespace: {version.namespace}, "
             f"name: {owner.get('name')}, uid: {owner.get('uid')}")
    record_event(cluster, resource_type, version, "OwnerRefInvalidNamespace",
                 f'ownerRef [{named}] does not exist in namespace "{version.namespace}"', component=COMPONENT,
                 kind="Warning", versioned=False)
