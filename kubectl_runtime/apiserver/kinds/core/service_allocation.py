"""Addresses and node ports of Services, allocated from the ranges that kube-apiserver has by default.

Addresses belong to a Service from create to delete. A free one is the first of a sequence that begins at a hash of the
Service's namespace and name, so that the same manifests get the same addresses.
"""

from __future__ import annotations

import hashlib
import ipaddress
from collections.abc import Iterable

from kubectl_runtime.apiserver import errors
from kubectl_runtime.apiserver.errors import Cause
from kubectl_runtime.apiserver.kinds.base import put_default
from kubectl_runtime.apiserver.kinds.networking.addresses import parse_ip
from kubectl_runtime.apiserver.objectmeta.names import path_segment_errors
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
