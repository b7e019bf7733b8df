"""Mutating webhooks: patches, their order, being asked again, and what becomes of the result."""

from __future__ import annotations

from typing import Any

import pytest

from tests.apiserver.webhooks.hooked import PLACE, Hooked, allow, deny, patch, set_to

PATH = "/api/v1/namespaces/default/configmaps"
INTERNAL = "Internal error occurred: "
FAILED = f'{INTERNAL}failed calling webhook "m.hooks.test": '


@pytest.fixture
def api() -> Hooked:
    return Hooked()


def test_a_patch_changes_what_is_stored_and_what_validating_webhooks_see(api: Hooked) -> None:
    api.hook("m", lambda _: set_to("/metadata/labels", {"by": "m"}), mutating=True)
    api.hook("v")
    created = api.create().body
    assert created["metadata"]["labels"] == {"by": "m"} == api.get()["metadata"]["labels"]
    assert api.asked("v")[0]["object"]["metadata"]["labels"] == {"by": "m"}
    assert [name for name, _ in api.reviews] == ["m", "v"]


def test_a_create_is_shown_before_it_has_an_identity(api: Hooked) -> None:
    api.hook("m", mutating=True)
    api.create(generateName="a-", uid="mine", creationTimestamp="2020-01-01T00:00:00Z")
    (asked,) = api.asked()
    assert "name" not in asked
    assert set(asked["object"]["metadata"]) == {"generateName", "namespace", "managedFields"}


def test_each_sees_what_those_before_have_made_in_the_order_of_the_names(api: Hooked) -> None:
    def count(name: str) -> Any:
        return lambda request: set_to(f"/data/{name}", str(len(request["object"]["data"])))

    for name in ("c", "a", "b"):
        api.hook(name, count(name), mutating=True)
    assert api.create().body["data"] == {"k": "v", "a": "1", "b": "2", "c": "3"}


def test_webhooks_of_one_configuration_keep_its_order(api: Hooked) -> None:
    entries = []
    for name in ("z", "a"):
        api.hook(name, mutating=True, configuration=f"gone-{name}")
        configuration = api("GET", "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/"
                                   f"gone-{name}").body
        entries += configuration["webhooks"]
        api("DELETE", f"/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/gone-{name}")
    api.configure("both", entries, mutating=True)
    api.create()
    assert [name for name, _ in api.reviews] == ["z", "a"]


def test_operations_of_one_patch_build_on_each_other(api: Hooked) -> None:
    api.hook("m", lambda _: patch({"op": "add", "path": "/metadata/labels", "value": {}},
                                  {"op": "add", "path": "/metadata/labels/a", "value": "1"},
                                  {"op": "move", "from": "/data/k", "path": "/data/moved"},
                                  {"op": "test", "path": "/data/moved", "value": "v"}), mutating=True)
    created = api.create().body
    assert (created["metadata"]["labels"], created["data"]) == ({"a": "1"}, {"moved": "v"})


def test_a_changed_object_is_shown_again_to_those_that_wish_so(api: Hooked) -> None:
    api.hook("a", mutating=True, reinvocationPolicy="IfNeeded")
    api.hook("b", mutating=True)
    api.hook("c", lambda _: set_to("/data/c", "1"), mutating=True)
    api.hook("d", mutating=True, reinvocationPolicy="IfNeeded")
    api.create()
    assert [name for name, _ in api.reviews] == ["a", "b", "c", "d", "a"]
    assert api.asked("a")[1]["object"]["data"] == {"k": "v", "c": "1"}


def test_a_change_in_the_second_round_is_shown_to_those_after_it(api: Hooked) -> None:
    api.hook("a", lambda request: set_to("/data/a", str(len(request["object"]["data"]))), mutating=True,
             reinvocationPolicy="IfNeeded")
    api.hook("b", lambda _: set_to("/data/b", "1"), mutating=True)
    api.hook("c", mutating=True, reinvocationPolicy="IfNeeded")
    api.create()
    assert [name for name, _ in api.reviews] == ["a", "b", "c", "a", "c"]
    assert api.reviews[-1][1]["object"]["data"] == {"k": "v", "a": "3", "b": "1"}


def test_nobody_is_asked_again_when_nothing_changed(api: Hooked) -> None:
    api.hook("a", mutating=True, reinvocationPolicy="IfNeeded")
    api.hook("b", lambda _: set_to("/data/k", "v"), mutating=True)
    api.create()
    assert [name for name, _ in api.reviews] == ["a", "b"]


def test_who_changes_the_object_is_not_asked_again_for_its_own_change(api: Hooked) -> None:
    api.hook("a", lambda _: set_to("/data/a", "1"), mutating=True, reinvocationPolicy="IfNeeded")
    api.create()
    assert len(api.reviews) == 1


def test_the_second_round_asks_nobody_for_the_first_time(api: Hooked) -> None:
    api.hook("a", mutating=True, reinvocationPolicy="IfNeeded", objectSelector={"matchLabels": {"late": "yes"}})
    api.hook("b", lambda _: set_to("/metadata/labels", {"late": "yes"}), mutating=True)
    api.create()
    assert [name for name, _ in api.reviews] == ["b"]


def test_a_denial_ends_the_round(api: Hooked) -> None:
    api.hook("a", lambda _: deny("no", code=403, reason="Forbidden"), mutating=True)
    api.hook("b", mutating=True)
    refused = api.create()
    assert (refused.status, refused.body["message"]) == (403, 'admission webhook "a.hooks.test" denied the request: no')
    assert [name for name, _ in api.reviews] == ["a"]


@pytest.mark.parametrize(("operation", "why"), [
    ({"op": "remove", "path": "/data/none"},
     "error in remove for path: '/data/none': Unable to remove nonexistent key: none: missing value"),
    ({"op": "remove", "path": "/none/none"},
     'remove operation does not apply: doc is missing path: "/none/none": missing value'),
    ({"op": "add", "path": "/none/none", "value": 1},
     'add operation does not apply: doc is missing path: "/none/none": missing value'),
    ({"op": "replace", "path": "/none/none", "value": 1},
     "replace operation does not apply: doc is missing path: /none/none: missing value"),
    ({"op": "test", "path": "/data/k", "value": "w"}, "testing value /data/k failed: test failed"),
    ({"op": "move", "from": "/none/a", "path": "/data/a"},
     "move operation does not apply: doc is missing from path: /none/a: missing value"),
    ({"op": "jump", "path": "/data/k"}, "Unexpected kind: jump"),
])
def test_a_patch_that_does_not_apply_is_an_error_under_any_policy(api: Hooked, operation: Any, why: str) -> None:
    api.hook("m", lambda _: patch(operation), mutating=True, failurePolicy="Ignore")
    refused = api.create()
    assert (refused.status, refused.body["message"]) == (500, f"{INTERNAL}{why}")


@pytest.mark.parametrize(("answer", "why"), [
    ({"patch": "e30="},
     "received invalid webhook response: webhook returned response.patch but not response.patchType"),
    ({"patchType": "JSONPatch"},
     "received invalid webhook response: webhook returned response.patchType but not response.patch"),
    ({"patchType": "", "patch": "e30="},
     'received invalid webhook response: webhook returned invalid response.patchType of ""'),
    ({"patchType": "Merge", "patch": "W3sib3AiOiJhZGQifV0="}, 'unsupported patch type "Merge"'),
    ({"patchType": "JSONPatch", "patch": "e30="},
     "received undecodable patch in webhook response: json: cannot unmarshal object into Go value of type "
     "jsonpatch.Patch"),
    ({"patchType": "JSONPatch", "patch": "bm8="},
     "received undecodable patch in webhook response: invalid character 'o' in literal null (expecting 'u')"),
])
def test_a_patch_that_is_none_fails_the_call(api: Hooked, answer: Any, why: str) -> None:
    api.hook("m", lambda _: {"allowed": True, **answer}, mutating=True)
    assert api.create().body["message"] == f"{FAILED}{why}"
    ignoring = Hooked()
    ignoring.hook("m", lambda _: {"allowed": True, **answer}, mutating=True, failurePolicy="Ignore")
    assert ignoring.create().status == 201


def test_a_result_that_is_no_such_object_is_an_error(api: Hooked) -> None:
    api.hook("m", lambda _: set_to("/data/k", 1), mutating=True)
    assert api.create().body["message"] == (f"{INTERNAL}json: cannot unmarshal number into Go struct field "
                                            "ConfigMap.data of type string")
    api.answer("m", lambda _: set_to("/kind", "Secret"))
    assert api.create().status == 500
    api.answer("m", lambda _: patch({"op": "replace", "path": "", "value": []}))
    assert api.create().status == 500


def test_a_result_is_defaulted_loses_unknown_fields_and_is_validated(api: Hooked) -> None:
    services = [{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["services"], "operations": ["CREATE"]}]
    api.hook("m", lambda _: patch({"op": "add", "path": "/spec/ports/-", "value": {"port": 81, "name": "b", "x": 1}}),
             mutating=True, rules=services)
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a"},
               "spec": {"ports": [{"port": 80, "name": "a"}]}}
    made = api("POST", "/api/v1/namespaces/default/services", service).body
    assert made["spec"]["ports"][1] == {"name": "b", "protocol": "TCP", "port": 81, "targetPort": 81}
    api.answer("m", lambda _: set_to("/spec/ports/0/port", 0))
    refused = api("POST", "/api/v1/namespaces/default/services", {**service, "metadata": {"name": "b"}})
    assert (refused.status, refused.causes()[0][0]) == (422, "spec.ports[0].port")


def test_a_deletion_has_nothing_to_change(api: Hooked) -> None:
    api.create()
    api.hook("m", lambda _: set_to("/data/x", "y"), mutating=True)
    refused = api("DELETE", f"{PATH}/a")
    assert refused.body["message"] == (f'{INTERNAL}admission webhook "m.hooks.test" attempted to modify the object, '
                                       "which is not supported for this operation")
    api.answer("m", allow)
    assert api("DELETE", f"{PATH}/a").status == 200


def test_a_name_or_namespace_put_in_by_a_webhook(api: Hooked) -> None:
    api.hook("m", lambda _: set_to("/metadata/name", "other"), mutating=True)
    assert api.create("a").body["metadata"]["name"] == "other"
    api.answer("m", lambda _: set_to("/metadata/namespace", "kube-system"))
    assert api.create("b").body["message"] == ("the namespace of the provided object does not match the namespace sent "
                                               "on the request")
    api.answer("m", allow)
    api.create("c")
    api.answer("m", lambda _: set_to("/metadata/name", "other"))
    assert api.merge(f"{PATH}/c", {"data": {"a": "b"}}).status == 422


def test_what_a_webhook_changes_belongs_to_nobody(api: Hooked) -> None:
    api.hook("m", lambda _: set_to("/data/m", "1"), mutating=True)
    created = api.create().body
    assert [entry["fieldsV1"] for entry in created["metadata"]["managedFields"]] == [{"f:data": {".": {}, "f:k": {}}}]
    applied = api("PATCH", f"{PATH}/a", {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"},
                                         "data": {"m": "2"}}, [("fieldManager", "me")],
                  content_type="application/apply-patch+yaml")
    assert applied.status == 200  # no conflict; and the webhook has its way again
    assert applied.body["data"]["m"] == "1"
    assert {entry["manager"] for entry in applied.body["metadata"]["managedFields"]} == {"unknown", "me"}


def test_managers_that_nobody_can_read_are_put_back_with_a_warning(api: Hooked) -> None:
    api.hook("m", lambda _: set_to("/metadata/managedFields/0/operation", "Guess"), mutating=True)
    created = api.create()
    assert created.body["metadata"]["managedFields"][0]["operation"] == "Update"
    assert created.headers["warning"].startswith(
        '299 - ".metadata.managedFields was in an invalid state after admission; this could be caused by an outdated '
        'mutating admission controller; please fix your requests: ')


def test_owners_that_a_webhook_doubles_are_dropped_with_a_warning(api: Hooked) -> None:
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "o", "uid": "u"}
    api.hook("m", lambda _: set_to("/metadata/ownerReferences", [owner, owner]), mutating=True)
    created = api.create()
    assert created.body["metadata"]["ownerReferences"] == [owner]
    assert "after mutating admission happens" in created.headers["warning"]


def test_a_change_that_a_webhook_undoes_stores_nothing(api: Hooked) -> None:
    before = api.create().body
    api.hook("m", lambda request: set_to("/data", request["oldObject"]["data"]), mutating=True)
    after = api.merge(f"{PATH}/a", {"data": {"k": "w"}}).body
    assert after["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"]


def test_the_webhook_is_called_at_its_url_with_the_seconds_that_it_has(api: Hooked) -> None:
    seen: list[dict[str, Any]] = []

    def application(environ: dict[str, Any], start_response: Any) -> list[bytes]:
        seen.append(environ)
        start_response("500 no", [])
        return []

    api.server.mount_webhook(f"{PLACE}/m", application)
    api.hook("m", mutating=True, timeoutSeconds=7, clientConfig={"url": f"{PLACE}/m/deep/er"})
    assert f'Post "{PLACE}/m' not in api.create().body["message"]
    (environ,) = seen
    assert (environ["SCRIPT_NAME"], environ["PATH_INFO"], environ["QUERY_STRING"]) == ("/m", "/deep/er", "timeout=7s")
    assert environ["REQUEST_METHOD"] == "POST"
