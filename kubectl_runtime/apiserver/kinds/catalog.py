"""The catalog of built-in kinds: kube-apiserver 1.36 with its default APIs, in the order of discovery.

`builtin_types()` makes the `ServedResource` of each kind. The table has only values that cannot be derived. As in the
real server, beta and alpha versions are off by default.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from kubectl_runtime.apiserver.crds.definitions import CrdStrategy
from kubectl_runtime.apiserver.kinds import (
    admission,
    apps,
    autoscaling,
    batch,
    configuration,
    endpoints,
    events,
    limits,
    namespaces,
    networking,
    plain,
    services,
    storage,
)
from kubectl_runtime.apiserver.kinds.base import BuiltinStrategy
from kubectl_runtime.apiserver.kinds.columns import COLUMNS
from kubectl_runtime.apiserver.kinds.pod import pods
from kubectl_runtime.apiserver.schemas import builtin
from kubectl_runtime.apiserver.storage import ALL_VERBS, ServedResource, Subresource
from kubectl_runtime.apiserver.strategy import checks_of
from kubectl_runtime.core.meta.gvk import plural_of

CREATE = ("create",)
GET = ("get",)
PROXY = ("create", "delete", "get", "patch", "update")
STREAM = ("create", "get")


@dataclass(frozen=True)
class _Kind:
    """A row of the table.

    `sub` names subresources. A subresource that is not in `_SUBRESOURCES` is plain (get, patch, update). `rules` is
    the kind's strategy class.
    """

    kind: str
    short: str = ""
    sub: str = ""
    categories: str = ""
    verbs: tuple[str, ...] = ALL_VERBS
    deprecation: str = ""
    namespaced: bool = True
    rules: type[BuiltinStrategy] = BuiltinStrategy

    @property
    def plural(self) -> str:
        return plural_of(self.kind)


def _cluster(*args: Any, **kwargs: Any) -> _Kind:
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
        _Kind("Binding", verbs=CREATE),
        _cluster("ComponentStatus", "cs", verbs=("get", "list"),
                 deprecation="v1 ComponentStatus is deprecated in v1.19+"),
        _Kind("ConfigMap", "cm", rules=configuration.ConfigMapStrategy),
        _Kind("Endpoints", "ep", rules=endpoints.EndpointsStrategy,
              deprecation="v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice"),
        _Kind("Event", "ev", rules=events.EventStrategy),
        _Kind("LimitRange", "limits", rules=limits.LimitRangeStrategy),
        _cluster("Namespace", "ns", "finalize status", verbs=_NO_COLLECTION, rules=namespaces.NamespaceStrategy),
        _cluster("Node", "no", "proxy status", rules=namespaces.NodeStrategy),
        _Kind("PersistentVolumeClaim", "pvc", "status", rules=storage.ClaimStrategy),
        _cluster("PersistentVolume", "pv", "status", rules=storage.VolumeStrategy),
        _Kind("Pod", "po", "attach binding ephemeralcontainers eviction exec log portforward proxy resize status",
              "all", rules=pods.PodStrategy),
        _Kind("PodTemplate", rules=apps.PodTemplateStrategy),
        _Kind("ReplicationController", "rc", "scale status", "all", rules=apps.ReplicationControllerStrategy),
        _Kind("ResourceQuota", "quota", "status", rules=limits.ResourceQuotaStrategy),
        _Kind("Secret", rules=configuration.SecretStrategy),
        _Kind("ServiceAccount", "sa", "token", rules=configuration.ServiceAccountStrategy),
        _Kind("Service", "svc", "proxy status", "all", rules=services.ServiceStrategy),
    ),
    ("apiregistration.k8s.io", "v1"): (_cluster("APIService", "", "status", _API_EXTENSIONS,
                                                rules=plain.APIServiceStrategy),),
    ("apps", "v1"): (
        _Kind("ControllerRevision", rules=apps.ControllerRevisionStrategy),
        _Kind("DaemonSet", "ds", "status", "all", rules=apps.DaemonSetStrategy),
        _Kind("Deployment", "deploy", "scale status", "all", rules=apps.DeploymentStrategy),
        _Kind("ReplicaSet", "rs", "scale status", "all", rules=apps.ReplicaSetStrategy),
        _Kind("StatefulSet", "sts", "scale status", "all", rules=apps.StatefulSetStrategy),
    ),
    ("events.k8s.io", "v1"): (_Kind("Event", "ev", rules=events.NewEventStrategy),),
    ("authentication.k8s.io", "v1"): (
        _cluster("SelfSubjectReview", verbs=CREATE),
        _cluster("TokenReview", verbs=CREATE),
    ),
    ("authorization.k8s.io", "v1"): (
        _Kind("LocalSubjectAccessReview", verbs=CREATE),
        _cluster("SelfSubjectAccessReview", verbs=CREATE),
        _cluster("SelfSubjectRulesReview", verbs=CREATE),
        _cluster("SubjectAccessReview", verbs=CREATE),
    ),
    ("autoscaling", "v2"): (_Kind("HorizontalPodAutoscaler", "hpa", "status", "all",
                                  rules=autoscaling.AutoscalerStrategy),),
    ("autoscaling", "v1"): (_Kind("HorizontalPodAutoscaler", "hpa", "status", "all",
                                  rules=autoscaling.OldAutoscalerStrategy),),
    ("batch", "v1"): (
        _Kind("CronJob", "cj", "status", "all", rules=batch.CronJobStrategy),
        _Kind("Job", "", "status", "all", rules=batch.JobStrategy),
    ),
    ("certificates.k8s.io", "v1"): (
        _cluster("CertificateSigningRequest", "csr", "approval status", rules=plain.SigningRequestStrategy),),
    ("networking.k8s.io", "v1"): (
        _cluster("IngressClass", rules=networking.IngressClassStrategy),
        _Kind("Ingress", "ing", "status", rules=networking.IngressStrategy),
        _cluster("IPAddress", "ip", rules=networking.IPAddressStrategy),
        _Kind("NetworkPolicy", "netpol", rules=networking.NetworkPolicyStrategy),
        _cluster("ServiceCIDR", "", "status", rules=networking.ServiceCIDRStrategy),
    ),
    ("policy", "v1"): (_Kind("PodDisruptionBudget", "pdb", "status", rules=plain.DisruptionBudgetStrategy),),
    ("rbac.authorization.k8s.io", "v1"): (
        _cluster("ClusterRoleBinding", rules=plain.ClusterBindingStrategy),
        _cluster("ClusterRole", rules=plain.ClusterRoleStrategy),
        _Kind("RoleBinding", rules=plain.BindingStrategy),
        _Kind("Role", rules=plain.RoleStrategy),
    ),
    ("storage.k8s.io", "v1"): (
        _cluster("CSIDriver", rules=storage.CSIDriverStrategy),
        _cluster("CSINode", rules=storage.CSINodeStrategy),
        _Kind("CSIStorageCapacity", rules=storage.CapacityStrategy),
        _cluster("StorageClass", "sc", rules=storage.StorageClassStrategy),
        _cluster("VolumeAttachment", "", "status", rules=storage.AttachmentStrategy),
        _cluster("VolumeAttributesClass", "vac", rules=storage.AttributesClassStrategy),
    ),
    ("admissionregistration.k8s.io", "v1"): (
        _cluster("MutatingAdmissionPolicy", "", "", _API_EXTENSIONS, rules=admission.MutatingPolicyStrategy),
        _cluster("MutatingAdmissionPolicyBinding", "", "", _API_EXTENSIONS, rules=admission.MutatingBindingStrategy),
        _cluster("MutatingWebhookConfiguration", "", "", _API_EXTENSIONS, rules=admission.MutatingWebhookStrategy),
        _cluster("ValidatingAdmissionPolicy", "", "status", _API_EXTENSIONS, rules=admission.ValidatingPolicyStrategy),
        _cluster("ValidatingAdmissionPolicyBinding", "", "", _API_EXTENSIONS,
                 rules=admission.ValidatingBindingStrategy),
        _cluster("ValidatingWebhookConfiguration", "", "", _API_EXTENSIONS, rules=admission.WebhookStrategy),
    ),
    ("apiextensions.k8s.io", "v1"): (
        _cluster("CustomResourceDefinition", "crd crds", "status", _API_EXTENSIONS, rules=CrdStrategy),),
    ("scheduling.k8s.io", "v1"): (_cluster("PriorityClass", "pc", rules=plain.PriorityClassStrategy),),
    ("coordination.k8s.io", "v1"): (_Kind("Lease", rules=plain.LeaseStrategy),),
    ("node.k8s.io", "v1"): (_cluster("RuntimeClass", rules=plain.RuntimeClassStrategy),),
    ("discovery.k8s.io", "v1"): (_Kind("EndpointSlice", rules=endpoints.EndpointSliceStrategy),),
    ("resource.k8s.io", "v1"): (
        _cluster("DeviceClass", rules=plain.DeviceClassStrategy),
        _Kind("ResourceClaim", "", "status", rules=plain.ResourceClaimStrategy),
        _Kind("ResourceClaimTemplate", rules=plain.ResourceClaimTemplateStrategy),
        _cluster("ResourceSlice", rules=plain.ResourceSliceStrategy),
    ),
    ("flowcontrol.apiserver.k8s.io", "v1"): (
        _cluster("FlowSchema", "", "status", rules=plain.FlowSchemaStrategy),
        _cluster("PriorityLevelConfiguration", "", "status", rules=plain.PriorityLevelStrategy),
    ),
}

# For these kinds, a PUT creates a missing object.
_CREATED_BY_PUT = {"ClusterRole", "ClusterRoleBinding", "Endpoints", "Event", "Lease", "LimitRange", "Role",
                   "RoleBinding", "RuntimeClass", "Service"}
# For these kinds, a PUT must contain a resourceVersion.
_CHECKED_BY_VERSION = {
    "APIService", "CSIDriver", "CSINode", "CSIStorageCapacity", "CustomResourceDefinition", "Lease",
    "MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding", "MutatingWebhookConfiguration", "PodDisruptionBudget",
    "RuntimeClass", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding", "ValidatingWebhookConfiguration",
    "VolumeAttachment"}
# For these kinds, a write to /status does not change metadata.
_METADATA_KEPT = {"APIService", "FlowSchema", "PriorityLevelConfiguration", "ResourceClaim", "ServiceCIDR",
                  "ValidatingAdmissionPolicy", "VolumeAttachment"}

# Storage keys of types that are not stored under their own group and plural: two groups serve the same Events.
_STORAGE = {("events.k8s.io", "events"): "/events"}
# The (group, version, kind) of the stored form, where it differs from the served form.
_STORED_AS = {
    ("events.k8s.io", "v1", "Event"): ("", "v1", "Event"),
    ("autoscaling", "v1", "HorizontalPodAutoscaler"): ("autoscaling", "v2", "HorizontalPodAutoscaler"),
    **{(group, "v1", kind): (group, "v1beta1", kind) for group, kind in (
        ("apiextensions.k8s.io", "CustomResourceDefinition"),
        ("admissionregistration.k8s.io", "MutatingAdmissionPolicy"),
        ("admissionregistration.k8s.io", "MutatingAdmissionPolicyBinding"))},
}


def builtin_types() -> Iterator[ServedResource]:
    """All built-in types, group by group. A group's preferred version comes first."""
    for (group, version), kinds in _TABLE.items():
        for row in kinds:
            yield _resource_type(group, version, row)


def _resource_type(group: str, version: str, row: _Kind) -> ServedResource:
    names = row.sub.split()
    rules = row.rules(f"{group.partition('.')[0] or 'core'}.{version}.{row.kind}")
    rules.has_status = "status" in names
    rules.allow_create_on_update = row.kind in _CREATED_BY_PUT
    rules.allow_unconditional_update = row.kind not in _CHECKED_BY_VERSION
    rules.metadata_checks = checks_of(group, row.kind)
    rules.keeps_metadata = row.kind in _METADATA_KEPT
    return ServedResource(
        group, version, row.kind, row.plural, row.kind.lower(), row.namespaced, row.verbs,
        short_names=tuple(row.short.split()),
        categories=tuple(row.categories.split()),
        subresources=tuple(_subresource(row, name) for name in names),
        strategy=rules,
        schema_loader=partial(builtin, group, version, row.kind),
        columns=COLUMNS.get((group, row.kind), ()),
        storage=_STORAGE.get((group, row.plural), ""),
        storage_version_hash=_hash(group, version, row) if "list" in row.verbs and "create" in row.verbs else "",
        deprecation=row.deprecation,
    )


def _subresource(row: _Kind, name: str) -> Subresource:
    if name == "proxy":
        return Subresource(name, _PROXIES[row.plural], PROXY)
    return _SUBRESOURCES.get(name) or Subresource(name, row.kind)


def _hash(group: str, version: str, row: _Kind) -> str:
    return storage_version_hash(*_STORED_AS.get((group, version, row.kind), (group, version, row.kind)))


def storage_version_hash(group: str, version: str, kind: str) -> str:
    """The storageVersionHash in discovery. Equal hashes mean the same storage version."""
    return base64.b64encode(hashlib.sha256(f"{group}/{version}/{kind}".encode()).digest()[:8]).decode()
