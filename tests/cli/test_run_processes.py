"""`kubectl-runtime run` as processes: an operator on a server, and what ends it."""
from __future__ import annotations

import json
import re
import signal
import socket
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from kubectl_runtime import Api, Client
from kubectl_runtime.resources import ConfigMap, Lease
from kubectl_runtime.testing import ApiServer, eventually
from tests.examples.programs import LIMIT, Program

OPERATOR = """
import logging
from kubectl_runtime import Action, Api, Controller
from kubectl_runtime.resources import ConfigMap

log = logging.getLogger(__name__)
log.info("imported")

def reconcile(obj, ctx):
    if not obj.labels.get("seen"):
        maps = Api.namespaced(ctx.client, ConfigMap, obj.namespace)
        maps.apply({"metadata": {"name": obj.name, "labels": {"seen": "yes"}}}, field_manager="test")
        log.info("marked %s", obj.name)
    return Action.await_change()

def main(client):
    return Controller(Api.all(client, ConfigMap)).bind(reconcile)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "marking_operator.py").write_text(OPERATOR)
    return tmp_path


@pytest.fixture
def server(folder: Path) -> Iterator[ApiServer]:
    with ApiServer() as running:
        running.write_kubeconfig(folder / "kubeconfig")
        yield running


@pytest.fixture
def client(server: ApiServer) -> Iterator[Client]:
    with server.client() as client:
        yield client


def operator(folder: Path, *arguments: str, place: str = "marking_operator:main") -> Program:
    return Program("-W", "error::ResourceWarning", "-m", "kubectl_runtime", "run", place, *arguments,
                   env={"KUBECONFIG": folder / "kubeconfig"}, cwd=folder)


def get(port: int, path: str) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
        assert answer.status == 200
        return str(answer.read().decode())


def test_it_works_until_a_signal_with_health_and_metrics(folder: Path, client: Client) -> None:
    maps = Api.default_namespaced(client, ConfigMap)
    maps.create(ConfigMap(name="a"))
    with operator(folder, "--health-probe-bind-address", "127.0.0.1:0") as program:
        port = int(program.until("listens at port").rpartition(" ")[2])
        assert any("INFO    marking_operator: imported" in line for line in program.lines)
        program.until("marked a")
        assert get(port, "/healthz") == "ok"
        assert get(port, "/readyz") == "ok"
        counted = re.compile(r'controller_runtime_reconcile_total\{controller="configmap",result="success"\} [1-9]')
        assert eventually(lambda: counted.search(get(port, "/metrics")))  # a moment after the run's own line
        program.send(signal.SIGTERM)
        assert program.end() == 0, program.text
    assert "Traceback" not in program.text


def test_it_tells_json_and_serves_nothing_where_that_is_said(folder: Path, client: Client) -> None:
    Api.default_namespaced(client, ConfigMap).create(ConfigMap(name="a"))
    with operator(folder, "--log-format", "json", "--health-probe-bind-address", "0", "--no-metrics",
                  "--log-level", "debug") as program:
        program.until("marked a")
        program.send(signal.SIGINT)
        assert program.end() == 0, program.text
    lines = [json.loads(line) for line in program.lines]
    marked = next(line for line in lines if line["message"] == "marked a")
    assert (marked["logger"], marked["kind"], marked["name"]) == ("marking_operator", "ConfigMap", "a")
    assert not any("listens" in line["message"] for line in lines)


def test_it_is_elected_and_gives_its_lease_back(folder: Path, client: Client) -> None:
    Api.namespaced(client, ConfigMap, "default").create(ConfigMap(name="a"))
    with operator(folder, "--leader-elect", "--leader-elect-resource-name", "marking",
                  "--leader-elect-resource-namespace", "kube-system", "--health-probe-bind-address", "0") as program:
        program.until("marked a")
        leases = Api.namespaced(client, Lease, "kube-system")
        assert leases.get("marking")["spec"]["holderIdentity"]
        program.send(signal.SIGTERM)
        assert program.end() == 0, program.text
    assert not leases.get("marking")["spec"].get("holderIdentity")


def test_an_address_that_is_taken_ends_it_with_status_1(folder: Path, server: ApiServer) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        for form in ("text", "json"):
            with operator(folder, "--health-probe-bind-address", f"127.0.0.1:{port}", "--log-format", form) as program:
                assert program.end() == 1
            last = program.lines[-1] if form == "text" else f"error: {json.loads(program.lines[-1])['message']}"
            assert last == (f"error: cannot listen at 127.0.0.1:{port}: Address already in use; "
                            "--health-probe-bind-address sets another address, or 0 for none")
            assert "Traceback" not in program.text


@pytest.mark.parametrize("mode", ["cluster", "dev", "option"])
def test_the_address_of_the_programs_own_manager_is_changed_there(folder: Path, server: ApiServer, mode: str) -> None:
    """With the option the program sets nothing; otherwise the error must not name an option that is then refused."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        (folder / "serving_operator.py").write_text(
            "from kubectl_runtime import Manager\n\ndef main(client):\n"
            f"    return Manager(client{'' if mode == 'option' else f', serve={address!r}'})\n")
        if mode == "cluster":
            program = operator(folder, place="serving_operator:main")
        else:
            more = ["--health-probe-bind-address", address] if mode == "option" else []
            program = Program("-m", "kubectl_runtime", "run", "serving_operator:main", "--dev", *more, cwd=folder)
        with program:
            program.until("error: ")
            remedy = ("--health-probe-bind-address sets another address, or 0 for none" if mode == "option" else
                      f"the program's own Manager has serve={address!r}: change it there, or leave it out")
            assert program.lines[-1] == f"error: cannot listen at {address}: Address already in use; {remedy}"
            assert "serves http" not in program.text


def test_a_failure_of_the_program_ends_it_with_status_1(folder: Path, server: ApiServer) -> None:
    (folder / "failing_operator.py").write_text(
        "from kubectl_runtime import Manager\n\ndef fail(stop):\n    raise ValueError('no table')\n\n"
        "def main(client):\n    return Manager(client, serve=None).add_runnable(fail, 'tables')\n")
    with operator(folder, place="failing_operator:main") as program:
        assert program.end() == 1
    assert program.lines[-1] == "error: the operator has failed, as the log says: ValueError: no table"
    assert "runnable tables failed" in program.text


def test_an_error_at_import_shows_the_programs_frames_alone(folder: Path) -> None:
    (folder / "broken_operator.py").write_text("def main(client):\n    return 1\n\nundefined\n")
    with operator(folder, place="broken_operator:main") as program:
        assert program.end() == 1
    assert program.lines[0] == ("error: broken_operator cannot be imported: NameError: name 'undefined' is not "
                                "defined")
    assert [line for line in program.lines if "File " in line] == [
        f'  File "{folder / "broken_operator.py"}", line 4, in <module>']


@pytest.mark.parametrize(("module", "absent"), [
    ("kubectl_runtime.cli.operator", ["kubectl_runtime.apiserver", "kubectl_runtime.testing", "prometheus_client"]),
    ("kubectl_runtime.cli.develop", ["kubectl_runtime.client.api", "kubectl_runtime.crd", "requests"]),
])
def test_neither_half_pays_for_the_other(module: str, absent: list[str]) -> None:
    program = f"import sys, {module}; print([name for name in {absent} if name in sys.modules])"
    with Program("-c", program) as done:
        assert done.end() == 0
    assert done.text == "[]"


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_while_the_module_is_imported_ends_it_at_once(folder: Path, number: signal.Signals,
                                                               status: int) -> None:
    (folder / "slow_operator.py").write_text(
        "import threading\nprint('importing', flush=True)\nthreading.Event().wait(300)\n")
    with operator(folder, place="slow_operator:main") as program:
        program.until("importing")
        begun = time.monotonic()
        program.send(number)
        assert program.end() == status
        assert time.monotonic() - begun < LIMIT / 2
    assert "Traceback" not in program.text
