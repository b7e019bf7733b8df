"""`PredicateCache`: a predicate for a plain stream, which tells no state before.

It remembers the last state of each object, in the form in which stores hold it: shared with a store that holds the same
state, and safe from what is done to the objects that flow. Bounded: it forgets an object when its deletion is seen,
those that are missing from a complete list, those not seen for `ttl` seconds, and beyond `max_size` the one that was
not seen for longest; what is forgotten passes again. For one thread at a time.
"""
from __future__ import annotations

from typing import Any

from cachetools import TTLCache

from kubectl_runtime.core.base.clock import SYSTEM_CLOCK, Clock, Duration, seconds
from kubectl_runtime.core.base.keys import Key, key_of
from kubectl_runtime.core.codec.record import Record
from kubectl_runtime.core.objects.invalid import InvalidObject
from kubectl_runtime.runtime.triggers.predicates import ObjectEvent, Predicate
from kubectl_runtime.runtime.watcher.event import Apply, Delete, Event, Init, InitApply, InitDone

TTL = 3600.0
"""Seconds without being seen after which an object passes again (kube-rs's number)."""

MAX_SIZE = 1_000_000
"""Objects that are remembered at most."""

_Seen = tuple[Key, str]
"""The uid too: a namesake that was created later is seen for the first time."""


class PredicateCache:
    """Remembers the last state of each object for one filter. For one thread at a time."""

    def __init__(self, predicate: Predicate[Any], *, ttl: Duration = TTL, max_size: int = MAX_SIZE,
                 clock: Clock = SYSTEM_CLOCK) -> None:
        self._predicate = predicate
        self._seen: TTLCache[_Seen, Any] = TTLCache(max_size, seconds(ttl), timer=clock.monotonic)
        self._listed: set[_Seen] | None = None

    def __len__(self) -> int:
        """How many objects are remembered."""
        return len(self._seen)

    def passes(self, event: Event[Any]) -> bool:
        """Whether this event is worth passing on; remembers what it was about. Events without an object pass."""
        if isinstance(event, Apply | InitApply):
            return self.passes_object(event.obj)
        if isinstance(event, Delete):
            old = _read(self._seen.pop(_key(event.obj), None), event.obj)
            return self._predicate.passes(ObjectEvent(event.obj, old, deleted=True))
        if isinstance(event, Init):
            self._listed = set()
        elif isinstance(event, InitDone):
            self._forget_vanished()
        return True

    def passes_object(self, obj: Any) -> bool:
        """As `passes`, for streams of objects, where a deletion shows as a deletionTimestamp or not at all."""
        key = _key(obj)
        if self._listed is not None:
            self._listed.add(key)
        old = _read(self._seen.get(key), obj)
        self._seen[key] = getattr(obj, "record", None) or obj
        return self._predicate.passes(ObjectEvent(obj, old))

    def _forget_vanished(self) -> None:
        listed, self._listed = self._listed, None
        if listed is not None:
            for key in [key for key in self._seen if key not in listed]:
                self._seen.pop(key, None)


def _key(obj: Any) -> _Seen:
    return key_of(obj.namespace, obj.name), obj.uid  # a view has no ref


def _read(remembered: Any, like: Any) -> Any:
    """What is remembered as an object again, of the class of `like`."""
    if not isinstance(remembered, Record):
        return remembered
    if remembered.problem is not None or isinstance(like, InvalidObject):
        return None
    return type(like).from_record(remembered)
