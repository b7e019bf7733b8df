"""What a look-up or a connection that fails leaves behind: no socket, no connection after a stop, no old failure."""
from __future__ import annotations

import gc
import socket
import time
from collections.abc import Callable

import pytest

from kubectl_runtime import StopToken
from kubectl_runtime.client.http.send import Interrupt
from kubectl_runtime.client.http.sockets import ApiSocket
from kubectl_runtime.client.wire.dialing import dial, look_up

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
