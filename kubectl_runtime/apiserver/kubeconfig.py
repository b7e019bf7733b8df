"""What lets clients into an embedded server: credentials, and the kubeconfig with them, which is JSON (and so YAML)."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kubectl_runtime.apiserver.access import ADMIN, Access, User, as_user
from kubectl_runtime.certificates.private_file import write_private

if TYPE_CHECKING:
    from kubectl_runtime.apiserver.tls import ServerTls
    from kubectl_runtime.certificates.authority import Certificate


@dataclass(frozen=True, slots=True)
class Credentials:
    """How a client knows the server (`ca` is PEM) and shows who it is; all empty for a server without either."""

    ca: bytes = b""
    token: str = field(default="", repr=False)
    certificate: Certificate | None = None


class Issuer:
    """Gives out credentials that the server knows."""

    def __init__(self, access: Access, tls: ServerTls | None) -> None:
        self._access, self._tls = access, tls
        self._own_token = ""

    def credentials(self, user: str | User | None, *, certificate: bool) -> Credentials:
        """A user's, or an administrator's, whose token is always the same one. See `ApiServer.credentials`, also for
        what is raised."""
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
    """The text of a kubeconfig with one cluster, user and context; everything is embedded, no file is referred to."""
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
    """Write it to a file that only its owner can read. Raises OSError, also for a link, a device or a pipe."""
    write_private(path, kubeconfig(url, credentials).encode())


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")
