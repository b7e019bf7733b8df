"""`Counted`: an observer that counts events, as series of controllers and queues, clients and elections, watches and
stores, and webhook servers.

To add a metric, add a row here, and a line in the method of `Counted` that is called for the event. `values` exports
each family in `numbers`, and the dashboard shows it.

- Controllers: as in controller-runtime 0.25. `result` is success, error, requeue_after or requeue (always 0, since an
  `Action` names a time). A terminal error also counts as an error, a missing object as a success. A skipped run (the
  object is still in the version that cannot be decoded) has no `result`. In `workqueue_*`, `name` and `controller` are
  both the controller's name, and `priority` is empty.
- Clients and elections: as in client-go. `code` is the status, or `<error>` without an answer. `verb` is the HTTP
  method in `rest_client_*`, and Kubernetes' verb in `kubectl_runtime_*`. Labels are known only when an event occurs.
- Watches and stores: `watch` is the name in logs, such as `pods in namespace a`. If two watches have the same name,
  their counters add up, and gauges have the last value.
- Webhooks: as in controller-runtime, except panics: an exception of a handler is logged and denies the request. `code`
  is the HTTP status, which is 200 for a denied request.

Series with known labels exist, at 0, from the start of their controller, watch or server, so that `rate()` and alerts
work from the first scrape. The series remain until several more controllers, watches or servers have ended.
"""
from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from itertools import chain
from operator import itemgetter

import msgspec

from kubectl_runtime.core.base.errors import RequestTimeout, error_behind
from kubectl_runtime.core.base.observer import Callback, Observer, RunResult
from kubectl_runtime.core.base.plain import Key
from kubectl_runtime.core.base.threads import Clock
from kubectl_runtime.core.scope import current_trace
from kubectl_runtime.runtime.observe.families import (
    BACKOFF,
    RECONCILE_TIME,
    REQUEST,
    RUN,
    WORK_QUEUE,
    Ended,
    Families,
    Family,
    Histogram,
    Labelled,
    Numbers,
    Row,
)

CONTROLLERS = Families()

QUEUE = "name controller"
"""Label names; the value of both labels is the controller's name."""

RECONCILES = CONTROLLERS.counter("controller_runtime_reconcile_total", "controller result", "Runs, by result.")
ERRORS = CONTROLLERS.counter("controller_runtime_reconcile_errors_total", "controller", "Runs that failed.")
TERMINAL = CONTROLLERS.counter("controller_runtime_terminal_reconcile_errors_total", "controller",
                               "Runs that failed with an error that no retry can cure.")
PANICS = CONTROLLERS.counter("controller_runtime_reconcile_panics_total", "controller",
                             "Runs that ended with SystemExit, MemoryError or another error that is no ordinary "
                             "exception.")
TIMEOUTS = CONTROLLERS.counter("controller_runtime_reconcile_timeouts_total", "controller",
                               "Runs that ended with a timeout, for example of a call to the server.")
CONCURRENCY = CONTROLLERS.gauge("controller_runtime_max_concurrent_reconciles", "controller", "Most runs at once.")
ACTIVE = CONTROLLERS.gauge("controller_runtime_active_workers", "controller", "Runs in progress.")
TIME = CONTROLLERS.histogram("controller_runtime_reconcile_time_seconds", "controller", RECONCILE_TIME,
                             "How long runs took.")

DEPTH = CONTROLLERS.gauge("workqueue_depth", f"{QUEUE} priority", "Keys that are due and wait for a free worker.")
ADDS = CONTROLLERS.counter("workqueue_adds_total", QUEUE,
                           "Requests to run a key: triggers, requeues and retries, including those for a key that was "
                           "already scheduled.")
WAITED = CONTROLLERS.histogram("workqueue_queue_duration_seconds", QUEUE, WORK_QUEUE,
                               "How long keys were due before their run began.")
WORKED = CONTROLLERS.histogram("workqueue_work_duration_seconds", QUEUE, WORK_QUEUE, "How long runs took.")
UNFINISHED = CONTROLLERS.gauge("workqueue_unfinished_work_seconds", QUEUE,
                               "Total time that the runs in progress have taken so far.")
LONGEST = CONTROLLERS.gauge("workqueue_longest_running_processor_seconds", QUEUE,
                            "Time that the longest run in progress has taken so far.")
RETRIES = CONTROLLERS.counter("workqueue_retries_total", QUEUE, "Failed runs that are retried.")

UP = CONTROLLERS.gauge("kubectl_runtime_controller_running", "controller",
                       "1 from a controller's start to its end, else 0.")
SKIPPED = CONTROLLERS.counter("kubectl_runtime_reconcile_skipped_total", "controller",
                              "Runs that did not call the reconciler, because the object is still in the version that "
                              "cannot be reconciled.")
DELAYS = CONTROLLERS.histogram("kubectl_runtime_retry_backoff_seconds", "controller", BACKOFF,
                               "How long failed keys wait for their retry.")
DROPPED = CONTROLLERS.counter("kubectl_runtime_keys_dropped_total", "controller",
                              "Due keys that a shutdown dropped.")
READ_CHANGES = CONTROLLERS.counter("kubectl_runtime_read_changes_total", "controller",
                                   "Changes of objects that runs have read; each triggered its readers.")
STUCK = CONTROLLERS.counter("kubectl_runtime_stuck_runs_total", "controller",
                            "Runs that had not ended at the end of a shutdown.")

_COUNTED_AS = {RunResult.SUCCESS: "success", RunResult.GONE: "success", RunResult.REQUEUE_AFTER: "requeue_after",
               RunResult.ERROR: "error", RunResult.TERMINAL_ERROR: "error"}


MANY = 500
"""The number of ended runs that are counted together: 0.1 MB, and a tenth of a millisecond of counting."""

_Depth = tuple[float, int]
"""When the queue was read, and how many keys were due then."""


class _Run(msgspec.Struct, gc=False):
    """One run. The garbage collector ignores it, because there are hundreds at a time."""

    at: float
    """When the run began."""
    waited: float | None
    """How long the run's key was due before the run began; None for a run that began before the fork of this
    process."""
    depth: int
    """How many keys were still due when the run began."""
    result: RunResult = RunResult.SUCCESS
    seconds: float = 0.0
    traced: str = ""
    panic: bool = False
    timeout: bool = False
    counted: bool = False


class ControllerSeries(Numbers):
    """The counts of one controller. Safe to use from any thread.

    Recording a run takes no lock: ended runs are kept until there are `MANY` of them, or until a scrape, and then
    counted together. This takes a quarter of the time of counting each run separately. A run leaves `_running` a moment
    after it enters `_ended`; a flag shows whether the run was counted, so that a scrape counts it once.
    """

    def __init__(self, name: str) -> None:
        super().__init__(CONTROLLERS)
        self.name = name
        self.results = {"success": 0, "error": 0, "requeue": 0, "requeue_after": 0}
        self.waited, self.took, self.delays = Histogram(WORK_QUEUE), Histogram(RUN), Histogram(BACKOFF)
        self._running: dict[Key, _Run] = {}
        self._ended: deque[_Run] = deque()
        self._depth: _Depth = (float("-inf"), 0)

    def started(self, concurrency: int) -> None:
        """The controller has started, with this concurrency."""
        with self.lock:
            self.numbers[UP] += 1
            self.numbers[CONCURRENCY] = concurrency

    def stopped(self, stuck: int) -> None:
        """The controller has ended; `stuck` of its runs had not ended."""
        with self.lock:
            self.numbers[UP] -= 1
            self.numbers[STUCK] += stuck

    @property
    def is_running(self) -> bool:
        """Whether a controller of this name runs."""
        return self.numbers[UP] > 0

    def drop(self, keys: int) -> None:
        """A shutdown has dropped this many due keys."""
        with self.lock:
            self._count()
            self._depth = self._depth[0], 0
            self.numbers[DROPPED] += keys

    def retry(self, delay: float) -> None:
        """A failed key will be retried after `delay` seconds."""
        with self.lock:
            self.numbers[ADDS] += 1
            self.numbers[RETRIES] += 1
            self.delays.add(delay)

    # The methods of `Observer`, without the argument for the controller's name

    def keys_triggered(self, requests: int, depth: int, now: float) -> None:
        """The queue received this many requests, and has `depth` due keys now."""
        with self.lock:
            self.numbers[ADDS] += requests
            if now >= self._depth[0]:  # this depth is the newest; calls may arrive out of order
                self._depth = now, depth

    def run_started(self, key: Key, reason: str, waited: float, depth: int, now: float) -> None:  # noqa: ARG002
        """A run of `key` began at `now`, `waited` seconds after the key was due. `depth` keys are still due."""
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
        """Start over in a forked child process: the lock and the runs in progress may be the parent's."""
        self.lock = threading.Lock()
        self._running.clear()

    def _count(self) -> None:
        """Count the ended runs. The lock must be held."""
        numbers = self.numbers
        ended = [self._ended.popleft() for _ in range(len(self._ended))]  # other threads may add runs meanwhile
        for run in ended:
            run.counted = True
            if run.at >= self._depth[0]:
                self._depth = run.at, run.depth
        self.waited.add_all([run.waited for run in ended if run.waited is not None])
        skipped = RunResult.SKIPPED
        worked = [run for run in ended if run.result is not skipped]
        numbers[SKIPPED] += len(ended) - len(worked)
        self.took.add_all([run.seconds for run in worked])
        for result, count in Counter([run.result for run in worked]).items():
            self.results[_COUNTED_AS[result]] += count
            if result is RunResult.REQUEUE_AFTER:
                numbers[ADDS] += count
            elif result is RunResult.TERMINAL_ERROR:
                numbers[TERMINAL] += count
        for run in worked:
            if run.traced:
                self.took.show(run.seconds, run.traced)
            numbers[PANICS] += run.panic
            numbers[TIMEOUTS] += run.timeout

    def values(self, now: float) -> Iterator[tuple[Family, Row]]:
        """All series with their current values."""
        name = self.name
        with self.lock:
            running = [*self._running.copy().values()]  # copied before the count, so that no run is missed
            self._count()
            running = [run for run in running if not run.counted]
            results, numbers = dict(self.results), dict(self.numbers)
            waited, took, delays = self.waited.copy(), self.took.copy(), self.delays.copy()
            looks = (self._depth, *((run.at, run.depth) for run in running))
            depth = max(reversed(looks), key=itemgetter(0))[1]  # if several have the same time, the last one counts
        waited.add_all([run.waited for run in running if run.waited is not None])
        ages = [max(0.0, now - run.at) for run in running]
        del numbers[RECONCILES], numbers[DEPTH]  # these have more labels
        values: dict[Family, float | Histogram] = {
            **numbers, ACTIVE: len(running), ERRORS: results["error"], UNFINISHED: sum(ages),
            LONGEST: max(ages, default=0.0), TIME: took, WORKED: took, WAITED: waited, DELAYS: delays}
        for family, value in values.items():
            yield family, ((name,) * len(family.labels), value)
        for result, count in results.items():
            yield RECONCILES, ((name, result), count)
        yield DEPTH, ((name, name, ""), depth)


CLIENTS = Families()

CLIENT_REQUESTS = CLIENTS.counter("rest_client_requests_total", "code method host",
                                  "Attempts at requests, by answer.")
DURATION = CLIENTS.histogram("rest_client_request_duration_seconds", "verb host", REQUEST,
                             "How long attempts took; for a watch, until the head of its answer.")
CLIENT_RETRIES = CLIENTS.counter("rest_client_request_retries_total", "code verb host",
                                 "Attempts that were retried.")
LEADING = CLIENTS.gauge("leader_election_master_status", "name", "1 if this process leads, else 0.")
WRITES = CLIENTS.counter("kubectl_runtime_objects_written_total", "resource verb", "Writes that the server answered.")
CREDENTIALS = CLIENTS.counter("kubectl_runtime_credential_refreshes_total", "host result",
                              "Calls that had to get new credentials, by success or error.")

METHODS = {"get": "GET", "list": "GET", "watch": "GET", "create": "POST", "replace": "PUT", "patch": "PATCH",
           "apply": "PATCH", "delete": "DELETE", "deletecollection": "DELETE"}


def code_of(code: int) -> str:
    """The code of an answer as in client-go's metrics: `<error>` when there was no answer."""
    return str(code) if code else "<error>"


PHASES = ("listing", "watching", "waiting", "stopped")

WATCHES = Families()

STATE = WATCHES.gauge("kubectl_runtime_watch_state", "watch state",
                      "1 for the current state of the watch: listing, watching, waiting (after a failure) or stopped.")
RELISTS = WATCHES.counter("kubectl_runtime_watch_relists_total", "watch", "Complete lists after the first one.")
FAILURES = WATCHES.counter("kubectl_runtime_watch_failures_total", "watch",
                           "Failed attempts to list or watch. While the server is unreachable, one watch tries for "
                           "all, and only its attempts count.")
IN_A_ROW = WATCHES.gauge("kubectl_runtime_watch_consecutive_failures", "watch", "Failures since the watch last worked.")
DELAY = WATCHES.gauge("kubectl_runtime_watch_backoff_seconds", "watch",
                      "How long the watch waits after a failure; 0 if it does not wait.")
EVENTS = WATCHES.counter("kubectl_runtime_watch_events_total", "watch",
                         "Events and bookmarks that arrived on the open watch.")
AGE = WATCHES.gauge("kubectl_runtime_watch_last_frame_age_seconds", "watch",
                    "Seconds since the last frame; a large value means that the watch is broken (0 once it has "
                    "stopped).")
LIST_TIME = WATCHES.gauge("kubectl_runtime_watch_last_list_seconds", "watch", "How long the last complete list took.")
OBJECTS = WATCHES.gauge("kubectl_runtime_store_objects", "watch", "Objects in the store; 0 once the watch has stopped.")
SIZE = WATCHES.gauge("kubectl_runtime_store_bytes", "watch", "Bytes of JSON in the store.")


class WatchSeries(Numbers):
    """The counts of one watch. Safe to use from any thread."""

    def __init__(self, now: float) -> None:
        super().__init__(WATCHES)
        self.phase, self.heard = "listing", now

    def phase_changed(self, phase: str, now: float) -> None:
        """The watch has entered this phase."""
        with self.lock:
            if self.phase == "stopped":  # it was started again
                self.heard = now
            self.phase = phase
            if phase != "waiting":
                self.numbers[DELAY] = 0
            if phase == "stopped":  # the watch's objects may now belong to another replica
                self.numbers[OBJECTS] = self.numbers[SIZE] = 0
            if phase == "watching":  # the server has answered the watch request
                self.heard, self.numbers[IN_A_ROW] = now, 0

    def failed(self, in_a_row: int, delay: float) -> None:
        """The watch failed, for the `in_a_row`-th time in a row, and waits `delay` seconds."""
        with self.lock:
            self.numbers[FAILURES] += 1
            self.numbers[IN_A_ROW], self.numbers[DELAY] = in_a_row, delay

    def listed(self, objects: int, relists: int, seconds: float, now: float) -> None:
        """A list of `objects` objects has completed after `seconds`. The watch had completed `relists` lists before."""
        with self.lock:
            self.heard = now
            self.numbers |= {OBJECTS: objects, LIST_TIME: seconds, IN_A_ROW: 0}
            self.numbers[RELISTS] += relists > 0

    def frame(self, events: int, now: float) -> None:
        """This many events arrived at `now`."""
        with self.lock:
            self.numbers[EVENTS] += events
            self.heard = now

    def values(self, name: str, now: float) -> Iterator[tuple[Family, Row]]:
        """All series of the watch `name` with their current values."""
        with self.lock:
            phase, numbers = self.phase, dict(self.numbers)
            numbers[AGE] = 0.0 if phase == "stopped" else max(0.0, now - self.heard)
        del numbers[STATE]
        for known in PHASES:
            yield STATE, ((name, known), float(known == phase))
        for family, number in numbers.items():
            yield family, ((name,), number)


LATENCY_BOUNDS = (.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10)
"""Prometheus' default buckets, which controller-runtime uses."""

WEBHOOKS = Families()

WEBHOOK_REQUESTS = WEBHOOKS.counter("controller_runtime_webhook_requests_total", "webhook code",
                                    "Requests to webhooks, by the HTTP status of the answer.")
LATENCY = WEBHOOKS.histogram("controller_runtime_webhook_latency_seconds", "webhook", LATENCY_BOUNDS,
                             "How long webhooks took to answer.")
IN_FLIGHT = WEBHOOKS.gauge("controller_runtime_webhook_requests_in_flight", "webhook",
                           "Requests to webhooks in progress.")


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
        """A server of these webhooks has stopped. Returns the webhooks that no other server serves."""
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
        """A request was answered after this many seconds, with this HTTP status."""
        with self.lock:
            if webhook not in self.in_flight:  # the webhook's server has stopped
                return
            self.in_flight[webhook] -= 1
            self._counts[webhook, code] = self._counts.get((webhook, code), 0) + 1
            self._latencies[webhook].add(seconds)

    def renew(self) -> None:
        """Start over in a forked child process: the requests in progress are the parent's."""
        self.lock = threading.Lock()
        self.in_flight = dict.fromkeys(self.in_flight, 0)

    def values(self) -> Iterator[tuple[Family, Row]]:
        """All series with their current values."""
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


FAMILIES = (*CONTROLLERS, *WATCHES, *CLIENTS, *WEBHOOKS)


class Counted(Observer):
    """The observer that counts the values of `Metrics`. Safe to use from any thread."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._change = threading.Lock()
        self._controllers: dict[str, ControllerSeries] = {}
        self._watches: dict[str, WatchSeries] = {}
        self._clients = Labelled()
        self._webhooks = WebhookSeries()
        self._ended = {what: Ended() for what in ("controllers", "watches", "elections", "webhooks")}

    def rows(self) -> dict[Family, list[Row]]:
        """Every family with the current values of all its series."""
        now = self._clock.monotonic()
        rows: dict[Family, list[Row]] = {family: [] for family in FAMILIES}
        with self._change:
            controllers, watches = dict(self._controllers), dict(self._watches)
        found = (*(series.values(now) for series in controllers.values()),
                 *(series.values(name, now) for name, series in watches.items()),
                 self._clients.values(), self._webhooks.values())
        for family, row in chain.from_iterable(found):
            rows[family].append(row)
        return rows

    def controller_started(self, controller: str, concurrency: int) -> None:
        self._controller(controller).started(concurrency)

    def controller_stopped(self, controller: str, stuck: int) -> None:
        series = self._controller(controller)
        series.stopped(stuck)
        if not series.is_running and (old := self._ended["controllers"].add(controller)) is not None:
            with self._change:
                self._controllers.pop(old, None)

    def keys_triggered(self, controller: str, requests: int, depth: int, now: float) -> None:
        self._controller(controller).keys_triggered(requests, depth, now)

    def keys_dropped(self, controller: str, keys: int) -> None:
        self._controller(controller).drop(keys)

    def read_changed(self, controller: str, resource: str, key: Key, what: str, readers: int) -> None:  # noqa: ARG002
        self._controller(controller).add(READ_CHANGES)

    def retry_scheduled(self, controller: str, key: Key, failures: int, delay: float) -> None:  # noqa: ARG002
        self._controller(controller).retry(delay)

    def run_started(self, controller: str, key: Key, reason: str, waited: float, depth: int, now: float) -> None:
        self._controller(controller).run_started(key, reason, waited, depth, now)

    def run_ended(self, controller: str, key: Key, result: RunResult, seconds: float,
                  error: BaseException | None) -> None:
        self._controller(controller).run_ended(key, result, seconds, error)

    def watch_phase_changed(self, watch: str, phase: str, now: float) -> None:
        self._watch(watch).phase_changed(phase, now)
        if phase == "stopped" and (old := self._ended["watches"].add(watch)) is not None:
            with self._change:
                self._watches.pop(old, None)

    def watch_failed(self, watch: str, error: BaseException, failures: int, delay: float) -> None:  # noqa: ARG002
        self._watch(watch).failed(failures, delay)

    def list_completed(self, watch: str, objects: int, relists: int, seconds: float) -> None:
        self._watch(watch).listed(objects, relists, seconds, self._clock.monotonic())

    def frame_arrived(self, watch: str, events: int, now: float) -> None:
        self._watch(watch).frame(events, now)

    def store_changed(self, watch: str, objects: int) -> None:
        self._watch(watch).set(OBJECTS, objects)

    def store_sized(self, watch: str, size: int) -> None:
        self._watch(watch).set(SIZE, size)

    def request_attempted(self, host: str, method: str, verb: str, resource: str,  # noqa: ARG002
                          code: int, seconds: float) -> None:
        self._clients.count(CLIENT_REQUESTS, code_of(code), method, host)
        self._clients.observe(DURATION, method, host, value=seconds, trace_id=_trace_id())

    def request_retried(self, host: str, verb: str, resource: str, code: int,  # noqa: ARG002
                        attempt: int, delay: float) -> None:  # noqa: ARG002
        self._clients.count(CLIENT_RETRIES, code_of(code), METHODS.get(verb, verb.upper()), host)

    def object_written(self, resource: str, key: Key, verb: str, resource_version: str) -> None:  # noqa: ARG002
        self._clients.count(WRITES, resource, verb)

    def credentials_refreshed(self, host: str, seconds: float, error: BaseException | None) -> None:  # noqa: ARG002
        self._clients.count(CREDENTIALS, host, "success" if error is None else "error")

    def leadership_changed(self, election: str, leading: bool) -> None:
        self._ended["elections"].discard(election)
        self._clients.set(LEADING, election, to=float(leading))

    def election_ended(self, election: str) -> None:
        if (old := self._ended["elections"].add(election)) is not None:
            self._clients.forget(LEADING, old)

    def webhooks_served(self, webhooks: tuple[str, ...]) -> None:
        self._webhooks.serve(webhooks)
        for webhook in webhooks:
            self._ended["webhooks"].discard(webhook)

    def webhook_began(self, webhook: str) -> None:
        self._webhooks.began(webhook)

    def webhook_answered(self, webhook: str, code: int, seconds: float) -> None:
        self._webhooks.answered(webhook, code, seconds)

    def webhooks_ended(self, webhooks: tuple[str, ...]) -> None:
        for webhook in self._webhooks.end(webhooks):
            if (old := self._ended["webhooks"].add(webhook)) is not None:
                self._webhooks.forget(old)

    def _renew_locks(self) -> None:
        """Start over in a forked child process: threads of the parent process may have held the locks, and the runs in
        progress belong to the parent process."""
        self._change = threading.Lock()
        self._clients.lock = threading.Lock()
        self._webhooks.renew()
        for ended in self._ended.values():
            ended.renew()
        for watch in self._watches.values():
            watch.lock = threading.Lock()
        for controller in self._controllers.values():
            controller.renew()

    def _bound(self, method: str, subject: str) -> Callback:
        if method in ("keys_triggered", "run_started", "run_ended"):
            hearer: Callback = getattr(self._controller(subject), method)
            return hearer
        return super()._bound(method, subject)

    def _controller(self, name: str) -> ControllerSeries:
        self._ended["controllers"].discard(name)
        found = self._controllers.get(name)
        if found is None:
            with self._change:
                found = self._controllers.setdefault(name, ControllerSeries(name))
        return found

    def _watch(self, name: str) -> WatchSeries:
        self._ended["watches"].discard(name)
        found = self._watches.get(name)
        if found is None:
            with self._change:
                found = self._watches.setdefault(name, WatchSeries(self._clock.monotonic()))
        return found


def _trace_id() -> str:
    """The trace of this thread's run; empty if there is none or it is not sampled."""
    trace = current_trace()
    return "" if trace is None or not trace.sampled or trace.over else trace.trace_id
