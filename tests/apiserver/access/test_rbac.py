"""Which rules a user has, and what they allow."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubectl_runtime.apiserver.access import User, access
from kubectl_runtime.apiserver.access import rbac as rules
from kubectl_runtime.apiserver.access.rbac import GROUP, Attributes, Rbac, StoredRoles
from kubectl_runtime.apiserver.storage import Storage

ALICE = User("alice", groups=("devs", "system:authenticated"))
ACCOUNT = User("system:serviceaccount:ns:bot")


class Roles:
    """A `RoleSource` of plain lists."""

    def __init__(self, **objects: list[dict[str, Any]]) -> None:
        self.objects = objects

    def scan(self, plural: str, namespace: str) -> list[dict[str, Any]]:
        return [obj for obj in self.objects.get(plural, []) if obj["metadata"].get("namespace", "") == namespace]

    def get(self, plural: str, namespace: str, name: str) -> dict[str, Any] | None:
        return next((obj for obj in self.scan(plural, namespace) if obj["metadata"]["name"] == name), None)


def rule(verbs: str, resources: str = "", groups: str = "core", **more: Any) -> dict[str, Any]:
    entry: dict[str, Any] = {"verbs": verbs.split(), **more}
    if resources:
        entry.update(apiGroups=["" if g == "core" else g for g in groups.split()], resources=resources.split())
    return entry


def role(name: str, *contents: dict[str, Any], namespace: str = "", **more: Any) -> dict[str, Any]:
    metadata = {"name": name, "labels": more.pop("labels", {})} | ({"namespace": namespace} if namespace else {})
    return {"metadata": metadata, "rules": list(contents), **more}


def binding(name: str, role_name: str, *subjects: dict[str, str], namespace: str = "",
            kind: str = "ClusterRole") -> dict[str, Any]:
    metadata = {"name": name} | ({"namespace": namespace} if namespace else {})
    return {"metadata": metadata, "roleRef": {"apiGroup": GROUP, "kind": kind, "name": role_name},
            "subjects": list(subjects)}


def get(resource: str = "pods", *, user: User = ALICE, **more: Any) -> Attributes:
    return Attributes(user, more.pop("verb", "get"), resource=resource, **more)


@pytest.mark.parametrize(("entry", "resource", "subresource", "expected"), [
    ("pods", "pods", "", True), ("pods", "pods", "log", False), ("pods/log", "pods", "log", True),
    ("pods/log", "pods", "", False), ("*", "pods", "log", True), ("*/scale", "deployments", "scale", True),
    ("*/scale", "deployments", "status", False), ("*/scale", "scale", "", False), ("pods/*", "pods", "log", False),
])
def test_resources_match_with_their_subresource(entry, resource, subresource, expected) -> None:
    assert rules.allows(rule("get", entry), get(resource, subresource=subresource)) is expected


@pytest.mark.parametrize(("pattern", "path", "expected"), [
    ("*", "/x", True), ("/healthz", "/healthz", True), ("/healthz", "/healthz/etcd", False),
    ("/api/*", "/api/v1", True), ("/api/*", "/api", False), ("/api*", "/apis", True),
])
def test_non_resource_urls_end_in_a_star_at_most(pattern, path, expected) -> None:
    attributes = Attributes(ALICE, "get", path=path, is_resource=False)
    assert rules.allows({"verbs": ["get"], "nonResourceURLs": [pattern]}, attributes) is expected


def test_verbs_groups_and_names_all_have_to_match() -> None:
    granted = rule("get watch", "pods", "core apps", resourceNames=["a"])
    assert rules.allows(granted, get(name="a"))
    assert rules.allows(granted, get(name="a", group="apps", verb="watch"))
    assert not rules.allows(granted, get(name="b"))
    assert not rules.allows(granted, get())  # a list without a name is not covered by resourceNames
    assert not rules.allows(granted, get(name="a", group="batch"))
    assert not rules.allows(granted, get(name="a", verb="list"))
    assert not rules.allows(granted, Attributes(ALICE, "get", path="/api", is_resource=False))


def test_system_masters_may_do_everything() -> None:
    assert Rbac(Roles()).authorize(get(user=User("root", groups=("system:masters",)))).allowed


def test_a_cluster_role_binding_counts_everywhere_and_gives_the_reason() -> None:
    rbac = Rbac(Roles(clusterroles=[role("r", rule("get", "pods"))],
                      clusterrolebindings=[binding("b", "r", {"kind": "Group", "name": "devs"})]))
    for namespace in ("", "ns"):
        decision = rbac.authorize(get(namespace=namespace))
        assert decision.allowed
        assert decision.reason == 'RBAC: allowed by ClusterRoleBinding "b" of ClusterRole "r" to Group "devs"'
    assert not rbac.authorize(get("secrets")).allowed


def test_a_role_binding_counts_in_its_namespace_only() -> None:
    rbac = Rbac(Roles(clusterroles=[role("r", rule("get", "pods"))],
                      rolebindings=[binding("b", "r", {"kind": "User", "name": "alice"}, namespace="ns")]))
    assert rbac.authorize(get(namespace="ns")).reason == (
        'RBAC: allowed by RoleBinding "b/ns" of ClusterRole "r" to User "alice"')
    assert not rbac.authorize(get(namespace="other")).allowed
    assert not rbac.authorize(get()).allowed


def test_a_service_account_of_a_role_binding_lives_in_its_namespace_unless_told_otherwise() -> None:
    source = Roles(roles=[role("r", rule("get", "pods"), namespace="ns")], rolebindings=[
        binding("b", "r", {"kind": "ServiceAccount", "name": "bot"}, namespace="ns", kind="Role")])
    decision = Rbac(source).authorize(get(namespace="ns", user=ACCOUNT))
    assert decision.reason == 'RBAC: allowed by RoleBinding "b/ns" of Role "r" to ServiceAccount "bot/ns"'
    source.objects["rolebindings"][0]["subjects"][0]["namespace"] = "other"
    assert not Rbac(source).authorize(get(namespace="ns", user=ACCOUNT)).allowed


def test_a_binding_to_a_missing_role_is_told_in_the_refusal() -> None:
    rbac = Rbac(Roles(clusterrolebindings=[binding("b", "gone", {"kind": "User", "name": "alice"})]))
    decision = rbac.authorize(get())
    assert not decision.allowed
    assert decision.reason == 'RBAC: clusterrole.rbac.authorization.k8s.io "gone" not found'


def test_an_aggregated_role_has_the_rules_of_what_it_selects_at_any_depth() -> None:
    def aggregated(name: str, to: str, **more: Any) -> dict[str, Any]:
        return role(name, aggregationRule={"clusterRoleSelectors": [{"matchLabels": {"to": to}}]}, **more)

    rbac = Rbac(Roles(
        clusterroles=[aggregated("top", "top"), aggregated("middle", "middle", labels={"to": "top"}),
                      role("leaf", rule("get", "pods"), labels={"to": "middle"}),
                      aggregated("loop", "middle", labels={"to": "middle"})],
        clusterrolebindings=[binding("b", "top", {"kind": "User", "name": "alice"})]))
    assert rbac.authorize(get()).allowed
    assert not rbac.authorize(get("secrets")).allowed


@pytest.mark.parametrize(("expression", "expected"), [
    ({"key": "a", "operator": "In", "values": ["1"]}, True), ({"key": "a", "operator": "In", "values": ["2"]}, False),
    ({"key": "a", "operator": "NotIn", "values": ["2"]}, True),
    ({"key": "b", "operator": "NotIn", "values": ["2"]}, True),
    ({"key": "a", "operator": "Exists"}, True), ({"key": "b", "operator": "Exists"}, False),
    ({"key": "b", "operator": "DoesNotExist"}, True),
])
def test_aggregation_selects_by_expressions_too(expression, expected) -> None:
    rbac = Rbac(Roles(
        clusterroles=[role("top", aggregationRule={"clusterRoleSelectors": [{"matchExpressions": [expression]}]}),
                      role("leaf", rule("get", "pods"), labels={"a": "1"})],
        clusterrolebindings=[binding("b", "top", {"kind": "User", "name": "alice"})]))
    assert rbac.authorize(get()).allowed is expected


def test_stored_roles_are_read_as_they_are_now() -> None:
    storage = Storage()
    rbac = Rbac(StoredRoles(lambda: storage))
    assert not rbac.authorize(get()).allowed
    storage.put(f"{GROUP}/clusterroles", role("r", rule("get", "pods")), {})
    storage.put(f"{GROUP}/clusterrolebindings", binding("b", "r", {"kind": "User", "name": "alice"}), {})
    assert rbac.authorize(get()).allowed
    storage.put(f"{GROUP}/clusterroles", role("r", rule("list", "pods")), {})
    assert not rbac.authorize(get()).allowed


@pytest.mark.parametrize(("cluster_role", "allowed", "refused"), [
    ("cluster-admin", [get(), get("nodes", verb="delete")], []),
    ("admin", [get("roles", group=GROUP, verb="create"), get(verb="create"), get()], [get("nodes")]),
    ("edit", [get(verb="create"), get("secrets"), get()], [get("roles", group=GROUP, verb="create")]),
    ("view", [get(), get("pods", subresource="log")], [get("secrets"), get(verb="create")]),
])
def test_the_default_roles_mean_what_people_rely_on(cluster_role, allowed, refused) -> None:
    rbac = Rbac(Roles(clusterroles=access.cluster_roles(),
                      clusterrolebindings=[binding("b", cluster_role, {"kind": "User", "name": "alice"})]))
    assert all(rbac.authorize(attributes).allowed for attributes in allowed)
    assert not any(rbac.authorize(attributes).allowed for attributes in refused)


_NAMES = st.sampled_from(["*", "pods", "secrets", "pods/log"])
_RULES = st.builds(
    lambda verbs, resources, names: {"verbs": verbs, "apiGroups": [""], "resources": resources, "resourceNames": names},
    st.lists(st.sampled_from(["*", "get", "list"]), min_size=1, max_size=2),
    st.lists(_NAMES, min_size=1, max_size=2), st.lists(st.sampled_from(["a", "b"]), max_size=1))


@given(owned=st.lists(_RULES, max_size=3), wanted=_RULES, verb=st.sampled_from(["get", "list", "delete"]),
       resource=st.sampled_from(["pods", "secrets"]), name=st.sampled_from(["", "a", "b"]))
def test_covered_rules_never_allow_what_the_owner_may_not_do(owned, wanted, verb, resource, name) -> None:
    attributes = get(resource, verb=verb, name=name)
    if not rules.missing(owned, [wanted]) and rules.allows(wanted, attributes):
        assert any(rules.allows(mine, attributes) for mine in owned)
