"""Deleting a set of manifests: the order, the end that is waited for, what was not there."""
from __future__ import annotations

from typing import Any

import pytest

from kubectl_runtime.client.api.api import Api
from kubectl_runtime.core.base.errors import RequestError
from kubectl_runtime.core.requests.params import DeleteParams, Patch
from kubectl_runtime.kubectl.apply import apply_manifests, delete_manifests
from kubectl_runtime.kubectl.report import ManifestReport, ManifestsFailed
from kubectl_runtime.resources import ConfigMap, CustomResourceDefinition, Namespace, Pod
from tests.kubectl.conftest import World
from tests.kubectl.test_apply_manifests import SHOP, WIDGET, Widget, actions, config_map

HELD = {"metadata": {"finalizers": ["example.com/held"]}}
RELEASE = Patch.merge({"metadata": {"finalizers": None}})


def delete(world: World, *source: Any, **options: Any) -> ManifestReport:
    return delete_manifests(world.client, source, **{"progress": False, **options})


def apply(world: World, *source: Any) -> None:
    apply_manifests(world.client, source, field_manager="m", progress=False)


def deleted(world: World) -> list[str]:
    return [request.path.rpartition("/")[2] for request in world.server.requests.select("delete")]


def test_it_goes_the_other_way_round_and_all_is_gone(world: World) -> None:
    source = [SHOP, WIDGET, Widget.crd(), config_map("a"), config_map("b")]
    apply(world, *source)
    report = delete(world, *source)
    assert deleted(world) == ["b", "a", "w", "widgets.example.com", "shop"]
    assert {(outcome.action, outcome.ready) for outcome in report} == {("deleted", True)}
    assert Api.all(world.client, Namespace).get_opt("shop") is None
    assert Api.all(world.client, CustomResourceDefinition).get_opt("widgets.example.com") is None


def test_what_is_not_there_is_no_error(world: World) -> None:
    source = [SHOP, WIDGET, Widget.crd(), config_map("a")]
    report = delete(world, *source)
    assert {outcome.action for outcome in report} == {"absent"}
    assert not report.changed


def test_a_kind_that_neither_the_set_nor_the_server_has_is_told(world: World) -> None:
    apply(world, config_map("a"))
    with pytest.raises(ManifestsFailed, match=r"does not serve the kind Widget in example\.com/v1"):
        delete(world, WIDGET, config_map("a"))
    assert world.api(ConfigMap).get_opt("a") is None


def test_the_definition_waits_for_the_finalizers_of_its_objects(world: World) -> None:
    source = [SHOP, WIDGET, Widget.crd()]
    apply(world, *source)
    widgets = world.api(Widget, "shop")
    widgets.patch("w", Patch.merge(HELD))
    order: list[list[str]] = []

    def release() -> None:
        order.append(deleted(world))
        widgets.patch("w", RELEASE)

    world.after_looks(3, "widgets.example.com", release)
    delete(world, *source)
    assert order == [["w"]]


def test_what_does_not_go_is_told_with_its_finalizers_and_the_others_go(world: World) -> None:
    apply(world, config_map("a"), config_map("b"))
    world.api(ConfigMap).patch("a", Patch.merge(HELD))
    with pytest.raises(ManifestsFailed, match=r"ConfigMap default/a .*not gone within 9 s: it waits for its finalizers "
                                              r"example\.com/held") as caught:
        delete(world, config_map("a"), config_map("b"), wait=9)
    assert world.clock.monotonic() == pytest.approx(9, abs=1)
    assert world.api(ConfigMap).get_opt("b") is None
    assert str(caught.value.report.outcomes[0]) == "ConfigMap default/a deleted (and is still there)"


def test_a_namesake_that_comes_meanwhile_counts_as_gone(world: World) -> None:
    maps = world.api(ConfigMap)
    apply(world, config_map("a"))
    maps.patch("a", Patch.merge(HELD))

    def replace() -> None:
        maps.patch("a", RELEASE)
        maps.create(ConfigMap(name="a"))

    world.after_looks(2, "configmaps", replace)
    assert actions(delete(world, config_map("a"))) == {"a": "deleted"}
    assert maps.get_opt("a") is not None


def test_without_a_wait_it_only_asks(world: World) -> None:
    apply(world, config_map("a"))
    world.api(ConfigMap).patch("a", Patch.merge(HELD))
    report = delete(world, config_map("a"), wait=None, params=DeleteParams.foreground())
    assert [(outcome.action, outcome.ready) for outcome in report] == [("deleted", None)]
    [request] = world.server.requests.select("delete")
    assert request.json()["propagationPolicy"] == "Foreground"


def test_a_dry_run_is_refused(world: World) -> None:
    with pytest.raises(RequestError, match="dry run"):
        delete(world, config_map("a"), params=DeleteParams(dry_run=True))


def test_what_is_refused_keeps_no_other(world: World) -> None:
    apply(world, config_map("a"), config_map("b"))
    world.server.faults.on("delete", "/api/v1/namespaces/default/configmaps/b").status(403, "Forbidden", "not you")
    with pytest.raises(ManifestsFailed, match=r"ConfigMap default/b .*not you"):
        delete(world, config_map("a"), config_map("b"))
    assert world.api(ConfigMap).get_opt("a") is None


@pytest.mark.parametrize(("held", "said"), [
    ("pod", r"it waits for its Pods to end: p \(30 s of grace\)"),
    ("finalizer", r"Some content in the namespace has finalizers remaining: example\.com/held in 1 resource instances"),
    ("own", r"it waits for its finalizers example\.com/held")])
def test_a_namespace_that_does_not_go_is_told_with_what_it_waits_for(world: World, held: str, said: str) -> None:
    space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}}
    apply(world, space)
    if held == "pod":
        world.api(Pod, "shop").create({"metadata": {"name": "p"}, "spec": {
            "nodeName": "n", "containers": [{"name": "c", "image": "i"}]}})
        world.api(Pod, "shop").patch_status("p", Patch.merge({"status": {"phase": "Running"}}))
    elif held == "finalizer":
        world.api(ConfigMap, "shop").create({"metadata": {"name": "c", "finalizers": ["example.com/held"]}})
    else:
        Api.all(world.client, Namespace).patch("shop", Patch.merge(HELD))
    with pytest.raises(ManifestsFailed, match=said):
        delete(world, space, wait=9)
