"""IP addresses and CIDR blocks: how they are read, and what is accepted with a warning, as it is not canonical."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator

IP_MESSAGE = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"
CIDR_MESSAGE = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"

_LINK_LOCAL_GROUPS: dict[int, ipaddress.IPv4Network | ipaddress.IPv6Network] = {
    4: ipaddress.IPv4Network("224.0.0.0/24"), 6: ipaddress.IPv6Network("ff02::/16")}

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network


def parse_ip(text: str) -> Address | None:
    """An address; leading zeros are taken for decimal, as old versions of Go did."""
    try:
        return ipaddress.ip_address(_without_zeros(text))
    except ValueError:
        return None


def parse_cidr(text: str) -> Network | None:
    """A block; bits behind the prefix are allowed."""
    address, slash, prefix = text.partition("/")
    if not slash or not prefix.isdecimal() or "%" in address:
        return None
    try:
        return ipaddress.ip_network(f"{_without_zeros(address)}/{int(prefix)}", strict=False)
    except ValueError:
        return None


def special_address(text: str) -> str:
    """Why an address cannot be that of an endpoint, "" if it can."""
    address = parse_ip(text)
    if address is None:
        return ""
    if address.is_unspecified:
        return f"may not be unspecified ({address})"
    if address.is_loopback:
        return "may not be in the loopback range (127.0.0.0/8, ::1/128)"
    if address.is_link_local:
        return "may not be in the link-local range (169.254.0.0/16, fe80::/10)"
    if address in _LINK_LOCAL_GROUPS[address.version]:
        return "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)"
    return ""


def ip_warnings(path: str, text: str) -> Iterator[str]:
    """Texts that are addresses, but not in their usual form."""
    address = parse_ip(text)
    if address is None:
        return
    mapped = getattr(address, "ipv4_mapped", None)
    if mapped is not None or (address.version == 4 and text != str(address)):
        yield f'{path}: non-standard IP address "{text}" is invalid: use "{mapped or address}"'
    elif str(address) != text:
        yield f'{path}: IPv6 address "{text}" should be in RFC 5952 canonical format ("{address}")'


def cidr_warnings(path: str, text: str) -> Iterator[str]:
    """Blocks with bits behind the prefix, or not in their usual form."""
    network = parse_cidr(text)
    if network is None:
        return
    head = text.partition("/")[0]
    address = parse_ip(head)
    found = False
    if address != network.network_address:
        yield (f'{path}: CIDR value "{text}" is ambiguous in this context (should be "{network}" or '
               f'"{address}/{network.max_prefixlen}"?)')
        found = True
    if network.version == 4 and head != str(address):
        yield f'{path}: non-standard CIDR value "{text}" is invalid: use "{network}"'
        found = True
    if not found and network.version == 6 and str(network) != text:
        yield f'{path}: IPv6 CIDR value "{text}" should be in RFC 5952 canonical format ("{network}")'


def _without_zeros(text: str) -> str:
    parts = text.split(".")
    return ".".join(str(int(part)) if part.isdecimal() and ":" not in text else part for part in parts)
