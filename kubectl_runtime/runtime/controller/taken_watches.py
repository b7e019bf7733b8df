"""`TakenWatches`: the watches that a controller uses, and the stores that they fill.

    add_all, add_one    take what serves each place of a plan (see planned.py): a watch that it has, or one more, which
                        other controllers may share; its store then holds what these watches store
    store_of(kind)      the store that a reconciler reads: the first of its kind, but one of whole objects is better
                        than one of parts; of a class of views, the store of those
    release(reason)     gives the watches back

Nothing is subscribed here: see `Assembly`.
"""
from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

from kubectl_runtime.client.api.writes import OwnWrites
from kubectl_runtime.core.base.errors import RequestError
from kubectl_runtime.core.codec.record import Record
from kubectl_runtime.core.meta.gvk import ApiResource, HasApiResource, api_resource_of
from kubectl_runtime.core.meta.refs import ObjectRef
from kubectl_runtime.core.objects.partial import PartialView
from kubectl_runtime.runtime.controller.plan import Plan, WatchPlan
from kubectl_runtime.runtime.controller.planned import Place, Planned, fullest, places_of
from kubectl_runtime.runtime.reflector.store import Store
from kubectl_runtime.runtime.reflector.store_state import StoreState
from kubectl_runtime.runtime.triggers.shared_watches import Share, shared_watches
from kubectl_runtime.runtime.triggers.watches import Watch
from kubectl_runtime.runtime.watcher.failure_log import WatchTarget


class TakenWatches:
    """The watches that one controller uses, and their stores. Changed by one thread at a time; read by any."""

    def __init__(self, plan: Plan, on_bug: Callable[[str, BaseException], None], rng: random.Random) -> None:
        """`on_bug` hears of defects of the library in a watch; `rng` draws the jitter of its backoff."""
        self._plan = plan
        self._on_bug = on_bug
        self._rng = rng
        self.shares: dict[str, Share] = {}
        self.planned: list[Planned] = []
        """One for each place of each plan."""
        self._stores: dict[tuple[str, str], Store[Any]] = {}
        self._partial: set[tuple[str, str]] = set()
        """Of which kinds the store holds parts of objects only."""
        self._views: dict[type, Store[Any]] = {}
        """Of each class of views that a plan asks for, the first one's."""
        self._fed: list[Store[Any]] = []

    @property
    def watches(self) -> dict[str, Watch[Any]]:
        """The watches, by what they watch, in words."""
        return {name: share.watch for name, share in self.shares.items()}

    def add_all(self, plans: Sequence[WatchPlan]) -> None:
        """What is known before the start, all at once: the fullest watch serves, whichever plan it is of."""
        places = places_of(*plans)
        for plan in plans:
            self._add(plan, places)

    def add_one(self, plan: WatchPlan) -> list[Planned]:
        """One more plan: what of `planned` is new."""
        before = len(self.planned)
        self._add(plan, [*(known.place for known in self.planned), *places_of(plan)])
        return self.planned[before:]

    def keep(self, store: Store[Any]) -> None:
        """A store that somebody else fills is the one of its kind, unless there is one."""
        self._stores.setdefault((store.resource.group, store.resource.kind), store)

    def release(self, reason: str) -> None:
        """Give the watches back."""
        for share in self.shares.values():
            share.release(reason)
        for store in [*self._fed]:
            store.drop_indexes()

    def store_of(self, kind: HasApiResource | ApiResource) -> Store[Any]:
        """The store of a watched kind, or of a class of views. Raises RequestError when this controller does not watch
        it."""
        if isinstance(kind, type) and issubclass(kind, PartialView):
            if (views := self._views.get(kind)) is not None:
                return views
            raise RequestError(f"controller {self._plan.name} keeps no {kind.__name__}: watch api.with_fields("
                               f"{kind.__name__})")
        resource = api_resource_of(kind)
        found = self._stores.get((resource.group, resource.kind))
        if found is None:
            known = ", ".join(sorted(store.resource.full_name for store in self._stores.values()))
            raise RequestError(f"controller {self._plan.name} does not watch {resource.full_name}, only {known}: "
                               "add .owns(api) or .watches(api, mapper)")
        return found

    def stored(self, ref: ObjectRef) -> Record | None:
        """How this object is stored now; None when it is not, or its kind is not watched."""
        store = self._stores.get((ref.group, ref.kind))
        return None if store is None else store.as_watched(ref)

    def trouble_of(self, name: str) -> str:
        """The last failure of the watch of this name; empty when there was no failure, or there is no such watch."""
        watch = self.watches.get(name)
        return watch.state.last_error if watch is not None else ""

    def _add(self, plan: WatchPlan, places: Sequence[Place]) -> None:
        """`places` are all that are known, those of this plan included."""
        served: list[Planned] = []
        for place in places:
            if place.plan is plan:
                chosen = fullest(place, places)
                known = next((one for one in (*self.planned, *served) if one.chosen is chosen), None)
                share, name = (known.share, known.name) if known is not None else self._take(chosen)
                served.append(Planned(share, chosen, place, name, is_first=known is None))
        self.planned = [*self.planned, *served]
        self._offer(plan, served)

    def _take(self, place: Place) -> tuple[Share, str]:
        api, config, plan = place.api, place.plan.config, self._plan
        name = str(WatchTarget(api.resource, api.namespace, config.label_text, config.field_text))
        if name in self.shares:  # the same kind twice, in two forms or with different options
            name = f"{name} #{len(self.shares) + 1}"
        share = shared_watches(api).take(api, config, backoff=plan.watch_backoff, modify=place.plan.modify,
                                         clock=plan.clock, rng=self._rng, name=name, observer=plan.observer,
                                         on_bug=self._on_bug)
        self.shares = {**self.shares, name: share}  # replaced whole: other threads go through it
        return share, name

    def _offer(self, plan: WatchPlan, served: Sequence[Planned]) -> None:
        """The first store of a kind is that of `store_of`, but one of whole objects is better than one of parts."""
        kind, whole = (plan.api.resource.group, plan.api.resource.kind), served[0].chosen.is_whole
        states = [one.share.watch.stored for one in served]
        self._offer_views(plan, served[0].place, states)
        if (store := plan.store) is not None:
            store.shows(*states)
        elif kind not in self._stores or (whole and kind in self._partial):
            store = self._made(plan, served[0].chosen, states)
        else:
            return
        self._fed.append(store)
        self._stores[kind] = store
        (self._partial.discard if whole else self._partial.add)(kind)

    def _offer_views(self, plan: WatchPlan, place: Place, states: Sequence[StoreState]) -> None:
        view = place.view
        if view is None or view in self._views:
            return
        store = plan.store
        if store is None:
            store = self._made(plan, place, states)
            self._fed.append(store)
        self._views[view] = store

    def _made(self, plan: WatchPlan, place: Place, states: Sequence[StoreState]) -> Store[Any]:
        return Store(plan.api.resource, place.reader(), *states,
                     own_writes=self._plan.own_writes is OwnWrites.OVERLAY)
