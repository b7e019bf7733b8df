"""The CronJob of the kubebuilder tutorial, on simulated time."""
from datetime import UTC, datetime
from typing import Any

import pytest
from cronjob import CronJob, CronJobSpec, RunJobs, controller, due

from kubectl_runtime import Api
from kubectl_runtime.resources import CustomResourceDefinition, Job
from kubectl_runtime.resources.batch_v1 import JobSpec, JobTemplateSpec
from kubectl_runtime.resources.core_v1 import Container, PodSpec, PodTemplateSpec
from kubectl_runtime.testing import Simulation

POD = PodTemplateSpec(spec=PodSpec(containers=[Container(name="hello", image="busybox")], restart_policy="OnFailure"))
HOUR = 3600


def run(hours: float, finish: bool = True, **spec: Any) -> tuple[list[Job], CronJob]:
    """The Jobs and the CronJob after these hours of a schedule of every half hour."""
    with Simulation(0) as simulation:
        server = simulation.serve()
        client = simulation.client(server)
        Api.all(client, CustomResourceDefinition).create(CronJob.crd())
        simulation.settle(10)
        jobs, crons = Api.namespaced(client, Job, "default"), Api.namespaced(client, CronJob, "default")
        template = JobTemplateSpec(spec=JobSpec(template=POD))
        crons.create(CronJob(name="hello", spec=CronJobSpec("*/30 * * * *", template, **spec)))
        simulation.start(controller(client), RunJobs())
        for _ in range(int(hours * 4)):
            simulation.settle(HOUR / 4)
            for job in jobs.list_all() if finish else ():
                now = simulation.clock.now().strftime("%Y-%m-%dT%H:%M:%SZ")
                job["status"] = {"startTime": now, "completionTime": now, "succeeded": 1, "conditions": [
                    {"type": kind, "status": "True"} for kind in ("SuccessCriteriaMet", "Complete")]}
                if not job.status.completion_time:
                    jobs.replace_status(job)
        simulation.settle(60)
        return list(jobs.list_all()), crons.get("hello")


@pytest.mark.parametrize(("spec", "finish", "jobs", "active"), [
    ({}, False, 4, 4), ({"concurrency_policy": "Forbid"}, False, 1, 1), ({"suspend": True}, True, 0, 0),
    ({"concurrency_policy": "Replace"}, False, 1, 1), ({"successful_jobs_history_limit": 2}, True, 2, 0)])
def test_jobs_follow_the_schedule(spec: dict[str, Any], finish: bool, jobs: int, active: int) -> None:
    found, cron = run(2.2, finish, **spec)
    assert len(found) == jobs
    assert len(cron.status.active if cron.status else ()) == active
    assert all(job.owner_references[0].name == "hello" and job.spec.template.spec.containers for job in found)


@pytest.mark.parametrize(("schedule", "missed", "upcoming"), [
    ("*/10 * * * *", "2024-02-28T23:50", "2024-02-29T00:00"), ("0 0 29 2 *", None, "2024-02-29T00:00"),
    ("5,7 3-4 * * 1-5", "2024-02-28T04:07", "2024-02-29T03:05"), ("0 12 * * 7", None, "2024-03-03T12:00")])
def test_when_a_schedule_is_due(schedule: str, missed: str | None, upcoming: str) -> None:
    since, until = (datetime(2024, 2, 28, hour, 55, tzinfo=UTC) for hour in (0, 23))
    assert [moment and f"{moment:%Y-%m-%dT%H:%M}" for moment in due(schedule, since, until)] == [missed, upcoming]
