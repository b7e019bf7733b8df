"""EndpointSlices and the older kind Endpoints, which hold the addresses behind Services."""

from __future__ import annotations

from collections.abc import Iterator

from kubectl_runtime.apiserver import errors
from kubectl_runtime.apiserver.errors import Cause
from kubectl_runtime.apiserver.kinds import rules as r
from kubectl_runtime.apiserver.kinds.base import (
    IP_MESSAGE,
    BuiltinStrategy,
    ip_warnings,
    is_ip,
    parse_ip,
    special_address,
)
from kubectl_runtime.apiserver.kinds.pod.containers import PROTOCOLS
from kubectl_runtime.apiserver.strategy import StrategyContext
from kubectl_runtime.apiserver.wire import Object

MAX_ADDRESSES, MAX_ENDPOINTS, MAX_PORTS = 100, 1000, 20000


def _slice_addresses(obj: Object, path: str) -> Iterator[Cause]:
    """Yield a cause for each error of the endpoints. Their addresses must have the slice's addressType."""
    kind = obj.get("addressType") or ""
    for index, endpoint in enumerate(obj.get("endpoints") or ()):
        at, addresses = f"{path}endpoints[{index}]", endpoint.get("addresses") or ()
        if not addresses:
            yield errors.required(f"{at}.addresses", "must contain at least 1 address")
        elif len(addresses) > MAX_ADDRESSES:
            yield errors.too_many(f"{at}.addresses", len(addresses), MAX_ADDRESSES)
        else:
            for number, address in enumerate(addresses):
                yield from _address_causes(address, f"{at}.addresses", number, kind)
        yield from _ENDPOINT(endpoint, at)


def _address_causes(address: str, path: str, index: int, kind: str) -> Iterator[Cause]:
    at = f"{path}[{index}]"
    if kind == "FQDN":
        yield from r.ANY_SUBDOMAIN(address, at)
    elif (parsed := parse_ip(address)) is None:
        yield errors.invalid_value(at, address, IP_MESSAGE)
    elif kind in ("IPv4", "IPv6") and f"IPv{parsed.version}" != kind:
        yield errors.invalid_value(path, address, f"must be an {kind} address")
    elif why := special_address(address):
        yield errors.invalid_value(at, address, why)


_ENDPOINT = r.Rules(
    ("nodeName", r.DNS_SUBDOMAIN),
    ("hints.forZones[*].name", r.LABEL_VALUE),
    ("hostname", r.DNS_LABEL),
)
_SLICE_PORT = r.Rules(
    ("name", r.DNS_LABEL, r.UNIQUE),
    ("protocol", r.REQUIRED, r.choice(*PROTOCOLS)),
    ("appProtocol", r.QUALIFIED),
)


class EndpointSliceStrategy(BuiltinStrategy):
    has_generation = True
    defaults = r.Defaults({"ports[*].name": "", "ports[*].protocol": "TCP"})
    rules = r.Rules(
        ("addressType", r.REQUIRED, r.choice("FQDN", "IPv4", "IPv6")),
        ("endpoints", r.at_most_items(MAX_ENDPOINTS)),
        ("", _slice_addresses),
        ("ports", r.at_most_items(MAX_PORTS)),
        ("ports[*]", _SLICE_PORT),
    )

    def prepare_create(self, obj: Object, ctx: StrategyContext) -> None:
        """Drop deprecatedTopology, a field of the beta versions."""
        for endpoint in obj.get("endpoints") or ():
            endpoint.pop("deprecatedTopology", None)

    def prepare_update(self, new: Object, old: Object, subresource: str, ctx: StrategyContext) -> None:
        self.prepare_create(new, ctx)

    def generation_part(self, obj: Object) -> object:
        rest = {key: value for key, value in obj.items() if key not in ("metadata", "kind", "apiVersion")}
        return rest, obj["metadata"].get("labels") or {}

    def validate_update(self, new: Object, old: Object, subresource: str, ctx: StrategyContext) -> list[Cause]:
        """Validate an update. If the addressType has changed, only this change is reported."""
        if new.get("addressType") != old.get("addressType"):
            return [errors.immutable("addressType", new.get("addressType"))]
        return self.validate_create(new, ctx)

    def warnings(self, obj: Object, old: Object | None) -> list[str]:
        """Warn about FQDN addresses and about addresses that are not canonical."""
        found = ["spec.addressType: FQDN endpoints are deprecated"
                 ] if old is None and obj.get("addressType") == "FQDN" else []
        return found + [text for index, endpoint in enumerate(obj.get("endpoints") or ())
                        for number, address in enumerate(endpoint.get("addresses") or ())
                        for text in ip_warnings(f"endpoints[{index}].addresses[{number}]", address)]


def _address(given: str | None, path: str) -> Iterator[Cause]:
    text = given or ""
    if not is_ip(text):
        yield errors.invalid_value(path, text, IP_MESSAGE)
        yield errors.invalid_value(path, text, "must be a valid IP address")
    elif ":" in text and "." in text:
        yield errors.invalid_value(path, text, "must not be an IPv4-mapped IPv6 address")
    elif why := special_address(text):
        yield errors.invalid_value(path, text, why)


_ADDRESS = r.Rules(("ip", _address), ("hostname", r.DNS_LABEL), ("nodeName", r.DNS_SUBDOMAIN))
_PORT = (
    ("name", r.DNS_LABEL),
    ("port", r.between(1, 65535, zero=0)),
    ("protocol", r.REQUIRED, r.choice(*PROTOCOLS)),
    ("appProtocol", r.QUALIFIED),
)


def _has_several_ports(subset: Object) -> bool:
    return len(subset.get("ports") or ()) > 1


class EndpointsStrategy(BuiltinStrategy):
    """Endpoints. Every subset must have addresses."""

    defaults = r.Defaults({"subsets[*].ports[*].protocol": "TCP"})
    rules = r.Rules(("subsets[*]", r.Rules(
        r.when(r.lacks("addresses", "notReadyAddresses"),
               ("", r.missing("must specify `addresses` or `notReadyAddresses`"))),
        ("addresses[*]", _ADDRESS),
        ("notReadyAddresses[*]", _ADDRESS),
        r.when(_has_several_ports, ("ports[*]", r.Rules(("name", r.REQUIRED), *_PORT))),
        r.when(r.negated(_has_several_ports), ("ports[*]", r.Rules(*_PORT))),
    )))

    def warnings(self, obj: Object, old: Object | None) -> list[str]:
        """Warn about addresses that are not canonical."""
        return [text for index, subset in enumerate(obj.get("subsets") or ())
                for key in ("addresses", "notReadyAddresses") for number, address in enumerate(subset.get(key) or ())
                for text in ip_warnings(f"subsets[{index}].{key}[{number}].ip", address.get("ip") or "")]
