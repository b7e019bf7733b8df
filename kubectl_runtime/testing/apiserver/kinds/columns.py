"""What tables show of the built-in kinds: the columns of kube-apiserver's printers, in their order.

`COLUMNS` maps (group, kind) to columns; kinds that are not there show Name and Created At. Cells of some depth are
functions here, those of workloads and networks in modules of their own; a column that is just a field is made by `path`.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from kubectl_runtime.testing.apiserver.kinds.base import dig
from kubectl_runtime.testing.apiserver.kinds.network_columns import (
    ENDPOINT_SLICE_COLUMNS,
    ENDPOINTS_COLUMNS,
    INGRESS_CLASS_COLUMNS,
    INGRESS_COLUMNS,
    NETWORK_POLICY_COLUMNS,
    SERVICE_COLUMNS,
)
from kubectl_runtime.testing.apiserver.kinds.pod_columns import POD_COLUMNS
from kubectl_runtime.testing.apiserver.kinds.workload_columns import (
    AUTOSCALER_COLUMNS,
    CRON_JOB_COLUMNS,
    DAEMON_SET_COLUMNS,
    DEPLOYMENT_COLUMNS,
    DISRUPTION_BUDGET_COLUMNS,
    JOB_COLUMNS,
    POD_TEMPLATE_COLUMNS,
    REPLICATION_COLUMNS,
    STATEFUL_SET_COLUMNS,
    path,
)
from kubectl_runtime.testing.apiserver.table import AGE, NAME, Cell, Column, age

Object = dict[str, Any]

_MODES = {"ReadWriteOnce": "RWO", "ReadOnlyMany": "ROX", "ReadWriteMany": "RWX", "ReadWriteOncePod": "RWOP"}
_ROLE_LABEL = "node-role.kubernetes.io/"


def _count(key: str) -> Cell:
    return lambda obj, _now: len(obj.get(key) or ())


def _data_count(obj: Object, _now: datetime) -> int:
    return len(obj.get("data") or ()) + len(obj.get("binaryData") or ())


def _node_status(obj: Object, _now: datetime) -> str:
    conditions = {entry.get("type"): entry.get("status") for entry in dig(obj, "status.conditions") or ()}
    if "Ready" not in conditions:
        texts = ["Unknown"]
    else:
        texts = ["Ready" if conditions["Ready"] == "True" else "NotReady"]
    if dig(obj, "spec.unschedulable"):
        texts.append("SchedulingDisabled")
    return ",".join(texts)


def _node_roles(obj: Object, _now: datetime) -> str:
    labels = obj["metadata"].get("labels") or {}
    roles = {key.removeprefix(_ROLE_LABEL) for key in labels if key.startswith(_ROLE_LABEL)}
    if labels.get("kubernetes.io/role"):
        roles.add(labels["kubernetes.io/role"])
    return ",".join(sorted(roles - {""})) or "<none>"


def _node_address(kind: str) -> Cell:
    return lambda obj, _now: next((entry.get("address") for entry in dig(obj, "status.addresses") or ()
                                   if entry.get("type") == kind), "<none>")


def _event_seen(obj: Object, now: datetime) -> str:
    last = obj.get("lastTimestamp") or obj.get("deprecatedLastTimestamp") or obj.get("eventTime")
    if series := obj.get("series"):
        count = series.get("count", 0)
        return f"{age(series.get('lastObservedTime'), now)} (x{count} over {_event_first(obj, now)})"
    count = obj.get("count") or obj.get("deprecatedCount") or 0
    if count > 1:
        return f"{age(last, now)} (x{count} over {_event_first(obj, now)})"
    return age(last or obj["metadata"].get("creationTimestamp"), now)


def _event_first(obj: Object, now: datetime) -> str:
    return age(obj.get("firstTimestamp") or obj.get("deprecatedFirstTimestamp") or obj.get("eventTime"), now)


def _event_object(obj: Object, _now: datetime) -> str:
    about = obj.get("involvedObject") or obj.get("regarding") or {}
    return f"{about.get('kind', '').lower()}/{about.get('name', '')}" if about.get("name") else about.get("kind", "").lower()


def _event_source(obj: Object, _now: datetime) -> str:
    source = obj.get("source") or obj.get("deprecatedSource") or {}
    component = source.get("component") or obj.get("reportingComponent") or obj.get("reportingController") or ""
    instance = source.get("host") or obj.get("reportingInstance") or ""
    return f"{component}, {instance}" if instance else component


def _event_count(obj: Object, _now: datetime) -> int:
    series = (obj.get("series") or {}).get("count")
    return int(series or obj.get("count") or obj.get("deprecatedCount") or 1)


def _event_message(obj: Object, _now: datetime) -> str:
    return str(obj.get("message") or obj.get("note") or "").strip()


def _event_subobject(obj: Object, _now: datetime) -> str:
    return str((obj.get("involvedObject") or obj.get("regarding") or {}).get("fieldPath") or "")


EVENT_COLUMNS = (
    Column("Last Seen", _event_seen), Column("Type", path("type")), Column("Reason", path("reason")),
    Column("Object", _event_object), Column("Subobject", _event_subobject, priority=1),
    Column("Source", _event_source, priority=1), Column("Message", _event_message),
    Column("First Seen", _event_first, priority=1), Column("Count", _event_count, priority=1),
    Column("Name", NAME.cell, format="name", priority=1, description=NAME.description),
)


def _modes(key: str) -> Cell:
    return lambda obj, _now: ",".join(_MODES.get(mode, mode) for mode in dig(obj, key) or ())


def _claim(obj: Object, _now: datetime) -> str:
    reference = dig(obj, "spec.claimRef")
    return f"{reference.get('namespace')}/{reference.get('name')}" if reference else ""


def _phase(obj: Object, _now: datetime) -> str:
    return "Terminating" if obj["metadata"].get("deletionTimestamp") else str(dig(obj, "status.phase") or "")


def _subjects(kind: str) -> Cell:
    def cell(obj: Object, _now: datetime) -> str:
        chosen = [entry for entry in obj.get("subjects") or () if entry.get("kind") == kind]
        if kind == "ServiceAccount":
            return ", ".join(f"{entry.get('namespace', '')}/{entry.get('name')}" for entry in chosen)
        return ", ".join(entry.get("name", "") for entry in chosen)

    return cell


def _role(obj: Object, _now: datetime) -> str:
    role = obj.get("roleRef") or {}
    return f"{role.get('kind', '')}/{role.get('name', '')}"


def _quota(prefixes: tuple[str, ...], *, others: bool) -> Cell:
    def cell(obj: Object, _now: datetime) -> str:
        hard, used = dig(obj, "status.hard") or dig(obj, "spec.hard") or {}, dig(obj, "status.used") or {}
        return ", ".join(f"{name}: {used.get(name, '0')}/{hard[name]}" for name in sorted(hard)
                         if name.startswith(prefixes) != others)

    return cell


def _signing_condition(obj: Object, _now: datetime) -> str:
    kinds = [entry.get("type") for entry in dig(obj, "status.conditions") or ()]
    text = "Denied" if "Denied" in kinds else "Approved" if "Approved" in kinds else "Pending"
    if "Failed" in kinds:
        text += ",Failed"
    return text + (",Issued" if dig(obj, "status.certificate") else "")


def _seconds(key: str) -> Cell:
    def cell(obj: Object, _now: datetime) -> str:
        seconds = dig(obj, key)
        return "<none>" if seconds is None else f"{seconds}s"

    return cell


def _service(obj: Object, _now: datetime) -> str:
    service = dig(obj, "spec.service")
    return f"{service.get('namespace')}/{service.get('name')}" if service else "Local"


def _available(obj: Object, _now: datetime) -> str:
    found = next((entry for entry in dig(obj, "status.conditions") or () if entry.get("type") == "Available"), None)
    if found is None:
        return "Unknown"
    return str(found.get("status")) if found.get("status") == "True" else f"{found.get('status')} ({found.get('reason')})"


def _controller(obj: Object, _now: datetime) -> str:
    owner = next((entry for entry in obj["metadata"].get("ownerReferences") or () if entry.get("controller")), None)
    if owner is None:
        return "<none>"
    group = owner.get("apiVersion", "").rpartition("/")[0]
    return f"{owner['kind'].lower()}.{group}/{owner['name']}" if group else f"{owner['kind'].lower()}/{owner['name']}"


def _of_none(key: str) -> Cell:
    return lambda obj, _now: dig(obj, key) or "<none>"


def _of_unknown(key: str) -> Cell:
    return lambda obj, _now: dig(obj, key) or "<unknown>"


def _unset(key: str) -> Cell:
    return lambda obj, _now: dig(obj, key) or "<unset>"


def _param_kind(obj: Object, _now: datetime) -> str:
    kind = dig(obj, "spec.paramKind")
    return f"{kind.get('apiVersion')}/{kind.get('kind')}" if kind else "<unset>"


def _param_ref(obj: Object, _now: datetime) -> str:
    reference = dig(obj, "spec.paramRef")
    if not reference:
        return "<unset>"
    return f"{reference['namespace']}/{reference.get('name')}" if reference.get("namespace") else str(reference.get("name"))


def _length(key: str) -> Cell:
    return lambda obj, _now: len(dig(obj, key) or ())


def _joined(key: str) -> Cell:
    return lambda obj, _now: ",".join(dig(obj, key) or ()) or "<none>"


_ADMISSION, _RBAC, _STORAGE = "admissionregistration.k8s.io", "rbac.authorization.k8s.io", "storage.k8s.io"
_BINDING = (NAME, Column("Role", _role), AGE, Column("Users", _subjects("User"), priority=1),
            Column("Groups", _subjects("Group"), priority=1),
            Column("ServiceAccounts", _subjects("ServiceAccount"), priority=1))
_WEBHOOKS = (NAME, Column("Webhooks", _count("webhooks"), "integer"), AGE)
_POLICY_BINDING = (NAME, Column("PolicyName", path("spec.policyName")), Column("ParamRef", _param_ref), AGE)

COLUMNS: dict[tuple[str, str], tuple[Column, ...]] = {
    ("", "ConfigMap"): (NAME, Column("Data", _data_count), AGE),
    ("", "Endpoints"): ENDPOINTS_COLUMNS,
    ("", "Event"): EVENT_COLUMNS,
    ("", "Namespace"): (NAME, Column("Status", path("status.phase")), AGE),
    ("", "Node"): (
        NAME, Column("Status", _node_status), Column("Roles", _node_roles), AGE,
        Column("Version", path("status.nodeInfo.kubeletVersion")),
        Column("Internal-IP", _node_address("InternalIP"), priority=1),
        Column("External-IP", _node_address("ExternalIP"), priority=1),
        Column("OS-Image", _of_unknown("status.nodeInfo.osImage"), priority=1),
        Column("Kernel-Version", _of_unknown("status.nodeInfo.kernelVersion"), priority=1),
        Column("Container-Runtime", _of_unknown("status.nodeInfo.containerRuntimeVersion"), priority=1)),
    ("", "PersistentVolume"): (
        NAME, Column("Capacity", path("spec.capacity.storage")), Column("Access Modes", _modes("spec.accessModes")),
        Column("Reclaim Policy", path("spec.persistentVolumeReclaimPolicy")), Column("Status", _phase),
        Column("Claim", _claim), Column("StorageClass", path("spec.storageClassName")),
        Column("VolumeAttributesClass", _unset("spec.volumeAttributesClassName")),
        Column("Reason", path("status.reason")), AGE,
        Column("VolumeMode", _unset("spec.volumeMode"), priority=1)),
    ("", "PersistentVolumeClaim"): (
        NAME, Column("Status", _phase), Column("Volume", path("spec.volumeName")),
        Column("Capacity", path("status.capacity.storage")), Column("Access Modes", _modes("status.accessModes")),
        Column("StorageClass", path("spec.storageClassName")),
        Column("VolumeAttributesClass", _unset("spec.volumeAttributesClassName")), AGE,
        Column("VolumeMode", _unset("spec.volumeMode"), priority=1)),
    ("", "Pod"): POD_COLUMNS,
    ("", "PodTemplate"): POD_TEMPLATE_COLUMNS,
    ("", "ReplicationController"): REPLICATION_COLUMNS,
    ("", "ResourceQuota"): (NAME, Column("Request", _quota(("limits",), others=True)),
                            Column("Limit", _quota(("limits",), others=False)), AGE),
    ("", "Secret"): (NAME, Column("Type", path("type")), Column("Data", _count("data")), AGE),
    ("", "Service"): SERVICE_COLUMNS,
    ("", "ServiceAccount"): (NAME, Column("Secrets", _count("secrets")), AGE),
    ("apiregistration.k8s.io", "APIService"): (NAME, Column("Service", _service), Column("Available", _available), AGE),
    ("apps", "ControllerRevision"): (NAME, Column("Controller", _controller), Column("Revision", path("revision")), AGE),
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
        Column("RequestedDuration", _seconds("spec.expirationSeconds")), Column("Condition", _signing_condition)),
    ("networking.k8s.io", "Ingress"): INGRESS_COLUMNS,
    ("networking.k8s.io", "IngressClass"): INGRESS_CLASS_COLUMNS,
    ("networking.k8s.io", "NetworkPolicy"): NETWORK_POLICY_COLUMNS,
    ("networking.k8s.io", "ServiceCIDR"): (NAME, Column("CIDRs", _joined("spec.cidrs")), AGE),
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
        Column("Modes", _joined("spec.volumeLifecycleModes")), AGE),
    (_STORAGE, "CSINode"): (NAME, Column("Drivers", _length("spec.drivers"), "integer"), AGE),
    (_STORAGE, "StorageClass"): (
        Column("Name", lambda obj, _now: obj["metadata"]["name"] + (" (default)" if (obj["metadata"].get("annotations") or {})
               .get("storageclass.kubernetes.io/is-default-class") == "true" else ""), format="name"),
        Column("Provisioner", path("provisioner")), Column("ReclaimPolicy", path("reclaimPolicy")),
        Column("VolumeBindingMode", path("volumeBindingMode")),
        Column("AllowVolumeExpansion", lambda obj, _now: bool(obj.get("allowVolumeExpansion"))), AGE),
    (_STORAGE, "VolumeAttachment"): (
        NAME, Column("Attacher", path("spec.attacher")), Column("PV", path("spec.source.persistentVolumeName")),
        Column("Node", path("spec.nodeName")), Column("Attached", path("status.attached"), "boolean"), AGE),
    (_STORAGE, "VolumeAttributesClass"): (NAME, Column("DriverName", path("driverName")), AGE),
    (_ADMISSION, "MutatingWebhookConfiguration"): _WEBHOOKS,
    (_ADMISSION, "ValidatingWebhookConfiguration"): _WEBHOOKS,
    (_ADMISSION, "ValidatingAdmissionPolicy"): (
        NAME, Column("Validations", _length("spec.validations"), "integer"), Column("ParamKind", _param_kind), AGE),
    (_ADMISSION, "MutatingAdmissionPolicy"): (
        NAME, Column("Mutations", _length("spec.mutations"), "integer"), Column("ParamKind", _param_kind), AGE),
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
        Column("MatchingPrecedence", path("spec.matchingPrecedence"), "integer"),
        Column("DistinguisherMethod", _of_none("spec.distinguisherMethod.type")), AGE),
    ("flowcontrol.apiserver.k8s.io", "PriorityLevelConfiguration"): (NAME, Column("Type", path("spec.type")), AGE),
    ("resource.k8s.io", "DeviceClass"): (NAME, AGE),
    ("resource.k8s.io", "ResourceClaim"): (
        NAME, Column("State", lambda obj, _now: "allocated" if dig(obj, "status.allocation") else "pending"), AGE),
    ("resource.k8s.io", "ResourceClaimTemplate"): (NAME, AGE),
    ("resource.k8s.io", "ResourceSlice"): (
        NAME, Column("Node", path("spec.nodeName")), Column("Driver", path("spec.driver")),
        Column("Pool", path("spec.pool.name")), AGE),
}
