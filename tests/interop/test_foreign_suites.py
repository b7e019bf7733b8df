"""The end-to-end tests of other clients, unchanged, from checkouts of their public repositories, against a server whose
Pods run. No container runs: a rule says what is in logs, and exec runs commands on this machine.

    LIGHTKUBE_CHECKOUT=~/lightkube KUBERNETES_CHECKOUT=~/python \\
        tox run -e clients -- tests/interop/test_foreign_suites.py

Left out is what needs a container that listens on a port: port-forward. A fixture of lightkube's 0.21 sets an attribute
that newer models do not let it set: it needs lightkube below 1 and lightkube-models 1.35.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kubectl_runtime.testing import ApiServer
from tests.interop.local_shell import local_shell

SUITES = {
    "LIGHTKUBE_CHECKOUT": ("e2e-tests",),
    "KUBERNETES_CHECKOUT": ("kubernetes/e2e_test", "kubernetes/aio/e2e_test", "-k", "not portforward"),
}
METRICS = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "metrics-server-1", "namespace": "kube-system"},
           "spec": {"containers": [{"name": "main", "image": "metrics-server"}]}}  # lightkube's tests are for k3s


@pytest.fixture(autouse=True)
def _only_this_cluster():
    """Each suite has a server of its own."""


@pytest.mark.timeout(900)
@pytest.mark.parametrize("variable", SUITES)
def test_the_suite_passes_unchanged(variable, tmp_path):
    given = os.environ.get(variable)
    if not given:
        pytest.skip(f"{variable} names no checkout")
    checkout = Path(given).expanduser()
    with ApiServer(controllers=["*"]) as server:
        server.load(METRICS)
        server.kubelet.exec("*", local_shell)
        server.kubelet.rules.on(name="test-*").log("this is a test\n")
        environment = {**os.environ, "KUBECONFIG": str(server.write_kubeconfig(tmp_path / "config")),
                       "PYTHONPATH": str(checkout), "PYTEST_ADDOPTS": ""}
        ran = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", "-p", "no:kubectl_runtime",
             "--timeout", "120", *SUITES[variable]], cwd=checkout, env=environment, capture_output=True, text=True,
            check=False)
    print(ran.stdout[-3000:])
    assert ran.returncode == 0, ran.stdout[-20_000:] + ran.stderr[-5_000:]
