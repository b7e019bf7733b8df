"""Jobs create Pods, count the Pods that end, and become Complete or Failed.

Each Pod is counted once: it has the finalizer ``batch.kubernetes.io/job-tracking`` until its end is counted in the
Job's status. In contrast to the real controller, podFailurePolicy, successPolicy and backoffLimitPerIndex are ignored.
A Job that names another controller (managedBy) is left alone.

Ended Jobs are deleted after ``spec.ttlSecondsAfterFinished`` seconds.
"""
from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import count

from kubectl_runtime.apiserver.controllers.deployments import claim, owner_reference
from kubectl_runtime.apiserver.controllers.loop import PER_STEP, KeyQueue, record_event, under_lock
from kubectl_runtime.apiserver.kinds.base import dig, true_conditions
from kubectl_runtime.apiserver.loopback import create, delete, patch, patch_status
from kubectl_runtime.apiserver.storage import Bucket, Change, Cluster, Version
from kubectl_runtime.apiserver.wire import Object
from kubectl_runtime.core.meta.metav1 import format_time

TRACKING = "batch.kubernetes.io/job-tracking"
INDEX = "batch.kubernetes.io/job-completion-index"
FIRST_BACKOFF, LAST_BACKOFF = 10.0, 600.0  # seconds, as in kube-controller-manager


@dataclass(slots=True)
class Census:
    """A Job's Pods by state. A terminating Pod may also count as failed."""

    active: list[Object] = field(default_factory=list)
    terminating: list[Object] = field(default_factory=list)
    succeeded: list[Object] = field(default_factory=list)
    failed: list[Object] = field(default_factory=list)

    @property
    def ready(self) -> int:
        return sum("Ready" in true_conditions(pod.get("status") or {}) for pod in self.active)


def census(pods: Iterable[Object], *, only_failed: bool) -> Census:
    """Sort a Job's Pods by state. With `only_failed` (podReplacementPolicy Failed) a terminating Pod counts as failed
    only once it has ended."""
    found = Census()
    for pod in pods:
        phase, deleting = dig(pod, "status.phase"), "deletionTimestamp" in pod["metadata"]
        if phase == "Succeeded":
            found.succeeded.append(pod)
        elif phase == "Failed":
            found.failed.append(pod)
        elif deleting:
            found.terminating.append(pod)
            if not only_failed:
                found.failed.append(pod)
        else:
            found.active.append(pod)
    return found


def is_tracked(pod: Object) -> bool:
    """Whether the Pod's end has not been counted yet."""
    return TRACKING in (pod["metadata"].get("finalizers") or ())


def index_of(pod: Object) -> int | None:
    text = (pod["metadata"].get("annotations") or {}).get(INDEX, "")
    return int(text) if text.isascii() and text.isdigit() else None


def split_indexes(text: str | None) -> set[int]:
    """The numbers in a list such as ``0,2-4``."""
    found: set[int] = set()
    for part in (text or "").split(",") if text else ():
        first, _, last = part.partition("-")
        found.update(range(int(first), int(last or first) + 1))
    return found


def join_indexes(numbers: Collection[int]) -> str:
    """The reverse of `split_indexes`. Three or more consecutive numbers become a range."""
    parts: list[str] = []
    run: list[int] = []
    for number in [*sorted(numbers), None]:
        if run and number != run[-1] + 1:
            parts.append(f"{run[0]}-{run[-1]}" if len(run) > 2 else ",".join(map(str, run)))
            run = []
        if number is not None:
            run.append(number)
    return ",".join(parts)


def wanted_pods(spec: Object, succeeded: int, active: int) -> int:
    """How many Pods should be active."""
    parallelism, completions = int(spec.get("parallelism", 1)), spec.get("completions")
    if completions is None:  # a work queue: once a Pod has succeeded, no Pods are added
        return active if succeeded else parallelism
    return max(0, min(parallelism, int(completions) - succeeded))


def is_complete(spec: Object, succeeded: int, active: int) -> bool:
    completions = spec.get("completions")
    return succeeded > 0 and not active if completions is None else succeeded >= completions


def failure(spec: Object, status: Object, pods: Census, failed: int, now: datetime) -> tuple[str, str] | None:
    """(reason, message) of the failure of a Job; None if the Job has not failed."""
    limit = spec.get("backoffLimit", 6)
    restarts = sum(entry.get("restartCount", 0) for pod in pods.active for entry in (
        *(dig(pod, "status.initContainerStatuses") or ()), *(dig(pod, "status.containerStatuses") or ())))
    restarting = dig(spec, "template.spec.restartPolicy") == "OnFailure"
    if failed > limit or (restarting and restarts and restarts >= limit):
        return "BackoffLimitExceeded", "Job has reached the specified backoff limit"
    if (left := time_left(spec, status, now)) is not None and left <= 0:
        return "DeadlineExceeded", "Job was active longer than specified deadline"
    return None


def time_left(spec: Object, status: Object, now: datetime) -> float | None:
    """Seconds until the Job's deadline; None if the Job has no deadline or has not started."""
    limit, start = spec.get("activeDeadlineSeconds"), status.get("startTime")
    if limit is None or start is None:
        return None
    left: timedelta = datetime.fromisoformat(start) + timedelta(seconds=limit) - now
    return left.total_seconds()


def retry_delay(pods: Census, now: datetime) -> float:
    """Seconds until a new Pod may be created; the backoff grows with each failure since the last success."""
    last = max((_end_of(pod, now) for pod in pods.succeeded), default=datetime.min.replace(tzinfo=UTC))
    ends = [end for pod in pods.failed if (end := _end_of(pod, now)) > last]
    if not ends:
        return 0.0
    delay = float(min(LAST_BACKOFF, FIRST_BACKOFF * 2 ** min(len(ends) - 1, 10)))
    return max(0.0, delay - (now - max(ends)).total_seconds())


def _end_of(pod: Object, now: datetime) -> datetime:
    """When a Pod's last container ended, or else when the Pod was deleted; `now` if neither is known."""
    ends = [text for entry in dig(pod, "status.containerStatuses") or ()
            if (text := dig(entry, "state.terminated.finishedAt"))]
    if ends:
        return datetime.fromisoformat(max(ends))
    meta = pod["metadata"]
    if "deletionTimestamp" not in meta:
        return now
    return datetime.fromisoformat(meta["deletionTimestamp"]) - timedelta(
        seconds=meta.get("deletionGracePeriodSeconds") or 0)


JOBS, PODS = "batch/jobs", "/pods"
COMPONENT, OWN_NAME = "job-controller", "kubernetes.io/job-controller"


class JobController(KeyQueue):
    name = "job"
    storage = JOBS
    kind = "Job"
    children = (PODS,)

    def __init__(self) -> None:
        super().__init__()
        self._job_gone = False

    def start(self, cluster: Cluster) -> None:
        """Observe changes, enqueue every Job, and schedule the release of tracked Pods whose Jobs are gone."""
        super().start(cluster)
        self._job_gone = True

    def look_again(self, cluster: Cluster) -> None:
        """Enqueue every Job, and schedule the release of tracked Pods whose Jobs are gone."""
        super().look_again(cluster)
        self._job_gone = True

    def _observe(self, bucket: Bucket, change: Change) -> None:
        super()._observe(bucket, change)
        if bucket.key == JOBS and change.deleted:
            self._job_gone = True

    def due(self) -> float | None:
        return 0.0 if self._job_gone else super().due()

    def step(self, cluster: Cluster) -> None:
        self._let_orphans_go(cluster)
        super().step(cluster)

    @under_lock
    def _let_orphans_go(self, cluster: Cluster) -> None:
        if not self._job_gone:
            return
        self._job_gone = False
        jobs = {job.uid for job in cluster.storage.bucket(JOBS).scan("")}
        for pod in list(cluster.storage.bucket(PODS).scan("")):
            if TRACKING in pod.finalizers and not any(owner.get("uid") in jobs for owner in pod.owners):
                _untrack(cluster, pod)

    def reconcile(self, cluster: Cluster, version: Version) -> None:
        """Count the ended Pods, write the status, and create or delete Pods."""
        job = version.decode()
        spec, status = job["spec"], dict(job.get("status") or {})
        if spec.get("managedBy") not in (None, OWN_NAME):
            return
        before = true_conditions(status)
        versions = claim(cluster, version, self.kind, spec["selector"], PODS)
        pods = [pod.decode() for pod in versions]
        if before & {"Complete", "Failed"}:
            _release(cluster, versions, pods)
            return
        found = census(pods, only_failed=spec.get("podReplacementPolicy") == "Failed")
        _count(spec, status, found)
        active = _act(self, cluster, version, job, status, found) if not version.deleting else found.active
        _tell_counts(status, found, active)
        _conclude(cluster, version, spec, status, found, active)
        if _write(cluster, version, status, job.get("status") or {}):
            _release(cluster, versions, [*found.succeeded, *found.failed])


def _count(spec: Object, status: Object, found: Census) -> None:
    """Count the Pods that ended since the last step. Pods deleted by a suspension do not count as failed."""
    gone = found.terminating if spec.get("suspend") else []
    for key, pods in (("succeeded", found.succeeded), ("failed", [pod for pod in found.failed if pod not in gone])):
        status[key] = status.get(key, 0) + sum(map(is_tracked, pods))
    if spec.get("completionMode") == "Indexed":
        done = split_indexes(status.get("completedIndexes"))
        done |= {index for pod in found.succeeded if is_tracked(pod) and (index := index_of(pod)) is not None
                 and index < spec["completions"]}
        status["completedIndexes"], status["succeeded"] = join_indexes(done), len(done)


def _act(queue: JobController, cluster: Cluster, version: Version, job: Object, status: Object,
         found: Census) -> list[Object]:
    """Create or delete Pods. Returns the Pods that were active before and still are active."""
    spec, now = job["spec"], cluster.clock.now()
    moment = format_time(now)
    if spec.get("suspend"):
        if _condition(status, "Suspended", "True", "JobSuspended", "Job suspended", moment):
            record_event(cluster, JOBS, version, "Suspended", "Job suspended", component=COMPONENT)
        status.pop("startTime", None)
        return _delete(cluster, version, found.active)
    if "Suspended" in true_conditions(status):
        _condition(status, "Suspended", "False", "JobResumed", "Job resumed", moment)
        status["startTime"] = moment
        record_event(cluster, JOBS, version, "Resumed", "Job resumed", component=COMPONENT)
    status.setdefault("startTime", moment)
    if (left := time_left(spec, status, now)) is not None and left > 0:
        queue.look_later(cluster, version, left)
    if failure(spec, status, found, status["failed"], now) or _has(status, "FailureTarget", "SuccessCriteriaMet"):
        return _delete(cluster, version, found.active)
    wanted = wanted_pods(spec, status["succeeded"], len(found.active))
    held = len(found.terminating) if spec.get("podReplacementPolicy") == "Failed" else 0
    missing = wanted - len(found.active) - held
    if missing < 0:
        return found.active[:wanted] + _delete(cluster, version, found.active[wanted:])
    if missing and (delay := retry_delay(found, now)) > 0:
        queue.look_later(cluster, version, delay)
        return found.active
    for index in _indexes(spec, status, found, min(missing, PER_STEP)):
        _make(cluster, version, job, index)
    return found.active


def _indexes(spec: Object, status: Object, found: Census, missing: int) -> Iterable[int | None]:
    """The completion indexes for `missing` new Pods; None for each Pod if the Job is not Indexed."""
    if spec.get("completionMode") != "Indexed":
        return [None] * missing
    taken = split_indexes(status.get("completedIndexes")) | {index_of(pod) for pod in found.active}
    free = (index for index in count() if index not in taken)
    return [next(free) for _ in range(missing)]


def _make(cluster: Cluster, version: Version, job: Object, index: int | None) -> None:
    template = job["spec"]["template"]
    meta = template.get("metadata") or {}
    labels, notes = dict(meta.get("labels") or {}), dict(meta.get("annotations") or {})
    spec, name = template["spec"], f"{version.name}-"
    if index is not None:
        labels[INDEX] = notes[INDEX] = str(index)
        name = f"{version.name}-{index}-"
        source = {"name": "JOB_COMPLETION_INDEX", "valueFrom": {"fieldRef": {
            "apiVersion": "v1", "fieldPath": f"metadata.labels['{INDEX}']"}}}
        spec = {**spec, "hostname": spec.get("hostname") or f"{version.name}-{index}"}
        for key in ("containers", "initContainers"):
            if key in spec:
                spec[key] = [{**each, "env": [*(each.get("env") or ()), source]} for each in spec[key]]
    made = create(cluster, PODS, version.namespace, {
        "spec": spec, "metadata": {
            "generateName": name, "labels": labels, "annotations": notes,
            "finalizers": [*(meta.get("finalizers") or ()), TRACKING],
            "ownerReferences": [owner_reference(version, "Job")]}})
    if made is not None:
        record_event(cluster, JOBS, version, "SuccessfulCreate", f"Created pod: {made['metadata']['name']}",
                     component=COMPONENT)


def _delete(cluster: Cluster, version: Version, pods: Iterable[Object]) -> list[Object]:
    """Delete these Pods. Always returns an empty list, because none of them remains active."""
    for pod in pods:
        found = cluster.storage.get(PODS, version.namespace, pod["metadata"]["name"])
        if found is not None:
            delete(cluster, PODS, found)
            record_event(cluster, JOBS, version, "SuccessfulDelete", f"Deleted pod: {found.name}", component=COMPONENT)
    return []


def _tell_counts(status: Object, found: Census, active: list[Object]) -> None:
    left = [pod["metadata"]["uid"] for pod in active]
    status.update(active=len(active), ready=Census(active=active).ready,
                  terminating=len(found.terminating) + sum(pod["metadata"]["uid"] not in left for pod in found.active),
                  uncountedTerminatedPods={})


def _conclude(cluster: Cluster, version: Version, spec: Object, status: Object, found: Census,
              active: list[Object]) -> None:
    """Set the conditions that end a Job: first the decision (FailureTarget, SuccessCriteriaMet), and once no Pod is
    left, the end (Failed, Complete)."""
    if spec.get("suspend") or version.deleting:
        return
    now = cluster.clock.now()
    moment, before = format_time(now), true_conditions(status)
    if not before & {"FailureTarget", "SuccessCriteriaMet"}:
        if is_complete(spec, status["succeeded"], len(active)):
            _condition(status, "SuccessCriteriaMet", "True", "CompletionsReached",
                       "Reached expected number of succeeded pods", moment)
        elif (why := failure(spec, status, found, status["failed"], now)) is not None:
            _condition(status, "FailureTarget", "True", *why, moment)
    if status["active"] or status["terminating"]:
        return
    for decided, end in (("SuccessCriteriaMet", "Complete"), ("FailureTarget", "Failed")):
        told = next((entry for entry in status.get("conditions") or () if entry["type"] == decided), None)
        if told is None:
            continue
        _condition(status, end, "True", told["reason"], told["message"], moment)
        if end == "Complete":
            status["completionTime"] = moment
            record_event(cluster, JOBS, version, "Completed", "Job completed", component=COMPONENT)
        else:
            record_event(cluster, JOBS, version, told["reason"], told["message"], component=COMPONENT, kind="Warning")


def _has(status: Object, *kinds: str) -> bool:
    return bool(true_conditions(status) & set(kinds))


def _condition(status: Object, kind: str, state: str, reason: str, message: str, now: str) -> bool:
    """Set a condition. Returns False if it was already set."""
    others = [entry for entry in status.get("conditions") or () if entry["type"] != kind]
    known: Object = next((entry for entry in status.get("conditions") or () if entry["type"] == kind), {})
    if known.get("status") == state:
        return False
    status["conditions"] = [*others, {"type": kind, "status": state, "lastProbeTime": now, "lastTransitionTime": now,
                                      "reason": reason, "message": message}]
    return True


def _write(cluster: Cluster, version: Version, status: Object, before: Object) -> bool:
    """Write the status if it changed. Returns False if the server refused it. Zeros are left out, except for `ready`
    and `terminating`."""
    wanted = {key: value for key, value in status.items() if value not in (0, "") or key in ("ready", "terminating")}
    if wanted == before:
        return True
    change = {**dict.fromkeys(before.keys() - wanted.keys()), **wanted}
    return patch_status(cluster, JOBS, version, change)


def _release(cluster: Cluster, versions: Iterable[Version], ended: Iterable[Object]) -> None:
    """Remove the tracking finalizer from Pods whose end has been counted."""
    uids = {pod["metadata"]["uid"] for pod in ended}
    for version in versions:
        current = cluster.storage.get(PODS, version.namespace, version.name)
        if version.uid in uids and current is not None and TRACKING in current.finalizers:
            _untrack(cluster, current)


def _untrack(cluster: Cluster, pod: Version) -> None:
    kept = [finalizer for finalizer in pod.finalizers if finalizer != TRACKING]
    patch(cluster, PODS, pod, {"metadata": {"finalizers": kept or None}})


class TtlAfterFinishedController(KeyQueue):
    """Deletes ended Jobs after ttlSecondsAfterFinished."""

    name = "ttl-after-finished"
    storage = JOBS

    def reconcile(self, cluster: Cluster, version: Version) -> None:
        job = version.decode()
        ttl = job["spec"].get("ttlSecondsAfterFinished")
        ends = [entry["lastTransitionTime"] for entry in (job.get("status") or {}).get("conditions") or ()
                if entry["type"] in ("Complete", "Failed") and entry["status"] == "True"
                and entry.get("lastTransitionTime")]
        if ttl is None or not ends or version.deleting:
            return
        left = ttl - (cluster.clock.now() - datetime.fromisoformat(max(ends))).total_seconds()
        if left > 0:
            self.look_later(cluster, version, left)
        else:
            delete(cluster, JOBS, version, policy="Foreground")
