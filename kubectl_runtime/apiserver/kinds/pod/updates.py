"""What an update of a Pod may change: on the object itself, and through ephemeralcontainers, resize and status."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator
from typing import Any

from kubectl_runtime.apiserver import errors
from kubectl_runtime.apiserver.errors import Cause
from kubectl_runtime.apiserver.kinds.base import dig
from kubectl_runtime.apiserver.kinds.pod.resources import quality_of_service
from kubectl_runtime.apiserver.objectmeta.names import dns_subdomain_errors
from kubectl_runtime.apiserver.strategy import Object
from kubectl_runtime.core.codec.jsonvalues import json_copy

_GENERAL = ("pod updates may not change fields other than `spec.containers[*].image`,"
            "`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` "
            "(only additions to existing tolerations),"
            "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)\n")
_FOR_PROBED_CONTAINERS = ("ports", "livenessProbe", "readinessProbe", "startupProbe", "lifecycle", "resources",
                          "resizePolicy")
_RESIZABLE = ("cpu", "memory")


def update_causes(new: Object, old: Object) -> Iterator[Cause]:
    """An update of the Pod itself, from spec to spec: images, deadline, tolerations and gates may change."""
    for key in ("containers", "initContainers"):
        if len(new.get(key) or ()) != len(old.get(key) or ()):
            yield errors.forbidden_field(f"spec.{key}", "pod updates may not add or remove containers")
            return
    yield from (errors.required(f"spec.{key}[{index}].image") for key in ("containers", "initContainers")
                for index, container in enumerate(new.get(key) or ()) if not container.get("image"))
    yield from _deadline_causes(new.get("activeDeadlineSeconds"), old.get("activeDeadlineSeconds"))
    if not _keeps_tolerations(new.get("tolerations") or [], old.get("tolerations") or []):
        yield errors.forbidden_field("spec.tolerations",
                                     "existing toleration can not be modified except its tolerationSeconds")
    gates = {gate.get("name") for gate in old.get("schedulingGates") or ()}
    yield from (errors.forbidden_field(f"spec.schedulingGates[{index}].name", "only deletion is allowed, but found new "
                                       f"scheduling gate '{gate.get('name')}'")
                for index, gate in enumerate(new.get("schedulingGates") or ()) if gate.get("name") not in gates)
    selector, before = new.get("nodeSelector") or {}, old.get("nodeSelector") or {}
    if gates and any(selector.get(key) != value for key, value in before.items()):
        yield errors.invalid_value("spec.nodeSelector", selector,
                                   "only additions to spec.nodeSelector are allowed (no mutations or deletions)")
    allowed = _with_allowed_changes(old, new, gated=bool(gates))
    if allowed != new:
        yield errors.forbidden_field("spec", _GENERAL + _difference(allowed, new))


def _deadline_causes(new: int | None, old: int | None) -> Iterator[Cause]:
    path = "spec.activeDeadlineSeconds"
    if old is not None and new is None:
        yield errors.invalid_value(path, None, "must not update from a positive integer to nil value")
    elif old is not None and new is not None and new > old:
        yield errors.invalid_value(path, new, "must be less than or equal to previous value")


def _keeps_tolerations(new: list[Object], old: list[Object]) -> bool:
    """Whether each old toleration is still there; for how long it tolerates may change."""
    def without_time(toleration: Object) -> Object:
        return {key: value for key, value in toleration.items() if key != "tolerationSeconds"}

    return all(without_time(entry) in [without_time(other) for other in new] for entry in old)


def _with_allowed_changes(old: Object, new: Object, *, gated: bool) -> Object:
    """The old spec with those parts of the new one that may change, or of which has been spoken already."""
    allowed: Object = json_copy(old)
    for key in ("containers", "initContainers"):
        for container, changed in zip(allowed.get(key) or (), new.get(key) or (), strict=True):
            container["image"] = changed.get("image", "")
    taken = ["activeDeadlineSeconds", "tolerations", "schedulingGates"]
    if gated:
        taken.append("nodeSelector")
        if _adds_affinity(old, new):
            taken.append("affinity")
    if old.get("terminationGracePeriodSeconds", 0) < 0 and new.get("terminationGracePeriodSeconds") == 1:
        taken.append("terminationGracePeriodSeconds")
    for key in taken:
        if key in new:
            allowed[key] = new[key]
        else:
            allowed.pop(key, None)
    return allowed


def _adds_affinity(old: Object, new: Object) -> bool:
    """Whether the affinity to nodes was narrowed: it was none before."""
    parts = [{key: value for key, value in (spec.get("affinity") or {}).items() if key != "nodeAffinity"}
             for spec in (old, new)]
    return parts[0] == parts[1] and not (old.get("affinity") or {}).get("nodeAffinity")


def _difference(before: Any, after: Any) -> str:
    """A diff for people. The real server prints its internal Go structs, field by field; this prints the API's JSON."""
    old, new = (json.dumps(value, indent=1, sort_keys=True).splitlines(keepends=True) for value in (before, after))
    return "".join(list(difflib.unified_diff(old, new))[2:])


def ephemeral_causes(new: Object, old: Object) -> Iterator[Cause]:
    """Ephemeral containers are added, and never changed or removed."""
    known = {entry.get("name") for key in ("containers", "initContainers") for entry in new.get(key) or ()}
    given = {entry.get("name"): entry for entry in new.get("ephemeralContainers") or ()}
    for index, container in enumerate(new.get("ephemeralContainers") or ()):
        at, target = f"spec.ephemeralContainers[{index}]", container.get("targetContainerName")
        if target and target not in known:
            yield errors.not_found_value(f"{at}.targetContainerName", target)
        yield from (errors.forbidden_field(f"{at}.{key}", "cannot be set for an Ephemeral Container")
                    for key in _FOR_PROBED_CONTAINERS if container.get(key))
    for container in old.get("ephemeralContainers") or ():
        name = container.get("name")
        if name not in given:
            yield errors.forbidden_field("spec.ephemeralContainers",
                                         f'existing ephemeral containers "{name}" may not be removed\n')
        elif given[name] != container:
            yield errors.forbidden_field("spec.ephemeralContainers",
                                         f'existing ephemeral containers "{name}" may not be changed\n'
                                         + _difference(container, given[name]))


def resize_causes(new: Object, old: Object) -> Iterator[Cause]:
    """CPU and memory may change as long as the quality of service stays."""
    quality = dig(old, "status.qosClass") or quality_of_service(old["spec"])
    if quality_of_service(new["spec"]) != quality:
        yield errors.invalid_value("spec", quality, "Pod QOS Class may not change as a result of resizing")
    if _fixed_resources(new["spec"]) != _fixed_resources(old["spec"]):
        yield errors.forbidden_field("spec", "only cpu and memory resources are mutable")


def _fixed_resources(spec: Object) -> list[Object]:
    return [{part: {name: amount for name, amount in amounts.items() if name not in _RESIZABLE}
             for part in ("limits", "requests")
             if (amounts := (container.get("resources") or {}).get(part) or {}) and set(amounts) - set(_RESIZABLE)}
            for key in ("containers", "initContainers") for container in spec.get(key) or ()]


def status_causes(new: Object, old: Object) -> list[Cause]:
    """The quality of service was decided at creation; a Node has a name that Nodes can have."""
    quality, before = new.get("qosClass"), old.get("qosClass")
    node = new.get("nominatedNodeName") or ""
    causes = [errors.invalid_value("status.nominatedNodeName", node, why) for why in dns_subdomain_errors(node)
              ] if node != (old.get("nominatedNodeName") or "") and node else []
    return causes if quality == before or not before else [*causes, errors.immutable("status.qosClass", quality)]


def in_step(status: Object) -> None:
    """The first of several addresses is the one address, which wins."""
    for one, several in (("podIP", "podIPs"), ("hostIP", "hostIPs")):
        first, listed = status.get(one), status.get(several) or []
        if first and (not listed or listed[0].get("ip") != first):
            status[several] = [{"ip": first}]
        elif listed and not first:
            status[one] = listed[0].get("ip")
