"""The README is true: its programs run, its commands are those that CI runs, its links lead somewhere."""
from __future__ import annotations

import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import requests

from kubectl_runtime import Api, Client, Config, Controller, Patch
from kubectl_runtime.resources import ConfigMap, Namespace
from kubectl_runtime.testing import ApiServer, Simulation
from tests.examples.programs import LIMIT, ROOT, Program, blocks, environment

README = ROOT / "README.md"
DEMO, TESTS, DEVELOP, PLAN, SERVER = (block.strip() for block in blocks(README, "sh"))
GREETER, OPERATOR, _READS, SNIPPET = blocks(README, "python")


def test_ci_runs_the_test_command_as_it_is_written() -> None:
    assert TESTS in (ROOT / ".ci" / "run").read_text().splitlines()


def test_the_two_commands_install_and_run() -> None:
    assert DEMO == ("python3 -m venv .venv && .venv/bin/pip install -q -e . && "
                    ".venv/bin/python examples/configmapgen_controller.py --demo")
    assert TESTS == ("python3 -m venv .venv && .venv/bin/pip install -q -e '.[test]' && "
                     ".venv/bin/pytest -n 3 --dist worksteal")
    assert (ROOT / "examples" / "configmapgen_controller.py").exists()


def test_the_controller_has_at_most_25_lines_and_does_what_it_says(tmp_path: Path) -> None:
    assert len(GREETER.strip().splitlines()) <= 25
    (tmp_path / "greeter.py").write_text(GREETER)
    with ApiServer() as server, server.client() as client:
        kubeconfig = server.write_kubeconfig(tmp_path / "kubeconfig")
        with Program("-W", "error::ResourceWarning", "greeter.py", env={"KUBECONFIG": kubeconfig},
                     cwd=tmp_path) as program:
            maps = Api.namespaced(client, ConfigMap, "default")
            events = (event for event in maps.watch() if event.obj is not None and event.obj.name == "greeting")
            first = next(events)
            assert first.obj is not None
            assert first.obj.data == {"text": "Welcome to default!"}
            program.until("reconciling")
            maps.delete("greeting")
            assert [next(events).type, next(events).type] == ["DELETED", "ADDED"]
            program.send(signal.SIGINT)
            assert program.end() == 0, program.text
    assert "Traceback" not in program.text


def test_the_plan_shows_a_new_version_and_writes_nothing(tmp_path: Path) -> None:
    command, *arguments = PLAN.split()
    assert command == ".venv/bin/kubectl-runtime"
    (tmp_path / "greeter.py").write_text(f"{GREETER}\n\n{OPERATOR}")
    env: Any = environment({"PYTHONPATH": f"{ROOT}:{tmp_path}"})
    with ApiServer() as server, server.client() as client:
        env["KUBECONFIG"] = str(server.write_kubeconfig(tmp_path / "kubeconfig"))
        for namespace in Api.all(client, Namespace).list():
            text = {"text": f"Welcome to {namespace.name}!"}
            greeting = ConfigMap(name="greeting", namespace=namespace.name, data=text)
            greeting.set_owner(namespace)
            Api.namespaced(client, ConfigMap, namespace.name).apply(greeting, field_manager="greeter")

        def planned() -> str:
            done = subprocess.run([sys.executable, "-m", "kubectl_runtime", *arguments], cwd=tmp_path, env=env,
                                  capture_output=True, text=True, timeout=LIMIT, check=False)
            assert done.returncode == 0, done.stderr
            return done.stdout

        before = server.snapshot()[0]
        assert planned().startswith("0 to create, 0 to change, 0 to delete")
        (tmp_path / "greeter.py").write_text(f"{GREETER}\n\n{OPERATOR}".replace("Welcome to", "Hello"))
        shown = planned()
        assert 'data.text: "Welcome to default!" -> "Hello default!"' in shown
        assert "0 to create, 4 to change, 0 to delete" in shown
        assert server.snapshot()[0] == before


def test_the_operator_runs_on_a_server_of_its_own(tmp_path: Path) -> None:
    command, *arguments = DEVELOP.split()
    assert command == ".venv/bin/kubectl-runtime"
    (tmp_path / "greeter.py").write_text(f"{GREETER}\n\n{OPERATOR}")
    with Program("-m", "kubectl_runtime", *arguments, cwd=tmp_path) as program:
        program.until("reconciling")
        with Client(Config.from_kubeconfig(tmp_path / ".kubectl-runtime" / "kubeconfig")) as client:
            maps = Api.default_namespaced(client, ConfigMap)
            greeting = next(event.obj for event in maps.watch() if event.obj is not None and
                            event.obj.name == "greeting")
            assert greeting.data == {"text": "Welcome to default!"}
        program.send(signal.SIGINT)
        assert program.end() == 0, program.text


@pytest.mark.parametrize("seed", range(5))
def test_the_controller_lets_a_namespace_go(seed: int, caplog: pytest.LogCaptureFixture) -> None:
    """While it terminates, which something in it delays, nothing is put back, and nothing fails."""
    program: dict[str, Any] = {"__name__": "greeter"}
    exec(compile(GREETER, "greeter.py", "exec", dont_inherit=True), program)
    sim = Simulation(seed)
    session = requests.Session()
    server = ApiServer(clock=sim.clock, seed=seed)
    session.mount("http://", server.transport())
    with Client(Config(cluster_url="http://simulated"), session=session, clock=sim.clock) as client:
        namespaces, maps = Api.all(client, Namespace), Api.namespaced(client, ConfigMap, "team")
        sim.start(Controller(namespaces).owns(Api.all(client, ConfigMap)), program["Greet"]())
        namespaces.create(Namespace(name="team"))
        maps.create(ConfigMap(name="held", finalizers=["other.example.com/x"]))
        sim.settle(1)
        assert maps.get("greeting").data == {"text": "Welcome to team!"}
        server.requests.clear()
        namespaces.delete("team")
        sim.settle(60)
        # once at most: the watch of the ConfigMaps may be faster than that of the namespaces
        assert len(server.requests.select("patch", "/api/v1/namespaces/team/*/greeting")) <= 1
        assert namespaces.get("team").deletion_timestamp
        assert [found.name for found in maps.list().items] == ["held"]
        maps.patch("held", Patch.merge({"metadata": {"finalizers": None}}))
        sim.settle(60)
        assert namespaces.get_opt("team") is None
    assert not [record for record in caplog.records if record.levelname in ("WARNING", "ERROR")]


def test_the_snippet_without_a_cluster_runs(tmp_path: Path) -> None:
    with Program("-W", "error::ResourceWarning", "-c", SNIPPET, cwd=tmp_path) as program:
        assert program.end() == 0, program.text
    assert program.text == ""


def test_the_server_beside_other_programs_says_that_it_is_ready(tmp_path: Path) -> None:
    interpreter, *arguments = SERVER.split()
    assert interpreter == ".venv/bin/python"
    arguments[arguments.index("--port") + 1] = "0"  # the port of the README may be taken here
    with Program(*arguments, cwd=tmp_path) as program:
        assert re.fullmatch(r"ready http://127\.0\.0\.1:\d+", program.until("ready"))
        if kubectl := shutil.which("kubectl"):
            shown = subprocess.run([kubectl, "--kubeconfig", "kubeconfig", "get", "namespaces"], cwd=tmp_path,
                                   timeout=LIMIT,
                                   capture_output=True, text=True, check=True, env=environment({"HOME": tmp_path}))
            assert "default" in shown.stdout
        program.send(signal.SIGINT)
        assert program.end() == 0, program.text


def test_the_types_of_the_programs_are_right(tmp_path: Path) -> None:
    pytest.importorskip("mypy", reason="mypy comes with the extra 'lint'")
    for name, text in (("greeter.py", f"{GREETER}\n\n{OPERATOR}"), ("snippet.py", SNIPPET)):
        (tmp_path / name).write_text(text)
    done = subprocess.run([sys.executable, "-m", "mypy", "--strict", "greeter.py",
                           "snippet.py"],
                          cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=LIMIT, check=False)
    assert done.returncode == 0, done.stdout


def test_links_and_names_lead_somewhere() -> None:
    text = README.read_text()
    headings = {re.sub(r"[^a-z0-9 ]", "", line.lstrip("# ").lower()).replace(" ", "-")
                for line in text.splitlines() if line.startswith("#")}
    for target in re.findall(r"\]\(([^)]+)\)", text):
        assert target[1:] in headings if target.startswith("#") else (ROOT / target.partition("#")[0]).exists(), target
    for module in re.findall(r"`(kubectl_runtime(?:\.\w+)+)`", text):
        path = ROOT / module.replace(".", "/")
        assert path.is_dir() or path.with_suffix(".py").is_file(), module
