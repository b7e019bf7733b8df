"""The status of a Node that nothing stands behind, as its kubelet would report it. Pure functions.

Conditions, amounts and what is told of the machine are those of KWOK (its stage node-initialize), but for the names.
"""

from __future__ import annotations

import hashlib
from typing import Any

from kubectl_runtime.apiserver.discovery import VERSION

Object = dict[str, Any]

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
    """A Node as its kubelet registers it."""
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": node_labels(name)}}


def node_labels(name: str) -> dict[str, str]:
    """The labels that a kubelet gives its Node."""
    return {"beta.kubernetes.io/arch": "amd64", "beta.kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64",
            "kubernetes.io/hostname": name, "kubernetes.io/os": "linux"}


def is_reported(node: Object) -> bool:
    """Whether somebody told already whether the Node is ready."""
    return any(entry.get("type") == "Ready" for entry in (node.get("status") or {}).get("conditions") or ())


def reported(node: Object, address: str, now: str) -> Object:
    """The status of a Node that has none; what is there of it stays."""
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
    """The address at which the Node is reached; empty if it tells none."""
    return next((entry["address"] for entry in (node.get("status") or {}).get("addresses") or ()
                 if entry.get("type") == "InternalIP"), "")
