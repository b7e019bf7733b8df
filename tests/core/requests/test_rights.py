"""What the authorizer is asked for each request, and the roles that grant it."""
from __future__ import annotations

from typing import Any

import pytest

from kubectl_runtime.core.meta.gvk import ApiResource, Scope
from kubectl_runtime.core.requests import request as build
from kubectl_runtime.core.requests.params import Patch, PatchParams
from kubectl_runtime.core.requests.rights import Right, rights_of, roles

PLACE = build.Place(ApiResource("apps", "v1", "Deployment", "deployments"), "n")
NODES = build.Place(ApiResource("", "v1", "Node", "nodes", Scope.CLUSTER))
OWNED = {"metadata": {"name": "a", "ownerReferences": [
    {"apiVersion": "example.com/v1", "kind": "Ox", "name": "o", "uid": "u", "blockOwnerDeletion": True},
    {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "w", "blockOwnerDeletion": False}]}}
APPLY = PatchParams.apply("m")


def asked(request: build.Request) -> list[str]:
    return [f"{right.verb} {right.resource}.{right.group} {right.namespace}" for right in rights_of(request)]


@pytest.mark.parametrize(("request_", "rights"), [
    (build.get(PLACE, "a"), ["get deployments.apps n"]), (build.list_(PLACE), ["list deployments.apps n"]),
    (build.watch(NODES), ["watch nodes. None"]), (build.delete(PLACE, "a"), ["delete deployments.apps n"]),
    (build.create(PLACE, {"metadata": {"name": "a"}}), ["create deployments.apps n"]),
    (build.replace(PLACE, {"metadata": {"name": "a"}}, subresource="status"), ["update deployments/status.apps n"]),
    (build.patch(PLACE, "a", Patch.merge({})), ["patch deployments.apps n"]),
    (build.delete_collection(PLACE), ["deletecollection deployments.apps n"]),
    (build.apply(PLACE, {"metadata": {"name": "a"}}, APPLY), ["patch deployments.apps n", "create deployments.apps n"]),
    (build.apply(PLACE, {"metadata": {"name": "a"}}, APPLY, subresource="status"), ["patch deployments/status.apps n"]),
    (build.create(PLACE, OWNED), ["create deployments.apps n", "update oxes/finalizers.example.com n"]),
    (build.Request("GET", "/version", "get", None), [])])
def test_what_a_request_needs(request_: build.Request, rights: list[str]) -> None:
    assert asked(request_) == rights


def test_owners_whose_plural_is_not_the_usual_one_are_looked_up() -> None:
    found = list(rights_of(build.create(PLACE, OWNED), {("example.com", "Ox"): "oxen"}))
    assert Right("example.com", "oxen/finalizers", "update", "n") in found


BINDINGS = build.Place(ApiResource("rbac.authorization.k8s.io", "v1", "RoleBinding", "rolebindings"), "n")
CLUSTER_BINDINGS = build.Place(ApiResource("rbac.authorization.k8s.io", "v1", "ClusterRoleBinding",
                                           "clusterrolebindings", Scope.CLUSTER))


def binding(kind: str) -> dict[str, Any]:
    return {"metadata": {"name": "a"}, "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": "r"}}


@pytest.mark.parametrize(("request_", "bind"), [
    (build.create(BINDINGS, binding("ClusterRole")), ("clusterroles", "n")),
    (build.create(BINDINGS, binding("Role")), ("roles", "n")),
    (build.apply(CLUSTER_BINDINGS, binding("ClusterRole"), APPLY), ("clusterroles", None)),
    (build.replace(CLUSTER_BINDINGS, binding("ClusterRole")), ("clusterroles", None)),
    (build.patch(BINDINGS, "a", Patch.merge(binding("Role"))), ("roles", "n")),
    (build.patch(BINDINGS, "a", Patch.merge({"subjects": []})), None),
    (build.patch(BINDINGS, "a", Patch.merge({"roleRef": "odd"})), None),
    (build.patch(BINDINGS, "a", Patch.json([{"op": "remove", "path": "/subjects"}])), None),
    (build.create(PLACE, binding("Role")), None), (build.delete(BINDINGS, "a"), None)])
def test_a_binding_needs_the_verb_bind_on_its_role(request_: build.Request,
                                                   bind: tuple[str, str | None] | None) -> None:
    found = [right for right in rights_of(request_) if right.verb == "bind"]
    assert found == ([] if bind is None else [Right("rbac.authorization.k8s.io", bind[0], "bind", bind[1], "r")])


def test_roles_that_may_be_bound_are_named() -> None:
    about = {"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["clusterroles"]}
    assert roles([Right("rbac.authorization.k8s.io", "clusterroles", "bind", "n", name) for name in ("view", "edit")]) \
        == {"n": [{**about, "resourceNames": ["edit", "view"], "verbs": ["bind"]}]}


def test_roles_have_one_rule_for_each_resource_and_nothing_twice() -> None:
    found = roles([Right("", "pods", "watch"), Right("", "pods", "list"), Right("", "pods", "list", "n"),
                   Right("", "pods", "create", "n"), Right("apps", "deployments", "get", "n"),
                   Right("", "pods", "list")])
    assert found == {
        None: [{"apiGroups": [""], "resources": ["pods"], "verbs": ["list", "watch"]}],
        "n": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["create"]},
              {"apiGroups": ["apps"], "resources": ["deployments"], "verbs": ["get"]}]}


def test_what_is_named_has_a_rule_of_its_own_unless_all_is_granted() -> None:
    about = {"apiGroups": [""], "resources": ["secrets"]}
    assert roles([Right("", "secrets", "get", "n", "b"), Right("", "secrets", "get", "n", "a"),
                  Right("", "secrets", "patch", "n", "c"), Right("", "secrets", "create", "n")]) == {
        "n": [{**about, "verbs": ["create"]}, {**about, "resourceNames": ["a", "b"], "verbs": ["get"]},
              {**about, "resourceNames": ["c"], "verbs": ["patch"]}]}
    wider = Right("", "secrets", "get")
    for narrow in (Right("", "secrets", "get", "n", "a"), Right("", "secrets", "get", None, "a"),
                   Right("", "secrets", "get", "n")):
        assert roles([narrow, wider]) == {None: [{**about, "verbs": ["get"]}]}
    everywhere = Right("", "secrets", "get", None, "a")
    assert roles([Right("", "secrets", "get", "n", "a"), everywhere]) == {
        None: [{**about, "resourceNames": ["a"], "verbs": ["get"]}]}
