"""Namespaces that come and go: what a store and its controller see of them, with the rights for the cluster and
without, in simulations and over sockets."""
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
from kubectl_runtime.core.base.errors import RequestError
from kubectl_runtime.core.meta.gvk import ApiResource, ObjectRef, Scope
from kubectl_runtime.core.requests.params import Patch
from kubectl_runtime.resources import ConfigMap, Namespace, Secret
from kubectl_runtime.runtime.controller.controller import Controller
from kubectl_runtime.runtime.reconcile.reconciler import Action
from kubectl_runtime.runtime.triggers.namespaces_driver import MOST
from kubectl_runtime.runtime.triggers.shared_watches import SharedWatches
from kubectl_runtime.runtime.triggers.watch_store import watch_store
from kubectl_runtime.runtime.watch.config import WatcherConfig
from kubectl_runtime.runtime.watch.event import Apply, Delete
from kubectl_runtime.runtime.watch.watcher import watcher
from kubectl_runtime.testing import Simulation, eventually

RBAC = "rbac.authorization.k8s.io"
LIMIT = 30


class World:
    """A server with RBAC, an administrator, and `alice`, who may watch Namespaces, and ConfigMaps and Secrets where she
    was let."""

    def __init__(self, server: ApiServer, admin: Client) -> None:
        self.server, self.admin = server, admin
        self.namespaces = Api.all(admin, Namespace)
        for name, resources in (("spaces", ["namespaces"]), ("maps", ["configmaps", "secrets"])):
            self._of("ClusterRole").create({"metadata": {"name": name}, "rules": [
                {"apiGroups": [""], "resources": resources, "verbs": ["get", "list", "watch"]}]})
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
        self.simulation.settle(60)  # where something waits for its next attempt
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
SEEDS = [0, 1, pytest.param(2, marks=pytest.mark.long), pytest.param(3, marks=pytest.mark.long)]


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


class Reader(Seen):
    """A controller of ConfigMaps. A run reads the Secret that its ConfigMap names; `saw` has the results."""

    def __init__(self, simulation: Simulation, client: Client, api: Any, *, declared: bool = False) -> None:
        self.simulation, self.client = simulation, client
        self._runs: set[tuple[str | None, str]] = set()
        self.saw: dict[str, Any] = {}
        controller = Controller(api)
        self.controller = simulation.start(controller.reads(Secret) if declared else controller, self._reconcile)

    def _reconcile(self, obj: Any, ctx: Any) -> Action:
        self._runs.add((obj.namespace, obj.name))
        if obj.data.get("all"):
            self.saw[f"{obj.namespace}/{obj.name}"] = sorted(
                f"{one.namespace}/{one.name}" for one in ctx.read_all(Secret, labels="app=x"))
            return Action.await_change()
        where = obj.data.get("where", obj.namespace)
        found = ctx.read(Secret, ObjectRef.of(Secret, "key", where))
        self.saw[f"{obj.namespace}/{obj.name}"] = None if found is None else (found.metadata.labels or {}).get("v")
        return Action.await_change()


def reading(world: World, namespace: str, **data: str) -> None:
    world.maps(namespace).create({"metadata": {"name": "m"}, "data": data})


def secret(world: World, namespace: str, version: str | None) -> None:
    """The Secret with this version; None: delete it."""
    api = Api.namespaced(world.admin, Secret, namespace)
    if version is None:
        api.delete("key")
        return
    api.apply({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "key", "labels": {"v": version, "app": "x"}}},
              field_manager="test")


@RIGHTS
@HOW
@pytest.mark.parametrize("declared", [False, True], ids=["", "declared"])
def test_what_is_read_in_chosen_namespaces_is_watched_in_them_alone(how: str, user: str | None, declared: bool) -> None:
    with simulated() as (simulation, world):
        for name in ("team-a", "team-b", "other"):
            world.come(name, **({"team": "x"} if name != "other" else {}))
            secret(world, name, "1")
        reading(world, "team-a")
        client, names = simulation.client(world.server, user), NamespaceSet(["team-a", "team-b"])
        seen = Reader(simulation, client, chosen(how, client, names), declared=declared)
        assert seen.runs() == {"team-a/m"}
        assert seen.saw == {"team-a/m": "1"}
        stored = {record.key[0] for watch in seen.controller.assembly.watches.values()
                  for record in watch.stored.records.values()}
        assert stored == {"team-a", "team-b"}, "nothing of the other namespace"
        secret(world, "team-a", "2")
        assert (seen.runs(), seen.saw) == ({"team-a/m"}, {"team-a/m": "2"})
        secret(world, "team-b", "2")
        secret(world, "other", "2")
        assert seen.runs() == set(), "nobody has read these"
        secret(world, "team-a", None)
        assert (seen.runs(), seen.saw) == ({"team-a/m"}, {"team-a/m": None})
        secret(world, "team-a", "3")
        assert (seen.runs(), seen.saw) == ({"team-a/m"}, {"team-a/m": "3"})
        seen.end()


@RIGHTS
@pytest.mark.parametrize("how", ["labels", "set"])
def test_a_read_follows_its_namespace_in_and_out_of_the_chosen_ones(how: str, user: str | None) -> None:
    with simulated() as (simulation, world):
        for name in ("one", "two"):
            world.come(name, **({"team": "x"} if name == "one" else {}))
        reading(world, "one", where="two")
        client, names = simulation.client(world.server, user), NamespaceSet(["one"])
        seen = Reader(simulation, client, chosen(how, client, names))
        assert seen.runs() == {"one/m"}
        assert seen.saw == {"one/m": None}
        expected: str | None
        for version, is_chosen in enumerate((False, True, False, True, True, False, False)):
            world.label("two", team="x" if is_chosen else None)
            (names.add if is_chosen else names.discard)("two")
            seen.runs()
            expected = None if version % 3 == 2 else str(version)
            secret(world, "two", expected)
            assert seen.runs() == {"one/m"}, version
            assert seen.saw == {"one/m": expected}
        world.maps("one").patch("m", Patch.merge({"data": {"where": "one"}}))
        seen.runs(90)
        secret(world, "two", "unread")
        assert seen.runs() == set()
        assert not any("two" in name for name in seen.controller.assembly.watches), "its watch was given back"
        seen.end()


@RIGHTS
@HOW
def test_all_that_is_read_is_all_in_the_chosen_namespaces(how: str, user: str | None) -> None:
    with simulated() as (simulation, world):
        for name in ("team-a", "team-b", "other"):
            world.come(name, **({"team": "x"} if name != "other" else {}))
            secret(world, name, "1")
        reading(world, "team-a", all="yes")
        client, names = simulation.client(world.server, user), NamespaceSet(["team-a", "team-b"])
        seen = Reader(simulation, client, chosen(how, client, names))
        seen.runs()
        assert seen.saw == {"team-a/m": ["team-a/key", "team-b/key"]}
        world.come("team-c", team="x")
        secret(world, "team-c", "1")
        names.add("team-c")
        assert seen.runs() == {"team-a/m"}
        assert seen.saw == {"team-a/m": ["team-a/key", "team-b/key", "team-c/key"]}
        Api.namespaced(world.admin, Secret, "team-b").delete("key")
        world.namespaces.delete("team-b")
        names.discard("team-b")
        assert seen.runs() == {"team-a/m"}
        assert seen.saw == {"team-a/m": ["team-a/key", "team-c/key"]}
        seen.end()


@RIGHTS
@pytest.mark.parametrize("how", ["labels", "set"])
@pytest.mark.parametrize("seed", SEEDS)
def test_whatever_comes_goes_and_breaks_each_run_has_seen_the_last_state_of_what_it_reads(
        how: str, user: str | None, seed: int) -> None:
    rng, names = random.Random(seed), NamespaceSet()
    with simulated(seed) as (simulation, world):
        spaces = ["a", "b", "c", "d"]
        for name in spaces:
            world.come(name)
            reading(world, name, where=rng.choice(spaces))
        client = simulation.client(world.server, user)
        seen = Reader(simulation, client, chosen(how, client, names), declared=seed % 2 == 1)
        chosen_now: set[str] = set()
        secrets: dict[str, str | None] = dict.fromkeys(spaces)
        wheres = {name: world.maps(name).get("m").data["where"] for name in spaces}
        for turn in range(50):
            name = rng.choice(spaces)
            match rng.randrange(6):
                case 0 | 1:
                    chosen_now ^= {name}
                    world.label(name, team="t" if name in chosen_now else None)
                    names.set(chosen_now)
                case 2 | 3:
                    before, secrets[name] = secrets[name], None if rng.random() < 0.3 else str(turn)
                    if before is not None or secrets[name] is not None:
                        secret(world, name, secrets[name])
                case 4:
                    wheres[name] = rng.choice(spaces)
                    world.maps(name).patch("m", Patch.merge({"data": {"where": wheres[name]}}))
                case _:
                    disturb(world, rng)
            match rng.randrange(4):
                case 0:
                    simulation.run(rng.randrange(40))
                case 1 | 2:
                    simulation.settle(rng.choice([1, 20]))
        world.server.faults.clear()
        seen.runs(400)
        assert {one: seen.saw.get(f"{one}/m", "no run") for one in chosen_now} == {
            one: secrets[wheres[one]] for one in chosen_now}
        for name in spaces:
            secret(world, name, "last")
        assert seen.runs() == {f"{one}/m" for one in chosen_now}
        assert {seen.saw[f"{one}/m"] for one in chosen_now} <= {"last"}
        seen.end()


def test_rights_that_are_given_later_let_a_namespace_in_and_rights_that_are_taken_let_it_out() -> None:
    with simulated() as (simulation, world):
        for name in ("one", "two"):
            world.come(name, granted=name == "one", team="x")
            world.put(name, "m")
        client = simulation.client(world.server, "alice")
        seen = Seen(simulation, client, chosen("labels", client, NamespaceSet()))
        assert seen.runs() == {"one/m"}
        world.grant("two")
        assert seen.runs(70) == {"two/m"}
        world._of("RoleBinding", "one").delete("maps")
        seen.runs(300)  # a watch is asked for its rights when it begins
        assert seen.stored == {"two/m"}
        world.grant("one")
        assert seen.runs(70) == {"one/m"}
        assert seen.stored == {"one/m", "two/m"}
        seen.end()


def test_a_namespace_that_may_be_listed_and_not_watched_is_asked_again_without_being_joined() -> None:
    with simulated() as (simulation, world):
        world._of("ClusterRole").create({"metadata": {"name": "lists"}, "rules": [
            {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list"]}]})
        for name in ("one", "two"):
            world.come(name, granted=name == "one", team="x")
            world.put(name, "m")
        world._of("RoleBinding", "two").create(world._binding("lists"))
        client = simulation.client(world.server, "alice")
        seen = Seen(simulation, client, chosen("labels", client, NamespaceSet()))
        seen.runs(30)
        assert seen.stored == {"one/m"}
        assert seen.runs(300) == set()
        world.grant("two")
        assert seen.runs(70) == {"two/m"}
        assert seen.stored == {"one/m", "two/m"}
        seen.end()


@RIGHTS
@HOW
def test_a_namespace_that_is_made_again_with_its_name_is_another_one(how: str, user: str | None) -> None:
    with simulated() as (simulation, world):
        client, names = simulation.client(world.server, user), NamespaceSet(["team-a"])
        seen = Seen(simulation, client, chosen(how, client, names))
        for turn, settle in enumerate((5, 0, 0, 70)):
            world.come("team-a", team="x")
            world.put("team-a", f"m{turn}")
            assert seen.runs(70) == {f"team-a/m{turn}"}
            assert seen.stored == {f"team-a/m{turn}"}
            world.maps("team-a").delete(f"m{turn}")
            world.namespaces.delete("team-a")
            if settle:
                simulation.settle(settle)
        simulation.settle(5)
        assert seen.stored == set()
        seen.end()


@RIGHTS
@pytest.mark.parametrize("how", ["labels", "set"])
def test_a_set_that_changes_while_a_list_is_in_progress_is_the_one_that_counts(how: str, user: str | None) -> None:
    with simulated() as (simulation, world):
        for name in ("one", "two", "three"):
            world.come(name, **({"team": "x"} if name != "three" else {}))
            for number in range(5):
                world.put(name, f"m{number}")
        client, names = simulation.client(world.server, user), NamespaceSet(["one", "two"])
        seen = Seen(simulation, client, chosen(how, client, names), watch=WatcherConfig(page_size=2))
        turns = iter(range(100))
        while next(turns) < 12:  # somewhere in the pages of the first list
            simulation.run(3)
            turn = next(turns)
            world.label("two", team=None if turn % 4 == 1 else "x")
            (names.discard if turn % 4 == 1 else names.add)("two")
            world.label("three", team="x" if turn % 4 == 1 else None)
            (names.add if turn % 4 == 1 else names.discard)("three")
        world.label("two", team=None)
        names.discard("two")
        world.label("three", team="x")
        names.add("three")
        simulation.settle(70)
        assert seen.stored == {f"{name}/m{number}" for name in ("one", "three") for number in range(5)}
        world.maps("three").patch("m0", Patch.merge({"data": {"k": "v"}}))
        world.maps("two").patch("m0", Patch.merge({"data": {"k": "v"}}))
        seen.runs(0)
        assert {obj.data.get("k") for obj in seen.controller.store if obj.name == "m0"} == {None, "v"}
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


def disturb(world: World, rng: random.Random) -> None:
    """One of the ways in which a watch of the cluster, of a namespace or of the namespaces is interrupted."""
    faults = world.server.faults
    match rng.randrange(6):
        case 0:
            faults.on("watch").first().expire_watch()
        case 1:
            faults.on("list").first().status(500)
        case 2:
            faults.on("watch").first(2).drop()
        case 3:
            world.server.expire_history()
            faults.on("watch").first().end_watch()
        case 4:
            faults.on("watch").first().end_watch(1)
        case _:
            faults.on("list", resource="configmaps").first(2).throttle(2)


@RIGHTS
@HOW
@pytest.mark.parametrize("seed", SEEDS)
def test_whatever_comes_goes_and_breaks_the_store_is_what_a_filter_would_be(
        how: str, user: str | None, seed: int) -> None:
    rng, names = random.Random(seed), NamespaceSet()
    with simulated(seed) as (simulation, world):
        client = simulation.client(world.server, user)
        seen = Seen(simulation, client, chosen(how, client, names), watch=WatcherConfig(page_size=3))
        versions: dict[str, int] = {}
        back: list[str] = []
        watch = next(iter(seen.controller.assembly.watches.values()))

        def hear(event: Any) -> Any:
            obj = getattr(event, "obj", None)
            if isinstance(event, Apply):
                if int(obj.resource_version) <= versions.get(obj.uid, 0):
                    back.append(f"{obj.ref} from {versions[obj.uid]} to {obj.resource_version}")
                versions[obj.uid] = int(obj.resource_version)
            elif obj is not None:
                versions.pop(obj.uid, None)
            return ()

        watch.subscribe(hear, lambda _: None)
        spaces: dict[str, bool] = {}  # by name, whether it is chosen
        objects: dict[str, set[str]] = {}
        for turn in range(60):
            name = rng.choice(list(spaces)) if spaces else ""
            match rng.randrange(8):
                case 0 | 1 if len(spaces) < 8:
                    name = f"{rng.choice(['team', 'other'])}-{turn}"
                    spaces[name], objects[name] = name.startswith("team"), set()
                    world.come(name, **({"team": "t"} if spaces[name] else {}))
                    if spaces[name]:
                        names.add(name)
                case 2 if name and how != "like":
                    spaces[name] = not spaces[name]
                    world.label(name, team="t" if spaces[name] else None)
                    (names.add if spaces[name] else names.discard)(name)
                case 3 if name:
                    for obj in objects.pop(name):
                        world.maps(name).delete(obj)
                    world.namespaces.delete(name)
                    names.discard(name)
                    del spaces[name]
                case 4 if name and objects[name]:
                    gone = objects[name].pop()
                    world.maps(name).delete(gone)
                case 5 if name and objects[name]:
                    world.maps(name).patch(min(objects[name]), Patch.merge({"data": {"turn": str(turn)}}))
                case 6:
                    disturb(world, rng)
                case _ if name:
                    objects[name].add(f"m{turn}")
                    world.put(name, f"m{turn}")
            match rng.randrange(6):  # several changes may come at once
                case 0 | 1:
                    simulation.run(rng.randrange(40))
                case 2 | 3:
                    simulation.settle(rng.choice([1, 20]))
        world.server.faults.clear()
        simulation.settle(400)
        assert seen.stored == {f"{name}/{obj}" for name, is_chosen in spaces.items() if is_chosen
                               for obj in objects[name]}
        assert back == []
        there = {obj.uid: obj.resource_version for name in spaces for obj in world.maps(name).list().items}
        assert all(there[obj.uid] == obj.resource_version for obj in seen.controller.store)
        seen.end()


@RIGHTS
@pytest.mark.parametrize("how", ["labels", "set"])
def test_what_happened_before_a_namespace_was_joined_is_not_played_again(how: str, user: str | None) -> None:
    with simulated() as (simulation, world):
        for name in ("one", "two"):
            world.come(name, **({"team": "x"} if name == "one" else {}))
        client, names = simulation.client(world.server, user), NamespaceSet(["one"])
        seen = Seen(simulation, client, chosen(how, client, names))
        assert seen.runs() == set()
        heard: list[tuple[str, str, Any]] = []
        watch = next(iter(seen.controller.assembly.watches.values()))

        def hear(event: Any) -> Any:
            if isinstance(event, Apply | Delete):
                heard.append((type(event).__name__, event.obj.name, event.obj.data))
            return ()

        watch.subscribe(hear, lambda _: None)
        for name in ("kept", "gone", "late"):  # nobody has read of these yet
            world.put("two", name)
        world.maps("two").patch("kept", Patch.merge({"data": {"k": "new"}}))
        world.maps("two").delete("gone")
        world.label("two", team="y")
        names.add("two")
        world.maps("two").delete("late")
        world.put("two", "later")
        assert seen.runs() == {"two/kept", "two/later"}
        assert sorted(heard, key=str) == [("Apply", "kept", {"k": "new"}), ("Apply", "later", {})]
        seen.end()


def test_a_namespace_without_the_right_is_told_once_and_asked_again(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    with simulated() as (simulation, world):
        for name in ("team-a", "team-b"):
            world.come(name, granted=False)
            world.put(name, "m")
        world.grant("team-a")
        client = simulation.client(world.server, "alice")
        seen = Seen(simulation, client, chosen("like", client, NamespaceSet()))
        assert seen.runs(300) == seen.stored == {"team-a/m"}
        assert [record.message for record in caplog.records if "skipping namespace team-b" in record.message
                and "Grant list and watch in it" in record.message] == [caplog.records[0].message]
        assert len(caplog.records) == 1
        world.grant("team-b")
        assert seen.runs(61) == {"team-b/m"}  # by itself: a role is bound after its namespace was made
        world.come("team-c", granted=False)
        world.put("team-c", "m")
        assert seen.runs(1) == set()
        world.grant("team-c")
        assert seen.runs(1) == set()
        world.label("team-c", note="x")
        assert seen.runs(1) == {"team-c/m"}  # as it has changed
        world._of("RoleBinding", "team-c").delete("maps")
        world.server.drop_connections()
        seen.runs(400)
        assert seen.stored == {"team-a/m", "team-b/m"}
        assert sum("team-c" in record.message for record in caplog.records) <= 4
        seen.end()


def test_who_may_list_the_cluster_and_not_watch_it_gets_a_watch_of_each() -> None:
    with simulated() as (simulation, world):
        world._of("ClusterRole").create({"metadata": {"name": "lists"}, "rules": [
            {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list"]}]})
        world._of("ClusterRoleBinding").create(world._binding("lists"))
        for name in ("team-a", "other"):
            world.come(name)
            world.put(name, "m")
        client = simulation.client(world.server, "alice")
        seen = Seen(simulation, client, chosen("like", client, NamespaceSet()))
        assert seen.runs() == seen.stored == {"team-a/m"}
        world.put("team-a", "n")
        world.maps("team-a").delete("m")
        assert seen.runs() == {"team-a/n"}
        assert seen.stored == {"team-a/n"}
        seen.end()


def test_more_than_a_hundred_namespaces_one_by_one_are_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    with simulated() as (simulation, world):
        names = NamespaceSet(f"n{number:03}" for number in range(MOST + 2))
        for name in names:
            world.come(name)
        world.put(f"n{MOST:03}", "late")
        client = simulation.client(world.server, "alice")
        seen = Seen(simulation, client, Api.namespaces(client, ConfigMap, names))
        assert seen.runs() == set()
        assert seen.watches == MOST + 1
        assert [record.message.partition(": ")[2][:33] for record in caplog.records] == [
            "2 namespaces are not watched. Wit"]
        names.discard("n000")
        assert seen.runs() == {f"n{MOST:03}/late"}  # it takes the place
        assert len(caplog.records) == 1
        seen.end()


def test_without_the_right_to_watch_namespaces_the_error_says_so(caplog: pytest.LogCaptureFixture) -> None:
    with simulated() as (simulation, world):
        client = simulation.client(world.server, "bob")
        seen = Seen(simulation, client, chosen("labels", client, NamespaceSet()))
        simulation.settle(60)
        assert not seen.controller.is_ready
        missing = seen.controller.assembly.gate.missing()
        assert "configmaps in the namespaces of labels team" in missing
        assert "the namespaces are not known: cannot list namespaces" in missing
        assert "grant the verb 'list' on resource 'namespaces'" in missing
        seen.end()


@pytest.mark.parametrize("arguments", [
    {}, {"like": ""}, {"like": "Team-*"}, {"like": "team/*"}, {"like": 5}, {"like": "[a-z]"}, {"like": "a" * 64},
    {"labels": ""}, {"labels": {}}, {"labels": "a in ("}, {"labels": 5}, {"namespaces": []}, {"namespaces": "team"},
    {"namespaces": ["a"], "like": "a*"}, {"namespaces": NamespaceSet(["a"]), "labels": "a"}])
def test_what_chooses_nothing_is_refused(arguments: dict[str, Any]) -> None:
    with Simulation() as simulation, pytest.raises(RequestError):
        Api.namespaces(simulation.client(simulation.serve()), ConfigMap, **arguments)


def test_what_cannot_be_done_with_several_namespaces_is_refused() -> None:
    for names in ("team", None, 5, [""], ["A"], [None], ["a/b"]):
        with pytest.raises(RequestError):
            NamespaceSet(names)  # type: ignore[arg-type]
    with Simulation() as simulation:
        client = simulation.client(simulation.serve())
        api = Api.namespaces(client, ConfigMap, like="a*")
        with pytest.raises(RequestError, match="cluster-scoped"):
            Api.namespaces(client, Namespace, like="a*")
        with pytest.raises(RequestError, match="a stream has only one"):
            watcher(api)  # type: ignore[call-overload]
        with pytest.raises(RequestError, match="verify"):
            watch_store(api, WatcherConfig(verify=60))
        for own, children in ((api, ["b", "c"]), (Api.namespaces(client, ConfigMap, ["b"]), "a*")):
            of_children = Api.namespaces(client, ConfigMap, like=children) if isinstance(
                children, str) else Api.namespaces(client, ConfigMap, children)
            with pytest.raises(RequestError, match="can have no owner"):
                Controller(own).owns(of_children)
        Controller(api).owns(Api.namespaces(client, ConfigMap, ["a1", "b"])).owns(Api.all(client, ConfigMap))


def threads() -> set[str]:
    return {thread.name for thread in threading.enumerate() if thread.name.startswith("watch ")}


@pytest.mark.parametrize("user", [None, "alice"], ids=["cluster", "each"])
def test_threads_follow_a_set_and_none_is_left(user: str | None) -> None:
    before = threads()
    with ApiServer(authorization_mode="RBAC") as server, server.client() as admin, server.client(user) as client:
        world, names = World(server, admin), NamespaceSet(["one"])
        for name in ("one", "two", "three"):
            world.come(name)
            world.put(name, "m")
        api = Api.namespaces(client, ConfigMap, names)
        with watch_store(api, modify=lambda obj: obj) as store:
            store.wait_until_ready(LIMIT)
            assert [obj.namespace for obj in store] == ["one"]
            names.add("two", "three")
            eventually(lambda: len(store), lambda found: found == 3, timeout=LIMIT)
            assert len(threads() - before) == (1 if user is None else 4)
            world.maps("three").patch("m", Patch.merge({"data": {"k": "v"}}))
            eventually(lambda: store.get("m", "three"), lambda obj: obj is not None and obj.data == {"k": "v"},
                       timeout=LIMIT)
            names.set(["three"])
            eventually(lambda: len(store), lambda found: found == 1, timeout=LIMIT)
            eventually(lambda: len(threads() - before), lambda found: found == (1 if user is None else 2),
                       timeout=LIMIT)
        assert threads() == before


def test_what_this_process_writes_is_read_at_once_where_it_is_chosen() -> None:
    with ApiServer() as server, server.client() as client:
        names = NamespaceSet(["one"])
        for name in ("one", "two"):
            Api.all(client, Namespace).create({"metadata": {"name": name}})
        with watch_store(Api.namespaces(client, ConfigMap, names)) as store:
            store.wait_until_ready(LIMIT)
            for name in ("one", "two"):
                Api.namespaced(client, ConfigMap, name).create({"metadata": {"name": "m"}})
            assert [obj.namespace for obj in store] == ["one"]
            names.set(["two"])
            eventually(lambda: [obj.namespace for obj in store], lambda found: found == ["two"], timeout=LIMIT)


@pytest.mark.parametrize("user", [None, "alice"], ids=["cluster", "each"])
def test_a_set_that_changes_all_the_time_misses_nothing_over_sockets(user: str | None) -> None:
    rng = random.Random(7)
    with ApiServer(authorization_mode="RBAC") as server, server.client() as admin, server.client(user) as client:
        world, names, spaces = World(server, admin), NamespaceSet(["n0"]), [f"n{number}" for number in range(5)]
        for name in spaces:
            world.come(name)
            world.put(name, "first")
        with watch_store(Api.namespaces(client, ConfigMap, names)) as store:
            store.wait_until_ready(LIMIT)
            for turn in range(60):
                name = rng.choice(spaces)
                (names.add if rng.random() < 0.6 else names.discard)(name)
                world.put(rng.choice(spaces), f"m{turn}")
                if turn % 3 == 0:
                    world.maps(rng.choice(spaces)).patch("first", Patch.merge({"data": {"turn": str(turn)}}))
            names.set(spaces[:3])
            wanted = {(obj.uid, obj.resource_version) for name in spaces[:3] for obj in world.maps(name).list().items}
            eventually(lambda: {(obj.uid, obj.resource_version) for obj in store}, lambda found: found == wanted,
                       timeout=LIMIT)
            assert store.watch_state.consecutive_failures == 0
            assert store.watch_state.relists == 0


def test_users_of_the_same_choice_share_its_watch_and_others_do_not() -> None:
    with Simulation() as simulation:
        client, names = simulation.client(simulation.serve()), NamespaceSet(["a"])
        shared = client.shared.get(SharedWatches)
        same = [({"like": "a*"}, {"like": "a*"}), ({"labels": "team"}, {"labels": "team"}),
                ({"labels": {"a": "b"}}, {"labels": "a=b"}), ({"namespaces": names}, {"namespaces": names})]
        other = [({"like": "a*"}, {"like": "b*"}), ({"labels": "team"}, {"labels": "team", "like": "a*"}),
                 ({"namespaces": names}, {"namespaces": NamespaceSet(["a"])})]
        for choices, count in ((same, 1), (other, 2)):
            for one, two in choices:
                stores = [watch_store(Api.namespaces(client, ConfigMap, **choice)) for choice in (one, two)]
                assert len(shared) == count, (one, two)
                for store in stores:
                    store.close()


@pytest.mark.parametrize("phase", ["ready", "at once", "no rights"])
@pytest.mark.parametrize("user", [None, "alice"], ids=["cluster", "each"])
def test_a_controller_that_stops_leaves_no_thread(user: str | None, phase: str) -> None:
    before = {*threading.enumerate()}
    with ApiServer(authorization_mode="RBAC") as server, server.client() as admin:
        world = World(server, admin)
        for name in ("one", "two"):
            world.come(name, team="x")
            world.put(name, "m")
        with server.client("bob" if phase == "no rights" else user) as client:
            ran: list[str | None] = []
            of_teams = Api.namespaces(client, ConfigMap, labels="team")
            controller = Controller(of_teams).owns(Api.namespaces(client, ConfigMap, labels="team=x"))
            running = controller.start(lambda obj, _ctx: ran.append(obj.namespace) or Action.await_change())
            if phase == "ready":
                running.wait_until_ready(LIMIT)
                eventually(lambda: sorted(map(str, ran)), lambda found: found == ["one", "two"], timeout=LIMIT)
            elif phase == "no rights":
                eventually(lambda: running.why_not_ready, lambda why: "namespaces are not known" in why,
                           timeout=LIMIT)
            running.stop(10)
            assert [thread.name for thread in threading.enumerate()
                    if thread not in before and thread.name.startswith("watch ")] == []
            assert len(client.shared.get(SharedWatches)) == 0
