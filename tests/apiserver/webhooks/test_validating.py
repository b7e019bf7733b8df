"""Validating webhooks: what they are asked, and what their answers do."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.apiserver.webhooks.hooked import PLACE, Hooked, allow, deny

FAILED = 'Internal error occurred: failed calling webhook "v.hooks.test": '


@pytest.fixture
def api() -> Hooked:
    return Hooked()


def test_a_create_is_shown_as_it_will_be_stored(api: Hooked) -> None:
    api.hook("v")
    created = api.create(labels={"a": "b"})
    assert created.status == 201
    (asked,) = api.asked()
    version = created.body["metadata"].pop("resourceVersion")
    assert version
    assert asked["object"] == created.body
    assert len(asked.pop("uid")) == 36
    del asked["object"]
    assert asked == {
        "kind": {"group": "", "version": "v1", "kind": "ConfigMap"},
        "resource": {"group": "", "version": "v1", "resource": "configmaps"},
        "requestKind": {"group": "", "version": "v1", "kind": "ConfigMap"},
        "requestResource": {"group": "", "version": "v1", "resource": "configmaps"},
        "name": "a", "namespace": "default", "operation": "CREATE",
        "userInfo": {"username": "admin", "groups": ["system:masters", "system:authenticated"]},
        "oldObject": None, "dryRun": False, "options": {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"}}


def test_an_update_shows_both_states_and_a_deletion_the_last_one(api: Hooked) -> None:
    before = api.create().body
    api.hook("v")
    after = api.merge("/api/v1/namespaces/default/configmaps/a", {"data": {"k": "w"}}).body
    (asked,) = api.asked()
    assert (asked["operation"], asked["oldObject"]) == ("UPDATE", before)
    assert asked["object"]["data"] == {"k": "w"}
    assert asked["object"]["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"]
    assert asked["options"]["kind"] == "UpdateOptions"
    api.reviews.clear()
    api("DELETE", "/api/v1/namespaces/default/configmaps/a", {"gracePeriodSeconds": 3})
    (asked,) = api.asked()
    assert (asked["operation"], asked["object"], asked["oldObject"]) == ("DELETE", None, after)
    assert asked["options"] == {"kind": "DeleteOptions", "apiVersion": "meta.k8s.io/v1", "gracePeriodSeconds": 3}


def test_options_are_those_of_the_request(api: Hooked) -> None:
    api.hook("v")
    api("POST", "/api/v1/namespaces/default/configmaps",
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}},
        [("fieldManager", "me"), ("fieldValidation", "Strict"), ("dryRun", "All")])
    (asked,) = api.asked()
    assert asked["dryRun"] is True
    assert asked["options"] == {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1", "dryRun": ["All"],
                                "fieldManager": "me", "fieldValidation": "Strict"}


@pytest.mark.parametrize(("status", "code", "reason", "told"), [
    ({"message": "no", "code": 418, "reason": "Teapot"}, 418, "Teapot", ": no"),
    ({"message": "no"}, 400, None, ": no"),
    ({"message": "no", "code": 200, "status": "Success"}, 400, None, ": no"),
    ({"reason": "Forbidden", "code": 403}, 403, "Forbidden", ": Forbidden"),
    ({"message": "no", "code": 100_000}, 500, None, ": no"),
    ({}, 400, None, " without explanation"),
    (None, 400, None, " without explanation"),
])
def test_a_denial_is_the_webhooks_own_status(api: Hooked, status: Any, code: int, reason: str | None, told: str
                                             ) -> None:
    api.hook("v", lambda _: {"allowed": False, **({} if status is None else {"status": status})})
    refused = api.create()
    assert refused.status == code
    assert refused.body["message"] == f'admission webhook "v.hooks.test" denied the request{told}'
    assert (refused.body["status"], refused.body.get("reason"), refused.body["code"]) == ("Failure", reason, code)
    assert api.get()["code"] == 404


def test_details_and_causes_of_a_denial_are_kept(api: Hooked) -> None:
    details = {"name": "a", "causes": [{"field": "data.k", "message": "wrong"}], "retryAfterSeconds": 7}
    api.hook("v", lambda _: deny("no", code=429, details=details))
    refused = api.create()
    assert refused.body["details"] == details
    assert refused.headers["retry-after"] == "7"


def test_all_are_asked_and_the_first_refusal_is_told(api: Hooked) -> None:
    api.hook("c", lambda _: deny("c"))
    api.hook("a", allow)
    api.hook("b", lambda _: deny("b"))
    assert api.create().body["message"].endswith("denied the request: b")
    assert [name for name, _ in api.reviews] == ["a", "b", "c"]


def test_warnings_are_headers_whatever_the_answer(api: Hooked) -> None:
    api.hook("v", lambda _: {"allowed": True, "warnings": ["mind the gap", "and this"]})
    assert api.create("a").headers["warning"] == '299 - "mind the gap"; 299 - "and this"'
    api.answer("v", lambda _: {**deny("no"), "warnings": ["mind the gap"], "auditAnnotations": {"a": "b"}})
    refused = api.create("b")
    assert (refused.status, refused.headers["warning"]) == (400, '299 - "mind the gap"')


@pytest.mark.parametrize(("body", "why"), [
    (b"", "failed to call webhook: 0-length response with status code: 200 and content type: application/json"),
    (b"nope", "failed to call webhook: couldn't get version/kind; json parse error: invalid character 'o' in literal "
              "null (expecting 'u')"),
    (b"{}", "received invalid webhook response: webhook response was absent"),
    (b'{"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1beta1", "response": {"uid": "UID"}}',
     "failed to call webhook: converting (v1beta1.AdmissionReview) to (v1.AdmissionReview): unknown conversion"),
    (b'{"kind": "Pod", "apiVersion": "v1"}',
     'failed to call webhook: no kind "Pod" is registered for version "v1" in scheme "pkg/runtime/scheme.go:110"'),
    (b'{"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": "broken"}',
     "failed to call webhook: broken"),
    (b'{"response": {"uid": "other", "allowed": true}}',
     'received invalid webhook response: expected response.uid="UID", got "other"'),
    (b'{"response": {"uid": "UID", "allowed": true}}',
     "received invalid webhook response: expected webhook response of admission.k8s.io/v1, Kind=AdmissionReview, got "
     "/, Kind="),
    (b'{"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "response": {"uid": "UID", "allowed": "yes"}}',
     "failed to call webhook: json: cannot unmarshal string into Go struct field AdmissionResponse.response.allowed of "
     "type bool"),
    (b'{"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "response": {"uid": "UID", "allowed": true, '
     b'"patch": "W10=", "patchType": "JSONPatch"}}',
     "received invalid webhook response: validating webhook may not return response.patch"),
    (b'{"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "response": {"uid": "UID", "allowed": true, '
     b'"patchType": "JSONPatch"}}',
     "received invalid webhook response: validating webhook may not return response.patchType"),
])
def test_an_answer_that_is_none_fails_the_call(api: Hooked, body: bytes, why: str) -> None:
    api.hook("v")
    uids: list[str] = []
    api.server.mount_webhook(f"{PLACE}/v", lambda environ, start: _lie(body, uids, environ, start))
    refused = api.create()
    assert refused.status == 500
    told = why.replace("UID", uids[0])
    assert refused.body["message"] == f"{FAILED}{told}"
    assert refused.body["reason"] == "InternalError"
    assert refused.body["details"] == {"causes": [{"message": f'failed calling webhook "v.hooks.test": {told}'}]}


def _lie(body: bytes, uids: list[str], environ: dict[str, Any], start_response: Any) -> list[bytes]:
    uids.append(json.loads(environ["wsgi.input"].read())["request"]["uid"])
    start_response("200 OK", [("Content-Type", "application/json")])
    return [body.replace(b"UID", uids[0].encode())]


@pytest.mark.parametrize(("status", "content_type", "body", "why"), [
    ("404 Not Found", "text/plain", b"page not found", "the server could not find the requested resource"),
    ("500 Internal Server Error", "text/plain", b"boom\n",
     'an error on the server ("boom") has prevented the request from succeeding'),
    ("500 Internal Server Error", "application/json", b"boom",
     'an error on the server ("unknown") has prevented the request from succeeding'),
    ("403 Forbidden", "text/html", b"<go away>", "<go away>"),
    ("503 Service Unavailable", "text/plain", b"", "the server is currently unable to handle the request"),
    ("301 Moved Permanently", "text/plain", b"",
     "the server responded with the status code 301 but did not return more information"),
    ("400 Bad Request", "application/json", b'{"kind": "Status", "status": "Failure", "message": "not so"}', "not so"),
])
def test_a_status_that_is_no_success_fails_the_call(api: Hooked, status: str, content_type: str, body: bytes, why: str
                                                    ) -> None:
    def application(_environ: Any, start_response: Any) -> list[bytes]:
        start_response(status, [("Content-Type", content_type)])
        return [body]

    api.server.mount_webhook(f"{PLACE}/v", application)
    api.hook("v")
    assert api.create().body["message"] == f"{FAILED}failed to call webhook: {why}"


def test_a_failed_call_is_ignored_where_the_policy_says_so(api: Hooked) -> None:
    api.hook("v", b"nope", failurePolicy="Ignore")
    assert api.create().status == 201
    assert len(api.reviews) == 1
    api.answer("v", lambda _: deny("no"))
    assert api.create("b").status == 400  # a denial is no failure


def test_v1beta1_is_spoken_where_it_comes_first_and_checked_less(api: Hooked) -> None:
    api.hook("v", b'{"response": {"allowed": true}}', admissionReviewVersions=["v2", "v1beta1", "v1"])
    assert api.create().status == 201
    api.hook("v2", b'{"response": {"uid": "x", "allowed": false, "status": {"message": "old"}}}',
             admissionReviewVersions=["v1beta1"])
    assert api.create("b").body["message"].endswith("denied the request: old")


def test_a_dry_run_asks_only_those_without_side_effects(api: Hooked) -> None:
    api.hook("v", sideEffects="NoneOnDryRun")
    assert api.create(dry_run=True).status == 201
    assert api.asked()[0]["dryRun"] is True
    assert api.get()["code"] == 404
    # Only what was stored before v1 can have others.
    configuration = api("GET", "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/v").body
    configuration["webhooks"][0]["sideEffects"] = "Some"
    cluster = api.server.core.cluster
    with cluster.locked():
        cluster.storage.put("admissionregistration.k8s.io/validatingwebhookconfigurations", configuration, {})
    refused = api.create(dry_run=True)
    assert (refused.status, refused.body["message"]) == (
        400, 'admission webhook "v.hooks.test" does not support dry run')
    assert api.create().status == 201


def test_a_refused_write_leaves_nothing_and_a_refused_deletion_the_object(api: Hooked) -> None:
    before = api.create().body
    api.hook("v", lambda _: deny("no"))
    assert api.merge("/api/v1/namespaces/default/configmaps/a", {"data": {"k": "w"}}).status == 400
    assert api("DELETE", "/api/v1/namespaces/default/configmaps/a").status == 400
    assert api.get() == before


def test_a_deletion_of_a_collection_asks_about_each_object_without_a_name(api: Hooked) -> None:
    for name in ("a", "b"):
        api.create(name)
    api.hook("v", lambda request: deny("not this") if request["oldObject"]["metadata"]["name"] == "b" else allow({}))
    refused = api("DELETE", "/api/v1/namespaces/default/configmaps")
    assert refused.body["message"].endswith("denied the request: not this")
    assert ["name" in asked for asked in api.asked()] == [False, False]
    assert (api.get("a")["code"], api.get("b")["metadata"]["name"]) == (404, "b")


def test_configurations_of_webhooks_are_never_asked_about(api: Hooked) -> None:
    everything = {"apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*/*"], "operations": ["*"]}
    api.hook("v", lambda _: deny("no"), rules=[everything])
    assert api.create().status == 400
    assert api("DELETE", "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/v").status == 200
    assert api.create().status == 201


def test_reviews_of_rights_are_asked_about(api: Hooked) -> None:
    api.hook("v", lambda _: deny("no"), rules=[{"apiGroups": ["authorization.k8s.io"], "apiVersions": ["*"],
                                                "resources": ["*"], "operations": ["*"]}])
    refused = api("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", {
        "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
        "spec": {"nonResourceAttributes": {"path": "/", "verb": "get"}}})
    assert refused.status == 400
    assert api.asked()[0]["kind"]["kind"] == "SelfSubjectAccessReview"


def test_validation_comes_first_and_its_refusal_asks_nobody(api: Hooked) -> None:
    api.hook("v")
    assert api.create("Not A Name").status == 422
    assert api.reviews == []


def test_a_name_that_is_taken_is_told_after_the_webhooks(api: Hooked) -> None:
    api.create()
    api.hook("v")
    assert (api.create().status, len(api.reviews)) == (409, 1)


def test_a_generated_name_is_asked_about_with_the_object(api: Hooked) -> None:
    api.hook("v")
    created = api.create(generateName="a-")
    (asked,) = api.asked()
    assert asked["name"] == asked["object"]["metadata"]["name"] == created.body["metadata"]["name"]
