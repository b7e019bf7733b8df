"""The built-in kinds as resource classes, one module per API group and version, imported on first use.

Each class types what controllers usually read and leaves the rest as plain JSON values. Nothing is lost by that: a
class of one's own may declare any other view of the same kind, and `replace` keeps what a view does not show.
"""
from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kubectl_runtime.resources.admissionregistration_v1 import (
        MutatingWebhookConfiguration,
        ValidatingWebhookConfiguration,
    )
    from kubectl_runtime.resources.apiextensions_v1 import CustomResourceDefinition
    from kubectl_runtime.resources.apps_v1 import ControllerRevision, DaemonSet, Deployment, ReplicaSet, StatefulSet
    from kubectl_runtime.resources.autoscaling_v2 import HorizontalPodAutoscaler
    from kubectl_runtime.resources.batch_v1 import CronJob, Job
    from kubectl_runtime.resources.coordination_v1 import Lease
    from kubectl_runtime.resources.core_v1 import (
        ConfigMap,
        Endpoints,
        Event,
        LimitRange,
        Namespace,
        Node,
        PersistentVolume,
        PersistentVolumeClaim,
        Pod,
        PodTemplate,
        ReplicationController,
        ResourceQuota,
        Secret,
        Service,
        ServiceAccount,
    )
    from kubectl_runtime.resources.discovery_v1 import EndpointSlice
    from kubectl_runtime.resources.networking_v1 import Ingress, IngressClass, NetworkPolicy
    from kubectl_runtime.resources.policy_v1 import PodDisruptionBudget
    from kubectl_runtime.resources.rbac_v1 import ClusterRole, ClusterRoleBinding, Role, RoleBinding
    from kubectl_runtime.resources.scheduling_v1 import PriorityClass
    from kubectl_runtime.resources.storage_v1 import CSIDriver, StorageClass, VolumeAttachment

_MODULES = {
    "admissionregistration_v1": ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"),
    "apiextensions_v1": ("CustomResourceDefinition",),
    "apps_v1": ("ControllerRevision", "DaemonSet", "Deployment", "ReplicaSet", "StatefulSet"),
    "autoscaling_v2": ("HorizontalPodAutoscaler",),
    "batch_v1": ("CronJob", "Job"),
    "coordination_v1": ("Lease",),
    "core_v1": ("ConfigMap", "Endpoints", "Event", "LimitRange", "Namespace", "Node", "PersistentVolume",
                "PersistentVolumeClaim", "Pod", "PodTemplate", "ReplicationController", "ResourceQuota", "Secret",
                "Service", "ServiceAccount"),
    "discovery_v1": ("EndpointSlice",),
    "networking_v1": ("Ingress", "IngressClass", "NetworkPolicy"),
    "policy_v1": ("PodDisruptionBudget",),
    "rbac_v1": ("ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"),
    "scheduling_v1": ("PriorityClass",),
    "storage_v1": ("CSIDriver", "StorageClass", "VolumeAttachment"),
}
_HOME = {name: module for module, names in _MODULES.items() for name in names}

__all__ = [  # noqa: RUF022 - by group, as above
    "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration",
    "CustomResourceDefinition",
    "ControllerRevision", "DaemonSet", "Deployment", "ReplicaSet", "StatefulSet",
    "HorizontalPodAutoscaler",
    "CronJob", "Job",
    "Lease",
    "ConfigMap", "Endpoints", "Event", "LimitRange", "Namespace", "Node", "PersistentVolume", "PersistentVolumeClaim",
    "Pod", "PodTemplate", "ReplicationController", "ResourceQuota", "Secret", "Service", "ServiceAccount",
    "EndpointSlice",
    "Ingress", "IngressClass", "NetworkPolicy",
    "PodDisruptionBudget",
    "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding",
    "PriorityClass",
    "CSIDriver", "StorageClass", "VolumeAttachment",
]


def __getattr__(name: str) -> Any:
    module = _HOME.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no kind {name!r}; for a kind without a class use an ApiResource")
    value = getattr(importlib.import_module(f"{__name__}.{module}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME})
