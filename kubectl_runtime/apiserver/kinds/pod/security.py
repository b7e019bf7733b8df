"""Validation of security contexts, of Pods and of containers.

Privileged containers are allowed, as on clusters whose servers run with ``--allow-privileged``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from kubectl_runtime.apiserver import errors
from kubectl_runtime.apiserver.errors import Cause
from kubectl_runtime.apiserver.kinds.base import one_of
from kubectl_runtime.apiserver.strategy import Object

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
