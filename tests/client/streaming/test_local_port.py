"""A local port that leads to a Pod, over real sockets, against a server whose every frame the test writes."""
from __future__ import annotations

import socket
import threading
from collections.abc import Callable

import pytest

from kubectl_runtime import ApiError
from kubectl_runtime.client.streaming import forwarding as module
from kubectl_runtime.testing import eventually
from tests.client.streaming.socket_peer import CLOSE, SocketPeer, pods, serving
from tests.client.wire_server import WireServer, answering, says, status

V4 = "v4.channel.k8s.io"
PORT = 5432


def connected(peer: SocketPeer) -> None:
    for channel in (0, 1):
        peer.send(channel, PORT.to_bytes(2, "little"))


def echoing(peer: SocketPeer) -> None:
    """Answers each message in capitals, and ends after `bye`."""
    connected(peer)
    while True:
        opcode, content = peer.read()
        if opcode == CLOSE:
            peer.frame(content, CLOSE)
            return
        peer.send(0, content[1:].upper())
        if content[1:] == b"bye":
            peer.end()
            return


def after_the_first(script: Callable[[SocketPeer], None]) -> Callable[[SocketPeer], None]:
    """The first connection is the one that shows that the Pod is there; the others get the script."""
    first = threading.Lock()

    def serve(peer: SocketPeer) -> None:
        if first.acquire(blocking=False):
            connected(peer)
            peer.peer.hold()
        else:
            script(peer)

    return serve


def forwarding_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("port-forward")]


def all_of(connection: socket.socket) -> bytes:
    return b"".join(iter(lambda: connection.recv(100), b""))


def test_each_connection_reaches_the_port_of_the_pod_by_itself_and_all_end_with_the_block():
    server = serving(after_the_first(echoing), V4)
    with pods(server) as api:
        with api.portforward_local("db-0", PORT) as local:
            assert repr(local) == f"<LocalPort 127.0.0.1:{local.port}>"
            one = socket.create_connection((local.host, local.port), timeout=10)
            two = socket.create_connection((local.host, local.port), timeout=10)
            for connection, said in ((two, b"two"), (one, b"one"), (two, b"again")):
                connection.sendall(said)
                assert connection.recv(100) == said.upper()
            one.sendall(b"bye")
            assert all_of(one) == b"BYE"
        assert all_of(two) == b""
        local.close()
        eventually(forwarding_threads, lambda names: names == [])
        with pytest.raises(ConnectionError):
            socket.create_connection(("127.0.0.1", local.port), timeout=10)
    for connection in (one, two):
        connection.close()
    assert [request.target for request in server.requests] == [
        f"/api/v1/namespaces/default/pods/db-0/portforward?ports={PORT}"] * 3


def test_who_ends_his_side_still_reads_what_the_pod_sends(monkeypatch):
    monkeypatch.setattr(module, "LINGER", 0.2)

    def slow(peer: SocketPeer) -> None:
        connected(peer)
        assert peer.message()[1] == b"question"
        peer.send(0, b"answer")
        peer.peer.hold()  # and never ends

    with pods(serving(after_the_first(slow), V4)) as api, api.portforward_local("db-0", PORT) as local, \
            socket.create_connection((local.host, local.port), timeout=10) as connection:
        connection.sendall(b"question")
        connection.shutdown(socket.SHUT_WR)
        assert all_of(connection) == b"answer"


def test_a_port_that_the_pod_refuses_closes_the_connection_and_the_log_says_why(caplog):
    def refuses(peer: SocketPeer) -> None:
        connected(peer)
        peer.send(1, b"connection refused inside the pod")
        peer.peer.hold()

    with pods(serving(after_the_first(refuses), V4)) as api, api.portforward_local("db-0", PORT) as local, \
            socket.create_connection((local.host, local.port), timeout=10) as connection:
        assert all_of(connection) == b""
    assert "connection refused inside the pod" in caplog.text


def test_a_pod_that_is_not_there_is_told_of_at_once_and_a_local_port_that_is_taken_too():
    missing = WireServer(answering(says(404, status(404, "NotFound", "there is no such Pod"))))
    with pods(missing) as api, pytest.raises(ApiError, match="no such Pod"):
        api.portforward_local("nobody", PORT)
    with socket.create_server(("127.0.0.1", 0)) as taken, pods(serving(after_the_first(echoing), V4)) as api:
        number = taken.getsockname()[1]
        with pytest.raises(OSError, match=rf"cannot listen at 127\.0\.0\.1:{number}: .*; pass port 0 for any free"):
            api.portforward_local("db-0", PORT, local_port=number)
    eventually(forwarding_threads, lambda names: names == [])
