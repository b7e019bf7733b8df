"""The example of several replicas as programs: one works, the other follows at once when the first is told to stop."""
from __future__ import annotations

import signal
from pathlib import Path

from configmapgen_controller import ConfigMapGenerator

from kubectl_runtime import Api, apply_crd, await_condition
from kubectl_runtime.resources import ConfigMap
from kubectl_runtime.testing import ApiServer
from tests.examples.programs import LIMIT, ROOT, Program

REPLICAS = ROOT / "examples" / "elected_replicas.py"


def test_the_second_replica_works_when_the_first_has_stopped(tmp_path: Path) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    with ApiServer() as server, server.client() as client:
        server.write_kubeconfig(kubeconfig)
        apply_crd(client, ConfigMapGenerator)
        generators = Api.namespaced(client, ConfigMapGenerator, "default")
        generators.create({"metadata": {"name": "a"}, "spec": {"content": "one"}})
        children = Api.namespaced(client, ConfigMap, "default")
        with Program(REPLICAS, env={"KUBECONFIG": kubeconfig}) as first:
            first.until(" leads")
            await_condition(children, "a", lambda found: found is not None, timeout=LIMIT)
            with Program(REPLICAS, env={"KUBECONFIG": kubeconfig}) as second:
                second.until("is a candidate")
                first.send(signal.SIGTERM)
                assert first.end() == 0, first.text
                second.until(" leads")
                generators.apply({"metadata": {"name": "b"}, "spec": {"content": "two"}}, field_manager="test")
                await_condition(children, "b", lambda found: found is not None, timeout=LIMIT)
                second.send(signal.SIGTERM)
                assert second.end() == 0, second.text
