"""What a table shows of a Pod; the status is a summary of phase, conditions and container states."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from kubectl_runtime.apiserver.kinds.base import dig, true_conditions
from kubectl_runtime.apiserver.output.column import Column
from kubectl_runtime.apiserver.output.table import AGE, NAME, age

Object = dict[str, Any]


def _statuses(obj: Object, key: str) -> list[Object]:
    return dig(obj, f"status.{key}") or []


def _sidecars(obj: Object) -> set[str]:
    """Names of init containers that keep running beside the main ones."""
    return {entry["name"] for entry in dig(obj, "spec.initContainers") or () if entry.get("restartPolicy") == "Always"}


def ready(obj: Object, _now: datetime) -> str:
    """``1/2``: main containers (and sidecars) that are ready, of all."""
    sidecars = _sidecars(obj)
    total = len(dig(obj, "spec.containers") or ()) + len(sidecars)
    counted = [entry for entry in _statuses(obj, "initContainerStatuses") if entry.get("name") in sidecars]
    running = [entry for entry in [*counted, *_statuses(obj, "containerStatuses")]
               if entry.get("ready") and "running" in (entry.get("state") or {})]
    return f"{len(running)}/{total}"


def status(obj: Object, _now: datetime) -> str:
    """The reason that says most: Pending, Init:0/1, CrashLoopBackOff, Running, Completed, Terminating, ..."""
    text = dig(obj, "status.reason") or dig(obj, "status.phase") or "Unknown"
    if any(entry.get("type") == "PodScheduled" and entry.get("reason") == "SchedulingGated"
           for entry in dig(obj, "status.conditions") or ()):
        text = "SchedulingGated"
    text = _init_reason(obj) or _container_reason(obj, text)
    if obj["metadata"].get("deletionTimestamp"):
        return "Unknown" if dig(obj, "status.reason") == "NodeLost" else "Terminating"
    return text


def _init_reason(obj: Object) -> str:
    sidecars, containers = _sidecars(obj), dig(obj, "spec.initContainers") or ()
    for index, entry in enumerate(_statuses(obj, "initContainerStatuses")):
        state = entry.get("state") or {}
        terminated, waiting = state.get("terminated"), state.get("waiting")
        if terminated is not None and terminated.get("exitCode", 0) == 0:
            continue
        if entry.get("name") in sidecars and entry.get("started"):
            continue
        if terminated is not None:
            return f"Init:{_terminated(terminated)}"
        if waiting and waiting.get("reason") not in (None, "", "PodInitializing"):
            return f"Init:{waiting['reason']}"
        return f"Init:{index}/{len(containers)}"
    return ""


def _terminated(state: Object) -> str:
    if state.get("reason"):
        return str(state["reason"])
    return f"Signal:{state['signal']}" if state.get("signal") else f"ExitCode:{state.get('exitCode', 0)}"


def _container_reason(obj: Object, text: str) -> str:
    running = False
    for entry in reversed(_statuses(obj, "containerStatuses")):
        state = entry.get("state") or {}
        waiting, terminated = state.get("waiting"), state.get("terminated")
        if waiting and waiting.get("reason"):
            text = waiting["reason"]
        elif terminated is not None:
            text = _terminated(terminated)
        elif entry.get("ready") and "running" in state:
            running = True
    if text == "Completed" and running:
        return "Running" if "Ready" in true_conditions(obj.get("status") or {}) else "NotReady"
    return str(text)


def restarts(obj: Object, now: datetime) -> str:
    """The number of restarts, with the time since the last one: ``3 (5m ago)``."""
    entries = [*_statuses(obj, "containerStatuses"),
               *(entry for entry in _statuses(obj, "initContainerStatuses") if entry.get("name") in _sidecars(obj))]
    count = sum(entry.get("restartCount", 0) for entry in entries)
    ends = [end for entry in entries if (end := dig(entry, "lastState.terminated.finishedAt"))]
    return f"{count} ({age(max(ends), now)} ago)" if count and ends else str(count)


def _gates(obj: Object, _now: datetime) -> str:
    gates = dig(obj, "spec.readinessGates") or ()
    conditions = {entry.get("type"): entry.get("status") for entry in dig(obj, "status.conditions") or ()}
    met = sum(conditions.get(gate.get("conditionType")) == "True" for gate in gates)
    return f"{met}/{len(gates)}" if gates else "<none>"


def _or_none(path: str) -> Any:
    return lambda obj, _now: dig(obj, path) or "<none>"


def _ip(obj: Object, _now: datetime) -> str:
    addresses = dig(obj, "status.podIPs") or ()
    return str((addresses[0].get("ip") if addresses else None) or dig(obj, "status.podIP") or "<none>")


POD_COLUMNS = (
    NAME,
    Column("Ready", ready, description="The aggregate readiness state of this pod for accepting traffic."),
    Column("Status", status, description="The aggregate status of the containers in this pod."),
    Column("Restarts", restarts, description="How often the containers have been restarted, and when last."),
    AGE,
    Column("IP", _ip, priority=1, description="The address of the pod; empty if not yet allocated."),
    Column("Node", _or_none("spec.nodeName"), priority=1, description="The node that runs this pod."),
    Column("Nominated Node", _or_none("status.nominatedNodeName"), priority=1,
           description="The node on which other pods are to be preempted for this one."),
    Column("Readiness Gates", _gates, priority=1, description="Conditions besides the containers' that make it ready."),
)
