"""Refusals in the words of a real server: sizes, strategic merges that do not fit, priorities; aggregated roles."""
from __future__ import annotations

from typing import Any

import pytest

from tests.apiserver.webhooks.hooked import Hooked

MAPS = "/api/v1/namespaces/default/configmaps"
TEMPLATE = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "main", "image": "x"}]}}
STRATEGIC = {"content_type": "application/strategic-merge-patch+json"}


@pytest.fixture
def api() -> Hooked:
    return Hooked()


def deployment(note: str = "") -> Any:
    return {"metadata": {"name": "d", "labels": {"a": "b"}}, "spec": {
        "selector": {"matchLabels": {"a": "b"}}, "template": {**TEMPLATE, "spec": {"containers": [
            {"name": "main", "image": "x", "env": [{"name": "A", "value": note}]}]}}}}


def definition(text: str) -> Any:
    return {"metadata": {"name": "blobs.example.com"}, "spec": {
        "group": "example.com", "scope": "Namespaced", "names": {"plural": "blobs", "kind": "Blob"}, "versions": [
            {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": {
                "type": "object", "description": text}}}]}}


@pytest.mark.parametrize(("path", "made"), [
    ("/apis/apps/v1/namespaces/default/deployments", deployment),
    ("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition)])
def test_what_is_larger_than_etcd_takes_is_refused(api: Hooked, path: str, made: Any) -> None:
    refused = api("POST", path, made("x" * 1_750_000))
    assert (refused.status, refused.body["message"]) == (500, "etcdserver: request is too large")
    assert api("POST", path, made("x" * 1_000_000)).status == 201


@pytest.mark.parametrize(("change", "why"), [
    ({"data": {"x": 5}}, "cannot convert int64 to string"), ({"data": "x"}, "cannot restore map from string"),
    ({"data": {"x": True}}, "unrecognized type: string"), ({"data": ["x"]}, "cannot restore map from slice"),
    ({"metadata": {"finalizers": "x"}}, "cannot restore slice from string"), ({"immutable": 1},
                                                                            "unrecognized type: bool")])
def test_a_strategic_merge_that_does_not_fit(api: Hooked, change: Any, why: str) -> None:
    api.create("a")
    refused = api("PATCH", f"{MAPS}/a", change, **STRATEGIC)
    assert refused.status == 422
    assert refused.body["details"]["causes"][0]["message"].endswith(f": {why}")


@pytest.mark.parametrize(("replicas", "why"), [
    ("3", "unrecognized type: int32"), (1.5, "cannot convert float64 to int32"), ([], "unrecognized type: int32")])
def test_a_number_that_does_not_fit(api: Hooked, replicas: Any, why: str) -> None:
    api("POST", "/apis/apps/v1/namespaces/default/deployments", deployment())
    path = "/apis/apps/v1/namespaces/default/deployments/d"
    refused = api("PATCH", path, {"spec": {"replicas": replicas}}, **STRATEGIC)
    assert refused.status == 422
    assert refused.body["message"].endswith(why)
    merged = api.merge(path, {"spec": {"replicas": replicas}})
    assert "json: cannot unmarshal" in merged.body["message"]  # other patches are decoded from text


def test_priorities_of_the_system_stay_and_there_is_one_default(api: Hooked) -> None:
    path = "/apis/scheduling.k8s.io/v1/priorityclasses"
    for name in ("system-node-critical", "system-cluster-critical"):
        refused = api("DELETE", f"{path}/{name}")
        assert (refused.status, refused.body["message"]) == (403, (
            f'priorityclasses.scheduling.k8s.io "{name}" is forbidden: this is a system priority class and cannot be '
            "deleted"))

    def make(name: str, default: bool) -> int:
        return api("POST", path, {"metadata": {"name": name}, "value": 1, "globalDefault": default}).status

    assert [make("a", True), make("b", True), make("c", False)] == [201, 403, 201]
    changed = api.merge(f"{path}/c", {"globalDefault": True})
    assert changed.status == 403
    assert "PriorityClass a is already marked as default. Only one default can exist" in changed.body["message"]
    assert api.merge(f"{path}/a", {"metadata": {"labels": {"x": "y"}}}).status == 200
    assert api("DELETE", f"{path}/a").status == 200
    assert api.merge(f"{path}/c", {"globalDefault": True}).status == 200


def test_aggregated_roles_have_the_rules_of_those_that_they_select() -> None:
    api = Hooked(controllers=["*"], authorization_mode="AlwaysAllow")
    path = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
    api("POST", path, {"metadata": {"name": "all"}, "rules": [], "aggregationRule": {
        "clusterRoleSelectors": [{"matchLabels": {"part": "of-all"}}]}})
    rule = {"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}
    api("POST", path, {"metadata": {"name": "part", "labels": {"part": "of-all"}}, "rules": [rule]})
    assert api("GET", f"{path}/all").body["rules"] == [rule]
    api.merge(f"{path}/part", {"metadata": {"labels": {"part": None}}})
    assert not api("GET", f"{path}/all").body.get("rules")
