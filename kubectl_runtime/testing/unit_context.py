"""`context_for`: makes the context of a reconciler for a unit test, in one line.

    ctx = context_for(obj, client=server.client, data=deps, stored=[child])
    assert reconciler.reconcile(obj, ctx) == Action.requeue(300)
    assert ctx.events == [Recorded("BackupFailed", "no space left", warning=True)]

The context is the library's own `Context`. Its stores contain the given objects, and its recorder collects the recorded
Events. Without `client` every request is refused. For requests, pass the client of a `RequestVerifier` or an
`ApiServer`.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from msgspec.structs import replace

from kubectl_runtime.client.api.api import Api
from kubectl_runtime.client.api.client import Client
from kubectl_runtime.core.base.errors import RequestError
from kubectl_runtime.core.base.guard import guarded_logger
from kubectl_runtime.core.base.threads import Clock
from kubectl_runtime.core.codec.views import Record
from kubectl_runtime.core.meta.gvk import ApiResource, GroupVersionKind, HasApiResource, ObjectRef, api_resource_of
from kubectl_runtime.core.meta.selectors import Selector
from kubectl_runtime.core.objects.partial import PartialObjectMeta
from kubectl_runtime.core.objects.resource import Resource
from kubectl_runtime.core.requests.request import Place
from kubectl_runtime.runtime.children.ensure import Found
from kubectl_runtime.runtime.events.recorder import Recorder
from kubectl_runtime.runtime.lifecycle.lifecycle import Shutdown
from kubectl_runtime.runtime.queue.runs import DEFAULT_KEY_BACKOFF, FailureState, Run
from kubectl_runtime.runtime.reads.sources import key_of_read, target_of
from kubectl_runtime.runtime.reconcile.reconciler import Context, Environment
from kubectl_runtime.runtime.store.reflector import store as new_store
from kubectl_runtime.runtime.store.store import Store
from kubectl_runtime.runtime.triggers.triggers import ReconcileRequest
from kubectl_runtime.testing.request_verifier import RequestVerifier

T = TypeVar("T")

NAME = "unit-test"
"""The controller's name, which is also the field manager of writes through `ctx.client`."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """One recorded Event. Two Events are equal if their reason, note and type are equal."""

    reason: str
    note: str
    warning: bool = False
    regarding: Any = field(default=None, compare=False)
    action: str | None = field(default=None, compare=False)
    related: Any = field(default=None, compare=False)


class _Notes(Recorder):
    """A recorder that sends nothing."""

    def __init__(self, client: Client) -> None:
        super().__init__(client, "unit-test")
        self.events: list[Recorded] = []

    def publish(self, regarding: Any, reason: str, note: str, *, warning: bool = False, action: str | None = None,
                related: Any = None) -> None:
        self.events.append(Recorded(reason, note, warning, regarding, action, related))


class _Reads:
    """Reads objects of kinds with a store from the store, and objects of other kinds through the client."""

    def __init__(self, stores: dict[tuple[str, str], Store[Any]], client: Client) -> None:
        self._stores = stores
        self._client = client

    def read(self, run: Run, kind: Any, which: Any, value: Any) -> Any:  # noqa: ARG002 - nothing changes in a test of a run
        target = target_of(kind)
        namespace, name = key_of_read(run, target, which)
        if (store := self._store_of(target.resource)) is not None:
            found = store.record(ObjectRef(target.resource, name, namespace))
            return None if found is None else target.kind.from_record(found)
        return Api(self._client, target.kind, Place(target.resource, namespace)).get_opt(name)

    def read_all(self, run: Run, kind: Any, namespace: str | None, labels: Any,  # noqa: ARG002
                 fields: Any) -> list[Any]:
        target = target_of(kind)
        store = self._store_of(target.resource)
        if store is None or fields:
            api: Any = Api(self._client, target.kind, Place(target.resource, namespace or None))
            return [*api.list_all(label_selector=labels, field_selector=fields)]
        selector = Selector.of(labels)
        found = [record for record in store.records() if selector.matches(record.head.labels)
                 and (not namespace or record.namespace == namespace)]
        return [target.kind.from_record(record)
                for record in sorted(found, key=lambda one: (one.namespace or "", one.name))]

    def _store_of(self, resource: ApiResource) -> Store[Any] | None:
        return self._stores.get((resource.group, resource.kind))


class UnitContext(Context[T]):
    """A `Context` that collects the Events that a reconciler records, and that a test can stop."""

    __slots__ = ("_notes", "_shutdown")

    def __init__(self, environment: Environment[T], run: Run, uid: str, notes: _Notes) -> None:
        super().__init__(environment, run, uid)
        self._notes = notes
        self._shutdown = environment.shutdown

    @property
    def events(self) -> list[Recorded]:
        """The Events recorded so far, in order."""
        return list(self._notes.events)

    def begin_stop(self) -> None:
        """Set `ctx.stop`, as when the grace period of a shutdown nears its end."""
        self._shutdown.abort("the test called begin_stop()")


def context_for(obj: Resource, *, client: Client | None = None, data: T = None,  # type: ignore[assignment]
                stored: Iterable[Resource] = (), kinds: Iterable[type[Resource]] = (), attempt: int = 1,
                reason: str = "unit test", run_timeout: float | None = None, seed: int = 0) -> UnitContext[T]:
    """Make a context for reconciling `obj`.

    `stored`: further objects in the controller's stores, of any kinds; `kinds`: watched kinds whose stores are empty.
    The stores of other kinds cannot be used, as in a controller. `attempt`: 1, or more to simulate earlier failures.
    `run_timeout`: seconds until the run times out, on the client's clock. `seed`: the seed for random choices.

    Raises RequestError for an object that has no name or is not of a resource class, and for an attempt below 1.
    """
    stored = list(stored)
    strange = [each for each in (obj, *stored) if not isinstance(each, Resource) or not each.name]
    if strange or attempt < 1:
        raise RequestError("context_for needs named objects of resource classes, and an attempt of at least 1, not "
                           f"{strange[0] if strange else attempt!r}")
    client = copy.copy(RequestVerifier().client if client is None else client)
    client.write_defaults = replace(client.write_defaults, field_manager=NAME)  # as in a controller's run
    clock, rng = client.clock, random.Random(seed)
    resource = obj.api_resource
    ref = ObjectRef(resource, obj.name, obj.namespace)
    stores, records = _stores([obj, *stored], [type(obj), *kinds], clock)

    watched = _Watched(stores)

    def store_of(kind: HasApiResource | ApiResource) -> Store[Any]:
        asked = api_resource_of(kind)
        found = stores.get((asked.group, asked.kind))
        if found is None:
            raise RequestError(f"{asked.kind} is not watched in this test: add context_for(…, stored=[…]) or kinds=[…]")
        return found

    notes = _Notes(client)
    reads = _Reads(stores, client)
    environment: Environment[T] = Environment(
        controller=NAME, client=client, data=data, logger=guarded_logger(NAME), shutdown=Shutdown(clock),
        backoff=DEFAULT_KEY_BACKOFF, rng=rng, stored=records.get, store_of=store_of, clock=clock, recorder=notes,
        metadata_store_of=lambda kind: watched.metadata_of(store_of(kind)), watched=watched, reads=reads,
        run_timeout=run_timeout)
    state = FailureState(count=attempt - 1) if attempt > 1 else None
    run = Run(ref.key, ReconcileRequest(ref, reason), state, clock.monotonic(), retry=attempt > 1)
    return UnitContext(environment, run, obj.uid, notes)


class _Watched:
    """The kinds that the controller watches and owns: all kinds with a store."""

    def __init__(self, stores: Mapping[tuple[str, str], Store[Any]]) -> None:
        self._stores = stores

    def find(self, resource: ApiResource, namespace: str | None, name: str) -> Found:
        store = self._stores.get((resource.group, resource.kind))
        return Found(None, False, False) if store is None else Found(store.record_at(namespace, name), True, True)

    def owned_by(self, uid: str) -> Iterable[Record]:
        return [record for store in self._stores.values() for record in store.owned_by(uid)]

    def owns(self, resource: ApiResource) -> bool:  # noqa: ARG002  a unit test need not name the kinds
        return True

    def kind_of(self, gvk: GroupVersionKind) -> ApiResource | None:
        return next((store.resource for store in self._stores.values() if store.resource.gvk == gvk), None)

    def metadata_of(self, store: Store[Any]) -> Store[PartialObjectMeta]:
        return store.read_as(PartialObjectMeta.of(store.resource).from_record)


def _stores(objects: Iterable[Resource], kinds: Iterable[type[Resource]],
            clock: Clock) -> tuple[dict[tuple[str, str], Store[Any]], dict[ObjectRef, Record]]:
    """Make a complete store for each kind, and the records of all objects."""
    classes: dict[tuple[str, str], type[Resource]] = {}
    held: dict[tuple[str, str], dict[Any, Record]] = {}
    records: dict[ObjectRef, Record] = {}
    for kind in kinds:
        resource = api_resource_of(kind)
        classes.setdefault((resource.group, resource.kind), kind)
    for each in objects:
        resource = each.api_resource
        classes.setdefault((resource.group, resource.kind), type(each))
        ref = ObjectRef(resource, each.name, each.namespace)
        records[ref] = each.to_record()
        held.setdefault((resource.group, resource.kind), {})[ref.key] = records[ref]
    stores = {}
    for name, kind in classes.items():
        reader, writer = new_store(kind, clock=clock)
        found = held.get(name, {})
        writer.replace(dict(found), dict(found))
        stores[name] = reader
    return stores, records
