"""Defaults of a pod's spec, in a Pod itself and in the templates of workloads.

Called on decoded objects (see typed), so that structs such as ``resources`` are there. What only a Pod gets, and no
template (service links, requests from limits), is in pods.py.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from kubectl_runtime.apiserver.kinds.base import fill, put_default
from kubectl_runtime.apiserver.strategy import Object
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
    """Fill in a pod spec."""
    put_default(spec, "restartPolicy", "Always")
    put_default(spec, "terminationGracePeriodSeconds", 30)
    put_default(spec, "dnsPolicy", "ClusterFirst")
    put_default(spec, "securityContext", {})
    put_default(spec, "schedulerName", "default-scheduler")
    if account := spec.get("serviceAccountName") or spec.get("serviceAccount"):
        spec["serviceAccountName"] = spec["serviceAccount"] = account  # the old name of the field is kept in step
    for container in all_containers(spec):
        _container(container)
    for volume in spec.get("volumes") or ():
        _volume(volume)


def all_containers(spec: Object) -> Iterator[Object]:
    """Init, main and ephemeral containers."""
    for key in CONTAINER_LISTS:
        yield from spec.get(key) or ()


def _round_up(amounts: Object) -> None:
    """Resources are counted in thousandths at the finest."""
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
    """Always for the tag latest, given or implied; else IfNotPresent."""
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
    """The defaults that volumes of Pods and PersistentVolumes share."""
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
