"""A controller's parts, wired together but not running: `Running` gives them threads, a simulation steps them by hand.

    watches -> subscriptions -> inbox -> runner -> applier, with gate, store and shutdown tokens
"""
from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Generic, TypeVar

from kubectl_runtime.client.api.writes import OwnWrites
from kubectl_runtime.core.base.errors import RequestError
from kubectl_runtime.core.meta.gvk import ApiResource, HasApiResource, api_resource_of
from kubectl_runtime.runtime.controller.plan import Plan, StreamPlan, WatchPlan
from kubectl_runtime.runtime.controller.sync_gate import SyncGate
from kubectl_runtime.runtime.events.recorder import Recorder
from kubectl_runtime.runtime.events.texts import qualified_name
from kubectl_runtime.runtime.queue.runs import record_write
from kubectl_runtime.runtime.queue.scheduler import Scheduler
from kubectl_runtime.runtime.queue.work_queue import WorkQueue
from kubectl_runtime.runtime.reconcile.catch_up import CatchUp
from kubectl_runtime.runtime.reconcile.context import Environment
from kubectl_runtime.runtime.reconcile.executor import Executor
from kubectl_runtime.runtime.reconcile.invoker import Invoker
from kubectl_runtime.runtime.reconcile.reconciler import ErrorPolicy, ReconcileFunction
from kubectl_runtime.runtime.reconcile.runner import Execute, Runner
from kubectl_runtime.runtime.reflector.store import Store
from kubectl_runtime.runtime.shutdown import Shutdown
from kubectl_runtime.runtime.triggers.inbox import Inbox
from kubectl_runtime.runtime.triggers.shared_watches import Share, form_of, is_whole, selection_of, shared_watches
from kubectl_runtime.runtime.triggers.sources import pull, pull_stream
from kubectl_runtime.runtime.triggers.triggers import ReconcileRequest, trigger_self
from kubectl_runtime.runtime.triggers.watches import Watch
from kubectl_runtime.runtime.usercode import guarded_logger
from kubectl_runtime.runtime.watcher.failure_log import WatchTarget

K = TypeVar("K")

GIVEN_STREAM = "the given stream"


class Assembly(Generic[K]):
    """The parts of one running life of a controller."""

    def __init__(self, plan: Plan, reconcile: ReconcileFunction[Any], error_policy: ErrorPolicy[Any] | None,
                 data: Any, *, executor: Executor, on_bug: Callable[[str, BaseException], None],
                 rng: random.Random | None = None) -> None:
        """`on_bug(what, error)` hears of defects of the library; `rng` draws all jitter."""
        self.plan = plan
        self.logger = guarded_logger(f"kubectl_runtime.controller.{plan.name}")
        self.shutdown = Shutdown(plan.clock)
        self._rng = rng or random.Random()
        self.shares: dict[str, Share[Any]] = {}
        self._on_bug = on_bug
        self.pulls: dict[str, Callable[[], None]] = {}
        """What other threads have to run until `draining`, by name: user streams and trigger sources."""
        self._stores: dict[tuple[str, str], Store[Any]] = {}
        self._partial: set[tuple[str, str]] = set()
        """Of which kinds the store holds parts of objects only."""
        self._watch_plans: list[tuple[Share[Any], WatchPlan, str]] = []
        main = plan.main
        watched = [*([main] if isinstance(main, WatchPlan) else []), *plan.related]
        for planned in watched:
            self._plan_watch(planned, watched)
        self.store: Store[K] = main.store if isinstance(main, StreamPlan) else next(iter(self.shares.values())).store
        self.recorder = Recorder(plan.client, qualified_name(plan.name) or "controller", rng=rng)
        environment: Environment[Any] = Environment(
            client=plan.client, data=data, logger=self.logger, shutdown=self.shutdown, backoff=plan.backoff,
            rng=self._rng, store_of=self.store_of, recorder=self.recorder)
        queue = WorkQueue(Scheduler(debounce=plan.debounce, max_wait=plan.max_wait))
        execute: Execute = Invoker(reconcile, error_policy, self.store, environment)
        self._catch_up: CatchUp | None = None
        if plan.own_writes is OwnWrites.WAIT:
            execute = self._catch_up = CatchUp(execute, lambda: [*self.watches.values()], self._trigger, plan.clock,
                                               self.logger)
        self.runner = Runner(queue, execute, executor,
                             concurrency=plan.concurrency, clock=plan.clock, name=plan.name, observer=plan.observer)
        self.inbox = Inbox(plan.resource, self.store, self.runner.trigger_all, logger=self.logger, on_bug=on_bug)
        names = [*self.watches, *([GIVEN_STREAM] if isinstance(main, StreamPlan) else [])]
        self.gate = SyncGate(names, on_open=self.runner.open, trouble_of=self._trouble_of, clock=plan.clock,
                         logger=self.logger, timeout=plan.sync_timeout)
        self._plan_pulls()
        self.shutdown.draining.on_set(self._drain)
        self.shutdown.aborted.on_set(self.runner.wake)

    def subscribe(self) -> None:
        """Connect the watches with the runner: from now on their steps lead to runs, and runs are told of writes."""
        self.plan.observer.controller_started(self.plan.name, self.plan.concurrency)
        self.shutdown.draining.on_set(self.plan.client.on_write(record_write))
        for share, plan, name in self._watch_plans:
            share.subscribe(plan.subscription, self.inbox.sink, partial(self.gate.arrived, name))
        if self._catch_up is not None:
            self.shutdown.draining.on_set(self.plan.client.on_write(self._catch_up.wrote))
            for share in self.shares.values():
                share.when_caught_up(self._catch_up.caught_up)

    @property
    def watches(self) -> dict[str, Watch[Any]]:
        """Its watches, by name; other controllers may use them too."""
        return {name: share.watch for name, share in self.shares.items()}

    def store_of(self, kind: HasApiResource | ApiResource) -> Store[Any]:
        """The store of a watched kind. Raises RequestError when this controller does not watch it."""
        resource = api_resource_of(kind)
        found = self._stores.get((resource.group, resource.kind))
        if found is None:
            known = ", ".join(sorted(store.resource.full_name for store in self._stores.values()))
            raise RequestError(f"controller {self.plan.name} does not watch {resource.full_name}, only {known}: "
                               "add .owns(api) or .watches(api, mapper)")
        return found

    def _plan_watch(self, plan: WatchPlan, watched: Sequence[WatchPlan]) -> None:
        chosen = _fullest(plan, watched)
        for share, other, name in self._watch_plans:
            if _fullest(other, watched) is chosen:
                self._watch_plans.append((share, plan, name))
                return
        api, config = chosen.api, chosen.config
        name = str(WatchTarget(api.resource, api.namespace, config.label_text, config.field_text))
        if name in self.shares:  # the same kind twice, in two forms or with different options
            name = f"{name} #{len(self.shares) + 1}"
        share = shared_watches(api).take(
            api, config, backoff=self.plan.watch_backoff, clock=self.plan.clock, rng=self._rng, name=name,
            observer=self.plan.observer, own_writes=self.plan.own_writes is OwnWrites.OVERLAY, on_bug=self._on_bug)
        self.shares[name] = share
        self.shutdown.draining.on_set(lambda: share.release(self.shutdown.draining.reason or "stopped"))
        kind = api.resource.group, api.resource.kind
        if kind not in self._stores or (is_whole(api) and kind in self._partial):
            self._stores[kind] = share.store
            (self._partial.discard if is_whole(api) else self._partial.add)(kind)
        self._watch_plans.append((share, plan, name))

    def _plan_pulls(self) -> None:
        plan, draining, own, inbox = self.plan, self.shutdown.draining, self.plan.resource, self.inbox
        if isinstance(plan.main, StreamPlan):
            self._stores.setdefault((own.group, own.kind), plan.main.store)
            if plan.main.stop is not None:
                draining.on_set(partial(plan.main.stop.set, "the controller stops"))
            self.pulls["stream"] = partial(pull_stream, plan.main.events, trigger_self(own), inbox.sink,
                                           partial(self.gate.arrived, GIVEN_STREAM), draining)
        for number, source in enumerate(plan.triggers, 1):
            self.pulls[f"trigger source {number}"] = partial(pull, source, inbox.external, inbox.sink, draining)
        for number, source in enumerate(plan.bulk_triggers, 1):
            self.pulls[f"bulk trigger source {number}"] = partial(pull, source, inbox.bulk, inbox.sink, draining)

    def _trigger(self, requests: list[ReconcileRequest]) -> None:
        self.inbox.sink(requests)

    def _trouble_of(self, name: str) -> str:
        watch = self.watches.get(name)
        return watch.state.last_error if watch is not None else ""

    def _drain(self) -> None:
        running, dropped = len(self.runner.running()), self.runner.drain()
        self.logger.info("stopping: %s; %d runs in progress, %d scheduled ones dropped", self.shutdown.draining.reason,
                         running, dropped)
        self.plan.observer.keys_dropped(self.plan.name, dropped)


def _fullest(plan: WatchPlan, watched: Sequence[WatchPlan]) -> WatchPlan:
    """The first of `watched` that is about the same objects in the same form, or in the whole, which serves both."""
    selection = selection_of(plan.api, plan.config)
    same = [other for other in watched if selection_of(other.api, other.config) == selection]
    whole = [other for other in same if is_whole(other.api)]
    form = form_of(plan.api, plan.config, None)
    return next(iter(whole), None) or next(other for other in same if form_of(other.api, other.config, None) == form)
