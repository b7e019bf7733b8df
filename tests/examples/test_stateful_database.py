"""The operator with state, on a cluster whose Pods run: scale up and down, partitioned upgrade, backup, restore."""
from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from stateful_database import Operate, Postgres, Spec, controller

from kubectl_runtime import Api, Patch
from kubectl_runtime.resources import Job, PersistentVolumeClaim, Pod, Service, StatefulSet, StorageClass
from kubectl_runtime.testing import Simulation


class World:
    """The operator, all controllers of a cluster, and a storage class, on simulated time."""

    def __init__(self) -> None:
        self.sim = Simulation()
        self.server = self.sim.serve(controllers=["*"])
        self.server.load([Postgres.crd()])
        self.client = self.sim.client(self.server)
        self.postgreses, self.pods, self.claims, self.jobs = (
            Api.namespaced(self.client, kind, "default") for kind in (Postgres, Pod, PersistentVolumeClaim, Job))
        Api.all(self.client, StorageClass).create({
            "provisioner": "disks.test", "metadata": {"name": "fast", "annotations": {
                "storageclass.kubernetes.io/is-default-class": "true"}}})
        self.sim.start(controller(self.client), Operate())

    def create(self, **spec: Any) -> None:
        self.postgreses.create(Postgres(name="orders", spec=Spec(**spec)))
        self.sim.settle(60)

    def change(self, **spec: Any) -> None:
        self.postgreses.patch("orders", Patch.merge({"spec": spec}))
        self.sim.settle(120)

    def images(self) -> dict[str, str]:
        return {pod.name: pod.to_dict()["spec"]["containers"][0]["image"] for pod in self.pods.list()
                if any(owner.kind == "StatefulSet" for owner in pod.owner_references)}

    def bound(self) -> dict[str, str]:
        """Claim -> volume."""
        return {claim.name: claim.to_dict()["spec"].get("volumeName", "") for claim in self.claims.list()}

    @property
    def ready(self) -> tuple[str, str]:
        status = self.postgreses.get("orders").status
        assert status is not None
        (condition,) = status.conditions or ()
        return condition.status, condition.message or ""


@pytest.fixture
def world() -> Iterator[World]:
    made = World()
    with made.sim:
        yield made


def test_servers_come_up_one_after_the_other_each_with_a_volume(world: World) -> None:
    world.create(replicas=3)
    assert world.ready == ("True", "3 of 3 servers are ready, 3 are updated")
    assert list(world.images()) == ["orders-0", "orders-1", "orders-2"]
    assert all(world.bound().values())
    assert Api.namespaced(world.client, Service, "default").get("orders").to_dict()["spec"]["clusterIP"] == "None"


def test_scaled_down_and_up_again_the_data_are_there(world: World) -> None:
    world.create(replicas=3)
    volumes = world.bound()
    world.change(replicas=1)
    assert list(world.images()) == ["orders-0"]
    assert world.bound() == volumes
    world.change(replicas=3)
    assert world.ready[0] == "True"
    assert world.bound() == volumes


def test_an_upgrade_stops_at_the_partition(world: World) -> None:
    world.create(replicas=3)
    world.change(image="postgres:18", partition=2)
    assert world.images() == {"orders-0": "postgres:17", "orders-1": "postgres:17", "orders-2": "postgres:18"}
    assert world.ready == ("True", "3 of 3 servers are ready, 1 are updated")
    world.change(partition=0)
    assert set(world.images().values()) == {"postgres:18"}


def test_an_upgrade_that_does_not_start_reaches_one_server(world: World) -> None:
    world.create(replicas=3)
    rule = world.server.kubelet.rules.on(image="postgres:broken").never_be_ready()
    world.change(image="postgres:broken")
    assert list(world.images().values()).count("postgres:broken") == 1
    assert world.ready[0] == "False"
    rule.remove()
    world.sim.settle(600)
    assert world.ready[0] == "True"


def test_backups_run_by_the_schedule_and_a_restore_replaces_the_servers(world: World) -> None:
    world.create(replicas=2, schedule="*/5 * * * *")
    world.sim.settle(660)
    assert len(world.jobs.list().items) == 2
    assert all(job.to_dict()["status"]["succeeded"] == 1 for job in world.jobs.list())
    volumes, before = world.bound(), {pod.name: pod.uid for pod in world.pods.list()}
    world.change(restore="monday")
    servers = [pod.to_dict() for pod in world.pods.list() if pod.name in world.images()]
    assert [pod["spec"]["initContainers"][0]["command"] for pod in servers] == [["pg_restore", "monday"]] * 2
    assert all(pod["metadata"]["uid"] != before[pod["metadata"]["name"]] for pod in servers)
    assert (world.ready[0], world.bound()) == ("True", volumes)


def test_a_deleted_database_leaves_its_claims(world: World) -> None:
    world.create(replicas=2)
    world.postgreses.delete("orders")
    world.sim.settle(120)
    assert world.images() == {}
    assert Api.namespaced(world.client, StatefulSet, "default").get_opt("orders") is None
    assert len(world.bound()) == 2
