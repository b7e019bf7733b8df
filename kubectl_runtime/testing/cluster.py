"""`Cluster`, the value of the fixture ``cluster``: the embedded server or a real cluster. The same tests run on both.

Each test has a namespace of its own, in which Pods can be created at once. The test must name cluster-scoped objects
(CRDs, ClusterRoles) with `unique` and delete them, since nothing else deletes them from a real cluster.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from kubectl_runtime.client.api.api import Api
from kubectl_runtime.client.api.client import Client
from kubectl_runtime.client.config.config import Config
from kubectl_runtime.core.base.errors import ApiError, OutcomeUnknownError
from kubectl_runtime.core.objects.resource import Resource
from kubectl_runtime.resources.core_v1 import Namespace, ServiceAccount
from kubectl_runtime.testing.asking import eventually

if TYPE_CHECKING:
    from kubectl_runtime.apiserver.server import ApiServer

K = TypeVar("K", bound=Resource)

PATIENCE = 30.0
"""Seconds to wait for a new namespace's default ServiceAccount, without which no Pod can be created."""


class Cluster:
    """A cluster, and a namespace in the cluster for one test."""

    def __init__(self, client: Client, namespace: str, kubeconfig: Path, server: ApiServer | None) -> None:
        self.client = client
        """A client with administrator rights."""
        self.namespace = namespace
        """A namespace that only this test uses; it is deleted after the test."""
        self.kubeconfig = kubeconfig
        """The path of a kubeconfig, for kubectl and clients in any language."""
        self._server = server

    @property
    def is_real(self) -> bool:
        """Whether this is the real cluster of ``--cluster``."""
        return self._server is None

    @property
    def server(self) -> ApiServer:
        """The embedded server, for faults, snapshots and rules for Pods. With a real cluster, reading this property
        skips the test."""
        if self._server is None:
            import pytest

            pytest.skip("this test needs the embedded API server: run it without --cluster")
        return self._server

    def api(self, kind: type[K]) -> Api[K]:
        """Make an Api for the kind in the test's namespace."""
        return Api.namespaced(self.client, kind, self.namespace)

    def unique(self, name: str) -> str:
        """A name for a cluster-scoped object that no other test uses."""
        return f"{name}-{self.namespace.rpartition('-')[2]}"


@contextlib.contextmanager
def embedded_cluster(server: ApiServer, kubeconfig: Path) -> Iterator[Cluster]:
    """Make a Cluster for one test on a running embedded server. Writes the kubeconfig."""
    with server.client() as client:
        server.write_kubeconfig(kubeconfig)
        yield Cluster(client, _new_namespace(client), kubeconfig, server)


@contextlib.contextmanager
def real_cluster(kubeconfig: Path) -> Iterator[Cluster]:
    """Make a Cluster for one test on the cluster of the kubeconfig's current context. After the block, requests the
    deletion of the namespace without waiting for it. Raises ConfigError."""
    with Client(Config.from_kubeconfig(kubeconfig)) as client:
        cluster = Cluster(client, _new_namespace(client), kubeconfig, None)
        try:
            yield cluster
        finally:
            with contextlib.suppress(ApiError, OutcomeUnknownError):
                Api.all(client, Namespace).delete(cluster.namespace)


def _new_namespace(client: Client) -> str:
    name = f"test-{uuid.uuid4().hex[:10]}"
    Api.all(client, Namespace).create(Namespace(name=name))
    accounts = Api.namespaced(client, ServiceAccount, name)
    eventually(lambda: accounts.get_opt("default"), timeout=PATIENCE)
    return name
