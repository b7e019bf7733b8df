"""CronJobs create a Job at each time of their schedule, on the server's clock, and delete old Jobs.

A `Schedule` is a cron expression of five fields, a descriptor (``@daily``) or ``@every 90s``, in a time zone (UTC by
default). Invalid schedules are refused when the CronJob is written.

concurrencyPolicy decides what happens if the previous Job is still running at a scheduled time. Allow creates another
Job. Forbid creates no Job while the previous one runs. When that Job ends, the Job of the latest scheduled time is
created. Replace deletes the running Job and creates another one.

A scheduled time more than startingDeadlineSeconds in the past is skipped. If several scheduled times have passed, a Job
is created only for the latest one.
"""
from __future__ import annotations

import functools
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any
from zoneinfo import ZoneInfo

from kubectl_runtime.apiserver.controllers.deployments import owner_reference
from kubectl_runtime.apiserver.controllers.loop import KeyQueue, record_event
from kubectl_runtime.apiserver.kinds.base import true_conditions
from kubectl_runtime.apiserver.loopback import create, delete, patch_status
from kubectl_runtime.apiserver.storage import Cluster, Version
from kubectl_runtime.apiserver.wire import Object
from kubectl_runtime.core.meta.metav1 import format_time, nanoseconds_of

CRON_JOBS, JOBS = "batch/cronjobs", "batch/jobs"
COMPONENT = "cronjob-controller"
SCHEDULED = "batch.kubernetes.io/cronjob-scheduled-timestamp"
_DESCRIPTORS = {"@yearly": "0 0 1 1 *", "@annually": "0 0 1 1 *", "@monthly": "0 0 1 * *", "@weekly": "0 0 * * 0",
                "@daily": "0 0 * * *", "@midnight": "0 0 * * *", "@hourly": "0 * * * *"}
_FIELDS = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 6))
_MONTHS = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
_DAYS = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"]
_FURTHEST = timedelta(days=366 * 5)  # a date that does not occur in this time never occurs, such as February 30
_MANY = 100  # if more scheduled times are missed, a warning Event is written


class Schedule:
    """A parsed schedule, which computes its scheduled times. The constructor raises ValueError for an invalid text."""

    def __init__(self, text: str, zone: tzinfo = UTC) -> None:
        self._zone = zone
        self._every = timedelta()
        if text.startswith(("TZ=", "CRON_TZ=")):
            name, _, text = text.partition(" ")
            self._zone, text = ZoneInfo(name.partition("=")[2]), text.strip()
        if text.startswith("@every "):
            self._every = timedelta(seconds=max(1, nanoseconds_of(text.removeprefix("@every ")) // 10**9))
            return
        fields = _DESCRIPTORS.get(text, text).split()
        if len(fields) != len(_FIELDS):
            raise ValueError(f"a schedule must have five fields: {text!r}")
        self._any_day, self._any_weekday = (fields[index][0] in "*?" for index in (2, 4))
        self._minutes, self._hours, self._days, self._months, self._weekdays = (
            _numbers(field, *bounds, names) for field, bounds, names in zip(
                fields, _FIELDS, ((), (), (), _MONTHS, _DAYS), strict=True))

    def after(self, moment: datetime) -> datetime | None:
        """The first scheduled time after `moment`; None if there is none within five years."""
        if self._every:
            return moment.replace(microsecond=0) + self._every
        local = moment.astimezone(self._zone).replace(second=0, microsecond=0) + timedelta(minutes=1)
        last = local + _FURTHEST
        while local < last:
            if not self._fits_day(local):
                local = (local + timedelta(days=1)).replace(hour=0, minute=0)
            elif local.hour not in self._hours:
                local = (local + timedelta(hours=1)).replace(minute=0)
            elif local.minute not in self._minutes:
                local += timedelta(minutes=1)
            elif (found := local.astimezone(UTC)) <= moment or found.astimezone(self._zone) != local:
                local += timedelta(minutes=1)  # daylight saving time repeats or skips this hour
            else:
                return found
        return None

    def _fits_day(self, local: datetime) -> bool:
        if local.month not in self._months:
            return False
        by_day, by_weekday = local.day in self._days, local.isoweekday() % 7 in self._weekdays
        return by_day and by_weekday if self._any_day or self._any_weekday else by_day or by_weekday


def _numbers(field: str, first: int, last: int, names: Any) -> frozenset[int]:
    """The numbers that a field selects: ``*``, ``1-5``, ``*/15`` or ``mon,wed``."""
    found: set[int] = set()
    for part in field.lower().split(","):
        span, _, step = part.partition("/")
        low, _, high = span.partition("-")
        start = first if low in "*?" else _number(low, names, first)
        end = last if low in "*?" or (step and not high) else _number(high or low, names, first)
        found.update(number % 7 if names is _DAYS else number for number in range(start, end + 1, int(step or 1)))
    return frozenset(found)


def _number(text: str, names: Any, first: int) -> int:
    return names.index(text) + first if text in names else int(text)


@functools.lru_cache(maxsize=256)
def schedule_of(text: str, zone: str) -> Schedule:
    """The schedule that `text` describes, in the time zone `zone` ("" is UTC)."""
    return Schedule(text, ZoneInfo(zone) if zone else UTC)


class CronJobController(KeyQueue):
    name = "cronjob"
    storage = CRON_JOBS
    kind = "CronJob"
    children = (JOBS,)

    def __init__(self) -> None:
        super().__init__()
        self._unexpected: dict[str, set[str]] = {}  # key of a CronJob -> uids of foreign Jobs already reported

    def reconcile(self, cluster: Cluster, version: Version) -> None:
        cron = version.decode()
        jobs = [job for job in cluster.storage.bucket(JOBS).scan(version.namespace)
                if any(owner.get("controller") and owner.get("uid") == version.uid for owner in job.owners)]
        status = dict(cron.get("status") or {})
        self._report_unexpected(cluster, version, status, jobs)
        _note_ends(cluster, version, status, jobs)
        if not version.deleting and not cron["spec"].get("suspend"):
            self._start(cluster, version, cron, status)
        before = cron.get("status") or {}
        if status != before:
            change = {**dict.fromkeys(before.keys() - status.keys()), **status}
            if not change.get("active"):
                change["active"] = None
            patch_status(cluster, CRON_JOBS, version, change)
        _clean_up(cluster, version, cron["spec"], jobs)

    def _report_unexpected(self, cluster: Cluster, version: Version, status: Object, jobs: list[Version]) -> None:
        """Write one Event for each running Job that a client created with this CronJob as owner.

        (For example, `kubectl create job --from` creates such Jobs.) The real server repeats the Event.
        """
        expected = {reference["uid"] for reference in status.get("active") or ()}
        found = {job.uid: job.name for job in jobs if job.uid not in expected
                 and not true_conditions(job.read().get("status") or {}) & {"Complete", "Failed"}}
        for uid in found.keys() - self._unexpected.get(version.key, set()):
            _tell(cluster, version, "UnexpectedJob", "Saw a job that the controller did not create or forgot: "
                  f"{found[uid]}", kind="Warning")
        self._unexpected[version.key] = set(found)

    def _start(self, cluster: Cluster, version: Version, cron: Object, status: Object) -> None:
        spec, now = cron["spec"], cluster.clock.now()
        try:
            schedule = schedule_of(spec["schedule"], spec.get("timeZone") or "")
        except (ValueError, KeyError, OSError) as error:
            _tell(cluster, version, "UnparseableSchedule", f"unparseable schedule: {error}", kind="Warning")
            return
        last = status.get("lastScheduleTime")
        since = datetime.fromisoformat(last or cron["metadata"]["creationTimestamp"])
        deadline = spec.get("startingDeadlineSeconds")
        if deadline is not None:
            since = max(since, now - timedelta(seconds=deadline))
        due, upcoming, missed = None, schedule.after(since), 0
        while upcoming is not None and upcoming <= now:
            due, missed = upcoming, missed + 1
            upcoming = schedule.after(_leap(schedule, upcoming, now, missed))
        if upcoming is not None:
            self.look_later(cluster, version, (upcoming - now).total_seconds())
        if due is None:
            return
        if missed > _MANY:
            _tell(cluster, version, "TooManyMissedTimes", f"too many missed start times: {missed}. Set or decrease "
                  ".spec.startingDeadlineSeconds or check clock skew", kind="Warning")
        active = status.get("active") or []
        if spec.get("concurrencyPolicy") == "Forbid" and active:
            _tell(cluster, version, "JobAlreadyActive", "Not starting job because prior execution is running and "
                  "concurrency policy is Forbid")
            return
        if spec.get("concurrencyPolicy") == "Replace":
            for reference in active:
                job = cluster.storage.get(JOBS, version.namespace, reference["name"])
                if job is not None:
                    _delete(cluster, version, job)
            status["active"] = active = []
        made = _make(cluster, version, cron, due)
        if made is not None:
            meta = made["metadata"]
            status["active"] = [*active, {
                "kind": "Job", "namespace": version.namespace, "name": meta["name"], "uid": meta["uid"],
                "apiVersion": "batch/v1", "resourceVersion": meta["resourceVersion"]}]
            status["lastScheduleTime"] = format_time(due)


def _leap(schedule: Schedule, moment: datetime, now: datetime, missed: int) -> datetime:
    """Where the search for the next scheduled time starts after the missed time `moment`. Usually this is `moment`. If
    very many times were missed, it is later, so that the search ends soon."""
    if missed <= _MANY * 10:
        return moment
    return max(moment, now - 2 * ((schedule.after(moment) or moment) - moment) - timedelta(days=1))


def _note_ends(cluster: Cluster, version: Version, status: Object, jobs: list[Version]) -> None:
    """Remove from status.active the Jobs that have ended or are gone, and record the last successful time."""
    by_uid = {job.uid: job for job in jobs}
    active = []
    for reference in status.get("active") or ():
        job = by_uid.get(reference["uid"])
        if job is None:
            _tell(cluster, version, "MissingJob", f"Active job went missing: {reference['name']}")
            continue
        state = job.decode().get("status") or {}
        ended = true_conditions(state) & {"Complete", "Failed"}
        if not ended:
            active.append(reference)
            continue
        _tell(cluster, version, "SawCompletedJob", f"Saw completed job: {job.name}, condition: {ended.pop()}")
        if state.get("completionTime"):
            status["lastSuccessfulTime"] = max(status.get("lastSuccessfulTime") or "", state["completionTime"])
    if active or "active" in status:
        status["active"] = active
    if not active:
        status.pop("active", None)


def _make(cluster: Cluster, version: Version, cron: Object, due: datetime) -> Object | None:
    template = cron["spec"]["jobTemplate"]
    meta, zone = template.get("metadata") or {}, cron["spec"].get("timeZone")
    name = f"{version.name}-{int(due.timestamp()) // 60}"
    shown = due.astimezone(ZoneInfo(zone)).isoformat() if zone else format_time(due)
    made = create(cluster, JOBS, version.namespace, {
        "spec": template["spec"], "metadata": {
            "name": name, "labels": meta.get("labels") or {},
            "annotations": {**(meta.get("annotations") or {}), SCHEDULED: shown},
            "ownerReferences": [owner_reference(version, "CronJob")]}})
    if made is None:
        existing = cluster.storage.get(JOBS, version.namespace, name)
        mine = existing is not None and any(owner.get("uid") == version.uid for owner in existing.owners)
        return {"metadata": {"name": name, "uid": existing.uid, "resourceVersion": str(existing.rv)}} \
            if existing is not None and mine else None
    _tell(cluster, version, "SuccessfulCreate", f"Created job {name}")
    return made


def _clean_up(cluster: Cluster, version: Version, spec: Object, jobs: list[Version]) -> None:
    """Delete the oldest ended Jobs, down to the history limits."""
    ended: dict[str, list[tuple[str, Version]]] = {"Complete": [], "Failed": []}
    for job in jobs:
        state = job.decode().get("status") or {}
        for kind in true_conditions(state) & ended.keys() if not job.deleting else ():
            ended[kind].append((state.get("startTime") or "", job))
    for kind, key in (("Complete", "successfulJobsHistoryLimit"), ("Failed", "failedJobsHistoryLimit")):
        limit, found = spec.get(key), sorted(ended[kind], key=lambda entry: (entry[0], entry[1].name))
        for _, job in found[:max(0, len(found) - limit)] if limit is not None else ():
            _delete(cluster, version, job)


def _delete(cluster: Cluster, version: Version, job: Version) -> None:
    delete(cluster, JOBS, job, policy="Background")
    _tell(cluster, version, "SuccessfulDelete", f"Deleted job {job.name}")


def _tell(cluster: Cluster, version: Version, reason: str, message: str, *, kind: str = "Normal") -> None:
    record_event(cluster, CRON_JOBS, version, reason, message, component=COMPONENT, kind=kind)
