"""What tables show of workloads: replicas, containers, images, selectors."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from kubectl_runtime.apiserver.kinds.base import dig, labels_text, selector_text
from kubectl_runtime.apiserver.output.column import Cell, Column
from kubectl_runtime.apiserver.output.table import AGE, NAME, age, human_duration

Object = dict[str, Any]


def path(dotted: str) -> Cell:
    """A cell that is just a field; "" if it is not there."""
    def cell(obj: Object, _now: datetime) -> Any:
        value = dig(obj, dotted)
        return "" if value is None else value

    return cell


def number(dotted: str) -> Cell:
    """A number; 0 if it is not there."""
    return lambda obj, _now: dig(obj, dotted) or 0


def _ready(obj: Object, _now: datetime) -> str:
    return f"{dig(obj, 'status.readyReplicas') or 0}/{dig(obj, 'spec.replicas') or 0}"


def _containers(spec: str, key: str) -> Cell:
    return lambda obj, _now: ",".join(entry.get(key, "") for entry in dig(obj, f"{spec}.containers") or ())


def _selector(obj: Object, _now: datetime) -> str:
    selector = dig(obj, "spec.selector")
    if selector and "matchLabels" not in selector and "matchExpressions" not in selector:
        return labels_text(selector)  # a ReplicationController's is a plain map
    return selector_text(selector)


def wide(spec: str = "spec.template.spec", *, selector: bool = True) -> tuple[Column, ...]:
    """The columns that ``-o wide`` adds for workloads."""
    columns = (Column("Containers", _containers(spec, "name"), priority=1, description="Names of each container."),
               Column("Images", _containers(spec, "image"), priority=1, description="Images of each container."))
    return (*columns, Column("Selector", _selector, priority=1, description="Label selector.")) if selector else columns


def _job_status(obj: Object, _now: datetime) -> str:
    conditions = [entry.get("type") for entry in dig(obj, "status.conditions") or () if entry.get("status") == "True"]
    for kind, text in (("Complete", "Complete"), ("Failed", "Failed")):
        if kind in conditions:
            return text
    if obj["metadata"].get("deletionTimestamp"):
        return "Terminating"
    for kind, text in (("Suspended", "Suspended"), ("FailureTarget", "FailureTarget"),
                       ("SuccessCriteriaMet", "SuccessCriteriaMet")):
        if kind in conditions:
            return text
    return "Running"


def _job_completions(obj: Object, _now: datetime) -> str:
    done, wanted = dig(obj, "status.succeeded") or 0, dig(obj, "spec.completions")
    if wanted is not None:
        return f"{done}/{wanted}"
    parallelism = dig(obj, "spec.parallelism") or 0
    return f"{done}/1 of {parallelism}" if parallelism > 1 else f"{done}/1"


def _job_duration(obj: Object, now: datetime) -> str:
    start, end = dig(obj, "status.startTime"), dig(obj, "status.completionTime")
    if not start:
        return ""
    until = datetime.fromisoformat(end) if end else now
    return human_duration((until - datetime.fromisoformat(start).astimezone(UTC)).total_seconds())


def _last_schedule(obj: Object, now: datetime) -> str:
    last = dig(obj, "status.lastScheduleTime")
    return age(last, now) if last else "<none>"


def _reference(obj: Object, _now: datetime) -> str:
    target = dig(obj, "spec.scaleTargetRef") or {}
    return f"{target.get('kind', '')}/{target.get('name', '')}"


def _targets(obj: Object, _now: datetime) -> str:
    texts = []
    current = dig(obj, "status.currentMetrics") or ()
    if (percent := dig(obj, "spec.targetCPUUtilizationPercentage")) is not None:  # autoscaling/v1
        used = dig(obj, "status.currentCPUUtilizationPercentage")
        return f"cpu: {'<unknown>' if used is None else f'{used}%'}/{percent}%"
    for index, metric in enumerate(dig(obj, "spec.metrics") or ()):
        kind = metric.get("type", "")
        key = kind[:1].lower() + kind[1:]
        part = metric.get(key) or {}
        measured = dig(current[index], f"{key}.current") or {} if index < len(current) else {}
        target = part.get("target") or {}
        amount, used = target.get("averageValue"), measured.get("averageUtilization")
        average = f"{measured.get('averageValue', '<unknown>')}/{amount}"
        if key in ("resource", "containerResource"):
            share = f"{'<unknown>' if used is None else f'{used}%'}/{target.get('averageUtilization', '<auto>')}%"
            texts.append(f"{part.get('name', '')}: {share if amount is None else average}")
        elif amount is not None:
            texts.append(average if key == "pods" else f"{average} (avg)")
        else:
            texts.append(f"{measured.get('value', '<unknown>')}/{target.get('value', '<auto>')}")
    if not texts:
        return "<none>"
    return ", ".join(texts[:2]) + (f" + {len(texts) - 2} more..." if len(texts) > 2 else "")


def _min_pods(obj: Object, _now: datetime) -> str:
    least = dig(obj, "spec.minReplicas")
    return "<unset>" if least is None else str(least)


def _bound(key: str) -> Cell:
    def cell(obj: Object, _now: datetime) -> str:
        value = dig(obj, f"spec.{key}")
        return "N/A" if value is None else str(value)

    return cell


DEPLOYMENT_COLUMNS = (NAME, Column("Ready", _ready, description="Number of the pod with ready state"),
                      Column("Up-to-date", number("status.updatedReplicas")),
                      Column("Available", number("status.availableReplicas")), AGE, *wide())
STATEFUL_SET_COLUMNS = (NAME, Column("Ready", _ready), AGE, *wide(selector=False))
REPLICATION_COLUMNS = (NAME, Column("Desired", number("spec.replicas"), "integer"),
                       Column("Current", number("status.replicas"), "integer"),
                       Column("Ready", number("status.readyReplicas"), "integer"), AGE, *wide())
DAEMON_SET_COLUMNS = (
    NAME, Column("Desired", number("status.desiredNumberScheduled"), "integer"),
    Column("Current", number("status.currentNumberScheduled"), "integer"),
    Column("Ready", number("status.numberReady"), "integer"),
    Column("Up-to-date", number("status.updatedNumberScheduled"), "integer"),
    Column("Available", number("status.numberAvailable"), "integer"),
    Column("Node Selector", lambda obj, _now: labels_text(dig(obj, "spec.template.spec.nodeSelector"))), AGE, *wide())
JOB_COLUMNS = (NAME, Column("Status", _job_status), Column("Completions", _job_completions),
               Column("Duration", _job_duration), AGE, *wide())
CRON_JOB_COLUMNS = (
    NAME, Column("Schedule", path("spec.schedule")),
    Column("Timezone", lambda obj, _now: dig(obj, "spec.timeZone") or "<none>"),
    Column("Suspend", lambda obj, _now: "True" if dig(obj, "spec.suspend") else "False", "boolean"),
    Column("Active", lambda obj, _now: len(dig(obj, "status.active") or ()), "integer"),
    Column("Last Schedule", _last_schedule), AGE, *wide("spec.jobTemplate.spec.template.spec"))
POD_TEMPLATE_COLUMNS = (
    NAME, Column("Containers", _containers("template.spec", "name")),
    Column("Images", _containers("template.spec", "image")),
    Column("Pod Labels", lambda obj, _now: labels_text(dig(obj, "template.metadata.labels"))))
AUTOSCALER_COLUMNS = (
    NAME, Column("Reference", _reference), Column("Targets", _targets), Column("MinPods", _min_pods),
    Column("MaxPods", path("spec.maxReplicas")), Column("Replicas", number("status.currentReplicas")), AGE)
DISRUPTION_BUDGET_COLUMNS = (
    NAME, Column("Min Available", _bound("minAvailable")), Column("Max Unavailable", _bound("maxUnavailable")),
    Column("Allowed Disruptions", number("status.disruptionsAllowed"), "integer"), AGE)
