"""Predicates: which changes of an object are worth a run.

A predicate gives the *value* of an object that it watches, or None when it has no opinion; the filter lets an object
pass when its value is another than the last one seen. So `generation` hides changes of status.

    generation          `metadata.generation`; no opinion where the kind has none
    resource_version    any change at all (hides what a list repeats)
    labels, annotations, finalizers
    a.combine(b)        passes when either value changes
    a.fallback(b)       b's value where a has no opinion

What always passes, because missing it does harm: an object without any value, a real deletion, a change of
`metadata.deletionTimestamp` (it comes without a new generation), a new object of the same name (the uid is part of the
key), one that could not be decoded, and one that was not seen for the time-to-live.

`PredicateCache` decides. It remembers a hash per object, forgets an object when it is deleted, drops those that are
missing from a complete list, and those not seen for `ttl` seconds; `max_size` bounds it in any case. For one thread
at a time.
"""
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any

from cachetools import TTLCache

from kubectl_runtime.core.base.clock import SYSTEM_CLOCK, Clock, Duration, seconds
from kubectl_runtime.core.base.keys import Key
from kubectl_runtime.core.objects.invalid import InvalidObject
from kubectl_runtime.runtime.usercode import guarded, name_of
from kubectl_runtime.runtime.watcher.event import Apply, Delete, Event, Init, InitApply, InitDone

TTL = 3600.0
"""Seconds without being seen after which an object passes again (kube-rs's number)."""

MAX_SIZE = 1_000_000
"""Objects that are remembered at most; beyond, the one that was not seen for longest passes again."""


@dataclass(frozen=True, slots=True)
class Predicate:
    """`value(obj)`: something hashable, or None for no opinion. Must depend on nothing but the object."""

    value: Callable[[Any], Hashable | None]

    def combine(self, other: "Predicate") -> "Predicate":
        """Passes when this or the other value changes; no opinion when neither has one."""
        first, second = self.value, other.value

        def both(obj: Any) -> Hashable | None:
            values = first(obj), second(obj)
            return None if values == (None, None) else values

        return Predicate(both)

    def fallback(self, other: "Predicate") -> "Predicate":
        """The other's value where this one has no opinion."""
        first, second = self.value, other.value

        def either(obj: Any) -> Hashable | None:
            value = first(obj)
            return second(obj) if value is None else value

        return Predicate(either)


def _items(mapping: Any) -> Hashable:
    return tuple(sorted(mapping.items()))


# Module names on purpose: `predicates.generation`. (That is why `from __future__ import annotations` is not used here.)
generation = Predicate(lambda obj: obj.generation)
resource_version = Predicate(lambda obj: obj.resource_version or None)
labels = Predicate(lambda obj: _items(obj.labels))
annotations = Predicate(lambda obj: _items(obj.annotations))
finalizers = Predicate(lambda obj: tuple(obj.finalizers))
_Seen = tuple[Key, str]
"""The uid too: a namesake that was created later is seen for the first time."""


class PredicateCache:
    """The memory of one filter."""

    def __init__(self, predicate: Predicate, *, ttl: Duration = TTL, max_size: int = MAX_SIZE,
                 clock: Clock = SYSTEM_CLOCK) -> None:
        self._value = predicate.value
        self._seen: TTLCache[_Seen, int] = TTLCache(max_size, seconds(ttl), timer=clock.monotonic)
        self._listed: set[_Seen] | None = None

    def __len__(self) -> int:
        """How many objects are remembered."""
        return len(self._seen)

    def passes(self, event: Event[Any]) -> bool:
        """Whether this event is worth passing on; remembers what it was about. Events without an object pass."""
        if isinstance(event, Apply | InitApply):
            return self._changed(event.obj)
        if isinstance(event, Delete):
            self._seen.pop(_key(event.obj), None)
        elif isinstance(event, Init):
            self._listed = set()
        elif isinstance(event, InitDone):
            self._forget_vanished()
        return True

    def passes_object(self, obj: Any) -> bool:
        """As `passes`, for streams of objects, where a deletion shows as a deletionTimestamp or not at all."""
        return self._changed(obj)

    def _changed(self, obj: Any) -> bool:
        key = _key(obj)
        if self._listed is not None:
            self._listed.add(key)
        if isinstance(obj, InvalidObject):
            return True
        seen = guarded(None, self._named, self._hash, obj)
        if seen is None:
            return True
        before = self._seen.get(key)
        self._seen[key] = seen
        return before != seen

    def _hash(self, obj: Any) -> int | None:
        """What is remembered of `obj`; None when the predicate has no opinion."""
        value = self._value(obj)
        return None if value is None else hash((value, _deletion(obj)))

    def _named(self, obj: Any) -> str:
        return f"predicate {name_of(self._value)}, given {obj!r},"

    def _forget_vanished(self) -> None:
        listed, self._listed = self._listed, None
        if listed is not None:
            for key in [key for key in self._seen if key not in listed]:
                self._seen.pop(key, None)


def _key(obj: Any) -> _Seen:
    return obj.ref.key, obj.uid


def _deletion(obj: Any) -> object:
    """The deletionTimestamp as it came: text in the head of a received object, which need not be parsed."""
    record = getattr(obj, "record", None)
    return record.head.deletion_timestamp if record is not None else obj.deletion_timestamp
