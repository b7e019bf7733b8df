"""Creates the default objects of a cluster and of each namespace, and fills aggregated ClusterRoles.

A cluster starts with the system namespaces, the system PriorityClasses, and the API server's Service. A new namespace
gets the ServiceAccount ``default`` and the ConfigMap with the cluster's CA. (`Access` stores the default roles.)

The rules of the selected ClusterRoles are written into an aggregated ClusterRole, so that clients see them.
Authorization does not depend on these copies: it reads the selected roles itself (access/rbac.py).
"""
from __future__ import annotations

from kubectl_runtime.apiserver.controllers.loop import KeyQueue
from kubectl_runtime.apiserver.kinds.base import dig, label_selector
from kubectl_runtime.apiserver.loopback import patch, submit
from kubectl_runtime.apiserver.storage import Bucket, Change, Cluster, Version
from kubectl_runtime.apiserver.wire import Object

DESCRIPTION = ("Contains a CA bundle that can be used to verify the kube-apiserver when using internal endpoints such "
               "as the internal service IP or kubernetes.default.svc. No other usage is guaranteed across "
               "distributions of Kubernetes clusters.")
CA_CONFIG_MAP = "kube-root-ca.crt"


class _PerNamespace(KeyQueue):
    """Creates one object in each namespace, and creates it again if it is deleted."""

    storage = "/namespaces"
    # Subclasses set `made`, the storage key of the type to create, and `object_name`, the name of the object.
    made = ""
    object_name = ""

    def _observe(self, bucket: Bucket, change: Change) -> None:
        super()._observe(bucket, change)
        if bucket.key == self.made and change.new.name == self.object_name:
            self._keys[change.new.namespace] = None


class ServiceAccountController(_PerNamespace):
    """Creates the ServiceAccount ``default``."""

    name = "serviceaccount"
    made = "/serviceaccounts"
    object_name = "default"

    def reconcile(self, cluster: Cluster, version: Version) -> None:
        if not version.deleting and cluster.storage.get(self.made, version.name, self.object_name) is None:
            submit(cluster, "POST", f"/api/v1/namespaces/{version.name}/serviceaccounts", {
                "apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": self.object_name}},
                agent="kube-controller-manager")


class RootCaPublisher(_PerNamespace):
    """Creates the ConfigMap ``kube-root-ca.crt`` in each namespace. Without TLS its certificate is empty."""

    name = "root-ca-certificate-publisher"
    made = "/configmaps"
    object_name = CA_CONFIG_MAP

    def __init__(self, certificate: str = "") -> None:
        super().__init__()
        self._certificate = certificate

    def reconcile(self, cluster: Cluster, version: Version) -> None:
        """Create the ConfigMap if it is missing, and restore it if it was changed."""
        if version.deleting:
            return
        path, agent = f"/api/v1/namespaces/{version.name}/configmaps", "kube-controller-manager"
        data, notes = {"ca.crt": self._certificate}, {"kubernetes.io/description": DESCRIPTION}
        found = cluster.storage.get(self.made, version.name, self.object_name)
        if found is None:
            submit(cluster, "POST", path, {"apiVersion": "v1", "kind": "ConfigMap", "data": data,
                                        "metadata": {"name": self.object_name, "annotations": notes}}, agent=agent)
        elif (obj := found.decode()).get("data") != data:
            obj["metadata"]["annotations"] = {**(obj["metadata"].get("annotations") or {}), **notes}
            submit(cluster, "PUT", f"{path}/{self.object_name}", {**obj, "data": data}, agent=agent)


SYSTEM_NAMESPACES = ("default", "kube-node-lease", "kube-public", "kube-system")
AGENT = "kube-apiserver"
_PRIORITIES = "/apis/scheduling.k8s.io/v1/priorityclasses"
# (path, object) in the order of creation
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
    for path, obj in _DEFAULTS:
        submit(cluster, "POST", path, obj, agent=AGENT)


ROLES = "rbac.authorization.k8s.io/clusterroles"
AGGREGATION_AGENT = "clusterrole-aggregation-controller"


class RoleAggregation(KeyQueue):
    """Writes the rules of aggregated ClusterRoles."""

    name = "clusterrole-aggregation"
    storage = ROLES

    def _observe(self, bucket: Bucket, change: Change) -> None:
        if bucket.key == ROLES:  # any aggregated role may select the changed role
            self._keys |= dict.fromkeys(bucket.keys)

    def reconcile(self, cluster: Cluster, version: Version) -> None:
        role = version.decode()
        selectors = [label_selector(each) for each in dig(role, "aggregationRule.clusterRoleSelectors") or ()]
        if not selectors or version.deleting:
            return
        rules: list[Object] = []
        for other in cluster.storage.bucket(ROLES).scan(""):
            selected = any(each is not None and each.matches(other.labels) for each in selectors)
            if selected and other.name != version.name:
                rules += [rule for rule in other.decode().get("rules") or () if rule not in rules]
        if rules != (role.get("rules") or []):
            patch(cluster, ROLES, version, {"rules": rules}, agent=AGGREGATION_AGENT)
