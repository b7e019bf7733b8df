"""Admission policies: what they match, parameters, variables, failures, their place among webhooks, and mutations."""

from __future__ import annotations

from typing import Any

import pytest

from kubectl_runtime.apiserver.access import User
from kubectl_runtime.core.base.errors import MissingExtra
from kubectl_runtime.schema import cel
from tests.apiserver.webhooks.hooked import CONFIGMAPS, Hooked, set_to

ROOT = "/apis/admissionregistration.k8s.io/v1"
RULE = {**CONFIGMAPS, "operations": ["CREATE", "UPDATE"]}


@pytest.fixture
def api() -> Hooked:
    return Hooked()


def make(api: Hooked, kind: str, name: str, spec: Any) -> Any:
    plural = f"{kind.lower()}s".replace("policys", "policies")
    return api("POST", f"{ROOT}/{plural}", {"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind,
                                            "metadata": {"name": name}, "spec": spec})


def policy(api: Hooked, *validations: Any, name: str = "p", rules: Any = (RULE,), binding: Any = None,
           match: Any = None, **spec: Any) -> Any:
    """A validating policy and its binding."""
    made = make(api, "ValidatingAdmissionPolicy", name, {
        "matchConstraints": {"resourceRules": list(rules), **(match or {})},
        "validations": [{"expression": each} if isinstance(each, str) else each for each in validations], **spec})
    if made.status == 201:
        bound = make(api, "ValidatingAdmissionPolicyBinding", name, {
            "policyName": name, "validationActions": ["Deny"], **(binding or {})})
        assert bound.status == 201, bound.body
    return made


def mutation(api: Hooked, expression: str, *, name: str = "m", patch: str = "applyConfiguration", rules: Any = (RULE,),
             **spec: Any) -> Any:
    """A mutating policy and its binding."""
    made = make(api, "MutatingAdmissionPolicy", name, {
        "matchConstraints": {"resourceRules": list(rules)}, "reinvocationPolicy": "Never",
        "mutations": [{"patchType": "JSONPatch" if patch == "jsonPatch" else "ApplyConfiguration",
                       patch: {"expression": expression}}], **spec})
    if made.status == 201:
        bound = make(api, "MutatingAdmissionPolicyBinding", name, {"policyName": name})
        assert bound.status == 201, bound.body
    return made


@pytest.mark.parametrize(("rule", "refused"), [
    (RULE, True),
    ({**RULE, "operations": ["UPDATE"]}, False),
    ({**RULE, "apiGroups": ["apps"]}, False),
    ({**RULE, "resourceNames": ["other"]}, False),
    ({**RULE, "resourceNames": ["a"]}, True),
    ({**RULE, "resources": ["*"], "apiVersions": ["*"]}, True),
])
def test_a_policy_is_about_what_its_rules_name(api: Hooked, rule: Any, refused: bool) -> None:
    policy(api, "false", rules=[rule])
    assert (api.create().status == 422) is refused


def test_excluded_resources_and_the_matches_of_a_binding_narrow_a_policy(api: Hooked) -> None:
    policy(api, "false", match={"excludeResourceRules": [{**RULE, "resourceNames": ["spared"]}]},
           binding={"matchResources": {"objectSelector": {"matchLabels": {"strict": "yes"}}}})
    assert api.create("a").status == 201
    assert api.create("b", labels={"strict": "yes"}).status == 422
    assert api.create("spared", labels={"strict": "yes"}).status == 201


def test_a_policy_without_a_binding_does_nothing(api: Hooked) -> None:
    make(api, "ValidatingAdmissionPolicy", "p", {"matchConstraints": {"resourceRules": [RULE]},
                                                 "validations": [{"expression": "false"}]})
    assert api.create().status == 201


def test_a_changed_policy_and_a_deleted_binding_hold_at_once(api: Hooked) -> None:
    policy(api, "false")
    assert api.create().status == 422
    api.merge(f"{ROOT}/validatingadmissionpolicies/p", {"spec": {"validations": [{"expression": "true"}]}})
    assert api.create("b").status == 201
    api.merge(f"{ROOT}/validatingadmissionpolicies/p", {"spec": {"validations": [{"expression": "false"}]}})
    api("DELETE", f"{ROOT}/validatingadmissionpolicybindings/p")
    assert api.create("c").status == 201


def test_parameters_are_read_by_name_and_by_selector(api: Hooked) -> None:
    for name in ("one", "two"):
        api("POST", "/api/v1/namespaces/default/secrets", {"metadata": {"name": name, "labels": {"limits": "yes"}}})
    by_name = {"paramRef": {"name": "two", "namespace": "default", "parameterNotFoundAction": "Deny"}}
    policy(api, "size(object.data) <= (params.metadata.name == 'one' ? 3 : 5)",
           paramKind={"apiVersion": "v1", "kind": "Secret"}, binding=by_name)
    four = dict.fromkeys("abcd", "v")
    assert api.create("a", data=four).status == 201
    make(api, "ValidatingAdmissionPolicyBinding", "all", {
        "policyName": "p", "validationActions": ["Deny"],
        "paramRef": {"selector": {"matchLabels": {"limits": "yes"}}, "parameterNotFoundAction": "Deny"}})
    assert api.create("b", data=four).status == 422  # one of the two parameters says 3


@pytest.mark.parametrize(("action", "policy_of_failure", "status"), [
    ("Deny", "Fail", 422), ("Deny", "Ignore", 201), ("Allow", "Fail", 201)])
def test_missing_parameters(api: Hooked, action: str, policy_of_failure: str, status: int) -> None:
    policy(api, "false", paramKind={"apiVersion": "v1", "kind": "Secret"}, failurePolicy=policy_of_failure,
           binding={"paramRef": {"name": "none", "namespace": "default", "parameterNotFoundAction": action}})
    answer = api.create()
    assert answer.status == status
    if status == 422:
        assert "no params found for policy binding with `Deny` parameterNotFoundAction" in answer.body["message"]


@pytest.mark.parametrize("actions", [["Warn"], ["Audit"], ["Warn", "Audit"]])
def test_a_binding_that_cannot_be_configured_refuses_whatever_it_does_on_a_failure(api: Hooked, actions: Any) -> None:
    policy(api, "true", paramKind={"apiVersion": "v1", "kind": "Secret"}, binding={
        "validationActions": actions,
        "paramRef": {"name": "none", "namespace": "default", "parameterNotFoundAction": "Deny"}})
    assert api.create().status == 422


@pytest.mark.parametrize(("conditions", "on_failure", "status"), [
    (["object.data.absent == 'x'"], "Fail", 422), (["object.data.absent == 'x'"], "Ignore", 201),
    (["object.data.absent == 'x'", "false"], "Fail", 201), (["true", "object.data.absent == 'x'"], "Fail", 422),
    (["true"], "Fail", 201)])
def test_a_condition_that_fails_is_not_one_that_is_true(api: Hooked, conditions: list[str], on_failure: str,
                                                        status: int) -> None:
    holds = "false" if on_failure == "Ignore" else "true"
    policy(api, holds, failurePolicy=on_failure, matchConditions=[
        {"name": f"c{number}", "expression": one} for number, one in enumerate(conditions)])
    assert api.create(data={"a": "b"}).status == status


def test_variables_are_lazy_typed_and_may_name_each_other(api: Hooked) -> None:
    made = policy(api, {"expression": "variables.all == 2 || variables.broken", "messageExpression":
                        "'there are ' + string(variables.all)"},
                  variables=[{"name": "own", "expression": "size(object.data)"},
                             {"name": "all", "expression": "variables.own + 1"},
                             {"name": "broken", "expression": "object.spec.x == 1"}])
    assert made.status == 201
    assert api.create("a").status == 201
    refused = api.create("b", data={"a": "1", "b": "2"})
    assert refused.status == 422
    assert 'composited variable "broken" fails to evaluate' in refused.body["message"]


@pytest.mark.parametrize(("spec", "path"), [
    ({"validations": [{"expression": "object.metadata.name"}]}, "spec.validations[0].expression"),
    ({"validations": [{"expression": "true", "messageExpression": "1"}]}, "spec.validations[0].messageExpression"),
    ({"validations": [{"expression": "variables.none"}]}, "spec.validations[0].expression"),
    ({"validations": [{"expression": "params.x == 1"}]}, "spec.validations[0].expression"),
    ({"validations": [{"expression": "authorizer.path('/x').check('get')"}]}, "spec.validations[0].expression"),
    ({"validations": [{"expression": "authorizer.group('').check('get').allowed()"}]},
     "spec.validations[0].expression"),
    ({"validations": [{"expression": "true",
                       "messageExpression": "authorizer.path('/x').check('get').reason()"}]},
     "spec.validations[0].messageExpression"),
    ({"validations": [{"expression": "true"}], "variables": [{"name": "x", "expression": "foo +"}]},
     "spec.variables[0].expression"),
    ({"validations": [{"expression": "true"}], "matchConditions": [{"name": "x", "expression": "request.x == 1"}]},
     "spec.matchConditions[0].expression"),
])
def test_what_does_not_compile_is_refused_where_it_stands(api: Hooked, spec: Any, path: str) -> None:
    made = make(api, "ValidatingAdmissionPolicy", "p", {"matchConstraints": {"resourceRules": [RULE]}, **spec})
    assert made.status == 422
    assert path in [cause["field"] for cause in made.body["details"]["causes"]]


def test_without_the_engine_a_policy_is_refused_with_the_reason(api: Hooked, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: Any, **__: Any) -> Any:
        raise MissingExtra("rules in CEL need", "cel")

    monkeypatch.setattr("kubectl_runtime.schema.policycel._running", missing)
    for made in (policy(api, "true"), mutation(api, "Object{}")):
        assert made.status == 422
        assert cel.MISSING_EXTRA in made.body["message"]


def test_a_policy_judges_deletions_and_status_writes_that_it_names(api: Hooked) -> None:
    policy(api, {"expression": "oldObject.metadata.name != 'kept'", "message": "is kept"},
           rules=[{**CONFIGMAPS, "operations": ["DELETE"]}])
    api.create("kept")
    api.create("other")
    assert api("DELETE", "/api/v1/namespaces/default/configmaps/kept").status == 422
    assert api("DELETE", "/api/v1/namespaces/default/configmaps/other").status == 200


def test_policies_do_not_judge_policies(api: Hooked) -> None:
    policy(api, "false", rules=[{"apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*"], "operations": ["*"]}])
    assert api("DELETE", f"{ROOT}/validatingadmissionpolicybindings/p").status == 200


def test_the_order_is_policies_then_webhooks_mutating_then_validating(api: Hooked) -> None:
    mutation(api, "Object{data: Object.data{policy: 'yes'}}")
    api.hook("m", lambda request: set_to("/data/saw", ",".join(sorted(request["object"]["data"]))), mutating=True)
    policy(api, {"expression": "object.data.saw == 'k,policy'", "message": "order"})
    api.hook("v")
    created = api.create()
    assert created.status == 201, created.body
    assert created.body["data"] == {"k": "v", "policy": "yes", "saw": "k,policy"}
    assert [name for name, _ in api.reviews] == ["m", "v"]
    policy(api, "false", name="q")
    assert api.create("b").status == 422
    assert [name for name, _ in api.reviews] == ["m", "v", "m"]  # a validating webhook is not asked after a refusal


@pytest.mark.parametrize(("reinvocation", "wanted"), [("IfNeeded", "3"), ("Never", "1")])
def test_a_policy_sees_again_what_a_webhook_changed(api: Hooked, reinvocation: str, wanted: str) -> None:
    mutation(api, "Object{metadata: Object.metadata{annotations: {'count': string(size(object.data))}}}",
             reinvocationPolicy=reinvocation)
    api.hook("m", lambda _: {**set_to("/data", {"x": "1", "y": "2", "z": "3"})}, mutating=True)
    assert api.create().body["metadata"]["annotations"] == {"count": wanted}


def test_lists_with_keys_are_merged_and_atomic_ones_are_refused(api: Hooked) -> None:
    pods = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "operations": ["CREATE"]}
    mutation(api, "Object{spec: Object.spec{containers: [Object.spec.containers{name: 'side', image: 'proxy:1'}]}}",
             rules=[pods])
    pod = {"metadata": {"name": "a"}, "spec": {"containers": [{"name": "main", "image": "x"}]}}
    created = api("POST", "/api/v1/namespaces/default/pods", pod)
    assert {each["name"]: each["image"] for each in created.body["spec"]["containers"]} == {
        "main": "x", "side": "proxy:1"}
    assert created.body["spec"]["containers"][1]["imagePullPolicy"] == "IfNotPresent"  # defaults come after it
    mutation(api, "Object{spec: Object.spec{containers: [Object.spec.containers{name: 'main', args: ['x']}]}}",
             rules=[pods], name="n")
    refused = api("POST", "/api/v1/namespaces/default/pods", {**pod, "metadata": {"name": "b"}})
    assert refused.status == 403
    assert "may not mutate atomic arrays, maps or structs: .spec.containers[].args" in refused.body["message"]


def test_json_patches_escape_keys_and_fail_as_the_policy_says(api: Hooked) -> None:
    expression = ("[JSONPatch{op: 'add', path: '/metadata/annotations', value: {'a/b': 'x'}}, JSONPatch{op: 'replace', "
                  "path: '/metadata/annotations/' + jsonpatch.escapeKey('a/b'), value: 'y'}]")
    assert mutation(api, expression, patch="jsonPatch").status == 201
    assert api.create().body["metadata"]["annotations"] == {"a/b": "y"}
    mutation(api, "[JSONPatch{op: 'remove', path: '/none'}]", patch="jsonPatch", name="n")
    assert api.create("b").status == 403
    api.merge(f"{ROOT}/mutatingadmissionpolicies/n", {"spec": {"failurePolicy": "Ignore"}})
    assert api.create("c").status == 201


@pytest.mark.parametrize(("expression", "found"), [
    ("Object{metadata: Object.metadata{annotations: {'a': 'Object{b: 1}'}}}", {"a": "Object{b: 1}"}),
    ("object.metadata.name == 'a' ? Object{metadata: Object.metadata{annotations: {'a': 'b'}}} : Object{}", {"a": "b"}),
    ("Object{metadata: Object.metadata{?annotations: optional.of({'a': 'c'})}} // Object{x: 1}", {"a": "c"}),
])
def test_objects_are_built_as_the_real_types_are(api: Hooked, expression: str, found: Any) -> None:
    made = mutation(api, expression)
    assert made.status == 201, made.body
    assert api.create().body["metadata"]["annotations"] == found


@pytest.mark.parametrize(("expression", "patch"), [
    ("{'metadata': {}}", "applyConfiguration"), ("'x'", "applyConfiguration"), ("Object{}", "jsonPatch"),
    ("Object{spec: ", "applyConfiguration")])
def test_a_mutation_of_another_type_is_refused(api: Hooked, expression: str, patch: str) -> None:
    assert mutation(api, expression, patch=patch).status == 422


@pytest.mark.parametrize(("expression", "allowed"), [
    ("authorizer.group('').resource('configmaps').namespace('default').check('create').allowed()", True),
    ("authorizer.requestResource.check('create').allowed()", True),
    ("authorizer.requestResource.check('delete').allowed()", False),
    ("authorizer.path('/healthz').check('get').allowed() && !authorizer.path('/secret').check('get').allowed()", True),
    ("authorizer.group('apps').resource('deployments').subresource('scale').name('x').check('get').allowed()", False),
    ("authorizer.serviceAccount('default', 'robot').group('').resource('secrets').namespace('default').check('get')"
     ".allowed()", True),
    ("authorizer.serviceAccount('other', 'robot').group('').resource('secrets').check('get').allowed()", False),
    ("authorizer.requestResource.check('create').reason().startsWith('RBAC: allowed by RoleBinding')", True),
    ("authorizer.requestResource.check('list').errored()", False)])
def test_the_authorizer_answers_with_the_permissions_of_the_cluster(expression: str, allowed: bool) -> None:
    api = Hooked(authorization_mode="RBAC", tokens={"root": User("root", groups=("system:masters",)), "alice": "alice"})
    root = {"authorization": "Bearer root"}
    rbac = "/apis/rbac.authorization.k8s.io/v1/namespaces/default"
    for name, verb, resource, subject in (
            ("makes", "create", "configmaps", {
                "kind": "User", "name": "alice", "apiGroup": "rbac.authorization.k8s.io"}),
            ("reads", "get", "secrets", {"kind": "ServiceAccount", "name": "robot", "namespace": "default"})):
        api("POST", f"{rbac}/roles", {"metadata": {"name": name}, "rules": [
            {"apiGroups": [""], "resources": [resource], "verbs": [verb]}]}, **root)
        api("POST", f"{rbac}/rolebindings", {"metadata": {"name": name}, "subjects": [subject], "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name}}, **root)
    for kind, spec in (("policies", {"matchConstraints": {"resourceRules": [RULE]}, "validations": [
            {"expression": expression}]}), ("policybindings", {"policyName": "p", "validationActions": ["Deny"]})):
        assert api("POST", f"{ROOT}/validatingadmission{kind}", {"metadata": {"name": "p"}, "spec": spec},
                   **root).status == 201
    made = api("POST", "/api/v1/namespaces/default/configmaps", {"metadata": {"name": "a"}},
               authorization="Bearer alice")
    assert made.status == (201 if allowed else 422), made.body
