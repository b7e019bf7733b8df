"""`ControlLoop`: a controller of the cluster, as a step function that the core calls on its clock.

A loop observes every stored change (`Storage.observers`), collects keys (`KeyQueue`), and does a bounded piece of work
in `step`. `start`, `look_again` and the observers are called under the cluster's lock. `step` takes the lock itself,
since a loop that calls a test's functions must not hold it (`under_lock` is for the other loops). The lock is released
while a webhook is called for a controller's request: what the loop has read may be outdated then, so further requests
name the object's uid and version.
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
        """Look at every stored object, and begin to observe; called again after a restore."""

    def look_again(self, cluster: Cluster) -> None:
        """Look at every stored object again, because a webhook refused a write of this controller, or `step` raised."""

    def due(self) -> float | None:
        """When `step` has work, in monotonic seconds (0 for now); None until something changes. Takes no lock."""

    def step(self, cluster: Cluster) -> None:
        """Do a bounded piece of work. A step that raises may lose its keys: `look_again` follows."""


def under_lock(step: Callable[[T, Cluster], None]) -> Callable[[T, Cluster], None]:
    """Make a `step` that holds the cluster's lock from beginning to end."""
    @wraps(step)
    def locked(loop: T, cluster: Cluster) -> None:
        with cluster.locked():
            step(loop, cluster)
    return locked


PER_STEP = 50


class KeyQueue:
    """Base of small controllers: subclasses set `storage` and `children`, and reconcile one object at a time."""

    name = ""
    storage = ""  # the key of the type that is reconciled
    kind = ""  # its kind in the owner references of children
    children: tuple[str, ...] = ()  # keys of types whose changes enqueue their controller owner

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
        """Enqueue the owner of a changed child, or for an orphan every object that might adopt it."""
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
        """Look at an object again after some time, unless it changes before."""
        self._later[version.key] = cluster.clock.monotonic() + seconds

    def due(self) -> float | None:
        """Now, if an object is waiting; otherwise the time at which the first delayed object is due."""
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
        """Reconcile one object; overridden."""
        raise AssertionError(f"{type(self).__name__} reconciles nothing")


def record_event(cluster: Cluster, of: Kind, version: Version, reason: str, message: str, *, component: str,
                 kind: str = "Normal", versioned: bool = True, agent: str = MANAGER) -> None:
    """Write one Event about an object of a type, in the object's namespace or in default; none if the type is not
    served. `versioned` adds the object's resourceVersion; `agent` is the requesting component."""
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
