"""`KubeletLoop`: the scheduler and all kubelets of the cluster in one controller, named ``kubelet``. No container runs.

The loop binds each Pod to a node and updates its status by a test's rules (`pod_machine`). It reports the status of
every Node that no other client reports, and creates a Node at the start if there is none. There are no heartbeats: a
Node keeps its status, even if another client makes it NotReady. Pods on a Node that does not exist are left alone
unless they are deleted. Pods of other schedulers are left alone until they are bound.

All writes go through the cluster's loopback, so all rules of the server apply to them.
"""
from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Mapping
from ipaddress import IPv4Address

from kubectl_runtime.apiserver.controllers.claims import CLAIMS, claim_problem
from kubectl_runtime.apiserver.controllers.loop import record_event
from kubectl_runtime.apiserver.kubelet.kubelet import Kubelet
from kubectl_runtime.apiserver.kubelet.nodes import (
    FIRST_NODE,
    NOT_READY,
    address_of,
    choose_node,
    is_reported,
    new_node,
    node_labels,
    reported,
)
from kubectl_runtime.apiserver.kubelet.pod_machine import (
    ENDED,
    SCHEDULED,
    Move,
    PodMemory,
    PodTimers,
    Surroundings,
    advance,
)
from kubectl_runtime.apiserver.kubelet.rules import Plan
from kubectl_runtime.apiserver.loopback import patch, path_of, served_type, submit
from kubectl_runtime.apiserver.storage import Bucket, Change, Cluster, Version
from kubectl_runtime.apiserver.wire import Object
from kubectl_runtime.core.base.guard import guarded_logger
from kubectl_runtime.core.meta.metav1 import format_time

log = guarded_logger(__name__)

PODS, NODES = "/pods", "/nodes"
KUBELET, SCHEDULER, DEFAULT_SCHEDULER = "kubelet", "kube-scheduler", "default-scheduler"


def report_node(cluster: Cluster, version: Version, address: str) -> bool:
    """Report the status of a Node, unless a client has already reported it. Returns whether the Node got `address`."""
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


def schedule(cluster: Cluster, version: Version, plan: Plan, pods_by_node: Mapping[str, int], *,
             binds_claims: bool = False) -> bool:
    """Bind a Pod to a node, if the Pod needs one and a node fits. Returns False if the Pod has to wait for a node.

    With `binds_claims` the Pod also waits until a controller has bound its claims.
    """
    pod = version.decode()
    spec = pod["spec"]
    if spec.get("schedulerName") != DEFAULT_SCHEDULER or spec.get("schedulingGates") or version.deleting:
        return True
    pods = served_type(cluster, PODS)
    if pods is None:
        return True
    node, why = "", plan.unschedulable or (claim_problem(cluster, version, pod) if binds_claims else "")
    if not why:
        nodes = [found.decode() for found in cluster.storage.bucket(NODES).scan("")]
        node, why = choose_node(pod, nodes, pods_by_node)
    if not node:
        _tell_unschedulable(cluster, version, pod, why)
        return False
    submit(cluster, "POST", path_of(pods, version.namespace, version.name, "binding"), {
        "metadata": {"name": version.name}, "target": {"kind": "Node", "name": node}}, agent=SCHEDULER)
    record_event(cluster, pods, version, "Scheduled", f"Successfully assigned {version.key} to {node}",
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
        record_event(cluster, pods, version, "FailedScheduling", why, component=DEFAULT_SCHEDULER, kind="Warning",
                     agent=SCHEDULER)


def carry_out(cluster: Cluster, version: Version, move: Move, plan: Plan, kubelet: Kubelet) -> None:
    """Carry out a Pod's move: write the status, logs and Events, and remove the Pod."""
    pods, namespace, name = served_type(cluster, PODS), version.namespace, version.name
    if pods is None:
        return
    if move.status is not None:
        change = {"status": move.status}
        if not patch(cluster, pods, version, change, agent=KUBELET, subresource="status"):
            log.warning("the new status of Pod %s was refused; retrying when the Pod changes", version.key)
            return
    for container in move.ended:
        kubelet.end_log(namespace, name, container)
    for container in move.started:
        kubelet.begin_log(namespace, name, container, plan.of(container).log)
    if move.remove or (move.status or {}).get("phase") in ENDED:
        kubelet.end_pod(namespace, name)
    for kind, reason, message in move.events:
        record_event(cluster, pods, version, reason, message, component=KUBELET, kind=kind, agent=KUBELET)
    if move.remove:
        submit(cluster, "DELETE", path_of(pods, namespace, name), {
            "gracePeriodSeconds": 0, "preconditions": {"uid": version.uid}}, agent=KUBELET)


PER_STEP = 20  # Pods per step; other requests are served between two steps
POD_NETWORK, HOST_NETWORK = int(IPv4Address("10.244.0.1")), int(IPv4Address("172.18.0.1"))
NETWORK_SIZE = (1 << 16) - 3


class KubeletLoop:
    """The `ControlLoop` that schedules and runs Pods."""

    name = "kubelet"

    def __init__(self, kubelet: Kubelet, *, binds_claims: bool = False) -> None:
        """`kubelet` holds a test's rules and logs. With `binds_claims` Pods wait until their claims are bound."""
        self._kubelet = kubelet
        self._binds_claims = binds_claims
        self._rules_seen = -1
        self._pods: dict[str, None] = {}  # keys of queued Pods, in order
        self._nodes: dict[str, None] = {}
        self._homeless: dict[str, None] = {}  # keys of Pods that wait for a node
        self._timers: list[tuple[float, str]] = []  # a heap of (due time, key of the Pod)
        self._first: dict[str, float] = {}  # the earliest timer of each Pod; later timers are not added
        self._next: float | None = None
        self._memories: dict[str, PodMemory] = {}  # by uid
        self._counts: Counter[str] = Counter()  # Pods by node
        self._pod_number = self._host_number = 0  # the last addresses that were assigned
        self._observing = False

    def start(self, cluster: Cluster) -> None:
        """Enqueue every Pod and Node, and begin to observe changes. On return the first Node exists and is ready."""
        pods, nodes = cluster.storage.bucket(PODS), cluster.storage.bucket(NODES)
        self._pods, self._nodes = dict.fromkeys(pods.keys), dict.fromkeys(nodes.keys)
        self._homeless.clear()
        self._timers.clear()
        self._first.clear()
        self._memories.clear()
        self._counts = Counter(node for pod in pods.scan("") if (node := _node_of(pod)))
        used = [_number(pod.fields.get("status.podIP", ""), POD_NETWORK) for pod in pods.scan("")]
        self._pod_number = max([self._pod_number, *used])
        hosts = [_number(address_of(node.decode()), HOST_NETWORK) for node in nodes.scan("")]
        self._host_number = max([self._host_number, *hosts])
        if not self._observing:
            cluster.storage.observers.append(self._observe)
            self._observing = True
        if not nodes.objects:
            submit(cluster, "POST", "/api/v1/nodes", new_node(FIRST_NODE), agent=KUBELET)
        self._look_at_nodes(cluster)
        self._reckon()

    def look_again(self, cluster: Cluster) -> None:
        """Enqueue every Pod and Node."""
        self._pods |= dict.fromkeys(cluster.storage.bucket(PODS).keys)
        self._nodes |= dict.fromkeys(cluster.storage.bucket(NODES).keys)
        self._reckon()

    def _observe(self, bucket: Bucket, change: Change) -> None:
        new = change.new
        if bucket.key == NODES:
            self._nodes[new.key] = None
        elif bucket.key == CLAIMS:
            self._pods |= self._homeless
        elif bucket.key == PODS:
            before = _node_of(change.old) if change.old else ""
            after = "" if change.deleted else _node_of(new)
            if before != after:
                self._counts[before] -= 1
                self._counts[after] += 1
            if change.deleted:
                for known in (self._pods, self._homeless):
                    known.pop(new.key, None)
                self._memories.pop(new.uid, None)
                self._kubelet.forget_pod(new.namespace, new.name)
            else:
                self._pods[new.key] = None
        self._reckon()

    def due(self) -> float | None:
        """0 (due now) if a Pod or Node is queued or a rule has changed, else the end of the earliest Pod timer."""
        return 0.0 if self._rules_seen != self._kubelet.rules.version else self._next

    def step(self, cluster: Cluster) -> None:
        """Process the queued Nodes and some Pods. A test's functions are called without the cluster's lock."""
        with cluster.locked():
            self._look_at_nodes(cluster)
            versions = self._take(cluster)
        plans = [(version, self._kubelet.rules.plan(version.decode())) for version in versions]
        with cluster.locked():
            for version, plan in plans:
                current = cluster.storage.get(PODS, version.namespace, version.name)
                if current is not None and current.uid == version.uid:
                    try:
                        self._look_at(cluster, current, plan)
                    except Exception:  # one Pod must not stop the others
                        log.exception("the next step of Pod %s failed; retrying when the Pod changes", current.key)
                elif current is not None:
                    self._pods[current.key] = None
            self._reckon()

    def _reckon(self) -> None:
        """Store when the next work is due, because `due` is called without the lock."""
        self._next = 0.0 if self._pods or self._nodes else self._timers[0][0] if self._timers else None

    def _take(self, cluster: Cluster) -> list[Version]:
        bucket, now = cluster.storage.bucket(PODS), cluster.clock.monotonic()
        if self._rules_seen != (version := self._kubelet.rules.version):
            self._rules_seen = version
            self._pods |= dict.fromkeys(bucket.keys)
        while self._timers and self._timers[0][0] <= now:
            when, key = heapq.heappop(self._timers)
            self._pods[key] = None
            if self._first.get(key) == when:
                del self._first[key]
        found: list[Version] = []
        while self._pods and len(found) < PER_STEP:
            key = next(iter(self._pods))
            del self._pods[key]
            pod = bucket.objects.get(key)
            if pod is not None and (pod.deleting or pod.fields.get("status.phase") not in ENDED):
                found.append(pod)
        return found

    def _look_at_nodes(self, cluster: Cluster) -> None:
        """Report new Nodes. Queue the Pods that wait for a node, and the Pods on a changed Node."""
        nodes = cluster.storage.bucket(NODES)
        while self._nodes:
            changed, self._nodes = self._nodes, {}
            for name in changed:
                node = nodes.objects.get(name)
                if node is not None and report_node(cluster, node, self._host_address):
                    self._host_number += 1
            self._pods |= self._homeless
            self._homeless.clear()
            for pod in cluster.storage.bucket(PODS).scan(""):
                if _node_of(pod) in changed and (pod.deleting or pod.fields.get("status.phase") not in ENDED):
                    self._pods[pod.key] = None

    def _look_at(self, cluster: Cluster, version: Version, plan: Plan) -> None:
        if version.uid in self._kubelet.left_alone and not version.deleting:
            return
        node = _node_of(version)
        if not node:
            if not schedule(cluster, version, plan, self._counts, binds_claims=self._binds_claims):
                self._homeless[version.key] = None
            return
        home = cluster.storage.get(NODES, "", node)
        if home is None and not version.deleting:
            return
        memory = self._memories.setdefault(version.uid, PodMemory())
        around = Surroundings(cluster.clock.now(), address_of(home.decode()) if home else "", self._pod_address,
                              lambda: f"{cluster.random.getrandbits(256):064x}")
        move = advance(version.decode(), plan, PodTimers(memory, cluster.clock.monotonic()), around)
        for container in move.failed_pulls:
            memory.failed_pulls[container] = memory.failed_pulls.get(container, 0) + 1
        if move.wait is not None:
            when = cluster.clock.monotonic() + move.wait
            if when < self._first.get(version.key, when + 1):
                self._first[version.key] = when
                heapq.heappush(self._timers, (when, version.key))
        carry_out(cluster, version, move, plan, self._kubelet)

    @property
    def _host_address(self) -> str:
        return str(IPv4Address(HOST_NETWORK + 1 + self._host_number % NETWORK_SIZE))

    def _pod_address(self) -> str:
        """The next Pod address. An address is reused after about 65,000 Pods."""
        self._pod_number += 1
        return str(IPv4Address(POD_NETWORK + self._pod_number % NETWORK_SIZE))


def _node_of(version: Version) -> str:
    return version.fields.get("spec.nodeName", "")


def _number(address: str, network: int) -> int:
    """The number of an address within a network; 0 for an address outside the network."""
    try:
        number = int(IPv4Address(address)) - network
    except ValueError:
        return 0
    return number if 0 <= number <= NETWORK_SIZE else 0
