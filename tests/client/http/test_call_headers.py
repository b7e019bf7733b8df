"""What calls carry over real sockets: credentials, headers, the user's layers; and threads that share a client."""

from __future__ import annotations

import logging
import threading
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from kubectl_runtime import Api, ApiError, ApiResource, Client, Config, RetryPolicy
from kubectl_runtime.client.config.checks import Impersonation
from kubectl_runtime.client.http.middleware import Answer, Call, Send
from kubectl_runtime.core.requests.request import Request, Retry
from kubectl_runtime.resources import ConfigMap
from tests.client.wire_server import Peer, Received, WireServer, answering, config_map, says

RESOURCE = ApiResource("", "v1", "ConfigMap", "configmaps")
GET = Request(
    "GET", "/api/v1/namespaces/default/configmaps/a", "get", RESOURCE, "get configmaps default/a", "default", "a"
)
POST = Request(
    "POST",
    "/api/v1/namespaces/default/configmaps",
    "create",
    RESOURCE,
    "create configmaps default/a",
    "default",
    "a",
    body=b"{}",
    retry=Retry.UNSENT_ONLY,
)
APPLY = Request("PATCH", GET.path, "apply", RESOURCE, "apply configmaps default/a", "default", "a", body=b"{}")
FAST = {"retry": RetryPolicy(base=0.001, maximum=0.002)}


class TestCredentials:
    def test_after_a_401_the_token_is_read_again_and_the_call_sent_once_more(self, tmp_path: Path) -> None:
        token = tmp_path / "token"
        token.write_text("one")

        def check(peer: Peer, request: Received) -> None:
            peer.answer(200 if request.header("Authorization") == f"Bearer {accepted}" else 401)

        accepted = "one"
        with WireServer(answering(check)) as server, server.client(token_file=str(token)) as client:
            client.request(GET)
            accepted = "two"
            with pytest.raises(ApiError) as error:
                client.request(GET)
            assert error.value.is_unauthorized
            token.write_text("two")
            client.request(GET)
        sent = [request.header("Authorization") for request in server.requests]
        assert sent == ["Bearer one", "Bearer one", "Bearer one", "Bearer two"]

    def test_without_a_newer_token_a_401_is_final_at_once(self, tmp_path: Path) -> None:
        (tmp_path / "token").write_text("one")
        with WireServer(answering(says(401))) as server, server.client(token_file=str(tmp_path / "token")) as client:
            with pytest.raises(ApiError):
                client.request(GET)
        assert len(server.requests) == 1

    def test_watches_are_authenticated_the_same_way(self, tmp_path: Path) -> None:
        token = tmp_path / "token"
        token.write_text("one")

        def check(peer: Peer, request: Received) -> None:
            if request.header("Authorization") == "Bearer two":
                peer.answer(200, b"")
            else:
                token.write_text("two")
                peer.answer(401)

        with WireServer(answering(check)) as server, server.client(token_file=str(token)) as client:
            client.stream(GET).close()
        assert len(server.requests) == 2

    def test_no_credential_is_in_any_log_line(self, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.DEBUG)
        with WireServer(answering(says(401), says(503), says())) as server:
            with server.client(token="geheim", client=FAST) as client:
                with pytest.raises(ApiError):
                    client.request(GET)
                client.request(GET)
                assert "geheim" not in repr(client) + repr(client.config)
        assert server.requests
        assert "geheim" not in caplog.text


class TestHeaders:
    def headers(self, request: Request = GET, **config: Any) -> Received:
        with WireServer(answering(says())) as server, server.client(**config) as client:
            client.request(request)
        return server.requests[0]

    def test_impersonation_sends_each_group_on_a_line_of_its_own(self) -> None:
        who = Impersonation("jane", ("a", "b,c"), "7", {"example.com/Scopes": ("x", "y")})
        sent = self.headers(impersonate=who)
        assert sent.header("Impersonate-User") == "jane"
        assert sent.all_of("Impersonate-Group") == ["a", "b,c"]
        assert sent.header("Impersonate-Uid") == "7"
        assert sent.all_of("Impersonate-Extra-example.com%2Fscopes") == ["x", "y"]

    def test_headers_of_the_config_are_sent_and_those_of_the_request_win(self) -> None:
        sent = self.headers(
            replace(GET, headers=(("Accept", "a/b"),)),
            headers={"x-mine": "1", "accept": "c/d"},
        )
        assert sent.all_of("X-Mine") == ["1"]
        assert sent.all_of("Accept") == ["a/b"]

    @pytest.mark.parametrize(("compression", "expected"), [(True, "gzip"), (False, "identity")])
    def test_compression_can_be_turned_off(self, compression: bool, expected: str) -> None:
        assert self.headers(compression=compression).all_of("Accept-Encoding") == [expected]

    def test_a_compressed_answer_is_unpacked(self) -> None:
        import gzip

        packed = gzip.compress(b'{"a": 1}')
        with (
            WireServer(answering(says(200, packed, headers=("Content-Encoding: gzip",)))) as server,
            server.client() as client,
        ):
            assert client.request(GET) == b'{"a": 1}'

    @pytest.mark.parametrize("path", ["", "/k8s/clusters/c-1", "/k8s/clusters/c-1/"])
    def test_a_path_in_the_servers_url_is_a_prefix(self, path: str) -> None:
        with WireServer(answering(says())) as server, Client(Config(cluster_url=server.url + path)) as client:
            client.request(GET)
            client.stream(GET).close()
            client.server_version()
        prefix = path.rstrip("/")
        assert [request.target for request in server.requests] == [
            prefix + GET.path,
            prefix + GET.path,
            prefix + "/version",
        ]

    def test_warnings_are_logged_once_each(self, caplog: pytest.LogCaptureFixture) -> None:
        both = 'Warning: 299 - "v1 is \\"old\\"", 299 - "unknown field"'
        with WireServer(answering(says(headers=(both,)))) as server, server.client() as client:
            client.request(GET)
            client.request(GET)
        assert [record.getMessage() for record in caplog.records] == [
            'get configmaps default/a: the API server warns: v1 is "old"',
            "get configmaps default/a: the API server warns: unknown field",
        ]

    def test_a_server_that_always_warns_of_something_else_fills_neither_memory_nor_log(
            self, caplog: pytest.LogCaptureFixture) -> None:
        answers = [says(headers=["Warning: " + ", ".join(f'299 - "{answer}-{number}"' for number in range(110))])
                   for answer in range(10)]
        with WireServer(answering(*answers)) as server, server.client() as client:
            for _ in answers:
                client.request(GET)
            assert len(client._warnings._told) == 1001
        assert len(caplog.records) == 1001
        assert "1000 different warnings; further warnings are not logged" in caplog.records[-1].getMessage()


class TestLayers:
    def test_the_users_layers_see_each_attempt_with_its_headers(self) -> None:
        seen = []

        def spy(send: Send) -> Send:
            def spied(call: Call) -> Answer:
                answer = send(call)
                seen.append((call.attempt, call.url, call.headers["Authorization"], answer.status))
                return answer

            return spied

        with WireServer(answering(says(503), says())) as server:
            with server.client(token="t", client={**FAST, "layers": [spy]}) as client:
                client.request(GET)
        assert seen == [(0, server.url + GET.path, "Bearer t", 503), (1, server.url + GET.path, "Bearer t", 200)]

    def test_the_first_layer_is_outermost(self) -> None:
        order = []

        def named(name: str) -> Any:
            def layer(send: Send) -> Send:
                def sent(call: Call) -> Answer:
                    order.append(name)
                    return send(call)

                return sent

            return layer

        with (
            WireServer(answering(says())) as server,
            server.client(client={"layers": [named("a"), named("b")]}) as client,
        ):
            client.request(GET)
        assert order == ["a", "b"]


def test_threads_share_a_client_and_its_connections_stay_few() -> None:
    wrong: list[object] = []

    def echo(peer: Peer) -> None:
        while (request := peer.receive()) is not None:
            peer.answer(200, config_map(request.target.rpartition("/")[2]))

    def use(worker: int) -> None:
        api = Api.namespaced(client, ConfigMap, "default")
        for number in range(50):
            name = f"w{worker}-{number}"
            if api.get(name).name != name:
                wrong.append(name)

    with WireServer(echo) as server, server.client(client={"workers": 8}) as client:
        threads = [threading.Thread(target=use, args=(worker,)) for worker in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not wrong
        assert len(server.requests) == 400
        assert server.connections <= 8


def test_more_threads_than_the_pool_holds_wait_for_nothing_and_flood_no_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    together = threading.Barrier(12)

    def meet(peer: Peer) -> None:
        while peer.receive() is not None:
            together.wait(10)
            peer.answer()

    with WireServer(meet) as server, server.client(client={"workers": 1}) as client:
        for _ in range(2):
            threads = [threading.Thread(target=client.request, args=(GET,)) for _ in range(12)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        assert server.connections == 12 + 7  # five were kept
        client.grow(20)
        for thread in [threading.Thread(target=client.request, args=(GET,)) for _ in range(12)]:
            thread.start()
            threads.append(thread)
        for thread in threads:
            thread.join()
    assert caplog.text == ""
