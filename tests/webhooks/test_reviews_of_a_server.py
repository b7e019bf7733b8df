"""Fifty reviews as a real API server sends them, and the answers that it has to get.

The shapes are those of k8s.io/apiserver's admission/plugin/webhook/request and of the examples in Kubernetes's
documentation: what is null and what is absent, the options of each verb, the kinds below subresources.
"""
from __future__ import annotations

import json
from copy import deepcopy
from typing import Any, NamedTuple

import jsonpatch
import pytest

from tests.webhooks.hooks import everything
from tests.webhooks.reviews import CONTROLLER, KUBELET, UID, conversion, encoded, patched, pod, response, review, stored

APP = everything()
MIRRORED = [{"op": "replace", "path": "/spec/containers/0/image", "value": "mirror/nginx:1.29"}]
EXEC = {"kind": "PodExecOptions", "apiVersion": "v1", "stdin": True, "stdout": True, "tty": True, "container": "c0",
        "command": ["sh"]}
EVICTION = {"kind": "Eviction", "apiVersion": "policy/v1", "metadata": {"name": "web", "namespace": "shop",
                                                                        "creationTimestamp": None}}
BINDING = {"kind": "Binding", "apiVersion": "v1", "metadata": {"name": "web", "namespace": "shop"},
           "target": {"kind": "Node", "name": "worker-1"}}
NAMESPACE = {"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": "shop", "labels": {"team": "a"}},
             "spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"}}


def generated(**more: Any) -> dict[str, Any]:
    found = pod(**more)
    del found["metadata"]["name"]
    found["metadata"]["generateName"] = "web-6f7b9-"
    return found


def untagged() -> dict[str, Any]:
    found = pod()
    found["spec"]["containers"][0]["image"] = "nginx"
    return found


def mirrored() -> dict[str, Any]:
    found = pod()
    found["spec"]["containers"][0]["image"] = "mirror/nginx:1.29"
    return found


def prioritised(value: int) -> dict[str, Any]:
    found = pod()
    found["spec"]["priority"] = value
    return found


def deployment(replicas: int | None = 3) -> dict[str, Any]:
    spec = {"selector": {"matchLabels": {"app": "web"}}, "template": {"metadata": {"creationTimestamp": None}},
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "25%", "maxSurge": "25%"}},
            **({} if replicas is None else {"replicas": replicas})}
    return {"kind": "Deployment", "apiVersion": "apps/v1", "metadata": {"name": "web", "namespace": "shop"},
            "spec": spec, "status": {}}


def scale(replicas: int) -> dict[str, Any]:
    return {"kind": "Scale", "apiVersion": "autoscaling/v1",
            "metadata": {"name": "web", "namespace": "shop", "uid": "x", "resourceVersion": "7"},
            "spec": {"replicas": replicas}, "status": {"replicas": 2, "selector": "app=web"}}


def widget(version: str = "v1", name: str = "w", **spec: Any) -> dict[str, Any]:
    return {"apiVersion": f"example.com/{version}", "kind": "Widget",
            "metadata": {"name": name, "namespace": "shop", "uid": "u-1", "resourceVersion": "5", "generation": 1,
                         "creationTimestamp": "2026-11-28T12:00:00Z", "managedFields": []},
            "spec": {"color": "red", "new": {"deep": [1, 2.0, None]}, **spec}}


class Case(NamedTuple):
    path: str
    body: bytes
    code: int | None = None
    """Of the refusal; None: allowed."""
    message: str = ""
    patch: list[dict[str, Any]] = []  # noqa: RUF012 - never changed
    warnings: list[str] = []  # noqa: RUF012
    version: str = "v1"


SCALE_OF = {"resource": ("apps", "v1", "deployments"), "sub": "scale"}
CASES: dict[str, Case] = {
    # Pods, validated: the object has been through the server's strategy, so it has a uid
    "create": Case("/quota/validate", review(stored(pod()))),
    "create with generateName": Case("/quota/validate", review(generated())),
    "create by a controller": Case("/quota/validate", review(stored(pod()), user=CONTROLLER)),
    "create too many": Case("/quota/validate", review(pod(containers=3)), 403,
                            "3 containers; at most 2 are allowed"),
    "create as a dry run": Case("/quota/validate", review(stored(pod()), dry_run=True)),
    "create warned": Case("/quota/validate", review(untagged()), warnings=["c0: an image without a tag"]),
    "v1beta1": Case("/quota/validate", review(stored(pod()), version="v1beta1"), version="v1beta1"),
    "v1beta1 denied": Case("/quota/validate", review(pod(containers=3), version="v1beta1"), 403,
                           "3 containers; at most 2 are allowed", version="v1beta1"),
    "update": Case("/quota/validate", review(stored(pod()), stored(pod(), "40"))),
    "update warned": Case("/quota/validate", review(prioritised(1), stored(prioritised(9))),
                          warnings=["the priority goes down"]),
    "update by apply": Case("/quota/validate", review(stored(pod()), stored(pod()), options={
        "kind": "PatchOptions", "apiVersion": "meta.k8s.io/v1", "force": True, "fieldManager": "shop",
        "fieldValidation": "Strict"})),
    "create by apply": Case("/quota/validate", review(pod(), options={
        "kind": "PatchOptions", "apiVersion": "meta.k8s.io/v1", "force": False, "fieldManager": "kubectl"})),
    "delete": Case("/quota/validate", review(None, stored(pod()), options={
        "kind": "DeleteOptions", "apiVersion": "meta.k8s.io/v1", "gracePeriodSeconds": 30,
        "propagationPolicy": "Background"})),
    "delete denied": Case("/quota/validate", review(None, stored(pod(metadata={"labels": {"protected": "1"}}))), 409,
                          "it is protected"),
    "delete as a dry run": Case("/quota/validate", review(
        None, stored(pod(metadata={"labels": {"protected": "1"}})), dry_run=True)),
    "one of a deletecollection": Case("/quota/validate", review(None, stored(pod()), options={
        "kind": "DeleteOptions", "apiVersion": "meta.k8s.io/v1", "preconditions": {"uid": "a5b6"}})),
    "ephemeral containers": Case("/quota/validate", review(stored(pod()), stored(pod()), sub="ephemeralcontainers")),
    "status by the kubelet": Case("/quota/validate", review(stored(pod()), stored(pod()), sub="status", user=KUBELET)),
    "resize": Case("/quota/validate", review(stored(pod()), stored(pod()), sub="resize")),
    "a field that nobody knows": Case("/quota/validate", review(stored(pod()), newField={"a": 1})),
    "no extra in userInfo": Case("/quota/validate", review(stored(pod()), user={"username": "jo"})),
    "anonymous": Case("/quota/validate", review(stored(pod()), user={
        "username": "system:anonymous", "groups": ["system:unauthenticated"]})),
    # ... mutated: before it, without one
    "mutate a create": Case("/quota/mutate", review(pod()), patch=MIRRORED),
    "mutate with generateName": Case("/quota/mutate", review(generated()), patch=MIRRORED),
    "mutate an update": Case("/quota/mutate", review(stored(pod()), stored(mirrored())), patch=MIRRORED),
    "mutate nothing": Case("/quota/mutate", review(mirrored())),
    "mutate two": Case("/quota/mutate", review(pod(containers=2)), patch=[
        *MIRRORED, {"op": "replace", "path": "/spec/containers/1/image", "value": "mirror/nginx:1.29"}]),
    "mutate as a dry run": Case("/quota/mutate", review(pod(), dry_run=True), patch=MIRRORED),
    "mutate v1beta1": Case("/quota/mutate", review(pod(), version="v1beta1"), patch=MIRRORED, version="v1beta1"),
    # what is not the kind itself
    "exec": Case("/quota/validate", review(EXEC, operation="CONNECT", sub="exec", name="web", namespace="shop"), 500,
                 "the webhook failed with AttributeError; see its log"),
    "eviction": Case("/labels/validate", review(EVICTION, resource=("", "v1", "pods"), sub="eviction"), 422,
                     "the label team is missing"),
    "binding": Case("/labels/validate", review(BINDING, resource=("", "v1", "pods"), sub="binding"), 422,
                    "the label team is missing"),
    "scale": Case("/scales/validate", review(scale(3), scale(2), **SCALE_OF)),
    "scale denied": Case("/scales/validate", review(scale(6), scale(2), **SCALE_OF), 403, "at most 5 replicas"),
    "deployment": Case("/scales/validate", review(deployment(6)), 403, "at most 5 replicas"),
    "deployment's status": Case("/scales/validate", review(deployment(6), deployment(6), sub="status")),
    "asked for in an older version": Case("/scales/validate", review(
        deployment(), requestKind={"group": "extensions", "version": "v1beta1", "kind": "Deployment"},
        requestResource={"group": "extensions", "version": "v1beta1", "resource": "deployments"})),
    # cluster-scoped, and any kind
    "namespace deleted": Case("/namespaces/validate", review(None, NAMESPACE, namespace="shop")),
    "namespace not deleted": Case("/namespaces/validate", review(None, NAMESPACE, user=CONTROLLER), 403,
                                  "system:serviceaccount:kube-system:replicaset-controller is no administrator"),
    "custom resource": Case("/labels/validate", review(widget()), 422, "the label team is missing"),
    "custom resource mutated": Case("/labels/mutate", review(widget()), patch=[
        {"op": "add", "path": "/metadata/labels", "value": {"team": "kubernetes-admin"}}]),
    "labels that are there": Case("/labels/mutate", review(pod()), patch=[
        {"op": "add", "path": "/metadata/labels/team", "value": "kubernetes-admin"}]),
    "already labelled": Case("/labels/mutate", review(NAMESPACE)),
    "another kind": Case("/quota/validate", review(deployment()), 500,
                         "the webhook failed with RequestError; see its log"),
    "no Pod at all": Case("/quota/validate", review({**pod(), "spec": {"containers": "two"}}), 400,
                          "Pod.v1./web.shop: $.spec.containers: Expected `array`, got `str`"),
    # conversions
    "convert one": Case("/convert", conversion(widget(), to="example.com/v2")),
    "convert a list": Case("/convert", conversion(*(widget(name=str(n)) for n in range(20)), to="example.com/v2")),
    "convert what is right already": Case("/convert", conversion(widget("v2"), widget(), to="example.com/v2")),
    "convert nothing": Case("/convert", conversion(to="example.com/v2")),
    "convert by v1beta1": Case("/convert", conversion(widget(), to="example.com/v2", version="v1beta1"),
                               version="v1beta1"),
}


def test_there_are_fifty() -> None:
    assert len(CASES) == 50


@pytest.mark.parametrize("case", [case for case in CASES.values() if case.path != "/convert"],
                         ids=[name for name, case in CASES.items() if case.path != "/convert"])
def test_an_admission_review_gets_its_answer(case: Case) -> None:
    code, body = APP.answer(case.path, case.body)
    answer = json.loads(body)
    assert (code, answer["kind"], answer["apiVersion"]) == (200, "AdmissionReview", f"admission.k8s.io/{case.version}")
    found = response(body)
    assert found["uid"] == UID
    assert found["allowed"] is (case.code is None)
    assert found.get("warnings", []) == case.warnings
    assert patched(body) == case.patch
    if case.code is not None:
        assert (found["status"]["code"], found["status"]["status"]) == (case.code, "Failure")
        assert found["status"]["message"] == case.message
    if case.patch:  # and nothing else is touched
        received = json.loads(case.body)["request"]["object"]
        expected = deepcopy(received)
        jsonpatch.apply_patch(expected, case.patch, in_place=True)
        assert jsonpatch.apply_patch(received, patched(body)) == expected
        assert found["patchType"] == "JSONPatch"


@pytest.mark.parametrize("case", [case for case in CASES.values() if case.path == "/convert"],
                         ids=[name for name, case in CASES.items() if case.path == "/convert"])
def test_a_conversion_review_gets_its_answer(case: Case) -> None:
    code, body = APP.answer(case.path, case.body)
    answer = json.loads(body)
    asked = json.loads(case.body)["request"]["objects"]
    assert (code, answer["apiVersion"]) == (200, f"apiextensions.k8s.io/{case.version}")
    found = answer["response"]
    assert (found["uid"], found["result"]) == (UID, {"status": "Success"})
    assert [one["metadata"] for one in found["convertedObjects"]] == [one["metadata"] for one in asked]
    for one, before in zip(found["convertedObjects"], asked, strict=True):
        color = before["spec"]["color"] if before["apiVersion"].endswith("v2") else {"name": before["spec"]["color"]}
        assert one == {**before, "apiVersion": "example.com/v2", "spec": {**before["spec"], "color": color}}


@pytest.mark.parametrize(("obj", "to", "code", "message"), [
    (widget("v3"), "example.com/v2", 400, "no functions lead there"),
    (widget(), "other.example.com/v2", 400, "which is in another API group"),
    (widget("v2", "bug", color={"name": "red"}), "example.com/v1", 400, "KeyError: 'color'"),
    ({**widget(), "apiVersion": None}, "example.com/v2", 400, "malformed apiVersion")])
def test_a_conversion_that_fails_says_why_and_converts_nothing(obj: Any, to: str, code: int, message: str) -> None:
    found = response(APP.answer("/convert", conversion(widget(), obj, to=to) if to == "example.com/v2" else conversion(
        obj, to=to))[1])
    assert (found["uid"], found["convertedObjects"]) == (UID, [])
    assert (found["result"]["status"], found["result"]["code"]) == ("Failure", code)
    assert message in found["result"]["message"]


def test_what_a_class_does_not_declare_stays_as_it_came() -> None:
    """Also where a list is changed whose items hide fields, and numbers have forms of their own."""
    received = pod(containers=2)
    body = APP.answer("/quota/mutate", encoded(json.loads(review(received))))[1]
    changed = jsonpatch.apply_patch(received, patched(body))
    for container in changed["spec"]["containers"]:
        assert container.pop("image") == "mirror/nginx:1.29"
    for container in received["spec"]["containers"]:
        container.pop("image")
    assert json.dumps(changed) == json.dumps(received)
