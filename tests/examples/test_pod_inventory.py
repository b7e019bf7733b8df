"""The inventory of Pods, as an application and as a program."""
from __future__ import annotations

import json
import signal
import threading
from pathlib import Path
from typing import Any

import pod_inventory
import requests

from kubectl_runtime import Api
from kubectl_runtime.resources import Pod
from kubectl_runtime.testing import ApiServer
from tests.examples.programs import ROOT, Program

POD = {"metadata": {"name": "web"}, "spec": {"nodeName": "n1", "containers": [{"name": "c", "image": "i"}]}}


def page(application: Any, path: str) -> tuple[str, Any]:
    status: list[str] = []
    body = b"".join(application({"PATH_INFO": path}, lambda line, headers: status.append(line)))
    return status[0], json.loads(body)


def test_each_page_is_made_from_memory_and_the_watch_ends_with_the_application() -> None:
    with ApiServer() as server, server.client() as client:
        pods = Api.namespaced(client, Pod, "default")
        pods.create(POD)
        with pod_inventory.inventory(pods) as application:
            assert page(application, "/nodes/n1") == ("200 OK", ["default/web"])
            status, summary = page(application, "/")
            assert (status, summary["pods"], summary["nodes"]) == ("200 OK", 1, {"n1": 1})
            pods.create({**POD, "metadata": {"name": "other"}})
            assert page(application, "/nodes/n1")[1] == ["default/other", "default/web"]
            assert page(application, "/nodes/n2") == ("200 OK", [])
            assert page(application, "/healthz")[0] == "200 OK"
            assert page(application, "/else")[0] == "404 Not Found"
        assert page(application, "/healthz")[0] == "503 Service Unavailable"
        assert [thread.name for thread in threading.enumerate() if thread.name.startswith("watch ")] == []


def test_as_a_program_it_serves_until_it_is_interrupted(tmp_path: Path) -> None:
    with ApiServer() as server, server.client() as client:
        Api.namespaced(client, Pod, "default").create(POD)
        environment = {"KUBECONFIG": server.write_kubeconfig(tmp_path / "kubeconfig")}
        with Program("-W", "error::ResourceWarning", ROOT / "examples" / "pod_inventory.py", "--port", "0",
                     env=environment) as program:
            program.until("http://")
            url = program.lines[-1].strip()
            assert requests.get(f"{url}nodes/n1", timeout=20).json() == ["default/web"]
            program.send(signal.SIGINT)
            assert program.end() == 0, program.text
    assert program.lines[-1] == "stopped"
