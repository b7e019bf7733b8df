"""The client's own `ssl.SSLContext`: trust and identity exactly as configured, and a CA file that is followed.

With a CA of the cluster only that CA is trusted, without one the system's. `TlsSource` gives each new connection the
context of that moment: a CA file that was replaced is read again; while it cannot be used, the last context stays in
use and one warning is logged.
"""
from __future__ import annotations

import re
import ssl

from kubectl_runtime.client.config.auth import ClientCertificate
from kubectl_runtime.client.config.files import FollowedFile, check_identity, use_identity
from kubectl_runtime.core.base.errors import ConfigError
from kubectl_runtime.core.base.guard import guarded_logger
from kubectl_runtime.core.base.interpreter import ForkSafeLock

log = guarded_logger(__name__)

_CERTIFICATES = re.compile(rb"-----BEGIN (?P<kind>(?:TRUSTED |X509 )?CERTIFICATE)-----"
                           rb"(?:(?!-----BEGIN ).)+?-----END (?P=kind)-----", re.DOTALL)


class TlsSource:
    """Makes the TLS context for connections to the API server, a new one when files were replaced. Safe to use from any
    thread; blocks only for file access."""

    def __init__(self, *, ca: FollowedFile | bytes | None, ca_source: str = "the CA", insecure: bool = False,
                 certificate: ClientCertificate | None = None) -> None:
        """`ca`: a file, PEM, or None for the system's CAs. Raises ConfigError for what cannot be used."""
        self._ca, self._insecure, self._certificate = ca, insecure, certificate
        self._ca_source = ca.name if isinstance(ca, FollowedFile) else ca_source
        self._lock = ForkSafeLock()
        self._context: ssl.SSLContext | None = None
        if ca is not None or insecure:
            self._context = self._built()
        elif certificate is not None:
            check_identity(certificate)

    def current(self) -> ssl.SSLContext:
        """The context for a connection that is made now."""
        if self._context is None:
            # The system's CAs are read at the first connection: there are many, and they cannot be wrong.
            self._context = self._built()
        if self._insecure or not isinstance(self._ca, FollowedFile) or not self._ca.has_changed():
            return self._context
        if not self._lock.acquire(blocking=False):  # another thread is at it
            return self._context
        problem = None
        try:
            self._context = self._built()
        except ConfigError as error:
            problem = error
        finally:
            self._lock.release()
        if problem is not None:
            log.warning("%s: the last certificate authority stays in use", problem)
        return self._context

    def explain(self, error: ssl.SSLError) -> None:
        """Adds to `error`, of a connection that failed, which file or data it is about."""
        if isinstance(error, ssl.SSLCertVerificationError):
            about = f"trusted is what is in {self._ca_source}"
        elif "ALERT" in (error.reason or "").upper() and self._certificate is not None:
            about = f"shown was {self._certificate.source}"
        else:
            return
        if about not in str(error.strerror):
            error.strerror = f"{error.strerror or error}; {about}"

    def _built(self) -> ssl.SSLContext:
        ca = self._ca.read() if isinstance(self._ca, FollowedFile) and not self._insecure else self._ca
        return build_context(ca=ca if isinstance(ca, bytes) else None, ca_source=self._ca_source,
                             insecure=self._insecure, certificate=self._certificate)


def build_context(*, ca: bytes | None, ca_source: str = "the CA", insecure: bool = False,
                  certificate: ClientCertificate | None = None) -> ssl.SSLContext:
    """A context for connections to the API server.

    `ca`: PEM (with any text between the certificates); None trusts what the system trusts. `insecure` verifies nothing.
    Raises ConfigError, naming `ca_source` or the client certificate, when either is unusable.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    elif ca is None:
        context.load_default_certs()
    else:
        _trust(context, ca, ca_source)
    if certificate is not None:
        use_identity(certificate, context)
    return context


def _trust(context: ssl.SSLContext, ca: bytes, source: str) -> None:
    blocks = [found.group() for found in _CERTIFICATES.finditer(ca)]
    if not blocks:
        raise ConfigError(f"{source} holds no PEM certificate")
    try:
        context.load_verify_locations(cadata=b"\n".join(blocks).decode("ascii"))
    except (ssl.SSLError, ValueError) as error:
        raise ConfigError(f"{source} cannot be used as a certificate authority: {error}") from None
