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
"""The `Metrics` of the default registry; empty without one."""


class Metrics(Counted):
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
        super().__init__(clock)
        self.registry = registry
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
        return dashboard()

    # For prometheus-client

    def describe(self) -> Iterable[Metric]:
        """Every family of metrics, without values, from which prometheus-client gets the names."""
        return [family.filled() for family in FAMILIES]

    def collect(self) -> Iterable[Metric]:
        """Every family of metrics, with the present values of all its series, for a scrape."""
        return [family.filled(rows) for family, rows in self.rows().items()]
