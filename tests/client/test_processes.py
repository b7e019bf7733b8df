"""The client and the process: what importing costs, forks, threads, descriptors, the end of the interpreter."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import pytest

from kubectl_runtime import Api, Client, Config
from kubectl_runtime.resources import ConfigMap
from tests.client.wire_server import Peer, WireServer, answering, config_map, says

ROOT = Path(__file__).parents[2]


def python(code: str, *arguments: str, timeout: float = 30) -> str:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), *arguments],
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


USE = """
    import resource, sys
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    from kubectl_runtime import Api, Client, Config
    client = Client(Config(cluster_url=sys.argv[1]))
    client.server_version()
    print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024)
    print(sorted(name for name in ("kubernetes", "yaml", "cachetools", "prometheus_client") if name in sys.modules))
"""
# How long that takes is measured by tests/benchmarks/imports.py: a test that looks at a clock fails on a busy machine.


def test_using_the_client_costs_at_most_40_mib_and_loads_nothing_heavy() -> None:
    with WireServer(answering(says(200, b'{"major": "1"}'))) as server:
        measured = [python(USE, server.url).split("\n") for _ in range(3)]
    assert min(float(lines[0]) for lines in measured) < 40
    assert measured[0][1] == "[]"


CALL = """
    import os, resource, sys
    from kubectl_runtime import Client
    client = Client.try_default()
    assert "kubernetes" not in sys.modules, "loading imported it"
    client.server_version()
    assert "kubernetes" not in sys.modules, "the call imported it"
    with open("/proc/self/status") as status:
        print(next(int(line.split()[1]) for line in status if line.startswith("VmHWM")) / 1024)
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="this system has no /proc")
@pytest.mark.parametrize("login", ["token", "certificate", "exec"])
def test_a_client_from_a_kubeconfig_never_imports_the_official_client_and_takes_few_mib(
    login: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("cryptography", reason="certificates are made with the package cryptography")
    from kubectl_runtime.certificates.authority import Authority
    from kubectl_runtime.certificates.bundles import server_context

    authority = Authority()
    own = authority.client("jane")
    for name, content in (("ca", authority.pem), ("crt", own.certificate), ("key", own.key)):
        (tmp_path / name).write_bytes(content)
    plugin = tmp_path / "plugin"
    plugin.write_text("""#!/bin/sh
echo '{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": {"token": "t"}}'
""")
    plugin.chmod(0o755)
    user = {
        "token": "token: t",
        "certificate": "client-certificate: crt\n    client-key: key",
        "exec": "exec: {command: ./plugin, apiVersion: client.authentication.k8s.io/v1, interactiveMode: Never}",
    }[login]
    answer = answering(says(200, b'{"major": "1"}'))
    with WireServer(answer, tls=server_context(authority.server(("127.0.0.1",)), authority.pem)) as server:
        (tmp_path / "config").write_text(
            f"""current-context: c
contexts:
- {{name: c, context: {{cluster: k, user: u}}}}
clusters:
- {{name: k, cluster: {{server: "{server.url}", certificate-authority: ca}}}}
users:
- name: u
  user:
    {user}
""")
        monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
        # The whole process. The bare interpreter takes 9 MiB of it; the budget is 40 beyond it.
        assert float(python(CALL)) < 49
        header = server.requests[0].header("Authorization")
    assert header == (None if login == "certificate" else "Bearer t")


def test_importing_the_facade_loads_only_the_version_and_the_table_of_names() -> None:
    code = "import sys, kubectl_runtime; print(*sorted(name for name in sys.modules if name.startswith('kubectl_')))"
    assert python(code).split() == [
        "kubectl_runtime", "kubectl_runtime.core", "kubectl_runtime.core.base", "kubectl_runtime.core.base.version",
        "kubectl_runtime.facade"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_the_child_of_a_fork_makes_connections_of_its_own() -> None:
    with WireServer(answering(says(200, config_map()))) as server, server.client() as client:
        api = Api.namespaced(client, ConfigMap, "default")
        api.get("a")
        # In a process without the server's threads, or the fork would copy their locks.
        code = """
            import os, sys
            from kubectl_runtime import Api, Client, Config
            from kubectl_runtime.resources import ConfigMap
            api = Api.namespaced(Client(Config(cluster_url=sys.argv[1])), ConfigMap, "default")
            api.get("parent")
            if os.fork() == 0:
                api.get("child")
                os._exit(0)
            _, code = os.wait()
            api.get("parent")
            sys.exit(code)
        """
        python(code, server.url)
    by_name = {request.target.rpartition("/")[2]: request.connection for request in server.requests}
    parents = {request.connection for request in server.requests if request.target.endswith("parent")}
    assert len(parents) == 1
    assert by_name["child"] not in parents


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_child_that_closes_its_client_leaves_the_parents_watch_open_and_ends_its_own() -> None:
    def serve(peer: Peer) -> None:
        peer.receive()
        peer.start_stream()
        peer.chunk(b"\n")
        while not released.is_set():
            peer.chunk(b"\n")
            released.wait(0.05)

    code = """
        import os, sys, threading, time
        from kubectl_runtime import Api, Client, Config, TransportError
        from kubectl_runtime.core.requests.request import Request
        watch = Request("GET", "/api/v1/configmaps", "watch", None, "watch")
        client = Client(Config(cluster_url=sys.argv[1]))
        parents = client.stream(watch)
        chunks = parents.chunks()
        next(chunks)
        process = os.fork()
        if process == 0:
            try:
                if sys.argv[2] == "used":
                    own = client.stream(watch)
                derived = client.with_layer(lambda send: send)
                (derived if sys.argv[2] == "derived" else client).close()
                try:
                    client.server_version()
                    os._exit(2)
                except TransportError as error:
                    os._exit(0 if "closed" in str(error) else 3)
            except BaseException:
                os._exit(4)
        assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == 0
        for _ in range(3):
            next(chunks)
        client.close()
    """
    released = threading.Event()
    for child in ("used", "unused", "derived"):
        released.clear()
        with WireServer(serve) as server:
            try:
                python(code, server.url, child)
            finally:
                released.set()


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="this system has no /proc")
def test_fifty_clients_leave_no_thread_and_no_descriptor() -> None:
    with WireServer(answering(says(200, config_map()))) as server:
        threads = set(threading.enumerate())
        with server.client() as client:
            Api.namespaced(client, ConfigMap, "default").get("a")
        gc.collect()
        before = client_side(server.port)
        for _ in range(50):
            with server.client() as client:
                Api.namespaced(client, ConfigMap, "default").get("a")
        gc.collect()
        assert client_side(server.port) <= before + 1
        assert {thread for thread in threading.enumerate() if thread.name != "wire-connection"} <= threads


def client_side(port: int) -> int:
    wanted = f"0100007F:{port:04X}"
    with open("/proc/net/tcp") as table:
        return sum(1 for row in [line.split() for line in table][1:] if row[2] == wanted and row[3] == "01")


def test_the_interpreter_ends_with_a_watch_open() -> None:
    def serve(peer: Peer) -> None:
        peer.receive()
        peer.start_stream()
        peer.chunk(b"\n")
        peer.hold()

    code = """
        import sys, threading
        from kubectl_runtime import Api, Client, Config
        from kubectl_runtime.resources import ConfigMap
        batches = Api.all(Client(Config(cluster_url=sys.argv[1])), ConfigMap).open_watch(None, "5")
        threading.Thread(target=next, args=(batches, None), daemon=True).start()
    """
    with WireServer(serve) as server:
        python(code, server.url, timeout=10)


def test_a_client_that_is_dropped_is_collected() -> None:
    import weakref

    client = Client(Config(cluster_url="http://127.0.0.1:1"))
    dropped = weakref.ref(client)
    del client
    gc.collect()
    assert dropped() is None
