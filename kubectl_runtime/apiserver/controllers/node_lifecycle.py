"""What a Node's conditions mean for scheduling: each bad condition is a taint with the effect NoSchedule.

This is the only part of kube-controller-manager's node-lifecycle-controller: nothing is evicted, and no Node becomes
unknown by silence.
"""
from __future__ import annotations

from typing import Any

from kubectl_runtime.apiserver.controllers.loop import KeyQueue
from kubectl_runtime.apiserver.controllers.replicasets import AGENT
from kubectl_runtime.apiserver.loopback import patch, served_type
from kubectl_runtime.apiserver.storage.storage import Cluster, Version

Object = dict[str, Any]

NODES = "/nodes"
_TAINTS = {("Ready", "False"): "not-ready", ("Ready", "Unknown"): "unreachable",
           ("MemoryPressure", "True"): "memory-pressure", ("DiskPressure", "True"): "disk-pressure",
           ("PIDPressure", "True"): "pid-pressure", ("NetworkUnavailable", "True"): "network-unavailable"}


class NodeLifecycleController(KeyQueue):
    """See the module."""

    name = "node-lifecycle"
    storage = NODES

    def reconcile(self, cluster: Cluster, version: Version) -> None:
        """Give a Node the taints of its conditions. One that nobody has reported keeps what it has."""
        node = version.decode()
        conditions = (node.get("status") or {}).get("conditions") or ()
        if not any(entry["type"] == "Ready" for entry in conditions):
            return
        wanted = {f"node.kubernetes.io/{taint}" for entry in conditions
                  if (taint := _TAINTS.get((entry["type"], entry["status"])))}
        known = {f"node.kubernetes.io/{taint}" for taint in _TAINTS.values()}
        before = (node.get("spec") or {}).get("taints") or []
        own = {taint["key"] for taint in before if taint["key"] in known and taint.get("effect") == "NoSchedule"}
        if own == wanted:
            return
        taints = [taint for taint in before if taint["key"] not in own - wanted or taint.get("effect") != "NoSchedule"]
        taints += [{"key": key, "effect": "NoSchedule"} for key in sorted(wanted - own)]
        patch(cluster, served_type(cluster, NODES), version, {"spec": {"taints": taints or None}}, agent=AGENT)
