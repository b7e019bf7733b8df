"""What the client takes from a `requests.Session`, read once: where each request goes, and with what added.

    adapters   the one mounted for the server's URL; requests' own default is replaced by two `ApiAdapter`s
    verify     False: verify nothing; a path: trust these CAs      cert     the client certificate
    proxies    outrank the kubeconfig's and the environment's      auth     outranks every configured credential
    headers    those that differ from requests' defaults           hooks    the response hooks
    trust_env  False: no environment proxies

Not used: netrc, cookies, redirects, environment CA bundles, `params`. With `use_session_send` requests go through
`Session.send` (for mocks of it); session adapters and `responses` or requests_mock work without.
"""
from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec
import requests
from requests.adapters import BaseAdapter, HTTPAdapter
from requests.auth import HTTPBasicAuth
from requests.cookies import RequestsCookieJar
from requests.models import PreparedRequest, Response
from requests.utils import default_headers, select_proxy

from kubectl_runtime.client.config.auth import ClientCertificate
from kubectl_runtime.client.config.config import Config
from kubectl_runtime.client.config.files import FollowedFile
from kubectl_runtime.client.config.proxies import check_proxy, environment_proxy, without_password
from kubectl_runtime.client.http.adapters import ApiAdapter
from kubectl_runtime.client.http.tls import TlsSource
from kubectl_runtime.core.base.errors import ConfigError
from kubectl_runtime.core.base.guarded_log import guarded_logger

log = guarded_logger(__name__)

STREAM_CONNECTIONS = 16
"""Idle connections that the streams' adapter keeps: only those of watches that were refused ever become idle."""


@dataclass
class SessionRules:
    """The user's session as the client uses it. Headers, hooks and auth are fixed; adapters are remade when TLS or the
    process changes."""

    config: Config
    connections: int
    session: requests.Session | None = None
    through_session: bool = False
    headers: tuple[tuple[str, str], ...] = ()
    auth: Callable[[PreparedRequest], PreparedRequest] | None = field(default=None, repr=False)
    hooks: tuple[Callable[..., Any], ...] = ()
    proxy: str | None = field(default=None, repr=False)

    @classmethod
    def read(cls, session: requests.Session | None, config: Config, *, connections: int,
             through_session: bool) -> SessionRules:
        """Raises ConfigError for settings that cannot work. `config` of what comes back has the proxy that is used."""
        if session is None:
            session = requests.Session() if through_session else None
        rules = cls(config, connections, session, through_session)
        rules.proxy = _proxy(session, config)
        if session is not None:
            defaults = default_headers()
            rules.headers = tuple((str(name), str(value)) for name, value in session.headers.items()
                                  if defaults.get(name) != value)
            rules.auth = _auth(session.auth)
            rules.hooks = tuple(_listed(session.hooks.get("response")))
        if rules.proxy != config.proxy_url and not config.withholds_credentials:
            # The session's proxy may lead away from loopback, where credentials would have been near.
            rules.config = replace(config, proxy_url=rules.proxy)
        if session is not None and rules.config.withholds_credentials:
            rules.withhold_credentials()
        return rules

    def withhold_credentials(self) -> None:
        """Keep the session's own back as well; see `Config.withholds_credentials`."""
        kept = tuple((name, value) for name, value in self.headers if name.lower() != "authorization")
        if self.auth is not None or len(kept) < len(self.headers):
            log.warning("the session's credentials are not sent to %s, which is neither https nor loopback: use "
                        "https, or Config(allow_plain_http_credentials=True) where that is safe",
                        self.config.cluster_url)
        self.auth, self.headers = None, kept

    def adapters(self, certificate: ClientCertificate | None) -> Adapters:
        """New adapters, with no connection open, that identify themselves by `certificate` (the session's, if it has
        one).
        """
        mounted = self.session.get_adapter(self.config.cluster_url) if self.session is not None else None
        if self.through_session or (mounted is not None and not _is_default(mounted)):
            return self._foreign(mounted)
        tls = self._tls(certificate) if self.config.cluster_url.startswith("https") else None
        calls, streams = (ApiAdapter(self.config.cluster_url, size=size, tls=tls, proxy=self.proxy,
                                     server_hostname=self.config.tls_server_name)
                          for size in (self.connections, STREAM_CONNECTIONS))
        return Adapters(calls, streams, {})

    def _tls(self, certificate: ClientCertificate | None) -> TlsSource:
        verify = True if self.session is None else self.session.verify
        ca: FollowedFile | bytes | None = self.config.ca()
        source = f"the CA data of {self.config.origin}" if ca else "the system's CAs"
        if isinstance(verify, (str, os.PathLike)):
            path, source = Path(verify), f"the session's verify={str(verify)!r}"
            ca = _folder(path) if path.is_dir() else FollowedFile(path, "session's CA bundle")
        given = None if self.session is None else _session_certificate(self.session)
        return TlsSource(ca=ca, ca_source=source, certificate=given or certificate,
                         insecure=verify is False or self.config.insecure_skip_tls_verify)

    def _foreign(self, adapter: BaseAdapter | None) -> Adapters:
        """An adapter that is not ours takes trust and identity as arguments, which are files."""
        session, config = self.session, self.config
        assert session is not None
        assert adapter is not None
        verify: bool | str | None = session.verify
        if verify is True:
            verify = not config.insecure_skip_tls_verify and (config.ca_file or self._ca_path() or True)
        cert = session.cert
        if cert is None and config.client_certificate_file and config.client_key_file:
            cert = (config.client_certificate_file, config.client_key_file)
        if cert is None and config.client_certificate_data:
            raise ConfigError(f"{config.origin}: a client certificate given as data cannot be used by an adapter "
                              "mounted on the session or with use_session_send: give it as files, or mount no adapter")
        proxies = {"http": self.proxy, "https": self.proxy} if self.proxy else {}
        return Adapters(adapter, adapter, {"verify": verify, "cert": cert, "proxies": proxies}, owned=False)

    def _ca_path(self) -> str | None:
        if not self.config.ca_data:
            return None
        import tempfile

        descriptor, path = tempfile.mkstemp(suffix=".pem")  # a CA is no secret; the file goes with these rules
        with os.fdopen(descriptor, "wb") as file:
            file.write(self.config.ca_data)
        weakref.finalize(self, os.unlink, path)
        return path

    def send(self, adapter: BaseAdapter, request: PreparedRequest, arguments: Mapping[str, Any]) -> Response:
        """One request, once. Raises what requests and urllib3 raise."""
        if self.auth is not None:
            request = self.auth(request)
        if self.through_session:
            assert self.session is not None
            request._cookies = RequestsCookieJar()  # type: ignore[attr-defined] # Session.send expects one
            return self.session.send(request, allow_redirects=False, **arguments)
        response = adapter.send(request, **arguments)
        if self.hooks:
            for hook in self.hooks:  # as requests calls them: each may replace the response
                response = hook(response, **arguments) or response
        return response


class Adapters(msgspec.Struct, frozen=True):
    """The two adapters of a client, and what their `send` is given with each request. `owned`: ours to close."""

    calls: BaseAdapter
    streams: BaseAdapter
    arguments: Mapping[str, Any]
    owned: bool = True

    def grow(self, size: int) -> None:
        if isinstance(self.calls, ApiAdapter):
            self.calls.grow(size)

    def close(self) -> None:
        """Close idle connections; those in use are closed when their answer has been read."""
        if self.owned:
            self.calls.close()
            self.streams.close()


def _is_default(adapter: BaseAdapter) -> bool:
    """Whether requests itself mounted it."""
    return type(adapter) is HTTPAdapter and adapter.max_retries.total == 0


def _proxy(session: requests.Session | None, config: Config) -> str | None:
    proxy, source = _choose_proxy(session, config)
    if proxy is not None:
        log.debug("%s is reached through the proxy %s, given by %s",
                  config.cluster_url, without_password(proxy), source)
    return proxy


def _choose_proxy(session: requests.Session | None, config: Config) -> tuple[str | None, str]:
    explicit = select_proxy(config.cluster_url, session.proxies) if session is not None and session.proxies else None
    if explicit:
        return check_proxy(explicit, "the session"), "the session"
    if config.proxy_url:
        return config.proxy_url, config.origin
    if not config.trust_env or (session is not None and not session.trust_env):
        return None, ""
    environ: Mapping[str, str] = os.environ
    if config.no_proxy is not None:
        environ = {**environ, "no_proxy": config.no_proxy}
    return environment_proxy(config.cluster_url, environ), "the environment"


def _auth(auth: Any) -> Callable[[PreparedRequest], PreparedRequest] | None:
    if isinstance(auth, tuple):
        return HTTPBasicAuth(*auth)
    return auth  # type: ignore[no-any-return]


def _listed(hooks: Any) -> Iterable[Callable[..., Any]]:
    if hooks is None:
        return ()
    return (hooks,) if callable(hooks) else hooks


def _folder(path: Path) -> bytes:
    try:
        return b"\n".join(file.read_bytes() for file in sorted(path.iterdir()) if file.is_file())
    except OSError as error:
        raise ConfigError(f"cannot read the session's verify={str(path)!r}: {error.strerror}") from None


def _session_certificate(session: requests.Session) -> ClientCertificate | None:
    if session.cert is None:
        return None
    certificate, key = session.cert if isinstance(session.cert, tuple) else (session.cert, session.cert)
    try:
        return ClientCertificate(Path(certificate).read_bytes(), Path(key).read_bytes() if key != certificate else b"")
    except OSError as error:
        raise ConfigError(f"cannot read the session's client certificate: {error.strerror}") from None
