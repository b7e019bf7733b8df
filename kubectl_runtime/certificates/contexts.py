"""From certificates in memory to the ssl module's contexts."""

from __future__ import annotations

import ssl

from kubectl_runtime.certificates.authority import Certificate
from kubectl_runtime.certificates.private_file import private_file


def server_context(certificate: Certificate, client_ca: bytes | None = None) -> ssl.SSLContext:
    """A context of a server with this certificate, which may bring those between it and its root. With `client_ca`,
    clients are asked for a certificate of that authority.

    Raises ssl.SSLError and ValueError for a certificate and key that cannot be used together.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    if client_ca is not None:
        context.verify_mode = ssl.CERT_OPTIONAL
        context.load_verify_locations(cadata=client_ca.decode("ascii"))
    with private_file(certificate.key + b"\n" + certificate.certificate) as path:
        context.load_cert_chain(path, password=_no_password)
    return context


def _no_password() -> bytes:
    """Called by OpenSSL for an encrypted key, instead of a question on the terminal."""
    raise ValueError("the key is encrypted: give it without a password")
