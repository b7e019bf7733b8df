"""Events that controllers write about the objects that they work on."""

from __future__ import annotations

from kubectl_runtime.apiserver.loopback import submit
from kubectl_runtime.apiserver.storage.cluster import Cluster
from kubectl_runtime.apiserver.storage.registry import ServedResource
from kubectl_runtime.apiserver.storage.storage import Version
from kubectl_runtime.core.meta.metav1 import format_time


def tell(cluster: Cluster, resource_type: ServedResource, version: Version, reason: str, message: str, *,
         component: str, kind: str = "Normal", versioned: bool = True,
         agent: str = "kube-controller-manager") -> None:
    """Write one Event, in the object's namespace or in default; `versioned` tells the object's resourceVersion
    too, `agent` is who asks."""
    moment, namespace = cluster.clock.now(), version.namespace or "default"
    space = {"namespace": version.namespace} if version.namespace else {}
    state = {"resourceVersion": str(version.rv)} if versioned else {}
    submit(cluster, "POST", f"/api/v1/namespaces/{namespace}/events", {
        "metadata": {"name": f"{version.name}.{int(moment.timestamp() * 1e9):x}{cluster.random.randrange(256):02x}",
                     "namespace": namespace},
        "involvedObject": {"kind": resource_type.kind, **space, "name": version.name, "uid": version.uid,
                           "apiVersion": resource_type.api_version, **state},
        "reason": reason, "message": message, "type": kind, "count": 1, "source": {"component": component},
        "reportingComponent": component, "firstTimestamp": format_time(moment),
        "lastTimestamp": format_time(moment)}, agent=agent)
