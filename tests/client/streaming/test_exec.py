"""exec and attach against a server whose every frame the test writes."""
from __future__ import annotations

import json
import threading
import time
from contextlib import suppress
from urllib.parse import parse_qsl, urlsplit

import pytest

from kubectl_runtime import Api, ApiError, Client, Config, RequestError, RequestTimeout, StopToken, TransportError
from kubectl_runtime.certificates.authority import Authority
from kubectl_runtime.certificates.bundles import server_context
from kubectl_runtime.errors import DiscoveryError, ExecFailed
from kubectl_runtime.resources.core_v1 import Pod
from tests.client.streaming.socket_peer import PING, PONG, SUCCESS, SocketPeer, exited, frame, pods, serving
from tests.client.wire_server import WireServer, answering, says, status


def test_output_of_both_streams_and_the_exit_code_come_back():
    def script(peer):
        peer.send(1, b"out \xff\xfe")
        peer.send(2, b"err")
        peer.send(1, b"more")
        peer.end(exited(3))

    with pods(serving(script)) as api:
        done = api.exec("web", ["sh", "-c", "exit 3"]).run()
    assert (done.returncode, done.stdout, done.stderr) == (3, b"out \xff\xfemore", b"err")


def test_a_process_that_fails_is_an_error_to_whoever_asks_for_it_and_its_output_is_not_in_the_text():
    def script(peer):
        peer.send(2, b"password=hunter2")
        peer.end(exited(3))

    with pods(serving(script)) as api, pytest.raises(ExecFailed, match=r"default/web: .* exit code 3") as told:
        api.exec("web", ["psql"]).run(check=True)
    assert (told.value.completed.returncode, told.value.completed.stderr) == (3, b"password=hunter2")
    assert "hunter2" not in f"{told.value} {told.value!r} {told.value.completed!r}"
    with pods(serving(lambda peer: peer.end(SUCCESS))) as api:
        assert api.exec("web", ["true"]).run(check=True).returncode == 0


def test_the_request_says_command_streams_credentials_and_subprotocols():
    server = serving(lambda peer: peer.end(SUCCESS))
    with pods(server, token="secret") as api:
        api.exec("web", ["echo", "a b", "&c=d"], container="app", stdin=True).run()
    request = server.requests[0]
    parts = urlsplit(request.target)
    assert request.method == "GET"
    assert parts.path == "/api/v1/namespaces/default/pods/web/exec"
    assert parse_qsl(parts.query) == [("command", "echo"), ("command", "a b"), ("command", "&c=d"),
                                      ("container", "app"), ("stdin", "true"), ("stdout", "true"), ("stderr", "true")]
    assert request.header("Authorization") == "Bearer secret"
    assert request.header("Sec-WebSocket-Protocol") == "v5.channel.k8s.io, v4.channel.k8s.io"
    assert request.header("Connection") == "Upgrade"
    assert request.header("Upgrade") == "websocket"


def test_stdin_is_half_closed_and_the_output_goes_on_until_the_process_ends():
    def script(peer):
        read = b""
        while True:
            channel, data = peer.message()
            if channel == 255:
                assert data == b"\x00"
                break
            read += data
        peer.send(1, read.upper())
        peer.end(SUCCESS)

    with pods(serving(script)) as api:
        with api.exec("web", ["cat"], stdin=True) as process:
            process.stdin.write(b"some ")
            process.stdin.write(b"input")
            process.stdin.close()
            assert b"".join(process.stdout) == b"SOME INPUT"
            assert process.returncode(timeout=20) == 0
        assert api.exec("web", ["cat"], stdin=True).run(b"again").stdout == b"AGAIN"


def test_a_server_that_knows_v4_only_says_that_stdin_cannot_be_ended_alone():
    def script(peer):
        peer.send(1, b"hello")
        assert peer.message() == (0, b"x")
        peer.end(exited(1))

    with pods(serving(script, "v4.channel.k8s.io")) as api, api.exec("web", ["cat"], stdin=True) as process:
        assert process.protocol == "v4.channel.k8s.io"
        assert process.stdout.read(timeout=20) == b"hello"
        with pytest.raises(DiscoveryError, match=r"exec pods/exec default/web.*v5\.channel"):
            process.stdin.close()
        process.stdin.write(b"x")
        assert process.returncode(timeout=20) == 1


def test_large_frames_fragments_and_frames_in_the_same_packet_as_the_head_arrive_whole():
    big = bytes(range(256)) * (5 << 12)  # 5 MiB

    def serve(peer):
        request = peer.receive()
        if request is None:
            return
        socket = SocketPeer(peer, request, first=frame(b"\x01early "))
        socket.frame(b"\x01frag", opcode=2, fin=False)
        socket.frame(b"in between", PING)
        socket.frame(b"ments ", opcode=0)
        assert socket.read() == (PONG, b"in between")
        socket.send(1, big)
        socket.end(SUCCESS)

    with pods(WireServer(serve)) as api:
        assert api.exec("web", ["cat", "big"]).run(timeout=30).stdout == b"early fragments " + big


def test_large_input_arrives_whole_while_the_process_writes_as_much():
    big = bytes(range(256)) * (3 << 12)

    def script(peer):
        read = 0
        while True:
            channel, data = peer.message()
            if channel == 255:
                break
            read += len(data)
            peer.send(1, data)
        assert read == len(big)
        peer.end(SUCCESS)

    with pods(serving(script)) as api:
        assert api.exec("web", ["cat"], stdin=True).run(big, timeout=30).stdout == big


def test_an_abrupt_close_is_an_error_after_what_had_come():
    def script(peer):
        peer.send(1, b"half")
        peer.peer.close()

    with pods(serving(script)) as api, api.exec("web", ["cat"]) as process:
        assert process.stdout.read(timeout=20) == b"half"
        with pytest.raises(TransportError, match=r"exec pods/exec default/web: the connection broke off"):
            process.stdout.read(timeout=20)
        with pytest.raises(TransportError):
            process.returncode(timeout=20)
        with pytest.raises(TransportError):
            api.exec("web", ["cat"]).run()


def test_a_reset_is_an_error_too():
    with pods(serving(lambda peer: peer.peer.reset())) as api, api.exec("web", ["cat"], stdin=True) as process:
        with pytest.raises(TransportError, match="broke off"):
            process.stdout.read(timeout=20)
        with pytest.raises(TransportError, match="broke off"):
            process.stdin.write(b"x")


def test_a_close_with_a_code_tells_the_servers_reason():
    def script(peer):
        peer.frame(b"\x03\xf3no more room", 8)
        peer.peer.hold()

    with pods(serving(script)) as api, api.exec("web", ["cat"]) as process, \
            pytest.raises(TransportError, match="no more room"):
        process.status(timeout=5)


def test_a_close_without_a_status_leaves_the_end_unknown():
    with pods(serving(lambda peer: peer.end())) as api, api.exec("web", ["cat"]) as process:
        assert b"".join(process.stdout) == b""
        with pytest.raises(TransportError, match="how the process ended is not known"):
            process.status(timeout=5)


def in_messages(peer, status_, pieces):
    """The status on its channel, cut into about so many messages."""
    text = json.dumps(status_).encode()
    size = -(-len(text) // pieces)
    for begin in range(0, len(text), size):
        peer.send(3, text[begin:begin + size])


def goodbye(peer):
    peer.end()


def cut_off(peer):
    peer.peer.close()


def going_away(peer):
    peer.frame(b"\x03\xe9", 8)
    peer.peer.hold()


def half_closed_channels(peer):
    for channel in (1, 2, 3):
        peer.send(255, bytes((channel,)))
    peer.peer.close()


@pytest.mark.parametrize("end", [goodbye, cut_off, going_away, half_closed_channels])
@pytest.mark.parametrize("pieces", [1, 2, 1000])
@pytest.mark.parametrize(("status_", "code"), [(SUCCESS, 0), (exited(3), 3)])
def test_the_exit_code_is_known_however_its_status_comes_and_the_connection_ends(end, pieces, status_, code):
    def script(peer):
        peer.send(1, b"out")
        in_messages(peer, status_, pieces)
        end(peer)

    with pods(serving(script)) as api:
        done = api.exec("web", ["x"]).run(timeout=20)
        assert (done.returncode, done.stdout, done.stderr) == (code, b"out", b"")
        with api.exec("web", ["x"]) as process:
            assert b"".join(process.stdout) == b"out"
            assert process.stderr.read(timeout=20) == b""
            assert [process.returncode(timeout=20) for _ in range(2)] == [code, code]


def test_so_it_is_under_tls_and_with_the_older_subprotocol():
    authority = Authority()

    def script(peer):
        in_messages(peer, exited(7), 2)
        peer.peer.close()  # without TLS's own goodbye

    for protocol in ("v4.channel.k8s.io", "v5.channel.k8s.io"):
        with serving(script, protocol, tls=server_context(authority.server(), authority.pem)) as server:
            with Client(Config(cluster_url=server.url, ca_data=authority.pem)) as client:
                assert Api.namespaced(client, Pod, "default").exec("w", ["x"]).run(timeout=20).returncode == 7


def test_a_status_that_is_whole_is_not_waited_for_any_longer():
    def script(peer):
        in_messages(peer, exited(4), 2)
        peer.peer.hold()

    with pods(serving(script)) as api, api.exec("web", ["x"]) as process:
        assert process.returncode(timeout=20) == 4


@pytest.mark.parametrize("text", [b'{"status": "Fail', b'{"metadata": {}}', b"no container", b"\xff", b"{" * 70_000],
                         ids=["half of one", "another object", "text", "no text", "too long"])
def test_what_is_no_whole_status_leaves_the_end_unknown(text):
    def script(peer):
        peer.send(1, b"out")
        for begin in range(0, len(text), 1 << 14):
            peer.send(3, text[begin:begin + (1 << 14)])
        peer.peer.close()

    with pods(serving(script)) as api, api.exec("web", ["x"]) as process:
        assert process.stdout.read(timeout=20) == b"out"
        with pytest.raises(TransportError, match="broke off"):
            process.stdout.read(timeout=20)
        with pytest.raises(TransportError, match="how the process ended is not known"):
            process.status(timeout=20)


def test_half_a_status_and_then_silence_is_a_timeout():
    with pods(serving(lambda peer: (peer.send(3, b'{"status":'), peer.peer.hold()))) as api:
        with api.exec("web", ["x"]) as process, pytest.raises(RequestTimeout, match=r"only a part came within 0\.1 s"):
            process.status(timeout=0.1)


@pytest.mark.parametrize("begin", [b"\x82\x7f" + (1 << 40).to_bytes(8, "big"), b""], ids=["a frame", "fragments"])
def test_a_message_without_end_is_given_up_at_32_mib(begin):
    sent = []

    def script(peer):
        peer.peer.send(begin)
        piece = bytes(1 << 20) if begin else frame(b"\x01" + bytes(1 << 20), 2, fin=False)
        while True:
            peer.peer.send(piece)
            sent.append(len(piece))
            piece = piece if begin else frame(bytes(1 << 20), 0, fin=False)

    with pods(serving(script)) as api, api.exec("web", ["x"]) as process:
        with pytest.raises(TransportError, match=r"exec pods/exec default/web: a message is longer than 32 MiB"):
            process.stdout.read(timeout=20)
    assert sum(sent) < 80 << 20, "what the sockets hold is all that was sent in vain"


def test_a_command_that_cannot_be_run_is_an_api_error():
    def script(peer):
        peer.end({"status": "Failure", "reason": "InternalError", "code": 500,
                  "message": "OCI runtime exec failed: no such file"})

    with pods(serving(script)) as api, pytest.raises(ApiError, match="OCI runtime exec failed"):
        api.exec("web", ["nope"]).run()


def test_a_terminal_has_a_size_and_no_stderr():
    seen = []

    def script(peer):
        seen.append(peer.message())
        peer.end(SUCCESS)

    server = serving(script)
    with pods(server) as api, api.exec("web", ["top"], stdin=True, tty=True) as process:
        process.terminal_size(120, 40)
        assert process.returncode(20) == 0
        with pytest.raises(RequestError, match="stderr"):
            _ = process.stderr
    assert seen == [(4, b'{"Width":120,"Height":40}')]
    assert "stderr" not in server.requests[0].target
    assert "tty=true" in server.requests[0].target


def test_a_refusal_is_an_api_error_with_the_servers_status():
    server = WireServer(answering(says(403, status(403, "Forbidden", "pods/exec is forbidden"))))
    with pods(server) as api, pytest.raises(ApiError) as caught:
        api.exec("web", ["ls"])
    assert caught.value.is_forbidden
    assert len(server.requests) == 1


def test_an_answer_that_opens_no_websocket_is_a_transport_error():
    with pods(WireServer(answering(says(200, b"{}")))) as api, \
            pytest.raises(TransportError, match="HTTP 200 instead of a websocket"):
        api.exec("web", ["ls"])


def test_another_subprotocol_than_was_asked_for_is_refused():
    with pods(serving(lambda peer: peer.peer.hold(), "channel.k8s.io")) as api, \
            pytest.raises(TransportError, match=r"chose the subprotocol 'channel\.k8s\.io'"):
        api.exec("web", ["ls"])


def test_what_is_no_websocket_frame_ends_the_session_with_an_error():
    with pods(serving(lambda peer: peer.peer.send(b"\xf2\x00"))) as api, \
            api.exec("web", ["ls"]) as process, pytest.raises(TransportError, match="not a websocket"):
        process.stdout.read(timeout=20)


def test_a_stop_token_ends_a_session_that_waits():
    stop = StopToken()
    with pods(serving(lambda peer: peer.peer.hold())) as api, api.exec("web", ["sleep"], stop=stop) as process:
        timer = threading.Timer(0.1, stop.set)
        timer.start()
        assert b"".join(process.stdout) == b""
        timer.join()


def test_closing_the_client_ends_its_sessions():
    with pods(serving(lambda peer: peer.peer.hold())) as api:
        process = api.exec("web", ["sleep"])
        api.client.close()
        assert process.stdout.read(timeout=20) == b""
        process.close()
        assert not [thread for thread in threading.enumerate() if thread.name.startswith("websocket ")]


def test_a_run_that_takes_too_long_is_a_timeout():
    with pods(serving(lambda peer: peer.peer.hold())) as api, pytest.raises(RequestTimeout, match="nothing came"):
        api.exec("web", ["sleep", "60"]).run(timeout=0.2)


def test_a_process_that_does_not_read_its_input_makes_the_writer_wait_and_then_time_out():
    over = threading.Event()
    with pods(serving(lambda peer: over.wait(30))) as api:
        with pytest.raises(RequestTimeout, match="has not read"):
            api.exec("web", ["sleep"], stdin=True).run(b"x" * (64 << 20), timeout=1)
        over.set()


def test_input_that_the_process_does_not_want_is_no_error():
    def script(peer):
        peer.send(1, b"first line")
        peer.end(SUCCESS)

    with pods(serving(script)) as api:
        done = api.exec("web", ["head", "-1"], stdin=True).run(b"x" * (8 << 20), timeout=20)
    assert (done.returncode, done.stdout) == (0, b"first line")


def test_it_works_over_tls_with_the_clients_own_trust_and_certificate():
    authority = Authority()
    piece = b"x" * 100_000

    def script(peer):
        for _ in range(30):
            peer.send(1, piece)
        assert peer.message() == (0, b"in")
        peer.end(SUCCESS)

    identity = authority.client("me")
    with serving(script, tls=server_context(authority.server(), authority.pem)) as server:
        config = Config(cluster_url=server.url, ca_data=authority.pem, client_certificate_data=identity.certificate,
                        client_key_data=identity.key)
        with Client(config) as client, Api.namespaced(client, Pod, "default").exec("w", ["x"], stdin=True) as process:
            process.stdin.write(b"in")
            assert sum(map(len, process.stdout)) == 30 * len(piece)
            assert process.returncode(20) == 0


@pytest.mark.parametrize(("options", "match"), [
    ({"tty": True, "stderr": True}, "a terminal sends stderr as part of stdout"),
    ({"stdout": False, "stderr": False}, "nothing would be attached")])
def test_streams_that_make_no_sense_are_refused_before_anything_is_sent(options, match):
    server = WireServer(answering(says()))
    with pods(server) as api:
        with pytest.raises(RequestError, match=match):
            api.exec("web", ["ls"], **options)
        with pytest.raises(RequestError, match="a program and its arguments"):
            api.exec("web", "ls -l")
    assert not server.requests


def test_attach_asks_for_the_streams_of_the_running_process():
    server = serving(lambda peer: (peer.send(1, b"log line\n\xe2\x82"), peer.send(1, b"\xac"), peer.end(SUCCESS)))
    with pods(server) as api, api.attach("web", container="app") as process:
        assert list(process.stdout.lines()) == ["log line", "€"]
    assert server.requests[0].target == ("/api/v1/namespaces/default/pods/web/attach"
                                         "?container=app&stdout=true&stderr=true")


@pytest.mark.parametrize("said", ["99999999999999999999", "9" * 5000, "²", "--1", "", "0x1"])
def test_an_exit_code_that_is_none_is_an_error_of_the_library(said):
    told = exited(1)
    told["details"]["causes"][0]["message"] = said
    with pods(serving(lambda peer: peer.end(told))) as api, api.exec("web", ["true"]) as process:
        with pytest.raises(ApiError, match="non-zero exit code"):
            process.returncode(timeout=20)


@pytest.mark.parametrize("message", [b"x" * 100_000, b'{"status": "Success", ', b" "], ids=["text", "JSON", "bytes"])
def test_a_status_without_end_is_not_read_to_its_end(message):
    def script(peer):
        piece = frame(b"\3" + message)
        with suppress(OSError):
            for _ in range(100):
                peer.peer.send(piece * max(1, 10_000 // len(piece)))
        peer.peer.hold()

    begun = time.process_time()
    with pods(serving(script)) as api, api.exec("web", ["true"]) as process:
        with pytest.raises(TransportError, match="how the process ended is not known"):
            process.status(timeout=60)
    assert time.process_time() - begun < 20
