"""Which strategy belongs to which built-in kind; kinds that are not listed have the generic one."""

from __future__ import annotations

from kubectl_runtime.testing.apiserver.crds.strategy import CrdStrategy
from kubectl_runtime.testing.apiserver.kinds import devices, flowcontrol, others, rbac, signing, storage_kinds
from kubectl_runtime.testing.apiserver.kinds.admissionregistration import defaults as admission
from kubectl_runtime.testing.apiserver.kinds.apps import daemonsets, statefulsets, workloads
from kubectl_runtime.testing.apiserver.kinds.autoscaling.autoscalers import AutoscalerStrategy, OldAutoscalerStrategy
from kubectl_runtime.testing.apiserver.kinds.base import BuiltinStrategy
from kubectl_runtime.testing.apiserver.kinds.batch import jobs
from kubectl_runtime.testing.apiserver.kinds.core import endpoints, events, nodes, services, small_kinds, volumes
from kubectl_runtime.testing.apiserver.kinds.networking import ingresses, policies
from kubectl_runtime.testing.apiserver.kinds.pod import pods
from kubectl_runtime.testing.apiserver.metadata_checks import checks_of

_ADMISSION, _RBAC, _STORAGE = "admissionregistration.k8s.io", rbac.GROUP, "storage.k8s.io"
_NETWORK, _FLOW = "networking.k8s.io", "flowcontrol.apiserver.k8s.io"

STRATEGIES: dict[tuple[str, str], type[BuiltinStrategy]] = {
    ("", "ConfigMap"): small_kinds.ConfigMapStrategy,
    ("", "Endpoints"): endpoints.EndpointsStrategy,
    ("", "Event"): events.EventStrategy,
    ("", "LimitRange"): small_kinds.LimitRangeStrategy,
    ("", "Namespace"): small_kinds.NamespaceStrategy,
    ("", "Node"): nodes.NodeStrategy,
    ("", "PersistentVolume"): volumes.VolumeStrategy,
    ("", "PersistentVolumeClaim"): volumes.ClaimStrategy,
    ("", "Pod"): pods.PodStrategy,
    ("", "PodTemplate"): workloads.PodTemplateStrategy,
    ("", "ReplicationController"): workloads.ReplicationControllerStrategy,
    ("", "ResourceQuota"): small_kinds.ResourceQuotaStrategy,
    ("", "Secret"): small_kinds.SecretStrategy,
    ("", "Service"): services.ServiceStrategy,
    ("", "ServiceAccount"): small_kinds.ServiceAccountStrategy,
    ("apps", "ControllerRevision"): others.ControllerRevisionStrategy,
    ("apps", "DaemonSet"): daemonsets.DaemonSetStrategy,
    ("apps", "Deployment"): workloads.DeploymentStrategy,
    ("apps", "ReplicaSet"): workloads.ReplicaSetStrategy,
    ("apps", "StatefulSet"): statefulsets.StatefulSetStrategy,
    ("batch", "CronJob"): jobs.CronJobStrategy,
    ("batch", "Job"): jobs.JobStrategy,
    ("events.k8s.io", "Event"): events.NewEventStrategy,
    ("autoscaling", "HorizontalPodAutoscaler"): AutoscalerStrategy,
    ("certificates.k8s.io", "CertificateSigningRequest"): signing.SigningRequestStrategy,
    ("coordination.k8s.io", "Lease"): others.LeaseStrategy,
    ("discovery.k8s.io", "EndpointSlice"): endpoints.EndpointSliceStrategy,
    (_NETWORK, "Ingress"): ingresses.IngressStrategy,
    (_NETWORK, "IngressClass"): ingresses.IngressClassStrategy,
    (_NETWORK, "IPAddress"): policies.IPAddressStrategy,
    (_NETWORK, "ServiceCIDR"): policies.ServiceCIDRStrategy,
    (_NETWORK, "NetworkPolicy"): policies.NetworkPolicyStrategy,
    ("policy", "PodDisruptionBudget"): others.DisruptionBudgetStrategy,
    ("scheduling.k8s.io", "PriorityClass"): others.PriorityClassStrategy,
    (_RBAC, "Role"): rbac.RoleStrategy,
    (_RBAC, "ClusterRole"): rbac.ClusterRoleStrategy,
    (_RBAC, "RoleBinding"): rbac.BindingStrategy,
    (_RBAC, "ClusterRoleBinding"): rbac.ClusterBindingStrategy,
    (_STORAGE, "CSIDriver"): storage_kinds.CSIDriverStrategy,
    (_STORAGE, "StorageClass"): storage_kinds.StorageClassStrategy,
    (_STORAGE, "VolumeAttachment"): storage_kinds.AttachmentStrategy,
    (_ADMISSION, "MutatingWebhookConfiguration"): admission.MutatingWebhookStrategy,
    (_ADMISSION, "ValidatingWebhookConfiguration"): admission.WebhookStrategy,
    (_ADMISSION, "MutatingAdmissionPolicy"): admission.AdmissionPolicyStrategy,
    (_ADMISSION, "ValidatingAdmissionPolicy"): admission.AdmissionPolicyStrategy,
    (_ADMISSION, "MutatingAdmissionPolicyBinding"): admission.AdmissionPolicyBindingStrategy,
    (_ADMISSION, "ValidatingAdmissionPolicyBinding"): admission.AdmissionPolicyBindingStrategy,
    ("apiextensions.k8s.io", "CustomResourceDefinition"): CrdStrategy,
    (_FLOW, "FlowSchema"): flowcontrol.FlowSchemaStrategy,
    (_FLOW, "PriorityLevelConfiguration"): flowcontrol.PriorityLevelStrategy,
    ("apiregistration.k8s.io", "APIService"): others.APIServiceStrategy,
    ("resource.k8s.io", "DeviceClass"): devices.DeviceClassStrategy,
    ("resource.k8s.io", "ResourceClaim"): devices.ResourceClaimStrategy,
    ("resource.k8s.io", "ResourceClaimTemplate"): devices.ResourceClaimStrategy,
    ("resource.k8s.io", "ResourceSlice"): devices.ResourceSliceStrategy,
    (_STORAGE, "CSIStorageCapacity"): storage_kinds.CapacityStrategy,
    ("node.k8s.io", "RuntimeClass"): others.RuntimeClassStrategy,
    (_STORAGE, "CSINode"): storage_kinds.CSINodeStrategy,
    (_STORAGE, "VolumeAttributesClass"): storage_kinds.AttributesClassStrategy,
}

# A PUT of a missing object of these kinds creates it.
CREATED_BY_PUT = {(_RBAC, "ClusterRole"), (_RBAC, "ClusterRoleBinding"), (_RBAC, "Role"), (_RBAC, "RoleBinding"),
                  ("", "Endpoints"), ("", "Event"), ("", "LimitRange"), ("", "Service"),
                  ("coordination.k8s.io", "Lease"), ("events.k8s.io", "Event"), ("node.k8s.io", "RuntimeClass")}
# A PUT of these kinds needs a resourceVersion.
CHECKED_BY_VERSION = {("apiregistration.k8s.io", "APIService"),
                      ("apiextensions.k8s.io", "CustomResourceDefinition"),
                      (_ADMISSION, "MutatingAdmissionPolicy"), (_ADMISSION, "MutatingAdmissionPolicyBinding"),
                      (_ADMISSION, "MutatingWebhookConfiguration"), (_ADMISSION, "ValidatingAdmissionPolicy"),
                      (_ADMISSION, "ValidatingAdmissionPolicyBinding"), (_ADMISSION, "ValidatingWebhookConfiguration"),
                      (_STORAGE, "CSIDriver"), (_STORAGE, "CSINode"), (_STORAGE, "CSIStorageCapacity"),
                      (_STORAGE, "VolumeAttachment"), ("coordination.k8s.io", "Lease"),
                      ("node.k8s.io", "RuntimeClass"), ("policy", "PodDisruptionBudget")}

# A write to the status of these kinds leaves all metadata as it is.
METADATA_KEPT = {(_ADMISSION, "ValidatingAdmissionPolicy"), (_FLOW, "FlowSchema"), (_STORAGE, "VolumeAttachment"),
                 (_FLOW, "PriorityLevelConfiguration"), (_NETWORK, "ServiceCIDR"), ("resource.k8s.io", "ResourceClaim"),
                 ("apiregistration.k8s.io", "APIService")}


def strategy(group: str, version: str, kind: str) -> BuiltinStrategy:
    """A strategy for a kind in a version."""
    found = STRATEGIES.get((group, kind), BuiltinStrategy)
    if (group, version, kind) == ("autoscaling", "v1", "HorizontalPodAutoscaler"):
        found = OldAutoscalerStrategy
    rules = found(f"{group.partition('.')[0] or 'core'}.{version}.{kind}")
    rules.allow_create_on_update = (group, kind) in CREATED_BY_PUT
    rules.allow_unconditional_update = (group, kind) not in CHECKED_BY_VERSION
    rules.metadata_checks = checks_of(group, kind)
    rules.keeps_metadata = (group, kind) in METADATA_KEPT
    return rules
