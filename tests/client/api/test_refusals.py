"""What a refused or lost call says and does: remedies, warnings, retries, Secrets, headers, sockets."""
from __future__ import annotations

import http.client
import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from kubectl_runtime import (
    Api,
    ApiError,
    Client,
    Config,
    KubeError,
    OutcomeUnknownError,
    Patch,
    RequestError,
    RetryPolicy,
    TransportError,
)
from kubectl_runtime.client.config.config import Impersonation
from kubectl_runtime.client.http.middleware import Answer, Call, Send
from kubectl_runtime.client.http.sockets import TlsSource
from kubectl_runtime.client.wire.carrier import ApiAdapter
from kubectl_runtime.client.wire.connections import request_head
from kubectl_runtime.core.base.errors import error_behind
from kubectl_runtime.core.requests.request import Request
from kubectl_runtime.resources import ConfigMap, Role, RoleBinding, Secret
from kubectl_runtime.resources.rbac_v1 import RoleRef
from tests.client.wire_server import Peer, Received, WireServer, answering, config_map, says, status

FAST = {"retry": RetryPolicy(base=0.001, maximum=0.002)}
OBJECT = says(200, config_map())


def maps(client: Client) -> Api[ConfigMap]:
    return Api.namespaced(client, ConfigMap, "default")


def test_a_401_says_what_to_do_and_is_logged_once_until_a_call_succeeds(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    refusal = says(401, status(401, "Unauthorized", "Unauthorized"))
    with WireServer(answering(refusal, refusal, OBJECT, refusal)) as server, server.client(token="t0ken") as client:
        for succeeds in (False, False, True, False):
            if succeeds:
                maps(client).get("a")
                continue
            with pytest.raises(ApiError) as error:
                maps(client).get("a")
            assert error.value.is_unauthorized
            assert str(error.value).startswith("get configmaps default/a: Unauthorized. The server does not accept "
                                               "the credentials of Config(): log in again")
    assert [record.levelname for record in caplog.records] == ["WARNING"] * 2
    assert "log in again" in caplog.text
    assert "t0ken" not in caplog.text


def test_a_403_of_rbac_names_the_remedy() -> None:
    said = 'configmaps is forbidden: User "u" cannot list resource "configmaps" in API group ""'
    with WireServer(answering(says(403, status(403, "Forbidden", said)))) as server, server.client() as client:
        with pytest.raises(ApiError, match=r'User "u" cannot list .*\. No Role or ClusterRole that is bound') as error:
            maps(client).list()
    assert error.value.remedy.startswith("No Role")
    assert error.value.status.message == said


@pytest.mark.parametrize(("obj", "verb"), [
    (RoleBinding(name="b", role_ref=RoleRef(api_group="rbac.authorization.k8s.io", kind="ClusterRole", name="view")),
     "bind on clusterroles/view"),
    (Role(name="r"), "escalate on roles/r")])
def test_a_403_about_granted_permissions_names_the_verb_that_allows_it(obj: RoleBinding | Role, verb: str) -> None:
    said = 'x is forbidden: user "u" (groups=["g"]) is attempting to grant RBAC permissions not currently held:\n{}'
    with WireServer(answering(says(403, status(403, "Forbidden", said)))) as server, server.client() as client:
        with pytest.raises(ApiError) as error:
            Api.namespaced(client, type(obj), "default").apply(obj, field_manager="me")
    assert str(error.value).endswith(f". Grant this user the permissions not currently held, or grant the verb {verb}")


def test_a_bad_gateway_is_tried_again_for_a_get_and_not_for_a_post() -> None:
    with WireServer(answering(says(502), OBJECT)) as server, server.client(client=FAST) as client:
        assert maps(client).get("a").name == "a"
    with WireServer(answering(says(502), OBJECT)) as server, server.client(client=FAST) as client:
        with pytest.raises(OutcomeUnknownError) as caught:
            maps(client).create({"metadata": {"name": "a"}})
    assert len(server.requests) == 1
    assert isinstance(caught.value.cause, ApiError)
    assert caught.value.cause.code == 502


@pytest.mark.parametrize(("headers", "attempts"), [((), 1), (("Retry-After: 0",), 2)])
def test_a_refused_eviction_is_repeated_only_when_the_server_says_when(headers: Any, attempts: int) -> None:
    refusal = says(429, status(429, "TooManyRequests", "the budget forbids it"), headers=headers)
    with WireServer(answering(refusal, says(201, {}))) as server, server.client(client=FAST) as client:
        with suppress(ApiError):
            maps(client).create_subresource("a", "eviction", {"metadata": {"name": "a"}})
    assert len(server.requests) == attempts


def test_a_put_whose_answer_is_lost_fails_within_seconds_and_may_be_sent_only_once() -> None:
    """The caller decides: with retries off there is no silent second PUT."""
    def cut(peer: Peer, _: Received) -> None:
        peer.reset()

    begin = time.monotonic()
    with WireServer(answering(cut)) as server, server.client(client={"retry": RetryPolicy.never()}) as client:
        with pytest.raises(TransportError, match=r"replace configmaps default/a: the connection .* lost") as error:
            maps(client).replace(config_map())
    assert error.value.sent
    assert len(server.requests) == 1
    assert time.monotonic() - begin < 20


def test_a_conflict_of_an_apply_names_each_manager_and_field_and_is_not_repeated() -> None:
    causes = [{"reason": "FieldManagerConflict", "message": 'conflict with "kubectl"', "field": ".data.k"}]
    said = status(409, "Conflict", 'Apply failed with 1 conflict: conflict with "kubectl": .data.k',
                  details={"causes": causes})
    with WireServer(answering(says(409, said))) as server, server.client(client=FAST) as client:
        with pytest.raises(ApiError) as error:
            maps(client).apply({"metadata": {"name": "a"}, "data": {"k": "v"}}, field_manager="m")
    assert error.value.is_conflict
    assert [(cause.reason, cause.field, cause.message) for cause in error.value.status.causes] == [
        ("FieldManagerConflict", ".data.k", 'conflict with "kubectl"')]
    assert len(server.requests) == 1


def test_a_status_without_its_kind_is_a_status() -> None:
    """As the timeout filter of a real API server sends it."""
    body = {"metadata": {}, "status": "Failure", "reason": "Timeout", "code": 504,
            "message": "request did not complete within the allotted timeout"}
    with WireServer(answering(says(504, body))) as server:
        with server.client(client={"retry": RetryPolicy.never()}) as client, pytest.raises(ApiError) as error:
            maps(client).get("a")
    assert (error.value.reason, error.value.code) == ("Timeout", 504)
    assert str(error.value) == f"get configmaps default/a: {body['message']}"


class TestSecrets:
    def error(self, use: Any, answer: dict[str, Any]) -> ApiError:
        with WireServer(answering(says(answer["code"], answer))) as server, server.client() as client:
            with pytest.raises(ApiError) as error:
                use(Api.namespaced(client, Secret, "default"))
        return error.value

    def test_what_is_said_to_a_read_is_shown(self) -> None:
        said = status(500, "InternalError", "unable to transform key /registry/secrets/default/a")
        for use in (lambda api: api.list(), lambda api: api.get("a")):
            assert "unable to transform key" in str(self.error(use, said))

    @pytest.mark.parametrize("use", [
        lambda api: api.create({"metadata": {"name": "a"}}), lambda api: api.replace({"metadata": {"name": "a"}}),
        lambda api: api.patch("a", Patch.merge({"data": {}})),
        lambda api: api.apply({"metadata": {"name": "a"}}, field_manager="m")])
    def test_of_what_is_said_to_a_write_fields_and_kinds_of_error_are_shown_and_no_value(self, use: Any) -> None:
        causes = [{"field": "data[tls.crt]", "reason": "FieldValueRequired", "message": "geheim"},
                  {"field": "metadata.name", "reason": "FieldValueInvalid", "message": 'Invalid value: "geheim"'}]
        error = self.error(use, status(422, "Invalid", 'Secret "geheim" is invalid', details={"causes": causes}))
        for shown in ("data[tls.crt]: FieldValueRequired", "metadata.name: FieldValueInvalid", "422 Invalid"):
            assert shown in str(error)
        assert "geheim" not in str(error) + repr(error.status)

    @pytest.mark.parametrize("rule", [
        'admission webhook "w" denied the request', "ValidatingAdmissionPolicy 'p' with binding 'b' denied request"])
    def test_the_refusal_of_somebodys_own_rule_may_quote_too(self, rule: str) -> None:
        said = status(403, "Forbidden", f"{rule}: password geheim is too short")
        error = self.error(lambda api: api.create({"metadata": {"name": "a"}}), said)
        assert "geheim" not in str(error) + repr(error.status)


    @pytest.mark.parametrize("code", [403, 409, 503])
    def test_what_says_it_and_is_no_api_server_is_not_quoted_at_all(self, code: int) -> None:
        with WireServer(answering(says(code, b"blocked: geheim", kind="text/plain"))) as server:
            with server.client(client={"retry": RetryPolicy.never()}) as client, pytest.raises(KubeError) as error:
                Api.namespaced(client, Secret, "default").create({"metadata": {"name": "a"}})
        found = error_behind(error.value)
        assert isinstance(found, ApiError)
        assert "geheim" not in str(error.value) + str(found) + repr(found.status)


def headers_of(**config: Any) -> Received:
    with WireServer(answering(OBJECT)) as server, server.client(**config) as client:
        maps(client).get("a")
    return server.requests[0]


@pytest.mark.parametrize("user", ["用户", "jänner", "a b"])
def test_header_values_are_sent_as_utf_8(user: str) -> None:
    sent = headers_of(impersonate=Impersonation(user, (user,), extra={"k": (user,)}), headers={"X-Name": user})
    for name in ("Impersonate-User", "Impersonate-Group", "Impersonate-Extra-k", "X-Name"):
        assert (sent.header(name) or "").encode("latin-1").decode() == user


@pytest.mark.parametrize("config", [
    lambda: {"impersonate": Impersonation("a\r\nX-Evil: 1")}, lambda: {"impersonate": Impersonation("a", ("b\n",))},
    lambda: {"impersonate": Impersonation("", ("g",))}, lambda: {"impersonate": Impersonation("a", ("",))},
    lambda: {"impersonate": Impersonation("a", "group")},
    lambda: {"impersonate": Impersonation("a", extra={"k": ("\x00",)})},
    lambda: {"headers": {"X-A": "a\nb"}}, lambda: {"headers": {"X A": "a"}},
    lambda: {"headers": {"X-A\r\nX-B": "a"}},
    lambda: {"headers": {"X-A": 5}}, lambda: {"headers": {"X-A": "\ud800"}}])
def test_what_no_header_can_carry_is_refused_when_the_client_is_made(config: Callable[[], dict[str, Any]]) -> None:
    with pytest.raises(RequestError) as error:
        Client(Config(cluster_url="http://127.0.0.1:9", **config()))
    assert "Evil" not in str(error.value)


def test_an_observer_that_exits_does_not_fail_the_write(caplog: pytest.LogCaptureFixture) -> None:
    def leave(_: object) -> None:
        raise SystemExit(3)

    with WireServer(answering(says(201, config_map()))) as server, server.client() as client:
        client.on_write(leave)
        assert maps(client).create({"metadata": {"name": "a"}}).name == "a"
    assert "a write observer, given" in caplog.text


def test_a_closed_client_has_closed_its_sockets() -> None:
    ended = threading.Event()

    def serve(peer: Peer) -> None:
        while (request := peer.receive()) is not None:
            OBJECT(peer, request)
        ended.set()

    with WireServer(serve) as server:
        client = server.client()
        maps(client).get("a")
        client.close()
        assert ended.wait(10), "the connection is still open while the client is referenced"
        assert client.default_namespace == "default"


@pytest.mark.parametrize("head", [
    b"HTTP/1.1 200 OK\r\nX-Folded: a\r\n b\r\nContent-Length: 2\r\n\r\n{}",
    b"HTTP/1.1 200 OK\ncontent-length: 2\n\n{}",
    b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}",
    b"HTTP/1.1 200\r\nContent-Length:2\r\n\r\n{}", b"HTTP/1.0 200 OK\r\nConnection: close\r\n\r\n{}",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n"])
def test_heads_of_every_form_are_read(head: bytes) -> None:
    def serve(peer: Peer) -> None:
        peer.receive()
        peer.send(head)
        peer.close()

    with WireServer(serve) as server, server.client(client={"retry": RetryPolicy.never()}) as client:
        answer = client.answer(Request("GET", "/version", "get", None, "get the version"))
    assert (answer.status, answer.body) == (200, b"{}")
    assert b"Folded" not in head or answer.headers["x-folded"].split() == ["a", "b"]


@pytest.mark.parametrize("pieces", [1, 7, 40])
def test_a_head_may_come_in_pieces(pieces: int) -> None:
    whole = b"HTTP/1.1 200 OK\r\nX-Name: a: b\r\nContent-Length: 2\r\n\r\n{}"

    def serve(peer: Peer) -> None:
        peer.receive()
        for begin in range(0, len(whole), pieces):
            peer.send(whole[begin:begin + pieces])
            time.sleep(0.001)  # so that they are packets of their own

    with WireServer(serve) as server, server.client(client={"retry": RetryPolicy.never()}) as client:
        answer = client.answer(Request("GET", "/version", "get", None, "get the version"))
    assert (answer.status, answer.body, answer.headers["x-name"]) == (200, b"{}", "a: b")


@pytest.mark.parametrize(("method", "url", "headers"), [
    ("GET", "/a", {"X-Evil": "1\r\nX-Admin: yes"}), ("GET", "/a", {"X-Evil\r\nX-Admin": "yes"}),
    ("GET", "/a", {"X-Evil": "1\n"}), ("GET", "/a", {"X-Evil": "1\0"}), ("GET", "/a b", {}),
    ("GET", "/a\r\nX-Admin: yes", {}), ("GET", "/a HTTP/1.1\r\nX-Admin: yes\r\nX:", {}), ("G\r\nET", "/a", {}),
    ("GET", "http://proxied/a", {}), ("GET", "/a", {"host": "other"}), ("GET", "/a", {"transfer-encoding": "chunked"})])
def test_a_head_that_is_more_than_it_says_is_left_to_the_standard_library(
        method: str, url: str, headers: dict[str, str]) -> None:
    usual = {"User-Agent": "me", "Accept-Encoding": "identity"}
    assert request_head("GET", "/a?b=c%20d", "h:1", usual) == \
        b"GET /a?b=c%20d HTTP/1.1\r\nHost: h:1\r\nUser-Agent: me\r\nAccept-Encoding: identity\r\n\r\n"
    assert request_head(method, url, "h:1", {**usual, **headers}) is None


@pytest.mark.parametrize("wrong", [{"X-Evil": "1\r\nX-Admin: yes"}, {"X-Evil\r\nX-Admin": "yes"}, {"X-Evil": "用"},
                                   {"X-Evil": None}, {"X-Evil": ["a", "b"]}])
def test_what_a_layer_puts_into_a_header_is_refused_where_no_header_can_carry_it(wrong: dict[str, Any]) -> None:
    def evil(send: Send) -> Send:
        def changed(call: Call) -> Answer:
            call.headers.update(wrong)
            return send(call)
        return changed

    with WireServer(answering(OBJECT)) as server, server.client(client={"layers": [evil]}) as client:
        with pytest.raises(RequestError, match="get configmaps default/a: a layer changed the call") as error:
            maps(client).get("a")
    assert server.requests == []
    assert "Admin" not in str(error.value)


@pytest.mark.parametrize(("url", "host"), [
    ("http://127.0.0.1:8080", "127.0.0.1:8080"), ("http://127.0.0.1", "127.0.0.1"), ("http://[::1]", "[::1]"),
    ("http://[::1]:8080", "[::1]:8080"), ("http://a.example", "a.example"), ("https://a.example:443", "a.example"),
    ("https://a.example:444", "a.example:444"), ("http://a.example:443", "a.example:443")])
def test_the_host_header_is_the_urls_host_with_a_port_that_is_not_the_schemes_own(url: str, host: str) -> None:
    adapter = ApiAdapter(url, size=1, tls=TlsSource(ca=None, insecure=True))
    connection: Any = adapter._pool._new_conn()
    assert connection._host_header() == host
    http.client.HTTPConnection.putrequest(connection, "GET", "/", skip_accept_encoding=True)
    assert connection._buffer[1] == f"Host: {host}".encode()
    adapter.close()
