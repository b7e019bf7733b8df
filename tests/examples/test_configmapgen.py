"""The example controller as a program: its demo, its signals, and its life on a cluster."""
from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from configmapgen_controller import ConfigMapGenerator, Spec
from configmapgen_story import Counting

from kubectl_runtime import Api, Client, NotOurs
from kubectl_runtime.controller import Children
from kubectl_runtime.resources import ConfigMap
from kubectl_runtime.testing import ApiServer
from tests.examples.programs import ROOT, Program

CONTROLLER = ROOT / "examples" / "configmapgen_controller.py"
STUCK = """
import logging, sys, threading
sys.path.insert(0, "examples")
import configmapgen_story
from kubectl_runtime.runtime.lifecycle import signals

class Stuck(configmapgen_story.Counting):
    def reconcile(self, obj, ctx):
        print("stuck", flush=True)
        threading.Event().wait()

configmapgen_story.Counting = Stuck
signals.SAME_STOP = 0.0
logging.basicConfig(level=logging.INFO)
sys.exit(configmapgen_story.play())
"""
"""The demo with a reconciler that never returns, so that the end takes as long as the test needs, and in which no
signal is taken for the one before."""


WARNING = """
import logging, sys
sys.path.insert(0, "examples")
import configmapgen_story
logging.basicConfig(level=logging.WARNING)
sys.exit(configmapgen_story.play())
"""


@pytest.fixture
def server() -> Iterator[ApiServer]:
    with ApiServer() as running:
        yield running


@pytest.fixture
def client(server: ApiServer) -> Iterator[Client]:
    with server.client() as client:
        yield client


def test_without_a_cluster_it_says_so_and_plays_the_demo_which_tells_that_everything_happened() -> None:
    with Program("-W", "error::ResourceWarning", CONTROLLER) as demo:
        assert demo.end() == 0, demo.text
    assert demo.lines[0].startswith("no cluster is configured. Tried $KUBECONFIG")
    assert demo.lines[-1] == "Everything happened as it should."
    assert demo.text.count("✓") == 12
    assert "12 things verified" in demo.lines[-2]
    assert "Traceback" not in demo.text


def test_the_demo_tells_errors_on_purpose_from_others() -> None:
    conflict = NotOurs(Children())
    ctx = SimpleNamespace(attempt=2, backoff_delay=1.0)
    reconciler: Any = Counting()
    reconciler.error_policy(ConfigMapGenerator(name="supper"), conflict, ctx)
    reconciler.error_policy(ConfigMapGenerator(name="lunch"), conflict, ctx)
    reconciler.error_policy(ConfigMapGenerator(name="supper"), ValueError("a mistake"), ctx)
    assert (reconciler.errors, reconciler.others) == (1, 2)


@pytest.mark.parametrize(("when", "number"), [
    ("An embedded API server", signal.SIGTERM), ("A hundred guests arrive", signal.SIGINT),
    pytest.param("An embedded API server", signal.SIGINT, marks=pytest.mark.long),
    pytest.param("A hundred guests arrive", signal.SIGTERM, marks=pytest.mark.long)])
def test_a_signal_in_the_middle_is_told_and_is_no_failure(when: str, number: signal.Signals) -> None:
    with Program("-W", "error::ResourceWarning", CONTROLLER, "--demo") as demo:
        demo.until(when)
        demo.send(number)
        assert demo.end() == 0, demo.text
    assert demo.lines[-1] == f"stopped by {number.name}"
    assert "Traceback" not in demo.text


def test_no_controller_of_the_demo_keeps_itself_or_another_one_busy() -> None:
    with Program("-c", WARNING) as demo:
        assert demo.end() == 0, demo.text
    assert "not ours, and left alone: ConfigMap default/supper was made by somebody-else" in demo.text
    assert "what differed between the last two versions" not in demo.text


@pytest.mark.parametrize(("first", "second"), [(signal.SIGTERM, signal.SIGTERM), (signal.SIGTERM, signal.SIGINT)])
def test_a_second_signal_ends_it_at_once(first: signal.Signals, second: signal.Signals) -> None:
    with Program("-c", STUCK) as demo:
        demo.until("stuck")
        demo.send(first)
        demo.until("stopping")
        demo.send(second)
        assert demo.end() == 128 + second
    assert f"{second.name} again: ending at once" in demo.text


def test_on_a_cluster_it_works_until_a_signal(server: ApiServer, client: Client, tmp_path: Path) -> None:
    server.load([ConfigMapGenerator.crd()])
    Api.default_namespaced(client, ConfigMapGenerator).create(ConfigMapGenerator(name="a", spec=Spec(content="x")))
    with Program(CONTROLLER, env={"KUBECONFIG": server.write_kubeconfig(tmp_path / "kubeconfig")}) as program:
        events = Api.default_namespaced(client, ConfigMap).watch()
        made = next(event.obj for event in events if event.obj is not None and event.obj.name == "a")
        assert made.data == {"content": "x"}
        program.until("reconciling")
        program.send(signal.SIGTERM)
        assert program.end() == 0, program.text
    assert "stopping: SIGTERM" in program.text


def test_a_missing_crd_is_named_and_waited_for(server: ApiServer, client: Client, tmp_path: Path) -> None:
    with Program(CONTROLLER, env={"KUBECONFIG": server.write_kubeconfig(tmp_path / "kubeconfig")}) as program:
        line = program.until("is its CRD installed")
        assert f"the server does not serve {ConfigMapGenerator.crd_name()}" in line
        assert line.count("is its CRD installed") == 1
        server.load([ConfigMapGenerator.crd()])
        program.until("reconciling")
        program.send(signal.SIGTERM)
        assert program.end() == 0, program.text


def test_an_unreachable_server_is_named_with_where_its_address_comes_from(server: ApiServer, tmp_path: Path) -> None:
    kubeconfig = server.write_kubeconfig(tmp_path / "kubeconfig")
    server.stop()
    with Program(CONTROLLER, env={"KUBECONFIG": kubeconfig}) as program:
        assert str(kubeconfig) in program.until("Is the API server running there?")
        program.send(signal.SIGTERM)
        assert program.end() == 0, program.text


def test_a_broken_kubeconfig_is_an_error_and_no_reason_for_a_demo(tmp_path: Path) -> None:
    broken = tmp_path / "kubeconfig"
    broken.write_text("clusters: [")
    with Program(CONTROLLER, env={"KUBECONFIG": broken}) as program:
        assert program.end() == 1
    assert len(program.lines) == 1
    assert program.lines[0].startswith(f"error: the kubeconfig {broken} is not valid YAML (line ")


def test_the_controller_part_is_short() -> None:
    code, _, command_line = CONTROLLER.read_text(encoding="utf-8").partition("# --- end of the controller")
    assert command_line
    assert len(code.splitlines()) <= 80
