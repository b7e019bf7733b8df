"""Where a webhook server has its certificate from: `CertificateFolder` follows files, `SelfSigned` makes its own.

    context()        for the connection that is made now; does not block but for files
    ca_bundle        what clients have to trust; empty where only somebody else knows it
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
from kubectl_runtime.core.base.clock import Clock, seconds
from kubectl_runtime.core.base.errors import ConfigError, RequestError
from kubectl_runtime.core.base.guard import guarded_logger

log = guarded_logger(__name__)

AUTHORITY_NAME = "kubectl-runtime webhook"
"""The name of every authority that is made here: those of dead processes are known by it."""
CERTIFICATE, KEY, CA = "tls.crt", "tls.key", "ca.crt"
"""The files of a Secret of type `kubernetes.io/tls`, as cert-manager fills and a Pod mounts it."""


class ServingCertificates(Protocol):
    """What a server identifies itself with: files, or certificates of its own. Safe to use from any thread."""

    @property
    def ca_bundle(self) -> bytes:
        """PEM: whom a caller has to trust; empty when that is not known."""

    def context(self) -> ssl.SSLContext:
        """The TLS context for a connection that is accepted now."""


class CertificateFolder:
    """`tls.crt` and `tls.key` in a folder, read again when they change: the next connection has the new ones.

    While they do not fit each other, as in the middle of a replacement, the last pair stays, with one warning.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        """Raises ConfigError, which names the file, when they cannot be used now."""
        self._folder = Path(folder)
        self._certificate = FollowedFile(self._folder / CERTIFICATE, "certificate")
        self._key = FollowedFile(self._folder / KEY, "key")
        self._lock = threading.Lock()
        self._context = self._read()

    @property
    def ca_bundle(self) -> bytes:
        """The content of `ca.crt` in the folder; empty when it is not there."""
        try:
            return (self._folder / CA).read_bytes()
        except OSError:
            return b""

    def context(self) -> ssl.SSLContext:
        """The context with the certificate that is in the folder now. Reads files that have changed."""
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
            log.info("%s was read again", self._certificate.name)
        else:
            log.warning("%s: the last certificate stays in use", problem)
        return self._context

    def _read(self) -> ssl.SSLContext:
        try:  # both, before either is judged: what is not read is found changed for ever
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
    """A certificate of an authority that the process makes for itself, renewed when two thirds of `validity` are over.

    `service`: `NAMESPACE/NAME` of the Service through which the API server calls; `hosts`: names and addresses besides
    (without either: those of this host's loopback). Where the server has a client, the authority is written into the
    configurations and CRDs that name the service or one of the hosts. The key never leaves the process, so each replica
    has an authority of its own, beside the others in the bundle. Raises RequestError for what makes no sense.

    >>> SelfSigned(service="default/quota").service
    'default/quota'
    """

    service: str | None = None
    hosts: tuple[str, ...] = ()
    validity: timedelta = timedelta(days=30)

    def __post_init__(self) -> None:
        hosts: Any = self.hosts
        if isinstance(hosts, str):
            raise RequestError(f"SelfSigned: hosts= takes several; write hosts=({self.hosts!r},)")
        for host in hosts:
            if not isinstance(host, str) or not re.fullmatch(r"[0-9A-Za-z:._*-]+", host):
                raise RequestError(f"SelfSigned: {host!r} is not a name or address of a host")
        if self.service is not None and not re.fullmatch(r"[a-z0-9.-]+/[a-z0-9-]+", str(self.service)):
            raise RequestError(f"SelfSigned: service={self.service!r} is not of the form NAMESPACE/NAME")
        if seconds(self.validity) < 60:
            raise RequestError(f"SelfSigned: validity={self.validity} is less than a minute")

    @property
    def names(self) -> tuple[str, ...]:
        """What the certificate is for: the API server calls a Service as `NAME.NAMESPACE.svc`."""
        if self.service is None:
            return tuple(self.hosts) or HOSTS
        namespace, _, name = self.service.partition("/")
        return (f"{name}.{namespace}.svc", f"{name}.{namespace}.svc.cluster.local", *self.hosts)


class OwnCertificates:
    """The certificates of a `SelfSigned`.

    The authority after the present one is made beforehand and is in the bundle as well: when it takes over, whoever
    calls has trusted it for long, and no call fails.

        made          serves with a certificate of authority 1; the bundle is 1 and 2
        `renew()`     serves with one of authority 2; the bundle is 2 and 3; 1 is gone
    """

    def __init__(self, wanted: SelfSigned, clock: Clock) -> None:
        """Raises MissingExtra."""
        self._wanted, self._clock = wanted, clock
        self._lock = threading.Lock()
        self._authority = self._new_authority()
        self._next = self._new_authority()
        self.gone: tuple[bytes, ...] = ()
        """Authorities that are not used any more."""
        self._serve()

    @property
    def authorities(self) -> tuple[bytes, bytes]:
        """The one that issued the present certificate, and the one that will issue the next."""
        return self._authority.pem, self._next.pem

    @property
    def ca_bundle(self) -> bytes:
        """PEM: the two authorities, that of the present certificate and that of the next."""
        return b"".join(self.authorities)

    def context(self) -> ssl.SSLContext:
        """The context with the present certificate."""
        return self._context

    def time_left(self) -> float:
        """Seconds until it is to be renewed."""
        return self._renew_at - self._clock.boottime()

    @property
    def expires(self) -> datetime:
        """When the present certificate expires."""
        return self._expires

    def renew(self) -> None:
        """Let the next authority take over. New connections have its certificate; those that are open stay."""
        with self._lock:
            self.gone = (*self.gone[-1:], self._authority.pem)
            self._authority, self._next = self._next, self._new_authority()
            self._serve()

    def _new_authority(self) -> Authority:
        # It waits for one validity at most before it is used for another one.
        return Authority(AUTHORITY_NAME, 2 * self._wanted.validity)

    def _serve(self) -> None:
        validity = self._wanted.validity
        self._context = server_context(self._authority.server(self._wanted.names, validity))
        self._expires = self._clock.now() + validity
        self._renew_at = self._clock.boottime() + seconds(validity) * 2 / 3
