"""From an event to the keys that have to be reconciled.

A *subscription* is any `Callable[[Event], Iterable[ReconcileRequest]]`. Here are the three usual ones:

    trigger_self     the object itself
    trigger_owners   each owner of the wanted group and kind, brought to the owner's own version and scope
    trigger_others   whatever a mapper names: none, one or many

The last two also look at the previous state of a changed object, if the event has it: an owner that lost its child, and
whatever an object no longer refers to, have to hear of that.

All of them answer to `InitApply`, `Apply` and `Delete`, and to nothing else: a deletion concerns the owners as much
as a change does, and for the object itself it is how its queue learns that there is nothing left to keep. They keep
no state and are safe to use from any thread.
"""
from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from enum import StrEnum
from typing import Any, TypeAlias, TypeVar

import msgspec

from kubectl_runtime.core.meta.gvk import ApiResource, HasApiResource, api_resource_of
from kubectl_runtime.core.meta.metav1 import OwnerReference
from kubectl_runtime.core.meta.refs import ObjectRef
from kubectl_runtime.core.objects.invalid import InvalidObject
from kubectl_runtime.runtime.watcher.event import Apply, Delete, Event, InitApply

K = TypeVar("K")


class Reason(StrEnum):
    """Why a key is to be reconciled, for logs and metrics."""

    OBJECT_UPDATED = "object updated"
    OBJECT_DELETED = "object deleted"
    RELATED_OBJECT_UPDATED = "related object updated"
    RELATED_OBJECT_DELETED = "related object deleted"


class ReconcileRequest(msgspec.Struct, frozen=True):
    """Reconcile `ref`, because of `reason`. `cause`: uid and resourceVersion of the changed object that led to it.

    `bulk`: everything was asked for at once, so it may wait for what was asked for alone.
    """

    ref: ObjectRef
    reason: str = ""
    cause: tuple[str, str] | None = None
    bulk: bool = False


Subscription: TypeAlias = Callable[[Event[Any]], Iterable[ReconcileRequest]]
"""Called by the watch's thread for each event; must not block. It sees `Apply`, `Delete` and `InitDone`."""

Sink: TypeAlias = Callable[[list[ReconcileRequest]], None]
"""Takes the requests of one batch of events, in order; never called with an empty list. Must not block or raise."""

Mapper: TypeAlias = Callable[[K], Iterable[ObjectRef] | ObjectRef | None]
"""From a related object to the refs it concerns: an iterable of them, a single one, or None."""


def trigger_self(resource: HasApiResource | ApiResource) -> Subscription:
    """Each touched object of `resource` asks for itself."""
    own = api_resource_of(resource)

    def requests(event: Event[Any]) -> Iterable[ReconcileRequest]:
        if not isinstance(event, Apply | InitApply | Delete):
            return ()
        obj = event.obj
        reason = Reason.OBJECT_DELETED if isinstance(event, Delete) else Reason.OBJECT_UPDATED
        ref = ObjectRef(own, obj.name, obj.namespace if own.namespaced else None)
        return (ReconcileRequest(ref, reason, _version(obj)),)

    return requests


def trigger_owners(owner: HasApiResource | ApiResource) -> Subscription:
    """Each touched object asks for its owners of this group and kind.

    The version in an owner reference is ignored, and a cluster-scoped owner gets no namespace. The uid is not
    compared: a reference to a namesake that is gone leads to a run that finds nothing to do, which is cheaper than a
    missed one.
    """
    own = api_resource_of(owner)

    def requests(event: Event[Any]) -> Iterable[ReconcileRequest]:
        if not isinstance(event, Apply | InitApply | Delete):
            return ()
        obj = event.obj
        if isinstance(obj, InvalidObject):
            return ()
        namespace = obj.namespace if own.namespaced else None
        reason = _related(event)
        return [ReconcileRequest(ObjectRef(own, reference.name, namespace), reason, _version(obj))
                for reference in _owners(event) if reference.kind == own.kind and reference.group == own.group]

    return requests


def trigger_others(mapper: Mapper[Any]) -> Subscription:
    """Each touched object asks for what `mapper` makes of it. Objects that could not be decoded are not shown to it.

    The mapper is user code: it runs in the watch's thread, without a lock, must not block, and what it raises is
    reported and does not end the watch.
    """

    def requests(event: Event[Any]) -> Iterable[ReconcileRequest]:
        if not isinstance(event, Apply | InitApply | Delete) or isinstance(event.obj, InvalidObject):
            return
        reason, cause = _related(event), _version(event.obj)
        seen = set()
        for obj in _states(event):
            for ref in _refs(mapper(obj)):
                if ref not in seen:
                    seen.add(ref)
                    yield ReconcileRequest(ref, reason, cause)

    return named_after(mapper, requests)


def _refs(found: Iterable[ObjectRef] | ObjectRef | None) -> Iterator[ObjectRef]:
    """What a mapper returned, one by one. Raises TypeError for what is no ref: it comes from user code."""
    if found is None:
        return
    for ref in found if isinstance(found, Iterable) else (found,):
        if not isinstance(ref, ObjectRef) or not isinstance(ref.resource, ApiResource):
            raise TypeError("a mapper returns ObjectRefs, one or many, or None: ObjectRef.of(Kind, name, namespace); "
                            f"not {type(ref).__name__}")
        yield ref


def named_after(function: Any, wrapper: Subscription) -> Subscription:
    """`wrapper`, under the name of the user's function that it calls."""
    for attribute in ("__module__", "__name__", "__qualname__"):
        setattr(wrapper, attribute, getattr(function, attribute, None) or getattr(type(function), attribute))
    return wrapper


def _states(event: Apply[Any] | InitApply[Any] | Delete[Any]) -> Iterator[Any]:
    """The object as it is now, and as it was before where that is known."""
    yield event.obj
    previous = event.previous if isinstance(event, Apply) else None
    if previous is not None and not isinstance(previous, InvalidObject):
        yield previous


def _owners(event: Apply[Any] | InitApply[Any] | Delete[Any]) -> Iterable[OwnerReference]:
    return dict.fromkeys(reference for obj in _states(event) for reference in obj.owner_references)


def _related(event: Event[Any]) -> Reason:
    return Reason.RELATED_OBJECT_DELETED if isinstance(event, Delete) else Reason.RELATED_OBJECT_UPDATED


def _version(obj: Any) -> tuple[str, str] | None:
    uid, version = obj.uid, obj.resource_version
    return (uid, version) if uid and version else None
