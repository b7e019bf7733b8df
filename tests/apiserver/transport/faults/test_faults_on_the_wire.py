"""Each fault as a client with nothing but a socket sees it, and what the server keeps of it."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from kubectl_runtime.testing import ApiServer

CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
PATIENCE = 20.0  # seconds within which everything here happens, many times over
SILENCE = 0.15  # seconds of real silence that tell a stall from an end


@pytest.fixture(scope="module")
def running() -> Iterator[ApiServer]:
    with ApiServer(controllers=()) as server:
        yield server


@pytest.fixture
def server(running: ApiServer) -> Iterator[ApiServer]:
    """The running server with an empty script, an empty recording and a config map of each test's own."""
    running.requests.clear()
    yield running
    running.faults.clear()
    running.drop_connections()


class Raw:
    """A connection whose bytes are the test's business."""

    def __init__(self, server: ApiServer) -> None:
        host, port = server.url.removeprefix("http://").split(":")
        self.socket = socket.create_connection((host, int(port)), PATIENCE)

    def request(self, path: str, method: str = "GET", body: bytes = b"") -> Raw:
        head = (f"{method} {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
                f"Content-Length: {len(body)}\r\n\r\n")
        self.socket.sendall(head.encode() + body)
        return self

    def until_the_end(self) -> tuple[bytes, str]:
        """What comes until the server ends the connection, and how it does: "close", "reset" or, silent, "stall"."""
        received = b""
        self.socket.settimeout(PATIENCE)
        while True:
            try:
                data = self.socket.recv(65536)
            except ConnectionResetError:
                return received, "reset"
            except TimeoutError:
                return received, "stall"
            if not data:
                return received, "close"
            received += data
            self.socket.settimeout(SILENCE if self.last is not None and self.last in received else PATIENCE)

    last: bytes | None = None

    def hasty(self, last: bytes) -> Raw:
        """Takes silence for a stall soon, once `last` has come: until then a busy server may take its time."""
        self.last = last
        return self

    def silent(self) -> bool:
        """Whether nothing comes for a while, the connection being open."""
        self.socket.settimeout(SILENCE)
        try:
            self.socket.recv(1)
        except TimeoutError:
            return True
        return False

    def close(self) -> None:
        self.socket.close()


@contextlib.contextmanager
def raw(server: ApiServer) -> Iterator[Raw]:
    connection = Raw(server)
    try:
        yield connection
    finally:
        connection.close()


def get(server: ApiServer, path: str = CONFIG_MAPS, method: str = "GET", body: bytes = b"") -> http.client.HTTPResponse:
    """An answer, read as Python's own client does; its body is in `content`."""
    connection = http.client.HTTPConnection(server.url.removeprefix("http://"), timeout=PATIENCE)
    with contextlib.closing(connection):
        connection.request(method, path, body, {"Content-Type": "application/json"})
        with connection.getresponse() as response:
            response.content = response.read()  # type: ignore[attr-defined]
            return response


def config_map(name: str) -> bytes:
    return json.dumps({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}).encode()


def create(server: ApiServer, name: str) -> None:
    server.load({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "default"}})


def outcome(server: ApiServer) -> tuple[int | None, str]:
    """Status and ending of the newest request, once it has one."""
    entry = server.requests.wait_for(1, timeout=PATIENCE)[-1]
    return entry.status, entry.ended


@pytest.mark.parametrize("how", ["reset", "close"])
def test_a_dropped_request_gets_no_byte_and_does_nothing(server, how) -> None:
    server.faults.on("create").drop(how)
    with raw(server) as client:
        client.request(CONFIG_MAPS, "POST", config_map(f"dropped-{how}"))
        assert client.until_the_end() == (b"", how)
    assert outcome(server) == (None, how)
    assert get(server, f"{CONFIG_MAPS}/dropped-{how}").status == 404


@pytest.mark.parametrize("how", ["reset", "close"])
def test_a_lost_answer_has_done_its_work(server, how) -> None:
    server.faults.on("create").lose_answer(how)
    with raw(server) as client:
        client.request(CONFIG_MAPS, "POST", config_map(f"lost-{how}"))
        assert client.until_the_end() == (b"", how)
    assert get(server, f"{CONFIG_MAPS}/lost-{how}").status == 200
    assert [(entry.status, entry.ended) for entry in server.requests.select("create")] == [(201, how)]


def test_a_request_that_is_never_answered_keeps_its_connection(server) -> None:
    server.faults.on("list").never_answer()
    with raw(server) as client:
        client.request(CONFIG_MAPS)
        assert client.silent()
    assert server.requests.wait_for(1, timeout=PATIENCE)[0].ended == "stall"  # the client's leaving ends the stall


def test_a_new_connection_is_reset_or_never_served(server) -> None:
    server.faults.connections().first().drop()
    server.faults.connections().nth(2).never_answer()
    with pytest.raises(ConnectionResetError), raw(server) as client:  # as early as within connect, if it is slow
        client.socket.recv(1)
    with raw(server) as client:
        client.request(CONFIG_MAPS)
        assert client.silent()
    assert get(server).status == 200
    assert [entry.verb for entry in server.requests] == ["list"]  # the other two were never read


def test_a_new_connection_is_closed_in_order_though_its_request_was_never_read(server) -> None:
    server.faults.connections().drop("close")
    raw = Raw(server)
    with raw.socket:
        raw.socket.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n" * 50)
        assert raw.socket.recv(1) == b""  # a close with bytes unread would be an RST, and raise


def test_answers_of_any_status_header_and_body(server) -> None:
    server.faults.on("list").nth(1).answer(302, "moved", {"Location": "/elsewhere"})
    server.faults.on("list").nth(2).answer(418, b"\x00\xff", {"Content-Type": "image/png"})
    server.faults.on("list").nth(3).status(504, details={"retryAfterSeconds": 1})
    first, second, third = (get(server) for _ in range(3))
    assert (first.status, first.getheader("location"), first.content) == (302, "/elsewhere", b"moved")
    assert (second.status, second.getheader("content-type"), second.content) == (418, "image/png", b"\x00\xff")
    assert (third.status, json.loads(third.content)["reason"]) == (504, "Timeout")
    assert [entry.status for entry in server.requests] == [302, 418, 504]


def test_too_many_requests_in_each_form(server) -> None:
    server.faults.on("list").nth(1).throttle(2)
    server.faults.on("list").nth(2).throttle(3, "date")
    server.faults.on("list").nth(3).throttle(2, "details")
    server.faults.on("list").nth(4).throttle("soon")
    answers = [get(server) for _ in range(4)]
    assert [answer.status for answer in answers] == [429] * 4
    headers = [answer.getheader("retry-after") for answer in answers]
    assert (headers[0], headers[2], headers[3]) == ("2", None, "soon")
    assert headers[1] is not None
    assert headers[1].endswith("GMT")
    assert get(server).status == 200


@pytest.mark.parametrize("at", [0, 1, 17, 100])
def test_an_answer_is_truncated(server, at) -> None:
    server.faults.on("list").truncate(at, then="close")
    with raw(server) as client:
        received, how = client.request(CONFIG_MAPS).until_the_end()
    assert (len(received), how) == (at, "close")


def test_a_body_is_truncated_at_its_end(server) -> None:
    server.faults.on("list").truncate(-1, of="body", then="close")
    with pytest.raises(http.client.IncompleteRead, match="1 more expected"):
        get(server)


def test_a_half_open_connection_says_nothing_after_its_headers(server) -> None:
    server.faults.on("list").stall_after_headers()
    with raw(server) as client:
        received, how = client.request(CONFIG_MAPS).hasty(b"\r\n\r\n").until_the_end()
    assert received.startswith(b"HTTP/1.1 200 OK\r\n")
    assert received.endswith(b"\r\n\r\n")
    assert how == "stall"


def test_split_and_slow_answers_arrive_whole(server) -> None:
    server.faults.on("list").nth(1).split(1, 2, 3)
    server.faults.on("list").nth(2).slow(100_000, piece=10)
    bodies = {get(server).content for _ in range(3)}
    assert len(bodies) == 1


def test_a_delay_passes_before_or_after_the_work(server) -> None:
    server.faults.on("create").delay(0.05)
    server.faults.on("list").delay(0.05, handled=True)
    for step in (lambda: get(server, method="POST", body=config_map("delayed")), lambda: get(server)):
        begin = time.monotonic()
        assert step().status < 300
        assert time.monotonic() - begin >= 0.05


def test_a_connection_is_closed_although_it_was_kept_alive(server) -> None:
    server.faults.on("list").hang_up()
    with raw(server) as client:
        received, how = client.request(CONFIG_MAPS).until_the_end()
    assert b"Connection: close" not in received
    assert how == "close"


def test_a_function_runs_before_the_request(server) -> None:
    server.faults.on("list").first().run(lambda: create(server, "made-by-the-script"))
    assert b"made-by-the-script" in get(server).content


def test_expired_history_is_a_410_of_the_real_kind(server) -> None:
    version = json.loads(get(server).content)["metadata"]["resourceVersion"]
    create(server, "after-that-version")
    server.faults.on("watch").expire_history()
    answer = get(server, f"{CONFIG_MAPS}?watch=1&resourceVersion={version}&timeoutSeconds=5")
    assert answer.status == 200
    assert json.loads(answer.content)["object"]["code"] == 410


def watch(server: ApiServer, *, timeout: int = 10) -> str:
    version = json.loads(get(server).content)["metadata"]["resourceVersion"]
    server.requests.clear()
    return f"{CONFIG_MAPS}?watch=1&resourceVersion={version}&timeoutSeconds={timeout}"


def lines(received: bytes) -> list[Any]:
    """The whole events in a chunked body whose chunks are lines."""
    body = received.partition(b"\r\n\r\n")[2]
    return [json.loads(line) for line in body.split(b"\r\n") if line.startswith(b"{") and line.endswith(b"}\n")]


@pytest.mark.parametrize(("how", "tail", "ended"), [
    ("end", True, None), ("close", False, "close"), ("reset", False, "reset"), ("stall", False, "stall")])
def test_a_watch_ends_after_its_events(server, how, tail, ended) -> None:
    server.faults.on("watch").end_watch(after=2, how=how)
    path = watch(server)
    with raw(server) as client:
        client.request(path)
        for number in range(3):
            create(server, f"ended-{how}-{number}")
        received, seen = client.hasty(b"0\r\n\r\n" if tail else f"ended-{how}-1".encode()).until_the_end()
    assert [event["object"]["metadata"]["name"] for event in lines(received)] == [f"ended-{how}-0", f"ended-{how}-1"]
    assert received.endswith(b"0\r\n\r\n") is tail
    if ended is None:
        assert seen == "stall"  # the watch is over, the connection can be used again
    else:
        assert seen == ended
        assert outcome(server) == (200, ended)


def test_an_event_is_cut_in_its_line_and_in_its_chunk(server) -> None:
    server.faults.on("watch").nth(1).cut_event(2, at=20)
    server.faults.on("watch").nth(2).cut_event(1, at=2, of="chunk", then="reset")
    path = watch(server)
    create(server, "cut-0")
    create(server, "cut-1")
    with raw(server) as client:
        received, how = client.request(path).until_the_end()
    assert how == "close"
    assert len(lines(received)) == 1
    assert received.rpartition(b"\r\n")[2] == b'{"type":"ADDED","object":'[:20]
    with raw(server) as client:
        received, how = client.request(path).until_the_end()
    assert len(received.rpartition(b"\r\n\r\n")[2]) == 2


def test_events_are_doubled_inserted_and_late(server) -> None:
    rule = server.faults.on("watch").duplicate_events(2, 1).insert_events({"type": "BOOKMARK"}, after=2)
    rule.lag_events(0.05).end_watch(after=4)
    path = watch(server)
    create(server, "odd-0")
    create(server, "odd-1")
    begin = time.monotonic()
    events = [json.loads(line) for line in get(server, path).content.splitlines()]
    assert time.monotonic() - begin >= 0.05
    assert [event["type"] for event in events] == ["ADDED", "ADDED", "BOOKMARK", "ADDED"]


def test_events_are_cut_into_chunks_and_held_back(server) -> None:
    server.faults.on("watch").nth(1).rechunk_events(7).end_watch(after=60)
    server.faults.on("watch").nth(2).batch_events(2).end_watch(after=1)
    path = watch(server)
    create(server, "chunked-0")
    create(server, "chunked-1")
    with raw(server) as client:
        received, _ = client.request(path).hasty(b"0\r\n\r\n").until_the_end()
    chunks = received.partition(b"\r\n\r\n")[2]
    assert chunks.startswith(b'7\r\n{"type"\r\n7\r\n')
    assert len(get(server, path).content.splitlines()) == 2


@pytest.mark.parametrize("fault", [
    lambda rule: rule.never_answer(), lambda rule: rule.stall_after_headers(), lambda rule: rule.delay(1000),
    lambda rule: rule.slow(0.001), lambda rule: rule.lag_events(1000), lambda rule: rule.end_watch(how="stall")])
def test_stopping_the_server_ends_every_fault_at_once(fault) -> None:
    server = ApiServer(controllers=()).start()
    fault(server.faults.on("watch"))
    with raw(server) as client:
        client.request(f"{CONFIG_MAPS}?watch=1")
        wait_until(lambda: len(server.requests) == 1)
        begin = time.monotonic()
        server.stop()
        assert time.monotonic() - begin < PATIENCE  # the faults take longer, or for ever
    mine = f"apiserver-{server.url.rpartition(':')[2]}-"
    assert not [thread.name for thread in threading.enumerate() if thread.name.startswith(mine)]


def wait_until(condition) -> None:
    """Wait for what another thread is about to do."""
    deadline = time.monotonic() + PATIENCE
    waiter = threading.Event()
    while not condition():
        assert time.monotonic() < deadline
        waiter.wait(0.005)


def test_the_recording_has_every_request_in_order(server) -> None:
    with raw(server) as client:
        client.request(CONFIG_MAPS + "?limit=1&labelSelector=a%3Db", "GET")
        client.request(CONFIG_MAPS, "POST", config_map("recorded"))
        client.request(f"{CONFIG_MAPS}/recorded", "DELETE")
        server.requests.wait_for(3, timeout=PATIENCE)
    assert [(e.number - server.requests[0].number, e.verb, e.method, e.path, e.status) for e in server.requests] == [
        (0, "list", "GET", CONFIG_MAPS, 200), (1, "create", "POST", CONFIG_MAPS, 201),
        (2, "delete", "DELETE", f"{CONFIG_MAPS}/recorded", 200)]
    assert server.requests[0].query == [("limit", "1"), ("labelSelector", "a=b")]
    assert server.requests[1].json()["metadata"]["name"] == "recorded"
    assert server.requests[1].headers["content-type"] == "application/json"
