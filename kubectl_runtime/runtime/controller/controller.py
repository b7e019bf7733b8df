"""`Controller`: says what to watch and how to run, then runs a reconciler on it.

    Controller(api)              reconcile the objects of `api`
      .owns(api)                 ... also when something of `api` changes that names them as its owner
      .watches(api, mapper)      ... also when something of `api` changes for which `mapper` names them
      .reconcile_on(source)      ... also when an iterable or queue of objects or refs says so
      .reconcile_all_on(source)  ... all of them, for each item of an iterable or queue
      .shutdown_on_signal()      stop on SIGINT and SIGTERM
      .graceful_shutdown_on(t)   stop when the token `t` is set
      .on_result(callback)       tell how each run ended
      .run(reconciler)           blocks until it is stopped
      .start(reconciler)         returns a `Running`
      .bind(reconciler)          returns a `BoundController`, for a manager or a command line to run

The methods change the controller and return it. It may be started again after it has stopped.
"""
from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from kubectl_runtime.core.base.clock import SYSTEM_CLOCK, Duration, seconds
from kubectl_runtime.core.base.errors import RequestError
from kubectl_runtime.core.base.stop import StopToken
from kubectl_runtime.runtime.controller.bound import BoundController
from kubectl_runtime.runtime.controller.foreground import serve
from kubectl_runtime.runtime.controller.plan import Plan, StreamPlan, WatchPlan
from kubectl_runtime.runtime.controller.running import Running
from kubectl_runtime.runtime.queue.key_backoff import DEFAULT_KEY_BACKOFF, KeyBackoff
from kubectl_runtime.runtime.queue.retry_brake import RETRY_RATE, RetryBrake
from kubectl_runtime.runtime.reconcile.action import Action
from kubectl_runtime.runtime.reconcile.context import Context
from kubectl_runtime.runtime.reconcile.reconciler import (
    ErrorPolicy,
    ReconcileFunction,
    Reconciler,
    ResultCallback,
    SupportsReconcile,
)
from kubectl_runtime.runtime.reflector.store import Store
from kubectl_runtime.runtime.shutdown import DEFAULT_GRACE
from kubectl_runtime.runtime.triggers.sources import TriggerSource, check_source
from kubectl_runtime.runtime.triggers.triggers import Mapper, trigger_others, trigger_owners, trigger_self
from kubectl_runtime.runtime.usercode import name_of
from kubectl_runtime.runtime.watcher.event import Event
from kubectl_runtime.runtime.watcher.watch_backoff import DEFAULT_BACKOFF, WatchBackoff
from kubectl_runtime.runtime.watcher.watcher_config import DEFAULT_CONFIG, WatcherConfig

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from kubectl_runtime.client.api.api import Api
    from kubectl_runtime.client.api.client import Client

K = TypeVar("K")
D = TypeVar("D")


class Controller(Generic[K]):
    """Reconciles the objects of an Api: `Controller(api).owns(other_api).shutdown_on_signal().run(reconciler)`.

    The methods that set it up change it and return it, so that they can be chained; they are for one thread. `run`
    blocks, `start` does not. Nothing is watched before one of them is called.
    """

    def __init__(self, api: Api[K], *, watch: WatcherConfig = DEFAULT_CONFIG, concurrency: int = 10,
                 debounce: Duration = 0, max_wait: Duration | None = None, backoff: KeyBackoff = DEFAULT_KEY_BACKOFF,
                 name: str | None = None, sync_timeout: Duration | None = None,
                 watch_backoff: WatchBackoff = DEFAULT_BACKOFF, executor: Executor | None = None,
                 retry_rate: float | None = RETRY_RATE, run_timeout: Duration | None = None) -> None:
        """Reconcile the objects of `api`, at most `concurrency` at once and each at most once.

        `debounce`: a changed object waits for so many seconds of quiet, but at most `max_wait` (default: ten times
        that). `backoff`: how long a failing object waits. `name`: for logs and threads; the kind in lower case by
        default. `sync_timeout`: end with SyncTimeoutError when the stores are not complete after so many seconds
        (default: wait, and warn every 30 s). `watch_backoff`: how long each watch waits after a failure of its own.
        `executor`: a pool of threads to run in, `concurrency` runs at most at once; it is not shut down (default:
        daemon threads of our own). `retry_rate`: how many retries a second begin while runs fail, all objects together
        (None: as many as are due). `run_timeout`: seconds after which `ctx.stop` of a run is set (default: never).
        Raises RequestError when a number makes no sense.
        """
        _check_api(api, "Controller")
        main = WatchPlan(api, watch, trigger_self(api.resource))
        self._set_up(main, api.client, concurrency, debounce, max_wait, backoff, name or api.resource.kind.lower(),
                     sync_timeout)
        self._watch_backoff = watch_backoff
        self._set_up_runs(executor, retry_rate, run_timeout)

    @classmethod
    def for_stream(cls, events: Iterable[Event[K]], store: Store[K], *, client: Client, stop: StopToken | None = None,
                   concurrency: int = 10, debounce: Duration = 0, max_wait: Duration | None = None,
                   backoff: KeyBackoff = DEFAULT_KEY_BACKOFF, name: str | None = None,
                   sync_timeout: Duration | None = None, executor: Executor | None = None,
                   retry_rate: float | None = RETRY_RATE, run_timeout: Duration | None = None) -> Controller[K]:
        """Reconcile the objects of `store`, whenever `events` says that one changed.

        `events` is a `reflector`'s stream, which keeps `store`; the controller pulls and closes it in a thread of its
        own. `stop` is the token that ends it: the controller sets it when it stops.
        """
        self: Controller[K] = cls.__new__(cls)
        self._set_up(StreamPlan(events, store, stop), client, concurrency, debounce, max_wait, backoff,
                     name or store.resource.kind.lower(), sync_timeout)
        self._set_up_runs(executor, retry_rate, run_timeout)
        return self

    def _set_up(self, main: WatchPlan | StreamPlan, client: Client, concurrency: int, debounce: Duration,
                max_wait: Duration | None, backoff: KeyBackoff, name: str, sync_timeout: Duration | None) -> None:
        if not isinstance(concurrency, int) or concurrency < 1:
            raise RequestError(f"concurrency must be a whole number of at least 1, not {concurrency}")
        quiet, longest = _duration("debounce", debounce), None if max_wait is None else _duration("max_wait", max_wait)
        if longest is not None and longest < quiet:
            raise RequestError(f"debounce must be at most max_wait, not {debounce} and {max_wait}")
        self._main, self._client, self._concurrency, self._name = main, client, concurrency, name
        self._debounce, self._max_wait, self._backoff = quiet, longest, backoff
        self._sync_timeout = None if sync_timeout is None else _duration("sync_timeout", sync_timeout)
        self._resource = main.api.resource if isinstance(main, WatchPlan) else main.store.resource
        self._related: list[WatchPlan] = []
        self._triggers: list[TriggerSource] = []
        self._bulk_triggers: list[TriggerSource] = []
        self._watch_backoff = DEFAULT_BACKOFF
        self._signals, self._grace = False, DEFAULT_GRACE
        self._stop: StopToken | None = None

    def _set_up_runs(self, executor: Executor | None, retry_rate: float | None, run_timeout: Duration | None) -> None:
        if retry_rate is not None:
            RetryBrake(retry_rate)  # refuses a number that makes no sense
        self._executor, self._retry_rate = executor, retry_rate
        self._run_timeout = None if run_timeout is None else _duration("run_timeout", run_timeout)
        self._on_result: ResultCallback | None = None

    def owns(self, api: Api[Any], *, watch: WatcherConfig = DEFAULT_CONFIG) -> Controller[K]:
        """Objects of `api` are made by the reconciler, with an owner reference; changes of one trigger its owner.

        A deletion is a change as well. Only their metadata is watched and kept. The owner's group and kind decide, not
        the version.
        """
        _check_api(api, "owns")
        self._related.append(WatchPlan(api.with_metadata_only(), watch, trigger_owners(self._resource)))
        return self

    def watches(self, api: Api[Any], mapper: Mapper[Any], *, watch: WatcherConfig = DEFAULT_CONFIG) -> Controller[K]:
        """Each change or deletion of an object of `api` triggers what `mapper(obj)` returns: refs, one ref, or None.

        The mapper runs in the watch's thread: it must not block. What it raises is logged, and that event triggers
        nothing.
        """
        _check_api(api, "watches")
        self._related.append(WatchPlan(api, watch, trigger_others(mapper)))
        return self

    def reconcile_on(self, source: TriggerSource) -> Controller[K]:
        """Each item of `source`, an iterable or queue pulled by a thread of its own, is an object or ref to reconcile.
        """
        check_source(source)
        self._triggers.append(source)
        return self

    def reconcile_all_on(self, source: TriggerSource) -> Controller[K]:
        """For each item of `source`, whatever it is, every stored object is reconciled."""
        check_source(source)
        self._bulk_triggers.append(source)
        return self

    def shutdown_on_signal(self, grace: Duration = DEFAULT_GRACE) -> Controller[K]:
        """Stop on SIGINT and SIGTERM, with `grace` seconds for runs in progress.

        A second signal n ends the process at once, with status 128 + n. Only for controllers that are started in the
        main thread; elsewhere it warns and does nothing. When `run` finds a reconciler stuck after the grace period, it
        flushes the logs and ends the process with status 1.
        """
        self._signals, self._grace = True, _duration("grace", grace)
        return self

    def graceful_shutdown_on(self, stop: StopToken, grace: Duration = DEFAULT_GRACE) -> Controller[K]:
        """Stop when `stop` is set, with `grace` seconds for runs in progress.

        For `run` in a thread of the program's own.
        """
        self._stop, self._grace = stop, _duration("grace", grace)
        return self

    def on_result(self, callback: ResultCallback) -> Controller[K]:
        """Have `callback(report)` called after each run of the reconciler, in the run's thread: see `RunReport`.

        It must be safe for several threads. What it raises is logged.
        """
        self._on_result = callback
        return self

    @overload
    def run(self, reconciler: SupportsReconcile[K, None] | Callable[[K, Context[None]], Action], *,
            error_policy: ErrorPolicy[K] | None = None) -> None: ...

    @overload
    def run(self, reconciler: SupportsReconcile[K, D] | Callable[[K, Context[D]], Action], *, context: D,
            error_policy: ErrorPolicy[K] | None = None) -> None: ...

    def run(self, reconciler: Any, *, error_policy: ErrorPolicy[K] | None = None, context: Any = None) -> None:
        """Reconcile until stopped: by a signal or token, if that was asked for, or by KeyboardInterrupt. Blocks.

        Arguments as for `start`. Raises ControllerError when it ended by itself (see there).
        """
        serve(self._launch(reconciler, error_policy, context, signal_thread=False), self._grace)

    @overload
    def start(self, reconciler: SupportsReconcile[K, None] | Callable[[K, Context[None]], Action], *,
              error_policy: ErrorPolicy[K] | None = None) -> Running[K]: ...

    @overload
    def start(self, reconciler: SupportsReconcile[K, D] | Callable[[K, Context[D]], Action], *, context: D,
              error_policy: ErrorPolicy[K] | None = None) -> Running[K]: ...

    def start(self, reconciler: Any, *, error_policy: ErrorPolicy[K] | None = None, context: Any = None) -> Running[K]:
        """Begin to reconcile in threads of its own, and return at once.

        `reconciler` is a `Reconciler` or a function `(obj, ctx)` that returns an `Action`; `error_policy` a function
        `(obj, error, ctx)` that does (default: per-object exponential backoff). `context` becomes `ctx.data`, whose
        type the reconciler's annotation says. Raises RequestError for what can be none of these, and for an executor
        without threads.
        """
        return self._launch(reconciler, error_policy, context, signal_thread=True)

    @overload
    def bind(self, reconciler: SupportsReconcile[K, None] | Callable[[K, Context[None]], Action], *,
             error_policy: ErrorPolicy[K] | None = None) -> BoundController[K]: ...

    @overload
    def bind(self, reconciler: SupportsReconcile[K, D] | Callable[[K, Context[D]], Action], *, context: D,
             error_policy: ErrorPolicy[K] | None = None) -> BoundController[K]: ...

    def bind(self, reconciler: Any, *, error_policy: ErrorPolicy[K] | None = None,
             context: Any = None) -> BoundController[K]:
        """This controller and its reconciler in one value, to be run by somebody else. Arguments as for `start`.

        Raises RequestError for what is no reconciler.
        """
        functions_of(reconciler, error_policy)
        return BoundController(self, reconciler, error_policy, context)

    def plan(self) -> Plan:
        """What `start` would run, frozen. For simulations."""
        return Plan(
            name=self._name, client=self._client, clock=getattr(self._client, "clock", SYSTEM_CLOCK),
            resource=self._resource, main=self._main, related=tuple(self._related), triggers=tuple(self._triggers),
            bulk_triggers=tuple(self._bulk_triggers), concurrency=self._concurrency, debounce=self._debounce,
            max_wait=self._max_wait, backoff=self._backoff, sync_timeout=self._sync_timeout,
            watch_backoff=self._watch_backoff, grace=self._grace, retry_rate=self._retry_rate,
            run_timeout=self._run_timeout, executor=self._executor, on_result=self._on_result,
            signals=self._signals, stop=self._stop)

    def _launch(self, reconciler: Reconciler[K] | ReconcileFunction[K], error_policy: ErrorPolicy[K] | None,
                context: Any, *, signal_thread: bool) -> Running[K]:
        reconcile, policy = functions_of(reconciler, error_policy)
        running: Running[K] = Running(self.plan(), reconcile, policy, context)
        running.launch(signal_thread=signal_thread)
        return running


def _duration(what: str, duration: Duration) -> float:
    """`duration` in seconds. Raises RequestError when it is negative, or no number at all."""
    length = seconds(duration)
    if not length >= 0:
        raise RequestError(f"{what} must be at least 0 seconds, not {duration}")
    return length


def _check_api(api: Any, taker: str) -> None:
    """Raises RequestError for what is likely to be passed instead of an Api: a kind, or the client."""
    if isinstance(api, type) or not hasattr(api, "resource"):
        given = api.__name__ if isinstance(api, type) else repr(api)
        raise RequestError(f"{taker} takes an Api, such as Api.all(client, Kind) or "
                           f"Api.namespaced(client, Kind, namespace), not {given}")


def functions_of(reconciler: Any,
                 error_policy: ErrorPolicy[Any] | None) -> tuple[ReconcileFunction[Any], ErrorPolicy[Any] | None]:
    """The function to call and the error policy, of either style. Raises RequestError for what is neither."""
    if isinstance(reconciler, type):
        raise RequestError(f"{reconciler.__name__} is a class: pass an instance of it, {reconciler.__name__}()")
    if not isinstance(reconciler, Reconciler) and not callable(reconciler) and hasattr(reconciler, "reconcile"):
        return functions_of(reconciler.reconcile, error_policy)  # a class of its own making
    function = reconciler.reconcile if isinstance(reconciler, Reconciler) else reconciler
    if inspect.iscoroutinefunction(function):
        raise RequestError(f"{name_of(function)} is async: reconcilers run in threads; write a plain "
                           "function, which may block")
    if isinstance(reconciler, Reconciler):
        if error_policy is None and type(reconciler).error_policy is not Reconciler.error_policy:
            error_policy = reconciler.error_policy
        return reconciler.reconcile, error_policy
    if not callable(reconciler):
        raise RequestError(f"{reconciler!r} is neither a Reconciler nor a function (obj, ctx)")
    return reconciler, error_policy
