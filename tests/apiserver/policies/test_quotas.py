"""ResourceQuotas: what is counted, refusals in the real server's words, scopes, and the status."""
from __future__ import annotations

from typing import Any

import pytest

from tests.apiserver.controllers.sets_world import SetsWorld
from tests.apiserver.webhooks.hooked import Hooked

PODS = "/api/v1/namespaces/default/pods"


@pytest.fixture
def api() -> Hooked:
    return Hooked()


def quota(api: Hooked, name: str = "q", **spec: Any) -> Any:
    return api("POST", "/api/v1/namespaces/default/resourcequotas", {"metadata": {"name": name}, "spec": spec})


def pod(api: Hooked, name: str, requests: Any = None, limits: Any = None, **spec: Any) -> Any:
    resources = {key: value for key, value in (("requests", requests), ("limits", limits)) if value}
    return api("POST", PODS, {"metadata": {"name": name}, "spec": {
        "containers": [{"name": "main", "image": "x", "resources": resources}], **spec}})


def test_a_count_is_refused_in_the_real_servers_words(api: Hooked) -> None:
    quota(api, hard={"count/configmaps": "1", "pods": "5"})
    assert api.create("a").status == 201
    refused = api.create("b")
    assert refused.status == 403
    assert refused.body["message"] == ('configmaps "b" is forbidden: exceeded quota: q, requested: count/configmaps=1, '
                                       "used: count/configmaps=1, limited: count/configmaps=1")
    api("DELETE", "/api/v1/namespaces/default/configmaps/a")
    assert api.create("b").status == 201


@pytest.mark.parametrize(("hard", "requests", "limits", "over"), [
    ({"requests.cpu": "1"}, {"cpu": "600m"}, {}, "requested: requests.cpu=600m, used: requests.cpu=600m, limited: "
                                                 "requests.cpu=1"),
    ({"memory": "1Gi"}, {"memory": "768Mi"}, {}, "requested: memory=768Mi, used: memory=768Mi, limited: memory=1Gi"),
    ({"limits.cpu": "3", "pods": "9"}, {}, {"cpu": "2"}, "requested: limits.cpu=2, used: limits.cpu=2, limited: "
                                                         "limits.cpu=3"),
    ({"requests.example.com/gpu": "1"}, {}, {"example.com/gpu": "1"}, "requested: requests.example.com/gpu=1"),
])
def test_compute_resources_are_added_up(api: Hooked, hard: Any, requests: Any, limits: Any, over: str) -> None:
    quota(api, hard=hard)
    assert pod(api, "a", requests, limits).status == 201
    refused = pod(api, "b", requests, limits)
    assert refused.status == 403
    assert over in refused.body["message"]


def test_where_compute_is_limited_each_container_says_what_it_takes(api: Hooked) -> None:
    quota(api, "compute", hard={"requests.cpu": "1", "limits.memory": "1Gi"})
    refused = pod(api, "a", {"memory": "1Mi"})
    assert refused.body["message"] == ('pods "a" is forbidden: failed quota: compute: must specify limits.memory for: '
                                       "main; requests.cpu for: main")


@pytest.mark.parametrize(("spec", "counted"), [
    ({"scopes": ["BestEffort"]}, True), ({"scopes": ["NotBestEffort"]}, False), ({"scopes": ["Terminating"]}, False),
    ({"scopes": ["NotTerminating"]}, True),
    ({"scopeSelector": {"matchExpressions": [{"scopeName": "PriorityClass", "operator": "In", "values": ["high"]}]}},
     False)])
def test_scopes_choose_the_pods(api: Hooked, spec: Any, counted: bool) -> None:
    quota(api, hard={"pods": "0"}, **spec)
    assert (pod(api, "a").status == 403) is counted


def test_pods_that_have_ended_and_other_namespaces_do_not_count(api: Hooked) -> None:
    quota(api, hard={"pods": "1"})
    pod(api, "a")
    assert pod(api, "b").status == 403
    api("PATCH", f"{PODS}/a/status", {"status": {"phase": "Succeeded"}}, content_type="application/merge-patch+json")
    assert pod(api, "b").status == 201
    api("POST", "/api/v1/namespaces", {"metadata": {"name": "other"}})
    assert api("POST", "/api/v1/namespaces/other/pods", {"metadata": {"name": "c"}, "spec": {
        "containers": [{"name": "main", "image": "x"}]}}).status == 201


def test_services_claims_and_custom_resources_count_as_what_they_ask_for(api: Hooked) -> None:
    quota(api, hard={"services.nodeports": "1", "requests.storage": "2Gi",
                     "fast.storageclass.storage.k8s.io/requests.storage": "1Gi"})
    services = "/api/v1/namespaces/default/services"
    ports = [{"port": 80, "name": "a"}, {"port": 81, "name": "b"}]
    assert api("POST", services, {"metadata": {"name": "a"}, "spec": {"ports": ports}}).status == 201
    spec = {"type": "NodePort", "ports": ports}
    assert api("POST", services, {"metadata": {"name": "b"}, "spec": spec}).status == 403
    grown = api.merge(f"{services}/a", {"spec": {"type": "NodePort"}})
    assert grown.status == 403
    claims = "/api/v1/namespaces/default/persistentvolumeclaims"

    def claim(name: str, size: str, storage_class: str) -> int:
        return api("POST", claims, {"metadata": {"name": name}, "spec": {
            "accessModes": ["ReadWriteOnce"], "storageClassName": storage_class,
            "resources": {"requests": {"storage": size}}}}).status

    assert [claim("a", "1Gi", "fast"), claim("b", "1Gi", "fast"), claim("c", "1Gi", ""), claim("d", "1Gi", "")] == [
        201, 403, 201, 403]


@pytest.mark.parametrize(("hard", "plural", "spec", "more"), [
    ({"services.nodeports": "1"}, "services", {"type": "NodePort", "ports": [{"port": 80, "name": "a"}]},
     {"spec": {"ports": [{"port": 80, "name": "a"}, {"port": 81, "name": "b"}]}}),
    ({"requests.storage": "1Gi"}, "persistentvolumeclaims",
     {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}, None),
    ({"pods": "1", "requests.cpu": "1"}, "pods",
     {"containers": [{"name": "main", "image": "x", "resources": {"requests": {"cpu": "1"}}}]}, None)])
def test_of_a_changed_object_only_what_it_takes_more_is_charged(api: Hooked, hard: Any, plural: str, spec: Any,
                                                                more: Any) -> None:
    quota(api, hard=hard)
    path = f"/api/v1/namespaces/default/{plural}"
    assert api("POST", path, {"metadata": {"name": "a"}, "spec": spec}).status == 201
    assert api.merge(f"{path}/a", {"metadata": {"labels": {"full": "yes"}}}).status == 200
    if more is not None:
        assert api.merge(f"{path}/a", more).status == 403


def test_a_dry_run_is_judged_and_not_charged(api: Hooked) -> None:
    quota(api, hard={"count/configmaps": "1"})
    assert api.create("a", dry_run=True).status == 201
    assert api.create("a").status == 201
    assert api.create("b", dry_run=True).status == 403


def test_the_status_follows(api: Hooked) -> None:
    quota(api, hard={"count/configmaps": "5", "requests.memory": "1Gi", "pods": "2"})
    path = "/api/v1/namespaces/default/resourcequotas/q"
    assert api("GET", path).body["status"]["used"] == {"count/configmaps": "0", "requests.memory": "0", "pods": "0"}
    api.create("a")
    pod(api, "a", {"memory": "512Mi"})
    assert api("GET", path).body["status"] == {
        "hard": {"count/configmaps": "5", "requests.memory": "1Gi", "pods": "2"},
        "used": {"count/configmaps": "1", "requests.memory": "512Mi", "pods": "1"}}
    api.merge(path, {"spec": {"hard": {"pods": None}}})
    assert set(api("GET", path).body["status"]["used"]) == {"count/configmaps", "requests.memory"}


def test_a_set_goes_on_when_a_quota_makes_room() -> None:
    world = SetsWorld()
    with world.client:
        wanted = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q", "namespace": "default"}}
        world.server.load({**wanted, "spec": {"hard": {"pods": "1"}}})
        world.make_set(replicas=2)
        assert list(world.images()) == ["db-0"]
        world.server.load({**wanted, "spec": {"hard": {"pods": "2"}}})
        world.advance(70)
        assert list(world.images()) == ["db-0", "db-1"]
