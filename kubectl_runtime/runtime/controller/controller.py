"""`Controller`: declares which objects to watch, and with which options, then runs a reconciler for these objects.

The methods change the controller and return it. `owns`, `watches`, `reads` and trigger sources may also be added while
the controller runs, with immediate effect; streams must be added before the start. A stopped controller may be started
again.
"""
from __future__ import annotations

import dataclasses
import threading
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Generic, Literal, Self, TypeVar, Unpack, overload

import msgspec
from msgspec.structs import replace

from kubectl_runtime.client.api.client import OwnWrites
from kubectl_runtime.core.base.errors import RequestError
from kubectl_runtime.core.base.guard import check_api, check_callback, check_type
from kubectl_runtime.core.base.threads import Duration, duration_of, period_of
from kubectl_runtime.core.meta.gvk import ApiResource, HasApiResource, api_resource_of
from kubectl_runtime.core.requests.params import check_flag
from kubectl_runtime.core.scope import StopToken
from kubectl_runtime.runtime.controller.options import (
    ControllerOptions,
    StreamOptions,
    WatchOptions,
    current_options,
    takes_options,
)
from kubectl_runtime.runtime.controller.plan import (
    GoneFunction,
    MainStream,
    Plan,
    StreamPlan,
    WatchPlan,
    check_children,
    check_functions,
    check_predicate,
    functions_of,
)
from kubectl_runtime.runtime.controller.running import Running
from kubectl_runtime.runtime.lifecycle.lifecycle import DEFAULT_GRACE
from kubectl_runtime.runtime.queue.work_queue import KeyRate
from kubectl_runtime.runtime.reconcile.reconciler import ErrorPolicy, Reconciles, ResultCallback
from kubectl_runtime.runtime.store.indexes import IndexFunctions, check_indexes
from kubectl_runtime.runtime.store.store import Store, StoreState
from kubectl_runtime.runtime.triggers.predicates import Predicate
from kubectl_runtime.runtime.triggers.shared_watches import is_whole
from kubectl_runtime.runtime.triggers.streams import TriggerSource, check_source
from kubectl_runtime.runtime.triggers.triggers import (
    EventMapper,
    Mapper,
    On,
    check_mapper,
    trigger_others,
    trigger_owners,
    trigger_self,
)
from kubectl_runtime.runtime.watch.config import DEFAULT_CONFIG, WatcherConfig
from kubectl_runtime.runtime.watch.driver import reader_of
from kubectl_runtime.runtime.watch.event import Event
from kubectl_runtime.runtime.watch.states import apis_of, as_configured

if TYPE_CHECKING:
    from concurrent.futures import Executor  # noqa: F401 - in the signature of the API reference
    from pathlib import Path  # noqa: F401 - in the signature of the API reference

    from kubectl_runtime.client.api.api import Api, Namespaces
    from kubectl_runtime.client.api.client import Client
    from kubectl_runtime.client.api.selected import SelectedNamespaces
    from kubectl_runtime.core.base.observer import Observer  # noqa: F401 - in the signature of the API reference
    from kubectl_runtime.core.codec.views import Modify  # noqa: F401 - in the signature of the API reference
    from kubectl_runtime.runtime.controller.options import Debounce  # noqa: F401 - in the signature of the API reference
    from kubectl_runtime.runtime.queue.runs import KeyBackoff  # noqa: F401 - in the signature of the API reference

K = TypeVar("K")
R = TypeVar("R")
D = TypeVar("D")


class Controller(Generic[K]):
    """Reconciles the objects of an Api: watches them, and calls your reconciler for each object that changes.

    A reconciler is a function `(obj, ctx)` that returns an `Action`, or an object with a method `reconcile` of this
    form, for example a `Reconciler`. Pass it to `run`, which blocks until the controller stops, or to `start`, which
    returns at once. Nothing is watched before `run` or `start` is called. Two runs for one object never overlap. If a
    run fails, its object is retried with exponential backoff; other objects are not delayed. The methods that configure
    the controller (`owns`, `watches`, `shutdown_on_signal`, …) return it, so calls can be chained. Call them in one
    thread.

    >>> def reconcile(obj: Deployment, ctx: Context[None]) -> Action:
    ...     seen.append(obj.name)
    ...     return Action.await_change()
    >>> seen = []
    >>> controller = Controller(Api.all(client, Deployment)).owns(Api.all(client, ConfigMap))
    >>> with controller.start(reconcile) as running:
    ...     running.wait_until_ready(10)
    """

    @takes_options(WatchOptions)
    def __init__(self, api: Api[K] | Namespaces[K] | SelectedNamespaces[K],
                 **options: Unpack[WatchOptions[K]]) -> None:
        """Reconcile the objects of `api`, at most `concurrency` objects at the same time.

        - `watch`: how to list and watch: selectors, page size, the backoff after a failure.
        - `concurrency`: the most runs at the same time. Default: 10.
        - `debounce`: run an object once it has not changed for this long, and at the latest ten times this long after
          its first change; a `Debounce` sets another limit. Default: run at once.
        - `backoff`: the wait after a failed run of an object.
        - `name`: the name in logs, metrics and thread names. Default: the kind in lower case.
        - `predicate`: selects the changes that lead to a run (see `predicates`). Default: all changes.
        - `modify`: a function that removes unneeded parts of each object before the store keeps it, such as
          `strip_managed_fields`. It changes only the stored object, never the object on the server.
        - `observer`: receives the events of watches, stores, queue and runs. Default: the client's observer.
        - `executor`: your own thread pool; you shut it down. Default: daemon threads of the controller.
        - `retry_rate`: the maximum number of retries per second after failed runs, for all objects together. Default:
          10. None: no limit.
        - `own_writes`: what the stores return between a write of this process and its watch event. OVERLAY: the answer
          to the write. OFF: the old state. Default: the client's setting.
        - `record`: a file that records inputs and actions of the controller, for `kubectl-runtime replay`.
          Default: none.
        - `ready`: the type of a condition, such as "Ready", that reports how the last run of an object ended. It is
          written, with observedGeneration, after each run that changes it. Its status is True with the reason
          Reconciled; False with the error's class and message; or Unknown, after `Action.waiting` or while children are
          not ready. Default: none.
        - `indexes`: index functions by name, like those of `Store.add_index`, for `by_index` of the controller's store.
          Default: none.

        Durations are seconds or `timedelta`. Raises RequestError for an invalid value, and TypeError for an observer
        that is not an Observer and for an unknown option.
        """
        check_api(api, "Controller")
        given, methods = current_options(options, WatchOptions, "Controller")
        made = ControllerOptions.of(given, api.client, api.resource)
        reader = reader_of(as_configured(apis_of(api)[0], made.watch).kind)
        # No watch feeds the store before the controller starts.
        state = StoreState(api.resource, api.client.clock)
        state.unstarted = "its controller was never started: controller.start(...) or .run(...)"
        store = Store(api.resource, reader, state, own_writes=made.own_writes is OwnWrites.OVERLAY)
        store.declared_by = "Controller(api, indexes={...})"
        store.add_indexes(made.indexes)
        main = WatchPlan(api, made.watch, trigger_self(api.resource, predicate=made.predicate), store, made.modify)
        self._set_up(main, made, api.client, methods)

    @classmethod
    @takes_options(StreamOptions)
    def for_stream(cls, stream: Iterable[Event[K]] | Iterable[K], store: Store[K], *, client: Client,
                   stop: StopToken | None = None, **options: Unpack[StreamOptions[K]]) -> Controller[K]:
        """Reconcile the objects of `store` whenever `stream` yields a changed object.

        `stream` is a `reflector`'s output, directly or through filters; the reflector fills `store`. The stream yields
        events or objects. The controller reads the stream in its own thread, and closes it. The controller ends with an
        error when the stream ends, or when the stream did not pass a reflector. An object that is no longer in the
        store counts as deleted. `stop` is the token that ends the stream: the controller sets the token when it stops.
        A stream can be used only once, so this controller can be started only once. The options are those of
        `Controller`, except `watch`, `modify`, `record` and `indexes`, which need a watch; `observer` receives the
        events of the queue and the runs.
        """
        given, methods = current_options(options, StreamOptions, "Controller.for_stream",
                                         ("max_wait", "resync", "run_timeout", "sync_timeout"))
        made = ControllerOptions.of(given, client, store.resource)
        self: Controller[K] = cls.__new__(cls)
        main = MainStream(stream, trigger_self(store.resource, predicate=made.predicate), stop, store=store)
        self._set_up(main, made, client, methods)
        return self

    def _set_up(self, main: WatchPlan | MainStream, options: ControllerOptions, client: Client,
                methods: Mapping[str, Any]) -> None:
        resource = main.api.resource if isinstance(main, WatchPlan) else main.store.resource
        self._plan = Plan(options, client, client.clock, resource, main)
        self._running: Running[K] | None = None
        """The controller as last started."""
        self._claim, self._is_launching = threading.Lock(), False
        for name, value in methods.items():  # options of 0.2
            getattr(self, name)(value)

    @property
    def store(self) -> Store[K]:
        """The store of the objects that the controller reconciles, for mappers and for code outside of runs. The store
        exists before the start but is complete only later (see `Store.wait_until_ready`). A restarted controller keeps
        its store."""
        store = self._plan.main.store
        assert store is not None
        return store

    def owns(self, api: Api[Any] | Namespaces[Any] | SelectedNamespaces[Any], *,
             watch: WatcherConfig = DEFAULT_CONFIG, whole: bool = False, predicate: Predicate[Any] | None = None,
             controller_only: bool = False, indexes: IndexFunctions[Any] | None = None) -> Self:
        """Declare that the reconciler creates objects of `api` with an owner reference. Each change of such an object
        triggers a run of its owner.

        A deletion is a change as well. By default only metadata is watched and kept; that is enough for `ctx.ensure`,
        and a `predicate` gets only metadata. With `whole`, whole objects are kept, as `ctx.store(Kind)` and the status
        of workloads in `ctx.ensure(...).ready` require. The owner is found by group and kind; the version is ignored.
        `controller_only`: only an owner reference with `controller: true` counts. `indexes`: index functions by name,
        as for `Store.add_index`. Raises RequestError for namespaces in which the controller reconciles nothing, because
        an owner is in the same namespace as the objects that it owns.
        """
        check_api(api, "owns")
        check_flag("whole", whole)
        check_type("watch", watch, WatcherConfig, "WatcherConfig()")
        check_predicate(predicate)
        check_flag("controller_only", controller_only)
        if isinstance(self._plan.main, WatchPlan):
            check_children(api, self._plan.main.api)
        subscription = trigger_owners(self._plan.resource, predicate=predicate, controller_only=controller_only)
        config = self._as_main(watch)
        if whole and not all(is_whole(one, config) for one in apis_of(api)):
            raise RequestError(f"owns(..., whole=True): the Api of {api.resource.full_name}, or watch=, selects only "
                               "parts of objects: pass an Api and a watch of whole objects")
        return self._watch(WatchPlan(api if whole else api.with_metadata_only(), config, subscription, is_owned=True,
                                     indexes=check_indexes("indexes", indexes),
                                     declared_by=".owns(api, indexes={...})"))

    @overload
    def watches(self, api: Api[R] | Namespaces[R] | SelectedNamespaces[R], mapper: Mapper[R], *,
                watch: WatcherConfig = ...,
                predicate: Predicate[R] | None = ..., on: Literal["object"] = ...,
                indexes: IndexFunctions[R] | None = ...) -> Self: ...
    @overload
    def watches(self, api: Api[R] | Namespaces[R] | SelectedNamespaces[R], mapper: EventMapper[R], *,
                watch: WatcherConfig = ...,
                predicate: Predicate[R] | None = ..., on: Literal["event"],
                indexes: IndexFunctions[R] | None = ...) -> Self: ...
    def watches(self, api: Api[Any] | Namespaces[Any] | SelectedNamespaces[Any],
                mapper: Mapper[Any] | EventMapper[Any], *,
                watch: WatcherConfig = DEFAULT_CONFIG, predicate: Predicate[Any] | None = None,
                on: On = "object", indexes: IndexFunctions[Any] | None = None) -> Self:
        """For each changed or deleted object of `api`, trigger the objects that `mapper(obj)` names. The mapper returns
        refs, one ref, EVERYTHING (each object of the controller), or None.

        Refs in namespaces that the controller does not watch are ignored, and logged once for each namespace. For a
        changed object the mapper is also called with the former state, so that objects to which the former state
        referred are reconciled, too. With `on="event"` the mapper gets one `ObjectEvent` with both states. The mapper
        runs in the watch's thread and must not block. An exception is logged, and its event triggers nothing.
        `indexes`: index functions by name, as for `Store.add_index`, for `ctx.store(Kind)`.
        """
        check_api(api, "watches")
        check_type("watch", watch, WatcherConfig, "WatcherConfig()")
        check_predicate(predicate)
        check_mapper(mapper, on)
        subscription = trigger_others(mapper, predicate=predicate, on=on)
        return self._watch(WatchPlan(api, self._as_main(watch), subscription, indexes=check_indexes("indexes", indexes),
                                     declared_by=".watches(api, mapper, indexes={...})"))

    def reads(self, kind: HasApiResource | ApiResource) -> Self:
        """Declare that runs read objects of this kind by `ctx.read` or `ctx.read_all`, which also work without the
        declaration. With the declaration, the kind's list is complete before the first run, `kubectl-runtime rbac`
        includes the kind, and `kubectl-runtime plan` reads the kind. Only metadata is watched, in the controller's
        namespaces (or in all). Raises RequestError if `kind` is not a kind."""
        api_resource_of(kind)
        if kind in self._plan.reads:
            return self
        if (running := self._alive()) is not None:
            running.add_read(kind)
        self._plan = replace(self._plan, reads=(*self._plan.reads, kind))
        return self

    def owns_stream(self, stream: Iterable[Any], *, stop: StopToken | None = None,
                    controller_only: bool = False) -> Self:
        """Like `owns`, but the changes come from your own stream. The stream yields events, or the objects of
        `touched_objects`. These include deleted objects, so that deletions trigger runs, too. A thread reads the stream
        and closes it; `stop` is the token that ends the stream. Runs do not wait for the stream's first list. Raises
        RequestError while the controller runs."""
        subscription = trigger_owners(self._plan.resource, controller_only=controller_only)
        return self._pull(StreamPlan(stream, subscription, stop, is_owned=True))

    def watches_stream(self, stream: Iterable[Any], mapper: Mapper[Any] | EventMapper[Any], *,
                       stop: StopToken | None = None, on: On = "object") -> Self:
        """Like `watches`, but the changes come from your own stream; see `owns_stream`."""
        check_mapper(mapper, on)
        return self._pull(StreamPlan(stream, trigger_others(mapper, on=on), stop))

    def reconcile_on(self, source: TriggerSource) -> Self:
        """Reconcile each object that `source` names. `source` is an iterable or queue of objects or refs, which a
        thread reads. An item of another type is logged and skipped."""
        check_source(source)
        self._plan = replace(self._plan, triggers=(*self._plan.triggers, source))
        if (running := self._alive()) is not None:
            running.add_source(source, bulk=False)
        return self

    def reconcile_all_on(self, source: TriggerSource) -> Self:
        """Reconcile every stored object whenever `source` yields an item of any type."""
        check_source(source)
        self._plan = replace(self._plan, bulk_triggers=(*self._plan.bulk_triggers, source))
        if (running := self._alive()) is not None:
            running.add_source(source, bulk=True)
        return self

    def shutdown_on_signal(self, grace: Duration = DEFAULT_GRACE) -> Self:
        """Stop on SIGINT and SIGTERM, with `grace` seconds for runs in progress.

        A second signal ends the process at once, with status 128 plus the signal's number. If a reconciler is still
        stuck after the grace period, `run` flushes the logs and ends the process with status 1. The controller must be
        started in the main thread; in another thread signals have no effect, and a warning is logged.
        """
        self._plan = replace(self._plan, signals=True, grace=duration_of("grace", grace))
        return self

    def graceful_shutdown_on(self, stop: StopToken, grace: Duration = DEFAULT_GRACE) -> Self:
        """Stop when `stop` is set, with `grace` seconds for runs in progress. Use this method when `run` is called in a
        thread of your own."""
        check_type("stop", stop, StopToken, "StopToken()")
        self._plan = replace(self._plan, stop=stop, grace=duration_of("grace", grace))
        return self

    def sync_timeout(self, timeout: Duration) -> Self:
        """End the controller with SyncTimeoutError if the first lists have not arrived within `timeout`.

        Without a timeout the controller waits, and logs a warning every 30 s. Raises RequestError for an invalid
        duration.
        """
        self._plan = replace(self._plan, sync_timeout=duration_of("sync_timeout", timeout))
        return self

    def resync(self, period: Duration) -> Self:
        """Run every object again after `period`, plus or minus 10 %, even if nothing has changed.

        Raises RequestError for an invalid duration and for 0.
        """
        self._plan = replace(self._plan, resync=period_of("resync", period))
        return self

    def key_rate(self, rate: KeyRate | None) -> Self:
        """Limit each object to `rate.runs` runs in each `rate.per`, whatever causes them: changes, related objects,
        requeues, retries, your own triggers. Further requests are merged into one run at the next allowed time.

        By default, and with None, there is no limit. Other objects do not wait. Raises RequestError if `rate` is
        neither a `KeyRate` nor None.
        """
        if rate is not None:
            check_type("key_rate", rate, KeyRate, "KeyRate(runs=10, per=60)")
        self._plan = replace(self._plan, key_rate=rate)
        return self

    def run_timeout(self, timeout: Duration) -> Self:
        """Set `ctx.stop` of a run that takes longer than `timeout`. By default there is no limit.

        Raises RequestError for an invalid duration and for 0.
        """
        self._plan = replace(self._plan, run_timeout=period_of("run_timeout", timeout))
        return self

    def on_gone(self, function: GoneFunction) -> Self:
        """Call `function(ref, ctx)` instead of the reconciler when the object does not exist, as after its deletion.

        The call is a run like any other: it never overlaps with another run of the same object, and is retried when it
        raises. A deletion while the program is down is never noticed: where that matters, use a finalizer.
        """
        check_callback("on_gone", function, "ref", "ctx")
        subscription = trigger_self(self._plan.resource, predicate=self._plan.options.predicate, run_gone=True)
        self._plan = replace(self._plan, main=replace(self._plan.main, subscription=subscription), on_gone=function)
        return self

    def on_result(self, callback: ResultCallback) -> Self:
        """Call `callback(report)` after each run of the reconciler, in the run's thread: see `RunReport`.

        The callback must be safe for several threads. If it raises an exception, the exception is logged.
        """
        check_callback("on_result", callback, "report")
        self._plan = replace(self._plan, on_result=callback)
        return self

    @overload
    def run(self, reconciler: Reconciles[K, None], *,
            error_policy: ErrorPolicy[K] | None = None) -> None: ...

    @overload
    def run(self, reconciler: Reconciles[K, D], *, context: D,
            error_policy: ErrorPolicy[K] | None = None) -> None: ...

    def run(self, reconciler: Any, *, error_policy: ErrorPolicy[K] | None = None, context: Any = None) -> None:
        """Reconcile until a signal, a stop token or KeyboardInterrupt stops the controller. Blocks.

        Arguments are those of `start`. Raises ControllerError when the controller ends by itself (see
        `ControllerError`).
        """
        self._launch(reconciler, error_policy, context, signal_thread=False).serve(self._plan.grace)

    @overload
    def start(self, reconciler: Reconciles[K, None], *,
              error_policy: ErrorPolicy[K] | None = None) -> Running[K]: ...

    @overload
    def start(self, reconciler: Reconciles[K, D], *, context: D,
              error_policy: ErrorPolicy[K] | None = None) -> Running[K]: ...

    def start(self, reconciler: Any, *, error_policy: ErrorPolicy[K] | None = None, context: Any = None) -> Running[K]:
        """Begin to reconcile in the controller's own threads, and return at once.

        `reconciler` is a function `(obj, ctx)` that returns an `Action`, or an object with a method `reconcile` of this
        form, for example a `Reconciler`. When the reconciler raises, `error_policy(obj, error, ctx)` is called and
        returns an `Action`. Default: exponential backoff for the object. `context` is any value of yours; runs find it
        in `ctx.data`. Raises RequestError for an argument of another type, and for an executor without threads.
        """
        return self._launch(reconciler, error_policy, context, signal_thread=True)

    @overload
    def bind(self, reconciler: Reconciles[K, None], *,
             error_policy: ErrorPolicy[K] | None = None) -> BoundController[K]: ...

    @overload
    def bind(self, reconciler: Reconciles[K, D], *, context: D,
             error_policy: ErrorPolicy[K] | None = None) -> BoundController[K]: ...

    def bind(self, reconciler: Any, *, error_policy: ErrorPolicy[K] | None = None,
             context: Any = None) -> BoundController[K]:
        """Combine this controller and its reconciler into one value that a Manager or the command line can run.

        Arguments and RequestError are those of `start`. Some errors are raised only at the start.
        """
        check_functions(*functions_of(reconciler, error_policy), context)
        return BoundController(self, reconciler, error_policy, context)

    def plan(self) -> Plan:
        """An immutable description of what `start` would run. For simulations."""
        return self._plan

    def _alive(self) -> Running[K] | None:
        """This controller's `Running` if it has not ended; otherwise None."""
        running = self._running
        return None if running is None or running.has_ended else running

    def _as_main(self, watch: WatcherConfig) -> WatcherConfig:
        """Returns `watch`; if `watch` has no backoff, returns a copy with the main watch's backoff."""
        backoff = watch.backoff or self._plan.options.watch.backoff
        return dataclasses.replace(watch, backoff=backoff)

    def _watch(self, plan: WatchPlan) -> Self:
        self._plan = replace(self._plan, related=(*self._plan.related, plan))
        if (running := self._alive()) is not None:
            running.add_watch(plan)
        return self

    def _pull(self, plan: StreamPlan) -> Self:
        if not isinstance(plan.stream, Iterable):
            raise RequestError(f"a stream must be an iterable of objects or events, not {type(plan.stream).__name__}")
        if self._alive() is not None:
            raise RequestError(f"controller {self._plan.name} is running: a stream must be added before the start")
        self._plan = replace(self._plan, streams=(*self._plan.streams, plan))
        return self

    def _launch(self, reconciler: Any, error_policy: ErrorPolicy[K] | None, context: Any, *,
                signal_thread: bool) -> Running[K]:
        reconcile, policy = functions_of(reconciler, error_policy)
        check_functions(reconcile, policy, context)
        with self._claim:  # released before the launch, which calls observers and log handlers
            if self._is_launching or self._alive() is not None:
                raise RequestError(f"controller {self._plan.name} is already running: a second start would reconcile "
                                   "each object in two runs at the same time; stop the running controller, and wait "
                                   "for its runs to end")
            self._is_launching = True
        try:
            running: Running[K] = Running(self._plan, reconcile, policy, context)
            running.launch(signal_thread=signal_thread)
            self._running = running
            return running
        finally:
            self._is_launching = False


class BoundController(msgspec.Struct, Generic[K], frozen=True):
    """A controller with its reconciler, made by `Controller.bind`. A Manager or the command line can run it. The
    controller may be changed until it starts or is added to a Manager.

    >>> def reconcile(obj: ConfigMap, ctx: Context[None]) -> Action:
    ...     return Action.requeue(300)
    >>> bound = Controller(Api.all(client, ConfigMap)).bind(reconcile)
    >>> with bound.start() as running:
    ...     running.wait_until_ready(10)
    """

    controller: Controller[K]
    reconciler: Any
    error_policy: ErrorPolicy[K] | None = None
    context: Any = None

    def run(self) -> None:
        """Reconcile until stopped; blocks. See `Controller.run`."""
        self.controller.run(self.reconciler, error_policy=self.error_policy, context=self.context)

    def start(self) -> Running[K]:
        """Begin to reconcile in the controller's own threads, and return at once. See `Controller.start`."""
        return self.controller.start(self.reconciler, error_policy=self.error_policy, context=self.context)
