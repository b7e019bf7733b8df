"""`Metrics`: an observer that counts, and a collector of prometheus-client that exports the counts.

    metrics = Metrics()
    client = Client(config, observer=metrics)        # and every controller of that client
    HealthServer(":8080", metrics=metrics).start()   # or metrics.application() in your own web server

The series are those of controller-runtime (`controller_runtime_*`, for webhooks too) and client-go (`workqueue_*`,
`rest_client_*`, `leader_election_master_status`), with their names, labels and buckets, and the library's own
(`kubectl_runtime_*`). Dashboards for controllers in Go work unchanged; `Metrics.dashboard()` includes the library's own
series. No label has the name of an object, so the number of series does not grow with the cluster. It does not grow
with time either: of ended controllers, watches, elections and webhooks only the last `KEPT` keep their series.

To count an event takes one short lock of the controller or watch; to count a run takes no lock. Sums are computed by
the scrape. If runs are traced (see `Tracing`), the durations of runs and requests have exemplars, for scrapers that
request OpenMetrics. In prometheus-client's multi-process mode (PROMETHEUS_MULTIPROC_DIR) each process exports only its
own series.
"""
from __future__ import annotations

import os
import threading
from collections.abc import Iterable
from importlib.resources import files
from typing import TYPE_CHECKING
from weakref import WeakMethod

from prometheus_client import REGISTRY, CollectorRegistry, make_wsgi_app
from prometheus_client.core import Metric

from kubectl_runtime.core.base.errors import RequestError
from kubectl_runtime.core.base.observer import Hearer, Observer, RunResult
from kubectl_runtime.core.base.plain import Key
from kubectl_runtime.core.base.threads import SYSTEM_CLOCK, Clock
from kubectl_runtime.core.scope import current_trace
from kubectl_runtime.runtime.observe.families import Family, Row
from kubectl_runtime.runtime.observe.series import (
    CLIENT_FAMILIES,
    CLIENT_RETRIES,
    CONTROLLER_FAMILIES,
    CREDENTIALS,
    LEADING,
    METHODS,
    WATCH_FAMILIES,
    WEBHOOK_FAMILIES,
    WRITES,
    ClientSeries,
    ControllerSeries,
    WatchSeries,
    WebhookSeries,
    code_of,
)

if TYPE_CHECKING:
    from wsgiref.types import WSGIApplication

FAMILIES = (*CONTROLLER_FAMILIES, *WATCH_FAMILIES, *CLIENT_FAMILIES, *WEBHOOK_FAMILIES)


KEPT = 4
"""Number of ended controllers, watches, elections and webhooks, each, whose series stay, so that their last values can
be scraped, and counts go on if one begins again."""


class _Ended:
    """The ended controllers, watches, elections and webhooks, oldest first. Safe to use from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._names: dict[str, None] = {}

    def add(self, name: str) -> str | None:
        """`name` has ended. Returns the name to forget instead, if any."""
        with self._lock:
            self._names.pop(name, None)
            self._names[name] = None
            return None if len(self._names) <= KEPT else self._take_first()

    def discard(self, name: str) -> None:
        """`name` is in use again."""
        if name in self._names:
            with self._lock:
                self._names.pop(name, None)

    def renew(self) -> None:
        """Make a new lock in the child of a fork, where a thread of the parent may have held the old one."""
        self._lock = threading.Lock()

    def _take_first(self) -> str:
        first = next(iter(self._names))
        del self._names[first]
        return first


def own_registry() -> CollectorRegistry:
    """An empty registry."""
    return CollectorRegistry()


_making = threading.Lock()
_shared: list[Metrics] = []
"""The `Metrics` of the default registry; empty without one."""


class Metrics(Observer):
    """Metrics of clients and controllers for Prometheus, under controller-runtime's names: an Observer.

    Give it to a client as `observer=`; one object serves any number of clients and controllers, which it distinguishes
    by name. It needs prometheus-client, in whose `registry` it registers. Safe to use from any thread. A `Manager`
    observes its client by `Metrics.shared()` if the client has no Metrics.

    >>> from prometheus_client import CollectorRegistry, generate_latest
    >>> metrics = Metrics(CollectorRegistry())
    >>> with Client(Config(cluster_url=server.url), observer=metrics) as own:
    ...     _ = Api.all(own, ConfigMap).list()
    >>> b"rest_client_requests_total" in generate_latest(metrics.registry)
    True
    """

    def __init__(self, registry: CollectorRegistry = REGISTRY, *, clock: Clock = SYSTEM_CLOCK) -> None:
        """Registers with `registry`. The default is prometheus-client's own registry, which also has the process's
        memory, CPU and file descriptors, and the program's own metrics; tests pass `CollectorRegistry()`. `clock`: that
        of the clients. Raises RequestError when the registry has metrics of these names already.
        """
        self.registry = registry
        self._clock = clock
        self._change = threading.Lock()
        self._controllers: dict[str, ControllerSeries] = {}
        self._watches: dict[str, WatchSeries] = {}
        self._clients = ClientSeries()
        self._webhooks = WebhookSeries()
        self._ended = {what: _Ended() for what in ("controllers", "watches", "elections", "webhooks")}
        try:
            registry.register(self)
        except ValueError as error:
            raise RequestError("this registry has metrics of these names already: share one Metrics object between "
                               "clients (Metrics.shared() is that of the default registry, a Manager's too), close() "
                               "the old one first, or pass a registry of its own, CollectorRegistry()") from error
        if registry is REGISTRY:
            _shared.append(self)

        renew = WeakMethod(self._renew_locks)
        if hasattr(os, "register_at_fork"):  # not on Windows, which has no fork
            os.register_at_fork(after_in_child=lambda: (found := renew()) and found())

    @classmethod
    def shared(cls) -> Metrics:
        """The one object of prometheus-client's default registry, made on first use. A Manager uses it to observe a
        client without Metrics. Safe to use from any thread."""
        with _making:
            return _shared[-1] if _shared else cls()

    def close(self) -> None:
        """Leave the registry, so that the series are no longer exported. To be called once."""
        self.registry.unregister(self)
        if self in _shared:
            _shared.remove(self)

    def application(self) -> WSGIApplication:
        """A WSGI application, prometheus-client's own, that answers any GET with all metrics of the registry."""
        made: WSGIApplication = make_wsgi_app(self.registry)
        return made

    @staticmethod
    def dashboard() -> str:
        """A dashboard for Grafana, as JSON, with every family of metrics: `Dashboards > New > Import`."""
        return files(__package__).joinpath("dashboard.json").read_text()

    # For prometheus-client

    def describe(self) -> Iterable[Metric]:
        """Every family of metrics, without values, from which prometheus-client gets the names."""
        return [family.filled() for family in FAMILIES]

    def collect(self) -> Iterable[Metric]:
        """Every family of metrics, with the present values of all its series, for a scrape."""
        now = self._clock.monotonic()
        rows: dict[Family, list[Row]] = {family: [] for family in FAMILIES}
        with self._change:
            controllers, watches = dict(self._controllers), dict(self._watches)
        for controller in controllers.values():
            for family, row in controller.values(now):
                rows[family].append(row)
        for name, watch in watches.items():
            for family, row in watch.values(name, now):
                rows[family].append(row)
        for family, row in (*self._clients.values(), *self._webhooks.values()):
            rows[family].append(row)
        return [family.filled(found) for family, found in rows.items()]

    # Observer

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
        self._controller(controller).read_changed()

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
        self._watch(watch).objects = objects

    def store_sized(self, watch: str, size: int) -> None:
        self._watch(watch).size = size

    def request_attempted(self, host: str, method: str, verb: str, resource: str,  # noqa: ARG002
                          code: int, seconds: float) -> None:
        self._clients.attempted(host, method, code, seconds, _trace_id())

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
        """In the child of a fork: a parent's thread may have held a lock, and the runs in progress are the parent's."""
        self._change = threading.Lock()
        self._clients.lock = threading.Lock()
        self._webhooks.renew()
        for ended in self._ended.values():
            ended.renew()
        for watch in self._watches.values():
            watch.lock = threading.Lock()
        for controller in self._controllers.values():
            controller.renew()

    def _bound(self, method: str, subject: str) -> Hearer:
        if method in ("keys_triggered", "run_started", "run_ended"):
            hearer: Hearer = getattr(self._controller(subject), method)
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
    """The trace of this thread's run, if it has one that is sampled."""
    trace = current_trace()
    return "" if trace is None or not trace.sampled or trace.over else trace.trace_id
