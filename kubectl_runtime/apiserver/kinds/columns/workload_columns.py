"""The cells of workloads, Pods, Services, Endpoints, EndpointSlices, Ingresses and NetworkPolicies in tables."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from kubectl_runtime.apiserver.kinds.base import dig, labels_text, selector_text, true_conditions
from kubectl_runtime.apiserver.output.table import AGE, NAME, age, human_duration
from kubectl_runtime.apiserver.storage import Cell, Column
from kubectl_runtime.apiserver.wire import Object


def path(dotted: str) -> Cell:
    """A cell that shows a field; "" if it is missing."""
    def cell(obj: Object, _now: datetime) -> Any:
        value = dig(obj, dotted)
        return "" if value is None else value

    return cell


def number(dotted: str) -> Cell:
    """A number; 0 if it is missing."""
    return lambda obj, _now: dig(obj, dotted) or 0


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
    conditions = [entry.get("type") for entry in dig(obj, "status.conditions") or () if entry.get("status") == "True"]
    for kind, text in (("Complete", "Complete"), ("Failed", "Failed")):
        if kind in conditions:
            return text
    if obj["metadata"].get("deletionTimestamp"):
        return "Terminating"
    for kind, text in (("Suspended", "Suspended"), ("FailureTarget", "FailureTarget"),
                       ("SuccessCriteriaMet", "SuccessCriteriaMet")):
        if kind in conditions:
            return text
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


def _reference(obj: Object, _now: datetime) -> str:
    target = dig(obj, "spec.scaleTargetRef") or {}
    return f"{target.get('kind', '')}/{target.get('name', '')}"


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


def _min_pods(obj: Object, _now: datetime) -> str:
    least = dig(obj, "spec.minReplicas")
    return "<unset>" if least is None else str(least)


def _bound(key: str) -> Cell:
    def cell(obj: Object, _now: datetime) -> str:
        value = dig(obj, f"spec.{key}")
        return "N/A" if value is None else str(value)

    return cell


DEPLOYMENT_COLUMNS = (NAME, Column("Ready", _ready, description="Number of the pod with ready state"),
                      Column("Up-to-date", number("status.updatedReplicas")),
                      Column("Available", number("status.availableReplicas")), AGE, *wide())
STATEFUL_SET_COLUMNS = (NAME, Column("Ready", _ready), AGE, *wide(selector=False))
REPLICATION_COLUMNS = (NAME, Column("Desired", number("spec.replicas"), "integer"),
                       Column("Current", number("status.replicas"), "integer"),
                       Column("Ready", number("status.readyReplicas"), "integer"), AGE, *wide())
DAEMON_SET_COLUMNS = (
    NAME, Column("Desired", number("status.desiredNumberScheduled"), "integer"),
    Column("Current", number("status.currentNumberScheduled"), "integer"),
    Column("Ready", number("status.numberReady"), "integer"),
    Column("Up-to-date", number("status.updatedNumberScheduled"), "integer"),
    Column("Available", number("status.numberAvailable"), "integer"),
    Column("Node Selector", lambda obj, _now: labels_text(dig(obj, "spec.template.spec.nodeSelector"))), AGE, *wide())
JOB_COLUMNS = (NAME, Column("Status", _job_status), Column("Completions", _job_completions),
               Column("Duration", _job_duration), AGE, *wide())
CRON_JOB_COLUMNS = (
    NAME, Column("Schedule", path("spec.schedule")),
    Column("Timezone", lambda obj, _now: dig(obj, "spec.timeZone") or "<none>"),
    Column("Suspend", lambda obj, _now: "True" if dig(obj, "spec.suspend") else "False", "boolean"),
    Column("Active", lambda obj, _now: len(dig(obj, "status.active") or ()), "integer"),
    Column("Last Schedule", _last_schedule), AGE, *wide("spec.jobTemplate.spec.template.spec"))
POD_TEMPLATE_COLUMNS = (
    NAME, Column("Containers", _containers("template.spec", "name")),
    Column("Images", _containers("template.spec", "image")),
    Column("Pod Labels", lambda obj, _now: labels_text(dig(obj, "template.metadata.labels"))))
AUTOSCALER_COLUMNS = (
    NAME, Column("Reference", _reference), Column("Targets", _targets), Column("MinPods", _min_pods),
    Column("MaxPods", path("spec.maxReplicas")), Column("Replicas", number("status.currentReplicas")), AGE)
DISRUPTION_BUDGET_COLUMNS = (
    NAME, Column("Min Available", _bound("minAvailable")), Column("Max Unavailable", _bound("maxUnavailable")),
    Column("Allowed Disruptions", number("status.disruptionsAllowed"), "integer"), AGE)


def _statuses(obj: Object, key: str) -> list[Object]:
    return dig(obj, f"status.{key}") or []


def _sidecars(obj: Object) -> set[str]:
    """The names of init containers that keep running beside the main containers."""
    return {entry["name"] for entry in dig(obj, "spec.initContainers") or () if entry.get("restartPolicy") == "Always"}


def ready(obj: Object, _now: datetime) -> str:
    """``1/2``: the ready main containers and sidecars, of all of them."""
    sidecars = _sidecars(obj)
    total = len(dig(obj, "spec.containers") or ()) + len(sidecars)
    counted = [entry for entry in _statuses(obj, "initContainerStatuses") if entry.get("name") in sidecars]
    running = [entry for entry in [*counted, *_statuses(obj, "containerStatuses")]
               if entry.get("ready") and "running" in (entry.get("state") or {})]
    return f"{len(running)}/{total}"


def status(obj: Object, _now: datetime) -> str:
    """The most specific reason, from phase, conditions and containers: Pending, Init:0/1, CrashLoopBackOff, Running,
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
    """The number of restarts, with the time since the last one: ``3 (5m ago)``."""
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


def _or_none(path: str) -> Any:
    return lambda obj, _now: dig(obj, path) or "<none>"


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
    Column("Node", _or_none("spec.nodeName"), priority=1, description="The node that runs this pod."),
    Column("Nominated Node", _or_none("status.nominatedNodeName"), priority=1,
           description="The node on which other pods are to be preempted for this one."),
    Column("Readiness Gates", _gates, priority=1, description="Conditions besides the containers' that make it ready."),
)


_SHOWN = 3  # hosts, ports or endpoints that are shown before "+ 2 more..."


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
    NAME, Column("Type", path("spec.type")),
    Column("Cluster-IP", lambda obj, _now: dig(obj, "spec.clusterIP") or "<none>"),
    Column("External-IP", _external_ip), Column("Port(s)", _service_ports), AGE,
    Column("Selector", lambda obj, _now: labels_text(dig(obj, "spec.selector")), priority=1))


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
