"""Validation of Services: what each type may have, ports, addresses and families of a cluster with IPv4 only."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from kubectl_runtime.apiserver import errors
from kubectl_runtime.apiserver.errors import Cause
from kubectl_runtime.apiserver.kinds.base import PORT_RANGE, label_causes, labels_causes, one_of
from kubectl_runtime.apiserver.kinds.networking.addresses import (
    CIDR_MESSAGE,
    IP_MESSAGE,
    parse_cidr,
    parse_ip,
    special_address,
)
from kubectl_runtime.apiserver.kinds.pod.containers import PROTOCOLS
from kubectl_runtime.apiserver.objectmeta.names import dns_subdomain_errors, port_name_errors, qualified_name_errors
from kubectl_runtime.apiserver.strategy import Object

TYPES = ("ClusterIP", "ExternalName", "LoadBalancer", "NodePort")
FAMILIES, POLICIES = ("IPv4", "IPv6"), ("PreferDualStack", "RequireDualStack", "SingleStack")
DISTRIBUTIONS = ("PreferClose", "PreferSameZone", "PreferSameNode")
MAX_AFFINITY_SECONDS = 86400
_ONLY_BALANCED = "may only be used when `type` is 'LoadBalancer'"
_NOT_EXTERNAL = "may not be set for ExternalName services"


def service_causes(spec: Object) -> Iterator[Cause]:
    """What is wrong with the spec of a Service, whatever other Services have."""
    kind, headless = spec.get("type", ""), spec.get("clusterIP") == "None"
    if not spec.get("ports") and not headless and kind != "ExternalName":
        yield errors.required("spec.ports")
    if kind == "ExternalName":
        yield from _external_name_causes(spec)
    else:
        yield from _address_causes(spec)
        yield from _family_causes(spec)
    yield from _port_causes(spec.get("ports") or (), kind)
    yield from labels_causes(spec.get("selector") or {}, "spec.selector")
    yield from one_of(spec.get("sessionAffinity"), ("ClientIP", "None"), "spec.sessionAffinity", required=True)
    seconds = ((spec.get("sessionAffinityConfig") or {}).get("clientIP") or {}).get("timeoutSeconds")
    if seconds is not None and not 0 < seconds <= MAX_AFFINITY_SECONDS:
        yield errors.invalid_value("spec.sessionAffinityConfig.clientIP.timeoutSeconds", seconds,
                                   f"must be greater than 0 and less than {MAX_AFFINITY_SECONDS}")
    yield from one_of(kind, TYPES, "spec.type", required=True)
    for index, address in enumerate(spec.get("externalIPs") or ()):
        yield from _external_ip_causes(address, f"spec.externalIPs[{index}]")
    yield from _balancer_causes(spec)
    yield from _policy_causes(spec)


def _external_name_causes(spec: Object) -> Iterator[Cause]:
    name = (spec.get("externalName") or "").removesuffix(".")
    if spec.get("clusterIPs") or spec.get("clusterIP"):
        yield errors.forbidden_field("spec.clusterIPs", _NOT_EXTERNAL)
    for key in ("ipFamilies", "ipFamilyPolicy"):
        if spec.get(key):
            yield errors.forbidden_field(f"spec.{key}", _NOT_EXTERNAL)
    if not name:
        yield errors.required("spec.externalName")
    else:
        yield from (errors.invalid_value("spec.externalName", name, why) for why in dns_subdomain_errors(name))


def _address_causes(spec: Object) -> Iterator[Cause]:
    one, several, kind = spec.get("clusterIP") or "", spec.get("clusterIPs") or [], spec.get("type", "")
    if several and not one:
        yield errors.invalid_value("spec.clusterIPs", several, "must be empty when `clusterIP` is not specified")
    elif several and several[0] != one:
        yield errors.invalid_value("spec.clusterIPs", several, "first value must match `clusterIP`")
    if one == "None" and kind in ("NodePort", "LoadBalancer"):
        yield errors.invalid_value("spec.clusterIPs[0]", "None", f"may not be set to 'None' for {kind} services")
    for index, address in enumerate(several or [one] if one else ()):
        at, parsed = f"spec.clusterIPs[{index}]", parse_ip(address)
        if address == "None":
            continue
        if parsed is None:
            yield errors.invalid_value(at, address, IP_MESSAGE)
        elif parsed.version == 6:
            yield errors.invalid_value(at, several or [one], "IPv6 is not configured on this cluster")


def _family_causes(spec: Object) -> Iterator[Cause]:
    free = spec.get("clusterIP") == "None" and not spec.get("selector")  # the server knows no addresses of its own then
    seen = set()
    for index, family in enumerate(spec.get("ipFamilies") or ()):
        at = f"spec.ipFamilies[{index}]"
        if family not in FAMILIES:
            yield errors.not_supported(at, family, FAMILIES)
        elif family in seen:
            yield errors.duplicate(at, family)
        elif family == "IPv6" and not free:
            yield errors.invalid_value(at, family, "not configured on this cluster")
        seen.add(family)
    policy = spec.get("ipFamilyPolicy")
    yield from one_of(policy, POLICIES, "spec.ipFamilyPolicy")
    if policy == "RequireDualStack" and not free:
        yield errors.invalid_value("spec.ipFamilyPolicy", policy,
                                   "this cluster is not configured for dual-stack services")


def _port_causes(given: Iterable[Object], kind: str) -> Iterator[Cause]:
    ports = list(given)
    names, pairs = set(), set()
    for index, port in enumerate(ports):
        at, name, number = f"spec.ports[{index}]", port.get("name", ""), port.get("port", 0)
        if name:
            yield from label_causes(name, f"{at}.name")
            if name in names:
                yield errors.duplicate(f"{at}.name", name)
            names.add(name)
        elif len(ports) > 1:
            yield errors.required(f"{at}.name")
        if not 1 <= number <= 65535:
            yield errors.invalid_value(f"{at}.port", number, PORT_RANGE)
        yield from one_of(port.get("protocol"), PROTOCOLS, f"{at}.protocol", required=True)
        target = port.get("targetPort")
        if isinstance(target, str):
            yield from (errors.invalid_value(f"{at}.targetPort", target, why) for why in port_name_errors(target))
        elif target is not None and not 1 <= target <= 65535:
            yield errors.invalid_value(f"{at}.targetPort", target, PORT_RANGE)
        if protocol := port.get("appProtocol"):
            yield from (errors.invalid_value(f"{at}.appProtocol", protocol, why)
                        for why in qualified_name_errors(protocol))
        if port.get("nodePort") and kind in ("ClusterIP", "ExternalName"):
            yield errors.forbidden_field(f"{at}.nodePort", f"may not be used when `type` is '{kind}'")
        if (number, port.get("protocol")) in pairs:
            yield errors.duplicate(at, {"Name": "", "Protocol": port.get("protocol"), "AppProtocol": None,
                                        "Port": number, "TargetPort": 0, "NodePort": 0})
        pairs.add((number, port.get("protocol")))


def _external_ip_causes(text: str, path: str) -> Iterator[Cause]:
    if parse_ip(text) is None:
        yield errors.invalid_value(path, text, IP_MESSAGE)
    elif why := special_address(text):
        yield errors.invalid_value(path, text, why)


def _balancer_causes(spec: Object) -> Iterator[Cause]:
    balanced = spec.get("type") == "LoadBalancer"
    ranges = spec.get("loadBalancerSourceRanges") or ()
    if ranges and not balanced:
        yield errors.forbidden_field("spec.LoadBalancerSourceRanges", _ONLY_BALANCED)
    for index, text in enumerate(ranges if balanced else ()):
        at, block = f"spec.LoadBalancerSourceRanges[{index}]", parse_cidr(text)
        if block is None:
            yield errors.invalid_value(at, text, CIDR_MESSAGE)
        elif parse_ip(text.partition("/")[0]) != block.network_address:
            yield errors.invalid_value(at, text, "must not have bits set beyond the prefix length")
    if (name := spec.get("loadBalancerClass")) is not None:
        yield from (errors.invalid_value("spec.loadBalancerClass", name, why) for why in qualified_name_errors(name))
    yield from (errors.forbidden_field(f"spec.{key}", _ONLY_BALANCED)
                for key in ("allocateLoadBalancerNodePorts", "loadBalancerClass")
                if spec.get(key) is not None and not balanced)


def _policy_causes(spec: Object) -> Iterator[Cause]:
    external, kind = spec.get("externalTrafficPolicy"), spec.get("type")
    reachable = kind in ("NodePort", "LoadBalancer") or (kind == "ClusterIP" and bool(spec.get("externalIPs")))
    if external and not reachable:
        yield errors.invalid_value("spec.externalTrafficPolicy", external,
                                   "may only be set for externally-accessible services")
    else:
        yield from one_of(external, ("Cluster", "Local"), "spec.externalTrafficPolicy")
    if spec.get("healthCheckNodePort") and not (kind == "LoadBalancer" and external == "Local"):
        yield errors.invalid_value("spec.healthCheckNodePort", spec["healthCheckNodePort"], "may only be set when "
                                   "`type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'")
    yield from one_of(spec.get("internalTrafficPolicy"), ("Cluster", "Local"), "spec.internalTrafficPolicy")
    yield from one_of(spec.get("trafficDistribution"), DISTRIBUTIONS, "spec.trafficDistribution")


def load_balancer_causes(points: Iterable[Object], path: str) -> Iterator[Cause]:
    """What is wrong with the points at which a load balancer of a Service or an Ingress is reached."""
    for index, point in enumerate(points):
        ip, host = point.get("ip") or "", point.get("hostname") or ""
        if ip and parse_ip(ip) is None:
            yield errors.invalid_value(f"{path}[{index}].ip", ip, IP_MESSAGE)
        if host:
            yield from (errors.invalid_value(f"{path}[{index}].hostname", host, why)
                        for why in dns_subdomain_errors(host))
            if parse_ip(host) is not None:
                yield errors.invalid_value(f"{path}[{index}].hostname", host,
                                           "must be a DNS name, not an IP address")
