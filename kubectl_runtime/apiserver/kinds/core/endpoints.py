"""Endpoints: the addresses behind Services, in the older form."""

from __future__ import annotations

from collections.abc import Iterator

from kubectl_runtime.apiserver import errors
from kubectl_runtime.apiserver.errors import Cause
from kubectl_runtime.apiserver.kinds.base import (
    PORT_RANGE,
    BuiltinStrategy,
    label_causes,
    one_of,
    put_default,
)
from kubectl_runtime.apiserver.kinds.networking.addresses import (
    IP_MESSAGE,
    ip_warnings,
    parse_ip,
    special_address,
)
from kubectl_runtime.apiserver.kinds.pod.containers import PROTOCOLS
from kubectl_runtime.apiserver.objectmeta.names import (
    dns_subdomain_errors,
    qualified_name_errors,
)
from kubectl_runtime.apiserver.strategy import Object, StrategyContext


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
