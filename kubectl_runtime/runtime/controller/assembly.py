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
from kubectl_runtime.core.codec.record import Record
from kubectl_runtime.core.meta.gvk import ApiResource, HasApiResource, api_resource_of
from kubectl_runtime.core.meta.refs import ObjectRef
from kubectl_runtime.runtime.controller.gone import with_gone
from kubectl_runtime.runtime.controller.plan import MainStream, Plan, StreamPlan, WatchPlan
from kubectl_runtime.runtime.controller.planned import Place, Planned, fullest, places_of
from kubectl_runtime.runtime.controller.resync import Resync
from kubectl_runtime.runtime.controller.stopping.ending import what_is_waited_for
from kubectl_runtime.runtime.controller.sync_gate import SyncGate
from kubectl_runtime.runtime.events.recorder import Recorder
from kubectl_runtime.runtime.events.texts import qualified_name
from kubectl_runtime.runtime.flight.flight_recorder import FlightRecorder
from kubectl_runtime.runtime.queue.retry_brake import RetryBrake
from kubectl_runtime.runtime.queue.runs import begin_write, record_write
from kubectl_runtime.runtime.queue.scheduler import Scheduler
from kubectl_runtime.runtime.queue.work_queue import WorkQueue
from kubectl_runtime.runtime.reconcile.catch_up import CatchUp
from kubectl_runtime.runtime.reconcile.context import Environment
from kubectl_runtime.runtime.reconcile.executor import Executor
from kubectl_runtime.runtime.reconcile.invoker import Invoker
from kubectl_runtime.runtime.reconcile.outage_log import OutageLog
from kubectl_runtime.runtime.reconcile.partition import Listener, only_owned, while_owned
from kubectl_runtime.runtime.reconcile.reconciler import ErrorPolicy, ReconcileFunction
from kubectl_runtime.runtime.reconcile.run_timeouts import RunTimeouts
from kubectl_runtime.runtime.reconcile.runner import Execute, Runner
from kubectl_runtime.runtime.reflector.store import Store
from kubectl_runtime.runtime.shutdown import Shutdown
from kubectl_runtime.runtime.triggers.inbox import FirstList, Inbox
from kubectl_runtime.runtime.triggers.shared_watches import Share, shared_watches
from kubectl_runtime.runtime.triggers.sources import TriggerSource, pull, pull_stream
from kubectl_runtime.runtime.triggers.triggers import ReconcileRequest, Sink
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
        self.shares: dict[str, Share] = {}
        self._on_bug = on_bug
        self.pulls: dict[str, Callable[[], None]] = {}
        """What other threads have to run until `draining`, by name: user streams and trigger sources."""
        self.drained = ""
        """What was going on when the end began, for people."""
        self._stores: dict[tuple[str, str], Store[Any]] = {}
        self._partial: set[tuple[str, str]] = set()
        """Of which kinds the store holds parts of objects only."""
        self._fed: list[Store[Any]] = []
        self._watches: list[Planned] = []
        main = plan.main
        planned = [*([main] if isinstance(main, WatchPlan) else []), *plan.related]
        try:
            places = places_of(*planned)
            for one in planned:
                self._plan_watch(one, places)
        except BaseException:  # RequestError for a form that an Api does not have
            self.release("the controller cannot be started")
            raise
        self.shutdown.draining.on_set(self._give_back)
        assert main.store is not None
        self.store: Store[K] = main.store
        self.recorder = Recorder(plan.client, qualified_name(plan.name) or "controller", rng=rng)
        environment: Environment[Any] = Environment(
            controller=plan.name, client=plan.client, data=data, logger=self.logger, shutdown=self.shutdown,
            backoff=plan.backoff, rng=self._rng, store_of=self.store_of, stored=self.stored, clock=plan.clock,
            recorder=self.recorder, run_timeout=plan.run_timeout)
        brake = None if plan.retry_rate is None else RetryBrake(plan.retry_rate)
        queue = WorkQueue(Scheduler(debounce=plan.debounce, max_wait=plan.max_wait, brake=brake), brake)
        self._catch_up: CatchUp | None = None
        self._timeouts = RunTimeouts(plan.run_timeout, self.shutdown, plan.clock, self._wake)
        self.flight = None if plan.record is None else FlightRecorder(plan.record, plan.name, plan.clock)
        self.execute = self._execute(reconcile, error_policy, environment)
        """Runs one key; for who decides himself which is run."""
        self.runner = Runner(queue, self.execute, executor, concurrency=plan.concurrency, clock=plan.clock,
                             name=plan.name, observer=plan.observer, on_bug=partial(on_bug, "the executor"))
        self.inbox = Inbox(plan.resource, self.store, self._schedule(), logger=self.logger, on_bug=on_bug)
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

    def _execute(self, reconcile: ReconcileFunction[Any], error_policy: ErrorPolicy[Any] | None,
                 environment: Environment[Any]) -> Execute:
        """What a run is, from the inside out."""
        plan = self.plan
        invoker = Invoker(reconcile, error_policy, self.store, environment, plan.on_result, on_crowd=self._wake)
        execute: Execute = invoker
        self.loops = invoker.loops
        if plan.on_gone is not None:
            execute = with_gone(execute, plan.on_gone, self.store, environment)
        execute = while_owned(plan.partition, execute, self.shutdown, plan.clock)
        if plan.own_writes is OwnWrites.WAIT:
            execute = self._catch_up = CatchUp(execute, lambda: [*self.watches.values()], self._trigger, plan.clock,
                                               self.logger)
        if self.flight is not None:
            execute = self.flight.around(execute)
        return self._timeouts.around(execute)

    def _schedule(self) -> Sink:
        """What takes all requests for runs."""
        schedule = only_owned(self.plan.partition, self.runner.trigger_all)
        return schedule if self.flight is None else self.flight.triggering(schedule)

    def subscribe(self) -> None:
        """Connect the watches with the runner: from now on their steps lead to runs, and runs are told of writes."""
        self.plan.observer.controller_started(self.plan.name, self.plan.concurrency)
        self.shutdown.draining.on_set(self.plan.client.writes.begun.add(begin_write))
        self.shutdown.draining.on_set(self.plan.client.on_write(record_write))
        if self.plan.partition is not None:
            self.shutdown.draining.on_set(self.plan.partition.listen(Listener(self.inbox, self.runner)))
        if isinstance(self.plan.main, MainStream):
            self.store.when_ready(partial(self.gate.arrived, GIVEN_STREAM))
        if self._catch_up is not None:
            self.shutdown.draining.on_set(self.plan.client.on_write(self._catch_up.wrote))
        if self.flight is not None:
            self.flight.unhook = self.plan.client.on_answer(self.flight.answered)
        for planned in self._watches:
            self._connect(planned, self.inbox.sink, partial(self.gate.arrived, planned.name))

    @property
    def watches(self) -> dict[str, Watch[Any]]:
        """Its watches, by name; other controllers may use them too."""
        return {name: share.watch for name, share in self.shares.items()}

    def release(self, reason: str) -> None:
        """Give its watches back."""
        for share in self.shares.values():
            share.release(reason)
        for store in [*self._fed]:
            store.drop_indexes()

    def add_watch(self, plan: WatchPlan) -> list[Share]:
        """One more watch of a controller that runs (one for each namespace); somebody has to start or step it."""
        before = len(self._watches)
        self._plan_watch(plan, [*(known.place for known in self._watches), *places_of(plan)])
        added = self._watches[before:]
        for planned in added:
            self.gate.expect(planned.name)
            first = FirstList(self.inbox.sink, partial(self.gate.arrived, planned.name))
            self._connect(planned, first.sink, first.completed)
        if self.shutdown.draining.is_set():
            self._give_back()
        return [planned.share for planned in added]

    def shares_now(self) -> list[Share]:
        """Its parts of watches, those included that were added since."""
        return [*self.shares.values()]

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
        return None if store is None else store.as_watched(ref)

    def _connect(self, planned: Planned, sink: Sink, arrived: Callable[[], None]) -> None:
        place = planned.place
        if self.flight is not None and planned.is_first:  # before all others, so that a run comes after what led to it
            planned.record(self.flight)
        planned.share.subscribe(place.plan.subscription, sink, arrived, read=place.reader())
        if self._catch_up is not None and planned.is_first:
            planned.share.when_caught_up(self._catch_up.caught_up)

    def _plan_watch(self, plan: WatchPlan, places: Sequence[Place]) -> None:
        """`places` are all that are known, those of this plan included."""
        served: list[Planned] = []
        for place in places:
            if place.plan is plan:
                chosen = fullest(place, places)
                known = next((one for one in (*self._watches, *served) if one.chosen is chosen), None)
                share, name = (known.share, known.name) if known is not None else self._take(chosen)
                served.append(Planned(share, chosen, place, name, is_first=known is None))
        self._watches = [*self._watches, *served]
        self._offer(plan, served)

    def _take(self, place: Place) -> tuple[Share, str]:
        api, config, plan = place.api, place.plan.config, self.plan
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
        if (store := plan.store) is not None:
            store.shows(*states)
        elif kind not in self._stores or (whole and kind in self._partial):
            store = Store(plan.api.resource, served[0].chosen.reader(), *states,
                          own_writes=self.plan.own_writes is OwnWrites.OVERLAY)
        else:
            return
        self._fed.append(store)
        self._stores[kind] = store
        (self._partial.discard if whole else self._partial.add)(kind)

    def _give_back(self) -> None:
        self.release(self.shutdown.draining.reason or "stopped")

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

    def _wake(self) -> None:
        self.runner.wake()

    def _trigger(self, requests: list[ReconcileRequest]) -> None:
        self.inbox.sink(requests)

    def _trouble_of(self, name: str) -> str:
        watch = self.watches.get(name)
        return watch.state.last_error if watch is not None else ""

    def _drain(self) -> None:
        dropped = self.runner.drain()
        waited_for = what_is_waited_for(self.runner.running(), self.shutdown, self.plan.clock)
        self.drained = f"{dropped} due run{'' if dropped == 1 else 's'} dropped; {waited_for}"
        self.plan.observer.keys_dropped(self.plan.name, dropped)
