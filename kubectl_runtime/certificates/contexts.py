"""From certificates in memory to the ssl module's contexts.

OpenSSL can load a key from a file only: for that moment it is one in memory, which has no name, or where the system has
none of that kind, one in a private temporary folder. So a read-only file system will do.
"""

from __future__ import annotations

import os
import ssl
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
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
    with _private_file(certificate.key + b"\n" + certificate.certificate) as path:
        context.load_cert_chain(path, password=_no_password)
    return context


@contextmanager
def _private_file(content: bytes) -> Iterator[str]:
    """A path with `content` that nobody else can read, for as long as the block lasts."""
    if hasattr(os, "memfd_create") and Path("/proc/self/fd").is_dir():
        descriptor = os.memfd_create("certificate")
        try:
            with os.fdopen(os.dup(descriptor), "wb") as file:
                file.write(content)
            yield f"/proc/self/fd/{descriptor}"
        finally:
            os.close(descriptor)
        return
    with tempfile.TemporaryDirectory(prefix="kubectl-runtime-") as folder:  # readable by this user alone
        path = Path(folder) / "server.pem"
        path.write_bytes(content)
        yield str(path)


def _no_password() -> bytes:
    """Called by OpenSSL for an encrypted key, instead of a question on the terminal."""
    raise ValueError("the key is encrypted: give it without a password")
