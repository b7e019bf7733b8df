"""Making stored objects smaller: what `modify=` leaves of one.

    modify                 what is kept                        may it replace the whole object?
    strip_managed_fields   the bytes without managedFields     yes: a write without them keeps the server's
    any other function     what it left in the reader it got   no: the record is partial
"""
from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeAlias

import msgspec
import msgspec.structs

from kubectl_runtime.core.base.building import decoder_of
from kubectl_runtime.core.codec.record import Record
from kubectl_runtime.core.meta.problems import DECODE_FAILURES

Modify: TypeAlias = Callable[[Any], object]
"""Changes a reader in place; what is left of the object is what gets stored."""


class Prunable(Protocol):
    """A reader of an object, as every resource class makes them."""

    @property
    def record(self) -> Record | None:
        """What was received; None for an object that was made here."""

    def to_record(self, *, partial: bool = False) -> Record:
        """A record of the object as it is now; `partial` marks that parts were taken away."""


def pruned(obj: Prunable, modify: Modify) -> Record:
    """What `modify` leaves of the object behind this reader. An object whose metadata did not decode is not shown to
    it.

    Raises what `modify` raises; the reader may be half changed then.
    """
    record = obj.record
    if record is not None and record.problem is not None:
        return record
    if modify is strip_managed_fields:
        return _stripped(obj.to_record())
    modify(obj)
    return obj.to_record(partial=True)


class _Metadata(msgspec.Struct, rename="camel"):
    managed_fields: msgspec.Raw = msgspec.Raw()


class _Object(msgspec.Struct):
    metadata: _Metadata


class _Event(msgspec.Struct):
    object: _Object


_object = decoder_of(_Object)
_event = decoder_of(_Event)
_KEY = b'"managedFields":'


def strip_managed_fields(obj: Any) -> Any:
    """Drop the managedFields of stored objects, often half of their metadata; to be given as `modify=`.

    Call it within your own `modify` function to take them off the object. Of a `Record` it returns one without the
    bytes of its managedFields, the same when it has none, and decodes nothing else.

    >>> maps = Api.namespaced(client, ConfigMap, "default")
    >>> with watch_store(maps, modify=strip_managed_fields) as lean:
    ...     lean.wait_until_ready(10)
    ...     lean.get("settings", "default").metadata.managed_fields
    """
    if isinstance(obj, Record):
        return _stripped(obj)
    if obj.metadata.managed_fields is not None:
        obj.metadata.managed_fields = None
    return obj


def _stripped(record: Record) -> Record:
    if record.problem is not None or not record.raw:
        return record
    try:
        found: Any = _event(record.raw).object if record.enveloped else _object(record.raw)
    except DECODE_FAILURES:
        return record
    raw = _cut(record.raw, bytes(found.metadata.managed_fields))
    return record if raw is None else msgspec.structs.replace(record, raw=raw)


def _cut(raw: bytes, value: bytes) -> bytes | None:
    """`raw` without `"managedFields":value` and one comma beside it; None when it is not written just so."""
    member = _KEY + value
    at = raw.find(member)
    if not value or at < 0 or raw.count(b'"managedFields"') > 1:  # another one: which would be cut is not certain
        return None
    end = at + len(member)
    if raw[at - 1:at] == b",":
        return raw[:at - 1] + raw[end:]
    return raw[:at] + (raw[end + 1:] if raw[end:end + 1] == b"," else raw[end:])
