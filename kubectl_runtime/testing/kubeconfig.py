"""The kubeconfig of an embedded server, as JSON (which is YAML, too)."""

from __future__ import annotations

import json
from typing import Any


def kubeconfig(url: str, *, ca_data: str = "", token: str = "", name: str = "embedded") -> str:
    """The text of a kubeconfig with one cluster, user and context; `ca_data` is base64 of PEM."""
    cluster: dict[str, Any] = {"server": url}
    if ca_data:
        cluster["certificate-authority-data"] = ca_data
    user = {"token": token} if token else {}
    config = {"apiVersion": "v1", "kind": "Config", "preferences": {}, "current-context": name,
              "clusters": [{"name": name, "cluster": cluster}], "users": [{"name": name, "user": user}],
              "contexts": [{"name": name, "context": {"cluster": name, "user": name, "namespace": "default"}}]}
    return json.dumps(config, indent=2) + "\n"
