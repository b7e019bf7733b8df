"""Endpoints and EndpointSlices follow the Pods of a Service."""
from __future__ import annotations

import pytest

from kubectl_runtime import Api
from kubectl_runtime.resources import Endpoints, EndpointSlice, Service
from tests.apiserver.controllers.sets_world import SetsWorld


@pytest.fixture
def world():
    made = SetsWorld()
    made.services, made.endpoints, made.slices = (
        Api.namespaced(made.client, kind, "default") for kind in (Service, Endpoints, EndpointSlice))
    yield made
    made.client.close()


def service(world, name="web", **spec):
    world.services.create({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": {
        "selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": 8080}], **spec}})
    world.settle()


def addresses(world, name="web"):
    """Pod -> whether it is ready, by the Endpoints and by the slices."""
    world.settle()
    subsets = world.endpoints.get(name).to_dict().get("subsets") or []
    old = {entry["targetRef"]["name"]: key == "addresses" for subset in subsets
           for key in ("addresses", "notReadyAddresses") for entry in subset.get(key) or ()}
    new = {entry["targetRef"]["name"]: entry["conditions"]["ready"] for each in world.slices.list()
           if each.metadata.labels["kubernetes.io/service-name"] == name for entry in each.to_dict()["endpoints"] or ()}
    assert old == new
    return old


def test_addresses_follow_the_readiness_of_pods(world):
    service(world)
    assert addresses(world) == {}
    rule = world.rules.on(name="b").never_be_ready()
    for name in ("a", "b"):
        world.create(name, labels={"app": "web"}, terminationGracePeriodSeconds=0)
    world.create("other", labels={"app": "other"})
    assert addresses(world) == {"a": True, "b": False}
    rule.remove()
    assert addresses(world) == {"a": True, "b": True}
    world.merge(world.pods, "a", {"metadata": {"labels": {"app": None}}})
    world.pods.delete("b")
    assert addresses(world) == {}


@pytest.mark.parametrize(("port", "number"), [
    ({"port": 80, "targetPort": 8080}, 8080), ({"port": 80}, 80), ({"port": 80, "targetPort": "http"}, 9090)])
def test_the_port_is_that_of_the_pod(world, port, number):
    service(world, ports=[port])
    world.create("a", labels={"app": "web"}, containers=[
        {"name": "main", "image": "x", "ports": [{"name": "http", "containerPort": 9090}]}])
    assert world.endpoints.get("web").to_dict()["subsets"][0]["ports"][0]["port"] == number
    assert next(iter(world.slices.list())).to_dict()["ports"][0]["port"] == number


def test_a_headless_service_names_the_pods_of_a_set(world):
    service(world, "db", clusterIP="None", selector={"app": "db"}, publishNotReadyAddresses=True)
    world.rules.on().never_be_ready()
    world.make_set(replicas=2, podManagementPolicy="Parallel")
    assert addresses(world, "db") == {"db-0": True, "db-1": True}
    found = next(iter(world.slices.list())).to_dict()
    assert sorted(entry["hostname"] for entry in found["endpoints"]) == ["db-0", "db-1"]
    assert "service.kubernetes.io/headless" in found["metadata"]["labels"]


def test_they_go_with_their_service_and_by_hand_ones_stay(world):
    service(world)
    service(world, "manual", selector=None)
    world.endpoints.create({"apiVersion": "v1", "kind": "Endpoints", "metadata": {"name": "manual"}})
    world.services.delete("web")
    world.settle()
    assert [found.name for found in world.endpoints.list()] == ["manual"]
    assert not list(world.slices.list())


def test_more_than_a_hundred_endpoints_are_several_slices(world):
    service(world)
    for number in range(103):
        world.create(f"p{number:03}", labels={"app": "web"})
    world.advance(0.5)
    assert len(addresses(world)) == 103
    assert sorted(len(each.to_dict()["endpoints"]) for each in world.slices.list()) == [3, 100]


def test_another_selector_selects_other_pods(world):
    service(world)
    for name, app in (("a", "web"), ("b", "blue"), ("c", "web")):
        world.create(name, labels={"app": app}, terminationGracePeriodSeconds=0)
    assert addresses(world) == {"a": True, "c": True}
    world.merge(world.services, "web", {"spec": {"selector": {"app": "blue"}}})
    world.merge(world.pods, "c", {"metadata": {"labels": {"app": "blue"}}})
    assert addresses(world) == {"b": True, "c": True}
    world.merge(world.pods, "a", {"metadata": {"labels": {"app": "blue", "more": "yes"}}})
    world.pods.delete("b")
    assert addresses(world) == {"a": True, "c": True}
    world.merge(world.services, "web", {"spec": {"selector": {"app": "web"}}})
    world.merge(world.pods, "c", {"metadata": {"labels": {"app": "web"}}})
    assert addresses(world) == {"c": True}


def test_endpoints_are_right_after_a_restore(world):
    service(world)
    world.create("a", labels={"app": "web"})
    assert addresses(world) == {"a": True}
    state = world.server.core.dump()
    world.create("b", labels={"app": "web"})
    world.merge(world.pods, "a", {"metadata": {"labels": {"app": None}}})
    assert addresses(world) == {"b": True}
    world.server.core.restore(state)
    assert addresses(world) == {"a": True}
