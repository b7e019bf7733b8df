"""`ApiServer.implant`: objects of another server, exactly as they were read."""
from __future__ import annotations

import ast
from datetime import UTC, datetime
from typing import Any

import pytest

from kubectl_runtime import Api, ApiResource, Client
from kubectl_runtime.core.base.errors import ApiError
from kubectl_runtime.params import WatchParams
from kubectl_runtime.resources import ConfigMap, Deployment, Pod
from kubectl_runtime.testing import ApiServer, SimClock, Simulation

AT = datetime(2025, 3, 9, 12, tzinfo=UTC)
WIDGETS = ApiResource("example.com", "v1", "Widget", "widgets")
V2 = WIDGETS.with_version("v2")

CONFIG = {
    "apiVersion": "v1", "kind": "ConfigMap", "data": {"a": "b"},
    "metadata": {"name": "settings", "namespace": "default", "uid": "11111111-2222-4333-8444-555555555555",
                 "resourceVersion": "987654321", "generation": 7, "creationTimestamp": "2020-02-03T04:05:06Z",
                 "deletionGracePeriodSeconds": 5, "deletionTimestamp": "2025-03-09T11:00:00Z",
                 "finalizers": ["example.com/keep"], "selfLink": "/old",
                 "managedFields": [{"manager": "helm", "operation": "Update", "apiVersion": "v1",
                                    "time": "2020-02-03T04:05:06Z", "fieldsType": "FieldsV1",
                                    "fieldsV1": {"f:data": {".": {}, "f:a": {}}}}]}}


def definition(*, stored: str = "v1") -> dict[str, Any]:
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    versions = [{"name": name, "served": True, "storage": name == stored, "schema": {"openAPIV3Schema": schema},
                 "subresources": {"status": {}}} for name in ("v1", "v2")]
    names = {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"}
    conditions = [{"type": kind, "status": "True", "reason": "Old", "message": "",
                   "lastTransitionTime": "2020-01-01T00:00:00Z"} for kind in ("NamesAccepted", "Established")]
    return {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "widgets.example.com", "uid": "c-r-d", "resourceVersion": "50", "generation": 4,
                         "creationTimestamp": "2019-01-01T00:00:00Z"},
            "spec": {"group": "example.com", "scope": "Namespaced", "names": names, "versions": versions,
                     "conversion": {"strategy": "None"}},
            "status": {"acceptedNames": names, "storedVersions": ["v1"], "conditions": conditions}}


def widget(name: str, version: str = "v1", **metadata: Any) -> dict[str, Any]:
    return {"apiVersion": f"example.com/{version}", "kind": "Widget", "spec": {"size": 3, "unknown": {"x": None}},
            "status": {"observedGeneration": 2},
            "metadata": {"name": name, "namespace": "default", "uid": f"w-{name}", "resourceVersion": "77",
                         "generation": 12, **metadata}}


def stored(server: ApiServer, client: Client, kind: Any, name: str) -> dict[str, Any]:
    return Api.namespaced(client, kind, "default").get(name).to_dict()


@pytest.fixture
def world() -> Any:
    with Simulation(start=AT) as simulation:
        server = simulation.serve()
        yield simulation, server, simulation.client(server)


def test_everything_stays_as_it_was_read(world: Any) -> None:
    _, server, client = world
    pod = {"apiVersion": "v1", "kind": "Pod", "spec": {"containers": [{"name": "a", "image": "b"}]},  # no defaults
           "metadata": {"name": "bare", "namespace": "default", "uid": "p", "resourceVersion": "12"},
           "status": {"phase": "Running", "startTime": "2020-01-01T00:00:00Z"}}
    assert server.implant([CONFIG, pod, definition(), widget("one")]) == 4
    assert stored(server, client, ConfigMap, "settings") == CONFIG
    assert stored(server, client, Pod, "bare") == pod
    assert stored(server, client, WIDGETS, "one") == widget("one")
    crd = server.core.cluster.storage.get("apiextensions.k8s.io/customresourcedefinitions", "", "widgets.example.com")
    assert crd is not None
    assert crd.rv == 50
    assert crd.decode()["status"] == definition()["status"]


def test_definitions_come_first_wherever_they_stand(world: Any) -> None:
    _, server, client = world
    server.implant([widget("one"), widget("two", "v2"), definition(stored="v2")])
    assert [obj.name for obj in Api.all(client, WIDGETS).list()] == ["one", "two"]
    assert Api.namespaced(client, V2, "default").get("one").to_dict() == {**widget("one"), "apiVersion":
                                                                          "example.com/v2"}


def test_new_writes_come_after_all_of_them_and_older_versions_have_expired(world: Any) -> None:
    _, server, client = world
    server.implant([CONFIG, {**CONFIG, "metadata": {**CONFIG["metadata"], "name": "young", "uid": "y",
                                                    "resourceVersion": "987654400"}}])
    maps = Api.namespaced(client, ConfigMap, "default")
    assert maps.list().metadata.resource_version == "987654400"
    made = maps.create(ConfigMap(name="new"))
    assert int(made.resource_version or 0) == 987654401
    [told] = [event for event, _ in zip(maps.watch(WatchParams(), "987654330"), range(1), strict=False)]
    assert "410" in repr(told) or "too old" in str(told)


def test_what_has_no_version_or_uid_gets_new_ones(world: Any) -> None:
    _, server, client = world
    server.implant([{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "default"}}
                    for name in ("a", "b")])
    a, b = (Api.namespaced(client, ConfigMap, "default").get(name) for name in ("a", "b"))
    assert len({a.uid, b.uid, None}) == 3
    assert int(a.resource_version or 0) < int(b.resource_version or 0)


@pytest.mark.parametrize(("wrong", "why"), [
    ({"apiVersion": "nobody/v1", "kind": "Thing", "metadata": {"name": "x"}}, "does not serve 'Thing'"),
    ({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}}, "has no namespace"),
    ({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "x", "namespace": "y"}}, "cannot have a namespace"),
    ({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": "default"}}, "has no name"),
    ({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x", "namespace": "default",
                                                            "resourceVersion": "seven"}}, "is not a number"),
    (CONFIG, "occurs twice"),
])
def test_what_cannot_be_stored_is_named_and_nothing_is_stored(world: Any, wrong: dict[str, Any], why: str) -> None:
    _, server, client = world
    with pytest.raises(ValueError, match=why):
        server.implant([definition(), CONFIG, wrong])
    assert Api.all(client, ConfigMap).list().items == []
    with pytest.raises(ApiError):
        Api.all(client, WIDGETS).list()


def test_the_caller_s_objects_stay_as_they_are(world: Any) -> None:
    _, server, _ = world
    given = widget("one")
    server.implant([definition(), given])
    assert given == widget("one")


def test_the_controllers_go_on_with_what_they_find() -> None:
    """A rollout that another cluster had finished is finished here: other hashes in names, and Pods of other nodes."""
    with Simulation(start=AT) as simulation:
        server = simulation.serve(controllers=["*"])
        client = simulation.client(server)
        server.load([{"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
                      "spec": {"replicas": 2, "selector": {"matchLabels": {"app": "web"}},
                               "template": {"metadata": {"labels": {"app": "web"}},
                                            "spec": {"containers": [{"name": "a", "image": "nginx"}]}}}}])
        simulation.settle(120)
        kinds = [ApiResource("apps", "v1", "Deployment", "deployments"),
                 ApiResource("apps", "v1", "ReplicaSet", "replicasets"), ApiResource("", "v1", "Pod", "pods")]
        text = str([obj.to_dict() for kind in kinds for obj in Api.all(client, kind).list()])
        [replicas] = Api.all(client, kinds[1]).list().items
        old = replicas.labels["pod-template-hash"]
        objects = ast.literal_eval(text.replace(old, "7d4b9c"))
    with Simulation(seed=5, start=AT) as simulation:
        server = simulation.serve(controllers=["*"])
        client = simulation.client(server)
        server.implant(objects)
        before = {obj.name: obj.resource_version for kind in kinds for obj in Api.all(client, kind).list()}
        simulation.settle(300)
        assert {obj.name: obj.resource_version for kind in kinds for obj in Api.all(client, kind).list()} == before
        api = Api.namespaced(client, Deployment, "default")
        assert api.get("web").to_dict() == objects[0]
        assert server.clock.now() > AT


def test_a_running_server_takes_them_too() -> None:
    with ApiServer(clock=SimClock()) as server:
        server.implant("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, namespace: default, uid: u, "
                       "resourceVersion: '99'}")
        with server.client() as client:
            assert Api.namespaced(client, ConfigMap, "default").get("a").uid == "u"
