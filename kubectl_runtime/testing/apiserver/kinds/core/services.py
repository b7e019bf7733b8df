"""Services: addresses and node ports are allocated here, from the ranges that kube-apiserver has by default.

Addresses belong to a Service from create to delete. A free one is the first of a sequence that begins at a hash of the
Service's namespace and name, so that the same manifests get the same addresses.
"""

from __future__ import annotations

import hashlib
import ipaddress
from collections.abc import Callable, Iterable, Iterator
from typing import ClassVar

from kubectl_runtime.testing.apiserver import errors
from kubectl_runtime.testing.apiserver.errors import Cause
from kubectl_runtime.testing.apiserver.kinds.base import BuiltinStrategy, put_default
from kubectl_runtime.testing.apiserver.kinds.core.service_validation import load_balancer_causes, service_causes
from kubectl_runtime.testing.apiserver.kinds.networking.addresses import cidr_warnings, ip_warnings, parse_ip
from kubectl_runtime.testing.apiserver.names import dns_label_errors, path_segment_errors
from kubectl_runtime.testing.apiserver.strategy import Object, StrategyContext

SERVICE_NETWORK = ipaddress.IPv4Network("10.0.0.0/24")
NODE_PORTS = range(30000, 32768)
_WITH_NODE_PORTS = ("NodePort", "LoadBalancer")
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
        if spec["type"] in _WITH_NODE_PORTS or (spec["type"] == "ClusterIP" and spec.get("externalIPs")):
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
            _refuse_unnamed(obj, ctx)

    def canonicalize(self, obj: Object, ctx: StrategyContext) -> bool:
        """Allocate what the client left open."""
        _allocate(obj, ctx)
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
        return list(service_causes(obj["spec"])) + _allocation_causes(obj, ctx)

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
    reachable = kind in _WITH_NODE_PORTS or (kind == "ClusterIP" and bool(spec.get("externalIPs")))
    ports, old_ports = spec.get("ports") or (), before.get("ports") or ()
    if kind not in _WITH_NODE_PORTS and [port.get("nodePort") for port in ports] == [
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
    if spec["type"] in _WITH_NODE_PORTS:
        ports = {(port.get("name"), port.get("port"), port.get("protocol")): port.get("nodePort")
                 for port in before.get("ports") or ()}
        for port in spec.get("ports") or ():
            known = ports.get((port.get("name"), port.get("port"), port.get("protocol")))
            if known and not port.get("nodePort"):
                port["nodePort"] = known


def _list_address(spec: Object) -> None:
    if spec.get("clusterIP") and not spec.get("clusterIPs"):
        spec["clusterIPs"] = [spec["clusterIP"]]


def _allocation_causes(obj: Object, ctx: StrategyContext) -> list[Cause]:
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
    if spec.get("type") in _WITH_NODE_PORTS:
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


def _allocate(obj: Object, ctx: StrategyContext) -> None:
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


def _refuse_unnamed(obj: Object, ctx: StrategyContext) -> None:
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
