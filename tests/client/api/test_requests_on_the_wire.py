"""What the verbs put on the wire: below a server's prefix, for odd names, for objects as lists and gets give them."""
from __future__ import annotations

import json
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import pytest

from kubectl_runtime import Api, ApiResource, Client, Config, Patch, RequestError
from kubectl_runtime.client.api.discovery import Discovery
from kubectl_runtime.core.scope import StopToken
from kubectl_runtime.kinds import Scope
from kubectl_runtime.params import WatchParams
from kubectl_runtime.resources import ConfigMap, Deployment
from tests.client.wire_server import Peer, Received, WireServer, answering, config_map, says

ROLE = ApiResource("rbac.authorization.k8s.io", "v1", "ClusterRole", "clusterroles", Scope.CLUSTER)
RECEIVED: dict[str, Any] = {
    "metadata": {"name": "a", "namespace": "default", "uid": "u", "resourceVersion": "7", "generation": 3,
                 "creationTimestamp": "2026-01-01T00:00:00Z", "labels": {"app": "web"},
                 "managedFields": [{"manager": "m", "operation": "Update"}]},
    "spec": {"replicas": 1}, "status": {"readyReplicas": 1}}


def serve(peer: Peer) -> None:
    while (request := peer.receive()) is not None:
        if "watch=true" in request.target:
            peer.start_stream()
            peer.end_stream()
        elif request.target.endswith(("/api", "/apis")):
            peer.answer(200, {"kind": "APIGroupDiscoveryList", "items": []})
        elif request.method == "GET" and request.target.partition("?")[0].endswith(("s", "deployments")):
            peer.answer(200, {"kind": "List", "metadata": {"resourceVersion": "9"}, "items": [RECEIVED]})
        else:
            name = unquote(request.target.partition("?")[0]).rstrip("/").split("/")
            peer.answer(200, {**RECEIVED, "metadata": {**RECEIVED["metadata"], "name": name[-1]}})


@pytest.mark.parametrize("end", ["", "/"])
def test_every_verb_goes_below_the_prefix_of_the_servers_url_once(end: str) -> None:
    with WireServer(serve) as server, Client(Config(cluster_url=f"{server.url}/k8s/clusters/c-1{end}")) as client:
        api = Api.namespaced(client, ConfigMap, "default")
        api.list()
        list(api.pages())
        list(api.watch(None, "5", StopToken()))
        api.patch("a", Patch.merge({"data": {"a": "b"}}))
        api.delete("a")
        Discovery(client).kinds()
        client.server_version()
    paths = [urlsplit(request.target).path for request in server.requests]
    assert len(paths) == 8
    assert all(path.startswith("/k8s/clusters/c-1/") and path.count("/k8s/") == 1 and "//" not in path
               for path in paths), paths


@pytest.mark.parametrize("name", ["system:foo:bar", "a.b.c"])
def test_an_odd_name_is_encoded_once_by_every_verb_and_kept_as_it_is(name: str) -> None:
    with WireServer(serve) as server, server.client() as client:
        roles = Api.all(client, ROLE)
        found = roles.get(name)
        roles.patch(name, Patch.merge({}))
        roles.delete(name)
        list(roles.watch(WatchParams(field_selector={"metadata.name": name}), "5", StopToken()))
    assert (found.name, found.ref.name) == (name, name)
    assert {unquote(urlsplit(request.target).path) for request in server.requests[:3]} == {
        f"/apis/rbac.authorization.k8s.io/v1/clusterroles/{name}"}
    assert parse_qs(urlsplit(server.requests[3].target).query)["fieldSelector"] == [f"metadata.name={name}"]


def applied(received: Any, **options: Any) -> list[Received]:
    with WireServer(serve) as server, server.client() as client:
        api = Api.namespaced(client, Deployment, "default")
        found = received(api)
        api.apply(found, field_manager="me", **options)
        api.apply_status({"metadata": {"name": found.name}, "status": {"readyReplicas": 2}}, field_manager="me")
    return server.requests[-2:]


@pytest.mark.parametrize("received", [lambda api: api.list().items[0], lambda api: api.get("a")], ids=["list", "get"])
def test_an_object_that_was_received_is_applied_whole_but_for_what_is_the_servers(received: Any) -> None:
    whole, status = applied(received)
    body = json.loads(whole.body)
    assert (body["apiVersion"], body["kind"], body["spec"]) == ("apps/v1", "Deployment", {"replicas": 1})
    assert body["metadata"] == {"name": "a", "namespace": "default", "labels": {"app": "web"}}
    assert urlsplit(status.target).path == "/apis/apps/v1/namespaces/default/deployments/a/status"
    assert json.loads(status.body) == {"apiVersion": "apps/v1", "kind": "Deployment", "status": {"readyReplicas": 2},
                                       "metadata": {"name": "a", "namespace": "default"}}


def test_an_apply_says_its_manager_force_and_dry_run_in_the_query_and_its_type_in_the_header() -> None:
    whole, _ = applied(lambda api: api.get("a"), force=True, dry_run=True)
    assert parse_qs(urlsplit(whole.target).query) == {"fieldManager": ["me"], "force": ["true"], "dryRun": ["All"]}
    assert whole.all_of("Content-Type") == ["application/apply-patch+yaml"]


@pytest.mark.parametrize("manager", ["", "m" * 129, "a\nb", 5, None])
def test_an_apply_without_a_managers_name_that_the_server_takes_is_not_sent(manager: Any) -> None:
    with WireServer(answering(says(200, config_map()))) as server, server.client() as client:
        with pytest.raises(RequestError, match=r"field.manager"):
            Api.namespaced(client, ConfigMap, "default").apply(ConfigMap(name="a"), field_manager=manager)
    assert server.requests == []
