"""What a write finds at its connection's end: an idle one that has ended is replaced before the write is put on it;
one that was never made is no open question, and one that breaks under the write is.
"""
from __future__ import annotations

import gc
import os
import socket
import ssl
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from kubectl_runtime import Api, ApiError, Client, Config, OutcomeUnknownError, RetryPolicy, TransportError
from kubectl_runtime.resources import ConfigMap
from tests.client.wire_server import Peer, WireServer, config_map

pytest.importorskip("cryptography", reason="certificates are made with the package cryptography")
from kubectl_runtime.certificates.authority import Authority
from kubectl_runtime.certificates.bundles import server_context

AUTHORITY = Authority()


def say_goodbye(peer: Peer) -> None:
    """TLS's own end, before TCP's."""
    connection: Any = peer._socket
    if isinstance(connection, ssl.SSLSocket):
        connection.settimeout(0.05)  # it also waits for the other side's
        with suppress(OSError):
            connection.unwrap()
    peer.close()


def time_out(peer: Peer) -> None:
    """As HAProxy and others do with a connection on which nothing came."""
    peer.send(b"HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
    peer.close()


ENDS: dict[str, Callable[[Peer], None]] = {
    "closed": Peer.close, "reset": Peer.reset, "said goodbye": say_goodbye, "timed out": time_out}


@pytest.mark.direct("the client sees at once that the server has ended it")
@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("secure", [False, True], ids=["http", "https"])
def test_a_write_is_put_on_no_connection_that_has_ended(secure: bool, end: str) -> None:
    read, ended = threading.Event(), threading.Event()

    def once(peer: Peer) -> None:
        if peer.receive() is not None:
            peer.answer(200, config_map())
            assert read.wait(20)  # a reset would take the answer back
            read.clear()
            ENDS[end](peer)
            ended.set()

    tls = server_context(AUTHORITY.server(("127.0.0.1",)), AUTHORITY.pem) if secure else None
    trust = {"ca_data": AUTHORITY.pem} if secure else {}
    with WireServer(once, tls=tls) as server, server.client(client={"retry": RetryPolicy.never()}, **trust) as client:
        maps = Api.namespaced(client, ConfigMap, "default")
        for write in (lambda: maps.create(ConfigMap(name="a")), lambda: maps.replace(ConfigMap(name="a")),
                      lambda: maps.delete("a"), lambda: maps.create(ConfigMap(name="a"))):
            write()
            read.set()
            assert ended.wait(20)
            ended.clear()
    assert [request.method for request in server.requests] == ["POST", "PUT", "DELETE", "POST"]


@pytest.mark.parametrize("secure", [False, True], ids=["http", "https"])
def test_one_that_ends_under_a_write_leaves_the_outcome_open(secure: bool) -> None:
    def second_is_reset(peer: Peer) -> None:
        if peer.receive() is not None:
            peer.answer(200, config_map())
        if peer.receive() is not None:
            peer.reset()

    tls = server_context(AUTHORITY.server(("127.0.0.1",)), AUTHORITY.pem) if secure else None
    trust = {"ca_data": AUTHORITY.pem} if secure else {}
    with WireServer(second_is_reset, tls=tls) as server, server.client(**trust) as client:
        maps = Api.namespaced(client, ConfigMap, "default")
        maps.get("a")
        with pytest.raises(OutcomeUnknownError, match="lost"):
            maps.create(ConfigMap(name="a"))
    assert [request.method for request in server.requests] == ["GET", "POST"]
    assert server.connections == 1


def broken_record(peer: Peer) -> None:
    if peer.receive() is not None:
        descriptor = socket.socket(fileno=os.dup(peer._socket.fileno()))
        descriptor.sendall(b"\x17\x03\x03\x00\x20" + b"x" * 32)
        descriptor.close()
        peer.hold()


def test_tls_that_breaks_under_a_write_leaves_the_outcome_open() -> None:
    tls = server_context(AUTHORITY.server(("127.0.0.1",)), AUTHORITY.pem)
    with WireServer(broken_record, tls=tls) as server, server.client(ca_data=AUTHORITY.pem) as client:
        with pytest.raises(OutcomeUnknownError, match="TLS broke off"):
            Api.namespaced(client, ConfigMap, "default").create(ConfigMap(name="a"))
    assert len(server.requests) == 1


@pytest.mark.parametrize("through_proxy", [False, True])
def test_a_handshake_that_is_never_answered_has_sent_nothing(through_proxy: bool) -> None:
    words = r"the proxy http://[\d.:]+ gives no .* timed out" if through_proxy else r"cannot connect to .* in time"
    over = threading.Event()
    with WireServer(lambda _: over.wait(20) and None) as silent:
        url = "https://cluster.example.com" if through_proxy else silent.url.replace("http:", "https:")
        proxy = silent.url if through_proxy else None
        with Client(Config(cluster_url=url, ca_data=AUTHORITY.pem, proxy_url=proxy, timeout=0.3)) as client:
            with pytest.raises(TransportError, match=words) as caught:
                Api.namespaced(client, ConfigMap, "default").create(ConfigMap(name="a"))
        over.set()
    assert not caught.value.sent
    assert not isinstance(caught.value, OutcomeUnknownError)


def test_a_proxy_that_speaks_no_http_has_sent_nothing() -> None:
    def greet(peer: Peer) -> None:
        if peer.receive() is not None:
            peer.send(b"220 mail.example.com ESMTP\r\n\r\n")

    quick = RetryPolicy(base=0.001, maximum=0.002)
    with WireServer(greet) as proxy:
        with Client(Config(cluster_url="https://cluster.example.com", proxy_url=proxy.url), retry=quick) as client:
            with pytest.raises(TransportError, match="the proxy's answer to CONNECT is not HTTP") as caught:
                Api.namespaced(client, ConfigMap, "default").create(ConfigMap(name="a"))
    assert not isinstance(caught.value, OutcomeUnknownError)


def in_another_coding(peer: Peer) -> None:
    peer.send(b"HTTP/1.1 403 Forbidden\r\nContent-Encoding: br\r\nContent-Length: 9\r\n\r\nHTTP")


def half_a_body(peer: Peer) -> None:
    peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{")


def no_answer(_: Peer) -> None:
    """Not a byte."""


@pytest.mark.direct("a proxy ends the connection to the server in its own time")
@pytest.mark.parametrize("answer", [in_another_coding, half_a_body, no_answer])
def test_a_connection_whose_answer_was_not_read_to_its_end_is_closed_at_once_and_not_used_again(
        answer: Callable[[Peer], None]) -> None:
    closed = threading.Event()

    def serve(peer: Peer) -> None:
        assert peer.receive() is not None
        if peer.number > 1:
            return peer.answer(200, config_map())
        answer(peer)
        if peer.receive() is None:
            closed.set()
        return None

    gc.disable()  # it does not depend on when Python collects garbage
    try:
        with WireServer(serve) as server, server.client(client={"retry": RetryPolicy.never()}) as client:
            maps = Api.namespaced(client, ConfigMap, "default")
            with pytest.raises((ApiError, TransportError)) as kept:
                maps.get("a", timeout=0.3)
            assert maps.get("a").name == "a"
            assert closed.wait(20)
            assert kept.value is not None
        assert server.connections == 2
    finally:
        gc.enable()
