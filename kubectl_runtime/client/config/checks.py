"""Checks of a Config's fields: their types, the server's URL and its name. Pure but for making paths texts."""
from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Mapping
from dataclasses import fields
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

from kubectl_runtime.client.config.impersonation import Impersonation
from kubectl_runtime.core.base.errors import ConfigError

_TYPES: Mapping[str, tuple[tuple[type, ...], str]] = {
    "str": ((str,), "a text"), "bytes": ((bytes,), "bytes"), "bool": ((bool,), "True or False"),
    "Mapping[str, str]": ((Mapping,), "a mapping"), "Duration": ((int, float, timedelta), "seconds or a timedelta"),
    "Impersonation": ((Impersonation,), "an Impersonation"),
}
"""The annotations that are checked. (What `auth` has to be is a protocol: see `check_credentials`.)"""

_IS_USUAL_HOST = re.compile(r"[A-Za-z0-9._-]+").fullmatch


def check_types(config: Any, origin: str) -> None:
    """Check that each field of this dataclass instance holds the type that it declares: a text is never taken for a
    boolean, nor a number for a text. Paths that are `os.PathLike` become texts. Raises ConfigError."""
    for each in fields(config):
        value = getattr(config, each.name)
        if isinstance(value, os.PathLike) and each.name.endswith("_file"):
            value = os.fspath(value)
            object.__setattr__(config, each.name, value)
        declared = str(each.type)
        known = _TYPES.get(declared.removesuffix(" | None"))
        if known is None or (value is None and declared.endswith(" | None")):
            continue
        types, expected = known
        if not isinstance(value, types) or (isinstance(value, bool) and bool not in types):
            raise ConfigError(f"{origin}: {each.name} is of type {type(value).__name__}, expected {expected}")


def check_credentials(auth: object, origin: str) -> None:
    """Raise ConfigError unless `auth` has the methods of `Credentials`; a plain token has not. It is not shown."""
    needed = ("header", "refresh", "certificate")
    if auth is not None and not all(callable(getattr(auth, name, None)) for name in needed):
        raise ConfigError(f"{origin}: auth is of type {type(auth).__name__}, expected Credentials, which have the "
                          f"methods {', '.join(needed)}; a token goes into token=")


def check_server_name(name: str, origin: str) -> None:
    """Raise ConfigError for a name that no certificate can be made out to: the handshake would fail, in OpenSSL's
    words."""
    try:
        is_name = name.isprintable() and " " not in name and not name.startswith(".") and bool(name.encode("idna"))
    except UnicodeError:
        is_name = False
    if not is_name:
        raise ConfigError(f"{origin}: tls-server-name is {name!r}, which is not a host name")


def checked_url(url: str, origin: str, *, tls: bool) -> str:
    """The server's URL without slashes at its end, its scheme in lower case; https where it has none and there is TLS
    data (`tls`).

    Raises ConfigError; a password in the URL is not shown.
    """
    url = url.rstrip("/")
    if not url.isprintable() or " " in url:
        raise ConfigError(f"{origin}: the server URL has blanks or control characters in it")
    if "://" not in url:
        if not tls:
            shown = url.rpartition("@")[2]
            raise ConfigError(f"{origin}: the server URL {shown!r} has no scheme: "
                              f"write https://{shown} or http://{shown}")
        url = f"https://{url}"
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        raise ConfigError(f"{origin}: the server URL must look like https://host:port/path, "
                          "and its port is a number up to 65535") from None
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise ConfigError(f"{origin}: the server URL must look like https://host:port/path")
    if parts.username is not None:
        raise ConfigError(f"{origin}: the server URL holds a user name: use username= and password=")
    if not _is_host(parts.hostname, url, bracketed="[" in parts.netloc):
        raise ConfigError(f"{origin}: the server URL must look like https://host:port/path, "
                          "and its host is a name or an address") from None
    return parts.scheme + url[len(parts.scheme):]


def _is_host(host: str, url: str, *, bracketed: bool) -> bool:
    """Whether urllib3 and the system will take the host of `url` for one."""
    try:
        host.encode("idna")  # as connecting will: labels have a length
        if bracketed and "%" not in host:
            return ipaddress.ip_address(host).version == 6
    except ValueError:  # a UnicodeError is one
        return False
    return _IS_USUAL_HOST(host) is not None or _is_host_of_urllib3(url)


def _is_host_of_urllib3(url: str) -> bool:
    # Asked about what is neither a plain name nor an address: it takes a quarter of a client's start to import.
    from urllib3.exceptions import LocationParseError
    from urllib3.util import parse_url

    try:
        return parse_url(url).host is not None
    except LocationParseError:
        return False
