"""Stages for streams of events, in the form of iterators: the same functions that a `Watch` applies event by event.

    applied_objects     the objects of InitApply and Apply
    touched_objects     those and the objects of Delete
    modify              changes each object (pruning) before it reaches a store
    predicate_filter    only the objects, or events, that a predicate lets pass
    trigger_self, trigger_owners, trigger_others    requests

A stage passes on one event at a time, keeps no lock, closes its source when it is closed, and lives on when user code
raises: that is reported and the next event follows.
"""
from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from typing import Any, TypeVar

from kubectl_runtime.core.base.clock import SYSTEM_CLOCK, Clock, Duration
from kubectl_runtime.core.base.guard import Guard
from kubectl_runtime.core.codec.prune import Modify, pruned
from kubectl_runtime.core.meta.gvk import ApiResource, HasApiResource
from kubectl_runtime.core.objects.invalid import InvalidObject
from kubectl_runtime.runtime.streams import closing_source
from kubectl_runtime.runtime.triggers import triggers
from kubectl_runtime.runtime.triggers.predicate_cache import TTL, PredicateCache
from kubectl_runtime.runtime.triggers.predicates import Predicate
from kubectl_runtime.runtime.triggers.triggers import Mapper, ReconcileRequest, Subscription
from kubectl_runtime.runtime.usercode import name_of
from kubectl_runtime.runtime.watcher.event import Apply, Delete, Event, InitApply, is_event, with_obj
from kubectl_runtime.runtime.watcher.readers import record_of

K = TypeVar("K")
T = TypeVar("T")


def applied_objects(events: Iterable[Event[K]]) -> Generator[K]:
    """The objects that exist or changed, without those that were deleted.

    >>> events = [Init(), InitApply(ConfigMap(name="a")), InitDone(), Delete(ConfigMap(name="b"))]
    >>> [obj.name for obj in applied_objects(events)]
    ['a']
    """
    return _objects(events, (InitApply, Apply))


def touched_objects(events: Iterable[Event[K]]) -> Generator[K]:
    """The objects that exist, changed or were deleted.

    >>> [obj.name for obj in touched_objects([Apply(ConfigMap(name="a")), Delete(ConfigMap(name="b"))])]
    ['a', 'b']
    """
    return _objects(events, (InitApply, Apply, Delete))


def modify(events: Iterable[Event[K]], change: Callable[[K], object]) -> Generator[Event[K]]:
    """Let `change` prune each object in place. A store further on keeps only what is left, marked as partial, so that
    it cannot replace the object on the server. When `change` raises, the object goes on as it came."""
    guard = Guard(name_of(change))
    with closing_source(events):
        for event in events:
            yield with_obj(event, lambda obj: _changed(obj, change, guard))


def predicate_filter(stream: Iterable[T], predicate: Predicate[Any], *, ttl: Duration = TTL,
                     clock: Clock = SYSTEM_CLOCK) -> Generator[T]:
    """Yield the objects, or the events, that `predicate` lets pass.

    It remembers the last state of up to a million objects. An object that was not seen for `ttl` passes again. (In a
    controller `predicate=` compares with the store and remembers nothing.) A stream of objects does not show which of
    them are deleted: filter a stream of events if that matters.

    >>> changes = [ConfigMap(name="a", labels={"v": "1"}), ConfigMap(name="a", labels={"v": "1"})]
    >>> [obj.name for obj in predicate_filter(changes, predicates.labels)]
    ['a']
    """
    cache = PredicateCache(predicate, ttl=ttl, clock=clock)
    with closing_source(stream):
        for item in stream:
            if cache.passes(item) if is_event(item) else cache.passes_object(item):
                yield item


def trigger_self(events: Iterable[Event[Any]], resource: HasApiResource | ApiResource) -> Generator[ReconcileRequest]:
    """A request for each touched object of `resource`."""
    return _requests(events, triggers.trigger_self(resource))


def trigger_owners(events: Iterable[Event[Any]], owner: HasApiResource | ApiResource) -> Generator[ReconcileRequest]:
    """Requests for the owners of this kind of each touched object."""
    return _requests(events, triggers.trigger_owners(owner))


def trigger_others(events: Iterable[Event[K]], mapper: Mapper[K]) -> Generator[ReconcileRequest]:
    """Requests for what `mapper` makes of each touched object; EVERYTHING is `EVERYTHING_REF`."""
    return _requests(events, triggers.trigger_others(mapper))


def _objects(events: Iterable[Event[K]], kinds: tuple[type, ...]) -> Generator[K]:
    with closing_source(events):
        for event in events:
            if isinstance(event, kinds):
                yield event.obj  # type: ignore[union-attr]  # all of `kinds` carry an object


def _requests(events: Iterable[Event[Any]], subscription: Subscription) -> Generator[ReconcileRequest]:
    guard = Guard(name_of(subscription))
    with closing_source(events):
        for event in events:
            requests: list[ReconcileRequest] = []
            guard.call(None, "", _collect, requests, subscription, event)
            yield from requests


def _collect(requests: list[ReconcileRequest], subscription: Subscription, event: Event[Any]) -> None:
    requests.extend(subscription(event))  # what was asked for before it raised, counts


def _changed(obj: Any, change: Modify, guard: Guard) -> Any:
    if isinstance(obj, InvalidObject):
        return obj
    original = record_of(obj)
    return type(obj).from_record(guard.call(original, lambda *_: repr(obj), pruned, obj, change))
