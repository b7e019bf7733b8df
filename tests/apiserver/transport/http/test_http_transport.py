"""The HTTP transport, byte by byte: framing, limits, connections that end, threads that are joined."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
import time

import pytest

from kubectl_runtime.apiserver.transport.http import connection
from kubectl_runtime.testing import ApiServer
from tests.apiserver.transport.http.http_peer import Peer, connection_threads, until

CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
LIMIT = 3 << 20


@pytest.fixture
def server():
    with ApiServer() as server:
        yield server


def test_a_connection_serves_many_requests(server):
    with Peer(server) as peer:
        for number in range(3):
            status, headers, body = peer.ask("POST", CONFIG_MAPS, {"metadata": {"name": f"a{number}"}})
            assert status == 201
            assert headers["content-type"] == "application/json"
            assert json.loads(body)["metadata"]["name"] == f"a{number}"


def test_requests_that_are_sent_before_their_turn_are_answered_in_order(server):
    with Peer(server) as peer:
        peer.send("GET /version HTTP/1.1\r\nHost: x\r\n\r\nGET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
        assert b"gitVersion" in peer.answer()[2]
        assert peer.answer()[2] == b"ok"


def test_a_client_that_wants_to_close_is_told_so_and_closed(server):
    with Peer(server) as peer:
        status, headers, _ = peer.ask("GET", "/healthz", Connection="close")
        assert (status, headers["connection"]) == (200, "close")
        assert peer.answer()[0] == 0


def test_an_old_client_is_closed_after_its_request(server):
    with Peer(server) as peer:
        peer.send("GET /healthz HTTP/1.0\r\n\r\n")
        assert peer.answer()[0] == 200
        assert peer.answer()[0] == 0


def test_head_has_the_headers_of_a_get_and_no_body(server):
    with Peer(server) as peer:
        peer.send("HEAD /livez HTTP/1.1\r\nHost: x\r\n\r\nGET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
        assert b"200 OK" in peer.file.readline()
        headers = []
        while (header := peer.file.readline().strip()):
            headers.append(header)
        assert any(header.lower().startswith(b"content-length: ") for header in headers)
        assert peer.answer()[2] == b"ok"


@pytest.mark.parametrize("text", [
    "nonsense\r\n\r\n",
    "GET  /healthz HTTP/1.1\r\nHost: x\r\n\r\n",
    "GET healthz HTTP/1.1\r\nHost: x\r\n\r\n",
    "GET /healthz HTTP/1.1\r\n\r\n",
    "GET /healthz HTTP/1.1\r\nHost: x\r\nno colon\r\n\r\n",
    "GET /healthz HTTP/1.1\r\nHost: x\r\n folded: x\r\n\r\n",
    "POST /api HTTP/1.1\r\nHost: x\r\nContent-Length: many\r\n\r\n",
    "POST /api HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
    "POST /api HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
])
def test_what_is_no_http_gets_a_400_and_the_end(server, text):
    with Peer(server) as peer:
        peer.send(text)
        answer = peer.file.read()
    assert answer.startswith(b"HTTP/1.1 400 Bad Request")
    assert b"Connection: close" in answer


def test_another_http_version_is_refused(server):
    with Peer(server) as peer:
        peer.send("GET / HTTP/3.0\r\nHost: x\r\n\r\n")
        assert peer.file.readline().startswith(b"HTTP/1.1 505 ")


def test_a_body_in_chunks_is_put_together(server):
    with Peer(server) as peer:
        peer.send(f"POST {CONFIG_MAPS} HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
        for part in ('{"metadata":', '{"name":"chunked"}}'):
            peer.send(f"{len(part):x};extension\r\n{part}\r\n")
        peer.send("0\r\nTrailer: x\r\n\r\n")
        assert peer.answer()[0] == 201
        assert peer.ask("GET", f"{CONFIG_MAPS}/chunked")[0] == 200


def test_a_client_that_waits_for_100_continue_gets_it(server):
    with Peer(server) as peer:
        peer.send(f"POST {CONFIG_MAPS} HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 25\r\n\r\n")
        assert peer.file.readline() == b"HTTP/1.1 100 Continue\r\n"
        assert peer.file.readline() == b"\r\n"
        peer.send('{"metadata":{"name":"x"}}')
        assert peer.answer()[0] == 201


@pytest.mark.parametrize("framing", ["length", "chunks"])
def test_a_body_of_ten_megabytes_is_a_413_and_the_connection_goes_on(server, framing):
    body = b'{"metadata":{"name":"big"},"data":{"k":"' + b"x" * (10 << 20) + b'"}}'
    with Peer(server) as peer:
        if framing == "length":
            status, _, answer = peer.ask("POST", CONFIG_MAPS, body)
        else:
            peer.send(f"POST {CONFIG_MAPS} HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
            peer.send(b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body))
            status, _, answer = peer.answer()
        assert status == 413
        assert json.loads(answer)["message"] == f"Request entity too large: limit is {LIMIT}"
        assert peer.ask("GET", "/healthz")[0] == 200


def test_a_body_nested_a_hundred_thousand_deep_is_a_400(server):
    deep = b'{"data":' * 100_000 + b"1" + b"}" * 100_000
    with Peer(server) as peer:
        status, _, body = peer.ask("POST", CONFIG_MAPS, deep)
        assert status == 400
        assert json.loads(body)["reason"] == "BadRequest"
        for format_ in ("merge-patch+json", "apply-patch+yaml"):
            status, _, _ = peer.ask("PATCH", f"{CONFIG_MAPS}/a?fieldManager=f", deep,
                                    Content_Type=f"application/{format_}")
            assert status in (400, 404, 413)
        assert peer.ask("GET", "/healthz")[0] == 200


def test_a_watch_whose_client_goes_away_frees_its_thread_though_nothing_happens(server):
    with Peer(server) as peer:
        peer.send(f"GET {CONFIG_MAPS}?watch=true HTTP/1.1\r\nHost: x\r\n\r\n")
        assert peer.file.readline().startswith(b"HTTP/1.1 200")
        assert len(connection_threads(server)) == 1
    until(lambda: not connection_threads(server))


def test_the_end_of_a_connection_is_not_taken_for_that_of_another_one_with_its_number(monkeypatch):
    """A new connection may get the number of one that has ended before the poll returns."""
    gone, again = [], threading.Event()
    (ours, peer), (later, its_peer) = socket.socketpair(), socket.socketpair()
    poll = connection._readable

    def then_reused(wake, watched):
        if peer.fileno() >= 0:  # this poll may last until the peer has closed; the next one reports the end
            return [number for number in poll(wake, watched) if number != ours.fileno()]
        if "reused" in gone:
            again.set()
            return poll(wake, watched)
        found = poll(wake, watched)
        if ours.fileno() in found:
            reaper.forget(ours)
            os.dup2(later.fileno(), ours.fileno())
            reaper.watch(ours, lambda: gone.append("later"))
            gone.append("reused")
        return found

    monkeypatch.setattr(connection, "_readable", then_reused)
    reaper = connection.Reaper("reaper of a test")
    reaper.watch(ours, lambda: gone.append("first"))
    peer.close()
    assert again.wait(10)
    assert gone == ["reused"]
    its_peer.close()
    until(lambda: gone == ["reused", "later"])
    reaper.stop()
    ours.close()
    later.close()


def test_a_watch_that_breaks_off_ends_its_connection(server):
    """Without the last chunk its client would wait for the next event."""
    with Peer(server) as peer:
        peer.send(f"GET {CONFIG_MAPS}?watch=true HTTP/1.1\r\nHost: x\r\n\r\n")
        assert peer.file.readline().startswith(b"HTTP/1.1 200")
        (served,) = server._listener._connections
        served._client_gone()
        assert not peer.rest().endswith(b"0\r\n\r\n")


def test_stopping_ends_watches_in_good_order_and_joins_every_thread():
    before = set(threading.enumerate())
    server = ApiServer().start()
    with Peer(server) as watch, Peer(server) as idle:
        watch.send(f"GET {CONFIG_MAPS}?watch=true HTTP/1.1\r\nHost: x\r\n\r\n")
        assert watch.file.readline().startswith(b"HTTP/1.1 200")
        assert idle.ask("GET", "/healthz")[0] == 200
        server.stop()
        assert watch.file.read().endswith(b"0\r\n\r\n")
        assert idle.answer()[0] == 0
    assert set(threading.enumerate()) <= before


def test_a_server_starts_again_on_its_port_with_its_data(server):
    url = server.url
    with Peer(server) as peer:
        uid = json.loads(peer.ask("POST", CONFIG_MAPS, {"metadata": {"name": "a"}})[2])["metadata"]["uid"]
    server.restart()
    assert server.url == url
    with Peer(server) as peer:
        assert json.loads(peer.ask("GET", f"{CONFIG_MAPS}/a")[2])["metadata"]["uid"] == uid
    server.restart(fresh=True)
    with Peer(server) as peer:
        assert peer.ask("GET", f"{CONFIG_MAPS}/a")[0] == 404


def test_a_server_that_is_out_of_threads_for_a_moment_goes_on_afterwards(server, monkeypatch, caplog):
    start, refused = threading.Thread.start, []

    def refuse_once(thread):
        if thread.name.endswith("-connection") and not refused:
            refused.append(thread)
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse_once)
    with Peer(server) as peer:
        assert peer.answer()[0] == 0
    with Peer(server) as peer:
        assert peer.ask("GET", "/healthz")[0] == 200
    assert "could not be accepted" in caplog.text


def test_without_an_address_only_loopback_is_bound(server):
    assert server.url.startswith("http://127.0.0.1:")


def test_a_port_that_is_taken_is_an_error_that_leaves_nothing_behind(server):
    before = set(threading.enumerate())
    with pytest.raises(OSError, match="in use"):
        ApiServer(port=int(server.url.rpartition(":")[2])).start()
    assert set(threading.enumerate()) <= before


@pytest.mark.parametrize(("watches", "changes"), [(20, 300), pytest.param(50, 2000, marks=pytest.mark.long)])
def test_many_watches_see_all_of_many_changes_in_order(server, watches, changes):
    """Written straight to the core, so that the time goes to the watches."""
    from kubectl_runtime.apiserver.wire import HttpRequest

    seen: list[list[int]] = [[] for _ in range(watches)]

    def read(number, peer):
        while len(seen[number]) < changes:
            size = int(peer.file.readline(), 16)
            for line in peer.file.read(size).splitlines():
                seen[number].append(int(line.split(b'"resourceVersion":"')[1].split(b'"')[0]))
            peer.file.readline()

    peers = [Peer(server) for _ in range(watches)]
    threads = [threading.Thread(target=read, args=item) for item in enumerate(peers)]
    try:
        for peer in peers:
            peer.send(f"GET {CONFIG_MAPS}?watch=true HTTP/1.1\r\nHost: x\r\n\r\n")
            while peer.file.readline().strip():
                pass
        for thread in threads:
            thread.start()
        expected = []
        for number in range(changes):
            request = HttpRequest("POST", CONFIG_MAPS, body=b'{"metadata":{"name":"c%d"}}' % number)
            body = json.loads(server.core.handle(request).body)
            expected.append(int(body["metadata"]["resourceVersion"]))
        for thread in threads:
            thread.join(60)
        assert all(numbers == expected for numbers in seen)
    finally:
        for peer in peers:
            peer.__exit__()


def test_many_clients_that_do_not_read_hold_up_the_end_no_longer_than_one(monkeypatch):
    monkeypatch.setattr(connection, "GRACE", 0.5)
    with ApiServer() as server:
        server.load({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": f"large{number}"},
                     "data": {"k": "v" * 900_000}} for number in range(6))
        with contextlib.ExitStack() as peers:
            for _ in range(20):
                peer = peers.enter_context(Peer(server))
                peer.send("GET /api/v1/configmaps HTTP/1.1\r\nHost: x\r\n\r\n")
                assert peer.socket.recv(1)
            begin = time.monotonic()
            server.stop()
            assert time.monotonic() - begin < 8  # 20 times the grace would be 10 seconds
        assert connection_threads(server) == []
