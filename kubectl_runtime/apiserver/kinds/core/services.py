"""Services: what is left out, what goes with a type, what stays allocated."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import ClassVar

from kubectl_runtime.apiserver import errors
from kubectl_runtime.apiserver.errors import Cause
from kubectl_runtime.apiserver.kinds.base import BuiltinStrategy, put_default
from kubectl_runtime.apiserver.kinds.core.service_allocation import (
    WITH_NODE_PORTS,
    allocate,
    allocation_causes,
    refuse_unnamed,
)
from kubectl_runtime.apiserver.kinds.core.service_validation import load_balancer_causes, service_causes
from kubectl_runtime.apiserver.kinds.networking.addresses import cidr_warnings, ip_warnings
from kubectl_runtime.apiserver.objectmeta.names import dns_label_errors
from kubectl_runtime.apiserver.strategy import Object, StrategyContext

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
