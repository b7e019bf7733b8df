"""Which built-in kinds there are: kube-apiserver 1.36 with its default APIs, in the order of discovery.

`builtin_types()` makes the `ServedResource` of each: the table below says what cannot be derived; strategies and
columns are looked up by group and kind. Beta and alpha versions are off by default, as in the real server.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from kubectl_runtime.apiserver.kinds.columns.column_catalog import COLUMNS
from kubectl_runtime.apiserver.kinds.strategies import strategy
from kubectl_runtime.apiserver.schemas import Schema, builtin
from kubectl_runtime.apiserver.storage.registry import ALL_VERBS, ServedResource, Subresource

CREATE = ("create",)
GET = ("get",)
PROXY = ("create", "delete", "get", "patch", "update")
STREAM = ("create", "get")


@dataclass(frozen=True)
class _Kind:
    """A row of the table; `sub` names subresources, those of `_SUBRESOURCES` or plain ones (get, patch, update)."""

    plural: str
    kind: str
    short: str = ""
    sub: str = ""
    categories: str = ""
    verbs: tuple[str, ...] = ALL_VERBS
    deprecation: str = ""
    namespaced: bool = True


def _cluster(*args: Any, **kwargs: Any) -> _Kind:
    """A cluster-scoped row."""
    return replace(_Kind(*args, **kwargs), namespaced=False)


_SUBRESOURCES: dict[str, Subresource] = {
    "scale": Subresource("scale", "Scale", group="autoscaling", version="v1"),
    "finalize": Subresource("finalize", "Namespace", ("update",)),
    "binding": Subresource("binding", "Binding", CREATE),
    "eviction": Subresource("eviction", "Eviction", CREATE, "policy", "v1"),
    "token": Subresource("token", "TokenRequest", CREATE, "authentication.k8s.io", "v1"),
    "attach": Subresource("attach", "PodAttachOptions", STREAM),
    "exec": Subresource("exec", "PodExecOptions", STREAM),
    "portforward": Subresource("portforward", "PodPortForwardOptions", STREAM),
    "log": Subresource("log", "Pod", GET),
}
_PROXIES = {"nodes": "NodeProxyOptions", "pods": "PodProxyOptions", "services": "ServiceProxyOptions"}

_NO_COLLECTION = tuple(verb for verb in ALL_VERBS if verb != "deletecollection")
_API_EXTENSIONS = "api-extensions"

_TABLE: dict[tuple[str, str], tuple[_Kind, ...]] = {
    ("", "v1"): (
        _Kind("bindings", "Binding", verbs=CREATE),
        _cluster("componentstatuses", "ComponentStatus", "cs", verbs=("get", "list"),
                 deprecation="v1 ComponentStatus is deprecated in v1.19+"),
        _Kind("configmaps", "ConfigMap", "cm"),
        _Kind("endpoints", "Endpoints", "ep",
              deprecation="v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice"),
        _Kind("events", "Event", "ev"),
        _Kind("limitranges", "LimitRange", "limits"),
        _cluster("namespaces", "Namespace", "ns", "finalize status", verbs=_NO_COLLECTION),
        _cluster("nodes", "Node", "no", "proxy status"),
        _Kind("persistentvolumeclaims", "PersistentVolumeClaim", "pvc", "status"),
        _cluster("persistentvolumes", "PersistentVolume", "pv", "status"),
        _Kind("pods", "Pod", "po",
              "attach binding ephemeralcontainers eviction exec log portforward proxy resize status", "all"),
        _Kind("podtemplates", "PodTemplate"),
        _Kind("replicationcontrollers", "ReplicationController", "rc", "scale status", "all"),
        _Kind("resourcequotas", "ResourceQuota", "quota", "status"),
        _Kind("secrets", "Secret"),
        _Kind("serviceaccounts", "ServiceAccount", "sa", "token"),
        _Kind("services", "Service", "svc", "proxy status", "all"),
    ),
    ("apiregistration.k8s.io", "v1"): (_cluster("apiservices", "APIService", "", "status", _API_EXTENSIONS),),
    ("apps", "v1"): (
        _Kind("controllerrevisions", "ControllerRevision"),
        _Kind("daemonsets", "DaemonSet", "ds", "status", "all"),
        _Kind("deployments", "Deployment", "deploy", "scale status", "all"),
        _Kind("replicasets", "ReplicaSet", "rs", "scale status", "all"),
        _Kind("statefulsets", "StatefulSet", "sts", "scale status", "all"),
    ),
    ("events.k8s.io", "v1"): (_Kind("events", "Event", "ev"),),
    ("authentication.k8s.io", "v1"): (
        _cluster("selfsubjectreviews", "SelfSubjectReview", verbs=CREATE),
        _cluster("tokenreviews", "TokenReview", verbs=CREATE),
    ),
    ("authorization.k8s.io", "v1"): (
        _Kind("localsubjectaccessreviews", "LocalSubjectAccessReview", verbs=CREATE),
        _cluster("selfsubjectaccessreviews", "SelfSubjectAccessReview", verbs=CREATE),
        _cluster("selfsubjectrulesreviews", "SelfSubjectRulesReview", verbs=CREATE),
        _cluster("subjectaccessreviews", "SubjectAccessReview", verbs=CREATE),
    ),
    ("autoscaling", "v2"): (_Kind("horizontalpodautoscalers", "HorizontalPodAutoscaler", "hpa", "status", "all"),),
    ("autoscaling", "v1"): (_Kind("horizontalpodautoscalers", "HorizontalPodAutoscaler", "hpa", "status", "all"),),
    ("batch", "v1"): (
        _Kind("cronjobs", "CronJob", "cj", "status", "all"),
        _Kind("jobs", "Job", "", "status", "all"),
    ),
    ("certificates.k8s.io", "v1"): (
        _cluster("certificatesigningrequests", "CertificateSigningRequest", "csr", "approval status"),),
    ("networking.k8s.io", "v1"): (
        _cluster("ingressclasses", "IngressClass"),
        _Kind("ingresses", "Ingress", "ing", "status"),
        _cluster("ipaddresses", "IPAddress", "ip"),
        _Kind("networkpolicies", "NetworkPolicy", "netpol"),
        _cluster("servicecidrs", "ServiceCIDR", "", "status"),
    ),
    ("policy", "v1"): (_Kind("poddisruptionbudgets", "PodDisruptionBudget", "pdb", "status"),),
    ("rbac.authorization.k8s.io", "v1"): (
        _cluster("clusterrolebindings", "ClusterRoleBinding"),
        _cluster("clusterroles", "ClusterRole"),
        _Kind("rolebindings", "RoleBinding"),
        _Kind("roles", "Role"),
    ),
    ("storage.k8s.io", "v1"): (
        _cluster("csidrivers", "CSIDriver"),
        _cluster("csinodes", "CSINode"),
        _Kind("csistoragecapacities", "CSIStorageCapacity"),
        _cluster("storageclasses", "StorageClass", "sc"),
        _cluster("volumeattachments", "VolumeAttachment", "", "status"),
        _cluster("volumeattributesclasses", "VolumeAttributesClass", "vac"),
    ),
    ("admissionregistration.k8s.io", "v1"): (
        _cluster("mutatingadmissionpolicies", "MutatingAdmissionPolicy", "", "", _API_EXTENSIONS),
        _cluster("mutatingadmissionpolicybindings", "MutatingAdmissionPolicyBinding", "", "", _API_EXTENSIONS),
        _cluster("mutatingwebhookconfigurations", "MutatingWebhookConfiguration", "", "", _API_EXTENSIONS),
        _cluster("validatingadmissionpolicies", "ValidatingAdmissionPolicy", "", "status", _API_EXTENSIONS),
        _cluster("validatingadmissionpolicybindings", "ValidatingAdmissionPolicyBinding", "", "", _API_EXTENSIONS),
        _cluster("validatingwebhookconfigurations", "ValidatingWebhookConfiguration", "", "", _API_EXTENSIONS),
    ),
    ("apiextensions.k8s.io", "v1"): (
        _cluster("customresourcedefinitions", "CustomResourceDefinition", "crd crds", "status", _API_EXTENSIONS),),
    ("scheduling.k8s.io", "v1"): (_cluster("priorityclasses", "PriorityClass", "pc"),),
    ("coordination.k8s.io", "v1"): (_Kind("leases", "Lease"),),
    ("node.k8s.io", "v1"): (_cluster("runtimeclasses", "RuntimeClass"),),
    ("discovery.k8s.io", "v1"): (_Kind("endpointslices", "EndpointSlice"),),
    ("resource.k8s.io", "v1"): (
        _cluster("deviceclasses", "DeviceClass"),
        _Kind("resourceclaims", "ResourceClaim", "", "status"),
        _Kind("resourceclaimtemplates", "ResourceClaimTemplate"),
        _cluster("resourceslices", "ResourceSlice"),
    ),
    ("flowcontrol.apiserver.k8s.io", "v1"): (
        _cluster("flowschemas", "FlowSchema", "", "status"),
        _cluster("prioritylevelconfigurations", "PriorityLevelConfiguration", "", "status"),
    ),
}

# Where the objects of a type are stored, if not under its own group and plural: one Event is seen through two groups.
_STORAGE = {("events.k8s.io", "events"): "/events"}
# The (group, version, kind) of the stored form, where it is not the served one.
_STORED_AS = {
    ("events.k8s.io", "v1", "Event"): ("", "v1", "Event"),
    ("autoscaling", "v1", "HorizontalPodAutoscaler"): ("autoscaling", "v2", "HorizontalPodAutoscaler"),
    **{(group, "v1", kind): (group, "v1beta1", kind) for group, kind in (
        ("apiextensions.k8s.io", "CustomResourceDefinition"),
        ("admissionregistration.k8s.io", "MutatingAdmissionPolicy"),
        ("admissionregistration.k8s.io", "MutatingAdmissionPolicyBinding"))},
}


def builtin_types() -> Iterator[ServedResource]:
    """All built-in types, group by group, the preferred version of a group first."""
    for (group, version), kinds in _TABLE.items():
        for row in kinds:
            yield _resource_type(group, version, row)


def _resource_type(group: str, version: str, row: _Kind) -> ServedResource:
    names = row.sub.split()
    rules = strategy(group, version, row.kind)
    rules.has_status = rules.has_status or "status" in names
    return ServedResource(
        group, version, row.kind, row.plural, row.kind.lower(), row.namespaced, row.verbs,
        short_names=tuple(row.short.split()),
        categories=tuple(row.categories.split()),
        subresources=tuple(_subresource(row, name) for name in names),
        strategy=rules,
        schema_loader=_loader(group, version, row.kind),
        columns=COLUMNS.get((group, row.kind), ()),
        storage=_STORAGE.get((group, row.plural), ""),
        storage_version_hash=_hash(group, version, row) if "list" in row.verbs and "create" in row.verbs else "",
        deprecation=row.deprecation,
    )


def _subresource(row: _Kind, name: str) -> Subresource:
    if name == "proxy":
        return Subresource(name, _PROXIES[row.plural], PROXY)
    return _SUBRESOURCES.get(name) or Subresource(name, row.kind)


def _loader(group: str, version: str, kind: str) -> Callable[[], Schema]:
    return lambda: builtin(group, version, kind)


def _hash(group: str, version: str, row: _Kind) -> str:
    return storage_version_hash(*_STORED_AS.get((group, version, row.kind), (group, version, row.kind)))


def storage_version_hash(group: str, version: str, kind: str) -> str:
    """What discovery shows as storageVersionHash: equal hashes mean the same storage version."""
    return base64.b64encode(hashlib.sha256(f"{group}/{version}/{kind}".encode()).digest()[:8]).decode()
