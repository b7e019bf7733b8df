"""One websocket of a client: `Client.connect`, pings, the end, credentials and proxies."""
from __future__ import annotations

import base64
import json
import socket
import struct
import subprocess
import sys
import threading
import time
from contextlib import closing, suppress
from types import SimpleNamespace

import pytest

from kubectl_runtime import Api, ApiError, Client, Config, RequestTimeout, TransportError
from kubectl_runtime.client.streaming import websocket
from kubectl_runtime.client.streaming import websocket as websocket_thread
from kubectl_runtime.client.streaming.websocket import FrameReader, Opened
from kubectl_runtime.core.requests.request import Request
from kubectl_runtime.resources import Pod
from tests.client.streaming.socket_peer import CLOSE, PING, PONG, SUCCESS, SocketPeer, frame, serving
from tests.client.wire_server import WireServer, status

ASKED = Request("GET", "/apis/example.com/v1/things/a/talk", "get", None, "talk to a")
PROTOCOL = "v5.channel.k8s.io"


def test_connect_opens_any_websocket_and_messages_go_both_ways():
    def script(peer):
        opcode, content = peer.read()
        assert (opcode, content) == (2, b"hello")
        peer.frame(b"text", opcode=1)
        peer.frame(b"", opcode=2)
        peer.end()

    with serving(script) as server, server.client() as client, client.connect(ASKED, [PROTOCOL]) as talk:
        assert talk.protocol == PROTOCOL
        talk.send(b"hello")
        assert talk.receive(20) == b"text"
        assert talk.receive(20) == b""
        assert talk.receive(20) is None
        assert talk.receive() is None
        with pytest.raises(TransportError, match="talk to a: the connection was closed"):
            talk.send(b"more")


def test_closing_says_goodbye_after_everything_that_was_sent():
    got = []

    def script(peer):
        while True:
            opcode, content = peer.read()
            got.append((opcode, content))
            if opcode == CLOSE:
                peer.frame(content, CLOSE)
                return

    with serving(script) as server, server.client() as client:
        with client.connect(ASKED, [PROTOCOL]) as talk:
            for number in range(50):
                talk.send(b"%d" % number)
        talk.close()
    assert got == [*((2, b"%d" % number) for number in range(50)), (CLOSE, struct.pack("!H", 1000))]


def test_a_peer_that_never_says_goodbye_is_waited_for_a_moment_only():
    with serving(lambda peer: peer.peer.hold()) as server, server.client() as client:
        talk = client.connect(ASKED, [PROTOCOL])
        closer = threading.Thread(target=talk.close)
        closer.start()
        closer.join(10)
        assert not closer.is_alive()
        assert talk.ended
        assert talk.error is None


def test_pings_are_sent_and_answered(monkeypatch):
    monkeypatch.setattr(websocket_thread, "PING_INTERVAL", 0.05)

    def script(peer):
        assert peer.read() == (PING, b"")
        peer.frame(b"are you there", PING)
        while (found := peer.read()) == (PING, b""):
            pass
        assert found == (PONG, b"are you there")
        peer.send(1, b"done")
        peer.end()

    with serving(script) as server, server.client() as client, client.connect(ASKED, [PROTOCOL]) as talk:
        assert talk.receive(10) == b"\x01done"


def test_silence_is_a_timeout_and_the_websocket_goes_on():
    go_on = threading.Event()

    def script(peer):
        go_on.wait(20)
        peer.send(1, b"late")
        peer.end()

    with serving(script) as server, server.client() as client, client.connect(ASKED, [PROTOCOL]) as talk:
        with pytest.raises(RequestTimeout, match="talk to a"):
            talk.receive(0.05)
        go_on.set()
        assert talk.receive(20) == b"\x01late"


def test_credentials_that_are_refused_are_renewed_for_a_websocket_too(tmp_path):
    token = tmp_path / "token"
    token.write_text("old")

    def serve(peer):
        while (request := peer.receive()) is not None:
            if request.header("Authorization") != "Bearer new":
                token.write_text("new")
                peer.answer(401, status(401, "Unauthorized"))
            else:
                SocketPeer(peer, request).end(SUCCESS)
                return

    with WireServer(serve) as server, server.client(token_file=str(token)) as client:
        assert Api.namespaced(client, Pod, "default").exec("web", ["ls"]).run(timeout=10).returncode == 0
    assert [request.header("Authorization") for request in server.requests] == ["Bearer old", "Bearer new"]


def test_a_websocket_comes_with_all_that_an_exec_plugin_gives_and_it_runs_once_for_all_calls(tmp_path):
    from kubectl_runtime.certificates.authority import Authority
    from kubectl_runtime.certificates.bundles import server_context

    authority, runs, shown = Authority(), tmp_path / "runs", []
    own = authority.client("jane")
    (tmp_path / "answer").write_text(json.dumps({
        "apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential",
        "status": {"token": "t", "clientCertificateData": own.certificate.decode(),
                   "clientKeyData": own.key.decode()}}))
    plugin = tmp_path / "plugin"
    plugin.write_text(f"#!/bin/sh\necho run >> {runs}\ncat {tmp_path / 'answer'}\n")
    plugin.chmod(0o755)

    def serve(peer):
        shown.append(peer._socket.getpeercert()["subject"])
        request = peer.receive()
        if request.header("Upgrade"):
            SocketPeer(peer, request).end(SUCCESS)
        else:
            peer.answer(200, b'{"major": "1"}')

    with WireServer(serve, tls=server_context(authority.server(("127.0.0.1",)), authority.pem)) as server:
        config = Config.from_kubeconfig({
            "current-context": "c", "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
            "clusters": [{"name": "k", "cluster": {
                "server": server.url, "certificate-authority-data": base64.b64encode(authority.pem).decode()}}],
            "users": [{"name": "u", "user": {"as": "joe", "exec": {
                "apiVersion": "client.authentication.k8s.io/v1", "interactiveMode": "Never",
                "command": str(plugin)}}}]})
        with Client(config) as client:
            assert not runs.exists(), "making a client runs nothing"
            assert Api.namespaced(client, Pod, "default").exec("web", ["ls"]).run(timeout=10).returncode == 0
            client.server_version()
    assert {request.header("Authorization") for request in server.requests} == {"Bearer t"}
    assert {request.header("Impersonate-User") for request in server.requests} == {"joe"}
    assert all((("commonName", "jane"),) in subject for subject in shown)
    assert runs.read_text().split() == ["run"]


def test_a_layer_of_the_user_sees_the_handshake():
    seen = []

    def layer(send):
        def sent(call):
            answer = send(call)
            seen.append((call.request.operation, answer.status))
            return answer

        return sent

    with serving(lambda peer: peer.end(SUCCESS)) as server, server.client(client={"layers": [layer]}) as client:
        assert Api.namespaced(client, Pod, "default").exec("web", ["ls"]).run(timeout=10).returncode == 0
    assert seen == [("exec pods/exec default/web", 101)]


def test_a_websocket_goes_through_a_proxy_as_calls_do():
    lines = []

    def forward(source, target):
        with suppress(OSError):
            while data := source.recv(65536):
                target.sendall(data)
        with suppress(OSError):
            target.shutdown(socket.SHUT_WR)

    from kubectl_runtime.certificates.authority import Authority
    from kubectl_runtime.certificates.bundles import server_context

    authority = Authority()
    with serving(lambda peer: (peer.send(1, b"through"), peer.end(SUCCESS)),
                 tls=server_context(authority.server(), authority.pem)) as server, \
            closing(socket.create_server(("127.0.0.1", 0))) as listener:

        def proxy():
            connection, _ = listener.accept()
            with connection, connection.makefile("rb") as file:
                lines.append(file.readline())
                while file.readline().strip():
                    pass
                with socket.create_connection(("127.0.0.1", server.port)) as upstream:
                    connection.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
                    back = threading.Thread(target=forward, args=(upstream, connection))
                    back.start()
                    forward(connection, upstream)
                    back.join(20)

        thread = threading.Thread(target=proxy)
        thread.start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        with server.client(ca_data=authority.pem, proxy_url=url) as client:
            done = Api.namespaced(client, Pod, "default").exec("web", ["ls"]).run(timeout=10)
        thread.join(20)
    assert done.stdout == b"through"
    assert [line.split()[:2] for line in lines] == [[b"CONNECT", f"127.0.0.1:{server.port}".encode()]]


def test_programs_that_open_no_websocket_do_not_pay_for_importing_them():
    program = ("import sys; from kubectl_runtime import Api, Client, Config; "
               "from kubectl_runtime.resources import Pod; "
               "Api.namespaced(Client(Config(cluster_url='http://127.0.0.1:1')), Pod, 'default'); "
               "print([name for name in sys.modules if name.startswith(('websocket', 'kubectl_runtime.client.str'))])")
    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert shown.stdout.strip() == "[]"


def test_a_mocked_adapter_says_that_it_carries_no_websocket():
    import requests
    import requests_mock

    session = requests.Session()
    adapter = requests_mock.Adapter()
    session.mount("http://", adapter)
    adapter.register_uri("GET", requests_mock.ANY, status_code=101)
    server = WireServer(lambda peer: None)
    with server, server.client(client={"session": session}) as client, \
            pytest.raises((TransportError, ApiError), match="talk to a"):
        client.connect(ASKED)


class FullOnce:
    """An inbox that has no room for a moment after its first message."""

    def __init__(self):
        self.messages = []
        self.full = False

    def put(self, message):
        self.full = not self.messages
        self.messages.append(message)

    def held(self):
        full, self.full = self.full, False
        return websocket.ROOM if full else 0


def test_frames_that_waited_for_room_when_the_connection_ended_are_not_lost():
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    theirs.sendall(frame(b"one") + frame(b"two") + frame(b"\x03\xe8", CLOSE))
    theirs.close()
    inbox = FullOnce()
    with websocket.WebSocket(Opened(ours, b"", "", SimpleNamespace(raw=ours)), "talk", inbox=inbox) as talk:
        with talk.condition:
            while not talk.ended:
                talk.condition.wait(20)
        assert inbox.messages == [b"one", b"two"]
        assert talk.error is None


@pytest.mark.parametrize(("size", "number"), [(100, 60_000), (16_000, 1_500), (0, 60_000)], ids=str)
def test_a_message_of_many_fragments_is_put_together_in_linear_time(size, number):
    """Two of websocket-client's ways to do so copy what has come for each fragment."""
    fragments = frame(b"\1", 2, fin=False) + frame(b"x" * size, 0, fin=False) * number + frame(b"end", 0)
    begun = time.process_time()
    reader = FrameReader()
    found = []
    for begin in range(0, len(fragments), 1 << 16):
        reader.feed(fragments[begin:begin + (1 << 16)])
        found += reader.messages()
    assert found == [(2, b"\1" + b"x" * size * number + b"end")]
    assert time.process_time() - begun < 15


@pytest.mark.parametrize("frames", [
    frame(b"x", 0), frame(b"x", 2, fin=False) + frame(b"y", 2), frame(b"x", 1, fin=False) + frame(b"y", 1, fin=False)],
    ids=["no message", "another message", "two begun"])
def test_fragments_that_belong_to_no_message_end_the_websocket(frames):
    reader = FrameReader(frames)
    with pytest.raises(TransportError, match="not a websocket"):
        list(reader.messages())


def test_a_peer_that_pings_and_reads_nothing_gets_few_answers():
    flooded = threading.Event()

    def script(peer):
        for _ in range(100):
            peer.peer.send(frame(b"x" * 125, PING) * 500)
        peer.send(1, b"after")
        flooded.wait(20)

    with serving(script) as server, server.client() as client, client.connect(ASKED, [PROTOCOL]) as talk:
        assert talk.receive(60) == b"\1after"
        assert talk._unsent <= websocket.ROOM + 1000
        flooded.set()


def test_the_words_of_a_goodbye_are_shown_as_text():
    def script(peer):
        peer.frame(struct.pack("!H", 1011) + b"\x1b[2Jlost\nERROR forged", CLOSE)
        peer.read()

    with serving(script) as server, server.client() as client, client.connect(ASKED, [PROTOCOL]) as talk:
        with pytest.raises(TransportError, match=r"ended the connection: \\x1b\[2Jlost\\nERROR forged"):
            talk.receive(20)
