"""The watches that a controller uses, and the stores that they fill.

`add_all` and `add_one` take a watch for each scope of a plan: a watch that the controller already uses, or another one,
which other controllers may share. `store_of` prefers stores of whole objects.
"""
from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterable, Sequence
from itertools import count
from typing import Any, TypeAlias

from kubectl_runtime.client.api.client import OwnWrites
from kubectl_runtime.core.base.errors import RequestError
from kubectl_runtime.core.base.threads import ForkSafeLock
from kubectl_runtime.core.codec.views import Record
from kubectl_runtime.core.meta.gvk import ApiResource, GroupVersionKind, HasApiResource, ObjectRef, api_resource_of
from kubectl_runtime.core.objects.partial import PartialObjectMeta, PartialView
from kubectl_runtime.runtime.children.ensure import Found
from kubectl_runtime.runtime.controller.plan import (
    Plan,
    Planned,
    WatchPlan,
    WatchScope,
    fullest,
    scopes_of,
)
from kubectl_runtime.runtime.store.store import Store, StoreState
from kubectl_runtime.runtime.triggers.shared_watches import Share, Watch, shared_watches
from kubectl_runtime.runtime.watch.backoff import WatchTarget
from kubectl_runtime.runtime.watch.config import WatcherConfig

Searched: TypeAlias = tuple[Store[Any], bool, bool]
"""The store of one watch, whether the watch has selectors, and whether the store has whole objects."""


class TakenWatches:
    """The watches that a controller uses, and their stores. One thread at a time may change it; any thread may read
    it."""

    def __init__(self, plan: Plan, on_bug: Callable[[str, BaseException], None], rng: random.Random) -> None:
        """`on_bug` gets exceptions that are defects of the library in a watch. `rng` chooses the jitter of the watch
        backoff."""
        self._plan = plan
        self._on_bug = on_bug
        self._rng = rng
        self._lock = ForkSafeLock()
        """Held while watches are added or dropped."""
        self.shares: dict[str, Share] = {}
        self.planned: list[Planned] = []
        """One entry for each scope of each plan."""
        self._stores: dict[tuple[str, str], Store[Any]] = {}
        self._partial: set[tuple[str, str]] = set()
        """The kinds whose stores have only parts of objects."""
        self._views: dict[type, Store[Any]] = {}
        """By view class: the store of the first plan with that class."""
        self._fed: list[Store[Any]] = []
        self._indexing: list[WatchPlan] = []
        """The plans that have indexes."""
        self._metadata: dict[tuple[str, str], tuple[Store[Any], Store[PartialObjectMeta]]] = {}
        """By kind: a store of whole objects, and the same store read as metadata."""
        self._owned: dict[str, Store[Any]] = {}
        """By watch: the store that finds the objects of an owner."""
        self._overlays = plan.options.own_writes is OwnWrites.OVERLAY
        self._known: dict[tuple[str, str, str | None], tuple[Searched, ...]] = {}
        """The stores that may contain children, by group, kind and namespace. Cleared when a watch is added."""
        self._store_of_plan: list[tuple[WatchPlan, Store[Any]]] = []
        self._changing = threading.Lock()
        """Held briefly while `shares` or `planned` is replaced."""
        self.leaving: list[threading.Thread] = []
        """The threads of released watches; they may not have ended yet."""

    def take_more(self, api: Any, config: WatcherConfig) -> Planned:
        """Take a watch for reads of this kind, if possible an existing one. The watch's store serves only reads."""
        metadata = api.with_metadata_only()
        scope = WatchScope(WatchPlan(metadata, config, lambda _event: ()), metadata)
        with self._lock:
            return self._served(scope, [*(known.scope for known in self.planned), scope], self.planned)

    def drop(self, share: Share, reason: str) -> None:
        """Release a watch, unless another part of the controller uses it."""
        with self._lock:
            if any(one.share is share for one in self.planned):
                return
            with self._changing:
                self.shares = {other: known for other, known in self.shares.items() if known is not share}
        share.release(reason)

    @property
    def watches(self) -> dict[str, Watch[Any]]:
        """The watches by name. A watch's name describes its target."""
        return {name: share.watch for name, share in self.shares.items()}

    def add_all(self, plans: Sequence[WatchPlan]) -> None:
        """Add all plans of the start together. Plans for the same objects then share the fullest watch that any of
        these plans requests."""
        scopes = scopes_of(*plans)
        for plan in plans:
            self._add(plan, scopes)

    def add_one(self, plan: WatchPlan) -> list[Planned]:
        """Add one plan. Returns the new entries of `planned`."""
        with self._lock:
            return self._add_one(plan)

    def _add_one(self, plan: WatchPlan) -> list[Planned]:
        before = len(self.planned)
        self._add(plan, [*(known.scope for known in self.planned), *scopes_of(plan)])
        return self.planned[before:]

    def add_part(self, plans: Sequence[WatchPlan]) -> list[Planned]:
        """Take more watches for these plans. The watched objects are not visible in the stores yet. Returns the new
        entries of `planned`."""
        served: list[Planned] = []
        with self._lock:
            self._serve(plans, scopes_of(*plans), served, among=())
        return served

    def drop_part(self, planned: Sequence[Planned], reason: str) -> None:
        """Release the watches of a part. Does not block."""
        shares, gone = {one.share for one in planned}, {id(one) for one in planned}
        with self._lock, self._changing:
            self.planned = [one for one in self.planned if id(one) not in gone]
            dropped = {id(self._owned.pop(one.name)) for one in planned if one.name in self._owned}
            self._fed = [store for store in self._fed if id(store) not in dropped]
            self._known = {}
            self.shares = {name: share for name, share in self.shares.items() if share not in shares}
        for share in shares:
            share.release(reason)
        threads = [share.thread for share in shares if share.thread is not None and share.ends]
        with self._changing:
            self.leaving = [*(thread for thread in self.leaving if thread.is_alive()), *threads]

    def show(self, plan: WatchPlan, states: Sequence[StoreState], only: Callable[[Record], bool] | None, *,
             apart: bool) -> None:
        """If `plan` has a store, make it read from `states`."""
        for known, store in self._store_of_plan:
            if known is plan:
                store.shows(*states, only=only, apart=apart)

    def keep(self, store: Store[Any]) -> None:
        """Use a store that a stream fills as the store of its kind, unless the kind already has a store."""
        self._stores.setdefault((store.resource.group, store.resource.kind), store)

    def release(self, reason: str) -> None:
        """Release all watches."""
        for share in self.shares.values():
            share.release(reason)
        for store in [*self._fed]:
            store.drop_indexes()

    def store_of(self, kind: HasApiResource | ApiResource) -> Store[Any]:
        """The store of a watched kind, or of a view class. Raises RequestError for a kind that is not watched."""
        if isinstance(kind, type) and issubclass(kind, PartialView):
            if (views := self._views.get(kind)) is not None:
                return views
            raise RequestError(f"controller {self._plan.name} does not watch {kind.__name__}: watch api.with_fields("
                               f"{kind.__name__})")
        resource = api_resource_of(kind)
        found = self._watched(resource)
        is_asked = isinstance(kind, type) and issubclass(kind, PartialObjectMeta)
        if (resource.group, resource.kind) in self._partial and not is_asked:
            self._refuse_fields(found)
            raise RequestError(f"controller {self._plan.name} watches only the metadata of {resource.full_name}: "
                               f".owns(api, whole=True) watches whole objects, and ctx.metadata_store({resource.kind}) "
                               "contains the metadata")
        return found

    def metadata_store_of(self, kind: HasApiResource | ApiResource) -> Store[PartialObjectMeta]:
        """The store with the metadata of a watched kind. Raises RequestError like `store_of`."""
        resource = api_resource_of(kind)
        if (resource.group, resource.kind) in self._partial:
            found_here = self._watched(resource)
            self._refuse_fields(found_here)
            return found_here
        name = (resource.group, resource.kind)
        if (found := self._metadata.get(name)) is None or found[0] is not self._watched(resource):
            whole = self._watched(resource)
            found = self._metadata[name] = whole, whole.read_as(PartialObjectMeta.of(whole.resource).from_record)
        return found[1]

    def _refuse_fields(self, found: Store[Any]) -> None:
        """Raise RequestError if the store has only the fields of a view class: such a store must be read by that
        class."""
        for planned in self.planned:
            view, own = planned.chosen.view, planned.chosen.api.resource
            if view is not None and (own.group, own.kind) == (found.resource.group, found.resource.kind):
                raise RequestError(f"controller {self._plan.name} watches only the fields of {view.__name__} of "
                                   f"{own.full_name}: ctx.store({view.__name__}) contains these fields and "
                                   "the metadata")

    def _watched(self, resource: ApiResource) -> Store[Any]:
        found = self._stores.get((resource.group, resource.kind))
        if found is None:
            known = ", ".join(sorted(store.resource.full_name for store in self._stores.values()))
            raise RequestError(f"controller {self._plan.name} does not watch {resource.full_name}, only {known}: "
                               "add .owns(api) or .watches(api, mapper)")
        return found

    # For `ensure`

    def find(self, resource: ApiResource, namespace: str | None, name: str) -> Found:
        """Like `Watched.find`."""
        key = resource.group, resource.kind, namespace
        searched = self._known.get(key)
        if searched is None:
            searched = self._known[key] = tuple(self._searched(resource, namespace))
        is_complete = any_whole = False
        for store, selects, is_whole in searched:
            record = store.record_at(namespace, name)
            if record is not None:
                return Found(record, True, is_whole, not self._overlays)
            is_complete = is_complete or (not selects and store.is_ready)
            any_whole = any_whole or is_whole
        return Found(None, is_complete, any_whole)

    def _searched(self, resource: ApiResource, namespace: str | None) -> list[Searched]:
        """The watches that may cover objects of a kind in a namespace, the best one first."""
        found = []
        for planned in self.planned:
            scope, config = planned.chosen, planned.chosen.plan.config
            own = scope.api.resource
            if (own.group, own.kind) != (resource.group, resource.kind) or scope.view is not None or \
                    scope.plan.modify is not None or scope.api.namespace not in (None, namespace):
                continue
            selects = bool(config.label_text or config.field_text) or config.shard is not None
            store: Store[Any] = Store(own, scope.reader(), planned.share.watch.stored, own_writes=self._overlays)
            found.append((store, selects, scope.is_whole))
        return sorted(found, key=lambda one: (one[1], not one[2]))

    def owned_by(self, uid: str) -> Iterable[Record]:
        """Like `Watched.owned_by`."""
        for planned in self.planned:
            if planned.scope.plan.is_owned:
                yield from self._owned_store(planned).owned_by(uid)

    def owns(self, resource: ApiResource) -> bool:
        """Like `Watched.owns`."""
        return any(planned.scope.plan.is_owned and (planned.scope.api.resource.group, planned.scope.api.resource.kind)
                   == (resource.group, resource.kind) for planned in self.planned)

    def _owned_store(self, planned: Planned) -> Store[Any]:
        if (store := self._owned.get(planned.name)) is None:
            scope = planned.chosen
            store = self._owned[planned.name] = Store(scope.api.resource, scope.reader(), planned.share.watch.stored,
                                                      own_writes=self._overlays)
            self._fed.append(store)
        return store

    def kind_of(self, gvk: GroupVersionKind) -> ApiResource | None:
        """Like `Watched.kind_of`."""
        return next((planned.scope.api.resource for planned in self.planned
                     if planned.scope.api.resource.gvk == gvk), None)

    def stored(self, ref: ObjectRef) -> Record | None:
        """The stored record of this object; None if it is not stored or its kind is not watched."""
        store = self._stores.get((ref.group, ref.kind))
        return None if store is None else store.as_watched(ref)

    def trouble_of(self, name: str) -> str:
        """The last failure of the watch with this name; empty without a failure, and for an unknown name."""
        watch = self.watches.get(name)
        return watch.state.last_error if watch is not None else ""

    def _add(self, plan: WatchPlan, scopes: Sequence[WatchScope]) -> None:
        """Add `plan`. `scopes`: all known scopes, including those of this plan."""
        served: list[Planned] = []
        self._serve([plan], scopes, served, among=self.planned)
        self._offer(plan, served)
        if plan.indexes:
            self._indexing.append(plan)
        for indexing in self._indexing:  # a new store may have replaced the indexed one
            self._store_for(indexing).add_indexes(indexing.indexes)

    def _serve(self, plans: Sequence[WatchPlan], scopes: Sequence[WatchScope], served: list[Planned],
               among: Sequence[Planned]) -> None:
        """For each scope of these plans, add a watch to `served`: one of `among` or `served`, or a new one."""
        for scope in scopes:
            if any(scope.plan is plan for plan in plans):
                served.append(self._served(scope, scopes, [*among, *served]))
        with self._changing:
            self.planned = [*self.planned, *served]
            self._known = {}

    def _store_for(self, plan: WatchPlan) -> Store[Any]:
        view = scopes_of(plan)[0].view
        return self._stores[plan.api.resource.group, plan.api.resource.kind] if view is None else self._views[view]

    def _served(self, scope: WatchScope, scopes: Sequence[WatchScope], among: Sequence[Planned]) -> Planned:
        """The scope with the watch that serves it: one of `among`, or a new one."""
        chosen = fullest(scope, scopes)
        known = next((one for one in among if one.chosen is chosen), None)
        share, name = (known.share, known.name) if known is not None else self._take(chosen)
        return Planned(share, chosen, scope, name, is_first=known is None)

    def _take(self, scope: WatchScope) -> tuple[Share, str]:
        api, config, plan = scope.api, scope.plan.config, self._plan
        name = str(WatchTarget.of(api, config))
        if name in self.shares:  # the same kind is watched twice, in two forms or with different options
            name = f"{name} #{next(number for number in count(2) if f'{name} #{number}' not in self.shares)}"
        share = shared_watches(api).take(api, config, modify=scope.plan.modify, clock=plan.clock,
                                         rng=self._rng, name=name, observer=plan.options.observer,
                                         on_bug=self._on_bug)
        with self._changing:
            self.shares = {**self.shares, name: share}  # replaced as a whole, because other threads iterate over it
        return share, name

    def _offer(self, plan: WatchPlan, served: Sequence[Planned]) -> None:
        """Register the plan's store for `store_of` if it is the first store of its kind, or if it has whole objects and
        the registered store has only parts."""
        kind, whole = (plan.api.resource.group, plan.api.resource.kind), served[0].chosen.is_whole
        states = [one.share.watch.stored for one in served]
        self._offer_views(plan, served[0].scope, states)
        if (store := plan.store) is not None:
            store.shows(*states)
        elif kind not in self._stores or (whole and kind in self._partial):
            store = self._made(plan, served[0].chosen, states)
        else:
            return
        self._fed.append(store)
        self._store_of_plan.append((plan, store))
        self._stores[kind] = store
        (self._partial.discard if whole else self._partial.add)(kind)

    def _offer_views(self, plan: WatchPlan, scope: WatchScope, states: Sequence[StoreState]) -> None:
        view = scope.view
        if view is None or view in self._views:
            return
        store = plan.store
        if store is None:
            store = self._made(plan, scope, states)
            self._fed.append(store)
        self._views[view] = store

    def _made(self, plan: WatchPlan, scope: WatchScope, states: Sequence[StoreState]) -> Store[Any]:
        store: Store[Any] = Store(plan.api.resource, scope.reader(), *states, own_writes=self._overlays)
        store.declared_by = plan.declared_by
        return store
