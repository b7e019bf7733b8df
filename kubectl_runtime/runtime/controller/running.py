"""`Running`: a controller with its threads. It is the `Lifecycle` engine with one member, its `Assembly`.

    thread                       ends
    one per watch                when `draining` is set for the last controller that uses the watch
    workers                      when `draining` is set and their run has ended
    dispatcher                   when `draining` is set and no run can still reach its `run_timeout`
    one per trigger source       when `draining` is set; a thread that blocks in the user's iterable is left behind
    signals (only with start)    when `draining` is set
    ending, shutdown log         begin when `draining` is set

A bug in a thread or a closed client ends the controller, with the reason in `error`. So no controller continues to run
after one of its threads was lost.

    not ready   a store has never been complete, a watch keeps failing, or the controller stops: its data is incomplete
                or outdated. This may change with the availability of the API server
    not alive   a thread of the library is stuck or died of a defect, so that only a new process helps. An unreachable
                API server and slow reconcilers do not count, since a restart would not help and would lose work; the
                log reports them (see `BlockedLog`)

A thread is stuck when it makes no progress on the controller's clock. The dispatcher is stuck if it neither waits nor
ends its turn; a watch is stuck if one step exceeds the time limits of requests and of silent connections.
"""
from __future__ import annotations

import random
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Generic, TypeVar

from kubectl_runtime.core.base.errors import KubeError, RequestError
from kubectl_runtime.core.base.guard import described
from kubectl_runtime.core.base.threads import Duration, Thread, seconds
from kubectl_runtime.core.meta.gvk import ObjectRef
from kubectl_runtime.runtime.controller.assembly import Assembly
from kubectl_runtime.runtime.controller.housekeeping import SyncTimeoutError
from kubectl_runtime.runtime.controller.plan import RUNNING, ControllerError, Plan, WatchPlan
from kubectl_runtime.runtime.lifecycle.lifecycle import (
    DEFAULT_GRACE,
    FORKED,
    JOIN_SECONDS,
    Lifecycle,
    StillRunning,
    alive,
    join,
    stack_of,
)
from kubectl_runtime.runtime.queue.runs import Run
from kubectl_runtime.runtime.reconcile.reconciler import ErrorPolicy, ReconcileFunction
from kubectl_runtime.runtime.reconcile.runner import executor_for
from kubectl_runtime.runtime.store.store import Store
from kubectl_runtime.runtime.triggers.shared_watches import Share
from kubectl_runtime.runtime.triggers.streams import TriggerSource
from kubectl_runtime.runtime.watch.states import WatchState

DISPATCHER_LIMIT = 60.0
"""Seconds that the dispatcher may be late. Its turn takes microseconds, but the dispatcher also starts threads and
logs, and the machine may be overloaded. A kubelet probes three times, 10 s apart, before it restarts a container, so
one failed probe after the machine slept does no harm."""


K = TypeVar("K")

SOURCE_SECONDS = 0.06
"""The seconds that all threads of trigger sources together get to end. A queue is polled at this interval; any other
source may block forever."""

EVENTS_SECONDS = 2.0
"""The maximum seconds for sending the remaining Events at the end. The reason why they are
unsent may be an unavailable server."""


class Threads:
    """The threads of a controller, all daemons. Safe to use from any thread."""

    def __init__(self, name: str, workers: Sequence[threading.Thread], runs: Callable[[], list[Run]],
                 failed: Callable[[str, BaseException], None], shares: Callable[[], Sequence[Share]],
                 leaving: Callable[[], Sequence[threading.Thread]] = lambda: ()) -> None:
        """`name`: the controller's name. `workers`: threads of its executor. `runs` returns the runs in progress, in
        any thread. `failed(what, error)` is called with the exception that ended a thread. `shares` returns the shares
        of watches; the thread of a watch counts as the controller's once no other controller uses the watch. `leaving`
        returns the threads of released watches."""
        self._name = name
        self._workers = workers
        self._runs = runs
        self._failed = failed
        self._shares = shares
        self._leaving = leaving
        self._others: list[threading.Thread] = []
        self.sources: list[threading.Thread] = []
        """Threads in which user code may block forever."""

    @property
    def own(self) -> list[threading.Thread]:
        """The threads that end soon after a stop, including threads that have ended or were not started."""
        return [*self._others, *self._watching(lambda share: share.ends), *self._leaving(), *self._workers]

    def add(self, what: str, body: Callable[[], object], *, source: bool = False) -> threading.Thread:
        """Add a thread, but do not start it."""
        def run() -> None:
            try:
                body()
            except BaseException as error:  # noqa: BLE001 - any exception ends the controller
                self._failed(what, error)

        thread = Thread(target=run, name=f"{self._name} {what}", daemon=True)
        (self.sources if source else self._others).append(thread)
        return thread

    def start(self) -> None:
        """Start all threads. Raises RuntimeError if no more threads can be started."""
        self.watch(self._shares())
        for thread in (*self._others, *self._workers, *self.sources):
            thread.start()

    def watch(self, shares: Sequence[Share]) -> None:
        """Start a thread for each of these watches, unless the watch already has a thread."""
        for share in shares:
            share.start()

    def include(self, thread: threading.Thread) -> bool:
        """Whether `thread` is one of the controller's threads, the thread of a shared watch, or a thread that executes
        a run in the user's pool."""
        mine = (*self.own, *self.sources, *self._watching(lambda _: True))
        return thread in mine or any(run.thread_id == thread.ident for run in self._runs())

    def still_running(self, stuck: dict[int, Run]) -> list[StillRunning]:
        """The parts that have not ended: threads of the library, and the `stuck` runs (by thread id)."""
        return [*(StillRunning(self._name, f"the reconciler of {run.request.ref}", stack_of(thread_id))
                  for thread_id, run in stuck.items()),
                *alive(self._name, (thread for thread in self.own if thread.ident not in stuck))]

    def _watching(self, wanted: Callable[[Share], bool]) -> list[threading.Thread]:
        return [share.thread for share in self._shares() if share.thread is not None and wanted(share)]


class Running(Lifecycle, Generic[K]):
    """A running controller, made by `Controller.start`: read its store and its state, request runs, and stop it.

    The end of a `with` block stops the controller. `wait_until_ready` blocks until all stores are complete.
    `trigger(obj)` and `trigger_all()` request runs. `stop(timeout)` stops gracefully and returns the objects whose runs
    did not end. Safe to use from any thread.

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
        self._executor = executor_for(plan.options.executor, plan.options.concurrency, f"{plan.name} worker",
                                      self._worker_failed)
        self._assembly: Assembly[K] = Assembly(plan, reconcile, error_policy, data, executor=self._executor,
                                               on_bug=self.fail, rng=rng, move=Share.start)
        super().__init__(plan.name, self._assembly.shutdown, self._assembly.logger, plan.grace)
        self._threads = Threads(plan.name, self._executor.threads, self._assembly.runner.running, self.fail,
                                lambda: self._assembly.shares, lambda: self._assembly.leaving)
        self._forget: list[Callable[[], None]] = []
        self._stuck_runs: dict[int, Run] = {}
        """The runs that did not end, by thread id. Complete once the step `work` of the stop is over."""

    @property
    def store(self) -> Store[K]:
        """The store of the objects that the controller reconciles."""
        return self._assembly.store

    @property
    def assembly(self) -> Assembly[Any]:
        """The controller's parts. For the library."""
        return self._assembly

    @property
    def watch_state(self) -> WatchState | None:
        """The state of the main objects' watch: its phase, when the phase began, and its last error. None if a stream
        of the program delivers the objects.
        """
        return self._assembly.store.watch_state

    @property
    def watch_states(self) -> dict[str, WatchState]:
        """The state of each watch, by a description of its target: see `watch_state`."""
        return {name: watch.state for name, watch in self._assembly.watches.items()}

    @property
    def is_ready(self) -> bool:
        """Whether all stores are complete, reconciling has begun, and no watch keeps failing."""
        return not self.why_not_ready

    @property
    def why_not_ready(self) -> str:
        """Why the controller is not ready: incomplete stores or failing watches, as text. Empty when it is ready."""
        assembly = self._assembly
        if self._is_elsewhere:
            return FORKED
        if assembly.shutdown.draining.is_set():
            return f"it stops: {assembly.shutdown.draining.reason}"
        if not assembly.gate.is_open:
            return f"it waits for {assembly.gate.missing()}"
        troubles = ((name, watch.trouble) for name, watch in assembly.watches.items())
        return "; ".join(f"{name} {trouble}" for name, trouble in troubles if trouble)

    @property
    def why_stores_not_ready(self) -> dict[str, str]:
        """Why each store is not ready, by the store's contents, such as `pods`; empty text for a store that is
        ready."""
        assembly = self._assembly
        missing = {} if assembly.gate.is_open else assembly.gate.troubles()
        return {name: f"not complete: {missing[name]}" if name in missing else watch.trouble
                for name, watch in assembly.watches.items()}

    @property
    def why_not_working(self) -> str:
        """The reason in `why_not_ready` that is not about a store; empty when there is none."""
        stores = self.why_stores_not_ready
        reason = self.why_not_ready
        return "" if any(stores.values()) and not self._is_elsewhere and \
            not self._assembly.shutdown.draining.is_set() else reason

    @property
    def why_not_alive(self) -> str:
        """The failure that only a restart of the process can repair, as text. Empty without such a failure, and during
        a requested stop. Takes no lock that a stuck thread could hold."""
        if self.error is not None:
            return f"it ended by itself: {described(self.error)}"
        assembly = self._assembly
        if assembly.shutdown.draining.is_set():
            return ""
        late = assembly.runner.dispatcher_late()
        stuck = [f"its dispatcher has been stuck for {late:.0f} s"] if late > DISPATCHER_LIMIT else []
        stuck += [f"the watch of {name} has been stuck for {watch.late:.0f} s"
                  for name, watch in assembly.watches.items() if watch.late]
        return "; ".join(stuck)

    def wait_until_ready(self, timeout: Duration | None = None) -> None:
        """Block until all stores are complete and reconciling has begun, at most `timeout` seconds.

        Raises SyncTimeoutError if the time is over, with the incomplete stores and their errors. Raises ControllerError
        if the controller ends before it is ready.
        """
        self._check_here()
        gate, draining = self._assembly.gate, self._shutdown.draining
        if not gate.wait(None if timeout is None else seconds(timeout), draining):
            if draining.is_set():
                ended = f"controller {self.name} ended ({draining.reason}) before it was ready"
                raise ControllerError(ended) from self.error
            raise SyncTimeoutError(f"controller {self.name} is not ready after {seconds(timeout or 0):g} s: "
                                   f"{gate.missing()}")

    @property
    def threads(self) -> list[threading.Thread]:
        """The controller's own threads, including threads that have ended or were not started. Threads of trigger
        sources, and of watches that other controllers use, are not included."""
        return self._threads.own

    def owns(self, thread: threading.Thread) -> bool:
        """Whether `thread` belongs to the controller, reads a source or executes a run. Such a thread cannot wait for
        the controller's end."""
        return super().owns(thread) or self._threads.include(thread)

    def trigger(self, item: Any) -> None:
        """Request a run for an object or ObjectRef; does not block. Raises RequestError for an object of another
        kind."""
        self._check_here()
        self._assembly.trigger(item)

    def trigger_all(self) -> None:
        """Request a run for every stored object; does not block."""
        self._check_here()
        self._assembly.inbox.trigger_everything()

    def stop(self, timeout: Duration = DEFAULT_GRACE) -> list[ObjectRef]:
        """Stop the controller: no new runs begin, and runs in progress get at most `timeout` seconds. Returns the
        objects whose runs are stuck.

        Blocks until everything has ended or the time is over, and then for at most one more second for the last log
        lines. Sending the remaining Events takes at most 2 s of `timeout`. Later calls return the same objects. In a
        forked child process the controller does not run, and the call does nothing.
        """
        return self._stuck() if self._stop(seconds(timeout)) else []

    def stop_runs(self, timeout: Duration) -> list[ObjectRef]:
        """Stop like `stop`, but block only until all runs have ended or are stuck: the rest of the stop needs no
        leadership."""
        if not self._stop_begins(seconds(timeout)):
            return []
        self._await_work()
        return self._stuck()

    def _stuck(self) -> list[ObjectRef]:
        return [run.request.ref for run in self._stuck_runs.values()]

    def begin_stop(self, reason: str, grace: float) -> None:
        """Begin a stop of at most `grace` seconds. A later call may shorten the time, not lengthen it. Does not
        block."""
        super().begin_stop(reason, grace)
        self._assembly.runner.wake()  # the deadline of `wait_idle` may be earlier now

    def raise_error(self) -> None:
        """Raise ControllerError if the controller ended by itself."""
        if self.error is not None:
            raise ControllerError(f"controller {self.name} ended by itself: {self.error}") from self.error

    def launch(self, *, signal_thread: bool) -> None:
        """Start every thread. `signal_thread`: also start a thread that obeys signals. Without that thread, the caller
        must call `obey_signal`.

        Raises RequestError if a controller with this name already runs on the client.
        """
        plan, assembly = self._plan, self._assembly
        try:
            self._forget.append(RUNNING.take(plan.client, plan.name))
            if assembly.recording is not None:
                assembly.recording.start()
        except BaseException:
            assembly.release("it was not started")
            for forget in self._forget:
                forget()
            raise
        self._launch(partial(self._start, signal_thread))

    def _start(self, signal_thread: bool) -> None:
        plan, assembly = self._plan, self._assembly
        plan.client.grow(plan.options.concurrency)
        if plan.signals:
            self._signals.install()
        assembly.subscribe()
        assembly.reads.values.spawn = lambda what, body: self._threads.add(what, body).start()
        self._shutdown.draining.on_set(self._executor.close)
        self._threads.add("dispatcher", assembly.dispatch)
        for name, body in assembly.pulls.items():
            self._threads.add(name, body, source=True)
        if self._signals.installed and signal_thread:
            self._threads.add("signals", self.obey_signal)
        if plan.stop is not None:
            self._forget.append(plan.stop.on_set(self._stop_was_set))
        self._forget.append(plan.client.on_close(self._client_was_closed))
        assembly.logger.info("starting: watches %s; %d workers", ", ".join(assembly.watches) or "a given stream",
                             plan.options.concurrency)
        self._threads.start()

    def add_watch(self, plan: WatchPlan) -> None:
        """Add a watch. If the other stores are not complete yet, the controller also waits for the new store.

        Raises RequestError for a kind or scope that cannot be watched. Any other exception ends the controller.
        """
        try:
            self._threads.watch(self._assembly.add_watch(plan))
        except RequestError:
            raise
        except BaseException as error:
            self.fail("a further watch", error)
            raise

    def add_read(self, kind: Any) -> None:
        """Add a watch of `kind` for `ctx.read`. Raises RequestError for a value that is not a kind."""
        self._assembly.add_read(kind)

    def add_source(self, source: TriggerSource, *, bulk: bool) -> None:
        """Add a trigger source."""
        name, body = self._assembly.add_source(source, bulk=bulk)
        self._threads.add(name, body, source=True).start()

    # --- the hooks of the engine ---

    def _stopping_detail(self) -> str:
        return f"; {self._assembly.drained}"

    def _log_failure(self, what: str, error: BaseException, *, is_first: bool) -> None:
        logger = self._assembly.logger
        if isinstance(error, KubeError):
            logger.error("%s; the controller ends", error)
        elif is_first:
            logger.critical("%s failed; the controller ends", what, exc_info=error)
        else:
            logger.critical("%s failed, too", what, exc_info=error)

    def _end_work(self) -> None:
        shutdown, runner = self._shutdown, self._assembly.runner
        if not runner.wait_idle(lambda: shutdown.deadline or 0.0):
            shutdown.abort("the grace period is over")
            if not runner.wait_idle(lambda: shutdown.cut_at or 0.0):
                shutdown.cut.set("the grace period is over")
                runner.wait_idle(lambda: shutdown.give_up_at or 0.0)
        shutdown.abort("the controller has ended")  # for user threads that check `ctx.stop`
        self._stuck_runs = {run.thread_id: run for run in runner.running()}

    def _end_rest(self) -> list[StillRunning]:
        # Send the Events after the runs, which may still record Events, and before the program can close the client.
        self._assembly.recorder.close(min(self._shutdown.time_left(), EVENTS_SECONDS))
        if self._assembly.recording is not None:
            self._assembly.recording.close(self.reason or "stopped", self._shutdown.time_left())
        stuck = self._stuck_runs
        join((thread for thread in self._threads.own if thread.ident not in stuck), JOIN_SECONDS)
        join(self._threads.sources, SOURCE_SECONDS)
        left = self._log_stuck(self._threads.still_running(stuck))
        for source in alive(self.name, self._threads.sources):
            self._log.info("not waiting for %s: it blocks in a trigger source of the program", source.what)
        return left

    def _release(self) -> None:
        self._plan.options.observer.controller_stopped(self.name, len(self._stuck_runs))
        for forget in self._forget:
            forget()

    def _check_here(self) -> None:
        if self._is_elsewhere:
            raise ControllerError(f"controller {self.name} runs in the parent process, not in this forked child "
                                  "process: start another controller here")

    def _worker_failed(self, error: BaseException) -> None:
        """Handle an exception that a worker raised outside of user code."""
        if isinstance(error, Exception) and not isinstance(error, MemoryError):
            self.fail("a worker", error)
            return
        # The memory ran out, or another thread raised an exception in this thread. This is not a bug, but the worker
        # may have lost its work.
        self._assembly.logger.error("a worker was interrupted by %s; the worker continues, and every object runs again",
                                    described(error), exc_info=error)
        self._assembly.inbox.trigger_everything()

    def _client_was_closed(self) -> None:
        if not self._shutdown.draining.is_set():
            self.error = ControllerError("its client was closed while it ran: stop the controller first")
            self.begin_stop("its client was closed", self._plan.grace)

    def _stop_was_set(self) -> None:
        token = self._plan.stop
        self.begin_stop((token.reason if token else "") or "its stop token was set", self._plan.grace)
