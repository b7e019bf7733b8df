"""A webhook server's certificates: `CertificateFolder` reloads files, `SelfSigned` makes its own certificates.

`context()` returns the TLS context for a new connection, and blocks only to read files. `ca_bundle` is the CA that
clients must trust; empty if the CA is managed elsewhere.
"""
from __future__ import annotations

import os
import re
import ssl
import threading
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Protocol

from kubectl_runtime.certificates.authority import HOSTS, Authority, Certificate
from kubectl_runtime.certificates.bundles import server_context
from kubectl_runtime.client.config.checks import FollowedFile
from kubectl_runtime.core.base.errors import ConfigError, RequestError
from kubectl_runtime.core.base.guard import guarded_logger
from kubectl_runtime.core.base.threads import Clock, seconds

log = guarded_logger(__name__)

AUTHORITY_NAME = "kubectl-runtime webhook"
"""The name of every CA that this module makes. CAs of dead processes are recognized by this name."""
CERTIFICATE, KEY, CA = "tls.crt", "tls.key", "ca.crt"
"""The files of a Secret of type `kubernetes.io/tls`, as cert-manager writes it and a Pod mounts it."""


class ServingCertificates(Protocol):
    """A server's certificates, from files or made by the server itself. Thread-safe."""

    @property
    def ca_bundle(self) -> bytes:
        """The CA that a caller must trust, as PEM; empty if the CA is unknown."""

    def context(self) -> ssl.SSLContext:
        """The TLS context for a newly accepted connection."""


class CertificateFolder:
    """`tls.crt` and `tls.key` in a folder, reloaded when they change. The next connection uses the new pair.

    While the files do not match, for example during a replacement, the last pair stays in use, and one warning is
    logged.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        """Raises ConfigError, which names the file, if the files cannot be used now."""
        self._folder = Path(folder)
        self._certificate = FollowedFile(self._folder / CERTIFICATE, "certificate")
        self._key = FollowedFile(self._folder / KEY, "key")
        self._lock = threading.Lock()
        self._context = self._read()

    @property
    def ca_bundle(self) -> bytes:
        """The content of `ca.crt` in the folder; empty if the file does not exist."""
        try:
            return (self._folder / CA).read_bytes()
        except OSError:
            return b""

    def context(self) -> ssl.SSLContext:
        """The TLS context with the folder's current certificate. Reads files that have changed."""
        if not (self._certificate.has_changed() or self._key.has_changed()) or not self._lock.acquire(blocking=False):
            return self._context
        problem = None
        try:
            self._context = self._read()
        except ConfigError as error:
            problem = error
        finally:
            self._lock.release()
        if problem is None:
            log.info("%s was reloaded", self._certificate.name)
        else:
            log.warning("%s: the last certificate stays in use", problem)
        return self._context

    def _read(self) -> ssl.SSLContext:
        try:  # read both files even if one fails: an unread file would count as changed at every check
            certificate = self._certificate.read()
        finally:
            key = self._key.read()
        try:
            return server_context(Certificate(certificate, key))
        except (ssl.SSLError, ValueError) as error:
            reason = (error.reason or "not PEM") if isinstance(error, ssl.SSLError) else str(error)
            raise ConfigError(f"{self._certificate.name} and {self._key.name} cannot be used together: {reason}"
                              ) from None


@dataclass(frozen=True)
class SelfSigned:
    """A certificate from the process's own CA, renewed when two thirds of `validity` have passed.

    `service`: `NAMESPACE/NAME` of the Service through which the API server calls; `hosts`: further names and addresses.
    Without `service` and `hosts`, the certificate names this host's loopback names and addresses. If the server has a
    client, the server's CA is written into the configurations and CRDs that name the service or one of the hosts. The
    key never leaves the process, so each replica has its own CA beside the others in the bundle. Raises RequestError
    for invalid values.

    >>> SelfSigned(service="default/quota").service
    'default/quota'
    """

    service: str | None = None
    hosts: tuple[str, ...] = ()
    validity: timedelta = timedelta(days=30)

    def __post_init__(self) -> None:
        hosts: Any = self.hosts
        if isinstance(hosts, str):
            raise RequestError(f"SelfSigned: hosts= must be a tuple, not a str; write hosts=({self.hosts!r},)")
        for host in hosts:
            if not isinstance(host, str) or not re.fullmatch(r"[0-9A-Za-z:._*-]+", host):
                raise RequestError(f"SelfSigned: {host!r} is not a name or address of a host")
        if self.service is not None and not re.fullmatch(r"[a-z0-9.-]+/[a-z0-9-]+", str(self.service)):
            raise RequestError(f"SelfSigned: service={self.service!r} is not of the form NAMESPACE/NAME")
        if seconds(self.validity) < 60:
            raise RequestError(f"SelfSigned: validity={self.validity} is less than a minute")

    @property
    def names(self) -> tuple[str, ...]:
        """The names in the certificate. (The API server calls a Service as `NAME.NAMESPACE.svc`.)"""
        if self.service is None:
            return tuple(self.hosts) or HOSTS
        namespace, _, name = self.service.partition("/")
        return (f"{name}.{namespace}.svc", f"{name}.{namespace}.svc.cluster.local", *self.hosts)


class OwnCertificates:
    """The certificates of a `SelfSigned`.

    The next CA is made in advance, and the bundle already contains it. When `renew` makes it the current CA, callers
    already trust it, so no call fails. For example, the server first uses CA 1 with the bundle of CAs 1 and 2, then CA
    2 with the bundle of CAs 2 and 3.
    """

    def __init__(self, wanted: SelfSigned, clock: Clock) -> None:
        """Raises MissingExtra if the extra `tls` is not installed."""
        self._wanted, self._clock = wanted, clock
        self._lock = threading.Lock()
        self._authority = self._new_authority()
        self._next = self._new_authority()
        self.gone: tuple[bytes, ...] = ()
        """CAs that are no longer used."""
        self._serve()

    @property
    def authorities(self) -> tuple[bytes, bytes]:
        """The current certificate's CA, and the next CA."""
        return self._authority.pem, self._next.pem

    @property
    def ca_bundle(self) -> bytes:
        """The current certificate's CA and the next CA, as PEM."""
        return b"".join(self.authorities)

    def context(self) -> ssl.SSLContext:
        """The TLS context with the current certificate."""
        return self._context

    def time_left(self) -> float:
        """Seconds until the certificate must be renewed."""
        return self._renew_at - self._clock.boottime()

    @property
    def expires(self) -> datetime:
        """When the current certificate expires."""
        return self._expires

    def renew(self) -> None:
        """Make the next CA the current CA. New connections use its certificate; open connections stay open."""
        with self._lock:
            self.gone = (*self.gone[-1:], self._authority.pem)
            self._authority, self._next = self._next, self._new_authority()
            self._serve()

    def _new_authority(self) -> Authority:
        # The CA waits for at most one validity period before it is used, and is then used for at most another.
        return Authority(AUTHORITY_NAME, 2 * self._wanted.validity)

    def _serve(self) -> None:
        validity = self._wanted.validity
        self._context = server_context(self._authority.server(self._wanted.names, validity))
        self._expires = self._clock.now() + validity
        self._renew_at = self._clock.boottime() + seconds(validity) * 2 / 3
