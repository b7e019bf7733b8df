"""A controller's parts, wired together but not running: `Running` gives them threads, a simulation steps them by hand.

    Plan       what the `Controller` was told, frozen
    Assembly   watches -> subscriptions -> runner -> applier, with gate, store and shutdown tokens
"""
from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from kubectl_runtime.core.clock import Clock
from kubectl_runtime.core.errors import RequestError
from kubectl_runtime.core.gvk import ApiResource, HasApiResource, api_resource_of
from kubectl_runtime.core.stop import StopToken
from kubectl_runtime.runtime.applier import Applier
from kubectl_runtime.runtime.backoff import DEFAULT_BACKOFF, WatchBackoff
from kubectl_runtime.runtime.context import Environment
from kubectl_runtime.runtime.events import Event, InitDone
from kubectl_runtime.runtime.executor import Executor
from kubectl_runtime.runtime.failures import DEFAULT_KEY_BACKOFF, KeyBackoff
from kubectl_runtime.runtime.gate import Gate
from kubectl_runtime.runtime.reconciler import ErrorPolicy, ReconcileFunction
from kubectl_runtime.runtime.runner import Runner
from kubectl_runtime.runtime.runqueue import RunQueue
from kubectl_runtime.runtime.runs import record_write
from kubectl_runtime.runtime.scheduler import Scheduler
from kubectl_runtime.runtime.shutdown import Shutdown
from kubectl_runtime.runtime.sources import BULK, EXTERNAL, TriggerSource, pull, ref_of
from kubectl_runtime.runtime.store import Store
from kubectl_runtime.runtime.streams import closing_source
from kubectl_runtime.runtime.triggers import ReconcileRequest, Subscription, named_after, trigger_self
from kubectl_runtime.runtime.usercode import guarded, guarded_logger
from kubectl_runtime.runtime.watch_api import WatchApi
from kubectl_runtime.runtime.watcher_config import WatcherConfig
from kubectl_runtime.runtime.watches import Watch

if TYPE_CHECKING:
    from kubectl_runtime.client.client import Client

K = TypeVar("K")

GIVEN_STREAM = "the given stream"


@dataclass(frozen=True)
class WatchPlan:
    """One watch: what, how, and which requests follow from it."""

    api: WatchApi[Any]
    config: WatcherConfig
    subscription: Subscription


@dataclass(frozen=True)
class StreamPlan:
    """The main objects come from a stream that somebody else made, in passing a store that somebody else keeps."""

    events: Iterable[Event[Any]]
    store: Store[Any]
    stop: StopToken | None


@dataclass(frozen=True)
class Plan:
    """Everything a controller was told before it starts."""

    name: str
    client: Client
    clock: Clock
    resource: ApiResource
    main: WatchPlan | StreamPlan
    related: tuple[WatchPlan, ...] = ()
    triggers: tuple[TriggerSource, ...] = ()
    bulk_triggers: tuple[TriggerSource, ...] = ()
    concurrency: int = 10
    debounce: float = 0.0
    max_wait: float | None = None
    backoff: KeyBackoff = DEFAULT_KEY_BACKOFF
    sync_timeout: float | None = None
    watch_backoff: WatchBackoff = DEFAULT_BACKOFF
    grace: float = 30.0
    signals: bool = False
    stop: StopToken | None = None


class Assembly(Generic[K]):
    """The parts of one running life of a controller."""

    def __init__(self, plan: Plan, reconcile: ReconcileFunction[Any], error_policy: ErrorPolicy[Any] | None,
                 data: Any, *, executor: Executor, on_bug: Callable[[str, BaseException], None],
                 rng: random.Random | None = None) -> None:
        """`on_bug(what, error)` hears of defects of the library; `rng` draws all jitter."""
        self.plan = plan
        self.logger = guarded_logger(f"kubectl_runtime.controller.{plan.name}")
        self.shutdown = Shutdown(plan.clock)
        self._on_bug = on_bug
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
            client=plan.client, data=data, logger=self.logger, shutdown=self.shutdown, backoff=plan.backoff,
            rng=self._rng, store_of=self.store_of)
        queue = RunQueue(Scheduler(debounce=plan.debounce, max_wait=plan.max_wait))
        self.runner = Runner(queue, Applier(reconcile, error_policy, self.store, environment), executor,
                             concurrency=plan.concurrency, clock=plan.clock)
        names = [*self.watches, *([GIVEN_STREAM] if isinstance(main, StreamPlan) else [])]
        self.gate = Gate(names, on_open=self.runner.open, trouble_of=self._trouble_of, clock=plan.clock,
                         logger=self.logger, timeout=plan.sync_timeout)
        self._plan_pulls()
        self.shutdown.draining.on_set(self._drain)
        self.shutdown.aborted.on_set(self.runner.wake)

    def subscribe(self) -> None:
        """Connect the watches with the runner: from now on their steps lead to runs, and runs are told of writes."""
        self.shutdown.draining.on_set(self.plan.client.on_write(record_write))
        for watch, plan, name in self._watch_plans:
            watch.subscribe(self._with_arrival(name, plan.subscription), self.sink)

    def sink(self, requests: list[ReconcileRequest]) -> None:
        """Where all triggers go. What is not of the controller's kind is refused, with a line in the log."""
        own = self.plan.resource
        try:
            accepted = requests if all(request.ref.resource is own for request in requests) else self._own(requests)
            self.runner.trigger_all(accepted)
        except Exception as error:  # noqa: BLE001 - a defect here: a controller that looks alive and hears nothing
            self._on_bug("the queue", error)

    def trigger(self, item: Any) -> None:
        """Reconcile an object or ref. Raises RequestError when it is not of the controller's kind."""
        self.sink(self._external(item))

    def trigger_everything(self) -> None:
        """Reconcile every stored object."""
        self.sink(self._everything())

    def store_of(self, kind: HasApiResource | ApiResource) -> Store[Any]:
        """The store of a watched kind. Raises RequestError when this controller does not watch it."""
        resource = api_resource_of(kind)
        found = self._stores.get((resource.group, resource.kind))
        if found is None:
            known = ", ".join(sorted(store.resource.full_name for store in self._stores.values()))
            raise RequestError(f"controller {self.plan.name} does not watch {resource.full_name}, only {known}: "
                               "add .owns(api) or .watches(api, mapper)")
        return found

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
        plan, draining, own = self.plan, self.shutdown.draining, self.plan.resource
        if isinstance(plan.main, StreamPlan):
            self._stores.setdefault((own.group, own.kind), plan.main.store)
            if plan.main.stop is not None:
                draining.on_set(partial(plan.main.stop.set, "the controller stops"))
            self.pulls["stream"] = partial(self._pull_stream, plan.main)
        for number, source in enumerate(plan.triggers, 1):
            self.pulls[f"trigger source {number}"] = partial(pull, source, self._external, self.sink, draining)
        for number, source in enumerate(plan.bulk_triggers, 1):
            self.pulls[f"bulk trigger source {number}"] = partial(pull, source, self._everything, self.sink, draining)

    def _external(self, item: Any) -> list[ReconcileRequest]:
        return [ReconcileRequest(ref_of(item, self.plan.resource), EXTERNAL)]

    def _everything(self, _item: Any = None) -> list[ReconcileRequest]:
        own = self.plan.resource
        return [ReconcileRequest(record.ref.canonical(own), BULK) for record in self.store.records()]

    def _pull_stream(self, main: StreamPlan) -> None:
        subscription = self._with_arrival(GIVEN_STREAM, trigger_self(self.plan.resource))

        def pass_on() -> None:
            with closing_source(main.events):
                for event in main.events:
                    if requests := list(subscription(event)):
                        self.sink(requests)
                    if self.shutdown.draining.is_set():
                        return

        guarded(None, f"the stream of controller {self.plan.name}", pass_on)
        if not self.shutdown.draining.is_set():
            raise RuntimeError("the given stream ended, so nothing would be noticed any more")

    def _with_arrival(self, name: str, subscription: Subscription) -> Subscription:
        """`subscription`, which also tells the gate when the list of `name` is complete."""

        def requests(event: Event[Any]) -> Iterable[ReconcileRequest]:
            if isinstance(event, InitDone):
                self.gate.arrived(name)
            return subscription(event)

        return named_after(subscription, requests)

    def _own(self, requests: list[ReconcileRequest]) -> list[ReconcileRequest]:
        accepted = []
        for request in requests:
            try:
                accepted.append(ReconcileRequest(ref_of(request.ref, self.plan.resource), request.reason,
                                                 request.cause))
            except RequestError as error:
                self.logger.error("a trigger (%s) is ignored: %s", request.reason, error)
        return accepted

    def _trouble_of(self, name: str) -> str:
        watch = self.watches.get(name)
        return watch.state.last_error if watch is not None else ""

    def _drain(self) -> None:
        running, dropped = len(self.runner.running()), self.runner.drain()
        self.logger.info("stopping: %s; %d runs in progress, %d scheduled ones dropped", self.shutdown.draining.reason,
                         running, dropped)
