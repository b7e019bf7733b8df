"""Users and rights as clients meet them: a token file, RBAC from manifests, reviews, impersonation."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests

from kubectl_runtime.apiserver.wire import HttpRequest, HttpResponse
from kubectl_runtime.testing import ApiServer
from kubectl_runtime.testing.clock import SimClock

NS = "/api/v1/namespaces/team-a/configmaps"
AUTHORIZATION = "/apis/authorization.k8s.io/v1"

MANIFESTS = """
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: bot, namespace: team-a}
rules:
- {apiGroups: [""], resources: [configmaps], verbs: [get, list, patch]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: bot, namespace: team-a}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: bot}
subjects:
- {kind: ServiceAccount, name: bot, namespace: team-a}
- {kind: Group, name: devs, apiGroup: rbac.authorization.k8s.io}
"""


class Caller:
    """Makes requests as somebody."""

    def __init__(self, server: ApiServer, token: str = "", **headers: str) -> None:
        self.url = server.url
        self.headers = {"Authorization": f"Bearer {token}"} if token else {}
        self.headers |= {key.replace("_", "-"): value for key, value in headers.items()}

    def __call__(self, method: str, path: str, body=None, **headers: str) -> requests.Response:
        return requests.request(method, self.url + path, json=body, headers={**self.headers, **headers}, timeout=20)


@pytest.fixture(scope="module")
def server(tmp_path_factory) -> Iterator[ApiServer]:
    path = Path(tmp_path_factory.mktemp("tokens"), "tokens.csv")
    path.write_text('ADMIN,admin,1,system:masters\nALICE,alice,2,"devs,ops"\n', encoding="utf-8")
    with ApiServer(controllers=(), tokens=path, authorization_mode="RBAC") as running:
        running.load(MANIFESTS)
        yield running


@pytest.fixture
def admin(server: ApiServer) -> Caller:
    return Caller(server, "ADMIN")


@pytest.fixture
def alice(server: ApiServer) -> Caller:
    return Caller(server, "ALICE")


def test_a_wrong_token_is_a_401_and_none_is_anonymous(server) -> None:
    wrong = Caller(server, "WRONG")("GET", "/version")
    assert (wrong.status_code, wrong.json()["reason"]) == (401, "Unauthorized")
    nobody = Caller(server)("GET", NS)
    assert nobody.status_code == 403
    assert 'User "system:anonymous" cannot list' in nobody.json()["message"]


def test_a_role_allows_what_it_says_in_its_namespace_and_nothing_else(alice) -> None:
    assert alice("GET", NS).status_code == 200
    assert alice("GET", NS.replace("team-a", "default")).status_code == 403
    assert alice("GET", NS + "?watch=1").status_code == 403
    assert alice("GET", "/apis/apps/v1/nothing-like-this").status_code == 403
    assert alice("GET", NS + "/none").status_code == 404


def test_rights_change_with_the_next_request(admin, alice) -> None:
    role = "/apis/rbac.authorization.k8s.io/v1/namespaces/team-a/roles/bot"
    before = admin("GET", role).json()
    more = {**before, "rules": [*before["rules"], {"apiGroups": [""], "resources": ["secrets"], "verbs": ["list"]}]}
    assert alice("GET", "/api/v1/namespaces/team-a/secrets").status_code == 403
    changed = admin("PUT", role, more)
    assert changed.status_code == 200
    assert alice("GET", "/api/v1/namespaces/team-a/secrets").status_code == 200
    admin("PUT", role, {**before, "metadata": changed.json()["metadata"]})
    assert alice("GET", "/api/v1/namespaces/team-a/secrets").status_code == 403


def test_an_apply_that_creates_needs_create(alice) -> None:
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}
    refused = alice("PATCH", f"{NS}/a?fieldManager=x", body, **{"Content-Type": "application/apply-patch+yaml"})
    assert refused.status_code == 403
    assert "cannot create resource" in refused.json()["message"]


def test_a_service_account_has_a_token_of_its_own(server) -> None:
    token = server.credentials("system:serviceaccount:team-a:bot").token
    assert Caller(server, token)("GET", NS).status_code == 200
    assert Caller(server, token)("POST", NS, {"metadata": {"name": "x"}}).status_code == 403


def test_a_service_account_gets_a_token_that_expires_on_the_clock() -> None:
    clock = SimClock()
    server = ApiServer(controllers=(), authorization_mode="RBAC", clock=clock)
    server.load(MANIFESTS + "---\n{apiVersion: v1, kind: ServiceAccount, metadata: {name: bot, namespace: team-a}}\n")
    admin = {"authorization": f"Bearer {server.credentials().token}", "content-type": "application/json"}

    def ask(name: str, spec: str) -> HttpResponse:
        path = f"/api/v1/namespaces/team-a/serviceaccounts/{name}/token"
        return server.handle(HttpRequest("POST", path, [], admin, b'{"spec":%s}' % spec.encode()))

    def listed(token: str) -> int:
        return server.handle(HttpRequest("GET", NS, [], {"authorization": f"Bearer {token}"})).status

    answer = ask("bot", '{"expirationSeconds":600}')
    assert answer.status == 201
    request = json.loads(answer.body)
    assert request["status"]["expirationTimestamp"] == "2026-01-01T00:10:00Z"
    assert listed(request["status"]["token"]) == 200
    clock.advance(600)
    assert listed(request["status"]["token"]) == 401
    assert ask("gone", "{}").status == 404
    refused = ask("bot", '{"expirationSeconds":10}')
    assert refused.status == 422
    assert "may not specify a duration less than 10 minutes" in json.loads(refused.body)["message"]
    odd = ("[]", '{"expirationSeconds":true}', '{"expirationSeconds":"9"}', "1")
    assert [ask("bot", spec).status for spec in odd] == [201, 400, 400, 400]


def test_an_administrator_can_look_through_another_ones_eyes(server) -> None:
    bot = Caller(server, "ADMIN", Impersonate_User="system:serviceaccount:team-a:bot")
    assert bot("GET", NS).status_code == 200
    review = bot("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", {}).json()
    assert review["status"]["userInfo"]["groups"] == [
        "system:serviceaccounts", "system:serviceaccounts:team-a", "system:authenticated"]
    assert Caller(server, "ALICE", Impersonate_User="admin")("GET", NS).status_code == 403


@pytest.mark.parametrize(("verb", "allowed", "reason"), [
    ("get", True, 'RBAC: allowed by RoleBinding "bot/team-a" of Role "bot" to Group "devs"'), ("delete", False, None)])
def test_a_review_tells_what_somebody_may_do_and_why(admin, verb, allowed, reason) -> None:
    spec = {"user": "alice", "groups": ["devs"],
            "resourceAttributes": {"namespace": "team-a", "verb": verb, "resource": "configmaps"}}
    answer = admin("POST", f"{AUTHORIZATION}/subjectaccessreviews", {"spec": spec})
    assert answer.status_code == 201
    assert answer.json()["status"] == {"allowed": allowed} | ({"reason": reason} if reason else {})


def test_a_review_of_a_path_and_one_within_a_namespace(admin) -> None:
    path = {"user": "zoe", "nonResourceAttributes": {"path": "/healthz", "verb": "get"}}
    assert admin("POST", f"{AUTHORIZATION}/subjectaccessreviews", {"spec": path}).json()["status"] == {"allowed": False}
    local = f"{AUTHORIZATION}/namespaces/team-a/localsubjectaccessreviews"
    spec = {"user": "x", "groups": ["devs"], "resourceAttributes": {
        "namespace": "team-a", "verb": "list", "resource": "configmaps"}}
    assert admin("POST", local, {"spec": spec}).json()["status"]["allowed"] is True
    spec["resourceAttributes"]["namespace"] = "other"
    refused = admin("POST", local, {"spec": spec})
    assert refused.status_code == 422
    assert "must match metadata.namespace" in refused.json()["message"]


def test_the_rules_review_lists_what_one_may_do(alice) -> None:
    answer = alice("POST", f"{AUTHORIZATION}/selfsubjectrulesreviews", {"spec": {"namespace": "team-a"}})
    assert answer.status_code == 201
    status = answer.json()["status"]
    granted = {"verbs": ["get", "list", "patch"], "apiGroups": [""], "resources": ["configmaps"]}
    assert granted in status["resourceRules"]
    assert any("/healthz" in rule["nonResourceURLs"] for rule in status["nonResourceRules"])
    assert status["incomplete"] is False
    refused = alice("POST", f"{AUTHORIZATION}/selfsubjectrulesreviews", {"spec": {}})
    assert (refused.status_code, refused.json()["message"]) == (400, "no namespace on request")


def test_a_token_review_tells_whose_token_it_is(admin) -> None:
    def review(token: str, **spec: list[str]) -> dict:
        return admin("POST", "/apis/authentication.k8s.io/v1/tokenreviews",
                     {"spec": {"token": token, **spec}}).json()["status"]

    good = {"authenticated": True, "audiences": ["https://kubernetes.default.svc"], "user": {
        "username": "alice", "uid": "2", "groups": ["devs", "ops", "system:authenticated"]}}
    assert review("ALICE") == good
    assert review("ALICE", audiences=["other", "https://kubernetes.default.svc"]) == good
    for refused in (review("WRONG"), review("ALICE", audiences=["other"])):
        assert refused == {"user": {}, "error": "invalid bearer token"}


def test_nobody_grants_what_he_lacks_over_http(server, admin) -> None:
    token = server.credentials("gardener").token
    rules = [{"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["roles"], "verbs": ["create"]}]
    metadata = {"name": "gardener"}
    admin("POST", "/apis/rbac.authorization.k8s.io/v1/clusterroles", {"metadata": metadata, "rules": rules})
    admin("POST", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", {
        "metadata": metadata, "subjects": [{"kind": "User", "name": "gardener"}],
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "gardener"}})
    wanted = {"metadata": {"name": "g"}, "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]}
    refused = Caller(server, token)("POST", "/apis/rbac.authorization.k8s.io/v1/namespaces/team-a/roles", wanted)
    assert refused.status_code == 403
    assert "is attempting to grant RBAC permissions not currently held" in refused.json()["message"]
