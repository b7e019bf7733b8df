"""A step of a controller that raises: what it was looking at is not lost, and the other controllers go on."""
from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

from kubectl_runtime import Api
from kubectl_runtime.apiserver.controllers import deployments, garbage, jobs, namespace_controller
from kubectl_runtime.apiserver.controllers.deployments import DeploymentController
from kubectl_runtime.apiserver.crds import controller as crd_controller
from kubectl_runtime.resources import ConfigMap, CustomResourceDefinition, Deployment, Namespace
from tests.apiserver.kubelet.world import World


@pytest.fixture
def world() -> Iterator[World]:
    made = World()
    yield made
    made.client.close()


class Planned(Exception):
    """What a step raises that has a defect."""


def fail(monkeypatch: pytest.MonkeyPatch, place: Any, name: str, times: int = 1) -> list[int]:
    """From now on `name` raises, so many times; its calls are counted."""
    real, calls = getattr(place, name), [0]

    def flawed(*args: Any, **more: Any) -> Any:
        calls[0] += 1
        if calls[0] <= times:
            raise Planned
        return real(*args, **more)

    monkeypatch.setattr(place, name, flawed)
    return calls


def advance(world: World, seconds: float) -> None:
    """As a server does: what a step raises ends nothing."""
    for _ in range(int(seconds * 2)):
        world.clock.advance(0.5)
        for _ in range(10):
            with suppress(Planned, ExceptionGroup):
                world.transport.settle()
                break


def quietly(call: Callable[[], object]) -> None:
    with suppress(Planned, ExceptionGroup):
        call()


def template() -> dict[str, Any]:
    return {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "a", "image": "a"}]}}


def deploy(world: World) -> None:
    Api.namespaced(world.client, Deployment, "default").create({
        "metadata": {"name": "web"}, "spec": {
            "replicas": 2, "selector": {"matchLabels": {"app": "web"}}, "template": template()}})


@pytest.mark.parametrize("controller", [DeploymentController, deployments.ReplicaSetController])
def test_an_object_whose_controller_failed_is_reconciled_later(
        world: World, monkeypatch: pytest.MonkeyPatch, controller: type) -> None:
    calls = fail(monkeypatch, controller, "reconcile")
    quietly(lambda: deploy(world))
    advance(world, 5)
    assert calls[0] > 1
    assert len(list(world.pods.list())) == 2


def test_what_a_failing_controller_left_is_tried_ever_later(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = fail(monkeypatch, DeploymentController, "reconcile", 1000)
    quietly(lambda: deploy(world))
    advance(world, 62)
    assert 5 <= calls[0] <= 7  # after 1, 2, 4, 8, 16 and 32 s


def test_a_controller_that_always_fails_does_not_keep_those_after_it(
        world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    namespaces, storage = Api.all(world.client, Namespace), world.server.core.cluster.storage
    namespaces.create({"metadata": {"name": "gone"}})
    fail(monkeypatch, namespace_controller.NamespaceController, "step")
    quietly(lambda: namespaces.delete("gone"))
    calls = fail(monkeypatch, garbage.GarbageCollector, "step", 10 ** 6)
    for kind in (garbage.GarbageCollector, crd_controller.CrdController):
        monkeypatch.setattr(kind, "due", lambda _: 0.0)  # there is always something to do, which always fails
    fail(monkeypatch, crd_controller.CrdController, "step", 10 ** 6)
    assert storage.get(namespace_controller.STORAGE, "", "gone") is not None
    advance(world, 5)
    assert calls[0] > 5
    assert storage.get(namespace_controller.STORAGE, "", "gone") is None


def test_a_namespace_is_emptied_though_a_step_failed(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    namespaces = Api.all(world.client, Namespace)
    namespaces.create({"metadata": {"name": "gone"}})
    calls = fail(monkeypatch, namespace_controller.NamespaceController, "_delete_contents")
    quietly(lambda: namespaces.delete("gone"))
    advance(world, 3)
    assert calls[0] > 1
    assert "gone" not in {namespace.name for namespace in namespaces.list()}


def test_what_a_deleted_object_owned_is_collected_though_a_step_failed(
        world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    maps = Api.namespaced(world.client, ConfigMap, "default")
    owner = maps.create({"metadata": {"name": "owner"}})
    maps.create({"metadata": {"name": "owned", "ownerReferences": [
        {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner.uid}]}})
    calls = fail(monkeypatch, garbage.GarbageCollector, "_look_at")
    quietly(lambda: maps.delete("owner"))
    advance(world, 3)
    assert calls[0] > 1
    assert "owned" not in {found.name for found in maps.list()}


def test_pods_of_a_job_that_is_gone_are_let_go_though_a_step_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(controllers=["job"])  # nothing runs the Pod
    world.jobs.create({"metadata": {"name": "job"}, "spec": {
        "template": {"spec": {**template()["spec"], "restartPolicy": "Never"}}}})
    (pod,) = world.pods.list()
    assert pod.finalizers
    calls = fail(monkeypatch, jobs, "_untrack")
    quietly(lambda: world.jobs.delete("job", propagation_policy="Background"))
    advance(world, 3)
    assert calls[0] > 1
    assert not world.pods.get(pod.name).finalizers


def test_a_definition_is_established_though_a_step_failed(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = fail(monkeypatch, crd_controller.CrdController, "_accept_names")
    definitions = Api.all(world.client, CustomResourceDefinition)
    quietly(lambda: definitions.create({"metadata": {"name": "things.test.example"}, "spec": {
        "group": "test.example", "scope": "Namespaced", "names": {"plural": "things", "kind": "Thing"},
        "versions": [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": {
            "type": "object"}}}]}}))
    advance(world, 3)
    assert calls[0] > 1
    conditions = definitions.get("things.test.example").to_dict()["status"]["conditions"]
    assert {"type": "Established", "status": "True"}.items() <= next(
        each for each in conditions if each["type"] == "Established").items()
