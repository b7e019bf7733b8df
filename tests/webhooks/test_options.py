"""The class keywords, and the configurations that follow from them."""
from __future__ import annotations

import base64
from datetime import timedelta
from typing import Any

import pytest

from kubectl_runtime import Conversion, CustomResource, DynamicObject, RequestError
from kubectl_runtime.objects import LabelSelector
from kubectl_runtime.params import Selector
from kubectl_runtime.resources import Deployment
from kubectl_runtime.webhooks import Admission, AdmissionRequest, Rule, application
from kubectl_runtime.webhooks.configurations import Target, configurations
from kubectl_runtime.webhooks.handler import WebhookOptions, options_of
from tests.webhooks.hooks import Labels, OnlyAdmins, Pod, Quota, Scales, to_v1, to_v2

TARGET = Target.service("shop/hooks")


class Full(Admission[Pod], name="full.shop.example.com", operations=["CREATE", "DELETE"], subresources=["status"],
           match_conditions={"no-nodes": "!('system:nodes' in request.userInfo.groups)"}, match_policy="Exact",
           failure_policy="Ignore", side_effects="NoneOnDryRun", timeout=timedelta(seconds=5),
           namespace_selector={"team": "shop"}, object_selector="tier in (a,b),!legacy", reinvocation="IfNeeded"):
    def validate(self, request: AdmissionRequest[Pod]) -> None:
        pass

    def mutate(self, request: AdmissionRequest[Pod]) -> None:
        return None


def hooks(handler: Any, kind: str = "Validating") -> list[dict[str, Any]]:
    found = configurations({"/here": handler}, "shop", TARGET)
    return [hook for one in found if one["kind"] == f"{kind}WebhookConfiguration" for hook in one["webhooks"]]


def test_a_class_that_says_nothing_has_what_is_usual() -> None:
    assert hooks(Quota()) == [{
        "name": "quota.pods.core",
        "clientConfig": {"service": {"namespace": "shop", "name": "hooks", "path": "/here/validate"}},
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE", "DELETE"],
                   "resources": ["pods"], "scope": "*"}],
        "admissionReviewVersions": ["v1"], "sideEffects": "None"}]


def test_what_has_nothing_to_change_does_not_come_to_mutate() -> None:
    assert [hook["rules"][0]["operations"] for hook in hooks(Quota(), "Mutating")] == [["CREATE", "UPDATE"]]
    assert [hook["clientConfig"]["service"]["path"] for hook in hooks(Quota(), "Mutating")] == ["/here/mutate"]
    assert hooks(OnlyAdmins(), "Mutating") == []

    class OnlyDeletes(Admission[Pod], operations=("DELETE",)):
        def mutate(self, request: AdmissionRequest[Pod]) -> None:
            return None

    with pytest.raises(RequestError, match=r"OnlyDeletes\.mutate would never be called"):
        hooks(OnlyDeletes())


def test_everything_that_a_class_says_is_in_its_configuration() -> None:
    said = {
        "failurePolicy": "Ignore", "matchPolicy": "Exact", "sideEffects": "NoneOnDryRun", "timeoutSeconds": 5,
        "namespaceSelector": {"matchLabels": {"team": "shop"}},
        "objectSelector": {"matchExpressions": [{"key": "tier", "operator": "In", "values": ["a", "b"]},
                                                {"key": "legacy", "operator": "DoesNotExist"}]},
        "matchConditions": [{"name": "no-nodes", "expression": "!('system:nodes' in request.userInfo.groups)"}]}
    validating, = hooks(Full())
    assert {key: validating[key] for key in said} == said
    assert validating["name"] == "full.shop.example.com"
    assert "reinvocationPolicy" not in validating
    assert validating["rules"][0]["resources"] == ["pods", "pods/status"]
    mutating, = hooks(Full(), "Mutating")
    assert mutating["reinvocationPolicy"] == "IfNeeded"
    assert mutating["rules"][0]["operations"] == ["CREATE"]


def test_a_subclass_keeps_what_it_does_not_change() -> None:
    class Stricter(Full, failure_policy="Fail"):
        pass

    assert Stricter.options.failure_policy == "Fail"
    assert (Stricter.options.timeout, Full.options.failure_policy) == (timedelta(seconds=5), "Ignore")


@pytest.mark.parametrize("selection", ["team=shop", {"team": "shop"}, Selector.labels(team="shop"),
                                       LabelSelector(match_labels={"team": "shop"}),
                                       {"matchLabels": {"team": "shop"}}])
def test_selectors_are_taken_in_every_form(selection: Any) -> None:
    options = options_of(Full, {"namespace_selector": selection}, WebhookOptions())
    assert options.to_dict(mutating=False)["namespaceSelector"] == {"matchLabels": {"team": "shop"}}


def test_rules_are_for_several_kinds() -> None:
    class Many(Admission[DynamicObject], name="many.shop.example.com", rules=[
            Rule(groups=("apps",), versions=("v1",), resources=("deployments", "statefulsets"), scope="Namespaced"),
            Rule(resources=("*/scale",), operations=("UPDATE",))]):
        def validate(self, request: AdmissionRequest[DynamicObject]) -> None:
            pass

    assert hooks(Many())[0]["rules"] == [
        {"apiGroups": ["apps"], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"],
         "resources": ["deployments", "statefulsets"], "scope": "Namespaced"},
        {"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["UPDATE"], "resources": ["*/scale"],
         "scope": "*"}]
    with pytest.raises(RequestError, match="would never be called"):
        hooks(Labels())

    class Nameless(Admission[DynamicObject], rules=[Rule()]):
        def validate(self, request: AdmissionRequest[DynamicObject]) -> None:
            pass

    with pytest.raises(RequestError, match="write class Nameless"):
        hooks(Nameless())


def test_all_operations_are_those_that_there_are() -> None:
    options = options_of(Full, {"operations": ("*",)}, WebhookOptions())
    assert options.rules_for(Deployment.api_resource, ("CREATE", "UPDATE"))[0]["operations"] == ["CREATE", "UPDATE"]


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"failurePolicy": "Fail"}, "did you mean 'failure_policy'"), ({"failure_policy": "fail"}, "did you mean 'Fail'"),
    ({"side_effects": "Some"}, "one of None, NoneOnDryRun"), ({"operations": "CREATE"}, "must be a tuple, not a str"),
    ({"operations": ("PATCH",)}, "'PATCH' is not an operation"), ({"operations": ("create",)}, "did you mean 'CREATE'"),
    ({"name": "quota"}, "three parts"), ({"name": "Quota.shop.example.com"}, "three parts"),
    ({"timeout": 31}, "from 1 to 30"), ({"timeout": 0.5}, "from 1 to 30"), ({"timeout": 1.5}, "number of seconds"),
    ({"match_conditions": "true"}, "must map names to CEL expressions"),
    ({"match_conditions": {"": "true"}}, "valid condition name"),
    ({"match_conditions": {"a b": "true"}}, "condition name"),
    ({"match_conditions": {"a": " "}}, "and a CEL expression"),
    ({"namespace_selector": "a b"}, "class Full"), ({"object_selector": 5}, "not a label selector"),
    ({"object_selector": "size > 3"}, "cannot express"), ({"rules": ("pods",)}, "rules= must contain Rule"),
    ({"rules": (Rule(operations=("GET",)),)}, "'GET' is not an operation"), ({"reinvocation": True}, "one of Never")]


@pytest.mark.parametrize(("given", "why"), WRONG)
def test_what_the_server_would_refuse_is_refused_when_the_class_is_made(given: dict[str, Any], why: str) -> None:
    with pytest.raises(TypeError, match=why):
        type("Full", (Quota,), {}, **given)


def test_a_rule_takes_several() -> None:
    with pytest.raises(TypeError, match=r"resources= must be a tuple, not a str; write resources=\('pods',\)"):
        Rule(resources="pods")  # type: ignore[arg-type]


def test_two_webhooks_of_one_name_are_refused() -> None:
    with pytest.raises(RequestError, match=r"two webhooks of the ValidatingWebhookConfiguration are called quota"):
        configurations({"/a": Quota(), "/b": Quota()}, "shop", TARGET)
    with pytest.raises(RequestError, match="needs a name"):
        configurations({"/a": Quota()}, "", TARGET)


def test_each_kind_of_configuration_stands_alone() -> None:
    app = application({"/quota": Quota(), "/scales": Scales()})
    validating, mutating = configurations(app, "shop", TARGET, annotations={"cert-manager.io/inject-ca-from": "a/b"})
    assert [hook["name"] for hook in validating["webhooks"]] == ["quota.pods.core", "scales.deployments.apps"]
    assert [hook["name"] for hook in mutating["webhooks"]] == ["quota.pods.core"]
    assert validating["metadata"] == {"name": "shop", "annotations": {"cert-manager.io/inject-ca-from": "a/b"}}


def test_a_url_stands_before_the_paths() -> None:
    target = Target.url("https://hooks.example.com:9443/v1/")
    assert target.client_config("/quota/validate", b"PEM") == {
        "url": "https://hooks.example.com:9443/v1/quota/validate", "caBundle": base64.b64encode(b"PEM").decode()}
    assert Target.service("shop/hooks:8443").client_config("/x") == {
        "service": {"namespace": "shop", "name": "hooks", "path": "/x", "port": 8443}}


@pytest.mark.parametrize("text", ["hooks", "shop/", "/hooks", "a/b/c", "a/b:", "a/b:x", ""])
def test_a_service_is_a_namespace_and_a_name(text: str) -> None:
    with pytest.raises(RequestError, match="is not a Service"):
        Target.service(text)


@pytest.mark.parametrize("text", ["http://a", "a", "https://", "https://a:b", "https://u@a", "https://a?x=1",
                                  "https://a#f", "https://[::1", ""])
def test_a_url_is_https_and_nothing_more(text: str) -> None:
    with pytest.raises(RequestError, match="is not the URL of a webhook"):
        Target.url(text)


def test_a_conversion_between_classes_names_its_definition() -> None:
    class WidgetV1(CustomResource, group="example.com", version="v1", kind="Widget"):
        spec: dict[str, Any]

    class WidgetV2(CustomResource, group="example.com", version="v2", kind="Widget"):
        spec: dict[str, Any]

    by_class = Conversion({(WidgetV1, WidgetV2): lambda old: WidgetV2(spec=old.spec)})
    found, = configurations({"/convert": by_class}, "shop", TARGET)
    assert found == {
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"}, "spec": {"conversion": {"strategy": "Webhook", "webhook": {
            "clientConfig": {"service": {"namespace": "shop", "name": "hooks", "path": "/convert"}},
            "conversionReviewVersions": ["v1"]}}}}
    by_text = Conversion({("v1", "v2"): to_v2, ("v2", "v1"): to_v1})
    assert configurations({"/convert": by_text}, "shop", TARGET) == []
