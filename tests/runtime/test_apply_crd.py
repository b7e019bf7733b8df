"""Installing one's own kind, over the embedded server: when the call returns, the kind can be used."""
from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from dataclasses import replace
from typing import Annotated, Any, Literal

import msgspec
import pytest
import requests

from kubectl_runtime.apiserver.server import ApiServer
from kubectl_runtime.apiserver.wire import HttpResponse
from kubectl_runtime.client.api.api import Api
from kubectl_runtime.client.api.client import Client
from kubectl_runtime.client.config.config import Config
from kubectl_runtime.core.base.errors import ApiError, RequestError
from kubectl_runtime.core.requests.params import Patch
from kubectl_runtime.core.scope import StopToken
from kubectl_runtime.crd.customresource import CustomResource, merge_crds
from kubectl_runtime.resources import ConfigMap, CustomResourceDefinition
from kubectl_runtime.runtime.apply_crd import DowngradeError, apply_crd
from kubectl_runtime.runtime.wait import WaitFailed, WaitStopped, WaitTimeout
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
    with pytest.raises(WaitTimeout, match=r"not name gadgets within 5 s; the last error: discover /apis") as caught:
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
    before = client.clock.monotonic()
    with pytest.raises(WaitFailed, match=r"rivals\S*: is_crd_established can never become true: its names are taken: "
                                         r'\w+: "?\w+"? is already in use') as caught:
        apply_crd(client, Rival, timeout=500)
    assert not isinstance(caught.value, TimeoutError)
    with pytest.raises(WaitFailed, match="its names are taken"):  # and again, where the server may judge anew
        apply_crd(client, Rival, timeout=500)
    assert client.clock.monotonic() - before < 20
    Api.all(client, CustomResourceDefinition).delete("gadgets.crd.example.com")
    apply_crd(client, Rival, timeout=500)


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
    with pytest.raises(RequestError, match="not a CustomResource class"):
        apply_crd(client, ConfigMap)  # type: ignore[type-var, arg-type]
    for no_time in (0, -1, float("nan"), "30"):
        with pytest.raises(RequestError, match=r"timeout must be (more than 0 )?seconds"):
            apply_crd(client, Gadget, timeout=no_time)  # type: ignore[arg-type]
    assert len(server.requests) == 0


class BoxSpec(msgspec.Struct):
    size: int
    color: Literal["red", "blue"] = "red"
    note: str = ""


class SmallBoxSpec(msgspec.Struct):
    size: Annotated[int, msgspec.Meta(le=3)]
    color: Literal["red"] = "red"


class Box(CustomResource, group="crd.example.com", version="v1", kind="Box"):
    spec: BoxSpec


class SmallBox(CustomResource, group="crd.example.com", version="v1", kind="Box"):
    spec: SmallBoxSpec


class BoxV2(CustomResource, group="crd.example.com", version="v2", kind="Box"):
    spec: BoxSpec


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


def test_a_schema_that_takes_less_is_applied_with_one_warning_that_shows_the_difference(
        client: Client, caplog: pytest.LogCaptureFixture) -> None:
    apply_crd(client, Box)
    apply_crd(client, Box)
    assert warnings(caplog) == []
    apply_crd(client, SmallBox)
    assert [line.strip() for line in warnings(caplog)[0].splitlines()] == [
        "apply CustomResourceDefinition.v1.apiextensions.k8s.io/boxes.crd.example.com removes parts of the definition "
        "on the server:",
        'spec.versions[v1].spec.color: "blue" is no longer accepted',  # the server has the fields sorted
        "spec.versions[v1].spec.note: is gone: it is pruned from every object that is written",
        "spec.versions[v1].spec.size: maximum is 3, and was none"]
    caplog.clear()
    apply_crd(client, Box)
    assert warnings(caplog) == []


BOTH = merge_crds([Box.crd(), BoxV2.crd()], "v2")


def test_an_older_definition_is_refused_before_anything_is_sent_unless_it_is_allowed(
        client: Client, caplog: pytest.LogCaptureFixture) -> None:
    established = apply_crd(client, BOTH)
    with pytest.raises(DowngradeError, match=r"the definition on the server is newer; allow_downgrade=True") as caught:
        apply_crd(client, merge_crds([Box.crd(), BoxV2.crd()], "v1"))
    assert [str(loss) for loss in caught.value.losses] == [
        "spec.versions: objects are stored as v2, and would be as v1"]
    crds = Api.all(client, CustomResourceDefinition)
    assert crds.get(established.name).resource_version == established.resource_version
    assert warnings(caplog) == []
    apply_crd(client, merge_crds([Box.crd(), BoxV2.crd()], "v1"), allow_downgrade=True)
    assert "objects are stored as v2, and would be as v1" in warnings(caplog)[0]


def test_a_version_in_which_objects_are_stored_is_warned_of_and_kept_by_the_server(
        client: Client, caplog: pytest.LogCaptureFixture) -> None:
    apply_crd(client, Box)
    with pytest.raises(ApiError, match="storedVersions"):
        apply_crd(client, BoxV2)
    assert "spec.versions[v1]: is gone, but objects are stored in it" in warnings(caplog)[0]


def test_all_served_versions_of_a_merged_definition_can_be_used(client: Client) -> None:
    apply_crd(client, BOTH)
    Api.namespaced(client, Box, "default").create(Box(name="a", spec=BoxSpec(size=9)))
    assert Api.namespaced(client, BoxV2, "default").get("a").spec.size == 9


def test_a_warning_of_many_losses_says_how_many_more_there_are(
        client: Client, caplog: pytest.LogCaptureFixture) -> None:
    many = Box.crd()
    properties = many["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    properties.update({f"x{number:02}": {"type": "string"} for number in range(25)})
    apply_crd(client, many)
    apply_crd(client, Box)
    assert len(warnings(caplog)[0].splitlines()) == 22
    assert warnings(caplog)[0].endswith("and 5 more")


@pytest.mark.parametrize("wrong", [{}, {"metadata": {"name": "a"}}, {"metadata": {"name": "a"}, "spec": {
    "group": "g", "scope": "Other", "names": {"kind": "K", "plural": "ks"},
    "versions": [{"name": "v1", "served": True}]}}])
def test_a_dict_that_is_no_definition_is_refused(client: Client, server: ApiServer, wrong: Any) -> None:
    with pytest.raises(RequestError, match="this is not a CustomResourceDefinition"):
        apply_crd(client, wrong)
    assert len(server.requests) == 0


def test_a_definition_that_is_larger_than_an_annotation_may_be_is_applied(client: Client) -> None:
    large = Box.crd()
    schema = large["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    schema["properties"]["spec"]["description"] = "long " * 80_000
    assert len(json.dumps(large)) > 400_000
    assert apply_crd(client, large).annotations.get("kubectl.kubernetes.io/last-applied-configuration") is None
    assert Api.namespaced(client, Box, "default").create(Box(name="a", spec=BoxSpec(size=1))).spec.size == 1
