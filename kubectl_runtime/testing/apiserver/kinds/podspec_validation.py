"""Validation of a pod's spec, in the real server's order and words: the checks that manifests run into.

Not checked: security contexts, affinity, the details of volume sources and of probes. What is wrong there is accepted.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from fractions import Fraction
from typing import Any

from kubectl_runtime.testing.apiserver import errors
from kubectl_runtime.testing.apiserver.errors import Cause
from kubectl_runtime.testing.apiserver.kinds.base import PORT_RANGE, label_causes, non_negative, one_of
from kubectl_runtime.testing.apiserver.kinds.typed.quantity import value_of
from kubectl_runtime.testing.apiserver.names import (
    dns_subdomain_errors,
    label_value_errors,
    qualified_name_errors,
)
from kubectl_runtime.testing.apiserver.strategy import Object

RESTART_POLICIES = ("Always", "OnFailure", "Never")
DNS_POLICIES = ("ClusterFirstWithHostNet", "ClusterFirst", "Default", "None")
PULL_POLICIES = ("Always", "IfNotPresent", "Never")
PROTOCOLS = ("SCTP", "TCP", "UDP")
_ENV_NAME = re.compile(r"[ -<>-~]+")  # since 1.34 any printable ASCII but "="
_ENV_MESSAGE = "a valid environment variable name must consist only of printable ASCII characters other than '='"
_PORT_NAME = re.compile(r"[-a-z0-9]+")
_PORT_NAME_MESSAGE = "must contain only alphanumeric characters (a-z, 0-9), and hyphens (-)"


def pod_spec_causes(spec: Object, path: str) -> list[Cause]:
    """What is wrong with a pod spec; `path` is ``spec`` or ``spec.template.spec``."""
    volumes = {volume.get("name") for volume in spec.get("volumes") or ()}
    causes = _volume_causes(spec.get("volumes") or (), f"{path}.volumes")
    if not spec.get("containers"):
        causes.append(errors.required(f"{path}.containers"))
    names: set[str] = set()
    for key in ("containers", "initContainers", "ephemeralContainers"):
        for index, container in enumerate(spec.get(key) or ()):
            causes += _container_causes(container, f"{path}.{key}[{index}]", names, volumes)
    causes += one_of(spec.get("restartPolicy"), RESTART_POLICIES, f"{path}.restartPolicy", required=True)
    causes += one_of(spec.get("dnsPolicy"), DNS_POLICIES, f"{path}.dnsPolicy", required=True)
    if spec.get("nodeSelector"):
        causes += _label_causes(spec["nodeSelector"], f"{path}.nodeSelector")
    for key in ("serviceAccountName", "nodeName", "priorityClassName"):
        if spec.get(key):
            causes += [errors.invalid_value(f"{path}.{key}", spec[key], why) for why in dns_subdomain_errors(spec[key])]
    deadline = spec.get("activeDeadlineSeconds")
    if deadline is not None and not 1 <= deadline <= 2**31 - 1:
        causes.append(errors.invalid_value(f"{path}.activeDeadlineSeconds", deadline,
                                           "must be between 1 and 2147483647, inclusive"))
    return causes + non_negative(spec, "terminationGracePeriodSeconds", path)


def template_causes(template: Object, path: str) -> list[Cause]:
    """What is wrong with a pod template: its labels and spec."""
    causes = _label_causes((template.get("metadata") or {}).get("labels") or {}, f"{path}.labels")
    return causes + pod_spec_causes(template.get("spec") or {}, f"{path}.spec")


def _label_causes(labels: Object, path: str) -> list[Cause]:
    causes = []
    for key, value in sorted(labels.items()):
        causes += [errors.invalid_value(path, key, why) for why in qualified_name_errors(key)]
        causes += [errors.invalid_value(path, value, why) for why in label_value_errors(value)]
    return causes


def _volume_causes(volumes: Iterable[Object], path: str) -> list[Cause]:
    causes, seen = [], set()
    for index, volume in enumerate(volumes):
        name = volume.get("name", "")
        causes += label_causes(name, f"{path}[{index}].name")
        if name and name in seen:
            causes.append(errors.duplicate(f"{path}[{index}].name", name))
        seen.add(name)
        if len([key for key in volume if key != "name"]) > 1:
            second = sorted(key for key in volume if key != "name")[1]
            causes.append(errors.forbidden_field(f"{path}[{index}].{second}",
                                                 "may not specify more than 1 volume type"))
    return causes


def _container_causes(container: Object, path: str, names: set[str], volumes: set[Any]) -> list[Cause]:
    name, image = container.get("name", ""), container.get("image", "")
    causes = label_causes(name, f"{path}.name")
    if name and name in names:
        causes.append(errors.duplicate(f"{path}.name", name))
    names.add(name)
    if not image:
        causes.append(errors.required(f"{path}.image"))
    elif image != image.strip():
        causes.append(errors.invalid_value(f"{path}.image", image, "must not have leading or trailing whitespace"))
    causes += one_of(container.get("terminationMessagePolicy"), ("File", "FallbackToLogsOnError"),
                     f"{path}.terminationMessagePolicy")
    causes += _port_causes(container.get("ports") or (), f"{path}.ports")
    causes += _env_causes(container.get("env") or (), f"{path}.env")
    causes += _mount_causes(container.get("volumeMounts") or (), f"{path}.volumeMounts", volumes)
    causes += one_of(container.get("imagePullPolicy"), PULL_POLICIES, f"{path}.imagePullPolicy")
    return causes + resource_causes(container.get("resources") or {}, f"{path}.resources")


def _port_causes(ports: Iterable[Object], path: str) -> list[Cause]:
    causes, seen = [], set()
    for index, port in enumerate(ports):
        at, name = f"{path}[{index}]", port.get("name", "")
        if name:
            causes += [errors.invalid_value(f"{at}.name", name, why) for why in port_name_errors(name)]
            if name in seen:
                causes.append(errors.duplicate(f"{at}.name", name))
            seen.add(name)
        number = port.get("containerPort", 0)
        if not number:
            causes.append(errors.required(f"{at}.containerPort"))
        elif not 1 <= number <= 65535:
            causes.append(errors.invalid_value(f"{at}.containerPort", number, PORT_RANGE))
        if port.get("hostPort") and not 1 <= port["hostPort"] <= 65535:
            causes.append(errors.invalid_value(f"{at}.hostPort", port["hostPort"], PORT_RANGE))
        causes += one_of(port.get("protocol"), PROTOCOLS, f"{at}.protocol", required=True)
    return causes


def port_name_errors(name: str) -> list[str]:
    """The details of what is wrong with an IANA service name."""
    found = [] if len(name) <= 15 else ["must be no more than 15 characters"]
    if not _PORT_NAME.fullmatch(name):
        found.append(_PORT_NAME_MESSAGE)
    if not re.search("[a-z]", name):
        found.append("must contain at least one letter (a-z)")
    if "--" in name:
        found.append("must not contain consecutive hyphens")
    if name.startswith("-") or name.endswith("-"):
        found.append("must not begin or end with a hyphen")
    return found


def _env_causes(variables: Iterable[Object], path: str) -> list[Cause]:
    causes = []
    for index, variable in enumerate(variables):
        at, name = f"{path}[{index}]", variable.get("name", "")
        if not name:
            causes.append(errors.required(f"{at}.name"))
        elif not _ENV_NAME.fullmatch(name):
            causes.append(errors.invalid_value(f"{at}.name", name, _ENV_MESSAGE))
        if variable.get("valueFrom") is not None and variable.get("value"):
            causes.append(errors.invalid_value(f"{at}.valueFrom", "", "may not be specified when `value` is not empty"))
    return causes


def _mount_causes(mounts: Iterable[Object], path: str, volumes: set[Any]) -> list[Cause]:
    causes, seen = [], set()
    for index, mount in enumerate(mounts):
        at, name, target = f"{path}[{index}]", mount.get("name", ""), mount.get("mountPath", "")
        if not name:
            causes.append(errors.required(f"{at}.name"))
        elif name not in volumes:
            causes.append(Cause("FieldValueNotFound", f'Not found: "{name}"', f"{at}.name"))
        if not target:
            causes.append(errors.required(f"{at}.mountPath"))
        elif target in seen:
            causes.append(errors.invalid_value(f"{at}.mountPath", target, "must be unique"))
        seen.add(target)
    return causes


def resource_causes(resources: Object, path: str) -> list[Cause]:
    """What is wrong with limits and requests: negative ones, requests above their limit."""
    limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
    causes = []
    for key, amounts in (("limits", limits), ("requests", requests)):
        causes += [errors.invalid_value(f"{path}.{key}[{name}]", amount, "must be greater than or equal to 0")
                   for name, amount in amounts.items() if value_of(amount) < 0]
    causes += [errors.invalid_value(f"{path}.requests", amount,
                                    f"must be less than or equal to {name} limit of {limits[name]}")
               for name, amount in requests.items() if name in limits and _exceeds(amount, limits[name])]
    return causes


def _exceeds(amount: str, limit: str) -> bool:
    least: Fraction = value_of(amount)
    return least > value_of(limit)
