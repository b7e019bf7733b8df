"""What scheduler and kubelets write, through the cluster's loopback, so that every rule of the server holds for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kubectl_runtime.apiserver.controllers.event_recorder import tell
from kubectl_runtime.apiserver.kubelet.behaviour import Plan
from kubectl_runtime.apiserver.kubelet.kubelet import Kubelet
from kubectl_runtime.apiserver.kubelet.node_choice import choose_node
from kubectl_runtime.apiserver.kubelet.node_status import NOT_READY, is_reported, node_labels, reported
from kubectl_runtime.apiserver.kubelet.pod_machine import Move
from kubectl_runtime.apiserver.kubelet.pod_status import ENDED, SCHEDULED
from kubectl_runtime.apiserver.loopback import patch, path_of, served_type, submit
from kubectl_runtime.apiserver.storage.cluster import Cluster
from kubectl_runtime.apiserver.storage.storage import Version
from kubectl_runtime.core.base.guarded_log import guarded_logger
from kubectl_runtime.core.meta.metav1 import format_time

Object = dict[str, Any]

log = guarded_logger(__name__)

PODS, NODES = "/pods", "/nodes"
KUBELET, SCHEDULER, DEFAULT_SCHEDULER = "kubelet", "kube-scheduler", "default-scheduler"


def report_node(cluster: Cluster, version: Version, address: str) -> bool:
    """Report a Node that nobody reports yet; whether it was given the address."""
    node = version.decode()
    if is_reported(node):
        return False
    node_type, now = served_type(cluster, NODES), format_time(cluster.clock.now())
    status = reported(node, address, now)
    patch(cluster, node_type, version, {"status": status}, agent=KUBELET, subresource="status")
    labels = {**node_labels(version.name), **(node["metadata"].get("labels") or {})}
    taints = [taint for taint in (node.get("spec") or {}).get("taints") or () if taint["key"] != NOT_READY]
    patch(cluster, node_type, version, {"metadata": {"labels": labels}, "spec": {"taints": taints or None}},
          agent="kube-controller-manager")
    return {"type": "InternalIP", "address": address} in status["addresses"]


def schedule(cluster: Cluster, version: Version, plan: Plan, pods_by_node: Mapping[str, int]) -> bool:
    """Give a Pod a node if that is asked for and possible; False if it waits for a node."""
    pod = version.decode()
    spec = pod["spec"]
    if spec.get("schedulerName") != DEFAULT_SCHEDULER or spec.get("schedulingGates") or version.deleting:
        return True
    pods = served_type(cluster, PODS)
    if pods is None:
        return True
    node, why = "", plan.unschedulable
    if not why:
        nodes = [found.decode() for found in cluster.storage.bucket(NODES).scan("")]
        node, why = choose_node(pod, nodes, pods_by_node)
    if not node:
        _tell_unschedulable(cluster, version, pod, why)
        return False
    submit(cluster, "POST", path_of(pods, version.namespace, version.name, "binding"), {
        "metadata": {"name": version.name}, "target": {"kind": "Node", "name": node}}, agent=SCHEDULER)
    tell(cluster, pods, version, "Scheduled", f"Successfully assigned {version.key} to {node}",
         component=DEFAULT_SCHEDULER, agent=SCHEDULER)
    return True


def _tell_unschedulable(cluster: Cluster, version: Version, pod: Object, why: str) -> None:
    conditions = (pod.get("status") or {}).get("conditions") or []
    before: Object = next((entry for entry in conditions if entry["type"] == SCHEDULED), {})
    if before.get("reason") == "Unschedulable" and before.get("message") == why:
        return
    since = before.get("lastTransitionTime") if before.get("status") == "False" else None
    told = {"type": SCHEDULED, "status": "False", "reason": "Unschedulable", "message": why, "lastProbeTime": None,
            "lastTransitionTime": since or format_time(cluster.clock.now())}
    others = [entry for entry in conditions if entry["type"] != SCHEDULED]
    pods = served_type(cluster, PODS)
    patch(cluster, pods, version, {"status": {"conditions": [*others, told]}}, agent=SCHEDULER, subresource="status")
    if pods is not None:
        tell(cluster, pods, version, "FailedScheduling", why, component=DEFAULT_SCHEDULER, kind="Warning",
             agent=SCHEDULER)


def carry_out(cluster: Cluster, version: Version, move: Move, plan: Plan, kubelet: Kubelet) -> None:
    """Do what a Pod's move says: its status, its logs, Events, and its removal."""
    pods, namespace, name = served_type(cluster, PODS), version.namespace, version.name
    if pods is None:
        return
    if move.status is not None:
        change = {"status": move.status}
        if not patch(cluster, pods, version, change, agent=KUBELET, subresource="status"):
            log.warning("the status of Pod %s was refused: it stays as it is until it changes", version.key)
            return
    for container in move.ended:
        kubelet.end_log(namespace, name, container)
    for container in move.started:
        kubelet.begin_log(namespace, name, container, plan.of(container).log)
    if move.remove or (move.status or {}).get("phase") in ENDED:
        kubelet.end_pod(namespace, name)
    for kind, reason, message in move.events:
        tell(cluster, pods, version, reason, message, component=KUBELET, kind=kind, agent=KUBELET)
    if move.remove:
        submit(cluster, "DELETE", path_of(pods, namespace, name), {
            "gracePeriodSeconds": 0, "preconditions": {"uid": version.uid}}, agent=KUBELET)
