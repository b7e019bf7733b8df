"""`Watched`: the half of a `Controller` that says what leads to runs, besides the objects themselves.

Each method puts one thing more into the controller's plan and returns the controller. While that runs, what is added
begins at once; only streams have to be there before the start.
"""
from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Generic, Literal, Self, TypeVar, overload

from kubectl_runtime.core.base.errors import RequestError
from kubectl_runtime.core.base.stop import StopToken
from kubectl_runtime.core.requests.param_rules import check_flag
from kubectl_runtime.runtime.controller.arguments import check_children, check_predicate
from kubectl_runtime.runtime.controller.plan import Plan, StreamPlan, WatchPlan
from kubectl_runtime.runtime.controller.running import Running
from kubectl_runtime.runtime.given import check_api, check_type
from kubectl_runtime.runtime.triggers.predicates import Predicate
from kubectl_runtime.runtime.triggers.sources import TriggerSource, check_source
from kubectl_runtime.runtime.triggers.triggers import (
    EventMapper,
    Mapper,
    On,
    check_mapper,
    trigger_others,
    trigger_owners,
)
from kubectl_runtime.runtime.watcher.watcher_config import DEFAULT_CONFIG, WatcherConfig

if TYPE_CHECKING:
    from kubectl_runtime.client.api.api import Api
    from kubectl_runtime.client.api.namespaces import Namespaces

K = TypeVar("K")
R = TypeVar("R")


class Watched(Generic[K]):
    """The methods of Controller that say what else it watches. For one thread, as Controller is."""

    _plan: Plan
    """What is to run."""
    _running: Running[K] | None = None
    """The last life."""

    def owns(self, api: Api[Any] | Namespaces[Any], *, watch: WatcherConfig = DEFAULT_CONFIG,
             predicate: Predicate[Any] | None = None, controller_only: bool = False) -> Self:
        """Objects of `api` are made by the reconciler, with an owner reference; changes of one trigger its owner.

        A deletion is a change as well. Only their metadata is watched and kept, so that is all a `predicate` sees. The
        owner's group and kind decide, not the version. `controller_only`: only the owner whose reference says
        `controller: true`. Raises RequestError for namespaces in which the controller reconciles nothing: an owner is
        in the namespace of what it owns.
        """
        check_api(api, "owns")
        check_type("watch", watch, WatcherConfig, "WatcherConfig()")
        check_predicate(predicate)
        check_flag("controller_only", controller_only)
        if isinstance(self._plan.main, WatchPlan):
            check_children(api, self._plan.main.api)
        subscription = trigger_owners(self._plan.resource, predicate=predicate, controller_only=controller_only)
        return self._watch(WatchPlan(api.with_metadata_only(), watch, subscription))

    @overload
    def watches(self, api: Api[R] | Namespaces[R], mapper: Mapper[R], *, watch: WatcherConfig = ...,
                predicate: Predicate[R] | None = ..., on: Literal["object"] = ...) -> Self: ...
    @overload
    def watches(self, api: Api[R] | Namespaces[R], mapper: EventMapper[R], *, watch: WatcherConfig = ...,
                predicate: Predicate[R] | None = ..., on: Literal["event"]) -> Self: ...
    def watches(self, api: Api[Any] | Namespaces[Any], mapper: Mapper[Any] | EventMapper[Any], *,
                watch: WatcherConfig = DEFAULT_CONFIG, predicate: Predicate[Any] | None = None,
                on: On = "object") -> Self:
        """Each change or deletion of an object of `api` triggers what `mapper(obj)` returns: refs, one ref, EVERYTHING
        (each object of the controller), or None.

        Refs in other namespaces than the controller's are ignored, and logged once for each namespace.
        Of a changed object it is asked about the state before too, so that what is no longer concerned hears of it;
        with `on="event"` it gets one `ObjectEvent` with both. The mapper runs in the watch's thread: it must not block.
        What it raises is logged, and that event triggers nothing.
        """
        check_api(api, "watches")
        check_type("watch", watch, WatcherConfig, "WatcherConfig()")
        check_predicate(predicate)
        check_mapper(mapper, on)
        return self._watch(WatchPlan(api, watch, trigger_others(mapper, predicate=predicate, on=on)))

    def owns_stream(self, stream: Iterable[Any], *, stop: StopToken | None = None,
                    controller_only: bool = False) -> Self:
        """As `owns`, of a stream that the program makes: of objects (`touched_objects`, so that deletions count) or
        events. Its own thread pulls and closes it; `stop` is the token that ends it. Runs do not wait for its first
        list. Raises RequestError while the controller runs."""
        subscription = trigger_owners(self._plan.resource, controller_only=controller_only)
        return self._pull(StreamPlan(stream, subscription, stop))

    def watches_stream(self, stream: Iterable[Any], mapper: Mapper[Any] | EventMapper[Any], *,
                       stop: StopToken | None = None, on: On = "object") -> Self:
        """Watch as `watches` does, but a stream that the program makes; see `owns_stream`."""
        check_mapper(mapper, on)
        return self._pull(StreamPlan(stream, trigger_others(mapper, on=on), stop))

    def reconcile_on(self, source: TriggerSource) -> Self:
        """Reconcile what `source` gives: each item of this iterable or queue, which a thread of its own pulls, is an
        object or ref. An item that is neither is logged, and the next one follows."""
        check_source(source)
        self._plan = replace(self._plan, triggers=(*self._plan.triggers, source))
        if (running := self._alive()) is not None:
            running.add_source(source, bulk=False)
        return self

    def reconcile_all_on(self, source: TriggerSource) -> Self:
        """Reconcile every stored object for each item of `source`, whatever the item is."""
        check_source(source)
        self._plan = replace(self._plan, bulk_triggers=(*self._plan.bulk_triggers, source))
        if (running := self._alive()) is not None:
            running.add_source(source, bulk=True)
        return self

    def _alive(self) -> Running[K] | None:
        """The life that has not come to its end, if there is one."""
        running = self._running
        return None if running is None or running.has_ended else running

    def _watch(self, plan: WatchPlan) -> Self:
        self._plan = replace(self._plan, related=(*self._plan.related, plan))
        if (running := self._alive()) is not None:
            running.add_watch(plan)
        return self

    def _pull(self, plan: StreamPlan) -> Self:
        if not isinstance(plan.stream, Iterable):
            raise RequestError(f"a stream is an iterable of objects or events, not {type(plan.stream).__name__}")
        if self._alive() is not None:
            raise RequestError(f"controller {self._plan.name} runs: a stream cannot be added now")
        self._plan = replace(self._plan, streams=(*self._plan.streams, plan))
        return self
