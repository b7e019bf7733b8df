"""The arithmetic of Jobs: how many Pods are wanted, which indexes are done, how long to wait after failures. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from kubectl_runtime.apiserver.kinds.base import dig, true_conditions

Object = dict[str, Any]

TRACKING = "batch.kubernetes.io/job-tracking"
INDEX = "batch.kubernetes.io/job-completion-index"
FIRST_BACKOFF, LAST_BACKOFF = 10.0, 600.0  # seconds, as kube-controller-manager's


@dataclass(slots=True)
class Census:
    """A Job's Pods, each under what it is now; one that is being deleted may count as failed, too."""

    active: list[Object] = field(default_factory=list)
    terminating: list[Object] = field(default_factory=list)
    succeeded: list[Object] = field(default_factory=list)
    failed: list[Object] = field(default_factory=list)

    @property
    def ready(self) -> int:
        return sum("Ready" in true_conditions(pod.get("status") or {}) for pod in self.active)


def census(pods: Iterable[Object], *, only_failed: bool) -> Census:
    """Sort the Pods of a Job. `only_failed`: one that is being deleted has failed only when it has ended
    (podReplacementPolicy Failed)."""
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
    """Whether the Pod's end is still to be counted."""
    return TRACKING in (pod["metadata"].get("finalizers") or ())


def index_of(pod: Object) -> int | None:
    """The completion index of a Pod of an Indexed Job."""
    text = (pod["metadata"].get("annotations") or {}).get(INDEX, "")
    return int(text) if text.isascii() and text.isdigit() else None


def split_indexes(text: str | None) -> set[int]:
    """The numbers of a list such as ``0,2-4``."""
    found: set[int] = set()
    for part in (text or "").split(",") if text else ():
        first, _, last = part.partition("-")
        found.update(range(int(first), int(last or first) + 1))
    return found


def join_indexes(numbers: Collection[int]) -> str:
    """The reverse: two in a row are listed, three and more are a range."""
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
    """How many active Pods there should be."""
    parallelism, completions = int(spec.get("parallelism", 1)), spec.get("completions")
    if completions is None:  # a queue of work: once one has succeeded, the others finish what they have
        return active if succeeded else parallelism
    return max(0, min(parallelism, int(completions) - succeeded))


def is_complete(spec: Object, succeeded: int, active: int) -> bool:
    """Whether as many Pods as wanted have succeeded."""
    completions = spec.get("completions")
    return succeeded > 0 and not active if completions is None else succeeded >= completions


def failure(spec: Object, status: Object, pods: Census, failed: int, now: datetime) -> tuple[str, str] | None:
    """The reason for which a Job has failed, and its text; None as long as it has not."""
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
    """Seconds until the Job's deadline; None if it has none, or has not begun."""
    limit, start = spec.get("activeDeadlineSeconds"), status.get("startTime")
    if limit is None or start is None:
        return None
    left: timedelta = datetime.fromisoformat(start) + timedelta(seconds=limit) - now
    return left.total_seconds()


def retry_delay(pods: Census, now: datetime) -> float:
    """Seconds until a Pod may be made after those that failed since the last one that succeeded; 0: at once."""
    last = max((_end_of(pod, now) for pod in pods.succeeded), default=datetime.min.replace(tzinfo=UTC))
    ends = [end for pod in pods.failed if (end := _end_of(pod, now)) > last]
    if not ends:
        return 0.0
    delay = float(min(LAST_BACKOFF, FIRST_BACKOFF * 2 ** min(len(ends) - 1, 10)))
    return max(0.0, delay - (now - max(ends)).total_seconds())


def _end_of(pod: Object, now: datetime) -> datetime:
    """When the last container of a Pod ended, or the Pod was deleted; now, where nothing tells."""
    ends = [text for entry in dig(pod, "status.containerStatuses") or ()
            if (text := dig(entry, "state.terminated.finishedAt"))]
    if ends:
        return datetime.fromisoformat(max(ends))
    meta = pod["metadata"]
    if "deletionTimestamp" not in meta:
        return now
    return datetime.fromisoformat(meta["deletionTimestamp"]) - timedelta(
        seconds=meta.get("deletionGracePeriodSeconds") or 0)
