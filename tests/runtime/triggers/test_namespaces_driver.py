"""Namespaces that come and go: what a store and its controller see of them, with the rights for the cluster and without,
in simulations and over sockets."""
from __future__ import annotations

import logging
import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from kubectl_runtime.apiserver.server import ApiServer
from kubectl_runtime.client.api.api import Api
from kubectl_runtime.client.api.client import Client
from kubectl_runtime.client.api.selected import NamespaceSet
from kubectl_runtime.core.base.errors import ApiError, RequestError
from kubectl_runtime.core.meta.gvk import ApiResource, Scope
from kubectl_runtime.core.requests.params import Patch
from kubectl_runtime.resources import ConfigMap, Namespace
from kubectl_runtime.runtime.controller.controller import Controller
from kubectl_runtime.runtime.reconcile.reconciler import Action
from kubectl_runtime.runtime.triggers.namespaces_driver import MOST, NamespacesDriver
from kubectl_runtime.runtime.triggers.shared_watches import SharedWatches
from kubectl_runtime.runtime.triggers.watch_store import watch_store
from kubectl_runtime.runtime.watch.config import WatcherConfig
from kubectl_runtime.runtime.watch.watcher import watcher
from kubectl_runtime.testing import Simulation, eventually

RBAC = "rbac.authorization.k8s.io"
LIMIT = 30


class World:
    """A server with RBAC, an administrator, and `alice`, who may watch Namespaces, and ConfigMaps where she was let."""

    def __init__(self, server: ApiServer, admin: Client) -> None:
        self.server, self.admin = server, admin
        self.namespaces = Api.all(admin, Namespace)
        for name, resource in (("spaces", "namespaces"), ("maps", "configmaps")):
            self._of("ClusterRole").create({"metadata": {"name": name}, "rules": [
                {"apiGroups": [""], "resources": [resource], "verbs": ["list", "watch"]}]})
        self._of("ClusterRoleBinding").create(self._binding("spaces"))

    def come(self, name: str, *, granted: bool = True, **labels: str) -> None:
        self.namespaces.create({"metadata": {"name": name, "labels": labels}})
        if granted:
            self.grant(name)

    def grant(self, name: str) -> None:
        self._of("RoleBinding", name).create(self._binding("maps"))

    def label(self, name: str, **labels: str | None) -> None:
        self.namespaces.patch(name, Patch.merge({"metadata": {"labels": labels}}))

    def maps(self, namespace: str) -> Api[ConfigMap]:
        return Api.namespaced(self.admin, ConfigMap, namespace)

    def put(self, namespace: str, name: str) -> None:
        self.maps(namespace).create({"metadata": {"name": name}})

    def _of(self, kind: str, namespace: str | None = None) -> Api[Any]:
        scope = Scope.CLUSTER if namespace is None else Scope.NAMESPACED
        resource = ApiResource(RBAC, "v1", kind, f"{kind.lower()}s", scope)
        return Api.all(self.admin, resource) if namespace is None else Api.namespaced(self.admin, resource, namespace)

    @staticmethod
    def _binding(role: str) -> dict[str, Any]:
        return {"metadata": {"name": role}, "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": role},
                "subjects": [{"kind": "User", "name": "alice", "apiGroup": RBAC}]}


class Seen:
    """A controller of ConfigMaps in a simulation, and the objects of its runs since the last look."""

    def __init__(self, simulation: Simulation, client: Client, api: Any, **options: Any) -> None:
        self.simulation, self.client = simulation, client
        self._runs: set[tuple[str | None, str]] = set()
        self.controller = simulation.start(Controller(api, **options), self._reconcile)

    def _reconcile(self, obj: Any, _ctx: Any) -> Action:
        self._runs.add((obj.namespace, obj.name))
        return Action.await_change()

    def runs(self, settle: float = 5) -> set[str]:
        self.simulation.settle(settle)
        runs, self._runs = self._runs, set()
        return {f"{namespace}/{name}" for namespace, name in runs}

    @property
    def stored(self) -> set[str]:
        return {f"{obj.namespace}/{obj.name}" for obj in self.controller.store}

    @property
    def watches(self) -> int:
        return len(self.client.shared.get(SharedWatches))

    def end(self) -> None:
        self.controller.begin_stop()
        self.simulation.settle(5)
        assert self.watches == 0
        assert self.controller.has_ended


@contextmanager
def simulated(seed: int = 1) -> Iterator[tuple[Simulation, World]]:
    with Simulation(seed) as simulation:
        server = simulation.serve(authorization_mode="RBAC", controllers=["namespace"])
        yield simulation, World(server, simulation.client(server))


def chosen(how: str, client: Client, names: NamespaceSet) -> Any:
    if how == "like":
        return Api.namespaces(client, ConfigMap, like="team-*")
    return Api.namespaces(client, ConfigMap, labels="team") if how == "labels" else Api.namespaces(
        client, ConfigMap, names)


RIGHTS = pytest.mark.parametrize("user", [None, "alice"], ids=["cluster", "each"])
HOW = pytest.mark.parametrize("how", ["like", "labels", "set"])


@RIGHTS
@HOW
def test_objects_are_those_of_the_namespaces_that_are_chosen(how: str, user: str | None) -> None:
    with simulated() as (simulation, world):
        world.come("team-a", team="1")
        world.come("other")
        world.put("team-a", "a")
        world.put("other", "o")
        client, names = simulation.client(world.server, user), NamespaceSet(["team-a"])
        seen = Seen(simulation, client, chosen(how, client, names))
        assert seen.runs() == seen.stored == {"team-a/a"}

        world.come("team-b", team="2")
        names.add("team-b")
        world.put("team-b", "b")
        world.put("other", "p")
        assert seen.runs() == {"team-b/b"}
        assert seen.stored == {"team-a/a", "team-b/b"}
        assert seen.watches == (1 + (how == "labels") if user is None else 3 + (how != "set"))

        world.namespaces.delete("team-a")
        names.discard("team-a")
        assert seen.runs(30) == set()
        assert seen.stored == {"team-b/b"}
        world.maps("team-b").patch("b", Patch.merge({"data": {"k": "v"}}))
        assert seen.runs() == {"team-b/b"}
        seen.end()


@RIGHTS
@pytest.mark.parametrize("how", ["labels", "set"])
def test_a_namespace_that_is_full_comes_as_a_whole_and_goes_with_its_objects(how: str, user: str | None) -> None:
    with simulated(2) as (simulation, world):
        for name in ("one", "two"):
            world.come(name, **({"team": "x"} if name == "one" else {}))
            for number in range(3):
                world.put(name, f"m{number}")
        client, names = simulation.client(world.server, user), NamespaceSet(["one"])
        seen = Seen(simulation, client, chosen(how, client, names), watch=WatcherConfig(page_size=2))
        heard: list[str] = []
        one = {f"one/m{number}" for number in range(3)}
        two = {f"two/m{number}" for number in range(3)}
        assert seen.runs() == seen.stored == one
        watch = next(iter(seen.controller.assembly.watches.values()))
        watch.subscribe(lambda event: heard.append(type(event).__name__) or (), lambda _: None)
        heard.clear()
        world.label("two", team="y")
        names.add("two")
        assert seen.runs() == two  # those of the first are not disturbed
        assert heard == ["Apply"] * 3
        world.label("one", team=None)
        names.discard("one")
        assert seen.runs() == set()
        assert seen.stored == two
        assert heard == ["Apply"] * 3 + ["Delete"] * 3
        seen.end()


def follow(simulation: Simulation, world: World, seen: Seen, how: str, number: int, user: str | None) -> None:
    """`number` namespaces come within ten minutes, each with an object, and go again; a third is not chosen."""
    rng, pause, there = random.Random(number), 600 / number / 2, []
    most = 0
    for turn in range(2 * number):
        if turn < number:
            mine = turn % 3 != 0
            name = f"{'team' if mine else 'other'}-{turn}"
            world.come(name, granted=user is not None, **({"team": "t"} if mine else {}))
            world.put(name, "m")
            there.append(name)
        else:
            name = there.pop(rng.randrange(len(there)))
            if how == "labels" and turn % 2:
                world.label(name, team=None)
            else:
                world.maps(name).delete("m")
                world.namespaces.delete(name)
        simulation.settle(pause)
        most = max(most, seen.watches)
        if turn % 50 == 0 or turn == number - 1:
            assert seen.stored == {f"{name}/m" for name in there if name.startswith("team-")}
    simulation.settle(30)
    assert seen.stored == set()
    chosen_ones = number - (number + 2) // 3
    assert most == (1 + (how == "labels") if user is None else 2 + chosen_ones)
    assert seen.watches == (1 + (how == "labels") if user is None else 2)
    assert simulation.clock.monotonic() >= 600


@pytest.mark.parametrize("how", ["like", "labels"])
@pytest.mark.parametrize(("number", "user"), [(60, None), (24, "alice"),
                                              pytest.param(500, None, marks=pytest.mark.long),
                                              pytest.param(60, "alice", marks=pytest.mark.long)])
def test_many_namespaces_come_and_go_in_ten_minutes_and_watches_follow(how: str, number: int, user: str | None) -> None:
    with simulated(3) as (simulation, world):
        client = simulation.client(world.server, user)
        seen = Seen(simulation, client, chosen(how, client, NamespaceSet()))
        follow(simulation, world, seen, how, number, user)
        seen.end()
