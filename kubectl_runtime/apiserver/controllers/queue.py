"""`KeyQueue`: the objects of one type that a controller has to look at, fed by the changes of that type and of its
children, and by the clock."""

from __future__ import annotations

from kubectl_runtime.apiserver.controllers.loop import under_lock
from kubectl_runtime.apiserver.storage.cluster import Cluster
from kubectl_runtime.apiserver.storage.storage import Bucket, Change, Version

PER_STEP = 50


class KeyQueue:
    """Base of small controllers: subclasses set `storage` and `children`, and reconcile one object at a time."""

    name = ""
    storage = ""  # the key of the type that is reconciled
    kind = ""  # its kind, as owner references of children name it
    children: tuple[str, ...] = ()  # keys of the types whose changes concern their controller owner

    def __init__(self) -> None:
        self._keys: dict[str, None] = {}
        self._later: dict[str, float] = {}  # key -> when to look at it again, in monotonic seconds
        self._cluster: Cluster | None = None

    def start(self, cluster: Cluster) -> None:
        """Look at every object of the type, and observe."""
        self._keys = dict.fromkeys(cluster.storage.bucket(self.storage).keys)
        self._later.clear()
        if self._cluster is None:
            cluster.storage.observers.append(self._observe)
        self._cluster = cluster

    def _observe(self, bucket: Bucket, change: Change) -> None:
        if bucket.key == self.storage:
            self._keys[change.new.key] = None
        elif bucket.key in self.children:
            self._observe_child(change)

    def _observe_child(self, change: Change) -> None:
        """A child that belongs to an object concerns that one; an orphan concerns all that might adopt it."""
        owners = {f"{version.namespace}/{owner.get('name')}" for version in (change.old, change.new) if version
                  for owner in version.owners if owner.get("controller") and owner.get("kind") == self.kind}
        self._keys |= dict.fromkeys(sorted(owners))
        if self._cluster is not None and not any(owner.get("controller") for owner in change.new.owners):
            namespace = change.new.namespace
            self._keys |= {version.key: None for version in self._cluster.storage.bucket(self.storage).scan(namespace)}

    def look_again(self, cluster: Cluster) -> None:
        """Look at every object of the type."""
        self._keys |= dict.fromkeys(cluster.storage.bucket(self.storage).keys)

    def look_later(self, cluster: Cluster, version: Version, seconds: float) -> None:
        """Look at an object again after some time, unless something changes before."""
        self._later[version.key] = cluster.clock.monotonic() + seconds

    def due(self) -> float | None:
        """At once if there is something to look at, else when the first object is to be looked at again."""
        return 0.0 if self._keys else min(self._later.values(), default=None)

    @under_lock
    def step(self, cluster: Cluster) -> None:
        """Reconcile some objects."""
        now = cluster.clock.monotonic()
        self._keys |= {key: None for key, when in self._later.items() if when <= now}
        for _ in range(min(PER_STEP, len(self._keys))):
            key = next(iter(self._keys))
            del self._keys[key]
            self._later.pop(key, None)
            version = cluster.storage.bucket(self.storage).objects.get(key)
            if version is not None:
                self.reconcile(cluster, version)

    def reconcile(self, cluster: Cluster, version: Version) -> None:
        """Bring what belongs to one object in line with it; overridden."""
        raise AssertionError(f"{type(self).__name__} reconciles nothing")
