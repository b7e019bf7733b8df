"""The database operator: what it makes in the cluster and outside, what it says, and what is left when it is over."""
from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests
from database_operator import Database, Operate, Spec, controller

from kubectl_runtime import Api, ApiResource, Client, Condition, Config, Patch, watch_object
from kubectl_runtime.resources import Secret, Service, StatefulSet
from kubectl_runtime.testing import ApiServer, Simulation
from tests.examples.programs import LIMIT, ROOT, Program, environment

OPERATOR = ROOT / "examples" / "database_operator.py"


class Cluster:
    """The operator on simulated time, and the people and the StatefulSet controller around it."""

    def __init__(self, backups: Path) -> None:
        self.backups = backups
        self.sim = Simulation()
        server = ApiServer(clock=self.sim.clock)
        server.load([Database.crd()])
        session = requests.Session()
        session.mount("http://", server.transport())
        self.client = Client(Config(cluster_url="http://simulated"), session=session, clock=self.sim.clock)
        self.databases = Api.namespaced(self.client, Database, "default")
        self.server = server
        self.sim.start(controller(self.client), Operate(), context=backups)

    def create(self, **spec: int) -> None:
        self.databases.create(Database(name="orders", spec=Spec(**spec)))
        self.sim.settle(1)

    def serve(self, replicas: int) -> None:
        """What the StatefulSet controller does."""
        status = {"status": {"replicas": replicas, "readyReplicas": replicas}}
        Api.namespaced(self.client, StatefulSet, "default").patch_status("orders", Patch.merge(status))
        self.sim.settle(1)

    @property
    def ready(self) -> Condition:
        status = self.databases.get("orders").status
        assert status is not None
        (condition,) = status.conditions or ()
        return condition

    @property
    def password(self) -> str:
        found = Api.namespaced(self.client, Secret, "default").get("orders")
        return found.data["password"].decode()

    @property
    def folders(self) -> list[str]:
        return [folder.name for folder in self.backups.iterdir()]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    made = Cluster(tmp_path)
    with made.client:
        yield made


def test_a_database_gets_everything_it_needs(cluster: Cluster) -> None:
    cluster.create(replicas=3)
    made = cluster.databases.get("orders")
    assert cluster.folders == [made.uid]
    assert len(cluster.password) == 64
    for kind in (Secret, Service, StatefulSet):
        child = Api.namespaced(cluster.client, kind, "default").get("orders")
        assert [owner.uid for owner in child.owner_references] == [made.uid]
    assert Api.namespaced(cluster.client, StatefulSet, "default").get("orders").spec.replicas == 3


def test_it_says_whether_the_database_serves_and_since_when(cluster: Cluster) -> None:
    cluster.create(replicas=2)
    assert (cluster.ready.status, cluster.ready.message) == ("False", "0 of 2 replicas are ready")
    cluster.sim.settle(60)
    cluster.serve(2)
    since = cluster.ready.last_transition_time
    assert (cluster.ready.status, cluster.ready.reason) == ("True", "Serving")
    cluster.sim.settle(1000)  # three more looks
    assert cluster.ready.last_transition_time == since


def test_looking_again_changes_nothing_and_keeps_the_password(cluster: Cluster) -> None:
    cluster.create()
    cluster.serve(1)
    password, version = cluster.password, cluster.databases.get("orders").resource_version
    cluster.server.requests.clear()
    cluster.sim.settle(1000)
    assert cluster.server.requests.select("get", resource="secrets"), "it did not look again"
    assert not cluster.server.requests.select("patch", resource="statefulsets.apps")
    assert cluster.password == password
    assert cluster.databases.get("orders").resource_version == version


def test_what_somebody_deletes_comes_back(cluster: Cluster) -> None:
    cluster.create()
    Api.namespaced(cluster.client, Service, "default").delete("orders")
    cluster.sim.settle(1)
    assert Api.namespaced(cluster.client, Service, "default").get_opt("orders") is not None


def test_a_deleted_database_leaves_nothing_behind(cluster: Cluster) -> None:
    cluster.create()
    cluster.databases.delete("orders")
    cluster.sim.settle(60)
    assert cluster.folders == []
    assert cluster.databases.get_opt("orders") is None
    events = Api.namespaced(cluster.client, ApiResource("events.k8s.io", "v1", "Event", "events"), "default")
    assert "BackupsDeleted" in {event["reason"] for event in events.list().items}
    for kind in (Secret, Service, StatefulSet):
        assert Api.namespaced(cluster.client, kind, "default").get_opt("orders") is None


def test_a_folder_that_cannot_be_removed_keeps_its_database(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    def busy(path: Path) -> None:
        raise OSError("busy")

    cluster.create()
    with monkeypatch.context() as patched:
        patched.setattr("shutil.rmtree", busy)
        cluster.databases.delete("orders")
        cluster.sim.settle(5)
        assert cluster.databases.get("orders").deletion_timestamp is not None
        assert len(cluster.folders) == 1
    cluster.sim.settle(60)
    assert (cluster.folders, cluster.databases.get_opt("orders")) == ([], None)


def test_a_database_that_was_never_applied_goes_as_well(cluster: Cluster) -> None:
    cluster.databases.create(Database(name="orders", spec=Spec(), finalizers=[Operate.finalizer_name]))
    cluster.databases.delete("orders")
    cluster.sim.settle(10)
    assert (cluster.folders, cluster.databases.get_opt("orders")) == ([], None)


def test_the_program_works_until_a_signal(tmp_path: Path) -> None:
    with ApiServer() as server, server.client() as client:
        server.load([Database.crd()])
        databases = Api.namespaced(client, Database, "default")
        databases.create(Database(name="orders", spec=Spec()))
        kubeconfig = {"KUBECONFIG": server.write_kubeconfig(tmp_path / "kubeconfig")}
        with Program("-W", "error::ResourceWarning", OPERATOR, tmp_path / "backups", env=kubeconfig) as program:
            made = next(found for found in watch_object(databases, "orders") if found and found.status)
            assert (tmp_path / "backups" / made.uid).is_dir()
            databases.delete("orders")
            assert next(True for found in watch_object(databases, "orders") if found is None)
            assert not (tmp_path / "backups" / made.uid).exists()
            program.send(signal.SIGTERM)
            assert program.end() == 0, program.text
    assert "Traceback" not in program.text


def test_the_command_in_its_first_lines_prints_the_definition() -> None:
    command = next(line for line in OPERATOR.read_text().splitlines() if "kubectl-runtime crd" in line)
    words = command.partition("|")[0].split()
    assert words[:5] == ["cd", "examples", "&&", "kubectl-runtime", "crd"]
    done = subprocess.run([sys.executable, "-m", "kubectl_runtime", "crd", *words[5:]], cwd=ROOT / words[1],
                          env=environment(), capture_output=True, text=True, timeout=LIMIT, check=False)
    assert "name: databases.demo.kubectl-runtime.dev" in done.stdout, done.stderr


def test_it_is_short() -> None:
    code, _, command_line = OPERATOR.read_text(encoding="utf-8").partition("# --- end of the controller")
    assert len(code.splitlines()) + len(command_line.splitlines()) < 120
    assert len(code.partition("\nR = ")[2].splitlines()) < 80
