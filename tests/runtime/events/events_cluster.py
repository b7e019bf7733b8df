"""A server and a recorder on simulated time, for tests of one thread."""
from __future__ import annotations

from typing import Any

import requests

from kubectl_runtime import Api, ApiResource, Client, Config, Recorder, RetryPolicy
from kubectl_runtime.resources import ConfigMap
from kubectl_runtime.testing import ApiServer, SimClock

EVENT = ApiResource("events.k8s.io", "v1", "Event", "events")


class Cluster:
    """One ConfigMap `a`, and a recorder that nobody drives but `flush` and `step`."""

    def __init__(self, **numbers: Any) -> None:
        self.clock = SimClock(self_advancing=True)
        self.server = ApiServer(clock=self.clock)
        self.client = self.connect()
        self.others = self.connect()
        self.obj = Api.namespaced(self.client, ConfigMap, "default").create(ConfigMap(name="a"))
        self.recorder = Recorder(self.client, "example.com/op", instance="op-1", **numbers)
        self.server.requests.clear()

    def connect(self) -> Client:
        session = requests.Session()
        session.mount("http://", self.server.transport())
        return Client(Config(cluster_url="http://simulated"), session=session, clock=self.clock,
                      retry=RetryPolicy(random=lambda: 0.0))

    def publish(self, times: int = 1, reason: str = "Failed", regarding: Any = None, **more: Any) -> None:
        for number in range(times):
            self.recorder.publish(self.obj if regarding is None else regarding, reason, f"note {number}", **more)

    def drive(self, duration: float) -> None:
        """What the thread does in so many seconds."""
        end = self.clock.monotonic() + duration
        while self.clock.monotonic() < end:
            wait = self.recorder.step()
            left = end - self.clock.monotonic()
            self.clock.advance(max(0.0, left if wait is None else min(wait, left)))

    @property
    def events(self) -> list[dict[str, Any]]:
        """As the server has them."""
        return [dict(event.to_dict()) for event in Api.all(self.others, EVENT).list().items]

    @property
    def counts(self) -> list[int]:
        return sorted(count_of(event) for event in self.events)

    @property
    def sent(self) -> list[str]:
        return [entry.method for entry in self.server.requests if entry.method != "GET"]


def count_of(event: dict[str, Any]) -> int:
    """How many observations an Event stands for."""
    return int((event.get("series") or {}).get("count", 1))
