"""What tables show of Services, Endpoints, EndpointSlices, Ingresses and NetworkPolicies."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from kubectl_runtime.apiserver.kinds.base import dig, labels_text, selector_text
from kubectl_runtime.apiserver.kinds.columns.workload_columns import path
from kubectl_runtime.apiserver.output.column import Column
from kubectl_runtime.apiserver.output.table import AGE, NAME

Object = dict[str, Any]

_SHOWN = 3  # so many hosts, ports or endpoints are shown, then "+ 2 more..."


def _shortened(texts: list[str], empty: str = "<none>") -> str:
    if not texts:
        return empty
    more = f" + {len(texts) - _SHOWN} more..." if len(texts) > _SHOWN else ""
    return ",".join(texts[:_SHOWN]) + more


def _balancer(obj: Object) -> list[str]:
    return [entry.get("ip") or entry.get("hostname") or "" for entry in dig(obj, "status.loadBalancer.ingress") or ()]


def _external_ip(obj: Object, _now: datetime) -> str:
    spec = obj.get("spec") or {}
    kind, external = spec.get("type"), spec.get("externalIPs") or []
    if kind == "ExternalName":
        return str(spec.get("externalName") or "<none>")
    if kind == "LoadBalancer":
        return ",".join([*_balancer(obj), *external]) or "<pending>"
    return ",".join(external) or "<none>"


def _service_ports(obj: Object, _now: datetime) -> str:
    texts = []
    for port in dig(obj, "spec.ports") or ():
        node = f":{port['nodePort']}" if port.get("nodePort") else ""
        texts.append(f"{port.get('port')}{node}/{port.get('protocol')}")
    return ",".join(texts) or "<none>"


SERVICE_COLUMNS = (
    NAME, Column("Type", path("spec.type")),
    Column("Cluster-IP", lambda obj, _now: dig(obj, "spec.clusterIP") or "<none>"),
    Column("External-IP", _external_ip), Column("Port(s)", _service_ports), AGE,
    Column("Selector", lambda obj, _now: labels_text(dig(obj, "spec.selector")), priority=1))


def _endpoints(obj: Object, _now: datetime) -> str:
    texts: list[str] = []
    for subset in obj.get("subsets") or ():
        addresses = [entry.get("ip", "") for entry in subset.get("addresses") or ()]
        ports = [port.get("port") for port in subset.get("ports") or ()]
        texts += [f"{address}:{port}" for port in ports for address in addresses] if ports else addresses
    return _shortened(texts, "" if obj.get("subsets") else "<none>")


ENDPOINTS_COLUMNS = (NAME, Column("Endpoints", _endpoints), AGE)
ENDPOINT_SLICE_COLUMNS = (
    NAME, Column("AddressType", path("addressType")),
    Column("Ports", lambda obj, _now: _shortened(
        [str(port.get("port") or port.get("name", "*")) for port in obj.get("ports") or ()], "<unset>")),
    Column("Endpoints", lambda obj, _now: _shortened(
        [address for entry in obj.get("endpoints") or () for address in entry.get("addresses") or ()], "<unset>")), AGE)


def _hosts(obj: Object, _now: datetime) -> str:
    return _shortened([rule["host"] for rule in dig(obj, "spec.rules") or () if rule.get("host")], "*")


def _ingress_class(obj: Object, _now: datetime) -> str:
    annotated = (obj["metadata"].get("annotations") or {}).get("kubernetes.io/ingress.class")
    return str(dig(obj, "spec.ingressClassName") or annotated or "<none>")


INGRESS_COLUMNS = (
    NAME, Column("Class", _ingress_class), Column("Hosts", _hosts),
    Column("Address", lambda obj, _now: ",".join(_balancer(obj))),
    Column("Ports", lambda obj, _now: "80, 443" if dig(obj, "spec.tls") else "80"), AGE)


def _parameters(obj: Object, _now: datetime) -> str:
    parameters = dig(obj, "spec.parameters")
    if not parameters:
        return "<none>"
    group = f".{parameters['apiGroup']}" if parameters.get("apiGroup") else ""
    return f"{parameters.get('kind')}{group}/{parameters.get('name')}"


INGRESS_CLASS_COLUMNS = (NAME, Column("Controller", path("spec.controller")), Column("Parameters", _parameters), AGE)
NETWORK_POLICY_COLUMNS = (
    NAME, Column("Pod-Selector", lambda obj, _now: selector_text(dig(obj, "spec.podSelector") or {})), AGE)
