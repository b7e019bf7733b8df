"""Validation of the volumes of a pod spec, and of what PersistentVolumes have in common with them.

References of a pod spec to its own fields and resources, and the paths of files in its volumes.
"""
from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator

from kubectl_runtime.apiserver import errors
from kubectl_runtime.apiserver.errors import Cause
from kubectl_runtime.apiserver.kinds.base import config_key_errors, label_causes, one_of
from kubectl_runtime.apiserver.objectmeta.names import dns_subdomain_errors, qualified_name_errors
from kubectl_runtime.apiserver.strategy import Object
from kubectl_runtime.core.meta.quantities import value_of

ENVIRONMENT_PATHS = ("metadata.name", "metadata.namespace", "metadata.uid", "spec.nodeName", "spec.serviceAccountName",
                     "status.hostIP", "status.hostIPs", "status.podIP", "status.podIPs")
VOLUME_PATHS = ("metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid")
_KNOWN_PATHS = {*ENVIRONMENT_PATHS, *VOLUME_PATHS, "spec.restartPolicy", "spec.schedulerName", "status.phase"}
_RESOURCES = tuple(f"{part}.{name}" for part in ("limits", "requests")
                   for name in ("cpu", "ephemeral-storage", "memory"))
_CPU_DIVISORS = ("1m", "1")
_BYTE_DIVISORS = ("1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei")


def field_path_causes(reference: Object, path: str, supported: Iterable[str]) -> Iterator[Cause]:
    """What is wrong with a fieldRef."""
    field, version = reference.get("fieldPath", ""), reference.get("apiVersion", "")
    at = f"{path}.fieldPath"
    name, bracket, rest = field.partition("['")
    subscripted = bool(bracket) and rest.endswith("']")
    if not version:
        yield errors.required(f"{path}.apiVersion")
    elif not field:
        yield errors.required(at)
    elif version != "v1":
        yield errors.invalid_value(at, field, f"error converting fieldPath: unsupported pod version: {version}")
    elif subscripted and name in ("metadata.annotations", "metadata.labels"):
        key = rest.removesuffix("']")
        yield from (errors.invalid_value(path, key, why) for why in qualified_name_errors(key.lower()))
    elif subscripted and name in _KNOWN_PATHS:
        yield errors.invalid_value(path, field, "does not support subscript")
    elif field not in _KNOWN_PATHS:
        yield errors.invalid_value(at, field, f"error converting fieldPath: field label not supported: {field}")
    elif field not in supported:
        yield errors.not_supported(at, field, sorted(supported))


def resource_field_causes(reference: Object, path: str, *, in_volume: bool) -> Iterator[Cause]:
    """What is wrong with a resourceFieldRef."""
    resource, divisor = reference.get("resource", ""), reference.get("divisor") or "0"
    if in_volume and not reference.get("containerName"):
        yield errors.required(f"{path}.containerName")
    elif not resource:
        yield errors.required(f"{path}.resource")
    elif resource not in _RESOURCES and not resource.startswith(("limits.hugepages-", "requests.hugepages-")):
        yield errors.not_supported(f"{path}.resource", resource, _RESOURCES)
    elif divisor != "0":
        kind = resource.partition(".")[2]
        divisors = _CPU_DIVISORS if kind == "cpu" else _BYTE_DIVISORS
        if divisor not in divisors:
            known = " and ".join(_CPU_DIVISORS) if kind == "cpu" else ", ".join(_BYTE_DIVISORS)
            yield errors.invalid_value(f"{path}.divisor", resource,
                                       f"only divisor's values {known} are supported with the {kind} resource")


def local_path_causes(text: str, path: str) -> Iterator[Cause]:
    """A path that stays below where it begins; dots inside of names are fine."""
    if text.startswith("/"):
        yield errors.invalid_value(path, text, "must be a relative path")
    yield from back_step_causes(text, path)


def back_step_causes(text: str, path: str) -> Iterator[Cause]:
    """A path without ``..`` as one of its parts."""
    if ".." in text.split("/"):
        yield errors.invalid_value(path, text, "must not contain '..'")


def file_path_causes(text: str, path: str) -> Iterator[Cause]:
    """The path of a file in a volume."""
    if not text:
        yield errors.required(path)
        return
    yield from local_path_causes(text, path)
    if text.startswith("..") and not text.startswith("../"):
        yield errors.invalid_value(path, text, "must not start with '..'")


def mode_causes(source: Object, key: str, path: str) -> Iterator[Cause]:
    """File modes."""
    mode = source.get(key)
    if mode is not None and not 0 <= mode <= 0o777:
        yield errors.invalid_value(f"{path}.{key}", mode, "must be a number between 0 and 0777 (octal), both inclusive")


def items_causes(source: Object, path: str) -> Iterator[Cause]:
    """The keys of a Secret or ConfigMap that become files."""
    for index, item in enumerate(source.get("items") or ()):
        at, key = f"{path}.items[{index}]", item.get("key", "")
        if not key:
            yield errors.required(f"{at}.key")
        else:
            yield from (errors.invalid_value(f"{at}.key", key, why) for why in config_key_errors(key))
        yield from file_path_causes(item.get("path", ""), f"{at}.path")
        yield from mode_causes(item, "mode", at)


ACCESS_MODES = ("ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod")
HOST_PATH_TYPES = ("", "BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket")
_IQN = re.compile(r"iqn\.\d{4}-\d{2}\.([[:alnum:]-.]+)(:[^,;*&$|\s]+)".replace("[[:alnum:]-.]", "[A-Za-z0-9.-]"))
_MIN_TOKEN_SECONDS, _MAX_TOKEN_SECONDS = 600, 2**32

Check = Callable[[Object, str], Iterator[Cause]]


def volumes_causes(volumes: Iterable[Object], path: str) -> Iterator[Cause]:
    """What is wrong with the volumes of a pod spec."""
    seen = set()
    for index, volume in enumerate(volumes):
        at, name = f"{path}[{index}]", volume.get("name", "")
        yield from label_causes(name, f"{at}.name")
        if name and name in seen:
            yield errors.duplicate(f"{at}.name", name)
        seen.add(name)
        yield from source_causes({key: value for key, value in volume.items() if key != "name"}, at)


def source_causes(sources: Object, path: str, *, required: str = "") -> Iterator[Cause]:
    """One source, and a good one; none is an error if there is a text for it."""
    given = sorted((key for key in sources if sources[key] is not None), key=_ORDER.get)  # type: ignore[arg-type]
    for index, kind in enumerate(given):
        if index:
            yield errors.forbidden_field(f"{path}.{kind}", "may not specify more than 1 volume type")
        elif kind in _CHECKS:
            yield from _CHECKS[kind](sources[kind], f"{path}.{kind}")
    if not given and required:
        yield errors.required(path, required)


def claim_causes(spec: Object, path: str) -> Iterator[Cause]:
    """What is wrong with the spec of a PersistentVolumeClaim."""
    yield from access_mode_causes(spec, path)
    storage = ((spec.get("resources") or {}).get("requests") or {}).get("storage")
    if storage is None:
        yield errors.required(f"{path}.resources[storage]")
    elif value_of(storage) <= 0:
        yield errors.invalid_value(f"{path}.resources[storage]", storage, "must be greater than zero")
    if name := spec.get("storageClassName"):
        yield from (errors.invalid_value(f"{path}.storageClassName", name, why) for why in dns_subdomain_errors(name))
    yield from one_of(spec.get("volumeMode"), ("Block", "Filesystem"), f"{path}.volumeMode")


def access_mode_causes(spec: Object, path: str) -> Iterator[Cause]:
    """At least one mode; the mode for one Pod goes with no other."""
    modes = spec.get("accessModes") or ()
    if not modes:
        yield errors.required(f"{path}.accessModes", "at least 1 access mode is required")
    for mode in modes:
        yield from one_of(mode, ACCESS_MODES, f"{path}.accessModes", required=True)
    if "ReadWriteOncePod" in modes and len(modes) > 1:
        yield errors.forbidden_field(f"{path}.accessModes",
                                     "may not use ReadWriteOncePod with other access modes")


def _required(*keys: str) -> Check:
    """A source that must have some fields and is free in the others."""
    def check(source: Object, path: str) -> Iterator[Cause]:
        yield from (errors.required(f"{path}.{key}") for key in keys if not source.get(key))

    return check


def _host_path(source: Object, path: str) -> Iterator[Cause]:
    if not source.get("path"):
        yield errors.required(f"{path}.path")
    else:
        yield from back_step_causes(source["path"], f"{path}.path")
    if source.get("type"):
        yield from one_of(source["type"], HOST_PATH_TYPES, f"{path}.type")


def _empty_dir(source: Object, path: str) -> Iterator[Cause]:
    if source.get("sizeLimit") is not None and value_of(source["sizeLimit"]) < 0:
        yield errors.forbidden_field(f"{path}.sizeLimit", "SizeLimit field must be a valid resource quantity")


def _secret(source: Object, path: str) -> Iterator[Cause]:
    if not source.get("secretName"):
        yield errors.required(f"{path}.secretName")
    yield from mode_causes(source, "defaultMode", path)
    yield from items_causes(source, path)


def _config_map(source: Object, path: str) -> Iterator[Cause]:
    if not source.get("name"):
        yield errors.required(f"{path}.name")
    yield from mode_causes(source, "defaultMode", path)
    yield from items_causes(source, path)


def _nfs(source: Object, path: str) -> Iterator[Cause]:
    yield from _required("server", "path")(source, path)
    if not (source.get("path") or "").startswith("/"):
        yield errors.invalid_value(f"{path}.path", source.get("path") or "", "must be an absolute path")


def _iscsi(source: Object, path: str) -> Iterator[Cause]:
    yield from _required("targetPortal", "iqn")(source, path)
    name = source.get("iqn") or ""
    if name and (not name.startswith(("iqn", "eui", "naa")) or (name.startswith("iqn") and not _IQN.fullmatch(name))):
        yield errors.invalid_value(f"{path}.iqn", name, "must be valid format")
    if not 0 <= source.get("lun", 0) <= 255:
        yield errors.invalid_value(f"{path}.lun", source["lun"], "must be between 0 and 255, inclusive")


def _azure_disk(source: Object, path: str) -> Iterator[Cause]:
    yield from _required("diskName", "diskURI")(source, path)
    uri, managed = source.get("diskURI") or "", source.get("kind") == "Managed"
    wanted, example = ("/subscriptions", "/subscriptions/{sub-id}/resourcegroups/{group-name}/providers/microsoft."
                       "compute/disks/{disk-id}") if managed else (
        "https://", "https://{account-name}.blob.core.windows.net/{container-name}/{disk-name}.vhd")
    if uri and not uri.startswith(wanted):
        yield errors.not_supported(f"{path}.diskURI", uri, (example,))


def _downward(source: Object, path: str) -> Iterator[Cause]:
    yield from mode_causes(source, "defaultMode", path)
    for item in source.get("items") or ():  # the real server's paths have no index here
        yield from file_path_causes(item.get("path", ""), f"{path}.path")
        field, resource = item.get("fieldRef"), item.get("resourceFieldRef")
        if field is not None:
            yield from field_path_causes(field, f"{path}.fieldRef", VOLUME_PATHS)
            if resource is not None:
                yield errors.invalid_value(path, "resource",
                                           "fieldRef and resourceFieldRef can not be specified simultaneously")
        elif resource is not None:
            yield from resource_field_causes(resource, f"{path}.resourceFieldRef", in_volume=True)
        else:
            yield errors.required(path, "one of fieldRef and resourceFieldRef is required")
        yield from mode_causes(item, "mode", path)


def _projected(source: Object, path: str) -> Iterator[Cause]:
    yield from mode_causes(source, "defaultMode", path)
    for index, part in enumerate(source.get("sources") or ()):
        at, given = f"{path}.sources[{index}]", [key for key, value in part.items() if value is not None]
        if len(given) > 1:
            yield errors.forbidden_field(at, "may not specify more than 1 volume type per source")
            continue
        for kind in ("secret", "configMap"):
            if kind in given:
                if not part[kind].get("name"):
                    yield errors.required(f"{at}.{kind}.name")
                yield from items_causes(part[kind], f"{at}.{kind}")
        if "downwardAPI" in given:
            yield from _downward(part["downwardAPI"], f"{at}.downwardAPI")
        if "serviceAccountToken" in given:
            yield from _token(part["serviceAccountToken"], f"{at}.serviceAccountToken", path)


def _token(source: Object, path: str, volume: str) -> Iterator[Cause]:
    seconds = source.get("expirationSeconds", 3600)
    if seconds < _MIN_TOKEN_SECONDS:
        yield errors.invalid_value(f"{path}.expirationSeconds", seconds,
                                   "may not specify a duration less than 10 minutes")
    elif seconds > _MAX_TOKEN_SECONDS:
        yield errors.invalid_value(f"{path}.expirationSeconds", seconds,
                                   "may not specify a duration larger than 2^32 seconds")
    if not source.get("path"):
        yield errors.required(f"{volume}.path")


def _csi(source: Object, path: str) -> Iterator[Cause]:
    driver = source.get("driver") or ""
    if not driver:
        yield errors.required(f"{path}.driver")
    else:
        yield from (errors.invalid_value(f"{path}.driver", driver, why) for why in dns_subdomain_errors(driver.lower()))


def _ephemeral(source: Object, path: str) -> Iterator[Cause]:
    template = source.get("volumeClaimTemplate")
    if template is None:
        yield errors.required(f"{path}.volumeClaimTemplate")
    else:
        yield from claim_causes(template.get("spec") or {}, f"{path}.volumeClaimTemplate.spec")


def _image(source: Object, path: str) -> Iterator[Cause]:
    if not source.get("reference"):
        yield errors.required(f"{path}.reference")
    yield from one_of(source.get("pullPolicy"), ("Always", "IfNotPresent", "Never"), f"{path}.pullPolicy")


# In the order in which the real server looks at them: all but the first are forbidden.
_CHECKS: dict[str, Check] = {
    "emptyDir": _empty_dir, "hostPath": _host_path, "gitRepo": _required("repository"),
    "gcePersistentDisk": _required("pdName"), "awsElasticBlockStore": _required("volumeID"), "secret": _secret,
    "nfs": _nfs, "iscsi": _iscsi, "glusterfs": _required("endpoints", "path"), "flocker": _required(),
    "persistentVolumeClaim": _required("claimName"), "rbd": _required("monitors", "image"),
    "cinder": _required("volumeID"), "cephfs": _required("monitors"), "quobyte": _required("registry", "volume"),
    "downwardAPI": _downward, "fc": _required(), "configMap": _config_map,
    "azureFile": _required("secretName", "shareName"), "flexVolume": _required("driver"),
    "vsphereVolume": _required("volumePath"),
    "photonPersistentDisk": _required("pdID"), "portworxVolume": _required("volumeID"), "azureDisk": _azure_disk,
    "storageos": _required(), "projected": _projected, "scaleIO": _required("gateway", "system", "volumeName"),
    "csi": _csi, "ephemeral": _ephemeral, "image": _image, "local": _required("path"),
}
VOLUME_SOURCES = frozenset(_CHECKS)
_ORDER = {kind: index for index, kind in enumerate(_CHECKS)}
