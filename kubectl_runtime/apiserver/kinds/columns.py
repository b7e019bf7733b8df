"""The table columns of the built-in kinds, in the order of kube-apiserver's printers.

`COLUMNS` maps (group, kind) to columns. All other kinds have the columns Name and Created At. A cell is a function of
the object and the current time. `path`, `filled` and the functions after them return cells that print a field.
"""
from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from kubectl_runtime.apiserver.kinds.base import class_of, dig, labels_text, selector_text, true_conditions
from kubectl_runtime.apiserver.output.table import AGE, NAME, age, human_duration
from kubectl_runtime.apiserver.storage import Cell, Column
from kubectl_runtime.apiserver.wire import Object

_MODES = {"ReadWriteOnce": "RWO", "ReadOnlyMany": "ROX", "ReadWriteMany": "RWX", "ReadWriteOncePod": "RWOP"}
_ROLE_LABEL = "node-role.kubernetes.io/"


def path(dotted: str) -> Cell:
    """A cell that prints a field; "" if the field is missing."""
    def cell(obj: Object, _now: datetime) -> Any:
        value = dig(obj, dotted)
        return "" if value is None else value

    return cell


def filled(dotted: str, empty: str | int) -> Cell:
    """A cell that prints a field, or `empty` if the field is missing or empty."""
    return lambda obj, _now: dig(obj, dotted) or empty


def text(dotted: str, missing: str, *, unit: str = "") -> Cell:
    """A cell that prints a field as text, or `missing` if the field is missing."""
    def cell(obj: Object, _now: datetime) -> str:
        value = dig(obj, dotted)
        return missing if value is None else f"{value}{unit}"

    return cell


def length(dotted: str) -> Cell:
    """A cell that prints the number of entries in a list or map."""
    return lambda obj, _now: len(dig(obj, dotted) or ())


def labels(dotted: str) -> Cell:
    """A cell that prints a map of labels."""
    return lambda obj, _now: labels_text(dig(obj, dotted))


def kind_and_name(dotted: str) -> Cell:
    """A cell that prints kind and name of a reference."""
    def cell(obj: Object, _now: datetime) -> str:
        reference = dig(obj, dotted) or {}
        return f"{reference.get('kind', '')}/{reference.get('name', '')}"

    return cell


def storage_class(obj: Object, _now: datetime) -> str:
    """Prints the StorageClass of a claim or volume."""
    return class_of(obj) or ""


def namespace_and_name(dotted: str, missing: str) -> Cell:
    """A cell that prints namespace and name of a reference."""
    def cell(obj: Object, _now: datetime) -> str:
        reference = dig(obj, dotted)
        return f"{reference.get('namespace')}/{reference.get('name')}" if reference else missing

    return cell


def _ready(obj: Object, _now: datetime) -> str:
    return f"{dig(obj, 'status.readyReplicas') or 0}/{dig(obj, 'spec.replicas') or 0}"


def _containers(spec: str, key: str) -> Cell:
    return lambda obj, _now: ",".join(entry.get(key, "") for entry in dig(obj, f"{spec}.containers") or ())


def _selector(obj: Object, _now: datetime) -> str:
    selector = dig(obj, "spec.selector")
    if selector and "matchLabels" not in selector and "matchExpressions" not in selector:
        return labels_text(selector)  # a ReplicationController's selector is a plain map
    return selector_text(selector)


def wide(spec: str = "spec.template.spec", *, selector: bool = True) -> tuple[Column, ...]:
    """The columns that ``-o wide`` adds for workloads."""
    columns = (Column("Containers", _containers(spec, "name"), priority=1, description="Names of each container."),
               Column("Images", _containers(spec, "image"), priority=1, description="Images of each container."))
    return (*columns, Column("Selector", _selector, priority=1, description="Label selector.")) if selector else columns


def _job_status(obj: Object, _now: datetime) -> str:
    conditions = true_conditions(obj.get("status") or {})
    for kind in ("Complete", "Failed"):
        if kind in conditions:
            return kind
    if obj["metadata"].get("deletionTimestamp"):
        return "Terminating"
    for kind in ("Suspended", "FailureTarget", "SuccessCriteriaMet"):
        if kind in conditions:
            return kind
    return "Running"


def _job_completions(obj: Object, _now: datetime) -> str:
    done, wanted = dig(obj, "status.succeeded") or 0, dig(obj, "spec.completions")
    if wanted is not None:
        return f"{done}/{wanted}"
    parallelism = dig(obj, "spec.parallelism") or 0
    return f"{done}/1 of {parallelism}" if parallelism > 1 else f"{done}/1"


def _job_duration(obj: Object, now: datetime) -> str:
    start, end = dig(obj, "status.startTime"), dig(obj, "status.completionTime")
    if not start:
        return ""
    until = datetime.fromisoformat(end) if end else now
    return human_duration((until - datetime.fromisoformat(start).astimezone(UTC)).total_seconds())


def _last_schedule(obj: Object, now: datetime) -> str:
    last = dig(obj, "status.lastScheduleTime")
    return age(last, now) if last else "<none>"


def _targets(obj: Object, _now: datetime) -> str:
    texts = []
    current = dig(obj, "status.currentMetrics") or ()
    if (percent := dig(obj, "spec.targetCPUUtilizationPercentage")) is not None:  # autoscaling/v1
        used = dig(obj, "status.currentCPUUtilizationPercentage")
        return f"cpu: {'<unknown>' if used is None else f'{used}%'}/{percent}%"
    for index, metric in enumerate(dig(obj, "spec.metrics") or ()):
        kind = metric.get("type", "")
        key = kind[:1].lower() + kind[1:]
        part = metric.get(key) or {}
        measured = dig(current[index], f"{key}.current") or {} if index < len(current) else {}
        target = part.get("target") or {}
        amount, used = target.get("averageValue"), measured.get("averageUtilization")
        average = f"{measured.get('averageValue', '<unknown>')}/{amount}"
        if key in ("resource", "containerResource"):
            share = f"{'<unknown>' if used is None else f'{used}%'}/{target.get('averageUtilization', '<auto>')}%"
            texts.append(f"{part.get('name', '')}: {share if amount is None else average}")
        elif amount is not None:
            texts.append(average if key == "pods" else f"{average} (avg)")
        else:
            texts.append(f"{measured.get('value', '<unknown>')}/{target.get('value', '<auto>')}")
    if not texts:
        return "<none>"
    return ", ".join(texts[:2]) + (f" + {len(texts) - 2} more..." if len(texts) > 2 else "")


DEPLOYMENT_COLUMNS = (NAME, Column("Ready", _ready, description="Number of the pod with ready state"),
                      Column("Up-to-date", filled("status.updatedReplicas", 0)),
                      Column("Available", filled("status.availableReplicas", 0)), AGE, *wide())
STATEFUL_SET_COLUMNS = (NAME, Column("Ready", _ready), AGE, *wide(selector=False))
REPLICATION_COLUMNS = (NAME, Column("Desired", filled("spec.replicas", 0), "integer"),
                       Column("Current", filled("status.replicas", 0), "integer"),
                       Column("Ready", filled("status.readyReplicas", 0), "integer"), AGE, *wide())
DAEMON_SET_COLUMNS = (
    NAME, Column("Desired", filled("status.desiredNumberScheduled", 0), "integer"),
    Column("Current", filled("status.currentNumberScheduled", 0), "integer"),
    Column("Ready", filled("status.numberReady", 0), "integer"),
    Column("Up-to-date", filled("status.updatedNumberScheduled", 0), "integer"),
    Column("Available", filled("status.numberAvailable", 0), "integer"),
    Column("Node Selector", labels("spec.template.spec.nodeSelector")), AGE, *wide())
JOB_COLUMNS = (NAME, Column("Status", _job_status), Column("Completions", _job_completions),
               Column("Duration", _job_duration), AGE, *wide())
CRON_JOB_COLUMNS = (
    NAME, Column("Schedule", path("spec.schedule")), Column("Timezone", filled("spec.timeZone", "<none>")),
    Column("Suspend", lambda obj, _now: "True" if dig(obj, "spec.suspend") else "False", "boolean"),
    Column("Active", length("status.active"), "integer"),
    Column("Last Schedule", _last_schedule), AGE, *wide("spec.jobTemplate.spec.template.spec"))
POD_TEMPLATE_COLUMNS = (
    NAME, Column("Containers", _containers("template.spec", "name")),
    Column("Images", _containers("template.spec", "image")),
    Column("Pod Labels", labels("template.metadata.labels")))
AUTOSCALER_COLUMNS = (
    NAME, Column("Reference", kind_and_name("spec.scaleTargetRef")), Column("Targets", _targets),
    Column("MinPods", text("spec.minReplicas", "<unset>")), Column("MaxPods", path("spec.maxReplicas")),
    Column("Replicas", filled("status.currentReplicas", 0)), AGE)
DISRUPTION_BUDGET_COLUMNS = (
    NAME, Column("Min Available", text("spec.minAvailable", "N/A")),
    Column("Max Unavailable", text("spec.maxUnavailable", "N/A")),
    Column("Allowed Disruptions", filled("status.disruptionsAllowed", 0), "integer"), AGE)


def _statuses(obj: Object, key: str) -> list[Object]:
    return dig(obj, f"status.{key}") or []


def _sidecars(obj: Object) -> set[str]:
    """The names of the sidecars, the init containers that keep running beside the main containers."""
    return {entry["name"] for entry in dig(obj, "spec.initContainers") or () if entry.get("restartPolicy") == "Always"}


def ready(obj: Object, _now: datetime) -> str:
    """How many of the main containers and sidecars are ready, for example ``1/2``."""
    sidecars = _sidecars(obj)
    total = len(dig(obj, "spec.containers") or ()) + len(sidecars)
    counted = [entry for entry in _statuses(obj, "initContainerStatuses") if entry.get("name") in sidecars]
    running = [entry for entry in [*counted, *_statuses(obj, "containerStatuses")]
               if entry.get("ready") and "running" in (entry.get("state") or {})]
    return f"{len(running)}/{total}"


def status(obj: Object, _now: datetime) -> str:
    """The most specific reason in phase, conditions and containers: Pending, Init:0/1, CrashLoopBackOff, Running,
    Completed, Terminating, ..."""
    text = dig(obj, "status.reason") or dig(obj, "status.phase") or "Unknown"
    if any(entry.get("type") == "PodScheduled" and entry.get("reason") == "SchedulingGated"
           for entry in dig(obj, "status.conditions") or ()):
        text = "SchedulingGated"
    text = _init_reason(obj) or _container_reason(obj, text)
    if obj["metadata"].get("deletionTimestamp"):
        return "Unknown" if dig(obj, "status.reason") == "NodeLost" else "Terminating"
    return text


def _init_reason(obj: Object) -> str:
    sidecars, containers = _sidecars(obj), dig(obj, "spec.initContainers") or ()
    for index, entry in enumerate(_statuses(obj, "initContainerStatuses")):
        state = entry.get("state") or {}
        terminated, waiting = state.get("terminated"), state.get("waiting")
        if terminated is not None and terminated.get("exitCode", 0) == 0:
            continue
        if entry.get("name") in sidecars and entry.get("started"):
            continue
        if terminated is not None:
            return f"Init:{_terminated(terminated)}"
        if waiting and waiting.get("reason") not in (None, "", "PodInitializing"):
            return f"Init:{waiting['reason']}"
        return f"Init:{index}/{len(containers)}"
    return ""


def _terminated(state: Object) -> str:
    if state.get("reason"):
        return str(state["reason"])
    return f"Signal:{state['signal']}" if state.get("signal") else f"ExitCode:{state.get('exitCode', 0)}"


def _container_reason(obj: Object, text: str) -> str:
    running = False
    for entry in reversed(_statuses(obj, "containerStatuses")):
        state = entry.get("state") or {}
        waiting, terminated = state.get("waiting"), state.get("terminated")
        if waiting and waiting.get("reason"):
            text = waiting["reason"]
        elif terminated is not None:
            text = _terminated(terminated)
        elif entry.get("ready") and "running" in state:
            running = True
    if text == "Completed" and running:
        return "Running" if "Ready" in true_conditions(obj.get("status") or {}) else "NotReady"
    return str(text)


def restarts(obj: Object, now: datetime) -> str:
    """The number of restarts, with the time since the last restart: ``3 (5m ago)``."""
    entries = [*_statuses(obj, "containerStatuses"),
               *(entry for entry in _statuses(obj, "initContainerStatuses") if entry.get("name") in _sidecars(obj))]
    count = sum(entry.get("restartCount", 0) for entry in entries)
    ends = [end for entry in entries if (end := dig(entry, "lastState.terminated.finishedAt"))]
    return f"{count} ({age(max(ends), now)} ago)" if count and ends else str(count)


def _gates(obj: Object, _now: datetime) -> str:
    gates = dig(obj, "spec.readinessGates") or ()
    conditions = {entry.get("type"): entry.get("status") for entry in dig(obj, "status.conditions") or ()}
    met = sum(conditions.get(gate.get("conditionType")) == "True" for gate in gates)
    return f"{met}/{len(gates)}" if gates else "<none>"


def _ip(obj: Object, _now: datetime) -> str:
    addresses = dig(obj, "status.podIPs") or ()
    return str((addresses[0].get("ip") if addresses else None) or dig(obj, "status.podIP") or "<none>")


POD_COLUMNS = (
    NAME,
    Column("Ready", ready, description="The aggregate readiness state of this pod for accepting traffic."),
    Column("Status", status, description="The aggregate status of the containers in this pod."),
    Column("Restarts", restarts, description="How often the containers have been restarted, and when last."),
    AGE,
    Column("IP", _ip, priority=1, description="The address of the pod; empty if not yet allocated."),
    Column("Node", filled("spec.nodeName", "<none>"), priority=1, description="The node that runs this pod."),
    Column("Nominated Node", filled("status.nominatedNodeName", "<none>"), priority=1,
           description="The node on which other pods are to be preempted for this one."),
    Column("Readiness Gates", _gates, priority=1, description="Conditions besides the containers' that make it ready."),
)


_SHOWN = 3  # hosts, ports or endpoints that a cell prints before "+ 2 more..."


def _shortened(texts: list[str], empty: str = "<none>") -> str:
    if not texts:
        return empty
    more = f" + {len(texts) - _SHOWN} more..." if len(texts) > _SHOWN else ""
    return ",".join(texts[:_SHOWN]) + more


def _balancer(obj: Object) -> list[str]:
    return [entry.get("ip") or entry.get("hostname") or "" for entry in dig(obj, "status.loadBalancer.ingress") or ()]


def _external_ip(obj: Object, _now: datetime) -> str:
    spec = obj.get("spec") or {}
    kind, external = spec.get("type"), spec.get("externalIPs") or []
    if kind == "ExternalName":
        return str(spec.get("externalName") or "<none>")
    if kind == "LoadBalancer":
        return ",".join([*_balancer(obj), *external]) or "<pending>"
    return ",".join(external) or "<none>"


def _service_ports(obj: Object, _now: datetime) -> str:
    texts = []
    for port in dig(obj, "spec.ports") or ():
        node = f":{port['nodePort']}" if port.get("nodePort") else ""
        texts.append(f"{port.get('port')}{node}/{port.get('protocol')}")
    return ",".join(texts) or "<none>"


SERVICE_COLUMNS = (
    NAME, Column("Type", path("spec.type")), Column("Cluster-IP", filled("spec.clusterIP", "<none>")),
    Column("External-IP", _external_ip), Column("Port(s)", _service_ports), AGE,
    Column("Selector", labels("spec.selector"), priority=1))


def _endpoints(obj: Object, _now: datetime) -> str:
    texts: list[str] = []
    for subset in obj.get("subsets") or ():
        addresses = [entry.get("ip", "") for entry in subset.get("addresses") or ()]
        ports = [port.get("port") for port in subset.get("ports") or ()]
        texts += [f"{address}:{port}" for port in ports for address in addresses] if ports else addresses
    return _shortened(texts, "" if obj.get("subsets") else "<none>")


ENDPOINTS_COLUMNS = (NAME, Column("Endpoints", _endpoints), AGE)
ENDPOINT_SLICE_COLUMNS = (
    NAME, Column("AddressType", path("addressType")),
    Column("Ports", lambda obj, _now: _shortened(
        [str(port.get("port") or port.get("name", "*")) for port in obj.get("ports") or ()], "<unset>")),
    Column("Endpoints", lambda obj, _now: _shortened(
        [address for entry in obj.get("endpoints") or () for address in entry.get("addresses") or ()], "<unset>")), AGE)


def _hosts(obj: Object, _now: datetime) -> str:
    return _shortened([rule["host"] for rule in dig(obj, "spec.rules") or () if rule.get("host")], "*")


def _ingress_class(obj: Object, _now: datetime) -> str:
    annotated = (obj["metadata"].get("annotations") or {}).get("kubernetes.io/ingress.class")
    return str(dig(obj, "spec.ingressClassName") or annotated or "<none>")


INGRESS_COLUMNS = (
    NAME, Column("Class", _ingress_class), Column("Hosts", _hosts),
    Column("Address", lambda obj, _now: ",".join(_balancer(obj))),
    Column("Ports", lambda obj, _now: "80, 443" if dig(obj, "spec.tls") else "80"), AGE)


def _parameters(obj: Object, _now: datetime) -> str:
    parameters = dig(obj, "spec.parameters")
    if not parameters:
        return "<none>"
    group = f".{parameters['apiGroup']}" if parameters.get("apiGroup") else ""
    return f"{parameters.get('kind')}{group}/{parameters.get('name')}"


INGRESS_CLASS_COLUMNS = (NAME, Column("Controller", path("spec.controller")), Column("Parameters", _parameters), AGE)
NETWORK_POLICY_COLUMNS = (
    NAME, Column("Pod-Selector", lambda obj, _now: selector_text(dig(obj, "spec.podSelector") or {})), AGE)


def data_count(obj: Object, _now: datetime) -> int:
    """The number of keys in data and binaryData."""
    return len(obj.get("data") or ()) + len(obj.get("binaryData") or ())


def node_status(obj: Object, _now: datetime) -> str:
    """Ready, NotReady or Unknown, with SchedulingDisabled if the Node is cordoned."""
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
    """A cell that prints access modes in short form."""
    return lambda obj, _now: ",".join(_MODES.get(mode, mode) for mode in dig(obj, key) or ())


def if_bound(cell: Cell) -> Cell:
    """A cell about a claim's volume; empty while the claim has no volume."""
    return lambda obj, now: cell(obj, now) if dig(obj, "spec.volumeName") else ""


def phase(obj: Object, _now: datetime) -> str:
    return "Terminating" if obj["metadata"].get("deletionTimestamp") else str(dig(obj, "status.phase") or "")


def subjects(kind: str) -> Cell:
    def cell(obj: Object, _now: datetime) -> str:
        chosen = [entry for entry in obj.get("subjects") or () if entry.get("kind") == kind]
        if kind == "ServiceAccount":
            return ", ".join(f"{entry.get('namespace', '')}/{entry.get('name')}" for entry in chosen)
        return ", ".join(entry.get("name", "") for entry in chosen)

    return cell


def quota(prefixes: tuple[str, ...], *, others: bool) -> Cell:
    """A cell that prints a quota's used and hard amounts.

    The cell covers the resources whose names start with one of `prefixes`. With `others` it covers all other resources.
    """
    def cell(obj: Object, _now: datetime) -> str:
        hard, used = dig(obj, "status.hard") or {}, dig(obj, "status.used") or {}
        return ", ".join(f"{name}: {used.get(name, '0')}/{hard[name]}" for name in sorted(hard)
                         if name.startswith(prefixes) != others)

    return cell


def signing_condition(obj: Object, _now: datetime) -> str:
    """A CertificateSigningRequest's state, for example ``Pending`` or ``Approved,Issued``."""
    kinds = [entry.get("type") for entry in dig(obj, "status.conditions") or ()]
    text = "Denied" if "Denied" in kinds else "Approved" if "Approved" in kinds else "Pending"
    if "Failed" in kinds:
        text += ",Failed"
    return text + (",Issued" if dig(obj, "status.certificate") else "")


def dangling(obj: Object, _now: datetime) -> str:
    """The status of a FlowSchema's Dangling condition (True: no such priority level); "?" without the condition."""
    conditions = dig(obj, "status.conditions") or ()
    return next((str(entry.get("status")) for entry in conditions if entry.get("type") == "Dangling"), "?")


def available(obj: Object, _now: datetime) -> str:
    found = next((entry for entry in dig(obj, "status.conditions") or () if entry.get("type") == "Available"), None)
    if found is None:
        return "Unknown"
    status = str(found.get("status"))
    return status if status == "True" else f"{status} ({found.get('reason')})"


def controller(obj: Object, _now: datetime) -> str:
    """The object's controller owner."""
    owner = next((entry for entry in obj["metadata"].get("ownerReferences") or () if entry.get("controller")), None)
    if owner is None:
        return "<none>"
    group = owner.get("apiVersion", "").rpartition("/")[0]
    return f"{owner['kind'].lower()}.{group}/{owner['name']}" if group else f"{owner['kind'].lower()}/{owner['name']}"


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
    """The StorageClass's name, followed by ``(default)`` if the class is the default."""
    annotations = obj["metadata"].get("annotations") or {}
    default = annotations.get("storageclass.kubernetes.io/is-default-class") == "true"
    return f"{obj['metadata']['name']} (default)" if default else str(obj["metadata"]["name"])


def joined(key: str) -> Cell:
    return lambda obj, _now: ",".join(dig(obj, key) or ()) or "<none>"


_ADMISSION, _RBAC, _STORAGE = "admissionregistration.k8s.io", "rbac.authorization.k8s.io", "storage.k8s.io"
_BINDING = (NAME, Column("Role", kind_and_name("roleRef")), AGE, Column("Users", subjects("User"), priority=1),
            Column("Groups", subjects("Group"), priority=1),
            Column("ServiceAccounts", subjects("ServiceAccount"), priority=1))
_WEBHOOKS = (NAME, Column("Webhooks", length("webhooks"), "integer"), AGE)
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
        Column("OS-Image", filled("status.nodeInfo.osImage", "<unknown>"), priority=1),
        Column("Kernel-Version", filled("status.nodeInfo.kernelVersion", "<unknown>"), priority=1),
        Column("Container-Runtime", filled("status.nodeInfo.containerRuntimeVersion", "<unknown>"), priority=1)),
    ("", "PersistentVolume"): (
        NAME, Column("Capacity", filled("spec.capacity.storage", "0")),
        Column("Access Modes", modes("spec.accessModes")),
        Column("Reclaim Policy", path("spec.persistentVolumeReclaimPolicy")), Column("Status", phase),
        Column("Claim", namespace_and_name("spec.claimRef", "")), Column("StorageClass", storage_class),
        Column("VolumeAttributesClass", filled("spec.volumeAttributesClassName", "<unset>")),
        Column("Reason", path("status.reason")), AGE,
        Column("VolumeMode", filled("spec.volumeMode", "<unset>"), priority=1)),
    ("", "PersistentVolumeClaim"): (
        NAME, Column("Status", phase), Column("Volume", path("spec.volumeName")),
        Column("Capacity", if_bound(filled("status.capacity.storage", "0"))),
        Column("Access Modes", if_bound(modes("status.accessModes"))),
        Column("StorageClass", storage_class),
        Column("VolumeAttributesClass", filled("spec.volumeAttributesClassName", "<unset>")), AGE,
        Column("VolumeMode", filled("spec.volumeMode", "<unset>"), priority=1)),
    ("", "Pod"): POD_COLUMNS,
    ("", "PodTemplate"): POD_TEMPLATE_COLUMNS,
    ("", "ReplicationController"): REPLICATION_COLUMNS,
    ("", "ResourceQuota"): (NAME, Column("Request", quota(("limits",), others=True)),
                            Column("Limit", quota(("limits",), others=False)), AGE),
    ("", "Secret"): (NAME, Column("Type", path("type")), Column("Data", length("data")), AGE),
    ("", "Service"): SERVICE_COLUMNS,
    ("", "ServiceAccount"): (NAME, AGE),
    ("apiregistration.k8s.io", "APIService"): (
        NAME, Column("Service", namespace_and_name("spec.service", "Local")), Column("Available", available), AGE),
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
        Column("RequestedDuration", text("spec.expirationSeconds", "<none>", unit="s")),
        Column("Condition", signing_condition)),
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
        Column("DistinguisherMethod", filled("spec.distinguisherMethod.type", "<none>")), AGE,
        Column("MissingPL", dangling)),
    ("flowcontrol.apiserver.k8s.io", "PriorityLevelConfiguration"): (
        NAME, Column("Type", path("spec.type")),
        Column("NominalConcurrencyShares", filled("spec.limited.nominalConcurrencyShares", "<none>")),
        Column("Queues", filled("spec.limited.limitResponse.queuing.queues", "<none>")),
        Column("HandSize", filled("spec.limited.limitResponse.queuing.handSize", "<none>")),
        Column("QueueLengthLimit", filled("spec.limited.limitResponse.queuing.queueLengthLimit", "<none>")), AGE),
    ("resource.k8s.io", "DeviceClass"): (NAME, AGE),
    ("resource.k8s.io", "ResourceClaim"): (
        NAME, Column("State", lambda obj, _now: "allocated" if dig(obj, "status.allocation") else "pending"), AGE),
    ("resource.k8s.io", "ResourceClaimTemplate"): (NAME, AGE),
    ("resource.k8s.io", "ResourceSlice"): (
        NAME, Column("Node", path("spec.nodeName")), Column("Driver", path("spec.driver")),
        Column("Pool", path("spec.pool.name")), AGE),
}
