"""Validation of a pod's spec, in the real server's order and words.

Its parts are in modules of their own: container_validation, volume_validation, scheduling_validation, pod_security.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from kubectl_runtime.apiserver import errors
from kubectl_runtime.apiserver.errors import Cause
from kubectl_runtime.apiserver.kinds.base import labels_causes, one_of
from kubectl_runtime.apiserver.kinds.networking.addresses import IP_MESSAGE, parse_ip
from kubectl_runtime.apiserver.kinds.pod.amounts import resource_causes
from kubectl_runtime.apiserver.kinds.pod.containers import PodContext, containers_causes
from kubectl_runtime.apiserver.kinds.pod.pod_volumes import volumes_causes
from kubectl_runtime.apiserver.kinds.pod.scheduling import (
    affinity_causes,
    spread_causes,
    toleration_causes,
)
from kubectl_runtime.apiserver.kinds.pod.security import pod_security_causes
from kubectl_runtime.apiserver.objectmeta.names import (
    dns_label_errors,
    dns_subdomain_errors,
    qualified_name_errors,
)
from kubectl_runtime.apiserver.strategy import Object
from kubectl_runtime.core.codec.jsonvalues import remembers_good

RESTART_POLICIES = ("Always", "OnFailure", "Never")
DNS_POLICIES = ("ClusterFirstWithHostNet", "ClusterFirst", "Default", "None")
MAX_NAMESERVERS, MAX_SEARCHES = 3, 32
_SEARCH_PATTERN = r"_?[a-z0-9]([-_a-z0-9]*[a-z0-9])?(\._?[a-z0-9]([-_a-z0-9]*[a-z0-9])?)*"
_SEARCH = re.compile(_SEARCH_PATTERN)
_SEARCH_MESSAGE = ("a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '_', '-' or "
                   "'.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for "
                   f"validation is '{_SEARCH_PATTERN}')")


@remembers_good
def pod_spec_causes(spec: Object, path: str, *, is_pod: bool = True) -> list[Cause]:
    """What is wrong with a pod spec; `path` is ``spec`` or ``spec.template.spec``."""
    return list(_causes(spec, path, is_pod))


def template_causes(template: Object, path: str) -> list[Cause]:
    """What is wrong with a pod template: its labels and spec."""
    metadata = template.get("metadata") or {}
    causes = labels_causes(metadata.get("labels") or {}, f"{path}.labels")  # the real server's path, indeed
    causes += [errors.invalid_value(f"{path}.annotations", key, why)
               for key in metadata.get("annotations") or () for why in qualified_name_errors(key.lower())]
    causes += pod_spec_causes(template.get("spec") or {}, f"{path}.spec", is_pod=False)
    if (template.get("spec") or {}).get("ephemeralContainers"):
        causes.append(errors.forbidden_field(f"{path}.spec.ephemeralContainers",
                                             "ephemeral containers not allowed in pod template"))
    return causes


def _causes(spec: Object, path: str, is_pod: bool) -> Iterator[Cause]:
    yield from volumes_causes(spec.get("volumes") or (), f"{path}.volumes")
    yield from _claim_causes(spec, f"{path}.resourceClaims")
    if not spec.get("containers"):
        yield errors.required(f"{path}.containers")
    grace = spec.get("terminationGracePeriodSeconds")
    pod = PodContext(
        volumes={volume.get("name", ""): volume for volume in spec.get("volumes") or ()},
        claims=frozenset(claim.get("name", "") for claim in spec.get("resourceClaims") or ()),
        restart_policy=spec.get("restartPolicy", ""), grace=30 if grace is None else grace,
        host_users=spec.get("hostUsers") is not False, os=(spec.get("os") or {}).get("name", ""))
    yield from containers_causes(spec, path, pod)
    if resources := spec.get("resources"):
        yield from resource_causes(resources, f"{path}.resources", pod=True)
    yield from one_of(spec.get("restartPolicy"), RESTART_POLICIES, f"{path}.restartPolicy", required=True)
    yield from one_of(spec.get("dnsPolicy"), DNS_POLICIES, f"{path}.dnsPolicy", required=True)
    yield from labels_causes(spec.get("nodeSelector") or {}, f"{path}.nodeSelector")
    yield from _host_causes(spec, path, is_pod)
    if context := spec.get("securityContext"):
        yield from pod_security_causes(context, f"{path}.securityContext", pod.os)
    if affinity := spec.get("affinity"):
        yield from affinity_causes(affinity, f"{path}.affinity")
    yield from _dns_causes(spec, path)
    yield from _gate_causes(spec, path)
    yield from spread_causes(spec.get("topologySpreadConstraints") or (), f"{path}.topologySpreadConstraints")
    for key in ("serviceAccountName", "nodeName", "priorityClassName"):
        if name := spec.get(key):
            yield from (errors.invalid_value(f"{path}.{key}", name, why) for why in dns_subdomain_errors(name))
    deadline = spec.get("activeDeadlineSeconds")
    if deadline is not None and not 1 <= deadline <= 2**31 - 1:
        yield errors.invalid_value(f"{path}.activeDeadlineSeconds", deadline,
                                   "must be between 1 and 2147483647, inclusive")
    for key in ("hostname", "subdomain"):
        if name := spec.get(key):
            yield from (errors.invalid_value(f"{path}.{key}", name, why) for why in dns_label_errors(name))
    yield from toleration_causes(spec.get("tolerations") or (), f"{path}.tolerations")
    yield from one_of(spec.get("preemptionPolicy"), ("Never", "PreemptLowerPriority"), f"{path}.preemptionPolicy")
    if spec.get("os") is not None:
        if not pod.os:
            yield errors.required(f"{path}.os.name")
        yield from one_of(pod.os, ("linux", "windows"), f"{path}.os")


def _host_causes(spec: Object, path: str, is_pod: bool) -> Iterator[Cause]:
    """The host's network and namespaces."""
    for index, container in enumerate(spec.get("containers") or () if spec.get("hostNetwork") else ()):
        for number, port in enumerate(container.get("ports") or ()):
            host = port.get("hostPort") or 0
            if (is_pod or host) and host != port.get("containerPort"):
                yield errors.invalid_value(f"{path}.containers[{index}].ports[{number}].hostPort", host,
                                           "must match `containerPort` when `hostNetwork` is true")
    if spec.get("shareProcessNamespace") and spec.get("hostPID"):
        yield errors.invalid_value(f"{path}.securityContext.shareProcessNamespace", True,
                                   "ShareProcessNamespace and HostPID cannot both be enabled")
    if spec.get("hostUsers") is False:
        yield from (errors.forbidden_field(f"{path}.{key}", "when `hostUsers` is false")
                    for key in ("hostNetwork", "hostPID", "hostIPC") if spec.get(key))
    for index, alias in enumerate(spec.get("hostAliases") or ()):
        at = f"{path}.hostAliases[{index}]"
        if parse_ip(alias.get("ip") or "") is None:
            yield errors.invalid_value(f"{at}.ip", alias.get("ip") or "", IP_MESSAGE)
        for number, name in enumerate(alias.get("hostnames") or ()):
            yield from (errors.invalid_value(f"{at}.hostnames[{number}]", name, why)
                        for why in dns_subdomain_errors(name))


def _dns_causes(spec: Object, path: str) -> Iterator[Cause]:
    config = spec.get("dnsConfig")
    at = f"{path}.dnsConfig"
    if spec.get("dnsPolicy") == "None":
        if config is None:
            yield errors.required(at, "must provide `dnsConfig` when `dnsPolicy` is None")
            return
        if not config.get("nameservers"):
            yield errors.required(f"{at}.nameservers",
                                  "must provide at least one DNS nameserver when `dnsPolicy` is None")
    config = config or {}
    servers, searches = config.get("nameservers") or [], config.get("searches") or []
    if len(servers) > MAX_NAMESERVERS:
        yield errors.invalid_value(f"{at}.nameservers", servers,
                                   f"must not have more than {MAX_NAMESERVERS} nameservers")
    for index, server in enumerate(servers):
        if parse_ip(server) is None:
            yield errors.invalid_value(f"{at}.nameservers[{index}]", server, IP_MESSAGE)
    if len(searches) > MAX_SEARCHES:
        yield errors.invalid_value(f"{at}.searches", searches,
                                   f"must not have more than {MAX_SEARCHES} search paths")
    for index, search in enumerate(searches):
        if search != "." and not _SEARCH.fullmatch(search.removesuffix(".")):
            yield errors.invalid_value(f"{at}.searches[{index}]", search, _SEARCH_MESSAGE)
    for index, option in enumerate(config.get("options") or ()):
        if not option.get("name"):
            yield errors.required(f"{at}.options[{index}]", "must not be empty")


def _gate_causes(spec: Object, path: str) -> Iterator[Cause]:
    for index, gate in enumerate(spec.get("readinessGates") or ()):
        kind = gate.get("conditionType", "")
        yield from (errors.invalid_value(f"{path}.readinessGates[{index}].conditionType", kind, why)
                    for why in qualified_name_errors(kind))
    seen = set()
    for index, gate in enumerate(spec.get("schedulingGates") or ()):
        name = gate.get("name", "")
        yield from (errors.invalid_value(f"{path}.schedulingGates[{index}]", name, why)
                    for why in qualified_name_errors(name))
        if name in seen:
            yield errors.duplicate(f"{path}.schedulingGates[{index}]", name)
        seen.add(name)


def _claim_causes(spec: Object, path: str) -> Iterator[Cause]:
    """References to ResourceClaims, or to templates for them."""
    seen = set()
    for index, claim in enumerate(spec.get("resourceClaims") or ()):
        at, name = f"{path}[{index}]", claim.get("name", "")
        given = [key for key in ("resourceClaimName", "resourceClaimTemplateName") if claim.get(key) is not None]
        shown = {"Name": name, "ResourceClaimName": claim.get("resourceClaimName"),
                 "ResourceClaimTemplateName": claim.get("resourceClaimTemplateName")}
        if name in seen:
            yield errors.duplicate(f"{at}.name", name)
        seen.add(name)
        if not given:
            yield errors.invalid_value(at, shown,
                                       "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`")
        elif len(given) > 1:
            yield errors.invalid_value(at, shown, "at most one of `resourceClaimName` or `resourceClaimTemplateName` "
                                                  "may be specified")
