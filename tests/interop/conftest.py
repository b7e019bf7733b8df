"""Clients that nobody here wrote run unchanged against the embedded server: without TLS, and with users and rights.

They need packages that nothing else needs; tox has an environment of their own for them (`tox -e clients`), and a plain
`pytest` leaves this folder out.
"""

from __future__ import annotations

import os
import threading
import time

import pytest

from kubectl_runtime.testing import ApiServer

CONTROLLERS = ("garbage-collector", "namespace", "deployment", "replicaset", "serviceaccount",
               "root-ca-certificate-publisher")
PATIENCE = 20.0

WIDGETS = {
    "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
    "metadata": {"name": "widgets.example.com"}, "spec": {"group": "example.com", "scope": "Namespaced",
             "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "shortNames": ["wd"]},
             "versions": [{"name": "v1", "served": True, "storage": True, "subresources": {"status": {}},
                           "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                               "spec": {"type": "object", "properties": {"size": {"type": "integer"}}},
                               "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}}}}]}}


def pytest_configure(config):
    for what in ("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning",  # these clients leave
                 "ignore:Kubernetes version:UserWarning"):  # sockets to the garbage collector; kr8s lags behind
        config.addinivalue_line("filterwarnings", what)


@pytest.fixture(scope="session", params=["http", "https"])
def server(request):
    secure = request.param == "https"
    with ApiServer(controllers=CONTROLLERS, tls=secure,
                   authorization_mode="RBAC" if secure else "AlwaysAllow") as server:
        server.load(WIDGETS)
        yield server


@pytest.fixture(scope="session")
def kubeconfig(server, tmp_path_factory):
    return server.write_kubeconfig(tmp_path_factory.mktemp("kubeconfig") / "config")


@pytest.fixture(autouse=True)
def _only_this_cluster(kubeconfig, tmp_path, monkeypatch):
    """Whoever looks for a cluster finds this one, and no other."""
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig))
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in [name for name in os.environ if name.startswith("KUBERNETES_")]:
        monkeypatch.delenv(name)


@pytest.fixture
def namespace(server):
    """A namespace of the test's own."""
    name = f"test-{threading.get_ident() % 1000}-{time.monotonic_ns()}"
    server.load({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    return name


@pytest.fixture
def until():
    """Wait for what another thread or process is about to do; returns what the function returned."""
    def wait(function):
        deadline = time.monotonic() + PATIENCE
        while not (result := function()):
            assert time.monotonic() < deadline, "it did not come to pass"
            threading.Event().wait(0.02)
        return result
    return wait
