"""Under which manager a controller's runs write, and `ctx.api`: the Api where the object is."""
from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextvars import copy_context
from typing import Any

import pytest

from kubectl_runtime import (
    Action,
    Api,
    ApiResource,
    Client,
    Config,
    Context,
    Controller,
    Patch,
    RequestError,
    finalizer,
)
from kubectl_runtime.kinds import Scope
from kubectl_runtime.resources import ConfigMap, Namespace, Node, Pod, Secret
from kubectl_runtime.testing import ApiServer, Simulation, context_for


class World:
    def __init__(self) -> None:
        self.sim = Simulation()
        self.server = self.sim.serve()
        self.client = self.sim.client(self.server)
        self.maps = Api.namespaced(self.client, ConfigMap, "default")

    def run(self, reconcile: Any, *, client: Client | None = None, kind: Any = ConfigMap, **options: Any) -> None:
        """One run for the object `a`."""
        done: list[BaseException | None] = []

        def once(obj: Any, ctx: Context[None]) -> Action:
            if obj.name == "a" and not done:
                try:
                    reconcile(obj, ctx)
                    done.append(None)
                except BaseException as error:
                    done.append(error)
                    raise
            return Action.await_change()

        controller = self.sim.start(Controller(Api.all(client or self.client, kind), **options), once)
        self.sim.settle(1)
        controller.begin_stop()
        self.sim.settle(1)
        assert done == [None]

    def managers(self, name: str) -> set[tuple[str, str]]:
        return {(entry["manager"], entry["operation"]) for entry in self.maps.get(name)["metadata"]["managedFields"]}


@pytest.fixture
def world() -> Iterator[World]:
    made = World()
    with made.sim:
        made.maps.create(ConfigMap(name="a", data={"own": "1"}), field_manager="test")
        yield made


def write_all(obj: ConfigMap, ctx: Context[None]) -> None:
    maps = ctx.api(ConfigMap)
    maps.create(ConfigMap(name="created", data={"a": "b"}))
    maps.apply(ConfigMap(name="applied", data={"k": "v"}))
    maps.patch("a", Patch.merge({"data": {"k": "v"}}))
    changed = maps.get("created")
    changed.data = {"k": "v"}
    maps.replace(changed)


@pytest.mark.parametrize(("options", "manager"), [
    ({}, "configmap"), ({"name": "web"}, "web"), ({"name": "x" * 200}, "x" * 128), ({"name": "a\tb"}, "ab")])
def test_runs_write_under_the_name_of_their_controller(world: World, options: dict[str, Any], manager: str) -> None:
    world.run(write_all, **options)
    assert world.managers("created") == {(manager, "Update")}
    assert world.managers("applied") == {(manager, "Apply")}
    assert world.managers("a") == {("test", "Update"), (manager, "Update")}


def test_a_name_that_a_verb_says_counts_first_and_that_of_the_client_last(world: World) -> None:
    world.client.write_defaults = Client(Config(cluster_url="http://127.0.0.1:1"), field_manager="of-client"
                                         ).write_defaults

    def write(obj: ConfigMap, ctx: Context[None]) -> None:
        world.maps.create(ConfigMap(name="own", data={"a": "b"}))  # an Api from outside
        world.maps.create(ConfigMap(name="said", data={"a": "b"}), field_manager="said")
        for name, context in (("plain", None), ("copied", copy_context())):
            def create(name: str = name) -> None:
                world.maps.create(ConfigMap(name=name, data={"a": "b"}))

            thread = threading.Thread(target=create) if context is None else \
                threading.Thread(target=context.run, args=(create,))
            thread.start()
            thread.join(10)

    world.run(write, name="web")
    world.maps.create(ConfigMap(name="after", data={"a": "b"}))
    assert {name: world.managers(name) for name in ("own", "said", "plain", "copied", "after")} == {
        "own": {("web", "Update")}, "said": {("said", "Update")}, "plain": {("of-client", "Update")},
        "copied": {("web", "Update")}, "after": {("of-client", "Update")}}


def test_a_finalizer_is_the_controllers_as_well(world: World) -> None:
    def keep(obj: ConfigMap, ctx: Context[None]) -> None:
        finalizer(ctx.api(ConfigMap), "example.com/x", obj, apply=lambda _: Action.await_change(),
                  cleanup=lambda _: Action.await_change())

    world.run(keep, name="keeper")
    assert world.managers("a") == {("test", "Update"), ("keeper", "Update")}


def test_two_controllers_of_one_client_are_two_managers(world: World) -> None:
    for name in ("one", "two"):
        world.run(lambda obj, ctx: ctx.api(ConfigMap).apply({"metadata": {"name": "b"}, "data": {ctx.controller: ""}}),
                  name=name)
    assert world.managers("b") == {("one", "Apply"), ("two", "Apply")}


def test_a_controller_on_a_client_of_dry_runs_changes_nothing() -> None:
    with ApiServer() as server, Client(server.config()) as real, \
            Client(server.config(), dry_run=True) as dry:
        maps = Api.namespaced(real, ConfigMap, "default")
        before = maps.create(ConfigMap(name="a"))
        seen = threading.Event()

        def reconcile(obj: ConfigMap, ctx: Context[None]) -> Action:
            if obj.name == "a":
                write_all_dry(obj, ctx)
                seen.set()
            return Action.await_change()

        def write_all_dry(obj: ConfigMap, ctx: Context[None]) -> None:
            assert ctx.api(ConfigMap).apply(ConfigMap(name="b", data={"k": "v"})).data == {"k": "v"}
            ctx.api(ConfigMap).delete("a")
            finalizer(ctx.api(ConfigMap), "example.com/x", obj, apply=lambda _: Action.await_change(),
                      cleanup=lambda _: Action.await_change())
            ctx.record("Written", "nothing was")

        with Controller(Api.all(dry, ConfigMap)).start(reconcile):
            assert seen.wait(20)
        assert maps.get("a") == before or maps.get("a").resource_version == before.resource_version
        assert maps.get_opt("b") is None
        events = Api.all(real, ApiResource("events.k8s.io", "v1", "Event", "events")).list().items
        assert [event["reason"] for event in events if event["reason"] == "Written"] == []


def test_an_api_is_where_the_object_is(world: World) -> None:
    found: dict[str, tuple[str | None, Any]] = {}

    def look(obj: Any, ctx: Context[None]) -> None:
        for kind in (ConfigMap, Secret, Node, ApiResource("example.com", "v1", "AnyKind", "anykinds"),
                     ApiResource("example.com", "v1", "Wide", "wides", Scope.CLUSTER)):
            api = ctx.api(kind)
            found[api.resource.kind] = (api.namespace, api.client)

    world.run(look)
    assert found == {"ConfigMap": ("default", world.client), "Secret": ("default", world.client),
                     "Node": (None, world.client), "AnyKind": ("default", world.client), "Wide": (None, world.client)}


def test_the_api_of_an_object_without_a_namespace_is_not_guessed(world: World,
                                                                 caplog: pytest.LogCaptureFixture) -> None:
    Api.all(world.client, Namespace).create(Namespace(name="a"))

    def look(obj: Namespace, ctx: Context[None]) -> None:
        assert ctx.api(Namespace).get("a").name == ctx.api(Node).place.path("a").rpartition("/")[2]
        with pytest.raises(RequestError, match=r"is in no namespace, so ctx\.api\(Pod\)"):
            ctx.api(Pod)

    with caplog.at_level(logging.ERROR):
        world.run(look, kind=Namespace)
    assert not caplog.records


def test_a_unit_test_writes_as_a_run_does(world: World) -> None:
    obj = world.maps.get("a")
    ctx: Context[None] = context_for(obj, client=world.client)
    write_all(obj, ctx)
    assert world.managers("applied") == {("unit-test", "Apply")}
    assert world.client.write_defaults.field_manager is None
