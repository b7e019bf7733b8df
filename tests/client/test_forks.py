"""A client in several processes: forks at bad moments, multiprocessing, gunicorn --preload; and on gevent's threads."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
import urllib.request
from pathlib import Path

import pytest

from kubectl_runtime import Api, Client, Config
from kubectl_runtime.resources import ConfigMap
from tests.client.wire_server import Peer, WireServer, answering, config_map, says, status

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
ROOT = Path(__file__).parents[2]
GOOD = answering(says(200, config_map()))

PRELUDE = """
    import os, sys, threading, time
    from kubectl_runtime import Api, Client, Config, StopToken
    from kubectl_runtime.resources import ConfigMap
    client = Client(Config(cluster_url=sys.argv[1], timeout=10))
    api = Api.namespaced(client, ConfigMap, "default")

    def forked(child):
        process = os.fork()
        if process == 0:
            try:
                child()
            except BaseException as error:
                print("child:", repr(error), file=sys.stderr, flush=True)
                os._exit(1)
            os._exit(0)
        give_up = time.monotonic() + 15
        while (ended := os.waitpid(process, os.WNOHANG)) == (0, 0):
            if time.monotonic() > give_up:
                os.kill(process, 9)
                sys.exit("the child hangs")
            time.sleep(0.01)
        assert os.waitstatus_to_exitcode(ended[1]) == 0
"""


def python(code: str, *arguments: str, timeout: float = 60) -> str:
    # In a process without pytest's threads.
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(PRELUDE) + textwrap.dedent(code), *arguments],
                          capture_output=True, text=True, timeout=timeout, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return done.stdout


def trickle(peer: Peer) -> None:
    """An endless watch for a first request that is one, else whole answers."""
    while (request := peer.receive()) is not None:
        if "watch" not in request.target:
            peer.answer(200, config_map())
            continue
        peer.start_stream()
        while True:
            peer.chunk(b"\n")
            time.sleep(0.02)


def test_a_lock_that_another_thread_held_at_the_fork_holds_up_no_call_of_the_child() -> None:
    with WireServer(GOOD) as server:
        python("""
            for lock in (client._carriers.closing._condition, client._carriers._change, client._writes._lock,
                         client.discovery._lock, client._carriers.current().calls._resize):
                holds, done = threading.Event(), threading.Event()

                def hold():
                    with lock:
                        holds.set()
                        done.wait()

                holder = threading.Thread(target=hold, daemon=True)
                holder.start()
                holds.wait()

                def child():
                    assert api.get("a").name == "a", lock
                    client.grow(99)
                    client.on_write(print)()
                    client.close()

                forked(child)
                done.set()
                holder.join()
                assert api.get("a").name == "a", lock
        """, server.url)


def test_a_new_certificate_in_the_child_closes_nothing_of_the_parents() -> None:
    with WireServer(GOOD) as server:
        python("""
            from kubectl_runtime.client.config.auth import ClientCertificate
            api.get("a")
            parents = client._carriers.current()

            def child():
                client._carriers.use_certificate(ClientCertificate(b"certificate", b"key"))
                assert client._carriers.current() is not parents
                assert parents.calls._pool.pool is not None, "closed"
                api.get("b")

            forked(child)
            assert client._carriers.current() is parents
        """, server.url)


def test_watches_of_the_child_take_their_turn_although_one_of_the_parent_was_at_it() -> None:
    with WireServer(GOOD) as server:
        python("""
            outage = client.reachability.lost(OSError("away"), 0.0, lambda: 0.5)
            outage._lock.acquire()
            forked(lambda: outage.turn(100.0, lambda: 0.5))
        """, server.url)


def test_a_limited_and_an_observed_client_call_in_the_child_as_well() -> None:
    with WireServer(GOOD) as server:
        python("""
            from kubectl_runtime.client.http.layers import ObservedCredentials
            from kubectl_runtime.client.http.send import _Bucket, RateLimit
            import gc
            from kubectl_runtime.client.config.auth import TokenFile
            from kubectl_runtime.observe import Observer
            import tempfile
            token = tempfile.NamedTemporaryFile("w")
            token.write("t"); token.flush()
            client = Client(Config(cluster_url=sys.argv[1], token_file=token.name), observer=Observer(),
                            rate_limit=RateLimit(qps=100))
            api = Api.namespaced(client, ConfigMap, "default")
            locks = [found._lock for found in gc.get_objects() if type(found) in (_Bucket, ObservedCredentials)]
            assert len(locks) == 2
            for lock in locks:
                threading.Thread(target=lock.acquire).start()
                while lock.acquire(blocking=False):
                    lock.release()
            forked(lambda: api.get("a"))
        """, server.url)


def test_threads_that_call_all_the_time_leave_no_child_hanging() -> None:
    with WireServer(GOOD) as server:
        python("""
            over = threading.Event()

            def hammer():
                while not over.is_set():
                    api.get("a")

            threads = [threading.Thread(target=hammer) for _ in range(6)]
            for thread in threads:
                thread.start()
            try:
                for _ in range(20):
                    forked(lambda: api.get("b"))
            finally:
                over.set()
            for thread in threads:
                thread.join()
        """, server.url)
        by_connection: dict[int, set[str]] = {}
        for request in server.requests:
            by_connection.setdefault(request.connection, set()).add(request.target.rpartition("/")[2])
    assert all(len(names) == 1 for names in by_connection.values()), "a child used a connection of its parent"


def test_a_token_that_is_set_in_the_child_leaves_the_parents_watch_and_call_alone() -> None:
    asked, released = threading.Event(), threading.Event()

    def serve(peer: Peer) -> None:
        request = peer.receive()
        assert request is not None
        if "watch" in request.target:
            peer.start_stream()
            while not released.wait(0.02):
                peer.chunk(b"\n")
            peer.chunk(b'{"type": "BOOKMARK", "object": {"kind": "ConfigMap", "metadata": {"resourceVersion": "9"}}}\n')
            peer.end_stream()
            return
        if "slow" in request.target:
            asked.set()
            assert released.wait(30)
        elif "asked" in request.target:
            assert asked.wait(30)
        else:
            released.set()
        peer.answer(200, config_map(), headers=("Connection: close",))

    with WireServer(serve) as server:
        try:
            said = python("""
                stop, seen = StopToken(), []
                opened = api.open_watch(None, "5", stop)

                from kubectl_runtime.core.requests.request import Request
                def get(path, **options):
                    return client.request(Request("GET", path, "get", None, f"get {path}"), **options)

                thread = threading.Thread(target=lambda: seen.append(get("/slow", stop=stop)))
                thread.start()
                get("/asked")  # the slow call is under way
                forked(lambda: stop.set("in the child"))
                get("/released")
                print([event.resource_version for batch in opened for event in batch])
                thread.join()
                assert seen
            """, server.url)
        finally:
            released.set()
    assert said.strip() == "['9']"


def test_an_open_stream_of_the_parent_is_read_by_the_parent_alone() -> None:
    with WireServer(silent) as server:
        said = python("""
            from kubectl_runtime import TransportError
            from kubectl_runtime.resources import Pod

            watch, log = api.open_watch(None, "5"), Api.namespaced(client, Pod, "default").log_stream("a")

            def child():
                assert list(watch) == []
                try:
                    next(iter(log))
                except TransportError as error:
                    assert "in the parent process" in str(error)
                else:
                    raise AssertionError

            forked(child)
            print("told")
        """, server.url)
    assert said.strip() == "told"


def silent(peer: Peer) -> None:
    """Opens a stream, and says nothing."""
    peer.receive()
    peer.start_stream()
    peer.receive()


def _get(config: Config) -> str:
    with Client(config) as client:
        return Api.namespaced(client, ConfigMap, "default").get("a").name


def _missing(config: Config) -> str:
    with Client(config) as client:
        return Api.namespaced(client, ConfigMap, "default").get("gone").name


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_workers_of_multiprocessing_call_and_their_errors_come_home(method: str) -> None:
    missing = says(404, status(404, "NotFound", 'configmaps "gone" not found', details={"name": "gone"}))
    with WireServer(answering(says(200, config_map()), says(200, config_map()), missing)) as server:
        code = """
            import multiprocessing, sys
            from kubectl_runtime import ApiError, Config
            from tests.client.test_forks import _get, _missing
            if __name__ == "__main__":
                context = multiprocessing.get_context(sys.argv[2])
                config = Config(cluster_url=sys.argv[1], token="t")
                assert _get(config) == "a"
                with context.Pool(1) as pool:
                    assert pool.apply_async(_get, (config,)).get(30) == "a"
                    try:
                        pool.apply_async(_missing, (config,)).get(30)
                    except ApiError as error:
                        assert error.is_not_found and error.code == 404
                    else:
                        sys.exit("no error came")
        """
        python(code, server.url, method)
        assert len({request.connection for request in server.requests}) == 3
        assert all(request.header("Authorization") == "Bearer t" for request in server.requests)


APPLICATION = """
    import json, os
    from kubectl_runtime import Api, Client, Config
    from kubectl_runtime.resources import ConfigMap
    client = Client(Config(cluster_url=os.environ["SERVER"]))
    api = Api.namespaced(client, ConfigMap, "default")
    api.get("master")

    def application(environ, start_response):
        api.get(f"worker-{os.getpid()}")
        start_response("200 OK", [("Content-Type", "text/plain")])
        return [str(os.getpid()).encode()]
"""


def test_workers_of_gunicorn_share_a_client_that_was_made_before_them(tmp_path: Path) -> None:
    pytest.importorskip("gunicorn", reason="gunicorn is not installed")
    (tmp_path / "application.py").write_text(textwrap.dedent(APPLICATION))
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with WireServer(GOOD) as server:
        master = subprocess.Popen(
            [sys.executable, "-m", "gunicorn", "--preload", "-w", "2", "-b", f"127.0.0.1:{port}", "application"],
            cwd=tmp_path, env={**os.environ, "SERVER": server.url, "PYTHONPATH": str(ROOT)},
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        try:
            seen: set[str] = set()
            give_up = time.monotonic() + 60
            while len(seen) < 2 and time.monotonic() < give_up:
                try:
                    with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=20) as answer:
                        seen.add(answer.read().decode())
                except OSError:
                    assert master.poll() is None, master.stderr and master.stderr.read()
                    time.sleep(0.05)
        finally:
            master.send_signal(signal.SIGTERM)
            master.wait(20)
            if master.stderr is not None:
                master.stderr.close()
    assert len(seen) == 2
    users: dict[int, set[str]] = {}
    for request in server.requests:
        users.setdefault(request.connection, set()).add(request.target.rpartition("/")[2])
    assert all(len(names) == 1 for names in users.values()), users


def test_on_gevents_threads_calls_watches_and_stops_work(tmp_path: Path) -> None:
    pytest.importorskip("gevent", reason="gevent is not installed")
    with WireServer(trickle) as server:
        done = subprocess.run([sys.executable, "-c", textwrap.dedent("""
            from gevent import monkey; monkey.patch_all()
            import gevent, sys, time
            from kubectl_runtime import Api, Client, Config, StopToken
            from kubectl_runtime.resources import ConfigMap
            with Client(Config(cluster_url=sys.argv[1], timeout=10)) as client:
                api = Api.namespaced(client, ConfigMap, "default")
                jobs = [gevent.spawn(lambda: [api.get("a").name for _ in range(20)]) for _ in range(8)]
                gevent.joinall(jobs, raise_error=True, timeout=30)
                assert all(job.value == ["a"] * 20 for job in jobs)
                stop = StopToken()
                watch = gevent.spawn(lambda: list(api.watch(None, "5", stop)))
                gevent.sleep(0.3)
                assert not watch.dead
                assert api.get("a").name == "a"  # beside the watch, which holds up nobody
                stop.set("enough")
                watch.join(timeout=5)
                assert watch.dead and watch.value == [], watch.exception
        """), server.url], capture_output=True, text=True, timeout=90, check=False, cwd=ROOT)
        assert done.returncode == 0, done.stderr
        calls = [request.connection for request in server.requests if "watch" not in request.target]
    assert len(set(calls)) <= 8
