"""`WireRules`: the connection settings of a client: its proxy, the trusted CAs, and its client certificate.

The rules are complete and checked when the client is made. The wire itself (client/wire), which needs requests, is
built from the rules at the first call.
"""
from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from kubectl_runtime.client.config.auth import ClientCertificate
from kubectl_runtime.client.config.checks import FollowedFile
from kubectl_runtime.client.config.config import Config
from kubectl_runtime.client.config.proxies import check_proxy, environment_proxy, without_password
from kubectl_runtime.client.config.secrets import frames_hidden, reading_problem, secret, secret_file
from kubectl_runtime.client.http.sockets import TlsSource
from kubectl_runtime.core.base.errors import ConfigError
from kubectl_runtime.core.base.guard import guarded_logger

if TYPE_CHECKING:
    import requests
    from requests.adapters import BaseAdapter
    from requests.models import PreparedRequest

log = guarded_logger(__name__)


@dataclass
class WireRules:
    """The rules for every connection of a client: proxy, trust, identity, pool size. Immutable, except `connections`,
    the number of idle connections to keep for calls. `verify` and all fields after it are set only for a client with a
    requests.Session (client/wire/carrier.py)."""

    config: Config
    """The Config, whose `proxy_url` is the proxy that is used."""
    connections: int
    proxy: str | None = field(default=None, repr=False)
    verify: bool | str | os.PathLike[str] | None = True
    """With False, no certificate is verified. A path names the CAs to trust instead of the Config's."""
    certificate: ClientCertificate | None = None
    """The session's client certificate, which outranks the certificates of the Config and of the credentials."""
    session: requests.Session | None = None
    through_session: bool = False
    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    auth: Callable[[PreparedRequest], PreparedRequest] | None = field(default=None, repr=False)
    hooks: tuple[Callable[..., Any], ...] = ()
    mounted: BaseAdapter | None = None
    """The session's adapter, which carries every call in place of the library's own adapters."""
    arguments: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """The arguments that are passed to the adapter's `send` with each request."""

    @classmethod
    def of(cls, config: Config, *, connections: int, proxy: str | None = None, trust_env: bool = True) -> Self:
        """The rules of a Config. `proxy` outranks the Config's proxy, which outranks the environment's. Raises
        ConfigError for an invalid proxy."""
        with frames_hidden():
            used: str | None = secret(_proxy(config, proxy, trust_env))
        if used != config.proxy_url and not config.withholds_credentials:
            # The Config must know the proxy: with a proxy, it withholds credentials even from an http loopback URL.
            config = replace(config, proxy_url=used)
        return cls(config, connections, used)

    def tls(self, certificate: ClientCertificate | None) -> TlsSource | None:
        """The TLS settings of new connections: trusted CAs and client certificate (`certificate`, unless a session's
        certificate outranks it). None if the library makes no TLS connections. Raises ConfigError."""
        if self.mounted is not None or not self.config.cluster_url.startswith("https"):
            return None
        ca: FollowedFile | bytes | None = self.config.ca()
        source = f"the CA data of {self.config.origin}" if ca else "the system's CAs"
        if isinstance(self.verify, str | os.PathLike):
            path, source = Path(self.verify), f"the session's verify={str(self.verify)!r}"
            ca = _folder(path) if path.is_dir() else FollowedFile(path, "session's CA bundle")
        return TlsSource(ca=ca, ca_source=source, certificate=self.certificate or certificate,
                         insecure=self.verify is False or self.config.insecure_skip_tls_verify)


def _proxy(config: Config, explicit: str | None, trust_env: bool) -> str | None:
    if explicit:
        proxy, source = check_proxy(explicit, "the session"), "the session"
    elif config.proxy_url:
        proxy, source = config.proxy_url, config.origin
    elif config.trust_env and trust_env:
        environ: Mapping[str, str] = os.environ
        if config.no_proxy is not None:
            environ = {**environ, "no_proxy": config.no_proxy}
        found = environment_proxy(config.cluster_url, environ)
        if found is None:
            return None
        proxy, source = found, "the environment"
    else:
        return None
    log.debug("%s is reached through the proxy %s, given by %s", config.cluster_url, without_password(proxy), source)
    return proxy


def _folder(path: Path) -> bytes:
    try:
        return b"\n".join(secret_file(file) for file in sorted(path.iterdir()) if file.is_file())
    except (OSError, ValueError) as error:
        raise ConfigError(f"cannot read the session's verify={str(path)!r}: {reading_problem(error)}") from None
