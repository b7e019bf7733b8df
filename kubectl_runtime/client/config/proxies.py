"""Which proxy, if any, is used for a URL: an explicit one, else the kubeconfig's, else the environment's. Pure
functions, called once per host.

The environment's `HTTPS_PROXY`, `HTTP_PROXY` and `ALL_PROXY` (upper or lower case; lower case wins) are used unless
`NO_PROXY` matches the host: `*`, a bare address, a CIDR range, a name (itself and its subdomains), a `.suffix`
(subdomains only), each with an optional `:port`. Loopback addresses and `localhost` never go through an environment
proxy.
"""
from __future__ import annotations

import base64
import importlib.util
import ipaddress
from collections.abc import Mapping
from urllib.parse import unquote, urlsplit

import msgspec

from kubectl_runtime.client.config.checks import has_host
from kubectl_runtime.client.config.secrets import Secret
from kubectl_runtime.core.base.errors import ConfigError, MissingExtra

_DEFAULT_PORTS = {"http": 80, "https": 443}
_SOCKS_PORT = 1080
_SCHEMES = ("http", "https", "socks5", "socks5h", "socks4", "socks4a")


class Proxy(msgspec.Struct, frozen=True):
    """A proxy, parsed from its URL."""

    scheme: str
    host: str
    port: int
    username: str | None = None
    password: Secret | None = None

    @classmethod
    def of(cls, url: str) -> Proxy:
        """The proxy of a URL that `check_proxy` has accepted."""
        parts = urlsplit(url)
        username = None if parts.username is None else unquote(parts.username)
        password = None if parts.password is None else Secret(unquote(parts.password))
        return cls(parts.scheme, parts.hostname or "", parts.port or _DEFAULT_PORTS.get(parts.scheme, _SOCKS_PORT),
                   username, password)

    @property
    def is_socks(self) -> bool:
        """Whether this proxy is a SOCKS proxy, not an HTTP proxy."""
        return self.scheme.startswith("socks")

    @property
    def place(self) -> str:
        """Host and port."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def authorization(self) -> Secret | None:
        """The value of the Proxy-Authorization header; None without a user name."""
        if self.username is None:
            return None
        return Secret("Basic " + base64.b64encode(f"{self.username}:{self.password or ''}".encode()).decode())

    def __repr__(self) -> str:
        return f"<{self.scheme} proxy {self.place}>"  # without the password


def environment_proxy(url: str, environ: Mapping[str, str]) -> str | None:
    """The proxy for `url` according to `environ`; None means a direct connection."""
    parts = urlsplit(url)
    host = (parts.hostname or "").rstrip(".")
    port = parts.port or _DEFAULT_PORTS.get(parts.scheme, 443)
    if not host or _is_loopback(host) or matches_no_proxy(host, port, _variable(environ, "no_proxy") or ""):
        return None
    found = _variable(environ, f"{parts.scheme}_proxy") or _variable(environ, "all_proxy")
    return check_proxy(found, "the environment") if found else None


def matches_no_proxy(host: str, port: int, no_proxy: str) -> bool:
    """Whether `no_proxy` (entries separated by commas or spaces) exempts this host."""
    return any(_entry_matches(host.lower(), port, entry) for entry in no_proxy.replace(",", " ").lower().split())


def check_proxy(proxy: str, source: str) -> str:
    """`proxy` with its scheme (http when it has none). Raises ConfigError when `proxy` is not the URL of a proxy, and
    MissingExtra for a SOCKS proxy without PySocks."""
    scheme = proxy.partition("://")[0] if "://" in proxy else ""
    url = Secret(scheme.lower() + proxy[len(scheme):] if scheme else f"http://{proxy}")
    if not _is_proxy(url):
        raise ConfigError(f"the proxy of {source} is not a proxy URL: expected e.g. http://proxy.example.com:3128 "
                          f"(scheme one of {', '.join(_SCHEMES)})")
    if url.startswith("socks"):
        _require_socks(source)
    return url


def _is_proxy(url: str) -> bool:
    try:
        parts = urlsplit(url)
        _ = parts.port  # raises ValueError if it is not a number
    except ValueError:
        return False
    usable = url.isprintable() and " " not in url and "\\" not in url
    return parts.scheme in _SCHEMES and usable and has_host(parts.netloc)


def _require_socks(source: str) -> None:
    if importlib.util.find_spec("socks") is None:
        raise MissingExtra(f"the SOCKS proxy of {source} needs", "socks")


def is_loopback_url(url: str) -> bool:
    """Whether requests to `url` stay on this machine."""
    try:
        host = (urlsplit(url).hostname or "").rstrip(".")
    except ValueError:
        return False
    return _is_loopback(host)


def without_password(proxy: str) -> str:
    """`proxy` in a form that may be logged: without user information."""
    parts = urlsplit(proxy)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


def _variable(environ: Mapping[str, str], name: str) -> str | None:
    return environ.get(name) or environ.get(name.upper()) or None


def _is_loopback(host: str) -> bool:
    address = address_of(host)
    return host == "localhost" or (address is not None and address.is_loopback)


def _entry_matches(host: str, port: int, entry: str) -> bool:
    if entry == "*":
        return True
    address = address_of(host)
    if "/" in entry:
        return address is not None and _in_network(address, entry)
    name, entry_port = _split_port(entry)
    if entry_port is not None and entry_port != port:
        return False
    if address is not None:
        return address_of(name) == address
    if name.startswith("*."):
        name = name[1:]
    return host.endswith(name) if name.startswith(".") else host == name or host.endswith("." + name)


def _split_port(entry: str) -> tuple[str, int | None]:
    if entry.startswith("["):
        name, _, rest = entry[1:].partition("]")
        return name, int(rest[1:]) if rest[1:].isdigit() else None
    name, colon, port = entry.rpartition(":")
    if colon and port.isdigit() and ":" not in name:
        return name, int(port)
    return entry, None


def address_of(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """`text`, in brackets or not, as an IP address; None for a name."""
    try:
        return ipaddress.ip_address(text.strip("[]"))
    except ValueError:
        return None


def _in_network(address: ipaddress.IPv4Address | ipaddress.IPv6Address, network: str) -> bool:
    try:
        return address in ipaddress.ip_network(network, strict=False)
    except ValueError:
        return False
