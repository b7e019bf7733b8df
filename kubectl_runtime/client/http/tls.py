"""The client's own `ssl.SSLContext`: trust and identity exactly as configured.

With a CA of the cluster only that CA is trusted, without one the system's. Private keys that come as data are handed to
OpenSSL, which takes only file names, through memory (`memfd`) or a file that is gone before this module returns.
"""
from __future__ import annotations

import os
import re
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kubectl_runtime.client.config.auth import ClientCertificate
from kubectl_runtime.core.base.errors import ConfigError

_CERTIFICATES = re.compile(rb"-----BEGIN (?P<kind>(?:TRUSTED |X509 )?CERTIFICATE)-----.+?-----END (?P=kind)-----",
                           re.DOTALL)


def build_context(*, ca: bytes | None, ca_source: str = "the CA", insecure: bool = False,
                  certificate: ClientCertificate | None = None) -> ssl.SSLContext:
    """A context for connections to the API server.

    `ca`: PEM (with any text between the certificates); None trusts what the system trusts. `insecure` verifies nothing.
    Raises ConfigError, naming `ca_source` or the client certificate, when either is unusable. Blocks only for file
    access.
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
        _identify(context, certificate)
    return context


def _trust(context: ssl.SSLContext, ca: bytes, source: str) -> None:
    blocks = [found.group() for found in _CERTIFICATES.finditer(ca)]
    if not blocks:
        raise ConfigError(f"{source} holds no PEM certificate")
    try:
        context.load_verify_locations(cadata=b"\n".join(blocks).decode("ascii"))
    except (ssl.SSLError, ValueError) as error:
        raise ConfigError(f"{source} cannot be used as a certificate authority: {error}") from None


def _identify(context: ssl.SSLContext, certificate: ClientCertificate) -> None:
    try:
        with _private_file(certificate.certificate + b"\n" + certificate.key) as path:
            context.load_cert_chain(path, password=_no_password)
    except ssl.SSLError as error:
        raise ConfigError("the client certificate and its key cannot be used: "
                          f"{error.reason or 'not PEM, or the key is encrypted'}") from None


def _no_password() -> bytes:
    """Called by OpenSSL for an encrypted key, instead of a question on the terminal."""
    raise ConfigError("the client key is encrypted: a library cannot ask for its password; give the key without one")


@contextmanager
def _private_file(content: bytes) -> Iterator[str]:
    """A path with `content` that nobody else can read, for as long as the block lasts."""
    if hasattr(os, "memfd_create") and Path("/proc/self/fd").is_dir():
        descriptor = os.memfd_create("client-certificate")
        try:
            with os.fdopen(os.dup(descriptor), "wb") as file:
                file.write(content)
            yield f"/proc/self/fd/{descriptor}"
        finally:
            os.close(descriptor)
        return
    import shutil
    import tempfile

    folder = tempfile.mkdtemp()  # readable by this user alone
    try:
        path = Path(folder, "client.pem")
        path.write_bytes(content)
        yield str(path)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
