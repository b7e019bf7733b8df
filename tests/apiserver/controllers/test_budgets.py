"""PodDisruptionBudgets: what their status counts, and evictions that follow from it."""
from __future__ import annotations

import pytest

from kubectl_runtime import Api, KubeError
from kubectl_runtime.resources import PodDisruptionBudget
from tests.apiserver.controllers.sets_world import SetsWorld


@pytest.fixture
def world():
    made = SetsWorld()
    yield made
    made.client.close()


def make(world, **spec):
    budgets = Api.namespaced(world.client, PodDisruptionBudget, "default")
    budgets.create({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "db"}, "spec": {
        "selector": {"matchLabels": {"app": "db"}}, **spec}})
    world.settle()
    return budgets


def counts(world, budgets):
    status = world.set_status("db", budgets)
    return tuple(status.get(key, 0) for key in ("expectedPods", "currentHealthy", "desiredHealthy",
                                                "disruptionsAllowed"))


@pytest.mark.parametrize(("spec", "found"), [
    ({"minAvailable": 2}, (3, 3, 2, 1)), ({"maxUnavailable": 1}, (3, 3, 2, 1)),
    ({"maxUnavailable": "50%"}, (3, 3, 1, 2)),
    ({"minAvailable": "100%"}, (3, 3, 3, 0)), ({}, (3, 3, 1, 2))])
def test_a_budget_counts_the_pods_of_a_set(world, spec, found):
    world.make_set()
    budgets = make(world, **spec)
    assert counts(world, budgets) == found


def test_evictions_use_the_budget_up_and_new_pods_fill_it(world):
    world.make_set()
    budgets = make(world, minAvailable=2)
    world.advance(60)
    world.rules.on().be_ready(after=30)  # those that are there are ready for longer
    world.pods.evict("db-0")
    assert counts(world, budgets) == (3, 2, 2, 0)
    with pytest.raises(KubeError, match="disruption budget"):
        world.pods.evict("db-1")
    world.advance(40)
    assert counts(world, budgets) == (3, 3, 2, 1)
    world.pods.evict("db-1")


def test_the_condition_says_whether_a_disruption_is_allowed(world):
    world.make_set(replicas=1)
    budgets = make(world, minAvailable=1)
    (condition,) = world.set_status("db", budgets)["conditions"]
    assert (condition["type"], condition["status"], condition["reason"]) == (
        "DisruptionAllowed", "False", "InsufficientPods")
    world.merge(world.sets, "db", {"spec": {"replicas": 2}})
    (condition,) = world.set_status("db", budgets)["conditions"]
    assert condition["status"] == "True"
