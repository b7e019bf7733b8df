"""What stands between a write and the cluster acts in a plan: policies, quotas, limits, the program's own webhooks."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kubectl_runtime import Action, Admission, AdmissionRequest, Api, Client, Controller, Denied, Manager, WebhookServer
from kubectl_runtime.certificates.authority import Authority
from kubectl_runtime.plan import Plan, Snapshot, plan
from kubectl_runtime.resources import ConfigMap, Deployment, Pod, Secret
from kubectl_runtime.webhooks import SelfSigned, application, apply_webhooks
from tests.plan.conftest import World

GROUP = "admissionregistration.k8s.io/v1"
KINDS: dict[str, Any] = {"ConfigMap": ConfigMap, "Deployment": Deployment, "Pod": Pod, "Secret": Secret}
SHOP = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop", "labels": {"team": "a"}}}
ROOT = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "root", "namespace": "shop"}}
CHILD = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "child", "namespace": "shop"},
         "data": {"a": "b"}}
POD = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "shop"}, "spec": {
    "containers": [{"name": "c", "image": "i", "resources": {"limits": {"memory": "2Gi"}}}]}}
WEB = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": "shop"}, "spec": {
    "replicas": 3, "selector": {"matchLabels": {"a": "b"}}, "template": {
        "metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}}}


def policy(expression: str, resource: str = "configmaps", actions: str = "Deny", parameters: str = "",
           selector: dict[str, str] | None = None) -> list[dict[str, Any]]:
    """A validating policy with its binding. `parameters`: the namespace of the ConfigMap `settings`."""
    rules = [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"], "resources": [resource]}]
    spec: dict[str, Any] = {"failurePolicy": "Fail", "matchConstraints": {"resourceRules": rules},
                            "validations": [{"expression": expression, "message": "not in this cluster"}]}
    binding: dict[str, Any] = {"policyName": "rule", "validationActions": [actions]}
    if parameters:
        spec["paramKind"] = {"apiVersion": "v1", "kind": "ConfigMap"}
        binding["paramRef"] = {"name": "settings", "namespace": parameters, "parameterNotFoundAction": "Deny"}
    if selector:
        binding["matchResources"] = {"namespaceSelector": {"matchLabels": selector}}
    return [{"apiVersion": GROUP, "kind": "ValidatingAdmissionPolicy", "metadata": {"name": "rule"}, "spec": spec},
            {"apiVersion": GROUP, "kind": "ValidatingAdmissionPolicyBinding", "metadata": {"name": "rule"},
             "spec": binding}]


def mutation(expression: str) -> list[dict[str, Any]]:
    rules = [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"],
              "resources": ["configmaps"]}]
    spec = {"failurePolicy": "Fail", "reinvocationPolicy": "Never", "matchConstraints": {"resourceRules": rules},
            "mutations": [{"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}}]}
    return [{"apiVersion": GROUP, "kind": "MutatingAdmissionPolicy", "metadata": {"name": "m"}, "spec": spec},
            {"apiVersion": GROUP, "kind": "MutatingAdmissionPolicyBinding", "metadata": {"name": "m"},
             "spec": {"policyName": "m"}}]


def in_shop(kind: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": kind, "metadata": {"name": "q", "namespace": "shop"}, "spec": spec}


def making(*children: dict[str, Any]) -> Callable[[Client], Any]:
    def reconcile(obj: Any, ctx: Any) -> Action:
        for child in children if obj.name == "root" else ():
            ctx.api(KINDS[child["kind"]]).apply(child, field_manager="me", force=True)
        return Action.await_change()

    def build(client: Client) -> Any:
        return Controller(Api.namespaced(client, ConfigMap, "shop"), name="maker").bind(reconcile)
    return build


def planned(build: Callable[[Client], Any], *objects: dict[str, Any], running: Any = None) -> Plan:
    """A cluster with these objects; `running` is what ran there before."""
    world = World()
    try:
        world.server.load([SHOP, ROOT, *(obj for obj in objects if obj["apiVersion"] != GROUP)])
        world.server.load([obj for obj in objects if obj["apiVersion"] == GROUP])
        world.sim.settle(60)
        if running is not None:
            world.run(running, 60)
        return plan(build, Snapshot.read(world.client, build))
    finally:
        world.sim.close()


SETTINGS = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings", "namespace": "default"},
            "data": {"name": "child"}}


@pytest.mark.parametrize(("child", "around", "words"), [
    (CHILD, policy("object.metadata.name != 'child'"), "ValidatingAdmissionPolicy 'rule' with binding 'rule' denied "
     "request: not in this cluster"),
    (CHILD, [*policy("object.metadata.name != params.data.name", parameters="default"), SETTINGS],
     "denied request: not in this cluster"),
    (CHILD, policy("object.metadata.name != 'child'", selector={"team": "a"}), "not in this cluster"),
    ({**CHILD, "kind": "Secret", "data": {}}, [in_shop("ResourceQuota", {"hard": {"count/secrets": "0"}})],
     "exceeded quota: q, requested: count/secrets=1"),
    (POD, [in_shop("LimitRange", {"limits": [{"type": "Container", "max": {"memory": "1Gi"}}]})],
     "maximum memory usage per Container is 1Gi, but limit is 2Gi")],
    ids=["policy", "parameters", "selector", "quota", "limits"])
def test_a_child_that_is_denied_fails_with_the_reason(child: Any, around: list[dict[str, Any]], words: str) -> None:
    found = planned(making(child), *around)
    [problem] = found.failed
    assert problem.object == "ConfigMap shop/root"
    assert words in problem.reason
    assert "test_admission.py:" in problem.line
    assert not found.changes


@pytest.mark.parametrize("around", [
    policy("object.metadata.name != 'child'", selector={"team": "other"}), policy("true"),
    policy("object.metadata.name != 'child'", actions="Audit"),
    [*policy("object.metadata.name == params.data.name", parameters="default"), SETTINGS],
    [in_shop("ResourceQuota", {"hard": {"count/secrets": "0"}})]])
def test_a_child_that_is_allowed_comes(around: list[dict[str, Any]]) -> None:
    found = planned(making(CHILD), *around)
    assert [str(change) for change in found.changes] == ["create ConfigMap shop/child"]
    assert not found.failed
    assert not found.not_simulated


@pytest.mark.parametrize("rule", ["request.userInfo.username == 'admin'", "'system:masters' in request.userInfo.groups",
                                  "authorizer.group('').resource('pods').check('get').allowed()"])
def test_a_policy_that_looks_at_the_user_is_said(rule: str) -> None:
    found = planned(making(CHILD), *policy(rule))
    assert found.not_simulated == ("the operator's account in ValidatingAdmissionPolicy rule, which looks at the user "
                                   "of a request (here admin)",)
    assert [str(change) for change in found.changes] == ["create ConfigMap shop/child"]


def test_what_a_policy_or_a_limit_adds_is_in_the_plan() -> None:
    around = mutation("Object{metadata: Object.metadata{labels: {'added': 'by-policy'}}}")
    found = planned(making(CHILD), *around)
    assert "+    added: by-policy" in found.created[0].difference
    assert planned(making(CHILD), *around, running=making(CHILD)).empty
    limit = in_shop("LimitRange", {"limits": [{"type": "Container", "default": {"cpu": "300m"}}]})
    assert "cpu: 300m" in planned(making(POD), limit).created[0].difference


@pytest.mark.parametrize("around", [
    policy("object.spec.containers.all(c, c.image != 'i')", "pods"),
    [in_shop("ResourceQuota", {"hard": {"pods": "1"}})],
    [in_shop("LimitRange", {"limits": [{"type": "Container", "max": {"memory": "1Gi"}}]})]],
    ids=["policy", "quota", "limits"])
def test_pods_that_are_refused_are_a_failure_of_their_deployment(around: list[dict[str, Any]]) -> None:
    web = {**WEB, "spec": {**WEB["spec"], "template": {**WEB["spec"]["template"], "spec": POD["spec"]}}}
    found = planned(making(web), *around)
    [problem] = found.failed
    assert problem.object == "Deployment shop/web"
    assert problem.reason.startswith("its Pods are refused: ")
    assert found.created
    assert planned(making(web), *around, running=making(web)).empty  # they were refused before, too


class Names(Admission[ConfigMap], name="names.example.com"):
    """Denies some ConfigMaps and labels the others."""

    def validate(self, request: AdmissionRequest[ConfigMap]) -> None:
        if request.object.name == "child" and "b" in request.object.data.values():
            raise Denied("no b in this shop")

    def mutate(self, request: AdmissionRequest[ConfigMap]) -> ConfigMap | None:
        request.object.labels["seen"] = "yes"
        return request.object


@pytest.mark.parametrize("value", ["b", "c"])
def test_the_programs_own_webhooks_act(value: str) -> None:
    app = application({"/names": Names()})
    child = {**CHILD, "data": {"a": value}}

    def build(client: Client) -> Manager:
        server = WebhookServer(app, "127.0.0.1:0", client=client, configuration="names",
                               certificates=SelfSigned(service="shop/names"))
        bound = making(child)(client)
        return Manager(client, serve=None).add(bound).add_server(server)

    world = World()
    world.server.load([SHOP, ROOT])
    apply_webhooks(world.client, app, "names", field_manager="names", ca_bundle=Authority("webhooks").pem,
                   service="shop/names")
    found = plan(build, Snapshot.read(world.client, build))
    world.sim.close()
    if value == "b":
        assert "no b in this shop" in found.failed[0].reason
        assert not found.changes
    else:
        assert not found.failed, str(found)
        [change] = found.created
        assert 'seen: "yes"' in change.difference
