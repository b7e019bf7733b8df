"""`DebugPage`: who may look at `/debug`, and what it shows of objects.

    who asks                                         answer
    a process of this host, `kubectl port-forward`   the page
    anybody else                                     403, unless `remote`

Of this host is who comes from a loopback address, names a loopback host as a browser does that was told so (a page of
somebody else's, whose name now points here, is not), and came through no proxy that says so. A sidecar that forwards
to loopback and does not say so is taken for one of this host: with `debug=None` there is no page.
"""
from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kubectl_runtime.core.base.errors import RequestError

if TYPE_CHECKING:
    from wsgiref.types import WSGIEnvironment

FORWARDED = ("HTTP_FORWARDED", "HTTP_VIA", "HTTP_X_FORWARDED_FOR", "HTTP_X_FORWARDED_HOST", "HTTP_X_REAL_IP",
             "HTTP_X_FORWARDED_CLIENT_CERT", "HTTP_X_ENVOY_EXTERNAL_ADDRESS", "HTTP_X_ENVOY_PEER_METADATA")
"""Headers by which proxies say that somebody else asks."""

_HOST = re.compile(r"(?:\[([0-9A-Fa-f:.]{2,45})\]|([A-Za-z0-9.]{1,45}))(?::[0-9]{1,5})?")


@dataclass(frozen=True, slots=True)
class DebugPage:
    """Who may look at the status page `/debug` of a Manager's server, and what it shows.

    `remote`: everybody who reaches the port may look, not only who is on this host. `details`: texts of errors are
    shown, which may quote objects; else their class and code. Raises RequestError for what is neither True nor False.

    >>> manager = Manager(client, serve="127.0.0.1:0", debug=DebugPage(details=True))
    """

    remote: bool = False
    details: bool = False

    def __post_init__(self) -> None:
        for name, value in (("remote", self.remote), ("details", self.details)):
            if not isinstance(value, bool):
                raise RequestError(f"DebugPage({name}={value!r}): it is True or False")


def is_local(environ: WSGIEnvironment) -> bool:
    """Whether somebody on this host asks; see the module."""
    try:
        address = ipaddress.ip_address(str(environ.get("REMOTE_ADDR", "")).partition("%")[0])
    except ValueError:
        return False
    address = getattr(address, "ipv4_mapped", None) or address  # as a socket for both families shows IPv4
    return (address.is_loopback and _is_loopback_host(str(environ.get("HTTP_HOST", "")))
            and not any(map(environ.get, FORWARDED)))


def _is_loopback_host(text: str) -> bool:
    """Whether a Host header is `localhost` or a loopback address, with or without a port, and nothing else besides:
    no user, no dot at the end, no zone, no other way to write a number."""
    found = _HOST.fullmatch(text)
    if found is None:
        return False
    inside, plain = found.groups()
    if plain is not None and plain.lower() == "localhost":
        return True
    try:
        address = ipaddress.IPv6Address(inside) if inside is not None else ipaddress.IPv4Address(plain)
    except ValueError:
        return False
    return (getattr(address, "ipv4_mapped", None) or address).is_loopback
