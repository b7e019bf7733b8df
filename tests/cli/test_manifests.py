"""What an installation is made of: `kubectl-runtime manifests`, and the project that `kubectl-runtime init` writes."""
from __future__ import annotations

import itertools
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from kubectl_runtime import Api, ApiResource, Client, Config
from kubectl_runtime.cli.main import main
from kubectl_runtime.manifests import apply_manifests
from kubectl_runtime.resources import ConfigMap, Lease
from kubectl_runtime.testing import ApiServer, eventually
from tests.examples.programs import ROOT, Program, environment

KINDS = '''
from typing import Any
from kubectl_runtime import Conversion, CustomResource

class BoxV1(CustomResource, group="example.com", version="v1", kind="Box", storage=False):
    spec: dict[str, Any]

class Box(CustomResource, group="example.com", version="v2", kind="Box"):
    spec: dict[str, Any]

STEPS = {(BoxV1, Box): lambda old: Box(spec=old.spec), (Box, BoxV1): lambda new: BoxV1(spec=new.spec)}
'''
PROGRAM = '''
import os
from kubectl_runtime import Action, Api, Controller, LeaderElection, Manager
from kubectl_runtime.manager.sharding import Sharding
from kubectl_runtime.resources import ConfigMap, Pod
from kubectl_runtime.webhooks import Admission, SelfSigned, application
from kubectl_runtime.webhooks.server import WebhookServer
from kubectl_runtime import Conversion
from kinds_of_mine import STEPS, Box

def nothing(obj, ctx):
    return Action.await_change()

def bound(client):
    return Controller(Api.all(client, Box)).shutdown_on_signal(grace=7.5).owns(Api.all(client, ConfigMap)).bind(nothing)

def here(client):
    return Controller(Api.default_namespaced(client, ConfigMap), name="local").bind(nothing)

def elected(client):
    return Manager(client, leader=LeaderElection("lease-of-mine"), grace=60).add(bound(client))

def sharded(client):
    return Manager(client, sharding=Sharding("op", shards=4)).add(bound(client))

def silent(client):
    return Manager(client, serve="127.0.0.1:8080").add(bound(client))

class Quota(Admission[Pod]):
    def validate(self, request):
        pass

def hooked(client, **more):
    app = application({"/quota": Quota(), "/convert": Conversion(STEPS)})
    server = WebhookServer(app, certificates=SelfSigned("shop/hooks"), client=client, **more)
    return Manager(client).add(bound(client)).add_server(server)

def applied(client):
    return hooked(client, configuration="mine")

def from_files(client):
    return Manager(client).add_server(WebhookServer(application({"/quota": Quota()}), certificates="/certs", port=9555))

def outside(client):
    app = application({"/quota": Quota()})
    where = os.environ.get("WHERE")
    server = WebhookServer(app, certificates=SelfSigned(where), client=client, configuration="x",
                           url=None if where else "https://127.0.0.1:9443")
    return Manager(client).add_server(server)
'''
NAME = "program_of_mine"
"""The module of the test at hand."""
_NUMBERS = itertools.count()
IMAGE = "registry.example.com/op:1"
PROJECT = ("init", "shop-operator")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    number = next(_NUMBERS)  # classes of the tests before are still there
    (tmp_path / f"program_of_mine{number}.py").write_text(PROGRAM.replace("kinds_of_mine", f"kinds_of_mine{number}"))
    (tmp_path / f"kinds_of_mine{number}.py").write_text(KINDS.replace("example.com", f"g{number}.example.com"))
    monkeypatch.setattr(sys.modules[__name__], "NAME", f"program_of_mine{number}")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delenv("WHERE", raising=False)
    return tmp_path


def printed(capsys: pytest.CaptureFixture[str], program: str, *more: str) -> list[dict[str, Any]]:
    assert main(["manifests", f"{NAME}:{program}", "--image", IMAGE, *more]) == 0
    return list(yaml.safe_load_all(capsys.readouterr().out))


def one(documents: list[dict[str, Any]], kind: str, name: str | None = None) -> dict[str, Any]:
    (found,) = [document for document in documents
                if document["kind"] == kind and name in (None, document["metadata"]["name"])]
    return found


def pod_of(documents: list[dict[str, Any]]) -> Any:
    return one(documents, "Deployment")["spec"]["template"]["spec"]


def kinds(documents: list[dict[str, Any]]) -> list[str]:
    return [document["kind"] for document in documents]


def test_a_controller_gets_an_election_probes_and_its_own_grace_period(capsys: pytest.CaptureFixture[str]) -> None:
    documents = printed(capsys, "bound", "--name", "op")
    assert kinds(documents) == ["Namespace", "CustomResourceDefinition", "ServiceAccount", "ClusterRole",
                                "ClusterRoleBinding", "Role", "RoleBinding", "Service", "Deployment",
                                "PodDisruptionBudget"]
    pod = pod_of(documents)
    (container,) = pod["containers"]
    assert container["command"] == ["kubectl-runtime", "run", f"{NAME}:bound"]
    assert container["args"] == ["--log-format=json", "--leader-elect", "--leader-elect-resource-name=op"]
    assert one(documents, "Deployment")["spec"]["replicas"] == 2
    assert pod["terminationGracePeriodSeconds"] == 23
    versions = one(documents, "CustomResourceDefinition")["spec"]["versions"]
    assert {version["name"] for version in versions} == {"v1", "v2"}
    assert container["ports"] == [{"name": "http", "containerPort": 8080}]


def test_an_election_of_its_own_sharing_and_serving_nobody(capsys: pytest.CaptureFixture[str]) -> None:
    elected = printed(capsys, "elected", "--name", "op", "--replicas", "3", "--memory", "1Gi")
    (container,) = pod_of(elected)["containers"]
    assert container["args"] == ["--log-format=json"]
    assert container["resources"]["limits"] == {"memory": "1Gi"}
    assert one(elected, "Role", "op-election")["rules"][0]["resourceNames"] == ["lease-of-mine"]
    assert pod_of(elected)["terminationGracePeriodSeconds"] == 75
    sharded = printed(capsys, "sharded", "--name", "op")
    assert pod_of(sharded)["containers"][0]["args"] == ["--log-format=json"]
    assert one(sharded, "Role", "op-sharding")
    silent = printed(capsys, "silent", "--name", "op")
    assert not {"livenessProbe", "readinessProbe", "ports"} & pod_of(silent)["containers"][0].keys()
    assert "Service" not in kinds(silent)


def test_what_lives_in_the_operators_namespace_is_granted_there(capsys: pytest.CaptureFixture[str]) -> None:
    for more, namespace in (((), "local"), (("--namespace", "shop"), "shop"), (("--namespace", "default"), "default")):
        documents = printed(capsys, "here", *more)
        assert one(documents, "Role", "local")["metadata"]["namespace"] == namespace
        assert ("Namespace" in kinds(documents)) == (namespace != "default")


def test_webhooks_get_a_service_and_configurations(capsys: pytest.CaptureFixture[str]) -> None:
    documents = printed(capsys, "hooked")
    assert {document["metadata"].get("namespace") for document in documents} == {None, "shop"}
    assert one(documents, "Service", "hooks")["spec"]["ports"] == [
        {"name": "webhooks", "port": 443, "targetPort": "webhooks"}]
    assert kinds(documents)[-1] == "ValidatingWebhookConfiguration"  # when the Pods that answer are there to come
    assert documents[-1]["webhooks"][0]["clientConfig"]["service"] == {"namespace": "shop", "name": "hooks",
                                                                      "path": "/quota/validate"}
    definition = one(documents, "CustomResourceDefinition")["spec"]
    assert definition["conversion"]["webhook"]["clientConfig"]["service"]["name"] == "hooks"
    assert len(definition["versions"]) == 2
    own = printed(capsys, "applied")
    assert "ValidatingWebhookConfiguration" not in kinds(own)
    assert "conversion" not in one(own, "CustomResourceDefinition")["spec"]


def test_certificates_from_files_are_mounted(capsys: pytest.CaptureFixture[str]) -> None:
    documents = printed(capsys, "from_files", "--name", "op")
    pod = pod_of(documents)
    assert pod["volumes"] == [{"name": "webhooks-tls", "secret": {"secretName": "op-webhooks-tls"}}]
    assert pod["containers"][0]["volumeMounts"] == [{"name": "webhooks-tls", "mountPath": "/certs", "readOnly": True}]
    assert {"name": "webhooks", "containerPort": 9555} in pod["containers"][0]["ports"]
    assert one(documents, "Service", "op-webhooks")
    assert pod["containers"][0]["args"] == ["--log-format=json"]  # there is nothing to elect anybody for


def test_the_environment_is_that_of_the_pod(capsys: pytest.CaptureFixture[str],
                                            monkeypatch: pytest.MonkeyPatch) -> None:
    assert main(["manifests", f"{NAME}:outside", "--image", IMAGE, "--name", "op"]) == 1
    assert "--env NAME=VALUE" in capsys.readouterr().err
    monkeypatch.setenv("WHERE", "")  # put back afterwards
    documents = printed(capsys, "outside", "--env", "WHERE=shop/door")
    assert pod_of(documents)["containers"][0]["env"] == [{"name": "WHERE", "value": "shop/door"}]
    assert one(documents, "Service", "door")["metadata"]["namespace"] == "shop"
    assert main(["manifests", f"{NAME}:outside", "--image", IMAGE, "--env", "WHERE=shop/door",
                 "--namespace", "other"]) == 1
    assert "leave --namespace out" in capsys.readouterr().err


@pytest.mark.parametrize("program", ["bound", "hooked", "from_files"])
def test_a_server_takes_all_of_it(program: str, capsys: pytest.CaptureFixture[str],
                                  caplog: pytest.LogCaptureFixture) -> None:
    documents = printed(capsys, program, "--name", "op")
    with ApiServer(warn_unobeyed=False) as server, server.client() as admin:
        apply_manifests(admin, documents, field_manager="test", progress=False)
    assert [record.getMessage() for record in caplog.records if record.levelname == "WARNING"] == []


def test_check_compares_with_what_is_stored(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["manifests", f"{NAME}:bound", "--image", IMAGE, "--name", "op", "--memory", "1Gi"]
    assert main(command) == 0
    stored = folder / "deploy.yaml"
    stored.write_text(f"# a comment\n{capsys.readouterr().out}")
    assert main([*command, "--check", str(stored)]) == 0
    assert main([*command[:3], "other:2", *command[4:], "--check", str(stored)]) == 1
    shown = capsys.readouterr()
    assert "-        image: registry.example.com/op:1" in shown.out
    assert "--image other:2 --name op --memory 1Gi > " in shown.err
    assert main([*command, "--check", str(folder / "missing.yaml")]) == 1
    stored.write_text("a: [")
    assert main([*command, "--check", str(stored)]) == 1


@pytest.mark.parametrize("wrong", [["--replicas", "0"], ["--memory", "much"], ["--memory", "-1Gi"], ["--env", "A"]])
def test_a_wrong_command_line_is_told_apart(wrong: list[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["manifests", f"{NAME}:bound", "--image", IMAGE, *wrong])
    assert end.value.code == 2


# The walk of a new user


def command(cwd: Path, *words: str, **env: str | Path) -> str:
    done = subprocess.run([sys.executable, *words], cwd=cwd, env=environment(env), capture_output=True, text=True,
                          timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("whole", [False, pytest.param(True, marks=pytest.mark.long)])  # with `run --dev`, and checked
def test_from_an_empty_folder_to_an_operator_with_exactly_its_rights(folder: Path, whole: bool) -> None:
    began = time.monotonic()
    kubectl_runtime = ("-m", "kubectl_runtime")
    shown = command(folder, *kubectl_runtime, *PROJECT)
    assert len(re.findall("^    \\S", shown, re.MULTILINE)) <= 12  # the commands that it says
    project = folder / "shop-operator"

    if whole:
        with Program(*kubectl_runtime, "run", "shop_operator.operator:main", "--dev", cwd=project) as program:
            program.until("serves http")
            with Client(Config.from_kubeconfig(project / ".kubectl-runtime" / "kubeconfig")) as client:
                apply_manifests(client, project / "example.yaml", field_manager="me", progress=False)
                maps = Api.namespaced(client, ConfigMap, "default")
                eventually(lambda: maps.get_opt("first"), timeout=60)
            program.send(signal.SIGTERM)
            assert program.end() == 0, program.text

    command(project, "-m", "pytest", "-q", "-p", "no:kubectl_runtime", "-p", "no:cacheprovider",
            "--kube-record-rights", "rights.json")
    printing = (*kubectl_runtime, "manifests", "shop_operator.operator:main", "--recorded", "rights.json", "--image",
                "shop-operator:0.1.0")
    (project / "deploy.yaml").write_text(command(project, *printing))
    if whole:
        command(project, *printing, "--check", "deploy.yaml")

    documents = list(yaml.safe_load_all((project / "deploy.yaml").read_text()))
    (container,) = pod_of(documents)["containers"]
    account = "system:serviceaccount:shop-operator:shop-operator"
    with ApiServer(authorization_mode="RBAC", tokens={}, warn_unobeyed=False) as server, server.client() as admin:
        apply_manifests(admin, project / "deploy.yaml", field_manager="me", progress=False)
        kubeconfig = server.write_kubeconfig(folder / "kubeconfig", account)
        running = (*container["command"][1:], *container["args"], "--namespace", "shop-operator",
                   "--health-probe-bind-address", "127.0.0.1:0")
        with Program(*kubectl_runtime, *running, cwd=project, env={"KUBECONFIG": kubeconfig}) as program:
            apply_manifests(admin, project / "example.yaml", field_manager="me", progress=False)
            shops = Api.namespaced(admin, ApiResource("example.com", "v1", "Shop", "shops"), "default")
            eventually(lambda: shops.get("first").get("status"), timeout=60)
            assert Api.namespaced(admin, ConfigMap, "default").get("first").data == {"message": "hello"}
            assert Api.namespaced(admin, Lease, "shop-operator").get("shop-operator")["spec"]["holderIdentity"]
            program.send(signal.SIGTERM)
            assert program.end() == 0, program.text
        assert [entry.path for entry in server.requests if entry.status == 403] == []
    assert '"level":"error"' not in program.text
    assert time.monotonic() - began < 600


def test_the_types_and_the_style_of_a_new_project_are_right(folder: Path) -> None:
    pytest.importorskip("mypy", reason="mypy comes with the extra 'lint'")
    pytest.importorskip("ruff", reason="ruff comes with the extra 'lint'")
    command(folder, "-m", "kubectl_runtime", *PROJECT)
    project = folder / "shop-operator"
    assert "Success" in command(project, "-m", "mypy", "--cache-dir", str(folder / "cache"))
    command(project, "-m", "ruff", "check", "--no-cache")


@pytest.mark.parametrize(("words", "kind", "plural"), [
    (["box-controller", "--group", "shop.example.org"], "Box", "boxes.shop.example.org"),
    (["my-policy", "--kind", "Rule"], "Rule", "rules.example.com"),
    (["x1"], "X1", "x1s.example.com")])
def test_a_project_has_the_names_that_were_said(words: list[str], kind: str, plural: str, folder: Path,
                                                capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["init", *words]) == 0
    project = folder / words[0]
    package = words[0].replace("-", "_")
    assert f"class {kind}(CustomResource" in (project / package / "operator.py").read_text()
    texts = [path.read_text() for path in project.rglob("*") if path.is_file()]
    assert not [text for text in texts if re.search(r"(?<!pip install .)\$\{|@(kind|package|name|group)", text)]
    command(project, "-c", f"from {package}.operator import {kind}; assert {kind}.crd_name() == {plural!r}")
    yaml.safe_load((project / ".github" / "workflows" / "test.yaml").read_text())
    assert words[0] in capsys.readouterr().out


@pytest.mark.parametrize("words", [["class"], ["json"], ["1st"], ["Shop"], ["../shop"], ["action"], ["kubectl-runtime"],
                                   ["a", "--kind", "b"], ["a", "--group", "local"], ["a", "--kind", "Controller"]])
def test_a_name_that_python_or_kubernetes_refuses_is_refused(words: list[str], folder: Path) -> None:
    before = sorted(folder.iterdir())
    with pytest.raises(SystemExit) as end:
        sys.exit(main(["init", *words]))
    assert end.value.code == 2
    assert sorted(folder.iterdir()) == before


def test_nothing_is_written_over(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "empty").mkdir()
    assert main(["init", "empty"]) == 0
    assert main(["init", "empty"]) == 1
    assert "exists already" in capsys.readouterr().err
    (folder / "file").write_text("mine")
    assert main(["init", "file"]) == 1
    (folder / "link").symlink_to(folder / "empty")
    assert main(["init", "link"]) == 1
    assert (folder / "file").read_text() == "mine"


def test_the_image_and_the_workflow_name_what_is_there(folder: Path) -> None:
    assert main([*PROJECT]) == 0
    project = folder / "shop-operator"
    copied = [word for line in (project / "Dockerfile").read_text().splitlines() if line.startswith("COPY ")
              for word in line.split()[1:-1]]
    assert [path for path in copied if not (project / path).exists()] == []
    assert str(ROOT) not in "".join(path.read_text() for path in project.rglob("*") if path.is_file())
