"""The kubeconfig of an embedded server, as JSON (which is YAML, too), and the credentials in it."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kubectl_runtime.certificates.authority import Certificate


@dataclass(frozen=True, slots=True)
class Credentials:
    """How a client knows the server (`ca` is PEM) and shows who it is; all empty for a server without either."""

    ca: bytes = b""
    token: str = field(default="", repr=False)
    certificate: Certificate | None = None


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


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")
