"""Services on a cluster with IPv4 only: rules, and the allocation of addresses and node ports.

The ranges are kube-apiserver's defaults. A Service keeps its address from create to delete. The search for a free
address starts at a hash of the Service's namespace and name, so that the same manifests get the same addresses.
"""

from __future__ import annotations

import hashlib
import ipaddress
from collections.abc import Callable, Iterable, Iterator
from typing import ClassVar

from kubectl_runtime.apiserver import errors
from kubectl_runtime.apiserver.errors import Cause
from kubectl_runtime.apiserver.kinds import rules as r
from kubectl_runtime.apiserver.kinds.base import (
    IP_MESSAGE,
    BuiltinStrategy,
    block_causes,
    cidr_warnings,
    dig,
    ip_warnings,
    is_ip,
    labels_causes,
    parse_ip,
    put_default,
    special_address,
)
from kubectl_runtime.apiserver.kinds.pod.containers import PROTOCOLS
from kubectl_runtime.apiserver.names import dns_label_errors, path_segment_errors
from kubectl_runtime.apiserver.strategy import StrategyContext
from kubectl_runtime.apiserver.wire import Object

SERVICE_NETWORK = ipaddress.IPv4Network("10.0.0.0/24")
NODE_PORTS = range(30000, 32768)
WITH_NODE_PORTS = ("NodePort", "LoadBalancer")


def allocation_causes(obj: Object, ctx: StrategyContext) -> list[Cause]:
    """Return a cause for each requested address or node port that is out of range or taken."""
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
    """Set the address, the IP families and the node ports that the client omitted."""
    spec = obj["spec"]
    if spec.get("type") == "ExternalName":
        return
    address = spec.get("clusterIP") or next(iter(spec.get("clusterIPs") or ()), "")
    headless_without_selector = address == "None" and not spec.get("selector")
    # A headless Service without a selector may point anywhere, so it is dual-stack even on a single-stack cluster.
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
    """Refuse a Service with a missing or invalid name, as the real server's address allocation does before validation.
    """
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
    """The range of Service addresses. The range grows with the number of Services, so that it is never full."""
    network = SERVICE_NETWORK
    while len(others) > network.num_addresses // 2:
        network = network.supernet()
    return network


def _free_address(obj: Object, ctx: StrategyContext) -> str:
    others = _others(obj, ctx)
    taken = {address for spec in others for address in spec.get("clusterIPs") or ()}
    network = _network(others)
    size = network.num_addresses - 3  # without network, broadcast and first address (used by kubernetes.default)
    first = _start(obj, size)
    return next(text for offset in range(size) if (text := str(network[2 + (first + offset) % size])) not in taken)


def _allocate_node_ports(obj: Object, ctx: StrategyContext, *, wants_ports: bool, checked: bool) -> None:
    """Allocate the missing node ports: with `wants_ports` for each port, with `checked` for the health check."""
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


MAX_AFFINITY_SECONDS = 86400
_ONLY_BALANCED = "may only be used when `type` is 'LoadBalancer'"
_NOT_EXTERNAL = "may not be set for ExternalName services"


def _external_name(text: str | None, path: str) -> Iterator[Cause]:
    name = (text or "").removesuffix(".")
    yield from (*r.REQUIRED(name, path), *r.DNS_SUBDOMAIN(name, path))


def _addresses(spec: Object, path: str) -> Iterator[Cause]:
    one, several, kind = spec.get("clusterIP") or "", spec.get("clusterIPs") or [], spec.get("type", "")
    if several and not one:
        yield errors.invalid_value(f"{path}.clusterIPs", several, "must be empty when `clusterIP` is not specified")
    elif several and several[0] != one:
        yield errors.invalid_value(f"{path}.clusterIPs", several, "first value must match `clusterIP`")
    if one == "None" and kind in WITH_NODE_PORTS:
        yield errors.invalid_value(f"{path}.clusterIPs[0]", "None", f"may not be set to 'None' for {kind} services")
    for index, address in enumerate(several or [one] if one else ()):
        at, parsed = f"{path}.clusterIPs[{index}]", parse_ip(address)
        if address == "None":
            continue
        if parsed is None:
            yield errors.invalid_value(at, address, IP_MESSAGE)
        elif parsed.version == 6:
            yield errors.invalid_value(at, several or [one], "IPv6 is not configured on this cluster")


def _families(spec: Object, path: str) -> Iterator[Cause]:
    free = spec.get("clusterIP") == "None" and not spec.get("selector")  # no address, so any IP families are allowed
    families, policy = spec.get("ipFamilies") or (), spec.get("ipFamilyPolicy")
    for index, family in enumerate(families):
        at = f"{path}.ipFamilies[{index}]"
        if family not in ("IPv4", "IPv6"):
            yield errors.not_supported(at, family, ("IPv4", "IPv6"))
        elif family in families[:index]:
            yield errors.duplicate(at, family)
        elif family == "IPv6" and not free:
            yield errors.invalid_value(at, family, "not configured on this cluster")
    yield from r.choice("PreferDualStack", "RequireDualStack", "SingleStack")(policy, f"{path}.ipFamilyPolicy")
    if policy == "RequireDualStack" and not free:
        yield errors.invalid_value(f"{path}.ipFamilyPolicy", policy,
                                   "this cluster is not configured for dual-stack services")


def _target(port: int | str | None, path: str) -> Iterable[Cause]:
    return r.ANY_PORT_NAME(port, path) if isinstance(port, str) else r.PORT_NUMBER(port, path)


def _external_ip(text: str, path: str) -> Iterator[Cause]:
    if not is_ip(text):
        yield errors.invalid_value(path, text, IP_MESSAGE)
    elif why := special_address(text):
        yield errors.invalid_value(path, text, why)


def _source_ranges(spec: Object, path: str) -> Iterator[Cause]:
    for index, block in enumerate(spec.get("loadBalancerSourceRanges") or ()):
        yield from block_causes(block, f"{path}.LoadBalancerSourceRanges[{index}]")  # this is the real server's path


def _is_reachable(obj: Object) -> bool:
    """Whether clients outside of the cluster can reach the Service."""
    kind: str = obj["spec"].get("type", "")
    return kind in WITH_NODE_PORTS or (kind == "ClusterIP" and bool(obj["spec"].get("externalIPs")))


def _is_checked(obj: Object) -> bool:
    """Whether a load balancer checks the nodes' health."""
    spec: Object = obj["spec"]
    return (spec.get("type"), spec.get("externalTrafficPolicy")) == ("LoadBalancer", "Local")


def _has_several_ports(obj: Object) -> bool:
    return len(obj["spec"].get("ports") or ()) > 1


_IS_EXTERNAL, _IS_BALANCED = r.equals("spec.type", "ExternalName"), r.equals("spec.type", "LoadBalancer")
_PORT = (
    ("name", r.DNS_LABEL, r.UNIQUE_IF_SET),
    ("port", r.between(1, 65535, zero=0)),
    ("protocol", r.REQUIRED, r.choice(*PROTOCOLS)),
    ("targetPort", _target),
    ("appProtocol", r.QUALIFIED),
)
_PAIR = r.Unique(lambda port: (port.get("port", 0), port.get("protocol")), lambda port: {
    "Name": "", "Protocol": port.get("protocol"), "AppProtocol": None, "Port": port.get("port", 0), "TargetPort": 0,
    "NodePort": 0})


def _ports(*node_port: r.Check) -> tuple[r.When, ...]:
    """The rows of ports. `node_port` are checks of the node ports. If there are several ports, they must have names."""
    rows: tuple[r.Row, ...] = (*_PORT, ("nodePort", *node_port), ("", _PAIR))
    return (r.when(_has_several_ports, ("spec.ports[*]", r.Rules(("name", r.REQUIRED), *rows))),
            r.when(r.negated(_has_several_ports), ("spec.ports[*]", r.Rules(*rows))))


_PORTS_AND_ADDRESSES = (
    r.when(r.negated(_IS_EXTERNAL), r.negated(r.equals("spec.clusterIP", "None")), ("spec.ports", r.REQUIRED)),
    r.when(_IS_EXTERNAL,
           r.when(r.some("spec.clusterIPs", "spec.clusterIP"), ("spec.clusterIPs", r.prohibited(_NOT_EXTERNAL))),
           ("spec.ipFamilies", r.forbidden(_NOT_EXTERNAL)),
           ("spec.ipFamilyPolicy", r.forbidden(_NOT_EXTERNAL)),
           ("spec.externalName", _external_name)),
    r.when(r.negated(_IS_EXTERNAL), ("spec", _addresses, _families)),
    r.when(r.equals("spec.type", "ClusterIP"), *_ports(r.forbidden("may not be used when `type` is 'ClusterIP'"))),
    r.when(_IS_EXTERNAL, *_ports(r.forbidden("may not be used when `type` is 'ExternalName'"))),
    r.when(r.negated(r.equals("spec.type", "ClusterIP", "ExternalName")), *_ports()),
    ("spec.selector", labels_causes),
    ("spec.sessionAffinity", r.REQUIRED, r.choice("ClientIP", "None")),
    ("spec.sessionAffinityConfig.clientIP.timeoutSeconds", r.between(
        1, MAX_AFFINITY_SECONDS, f"must be greater than 0 and less than {MAX_AFFINITY_SECONDS}")),
)

#: A load balancer's ingress point, in the status of a Service or an Ingress.
LOAD_BALANCER_POINT = r.Rules(
    ("ip", r.must(lambda text: not text or is_ip(text), IP_MESSAGE)),
    ("hostname", r.DNS_SUBDOMAIN, r.must(lambda host: not host or not is_ip(host),
                                     "must be a DNS name, not an IP address")),
)


_ALLOCATED = ("clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy", "healthCheckNodePort")


class ServiceStrategy(BuiltinStrategy):
    delete_returns_object = True
    name_errors = staticmethod(dns_label_errors)  # since 1.36 a name may begin with a digit
    fields: ClassVar[dict[str, str | Callable[[Object], str]]] = {
        "spec.clusterIP": "spec.clusterIP", "spec.type": "spec.type"}

    rules = r.Rules(
        *_PORTS_AND_ADDRESSES,
        ("spec.type", r.REQUIRED, r.choice("ClusterIP", "ExternalName", "LoadBalancer", "NodePort")),
        ("spec.externalIPs[*]", _external_ip),
        r.when(_IS_BALANCED, ("spec", _source_ranges)),
        r.when(r.negated(_IS_BALANCED), r.filled("spec.loadBalancerSourceRanges"),
               ("spec.LoadBalancerSourceRanges", r.prohibited(_ONLY_BALANCED))),
        r.when(r.has("spec.loadBalancerClass"), ("spec.loadBalancerClass", r.ANY_QUALIFIED)),
        r.when(r.negated(_IS_BALANCED),
               ("spec.allocateLoadBalancerNodePorts", r.forbidden(_ONLY_BALANCED, empty=True)),
               ("spec.loadBalancerClass", r.forbidden(_ONLY_BALANCED, empty=True))),
        r.when(_is_reachable, ("spec.externalTrafficPolicy", r.choice("Cluster", "Local"))),
        r.when(r.negated(_is_reachable), r.filled("spec.externalTrafficPolicy"),
               ("spec.externalTrafficPolicy", r.invalid("may only be set for externally-accessible services"))),
        r.when(r.negated(_is_checked), r.filled("spec.healthCheckNodePort"), ("spec.healthCheckNodePort", r.invalid(
            "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'"))),
        ("spec.internalTrafficPolicy", r.choice("Cluster", "Local")),
        ("spec.trafficDistribution", r.choice("PreferClose", "PreferSameZone", "PreferSameNode")),
    )
    status_rules = r.Rules(
        r.when(_IS_BALANCED, ("status.loadBalancer.ingress[*]", LOAD_BALANCER_POINT)),
        r.when(r.negated(_IS_BALANCED), ("status.loadBalancer.ingress", r.forbidden(
            "may only be used when `spec.type` is 'LoadBalancer'"))),
    )
    defaults = r.Defaults({
        "spec.sessionAffinity": "None",
        "spec.type": "ClusterIP",
        "spec.ports[*].protocol": "TCP",
        "spec.externalTrafficPolicy": lambda spec: "Cluster" if _is_reachable({"spec": spec}) else None,
        "spec.internalTrafficPolicy": lambda spec: "Cluster" if spec["type"] != "ExternalName" else None,
        "spec.allocateLoadBalancerNodePorts": lambda spec: spec["type"] == "LoadBalancer" or None,
    }, zero={"spec.ports[*].targetPort": lambda port: port.get("port", 0)})

    def default(self, obj: Object) -> None:
        """Fill in defaults, including the session affinity's timeout and the ipMode of a load balancer's addresses."""
        super().default(obj)
        spec = obj["spec"]
        if spec["sessionAffinity"] == "None":
            spec.pop("sessionAffinityConfig", None)
        if spec["sessionAffinity"] == "ClientIP":
            client = spec.setdefault("sessionAffinityConfig", {}).setdefault("clientIP", {})
            put_default(client, "timeoutSeconds", 10800)
        if spec["type"] == "LoadBalancer":
            for point in dig(obj, "status.loadBalancer.ingress") or ():
                if point.get("ip"):
                    put_default(point, "ipMode", "VIP")

    def prepare_create(self, obj: Object, ctx: StrategyContext) -> None:
        """Set the initial status, and fill clusterIPs from clusterIP."""
        super().prepare_create(obj, ctx)
        _list_address(obj["spec"])
        if obj["spec"]["type"] != "ExternalName" and not obj["spec"].get("clusterIPs"):
            refuse_unnamed(obj, ctx)

    def canonicalize(self, obj: Object, ctx: StrategyContext) -> bool:
        """Allocate the addresses and node ports that the client omitted."""
        allocate(obj, ctx)
        return False

    def prepare_update(self, new: Object, old: Object, subresource: str, ctx: StrategyContext) -> None:
        """Restore allocated values that the client omitted, and drop fields that only the old type may have."""
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
        """Warn about ignored or deprecated fields, and about addresses that are not canonical."""
        return list(_warnings(obj))

    def validate_create(self, obj: Object, ctx: StrategyContext) -> list[Cause]:
        """Validate the spec. If it is valid, check that its address and node ports are free."""
        return super().validate_create(obj, ctx) or allocation_causes(obj, ctx)

    def validate_update(self, new: Object, old: Object, subresource: str, ctx: StrategyContext) -> list[Cause]:
        """Validate as on create. The address cannot change."""
        if subresource:
            return super().validate_update(new, old, subresource, ctx)
        causes = []
        addresses, before = new["spec"].get("clusterIPs") or [], old["spec"].get("clusterIPs") or []
        if before and addresses and addresses[0] != before[0] and "ExternalName" not in (
                new["spec"]["type"], old["spec"]["type"]):
            causes.append(errors.invalid_value("spec.clusterIPs[0]", addresses, "may not change once set"))
        causes += super().validate_create(new, ctx)
        return causes or allocation_causes(new, ctx)


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
    """Drop fields that only the Service's old type may have, unless the client has changed them."""
    kind = spec["type"]
    ports, old_ports = spec.get("ports") or (), before.get("ports") or ()
    if kind not in WITH_NODE_PORTS and [port.get("nodePort") for port in ports] == [
            port.get("nodePort") for port in old_ports]:
        for port in ports:
            port.pop("nodePort", None)
    dropped = []
    if not _is_reachable({"spec": spec}):
        dropped.append("externalTrafficPolicy")
    if kind == "ExternalName":
        dropped.append("internalTrafficPolicy")
    if not _is_checked({"spec": spec}):
        dropped.append("healthCheckNodePort")
    if kind != "LoadBalancer":
        dropped += ["allocateLoadBalancerNodePorts", "loadBalancerClass"]
    for key in dropped:
        if key in spec and spec[key] == before.get(key):
            del spec[key]


def _keep_allocated(spec: Object, before: Object) -> None:
    """Restore allocated values, because a PUT may omit them."""
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
