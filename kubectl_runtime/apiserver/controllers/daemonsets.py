"""DaemonSets create a Pod for each Node that fits, and replace Pods of old templates a few at a time.

Whether a Node fits depends on the template's nodeName, node selector and required affinity, and on the Node's taints.
Daemon Pods tolerate the taints of Nodes that are not ready, unreachable, unschedulable or under pressure. Each Pod's
required node affinity names its Node, and the scheduler binds the Pod to that Node.

RollingUpdate deletes Pods of old templates: unavailable Pods at once, other Pods within `maxUnavailable`. With
`maxSurge` the new Pod is created first. OnDelete leaves the deletion to the user. Each write of the
controller enqueues the DaemonSet again.
"""
from __future__ import annotations

import math
from typing import Any

from kubectl_runtime.apiserver.controllers import revisions
from kubectl_runtime.apiserver.controllers.deployments import PODS, claim, pod_metadata, ready_for
from kubectl_runtime.apiserver.controllers.loop import PER_STEP, KeyQueue, record_event
from kubectl_runtime.apiserver.controllers.revisions import HASH
from kubectl_runtime.apiserver.kinds.base import dig
from kubectl_runtime.apiserver.kubelet.nodes import selects, untolerated
from kubectl_runtime.apiserver.loopback import create, delete, patch_status
from kubectl_runtime.apiserver.storage import Bucket, Change, Cluster, Version
from kubectl_runtime.apiserver.wire import Object

DAEMON_SETS, NODES = "apps/daemonsets", "/nodes"
COMPONENT = "daemonset-controller"
GENERATION = "pod-template-generation"
_TOLERATED = [{"key": f"node.kubernetes.io/{what}", "operator": "Exists", "effect": effect} for what, effect in (
    ("not-ready", "NoExecute"), ("unreachable", "NoExecute"), ("disk-pressure", "NoSchedule"),
    ("memory-pressure", "NoSchedule"), ("pid-pressure", "NoSchedule"), ("unschedulable", "NoSchedule"))]
_OF_HOST_NETWORK = {"key": "node.kubernetes.io/network-unavailable", "operator": "Exists", "effect": "NoSchedule"}


class Daemon:
    """One Pod of a DaemonSet."""

    def __init__(self, version: Version, cluster: Cluster, spec: Object) -> None:
        self.version, self.obj = version, version.decode()
        self.node = node_of(self.obj)
        self.ended = dig(self.obj, "status.phase") in ("Succeeded", "Failed")
        age, wait = ready_for(self.obj, cluster.clock.now()), spec.get("minReadySeconds", 0)
        self.ready = age is not None
        self.waits = None if age is None or age >= wait else wait - age
        self.available = self.ready and self.waits is None
        self.hash = version.labels.get(HASH, "")


def node_of(pod: Object) -> str:
    """The Node that a daemon Pod runs on or was created for."""
    if node := dig(pod, "spec.nodeName"):
        return str(node)
    terms = dig(pod, "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms")
    fields = [entry for term in terms or () for entry in term.get("matchFields") or ()]
    return str(fields[0]["values"][0]) if len(fields) == 1 and fields[0].get("values") else ""


def pod_spec(spec: Object, node: str) -> Object:
    affinity = dict(spec.get("affinity") or {})
    affinity["nodeAffinity"] = {
        **(affinity.get("nodeAffinity") or {}), "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}]}}
    tolerations = list(spec.get("tolerations") or ())
    added = [*_TOLERATED, _OF_HOST_NETWORK] if spec.get("hostNetwork") else _TOLERATED
    return {**spec, "affinity": affinity,
            "tolerations": tolerations + [entry for entry in added if entry not in tolerations]}


def fits(spec: Object, node: Object) -> tuple[bool, bool]:
    """Return a pair: whether the Node should get a Pod, and whether an existing Pod may stay on the Node."""
    if spec.get("nodeName") not in (None, "", node["metadata"]["name"]) or not selects(spec, node):
        return False, False
    tolerations = [*(spec.get("tolerations") or ()), *_TOLERATED]
    if spec.get("hostNetwork"):
        tolerations.append(_OF_HOST_NETWORK)
    taints = [taint.get("effect") for taint in untolerated(node, tolerations)]
    return not taints, "NoExecute" not in taints


class DaemonSetController(KeyQueue):
    """Creates and deletes the Pods of DaemonSets."""

    name = "daemonset"
    storage = DAEMON_SETS
    kind = "DaemonSet"
    children = (PODS,)

    def _observe(self, bucket: Bucket, change: Change) -> None:
        super()._observe(bucket, change)
        if bucket.key == NODES and self._cluster is not None and (
                change.old is None or change.deleted or _shape(change.old) != _shape(change.new)):
            self._keys |= dict.fromkeys(self._cluster.storage.bucket(DAEMON_SETS).keys)

    def reconcile(self, cluster: Cluster, version: Version) -> None:
        obj = version.decode()
        spec = obj["spec"]
        known = revisions.newest(cluster, version, self.kind, obj, label=HASH)
        if not known:
            return
        update = known[-1].version.labels.get(HASH, "")
        daemons = [Daemon(pod, cluster, spec) for pod in claim(cluster, version, self.kind, spec["selector"], PODS)]
        by_node: dict[str, list[Daemon]] = {}
        for daemon in sorted(daemons, key=lambda one: (one.obj["metadata"]["creationTimestamp"], one.version.rv)):
            by_node.setdefault(daemon.node, []).append(daemon)
        nodes = {node.name: fits(spec["template"]["spec"], node.decode())
                 for node in cluster.storage.bucket(NODES).scan("")}
        _tell_counts(cluster, version, obj, by_node, nodes, update)
        if version.deleting:
            return
        missing, unwanted = _difference(by_node, nodes, spec, update)
        if not missing and not unwanted:
            unwanted = _outdated(spec, by_node, nodes, update)
        for daemon in unwanted[:PER_STEP]:
            _delete(cluster, version, daemon)
        for node in missing[:PER_STEP]:
            _make(cluster, version, obj, node, update)
        if not missing and not unwanted:
            used = {one.name for one in known if one.version.labels.get(HASH) in {daemon.hash for daemon in daemons}}
            revisions.forget(cluster, known, {known[-1].name, *used}, spec.get("revisionHistoryLimit", 10))
        if waits := [daemon.waits for daemon in daemons if daemon.waits is not None]:
            self.look_later(cluster, version, min(waits))


def _shape(node: Version) -> Any:
    """The parts of a Node that decide whether it fits a DaemonSet."""
    obj = node.decode()
    return node.labels, obj.get("spec")


def _difference(by_node: dict[str, list[Daemon]], nodes: dict[str, tuple[bool, bool]], spec: Object, update: str
                ) -> tuple[list[str], list[Daemon]]:
    """The Nodes that need a Pod, and the Pods to delete."""
    missing, unwanted = [], []
    for node, (wanted, stays) in nodes.items():
        found = [daemon for daemon in by_node.get(node, ()) if not daemon.version.deleting]
        if not found and wanted and not by_node.get(node):
            missing.append(node)
        elif not stays:
            unwanted += found
        else:
            unwanted += [daemon for daemon in found if daemon.ended]
            running = [daemon for daemon in found if not daemon.ended]
            if not _surge(spec, len(nodes)) or len({daemon.hash == update for daemon in running}) < 2:
                unwanted += running[1:]
    for node, found in by_node.items():
        if node and node not in nodes:
            unwanted += [daemon for daemon in found if not daemon.version.deleting]
    return missing, unwanted


def _share(value: Any, whole: int) -> int:
    """`value` if it is a number, else the percentage `value` of `whole`, rounded up."""
    return value if isinstance(value, int) else math.ceil(whole * int(str(value).rstrip("%")) / 100)


def _surge(spec: Object, nodes: int) -> int:
    if spec["updateStrategy"]["type"] != "RollingUpdate":
        return 0
    return _share(dig(spec, "updateStrategy.rollingUpdate.maxSurge") or 0, nodes)


def _outdated(spec: Object, by_node: dict[str, list[Daemon]], nodes: dict[str, tuple[bool, bool]], update: str
              ) -> list[Daemon]:
    """The Pods of old templates that may be deleted now."""
    if spec["updateStrategy"]["type"] != "RollingUpdate":
        return []
    wanted = [node for node, (fit, _) in nodes.items() if fit]
    most = _share(dig(spec, "updateStrategy.rollingUpdate.maxUnavailable") or 0, len(wanted))
    if not most and not _surge(spec, len(wanted)):
        most = 1
    going, candidates, unavailable = [], [], 0
    for node in wanted:
        found = [daemon for daemon in by_node.get(node, ()) if not daemon.version.deleting]
        old = [daemon for daemon in found if daemon.hash != update]
        if any(daemon.available and daemon.hash == update for daemon in found):
            going += old  # an available new Pod already replaces them
        elif not any(daemon.available for daemon in found):
            unavailable += 1
            going += old
        else:
            candidates += old
    return going + candidates[:max(0, most - unavailable)]


def _make(cluster: Cluster, version: Version, obj: Object, node: str, update: str) -> None:
    template = obj["spec"]["template"]
    generation = (obj["metadata"].get("annotations") or {}).get("deprecated.daemonset.template.generation", "1")
    made = create(cluster, PODS, version.namespace, {
        "spec": pod_spec(template["spec"], node),
        "metadata": pod_metadata(version, "DaemonSet", template, {HASH: update, GENERATION: generation})})
    if made is not None:
        record_event(cluster, DAEMON_SETS, version, "SuccessfulCreate", f"Created pod: {made['metadata']['name']}",
                     component=COMPONENT)


def _delete(cluster: Cluster, version: Version, daemon: Daemon) -> None:
    delete(cluster, PODS, daemon.version)
    record_event(cluster, DAEMON_SETS, version, "SuccessfulDelete", f"Deleted pod: {daemon.version.name}",
                 component=COMPONENT)


def _tell_counts(cluster: Cluster, version: Version, obj: Object, by_node: dict[str, list[Daemon]],
                 nodes: dict[str, tuple[bool, bool]], update: str) -> None:
    """Write the status if it changed. If a Node has several Pods, the oldest one counts."""
    wanted = [node for node, (fit, _) in nodes.items() if fit]
    first = {node: next((daemon for daemon in by_node.get(node, ()) if not daemon.version.deleting), None)
             for node in wanted}
    found = [daemon for daemon in first.values() if daemon is not None]
    available = sum(daemon.available for daemon in found)
    counts = {"desiredNumberScheduled": len(wanted),
              "currentNumberScheduled": sum(bool(by_node.get(node)) for node in wanted),
              "numberMisscheduled": sum(node in by_node and not fit for node, (fit, _) in nodes.items()),
              "numberReady": sum(daemon.ready for daemon in found), "numberAvailable": available,
              "numberUnavailable": len(wanted) - available,
              "updatedNumberScheduled": sum(daemon.hash == update for daemon in found),
              "observedGeneration": obj["metadata"].get("generation", 1)}
    always = ("desiredNumberScheduled", "currentNumberScheduled", "numberMisscheduled", "numberReady")
    status = {key: value if value or key in always else None for key, value in counts.items()}
    before = obj.get("status") or {}
    if any(before.get(key) != value for key, value in status.items()):
        patch_status(cluster, DAEMON_SETS, version, status)
