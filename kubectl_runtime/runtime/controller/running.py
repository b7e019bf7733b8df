"""`Running`: a controller with its threads, and the way to its end.

    thread                       ends
    one per watch                when `draining` is set for its last user (the token shuts the sockets down)
    workers                      when `draining` is set and their run is over
    dispatcher                   when `draining` is set, and no run has a `run_timeout` to come
    one per trigger source       when `draining` is set; one that blocks in the user's iterable is left there
    signals (only with start)    when `draining` is set
    ending, last words           begin when `draining` is set, see `Ending` and `LastWords`

    stop(timeout)   sets `draining`; waits for the runs in progress; shortly before the timeout sets `aborted`; waits
                    on; joins the threads; names by key and stack what did not end. Works at any moment, also before the
                    first sync, twice, from several threads at once. From one of the controller's own threads, a
                    reconciler for instance, it only begins the stop, as no thread can wait for itself.

However the end begins, it comes to its end by itself: previous signal handlers are back and the name is free, also when
nobody calls `stop`. All threads are daemons, so a stuck one cannot keep the process; that the end is graceful
nevertheless when the program just ends is the work of an `atexit` hook. If a thread of the library dies of a defect, or
the client is closed, the controller stops and says so in `error`: it never goes on half alive.

`WellBeing`: whether a running controller is ready, and whether it is alive.

    not ready   a store has never been complete, a watch keeps failing, or the controller stops: what it knows is not
                all, or gets old. Comes and goes with the API server
    not alive   a thread that moves it on is stuck, or died of a defect, which only a new process heals. An API server
                that does not answer, and reconcilers that take long, even all at once, are no reason: a restart
                would not help, and would lose work. Of those the log tells (see `blocked_log`)

That a thread is stuck is seen by its progress on the controller's clock: a dispatcher that neither waits nor ends its
turn, a watch whose step takes longer than any request and any silence may.
"""
from __future__ import annotations

import atexit
import os
import random
import threading
from collections.abc import Callable
from signal import Signals
from types import TracebackType
from typing import Any, Generic, TypeVar

from kubectl_runtime.core.base.clock import Duration, seconds
from kubectl_runtime.core.base.errors import KubeError, RequestError
from kubectl_runtime.core.meta.refs import ObjectRef
from kubectl_runtime.runtime.controller.assembly import Assembly
from kubectl_runtime.runtime.controller.plan import RUNNING, ControllerError, Plan, WatchPlan
from kubectl_runtime.runtime.controller.sync_gate import SyncTimeoutError
from kubectl_runtime.runtime.lifecycle.ending import Ending, LastWords, Threads
from kubectl_runtime.runtime.lifecycle.shutdown import DEFAULT_GRACE
from kubectl_runtime.runtime.lifecycle.signals import ShutdownSignals
from kubectl_runtime.runtime.reconcile.executor import executor_for
from kubectl_runtime.runtime.reconcile.reconciler import ErrorPolicy, ReconcileFunction
from kubectl_runtime.runtime.store.store import Store
from kubectl_runtime.runtime.triggers.streams import TriggerSource
from kubectl_runtime.runtime.usercode import described
from kubectl_runtime.runtime.watch.states import WatchState

DISPATCHER_LIMIT = 60.0
"""Seconds that the dispatcher may be late. Its turn takes microseconds; but it starts threads and logs, and a machine
can be overloaded. A kubelet asks three times, 10 s apart, before it restarts, so that one late answer after the machine
slept does no harm."""


class WellBeing:
    """Whether a running controller is ready and alive: the part of `Running` that says so. Nothing here blocks."""

    error: BaseException | None
    _assembly: Assembly[Any]
    _process: int

    @property
    def _is_elsewhere(self) -> bool:
        """Whether this is the child of a fork: the threads are its parent's, and to stop would end the connections that
        both share."""
        return os.getpid() != self._process

    @property
    def assembly(self) -> Assembly[Any]:
        """Its parts, to look at; for the library."""
        return self._assembly

    @property
    def watch_state(self) -> WatchState | None:
        """What the watch of the main objects does, since when, and its error; None when they come from a given stream.
        """
        return self._assembly.store.watch_state

    @property
    def watch_states(self) -> dict[str, WatchState]:
        """What each watch does, since when, and its error, by what it watches, in words."""
        return {name: watch.state for name, watch in self._assembly.watches.items()}

    @property
    def is_ready(self) -> bool:
        """Whether all stores are complete, reconciling has begun, and no watch is in trouble."""
        return not self.why_not_ready

    @property
    def why_not_ready(self) -> str:
        """Why it is not ready: what is missing or failing, for people; empty when it is ready."""
        assembly = self._assembly
        if self._is_elsewhere:
            return "it runs in the process that this one was forked from"
        if assembly.shutdown.draining.is_set():
            return f"it stops: {assembly.shutdown.draining.reason}"
        if not assembly.gate.is_open:
            return f"it waits for {assembly.gate.missing()}"
        troubles = ((name, watch.trouble) for name, watch in assembly.watches.items())
        return "; ".join(f"{name} {trouble}" for name, trouble in troubles if trouble)

    @property
    def why_stores_not_ready(self) -> dict[str, str]:
        """Each store that it reads, by what it holds, such as `pods`: why it is not ready, empty when it is."""
        assembly = self._assembly
        missing = {} if assembly.gate.is_open else assembly.gate.troubles()
        return {name: f"not complete: {missing[name]}" if name in missing else watch.trouble
                for name, watch in assembly.watches.items()}

    @property
    def why_not_working(self) -> str:
        """What of `why_not_ready` is not about one of its stores; empty when there is nothing."""
        stores = self.why_stores_not_ready
        reason = self.why_not_ready
        return "" if any(stores.values()) and not self._is_elsewhere and \
            not self._assembly.shutdown.draining.is_set() else reason

    @property
    def why_not_alive(self) -> str:
        """What only a new process can heal; empty when all is well, and while it stops because it was asked to. Takes
        no lock that a stuck thread could hold."""
        if self.error is not None:
            return f"it ended by itself: {described(self.error)}"
        assembly = self._assembly
        if assembly.shutdown.draining.is_set():
            return ""
        late = assembly.runner.dispatcher_late()
        stuck = [f"its dispatcher is stuck since {late:.0f} s"] if late > DISPATCHER_LIMIT else []
        stuck += [f"the watch of {name} is stuck since {watch.late:.0f} s"
                  for name, watch in assembly.watches.items() if watch.late]
        return "; ".join(stuck)


K = TypeVar("K")

EVENTS_SECONDS = 2.0
"""The most that undelivered events get at the end. The server may be the reason that they are undelivered."""


class Running(WellBeing, Generic[K]):
    """A controller that runs, made by `Controller.start`: its store, its state, and its end.

    The end of a `with` block stops it. `wait_until_ready` blocks until all stores are complete. `trigger(obj)` and
    `trigger_all()` ask for runs. `stop(timeout)` ends it gracefully and returns the objects whose runs did not end.
    Safe to use from any thread.

    >>> def reconcile(obj: ConfigMap, ctx: Context[None]) -> Action:
    ...     return Action.await_change()
    >>> with Controller(Api.all(client, ConfigMap)).start(reconcile) as running:
    ...     running.wait_until_ready(10)
    ...     running.store.get("settings", "default").data["color"]
    'blue'
    """

    def __init__(self, plan: Plan, reconcile: ReconcileFunction[Any], error_policy: ErrorPolicy[Any] | None,
                 data: Any, *, rng: random.Random | None = None) -> None:
        self._plan = plan
        self.name = plan.name
        self.error: BaseException | None = None
        """Why the controller ended by itself; None as long as it has not."""
        self._executor = executor_for(plan.executor, plan.concurrency, f"{plan.name} worker",
                                      self._worker_failed)
        self._assembly: Assembly[K] = Assembly(plan, reconcile, error_policy, data, executor=self._executor,
                                               on_bug=self._fail, rng=rng)
        self._shutdown = self._assembly.shutdown
        self._threads = Threads(plan.name, self._executor.threads, self._assembly.runner.running, self._fail,
                                lambda: self._assembly.shares)
        self._signals = ShutdownSignals()
        self._process = os.getpid()
        self._forget: list[Callable[[], None]] = []
        self._words = LastWords(self._assembly.logger, f"{plan.name} last words")
        self._ending = Ending(plan.name, self._shutdown, self._assembly.runner, plan.clock, self._words,
                              threads=lambda: self.threads, sources=lambda: self._threads.sources,
                              after_runs=[self._close_events, self._close_flight],
                              release=self._release)

    @property
    def store(self) -> Store[K]:
        """The objects the controller reconciles, as its watch knows them."""
        return self._assembly.store

    def wait_until_ready(self, timeout: Duration | None = None) -> None:
        """Block until all stores are complete and reconciling has begun, at most `timeout` seconds.

        Raises SyncTimeoutError after that, naming what is missing and why; ControllerError when the controller ends
        before.
        """
        self._check_here()
        gate, draining = self._assembly.gate, self._shutdown.draining
        if not gate.wait(None if timeout is None else seconds(timeout), draining):
            if draining.is_set():
                ended = f"controller {self.name} ended ({draining.reason}) before it was ready"
                raise ControllerError(ended) from self.error
            raise SyncTimeoutError(f"controller {self.name} is not ready after {seconds(timeout or 0):g} s: "
                                   f"{gate.missing()}")

    def wait(self, timeout: Duration | None = None) -> bool:
        """Block until the controller begins to stop, for whatever reason, at most `timeout` seconds; whether it does.
        """
        return self._is_elsewhere or self._shutdown.draining.wait(None if timeout is None else seconds(timeout))

    def on_stop(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback` when the controller begins to stop, for whatever reason (now, if it does); returns a
        function that takes it back. It has to be short: it runs in the thread that begins the stop."""
        return self._shutdown.draining.on_set(callback)

    @property
    def threads(self) -> list[threading.Thread]:
        """All threads of the controller's own, those that have ended and those that were not started included."""
        return self._threads.own

    def owns(self, thread: threading.Thread) -> bool:
        """Whether `thread` cannot wait for its end: it is its own, pulls a source, or is in a run."""
        return self._threads.include(thread)

    def still_running(self) -> list[tuple[str, int]]:
        """What of it has not ended, and the id of its thread: the reconciler of a key, or a thread by its name."""
        return self._threads.still_running()

    @property
    def reason(self) -> str:
        """Why it stops or has stopped, in words: the signal's name, say. Empty while it runs."""
        return self._shutdown.draining.reason

    def trigger(self, item: Any) -> None:
        """Reconcile an object or ObjectRef soon; does not block. Raises RequestError when it is of another kind."""
        self._check_here()
        self._assembly.trigger(item)

    def trigger_all(self) -> None:
        """Reconcile every stored object soon."""
        self._check_here()
        self._assembly.inbox.trigger_everything()

    def stop(self, timeout: Duration = DEFAULT_GRACE) -> list[ObjectRef]:
        """End the controller: no new runs, and at most `timeout` seconds for those in progress. Returns the objects
        whose runs are stuck.

        Blocks until everything has ended or the time is over, and then at most a second for the last lines of the log.
        Events that were recorded and not sent get 2 s of the time. Later calls return the same. Does nothing in the
        child of a fork, where nothing of it runs.
        """
        if not self._may_wait(timeout):
            return []
        stuck = self._ending.wait()
        self._signals.close()  # here it may be the main thread, which alone can put handlers back
        return stuck

    def stop_runs(self, timeout: Duration) -> list[ObjectRef]:
        """As `stop`, but block only until no run goes on that is not stuck: what is left needs no leadership."""
        return self._ending.wait_runs() if self._may_wait(timeout) else []

    def _may_wait(self, timeout: Duration) -> bool:
        """Begin to stop; whether this thread may wait for the end."""
        if self._is_elsewhere:
            return False
        self._shutdown.begin("stop() was called", seconds(timeout))
        self._assembly.runner.wake()
        return not self.owns(threading.current_thread())

    @property
    def has_ended(self) -> bool:
        """Whether the end has come to its end: no thread of it runs, but those that are stuck in user code."""
        return self._ending.is_settled or self._is_elsewhere

    def __enter__(self) -> Running[K]:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        try:
            self.stop()
        except KeyboardInterrupt:  # the person does not want to wait
            self.abandon()
            raise
        if error is None:
            self.raise_error()

    def raise_error(self) -> None:
        """Raise ControllerError if the controller ended by itself."""
        if self.error is not None:
            raise ControllerError(f"controller {self.name} ended by itself: {self.error}") from self.error

    def launch(self, *, signal_thread: bool) -> None:
        """Start every thread, for `signal_thread` also one that obeys signals; else the caller does, by `obey_signal`.

        Raises RequestError when a controller of this name runs on the client already.
        """
        plan, assembly = self._plan, self._assembly
        try:
            self._forget.append(RUNNING.take(plan.client, plan.name))
            if assembly.flight is not None:
                assembly.flight.start()
        except BaseException:
            assembly.release("it was not started")
            for forget in self._forget:
                forget()
            raise
        try:
            self._start(signal_thread)
        except BaseException:  # no memory, no more threads, Ctrl-C in a mapper: what was started must not stay
            self.stop(0)
            raise

    def _start(self, signal_thread: bool) -> None:
        plan, assembly = self._plan, self._assembly
        plan.client.grow(plan.concurrency)
        if plan.signals:
            self._signals.install()
        assembly.subscribe()
        draining = self._shutdown.draining
        draining.on_set(self._executor.close)
        draining.on_set(self._signals.release)
        draining.on_set(self._say_what_is_waited_for)
        draining.on_set(self._ending.begin)
        self._threads.add("dispatcher", assembly.dispatch)
        for name, body in assembly.pulls.items():
            self._threads.add(name, body, source=True)
        if self._signals.installed and signal_thread:
            self._threads.add("signals", self.obey_signal)
        if plan.stop is not None:
            self._forget.append(plan.stop.on_set(self._stop_was_set))
        self._forget.append(plan.client.on_close(self._client_was_closed))
        atexit.register(self._at_exit)
        assembly.logger.info("starting: watches %s; %d workers", ", ".join(assembly.watches) or "a given stream",
                             plan.concurrency)
        self._threads.start()

    def add_watch(self, plan: WatchPlan) -> None:
        """Watch something more, from now on. While the other stores are not complete, this one is waited for too.

        Raises RequestError for what cannot be watched. After anything else the controller ends, as a part of it is
        missing.
        """
        try:
            self._threads.watch(self._assembly.add_watch(plan))
        except RequestError:
            raise
        except BaseException as error:
            self._fail("a further watch", error)
            raise

    def add_source(self, source: TriggerSource, *, bulk: bool) -> None:
        """Pull one more trigger source, from now on."""
        name, body = self._assembly.add_source(source, bulk=bulk)
        self._threads.add(name, body, source=True).start()

    def obey_signal(self) -> int | None:
        """Block until a signal comes, which begins the stop (its number), or the controller stops (None)."""
        number = self._signals.wait()
        if number is not None:
            self._shutdown.begin(Signals(number).name, self._plan.grace)
        return number

    @property
    def obeys_signals(self) -> bool:
        """Whether SIGINT and SIGTERM are this controller's now."""
        return self._signals.installed

    def abandon(self, heed: float = 0.0) -> None:
        """Tell runs in progress to stop now, and give them up when they have not in `heed` seconds. Does not block."""
        self._shutdown.begin("abandoned", heed)
        self._shutdown.abort("abandoned")
        atexit.unregister(self._at_exit)

    def _say_what_is_waited_for(self) -> None:
        once_more = "; a second signal ends the process at once" if self._signals.installed else ""
        self._words.info("stopping: %s; %s%s", self._shutdown.draining.reason, self._assembly.drained, once_more)

    def _release(self, stuck: int) -> None:
        self._plan.observer.controller_stopped(self.name, stuck)
        self._signals.close()
        for forget in self._forget:
            forget()
        atexit.unregister(self._at_exit)

    def _close_events(self, left: float) -> None:
        self._assembly.recorder.close(min(left, EVENTS_SECONDS))

    def _close_flight(self, left: float) -> None:
        if self._assembly.flight is not None:
            self._assembly.flight.close(self.reason or "stopped", left)

    def _check_here(self) -> None:
        if self._is_elsewhere:
            raise ControllerError(f"controller {self.name} runs in the process that this one was forked from, and "
                                  "not here: start another one")

    def _worker_failed(self, error: BaseException) -> None:
        """An exception came out of the library's own part of a worker: a defect, or from outside."""
        if isinstance(error, Exception) and not isinstance(error, MemoryError):
            self._fail("a worker", error)
            return
        # No memory, or an exception that another thread has set: nothing is wrong with the code, but what the worker
        # held may be lost.
        self._assembly.logger.error("a worker was interrupted by %s; it goes on, and every object runs again",
                                    described(error), exc_info=error)
        self._assembly.inbox.trigger_everything()

    def _fail(self, what: str, error: BaseException) -> None:
        if self.error is None:
            self.error = error
        self._shutdown.begin(f"{what} failed: {described(error)}", self._plan.grace)
        if isinstance(error, KubeError):
            self._assembly.logger.error("%s; the controller ends", error)
        else:
            self._assembly.logger.critical("%s failed; the controller ends", what, exc_info=error)

    def _client_was_closed(self) -> None:
        if not self._shutdown.draining.is_set():
            self.error = ControllerError("its client was closed while it ran: stop the controller first")
            self._shutdown.begin("its client was closed", self._plan.grace)

    def _stop_was_set(self) -> None:
        token = self._plan.stop
        self._shutdown.begin((token.reason if token else "") or "its stop token was set", self._plan.grace)

    def _at_exit(self) -> None:
        """The program ends and nobody called `stop`."""
        if self._is_elsewhere:
            return
        self._shutdown.begin("the program ends", self._plan.grace)
        self._ending.wait()
