"""Which strategy belongs to which built-in kind; kinds that are not listed have the generic one."""

from __future__ import annotations

from kubectl_runtime.apiserver.crds.definition_strategy import CrdStrategy
from kubectl_runtime.apiserver.kinds.admissionregistration import webhook_defaults as admission
from kubectl_runtime.apiserver.kinds.apiregistration import apiservices
from kubectl_runtime.apiserver.kinds.apps import controller_revisions, daemonsets, statefulsets, workloads
from kubectl_runtime.apiserver.kinds.autoscaling.autoscalers import AutoscalerStrategy, OldAutoscalerStrategy
from kubectl_runtime.apiserver.kinds.base import BuiltinStrategy
from kubectl_runtime.apiserver.kinds.batch import jobs
from kubectl_runtime.apiserver.kinds.certificates import signing_requests
from kubectl_runtime.apiserver.kinds.coordination import leases
from kubectl_runtime.apiserver.kinds.core import (
    configuration,
    endpoints,
    events,
    limits,
    namespaces,
    nodes,
    service_accounts,
    services,
    volumes,
)
from kubectl_runtime.apiserver.kinds.flowcontrol import flows
from kubectl_runtime.apiserver.kinds.networking import ingresses, policies
from kubectl_runtime.apiserver.kinds.node import runtime_classes
from kubectl_runtime.apiserver.kinds.pod import pods
from kubectl_runtime.apiserver.kinds.policy import disruption_budgets
from kubectl_runtime.apiserver.kinds.rbac import roles
from kubectl_runtime.apiserver.kinds.resource import devices
from kubectl_runtime.apiserver.kinds.scheduling import priority_classes
from kubectl_runtime.apiserver.kinds.storage import attachments, capacities, classes, drivers
from kubectl_runtime.apiserver.objectmeta.metadata_checks import checks_of

_ADMISSION, _RBAC, _STORAGE = "admissionregistration.k8s.io", roles.GROUP, "storage.k8s.io"
_NETWORK, _FLOW = "networking.k8s.io", "flowcontrol.apiserver.k8s.io"

STRATEGIES: dict[tuple[str, str], type[BuiltinStrategy]] = {
    ("", "ConfigMap"): configuration.ConfigMapStrategy,
    ("", "Endpoints"): endpoints.EndpointsStrategy,
    ("", "Event"): events.EventStrategy,
    ("", "LimitRange"): limits.LimitRangeStrategy,
    ("", "Namespace"): namespaces.NamespaceStrategy,
    ("", "Node"): nodes.NodeStrategy,
    ("", "PersistentVolume"): volumes.VolumeStrategy,
    ("", "PersistentVolumeClaim"): volumes.ClaimStrategy,
    ("", "Pod"): pods.PodStrategy,
    ("", "PodTemplate"): workloads.PodTemplateStrategy,
    ("", "ReplicationController"): workloads.ReplicationControllerStrategy,
    ("", "ResourceQuota"): limits.ResourceQuotaStrategy,
    ("", "Secret"): configuration.SecretStrategy,
    ("", "Service"): services.ServiceStrategy,
    ("", "ServiceAccount"): service_accounts.ServiceAccountStrategy,
    ("apps", "ControllerRevision"): controller_revisions.ControllerRevisionStrategy,
    ("apps", "DaemonSet"): daemonsets.DaemonSetStrategy,
    ("apps", "Deployment"): workloads.DeploymentStrategy,
    ("apps", "ReplicaSet"): workloads.ReplicaSetStrategy,
    ("apps", "StatefulSet"): statefulsets.StatefulSetStrategy,
    ("batch", "CronJob"): jobs.CronJobStrategy,
    ("batch", "Job"): jobs.JobStrategy,
    ("events.k8s.io", "Event"): events.NewEventStrategy,
    ("autoscaling", "HorizontalPodAutoscaler"): AutoscalerStrategy,
    ("certificates.k8s.io", "CertificateSigningRequest"): signing_requests.SigningRequestStrategy,
    ("coordination.k8s.io", "Lease"): leases.LeaseStrategy,
    ("discovery.k8s.io", "EndpointSlice"): endpoints.EndpointSliceStrategy,
    (_NETWORK, "Ingress"): ingresses.IngressStrategy,
    (_NETWORK, "IngressClass"): ingresses.IngressClassStrategy,
    (_NETWORK, "IPAddress"): policies.IPAddressStrategy,
    (_NETWORK, "ServiceCIDR"): policies.ServiceCIDRStrategy,
    (_NETWORK, "NetworkPolicy"): policies.NetworkPolicyStrategy,
    ("policy", "PodDisruptionBudget"): disruption_budgets.DisruptionBudgetStrategy,
    ("scheduling.k8s.io", "PriorityClass"): priority_classes.PriorityClassStrategy,
    (_RBAC, "Role"): roles.RoleStrategy,
    (_RBAC, "ClusterRole"): roles.ClusterRoleStrategy,
    (_RBAC, "RoleBinding"): roles.BindingStrategy,
    (_RBAC, "ClusterRoleBinding"): roles.ClusterBindingStrategy,
    (_STORAGE, "CSIDriver"): drivers.CSIDriverStrategy,
    (_STORAGE, "StorageClass"): classes.StorageClassStrategy,
    (_STORAGE, "VolumeAttachment"): attachments.AttachmentStrategy,
    (_ADMISSION, "MutatingWebhookConfiguration"): admission.MutatingWebhookStrategy,
    (_ADMISSION, "ValidatingWebhookConfiguration"): admission.WebhookStrategy,
    (_ADMISSION, "MutatingAdmissionPolicy"): admission.AdmissionPolicyStrategy,
    (_ADMISSION, "ValidatingAdmissionPolicy"): admission.AdmissionPolicyStrategy,
    (_ADMISSION, "MutatingAdmissionPolicyBinding"): admission.AdmissionPolicyBindingStrategy,
    (_ADMISSION, "ValidatingAdmissionPolicyBinding"): admission.AdmissionPolicyBindingStrategy,
    ("apiextensions.k8s.io", "CustomResourceDefinition"): CrdStrategy,
    (_FLOW, "FlowSchema"): flows.FlowSchemaStrategy,
    (_FLOW, "PriorityLevelConfiguration"): flows.PriorityLevelStrategy,
    ("apiregistration.k8s.io", "APIService"): apiservices.APIServiceStrategy,
    ("resource.k8s.io", "DeviceClass"): devices.DeviceClassStrategy,
    ("resource.k8s.io", "ResourceClaim"): devices.ResourceClaimStrategy,
    ("resource.k8s.io", "ResourceClaimTemplate"): devices.ResourceClaimStrategy,
    ("resource.k8s.io", "ResourceSlice"): devices.ResourceSliceStrategy,
    (_STORAGE, "CSIStorageCapacity"): capacities.CapacityStrategy,
    ("node.k8s.io", "RuntimeClass"): runtime_classes.RuntimeClassStrategy,
    (_STORAGE, "CSINode"): drivers.CSINodeStrategy,
    (_STORAGE, "VolumeAttributesClass"): classes.AttributesClassStrategy,
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
