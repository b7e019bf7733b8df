"""`AppliedMemory`: the last apply of each child by this process, shared by all users of a client.

    our apply is answered                   `remember`: digests of the desired state, of our managedFields entry and
                                            of the values of our fields; the uid and the version; no content
    another write of the child by this      the memory of the child counts as outdated: the next `ensure` applies the
    process, under the same field manager   child
    the Lease is lost                       everything is forgotten
    shards are lost                         the children of the owners in these shards are forgotten
    more than `MOST` children               the least recently used child is forgotten

The memory is not stored on the server, so a new process first sends one apply for each child, even if the child is up
to date.

`seen_of` and `values_of` extract from records what `decide` needs.
"""
from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec
from msgspec.structs import replace

from kubectl_runtime.core.base.plain import Key
from kubectl_runtime.core.base.threads import ForkSafeLock
from kubectl_runtime.core.base.wire import decoder_of
from kubectl_runtime.core.codec.views import Record, plain_object
from kubectl_runtime.core.meta.gvk import ApiResource, ObjectRef
from kubectl_runtime.core.meta.problems import DECODE_FAILURES, DecodeError
from kubectl_runtime.core.objects.resource import applied_fields
from kubectl_runtime.runtime.children.decision import Applied, Entry, Seen
from kubectl_runtime.runtime.store.overlay import number_of

if TYPE_CHECKING:
    from kubectl_runtime.client.api.client import Client, Write

MOST = 100_000
"""The most children that are remembered per client, about 0.5 KB each."""

ChildKey: TypeAlias = tuple[str, str, str | None, str, str]
"""Group, kind, namespace, name and field manager."""


def child_key(resource: ApiResource, namespace: str | None, name: str, manager: str) -> ChildKey:
    """The key under which a child is remembered."""
    return resource.group, resource.kind, namespace, name, manager


class AppliedMemory:
    """The last apply of each child. Safe to use from any thread; nothing blocks."""

    def __init__(self) -> None:
        self._lock = ForkSafeLock()
        self._applied: OrderedDict[ChildKey, Applied] = OrderedDict()
        self.kinds: dict[tuple[str, str], ApiResource] = {}
        """The kinds that discovery found for children, by apiVersion and kind."""
        self._warned: set[tuple[str, str, str]] = set()
        self._is_listening = False

    def __len__(self) -> int:
        return len(self._applied)

    def is_first_warning(self, manager: str, resource: ApiResource) -> bool:
        """Whether this is the first call for this manager and kind: a problem of a kind is logged once."""
        key = manager, resource.group, resource.kind
        with self._lock:
            if key in self._warned:
                return False
            self._warned.add(key)
        return True

    def get(self, key: ChildKey) -> Applied | None:
        """The last apply of this child; None if there was no apply or the child was forgotten."""
        with self._lock:
            if (found := self._applied.get(key)) is not None:
                self._applied.move_to_end(key)
        return found

    def remember(self, key: ChildKey, applied: Applied) -> None:
        """Remember an apply that the server has answered, unless a later write of the child is already known."""
        with self._lock:
            before = self._applied.get(key)
            if before is not None and not before.digest and before.uid == applied.uid and (
                    number_of(before.version) or 0) > (number_of(applied.version) or 0):
                return
            self._applied[key] = applied
            self._applied.move_to_end(key)
            while len(self._applied) > MOST:
                self._applied.popitem(last=False)

    def wrote(self, write: Write) -> None:
        """For `Client.on_write`: mark the memory of a child as outdated, because this process has written the child.

        If the write is an apply by `ensure`, `ensure` then calls `remember`, which replaces the outdated memory.
        """
        if not write.manager or write.subresource or not self._applied:
            return
        ref = write.ref
        key = child_key(ref.resource, ref.namespace, ref.name, write.manager)
        with self._lock:
            if (before := self._applied.get(key)) is not None:
                self._applied[key] = replace(before, digest=b"", uid=write.uid, version=write.resource_version)

    def forget(self, of: Callable[[Key], bool] | None = None) -> None:
        """Forget all children or, if `of` is passed, the children whose owner's key satisfies `of`."""
        with self._lock:
            if of is None:
                self._applied.clear()
                return
            for key in [key for key, applied in self._applied.items() if of(applied.owner)]:
                del self._applied[key]

    def listen(self, client: Client) -> None:
        """Observe the writes of `client` and of clients derived from it. Repeated calls have no effect."""
        with self._lock:
            begins, self._is_listening = not self._is_listening, True
        if begins:
            client.on_write(self.wrote)


def memory_of(client: Client) -> AppliedMemory:
    """The memory that all users of a client, and of clients derived from it, share."""
    memory = client.shared.get(AppliedMemory)
    if not memory._is_listening:
        memory.listen(client)
    return memory


class _Metadata(msgspec.Struct, rename="camel"):
    managed_fields: tuple[Entry, ...] | None = None


class _Object(msgspec.Struct):
    metadata: _Metadata


class _Event(msgspec.Struct):
    object: _Object


_object, _event = decoder_of(_Object), decoder_of(_Event)


def seen_of(record: Record, *, whole_truth: bool = False) -> Seen | None:
    """The state of a record's object. None if the record lacks managedFields because they were not requested or not
    stored. With `whole_truth`, a record without managedFields means that the object has none."""
    if record.problem is not None or not record.raw:
        return None
    try:
        decoded: Any = _event(record.raw).object if record.enveloped else _object(record.raw)
    except DECODE_FAILURES:
        return None
    entries: tuple[Entry, ...] | None = decoded.metadata.managed_fields
    if entries is None and not whole_truth:
        return None
    head = record.head
    return Seen(head.uid, head.resource_version, head.deletion_timestamp is not None, head.owner_references or (),
                entries or ())


_sorted = msgspec.json.Encoder(order="sorted").encode


def applied_of(record: Record, manager: str) -> dict[str, Any]:
    """The fields that `manager` has applied to a whole object, with their values; empty if there are none. Raises
    DecodeError."""
    content = plain_object(record.raw, record.enveloped, ObjectRef(record.resource, record.name))
    return applied_fields(content, manager) or {}


def values_of(record: Record, manager: str) -> bytes | None:
    """A digest of the values of the fields that `manager` has applied to a whole object; None if the object does not
    decode."""
    try:
        return blake2b(_sorted(applied_of(record, manager)), digest_size=16).digest()
    except (*DECODE_FAILURES, DecodeError):
        return None
