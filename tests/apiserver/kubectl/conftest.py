"""kubectl, a client that nobody here wrote, against the embedded server."""
from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from kubectl_runtime.testing import ApiServer

KUBECTL = shutil.which("kubectl")


class Kubectl:
    """Runs kubectl with a kubeconfig, a home and a cache of its own."""

    def __init__(self, kubeconfig: Path, home: Path) -> None:
        self._command = [KUBECTL or "", "--kubeconfig", str(kubeconfig), "--cache-dir", str(home / "cache")]
        self._environment = {"HOME": str(home), "PATH": "/usr/bin:/bin"}

    def __call__(self, *args: str, stdin: str | None = None) -> str:
        """The output of a call that succeeds."""
        result = self.run(*args, stdin=stdin)
        assert result.returncode == 0, f"kubectl {' '.join(args)}: {result.stderr}"
        return result.stdout

    def run(self, *args: str, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
        return subprocess.run([*self._command, *args], input=stdin, env=self._environment, capture_output=True,
                              text=True, timeout=60, check=False)

    def start(self, *args: str) -> subprocess.Popen[str]:
        """A call that goes on, as `get -w`; the caller ends it."""
        return subprocess.Popen([*self._command, *args], env=self._environment, stdout=subprocess.PIPE, text=True)


@pytest.fixture(scope="module")
def server() -> Iterator[ApiServer]:
    with ApiServer() as running:
        yield running


@pytest.fixture(scope="module")
def kubectl(server: ApiServer, tmp_path_factory: pytest.TempPathFactory) -> Kubectl:
    if KUBECTL is None:
        pytest.skip("kubectl is not installed")
    home = tmp_path_factory.mktemp("home")
    server.write_kubeconfig(home / "kubeconfig")
    return Kubectl(home / "kubeconfig", home)
