"""What a process of exec holds that nobody has read: how much, and what becomes of it."""
from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from kubectl_runtime import Api
from kubectl_runtime.core.base.threads import SystemClock
from kubectl_runtime.resources.core_v1 import Pod
from tests.client.streaming.socket_peer import SUCCESS, pods, serving


def test_a_slow_reader_makes_the_server_wait_and_loses_nothing():
    sent = [0]
    piece = b"x" * 65536

    def script(peer):
        for _ in range(512):  # 32 MiB
            peer.send(1, piece)
            sent[0] += 1
        peer.end(SUCCESS)

    with pods(serving(script)) as api, api.exec("web", ["cat"]) as process:
        first = process.stdout.read(timeout=10)
        before = -1
        while before != sent[0]:  # until the server is held up
            before = sent[0]
            threading.Event().wait(0.2)
        assert sent[0] < 400, "nobody held the server up"
        held = process._channels.held()
        assert held <= (1 << 20) + 65536
        assert len(first) + sum(map(len, process.stdout)) == 512 * 65536
        assert process.returncode(20) == 0


class Drowsy(SystemClock):
    """Who has waited sleeps on until it is told to wake, as a thread of a busy machine may."""

    def __init__(self):
        self.awake = threading.Event()

    def wait(self, condition, timeout):
        woken = super().wait(condition, timeout)
        condition.release()
        try:
            assert self.awake.wait(30)
        finally:
            condition.acquire()
        return woken


def test_a_reader_that_has_its_data_and_has_not_woken_yet_lets_no_more_in():
    sent = [0]
    asked = threading.Event()

    def script(peer):
        assert asked.wait(10)
        for _ in range(512):  # 32 MiB
            peer.send(1, b"x" * 65536)
            sent[0] += 1
        peer.end(SUCCESS)

    clock = Drowsy()
    with serving(script) as server, server.client(client={"clock": clock}) as client:
        with Api.namespaced(client, Pod, "default").exec("web", ["cat"]) as process:
            with ThreadPoolExecutor(1) as pool:
                first = pool.submit(process.stdout.read)
                while not process._channels.websocket._waiters:
                    threading.Event().wait(0.01)
                asked.set()
                before = -1
                while before != sent[0]:  # until the server is held up
                    before = sent[0]
                    threading.Event().wait(0.2)
                held = process._channels.held()
                clock.awake.set()
                assert len(first.result(10)) == 65536
            assert sent[0] < 512, "nobody held the server up"
            assert held <= (1 << 20) + 65536


@pytest.mark.parametrize("ending", ["close", "reset"])
def test_a_server_that_is_gone_before_everything_is_read_has_still_said_how_it_ended(ending):
    def script(peer):
        for _ in range(20):  # more than is held unread
            peer.send(1, b"x" * 65536)
        peer.send(3, b'{"status": "Success"}')
        peer.frame(b"\x03\xe8", 8)
        if ending == "close":
            peer.peer.close()
        else:
            peer.read()  # the goodbye, so that nothing is under way that a reset could destroy
            peer.peer.reset()

    with pods(serving(script)) as api, api.exec("web", ["cat"]) as process:
        threading.Event().wait(0.3)
        assert sum(map(len, process.stdout)) == 20 * 65536
        assert process.returncode(20) == 0


def test_reading_one_stream_does_not_wait_for_another_that_nobody_reads():
    def script(peer):
        for _ in range(64):  # 4 MiB that nobody asks for
            peer.send(2, b"e" * 65536)
        peer.send(1, b"here")
        peer.end(SUCCESS)

    with pods(serving(script)) as api, api.exec("web", ["noisy"]) as process:
        assert process.stdout.read(timeout=10) == b"here"
        assert process.returncode(20) == 0
        assert len(b"".join(process.stderr)) == 64 * 65536
