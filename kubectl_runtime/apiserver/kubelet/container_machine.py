"""The next step of one container: a pure function of its status, its behaviour and the time (`advance`).

=====================  ==============================================  ================================================
state                  after                                           next
=====================  ==============================================  ================================================
waiting, may start     `start` s, if the image cannot be pulled        waiting ErrImagePull
                       `start` s, if the image can be pulled           running
ErrImagePull           at once                                         waiting ImagePullBackOff
ImagePullBackOff       10 s, doubled with each failure, 300 s at most  waiting ErrImagePull
                       at once, if the image can be pulled             running
running                `ready` s                                       running, ready
                       at once, if a rule now prevents readiness       running, not ready
                       `run` s                                         terminated, with `exit_code`
terminated, restarts   at once after the first run or a run of 10 min  running, restartCount + 1
                       at once after any other run                     waiting CrashLoopBackOff
CrashLoopBackOff       10 s, doubled with each restart, 300 s at most  running, restartCount + 1
                       at once, if the next run would not end          running, restartCount + 1
=====================  ==============================================  ================================================

States, reasons, texts and backoffs are those of kubelet 1.36 (10 s at first, MaxContainerBackOff at most). Probes and
lifecycle hooks are not run.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime

from kubectl_runtime.apiserver.kubelet.rules import Behaviour
from kubectl_runtime.apiserver.wire import Object
from kubectl_runtime.core.meta.metav1 import format_time

FIRST_BACKOFF, LAST_BACKOFF = 10.0, 300.0
CALM = 600.0
"""A run of this many seconds resets the backoff: the next restart counts as the first."""
KILLED = 137


@dataclass(frozen=True, slots=True)
class Container:
    """One container at one moment, with everything that `advance` needs."""

    spec: Object
    status: Object
    behaviour: Behaviour
    elapsed: float
    """Seconds since the container entered its state."""
    pulls: int
    """Number of failed image pulls so far."""
    policy: str
    """The container's restart policy: Always, OnFailure or Never."""
    pod: str
    """The Pod as messages name it: ``web_default(UID)``."""
    now: datetime
    new_id: Callable[[], str]
    """Returns an ID for a container that starts."""


@dataclass(slots=True)
class Step:
    """The result of `advance`: the changed status (or None), the seconds until the next call (None if no call is
    needed), and Events as (type, reason, message)."""

    status: Object | None = None
    wait: float | None = None
    events: list[tuple[str, str, str]] = field(default_factory=list)
    started: bool = False
    failed_pull: bool = False


def advance(container: Container) -> Step:
    """The next step of a container that may run now. (Init containers run one after the other.)"""
    state = container.status.get("state") or {}
    if "running" in state:
        return _run(container)
    if "terminated" in state:
        return _after_end(container) if restarts(container.policy, state["terminated"]) else Step()
    reason = (state.get("waiting") or {}).get("reason", "")
    if reason in ("ErrImagePull", "ImagePullBackOff"):
        return _pull_again(container, reason)
    if reason == "CrashLoopBackOff":
        left = 0.0 if container.behaviour.run is None else backoff(_count(container)) - container.elapsed
        return _start(container, _count(container) + 1) if left <= 0 else Step(wait=left)
    left = container.behaviour.start - container.elapsed
    if left > 0:
        return Step(wait=left)
    return _fail_pull(container) if container.behaviour.pull_error else _start(container, 0)


def waiting(spec: Object, reason: str) -> Object:
    """The status of a container that has not run yet."""
    return _status(spec, {"waiting": {"reason": reason}})


def terminated(status: Object, code: int, now: datetime) -> Object:
    running = (status.get("state") or {}).get("running") or {}
    ended = {"exitCode": code, "reason": "Error" if code else "Completed", "finishedAt": format_time(now),
             "startedAt": running.get("startedAt") or format_time(now)}
    if status.get("containerID"):
        ended["containerID"] = status["containerID"]
    return {**status, "ready": False, "started": False, "state": {"terminated": ended}}


def restarts(policy: str, ended: Object) -> bool:
    """Whether a container with this restart policy restarts after this end (its ``terminated`` state)."""
    return policy == "Always" or (policy == "OnFailure" and ended.get("exitCode", 0) != 0)


def backoff(failures: int) -> float:
    """Seconds to wait after the given number of failures (1 after the first)."""
    return float(min(LAST_BACKOFF, FIRST_BACKOFF * 2 ** min(max(0, failures - 1), 10)))


def _count(container: Container) -> int:
    return int(container.status.get("restartCount", 0))


def _run(container: Container) -> Step:
    behaviour, status = container.behaviour, container.status
    lasts = behaviour.run_time(_count(container))
    waits = []
    if lasts is not None:
        if container.elapsed >= lasts:
            return Step(terminated(status, behaviour.exit_code, container.now))
        waits.append(lasts - container.elapsed)
    wanted = behaviour.ready is not None and container.elapsed >= behaviour.ready
    if behaviour.ready is not None and not wanted:
        waits.append(behaviour.ready - container.elapsed)
    started = wanted or bool(status.get("started")) or not container.spec.get("startupProbe")
    changed = wanted != bool(status.get("ready")) or started != bool(status.get("started"))
    return Step({**status, "ready": wanted, "started": started} if changed else None, min(waits, default=None))


def _after_end(container: Container) -> Step:
    ended, count = container.status["state"]["terminated"], _count(container)
    if count == 0 or _lasted(ended) >= CALM or container.behaviour.run is None:
        return _start(container, count + 1)
    name = container.spec["name"]
    message = f"back-off {_go_seconds(backoff(count))} restarting failed container={name} pod={container.pod}"
    status = {**container.status, "lastState": {"terminated": ended},
              "state": {"waiting": {"reason": "CrashLoopBackOff", "message": message}}}
    return Step(status, events=[("Warning", "BackOff",
                                 f"Back-off restarting failed container {name} in pod {container.pod}")])


def _lasted(ended: Object) -> float:
    """How many seconds a run took; 0 if another client wrote the status without the times."""
    start, end = ended.get("startedAt"), ended.get("finishedAt")
    if not start or not end:
        return 0.0
    return (datetime.fromisoformat(end) - datetime.fromisoformat(start)).total_seconds()


def _start(container: Container, count: int) -> Step:
    spec, before = container.spec, container.status
    ended = (before.get("state") or {}).get("terminated") or (before.get("lastState") or {}).get("terminated")
    ready = container.behaviour.ready == 0
    status = _status(spec, {"running": {"startedAt": format_time(container.now)}})
    status.update(ready=ready, started=ready or not spec.get("startupProbe"), restartCount=count,
                  containerID=f"containerd://{container.new_id()}", lastState={"terminated": ended} if ended else {},
                  imageID=image_id(status["image"]))
    image = spec.get("image", "")
    pulled = (f'Container image "{image}" already present on machine' if count or (container.pulls == 0
              and spec.get("imagePullPolicy") != "Always") else f'Successfully pulled image "{image}"')
    return Step(status, started=True, events=[
        ("Normal", "Pulled", pulled), ("Normal", "Created", f"Container created: {spec['name']}"),
        ("Normal", "Started", f"Container started: {spec['name']}")])


def _fail_pull(container: Container) -> Step:
    image = container.spec.get("image", "")
    why = f'failed to pull and unpack image "{image_name(image)}": {container.behaviour.pull_error}'
    return Step(_status(container.spec, {"waiting": {"reason": "ErrImagePull", "message": why}}), failed_pull=True,
                events=[("Normal", "Pulling", f'Pulling image "{image}"'),
                        ("Warning", "Failed", f'Failed to pull image "{image}": {why}'),
                        ("Warning", "Failed", "Error: ErrImagePull")])


def _pull_again(container: Container, reason: str) -> Step:
    if not container.behaviour.pull_error:
        return _start(container, 0)
    if reason == "ErrImagePull":
        image, why = container.spec.get("image", ""), container.status["state"]["waiting"].get("message", "")
        told = f'Back-off pulling image "{image}"'
        return Step(_status(container.spec, {"waiting": {
            "reason": "ImagePullBackOff", "message": f"{told}: ErrImagePull: {why}"}}),
            events=[("Normal", "BackOff", told), ("Warning", "Failed", "Error: ImagePullBackOff")])
    left = backoff(container.pulls) - container.elapsed
    return Step(wait=left) if left > 0 else _fail_pull(container)


def _status(spec: Object, state: Object) -> Object:
    image = image_name(spec.get("image", ""))
    status: Object = {"name": spec["name"], "image": image if "running" in state else spec.get("image", ""),
                      "imageID": "", "ready": False, "started": False, "restartCount": 0, "state": state,
                      "lastState": {}}
    if "running" in state:
        resources = spec.get("resources") or {}
        status["resources"] = dict(resources)
        if resources.get("requests"):
            status["allocatedResources"] = dict(resources["requests"])
    if mounts := spec.get("volumeMounts"):
        status["volumeMounts"] = [{"name": mount["name"], "mountPath": mount["mountPath"],
                                   **({"readOnly": True, "recursiveReadOnly": "Disabled"} if mount.get("readOnly")
                                      else {})} for mount in mounts]
    return status


def image_name(image: str) -> str:
    """An image's full name as a container runtime reports it: ``nginx`` is ``docker.io/library/nginx:latest``."""
    first, slash, rest = image.partition("/")
    if not slash:
        image = f"docker.io/library/{image}"
    elif "." not in first and ":" not in first and first != "localhost":
        image = f"docker.io/{first}/{rest}"
    return image if "@" in image or ":" in image.rpartition("/")[2] else f"{image}:latest"


def image_id(name: str) -> str:
    """A digest for an image, computed from the image's name because no content exists."""
    repository = name.partition("@")[0]
    last = repository.rpartition("/")[2]
    if ":" in last:
        repository = repository[:-len(last)] + last.partition(":")[0]
    digest = hashlib.sha256(name.encode()).hexdigest()
    return name if "@" in name else f"{repository}@sha256:{digest}"


def _go_seconds(span: float) -> str:
    minutes, rest = divmod(int(span), 60)
    return f"{minutes}m{rest}s" if minutes else f"{rest}s"
