"""An in-memory certificate authority, which issues certificates for servers and for users of a cluster.

Only this module imports the package cryptography, on first use; the extra ``kubectl_runtime[tls]`` installs it. Keys
are elliptic-curve keys (P-256), made in a few milliseconds. Validity periods use real time, not a test clock, because
TLS peers check them against real time.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

HOSTS = ("localhost", "127.0.0.1", "::1")
VALIDITY = timedelta(days=365)
UID_ATTRIBUTE = "1.3.6.1.4.1.57683.2"  # the attribute of a certificate's subject that carries a user's uid


@dataclass(frozen=True, slots=True)
class Certificate:
    """A certificate and its key as PEM."""

    certificate: bytes
    key: bytes = field(repr=False)


class Authority:
    """A certificate authority for this process. Safe to use from any thread."""

    def __init__(self, name: str = "embedded-ca", validity: timedelta = VALIDITY) -> None:
        """Make the authority's key and certificate; raises `MissingExtra`."""
        x509, _, _ = _cryptography()
        self._key = _new_key()
        self._name = _name([(x509.NameOID.COMMON_NAME, name)])
        builder = _builder(self._name, self._name, self._key.public_key(), validity)
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        builder = builder.add_extension(_key_usage(signs_certificates=True), critical=True)
        self._certificate = builder.sign(self._key, _sha256())
        self.pem: bytes = _pem(self._certificate)

    def server(self, hosts: Iterable[str] = HOSTS, validity: timedelta = VALIDITY) -> Certificate:
        """Issue a server certificate for these host names and IP addresses. A negative `validity` makes it expired."""
        x509, _, _ = _cryptography()
        names = [x509.IPAddress(ipaddress.ip_address(host)) if _is_address(host) else x509.DNSName(host)
                 for host in hosts]
        return self._issue([(x509.NameOID.COMMON_NAME, "kube-apiserver")], x509.ExtendedKeyUsageOID.SERVER_AUTH,
                           validity, x509.SubjectAlternativeName(names))

    def client(self, user: str, groups: Iterable[str] = (), *, uid: str = "",
               validity: timedelta = VALIDITY) -> Certificate:
        """Issue a client certificate for a user: its CN is the user's name, and it has an O for each group."""
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


@dataclass(frozen=True, slots=True)
class Described:
    """The CN of a certificate (empty if there is none), and the beginning and end of its validity period."""

    name: str
    begin: datetime
    end: datetime


def described(pem: bytes) -> Described:
    """Return the name and validity of one PEM certificate. Raises ValueError if `pem` is not a PEM certificate, and
    MissingExtra without the extra `tls`."""
    x509, _, _ = _cryptography()
    found = x509.load_pem_x509_certificate(pem)
    names = found.subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)
    return Described(str(names[0].value) if names else "", found.not_valid_before_utc, found.not_valid_after_utc)


def _cryptography() -> tuple[Any, Any, Any]:
    """Import what this module uses of the package cryptography: x509, ec, serialization. Raises MissingExtra."""
    try:
        from cryptography import x509
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.x509 import oid
    except ImportError as error:
        from kubectl_runtime.core.base.errors import MissingExtra  # this layer's only import from the project

        raise MissingExtra("making certificates needs", "tls", "cryptography", error) from error
    return _Names(x509, oid), ec, serialization


class _Names:
    """Offers the names of several modules as attributes of one object."""

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
    now = datetime.now(UTC)  # real time, not the test server's clock, because OpenSSL checks the validity
    begin = now - timedelta(hours=1)
    end = now + validity
    return (x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(public_key)
            .serial_number(x509.random_serial_number()).not_valid_before(min(begin, end - timedelta(hours=1)))
            .not_valid_after(end)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(public_key), critical=False))


def _key_usage(*, signs_certificates: bool) -> Any:
    x509, _, _ = _cryptography()
    return x509.KeyUsage(digital_signature=True, content_commitment=False, key_encipherment=False,
                         data_encipherment=False, key_agreement=False, key_cert_sign=signs_certificates,
                         crl_sign=signs_certificates, encipher_only=False, decipher_only=False)


def _pem(certificate: Any) -> bytes:
    pem: bytes = certificate.public_bytes(_cryptography()[2].Encoding.PEM)
    return pem


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
