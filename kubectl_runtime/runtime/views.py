"""From records to what user code gets: a fresh reader each time, and what `modify` leaves of an object."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar, cast

from kubectl_runtime.core.invalid import InvalidObject
from kubectl_runtime.core.record import Record
from kubectl_runtime.runtime.events import Event, with_obj
from kubectl_runtime.runtime.usercode import guarded, name_of

K = TypeVar("K")

Modify: TypeAlias = Callable[[Any], None]
"""Changes a reader in place; what is left of the object is what gets stored."""


def reader_of(kind: type[K]) -> Callable[[Record], K]:
    """What makes readers of `kind`; a record whose head did not decode becomes an `InvalidObject`."""
    from_record: Callable[[Record], K] = cast(Any, kind).from_record  # kinds are resource classes

    def read(record: Record) -> K:
        if record.problem is not None:
            return cast(K, InvalidObject(record))  # it flows like one: only its content raises what is wrong
        return from_record(record)

    return read


def modified(event: Event[Record], modify: Modify, read: Callable[[Record], Any]) -> Event[Record]:
    """The event with its record pruned by `modify`; as it was when that raises (reported) or the object is invalid."""

    return with_obj(event, lambda record: record if record.problem is not None
                    else pruned(record, read(record), modify))


def pruned(record: Record, obj: Any, modify: Modify) -> Record:
    """What `modify` leaves of `record`, which it is shown as the reader `obj`; `record` when it raises (reported)."""

    def prune() -> Record:
        modify(obj)
        left: Record = obj.to_record(partial=True)
        return left

    return guarded(record, lambda: f"{name_of(modify)}, given {record.ref},", prune)
