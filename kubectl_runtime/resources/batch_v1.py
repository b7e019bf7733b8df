"""The `batch` group: `batch/v1`."""
from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

import msgspec

from kubectl_runtime.core.base.wire import MapKeys
from kubectl_runtime.core.meta.metav1 import Condition, Part
from kubectl_runtime.core.objects.resource import Resource
from kubectl_runtime.resources.core_v1 import PodTemplateSpec


class JobSpec(Part):
    parallelism: int | None = None
    completions: int | None = None
    backoff_limit: int | None = None
    suspend: bool | None = None
    template: PodTemplateSpec = msgspec.field(default_factory=PodTemplateSpec)


class JobStatus(Part):
    active: int = 0
    ready: int = 0
    succeeded: int = 0
    failed: int = 0
    start_time: datetime | None = None
    completion_time: datetime | None = None
    conditions: Annotated[list[Condition], MapKeys("type")] = []


class Job(Resource, group="batch", version="v1", kind="Job"):
    spec: JobSpec
    status: JobStatus


class CronJobSpec(Part):
    schedule: str = ""
    time_zone: str | None = None
    suspend: bool | None = None
    concurrency_policy: str | None = None
    job_template: dict[str, Any] = {}


class CronJob(Resource, group="batch", version="v1", kind="CronJob"):
    spec: CronJobSpec
    status: dict[str, Any]
