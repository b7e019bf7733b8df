"""The manifests of the example controller: they load, they fit the program, and they give no right too many and none
too few."""
from __future__ import annotations

import json
import logging
import re
import threading
from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import pytest
import yaml
from configmapgen_controller import ConfigMapGenerator, Generate, Spec, controller

from kubectl_runtime import Api
from kubectl_runtime.resources import Deployment
from kubectl_runtime.runtime.shutdown import DEFAULT_GRACE
from kubectl_runtime.testing import ApiServer
from tests.examples.programs import ROOT

DEPLOY = ROOT / "examples" / "deploy"
ACCOUNT = "system:serviceaccount:configmapgen:configmapgen"
ACCESS = list(yaml.safe_load_all((DEPLOY / "access.yaml").read_text()))
ROLE = next(document for document in ACCESS if document["kind"] == "ClusterRole")
NEEDED = [(number, verb) for number, rule in enumerate(ROLE["rules"]) for verb in rule["verbs"]
          if rule["resources"] != ["configmapgenerators/finalizers"]]  # needed where an admission plugin asks for it
LIMIT = 30


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


def serving(access: list[Any]) -> ApiServer:
    server = ApiServer(authorization_mode="RBAC", tokens={})
    server.load(access)
    server.load(DEPLOY / "crd.yaml")
    server.load(DEPLOY / "deployment.yaml")
    return server


def test_the_controller_does_its_work_with_the_rights_it_gets(refusals: Refusals) -> None:
    with serving(ACCESS) as server, server.client() as admin, server.client(ACCOUNT) as client:
        generators = Api.default_namespaced(admin, ConfigMapGenerator)
        with controller(client).start(Generate()):
            generators.create(ConfigMapGenerator(name="a", spec=Spec(content="x")))
            next(event for event in generators.watch() if event.obj is not None and event.obj.status)
    assert refusals.line == ""


@pytest.mark.parametrize(("number", "verb"), NEEDED,
                         ids=[f"{ROLE['rules'][n]['resources'][0]}-{verb}" for n, verb in NEEDED])
def test_each_right_is_needed(refusals: Refusals, number: int, verb: str) -> None:
    access = deepcopy(ACCESS)
    role = next(document for document in access if document["kind"] == "ClusterRole")
    role["rules"][number]["verbs"].remove(verb)
    role["rules"] = [rule for rule in role["rules"] if rule["verbs"]]  # the API knows no rule without verbs
    with serving(access) as server, server.client() as admin, server.client(ACCOUNT) as client:
        generators = Api.default_namespaced(admin, ConfigMapGenerator)
        generators.create(ConfigMapGenerator(name="a", spec=Spec(content="x")))
        with controller(client).start(Generate()):
            assert refusals.seen.wait(LIMIT)
    assert re.search(rf'"{ACCOUNT}" cannot {verb} resource "{ROLE["rules"][number]["resources"][0]}"', refusals.line)


def test_the_crd_is_that_of_the_class() -> None:
    written = yaml.safe_load((DEPLOY / "crd.yaml").read_text())
    assert written == json.loads(json.dumps(ConfigMapGenerator.crd()))


def test_the_deployment_gives_time_to_end_and_no_rights_in_the_container() -> None:
    with serving(ACCESS) as server, server.client() as admin:
        template = Api.namespaced(admin, Deployment, "configmapgen").get("configmapgen")["spec"]["template"]["spec"]
    assert template["terminationGracePeriodSeconds"] > DEFAULT_GRACE
    assert template["serviceAccountName"] == "configmapgen"
    assert template["securityContext"]["runAsNonRoot"] is True
    assert all(container["securityContext"]["readOnlyRootFilesystem"] for container in template["containers"])


def test_the_image_holds_what_exists_and_runs_the_example() -> None:
    lines = (DEPLOY / "Dockerfile").read_text().splitlines()
    copied = [word for line in lines if line.startswith("COPY ") for word in line.split()[1:-1]]
    assert copied
    assert [path for path in copied if not (ROOT / path).exists()] == []
    assert lines[-1] == 'ENTRYPOINT ["python", "configmapgen_controller.py"]'
