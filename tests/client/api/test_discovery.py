"""Discovery: kinds by any name, by group and version, by stability; and what a program may do."""
from __future__ import annotations

import copy
import json
import pickle
from collections.abc import Iterator
from typing import Any

import pytest

from kubectl_runtime.apiserver.server import ApiServer
from kubectl_runtime.client.api.api import Api
from kubectl_runtime.client.api.client import Client
from kubectl_runtime.client.api.discovery import Discovery
from kubectl_runtime.client.api.queryable import MissingRights, ensure_queryable
from kubectl_runtime.client.server import ApiGroup, ServedKind, versions_in
from kubectl_runtime.core.base.errors import DiscoveryError
from kubectl_runtime.core.meta.gvk import ApiResource, GroupVersionKind, Scope
from kubectl_runtime.resources import (
    ClusterRole,
    ConfigMap,
    CustomResourceDefinition,
    Deployment,
    Namespace,
    Role,
    RoleBinding,
)
from kubectl_runtime.runtime.wait import delete_and_finalize
from kubectl_runtime.testing import eventually


@pytest.fixture(scope="module")
def server() -> Iterator[ApiServer]:
    with ApiServer(authorization_mode="RBAC", tokens={"t": "jo"}) as running:
        yield running


@pytest.fixture
def client(server: ApiServer) -> Iterator[Client]:
    with server.client() as made:
        yield made


def crd(plural: str, kind: str, *versions: str) -> dict[str, Any]:
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    return {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": f"{plural}.demo.example.com"},
            "spec": {"group": "demo.example.com", "scope": "Namespaced",
                     "names": {"plural": plural, "kind": kind, "shortNames": [plural[:2]]},
                     "versions": [{"name": version, "served": True, "storage": index == 0, "schema": schema}
                                  for index, version in enumerate(versions)]}}


def requests_of(server: ApiServer) -> int:
    return sum(request.path.startswith(("/api", "/apis")) for request in server.requests)


def resolved_anew(server: ApiServer, name: str) -> ServedKind:
    """By a client that knows nothing yet."""
    with server.client() as fresh:
        return fresh.discovery.resolve(name)


def test_a_kind_that_came_later_is_found_by_asking_once_more(server: ApiServer, client: Client) -> None:
    discovery = client.discovery
    with pytest.raises(DiscoveryError, match="is its CRD installed"):
        discovery.resolve("gadgets")
    Api.all(client, CustomResourceDefinition).create(crd("gadgets", "Gadget", "v1", "v1beta1"))
    eventually(lambda: resolved_anew(server, "gadgets"), timeout=30)  # it is served in the server's own time
    before = requests_of(server)
    assert discovery.resolve("ga.demo.example.com").resource.kind == "Gadget"
    assert requests_of(server) == before + 2
    assert discovery.resolve_gvk(GroupVersionKind("demo.example.com", "v1beta1", "Gadget")).resource.plural == "gadgets"
    assert requests_of(server) == before + 2
    Api.all(client, CustomResourceDefinition).delete("gadgets.demo.example.com")


def test_kinds_are_found_by_group_version_and_kind(client: Client) -> None:
    found = client.discovery.resolve_gvk(GroupVersionKind("apps", "v1", "Deployment"))
    assert found.resource == Deployment.api_resource
    assert found.supports("watch")
    assert not found.supports("fly")
    with pytest.raises(DiscoveryError, match="HorizontalPodAutoscaler in autoscaling/v3: did you mean autoscaling/v2"):
        client.discovery.resolve_gvk(GroupVersionKind("autoscaling", "v3", "HorizontalPodAutoscaler"))


def test_a_name_means_the_preferred_version(client: Client) -> None:
    assert client.discovery.resolve("hpa").resource.api_version == "autoscaling/v2"
    assert client.discovery.resolve("hpa.v1.autoscaling").resource.api_version == "autoscaling/v1"
    assert client.discovery.resolve("horizontalpodautoscaler.autoscaling").resource.api_version == "autoscaling/v2"


def test_groups_know_their_versions(client: Client) -> None:
    groups = {group.name: group for group in client.discovery.groups()}
    autoscaling = groups["autoscaling"]
    assert (autoscaling.versions, autoscaling.preferred_version) == (("v2", "v1"), "v2")
    recommended = autoscaling.recommended_kind("HorizontalPodAutoscaler")
    assert recommended is not None
    assert recommended.resource.version == "v2"
    assert autoscaling.recommended_kind("Scaler") is None
    assert [kind.resource.version for kind in autoscaling.versioned_resources("v1")] == ["v1"]
    assert autoscaling.versioned_resources("v9") == ()
    assert groups[""].preferred_version == "v1"


def served(kind: str, version: str) -> ServedKind:
    return ServedKind(ApiResource("demo.example.com", version, kind, f"{kind.lower()}s"))


def test_the_most_stable_version_of_a_kind_is_not_the_servers_preference() -> None:
    group = ApiGroup("demo.example.com", (served("A", "v2beta1"), served("B", "v2beta1"), served("A", "v1"),
                                          served("C", "v1alpha1"), served("B", "v1alpha1")))
    assert [kind.resource.version for kind in group.recommended_resources()] == ["v2beta1", "v2beta1"]
    assert {kind.resource.kind: kind.resource.version for kind in group.resources_by_stability()} == {
        "A": "v1", "B": "v2beta1", "C": "v1alpha1"}


def test_one_group_version_or_kind_is_asked_for_alone(server: ApiServer, client: Client) -> None:
    discovery = Discovery(client)
    before = requests_of(server)
    kind = discovery.pinned_kind(GroupVersionKind("apps", "v1", "Deployment"))
    assert requests_of(server) == before + 1
    assert kind.resource == Deployment.api_resource
    assert "scale" in kind.subresources
    assert {kind.resource.kind for kind in discovery.pinned_group("v1")} >= {"Pod", "Namespace"}
    assert next(kind for kind in discovery.pinned_group("v1") if kind.resource.kind == "Node").resource.scope is (
        Scope.CLUSTER)
    assert discovery.group("autoscaling").versions == ("v2", "v1")
    assert discovery.group("").versions == ("v1",)
    for ask in (lambda: discovery.pinned_group("nope.io/v1"), lambda: discovery.group("nope.io"),
                lambda: discovery.pinned_kind(GroupVersionKind("apps", "v1", "Nope"))):
        with pytest.raises(DiscoveryError, match="does not serve"):
            ask()


def test_the_preferred_version_comes_first_without_aggregation() -> None:
    document = {"groups": [{"name": "a.io", "versions": [{"groupVersion": "a.io/v1"}, {"groupVersion": "a.io/v2"}],
                            "preferredVersion": {"groupVersion": "a.io/v2"}}, {"name": "b.io", "versions": None}]}
    assert versions_in(json.dumps(document).encode()) == ["a.io/v2", "a.io/v1"]


@pytest.fixture
def jo(server: ApiServer, client: Client) -> Iterator[Client]:
    Api.all(client, Namespace).create(Namespace(name="team"))
    subject = {"kind": "User", "name": "jo", "apiGroup": "rbac.authorization.k8s.io"}
    Api.namespaced(client, Role, "team").create({"metadata": {"name": "r"}, "rules": [
        {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list", "watch", "patch"]}]})
    Api.namespaced(client, RoleBinding, "team").create({
        "metadata": {"name": "r"}, "subjects": [subject],
        "roleRef": {"kind": "Role", "name": "r", "apiGroup": "rbac.authorization.k8s.io"}})
    with server.client("jo") as made:
        yield made
    delete_and_finalize(Api.all(client, Namespace), "team", timeout=60)  # the next test makes it anew


def test_whoever_has_the_rights_gets_the_resource(jo: Client) -> None:
    assert ensure_queryable(jo, ConfigMap, namespace="team") == ConfigMap.api_resource
    assert ensure_queryable(jo, "cm", ["patch"], namespace="team") == ConfigMap.api_resource


def test_missing_rights_are_named_with_the_rule_that_grants_them(jo: Client, client: Client) -> None:
    with pytest.raises(MissingRights) as caught:
        ensure_queryable(jo, Deployment, ("list", "watch", "scale/patch"), namespace="team")
    error = caught.value
    assert error.verbs == ("list", "watch", "scale/patch")
    assert str(error) == (
        "the user may not list, watch, scale/patch deployments.apps in namespace team: a Role grants it with "
        '{"apiGroups": ["apps"], "resources": ["deployments"], "verbs": ["list", "watch"]}, '
        '{"apiGroups": ["apps"], "resources": ["deployments/scale"], "verbs": ["patch"]}')
    for copied in (copy.copy(error), pickle.loads(pickle.dumps(error))):
        assert (str(copied), copied.verbs, copied.namespace) == (str(error), error.verbs, "team")
    with pytest.raises(MissingRights, match="a ClusterRole grants it"):
        ensure_queryable(jo, ConfigMap)
    with pytest.raises(MissingRights, match="may not list, watch clusterroles"):
        ensure_queryable(jo, ClusterRole, namespace="team")
    assert ensure_queryable(client, ClusterRole) == ClusterRole.api_resource


def test_what_the_server_does_not_have_is_told_before_any_right(jo: Client) -> None:
    with pytest.raises(DiscoveryError, match=r"Gizmo in demo\.example\.com/v1: is its CRD installed"):
        ensure_queryable(jo, ApiResource("demo.example.com", "v1", "Gizmo", "gizmos"))
    with pytest.raises(DiscoveryError, match="configmaps has no subresource 'scale': it has none"):
        ensure_queryable(jo, ConfigMap, ["scale/get"], namespace="team")
    with pytest.raises(DiscoveryError, match="the server cannot watch componentstatuses: its verbs are get, list"):
        ensure_queryable(jo, "cs")
