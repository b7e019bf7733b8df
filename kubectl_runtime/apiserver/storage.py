"""What is stored, and what was: one global resourceVersion, the current objects, a history of changes, and watchers.

Objects are kept as encoded JSON without ``kind`` and ``apiVersion`` (`Version.tail`), so that every reader decodes its
own copy, a list or a watch event is put together from bytes, and several API versions share one encoding. A `Version`
never changes. `Change` is one write; the changes of a type since the last compaction are its history: reading the past
undoes them, watches walk along them with a cursor of their own.

=============  ==================  =========================  ==================
write          `Change.old`        `Change.new`               watchers see
=============  ==================  =========================  ==================
create         None                the object                 ADDED
update         the object before   the object                 MODIFIED
delete         the object before   the object before, with    DELETED
                                   the deletion's version
=============  ==================  =========================  ==================

Thread safety: none of its own. The cluster's one lock is held around every call; `Version` and `Change` may be read
anywhere.

`Cluster`: what all parts of one server share: its objects and types, the lock over them, its clock, and chance.

One lock guards storage and registry: handlers and controllers hold it for a read or a write, never while something is
sent or a callback runs. What a change makes ready (watches) is called once the lock is free, see `locked`; a write that
asks a webhook lets it go meanwhile, see `released`.

`loopback` is the way back in: with it controllers, and handlers that write another object too, make requests of their
own (see loopback.py), so that every rule holds for them. The core, which answers them, gives it.

Which resource types the server serves: built-in kinds and those that CustomResourceDefinitions add at run time.

`ServedResource` is one served (group, version, plural); versions of one type share `storage` and differ in `version`.
Thread safety: the registry is changed and walked under the cluster's lock, `get` and `by_kind` are safe anywhere; a
`ServedResource` never changes.

`Column`: one column of a server-side table; the registry keeps those of a type, table.py makes rows of them.
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
from kubectl_runtime.apiserver.wire import HttpRequest, HttpResponse
from kubectl_runtime.core.base.clock import Clock
from kubectl_runtime.core.base.wire import decoder_of
from kubectl_runtime.core.meta.gvk import version_priority
from kubectl_runtime.core.meta.selectors import shard_hash

Object = dict[str, Any]
Cell = Callable[[Object, datetime], Any]
"""What a cell shows of an object at the time of a request."""


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table."""

    name: str
    cell: Cell
    type: str = "string"
    format: str = ""
    priority: int = 0
    description: str = ""

    def definition(self) -> Object:
        """The entry of ``columnDefinitions``."""
        return {"name": self.name, "type": self.type, "format": self.format,
                "description": self.description or self.name, "priority": self.priority}


ALL_VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")


@dataclass(frozen=True)
class Subresource:
    """A subresource as discovery shows it; group and version only where its kind is of another group (Scale)."""

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
    schema_loader: Callable[[], Schema] | None = None  # called at first use, so that start-up stays quick
    columns: tuple[Column, ...] = ()
    is_custom: bool = False
    storage: str = ""  # the key under which the objects are stored, shared by all versions; "" is "group/plural"
    storage_version_hash: str = ""
    terminating: bool = False  # its definition is being deleted: discovery names fewer verbs
    deprecation: str = ""  # the text of the Warning header that each request of a deprecated version gets

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
        """``configmaps`` or ``deployments.apps``: how messages name the type."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def storage_group(self) -> str:
        """The group under which the objects are stored: validation errors name that (core, for events.k8s.io)."""
        return self.storage.partition("/")[0]

    @cached_property
    def schema(self) -> Schema | None:
        """The schema of the kind, if there is one."""
        return self.schema_loader() if self.schema_loader else None

    def subresource(self, name: str) -> Subresource | None:
        """The subresource of that name, if the type has it."""
        return next((sub for sub in self.subresources if sub.name == name), None)

    @cached_property
    def prefix(self) -> bytes:
        """The start of an encoded object: ``{"kind":…,"apiVersion":…,``."""
        return b'{"kind":"%s","apiVersion":"%s",' % (self.kind.encode(), self.api_version.encode())


class Registry:
    """Resource types by (group, version, plural); groups and versions in the order in which discovery lists them."""

    def __init__(self, types: Iterable[ServedResource] = ()) -> None:
        self._types: dict[tuple[str, str, str], ServedResource] = {}
        self._by_kind: dict[tuple[str, str, str], ServedResource] = {}
        self._by_storage: dict[str, list[ServedResource]] = {}
        self._groups: dict[str, list[str]] = {"": []}
        self.revision = 0  # rises with every change, for caches of discovery and OpenAPI
        for resource_type in types:
            self.add(resource_type)

    def add(self, resource_type: ServedResource) -> None:
        """Serve a type, in place of one of the same group, version and plural."""
        key = (resource_type.group, resource_type.version, resource_type.plural)
        if key in self._types:
            self.remove(self._types[key])
        self._types[key] = resource_type
        self._by_kind[resource_type.group, resource_type.version, resource_type.kind] = resource_type
        self._by_storage.setdefault(resource_type.storage, []).append(resource_type)
        versions = self._groups.setdefault(resource_type.group, [])
        if resource_type.version not in versions:
            versions.append(resource_type.version)
            if resource_type.is_custom:
                versions.sort(key=version_priority)
        self.revision += 1

    def remove(self, resource_type: ServedResource) -> None:
        """Serve a type no longer; a version or group without types goes too."""
        key = (resource_type.group, resource_type.version, resource_type.plural)
        if self._types.get(key) is not resource_type:
            return
        del self._types[key]
        if self.by_kind(resource_type.group, resource_type.version, resource_type.kind) is resource_type:
            del self._by_kind[resource_type.group, resource_type.version, resource_type.kind]
        self._by_storage[resource_type.storage].remove(resource_type)
        if not any(group == key[0] and version == key[1] for group, version, _ in self._types):
            self._groups[key[0]].remove(key[1])
            if not self._groups[key[0]] and key[0]:
                del self._groups[key[0]]
        self.revision += 1

    def get(self, group: str, version: str, plural: str) -> ServedResource | None:
        """The type, or None."""
        return self._types.get((group, version, plural))

    def by_kind(self, group: str, version: str, kind: str) -> ServedResource | None:
        """The type of a kind, or None."""
        return self._by_kind.get((group, version, kind))

    def of(self, group: str, version: str) -> list[ServedResource]:
        """The types of a group and version, in order of registration."""
        return [t for t in self._types.values() if t.group == group and t.version == version]

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
        """The plural of a resource that is called by its singular or short name; None for what is none of these."""
        types = list(self)
        if any(t.plural == name for t in types):
            return None
        return next((t.plural for t in types if name == t.singular or name in t.short_names), None)

    def __iter__(self) -> Iterator[ServedResource]:
        return iter(list(self._types.values()))


SHARDED = "ShardedListAndWatch"  # lists and watches obey shardSelector (KEP-5866, alpha in 1.36)
FEATURE_GATES = {SHARDED: False}  # those that the server knows, and what they are by default

MAX_HISTORY = 200_000  # changes that are kept at most between compactions, over all types
MAX_HISTORY_BYTES = 256 << 20  # and bytes of encoded objects in them

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
    fields: dict[str, str]  # values for field selectors besides name and namespace
    uid: str
    owners: tuple[Object, ...]  # metadata.ownerReferences
    finalizers: tuple[str, ...]
    deleting: bool  # metadata.deletionTimestamp is set
    stored_as: str = ""  # the version of a custom resource that it is in; "": it is the same in all versions
    partial: bool = False  # the real server would store less, and the rest with the next update, even a void one
    hashed: int | None = None  # the hash of the uid, once a shardSelector has asked for it

    @property
    def uid_hash(self) -> int:
        """The hash by which a shardSelector divides objects by uid."""
        if self.hashed is None:
            self.hashed = shard_hash(self.uid)
        return self.hashed

    @property
    def key(self) -> str:
        """``namespace/name``, or the name: etcd's order of keys is the order of lists."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name

    def decode(self) -> Object:
        """A copy of the object without kind and apiVersion."""
        return _decode(b"{" + self.tail)

    def metadata(self) -> bytes:
        """The encoded metadata."""
        return bytes(_decode_metadata(b"{" + self.tail).metadata)


@dataclass(slots=True, eq=False)
class Change:
    """One write, as history keeps it."""

    rv: int
    old: Version | None
    new: Version
    deleted: bool
    left: Version | None = None  # `old` with this change's resourceVersion; made when a selector asks for it

    def old_as_left(self) -> Version:
        """The object before the change with the change's resourceVersion: what a selector that no longer matches sees.
        """
        if self.left is None:
            assert self.old is not None
            self.left = restamped(self.old, self.rv)
        return self.left


def make_version(obj: Object, rv: int, fields: dict[str, str], stored_as: str = "") -> Version:
    """Encode an object (with or without kind and apiVersion); sets its metadata.resourceVersion, or drops it if `rv` is
    0."""
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
    """The objects of one type, sorted keys, and the type's history."""

    key: str
    start: int  # the resourceVersion at which the type came to be: a watch cannot start before
    objects: dict[str, Version] = field(default_factory=dict)
    keys: list[str] = field(default_factory=list)
    history: list[Change] = field(default_factory=list)
    # how many changes were dropped from the front of `history`: watchers' cursors count from the beginning
    base: int = 0
    listeners: list[Callable[[], None]] = field(default_factory=list)
    ended: bool = False  # the type is no longer served

    def scan(self, namespace: str) -> Iterator[Version]:
        """The current objects of a namespace, or of all ("") in order."""
        yield from slice_of(self.objects, self.keys, namespace)


def slice_of(objects: dict[str, Version], keys: list[str], namespace: str, start: str = "") -> Iterator[Version]:
    """Objects in the order of their keys, in one namespace or all of them; `start` is the lowest key within these."""
    prefix = f"{namespace}/" if namespace else ""
    for index in range(bisect_left(keys, prefix + start), len(keys)):
        if not keys[index].startswith(prefix):
            return
        yield objects[keys[index]]


class ObjectTooLarge(Exception):
    """An object that the real server's database would not take."""


class Storage:
    """All buckets, and the counter that orders every write."""

    def __init__(self) -> None:
        self.rv = 1
        self.compacted = 0  # changes up to this resourceVersion are forgotten
        self.buckets: dict[str, Bucket] = {}
        self.observers: list[Callable[[Bucket, Change], None]] = []  # see every change; must be quick
        self._history_size = 0
        self._history_bytes = 0

    def bucket(self, key: str, start: int = 0) -> Bucket:
        """The bucket of a type, made if missing."""
        found = self.buckets.get(key)
        if found is None:
            found = self.buckets[key] = Bucket(key, start)
        return found

    def get(self, key: str, namespace: str, name: str) -> Version | None:
        """The current version of an object."""
        bucket = self.buckets.get(key)
        return bucket.objects.get(f"{namespace}/{name}" if namespace else name) if bucket else None

    def put(self, key: str, obj: Object, fields: dict[str, str], *, stored_as: str = "",
            max_bytes: int | None = None) -> Version:
        """Store a new object or a new version of one under the next resourceVersion, which is set in `obj` too.

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
        """Remove an object; the answer is its last state with the resourceVersion of the deletion."""
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
            self.compact(self._halfway())
        for observe in self.observers:
            observe(bucket, change)
        for notify in bucket.listeners:
            notify()

    def _halfway(self) -> int:
        """A resourceVersion in the middle of what history holds."""
        return self.compacted + (self.rv - self.compacted) // 2

    def compact(self, rv: int) -> None:
        """Forget the changes up to `rv`: older snapshots and watches have expired then."""
        self.compacted = max(self.compacted, min(rv, self.rv))
        for bucket in self.buckets.values():
            count = bisect_left(bucket.history, self.compacted + 1, key=lambda change: change.rv)
            if count:
                self._history_size -= count
                self._history_bytes -= sum(len(change.new.tail) for change in bucket.history[:count])
                del bucket.history[:count]
                bucket.base += count

    def snapshot(self, key: str, rv: int) -> tuple[dict[str, Version], list[str]]:
        """The objects of a type as they were at `rv` (which must not be compacted), with their sorted keys."""
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
        """Where a watch that has seen everything up to `rv` goes on."""
        return bucket.base + bisect_left(bucket.history, rv + 1, key=lambda change: change.rv)

    def drop(self, key: str) -> None:
        """The type is gone: its watches end after what is recorded."""
        bucket = self.buckets.pop(key, None)
        if bucket is None:
            return
        self._history_size -= len(bucket.history)
        self._history_bytes -= sum(len(change.new.tail) for change in bucket.history)
        bucket.ended = True
        for notify in bucket.listeners:
            notify()

    def renew(self, key: str) -> None:
        """The type is served anew: its watches end, and none can begin at an earlier resourceVersion."""
        old = self.buckets.get(key)
        if old is None:
            return
        self.buckets[key] = Bucket(key, self.rv, old.objects, old.keys, old.history, old.base)
        old.ended = True
        for notify in old.listeners:
            notify()

    def dump(self) -> tuple[int, dict[str, dict[str, Version]]]:
        """The current state, for `load`; versions are shared, since they never change."""
        return self.rv, {key: dict(bucket.objects) for key, bucket in self.buckets.items()}

    def load(self, state: tuple[int, dict[str, dict[str, Version]]], *, rv: int | None = None) -> None:
        """Put a dumped state in place without history: watches end, older resourceVersions have expired.

        `rv` is the resourceVersion to go on from, at least the dump's own; None takes that, which may move the server
        back in time.
        """
        for key in list(self.buckets):
            self.drop(key)
        self.rv = state[0] if rv is None else max(rv, state[0])
        self.compacted = self.rv
        self._history_size = self._history_bytes = 0
        for key, objects in state[1].items():
            self.buckets[key] = Bucket(key, self.rv, dict(objects), sorted(objects))


Loopback = Callable[[HttpRequest, str], HttpResponse]
"""Answers the request of a component of the cluster (``kube-controller-manager``), which may do everything; raises
StatusError for what is refused."""


class Cluster:
    """See the module. `locked` is for any thread; storage and registry say what holds for them."""

    def __init__(self, clock: Clock, types: Iterable[ServedResource], loopback: Loopback, *,
                 seed: int | None = None) -> None:
        """An empty cluster that serves these types; `seed` makes uids and generated names reproducible."""
        self.clock = clock
        self.random = random.Random(seed)
        self.storage = Storage()
        self.registry = Registry(types)
        self.loopback = loopback
        self.controllers: frozenset[str] = frozenset()  # the names of those that run
        self.gates: frozenset[str] = frozenset()  # the feature gates that are on
        self.warns = False  # the creation of what nothing acts on is answered with a Warning
        self.turned_away = 0  # how many requests of the cluster's own components webhooks have refused
        self._lock = threading.RLock()
        self._depth = 0
        self._callbacks: dict[Callable[[], None], None] = {}

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the lock; callbacks that became due meanwhile run after it is free, also when the block raises: a
        refused request may have written before (a deletion of a collection that a precondition stops half-way)."""
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
        """Let the lock go, however deep the calling thread holds it, and take it again: for a wait for somebody else,
        who may come back in. What was read before may be old afterwards. Nothing happens where it is not held."""
        with self._lock:  # whoever has it sees its own depth: 0, unless it is within `locked`
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
        """Call back once the lock, which the caller holds, is free; the same callback once only."""
        self._callbacks[callback] = None

    def new_uid(self) -> str:
        """A fresh uid."""
        return str(uuid.UUID(int=self.random.getrandbits(128), version=4))
