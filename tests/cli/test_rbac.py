"""The rights of an operator: what its controllers watch, and what its reconcilers were seen to ask for."""
from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from kubectl_runtime.cli.main import main
from kubectl_runtime.client.http.middleware import Answer, Call, Send
from kubectl_runtime.core.requests.rights import RBAC, rights_of
from kubectl_runtime.testing import ApiServer
from tests.examples.programs import PLUGIN, ROOT, environment

PROGRAM = '''
from typing import Any
from kubectl_runtime import Action, Api, Controller, Conversion, CustomResource, LeaderElection, ListParams, Manager
from kubectl_runtime.resources import ClusterRole, ConfigMap, Node, Pod, RoleBinding, Secret
from kubectl_runtime.manager.sharding import Sharding
from kubectl_runtime.webhooks.server import WebhookServer
from kubectl_runtime.webhooks.serving_certificates import SelfSigned
from kubectl_runtime.webhooks import Admission, application

class Quota(Admission[Pod]):
    def validate(self, request):
        pass

def nothing(obj: Any, ctx: Any) -> Action:
    return Action.await_change()

def here(client):
    maps, secrets = (Api.namespaced(client, kind, "shop") for kind in (ConfigMap, Secret))
    return Controller(maps).owns(secrets).bind(nothing)

def several(client):
    return Controller(Api.namespaces(client, ConfigMap, ["a", "b"])).bind(nothing)

def like(client):
    return Controller(Api.namespaces(client, ConfigMap, like="team-*")).bind(nothing)

def labelled(client):
    return Controller(Api.namespaces(client, ConfigMap, labels="team")).bind(nothing)

def manager(client):
    made = Manager(client, leader=LeaderElection("x"), serve=None)
    made.add(Controller(Api.all(client, Node)).bind(nothing))
    made.add(Controller(Api.default_namespaced(client, Pod), name="pods").bind(nothing))
    return made

def sharded(client):
    made = Manager(client, sharding=Sharding("op", shards=4, lease=2, renew_deadline=1.5, retry=0.2), serve=None)
    made.add(Controller(Api.namespaced(client, Pod, "shop")).bind(nothing))
    return made

def asking(client):
    Api.all(client, Node).list()

def hooks(client):
    app = application({"/quota": Quota(), "/convert": Conversion({("v1", "v2"): dict})})
    manager = Manager(client, serve=None)
    return manager.add_server(WebhookServer(app, certificates=SelfSigned("shop/hooks"), client=client,
                                            configuration="shop")).add_server(
        WebhookServer(app, certificates="/certs", port=9444))

class BoxV1(CustomResource, group="example.com", version="v1", kind="Box", storage=False):
    spec: dict[str, Any]

class Box(CustomResource, group="example.com", version="v2", kind="Box"):
    spec: dict[str, Any]

def converting(client, configuration=None):
    steps = {(BoxV1, Box): lambda old: Box(spec=old.spec), (Box, BoxV1): lambda new: BoxV1(spec=new.spec)}
    app = application({"/quota": Quota(), "/convert": Conversion(steps)})
    return Manager(client, serve=None).add_server(WebhookServer(
        app, certificates=SelfSigned("shop/hooks"), client=client, configuration=configuration, port=0))

def named(client):
    return converting(client, "shop")

def reading(client):
    return Controller(Api.namespaced(client, ConfigMap, "shop")).reads(Secret).reads(Node).bind(nothing)

def granting(client):
    controller = Controller(Api.namespaced(client, ConfigMap, "shop"))
    return controller.owns(Api.namespaced(client, RoleBinding, "shop")).owns(Api.all(client, ClusterRole)).bind(nothing)

def odd_name(client):
    return Controller(Api.all(client, Node), name="a: b").bind(nothing)

def empty(client):
    return Manager(client, serve=None)
'''


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "rbac_program.py").write_text(PROGRAM)
    monkeypatch.delitem(sys.modules, "rbac_program", raising=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[dict[str, Any]]:
    assert main(["rbac", *arguments]) == 0
    return list(yaml.safe_load_all(capsys.readouterr().out))


def granted(documents: list[dict[str, Any]]) -> dict[tuple[str, str | None], list[tuple[str, str, list[str]]]]:
    return {(role["kind"], role["metadata"].get("namespace")): [
        (rule["apiGroups"][0], rule["resources"][0], rule["verbs"]) for rule in role["rules"]]
        for role in documents if "rules" in role and not role["metadata"]["name"].endswith("-election")}


def election(documents: list[dict[str, Any]]) -> Any:
    return next(((role["metadata"], role["rules"]) for role in documents
                 if "rules" in role and role["metadata"]["name"].endswith("-election")), None)


def lease(name: str) -> list[dict[str, Any]]:
    about = {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"]}
    return [{**about, "resourceNames": [name], "verbs": ["get", "update"]}, {**about, "verbs": ["create"]}]


WATCHED = ["list", "watch"]


def test_what_is_watched_in_one_namespace_is_granted_there(capsys: pytest.CaptureFixture[str]) -> None:
    documents = printed(capsys, "rbac_program:here")
    assert granted(documents) == {("Role", "shop"): [("", "configmaps", WATCHED), ("", "secrets", WATCHED)]}
    account, role, binding = documents
    assert account["metadata"] == {"name": "configmap", "namespace": "configmap"}
    assert role["metadata"] == binding["metadata"] == {"name": "configmap", "namespace": "shop"}
    assert binding["roleRef"] == {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "configmap"}
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": "configmap", "namespace": "configmap"}]


def test_what_a_controller_says_that_it_reads_is_granted(capsys: pytest.CaptureFixture[str]) -> None:
    reads = ["get", "list", "watch"]
    assert granted(printed(capsys, "rbac_program:reading")) == {
        ("ClusterRole", None): [("", "nodes", reads)],
        ("Role", "shop"): [("", "configmaps", WATCHED), ("", "secrets", reads)]}


def test_each_of_several_namespaces_gets_a_role(capsys: pytest.CaptureFixture[str]) -> None:
    rules = [("", "configmaps", WATCHED)]
    assert granted(printed(capsys, "rbac_program:several")) == {("Role", "a"): rules, ("Role", "b"): rules}


def test_namespaces_that_come_and_go_need_the_cluster_and_labels_need_namespaces(
        capsys: pytest.CaptureFixture[str]) -> None:
    maps = ("", "configmaps", WATCHED)
    assert granted(printed(capsys, "rbac_program:like")) == {("ClusterRole", None): [maps]}
    assert {key: sorted(rules) for key, rules in granted(printed(capsys, "rbac_program:labelled")).items()} in (
        {("ClusterRole", None): [maps, ("", "namespaces", WATCHED)]},
        {("ClusterRole", None): [("", "configmaps, namespaces", WATCHED)]})


def test_a_manager_needs_what_its_controllers_watch_and_its_lease(capsys: pytest.CaptureFixture[str]) -> None:
    documents = printed(capsys, "rbac_program:manager", "--name", "op", "--namespace", "system")
    assert granted(documents) == {("ClusterRole", None): [("", "nodes", WATCHED)],
                                  ("Role", "system"): [("", "pods", WATCHED)]}
    assert election(documents) == ({"name": "op-election", "namespace": "system"}, lease("x"))
    assert documents[-1]["roleRef"]["name"] == "op-election"


def test_webhooks_need_what_they_are_named_in(capsys: pytest.CaptureFixture[str]) -> None:
    documents = printed(capsys, "rbac_program:hooks", "--name", "hooks")
    assert by_name(documents) == [
        ("validatingwebhookconfigurations", None, [*WATCHED, "create"]),
        ("validatingwebhookconfigurations", ["shop"], ["get", "patch"]),
        ("customresourcedefinitions", None, ["get", *WATCHED, "patch"])]


def by_name(documents: list[dict[str, Any]]) -> list[tuple[str, list[str] | None, list[str]]]:
    [role] = [document for document in documents if "rules" in document]
    return [(rule["resources"][0], rule.get("resourceNames"), rule["verbs"]) for rule in role["rules"]]


@pytest.mark.parametrize(("program", "hooks", "definitions", "warned"), [
    ("named", [(None, [*WATCHED, "create"]), (["shop"], ["get", "patch"])],
     [(None, WATCHED), (["boxes.example.com"], ["get", "patch"])], []),
    ("converting", [(None, [*WATCHED, "patch"])], [(None, WATCHED), (["boxes.example.com"], ["patch"])],
     ["the operator may change all validatingwebhookconfigurations: WebhookServer(configuration=NAME)"]),
    ("hooks", [(None, [*WATCHED, "create"]), (["shop"], ["get", "patch"])], [(None, ["get", *WATCHED, "patch"])],
     ["the operator may change all customresourcedefinitions: a Conversion between classes limits this"])])
def test_changes_are_granted_by_name_or_a_warning_says_why_not(
        program: str, hooks: Any, definitions: Any, warned: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rbac", f"rbac_program:{program}", "--name", "op"]) == 0
    shown = capsys.readouterr()
    assert by_name(list(yaml.safe_load_all(shown.out))) == [
        *(("validatingwebhookconfigurations", *rule) for rule in hooks),
        *(("customresourcedefinitions", *rule) for rule in definitions)]
    warnings = [line for line in shown.err.splitlines() if line.startswith("warning: ")]
    assert len(warnings) == len(warned)
    assert all(line.startswith(f"warning: {said}") for line, said in zip(warnings, warned, strict=True))


def test_leases_whose_names_are_made_up_later_are_warned_of(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rbac", "rbac_program:sharded", "--name", "op"]) == 0
    assert "warning: the operator may change all leases of its namespace" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [
    ("--name", "a: b\nx"), ("--name", "A"), ("--name", ""), ("--name", "a-"), ("--name", "a" * 254),
    ("--namespace", "a.b"), ("--namespace", "a\n---"), ("--name", "a\u2028b")])
def test_names_that_no_server_takes_are_refused(arguments: tuple[str, str],
                                                capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["rbac", "rbac_program:here", *arguments])
    shown = capsys.readouterr()
    assert (ended.value.code, shown.out) == (2, "")
    assert f"argument {arguments[0]}: the name is {arguments[1]!r}: it must have" in shown.err


def test_a_controller_whose_name_no_role_can_have_needs_another_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rbac", "rbac_program:odd_name"]) == 1
    assert "the name of the roles is 'a: b'" in capsys.readouterr().err
    assert main(["rbac", "rbac_program:odd_name", "--name", "b"]) == 0


def test_an_operator_that_runs_with_an_election_needs_its_lease(capsys: pytest.CaptureFixture[str]) -> None:
    assert election(printed(capsys, "rbac_program:here")) is None
    found = election(printed(capsys, "rbac_program:here", "--leader-elect", "--name", "op", "--namespace", "system"))
    assert found == ({"name": "op-election", "namespace": "system"}, lease("op"))


def test_replicas_that_share_objects_need_all_that_they_do_with_leases(capsys: pytest.CaptureFixture[str]) -> None:
    [role] = [document for document in printed(capsys, "rbac_program:sharded", "--name", "op", "--namespace", "system")
              if document["metadata"]["name"] == "op-sharding" and "rules" in document]
    assert role["metadata"]["namespace"] == "system"
    [rule] = role["rules"]
    assert (rule["apiGroups"], rule["resources"]) == (["coordination.k8s.io"], ["leases"])
    used: set[str] = set()

    def noting(send: Send) -> Send:
        def noted(call: Call) -> Answer:
            if call.request.resource is not None and call.request.resource.plural == "leases":
                used.update(right.verb for right in rights_of(call.request))
            return send(call)
        return noted

    def until(done: Callable[[], bool]) -> None:
        give_up = time.monotonic() + 20
        while not done():
            assert time.monotonic() < give_up
            time.sleep(0.02)

    import rbac_program

    with ApiServer() as server, server.client() as first, server.client() as second:
        one, two = (rbac_program.sharded(client.with_layer(noting)).start() for client in (first, second))
        with one, two:
            until(lambda: len(one.shards) == len(two.shards) == 2)
            two.stop()
            until(lambda: len(one.shards) == 4)
    assert used == set(rule["verbs"])


def test_what_was_recorded_is_granted_where_the_controller_watches(
        folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "rights.json").write_text(
        '{"rights": [{"group": "", "resource": "pods", "verb": "delete", "namespace": "shop"},'
        '{"group": "apps", "resource": "deployments", "verb": "patch", "namespace": "other"},'
        '{"group": "", "resource": "pods", "verb": "create", "namespace": "shop"}]}')
    assert granted(printed(capsys, "rbac_program:here", "--recorded", "rights.json")) == {
        ("ClusterRole", None): [("apps", "deployments", ["patch"])],
        ("Role", "shop"): [("", "configmaps", WATCHED), ("", "pods", ["create", "delete"]), ("", "secrets", WATCHED)]}
    assert granted(printed(capsys, "rbac_program:manager", "--recorded", "rights.json"))["ClusterRole", None] == [
        ("", "nodes", WATCHED), ("", "pods", ["create", "delete"]), ("apps", "deployments", ["patch"])]


def recorded(*rights: tuple[str, str, str]) -> list[str]:
    Path("rights.json").write_text(json.dumps({"rights": [
        {"group": RBAC, "resource": resource, "verb": verb, "namespace": "shop", "name": name}
        for resource, verb, name in rights]}))
    return ["--recorded", "rights.json"]


def test_a_recorded_bind_is_granted_on_the_named_roles(capsys: pytest.CaptureFixture[str]) -> None:
    documents = printed(capsys, "rbac_program:here", *recorded(
        ("rolebindings", "create", ""), ("clusterroles", "bind", "view"), ("clusterroles", "bind", "edit")))
    assert by_name(documents)[-2:] == [("clusterroles", ["edit", "view"], ["bind"]), ("rolebindings", None, ["create"])]


BIND = "needs the verb bind on their roles"
ESCALATE = "needs the verb escalate on them"


@pytest.mark.parametrize(("program", "rights", "notes"), [
    ("here", None, []), ("here", [], []), ("granting", [], []),
    ("granting", None, [f"clusterroles {ESCALATE}", f"rolebindings {BIND}"]),
    ("granting", [("rolebindings", "patch", "")], [f"rolebindings {BIND}"]),
    ("granting", [("rolebindings", "get", "")], []),
    ("granting", [("rolebindings", "patch", ""), ("roles", "bind", "r")],
     [f"rolebindings {BIND}; the rules here grant it on r only"]),
    ("here", [("roles", "create", "")], [f"roles {ESCALATE}"])])
def test_a_verb_that_may_be_missing_to_grant_permissions_is_noted(
        program: str, rights: list[tuple[str, str, str]] | None, notes: list[str],
        capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rbac", f"rbac_program:{program}", *([] if rights is None else recorded(*rights))]) == 0
    shown = [line for line in capsys.readouterr().err.splitlines() if "that writes" in line]
    assert len(shown) == len(notes)
    for line, note in zip(shown, notes, strict=True):
        assert line.startswith(f"note: a program that writes {note}")


@pytest.mark.parametrize(("arguments", "status", "said"), [
    (["rbac_program:asking"], 1, "list nodes: there is no server"), (["rbac_program:empty"], 1, "use --name"),
    (["rbac_program:nothing"], 2, "rbac_program:nothing"),
    (["rbac_program:here", "--recorded", "absent.json"], 1, "absent.json"),
    (["rbac_program:here", "--recorded", "rbac_program.py"], 1, "rbac_program.py"),
    (["rbac_program:here", "--recorded", "odd.json"], 1, "odd.json: 'list\\n- x' is not an RBAC verb")])
def test_what_cannot_be_told_is_said(arguments: list[str], status: int, said: str,
                                     capsys: pytest.CaptureFixture[str]) -> None:
    Path("odd.json").write_text('{"rights": [{"group": "", "resource": "pods", "verb": "list\\n- x"}]}')
    assert main(["rbac", *arguments]) == status
    shown = capsys.readouterr()
    assert shown.out == ""
    assert said in shown.err


def test_without_recorded_rights_that_is_noted(capsys: pytest.CaptureFixture[str]) -> None:
    main(["rbac", "rbac_program:here"])
    assert "not known without --recorded FILE" in capsys.readouterr().err


def test_the_help_says_what_is_granted_without_having_been_seen(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["rbac", "--help"])
    assert "the library patches an event that repeats" in capsys.readouterr().out


TESTS = '''
import sys
sys.path.insert(0, {examples!r})
from configmapgen_controller import ConfigMapGenerator, Generate, Spec, controller
from kubectl_runtime import Api
from kubectl_runtime.resources import Secret

def test_it(kube_apiserver, kube_client):
    kube_apiserver.load([ConfigMapGenerator.crd()])
    generators = Api.namespaced(kube_client, ConfigMapGenerator, "default")
    with controller(kube_client).start(Generate()):
        generators.create(ConfigMapGenerator(name="a", spec=Spec(content="x")))
        Api.namespaced(kube_client, Secret, "default").create(Secret(name="not-the-controllers"))
        next(event for event in generators.watch() if event.obj is not None and event.obj.status)
'''


@pytest.mark.long
def test_the_example_gets_exactly_its_access_file_from_a_run_of_its_tests(
        folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    examples = ROOT / "examples"
    (folder / "test_it.py").write_text(TESTS.format(examples=str(examples)))
    done = subprocess.run([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *PLUGIN,
                           "--kube-record-rights", "rights.json"], cwd=folder, env=environment(), capture_output=True,
                          text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    monkeypatch.syspath_prepend(str(examples))
    documents = printed(capsys, "configmapgen_controller:operator", "--recorded", "rights.json", "--name",
                        "configmapgen", "--leader-elect")
    _, *access = yaml.safe_load_all((examples / "deploy" / "access.yaml").read_text())
    assert documents == access != []
