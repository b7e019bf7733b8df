"""A controller of Parents in simulation, and a page about it."""
from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from kubectl_runtime.runtime.controller.assembly import Assembly
from kubectl_runtime.runtime.controller.controller import Controller
from kubectl_runtime.runtime.controller.running import Running
from kubectl_runtime.runtime.observe.debug import DebugApplication, DebugPage, DebugState, Inspected, ManagerState
from kubectl_runtime.runtime.queue.runs import KeyBackoff
from kubectl_runtime.runtime.reconcile.reconciler import Action, Context
from kubectl_runtime.runtime.watch.backoff import WatchBackoff
from kubectl_runtime.runtime.watch.config import WatcherConfig
from kubectl_runtime.testing.simulation import SimulatedController, Simulation
from tests.runtime.scripted_cluster import Cluster, Parent

LOCAL = {"REMOTE_ADDR": "127.0.0.1", "HTTP_HOST": "127.0.0.1:8080", "SERVER_PORT": "8080"}


class Seen(Running[Any]):
    """A simulated controller, as a page sees one that runs."""

    def __init__(self, name: str, assembly: Assembly[Any]) -> None:
        self.name, self.error, self._assembly, self._process = name, None, assembly, os.getpid()


class DebugRig:
    """Everything on one simulated clock. Is what a page is about."""

    def __init__(self, seed: int = 0) -> None:
        self.sim = Simulation(seed)
        self.cluster = Cluster(self.sim.clock)
        self.seen: list[Inspected] = []
        self.managed: ManagerState | None = None

    def start(self, reconcile: Callable[[Parent, Context[Any]], Action], *, name: str = "c",
              **options: Any) -> SimulatedController[Parent]:
        controller = Controller(self.cluster.api(Parent), name=name, backoff=KeyBackoff(initial=30, jitter=0),
                                watch=WatcherConfig(backoff=WatchBackoff(jitter=False)), **options)
        started = self.sim.start(controller, reconcile)
        self.seen.append(Seen(name, started.assembly))
        return started

    def controllers(self) -> Sequence[Inspected]:
        return [*self.seen]

    def manager(self) -> ManagerState | None:
        return self.managed

    def application(self, *, remote: bool = False, details: bool = False) -> DebugApplication:
        return DebugApplication(DebugPage(remote=remote, details=details), self, clock=self.sim.clock)

    def body(self, *, details: bool = False) -> bytes:
        """What is answered to somebody who asks for the state."""
        found = self.application(details=details).answer("state.json", LOCAL)
        assert found is not None
        status, headers, body = found
        assert (status, dict(headers)["Content-Type"]) == ("200 OK", "application/json")
        return body

    def state(self, *, details: bool = False) -> DebugState:
        return msgspec.json.decode(self.body(details=details), type=DebugState)
