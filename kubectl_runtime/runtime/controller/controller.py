"""`Controller`: says what to watch and how to run, then runs a reconciler on it.

    Controller(api)              reconcile the objects of `api`
      .owns(api)                 ... also when something of `api` changes that names them as its owner
      .watches(api, mapper)      ... also when something of `api` changes for which `mapper` names them
      .reconcile_on(source)      ... also when an iterable or queue of objects or refs says so
      .reconcile_all_on(source)  ... all of them, for each item of an iterable or queue
      .shutdown_on_signal()      stop on SIGINT and SIGTERM
      .graceful_shutdown_on(t)   stop when the token `t` is set
      .run(reconciler)           blocks until it is stopped
      .start(reconciler)         returns a `Running`

The methods change the controller and return it. It may be started again after it has stopped.
"""
from __future__ import annotations

import inspect
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from kubectl_runtime.client.api.writes import OwnWrites
from kubectl_runtime.core.base.clock import SYSTEM_CLOCK, Duration, seconds
from kubectl_runtime.core.base.errors import RequestError
from kubectl_runtime.core.base.observer import NO_OBSERVER, Observer, together
from kubectl_runtime.core.base.stop import StopToken
from kubectl_runtime.runtime.controller.foreground import serve
from kubectl_runtime.runtime.controller.plan import Plan, StreamPlan, WatchPlan
from kubectl_runtime.runtime.controller.running import Running
from kubectl_runtime.runtime.queue.key_backoff import DEFAULT_KEY_BACKOFF, KeyBackoff
from kubectl_runtime.runtime.reconcile.reconciler import ErrorPolicy, ReconcileFunction, Reconciler
from kubectl_runtime.runtime.reflector.store import Store
from kubectl_runtime.runtime.shutdown import DEFAULT_GRACE
from kubectl_runtime.runtime.triggers.sources import TriggerSource, check_source
from kubectl_runtime.runtime.triggers.triggers import Mapper, trigger_others, trigger_owners, trigger_self
from kubectl_runtime.runtime.usercode import name_of
from kubectl_runtime.runtime.watcher.event import Event
from kubectl_runtime.runtime.watcher.watch_backoff import DEFAULT_BACKOFF, WatchBackoff
from kubectl_runtime.runtime.watcher.watcher_config import DEFAULT_CONFIG, WatcherConfig

if TYPE_CHECKING:
    from kubectl_runtime.client.api.api import Api
    from kubectl_runtime.client.api.client import Client

K = TypeVar("K")


class Controller(Generic[K]):
    """Reconciles the objects of an Api: `Controller(api).owns(other_api).shutdown_on_signal().run(reconciler)`.

    The methods that set it up change it and return it, so that they can be chained; they are for one thread. `run`
    blocks, `start` does not. Nothing is watched before one of them is called.
    """

    def __init__(self, api: Api[K], *, watch: WatcherConfig = DEFAULT_CONFIG, concurrency: int = 10,
                 debounce: Duration = 0, max_wait: Duration | None = None, backoff: KeyBackoff = DEFAULT_KEY_BACKOFF,
                 name: str | None = None, sync_timeout: Duration | None = None,
                 watch_backoff: WatchBackoff = DEFAULT_BACKOFF, observer: Observer | None = None,
                 own_writes: OwnWrites | None = None) -> None:
        """Reconcile the objects of `api`, at most `concurrency` at once and each at most once.

        `debounce`: a changed object waits for so many seconds of quiet, but at most `max_wait` (default: ten times
        that). `backoff`: how long a failing object waits. `name`: for logs and threads; the kind in lower case by
        default. `sync_timeout`: end with SyncTimeoutError when the stores are not complete after so many seconds
        (default: wait, and warn every 30 s). `watch_backoff`: how long each watch waits after a failure of its own.
        `observer`: told of its watches, stores, queue and runs (default: the client's). `own_writes`: how its stores
        read what this process wrote (default: the client's). Raises RequestError when a number makes no sense,
        TypeError for an observer that is none.
        """
        _check_api(api, "Controller")
        main = WatchPlan(api, watch, trigger_self(api.resource))
        self._set_up(main, api.client, concurrency, debounce, max_wait, backoff, name or api.resource.kind.lower(),
                     sync_timeout, observer)
        self._watch_backoff = watch_backoff
        if own_writes is not None:
            self._own_writes = own_writes

    @classmethod
    def for_stream(cls, events: Iterable[Event[K]], store: Store[K], *, client: Client, stop: StopToken | None = None,
                   concurrency: int = 10, debounce: Duration = 0, max_wait: Duration | None = None,
                   backoff: KeyBackoff = DEFAULT_KEY_BACKOFF, name: str | None = None,
                   sync_timeout: Duration | None = None, observer: Observer | None = None) -> Controller[K]:
        """Reconcile the objects of `store`, whenever `events` says that one changed.

        `events` is a `reflector`'s stream, which keeps `store`; the controller pulls and closes it in a thread of its
        own. `stop` is the token that ends it: the controller sets it when it stops. `observer` is told of its queue and
        runs.
        """
        self: Controller[K] = cls.__new__(cls)
        self._set_up(StreamPlan(events, store, stop), client, concurrency, debounce, max_wait, backoff,
                     name or store.resource.kind.lower(), sync_timeout, observer)
        return self

    def _set_up(self, main: WatchPlan | StreamPlan, client: Client, concurrency: int, debounce: Duration,
                max_wait: Duration | None, backoff: KeyBackoff, name: str, sync_timeout: Duration | None,
                observer: Observer | None) -> None:
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
        self._own_writes = getattr(client, "own_writes", OwnWrites.OVERLAY)
        self._signals, self._grace = False, DEFAULT_GRACE
        self._stop: StopToken | None = None
        self._observer = together(getattr(client, "observer", NO_OBSERVER) if observer is None else observer)

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

    def run(self, reconciler: Reconciler[K] | ReconcileFunction[K], *, error_policy: ErrorPolicy[K] | None = None,
            context: Any = None) -> None:
        """Reconcile until stopped: by a signal or token, if that was asked for, or by KeyboardInterrupt. Blocks.

        Arguments as for `start`. Raises ControllerError when it ended by itself (see there).
        """
        serve(self._launch(reconciler, error_policy, context, signal_thread=False), self._grace)

    def start(self, reconciler: Reconciler[K] | ReconcileFunction[K], *, error_policy: ErrorPolicy[K] | None = None,
              context: Any = None) -> Running[K]:
        """Begin to reconcile in threads of its own, and return at once.

        `reconciler` is a `Reconciler` or a function `(obj, ctx)` that returns an `Action`; `error_policy` a function
        `(obj, error, ctx)` that does (default: per-object exponential backoff). `context` becomes `ctx.data`.
        """
        return self._launch(reconciler, error_policy, context, signal_thread=True)

    def plan(self) -> Plan:
        """What `start` would run, frozen. For simulations."""
        return Plan(
            name=self._name, client=self._client, clock=getattr(self._client, "clock", SYSTEM_CLOCK),
            resource=self._resource, main=self._main, related=tuple(self._related), triggers=tuple(self._triggers),
            bulk_triggers=tuple(self._bulk_triggers), concurrency=self._concurrency, debounce=self._debounce,
            max_wait=self._max_wait, backoff=self._backoff, sync_timeout=self._sync_timeout,
            watch_backoff=self._watch_backoff, grace=self._grace,
            signals=self._signals, stop=self._stop, observer=self._observer, own_writes=self._own_writes)

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


def functions_of(reconciler: Reconciler[Any] | ReconcileFunction[Any],
                 error_policy: ErrorPolicy[Any] | None) -> tuple[ReconcileFunction[Any], ErrorPolicy[Any] | None]:
    """The function to call and the error policy, of either style. Raises RequestError for what is neither."""
    if isinstance(reconciler, type):
        raise RequestError(f"{reconciler.__name__} is a class: pass an instance of it, {reconciler.__name__}()")
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
