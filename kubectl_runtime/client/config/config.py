"""`Config`: where the API server is, whom to trust, and who we are.

    Config.infer()              kubeconfig ($KUBECONFIG, else ~/.kube/config), then the Pod's service account
    Config.from_kubeconfig()    only a kubeconfig          Config.incluster()   only the service account
    Config(cluster_url=…)       by hand

Of several credentials the highest rank is used: `auth`, `token` and `token_file`, then `username` and `password`.
Immutable; its repr shows no secret. Loading opens no connection and runs no plugin.
"""
from __future__ import annotations

import base64
import binascii
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from kubectl_runtime.client.config.auth import ClientCertificate, Credentials, FixedCredentials, TokenFile
from kubectl_runtime.client.config.proxies import check_proxy
from kubectl_runtime.core.base.clock import SYSTEM_CLOCK, Clock, Duration
from kubectl_runtime.core.base.errors import ConfigError

if TYPE_CHECKING:
    # What kubeconfigs need is imported where one is loaded: a program in a Pod never does.
    from kubectl_runtime.client.config.kubeconfig import Selected

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_REMEDY = ("Set KUBECONFIG to a kubeconfig file, put one at ~/.kube/config, run in a Pod with a service account, "
           "or pass Config(cluster_url=...).")


class NotConfiguredError(ConfigError):
    """Nothing configures a cluster: no kubeconfig file exists, and this is no Pod."""


@dataclass(frozen=True)
class Impersonation:
    """Whom to act as: sent as `Impersonate-*` headers; needs the right to impersonate."""

    user: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Config:
    """How to reach one API server. Durations are seconds or `timedelta`.

    `cluster_url` may have a path (a proxy's prefix); without a scheme it is https when TLS data is given. CA, client
    certificate and key come as file or as data (PEM). `ca_*` absent: the system's CAs. `proxy_url` outranks the
    environment's proxies, which `trust_env=False` turns off; `no_proxy` replaces `$NO_PROXY`. `timeout`: a call's
    default deadline. `compression`: ask for gzip (never on watches). `origin`: where the configuration came from, for
    messages.
    """

    cluster_url: str
    default_namespace: str = "default"
    ca_file: str | None = None
    ca_data: bytes | None = field(default=None, repr=False)
    client_certificate_file: str | None = None
    client_certificate_data: bytes | None = field(default=None, repr=False)
    client_key_file: str | None = None
    client_key_data: bytes | None = field(default=None, repr=False)
    insecure_skip_tls_verify: bool = False
    tls_server_name: str | None = None
    auth: Credentials | None = None
    token: str | None = field(default=None, repr=False)
    token_file: str | None = None
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    impersonate: Impersonation | None = None
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    proxy_url: str | None = field(default=None, repr=False)
    no_proxy: str | None = None
    trust_env: bool = True
    connect_timeout: Duration = 30.0
    timeout: Duration = 60.0
    compression: bool = True
    origin: str = "Config()"

    def __post_init__(self) -> None:
        object.__setattr__(self, "cluster_url", self._checked_url())
        certificate = self.client_certificate_file or self.client_certificate_data
        if bool(certificate) != bool(self.client_key_file or self.client_key_data):
            raise ConfigError(f"{self.origin}: a client certificate needs both the certificate and its key")
        if self.proxy_url is not None:
            object.__setattr__(self, "proxy_url", check_proxy(self.proxy_url, self.origin))

    def _checked_url(self) -> str:
        url = self.cluster_url.strip().rstrip("/")
        if "://" not in url:
            if not (self.ca_file or self.ca_data or self.client_certificate_file or self.client_certificate_data):
                raise ConfigError(f"{self.origin}: the server URL {url!r} has no scheme: "
                                  f"write https://{url} or http://{url}")
            url = f"https://{url}"
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
            raise ConfigError(f"{self.origin}: the server URL must look like https://host:port/path")
        if parts.username is not None:
            raise ConfigError(f"{self.origin}: the server URL holds a user name: use username= and password=")
        try:
            _ = parts.port
        except ValueError:
            raise ConfigError(f"{self.origin}: the port of the server URL {url} is not a number up to 65535") from None
        return url

    def ca(self) -> tuple[bytes | None, str]:
        """The CA's PEM, None for the system's, and what to call it in messages. Raises ConfigError. Reads a file."""
        if self.ca_data:
            return self.ca_data, f"the CA data of {self.origin}"
        if self.ca_file:
            return _read(self.ca_file, "CA file"), f"the CA file {self.ca_file}"
        return None, "the system's CAs"

    def certificate(self) -> ClientCertificate | None:
        """The client certificate and key, None for none. Raises ConfigError. Reads files."""
        certificate = self.client_certificate_data or _read_optional(self.client_certificate_file, "client certificate")
        key = self.client_key_data or _read_optional(self.client_key_file, "client key")
        return ClientCertificate(certificate, key) if certificate and key else None

    def credentials(self, clock: Clock = SYSTEM_CLOCK) -> Credentials | None:
        """The credentials of the highest rank; None for none. Raises AuthError for a token that no header can carry."""
        if self.auth is not None:
            return self.auth
        if self.token_file:
            return TokenFile(self.token_file, fallback=self.token, clock=clock)
        if self.token:
            return FixedCredentials.token(self.token)
        if self.username is not None:
            return FixedCredentials.basic(self.username, self.password or "")
        return None

    @classmethod
    def infer(cls, *, context: str | None = None, environ: Mapping[str, str] | None = None) -> Config:
        """What configures this process: a kubeconfig, else the Pod's service account.

        Raises NotConfiguredError, naming everything that was tried, when there is neither; ConfigError when what
        there is cannot be used. `environ`: instead of the process's environment.
        """
        from kubectl_runtime.client.config import kubeconfig

        environ = os.environ if environ is None else environ
        paths = kubeconfig.candidates(environ)
        merged = kubeconfig.merge(paths)
        if context is not None or not merged.is_empty():
            return _from_selected(kubeconfig.select(merged, context))
        source = "$KUBECONFIG" if environ.get("KUBECONFIG") else "the default kubeconfig"
        tried = ", ".join(f"{path} ({'is empty' if path.exists() else 'does not exist'})" for path in paths)
        try:
            return cls.incluster(environ=environ)
        except NotConfiguredError as error:
            raise NotConfiguredError(f"no cluster is configured. Tried {source}: {tried}; {error} {_REMEDY}") from None

    @classmethod
    def from_kubeconfig(cls, path: str | os.PathLike[str] | None = None, context: str | None = None, *,
                        environ: Mapping[str, str] | None = None) -> Config:
        """From the file `path` (default: as `infer`), its current context unless one is named. Raises ConfigError."""
        from kubectl_runtime.client.config import kubeconfig

        environ = os.environ if environ is None else environ
        paths = [Path(path).expanduser()] if path is not None else kubeconfig.candidates(environ)
        merged = kubeconfig.merge(paths)
        if not merged.files:
            raise NotConfiguredError(f"no kubeconfig: {', '.join(map(str, paths))} does not exist. {_REMEDY}")
        return _from_selected(kubeconfig.select(merged, context))

    @classmethod
    def incluster(cls, *, environ: Mapping[str, str] | None = None, folder: Path = SERVICE_ACCOUNT) -> Config:
        """From the service account that is mounted into a Pod. Environment proxies are not used. Raises ConfigError."""
        environ = os.environ if environ is None else environ
        host, port = environ.get("KUBERNETES_SERVICE_HOST", "").strip("[]"), environ.get("KUBERNETES_SERVICE_PORT", "")
        if not host or not port:
            raise NotConfiguredError("the Pod's service account: KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT "
                                     "are not set.")
        for name in ("token", "ca.crt"):
            if not (folder / name).is_file():
                raise ConfigError(f"this Pod's service account is not mounted: {folder / name} does not exist "
                                  "(automountServiceAccountToken: false?)")
        namespace = folder / "namespace"
        return cls(cluster_url=f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}",
                   default_namespace=(namespace.read_text().strip() if namespace.is_file() else "") or "default",
                   ca_file=str(folder / "ca.crt"), token_file=str(folder / "token"), trust_env=False,
                   origin="the Pod's service account")


def _from_selected(selected: Selected) -> Config:
    from kubectl_runtime.client.config import auth_provider
    from kubectl_runtime.client.config.exec_plugin import ExecCredentials, ExecSpec

    configuration = auth_provider.load(selected)
    cluster, user, origin = selected.cluster, selected.user, selected.origin
    plugin, provider = user.get("exec"), user.get("auth-provider")
    auth: Credentials | None = None
    if provider:
        auth = auth_provider.AuthProviderCredentials(configuration, str(provider.get("name", "")))
    elif plugin and not (user.get("token") or user.get("tokenFile")):
        auth = ExecCredentials(ExecSpec.parse(plugin, cluster=_exec_cluster(cluster)))
    return Config(
        cluster_url=configuration.host if "://" in configuration.host else str(cluster["server"]),
        default_namespace=selected.namespace, origin=origin, auth=auth,
        ca_file=cluster.get("certificate-authority"), ca_data=_data(cluster, "certificate-authority-data", origin),
        client_certificate_file=user.get("client-certificate"),
        client_certificate_data=_data(user, "client-certificate-data", origin),
        client_key_file=user.get("client-key"), client_key_data=_data(user, "client-key-data", origin),
        insecure_skip_tls_verify=not configuration.verify_ssl,
        tls_server_name=cluster.get("tls-server-name") or None,
        token=user.get("token"), token_file=user.get("tokenFile"),
        username=user.get("username"), password=user.get("password"),
        impersonate=_impersonation(user), proxy_url=cluster.get("proxy-url") or None,
        compression=not cluster.get("disable-compression"))


def _impersonation(user: Mapping[str, Any]) -> Impersonation | None:
    if not user.get("as"):
        return None
    extra = {str(key): tuple(map(str, values or ())) for key, values in (user.get("as-user-extra") or {}).items()}
    groups = tuple(map(str, user.get("as-groups") or ()))
    return Impersonation(str(user["as"]), groups, str(user.get("as-uid") or ""), extra)


def _exec_cluster(cluster: Mapping[str, Any]) -> dict[str, Any]:
    keys = ("server", "tls-server-name", "insecure-skip-tls-verify", "certificate-authority-data", "proxy-url",
            "disable-compression")
    return {key: cluster[key] for key in keys if cluster.get(key)}


def _data(section: Mapping[str, Any], key: str, origin: str) -> bytes | None:
    if not section.get(key):
        return None
    try:
        return base64.b64decode("".join(str(section[key]).split()), validate=True)
    except (binascii.Error, ValueError):
        raise ConfigError(f"{origin}: {key} is not base64") from None


def _read(path: str, what: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise ConfigError(f"cannot read the {what} {path}: {error.strerror}") from None


def _read_optional(path: str | None, what: str) -> bytes | None:
    return _read(path, what) if path else None
