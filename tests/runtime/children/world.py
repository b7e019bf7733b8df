"""A controller that makes children, on a server in memory and simulated time, with a count of what it sends."""
from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from kubectl_runtime import (
    Action,
    Api,
    Client,
    Context,
    Controller,
    CustomResource,
    NotOurs,
    Resource,
)
from kubectl_runtime.controller import Children
from kubectl_runtime.kinds import Scope
from kubectl_runtime.testing import ApiServer, Simulation


class Site(CustomResource, group="children.example.com", version="v1", kind="Site"):
    """Owns children."""

    spec: dict[str, Any]


class Land(CustomResource, group="children.example.com", version="v1", kind="Land", scope=Scope.CLUSTER):
    """Owns children in any namespace."""

    spec: dict[str, Any]


Made = Callable[[Any, Context[Any]], Children]


def bare() -> tuple[ApiServer, Simulation]:
    """A server that knows the kinds, and the simulation that it is in."""
    sim = Simulation()
    server = sim.serve()
    server.load([Site.crd(), Land.crd()])
    return server, sim


class World:
    """`children(obj, ctx)` calls `ctx.ensure`; what it returned or raised last is in `results` and `errors`."""

    def __init__(self, children: Made, *owned: Any, kind: type[Resource] = Site, name: str = "sites",
                 build: Callable[[Controller[Any]], Controller[Any]] | None = None, server: ApiServer | None = None,
                 sim: Simulation | None = None, client: Client | None = None, **options: Any) -> None:
        if server is None or sim is None:
            server, sim = bare()
        self.sim, self.server = sim, server
        self.client = client or self.sim.client(self.server)
        self.user = self.sim.client(self.server)
        """Of other people and programs."""
        self.results: dict[str, list[Children]] = {}
        self.errors: dict[str, list[BaseException]] = {}
        controller = Controller(Api.all(self.client, kind), name=name, **options)
        for one in owned:
            controller.owns(Api.all(self.client, one))
        self.controller = build(controller) if build else controller

        def reconcile(obj: Any, ctx: Context[Any]) -> Action:
            try:
                self.results.setdefault(obj.name, []).append(children(obj, ctx))
            except BaseException as error:
                self.errors.setdefault(obj.name, []).append(error)
                raise
            return Action.await_change()

        self.running = self.sim.start(self.controller, reconcile)

    def api(self, kind: Any, namespace: str = "default") -> Api[Any]:
        return Api.namespaced(self.user, kind, namespace)

    def make(self, name: str = "a", **spec: Any) -> Site:
        made: Site = self.api(Site).create(Site(name=name, spec=spec))
        self.settle()
        return made

    def settle(self, seconds: float = 3) -> None:
        self.sim.settle(seconds)

    def last(self, name: str = "a") -> Children:
        return self.results[name][-1]

    def refused(self, name: str = "a") -> str:
        error = self.errors[name][-1]
        assert isinstance(error, NotOurs), error
        return str(error)

    @contextmanager
    def sent(self) -> Iterator[list[str]]:
        """What the controller sends in the block; writes of the tests' own client do not count."""
        found: list[str] = []
        stop = self.client.on_answer(lambda exchanged: found.append(
            f"{exchanged.request.method} {exchanged.request.path.rpartition('/')[2]}")
            if "watch" not in exchanged.request.verb and exchanged.request.verb != "list" else None)
        try:
            yield found
        finally:
            stop()
