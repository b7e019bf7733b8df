"""Pods: defaults of pod specs, the additions of admission, and the allowed updates of each subresource.

The functions work on decoded objects (see typed), in which structs such as ``resources`` are present. Pods get a
default enableServiceLinks and requests derived from limits; templates do not.
"""
from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

from kubectl_runtime.apiserver import errors
from kubectl_runtime.apiserver.errors import Cause
from kubectl_runtime.apiserver.kinds import limits
from kubectl_runtime.apiserver.kinds.base import BuiltinStrategy, difference, dig, fill, put_default
from kubectl_runtime.apiserver.kinds.limits import default_resources, quality_of_service
from kubectl_runtime.apiserver.kinds.plain import SYSTEM_PRIORITIES
from kubectl_runtime.apiserver.kinds.pod.pod_validation import pod_spec_causes
from kubectl_runtime.apiserver.kinds.pod.warnings import name_warnings, template_warnings
from kubectl_runtime.apiserver.names import dns_subdomain_errors
from kubectl_runtime.apiserver.strategy import StrategyContext
from kubectl_runtime.apiserver.wire import Object
from kubectl_runtime.core.codec.jsonbytes import json_copy
from kubectl_runtime.core.meta.metav1 import format_time
from kubectl_runtime.core.meta.quantities import canonical, value_of

CONTAINER_LISTS = ("initContainers", "containers", "ephemeralContainers")
_MODES = {"secret": "defaultMode", "configMap": "defaultMode", "downwardAPI": "defaultMode", "projected": "defaultMode"}
_FILE_MODE = 0o644
_PROBES = ("livenessProbe", "readinessProbe", "startupProbe")
_VOLUME_SOURCES_WITHOUT_DEFAULT = {"name"}
_SOURCE_DEFAULTS: dict[str, Object] = {
    "iscsi": {"iscsiInterface": "default"},
    "rbd": {"pool": "rbd", "user": "admin", "keyring": "/etc/ceph/keyring"},
    "azureDisk": {"cachingMode": "ReadWrite", "kind": "Shared", "fsType": "ext4"},
    "scaleIO": {"storageMode": "ThinProvisioned", "fsType": "xfs"},
}


def default_pod_spec(spec: Object) -> None:
    put_default(spec, "restartPolicy", "Always")
    put_default(spec, "terminationGracePeriodSeconds", 30)
    put_default(spec, "dnsPolicy", "ClusterFirst")
    put_default(spec, "securityContext", {})
    put_default(spec, "schedulerName", "default-scheduler")
    if account := spec.get("serviceAccountName") or spec.get("serviceAccount"):
        spec["serviceAccountName"] = spec["serviceAccount"] = account  # `serviceAccount` is the field's old name
    for container in all_containers(spec):
        _container(container)
    for volume in spec.get("volumes") or ():
        _volume(volume)


def all_containers(spec: Object) -> Iterator[Object]:
    """Init, main and ephemeral containers."""
    for key in CONTAINER_LISTS:
        yield from spec.get(key) or ()


def _round_up(amounts: Object) -> None:
    """Round amounts up to thousandths."""
    for name, amount in amounts.items():
        if amount.endswith(("n", "u")):
            amounts[name] = canonical(f"{math.ceil(value_of(amount) * 1000)}m")


def _container(container: Object) -> None:
    resources = container.get("resources") or {}
    for part in ("limits", "requests"):
        _round_up(resources.get(part) or {})
    put_default(container, "terminationMessagePath", "/dev/termination-log")
    put_default(container, "terminationMessagePolicy", "File")
    if not container.get("imagePullPolicy"):
        container["imagePullPolicy"] = pull_policy(container.get("image", ""))
    for port in container.get("ports") or ():
        put_default(port, "protocol", "TCP")
    for variable in container.get("env") or ():
        _field_ref((variable.get("valueFrom") or {}).get("fieldRef"))
    for name in _PROBES:
        if probe := container.get(name):
            _probe(probe)
    for handler in (container.get("lifecycle") or {}).values():
        if isinstance(handler, dict):
            _http_get(handler.get("httpGet"))


def pull_policy(image: str) -> str:
    """The default imagePullPolicy: Always if the tag is latest or missing, else IfNotPresent."""
    name, at_sign, _digest = image.partition("@")
    tag = name.rpartition("/")[2].partition(":")[2]
    return "Always" if image and (tag == "latest" or (not tag and not at_sign)) else "IfNotPresent"


def _probe(probe: Object) -> None:
    for key, value in (("timeoutSeconds", 1), ("periodSeconds", 10), ("successThreshold", 1), ("failureThreshold", 3)):
        put_default(probe, key, value)
    _http_get(probe.get("httpGet"))
    if (grpc := probe.get("grpc")) is not None:
        put_default(grpc, "service", "")


def _http_get(action: Object | None) -> None:
    if action is not None:
        put_default(action, "path", "/")
        put_default(action, "scheme", "HTTP")


def _field_ref(reference: Object | None) -> None:
    if reference is not None:
        put_default(reference, "apiVersion", "v1")


def _volume(volume: Object) -> None:
    if set(volume) <= _VOLUME_SOURCES_WITHOUT_DEFAULT:
        volume["emptyDir"] = {}
    for source, key in _MODES.items():
        if isinstance(volume.get(source), dict):
            put_default(volume[source], key, _FILE_MODE)
    default_volume_source(volume)
    if (image := volume.get("image")) is not None:
        put_default(image, "pullPolicy", pull_policy(image.get("reference", "")))
    for item in (volume.get("downwardAPI") or {}).get("items") or ():
        _field_ref(item.get("fieldRef"))
    for source in (volume.get("projected") or {}).get("sources") or ():
        _projection(source)
    if claim := (volume.get("ephemeral") or {}).get("volumeClaimTemplate"):
        put_default(claim.setdefault("spec", {}), "volumeMode", "Filesystem")


def default_volume_source(source: Object) -> None:
    """Fill in the defaults that volumes of Pods and PersistentVolumes share."""
    for kind, defaults in _SOURCE_DEFAULTS.items():
        if (found := source.get(kind)) is not None:
            fill(found, **defaults)
    if (disk := source.get("azureDisk")) is not None:
        put_default(disk, "readOnly", False)
    if (host_path := source.get("hostPath")) is not None:
        put_default(host_path, "type", "")


def _projection(source: Any) -> None:
    if (token := source.get("serviceAccountToken")) is not None:
        put_default(token, "expirationSeconds", 3600)
    for item in (source.get("downwardAPI") or {}).get("items") or ():
        _field_ref(item.get("fieldRef"))


_GENERAL = ("pod updates may not change fields other than `spec.containers[*].image`,"
            "`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` "
            "(only additions to existing tolerations),"
            "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)\n")
_FOR_PROBED_CONTAINERS = ("ports", "livenessProbe", "readinessProbe", "startupProbe", "lifecycle", "resources",
                          "resizePolicy")
_RESIZABLE = ("cpu", "memory")


def update_causes(new: Object, old: Object) -> Iterator[Cause]:
    """Yield a cause for each change of a Pod's spec that an update may not make.

    An update may change images, set or lower the deadline, add tolerations and remove scheduling gates. While a Pod has
    scheduling gates, an update may also restrict the Nodes for the Pod.
    """
    for key in ("containers", "initContainers"):
        if len(new.get(key) or ()) != len(old.get(key) or ()):
            yield errors.forbidden_field(f"spec.{key}", "pod updates may not add or remove containers")
            return
    yield from (errors.required(f"spec.{key}[{index}].image") for key in ("containers", "initContainers")
                for index, container in enumerate(new.get(key) or ()) if not container.get("image"))
    yield from _deadline_causes(new.get("activeDeadlineSeconds"), old.get("activeDeadlineSeconds"))
    if not _keeps_tolerations(new.get("tolerations") or [], old.get("tolerations") or []):
        yield errors.forbidden_field("spec.tolerations",
                                     "existing toleration can not be modified except its tolerationSeconds")
    gates = {gate.get("name") for gate in old.get("schedulingGates") or ()}
    yield from (errors.forbidden_field(f"spec.schedulingGates[{index}].name", "only deletion is allowed, but found new "
                                       f"scheduling gate '{gate.get('name')}'")
                for index, gate in enumerate(new.get("schedulingGates") or ()) if gate.get("name") not in gates)
    selector, before = new.get("nodeSelector") or {}, old.get("nodeSelector") or {}
    if gates and any(selector.get(key) != value for key, value in before.items()):
        yield errors.invalid_value("spec.nodeSelector", selector,
                                   "only additions to spec.nodeSelector are allowed (no mutations or deletions)")
    allowed = _with_allowed_changes(old, new, gated=bool(gates))
    if allowed != new:
        yield errors.forbidden_field("spec", _GENERAL + difference(allowed, new))


def _deadline_causes(new: int | None, old: int | None) -> Iterator[Cause]:
    path = "spec.activeDeadlineSeconds"
    if old is not None and new is None:
        yield errors.invalid_value(path, None, "must not update from a positive integer to nil value")
    elif old is not None and new is not None and new > old:
        yield errors.invalid_value(path, new, "must be less than or equal to previous value")


def _keeps_tolerations(new: list[Object], old: list[Object]) -> bool:
    """Whether each old toleration is still present. Only its tolerationSeconds may change."""
    def without_time(toleration: Object) -> Object:
        return {key: value for key, value in toleration.items() if key != "tolerationSeconds"}

    return all(without_time(entry) in [without_time(other) for other in new] for entry in old)


def _with_allowed_changes(old: Object, new: Object, *, gated: bool) -> Object:
    """The old spec with those parts of the new spec that may change or that other causes report."""
    allowed: Object = json_copy(old)
    for key in ("containers", "initContainers"):
        for container, changed in zip(allowed.get(key) or (), new.get(key) or (), strict=True):
            container["image"] = changed.get("image", "")
    taken = ["activeDeadlineSeconds", "tolerations", "schedulingGates"]
    if gated:
        taken.append("nodeSelector")
        if _adds_affinity(old, new):
            taken.append("affinity")
    if old.get("terminationGracePeriodSeconds", 0) < 0 and new.get("terminationGracePeriodSeconds") == 1:
        taken.append("terminationGracePeriodSeconds")
    for key in taken:
        if key in new:
            allowed[key] = new[key]
        else:
            allowed.pop(key, None)
    return allowed


def _adds_affinity(old: Object, new: Object) -> bool:
    """Whether the only change of affinity is a nodeAffinity that was missing before."""
    parts = [{key: value for key, value in (spec.get("affinity") or {}).items() if key != "nodeAffinity"}
             for spec in (old, new)]
    return parts[0] == parts[1] and not (old.get("affinity") or {}).get("nodeAffinity")


def ephemeral_causes(new: Object, old: Object) -> Iterator[Cause]:
    """Yield a cause for each ephemeral container that is invalid, changed or removed.

    An update may only add ephemeral containers.
    """
    known = {entry.get("name") for key in ("containers", "initContainers") for entry in new.get(key) or ()}
    given = {entry.get("name"): entry for entry in new.get("ephemeralContainers") or ()}
    for index, container in enumerate(new.get("ephemeralContainers") or ()):
        at, target = f"spec.ephemeralContainers[{index}]", container.get("targetContainerName")
        if target and target not in known:
            yield errors.not_found_value(f"{at}.targetContainerName", target)
        yield from (errors.forbidden_field(f"{at}.{key}", "cannot be set for an Ephemeral Container")
                    for key in _FOR_PROBED_CONTAINERS if container.get(key))
    for container in old.get("ephemeralContainers") or ():
        name = container.get("name")
        if name not in given:
            yield errors.forbidden_field("spec.ephemeralContainers",
                                         f'existing ephemeral containers "{name}" may not be removed\n')
        elif given[name] != container:
            yield errors.forbidden_field("spec.ephemeralContainers",
                                         f'existing ephemeral containers "{name}" may not be changed\n'
                                         + difference(container, given[name]))


def resize_causes(new: Object, old: Object) -> Iterator[Cause]:
    """Yield a cause for each error of a resize.

    Only CPU and memory may change, and the QoS class must stay the same.
    """
    quality = dig(old, "status.qosClass") or quality_of_service(old["spec"])
    if quality_of_service(new["spec"]) != quality:
        yield errors.invalid_value("spec", quality, "Pod QOS Class may not change as a result of resizing")
    pairs = [(key, index, before, after) for key in ("containers", "initContainers")
             for index, (before, after) in enumerate(
                 zip(old["spec"].get(key) or (), new["spec"].get(key) or (), strict=False))]
    for key, index, before, after in pairs:
        for part in ("requests", "limits"):
            if set(_amounts(before, part)) & set(_RESIZABLE) - set(_amounts(after, part)):
                yield errors.forbidden_field(f"spec.{key}[{index}].resources.{part}",
                                             f"resource {part} cannot be removed")
    changed = [(key, index) for key, index, before, after in pairs if _fixed(before) != _fixed(after)]
    if any(key == "containers" for key, _ in changed):
        yield errors.forbidden_field("spec", "only cpu and memory resources are mutable")
    for key, index in changed:
        if key == "initContainers":
            yield errors.forbidden_field(f"spec.{key}[{index}]",
                                         "only cpu and memory resources for init or sidecar containers are mutable")


def _amounts(container: Object, part: str) -> Object:
    return (container.get("resources") or {}).get(part) or {}


def _fixed(container: Object) -> list[Object]:
    """A container's amounts that a resize cannot change."""
    return [{name: amount for name, amount in _amounts(container, part).items() if name not in _RESIZABLE}
            for part in ("limits", "requests")]


def status_causes(new: Object, old: Object) -> list[Cause]:
    """Return a cause for each error of a new nominatedNodeName, and for a change of the QoS class."""
    quality, before = new.get("qosClass"), old.get("qosClass")
    node = new.get("nominatedNodeName") or ""
    causes = [errors.invalid_value("status.nominatedNodeName", node, why) for why in dns_subdomain_errors(node)
              ] if node != (old.get("nominatedNodeName") or "") and node else []
    return causes if quality == before or not before else [*causes, errors.immutable("status.qosClass", quality)]


def in_step(status: Object) -> None:
    """Make podIP the first of podIPs, and hostIP the first of hostIPs. If they differ, the single address wins."""
    for one, several in (("podIP", "podIPs"), ("hostIP", "hostIPs")):
        first, listed = status.get(one), status.get(several) or []
        if first and (not listed or listed[0].get("ip") != first):
            status[several] = [{"ip": first}]
        elif listed and not first:
            status[one] = listed[0].get("ip")


_DELETION_COST, _MIRROR = "controller.kubernetes.io/pod-deletion-cost", "kubernetes.io/config.mirror"
_NOT_READY = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")


_GATED = {"type": "PodScheduled", "status": "False", "lastProbeTime": None, "lastTransitionTime": None,
          "reason": "SchedulingGated", "message": "Scheduling is blocked due to non-empty scheduling gates"}


class PodStrategy(BuiltinStrategy):
    has_generation = True
    delete_returns_object = True
    supports_grace = True
    status_keeps = ("deletionTimestamp", "ownerReferences")
    fields: ClassVar[dict[str, str | Callable[[Object], str]]] = {
        "spec.nodeName": "spec.nodeName",
        "spec.restartPolicy": "spec.restartPolicy",
        "spec.schedulerName": "spec.schedulerName",
        "spec.serviceAccountName": "spec.serviceAccountName",
        "spec.hostNetwork": lambda obj: "true" if dig(obj, "spec.hostNetwork") else "false",
        "status.phase": "status.phase",
        "status.podIP": "status.podIP",
        "status.podIPs": lambda _: "",  # as in the real server, selectable but always empty
        "status.nominatedNodeName": "status.nominatedNodeName",
    }

    def default(self, obj: Object) -> None:
        """Fill in the spec's defaults, enableServiceLinks, and missing requests (from the limits)."""
        spec = obj["spec"]
        if obj.get("status"):
            in_step(obj["status"])
        put_default(spec, "enableServiceLinks", True)
        default_resources(spec)
        default_pod_spec(spec)
        for key in ("containers", "initContainers") if spec.get("hostNetwork") else ():
            for container in spec.get(key) or ():
                for port in container.get("ports") or ():
                    fill(port, hostPort=port.get("containerPort"))

    def admit(self, obj: Object, ctx: StrategyContext) -> None:
        """Add what the LimitRanger, Priority, DefaultTolerationSeconds and RuntimeClass admission plugins add."""
        limits.fill_in(obj, ctx)
        _admit(obj, ctx)
        admit_runtime_class(obj, ctx)

    def prepare_create(self, obj: Object, ctx: StrategyContext) -> None:
        """Apply `admit`, and set the initial status."""
        self.admit(obj, ctx)
        if obj["spec"]["terminationGracePeriodSeconds"] < 0:
            obj["spec"]["terminationGracePeriodSeconds"] = 1
        obj["status"] = {"phase": "Pending", "qosClass": quality_of_service(obj["spec"])}
        if obj["spec"].get("schedulingGates"):
            obj["status"]["conditions"] = [{**_GATED, "lastTransitionTime": format_time(ctx.now)}]

    def prepare_update(self, new: Object, old: Object, subresource: str, ctx: StrategyContext) -> None:
        """Restore everything except the part that the subresource may change."""
        if subresource == "":
            super().prepare_update(new, old, subresource, ctx)
            _default_tolerations(new["spec"])
            for key in ("priority", "preemptionPolicy"):  # set by admission; the client may omit them
                put_default(new["spec"], key, old["spec"].get(key))
        elif subresource == "status":
            super().prepare_update(new, old, subresource, ctx)
            new.setdefault("status", {}).setdefault("qosClass", dig(old, "status.qosClass") or "BestEffort")
        else:
            _keep_all_but(new, old, subresource)

    def validate_create(self, obj: Object, ctx: StrategyContext) -> list[Cause]:
        """Validate the spec and the annotations that the server interprets, then check the namespace's LimitRanges."""
        spec, annotations = obj["spec"], obj["metadata"].get("annotations") or {}
        causes = pod_spec_causes(spec, "spec") + _annotation_causes(annotations, spec)
        if spec.get("ephemeralContainers"):
            causes.append(errors.forbidden_field("spec.ephemeralContainers", "cannot be set on create"))
        if spec.get("nodeName") and spec.get("schedulingGates"):
            causes.append(errors.forbidden_field("spec.nodeName",
                                                 "cannot be set until all schedulingGates have been cleared"))
        if not causes:
            limits.check_pod(obj, ctx)
        return causes

    def validate_update(self, new: Object, old: Object, subresource: str, ctx: StrategyContext) -> list[Cause]:
        if subresource == "status":
            return status_causes(new.get("status") or {}, old.get("status") or {})
        causes = pod_spec_causes(new["spec"], "spec")
        if subresource == "ephemeralcontainers":
            return causes + list(ephemeral_causes(new["spec"], old["spec"]))
        if subresource == "resize":
            return causes + list(resize_causes(new, old))
        return causes + list(update_causes(new["spec"], old["spec"]))

    def warnings(self, obj: Object, old: Object | None) -> list[str]:
        """The spec's warnings on create. Updates get none, because they usually come from programs."""
        if old is not None:
            return []
        return name_warnings(obj["metadata"].get("name", ""), "the Pod's hostname") + template_warnings(obj, "")

    def grace_period(self, obj: Object, requested: int | None) -> int:
        """The requested grace period, or else the spec's; 0 for a Pod that has no node or has ended."""
        phase = dig(obj, "status.phase")
        if not dig(obj, "spec.nodeName") or phase in ("Succeeded", "Failed"):
            return 0
        given = dig(obj, "spec.terminationGracePeriodSeconds") if requested is None else requested
        seconds = 30 if given is None else int(given)
        return 1 if seconds < 0 else seconds


def admit_runtime_class(obj: Object, ctx: StrategyContext) -> None:
    """Add what the admission plugin RuntimeClass adds to a Pod: its class's overhead, node selector and tolerations."""
    spec, name = obj["spec"], obj["spec"].get("runtimeClassName")

    def refuse(why: str) -> errors.StatusError:
        return errors.forbidden("", "pods", obj["metadata"].get("name", ""), why)

    found: Object = {}
    if name is not None:
        classes = ctx.objects("node.k8s.io", "runtimeclasses")
        found = next((entry for entry in classes if entry["metadata"]["name"] == name), {})
        if not found:
            raise refuse(f'pod rejected: RuntimeClass "{name}" not found')
    overhead = (found.get("overhead") or {}).get("podFixed")
    if overhead is None and spec.get("overhead"):
        raise refuse("pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead")
    if overhead and spec.get("overhead") not in (None, overhead):
        raise refuse("pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead")
    if overhead:
        spec["overhead"] = dict(overhead)
    scheduling = found.get("scheduling") or {}
    if selector := scheduling.get("nodeSelector"):
        given = spec.get("nodeSelector") or {}
        for key, value in selector.items():
            if given.get(key, value) != value:
                raise refuse(f"conflict: runtimeClass.scheduling.nodeSelector[{key}] = {value}; "
                             f"pod.spec.nodeSelector[{key}] = {given[key]}")
        spec["nodeSelector"] = {**given, **selector}
    for toleration in scheduling.get("tolerations") or ():
        if toleration not in spec["tolerations"]:
            spec["tolerations"].append(dict(toleration))


def _annotation_causes(annotations: Object, spec: Object) -> list[Cause]:
    causes = []
    cost = annotations.get(_DELETION_COST)
    if cost is not None and not (re.fullmatch(r"-?(0|[1-9]\d*)", cost) and -2**31 <= int(cost) < 2**31):
        causes.append(errors.invalid_value(f"metadata.annotations[{_DELETION_COST}]", cost, "must be a 32bit integer"))
    if annotations.get(_MIRROR) and not spec.get("nodeName"):
        causes.append(errors.invalid_value(f"metadata.annotations[{_MIRROR}]", annotations[_MIRROR],
                                           "must set spec.nodeName if mirror pod annotation is set"))
    return causes


def _admit(obj: Object, ctx: StrategyContext) -> None:
    """Add what the admission plugins Priority and DefaultTolerationSeconds add."""
    spec = obj["spec"]
    _default_tolerations(spec)
    name = spec.get("priorityClassName") or ""
    name, value, policy = _priority(name, obj["metadata"].get("name", ""), ctx)
    if name:
        spec["priorityClassName"] = name
    for field, title, computed in (("priority", "integer value of priority", value),
                                   ("preemptionPolicy", "string value of PreemptionPolicy", policy)):
        if spec.get(field) not in (None, computed):
            raise errors.forbidden("", "pods", obj["metadata"].get("name", ""),
                                   f"the {title} ({spec[field]}) must not be provided in pod spec; priority admission "
                                   f"controller computed {computed} from the given PriorityClass name")
        spec[field] = computed


def _priority(name: str, pod: str, ctx: StrategyContext) -> tuple[str, int, str]:
    """Name, value and preemptionPolicy of the named PriorityClass (a 403 if it is missing) or of the default class."""
    if name in SYSTEM_PRIORITIES:
        return name, SYSTEM_PRIORITIES[name], "PreemptLowerPriority"
    classes = list(ctx.objects("scheduling.k8s.io", "priorityclasses"))
    chosen: Object | None
    if name:
        chosen = next((entry for entry in classes if entry["metadata"]["name"] == name), None)
        if chosen is None:
            raise errors.forbidden("", "pods", pod, f"no PriorityClass with name {name} was found")
    else:
        chosen = next((entry for entry in classes if entry.get("globalDefault")), {})
    name = chosen.get("metadata", {}).get("name", "")
    return name, int(chosen.get("value", 0)), str(chosen.get("preemptionPolicy") or "PreemptLowerPriority")


def _default_tolerations(spec: Object) -> None:
    tolerations = spec.get("tolerations") or []
    for key in _NOT_READY:
        if not any(entry.get("key", key) in ("", key) and entry.get("effect", "") in ("", "NoExecute")
                   for entry in tolerations):
            tolerations.append({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300})
    spec["tolerations"] = tolerations


def _keep_all_but(new: Object, old: Object, subresource: str) -> None:
    """Restore everything that a write to the subresource (ephemeralcontainers or resize) may not change."""
    spec = new.get("spec") or {}
    managed = new.get("metadata", {}).get("managedFields")
    kept = json_copy(old)
    if subresource == "ephemeralcontainers":
        kept["spec"].pop("ephemeralContainers", None)
        if containers := spec.get("ephemeralContainers"):
            kept["spec"]["ephemeralContainers"] = containers
    elif subresource == "resize":
        for containers in ("containers", "initContainers"):
            wanted = {entry.get("name"): entry for entry in spec.get(containers) or ()}
            for container in kept["spec"].get(containers) or ():
                for key in ("resources", "resizePolicy"):
                    if key in wanted.get(container["name"], {}):
                        container[key] = wanted[container["name"]][key]
    new.clear()
    new.update(kept)
    if managed is not None:
        new["metadata"]["managedFields"] = managed
