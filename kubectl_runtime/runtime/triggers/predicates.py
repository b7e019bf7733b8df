"""Predicates: which changes of an object lead to a run.

    generation          `metadata.generation` changed; no opinion if the kind has no generation
    resource_version    any change at all (drops unchanged objects that a list repeats)
    labels, annotations, finalizers    this part of the metadata changed
    value(fn)           the result of `fn(obj)` changed; no opinion if it is None before and after
    selector("app=web") the labels match now, or matched before
    when(fn)            only `fn(ObjectEvent)` decides, including deletions
    p.combine(q)        p passes, or q passes
    p.fallback(q)       p; if p has no opinion, q
    p & q               both pass

Values are compared by `==` and by type: 1 is not True. Some changes pass every value predicate, because missing them
would do harm: a new object, another uid, a change of `metadata.deletionTimestamp` (which does not change the
generation), and a deletion. An object that could not be decoded passes, and the predicate is not called. If a predicate
raises, the error is logged and the object passes. A predicate without an opinion passes.

In a controller the previous state comes from the store. `PredicateCache` is for plain streams.
"""
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import msgspec

from kubectl_runtime.core.base.guard import Guard, check_callback, name_of, not_awaitable
from kubectl_runtime.core.base.wire import is_record_type, wire_names
from kubectl_runtime.core.meta.selectors import LabelSelection, Selector
from kubectl_runtime.core.objects.partial import InvalidObject
from kubectl_runtime.runtime.watch.event import Apply, Delete, InitApply

K = TypeVar("K")


class ObjectEvent(msgspec.Struct, Generic[K], frozen=True):
    """A change of an object, as predicates and mappers receive it.

    `obj` is the object's state now, or its last state if it was `deleted`. `old` is the state before the change; None
    if unknown.

    >>> event = ObjectEvent(ConfigMap(name="a", data={"k": "2"}), ConfigMap(name="a", data={"k": "1"}))
    >>> event.obj.data != event.old.data, event.deleted
    (True, False)
    """

    obj: K
    old: K | None = None
    deleted: bool = False


Verdict = Callable[[ObjectEvent[Any]], bool | None]
"""Whether an event leads to a run; None means no opinion."""


@dataclass(frozen=True, slots=True)
class Predicate(Generic[K]):
    """Decides which changes of an object lead to a run.

    Predicates are made by the functions of `predicates` and combined by `&`, `combine` and `fallback`. A predicate is
    immutable, and its function must depend only on the event.

    >>> changed = predicates.generation.combine(predicates.labels)
    >>> controller = Controller(Api.all(client, Deployment), predicate=changed & predicates.selector("app=web"))
    """

    verdict: Callable[[ObjectEvent[K]], bool | None]
    name: str
    _guard: Guard = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_callback("a Predicate has a function, which", self.verdict, "event")
        # The guard uses real time, since controllers on different simulated clocks may share a predicate.
        object.__setattr__(self, "_guard", Guard(f"predicate {self.name}"))

    def passes(self, event: ObjectEvent[K]) -> bool:
        """Whether `event` leads to a run. Never raises: an exception of the function is logged, and the event passes.
        """
        if isinstance(event.obj, InvalidObject):
            return True
        if isinstance(event.old, InvalidObject):
            event = ObjectEvent(event.obj, None, event.deleted)
        return self._guard.call(None, _described, self.verdict, event) is not False

    def combine(self, other: "Predicate[K]") -> "Predicate[K]":
        """A predicate that passes when this or the other predicate passes. It has no opinion when neither of the two
        has an opinion."""
        first, second = self.verdict, other.verdict

        def either(event: ObjectEvent[K]) -> bool | None:
            verdicts = first(event), second(event)
            return None if verdicts == (None, None) else True in verdicts

        return Predicate(either, f"{self.name} or {other.name}")

    def fallback(self, other: "Predicate[K]") -> "Predicate[K]":
        """A predicate with this predicate's verdict, or the other's verdict if this predicate has no opinion."""
        first, second = self.verdict, other.verdict

        def one(event: ObjectEvent[K]) -> bool | None:
            verdict = first(event)
            return second(event) if verdict is None else verdict

        return Predicate(one, f"{self.name}, else {other.name}")

    def __and__(self, other: "Predicate[K]") -> "Predicate[K]":
        """A predicate that passes when both predicates pass. A predicate without an opinion is ignored."""
        first, second = self.verdict, other.verdict

        def both(event: ObjectEvent[K]) -> bool | None:
            verdict = first(event)
            if verdict is False:
                return False
            opinion = second(event)
            return verdict if opinion is None else opinion

        return Predicate(both, f"{self.name} and {other.name}")


def value(function: Callable[[K], object]) -> Predicate[K]:
    """A Predicate that passes when the result of `function(obj)` changed. It has no opinion if the result is None now
    and was None before. Raises RequestError for anything but a function of an object."""
    check_callback("predicates.value takes a function, which", function, "obj")

    def changed(event: ObjectEvent[K]) -> bool | None:
        old, now = event.old, event.obj
        if old is None or event.deleted or _uid(now) != _uid(old) or _deletion(now) != _deletion(old):
            return True
        after, before = not_awaitable(function(now), function), function(old)
        return None if after is None and before is None else not same(after, before)

    return Predicate(changed, name_of(function))


def selector(selection: LabelSelection) -> Predicate[Any]:
    """A Predicate that passes objects, also deleted ones, whose labels match now or matched before. Raises RequestError
    for an invalid selector."""
    matches = Selector.of(selection).matches

    def matched(event: ObjectEvent[Any]) -> bool:
        return matches(event.obj.labels) or (event.old is not None and matches(event.old.labels))

    return Predicate(matched, f"selector {selection!r}")


def when(function: Callable[[ObjectEvent[K]], bool]) -> Predicate[K]:
    """A Predicate in which only `function(event)` decides, even about deletions. Raises RequestError for anything but a
    function of an event."""
    check_callback("predicates.when takes a function, which", function, "event")
    return Predicate(lambda event: bool(not_awaitable(function(event), function)), name_of(function))


def same(one: Any, other: Any) -> bool:
    """Whether two values are equal and of the same type, including values inside lists, tuples, sets, mappings and
    records."""
    if type(one) is not type(other):
        return False
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(part, other[key]) for key, part in one.items())
    if isinstance(one, set | frozenset) and isinstance(other, set | frozenset):
        return {(type(part), part) for part in one} == {(type(part), part) for part in other}
    kind: Any = type(one)
    if is_record_type(kind):
        names = wire_names(kind)
        return bool(one == other) and all(same(getattr(one, name), getattr(other, name)) for name in names)
    return bool(one == other)


def object_event(event: Apply[K] | InitApply[K] | Delete[K]) -> ObjectEvent[K]:
    """A watcher's event in the form that predicates and mappers receive."""
    return ObjectEvent(event.obj, event.previous if isinstance(event, Apply) else None, isinstance(event, Delete))


def _described(event: ObjectEvent[Any]) -> str:
    return repr(event.obj)


def _uid(obj: Any) -> object:
    return obj.uid


def _deletion(obj: Any) -> object:
    """The deletionTimestamp as received: text in the object's head, which needs no parsing."""
    record = getattr(obj, "record", None)
    return record.head.deletion_timestamp if record is not None else obj.deletion_timestamp


def _named(function: Callable[[Any], object], name: str) -> Predicate[Any]:
    return Predicate(value(function).verdict, name)


# Public names of the module, such as `predicates.generation`. Since `annotations` is one of them, this module does not
# use `from __future__ import annotations`.
generation = _named(lambda obj: obj.generation, "generation")
resource_version = _named(lambda obj: obj.resource_version or None, "resource_version")
labels = _named(lambda obj: dict(obj.labels), "labels")
annotations = _named(lambda obj: dict(obj.annotations), "annotations")
finalizers = _named(lambda obj: tuple(obj.finalizers), "finalizers")
