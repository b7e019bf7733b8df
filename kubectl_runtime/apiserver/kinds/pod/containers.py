"""Validation of the containers of a pod spec: names, images, ports, environment, mounts and devices.

Probes and hooks are in handlers.py, security contexts in security.py.

Validation of probes and lifecycle hooks.

Validation of resource requests and limits: which names there are, and how amounts relate.

Validation of security contexts, of Pods and of containers.

Privileged containers are allowed, as on clusters whose servers run with ``--allow-privileged``.
"""
from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from kubectl_runtime.apiserver import errors
from kubectl_runtime.apiserver.errors import Cause
from kubectl_runtime.apiserver.kinds.base import NOT_NEGATIVE, PORT_RANGE, config_key_errors, label_causes, one_of
from kubectl_runtime.apiserver.kinds.pod.pod_volumes import (
    ENVIRONMENT_PATHS,
    field_path_causes,
    local_path_causes,
    resource_field_causes,
)
from kubectl_runtime.apiserver.objectmeta.names import dns_subdomain_errors, port_name_errors, qualified_name_errors
from kubectl_runtime.apiserver.strategy import Object
from kubectl_runtime.core.meta.quantities import value_of

_FOR_CONTAINERS = {"cpu", "memory", "ephemeral-storage"}
STANDARD = _FOR_CONTAINERS | {
    "pods", "services", "replicationcontrollers", "resourcequotas", "secrets", "configmaps", "persistentvolumeclaims",
    "storage", "services.nodeports", "services.loadbalancers", "requests.cpu", "requests.memory", "requests.storage",
    "requests.ephemeral-storage", "limits.cpu", "limits.memory", "limits.ephemeral-storage"}
_HUGE_PAGES = "hugepages-"


def resource_causes(resources: Object, path: str, *, claims: Collection[str] = (),
                    pod: bool = False) -> Iterator[Cause]:
    """What is wrong with the resources of a container or, if `pod`, of a whole Pod."""
    limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
    for part, amounts in (("limits", limits), ("requests", requests)):
        for name, amount in amounts.items():
            at = f"{path}.{part}[{name}]"
            yield from _pod_name_causes(name, at) if pod else name_causes(name, at)
            yield from amount_causes(name, amount, at)
    for name, amount in requests.items():
        limit = limits.get(name)
        if limit is None:
            if not _overcommits(name):
                yield errors.required(f"{path}.limits", "Limit must be set for non overcommitable resources")
        elif not _overcommits(name) and value_of(amount) != value_of(limit):
            yield errors.invalid_value(f"{path}.requests", amount, f"must be equal to {name} limit of {limit}")
        elif value_of(amount) > value_of(limit):
            yield errors.invalid_value(f"{path}.requests", amount,
                                       f"must be less than or equal to {name} limit of {limit}")
    named = {*limits, *requests}
    if any(name.startswith(_HUGE_PAGES) for name in named) and not named & {"cpu", "memory"}:
        yield errors.forbidden_field(path, "HugePages require cpu or memory")
    for index, claim in enumerate(resources.get("claims") or ()):
        if claim.get("name", "") not in claims:
            known = "which is empty" if not claims else "which are: " + ", ".join(claims)
            cause = errors.not_found_value(f"{path}.claims[{index}]", claim.get("name", ""))
            yield Cause(cause.reason, f"{cause.message}: must be one of the names in pod.spec.resourceClaims {known}",
                        cause.field)


def name_causes(name: str, path: str) -> Iterator[Cause]:
    """A resource that containers may ask for."""
    found = qualified_name_errors(name)
    yield from (errors.invalid_value(path, name, why) for why in found)
    if "/" in name or found:
        return
    huge = name.startswith(_HUGE_PAGES)
    if name not in STANDARD and not huge:
        yield errors.invalid_value(path, name, "must be a standard resource type or fully qualified")
    if name not in _FOR_CONTAINERS and not huge:
        yield errors.invalid_value(path, name, "must be a standard resource for containers")


def _pod_name_causes(name: str, path: str) -> Iterator[Cause]:
    if "/" not in name and name not in STANDARD and not name.startswith(_HUGE_PAGES):
        yield errors.invalid_value(path, name, "must be a standard resource type or fully qualified")
    elif name not in ("cpu", "memory") and not name.startswith(_HUGE_PAGES):
        yield errors.not_supported(path, name, ("cpu", "hugepages-", "memory"))


def amount_causes(name: str, amount: str, path: str) -> Iterator[Cause]:
    """Amounts are not negative; what can only be had as a whole is counted in integers."""
    if value_of(amount) < 0:
        yield errors.invalid_value(path, amount, NOT_NEGATIVE)
    if is_extended(name) and value_of(amount).denominator != 1:
        yield errors.invalid_value(path, amount, "must be an integer")


def is_extended(name: str) -> bool:
    """A resource of somebody's own, such as ``example.com/gpu``."""
    domain = name.partition("/")[0]
    return "/" in name and not (domain == "kubernetes.io" or domain.endswith(".kubernetes.io")
                                or name.startswith("requests."))


def _overcommits(name: str) -> bool:
    return not is_extended(name) and not name.startswith(_HUGE_PAGES)


_KINDS = ("exec", "httpGet", "tcpSocket", "grpc", "sleep")
_PERIODS = ("initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold")
_HEADER = re.compile("[-A-Za-z0-9]+")
_GRACE = "terminationGracePeriodSeconds"


def handler_causes(container: Object, path: str, grace: int) -> Iterator[Cause]:
    """What is wrong with the probes and hooks of a container in a Pod that has `grace` seconds to end."""
    for hook in ("postStart", "preStop"):
        if (handler := (container.get("lifecycle") or {}).get(hook)) is not None:
            yield from _handler(handler, f"{path}.lifecycle.{hook}", grace)
    for name in ("livenessProbe", "readinessProbe", "startupProbe"):
        if (probe := container.get(name)) is not None:
            yield from _probe(probe, f"{path}.{name}", name, grace)


def _probe(probe: Object, path: str, name: str, grace: int) -> Iterator[Cause]:
    yield from _handler(probe, path, grace)
    yield from (errors.invalid_value(f"{path}.{key}", probe[key], NOT_NEGATIVE)
                for key in _PERIODS if (probe.get(key) or 0) < 0)
    if name != "readinessProbe" and probe.get("successThreshold") not in (None, 1):
        yield errors.invalid_value(f"{path}.successThreshold", probe["successThreshold"], "must be 1")
    if (seconds := probe.get(_GRACE)) is not None:
        if name == "readinessProbe":
            yield errors.invalid_value(f"{path}.{_GRACE}", seconds, "must not be set for readinessProbes")
        elif seconds <= 0:
            yield errors.invalid_value(f"{path}.{_GRACE}", seconds, "must be greater than 0")


def _handler(handler: Object, path: str, grace: int) -> Iterator[Cause]:
    given = [kind for kind in _KINDS if handler.get(kind) is not None]
    if not given:
        yield errors.required(path, "must specify a handler type")
    for index, kind in enumerate(given):
        at, action = f"{path}.{kind}", handler[kind]
        if index:
            yield errors.forbidden_field(at, "may not specify more than 1 handler type")
        elif kind == "exec" and not action.get("command"):
            yield errors.required(f"{at}.command")
        elif kind == "httpGet":
            yield from _http(action, at)
        elif kind in ("tcpSocket", "grpc"):
            yield from _port(action.get("port"), f"{at}.port")
        elif kind == "sleep" and not 0 <= action.get("seconds", 0) <= grace:
            yield errors.invalid_value(at, action.get("seconds", 0),
                                       f"must be non-negative and less than terminationGracePeriodSeconds ({grace})")


def _http(action: Object, path: str) -> Iterator[Cause]:
    if not action.get("path"):
        yield errors.required(f"{path}.path")
    yield from _port(action.get("port"), f"{path}.port")
    yield from one_of(action.get("scheme"), ("HTTP", "HTTPS"), f"{path}.scheme", required=True)
    for header in action.get("httpHeaders") or ():
        if not _HEADER.fullmatch(header.get("name", "")):
            yield errors.invalid_value(f"{path}.httpHeaders", header.get("name", ""),
                                       "a valid HTTP header must consist of alphanumeric characters or '-' (e.g. "
                                       "'X-Header-Name', regex used for validation is '[-A-Za-z0-9]+')")


def _port(port: Any, path: str) -> Iterator[Cause]:
    if isinstance(port, str):
        yield from (errors.invalid_value(path, port, why) for why in port_name_errors(port))
    elif not 1 <= (port or 0) <= 65535:
        yield errors.invalid_value(path, port or 0, PORT_RANGE)


_MAX_ID = 2**31 - 1
_ID_RANGE = f"must be between 0 and {_MAX_ID}, inclusive"
_SYSCTL = re.compile(r"([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?")
_SYSCTL_MESSAGE = ("must have at most 253 characters and match regex "
                   r"^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$")
_PROFILES = ("Localhost", "RuntimeDefault", "Unconfined")
_NOT_ON_WINDOWS_POD = ("appArmorProfile", "seLinuxOptions", "seccompProfile", "fsGroup", "fsGroupChangePolicy",
                       "sysctls", "runAsUser", "runAsGroup", "supplementalGroups", "supplementalGroupsPolicy")
_NOT_ON_WINDOWS = ("appArmorProfile", "seLinuxOptions", "seccompProfile", "capabilities", "readOnlyRootFilesystem",
                   "privileged", "allowPrivilegeEscalation", "procMount", "runAsUser", "runAsGroup")


def pod_security_causes(context: Object, path: str, os: str) -> Iterator[Cause]:
    """What is wrong with the security context of a Pod."""
    yield from _shared_causes(context, path)
    yield from _id_causes(context, ("fsGroup",), path)
    for index, group in enumerate(context.get("supplementalGroups") or ()):
        if not 0 <= group <= _MAX_ID:
            yield errors.invalid_value(f"{path}.supplementalGroups[{index}]", group, _ID_RANGE)
    seen = set()
    for index, sysctl in enumerate(context.get("sysctls") or ()):
        at, name = f"{path}.sysctls[{index}].name", sysctl.get("name", "")
        if not name:
            yield errors.required(at)
        elif len(name) > 253 or not _SYSCTL.fullmatch(name):
            yield errors.invalid_value(at, name, _SYSCTL_MESSAGE)
        elif name in seen:
            yield errors.duplicate(at, name)
        seen.add(name)
    yield from one_of(context.get("fsGroupChangePolicy"), ("Always", "OnRootMismatch"), f"{path}.fsGroupChangePolicy")
    yield from one_of(context.get("supplementalGroupsPolicy"), ("Merge", "Strict"), f"{path}.supplementalGroupsPolicy")
    yield from _os_causes(context, path, os, _NOT_ON_WINDOWS_POD)


def container_security_causes(context: Object, path: str, *, host_users: bool, os: str) -> Iterator[Cause]:
    """What is wrong with the security context of a container."""
    yield from _shared_causes(context, path)
    mount = context.get("procMount")
    yield from one_of(mount, ("Default", "Unmasked"), f"{path}.procMount")
    if mount == "Unmasked" and host_users:
        yield errors.invalid_value(f"{path}.procMount", mount, "`hostUsers` must be false to use `Unmasked`")
    if context.get("allowPrivilegeEscalation") is False:
        if context.get("privileged"):
            yield errors.invalid_value(path, context,
                                       "cannot set `allowPrivilegeEscalation` to false and `privileged` to true")
        if "CAP_SYS_ADMIN" in ((context.get("capabilities") or {}).get("add") or ()):
            yield errors.invalid_value(path, context, "cannot set `allowPrivilegeEscalation` to false and "
                                                      "`capabilities.Add` CAP_SYS_ADMIN")
    yield from _os_causes(context, path, os, _NOT_ON_WINDOWS)


def _shared_causes(context: Object, path: str) -> Iterator[Cause]:
    yield from _id_causes(context, ("runAsUser", "runAsGroup"), path)
    for key, title in (("seccompProfile", "seccomp"), ("appArmorProfile", "AppArmor")):
        if (profile := context.get(key)) is not None:
            yield from _profile_causes(profile, f"{path}.{key}", title, key)


def _id_causes(context: Object, keys: tuple[str, ...], path: str) -> Iterator[Cause]:
    yield from (errors.invalid_value(f"{path}.{key}", context[key], _ID_RANGE)
                for key in keys if context.get(key) is not None and not 0 <= context[key] <= _MAX_ID)


def _profile_causes(profile: Object, path: str, title: str, key: str) -> Iterator[Cause]:
    kind, local = profile.get("type", ""), profile.get("localhostProfile")
    if not kind:
        yield errors.required(f"{path}.type", f"type is required when {key} is set")
    elif kind not in _PROFILES:
        yield errors.not_supported(f"{path}.type", kind, _PROFILES)
    elif kind == "Localhost" and not local:
        yield errors.required(f"{path}.localhostProfile", f"must be set when {title} type is Localhost")
    elif kind != "Localhost" and local is not None:
        yield errors.invalid_value(f"{path}.localhostProfile", {"Type": kind, "LocalhostProfile": local},
                                   f"can only be set when {title} type is Localhost")


def _os_causes(context: Object, path: str, os: str, not_on_windows: tuple[str, ...]) -> Iterator[Cause]:
    if os == "windows":
        yield from (errors.forbidden_field(f"{path}.{key}", "cannot be set for a windows pod")
                    for key in not_on_windows if context.get(key) is not None)
    if os == "linux" and context.get("windowsOptions") is not None:
        yield errors.forbidden_field(f"{path}.windowsOptions", "windows options cannot be set for a linux pod")


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
