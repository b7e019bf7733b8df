"""Who runs the work: threads of our own, a pool of the user's, or a simulation.

Work is a generator. Each `yield` is a point at which another thread could be scheduled, so a simulation that steps many
of them in a seeded order sees the interleavings that threads would produce; threads simply run it to its end.

The default is not `concurrent.futures.ThreadPoolExecutor`: Python joins that one's threads when the interpreter exits,
so that a single reconciler which never returns would keep the process for ever. Our threads are daemons; a graceful end
is the business of `Running.stop`, which also happens when the program ends without it. A pool that the user passes is
used as it is (`PoolExecutor`); then all this holds for its threads.
"""
from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Executor as Pool
from concurrent.futures import Future
from contextvars import Context
from inspect import GEN_CREATED, getgeneratorstate
from queue import SimpleQueue
from typing import Any, Protocol

from kubectl_runtime.core.base.errors import RequestError
from kubectl_runtime.core.base.guard import guarded_logger
from kubectl_runtime.core.base.interpreter import Thread
from kubectl_runtime.runtime.usercode import described

log = guarded_logger(__name__)

Work = Generator[None, None, None]

_ELSEWHERE = frozenset(("ProcessPoolExecutor", "InterpreterPoolExecutor"))
"""Names, since the first takes long to import and the second came with Python 3.14."""


class Executor(Protocol):
    """Takes work; never blocks, never runs it in the calling thread."""

    one_run: bool
    """Whether each submitted work does one run only, so that others who share the threads get their turn."""

    def submit(self, work: Work) -> None:
        """Have `work` run to its end, some time."""


class ThreadExecutor:
    """A fixed number of daemon threads over one queue. `submit` is safe from any thread.

    An exception that another thread sets in one of them (a watchdog, a debugger) comes when the thread next wakes, with
    work in its hand. It costs neither the thread nor the work.
    """

    one_run = False

    def __init__(self, size: int, name: str, on_bug: Callable[[BaseException], None]) -> None:
        """`size` threads called `name` plus their number. `on_bug` hears of an exception out of the work; the thread
        goes on.

        The threads are not started: the owner starts `threads`, and joins them after `close`.
        """
        self._work: SimpleQueue[Work | None] = SimpleQueue()
        self._unbegun: dict[Work, None] = {}
        """What was submitted and no thread has begun."""
        self._closed = False
        self._on_bug = on_bug
        self.threads = [Thread(target=self._run, name=f"{name} {number}", daemon=True)
                        for number in range(1, size + 1)]

    def submit(self, work: Work) -> None:
        """Have `work` run in one of the threads. Does not block."""
        self._unbegun[work] = None
        self._work.put(work)

    def close(self) -> None:
        """Let each thread end once it has nothing to do. Does not wait."""
        self._closed = True
        for _ in self.threads:
            self._work.put(None)

    def _run(self) -> None:
        interrupted = False
        while True:
            try:
                if interrupted:  # what it had taken from the queue is not there any more
                    for work in list(self._unbegun):
                        self._perform(work)
                    interrupted = False
                # Blocks without a deadline: `close`, which the stop token's callback calls, ends it.
                while (taken := self._work.get()) is not None:
                    self._perform(taken)
                return
            except BaseException as error:
                interrupted = True
                if self._closed:  # it may have been told to end
                    self._work.put(None)
                log.error("thread %r was interrupted from outside by %s; it goes on",
                          threading.current_thread().name, described(error), exc_info=error)

    def _perform(self, work: Work) -> None:
        """Do `work`, unless another thread has begun it."""
        try:
            if self._unbegun.pop(work, self) is self:
                return
            for _ in work:
                pass
        except BaseException as error:
            if getgeneratorstate(work) == GEN_CREATED:
                self._unbegun[work] = None
                raise
            self._on_bug(error)  # a defect of the library; it must reach the supervisor


class PoolExecutor:
    """A pool of threads that the user passed, which others may use as well. `submit` is safe from any thread.

    It is never shut down here. At `close`, what has not begun is cancelled; what runs goes on.
    """

    one_run = True
    threads: Sequence[threading.Thread] = ()
    """None are ours to start or to join."""

    def __init__(self, pool: Pool, on_bug: Callable[[BaseException], None]) -> None:
        """`on_bug` hears of an exception out of the work. Raises RequestError for a pool without threads."""
        check_pool(pool)
        self._pool = pool
        self._on_bug = on_bug
        self._lock = threading.Lock()
        self._waiting: dict[Future[None], _Begun] = {}
        self._closing = False

    def submit(self, work: Work) -> None:
        """Have `work` run in the pool. Raises what the pool does: RuntimeError when it has been shut down."""
        begun = _Begun(work)
        # A thread that the pool begins for it may keep the context of this moment.
        future = Context().run(self._pool.submit, begun.run)
        with self._lock:
            self._waiting[future] = begun
        future.add_done_callback(self._done)

    def close(self) -> None:
        """Cancel what has not begun. To be called when there is nothing left to run. Does not wait."""
        with self._lock:
            self._closing = True
            waiting = list(self._waiting)
        for future in waiting:
            future.cancel()

    def _done(self, future: Future[None]) -> None:
        with self._lock:
            begun = self._waiting.pop(future)
        error = None if future.cancelled() else future.exception()
        if error is None and not begun.begun and not self._closing:
            error = RuntimeError("somebody else cancelled a run in the executor of a running controller")
        if error is not None:
            self._on_bug(error)  # which ends the controller, so nothing new is begun below
        if not begun.begun:
            for _ in begun.work:  # counted as a worker: it has to look for work, find none and go home
                pass


class _Begun:
    """Work, and whether it has begun."""

    __slots__ = ("begun", "work")

    def __init__(self, work: Work) -> None:
        self.work = work
        self.begun = False

    def run(self) -> None:
        self.begun = True
        for _ in self.work:
            pass


def executor_for(pool: Pool | None, size: int, name: str,
                 on_bug: Callable[[BaseException], None]) -> ThreadExecutor | PoolExecutor:
    """What runs in the user's `pool`, or in `size` threads of our own without one. Raises as `PoolExecutor`."""
    return ThreadExecutor(size, name, on_bug) if pool is None else PoolExecutor(pool, on_bug)


def check_pool(pool: Any) -> None:
    """Raise RequestError for anything but a pool of threads of this interpreter."""
    if any(base.__name__ in _ELSEWHERE for base in type(pool).__mro__):
        raise RequestError(f"executor: {type(pool).__name__} runs its work in other processes or interpreters, where "
                           "the stores, the client and the context do not exist; pass a ThreadPoolExecutor")
    if not isinstance(pool, Pool):
        raise RequestError("executor is a concurrent.futures.Executor with threads, such as ThreadPoolExecutor(8), "
                           f"not {pool!r}")
