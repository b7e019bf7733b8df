"""From certificates in memory to the ssl module's contexts.

OpenSSL can load a key from a file only, so it lies for that moment in a private temporary folder.
"""

from __future__ import annotations

import os
import ssl
import tempfile
from pathlib import Path

from kubectl_runtime.certificates.authority import Certificate


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
    with tempfile.TemporaryDirectory(prefix="kubectl-runtime-") as folder:
        path = Path(folder) / "server.pem"
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(certificate.key + b"\n" + certificate.certificate)
        context.load_cert_chain(path, password=_no_password)
    return context


def _no_password() -> bytes:
    """Called by OpenSSL for an encrypted key, instead of a question on the terminal."""
    raise ValueError("the key is encrypted: give it without a password")
