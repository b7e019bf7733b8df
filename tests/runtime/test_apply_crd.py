"""Installing one's own kind, over the embedded server: when the call returns, the kind can be used."""
from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import requests

from kubectl_runtime.apiserver.server import ApiServer
from kubectl_runtime.apiserver.wire import HttpResponse
from kubectl_runtime.client.api.api import Api
from kubectl_runtime.client.api.client import Client
from kubectl_runtime.client.config.config import Config
from kubectl_runtime.core.base.errors import ApiError, RequestError
from kubectl_runtime.core.base.stop import StopToken
from kubectl_runtime.core.requests.patch import Patch
from kubectl_runtime.crd.customresource import CustomResource
from kubectl_runtime.resources import ConfigMap, CustomResourceDefinition
from kubectl_runtime.runtime.apply_crd import apply_crd
from kubectl_runtime.runtime.wait import WaitStopped, WaitTimeout
from kubectl_runtime.testing.clock import SimClock

DISCOVERY = "/apis/crd.example.com/v1"


class Gadget(CustomResource, group="crd.example.com", version="v1", kind="Gadget"):
    spec: dict[str, Any]


class Other(CustomResource, group="crd.example.com", version="v1", kind="Other"):
    spec: dict[str, Any]


class Rival(CustomResource, group="crd.example.com", version="v1", kind="Gadget", plural="rivals"):
    """Claims a kind that is taken."""

    spec: dict[str, Any]


@pytest.fixture
def clock() -> SimClock:
    return SimClock(self_advancing=True)


@pytest.fixture
def server(clock: SimClock) -> ApiServer:
    return ApiServer(clock=clock)


@pytest.fixture
def client(server: ApiServer, clock: SimClock) -> Iterator[Client]:
    session = requests.Session()
    session.mount("http://", server.transport())
    with Client(Config(cluster_url="http://simulated"), session=session, clock=clock) as client:
        yield client


def use(client: Client) -> Gadget:
    return Api.namespaced(client, Gadget, "default").create(Gadget(name="a", spec={}))


def test_the_kind_can_be_used_at_once_over_sockets() -> None:
    with ApiServer() as server, server.client() as client:
        crd = apply_crd(client, Gadget)
        assert crd.name == "gadgets.crd.example.com"
        use(client)


def test_a_second_time_changes_nothing(client: Client) -> None:
    first = apply_crd(client, Gadget)
    assert apply_crd(client, Gadget).resource_version == first.resource_version


def test_a_404_of_discovery_in_the_first_moments_is_waited_out(client: Client, server: ApiServer) -> None:
    late = server.faults.on(path=DISCOVERY).first(4).answer(404, "404 page not found")
    apply_crd(client, Gadget)
    assert late.taken == 4
    use(client)


def without_gadgets(answer: HttpResponse) -> HttpResponse:
    document = json.loads(answer.body)
    document["resources"] = [entry for entry in document["resources"] if entry["name"] != "gadgets"]
    return replace(answer, body=json.dumps(document).encode())


def test_a_group_that_is_served_without_the_kind_is_waited_out(client: Client, server: ApiServer) -> None:
    apply_crd(client, Other)
    late = server.faults.on(path=DISCOVERY).first(3).rewrite(without_gadgets)
    apply_crd(client, Gadget)
    assert late.taken == 3


def test_failures_of_discovery_are_waited_out_and_told_when_the_time_is_up(
    client: Client, server: ApiServer, clock: SimClock
) -> None:
    server.faults.on(path=DISCOVERY).first(2).status(500)
    apply_crd(client, Gadget)
    server.faults.on(path=DISCOVERY).status(500)
    begun = clock.monotonic()
    with pytest.raises(WaitTimeout, match=r"not name gadgets within 5 s; it failed last: discover /apis") as caught:
        apply_crd(client, Gadget, timeout=5)
    assert clock.monotonic() - begun == pytest.approx(5, abs=0.1)
    assert caught.value.last_seen.name == "gadgets.crd.example.com"


def test_a_stop_ends_the_wait_for_discovery(client: Client, server: ApiServer, clock: SimClock) -> None:
    stop = StopToken(clock=clock)
    server.faults.on(path=DISCOVERY).run(lambda: stop.set("enough")).answer(404, "")
    with pytest.raises(WaitStopped, match="enough"):
        apply_crd(client, Gadget, stop=stop)


def test_a_kind_that_another_definition_has_taken_is_told(client: Client) -> None:
    apply_crd(client, Gadget)
    with pytest.raises(WaitTimeout, match=r"is_crd_established was not so within \S+ s; .*NamesAccepted=False \(\w+\)"):
        apply_crd(client, Rival, timeout=5)


def test_a_definition_that_is_being_deleted_is_waited_for_and_made_again(client: Client, server: ApiServer) -> None:
    crds = Api.all(client, CustomResourceDefinition)
    first = apply_crd(client, Gadget)
    crds.patch(first.name, Patch.merge({"metadata": {"finalizers": [*first.finalizers, "example.com/held"]}}))
    crds.delete(first.name)
    server.faults.on("watch", resource="customresourcedefinitions").nth(1).run(
        lambda: crds.patch(first.name, Patch.merge({"metadata": {"finalizers": []}})))
    second = apply_crd(client, Gadget)
    assert second.uid != first.uid
    use(client)


def test_what_the_server_warns_of_is_logged(
    client: Client, server: ApiServer, caplog: pytest.LogCaptureFixture
) -> None:
    server.faults.on("patch", resource="customresourcedefinitions").rewrite(
        lambda answer: replace(answer, headers=(*answer.headers, ("Warning", '299 - "deprecated something"'))))
    with caplog.at_level(logging.WARNING):
        apply_crd(client, Gadget)
    assert "the API server warns: deprecated something" in caplog.text


def test_another_managers_definition_is_a_conflict_until_it_is_taken(client: Client) -> None:
    definition = Gadget.crd()
    definition["spec"]["scope"] = "Namespaced"
    definition["spec"]["names"]["shortNames"] = ["g"]
    Api.all(client, CustomResourceDefinition).apply(definition, field_manager="helm")

    class Short(CustomResource, group="crd.example.com", version="v1", kind="Gadget", short_names=("gg",)):
        spec: dict[str, Any]

    with pytest.raises(ApiError) as caught:
        apply_crd(client, Short)
    assert caught.value.is_conflict
    assert apply_crd(client, Short, force=True).spec.names.short_names == ["gg"]


def test_what_cannot_work_is_refused_before_anything_is_sent(client: Client, server: ApiServer) -> None:
    with pytest.raises(RequestError, match="no CustomResource class"):
        apply_crd(client, ConfigMap)  # type: ignore[type-var, arg-type]
    for no_time in (0, -1, float("nan"), "30"):
        with pytest.raises(RequestError, match="timeout="):
            apply_crd(client, Gadget, timeout=no_time)  # type: ignore[arg-type]
    assert len(server.requests) == 0
