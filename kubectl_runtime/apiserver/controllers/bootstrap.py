"""What every new cluster holds: namespaces, the PriorityClasses of its own Pods, and the Service of the API server.

(The roles that RBAC begins with are access/bootstrap.py's.)
"""

from __future__ import annotations

from typing import Any

from kubectl_runtime.apiserver.loopback import submit
from kubectl_runtime.apiserver.storage.cluster import Cluster

Object = dict[str, Any]

SYSTEM_NAMESPACES = ("default", "kube-node-lease", "kube-public", "kube-system")
AGENT = "kube-apiserver"
_PRIORITIES = "/apis/scheduling.k8s.io/v1/priorityclasses"
# (path, object) in the order in which they are made
_DEFAULTS: tuple[tuple[str, Object], ...] = (
    *(("/api/v1/namespaces", {"metadata": {"name": name}}) for name in SYSTEM_NAMESPACES),
    (_PRIORITIES, {"metadata": {"name": "system-node-critical"}, "value": 2_000_001_000, "description": (
        "Used for system critical pods that must not be moved from their current node.")}),
    (_PRIORITIES, {"metadata": {"name": "system-cluster-critical"}, "value": 2_000_000_000, "description": (
        "Used for system critical pods that must run in the cluster, but can be moved to another node if necessary.")}),
    ("/api/v1/namespaces/default/services", {
        "metadata": {"name": "kubernetes", "labels": {"component": "apiserver", "provider": "kubernetes"}},
        "spec": {"clusterIP": "10.0.0.1", "ports": [
            {"name": "https", "protocol": "TCP", "port": 443, "targetPort": 6443}]}}),
)


def create_defaults(cluster: Cluster) -> None:
    """Create what is missing of them."""
    for path, obj in _DEFAULTS:
        submit(cluster, "POST", path, obj, agent=AGENT)
