"""References of a pod spec to its own fields and resources, and the paths of files in its volumes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from kubectl_runtime.apiserver import errors
from kubectl_runtime.apiserver.errors import Cause
from kubectl_runtime.apiserver.kinds.base import config_key_errors
from kubectl_runtime.apiserver.objectmeta.names import qualified_name_errors
from kubectl_runtime.apiserver.strategy import Object

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
