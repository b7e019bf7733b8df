"""What every new cluster holds: the namespaces default, kube-node-lease, kube-public and kube-system."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kubectl_runtime.testing.apiserver.controllers.client import submit

if TYPE_CHECKING:
    from kubectl_runtime.testing.apiserver.core import ApiCore

SYSTEM_NAMESPACES = ("default", "kube-node-lease", "kube-public", "kube-system")


def create_namespaces(core: ApiCore) -> None:
    """Create the system namespaces that are missing."""
    for name in SYSTEM_NAMESPACES:
        if core.storage.get("/namespaces", "", name) is None:
            submit(core, "POST", "/api/v1/namespaces",
                   {"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": name}}, agent="kube-apiserver")
