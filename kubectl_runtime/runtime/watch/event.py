"""The events of a watcher: `Init`, `InitApply` for each listed object, `InitDone`; then `Apply` and `Delete`.

The raw steps of a watcher contain two more values, which are not events: `Failed`, after which the consumer decides
when to pull again, and `Idle` (simulated transports only).

Events are immutable and equal by content. Inside the runtime their `obj` is a `Record`; user code gets events whose
`obj` is a new object made from the record.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeAlias, TypeGuard, TypeVar

import msgspec

T = TypeVar("T")


class Init(msgspec.Struct, frozen=True, gc=False):
    """A new list begins and replaces everything known.

    If `suspect` is true, equal versions do not prove equal contents. A reflector then compares contents
    as well, and passes on an `Apply` for every listed object, even for an unchanged one.

    >>> Init().suspect
    False
    """

    suspect: bool = False


class InitApply(msgspec.Struct, Generic[T], frozen=True):
    """An object of a list that is not complete yet.

    >>> InitApply(ConfigMap(name="a")).obj.name
    'a'
    """

    obj: T


class InitDone(msgspec.Struct, frozen=True, gc=False):
    """The list is complete: objects missing from it do not exist.

    >>> InitDone() == InitDone()
    True
    """


class Apply(msgspec.Struct, Generic[T], frozen=True):
    """An object was created or changed.

    `previous` is the object's state before the change, if a reflector knew this state. Mappers need the earlier state
    for references that the object no longer has.

    >>> event = Apply(ConfigMap(name="a"))
    >>> event.obj.name, event.previous
    ('a', None)
    """

    obj: T
    previous: T | None = None


class Delete(msgspec.Struct, Generic[T], frozen=True):
    """An object was deleted; `obj` is its last known state.

    >>> Delete(ConfigMap(name="a")).obj.name
    'a'
    """

    obj: T


Event: TypeAlias = Init | InitApply[T] | InitDone | Apply[T] | Delete[T]


class Failed(msgspec.Struct, frozen=True):
    """A request failed; `verb` is `list` or `watch`. `retry_after`: the wait in seconds that the server asks for.

    `away`: the server cannot be reached. The watcher itself waits until the server answers, so no backoff is needed.
    `outage_over`: this is the first failure after an outage, so earlier failures do not count.

    >>> Failed(TransportError("connection refused"), "list").verb
    'list'
    """

    error: Exception
    verb: str = "watch"
    retry_after: float = 0.0
    away: bool = False
    outage_over: bool = False


class Idle(msgspec.Struct, frozen=True, gc=False):
    """No step is ready: the consumer must pull again later."""


MAX_RETRY_AFTER = 300.0
"""In seconds. A longer `Retry-After` is cut to this value, since it could stop a watch for a day."""

INIT, INIT_DONE, IDLE = Init(), InitDone(), Idle()
"""The events without content; one instance of each is enough."""

CARRIERS = (Apply, Delete, InitApply)
"""The events that carry an object. This is a tuple because the check runs for each event, and
`isinstance(event, Apply | Delete)` builds the union again at every call, which takes six times as long."""

RawStep: TypeAlias = Event[T] | Failed | Idle
"""What the raw steps of a watcher yield."""


def is_event(item: object) -> TypeGuard[Event[Any]]:
    """Whether this is an `Event`."""
    return isinstance(item, (*CARRIERS, Init, InitDone))


def obj_of(event: Event[Any]) -> Any:
    """The object that an event carries; None for `Init` and `InitDone`."""
    return getattr(event, "obj", None)


def with_obj(event: Event[Any], change: Callable[[Any], Any]) -> Event[Any]:
    """A copy of the event that carries `change(obj)`; an event without an object is returned unchanged."""
    if isinstance(event, Apply):
        previous = event.previous
        return Apply(change(event.obj), None if previous is None else change(previous))
    if isinstance(event, CARRIERS):
        return type(event)(change(event.obj))
    return event
