"""Finalizers among the other patterns of a controller, in simulation: status, own deletions, other people's marks."""
from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Annotated, Any

import msgspec
import pytest
import requests

from kubectl_runtime import (
    Action,
    Api,
    Client,
    Condition,
    Config,
    Context,
    Controller,
    CustomResource,
    FinalizingReconciler,
    MapKeys,
    Patch,
    Reconciler,
    finalizer,
)
from kubectl_runtime.controller import status
from kubectl_runtime.params import DeleteParams
from kubectl_runtime.resources import ConfigMap
from kubectl_runtime.testing import ApiServer, Simulation

OURS = "sites.example.com/dns"
OTHER = "other.example.com/x"


class SiteStatus(msgspec.Struct):
    conditions: Annotated[list[Condition] | None, MapKeys("type")] = None


class Site(CustomResource, group="finalizing.example.com", version="v1", kind="Site"):
    spec: dict[str, Any]
    status: SiteStatus | None


class Cluster:
    def __init__(self) -> None:
        self.sim = Simulation()
        self.server = ApiServer(clock=self.sim.clock)
        self.server.load([Site.crd()])
        session = requests.Session()
        session.mount("http://", self.server.transport())
        self.client = Client(Config(cluster_url="http://simulated"), session=session, clock=self.sim.clock)
        self.sites = Api.namespaced(self.client, Site, "default")
        self.maps = Api.namespaced(self.client, ConfigMap, "default")

    def start(self, reconciler: Reconciler[Site]) -> None:
        self.sim.start(Controller(Api.all(self.client, Site)), reconciler)
        self.sim.settle(1)

    def writes(self) -> list[str]:
        return [f"{entry.method} {entry.path}" for entry in self.server.requests if entry.method != "GET"]


@pytest.fixture
def cluster(caplog: pytest.LogCaptureFixture) -> Iterator[Cluster]:
    made = Cluster()
    with made.client:
        yield made
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == []


def ready(reason: str) -> Condition:
    return Condition(type="Ready", status="True", reason=reason)


class Sites(FinalizingReconciler[Site]):
    finalizer_name = OURS

    def __init__(self, api: Api[Site]) -> None:
        self.api = api

    def apply(self, obj: Site, ctx: Context[None]) -> Action:
        status.report(self.api, obj, ready("Applied"), field_manager="sites")
        return Action.await_change()

    def cleanup(self, obj: Site, ctx: Context[None]) -> Action:
        return Action.await_change()


def test_a_status_guarded_by_its_version_is_written_in_the_run_that_adds_the_finalizer(cluster: Cluster) -> None:
    class Guarded(Sites):
        def apply(self, obj: Site, ctx: Context[None]) -> Action:
            self.api.replace_status({**obj.to_dict(), "status": {"conditions": [
                {"type": "Ready", "status": "True", "reason": "Guarded", "message": "",
                 "lastTransitionTime": "2026-01-01T00:00:00Z"}]}})
            return Action.await_change()

    cluster.sites.create(Site(name="a", spec={}))
    cluster.server.requests.clear()
    cluster.start(Guarded(cluster.sites))
    path = "/apis/finalizing.example.com/v1/namespaces/default/sites/a"
    assert cluster.writes()[:2] == [f"PATCH {path}", f"PUT {path}/status"]
    found = cluster.sites.get("a")
    assert found.finalizers == (OURS,)
    assert found.status is not None


def test_a_reconciler_that_deletes_its_own_object_may_still_report_to_it(cluster: Cluster) -> None:
    told: list[bool] = []

    class OneShot(Reconciler[Site]):
        def reconcile(self, obj: Site, ctx: Context[None]) -> Action:
            cluster.sites.delete(obj.name)
            told.append(status.report(cluster.sites, obj, ready("Done"), field_manager="sites"))
            assert status.report(cluster.sites, obj, ready("Done"), field_manager="others") is False
            return Action.await_change()

    cluster.sites.create(Site(name="a", spec={}))
    cluster.start(OneShot())
    assert told == [False]
    assert cluster.sites.get_opt("a") is None


def test_after_the_removal_of_its_finalizer_nothing_is_sent_for_an_object(cluster: Cluster) -> None:
    cluster.start(Sites(cluster.sites))
    cluster.sites.create(Site(name="a", spec={}))
    cluster.sim.settle(1)
    cluster.sites.delete("a")
    cluster.server.requests.clear()
    cluster.sim.settle(60)
    path = "/apis/finalizing.example.com/v1/namespaces/default/sites/a"
    assert [f"{entry.method} {entry.path}" for entry in cluster.server.requests if "sites/a" in entry.path] == [
        f"GET {path}", f"PATCH {path}"]
    assert cluster.sites.get_opt("a") is None


def test_a_cleanup_that_waits_is_called_again_when_what_it_read_changes(cluster: Cluster) -> None:
    class Waiting(Sites):
        def cleanup(self, obj: Site, ctx: Context[None]) -> Action:
            if ctx.read(ConfigMap, "in-use") is not None:
                return Action.waiting("InUse", "the ConfigMap in-use still exists")
            return Action.await_change()

    cluster.maps.create(ConfigMap(name="in-use"))
    cluster.sites.create(Site(name="a", spec={}))
    cluster.start(Waiting(cluster.sites))
    cluster.sites.delete("a")
    cluster.sim.settle(60)
    assert cluster.sites.get("a").finalizers == (OURS,)
    cluster.maps.delete("in-use")
    cluster.sim.settle(1)
    assert cluster.sites.get_opt("a") is None


def test_a_controller_without_a_finalizer_touches_nobody_elses(cluster: Cluster) -> None:
    class Watching(Reconciler[Site]):
        def reconcile(self, obj: Site, ctx: Context[None]) -> Action:
            return Action.await_change()

    cluster.sites.create(Site(name="a", spec={}, finalizers=[OURS, OTHER]))
    cluster.sites.create(Site(name="b", spec={}, finalizers=[OURS, OTHER]))
    cluster.sites.delete("b")
    cluster.server.requests.clear()
    cluster.start(Watching())
    cluster.sim.settle(60)
    assert cluster.writes() == []
    assert [site.finalizers for site in cluster.sites.list().items] == [(OURS, OTHER)] * 2


def test_marks_of_the_garbage_collector_that_are_gone_by_now_are_not_put_back(cluster: Cluster) -> None:
    owner = cluster.maps.create(ConfigMap(name="a", finalizers=[OURS, OTHER]))
    child = ConfigMap(name="child", namespace="default", finalizers=[OTHER])
    child.set_owner(owner)
    cluster.maps.create(child)
    cluster.maps.delete("a", DeleteParams(propagation_policy="Foreground"))
    stale = cluster.maps.get("a")
    assert set(stale.finalizers) == {OURS, OTHER, "foregroundDeletion"}
    cluster.maps.patch("child", Patch.merge({"metadata": {"finalizers": None}}))
    assert set(cluster.maps.get("a").finalizers) == {OURS, OTHER}
    done = Action.await_change()
    assert finalizer(cluster.maps, OURS, stale, apply=lambda _: done, cleanup=lambda _: done) == done
    assert cluster.maps.get("a").finalizers == (OTHER,)
    never_ours = finalizer(cluster.maps, "late.example.com/x", stale, apply=lambda _: done, cleanup=lambda _: done)
    assert (never_ours, cluster.maps.get("a").finalizers) == (done, (OTHER,))
