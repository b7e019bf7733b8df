"""Validation of a pod spec's containers, with their resources, probes, hooks and security contexts.

Privileged containers are allowed, as on clusters whose API servers run with ``--allow-privileged``.
"""
from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from kubectl_runtime.apiserver import errors
from kubectl_runtime.apiserver.errors import Cause
from kubectl_runtime.apiserver.kinds import rules as r
from kubectl_runtime.apiserver.kinds.base import CONFIG_KEY, NOT_NEGATIVE
from kubectl_runtime.apiserver.kinds.pod.pod_volumes import (
    ENVIRONMENT_PATHS,
    field_path_causes,
    local_path_causes,
    resource_field_causes,
)
from kubectl_runtime.apiserver.names import port_name_errors, qualified_name_errors
from kubectl_runtime.apiserver.wire import Object
from kubectl_runtime.core.meta.quantities import value_of

_FOR_CONTAINERS = {"cpu", "memory", "ephemeral-storage"}
STANDARD = _FOR_CONTAINERS | {
    "pods", "services", "replicationcontrollers", "resourcequotas", "secrets", "configmaps", "persistentvolumeclaims",
    "storage", "services.nodeports", "services.loadbalancers", "requests.cpu", "requests.memory", "requests.storage",
    "requests.ephemeral-storage", "limits.cpu", "limits.memory", "limits.ephemeral-storage"}
_HUGE_PAGES = "hugepages-"


def resource_causes(resources: Object, path: str, *, claims: Collection[str] = (),
                    pod: bool = False) -> Iterator[Cause]:
    """Yield a cause for each error of a container's resources, or of Pod-level resources if `pod` is true."""
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
    """Yield a cause for each reason why containers cannot request a resource with this name."""
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
    """Yield a cause for a negative amount, and for an amount of an extended resource that is not an integer."""
    if value_of(amount) < 0:
        yield errors.invalid_value(path, amount, NOT_NEGATIVE)
    if is_extended(name) and value_of(amount).denominator != 1:
        yield errors.invalid_value(path, amount, "must be an integer")


def is_extended(name: str) -> bool:
    """Whether a resource is an extended resource, such as ``example.com/gpu``."""
    domain = name.partition("/")[0]
    return "/" in name and not (domain == "kubernetes.io" or domain.endswith(".kubernetes.io")
                                or name.startswith("requests."))


def _overcommits(name: str) -> bool:
    return not is_extended(name) and not name.startswith(_HUGE_PAGES)


POD_RESOURCES: r.Check = partial(resource_causes, pod=True)

_KINDS = ("exec", "httpGet", "tcpSocket", "grpc", "sleep")
_HEADER = re.compile("[-A-Za-z0-9]+")
_HEADER_MESSAGE = ("a valid HTTP header must consist of alphanumeric characters or '-' (e.g. 'X-Header-Name', regex "
                   "used for validation is '[-A-Za-z0-9]+')")
_GRACE = "terminationGracePeriodSeconds"


def _port(port: Any, path: str) -> Iterable[Cause]:
    return r.ANY_PORT_NAME(port, path) if isinstance(port, str) else r.between(1, 65535, zero=0)(port, path)


def _headers(headers: list[Object] | None, path: str) -> Iterator[Cause]:
    for header in headers or ():  # the real server's path has no index here
        if not _HEADER.fullmatch(header.get("name", "")):
            yield errors.invalid_value(path, header.get("name", ""), _HEADER_MESSAGE)


_PERIODS = tuple((key, r.NATURAL) for key in (
    "initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold"))
_PROBE = r.Rules(
    *_PERIODS,
    ("successThreshold", r.must(lambda times: times == 1, "must be 1")),
    (_GRACE, r.must(lambda seconds: seconds > 0, "must be greater than 0")),
)
_READINESS_PROBE = r.Rules(*_PERIODS, r.when(r.has(_GRACE), (_GRACE, r.invalid("must not be set for readinessProbes"))))
_ACTIONS: dict[str, r.Rules] = {
    "exec": r.Rules(("command", r.REQUIRED)),
    "httpGet": r.Rules(("path", r.REQUIRED), ("port", _port), ("scheme", r.REQUIRED, r.choice("HTTP", "HTTPS")),
                     ("httpHeaders", _headers)),
    "tcpSocket": r.Rules(("port", _port)),
    "grpc": r.Rules(("port", _port)),
}


def handler_causes(container: Object, path: str, grace: int) -> Iterator[Cause]:
    """Yield a cause for each error of a container's probes and hooks.

    `grace` is the Pod's terminationGracePeriodSeconds.
    """
    for hook in ("postStart", "preStop"):
        if (handler := (container.get("lifecycle") or {}).get(hook)) is not None:
            yield from _handler(handler, f"{path}.lifecycle.{hook}", grace)
    for name in ("livenessProbe", "readinessProbe", "startupProbe"):
        if (probe := container.get(name)) is not None:
            yield from _handler(probe, f"{path}.{name}", grace)
            yield from (_READINESS_PROBE if name == "readinessProbe" else _PROBE)(probe, f"{path}.{name}")


def _handler(handler: Object, path: str, grace: int) -> Iterator[Cause]:
    given = [kind for kind in _KINDS if handler.get(kind) is not None]
    if not given:
        yield errors.required(path, "must specify a handler type")
        return
    first, *others = given
    if first in _ACTIONS:
        yield from _ACTIONS[first](handler[first], f"{path}.{first}")
    elif not 0 <= (seconds := handler[first].get("seconds", 0)) <= grace:
        yield errors.invalid_value(f"{path}.{first}", seconds,
                                   f"must be non-negative and less than terminationGracePeriodSeconds ({grace})")
    yield from (errors.forbidden_field(f"{path}.{kind}", "may not specify more than 1 handler type") for kind in others)


_ID = r.between(0, 2**31 - 1)
_SYSCTL = re.compile(r"([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?")
_SYSCTL_MESSAGE = ("must have at most 253 characters and match regex "
                   r"^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$")
_NOT_ON_WINDOWS_POD = ("appArmorProfile", "seLinuxOptions", "seccompProfile", "fsGroup", "fsGroupChangePolicy",
                       "sysctls", "runAsUser", "runAsGroup", "supplementalGroups", "supplementalGroupsPolicy")
_NOT_ON_WINDOWS = ("appArmorProfile", "seLinuxOptions", "seccompProfile", "capabilities", "readOnlyRootFilesystem",
                   "privileged", "allowPrivilegeEscalation", "procMount", "runAsUser", "runAsGroup")


def _profile(key: str, title: str) -> r.Rules:
    return r.Rules(
        ("type", r.required(f"type is required when {key} is set"),
         r.choice("Localhost", "RuntimeDefault", "Unconfined")),
        r.when(r.equals("type", "Localhost"),
               ("localhostProfile", r.required(f"must be set when {title} type is Localhost"))),
        r.when(r.equals("type", "RuntimeDefault", "Unconfined"), r.has("localhostProfile"), (
            "", lambda profile, path: (errors.invalid_value(
                f"{path}.localhostProfile",
                {"Type": profile["type"], "LocalhostProfile": profile["localhostProfile"]},
                f"can only be set when {title} type is Localhost"),))),
    )


def _is_sysctl(name: str) -> bool:
    return not name or (len(name) <= 253 and bool(_SYSCTL.fullmatch(name)))


_SHARED = (
    ("runAsUser", _ID),
    ("runAsGroup", _ID),
    ("seccompProfile", _profile("seccompProfile", "seccomp")),
    ("appArmorProfile", _profile("appArmorProfile", "AppArmor")),
)
_POD_SECURITY = r.Rules(
    *_SHARED,
    ("fsGroup", _ID),
    ("supplementalGroups[*]", _ID),
    ("sysctls[*]", r.Rules(("name", r.REQUIRED, r.must(_is_sysctl, _SYSCTL_MESSAGE)),
                         r.when(lambda sysctl: _is_sysctl(sysctl.get("name", "")), ("name", r.UNIQUE_IF_SET)))),
    ("fsGroupChangePolicy", r.choice("Always", "OnRootMismatch")),
    ("supplementalGroupsPolicy", r.choice("Merge", "Strict")),
)


def _adds_admin(context: Object) -> bool:
    return "CAP_SYS_ADMIN" in ((context.get("capabilities") or {}).get("add") or ())


_CONTAINER_SECURITY = r.Rules(*_SHARED, ("procMount", r.choice("Default", "Unmasked")))
_ESCALATION = r.Rules(r.when(
    lambda context: context.get("allowPrivilegeEscalation") is False,
    r.when(r.filled("privileged"), ("", r.invalid(
        "cannot set `allowPrivilegeEscalation` to false and `privileged` to true"))),
    r.when(_adds_admin, ("", r.invalid(
        "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN")))))


def pod_security_causes(context: Object, path: str, os: str) -> Iterator[Cause]:
    yield from _POD_SECURITY(context, path)
    yield from _os_causes(context, path, os, _NOT_ON_WINDOWS_POD)


def container_security_causes(context: Object, path: str, *, host_users: bool, os: str) -> Iterator[Cause]:
    yield from _CONTAINER_SECURITY(context, path)
    if context.get("procMount") == "Unmasked" and host_users:
        yield errors.invalid_value(f"{path}.procMount", "Unmasked", "`hostUsers` must be false to use `Unmasked`")
    yield from _ESCALATION(context, path)
    yield from _os_causes(context, path, os, _NOT_ON_WINDOWS)


def _os_causes(context: Object, path: str, os: str, not_on_windows: tuple[str, ...]) -> Iterator[Cause]:
    if os == "windows":
        yield from (errors.forbidden_field(f"{path}.{key}", "cannot be set for a windows pod")
                    for key in not_on_windows if context.get(key) is not None)
    if os == "linux" and context.get("windowsOptions") is not None:
        yield errors.forbidden_field(f"{path}.windowsOptions", "windows options cannot be set for a linux pod")


PROTOCOLS = ("SCTP", "TCP", "UDP")
_ENV_NAME = re.compile(r"[ -<>-~]+")  # since 1.34 any printable ASCII but "="
_IS_ENV_NAME = r.must(lambda name: not name or bool(_ENV_NAME.fullmatch(name)), (
    "a valid environment variable name must consist only of printable ASCII characters other than '='"))
_MANY = "may not have more than one field specified at a time"
_ENV_SOURCES = ("fieldRef", "resourceFieldRef", "configMapKeyRef", "secretKeyRef", "fileKeyRef")


@dataclass(frozen=True)
class PodContext:
    """The facts about a Pod that the validation of its containers needs."""

    volumes: dict[str, Object]
    claims: frozenset[str]
    restart_policy: str
    grace: int
    host_users: bool
    os: str


_PORT = r.Rules(
    ("name", r.PORT_NAME),
    r.when(lambda port: not port_name_errors(port.get("name", "")), ("name", r.UNIQUE_IF_SET)),
    ("containerPort", r.REQUIRED),
    r.when(r.filled("containerPort"), ("containerPort", r.PORT_NUMBER)),
    r.when(r.filled("hostPort"), ("hostPort", r.PORT_NUMBER)),
    ("protocol", r.REQUIRED, r.choice(*PROTOCOLS)),
)
_KEY_REFERENCE = r.Rules(("name", r.ANY_SUBDOMAIN), ("key", r.REQUIRED, CONFIG_KEY))


def _env_source(variable: Object, path: str) -> Iterator[Cause]:
    source, at = variable["valueFrom"], f"{path}.valueFrom"
    given = [key for key in _ENV_SOURCES if source.get(key) is not None]
    yield from _ENV_SOURCE(source, at)
    if not given:
        yield errors.invalid_value(at, "", "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, "
                                           "`secretKeyRef` or `fileKeyRef`")
    elif variable.get("value"):
        yield errors.invalid_value(at, "", "may not be specified when `value` is not empty")
    elif len(given) > 1:
        yield errors.invalid_value(at, "", _MANY)


_ENV_SOURCE = r.Rules(
    r.when(r.has("fieldRef"), ("fieldRef", partial(field_path_causes, supported=ENVIRONMENT_PATHS))),
    r.when(r.has("resourceFieldRef"), ("resourceFieldRef", partial(resource_field_causes, in_volume=False))),
    ("configMapKeyRef", _KEY_REFERENCE),
    ("secretKeyRef", _KEY_REFERENCE),
)
_ENV_FROM = r.Rules(
    ("prefix", _IS_ENV_NAME),
    ("configMapRef", r.Rules(("name", r.REQUIRED, r.DNS_SUBDOMAIN))),
    ("secretRef", r.Rules(("name", r.REQUIRED, r.DNS_SUBDOMAIN))),
)


def _env_from(sources: list[Object] | None, path: str) -> Iterator[Cause]:
    for index, source in enumerate(sources or ()):
        yield from _ENV_FROM(source, f"{path}[{index}]")
        given = [key for key in ("configMapRef", "secretRef") if source.get(key) is not None]
        if not given:  # the real server's path has no index here
            yield errors.invalid_value(path, "", "must specify one of: `configMapRef` or `secretRef`")
        elif len(given) > 1:
            yield errors.invalid_value(path, "", _MANY)


_CONTAINER = r.Rules(
    ("image", r.REQUIRED, r.must(lambda image: image == image.strip(), "must not have leading or trailing whitespace")),
    ("terminationMessagePolicy", r.choice("File", "FallbackToLogsOnError")),
    ("ports[*]", _PORT),
    ("env[*]", r.Rules(("name", r.REQUIRED, _IS_ENV_NAME), r.when(r.has("valueFrom"), ("", _env_source)))),
    ("envFrom", _env_from),
)
_PULL_POLICY = r.choice("Always", "IfNotPresent", "Never")
_RESTART_POLICY = r.choice("Always", "Never", "OnFailure")
_NO_SIDECAR = r.forbidden("may not be set for init containers without restartPolicy=Always", empty=True)
_INIT_CONTAINER = r.Rules(*((key, _NO_SIDECAR) for key in ("lifecycle", "livenessProbe", "readinessProbe",
                                                         "startupProbe")))


def containers_causes(spec: Object, path: str, pod: PodContext) -> Iterator[Cause]:
    names: set[str] = set()
    for key in ("containers", "initContainers", "ephemeralContainers"):
        host_ports: set[tuple[str, str, int]] = set()
        for index, container in enumerate(spec.get(key) or ()):
            at, name = f"{path}.{key}[{index}]", container.get("name", "")
            sidecar = key == "initContainers" and container.get("restartPolicy") == "Always"
            yield from (*r.REQUIRED(name, f"{at}.name"), *r.DNS_LABEL(name, f"{at}.name"))
            if name and name in names:
                yield errors.duplicate(f"{at}.name", name)
            names.add(name)
            yield from _container_causes(container, at, pod)
            yield from _RESTART_POLICY(container.get("restartPolicy"), f"{at}.restartPolicy")
            if key == "containers" or sidecar:
                yield from handler_causes(container, at, pod.grace)
            elif key == "initContainers":
                yield from _INIT_CONTAINER(container, at)
            yield from _host_port_causes(container.get("ports") or (), f"{at}.ports", host_ports)


def _container_causes(container: Object, path: str, pod: PodContext) -> Iterator[Cause]:
    yield from _CONTAINER(container, path)
    yield from _mount_causes(container, path, pod.volumes)
    yield from _device_causes(container.get("volumeDevices") or (), f"{path}.volumeDevices", pod.volumes)
    yield from _PULL_POLICY(container.get("imagePullPolicy"), f"{path}.imagePullPolicy")
    if resources := container.get("resources"):
        yield from resource_causes(resources, f"{path}.resources", claims=pod.claims)
    yield from _resize_causes(container.get("resizePolicy") or (), f"{path}.resizePolicy", pod.restart_policy)
    if context := container.get("securityContext"):
        yield from container_security_causes(context, f"{path}.securityContext", host_users=pod.host_users, os=pod.os)


def _host_port_causes(ports: Iterable[Object], path: str, taken: set[tuple[str, str, int]]) -> Iterator[Cause]:
    for index, port in enumerate(ports):
        if number := port.get("hostPort"):
            key = (port.get("protocol", ""), port.get("hostIP", ""), number)
            if key in taken:
                yield errors.duplicate(f"{path}[{index}].hostPort", "/".join(str(part) for part in key))
            taken.add(key)


def _mount_causes(container: Object, path: str, volumes: dict[str, Object]) -> Iterator[Cause]:
    # For some fields the real server's path lacks the index of the mount.
    where, seen = f"{path}.volumeMounts", set()
    privileged = (container.get("securityContext") or {}).get("privileged")
    for index, mount in enumerate(container.get("volumeMounts") or ()):
        at, name, target = f"{where}[{index}]", mount.get("name", ""), mount.get("mountPath", "")
        yield from r.REQUIRED(name, f"{at}.name")
        if name not in volumes:
            yield errors.not_found_value(f"{at}.name", name)
        yield from r.REQUIRED(target, f"{at}.mountPath")
        if target in seen:
            yield errors.invalid_value(f"{at}.mountPath", target, "must be unique")
        seen.add(target)
        yield from local_path_causes(mount.get("subPath") or "", f"{where}.subPath")
        if mount.get("subPathExpr") and mount.get("subPath"):
            yield errors.invalid_value(f"{at}.subPathExpr", mount["subPathExpr"],
                                       "subPathExpr and subPath are mutually exclusive")
        yield from local_path_causes(mount.get("subPathExpr") or "", f"{where}.subPathExpr")
        yield from (_MOUNT if privileged else _UNPRIVILEGED_MOUNT)(mount, where)


_MOUNT_ROWS = (
    ("recursiveReadOnly", r.choice("Disabled", "Enabled", "IfPossible")),
    r.when(r.equals("recursiveReadOnly", "Enabled", "IfPossible"),
           r.when(r.negated(r.filled("readOnly")), ("recursiveReadOnly", r.forbidden(
               "may only be specified when readOnly is true"))),
           r.when(r.negated(r.equals("mountPropagation", None, "None")), ("recursiveReadOnly", r.forbidden(
               "may only be specified when mountPropagation is None or not specified")))),
)
_PROPAGATION = ("mountPropagation", r.choice("Bidirectional", "HostToContainer", "None"))
_MOUNT = r.Rules(_PROPAGATION, *_MOUNT_ROWS)
_UNPRIVILEGED_MOUNT = r.Rules(
    _PROPAGATION,
    r.when(r.equals("mountPropagation", "Bidirectional"), ("mountPropagation", r.forbidden(
        "Bidirectional mount propagation is available only to privileged containers"))),
    *_MOUNT_ROWS)


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
        yield from r.REQUIRED(device.get("devicePath"), f"{at}.devicePath")


def _resize_causes(policies: Iterable[Object], path: str, restart_policy: str) -> Iterator[Cause]:
    seen = set()
    for policy in policies:
        resource, restart = policy.get("resourceName", ""), policy.get("restartPolicy", "")
        if resource in seen:
            yield errors.duplicate(path, resource)
        seen.add(resource)
        yield from (*r.REQUIRED(resource, path), *r.choice("cpu", "memory")(resource, path))
        yield from (*r.REQUIRED(restart, path), *r.choice("NotRequired", "RestartContainer")(restart, path))
        if restart_policy == "Never" and restart == "RestartContainer":
            yield errors.invalid_value(path, restart, "must be 'NotRequired' when `restartPolicy` is 'Never'")
