"""Pod Security: Namespace labels that limit what Pods may do.

Labels with the prefix ``pod-security.kubernetes.io/`` set a level. With ``enforce``, a Pod that violates the level is
refused with a 403. ``warn`` adds a Warning header, also for Pod templates. ``audit`` has no effect, since there is no
audit log.

The level privileged allows everything, baseline refuses known ways out of a container, and restricted requires Pods to
drop privileges that they do not need. The newest rules apply whatever version the labels name. Texts and their order
are those of pod-security-admission.
"""
from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from kubectl_runtime.apiserver.kinds.base import dig
from kubectl_runtime.apiserver.wire import Object

Check = Callable[[Object, Object], Iterator[tuple[str, str]]]

PREFIX = "pod-security.kubernetes.io/"
LEVELS = ("privileged", "baseline", "restricted")
TEMPLATES = {"ReplicationController": "spec.template", "ReplicaSet": "spec.template", "Deployment": "spec.template",
             "DaemonSet": "spec.template", "StatefulSet": "spec.template", "Job": "spec.template",
             "CronJob": "spec.jobTemplate.spec.template", "PodTemplate": "template"}
_DEFAULT_CAPABILITIES = frozenset({
    "AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "MKNOD", "NET_BIND_SERVICE", "SETFCAP",
    "SETGID", "SETPCAP", "SETUID", "SYS_CHROOT"})
_SYSCTLS = frozenset({
    "kernel.shm_rmid_forced", "net.ipv4.ip_local_port_range", "net.ipv4.ip_unprivileged_port_start",
    "net.ipv4.tcp_syncookies", "net.ipv4.ping_group_range", "net.ipv4.ip_local_reserved_ports",
    "net.ipv4.tcp_keepalive_time", "net.ipv4.tcp_fin_timeout", "net.ipv4.tcp_keepalive_intvl",
    "net.ipv4.tcp_keepalive_probes", "net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem"})
_VOLUMES = frozenset({"configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "image", "persistentVolumeClaim",
                      "projected", "secret"})
_SELINUX_TYPES = ("", "container_t", "container_init_t", "container_kvm_t", "container_engine_t")


def label_problems(labels: Object) -> Iterator[tuple[str, str, str]]:
    """(label, value, problem) for each invalid Pod security label."""
    for mode in ("enforce", "audit", "warn"):
        level, version = labels.get(f"{PREFIX}{mode}"), labels.get(f"{PREFIX}{mode}-version")
        if level is not None and level not in LEVELS:
            yield f"{PREFIX}{mode}", level, "must be one of privileged, baseline, restricted"
        if version is not None and not _is_version(version):
            yield f"{PREFIX}{mode}-version", version, 'must be "latest" or "v1.x"'


def _is_version(text: str) -> bool:
    return text == "latest" or (text.startswith("v1.") and text[3:].isdecimal() and str(int(text[3:])) == text[3:])


def violation(labels: Object, mode: str, spec: Object, meta: Object) -> str:
    """Why a Pod violates the level that `labels` set for `mode`, as the text after ``violates``; else ""."""
    level = labels.get(f"{PREFIX}{mode}", "privileged")
    found = ", ".join(f"{reason} ({detail})" if detail else reason for reason, detail in problems(level, spec, meta))
    return f'PodSecurity "{level}:{labels.get(f"{PREFIX}{mode}-version", "latest")}": {found}' if found else ""


def problems(level: str, spec: Object, meta: Object) -> list[tuple[str, str]]:
    """(reason, detail) of each violation of a level, in the real server's order."""
    if level not in ("baseline", "restricted"):
        return []
    checks = _BASELINE if level == "baseline" else (*(check for check in _BASELINE if check not in _REPLACED),
                                                    *_RESTRICTED)
    return [problem for check in checks for problem in check(spec, meta)]


def containers(spec: Object) -> Iterator[Object]:
    """All containers in the order in which they are checked: init containers first."""
    for key in ("initContainers", "containers", "ephemeralContainers"):
        yield from spec.get(key) or ()


def _own(container: Object, path: str) -> Any:
    return dig(container, f"securityContext.{path}")


def _quoted(names: Iterable[str]) -> str:
    return ", ".join(f'"{name}"' for name in dict.fromkeys(names))


def _named(what: str, names: list[str]) -> str:
    return f"{what}{'s' if len(set(names)) > 1 else ''} {_quoted(names)}"


def _of_containers(spec: Object, is_bad: Callable[[Object], bool]) -> list[str]:
    return [container["name"] for container in containers(spec) if is_bad(container)]


def _is_windows(spec: Object) -> bool:
    return bool(dig(spec, "os.name") == "windows")


def _app_armor(spec: Object, meta: Object) -> Iterator[tuple[str, str]]:
    setters = ["pod"] if dig(spec, "securityContext.appArmorProfile.type") == "Unconfined" else []
    if names := _of_containers(spec, lambda each: _own(each, "appArmorProfile.type") == "Unconfined"):
        setters.append(_named("container", names))
    details = [f'{" and ".join(setters)} must not set AppArmor profile type to "Unconfined"'] if setters else []
    prefix = "container.apparmor.security.beta.kubernetes.io/"
    wrong = [f'{key}="{value}"' for key, value in sorted((meta.get("annotations") or {}).items())
             if key.startswith(prefix) and not (value in ("", "runtime/default") or value.startswith("localhost/"))]
    if wrong:
        details.append(f"{'annotations' if len(wrong) > 1 else 'annotation'} {', '.join(wrong)}")
    if details:
        yield f"forbidden AppArmor profile{'s' if len(setters) + len(wrong) > 1 else ''}", "; ".join(details)


def _baseline_capabilities(spec: Object, _meta: Object) -> Iterator[tuple[str, str]]:
    added: list[str] = []

    def is_bad(container: Object) -> bool:
        wrong = [name for name in _own(container, "capabilities.add") or () if name not in _DEFAULT_CAPABILITIES]
        added.extend(wrong)
        return bool(wrong)

    if names := _of_containers(spec, is_bad):
        yield "non-default capabilities", (f"{_named('container', names)} must not include {_quoted(sorted(added))} in "
                                           "securityContext.capabilities.add")


def _host_namespaces(spec: Object, _meta: Object) -> Iterator[tuple[str, str]]:
    if found := [f"{key}=true" for key in ("hostNetwork", "hostPID", "hostIPC") if spec.get(key)]:
        yield "host namespaces", ", ".join(found)


def _host_paths(spec: Object, _meta: Object) -> Iterator[tuple[str, str]]:
    if names := [volume["name"] for volume in spec.get("volumes") or () if volume.get("hostPath") is not None]:
        yield "hostPath volumes", _named("volume", names)


def _host_ports(spec: Object, _meta: Object) -> Iterator[tuple[str, str]]:
    used: list[int] = []

    def is_bad(container: Object) -> bool:
        wrong = [port["hostPort"] for port in container.get("ports") or () if port.get("hostPort")]
        used.extend(wrong)
        return bool(wrong)

    if names := _of_containers(spec, is_bad):
        ports = sorted({str(port) for port in used})
        yield "hostPort", (f"{_named('container', names)} {'use' if len(set(names)) > 1 else 'uses'} "
                           f"hostPort{'s' if len(ports) > 1 else ''} {', '.join(ports)}")


def _probe_hosts(spec: Object, _meta: Object) -> Iterator[tuple[str, str]]:
    hosts: list[str] = []

    def is_bad(container: Object) -> bool:
        parts = [container.get(f"{kind}Probe") for kind in ("liveness", "readiness", "startup")]
        parts += [dig(container, f"lifecycle.{when}") for when in ("postStart", "preStop")]
        wrong = [host for part in parts if part for kind in ("httpGet", "tcpSocket")
                 if (host := dig(part, f"{kind}.host"))]
        hosts.extend(wrong)
        return bool(wrong)

    if names := _of_containers(spec, is_bad):
        uses, plural = "use" if len(set(names)) > 1 else "uses", "s" if len(set(hosts)) > 1 else ""
        yield "probe or lifecycle host", (f"{_named('container', names)} {uses} probe or lifecycle host{plural} "
                                          f"{_quoted(sorted(hosts))}")


def _privileged(spec: Object, _meta: Object) -> Iterator[tuple[str, str]]:
    if names := _of_containers(spec, lambda each: bool(_own(each, "privileged"))):
        yield "privileged", f"{_named('container', names)} must not set securityContext.privileged=true"


def _proc_mount(spec: Object, _meta: Object) -> Iterator[tuple[str, str]]:
    if names := _of_containers(spec, lambda each: _own(each, "procMount") not in (None, "Default")):
        kinds = sorted({str(_own(each, "procMount")) for each in containers(spec)} - {"None", "Default"})
        yield "procMount", f"{_named('container', names)} must not set securityContext.procMount to {_quoted(kinds)}"


def _selinux(spec: Object, _meta: Object) -> Iterator[tuple[str, str]]:
    types: list[str] = []
    parts: list[str] = []

    def is_bad(options: Object | None) -> bool:
        options = options or {}
        if (kind := options.get("type") or "") not in _SELINUX_TYPES:
            types.append(kind)
        parts.extend(part for part in ("user", "role") if options.get(part))
        return kind not in _SELINUX_TYPES or bool(options.get("user") or options.get("role"))

    setters = ["pod"] if is_bad(dig(spec, "securityContext.seLinuxOptions")) else []
    if names := _of_containers(spec, lambda each: is_bad(_own(each, "seLinuxOptions"))):
        setters.append(_named("container", names))
    if setters:
        wrong = [f"type{'s' if len(set(types)) > 1 else ''} {_quoted(sorted(types))}"] if types else []
        wrong += [f"{part} may not be set" for part in ("user", "role") if part in parts]
        yield "seLinuxOptions", (f"{' and '.join(setters)} set forbidden securityContext.seLinuxOptions: "
                                 f"{'; '.join(wrong)}")


def _setters(spec: Object, path: str, is_bad: Callable[[Any], bool]) -> list[str]:
    """The parts of a Pod that set the field at `path` to a bad value, as ``pod`` and ``container "a"``."""
    setters = ["pod"] if is_bad(dig(spec, f"securityContext.{path}")) else []
    names = _of_containers(spec, lambda each: is_bad(_own(each, path)))
    return [*setters, _named("container", names)] if names else setters


def _baseline_seccomp(spec: Object, _meta: Object) -> Iterator[tuple[str, str]]:
    if setters := _setters(spec, "seccompProfile.type", lambda kind: kind == "Unconfined"):
        yield "seccompProfile", (f"{' and '.join(setters)} must not set securityContext.seccompProfile.type to "
                                 '"Unconfined"')


def _sysctls(spec: Object, _meta: Object) -> Iterator[tuple[str, str]]:
    found = [entry["name"] for entry in dig(spec, "securityContext.sysctls") or () if entry["name"] not in _SYSCTLS]
    if found:
        yield "forbidden sysctls", ", ".join(found)


def _windows_host(spec: Object, _meta: Object) -> Iterator[tuple[str, str]]:
    if setters := _setters(spec, "windowsOptions.hostProcess", bool):
        yield "hostProcess", f"{' and '.join(setters)} must not set securityContext.windowsOptions.hostProcess=true"


def _escalation(spec: Object, _meta: Object) -> Iterator[tuple[str, str]]:
    names = _of_containers(spec, lambda each: _own(each, "allowPrivilegeEscalation") is not False)
    if names and not _is_windows(spec):
        yield "allowPrivilegeEscalation != false", (f"{_named('container', names)} must set "
                                                    "securityContext.allowPrivilegeEscalation=false")


def _restricted_capabilities(spec: Object, _meta: Object) -> Iterator[tuple[str, str]]:
    if _is_windows(spec):
        return
    added: list[str] = []

    def adds(container: Object) -> bool:
        wrong = [name for name in _own(container, "capabilities.add") or () if name != "NET_BIND_SERVICE"]
        added.extend(wrong)
        return bool(wrong)

    keeping = _of_containers(spec, lambda each: "ALL" not in (_own(each, "capabilities.drop") or ()))
    adding = _of_containers(spec, adds)
    details = [f'{_named("container", keeping)} must set securityContext.capabilities.drop=["ALL"]'] if keeping else []
    if adding:
        details.append(f"{_named('container', adding)} must not include {_quoted(sorted(added))} in "
                       "securityContext.capabilities.add")
    if details:
        yield "unrestricted capabilities", "; ".join(details)


def _restricted_volumes(spec: Object, _meta: Object) -> Iterator[tuple[str, str]]:
    found = [(volume["name"], next((key for key in volume if key != "name"), "emptyDir"))
             for volume in spec.get("volumes") or ()]
    wrong = [(name, kind) for name, kind in found if kind not in _VOLUMES]
    if wrong:
        kinds = sorted({kind for _, kind in wrong})
        yield "restricted volume types", (
            f"{_named('volume', [name for name, _ in wrong])} {'use' if len(wrong) > 1 else 'uses'} restricted volume "
            f"type{'s' if len(kinds) > 1 else ''} {_quoted(kinds)}")


def _non_root(spec: Object, _meta: Object) -> Iterator[tuple[str, str]]:
    reason, of_pod = "runAsNonRoot != true", dig(spec, "securityContext.runAsNonRoot")
    if setters := _setters(spec, "runAsNonRoot", lambda value: value is False):
        yield reason, f"{' and '.join(setters)} must not set securityContext.runAsNonRoot=false"
    elif not of_pod and (names := _of_containers(spec, lambda each: not _own(each, "runAsNonRoot"))):
        yield reason, f"pod or {_named('container', names)} must set securityContext.runAsNonRoot=true"


def _root_user(spec: Object, _meta: Object) -> Iterator[tuple[str, str]]:
    if setters := _setters(spec, "runAsUser", lambda user: user == 0):
        yield "runAsUser=0", f"{' and '.join(setters)} must not set runAsUser=0"


def _restricted_seccomp(spec: Object, _meta: Object) -> Iterator[tuple[str, str]]:
    if _is_windows(spec):
        return
    good, path = ("RuntimeDefault", "Localhost"), "seccompProfile.type"
    if setters := _setters(spec, path, lambda kind: kind is not None and kind not in good):
        kinds = {dig(spec, f"securityContext.{path}"), *(_own(each, path) for each in containers(spec))}
        wrong = sorted(kind for kind in kinds if kind is not None and kind not in good)
        yield "seccompProfile", (f"{' and '.join(setters)} must not set securityContext.{path} to {_quoted(wrong)}")
    elif dig(spec, f"securityContext.{path}") is None and (
            names := _of_containers(spec, lambda each: _own(each, path) is None)):
        yield "seccompProfile", (f"pod or {_named('container', names)} must set securityContext.{path} to "
                                 '"RuntimeDefault" or "Localhost"')


_BASELINE: tuple[Check, ...] = (_app_armor, _baseline_capabilities, _host_namespaces, _host_paths, _host_ports,
                                _probe_hosts, _privileged, _proc_mount, _selinux, _baseline_seccomp, _sysctls,
                                _windows_host)
_RESTRICTED: tuple[Check, ...] = (_escalation, _restricted_capabilities, _restricted_volumes, _non_root, _root_user,
                                  _restricted_seccomp)
_REPLACED = (_baseline_capabilities, _host_paths, _baseline_seccomp)  # level restricted has stricter checks instead
