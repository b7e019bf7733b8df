"""A stop token ends a request that a server leaves without an answer; a write is never cut off."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kubectl_runtime import Api, ApiResource, RetryPolicy, StopToken, TransportError
from kubectl_runtime.certificates.authority import Authority
from kubectl_runtime.certificates.contexts import server_context
from kubectl_runtime.core.requests.request import Request
from kubectl_runtime.resources import ConfigMap
from tests.client.wire_server import Peer, WireServer, config_map

RESOURCE = ApiResource("", "v1", "ConfigMap", "configmaps")
LIST = Request("GET", "/api/v1/configmaps", "list", RESOURCE, "list configmaps in all namespaces")
TOO_LONG = 10.0
"""Seconds after which a request that is not interrupted ends by itself, which fails the test."""


def nothing(peer: Peer) -> None:
    """Not a byte."""


def half_a_head(peer: Peer) -> None:
    peer.send(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n")


def half_a_body(peer: Peer) -> None:
    peer.send(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{")


def half_a_chunk(peer: Peer) -> None:
    peer.start_stream()
    peer.send(b"100\r\n{")


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "TLS"])
@pytest.mark.parametrize("part", [nothing, half_a_head, half_a_body, half_a_chunk])
def test_a_call_ends_when_its_token_is_set_whatever_the_server_has_said(part: Callable[[Peer], None],
                                                                        tls: bool) -> None:
    stop = StopToken()

    def serve(peer: Peer) -> None:
        peer.receive()
        part(peer)
        stop.set("the test says so")
        peer.hold()

    context, trust = None, {}
    if tls:
        pytest.importorskip("cryptography", reason="certificates are made with the package cryptography")
        authority = Authority()
        context = server_context(authority.server(("127.0.0.1",)), authority.pem)
        trust = {"ca_data": authority.pem}
    with WireServer(serve, tls=context) as server, server.client(timeout=TOO_LONG, **trust) as client:
        with pytest.raises(TransportError, match="list configmaps in all namespaces: given up, as the test says so"):
            client.request(LIST, stop=stop)
        assert server.connections == 1


@pytest.mark.parametrize("answer", [nothing, Peer.start_stream])
def test_a_token_set_before_a_stream_is_open_ends_it(answer: Callable[[Peer], None]) -> None:
    stop = StopToken()

    def serve(peer: Peer) -> None:
        peer.receive()
        stop.set("the test says so")
        answer(peer)
        peer.hold()

    with WireServer(serve) as server, server.client() as client, pytest.raises(TransportError, match="given up"):
        client.stream(LIST, stop=stop, read_timeout=TOO_LONG)


def test_a_watch_that_is_stopped_before_it_is_open_has_no_events() -> None:
    stop = StopToken()

    def serve(peer: Peer) -> None:
        peer.receive()
        stop.set()
        peer.hold()

    with WireServer(serve) as server, server.client() as client:
        assert list(Api.all(client, ConfigMap).watch(stop=stop)) == []


def test_closing_the_client_ends_reads_and_says_so() -> None:
    def serve(peer: Peer) -> None:
        peer.receive()
        client.close()
        peer.hold()

    with WireServer(serve) as server:
        client = server.client(timeout=TOO_LONG)
        with pytest.raises(TransportError, match="given up, as the client was closed"):
            Api.all(client, ConfigMap).list()


def test_a_token_that_is_set_already_lets_no_request_wait() -> None:
    stop = StopToken()
    stop.set("it is over")

    with WireServer(lambda peer: peer.hold()) as server, server.client(timeout=TOO_LONG) as client:
        with pytest.raises(TransportError, match="given up, as it is over"):
            client.request(LIST, stop=stop)


def test_a_write_under_way_gets_its_answer() -> None:
    stop = StopToken()

    def serve(peer: Peer) -> None:
        peer.receive()
        stop.set("the test says so")
        peer.answer(201, config_map())

    post = Request("POST", "/api/v1/namespaces/default/configmaps", "create", RESOURCE, "create configmaps default/a",
                   body=b"{}")
    with WireServer(serve) as server, server.client(client={"retry": RetryPolicy.never()}) as client:
        assert b'"uid-a"' in client.request(post, stop=stop)
