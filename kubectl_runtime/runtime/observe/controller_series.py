"""The series of a controller and of its queue: controller-runtime's and client-go's, and the library's own.

    controller_runtime_*   as controller-runtime 0.25 has them. `result` is success, error, requeue (never: a reconciler
                           names a time) or requeue_after; a terminal error counts as an error too, an object that was
                           gone as a success, what was skipped (still a version that cannot be decoded) as nothing
    workqueue_*            as controller-runtime registers client-go's: `name` and `controller` are both the
                           controller's. `priority` is empty, as with a queue that does not split its depth by it
    kubectl_runtime_*      the library's own

Each exists, at 0, from the start of its controller on, so that `rate()` and alerts work from the first scrape. All stay
when the controller has stopped; one that starts again under its name counts on.
"""
from __future__ import annotations

import threading
from collections.abc import Iterator
from copy import deepcopy

from kubectl_runtime.core.base.errors import RequestTimeout
from kubectl_runtime.core.base.keys import Key
from kubectl_runtime.core.base.observer import RunResult
from kubectl_runtime.runtime.observe.families import Family, Row, counter, gauge, histogram
from kubectl_runtime.runtime.observe.histogram import BACKOFF, RECONCILE_TIME, RUN, WORK_QUEUE, Histogram

QUEUE = "name controller"

RECONCILES = counter("controller_runtime_reconcile_total", "controller result", "Runs, by how they ended.")
ERRORS = counter("controller_runtime_reconcile_errors_total", "controller", "Runs that failed.")
TERMINAL = counter("controller_runtime_terminal_reconcile_errors_total", "controller",
                   "Runs that failed in a way that retrying cannot help.")
PANICS = counter("controller_runtime_reconcile_panics_total", "controller",
                 "Runs that ended with SystemExit, MemoryError or another error that is no plain mistake.")
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


class ControllerSeries:
    """What is counted of one controller. Safe to use from any thread."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.results = {"success": 0, "error": 0, "requeue": 0, "requeue_after": 0}
        self.terminal = self.panics = self.timeouts = self.skipped = 0
        self.waited, self.took, self.delays = Histogram(WORK_QUEUE), Histogram(RUN), Histogram(BACKOFF)
        self.adds = self.retries = self.dropped = self.stuck = self.lives = self.concurrency = 0
        self.depth, self.depth_at = 0, float("-inf")
        self.running: dict[Key, float] = {}
        """When each run in progress began."""

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

    def triggered(self, requests: int, depth: int, now: float) -> None:
        """So many requests came to the queue, which holds `depth` due keys now."""
        with self.lock:
            self.adds += requests
            if now >= self.depth_at:
                self.depth, self.depth_at = depth, now

    def drop(self, keys: int) -> None:
        """So many due keys will not run, since the shutdown has begun."""
        with self.lock:
            self.dropped += keys
            self.depth = 0

    def retry(self, delay: float) -> None:
        """A failed key is to run again after `delay` seconds."""
        with self.lock:
            self.adds += 1
            self.retries += 1
            self.delays.add(delay)

    def run_started(self, key: Key, waited: float, depth: int, now: float) -> None:
        """A run of `key` began at `now`, so many seconds after the key was due, and left `depth` due keys."""
        with self.lock:
            self.running[key] = now
            self.waited.add(waited)
            if now >= self.depth_at:
                self.depth, self.depth_at = depth, now

    def run_ended(self, key: Key, result: RunResult, seconds: float, error: BaseException | None,
                  trace_id: str = "") -> None:
        """The run of `key` has ended after so many seconds, with this result and error."""
        with self.lock:
            self.running.pop(key, None)
            if result is _SKIPPED:
                self.skipped += 1
                return
            self.took.add(seconds, trace_id)
            self.results[_COUNTED_AS[result]] += 1
            if result is _REQUEUE_AFTER:
                self.adds += 1
            if error is not None:
                self.terminal += result is _TERMINAL
                self.panics += not isinstance(error, Exception) or isinstance(error, MemoryError)
                self.timeouts += isinstance(error, TimeoutError | RequestTimeout)

    def values(self, name: str, now: float) -> Iterator[tuple[Family, Row]]:
        """All series of the controller `name`, as they are at this moment."""
        with self.lock:  # for a copy only, since runs wait for it
            running, results = list(self.running.values()), dict(self.results)
            waited, took, delays = deepcopy((self.waited, self.took, self.delays))
            plain = {TERMINAL: self.terminal, PANICS: self.panics, TIMEOUTS: self.timeouts, SKIPPED: self.skipped,
                     CONCURRENCY: self.concurrency, UP: self.lives, DROPPED: self.dropped, STUCK: self.stuck}
            queue = {ADDS: self.adds, RETRIES: self.retries}
            depth = self.depth
        ages = [max(0.0, now - began) for began in running]
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
