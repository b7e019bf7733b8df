"""From an event to the keys that must be reconciled.

A *subscription* is any `Callable[[Event], Iterable[ReconcileRequest]]`. There are three usual triggers, which request
runs of different objects:

    trigger_self     the changed object itself
    trigger_owners   each owner of the wanted group and kind, with the version and scope of that kind
    trigger_others   what a mapper returns: none, one, many, or EVERYTHING

The last two also look at the previous state of a changed object, if the event has it. This way a former owner, or an
object that is no longer referred to, runs as well. A predicate selects the events. All three react to `InitApply`,
`Apply` and `Delete`, and keep no state. When the controller's own object is deleted, the queue forgets its key.

`Subscriber` delivers the events of a watch to one subscription. Each subscription gets all changes in order and one at
a time, even if several threads report them. While one thread delivers, the others queue their changes for it. Only the
watch's thread waits and takes over the queue, so that a slow subscription slows down the watch. Exceptions of user code
are logged, and the next event is delivered; a warning names a function whose call takes more than 100 ms. If Ctrl-C
interrupts the main thread, a new thread continues with the interrupted event.

All requests reach a controller's queue through its `Inbox`, which converts refs to the controller's kind and scope. It
drops requests for another kind and logs an error. Requests come from watches, trigger sources and the program.

Everything here is safe to use from any thread; no lock is held while user code runs.
"""
from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import Enum, StrEnum
from fnmatch import fnmatchcase
from functools import partial
from typing import Any, Literal, TypeAlias, TypeVar

import msgspec

from kubectl_runtime.core.base.errors import RequestError
from kubectl_runtime.core.base.guard import (
    Guard,
    GuardedLogger,
    ProcessEnded,
    guarded_logger,
    misfit,
    name_of,
    not_awaitable,
)
from kubectl_runtime.core.base.plain import Key
from kubectl_runtime.core.base.threads import Clock, ForkSafeLock, Thread
from kubectl_runtime.core.codec.views import Record
from kubectl_runtime.core.meta.gvk import ApiResource, HasApiResource, ObjectRef, api_resource_of
from kubectl_runtime.core.meta.metav1 import OwnerReference
from kubectl_runtime.core.objects.partial import InvalidObject
from kubectl_runtime.core.requests.request import HasRef
from kubectl_runtime.core.scope import StopToken
from kubectl_runtime.runtime.store.store import Store
from kubectl_runtime.runtime.triggers.predicates import ObjectEvent, Predicate, object_event
from kubectl_runtime.runtime.watch.event import CARRIERS, INIT, Apply, Delete, Event, InitApply, obj_of, with_obj

K = TypeVar("K")


class Reason(StrEnum):
    """Why a key is reconciled, for logs and metrics."""

    OBJECT_UPDATED = "object updated"
    OBJECT_DELETED = "object deleted"
    """The queue forgets the object; nothing runs."""
    OBJECT_GONE = "object gone"
    """The object does not exist, but a run is wanted nevertheless (see `on_gone`)."""
    RELATED_OBJECT_UPDATED = "related object updated"
    RELATED_OBJECT_DELETED = "related object deleted"


class ReconcileRequest(msgspec.Struct, frozen=True, gc=False):
    """A request to reconcile `ref` because of `reason`.

    `cause`: uid and resourceVersion of the changed object that led to the request. `bulk`: the request is one of many
    made together, so its key goes to the background lane of the queue.

    >>> ref = Api.namespaced(client, ConfigMap, "default").get("settings").ref
    >>> ReconcileRequest(ref, "a schedule").reason
    'a schedule'
    """

    ref: ObjectRef
    reason: str = ""
    cause: tuple[str, str] | None = None
    bulk: bool = False


Subscription: TypeAlias = Callable[[Event[Any]], Iterable[ReconcileRequest]]
"""Called by the watch's thread for each `Apply`, `Delete` and `InitDone`. It must not block."""

class OfHeads:
    """A subscription that uses only names and versions. It gets the stored records; no objects are made from them."""

    __slots__ = ("requests",)

    def __init__(self, requests: Subscription) -> None:
        self.requests = requests

    def __call__(self, event: Event[Any]) -> Iterable[ReconcileRequest]:
        return self.requests(event)


Sink: TypeAlias = Callable[[list[ReconcileRequest]], None]
"""Takes the requests of one batch of events, in order. Never called with an empty list. It must not block or raise."""

class Everything(Enum):
    """A mapper returns `EVERYTHING`, the only instance, to have every object of its controller reconciled.

    >>> def mapper(settings: ConfigMap):
    ...     return EVERYTHING if settings.name == "settings" else []
    >>> mapper(ConfigMap(name="settings")) is EVERYTHING
    True
    """

    EVERYTHING = "everything"


EVERYTHING = Everything.EVERYTHING
"""The result of a mapper when the change concerns every object that the controller reconciles."""

EVERYTHING_REF = ObjectRef(ApiResource("", "", "*", "*"), "*")
"""The ref that stands for all objects in a request. The controller's inbox replaces it with all refs, once per batch.
"""

Concerned: TypeAlias = ObjectRef | HasRef | Everything
Mapped: TypeAlias = Iterable[Concerned] | Concerned | None
Mapper: TypeAlias = Callable[[K], Mapped]
"""Maps a related object to the objects that it concerns: refs or objects, one or many, EVERYTHING, or None."""
EventMapper: TypeAlias = Callable[[ObjectEvent[K]], Mapped]
"""Like `Mapper`, but receives the event, which has both states and tells whether the object was deleted."""

On: TypeAlias = Literal["object", "event"]


def trigger_self(resource: HasApiResource | ApiResource, *, predicate: Predicate[Any] | None = None,
                 run_gone: bool = False) -> Subscription:
    """Request a run of each touched object of `resource` that `predicate` passes.

    A deletion makes the queue forget the object. With `run_gone`, a deletion that `predicate` passes also requests a
    run.
    """
    own = api_resource_of(resource)
    namespaced, updated, deleted = own.namespaced, Reason.OBJECT_UPDATED, Reason.OBJECT_DELETED

    def requests(event: Event[Any]) -> Iterable[ReconcileRequest]:
        if not isinstance(event, CARRIERS):
            return ()
        obj = event.obj
        passes = predicate is None or predicate.passes(object_event(event))
        is_deletion = isinstance(event, Delete)
        if not passes and not is_deletion:
            return ()
        about = obj.head if isinstance(obj, Record) else obj  # a head has the same attributes, at less cost
        ref = ObjectRef(own, about.name, (about.namespace or None) if namespaced else None)
        request = ReconcileRequest(ref, deleted if is_deletion else updated, _version(about))
        if is_deletion and run_gone and passes:
            return (request, ReconcileRequest(ref, Reason.OBJECT_GONE))
        return (request,)

    return OfHeads(requests) if predicate is None else requests


def trigger_owners(owner: HasApiResource | ApiResource, *, predicate: Predicate[Any] | None = None,
                   controller_only: bool = False) -> Subscription:
    """Request runs of those owners of each touched object that have the group and kind of `owner`.

    `predicate` selects the objects. With `controller_only`, only the controlling owner runs. The version in an owner
    reference is ignored, and a cluster-scoped owner gets no namespace. The uid is not compared: a reference to a
    deleted owner of the same name leads to a run without work, which is cheaper than a missed run (the new owner may
    wait for this object's name to become free).
    """
    own = api_resource_of(owner)

    def requests(event: Event[Any]) -> Iterable[ReconcileRequest]:
        if not isinstance(event, CARRIERS):
            return ()
        obj = event.obj
        if isinstance(obj, InvalidObject) or (predicate is not None and not predicate.passes(object_event(event))):
            return ()
        namespace = obj.namespace if own.namespaced else None
        reason = _related(event)
        names = dict.fromkeys(reference.name for reference in _owners(event)
                              if reference.kind == own.kind and reference.group == own.group
                              and (reference.controller or not controller_only))
        return [ReconcileRequest(ObjectRef(own, name, namespace), reason, _version(obj)) for name in names]

    return requests


def owner_of(kind: HasApiResource | ApiResource) -> Callable[[Any], list[ObjectRef]]:
    """Make a mapper for `watches` that returns the refs of an object's owners of this kind.

    `.owns(api)` does the same and keeps only metadata. The version in an owner reference is ignored, and a
    cluster-scoped owner gets no namespace. Raises RequestError for anything but a kind.

    >>> Controller(Api.all(client, Deployment)).watches(Api.all(client, ConfigMap), owner_of(Deployment))
    <...Controller ...>
    """
    own = api_resource_of(kind)

    def owners(obj: Any) -> list[ObjectRef]:
        namespace = obj.namespace if own.namespaced else None
        return [ObjectRef(own, name, namespace) for name in dict.fromkeys(
            reference.name for reference in obj.owner_references
            if reference.kind == own.kind and reference.group == own.group)]

    return owners


def trigger_others(mapper: Mapper[Any] | EventMapper[Any], *, predicate: Predicate[Any] | None = None,
                   on: On = "object") -> Subscription:
    """Request runs for the refs that `mapper` returns.

    The mapper is called for each touched object that `predicate` passes, once with each known state, or, with
    `on="event"`, with the `ObjectEvent`. It is not called for objects that could not be decoded. The mapper is user
    code: it runs in the watch's thread without a lock and must not block. An exception is logged and does not end the
    watch.
    """
    given: Callable[[Any], Mapped] = mapper

    def requests(event: Event[Any]) -> Iterable[ReconcileRequest]:
        if not isinstance(event, CARRIERS) or isinstance(event.obj, InvalidObject):
            return
        if predicate is not None and not predicate.passes(object_event(event)):
            return
        reason, cause = _related(event), _version(event.obj)
        seen = set()
        for shown in (_valid(object_event(event)),) if on == "event" else _states(event):
            for ref in _refs(not_awaitable(given(shown), mapper, may_yield=True)):
                if ref not in seen:
                    seen.add(ref)
                    yield ReconcileRequest(ref, reason, cause)

    return named_after(mapper, requests)


def check_mapper(mapper: object, on: object) -> None:
    """Raise RequestError for a mapper that cannot be called with one argument, and for an unknown `on`."""
    if on not in ("object", "event"):
        raise RequestError(f'on must be "object" or "event" for a mapper, not {on!r}')
    if not callable(mapper):
        raise RequestError("a mapper must be a function from an object to ObjectRefs, one ref, EVERYTHING or None, not "
                           f"{mapper!r}")
    if (wrong := misfit(mapper, ("an event" if on == "event" else "an object",), may_yield=True)) is not None:
        raise RequestError(f"the mapper {name_of(mapper)} {wrong}")


def _refs(found: Mapped) -> Iterator[ObjectRef]:
    """The refs that a mapper returned, one by one. Raises TypeError for anything else."""
    if found is None:
        return
    for ref in found if isinstance(found, Iterable) else (found,):
        if ref is EVERYTHING:
            yield EVERYTHING_REF
            continue
        named = ref if isinstance(ref, ObjectRef) else getattr(ref, "ref", None)
        if isinstance(named, ObjectRef) and isinstance(named.resource, ApiResource):
            yield named
        else:
            raise TypeError("a mapper must return ObjectRefs (ObjectRef.of(Kind, name, namespace)) or objects, one or "
                            f"many, EVERYTHING, or None, not {type(ref).__name__}")


def named_after(function: Any, wrapper: Subscription) -> Subscription:
    """`wrapper`, renamed after the user's function that it calls."""
    for attribute in ("__module__", "__name__", "__qualname__"):
        setattr(wrapper, attribute, getattr(function, attribute, None) or getattr(type(function), attribute))
    return wrapper


def _valid(event: ObjectEvent[Any]) -> ObjectEvent[Any]:
    """The event, without its previous state if that state could not be decoded."""
    return ObjectEvent(event.obj, None, event.deleted) if isinstance(event.old, InvalidObject) else event


def _states(event: Apply[Any] | InitApply[Any] | Delete[Any]) -> Iterator[Any]:
    """The object's current state, then its previous state if known."""
    yield event.obj
    previous = event.previous if isinstance(event, Apply) else None
    if previous is not None and not isinstance(previous, InvalidObject):
        yield previous


def _owners(event: Apply[Any] | InitApply[Any] | Delete[Any]) -> Iterable[OwnerReference]:
    return (reference for obj in _states(event) for reference in obj.owner_references)


def _related(event: Event[Any]) -> Reason:
    return Reason.RELATED_OBJECT_DELETED if isinstance(event, Delete) else Reason.RELATED_OBJECT_UPDATED


def _version(obj: Any) -> tuple[str, str] | None:
    uid, version = obj.uid, obj.resource_version
    return (uid, version) if uid and version else None


log = guarded_logger(__name__)

SLOW_SECONDS = 0.1
"""User code that takes longer in a watch's thread is named in the log."""

LOST = "nothing more is reconciled because of this event"

CHUNK = 500
"""After this many events the requests made so far are passed on, so that a long list does not delay its first requests.
"""


BACKLOG = 10_000
"""If more changes than this number wait for one subscription, a warning is logged once."""

LOOK_SECONDS = 0.1
"""Seconds between two checks of the stop token by a waiting thread."""


Changes: TypeAlias = Sequence[Event[Record]] | Callable[[], Sequence[Event[Record]]]
"""Changes, or a function that returns them and is called once all earlier changes have been delivered. The function
must be quick and call no user code."""


def _now(changes: Changes) -> Sequence[Event[Record]]:
    return changes() if callable(changes) else changes


def _count(changes: Changes) -> int:
    return 1 if callable(changes) else len(changes)


class Subscriber:
    """Delivers the events of a watch to one subscription, in order. Safe to use from any thread."""

    def __init__(self, subscription: Subscription, sink: Sink, read: Callable[[Record], Any], clock: Clock,
                 stop: StopToken, on_complete: Callable[[], None], logger: GuardedLogger | None = None) -> None:
        """`on_complete` is called when a list is complete. `logger`: the logger of the controller that the subscription
        triggers; with a `logger`, log lines about an exception add that this event triggers nothing more."""
        self._on_complete = on_complete
        self._subscription = subscription.requests if isinstance(subscription, OfHeads) else subscription
        self._sink = sink
        self._read = None if isinstance(subscription, OfHeads) else read
        self._clock = clock
        self._stop = stop
        self._name = name_of(subscription)
        self._log = logger or log
        self._lost = "" if logger is None else f" ({LOST})"
        self._guard = Guard(self._name, self._log, clock)
        self._sink_guard = Guard(f"the sink of {self._name}", self._log, clock)
        self._turn = threading.Condition()
        self._queue: deque[Changes] = deque()
        self._waiting = 0
        """Changes in the queue."""
        self._backlog_logged = False
        self._worker: int | None = threading.get_ident()
        """The thread that delivers; None when no thread does."""
        self._is_beginning = True
        """Whether the delivering thread is still busy with its own changes."""
        self._is_wanted = False
        """Whether the watch's thread waits to take over."""
        self._cancelled = False
        self._current: Event[Record] = INIT
        """The event that the subscription is processing. Only for the delivering thread."""
        self._interrupted: Sequence[Event[Record]] = ()

    def begin(self, changes: Sequence[Event[Record]]) -> None:
        """Deliver `changes`, then the changes that have arrived since the subscriber was made. Call this exactly once.
        """
        self._work(changes)

    def deliver(self, changes: Changes, *, by_watch: bool = False) -> None:
        """Pass `changes` through the subscription, after all earlier changes.

        `by_watch`: whether the caller is the watch's thread. If another thread is delivering, the watch's thread waits
        until that thread's current call has ended, and then delivers the rest itself. Any other caller leaves its
        changes to the delivering thread and returns.
        """
        with self._turn:
            mine, waiting = self._taken(changes, by_watch), self._waiting
        if mine is not None:
            self._work(mine)
        elif waiting > BACKLOG and not self._backlog_logged:
            self._backlog_logged = True
            self._log.warning("%s is slower than the changes: %d changes wait until it has received the objects that "
                              "were stored when it subscribed", self._name, waiting)

    def _taken(self, changes: Changes, by_watch: bool) -> Sequence[Event[Record]] | None:
        """The changes that the calling thread must deliver first; None if another thread delivers or none are left."""
        # Another thread delivers, or an interrupted thread has left earlier changes in the queue.
        if not self._is_idle or self._queue:
            self._queue.append(changes)
            self._waiting += _count(changes)
        if not self._is_idle:
            if not by_watch or self._is_beginning or self._worker == threading.get_ident():
                return None
            self._is_wanted = True
            while not self._turn.wait_for(lambda: self._is_idle or self._is_over, LOOK_SECONDS):
                pass  # a stop does not notify this condition, hence the timeout
            self._is_wanted = False
            if self._worker is not None or not self._queue:
                return None
        self._worker, self._is_beginning = threading.get_ident(), True
        return self._next() if self._queue else _now(changes)

    def complete(self) -> None:
        """Call `on_complete`, because a complete list was delivered."""
        if not self._cancelled and not self._stop.is_set():
            self._on_complete()

    def cancel(self) -> None:
        """Deliver nothing more. A call in progress still finishes."""
        self._cancelled = True

    @property
    def _is_idle(self) -> bool:
        return self._worker is None

    @property
    def _is_over(self) -> bool:
        return self._cancelled or self._stop.is_set()

    def _work(self, changes: Sequence[Event[Record]]) -> None:
        while True:
            start = 0
            try:
                while start < len(changes) and not self._is_over:
                    self._pass(changes[start:start + CHUNK])
                    start += CHUNK
            except BaseException as error:  # Ctrl-C: the user must not have to wait for the other changes
                self._leave_to_another(changes[start + CHUNK:], error)
                raise
            with self._turn:
                self._is_beginning = False
                if not self._queue or self._is_wanted:
                    self._worker = None
                    self._turn.notify_all()
                    return
                changes = self._next()

    def _next(self) -> Sequence[Event[Record]]:
        changes = self._queue.popleft()
        self._waiting -= _count(changes)
        return _now(changes)

    def _pass(self, changes: Sequence[Event[Record]]) -> None:
        requests: list[ReconcileRequest] = []
        left = iter(changes)
        try:
            # One guarded call for all events, repeated after an exception: a guarded call for each event is slower.
            while not self._guard.call(False, self._given, self._collect, left, requests):
                pass
        except BaseException:
            self._interrupted = [self._current, *left]
            raise
        finally:
            if requests:
                self._sink_guard.call(None, "", self._sink, requests)

    def _leave_to_another(self, changes: Sequence[Event[Record]], error: BaseException) -> None:
        with self._turn:
            rest, self._interrupted = [*self._interrupted, *changes], ()
            self._queue.appendleft(rest)
            self._waiting += len(rest)
            self._worker, self._is_beginning = None, False
            self._turn.notify_all()
        if isinstance(error, ProcessEnded):
            return
        with contextlib.suppress(RuntimeError):  # no thread can be started: the rest is delivered with the next change
            Thread(target=self.deliver, args=((),), name=f"rest of {self._name}", daemon=True).start()

    def _collect(self, changes: Iterator[Event[Record]], requests: list[ReconcileRequest]) -> bool:
        """Add the requests for `changes` to `requests`; returns True when all changes are done."""
        monotonic, subscription, read = self._clock.monotonic, self._subscription, self._read
        if read is None:  # the library's own subscription, which calls no user code and is never slow
            for change in changes:
                self._current = change
                requests.extend(subscription(change))
            return True
        began = monotonic()
        for change in changes:
            self._current = change
            try:
                # Each subscription gets its own object, so its changes to the object affect no other subscription.
                requests.extend(subscription(with_obj(change, read)))
            finally:
                if (ended := monotonic()) - began > SLOW_SECONDS:
                    self._log.warning("%s took %.0f ms for %s: functions that a watch calls must not block, because "
                                      "they delay its events", self._name, (ended - began) * 1000,
                                      described_event(change))
                    ended = monotonic()
                began = ended
        return True

    def _given(self, *_: object) -> str:
        return described_event(self._current) + self._lost


def described_event(change: Event[Any]) -> str:
    """An event as log lines name it: `Apply of `, then the ref of the object or the repr of a view."""
    obj = obj_of(change)
    return type(change).__name__ if obj is None else f"{type(change).__name__} of {getattr(obj, 'ref', obj)}"


EXTERNAL, BULK = "external trigger", "bulk reconcile requested"

MOST_REPORTED = 100
"""At most this many pairs of a function and a namespace are logged, since one mapper may name thousands."""


class Inbox:
    """Converts requests to the controller's own kind and passes them to the queue. Safe to use from any thread."""

    def __init__(self, resource: ApiResource, store: Store[Any], schedule: Sink, *,
                 logger: GuardedLogger, on_bug: Callable[[str, BaseException], None],
                 namespaces: frozenset[str] = frozenset(), pattern: str = "") -> None:
        """`schedule` takes requests for `resource`, whose objects are in `store`. The controller's objects are those in
        `namespaces`, or in namespaces that match `pattern`, or in all namespaces if both are empty. `on_bug` is called
        with an exception of `schedule`."""
        self._resource = resource
        self._namespaced = resource.namespaced
        self._store = store
        self._schedule = schedule
        self._logger = logger
        self._on_bug = on_bug
        self._namespaces = namespaces
        self._pattern = pattern
        self._reporting = ForkSafeLock()
        self._reported: set[tuple[str, str | None]] = set()

    def _are_own(self, requests: list[ReconcileRequest]) -> bool:
        """Whether no request needs a conversion. The same test as `_is_own`, without a call for each request."""
        own, namespaced = self._resource, self._namespaced
        for request in requests:
            ref = request.ref
            if ref.resource is not own or (not ref.namespace if namespaced else ref.namespace is not None):
                return False
        return True

    def sink(self, requests: list[ReconcileRequest]) -> None:
        """Schedule these requests. Raises nothing."""
        try:
            accepted = requests if self._are_own(requests) else self._own(requests)
            if accepted:
                self._schedule(accepted)
        except Exception as error:  # noqa: BLE001 - a bug here: without a report, it would go unnoticed
            self._on_bug("the queue", error)

    def sink_of(self, origin: str) -> Sink:
        """A sink for requests that `origin`, a user's function, makes. Requests for objects outside the controller's
        namespaces are ignored, and logged once for each namespace; without an `origin` nothing is logged."""
        return partial(self._sink_from, origin) if self._namespaces or self._pattern else self.sink

    def trigger(self, item: Any) -> None:
        """Reconcile an object or ref. Raises RequestError if its kind or namespace is not the controller's."""
        self.sink(self.external(item))

    def trigger_everything(self) -> None:
        """Reconcile every stored object."""
        self.sink(self.bulk())

    def trigger_those(self, of: Callable[[Key], bool]) -> None:
        """Reconcile every stored object for whose key `of` is true."""
        if requests := [request for request in self.bulk() if of(request.ref.key)]:
            self.sink(requests)

    def external(self, item: Any) -> list[ReconcileRequest]:
        """The request for an object or ref. Raises RequestError if its kind or namespace is not the controller's."""
        ref = ref_of(item, self._resource)
        if self._is_elsewhere(ref):
            raise RequestError(f"{ref} is in none of the controller's namespaces, {self._scope}")
        return [ReconcileRequest(ref, EXTERNAL)]

    def bulk(self, _item: Any = None) -> list[ReconcileRequest]:
        """Requests for every stored object. The item of the trigger source is ignored."""
        own = self._resource
        return [ReconcileRequest(record.ref.canonical(own), BULK, bulk=True) for record in self._store.records()]

    def _sink_from(self, origin: str, requests: list[ReconcileRequest]) -> None:
        inside = []
        for request in requests:
            if not self._is_elsewhere(request.ref):
                inside.append(request)
            elif origin and self._is_new(origin, request.ref.namespace):
                self._logger.warning("%s triggers %s, but this controller reconciles only the namespaces %s; ignoring "
                                     "its triggers in %s", origin, request.ref, self._scope, request.ref.namespace)
        if inside:
            self.sink(inside)

    def _is_new(self, origin: str, namespace: str | None) -> bool:
        with self._reporting:
            known = len(self._reported)
            if known < MOST_REPORTED:
                self._reported.add((origin, namespace))
            return len(self._reported) > known

    def _is_elsewhere(self, ref: ObjectRef) -> bool:
        """Whether `ref` is of the controller's kind but in none of the controller's namespaces."""
        own, namespace = self._resource, ref.namespace
        if not namespace or ref.kind != own.kind or ref.group != own.group:
            return False
        if self._pattern:
            return not fnmatchcase(namespace, self._pattern)
        return bool(self._namespaces) and namespace not in self._namespaces

    @property
    def _scope(self) -> str:
        return self._pattern or ", ".join(sorted(self._namespaces))

    def _own(self, requests: list[ReconcileRequest]) -> list[ReconcileRequest]:
        accepted: list[ReconcileRequest] = []
        everything = False
        for request in requests:
            if request.ref is EVERYTHING_REF:
                accepted += () if everything else self.bulk()
                everything = True
                continue
            try:
                accepted.append(ReconcileRequest(ref_of(request.ref, self._resource), request.reason, request.cause,
                                                 request.bulk))
            except RequestError as error:
                what = f"{request.reason}: {request.ref.resource.full_name}"
                if self._is_new(what, "one" if request.ref.namespace else None):  # once for all namespaces
                    self._logger.error("ignoring a trigger (%s) and all others like it: %s", request.reason, error)
        return accepted


class FirstList:
    """A sink for a watch that is added to a running controller. Requests of the first list are background work."""

    def __init__(self, sink: Sink, on_complete: Callable[[], None]) -> None:
        self._sink = sink
        self._on_complete = on_complete
        self._complete = False

    def sink(self, requests: list[ReconcileRequest]) -> None:
        """Pass on these requests. Raises only what the inner sink raises."""
        if not self._complete:
            requests = [msgspec.structs.replace(request, bulk=True) for request in requests]
        self._sink(requests)

    def completed(self) -> None:
        """Record that the first list is complete, so that later requests come from changes."""
        self._complete = True
        self._on_complete()


def _is_own(ref: ObjectRef, own: ApiResource) -> bool:
    """Whether the ref needs no conversion. Refs are converted so that each object has only one key."""
    return ref.resource is own and (bool(ref.namespace) if own.namespaced else ref.namespace is None)


def ref_of(item: Any, own: ApiResource) -> ObjectRef:
    """The ref of `item` (a ref or an object), with the controller's own kind, version and scope.

    Raises RequestError for anything else.
    """
    ref = item if isinstance(item, ObjectRef) else getattr(item, "ref", None)
    if not isinstance(ref, ObjectRef):
        raise RequestError(f"{type(item).__name__} is neither an object nor an ObjectRef of {own.full_name}")
    if _is_own(ref, own):
        return ref
    if ref.kind != own.kind or ref.group != own.group:
        raise RequestError(f"{ref} is not of the kind {own.full_name} that this controller reconciles")
    if own.namespaced and not ref.namespace:
        raise RequestError(f"{ref} has no namespace, but {own.full_name} are namespaced")
    return ref.canonical(own)
