"""The ClusterRoles and their bindings that a server under RBAC is born with: those that people rely on.

The real server has about seventy, most of them for the parts of a cluster (scheduler, kubelet, ...) that are not here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from typing import Any

from kubectl_runtime.apiserver.access.rbac import GROUP
from kubectl_runtime.apiserver.storage.storage import Storage
from kubectl_runtime.core.meta.metav1 import format_time

Object = dict[str, Any]

READ = "get list watch"
CHANGE = "create delete deletecollection patch update"
ALL_VERBS = "create delete deletecollection get list patch update watch"

_WORKLOADS = "daemonsets deployments deployments/rollback deployments/scale replicasets replicasets/scale"

# (verbs, API groups, resources); the group "" is written as "core"
_ADMIN = [
    ("create", "authorization.k8s.io", "localsubjectaccessreviews"),
    (ALL_VERBS, GROUP, "rolebindings roles"),
]
_EDIT = [
    (READ, "core", "pods/attach pods/exec pods/portforward pods/proxy secrets services/proxy"),
    ("impersonate", "core", "serviceaccounts"),
    (CHANGE, "core", "pods pods/attach pods/exec pods/portforward pods/proxy"),
    ("create", "core", "pods/eviction"),
    (CHANGE, "core", "configmaps persistentvolumeclaims replicationcontrollers replicationcontrollers/scale "
                     "secrets serviceaccounts services services/proxy"),
    ("create", "core", "serviceaccounts/token"),
    (CHANGE, "core events.k8s.io", "events"),
    (CHANGE, "apps", _WORKLOADS + " statefulsets statefulsets/scale"),
    (CHANGE, "autoscaling", "horizontalpodautoscalers"),
    (CHANGE, "batch", "cronjobs jobs"),
    (CHANGE, "extensions", "daemonsets deployments deployments/rollback deployments/scale ingresses networkpolicies "
                           "replicasets replicasets/scale replicationcontrollers/scale"),
    (CHANGE, "policy", "poddisruptionbudgets"),
    (CHANGE, "networking.k8s.io", "ingresses networkpolicies"),
    (ALL_VERBS, "coordination.k8s.io", "leases"),
    (CHANGE, "resource.k8s.io", "resourceclaims resourceclaimtemplates"),
]
_VIEW = [
    (READ, "core", "configmaps endpoints persistentvolumeclaims persistentvolumeclaims/status pods "
                   "replicationcontrollers replicationcontrollers/scale serviceaccounts services services/status"),
    (READ, "core", "bindings limitranges namespaces/status pods/log pods/status replicationcontrollers/status "
                   "resourcequotas resourcequotas/status"),
    (READ, "core", "namespaces"),
    (READ, "core events.k8s.io", "events"),
    (READ, "discovery.k8s.io", "endpointslices"),
    (READ, "apps", "controllerrevisions daemonsets daemonsets/status deployments deployments/scale deployments/status "
                   "replicasets replicasets/scale replicasets/status statefulsets statefulsets/scale "
                   "statefulsets/status"),
    (READ, "autoscaling", "horizontalpodautoscalers horizontalpodautoscalers/status"),
    (READ, "batch", "cronjobs cronjobs/status jobs jobs/status"),
    (READ, "extensions", "daemonsets daemonsets/status deployments deployments/scale deployments/status ingresses "
                         "ingresses/status networkpolicies replicasets replicasets/scale replicasets/status "
                         "replicationcontrollers/scale"),
    (READ, "policy", "poddisruptionbudgets poddisruptionbudgets/status"),
    (READ, "networking.k8s.io", "ingresses ingresses/status networkpolicies"),
    (READ, "resource.k8s.io", "resourceclaims resourceclaims/status resourceclaimtemplates"),
]
_BASIC_USER = [
    ("create", "authorization.k8s.io", "selfsubjectaccessreviews selfsubjectrulesreviews"),
    ("create", "authentication.k8s.io", "selfsubjectreviews"),
]
_AUTH_DELEGATOR = [
    ("create", "authentication.k8s.io", "tokenreviews"),
    ("create", "authorization.k8s.io", "subjectaccessreviews"),
]
_DISCOVERY = "/api /api/* /apis /apis/* /healthz /livez /openapi /openapi/* /readyz /version /version/"
_PUBLIC_INFO = "/healthz /livez /readyz /version /version/"
_MONITORING = "/flagz /healthz /healthz/* /livez /livez/* /metrics /metrics/slis /readyz /readyz/* /statusz"


def _rules(table: Iterable[tuple[str, str, str]]) -> list[Object]:
    return [{"verbs": verbs.split(), "apiGroups": ["" if group == "core" else group for group in groups.split()],
             "resources": resources.split()} for verbs, groups, resources in table]


def _paths(paths: str) -> list[Object]:
    return [{"verbs": ["get"], "nonResourceURLs": paths.split()}]


def _metadata(name: str, aggregate_to: str = "") -> Object:
    labels = {"kubernetes.io/bootstrapping": "rbac-defaults"}
    if aggregate_to:
        labels[f"{GROUP}/aggregate-to-{aggregate_to}"] = "true"
    return {"name": name, "labels": labels, "annotations": {"rbac.authorization.kubernetes.io/autoupdate": "true"}}


def _role(name: str, rules: list[Object] | None, aggregate_to: str = "", aggregates: str = "") -> Object:
    role: Object = {"metadata": _metadata(name, aggregate_to), "rules": rules}
    if aggregates:
        role["aggregationRule"] = {"clusterRoleSelectors": [
            {"matchLabels": {f"{GROUP}/aggregate-to-{aggregates}": "true"}}]}
    return role


def cluster_roles() -> list[Object]:
    """The ClusterRoles, without kind and apiVersion."""
    everything = [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}, {"verbs": ["*"], "nonResourceURLs": ["*"]}]
    return [
        _role("cluster-admin", everything),
        _role("admin", None, aggregates="admin"),
        _role("edit", None, aggregate_to="admin", aggregates="edit"),
        _role("view", None, aggregate_to="edit", aggregates="view"),
        _role("system:aggregate-to-admin", _rules(_ADMIN), aggregate_to="admin"),
        _role("system:aggregate-to-edit", _rules(_EDIT), aggregate_to="edit"),
        _role("system:aggregate-to-view", _rules(_VIEW), aggregate_to="view"),
        _role("system:auth-delegator", _rules(_AUTH_DELEGATOR)),
        _role("system:basic-user", _rules(_BASIC_USER)),
        _role("system:discovery", _paths(_DISCOVERY)),
        _role("system:monitoring", _paths(_MONITORING) + _rules([("get", "core", "nodes/metrics")])),
        _role("system:public-info-viewer", _paths(_PUBLIC_INFO)),
    ]


def cluster_role_bindings() -> list[Object]:
    """The ClusterRoleBindings, without kind and apiVersion."""
    bindings = {
        "cluster-admin": ("system:masters",),
        "system:basic-user": ("system:authenticated",),
        "system:discovery": ("system:authenticated",),
        "system:monitoring": ("system:monitoring",),
        "system:public-info-viewer": ("system:authenticated", "system:unauthenticated"),
    }
    return [{"metadata": _metadata(name),
             "subjects": [{"kind": "Group", "apiGroup": GROUP, "name": group} for group in groups],
             "roleRef": {"apiGroup": GROUP, "kind": "ClusterRole", "name": name}}
            for name, groups in bindings.items()]


def install(storage: Storage, now: datetime, new_uid: Callable[[], str]) -> None:
    """Store what is missing of them; the cluster's lock is held."""
    for plural, obj in _all():
        key = f"{GROUP}/{plural}"
        if storage.get(key, "", obj["metadata"]["name"]) is None:
            obj["metadata"].update(uid=new_uid(), creationTimestamp=format_time(now))
            storage.put(key, obj, {})


def _all() -> Iterator[tuple[str, Object]]:
    for role in cluster_roles():
        yield "clusterroles", role
    for binding in cluster_role_bindings():
        yield "clusterrolebindings", binding
