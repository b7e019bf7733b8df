"""`Lifecycle`: the engine that starts and stops a controller or a Manager, and handles signals.

    phase         what happens                                                        next
    starting      the parts that others need, such as a manager's servers, start      running
    running       everything works; a manager with an election is                     stopping
                  `standing by`, then `leading`
    stopping      begun by `stop()`, a signal (`run`), a stop token, a failure,       stopped
                  the end of the program, KeyboardInterrupt in a `with` block, or
                  a failed start. A separate thread goes through these steps:
       work         runs in progress end, within the grace period (see `Shutdown`); then resources that they needed,
                    such as a Lease, are released
       rest         recorded events are sent, threads are joined, servers stop; a thread that does not end is logged
                    with its stack
       release      signal handlers, names and hooks are released
    stopped       nothing runs except threads that are stuck in user code

    the cause of the stop                             what `serve`, which blocks the calling thread, then does
    a signal, and all work ended within the grace     returns
    a signal, and something is stuck                  flushes logs and output, ends the process with status 1
    a second signal n                                 the process ends at once with status 128 + n (see `signals`)
    KeyboardInterrupt (signals not installed)         stops, then raises it; a second one abandons what still runs
    a stop by another thread                          returns
    a failure                                         stops, then raises it

A controller is one member of this engine; a Manager has several members and an election. Both override the hooks
`_end_work`, `_end_rest`, `_release` and `owns`. The stop completes whether a caller waits or not, and waits for no log
handler. If no thread can be started because the interpreter ends, the first caller that waits does the work. In a
forked child process the engine looks stopped, and `stop` does nothing.

`Shutdown`: the stop tokens of a controller, and how they divide the grace period.

    running    -> draining   stop requested, a signal, or a failure of the library: no new runs, watches close
    draining   -> aborted    the grace period nears its end: `ctx.stop` of runs is set; reads and waits end
    aborted    -> cut        half of the remaining time has passed: writes of runs end, too
    cut                      a run that still does not return is reported as stuck

The library's own threads watch `draining`. The reconciler's `ctx.stop` is `aborted`, so a run that ends soon after the
stop request is not disturbed. Runs have the last tenth of the grace period, at most 2 s, to react to `aborted`. A write
that is in progress when `aborted` is set may continue for half of that time, so the stop interrupts only slow writes.

`ShutdownLog`: logs in its own thread while a controller or manager ends. A log handler is user code and may block, so a
shutdown must not wait for the handler without a limit.
"""
from __future__ import annotations

import atexit
import os
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, suppress
from enum import StrEnum
from functools import partial
from queue import SimpleQueue
from signal import Signals
from types import TracebackType
from typing import Self

import msgspec

from kubectl_runtime.core.base.guard import GuardedLogger, Line, described, written_by
from kubectl_runtime.core.base.threads import MAIN_THREAD_WAIT, SYSTEM_CLOCK, Clock, Duration, Thread, seconds
from kubectl_runtime.core.scope import StopToken, time_left
from kubectl_runtime.runtime.lifecycle.signals import EXIT_STUCK, ShutdownSignals, end_process

DEFAULT_GRACE = 25.0
"""Seconds. Kubernetes gives a Pod 30 s between SIGTERM and SIGKILL; the other 5 s are for the end of the process."""

ABORT_SHARE, ABORT_MOST = 0.1, 2.0


class Shutdown:
    """The three stop tokens of a controller, and the times at which they are set. Safe to use from any thread."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.draining = StopToken(clock=clock)
        self.aborted = StopToken(clock=clock)
        self.cut = StopToken(clock=clock)
        self._lock = threading.Lock()
        self.deadline: float | None = None
        """When `ctx.stop` of runs is set, on the monotonic clock; None before a stop is requested."""
        self.give_up_at: float | None = None
        """When runs that have not ended are given up, on the monotonic clock; None before a stop is requested."""

    def begin(self, reason: str, grace: float = DEFAULT_GRACE) -> None:
        """Begin to drain: no run starts, and runs in progress are given up after `grace` seconds.

        A later call may shorten the time, not lengthen it.
        """
        give_up = self._clock.monotonic() + grace
        abort = give_up - min(grace * ABORT_SHARE, ABORT_MOST)
        with self._lock:
            self.give_up_at = give_up if self.give_up_at is None else min(self.give_up_at, give_up)
            self.deadline = abort if self.deadline is None else min(self.deadline, abort)
        self.draining.set(reason)

    @property
    def cut_at(self) -> float | None:
        """When the runs' writes are aborted, on the monotonic clock; None before a stop is requested."""
        deadline, give_up = self.deadline, self.give_up_at
        return None if deadline is None or give_up is None else (deadline + give_up) / 2

    def time_left(self) -> float:
        """Seconds until everything is given up; 0 after that time, and before the stop begins."""
        return max(0.0, (self.give_up_at or 0.0) - self._clock.monotonic())

    def abort(self, reason: str) -> None:
        """Set `ctx.stop` of all runs in progress at once, without waiting for the grace period."""
        self.draining.set(reason)
        self.aborted.set(reason)


def stack_of(thread_id: int | None) -> str:
    """The stack of a thread as text: the current line of each frame, without values. Empty if the thread has ended."""
    # In spite of its underscore, `sys._current_frames` is the documented way to get another thread's stack.
    frame = sys._current_frames().get(thread_id) if thread_id is not None else None
    return "".join(traceback.format_stack(frame)) if frame is not None else ""


LINE_SECONDS = 1.0
"""How long a log handler may take for one line before it counts as blocked."""


class ShutdownLog:
    """The log of a shutdown. `info` and `error` queue lines, and a thread writes them in order. Safe to use from any
    thread. Only `finish` blocks."""

    def __init__(self, logger: GuardedLogger, name: str) -> None:
        """`name`: the name of the thread."""
        self._logger = logger
        self._lines: SimpleQueue[Line | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._thread = Thread(target=self._write, name=name, daemon=True)
        self._begun = False
        self._finished = False
        self._written = threading.Event()
        self._line_since = float("inf")
        """When the writing of the current line began."""

    def info(self, text: str, *arguments: object) -> None:
        """Queue a line at INFO. Does not block."""
        self._put(partial(self._logger.info, text, *arguments))

    def error(self, text: str, *arguments: object) -> None:
        """Queue a line at ERROR. Does not block."""
        self._put(partial(self._logger.error, text, *arguments))

    def collecting(self) -> AbstractContextManager[None]:
        """Queue the log lines that the calling thread writes in the `with` block."""
        return written_by(self._put)

    def finish(self, until: float) -> None:
        """Accept no more lines, and block until all lines are written, at most until `until` on `time.monotonic`. Gives
        up earlier when a handler has worked on one line for `LINE_SECONDS`. These are real seconds: handlers know no
        simulated clock."""
        with self._lock:
            begun = self._begun
            if not self._finished:
                self._finished = True
                self._lines.put(None)
        # If a log handler stops the controller, this is the writing thread, which must not wait for itself.
        if begun and self._thread is not threading.current_thread():
            # `join` would raise for a thread that has not started yet.
            while (left := min(until, self._line_since + LINE_SECONDS) - time.monotonic()) > 0:
                if self._written.wait(left):
                    break

    def _put(self, line: Line) -> None:
        with self._lock:
            finished, begun, self._begun = self._finished, self._begun, True
            if not finished:
                self._lines.put(line)
        if finished:
            with written_by(None):
                line()
        elif not begun:
            try:
                self._thread.start()
            except RuntimeError:  # no thread can start, for example while the interpreter ends: write here
                with self._lock:
                    self._begun = False
                self._lines.put(None)
                self._write()

    def _write(self) -> None:
        with written_by(None):
            while (line := self._lines.get()) is not None:
                self._line_since = time.monotonic()
                line()
                self._line_since = float("inf")
        self._written.set()


JOIN_SECONDS = 2.0
"""Real seconds in which the library's threads must end once no work is in progress. They need milliseconds; a thread
that resolves a host name may need longer."""

LEAST_LOG_SECONDS = 1.0
"""The minimum time that log handlers get for the last lines."""

FORKED = "it runs in the process that this one was forked from"


class Phase(StrEnum):
    """The phases of a controller or Manager, from its start to its end."""

    STARTING = "starting"
    RUNNING = "running"
    STANDING_BY = "standing by"
    LEADING = "leading"
    STOPPING = "stopping"
    STOPPED = "stopped"


class StillRunning(msgspec.Struct, frozen=True):
    """A thread that has not ended in time. `owner`: the controller or runnable. `what`: the run of an object, or the
    thread's name. `stack`: the thread's stack."""

    owner: str
    what: str
    stack: str


class Lifecycle:
    """Starts and stops several parts together; see the module. `Running` and `RunningManager` are its subclasses and
    override its hooks. Safe to use from any thread."""

    def __init__(self, name: str, shutdown: Shutdown, logger: GuardedLogger, grace: float, *, prefix: str = "") -> None:
        """`name`: for thread names. `grace`: seconds for a stop without its own limit. `prefix`: the beginning of each
        log line."""
        self._shutdown = shutdown
        self._grace = grace
        self._prefix = prefix
        self._log = ShutdownLog(logger, f"{name} shutdown log")
        self._signals = ShutdownSignals()
        self._process = os.getpid()
        self._was_launched = False
        self.error: BaseException | None = None
        """The first failure, which began the stop; None without a failure."""
        self._noting = threading.Lock()
        self._unlogged: deque[tuple[str, BaseException, bool]] = deque()
        """Failures that are not logged yet: what failed, the error, and whether it is the first."""
        self._work_over, self._settled = threading.Event(), threading.Event()
        self._claims = threading.Lock(), threading.Lock()
        """One lock for the step `work` and one for `rest`: the thread that acquires the lock does the step."""
        self.still_running: list[StillRunning] = []
        """Threads that did not end in time. The list is complete once the shutdown has ended."""
        self._ending = Thread(target=self._end, name=f"{name} ending", daemon=True)

    # --- the current state ---

    @property
    def _is_elsewhere(self) -> bool:
        """Whether this is a forked child process. The threads belong to the parent, and a stop here would end
        connections that both processes share."""
        return os.getpid() != self._process

    @property
    def phase(self) -> Phase:
        """The current phase."""
        if self.has_ended:
            return Phase.STOPPED
        if self._shutdown.draining.is_set():
            return Phase.STOPPING
        return Phase.RUNNING if self._was_launched else Phase.STARTING

    @property
    def has_ended(self) -> bool:
        """Whether the stop is complete: no thread runs any more, except threads that are stuck in user code."""
        return self._settled.is_set() or self._is_elsewhere

    @property
    def reason(self) -> str:
        """Why the stop began, such as the signal's name. Empty before the stop."""
        return FORKED if self._is_elsewhere else self._shutdown.draining.reason

    def wait(self, timeout: Duration | None = None) -> bool:
        """Block until the stop begins for any reason, or `timeout` is over. Returns whether the stop has begun."""
        return self._is_elsewhere or self._shutdown.draining.wait(
            time_left(None if timeout is None else seconds(timeout), SYSTEM_CLOCK))

    def on_stop(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback` when the stop begins for any reason, or at once if it has begun. Returns a function that
        removes the callback. The callback must be short, because it runs in the thread that begins the stop."""
        return self._shutdown.draining.on_set(callback)

    def owns(self, thread: threading.Thread) -> bool:
        """Whether `thread` carries out the stop. Such a thread cannot wait until the stop is complete."""
        return thread is self._ending

    # --- beginning the stop ---

    def begin_stop(self, reason: str, grace: float) -> None:
        """Begin a stop of at most `grace` seconds. A later call may shorten the time, not lengthen it. Does not
        block."""
        self._shutdown.begin(reason, grace)

    def fail(self, what: str, error: BaseException, grace: float | None = None) -> None:
        """Begin a stop of at most `grace` seconds (default: the grace period), because `what` failed. Does not
        block."""
        with self._noting:
            is_first = self.error is None
            if is_first:
                self.error = error
        self._unlogged.append((what, error, is_first))
        self.begin_stop(f"{what} failed: {described(error)}", self._grace if grace is None else grace)
        self._log_failures()

    @property
    def obeys_signals(self) -> bool:
        """Whether SIGINT and SIGTERM now stop this controller or manager."""
        return self._signals.installed

    def obey_signal(self) -> int | None:
        """Block until the stop begins. Returns the number of the signal that began it; None for another reason."""
        number = self._signals.wait()
        if number is not None:
            self.begin_stop(Signals(number).name, self._grace)
        return number

    def abandon(self, heed: float = 0.0) -> None:
        """Stop at once, and give up everything that has not ended after `heed` seconds. Does not block."""
        self.begin_stop("abandoned", heed)
        self._shutdown.abort("abandoned")
        self._signals.close()
        atexit.unregister(self._at_exit)

    def _at_exit(self) -> None:
        """Stop, because the program ends without a call of `stop`."""
        if not self._is_elsewhere:
            self.begin_stop("the program ends", self._grace)
            self._await_end()

    # --- waiting for the end ---

    def serve(self, grace: float) -> None:
        """Block until the stop begins for any reason, then stop within `grace` seconds. See the module."""
        try:
            obeyed = self.obeys_signals
            self.obey_signal()
            stuck = self.stop(grace)
        except BaseException:
            try:
                self.stop(grace)
            except KeyboardInterrupt:  # a second Ctrl-C: the user does not want to wait
                self.abandon()
            raise
        if stuck and obeyed:
            end_process(EXIT_STUCK)
        self.raise_error()

    def raise_error(self) -> None:
        """Raise the first failure, if there was one."""
        if self.error is not None:
            raise self.error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        try:
            self.stop()
        except KeyboardInterrupt:  # the user does not want to wait
            self.abandon()
            raise
        if error is None:
            self.raise_error()

    def stop(self, timeout: float = DEFAULT_GRACE) -> Sequence[object]:
        """Stop within `timeout` seconds. Blocks. Returns the parts that are stuck. Subclasses call `_stop`."""
        raise NotImplementedError

    def _stop(self, timeout: float) -> bool:
        """Stop within `timeout` seconds; returns whether the stop is complete. Returns False at once in a thread that
        the stop waits for, and in a forked child process."""
        waits = self._stop_begins(timeout)
        if waits:
            self._await_end()
            self._signals.close()  # only the main thread can restore handlers; this may be the main thread
        return waits

    def _stop_begins(self, timeout: float) -> bool:
        """Begin to stop; returns whether this thread may wait for the end."""
        if self._is_elsewhere:
            return False
        self.begin_stop("stop() was called", timeout)
        return not self.owns(threading.current_thread())

    def _await_work(self) -> None:
        """Block until all work has ended or is stuck, at most for the grace period."""
        if not self._ending.is_alive():
            self._end_work_once()
        _await(self._work_over)

    def _await_end(self) -> None:
        """Block until everything has ended, at most for the grace period and a moment for the last log lines."""
        if not self._ending.is_alive():
            self._end()
        _await(self._settled)
        left = min(self._shutdown.time_left(), JOIN_SECONDS)
        self._log.finish(time.monotonic() + max(LEAST_LOG_SECONDS, left))

    # --- the engine ---

    def _launch(self, start: Callable[[], None]) -> None:
        """Register the hooks and call `start`. If `start` raises, everything is stopped before the exception is
        raised."""
        self._process = os.getpid()
        self._was_launched = True
        for callback in (self._signals.release, self._log_stopping, self._begin_ending):
            self._shutdown.draining.on_set(callback)
        atexit.register(self._at_exit)
        try:
            start()
        except BaseException:  # out of memory, no more threads, Ctrl-C in a mapper: stop what was started
            self.begin_stop("it could not be started", 0)
            self._await_end()
            raise

    def _log_failures(self) -> None:
        with suppress(IndexError), self._log.collecting():
            while True:
                what, error, is_first = self._unlogged.popleft()
                self._log_failure(what, error, is_first=is_first)

    def _log_stopping(self) -> None:
        self._log_failures()  # log failures first; the stop has begun already and does not wait for a log handler
        self._log.info("%sstopping: %s%s%s", self._prefix, self.reason, self._stopping_detail(),
                       "; a second signal ends the process at once" if self._signals.installed else "")

    def _begin_ending(self) -> None:
        with suppress(RuntimeError):  # no new thread, as when the interpreter ends: then a waiting caller runs `_end`
            self._ending.start()

    def _end(self) -> None:
        self._end_work_once()
        if not self._claims[1].acquire(blocking=False):
            return
        try:
            with self._log.collecting():
                left = self.still_running = self._end_rest()
                self._log.info("%sstopped%s", self._prefix, f"; stuck: {len(left)}" if left else "")
                self._release()
        finally:
            self._signals.close()
            atexit.unregister(self._at_exit)
            self._settled.set()
            self._log.finish(0.0)  # ends the log's thread, even if no caller waits for it

    def _end_work_once(self) -> None:
        if not self._claims[0].acquire(blocking=False):
            _await(self._work_over)
            return
        try:
            with self._log.collecting():
                self._end_work()
        finally:
            self._work_over.set()

    def _log_stuck(self, found: Iterable[StillRunning]) -> list[StillRunning]:
        """Log each of these threads with its stack, and return them."""
        stuck = list(found)
        for one in stuck:
            self._log.error("%s does not end; its stack:\n%s", one.what, one.stack)
        return stuck

    # --- hooks of a controller and a manager ---

    def _stopping_detail(self) -> str:
        """What the stop waits for, as text for the log line."""
        return ""

    def _log_failure(self, what: str, error: BaseException, *, is_first: bool) -> None:
        """Log a failure."""

    def _end_work(self) -> None:
        """Block until the runs in progress have ended or their time is over."""

    def _end_rest(self) -> list[StillRunning]:
        """Block until everything else has ended or its time is over. Returns the threads that have not ended; they are
        logged already."""
        return []

    def _release(self) -> None:
        """Release the names, signals and hooks, so that other controllers can take them."""


def join(threads: Iterable[threading.Thread], limit: float) -> None:
    """Wait for these threads, at most `limit` seconds in all. The limit is in real seconds, not on a simulated
    clock."""
    deadline = time.monotonic() + limit
    for thread in threads:
        if thread.ident is not None and thread is not threading.current_thread():  # it was started
            thread.join(max(0.0, deadline - time.monotonic()))


def alive(owner: str, threads: Iterable[threading.Thread]) -> list[StillRunning]:
    """The `threads` that have started and not ended, except the calling thread."""
    return [StillRunning(owner, f"thread {thread.name!r}", stack_of(thread.ident)) for thread in threads
            if thread.is_alive() and thread.ident is not None and thread is not threading.current_thread()]


def _await(event: threading.Event) -> None:
    # Wait in short pieces, so that a signal that arrives just before a wait is noticed.
    while not event.wait(MAIN_THREAD_WAIT):
        pass
