"""The events of a watcher: `Init`, `InitApply` for each listed object, `InitDone`; then `Apply` and `Delete`.

The raw steps of a watcher have two more values, which are not events: `Failed`, after which the consumer decides when
to pull again, and `Idle` (simulated transports only).

Immutable, equal by content. `obj` is a `Record` inside the runtime and a fresh reader of a record outside it.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeAlias, TypeGuard, TypeVar

import msgspec

T = TypeVar("T")


class Init(msgspec.Struct, frozen=True, gc=False):
    """A new list begins, which replaces everything known. `suspect`: equal versions do not prove equal contents, so
    contents are compared and everything counts as changed.

    >>> Init().suspect
    False
    """

    suspect: bool = False


class InitApply(msgspec.Struct, Generic[T], frozen=True):
    """An object of the list that is being received.

    >>> InitApply(ConfigMap(name="a")).obj.name
    'a'
    """

    obj: T


class InitDone(msgspec.Struct, frozen=True, gc=False):
    """The list is complete: objects that it did not contain do not exist.

    >>> InitDone() == InitDone()
    True
    """


class Apply(msgspec.Struct, Generic[T], frozen=True):
    """An object was created or changed. `previous` is its state before, if a reflector knew it: mappers need it for
    references that the object no longer has.

    >>> event = Apply(ConfigMap(name="a"))
    >>> event.obj.name, event.previous
    ('a', None)
    """

    obj: T
    previous: T | None = None


class Delete(msgspec.Struct, Generic[T], frozen=True):
    """An object is gone; `obj` is how it was last seen.

    >>> Delete(ConfigMap(name="a")).obj.name
    'a'
    """

    obj: T


Event: TypeAlias = Init | InitApply[T] | InitDone | Apply[T] | Delete[T]


class Failed(msgspec.Struct, frozen=True):
    """An attempt failed: a `list` or a `watch`, as `verb` says. `retry_after`: seconds that the server asks to wait.

    `away`: the server cannot be reached, and the watcher itself waits until it answers: no backoff is needed.
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
    """Nothing is ready: pull again later."""


MAX_RETRY_AFTER = 300.0
"""Seconds. A longer `Retry-After` is cut to this: otherwise nothing would be watched for a day."""

INIT, INIT_DONE, IDLE = Init(), InitDone(), Idle()
"""The events without content; one instance of each is enough."""

CARRIERS = (Apply, Delete, InitApply)
"""The events that carry an object. A tuple, since this is checked for each event: `isinstance(event, Apply | Delete)`
makes the union again at every call, which takes six times as long."""

RawStep: TypeAlias = Event[T] | Failed | Idle
"""What the raw steps of a watcher yield."""


def is_event(item: object) -> TypeGuard[Event[Any]]:
    """Whether this is an `Event`."""
    return isinstance(item, (*CARRIERS, Init, InitDone))


def obj_of(event: Event[Any]) -> Any:
    """The object that an event carries; None for `Init` and `InitDone`."""
    return getattr(event, "obj", None)


def with_obj(event: Event[Any], change: Callable[[Any], Any]) -> Event[Any]:
    """The same event about `change(obj)`; events without an object are returned as they are."""
    if isinstance(event, Apply):
        previous = event.previous
        return Apply(change(event.obj), None if previous is None else change(previous))
    if isinstance(event, CARRIERS):
        return type(event)(change(event.obj))
    return event
