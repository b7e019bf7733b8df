"""What a look-up, a connection or an answer that fails leaves behind: no socket, no connection after a stop, no old
failure."""
from __future__ import annotations

import gc
import socket
import time
from collections.abc import Callable

import pytest
from urllib3.exceptions import HTTPError, ProxyError

from kubectl_runtime import StopToken
from kubectl_runtime.client.config.proxies import Proxy
from kubectl_runtime.client.http.middleware import Call
from kubectl_runtime.client.http.send import Interrupt
from kubectl_runtime.client.http.sockets import ApiSocket
from kubectl_runtime.client.wire.carrier import ApiAdapter, _IdleConnections
from kubectl_runtime.client.wire.connections import ApiConnection, Limits
from kubectl_runtime.client.wire.dialing import dial, look_up
from kubectl_runtime.core.base.threads import SYSTEM_CLOCK
from kubectl_runtime.core.requests.request import Request
from tests.client.wire_server import Peer, WireServer

SOON = 20.0
"""Seconds; no row waits for them."""


def open_sockets() -> set[int]:
    return {id(one) for one in gc.get_objects() if isinstance(one, ApiSocket) and one.fileno() >= 0}


def refused(_: StopToken) -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return int(listening.getsockname()[1])


def stopped(stop: StopToken) -> int:
    stop.set("the test says so")
    return refused(stop)


@pytest.mark.parametrize("port_for", [refused, stopped])
def test_a_socket_that_was_not_connected_is_closed_even_while_the_error_is_kept(
        port_for: Callable[[StopToken], int]) -> None:
    stop = StopToken()
    port, before = port_for(stop), open_sockets()
    with pytest.raises(ConnectionError) as kept, Interrupt(stop) as interrupt:
        dial("127.0.0.1", port, time.monotonic() + SOON, interrupt, None)
    assert open_sockets() <= before
    assert kept.value.__traceback__ is not None  # its frames still have the socket


@pytest.mark.parametrize("answer", [b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n", b"no HTTP\r\n\r\n", b""])
def test_the_connection_to_a_proxy_that_makes_no_tunnel_is_closed_even_while_the_error_is_kept(answer: bytes) -> None:
    def serve(peer: Peer) -> None:
        peer.receive()
        peer.send(answer)

    with WireServer(serve) as proxy:
        connection = ApiConnection("cluster.test", 443, via=Proxy.of(f"http://127.0.0.1:{proxy.port}"))
        connection.limits = Limits(SOON, SOON)
        before = open_sockets()
        with pytest.raises(ProxyError) as kept:
            connection.connect()
        connection.limits.interrupt.release()
        assert open_sockets() <= before
        assert kept.value.__traceback__ is not None


@pytest.mark.parametrize("sent", [b"", b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{"])
def test_the_connection_of_an_answer_that_does_not_come_whole_is_closed_even_while_the_error_is_kept(
        sent: bytes) -> None:
    def serve(peer: Peer) -> None:
        peer.receive()
        peer.send(sent)
        peer.hold()

    call = Call(Request("GET", "/x", "get", None, "get x"), SYSTEM_CLOCK.monotonic() + SOON, StopToken(),
                headers={"User-Agent": "test", "Accept-Encoding": "identity"})
    with WireServer(serve) as server:
        call.url = f"{server.url}/x"
        adapter, before = ApiAdapter(server.url, size=1), open_sockets()
        with pytest.raises((TimeoutError, HTTPError)) as kept, Interrupt() as interrupt:
            adapter.carry(call, Limits(SOON, 0.2, interrupt), SYSTEM_CLOCK)
        assert open_sockets() <= before
        assert kept.value.__traceback__ is not None
        adapter.close()


@pytest.mark.parametrize("stops", [True, False])
def test_a_connection_that_a_stop_has_shut_down_is_not_kept_open_for_the_next_call(stops: bool) -> None:
    """The stop came between the answer's last byte and the connection's way back."""
    stop, idle = StopToken(), _IdleConnections(2)
    one, other = socket.socketpair()
    with one, other, Interrupt(stop) as interrupt:
        connection = ApiConnection("cluster.test", 80)
        connection.sock, connection.limits = one, Limits(SOON, SOON, interrupt)
        interrupt.begin(one)
        if stops:
            stop.set()
        idle.put(connection)
        assert (connection.sock is None) is stops


def test_no_server_sees_a_connection_of_a_call_that_was_stopped_before() -> None:
    stop = StopToken()
    stop.set("the test says so")
    with socket.create_server(("127.0.0.1", 0)) as listening:
        with pytest.raises(ConnectionAbortedError), Interrupt(stop) as interrupt:
            dial("127.0.0.1", listening.getsockname()[1], time.monotonic() + SOON, interrupt, None)
        listening.setblocking(False)
        with pytest.raises(BlockingIOError):
            listening.accept()


@pytest.mark.parametrize("error", [socket.gaierror(socket.EAI_AGAIN, "try again"), OSError("no more files")])
def test_a_name_that_was_not_found_once_is_looked_up_again(error: OSError, monkeypatch: pytest.MonkeyPatch) -> None:
    resolve, failures = socket.getaddrinfo, [error]

    def name_server(host: str, *more: object) -> object:
        if failures:
            raise failures.pop()
        return resolve("127.0.0.1", *more)  # type: ignore[call-overload]

    monkeypatch.setattr(socket, "getaddrinfo", name_server)
    with Interrupt() as interrupt:
        with pytest.raises(type(error)):
            look_up("back.test", 80, time.monotonic() + SOON, interrupt)
        assert look_up("back.test", 80, time.monotonic() + SOON, interrupt)[0][4][:2] == ("127.0.0.1", 80)
