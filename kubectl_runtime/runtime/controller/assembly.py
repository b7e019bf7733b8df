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
from kubectl_runtime.runtime.controller.ending import what_is_waited_for
from kubectl_runtime.runtime.controller.gone import with_gone
from kubectl_runtime.runtime.controller.plan import MainStream, Plan, StreamPlan, WatchPlan
from kubectl_runtime.runtime.controller.resync import Resync
from kubectl_runtime.runtime.controller.sync_gate import SyncGate
from kubectl_runtime.runtime.events.recorder import Recorder
from kubectl_runtime.runtime.events.texts import qualified_name
from kubectl_runtime.runtime.queue.retry_brake import RetryBrake
from kubectl_runtime.runtime.queue.runs import Outcome, Run, record_write
from kubectl_runtime.runtime.queue.scheduler import Scheduler
from kubectl_runtime.runtime.queue.work_queue import WorkQueue
from kubectl_runtime.runtime.reconcile.context import Environment
from kubectl_runtime.runtime.reconcile.executor import Executor
from kubectl_runtime.runtime.reconcile.invoker import Invoker
from kubectl_runtime.runtime.reconcile.outage_log import OutageLog
from kubectl_runtime.runtime.reconcile.reconciler import ErrorPolicy, ReconcileFunction
from kubectl_runtime.runtime.reconcile.run_timeouts import RunTimeouts
from kubectl_runtime.runtime.reconcile.runner import Execute, Runner
from kubectl_runtime.runtime.reflector.feed import Feed
from kubectl_runtime.runtime.reflector.store import Store
from kubectl_runtime.runtime.shutdown import Shutdown
from kubectl_runtime.runtime.triggers.inbox import FirstList, Inbox
from kubectl_runtime.runtime.triggers.sources import TriggerSource, pull, pull_stream
from kubectl_runtime.runtime.triggers.watches import Watch
from kubectl_runtime.runtime.usercode import guarded_logger
from kubectl_runtime.runtime.watcher.failure_log import WatchTarget
from kubectl_runtime.runtime.watcher.readers import reader_of
from kubectl_runtime.runtime.watcher.watch_api import apis_of, as_configured

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
        self.drained = ""
        """What was going on when the end began, for people."""
        self._stores: dict[tuple[str, str], Store[Any]] = {}
        self._watch_plans: list[tuple[Watch[Any], WatchPlan, str]] = []
        main = plan.main
        if isinstance(main, WatchPlan):
            self._plan_watch(main)
        for related in plan.related:
            self._plan_watch(related)
        self.store: Store[K] = main.store if isinstance(main, MainStream) else next(iter(self.watches.values())).store
        self.recorder = Recorder(plan.client, qualified_name(plan.name) or "controller", rng=rng)
        environment: Environment[Any] = Environment(
            controller=plan.name, client=plan.client, data=data, logger=self.logger, shutdown=self.shutdown,
            backoff=plan.backoff, rng=self._rng, store_of=self.store_of, stored=self.stored, clock=plan.clock,
            recorder=self.recorder, run_timeout=plan.run_timeout)
        brake = None if plan.retry_rate is None else RetryBrake(plan.retry_rate)
        queue = WorkQueue(Scheduler(debounce=plan.debounce, max_wait=plan.max_wait, brake=brake), brake)
        execute: Execute = Invoker(reconcile, error_policy, self.store, environment, on_result=plan.on_result,
                                    on_crowd=self._wake)
        if plan.on_gone is not None:
            execute = with_gone(execute, plan.on_gone, self.store, environment)
        self._timeouts = RunTimeouts(plan.run_timeout, self.shutdown, plan.clock, self._wake)
        self.runner = Runner(queue, self._ended_by_shutdown(execute), executor,
                             concurrency=plan.concurrency, clock=plan.clock, name=plan.name, observer=plan.observer,
                             on_bug=partial(on_bug, "the executor"))
        self.inbox = Inbox(plan.resource, self.store, self.runner.trigger_all, logger=self.logger, on_bug=on_bug)
        names = [*self.watches, *([GIVEN_STREAM] if isinstance(main, MainStream) else [])]
        begin = partial(plan.hold, self.runner.open) if plan.hold is not None else self.runner.open
        self.gate = SyncGate(names, on_open=begin, trouble_of=self._trouble_of, clock=plan.clock,
                             logger=self.logger, timeout=plan.sync_timeout,
                             then="reconciling" if plan.hold is None else "ready to reconcile")
        self._resync = Resync(plan.resync, self.inbox.trigger_everything, plan.clock, self._rng)
        self._outage = OutageLog(self.logger, plan.clock, self.runner.failing, plan.retry_rate)
        self._plan_pulls()
        self.shutdown.draining.on_set(self._drain)
        self.shutdown.aborted.on_set(self.runner.wake)

    def subscribe(self) -> None:
        """Connect the watches with the runner: from now on their steps lead to runs, and runs are told of writes."""
        self.plan.observer.controller_started(self.plan.name, self.plan.concurrency)
        self.shutdown.draining.on_set(self.plan.client.on_write(record_write))
        if isinstance(self.plan.main, MainStream):
            self.store.when_ready(partial(self.gate.arrived, GIVEN_STREAM))
        for watch, plan, name in self._watch_plans:
            watch.subscribe(plan.subscription, self.inbox.sink, partial(self.gate.arrived, name))

    def add_watch(self, plan: WatchPlan) -> dict[str, Watch[Any]]:
        """One more watch of a controller that runs (several, for several namespaces), by name; somebody has to step
        it."""
        before = len(self._watch_plans)
        self._plan_watch(plan)
        added = self._watch_plans[before:]
        for watch, _, name in added:
            self.gate.expect(name)
            first = FirstList(self.inbox.sink, partial(self.gate.arrived, name))
            watch.subscribe(plan.subscription, first.sink, first.completed)
        return {name: watch for watch, _, name in added}

    def add_source(self, source: TriggerSource, *, bulk: bool) -> tuple[str, Callable[[], None]]:
        """One more trigger source: its name, and what a thread has to run until `draining`."""
        kind = "bulk trigger source" if bulk else "trigger source"
        name = f"{kind} {1 + sum(name.startswith(kind) for name in self.pulls)}"
        to_requests = self.inbox.bulk if bulk else self.inbox.external
        self.pulls[name] = partial(pull, source, to_requests, self.inbox.sink, self.shutdown.draining)
        return name, self.pulls[name]

    def dispatch(self) -> None:
        """The dispatcher's thread, until the runs that a drain waits for need it no more."""
        self.runner.dispatch(self.housekeeping)
        self._timeouts.see_through()

    def housekeeping(self) -> float | None:
        """What the dispatcher does besides: the gate's warnings, the resync, the ends of runs whose time is up, a look
        at how many fail; the seconds until it is due again.

        Raises SyncTimeoutError when the stores have not been complete in time.
        """
        checks = self.gate.check(), self._resync.check(), self._timeouts.check(), self._outage.check()
        return min((wait for wait in checks if wait is not None), default=None)

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
        apis = apis_of(plan.api)
        reader = reader_of(as_configured(apis[0], plan.config).kind)
        feed = plan.feed or Feed(plan.api.resource, reader, [api.namespace for api in apis], self.plan.clock)
        self._stores.setdefault((plan.api.resource.group, plan.api.resource.kind), feed.store)
        config = plan.config
        for api, writer in zip(apis, feed.renew(), strict=True):
            name = str(WatchTarget(api.resource, api.namespace, config.label_text, config.field_text))
            if name in self.watches:  # the same kind twice: as main object and as a related one
                name = f"{name} #{len(self.watches) + 1}"
            watch: Watch[Any] = Watch(api, config, stop=self.shutdown.draining, backoff=self.plan.watch_backoff,
                                      modify=plan.modify, writer=writer, clock=self.plan.clock, rng=self._rng,
                                      name=name, observer=self.plan.observer)
            self.watches = {**self.watches, name: watch}  # replaced whole: other threads go through it
            self._watch_plans.append((watch, plan, name))

    def _plan_pulls(self) -> None:
        plan = self.plan
        if isinstance(plan.main, MainStream):
            self._stores.setdefault((plan.resource.group, plan.resource.kind), plan.main.store)
            self._plan_stream("stream", plan.main, plan.main.store)
        for number, related in enumerate(plan.streams, 1):
            self._plan_stream(f"related stream {number}", related, None)
        for source in plan.triggers:
            self.add_source(source, bulk=False)
        for source in plan.bulk_triggers:
            self.add_source(source, bulk=True)

    def _plan_stream(self, name: str, plan: StreamPlan, store: Store[Any] | None) -> None:
        draining = self.shutdown.draining
        if plan.stop is not None:
            draining.on_set(partial(plan.stop.set, "the controller stops"))
        self.pulls[name] = partial(pull_stream, plan.stream, plan.subscription, self.inbox.sink, draining, store)

    def _ended_by_shutdown(self, execute: Execute) -> Execute:
        """`execute`, in which the library's calls see when the run is to end."""
        timeouts = self._timeouts

        def ended(run: Run) -> Outcome:
            calls = timeouts.begin(run)
            entered = calls.enter()
            try:
                return execute(run)
            finally:
                calls.leave(entered)
                timeouts.end(run)

        return ended

    def _wake(self) -> None:
        self.runner.wake()

    def _trouble_of(self, name: str) -> str:
        watch = self.watches.get(name)
        return watch.state.last_error if watch is not None else ""

    def _drain(self) -> None:
        dropped = self.runner.drain()
        waited_for = what_is_waited_for(self.runner.running(), self.shutdown, self.plan.clock)
        self.drained = f"{dropped} due run{'' if dropped == 1 else 's'} dropped; {waited_for}"
        self.plan.observer.keys_dropped(self.plan.name, dropped)
