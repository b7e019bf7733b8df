"""`Inbox`: all that asks for runs of one controller goes through here to its queue, brought to its kind and scope.

    sink_of(origin)     from other watches: `sink`, less what is in none of the controller's namespaces
    sink                from the watches: requests, of which those of another kind are refused with a line in the log
    trigger             from the program: an object or ref; another kind raises
    trigger_everything  from the program: every stored object
    trigger_those       some of them, because they are this replica's from now on
    external, bulk      the same two as requests, for the threads of trigger sources, and for EVERYTHING of a mapper

Safe to use from any thread; never blocks.
"""
from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import msgspec

from kubectl_runtime.core.base.errors import RequestError
from kubectl_runtime.core.base.guard import GuardedLogger
from kubectl_runtime.core.base.interpreter import ForkSafeLock
from kubectl_runtime.core.base.keys import Key
from kubectl_runtime.core.meta.gvk import ApiResource
from kubectl_runtime.core.meta.refs import ObjectRef
from kubectl_runtime.runtime.store.store import Store
from kubectl_runtime.runtime.triggers.triggers import EVERYTHING_REF, ReconcileRequest, Sink

EXTERNAL, BULK = "external trigger", "bulk reconcile requested"

MOST_REPORTED = 100
"""Pairs of a function and a namespace that are logged: one mapper may name thousands."""


class Inbox:
    """Brings what a controller is sent to its own kind, and gives it to the queue. Safe to use from any thread."""

    def __init__(self, resource: ApiResource, store: Store[Any], schedule: Sink, *,
                 logger: GuardedLogger, on_bug: Callable[[str, BaseException], None],
                 namespaces: frozenset[str] = frozenset()) -> None:
        """`schedule` takes requests of `resource`, whose objects `store` keeps: those in `namespaces`, or in all of
        them where that is empty. `on_bug` hears of what it raises."""
        self._resource = resource
        self._store = store
        self._schedule = schedule
        self._logger = logger
        self._on_bug = on_bug
        self._namespaces = namespaces
        self._reporting = ForkSafeLock()
        self._reported: set[tuple[str, str | None]] = set()

    def sink(self, requests: list[ReconcileRequest]) -> None:
        """Schedule these requests. Raises nothing."""
        try:
            accepted = requests if _are_own(requests, self._resource) else self._own(requests)
            if accepted:
                self._schedule(accepted)
        except Exception as error:  # noqa: BLE001 - a defect here: a controller that looks alive and hears nothing
            self._on_bug("the queue", error)

    def sink_of(self, origin: str) -> Sink:
        """A sink for requests that `origin`, a user's function, may make for any object: one that is in none of the
        controller's namespaces is not in its store, so it is ignored, and logged once for each of these namespaces.
        Without an `origin` nothing is logged."""
        return partial(self._sink_from, origin) if self._namespaces else self.sink

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
        own, namespaces = self._resource, self._namespaces
        return (bool(namespaces) and bool(ref.namespace) and ref.namespace not in namespaces
                and ref.kind == own.kind and ref.group == own.group)

    @property
    def _scope(self) -> str:
        return ", ".join(sorted(self._namespaces))

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
                self._logger.error("a trigger (%s) is ignored: %s", request.reason, error)
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


def _are_own(requests: Iterable[ReconcileRequest], own: ApiResource) -> bool:
    """Whether `_is_own` is true for all of them, without a call for each."""
    if own.namespaced:
        return all(request.ref.resource is own and request.ref.namespace for request in requests)
    return all(request.ref.resource is own and request.ref.namespace is None for request in requests)


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
