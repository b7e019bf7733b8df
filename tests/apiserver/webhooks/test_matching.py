"""Which webhooks are asked: rules, equivalent versions, selectors, conditions."""

from __future__ import annotations

from typing import Any

import pytest

from tests.apiserver.webhooks.hooked import CONFIGMAPS, Hooked, allow, deny, set_to

WIDGETS = "/apis/example.com/v1/namespaces/default/widgets"


@pytest.fixture
def api() -> Hooked:
    return Hooked()


def rule(resources: str = "configmaps", groups: str = "", versions: str = "v1", operations: str = "*",
         **scope: str) -> dict[str, Any]:
    return {"apiGroups": [groups], "apiVersions": [versions], "resources": [resources],
            "operations": [operations], **scope}


@pytest.mark.parametrize(("rules", "asked"), [
    ([], False),
    ([rule()], True),
    ([rule("*")], True),
    ([rule("*/*")], True),
    ([rule("configmaps/*")], True),
    ([rule("configmaps/status")], False),
    ([rule("pods"), rule()], True),
    ([rule(groups="*")], True),
    ([rule(groups="apps")], False),
    ([rule(versions="*")], True),
    ([rule(versions="v2")], False),
    ([rule(operations="CREATE")], True),
    ([rule(operations="UPDATE")], False),
    ([rule(scope="Namespaced")], True),
    ([rule(scope="Cluster")], False),
])
def test_rules(api: Hooked, rules: list[dict[str, Any]], *, asked: bool) -> None:
    api.hook("v", rules=rules)
    api.create()
    assert bool(api.reviews) is asked


def test_a_namespace_is_of_the_cluster_but_lies_in_itself(api: Hooked) -> None:
    api.hook("v", rules=[rule("namespaces", scope="Namespaced")])
    api.hook("w", rules=[rule("namespaces", scope="Cluster")], namespaceSelector={"matchLabels": {"a": "b"}})

    def make(name: str, **labels: str) -> None:
        assert api("POST", "/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {
            "name": name, "labels": labels}}).status == 201

    make("one")
    make("two", a="b")
    assert [(name, asked["name"], asked["namespace"]) for name, asked in api.reviews] == [("w", "two", "two")]


@pytest.mark.parametrize(("selector", "asked"), [
    ({"matchLabels": {"kubernetes.io/metadata.name": "default"}}, True),
    ({"matchLabels": {"kubernetes.io/metadata.name": "other"}}, False),
    ({"matchExpressions": [{"key": "off", "operator": "DoesNotExist"}]}, True),
    ({"matchExpressions": [{"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["default"]}]}, False),
])
def test_selectors_of_namespaces(api: Hooked, selector: dict[str, Any], *, asked: bool) -> None:
    api.hook("v", namespaceSelector=selector)
    api.create()
    assert bool(api.reviews) is asked


def test_what_lies_in_no_namespace_is_not_selected_by_one(api: Hooked) -> None:
    api.hook("v", rules=[rule("nodes")], namespaceSelector={"matchLabels": {"a": "b"}})
    api("POST", "/api/v1/nodes", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}})
    assert len(api.reviews) == 1


def test_selectors_of_objects_match_the_new_one_or_the_old_one(api: Hooked) -> None:
    api.hook("v", objectSelector={"matchLabels": {"a": "b"}})
    api.create("one")
    assert api.reviews == []
    api.create("two", labels={"a": "b"})
    path = "/api/v1/namespaces/default/configmaps/two"
    api.merge(path, {"metadata": {"labels": {"a": None}}})
    api.merge(path, {"data": {"k": "w"}})
    assert [asked["operation"] for asked in api.asked()] == ["CREATE", "UPDATE"]


# --- versions ---------------------------------------------------------------------------------------------------------


def widgets(api: Hooked, **subresources: Any) -> None:
    """A kind that is served as v1 and v2, stored as v1."""
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    versions = [{"name": name, "served": True, "storage": name == "v1", "schema": schema, "subresources": subresources}
                for name in ("v1", "v2")]
    assert api("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", {
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"},
        "spec": {"group": "example.com", "scope": "Namespaced", "versions": versions,
                 "names": {"kind": "Widget", "plural": "widgets"}}}).status == 201


def widget(api: Hooked, version: str, name: str = "a") -> Any:
    return api("POST", WIDGETS.replace("v1", version), {
        "apiVersion": f"example.com/{version}", "kind": "Widget", "metadata": {"name": name}, "spec": {"size": 1}})


def test_an_equivalent_version_is_asked_about_as_the_rule_names_it(api: Hooked) -> None:
    widgets(api)
    api.hook("v", rules=[rule("widgets", "example.com", "v1")])
    assert widget(api, "v2").status == 201
    (asked,) = api.asked()
    assert (asked["kind"]["version"], asked["resource"]["version"]) == ("v1", "v1")
    assert (asked["requestKind"]["version"], asked["requestResource"]["version"]) == ("v2", "v2")
    assert (asked["object"]["apiVersion"], asked["object"]["spec"]) == ("example.com/v1", {"size": 1})


def test_exact_rules_are_for_their_versions_only(api: Hooked) -> None:
    widgets(api)
    api.hook("v", rules=[rule("widgets", "example.com", "v1")], matchPolicy="Exact")
    widget(api, "v2", "a")
    assert api.reviews == []
    widget(api, "v1", "b")
    assert len(api.reviews) == 1


def test_a_patch_of_an_equivalent_version_changes_the_requests(api: Hooked) -> None:
    widgets(api)
    api.hook("m", lambda _: set_to("/spec/size", 2), rules=[rule("widgets", "example.com", "v1")], mutating=True)
    made = widget(api, "v2").body
    assert (made["apiVersion"], made["spec"]) == ("example.com/v2", {"size": 2})


def test_built_in_kinds_have_equivalents_too(api: Hooked) -> None:
    api.hook("v", rules=[rule("horizontalpodautoscalers", "autoscaling", "v1")])
    assert api("POST", "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers", {
        "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "a"},
        "spec": {"maxReplicas": 2, "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "a"},
                 "metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": {
                     "type": "Utilization", "averageUtilization": 50}}}]}}).status == 201
    (asked,) = api.asked()
    assert asked["object"]["apiVersion"] == "autoscaling/v1"
    assert asked["object"]["spec"]["targetCPUUtilizationPercentage"] == 50


# --- conditions -------------------------------------------------------------------------------------------------------


def condition(*expressions: str) -> list[dict[str, str]]:
    return [{"name": f"c{number}", "expression": expression} for number, expression in enumerate(expressions)]


@pytest.mark.parametrize(("expressions", "asked"), [
    (["true"], True),
    (["object.data.k == 'v'"], True),
    (["object.data.k == 'v'", "object.metadata.name != 'a'"], False),
    (["oldObject == null && request.operation == 'CREATE'"], True),
    (["request.userInfo.username.startsWith('system:')"], False),
    (["'system:masters' in request.userInfo.groups"], True),
    (["request.namespace == 'default' && request.name == 'a' && !request.dryRun"], True),
    (["request.resource.resource == 'configmaps' && request.kind.kind == 'ConfigMap'"], True),
    (["has(object.metadata.labels)"], False),
    (["object.none.none == 1", "false"], False),
])
def test_conditions_decide(api: Hooked, expressions: list[str], *, asked: bool) -> None:
    assert api.hook("v", matchConditions=condition(*expressions)).status == 201
    assert api.create().status == 201
    assert bool(api.reviews) is asked


def test_a_condition_that_cannot_be_evaluated_refuses_under_the_policy_fail(api: Hooked) -> None:
    api.hook("v", matchConditions=condition("object.none == 1"))
    refused = api.create()
    assert (refused.status, refused.body["reason"], api.reviews) == (403, "Forbidden", [])
    assert refused.body["message"] == ("configmaps \"a\" is forbidden: expression 'object.none == 1' resulted in "
                                       "error: no such key: none")
    several = Hooked()
    several.hook("v", matchConditions=condition("object.none == 1", "object.nil == 1"))
    assert several.create().body["message"].endswith(
        "is forbidden: [expression 'object.none == 1' resulted in error: no such key: none, expression "
        "'object.nil == 1' resulted in error: no such key: nil]")


def test_a_condition_that_cannot_be_evaluated_asks_nobody_under_the_policy_ignore(api: Hooked) -> None:
    api.hook("v", lambda _: deny("no"), matchConditions=condition("object.none == 1"), failurePolicy="Ignore")
    assert (api.create().status, api.reviews) == (201, [])


def test_a_condition_sees_what_a_webhook_before_has_made(api: Hooked) -> None:
    api.hook("a", lambda _: set_to("/metadata/labels", {"x": "y"}), mutating=True)
    api.hook("b", allow, mutating=True, matchConditions=condition("object.metadata.?labels.x == optional.of('y')"))
    api.create()
    assert [name for name, _ in api.reviews] == ["a", "b"]


def test_a_condition_is_about_the_version_that_is_asked_for(api: Hooked) -> None:
    widgets(api)
    api.hook("v", rules=[rule("widgets", "example.com", "v1")], matchConditions=condition(
        "object.apiVersion == 'example.com/v1' && request.requestKind.version == 'v2'"))
    widget(api, "v2")
    assert len(api.reviews) == 1


@pytest.mark.parametrize(("expression", "why"), [
    ("object.", "compilation failed: ERROR: <input>:1:8: Syntax error: "),
    ("nobody == 1", "compilation failed: ERROR: <input>:1:1: undeclared reference to 'nobody'"),
    ("request.nothing == 1", "compilation failed: ERROR: <input>:1:8: undefined field 'nothing'"),
    ("1 + 1", "must evaluate to bool but got int"),
    ("authorizer.path('/x').check('get')", "must evaluate to bool but got kubernetes.authorization.Decision"),
    ("authorizer.group('a').check('b')", "compilation failed: ERROR: <input>:1:28: found no matching overload for "
     "'check' applied to 'kubernetes.authorization.GroupCheck.(string)'"),
])
def test_a_condition_that_does_not_compile_is_refused_with_its_configuration(api: Hooked, expression: str, why: str
                                                                             ) -> None:
    refused = api.hook("v", matchConditions=condition(expression))
    assert refused.status == 422
    ((field, told),) = refused.causes()
    assert field == "webhooks[0].matchConditions[0].expression"
    assert f": {why}" in told


def test_the_rules_of_the_moment_count(api: Hooked) -> None:
    api.hook("v", lambda _: deny("no"))
    assert api.create().status == 400
    configurations = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/v"
    api("PATCH", configurations, [{"op": "replace", "path": "/webhooks/0/rules/0",
                                   "value": {**CONFIGMAPS, "operations": ["DELETE"]}}],
        content_type="application/json-patch+json")
    assert api.create().status == 201
    assert api("DELETE", "/api/v1/namespaces/default/configmaps/a").status == 400
    api("DELETE", configurations)
    assert api("DELETE", "/api/v1/namespaces/default/configmaps/a").status == 200
