"""Cells of tables that are more than a field: events, nodes, volumes, bindings and the rest of the small kinds."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from kubectl_runtime.apiserver.kinds.base import dig
from kubectl_runtime.apiserver.kinds.columns.workload_columns import path
from kubectl_runtime.apiserver.output.table import NAME, age
from kubectl_runtime.apiserver.storage.registry import Cell, Column

Object = dict[str, Any]

_MODES = {"ReadWriteOnce": "RWO", "ReadOnlyMany": "ROX", "ReadWriteMany": "RWX", "ReadWriteOncePod": "RWOP"}
_ROLE_LABEL = "node-role.kubernetes.io/"


def count(key: str) -> Cell:
    """The number of entries of a list or map."""
    return lambda obj, _now: len(obj.get(key) or ())


def data_count(obj: Object, _now: datetime) -> int:
    """Keys of data and binaryData."""
    return len(obj.get("data") or ()) + len(obj.get("binaryData") or ())


def node_status(obj: Object, _now: datetime) -> str:
    """Ready, NotReady or Unknown, and whether it is cordoned."""
    conditions = {entry.get("type"): entry.get("status") for entry in dig(obj, "status.conditions") or ()}
    ready = "Ready" if conditions.get("Ready") == "True" else "NotReady" if "Ready" in conditions else "Unknown"
    return f"{ready},SchedulingDisabled" if dig(obj, "spec.unschedulable") else ready


def node_roles(obj: Object, _now: datetime) -> str:
    """Roles by label."""
    labels = obj["metadata"].get("labels") or {}
    roles = {key.removeprefix(_ROLE_LABEL) for key in labels if key.startswith(_ROLE_LABEL)}
    if labels.get("kubernetes.io/role"):
        roles.add(labels["kubernetes.io/role"])
    return ",".join(sorted(roles - {""})) or "<none>"


def node_address(kind: str) -> Cell:
    """The first address of a type."""
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
    """Access modes, abbreviated."""
    return lambda obj, _now: ",".join(_MODES.get(mode, mode) for mode in dig(obj, key) or ())


def claim(obj: Object, _now: datetime) -> str:
    """The claim that a volume is bound to."""
    reference = dig(obj, "spec.claimRef")
    return f"{reference.get('namespace')}/{reference.get('name')}" if reference else ""


def if_bound(cell: Cell) -> Cell:
    """What a claim's status says of its volume; nothing while it has none."""
    return lambda obj, now: cell(obj, now) if dig(obj, "spec.volumeName") else ""


def amount(key: str) -> Cell:
    """A quantity, 0 without one."""
    return lambda obj, _now: dig(obj, key) or "0"


def phase(obj: Object, _now: datetime) -> str:
    """The phase, or Terminating."""
    return "Terminating" if obj["metadata"].get("deletionTimestamp") else str(dig(obj, "status.phase") or "")


def subjects(kind: str) -> Cell:
    """Names of subjects of a kind."""
    def cell(obj: Object, _now: datetime) -> str:
        chosen = [entry for entry in obj.get("subjects") or () if entry.get("kind") == kind]
        if kind == "ServiceAccount":
            return ", ".join(f"{entry.get('namespace', '')}/{entry.get('name')}" for entry in chosen)
        return ", ".join(entry.get("name", "") for entry in chosen)

    return cell


def role(obj: Object, _now: datetime) -> str:
    """The role of a binding."""
    role = obj.get("roleRef") or {}
    return f"{role.get('kind', '')}/{role.get('name', '')}"


def quota(prefixes: tuple[str, ...], *, others: bool) -> Cell:
    """Used and hard amounts, of limits or of the others."""
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
    """A number of seconds."""
    def cell(obj: Object, _now: datetime) -> str:
        seconds = dig(obj, key)
        return "<none>" if seconds is None else f"{seconds}s"

    return cell


def service(obj: Object, _now: datetime) -> str:
    """The Service behind an APIService."""
    service = dig(obj, "spec.service")
    return f"{service.get('namespace')}/{service.get('name')}" if service else "Local"


def dangling(obj: Object, _now: datetime) -> str:
    """Whether the priority level of a FlowSchema is missing."""
    conditions = dig(obj, "status.conditions") or ()
    return next((str(entry.get("status")) for entry in conditions if entry.get("type") == "Dangling"), "?")


def available(obj: Object, _now: datetime) -> str:
    """The Available condition."""
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
    """A field, ``<none>`` if it is not there."""
    return lambda obj, _now: dig(obj, key) or "<none>"


def of_unknown(key: str) -> Cell:
    """A field, ``<unknown>`` if it is not there."""
    return lambda obj, _now: dig(obj, key) or "<unknown>"


def unset(key: str) -> Cell:
    """A field, ``<unset>`` if it is not there."""
    return lambda obj, _now: dig(obj, key) or "<unset>"


def param_kind(obj: Object, _now: datetime) -> str:
    """The kind of the parameters."""
    kind = dig(obj, "spec.paramKind")
    return f"{kind.get('apiVersion')}/{kind.get('kind')}" if kind else "<unset>"


def param_ref(obj: Object, _now: datetime) -> str:
    """The parameters themselves."""
    reference = dig(obj, "spec.paramRef")
    if not reference:
        return "<unset>"
    name, namespace = str(reference.get("name") or "*"), reference.get("namespace")
    return f"{namespace}/{name}" if namespace else name


def class_name(obj: Object, _now: datetime) -> str:
    """The name, marked if it is the default class."""
    annotations = obj["metadata"].get("annotations") or {}
    default = annotations.get("storageclass.kubernetes.io/is-default-class") == "true"
    return f"{obj['metadata']['name']} (default)" if default else str(obj["metadata"]["name"])


def length(key: str) -> Cell:
    """The number of entries at a path."""
    return lambda obj, _now: len(dig(obj, key) or ())


def joined(key: str) -> Cell:
    """The texts at a path."""
    return lambda obj, _now: ",".join(dig(obj, key) or ()) or "<none>"
