"""`kubectl-runtime run --dev`: an operator on a server of its own, which stays while the operator comes and goes."""
from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest
import requests

from kubectl_runtime import Api, ApiResource, Client, Config, Patch, TransportError
from kubectl_runtime.cli.develop import OperatorProcess, _lock
from kubectl_runtime.cli.places import Place
from kubectl_runtime.cli.run_options import Order, RunOptions
from kubectl_runtime.resources import Namespace
from tests.examples.programs import LIMIT, ROOT, Program, environment

OPERATOR = """
import msgspec
from kubectl_runtime import Action, Api, Controller, CustomResource
from kubectl_runtime.resources import ConfigMap

class Spec(msgspec.Struct):
    name: str

class Greeting(CustomResource, group="example.com", version="v1", kind="Greeting"):
    spec: Spec

def reconcile(obj, ctx):
    text = f"Hello {obj.spec.name}!"
    child = ConfigMap(name=obj.name, namespace=obj.namespace, data={"text": text})
    child.set_owner(obj)
    Api.namespaced(ctx.client, ConfigMap, obj.namespace).apply(child, field_manager="greeting")
    print("said", text, flush=True)
    return Action.await_change()

def main(client):
    return Controller(Api.all(client, Greeting)).owns(Api.all(client, ConfigMap)).bind(reconcile)
"""
STUCK = """
import threading

def stuck(obj, ctx):
    print("stuck", flush=True)
    threading.Event().wait()

reconcile = stuck
"""
GREETINGS = ApiResource("example.com", "v1", "Greeting", "greetings")
ADA = {"apiVersion": "example.com/v1", "kind": "Greeting", "metadata": {"name": "ada"}, "spec": {"name": "Ada"}}


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "greeting_operator.py"
    path.write_text(OPERATOR)
    return path


def dev(source: Path, *arguments: str) -> Program:
    return Program("-m", "kubectl_runtime", "run", "greeting_operator:main", "--dev", *arguments, cwd=source.parent)


def kubeconfig(source: Path) -> Path:
    return source.parent / ".kubectl-runtime" / "kubeconfig"


def test_the_operator_restarts_when_its_source_changes(source: Path) -> None:
    with dev(source) as program:
        program.until("serves http://")
        with Client(Config.from_kubeconfig(kubeconfig(source))) as client:
            greetings = Api.default_namespaced(client, GREETINGS)
            uid = greetings.create(ADA).uid
            program.until("said Hello Ada!")
            source.write_text(OPERATOR.replace("Hello", "Good day"))
            program.until("--- greeting_operator.py changed: restarting ---")
            program.until("said Good day Ada!")
            assert greetings.get("ada").uid == uid
        program.send(signal.SIGINT)
        assert program.end() == 0, program.text
    assert not kubeconfig(source).exists()


@pytest.mark.long
def test_the_operator_follows_its_source_and_the_server_keeps_its_objects(source: Path) -> None:
    with dev(source) as program:
        program.until("export KUBECONFIG=")
        assert program.lines[-1].strip() == f"kubectl     export KUBECONFIG={kubeconfig(source)}"
        program.until("serves http://")
        source.unlink()
        program.until("error: there is no module 'greeting_operator' in ")
        program.until("--- the operator has ended with status 2; it restarts when a .py file changes ---")
        source.write_text(OPERATOR)
        program.until("installed greetings.example.com: kubectl get greetings.example.com --all-namespaces")
        page = program.until("shows what it does: http://127.0.0.1:").split()[-1]
        with Client(Config.from_kubeconfig(kubeconfig(source))) as client:
            greetings = Api.default_namespaced(client, GREETINGS)
            uid = greetings.create(ADA).uid
            program.until("said Hello Ada!")
            state = requests.get(f"{page}/debug/state.json", timeout=LIMIT).json()
            assert (state["details"], state["controllers"][0]["kind"]) == (True, "greetings.example.com")

            source.write_text(OPERATOR.replace("Hello", "Good day"))
            program.until("--- greeting_operator.py changed: restarting ---")
            program.until("said Good day Ada!")

            source.write_text(OPERATOR + "\nundefined\n")
            program.until("NameError: name 'undefined' is not defined")
            program.until("--- the operator has ended with status 1; it restarts when a .py file changes ---")
            assert greetings.get("ada").uid == uid

            source.write_text(OPERATOR.replace("    name: str", "    name: str\n    times: int = 1"))
            program.until("said Hello Ada!")
            changed = greetings.patch("ada", Patch.merge({"spec": {"times": 3}}))
            assert changed["spec"]["times"] == 3  # the definition followed the class
            if kubectl := shutil.which("kubectl"):
                shown = subprocess.run([kubectl, "get", "greetings.example.com", "--all-namespaces"], timeout=LIMIT,
                                       env=environment({"KUBECONFIG": kubeconfig(source), "HOME": source.parent}),
                                       capture_output=True, text=True, check=True)
                assert "ada" in shown.stdout
        program.send(signal.SIGINT)
        assert program.end() == 0, program.text
    assert not kubeconfig(source).exists()
    assert kubeconfig(source).with_name(".gitignore").read_text() == "*\n"
    assert program.text.count("Traceback") == 1


@pytest.mark.parametrize(("named", "said"), [
    ("greeting_operator:mian", "error: greeting_operator has no mian (did you mean main?); its functions: "),
    pytest.param("greting_operator:main", "error: there is no module 'greting_operator' in ", marks=pytest.mark.long),
    pytest.param("greeting_operator:Greeting", "error: greeting_operator:Greeting is the class of a kind; it has to be",
                 marks=pytest.mark.long)])
def test_a_name_that_is_not_there_at_the_first_start_is_the_end(source: Path, named: str, said: str) -> None:
    with Program("-m", "kubectl_runtime", "run", named, "--dev", cwd=source.parent) as program:
        program.until(said)
        assert program.end() == 2, program.text


def test_a_second_signal_does_not_wait_for_a_run(source: Path) -> None:
    source.write_text(OPERATOR.replace("def main", STUCK + "\ndef main"))
    with dev(source) as program:
        program.until("installed")
        with Client(Config.from_kubeconfig(kubeconfig(source))) as client:
            Api.default_namespaced(client, GREETINGS).create(ADA)
            program.until("stuck")
        program.send(signal.SIGINT)
        program.until("waiting for runs in progress; Ctrl-C again ends at once")
        program.send(signal.SIGINT)
        assert program.end() == 130, program.text


def test_no_operator_outlives_its_server(source: Path) -> None:
    with dev(source) as program:
        program.until("reconciling")
        program.send(signal.SIGKILL)
        program.end()  # its output ends when the last process that holds it has ended
        assert "controller.greeting: stopped" in program.text


def test_a_source_with_the_name_of_a_module_of_python_is_told_to_take_another(source: Path) -> None:
    source.rename(source.with_name("operator.py"))
    with Program("-P", "-m", "kubectl_runtime", "run", "operator:main", "--dev", cwd=source.parent) as program:
        program.until("operator.py could be: give operator.py another name")
        program.send(signal.SIGTERM)
        assert program.end() == 0, program.text
    assert "Traceback" not in program.text


def test_the_options_reach_the_operator(source: Path) -> None:
    with dev(source, "--log-format", "json", "--health-probe-bind-address", "0", "--leader-elect",
             "--leader-elect-resource-name", "greeting", "--namespace", "kube-system") as program:
        assert '"logger":"kubectl_runtime' in program.until("leads")
        assert "kube-system/greeting" in program.lines[-1]
        program.send(signal.SIGTERM)
        assert program.end() == 0, program.text
    assert "serves http" not in program.text


def test_an_operator_that_heeds_no_signal_is_ended_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                                                capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "deaf_operator.py").write_text(
        "import pathlib, signal, threading\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "pathlib.Path('deaf').touch()\nthreading.Event().wait(300)\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    order = Order(RunOptions(Place("deaf_operator", "main")), "127.0.0.1:0")
    with OperatorProcess(msgspec.json.encode(order), tmp_path / "kubeconfig") as process:
        assert process.status() is None
        process.start()
        while not (tmp_path / "deaf").exists():
            assert process.status() is None, capfd.readouterr().err
        process.end(0.1)
        assert process.status() == 128 + signal.SIGKILL


def test_its_lower_half_is_no_command_of_its_own(source: Path) -> None:
    reading, writing = os.pipe()
    os.close(writing)
    done = subprocess.run([sys.executable, "-m", "kubectl_runtime.cli.dev_operator", str(reading)],
                          pass_fds=[reading], cwd=ROOT, env=environment(), capture_output=True, text=True,
                          timeout=LIMIT, check=False)
    os.close(reading)
    assert done.returncode == 1
    assert done.stderr == "kubectl-runtime run --dev starts this module; it is not a command of its own\n"


def test_a_folder_that_cannot_be_written_is_told(source: Path) -> None:
    (source.parent / ".kubectl-runtime").write_text("a file")
    with dev(source) as program:
        assert program.end() == 1
    assert "error: no kubeconfig can be written: " in program.lines[-1]


def test_a_second_command_in_the_folder_is_refused_and_does_not_harm_the_first(source: Path) -> None:
    with dev(source) as first:
        first.until("reconciling")
        written = kubeconfig(source).read_text()
        with dev(source) as second:
            assert second.end() == 1, second.text
        assert f"error: another `kubectl-runtime run --dev` runs in {source.parent}" in second.text
        assert kubeconfig(source).read_text() == written
        first.send(signal.SIGKILL)
        first.end()
    with dev(source) as third:  # the lock of a killed process does not remain
        third.until("reconciling")
        assert kubeconfig(source).read_text() != written
        third.send(signal.SIGTERM)
        assert third.end() == 0, third.text
    assert not kubeconfig(source).exists()


def test_the_operator_keeps_its_server_whatever_happens_to_the_folders_kubeconfig(source: Path) -> None:
    source.write_text(OPERATOR + "\nimport os\nprivate = os.environ['KUBECONFIG']\n"
                      "print('private', private, oct(os.stat(private).st_mode & 0o777), flush=True)\n")
    with dev(source) as program:
        private = Path(program.until("private ").split()[1])
        assert program.lines[-1].endswith(" 0o600")
        program.until("reconciling")
        with Client(Config.from_kubeconfig(kubeconfig(source))) as client:
            shutil.rmtree(kubeconfig(source).parent)
            source.write_text(source.read_text().replace("Hello", "Good day"))
            program.until("changed: restarting")
            program.until("reconciling")
            Api.default_namespaced(client, GREETINGS).create(ADA)
            program.until("said Good day Ada!")
        program.send(signal.SIGTERM)
        assert program.end() == 0, program.text
    assert not private.parent.exists()


def test_an_operator_whose_parent_is_killed_removes_its_kubeconfig(source: Path) -> None:
    source.write_text(OPERATOR + "\nimport os\nprint('private', os.environ['KUBECONFIG'], flush=True)\n")
    with dev(source) as program:
        private = Path(program.until("private ").split()[1])
        program.until("reconciling")
        program.send(signal.SIGKILL)
        program.end()
    limit = time.monotonic() + LIMIT
    while private.parent.exists() and time.monotonic() < limit:
        time.sleep(0.05)
    assert not private.parent.exists()


def test_without_fcntl_the_folder_is_not_locked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fcntl", None)  # as on Windows
    with contextlib.ExitStack() as held:
        _lock(tmp_path, held)
    assert not list(tmp_path.iterdir())


def test_a_missing_namespace_of_the_lease_is_logged_with_its_remedy(source: Path) -> None:
    with dev(source, "--leader-elect", "--leader-elect-resource-namespace", "platform") as program:
        program.until('namespaces "platform" not found. Nothing is reconciled without this Lease: create the namespace '
                      "platform (kubectl create namespace platform; with `run --dev`, --load a file that contains it)")
        with Client(Config.from_kubeconfig(kubeconfig(source))) as client:
            Api.all(client, Namespace).create(Namespace(name="platform"))
        program.until(" leads")
        program.send(signal.SIGTERM)
        assert program.end() == 0, program.text
    assert "s: reconciling begins when this process holds a Lease" in program.text


def test_its_server_ends_with_it_and_the_kubeconfig_of_a_later_one_stays(source: Path) -> None:
    with dev(source) as program:
        line = program.until("API server  ")
        assert line.endswith(": empty, in memory, gone at the end")
        url = line.split()[2].rstrip(":")
        program.until("reconciling")
        kubeconfig(source).write_text("of another one")
        program.send(signal.SIGTERM)
        assert program.end() == 0
    assert kubeconfig(source).read_text() == "of another one"
    with Client(Config(cluster_url=url, timeout=2)) as client, pytest.raises(TransportError):
        client.server_version()


FOREIGN = """
from kubectl_runtime import Action, Api, ApiResource, Controller

def reconcile(obj, ctx):
    print("saw", obj.name, flush=True)
    return Action.await_change()

def main(client):
    return Controller(Api.all(client, ApiResource("other.example.org", "v1", "Thing", "things"))).bind(reconcile)
"""
THINGS = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: things.other.example.org}
spec:
  group: other.example.org
  scope: Namespaced
  names: {kind: Thing, plural: things}
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}
"""


def test_manifests_of_others_are_there_before_the_operator(source: Path) -> None:
    source.write_text(FOREIGN)
    (source.parent / "crds").mkdir()
    (source.parent / "crds" / "things.yaml").write_text(THINGS)
    (source.parent / "one.yaml").write_text("{apiVersion: other.example.org/v1, kind: Thing, metadata: {name: first}}")
    with dev(source, "--load", "crds", "--load", "one.yaml") as program:
        program.until("loaded 1 object from one.yaml")
        assert program.until("API server  ").endswith(": in memory, gone at the end")
        program.until("saw first")
        program.send(signal.SIGINT)
        assert program.end() == 0, program.text


@pytest.mark.parametrize(("arguments", "status", "words"), [
    (["--dev", "--load", "missing.yaml"], 1, "--load missing.yaml"),
    (["--dev", "--load", "wrong.yaml"], 1, "--load wrong.yaml"),
    (["--load", "wrong.yaml"], 2, "--load is for the --dev server")])
def test_what_cannot_be_loaded_is_said(arguments: list[str], status: int, words: str, source: Path) -> None:
    (source.parent / "wrong.yaml").write_text("{apiVersion: other.example.org/v1, kind: Thing, metadata: {name: a}}")
    done = subprocess.run([sys.executable, "-m", "kubectl_runtime", "run", "greeting_operator:main", *arguments],
                          cwd=source.parent, env=environment(), capture_output=True, text=True, timeout=LIMIT,
                          check=False)
    assert done.returncode == status, done.stderr
    assert words in done.stderr
