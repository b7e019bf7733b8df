"""A client certificate and its key in an `ssl.SSLContext`, and files of them that are followed.

Private keys are handed to OpenSSL, which takes only file names, through memory (`memfd`) or a file that is gone before
the function returns.
"""
from __future__ import annotations

import os
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kubectl_runtime.client.config.auth import ClientCertificate
from kubectl_runtime.core.base.errors import ConfigError


def check_identity(certificate: ClientCertificate) -> None:
    """Raise ConfigError, without quoting it, for a certificate and key that cannot be used together."""
    use_identity(certificate, ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))


def use_identity(certificate: ClientCertificate, context: ssl.SSLContext) -> None:
    """Have connections of `context` identify themselves. Raises ConfigError as `check_identity`, naming the source."""
    try:
        with _private_file(certificate.certificate + b"\n" + certificate.key) as path:
            context.load_cert_chain(path, password=_no_password)
    except ssl.SSLError as error:
        raise ConfigError(f"{certificate.source} and its key cannot be used: "
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
