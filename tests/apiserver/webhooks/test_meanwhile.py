"""What happens while a webhook is asked: the server goes on, and the write notices what has changed."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from kubectl_runtime.apiserver.controllers.namespace_controller import PER_STEP
from kubectl_runtime.apiserver.webhooks.calls import MAX_ATTEMPTS
from tests.apiserver.kinds.kindapi import pod_spec
from tests.apiserver.webhooks.hooked import CONFIGMAPS, Hooked, allow, deny, set_to
from tests.apiserver.webhooks.test_conversion import definition

PATH = "/api/v1/namespaces/default/configmaps"
UPDATES = [{**CONFIGMAPS, "operations": ["UPDATE"]}]


@pytest.fixture
def api() -> Hooked:
    return Hooked()


def once(effect: Any, answer: Any = None) -> Any:
    """An answer that has an effect the first time."""
    left = [effect]

    def answering(request: dict[str, Any]) -> dict[str, Any]:
        while left:
            left.pop()()
        return answer or allow(request)

    return answering


def put(api: Hooked, name: str, **data: str) -> Any:
    """A write that asks no webhook: a create, or a change behind the server's back."""
    cluster = api.server.core.cluster
    with cluster.locked():
        current = cluster.storage.get("/configmaps", "default", name)
        assert current is not None
        return cluster.storage.put("/configmaps", {**current.decode(), "data": data}, {})


def test_the_server_answers_others_while_a_webhook_is_asked(api: Hooked) -> None:
    asked, go_on, answers = threading.Event(), threading.Event(), []

    def wait(_request: dict[str, Any]) -> dict[str, Any]:
        asked.set()
        assert go_on.wait(30)
        return {"allowed": True}

    api.hook("v", wait)
    thread = threading.Thread(target=lambda: answers.append(api.create().status))
    thread.start()
    assert asked.wait(30)
    assert api("GET", PATH).status == 200
    assert api("POST", "/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace",
                                              "metadata": {"name": "n"}}).status == 201
    go_on.set()
    thread.join(30)
    assert answers == [201]


@pytest.mark.parametrize("mutating", [True, False])
def test_a_patch_that_was_overtaken_begins_anew(api: Hooked, *, mutating: bool) -> None:
    api.create(data={"n": "0"})
    api.hook("w", once(lambda: put(api, "a", n="0", other="1"), set_to("/data/m", "1") if mutating else None),
             mutating=mutating, rules=UPDATES)
    patched = api.merge(f"{PATH}/a", {"data": {"n": "1"}})
    assert patched.status == 200
    assert patched.body["data"] == {"n": "1", "other": "1", **({"m": "1"} if mutating else {})}
    assert len(api.reviews) == 2
    assert api.asked()[1]["oldObject"]["data"] == {"n": "0", "other": "1"}


def test_a_put_that_was_overtaken_is_a_conflict_if_it_names_a_version(api: Hooked) -> None:
    before = api.create().body
    api.hook("w", once(lambda: put(api, "a", n="1")), rules=UPDATES)
    assert api("PUT", f"{PATH}/a", {**before, "data": {"n": "2"}}).status == 409
    del before["metadata"]["resourceVersion"]
    api.answer("w", once(lambda: put(api, "a", n="3")))
    assert api("PUT", f"{PATH}/a", {**before, "data": {"n": "4"}}).body["data"] == {"n": "4"}


def test_an_object_that_went_meanwhile_is_not_found(api: Hooked) -> None:
    api.create()
    api.hook("w", once(lambda: api("DELETE", f"{PATH}/a")), rules=UPDATES)
    assert api.merge(f"{PATH}/a", {"data": {"n": "1"}}).status == 404
    assert api.get()["code"] == 404


def test_an_object_that_came_meanwhile_is_in_the_way(api: Hooked) -> None:
    other = Hooked.create
    api.hook("v", once(lambda: other(api, data={"by": "webhook"})))
    assert api.create(data={"by": "client"}).status == 409
    assert api.get()["data"] == {"by": "webhook"}


def test_a_deletion_asks_again_about_what_changed_meanwhile(api: Hooked) -> None:
    api.create()
    api.hook("v", once(lambda: put(api, "a", n="1")), rules=[{**CONFIGMAPS, "operations": ["DELETE"]}])
    assert api("DELETE", f"{PATH}/a").status == 200
    assert [asked["oldObject"]["data"] for asked in api.asked()] == [{"k": "v"}, {"n": "1"}]


def test_warnings_of_an_attempt_that_was_overtaken_are_not_told(api: Hooked) -> None:
    api.create()
    api.hook("w", once(lambda: put(api, "a", n="1"), {"allowed": True, "warnings": ["careful"]}), rules=UPDATES)
    assert api.merge(f"{PATH}/a", {"data": {"n": "2"}}).headers["warning"] == '299 - "careful"'


def test_a_webhook_that_always_overtakes_ends_with_a_timeout(api: Hooked) -> None:
    api.create()
    number = iter(range(10_000))

    def overtake(_request: dict[str, Any]) -> dict[str, Any]:
        put(api, "a", n=str(next(number)))
        return {"allowed": True}

    api.hook("w", overtake, rules=UPDATES)
    refused = api.merge(f"{PATH}/a", {"data": {"k": "w"}})
    assert (refused.status, refused.body["reason"]) == (504, "Timeout")
    assert len(api.reviews) == MAX_ATTEMPTS


def test_a_request_has_so_much_time_for_all_its_webhooks(api: Hooked) -> None:
    def slow(_request: dict[str, Any]) -> dict[str, Any]:
        api.clock.advance(20)
        return {"allowed": True}

    timeouts: list[str] = []

    def application(environ: dict[str, Any], start_response: Any) -> Any:
        timeouts.append(environ["QUERY_STRING"])
        return api._application(environ, start_response)

    api.server.mount_webhook("https://hooks.test/", application)
    for name in ("a", "b", "c"):
        api.hook(name, slow, mutating=True, timeoutSeconds=30, failurePolicy="Ignore")
    refused = api.create()
    assert timeouts == ["timeout=30s", "timeout=14s"]
    assert (refused.status, refused.body["message"]) == (
        504, "Timeout: request did not complete within requested timeout - context deadline exceeded")


@pytest.mark.parametrize(("policy", "status"), [("Fail", 500), ("Ignore", 201)])
def test_an_answer_after_the_timeout_comes_too_late(api: Hooked, policy: str, status: int) -> None:
    def slow(_request: dict[str, Any]) -> dict[str, Any]:
        api.clock.advance(3.5)
        return deny("too late")

    api.hook("v", slow, timeoutSeconds=3, failurePolicy=policy)
    answer = api.create()
    assert answer.status == status
    if policy == "Fail":
        assert answer.body["message"] == (
            'Internal error occurred: failed calling webhook "v.hooks.test": failed to call webhook: Post '
            '"https://hooks.test/v?timeout=3s": context deadline exceeded')


def test_addresses_that_were_taken_meanwhile_are_not_given_twice(api: Hooked) -> None:
    services = "/api/v1/namespaces/default/services"

    def service(name: str, **spec: Any) -> dict[str, Any]:
        return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name},
                "spec": {"ports": [{"port": 80}], **spec}}

    taken = api("POST", services, service("probe")).body["spec"]["clusterIP"]
    api("DELETE", f"{services}/probe")
    rules = [{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["services"], "operations": ["CREATE"]}]
    api.hook("v", once(lambda: api("POST", services, service("other", clusterIP=taken))), rules=rules)
    refused = api("POST", services, service("probe"))
    assert refused.status == 422
    assert "provided IP is already allocated" in refused.body["message"]


def test_controllers_ask_too_and_try_again_what_was_refused(api: Hooked) -> None:
    api("POST", "/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n"}})
    api("POST", "/api/v1/namespaces/n/configmaps", {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}})
    api.hook("v", lambda _: deny("no"), rules=[{**CONFIGMAPS, "operations": ["DELETE"]}])
    api("DELETE", "/api/v1/namespaces/n")
    assert api("GET", "/api/v1/namespaces/n").body["status"]["phase"] == "Terminating"
    tries = len(api.reviews)
    assert tries
    for _ in range(3):
        api.clock.advance(5)
        api.settle()
    assert len(api.reviews) > tries
    api.answer("v", allow)
    api.clock.advance(60)
    api.settle()
    assert api("GET", "/api/v1/namespaces/n").status == 404


def test_what_a_webhook_keeps_in_a_namespace_does_not_keep_the_rest(api: Hooked) -> None:
    api("POST", "/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n"}})
    for number in range(PER_STEP + 50):
        api("POST", "/api/v1/namespaces/n/configmaps", {
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": f"c{number:03}"}})
    api.hook("v", lambda request: deny("no") if request["name"] < f"c{PER_STEP:03}" else allow(request),
             rules=[{**CONFIGMAPS, "operations": ["DELETE"]}])
    api("DELETE", "/api/v1/namespaces/n")
    assert len(api("GET", "/api/v1/namespaces/n/configmaps").body["items"]) == PER_STEP
    assert len(api.reviews) < 2 * PER_STEP + 100


def test_a_definition_is_established_when_webhooks_let_it(api: Hooked) -> None:
    api.hook("v", lambda _: deny("no"), rules=[{
        "apiGroups": ["apiextensions.k8s.io"], "apiVersions": ["v1"], "operations": ["UPDATE"],
        "resources": ["customresourcedefinitions/status"]}])
    definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    assert api("POST", definitions, definition()).status == 201
    assert api("GET", f"{definitions}/widgets.example.com").body["status"]["conditions"] is None
    api.answer("v", allow)
    api.clock.advance(1)
    api.settle()
    assert api("GET", "/apis/example.com/v1/namespaces/default/widgets").status == 200


def test_pods_that_were_denied_are_made_when_webhooks_let_them() -> None:
    api = Hooked(controllers=("replicaset",))
    api.hook("v", lambda _: deny("no"), rules=[{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"],
                                                "operations": ["CREATE"]}])
    template = {"metadata": {"labels": {"app": "a"}}, "spec": pod_spec()}
    assert api("POST", "/apis/apps/v1/namespaces/default/replicasets", {
        "apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "a"},
        "spec": {"replicas": 2, "selector": {"matchLabels": {"app": "a"}}, "template": template}}).status == 201
    for _ in range(100):
        api.clock.advance(10)
        api.settle()
    assert 10 < len(api.reviews) < 100  # later each time
    api.answer("v", allow)
    api.clock.advance(60)
    api.settle()
    assert len(api("GET", "/api/v1/namespaces/default/pods").body["items"]) == 2


def test_a_webhook_may_use_the_server_while_a_controller_asks_it() -> None:
    api = Hooked(controllers=("replicaset", "garbage-collector", "namespace"))

    def answering(request: dict[str, Any]) -> dict[str, Any]:
        assert api("GET", "/api/v1/namespaces/default").status == 200
        api.create(f"seen-{len(api.reviews)}")
        return set_to("/metadata/labels/by", "webhook")

    api.hook("m", answering, mutating=True, rules=[{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"],
                                                    "operations": ["CREATE"]}])
    template = {"metadata": {"labels": {"app": "a"}}, "spec": pod_spec()}
    assert api("POST", "/apis/apps/v1/namespaces/default/replicasets", {
        "apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "a"},
        "spec": {"replicas": 3, "selector": {"matchLabels": {"app": "a"}}, "template": template}}).status == 201
    pods = api("GET", "/api/v1/namespaces/default/pods").body["items"]
    assert [entry["metadata"]["labels"] for entry in pods] == [{"app": "a", "by": "webhook"}] * 3
    assert len(api("GET", PATH).body["items"]) == 3
    assert {asked["userInfo"]["username"] for asked in api.asked()} == {"system:kube-controller-manager"}


def test_a_transport_that_a_webhook_uses_inside_of_a_controllers_step_comes_back(api: Hooked) -> None:
    import requests

    session = requests.Session()
    session.mount("https://", api.server.transport())

    def answering(_request: dict[str, Any]) -> dict[str, Any]:
        assert session.get("https://server/api/v1/namespaces/default").status_code == 200
        return {"allowed": True}

    api("POST", "/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n"}})
    api("POST", "/api/v1/namespaces/n/configmaps", {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}})
    api.hook("v", answering)
    assert session.delete("https://server/api/v1/namespaces/n").status_code == 200
    assert session.get("https://server/api/v1/namespaces/n").status_code == 404
    assert len(api.reviews) == 1


def test_without_configurations_a_write_asks_nothing(api: Hooked, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> Any:
        raise AssertionError("asked")

    for name in ("writes.admitted", "writes.approved", "writes.json_copy", "writes.shown", "handlers.change.json_copy",
                 "handlers.delete.admit_deletion"):
        monkeypatch.setattr(f"kubectl_runtime.apiserver.{name}", refuse)
    assert api.create().status == 201
    assert api.merge(f"{PATH}/a", {"data": {"k": "w"}}).status == 200
    assert api("DELETE", f"{PATH}/a").status == 200
