"""The namespace policies: who gets a copy, who loses it, and what is left when the policy goes."""
from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
from namespace_policy import SOURCE, CopyPolicies, NamespacePolicy, Spec, controller

from kubectl_runtime import Api, Client, Config, Patch, watch_object
from kubectl_runtime.objects import LabelSelector
from kubectl_runtime.resources import Namespace, NetworkPolicy
from kubectl_runtime.testing import ApiServer, Simulation
from tests.examples.programs import LIMIT, ROOT, Program, environment

PROGRAM = ROOT / "examples" / "namespace_policy.py"
DENY: dict[str, Any] = {"podSelector": {}, "policyTypes": ["Ingress"]}
SHOPS = LabelSelector(match_labels={"team": "shop"})


class Cluster:
    """The controller on simulated time, and the people around it."""

    def __init__(self, seed: int = 0) -> None:
        self.sim = Simulation(seed)
        self.server = ApiServer(clock=self.sim.clock)
        self.server.load([NamespacePolicy.crd()])
        session = requests.Session()
        session.mount("http://", self.server.transport())
        self.client = Client(Config(cluster_url="http://simulated"), session=session, clock=self.sim.clock)
        self.namespaces = Api.all(self.client, Namespace)
        self.policies = Api.all(self.client, NamespacePolicy)
        reconciler = CopyPolicies()
        self.sim.start(controller(self.client, reconciler), reconciler)

    def add_namespace(self, name: str, team: str = "shop") -> None:
        self.namespaces.create(Namespace(name=name, labels={"team": team}))

    def add_policy(self, name: str = "deny", selector: LabelSelector | None = SHOPS) -> NamespacePolicy:
        made = self.policies.create(NamespacePolicy(name=name, spec=Spec(policy=DENY, namespace_selector=selector)))
        self.sim.settle(1)
        return made

    def copies(self, name: str = "deny") -> list[str]:
        return sorted(copy.namespace or "" for copy in Api.all(self.client, NetworkPolicy).list_all()
                      if copy.name == name)

    def at(self, namespace: str) -> Api[NetworkPolicy]:
        return Api.namespaced(self.client, NetworkPolicy, namespace)

    @property
    def counted(self) -> int:
        status = self.policies.get("deny").status
        return status.namespaces if status else 0


@pytest.fixture(params=[0, 1])
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    made = Cluster(request.param)
    with made.client:
        yield made


def test_every_namespace_that_is_selected_gets_a_copy(cluster: Cluster) -> None:
    cluster.add_namespace("a")
    cluster.add_namespace("b", team="bank")
    policy = cluster.add_policy()
    assert (cluster.copies(), cluster.counted) == (["a"], 1)
    copy = cluster.at("a").get("deny")
    assert copy["spec"] == DENY
    assert [owner.uid for owner in copy.owner_references] == [policy.uid]


def test_without_a_selector_all_of_them_do(cluster: Cluster) -> None:
    cluster.add_policy(selector=None)
    assert cluster.copies() == sorted(namespace.name for namespace in cluster.namespaces.list_all())


def test_namespaces_that_come_and_change_are_followed(cluster: Cluster) -> None:
    cluster.add_policy()
    cluster.add_policy("second")
    cluster.add_namespace("a")
    cluster.sim.settle(1)
    assert (cluster.copies(), cluster.copies("second"), cluster.counted) == (["a"], ["a"], 1)
    cluster.namespaces.patch("a", Patch.merge({"metadata": {"labels": {"team": "bank"}}}))
    cluster.sim.settle(1)
    assert (cluster.copies(), cluster.copies("second"), cluster.counted) == ([], [], 0)


def test_a_copy_that_is_changed_or_deleted_comes_back(cluster: Cluster) -> None:
    cluster.add_namespace("a")
    cluster.add_policy()
    cluster.at("a").delete("deny")
    cluster.sim.settle(1)
    assert cluster.copies() == ["a"]
    cluster.at("a").patch("deny", Patch.merge({"spec": {"policyTypes": ["Egress"]}, "metadata": {"labels": None}}))
    cluster.sim.settle(1)
    assert cluster.at("a").get("deny")["spec"] == DENY
    assert SOURCE in cluster.at("a").get("deny").labels


def test_a_change_of_the_policy_reaches_all_copies(cluster: Cluster) -> None:
    cluster.add_namespace("a")
    cluster.add_namespace("b")
    cluster.add_policy()
    cluster.policies.patch("deny", Patch.merge({"spec": {"policy": {"policyTypes": ["Ingress", "Egress"]}}}))
    cluster.sim.settle(1)
    assert {tuple(cluster.at(name).get("deny").spec.policy_types) for name in "ab"} == {("Ingress", "Egress")}


def test_a_policy_of_somebody_else_with_the_same_name_stays(cluster: Cluster) -> None:
    cluster.add_namespace("a")
    cluster.add_namespace("b")
    theirs = cluster.at("a").create(NetworkPolicy(name="deny", spec={"podSelector": {"matchLabels": {"x": "y"}}}))
    cluster.sim.settle(1)
    cluster.add_policy()
    assert cluster.counted == 1
    cluster.policies.delete("deny")
    cluster.sim.settle(60)
    assert cluster.at("a").get("deny").resource_version == theirs.resource_version
    assert cluster.copies() == ["a"]


def test_when_the_policy_goes_its_copies_go_first(cluster: Cluster) -> None:
    for name in "abc":
        cluster.add_namespace(name)
    cluster.add_policy()
    cluster.at("b").patch("deny", Patch.merge({"metadata": {"finalizers": ["example.com/held"]}}))
    cluster.sim.settle(1)
    cluster.policies.delete("deny")
    cluster.sim.settle(30)
    assert cluster.copies() == ["b"]
    assert cluster.policies.get("deny").deletion_timestamp is not None  # it is there as long as a copy is
    cluster.at("b").patch("deny", Patch.merge({"metadata": {"finalizers": None}}))
    cluster.sim.settle(600)
    assert cluster.copies() == []
    assert cluster.policies.get_opt("deny") is None


def test_a_namespace_that_goes_is_no_failure(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    cluster.add_namespace("a")
    cluster.add_namespace("b")
    cluster.add_policy()
    cluster.namespaces.delete("a")
    cluster.sim.settle(30)
    assert (cluster.copies(), cluster.counted) == (["b"], 1)
    assert [record for record in caplog.records if record.exc_info] == []


def test_when_nothing_changes_nothing_is_written(cluster: Cluster) -> None:
    cluster.add_namespace("a")
    cluster.add_policy()
    before = cluster.at("a").get("deny").resource_version, cluster.policies.get("deny").resource_version
    cluster.namespaces.patch("a", Patch.merge({"metadata": {"labels": {"other": "label"}}}))
    cluster.sim.settle(1)
    assert (cluster.at("a").get("deny").resource_version, cluster.policies.get("deny").resource_version) == before
    assert SOURCE in cluster.at("a").get("deny").labels


def test_the_program_works_until_a_signal(tmp_path: Path) -> None:
    with ApiServer() as server, server.client() as client:
        server.load([NamespacePolicy.crd()])
        policies = Api.all(client, NamespacePolicy)
        policies.create(NamespacePolicy(name="deny", spec=Spec(policy=DENY)))
        kubeconfig = {"KUBECONFIG": server.write_kubeconfig(tmp_path / "kubeconfig")}
        with Program("-W", "error::ResourceWarning", PROGRAM, env=kubeconfig) as program:
            next(found for found in watch_object(policies, "deny") if found and found.status)
            copies = Api.all(client, NetworkPolicy)
            assert len(copies.list().items) == len(Api.all(client, Namespace).list().items)
            policies.delete("deny")
            assert next(True for found in watch_object(policies, "deny") if found is None)
            assert copies.list().items == []
            program.send(signal.SIGTERM)
            assert program.end() == 0, program.text
    assert "Traceback" not in program.text


def test_the_command_in_its_first_lines_prints_the_definition() -> None:
    command = next(line for line in PROGRAM.read_text().splitlines() if "kubectl-runtime crd" in line)
    words = command.partition("|")[0].split()
    assert words[:5] == ["cd", "examples", "&&", "kubectl-runtime", "crd"]
    done = subprocess.run([sys.executable, "-m", "kubectl_runtime", "crd", *words[5:]], cwd=ROOT / words[1],
                          env=environment(), capture_output=True, text=True, timeout=LIMIT, check=False)
    assert "name: namespacepolicies.demo.kubectl-runtime.dev" in done.stdout, done.stderr


def test_it_is_short() -> None:
    code, _, command_line = PROGRAM.read_text(encoding="utf-8").partition("# --- end of the controller")
    assert len(code.splitlines()) + len(command_line.splitlines()) <= 120
    assert len(code.partition("\nSOURCE = ")[2].splitlines()) <= 80
