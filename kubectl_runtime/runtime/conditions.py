"""Conditions for `await_condition`: functions that take the object (None if it does not exist) and return a bool.

    is_created                             it exists
    is_deleted(uid)                        it does not exist, or has another uid: a new object of the same name
    is_ready                               a workload is rolled out, complete or ready: kubectl's `rollout status`
    is_pod_running                         a Pod's phase is Running
    is_job_completed                       a Job's condition Complete is True
    is_deployment_completed                a Deployment's latest rollout is complete
    is_crd_established                     a CustomResourceDefinition's condition Established is True
    is_service_loadbalancer_provisioned    a Service of type LoadBalancer has its addresses; other types need none
    is_ingress_provisioned                 an Ingress has its addresses
    has("Ready"), has("Ready", "False")    its condition of this type has this status for its current spec
    all_of(a, b, …), any_of(a, b, …), not_(a)

Any other function with this signature is a condition, too. A wait gives up when `why_never` reports that its condition
can never become true. Conditions read the object as plain JSON values, so they work for every class of the kind
and for `DynamicObject`s. A condition is false while a value that it reads is absent or null. All conditions raise
DecodeError for an object that does not decode. They are pure functions, safe from any thread. Names and meaning are
those of kube-rs (`kube::runtime::wait::conditions`), with two differences: an object with an empty list of addresses is
not provisioned, and a Deployment whose controller has not seen the latest change is not complete.

`rule_of` returns a function that names what a workload still lacks to be ready. A workload is ready when the latest
version of a Deployment, StatefulSet or DaemonSet is rolled out (kubectl's `pkg/polymorphichelpers/rollout_status.go`),
all replicas of a ReplicaSet or ReplicationController are ready, a Job is complete or suspended, or a Pod is ready or
has succeeded. For a failed object the function raises `NeverReady`. Two differences from kubectl: a paused Deployment
counts as ready, and with the strategy OnDelete only the number of ready replicas counts.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import Any, Never, Protocol, TypeAlias, cast, overload

import msgspec

from kubectl_runtime.core.base.errors import KubeError, RequestError
from kubectl_runtime.core.base.guard import (
    condition_of,
    holds,
    is_async,
    is_current,
    items_of,
    mapping,
    number_of,
    part_of,
)
from kubectl_runtime.core.meta.gvk import GroupVersionKind
from kubectl_runtime.core.meta.metav1 import STATUSES
from kubectl_runtime.core.objects.resource import Resource

Missing: TypeAlias = Callable[[Any], str]
"""A function that takes the object (None if it does not exist) and returns what it lacks; empty if it is ready."""

ABSENT = "it does not exist"


class NeverReady(KubeError):
    """The object has reached a final state that is not ready: for example a Job that failed."""


def rule_of(gvk: GroupVersionKind) -> Missing | None:
    """The function that returns what an object of this kind still lacks to be ready; None for an unknown kind."""
    return RULES.get((gvk.group, gvk.kind))


def rollout_failure(obj: Any) -> str:
    """Why the latest rollout of a Deployment failed; empty if it has not failed."""
    progressing = condition_of(obj, "Progressing")
    if progressing.get("reason") != "ProgressDeadlineExceeded" or not is_current(obj, progressing):
        return ""
    return f"it exceeded its progress deadline: {progressing.get('message') or ''}"


def job_failure(obj: Any) -> str:
    """Why a Job failed; empty if it has not failed."""
    if not holds(obj, "Failed"):
        return ""
    failed = condition_of(obj, "Failed")
    return f"the Job failed: {failed.get('reason') or ''}: {failed.get('message') or ''}"


def names_refused(obj: Any) -> str:
    """Why the server does not accept the names of a CustomResourceDefinition; empty if it accepts them."""
    if holds(obj, "Established") or not holds(obj, "NamesAccepted", "False"):
        return ""
    names = condition_of(obj, "NamesAccepted")
    return f"its names are taken: {names.get('reason')}: {names.get('message')}"


def _deployment(obj: Any) -> str:
    spec, status = part_of(obj, "spec"), part_of(obj, "status")
    if spec.get("paused"):
        return ""
    if why := rollout_failure(obj):
        raise NeverReady(why)
    wanted, updated = number_of(spec, "replicas", 1), number_of(status, "updatedReplicas")
    total, available = number_of(status, "replicas"), number_of(status, "availableReplicas")
    if updated < wanted:
        return f"{updated} of {wanted} replicas are updated"
    if total > updated:
        return f"{total - updated} old replicas are still there"
    return "" if available >= updated else f"{available} of {updated} updated replicas are available"


def _stateful_set(obj: Any) -> str:
    spec, status = part_of(obj, "spec"), part_of(obj, "status")
    strategy = mapping(spec.get("updateStrategy"))
    wanted, ready = number_of(spec, "replicas", 1), number_of(status, "readyReplicas")
    if ready < wanted:
        return f"{ready} of {wanted} replicas are ready"
    if strategy.get("type") == "OnDelete":
        return ""
    updated = number_of(status, "updatedReplicas")
    if partition := number_of(mapping(strategy.get("rollingUpdate")), "partition"):
        return "" if updated >= wanted - partition else f"{updated} of {wanted - partition} replicas are updated"
    if status.get("updateRevision") != status.get("currentRevision"):
        return f"{updated} of {wanted} replicas are updated"
    return ""


def _daemon_set(obj: Any) -> str:
    status = part_of(obj, "status")
    wanted = number_of(status, "desiredNumberScheduled")
    updated, available = number_of(status, "updatedNumberScheduled"), number_of(status, "numberAvailable")
    on_delete = mapping(part_of(obj, "spec").get("updateStrategy")).get("type") == "OnDelete"
    if updated < wanted and not on_delete:
        return f"{updated} of {wanted} Pods are updated"
    return "" if available >= wanted else f"{available} of {wanted} Pods are available"


def _replicas(obj: Any) -> str:
    wanted, ready = number_of(part_of(obj, "spec"), "replicas", 1), number_of(part_of(obj, "status"), "readyReplicas")
    return "" if ready >= wanted else f"{ready} of {wanted} replicas are ready"


def _job(obj: Any) -> str:
    if why := job_failure(obj):
        raise NeverReady(why)
    if holds(obj, "Complete") or part_of(obj, "spec").get("suspend"):
        return ""
    status = part_of(obj, "status")
    return (f"it is not complete: {number_of(status, 'active')} active, {number_of(status, 'succeeded')} succeeded, "
            f"{number_of(status, 'failed')} failed")


def _pod(obj: Any) -> str:
    phase = part_of(obj, "status").get("phase") or "Pending"
    if phase == "Failed":
        raise NeverReady(f"the Pod failed: {part_of(obj, 'status').get('reason') or 'see its containers'}")
    if phase == "Succeeded" or holds(obj, "Ready"):
        return ""
    return f"it is {phase} and not ready"


def _observed(missing: Missing, *, always: bool = True) -> Missing:
    """Call `missing` only if the status is about the latest generation. `always`: the controllers of this kind always
    write observedGeneration, so a status without it is old."""
    def checked(obj: Resource | None) -> str:
        if obj is None:
            return ABSENT
        generation = obj.generation or 0
        if number_of(part_of(obj, "status"), "observedGeneration", otherwise=-1 if always else generation) < generation:
            return "its controller has not seen the latest change"
        return missing(obj)

    return checked


RULES: dict[tuple[str, str], Missing] = {
    ("apps", "Deployment"): _observed(_deployment),
    ("apps", "StatefulSet"): _observed(_stateful_set),
    ("apps", "DaemonSet"): _observed(_daemon_set),
    ("apps", "ReplicaSet"): _observed(_replicas),
    ("", "ReplicationController"): _observed(_replicas),
    ("batch", "Job"): _observed(_job, always=False),
    ("", "Pod"): _observed(_pod, always=False),
}
"""The rules by group and kind."""


Condition: TypeAlias = Callable[[Any], bool]
"""A function that takes the object (None if it does not exist) and returns whether it fulfils the condition."""


class OfExisting(Protocol):
    """A condition that is never true of a missing object, so that a wait for it returns an object. For type checkers
    only; any function from an object to a bool is a Condition."""

    def __call__(self, obj: Any, /) -> bool:
        """Like any condition."""

    @property
    def of_existing(self) -> Never:
        """Marks this protocol for type checkers; no object has this attribute."""


def _of_existing(condition: Condition) -> OfExisting:
    return cast(OfExisting, condition)


WhyNever: TypeAlias = Callable[[Any], str]
"""A function that returns why an object can never fulfil a condition; empty if it can."""


class Described(msgspec.Struct, frozen=True):
    """A condition with a `text` for messages, such as `is_deleted(UID)`. `never` returns why an object can never fulfil
    the condition."""

    text: str
    check: Condition
    never: WhyNever = msgspec.field(default=lambda _: "")

    def __call__(self, obj: Any) -> bool:
        return self.check(obj)

    def __str__(self) -> str:
        return self.text


def name_of(condition: Condition) -> str:
    """The name of a condition in messages: the function's name, or the file and line of a lambda."""
    if isinstance(condition, Described):
        return condition.text
    code, name = getattr(condition, "__code__", None), getattr(condition, "__name__", "")
    if code is not None and name == "<lambda>":
        return f"the lambda in {code.co_filename.rpartition('/')[2]}, line {code.co_firstlineno}"
    return name or type(condition).__name__


@_of_existing
def is_created(obj: Any) -> bool:
    """True of an object that exists."""
    return obj is not None


def is_deleted(uid: str) -> Condition:
    """The condition that the object with this `uid` no longer exists: no object has its name, or a new object does.
    Raises RequestError unless `uid` is a non-empty text."""
    if not (isinstance(uid, str) and uid):
        raise RequestError("is_deleted needs the uid of an object that came from the server: "
                           "is_deleted(obj.uid)")
    return Described(f"is_deleted({uid})", lambda obj: obj is None or obj.uid != uid)


@_of_existing
def is_ready(obj: Any) -> bool:
    """True if the object is ready: a Deployment, StatefulSet or DaemonSet that is rolled out and scaled to its present
    spec, as in kubectl's `rollout status`; a ReplicaSet with all its replicas; a complete Job; a Pod that is ready or
    has succeeded. Raises a KubeError if the object can never be ready, such as a Job that failed, and RequestError for
    any other kind: use `has("Ready")` for such a kind."""
    if obj is None:
        return False
    rule = rule_of(obj.api_resource.gvk)
    if rule is None:
        known = ", ".join(kind for _, kind in RULES)
        raise RequestError(f'is_ready knows {known}, not {obj.api_resource.kind}: use has("Ready")')
    return not rule(obj)


@_of_existing
def is_pod_running(obj: Any) -> bool:
    """True of a Pod whose phase is Running; its containers may still not be ready."""
    return bool(part_of(obj, "status").get("phase") == "Running")


@_of_existing
def is_job_completed(obj: Any) -> bool:
    """True of a Job that succeeded. When the Job has failed, a wait raises WaitFailed with the reason."""
    return holds(obj, "Complete")


@_of_existing
def is_deployment_completed(obj: Any) -> bool:
    """True for a Deployment whose Pods all have its latest version and are available: the condition Progressing is True
    with the reason NewReplicaSetAvailable, for the latest generation. It stays true while the Deployment is scaled up;
    to wait for the new replicas as well, use `is_ready`. When the rollout exceeds its progress deadline, a wait raises
    WaitFailed.
    """
    return holds(obj, "Progressing") and condition_of(obj, "Progressing").get("reason") == "NewReplicaSetAvailable"


@_of_existing
def is_crd_established(obj: Any) -> bool:
    """True of a CustomResourceDefinition whose kind the server has accepted. The kind may not be served yet;
    `apply_crd` waits for that, too. When another kind has taken the names, a wait raises WaitFailed."""
    return holds(obj, "Established")


@_of_existing
def is_service_loadbalancer_provisioned(obj: Any) -> bool:
    """True of a Service of type LoadBalancer that has addresses, each with an IP or a host name; and of a Service of
    any other type."""
    if obj is None:
        return False
    if part_of(obj, "spec").get("type") != "LoadBalancer":
        return True
    return _has_addresses(obj)


@_of_existing
def is_ingress_provisioned(obj: Any) -> bool:
    """True of an Ingress that has addresses, each with an IP or a host name."""
    return _has_addresses(obj)


def has(kind: str, status: str = "True") -> OfExisting:
    """True when `status.conditions` has an entry of type `kind` with this status ("True", "False" or "Unknown"), as
    `kubectl wait --for=condition=Ready`. An entry about an earlier spec does not count. The entry's observedGeneration
    decides; if the entry has none, `status.observedGeneration` decides. Raises RequestError for another status, and for
    a type that is not text."""
    if not (isinstance(kind, str) and kind and status in STATUSES):
        raise RequestError('has needs the type of a condition, and its status as the text "True", "False" or '
                           f'"Unknown": has("Ready"), has("Ready", "False"); not has({kind!r}, {status!r})')

    return _of_existing(Described(f"has({kind})" if status == "True" else f"has({kind}, {status})",
                                  lambda obj: holds(obj, kind, status)))


@overload
def all_of(first: OfExisting, *more: Condition) -> OfExisting: ...
@overload
def all_of(first: Condition, *more: Condition) -> Condition: ...
def all_of(first: Condition, *more: Condition) -> Condition:
    """The condition that all of `conditions` are true; they are called in order until one is false."""
    conditions = (first, *more)
    return Described(_joined("all_of", conditions), lambda obj: all(condition(obj) for condition in conditions),
                     lambda obj: next(filter(None, (why_never(condition, obj) for condition in conditions)), ""))


@overload
def any_of(first: OfExisting, *more: OfExisting) -> OfExisting: ...
@overload
def any_of(first: Condition, *more: Condition) -> Condition: ...
def any_of(first: Condition, *more: Condition) -> Condition:
    """The condition that at least one of `conditions` is true; they are called in order until one is true. A wait gives
    up when none of them can become true any more."""
    conditions = (first, *more)

    def never(obj: Any) -> str:
        reasons = [why_never(condition, obj) for condition in conditions]
        return "; ".join(dict.fromkeys(reasons)) if all(reasons) else ""

    return Described(_joined("any_of", conditions), lambda obj: any(condition(obj) for condition in conditions), never)


def not_(condition: Condition) -> Condition:
    """The opposite condition. It is true for a missing object if `condition` is false for it."""
    return Described(_joined("not_", (condition,)), lambda obj: not condition(obj))


def why_never(condition: Condition, obj: Any) -> str:
    """The reason why `condition` can never become true for an object; empty if it can, or if that is unknown. A wait
    gives up when there is a reason. Raises DecodeError for an object that does not decode."""
    if obj is None:
        return ""
    if isinstance(condition, Described):
        return condition.never(obj)
    return next((never(obj) for known, never in _NEVER if known is condition), "")


_NEVER: tuple[tuple[Condition, WhyNever], ...] = (
    (is_job_completed, job_failure), (is_deployment_completed, rollout_failure), (is_crd_established, names_refused))


def _joined(word: str, conditions: tuple[Condition, ...]) -> str:
    if not all(map(callable, conditions)) or any(map(is_async, conditions)):
        raise RequestError(f"{word} combines conditions, functions from an object to a bool: {word}(is_created)")
    return f"{word}({', '.join(map(name_of, conditions))})"


def _has_addresses(obj: Any) -> bool:
    ingress = items_of(mapping(part_of(obj, "status").get("loadBalancer")), "ingress")
    return bool(ingress) and all(entry.get("ip") or entry.get("hostname") for entry in ingress)
