"""Api against the embedded server: every verb, over real HTTP and over the simulated transport."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import requests

from kubectl_runtime import (
    Api,
    ApiError,
    ApiResource,
    Client,
    Config,
    ConfigError,
    ListParams,
    Patch,
    PatchParams,
    RequestError,
)
from kubectl_runtime.client.api.client import Write
from kubectl_runtime.client.api.discovery import Discovery
from kubectl_runtime.core.objects.partial import PartialObjectMeta
from kubectl_runtime.errors import DiscoveryError
from kubectl_runtime.kinds import Scope
from kubectl_runtime.params import PostParams
from kubectl_runtime.resources import ConfigMap, Deployment, Namespace, Pod
from kubectl_runtime.testing import ApiServer


@pytest.fixture(scope="module")
def server() -> Iterator[ApiServer]:
    with ApiServer() as running:
        yield running


@pytest.fixture(params=["http", "transport"])
def client(request: pytest.FixtureRequest, server: ApiServer) -> Iterator[Client]:
    if request.param == "http":
        made = server.client()
    else:
        session = requests.Session()
        session.mount(server.url, server.transport())
        made = Client(Config(cluster_url=server.url), session=session)
    with made:
        Api.namespaced(made, ConfigMap, "default").delete_collection()
        yield made


@pytest.fixture
def maps(client: Client) -> Api[ConfigMap]:
    return Api.namespaced(client, ConfigMap, "default")


def test_create_get_replace_delete(maps: Api[ConfigMap]) -> None:
    made = maps.create(ConfigMap(name="a", data={"x": "1"}))
    assert made.uid
    assert made.namespace == "default"
    found = maps.get("a")
    assert found.resource_version == made.resource_version
    found.data["x"] = "2"
    changed = maps.replace(found)
    assert changed.data == {"x": "2"}
    with pytest.raises(ApiError) as error:
        maps.replace(made)
    assert error.value.is_conflict
    maps.delete("a")
    assert maps.get_opt("a") is None
    with pytest.raises(ApiError, match="get configmaps default/a") as gone:
        maps.get("a")
    assert gone.value.is_not_found


def test_create_takes_dicts_too_and_twice_is_an_error(maps: Api[ConfigMap]) -> None:
    maps.create({"metadata": {"name": "a"}, "data": {"x": "1"}})
    with pytest.raises(ApiError) as error:
        maps.create({"metadata": {"name": "a"}})
    assert error.value.is_already_exists


def test_the_four_patches(client: Client, maps: Api[ConfigMap]) -> None:
    maps.create(ConfigMap(name="a", data={"x": "1"}))
    assert maps.patch("a", Patch.merge({"data": {"y": "2"}})).data == {"x": "1", "y": "2"}
    assert maps.patch("a", Patch.json([{"op": "remove", "path": "/data/x"}])).data == {"y": "2"}
    applied = maps.patch("a", Patch.apply({"data": {"z": "3"}}), PatchParams.apply("me"))
    assert applied.data == {"y": "2", "z": "3"}


def test_apply_creates_and_is_idempotent(maps: Api[ConfigMap]) -> None:
    first = maps.apply(ConfigMap(name="a", data={"x": "1"}), field_manager="me")
    second = maps.apply({"metadata": {"name": "a"}, "data": {"x": "1"}}, field_manager="me")
    assert first.uid == second.uid
    assert first.resource_version == second.resource_version
    assert maps.apply(ConfigMap(name="a", data={"y": "2"}), field_manager="me").data == {"y": "2"}


def test_lists_pages_and_selectors(maps: Api[ConfigMap]) -> None:
    for number in range(5):
        maps.create(ConfigMap(name=f"n{number}", labels={"odd": str(number % 2)}))
    page = maps.list(ListParams(limit=2))
    assert len(page) == 2
    assert page.metadata.continue_token
    assert page.metadata.resource_version
    assert [len(page) for page in maps.pages(ListParams(limit=2))] == [2, 2, 1]
    assert [found.name for found in maps.list_all(ListParams(limit=2))] == [f"n{number}" for number in range(5)]
    assert [found.name for found in maps.list(ListParams(label_selector="odd=1"))] == ["n1", "n3"]
    assert [found.name for found in maps.list(ListParams(field_selector="metadata.name=n4"))] == ["n4"]


def test_a_watch_from_a_lists_version_sees_what_happens_after_it(server: ApiServer) -> None:
    with server.client() as client:
        maps = Api.namespaced(client, ConfigMap, "default")
        version = maps.list().metadata.resource_version
        events = maps.watch(resource_version=version)
        maps.create(ConfigMap(name="watched"))
        maps.patch("watched", Patch.merge({"data": {"x": "1"}}))
        maps.delete("watched")
        seen = [next(events) for _ in range(3)]
        events.close()  # type: ignore[attr-defined]
    assert [found.type for found in seen] == ["ADDED", "MODIFIED", "DELETED"]
    assert [found.obj and found.obj.name for found in seen] == ["watched"] * 3


def test_metadata_only(maps: Api[ConfigMap]) -> None:
    maps.create(ConfigMap(name="a", labels={"x": "y"}, data={"secret": "z"}))
    meta = maps.with_metadata_only()
    found = meta.get("a")
    assert isinstance(found, PartialObjectMeta)
    assert found.labels == {"x": "y"}
    assert "metadata" in found
    assert found.ref == maps.get("a").ref
    assert [(record.name, record.partial) for record in meta.list_page()[1]] == [("a", True)]
    with pytest.raises(RequestError):
        meta.replace(found)
    assert meta.patch("a", Patch.merge({"metadata": {"labels": {"x": "z"}}})).labels == {"x": "z"}


def test_the_status_subresource(client: Client) -> None:
    deployments = Api.namespaced(client, Deployment, "default")
    body = {
        "metadata": {"name": "web"},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": {"app": "web"}},
            "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}},
        },
    }
    deployments.create(body)
    try:
        patched = deployments.patch_status("web", Patch.merge({"status": {"replicas": 3}, "spec": {"replicas": 9}}))
        assert (patched["status"]["replicas"], patched["spec"]["replicas"]) == (3, 1)
        patched["status"]["replicas"] = 4
        assert deployments.replace_status(patched)["status"]["replicas"] == 4
        assert deployments.get_status("web")["status"]["replicas"] == 4
        applied = deployments.apply_status(
            {"metadata": {"name": "web"}, "status": {"observedGeneration": 2}}, field_manager="me"
        )
        assert applied["status"]["observedGeneration"] == 2
    finally:
        deployments.delete("web")


def test_dynamic_kinds(client: Client, maps: Api[ConfigMap]) -> None:
    maps.create(ConfigMap(name="a", data={"x": "1"}))
    dynamic = Api.namespaced(client, ApiResource("", "v1", "ConfigMap", "configmaps"), "default")
    found = dynamic.get("a")
    assert found.data == {"x": "1"}
    assert found.ref == maps.get("a").ref


@pytest.mark.parametrize("arguments", [(), (Pod,), (Pod, "default"), (Pod, None)])
def test_an_api_that_is_made_by_hand_is_told_how_it_is_made(client: Client, arguments: Any) -> None:
    with pytest.raises(RequestError, match=r"an Api is made by Api.all\(client, Kind\), Api.namespaced\("):
        Api(client, *arguments)


def test_a_list_is_a_sequence_of_its_objects(maps: Api[ConfigMap]) -> None:
    for name in ("a", "b", "c"):
        maps.create(ConfigMap(name=name, labels={"of": "these"}))
    found = maps.list(label_selector="of=these")
    assert (found[0].name, found[-1].name, [each.name for each in found[1:]]) == ("a", "c", ["b", "c"])
    with pytest.raises(IndexError):
        found[3]


def test_places_are_checked_before_anything_is_sent(client: Client) -> None:
    for wrong in (
        lambda: Api.namespaced(client, Namespace, "default"),
        lambda: Api.namespaced(client, ConfigMap, ""),
        lambda: Api.namespaced(client, ConfigMap, None),
        lambda: Api.all(client, ConfigMap).get("a"),
        lambda: Api.all(client, ConfigMap).create(ConfigMap(name="a")),
        lambda: Api.all(client, Namespace).get(""),
        lambda: Api.all(client, int),
    ):  # type: ignore[type-var]
        with pytest.raises(RequestError):
            wrong()
    assert Api.default_namespaced(client, ConfigMap).namespace == "default"


def test_a_kind_that_is_not_served_is_an_error_of_its_own(client: Client) -> None:
    kind = ApiResource("demo.example.com", "v1", "ConfigMapGenerator", "configmapgenerators")
    generators = Api.namespaced(client, kind, "default")
    for verb in (
        generators.list,
        lambda: generators.get_opt("a"),
        lambda: generators.open_watch(None, "5"),
        lambda: generators.create({"metadata": {"name": "a"}}),
    ):
        with pytest.raises(
            DiscoveryError, match=r"does not serve configmapgenerators\.demo.*CRD installed"
        ):
            verb()


def test_a_subresource_that_is_not_served_is_named(client: Client) -> None:
    maps = Api.namespaced(client, ConfigMap, "default")
    maps.create(ConfigMap(name="a"))
    with pytest.raises(DiscoveryError, match="does not serve the subresource 'status' of configmaps in v1"):
        maps.patch_status("a", Patch.merge({"status": {}}))


def test_a_client_is_made_from_a_config() -> None:
    with pytest.raises(ConfigError, match=r"Client\(Config\(cluster_url="):
        Client("https://example.com")  # type: ignore[arg-type]


def test_discovery_finds_kinds_by_any_name(client: Client) -> None:
    discovery = Discovery(client)
    for name in ("configmaps", "ConfigMap", "cm", "configmap", "configmaps.v1"):
        assert discovery.resolve(name).resource == ConfigMap.api_resource
    assert discovery.resolve("deployments.apps").resource == Deployment.api_resource
    assert "status" in discovery.resolve("deploy").subresources
    assert discovery.resolve("ns").resource.scope is Scope.CLUSTER
    assert discovery.served(Pod.api_resource)
    assert not discovery.served(ApiResource("x.io", "v1", "X", "xs"))
    with pytest.raises(DiscoveryError, match="did you mean configmap"):
        discovery.resolve("configmapz")


class TestWrites:
    def test_each_write_is_reported_once_answered_and_before_it_returns(
        self, client: Client, maps: Api[ConfigMap]
    ) -> None:
        writes: list[Write] = []
        forget = client.on_write(writes.append)
        made = maps.create(ConfigMap(name="a"))
        assert [(write.verb, write.ref, write.uid, write.resource_version) for write in writes] == [
            ("create", made.ref, made.uid, made.resource_version)
        ]
        made.data["x"] = "1"
        maps.replace(made)
        maps.patch("a", Patch.merge({"data": {"y": "2"}}))
        applied = maps.apply(ConfigMap(name="a", data={"z": "3"}), field_manager="me")
        maps.delete("a")
        assert [write.verb for write in writes] == ["create", "replace", "patch", "apply", "delete"]
        assert writes[3].record is not None
        assert writes[3].record.resource_version == applied.resource_version
        assert writes[4].uid == made.uid
        forget()
        maps.create(ConfigMap(name="b"))
        assert len(writes) == 5

    def test_an_observer_that_was_added_twice_stays_when_one_of_them_is_taken_back(
        self, client: Client, maps: Api[ConfigMap]
    ) -> None:
        writes: list[Write] = []
        observer = writes.append
        forget, _ = client.on_write(observer), client.on_write(observer)
        forget()
        forget()
        maps.create(ConfigMap(name="a"))
        assert len(writes) == 1

    def test_dry_runs_and_failures_are_not(self, client: Client, maps: Api[ConfigMap]) -> None:
        writes: list[Write] = []
        client.on_write(writes.append)
        maps.create(ConfigMap(name="a"), PostParams(dry_run=True))
        maps.apply(ConfigMap(name="a"), field_manager="me", dry_run=True)
        with pytest.raises(ApiError):
            maps.patch("missing", Patch.merge({}))
        assert writes == []

    def test_an_observer_that_fails_does_not_fail_the_write(
        self, client: Client, maps: Api[ConfigMap], caplog: pytest.LogCaptureFixture
    ) -> None:
        def broken(write: Write) -> None:
            raise ValueError("oops")

        client.on_write(broken)
        assert maps.create(ConfigMap(name="a")).name == "a"
        assert "a write observer, given" in caplog.text
