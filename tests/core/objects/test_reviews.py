"""Admission and conversion reviews: what the server asks, and what it is answered."""
from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from kubectl_runtime.core.base.errors import RequestError
from kubectl_runtime.core.meta.gvk import GroupVersionKind, GroupVersionResource
from kubectl_runtime.core.meta.problems import DecodeError
from kubectl_runtime.core.objects.admission import AdmissionResponse, AdmissionReview
from kubectl_runtime.core.objects.conversion import ConversionResponse, ConversionReview
from tests.core.examples import Widget, encoded, metadata

WIDGET = {"apiVersion": "demo.example.com/v1", "kind": "Widget", "metadata": metadata(), "spec": {"replicas": 2}}
REQUEST: dict[str, Any] = {
    "uid": "u-9", "kind": {"group": "demo.example.com", "version": "v1", "kind": "Widget"},
    "resource": {"group": "demo.example.com", "version": "v1", "resource": "widgets"}, "subResource": "scale",
    "name": "a", "namespace": "ns", "operation": "UPDATE",
    "userInfo": {"username": "jo", "uid": "1", "groups": ["a", "b"], "extra": {"k": ["v"]}},
    "object": WIDGET, "oldObject": None, "dryRun": False, "options": {"kind": "UpdateOptions"}}


def admission(version: str = "v1", **more: Any) -> bytes:
    return encoded({"apiVersion": f"admission.k8s.io/{version}", "kind": "AdmissionReview", "request": REQUEST | more})


def answer(review: AdmissionReview | ConversionReview) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(review.encode())
    return found


def test_a_request_says_who_wants_what() -> None:
    request = AdmissionReview.decode(admission()).request
    assert request is not None
    assert request.kind == GroupVersionKind("demo.example.com", "v1", "Widget")
    assert request.resource == GroupVersionResource("demo.example.com", "v1", "widgets")
    assert (request.operation, request.sub_resource, request.user_info.username) == ("UPDATE", "scale", "jo")
    assert request.user_info.groups == ("a", "b")


def test_objects_of_a_request_are_decoded_on_demand() -> None:
    request = AdmissionReview.decode(admission(object={**WIDGET, "spec": {"replicas": "two"}})).request
    assert request is not None
    assert request.old_object(Widget) is None
    found = request.object(Widget)
    assert found is not None
    assert found.name == "a"
    with pytest.raises(DecodeError, match=r"\$\.spec\.replicas"):
        _ = found.spec
    deleted = AdmissionReview.decode(admission(object=None, oldObject=WIDGET)).request
    assert deleted is not None
    old = deleted.old_object(Widget)
    assert deleted.object(Widget) is None
    assert old is not None
    assert old.spec.replicas == 2


@pytest.mark.parametrize("version", ["v1", "v1beta1"])
def test_an_answer_has_the_uid_and_the_version_of_the_question(version: str) -> None:
    review = AdmissionReview.decode(admission(version))
    assert review.request is not None
    assert answer(AdmissionResponse.of(review.request).into_review(review)) == {
        "apiVersion": f"admission.k8s.io/{version}", "kind": "AdmissionReview",
        "response": {"uid": "u-9", "allowed": True}}


def test_a_refusal_has_a_reason_and_a_code() -> None:
    request = AdmissionReview.decode(admission()).request
    assert request is not None
    denied = AdmissionResponse.of(request).with_warnings("w").deny("too many")
    assert answer(denied.into_review())["response"] == {
        "uid": "u-9", "allowed": False, "warnings": ["w"],
        "status": {"status": "Failure", "message": "too many", "code": 403}}
    with pytest.raises(RequestError, match="denied"):
        denied.with_patch([])


def test_a_patch_is_base64_of_json() -> None:
    request = AdmissionReview.decode(admission()).request
    assert request is not None
    operations = [{"op": "add", "path": "/metadata/labels", "value": {"a": "ü"}}]
    changed = AdmissionResponse.of(request).with_patch(operations).with_audit_annotations({"a": "b"})
    sent = answer(changed.into_review())["response"]
    assert json.loads(base64.b64decode(sent["patch"])) == operations == changed.patch_operations()
    assert (sent["patchType"], sent["auditAnnotations"], sent["allowed"]) == ("JSONPatch", {"a": "b"}, True)
    assert changed.deny("no").patch_operations() == []


def test_a_policy_sees_plain_values() -> None:
    request = AdmissionReview.decode(admission()).request
    assert request is not None
    variables = request.cel_variables()
    assert (variables["object"], variables["oldObject"]) == (WIDGET, None)
    assert variables["request"]["userInfo"] == REQUEST["userInfo"]
    assert variables["request"]["operation"] == "UPDATE"
    assert "object" not in variables["request"]


@pytest.mark.parametrize("body", [
    b"", b"{}", b"[]", b'{"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1"}',
    encoded({"apiVersion": "apps/v1", "kind": "AdmissionReview", "request": REQUEST}),
    encoded({"apiVersion": "admission.k8s.io/v1", "kind": "Deployment", "request": REQUEST}),
    admission(uid=""), admission(kind=5)])
def test_what_is_no_review_is_refused_and_can_be_answered(body: bytes) -> None:
    with pytest.raises(DecodeError):
        AdmissionReview.decode(body)
    with pytest.raises(DecodeError):
        ConversionReview.decode(body)
    sent = answer(AdmissionResponse.invalid("no review").into_review())
    assert sent["apiVersion"] == "admission.k8s.io/v1"
    assert sent["response"] == {"uid": "", "allowed": False, "status": {
        "status": "Failure", "message": "no review", "reason": "InvalidRequest", "code": 400}}


def conversion(**more: Any) -> bytes:
    return encoded({"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview", "request": {
        "uid": "u-7", "desiredAPIVersion": "demo.example.com/v2", "objects": [WIDGET], **more}})


def test_objects_are_converted_or_none_is() -> None:
    review = ConversionReview.decode(conversion())
    assert review.request is not None
    assert (review.request.desired_api_version, review.request.objects) == ("demo.example.com/v2", (WIDGET,))
    response = ConversionResponse.of(review.request)
    assert answer(response.into_review(review))["response"]["result"]["status"] == "Failure"
    done = response.success([{**WIDGET, "apiVersion": "demo.example.com/v2"}, Widget.from_dict(WIDGET)])
    assert answer(done.into_review(review)) == {
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview", "response": {
            "uid": "u-7", "result": {"status": "Success"},
            "convertedObjects": [{**WIDGET, "apiVersion": "demo.example.com/v2"}, WIDGET]}}
    failed = answer(done.failure("cannot").into_review())["response"]
    assert failed == {"uid": "u-7", "convertedObjects": [],
                      "result": {"status": "Failure", "message": "cannot", "code": 400}}
    assert answer(ConversionResponse.invalid("x").into_review())["response"]["uid"] == ""
