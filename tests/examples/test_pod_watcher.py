"""The Pod watcher as a program."""
from __future__ import annotations

import os
import signal
from pathlib import Path

from kubectl_runtime import Api, Patch
from kubectl_runtime.params import DeleteParams
from kubectl_runtime.resources import Pod
from kubectl_runtime.testing import ApiServer
from tests.examples.programs import ROOT, Program

WATCHER = ROOT / "examples" / "pod_watcher.py"
POD = {"metadata": {"name": "web"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}


def test_it_prints_what_is_there_and_what_changes(tmp_path: Path) -> None:
    with ApiServer() as server, server.client() as client:
        pods = Api.namespaced(client, Pod, "default")
        pods.create({**POD, "metadata": {"name": "early"}})
        environment = {"KUBECONFIG": server.write_kubeconfig(tmp_path / "kubeconfig")}
        with Program("-W", "error::ResourceWarning", WATCHER, env=environment) as program:
            program.until("watching")
            assert [line.split() for line in program.lines] == [["listing"], ["default/early", "Pending"], ["watching"]]
            pods.create(POD)
            program.until(" * default/web")
            pods.patch("web", Patch.merge({"metadata": {"labels": {"a": "b"}}}))
            program.until(" * default/web")
            pods.delete("web", DeleteParams(grace_period_seconds=0))
            program.until(" - default/web")
            program.send(signal.SIGINT)
            assert program.end() == 0, program.text
    assert program.lines[-1] == "stopped", program.text


def test_one_namespace_can_be_watched_alone(tmp_path: Path) -> None:
    with ApiServer() as server, server.client() as client:
        for namespace in ("default", "kube-system"):
            Api.namespaced(client, Pod, namespace).create(POD)
        environment = {"KUBECONFIG": server.write_kubeconfig(tmp_path / "kubeconfig")}
        with Program(WATCHER, "--namespace", "kube-system", env=environment) as program:
            program.until("watching")
    assert [line.split()[0] for line in program.lines] == ["listing", "kube-system/web", "watching"]


def test_without_a_cluster_it_says_what_was_tried() -> None:
    with Program(WATCHER) as program:
        assert program.end() == 1
    assert program.lines[0].startswith(f"error: no cluster is configured. Tried $KUBECONFIG: {os.devnull}")
    assert len(program.lines) == 1
