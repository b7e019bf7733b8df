"""Logs, exec and attach of the embedded server, through the library's own client."""
from __future__ import annotations

import socket
import socketserver
import threading
import time
from datetime import timedelta

import pytest

from kubectl_runtime import Api, ApiError, RequestTimeout, StopToken, TransportError
from kubectl_runtime.apiserver.kubelet.sessions import ContainerLog, Selection
from kubectl_runtime.resources.core_v1 import Pod
from kubectl_runtime.testing import ApiServer, SimClock


def pod(name="web", *containers, node=None):
    spec = {"containers": [{"name": each, "image": "x"} for each in containers or ("app",)]}
    if node:
        spec["nodeName"] = node
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"}, "spec": spec}


@pytest.fixture(params=[False, True], ids=["http", "https"])
def server(request):
    with ApiServer(tls=request.param) as running:
        running.load([pod()])
        yield running


@pytest.fixture
def api(server):
    with server.client() as client:
        yield Api.namespaced(client, Pod, "default")


def refusal(code, function, *args, **options):
    with pytest.raises(ApiError) as caught:
        function(*args, **options)
    assert caught.value.code == code, caught.value
    return caught.value.status.message


def test_a_log_is_what_the_test_wrote(server, api):
    log = server.kubelet.logs("web", "one\ntwo\n")
    log.write(b"\xff\xfe three")
    assert api.logs("web") == b"one\ntwo\n\xff\xfe three"
    assert api.logs("web", tail_lines=2) == b"two\n\xff\xfe three"
    assert api.logs("web", tail_lines=0) == b""
    assert api.logs("web", limit_bytes=5) == b"one\nt"
    assert api.logs("web", container="app") == b"one\ntwo\n\xff\xfe three"
    first = api.logs("web", timestamps=True).split(b"\n")[0]
    assert first.endswith(b"Z one")
    assert len(first) == len("2026-01-01T00:00:00.000000000Z one")


def test_a_followed_log_ends_with_the_container_and_with_a_stop_token(server, api):
    log = server.kubelet.logs("web", "old\n")
    with api.log_stream("web", tail_lines=1) as stream:
        lines = stream.lines()
        assert next(lines) == "old"
        log.write("new\n")
        assert next(lines) == "new"
        log.end()
        assert list(lines) == []
    stop = StopToken()
    other = server.kubelet.logs("web", "x\n", container="app")
    with api.log_stream("web", container="app", stop=stop) as stream:
        lines = stream.lines()
        assert next(lines) == "x"
        threading.Timer(0.1, stop.set).start()
        assert list(lines) == []
    other.write("nobody follows\n")


def test_previous_logs_and_those_that_nobody_gave_are_told_apart(server, api):
    server.load([pod("nowhere"), pod("placed", node="n1")])
    server.kubelet.logs("web", "crashed\n", previous=True)
    server.kubelet.logs("web", "running\n")
    assert api.logs("web", previous=True) == b"crashed\n"
    assert api.logs("nowhere") == b""
    assert "server.kubelet.logs(pod, text)" in refusal(501, api.logs, "placed")
    assert refusal(400, api.logs, "placed", previous=True) == \
        'previous terminated container "app" in pod "placed" not found'
    assert refusal(404, api.logs, "none") == 'pods "none" not found'


def test_the_container_has_to_be_named_where_there_are_several_and_has_to_be_there(server, api):
    server.load([pod("two", "a", "b")])
    server.kubelet.logs("two", "of a", container="a")
    assert api.logs("two", container="a") == b"of a"
    assert refusal(400, api.logs, "two") == "a container name must be specified for pod two, choose one of: [a b]"
    assert refusal(400, api.exec, "two", ["ls"], container="c") == "container c is not valid for pod two"


def test_exec_runs_the_tests_function_with_its_command_and_streams(server, api):
    calls = []

    def shell(call):
        calls.append(call.request)
        call.stdout.write(b"read " + b"".join(call.stdin))
        call.stderr.write(b"\xff err")
        return 7

    server.kubelet.exec("web", shell)
    done = api.exec("web", ["sh", "-c", "echo; exit 7"], stdin=True).run(b"some input \xfe")
    assert (done.returncode, done.stdout, done.stderr) == (7, b"read some input \xfe", b"\xff err")
    assert calls[0].command == ("sh", "-c", "echo; exit 7")
    assert calls[0].container == "app"


def test_large_input_and_output_pass_and_a_slow_reader_is_waited_for(server, api):
    server.kubelet.exec("web", lambda call: call.stdout.write(b"".join(call.stdin)))
    big = bytes(range(256)) * (2 << 12)
    assert api.exec("web", ["cat"], stdin=True).run(big, timeout=60).stdout == big
    written = []

    def flood(call):
        for _ in range(256):
            call.stdout.write(b"x" * 65536)
            written.append(1)

    server.kubelet.exec("web", flood)
    with api.exec("web", ["yes"]) as process:
        first = process.stdout.read(timeout=10)
        before = -1
        while before != len(written):
            before = len(written)
            time.sleep(0.1)  # until the server is held up: there is no event for "it waits"
        assert len(written) < 256
        assert len(first) + sum(map(len, process.stdout)) == 256 * 65536
        assert process.returncode(20) == 0


def test_a_terminal_tells_its_size_and_each_change(server, api):
    seen = []

    def top(call):
        assert call.request.tty
        assert not call.request.stderr
        seen.append(call.wait_for_size())
        seen.append(call.wait_for_size())

    server.kubelet.exec("web", top)
    with api.exec("web", ["top"], stdin=True, tty=True) as process:
        process.terminal_size(80, 24)
        process.terminal_size(132, 50)
        assert process.returncode(10) == 0
    assert seen == [(80, 24), (132, 50)]


def test_a_client_that_goes_away_ends_stdin_and_breaks_writes(server, api):
    over = threading.Event()

    def wait(call):
        assert call.read() == b"hello"
        assert call.read() == b""
        over.set()

    server.kubelet.exec("web", wait)
    with api.exec("web", ["cat"], stdin=True) as process:
        process.stdin.write(b"hello")
    assert over.wait(10)


def test_a_function_that_fails_is_a_command_that_could_not_be_run(server, api):
    def broken(call):
        raise ValueError("my mistake")

    server.kubelet.exec("web", broken)
    with pytest.raises(ApiError, match="ValueError: my mistake"):
        api.exec("web", ["ls"]).run()


def test_attach_is_answered_by_its_own_function(server, api):
    assert "server.kubelet.attach(pod, function)" in refusal(501, api.attach, "web")
    server.kubelet.attach("web", lambda call: call.stdout.write(repr(call.command).encode()))
    with api.attach("web") as process:
        assert b"".join(process.stdout) == b"()"


def test_port_forward_without_an_answer_gets_a_clear_status(server, api):
    server.kubelet.portforward("db-*", 5432, lambda connection: None, namespace="ci")
    told = refusal(501, api.portforward, "web", [80])
    assert "server.kubelet.portforward(pod, port, function)" in told
    assert "the request is for default/web (port 80), and there is one for ci/db-* (port 5432)" in told


def test_connections_to_ports_are_answered_by_functions(server, api):
    def shout(connection):
        while piece := connection.read():
            connection.write(piece.upper() * (1 + (connection.port == 81)))

    server.kubelet.portforward("web", 80, shout)
    server.kubelet.portforward("w*", 81, shout)
    with api.portforward("web", [80, 81]) as forward:
        for port, expected in ((80, b"HELLO"), (81, b"HELLOHELLO")):
            forward.socket(port).sendall(b"hello")
            assert forward.socket(port).recv() == expected
        large = b"x" * 200_000
        forward.socket(80).sendall(large)
        received = b""
        while len(received) < len(large):
            received += forward.socket(80).recv()
        assert received == large.upper()


def test_connections_to_ports_lead_to_a_local_port(server, api):
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Echo) as local:
        threading.Thread(target=local.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        server.kubelet.portforward("web", 5432, to=local.server_address[1])
        with api.portforward_local("web", 5432) as forward, socket.create_connection(
                ("127.0.0.1", forward.port), timeout=10) as connection:
            connection.sendall(b"select 1")
            assert connection.recv(100) == b"select 1"
        local.shutdown()


class Echo(socketserver.BaseRequestHandler):
    def handle(self):
        while piece := self.request.recv(1000):
            self.request.sendall(piece)


def test_what_a_function_raises_is_the_failure_of_its_port(server, api):
    def broken(connection):
        raise ValueError("my mistake")

    server.kubelet.portforward("web", 80, broken)
    with api.portforward("web", [80]) as forward, pytest.raises(TransportError, match="ValueError: my mistake"):
        forward.socket(80).recv()


@pytest.mark.parametrize(("port", "options"), [(80, {}), (80, {"handler": print, "to": 1}), (0, {"to": 80}),
                                               (80, {"to": 70000}), ("80", {"to": 80})])
def test_what_no_port_forward_is(server, port, options):
    with pytest.raises(ValueError, match="port"):
        server.kubelet.portforward("web", port, **options)


@pytest.mark.parametrize(("namespaces", "answer"), [
    ([None], b"any"), (["ci"], b"ci"), ([None, "ci"], b"ci"), (["c*"], b"c*"), (["c*", "ci"], b"ci"),
    ([None, "c*"], b"c*"), (["other"], None)])
def test_answers_hold_in_any_namespace_unless_one_is_named(server, namespaces, answer):
    with server.client() as client:
        server.load({**pod("worker-1"), "metadata": {"name": "worker-1", "namespace": "ci"}})
        for namespace in namespaces:
            named = {} if namespace is None else {"namespace": namespace}
            said = (namespace or "any").encode()
            server.kubelet.exec("worker-*", lambda call, said=said: call.stdout.write(said), **named)
            server.kubelet.logs("worker-*", said, **named)
        ours = Api.namespaced(client, Pod, "ci")
        if answer is None:
            told = refusal(501, ours.exec, "worker-1", ["ls"])
            assert "the request is for ci/worker-1 (app), and there is one for other/worker-*" in told
            return
        assert ours.exec("worker-1", ["ls"]).run().stdout == answer
        assert ours.logs("worker-1") == answer


def test_exec_without_a_websocket_is_refused(server, api):
    from kubectl_runtime.core.requests.request import Request

    server.kubelet.exec("web", lambda call: 0)
    path = "/api/v1/namespaces/default/pods/web/exec"
    for query, message in (((("command", "ls"), ("stdout", "true")), "Upgrade request required"),
                           ((("stdout", "true"),), "you must specify at least one command for the container"),
                           ((("command", "ls"),), "you must specify at least 1 of stdin, stdout, stderr")):
        assert refusal(400, api.client.request, Request("GET", path, "get", None, "exec", query=query)) == message


def test_a_client_that_knows_v4_only_is_served_and_one_that_knows_neither_is_refused(server, api):
    from kubectl_runtime.core.requests.pods import AttachParams, exec_

    server.kubelet.exec("web", lambda call: call.stdout.write(call.read()) or 2)
    asked = exec_(api.place, "web", ["cat"], AttachParams(stdin=True))
    with api.client.connect(asked, ["v4.channel.k8s.io"]) as talk:
        assert talk.protocol == "v4.channel.k8s.io"
        assert talk.receive(10) == b"\x01"
        talk.send(b"\x00hello")
        assert talk.receive(10) == b"\x01hello"
        assert b'"message": "2"' in (talk.receive(10) or b"")
        assert talk.receive(10) is None
    assert "none of the supported subprotocols" in refusal(400, api.client.connect, asked, ["channel.k8s.io"])


def test_a_server_that_stops_breaks_sessions_off(server, api):
    begun = threading.Event()

    def wait(call):
        begun.set()
        call.read()

    server.kubelet.exec("web", wait)
    with api.exec("web", ["cat"], stdin=True) as process:
        assert begun.wait(10)
        server.stop()
        with pytest.raises((TransportError, RequestTimeout)):
            process.status(timeout=10)


def test_a_transport_without_sockets_says_that_it_carries_no_websocket():
    import requests

    from kubectl_runtime import Client, Config

    server = ApiServer()
    server.load([pod()])
    server.kubelet.logs("web", "a log\n")
    server.kubelet.exec("web", lambda call: 0)
    session = requests.Session()
    session.mount("http://", server.transport())
    with Client(Config(cluster_url="http://simulated"), session=session) as client:
        api = Api.namespaced(client, Pod, "default")
        assert api.logs("web") == b"a log\n"
        assert "carries no websocket" in refusal(501, api.exec, "web", ["ls"])


def test_since_and_timestamps_count_lines_from_their_beginning():
    clock = SimClock()
    log = ContainerLog(clock)
    log.write("one\ntw")
    clock.advance(10)
    log.write("o\nthree\n")
    since = clock.now() - timedelta(seconds=5)
    assert log.read(Selection(since=since)) == b"three\n"
    shown = log.read(Selection(timestamps=True)).decode().splitlines()
    assert [line.partition(" ")[2] for line in shown] == ["one", "two", "three"]
    assert shown[0].partition(" ")[0] == shown[1].partition(" ")[0] != shown[2].partition(" ")[0]
    log.end()
    with pytest.raises(ValueError, match="has ended"):
        log.write("more")
