"""Readiness of applied objects, as functions that return the reason why an object is not ready, or an empty text if it
is ready.

Workloads are ready by the rules of `kubectl_runtime.runtime.conditions`. Other kinds are ready at once, or when a given
condition is met.

`await_all` waits for several objects in one thread under one deadline. Each round, 5 s at most, checks every remaining
object once (by a list request for this object), so that a permanent failure is noticed early, and then watches the
first remaining object. Finished waits are reported as they end. At the deadline or a stop, the remaining waits fail
with the last seen state of each object.

`PodTroubles` explains why the Pods of an unready workload do not run, in the words of scheduler and kubelet, as
`kubectl describe pod` would:

    deployments web: 0 of 1 updated replicas are available; Pod web-7d9f: main: ImagePullBackOff: manifest unknown

`PodTroubles` is used when a wait has failed. If the Pods cannot be listed, because the permission is missing or the
server does not respond, no explanation is added.
"""
from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kubectl_runtime.client.api.api import Api
from kubectl_runtime.core.base.errors import KubeError
from kubectl_runtime.core.base.guard import condition_of, holds, items_of, mapping, number_of, part_of
from kubectl_runtime.core.meta.gvk import ApiResource, GroupVersionKind, ObjectRef
from kubectl_runtime.core.scope import StopToken
from kubectl_runtime.kubectl.report import Progress
from kubectl_runtime.runtime.apply_crd import TimeLeft
from kubectl_runtime.runtime.conditions import (
    ABSENT,
    Condition,
    Described,
    Missing,
    NeverReady,
    name_of,
    names_refused,
    rule_of,
    why_never,
)
from kubectl_runtime.runtime.logs import said
from kubectl_runtime.runtime.wait import WaitError, WaitStopped, WaitTimeout, await_condition


def missing_of(gvk: GroupVersionKind, ready: Mapping[str, Condition]) -> Missing | None:
    """Return the readiness function of this kind; None for a kind that is ready at once. `ready`: the caller's
    conditions by kind, ``Certificate`` or ``Certificate.cert-manager.io``."""
    condition = ready.get(f"{gvk.kind}.{gvk.group}" if gvk.group else gvk.kind) or ready.get(gvk.kind)
    if condition is not None:
        return _by_condition(condition)
    return rule_of(gvk)


def gone(uid: str) -> Missing:
    """Return a function that gives the reason why the object with this `uid` still exists; empty when it is gone."""
    def missing(obj: Any) -> str:
        if obj is None or obj.uid != uid:
            return ""
        return f"it waits for {held}" if (held := held_by(obj)) else "it is still there"

    return missing


_REMAINING = ("NamespaceDeletionDiscoveryFailure", "NamespaceDeletionGroupVersionParsingFailure",
              "NamespaceDeletionContentFailure", "NamespaceContentRemaining", "NamespaceFinalizersRemaining")
"""The conditions of a Namespace that show why its deletion is not finished."""


def is_namespace(obj: Any) -> bool:
    """Whether the object is a Namespace."""
    resource = obj.api_resource
    return resource.kind == "Namespace" and not resource.group


def held_by(obj: Any) -> str:
    """The reasons why a deleted object still exists: its finalizers, and the remaining content of a Namespace. Empty if
    unknown. Raises DecodeError."""
    held = [f"its finalizers {', '.join(obj.finalizers)}"] if obj.finalizers else []
    if is_namespace(obj):
        held += [str(condition_of(obj, kind).get("message")) for kind in _REMAINING if holds(obj, kind)]
    return "; ".join(held)


def is_active(obj: Any) -> str:
    """The reason why no objects can be created in a Namespace yet; empty when it is active."""
    phase = part_of(obj, "status").get("phase") or "not set yet"
    return ABSENT if obj is None else "" if phase == "Active" else f"its phase is {phase}"


def is_established(obj: Any) -> str:
    """The reason why the kind of a CustomResourceDefinition is not served yet; empty when it is established."""
    if obj is None:
        return ABSENT
    if why := names_refused(obj):
        raise NeverReady(why)
    return "" if holds(obj, "Established") else "it is not established"


def _by_condition(condition: Condition) -> Missing:
    def missing(obj: Any) -> str:
        if condition(obj):
            return ""
        if why := why_never(condition, obj):
            raise NeverReady(why)
        return f"condition {name_of(condition)} is not met"

    return missing


PODS = ApiResource("", "v1", "Pod", "pods")
MOST_PODS = 50
"""The maximum number of Pods to check, which is enough because a workload's Pods mostly share one problem."""
MOST_NAMED = 3
"""The maximum number of problems to report."""
PATIENCE = 5.0
"""Seconds for the call that lists the Pods."""

_USUAL = frozenset(("", "ContainerCreating", "PodInitializing"))


class PodTroubles:
    """Looks up the Pods of one workload after the other, until the server does not respond. Not thread-safe."""

    def __init__(self) -> None:
        self._usable = True

    def of(self, api: Api[Any], obj: Any) -> str:
        """Why the Pods of the workload `obj` do not run, as text to append to the reason why `obj` is not ready; empty
        when nothing is known. Blocks for one call, for at most `PATIENCE` seconds."""
        labels = mapping(part_of(obj, "spec").get("selector")).get("matchLabels")
        if not self._usable or not api.namespace or not isinstance(labels, Mapping) or not labels:
            return ""
        try:
            pods = Api.namespaced(api.client, PODS, api.namespace).list(label_selector=labels, limit=MOST_PODS,
                                                                        timeout=PATIENCE)
            told: dict[str, str] = {}  # one Pod for each problem
            for pod in pods:
                for trouble in _troubles(pod):
                    told.setdefault(trouble, pod.name)
        except KubeError:
            self._usable = False
            return ""
        return "".join(f"; Pod {name}: {trouble}" for trouble, name in [*told.items()][:MOST_NAMED])


    def ending(self, api: Api[Any], namespace: str) -> str:
        """The text about the Pods that a terminating Namespace waits for. The Namespace itself does not mention their
        grace period."""
        if not self._usable:
            return ""
        try:
            pods = Api.namespaced(api.client, PODS, namespace).list(limit=MOST_PODS, timeout=PATIENCE)
            ending = [pod for pod in pods if pod.deletion_timestamp is not None]
        except KubeError:
            self._usable = False
            return ""
        told = [f"{pod.name} ({_grace(pod):g} s of grace)" for pod in ending[:MOST_NAMED]]
        more = f" and {len(ending) - MOST_NAMED} more" if len(ending) > MOST_NAMED else ""
        return f"; it waits for its Pods to end: {', '.join(told)}{more}" if told else ""


def _grace(pod: Any) -> int:
    return number_of(part_of(pod, "metadata"), "deletionGracePeriodSeconds")


def _troubles(pod: Any) -> Iterator[str]:
    scheduled = condition_of(pod, "PodScheduled")
    if scheduled.get("status") == "False":
        yield _said(scheduled.get("reason"), scheduled.get("message"))
    status = part_of(pod, "status")
    for container in (*items_of(status, "initContainerStatuses"), *items_of(status, "containerStatuses")):
        waiting = mapping(mapping(container.get("state")).get("waiting"))
        if (reason := str(waiting.get("reason") or "")) in _USUAL:
            continue
        ended = mapping(mapping(container.get("lastState")).get("terminated"))
        code = f" (exit code {ended['exitCode']})" if "exitCode" in ended else ""
        yield f"{container.get('name')}: {_said(reason, waiting.get('message'))}{code}"


def _said(reason: Any, message: Any) -> str:
    return f"{reason}: {message}" if message else str(reason)


ROUND = 5.0
"""The maximum number of seconds between two checks of an object."""


@dataclass(slots=True, eq=False)
class Wait:
    """The wait for one object: what the object lacks, and the word for the goal (ready, gone)."""

    api: Api[Any]
    ref: ObjectRef
    missing: Missing
    word: str
    why: str = "it was not read yet"
    seen: Any = None
    took_time: bool = False
    """Whether any check so far found that the object had not reached its goal yet."""

    def is_over(self, obj: Any) -> bool:
        """Whether the wait is over, because `obj` lacks nothing. Raises NeverReady if `obj` can never become ready, or
        if the caller's condition raises an exception that is not a KubeError."""
        self.seen = obj
        try:
            self.why = self.missing(obj)
        except KubeError:
            raise
        except Exception as error:
            raise NeverReady(f"the awaited condition raised {type(error).__name__}: {error}") from error
        self.took_time = self.took_time or bool(self.why)
        return not self.why


def await_all(waits: Sequence[Wait], left: TimeLeft, stop: StopToken | None, progress: Progress
              ) -> Iterator[tuple[Wait, KubeError | None]]:
    """Yield each wait as it ends, with its error if it failed. Blocks at most for the time in `left`."""
    pending = list(waits)
    while pending:
        for wait in list(pending):
            ended, error = _look(wait, left, stop)
            if ended:
                pending.remove(wait)
                yield wait, error
        if not pending:
            return
        if left.is_over() or (stop is not None and stop.is_set()):
            break
        first = pending[0]
        try:
            _watch(first, len(pending) - 1, left, stop, progress)
        except (WaitTimeout, WaitStopped) as error:
            if error.last_error:
                first.why = error.last_error
        except KubeError as error:
            pending.remove(first)
            yield first, error
        else:
            pending.remove(first)
            yield first, None
    troubles = PodTroubles()
    for wait in pending:
        yield wait, _unfinished(wait, left, stop, troubles)


def _look(wait: Wait, left: TimeLeft, stop: StopToken | None) -> tuple[bool, KubeError | None]:
    found: list[bool] = []

    def look(obj: Any) -> bool:
        found.append(wait.is_over(obj))
        return True

    try:
        await_condition(wait.api, wait.ref.name, Described("is seen", look), timeout=min(ROUND, left.seconds()),
                        stop=stop)
    except (WaitTimeout, WaitStopped) as error:
        if error.last_error:
            wait.why = error.last_error
        return False, None
    except KubeError as error:
        return True, error
    return found[-1], None


def _watch(wait: Wait, others: int, left: TimeLeft, stop: StopToken | None, progress: Progress) -> None:
    more = f" (and {others} more)" if others else ""

    def is_over(obj: Any) -> bool:
        over = wait.is_over(obj)
        if not over:
            progress.waiting(said(wait.ref), wait.why + more)
        return over

    progress.waiting(said(wait.ref), wait.why + more)
    await_condition(wait.api, wait.ref.name, Described(f"is {wait.word}", is_over), timeout=min(ROUND, left.seconds()),
                    stop=stop)


def _unfinished(wait: Wait, left: TimeLeft, stop: StopToken | None, troubles: PodTroubles) -> WaitError:
    if stop is not None and stop.is_set():
        return WaitStopped(f"it was not {wait.word} when a stop was requested ({stop.reason}): {wait.why}", wait.word,
                           wait.seen)
    pods = ""
    if wait.word == "ready":
        pods = troubles.of(wait.api, wait.seen)
    elif wait.seen is not None and is_namespace(wait.seen):
        pods = troubles.ending(wait.api, wait.ref.name)
    return WaitTimeout(f"it was not {wait.word} within {left.span:g} s: {wait.why}{pods}", wait.word, wait.seen)
