"""The credentials of an embedded server's clients, and the TLS side of its listener.

The kubeconfig is written as JSON, which is valid YAML. The listener requests a client certificate but does not require
one. A certificate from another authority fails the handshake; the real server would answer 401.
"""

from __future__ import annotations

import base64
import hashlib
import json
import socket
import ssl
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kubectl_runtime.apiserver.access import ADMIN, Access, User, as_user
from kubectl_runtime.apiserver.access.authn import CREDENTIAL_ID
from kubectl_runtime.certificates.authority import HOSTS, Authority, Certificate
from kubectl_runtime.certificates.bundles import server_context, write_private


@dataclass(frozen=True, slots=True)
class Credentials:
    """What a client needs to verify the server (`ca` is PEM) and to authenticate.

    All fields are empty if the server has neither TLS nor users.
    """

    ca: bytes = b""
    token: str = field(default="", repr=False)
    certificate: Certificate | None = None


class Issuer:
    """Issues credentials that the server accepts."""

    def __init__(self, access: Access, tls: ServerTls | None) -> None:
        self._access, self._tls = access, tls
        self._own_token = ""

    def credentials(self, user: str | User | None, *, certificate: bool) -> Credentials:
        """The credentials of a user, or of an administrator if `user` is None. The administrator's token never changes.

        See `ApiServer.credentials`, also for the errors.
        """
        ca = self._tls.authority.pem if self._tls else b""
        if certificate or (user is not None and self._tls and not self._access.knows_tokens):
            if self._tls is None:
                raise ValueError("client certificates need a server with tls=True")
            who = as_user(user if user is not None else ADMIN)
            return Credentials(ca, certificate=self._tls.authority.client(who.name, who.groups, uid=who.uid))
        if user is not None:
            return Credentials(ca, token=self._access.issue_token(user))
        if self._access.knows_tokens and not self._own_token:
            self._own_token = self._access.issue_token(ADMIN)
        return Credentials(ca, token=self._own_token)


def kubeconfig(url: str, credentials: Credentials, *, name: str = "embedded") -> str:
    """The text of a kubeconfig with one cluster, user and context. It embeds all credentials and refers to no file."""
    cluster: dict[str, Any] = {"server": url}
    if credentials.ca:
        cluster["certificate-authority-data"] = _base64(credentials.ca)
    user: dict[str, Any] = {}
    if credentials.token:
        user["token"] = credentials.token
    if credentials.certificate is not None:
        user["client-certificate-data"] = _base64(credentials.certificate.certificate)
        user["client-key-data"] = _base64(credentials.certificate.key)
    config = {"apiVersion": "v1", "kind": "Config", "preferences": {}, "current-context": name,
              "clusters": [{"name": name, "cluster": cluster}], "users": [{"name": name, "user": user}],
              "contexts": [{"name": name, "context": {"cluster": name, "user": name, "namespace": "default"}}]}
    return json.dumps(config, indent=2) + "\n"


def write_kubeconfig(path: Path, url: str, credentials: Credentials) -> None:
    """Write the kubeconfig to a file that only its owner can read. Raises OSError, also for a link, device or pipe."""
    write_private(path, kubeconfig(url, credentials).encode())


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


HANDSHAKE_TIMEOUT = 10.0  # seconds
_HANDSHAKE = 0x16  # the first byte that a TLS client sends
# the text of Go's HTTP server
_PLAIN_HTTP = b"HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n"


class ServerTls:
    """The TLS side of a listener: `accept` does the handshake, `subject` returns the client certificate's subject."""

    def __init__(self, authority: Authority | None = None, *, hosts: Iterable[str] = HOSTS,
                 certificate: Certificate | None = None) -> None:
        """Serve with `certificate`, or with one that `authority` issues for `hosts`. The default is a new authority.

        Raises `MissingExtra`.
        """
        self.authority = authority or Authority()
        self.server_names: list[str | None] = []
        """The server names (SNI) that clients sent, in order; None for a handshake without one. Only the last thousand
        are kept."""
        self._context = server_context(certificate or self.authority.server(hosts), self.authority.pem)
        self._context.sni_callback = self._note_name

    def _note_name(self, _: ssl.SSLObject, name: str | None, __: ssl.SSLContext) -> None:
        self.server_names.append(name)
        del self.server_names[:-1000]

    def accept(self, connection: socket.socket) -> ssl.SSLSocket:
        """Do the handshake. Blocks for at most `HANDSHAKE_TIMEOUT`; raises OSError if the handshake fails."""
        connection.settimeout(HANDSHAKE_TIMEOUT)
        first = connection.recv(1, socket.MSG_PEEK)
        if first and first[0] != _HANDSHAKE:
            connection.sendall(_PLAIN_HTTP)
            raise ConnectionAbortedError("plain HTTP on a TLS port")
        return self._context.wrap_socket(connection, server_side=True)

    @staticmethod
    def subject(connection: socket.socket) -> tuple[tuple[str, str], ...] | None:
        """The verified client certificate's subject as pairs, then its fingerprint; None if there is no certificate."""
        if not isinstance(connection, ssl.SSLSocket):
            return None
        described, encoded = connection.getpeercert(), connection.getpeercert(binary_form=True)
        if not described or encoded is None:
            return None
        parts: Any = described.get("subject", ())
        pairs = tuple((str(key), str(value)) for part in parts for key, value in part)
        return (*pairs, (CREDENTIAL_ID, f"X509SHA256={hashlib.sha256(encoded).hexdigest()}"))


def server_tls(tls: bool | Authority | ServerTls, host: str) -> ServerTls | None:
    """The TLS side of a server. If `tls` is an authority, it issues the certificate; for True, a new authority does.

    Returns a `ServerTls` unchanged, and None if `tls` is False.
    """
    if isinstance(tls, ServerTls) or tls is False:
        return tls or None
    hosts = HOSTS if host in (*HOSTS, "0.0.0.0", "::") else (*HOSTS, host)
    return ServerTls(tls if isinstance(tls, Authority) else None, hosts=hosts)
