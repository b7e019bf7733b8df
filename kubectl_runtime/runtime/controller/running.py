"""`Running`: a controller with its threads, and the way to its end.

    thread                       ends
    one per watch                when `draining` is set for its last user (the token shuts the sockets down)
    workers                      when `draining` is set and their run is over
    dispatcher                   when `draining` is set
    one per trigger source       when `draining` is set; one that blocks in the user's iterable does not
    signals (only with start)    when `draining` is set

    stop(timeout)   sets `draining`; waits for the runs in progress; shortly before the timeout sets `aborted`; waits
                    on; joins the threads; names by key and stack what did not end. Works at any moment, also before the
                    first sync, twice, from several threads at once. From one of the controller's own threads, a
                    reconciler for instance, it only begins the stop, as no thread can wait for itself.

All threads are daemons, so a stuck one cannot keep the process; that the end is graceful nevertheless when the program
just ends is the work of an `atexit` hook. If a thread of the library dies of a defect, the controller stops and says so
in `error`: it never goes on half alive.
"""
from __future__ import annotations

import atexit
import os
import random
import threading
import time
from collections.abc import Callable
from queue import SimpleQueue
from signal import Signals
from types import TracebackType
from typing import Any, Generic, TypeVar

from kubectl_runtime.core.base.clock import Duration, seconds
from kubectl_runtime.core.base.errors import KubeError
from kubectl_runtime.core.meta.refs import ObjectRef
from kubectl_runtime.runtime.controller.assembly import Assembly
from kubectl_runtime.runtime.controller.plan import Plan
from kubectl_runtime.runtime.controller.signals import ShutdownSignals
from kubectl_runtime.runtime.controller.sync_gate import SyncTimeoutError
from kubectl_runtime.runtime.reconcile.executor import ThreadExecutor
from kubectl_runtime.runtime.reconcile.reconciler import ErrorPolicy, ReconcileFunction
from kubectl_runtime.runtime.reflector.store import Store
from kubectl_runtime.runtime.shutdown import DEFAULT_GRACE, stack_of
from kubectl_runtime.runtime.usercode import described

K = TypeVar("K")

JOIN_SECONDS = 2.0
"""The least time that threads get to end once no reconciler runs any more; real seconds."""


class ControllerError(KubeError):
    """A controller ended by itself: its stores did not fill in time, or one of its threads died of a defect."""


class Running(Generic[K]):
    """Made by `Controller.start`. Safe to use from any thread.

    As a context manager it stops at the end of the block.
    """

    def __init__(self, plan: Plan, reconcile: ReconcileFunction[Any], error_policy: ErrorPolicy[Any] | None,
                 data: Any, *, rng: random.Random | None = None) -> None:
        self._plan = plan
        self.name = plan.name
        self.error: BaseException | None = None
        """Why the controller ended by itself; None as long as it has not."""
        self._executor = ThreadExecutor(plan.concurrency, f"{plan.name} worker",
                                        lambda error: self._fail("a worker", error))
        self._assembly: Assembly[K] = Assembly(plan, reconcile, error_policy, data, executor=self._executor,
                                               on_bug=self._fail, rng=rng)
        self._shutdown = self._assembly.shutdown
        self._threads: list[threading.Thread] = []
        self._heard: SimpleQueue[int | None] = SimpleQueue()
        self._signals = ShutdownSignals(self._heard)
        self._process = os.getpid()
        self._forget_stop: Callable[[], None] = lambda: None
        self._ending = threading.Lock()
        self._stuck: list[ObjectRef] | None = None

    @property
    def store(self) -> Store[K]:
        """The objects the controller reconciles, as its watch knows them."""
        return self._assembly.store

    def wait_until_ready(self, timeout: Duration | None = None) -> None:
        """Block until all stores are complete and reconciling has begun, at most `timeout` seconds.

        Raises SyncTimeoutError after that, naming what is missing and why; ControllerError when the controller ends
        before.
        """
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
        return self._shutdown.draining.wait(None if timeout is None else seconds(timeout))

    @property
    def reason(self) -> str:
        """Why it stops or has stopped, in words: the signal's name, say. Empty while it runs."""
        return self._shutdown.draining.reason

    def trigger(self, item: Any) -> None:
        """Reconcile an object or ObjectRef soon; does not block. Raises RequestError when it is of another kind."""
        self._assembly.inbox.trigger(item)

    def trigger_all(self) -> None:
        """Reconcile every stored object soon."""
        self._assembly.inbox.trigger_everything()

    def stop(self, timeout: Duration = DEFAULT_GRACE) -> list[ObjectRef]:
        """End it: no new runs, and at most `timeout` seconds for those in progress. Returns the keys that are stuck.

        Blocks until everything has ended or the time is over; see the module. Later calls return the same. Does nothing
        in the child of a fork, where nothing of it runs.
        """
        if self._is_elsewhere:
            return []
        self._shutdown.begin("stop() was called", seconds(timeout))
        shared = [share.thread for share in self._assembly.shares.values()]
        if threading.current_thread() in [*self._own_threads(), *shared]:
            return []
        return self._finish()

    def __enter__(self) -> Running[K]:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.stop()
        if error is None:
            self.raise_error()

    def raise_error(self) -> None:
        """Raise ControllerError if the controller ended by itself."""
        if self.error is not None:
            raise ControllerError(f"controller {self.name} ended by itself: {self.error}") from self.error

    def launch(self, *, signal_thread: bool) -> None:
        """Start every thread, for `signal_thread` also one that obeys signals; else the caller does, by `obey_signal`.
        """
        plan, assembly = self._plan, self._assembly
        plan.client.grow(plan.concurrency)
        if plan.signals:
            self._signals.install()
        assembly.subscribe()
        self._shutdown.draining.on_set(self._executor.close)
        self._shutdown.draining.on_set(lambda: self._heard.put(None))
        self._add_thread("dispatcher", lambda: assembly.runner.dispatch(assembly.gate.check))
        for name, body in assembly.pulls.items():
            self._add_thread(name, body)
        if self._signals.installed and signal_thread:
            self._add_thread("signals", self.obey_signal)
        if plan.stop is not None:
            self._forget_stop = plan.stop.on_set(self._stop_was_set)
        atexit.register(self._at_exit)
        assembly.logger.info("starting: watches %s; %d workers", ", ".join(assembly.watches) or "a given stream",
                             plan.concurrency)
        try:
            for share in assembly.shares.values():
                share.start()
            for thread in self._threads + self._executor.threads:
                thread.start()
        except BaseException:  # no memory, no more threads: those that were started must not stay
            self.stop(0)
            raise

    def obey_signal(self) -> int | None:
        """Block until a signal comes or the controller stops, and begin the stop; the signal's number, None without
        one."""
        number = self._heard.get()
        if number is not None:
            self._shutdown.begin(Signals(number).name, self._plan.grace)
            self._assembly.logger.info("a second signal ends the process at once")
        return number

    @property
    def obeys_signals(self) -> bool:
        """Whether SIGINT and SIGTERM are this controller's now."""
        return self._signals.installed

    def abandon(self) -> None:
        """Tell runs in progress to stop, and wait for nothing any more."""
        self._shutdown.abort("abandoned")
        self._release()

    def _finish(self) -> list[ObjectRef]:
        shutdown, runner = self._shutdown, self._assembly.runner
        if not runner.wait_idle(lambda: shutdown.deadline or 0.0):
            shutdown.abort("the grace period is over")
            runner.wait_idle(lambda: shutdown.give_up_at or 0.0)
        stuck = {run.thread_id: run for run in runner.running()}
        # After the runs, which may still have something to tell, and before the program can close the client.
        self._assembly.recorder.close(max(0.0, (shutdown.give_up_at or 0.0) - self._plan.clock.monotonic()))
        self._join([thread for thread in self._own_threads() if thread.ident not in stuck])
        with self._ending:
            first = self._stuck is None
            if self._stuck is None:
                self._stuck = [run.request.ref for run in stuck.values()]
            found = self._stuck
        if first:  # outside the lock: log handlers are user code
            self._report([(f"the reconciler of {run.request.ref}", thread) for thread, run in stuck.items()])
            self._plan.observer.controller_stopped(self.name, len(stuck))
            self._release()
        return found

    def _join(self, threads: list[threading.Thread]) -> None:
        # Real time, whatever the clock is: what is waited for here is the operating system.
        left = (self._shutdown.give_up_at or 0.0) - self._plan.clock.monotonic()
        deadline = time.monotonic() + max(JOIN_SECONDS, left)
        for thread in threads:
            if thread.ident is not None:  # it was started
                thread.join(min(max(0.0, deadline - time.monotonic()), threading.TIMEOUT_MAX))

    def _report(self, stuck: list[tuple[str, int]]) -> None:
        known = {thread for _, thread in stuck}
        others = [(f"thread {thread.name!r}", thread.ident) for thread in self._own_threads()
                  if thread.is_alive() and thread.ident is not None and thread.ident not in known]
        stuck = stuck + others
        for what, thread_id in stuck:
            self._assembly.logger.error("%s does not end; it is here:\n%s", what, stack_of(thread_id))
        self._assembly.logger.info("stopped%s", f"; stuck: {len(stuck)}" if stuck else "")

    def _release(self) -> None:
        self._signals.close()
        self._forget_stop()
        atexit.unregister(self._at_exit)

    @property
    def _is_elsewhere(self) -> bool:
        """Whether this is the child of a fork: the threads are its parent's, and to stop would end the connections that
        both share."""
        return os.getpid() != self._process

    def _own_threads(self) -> list[threading.Thread]:
        watches = [share.thread for share in self._assembly.shares.values() if share.thread is not None and share.ends]
        return [*self._threads, *watches, *self._executor.threads]

    def _add_thread(self, what: str, body: Callable[[], object]) -> None:
        def run() -> None:
            try:
                body()
            except BaseException as error:  # noqa: BLE001 - whatever it is, the controller must not go on half alive
                self._fail(what, error)

        self._threads.append(threading.Thread(target=run, name=f"{self.name} {what}", daemon=True))

    def _fail(self, what: str, error: BaseException) -> None:
        if self.error is None:
            self.error = error
        if isinstance(error, SyncTimeoutError):
            self._assembly.logger.error("%s", error)
        else:
            self._assembly.logger.critical("%s failed; the controller ends", what, exc_info=error)
        self._shutdown.begin(f"{what} failed: {described(error)}", self._plan.grace)

    def _stop_was_set(self) -> None:
        token = self._plan.stop
        self._shutdown.begin((token.reason if token else "") or "its stop token was set", self._plan.grace)

    def _at_exit(self) -> None:
        """The program ends and nobody called `stop`."""
        if self._is_elsewhere:
            return
        self._shutdown.begin("the program ends", self._plan.grace)
        self._finish()
