"""Port-forward against a server whose every frame the test writes."""
from __future__ import annotations

import threading

import pytest

from kubectl_runtime import RequestError, RequestTimeout, TransportError
from tests.client.streaming.socket_peer import pods, serving
from tests.client.wire_server import WireServer, answering, says

V4 = "v4.channel.k8s.io"


def begin(peer, *ports):
    for index, port in enumerate(ports):
        for channel in (2 * index, 2 * index + 1):
            peer.send(channel, port.to_bytes(2, "little"))


def test_each_of_many_ports_has_its_own_bytes_whatever_their_order():
    ports = list(range(8001, 8129))

    def script(peer):
        begin(peer, *ports)
        for _ in ports:
            channel, data = peer.message()
            peer.send(channel, b"%d said %s" % (ports[channel // 2], data))
        peer.end()

    server = serving(script, V4)
    with pods(server) as api, api.portforward("web", ports) as forward:
        for port in reversed(ports):
            forward.socket(port).sendall(b"hello from %d" % port)
        for port in ports:
            assert forward.socket(port).recv(timeout=10) == b"%d said hello from %d" % (port, port)
        for port in ports:
            assert b"".join(forward.socket(port)) == b""
    assert server.requests[0].target == ("/api/v1/namespaces/default/pods/web/portforward?"
                                         + "&".join(f"ports={port}" for port in ports))
    assert server.requests[0].header("Sec-WebSocket-Protocol") == V4


def test_a_port_that_nobody_listens_on_fails_alone():
    def script(peer):
        begin(peer, 80, 81)
        peer.send(0, b"before")
        peer.send(3, b"connection refused ")
        peer.send(3, b"inside the pod")
        channel, data = peer.message()
        peer.send(channel, data)
        peer.end()

    with pods(serving(script, V4)) as api, api.portforward("web", [80, 81]) as forward:
        good, bad = forward.socket(80), forward.socket(81)
        with pytest.raises(TransportError, match=r"port-forward pods/portforward default/web: port 81: connection"):
            bad.recv(timeout=20)
        assert good.recv(timeout=20) == b"before"
        good.sendall(b"echo")
        assert b"".join(good) == b"echo"
        assert bad.error == "connection refused inside the pod"
        assert good.error is None
        with pytest.raises(TransportError, match="port 81: connection refused inside the pod"):
            bad.sendall(b"x")


def test_the_ports_number_may_come_with_the_first_bytes_or_one_byte_at_a_time():
    def script(peer):
        peer.send(0, b"\x50")
        peer.send(0, b"\x00hello")
        peer.end()

    with pods(serving(script, V4)) as api, api.portforward("web", [80]) as forward:
        assert forward.socket(80).recv(timeout=20) == b"hello"


def test_another_port_than_was_asked_for_is_an_error():
    with pods(serving(lambda peer: (begin(peer, 81), peer.peer.hold()), V4)) as api, \
            api.portforward("web", [80]) as forward, \
            pytest.raises(TransportError, match="channel 0 belongs to port 81, where port 80 was expected"):
        forward.socket(80).recv(timeout=20)


def test_a_port_that_is_slow_to_be_read_does_not_hold_up_another():
    def script(peer):
        begin(peer, 80, 81)
        for _ in range(64):
            peer.send(0, b"x" * 65536)
        peer.send(2, b"here")
        peer.end()

    with pods(serving(script, V4)) as api, api.portforward("web", [80, 81]) as forward:
        assert forward.socket(81).recv(timeout=10) == b"here"
        assert sum(map(len, forward.socket(80))) == 64 * 65536


def test_a_connection_that_breaks_off_is_an_error_on_every_port():
    with pods(serving(lambda peer: begin(peer, 80, 81), V4)) as api, api.portforward("web", [80, 81]) as forward:
        for port in forward.ports:
            with pytest.raises(TransportError, match="broke off"):
                forward.socket(port).recv(timeout=20)


def test_silence_is_a_timeout_and_the_connection_goes_on():
    go_on = threading.Event()

    def script(peer):
        begin(peer, 80)
        go_on.wait(20)
        peer.send(0, b"late")
        peer.end()

    with pods(serving(script, V4)) as api, api.portforward("web", [80]) as forward:
        with pytest.raises(RequestTimeout):
            forward.socket(80).recv(timeout=0.05)
        go_on.set()
        assert forward.socket(80).recv(timeout=20) == b"late"


@pytest.mark.parametrize("ports", [[], list(range(1, 130)), [0], [70000], ["80"], [True], [80, 80], "80", 80])
def test_ports_that_make_no_sense_are_refused_before_anything_is_sent(ports):
    server = WireServer(answering(says()))
    with pods(server) as api, pytest.raises(RequestError, match="port"):
        api.portforward("web", ports)
    assert not server.requests


def test_a_port_that_is_not_forwarded_is_named():
    with pods(serving(lambda peer: peer.peer.hold(), V4)) as api, api.portforward("web", [80]) as forward, \
            pytest.raises(RequestError, match="port 81 is not forwarded; the forwarded ports are 80"):
        forward.socket(81)
