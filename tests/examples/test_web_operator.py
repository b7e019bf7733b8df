"""The operator of Websites: what it makes, says, restores, refuses and deletes, in at most forty lines."""
from __future__ import annotations

import inspect
from collections.abc import Iterator

import pytest
from web_operator import Serve, Spec, Website, controller

from kubectl_runtime import Api, Condition, Patch
from kubectl_runtime.resources import Deployment, Secret, Service
from kubectl_runtime.testing import Simulation, perturb


class Cluster:
    """The operator on simulated time, with the cluster's controllers."""

    def __init__(self, controllers: tuple[str, ...] = ("*",)) -> None:
        self.sim = Simulation()
        self.server = self.sim.serve(controllers=controllers)
        self.server.load([Website.crd()])
        self.client = self.sim.client(self.server)
        self.sites = Api.namespaced(self.client, Website, "default")
        self.sim.start(controller(self.client), Serve())

    def make(self, **spec: object) -> None:
        self.sites.create(Website(name="shop", spec=Spec(image="nginx", **spec)))  # type: ignore[arg-type]
        self.sim.settle(20)

    def change(self, **spec: object) -> None:
        self.sites.patch("shop", Patch.merge({"spec": spec}))
        self.sim.settle(20)

    @property
    def ready(self) -> Condition:
        status = self.sites.get("shop").status
        assert status is not None
        (condition,) = status.conditions or ()
        return condition


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    made = Cluster()
    with made.sim:
        yield made


def test_the_method_has_at_most_forty_lines_of_a_hundred_columns() -> None:
    source = inspect.getsource(Serve.reconcile).splitlines()
    assert len(source) <= 40
    assert max(map(len, source)) <= 100


def test_a_website_serves_and_says_so(cluster: Cluster) -> None:
    cluster.make(replicas=2, settings={"COLOR": "blue"})
    assert (cluster.ready.status, cluster.ready.reason) == ("True", "Serving")
    assert Api.namespaced(cluster.client, Secret, "default").get("shop").data == {"COLOR": b"blue"}
    assert Api.namespaced(cluster.client, Deployment, "default").get("shop").status.ready_replicas == 2


def test_while_it_does_not_serve_it_says_why() -> None:
    cluster = Cluster(controllers=())
    cluster.make()
    assert (cluster.ready.status, cluster.ready.reason) == ("False", "Waiting")
    assert cluster.ready.message == "Deployment default/shop: its controller has not seen the latest change"


def test_nothing_is_sent_when_it_looks_again(cluster: Cluster) -> None:
    cluster.make()
    cluster.server.requests.clear()
    cluster.sites.patch("shop", Patch.merge({"metadata": {"labels": {"x": "1"}}}))
    cluster.sim.settle(120)
    assert [each.path for each in cluster.server.requests.select("patch")] == [
        "/apis/demo.kubectl-runtime.dev/v1/namespaces/default/websites/shop"]


def test_an_edit_and_a_scale_come_back_and_a_service_that_is_not_wanted_goes(cluster: Cluster) -> None:
    cluster.make(replicas=2)
    deployments = Api.namespaced(cluster.client, Deployment, "default")
    deployments.patch_scale("shop", Patch.merge({"spec": {"replicas": 5}}))
    cluster.sim.settle(20)
    assert deployments.get("shop").spec.replicas == 2
    cluster.change(expose=False)
    assert Api.namespaced(cluster.client, Service, "default").get_opt("shop") is None
    assert Api.namespaced(cluster.client, Secret, "default").get_opt("shop") is not None


def test_a_service_of_others_is_left_alone_and_the_condition_says_so(cluster: Cluster) -> None:
    services = Api.namespaced(cluster.client, Service, "default")
    services.create(Service(name="shop", spec={"ports": [{"port": 1}]}))  # type: ignore[arg-type]
    cluster.make()
    assert cluster.ready.status == "False"
    assert "Service default/shop was made by" in cluster.ready.message
    assert services.get("shop").owner_references == ()
    services.delete("shop")
    cluster.sim.settle(180)
    assert cluster.ready.status == "True"


def test_a_website_takes_its_children_along(cluster: Cluster) -> None:
    cluster.make()
    cluster.sites.delete("shop")
    cluster.sim.settle(60)
    for kind in (Deployment, Service, Secret):
        assert Api.namespaced(cluster.client, kind, "default").get_opt("shop") is None


@pytest.mark.parametrize("only", ["crash-after-2", pytest.param(None, marks=pytest.mark.long, id="each point")])
@pytest.mark.timeout(400)
def test_it_ends_alike_whatever_happens(only: str | None) -> None:
    def story(client: object) -> None:
        sites = Api.namespaced(client, Website, "default")  # type: ignore[arg-type]
        sites.create(Website(name="shop", spec=Spec(image="nginx", settings={"A": "1"})))
        sites.patch("shop", Patch.merge({"spec": {"expose": False, "replicas": 2}}))

    report = perturb(lambda client: controller(client).bind(Serve()), story, only=only)
    assert report.ok, str(report)
