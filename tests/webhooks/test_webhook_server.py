"""`WebhookServer` over real sockets: whom it answers, whom it cuts, how it ends."""
from __future__ import annotations

import http.client
import json
import logging
import os
import socket
import ssl
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest

pytest.importorskip("cryptography", reason="certificates are made with the package cryptography")

from kubectl_runtime import Client, Config, Manager, RequestError
from kubectl_runtime.certificates.authority import Authority
from kubectl_runtime.core.base.errors import MissingExtra
from kubectl_runtime.runtime.observe import listener
from kubectl_runtime.testing import eventually
from kubectl_runtime.webhooks import Admission, AdmissionRequest, application
from kubectl_runtime.webhooks import server as webhook_server
from kubectl_runtime.webhooks.server import WebhookServer
from kubectl_runtime.webhooks.serving_certificates import SelfSigned
from tests.webhooks.callers import JSON, LIMIT, ask, connection, raw
from tests.webhooks.hooks import Pod, Quota
from tests.webhooks.reviews import pod, review

APP = application({"/quota": Quota()})


def made(app: Any = APP, **more: Any) -> WebhookServer:
    return WebhookServer(app, **{"certificates": SelfSigned(), "host": "127.0.0.1", "port": 0, **more})


def at(address: Any, **more: Any) -> WebhookServer:
    return WebhookServer(APP, address, certificates=SelfSigned(), **more)


@pytest.fixture
def server() -> Iterator[WebhookServer]:
    with made() as server:
        yield server


def read_all(connected: socket.socket) -> bytes:
    found = b""
    while chunk := connected.recv(65536):
        found += chunk
    return found


def threads_of(server: WebhookServer) -> list[str]:
    return [thread.name for thread in threading.enumerate() if server.name in thread.name]


def test_reviews_are_answered_on_a_connection_that_stays(server: WebhookServer) -> None:
    with connection(server) as one:
        for number in range(1, 4):
            status, headers, body = ask(one, body=review(pod(containers=number)))
            assert (status, headers.get("Connection")) == (200, None)
            assert body["response"]["allowed"] is (number < 3)
    assert server.why_not_ready == ""


def test_a_name_that_the_certificate_lacks_is_not_served_under_it(server: WebhookServer) -> None:
    context = ssl.create_default_context(cadata=server.ca_bundle.decode())
    with socket.create_connection(("127.0.0.1", server.port), timeout=LIMIT) as plain, \
            pytest.raises(ssl.SSLCertVerificationError):
        context.wrap_socket(plain, server_hostname="other.shop.svc")


def test_a_service_is_called_by_its_name() -> None:
    with made(certificates=SelfSigned("shop/hooks", hosts=("hooks.example.com",))) as server:
        context = ssl.create_default_context(cadata=server.ca_bundle.decode())
        for name in ("hooks.shop.svc", "hooks.shop.svc.cluster.local", "hooks.example.com"):
            with socket.create_connection(("127.0.0.1", server.port), timeout=LIMIT) as plain:
                context.wrap_socket(plain, server_hostname=name).close()


@pytest.mark.parametrize(("more", "status"), [
    ({"path": "/nope"}, 404), ({"headers": {}}, 415), ({"body": b"{"}, 400), ({"body": b""}, 400),
    ({"body": review(pod(), version="v2")}, 400), ({"body": b"x" * (8 << 20)}, 413),
    ({"body": iter([b"{}"])}, 411)])
def test_what_is_no_review_is_answered_and_the_server_stays_up(server: WebhookServer, more: Any, status: int) -> None:
    with connection(server) as one:
        try:
            found, _, body = ask(one, **more)
        except (BrokenPipeError, ConnectionResetError):  # told before all was sent
            found, body = status, {"kind": "Status", "code": status}
        assert (found, body["kind"], body["code"]) == (status, "Status", status)
    with connection(server) as one:
        assert ask(one)[0] == 200


def test_a_body_that_comes_too_slowly_is_told_so() -> None:
    with made(limit=0.2) as server, raw(server) as slow:
        slow.sendall(b"POST /quota/validate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
                     b"Content-Length: 100\r\n\r\n{")
        answer = read_all(slow)
        assert answer.startswith(b"HTTP/1.1 408 ")
        assert b"Connection: close" in answer
        assert b"the body of 100 bytes did not come in time" in answer
        with connection(server) as one:
            assert ask(one)[0] == 200


@pytest.mark.parametrize("sent", [b"POST /quota/validate HT", b"POST /quota/validate HTTP/1.1\r\nHost: x\r\nX: y"])
def test_a_request_that_never_ends_is_cut(sent: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    with made(limit=0.1) as server, raw(server) as slow:
        slow.sendall(sent)
        assert read_all(slow) == b""


def test_a_handshake_that_never_ends_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "HANDSHAKE", 0.1)
    with made() as server, socket.create_connection(("127.0.0.1", server.port), timeout=LIMIT) as silent:
        assert silent.recv(100) == b""
    with made() as server, socket.create_connection(("127.0.0.1", server.port), timeout=LIMIT) as half:
        half.sendall(b"\x16\x03\x01")
        assert half.recv(100) == b""


@pytest.mark.parametrize(("sent", "status"), [
    (b"GARBAGE\r\n\r\n", b"400 "), (b"POST / HTTP/9.9\r\n\r\n", b"505 "), (b"G" * 70000 + b"\r\n\r\n", b"414 "),
    (b"POST / HTTP/1.1\r\n" + b"A: b\r\n" * 200 + b"\r\n", b"431 "),
    (b"POST /quota/validate HTTP/1.1\r\nContent-Type: application/json\r\nContent-Length: x\r\n\r\n", b"411 "),
    (b"POST /quota/validate HTTP/1.1\r\nContent-Type: application/json\r\nContent-Length: " + b"9" * 5000
     + b"\r\n\r\n", b"411 "),
    (b"POST /quota/validate HTTP/1.1\r\nContent-Type: application/json\r\nContent-Length: 99999999999999999\r\n\r\n",
     b"413 "),
    (b"POST /quota/validate HTTP/1.1\r\nContent-Type: application/json\r\nContent-Length: 2\r\nContent-Length: 5"
     b"\r\n\r\n{}", b"411 "),
    (b"POST /quota/validate HTTP/1.1\r\nContent-Type: application/json\r\nContent-Length: 2\r\n"
     b"Transfer-Encoding: chunked\r\n\r\n{}", b"411 "),
    (b"GET /quota/validate HTTP/1.0\r\n\r\n", b"405 "), (b"HEAD /quota/validate HTTP/1.1\r\n\r\n", b"405 ")])
def test_what_is_no_http_is_told_so(server: WebhookServer, sent: bytes, status: bytes) -> None:
    with raw(server) as odd:
        odd.sendall(sent)
        answer = read_all(odd)
        assert status in answer.partition(b"\r\n")[0] or answer.startswith(status)  # HTTP/0.9 has no status line
        assert b"<html" not in answer.lower()
    with connection(server) as one:
        assert ask(one)[0] == 200


def test_requests_may_come_before_they_are_answered_and_bodies_when_they_are_asked_for(server: WebhookServer) -> None:
    body = review(pod())
    head = (b"POST /quota/validate HTTP/1.1\r\nContent-Type: application/json\r\nContent-Length: %d\r\n" % len(body))
    with raw(server) as one:
        one.sendall(head + b"\r\n" + body + head + b"Connection: close\r\n\r\n" + body)
        assert read_all(one).count(b'"allowed":true') == 2
    with raw(server) as one:
        one.sendall(head + b"Connection: close\r\nExpect: 100-continue\r\n\r\n")
        assert one.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
        one.sendall(body)
        assert b'"allowed":true' in read_all(one)


def test_plain_http_is_told_so(server: WebhookServer) -> None:
    plain = http.client.HTTPConnection("127.0.0.1", server.port, timeout=LIMIT)
    plain.request("POST", "/quota/validate", b"{}", JSON)
    answer = plain.getresponse()
    assert (answer.status, answer.read()) == (400, b"Client sent an HTTP request to an HTTPS server.\n")
    plain.close()


def test_a_client_that_does_not_trust_it_is_told_of_once_a_minute(server: WebhookServer,
                                                                caplog: pytest.LogCaptureFixture) -> None:
    """A webhook whose certificate is wrong: the caller's own error is all that its user sees."""
    for _ in range(3):
        with connection(server, Authority("other").pem) as one, pytest.raises(ssl.SSLCertVerificationError):
            ask(one)
    with connection(server) as one:  # once it is answered, those before it are through
        assert ask(one)[0] == 200
    told = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert len(told) == 1
    assert "refuses this server's certificate" in told[0].getMessage()
    assert "caBundle" in told[0].getMessage()


def test_any_wsgi_application_may_be_served_and_may_fail(caplog: pytest.LogCaptureFixture) -> None:
    def app(environ: Any, start_response: Any) -> Any:
        if environ["PATH_INFO"] == "/raise":
            raise ValueError("oh")
        start_response("200 OK", [("Content-Type", "text/plain")])
        return iter([b"in ", b"parts"])  # without a length

    with made(app) as server:
        with connection(server) as one:
            one.request("GET", "/raise")
            assert one.getresponse().status == 500
        with connection(server) as one:
            one.request("GET", "/")
            answer = one.getresponse()
            assert (answer.status, answer.headers["Connection"], answer.read()) == (200, "close", b"in parts")
    assert "the application failed on GET /raise" in caplog.text


def test_the_connection_that_is_idle_for_the_longest_time_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhook_server, "CONNECTIONS", 2)
    with made() as server, connection(server) as one, connection(server) as two, connection(server) as three:
        for asking in (one, two, one, three):
            assert ask(asking)[0] == 200
            # The client may have the answer before the server's thread waits for the next request.
            eventually(lambda: {each.phase for each in [*server._listener._open]}  # type: ignore[union-attr]
                       <= {listener.Phase.IDLE, listener.Phase.CUT})
        assert ask(one)[0] == 200, "the one before it made room"
        with pytest.raises((http.client.HTTPException, OSError)):
            ask(two)


class Slow(Admission[Pod]):
    """Answers when it is told to."""

    def __init__(self) -> None:
        self.asked, self.go = threading.Event(), threading.Event()

    def validate(self, request: AdmissionRequest[Pod]) -> None:
        self.asked.set()
        assert self.go.wait(LIMIT)


def test_a_stop_lets_the_answer_under_way_finish_and_cuts_who_waits_for_nothing() -> None:
    slow = Slow()
    server = made(application({"/quota": Quota(), "/slow": slow}))
    server.start()
    found: list[Any] = []
    with connection(server) as idle, connection(server) as busy:
        assert ask(idle)[0] == 200
        asking = threading.Thread(target=lambda: found.append(ask(busy, "/slow/validate")))
        asking.start()
        assert slow.asked.wait(LIMIT)
        stopping = threading.Thread(target=server.stop)
        stopping.start()
        assert idle.sock is not None
        assert idle.sock.recv(100) == b""
        slow.go.set()
        asking.join(LIMIT)
        stopping.join(LIMIT)
    status, headers, body = found[0]
    assert (status, headers["Connection"], body["response"]["allowed"]) == (200, "close", True)
    assert threads_of(server) == []
    assert "is stopping" in server.why_not_ready


def test_a_stop_cuts_what_does_not_end_in_time() -> None:
    slow = Slow()
    server = made(application({"/slow": slow}))
    server.start()
    with raw(server) as waiting:
        body = review(pod())
        waiting.sendall(b"POST /slow/validate HTTP/1.1\r\nContent-Type: application/json\r\nContent-Length: "
                        + str(len(body)).encode() + b"\r\n\r\n" + body)
        assert slow.asked.wait(LIMIT)
        server.stop(0.1)
        assert read_all(waiting) == b""
        slow.go.set()


def test_it_starts_once() -> None:
    server = made()
    assert "does not listen" in server.why_not_ready
    with pytest.raises(RequestError, match="no certificate before its start"):
        _ = server.ca_bundle
    server.start()
    with pytest.raises(RequestError, match="started or stopped already"):
        server.start()
    port = server.port
    server.stop()
    server.stop()
    with pytest.raises(RequestError, match="started or stopped already"):
        server.start()
    with made(port=port) as other, pytest.raises(OSError, match=f"cannot listen at .*:{port}: .*; it is for webhooks"):
        assert other.port == port
        made(port=port).start()


def test_its_address_is_said_as_that_of_every_other_server() -> None:
    told = [server.name for server in (at(":9444"), at("127.0.0.1:0"), at(("::1", 9444)), at(None),
                                       at(None, host="127.0.0.1"), at(None, port=9444))]
    assert told == [f"webhook server {address}" for address in (
        ":9444", "127.0.0.1:0", "[::1]:9444", ":9443", "127.0.0.1:9443", ":9444")]
    with at("127.0.0.1:0") as one, connection(one) as other:
        assert ask(other)[0] == 200


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_the_child_of_a_fork_leaves_it_alone(server: WebhookServer) -> None:
    child = os.fork()
    if child == 0:
        server.stop()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    with connection(server) as one:
        assert ask(one)[0] == 200


@pytest.mark.parametrize("make", [
    lambda: made(None), lambda: made(Quota), lambda: made(certificates=None), lambda: made(certificates=SelfSigned),
    lambda: made(port=-1), lambda: made(port="9443"), lambda: made(port=65536), lambda: made(limit=0),
    lambda: at("9443"), lambda: at((":9443",)), lambda: at(9443), lambda: at(":9443", port=9443),
    lambda: at(":9443", host=""), lambda: at(("", True)),
    lambda: SelfSigned(hosts=("",)), lambda: SelfSigned(hosts=("hööks",)), lambda: SelfSigned(hosts=(5,)),
    lambda: SelfSigned("Shop/Hooks"), lambda: SelfSigned(5),
    lambda: SelfSigned("hooks"), lambda: SelfSigned("a/b/c"), lambda: SelfSigned("/b"),
    lambda: SelfSigned(hosts="localhost"), lambda: SelfSigned(validity=timedelta(seconds=3)),
    lambda: made(configuration="shop"), lambda: made(configuration="shop", client=Client(Config(cluster_url="http://x")))])
def test_what_makes_no_sense_is_refused_at_once(make: Any) -> None:
    with pytest.raises(RequestError):
        make()


def test_a_manager_runs_it_and_is_ready_when_it_is() -> None:
    with Client(Config(cluster_url="http://127.0.0.1:1")) as client:
        server = made()
        manager = Manager(client, serve=None).add_server(server)
        with manager.start() as running:
            assert running.why_not_ready == ""
            with connection(server) as one:
                assert ask(one)[0] == 200
            server.stop()
            assert "is stopping" in running.why_not_ready
            assert json.dumps(running.failing_checks()).count("webhook server") == 2
        assert threads_of(server) == []
        with pytest.raises(RequestError, match="there is a check called webhook server"):
            Manager(client, serve=None).add_server(made()).add_server(made())


def test_what_changes_objects_is_not_served_without_jsonpatch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jsonpatch", None)
    with pytest.raises(MissingExtra, match=r"needs the extra 'webhooks': pip install '.*\[webhooks\]'"):
        made().start()


@pytest.mark.parametrize("who", ["the server", "its manager", "its manager, which ends already"])
def test_a_webhook_can_stop_what_serves_it_and_is_answered(who: str) -> None:
    stop: list[Any] = []
    took: list[float] = []
    inside = threading.Event()

    class Stops(Admission[Pod]):
        def validate(self, request: AdmissionRequest[Pod]) -> None:
            inside.set()
            if len(stop) > 1:
                stop[1].wait(LIMIT)
            began = time.monotonic()
            stop[0]()
            took.append(time.monotonic() - began)

    server = made(application({"/quota": Stops()}))
    if who == "the server":
        server.start()
        stop.append(lambda: server.stop(LIMIT))
    else:
        running = Manager(Client(Config(cluster_url="http://127.0.0.1:1")), serve=None).add_server(server).start()
        stop.append(lambda: running.stop(LIMIT))
        if who.endswith("already"):
            ending = server._end
            stop.append(ending)
    with connection(server) as one, ThreadPoolExecutor(1) as pool:
        answer = pool.submit(ask, one)
        assert inside.wait(LIMIT)
        if len(stop) > 1:
            running.begin_stop("by somebody else", LIMIT)
        status, headers, _ = answer.result(LIMIT)
    assert status == 200
    if who == "the server":  # a manager only begins to stop, and the answer may be faster
        assert headers["Connection"] == "close"
    assert took[0] < LIMIT / 4
    eventually(lambda: not threads_of(server), timeout=LIMIT / 4)
