"""Who waits for a websocket is woken for what has come, however many others wait, and whatever is full."""
from __future__ import annotations

import random
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from types import SimpleNamespace
from typing import Any

import pytest

from kubectl_runtime import RequestTimeout
from kubectl_runtime.client.streaming import websocket
from kubectl_runtime.client.streaming import websocket as websocket_thread
from kubectl_runtime.client.streaming.process import Channels
from kubectl_runtime.client.streaming.websocket import ROOM, Messages, Opened, WebSocket
from kubectl_runtime.testing import eventually
from tests.client.streaming.socket_peer import CLOSE, SUCCESS, frame, pods, serving


@contextmanager
def opened(inbox: Any) -> Iterator[tuple[WebSocket, socket.socket]]:
    """A websocket, and the server's end of it."""
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    connection: Any = SimpleNamespace(raw=ours)
    with theirs, WebSocket(Opened(ours, b"", "v5.channel.k8s.io", connection), "talk", inbox=inbox) as talk:
        yield talk, theirs
        with suppress(OSError):
            theirs.shutdown(socket.SHUT_RDWR)


class EmptiedAtOnce(Messages):
    """It is full after its first message; and is read just then, before the websocket's thread goes to sleep."""

    def __init__(self) -> None:
        super().__init__()
        self.full = False

    def put(self, message: bytes) -> None:
        self.full = len(self) == 0
        super().put(message)

    def held(self) -> int:
        full, self.full = self.full, False
        return ROOM if full else 0


def test_frames_that_waited_for_room_come_as_soon_as_there_is_some() -> None:
    inbox = EmptiedAtOnce()
    with opened(inbox) as (_, peer):
        peer.sendall(frame(b"one") + frame(b"two"))
        eventually(lambda: len(inbox) == 2)


def test_of_two_readers_of_one_channel_the_second_gets_what_comes_next_though_another_is_full() -> None:
    channels = Channels()
    with opened(channels) as (talk, peer), ThreadPoolExecutor(2) as pool:
        channels.carried_by(talk)
        readers = [pool.submit(channels.read, 1, 10) for _ in range(2)]
        eventually(lambda: len(talk._waiters) == 2)
        for _ in range(ROOM // 65536 + 1):
            peer.sendall(frame(b"\x02" + b"x" * 65536))
        eventually(lambda: channels.held() > ROOM)
        with talk.condition:  # so that neither wakes before both have what they waited for
            peer.sendall(frame(b"\x01a"))
            talk.clock.wait(talk.condition, 10)
        eventually(lambda: any(reader.done() for reader in readers))
        eventually(lambda: len(talk._waiters) == 1)
        peer.sendall(frame(b"\x01b"))
        assert sorted(reader.result(10) for reader in readers) == [b"a", b"b"]


def test_the_end_of_a_process_can_be_waited_for_by_many_each_as_long_as_it_likes() -> None:
    end = threading.Event()

    def script(peer: Any) -> None:
        assert end.wait(10)
        peer.end(SUCCESS)

    with pods(serving(script)) as api, api.exec("web", ["sleep"]) as process, ThreadPoolExecutor(2) as pool:
        patient = [pool.submit(process.returncode) for _ in range(2)]
        eventually(lambda: len(process._channels.websocket._waiters) == 2)
        try:
            with pytest.raises(RequestTimeout):
                process.status(timeout=0.05)
        finally:
            end.set()
        assert [each.result(10) for each in patient] == [0, 0]
        assert process.returncode(0) == 0


@pytest.mark.parametrize("seed", range(40))
def test_each_channel_gets_all_that_was_sent_on_it_whoever_waits_how_long(
        seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (websocket, websocket_thread):
        monkeypatch.setattr(module, "ROOM", 3000)
    chance = random.Random(seed)
    sent = [(chance.randint(1, 4), b"%d;" % number * chance.choice([1, 10, 1000])) for number in range(40)]
    channels = Channels()

    def read(channel: int) -> bytes:
        pieces, waits = [], random.Random(seed + channel)
        while True:
            try:
                pieces.append(channels.read(channel, waits.choice([0, 0.001, 10])))
            except RequestTimeout:
                continue
            if not pieces[-1]:
                return b"".join(pieces)

    with opened(channels) as (talk, peer), ThreadPoolExecutor(4) as pool:
        channels.carried_by(talk)
        readers = {channel: pool.submit(read, channel) for channel in range(1, 5)}
        for channel, data in sent:
            peer.sendall(frame(bytes((channel,)) + data))
        peer.sendall(frame(b"\x03\xe8", CLOSE))
        for channel, reader in readers.items():
            assert reader.result(20) == b"".join(data for on, data in sent if on == channel)
