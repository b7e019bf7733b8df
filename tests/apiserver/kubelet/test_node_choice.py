"""Which node a Pod gets."""
from __future__ import annotations

import pytest

from kubectl_runtime.apiserver.kubelet.container_machine import backoff, image_id, image_name
from kubectl_runtime.apiserver.kubelet.nodes import choose_node


def node(name, labels=None, **spec):
    return {"metadata": {"name": name, "labels": labels or {}}, "spec": spec}


def pod(**spec):
    return {"metadata": {"name": "web"}, "spec": spec}


def required(*terms):
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}}}


TAINTED = node("tainted", taints=[{"key": "gpu", "value": "a100", "effect": "NoSchedule"}])


def test_the_node_with_the_fewest_pods_is_taken_and_the_first_of_several():
    nodes = [node("b"), node("a"), node("c")]
    assert choose_node(pod(), nodes, {"a": 1, "b": 0, "c": 0}) == ("b", "")
    assert choose_node(pod(), nodes, {}) == ("a", "")


def test_without_nodes_there_is_none():
    assert choose_node(pod(), [], {}) == ("", "no nodes available to schedule pods")


def test_each_refusal_is_told_with_its_count():
    nodes = [node("a", unschedulable=True), node("b", unschedulable=True), TAINTED, node("c", {"disk": "hdd"})]
    assert choose_node(pod(nodeSelector={"disk": "ssd"}), nodes, {}) == ("", (
        "0/4 nodes are available: 1 node(s) didn't match Pod's node affinity/selector, 1 node(s) had untolerated taint "
        "{gpu: a100}, 2 node(s) were unschedulable. preemption: 0/4 nodes are available: 4 Preemption is not helpful "
        "for scheduling."))


@pytest.mark.parametrize(("toleration", "fits"), [
    ({"key": "gpu", "operator": "Exists"}, True), ({"operator": "Exists"}, True),
    ({"key": "gpu", "value": "a100"}, True), ({"key": "gpu", "operator": "Equal", "value": "h100"}, False),
    ({"key": "gpu", "operator": "Exists", "effect": "NoExecute"}, False),
    ({"key": "other", "operator": "Exists"}, False)])
def test_taints_are_tolerated_as_the_pod_says(toleration, fits):
    assert bool(choose_node(pod(tolerations=[toleration]), [TAINTED], {})[0]) is fits


def test_a_taint_that_is_only_preferred_keeps_nobody_away():
    soft = node("a", taints=[{"key": "x", "effect": "PreferNoSchedule"}])
    assert choose_node(pod(), [soft], {})[0] == "a"


def test_a_cordoned_node_takes_those_who_tolerate_it():
    toleration = {"key": "node.kubernetes.io/unschedulable", "operator": "Exists", "effect": "NoSchedule"}
    assert choose_node(pod(tolerations=[toleration]), [node("a", unschedulable=True)], {})[0] == "a"


@pytest.mark.parametrize(("expression", "fits"), [
    ({"key": "zone", "operator": "In", "values": ["a", "b"]}, True),
    ({"key": "zone", "operator": "NotIn", "values": ["a"]}, False),
    ({"key": "none", "operator": "NotIn", "values": ["a"]}, True),
    ({"key": "zone", "operator": "Exists"}, True), ({"key": "zone", "operator": "DoesNotExist"}, False),
    ({"key": "cores", "operator": "Gt", "values": ["4"]}, True),
    ({"key": "cores", "operator": "Lt", "values": ["4"]}, False),
    ({"key": "zone", "operator": "Gt", "values": ["4"]}, False)])
def test_required_affinity(expression, fits):
    nodes = [node("n", {"zone": "a", "cores": "8"})]
    wanted = pod(affinity=required({"matchExpressions": [expression]}))
    assert bool(choose_node(wanted, nodes, {})[0]) is fits


def test_one_of_several_terms_is_enough_and_an_empty_one_selects_nothing():
    by_name = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["b"]}]}
    nodes = [node("a"), node("b")]
    assert choose_node(pod(affinity=required({}, by_name)), nodes, {})[0] == "b"
    assert choose_node(pod(affinity=required({})), nodes, {})[0] == ""


@pytest.mark.parametrize(("image", "name"), [
    ("nginx", "docker.io/library/nginx:latest"), ("nginx:1.2", "docker.io/library/nginx:1.2"),
    ("user/app", "docker.io/user/app:latest"), ("ghcr.io/o/app:1", "ghcr.io/o/app:1"),
    ("localhost:5000/app", "localhost:5000/app:latest"), ("localhost/app", "localhost/app:latest"),
    ("app@sha256:abc", "docker.io/library/app@sha256:abc")])
def test_images_have_their_full_names_in_the_status(image, name):
    assert image_name(image) == name
    assert "@sha256:" in image_id(name)
    assert ":latest@" not in image_id(name)


def test_the_backoff_doubles_up_to_five_minutes():
    assert [backoff(count) for count in (1, 2, 3, 5, 6, 100)] == [10, 20, 40, 160, 300, 300]
