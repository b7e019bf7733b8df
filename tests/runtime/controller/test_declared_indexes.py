"""Indexes that are declared with the watch, in every place where a watch is declared; in simulations."""
from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from msgspec import field

from kubectl_runtime import Action, Api, Context, Controller, RequestError, watch_store
from kubectl_runtime.objects import PartialView
from kubectl_runtime.resources import ConfigMap, Pod, Secret
from kubectl_runtime.testing import Simulation


def by_app(obj: Any) -> str | None:
    return obj.labels.get("app")


def labels(obj: Any) -> list[str]:
    return [*obj.labels]


def by_color(obj: Any) -> str | None:
    return obj.data.get("color")


class Colors(PartialView, frozen=True):
    data: dict[str, str] = field(default_factory=dict)


class World:
    def __init__(self) -> None:
        self.sim = Simulation()
        self.server = self.sim.serve()
        self.client = self.sim.client(self.server)
        maps = Api.namespaced(self.client, ConfigMap, "default")
        secrets = Api.namespaced(self.client, Secret, "default")
        maps.create(ConfigMap(name="a", labels={"app": "web"}, data={"color": "blue"}))
        maps.create(ConfigMap(name="b", labels={"app": "db", "x": "y"}))
        secrets.create(Secret(name="s", labels={"app": "web"}))

    def look(self, controller: Controller[Any], ask: Callable[[Any, Context[None]], Any]) -> Any:
        """What `ask` gives in a run for the object `a`. A controller that was started before is started again."""
        found: list[Any] = []

        def reconcile(obj: Any, ctx: Context[None]) -> Action:
            if obj.name == "a" and not found:
                try:
                    found.append(ask(obj, ctx))
                except RequestError as error:
                    found.append(error)
            return Action.await_change()

        running = self.sim.start(controller, reconcile)
        self.sim.settle(1)
        running.begin_stop()
        self.sim.settle(1)
        [answer] = found
        return answer


@pytest.fixture
def world() -> Iterator[World]:
    made = World()
    with made.sim:
        yield made


def names(found: Any) -> list[str]:
    return sorted(one.name for one in found)


def test_the_main_watch_has_its_indexes_from_the_beginning_and_at_each_start(world: World) -> None:
    controller = Controller(Api.all(world.client, ConfigMap), indexes={"app": by_app, "labels": labels})
    assert controller.store.by_index("app", "web") == []
    for _ in range(2):
        for ask in (lambda obj, ctx: ctx.store(ConfigMap), lambda obj, ctx: controller.store):
            found = world.look(controller, lambda obj, ctx, ask=ask: [
                names(ask(obj, ctx).by_index(*asked)) for asked in (("app", "web"), ("labels", "app"), ("app", "no"))])
            assert found == [["a"], ["a", "b"], []]


@pytest.mark.parametrize("declare", [
    lambda controller, api: controller.owns(api, indexes={"app": by_app}),
    lambda controller, api: controller.watches(api, lambda obj: None, indexes={"app": by_app}),
    lambda controller, api: controller.watches(api, lambda event: None, on="event", indexes={"app": by_app}),
    lambda controller, api: controller.watches(api.with_metadata_only(), lambda obj: None, indexes={"app": by_app}),
    lambda controller, api: controller.owns(api, indexes={"app": by_app}).watches(api, lambda obj: None),
    lambda controller, api: controller.watches(api, lambda obj: None).owns(api, indexes={"app": by_app}),
    lambda controller, api: controller.owns(api, indexes={"app": by_app}).owns(api, indexes={"app": by_app})])
def test_another_watch_has_its_indexes_where_it_is_declared(world: World, declare: Any) -> None:
    controller = declare(Controller(Api.all(world.client, ConfigMap)), Api.all(world.client, Secret))
    for _ in range(2):
        found = world.look(controller, lambda obj, ctx: names(ctx.metadata_store(Secret).by_index("app", "web")))
        assert found == ["s"]


def test_a_view_is_indexed_by_its_fields(world: World) -> None:
    controller = Controller(Api.all(world.client, Secret))
    Api.namespaced(world.client, Secret, "default").create(Secret(name="a"))
    controller.watches(Api.all(world.client, ConfigMap).with_fields(Colors), lambda obj: None,
                       indexes={"color": by_color})
    assert world.look(controller, lambda obj, ctx: names(ctx.store(Colors).by_index("color", "blue"))) == ["a"]


def test_several_namespaces_are_one_index(world: World) -> None:
    Api.namespaced(world.client, Secret, "kube-system").create(Secret(name="t", labels={"app": "web"}))
    both = Api.namespaces(world.client, Secret, ["default", "kube-system"])
    controller = Controller(Api.all(world.client, ConfigMap)).watches(both, lambda obj: None, indexes={"app": by_app})
    assert world.look(controller, lambda obj, ctx: names(ctx.store(Secret).by_index("app", "web"))) == ["s", "t"]


def test_an_index_may_be_added_again_with_an_equal_function_only(world: World) -> None:
    store = Controller(Api.all(world.client, ConfigMap), indexes={"app": by_app}).store
    for _ in range(3):
        store.add_index("app", by_app)
    with pytest.raises(RequestError, match=r"already has an index 'app', which uses .*by_app.*: .* that uses .*l"):
        store.add_index("app", labels)

    class Index:
        def of(self, obj: Any) -> str:
            return str(obj.name)

    index = Index()
    store.add_index("method", index.of)
    store.add_index("method", index.of)  # equal, though another object each time
    with pytest.raises(RequestError, match="already has an index"):
        store.add_index("method", Index().of)


def test_the_hint_names_what_declares_the_store(world: World) -> None:
    controller = Controller(Api.all(world.client, ConfigMap)).owns(Api.all(world.client, Secret)).watches(
        Api.all(world.client, Pod), lambda obj: None)
    hints = {ConfigMap: "Controller(api, indexes={'team': function}) adds one",
             Secret: ".owns(api, indexes={'team': function}) adds one",
             Pod: ".watches(api, mapper, indexes={'team': function}) adds one"}
    for kind, hint in hints.items():
        error = world.look(controller, lambda obj, ctx, kind=kind: ctx.metadata_store(kind).by_index("team", "red"))
        assert isinstance(error, RequestError)
        assert f"the store of {kind.api_resource.full_name} has no index 'team' (it has none): {hint}" in str(error)
    with pytest.raises(RequestError, match=r"watch_store\(api, indexes={'team': function}\) adds one"):
        watch_store(Api.all(world.client, ConfigMap)).by_index("team", "red")


def test_two_functions_of_one_name_are_refused_at_the_start(world: World) -> None:
    controller = Controller(Api.all(world.client, ConfigMap), indexes={"app": by_app}).watches(
        Api.all(world.client, ConfigMap), lambda obj: None, indexes={"app": labels})
    with pytest.raises(RequestError, match="already has an index 'app'"):
        world.sim.start(controller, lambda obj, ctx: Action.await_change())
