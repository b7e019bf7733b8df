"""CronJobs: the times of schedules, concurrency, deadlines, history."""
from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from kubectl_runtime.apiserver.controllers.cronjobs import Schedule
from tests.apiserver.controllers.sets_world import SetsWorld


@pytest.fixture
def world():
    made = SetsWorld()
    yield made
    made.client.close()


def make(world, name="tick", schedule="* * * * *", **spec):
    world.crons.create({"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": name}, "spec": {
        "schedule": schedule, **spec, "jobTemplate": {"metadata": {"labels": {"cron": name}}, "spec": {
            "backoffLimit": 0, "template": {"spec": {
                "restartPolicy": "Never", "terminationGracePeriodSeconds": 0,
                "containers": [{"name": "a", "image": "a"}]}}}}}})
    world.settle()


def jobs(world):
    world.settle()
    return sorted(job.name for job in world.jobs.list())


@pytest.mark.parametrize(("text", "moment", "following"), [
    ("* * * * *", "2026-01-01T00:00:30", "2026-01-01T00:01:00"),
    ("*/15 9-17 * * mon-fri", "2026-01-02T17:50:00", "2026-01-05T09:00:00"),
    ("0 0 29 2 *", "2026-01-01T00:00:00", "2028-02-29T00:00:00"),
    ("30 2 1,15 * *", "2026-01-01T02:30:00", "2026-01-15T02:30:00"),
    ("0 12 13 * 5", "2026-01-01T00:00:00", "2026-01-02T12:00:00"),
    ("0 0 * * 7", "2026-01-01T00:00:00", "2026-01-04T00:00:00"),
    ("5/20 * * * *", "2026-01-01T00:06:00", "2026-01-01T00:25:00"),
    ("@monthly", "2026-01-01T00:00:00", "2026-02-01T00:00:00"),
    ("@every 1h30m", "2026-01-01T00:00:00", "2026-01-01T01:30:00"),
])
def test_the_next_time_of_a_schedule(text, moment, following):
    found = Schedule(text).after(datetime.fromisoformat(moment).replace(tzinfo=UTC))
    assert found == datetime.fromisoformat(following).replace(tzinfo=UTC)


def test_a_schedule_without_a_time_has_none():
    assert Schedule("0 0 30 2 *").after(datetime(2026, 1, 1, tzinfo=UTC)) is None


@pytest.mark.parametrize(("day", "utc_hour"), [("2026-01-10", 8), ("2026-07-10", 7)])
def test_a_time_zone_moves_the_times_with_its_clocks(day, utc_hour):
    found = Schedule("0 9 * * *", ZoneInfo("Europe/Berlin")).after(datetime.fromisoformat(f"{day}T00:00:00+00:00"))
    assert (found.day, found.hour) == (10, utc_hour)


def test_a_job_at_each_minute_named_after_it(world):
    make(world)
    assert jobs(world) == []
    world.advance(61)
    (job,) = jobs(world)
    assert job == f"tick-{int(world.clock.now().timestamp()) // 60}"
    found = world.jobs.get(job).to_dict()
    assert found["metadata"]["ownerReferences"][0]["kind"] == "CronJob"
    assert found["metadata"]["labels"]["cron"] == "tick"
    assert found["metadata"]["annotations"]["batch.kubernetes.io/cronjob-scheduled-timestamp"].endswith("00:01:00Z")
    status = world.set_status("tick", world.crons)
    assert "active" not in status
    assert status["lastScheduleTime"].endswith("00:01:00Z")
    assert status["lastSuccessfulTime"]
    assert world.reasons("tick") == ["SuccessfulCreate", "SawCompletedJob"]


@pytest.mark.parametrize(("policy", "count", "gone"), [("Allow", 3, 0), ("Forbid", 1, 0), ("Replace", 1, 2)])
def test_concurrency(world, policy, count, gone):
    world.rules.on().keep_running()
    make(world, concurrencyPolicy=policy)
    world.advance(61)
    first = jobs(world)
    world.advance(120)
    found = jobs(world)
    assert len(found) == count
    assert (first[0] in found) is (policy != "Replace")
    assert world.reasons("tick").count("SuccessfulDelete") == gone
    assert len(world.set_status("tick", world.crons)["active"]) == count


def test_a_forbidden_time_is_made_up_for_when_the_job_has_ended(world):
    rule = world.rules.on().keep_running()
    make(world, concurrencyPolicy="Forbid")
    world.advance(130)
    assert len(jobs(world)) == 1
    rule.remove()
    assert len(jobs(world)) == 2


def test_a_time_that_passed_long_ago_is_missed(world):
    make(world, schedule="0 * * * *", startingDeadlineSeconds=100, suspend=True)
    world.advance(3600 + 200)
    world.merge(world.crons, "tick", {"spec": {"suspend": False}})
    assert jobs(world) == []
    make(world, "tock", schedule="0 * * * *", suspend=True)
    world.advance(3600)
    world.merge(world.crons, "tock", {"spec": {"suspend": False}})
    assert [name.partition("-")[0] for name in jobs(world)] == ["tick", "tock"]


def test_the_history_has_limits_of_its_own_for_both_ends(world):
    make(world, successfulJobsHistoryLimit=2, failedJobsHistoryLimit=1)
    world.advance(5 * 60)
    assert len(jobs(world)) == 2
    world.rules.on().crash()
    world.advance(3 * 60)
    found = [job.to_dict()["status"] for job in world.jobs.list()]
    assert sorted("succeeded" in status for status in found) == [False, True, True]


def test_suspended_and_deleted_ones_start_nothing(world):
    make(world)
    make(world, "tock", suspend=True)
    world.crons.delete("tick")
    world.advance(180)
    assert jobs(world) == []


def test_a_year_of_missed_minutes_takes_no_time(world):
    make(world, suspend=True)
    world.clock.advance(86400 * 365)
    world.merge(world.crons, "tick", {"spec": {"suspend": False}})
    assert len(jobs(world)) == 1
    assert "TooManyMissedTimes" in world.reasons("tick")


def warnings(world):
    world.settle()
    return [event["message"] for event in (found.to_dict() for found in world.events.list())
            if event["reason"] == "UnexpectedJob"]


@pytest.mark.parametrize("what", ["by hand", "twice", "its own", "ended"])
def test_a_job_that_a_client_made_of_it_is_reported_once(world, what):
    make(world)
    if what == "its own":
        world.advance(61)
        assert len(jobs(world)) == 1
        assert warnings(world) == []
        return
    cron = world.crons.get("tick").to_dict()
    if what == "ended":
        world.rules.on().succeed(after=5)
    else:
        world.rules.on().keep_running()
    for name in ("now-1", "now-2") if what == "twice" else ("now-1",):
        world.jobs.create({"apiVersion": "batch/v1", "kind": "Job", "spec": cron["spec"]["jobTemplate"]["spec"],
                           "metadata": {"name": name, "ownerReferences": [{
                               "apiVersion": "batch/v1", "kind": "CronJob", "name": "tick", "controller": True,
                               "uid": cron["metadata"]["uid"]}]}})
    expected = [f"Saw a job that the controller did not create or forgot: {name}"
                for name in (("now-1", "now-2") if what == "twice" else ("now-1",))]
    assert sorted(warnings(world)) == expected
    world.advance(130)
    assert sorted(warnings(world)) == expected
    assert what != "ended" or world.jobs.get("now-1").to_dict()["status"]["succeeded"] == 1
