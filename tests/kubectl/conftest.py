"""A server, a client and a clock in one thread."""
from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
import requests

from kubectl_runtime.apiserver.server import ApiServer
from kubectl_runtime.client.api.api import Api
from kubectl_runtime.client.api.client import Client
from kubectl_runtime.client.config.config import Config
from kubectl_runtime.core.requests.params import Patch
from kubectl_runtime.testing.clock import SimClock


class World:
    def __init__(self, **options: Any) -> None:
        self.clock = SimClock(self_advancing=True)
        self.server = ApiServer(clock=self.clock, **options)
        session = requests.Session()
        session.mount("http://", self.server.transport())
        self.client = Client(Config(cluster_url="http://simulated"), session=session, clock=self.clock)

    def api(self, kind: type[Any], namespace: str = "default") -> Api[Any]:
        return Api.namespaced(self.client, kind, namespace)

    def says(self, kind: type[Any], name: str, status: Mapping[str, Any]) -> None:
        """What a controller of the cluster says of an object."""
        self.api(kind).patch_status(name, Patch.merge({"status": status}))

    def after_looks(self, number: int, resource: str, happens: Callable[[], object]) -> None:
        """Have something happen when objects of this resource have been looked at so often."""
        self.server.faults.on(verb="list", resource=resource).nth(number).run(happens)

    def applied(self) -> list[str]:
        """The paths of what was applied, in order."""
        return [request.path.rpartition("/")[2] for request in self.server.requests.select("patch")]


@pytest.fixture
def world() -> Iterator[World]:
    made = World()
    with made.client:
        yield made
