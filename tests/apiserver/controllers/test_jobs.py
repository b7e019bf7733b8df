"""Jobs: Pods made, counted once, and the conditions with which they end."""
from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubectl_runtime import Patch
from kubectl_runtime.apiserver.controllers.jobs import (
    TRACKING,
    census,
    join_indexes,
    retry_delay,
    split_indexes,
    wanted_pods,
)
from tests.apiserver.kubelet.world import World


@pytest.fixture
def world():
    made = World()
    yield made
    made.client.close()


def create(world, name="job", *, restart="Never", **spec):
    world.jobs.create({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": {
        **spec, "template": {"spec": {"restartPolicy": restart, "containers": [{"name": "a", "image": "a"}]}}}})
    world.transport.settle()


def status(world, name="job"):
    world.transport.settle()
    return world.jobs.get(name).to_dict()["status"]


def ends(world, name="job"):
    return [(each["type"], each["reason"]) for each in status(world, name).get("conditions", ())
            if each["status"] == "True"]


def pods(world):
    world.transport.settle()
    return [pod.to_dict() for pod in world.pods.list()]


COMPLETE = [("SuccessCriteriaMet", "CompletionsReached"), ("Complete", "CompletionsReached")]


def test_a_job_completes(world):
    create(world, completions=3, parallelism=2)
    assert ends(world) == COMPLETE
    found = status(world)
    assert {key: found.get(key) for key in ("succeeded", "active", "failed", "ready", "terminating")} == {
        "succeeded": 3, "active": None, "failed": None, "ready": 0, "terminating": 0}
    assert found["startTime"] == found["completionTime"] == "2026-01-01T00:00:00Z"
    assert [(pod["status"]["phase"], pod["metadata"].get("finalizers")) for pod in pods(world)] == [
        ("Succeeded", None)] * 3
    owner = pods(world)[0]["metadata"]["ownerReferences"][0]
    assert (owner["apiVersion"], owner["kind"], owner["controller"]) == ("batch/v1", "Job", True)


def test_no_more_than_parallelism_run_at_once(world):
    world.rules.on().succeed(after=5)
    create(world, completions=5, parallelism=2)
    seen = []
    while not ends(world):
        seen.append((status(world).get("active"), status(world).get("succeeded")))
        world.advance(5)
    assert seen == [(2, None), (2, 2), (1, 4)]


def test_an_indexed_job_gives_each_pod_its_index(world):
    world.rules.on(where=lambda pod: pod["metadata"]["labels"]["batch.kubernetes.io/job-completion-index"] == "1"
                   ).keep_running()
    create(world, completions=4, parallelism=4, completionMode="Indexed")
    found = pods(world)
    assert sorted(pod["metadata"]["name"].rsplit("-", 1)[0] for pod in found) == [f"job-{n}" for n in range(4)]
    assert {pod["spec"]["hostname"] for pod in found} == {f"job-{n}" for n in range(4)}
    assert found[0]["spec"]["containers"][0]["env"][0]["name"] == "JOB_COMPLETION_INDEX"
    assert (status(world)["completedIndexes"], status(world)["succeeded"], status(world)["active"]) == ("0,2,3", 3, 1)
    world.rules.clear()
    assert status(world)["completedIndexes"] == "0-3"
    assert ends(world) == COMPLETE


def test_failures_are_tried_again_with_a_backoff_up_to_a_limit(world):
    world.rules.on().crash(after=1)
    create(world, backoffLimit=2)
    times = []
    for _ in range(45):
        if len(pods(world)) > len(times):
            times.append(world.clock.monotonic())
        world.advance(1)
    assert times == [0, 11, 32]  # ten and twenty seconds after the end of the last one
    assert ends(world) == [("FailureTarget", "BackoffLimitExceeded"), ("Failed", "BackoffLimitExceeded")]
    assert status(world)["failed"] == 3
    assert "completionTime" not in status(world)


def test_the_first_pod_fails_and_the_second_succeeds(world):
    rule = world.rules.on().first(1).crash()
    create(world)
    assert len(rule.pods) == 1
    assert not ends(world)
    world.advance(10)
    assert ends(world) == COMPLETE
    assert (status(world)["succeeded"], status(world)["failed"]) == (1, 1)


def test_restarts_in_place_count_too(world):
    world.rules.on().crash(after=1)
    create(world, restart="OnFailure", backoffLimit=2)
    world.advance(15)
    assert ends(world)[0] == ("FailureTarget", "BackoffLimitExceeded")
    world.advance(30)  # its Pod takes its grace, and only then has the Job failed
    assert ends(world)[-1] == ("Failed", "BackoffLimitExceeded")
    assert pods(world) == []


def test_a_job_that_takes_too_long_has_failed(world):
    world.rules.on().keep_running()
    create(world, activeDeadlineSeconds=20)
    world.advance(20)
    assert ends(world) == [("FailureTarget", "DeadlineExceeded")]
    assert status(world)["terminating"] == 1
    world.advance(30)
    assert ends(world)[-1] == ("Failed", "DeadlineExceeded")


def test_a_suspended_job_gives_up_its_pods_and_goes_on_later(world):
    world.rules.on().keep_running()
    create(world, completions=2, parallelism=2, backoffLimit=0)
    world.jobs.patch("job", Patch.merge({"spec": {"suspend": True}}))
    world.advance(31)
    assert pods(world) == []
    assert ends(world) == [("Suspended", "JobSuspended")]
    assert "startTime" not in status(world)
    assert "failed" not in status(world)
    world.rules.clear()
    world.jobs.patch("job", Patch.merge({"spec": {"suspend": False}}))
    assert ends(world) == COMPLETE
    assert status(world)["startTime"] == "2026-01-01T00:00:31Z"


def test_a_pod_that_somebody_deletes_is_made_again(world):
    world.rules.on().keep_running()
    create(world)
    first = pods(world)[0]["metadata"]["name"]
    world.pods.delete(first, grace_period_seconds=0)
    assert status(world)["failed"] == 1
    world.advance(10)
    assert [pod["metadata"]["name"] != first for pod in pods(world)] == [True]


def test_fewer_pods_are_wanted_when_the_parallelism_falls(world):
    world.rules.on().keep_running()
    create(world, completions=4, parallelism=4)
    world.jobs.patch("job", Patch.merge({"spec": {"parallelism": 1}}))
    assert status(world)["active"] == 1
    world.advance(31)
    assert len(pods(world)) == 1


@pytest.mark.parametrize("policy", ["Background", "Foreground"])
def test_a_deleted_job_takes_its_pods_along(world, policy):
    world.rules.on().keep_running()
    create(world, completions=2, parallelism=2)
    world.jobs.delete("job", propagation_policy=policy)
    world.advance(31)
    assert (pods(world), world.jobs.get_opt("job")) == ([], None)


def test_orphaned_pods_are_no_longer_tracked(world):
    world.rules.on().keep_running()
    create(world)
    world.jobs.delete("job", propagation_policy="Orphan")
    assert [pod["metadata"].get("finalizers") for pod in pods(world)] == [None]


def test_finished_jobs_are_deleted_when_their_time_is_up(world):
    create(world, ttlSecondsAfterFinished=60)
    world.advance(59)
    assert world.jobs.get_opt("job") is not None
    world.advance(1)
    assert (world.jobs.get_opt("job"), pods(world)) == (None, [])


def test_a_job_of_another_controller_is_left_alone(world):
    create(world, managedBy="example.com/mine")
    world.advance(1)
    assert pods(world) == []
    assert "startTime" not in world.jobs.get("job").to_dict().get("status", {})


def test_a_queue_of_work_ends_with_its_first_success(world):
    rule = world.rules.on().keep_running()
    create(world, parallelism=3)
    assert status(world)["active"] == 3
    rule.remove()
    assert ends(world) == COMPLETE
    assert status(world)["succeeded"] == 3


@given(st.sets(st.integers(0, 60)))
def test_indexes_are_read_as_they_are_written(numbers):
    assert split_indexes(join_indexes(numbers)) == numbers


def test_two_indexes_in_a_row_are_no_range():
    assert join_indexes({0, 1, 3, 4, 5, 9}) == "0,1,3-5,9"


@given(st.integers(0, 5), st.none() | st.integers(0, 5), st.integers(0, 5), st.integers(0, 5))
def test_no_more_pods_are_wanted_than_may_run_and_are_left(parallelism, completions, succeeded, active):
    spec = {"parallelism": parallelism, "completions": completions}
    wanted = wanted_pods(spec, succeeded, active)
    assert 0 <= wanted <= max(parallelism, active)
    if completions is not None:
        assert wanted <= max(0, completions - succeeded)


def test_a_success_ends_the_backoff():
    def ended(phase, moment):
        return {"metadata": {"finalizers": [TRACKING]}, "status": {"phase": phase, "containerStatuses": [
            {"state": {"terminated": {"finishedAt": moment}}}]}}

    failed, good = ended("Failed", "2026-01-01T00:00:00Z"), ended("Succeeded", "2026-01-01T00:00:01Z")
    now = datetime(2026, 1, 1, 0, 0, 2, tzinfo=UTC)
    assert retry_delay(census([failed], only_failed=False), now) == 8
    assert retry_delay(census([failed, good], only_failed=False), now) == 0
