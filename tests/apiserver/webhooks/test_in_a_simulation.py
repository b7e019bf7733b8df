"""Controllers of the library in a simulation, over objects that a webhook converts, admits and sometimes does not."""

from __future__ import annotations

from typing import Any

import requests

from kubectl_runtime import Action, Api, ApiResource, Client, Config, Context, Controller, GroupVersionKind, Patch
from kubectl_runtime.objects import dynamic
from kubectl_runtime.testing import Simulation
from tests.apiserver.webhooks.hooked import deny
from tests.apiserver.webhooks.test_conversion import Widgets, between, respond

Widget = dynamic(ApiResource.from_gvk(GroupVersionKind("example.com", "v2", "Widget")))


class World:
    """A controller of Widgets of v2, which are stored as v1; `seen` is what it saw last of each."""

    def __init__(self, seed: int) -> None:
        self.simulation = Simulation(seed)
        self.widgets = Widgets(clock=self.simulation.clock)
        session = requests.Session()
        session.mount("http://", self.widgets.server.transport())
        self.client = Client(Config(cluster_url="http://simulated"), session=session, clock=self.simulation.clock)
        self.api = Api.namespaced(self.client, Widget, "default")
        self.seen: dict[str, Any] = {}
        self.running = self.simulation.start(Controller(self.api), self.reconcile)

    def reconcile(self, obj: Any, ctx: Context[None]) -> Action:
        self.seen[obj.name] = obj["spec"]
        if obj["spec"].get("length", 0) > 5:
            self.api.patch(obj.name, Patch.merge({"spec": {"length": 5}}))
        return Action.await_change()

    def end(self) -> None:
        self.running.begin_stop()
        self.simulation.settle(60)
        self.client.close()


def test_a_controller_sees_its_version_and_what_it_missed_while_the_webhook_failed() -> None:
    world = World(1)
    widgets = world.widgets
    widgets.make("v1", "a", size=1)
    world.simulation.run_until(lambda: world.seen.get("a") == {"length": 1})
    widgets.respond = lambda *_: {"response": None}
    widgets.merge(widgets.path("v1", "a"), {"spec": {"size": 2}})
    widgets.make("v1", "b", size=3)
    world.simulation.settle(120)
    assert world.seen == {"a": {"length": 1}}
    widgets.respond = respond
    world.simulation.run_until(lambda: world.seen == {"a": {"length": 2}, "b": {"length": 3}}, limit=120)
    widgets.make("v1", "c", size=9)
    world.simulation.run_until(lambda: world.seen.get("c") == {"length": 5}, limit=120)
    assert widgets("GET", widgets.path("v1", "c")).body["spec"] == {"size": 5}
    world.end()


def test_a_write_that_is_denied_is_tried_again_until_it_is_not() -> None:
    world = World(2)
    widgets = world.widgets
    widgets.hook("v", lambda _: deny("not now", code=403), rules=[{
        "apiGroups": ["example.com"], "apiVersions": ["v1"], "resources": ["widgets"], "operations": ["UPDATE"]}])
    widgets.make("v1", "a", size=9)
    world.simulation.settle(30)
    assert len(widgets.asked("v")) > 1
    assert widgets.asked("v")[0]["object"]["spec"] == between({"spec": {"length": 5}}, "example.com/v1")["spec"]
    widgets.answer("v", lambda _: {"allowed": True})
    world.simulation.run_until(lambda: world.seen.get("a") == {"length": 5}, limit=2000)
    world.end()
