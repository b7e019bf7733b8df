"""The namespace controller: empties terminating Namespaces, reports remaining objects, and removes the Namespaces."""

from __future__ import annotations

from kubectl_runtime.apiserver.controllers.loop import under_lock
from kubectl_runtime.apiserver.loopback import delete, served_type
from kubectl_runtime.apiserver.storage import Bucket, Change, Cluster, Version
from kubectl_runtime.core.meta.metav1 import format_time

STORAGE, PODS = "/namespaces", "/pods"
FINALIZER = "kubernetes"
PER_STEP = 200  # objects per step


class NamespaceController:
    """Empties and removes terminating Namespaces."""

    name = "namespace"

    def __init__(self) -> None:
        self._terminating: dict[str, None] = {}  # queued namespaces, in order
        self._deleting: set[str] = set()  # all terminating namespaces
        self._started = False

    def start(self, cluster: Cluster) -> None:
        """Enqueue the terminating namespaces, and begin to observe changes."""
        self._deleting = {version.name for version in cluster.storage.bucket(STORAGE).scan("") if version.deleting}
        self._terminating = dict.fromkeys(sorted(self._deleting))
        if not self._started:
            self._started = True
            cluster.storage.observers.append(self._observe)

    def _observe(self, bucket: Bucket, change: Change) -> None:
        if bucket.key == STORAGE:
            if change.deleted:
                self._deleting.discard(change.new.name)
                self._terminating.pop(change.new.name, None)
            elif change.new.deleting:
                self._deleting.add(change.new.name)
                self._terminating[change.new.name] = None
        elif change.new.namespace in self._deleting:
            self._terminating[change.new.namespace] = None

    def look_again(self, cluster: Cluster) -> None:
        self._terminating |= dict.fromkeys(sorted(self._deleting))

    def due(self) -> float | None:
        """0 (due now) if a namespace is queued, else None."""
        return 0.0 if self._terminating else None

    @under_lock
    def step(self, cluster: Cluster) -> None:
        """Delete some objects of one terminating namespace, and the namespace itself once it is empty."""
        name = next(iter(self._terminating), None)
        if name is None:
            return
        del self._terminating[name]
        namespace = cluster.storage.get(STORAGE, "", name)
        if namespace is None or not namespace.deleting:
            return
        if not self._delete_contents(cluster, name):
            self._terminating[name] = None  # more objects have to be deleted
            return
        namespace = cluster.storage.get(STORAGE, "", name)  # webhook calls may have changed the namespace
        if namespace is None:
            return
        remaining = self._remaining(cluster, name)
        if remaining:
            self._tell(cluster, namespace, remaining)
            self._terminating.pop(name, None)  # drops the entry that this step's own writes made
        else:
            self._finalize(cluster, namespace)

    @staticmethod
    def _remaining(cluster: Cluster, name: str) -> dict[str, list[Version]]:
        found = {key: list(bucket.scan(name)) for key, bucket in cluster.storage.buckets.items()
                 if (kind := served_type(cluster, key)) is not None and kind.namespaced}
        return {key: versions for key, versions in sorted(found.items()) if versions}

    def _delete_contents(self, cluster: Cluster, name: str) -> bool:
        """Request the deletion of the namespace's objects. Returns whether this was done for all objects."""
        left = PER_STEP
        for key, versions in self._remaining(cluster, name).items():
            for version in versions:
                if version.deleting:
                    continue
                if not left:
                    return False
                before = cluster.turned_away
                delete(cluster, key, version, policy="Background")
                left -= cluster.turned_away == before  # does not count a deletion that a webhook refused
        return True

    @staticmethod
    def _finalize(cluster: Cluster, namespace: Version) -> None:
        obj = namespace.decode()
        spec = obj.get("spec") or {}
        finalizers = [finalizer for finalizer in spec.get("finalizers") or () if finalizer != FINALIZER]
        if not finalizers and not namespace.finalizers:
            cluster.storage.delete(STORAGE, namespace)
        elif FINALIZER in (spec.get("finalizers") or ()):
            obj["spec"] = {**spec, "finalizers": finalizers} if finalizers else {}
            cluster.storage.put(STORAGE, obj, namespace.fields)

    @staticmethod
    def _tell(cluster: Cluster, namespace: Version, remaining: dict[str, list[Version]]) -> None:
        obj = namespace.decode()
        status = obj.setdefault("status", {})
        before = {entry["type"]: entry for entry in status.get("conditions") or ()}
        now = format_time(cluster.clock.now())
        conditions = []
        for kind, state, reason, message in _conditions(remaining):
            known = before.get(kind)
            since = known["lastTransitionTime"] if known and known["status"] == state else now
            conditions.append({"type": kind, "status": state, "lastTransitionTime": since, "reason": reason,
                               "message": message})
        if conditions != status.get("conditions"):
            status["conditions"] = conditions
            cluster.storage.put(STORAGE, obj, namespace.fields)


def _conditions(remaining: dict[str, list[Version]]) -> list[tuple[str, str, str, str]]:
    """A Namespace's conditions as (type, status, reason, message). Pods within their grace period do not count as
    remaining."""
    counts = []
    finalizers: dict[str, int] = {}
    for key, versions in remaining.items():
        if key == PODS and any(version.decode()["metadata"].get("deletionGracePeriodSeconds") for version in versions):
            continue
        group, _, plural = key.partition("/")
        counts.append(f"{plural}.{group} has {len(versions)} resource instances")
        for version in versions:
            for finalizer in version.finalizers:
                finalizers[finalizer] = finalizers.get(finalizer, 0) + 1
    held = [f"{name} in {count} resource instances" for name, count in sorted(finalizers.items())]
    return [
        ("NamespaceDeletionDiscoveryFailure", "False", "ResourcesDiscovered", "All resources successfully discovered"),
        ("NamespaceDeletionGroupVersionParsingFailure", "False", "ParsedGroupVersions",
         "All legacy kube types successfully parsed"),
        ("NamespaceDeletionContentFailure", "False", "ContentDeleted",
         "All content successfully deleted, may be waiting on finalization"),
        ("NamespaceContentRemaining", "True", "SomeResourcesRemain",
         f"Some resources are remaining: {', '.join(sorted(counts))}") if counts else
        ("NamespaceContentRemaining", "False", "ContentRemoved", "All content successfully removed"),
        ("NamespaceFinalizersRemaining", "True", "SomeFinalizersRemain",
         f"Some content in the namespace has finalizers remaining: {', '.join(held)}") if held else
        ("NamespaceFinalizersRemaining", "False", "ContentHasNoFinalizers",
         "All content-preserving finalizers finished"),
    ]
