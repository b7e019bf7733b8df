"""A stop token ends a request that a server leaves without an answer; a write is never cut off."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from kubectl_runtime import Api, ApiError, ApiResource, Client, Config, RetryPolicy, StopToken, TransportError
from kubectl_runtime.certificates.authority import Authority
from kubectl_runtime.certificates.bundles import server_context
from kubectl_runtime.client.http.middleware import Answer, Call, Send
from kubectl_runtime.client.http.send import Fence, Interrupt, Reachability, exchange
from kubectl_runtime.core.base.observer import NO_OBSERVER, extensible
from kubectl_runtime.core.base.threads import SYSTEM_CLOCK
from kubectl_runtime.core.requests.request import Request
from kubectl_runtime.core.scope import FirstOf, RunScope, current_scope, enter_scope, leave_scope
from kubectl_runtime.resources import ConfigMap
from tests.client.meanwhile import Meanwhile
from tests.client.wire_server import Peer, WireServer, config_map

RESOURCE = ApiResource("", "v1", "ConfigMap", "configmaps")
LIST = Request("GET", "/api/v1/configmaps", "list", RESOURCE, "list configmaps in all namespaces")
TOO_LONG = 20.0
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
        with pytest.raises(TransportError, match="list configmaps in all namespaces: given up, because the"):
            client.request(LIST, stop=stop)
        assert server.connections == 1


class Opened:
    """The open body of an answer."""

    def __init__(self) -> None:
        self.closed = 0

    def close(self) -> None:
        self.closed += 1


@pytest.mark.parametrize(("opened", "stops"), [(True, True), (False, True), (True, False)],
                         ids=["stream", "body", "not stopped"])
def test_an_answer_that_comes_after_the_stop_is_closed(opened: bool, stops: bool) -> None:
    stop, body = StopToken(), Opened() if opened else None

    class Wire:
        def carry(self, call: Call, connect: float, left: float, interrupt: Interrupt) -> Answer:
            if stops:
                stop.set("the test says so")
            return Answer(200, {}, b"", body)  # type: ignore[arg-type]

    send = exchange(Wire, Config(cluster_url="http://127.0.0.1:9"), SYSTEM_CLOCK, Reachability(),
                    extensible(NO_OBSERVER), None)
    call = Call(LIST, SYSTEM_CLOCK.monotonic() + 10, stop, streaming=opened)
    if stops:
        with pytest.raises(TransportError, match="given up, because the test says so"):
            send(call)
        assert body is None or body.closed == 1
    else:
        assert send(call).response is body
        assert body is not None
        assert not body.closed


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
        with pytest.raises(TransportError, match="given up, because the client was closed"):
            Api.all(client, ConfigMap).list()


def test_a_token_that_is_set_already_lets_no_request_wait() -> None:
    stop = StopToken()
    stop.set("it is over")

    with WireServer(lambda peer: peer.hold()) as server, server.client(timeout=TOO_LONG) as client:
        with pytest.raises(TransportError, match="given up, because it is over"):
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


POST = Request("POST", "/api/v1/namespaces/default/configmaps", "create", RESOURCE, "create configmaps default/a",
               body=b"{}")


def test_a_write_under_way_gets_its_answer_from_a_client_that_is_closed_meanwhile() -> None:
    def serve(peer: Peer) -> None:
        peer.receive()
        client.close()
        peer.answer(201, config_map())

    with WireServer(serve) as server:
        client = server.client(client={"retry": RetryPolicy.never()}, timeout=TOO_LONG)
        assert b'"uid-a"' in client.request(POST)


def sent_by(carry: Callable[[Call, float, Interrupt], Answer]) -> Send:
    """Sends over a wire that does this; its second argument is the limit for connecting."""
    class Wire:
        def carry(self, call: Call, connect: float, left: float, interrupt: Interrupt) -> Answer:
            return carry(call, connect, interrupt)

    return exchange(Wire, Config(cluster_url="http://127.0.0.1:9"), SYSTEM_CLOCK, Reachability(),
                    extensible(NO_OBSERVER), None)


@pytest.mark.parametrize("request_of", [POST, LIST])
def test_no_connection_is_made_for_a_write_that_may_be_sent_no_more(request_of: Request) -> None:
    limits: list[float] = []

    def carry(call: Call, connect: float, interrupt: Interrupt) -> Answer:
        limits.append(connect)
        return Answer(200, {})

    call = Call(request_of, SYSTEM_CLOCK.monotonic() + 10, StopToken(), send_by=SYSTEM_CLOCK.monotonic() + 0.5)
    sent_by(carry)(call)
    call.send_by = SYSTEM_CLOCK.monotonic() - 1
    sent_by(carry)(call)
    assert 0 < limits[0] <= 0.5
    assert 0 < limits[1] < 0.01


def test_a_fence_that_closes_while_the_connection_is_made_refuses_the_write() -> None:
    class Closed(Exception):
        pass

    is_open, sent = [True], []

    def check(_: Call) -> None:
        if not is_open[0]:
            raise Closed

    def carry(call: Call, connect: float, interrupt: Interrupt) -> Answer:
        is_open[0] = False  # connecting took this long
        one, other = socket.socketpair()
        with one, other:
            interrupt.begin(one)
            sent.append(call.request.method)
        return Answer(200, {})

    send = Fence(check)(sent_by(carry))
    with pytest.raises(Closed):
        send(Call(POST, SYSTEM_CLOCK.monotonic() + 10, StopToken()))
    assert sent == []
    send(Call(LIST, SYSTEM_CLOCK.monotonic() + 10, StopToken()))
    assert sent == ["GET"]


@pytest.fixture
def silent() -> Iterator[int]:
    """The port of a server that accepts connections, and no more."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening.getsockname()[1]


@pytest.fixture
def deaf() -> Iterator[int]:
    """The port of a server to which no connection comes about: its queue is full."""
    with ExitStack() as stack:
        listening = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        for _ in range(4):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(listening.getsockname())
        yield listening.getsockname()[1]


def set_soon(stop: StopToken) -> threading.Timer:
    """Set by another thread when this one is likely to be in the kernel; if it is not yet, the test is only easier."""
    timer = threading.Timer(0.15, stop.set, ["the test says so"])
    timer.start()
    return timer


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_connection_that_does_not_come_about_is_given_up_at_once(deaf: int, scheme: str) -> None:
    stop = StopToken()
    with Client(Config(cluster_url=f"{scheme}://127.0.0.1:{deaf}", timeout=TOO_LONG)) as client:
        timer, began = set_soon(stop), time.monotonic()
        with pytest.raises(TransportError, match="given up, because the test says so"):
            client.request(LIST, stop=stop)
        assert time.monotonic() - began < TOO_LONG / 2
        timer.join()


def test_a_connection_is_not_begun_when_the_token_was_set_just_before(
        deaf: int, monkeypatch: pytest.MonkeyPatch) -> None:
    stop, resolve = StopToken(), socket.getaddrinfo

    def slow_name_server(*arguments: Any) -> Any:
        stop.set("the test says so")
        return resolve(*arguments)

    monkeypatch.setattr(socket, "getaddrinfo", slow_name_server)
    with Client(Config(cluster_url=f"http://127.0.0.1:{deaf}", timeout=TOO_LONG)) as client:
        began = time.monotonic()
        with pytest.raises(TransportError, match="given up, because the test says so"):
            client.request(LIST, stop=stop)
        assert time.monotonic() - began < TOO_LONG / 2


def test_a_tls_handshake_that_is_not_answered_is_given_up_at_once(silent: int) -> None:
    stop = StopToken()
    with Client(Config(cluster_url=f"https://127.0.0.1:{silent}", timeout=TOO_LONG)) as client:
        timer, began = set_soon(stop), time.monotonic()
        with pytest.raises(TransportError, match="given up, because the test says so"):
            client.request(LIST, stop=stop)
        assert time.monotonic() - began < TOO_LONG / 2
        timer.join()


def test_a_stop_that_comes_late_to_a_read_does_not_break_the_write_that_has_its_connection_now() -> None:
    """The token's callbacks run one after the other: one before may take long, a log handler's say."""
    stop, listed, posted, ended = StopToken(), threading.Event(), threading.Event(), threading.Event()

    def serve(peer: Peer) -> None:
        peer.receive()
        listed.set()
        told.wait(TOO_LONG)
        peer.answer(200, {"metadata": {}, "items": []})
        peer.receive()
        posted.set()
        ended.wait(TOO_LONG)
        peer.answer(201, config_map())

    told = threading.Event()

    def slow() -> None:
        told.set()
        posted.wait(TOO_LONG)

    def end() -> None:
        stop.set("the test says so")
        ended.set()

    stop.on_set(slow)
    with WireServer(serve) as server, server.client(client={"retry": RetryPolicy.never()}) as client:
        ending = threading.Thread(target=lambda: (listed.wait(TOO_LONG), end()))
        ending.start()
        assert b'"items"' in client.request(LIST, stop=stop)
        assert b'"uid-a"' in client.request(POST)
        ending.join()
        assert server.connections == 1


def test_a_socket_that_was_given_back_is_not_shut_down_and_one_that_was_shut_down_is_known() -> None:
    for order in ("given back first", "shut down first"):
        stop = StopToken()
        one, other = socket.socketpair()
        with one, other, Interrupt(stop) as interrupt:
            interrupt.begin(one)
            if order == "given back first":
                assert not interrupt.release()
                stop.set()
                one.send(b"x")
                assert other.recv(1) == b"x"
                assert not interrupt.stopped
            else:
                stop.set()
                assert interrupt.release()
                assert other.recv(1) == b""
                assert interrupt.stopped


def test_a_socket_whose_descriptor_tls_took_is_reached_all_the_same() -> None:
    stop = StopToken()
    one, other = socket.socketpair()
    with other, Interrupt(stop) as interrupt:
        assert interrupt.attach(one)
        with socket.socket(fileno=one.detach()):
            stop.set()
            assert other.recv(1) == b""


# Within a controller's run

def test_reads_of_a_scope_end_with_its_stop_and_writes_with_its_cut() -> None:
    scope = RunScope(StopToken(), StopToken())

    def serve(peer: Peer) -> None:
        request = peer.receive()
        (scope.stop if request is not None and request.method == "GET" else scope.cut).set("its time is over")
        peer.hold()

    entered = enter_scope(scope)
    try:
        with WireServer(serve) as server, server.client(timeout=TOO_LONG) as client:
            with pytest.raises(TransportError, match=r"given up, because its time is over$"):
                client.request(LIST)
            with pytest.raises(TransportError, match="its time is over; whether the server has carried it out is"):
                client.request(POST)
    finally:
        leave_scope(entered)
    assert current_scope() is None


def test_a_write_under_way_outlives_the_stop_of_its_scope() -> None:
    scope = RunScope(StopToken(), StopToken())

    def serve(peer: Peer) -> None:
        peer.receive()
        scope.stop.set("its time is over")
        peer.answer(201, config_map())

    entered = enter_scope(scope)
    try:
        with WireServer(serve) as server, server.client(client={"retry": RetryPolicy.never()}) as client:
            assert b'"uid-a"' in client.request(POST)
    finally:
        leave_scope(entered)


def test_the_wait_for_another_attempt_ends_with_the_scope_also_when_the_call_has_a_token_of_its_own() -> None:
    scope = RunScope(StopToken(), StopToken())

    def serve(peer: Peer) -> None:
        while peer.receive():
            peer.answer(503, b"{}", headers=("Retry-After: 60",))

    clock = Meanwhile(lambda: scope.stop.set("its time is over"))
    entered = enter_scope(scope)
    try:
        with WireServer(serve) as server, server.client(timeout=100, client={"clock": clock}) as client:
            began = time.monotonic()
            with pytest.raises(ApiError):
                client.request(LIST, stop=StopToken())
            assert time.monotonic() - began < 3 * TOO_LONG
    finally:
        leave_scope(entered)


def test_the_first_of_several_tokens_is_set_as_soon_as_one_is_and_leaves_nothing_behind() -> None:
    tokens = [StopToken(), StopToken()]
    first = FirstOf(*tokens, clock=SYSTEM_CLOCK)
    assert (first.is_set(), first.reason, first.wait(0)) == (False, "", False)
    calls: list[int] = []
    first.on_set(lambda: calls.append(1))()
    tokens[1].set("enough")
    assert (first.is_set(), first.reason, first.wait(None), calls) == (True, "enough", True, [])
    with pytest.raises(TypeError, match="a FirstOf cannot be set itself"):
        first.set("no")
