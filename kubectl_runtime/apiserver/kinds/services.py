"""Services: what is left out, what goes with a type, what stays allocated.

Validation of Services: what each type may have, ports, addresses and families of a cluster with IPv4 only.

Addresses and node ports of Services, allocated from the ranges that kube-apiserver has by default.

Addresses belong to a Service from create to delete. A free one is the first of a sequence that begins at a hash of the
Service's namespace and name, so that the same manifests get the same addresses.
"""
from __future__ import annotations

import hashlib
import ipaddress
from collections.abc import Callable, Iterable, Iterator
from typing import ClassVar

from kubectl_runtime.apiserver import errors
from kubectl_runtime.apiserver.errors import Cause
from kubectl_runtime.apiserver.kinds.base import (
    CIDR_MESSAGE,
    IP_MESSAGE,
    PORT_RANGE,
    BuiltinStrategy,
    cidr_warnings,
    ip_warnings,
    label_causes,
    labels_causes,
    one_of,
    parse_cidr,
    parse_ip,
    put_default,
    special_address,
)
from kubectl_runtime.apiserver.kinds.pod.containers import PROTOCOLS
from kubectl_runtime.apiserver.objectmeta.names import (
    dns_label_errors,
    dns_subdomain_errors,
    path_segment_errors,
    port_name_errors,
    qualified_name_errors,
)
from kubectl_runtime.apiserver.strategy import Object, StrategyContext

SERVICE_NETWORK = ipaddress.IPv4Network("10.0.0.0/24")
NODE_PORTS = range(30000, 32768)
WITH_NODE_PORTS = ("NodePort", "LoadBalancer")


def allocation_causes(obj: Object, ctx: StrategyContext) -> list[Cause]:
    """Whether what the client asks for is in the ranges and free."""
    spec, causes = obj["spec"], []
    others = _others(obj, ctx)
    address = parse_ip(spec.get("clusterIP") or "")
    if address is not None and address.version == 4 and spec.get("type") != "ExternalName":
        network = _network(others)
        at_home = (obj["metadata"].get("namespace"), obj["metadata"].get("name")) == ("default", "kubernetes")
        taken = {other for entry in others for other in entry.get("clusterIPs") or ()}
        why = ("the provided network does not match the current range" if address not in network else
               "provided IP is already allocated" if str(address) in taken or (address == network[1] and not at_home)
               else "")
        if why:
            causes.append(errors.invalid_value("spec.clusterIPs", spec["clusterIPs"],
                                               f"failed to allocate IP {address}: {why}"))
    if spec.get("type") in WITH_NODE_PORTS:
        causes += _node_port_causes(spec.get("ports") or (), others)
    return causes


def _node_port_causes(ports: Iterable[Object], others: list[Object]) -> list[Cause]:
    taken = {port.get("nodePort") for entry in others for port in entry.get("ports") or ()}
    causes, own = [], set()
    for index, port in enumerate(ports):
        number, at = port.get("nodePort"), f"spec.ports[{index}].nodePort"
        if not number:
            continue
        if number not in NODE_PORTS:
            causes.append(errors.invalid_value(at, number, "provided port is not in the valid range. The range of "
                                               f"valid ports is {NODE_PORTS[0]}-{NODE_PORTS[-1]}"))
        elif number in taken or (number, port.get("protocol")) in own:
            causes.append(errors.invalid_value(at, number, "provided port is already allocated"))
        own.add((number, port.get("protocol")))
    return causes


def allocate(obj: Object, ctx: StrategyContext) -> None:
    """Set address, families and node ports that the client left open."""
    spec = obj["spec"]
    if spec.get("type") == "ExternalName":
        return
    address = spec.get("clusterIP") or next(iter(spec.get("clusterIPs") or ()), "")
    headless_without_selector = address == "None" and not spec.get("selector")
    # A headless Service without selector may point anywhere: it is dual-stack even on a single-stack cluster.
    put_default(spec, "ipFamilies", ["IPv4", "IPv6"] if headless_without_selector else ["IPv4"])
    put_default(spec, "ipFamilyPolicy", "RequireDualStack" if headless_without_selector else "SingleStack")
    if not address:
        address = _free_address(obj, ctx)
    spec["clusterIP"] = address
    spec["clusterIPs"] = spec.get("clusterIPs") or [address]
    wants_ports = spec["type"] == "NodePort" or (spec["type"] == "LoadBalancer"
                                                 and spec.get("allocateLoadBalancerNodePorts", True))
    checked = spec["type"] == "LoadBalancer" and spec.get("externalTrafficPolicy") == "Local"
    if (wants_ports and any(not port.get("nodePort") for port in spec.get("ports") or ())) or checked:
        _allocate_node_ports(obj, ctx, wants_ports=wants_ports, checked=checked)


def refuse_unnamed(obj: Object, ctx: StrategyContext) -> None:
    """An address is allocated before the Service is validated, and written down together with the Service's name."""
    name: str = obj["metadata"].get("name", "")
    found = [f"Invalid value: {errors.go_value(name)}: {why}" for why in path_segment_errors(name)]
    if found or not name:
        why = f"spec.parentRef.name: {' '.join(found) or 'Required value'}"
        raise errors.invalid("", "Service", name, [errors.invalid_value("spec.clusterIPs", [""], (
            f'failed to allocate IP: IPAddress.networking.k8s.io "{_free_address(obj, ctx)}" is invalid: {why}'))])


def _others(obj: Object, ctx: StrategyContext) -> list[Object]:
    own = tuple(obj["metadata"].get(key) for key in ("namespace", "name"))
    return [other["spec"] for other in ctx.objects("", "services")
            if (other["metadata"]["namespace"], other["metadata"]["name"]) != own]


def _start(obj: Object, size: int) -> int:
    metadata = obj["metadata"]
    digest = hashlib.sha256(f"{metadata.get('namespace')}/{metadata.get('name')}".encode()).digest()
    return int.from_bytes(digest[:8], "big") % size


def _network(others: list[Object]) -> ipaddress.IPv4Network:
    """The range of addresses. The real server refuses when its range is full; this one widens it."""
    network = SERVICE_NETWORK
    while len(others) > network.num_addresses // 2:
        network = network.supernet()
    return network


def _free_address(obj: Object, ctx: StrategyContext) -> str:
    others = _others(obj, ctx)
    taken = {address for spec in others for address in spec.get("clusterIPs") or ()}
    network = _network(others)
    size = network.num_addresses - 3  # without network, broadcast and the first address (kubernetes.default's)
    first = _start(obj, size)
    return next(text for offset in range(size)
                if (text := str(network[2 + (first + offset) % size])) not in taken)


def _allocate_node_ports(obj: Object, ctx: StrategyContext, *, wants_ports: bool, checked: bool) -> None:
    """A port on the nodes for each port, and one more for the health check."""
    spec = obj["spec"]
    entries = [spec, *_others(obj, ctx)]
    taken = {port.get("nodePort") for entry in entries for port in entry.get("ports") or ()}
    taken |= {entry.get("healthCheckNodePort") for entry in entries}
    at = _start(obj, len(NODE_PORTS))
    missing = [(port, "nodePort") for port in spec.get("ports") or () if wants_ports and not port.get("nodePort")]
    if checked and not spec.get("healthCheckNodePort"):
        missing.append((spec, "healthCheckNodePort"))
    for target, key in missing:
        free = next((number for offset in range(len(NODE_PORTS))
                     if (number := NODE_PORTS[(at + offset) % len(NODE_PORTS)]) not in taken), None)
        if free is None:
            raise errors.internal("failed to allocate a nodePort: range is full")
        taken.add(free)
        target[key] = free


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


_ALLOCATED = ("clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy", "healthCheckNodePort")


class ServiceStrategy(BuiltinStrategy):
    """Services."""

    has_status = True
    delete_returns_object = True
    fields: ClassVar[dict[str, str | Callable[[Object], str]]] = {
        "spec.clusterIP": "spec.clusterIP", "spec.type": "spec.type"}

    def default(self, obj: Object) -> None:
        """Type, affinity, traffic policies, ports."""
        spec = obj["spec"]
        put_default(spec, "sessionAffinity", "None")
        if spec["sessionAffinity"] == "None":
            spec.pop("sessionAffinityConfig", None)
        if spec["sessionAffinity"] == "ClientIP":
            client = spec.setdefault("sessionAffinityConfig", {}).setdefault("clientIP", {})
            put_default(client, "timeoutSeconds", 10800)
        put_default(spec, "type", "ClusterIP")
        for port in spec.get("ports") or ():
            put_default(port, "protocol", "TCP")
            if port.get("targetPort") in (None, 0, ""):
                port["targetPort"] = port.get("port", 0)
        if spec["type"] in WITH_NODE_PORTS or (spec["type"] == "ClusterIP" and spec.get("externalIPs")):
            put_default(spec, "externalTrafficPolicy", "Cluster")
        if spec["type"] != "ExternalName":
            put_default(spec, "internalTrafficPolicy", "Cluster")
        if spec["type"] == "LoadBalancer":
            put_default(spec, "allocateLoadBalancerNodePorts", True)
            for point in ((obj.get("status") or {}).get("loadBalancer") or {}).get("ingress") or ():
                if point.get("ip"):
                    put_default(point, "ipMode", "VIP")

    def prepare_create(self, obj: Object, ctx: StrategyContext) -> None:
        """The status is the server's; one address makes a list of addresses."""
        super().prepare_create(obj, ctx)
        _list_address(obj["spec"])
        if obj["spec"]["type"] != "ExternalName" and not obj["spec"].get("clusterIPs"):
            refuse_unnamed(obj, ctx)

    def canonicalize(self, obj: Object, ctx: StrategyContext) -> bool:
        """Allocate what the client left open."""
        allocate(obj, ctx)
        return False

    def prepare_update(self, new: Object, old: Object, subresource: str, ctx: StrategyContext) -> None:
        """What was allocated stays where the client leaves it out."""
        super().prepare_update(new, old, subresource, ctx)
        if subresource:
            return
        if old["spec"]["type"] == "LoadBalancer" != new["spec"]["type"]:
            new["status"] = {**new["status"], "loadBalancer": {}}
        spec, before = new["spec"], old["spec"]
        if spec["type"] == "ExternalName":
            if before["type"] != "ExternalName":
                for key in _ALLOCATED:
                    spec.pop(key, None)
                _drop_of_other_type(spec, before)
            return
        if before["type"] != "ExternalName":
            _keep_allocated(spec, before)
            _drop_of_other_type(spec, before)
        _list_address(spec)

    def warnings(self, obj: Object, old: Object | None) -> list[str]:
        """Fields that are ignored or deprecated; addresses in an unusual form."""
        return list(_warnings(obj))

    def validate_name(self, name: str, *, prefix: bool = False) -> list[str]:
        """A DNS label; since 1.36 it may begin with a digit."""
        return dns_label_errors(name, prefix=prefix)

    def validate_create(self, obj: Object, ctx: StrategyContext) -> list[Cause]:
        """The spec in itself, and whether its address and ports are free."""
        return list(service_causes(obj["spec"])) + allocation_causes(obj, ctx)

    def validate_update(self, new: Object, old: Object, subresource: str, ctx: StrategyContext) -> list[Cause]:
        """As at creation; the address does not change."""
        if subresource:
            return list(_status_causes(new))
        causes = []
        addresses, before = new["spec"].get("clusterIPs") or [], old["spec"].get("clusterIPs") or []
        if before and addresses and addresses[0] != before[0] and "ExternalName" not in (
                new["spec"]["type"], old["spec"]["type"]):
            causes.append(errors.invalid_value("spec.clusterIPs[0]", addresses, "may not change once set"))
        return causes + self.validate_create(new, ctx)


def _status_causes(obj: Object) -> Iterator[Cause]:
    points = ((obj.get("status") or {}).get("loadBalancer") or {}).get("ingress") or ()
    if points and obj["spec"].get("type") != "LoadBalancer":
        yield errors.forbidden_field("status.loadBalancer.ingress",
                                     "may only be used when `spec.type` is 'LoadBalancer'")
    else:
        yield from load_balancer_causes(points, "status.loadBalancer.ingress")


def _warnings(obj: Object) -> Iterator[str]:
    spec = obj["spec"]
    headless = spec.get("type") == "ClusterIP" and spec.get("clusterIP") == "None"
    external, external_ips = spec.get("type") == "ExternalName", spec.get("externalIPs") or ()
    hints = "service.kubernetes.io/topology-aware-hints"
    if hints in (obj["metadata"].get("annotations") or {}):
        yield f"annotation {hints} is deprecated, please use service.kubernetes.io/topology-mode instead"
    for index, address in enumerate(spec.get("clusterIPs") or ()):
        yield from ip_warnings(f"spec.clusterIPs[{index}]", address)
    if headless and spec.get("loadBalancerIP"):
        yield "spec.loadBalancerIP is ignored for headless services"
    if headless and external_ips:
        yield "spec.externalIPs is ignored for headless services"
    if headless and spec.get("sessionAffinity") != "None":
        yield "spec.SessionAffinity is ignored for headless services"
    for index, address in enumerate(external_ips):
        yield from ip_warnings(f"spec.externalIPs[{index}]", address)
    if external_ips and not headless and not external:
        yield "spec.externalIPs is deprecated and may no longer be implemented in some clusters"
    yield from ip_warnings("spec.loadBalancerIP", spec.get("loadBalancerIP") or "")
    for index, block in enumerate(spec.get("loadBalancerSourceRanges") or ()):
        yield from cidr_warnings(f"spec.loadBalancerSourceRanges[{index}]", block)
    if external and external_ips:
        yield 'spec.externalIPs is ignored when spec.type is "ExternalName"'
    if not external and spec.get("externalName"):
        yield 'spec.externalName is ignored when spec.type is not "ExternalName"'
    if spec.get("trafficDistribution") == "PreferClose":
        yield 'spec.trafficDistribution: "PreferClose" is deprecated; use "PreferSameZone"'


def _drop_of_other_type(spec: Object, before: Object) -> None:
    """What only the old type could have goes with it, unless the client has just changed it."""
    kind = spec["type"]
    reachable = kind in WITH_NODE_PORTS or (kind == "ClusterIP" and bool(spec.get("externalIPs")))
    ports, old_ports = spec.get("ports") or (), before.get("ports") or ()
    if kind not in WITH_NODE_PORTS and [port.get("nodePort") for port in ports] == [
            port.get("nodePort") for port in old_ports]:
        for port in ports:
            port.pop("nodePort", None)
    dropped = []
    if not reachable:
        dropped.append("externalTrafficPolicy")
    if kind == "ExternalName":
        dropped.append("internalTrafficPolicy")
    if not (kind == "LoadBalancer" and spec.get("externalTrafficPolicy") == "Local"):
        dropped.append("healthCheckNodePort")
    if kind != "LoadBalancer":
        dropped += ["allocateLoadBalancerNodePorts", "loadBalancerClass"]
    for key in dropped:
        if key in spec and spec[key] == before.get(key):
            del spec[key]


def _keep_allocated(spec: Object, before: Object) -> None:
    """A PUT need not repeat what the server allocated."""
    if not spec.get("clusterIP") and not spec.get("clusterIPs"):
        for key in ("clusterIP", "clusterIPs"):
            if key in before:
                spec[key] = before[key]
    elif not spec.get("clusterIPs") or (spec.get("clusterIPs") == before.get("clusterIPs")
                                        and spec.get("clusterIP") != before.get("clusterIP")):
        spec["clusterIPs"] = [spec.get("clusterIP", "")]
    for key in _ALLOCATED[2:]:
        if key in before:
            put_default(spec, key, before[key])
    if spec["type"] in WITH_NODE_PORTS:
        ports = {(port.get("name"), port.get("port"), port.get("protocol")): port.get("nodePort")
                 for port in before.get("ports") or ()}
        for port in spec.get("ports") or ():
            known = ports.get((port.get("name"), port.get("port"), port.get("protocol")))
            if known and not port.get("nodePort"):
                port["nodePort"] = known


def _list_address(spec: Object) -> None:
    if spec.get("clusterIP") and not spec.get("clusterIPs"):
        spec["clusterIPs"] = [spec["clusterIP"]]
