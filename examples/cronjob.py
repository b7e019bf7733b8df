"""The CronJob of the kubebuilder tutorial: Jobs from a template, at the times of a schedule.

    cd examples && kubectl-runtime crd cronjob:CronJob | kubectl apply --server-side -f -      once
    python examples/cronjob.py                                              until Ctrl-C or SIGTERM

From the object, its Jobs and the time, the controller computes which Jobs are due. A Job is named after the minute for
which it was made, so a restart neither skips nor repeats a Job.
"""
from __future__ import annotations

import logging
import sys
from datetime import datetime, timedelta
from typing import Annotated, Literal

from msgspec import Meta, Struct

from kubectl_runtime import (
    Action,
    Api,
    BoundController,
    Client,
    Context,
    Controller,
    CustomResource,
    KubeError,
    Reconciler,
)
from kubectl_runtime.resources import Job
from kubectl_runtime.resources.batch_v1 import JobTemplateSpec
from kubectl_runtime.resources.core_v1 import ObjectReference

GROUP = "batch.tutorial.kubebuilder.io"
OWNER, SCHEDULED_AT = f"{GROUP}/cronjob", f"{GROUP}/scheduled-at"
Count = Annotated[int, Meta(ge=0, extra_json_schema={"format": "int32"})]


class CronJobSpec(Struct, rename="camel"):
    schedule: Annotated[str, Meta(min_length=1, description="In Cron format: minute, hour, day, month, weekday.")]
    job_template: JobTemplateSpec
    starting_deadline_seconds: Count | None = None
    concurrency_policy: Literal["Allow", "Forbid", "Replace"] = "Allow"
    suspend: bool = False
    successful_jobs_history_limit: Count = 3
    failed_jobs_history_limit: Count = 1


class CronJobStatus(Struct, rename="camel", omit_defaults=True):
    active: list[ObjectReference] = []
    last_schedule_time: datetime | None = None


class CronJob(CustomResource, group=GROUP, version="v1", kind="CronJob"):
    """The CronJob of the tutorial."""

    spec: CronJobSpec
    status: CronJobStatus | None = None


def times(schedule: str) -> list[set[int]]:
    """The minutes, hours, days, months and weekdays that a schedule names. Raises ValueError."""
    fields = schedule.split()
    if len(fields) != 5:
        raise ValueError(f"{schedule!r} has {len(fields)} fields, not five")
    found = []
    for field, (low, high) in zip(fields, ((0, 59), (0, 23), (1, 31), (1, 12), (0, 7)), strict=True):
        named = set[int]()
        for part in field.split(","):
            span, _, step = part.partition("/")
            first, _, last = (f"{low}-{high}" if span == "*" else span).partition("-")
            named.update(range(int(first), int(last or (high if step else first)) + 1, int(step or 1)))
        if not named or not low <= min(named) <= max(named) <= high:
            raise ValueError(f"{field!r} in {schedule!r} is not within {low}-{high}")
        found.append({number % 7 for number in named} if high == 7 else named)
    return found


def due(schedule: str, since: datetime, until: datetime) -> tuple[datetime | None, datetime]:
    """The schedule's last time after `since` and up to `until`, or None, and its first time after `until`."""
    minutes, hours, days, months, weekdays = times(schedule)
    missed, moment = None, since.replace(second=0, microsecond=0) + timedelta(minutes=1)
    for _ in range(4 * 366 * 24 * 60):
        if moment.month not in months or moment.day not in days or (moment.isoweekday() % 7) not in weekdays:
            moment = moment.replace(hour=0, minute=0) + timedelta(days=1)
        elif moment.hour not in hours:
            moment = moment.replace(minute=0) + timedelta(hours=1)
        elif moment.minute in minutes and moment > until:
            return missed, moment
        else:
            missed, moment = moment if moment.minute in minutes else missed, moment + timedelta(minutes=1)
    raise ValueError(f"{schedule!r} never comes")


class RunJobs(Reconciler[CronJob]):
    def reconcile(self, obj: CronJob, ctx: Context[None]) -> Action:
        spec, now, jobs = obj.spec, ctx.now(), ctx.api(Job)
        mine = sorted(jobs.list_all(label_selector={OWNER: obj.name}), key=lambda job: job.name)
        ended = {state: [job for job in mine if any(
            (condition.type, condition.status) == (state, "True") for condition in job.status.conditions)]
            for state in ("Complete", "Failed")}
        active = [job for job in mine if job not in ended["Complete"] and job not in ended["Failed"]]
        for old in (*ended["Complete"][:-spec.successful_jobs_history_limit or None],
                    *ended["Failed"][:-spec.failed_jobs_history_limit or None]):
            jobs.delete(old.name, propagation_policy="Background")
        last = max((datetime.fromisoformat(job.annotations[SCHEDULED_AT]) for job in mine), default=None)
        refs = [ObjectReference(api_version="batch/v1", kind="Job", name=job.name, uid=job.uid) for job in active]
        ctx.report(obj, active=refs or None, last_schedule_time=last)
        if spec.suspend:
            return Action.await_change()
        since = last or obj.creation_timestamp or now
        if spec.starting_deadline_seconds is not None:
            since = max(since, now - timedelta(seconds=spec.starting_deadline_seconds))
        try:
            missed, upcoming = due(spec.schedule, since, now)
        except ValueError as error:
            ctx.record("InvalidSchedule", str(error), warning=True)
            return Action.await_change()
        later = Action.requeue(upcoming - now)
        if missed is None or (spec.concurrency_policy == "Forbid" and active):
            return later
        for job in active if spec.concurrency_policy == "Replace" else ():
            jobs.delete(job.name, propagation_policy="Background")
        meta = spec.job_template.metadata
        ctx.ensure(obj, Job(name=f"{obj.name}-{int(missed.timestamp()) // 60}", spec=spec.job_template.spec,
                            labels={**meta.labels, OWNER: obj.name},
                            annotations={**meta.annotations, SCHEDULED_AT: missed.isoformat()}))
        return later


def controller(client: Client) -> Controller[CronJob]:
    return Controller(Api.all(client, CronJob)).owns(Api.all(client, Job))


def operator(client: Client) -> BoundController[CronJob]:
    """What `kubectl-runtime run cronjob:operator` runs."""
    return controller(client).bind(RunJobs())


def main() -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)-7s %(message)s", datefmt="%H:%M:%S")
    try:
        with Client.try_default() as client:
            controller(client).shutdown_on_signal().run(RunJobs())
    except KubeError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
