"""A client certificate and its key in an `ssl.SSLContext`, and files of them that are followed.

Private keys are handed to OpenSSL in a `private_file`, which is gone before the function returns.
"""
from __future__ import annotations

import ssl

from kubectl_runtime.certificates.private_file import private_file
from kubectl_runtime.client.config.auth import ClientCertificate
from kubectl_runtime.client.config.secrets import SecretBytes
from kubectl_runtime.core.base.errors import ConfigError


def check_identity(certificate: ClientCertificate) -> None:
    """Raise ConfigError, without quoting it, for a certificate and key that cannot be used together."""
    use_identity(certificate, ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))


def use_identity(certificate: ClientCertificate, context: ssl.SSLContext) -> None:
    """Have connections of `context` identify themselves. Raises ConfigError as `check_identity`, naming the source."""
    try:
        with private_file(SecretBytes(certificate.certificate + b"\n" + certificate.key)) as path:
            context.load_cert_chain(path, password=_no_password)
    except ssl.SSLError as error:
        raise ConfigError(f"{certificate.source} and its key cannot be used: "
                          f"{error.reason or 'not PEM, or the key is encrypted'}") from None


def _no_password() -> bytes:
    """Called by OpenSSL for an encrypted key, instead of a question on the terminal."""
    raise ConfigError("the client key is encrypted: a library cannot ask for its password; give the key without one")
