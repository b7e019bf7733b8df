"""When an object that was applied is ready: a function from the object to what is still missing, empty when nothing is.

    workloads                             by their rules (`kubectl_runtime.runtime.ready_rules`)
    everything else                       nothing to wait for, unless the caller gives a condition
"""
from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kubectl_runtime.core.meta.gvk import GroupVersionKind
from kubectl_runtime.runtime.conditions import Condition, name_of, why_never
from kubectl_runtime.runtime.parts import condition_of, holds, part_of
from kubectl_runtime.runtime.ready_rules import ABSENT, Missing, NeverReady, names_refused, rule_of


def missing_of(gvk: GroupVersionKind, ready: Mapping[str, Condition]) -> Missing | None:
    """How to tell whether objects of this kind are ready; None when there is nothing to wait for. `ready` are the
    caller's conditions by kind, ``Certificate`` or ``Certificate.cert-manager.io``."""
    condition = ready.get(f"{gvk.kind}.{gvk.group}" if gvk.group else gvk.kind) or ready.get(gvk.kind)
    if condition is not None:
        return _by_condition(condition)
    return rule_of(gvk)


def gone(uid: str) -> Missing:
    """What tells of an object whether the one with this `uid` is gone: a function that returns what is missing of that,
    empty when it is gone."""
    def missing(obj: Any) -> str:
        if obj is None or obj.uid != uid:
            return ""
        return f"it waits for {held}" if (held := held_by(obj)) else "it is still there"

    return missing


_REMAINING = ("NamespaceDeletionDiscoveryFailure", "NamespaceDeletionGroupVersionParsingFailure",
              "NamespaceDeletionContentFailure", "NamespaceContentRemaining", "NamespaceFinalizersRemaining")
"""The conditions by which a Namespace says what keeps it."""


def is_namespace(obj: Any) -> bool:
    """Whether it is a Namespace."""
    resource = obj.api_resource
    return resource.kind == "Namespace" and not resource.group


def held_by(obj: Any) -> str:
    """What an object that is being deleted waits for: its finalizers, and what a Namespace says of its content. Empty
    where nothing is said. Raises DecodeError."""
    held = [f"its finalizers {', '.join(obj.finalizers)}"] if obj.finalizers else []
    if is_namespace(obj):
        held += [str(condition_of(obj, kind).get("message")) for kind in _REMAINING if holds(obj, kind)]
    return "; ".join(held)


def is_active(obj: Any) -> str:
    """What is missing until objects can be made in a Namespace; empty when nothing is."""
    phase = part_of(obj, "status").get("phase") or "nothing yet"
    return ABSENT if obj is None else "" if phase == "Active" else f"its phase is {phase}"


def is_established(obj: Any) -> str:
    """What is missing until the kind of a CustomResourceDefinition is served; empty when nothing is."""
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
        return f"{name_of(condition)} is not so"

    return missing
