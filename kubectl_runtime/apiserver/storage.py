"""The state of a server: `Storage` (objects, history, watchers), `Registry` (served types), `Cluster` (both).

Objects are stored as encoded JSON without ``kind`` and ``apiVersion`` (`Version.tail`). Every reader decodes its own
copy, lists and watch events are joined from bytes, and several API versions share one encoding. A `Version` never
changes. A `Change` is one write; the changes of a type since the last compaction are its history. A read at an older
resourceVersion copies the current objects and undoes the later changes in the copy. Each watch has its own cursor. For
a deletion, `Change.new` is the object's last state with the deletion's resourceVersion.

The cluster's one lock guards storage and registry. Handlers and controllers hold the lock for a read or a write, but
not while data is sent or a callback runs. Callbacks of a change run once the lock is free (`locked`), and a write that
calls a webhook releases the lock (`released`). `Registry.get` and `by_kind` are safe without the lock, and so is
reading a `Version`, a `Change` or a `ServedResource`.

A `ServedResource` is one served (group, version, plural); the versions of one type share `storage` and differ in
`version`. Controllers and handlers make requests through `Cluster.loopback`, which the core sets (loopback.py).
"""
from __future__ import annotations

import random
import threading
import uuid
from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Any

import msgspec

from kubectl_runtime.apiserver.schemas import Schema
from kubectl_runtime.apiserver.strategy import Strategy
from kubectl_runtime.apiserver.wire import HttpRequest, HttpResponse, Object
from kubectl_runtime.core.base.threads import Clock
from kubectl_runtime.core.base.wire import decoder_of
from kubectl_runtime.core.meta.gvk import version_priority
from kubectl_runtime.core.meta.selectors import shard_hash

Cell = Callable[[Object, datetime], Any]
"""Returns a cell's value for an object at the time of a request."""


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a server-side table; table.py builds the rows."""

    name: str
    cell: Cell
    type: str = "string"
    format: str = ""
    priority: int = 0
    description: str = ""

    def definition(self) -> Object:
        return {"name": self.name, "type": self.type, "format": self.format,
                "description": self.description or self.name, "priority": self.priority}


ALL_VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")


@dataclass(frozen=True)
class Subresource:
    """A subresource in discovery; group and version are set only if its kind belongs to another group (Scale)."""

    name: str
    kind: str
    verbs: tuple[str, ...] = ("get", "patch", "update")
    group: str = ""
    version: str = ""


@dataclass(frozen=True, eq=False)
class ServedResource:
    """One served resource type; compared by identity."""

    group: str
    version: str
    kind: str
    plural: str
    singular: str
    namespaced: bool
    verbs: tuple[str, ...] = ALL_VERBS
    list_kind: str = ""
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    subresources: tuple[Subresource, ...] = ()
    strategy: Strategy = field(default_factory=Strategy)
    schema_loader: Callable[[], Schema] | None = None  # called on first use, so that the server starts quickly
    columns: tuple[Column, ...] = ()
    is_custom: bool = False
    storage: str = ""  # the storage key, shared by all versions of the type; "" is "group/plural"
    storage_version_hash: str = ""
    terminating: bool = False  # whether the type's CRD is being deleted; discovery then lists fewer verbs
    deprecation: str = ""  # the Warning header for requests of a deprecated version

    def __post_init__(self) -> None:
        if not self.list_kind:
            object.__setattr__(self, "list_kind", self.kind + "List")
        if not self.storage:
            object.__setattr__(self, "storage", f"{self.group}/{self.plural}")

    @property
    def api_version(self) -> str:
        """``v1`` or ``apps/v1``."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def qualified(self) -> str:
        """``configmaps`` or ``deployments.apps``: the name of the type in messages."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def storage_group(self) -> str:
        """The group in the storage key and in validation errors. For events.k8s.io it is the core group."""
        return self.storage.partition("/")[0]

    @cached_property
    def schema(self) -> Schema | None:
        """The schema of the kind, None if it has none."""
        return self.schema_loader() if self.schema_loader else None

    def subresource(self, name: str) -> Subresource | None:
        """The subresource with that name, None if the type has none."""
        return next((sub for sub in self.subresources if sub.name == name), None)

    @cached_property
    def prefix(self) -> bytes:
        """The start of an encoded object: ``{"kind":…,"apiVersion":…,``."""
        return b'{"kind":"%s","apiVersion":"%s",' % (self.kind.encode(), self.api_version.encode())


class Registry:
    """Resource types by (group, version, plural). Groups and versions are in discovery order.

    One thread at a time may change it, with the cluster's lock. Any thread may read it without the lock.
    """

    def __init__(self, types: Iterable[ServedResource] = ()) -> None:
        self._types: dict[tuple[str, str, str], ServedResource] = {}
        self._by_kind: dict[tuple[str, str, str], ServedResource] = {}
        self._by_storage: dict[str, list[ServedResource]] = {}
        self._groups: dict[str, list[str]] = {"": []}
        self.revision = 0  # rises with every change, for caches of discovery and OpenAPI
        for resource_type in types:
            self.add(resource_type)

    def add(self, resource_type: ServedResource) -> None:
        """Serve a type. If a type with the same group, version and plural is served, the new type replaces it.

        The replacement is one step: every request finds either the old or the new type.
        """
        key = (resource_type.group, resource_type.version, resource_type.plural)
        before = self._types.get(key)
        self._types[key] = resource_type
        self._by_kind[resource_type.group, resource_type.version, resource_type.kind] = resource_type
        if before is resource_type:
            return
        if before is not None:
            self._forget(before)
        self._by_storage[resource_type.storage] = [*self.of_storage(resource_type.storage), resource_type]
        versions = self._groups.setdefault(resource_type.group, [])
        if resource_type.version not in versions:
            versions.append(resource_type.version)
            if resource_type.is_custom:
                versions.sort(key=version_priority)
        self.revision += 1

    def remove(self, resource_type: ServedResource) -> None:
        """Stop serving a type. A version or group that is left without types is removed too."""
        key = (resource_type.group, resource_type.version, resource_type.plural)
        if self._types.get(key) is not resource_type:
            return
        del self._types[key]
        self._forget(resource_type)
        if not any(group == key[0] and version == key[1] for group, version, _ in self._types):
            self._groups[key[0]].remove(key[1])
            if not self._groups[key[0]] and key[0]:
                del self._groups[key[0]]
        self.revision += 1

    def _forget(self, resource_type: ServedResource) -> None:
        if self.by_kind(resource_type.group, resource_type.version, resource_type.kind) is resource_type:
            del self._by_kind[resource_type.group, resource_type.version, resource_type.kind]
        storage = resource_type.storage
        self._by_storage[storage] = [kept for kept in self.of_storage(storage) if kept is not resource_type]

    def get(self, group: str, version: str, plural: str) -> ServedResource | None:
        return self._types.get((group, version, plural))

    def by_kind(self, group: str, version: str, kind: str) -> ServedResource | None:
        return self._by_kind.get((group, version, kind))

    def of(self, group: str, version: str) -> list[ServedResource]:
        """The types of a group and version in order of registration."""
        return [t for t in self if t.group == group and t.version == version]

    def of_storage(self, storage: str) -> list[ServedResource]:
        """The served types (one for each version) of a storage key."""
        return list(self._by_storage.get(storage, ()))

    def groups(self) -> list[str]:
        """The groups, the core group "" first."""
        return list(self._groups)

    def versions(self, group: str) -> list[str]:
        """The versions of a group, the preferred one first."""
        return list(self._groups.get(group, ()))

    def plural_of(self, name: str) -> str | None:
        """The plural of the resource with this singular or short name; None for other names."""
        types = list(self)
        if any(t.plural == name for t in types):
            return None
        return next((t.plural for t in types if name == t.singular or name in t.short_names), None)

    def __iter__(self) -> Iterator[ServedResource]:
        return iter(list(self._types.values()))


SHARDED = "ShardedListAndWatch"  # with this gate lists and watches obey shardSelector (KEP-5866, alpha in 1.36)
FEATURE_GATES = {SHARDED: False}  # the known feature gates with their defaults

MAX_HISTORY = 200_000  # maximum number of changes in the history of all types together
MAX_HISTORY_BYTES = 256 << 20  # maximum size of the encoded objects in these changes

_encode = msgspec.json.Encoder().encode
_decode = decoder_of(Object)


class _MetadataOnly(msgspec.Struct):
    metadata: msgspec.Raw


_decode_metadata = decoder_of(_MetadataOnly)


@dataclass(slots=True, eq=False)
class Version:
    """One object at one resourceVersion."""

    namespace: str
    name: str
    rv: int
    tail: bytes  # the encoded object without its first brace, kind and apiVersion: b'"metadata":{…}}'
    labels: dict[str, str]
    fields: dict[str, str]  # field selector values besides name and namespace
    uid: str
    owners: tuple[Object, ...]  # metadata.ownerReferences
    finalizers: tuple[str, ...]
    deleting: bool  # whether metadata.deletionTimestamp is set
    stored_as: str = ""  # the version in which a custom resource is stored; "" if all versions are the same
    partial: bool = False  # whether the next update adds missing values, even if it changes nothing else
    hashed: int | None = None  # the hash of the uid, once a shardSelector needed it
    converted: dict[Any, Version] | None = None  # for each API version's strategy, the object that the webhook returned
    shared: Object | None = None  # the object, once `read` was called

    @property
    def uid_hash(self) -> int:
        """The hash of the uid; a shardSelector selects objects by this hash."""
        if self.hashed is None:
            self.hashed = shard_hash(self.uid)
        return self.hashed

    @property
    def key(self) -> str:
        """``namespace/name``, or the name of a cluster-scoped object. Lists are sorted by these keys, as in etcd."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name

    def decode(self) -> Object:
        """A copy of the object without kind and apiVersion."""
        return _decode(b"{" + self.tail)

    def read(self) -> Object:
        """The object without kind and apiVersion, decoded once for all callers. Callers must not change it."""
        if self.shared is None:
            self.shared = self.decode()
        return self.shared

    def metadata(self) -> bytes:
        """The encoded metadata."""
        return bytes(_decode_metadata(b"{" + self.tail).metadata)


@dataclass(slots=True, eq=False)
class Change:
    """One write in the history."""

    rv: int
    old: Version | None
    new: Version
    deleted: bool
    left: Version | None = None  # `old` with this change's resourceVersion; made when a selector needs it

    def old_as_left(self) -> Version:
        """`old` with the change's resourceVersion, for a watch whose selector no longer matches the object."""
        if self.left is None:
            assert self.old is not None
            self.left = restamped(self.old, self.rv)
        return self.left


def make_version(obj: Object, rv: int, fields: dict[str, str], stored_as: str = "") -> Version:
    """Encode an object (with or without kind and apiVersion). Sets its resourceVersion, or removes it if `rv` is 0."""
    metadata = obj["metadata"]
    metadata.pop("resourceVersion", None)
    if rv:
        metadata["resourceVersion"] = str(rv)
    body = {key: value for key, value in obj.items() if key not in ("kind", "apiVersion")}
    return Version(metadata.get("namespace", ""), metadata["name"], rv, _encode(body)[1:], metadata.get("labels") or {},
                   fields, metadata.get("uid", ""), tuple(metadata.get("ownerReferences") or ()),
                   tuple(metadata.get("finalizers") or ()), "deletionTimestamp" in metadata, stored_as)


def restamped(version: Version, rv: int) -> Version:
    """The same object with another resourceVersion."""
    return make_version(version.decode(), rv, version.fields, version.stored_as)


@dataclass(slots=True, eq=False)
class Bucket:
    """The objects of one type, their sorted keys, and the type's history."""

    key: str
    start: int  # the resourceVersion at which the type was first served; a watch cannot start earlier
    objects: dict[str, Version] = field(default_factory=dict)
    keys: list[str] = field(default_factory=list)
    history: list[Change] = field(default_factory=list)
    # number of changes dropped from the front of `history`; cursors of watches count these changes too
    base: int = 0
    listeners: list[Callable[[], None]] = field(default_factory=list)
    ended: bool = False  # whether the type is no longer served

    def scan(self, namespace: str) -> Iterator[Version]:
        """The current objects of a namespace in key order; "" stands for all namespaces."""
        yield from slice_of(self.objects, self.keys, namespace)


def slice_of(objects: dict[str, Version], keys: list[str], namespace: str, start: str = "") -> Iterator[Version]:
    """Objects in key order, in one namespace or all; `start` is the lowest key (in a namespace: the lowest name)."""
    prefix = f"{namespace}/" if namespace else ""
    for index in range(bisect_left(keys, prefix + start), len(keys)):
        if not keys[index].startswith(prefix):
            return
        yield objects[keys[index]]


class ObjectTooLarge(Exception):
    """An object that is larger than etcd accepts."""


class Storage:
    """The buckets of all types, and the resourceVersion counter that orders all writes."""

    def __init__(self) -> None:
        self.rv = 1
        self.compacted = 0  # changes up to this resourceVersion are forgotten
        self.buckets: dict[str, Bucket] = {}
        self.observers: list[Callable[[Bucket, Change], None]] = []  # called for every change; must be quick
        self._history_size = 0
        self._history_bytes = 0

    def bucket(self, key: str, start: int = 0) -> Bucket:
        """The bucket of a type, created if missing."""
        found = self.buckets.get(key)
        if found is None:
            found = self.buckets[key] = Bucket(key, start)
        return found

    def get(self, key: str, namespace: str, name: str) -> Version | None:
        bucket = self.buckets.get(key)
        return bucket.objects.get(f"{namespace}/{name}" if namespace else name) if bucket else None

    def put(self, key: str, obj: Object, fields: dict[str, str], *, stored_as: str = "",
            max_bytes: int | None = None) -> Version:
        """Store an object, new or existing, with the next resourceVersion. Also sets this resourceVersion in `obj`.

        Raises ObjectTooLarge above `max_bytes`.
        """
        bucket = self.bucket(key)
        version = make_version(obj, self.rv + 1, fields, stored_as)
        if max_bytes is not None and len(version.tail) > max_bytes:
            raise ObjectTooLarge
        self.rv += 1
        old = bucket.objects.get(version.key)
        if old is None:
            insort(bucket.keys, version.key)
        bucket.objects[version.key] = version
        self._record(bucket, Change(self.rv, old, version, deleted=False))
        return version

    def delete(self, key: str, version: Version) -> Version:
        """Remove an object. Returns its last state with the resourceVersion of the deletion."""
        bucket = self.bucket(key)
        self.rv += 1
        gone = restamped(version, self.rv)
        del bucket.objects[version.key]
        del bucket.keys[bisect_left(bucket.keys, version.key)]
        self._record(bucket, Change(self.rv, version, gone, deleted=True))
        return gone

    def _record(self, bucket: Bucket, change: Change) -> None:
        bucket.history.append(change)
        self._history_size += 1
        self._history_bytes += len(change.new.tail)
        if self._history_size > MAX_HISTORY or self._history_bytes > MAX_HISTORY_BYTES:
            self.compact(self.compacted + (self.rv - self.compacted) // 2)  # the older half
        for observe in self.observers:
            observe(bucket, change)
        for notify in bucket.listeners:
            notify()

    def compact(self, rv: int) -> None:
        """Forget the changes up to `rv`, so that older snapshots and watches expire."""
        self.compacted = max(self.compacted, min(rv, self.rv))
        for bucket in self.buckets.values():
            count = bisect_left(bucket.history, self.compacted + 1, key=lambda change: change.rv)
            if count:
                self._history_size -= count
                self._history_bytes -= sum(len(change.new.tail) for change in bucket.history[:count])
                del bucket.history[:count]
                bucket.base += count

    def snapshot(self, key: str, rv: int) -> tuple[dict[str, Version], list[str]]:
        """The objects of a type as they were at `rv`, with their sorted keys; `rv` must not be compacted."""
        bucket = self.bucket(key)
        first = bisect_left(bucket.history, rv + 1, key=lambda change: change.rv)
        if first == len(bucket.history):
            return bucket.objects, bucket.keys
        objects = dict(bucket.objects)
        for change in reversed(bucket.history[first:]):
            if change.old is None:
                objects.pop(change.new.key, None)
            else:
                objects[change.old.key] = change.old
        return objects, sorted(objects)

    def cursor(self, bucket: Bucket, rv: int) -> int:
        """The cursor of a watch that has seen everything up to `rv`."""
        return bucket.base + bisect_left(bucket.history, rv + 1, key=lambda change: change.rv)

    def drop(self, key: str) -> None:
        """Drop a type that is no longer served. Its watches end once they have sent the recorded changes."""
        bucket = self.buckets.pop(key, None)
        if bucket is None:
            return
        self._history_size -= len(bucket.history)
        self._history_bytes -= sum(len(change.new.tail) for change in bucket.history)
        bucket.ended = True
        for notify in bucket.listeners:
            notify()

    def renew(self, key: str) -> None:
        """End a type's watches and keep its objects, because the type is served again.

        New watches cannot start at an earlier resourceVersion.
        """
        old = self.buckets.get(key)
        if old is None:
            return
        self.buckets[key] = Bucket(key, self.rv, old.objects, old.keys, old.history, old.base)
        old.ended = True
        for notify in old.listeners:
            notify()

    def dump(self) -> tuple[int, dict[str, dict[str, Version]]]:
        """The current state for `load`. Versions are shared, since they never change."""
        return self.rv, {key: dict(bucket.objects) for key, bucket in self.buckets.items()}

    def load(self, state: tuple[int, dict[str, dict[str, Version]]], *, rv: int | None = None) -> None:
        """Replace the state with a dumped one, without history. Watches end, and older resourceVersions expire.

        The server continues from `rv`, or from the dump's resourceVersion if that is higher. If `rv` is None, the
        server continues from the dump's resourceVersion, even if it is lower than the current one.
        """
        for key in list(self.buckets):
            self.drop(key)
        self.rv = state[0] if rv is None else max(rv, state[0])
        self.compacted = self.rv
        self._history_size = self._history_bytes = 0
        for key, objects in state[1].items():
            self.buckets[key] = Bucket(key, self.rv, dict(objects), sorted(objects))


Loopback = Callable[[HttpRequest, str], HttpResponse]
"""Answers a request of a cluster component (such as ``kube-controller-manager``), which may do everything. Raises
StatusError if the request is refused."""


class Cluster:
    """The state that all parts of a server share: objects, types, lock, clock, randomness. Use it within `locked`."""

    def __init__(self, clock: Clock, types: Iterable[ServedResource], loopback: Loopback, *,
                 seed: int | None = None) -> None:
        """An empty cluster that serves these types; `seed` makes uids and generated names reproducible."""
        self.clock = clock
        self.random = random.Random(seed)
        self.storage = Storage()
        self.registry = Registry(types)
        self.loopback = loopback
        self.controllers: frozenset[str] = frozenset()  # the names of the running controllers
        self.gates: frozenset[str] = frozenset()  # the enabled feature gates
        self.warns = False  # whether creating an object that nothing acts on returns a Warning
        self.turned_away = 0  # number of the cluster's own requests that were refused and may succeed later
        self._lock = threading.RLock()
        self._depth = 0
        self._callbacks: dict[Callable[[], None], None] = {}

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the lock. Callbacks that became due run once the lock is free, even if the block raises.

        They run after an error too, since a failed request may already have written something (a precondition can stop
        a deletecollection half-way).
        """
        callbacks: list[Callable[[], None]] = []
        try:
            with self._lock:
                self._depth += 1
                try:
                    yield
                finally:
                    self._depth -= 1
                    if self._depth == 0 and self._callbacks:
                        callbacks = list(self._callbacks)
                        self._callbacks.clear()
        finally:
            for callback in callbacks:
                callback()

    @contextmanager
    def released(self) -> Iterator[None]:
        """Release the lock completely, however often the calling thread holds it, and take it again at the end.

        Use it to wait for an outside service, which may call back into the server. State that was read before may be
        outdated afterwards. Does nothing if the lock is not held.
        """
        with self._lock:  # the depth is 0 unless the calling thread is within `locked`
            depth, self._depth = self._depth, 0
            callbacks = list(self._callbacks) if depth else []
            if depth:
                self._callbacks.clear()
        for _ in range(depth):
            self._lock.release()
        try:
            for callback in callbacks:
                callback()
            yield
        finally:
            for _ in range(depth):
                self._lock.acquire()
            if depth:
                self._depth = depth

    def call_unlocked(self, callback: Callable[[], None]) -> None:
        """Call `callback` once when the lock is free, however often it is passed. The caller must hold the lock."""
        self._callbacks[callback] = None

    def new_uid(self) -> str:
        return str(uuid.UUID(int=self.random.getrandbits(128), version=4))
