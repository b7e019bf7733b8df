"""`python -m kubectl_runtime.testing`: what is wrong is one line and a status; nobody but this machine is served."""

from __future__ import annotations

import os
import signal
import socket
import stat

import pytest

from kubectl_runtime import Api, Client, Config
from kubectl_runtime.resources import Pod
from kubectl_runtime.testing import ApiServer, eventually
from kubectl_runtime.testing.__main__ import main
from tests.examples.programs import Program


@pytest.mark.parametrize(("arguments", "complaint"), [
    (["--port", "99999"], "error: the port must be a number from 0 to 65535, not 99999\n"),
    (["--port", "-1"], "error: the port must be a number from 0 to 65535, not -1\n"),
    (["--bind-address", ""], "error: the host must not be empty"),
    (["--controllers", "nothing"], "error: unknown controllers: nothing"),
    (["--load", "/nonexistent"], "error: [Errno 2]"),
    (["--token-auth-file", "/nonexistent"], "error: [Errno 2]"),
    (["--kubeconfig", "/nonexistent/file"], "error: [Errno 2]"),
    (["--kubeconfig", "/"], "error: [Errno 21]"),
])
def test_what_cannot_be_done_is_one_line_and_status_1(arguments, complaint, capsys, monkeypatch):
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    assert main(arguments) == 1
    said = capsys.readouterr()
    assert said.err.startswith(complaint)
    assert (said.err.count("\n"), said.out) == (1, "")


@pytest.mark.parametrize("value", ["hook", "shop/hook=", "hook=https://a:1", "shop/hook=http://a:1"])
def test_where_no_service_can_be_is_refused_before_anything_runs(value, capsys):
    with pytest.raises(SystemExit, match="2"):
        main(["--webhook-service", value])
    assert f"{value!r} is not of the form NAMESPACE/NAME=https://HOST:PORT" in capsys.readouterr().err


def test_a_port_in_use_is_told(capsys, monkeypatch):
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    with ApiServer() as server:
        port = server.url.rpartition(":")[2]
        assert main(["--port", port]) == 1
    assert capsys.readouterr().err == (
        f"error: cannot listen at 127.0.0.1:{port}: Address already in use; --port gives the API server another port, "
        "and --port 0 takes a free one\n")


@pytest.mark.parametrize(("arguments", "warned"), [
    ([], None), (["--bind-address", "127.0.0.2"], None), (["--bind-address", "localhost"], None),
    (["--bind-address", "0.0.0.0"], "0.0.0.0, which other hosts may reach: every client is an administrator"),
    (["--bind-address", "0.0.0.0", "--token-auth-file", "tokens.csv"], "its tokens pass the network unencrypted"),
    (["--bind-address", "0.0.0.0", "--token-auth-file", "tokens.csv", "--tls"], "it is made for tests")])
def test_a_server_that_other_hosts_may_reach_says_so(arguments, warned, tmp_path, capsys, monkeypatch):
    class Ended:
        def get(self, timeout):
            return signal.SIGINT

        def put(self, number): ...

    monkeypatch.chdir(tmp_path)
    (tmp_path / "tokens.csv").write_text("t,alice,1\n")
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    monkeypatch.setattr("kubectl_runtime.testing.__main__.SimpleQueue", Ended)
    assert main(arguments) == 0
    said = capsys.readouterr()
    assert said.out.startswith("ready http")
    assert said.err == "" if warned is None else f"warning: the server listens at {arguments[1]}" in said.err
    assert warned is None or warned in said.err


def test_a_token_file_that_is_no_text_is_named(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    tokens = tmp_path / "tokens.csv"
    tokens.write_bytes(b"\xff\xfe")
    assert main(["--token-auth-file", str(tokens)]) == 1
    assert f"{tokens} is not UTF-8" in capsys.readouterr().err


def test_a_kubeconfig_that_was_everybodys_becomes_its_owners(tmp_path):
    path = tmp_path / "kubeconfig"
    path.write_text("x" * 10_000)
    path.chmod(0o644)
    with ApiServer(tokens={"t": "alice"}) as server:
        server.write_kubeconfig(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert "xxx" not in path.read_text()


def listening():
    """(address, inode) of the TCP sockets that listen on this machine."""
    found = []
    for file in ("/proc/net/tcp", "/proc/net/tcp6"):
        if os.path.exists(file):
            with open(file) as lines:
                found += [(line.split()[1].rpartition(":")[0], line.split()[9]) for line in list(lines)[1:]
                          if line.split()[3] == "0A"]
    return found


@pytest.mark.skipif(not os.path.exists("/proc/net/tcp"), reason="the sockets of a process are told by Linux only")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_serves_on_loopback_alone_until_a_signal(number):
    with Program("-m", "kubectl_runtime.testing") as run:
        try:
            assert run.until("ready").startswith("ready http://127.0.0.1:")
            links = [os.readlink(f"/proc/{run.pid}/fd/{name}") for name in os.listdir(f"/proc/{run.pid}/fd")]
            mine = [address for address, inode in listening() if f"socket:[{inode}]" in links]
            assert mine == [socket.inet_aton("127.0.0.1")[::-1].hex().upper()]
        finally:
            run.send(number)
        assert run.end() == 0


def test_with_all_controllers_pods_run(tmp_path):
    config = tmp_path / "config"
    with Program("-m", "kubectl_runtime.testing", "--controllers", "*", "--kubeconfig", config) as run:
        run.until("ready")
        with Client(Config.from_kubeconfig(config)) as client:
            pods = Api.namespaced(client, Pod, "default")
            pods.create({"metadata": {"name": "web"}, "spec": {"containers": [{"name": "a", "image": "a"}]}})
            eventually(lambda: pods.get("web"), lambda pod: pod["status"]["phase"] == "Running", timeout=30)
