"""Webhooks and everything that is no plain create, update or deletion: subresources, apply, evictions, exec."""

from __future__ import annotations

from typing import Any

import pytest

from tests.apiserver.kinds.kindapi import pod_spec
from tests.apiserver.webhooks.hooked import Hooked, deny, patch, set_to

NAMESPACED = "/api/v1/namespaces/default"
EVERYTHING = {"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"]}


@pytest.fixture
def api() -> Hooked:
    return Hooked()


def on(*resources: str) -> dict[str, Any]:
    return {**EVERYTHING, "resources": list(resources)}


def seen(api: Hooked) -> list[tuple[str, str, str]]:
    """Operation, kind of the object, subresource."""
    return [(asked["operation"], asked["kind"]["kind"], asked.get("subResource", "")) for asked in api.asked()]


def pod(api: Hooked, name: str = "a", **spec: Any) -> Any:
    made = api("POST", f"{NAMESPACED}/pods", {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
                                              "spec": pod_spec(**spec)})
    assert made.status == 201, made.body
    return made.body


def deployment(api: Hooked) -> None:
    template = {"metadata": {"labels": {"app": "a"}}, "spec": pod_spec()}
    assert api("POST", "/apis/apps/v1/namespaces/default/deployments", {
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a"},
        "spec": {"replicas": 1, "selector": {"matchLabels": {"app": "a"}}, "template": template}}).status == 201


def test_a_status_is_an_update_of_its_own(api: Hooked) -> None:
    pod(api)
    api.hook("main", rules=[on("pods")])
    api.hook("status", lambda _: set_to("/status/phase", "Failed"), rules=[on("pods/status")], mutating=True)
    written = api.merge(f"{NAMESPACED}/pods/a/status", {"status": {"phase": "Running"}}).body
    assert seen(api) == [("UPDATE", "Pod", "status")]
    assert api.asked()[0]["requestSubResource"] == "status"
    assert written["status"]["phase"] == "Failed"


@pytest.mark.parametrize("method", ["PUT", "PATCH", "apply"])
def test_a_scale_is_shown_as_a_scale(api: Hooked, method: str) -> None:
    deployment(api)
    api.hook("v", rules=[on("deployments", "deployments/scale")])
    api.hook("m", lambda _: set_to("/spec/replicas", 3), rules=[on("deployments/scale")], mutating=True)
    path = "/apis/apps/v1/namespaces/default/deployments/a"
    scale = {"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "a", "namespace": "default"},
             "spec": {"replicas": 2}}
    if method == "apply":
        answer = api("PATCH", f"{path}/scale", scale, [("fieldManager", "me"), ("force", "true")],
                     content_type="application/apply-patch+yaml")
    elif method == "PATCH":
        answer = api.merge(f"{path}/scale", {"spec": {"replicas": 2}})
    else:
        answer = api("PUT", f"{path}/scale", scale)
    assert answer.body["spec"] == {"replicas": 3}
    assert seen(api) == [("UPDATE", "Scale", "scale")] * 2
    first, second = api.asked()
    assert (first["oldObject"]["spec"], first["object"]["spec"]) == ({"replicas": 1}, {"replicas": 2})
    assert (second["oldObject"]["spec"], second["object"]["spec"]) == ({"replicas": 1}, {"replicas": 3})
    assert (first["kind"]["group"], first["resource"]["resource"]) == ("autoscaling", "deployments")
    assert api("GET", path).body["spec"]["replicas"] == 3


def test_a_scale_can_be_denied(api: Hooked) -> None:
    deployment(api)
    api.hook("v", lambda _: deny("no"), rules=[on("deployments/scale")])
    path = "/apis/apps/v1/namespaces/default/deployments/a"
    assert api.merge(f"{path}/scale", {"spec": {"replicas": 2}}).status == 400
    assert api("GET", path).body["spec"]["replicas"] == 1


def test_an_apply_is_a_create_or_an_update(api: Hooked) -> None:
    api.hook("v", rules=[on("configmaps")])
    api.hook("m", lambda _: set_to("/data/m", "1"), rules=[on("configmaps")], mutating=True)
    for value, status in (("1", 201), ("2", 200)):
        applied = api("PATCH", f"{NAMESPACED}/configmaps/a", {
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"k": value}},
            [("fieldManager", "me")], content_type="application/apply-patch+yaml")
        assert (applied.status, applied.body["data"]) == (status, {"k": value, "m": "1"})
    assert [(asked["operation"], asked["options"]["kind"]) for asked in api.asked("v")] == [
        ("CREATE", "CreateOptions"), ("UPDATE", "UpdateOptions")]
    (entry,) = applied.body["metadata"]["managedFields"]
    assert (entry["operation"], entry["fieldsV1"]) == ("Apply", {"f:data": {"f:k": {}}})


def test_a_put_that_creates_is_a_create(api: Hooked) -> None:
    api.hook("v", rules=[on("leases")])
    assert api("PUT", "/apis/coordination.k8s.io/v1/namespaces/default/leases/a", {
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "a"}}).status == 201
    assert [(asked["operation"], asked["options"]["kind"]) for asked in api.asked()] == [("CREATE", "CreateOptions")]


def test_a_binding_and_an_eviction_are_created(api: Hooked) -> None:
    pod(api)
    api.hook("v", rules=[on("pods/binding", "pods/eviction", "pods")])
    assert api("POST", f"{NAMESPACED}/pods/a/binding", {
        "apiVersion": "v1", "kind": "Binding", "metadata": {"name": "a"},
        "target": {"kind": "Node", "name": "n"}}).status == 201
    assert api("POST", f"{NAMESPACED}/pods/a/eviction", {
        "apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "a"}}).status == 201
    # No webhook is asked about the deletion itself: so the real server does it.
    assert seen(api) == [("CREATE", "Binding", "binding"), ("CREATE", "Eviction", "eviction")]
    assert api.asked()[1]["name"] == "a"


def test_a_denied_eviction_leaves_the_pod(api: Hooked) -> None:
    pod(api)
    api.hook("v", lambda _: deny("stay", code=429), rules=[on("pods/eviction")])
    assert api("POST", f"{NAMESPACED}/pods/a/eviction", {
        "apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "a"}}).status == 429
    assert "deletionTimestamp" not in api("GET", f"{NAMESPACED}/pods/a").body["metadata"]


def test_a_binding_goes_where_a_webhook_says(api: Hooked) -> None:
    pod(api)
    api.hook("m", lambda _: set_to("/target/name", "better"), rules=[on("pods/binding")], mutating=True)
    binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "a"},
               "target": {"kind": "Node", "name": "n"}}
    assert api("POST", f"{NAMESPACED}/pods/a/binding", binding).status == 201
    assert api("GET", f"{NAMESPACED}/pods/a").body["spec"]["nodeName"] == "better"
    api.answer("m", lambda _: set_to("/target", 1))
    pod(api, "b")
    refused = api("POST", f"{NAMESPACED}/pods/b/binding", {**binding, "metadata": {"name": "b"}})
    assert refused.body["message"].startswith("Internal error occurred: json: cannot unmarshal number into Go struct")


def test_a_token_is_created(api: Hooked) -> None:
    api("POST", f"{NAMESPACED}/serviceaccounts", {"apiVersion": "v1", "kind": "ServiceAccount",
                                                  "metadata": {"name": "me"}})
    api.hook("v", lambda _: deny("no"), rules=[on("serviceaccounts/token")])
    assert api("POST", f"{NAMESPACED}/serviceaccounts/me/token", {
        "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}).status == 400
    assert seen(api) == [("CREATE", "TokenRequest", "token")]


@pytest.mark.parametrize(("subresource", "kind", "options"), [
    ("exec", "PodExecOptions", {"stdout": True, "command": ["rm", "-r"], "container": "c"}),
    ("attach", "PodAttachOptions", {"stdout": True, "container": "c"}),
    ("portforward", "PodPortForwardOptions", {"ports": [80]}),
])
def test_a_connection_is_asked_about_before_anything_else(api: Hooked, subresource: str, kind: str,
                                                          options: dict[str, Any]) -> None:
    api.hook("v", lambda _: deny("no"), rules=[on("pods/*")])
    query = [("stdout", "true"), ("container", "c"), ("command", "rm"), ("command", "-r"), ("ports", "80")]
    refused = api("GET", f"{NAMESPACED}/pods/none/{subresource}", None, query)
    assert refused.body["message"] == 'admission webhook "v.hooks.test" denied the request: no'
    (asked,) = api.asked()
    assert asked["object"] == {"kind": kind, "apiVersion": "v1", **options}
    assert (asked["operation"], asked["name"], asked["options"], asked["oldObject"]) == ("CONNECT", "none", None, None)


def test_a_pod_that_goes_at_once_is_asked_about_twice(api: Hooked) -> None:
    pod(api)
    api.hook("v", rules=[on("pods")])
    api("DELETE", f"{NAMESPACED}/pods/a")
    assert seen(api) == [("DELETE", "Pod", "")] * 2


def test_a_deletion_that_goes_on_is_asked_about_once(api: Hooked) -> None:
    pod(api, nodeName="n")
    api.hook("v", rules=[on("pods")])
    for _ in range(3):
        api("DELETE", f"{NAMESPACED}/pods/a")
    assert len(api.reviews) == 1


def test_finalizers_keep_an_object_and_its_end_is_an_update(api: Hooked) -> None:
    api.create(finalizers=["example.com/x"])
    api.hook("v")
    api("DELETE", f"{NAMESPACED}/configmaps/a")
    assert api.get()["metadata"]["deletionTimestamp"]
    api.merge(f"{NAMESPACED}/configmaps/a", {"metadata": {"finalizers": None}})
    assert [asked["operation"] for asked in api.asked()] == ["DELETE", "UPDATE"]
    assert api.get()["code"] == 404


def test_a_refused_last_update_keeps_the_object(api: Hooked) -> None:
    api.create(finalizers=["example.com/x"])
    api("DELETE", f"{NAMESPACED}/configmaps/a")
    api.hook("v", lambda _: deny("no"))
    assert api.merge(f"{NAMESPACED}/configmaps/a", {"metadata": {"finalizers": None}}).status == 400
    assert api.get()["metadata"]["finalizers"] == ["example.com/x"]


def test_a_webhook_is_asked_before_rights_to_grant_are_looked_at(api: Hooked) -> None:
    """What a mutating webhook puts into a Role counts as the writer's own wish."""
    strict = Hooked(authorization_mode="RBAC", tokens={"t": "eve"})
    admin = {"authorization": f"Bearer {strict.server.credentials().token}"}
    may = [{"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["roles"], "verbs": ["create"]}]
    group = "rbac.authorization.k8s.io"
    for obj in ({"kind": "ClusterRole", "metadata": {"name": "r"}, "rules": may},
                {"kind": "ClusterRoleBinding", "metadata": {"name": "b"},
                 "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "r"},
                 "subjects": [{"apiGroup": group, "kind": "User", "name": "eve"}]}):
        assert strict("POST", f"/apis/{group}/v1/{obj['kind'].lower()}s", {"apiVersion": f"{group}/v1", **obj},
                      **admin).status == 201
    entry = {"name": "m.hooks.test", "clientConfig": {"url": "https://hooks.test/m"}, "sideEffects": "None",
             "admissionReviewVersions": ["v1"], "rules": [on("roles")]}
    assert strict("POST", "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations", {
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": "m"}, "webhooks": [entry]}, **admin).status == 201
    strict.answer("m", lambda _: set_to("/rules", [{"apiGroups": [""], "resources": ["secrets"], "verbs": ["*"]}]))
    refused = strict("POST", f"/apis/{group}/v1/namespaces/default/roles", {
        "apiVersion": f"{group}/v1", "kind": "Role", "metadata": {"name": "x"}, "rules": []}, authorization="Bearer t")
    assert refused.status == 403
    assert "is attempting to grant RBAC permissions not currently held" in refused.body["message"]
    assert strict.asked()[0]["userInfo"]["username"] == "eve"


def test_webhooks_see_what_the_servers_own_admission_adds_and_it_adds_to_what_they_make(api: Hooked) -> None:
    api("POST", "/apis/scheduling.k8s.io/v1/priorityclasses", {
        "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "high"}, "value": 7})
    api("POST", f"{NAMESPACED}/limitranges", {
        "apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "l"},
        "spec": {"limits": [{"type": "Container", "default": {"cpu": "1"}}]}})
    sidecar = {"name": "sidecar", "image": "i"}
    api.hook("m", lambda _: set_to("/spec/containers/-", sidecar), rules=[on("pods")], mutating=True)
    made = pod(api, priorityClassName="high")
    shown = api.asked()[0]["object"]["spec"]
    assert (shown["priority"], len(shown["tolerations"])) == (7, 2)
    assert [container["resources"]["limits"] for container in shown["containers"]] == [{"cpu": "1"}]
    assert [container["resources"]["limits"] for container in made["spec"]["containers"]] == [{"cpu": "1"}] * 2
    assert len(made["spec"]["tolerations"]) == 2


def test_a_priority_that_contradicts_its_class_is_the_webhooks_to_reset(api: Hooked) -> None:
    api("POST", "/apis/scheduling.k8s.io/v1/priorityclasses", {
        "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "high"}, "value": 7})
    api.hook("m", lambda _: set_to("/spec/priorityClassName", "high"), rules=[on("pods")], mutating=True)
    refused = api("POST", f"{NAMESPACED}/pods", {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"},
                                                 "spec": pod_spec()})
    assert (refused.status, "must not be provided in pod spec" in refused.body["message"]) == (403, True)
    api.answer("m", lambda _: patch({"op": "add", "path": "/spec/priorityClassName", "value": "high"},
                                    {"op": "remove", "path": "/spec/priority"}))
    assert pod(api)["spec"]["priority"] == 7


def test_claims_and_ingresses_are_shown_with_their_default_classes(api: Hooked) -> None:
    default = {"storageclass.kubernetes.io/is-default-class": "true",
               "ingressclass.kubernetes.io/is-default-class": "true"}
    for path, obj in (
            ("/apis/storage.k8s.io/v1/storageclasses",
             {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "provisioner": "p"}),
            ("/apis/networking.k8s.io/v1/ingressclasses",
             {"apiVersion": "networking.k8s.io/v1", "kind": "IngressClass", "spec": {"controller": "example.com/c"}})):
        assert api("POST", path, {**obj, "metadata": {"name": "usual", "annotations": default}}).status == 201
    api.hook("m", rules=[on("persistentvolumeclaims", "ingresses")], mutating=True)
    assert api("POST", f"{NAMESPACED}/persistentvolumeclaims", {
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "c"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}).status == 201
    backend = {"service": {"name": "s", "port": {"number": 80}}}
    assert api("POST", "/apis/networking.k8s.io/v1/namespaces/default/ingresses", {
        "apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": {"name": "i"},
        "spec": {"defaultBackend": backend}}).status == 201
    claim, ingress = (asked["object"] for asked in api.asked())
    assert claim["spec"]["storageClassName"] == ingress["spec"]["ingressClassName"] == "usual"
    assert claim["metadata"]["finalizers"] == ["kubernetes.io/pvc-protection"]
