"""NetworkPolicies, IPAddresses, ServiceCIDRs."""

from __future__ import annotations

from collections.abc import Iterator

from kubectl_runtime.apiserver import errors
from kubectl_runtime.apiserver.errors import Cause
from kubectl_runtime.apiserver.kinds.base import (
    PORT_RANGE,
    BuiltinStrategy,
    immutable_causes,
    one_of,
    put_default,
    selector_causes,
)
from kubectl_runtime.apiserver.kinds.networking.addresses import (
    CIDR_MESSAGE,
    IP_MESSAGE,
    Network,
    parse_cidr,
    parse_ip,
)
from kubectl_runtime.apiserver.objectmeta.names import port_name_errors
from kubectl_runtime.apiserver.strategy import Object, StrategyContext

_DIRECTIONS = {"ingress": "from", "egress": "to"}


class NetworkPolicyStrategy(BuiltinStrategy):
    """NetworkPolicies."""

    has_generation = True

    def default(self, obj: Object) -> None:
        """Protocols; Ingress always, Egress if there are rules for it."""
        spec = obj["spec"]
        for rule in [*(spec.get("ingress") or ()), *(spec.get("egress") or ())]:
            for port in rule.get("ports") or ():
                put_default(port, "protocol", "TCP")
        if not spec.get("policyTypes"):
            spec["policyTypes"] = ["Ingress", "Egress"] if spec.get("egress") else ["Ingress"]

    def validate_create(self, obj: Object, ctx: StrategyContext) -> list[Cause]:
        """The selector, the rules and the types."""
        spec = obj["spec"]
        causes = selector_causes(spec.get("podSelector") or {}, "spec.podSelector")
        for direction, key in _DIRECTIONS.items():
            for index, rule in enumerate(spec.get(direction) or ()):
                at = f"spec.{direction}[{index}]"
                for number, port in enumerate(rule.get("ports") or ()):
                    causes += _port_causes(port, f"{at}.ports[{number}]")
                for number, peer in enumerate(rule.get(key) or ()):
                    causes += _peer_causes(peer, f"{at}.{key}[{number}]")
        types = spec.get("policyTypes") or ()
        if len(types) > 2:
            return [*causes, errors.invalid_value("spec.policyTypes", types,
                                                  "may not specify more than two policyTypes")]
        for index, kind in enumerate(types):
            causes += one_of(kind, ("Ingress", "Egress"), f"spec.policyTypes[{index}]", required=True)
        return causes

    def validate_update(self, new: Object, old: Object, subresource: str, ctx: StrategyContext) -> list[Cause]:
        """As at creation."""
        return self.validate_create(new, ctx)


def _port_causes(port: Object, path: str) -> Iterator[Cause]:
    number, end = port.get("port"), port.get("endPort")
    yield from one_of(port.get("protocol"), ("TCP", "UDP", "SCTP"), f"{path}.protocol")
    if isinstance(number, str):
        yield from (errors.invalid_value(f"{path}.port", number, why) for why in port_name_errors(number))
    elif number is not None and not 1 <= number <= 65535:
        yield errors.invalid_value(f"{path}.port", number, PORT_RANGE)
    if end is None:
        return
    if number is None:
        yield errors.invalid_value(f"{path}.endPort", end, "may not be specified when `port` is not specified")
    elif isinstance(number, str):
        yield errors.invalid_value(f"{path}.endPort", end, "may not be specified when `port` is non-numeric")
    else:
        if end < number:  # the real server shows the port, indeed
            yield errors.invalid_value(f"{path}.endPort", number, "must be greater than or equal to `port`")
        if not 1 <= end <= 65535:
            yield errors.invalid_value(f"{path}.endPort", end, PORT_RANGE)


def _peer_causes(peer: Object, path: str) -> Iterator[Cause]:
    given = [key for key in ("podSelector", "namespaceSelector", "ipBlock") if peer.get(key) is not None]
    for key in given:
        if key == "ipBlock":
            yield from _block_causes(peer[key], f"{path}.ipBlock")
        else:
            yield from selector_causes(peer[key], f"{path}.{key}")
    if not given:
        yield errors.required(path, "must specify a peer")
    elif len(given) > 1 and "ipBlock" in given:
        yield errors.forbidden_field(path, "may not specify both ipBlock and another peer")


def _block_causes(block: Object, path: str) -> Iterator[Cause]:
    text = block.get("cidr") or ""
    if not text:
        yield errors.required(f"{path}.cidr")
        return
    yield from _cidr_causes(text, f"{path}.cidr")
    network = parse_cidr(text)
    for index, exception in enumerate(block.get("except") or ()):
        at = f"{path}.except[{index}]"
        yield from _cidr_causes(exception, at)
        part = parse_cidr(exception)
        if network is not None and part is not None and not _is_within(part, network):
            yield errors.invalid_value(at, exception, "must be a strict subset of `cidr`")


def _cidr_causes(text: str, path: str) -> Iterator[Cause]:
    network = parse_cidr(text)
    if network is None:
        yield errors.invalid_value(path, text, CIDR_MESSAGE)
    elif parse_ip(text.partition("/")[0]) != network.network_address:
        yield errors.invalid_value(path, text, "must not have bits set beyond the prefix length")


def _is_within(part: Network, whole: Network) -> bool:
    return (part.version == whole.version and part.prefixlen > whole.prefixlen
            and part.network_address in whole)


class IPAddressStrategy(BuiltinStrategy):
    """IPAddresses: their name is the address."""

    def validate_name(self, name: str, *, prefix: bool = False) -> list[str]:
        """An address in its usual form."""
        parsed = parse_ip(name)
        return [] if parsed is not None and str(parsed) == name else [IP_MESSAGE]

    def validate_create(self, obj: Object, ctx: StrategyContext) -> list[Cause]:
        """Whose it is."""
        parent = obj["spec"].get("parentRef")
        if parent is None:
            return [errors.required("spec.parentRef")]
        return [errors.required(f"spec.parentRef.{key}") for key in ("resource", "name") if not parent.get(key)]

    def validate_update(self, new: Object, old: Object, subresource: str, ctx: StrategyContext) -> list[Cause]:
        """The owner stays."""
        return self.validate_create(new, ctx) + immutable_causes(new["spec"], old["spec"], ("parentRef",))


class ServiceCIDRStrategy(BuiltinStrategy):
    """ServiceCIDRs; the addresses of Services come from the server's own range."""

    has_status = True

    def validate_create(self, obj: Object, ctx: StrategyContext) -> list[Cause]:
        """One block for each family."""
        blocks = obj["spec"].get("cidrs") or []
        if not blocks:
            return [errors.required("spec.cidrs", "at least one CIDR required")]
        causes = [cause for index, block in enumerate(blocks) for cause in _cidr_causes(block, f"spec.cidrs[{index}]")]
        versions = [network.version for block in blocks if (network := parse_cidr(block)) is not None]
        if len(blocks) > 1 and len(set(versions)) < len(blocks):
            causes.append(errors.invalid_value("spec.cidrs", blocks, "may specify no more than one IP for each IP "
                                               "family, i.e 192.168.0.0/24 and 2001:db8::/64"))
        return causes

    def validate_update(self, new: Object, old: Object, subresource: str, ctx: StrategyContext) -> list[Cause]:
        """The blocks stay."""
        return [] if subresource else immutable_causes(new["spec"], old["spec"], ("cidrs",))
