"""`Controller`: says what to watch and how to run, then runs a reconciler on it.

    Controller(api)              reconcile the objects of `api`
      .owns(api)                 ... also when something of `api` changes that names them as its owner
      .watches(api, mapper)      ... also when something of `api` changes for which `mapper` names them
      .owns_stream, .watches_stream    the same, of streams that the program makes
      .reconcile_on(source)      ... also when an iterable or queue of objects or refs says so
      .reconcile_all_on(source)  ... all of them, for each item of an iterable or queue
      .shutdown_on_signal()      stop on SIGINT and SIGTERM
      .graceful_shutdown_on(t)   stop when the token `t` is set
      .run(reconciler)           blocks until it is stopped
      .start(reconciler)         returns a `Running`

The methods change the controller and return it. Those that say what to watch may also be called while it runs: what
they add begins at once. It may be started again after it has stopped, and not before.
"""
from __future__ import annotations

import inspect
import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, overload

from kubectl_runtime.core.base.clock import SYSTEM_CLOCK, Duration, seconds
from kubectl_runtime.core.base.errors import RequestError
from kubectl_runtime.core.base.observer import NO_OBSERVER, Observer, together
from kubectl_runtime.core.base.stop import StopToken
from kubectl_runtime.core.codec.prune import Modify
from kubectl_runtime.runtime.controller.checks import check_api, check_functions, check_gone
from kubectl_runtime.runtime.controller.foreground import serve
from kubectl_runtime.runtime.controller.plan import GoneFunction, MainStream, Plan, StreamPlan, WatchPlan
from kubectl_runtime.runtime.controller.running import Running
from kubectl_runtime.runtime.queue.key_backoff import DEFAULT_KEY_BACKOFF, KeyBackoff
from kubectl_runtime.runtime.reconcile.reconciler import ErrorPolicy, ReconcileFunction, Reconciler
from kubectl_runtime.runtime.reflector.feed import Feed
from kubectl_runtime.runtime.reflector.store import Store
from kubectl_runtime.runtime.shutdown import DEFAULT_GRACE
from kubectl_runtime.runtime.triggers.predicates import Predicate
from kubectl_runtime.runtime.triggers.sources import TriggerSource, check_source
from kubectl_runtime.runtime.triggers.triggers import (
    EventMapper,
    Mapper,
    On,
    check_mapper,
    trigger_others,
    trigger_owners,
    trigger_self,
)
from kubectl_runtime.runtime.usercode import name_of
from kubectl_runtime.runtime.watcher.event import Event
from kubectl_runtime.runtime.watcher.readers import reader_of
from kubectl_runtime.runtime.watcher.watch_api import apis_of
from kubectl_runtime.runtime.watcher.watch_backoff import DEFAULT_BACKOFF, WatchBackoff
from kubectl_runtime.runtime.watcher.watcher_config import DEFAULT_CONFIG, WatcherConfig

if TYPE_CHECKING:
    from kubectl_runtime.client.api.api import Api
    from kubectl_runtime.client.api.client import Client
    from kubectl_runtime.client.api.namespaces import Namespaces

K = TypeVar("K")
R = TypeVar("R")


class Controller(Generic[K]):
    """Reconciles the objects of an Api: `Controller(api).owns(other_api).shutdown_on_signal().run(reconciler)`.

    The methods that set it up change it and return it, so that they can be chained; they are for one thread. `run`
    blocks, `start` does not. Nothing is watched before one of them is called.
    """

    _resync: float | None = None
    _on_gone: GoneFunction | None = None

    def __init__(self, api: Api[K] | Namespaces[K], *, watch: WatcherConfig = DEFAULT_CONFIG, concurrency: int = 10,
                 debounce: Duration = 0, max_wait: Duration | None = None, backoff: KeyBackoff = DEFAULT_KEY_BACKOFF,
                 name: str | None = None, sync_timeout: Duration | None = None,
                 watch_backoff: WatchBackoff = DEFAULT_BACKOFF, predicate: Predicate[K] | None = None,
                 modify: Modify | None = None, resync: Duration | None = None,
                 on_gone: GoneFunction | None = None, observer: Observer | None = None) -> None:
        """Reconcile the objects of `api`, at most `concurrency` at once and each at most once.

        `debounce`: a changed object waits for so many seconds of quiet, but at most `max_wait` (default: ten times
        that). `backoff`: how long a failing object waits. `name`: for logs and threads; the kind in lower case by
        default. `sync_timeout`: end with SyncTimeoutError when the stores are not complete after so many seconds
        (default: wait, and warn every 30 s). `watch_backoff`: how long each watch waits after a failure of its own.
        `predicate`: which changes of the objects lead to a run (see `predicates`); default: all. `modify`: changes each
        object before it is stored, `strip_managed_fields` for instance. `resync`: also run every object each time so
        many seconds, more or less a tenth, have passed. `on_gone(ref, ctx)`: is run for a key of which there is no
        object, after its deletion was seen or when something asks for it; by default nothing is (see
        controller/gone.py). `observer`: told of its watches, stores, queue and runs (default: the client's). Raises
        RequestError when a number or a function makes no sense, TypeError for an observer that is none.
        """
        check_api(api, "Controller")
        check_gone(on_gone)
        clock = getattr(api.client, "clock", SYSTEM_CLOCK)
        feed = Feed(api.resource, reader_of(api.kind), [one.namespace for one in apis_of(api)], clock)
        subscription = trigger_self(api.resource, predicate=predicate, run_gone=on_gone is not None)
        main = WatchPlan(api, watch, subscription, feed, modify)
        self._set_up(main, api.client, concurrency, debounce, max_wait, backoff, name or api.resource.kind.lower(),
                     sync_timeout, observer)
        self._watch_backoff = watch_backoff
        self._resync = None if resync is None else _period("resync", resync)
        self._on_gone = on_gone

    @classmethod
    def for_stream(cls, stream: Iterable[Event[K]] | Iterable[K], store: Store[K], *, client: Client,
                   stop: StopToken | None = None, concurrency: int = 10, debounce: Duration = 0,
                   max_wait: Duration | None = None, backoff: KeyBackoff = DEFAULT_KEY_BACKOFF,
                   name: str | None = None, sync_timeout: Duration | None = None,
                   observer: Observer | None = None) -> Controller[K]:
        """Reconcile the objects of `store`, whenever `stream` says that one changed.

        `stream` is a `reflector`'s, which keeps `store`, or what filters make of it: events, or objects; the controller
        pulls and closes it in a thread of its own, and ends with an error when it ends, or when it has not been through
        a reflector. An object that is not in the store any more counts as deleted. `stop` is the token that ends it:
        the controller sets it when it stops. A stream can be used once, and so can the controller. `observer` is told
        of its queue and runs.
        """
        self: Controller[K] = cls.__new__(cls)
        main = MainStream(stream, trigger_self(store.resource), stop, store)
        self._set_up(main, client, concurrency, debounce, max_wait, backoff,
                     name or store.resource.kind.lower(), sync_timeout, observer)
        return self

    @property
    def store(self) -> Store[K]:
        """The objects that it reconciles: for mappers, and for whoever looks at them from outside. There before the
        start, when it is not complete (see `Store`), and the same in each life of the controller."""
        if isinstance(self._main, MainStream):
            return self._main.store
        assert self._main.feed is not None
        return self._main.feed.store

    def _set_up(self, main: WatchPlan | MainStream, client: Client, concurrency: int, debounce: Duration,
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
        self._streams: list[StreamPlan] = []
        self._watch_backoff = DEFAULT_BACKOFF
        self._launching = threading.Lock()
        self._running: Running[K] | None = None
        self._signals, self._grace = False, DEFAULT_GRACE
        self._stop: StopToken | None = None
        self._observer = together(getattr(client, "observer", NO_OBSERVER) if observer is None else observer)

    def owns(self, api: Api[Any] | Namespaces[Any], *, watch: WatcherConfig = DEFAULT_CONFIG,
             predicate: Predicate[Any] | None = None, controller_only: bool = False) -> Controller[K]:
        """Objects of `api` are made by the reconciler, with an owner reference; changes of one trigger its owner.

        A deletion is a change as well. Only their metadata is watched and kept, so that is all a `predicate` sees. The
        owner's group and kind decide, not the version. `controller_only`: only the owner whose reference says
        `controller: true`.
        """
        check_api(api, "owns")
        subscription = trigger_owners(self._resource, predicate=predicate, controller_only=controller_only)
        return self._watch(WatchPlan(api.with_metadata_only(), watch, subscription))

    @overload
    def watches(self, api: Api[R] | Namespaces[R], mapper: Mapper[R], *, watch: WatcherConfig = ...,
                predicate: Predicate[R] | None = ..., on: Literal["object"] = ...) -> Controller[K]: ...
    @overload
    def watches(self, api: Api[R] | Namespaces[R], mapper: EventMapper[R], *, watch: WatcherConfig = ...,
                predicate: Predicate[R] | None = ..., on: Literal["event"]) -> Controller[K]: ...
    def watches(self, api: Api[Any] | Namespaces[Any], mapper: Mapper[Any] | EventMapper[Any], *,
                watch: WatcherConfig = DEFAULT_CONFIG, predicate: Predicate[Any] | None = None,
                on: On = "object") -> Controller[K]:
        """Each change or deletion of an object of `api` triggers what `mapper(obj)` returns: refs, one ref, EVERYTHING
        (each object of the controller), or None.

        Of a changed object it is asked about the state before too, so that what is no longer concerned hears of it;
        with `on="event"` it gets one `ObjectEvent` with both. The mapper runs in the watch's thread: it must not block.
        What it raises is logged, and that event triggers nothing.
        """
        check_api(api, "watches")
        check_mapper(mapper, on)
        return self._watch(WatchPlan(api, watch, trigger_others(mapper, predicate=predicate, on=on)))

    def owns_stream(self, stream: Iterable[Any], *, stop: StopToken | None = None,
                    controller_only: bool = False) -> Controller[K]:
        """As `owns`, of a stream that the program makes: of objects (`touched_objects`, so that deletions count) or
        events. Its own thread pulls and closes it; `stop` is the token that ends it. Runs do not wait for its first
        list. Raises RequestError while the controller runs."""
        return self._pull(StreamPlan(stream, trigger_owners(self._resource, controller_only=controller_only), stop))

    def watches_stream(self, stream: Iterable[Any], mapper: Mapper[Any] | EventMapper[Any], *,
                       stop: StopToken | None = None, on: On = "object") -> Controller[K]:
        """As `watches`, of a stream that the program makes; see `owns_stream`."""
        check_mapper(mapper, on)
        return self._pull(StreamPlan(stream, trigger_others(mapper, on=on), stop))

    def reconcile_on(self, source: TriggerSource) -> Controller[K]:
        """Each item of `source`, an iterable or queue pulled by a thread of its own, is an object or ref to reconcile.

        An item that is neither is logged, and the next one follows.
        """
        check_source(source)
        self._triggers.append(source)
        if (running := self._alive()) is not None:
            running.add_source(source, bulk=False)
        return self

    def reconcile_all_on(self, source: TriggerSource) -> Controller[K]:
        """For each item of `source`, whatever it is, every stored object is reconciled."""
        check_source(source)
        self._bulk_triggers.append(source)
        if (running := self._alive()) is not None:
            running.add_source(source, bulk=True)
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
            streams=tuple(self._streams), resync=self._resync, on_gone=self._on_gone,
            watch_backoff=self._watch_backoff, grace=self._grace,
            signals=self._signals, stop=self._stop, observer=self._observer)

    def _launch(self, reconciler: Reconciler[K] | ReconcileFunction[K], error_policy: ErrorPolicy[K] | None,
                context: Any, *, signal_thread: bool) -> Running[K]:
        reconcile, policy = functions_of(reconciler, error_policy)
        check_functions(reconcile, policy, context)
        with self._launching:
            if self._alive() is not None:
                raise RequestError(f"controller {self._name} runs already: two lives of it would reconcile each object "
                                   "at once; stop the first one, and wait for its runs to end")
            running: Running[K] = Running(self.plan(), reconcile, policy, context)
            running.launch(signal_thread=signal_thread)
            self._running = running
        return running

    def _alive(self) -> Running[K] | None:
        """The life that has not come to its end, if there is one."""
        running = self._running
        return None if running is None or running.has_ended else running

    def _watch(self, plan: WatchPlan) -> Controller[K]:
        self._related.append(plan)
        if (running := self._alive()) is not None:
            running.add_watch(plan)
        return self

    def _pull(self, plan: StreamPlan) -> Controller[K]:
        if not isinstance(plan.stream, Iterable):
            raise RequestError(f"a stream is an iterable of objects or events, not {type(plan.stream).__name__}")
        if self._alive() is not None:
            raise RequestError(f"controller {self._name} runs: a stream cannot be added now")
        self._streams.append(plan)
        return self


def _duration(what: str, duration: Duration) -> float:
    """`duration` in seconds. Raises RequestError when it is negative, or no number at all."""
    length = seconds(duration)
    if not length >= 0:
        raise RequestError(f"{what} must be at least 0 seconds, not {duration}")
    return length


def _period(what: str, duration: Duration) -> float:
    """`duration` in seconds. Raises RequestError when it is not positive."""
    length = _duration(what, duration)
    if not length > 0:
        raise RequestError(f"{what} must be more than 0 seconds, not {duration}")
    return length


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
