"""A controller of Parents in simulation with metrics, and what a scrape of it says."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric
from prometheus_client.parser import text_string_to_metric_families

from kubectl_runtime.runtime.controller.controller import Controller
from kubectl_runtime.runtime.observe.metrics import Metrics
from kubectl_runtime.runtime.queue.runs import KeyBackoff
from kubectl_runtime.runtime.reconcile.reconciler import Action, Context
from kubectl_runtime.runtime.watch.backoff import WatchBackoff
from kubectl_runtime.runtime.watch.config import WatcherConfig
from kubectl_runtime.testing.simulation import SimulatedController, Simulation
from tests.runtime.scripted_cluster import Cluster, Parent

PARENTS = "parents.test.example"


def satisfied(obj: Parent, ctx: Context[Any]) -> Action:
    return Action.await_change()


class Rig:
    """Everything on one simulated clock."""

    def __init__(self) -> None:
        self.sim = Simulation()
        self.cluster = Cluster(self.sim.clock)
        self.metrics = Metrics(CollectorRegistry(), clock=self.sim.clock)

    def start(self, reconcile: Callable[[Parent, Context[Any]], Action] = satisfied, *, name: str = "c",
              **options: Any) -> SimulatedController[Parent]:
        controller = Controller(self.cluster.api(Parent), name=name, observer=self.metrics,
                                backoff=KeyBackoff(initial=1, jitter=0),
                                watch=WatcherConfig(backoff=WatchBackoff(jitter=False)),
                                **options)
        return self.sim.start(controller, reconcile)

    @property
    def text(self) -> str:
        return generate_latest(self.metrics.registry).decode()

    def value(self, name: str, /, **labels: str) -> float | None:
        """Of one series, in the text that a scraper gets."""
        return samples(self.text).get((name, tuple(sorted(labels.items()))))

    def of_queue(self, name: str) -> float | None:
        return self.value(f"workqueue_{name}", name="c", controller="c")


def families(text: str) -> dict[str, Metric]:
    return {family.name: family for family in text_string_to_metric_families(text)}


def samples(text: str) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    return {(sample.name, tuple(sorted(sample.labels.items()))): sample.value
            for family in text_string_to_metric_families(text) for sample in family.samples}
