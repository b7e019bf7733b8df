"""Streams of events and of triggers, as iterators.

Stages:

    applied_objects     the objects of InitApply and Apply
    touched_objects     the objects of InitApply, Apply and Delete
    modify              changes each object (pruning) before the object reaches a store
    predicate_filter    only the objects, or events, that a predicate passes
    trigger_self, trigger_owners, trigger_others    requests

A stage passes on one event at a time and holds no lock. Closing a stage closes its source. Exceptions of user code are
logged and do not end the stage.

`pull` and `pull_stream` are the threads behind `reconcile_on`, `reconcile_all_on`, `for_stream`, `owns_stream` and
`watches_stream`. Each source has its own thread and may block it. A queue (anything with `get(timeout=)`) is polled
twenty times a second, so that the stop token is noticed. An iterable cannot be polled: if the iterable blocks forever,
its thread stays until the process ends. The process does not wait for the thread.

`PredicateCache` applies a predicate to a plain stream, which does not contain previous states. So the cache remembers
the last state of each object, in the form in which stores keep it. It forgets deleted objects, objects missing from
a complete list, and objects not seen for `ttl` seconds. Beyond `max_size` objects, it forgets the object that was not
seen for the longest time. A forgotten object passes again.
"""
from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from functools import partial
from queue import Empty
from typing import Any, Protocol, TypeVar

from cachetools import TTLCache

from kubectl_runtime.core.base.errors import RequestError
from kubectl_runtime.core.base.guard import Guard, GuardedLogger, closing_source, guarded, guarded_logger, name_of
from kubectl_runtime.core.base.plain import Key, key_of
from kubectl_runtime.core.base.threads import SYSTEM_CLOCK, Clock, Duration, seconds
from kubectl_runtime.core.codec.views import Modify, Record, pruned
from kubectl_runtime.core.meta.gvk import ApiResource, HasApiResource
from kubectl_runtime.core.objects.partial import InvalidObject
from kubectl_runtime.core.scope import StopToken
from kubectl_runtime.runtime.store.store import Store
from kubectl_runtime.runtime.triggers import triggers
from kubectl_runtime.runtime.triggers.predicates import ObjectEvent, Predicate
from kubectl_runtime.runtime.triggers.triggers import (
    LOST,
    Mapper,
    ReconcileRequest,
    Sink,
    Subscription,
    described_event,
)
from kubectl_runtime.runtime.watch.driver import record_of
from kubectl_runtime.runtime.watch.event import Apply, Delete, Event, Init, InitApply, InitDone, is_event, with_obj

TTL = 3600.0
"""An object that was not seen for this many seconds passes again (as in kube-rs)."""

MAX_SIZE = 1_000_000
"""The most objects that are remembered."""

_Seen = tuple[Key, str]
"""Key and uid of an object. A later object of the same name has another uid, so it counts as new."""


class PredicateCache:
    """Remembers the last state of each object for one predicate. For one thread at a time."""

    def __init__(self, predicate: Predicate[Any], *, ttl: Duration = TTL, max_size: int = MAX_SIZE,
                 clock: Clock = SYSTEM_CLOCK) -> None:
        self._predicate = predicate
        self._seen: TTLCache[_Seen, Any] = TTLCache(max_size, seconds(ttl), timer=clock.monotonic)
        self._listed: set[_Seen] | None = None

    def __len__(self) -> int:
        """How many objects are remembered."""
        return len(self._seen)

    def passes(self, event: Event[Any]) -> bool:
        """Whether to pass on this event. Remembers the event's object. Events without an object pass."""
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
        """Like `passes`, for streams of objects. Such streams show a deletion only by a deletionTimestamp, if at all.
        """
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
    """A remembered state, as an object of the same class as `like`."""
    if not isinstance(remembered, Record):
        return remembered
    if remembered.problem is not None or isinstance(like, InvalidObject):
        return None
    return type(like).from_record(remembered)


K = TypeVar("K")
T = TypeVar("T")


def applied_objects(events: Iterable[Event[K]]) -> Generator[K]:
    """Yield the objects that exist or changed, without deleted objects.

    >>> events = [Init(), InitApply(ConfigMap(name="a")), InitDone(), Delete(ConfigMap(name="b"))]
    >>> [obj.name for obj in applied_objects(events)]
    ['a']
    """
    return _objects(events, (InitApply, Apply))


def touched_objects(events: Iterable[Event[K]]) -> Generator[K]:
    """Yield the objects that exist, changed or were deleted.

    >>> [obj.name for obj in touched_objects([Apply(ConfigMap(name="a")), Delete(ConfigMap(name="b"))])]
    ['a', 'b']
    """
    return _objects(events, (InitApply, Apply, Delete))


def modify(events: Iterable[Event[K]], change: Callable[[K], object]) -> Generator[Event[K]]:
    """Let `change` prune each object in place. If `change` raises, the object passes unchanged.

    A store later in the pipeline keeps only the pruned object, marked as partial, so that it cannot replace the object
    on the server.

    >>> [event.obj.name for event in modify([Apply(ConfigMap(name="a"))], strip_managed_fields)]
    ['a']
    """
    guard = Guard(name_of(change))
    with closing_source(events):
        for event in events:
            yield with_obj(event, lambda obj: _changed(obj, change, guard))


def predicate_filter(stream: Iterable[T], predicate: Predicate[Any], *, ttl: Duration = TTL,
                     clock: Clock = SYSTEM_CLOCK) -> Generator[T]:
    """Yield the objects, or the events, that `predicate` passes.

    The filter remembers the last state of up to a million objects. An object that was not seen for `ttl` passes again.
    (In a controller, `predicate=` compares with the store and remembers nothing.) A stream of objects does not show
    deletions: if deletions matter, filter a stream of events.

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
    """Yield a request for each touched object of `resource`."""
    return _requests(events, triggers.trigger_self(resource))


def trigger_owners(events: Iterable[Event[Any]], owner: HasApiResource | ApiResource) -> Generator[ReconcileRequest]:
    """Yield requests for those owners of each touched object that are of the given kind."""
    return _requests(events, triggers.trigger_owners(owner))


def trigger_others(events: Iterable[Event[K]], mapper: Mapper[K]) -> Generator[ReconcileRequest]:
    """Yield requests for what `mapper` returns for each touched object; EVERYTHING becomes `EVERYTHING_REF`."""
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
    requests.extend(subscription(event))  # requests made before an exception are kept


def _changed(obj: Any, change: Modify, guard: Guard) -> Any:
    if isinstance(obj, InvalidObject):
        return obj
    original = record_of(obj)
    return type(obj).from_record(guard.call(original, lambda *_: repr(obj), pruned, obj, change))


log = guarded_logger(__name__)

POLL = 0.05
"""Seconds to wait for a queue before the stop token is checked again."""

FIRST_PAUSE, LONGEST_PAUSE = 0.1, 30.0
"""The first and the longest wait, in seconds, before a source that raised is pulled again. The wait doubles with each
exception in a row."""


class TriggerQueue(Protocol):
    """A queue to pull triggers from: `queue.Queue`, `queue.SimpleQueue` and the like."""

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        """Take out the next item; blocks and raises like `queue.Queue.get`."""


TriggerSource = Iterable[Any] | TriggerQueue
ToRequests = Callable[[Any], Iterable[ReconcileRequest]]


def check_source(source: object) -> None:
    """Raise RequestError for anything but an iterable or a queue."""
    texts = isinstance(source, str | bytes)
    if texts or (not isinstance(source, Iterable) and not callable(getattr(source, "get", None))):
        raise RequestError(f"a trigger source must be an iterable or a queue, not {type(source).__name__}")


def pull(source: TriggerSource, to_requests: ToRequests, sink: Sink, stop: StopToken,
         clock: Clock = SYSTEM_CLOCK, logger: GuardedLogger = log) -> None:
    """Pass the items of `source` to `sink` until `source` ends or `stop` is set. The body of the source's thread.

    An item that cannot be reconciled is logged by `logger`, and the next item follows.
    """

    def requests_of(item: Any) -> list[ReconcileRequest]:
        return [*to_requests(item)]

    def pass_on() -> None:
        with closing_source(source if isinstance(source, Iterable) else ()):
            for item in _items(source, stop, clock, logger):
                if stop.is_set():
                    return
                requests: list[ReconcileRequest] = guard.call([], "", requests_of, item)
                if requests:
                    sink(requests)

    guard = Guard("an item of a trigger source, for which nothing is reconciled,", logger, clock)
    guarded(None, f"the end of a trigger source, a {type(source).__qualname__},", pass_on)


def pull_stream(stream: Iterable[Any], subscription: Subscription, sink: Sink, stop: StopToken,
                store: Store[Any] | None = None, clock: Clock = SYSTEM_CLOCK, logger: GuardedLogger = log) -> None:
    """Pass the requests for the objects or events of `stream` to `sink` until `stop` is set. Runs in its own thread.

    `store`: the store of the stream's reflector, if it has one; an object that has left this store counts as deleted.
    Raises RuntimeError if the stream ends before `stop` is set (an exception of the stream is logged), and RequestError
    if the items have not passed a reflector.
    """

    def requests_of(event: Event[Any]) -> list[ReconcileRequest]:
        return [*subscription(event)]

    def pass_on() -> None:
        with closing_source(stream):
            for item in stream:
                if stop.is_set():
                    return
                event: Event[Any] = item if is_event(item) else _as_event(item, store)
                if store is not None and _is_raw(event, store):
                    missing.append(event)
                    return
                requests: list[ReconcileRequest] = guard.call([], _lost, requests_of, event)
                if requests:
                    sink(requests)

    missing: list[Event[Any]] = []
    guard = Guard(name_of(subscription), logger, clock)
    guarded(None, "the given stream", pass_on)
    if missing:
        raise RequestError("the given stream has not been through a reflector, so its store stays empty: pass "
                           f"reflector(writer, events). The stream yielded {type(missing[0]).__name__}")
    if not stop.is_set():
        raise RuntimeError("the given stream ended, so no further change would be noticed")


def _lost(event: Event[Any]) -> str:
    return f"{described_event(event)} ({LOST})"


def _is_raw(event: Event[Any], store: Store[Any]) -> bool:
    """Whether the event cannot have passed a reflector. A reflector holds back a list until it is complete and stored.
    """
    return isinstance(event, Init | InitApply) or (isinstance(event, InitDone | Apply) and not store.is_ready)


def _as_event(obj: Any, store: Store[Any] | None) -> Event[Any]:
    return Delete(obj) if store is not None and store.is_ready and obj.ref not in store else Apply(obj)


def _items(source: TriggerSource, stop: StopToken, clock: Clock, logger: GuardedLogger) -> Iterator[Any]:
    """The items of a source. If the source raises, the exception is logged and the source is pulled again after a wait,
    which grows with each failure in a row. A generator has ended by then; other iterators may continue."""
    step = iter(source).__next__ if isinstance(source, Iterable) else partial(_from_queue, source, stop)
    guard, failures = Guard(f"a trigger source, a {type(source).__qualname__},", logger, clock), 0
    while not stop.is_set():
        try:
            item = step()
        except StopIteration:
            return
        except BaseException as error:  # noqa: BLE001 - reported
            guard.failed(error)
            if stop.wait(min(FIRST_PAUSE * 2 ** min(failures, 20), LONGEST_PAUSE)):
                return
            failures += 1
        else:
            guard.succeeded()
            failures = 0
            yield item


def _from_queue(source: TriggerQueue, stop: StopToken) -> Any:
    """The next item. Raises StopIteration when `stop` is set."""
    while not stop.is_set():
        try:
            return source.get(timeout=POLL)
        except Empty:
            continue
    raise StopIteration
