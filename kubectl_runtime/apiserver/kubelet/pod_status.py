"""A Pod's phase and conditions from the statuses of its containers, as a kubelet derives them. Pure functions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

Object = dict[str, Any]

ENDED = ("Succeeded", "Failed")
"""The phases from which a Pod comes to no other."""
READY_TO_START, INITIALIZED, READY = "PodReadyToStartContainers", "Initialized", "Ready"
CONTAINERS_READY, SCHEDULED = "ContainersReady", "PodScheduled"


def is_sidecar(container: Object) -> bool:
    """Whether an init container is one that goes on running."""
    return bool(container.get("restartPolicy") == "Always")


def state_of(status: Object) -> str:
    """``waiting``, ``running`` or ``terminated``; ``""`` for no status."""
    return next(iter(status.get("state") or {}), "")


def ended_well(status: Object) -> bool:
    """Whether a container has ended with 0."""
    return ((status.get("state") or {}).get("terminated") or {}).get("exitCode") == 0


def is_initialized(spec: Object, initial: Sequence[Object]) -> bool:
    """Whether all init containers have done their work, and all sidecars have started."""
    return all(status.get("started") if is_sidecar(container) else ended_well(status)
               for container, status in zip(spec.get("initContainers") or (), initial, strict=False))


def phase_of(spec: Object, main: Sequence[Object], initial: Sequence[Object], *, ending: bool) -> str:
    """The phase; `ending`: no container is started any more."""
    policy = "Never" if ending else spec.get("restartPolicy", "Always")
    if policy == "Never" and any(
            state_of(status) == "terminated" and not ended_well(status) and not is_sidecar(container)
            for container, status in zip(spec.get("initContainers") or (), initial, strict=False)):
        return "Failed"
    if not is_initialized(spec, initial) and not ending:
        return "Pending"
    running = [status for status in main if state_of(status) == "running"]
    ended = [status for status in main if state_of(status) == "terminated" or (
        state_of(status) == "waiting" and (status.get("lastState") or {}).get("terminated"))]
    if len(running) + len(ended) < len(main):
        return "Failed" if ending else "Pending"
    if running or policy == "Always":
        return "Running"
    if all(ended_well(status) for status in ended):
        return "Succeeded"
    return "Failed" if policy == "Never" else "Running"


def conditions(pod: Object, status: Object, now: str, *, sandbox: bool) -> list[Object]:
    """The conditions, of which those that did not change keep their time, and others than the kubelet's stay.

    `status` has phase and containers already; `sandbox`: whether the Pod has its network.
    """
    spec, generation, phase = pod["spec"], pod["metadata"].get("generation"), status["phase"]
    before = {entry["type"]: entry for entry in (pod.get("status") or {}).get("conditions") or ()}
    main, initial = status["containerStatuses"], status.get("initContainerStatuses") or []
    done = {"Succeeded": "PodCompleted", "Failed": "PodFailed"}.get(phase, "")
    wanted = [_of(READY_TO_START, sandbox and not done), _initialized(spec, initial, phase)]
    unready = _unready(spec, main, initial)
    message = f"containers with unready status: [{' '.join(unready)}]" if unready else ""
    if done:
        contained = _of(CONTAINERS_READY, False, done, "" if done == "PodCompleted" else message)
    else:
        contained = _of(CONTAINERS_READY, not unready, "ContainersNotReady", message)
    wanted += [_ready(spec, before, contained), contained]
    # A Pod that was made with a node has never seen the scheduler.
    known = {key: value for key, value in before.get(SCHEDULED, {}).items() if key != "lastTransitionTime"}
    wanted.append(known or _of(SCHEDULED, True))
    mine = {entry["type"] for entry in wanted}
    return [*(_dated(entry, before.get(entry["type"]), now, generation) for entry in wanted),
            *(entry for kind, entry in before.items() if kind not in mine)]


def _of(kind: str, holds: bool, reason: str = "", message: str = "") -> Object:
    told = {} if holds or not reason else {"reason": reason, **({"message": message} if message else {})}
    return {"type": kind, "status": "True" if holds else "False", **told}


def _initialized(spec: Object, initial: Sequence[Object], phase: str) -> Object:
    if is_initialized(spec, initial):
        return {"type": INITIALIZED, "status": "True", **({"reason": "PodCompleted"} if phase == "Succeeded" else {})}
    left = [container["name"] for container, status in zip(spec.get("initContainers") or (), initial, strict=False)
            if not (status.get("started") if is_sidecar(container) else ended_well(status))]
    return _of(INITIALIZED, False, "PodFailed" if phase == "Failed" else "ContainersNotInitialized",
               f"containers with incomplete status: [{' '.join(left)}]")


def _unready(spec: Object, main: Iterable[Object], initial: Iterable[Object]) -> list[str]:
    sidecars = {container["name"] for container in spec.get("initContainers") or () if is_sidecar(container)}
    return [status["name"] for status in (*(each for each in initial if each["name"] in sidecars), *main)
            if not status.get("ready")]


def _ready(spec: Object, before: dict[str, Object], contained: Object) -> Object:
    """The Pod is ready when its containers are, and every gate is open."""
    if contained["status"] != "True":
        return {**contained, "type": READY}
    for gate in spec.get("readinessGates") or ():
        kind = gate["conditionType"]
        if kind not in before or before[kind].get("status") != "True":
            told = (f'corresponding condition of pod readiness gate "{kind}" does not exist.' if kind not in before
                    else f'the status of pod readiness gate "{kind}" is not "True", but {before[kind].get("status")}')
            return _of(READY, False, "ReadinessGatesNotReady", told)
    return _of(READY, True)


def _dated(entry: Object, before: Object | None, now: str, generation: int | None) -> Object:
    same = before is not None and before.get("status") == entry["status"]
    since = before.get("lastTransitionTime") if before is not None and same else now
    seen = {} if generation is None else {"observedGeneration": generation}
    return {**entry, "lastProbeTime": None, "lastTransitionTime": since, **seen}
