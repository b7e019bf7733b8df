"""What the guides tell to save and run does what they say."""
from __future__ import annotations

import importlib
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import requests

from kubectl_runtime import Api, Client, Config, DeleteParams, Patch
from kubectl_runtime.resources import ConfigMap
from kubectl_runtime.runtime.observe.metrics import FAMILIES
from kubectl_runtime.testing import ApiServer, Simulation
from tests.examples.programs import LIMIT, ROOT, blocks, environment

GUIDE = ROOT / "examples" / "guides" / "first-controller.md"
DELETION_GUIDE = ROOT / "examples" / "guides" / "deletion-and-finalizers.md"
APPLY_GUIDE = ROOT / "examples" / "guides" / "server-side-apply-and-conditions.md"
RELATIONS_GUIDE = ROOT / "examples" / "guides" / "relations.md"
RESOURCES_GUIDE = ROOT / "examples" / "guides" / "custom-resources.md"
OBSERVABILITY_GUIDE = ROOT / "examples" / "guides" / "observability.md"
TESTING_GUIDE = ROOT / "examples" / "guides" / "testing-without-a-cluster.md"


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """A folder with the guide's two files."""
    program, test = blocks(GUIDE, "python")
    (tmp_path / "greeting.py").write_text(program)
    (tmp_path / "test_greeting.py").write_text(test)
    return tmp_path


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *arguments], cwd=folder, env=environment(), capture_output=True, text=True,
                          timeout=LIMIT, check=False)


def test_the_test_of_the_guide_passes(saved: Path) -> None:
    done = run(saved, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_greeting.py")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout


@pytest.fixture
def plugin(pytestconfig: pytest.Config) -> list[str]:
    """Options by which a pytest of its own finds the fixtures."""
    installed = pytestconfig.pluginmanager.has_plugin("kubectl_runtime")  # by its entry point
    return [] if installed else ["-p", "kubectl_runtime.testing.pytest_plugin"]


def test_the_deletion_guide_is_short_and_its_tests_pass(tmp_path: Path, plugin: list[str]) -> None:
    assert len(DELETION_GUIDE.read_text().splitlines()) <= 150
    program, test = blocks(DELETION_GUIDE, "python")
    (tmp_path / "site_dns.py").write_text(program)
    (tmp_path / "test_site_dns.py").write_text(test)
    done = run(tmp_path, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--timeout", "30", *plugin)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3 passed" in done.stdout


def test_the_types_of_the_deletion_guide_are_right(tmp_path: Path) -> None:
    pytest.importorskip("mypy", reason="mypy comes with the extra 'lint'")
    (tmp_path / "site_dns.py").write_text(blocks(DELETION_GUIDE, "python")[0])
    done = run(tmp_path, "-m", "mypy", "--strict", "--cache-dir", str(tmp_path / "cache"), "site_dns.py")
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("seed", range(5))
def test_the_first_controller_does_not_put_back_what_goes_with_a_deletion(
        seed: int, saved: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    """A foreground deletion: first the ConfigMap, then its Greeting, which is there meanwhile."""
    monkeypatch.syspath_prepend(saved)
    monkeypatch.delitem(sys.modules, "greeting", raising=False)
    program = importlib.import_module("greeting")
    monkeypatch.setitem(sys.modules, "greeting", program)  # and is taken out again
    greeting = program.Greeting
    sim = Simulation(seed)
    server = ApiServer(clock=sim.clock, seed=seed)
    server.load([greeting.crd()])
    session = requests.Session()
    session.mount("http://", server.transport())
    with Client(Config(cluster_url="http://simulated"), session=session, clock=sim.clock) as client:
        greetings = Api.namespaced(client, greeting, "default")
        sim.start(program.controller(client), program.Greet())
        greetings.create(greeting(name="ada", spec=program.GreetingSpec(name="Ada"), finalizers=["other.org/x"]))
        sim.settle(1)
        maps = Api.namespaced(client, ConfigMap, "default")
        assert maps.get("ada").data == {"text": "Hello Ada!"}
        greetings.delete("ada", DeleteParams(propagation_policy="Foreground"))
        sim.settle(1)
        if maps.get_opt("ada"):  # its watch was faster than that of the Greeting, so it was put back once
            maps.delete("ada")
        sim.settle(60)
        assert greetings.get("ada").deletion_timestamp
        assert maps.get_opt("ada") is None
        greetings.patch("ada", Patch.merge({"metadata": {"finalizers": None}}))
        sim.settle(60)
        assert greetings.get_opt("ada") is None
    assert not [record for record in caplog.records if record.levelname in ("WARNING", "ERROR")]


def test_the_tests_of_the_testing_guide_pass(saved: Path, plugin: list[str]) -> None:
    (saved / "test_greeting.py").unlink()
    save_blocks(TESTING_GUIDE, saved)
    done = run(saved, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--timeout", "30", *plugin)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "9 passed" in done.stdout


def save_blocks(guide: Path, folder: Path) -> None:
    """Each block as a file; its first line is a comment with the file's name."""
    for block in blocks(guide, "python"):
        (folder / block.partition("\n")[0].removeprefix("# ")).write_text(block)


def test_the_tests_of_the_guide_to_apply_and_conditions_pass(tmp_path: Path) -> None:
    save_blocks(APPLY_GUIDE, tmp_path)
    done = run(tmp_path, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--timeout", "30")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3 passed" in done.stdout


def test_the_guide_to_relations_is_short_and_its_tests_and_types_are_right(tmp_path: Path) -> None:
    assert len(RELATIONS_GUIDE.read_text().splitlines()) <= 150
    save_blocks(RELATIONS_GUIDE, tmp_path)
    done = run(tmp_path, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--timeout", "30")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "4 passed" in done.stdout
    pytest.importorskip("mypy", reason="mypy comes with the extra 'lint'")
    done = run(tmp_path, "-m", "mypy", "--strict", "--cache-dir", str(tmp_path / "cache"), "banner.py")
    assert done.returncode == 0, done.stdout


def test_the_guide_to_custom_resources_is_short_and_its_tests_types_and_commands_are_right(
        tmp_path: Path, plugin: list[str]) -> None:
    text = RESOURCES_GUIDE.read_text()
    assert len(text.splitlines()) <= 150
    save_blocks(RESOURCES_GUIDE, tmp_path)
    done = run(tmp_path, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--timeout", "30", *plugin)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "4 passed" in done.stdout
    command = re.findall(r"`kubectl-runtime (crd [^`]*)`", text)[0].split()
    crd = run(tmp_path, "-m", "kubectl_runtime", *command)
    (tmp_path / "crd.yaml").write_text(crd.stdout)
    assert run(tmp_path, "-m", "kubectl_runtime", *command, "--check", "crd.yaml").returncode == 0, crd.stderr
    assert "class OvenSpec(" in run(tmp_path, "-m", "kubectl_runtime", "codegen", "crd.yaml").stdout
    pytest.importorskip("mypy", reason="mypy comes with the extra 'lint'")
    done = run(tmp_path, "-m", "mypy", "--strict", "--cache-dir", str(tmp_path / "cache"), "bakery.py")
    assert done.returncode == 0, done.stdout


def test_the_observability_guide_is_short_its_tests_pass_and_its_series_exist(tmp_path: Path,
                                                                              plugin: list[str]) -> None:
    text = OBSERVABILITY_GUIDE.read_text()
    assert len(text.splitlines()) <= 150
    program, test = blocks(OBSERVABILITY_GUIDE, "python")
    (tmp_path / "site_sizes.py").write_text(program)
    (tmp_path / "test_site_sizes.py").write_text(test)
    done = run(tmp_path, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--timeout", "60", *plugin,
               "test_site_sizes.py")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 passed" in done.stdout
    named = re.findall(r"\b(?:controller_runtime|workqueue|rest_client|kubectl_runtime)_\w*[a-z]\b", text)
    named = [name for name in named if "import" not in name]
    assert {name.removesuffix("_bucket") for name in named} <= {family.name for family in FAMILIES}


def test_the_program_prints_its_crd(saved: Path) -> None:
    done = run(saved, "greeting.py", "--crd")
    assert json.loads(done.stdout)["metadata"]["name"] == "greetings.example.com", done.stderr


def test_the_types_of_the_program_are_right(saved: Path) -> None:
    pytest.importorskip("mypy", reason="mypy comes with the extra 'lint'")
    done = run(saved, "-m", "mypy", "--strict", "--cache-dir", str(saved / "cache"), "greeting.py")
    assert done.returncode == 0, done.stdout


def test_files_that_are_named_exist() -> None:
    for name in ("access.yaml", "crd.yaml", "deployment.yaml", "Dockerfile"):
        assert f"examples/deploy/{name}" in GUIDE.read_text()
        assert (ROOT / "examples" / "deploy" / name).exists()
