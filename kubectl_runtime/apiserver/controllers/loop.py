"""`ControlLoop`: a controller of the cluster. The core calls its `step` whenever the controller has work.

A loop observes every stored change (`Storage.observers`), collects keys (`KeyQueue`), and does a bounded piece of work
in `step`. `start`, `look_again` and the observers are called under the cluster's lock. `step` takes the lock itself,
because a loop must not hold the lock while it calls a test's functions. `under_lock` wraps the `step` of loops that
call no such functions.

If a controller's request calls a webhook, the lock is released during the call. Objects that the loop has read may be
outdated after the call, so the controller's later requests name the object's uid and resourceVersion.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Protocol, TypeVar

from kubectl_runtime.apiserver.loopback import MANAGER, Kind, submit, type_of
from kubectl_runtime.apiserver.storage import Bucket, Change, Cluster, Version
from kubectl_runtime.core.meta.metav1 import format_time

T = TypeVar("T")


class ControlLoop(Protocol):
    name: str

    def start(self, cluster: Cluster) -> None:
        """Enqueue every stored object, and begin to observe changes. Called again after a restore."""

    def look_again(self, cluster: Cluster) -> None:
        """Enqueue every stored object again. Called if a webhook refused a write of the loop, or if `step` raised."""

    def due(self) -> float | None:
        """The monotonic time at which `step` has work (0 for now); None until an object changes. Takes no lock."""

    def step(self, cluster: Cluster) -> None:
        """Do a bounded piece of work. If the step raises, its keys may be lost, so the core calls `look_again`."""


def under_lock(step: Callable[[T, Cluster], None]) -> Callable[[T, Cluster], None]:
    """Decorator for a `step` that holds the cluster's lock from beginning to end."""
    @wraps(step)
    def locked(loop: T, cluster: Cluster) -> None:
        with cluster.locked():
            step(loop, cluster)
    return locked


PER_STEP = 50


class KeyQueue:
    """Base class of most controllers. Subclasses set `storage` and `children`, and reconcile one object at a time."""

    # Subclasses set `storage`, the storage key of the reconciled type. If the type has children, they also set `kind`,
    # its kind in owner references, and `children`, the storage keys of the child types. If a child changes, the owner
    # that is its controller is enqueued.
    name = ""
    storage = ""
    kind = ""
    children: tuple[str, ...] = ()

    def __init__(self) -> None:
        self._keys: dict[str, None] = {}
        self._later: dict[str, float] = {}  # key -> when to reconcile the object again, in monotonic seconds
        self._cluster: Cluster | None = None

    def start(self, cluster: Cluster) -> None:
        """Enqueue every object of the type, and begin to observe changes."""
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
        """Enqueue a changed child's owner. If the child is an orphan, enqueue every object that might adopt it."""
        owners = {f"{version.namespace}/{owner.get('name')}" for version in (change.old, change.new) if version
                  for owner in version.owners if owner.get("controller") and owner.get("kind") == self.kind}
        self._keys |= dict.fromkeys(sorted(owners))
        if self._cluster is not None and not any(owner.get("controller") for owner in change.new.owners):
            namespace = change.new.namespace
            self._keys |= {version.key: None for version in self._cluster.storage.bucket(self.storage).scan(namespace)}

    def look_again(self, cluster: Cluster) -> None:
        """Enqueue every object of the type."""
        self._keys |= dict.fromkeys(cluster.storage.bucket(self.storage).keys)

    def look_later(self, cluster: Cluster, version: Version, seconds: float) -> None:
        """Reconcile an object again after `seconds`, or earlier if the object changes."""
        self._later[version.key] = cluster.clock.monotonic() + seconds

    def due(self) -> float | None:
        """0 (due now) if an object is queued, else the time at which the first delayed object is due."""
        return 0.0 if self._keys else min(self._later.values(), default=None)

    @under_lock
    def step(self, cluster: Cluster) -> None:
        """Reconcile some queued objects."""
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
        """Reconcile one object. Subclasses override this."""
        raise AssertionError(f"{type(self).__name__} reconciles nothing")


def record_event(cluster: Cluster, of: Kind, version: Version, reason: str, message: str, *, component: str,
                 kind: str = "Normal", versioned: bool = True, agent: str = MANAGER) -> None:
    """Write one Event about an object, in the object's namespace or in ``default``. Does nothing if `of` is not served.

    `versioned` adds the object's resourceVersion. `agent` is the component that makes the request.
    """
    resource_type = type_of(cluster, of)
    if resource_type is None:
        return
    moment, namespace = cluster.clock.now(), version.namespace or "default"
    space = {"namespace": version.namespace} if version.namespace else {}
    state = {"resourceVersion": str(version.rv)} if versioned else {}
    submit(cluster, "POST", f"/api/v1/namespaces/{namespace}/events", {
        "metadata": {"name": f"{version.name}.{int(moment.timestamp() * 1e9):x}{cluster.random.randrange(256):02x}",
                     "namespace": namespace},
        "involvedObject": {"kind": resource_type.kind, **space, "name": version.name, "uid": version.uid,
                           "apiVersion": resource_type.api_version, **state},
        "reason": reason, "message": message, "type": kind, "count": 1, "source": {"component": component},
        "reportingComponent": component, "firstTimestamp": format_time(moment),
        "lastTimestamp": format_time(moment)}, agent=agent)
