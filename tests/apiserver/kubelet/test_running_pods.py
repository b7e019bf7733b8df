"""Pods that run on the embedded server: their life without rules, as a kubelet would tell it."""
from __future__ import annotations

from datetime import timedelta

import pytest

from kubectl_runtime import Api, ApiError, ListParams, Patch, await_condition, conditions
from kubectl_runtime.apiserver.kubelet import pod_loop
from kubectl_runtime.apiserver.kubelet.pod_machine import advance
from kubectl_runtime.apiserver.wire import HttpRequest
from kubectl_runtime.resources import Deployment, Namespace, Pod
from kubectl_runtime.resources.core_v1 import Event
from kubectl_runtime.testing import ApiServer

WELL = {"PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled"}


def test_a_pod_is_bound_runs_and_is_ready(world):
    world.create(containers=[{"name": "main", "image": "nginx", "resources": {"requests": {"cpu": "1"}},
                              "volumeMounts": [{"name": "data", "mountPath": "/data", "readOnly": True}]}],
                 volumes=[{"name": "data", "emptyDir": {}}])
    status = world.status()
    assert {each["type"] for each in status["conditions"] if each["status"] == "True"} == WELL
    assert world.pods.get("web")["spec"]["nodeName"] == "node-1"
    assert (status["phase"], status["hostIP"], status["podIP"]) == ("Running", "172.18.0.2", "10.244.0.2")
    assert status["podIPs"] == [{"ip": "10.244.0.2"}]
    assert status["hostIPs"] == [{"ip": "172.18.0.2"}]
    assert status["startTime"] == "2026-01-01T00:00:00Z"
    assert status["observedGeneration"] == 1
    container = world.container()
    identity = container.pop("containerID"), container.pop("imageID")
    assert identity[0].startswith("containerd://")
    assert identity[1].startswith("docker.io/library/nginx@sha256:")
    assert container == {
        "name": "main", "image": "docker.io/library/nginx:latest", "ready": True, "started": True, "restartCount": 0,
        "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}, "lastState": {},
        "resources": {"requests": {"cpu": "1"}}, "allocatedResources": {"cpu": "1"},
        "volumeMounts": [{"name": "data", "mountPath": "/data", "readOnly": True, "recursiveReadOnly": "Disabled"}]}


def test_a_watch_sees_each_step_of_it(world):
    since = world.version()
    world.create()
    steps = [(pod["status"]["phase"], bool(pod["spec"].get("nodeName")), "containerStatuses" in pod["status"],
              any(each["type"] == "Ready" and each["status"] == "True" for each in pod["status"].get("conditions", ())))
             for pod in world.history(since)]
    assert steps == [
        ("Pending", False, False, False), ("Pending", True, False, False), ("Pending", True, True, False),
        ("Running", True, True, True)]


def test_people_are_told_by_events(world):
    world.create()
    events = [each.to_dict() for each in Api.namespaced(world.client, Event, "default").list()]
    told = {each["reason"]: each for each in events}
    assert set(told) == {"Scheduled", "Pulled", "Created", "Started"}
    assert told["Scheduled"]["message"] == "Successfully assigned default/web to node-1"
    assert told["Scheduled"]["source"]["component"] == "default-scheduler"
    assert told["Started"]["source"]["component"] == "kubelet"


def test_the_status_is_the_kubelets_in_managed_fields(world):
    world.create()
    managers = {(each["manager"], each.get("subresource", "")) for each in
                world.pods.get("web").to_dict()["metadata"]["managedFields"]}
    assert ("kubelet", "status") in managers


def test_a_deleted_pod_takes_its_grace(world):
    world.create(terminationGracePeriodSeconds=20)
    world.pods.delete("web")
    assert world.phase() == "Running"
    world.advance(19)
    assert world.state() == "running"
    world.advance(1)
    assert world.pods.get_opt("web") is None


def test_a_shorter_grace_at_a_second_deletion_counts(world):
    world.create()
    world.pods.delete("web")
    world.advance(3)
    world.pods.delete("web", grace_period_seconds=5)
    world.advance(1.5)
    assert world.pods.get_opt("web") is not None
    world.advance(0.5)
    assert world.pods.get_opt("web") is None


def test_a_deletion_without_grace_is_over_at_once(world):
    world.create()
    world.pods.delete("web", grace_period_seconds=0)
    assert world.pods.get_opt("web") is None


def test_what_ends_a_pod_is_seen_before_it_goes(world):
    world.create(terminationGracePeriodSeconds=2)
    since = world.version()
    world.pods.delete("web")
    world.advance(2)
    seen = world.history(since)
    assert [each["status"]["phase"] for each in seen][:2] == ["Running", "Failed"]
    ended = seen[1]["status"]["containerStatuses"][0]["state"]["terminated"]
    assert (ended["exitCode"], ended["reason"], ended["finishedAt"]) == (137, "Error", "2026-01-01T00:00:02Z")


def test_finalizers_hold_a_pod_that_has_ended(world):
    world.create(meta={"finalizers": ["example.com/hold"]}, terminationGracePeriodSeconds=1)
    world.pods.delete("web")
    world.advance(1)
    assert world.phase() == "Failed"
    world.advance(60)
    world.pods.patch("web", Patch.merge({"metadata": {"finalizers": None}}))
    assert world.pods.get_opt("web") is None


def test_init_containers_run_one_after_the_other_and_sidecars_go_on(world):
    world.rules.on(container="first").succeed(after=2)
    world.rules.on(container="second").succeed(after=3)
    world.create(initContainers=[{"name": "first", "image": "a"},
                                 {"name": "side", "image": "s", "restartPolicy": "Always"},
                                 {"name": "second", "image": "b"}])
    assert world.conditions()["Initialized"] == ("False", "ContainersNotInitialized")
    states = [tuple(world.state(container=name) for name in ("first", "side", "second", "main"))]
    for _ in range(2):
        world.advance(2.5)
        states.append(tuple(world.state(container=name) for name in ("first", "side", "second", "main")))
    waiting = "waiting PodInitializing"
    assert states == [("running", waiting, waiting, waiting),
                      ("terminated Completed", "running", "running", waiting),
                      ("terminated Completed", "running", "terminated Completed", "running")]
    assert world.phase() == "Running"
    assert world.conditions()["Ready"] == ("True", "")


def test_a_failed_init_container_fails_a_pod_that_is_never_restarted(world):
    world.rules.on(container="init").crash(3)
    world.create(initContainers=[{"name": "init", "image": "a"}], restartPolicy="Never")
    assert world.phase() == "Failed"
    assert world.state() == "waiting PodInitializing"
    assert world.conditions()["Initialized"] == ("False", "PodFailed")


def test_a_pod_that_is_active_for_too_long_has_failed(world):
    world.create(activeDeadlineSeconds=30)
    world.advance(29)
    assert world.phase() == "Running"
    world.advance(1)
    status = world.status()
    assert (status["phase"], status["reason"]) == ("Failed", "DeadlineExceeded")
    assert world.conditions()["Ready"] == ("False", "PodFailed")


def test_readiness_gates_are_waited_for(world):
    world.create(readinessGates=[{"conditionType": "example.com/open"}])
    assert world.conditions()["ContainersReady"] == ("True", "")
    assert world.conditions()["Ready"] == ("False", "ReadinessGatesNotReady")
    conditions = world.status()["conditions"]
    world.pods.patch_status("web", Patch.merge({"status": {"conditions": [
        *conditions, {"type": "example.com/open", "status": "True"}]}}))
    assert world.conditions()["Ready"] == ("True", "")
    assert world.conditions()["example.com/open"] == ("True", "")


def test_addresses_are_given_once(world):
    for number in range(30):
        world.create(f"web-{number}")
    world.create("host", hostNetwork=True)
    addresses = [each["status"]["podIP"] for each in (pod.to_dict() for pod in world.pods.list())]
    assert len(set(addresses)) == 31
    assert "172.18.0.2" in addresses


def test_a_deployment_becomes_available_and_follows_its_pods(world):
    deployments = Api.namespaced(world.client, Deployment, "default")
    deployments.create({"metadata": {"name": "web"}, "spec": {
        "replicas": 3, "selector": {"matchLabels": {"app": "web"}}, "template": {
            "metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "a", "image": "a"}]}}}})
    world.advance(5)
    status = deployments.get("web").to_dict()["status"]
    assert (status["readyReplicas"], status["availableReplicas"]) == (3, 3)
    assert {each["type"]: each["status"] for each in status["conditions"]} == {"Available": "True",
                                                                              "Progressing": "True"}
    broken = world.rules.on("app=web", image="b").fail_image_pull()
    deployments.patch("web", Patch.strategic({"spec": {"template": {"spec": {"containers": [
        {"name": "a", "image": "b"}]}}}}))
    world.advance(60)
    status = deployments.get("web").to_dict()["status"]
    assert (status["updatedReplicas"], status["availableReplicas"], status["unavailableReplicas"]) == (1, 3, 1)
    broken.remove()
    world.advance(60)
    status = deployments.get("web").to_dict()["status"]
    assert (status["updatedReplicas"], status["availableReplicas"]) == (3, 3)


def test_a_namespace_with_running_pods_goes(world):
    namespaces = Api.all(world.client, Namespace)
    namespaces.create({"metadata": {"name": "team"}})
    Api.namespaced(world.client, Pod, "team").create(
        {"metadata": {"name": "a"}, "spec": {"containers": [{"name": "a", "image": "a"}]}})
    world.advance(1)
    namespaces.delete("team")
    world.advance(29)
    assert namespaces.get_opt("team") is not None
    world.advance(2)
    assert namespaces.get_opt("team") is None


def test_pods_of_other_schedulers_wait_to_be_bound(world):
    world.create(schedulerName="mine")
    assert "containerStatuses" not in world.status()
    world.server.handle(HttpRequest("POST", "/api/v1/namespaces/default/pods/web/binding", headers={
        "content-type": "application/json"}, body=b'{"metadata": {"name": "web"}, "target": {"name": "node-1"}}'))
    assert world.phase() == "Running"


def test_a_gated_pod_waits_for_its_gates(world):
    world.create(schedulingGates=[{"name": "example.com/gate"}])
    assert world.conditions() == {"PodScheduled": ("False", "SchedulingGated")}
    world.pods.patch("web", Patch.json([{"op": "remove", "path": "/spec/schedulingGates"}]))
    assert world.phase() == "Running"


def test_a_pod_without_a_node_says_why_and_gets_the_first_that_comes(world):
    world.create(nodeSelector={"disk": "ssd"})
    condition = world.status()["conditions"][0]
    assert (condition["type"], condition["status"], condition["reason"]) == ("PodScheduled", "False", "Unschedulable")
    assert condition["message"].startswith("0/1 nodes are available: 1 node(s) didn't match Pod's node affinity")
    world.server.load([{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "big", "labels": {"disk": "ssd"}}}])
    assert world.phase() == "Running"
    assert world.pods.get("web")["spec"]["nodeName"] == "big"
    assert world.status()["hostIP"] == "172.18.0.3"


def test_nodes_are_reported_and_what_they_bring_along_stays(world):
    world.server.load([{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "big", "labels": {"zone": "a"}},
                        "spec": {"taints": [{"key": "mine", "effect": "NoSchedule"}]},
                        "status": {"capacity": {"cpu": "4", "memory": "8Gi", "pods": "10"}}}])
    world.transport.settle()
    node = world.nodes.get("big").to_dict()
    assert node["status"]["allocatable"] == {"cpu": "4", "memory": "8Gi", "pods": "10"}
    assert node["spec"]["taints"] == [{"key": "mine", "effect": "NoSchedule"}]
    assert node["metadata"]["labels"] | {"zone": "a", "kubernetes.io/os": "linux"} == node["metadata"]["labels"]
    assert {each["type"]: each["status"] for each in node["status"]["conditions"]} == {
        "Ready": "True", "MemoryPressure": "False", "DiskPressure": "False", "PIDPressure": "False"}
    assert node["status"]["nodeInfo"]["operatingSystem"] == "linux"


def test_a_node_that_somebody_reports_is_believed(world):
    world.nodes.patch_status("node-1", Patch.strategic({"status": {"conditions": [
        {"type": "Ready", "status": "False", "reason": "Mine"}]}}))
    world.advance(60)
    ready = [each for each in world.nodes.get("node-1").to_dict()["status"]["conditions"] if each["type"] == "Ready"]
    assert [(each["status"], each["reason"]) for each in ready] == [("False", "Mine")]


def test_cordoned_nodes_get_no_pods_and_pods_are_spread(world):
    world.server.load([{"apiVersion": "v1", "kind": "Node", "metadata": {"name": f"node-{n}"}} for n in (2, 3)])
    world.nodes.patch("node-3", Patch.merge({"spec": {"unschedulable": True}}))
    for number in range(6):
        world.create(f"web-{number}")
    nodes = [pod["spec"]["nodeName"] for pod in world.pods.list()]
    assert sorted(nodes) == ["node-1"] * 3 + ["node-2"] * 3


def test_pods_of_a_node_that_is_gone_stay_but_can_be_deleted(world):
    world.create()
    world.nodes.delete("node-1")
    world.advance(1)
    assert world.phase() == "Running"
    world.pods.delete("web", grace_period_seconds=3)
    world.advance(3)
    assert world.pods.get_opt("web") is None


def test_a_snapshot_is_gone_back_to_with_its_pods(world):
    world.create()
    before = world.server.snapshot()
    world.create("other")
    world.pods.delete("web", grace_period_seconds=1)
    world.advance(1)
    world.server.restore(before)
    world.create("third")
    assert [pod.name for pod in world.pods.list()] == ["third", "web"]
    assert {world.phase(name) for name in ("web", "third")} == {"Running"}
    assert world.status("third")["podIP"] != world.status("web")["podIP"]


def test_a_new_cluster_has_a_node_too(world):
    world.create()
    world.server.restart(fresh=True)
    world.create("again")
    assert world.phase("again") == "Running"
    assert [node.name for node in world.nodes.list()] == ["node-1"]


def test_without_the_controller_pods_stay_pending_and_rules_are_refused(make_world):
    world = make_world(controllers=["garbage-collector"])
    world.create()
    world.advance(5)
    assert world.phase() == "Pending"
    with pytest.raises(ValueError, match='"kubelet"'):
        world.rules.on("app=web")


def test_the_same_seed_makes_the_same_pods(make_world):
    seen = []
    for _ in range(2):
        world = make_world()
        world.rules.on().crash(times=2)
        world.create()
        world.advance(30)
        seen.append(world.status())
    assert seen[0] == seen[1]


def test_over_sockets_a_pod_runs_soon_and_a_rule_that_goes_wakes_it():
    with ApiServer(controllers=["*"]) as server, server.client() as client:
        pods = Api.namespaced(client, Pod, "default")
        broken = server.kubelet.rules.on(name="bad").fail_image_pull()
        for name in ("web", "bad"):
            pods.create({"metadata": {"name": name}, "spec": {"containers": [{"name": "a", "image": "a"}]}})
        await_condition(pods, "web", conditions.is_pod_running, timeout=20)
        broken.remove()
        await_condition(pods, "bad", conditions.is_pod_running, timeout=8)  # its backoff alone would take ten seconds


def test_logs_are_what_a_rule_says_and_end_with_the_container(world):
    world.rules.on(name="web").log("hello\n").crash(after=5)
    world.create()
    assert world.pods.logs("web") == b"hello\n"
    world.advance(5)
    assert world.pods.logs("web", previous=True) == b"hello\n"
    assert world.pods.logs("web") == b"hello\n"
    world.pods.delete("web", grace_period_seconds=0)
    world.create()
    with pytest.raises(ApiError, match="previous terminated container"):
        world.pods.logs("web", previous=True)


def test_a_container_that_waits_has_no_log_yet(world):
    world.rules.on(name="slow").start(after=5)
    world.rules.on(name="bad").fail_image_pull()
    world.create("slow")
    world.create("bad")
    with pytest.raises(ApiError, match='container "main" in pod "slow" is waiting to start: ContainerCreating'):
        world.pods.logs("slow")
    with pytest.raises(ApiError, match="is waiting to start: trying and failing to pull image"):
        world.pods.logs("bad")
    world.advance(5)
    assert world.pods.logs("slow") == b""
    world.server.kubelet.logs("slow", "later\n")
    assert world.pods.logs("slow") == b"later\n"


def test_the_log_of_a_pod_that_has_ended_ends_too(world):
    world.rules.on().succeed()
    world.create(restartPolicy="Never")
    with world.pods.log_stream("web") as stream:
        assert list(stream.lines()) == []


def test_a_log_that_the_test_gave_is_not_touched(world):
    log = world.server.kubelet.logs("web", "mine\n")
    world.create()
    world.pods.delete("web", grace_period_seconds=0)
    world.create()
    log.write("still\n")
    assert world.pods.logs("web") == b"mine\nstill\n"


def test_time_may_be_a_timedelta(world):
    world.rules.on().start(after=timedelta(minutes=1))
    world.create()
    world.advance(59)
    assert world.phase() == "Pending"
    world.advance(1)
    assert world.phase() == "Running"
    assert [pod.name for pod in world.pods.list(ListParams(field_selector="status.phase=Running"))] == ["web"]


def test_a_pod_that_was_made_with_a_node_runs_there(world):
    world.create(nodeName="node-1")
    assert {kind for kind, (status, _) in world.conditions().items() if status == "True"} == WELL


def test_an_ephemeral_container_runs_beside_the_others(world):
    world.create()
    world.pods.patch_ephemeral_containers("web", Patch.strategic({"spec": {"ephemeralContainers": [
        {"name": "debug", "image": "busybox"}]}}))
    found = world.status()["ephemeralContainerStatuses"][0]
    assert (found["name"], list(found["state"])) == ("debug", ["running"])
    assert world.pods.logs("web", container="debug") == b""
    assert world.conditions()["Ready"] == ("True", "")
    world.pods.delete("web", grace_period_seconds=1)
    world.advance(1)
    assert world.pods.get_opt("web") is None


@pytest.mark.parametrize("status", [
    {"phase": "Whatever", "containerStatuses": None, "conditions": None},
    {"startTime": None, "containerStatuses": [{"name": "other", "image": "", "imageID": "", "ready": False,
                                               "restartCount": 0, "state": {"running": {}}}]},
    {"containerStatuses": [{"name": "main", "image": "", "imageID": "", "ready": False, "restartCount": 3,
                            "state": {"terminated": {"exitCode": 1}}}]}])
def test_a_status_that_somebody_else_wrote_is_put_right(world, status):
    world.create()
    world.pods.patch_status("web", Patch.merge({"status": status}))
    assert (world.phase(), world.state()) == ("Running", "running")


def test_a_pod_that_cannot_be_run_does_not_keep_the_others(world, monkeypatch, caplog):
    def broken(pod, *arguments):
        if pod["metadata"]["name"] == "bad":
            raise KeyError("a mistake of the library")
        return advance(pod, *arguments)

    monkeypatch.setattr(pod_loop, "advance", broken)
    world.create("bad")
    world.create("web")
    assert [world.phase(name) for name in ("bad", "web")] == ["Pending", "Running"]
    assert "the next step of Pod default/bad failed" in caplog.text


def test_pods_that_are_left_alone_stay_until_they_are_deleted(world):
    world.rules.on().be_ready(after=30)
    for name in ("still", "other"):
        world.create(name)
    world.server.kubelet.left_alone = frozenset({world.pods.get("still")["metadata"]["uid"]})
    before = world.status("still")
    world.advance(60)
    assert world.status("still") == before
    assert {each["type"] for each in world.status("other")["conditions"] if each["status"] == "True"} == WELL
    world.pods.delete("still")
    world.advance(60)
    assert world.pods.get_opt("still") is None
