"""A cluster in which the running version of the operator of sites has done its work."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kubectl_runtime import Api, Client, apply_crd
from kubectl_runtime.plan import Snapshot
from kubectl_runtime.testing import ApiServer, Simulation
from tests.plan import sites


class World:
    """A simulated cluster; a program runs in it without anything of `kubectl_runtime.plan`."""

    def __init__(self, seed: int = 0, **arguments: Any) -> None:
        self.sim = Simulation(seed, **arguments)
        self.server: ApiServer = self.sim.serve(controllers=["*"])
        self.client: Client = self.sim.client(self.server)

    def run(self, build: Callable[[Client], Any], seconds: float) -> None:
        made = build(self.client)
        for bound in made.controllers() if hasattr(made, "controllers") else [made]:
            self.sim.start(bound)
        self.sim.settle(seconds)
        self.sim.kill()


def sites_world(names: tuple[str, ...] = ("a", "b"), seed: int = 0) -> World:
    world = World(seed)
    apply_crd(world.client, sites.Site)
    for number, name in enumerate(names):
        Api.namespaced(world.client, sites.Site, "default").create(
            sites.Site(name=name, spec=sites.Spec(replicas=2 + number % 2)))
    world.run(sites.RUNNING.build, 300)
    return world


@pytest.fixture
def world() -> Any:
    made = sites_world()
    yield made
    made.sim.close()


@pytest.fixture(scope="package")
def running() -> Snapshot:
    """Of that cluster, as the running version reads it. A plan leaves it as it is."""
    made = sites_world()
    found = Snapshot.read(made.client, sites.RUNNING.build)
    made.sim.close()
    return found
