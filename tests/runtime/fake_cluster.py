"""A cluster in memory for tests of controllers: objects, versions, lists and watches, and ways to break them.

In a simulation a watch with nothing to say yields an empty batch; with `blocking` it waits, as a socket would.
"""
from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from kubectl_runtime.client.api.client import Shared, Write, WriteObserver, WriteObservers
from kubectl_runtime.core.base.clock import SYSTEM_CLOCK, Clock
from kubectl_runtime.core.base.errors import TransportError
from kubectl_runtime.core.base.stop import StopToken
from kubectl_runtime.core.codec.jsonbytes import decode_object
from kubectl_runtime.core.codec.views import Record
from kubectl_runtime.core.meta.gvk import ApiResource
from kubectl_runtime.core.meta.metav1 import ListMeta
from kubectl_runtime.core.objects.resource import Resource
from kubectl_runtime.core.requests.params import ListParams, WatchParams
from tests.runtime.watch.watch_fakes import Item, api_error


class Parent(Resource, group="test.example", version="v1", kind="Parent"):
    """What the controllers under test reconcile."""

    spec: dict[str, int]


class Child(Resource, group="test.example", version="v1", kind="Child", plural="children"):
    """What they make."""

    spec: dict[str, int]


class FakeClient:
    """As much of `Client` as a controller uses."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.writes = WriteObservers()
        self.shared = Shared()
        self.grown = 0
        self.closing = StopToken(clock=clock)

    def on_write(self, observer: WriteObserver) -> Any:
        return self.writes.add(observer)

    def on_close(self, callback: Any) -> Any:
        return self.closing.on_set(callback)

    def close(self) -> None:
        self.closing.set("closed")

    def grow(self, workers: int) -> None:
        self.grown = workers


class FakeCluster:
    """Safe to use from any thread."""

    def __init__(self, clock: Clock = SYSTEM_CLOCK, *, blocking: bool = False) -> None:
        self.client = FakeClient(clock)
        self.blocking = blocking
        self.changed = threading.Condition()
        self.version = 100
        self.objects: dict[ApiResource, dict[str, Record]] = {}
        self.history: dict[ApiResource, list[tuple[int, Item]]] = {}
        self.oldest: Counter[ApiResource] = Counter()
        """Versions of a kind before this one can no longer be watched from."""
        self.epoch: Counter[ApiResource] = Counter()
        """Watches opened in an earlier one are cut."""
        self.failing: set[ApiResource] = set()
        """Kinds whose requests fail."""

    def api(self, kind: type[Resource]) -> FakeApi:
        return FakeApi(self, kind)

    def put(self, kind: type[Resource], name: str, value: int = 0, *, owner: str | None = None,
            verb: str = "", metadata: dict[str, Any] | None = None, sent: bytes | None = None) -> Record:
        """Create or change an object; with `verb`, as a write of this process's client, which `sent` this."""
        resource = kind.api_resource
        with self.changed:
            old = self.objects.setdefault(resource, {}).get(name)
            self.version += 1
            uid = old.uid if old else f"uid-{name}-{self.version}"
            metadata = {"uid": uid, **(metadata or {}), "name": name, "namespace": "default",
                        "resourceVersion": str(self.version)}
            if owner is not None:
                metadata["ownerReferences"] = [{"apiVersion": "test.example/v1", "kind": "Parent", "name": owner,
                                                "uid": "u"}]
            content = {"apiVersion": "test.example/v1", "kind": resource.kind, "metadata": metadata,
                       "spec": {"value": value}}
            record = decode_object(json.dumps(content).encode(), resource)
            self.objects[resource][name] = record
            self._append(resource, Item("MODIFIED" if old else "ADDED", record, record.resource_version))
        if verb:
            self.client.writes.tell(Write(record.ref, verb, record.resource_version, record.uid, record,
                                           sent=sent))
        return record

    def put_raw(self, kind: type[Resource], name: str, body: bytes) -> None:
        """Create or change an object to this JSON."""
        with self.changed:
            self.version += 1
            record = decode_object(body.replace(b"@VERSION", str(self.version).encode()), kind.api_resource)
            self.objects.setdefault(kind.api_resource, {})[name] = record
            self._append(kind.api_resource, Item("MODIFIED", record, record.resource_version))

    def delete(self, kind: type[Resource], name: str) -> None:
        with self.changed:
            record = self.objects.get(kind.api_resource, {}).pop(name, None)
            if record is not None:
                self.version += 1
                self._append(kind.api_resource, Item("DELETED", record, str(self.version)))

    def names(self, kind: type[Resource]) -> set[str]:
        return set(self.objects.get(kind.api_resource, {}))

    def value(self, kind: type[Resource], name: str) -> int | None:
        record = self.objects.get(kind.api_resource, {}).get(name)
        return None if record is None else json.loads(record.raw)["spec"]["value"]

    def cut(self, *kinds: type[Resource]) -> None:
        """The open watches of these kinds end."""
        with self.changed:
            self.epoch.update(kind.api_resource for kind in kinds)
            self.changed.notify_all()

    def compact(self, *kinds: type[Resource]) -> None:
        """The open watches of these kinds end, and none can go on from where it was: only lists help."""
        with self.changed:
            self.oldest.update({kind.api_resource: self.version - self.oldest[kind.api_resource] for kind in kinds})
            self.epoch.update(kind.api_resource for kind in kinds)
            self.changed.notify_all()

    def _append(self, resource: ApiResource, item: Item) -> None:
        self.history.setdefault(resource, []).append((self.version, item))
        self.changed.notify_all()


class FakeApi:
    """`Api` of one kind, all namespaces."""

    namespace = None

    def __init__(self, cluster: FakeCluster, kind: type[Resource]) -> None:
        self.cluster = cluster
        self.kind = kind
        self.client = cluster.client

    @property
    def resource(self) -> ApiResource:
        return self.kind.api_resource

    def with_metadata_only(self) -> FakeApi:
        return self

    def list_page(self, params: ListParams, **_: Any) -> tuple[ListMeta, list[Record]]:
        self._check()
        cluster = self.cluster
        with cluster.changed:
            return ListMeta(resource_version=str(cluster.version)), [*cluster.objects.get(self.resource, {}).values()]

    def open_watch(self, params: WatchParams, resource_version: str, stop: StopToken) -> Iterator[Sequence[Item]]:
        self._check()
        if int(resource_version) < self.cluster.oldest[self.resource]:
            raise api_error(410, "Expired")
        return self._stream(int(resource_version), self.cluster.epoch[self.resource], stop)

    def _stream(self, version: int, epoch: int, stop: StopToken) -> Iterator[Sequence[Item]]:
        cluster = self.cluster
        forget = stop.on_set(self._wake)
        try:
            while not stop.is_set() and cluster.epoch[self.resource] == epoch:
                with cluster.changed:
                    new = [entry for entry in cluster.history.get(self.resource, ()) if entry[0] > version]
                    if not new and cluster.blocking:
                        cluster.changed.wait(5)
                        continue
                if new:
                    version = new[-1][0]
                yield [item for _, item in new]
        finally:
            forget()

    def _check(self) -> None:
        if self.resource in self.cluster.failing:
            raise TransportError(f"{self.resource.full_name} cannot be reached")

    def _wake(self) -> None:
        with self.cluster.changed:
            self.cluster.changed.notify_all()
