"""The request verifier: expected calls are made, others are refused, and both are told."""
from __future__ import annotations

import pytest
import requests

from kubectl_runtime import Api, ApiError, Patch, TransportError
from kubectl_runtime.resources import ConfigMap, Deployment, Secret
from kubectl_runtime.testing import RequestVerifier
from kubectl_runtime.testing.request_verifier import UnexpectedRequest


def a_map(name="a", **data):
    return ConfigMap(name=name, namespace="default", data=data)


def maps(server):
    return Api.namespaced(server.client, ConfigMap, "default")


def test_expected_calls_are_answered_in_any_order():
    with RequestVerifier() as server:
        server.expect("get", ConfigMap, "a", namespace="default").answer(a_map(key="value"))
        server.expect("list", ConfigMap, namespace="default").answer([a_map("x"), a_map("y")])
        assert [each.name for each in maps(server).list()] == ["x", "y"]
        assert maps(server).get("a").data == {"key": "value"}
        assert [(call.method, call.path) for call in server.calls] == [
            ("GET", "/api/v1/namespaces/default/configmaps"), ("GET", "/api/v1/namespaces/default/configmaps/a")]


def test_writes_are_answered_with_what_was_sent():
    with RequestVerifier() as server:
        server.expect("create", ConfigMap).body(lambda body: body["data"] == {"k": "v"})
        server.expect("patch", ConfigMap, "a").query(fieldManager="me")
        server.expect("update", ConfigMap, "a")
        server.expect("delete", ConfigMap, "a")
        created = maps(server).create(a_map(k="v"))
        assert (created.name, created.data, created.metadata.resource_version) == ("a", {"k": "v"}, "1")
        assert created.uid
        assert maps(server).apply(a_map(k="w"), field_manager="me").data == {"k": "w"}
        maps(server).replace(created)
        maps(server).delete("a")


def test_a_call_that_nobody_expects_is_told_where_it_is_made_and_at_the_end():
    with pytest.raises(AssertionError) as caught:
        with RequestVerifier() as server:
            server.expect("get", ConfigMap, "a").answer(a_map())
            with pytest.raises(UnexpectedRequest, match=r"not expected: delete DELETE /api/v1/.*/configmaps/a"):
                maps(server).delete("a")
            maps(server).get("a")
    assert "not expected: delete" in str(caught.value)
    assert "GET /api/v1/namespaces/default/configmaps/a" in str(caught.value)


def test_with_a_call_that_nobody_expects_those_are_told_that_still_are():
    with pytest.raises(AssertionError), RequestVerifier() as server:
        server.expect("patch", Deployment, "web", subresource="status")
        with pytest.raises(UnexpectedRequest, match=r"still expected: patch deployments\.apps/status web"):
            maps(server).delete("a")


def test_a_call_that_is_never_made_is_told():
    with pytest.raises(AssertionError, match=r"never called: patch deployments.apps/status default/web"):
        with RequestVerifier() as server:
            server.expect("patch", Deployment, "web", namespace="default", subresource="status")


def test_an_error_of_the_block_is_not_hidden_by_what_it_left_out():
    with pytest.raises(ZeroDivisionError), RequestVerifier() as server:
        server.expect("get", ConfigMap, "a")
        _ = 1 / 0


def test_a_second_call_is_one_too_many_unless_it_is_expected():
    with RequestVerifier() as server:
        server.expect("get", ConfigMap, "a").answer(a_map(n="1")).answer(a_map(n="2")).times(3)
        assert [maps(server).get("a").data["n"] for _ in range(3)] == ["1", "2", "2"]
        with pytest.raises(UnexpectedRequest):
            maps(server).get("a")
        with pytest.raises(AssertionError):
            server.verify()
        server._wrong.clear()


def test_the_order_counts_if_the_test_says_so():
    server = RequestVerifier(in_order=True)
    server.expect("get", ConfigMap, "a").answer(a_map())
    server.expect("get", ConfigMap, "b").answer(a_map("b"))
    with pytest.raises(UnexpectedRequest, match=r"get configmaps \*?a was expected first"):
        maps(server).get("b")
    server.client.close()


@pytest.mark.parametrize(("change", "told"), [
    (lambda expected: expected.query(fieldManager="other"), "fieldManager=other was expected"),
    (lambda expected: expected.body(a_map(k="other")), r"(?s)its body differs.*-  k: other\n.*\+  k: v"),
    (lambda expected: expected.body([{"op": "add"}]), "not the expected list, but a dict"),
    (lambda expected: expected.body(lambda body: body["data"] == {}), "the test's function does not accept its body"),
    (lambda expected: expected.body(_complains), "no such key")])
def test_what_differs_is_told(change, told):
    server = RequestVerifier()
    change(server.expect("patch", ConfigMap, "a"))
    with pytest.raises(UnexpectedRequest, match=told):
        maps(server).apply(a_map(k="v"), field_manager="me")
    server.client.close()


def test_values_of_secrets_are_not_told():
    server = RequestVerifier()
    server.expect("create", Secret).body({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"},
                                          "stringData": {"key": "hush"}})
    with pytest.raises(UnexpectedRequest, match="its body differs") as caught:
        Api.namespaced(server.client, Secret, "default").create(Secret(name="a", string_data={"key": "hushhush"}))
    assert "hush" not in str(caught.value)
    server.client.close()


def _complains(body):
    assert "no such key" in body


def test_refusals_and_broken_connections():
    with RequestVerifier() as server:
        server.expect("get", ConfigMap, "a").refuse(404)
        server.expect("update", ConfigMap, "a").refuse(409, message="somebody was faster")
        server.expect("create", ConfigMap).fail(requests.ConnectionError("reset"))
        assert maps(server).get_opt("a") is None
        with pytest.raises(ApiError, match="somebody was faster"):
            maps(server).replace(ConfigMap.from_dict({"metadata": {"name": "a", "resourceVersion": "1"}}))
        with pytest.raises(TransportError, match="reset"):
            maps(server).create(a_map())


def test_retries_pass_at_once():
    with RequestVerifier() as server:
        server.expect("get", ConfigMap, "a").refuse(503).refuse(503).answer(a_map()).times(3)
        assert maps(server).get("a").name == "a"
        assert server.clock.monotonic() > 0


def test_a_watch_ends_after_its_events():
    with RequestVerifier() as server:
        server.expect("watch", ConfigMap).events(("ADDED", a_map()), ("DELETED", a_map("b")))
        assert [(event.type, event.obj.name) for event in maps(server).watch()] == [("ADDED", "a"), ("DELETED", "b")]


def test_what_is_about_no_kind():
    with RequestVerifier() as server:
        server.expect_path("GET", "/version").answer({"major": "1", "minor": "36", "gitVersion": "v1.36.2"})
        assert server.client.server_version()


@pytest.mark.parametrize("wrong", [
    lambda server: server.expect("fetch", ConfigMap), lambda server: server.expect("list", ConfigMap, "a"),
    lambda server: server.expect("create", ConfigMap, "a"), lambda server: server.expect("get", ConfigMap).times(0),
    lambda server: server.expect("get", ConfigMap).refuse(200),
    lambda server: server.expect("watch", ConfigMap).events(a_map())])
def test_expectations_that_no_call_can_meet_are_refused(wrong):
    with pytest.raises(ValueError, match=r"verb|name|calls|from 400 to 599|not an event"):
        wrong(RequestVerifier())


def test_a_merge_patch_needs_an_answer():
    server = RequestVerifier()
    server.expect("patch", ConfigMap, "a")
    with pytest.raises(ValueError, match=r"add .answer"):
        maps(server).patch("a", Patch.merge({"data": {}}))
    server.client.close()
