"""The verbs of single kinds and of Pods' subresources, against the embedded server."""
from __future__ import annotations

import base64

import pytest

from kubectl_runtime import Api, ApiError, ApiResource, Patch, RequestError
from kubectl_runtime.client.api.api import RESTARTED_AT
from kubectl_runtime.client.api.queryable import fetch
from kubectl_runtime.client.api.subresources import Scale, ScaleSpec
from kubectl_runtime.core.meta.gvk import Scope
from kubectl_runtime.core.meta.metav1 import OwnerReference
from kubectl_runtime.core.requests.params import Preconditions
from kubectl_runtime.errors import DiscoveryError
from kubectl_runtime.resources import ConfigMap, Deployment, Node, Pod, ServiceAccount
from kubectl_runtime.testing import ApiServer
from tests.client.wire_server import WireServer

CSR = ApiResource("certificates.k8s.io", "v1", "CertificateSigningRequest", "certificatesigningrequests", Scope.CLUSTER)


@pytest.fixture(scope="module")
def server():
    with ApiServer() as running:
        yield running


@pytest.fixture
def client(server):
    server.restart(fresh=True)
    with server.client() as made:
        yield made


def pod(name="web", **spec):
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"},
            "spec": {"containers": [{"name": "app", "image": "x"}], **spec}}


def test_restart_changes_the_template_as_kubectl_does_and_nothing_else(server, client):
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "app", "image": "x"}]}}
    server.load([{"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": "default"},
                  "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template}}])
    api = Api.namespaced(client, Deployment, "default")
    before = api.get("web")
    after = api.restart("web")
    annotations = after["spec"]["template"]["metadata"]["annotations"]
    assert list(annotations) == [RESTARTED_AT]
    assert after.metadata.generation == before.metadata.generation + 1
    plain = after.to_dict()
    del plain["spec"]["template"]["metadata"]["annotations"]
    assert plain["spec"] == before.to_dict()["spec"]


def test_scale_asks_for_replicas_and_for_nothing_else(server, client):
    server.load([{"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": "default"},
                  "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": {
                      "metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "app", "image": "x"}]}}}}])
    api = Api.namespaced(client, Deployment, "default")
    before = api.get("web").to_dict()["spec"]
    assert api.scale("web", 3, field_manager="me")["spec"]["replicas"] == 3
    after = api.get("web")
    assert after.to_dict()["spec"] == {**before, "replicas": 3}
    assert ("me", "scale") in {(each["manager"], each.get("subresource")) for each in after.metadata.managed_fields}
    api.scale(after, 0)
    assert api.get("web").spec.replicas == 0
    for wrong in (-1, 1.5, "3", True, None):
        with pytest.raises(RequestError, match=r"scale deployments.apps default/web: replicas must be a whole number"):
            api.scale("web", wrong)
    with pytest.raises(ApiError, match="does not serve the subresource 'scale'"):
        Api.namespaced(client, ConfigMap, "default").scale("a", 1)


def scaled(kind):
    """An object of a kind that has the subresource `scale`, and the path of its Scale."""
    if kind == "Widget":
        replicas = {"type": "object", "properties": {"replicas": {"type": "integer"}}}
        schema = {"type": "object", "properties": {"spec": replicas, "status": replicas}}
        yield {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
               "metadata": {"name": "widgets.example.com"},
               "spec": {"group": "example.com", "scope": "Namespaced", "names": {"plural": "widgets", "kind": "Widget"},
                        "versions": [{"name": "v1", "served": True, "storage": True,
                                      "schema": {"openAPIV3Schema": schema},
                                      "subresources": {"scale": {"specReplicasPath": ".spec.replicas",
                                                                 "statusReplicasPath": ".status.replicas"}}}]}}
        yield {"apiVersion": "example.com/v1", "kind": kind, "metadata": {"name": "web", "namespace": "default"},
               "spec": {"replicas": 1}, "status": {"replicas": 1}}
    else:
        template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "app", "image": "x"}]}}
        yield {"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": "web", "namespace": "default"},
               "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template, "serviceName": "web"}
               if kind == "StatefulSet" else {"selector": {"matchLabels": {"a": "b"}}, "template": template}}


@pytest.mark.parametrize(("kind", "selector"), [("Deployment", "a=b"), ("StatefulSet", "a=b"), ("Widget", None)])
def test_a_scale_has_attributes(server, client, kind, selector):
    server.load([*scaled(kind)])
    api = Api.namespaced(client, client.discovery.resolve(kind).resource, "default")
    scale = api.scale("web", 3)
    assert (scale.name, scale.spec.replicas, scale.status.selector) == ("web", 3, selector)
    assert type(scale.status.replicas) is int
    scale.spec.replicas = 0
    assert api.replace_scale("web", scale).spec.replicas == 0
    assert api.get_scale("web").spec.replicas == 0
    if kind != "Widget":  # a real server cannot apply a Scale of a custom resource, either
        wanted = Scale(name="web", spec=ScaleSpec(replicas=2))
        assert api.apply_scale(wanted, field_manager="me", force=True)["spec"]["replicas"] == 2
        assert api.get("web")["spec"]["replicas"] == 2


@pytest.mark.parametrize(("name", "namespace"), [
    ("bindings", "default"), ("bindings", None), ("selfsubjectaccessreviews", None), ("tokenreviews", None),
    ("localsubjectaccessreviews", "default")])
def test_a_kind_that_is_only_created_says_so(client, name, namespace):
    kind = client.discovery.resolve(name).resource
    api = Api.all(client, kind) if namespace is None else Api.namespaced(client, kind, namespace)
    calls = {"listed": api.list, "watched": lambda: next(api.watch()), "deleted as a collection": api.delete_collection}
    if namespace or not kind.namespaced:
        calls |= {"read": lambda: api.get_opt("x"), "deleted": lambda: api.delete("x"),
                  "patched": lambda: api.patch("x", Patch.merge({}))}
    for done, call in calls.items():
        with pytest.raises(ApiError, match=f"{kind.full_name} in {kind.api_version} cannot be {done}: its verbs are "
                                           "create$"):
            call()


@pytest.mark.parametrize("kind", [ConfigMap, Pod, ApiResource("example.com", "v1", "Widget", "widgets")])
def test_a_kind_that_has_the_verb_or_is_not_served_keeps_its_error(client, kind):
    api = Api.namespaced(client, kind, "default")
    expected = "is its CRD installed" if isinstance(kind, ApiResource) else "not found"
    with pytest.raises(ApiError, match=expected):
        api.get("absent")


def test_cordon_and_uncordon(server, client):
    server.load([{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}}])
    api = Api.all(client, Node)
    assert api.cordon("n1").spec.unschedulable is True
    assert not api.uncordon("n1").spec.unschedulable


def test_a_dry_run_of_the_verbs_of_kinds_shows_the_change_and_makes_none(server, client):
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "app", "image": "x"}]}}
    server.load([{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}},
                 {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": "default"},
                  "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template}},
                 signing_request()])
    nodes, requests = Api.all(client, Node), Api.all(client, CSR)
    deployments = Api.namespaced(client, Deployment, "default")

    def versions():
        return [found.resource_version for found in (nodes.get("n1"), deployments.get("web"), requests.get("me"))]

    before = versions()
    assert nodes.cordon("n1", dry_run=True).spec.unschedulable is True
    nodes.uncordon("n1", dry_run=True)
    deployments.restart("web", dry_run=True)
    for verb in (requests.approve, requests.deny):
        assert len(verb("me", "ByHand", dry_run=True)["status"]["conditions"]) == 1
    assert versions() == before


@pytest.mark.parametrize(("verb", "arguments", "kinds"), [
    ("cordon", (), "Node"), ("uncordon", (), "Node"), ("restart", (), "DaemonSet, Deployment, StatefulSet"),
    ("create_token", (), "ServiceAccount"), ("approve", ("Why",), "CertificateSigningRequest"),
    ("deny", ("Why",), "CertificateSigningRequest")])
def test_a_kind_without_the_verb_is_refused_by_name(server, client, verb, arguments, kinds):
    before = len(server.requests)
    with pytest.raises(RequestError, match=f"{verb} is a verb of {kinds}, not of configmaps"):
        getattr(Api.namespaced(client, ConfigMap, "default"), verb)("a", *arguments)
    assert len(server.requests) == before


def test_evict_deletes_the_pod_and_a_budget_forbids_it_at_once(server, client):
    server.load([pod("a"), pod("b")])
    api = Api.namespaced(client, Pod, "default")
    api.evict("a", dry_run=True)
    assert api.get_opt("a") is not None
    api.evict("a")
    assert api.get_opt("a") is None
    with pytest.raises(ApiError) as caught:
        api.evict("b", preconditions=Preconditions(uid="another"))
    assert caught.value.is_conflict
    sent = server.requests.select(path="/api/v1/namespaces/default/pods/b/eviction")[-1].json()
    assert sent["deleteOptions"] == {"preconditions": {"uid": "another"}}


def test_writes_of_subresources_are_told_to_observers(server, client):
    server.load([pod("a")])
    told = []
    client.on_write(lambda write: told.append((write.verb, write.subresource, write.ref.name)))
    Api.namespaced(client, Pod, "default").evict("a", dry_run=True)
    Api.namespaced(client, Pod, "default").evict("a")
    assert told == [("create", "eviction", "a")]


def test_ephemeral_containers_are_added_by_patch_and_by_replace(server, client):
    server.load([pod()])
    api = Api.namespaced(client, Pod, "default")
    shell = {"name": "shell", "image": "busybox"}
    patched = api.patch_ephemeral_containers("web", Patch.strategic({"spec": {"ephemeralContainers": [shell]}}))
    assert [entry["name"] for entry in patched["spec"]["ephemeralContainers"]] == ["shell"]
    body = api.get_ephemeral_containers("web").to_dict()
    body["spec"]["ephemeralContainers"].append({"name": "other", "image": "busybox"})
    replaced = api.replace_ephemeral_containers(body)
    assert [entry["name"] for entry in replaced["spec"]["ephemeralContainers"]] == ["shell", "other"]


def test_resize_changes_resources_of_containers(server, client):
    server.load([pod(containers=[{"name": "app", "image": "x", "resources": {"requests": {"cpu": "1"}}}])])
    api = Api.namespaced(client, Pod, "default")
    change = {"spec": {"containers": [{"name": "app", "resources": {"requests": {"cpu": "2"}}}]}}
    assert api.patch_resize("web", Patch.strategic(change))["spec"]["containers"][0]["resources"]["requests"] == \
        {"cpu": "2"}
    body = api.get_resize("web").to_dict()
    body["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "3"
    assert api.replace_resize(body)["spec"]["containers"][0]["resources"]["requests"] == {"cpu": "3"}


def test_resize_changes_init_containers_and_refuses_what_a_cluster_refuses(server, client):
    """The answers of a real 1.36."""
    asked = {"resources": {"requests": {"cpu": "1"}}}
    server.load([pod(containers=[{"name": "app", "image": "x", **asked}], initContainers=[
        {"name": "side", "image": "x", "restartPolicy": "Always", **asked}, {"name": "plain", "image": "x", **asked}])])
    api = Api.namespaced(client, Pod, "default")

    def resized(requests, *names, kind="initContainers"):
        part = {kind: [{"name": name, "resources": {"requests": requests}} for name in names]}
        return api.patch_resize("web", Patch.strategic({"spec": part}))["spec"]

    assert [container["resources"]["requests"]["cpu"] for container in
            resized({"cpu": "2"}, "side", "plain")["initContainers"]] == ["2", "2"]
    with pytest.raises(ApiError, match=r"spec.initContainers\[1\].resources.requests: Forbidden: "
                                           "resource requests cannot be removed"):
        resized({"cpu": None}, "plain")
    with pytest.raises(ApiError, match="spec: Forbidden: only cpu and memory resources are mutable"):
        resized({"ephemeral-storage": "2"}, "app", kind="containers")
    with pytest.raises(ApiError, match=r"spec.initContainers\[0\]: Forbidden: only cpu and memory resources for "
                                           "init or sidecar containers are mutable"):
        resized({"ephemeral-storage": "2"}, "side")


def test_any_subresource_can_be_read_and_written_by_its_name(server, client):
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "app", "image": "x"}]}}
    server.load([{"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": "default"},
                  "spec": {"replicas": 1, "selector": {"matchLabels": {"a": "b"}}, "template": template}}])
    api = Api.namespaced(client, Deployment, "default")
    scale = api.get_subresource("web", "scale")
    assert (scale["kind"], scale["spec"]["replicas"]) == ("Scale", 1)
    scale["spec"]["replicas"] = 2
    assert api.replace_subresource("web", "scale", scale)["spec"]["replicas"] == 2
    assert api.patch_subresource("web", "scale", Patch.merge({"spec": {"replicas": 5}}))["spec"]["replicas"] == 5
    assert api.get("web")["spec"]["replicas"] == 5


def test_a_token_of_a_service_account_comes_with_its_end_and_is_never_shown(server, client):
    server.load([{"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "robot", "namespace": "default"}},
                 pod(serviceAccountName="robot")])
    api = Api.namespaced(client, ServiceAccount, "default")
    bound = Api.namespaced(client, Pod, "default").get("web").ref
    made = api.create_token("robot", audiences=["vault"], expiration=3600, bound_object=bound)
    assert made.token
    assert made.token not in repr(made)
    assert 3500 < (made.expiration - client.clock.now()).total_seconds() < 3700
    sent = server.requests.select(path="/api/v1/namespaces/default/serviceaccounts/robot/token")[-1].json()
    assert sent["spec"] == {"audiences": ["vault"], "expirationSeconds": 3600,
                            "boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": "web"}}
    with pytest.raises(RequestError, match="at least 600 s"):
        api.create_token("robot", expiration=60)
    with pytest.raises(RequestError, match="audiences must be a list"):
        api.create_token("robot", audiences="vault")


@pytest.mark.parametrize(("verb", "verdict"), [("approve", "Approved"), ("deny", "Denied")])
def test_a_signing_request_is_approved_or_denied_and_keeps_its_other_conditions(server, client, verb, verdict):
    server.load([signing_request()])
    api = Api.all(client, CSR)
    told = getattr(api, verb)("me", "ByHand", "looks right")
    again = getattr(api, verb)("me", "ByHand", "looks right")
    for found in (told, again, api.get_approval("me")):
        (condition,) = found["status"]["conditions"]
        assert (condition["type"], condition["status"], condition["reason"], condition["message"]) == (
            verdict, "True", "ByHand", "looks right")


def signing_request():
    request = base64.b64encode(_signing_request()).decode()
    return {"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest", "metadata": {"name": "me"},
            "spec": {"request": request, "usages": ["client auth"], "signerName": "example.com/mine"}}


def _signing_request():
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "me")])
    made = x509.CertificateSigningRequestBuilder().subject_name(name).sign(key, hashes.SHA256())
    return made.public_bytes(serialization.Encoding.PEM)


def test_what_a_reference_names_is_fetched_wherever_it_is(server, client):
    server.load([pod(), {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}}])
    found = Api.namespaced(client, Pod, "default").get("web")
    owner = OwnerReference(api_version="v1", kind="Pod", name="web", uid=found.metadata.uid)
    assert fetch(client, owner, namespace="default").name == "web"
    assert fetch(client, {"apiVersion": "v1", "kind": "Pod", "name": "web", "namespace": "default"}).name == "web"
    assert fetch(client, {"apiVersion": "v1", "kind": "Node", "name": "n1"}, namespace="default").kind == "Node"
    with pytest.raises(ApiError) as caught:
        fetch(client, OwnerReference(api_version="v1", kind="Pod", name="web", uid="older"), namespace="default")
    assert caught.value.is_not_found
    with pytest.raises(DiscoveryError, match=r"does not serve Widget in example\.com/v1"):
        fetch(client, {"apiVersion": "example.com/v1", "kind": "Widget", "name": "w"})
    with pytest.raises(RequestError, match="a reference needs"):
        fetch(client, {"kind": "Pod", "name": "web"})


def test_the_timeout_of_fetch_is_for_discovery_too():
    def serve(peer):
        while peer.receive():
            peer.answer(503, b"{}", headers=("Retry-After: 60",))

    with WireServer(serve) as server, server.client(timeout=1000) as client, pytest.raises(ApiError):
        fetch(client, {"apiVersion": "example.com/v1", "kind": "Widget", "name": "w"}, timeout=20)
    assert [request.target for request in server.requests] == ["/api"]  # another attempt would come too late
