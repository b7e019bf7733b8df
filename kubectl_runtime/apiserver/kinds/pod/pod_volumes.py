"""Validation of a pod spec's volumes, of PersistentVolumes and claims, and of references to fields and files."""
from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import partial

from kubectl_runtime.apiserver import errors
from kubectl_runtime.apiserver.errors import Cause
from kubectl_runtime.apiserver.kinds import rules as r
from kubectl_runtime.apiserver.kinds.base import CONFIG_KEY
from kubectl_runtime.apiserver.names import qualified_name_errors
from kubectl_runtime.apiserver.wire import Object
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
    """Yield a cause for an absolute path, and for a path with a part ``..``. Other dots are allowed."""
    if text.startswith("/"):
        yield errors.invalid_value(path, text, "must be a relative path")
    yield from back_step_causes(text, path)


def back_step_causes(text: str | None, path: str) -> Iterator[Cause]:
    if ".." in (text or "").split("/"):
        yield errors.invalid_value(path, text, "must not contain '..'")


def file_path_causes(text: str | None, path: str) -> Iterator[Cause]:
    if not text:
        yield errors.required(path)
        return
    yield from local_path_causes(text, path)
    if text.startswith("..") and not text.startswith("../"):
        yield errors.invalid_value(path, text, "must not start with '..'")


_MODE = r.between(0, 0o777, "must be a number between 0 and 0777 (octal), both inclusive")
_ITEMS = ("items[*]", r.Rules(("key", r.REQUIRED, CONFIG_KEY), ("path", file_path_causes), ("mode", _MODE)))



def _one_pod(modes: list[str] | None, path: str) -> Iterator[Cause]:
    if modes and len(modes) > 1 and "ReadWriteOncePod" in modes:
        yield errors.forbidden_field(path, "may not use ReadWriteOncePod with other access modes")


ACCESS_MODES = (
    r.each(r.REQUIRED, r.choice("ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod")), _one_pod)
HOST_PATH_TYPES = ("", "BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket")
_IQN = re.compile(r"iqn\.\d{4}-\d{2}\.([[:alnum:]-.]+)(:[^,;*&$|\s]+)".replace("[[:alnum:]-.]", "[A-Za-z0-9.-]"))


def source_causes(sources: Object, path: str, *, required: str = "") -> Iterator[Cause]:
    """Yield a cause for each error of a volume's source: an invalid source, and each source beyond the first.

    If `required` is given, a missing source is an error too; `required` is its message.
    """
    given = sorted((key for key in sources if sources[key] is not None), key=_ORDER.get)  # type: ignore[arg-type]
    for index, kind in enumerate(given):
        if index:
            yield errors.forbidden_field(f"{path}.{kind}", "may not specify more than 1 volume type")
        elif kind in _CHECKS:
            yield from _CHECKS[kind](sources[kind], f"{path}.{kind}")
    if not given and required:
        yield errors.required(path, required)


#: The rules of a pod spec's volumes.
VOLUME = r.Rules(
    ("name", r.REQUIRED, r.DNS_LABEL, r.UNIQUE_IF_SET),
    ("", lambda volume, path: source_causes({key: value for key, value in volume.items() if key != "name"}, path)),
)

_CLAIM_SOURCE = r.Rules(
    ("accessModes", r.required("at least 1 access mode is required"), *ACCESS_MODES),
    ("", lambda spec, path: _storage(spec, f"{path}.resources[storage]")),
    ("storageClassName", r.DNS_SUBDOMAIN),
    ("volumeMode", r.choice("Block", "Filesystem")),
)


def claim_causes(spec: Object | None, path: str) -> list[Cause]:
    return _CLAIM_SOURCE(spec or {}, path)


def _storage(spec: Object, path: str) -> Iterator[Cause]:
    storage = ((spec.get("resources") or {}).get("requests") or {}).get("storage")
    yield from r.present()(storage, path)
    yield from r.quantity(lambda amount: amount > 0, "must be greater than zero")(storage, path)


def _needs(*keys: str) -> r.Rules:
    """The rules of a source that has required fields and no other checks."""
    return r.Rules(*((key, r.REQUIRED) for key in keys))


def _iqn(name: str | None, path: str) -> Iterator[Cause]:
    if name and (not name.startswith(("iqn", "eui", "naa")) or (name.startswith("iqn") and not _IQN.fullmatch(name))):
        yield errors.invalid_value(path, name, "must be valid format")


def _disk_uri(source: Object, path: str) -> Iterator[Cause]:
    uri, managed = source.get("diskURI") or "", source.get("kind") == "Managed"
    wanted, example = ("/subscriptions", "/subscriptions/{sub-id}/resourcegroups/{group-name}/providers/microsoft."
                       "compute/disks/{disk-id}") if managed else (
        "https://", "https://{account-name}.blob.core.windows.net/{container-name}/{disk-name}.vhd")
    if uri and not uri.startswith(wanted):
        yield errors.not_supported(f"{path}.diskURI", uri, (example,))


def _downward(source: Object, path: str) -> Iterator[Cause]:
    yield from _MODE(source.get("defaultMode"), f"{path}.defaultMode")
    for item in source.get("items") or ():  # the real server's paths have no index here
        yield from _DOWNWARD_ITEM(item, path)


_DOWNWARD_ITEM = r.Rules(
    ("path", file_path_causes),
    r.when(r.has("fieldRef"), ("fieldRef", partial(field_path_causes, supported=VOLUME_PATHS))),
    r.when(r.has("fieldRef", "resourceFieldRef"), ("", r.invalid(
        "fieldRef and resourceFieldRef can not be specified simultaneously", shown="resource"))),
    r.when(r.absent("fieldRef"), r.has("resourceFieldRef"),
           ("resourceFieldRef", partial(resource_field_causes, in_volume=True))),
    r.when(r.absent("fieldRef", "resourceFieldRef"),
           ("", r.missing("one of fieldRef and resourceFieldRef is required"))),
    ("mode", _MODE),
)
_PROJECTED_SOURCE = r.Rules(
    ("secret", r.Rules(("name", r.REQUIRED), _ITEMS)),
    ("configMap", r.Rules(("name", r.REQUIRED), _ITEMS)),
    r.when(r.has("downwardAPI"), ("downwardAPI", _downward)),
    ("serviceAccountToken.expirationSeconds",
     r.must(lambda seconds: seconds >= 600, "may not specify a duration less than 10 minutes"),
     r.must(lambda seconds: seconds <= 2**32, "may not specify a duration larger than 2^32 seconds")),
)


def _projected(source: Object, path: str) -> Iterator[Cause]:
    yield from _MODE(source.get("defaultMode"), f"{path}.defaultMode")
    for index, part in enumerate(source.get("sources") or ()):
        at, given = f"{path}.sources[{index}]", [key for key, value in part.items() if value is not None]
        if len(given) > 1:
            yield errors.forbidden_field(at, "may not specify more than 1 volume type per source")
            continue
        yield from _PROJECTED_SOURCE(part, at)
        if "serviceAccountToken" in given:  # as on the real server, the cause has the volume's path
            yield from r.REQUIRED(part["serviceAccountToken"].get("path"), f"{path}.path")


# In the real server's order: if several sources are set, all except the first are forbidden.
_CHECKS: dict[str, r.Check] = {
    "emptyDir": r.Rules(r.when(lambda source: value_of(source.get("sizeLimit") or "0") < 0, ("sizeLimit", r.forbidden(
        "SizeLimit field must be a valid resource quantity")))),
    "hostPath": r.Rules(("path", r.REQUIRED, back_step_causes), ("type", r.choice(*HOST_PATH_TYPES))),
    "gitRepo": _needs("repository"), "gcePersistentDisk": _needs("pdName"),
    "awsElasticBlockStore": _needs("volumeID"),
    "secret": r.Rules(("secretName", r.REQUIRED), ("defaultMode", _MODE), _ITEMS),
    "nfs": r.Rules(("server", r.REQUIRED), ("path", r.REQUIRED, r.must(
        lambda path: path.startswith("/"), "must be an absolute path", zero=""))),
    "iscsi": r.Rules(("targetPortal", r.REQUIRED), ("iqn", r.REQUIRED, _iqn), ("lun", r.between(0, 255))),
    "glusterfs": _needs("endpoints", "path"), "flocker": _needs(), "persistentVolumeClaim": _needs("claimName"),
    "rbd": _needs("monitors", "image"), "cinder": _needs("volumeID"), "cephfs": _needs("monitors"),
    "quobyte": _needs("registry", "volume"), "downwardAPI": _downward, "fc": _needs(),
    "configMap": r.Rules(("name", r.REQUIRED), ("defaultMode", _MODE), _ITEMS),
    "azureFile": _needs("secretName", "shareName"), "flexVolume": _needs("driver"),
    "vsphereVolume": _needs("volumePath"), "photonPersistentDisk": _needs("pdID"),
    "portworxVolume": _needs("volumeID"),
    "azureDisk": r.Rules(("diskName", r.REQUIRED), ("diskURI", r.REQUIRED), ("", _disk_uri)),
    "storageos": _needs(), "projected": _projected, "scaleIO": _needs("gateway", "system", "volumeName"),
    "csi": r.Rules(("driver", r.REQUIRED, r.LOWERED_SUBDOMAIN)),
    "ephemeral": r.Rules(("volumeClaimTemplate", r.present(), r.Rules(("spec", claim_causes)))),
    "image": r.Rules(("reference", r.REQUIRED), ("pullPolicy", r.choice("Always", "IfNotPresent", "Never"))),
    "local": _needs("path"),
}
VOLUME_SOURCES = frozenset(_CHECKS)
_ORDER = {kind: index for index, kind in enumerate(_CHECKS)}
