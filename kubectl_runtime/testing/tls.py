"""HTTPS for the embedded server: a certificate authority of its own, a server certificate, certificates for users.

Making certificates needs the package cryptography, which the extra ``kubectl_runtime[tls]`` brings; nothing else of the
package does. Keys are elliptic-curve ones, made in a few milliseconds, and live in memory: OpenSSL can load them from
files only, so they lie for that moment in a private temporary folder.

A client certificate is asked for but not demanded. One of another authority fails the handshake, where the real server
would go on and answer 401.
"""

from __future__ import annotations

import hashlib
import ipaddress
import os
import socket
import ssl
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from kubectl_runtime.testing.apiserver.access.authn import CREDENTIAL_ID, UID_ATTRIBUTE

HOSTS = ("localhost", "127.0.0.1", "::1")
VALIDITY = timedelta(days=365)
HANDSHAKE_TIMEOUT = 10.0  # seconds
_HANDSHAKE = 0x16  # the first byte that a TLS client sends
# as Go's server says it
_PLAIN_HTTP = b"HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n"


class MissingTlsExtra(ImportError):
    """TLS was asked for and the package cryptography is not installed."""

    def __init__(self) -> None:
        super().__init__("HTTPS for the embedded API server needs the package cryptography: "
                         'install it with pip install "kubectl_runtime[tls]"')


@dataclass(frozen=True, slots=True)
class Certificate:
    """A certificate and its key as PEM."""

    certificate: bytes
    key: bytes = field(repr=False)


class Authority:
    """A certificate authority that was made for this process. Safe to use from any thread."""

    def __init__(self, name: str = "embedded-ca") -> None:
        """Make the authority's key and certificate; raises `MissingTlsExtra`."""
        x509, _, _ = _cryptography()
        self._key = _new_key()
        self._name = _name([(x509.NameOID.COMMON_NAME, name)])
        builder = _builder(self._name, self._name, self._key.public_key(), VALIDITY)
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        builder = builder.add_extension(_key_usage(signs_certificates=True), critical=True)
        self._certificate = builder.sign(self._key, _sha256())
        self.pem: bytes = _pem(self._certificate)

    def server(self, hosts: Iterable[str] = HOSTS, validity: timedelta = VALIDITY) -> Certificate:
        """A certificate for a server of these names and addresses; a negative validity is one that has expired."""
        x509, _, _ = _cryptography()
        names = [x509.IPAddress(ipaddress.ip_address(host)) if _is_address(host) else x509.DNSName(host)
                 for host in hosts]
        return self._issue([(x509.NameOID.COMMON_NAME, "kube-apiserver")], x509.ExtendedKeyUsageOID.SERVER_AUTH,
                           validity, x509.SubjectAlternativeName(names))

    def client(self, user: str, groups: Iterable[str] = (), *, uid: str = "",
               validity: timedelta = VALIDITY) -> Certificate:
        """A certificate for a user: the name is its CN, each group an O."""
        x509, _, _ = _cryptography()
        parts = [(x509.NameOID.ORGANIZATION_NAME, group) for group in groups]
        parts.append((x509.NameOID.COMMON_NAME, user))
        if uid:
            parts.append((x509.ObjectIdentifier(UID_ATTRIBUTE), uid))
        return self._issue(parts, x509.ExtendedKeyUsageOID.CLIENT_AUTH, validity)

    def _issue(self, subject: list[tuple[Any, str]], usage: Any, validity: timedelta, *extensions: Any) -> Certificate:
        x509, _, serialization = _cryptography()
        key = _new_key()
        builder = _builder(_name(subject), self._name, key.public_key(), validity)
        for extension in (x509.ExtendedKeyUsage([usage]), *extensions):
            builder = builder.add_extension(extension, critical=False)
        builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        builder = builder.add_extension(_key_usage(signs_certificates=False), critical=True)
        builder = builder.add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()),
                                        critical=False)
        key_pem: bytes = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8,
                                           serialization.NoEncryption())
        return Certificate(_pem(builder.sign(self._key, _sha256())), key_pem)


class ServerTls:
    """The TLS side of a listener: `accept` makes the handshake, `subject` tells whose certificate the client has."""

    def __init__(self, authority: Authority | None = None, *, hosts: Iterable[str] = HOSTS,
                 certificate: Certificate | None = None) -> None:
        """Serve with a certificate of `authority` (None makes one) for `hosts`, or with the given one.

        Raises `MissingTlsExtra`.
        """
        self.authority = authority or Authority()
        self.server_names: list[str | None] = []
        """What clients asked for in the handshake (SNI), in order; None without. The last thousand."""
        self._context = server_context(certificate or self.authority.server(hosts), self.authority.pem)
        self._context.sni_callback = self._note_name

    def _note_name(self, _: ssl.SSLObject, name: str | None, __: ssl.SSLContext) -> None:
        self.server_names.append(name)
        del self.server_names[:-1000]

    def accept(self, connection: socket.socket) -> ssl.SSLSocket:
        """Make the handshake. Blocks for at most `HANDSHAKE_TIMEOUT`; raises OSError if it fails."""
        connection.settimeout(HANDSHAKE_TIMEOUT)
        first = connection.recv(1, socket.MSG_PEEK)
        if first and first[0] != _HANDSHAKE:
            connection.sendall(_PLAIN_HTTP)
            raise ConnectionAbortedError("plain HTTP on a TLS port")
        return self._context.wrap_socket(connection, server_side=True)

    @staticmethod
    def subject(connection: socket.socket) -> tuple[tuple[str, str], ...] | None:
        """The subject of the client's verified certificate as pairs, with its fingerprint; None without one."""
        if not isinstance(connection, ssl.SSLSocket):
            return None
        described, encoded = connection.getpeercert(), connection.getpeercert(binary_form=True)
        if not described or encoded is None:
            return None
        parts: Any = described.get("subject", ())
        pairs = tuple((str(key), str(value)) for part in parts for key, value in part)
        return (*pairs, (CREDENTIAL_ID, f"X509SHA256={_fingerprint(encoded)}"))


def server_context(certificate: Certificate, client_ca: bytes) -> ssl.SSLContext:
    """A context of a server with this certificate that asks clients for one of the given authority."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    context.verify_mode = ssl.CERT_OPTIONAL
    context.load_verify_locations(cadata=client_ca.decode("ascii"))
    with tempfile.TemporaryDirectory(prefix="kubectl-runtime-") as folder:
        path = Path(folder) / "server.pem"
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(certificate.key + certificate.certificate)
        context.load_cert_chain(path)
    return context


def _cryptography() -> tuple[Any, Any, Any]:
    """The modules of cryptography that are needed: x509, ec, serialization."""
    try:
        from cryptography import x509
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.x509 import oid
    except ImportError:
        raise MissingTlsExtra from None
    return _Names(x509, oid), ec, serialization


class _Names:
    """x509 and its object identifiers under one roof."""

    def __init__(self, *modules: Any) -> None:
        self._modules = modules

    def __getattr__(self, name: str) -> Any:
        return next(getattr(module, name) for module in self._modules if hasattr(module, name))


def _new_key() -> Any:
    ec = _cryptography()[1]
    return ec.generate_private_key(ec.SECP256R1())


def _sha256() -> Any:
    from cryptography.hazmat.primitives import hashes

    return hashes.SHA256()


def _name(parts: list[tuple[Any, str]]) -> Any:
    x509, _, _ = _cryptography()
    return x509.Name([x509.NameAttribute(oid, value) for oid, value in parts])


def _builder(subject: Any, issuer: Any, public_key: Any, validity: timedelta) -> Any:
    x509, _, _ = _cryptography()
    now = datetime.now(UTC)  # real time, not the server's clock: the other end's OpenSSL checks it
    begin = now - timedelta(hours=1)
    end = now + validity
    return (x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(public_key)
            .serial_number(x509.random_serial_number()).not_valid_before(min(begin, end - timedelta(hours=1)))
            .not_valid_after(end)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(public_key), critical=False))


def _key_usage(*, signs_certificates: bool) -> Any:
    x509, _, _ = _cryptography()
    return x509.KeyUsage(digital_signature=True, content_commitment=False, key_encipherment=False,
    data_encipherment=False,
                         key_agreement=False, key_cert_sign=signs_certificates, crl_sign=signs_certificates,
                         encipher_only=False, decipher_only=False)


def _pem(certificate: Any) -> bytes:
    pem: bytes = certificate.public_bytes(_cryptography()[2].Encoding.PEM)
    return pem


def _fingerprint(encoded: bytes) -> str:
    return hashlib.sha256(encoded).hexdigest()


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
