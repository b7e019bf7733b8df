"""StatefulSets: order, updates, scale down, claims and what becomes of them, revisions."""
from __future__ import annotations

import pytest

from kubectl_runtime.apiserver.controllers.revisions import template_hash
from kubectl_runtime.apiserver.controllers.statefulsets import ordinal_of
from tests.apiserver.controllers.sets_world import SetsWorld


@pytest.fixture
def world():
    made = SetsWorld()
    yield made
    made.client.close()


def template(image):
    return {"spec": {"template": {"spec": {"containers": [{"name": "main", "image": image}]}}}}


def test_ordered_pods_come_one_after_the_other(world):
    world.rules.on("app=db").be_ready(after=10)
    world.make_set()
    assert list(world.images()) == ["db-0"]
    world.advance(11)
    assert list(world.images()) == ["db-0", "db-1"]
    world.advance(25)
    assert world.set_status()["readyReplicas"] == 3
    assert world.reasons("db").count("SuccessfulCreate") == 3
    messages = {event.to_dict()["message"] for event in world.events.list()}
    assert {f"Create Pod db-{number} in StatefulSet db successful" for number in range(3)} <= messages


@pytest.mark.parametrize(("policy", "found"), [("OrderedReady", ["db-0"]), ("Parallel", ["db-0", "db-1", "db-2"])])
def test_a_pod_that_is_never_ready_holds_up_an_ordered_set_alone(world, policy, found):
    world.rules.on(name="db-0").never_be_ready()
    world.make_set(podManagementPolicy=policy)
    assert list(world.images()) == found


def test_scale_down_takes_the_highest_numbers_and_leaves_the_claims(world):
    world.make_class()
    world.make_set(storage=True)
    world.merge(world.sets, "db", {"spec": {"replicas": 1}})
    assert list(world.images()) == ["db-0"]
    assert world.claim_phases() == {"data-db-0": "Bound", "data-db-1": "Bound", "data-db-2": "Bound"}
    world.merge(world.sets, "db", {"spec": {"replicas": 2}})
    assert list(world.images()) == ["db-0", "db-1"]


@pytest.mark.parametrize(("deleted", "scaled", "after_scaling", "after_deletion"), [
    ("Retain", "Retain", [0, 1, 2], [0, 1, 2]), ("Retain", "Delete", [0], [0]), ("Delete", "Retain", [0, 1, 2], []),
    ("Delete", "Delete", [0], [])])
def test_claims_go_as_the_retention_policy_says(world, deleted, scaled, after_scaling, after_deletion):
    world.make_class()
    world.make_set(storage=True, persistentVolumeClaimRetentionPolicy={"whenDeleted": deleted, "whenScaled": scaled})
    world.merge(world.sets, "db", {"spec": {"replicas": 1}})
    assert list(world.claim_phases()) == [f"data-db-{number}" for number in after_scaling]
    world.sets.delete("db")
    assert list(world.claim_phases()) == [f"data-db-{number}" for number in after_deletion]


def test_a_rolling_update_goes_from_the_highest_number_down_and_stops_at_one_that_is_not_ready(world):
    world.make_set()
    assert world.set_status()["currentRevision"] == world.set_status()["updateRevision"]
    rule = world.rules.on(image="db:2", name="db-1").never_be_ready()
    world.merge(world.sets, "db", template("db:2"))
    assert world.images() == {"db-0": "db:1", "db-1": "db:2", "db-2": "db:2"}
    status = world.set_status()
    assert status["updatedReplicas"] == 2
    assert status["currentRevision"] != status["updateRevision"]
    rule.remove()
    assert set(world.images().values()) == {"db:2"}
    status = world.set_status()
    assert status["currentRevision"] == status["updateRevision"]


def test_a_partition_keeps_the_lower_numbers_also_when_they_are_made_again(world):
    world.make_set(updateStrategy={"type": "RollingUpdate", "rollingUpdate": {"partition": 2}})
    world.merge(world.sets, "db", template("db:2"))
    assert world.images() == {"db-0": "db:1", "db-1": "db:1", "db-2": "db:2"}
    world.pods.delete("db-1")
    world.pods.delete("db-2")
    assert world.images() == {"db-0": "db:1", "db-1": "db:1", "db-2": "db:2"}
    world.merge(world.sets, "db", {"spec": {"updateStrategy": {"rollingUpdate": {"partition": 0}}}})
    assert set(world.images().values()) == {"db:2"}


def test_on_delete_waits_for_the_user(world):
    world.make_set(replicas=2, updateStrategy={"type": "OnDelete"})
    world.merge(world.sets, "db", template("db:2"))
    assert set(world.images().values()) == {"db:1"}
    world.pods.delete("db-0")
    assert world.images() == {"db-0": "db:2", "db-1": "db:1"}


def test_a_template_that_comes_back_takes_its_revision_with_it(world):
    world.make_set(replicas=1, revisionHistoryLimit=1)
    for image in ("db:2", "db:1", "db:3", "db:4"):
        world.merge(world.sets, "db", template(image))
    found = {revision.to_dict()["revision"]: revision.to_dict()["data"]["spec"]["template"]["spec"]["containers"][0][
        "image"] for revision in world.revisions.list()}
    assert found == {4: "db:3", 5: "db:4"}


def test_pods_that_have_ended_are_replaced_under_their_name(world):
    world.make_set(replicas=2)
    uid = world.pods.get("db-1").uid
    world.merge(world.pods, "db-1", {"status": {"phase": "Failed"}}, status=True)
    assert list(world.images()) == ["db-0", "db-1"]
    assert world.pods.get("db-1").uid != uid


def test_ordinals_start_where_they_are_told_and_strangers_are_left_alone(world):
    world.create("db-x", labels={"app": "db"})
    world.make_set(replicas=2, ordinals={"start": 5})
    assert sorted(world.images()) == ["db-5", "db-6", "db-x"]
    assert not world.pods.get("db-x").metadata.owner_references
    assert world.set_status()["replicas"] == 2


def test_min_ready_seconds_hold_an_ordered_set_back(world):
    world.make_set(replicas=2, minReadySeconds=30)
    assert list(world.images()) == ["db-0"]
    assert world.set_status()["readyReplicas"] == 1
    assert world.set_status()["availableReplicas"] == 0
    world.advance(31)
    assert list(world.images()) == ["db-0", "db-1"]


def test_a_set_that_is_deleted_makes_nothing_more_and_orphans_live_on(world):
    world.make_set()
    world.sets.delete("db", propagation_policy="Orphan")
    world.settle()
    assert len(world.images()) == 3
    world.pods.delete("db-2")
    assert list(world.images()) == ["db-0", "db-1"]
    world.make_set()  # adopts them
    assert len(world.images()) == 3
    assert {pod.metadata.owner_references[0].kind for pod in world.pods.list()} == {"StatefulSet"}


@pytest.mark.parametrize(("name", "number"), [
    ("db-0", 0), ("db-12", 12), ("db-01", None), ("db-x", None), ("other-0", None), ("db", None), ("db-1-2", None)])
def test_the_number_is_part_of_the_name(name, number):
    assert ordinal_of("db", name) == number


def test_the_hash_is_that_of_kube_controller_manager():
    assert template_hash({}) == template_hash({})
    assert template_hash({"a": "<"}) != template_hash({"a": "&"})
    assert set(template_hash({"a": 1})) <= set("bcdfghjklmnpqrstvwxz2456789")
