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
"""
from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from enum import Enum, StrEnum
from typing import Any, Literal, TypeAlias, TypeVar

import msgspec

from kubectl_runtime.core.base.errors import RequestError
from kubectl_runtime.core.codec.record import Record
from kubectl_runtime.core.meta.gvk import ApiResource, HasApiResource, api_resource_of
from kubectl_runtime.core.meta.metav1 import OwnerReference
from kubectl_runtime.core.meta.refs import ObjectRef
from kubectl_runtime.core.objects.invalid import InvalidObject
from kubectl_runtime.core.requests.names import HasRef
from kubectl_runtime.runtime.triggers.predicates import ObjectEvent, Predicate, object_event
from kubectl_runtime.runtime.usercode import misfit, name_of, not_awaitable
from kubectl_runtime.runtime.watcher.event import CARRIERS, Apply, Delete, Event, InitApply

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
            for ref in _refs(not_awaitable(given(shown), mapper)):
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
    if (wrong := misfit(mapper, ("an event" if on == "event" else "an object",))) is not None:
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
