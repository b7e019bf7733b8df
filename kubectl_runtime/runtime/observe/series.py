"""The series of controllers and queues, of clients and elections, of watches and stores, and of webhook servers.

- Controllers: as controller-runtime 0.25 has them. `result` is success, error, requeue_after or requeue (always 0 here,
  since a reconciler names a time). A terminal error counts as an error too, a missing object as a success, and a
  skipped run (the version still cannot be decoded) not at all. In `workqueue_*`, `name` and `controller` are both the
  controller's name, and `priority` is empty.
- Clients and elections: as client-go has them. `code` is the status, or `<error>` without an answer; `verb` is the HTTP
  method in `rest_client_*`, and Kubernetes' verb in `kubectl_runtime_*`. The labels are known only when an event
  occurs.
- Watches and stores: `watch` is the name in logs, such as `pods in namespace a`. If two watches have the same name,
  their counters add up, and gauges show the last change.
- Webhooks: as controller-runtime has them, except panics: an exception of a handler is logged and denies the request.
  `code` is the HTTP status, which is 200 for a denied request.

Series with known labels exist, at 0, from the start of their controller, watch or server on, so that `rate()` and
alerts work from the first scrape. They stay after its end until several others have ended.
"""
from __future__ import annotations

import threading
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Iterator
from functools import partial
from operator import itemgetter

import msgspec

from kubectl_runtime.core.base.errors import RequestTimeout, error_behind
from kubectl_runtime.core.base.observer import RunResult
from kubectl_runtime.core.base.plain import Key
from kubectl_runtime.core.scope import current_trace
from kubectl_runtime.runtime.observe.families import (
    BACKOFF,
    RECONCILE_TIME,
    REQUEST,
    RUN,
    WORK_QUEUE,
    Family,
    Histogram,
    Row,
    counter,
    gauge,
    histogram,
)

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
ADDS = counter("workqueue_adds_total", QUEUE, "Requests to run a key: triggers, requeues and retries, including those "
               "for a key that was scheduled already.")
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
READ_CHANGES = counter("kubectl_runtime_read_changes_total", "controller",
                       "Changes of objects that runs have read; each triggered its readers.")
STUCK = counter("kubectl_runtime_stuck_runs_total", "controller", "Runs that had not ended at the end of shutdown.")

CONTROLLER_FAMILIES = (RECONCILES, ERRORS, TERMINAL, PANICS, TIMEOUTS, CONCURRENCY, ACTIVE, TIME, DEPTH, ADDS, WAITED,
                       WORKED, UNFINISHED, LONGEST, RETRIES, UP, SKIPPED, DELAYS, DROPPED, READ_CHANGES, STUCK)

_COUNTED_AS = {RunResult.SUCCESS: "success", RunResult.GONE: "success", RunResult.REQUEUE_AFTER: "requeue_after",
               RunResult.ERROR: "error", RunResult.TERMINAL_ERROR: "error"}


MANY = 500
"""Ended runs that wait to be counted: 0.1 MB, and a tenth of a millisecond of counting."""

_Depth = tuple[float, int]
"""When the queue was looked at, and how many keys were due."""


class _Run(msgspec.Struct, gc=False):
    """One run: an object that the garbage collector ignores, as there are hundreds at a time."""

    at: float
    """When it began."""
    waited: float | None
    """How long its key was due before that; None for a run that began before the fork of this process."""
    depth: int
    """How many keys were still due then."""
    result: RunResult = RunResult.SUCCESS
    seconds: float = 0.0
    traced: str = ""
    panic: bool = False
    timeout: bool = False
    counted: bool = False


class ControllerSeries:
    """The counts of one controller. Safe to use from any thread.

    A run takes no lock: its data is kept until a scrape or every `MANY`-th run counts it, which costs a quarter of
    counting each run. A run stays in `_running` until it is in `_ended`, and a moment longer; a flag then shows whether
    it was counted, so that a scrape counts it once.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.lock = threading.Lock()
        self.results = {"success": 0, "error": 0, "requeue": 0, "requeue_after": 0}
        self.terminal = self.panics = self.timeouts = self.skipped = 0
        self.waited, self.took, self.delays = Histogram(WORK_QUEUE), Histogram(RUN), Histogram(BACKOFF)
        self.read_changes = 0
        self.adds = self.retries = self.dropped = self.stuck = self.lives = self.concurrency = 0
        self._running: dict[Key, _Run] = {}
        self._ended: deque[_Run] = deque()
        self._depth: _Depth = (float("-inf"), 0)

    def started(self, concurrency: int) -> None:
        """The controller has started, with this concurrency."""
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
        """The shutdown has dropped this many due keys."""
        with self.lock:
            self._count()
            self._depth = self._depth[0], 0
            self.dropped += keys

    def read_changed(self) -> None:
        """An object that runs have read has changed."""
        with self.lock:
            self.read_changes += 1

    def retry(self, delay: float) -> None:
        """A failed key is to run again after `delay` seconds."""
        with self.lock:
            self.adds += 1
            self.retries += 1
            self.delays.add(delay)

    # As in `Observer`, without the controller's name

    def keys_triggered(self, requests: int, depth: int, now: float) -> None:
        """The queue got this many requests, and has `depth` due keys now."""
        with self.lock:
            self.adds += requests
            if now >= self._depth[0]:  # calls may overtake each other
                self._depth = now, depth

    def run_started(self, key: Key, reason: str, waited: float, depth: int, now: float) -> None:  # noqa: ARG002
        """A run of `key` began at `now`, `waited` seconds after the key was due, and left `depth` due keys."""
        self._running[key] = _Run(now, waited, depth)

    def run_ended(self, key: Key, result: RunResult, seconds: float, error: BaseException | None) -> None:
        """The run of `key` has ended after this many seconds, with this result and error."""
        running, ended, trace = self._running, self._ended, current_trace()
        run = running.get(key) or _Run(float("-inf"), None, 0)
        run.result, run.seconds = result, seconds
        # The observer that traces the run may have ended the trace before this call.
        if trace is not None and trace.sampled and trace.run == (self.name, key):
            run.traced = trace.trace_id
        if error is not None:
            run.panic = not isinstance(error, Exception) or isinstance(error, MemoryError)
            run.timeout = isinstance(error_behind(error), TimeoutError | RequestTimeout)
        ended.append(run)
        running.pop(key, None)
        if len(ended) >= MANY and self.lock.acquire(blocking=False):
            try:
                self._count()
            finally:
                self.lock.release()

    def renew(self) -> None:
        """Start over in the child of a fork: a parent's thread may have held the lock, and the runs in progress are the
        parent's."""
        self.lock = threading.Lock()
        self._running.clear()

    def _count(self) -> None:
        """Count the ended runs. The lock must be held."""
        ended = [self._ended.popleft() for _ in range(len(self._ended))]  # others may be added in between
        for run in ended:
            run.counted = True
            if run.at >= self._depth[0]:
                self._depth = run.at, run.depth
        self.waited.add_all([run.waited for run in ended if run.waited is not None])
        skipped = RunResult.SKIPPED
        worked = [run for run in ended if run.result is not skipped]
        self.skipped += len(ended) - len(worked)
        self.took.add_all([run.seconds for run in worked])
        for result, count in Counter([run.result for run in worked]).items():
            self.results[_COUNTED_AS[result]] += count
            if result is RunResult.REQUEUE_AFTER:
                self.adds += count
            elif result is RunResult.TERMINAL_ERROR:
                self.terminal += count
        for run in worked:
            if run.traced:
                self.took.show(run.seconds, run.traced)
            self.panics += run.panic
            self.timeouts += run.timeout

    def values(self, now: float) -> Iterator[tuple[Family, Row]]:
        """All series with their present values."""
        name = self.name
        with self.lock:
            running = [*self._running.copy().values()]  # before the ended ones are counted: none is missed
            self._count()
            running = [run for run in running if not run.counted]
            results = dict(self.results)
            waited, took, delays = self.waited.copy(), self.took.copy(), self.delays.copy()
            plain = {TERMINAL: self.terminal, PANICS: self.panics, TIMEOUTS: self.timeouts, SKIPPED: self.skipped,
                     CONCURRENCY: self.concurrency, UP: self.lives, DROPPED: self.dropped, STUCK: self.stuck,
                     READ_CHANGES: self.read_changes}
            queue = {ADDS: self.adds, RETRIES: self.retries}
            looks = (self._depth, *((run.at, run.depth) for run in running))
            depth = max(reversed(looks), key=itemgetter(0))[1]  # the last of those with the same time
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


CLIENT_REQUESTS = counter("rest_client_requests_total", "code method host", "Attempts at requests, by their answer.")
DURATION = histogram("rest_client_request_duration_seconds", "verb host", REQUEST,
                     "How long attempts took; for a watch, until its head came.")
CLIENT_RETRIES = counter("rest_client_request_retries_total", "code verb host",
                         "Attempts that were followed by another one.")
LEADING = gauge("leader_election_master_status", "name", "1 if this process leads, else 0.")
WRITES = counter("kubectl_runtime_objects_written_total", "resource verb", "Writes that the server answered.")
CREDENTIALS = counter("kubectl_runtime_credential_refreshes_total", "host result",
                      "Calls that had to get new credentials: success or error.")

CLIENT_FAMILIES = (CLIENT_REQUESTS, DURATION, CLIENT_RETRIES, LEADING, WRITES, CREDENTIALS)

METHODS = {"get": "GET", "list": "GET", "watch": "GET", "create": "POST", "replace": "PUT", "patch": "PATCH",
           "apply": "PATCH", "delete": "DELETE", "deletecollection": "DELETE"}


class ClientSeries:
    """The counts of all clients together. Safe to use from any thread."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self._counts: dict[Family, dict[tuple[str, ...], float]] = defaultdict(lambda: defaultdict(float))
        self._durations: dict[tuple[str, ...], Histogram] = defaultdict(partial(Histogram, REQUEST))

    def count(self, family: Family, *labels: str) -> None:
        """Count one more in the series of `family` with these labels."""
        with self.lock:
            self._counts[family][labels] += 1

    def set(self, family: Family, *labels: str, to: float) -> None:
        """Set the series of `family` with these labels `to` a number."""
        with self.lock:
            self._counts[family][labels] = to

    def forget(self, family: Family, *labels: str) -> None:
        """Stop exporting the series of `family` with these labels."""
        with self.lock:
            self._counts[family].pop(labels, None)

    def attempted(self, host: str, method: str, code: int, seconds: float, trace_id: str = "") -> None:
        """Count an attempt at a request, which took this many `seconds` and was answered with `code` (0: not answered).
        """
        with self.lock:
            self._counts[CLIENT_REQUESTS][code_of(code), method, host] += 1
            self._durations[method, host].add(seconds, trace_id)

    def values(self) -> Iterator[tuple[Family, Row]]:
        """All series with their present values."""
        with self.lock:
            counts = {family: dict(rows) for family, rows in self._counts.items()}
            durations = {labels: spread.copy() for labels, spread in self._durations.items()}
        for family, rows in counts.items():
            for labels, value in rows.items():
                yield family, (labels, value)
        for labels, spread in durations.items():
            yield DURATION, (labels, spread)


def code_of(code: int) -> str:
    """The code of an answer as client-go's metrics write it: `<error>` when there was no answer."""
    return str(code) if code else "<error>"


PHASES = ("listing", "watching", "waiting", "stopped")

STATE = gauge("kubectl_runtime_watch_state", "watch state",
              "1 for what the watch does: it is listing, watching, waiting (after a failure) or stopped.")
RELISTS = counter("kubectl_runtime_watch_relists_total", "watch", "Complete lists after the first one.")
FAILURES = counter("kubectl_runtime_watch_failures_total", "watch", "Failed attempts to list or watch; while the "
                   "server is away, those of the one watch that tries for all.")
IN_A_ROW = gauge("kubectl_runtime_watch_consecutive_failures", "watch", "Failures since the watch last worked.")
DELAY = gauge("kubectl_runtime_watch_backoff_seconds", "watch", "How long it waits after a failure; 0 if it does not.")
EVENTS = counter("kubectl_runtime_watch_events_total", "watch", "Events and bookmarks that arrived on the open watch.")
AGE = gauge("kubectl_runtime_watch_last_frame_age_seconds", "watch",
            "Seconds since the last frame; a large value means that the watch is broken (0 once it has stopped).")
LIST_TIME = gauge("kubectl_runtime_watch_last_list_seconds", "watch", "How long the last complete list took.")
OBJECTS = gauge("kubectl_runtime_store_objects", "watch", "Objects in the store; 0 once the watch has stopped.")
SIZE = gauge("kubectl_runtime_store_bytes", "watch", "Bytes of JSON in the store.")

WATCH_FAMILIES = (STATE, RELISTS, FAILURES, IN_A_ROW, DELAY, EVENTS, AGE, LIST_TIME, OBJECTS, SIZE)


class WatchSeries:
    """The counts of one watch. Safe to use from any thread."""

    def __init__(self, now: float) -> None:
        self.lock = threading.Lock()
        self.phase, self.heard = "listing", now
        self.relists = self.failures = self.in_a_row = self.events = self.objects = self.size = 0
        self.delay = self.list_time = 0.0

    def phase_changed(self, phase: str, now: float) -> None:
        """The watch has begun to be in this phase."""
        with self.lock:
            if self.phase == "stopped":  # it was started again
                self.heard = now
            self.phase = phase
            if phase != "waiting":
                self.delay = 0.0
            if phase == "stopped":  # it may have been given back, as of a shard that is another replica's
                self.objects = self.size = 0
            if phase == "watching":  # its answer came
                self.heard, self.in_a_row = now, 0

    def failed(self, in_a_row: int, delay: float) -> None:
        """The watch failed, for the `in_a_row`-th time in a row, and waits `delay` seconds."""
        with self.lock:
            self.failures += 1
            self.in_a_row, self.delay = in_a_row, delay

    def listed(self, objects: int, relists: int, seconds: float, now: float) -> None:
        """A list of this many objects is complete, after this many seconds; `relists` were complete before it."""
        with self.lock:
            self.objects, self.list_time, self.heard, self.in_a_row = objects, seconds, now, 0
            self.relists += relists > 0

    def frame(self, events: int, now: float) -> None:
        """This many events arrived at `now`."""
        with self.lock:
            self.events += events
            self.heard = now

    def values(self, name: str, now: float) -> Iterator[tuple[Family, Row]]:
        """All series of the watch `name` with their present values."""
        with self.lock:
            phase = self.phase
            numbers = {RELISTS: self.relists, FAILURES: self.failures, IN_A_ROW: self.in_a_row, DELAY: self.delay,
                       EVENTS: self.events, LIST_TIME: self.list_time, OBJECTS: self.objects, SIZE: self.size,
                       AGE: 0.0 if phase == "stopped" else max(0.0, now - self.heard)}
        for known in PHASES:
            yield STATE, ((name, known), float(known == phase))
        for family, number in numbers.items():
            yield family, ((name,), number)


LATENCY_BOUNDS = (.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10)
"""Prometheus's default buckets, which controller-runtime uses."""

WEBHOOK_REQUESTS = counter("controller_runtime_webhook_requests_total", "webhook code",
                   "Requests to webhooks, by the HTTP status of the answer.")
LATENCY = histogram("controller_runtime_webhook_latency_seconds", "webhook", LATENCY_BOUNDS,
                    "How long webhooks took to answer.")
IN_FLIGHT = gauge("controller_runtime_webhook_requests_in_flight", "webhook",
                  "Requests that webhooks are answering at this moment.")

WEBHOOK_FAMILIES = (WEBHOOK_REQUESTS, LATENCY, IN_FLIGHT)


class WebhookSeries:
    """The counts of all webhooks together. Safe to use from any thread."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self._counts: dict[tuple[str, int], int] = {}
        self._latencies: dict[str, Histogram] = {}
        self.in_flight: dict[str, int] = {}
        self._servers: Counter[str] = Counter()

    def serve(self, webhooks: Iterable[str]) -> None:
        """A server of these webhooks has started."""
        with self.lock:
            for webhook in webhooks:
                self._add(webhook)
                self._servers[webhook] += 1

    def end(self, webhooks: Iterable[str]) -> list[str]:
        """A server of these webhooks has stopped. Returns those that no other server has."""
        with self.lock:
            self._servers.subtract(webhooks)
            return [webhook for webhook in webhooks if self._servers[webhook] <= 0]

    def forget(self, webhook: str) -> None:
        """Stop exporting the series of `webhook`."""
        with self.lock:
            self._servers.pop(webhook, None)
            self.in_flight.pop(webhook, None)
            self._latencies.pop(webhook, None)
            self._counts = {key: number for key, number in self._counts.items() if key[0] != webhook}

    def began(self, webhook: str) -> None:
        """A request to this webhook is being answered."""
        with self.lock:
            self._add(webhook)
            self.in_flight[webhook] += 1

    def answered(self, webhook: str, code: int, seconds: float) -> None:
        """It was answered after this many seconds, with this HTTP status."""
        with self.lock:
            if webhook not in self.in_flight:  # forgotten, since its server has stopped
                return
            self.in_flight[webhook] -= 1
            self._counts[webhook, code] = self._counts.get((webhook, code), 0) + 1
            self._latencies[webhook].add(seconds)

    def renew(self) -> None:
        """Start over in the child of a fork: the requests in progress are the parent's."""
        self.lock = threading.Lock()
        self.in_flight = dict.fromkeys(self.in_flight, 0)

    def values(self) -> Iterator[tuple[Family, Row]]:
        """All series with their present values."""
        with self.lock:
            counts, in_flight = dict(self._counts), dict(self.in_flight)
            latencies = {webhook: spread.copy() for webhook, spread in self._latencies.items()}
        for (webhook, code), number in counts.items():
            yield WEBHOOK_REQUESTS, ((webhook, str(code)), number)
        for webhook, current in in_flight.items():
            yield IN_FLIGHT, ((webhook,), current)
        for webhook, spread in latencies.items():
            yield LATENCY, ((webhook,), spread)

    def _add(self, webhook: str) -> None:
        if webhook not in self.in_flight:
            self.in_flight[webhook] = 0
            self._latencies[webhook] = Histogram(LATENCY_BOUNDS)
            self._counts |= {(webhook, 200): 0, (webhook, 500): 0}
