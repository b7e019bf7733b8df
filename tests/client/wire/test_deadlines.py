"""A deadline is a deadline, and a stop a stop, whichever part of a request a peer delays, and however it does so.

A row is a part of a request and the way in which it is delayed: nothing comes (silent), it comes too late (slow), or it
comes in small pieces for a long time (trickling). Each row is tried with a call, a watch, a log and an exec that are
opened, once with a short deadline and once with a stop token that is set meanwhile.
"""
from __future__ import annotations

import gzip
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import pytest

from kubectl_runtime import Api, Client, Config, RetryPolicy, StopToken, TransportError
from kubectl_runtime.core.requests.request import Request
from kubectl_runtime.core.scope import RunScope, enter_scope, leave_scope
from kubectl_runtime.manager.elector import NotLeaderError, only_while_leading
from kubectl_runtime.resources import ConfigMap
from kubectl_runtime.resources.core_v1 import Pod
from tests.client.wire_server import Peer, WireServer

pytest.importorskip("cryptography", reason="certificates are made with the package cryptography")
from kubectl_runtime.certificates.authority import Authority
from kubectl_runtime.certificates.bundles import server_context

DEADLINE = 0.3
"""Seconds that a call is given."""
STOP_AT = 0.15
"""Seconds after which a call is stopped that has a long deadline."""
PROMISED = 0.2
"""Seconds beyond that in which it ends: of three tries at least one, since other work may keep the machine busy."""
MARGIN = 1.0
"""Seconds beyond that in which each try ends, however busy the machine is."""
LATE = 2.5
"""Seconds after which a slow peer goes on: far beyond all of that."""
STEP = 0.04
"""Seconds between two pieces of a trickle."""

_LIST = Request("GET", "/api/v1/configmaps", "list", None, "list configmaps")
OK = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
_LONG = b" " * (16 << 20)
_resolve = socket.getaddrinfo
authority = Authority()


class Over(Exception):
    """The test is over."""


def unused_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return int(listening.getsockname()[1])


@dataclass
class Stage:
    """What a row has at hand."""

    over: threading.Event
    """Set when the row is over: nothing waits any longer."""
    stack: ExitStack
    servers: list[WireServer] = field(default_factory=list)

    def pause(self, seconds: float = 60.0) -> None:
        if self.over.wait(seconds):
            raise Over

    def trickle(self, peer: Peer, data: bytes, step: float = STEP, size: int = 1) -> None:
        for begin in range(0, len(data), size):
            peer.send(data[begin:begin + size])
            self.pause(step)

    def serve(self, script: Callable[[Peer], None], *, tls: bool = False) -> WireServer:
        def quiet(peer: Peer) -> None:
            with suppress(Over, OSError, ssl.SSLError):
                script(peer)

        context = server_context(authority.server(("127.0.0.1",))) if tls else None
        self.servers.append(self.stack.enter_context(WireServer(quiet, tls=context)))
        return self.servers[-1]


Row = Callable[[Stage], dict[str, Any]]
ROWS: dict[str, Row] = {}
FOR_CALLS: set[str] = set()


def row(name: str, *, calls_only: bool = False) -> Callable[[Row], Row]:
    def kept(make: Row) -> Row:
        ROWS[name] = make
        if calls_only:
            FOR_CALLS.add(name)
        return make
    return kept


# Looking the name up; `slow_names` below is what getaddrinfo does

@row("look-up, silent")
def _(stage: Stage) -> dict[str, Any]:
    return {"cluster_url": "http://silent.test:1"}


@row("look-up, slow")
def _(stage: Stage) -> dict[str, Any]:
    server = stage.serve(lambda peer: peer.receive() and peer.answer())
    return {"cluster_url": f"http://slow.test:{server.port}"}


@row("look-up of a proxy, silent")
def _(stage: Stage) -> dict[str, Any]:
    return {"cluster_url": "https://10.0.0.1", "proxy_url": "http://silent.test:1"}


# Connecting

def _deaf(stage: Stage) -> int:
    listening = stage.stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
    for _ in range(4):
        waiting = stage.stack.enter_context(socket.socket())
        waiting.setblocking(False)
        waiting.connect_ex(listening.getsockname())
    return int(listening.getsockname()[1])


@row("connect, dead address")
def _(stage: Stage) -> dict[str, Any]:
    return {"cluster_url": f"http://127.0.0.1:{_deaf(stage)}"}


@row("connect, many dead addresses")
def _(stage: Stage) -> dict[str, Any]:
    return {"cluster_url": f"https://many.test:{_deaf(stage)}"}


# The proxy

def _by_proxy(stage: Stage, script: Callable[[Peer], None], *, tls: bool = False) -> dict[str, Any]:
    def asked(peer: Peer) -> None:
        peer.receive()
        script(peer)

    return {"cluster_url": "https://10.0.0.1",
            "proxy_url": stage.serve(asked, tls=tls).url}


@row("proxy, silent")
def _(stage: Stage) -> dict[str, Any]:
    return _by_proxy(stage, lambda _: stage.pause())


@row("proxy, slow")
def _(stage: Stage) -> dict[str, Any]:
    def script(peer: Peer) -> None:
        stage.pause(LATE)
        peer.send(b"HTTP/1.1 200 Connection established\r\n\r\n")
        stage.pause()
    return _by_proxy(stage, script)


@row("proxy, trickling bytes")
def _(stage: Stage) -> dict[str, Any]:
    return _by_proxy(stage, lambda peer: stage.trickle(peer, b"HTTP/1.1 200 Connection established\r\nX: y" * 10))


@row("proxy, trickling lines")
def _(stage: Stage) -> dict[str, Any]:
    def script(peer: Peer) -> None:
        peer.send(b"HTTP/1.1 200 Connection established\r\n")
        stage.trickle(peer, b"A: b\r\n" * 80, size=6)
    return _by_proxy(stage, script)


@row("https proxy, trickling lines")
def _(stage: Stage) -> dict[str, Any]:
    def script(peer: Peer) -> None:
        peer.send(b"HTTP/1.1 200 Connection established\r\n")
        stage.trickle(peer, b"A: b\r\n" * 80, size=6)
    return _by_proxy(stage, script, tls=True)


@row("https proxy, silent handshake")
def _(stage: Stage) -> dict[str, Any]:
    server = stage.serve(lambda _: stage.pause())
    return {"cluster_url": "http://10.0.0.1", "proxy_url": server.url.replace("http", "https")}


@row("https proxy, silent inner handshake")
def _(stage: Stage) -> dict[str, Any]:
    def script(peer: Peer) -> None:
        peer.send(b"HTTP/1.1 200 Connection established\r\n\r\n")
        stage.pause()
    return _by_proxy(stage, script, tls=True)


@row("socks proxy, silent")
def _(stage: Stage) -> dict[str, Any]:
    pytest.importorskip("socks")
    server = stage.serve(lambda _: stage.pause())
    return {"cluster_url": "http://10.0.0.1", "proxy_url": server.url.replace("http", "socks5h")}


@row("socks proxy, trickling")
def _(stage: Stage) -> dict[str, Any]:
    pytest.importorskip("socks")

    def script(peer: Peer) -> None:
        peer.take(3)
        peer.send(b"\x05\x00")
        peer.take(10)
        peer.send(b"\x05\x00\x00\x03\xff")
        stage.trickle(peer, b"x" * 255)

    server = stage.serve(script)
    return {"cluster_url": "http://10.0.0.1", "proxy_url": server.url.replace("http", "socks5")}


# The TLS handshake

@row("handshake, silent")
def _(stage: Stage) -> dict[str, Any]:
    return {"cluster_url": stage.serve(lambda _: stage.pause()).url.replace("http", "https")}


def received(peer: Peer) -> bytes:
    data = peer._socket.recv(1 << 16)
    if not data:
        raise Over
    return data


def _handshaking(stage: Stage, late: float, step: float, size: int) -> dict[str, Any]:
    context = server_context(authority.server(("127.0.0.1",)))

    def script(peer: Peer) -> None:
        arrived, leaving = ssl.MemoryBIO(), ssl.MemoryBIO()
        tls = context.wrap_bio(arrived, leaving, server_side=True)
        while True:
            try:
                tls.do_handshake()
            except ssl.SSLWantReadError:
                if leaving.pending:
                    stage.pause(late)
                stage.trickle(peer, leaving.read(), step, size)
                arrived.write(received(peer))
            else:
                break
        stage.trickle(peer, leaving.read(), step, size)
        arrived.write(received(peer))
        peer.server.note(tls.read(1 << 16))

    return {"cluster_url": stage.serve(script).url.replace("http", "https")}


@row("handshake, slow")
def _(stage: Stage) -> dict[str, Any]:
    return _handshaking(stage, LATE, 0, 1 << 16)


@row("handshake, trickling")
def _(stage: Stage) -> dict[str, Any]:
    return _handshaking(stage, 0, STEP, 8)


# The request

def _reading(stage: Stage, read: Callable[[Peer], object]) -> Callable[[Peer], None]:
    def script(peer: Peer) -> None:
        peer._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        while True:
            read(peer)
    return script


@row("sending, the peer reads nothing", calls_only=True)
def _(stage: Stage) -> dict[str, Any]:
    return {"cluster_url": stage.serve(_reading(stage, lambda _: stage.pause())).url}


@row("sending, the peer reads slowly", calls_only=True)
def _(stage: Stage) -> dict[str, Any]:
    def read(peer: Peer) -> None:
        received(peer)
        stage.pause(STEP)
    return {"cluster_url": stage.serve(_reading(stage, read)).url}


@row("sending with TLS, the peer reads slowly", calls_only=True)
def _(stage: Stage) -> dict[str, Any]:
    def read(peer: Peer) -> None:
        received(peer)
        stage.pause(STEP)
    return {"cluster_url": stage.serve(_reading(stage, read), tls=True).url}


# The head of the answer

def _answering(stage: Stage, script: Callable[[Peer], None], *, tls: bool = False) -> dict[str, Any]:
    def answer(peer: Peer) -> None:
        if peer.receive() is not None:
            script(peer)
    return {"cluster_url": stage.serve(answer, tls=tls).url}


@row("head, silent")
def _(stage: Stage) -> dict[str, Any]:
    return _answering(stage, lambda _: stage.pause())


@row("head, slow")
def _(stage: Stage) -> dict[str, Any]:
    def script(peer: Peer) -> None:
        stage.pause(LATE)
        peer.answer()
    return _answering(stage, script)


@row("head, trickling bytes")
def _(stage: Stage) -> dict[str, Any]:
    return _answering(stage, lambda peer: stage.trickle(peer, OK * 5))


@row("head, trickling lines")
def _(stage: Stage) -> dict[str, Any]:
    def script(peer: Peer) -> None:
        peer.send(OK)
        stage.trickle(peer, b"A: b\r\n" * 90, size=6)
    return _answering(stage, script)


@row("head with TLS, trickling lines")
def _(stage: Stage) -> dict[str, Any]:
    def script(peer: Peer) -> None:
        peer.send(OK)
        stage.trickle(peer, b"A: b\r\n" * 90, size=6)
    return _answering(stage, script, tls=True)


@row("head, continue for ever")
def _(stage: Stage) -> dict[str, Any]:
    def script(peer: Peer) -> None:
        while True:
            peer.send(b"HTTP/1.1 100 Continue\r\n\r\n")
            stage.pause(STEP)
    return _answering(stage, script)


@row("head, a flood of continue")
def _(stage: Stage) -> dict[str, Any]:
    def script(peer: Peer) -> None:
        while not stage.over.is_set():
            peer.send(b"HTTP/1.1 100 Continue\r\n\r\n" * 100)
            stage.pause(0.005)
    return _answering(stage, script)


# The body of the answer; of a stream it may take as long as it likes

_BODY = b'{"kind": "ConfigMapList", "apiVersion": "v1", "metadata": {}, "items": [' + b" " * 2000 + b"]}"
_PLAIN = OK + b"Content-Length: %d\r\n\r\n" % len(_BODY)


@row("body, silent", calls_only=True)
def _(stage: Stage) -> dict[str, Any]:
    def script(peer: Peer) -> None:
        peer.send(_PLAIN + b"{")
        stage.pause()
    return _answering(stage, script)


@row("body, trickling", calls_only=True)
def _(stage: Stage) -> dict[str, Any]:
    def script(peer: Peer) -> None:
        peer.send(_PLAIN)
        stage.trickle(peer, _BODY)
    return _answering(stage, script)


@row("body in chunks, trickling", calls_only=True)
def _(stage: Stage) -> dict[str, Any]:
    def script(peer: Peer) -> None:
        peer.start_stream()
        while True:
            stage.trickle(peer, b"1\r\n \r\n")
    return _answering(stage, script)


@row("body up to the end of the connection, trickling", calls_only=True)
def _(stage: Stage) -> dict[str, Any]:
    def script(peer: Peer) -> None:
        peer.send(OK + b"\r\n")
        stage.trickle(peer, _BODY)
    return _answering(stage, script)


@row("compressed body, trickling", calls_only=True)
def _(stage: Stage) -> dict[str, Any]:
    packed = gzip.compress(_BODY + bytes(range(256)) * 64, 0)

    def script(peer: Peer) -> None:
        peer.send(OK + b"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(packed))
        stage.trickle(peer, packed)
    return _answering(stage, script)


@row("compressed body in chunks, trickling", calls_only=True)
def _(stage: Stage) -> dict[str, Any]:
    packed = gzip.compress(_BODY)

    def script(peer: Peer) -> None:
        peer.send(OK + b"Content-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n")
        for byte in packed:
            stage.trickle(peer, b"1\r\n%c\r\n" % byte)
    return _answering(stage, script)


@row("body of an error, trickling")
def _(stage: Stage) -> dict[str, Any]:
    def script(peer: Peer) -> None:
        peer.send(b"HTTP/1.1 500 No\r\nContent-Length: 1000\r\n\r\n")
        stage.trickle(peer, b"x" * 999)
    return _answering(stage, script)


# What is tried with each row

How = dict[str, Any]


def _call(client: Client, how: How) -> None:
    client.request(_LIST, **_client_way(client, how))


def _send(client: Client, how: How) -> None:
    """What has much to send. In the way of a read, since a write is not ended by a token while it is sent."""
    request = Request("GET", "/api/v1/configmaps", "list", None, "list configmaps", body=_LONG)
    client.request(request, **_client_way(client, how))


def _client_way(client: Client, how: How) -> How:
    timeout = how.get("timeout")
    return {"stop": how.get("stop"), "deadline": None if timeout is None else client.clock.monotonic() + timeout}


def _watch(client: Client, how: How) -> None:
    Api.all(client, ConfigMap).open_watch(**how).close()


def _log(client: Client, how: How) -> None:
    Api.namespaced(client, Pod, "default").log_stream("web", follow=True, **how).close()


def _exec(client: Client, how: How) -> None:
    Api.namespaced(client, Pod, "default").exec("web", ["ls"], **how).close()


OPERATIONS = {"call": _call, "watch": _watch, "log": _log, "exec": _exec}
Cell = tuple[str, str, str]


def cells(names: list[str], operations: list[str]) -> list[Cell]:
    return [(name, "send" if name.startswith("sending") else operation, end)
            for name in names for operation in operations for end in ("deadline", "stop")
            if operation == "call" or name not in FOR_CALLS]


def tried(config: dict[str, Any], cell: Cell, found: list[str]) -> None:
    """Adds to `found` what is wrong with a cell; keeps by how many seconds it was late in `TIMES`."""
    _, operation, end = cell
    act = {**OPERATIONS, "send": _send}[operation]
    stop, how = StopToken(), {}
    allowed = DEADLINE if end == "deadline" else STOP_AT
    with Client(Config(timeout=60, ca_data=authority.pem, trust_env=False, **config),
                retry=RetryPolicy.never()) as client:
        timer = threading.Timer(STOP_AT, stop.set)
        began = time.monotonic()
        if end == "deadline":
            how["timeout"] = DEADLINE
        else:
            how["stop"] = stop
            timer.start()
        outcome = "nothing was raised"
        try:
            act(client, how)
        except TransportError as error:
            outcome = str(error)
        took = time.monotonic() - began
        timer.cancel()
    problem = outcome == "nothing was raised" or not allowed - 0.1 <= took <= allowed + MARGIN
    if problem or (end == "stop" and "given up" not in outcome):
        found.append(f"{cell}: {took:.2f} s: {outcome}")
    TIMES[cell] = took - allowed


TIMES: dict[Cell, float] = {}


@pytest.fixture
def slow_names(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Names that are looked up slowly; set when the test is over."""
    over = threading.Event()

    def look_up(host: Any, *more: Any, **options: Any) -> Any:
        if host == "silent.test":
            over.wait(60)
        elif host == "slow.test":
            over.wait(LATE)
        elif host == "many.test":
            return _resolve("127.0.0.1", *more, **options) * 10
        return _resolve("127.0.0.1" if str(host).endswith(".test") else host, *more, **options)

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    yield over
    over.set()
    for thread in threading.enumerate():  # another test would share a look-up that is about to end
        if thread.name.startswith("look-up of "):
            thread.join(MARGIN)


@contextmanager
def proxies_trusted(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> Iterator[None]:
    (tmp_path / "ca.pem").write_bytes(authority.pem)
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
    yield


def all_of(names: list[str], operations: list[str], over: threading.Event, monkeypatch: pytest.MonkeyPatch,
           tmp_path: Any, within: float = MARGIN) -> list[str]:
    """What is wrong with the cells of these rows, which are tried at the same time; those that take longer than
    `within` are tried again."""
    found: list[str] = []
    with ExitStack() as stack, proxies_trusted(monkeypatch, tmp_path):
        stage = Stage(over, stack)
        stack.callback(over.set)
        configs = {name: ROWS[name](stage) for name in names}
        threads = [threading.Thread(target=tried, args=(configs[cell[0]], cell, found))
                   for cell in cells(names, operations)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(90)
        for cell in cells(names, operations) * 2:
            if not found and TIMES.get(cell, 0) > within:
                tried(configs[cell[0]], cell, found)
        over.set()
    found += [f"{cell}: {TIMES[cell]:.2f} s late" for cell in cells(names, operations) if TIMES.get(cell, 0) > within]
    return found


@pytest.mark.long
@pytest.mark.parametrize("name", ROWS)
def test_whatever_is_opened_ends_in_time_and_when_it_is_stopped(
        name: str, slow_names: threading.Event, monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    assert all_of([name], list(OPERATIONS), slow_names, monkeypatch, tmp_path, PROMISED) == []


@pytest.mark.parametrize("part", ["look-up", "connect", "proxy", "https proxy", "socks", "handshake", "sending", "head",
                                  "body", "compressed"])
def test_a_call_ends_in_time_and_when_it_is_stopped(
        part: str, slow_names: threading.Event, monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    names = [name for name in ROWS if name.startswith(part)]
    assert names
    assert all_of(names, ["call"], slow_names, monkeypatch, tmp_path) == []


# What is over is not sent

POST = Request("POST", "/api/v1/namespaces/default/configmaps", "create", None, "create configmaps default/a",
               body=b"{}")


def _late(way: str, stage: Stage) -> dict[str, Any]:
    if way == "look-up":
        server = stage.serve(lambda peer: peer.receive() and peer.answer(201))
        return {"cluster_url": f"http://slow.test:{server.port}"}
    if way == "handshake":
        return _handshaking(stage, 0.4, 0, 1 << 16)

    def script(peer: Peer) -> None:
        peer.receive()
        stage.pause(0.5)
        peer.send(b"HTTP/1.1 200 Connection established\r\n\r\n")
        peer.server.note(peer.take(1))
    return {"cluster_url": "https://10.0.0.1", "proxy_url": stage.serve(script).url}


@pytest.mark.parametrize("way", ["look-up", "handshake", "proxy"])
def test_a_write_whose_connection_comes_too_late_is_not_sent(way: str, slow_names: threading.Event) -> None:
    with ExitStack() as stack:
        stage = Stage(slow_names, stack)
        stack.callback(slow_names.set)
        config = _late(way, stage)
        with Client(Config(ca_data=authority.pem, trust_env=False, **config)) as client:
            began = time.monotonic()
            with pytest.raises(TransportError) as caught:
                client.request(POST, deadline=client.clock.monotonic() + DEADLINE)
            assert time.monotonic() - began < DEADLINE + MARGIN
        assert "not known" not in str(caught.value)
        slow_names.wait(0.6)  # the peer goes on, and nothing may follow
        slow_names.set()
        sent = [request for request in stage.servers[0].requests if getattr(request, "method", "") != "CONNECT"]
    assert [each for each in sent if each] == []


@pytest.mark.parametrize("how", ["the client is closed", "a read is stopped", "the run is cut off"])
def test_a_look_up_ends_with_the_call_and_nothing_is_sent(how: str, slow_names: threading.Event) -> None:
    stop = StopToken()
    scope = RunScope(StopToken(), StopToken())
    with Client(Config(cluster_url="http://silent.test:1")) as client:
        end, request, left = {"the client is closed": (client.close, POST, None),
                              "a read is stopped": (stop.set, _LIST, stop),
                              "the run is cut off": (scope.cut.set, POST, None)}[how]
        timer = threading.Timer(STOP_AT, end)
        entered = enter_scope(scope)
        try:
            timer.start()
            began = time.monotonic()
            with pytest.raises(TransportError, match="given up") as caught:
                client.request(request, stop=left)
        finally:
            leave_scope(entered)
        assert time.monotonic() - began < STOP_AT + MARGIN
        assert "not known" not in str(caught.value)


def test_closing_the_client_ends_a_read_that_has_a_token_of_its_own() -> None:
    def serve(peer: Peer) -> None:
        peer.receive()
        client.close()
        peer.hold()

    with WireServer(serve) as server:
        client = server.client(timeout=60)
        began = time.monotonic()
        with pytest.raises(TransportError, match="given up, because the client was closed"):
            client.request(_LIST, stop=StopToken())
        assert time.monotonic() - began < MARGIN


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]", "[::ffff:127.0.0.1]"])
def test_an_address_needs_no_look_up(host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    by: list[threading.Thread] = []

    def look_up(*arguments: Any, **options: Any) -> Any:
        by.append(threading.current_thread())
        return _resolve(*arguments, **options)

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    with Client(Config(cluster_url=f"http://{host}:{unused_port()}"), retry=RetryPolicy.never()) as client:
        with pytest.raises(TransportError, match="cannot connect"):
            client.request(_LIST)
    assert by == [threading.current_thread()]


def test_one_thread_looks_a_name_up_for_all_and_leaves_nothing_behind(slow_names: threading.Event) -> None:
    with Client(Config(cluster_url="http://silent.test:1"), retry=RetryPolicy.never()) as client:
        def call() -> None:
            with suppress(TransportError):
                client.request(_LIST, deadline=client.clock.monotonic() + DEADLINE)

        callers = [threading.Thread(target=call) for _ in range(5)]
        for caller in callers:
            caller.start()
        for caller in callers:
            caller.join(20)
        waiting = [thread for thread in threading.enumerate() if thread.name == "look-up of silent.test"]
        assert [thread.daemon for thread in waiting] == [True]
        slow_names.set()
        waiting[0].join(20)
        assert not waiting[0].is_alive()


def test_the_second_address_of_a_name_gets_its_turn_when_the_first_is_dead(
        slow_names: threading.Event, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kubectl_runtime.client.wire.dialing._LEAST_SHARE", 0.2)
    with ExitStack() as stack, WireServer(lambda peer: peer.receive() and peer.answer()) as server:
        dead = _deaf(Stage(slow_names, stack))
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: [
            *_resolve("127.0.0.1", dead, 0, socket.SOCK_STREAM), *_resolve("127.0.0.1", server.port, 0,
                                                                           socket.SOCK_STREAM)])
        with Client(Config(cluster_url="http://two.test:1")) as client:
            assert client.request(_LIST, deadline=client.clock.monotonic() + 4) == b"{}"


# The fence of whoever leads

@pytest.mark.parametrize("client_of", ["the guarded client", "a relative in a run"])
def test_a_fence_is_looked_at_after_the_look_up(client_of: str, slow_names: threading.Event,
                                                monkeypatch: pytest.MonkeyPatch) -> None:
    """It leads until shortly after the write is asked for, and the name's address comes later than that."""
    monkeypatch.setitem(globals(), "LATE", 0.6)
    with WireServer(lambda peer: peer.receive() and peer.answer(201)) as server:
        with Client(Config(cluster_url=f"http://slow.test:{server.port}")) as client:
            until = client.clock.boottime() + 0.3
            fence = only_while_leading(lambda: until, lambda: "it leads no more", client.clock)
            guarded = client.with_layer(fence)
            entered = None if client_of == "the guarded client" else enter_scope(RunScope(
                family=client.shared, fences=(fence,)))
            try:
                with pytest.raises(NotLeaderError, match="not sent, because it leads no more"):
                    (guarded if entered is None else client).request(POST)
            finally:
                if entered is not None:
                    leave_scope(entered)
    assert server.requests == []


@pytest.mark.parametrize("kept", [False, True], ids=["a new connection", "a kept connection"])
def test_a_fence_is_looked_at_right_before_the_first_byte(kept: bool) -> None:
    leads = [True]
    with WireServer(lambda peer: [peer.answer() for _ in iter(peer.receive, None)]) as server:
        with server.client() as client:
            def retired(send: Any) -> Any:
                def sent(call: Any) -> Any:
                    leads[0] = False
                    return send(call)
                return sent

            fence = only_while_leading(lambda: client.clock.boottime() + 60 if leads[0] else None,
                                       lambda: "it leads no more", client.clock)
            if kept:
                client.request(_LIST)
            with pytest.raises(NotLeaderError):  # the layer between the fence and the wire is where it ends
                client.with_layer(fence).with_layer(retired).request(POST)
    assert [request.method for request in server.requests] == ["GET"] * kept
