"""What the guides tell to save and run does what they say."""
from __future__ import annotations

import importlib
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import requests
import yaml

from kubectl_runtime import Api, Client, Config, Patch
from kubectl_runtime.manifests import apply_manifests
from kubectl_runtime.params import DeleteParams
from kubectl_runtime.resources import ConfigMap
from kubectl_runtime.runtime.observe.metrics import FAMILIES
from kubectl_runtime.testing import ApiServer, Simulation
from kubectl_runtime.webhooks.handler import WebhookOptions
from tests.examples.programs import LIMIT, PLUGIN, ROOT, Program, blocks, environment

GUIDE = ROOT / "examples" / "guides" / "first-controller.md"
DELETION_GUIDE = ROOT / "examples" / "guides" / "deletion-and-finalizers.md"
APPLY_GUIDE = ROOT / "examples" / "guides" / "server-side-apply-and-conditions.md"
PREDICATES_GUIDE = ROOT / "examples" / "guides" / "predicates-and-triggers.md"
RELATIONS_GUIDE = ROOT / "examples" / "guides" / "relations.md"
RESOURCES_GUIDE = ROOT / "examples" / "guides" / "custom-resources.md"
STORES_GUIDE = ROOT / "examples" / "guides" / "stores.md"
WEBHOOKS_GUIDE = ROOT / "examples" / "guides" / "webhooks.md"
OBSERVABILITY_GUIDE = ROOT / "examples" / "guides" / "production" / "observability.md"
AVAILABILITY_GUIDE = ROOT / "examples" / "guides" / "production" / "availability-and-scaling.md"
BUGS_GUIDE = ROOT / "examples" / "guides" / "testing" / "finding-bugs.md"
CLUSTER_GUIDE = ROOT / "examples" / "guides" / "production" / "to-a-cluster.md"
WAITING_GUIDE = ROOT / "examples" / "guides" / "waiting.md"
RIGHTS_GUIDE = ROOT / "examples" / "guides" / "testing" / "rights-and-time.md"
TESTING_GUIDE = ROOT / "examples" / "guides" / "testing" / "without-a-cluster.md"
KIT_GUIDE = ROOT / "examples" / "guides" / "testing" / "kit.md"


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """A folder with the guide's two files."""
    program, test = blocks(GUIDE, "python")
    (tmp_path / "greeting.py").write_text(program)
    (tmp_path / "test_greeting.py").write_text(test)
    return tmp_path


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """What a guide says to run. No controller of a guide keeps itself or another one busy."""
    warnings = folder / "warnings.log"
    logged = {"PYTEST_ADDOPTS": f"--log-file={warnings} --log-file-level=WARNING"}
    done = subprocess.run([sys.executable, *arguments], cwd=folder, env=environment(logged), capture_output=True,
                          text=True, timeout=LIMIT, check=False)
    assert "pytest" not in arguments or "what differed between the last two versions" not in warnings.read_text()
    return done


def test_the_test_of_the_guide_passes(saved: Path) -> None:
    done = run(saved, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_greeting.py")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout


@pytest.fixture
def plugin() -> list[str]:
    """Options by which a pytest of its own finds the fixtures."""
    return PLUGIN


@pytest.mark.long
def test_the_deletion_guide_is_short_and_its_tests_pass(tmp_path: Path, plugin: list[str]) -> None:
    assert len(DELETION_GUIDE.read_text().splitlines()) <= 150
    program, test = blocks(DELETION_GUIDE, "python")
    (tmp_path / "site_dns.py").write_text(program)
    (tmp_path / "test_site_dns.py").write_text(test)
    done = run(tmp_path, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--timeout", "100", *plugin)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3 passed" in done.stdout


def test_the_types_of_the_deletion_guide_are_right(tmp_path: Path) -> None:
    pytest.importorskip("mypy", reason="mypy comes with the extra 'lint'")
    (tmp_path / "site_dns.py").write_text(blocks(DELETION_GUIDE, "python")[0])
    done = run(tmp_path, "-m", "mypy", "--strict", "site_dns.py")
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


@pytest.mark.long
def test_the_tests_of_the_guides_to_testing_pass(saved: Path, plugin: list[str]) -> None:
    (saved / "test_greeting.py").unlink()
    save_blocks(TESTING_GUIDE, saved)
    save_blocks(RIGHTS_GUIDE, saved)
    done = run(saved, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--timeout", "100", *plugin)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "11 passed" in done.stdout


@pytest.mark.long
def test_the_tests_of_the_guide_to_the_kit_pass(tmp_path: Path, plugin: list[str]) -> None:
    assert len(KIT_GUIDE.read_text().splitlines()) <= 150
    save_blocks(KIT_GUIDE, tmp_path)
    done = run(tmp_path, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--timeout", "100", *plugin)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "6 passed" in done.stdout


def save_blocks(guide: Path, folder: Path) -> None:
    """Each block as a file; its first line is a comment with the file's name."""
    for block in blocks(guide, "python"):
        (folder / block.partition("\n")[0].removeprefix("# ")).write_text(block)


@pytest.mark.long
def test_the_tests_of_the_guides_to_conditions_and_waiting_pass(tmp_path: Path) -> None:
    save_blocks(APPLY_GUIDE, tmp_path)
    save_blocks(WAITING_GUIDE, tmp_path)
    done = run(tmp_path, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--timeout", "100")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "4 passed" in done.stdout


@pytest.mark.long
def test_the_guide_to_relations_is_short_and_its_tests_and_types_are_right(tmp_path: Path) -> None:
    assert len(RELATIONS_GUIDE.read_text().splitlines()) <= 150
    save_blocks(RELATIONS_GUIDE, tmp_path)
    done = run(tmp_path, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--timeout", "100")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "4 passed" in done.stdout
    pytest.importorskip("mypy", reason="mypy comes with the extra 'lint'")
    done = run(tmp_path, "-m", "mypy", "--strict", "banner.py")
    assert done.returncode == 0, done.stdout


@pytest.mark.long
def test_the_guide_to_custom_resources_is_short_and_its_tests_types_and_commands_are_right(
        tmp_path: Path, plugin: list[str]) -> None:
    text = RESOURCES_GUIDE.read_text()
    assert len(text.splitlines()) <= 150
    save_blocks(RESOURCES_GUIDE, tmp_path)
    done = run(tmp_path, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--timeout", "100", *plugin)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "5 passed" in done.stdout
    command = re.findall(r"`kubectl-runtime (crd [^`]*)`", text)[0].split()
    crd = run(tmp_path, "-m", "kubectl_runtime", *command)
    (tmp_path / "crd.yaml").write_text(crd.stdout)
    assert run(tmp_path, "-m", "kubectl_runtime", *command, "--check", "crd.yaml").returncode == 0, crd.stderr
    assert "class OvenSpec(" in run(tmp_path, "-m", "kubectl_runtime", "codegen", "crd.yaml").stdout
    pytest.importorskip("mypy", reason="mypy comes with the extra 'lint'")
    done = run(tmp_path, "-m", "mypy", "--strict", "bakery.py")
    assert done.returncode == 0, done.stdout


@pytest.mark.long
def test_the_guide_to_predicates_is_short_and_its_tests_and_types_are_right(tmp_path: Path) -> None:
    assert len(PREDICATES_GUIDE.read_text().splitlines()) <= 150
    save_blocks(PREDICATES_GUIDE, tmp_path)
    done = run(tmp_path, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--timeout", "100")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3 passed" in done.stdout
    pytest.importorskip("mypy", reason="mypy comes with the extra 'lint'")
    done = run(tmp_path, "-m", "mypy", "--strict", "sites.py")
    assert done.returncode == 0, done.stdout


@pytest.mark.long
def test_the_guide_to_stores_is_short_and_its_tests_and_types_are_right(tmp_path: Path) -> None:
    assert len(STORES_GUIDE.read_text().splitlines()) <= 100
    save_blocks(STORES_GUIDE, tmp_path)
    done = run(tmp_path, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--timeout", "100")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 passed" in done.stdout
    pytest.importorskip("mypy", reason="mypy comes with the extra 'lint'")
    done = run(tmp_path, "-m", "mypy", "--strict", "test_inventory.py",
               "test_own_writes.py")
    assert done.returncode == 0, done.stdout


@pytest.mark.long
def test_the_guide_to_webhooks_is_short_and_its_tests_types_and_commands_are_right(tmp_path: Path,
                                                                                   plugin: list[str]) -> None:
    text = WEBHOOKS_GUIDE.read_text()
    assert len(text.splitlines()) <= 150
    program, test = blocks(WEBHOOKS_GUIDE, "python")
    (tmp_path / "orders.py").write_text(program)
    (tmp_path / "test_orders.py").write_text(test)
    done = run(tmp_path, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--timeout", "100", *plugin)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 passed" in done.stdout
    command = re.search(r"`kubectl-runtime (webhooks [^`]+)`", text)
    assert command is not None
    done = run(tmp_path, "-m", "kubectl_runtime", *command[1].split())
    assert [one["kind"] for one in yaml.safe_load_all(done.stdout)] == [
        "ValidatingWebhookConfiguration", "MutatingWebhookConfiguration", "CustomResourceDefinition"], done.stderr
    assert '"budget.orders.example.com"' in text
    assert done.stdout.count("name: budget.orders.example.com") == 2
    for keyword in re.findall(r"`(\w+)`", text.partition("webhook's configuration:")[2].partition("\n\n")[0]):
        assert keyword in WebhookOptions.__dataclass_fields__


def test_the_types_of_the_guide_to_webhooks_are_right(tmp_path: Path) -> None:
    pytest.importorskip("mypy", reason="mypy comes with the extra 'lint'")
    (tmp_path / "orders.py").write_text(blocks(WEBHOOKS_GUIDE, "python")[0])
    done = run(tmp_path, "-m", "mypy", "--strict", "orders.py")
    assert done.returncode == 0, done.stdout


@pytest.mark.long
def test_the_observability_guide_is_short_its_tests_pass_and_its_series_exist(tmp_path: Path,
                                                                              plugin: list[str]) -> None:
    text = OBSERVABILITY_GUIDE.read_text()
    assert len(text.splitlines()) <= 150
    program, test = blocks(OBSERVABILITY_GUIDE, "python")
    (tmp_path / "site_sizes.py").write_text(program)
    (tmp_path / "test_site_sizes.py").write_text(test)
    done = run(tmp_path, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--timeout", "100", *plugin,
               "test_site_sizes.py")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 passed" in done.stdout
    named = re.findall(r"\b(?:controller_runtime|workqueue|rest_client|kubectl_runtime)_\w*[a-z]\b", text)
    named = [name for name in named if "import" not in name]
    assert {name.removesuffix("_bucket") for name in named} <= {family.name for family in FAMILIES}


@pytest.mark.long
def test_the_guide_to_availability_is_short_and_its_tests_and_types_are_right(tmp_path: Path,
                                                                              plugin: list[str]) -> None:
    assert len(AVAILABILITY_GUIDE.read_text().splitlines()) <= 150
    program, test = blocks(AVAILABILITY_GUIDE, "python")
    (tmp_path / "stamps.py").write_text(program)
    (tmp_path / "test_stamps.py").write_text(test)
    done = run(tmp_path, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--timeout", "100", *plugin, "test_stamps.py")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 passed" in done.stdout
    pytest.importorskip("mypy", reason="mypy comes with the extra 'lint'")
    done = run(tmp_path, "-m", "mypy", "--strict", "stamps.py")
    assert done.returncode == 0, done.stdout


def test_the_program_prints_its_crd(saved: Path) -> None:
    done = run(saved, "-m", "kubectl_runtime", "crd", "greeting:Greeting")
    assert yaml.safe_load(done.stdout)["metadata"]["name"] == "greetings.example.com", done.stderr


def test_the_program_runs_on_a_server_of_its_own(saved: Path) -> None:
    commands = "".join(blocks(GUIDE, "sh"))
    assert ".venv/bin/kubectl-runtime run greeting:main --dev\n" in commands
    assert "export KUBECONFIG=$PWD/.kubectl-runtime/kubeconfig\n" in commands
    (manifest,) = re.findall(r"<<EOF\n(.*?)EOF\n", commands, re.DOTALL)
    with Program("-m", "kubectl_runtime", "run", "greeting:main", "--dev", cwd=saved) as program:
        program.until("reconciling")
        with Client(Config.from_kubeconfig(saved / ".kubectl-runtime" / "kubeconfig")) as client:
            apply_manifests(client, manifest, field_manager="kubectl", progress=False)
            maps = Api.default_namespaced(client, ConfigMap)
            ada = next(event.obj for event in maps.watch() if event.obj is not None and event.obj.name == "ada")
            assert ada.data == {"text": "Hello Ada!"}
        program.send(signal.SIGINT)
        assert program.end() == 0, program.text


def test_the_types_of_the_program_are_right(saved: Path) -> None:
    pytest.importorskip("mypy", reason="mypy comes with the extra 'lint'")
    done = run(saved, "-m", "mypy", "--strict", "greeting.py")
    assert done.returncode == 0, done.stdout


def test_files_that_are_named_exist() -> None:
    for name in ("access.yaml", "crd.yaml", "deployment.yaml", "network.yaml", "Dockerfile"):
        assert f"examples/deploy/{name}" in CLUSTER_GUIDE.read_text()
        assert (ROOT / "examples" / "deploy" / name).exists()


@pytest.mark.long
@pytest.mark.timeout(400)
def test_the_guide_to_finding_bugs_is_short_and_finds_and_replays_them(tmp_path: Path, plugin: list[str]) -> None:
    text = BUGS_GUIDE.read_text()
    assert len(text.splitlines()) <= 150
    save_blocks(BUGS_GUIDE, tmp_path)
    pytest_here = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "--timeout", "100", *plugin)
    done = run(tmp_path, *pytest_here)
    assert "2 passed" in done.stdout, done.stdout + done.stderr
    done = run(tmp_path, *pytest_here, "--perturb", "-k", "story")
    assert "1 failed" in done.stdout, done.stdout + done.stderr
    for line in re.findall(r"^> +(\S.*)$", text, re.MULTILINE):
        assert line in done.stdout
    command = re.findall(r"`kubectl-runtime (perturb [^`]*)`", text)[0].split()
    done = run(tmp_path, "-m", "kubectl_runtime", *command)
    assert (done.returncode, "there are 2, not 1" in done.stdout) == (1, True), done.stderr
    (tmp_path / "recording.py").write_text(RECORDING)
    done = run(tmp_path, "recording.py")
    assert done.returncode == 0, done.stderr
    command = re.findall(r"^kubectl-runtime (replay .*)$", text, re.MULTILINE)[0].split()
    done = run(tmp_path, "-m", "kubectl_runtime", *command)
    assert "the same exception as recorded: ApiError: create configmaps" in done.stdout, done.stdout + done.stderr


RECORDING = """
from kubectl_runtime import Api
from kubectl_runtime.testing import ApiServer
from recorded_shelves import main
from shelves import Shelf, ShelfSpec

with ApiServer() as server, server.client() as client:
    server.load([Shelf.crd()])
    server.faults.on("create", resource="configmaps").status(403)
    with main(client).start() as running:
        running.wait_until_ready(30)
        Api.namespaced(client, Shelf, "default").create(Shelf(name="a", spec=ShelfSpec()))
        server.requests.wait_for(2, "create", resource="configmaps", timeout=30)
"""
