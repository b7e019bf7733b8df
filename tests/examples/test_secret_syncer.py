"""The syncs of Secrets: who gets a copy, who loses it, and what is left when the sync goes."""
from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests
from secret_syncer import OWNER, CopySecrets, SecretSync, Spec, controller

from kubectl_runtime import Api, ApiError, Client, Config, Patch, watch_object
from kubectl_runtime.cli.main import main
from kubectl_runtime.resources import Namespace, Secret
from kubectl_runtime.testing import ApiServer, Simulation
from tests.examples.programs import ROOT, Program

PROGRAM = ROOT / "examples" / "secret_syncer.py"


class Cluster:
    """The controller on simulated time, and the people around it."""

    def __init__(self, seed: int = 0) -> None:
        self.sim = Simulation(seed)
        self.server = ApiServer(clock=self.sim.clock)
        self.server.load([SecretSync.crd()])
        session = requests.Session()
        session.mount("http://", self.server.transport())
        self.client = Client(Config(cluster_url="http://simulated"), session=session, clock=self.sim.clock)
        self.syncs = Api.namespaced(self.client, SecretSync, "default")
        for name in "abc":
            self.add_namespace(name)
        self.sim.start(controller(self.client), CopySecrets())

    def add_namespace(self, name: str) -> None:
        Api.all(self.client, Namespace).create(Namespace(name=name))

    def at(self, namespace: str) -> Api[Secret]:
        return Api.namespaced(self.client, Secret, namespace)

    def add_source(self, text: bytes = b"hush") -> None:
        self.at("default").create(Secret(name="token", data={"t": text}, type="example.com/token"))

    def add_sync(self, *namespaces: str, name: str = "sync") -> SecretSync:
        made = self.syncs.create(SecretSync(name=name, spec=Spec(secret="token", namespaces=list(namespaces))))
        self.sim.settle(1)
        return made

    def copies(self) -> dict[str, bytes]:
        return {secret.namespace or "": secret.data["t"] for secret in Api.all(self.client, Secret).list_all()
                if secret.labels.get(OWNER)}

    @property
    def state(self) -> str:
        status = self.syncs.get("sync").status
        return status.state if status else ""


@pytest.fixture(params=[0, 1])
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    made = Cluster(request.param)
    with made.client:
        yield made


def test_each_namespace_that_is_named_gets_a_copy(cluster: Cluster) -> None:
    cluster.add_source()
    sync = cluster.add_sync("a", "b")
    assert cluster.copies() == {"a": b"hush", "b": b"hush"}
    copy = cluster.at("a").get("token")
    assert (copy.type, dict(copy.labels)) == ("example.com/token", {OWNER: sync.uid})
    assert cluster.state == "complete"


def test_a_source_that_comes_later_or_changes_is_followed(cluster: Cluster) -> None:
    cluster.add_sync("a")
    assert (cluster.copies(), cluster.state) == ({}, "there is no Secret token")
    cluster.add_source()
    cluster.sim.settle(1)
    assert (cluster.copies(), cluster.state) == ({"a": b"hush"}, "complete")
    cluster.at("default").patch("token", Patch.merge({"stringData": {"t": "new"}}))
    cluster.sim.settle(1)
    assert cluster.copies() == {"a": b"new"}


def test_a_copy_that_is_changed_or_deleted_comes_back(cluster: Cluster) -> None:
    cluster.add_source()
    cluster.add_sync("a", "b")
    cluster.at("a").delete("token")
    cluster.at("b").patch("token", Patch.merge({"stringData": {"t": "mine"}}))
    cluster.sim.settle(1)
    assert cluster.copies() == {"a": b"hush", "b": b"hush"}


def test_a_namespace_that_is_no_longer_named_loses_its_copy(cluster: Cluster) -> None:
    cluster.add_source()
    cluster.add_sync("a", "b")
    cluster.syncs.patch("sync", Patch.merge({"spec": {"namespaces": ["b", "c"]}}))
    cluster.sim.settle(1)
    assert cluster.copies() == {"b": b"hush", "c": b"hush"}


def test_a_namespace_that_comes_later_holds_up_no_other(cluster: Cluster) -> None:
    cluster.add_source()
    cluster.add_sync("a", "later", "z")
    assert cluster.copies() == {"a": b"hush"}
    assert [line.partition(":")[0] for line in cluster.state.split("; ")] == ["later", "z"]
    cluster.add_namespace("later")
    cluster.add_namespace("z")
    cluster.sim.settle(90)
    assert set(cluster.copies()) == {"a", "later", "z"}


def test_a_secret_of_somebody_else_with_that_name_stays(cluster: Cluster) -> None:
    theirs = cluster.at("a").create(Secret(name="token", data={"t": b"theirs"}))
    cluster.add_source()
    cluster.add_sync("a", "b")
    assert cluster.state == "a: another owner's Secret has that name"
    cluster.syncs.delete("sync")
    cluster.sim.settle(60)
    assert cluster.at("a").get("token").resource_version == theirs.resource_version
    assert cluster.copies() == {}


def test_when_the_sync_goes_its_copies_go_first_and_the_source_stays(cluster: Cluster) -> None:
    cluster.add_source()
    cluster.add_sync("a", "b")
    cluster.at("b").patch("token", Patch.merge({"metadata": {"finalizers": ["example.com/held"]}}))
    cluster.syncs.delete("sync")
    cluster.sim.settle(30)
    assert set(cluster.copies()) == {"b"}
    assert cluster.syncs.get("sync").deletion_timestamp is not None
    cluster.at("b").patch("token", Patch.merge({"metadata": {"finalizers": None}}))
    cluster.sim.settle(600)
    assert (cluster.copies(), cluster.syncs.get_opt("sync")) == ({}, None)
    assert cluster.at("default").get("token").data == {"t": b"hush"}


def test_each_copy_is_applied_once_for_each_change(cluster: Cluster) -> None:
    targets = [f"n{number}" for number in range(10)]
    for name in targets:
        cluster.add_namespace(name)
    cluster.add_source()

    def count() -> int:
        patches = cluster.server.requests.select("patch", resource="secrets")
        found = [one for one in patches if "/namespaces/n" in one.path]
        cluster.server.requests.clear()
        return len(found)

    cluster.add_sync(*targets)
    cluster.sim.settle(30)
    assert (set(cluster.copies()), count()) == (set(targets), 10)
    cluster.at("default").patch("token", Patch.merge({"stringData": {"t": "new"}}))
    cluster.sim.settle(30)
    assert (set(cluster.copies().values()), count()) == ({b"new"}, 10)
    cluster.at("n3").patch("token", Patch.merge({"stringData": {"t": "mine"}}))
    assert count() == 1  # the line above
    cluster.sim.settle(30)
    assert (set(cluster.copies().values()), count()) == ({b"new"}, 1)


def test_when_nothing_changes_nothing_is_written(cluster: Cluster) -> None:
    cluster.add_source()
    cluster.add_sync("a")
    before = cluster.at("a").get("token").resource_version, cluster.syncs.get("sync").resource_version
    cluster.at("default").create(Secret(name="other"))
    cluster.at("default").patch("token", Patch.merge({"metadata": {"labels": {"l": "m"}}}))
    cluster.sim.settle(5)
    assert (cluster.at("a").get("token").resource_version, cluster.syncs.get("sync").resource_version) == before


@pytest.mark.parametrize(("spec", "problem"), [
    ({"secret": "token", "namespaces": []}, "spec.namespaces"),
    ({"secret": "token", "namespaces": ["a", "a"]}, "Duplicate value"),
    ({"secret": "token", "namespaces": ["kube-system"]}, "not into the system's namespaces"),
    ({"secret": "", "namespaces": ["a"]}, "spec.secret")])
def test_what_makes_no_sense_is_refused_by_the_server(spec: dict[str, object], problem: str) -> None:
    cluster = Cluster()
    with cluster.client, pytest.raises(ApiError, match=problem):
        cluster.syncs.create({"metadata": {"name": "x"}, "spec": spec})


def test_the_source_of_a_sync_cannot_be_changed(cluster: Cluster) -> None:
    cluster.add_sync("a")
    with pytest.raises(ApiError, match="make a new SecretSync instead"):
        cluster.syncs.patch("sync", Patch.merge({"spec": {"secret": "other"}}))


def test_the_program_works_until_a_signal(tmp_path: Path) -> None:
    with ApiServer() as server, server.client() as client:
        server.load([SecretSync.crd()])
        Api.all(client, Namespace).create(Namespace(name="a"))
        Api.namespaced(client, Secret, "default").create(Secret(name="token", data={"t": b"hush"}))
        syncs = Api.namespaced(client, SecretSync, "default")
        syncs.create(SecretSync(name="sync", spec=Spec(secret="token", namespaces=["a"])))
        kubeconfig = {"KUBECONFIG": server.write_kubeconfig(tmp_path / "kubeconfig")}
        with Program("-W", "error::ResourceWarning", PROGRAM, env=kubeconfig) as program:
            next(found for found in watch_object(syncs, "sync") if found and found.status)
            assert Api.namespaced(client, Secret, "a").get("token").data == {"t": b"hush"}
            syncs.delete("sync")
            assert next(True for found in watch_object(syncs, "sync") if found is None)
            assert Api.namespaced(client, Secret, "a").get_opt("token") is None
            program.send(signal.SIGTERM)
            assert program.end() == 0, program.text
    assert "Traceback" not in program.text
    assert "hush" not in program.text


def test_the_command_in_its_first_lines_prints_the_definition(capsys: pytest.CaptureFixture[str]) -> None:
    words = next(line for line in PROGRAM.read_text().splitlines() if "kubectl-runtime crd" in line).split()
    assert main(words[words.index("crd"):words.index("|")]) == 0
    assert "name: secretsyncs.demo.kubectl-runtime.dev" in capsys.readouterr().out


def test_it_is_short() -> None:
    text = PROGRAM.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 120
    assert len(text.partition("\nOWNER = ")[2].partition("\ndef main()")[0].splitlines()) <= 80
