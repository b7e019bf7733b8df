"""DaemonSets: which Nodes get a Pod, updates and their bounds, and what the status counts."""
from __future__ import annotations

import pytest

from kubectl_runtime.apiserver.controllers.daemonsets import fits
from tests.apiserver.controllers.sets_world import SetsWorld
from tests.apiserver.controllers.test_statefulsets import template


@pytest.fixture
def world():
    made = SetsWorld()
    for number in (2, 3):
        made.nodes.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": f"node-{number}", "labels": {
            "pool": "data"}}})
    made.settle()
    yield made
    made.client.close()


def make(world, name="agent", *, pod=None, **spec):
    world.daemons.create({"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": name}, "spec": {
        "selector": {"matchLabels": {"app": name}}, **spec, "template": {"metadata": {"labels": {"app": name}},
        "spec": {"terminationGracePeriodSeconds": 0,
            "containers": [{"name": "main", "image": "db:1"}], **(pod or {})}}}})
    world.settle()


def nodes(world):
    """Node -> image, of Pods that stay."""
    world.settle()
    return {pod["spec"]["nodeName"]: pod["spec"]["containers"][0]["image"]
            for pod in (each.to_dict() for each in world.pods.list()) if "deletionTimestamp" not in pod["metadata"]}


def test_each_node_gets_a_pod_and_so_do_those_that_come_later(world):
    make(world)
    assert sorted(nodes(world)) == ["node-1", "node-2", "node-3"]
    world.nodes.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-4"}})
    assert "node-4" in nodes(world)
    world.nodes.delete("node-4")
    world.settle()
    wanted = {"desiredNumberScheduled": 3, "currentNumberScheduled": 3, "numberReady": 3, "numberMisscheduled": 0,
              "numberAvailable": 3}
    assert wanted.items() <= world.set_status("agent", world.daemons).items()


def test_selectors_and_taints_choose_the_nodes(world):
    make(world, pod={"nodeSelector": {"pool": "data"}})
    assert sorted(nodes(world)) == ["node-2", "node-3"]
    world.merge(world.nodes, "node-2", {"metadata": {"labels": {"pool": None}}})
    assert sorted(nodes(world)) == ["node-3"]
    world.merge(world.nodes, "node-3", {"spec": {"taints": [{"key": "x", "effect": "NoExecute"}]}})
    assert nodes(world) == {}
    assert world.set_status("agent", world.daemons)["desiredNumberScheduled"] == 0


@pytest.mark.parametrize(("taints", "tolerations", "found"), [
    ([], [], (True, True)),
    ([{"key": "x", "effect": "NoSchedule"}], [], (False, True)),
    ([{"key": "x", "effect": "NoExecute"}], [], (False, False)),
    ([{"key": "x", "effect": "PreferNoSchedule"}], [], (True, True)),
    ([{"key": "x", "value": "y", "effect": "NoSchedule"}], [{"key": "x", "value": "y"}], (True, True)),
    ([{"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}], [], (True, True)),
    ([{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}], [], (False, True)),
])
def test_what_keeps_a_daemon_from_a_node(taints, tolerations, found):
    node = {"metadata": {"name": "n"}, "spec": {"taints": taints}}
    assert fits({"tolerations": tolerations}, node) == found


def test_an_update_replaces_one_at_a_time_and_waits_for_it(world):
    make(world)
    rule = world.rules.on(image="db:2").be_ready(after=10)
    world.merge(world.daemons, "agent", template("db:2"))
    assert sorted(nodes(world).values()) == ["db:1", "db:1", "db:2"]
    world.advance(11)
    assert sorted(nodes(world).values()) == ["db:1", "db:2", "db:2"]
    rule.remove()
    assert set(nodes(world).values()) == {"db:2"}
    assert world.set_status("agent", world.daemons)["updatedNumberScheduled"] == 3


@pytest.mark.parametrize(("rolling", "new"), [({"maxUnavailable": 2}, 2), ({"maxUnavailable": "100%"}, 3)])
def test_more_may_be_unavailable(world, rolling, new):
    make(world, updateStrategy={"type": "RollingUpdate", "rollingUpdate": rolling})
    world.rules.on(image="db:2").never_be_ready()
    world.merge(world.daemons, "agent", template("db:2"))
    assert sorted(nodes(world).values()).count("db:2") == new


def test_on_delete_waits_for_the_user(world):
    make(world, updateStrategy={"type": "OnDelete"})
    world.merge(world.daemons, "agent", template("db:2"))
    assert set(nodes(world).values()) == {"db:1"}
    victim = next(pod for pod in world.pods.list() if pod.to_dict()["spec"]["nodeName"] == "node-2")
    world.pods.delete(victim.name)
    assert nodes(world) == {"node-1": "db:1", "node-2": "db:2", "node-3": "db:1"}


def test_the_template_generation_and_the_hash_are_labels(world):
    make(world)
    labels = next(iter(world.pods.list())).metadata.labels
    assert labels["pod-template-generation"] == "1"
    assert labels["controller-revision-hash"] == next(iter(world.revisions.list())).name.rpartition("-")[2]
