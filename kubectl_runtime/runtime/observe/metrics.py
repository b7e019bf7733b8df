"""`Metrics`: an observer that counts, and a prometheus-client collector that exports the counts.

    metrics = Metrics()
    client = Client(config, observer=metrics)        # and every controller of that client
    HealthServer(":8080", metrics=metrics).start()   # or metrics.application() in your own web server

`Metrics` exports the series of controller-runtime (`controller_runtime_*`, including those of webhooks) and client-go
(`workqueue_*`, `rest_client_*`, `leader_election_master_status`), with their names, labels and buckets, and the
library's own series (`kubectl_runtime_*`). Dashboards for controllers in Go work unchanged; `Metrics.dashboard()`
includes the library's own series. No label contains the name of an object, so the number of series does not grow with
the cluster. It does not grow with time either: only the last `KEPT` of the ended controllers, watches, elections and
webhooks keep their series.

Counting an event takes one short lock of the controller or watch; counting a run takes no lock. The scrape computes
sums. If runs are traced (see `Tracing`), the durations of runs and requests have exemplars, for scrapers that request
OpenMetrics. In prometheus-client's multi-process mode (PROMETHEUS_MULTIPROC_DIR) each process exports only its own
series.
"""
from __future__ import annotations

import os
import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING
from weakref import WeakMethod

from prometheus_client import REGISTRY, CollectorRegistry, make_wsgi_app
from prometheus_client.core import Metric

from kubectl_runtime.core.base.errors import RequestError
from kubectl_runtime.core.base.threads import SYSTEM_CLOCK, Clock
from kubectl_runtime.runtime.observe.dashboard import dashboard
from kubectl_runtime.runtime.observe.series import FAMILIES, Counted

if TYPE_CHECKING:
    from wsgiref.types import WSGIApplication

def own_registry() -> CollectorRegistry:
    """An empty registry."""
    return CollectorRegistry()


_making = threading.Lock()
_shared: list[Metrics] = []
"""The `Metrics` of the default registry; empty if there is none."""


class Metrics(Counted):
    """Prometheus metrics of clients and controllers, under controller-runtime's names: an Observer.

    Pass it to a client as `observer=`; one object serves any number of clients and controllers, which it distinguishes
    by name. It needs prometheus-client, and registers in `registry`. Safe to use from any thread. If the client of a
    `Manager` has no Metrics, the Manager uses `Metrics.shared()`.

    >>> from prometheus_client import CollectorRegistry, generate_latest
    >>> metrics = Metrics(CollectorRegistry())
    >>> with Client(Config(cluster_url=server.url), observer=metrics) as own:
    ...     _ = Api.all(own, ConfigMap).list()
    >>> b"rest_client_requests_total" in generate_latest(metrics.registry)
    True
    """

    def __init__(self, registry: CollectorRegistry = REGISTRY, *, clock: Clock = SYSTEM_CLOCK) -> None:
        """Registers in `registry`. The default is prometheus-client's own registry, which also exports the process's
        memory, CPU and file descriptors, and the program's own metrics; tests pass `CollectorRegistry()`. `clock`: the
        clock of the clients. Raises RequestError if the registry already has metrics of these names.
        """
        super().__init__(clock)
        self.registry = registry
        try:
            registry.register(self)
        except ValueError as error:
            raise RequestError("this registry already has metrics of these names: share one Metrics object between "
                               "clients (Metrics.shared() is in the default registry, and Managers use it), close() "
                               "the old object first, or pass another registry: CollectorRegistry()") from error
        if registry is REGISTRY:
            _shared.append(self)

        renew = WeakMethod(self._renew_locks)
        if hasattr(os, "register_at_fork"):  # absent on Windows, which has no fork
            os.register_at_fork(after_in_child=lambda: (found := renew()) and found())

    @classmethod
    def shared(cls) -> Metrics:
        """The Metrics of prometheus-client's default registry, made on first use. A Manager uses it for a client
        without Metrics. Safe to use from any thread."""
        with _making:
            return _shared[-1] if _shared else cls()

    def close(self) -> None:
        """Leave the registry, so that the series are no longer exported. Call it only once."""
        self.registry.unregister(self)
        if self in _shared:
            _shared.remove(self)

    def application(self) -> WSGIApplication:
        """prometheus-client's WSGI application, which answers any GET with all metrics of the registry."""
        made: WSGIApplication = make_wsgi_app(self.registry)
        return made

    @staticmethod
    def dashboard() -> str:
        """A Grafana dashboard as JSON, with every metric family. Import it by `Dashboards > New > Import`."""
        return dashboard()

    # For prometheus-client

    def describe(self) -> Iterable[Metric]:
        """All metric families, with their values left out: prometheus-client only needs the names."""
        return [family.filled() for family in FAMILIES]

    def collect(self) -> Iterable[Metric]:
        """Every metric family with the current values of all its series, for a scrape."""
        return [family.filled(rows) for family, rows in self.rows().items()]
