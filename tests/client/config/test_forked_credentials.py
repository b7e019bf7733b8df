"""A fork while another thread obtains credentials: the child obtains its own, and the parent goes on."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
ROOT = Path(__file__).parents[3]
PRELUDE = """
    import os, sys, threading, time
    from pathlib import Path
    from kubectl_runtime import Config
    from kubectl_runtime.errors import AuthError
    folder = Path(sys.argv[1])

    def wait_for(path):
        give_up = time.monotonic() + 20
        while not path.exists():
            assert time.monotonic() < give_up, path
            time.sleep(0.01)

    def forked(child):
        process = os.fork()
        if process == 0:
            try:
                child()
            except BaseException as error:
                print("child:", repr(error), file=sys.stderr, flush=True)
                os._exit(1)
            os._exit(0)
        give_up = time.monotonic() + 20
        while (ended := os.waitpid(process, os.WNOHANG)) == (0, 0):
            if time.monotonic() > give_up:
                os.kill(process, 9)
                sys.exit("the child hangs")
            time.sleep(0.01)
        assert os.waitstatus_to_exitcode(ended[1]) == 0

    def user(**fields):
        return Config.from_kubeconfig({
            "current-context": "c", "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
            "clusters": [{"name": "k", "cluster": {"server": "https://127.0.0.1:1"}}],
            "users": [{"name": "u", "user": fields}]}).credentials()
"""


def python(code: str, folder: Path) -> None:
    # In a process without pytest's threads, and with nothing of this one to lose.
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(PRELUDE) + textwrap.dedent(code), str(folder)],
                          capture_output=True, text=True, timeout=100, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr


def test_in_the_child_of_a_fork_during_an_exec_plugin_the_plugin_runs_again(tmp_path: Path) -> None:
    plugin = tmp_path / "plugin"
    plugin.write_text(f"""#!/bin/sh
if mkdir {tmp_path}/first 2>/dev/null; then while [ ! -e {tmp_path}/go ]; do sleep 0.02; done; fi
echo '{{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": {{"token": "t"}}}}'
""")
    plugin.chmod(0o755)
    python("""
        credentials = user(exec={"command": str(folder / "plugin"), "interactiveMode": "Never",
                                 "apiVersion": "client.authentication.k8s.io/v1"})
        got = []
        thread = threading.Thread(target=lambda: got.append(credentials.header()))
        thread.start()
        wait_for(folder / "first")

        def child():
            assert credentials.header(time.monotonic() + 15) == "Bearer t"

        forked(child)
        assert got == []
        (folder / "go").touch()
        thread.join(20)
        assert got == ["Bearer t"]
    """, tmp_path)


def test_in_the_child_of_a_fork_while_an_auth_provider_is_silent_a_call_fails_at_its_deadline(tmp_path: Path) -> None:
    python("""
        import socket
        silent = socket.create_server(("127.0.0.1", 0))
        credentials = user(**{"auth-provider": {"name": "oidc", "config": {
            "idp-issuer-url": f"https://127.0.0.1:{silent.getsockname()[1]}", "client-id": "c", "refresh-token": "r"}}})
        threading.Thread(target=credentials.header, args=(time.monotonic() + 60,), daemon=True).start()
        accepted = silent.accept()

        def child():
            try:
                credentials.header(time.monotonic() + 1)
            except AuthError as error:
                assert "oidc" in str(error)
            else:
                sys.exit("there is no token")

        forked(child)
        os._exit(0)
    """, tmp_path)


def test_in_the_child_of_a_fork_while_files_are_read_they_are_read_again(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("t")
    python("""
        credentials = user(tokenFile=str(folder / "token"))
        held = credentials._lock
        held.acquire()  # as a thread does that is reading

        def child():
            assert credentials.header(time.monotonic() + 5) == "Bearer t"
            assert not credentials.refresh("Bearer t")

        forked(child)
        held.release()
        assert credentials.header() == "Bearer t"
    """, tmp_path)
