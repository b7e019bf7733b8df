"""`Access` as the core asks it: users, impersonation, refusals, escalation."""

from __future__ import annotations

from typing import Any

import pytest

from kubectl_runtime.apiserver.access import Access, User
from kubectl_runtime.apiserver.access.rbac import GROUP
from kubectl_runtime.apiserver.errors import StatusError
from kubectl_runtime.apiserver.storage import Cluster
from kubectl_runtime.apiserver.wire import HttpRequest, HttpResponse, parse
from kubectl_runtime.testing.clock import SimClock

TOKENS = {"ADMIN": User("admin", "1", ("system:masters",)), "ALICE": User("alice", "2", ("devs",))}


def no_loopback(request: HttpRequest, component: str) -> HttpResponse:
    raise AssertionError(f"{component}: {request}")


class Server:
    """An `Access` that guards a cluster in which nobody makes requests of his own."""

    def __init__(self, **options: Any) -> None:
        cluster = Cluster(SimClock(), (), no_loopback)
        self.storage, self.clock = cluster.storage, cluster.clock
        self.access = Access(**{"tokens": TOKENS, "mode": "RBAC", **options})
        self.access.attach(cluster)

    def grant(self, verbs: str, resources: str, *, group: str = "", user: str = "alice", **more: Any) -> None:
        rules = [{"verbs": verbs.split(), "apiGroups": [group], "resources": resources.split(), **more}]
        name = f"r{self.storage.rv}"
        self.storage.put(f"{GROUP}/clusterroles", {"metadata": {"name": name}, "rules": rules}, {})
        self.storage.put(f"{GROUP}/clusterrolebindings", {
            "metadata": {"name": name}, "roleRef": {"apiGroup": GROUP, "kind": "ClusterRole", "name": name},
            "subjects": [{"kind": "User", "name": user}]}, {})

    def admit(self, path: str, method: str = "GET", token: str = "ALICE", query: str = "", **headers: str) -> User:
        sent = {key.replace("_", "-"): value for key, value in headers.items()}
        if token:
            sent["authorization"] = f"Bearer {token}"
        pairs = [tuple(pair.split("=", 1)) for pair in query.split("&")] if query else []
        request = HttpRequest(method, path, pairs, sent)  # type: ignore[arg-type]
        return self.access.admit(request, parse(request))

    def refused(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        with pytest.raises(StatusError) as caught:
            self.admit(*args, **kwargs)
        return caught.value.to_status()


@pytest.mark.parametrize(("path", "message", "details"), [
    ("/apis/no.such.group/v1/things",
     'things.no.such.group is forbidden: User "alice" cannot list resource "things" in API group "no.such.group" at '
     "the cluster scope", {"group": "no.such.group", "kind": "things"}),
    ("/no/such/path", 'forbidden: User "alice" cannot get path "/no/such/path"', {}),
    ("/api/v1/namespaces/ns/configmaps/none",
     'configmaps "none" is forbidden: User "alice" cannot get resource "configmaps" in API group "" in the namespace '
     '"ns"',
     {"name": "none", "kind": "configmaps"}),
    ("/api/v1/namespaces/ns/pods/p/log",
     'pods "p" is forbidden: User "alice" cannot get resource "pods/log" in API group "" in the namespace "ns"',
     {"name": "p", "kind": "pods"}),
    ("/api/v1/namespaces/ns",
     'namespaces "ns" is forbidden: User "alice" cannot get resource "namespaces" in API group "" in the namespace '
     '"ns"',
     {"name": "ns", "kind": "namespaces"}),
])
def test_a_user_without_rights_gets_403_for_whatever_he_asks(path, message, details) -> None:
    assert Server().refused(path) == {
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "reason": "Forbidden", "code": 403,
        "message": message, "details": details}


@pytest.mark.parametrize("path", ["/api", "/apis", "/apis/apps/v1", "/openapi/v3", "/version", "/healthz"])
def test_discovery_is_open_to_authenticated_users_and_version_and_health_to_all(path) -> None:
    server = Server()
    assert server.admit(path).name == "alice"
    if path in ("/version", "/healthz"):
        assert server.admit(path, token="").name == "system:anonymous"
    else:
        assert server.refused(path, token="")["code"] == 403


def test_everybody_may_review_himself() -> None:
    server = Server()
    assert server.admit("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", "POST").name == "alice"
    assert server.refused("/apis/authorization.k8s.io/v1/subjectaccessreviews", "POST")["code"] == 403


@pytest.mark.parametrize("query", ["fieldSelector=metadata.name=a", "fieldSelector=metadata.name==a",
                                   "fieldSelector=x!=y,metadata.name=a&watch=1"])
def test_a_collection_selected_by_name_counts_as_that_object(query) -> None:
    server = Server()
    server.grant("list watch", "secrets", resourceNames=["a"])
    assert server.admit("/api/v1/namespaces/ns/secrets", query=query).name == "alice"
    assert server.refused("/api/v1/namespaces/ns/secrets")["code"] == 403


def test_with_tokens_and_always_allow_anonymous_requests_are_refused_as_the_real_server_does() -> None:
    assert Server(mode="AlwaysAllow").refused("/api", token="")["code"] == 401
    assert Server(mode="AlwaysAllow", anonymous=True).admit("/api", token="").name == "system:anonymous"
    assert Server(mode="AlwaysAllow", tokens=None).admit("/api", token="any").name == "admin"


def test_an_unknown_mode_is_refused() -> None:
    with pytest.raises(ValueError, match="ABAC"):
        Server(mode="ABAC")


def test_an_administrator_may_be_anybody() -> None:
    user = Server().admit("/version", token="ADMIN", impersonate_user="bob", impersonate_uid="7",
                          impersonate_group="x, y", **{"impersonate-extra-acme.com%2fproject": "p"})
    assert user == User("bob", "7", ("x", "y", "system:authenticated"), (("acme.com/project", ("p",)),))


def test_an_impersonated_user_has_his_own_rights() -> None:
    status = Server().refused("/api/v1/pods", token="ADMIN", impersonate_user="bob")
    assert 'User "bob" cannot list' in status["message"]


def test_service_accounts_nodes_and_anonymous_get_their_groups() -> None:
    server = Server()
    groups = {name: server.admit("/version", token="ADMIN", impersonate_user=name).groups for name in (
        "system:serviceaccount:ns:bot", "system:node:n1", "system:anonymous")}
    assert groups == {
        "system:serviceaccount:ns:bot": ("system:serviceaccounts", "system:serviceaccounts:ns", "system:authenticated"),
        "system:node:n1": ("system:nodes", "system:authenticated"),
        "system:anonymous": ("system:unauthenticated",)}


def test_who_may_not_impersonate_is_told_the_first_right_that_is_missing() -> None:
    assert Server().refused("/api/v1/namespaces/ns/pods", impersonate_user="bob")["message"] == (
        'pods is forbidden: User "alice" cannot impersonate-on:user-info:list resource "pods" in API group "" in the '
        'namespace "ns"')


def test_the_legacy_right_is_enough_but_has_to_cover_each_field() -> None:
    server = Server()
    server.grant("impersonate", "users", resourceNames=["bob"])
    assert server.admit("/version", impersonate_user="bob").name == "bob"
    assert server.refused("/version", impersonate_user="carol")["code"] == 403
    assert server.refused("/version", impersonate_user="bob", impersonate_group="system:masters")["code"] == 403
    server.grant("impersonate", "groups")
    user = server.admit("/version", impersonate_user="bob", impersonate_group="g")
    assert user.groups == ("g", "system:authenticated")


def test_the_constrained_right_holds_for_the_verb_it_names() -> None:
    server = Server()
    server.grant("impersonate:user-info", "users", group="authentication.k8s.io")
    server.grant("impersonate-on:user-info:list", "pods")
    server.grant("list get", "pods", user="bob")
    assert server.admit("/api/v1/pods", impersonate_user="bob").name == "bob"
    assert "impersonate-on:user-info:get" in server.refused(
        "/api/v1/namespaces/ns/pods/a", impersonate_user="bob")["message"]


def test_groups_without_a_user_are_a_400() -> None:
    status = Server().refused("/version", token="ADMIN", impersonate_group="g")
    assert status["code"] == 400
    assert status["message"] == ('requested &user.DefaultInfo{Name:"", UID:"", Groups:[]string{"g"}, '
                                 "Extra:map[string][]string(nil)} without impersonating a user name")


def test_creating_by_put_or_apply_needs_create() -> None:
    server = Server()
    server.grant("patch", "configmaps")
    request = HttpRequest("PATCH", "/api/v1/namespaces/ns/configmaps/a", [], {"authorization": "Bearer ALICE"})
    info = parse(request)
    user = server.access.admit(request, info)
    with pytest.raises(StatusError) as caught:
        server.access.require_create(user, info)
    assert caught.value.message == ('configmaps "a" is forbidden: User "alice" cannot create resource "configmaps" in '
                                    'API group "" in the namespace "ns"')


def write(server: Server, plural: str, new: dict[str, Any], old: dict[str, Any] | None = None,
          user: str = "ALICE") -> None:
    server.access.check_write(TOKENS[user], GROUP, plural, new, old)


def test_nobody_grants_what_he_does_not_have() -> None:
    server = Server()
    server.grant("get", "pods")
    new = {"metadata": {"name": "r", "namespace": "ns"},
           "rules": [{"verbs": ["get", "list", "watch"], "apiGroups": [""], "resources": ["pods"]}]}
    with pytest.raises(StatusError) as caught:
        write(server, "roles", new)
    assert caught.value.message == (
        'roles.rbac.authorization.k8s.io "r" is forbidden: user "alice" (groups=["devs"]) is attempting to grant RBAC '
        'permissions not currently held:\n{APIGroups:[""], Resources:["pods"], Verbs:["list" "watch"]}')
    assert caught.value.code == 403
    write(server, "roles", new, user="ADMIN")
    owned = {**new, "metadata": {**new["metadata"], "ownerReferences": [], "finalizers": ["a/b"]}}
    write(server, "roles", owned, old=new)
    with pytest.raises(StatusError, match="attempting to grant"):
        write(server, "roles", {**new, "metadata": {**new["metadata"], "labels": {"a": "b"}}}, old=new)
    server.grant("list watch", "pods")
    write(server, "roles", new)


def test_escalate_and_bind_replace_having_the_rights() -> None:
    server = Server()
    new = {"metadata": {"name": "r"}, "rules": [{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}]}
    bound = {"metadata": {"name": "b"}, "roleRef": {"apiGroup": GROUP, "kind": "ClusterRole", "name": "cluster-admin"}}
    for plural, obj in (("clusterroles", new), ("clusterrolebindings", bound)):
        with pytest.raises(StatusError, match="attempting to grant"):
            write(server, plural, obj)
    server.grant("escalate bind", "clusterroles", group=GROUP)
    write(server, "clusterroles", new)
    write(server, "clusterrolebindings", bound)


def test_binding_a_role_that_is_missing_is_a_404_for_who_may_not_bind_it() -> None:
    bound = {"metadata": {"name": "b"}, "roleRef": {"apiGroup": GROUP, "kind": "ClusterRole", "name": "gone"}}
    with pytest.raises(StatusError, match=r'clusterrolebindings.rbac.authorization.k8s.io "gone" not found'):
        write(Server(), "clusterrolebindings", bound)


def test_an_aggregated_role_needs_the_rights_of_an_administrator() -> None:
    new = {"metadata": {"name": "r"}, "aggregationRule": {"clusterRoleSelectors": [{}]}}
    with pytest.raises(StatusError, match="must have cluster-admin privileges"):
        write(Server(), "clusterroles", new)


def test_without_rbac_nothing_is_checked_or_installed() -> None:
    server = Server(mode="AlwaysAllow")
    assert server.storage.rv == 1
    write(server, "clusterroles", {"metadata": {"name": "r"}, "rules": [{"verbs": ["*"]}]})


def test_tokens_can_be_issued_for_service_accounts() -> None:
    server = Server()
    token = server.access.issue_token("system:serviceaccount:ns:bot")
    assert server.admit("/version", token=token).groups[0] == "system:serviceaccounts"
    with pytest.raises(ValueError, match="authorization_mode"):
        Server(tokens=None, mode="AlwaysAllow").access.issue_token("x")


def test_the_rules_of_a_user_are_those_of_his_bindings() -> None:
    server = Server()
    found, error = server.access.rules_for(User("alice", groups=("system:authenticated",)), "ns")
    assert error == ""
    assert {"verbs": ["create"], "apiGroups": ["authentication.k8s.io"], "resources": ["selfsubjectreviews"]} in found
