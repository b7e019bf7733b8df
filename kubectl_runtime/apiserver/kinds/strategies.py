"""Which strategy belongs to which built-in kind; kinds that are not listed have the generic one."""

from __future__ import annotations

from kubectl_runtime.apiserver.crds.definitions import CrdStrategy
from kubectl_runtime.apiserver.kinds import (
    admission,
    apps,
    batch,
    certificates,
    configuration,
    endpoints,
    events,
    limits,
    namespaces,
    networking,
    plain,
    rbac,
    scheduling,
    services,
    storage,
)
from kubectl_runtime.apiserver.kinds import (
    configuration as service_accounts,
)
from kubectl_runtime.apiserver.kinds import endpoints as endpointslices
from kubectl_runtime.apiserver.kinds import (
    namespaces as nodes,
)
from kubectl_runtime.apiserver.kinds.autoscaling import AutoscalerStrategy, OldAutoscalerStrategy
from kubectl_runtime.apiserver.kinds.base import BuiltinStrategy
from kubectl_runtime.apiserver.kinds.pod import pods
from kubectl_runtime.apiserver.strategy import checks_of

_ADMISSION, _RBAC, _STORAGE = "admissionregistration.k8s.io", rbac.GROUP, "storage.k8s.io"
_NETWORK, _FLOW = "networking.k8s.io", "flowcontrol.apiserver.k8s.io"

STRATEGIES: dict[tuple[str, str], type[BuiltinStrategy]] = {
    ("", "ConfigMap"): configuration.ConfigMapStrategy,
    ("", "Endpoints"): endpoints.EndpointsStrategy,
    ("", "Event"): events.EventStrategy,
    ("", "LimitRange"): limits.LimitRangeStrategy,
    ("", "Namespace"): namespaces.NamespaceStrategy,
    ("", "Node"): nodes.NodeStrategy,
    ("", "PersistentVolume"): storage.VolumeStrategy,
    ("", "PersistentVolumeClaim"): storage.ClaimStrategy,
    ("", "Pod"): pods.PodStrategy,
    ("", "PodTemplate"): apps.PodTemplateStrategy,
    ("", "ReplicationController"): apps.ReplicationControllerStrategy,
    ("", "ResourceQuota"): limits.ResourceQuotaStrategy,
    ("", "Secret"): configuration.SecretStrategy,
    ("", "Service"): services.ServiceStrategy,
    ("", "ServiceAccount"): service_accounts.ServiceAccountStrategy,
    ("apps", "ControllerRevision"): apps.ControllerRevisionStrategy,
    ("apps", "DaemonSet"): apps.DaemonSetStrategy,
    ("apps", "Deployment"): apps.DeploymentStrategy,
    ("apps", "ReplicaSet"): apps.ReplicaSetStrategy,
    ("apps", "StatefulSet"): apps.StatefulSetStrategy,
    ("batch", "CronJob"): batch.CronJobStrategy,
    ("batch", "Job"): batch.JobStrategy,
    ("events.k8s.io", "Event"): events.NewEventStrategy,
    ("autoscaling", "HorizontalPodAutoscaler"): AutoscalerStrategy,
    ("certificates.k8s.io", "CertificateSigningRequest"): certificates.SigningRequestStrategy,
    ("coordination.k8s.io", "Lease"): plain.LeaseStrategy,
    ("discovery.k8s.io", "EndpointSlice"): endpointslices.EndpointSliceStrategy,
    (_NETWORK, "Ingress"): networking.IngressStrategy,
    (_NETWORK, "IngressClass"): networking.IngressClassStrategy,
    (_NETWORK, "IPAddress"): networking.IPAddressStrategy,
    (_NETWORK, "ServiceCIDR"): networking.ServiceCIDRStrategy,
    (_NETWORK, "NetworkPolicy"): networking.NetworkPolicyStrategy,
    ("policy", "PodDisruptionBudget"): scheduling.DisruptionBudgetStrategy,
    ("scheduling.k8s.io", "PriorityClass"): scheduling.PriorityClassStrategy,
    (_RBAC, "Role"): rbac.RoleStrategy,
    (_RBAC, "ClusterRole"): rbac.ClusterRoleStrategy,
    (_RBAC, "RoleBinding"): rbac.BindingStrategy,
    (_RBAC, "ClusterRoleBinding"): rbac.ClusterBindingStrategy,
    (_STORAGE, "CSIDriver"): storage.CSIDriverStrategy,
    (_STORAGE, "StorageClass"): storage.StorageClassStrategy,
    (_STORAGE, "VolumeAttachment"): storage.AttachmentStrategy,
    (_ADMISSION, "MutatingWebhookConfiguration"): admission.MutatingWebhookStrategy,
    (_ADMISSION, "ValidatingWebhookConfiguration"): admission.WebhookStrategy,
    (_ADMISSION, "MutatingAdmissionPolicy"): admission.MutatingPolicyStrategy,
    (_ADMISSION, "ValidatingAdmissionPolicy"): admission.ValidatingPolicyStrategy,
    (_ADMISSION, "MutatingAdmissionPolicyBinding"): admission.MutatingBindingStrategy,
    (_ADMISSION, "ValidatingAdmissionPolicyBinding"): admission.ValidatingBindingStrategy,
    ("apiextensions.k8s.io", "CustomResourceDefinition"): CrdStrategy,
    (_FLOW, "FlowSchema"): plain.FlowSchemaStrategy,
    (_FLOW, "PriorityLevelConfiguration"): plain.PriorityLevelStrategy,
    ("apiregistration.k8s.io", "APIService"): plain.APIServiceStrategy,
    ("resource.k8s.io", "DeviceClass"): plain.DeviceClassStrategy,
    ("resource.k8s.io", "ResourceClaim"): plain.ResourceClaimStrategy,
    ("resource.k8s.io", "ResourceClaimTemplate"): plain.ResourceClaimTemplateStrategy,
    ("resource.k8s.io", "ResourceSlice"): plain.ResourceSliceStrategy,
    (_STORAGE, "CSIStorageCapacity"): storage.CapacityStrategy,
    ("node.k8s.io", "RuntimeClass"): scheduling.RuntimeClassStrategy,
    (_STORAGE, "CSINode"): storage.CSINodeStrategy,
    (_STORAGE, "VolumeAttributesClass"): storage.AttributesClassStrategy,
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
