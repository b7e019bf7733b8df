"""The series of a controller and of its queue: controller-runtime's and client-go's, and the library's own.

    controller_runtime_*   as controller-runtime 0.25 has them. `result` is success, error, requeue (never: a reconciler
                           names a time) or requeue_after; a terminal error counts as an error too, an object that was
                           gone as a success, what was skipped (still a version that cannot be decoded) as nothing
    workqueue_*            as controller-runtime registers client-go's: `name` and `controller` are both the
                           controller's. `priority` is empty, as with a queue that does not split its depth by it
    kubectl_runtime_*      the library's own

Each exists, at 0, from the start of its controller on, so that `rate()` and alerts work from the first scrape. They
stay when the controller has stopped, until several others have; one that starts again under its name then counts on.
"""
from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Iterator
from operator import itemgetter

import msgspec

from kubectl_runtime.core.base.errors import RequestTimeout, reason_of
from kubectl_runtime.core.base.keys import Key
from kubectl_runtime.core.base.observer import RunResult
from kubectl_runtime.runtime.logs import this_trace
from kubectl_runtime.runtime.observe.families import Family, Row, counter, gauge, histogram
from kubectl_runtime.runtime.observe.histogram import BACKOFF, RECONCILE_TIME, RUN, WORK_QUEUE, Histogram

QUEUE = "name controller"

RECONCILES = counter("controller_runtime_reconcile_total", "controller result", "Runs, by how they ended.")
ERRORS = counter("controller_runtime_reconcile_errors_total", "controller", "Runs that failed.")
TERMINAL = counter("controller_runtime_terminal_reconcile_errors_total", "controller",
                   "Runs that failed in a way that retrying cannot help.")
PANICS = counter("controller_runtime_reconcile_panics_total", "controller",
                 "Runs that ended with SystemExit, MemoryError or another error that is not a plain mistake.")
TIMEOUTS = counter("controller_runtime_reconcile_timeouts_total", "controller",
                   "Runs that ended with a timeout, of a call to the server for instance.")
CONCURRENCY = gauge("controller_runtime_max_concurrent_reconciles", "controller", "Runs at once at most.")
ACTIVE = gauge("controller_runtime_active_workers", "controller", "Runs in progress.")
TIME = histogram("controller_runtime_reconcile_time_seconds", "controller", RECONCILE_TIME, "How long runs took.")

DEPTH = gauge("workqueue_depth", f"{QUEUE} priority", "Keys that are due and wait for a free worker.")
ADDS = counter("workqueue_adds_total", QUEUE, "Requests to run a key: triggers, requeues and retries, those that found "
               "the key scheduled already included.")
WAITED = histogram("workqueue_queue_duration_seconds", QUEUE, WORK_QUEUE,
                   "How long keys were due before their run began.")
WORKED = histogram("workqueue_work_duration_seconds", QUEUE, WORK_QUEUE, "How long runs took.")
UNFINISHED = gauge("workqueue_unfinished_work_seconds", QUEUE, "How long the runs in progress take already, together.")
LONGEST = gauge("workqueue_longest_running_processor_seconds", QUEUE,
                "How long the longest run in progress takes already.")
RETRIES = counter("workqueue_retries_total", QUEUE, "Failed runs that are followed by another one.")

UP = gauge("kubectl_runtime_controller_running", "controller", "1 from a controller's start to its end, else 0.")
SKIPPED = counter("kubectl_runtime_reconcile_skipped_total", "controller",
                  "Runs without a call of the reconciler: the object is still the version that cannot be reconciled.")
DELAYS = histogram("kubectl_runtime_retry_backoff_seconds", "controller", BACKOFF,
                   "How long failed keys wait for their retry.")
DROPPED = counter("kubectl_runtime_keys_dropped_total", "controller", "Keys that shutdown kept from running.")
STUCK = counter("kubectl_runtime_stuck_runs_total", "controller", "Runs that had not ended at the end of shutdown.")

FAMILIES = (RECONCILES, ERRORS, TERMINAL, PANICS, TIMEOUTS, CONCURRENCY, ACTIVE, TIME, DEPTH, ADDS, WAITED, WORKED,
            UNFINISHED, LONGEST, RETRIES, UP, SKIPPED, DELAYS, DROPPED, STUCK)

_ERROR, _TERMINAL, _REQUEUE_AFTER, _SKIPPED = (
    RunResult.ERROR, RunResult.TERMINAL_ERROR, RunResult.REQUEUE_AFTER, RunResult.SKIPPED)
_COUNTED_AS = {RunResult.SUCCESS: "success", RunResult.GONE: "success", _REQUEUE_AFTER: "requeue_after",
               _ERROR: "error", _TERMINAL: "error"}


MANY = 500
"""Runs that have ended and are not counted yet: 0.1 MB, and a tenth of a millisecond of counting."""

_Depth = tuple[float, int]
"""When the queue was looked at, and how many keys were due."""


class _Run(msgspec.Struct, gc=False):
    """One run: an object that the garbage collector does not see, as there are hundreds of them at a time."""

    at: float
    """When it began."""
    waited: float | None
    """How long its key was due before that; None for one whose beginning was told to the parent of a fork."""
    depth: int
    """How many keys were still due then."""
    result: RunResult = RunResult.SUCCESS
    seconds: float = 0.0
    traced: str = ""
    panic: bool = False
    timeout: bool = False
    counted: bool = False


class ControllerSeries:
    """What is counted of one controller. Safe to use from any thread.

    A run takes no lock: what is told of it is kept until a scrape counts it, or whoever ends the `MANY`-th; that is a
    quarter of the work of counting each by itself. It stands in `_running` until it stands in `_ended`, and a moment
    longer: then it says whether it was counted, so that a scrape sees it once.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.lock = threading.Lock()
        self.results = {"success": 0, "error": 0, "requeue": 0, "requeue_after": 0}
        self.terminal = self.panics = self.timeouts = self.skipped = 0
        self.waited, self.took, self.delays = Histogram(WORK_QUEUE), Histogram(RUN), Histogram(BACKOFF)
        self.adds = self.retries = self.dropped = self.stuck = self.lives = self.concurrency = 0
        self._running: dict[Key, _Run] = {}
        self._ended: deque[_Run] = deque()
        self._depth: _Depth = (float("-inf"), 0)

    def started(self, concurrency: int) -> None:
        """The controller has begun, with so many workers."""
        with self.lock:
            self.lives += 1
            self.concurrency = concurrency

    def stopped(self, stuck: int) -> None:
        """The controller has ended; `stuck` of its runs had not."""
        with self.lock:
            self.lives -= 1
            self.stuck += stuck

    @property
    def is_running(self) -> bool:
        """Whether a controller of this name runs."""
        return self.lives > 0

    def drop(self, keys: int) -> None:
        """So many due keys will not run, since the shutdown has begun."""
        with self.lock:
            self._count()
            self._depth = self._depth[0], 0
            self.dropped += keys

    def retry(self, delay: float) -> None:
        """A failed key is to run again after `delay` seconds."""
        with self.lock:
            self.adds += 1
            self.retries += 1
            self.delays.add(delay)

    # As `Observer` has them, without the controller's name

    def keys_triggered(self, requests: int, depth: int, now: float) -> None:
        """So many requests came to the queue, which holds `depth` due keys now."""
        with self.lock:
            self.adds += requests
            if now >= self._depth[0]:  # calls may overtake each other
                self._depth = now, depth

    def run_started(self, key: Key, reason: str, waited: float, depth: int, now: float) -> None:  # noqa: ARG002
        """A run of `key` began at `now`, `waited` seconds after the key was due, and left `depth` due keys."""
        self._running[key] = _Run(now, waited, depth)

    def run_ended(self, key: Key, result: RunResult, seconds: float, error: BaseException | None) -> None:
        """The run of `key` has ended after so many seconds, with this result and error."""
        running, ended, trace = self._running, self._ended, this_trace.get()
        run = running.get(key) or _Run(float("-inf"), None, 0)
        run.result, run.seconds = result, seconds
        # Whoever traces the run may have been told of its end before, so that it is over.
        if trace is not None and trace.sampled and trace.run == (self.name, key):
            run.traced = trace.trace_id
        if error is not None:
            run.panic = not isinstance(error, Exception) or isinstance(error, MemoryError)
            run.timeout = isinstance(reason_of(error), TimeoutError | RequestTimeout)
        ended.append(run)
        running.pop(key, None)
        if len(ended) >= MANY and self.lock.acquire(blocking=False):
            try:
                self._count()
            finally:
                self.lock.release()

    def renew(self) -> None:
        """In the child of a fork: a thread of the parent may have held the lock, and the runs in progress are its own.
        """
        self.lock = threading.Lock()
        self._running.clear()

    def _count(self) -> None:
        """Under the lock: count those that have ended."""
        ended = [self._ended.popleft() for _ in range(len(self._ended))]  # meanwhile others may come
        for run in ended:
            run.counted = True
            if run.at >= self._depth[0]:
                self._depth = run.at, run.depth
        self.waited.add_all([run.waited for run in ended if run.waited is not None])
        worked = [run for run in ended if run.result is not _SKIPPED]
        self.skipped += len(ended) - len(worked)
        self.took.add_all([run.seconds for run in worked])
        for result, count in Counter([run.result for run in worked]).items():
            self.results[_COUNTED_AS[result]] += count
            if result is _REQUEUE_AFTER:
                self.adds += count
            elif result is _TERMINAL:
                self.terminal += count
        for run in worked:
            if run.traced:
                self.took.show(run.seconds, run.traced)
            self.panics += run.panic
            self.timeouts += run.timeout

    def values(self, now: float) -> Iterator[tuple[Family, Row]]:
        """All series, as they are at this moment."""
        name = self.name
        with self.lock:
            running = [*self._running.copy().values()]  # before the ended ones are counted: none is missed
            self._count()
            running = [run for run in running if not run.counted]
            results = dict(self.results)
            waited, took, delays = self.waited.copy(), self.took.copy(), self.delays.copy()
            plain = {TERMINAL: self.terminal, PANICS: self.panics, TIMEOUTS: self.timeouts, SKIPPED: self.skipped,
                     CONCURRENCY: self.concurrency, UP: self.lives, DROPPED: self.dropped, STUCK: self.stuck}
            queue = {ADDS: self.adds, RETRIES: self.retries}
            looks = (self._depth, *((run.at, run.depth) for run in running))
            depth = max(reversed(looks), key=itemgetter(0))[1]  # of several of one time the last
        waited.add_all([run.waited for run in running if run.waited is not None])
        ages = [max(0.0, now - run.at) for run in running]
        plain |= {ACTIVE: len(running), ERRORS: results["error"]}
        queue_values: dict[Family, float | Histogram] = {
            **queue, WAITED: waited, WORKED: took, UNFINISHED: sum(ages), LONGEST: max(ages, default=0.0)}
        for result, count in results.items():
            yield RECONCILES, ((name, result), count)
        yield TIME, ((name,), took)
        yield DELAYS, ((name,), delays)
        for family, number in plain.items():
            yield family, ((name,), number)
        for family, value in queue_values.items():
            yield family, ((name, name), value)
        yield DEPTH, ((name, name, ""), depth)
