"""Which node a Pod gets, and the status of a Node that has no machine. Pure functions.

Only these scheduler filters apply: whether the node is schedulable, its taints, and the Pod's node selector and
required node affinity. Resource amounts, ports, other Pods and volumes are ignored. Of the nodes that fit, the one with
the fewest Pods is chosen. A Node's conditions, amounts and machine data are the values that KWOK sets (in its stage
node-initialize), except for names.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping

from kubectl_runtime.apiserver.discovery import VERSION
from kubectl_runtime.apiserver.wire import Object

UNSCHEDULABLE = "node.kubernetes.io/unschedulable"


def choose_node(pod: Object, nodes: Iterable[Object], pods: Mapping[str, int]) -> tuple[str, str]:
    """Return (node name, ``""``), or (``""``, why no node fits the Pod). `pods` maps nodes to their number of Pods."""
    fits, refusals = [], Counter[str]()
    for node in nodes:
        if why := _refusal(pod["spec"], node):
            refusals[why] += 1
        else:
            fits.append(node["metadata"]["name"])
    if fits:
        return min(fits, key=lambda name: (pods.get(name, 0), name)), ""
    total = sum(refusals.values())
    if not total:
        return "", "no nodes available to schedule pods"
    told = ", ".join(f"{count} {why}" for why, count in sorted(refusals.items()))
    return "", (f"0/{total} nodes are available: {told}. preemption: 0/{total} nodes are available: {total} Preemption "
                "is not helpful for scheduling.")


def _refusal(spec: Object, node: Object) -> str:
    own, tolerations = node.get("spec") or {}, spec.get("tolerations") or ()
    if own.get("unschedulable") and not _tolerated({"key": UNSCHEDULABLE, "effect": "NoSchedule"}, tolerations):
        return "node(s) were unschedulable"
    for taint in untolerated(node, tolerations):
        return f"node(s) had untolerated taint {{{taint['key']}: {taint.get('value', '')}}}"
    return "" if selects(spec, node) else "node(s) didn't match Pod's node affinity/selector"


def untolerated(node: Object, tolerations: Iterable[Object]) -> list[Object]:
    """The node's taints that `tolerations` do not cover and that keep a Pod off the node."""
    return [taint for taint in (node.get("spec") or {}).get("taints") or ()
            if taint.get("effect") in ("NoSchedule", "NoExecute") and not _tolerated(taint, tolerations)]


def _tolerated(taint: Object, tolerations: Iterable[Object]) -> bool:
    for entry in tolerations:
        if entry.get("effect") not in (None, "", taint.get("effect")):
            continue
        key, operator = entry.get("key") or "", entry.get("operator") or "Equal"
        if operator == "Exists" and key in ("", taint["key"]):
            return True
        if operator == "Equal" and key == taint["key"] and (entry.get("value") or "") == (taint.get("value") or ""):
            return True
    return False


def selects(spec: Object, node: Object) -> bool:
    """Whether a Pod's node selector and required node affinity select a node."""
    labels = node["metadata"].get("labels") or {}
    if any(labels.get(key) != value for key, value in (spec.get("nodeSelector") or {}).items()):
        return False
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    if required is None:
        return True
    fields = {"metadata.name": node["metadata"]["name"]}
    return any(_term(term, labels, fields) for term in required.get("nodeSelectorTerms") or ())


def _term(term: Object, labels: Mapping[str, str], fields: Mapping[str, str]) -> bool:
    """Whether all requirements of a node selector term hold. A term without requirements selects nothing."""
    asked = [(entry, labels) for entry in term.get("matchExpressions") or ()]
    asked += [(entry, fields) for entry in term.get("matchFields") or ()]
    return bool(asked) and all(_holds(entry, held) for entry, held in asked)


def _holds(entry: Object, held: Mapping[str, str]) -> bool:
    value, values, operator = held.get(entry["key"]), entry.get("values") or [], entry.get("operator")
    if operator in ("Gt", "Lt"):
        try:
            left, right = int(value or ""), int(values[0])
        except (ValueError, IndexError):
            return False
        return left > right if operator == "Gt" else left < right
    return {"In": value in values, "NotIn": value not in values, "Exists": value is not None,
            "DoesNotExist": value is None}.get(str(operator), False)


FIRST_NODE = "node-1"
NOT_READY = "node.kubernetes.io/not-ready"
_CONDITIONS = (
    ("MemoryPressure", "False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
    ("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    ("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
    ("Ready", "True", "KubeletReady", "kubelet is posting ready status"),
)
_AMOUNTS = {"cpu": "1k", "memory": "1Ti", "pods": "1M"}


def new_node(name: str) -> Object:
    """A Node as a kubelet registers it."""
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": node_labels(name)}}


def node_labels(name: str) -> dict[str, str]:
    return {"beta.kubernetes.io/arch": "amd64", "beta.kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64",
            "kubernetes.io/hostname": name, "kubernetes.io/os": "linux"}


def is_reported(node: Object) -> bool:
    """Whether some client has already reported the Node's condition Ready."""
    return any(entry.get("type") == "Ready" for entry in (node.get("status") or {}).get("conditions") or ())


def reported(node: Object, address: str, now: str) -> Object:
    """The full status for a Node whose status no client has reported yet. Existing parts of that status stay."""
    before, name = node.get("status") or {}, node["metadata"]["name"]
    known = {entry["type"] for entry in before.get("conditions") or ()}
    machine = hashlib.sha256(name.encode()).hexdigest()[:32]
    info = {"architecture": "amd64", "bootID": machine, "containerRuntimeVersion": "containerd://2.1.0",
            "kernelVersion": "6.12.0", "kubeProxyVersion": "", "kubeletVersion": VERSION["gitVersion"],
            "machineID": machine, "operatingSystem": "linux", "osImage": "embedded API server", "systemUUID": machine}
    addresses = list(before.get("addresses") or ())
    for kind, value in (("InternalIP", address), ("Hostname", name)):
        if not any(entry.get("type") == kind for entry in addresses):
            addresses.append({"type": kind, "address": value})
    return {
        "capacity": before.get("capacity") or dict(_AMOUNTS), "addresses": addresses,
        "allocatable": before.get("allocatable") or before.get("capacity") or dict(_AMOUNTS),
        "conditions": [*(before.get("conditions") or ()), *(
            {"type": kind, "status": state, "lastHeartbeatTime": now, "lastTransitionTime": now, "reason": reason,
             "message": message} for kind, state, reason, message in _CONDITIONS if kind not in known)],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
        "nodeInfo": {**info, **{key: value for key, value in (before.get("nodeInfo") or {}).items() if value}}}


def address_of(node: Object) -> str:
    """The address of a Node; empty if it has none."""
    return next((entry["address"] for entry in (node.get("status") or {}).get("addresses") or ()
                 if entry.get("type") == "InternalIP"), "")
