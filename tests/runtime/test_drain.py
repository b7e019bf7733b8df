"""Draining a Node of the embedded server, on a simulated clock: who goes, who stays, who is waited for."""
from __future__ import annotations

from datetime import timedelta

import pytest
import requests

from kubectl_runtime import Api, ApiError, Client, Config, RequestError, StopToken
from kubectl_runtime.kubectl.drain import DrainError, PodOutcome, drain
from kubectl_runtime.resources import Node, Pod
from kubectl_runtime.testing import ApiServer, SimClock


class Ticking(SimClock):
    """A clock on which other actors do their work while somebody waits."""

    def __init__(self):
        super().__init__(self_advancing=True)
        self.actors = []

    def wait(self, condition, timeout):
        for actor in list(self.actors):
            actor(self.monotonic())
        return super().wait(condition, timeout)


class Cluster:
    def __init__(self):
        self.clock = Ticking()
        self.server = ApiServer(clock=self.clock, controllers=())  # owners that do not exist are missed by nobody
        session = requests.Session()
        session.mount("http://", self.server.transport())
        self.client = Client(Config(cluster_url="http://simulated"), session=session, clock=self.clock)
        self.pods = Api.namespaced(self.client, Pod, "default")
        self.server.load([{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}}])

    def pod(self, name, *, owner=None, node="n1", phase="Running", annotations=None, volumes=(), labels=None):
        metadata = {"name": name, "namespace": "default", "annotations": annotations or {}, "labels": labels or {}}
        if owner:
            group, kind, owner_name = owner
            metadata["ownerReferences"] = [{"apiVersion": group, "kind": kind, "name": owner_name, "uid": "u",
                                            "controller": True}]
        ready = {"type": "Ready", "status": "True"}
        self.server.load([{"apiVersion": "v1", "kind": "Pod", "metadata": metadata,
                           "spec": {"nodeName": node, "volumes": list(volumes),
                                    "containers": [{"name": "app", "image": "x"}]},
                           "status": {"phase": phase, "conditions": [ready]}}])

    def kubelet(self, now):
        """Removes the Pods whose grace period has passed."""
        for pod in self.pods.list_all():
            if pod.metadata.deletion_timestamp is not None and self.clock.now() >= pod.metadata.deletion_timestamp:
                self.pods.delete(pod.name, grace_period_seconds=0)

    def names(self):
        return sorted(pod.name for pod in self.pods.list_all())

    def evictions(self):
        return [request.path.split("/")[-2] for request in self.server.requests
                if request.path.endswith("/eviction")]


SET = ("apps/v1", "ReplicaSet", "web")
EMPTY = {"name": "scratch", "emptyDir": {}}


@pytest.fixture
def cluster():
    made = Cluster()
    made.server.load([{"apiVersion": "apps/v1", "kind": "DaemonSet",
                       "metadata": {"name": "agent", "namespace": "default"},
                       "spec": {"selector": {"matchLabels": {"a": "b"}},
                                "template": {"metadata": {"labels": {"a": "b"}},
                                             "spec": {"containers": [{"name": "c", "image": "x"}]}}}}])
    yield made
    made.client.close()


def test_the_node_is_cordoned_and_pods_are_waited_for_until_they_are_gone(cluster):
    cluster.pod("a", owner=SET)
    cluster.pod("b", owner=SET)
    cluster.pod("elsewhere", owner=SET, node="n2")
    cluster.clock.actors.append(cluster.kubelet)
    report = drain(cluster.client, "n1", timeout=120)
    assert [(pod.ref.name, pod.outcome) for pod in report.pods] == [("a", PodOutcome.GONE), ("b", PodOutcome.GONE)]
    assert report.is_drained
    assert cluster.names() == ["elsewhere"]
    assert Api.all(cluster.client, Node).get("n1").spec.unschedulable is True
    assert 30 <= cluster.clock.monotonic() < 40  # the Pods' own grace period


@pytest.mark.parametrize("how", [lambda rule: rule.lose_answer(), lambda rule: rule.status(504, handled=True),
                                 lambda rule: rule.status(500, message="etcdserver: request timed out")],
                         ids=["lost", "504", "not done"])
def test_an_eviction_whose_answer_is_lost_is_asked_for_again(cluster, how):
    cluster.pod("a", owner=SET)
    cluster.clock.actors.append(cluster.kubelet)
    lost = how(cluster.server.faults.on("create", path="**/eviction").first(1))
    report = drain(cluster.client, "n1", timeout=120)
    assert (lost.taken, report.is_drained, cluster.names()) == (1, True, [])


@pytest.mark.parametrize(("pod", "flag", "said"), [
    ({"owner": ("apps/v1", "DaemonSet", "agent")}, "ignore_daemonsets", "it belongs to DaemonSet agent"),
    ({"owner": ("apps/v1", "DaemonSet", "gone")}, "force", "its DaemonSet gone is gone"),
    ({}, "force", "it has no controller"),
    ({"owner": SET, "volumes": [EMPTY]}, "delete_emptydir_data", "it has data in an emptyDir")])
def test_what_needs_a_flag_is_refused_without_it_and_then_nothing_is_evicted(cluster, pod, flag, said):
    cluster.pod("special", **pod)
    cluster.pod("web", owner=SET)
    with pytest.raises(DrainError, match=f"n1: nothing was evicted: default/special: {said}.*{flag}") as caught:
        drain(cluster.client, "n1", timeout=60)
    assert [(pod.ref.name, pod.outcome) for pod in caught.value.report.pods] == [
        ("special", PodOutcome.REFUSED), ("web", PodOutcome.PENDING)]
    assert cluster.evictions() == []
    report = drain(cluster.client, "n1", timeout=60, grace_period_seconds=0, **{flag: True})
    stays = flag == "ignore_daemonsets"
    assert [pod.ref.name for pod in report.of(PodOutcome.LEFT)] == (["special"] if stays else [])
    assert cluster.names() == (["special"] if stays else [])


def test_mirrors_stay_and_finished_pods_go_without_any_flag(cluster):
    cluster.pod("static", annotations={"kubernetes.io/config.mirror": "x"})
    cluster.pod("done", phase="Succeeded", volumes=[EMPTY])
    cluster.pod("crashed", phase="Failed", owner=("apps/v1", "DaemonSet", "agent"))
    report = drain(cluster.client, "n1", timeout=60, grace_period_seconds=0)
    assert cluster.names() == ["static"]
    assert [pod.ref.name for pod in report.of(PodOutcome.LEFT)] == ["static"]


def test_a_budget_is_waited_for_and_holds_up_no_other_pod(cluster):
    for name in ("guarded", "free"):
        cluster.pod(name, owner=SET, labels={"app": name})
    budget = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
              "metadata": {"name": "b", "namespace": "default"},
              "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "guarded"}}},
              "status": {"disruptionsAllowed": 0, "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1,
                         "observedGeneration": 1}}
    cluster.server.load([budget])
    seen = {}

    def allow(now):
        seen.setdefault(now, cluster.names())
        if now >= 22:
            budget["status"].update(disruptionsAllowed=1, currentHealthy=2)
            cluster.server.load([budget])
            cluster.clock.actors.remove(allow)

    cluster.clock.actors.append(allow)
    report = drain(cluster.client, "n1", timeout=120, grace_period_seconds=0)
    assert report.is_drained
    assert seen[min(seen)] == ["guarded"]
    assert cluster.evictions().count("guarded") == 7  # each 5 s, from 0 to 30
    assert cluster.evictions().count("free") == 1


def test_a_time_that_is_up_tells_the_budget_that_forbids(cluster):
    cluster.pod("guarded", owner=SET, labels={"app": "guarded"})
    cluster.server.load([{"apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
                          "metadata": {"name": "b", "namespace": "default"},
                          "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "guarded"}}},
                          "status": {"disruptionsAllowed": 0, "currentHealthy": 1, "desiredHealthy": 1,
                                     "expectedPods": 1, "observedGeneration": 1}}])
    with pytest.raises(DrainError, match="timeout of 12 s has passed: default/guarded: The disruption budget b needs"):
        drain(cluster.client, "n1", timeout=12, grace_period_seconds=0)
    assert cluster.clock.monotonic() == pytest.approx(12, abs=0.1)


def test_a_stop_token_ends_the_waiting(cluster):
    cluster.pod("slow", owner=SET)
    stop = StopToken(clock=cluster.clock)
    cluster.clock.actors.append(lambda now: stop.set("the program ends") if now >= 3 else None)
    with pytest.raises(DrainError, match="the program ends: default/slow: it has not ended yet") as caught:
        drain(cluster.client, "n1", timeout=None, stop=stop)
    assert [pod.outcome for pod in caught.value.report.pods] == [PodOutcome.PENDING]


def test_a_namesake_that_came_later_is_not_evicted_again(cluster):
    cluster.pod("web-0", owner=("apps/v1", "StatefulSet", "web"))

    def recreate(now):
        cluster.pods.delete("web-0", grace_period_seconds=0)
        cluster.pod("web-0", owner=("apps/v1", "StatefulSet", "web"), node="n2")
        cluster.clock.actors.clear()

    cluster.clock.actors.append(recreate)
    assert drain(cluster.client, "n1", timeout=60).is_drained
    assert cluster.names() == ["web-0"]
    assert cluster.evictions() == ["web-0"]


def test_only_selected_pods_go(cluster):
    cluster.pod("a", owner=SET, labels={"app": "a"})
    cluster.pod("b", owner=SET, labels={"app": "b"})
    drain(cluster.client, "n1", timeout=60, grace_period_seconds=0, pod_selector={"app": "a"})
    assert cluster.names() == ["b"]


def test_a_node_that_is_not_there_is_an_error(cluster):
    with pytest.raises(ApiError) as caught:
        drain(cluster.client, "n9", timeout=60)
    assert caught.value.is_not_found


@pytest.mark.parametrize("timeout", [0, -1, "10", True])
def test_a_timeout_that_leaves_no_time_is_refused_before_the_node_is_cordoned(cluster, timeout):
    with pytest.raises(RequestError, match=r"drain node n1: timeout must be (more than 0 )?seconds"):
        drain(cluster.client, "n1", timeout=timeout)
    assert len(cluster.server.requests) == 0


def test_a_timeout_may_be_a_timedelta(cluster):
    cluster.pod("slow", owner=("apps/v1", "ReplicaSet", "r"))
    with pytest.raises(DrainError, match=r"the timeout of 12 s has passed"):
        drain(cluster.client, "n1", timeout=timedelta(seconds=12))
