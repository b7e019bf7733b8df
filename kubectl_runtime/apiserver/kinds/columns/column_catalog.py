"""What tables show of the built-in kinds: the columns of kube-apiserver's printers, in their order.

`COLUMNS` maps (group, kind) to columns; kinds that are not there show Name and Created At. A cell that is just a field
is a `path`; the others are functions of cells.py and of the modules of Pods, workloads and networks.
"""

from __future__ import annotations

from kubectl_runtime.apiserver.kinds.base import dig
from kubectl_runtime.apiserver.kinds.columns.cells import (
    EVENT_COLUMNS,
    amount,
    available,
    claim,
    class_name,
    controller,
    count,
    dangling,
    data_count,
    if_bound,
    joined,
    length,
    modes,
    node_address,
    node_roles,
    node_status,
    of_none,
    of_unknown,
    param_kind,
    param_ref,
    phase,
    quota,
    role,
    seconds,
    service,
    signing_condition,
    subjects,
    unset,
)
from kubectl_runtime.apiserver.kinds.columns.workload_columns import (
    AUTOSCALER_COLUMNS,
    CRON_JOB_COLUMNS,
    DAEMON_SET_COLUMNS,
    DEPLOYMENT_COLUMNS,
    DISRUPTION_BUDGET_COLUMNS,
    ENDPOINT_SLICE_COLUMNS,
    ENDPOINTS_COLUMNS,
    INGRESS_CLASS_COLUMNS,
    INGRESS_COLUMNS,
    JOB_COLUMNS,
    NETWORK_POLICY_COLUMNS,
    POD_COLUMNS,
    POD_TEMPLATE_COLUMNS,
    REPLICATION_COLUMNS,
    SERVICE_COLUMNS,
    STATEFUL_SET_COLUMNS,
    path,
)
from kubectl_runtime.apiserver.output.table import AGE, NAME
from kubectl_runtime.apiserver.storage.registry import Column

_ADMISSION, _RBAC, _STORAGE = "admissionregistration.k8s.io", "rbac.authorization.k8s.io", "storage.k8s.io"
_BINDING = (NAME, Column("Role", role), AGE, Column("Users", subjects("User"), priority=1),
            Column("Groups", subjects("Group"), priority=1),
            Column("ServiceAccounts", subjects("ServiceAccount"), priority=1))
_WEBHOOKS = (NAME, Column("Webhooks", count("webhooks"), "integer"), AGE)
_POLICY_BINDING = (NAME, Column("PolicyName", path("spec.policyName")), Column("ParamRef", param_ref), AGE)

COLUMNS: dict[tuple[str, str], tuple[Column, ...]] = {
    ("", "ConfigMap"): (NAME, Column("Data", data_count), AGE),
    ("", "Endpoints"): ENDPOINTS_COLUMNS,
    ("", "Event"): EVENT_COLUMNS,
    ("", "Namespace"): (NAME, Column("Status", path("status.phase")), AGE),
    ("", "Node"): (
        NAME, Column("Status", node_status), Column("Roles", node_roles), AGE,
        Column("Version", path("status.nodeInfo.kubeletVersion")),
        Column("Internal-IP", node_address("InternalIP"), priority=1),
        Column("External-IP", node_address("ExternalIP"), priority=1),
        Column("OS-Image", of_unknown("status.nodeInfo.osImage"), priority=1),
        Column("Kernel-Version", of_unknown("status.nodeInfo.kernelVersion"), priority=1),
        Column("Container-Runtime", of_unknown("status.nodeInfo.containerRuntimeVersion"), priority=1)),
    ("", "PersistentVolume"): (
        NAME, Column("Capacity", amount("spec.capacity.storage")), Column("Access Modes", modes("spec.accessModes")),
        Column("Reclaim Policy", path("spec.persistentVolumeReclaimPolicy")), Column("Status", phase),
        Column("Claim", claim), Column("StorageClass", path("spec.storageClassName")),
        Column("VolumeAttributesClass", unset("spec.volumeAttributesClassName")),
        Column("Reason", path("status.reason")), AGE,
        Column("VolumeMode", unset("spec.volumeMode"), priority=1)),
    ("", "PersistentVolumeClaim"): (
        NAME, Column("Status", phase), Column("Volume", path("spec.volumeName")),
        Column("Capacity", if_bound(amount("status.capacity.storage"))),
        Column("Access Modes", if_bound(modes("status.accessModes"))),
        Column("StorageClass", path("spec.storageClassName")),
        Column("VolumeAttributesClass", unset("spec.volumeAttributesClassName")), AGE,
        Column("VolumeMode", unset("spec.volumeMode"), priority=1)),
    ("", "Pod"): POD_COLUMNS,
    ("", "PodTemplate"): POD_TEMPLATE_COLUMNS,
    ("", "ReplicationController"): REPLICATION_COLUMNS,
    ("", "ResourceQuota"): (NAME, Column("Request", quota(("limits",), others=True)),
                            Column("Limit", quota(("limits",), others=False)), AGE),
    ("", "Secret"): (NAME, Column("Type", path("type")), Column("Data", count("data")), AGE),
    ("", "Service"): SERVICE_COLUMNS,
    ("", "ServiceAccount"): (NAME, AGE),
    ("apiregistration.k8s.io", "APIService"): (NAME, Column("Service", service), Column("Available", available), AGE),
    ("apps", "ControllerRevision"): (NAME, Column("Controller", controller), Column("Revision", path("revision")),
                                     AGE),
    ("apps", "DaemonSet"): DAEMON_SET_COLUMNS,
    ("apps", "Deployment"): DEPLOYMENT_COLUMNS,
    ("apps", "ReplicaSet"): REPLICATION_COLUMNS,
    ("apps", "StatefulSet"): STATEFUL_SET_COLUMNS,
    ("events.k8s.io", "Event"): EVENT_COLUMNS,
    ("autoscaling", "HorizontalPodAutoscaler"): AUTOSCALER_COLUMNS,
    ("batch", "CronJob"): CRON_JOB_COLUMNS,
    ("batch", "Job"): JOB_COLUMNS,
    ("certificates.k8s.io", "CertificateSigningRequest"): (
        NAME, AGE, Column("SignerName", path("spec.signerName")), Column("Requestor", path("spec.username")),
        Column("RequestedDuration", seconds("spec.expirationSeconds")), Column("Condition", signing_condition)),
    ("networking.k8s.io", "Ingress"): INGRESS_COLUMNS,
    ("networking.k8s.io", "IngressClass"): INGRESS_CLASS_COLUMNS,
    ("networking.k8s.io", "NetworkPolicy"): NETWORK_POLICY_COLUMNS,
    ("networking.k8s.io", "ServiceCIDR"): (NAME, Column("CIDRs", joined("spec.cidrs")), AGE),
    ("policy", "PodDisruptionBudget"): DISRUPTION_BUDGET_COLUMNS,
    (_RBAC, "ClusterRoleBinding"): _BINDING,
    (_RBAC, "RoleBinding"): _BINDING,
    (_STORAGE, "CSIDriver"): (
        NAME, Column("AttachRequired", path("spec.attachRequired"), "boolean"),
        Column("PodInfoOnMount", path("spec.podInfoOnMount"), "boolean"),
        Column("StorageCapacity", path("spec.storageCapacity"), "boolean"),
        Column("TokenRequests", lambda obj, _now: ",".join(
            entry.get("audience", "") for entry in dig(obj, "spec.tokenRequests") or ()) or "<unset>"),
        Column("RequiresRepublish", path("spec.requiresRepublish"), "boolean"),
        Column("Modes", joined("spec.volumeLifecycleModes")), AGE),
    (_STORAGE, "CSINode"): (NAME, Column("Drivers", length("spec.drivers"), "integer"), AGE),
    (_STORAGE, "StorageClass"): (
        Column("Name", class_name, format="name", description=NAME.description),
        Column("Provisioner", path("provisioner")), Column("ReclaimPolicy", path("reclaimPolicy")),
        Column("VolumeBindingMode", path("volumeBindingMode")),
        Column("AllowVolumeExpansion", lambda obj, _now: bool(obj.get("allowVolumeExpansion"))), AGE),
    (_STORAGE, "VolumeAttachment"): (
        NAME, Column("Attacher", path("spec.attacher"), format="name"),
        Column("PV", path("spec.source.persistentVolumeName")),
        Column("Node", path("spec.nodeName")), Column("Attached", path("status.attached"), "boolean"), AGE),
    (_STORAGE, "VolumeAttributesClass"): (NAME, Column("DriverName", path("driverName")), AGE),
    (_ADMISSION, "MutatingWebhookConfiguration"): _WEBHOOKS,
    (_ADMISSION, "ValidatingWebhookConfiguration"): _WEBHOOKS,
    (_ADMISSION, "ValidatingAdmissionPolicy"): (
        NAME, Column("Validations", length("spec.validations"), "integer"), Column("ParamKind", param_kind), AGE),
    (_ADMISSION, "MutatingAdmissionPolicy"): (
        NAME, Column("Mutations", length("spec.mutations"), "integer"), Column("ParamKind", param_kind), AGE),
    (_ADMISSION, "ValidatingAdmissionPolicyBinding"): _POLICY_BINDING,
    (_ADMISSION, "MutatingAdmissionPolicyBinding"): _POLICY_BINDING,
    ("scheduling.k8s.io", "PriorityClass"): (
        NAME, Column("Value", path("value"), "integer"),
        Column("Global-Default", lambda obj, _now: bool(obj.get("globalDefault")), "boolean"), AGE,
        Column("PreemptionPolicy", path("preemptionPolicy"))),
    ("coordination.k8s.io", "Lease"): (NAME, Column("Holder", path("spec.holderIdentity")), AGE),
    ("node.k8s.io", "RuntimeClass"): (NAME, Column("Handler", path("handler")), AGE),
    ("discovery.k8s.io", "EndpointSlice"): ENDPOINT_SLICE_COLUMNS,
    ("flowcontrol.apiserver.k8s.io", "FlowSchema"): (
        NAME, Column("PriorityLevel", path("spec.priorityLevelConfiguration.name")),
        Column("MatchingPrecedence", path("spec.matchingPrecedence")),
        Column("DistinguisherMethod", of_none("spec.distinguisherMethod.type")), AGE, Column("MissingPL", dangling)),
    ("flowcontrol.apiserver.k8s.io", "PriorityLevelConfiguration"): (
        NAME, Column("Type", path("spec.type")),
        Column("NominalConcurrencyShares", of_none("spec.limited.nominalConcurrencyShares")),
        Column("Queues", of_none("spec.limited.limitResponse.queuing.queues")),
        Column("HandSize", of_none("spec.limited.limitResponse.queuing.handSize")),
        Column("QueueLengthLimit", of_none("spec.limited.limitResponse.queuing.queueLengthLimit")), AGE),
    ("resource.k8s.io", "DeviceClass"): (NAME, AGE),
    ("resource.k8s.io", "ResourceClaim"): (
        NAME, Column("State", lambda obj, _now: "allocated" if dig(obj, "status.allocation") else "pending"), AGE),
    ("resource.k8s.io", "ResourceClaimTemplate"): (NAME, AGE),
    ("resource.k8s.io", "ResourceSlice"): (
        NAME, Column("Node", path("spec.nodeName")), Column("Driver", path("spec.driver")),
        Column("Pool", path("spec.pool.name")), AGE),
}
