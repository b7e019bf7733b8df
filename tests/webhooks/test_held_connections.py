"""Clients that hold connections, of a webhook server and of a health server: others are answered all the same."""
from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("cryptography", reason="certificates are made with the package cryptography")

from kubectl_runtime import HealthServer, WebhookServer
from kubectl_runtime.runtime.observe import health as health_server
from kubectl_runtime.webhooks import server as webhook_server
from tests.webhooks.callers import LIMIT, ask, connection, trusting
from tests.webhooks.test_webhook_server import made

HEAD = b"POST /quota/validate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"


class Held:
    """Connections to one port that a client holds. Those that `send` names send a byte of it each second."""

    def __init__(self, port: int, number: int, *, tls: Any = None, first: bytes = b"", trickle: bytes = b"") -> None:
        self._sockets: list[socket.socket] = []
        self._end = threading.Event()
        self._trickle = trickle
        for _ in range(number):
            made = socket.create_connection(("127.0.0.1", port), timeout=LIMIT)
            if tls is not None:
                made = tls.wrap_socket(made, server_hostname="127.0.0.1")
            with contextlib.suppress(OSError):
                made.sendall(first)
            self._sockets.append(made)
        self._thread = threading.Thread(target=self._send, daemon=True)
        self._thread.start()

    def __enter__(self) -> Held:
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join(LIMIT)
        for one in self._sockets:
            one.close()

    def _send(self) -> None:
        sent = 0
        while self._trickle and not self._end.wait(1):
            for one in self._sockets:
                with contextlib.suppress(OSError, ValueError):
                    one.send(self._trickle[sent % len(self._trickle):][:1])
            sent += 1


def silent(server: Any, number: int) -> Held:
    return Held(server.port, number)


def in_a_handshake(server: Any, number: int) -> Held:
    return Held(server.port, number, first=b"\x16\x03\x01\x02\x00\x01", trickle=b"\x00")


def idle(server: WebhookServer, number: int) -> Held:
    return Held(server.port, number, tls=trusting(server.ca_bundle))


def in_a_head(server: WebhookServer, number: int) -> Held:
    return Held(server.port, number, tls=trusting(server.ca_bundle), first=HEAD, trickle=b"A: b\r\n")


def in_a_body(server: WebhookServer, number: int) -> Held:
    return Held(server.port, number, tls=trusting(server.ca_bundle), first=HEAD + b"Content-Length: 99999\r\n\r\n{",
                trickle=b" ")


def in_a_plain_head(server: Any, number: int) -> Held:
    return Held(server.port, number, first=b"GET /healthz HTTP/1.1\r\n", trickle=b"A: b\r\n")


def kept(server: Any, number: int) -> Held:
    return Held(server.port, number, first=b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")


def unread(server: Any, number: int) -> Held:
    """Asks for far more than the buffers hold, and reads nothing of it."""
    return Held(server.port, number, first=b"GET /big HTTP/1.1\r\nHost: x\r\n\r\n" * 20)


def files() -> int:
    return len(os.listdir("/proc/self/fd")) if sys.platform == "linux" else 0


@contextlib.contextmanager
def nothing_is_left() -> Iterator[None]:
    """Afterwards there are no more open files and threads than before."""
    before, threads = files(), threading.active_count()
    yield
    end = time.monotonic() + LIMIT
    while (files(), threading.active_count()) > (before, threads) and time.monotonic() < end:
        time.sleep(0.01)
    assert (files(), threading.active_count()) <= (before, threads)


def review_time(server: WebhookServer) -> float:
    began = time.monotonic()
    with connection(server) as one:
        assert ask(one)[0] == 200
    return time.monotonic() - began


def probe_time(server: HealthServer) -> float:
    began = time.monotonic()
    with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/healthz", timeout=LIMIT) as answer:
        assert answer.read() == b"ok"
    return time.monotonic() - began


def health() -> HealthServer:
    server = HealthServer("127.0.0.1:0")
    whole = server.application

    def application(environ: Any, start_response: Any) -> Any:
        if environ["PATH_INFO"] != "/big":
            return whole(environ, start_response)
        start_response("200 OK", [("Content-Length", str(1 << 20))])
        return [b"x" * (1 << 20)]

    server.application = application  # type: ignore[assignment]
    return server


@pytest.mark.parametrize("hold", [silent, in_a_handshake, idle, in_a_head, in_a_body])
def test_reviews_are_answered_while_clients_hold_more_connections_than_there_are(
        hold: Callable[..., Held], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhook_server, "CONNECTIONS", 20)
    with nothing_is_left(), made() as server, connection(server) as one:
        with hold(server, 30):
            times = [review_time(server) for _ in range(4)]
            with hold(server, 20):
                times.append(review_time(server))
        assert max(times) < LIMIT / 4, times
        with contextlib.suppress(OSError):
            one.close()


@pytest.mark.parametrize("hold", [silent, in_a_handshake, in_a_plain_head, kept, unread])
def test_probes_are_answered_while_clients_hold_more_connections_than_there_are(
        hold: Callable[..., Held], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health_server, "CONNECTIONS", 8)
    with nothing_is_left(), health() as server:
        with hold(server, 20):
            times = [probe_time(server) for _ in range(6)]
        assert max(times) < LIMIT / 4, times


SCARCE = """
import os, resource, sys
from kubectl_runtime import HealthServer
with HealthServer("127.0.0.1:0") as server:
    open_files = len(os.listdir("/proc/self/fd"))
    resource.setrlimit(resource.RLIMIT_NOFILE, (open_files + 5, open_files + 5))
    print(server.port, flush=True)
    sys.stdin.read()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="counts the files in /proc")
def test_a_process_that_has_no_more_files_makes_room_and_answers() -> None:
    with subprocess.Popen([sys.executable, "-c", SCARCE], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                          text=True) as program:
        assert program.stdout is not None
        server: Any = SimpleNamespace(port=int(program.stdout.readline()))
        with silent(server, 30):
            assert max(probe_time(server) for _ in range(3)) < LIMIT / 4
        program.communicate("", timeout=LIMIT)
        assert program.returncode == 0


@pytest.mark.long
@pytest.mark.alone
@pytest.mark.parametrize("hold", [idle, in_a_head])
def test_a_thousand_connections_are_held_for_a_minute(hold: Callable[..., Held]) -> None:
    """The figures are those that are promised: 40 of 40 reviews within 1 s, 60 of 60 probes within 0.2 s."""
    with nothing_is_left(), made() as server, health() as probed, hold(server, 1000), silent(probed, 100), \
            kept(probed, 100):
        reviews: list[float] = []
        probes: list[float] = []
        for second in range(60):
            began = time.monotonic()
            if second < 40:
                reviews.append(review_time(server))
            probes.append(probe_time(probed))
            time.sleep(max(0.0, began + 1 - time.monotonic()))
        assert max(reviews) < 1, sorted(reviews)[-5:]
        assert max(probes) < 0.2, sorted(probes)[-5:]
