"""Validation of the containers of a pod spec: names, images, ports, environment, mounts and devices.

Probes and hooks are in handlers.py, security contexts in security.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from kubectl_runtime.apiserver import errors
from kubectl_runtime.apiserver.errors import Cause
from kubectl_runtime.apiserver.kinds.base import PORT_RANGE, config_key_errors, label_causes, one_of
from kubectl_runtime.apiserver.kinds.pod.amounts import resource_causes
from kubectl_runtime.apiserver.kinds.pod.fields import (
    ENVIRONMENT_PATHS,
    field_path_causes,
    local_path_causes,
    resource_field_causes,
)
from kubectl_runtime.apiserver.kinds.pod.handlers import handler_causes
from kubectl_runtime.apiserver.kinds.pod.security import container_security_causes
from kubectl_runtime.apiserver.objectmeta.names import dns_subdomain_errors, port_name_errors
from kubectl_runtime.apiserver.strategy import Object

PULL_POLICIES = ("Always", "IfNotPresent", "Never")
PROTOCOLS = ("SCTP", "TCP", "UDP")
PROPAGATIONS = ("Bidirectional", "HostToContainer", "None")
_ENV_NAME = re.compile(r"[ -<>-~]+")  # since 1.34 any printable ASCII but "="
_ENV_MESSAGE = "a valid environment variable name must consist only of printable ASCII characters other than '='"
_MANY = "may not have more than one field specified at a time"
_ENV_SOURCES = ("fieldRef", "resourceFieldRef", "configMapKeyRef", "secretKeyRef", "fileKeyRef")
_ONLY_SIDECARS = ("lifecycle", "livenessProbe", "readinessProbe", "startupProbe")


@dataclass(frozen=True)
class PodContext:
    """What the validation of a container must know of its Pod."""

    volumes: dict[str, Object]
    claims: frozenset[str]
    restart_policy: str
    grace: int
    host_users: bool
    os: str


def containers_causes(spec: Object, path: str, pod: PodContext) -> Iterator[Cause]:
    """What is wrong with all containers of a pod spec."""
    names: set[str] = set()
    for key in ("containers", "initContainers", "ephemeralContainers"):
        host_ports: set[tuple[str, str, int]] = set()
        for index, container in enumerate(spec.get(key) or ()):
            at, name = f"{path}.{key}[{index}]", container.get("name", "")
            sidecar = key == "initContainers" and container.get("restartPolicy") == "Always"
            yield from label_causes(name, f"{at}.name")
            if name and name in names:
                yield errors.duplicate(f"{at}.name", name)
            names.add(name)
            yield from _container_causes(container, at, pod)
            yield from one_of(container.get("restartPolicy"), ("Always", "Never", "OnFailure"), f"{at}.restartPolicy")
            if key == "containers" or sidecar:
                yield from handler_causes(container, at, pod.grace)
            elif key == "initContainers":
                yield from (errors.forbidden_field(f"{at}.{name}",
                                                   "may not be set for init containers without restartPolicy=Always")
                            for name in _ONLY_SIDECARS if container.get(name) is not None)
            yield from _host_port_causes(container.get("ports") or (), f"{at}.ports", host_ports)


def _container_causes(container: Object, path: str, pod: PodContext) -> Iterator[Cause]:
    image = container.get("image", "")
    if not image:
        yield errors.required(f"{path}.image")
    elif image != image.strip():
        yield errors.invalid_value(f"{path}.image", image, "must not have leading or trailing whitespace")
    yield from one_of(container.get("terminationMessagePolicy"), ("File", "FallbackToLogsOnError"),
                      f"{path}.terminationMessagePolicy")
    yield from _port_causes(container.get("ports") or (), f"{path}.ports")
    yield from _env_causes(container.get("env") or (), f"{path}.env")
    yield from _env_from_causes(container.get("envFrom") or (), f"{path}.envFrom")
    yield from _mount_causes(container, path, pod.volumes)
    yield from _device_causes(container.get("volumeDevices") or (), f"{path}.volumeDevices", pod.volumes)
    yield from one_of(container.get("imagePullPolicy"), PULL_POLICIES, f"{path}.imagePullPolicy")
    if resources := container.get("resources"):
        yield from resource_causes(resources, f"{path}.resources", claims=pod.claims)
    yield from _resize_causes(container.get("resizePolicy") or (), f"{path}.resizePolicy", pod.restart_policy)
    if context := container.get("securityContext"):
        yield from container_security_causes(context, f"{path}.securityContext", host_users=pod.host_users, os=pod.os)


def _port_causes(ports: Iterable[Object], path: str) -> Iterator[Cause]:
    seen = set()
    for index, port in enumerate(ports):
        at, name = f"{path}[{index}]", port.get("name", "")
        if name:
            found = port_name_errors(name)
            yield from (errors.invalid_value(f"{at}.name", name, why) for why in found)
            if not found and name in seen:
                yield errors.duplicate(f"{at}.name", name)
            seen.add(name)
        number = port.get("containerPort", 0)
        if not number:
            yield errors.required(f"{at}.containerPort")
        elif not 1 <= number <= 65535:
            yield errors.invalid_value(f"{at}.containerPort", number, PORT_RANGE)
        if port.get("hostPort") and not 1 <= port["hostPort"] <= 65535:
            yield errors.invalid_value(f"{at}.hostPort", port["hostPort"], PORT_RANGE)
        yield from one_of(port.get("protocol"), PROTOCOLS, f"{at}.protocol", required=True)


def _host_port_causes(ports: Iterable[Object], path: str, taken: set[tuple[str, str, int]]) -> Iterator[Cause]:
    for index, port in enumerate(ports):
        if number := port.get("hostPort"):
            key = (port.get("protocol", ""), port.get("hostIP", ""), number)
            if key in taken:
                yield errors.duplicate(f"{path}[{index}].hostPort", "/".join(str(part) for part in key))
            taken.add(key)


def _env_causes(variables: Iterable[Object], path: str) -> Iterator[Cause]:
    for index, variable in enumerate(variables):
        at, name = f"{path}[{index}]", variable.get("name", "")
        if not name:
            yield errors.required(f"{at}.name")
        elif not _ENV_NAME.fullmatch(name):
            yield errors.invalid_value(f"{at}.name", name, _ENV_MESSAGE)
        if variable.get("valueFrom") is not None:
            yield from _env_source_causes(variable, f"{at}.valueFrom")


def _env_source_causes(variable: Object, path: str) -> Iterator[Cause]:
    source = variable["valueFrom"]
    given = [key for key in _ENV_SOURCES if source.get(key) is not None]
    if (reference := source.get("fieldRef")) is not None:
        yield from field_path_causes(reference, f"{path}.fieldRef", ENVIRONMENT_PATHS)
    if (reference := source.get("resourceFieldRef")) is not None:
        yield from resource_field_causes(reference, f"{path}.resourceFieldRef", in_volume=False)
    for key in ("configMapKeyRef", "secretKeyRef"):
        if (reference := source.get(key)) is not None:
            yield from _key_reference_causes(reference, f"{path}.{key}")
    if not given:
        yield errors.invalid_value(path, "", "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, "
                                             "`secretKeyRef` or `fileKeyRef`")
    elif variable.get("value"):
        yield errors.invalid_value(path, "", "may not be specified when `value` is not empty")
    elif len(given) > 1:
        yield errors.invalid_value(path, "", _MANY)


def _key_reference_causes(reference: Object, path: str) -> Iterator[Cause]:
    name, key = reference.get("name", ""), reference.get("key", "")
    yield from (errors.invalid_value(f"{path}.name", name, why) for why in dns_subdomain_errors(name))
    if not key:
        yield errors.required(f"{path}.key")
    else:
        yield from (errors.invalid_value(f"{path}.key", key, why) for why in config_key_errors(key))


def _env_from_causes(sources: Iterable[Object], path: str) -> Iterator[Cause]:
    for index, source in enumerate(sources):
        at, prefix = f"{path}[{index}]", source.get("prefix", "")
        if prefix and not _ENV_NAME.fullmatch(prefix):
            yield errors.invalid_value(f"{at}.prefix", prefix, _ENV_MESSAGE)
        given = [key for key in ("configMapRef", "secretRef") if source.get(key) is not None]
        for key in given:
            name = source[key].get("name", "")
            if not name:
                yield errors.required(f"{at}.{key}.name")
            else:
                yield from (errors.invalid_value(f"{at}.{key}.name", name, why) for why in dns_subdomain_errors(name))
        if not given:
            yield errors.invalid_value(path, "", "must specify one of: `configMapRef` or `secretRef`")
        elif len(given) > 1:
            yield errors.invalid_value(path, "", _MANY)


def _mount_causes(container: Object, path: str, volumes: dict[str, Object]) -> Iterator[Cause]:
    # The real server names some fields without the index of the mount.
    where, seen = f"{path}.volumeMounts", set()
    for index, mount in enumerate(container.get("volumeMounts") or ()):
        at, name, target = f"{where}[{index}]", mount.get("name", ""), mount.get("mountPath", "")
        if not name:
            yield errors.required(f"{at}.name")
        if name not in volumes:
            yield errors.not_found_value(f"{at}.name", name)
        if not target:
            yield errors.required(f"{at}.mountPath")
        if target in seen:
            yield errors.invalid_value(f"{at}.mountPath", target, "must be unique")
        seen.add(target)
        if mount.get("subPath"):
            yield from local_path_causes(mount["subPath"], f"{where}.subPath")
        if mount.get("subPathExpr"):
            if mount.get("subPath"):
                yield errors.invalid_value(f"{at}.subPathExpr", mount["subPathExpr"],
                                           "subPathExpr and subPath are mutually exclusive")
            yield from local_path_causes(mount["subPathExpr"], f"{where}.subPathExpr")
        yield from one_of(mount.get("mountPropagation"), PROPAGATIONS, f"{where}.mountPropagation")
        if mount.get("mountPropagation") == "Bidirectional" and not (
                container.get("securityContext") or {}).get("privileged"):
            yield errors.forbidden_field(f"{where}.mountPropagation", "Bidirectional mount propagation is available "
                                                                      "only to privileged containers")
        yield from _recursive_causes(mount, f"{where}.recursiveReadOnly")


def _recursive_causes(mount: Object, path: str) -> Iterator[Cause]:
    recursive = mount.get("recursiveReadOnly")
    yield from one_of(recursive, ("Disabled", "Enabled", "IfPossible"), path)
    if recursive in ("Enabled", "IfPossible"):
        if not mount.get("readOnly"):
            yield errors.forbidden_field(path, "may only be specified when readOnly is true")
        if mount.get("mountPropagation") not in (None, "None"):
            yield errors.forbidden_field(path, "may only be specified when mountPropagation is None or not specified")


def _device_causes(devices: Iterable[Object], path: str, volumes: dict[str, Object]) -> Iterator[Cause]:
    for index, device in enumerate(devices):
        at, name = f"{path}[{index}]", device.get("name", "")
        if not name:
            yield errors.required(f"{at}.name")
        elif name not in volumes:
            yield errors.not_found_value(f"{at}.name", name)
        elif not {"persistentVolumeClaim", "ephemeral"} & set(volumes[name]):
            yield errors.invalid_value(f"{at}.name", name, "can only use volume source type of PersistentVolumeClaim "
                                                           "or Ephemeral for block mode")
        if not device.get("devicePath"):
            yield errors.required(f"{at}.devicePath")


def _resize_causes(policies: Iterable[Object], path: str, restart_policy: str) -> Iterator[Cause]:
    seen = set()
    for policy in policies:
        resource, restart = policy.get("resourceName", ""), policy.get("restartPolicy", "")
        if resource in seen:
            yield errors.duplicate(path, resource)
        seen.add(resource)
        yield from one_of(resource, ("cpu", "memory"), path, required=True)
        yield from one_of(restart, ("NotRequired", "RestartContainer"), path, required=True)
        if restart_policy == "Never" and restart == "RestartContainer":
            yield errors.invalid_value(path, restart, "must be 'NotRequired' when `restartPolicy` is 'Never'")
