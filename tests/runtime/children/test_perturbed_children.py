"""Crashes at every write, old lists and missed events: the children end alike."""
from __future__ import annotations

from typing import Any

import pytest

from kubectl_runtime import Action, Api, BoundController, Client, Context, Controller, Patch
from kubectl_runtime.resources import ConfigMap, Secret, Service
from kubectl_runtime.testing import CRASH, MISSED, STALE, Fault, perturb
from tests.runtime.children.world import Site


def build(client: Client) -> BoundController[Site]:
    def reconcile(obj: Site, ctx: Context[None]) -> Action:
        pages = obj.spec.get("pages", [])
        ctx.ensure(
            obj, Secret(name=f"{obj.name}-key", string_data={"k": "v"}),
            Service(name=obj.name, spec={"ports": [{"port": obj.spec.get("port", 80)}]}),  # type: ignore[arg-type]
            *(ConfigMap(name=f"{obj.name}-{page}", data={"page": page}) for page in pages), prune=True)
        return Action.await_change()

    controller = Controller(Api.all(client, Site), name="sites")
    for kind in (ConfigMap, Secret, Service):
        controller.owns(Api.all(client, kind))
    return controller.bind(reconcile)


def sites(client: Client) -> Api[Site]:
    return Api.namespaced(client, Site, "default")


def create(client: Client) -> None:
    sites(client).create(Site(name="a", spec={"pages": ["one", "two"]}))


def change(client: Client) -> None:
    api = sites(client)
    api.create(Site(name="a", spec={"pages": ["one", "two"]}))
    api.patch("a", Patch.merge({"spec": {"pages": ["two", "three"], "port": 81}}))
    Api.namespaced(client, ConfigMap, "default").patch("a-two", Patch.merge({"data": {"page": "edited"}}))
    Api.namespaced(client, Secret, "default").delete("a-key")


def move(client: Client) -> None:
    """A name goes from one owner to another, and an owner goes."""
    api = sites(client)
    api.create(Site(name="a", spec={"pages": ["b-x"]}))
    api.create(Site(name="a-b", spec={"pages": []}))
    api.patch("a", Patch.merge({"spec": {"pages": []}}))
    api.patch("a-b", Patch.merge({"spec": {"pages": ["x"]}}))
    api.create(Site(name="c", spec={"pages": ["one"]}))
    api.delete("c")


def strangers(client: Client) -> None:
    maps: Any = Api.namespaced(client, ConfigMap, "default")
    maps.create(ConfigMap(name="a-one", data={"page": "theirs"}), field_manager="kubectl")
    api = sites(client)
    api.create(Site(name="a", spec={"pages": ["one", "two"]}))
    maps.delete("a-one")
    api.patch("a", Patch.merge({"spec": {"port": 82}}))


@pytest.mark.timeout(400)
@pytest.mark.parametrize("story", [create, pytest.param(change, marks=pytest.mark.long),
                                   pytest.param(move, marks=pytest.mark.long),
                                   pytest.param(strangers, marks=pytest.mark.long)])
@pytest.mark.parametrize("fault", [CRASH, STALE, MISSED])
def test_children_end_alike_whatever_happens(story: Any, fault: Fault) -> None:
    report = perturb(build, story, faults={fault})
    assert report.ok, str(report)
    assert report.writes >= 4


@pytest.mark.parametrize("story", [change, move, strangers])
def test_each_story_ends_alike_after_one_crash(story: Any) -> None:
    report = perturb(build, story, only="crash-after-3")
    assert report.ok, str(report)
