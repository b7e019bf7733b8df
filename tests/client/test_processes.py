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


def test_importing_the_facade_loads_only_the_version() -> None:
    code = "import sys, kubectl_runtime; print(*sorted(name for name in sys.modules if name.startswith('kubectl_')))"
    assert python(code).split() == ["kubectl_runtime", "kubectl_runtime.core", "kubectl_runtime.core.base",
                                    "kubectl_runtime.core.base.version"]


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
