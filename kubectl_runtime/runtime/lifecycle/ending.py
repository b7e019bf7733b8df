"""`Ending`: what happens from the moment a controller is to stop until nothing of it runs, in a thread of its own.

    draining is set    `begin`: says what is waited for, and until when
    waiting            for the runs in progress, until they are told to stop: `aborted`
    aborted            their reads and waits end; a little later their writes: `cut`
    given up           what still runs is stuck
    runs are over      `stuck` is known; what the runs needed, such as a Lease, may be given back
    closing            what was recorded is sent, in 2 s
    joining            the threads of the library end within milliseconds; those in which user code blocks are not
                       waited for: stuck runs, and trigger sources
    settled            the signals and the name are given back; what is left is logged

All of this comes to its end by itself, whether a caller waits or not. Nothing here waits for a log handler (see
`LastWords`). Where no thread can be started any more, because the interpreter ends, the first caller that waits does
the work.

`LastWords`: what a controller or manager logs while it ends, written by a thread that nobody has to wait for.

    info, error     put a line in; the thread starts with the first one, writes them in order, and ends after `finish`
    finish(until)   no more lines; blocks until all are written, at most until that moment, and not for a handler that
                    has had one line for `LINE_SECONDS`
    taken_down()    for what logs by itself: within this, the lines of the calling thread are put in

A log handler is user code and may block. What keeps the time of a shutdown must not wait for one, nor wait again at the
end for one that has blocked all the while.

`Threads`: those of one life of a controller: the library's own, and those that pull trigger sources and streams.
"""
from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from datetime import timedelta
from functools import partial
from queue import SimpleQueue

from kubectl_runtime.core.base.clock import MAIN_THREAD_WAIT, Clock
from kubectl_runtime.core.base.guard import GuardedLogger, Line, written_by
from kubectl_runtime.core.base.interpreter import Thread
from kubectl_runtime.core.meta.refs import ObjectRef
from kubectl_runtime.runtime.lifecycle.shutdown import Shutdown, stack_of
from kubectl_runtime.runtime.queue.runs import Run
from kubectl_runtime.runtime.reconcile.runner import Runner
from kubectl_runtime.runtime.triggers.shared_watches import Share

LINE_SECONDS = 1.0
"""How long a log handler may take for one line before it counts as blocked."""


class LastWords:
    """The log lines of an end, written by a thread of their own: a handler that blocks cannot delay the end. Safe to
    use from any thread. Blocks only in `finish`."""

    def __init__(self, logger: GuardedLogger, name: str) -> None:
        """`name` of the thread."""
        self._logger = logger
        self._lines: SimpleQueue[Line | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._thread = Thread(target=self._write, name=name, daemon=True)
        self._begun = False
        self._finished = False
        self._written = threading.Event()
        self._line_since = float("inf")
        """When the line that is being written began."""

    def info(self, text: str, *arguments: object) -> None:
        """Log a line at INFO, soon. Does not block."""
        self._say(partial(self._logger.info, text, *arguments))

    def error(self, text: str, *arguments: object) -> None:
        """Log a line at ERROR, soon. Does not block."""
        self._say(partial(self._logger.error, text, *arguments))

    def taken_down(self) -> AbstractContextManager[None]:
        """Within this, all that the calling thread logs is written so."""
        return written_by(self._say)

    def finish(self, until: float) -> None:
        """Wait for the lines at most until this moment of `time.monotonic`: what is waited for is real. See the module.
        """
        with self._lock:
            begun = self._begun
            if not self._finished:
                self._finished = True
                self._lines.put(None)
        if begun and self._thread is not threading.current_thread():  # it is, where a log handler stops the controller
            # No join: it may be just about to start.
            while (left := min(until, self._line_since + LINE_SECONDS) - time.monotonic()) > 0:
                if self._written.wait(left):
                    break

    def _say(self, line: Line) -> None:
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
            except RuntimeError:  # the interpreter ends, or there are no more threads: then it is written here
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
"""The most that the library's threads get to end once no reconciler runs any more; real seconds. They need
milliseconds; one that asks a name server may need longer."""

SOURCE_SECONDS = 0.06
"""The same for threads of trigger sources, all together: a queue is looked at that often, any other source may block
for ever."""

LAST_WORDS_SECONDS = 1.0
"""The least time that log handlers get for the last lines."""

NAMED_RUNS = 10
"""Runs that are named at the beginning of the wait; the others are counted."""


class Ending:
    """The end of one life of a controller. Safe to use from any thread."""

    def __init__(self, name: str, shutdown: Shutdown, runner: Runner, clock: Clock, words: LastWords, *,
                 threads: Callable[[], Iterable[threading.Thread]], sources: Callable[[], Iterable[threading.Thread]],
                 after_runs: Sequence[Callable[[float], object]], release: Callable[[int], None]) -> None:
        """`threads` of the library and of user's `sources`. `after_runs` are called with the seconds that are left when
        no run goes on any more, `release` with the number of stuck runs when everything has ended."""
        self._shutdown = shutdown
        self._runner = runner
        self._clock = clock
        self._words = words
        self._threads = threads
        self._sources = sources
        self._after_runs = after_runs
        self._release = release
        self._runs_over = threading.Event()
        self._settled = threading.Event()
        self._claims = threading.Lock(), threading.Lock()
        """Of the part that is about runs, and of the rest."""
        self._stuck: dict[int, Run] = {}
        self._thread: threading.Thread = Thread(target=self._work, name=f"{name} ending", daemon=True)
        self.stuck: list[ObjectRef] = []
        """The keys whose runs did not end. Complete once the runs are over."""

    def begin(self) -> None:
        """Draining has begun. Does not block."""
        try:
            self._thread.start()
        except RuntimeError:
            self._thread = threading.current_thread()  # `wait` does it

    @property
    def is_settled(self) -> bool:
        """Whether the end has come to its end: nothing moves any more but runs that are stuck."""
        return self._settled.is_set()

    def wait(self) -> list[ObjectRef]:
        """Block until it is settled, which the grace period bounds, and for a moment for the last lines; the stuck
        keys."""
        if self._is_unattended:
            self._work()
        _await(self._settled)
        left = (self._shutdown.give_up_at or 0.0) - self._clock.monotonic()
        self._words.finish(time.monotonic() + max(LAST_WORDS_SECONDS, min(left, JOIN_SECONDS)))
        return self.stuck

    def wait_runs(self) -> list[ObjectRef]:
        """Block until no run goes on that is not stuck, which the grace period bounds; the stuck keys."""
        if self._is_unattended:
            self._end_runs()
        _await(self._runs_over)
        return self.stuck

    @property
    def _is_unattended(self) -> bool:
        return self._thread is threading.current_thread() or not self._thread.is_alive()

    def _work(self) -> None:
        self._end_runs()
        if not self._claims[1].acquire(blocking=False):
            return
        try:
            with self._words.taken_down():
                self._end_rest()
        finally:
            self._settled.set()
            self._words.finish(0.0)  # its thread ends, though nothing may wait for it

    def _end_runs(self) -> None:
        if not self._claims[0].acquire(blocking=False):
            _await(self._runs_over)
            return
        try:
            with self._words.taken_down():
                self._see_runs_through()
        finally:
            self._runs_over.set()

    def _see_runs_through(self) -> None:
        shutdown, runner = self._shutdown, self._runner
        if not runner.wait_idle(lambda: shutdown.deadline or 0.0):
            shutdown.abort("the grace period is over")
            if not runner.wait_idle(lambda: shutdown.cut_at or 0.0):
                shutdown.cut.set("the grace period is over")
                runner.wait_idle(lambda: shutdown.give_up_at or 0.0)
        shutdown.abort("the controller has ended")  # for threads of users that look at `ctx.stop`
        self._stuck = {run.thread_id: run for run in runner.running()}
        self.stuck = [run.request.ref for run in self._stuck.values()]

    def _end_rest(self) -> None:
        shutdown, stuck = self._shutdown, self._stuck
        # After the runs, which may still have something to tell, and before the program can close the client.
        for close in self._after_runs:
            close(max(0.0, (shutdown.give_up_at or 0.0) - self._clock.monotonic()))
        self._join([thread for thread in self._threads() if thread.ident not in stuck], JOIN_SECONDS)
        self._join(self._sources(), SOURCE_SECONDS)
        self._report(stuck)
        self._release(len(stuck))

    def _join(self, threads: Iterable[threading.Thread], limit: float) -> None:
        # Real time, whatever the clock is: what is waited for here is the operating system.
        deadline = time.monotonic() + limit
        for thread in threads:
            if thread.ident is not None and thread is not threading.current_thread():  # it was started
                thread.join(max(0.0, deadline - time.monotonic()))

    def _report(self, stuck: dict[int, Run]) -> None:
        for thread_id, run in stuck.items():
            self._words.error("the reconciler of %s does not end; its stack:\n%s", run.request.ref,
                              stack_of(thread_id))
        others = [thread for thread in self._threads() if thread.ident not in stuck and _lives(thread)]
        for thread in others:
            self._words.error("thread %r does not end; its stack:\n%s", thread.name, stack_of(thread.ident))
        for thread in self._sources():
            if _lives(thread):
                self._words.info("thread %r is not waited for: it blocks in a trigger source of the program",
                                 thread.name)
        count = len(stuck) + len(others)
        self._words.info("stopped%s", f"; stuck: {count}" if count else "")


def _await(event: threading.Event) -> None:
    # In pieces, so that a signal which comes just before the wait is seen.
    while not event.wait(MAIN_THREAD_WAIT):
        pass


def _lives(thread: threading.Thread) -> bool:
    return thread.is_alive() and thread.ident is not None and thread is not threading.current_thread()


def what_is_waited_for(runs: list[Run], shutdown: Shutdown, clock: Clock) -> str:
    """For people, at the beginning of the end: which runs, and until when."""
    if not runs:
        return "nothing is running"
    left = max(0.0, (shutdown.give_up_at or 0.0) - clock.monotonic())
    named = ", ".join(str(run.request.ref) for run in runs[:NAMED_RUNS])
    more = f" and {len(runs) - NAMED_RUNS} more" if len(runs) > NAMED_RUNS else ""
    try:
        until = f"until {(clock.now() + timedelta(seconds=left)).astimezone():%H:%M:%S} ({left:.0f} s)"
    except OverflowError:
        until = "without a limit"
    return f"waits {until} for {len(runs)} run{'s' if len(runs) > 1 else ''}: {named}{more}"


class Threads:
    """The threads of a controller, all daemons. Safe to use from any thread."""

    def __init__(self, name: str, workers: Sequence[threading.Thread], runs: Callable[[], list[Run]],
                 failed: Callable[[str, BaseException], None], shares: Callable[[], Sequence[Share]]) -> None:
        """`name` of the controller; `workers` are its own that others made. `runs` are those in progress, in whatever
        thread. `failed(what, error)` hears of what ends a thread; the controller must not go on half alive. `shares` of
        watches, whose threads are its own once nobody else uses them."""
        self._name = name
        self._workers = workers
        self._runs = runs
        self._failed = failed
        self._shares = shares
        self._others: list[threading.Thread] = []
        self.sources: list[threading.Thread] = []
        """In which user code may block for ever."""

    @property
    def own(self) -> list[threading.Thread]:
        """Those that end soon once they are to; those that have ended and those that were not started included."""
        return [*self._others, *self._watching(lambda share: share.ends), *self._workers]

    def add(self, what: str, body: Callable[[], object], *, source: bool = False) -> threading.Thread:
        """One more, which is not started."""
        def run() -> None:
            try:
                body()
            except BaseException as error:  # noqa: BLE001 - whatever it is, somebody has to hear of it
                self._failed(what, error)

        thread = Thread(target=run, name=f"{self._name} {what}", daemon=True)
        (self.sources if source else self._others).append(thread)
        return thread

    def start(self) -> None:
        """Start all. Raises what Python does when there can be no more."""
        self.watch(self._shares())
        for thread in (*self._others, *self._workers, *self.sources):
            thread.start()

    def watch(self, shares: Sequence[Share]) -> None:
        """Have a thread for each of these watches, unless another user has started it."""
        for share in shares:
            share.start()

    def include(self, thread: threading.Thread) -> bool:
        """Whether `thread` is one of them, that of a watch with other users included, or in a run: with a pool of the
        user's, that is in a thread of theirs."""
        mine = (*self.own, *self.sources, *self._watching(lambda _: True))
        return thread in mine or any(run.thread_id == thread.ident for run in self._runs())

    def still_running(self) -> list[tuple[str, int]]:
        """Which of the library's own have not ended: the reconciler of a key, or a thread by its name, and the id."""
        keys = {run.thread_id: f"the reconciler of {run.request.ref}" for run in self._runs()}
        mine = [(f"thread {thread.name!r}", thread.ident) for thread in self.own
                if thread.ident is not None and thread.is_alive() and thread.ident not in keys]
        return [*((what, number) for number, what in keys.items()), *mine]

    def _watching(self, wanted: Callable[[Share], bool]) -> list[threading.Thread]:
        return [share.thread for share in self._shares() if share.thread is not None and wanted(share)]
