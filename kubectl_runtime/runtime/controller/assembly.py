"""A controller's parts, wired together but not running: `Running` gives them threads, a simulation steps them by hand.

    watches -> subscriptions -> inbox -> runner -> applier, with gate, store and shutdown tokens
"""
from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from typing import Any, Generic, TypeVar

from kubectl_runtime.core.base.errors import RequestError
from kubectl_runtime.core.codec.record import Record
from kubectl_runtime.core.meta.gvk import ApiResource, HasApiResource, api_resource_of
from kubectl_runtime.core.meta.refs import ObjectRef
from kubectl_runtime.runtime.controller.plan import Plan, StreamPlan, WatchPlan
from kubectl_runtime.runtime.controller.sync_gate import SyncGate
from kubectl_runtime.runtime.queue.retry_brake import RetryBrake
from kubectl_runtime.runtime.queue.runs import record_write
from kubectl_runtime.runtime.queue.scheduler import Scheduler
from kubectl_runtime.runtime.queue.work_queue import WorkQueue
from kubectl_runtime.runtime.reconcile.context import Environment
from kubectl_runtime.runtime.reconcile.executor import Executor
from kubectl_runtime.runtime.reconcile.invoker import Invoker
from kubectl_runtime.runtime.reconcile.reconciler import ErrorPolicy, ReconcileFunction
from kubectl_runtime.runtime.reconcile.runner import Runner
from kubectl_runtime.runtime.reflector.store import Store
from kubectl_runtime.runtime.shutdown import Shutdown
from kubectl_runtime.runtime.triggers.inbox import Inbox
from kubectl_runtime.runtime.triggers.sources import pull, pull_stream
from kubectl_runtime.runtime.triggers.triggers import trigger_self
from kubectl_runtime.runtime.triggers.watches import Watch
from kubectl_runtime.runtime.usercode import guarded_logger

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
        self.watches: dict[str, Watch[Any]] = {}
        self.pulls: dict[str, Callable[[], None]] = {}
        """What other threads have to run until `draining`, by name: user streams and trigger sources."""
        self._stores: dict[tuple[str, str], Store[Any]] = {}
        self._watch_plans: list[tuple[Watch[Any], WatchPlan, str]] = []
        main = plan.main
        if isinstance(main, WatchPlan):
            self._plan_watch(main)
        for related in plan.related:
            self._plan_watch(related)
        self.store: Store[K] = main.store if isinstance(main, StreamPlan) else next(iter(self.watches.values())).store
        environment: Environment[Any] = Environment(
            controller=plan.name, client=plan.client, data=data, logger=self.logger, shutdown=self.shutdown,
            backoff=plan.backoff, rng=self._rng, store_of=self.store_of, stored=self.stored, clock=plan.clock,
            run_timeout=plan.run_timeout)
        brake = None if plan.retry_rate is None else RetryBrake(plan.retry_rate)
        queue = WorkQueue(Scheduler(debounce=plan.debounce, max_wait=plan.max_wait, brake=brake), brake)
        invoker = Invoker(reconcile, error_policy, self.store, environment, on_result=plan.on_result)
        self.runner = Runner(queue, invoker, executor, concurrency=plan.concurrency, clock=plan.clock,
                             on_bug=partial(on_bug, "the executor"))
        self.inbox = Inbox(plan.resource, self.store, self.runner.trigger_all, logger=self.logger, on_bug=on_bug)
        names = [*self.watches, *([GIVEN_STREAM] if isinstance(main, StreamPlan) else [])]
        self.gate = SyncGate(names, on_open=self.runner.open, trouble_of=self._trouble_of, clock=plan.clock,
                         logger=self.logger, timeout=plan.sync_timeout)
        self._plan_pulls()
        self.shutdown.draining.on_set(self._drain)
        self.shutdown.aborted.on_set(self.runner.wake)

    def subscribe(self) -> None:
        """Connect the watches with the runner: from now on their steps lead to runs, and runs are told of writes."""
        self.shutdown.draining.on_set(self.plan.client.on_write(record_write))
        for watch, plan, name in self._watch_plans:
            watch.subscribe(plan.subscription, self.inbox.sink, partial(self.gate.arrived, name))

    def store_of(self, kind: HasApiResource | ApiResource) -> Store[Any]:
        """The store of a watched kind. Raises RequestError when this controller does not watch it."""
        resource = api_resource_of(kind)
        found = self._stores.get((resource.group, resource.kind))
        if found is None:
            known = ", ".join(sorted(store.resource.full_name for store in self._stores.values()))
            raise RequestError(f"controller {self.plan.name} does not watch {resource.full_name}, only {known}: "
                               "add .owns(api) or .watches(api, mapper)")
        return found

    def stored(self, ref: ObjectRef) -> Record | None:
        """How this object is stored now; None when it is not, or its kind is not watched."""
        store = self._stores.get((ref.group, ref.kind))
        return None if store is None else store.record(ref)

    def _plan_watch(self, plan: WatchPlan) -> None:
        watch: Watch[Any] = Watch(plan.api, plan.config, stop=self.shutdown.draining, backoff=self.plan.watch_backoff,
                                  clock=self.plan.clock, rng=self._rng)
        name = str(watch.target)
        if name in self.watches:  # the same kind twice: as main object and as a related one
            name = f"{name} #{len(self.watches) + 1}"
        self.watches[name] = watch
        self._stores.setdefault((plan.api.resource.group, plan.api.resource.kind), watch.store)
        self._watch_plans.append((watch, plan, name))

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

    def _trouble_of(self, name: str) -> str:
        watch = self.watches.get(name)
        return watch.state.last_error if watch is not None else ""

    def _drain(self) -> None:
        running, dropped = len(self.runner.running()), self.runner.drain()
        self.logger.info("stopping: %s; %d runs in progress, %d scheduled ones dropped", self.shutdown.draining.reason,
                         running, dropped)
