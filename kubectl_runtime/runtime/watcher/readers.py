"""From records to what user code gets: a fresh reader each time, what `modify` leaves of an object, and whether its
content decodes."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import msgspec

from kubectl_runtime.core.base.clock import Clock
from kubectl_runtime.core.base.errors import RequestError
from kubectl_runtime.core.base.guard import Guard
from kubectl_runtime.core.base.guarded_log import guarded_logger
from kubectl_runtime.core.codec.prune import Modify, pruned
from kubectl_runtime.core.codec.record import Record
from kubectl_runtime.core.meta.problems import DecodeError, Problem
from kubectl_runtime.core.objects.invalid import InvalidObject
from kubectl_runtime.core.objects.partial import PartialView
from kubectl_runtime.runtime.usercode import name_of
from kubectl_runtime.runtime.watcher.event import Event, with_obj

log = guarded_logger(__name__)

K = TypeVar("K")


def reader_of(kind: type[K]) -> Callable[[Record], K]:
    """What makes readers of `kind`; a record whose head did not decode becomes an `InvalidObject`."""
    from_record: Callable[[Record], K] = cast(Any, kind).from_record  # kinds are resource classes

    def read(record: Record) -> K:
        if record.problem is not None:
            return cast(K, InvalidObject(record))  # it flows like one: only its content raises what is wrong
        return from_record(record)

    return read


def record_of(obj: Any) -> Record:
    """The record behind a reader; a record is its own. Raises RequestError for a view, which has none."""
    if isinstance(obj, PartialView):
        raise RequestError(f"{obj!r} is all that is kept of its object, and read-only: it can be neither modified nor "
                           "stored by a reflector; watch_store(api, WatcherConfig(fields=View)) stores views")
    record: Record = obj if isinstance(obj, Record) else obj.record
    return record


class Modifier:
    """What the `modify` of a watch's user makes of its objects. Safe to use from any thread."""

    def __init__(self, modify: Modify, read: Callable[[Record], Any], clock: Clock) -> None:
        self._modify = modify
        self._read = read
        self._guard = Guard(name_of(modify), clock=clock)

    def __call__(self, event: Event[Record]) -> Event[Record]:
        """The event with its record pruned; as it was when that raises (reported) or the object is invalid."""
        return with_obj(event, self._pruned)

    def _pruned(self, record: Record) -> Record:
        return self._guard.call(record, lambda: str(record.ref), lambda: pruned(self._read(record), self._modify))


def modifier_of(modify: Modify | None, kind: type[Any], clock: Clock) -> Modifier | None:
    """The Modifier of a watch of `kind`, if there is a `modify`. Raises RequestError for views, which are read-only."""
    if modify is None:
        return None
    if issubclass(kind, PartialView):
        raise RequestError(f"modify={name_of(modify)}: views are read-only: let {kind.__name__} declare what is to be "
                           "kept, or watch whole objects")
    return Modifier(modify, reader_of(kind), clock)


def validated(event: Event[Record], read: Callable[[Record], Any]) -> Event[Record]:
    """The event with a record that has a `problem` if what its class declares does not decode, which is logged."""

    def check(record: Record) -> Record:
        validate = getattr(read(record), "validate", None) if record.problem is None else None
        if validate is None:  # a view of fields was decoded when it came
            return record
        try:
            validate()
        except DecodeError as error:
            log.warning("%s at version %s: %s", record.resource.full_name, record.resource_version, error)
            return msgspec.structs.replace(record, problem=Problem(error.path, error.problem))
        return record

    return with_obj(event, check)
