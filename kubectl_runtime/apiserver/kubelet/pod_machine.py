"""The next step of one Pod on a node, with its phase and conditions: pure functions of the Pod, its plan and the time.

==================================  ===================================================================================
the Pod                             the step
==================================  ===================================================================================
has no startTime                    admit it: Pending, addresses of the host, all containers waiting
is running its containers           init containers one after the other, then all others (see container_machine.py);
                                    phase and conditions follow from the containers
is active for too long              kill its containers; Failed, DeadlineExceeded
has ended                           none; its sidecars have ended with it
is being deleted                    ask its containers to end, kill them when the grace period is over; then Succeeded
                                    or Failed, and remove the Pod
==================================  ===================================================================================

One call of `advance` returns at most one status. When the caller has written that status, it observes the change and
calls `advance` again.

`PodMemory` records when a Pod and its containers entered their current states, because times in objects are missing or
have only whole seconds. The memory is lost when the server is restarted or restored, and waits begin again.
"""
from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

from kubectl_runtime.apiserver.kubelet.container_machine import KILLED, Container, Step, restarts, terminated, waiting
from kubectl_runtime.apiserver.kubelet.container_machine import advance as advance_container
from kubectl_runtime.apiserver.kubelet.rules import Plan
from kubectl_runtime.apiserver.wire import Object
from kubectl_runtime.core.meta.metav1 import format_time

ENDED = ("Succeeded", "Failed")
"""The final phases of a Pod."""
READY_TO_START, INITIALIZED, READY = "PodReadyToStartContainers", "Initialized", "Ready"
CONTAINERS_READY, SCHEDULED = "ContainersReady", "PodScheduled"


def is_sidecar(container: Object) -> bool:
    """Whether an init container is a sidecar, which keeps running beside the main containers."""
    return bool(container.get("restartPolicy") == "Always")


def state_of(status: Object) -> str:
    """A container's state: ``waiting``, ``running`` or ``terminated``; ``""`` without a status."""
    return next(iter(status.get("state") or {}), "")


def ended_well(status: Object) -> bool:
    """Whether a container has ended with exit code 0."""
    return ((status.get("state") or {}).get("terminated") or {}).get("exitCode") == 0


def is_initialized(spec: Object, initial: Sequence[Object]) -> bool:
    """Whether all init containers have ended and all sidecars have started."""
    return all(status.get("started") if is_sidecar(container) else ended_well(status)
               for container, status in zip(spec.get("initContainers") or (), initial, strict=False))


def phase_of(spec: Object, main: Sequence[Object], initial: Sequence[Object], *, ending: bool) -> str:
    """The Pod's phase. `ending`: whether the Pod is ending, so that none of its containers starts any more."""
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
    """The Pod's conditions. An unchanged condition keeps its time, and conditions of other clients stay.

    `status` must have phase and containers. `sandbox` says whether the Pod has its network.
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
    # If the scheduler wrote no condition, because the Pod was created with a node, add the condition here.
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
    """The condition Ready: true if the containers are ready and every readiness gate is true."""
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


_GROUPS = (("initContainers", "initContainerStatuses"), ("containers", "containerStatuses"),
           ("ephemeralContainers", "ephemeralContainerStatuses"))


class Timers(Protocol):
    """How long a Pod and its containers have been in their current states."""

    def elapsed(self, name: str, state: object) -> float:
        """Seconds since the Pod or container `name` was first seen in `state`; 0 at the first call."""

    def once(self, what: str) -> bool:
        """Whether this is the first call with `what` for this Pod."""

    def pulls(self, container: str) -> int:
        """How many pulls of the container's image have failed."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What the step of a Pod needs from the Pod's node: time, addresses, IDs."""

    now: datetime
    host: str
    """The node's address; empty if the node has none."""
    address: Callable[[], str]
    """Returns a new address for a Pod."""
    new_id: Callable[[], str]
    """Returns an ID for a new container."""


@dataclass(slots=True)
class Move:
    """The result of `advance`: the status and Events (type, reason, message) to write, the containers that started,
    ended or failed to pull their image, whether to remove the Pod, and the seconds until the next call."""

    status: Object | None = None
    events: list[tuple[str, str, str]] = field(default_factory=list)
    started: list[str] = field(default_factory=list)
    ended: list[str] = field(default_factory=list)
    failed_pulls: list[str] = field(default_factory=list)
    remove: bool = False
    wait: float | None = None


def advance(pod: Object, plan: Plan, timers: Timers, around: Surroundings) -> Move:
    """The next step of a Pod that has a node."""
    status, deleting = pod.get("status") or {}, "deletionTimestamp" in pod["metadata"]
    if status.get("phase") in ENDED:
        # A grace period of 0 means that the kubelet has deleted the Pod: only finalizers keep it.
        gone = deleting and (pod["metadata"].get("deletionGracePeriodSeconds") or not pod["metadata"].get("finalizers"))
        return Move(remove=bool(gone))
    if deleting:
        return _end(pod, plan, timers, around)
    if not status.get("startTime"):
        return _admit(pod, around)
    return _past_deadline(pod, around) or _turn(pod, plan, timers, around)


def _statuses(pod: Object) -> dict[str, Object]:
    status = pod.get("status") or {}
    return {entry["name"]: entry for _, key in _GROUPS for entry in status.get(key) or ()}


def _written(pod: Object, known: dict[str, Object], around: Surroundings, *, ending: bool = False,
             sandbox: bool = True) -> Object:
    """The Pod's status, computed from its containers' statuses (`known`)."""
    spec, before = pod["spec"], pod.get("status") or {}
    status: Object = {"observedGeneration": pod["metadata"].get("generation", 1)}
    for key, told in _GROUPS:
        if spec.get(key):
            status[told] = [known.get(container["name"]) or waiting(container, "PodInitializing")
                            for container in spec[key]]
    main, initial = status["containerStatuses"], status.get("initContainerStatuses") or []
    status["phase"] = phase_of(spec, main, initial, ending=ending)
    now = format_time(around.now)
    status["startTime"] = before.get("startTime") or now
    if around.host:
        status.update(hostIP=around.host, hostIPs=[{"ip": around.host}])
    if not before.get("podIP") and (sandbox or spec.get("hostNetwork")):
        address = around.host if spec.get("hostNetwork") else around.address()
        status.update(podIP=address, podIPs=[{"ip": address}])
    status["conditions"] = conditions(pod, status, now, sandbox=sandbox)
    return status


def _admit(pod: Object, around: Surroundings) -> Move:
    reason = "PodInitializing" if pod["spec"].get("initContainers") else "ContainerCreating"
    known = {container["name"]: waiting(container, reason) for key, _ in _GROUPS for container in pod["spec"].get(key)
             or ()}
    return Move(_written(pod, known, around, sandbox=False))


def _turn(pod: Object, plan: Plan, timers: Timers, around: Surroundings) -> Move:
    known, move, changed = _statuses(pod), Move(), False
    waits = []
    for container, policy in _whose_turn(pod["spec"], known):
        step = _step(pod, container, policy, known.get(container["name"]) or {}, plan, timers, around)
        if step.status is not None:
            changed = True
            _note(move, container["name"], known.get(container["name"]) or {}, step)
            known[container["name"]] = step.status
        if step.wait is not None:
            waits.append(step.wait)
    if _has_ended(pod["spec"], known):
        for container in pod["spec"].get("initContainers") or ():
            if state_of(known.get(container["name"]) or {}) == "running":
                known[container["name"]] = terminated(known[container["name"]], 0, around.now)
                move.ended.append(container["name"])
    if changed or _is_outdated(pod, known, around):
        move.status = _written(pod, known, around)
    if (limit := _deadline(pod)) is not None:
        waits.append(limit - around.now.timestamp())
    move.wait = min(waits, default=None)
    return move


def _whose_turn(spec: Object, known: dict[str, Object]) -> Iterator[tuple[Object, str]]:
    """The containers that may take a step, each with its restart policy."""
    policy = spec.get("restartPolicy", "Always")
    for container in spec.get("initContainers") or ():
        status = known.get(container["name"]) or {}
        if is_sidecar(container):
            yield container, "Always"
            if not status.get("started"):
                return
        elif not ended_well(status):
            yield container, "OnFailure" if policy == "Always" else policy
            return
    for container in spec["containers"]:
        yield container, policy
    for container in spec.get("ephemeralContainers") or ():
        yield container, "Never"


def _step(pod: Object, container: Object, policy: str, status: Object, plan: Plan, timers: Timers,
          around: Surroundings) -> Step:
    meta, name = pod["metadata"], container["name"]
    state = status.get("state") or {}
    told = state.get("waiting") or state.get("terminated") or state.get("running") or {}
    # PodInitializing and ContainerCreating count as one state, so that a change between them does not restart the wait.
    reason = told.get("reason", "")
    signature = (state_of(status), "" if reason in ("PodInitializing", "ContainerCreating") else reason,
                 status.get("restartCount", 0))
    return advance_container(Container(
        container, status, plan.of(name), timers.elapsed(name, signature),
        timers.pulls(name), policy, f"{meta['name']}_{meta['namespace']}({meta['uid']})", around.now, around.new_id))


def _note(move: Move, name: str, before: Object, step: Step) -> None:
    move.events += step.events
    if step.started:
        move.started.append(name)
    if step.failed_pull:
        move.failed_pulls.append(name)
    if step.status is not None and state_of(before) == "running" and state_of(step.status) != "running":
        move.ended.append(name)


def _has_ended(spec: Object, known: dict[str, Object]) -> bool:
    """Whether all containers except sidecars have ended for good."""
    policy = spec.get("restartPolicy", "Always")
    ends = [((known.get(container["name"]) or {}).get("state") or {}).get("terminated")
            for container in spec["containers"]]
    return all(end is not None and not restarts(policy, end) for end in ends)


def _is_outdated(pod: Object, known: dict[str, Object], around: Surroundings) -> bool:
    """Whether the phase or conditions change although no container changed (for example, by a readiness gate)."""
    before = pod.get("status") or {}
    sandbox = bool(before.get("podIP")) and any(state_of(status) != "waiting" or status.get("lastState")
                                                for status in known.values())
    if not sandbox:
        return False
    fresh = _written(pod, known, around)
    return bool(fresh["phase"] != before.get("phase") or [
        (entry["type"], entry["status"]) for entry in fresh["conditions"]] != [
        (entry["type"], entry["status"]) for entry in before.get("conditions") or ()])


def _deadline(pod: Object) -> float | None:
    """The timestamp at which the Pod's activeDeadlineSeconds end; None without such a limit."""
    limit = pod["spec"].get("activeDeadlineSeconds")
    return None if limit is None else datetime.fromisoformat(pod["status"]["startTime"]).timestamp() + float(limit)


def _past_deadline(pod: Object, around: Surroundings) -> Move | None:
    limit = _deadline(pod)
    if limit is None or around.now.timestamp() < limit:
        return None
    known, move = _statuses(pod), Move()
    _kill(known, move, around)
    move.status = {**_written(pod, known, around, ending=True), "phase": "Failed", "reason": "DeadlineExceeded",
                   "message": "Pod was active on the node longer than the specified deadline"}
    move.status["conditions"] = conditions(pod, move.status, format_time(around.now), sandbox=True)
    return move


def _kill(known: dict[str, Object], move: Move, around: Surroundings) -> None:
    for name, status in known.items():
        if state_of(status) == "running":
            known[name] = terminated(status, KILLED, around.now)
            move.ended.append(name)


def _end(pod: Object, plan: Plan, timers: Timers, around: Surroundings) -> Move:
    """The next step of a deletion: each container may run until the end of the grace period."""
    known, move = _statuses(pod), Move()
    grace = float(pod["metadata"].get("deletionGracePeriodSeconds") or 0)
    elapsed = timers.elapsed("", "deletion")
    running = [name for name, status in known.items() if state_of(status) == "running"]
    if running and timers.once("Killing"):
        move.events = [("Normal", "Killing", f"Stopping container {name}") for name in running]
    waits = []
    for name in running:
        own = plan.of(name).stop
        limit = grace if own is None else min(own, grace)
        if elapsed >= limit:
            known[name] = terminated(known[name], 0 if own is not None and own <= grace else KILLED, around.now)
            move.ended.append(name)
        else:
            waits.append(limit - elapsed)
    if waits:
        move.wait = min(waits)
    else:
        move.remove = True
    if move.ended or move.remove:
        move.status = _written(pod, known, around, ending=move.remove)
    return move


@dataclass(slots=True)
class PodMemory:
    """The remembered states of one Pod and its containers."""

    states: dict[str, tuple[object, float]] = field(default_factory=dict)
    failed_pulls: dict[str, int] = field(default_factory=dict)
    said: set[str] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class PodTimers:
    """Implements `Timers` for one Pod, from its PodMemory. `now`: the present time in monotonic seconds."""

    memory: PodMemory
    now: float

    def elapsed(self, name: str, state: object) -> float:
        before = self.memory.states.get(name)
        if before is None or before[0] != state:
            self.memory.states[name] = (state, self.now)
            return 0.0
        return self.now - before[1]

    def once(self, what: str) -> bool:
        new = what not in self.memory.said
        self.memory.said.add(what)
        return new

    def pulls(self, container: str) -> int:
        return self.memory.failed_pulls.get(container, 0)
