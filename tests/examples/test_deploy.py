"""The manifests of the example controller: the server takes them, they fit the program, and they give no right too many
and none too few."""
from __future__ import annotations

import argparse
import json
import logging
import re
import signal
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from configmapgen_controller import ConfigMapGenerator, Spec, operator

from kubectl_runtime import Api, Client
from kubectl_runtime.cli.operator import manager_of
from kubectl_runtime.cli.run_options import RunOptions, add_options
from kubectl_runtime.manifests import apply_manifests
from kubectl_runtime.resources import ConfigMap, Deployment, Lease
from kubectl_runtime.runtime.lifecycle.lifecycle import DEFAULT_GRACE
from kubectl_runtime.testing import ApiServer
from tests.examples.programs import ROOT, Program

DEPLOY = ROOT / "examples" / "deploy"
ACCOUNT = "system:serviceaccount:configmapgen:configmapgen"
MANIFESTS = [DEPLOY / name for name in ("crd.yaml", "deployment.yaml", "network.yaml")]
ACCESS = list(yaml.safe_load_all((DEPLOY / "access.yaml").read_text()))
OBJECTS = {document["kind"]: document for path in MANIFESTS for document in yaml.safe_load_all(path.read_text())}
POD = OBJECTS["Deployment"]["spec"]["template"]["spec"]
(CONTAINER,) = POD["containers"]
ENTRYPOINT = json.loads((DEPLOY / "Dockerfile").read_text().splitlines()[-1].removeprefix("ENTRYPOINT "))
SELDOM = {("configmapgenerators/finalizers", "update"), ("configmapgenerators", "get"), ("configmaps", "get")}
"""Needed where an admission plugin asks for it, and by `apply_condition` where the stored object tells too little."""
NEEDED = [(document["kind"], number, verb) for document in ACCESS if "rules" in document
          for number, rule in enumerate(document["rules"]) for verb in rule["verbs"]
          if (rule["resources"][0], verb) not in SELDOM]
LIMIT = 30
QUICK = ["--leader-elect-lease-duration=2s", "--leader-elect-renew-deadline=1500ms",
         "--leader-elect-retry-period=300ms", "--health-probe-bind-address=127.0.0.1:0"]


class Refusals(logging.Handler):
    """Notices the first line of the log that tells of a refused request."""

    def __init__(self) -> None:
        super().__init__()
        self.line = ""
        self.seen = threading.Event()

    def emit(self, record: logging.LogRecord) -> None:
        if "forbidden" in record.getMessage():
            self.line = self.line or record.getMessage()
            self.seen.set()


@pytest.fixture
def refusals() -> Iterator[Refusals]:
    handler, log = Refusals(), logging.getLogger("kubectl_runtime")
    log.addHandler(handler)
    yield handler
    log.removeHandler(handler)


def role_of(kind: str, access: list[Any]) -> Any:
    return next(document for document in access if document["kind"] == kind)


def serving(access: list[Any]) -> ApiServer:
    server = ApiServer(authorization_mode="RBAC", tokens={})
    server.load(access)
    for path in MANIFESTS:
        server.load(path)
    return server


@contextmanager
def replica(server: ApiServer) -> Iterator[Client]:
    """A copy of the controller in this process, as the Deployment starts it, but for shorter times; its client."""
    parser = argparse.ArgumentParser()
    add_options(parser)
    options = RunOptions.of(parser.parse_args([*ENTRYPOINT[2:], *CONTAINER["args"], *QUICK]))
    with server.client(ACCOUNT) as account, Client(replace(account.config, default_namespace="configmapgen")) as client:
        running = manager_of(options, lambda: operator(client), client).start()
        try:
            yield client
        finally:
            running.stop()


def test_the_server_takes_every_manifest_without_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    with ApiServer(warn_unobeyed=False) as server, server.client() as admin:
        report = apply_manifests(admin, DEPLOY, field_manager="test", progress=False)
        assert {outcome.ref.kind for outcome in report.outcomes} >= {
            "ClusterRole", "Role", "Deployment", "Service", "NetworkPolicy", "PodDisruptionBudget"}
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == []


def test_the_operator_does_everything_with_the_rights_it_gets(tmp_path: Path) -> None:
    """As the container starts it, and as its probes and the Service for its metrics find it."""
    with serving(ACCESS) as server, server.client() as admin:
        kubeconfig = server.write_kubeconfig(tmp_path / "kubeconfig", ACCOUNT)
        generators = Api.default_namespaced(admin, ConfigMapGenerator)
        generators.create(ConfigMapGenerator(name="a", spec=Spec(content="x")))
        command = ["-m", "kubectl_runtime", *ENTRYPOINT[1:], *CONTAINER["args"], "--namespace", "configmapgen",
                   "--health-probe-bind-address", "127.0.0.1:0"]
        with Program(*command, env={"KUBECONFIG": kubeconfig}, cwd=ROOT / "examples") as program:
            port = int(re.search(r"listens at port (\d+)", program.until("listens at port"))[1])  # type: ignore[index]
            next(event for event in generators.watch() if event.obj is not None and event.obj.status)
            maps = Api.default_namespaced(admin, ConfigMap)
            assert maps.get("a").data == {"content": "x"}
            assert Api.namespaced(admin, Lease, "configmapgen").get("configmapgen")["spec"]["holderIdentity"]
            for path in (*(CONTAINER[probe]["httpGet"]["path"] for probe in ("livenessProbe", "readinessProbe")),
                         "/metrics"):
                with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=LIMIT) as answer:
                    assert answer.status == 200
            program.send(signal.SIGTERM)
            assert program.end() == 0, program.text
        assert not Api.namespaced(admin, Lease, "configmapgen").get("configmapgen")["spec"].get("holderIdentity")
    lines = [json.loads(line) for line in program.lines]
    assert [line for line in lines if line["level"] not in ("info", "debug")] == []


def test_when_one_copy_goes_the_other_one_works(refusals: Refusals) -> None:
    with serving(ACCESS) as server, server.client() as admin:
        generators = Api.default_namespaced(admin, ConfigMapGenerator)
        with replica(server):
            generators.create(ConfigMapGenerator(name="a", spec=Spec(content="x")))
            next(event for event in generators.watch() if event.obj is not None and event.obj.status)
            lease = Api.namespaced(admin, Lease, "configmapgen")
            first = lease.get("configmapgen")["spec"]["holderIdentity"]
        with replica(server):
            generators.create(ConfigMapGenerator(name="b", spec=Spec(content="y")))
            next(event for event in generators.watch()
                 if event.obj is not None and event.obj.name == "b" and event.obj.status)
            assert lease.get("configmapgen")["spec"]["holderIdentity"] not in (first, None, "")
    assert refusals.line == ""


@pytest.mark.parametrize(("kind", "number", "verb"), NEEDED,
                         ids=[f"{role_of(k, ACCESS)['rules'][n]['resources'][0]}-{verb}" for k, n, verb in NEEDED])
def test_each_right_is_needed(refusals: Refusals, kind: str, number: int, verb: str) -> None:
    access = deepcopy(ACCESS)
    role = role_of(kind, access)
    (resource,) = role["rules"][number]["resources"]
    role["rules"][number]["verbs"].remove(verb)
    role["rules"] = [rule for rule in role["rules"] if rule["verbs"]]  # the API knows no rule without verbs
    with serving(access) as server, server.client() as admin:
        generators = Api.default_namespaced(admin, ConfigMapGenerator)
        generators.create(ConfigMapGenerator(name="a", spec=Spec(content="x")))
        with replica(server):
            assert refusals.seen.wait(LIMIT)
    assert re.search(rf'"{ACCOUNT}" cannot {verb} resource "{resource}"', refusals.line)


def test_the_crd_is_that_of_the_class() -> None:
    written = yaml.safe_load((DEPLOY / "crd.yaml").read_text())
    assert written == json.loads(json.dumps(ConfigMapGenerator.crd()))


def test_the_deployment_gives_time_to_end_and_no_rights_in_the_container() -> None:
    with serving(ACCESS) as server, server.client() as admin:
        spec = Api.namespaced(admin, Deployment, "configmapgen").get("configmapgen")["spec"]
    pod = spec["template"]["spec"]
    assert spec["replicas"] == 2
    assert pod["terminationGracePeriodSeconds"] > DEFAULT_GRACE
    assert pod["serviceAccountName"] == "configmapgen"
    assert pod["securityContext"] == {"runAsNonRoot": True, "runAsUser": 65532,
                                      "seccompProfile": {"type": "RuntimeDefault"}}
    (container,) = pod["containers"]
    assert container["securityContext"] == {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True,
                                            "capabilities": {"drop": ["ALL"]}}
    assert container["resources"]["requests"]
    assert container["resources"]["limits"]["memory"]


def test_everything_speaks_of_the_same_pods_and_the_port_at_which_they_serve() -> None:
    labels = OBJECTS["Deployment"]["spec"]["template"]["metadata"]["labels"]
    assert OBJECTS["Service"]["spec"]["selector"] == labels
    assert OBJECTS["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"] == labels
    assert OBJECTS["NetworkPolicy"]["spec"]["podSelector"]["matchLabels"] == labels
    (port,) = CONTAINER["ports"]
    assert port["containerPort"] == 8080  # the default of --health-probe-bind-address
    used = [CONTAINER["livenessProbe"]["httpGet"]["port"], CONTAINER["readinessProbe"]["httpGet"]["port"],
            OBJECTS["Service"]["spec"]["ports"][0]["targetPort"],
            OBJECTS["NetworkPolicy"]["spec"]["ingress"][0]["ports"][0]["port"]]
    assert set(used) == {port["name"]}


def test_the_image_holds_what_exists_and_runs_the_example() -> None:
    lines = (DEPLOY / "Dockerfile").read_text().splitlines()
    copied = [word for line in lines if line.startswith("COPY ") for word in line.split()[1:-1]]
    assert copied
    assert [path for path in copied if not (ROOT / path).exists()] == []
    assert ENTRYPOINT == ["kubectl-runtime", "run", "configmapgen_controller:operator"]
