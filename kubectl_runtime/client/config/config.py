"""`Config`: the address of the API server, the trusted CAs, and the credentials.

    Config.infer()              kubeconfig ($KUBECONFIG, else ~/.kube/config), then the Pod's service account
    Config.from_kubeconfig()    only a kubeconfig: files, a mapping, a text
    Config.incluster()          only the service account
    Config(cluster_url=…)       by hand

Only the credentials with the highest rank are used. `auth` outranks `token_file` and `token`, which outrank `username`
and `password`. All of them can be combined with a client certificate. Credentials are not sent over http to hosts other
than loopback, unless `allow_plain_http_credentials` is set. A Config is immutable, and its repr shows no secret.
Loading opens no connection and runs no plugin.
"""
from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kubectl_runtime.client.config.auth import ClientCertificate, Credentials, FixedCredentials, TokenFile
from kubectl_runtime.client.config.checks import (
    CertificateFiles,
    FollowedFile,
    Impersonation,
    check_credentials,
    check_server_name,
    check_types,
    checked_url,
)
from kubectl_runtime.client.config.proxies import check_proxy, is_loopback_url
from kubectl_runtime.client.config.secrets import (
    Secret,
    SecretMapping,
    frames_hidden,
    is_credential,
    reading_problem,
    secret,
    secret_fields,
    secret_file,
)
from kubectl_runtime.core.base.errors import AuthError, ConfigError, RequestError
from kubectl_runtime.core.base.guard import guarded_logger
from kubectl_runtime.core.base.threads import SYSTEM_CLOCK, Clock, Duration, seconds

if TYPE_CHECKING:
    # These modules are imported when a kubeconfig is loaded, which a program in a Pod never does.
    from kubectl_runtime.client.config.kubeconfig import Kubeconfig

log = guarded_logger(__name__)

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
UNLIMITED = 10 * 365 * 86_400.0
"""Seconds that mean no time limit: sockets accept no infinite timeout."""
_REMEDY = ("Set KUBECONFIG to a kubeconfig file, put one at ~/.kube/config, run in a Pod with a service account, "
           "or pass Config(cluster_url=...).")
_OVERRIDE = "KUBECTL_RUNTIME_DEBUG_"


class NotConfiguredError(ConfigError):
    """Nothing configures a cluster: no kubeconfig file exists, and this is not a Pod.

    >>> Config.from_kubeconfig("/no/such/file")
    Traceback (most recent call last):
        ...
    NotConfiguredError: no kubeconfig: /no/such/file does not exist. ...
    """


@secret_fields(("token", "password", "client_key_data", "proxy_url"))
@dataclass(frozen=True, kw_only=True)
class Config:
    """How to reach one API server. Durations are seconds or `timedelta`.

    `cluster_url` may have a path (a proxy's prefix); without a scheme it gets https if TLS data is given. CA, client
    certificate and key are given as a file, which is read again when it is replaced, or as data (PEM). Without `ca_*`
    the system's CAs are trusted. `proxy_url` outranks the environment's proxies, which `trust_env=False` turns off;
    `no_proxy` replaces `$NO_PROXY`. `timeout`: the default time limit of a call. It may be infinite (no limit), and so
    may `connect_timeout`. `compression`: request gzip (never on watches). `allow_plain_http_credentials`: send
    credentials over http to any host. `origin`: the source of the configuration, for messages. Raises ConfigError for
    settings that cannot work and for wrong types.

    >>> Config(cluster_url="127.0.0.1:8443/cluster", ca_data=b"-----BEGIN CERTIFICATE-----...").cluster_url
    'https://127.0.0.1:8443/cluster'
    >>> Config.from_kubeconfig("/no/such/file")
    Traceback (most recent call last):
        ...
    NotConfiguredError: no kubeconfig: /no/such/file does not exist. ...
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
    allow_plain_http_credentials: bool = False
    origin: str = "Config()"

    def __post_init__(self) -> None:
        check_types(self, self.origin)
        check_credentials(self.auth, self.origin)
        if self.tls_server_name is not None:
            check_server_name(self.tls_server_name, self.origin)
        object.__setattr__(self, "cluster_url", checked_url(self.cluster_url, self.origin, tls=self.has_tls_data))
        certificate = self.client_certificate_file or self.client_certificate_data
        if bool(certificate) != bool(self.client_key_file or self.client_key_data):
            raise ConfigError(f"{self.origin}: a client certificate needs both the certificate and its key")
        if self.insecure_skip_tls_verify and (self.ca_file or self.ca_data):
            raise ConfigError(f"{self.origin}: insecure_skip_tls_verify=True would leave the given CA unused: keep one "
                              "of the two")
        if self.proxy_url is not None:
            object.__setattr__(self, "proxy_url", Secret(check_proxy(self.proxy_url, self.origin)))
        for name in ("connect_timeout", "timeout"):
            limit = seconds(getattr(self, name))
            if not limit > 0:
                raise ConfigError(f"{self.origin}: {name} must be above 0 s, not {limit:g} s; infinite means no limit")
            object.__setattr__(self, name, min(limit, UNLIMITED))
        if self.withholds_credentials:
            kept = {name: value for name, value in self.headers.items() if not is_credential(name)}
            given = (self.auth, self.token_file, self.token, self.username)
            if len(kept) < len(self.headers) or any(value is not None for value in given):
                log.warning("%s: no credentials are sent to %s, which is neither https nor loopback: use https, or "
                            "Config(allow_plain_http_credentials=True) where that is safe", self.origin,
                            self.cluster_url)
            object.__setattr__(self, "headers", kept)

    @property
    def has_tls_data(self) -> bool:
        """Whether a CA or client certificate is given. If so, a server URL without a scheme gets https."""
        return bool(self.ca_file or self.ca_data or self.client_certificate_file or self.client_certificate_data)

    @property
    def withholds_credentials(self) -> bool:
        """Whether credentials are withheld, because anyone on the network path could read them."""
        encrypted = self.cluster_url.startswith("https://")
        near = is_loopback_url(self.cluster_url) and self.proxy_url is None
        return not (encrypted or near or self.allow_plain_http_credentials)

    def ca(self) -> FollowedFile | bytes | None:
        """The CAs to trust: a file that is read again when it changes, PEM data, or None for the system's CAs."""
        return self.ca_data or (FollowedFile(self.ca_file, "CA file") if self.ca_file else None)

    def certificate(self) -> ClientCertificate | None:
        """The current client certificate and key; None without them. Reads the files, and raises ConfigError if they
        are unusable."""
        parts = self._certificate_parts()
        if parts is None:
            return None
        certificate, key = (part.read() if isinstance(part, FollowedFile) else part for part in parts)
        names = [part.name for part in parts if isinstance(part, FollowedFile)]
        return ClientCertificate(certificate, key, " and ".join(names) or f"the client certificate of {self.origin}")

    def _certificate_parts(self) -> tuple[FollowedFile | bytes, FollowedFile | bytes] | None:
        certificate = self.client_certificate_data or (
            FollowedFile(self.client_certificate_file, "client certificate") if self.client_certificate_file else None)
        key = self.client_key_data or (
            FollowedFile(self.client_key_file, "client key") if self.client_key_file else None)
        return (certificate, key) if certificate and key else None

    def credentials(self, clock: Clock = SYSTEM_CLOCK) -> Credentials | None:
        """The credentials with the highest rank, including a client certificate in files; None if there are none, or
        if they must not be sent. Raises AuthError for a token that no header can carry, ConfigError for unusable files.
        """
        if self.withholds_credentials:
            return None
        credentials, parts = self._credentials(clock), self._certificate_parts()
        if parts is not None and any(isinstance(part, FollowedFile) for part in parts):
            return CertificateFiles(*parts, beside=credentials)
        return credentials

    def _credentials(self, clock: Clock) -> Credentials | None:
        if self.auth is not None:
            return self.auth
        if self.token_file:
            return TokenFile(self.token_file, fallback=self.token, clock=clock)
        try:
            if self.token:
                return FixedCredentials.token(self.token)
            if self.username is not None:
                return FixedCredentials.basic(self.username, self.password or "")
        except AuthError as error:
            raise AuthError(f"{self.origin}: {error}") from None
        return None

    @classmethod
    def infer(cls, *, context: str | None = None, environ: Mapping[str, str] | None = None) -> Config:
        """The configuration of this process: a kubeconfig, else the Pod's service account.

        `environ` replaces the process's environment. The variables `KUBECTL_RUNTIME_DEBUG_OVERRIDE_URL`,
        `…_IMPERSONATE_USER` and `…_IMPERSONATE_GROUP` (group names, separated by commas) override what was found.
        Raises NotConfiguredError, which names everything that was tried, when there is neither a kubeconfig nor a
        service account; ConfigError when a configuration exists but cannot be used.
        """
        environ = os.environ if environ is None else environ
        return _overridden(cls._inferred(context, environ), environ)

    @classmethod
    def _inferred(cls, context: str | None, environ: Mapping[str, str]) -> Config:
        from kubectl_runtime.client.config import kubeconfig

        paths = kubeconfig.candidates(environ)
        try:
            with frames_hidden():
                merged = kubeconfig.Kubeconfig.read(paths)
        except kubeconfig.UnreadableError as error:
            # In a container the home folder often belongs to root, and the Pod's user may be unable to read it.
            if environ.get("KUBECONFIG") or context is not None or not environ.get("KUBERNETES_SERVICE_HOST"):
                raise
            log.warning("%s; using the Pod's service account instead", error)
            return cls.incluster(environ=environ)
        if context is not None or not merged.is_empty():
            return cls._of(merged, context)
        source = "$KUBECONFIG" if environ.get("KUBECONFIG") else "the default kubeconfig"
        tried = ", ".join(f"{path} ({'is empty' if path.exists() else 'does not exist'})" for path in paths)
        try:
            return cls.incluster(environ=environ)
        except NotConfiguredError as error:
            raise NotConfiguredError(f"no cluster is configured. Tried {source}: {tried or 'no home folder is known'}; "
                                     f"{error} {_REMEDY}") from None

    @classmethod
    def from_kubeconfig(cls, source: _Source = None, context: str | None = None, *, text: str | bytes | None = None,
                        environ: Mapping[str, str] | None = None) -> Config:
        """A Config from a kubeconfig; `context` names its context, by default the current one.

        `source`: a file; several files, merged as kubectl merges `$KUBECONFIG`; a mapping; None for the files that
        `infer` reads. `text`: YAML or JSON, instead of a source. Raises ConfigError, which names the file and the
        field.
        """
        from kubectl_runtime.client.config.kubeconfig import Kubeconfig

        text = secret(text)
        if isinstance(source, Mapping):
            source = SecretMapping(source)
        if text is not None:
            if source is not None:
                raise ConfigError("from_kubeconfig takes a source or a text, not both")
            return cls._of(Kubeconfig.from_text(text), context)
        if isinstance(source, Mapping):
            return cls._of(Kubeconfig.from_dict(source), context)
        return cls._of(_read(source, os.environ if environ is None else environ), context)

    @classmethod
    def _of(cls, kubeconfig: Kubeconfig, context: str | None) -> Config:
        from kubectl_runtime.client.config.chosen_context import settings_of

        with frames_hidden():
            return cls(**settings_of(kubeconfig, context))

    @classmethod
    def incluster(cls, *, environ: Mapping[str, str] | None = None, folder: Path = SERVICE_ACCOUNT) -> Config:
        """A Config from the service account that is mounted into a Pod. Environment proxies are not used. Raises
        ConfigError."""
        environ = os.environ if environ is None else environ
        host, port = environ.get("KUBERNETES_SERVICE_HOST", "").strip("[]"), environ.get("KUBERNETES_SERVICE_PORT", "")
        if not host or not port:
            raise NotConfiguredError("the Pod's service account: KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT "
                                     "are not set.")
        for name in ("token", "ca.crt"):
            if not (folder / name).is_file():
                raise ConfigError(f"this Pod's service account is not mounted: {folder / name} does not exist "
                                  "(automountServiceAccountToken: false?)")
        return cls(cluster_url=f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}",
                   default_namespace=_namespace(folder / "namespace"), ca_file=str(folder / "ca.crt"),
                   token_file=str(folder / "token"), trust_env=False, origin=SERVICE_ACCOUNT_ORIGIN)


SERVICE_ACCOUNT_ORIGIN = "the Pod's service account"

_Source = str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | Mapping[str, Any] | None


def _read(source: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | None, environ: Mapping[str, str]
          ) -> Kubeconfig:
    from kubectl_runtime.client.config import kubeconfig

    if source is None:
        paths = kubeconfig.candidates(environ)
    else:
        listed = kubeconfig.listed_paths(source)
        paths = [kubeconfig.expanded(path) for path in listed]
    merged = kubeconfig.Kubeconfig.read(paths)
    if not merged.files:
        named = ", ".join(map(str, paths)) or "the default file (no home folder is known)"
        raise NotConfiguredError(f"no kubeconfig: {named} does not exist. {_REMEDY}")
    return merged


def _namespace(path: Path) -> str:
    """The namespace in the file that the kubelet mounts. The file is UTF-8 in every locale. Raises ConfigError."""
    try:
        return secret_file(path).decode().strip() or "default"
    except FileNotFoundError:
        return "default"
    except (OSError, ValueError) as error:
        reason = "it is not UTF-8" if isinstance(error, UnicodeError) else reading_problem(error)
        raise ConfigError(f"cannot read the Pod's namespace from {path}: {reason}") from None


def _overridden(config: Config, environ: Mapping[str, str]) -> Config:
    """`config` with the debugging variables applied; one log line reports them."""
    url, user, groups = (environ.get(_OVERRIDE + name, "") for name in (
        "OVERRIDE_URL", "IMPERSONATE_USER", "IMPERSONATE_GROUP"))
    changes: dict[str, Any] = {}
    if url:
        changes["cluster_url"] = checked_url(url, f"{_OVERRIDE}OVERRIDE_URL", tls=config.has_tls_data)
    if user:
        try:
            changes["impersonate"] = Impersonation(user, tuple(group for group in groups.split(",") if group))
        except RequestError as error:
            raise ConfigError(f"{_OVERRIDE}IMPERSONATE_USER and {_OVERRIDE}IMPERSONATE_GROUP: {error}") from None
    elif groups:
        raise ConfigError(f"{_OVERRIDE}IMPERSONATE_GROUP is set without {_OVERRIDE}IMPERSONATE_USER")
    if not changes:
        return config
    log.warning("%s: overridden by %s*: %s", config.origin, _OVERRIDE, ", ".join(changes))
    return replace(config, **changes)
