"""`HealthServer` over real sockets: where it listens, whom it refuses, how it ends."""
from __future__ import annotations

import errno
import os
import socket
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families

from kubectl_runtime import Client, Config, HealthServer, Manager, Metrics
from kubectl_runtime.core.base.errors import RequestError
from kubectl_runtime.runtime.observe import health, listener
from kubectl_runtime.runtime.observe.listener import ListenAddress
from kubectl_runtime.testing import eventually

LIMIT = 20


@pytest.fixture
def server() -> Iterator[HealthServer]:
    with HealthServer("127.0.0.1:0", metrics=Metrics(CollectorRegistry()), limit=LIMIT) as server:
        yield server


def get(server: HealthServer, path: str, host: str = "127.0.0.1") -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://{host}:{server.port}{path}", timeout=LIMIT) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def connect(server: HealthServer) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.port), timeout=LIMIT)


def threads_of(server: HealthServer) -> list[str]:
    return [thread.name for thread in threading.enumerate() if server.name in thread.name]


def test_it_answers_probes_and_scrapes(server: HealthServer) -> None:
    assert get(server, "/healthz") == (200, "ok")
    assert get(server, "/readyz?verbose") == (200, "[+]ping ok\nreadyz check passed\n")
    status, text = get(server, "/metrics")
    assert status == 200
    assert "workqueue_depth" in {family.name for family in text_string_to_metric_families(text)}
    assert get(server, "/other")[0] == 404


def test_checks_can_be_added_while_it_runs(server: HealthServer) -> None:
    server.add_check("database", lambda: False)
    assert get(server, "/readyz")[0] == 500
    assert get(server, "/readyz/database")[0] == 500
    assert get(server, "/healthz")[0] == 200
    server.add_live_check("loop", lambda: False)
    assert get(server, "/healthz")[0] == 500


def test_checks_can_be_given_when_it_is_made() -> None:
    with HealthServer(("127.0.0.1", 0), checks={"a": lambda: False}, live_checks={"b": lambda: True}) as server:
        assert get(server, "/readyz/a")[0] == 500
        assert get(server, "/healthz/b")[0] == 200


def has_ipv6() -> bool:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return True


@pytest.mark.skipif(not has_ipv6(), reason="this host has no IPv6")
def test_it_listens_at_an_ipv6_address() -> None:
    with HealthServer("[::1]:0") as server:
        assert get(server, "/healthz", "[::1]")[0] == 200


def test_without_a_host_it_listens_at_all_addresses() -> None:
    with HealthServer(":0") as server:
        assert get(server, "/healthz")[0] == 200
        if has_ipv6() and socket.has_dualstack_ipv6():
            assert get(server, "/healthz", "[::1]")[0] == 200


@pytest.mark.skipif(sys.platform != "linux", reason="127.0.0.2 is loopback only there")
def test_a_loopback_address_is_no_other_one(server: HealthServer) -> None:
    with pytest.raises(ConnectionRefusedError), socket.create_connection(("127.0.0.2", server.port), timeout=LIMIT):
        pass


@pytest.mark.parametrize("address", ["8080", "localhost", "::1:80", ":http", ":65536", ":-1", ":٣", ""])
def test_what_is_no_address_is_refused_when_it_is_made(address: str) -> None:
    with pytest.raises(RequestError, match="is not an address to listen at"):
        HealthServer(address)


def test_addresses_are_read_as_written() -> None:
    assert ListenAddress.parse("[::1]:80") == ListenAddress("::1", 80)
    assert ListenAddress.parse(":0") == ListenAddress("", 0)
    assert str(ListenAddress("::1", 80)) == "[::1]:80"


def test_an_occupied_port_is_an_error_of_start_that_names_the_address(server: HealthServer) -> None:
    second = HealthServer(f"127.0.0.1:{server.port}")
    with pytest.raises(OSError, match=rf"cannot listen at 127\.0\.0\.1:{server.port}") as caught:
        second.start()
    assert caught.value.errno == errno.EADDRINUSE
    assert str(caught.value).count(str(server.port)) == 1, "the address is said once"
    with HealthServer(":0") as everywhere, pytest.raises(OSError, match="cannot listen at"):
        HealthServer(f":{everywhere.port}").start()


def test_starting_twice_is_an_error_also_after_the_stop(server: HealthServer) -> None:
    with pytest.raises(RequestError, match="make a new one"):
        server.start()
    server.stop()
    with pytest.raises(RequestError, match="make a new one"):
        server.start()


def test_a_stop_ends_its_threads_and_frees_its_port() -> None:
    server = HealthServer("127.0.0.1:0")
    server.stop()  # does nothing yet
    server = HealthServer("127.0.0.1:0")
    server.start()
    port = server.port
    assert threads_of(server) == [server.name]
    begun = time.monotonic()
    server.stop(LIMIT)
    server.stop(LIMIT)
    assert time.monotonic() - begun < LIMIT / 2
    assert threads_of(server) == []
    with HealthServer(f"127.0.0.1:{port}") as again:
        assert get(again, "/healthz")[0] == 200


def test_a_stop_lets_a_request_in_progress_finish() -> None:
    entered, release = threading.Event(), threading.Event()

    def check() -> None:
        entered.set()
        release.wait(LIMIT)

    server = HealthServer("127.0.0.1:0", checks={"slow": check}, limit=LIMIT)
    server.start()
    answers: list[int] = []
    asking = threading.Thread(target=lambda: answers.append(get(server, "/readyz")[0]))
    asking.start()
    assert entered.wait(LIMIT)
    stopping = threading.Thread(target=lambda: server.stop(LIMIT))
    stopping.start()
    release.set()
    stopping.join(LIMIT)
    asking.join(LIMIT)
    assert answers == [200]


def test_a_stop_does_not_wait_longer_than_its_deadline_for_a_client_that_says_nothing(server: HealthServer) -> None:
    with connect(server) as silent:
        silent.sendall(b"GET /healthz")
        get(server, "/healthz")  # the one before was accepted
        begun = time.monotonic()
        server.stop(0.2)
        assert time.monotonic() - begun < LIMIT / 2
        assert silent.recv(100) == b""


def test_a_client_that_dribbles_is_cut_however_often_it_sends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "POLL", 0.02)
    with HealthServer("127.0.0.1:0", limit=0.3) as server, connect(server) as slow:
        begun = time.monotonic()
        slow.sendall(b"GET /healthz HTTP/1.1\r\n")
        slow.settimeout(0.05)
        while time.monotonic() - begun < LIMIT:
            try:
                slow.sendall(b"X: y\r\n")
                if slow.recv(100) == b"":
                    break
            except TimeoutError:
                continue
            except OSError:
                break
        assert time.monotonic() - begun < LIMIT / 2
        assert get(server, "/healthz")[0] == 200


def test_more_connections_than_it_serves_make_room_and_probes_are_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "CONNECTIONS", 2)
    with HealthServer("127.0.0.1:0", limit=LIMIT) as server, connect(server) as first, connect(server):
        for _ in range(5):
            assert get(server, "/healthz") == (200, "ok")
        assert first.recv(100) == b""


@pytest.mark.parametrize("garbage", [b"\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00", b"GET\r\n\r\n",
                                     b"GET /" + b"a" * 70_000, b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 200 + b"\r\n"])
def test_garbage_harms_nobody_and_is_not_written_to_stderr(server: HealthServer, garbage: bytes,
                                                           capsys: pytest.CaptureFixture[str]) -> None:
    with connect(server) as client:
        client.sendall(garbage)
        client.shutdown(socket.SHUT_WR)
        try:
            while client.recv(10_000):
                pass
        except ConnectionError:
            pass
    assert get(server, "/healthz")[0] == 200
    assert capsys.readouterr().err == ""


def test_a_client_that_leaves_at_once_harms_nobody(server: HealthServer, capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(20):
        client = connect(server)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        client.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
        client.close()
    assert get(server, "/healthz")[0] == 200
    assert capsys.readouterr().err == ""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks here")
def test_a_stop_in_the_child_of_a_fork_leaves_the_parents_server_alone(server: HealthServer) -> None:
    child = os.fork()
    if not child:
        server.stop()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert get(server, "/healthz")[0] == 200


@pytest.mark.parametrize("limit", [0, -1, "10", True])
def test_a_limit_that_leaves_no_time_is_refused(limit: object) -> None:
    with pytest.raises(RequestError, match=r"limit must be (more than 0 )?seconds"):
        HealthServer(("127.0.0.1", 0), limit=limit)


@pytest.mark.parametrize("stops", ["the server", "its manager"])
def test_what_it_serves_can_stop_it_and_is_answered(stops: str) -> None:
    stop: list[Callable[[], object]] = []

    class Stopping(Metrics):
        def application(self) -> Any:
            def answer(environ: Any, start_response: Any) -> list[bytes]:
                stop[0]()
                start_response("200 OK", [])
                return [b"stopped"]
            return answer

    metrics = Stopping(CollectorRegistry())
    began = time.monotonic()
    if stops == "the server":
        server = HealthServer("127.0.0.1:0", metrics=metrics)
        server.start()
        stop.append(lambda: server.stop(LIMIT))
    else:
        client = Client(Config(cluster_url="http://127.0.0.1:1"), observer=metrics)
        running = Manager(client, serve="127.0.0.1:0").start()
        server = next(one for one in running._servers._started if isinstance(one, HealthServer))
        stop.append(lambda: running.stop(LIMIT))
    assert get(server, "/metrics") == (200, "stopped")
    assert time.monotonic() - began < LIMIT / 4
    eventually(lambda: not threads_of(server), timeout=LIMIT / 4)
