"""A controller's parts, connected but not running: `Running` gives them threads, a simulation steps them.

    watches -> subscriptions -> inbox -> runner -> invoker, with gate, store and shutdown tokens

`invoker_of_gone` runs `on_gone` for a key without an object in the store. Such a run is like any other: it never
overlaps with another run of the same key, is logged, and is retried with backoff. It happens after a deletion, and
after any other trigger for an object that does not exist. A deletion while no controller runs is never noticed: where
that matters, use a finalizer.
"""
from __future__ import annotations

import dataclasses
import logging
import random
import threading
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any, Generic, TypeVar

from msgspec.structs import replace

from kubectl_runtime.client.api.client import OwnWrites
from kubectl_runtime.client.api.selected import SelectedNamespaces
from kubectl_runtime.core.base.guard import GuardedLogger, HousekeepingLogger, guarded_logger, name_of
from kubectl_runtime.core.base.plain import Key
from kubectl_runtime.core.base.threads import Clock, seconds
from kubectl_runtime.core.codec.views import Head, Record
from kubectl_runtime.core.meta.gvk import ApiResource, HasApiResource
from kubectl_runtime.runtime.children.applied import memory_of
from kubectl_runtime.runtime.controller.divided import DividedWatches, OwnedPart, unless_lost
from kubectl_runtime.runtime.controller.housekeeping import (
    BlockedLog,
    Housekeeping,
    OutageLog,
    Resync,
    RunTimeouts,
    SyncGate,
)
from kubectl_runtime.runtime.controller.plan import (
    GoneFunction,
    MainStream,
    Plan,
    Planned,
    StreamPlan,
    WatchPlan,
)
from kubectl_runtime.runtime.controller.taken_watches import TakenWatches
from kubectl_runtime.runtime.events.ledger import qualified_name
from kubectl_runtime.runtime.events.recorder import Recorder
from kubectl_runtime.runtime.lifecycle.lifecycle import Shutdown
from kubectl_runtime.runtime.queue.runs import Execute, RetryRateLimit, Run, begin_write, is_triggered, record_write
from kubectl_runtime.runtime.queue.scheduler import Scheduler
from kubectl_runtime.runtime.queue.work_queue import WorkQueue
from kubectl_runtime.runtime.reads.sources import Watched
from kubectl_runtime.runtime.reads.tracking import Reads
from kubectl_runtime.runtime.reconcile.invoker import Invoker, RunObserver, RunPart
from kubectl_runtime.runtime.reconcile.reconciler import Action, Context, Environment, ErrorPolicy, ReconcileFunction
from kubectl_runtime.runtime.reconcile.runner import Executor, Listener, Of, Owned, Runner, only_owned
from kubectl_runtime.runtime.recording import RunRecorder
from kubectl_runtime.runtime.store.store import Store
from kubectl_runtime.runtime.triggers.shared_watches import Share, Watch
from kubectl_runtime.runtime.triggers.streams import TriggerSource, pull, pull_stream
from kubectl_runtime.runtime.triggers.triggers import (
    FirstList,
    Inbox,
    OfHeads,
    ReconcileRequest,
    Sink,
    ref_of,
)
from kubectl_runtime.runtime.watch.config import WatcherConfig
from kubectl_runtime.runtime.watch.states import namespaces_of, pattern_of


class _Absent:
    """A stand-in for a store that has a record for each key, with only its name and namespace."""

    def __init__(self, store: Store[Any]) -> None:
        self._resource = store.resource

    def record(self, name: str, namespace: str | None) -> Record:
        return Record(Head(name=name, namespace=namespace), self._resource, b"")

    def reader(self, record: Record) -> Record:
        return record


def invoker_of_gone(on_gone: GoneFunction, store: Store[Any], environment: Environment[Any]) -> Execute:
    """Returns the function for a run that calls `on_gone(ref, ctx)` for an object that is not in the store."""

    def let_go(_obj: Record, ctx: Context[Any]) -> Action:
        on_gone(ctx.ref, ctx)
        return Action.await_change()

    absent: Any = _Absent(store)
    return Invoker(let_go, None, absent, environment).invoke_reconciler


NAMED_RUNS = 10
"""The number of runs that the log names when a stop begins to wait for them; further runs are only counted."""


K = TypeVar("K")

GIVEN_STREAM = "the given stream"


def _divided(plan: Plan) -> DividedWatches | None:
    by = plan.partition.by if plan.partition is not None else "name"
    return None if by == "name" or plan.partition is None else DividedWatches(plan, by, plan.partition)


def _logger_of(plan: Plan) -> GuardedLogger:
    if plan.housekeeping:
        return HousekeepingLogger(logging.getLogger(f"kubectl_runtime.housekeeping.{plan.name}"))
    return guarded_logger(f"kubectl_runtime.controller.{plan.name}")


class Assembly(Generic[K]):
    """The connected parts of a controller: watches, queue, runner, store."""

    def __init__(self, plan: Plan, reconcile: ReconcileFunction[Any], error_policy: ErrorPolicy[Any] | None,
                 data: Any, *, executor: Executor, on_bug: Callable[[str, BaseException], None],
                 rng: random.Random | None = None, move: Callable[[Share], object] = lambda _: None) -> None:
        """`on_bug(what, error)` gets exceptions that are defects of the library. `rng` chooses all jitter. `move`
        starts a watch that is added while the controller runs; in a simulation it starts no thread."""
        self.divided = _divided(plan)
        """The watches of a controller whose replicas divide its objects by hash ranges; None for other controllers."""
        if self.divided is not None:
            plan = replace(self.divided.plan, partition=self.divided)
        self.plan, options = plan, plan.options
        self.logger = _logger_of(plan)
        self._clock = plan.clock
        self._move = move
        self.shutdown = Shutdown(plan.clock)
        jitter = rng or random.Random()
        self._taken = TakenWatches(plan, on_bug, jitter)
        self.pulls: dict[str, Callable[[], None]] = {}
        """By name: functions that read the user's streams and trigger sources until `draining` is set, each in its own
        thread."""
        self._serving: dict[Share, Planned] = {}
        """The watches that serve `ctx.read`."""
        self.drained = ""
        """The runs in progress when the stop began, as text."""
        main = plan.main
        self._take_watches(main)
        assert main.store is not None
        self.store: Store[K] = main.store
        self.recorder = Recorder(plan.events or plan.client, qualified_name(plan.name) or "controller", rng=rng)
        namespaces = namespaces_of(main.api) if isinstance(main, WatchPlan) else frozenset()
        api = main.api if isinstance(main, WatchPlan) else None
        chosen = api.selection if isinstance(api, SelectedNamespaces) else None
        self.reads = Reads(plan.resource, plan.client, self, controller=plan.name, namespaces=namespaces, chosen=chosen,
                           own_writes=options.own_writes is OwnWrites.OVERLAY, sink=self._read_sink, clock=plan.clock,
                           draining=self.shutdown.draining, logger=self.logger, observer=options.observer)
        """The dependencies of objects on other objects that their runs read."""
        self._declared = [name for kind in plan.reads for name in self.reads.declare(kind)]
        environment: Environment[Any] = Environment(
            controller=plan.name, client=plan.client, data=data, logger=self.logger, shutdown=self.shutdown,
            backoff=options.backoff, rng=jitter, store_of=self.store_of, stored=self._taken.stored, clock=plan.clock,
            metadata_store_of=self._taken.metadata_store_of, watched=self._taken,
            recorder=self.recorder, reads=self.reads, run_timeout=plan.run_timeout)
        rate_limit = None if options.retry_rate is None else RetryRateLimit(options.retry_rate)
        queue = WorkQueue(Scheduler(debounce=seconds(options.debounce.quiet), max_wait=options.debounce.limit,
                                    rate_limit=rate_limit), rate_limit, plan.key_rate)
        self._timeouts = RunTimeouts(plan.run_timeout, self.shutdown, plan.clock, self._wake)
        self.recording = None if options.record is None else RunRecorder(options.record, plan.name, plan.clock)
        self.execute = self._execute(reconcile, error_policy, environment)
        """Runs one key; for callers that choose the key, such as a simulation."""
        queue.on_forget = self._forget
        self.runner = Runner(queue, self.execute, executor, concurrency=options.concurrency, clock=plan.clock,
                             name=plan.name, observer=options.observer, on_bug=partial(on_bug, "the executor"))
        self.inbox = Inbox(plan.resource, self.store, self._schedule(), logger=self.logger, on_bug=on_bug,
                           namespaces=namespaces, pattern=pattern_of(main.api) if isinstance(main, WatchPlan) else "")
        names = [*self.watches, *([GIVEN_STREAM] if isinstance(main, MainStream) else [])]
        begin = partial(plan.hold, self.runner.open) if plan.hold is not None else self.runner.open
        self.gate = SyncGate(names, on_open=begin, trouble_of=self._taken.trouble_of, clock=plan.clock,
                             logger=self.logger, timeout=plan.sync_timeout,
                             then="reconciling" if plan.hold is None else
                             "reconciling begins when this process holds a Lease")
        self.housekeeping = self._housekeeping(jitter)
        """The dispatcher's periodic tasks; returns the seconds until the next call."""
        self._attach_divided()
        self._plan_pulls()
        self.shutdown.draining.on_set(self._drain)
        self.shutdown.aborted.on_set(self.runner.wake)

    def _housekeeping(self, rng: random.Random) -> Housekeeping:
        plan = self.plan
        resync = Resync(plan.resync, self.inbox.trigger_everything, plan.clock, rng)
        outage = OutageLog(self.logger, plan.clock, self.runner.failing, plan.options.retry_rate)
        blocked = BlockedLog(self.logger, plan.clock, self.runner.held, plan.run_timeout)
        return Housekeeping(self.reads.check, self.gate.check, resync.check, self._timeouts.check, outage.check,
                            blocked.check)

    def _take_watches(self, main: WatchPlan | MainStream) -> None:
        try:
            self._taken.add_all([*([main] if isinstance(main, WatchPlan) else []), *self.plan.related])
        except BaseException:  # such as RequestError for a view class whose fields cannot be kept
            self.release("the controller cannot be started")
            raise
        self.shutdown.draining.on_set(self._give_back)

    def _attach_divided(self) -> None:
        if self.divided is not None:
            self.divided.attach(
                self._taken, connect=self._connect_part, start=self._move,
                expect=self.gate.expect, arrived=self.gate.arrived, forget=self.runner.forget,
                trigger=self.inbox.trigger_those, draining=self.shutdown.draining, logger=self.logger)
            self.divided.begin_anchors(self._taken.planned)

    def _execute(self, reconcile: ReconcileFunction[Any], error_policy: ErrorPolicy[Any] | None,
                 environment: Environment[Any]) -> Execute:
        """The function that executes a run, with the run's parts in order."""
        plan = self.plan
        parts: list[RunPart] = []
        if observer := RunObserver(plan.name, plan.options.observer, plan.clock):
            parts.append(observer)
        if plan.run_timeout is not None:
            parts.append(self._timeouts)
        if self.recording is not None:
            parts.append(self.recording)
        if self.divided is not None:
            parts.append(OwnedPart(self.divided, plan.clock))
        elif plan.partition is not None:
            parts.append(Owned(plan.partition, plan.clock))
        invoker = Invoker(reconcile, error_policy, self.store, environment, plan.on_result, parts=parts,
                          on_many=self._wake, ready=plan.options.ready, reads=self.reads)
        self.loops = invoker.loops
        if plan.on_gone is not None:
            gone = invoker_of_gone(plan.on_gone, self.store, environment)
            invoker.gone = gone if self.divided is None else unless_lost(gone)
        return invoker.__call__  # a method is cheaper to call than an object

    def _schedule(self) -> Sink:
        """The sink for all reconcile requests."""
        schedule = only_owned(self.plan.partition, self.runner.trigger_all)
        return schedule if self.recording is None else self.recording.triggering(schedule)

    def subscribe(self) -> None:
        """Connect the watches with the runner. From then on, watch events lead to runs, and each run records its own
        writes."""
        self.plan.options.observer.controller_started(self.plan.name, self.plan.options.concurrency)
        self.shutdown.draining.on_set(self.plan.client.writes.begun.add(begin_write))
        self.shutdown.draining.on_set(self.plan.client.on_write(record_write))
        if self.plan.partition is not None:
            memory, reads = memory_of(self.plan.client), self.reads

            def forget(of: Of) -> None:
                memory.forget(of)
                reads.forget_all(of)
                self.runner.wake()  # so that the dispatcher releases watches that no run reads any more

            self.shutdown.draining.on_set(self.plan.partition.listen(Listener(self.inbox, self.runner, forget)))
        if isinstance(self.plan.main, MainStream):
            self.store.when_ready(partial(self.gate.arrived, GIVEN_STREAM))
        if self.recording is not None:
            self.recording.unhook = self.plan.client.on_answer(self.recording.answered)
        for planned in self._taken.planned:
            self._connect(planned, self._sink_of(planned.scope.plan), partial(self.gate.arrived, planned.name))
        for kind in self.plan.reads:
            self.reads.connect(kind, self.gate.arrived)

    @property
    def watches(self) -> dict[str, Watch[Any]]:
        """The controller's watches, by name; other controllers may use them, too."""
        return self._taken.watches

    @property
    def shares(self) -> list[Share]:
        """One `Share` for each watch that the controller uses, including watches that were added later."""
        return [*self._taken.shares.values()]

    @property
    def leaving(self) -> list[threading.Thread]:
        """The threads of released watches; they end by themselves."""
        return self._taken.leaving

    def store_of(self, kind: HasApiResource | ApiResource) -> Store[Any]:
        """The store of a watched kind. Raises RequestError if the controller does not watch the kind."""
        return self._taken.store_of(kind)

    def release(self, reason: str) -> None:
        """Release the watches."""
        self._taken.release(reason)

    def add_watch(self, plan: WatchPlan) -> list[Share]:
        """Add a watch, or one watch for each namespace, to a running controller. The caller starts or steps the
        returned watches."""
        added = self._taken.add_one(plan)
        for planned in added:
            self.gate.expect(planned.name)
            first = FirstList(self._sink_of(planned.scope.plan), partial(self.gate.arrived, planned.name))
            self._connect(planned, first.sink, first.completed)
        if self.shutdown.draining.is_set():
            self._give_back()
        return [planned.share for planned in added]

    def add_read(self, kind: Any) -> None:
        """Add a watch of `kind` for `ctx.read`. The controller is already running."""
        for name in self.reads.declare(kind):
            self.gate.expect(name)
        for watched in self.reads.connect(kind, self.gate.arrived):
            self.start(watched)

    # --- the watches of reads ---

    def take(self, api: Any, config: WatcherConfig) -> Watched:
        """Like `Watches.take`."""
        if config.backoff is None and isinstance(self.plan.main, WatchPlan):
            config = dataclasses.replace(config, backoff=self.plan.options.watch.backoff)
        planned = self._taken.take_more(api, config)
        self._serving[planned.share] = planned
        return Watched(planned.share, planned.name, planned.chosen.is_whole)

    def connect(self, watched: Watched, subscription: OfHeads, sink: Sink, arrived: Callable[[], None]) -> None:
        """Like `Watches.connect`."""
        planned = self._serving[watched.share]
        if self.recording is not None and planned.is_first:
            planned.record(self.recording)
        watched.share.subscribe(subscription, sink, arrived, logger=self.logger)

    def start(self, watched: Watched) -> None:
        """Like `Watches.start`."""
        if self.shutdown.draining.is_set():
            self._give_back()
        else:
            self._move(watched.share)

    def drop(self, watched: Watched, reason: str) -> None:
        """Like `Watches.drop`."""
        self._serving.pop(watched.share, None)
        self._taken.drop(watched.share, reason)

    def trigger(self, item: Any) -> None:
        """Request a run for an object or ref that the program passes. Raises RequestError for an object of another
        kind."""
        is_triggered(ref_of(item, self.plan.resource).key)
        self.inbox.trigger(item)

    def add_source(self, source: TriggerSource, *, bulk: bool) -> tuple[str, Callable[[], None]]:
        """Add a trigger source. Returns the source's name, and the body of a new thread: it reads the source until the
        source ends or `draining` is set."""
        kind = "bulk trigger source" if bulk else "trigger source"
        name = f"{kind} {1 + sum(name.startswith(kind) for name in self.pulls)}"
        to_requests = self.inbox.bulk if bulk else self.inbox.external
        self.pulls[name] = partial(pull, source, to_requests, self.inbox.sink, self.shutdown.draining, self._clock,
                                   self.logger)
        return name, self.pulls[name]

    def dispatch(self) -> None:
        """The body of the dispatcher's thread. During a drain it returns once no run in progress needs the
        dispatcher."""
        self.runner.dispatch(self.housekeeping)
        self._timeouts.see_through()

    def _sink_of(self, plan: WatchPlan | StreamPlan) -> Sink:
        if plan is self.plan.main or (isinstance(plan, WatchPlan) and plan.store is not None):
            return self.inbox.sink
        # The controller may watch children in more namespaces than their owners. The empty name prevents a warning
        # about an owner outside the controller's namespaces.
        return self.inbox.sink_of("" if plan.is_owned else name_of(plan.subscription))

    def _connect(self, planned: Planned, sink: Sink, arrived: Callable[[], None]) -> None:
        scope = planned.scope
        # The recording subscribes before the controller, so that it records a change before the runs that it causes.
        if self.recording is not None and planned.is_first:
            planned.record(self.recording)
        planned.share.subscribe(scope.plan.subscription, sink, arrived, read=scope.reader(),
                                logger=self.logger)

    def _connect_part(self, planned: Planned) -> None:
        """Make the watch of a shard lead to runs. The watch's list is already complete."""
        first = FirstList(self._sink_of(planned.scope.plan), lambda: None)
        self._connect(planned, first.sink, first.completed)

    def _give_back(self) -> None:
        self.release(self.shutdown.draining.reason or "stopped")

    def _plan_pulls(self) -> None:
        plan = self.plan
        if isinstance(plan.main, MainStream):
            self._taken.keep(plan.main.store)
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
        self.pulls[name] = partial(pull_stream, plan.stream, plan.subscription, self._sink_of(plan), draining, store,
                                   self._clock, self.logger)

    def _wake(self) -> None:
        self.runner.wake()

    def _read_sink(self, requests: list[ReconcileRequest]) -> None:
        self.inbox.sink(requests)

    def _forget(self, key: Key) -> None:
        self.loops.forget(key)
        self.reads.forget(key)
        if self.reads.untidy:
            self.runner.wake_locked()

    def _drain(self) -> None:
        dropped = self.runner.drain()
        waited_for = what_is_waited_for(self.runner.running(), self.shutdown, self.plan.clock)
        self.drained = f"{dropped} due run{'' if dropped == 1 else 's'} dropped; {waited_for}"
        self.plan.options.observer.keys_dropped(self.plan.name, dropped)


def what_is_waited_for(runs: list[Run], shutdown: Shutdown, clock: Clock) -> str:
    """Text for the log when a stop begins: the runs in progress, and how long the stop will wait for them."""
    if not runs:
        return "nothing is running"
    left = shutdown.time_left()
    named = ", ".join(str(run.request.ref) for run in runs[:NAMED_RUNS])
    more = f" and {len(runs) - NAMED_RUNS} more" if len(runs) > NAMED_RUNS else ""
    try:
        until = f"until {(clock.now() + timedelta(seconds=left)).astimezone():%H:%M:%S} ({left:.0f} s)"
    except OverflowError:
        until = "without a limit"
    return f"waits {until} for {len(runs)} run{'s' if len(runs) > 1 else ''}: {named}{more}"
