"""kubectl's own logs, exec, attach and port-forward against Pods of the embedded server."""
from __future__ import annotations

import pytest

pytestmark = pytest.mark.kubectl


@pytest.fixture(scope="module")
def web(server, kubectl):
    server.load([{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web", "namespace": "default"},
                  "spec": {"containers": [{"name": "app", "image": "x"}]}, "status": {"phase": "Running"}}])
    return "web"


def test_logs_shows_the_log_and_its_tail(server, kubectl, web):
    server.kubelet.logs(web, "one\ntwo\nthree\n")
    assert kubectl("logs", web) == "one\ntwo\nthree\n"
    assert kubectl("logs", web, "--tail=1") == "three\n"


def test_logs_follow_until_the_container_ends(server, kubectl):
    server.load([{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "followed", "namespace": "default"},
                  "spec": {"containers": [{"name": "app", "image": "x"}]}, "status": {"phase": "Running"}}])
    log = server.kubelet.logs("followed", "first\n")
    following = kubectl.start("logs", "-f", "followed")
    try:
        assert following.stdout.readline() == "first\n"
        log.write("second\n")
        assert following.stdout.readline() == "second\n"
        log.end()
        assert following.stdout.read() == ""
        assert following.wait(10) == 0
    finally:
        following.kill()
        following.stdout.close()
        following.wait()


def test_exec_shows_both_outputs_and_ends_with_the_exit_code(server, kubectl, web):
    def shell(call):
        call.stdout.write(b"out of " + " ".join(call.command).encode() + b"\n")
        call.stderr.write(b"err\n")
        return 3

    server.kubelet.exec(web, shell)
    result = kubectl.run("exec", web, "--", "sh", "-c", "exit 3")
    assert (result.returncode, result.stdout) == (3, "out of sh -c exit 3\n")
    assert result.stderr.startswith("err\n")
    assert "command terminated with exit code 3" in result.stderr


def test_exec_sends_stdin_and_its_end(server, kubectl, web):
    server.kubelet.exec(web, lambda call: call.stdout.write(b"".join(call.stdin).upper()))
    text = "some input\n" * 20_000
    result = kubectl.run("exec", "-i", web, "--", "cat", stdin=text)
    assert (result.returncode, result.stdout) == (0, text.upper()), result.stderr


def test_attach_shows_what_the_process_writes(server, kubectl, web):
    server.kubelet.attach(web, lambda call: call.stdout.write(b"from the process\n"))
    result = kubectl.run("attach", web)
    assert result.returncode == 0, result.stderr
    assert "from the process\n" in result.stdout


def test_port_forward_says_that_no_container_runs(kubectl, web):
    result = kubectl.run("port-forward", web, ":80")
    assert result.returncode != 0
    assert "server.kubelet.portforward(pod, port, function)" in result.stderr
