"""The table columns of the built-in kinds, in the order of kube-apiserver's printers, and the cells of the smaller
kinds.

`COLUMNS` maps (group, kind) to columns; other kinds show Name and Created At. A cell that only shows a field is a
`path`; other cells are functions, those of workloads in workload_columns.py.
"""
from __future__ import annotations

from datetime import datetime

from kubectl_runtime.apiserver.kinds.base import dig
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
from kubectl_runtime.apiserver.output.table import AGE, NAME, age
from kubectl_runtime.apiserver.storage import Cell, Column
from kubectl_runtime.apiserver.wire import Object

_MODES = {"ReadWriteOnce": "RWO", "ReadOnlyMany": "ROX", "ReadWriteMany": "RWX", "ReadWriteOncePod": "RWOP"}
_ROLE_LABEL = "node-role.kubernetes.io/"


def count(key: str) -> Cell:
    """The number of entries of a list or map."""
    return lambda obj, _now: len(obj.get(key) or ())


def data_count(obj: Object, _now: datetime) -> int:
    """The number of keys of data and binaryData."""
    return len(obj.get("data") or ()) + len(obj.get("binaryData") or ())


def node_status(obj: Object, _now: datetime) -> str:
    """Ready, NotReady or Unknown, and whether the Node is cordoned."""
    conditions = {entry.get("type"): entry.get("status") for entry in dig(obj, "status.conditions") or ()}
    ready = "Ready" if conditions.get("Ready") == "True" else "NotReady" if "Ready" in conditions else "Unknown"
    return f"{ready},SchedulingDisabled" if dig(obj, "spec.unschedulable") else ready


def node_roles(obj: Object, _now: datetime) -> str:
    labels = obj["metadata"].get("labels") or {}
    roles = {key.removeprefix(_ROLE_LABEL) for key in labels if key.startswith(_ROLE_LABEL)}
    if labels.get("kubernetes.io/role"):
        roles.add(labels["kubernetes.io/role"])
    return ",".join(sorted(roles - {""})) or "<none>"


def node_address(kind: str) -> Cell:
    return lambda obj, _now: next((entry.get("address") for entry in dig(obj, "status.addresses") or ()
                                   if entry.get("type") == kind), "<none>")


def _event_seen(obj: Object, now: datetime) -> str:
    if series := obj.get("series"):
        return age(series.get("lastObservedTime"), now)
    last = obj.get("lastTimestamp") or obj.get("deprecatedLastTimestamp")
    return age(last, now) if last else _event_first(obj, now)


def _event_first(obj: Object, now: datetime) -> str:
    return age(obj.get("firstTimestamp") or obj.get("deprecatedFirstTimestamp") or obj.get("eventTime"), now)


def _event_object(obj: Object, _now: datetime) -> str:
    about = obj.get("involvedObject") or obj.get("regarding") or {}
    kind = str(about.get("kind") or "").lower()
    return f"{kind}/{about['name']}" if about.get("name") else kind


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


def modes(key: str) -> Cell:
    """Access modes in short form."""
    return lambda obj, _now: ",".join(_MODES.get(mode, mode) for mode in dig(obj, key) or ())


def claim(obj: Object, _now: datetime) -> str:
    reference = dig(obj, "spec.claimRef")
    return f"{reference.get('namespace')}/{reference.get('name')}" if reference else ""


def if_bound(cell: Cell) -> Cell:
    """A field of a claim's status about its volume; empty while there is none."""
    return lambda obj, now: cell(obj, now) if dig(obj, "spec.volumeName") else ""


def amount(key: str) -> Cell:
    """A quantity; 0 if it is missing."""
    return lambda obj, _now: dig(obj, key) or "0"


def phase(obj: Object, _now: datetime) -> str:
    return "Terminating" if obj["metadata"].get("deletionTimestamp") else str(dig(obj, "status.phase") or "")


def subjects(kind: str) -> Cell:
    def cell(obj: Object, _now: datetime) -> str:
        chosen = [entry for entry in obj.get("subjects") or () if entry.get("kind") == kind]
        if kind == "ServiceAccount":
            return ", ".join(f"{entry.get('namespace', '')}/{entry.get('name')}" for entry in chosen)
        return ", ".join(entry.get("name", "") for entry in chosen)

    return cell


def role(obj: Object, _now: datetime) -> str:
    role = obj.get("roleRef") or {}
    return f"{role.get('kind', '')}/{role.get('name', '')}"


def quota(prefixes: tuple[str, ...], *, others: bool) -> Cell:
    """Used and hard amounts, of limits or of the other resources."""
    def cell(obj: Object, _now: datetime) -> str:
        hard, used = dig(obj, "status.hard") or {}, dig(obj, "status.used") or {}
        return ", ".join(f"{name}: {used.get(name, '0')}/{hard[name]}" for name in sorted(hard)
                         if name.startswith(prefixes) != others)

    return cell


def signing_condition(obj: Object, _now: datetime) -> str:
    """Pending, Approved, Denied, Failed, Issued."""
    kinds = [entry.get("type") for entry in dig(obj, "status.conditions") or ()]
    text = "Denied" if "Denied" in kinds else "Approved" if "Approved" in kinds else "Pending"
    if "Failed" in kinds:
        text += ",Failed"
    return text + (",Issued" if dig(obj, "status.certificate") else "")


def seconds(key: str) -> Cell:
    def cell(obj: Object, _now: datetime) -> str:
        seconds = dig(obj, key)
        return "<none>" if seconds is None else f"{seconds}s"

    return cell


def service(obj: Object, _now: datetime) -> str:
    service = dig(obj, "spec.service")
    return f"{service.get('namespace')}/{service.get('name')}" if service else "Local"


def dangling(obj: Object, _now: datetime) -> str:
    """Whether the priority level of a FlowSchema is missing."""
    conditions = dig(obj, "status.conditions") or ()
    return next((str(entry.get("status")) for entry in conditions if entry.get("type") == "Dangling"), "?")


def available(obj: Object, _now: datetime) -> str:
    found = next((entry for entry in dig(obj, "status.conditions") or () if entry.get("type") == "Available"), None)
    if found is None:
        return "Unknown"
    status = str(found.get("status"))
    return status if status == "True" else f"{status} ({found.get('reason')})"


def controller(obj: Object, _now: datetime) -> str:
    """The controlling owner."""
    owner = next((entry for entry in obj["metadata"].get("ownerReferences") or () if entry.get("controller")), None)
    if owner is None:
        return "<none>"
    group = owner.get("apiVersion", "").rpartition("/")[0]
    return f"{owner['kind'].lower()}.{group}/{owner['name']}" if group else f"{owner['kind'].lower()}/{owner['name']}"


def of_none(key: str) -> Cell:
    """A field, ``<none>`` if it is missing."""
    return lambda obj, _now: dig(obj, key) or "<none>"


def of_unknown(key: str) -> Cell:
    """A field, ``<unknown>`` if it is missing."""
    return lambda obj, _now: dig(obj, key) or "<unknown>"


def unset(key: str) -> Cell:
    """A field, ``<unset>`` if it is missing."""
    return lambda obj, _now: dig(obj, key) or "<unset>"


def param_kind(obj: Object, _now: datetime) -> str:
    kind = dig(obj, "spec.paramKind")
    return f"{kind.get('apiVersion')}/{kind.get('kind')}" if kind else "<unset>"


def param_ref(obj: Object, _now: datetime) -> str:
    reference = dig(obj, "spec.paramRef")
    if not reference:
        return "<unset>"
    name, namespace = str(reference.get("name") or "*"), reference.get("namespace")
    return f"{namespace}/{name}" if namespace else name


def class_name(obj: Object, _now: datetime) -> str:
    """The name, with a mark if it is the default class."""
    annotations = obj["metadata"].get("annotations") or {}
    default = annotations.get("storageclass.kubernetes.io/is-default-class") == "true"
    return f"{obj['metadata']['name']} (default)" if default else str(obj["metadata"]["name"])


def length(key: str) -> Cell:
    """The number of entries at a path."""
    return lambda obj, _now: len(dig(obj, key) or ())


def joined(key: str) -> Cell:
    return lambda obj, _now: ",".join(dig(obj, key) or ()) or "<none>"


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
