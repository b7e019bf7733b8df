"""From an event to the keys that have to be reconciled.

A *subscription* is any `Callable[[Event], Iterable[ReconcileRequest]]`. Here are the three usual ones:

    trigger_self     the object itself
    trigger_owners   each owner of the wanted group and kind, brought to the owner's own version and scope
    trigger_others   whatever a mapper names: none, one, many, or EVERYTHING

The last two also look at the previous state of a changed object, if the event has it: an owner that lost its child, and
whatever an object no longer refers to, have to hear of that. A predicate decides which events they look at.

All of them answer to `InitApply`, `Apply` and `Delete`, and to nothing else: a deletion concerns the owners as much
as a change does, and for the object itself it is how its queue learns that there is nothing left to keep. They keep
no state and are safe to use from any thread.

`Subscriber`: one subscription of a watch, and where its requests go.

    idle         deliver(changes): the calling thread works through them
    delivering   deliver(changes): queued; the thread that is at work takes them next. The watch's thread takes its
                 place, once it has worked through what it came with: another thread would never come to an end while
                 changes come faster than they are worked through, and the watch has to be held up then

So each subscription sees all changes in order and one at a time, whichever threads bring them: the watch's own, and
for the objects that were stored before it came, the one that subscribed. No lock is held while user code runs. What
user code raises is reported, and the next event follows; code that takes longer than 100 ms is named in the log,
since it holds up the watch. Ctrl-C in the main thread, which brings changes when it subscribes and when it deletes,
passes: a thread that is begun for it goes on with the event that was interrupted.

`Inbox`: all that asks for runs of one controller goes through here to its queue, brought to its kind and scope.

    sink_of(origin)     from other watches: `sink`, less what is in none of the controller's namespaces
    sink                from the watches: requests, of which those of another kind are refused with a line in the log
    trigger             from the program: an object or ref; another kind raises
    trigger_everything  from the program: every stored object
    trigger_those       some of them, because they are this replica's from now on
    external, bulk      the same two as requests, for the threads of trigger sources, and for EVERYTHING of a mapper

Safe to use from any thread; never blocks.
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

from kubectl_runtime.core.base.clock import Clock
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
from kubectl_runtime.core.base.interpreter import ForkSafeLock, Thread
from kubectl_runtime.core.base.plain import Key
from kubectl_runtime.core.base.stop import StopToken
from kubectl_runtime.core.codec.views import Record
from kubectl_runtime.core.meta.gvk import ApiResource, HasApiResource, ObjectRef, api_resource_of
from kubectl_runtime.core.meta.metav1 import OwnerReference
from kubectl_runtime.core.objects.partial import InvalidObject
from kubectl_runtime.core.requests.request import HasRef
from kubectl_runtime.runtime.store.store import Store
from kubectl_runtime.runtime.triggers.predicates import ObjectEvent, Predicate, object_event
from kubectl_runtime.runtime.watch.event import CARRIERS, INIT, Apply, Delete, Event, InitApply, obj_of, with_obj

K = TypeVar("K")


class Reason(StrEnum):
    """Why a key is to be reconciled, for logs and metrics."""

    OBJECT_UPDATED = "object updated"
    OBJECT_DELETED = "object deleted"
    """Its queue forgets the object; nothing runs."""
    OBJECT_GONE = "object gone"
    """Something is to run for it nevertheless."""
    RELATED_OBJECT_UPDATED = "related object updated"
    RELATED_OBJECT_DELETED = "related object deleted"


class ReconcileRequest(msgspec.Struct, frozen=True, gc=False):
    """Reconcile `ref`, because of `reason`. `cause`: uid and resourceVersion of the changed object that led to it.

    `bulk`: everything was asked for at once, so it may wait for what was asked for alone.

    >>> ref = Api.namespaced(client, ConfigMap, "default").get("settings").ref
    >>> ReconcileRequest(ref, "a schedule").reason
    'a schedule'
    """

    ref: ObjectRef
    reason: str = ""
    cause: tuple[str, str] | None = None
    bulk: bool = False


Subscription: TypeAlias = Callable[[Event[Any]], Iterable[ReconcileRequest]]
"""Called by the watch's thread for each event; must not block. It sees `Apply`, `Delete` and `InitDone`."""

class OfHeads:
    """A subscription that looks at nothing but names and versions. A watch gives it the stored records as they are:
    no reader has to be made for it."""

    __slots__ = ("requests",)

    def __init__(self, requests: Subscription) -> None:
        self.requests = requests

    def __call__(self, event: Event[Any]) -> Iterable[ReconcileRequest]:
        return self.requests(event)


Sink: TypeAlias = Callable[[list[ReconcileRequest]], None]
"""Takes the requests of one batch of events, in order; never called with an empty list. Must not block or raise."""

class Everything(Enum):
    """What a mapper returns, as `EVERYTHING`, to have every object of its controller reconciled.

    >>> def mapper(settings: ConfigMap):
    ...     return EVERYTHING if settings.name == "settings" else []
    >>> mapper(ConfigMap(name="settings")) is EVERYTHING
    True
    """

    EVERYTHING = "everything"


EVERYTHING = Everything.EVERYTHING
"""What a mapper returns when the change concerns every object that the controller reconciles."""

EVERYTHING_REF = ObjectRef(ApiResource("", "", "*", "*"), "*")
"""In a request: all of them. The controller's inbox, which knows them, puts them in its place, once for a batch."""

Concerned: TypeAlias = ObjectRef | HasRef | Everything
Mapped: TypeAlias = Iterable[Concerned] | Concerned | None
Mapper: TypeAlias = Callable[[K], Mapped]
"""From a related object to what it concerns: refs or objects, a single one, EVERYTHING, or None."""
EventMapper: TypeAlias = Callable[[ObjectEvent[K]], Mapped]
"""The same from an event: both states at once, and whether it is a deletion."""

On: TypeAlias = Literal["object", "event"]


def trigger_self(resource: HasApiResource | ApiResource, *, predicate: Predicate[Any] | None = None,
                 run_gone: bool = False) -> Subscription:
    """Each touched object of `resource` asks for itself, if `predicate` lets it pass.

    A deletion always asks its queue to forget the object. With `run_gone` one that passes asks for a run as well.
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
        about = obj.head if isinstance(obj, Record) else obj  # the same names, without a property around each
        ref = ObjectRef(own, about.name, (about.namespace or None) if namespaced else None)
        request = ReconcileRequest(ref, deleted if is_deletion else updated, _version(about))
        if is_deletion and run_gone and passes:
            return (request, ReconcileRequest(ref, Reason.OBJECT_GONE))
        return (request,)

    return OfHeads(requests) if predicate is None else requests


def trigger_owners(owner: HasApiResource | ApiResource, *, predicate: Predicate[Any] | None = None,
                   controller_only: bool = False) -> Subscription:
    """Each touched object that passes asks for its owners of this group and kind, with `controller_only` for the one
    that controls it.

    The version in an owner reference is ignored, and a cluster-scoped owner gets no namespace. The uid is not
    compared: a reference to a namesake that is gone leads to a run that finds nothing to do, which is cheaper than a
    missed one (the namesake may wait for this name to become free).
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
    """A mapper for `watches`: the owners of this kind that an object names, as refs.

    `.owns(api)` does the same and keeps metadata alone. The version in an owner reference is ignored, and a
    cluster-scoped owner gets no namespace. Raises RequestError for what is no kind.

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
    """Each touched object that passes asks for what `mapper` makes of it: of each of its states, or with `on="event"`
    of the `ObjectEvent`. Objects that could not be decoded are not shown to it.

    The mapper is user code: it runs in the watch's thread, without a lock, must not block, and what it raises is
    reported and does not end the watch.
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
    """Raise RequestError for a mapper that cannot be called with one argument, and for another `on`."""
    if on not in ("object", "event"):
        raise RequestError(f'a mapper is called on="object" or on="event", not {on!r}')
    if not callable(mapper):
        raise RequestError("a mapper is a function from an object to ObjectRefs, one ref, EVERYTHING or None, not "
                           f"{mapper!r}")
    if (wrong := misfit(mapper, ("an event" if on == "event" else "an object",), may_yield=True)) is not None:
        raise RequestError(f"the mapper {name_of(mapper)} {wrong}")


def _refs(found: Mapped) -> Iterator[ObjectRef]:
    """What a mapper returned, one by one. Raises TypeError for what is not a ref: it comes from user code."""
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
            raise TypeError("a mapper returns ObjectRefs or objects, one or many, EVERYTHING, or None: "
                            f"ObjectRef.of(Kind, name, namespace); not {type(ref).__name__}")


def named_after(function: Any, wrapper: Subscription) -> Subscription:
    """`wrapper`, under the name of the user's function that it calls."""
    for attribute in ("__module__", "__name__", "__qualname__"):
        setattr(wrapper, attribute, getattr(function, attribute, None) or getattr(type(function), attribute))
    return wrapper


def _valid(event: ObjectEvent[Any]) -> ObjectEvent[Any]:
    """Without a previous state that could not be decoded."""
    return ObjectEvent(event.obj, None, event.deleted) if isinstance(event.old, InvalidObject) else event


def _states(event: Apply[Any] | InitApply[Any] | Delete[Any]) -> Iterator[Any]:
    """The object as it is now, and as it was before where that is known."""
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
"""User code in a watch's thread that takes longer is logged by name."""

LOST = "nothing more is reconciled because of this event"

CHUNK = 500
"""Events after which the requests made so far are passed on: a long list must not keep the first ones waiting."""


BACKLOG = 10_000
"""Changes that wait for one subscription; more are logged, once."""

LOOK_SECONDS = 0.1
"""Between two looks of a waiting thread at the stop token."""


class Subscriber:
    """Delivers what a watch sees to one subscription, in order. Safe to use from any thread."""

    def __init__(self, subscription: Subscription, sink: Sink, read: Callable[[Record], Any], clock: Clock,
                 stop: StopToken, on_complete: Callable[[], None], logger: GuardedLogger | None = None) -> None:
        """`on_complete` is for the watch to call, when a list is complete. `logger`: the one of the controller that the
        subscription triggers; then the log says what it costs that something raised."""
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
        self._queue: deque[Sequence[Event[Record]]] = deque()
        self._waiting = 0
        """Changes in the queue."""
        self._backlog_logged = False
        self._worker: int | None = threading.get_ident()
        """The thread that delivers; None: no thread does."""
        self._is_beginning = True
        """Whether that thread still works through what it came with."""
        self._is_wanted = False
        """Whether the watch's thread waits for its place."""
        self._cancelled = False
        self._current: Event[Record] = INIT
        """What the subscription is given at the moment. Of the thread that delivers."""
        self._interrupted: Sequence[Event[Record]] = ()

    def begin(self, changes: Sequence[Event[Record]]) -> None:
        """Deliver `changes`, then what has come since the subscriber was made. To be called exactly once."""
        self._work(changes)

    def deliver(self, changes: Sequence[Event[Record]], *, by_watch: bool = False) -> None:
        """Pass `changes` through the subscription, after all that came before. `by_watch`: the calling thread is the
        watch's, which takes the place of another one that delivers; it waits for the call in progress."""
        with self._turn:
            mine, waiting = self._taken(changes, by_watch), self._waiting
        if mine is not None:
            self._work(mine)
        elif waiting > BACKLOG and not self._backlog_logged:
            self._backlog_logged = True
            self._log.warning("%s is slower than changes come: %d of them wait until it has got what was stored when "
                              "it subscribed", self._name, waiting)

    def _taken(self, changes: Sequence[Event[Record]], by_watch: bool) -> Sequence[Event[Record]] | None:
        """What the calling thread has to work through first; None when another one does, or nothing is left."""
        if not self._is_idle:
            self._queue.append(changes)
            self._waiting += len(changes)
            if not by_watch or self._is_beginning or self._worker == threading.get_ident():
                return None
            self._is_wanted = True
            while not self._turn.wait_for(lambda: self._is_idle or self._is_over, LOOK_SECONDS):
                pass  # nothing notifies of a stop
            self._is_wanted = False
            if self._worker is not None or not self._queue:
                return None
            changes = self._next()
        elif self._queue:  # what an interrupted thread has left
            self._queue.append(changes)
            self._waiting += len(changes)
            changes = self._next()
        self._worker, self._is_beginning = threading.get_ident(), True
        return changes

    def complete(self) -> None:
        """A complete list was delivered."""
        if not self._cancelled and not self._stop.is_set():
            self._on_complete()

    def cancel(self) -> None:
        """Deliver nothing more; the call in progress is finished."""
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
            except BaseException as error:  # the person at the keyboard, who must not wait for what is left
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
        self._waiting -= len(changes)
        return changes

    def _pass(self, changes: Sequence[Event[Record]]) -> None:
        requests: list[ReconcileRequest] = []
        left = iter(changes)
        try:
            # Guarded as a whole and gone on with after what raised, as a guard around each event would cost each event.
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
        with contextlib.suppress(RuntimeError):  # no more threads: with the next change
            Thread(target=self.deliver, args=((),), name=f"rest of {self._name}", daemon=True).start()

    def _collect(self, changes: Iterator[Event[Record]], requests: list[ReconcileRequest]) -> bool:
        """Add to `requests` what follows from `changes`; True when there are no more of them."""
        monotonic, subscription, read = self._clock.monotonic, self._subscription, self._read
        if read is None:  # the library's own, which calls nobody: there is no slowness to tell of
            for change in changes:
                self._current = change
                requests.extend(subscription(change))
            return True
        began = monotonic()
        for change in changes:
            self._current = change
            try:
                # The reader is made for this subscription alone: what it changes in it, nobody else sees.
                requests.extend(subscription(with_obj(change, read)))
            finally:
                if (ended := monotonic()) - began > SLOW_SECONDS:
                    self._log.warning("%s took %.0f ms for %s: what a watch calls must not block, or its "
                                      "events come late", self._name, (ended - began) * 1000, described_event(change))
                    ended = monotonic()
                began = ended
        return True

    def _given(self, *_: object) -> str:
        return described_event(self._current) + self._lost


def described_event(change: Event[Any]) -> str:
    """An event in the words of the log: `Apply of ` and the ref of its object, or what a view says of itself."""
    obj = obj_of(change)
    return type(change).__name__ if obj is None else f"{type(change).__name__} of {getattr(obj, 'ref', obj)}"


EXTERNAL, BULK = "external trigger", "bulk reconcile requested"

MOST_REPORTED = 100
"""Pairs of a function and a namespace that are logged: one mapper may name thousands."""


class Inbox:
    """Brings what a controller is sent to its own kind, and gives it to the queue. Safe to use from any thread."""

    def __init__(self, resource: ApiResource, store: Store[Any], schedule: Sink, *,
                 logger: GuardedLogger, on_bug: Callable[[str, BaseException], None],
                 namespaces: frozenset[str] = frozenset(), pattern: str = "") -> None:
        """`schedule` takes requests of `resource`, whose objects `store` keeps: those in `namespaces` or in namespaces
        like `pattern`; in all of them where both are empty. `on_bug` hears of what it raises."""
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
        """Whether `_is_own` is true for all of them, without a call for each."""
        own = self._resource
        if self._namespaced:
            return all(request.ref.resource is own and request.ref.namespace for request in requests)
        return all(request.ref.resource is own and request.ref.namespace is None for request in requests)

    def sink(self, requests: list[ReconcileRequest]) -> None:
        """Schedule these requests. Raises nothing."""
        try:
            accepted = requests if self._are_own(requests) else self._own(requests)
            if accepted:
                self._schedule(accepted)
        except Exception as error:  # noqa: BLE001 - a defect here: a controller that looks alive and hears nothing
            self._on_bug("the queue", error)

    def sink_of(self, origin: str) -> Sink:
        """A sink for requests that `origin`, a user's function, may make for any object: one that is in none of the
        controller's namespaces is not in its store, so it is ignored, and logged once for each of these namespaces.
        Without an `origin` nothing is logged."""
        return partial(self._sink_from, origin) if self._namespaces or self._pattern else self.sink

    def trigger(self, item: Any) -> None:
        """Reconcile an object or ref. Raises RequestError when it is not of the controller's kind and namespaces."""
        self.sink(self.external(item))

    def trigger_everything(self) -> None:
        """Reconcile every stored object."""
        self.sink(self.bulk())

    def trigger_those(self, of: Callable[[Key], bool]) -> None:
        """Reconcile every stored object whose key `of` is true for."""
        if requests := [request for request in self.bulk() if of(request.ref.key)]:
            self.sink(requests)

    def external(self, item: Any) -> list[ReconcileRequest]:
        """The request for an object or ref. Raises RequestError when it is not of the controller's kind and namespaces.
        """
        ref = ref_of(item, self._resource)
        if self._is_elsewhere(ref):
            raise RequestError(f"{ref} is in none of the controller's namespaces, {self._scope}")
        return [ReconcileRequest(ref, EXTERNAL)]

    def bulk(self, _item: Any = None) -> list[ReconcileRequest]:
        """Requests for every stored object, whatever the item is that asks for them."""
        own = self._resource
        return [ReconcileRequest(record.ref.canonical(own), BULK, bulk=True) for record in self._store.records()]

    def _sink_from(self, origin: str, requests: list[ReconcileRequest]) -> None:
        inside = []
        for request in requests:
            if not self._is_elsewhere(request.ref):
                inside.append(request)
            elif origin and self._is_new(origin, request.ref.namespace):
                self._logger.warning("%s triggers %s, but this controller reconciles the namespaces %s alone: what it "
                                     "triggers in %s is ignored", origin, request.ref, self._scope,
                                     request.ref.namespace)
        if inside:
            self.sink(inside)

    def _is_new(self, origin: str, namespace: str | None) -> bool:
        with self._reporting:
            known = len(self._reported)
            if known < MOST_REPORTED:
                self._reported.add((origin, namespace))
            return len(self._reported) > known

    def _is_elsewhere(self, ref: ObjectRef) -> bool:
        """Whether it is of the controller's kind, and in none of its namespaces."""
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
                if self._is_new(what, "one" if request.ref.namespace else None):  # whichever: others fail alike
                    self._logger.error("a trigger (%s) is ignored, and so are others like it: %s", request.reason,
                                       error)
        return accepted


class FirstList:
    """A sink for a watch that comes to a controller which runs: what its first list asks for is no news, but bulk."""

    def __init__(self, sink: Sink, on_complete: Callable[[], None]) -> None:
        self._sink = sink
        self._on_complete = on_complete
        self._complete = False

    def sink(self, requests: list[ReconcileRequest]) -> None:
        """Pass these on. Raises nothing that the sink below does not."""
        if not self._complete:
            requests = [msgspec.structs.replace(request, bulk=True) for request in requests]
        self._sink(requests)

    def completed(self) -> None:
        """A list is complete: from now on changes come."""
        self._complete = True
        self._on_complete()


def _is_own(ref: ObjectRef, own: ApiResource) -> bool:
    """Whether nothing has to be done with it: of one object there is one key."""
    return ref.resource is own and (bool(ref.namespace) if own.namespaced else ref.namespace is None)


def ref_of(item: Any, own: ApiResource) -> ObjectRef:
    """The ref that `item` (a ref or an object) names, of the controller's own kind, version and scope.

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
