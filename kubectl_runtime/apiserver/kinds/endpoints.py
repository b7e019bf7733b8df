"""EndpointSlices: the addresses behind Services.

Endpoints: the addresses behind Services, in the older form.
"""
from __future__ import annotations

from collections.abc import Iterator

from kubectl_runtime.apiserver import errors
from kubectl_runtime.apiserver.errors import Cause
from kubectl_runtime.apiserver.kinds.base import (
    IP_MESSAGE,
    PORT_RANGE,
    BuiltinStrategy,
    ip_warnings,
    label_causes,
    one_of,
    parse_ip,
    put_default,
    special_address,
)
from kubectl_runtime.apiserver.kinds.pod.containers import PROTOCOLS
from kubectl_runtime.apiserver.objectmeta.names import (
    dns_label_errors,
    dns_subdomain_errors,
    label_value_errors,
    qualified_name_errors,
)
from kubectl_runtime.apiserver.strategy import Object, StrategyContext

MAX_ADDRESSES, MAX_ENDPOINTS, MAX_PORTS = 100, 1000, 20000


class EndpointSliceStrategy(BuiltinStrategy):
    """EndpointSlices."""

    has_generation = True

    def default(self, obj: Object) -> None:
        """Names and protocols of the ports."""
        for port in obj.get("ports") or ():
            put_default(port, "name", "")
            put_default(port, "protocol", "TCP")

    def prepare_create(self, obj: Object, ctx: StrategyContext) -> None:
        """The topology of the beta versions is no more."""
        for endpoint in obj.get("endpoints") or ():
            endpoint.pop("deprecatedTopology", None)

    def prepare_update(self, new: Object, old: Object, subresource: str, ctx: StrategyContext) -> None:
        """As at creation."""
        self.prepare_create(new, ctx)

    def generation_part(self, obj: Object) -> object:
        """Everything but the metadata; of that, the labels."""
        rest = {key: value for key, value in obj.items() if key not in ("metadata", "kind", "apiVersion")}
        return rest, obj["metadata"].get("labels") or {}

    def validate_create(self, obj: Object, ctx: StrategyContext) -> list[Cause]:
        """The address type; every endpoint has addresses of it."""
        kind, endpoints, ports = obj.get("addressType"), obj.get("endpoints") or (), obj.get("ports") or ()
        causes = one_of(kind, ("FQDN", "IPv4", "IPv6"), "addressType", required=True)
        if len(endpoints) > MAX_ENDPOINTS:
            causes.append(errors.too_many("endpoints", len(endpoints), MAX_ENDPOINTS))
        for index, endpoint in enumerate(endpoints):
            causes += _endpoint_causes(endpoint, f"endpoints[{index}]", kind or "")
        if len(ports) > MAX_PORTS:
            causes.append(errors.too_many("ports", len(ports), MAX_PORTS))
        return causes + list(_slice_port_causes(ports))

    def validate_update(self, new: Object, old: Object, subresource: str, ctx: StrategyContext) -> list[Cause]:
        """The address type is fixed."""
        if new.get("addressType") != old.get("addressType"):
            return [errors.immutable("addressType", new.get("addressType"))]
        return self.validate_create(new, ctx)

    def warnings(self, obj: Object, old: Object | None) -> list[str]:
        """Names as addresses; addresses in an unusual form."""
        found = ["spec.addressType: FQDN endpoints are deprecated"
                 ] if old is None and obj.get("addressType") == "FQDN" else []
        return found + [text for index, endpoint in enumerate(obj.get("endpoints") or ())
                        for number, address in enumerate(endpoint.get("addresses") or ())
                        for text in ip_warnings(f"endpoints[{index}].addresses[{number}]", address)]


def _endpoint_causes(endpoint: Object, path: str, kind: str) -> Iterator[Cause]:
    addresses = endpoint.get("addresses") or ()
    if not addresses:
        yield errors.required(f"{path}.addresses", "must contain at least 1 address")
    elif len(addresses) > MAX_ADDRESSES:
        yield errors.too_many(f"{path}.addresses", len(addresses), MAX_ADDRESSES)
    else:
        for index, address in enumerate(addresses):
            yield from _address_causes(address, f"{path}.addresses", index, kind)
    if node := endpoint.get("nodeName"):
        yield from (errors.invalid_value(f"{path}.nodeName", node, why) for why in dns_subdomain_errors(node))
    for index, zone in enumerate((endpoint.get("hints") or {}).get("forZones") or ()):
        yield from (errors.invalid_value(f"{path}.hints.forZones[{index}].name", zone.get("name", ""), why)
                    for why in label_value_errors(zone.get("name", "")))
    if name := endpoint.get("hostname"):
        yield from (errors.invalid_value(f"{path}.hostname", name, why) for why in dns_label_errors(name))


def _address_causes(address: str, path: str, index: int, kind: str) -> Iterator[Cause]:
    at = f"{path}[{index}]"
    if kind == "FQDN":
        yield from (errors.invalid_value(at, address, why) for why in dns_subdomain_errors(address))
    elif (parsed := parse_ip(address)) is None:
        yield errors.invalid_value(at, address, IP_MESSAGE)
    elif kind in ("IPv4", "IPv6") and f"IPv{parsed.version}" != kind:
        yield errors.invalid_value(path, address, f"must be an {kind} address")
    elif why := special_address(address):
        yield errors.invalid_value(at, address, why)


def _slice_port_causes(ports: list[Object] | tuple[()]) -> Iterator[Cause]:
    seen = set()
    for index, port in enumerate(ports):
        at, name = f"ports[{index}]", port.get("name") or ""
        if name:
            yield from (errors.invalid_value(f"{at}.name", name, why) for why in dns_label_errors(name))
        if name in seen:
            yield errors.duplicate(f"{at}.name", name)
        seen.add(name)
        yield from one_of(port.get("protocol"), PROTOCOLS, f"{at}.protocol", required=True)
        if protocol := port.get("appProtocol"):
            yield from (errors.invalid_value(f"{at}.appProtocol", protocol, why)
                        for why in qualified_name_errors(protocol))


class EndpointsStrategy(BuiltinStrategy):
    """Endpoints."""

    def default(self, obj: Object) -> None:
        """The protocol of the ports."""
        for subset in obj.get("subsets") or ():
            for port in subset.get("ports") or ():
                put_default(port, "protocol", "TCP")

    def validate_create(self, obj: Object, ctx: StrategyContext) -> list[Cause]:
        """Every subset has an address, and good ones."""
        return [cause for index, subset in enumerate(obj.get("subsets") or ())
                for cause in _subset_causes(subset, f"subsets[{index}]")]

    def validate_update(self, new: Object, old: Object, subresource: str, ctx: StrategyContext) -> list[Cause]:
        """As at creation."""
        return self.validate_create(new, ctx)

    def warnings(self, obj: Object, old: Object | None) -> list[str]:
        """Addresses in an unusual form."""
        return [text for index, subset in enumerate(obj.get("subsets") or ())
                for key in ("addresses", "notReadyAddresses") for number, address in enumerate(subset.get(key) or ())
                for text in ip_warnings(f"subsets[{index}].{key}[{number}].ip", address.get("ip") or "")]


def _subset_causes(subset: Object, path: str) -> Iterator[Cause]:
    if not subset.get("addresses") and not subset.get("notReadyAddresses"):
        yield errors.required(path, "must specify `addresses` or `notReadyAddresses`")
    for key in ("addresses", "notReadyAddresses"):
        for index, address in enumerate(subset.get(key) or ()):
            at, text = f"{path}.{key}[{index}]", address.get("ip") or ""
            if parse_ip(text) is None:
                yield errors.invalid_value(f"{at}.ip", text, IP_MESSAGE)
                yield errors.invalid_value(f"{at}.ip", text, "must be a valid IP address")
            elif ":" in text and "." in text:
                yield errors.invalid_value(f"{at}.ip", text, "must not be an IPv4-mapped IPv6 address")
            elif why := special_address(text):
                yield errors.invalid_value(f"{at}.ip", text, why)
            yield from label_causes(address["hostname"], f"{at}.hostname") if address.get("hostname") else ()
            if node := address.get("nodeName"):
                yield from (errors.invalid_value(f"{at}.nodeName", node, why) for why in dns_subdomain_errors(node))
    ports = subset.get("ports") or ()
    for index, port in enumerate(ports):
        at = f"{path}.ports[{index}]"
        if port.get("name"):
            yield from label_causes(port["name"], f"{at}.name")
        elif len(ports) > 1:
            yield errors.required(f"{at}.name")
        if not 1 <= port.get("port", 0) <= 65535:
            yield errors.invalid_value(f"{at}.port", port.get("port", 0), PORT_RANGE)
        yield from one_of(port.get("protocol"), PROTOCOLS, f"{at}.protocol", required=True)
        if protocol := port.get("appProtocol"):
            yield from (errors.invalid_value(f"{at}.appProtocol", protocol, why)
                        for why in qualified_name_errors(protocol))
