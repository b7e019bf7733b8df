"""A wait that ends in vain says what keeps the Pods from running, if it can."""
from __future__ import annotations

from typing import Any

import pytest

from kubectl_runtime.apiserver.server import ApiServer
from kubectl_runtime.kubectl.apply import apply_manifests
from kubectl_runtime.kubectl.report import ManifestsFailed
from kubectl_runtime.resources import Deployment, Pod
from tests.kubectl.conftest import World

WAITING = {"observedGeneration": 1, "replicas": 1, "updatedReplicas": 1}


def deployment(name: str = "web") -> dict[str, Any]:
    template = {"metadata": {"labels": {"app": name}}, "spec": {"containers": [{"name": "main", "image": "a"}]}}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name},
            "spec": {"selector": {"matchLabels": {"app": name}}, "template": template}}


def pod(world: World, name: str, app: str, status: dict[str, Any]) -> None:
    world.api(Pod).create({"metadata": {"name": name, "labels": {"app": app}},
                           "spec": {"containers": [{"name": "main", "image": "a"}]}})
    world.says(Pod, name, status)


def container(waiting: dict[str, Any], **more: Any) -> dict[str, Any]:
    state = {"name": "main", "image": "a", "imageID": "", "ready": False, "restartCount": 0,
             "state": {"waiting": waiting}, **more}
    return {"containerStatuses": [state]}


def in_vain(world: World, *names: str) -> str:
    for name in names:
        world.api(Deployment).create(deployment(name))
        world.says(Deployment, name, WAITING)
    with pytest.raises(ManifestsFailed) as told:
        apply_manifests(world.client, [deployment(name) for name in names], field_manager="m", wait=5, progress=False,
                        force=True)
    return str(told.value)


def test_each_trouble_is_told_once_with_one_pod_that_has_it(world: World) -> None:
    pull = container({"reason": "ImagePullBackOff", "message": "manifest unknown"})
    for name in ("web-1", "web-2"):
        pod(world, name, "web", pull)
    pod(world, "web-3", "web", {"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable",
                                                "message": "0/3 nodes are available"}]})
    pod(world, "other", "other", container({"reason": "CrashLoopBackOff"}))
    told = in_vain(world, "web")
    assert "within 5 s: 0 of 1 updated replicas are available; Pod web-1: main: ImagePullBackOff: manifest unkn" in told
    assert told.endswith("; Pod web-3: Unschedulable: 0/3 nodes are available")
    assert "web-2" not in told
    assert "other" not in told


def test_how_a_container_ended_is_told_and_one_that_only_begins_is_no_trouble(world: World) -> None:
    crash = container({"reason": "CrashLoopBackOff", "message": "back-off 40s"},
                      lastState={"terminated": {"exitCode": 3}})
    pod(world, "web-1", "web", crash)
    pod(world, "web-2", "web", container({"reason": "ContainerCreating"}))
    assert in_vain(world, "web").endswith("; Pod web-1: main: CrashLoopBackOff: back-off 40s (exit code 3)")


@pytest.mark.parametrize("code", [403, 500])
def test_who_may_not_list_pods_is_told_no_more_than_before_and_asks_once(world: World, code: int) -> None:
    pod(world, "web-1", "web", container({"reason": "ImagePullBackOff"}))
    refused = world.server.faults.on("list", resource="pods").status(code)
    told = in_vain(world, "web", "api")
    assert told.count("0 of 1 updated replicas are available") == 2
    assert "Pod web-1" not in told
    asked = world.server.requests.select("list", resource="pods")
    assert refused.taken == len(asked)
    assert not [request for request in asked if "api" in str(request.query)]


def test_pods_that_run_by_rules_say_it_too() -> None:
    with ApiServer(controllers=["*"]) as server, server.client() as client:
        server.kubelet.rules.on("app=web").fail_image_pull("manifest unknown")
        with pytest.raises(ManifestsFailed, match=r"; Pod web-\w+-\w+: main: ErrImagePull|ImagePullBackOff: .*"):
            apply_manifests(client, deployment(), field_manager="m", wait=2, progress=False)
