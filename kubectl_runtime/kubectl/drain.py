"""`drain`: evicts all Pods of a Node, as `kubectl drain` does, and reports the outcome of each.

The Node is cordoned, and its Pods are classified before the first eviction:

- an unfinished Pod of a DaemonSet stays if `ignore_daemonsets` is set, and is refused otherwise; if the DaemonSet no
  longer exists, the Pod counts as a Pod without a controller
- a mirror of a static Pod stays
- an unfinished Pod with an emptyDir is evicted if `delete_emptydir_data` is set, and refused otherwise
- an unfinished Pod without a controller is evicted if `force` is set, and refused otherwise
- any other Pod is evicted

If a Pod is refused, nothing is evicted, and DrainError is raised. Otherwise `drain` requests each Pod's eviction, and
the server's response decides what follows. If it is a success, `drain` waits until the Pod is gone or replaced. 404
means that the Pod is gone. After 409 `drain` checks whether another Pod has the name now. After 429 (a disruption
budget), 5xx, no response, or an error because the namespace is terminating, the eviction is retried after 5 s while
time is left. After any other error the outcome of this Pod is FAILED; the other Pods are still evicted.

The rules are those of kubectl 1.32, `k8s.io/kubectl/pkg/drain`. Everything runs in the caller's thread; Pods take
turns, so that a waiting Pod delays no other.
"""
from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum
from http import HTTPStatus
from typing import Any

from kubectl_runtime.client.api.api import Api
from kubectl_runtime.client.api.client import Client
from kubectl_runtime.client.http.retry import KindNotServedError
from kubectl_runtime.core.base.errors import ApiError, KubeError, Status, message_of
from kubectl_runtime.core.base.guard import guarded_logger
from kubectl_runtime.core.base.threads import Clock, Duration, period_of
from kubectl_runtime.core.meta.gvk import ApiResource, ObjectRef, Scope
from kubectl_runtime.core.meta.selectors import LabelSelection
from kubectl_runtime.core.objects.partial import DynamicObject
from kubectl_runtime.core.requests.params import ListParams, Preconditions
from kubectl_runtime.core.requests.request import Place
from kubectl_runtime.core.requests.rights import foresee
from kubectl_runtime.core.scope import StopToken

log = guarded_logger(__name__)

RETRY_BUDGET = 5.0
"""Seconds between two attempts to evict a Pod that a budget protects, as in kubectl."""
POLL = 1.0
"""Seconds between two checks of the terminating Pods, as in kubectl."""

MIRROR = "kubernetes.io/config.mirror"
"""The annotation of a mirror Pod, which represents a static Pod of its node's kubelet."""

_PODS = ApiResource("", "v1", "Pod", "pods")
_NODES = ApiResource("", "v1", "Node", "nodes", Scope.CLUSTER)
_DAEMON_SETS = ApiResource("apps", "v1", "DaemonSet", "daemonsets")
_CALL = 10.0  # seconds for one eviction call; if Retry-After is longer, the call ends and is repeated after that time


class PodOutcome(Enum):
    """The outcome of a Pod when its Node is drained: gone, left in place, refused, failed, or still pending.

    >>> PodOutcome.__members__["GONE"].name
    'GONE'
    """

    GONE = "gone"
    """The Pod was evicted, or ended by itself, and no longer exists."""
    LEFT = "left"
    """The Pod stays, because it belongs to a DaemonSet or mirrors a static Pod."""
    REFUSED = "refused"
    """The Pod may not be evicted without a flag, so nothing was evicted."""
    PENDING = "pending"
    """The Pod was not evicted yet when another Pod was refused, or when the time was up."""
    FAILED = "failed"
    """The server refused to evict the Pod."""


@dataclass(frozen=True, slots=True)
class DrainedPod:
    """One Pod of a drain, its outcome and the reason: the missing flag, the disruption budget, the error."""

    ref: ObjectRef
    outcome: PodOutcome
    reason: str = ""


@dataclass(frozen=True, slots=True)
class DrainReport:
    """The result of `drain`: `pods` has the outcome of each Pod that was considered, sorted by namespace and name.

    >>> DrainReport("node-1", ()).pods
    ()
    """

    node: str
    pods: tuple[DrainedPod, ...]

    def of(self, outcome: PodOutcome) -> list[DrainedPod]:
        """The Pods with this outcome."""
        return [pod for pod in self.pods if pod.outcome is outcome]

    @property
    def is_drained(self) -> bool:
        """Whether all Pods that should be evicted are gone."""
        return all(pod.outcome in (PodOutcome.GONE, PodOutcome.LEFT) for pod in self.pods)


class DrainError(KubeError):
    """The Node is cordoned, but not drained; `report` has the outcome of each Pod.

    >>> issubclass(DrainError, KubeError)
    True
    """

    def __init__(self, message: str, report: DrainReport) -> None:
        super().__init__(message)
        self.report = report


def drain(client: Client, node: str, *, timeout: Duration | None, ignore_daemonsets: bool = False,
          delete_emptydir_data: bool = False, force: bool = False, grace_period_seconds: int | None = None,
          pod_selector: LabelSelection | None = None, stop: StopToken | None = None) -> DrainReport:
    """Cordon `node`, evict its Pods, and block until they are gone. Returns the outcome of each Pod.

    `timeout`: the longest time (None: unlimited). As for `kubectl drain`, some Pods are refused unless you allow it:
    Pods of a DaemonSet (`ignore_daemonsets` leaves them in place), Pods with emptyDir volumes
    (`delete_emptydir_data`), and Pods without a controller (`force`). `grace_period_seconds` replaces the Pods' own
    grace periods. `pod_selector` limits the drain to the Pods that it selects. Raises DrainError, with a report, when a
    Pod is refused, when an eviction fails, when the time is up, and when `stop` is set; ApiError for a Node that does
    not exist; RequestError, before anything is sent, for a timeout that is not above 0. Thread-safe.

    >>> _ = Api.all(client, Node).create(Node(name="node-1"))
    >>> drain(client, "node-1", timeout=10).pods
    ()
    """
    span = None if timeout is None else period_of(f"drain node {node}: timeout", timeout)
    pods = Place(_PODS)
    foresee(pods, "list", "get")
    foresee(pods, "create", subresource="eviction")
    Api.all(client, _NODES).cordon(node)
    listing = ListParams(field_selector={"spec.nodeName": node}, label_selector=pod_selector)
    flags = _Flags(client, ignore_daemonsets, delete_emptydir_data, force)
    judged: list[DrainedPod] = []
    terminating: list[_Evicted] = []
    for pod in Api.all(client, _PODS).list_all(listing):
        verdict = flags.judge(pod)
        judged.append(verdict)
        if verdict.outcome is PodOutcome.PENDING:
            terminating.append(_Evicted(client, pod, grace_period_seconds))
    report = _report(node, judged)
    if refused := report.of(PodOutcome.REFUSED):
        raise DrainError(f"drain node {node}: nothing was evicted: {_said(refused)}", report)
    ended = _empty(client.clock, terminating, span, stop or StopToken(clock=client.clock))
    left = [pod for pod in judged if pod.outcome is PodOutcome.LEFT]
    report = _report(node, [*left, *(pod.state() for pod in terminating)])
    if not report.is_drained:
        open_ = [*report.of(PodOutcome.FAILED), *report.of(PodOutcome.PENDING)]
        raise DrainError(f"drain node {node}: {ended or 'not every Pod could be evicted'}: {_said(open_)}", report)
    return report


def _empty(clock: Clock, terminating: list[_Evicted], span: float | None, stop: StopToken) -> str:
    """Give each Pod its turns until all Pods have an outcome; returns the reason for ending earlier, or ""."""
    deadline = math.inf if span is None else clock.monotonic() + span
    while pending := [pod for pod in terminating if pod.outcome is PodOutcome.PENDING]:
        now = clock.monotonic()
        if stop.is_set():
            return stop.reason or "its stop token was set"
        if now >= deadline:
            return f"the timeout of {span:g} s has passed"
        for pod in pending:
            if pod.due <= now:
                pod.step(clock.monotonic())
        wake = min((pod.due for pod in pending if pod.outcome is PodOutcome.PENDING), default=now)
        stop.wait(max(0.0, min(wake, deadline) - clock.monotonic()))
    return ""


def _report(node: str, pods: Iterable[DrainedPod]) -> DrainReport:
    return DrainReport(node, tuple(sorted(pods, key=lambda pod: (pod.ref.namespace or "", pod.ref.name))))


def _said(pods: Iterable[DrainedPod]) -> str:
    return "; ".join(f"{pod.ref.namespace}/{pod.ref.name}: {pod.reason}" for pod in pods)


@dataclass(frozen=True, slots=True)
class _Flags:
    """The caller's flags, which decide which Pods are evicted."""

    client: Client
    ignore_daemonsets: bool
    delete_emptydir_data: bool
    force: bool

    def judge(self, pod: DynamicObject) -> DrainedPod:
        """Return LEFT, REFUSED, or PENDING for a Pod that will be evicted."""
        return DrainedPod(pod.ref, *self._verdict(pod))

    def _verdict(self, pod: DynamicObject) -> tuple[PodOutcome, str]:
        content: dict[str, Any] = pod.to_dict()
        metadata, spec = content["metadata"], content.get("spec") or {}
        if MIRROR in (metadata.get("annotations") or {}):
            return PodOutcome.LEFT, "a mirror of a static Pod"
        if (content.get("status") or {}).get("phase") in ("Succeeded", "Failed"):
            return PodOutcome.PENDING, ""
        owner = next((entry for entry in metadata.get("ownerReferences") or () if entry.get("controller")), None)
        unmanaged = "" if owner is not None else "it has no controller"
        if owner is not None and owner["kind"] == "DaemonSet" and owner["apiVersion"].startswith("apps/"):
            name, sets = owner["name"], Api.namespaced(self.client, _DAEMON_SETS, pod.namespace)
            if sets.get_opt(name) is None:
                unmanaged = f"its DaemonSet {name} is gone"
            elif self.ignore_daemonsets:
                return PodOutcome.LEFT, f"belongs to DaemonSet {name}"
            else:
                return PodOutcome.REFUSED, f"it belongs to DaemonSet {name}: ignore_daemonsets=True leaves it in place"
        if any("emptyDir" in volume for volume in spec.get("volumes") or ()) and not self.delete_emptydir_data:
            return PodOutcome.REFUSED, "it has data in an emptyDir: delete_emptydir_data=True deletes it"
        if unmanaged and not self.force:
            return PodOutcome.REFUSED, f"{unmanaged}, so nothing would bring it back: force=True deletes it"
        return PodOutcome.PENDING, ""


class _Evicted:
    """One Pod of a drain. It must first be evicted, and then disappear. `due`: the time of its next step."""

    def __init__(self, client: Client, pod: DynamicObject, grace: int | None) -> None:
        self.ref, self.uid, self.reason = pod.ref, pod.uid, "its eviction was not requested yet"
        self.outcome = PodOutcome.PENDING
        self.due = -math.inf
        self._api = Api.namespaced(client, _PODS, pod.namespace)
        self._grace = grace
        self._turn: Callable[[float], None] = self._evict

    def state(self) -> DrainedPod:
        return DrainedPod(self.ref, self.outcome, self.reason)

    def step(self, now: float) -> None:
        """Take this Pod's next step. Errors of the network or the server are retried; a refusal by the server is the
        outcome."""
        try:
            self._turn(now)
        except KindNotServedError as error:
            self.outcome, self.reason = PodOutcome.FAILED, str(error)
        except ApiError as error:
            self._refused(error, now)
        except KubeError as error:
            self.due, self.reason = now + RETRY_BUDGET, str(error)

    def _refused(self, error: ApiError, now: float) -> None:
        if error.is_not_found:
            self.outcome, self.reason = PodOutcome.GONE, ""
        elif error.code == HTTPStatus.TOO_MANY_REQUESTS:
            self.due, self.reason = now + max(RETRY_BUDGET, error.retry_after or 0.0), _budget(error)
            log.info("drain: %s/%s is not evicted yet: %s", self.ref.namespace, self.ref.name, self.reason)
        elif error.is_conflict:  # perhaps this Pod is gone, and another Pod has its name
            self.due, self.reason, self._turn = now, str(error), self._look
        elif error.code >= HTTPStatus.INTERNAL_SERVER_ERROR or _namespace_ends(error):
            self.due, self.reason = now + RETRY_BUDGET, str(error)
        else:
            self.outcome, self.reason = PodOutcome.FAILED, str(error)

    def _evict(self, now: float) -> None:
        self._api.evict(self.ref.name, grace_period_seconds=self._grace, preconditions=Preconditions(uid=self.uid),
                        timeout=_CALL)
        self.due, self.reason, self._turn = now, "it has not ended yet", self._look

    def _look(self, now: float) -> None:
        found = self._api.get(self.ref.name)
        if found.uid != self.uid:
            self.outcome, self.reason = PodOutcome.GONE, ""
            return
        self.due = now + POLL
        if found.metadata.deletion_timestamp is None:  # the eviction was not carried out
            self._turn = self._evict


def _budget(error: ApiError) -> str:
    causes = "; ".join(cause.message for cause in error.status.causes if cause.message)
    return message_of(Status(message=causes or error.status.message, reason=error.reason, code=error.code))


def _namespace_ends(error: ApiError) -> bool:
    """Whether the namespace is terminating, so that no Eviction can be created; its Pods are deleted anyway."""
    return any(cause.reason == "NamespaceTerminating" for cause in error.status.causes)
