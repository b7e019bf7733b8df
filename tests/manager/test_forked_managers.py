"""Managers and elections across a fork: the parent goes on undisturbed, and nothing of it looks alive in the child."""
from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
ROOT = Path(__file__).parents[2]

PROGRAM = """
    import os, sys, threading, time
    from kubectl_runtime import Action, Api, Client, Controller, LeaderElection, Manager, RequestError, elect
    from kubectl_runtime.errors import NotLeaderError
    from kubectl_runtime.resources import ConfigMap, Lease
    from kubectl_runtime.testing import ApiServer

    def forked(child):
        process = os.fork()
        if process == 0:
            try:
                child()
            except BaseException as error:
                print("child:", repr(error), file=sys.stderr, flush=True)
                os._exit(1)
            os._exit(0)
        give_up = time.monotonic() + 30
        while (ended := os.waitpid(process, os.WNOHANG)) == (0, 0):
            if time.monotonic() > give_up:
                os.kill(process, 9)
                sys.exit("the child hangs")
            time.sleep(0.01)
        assert os.waitstatus_to_exitcode(ended[1]) == 0, "the child failed"

    def refused(error, call):
        try:
            call()
        except error as refusal:
            return str(refusal)
        raise AssertionError("not refused")
"""


def program(code: str) -> None:
    # In a process without pytest's threads.
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(PROGRAM) + textwrap.dedent(code)], check=False,
                          capture_output=True, text=True, timeout=90, cwd=ROOT)
    assert done.returncode == 0, done.stderr


def test_the_child_of_a_leader_does_not_lead_says_so_and_leaves_the_lease_alone() -> None:
    program("""
        with ApiServer() as server, server.client() as client:
            election, leases = LeaderElection("job", "default"), Api.namespaced(client, Lease, "default")
            with elect(client, election) as lock:
                assert lock.wait(20)
                before = leases.get("job").spec.holder_identity

                def child():
                    assert not lock.is_leader
                    assert lock.lost.wait(0)
                    assert "forked" in lock.lost.reason
                    assert "forked" in refused(NotLeaderError, lambda: lock.wait(20))
                    maps = Api.namespaced(lock.client, ConfigMap, "default")
                    assert "forked" in refused(NotLeaderError, lambda: maps.create({"metadata": {"name": "a"}}))
                    refused(RequestError, lock.start)
                    lock.close()

                holds, done = threading.Event(), threading.Event()

                def hold():
                    with lock._changed:
                        holds.set()
                        done.wait()

                holder = threading.Thread(target=hold, daemon=True)
                holder.start()
                holds.wait()
                forked(child)
                done.set()
                holder.join()
                assert lock.is_leader and not lock.lost.is_set()
                assert leases.get("job").spec.holder_identity == before == lock.identity
    """)


def test_candidates_made_before_a_fork_are_as_many_as_processes_stand() -> None:
    """A worker of gunicorn --preload finds its manager made. With one name for all each would think that it leads."""
    program("""
        with ApiServer() as server, server.client() as client:
            lock = elect(client, LeaderElection("job", "default"))
            named = elect(client, LeaderElection("job", "default", identity="me"))

            def child():
                assert lock.identity != parents
                assert named.identity == "me"
                with lock:
                    assert not lock.wait(0.5), "the parent leads"

            parents = lock.identity
            with elect(client, LeaderElection("job", "default", identity=parents)) as leading:
                assert leading.wait(20)
                forked(child)
                assert leading.is_leader
    """)


@pytest.mark.parametrize("leader", ["None", "LeaderElection('job', 'default')"])
def test_a_manager_looks_stopped_in_the_child_and_one_of_its_own_runs_there(leader: str) -> None:
    program(f"""
        with ApiServer() as server, server.client() as client:
            maps = Api.namespaced(client, ConfigMap, "default")
            manager = Manager(client, serve=None, leader={leader})
            manager.add(Controller(maps), lambda obj, ctx: Action.await_change())
            with manager.start() as running:
                give_up = time.monotonic() + 20
                while not (running.is_ready and running.is_leader):
                    assert time.monotonic() < give_up, running.why_not_ready
                    time.sleep(0.02)

                def child():
                    assert running.wait(10)
                    assert "forked" in running.why_not_ready
                    assert not running.is_ready and not running.is_leader
                    assert running.phase == "stopped"
                    assert running.stop() == []
                    own = Manager(client, serve=None)
                    own.add(Controller(maps), lambda obj, ctx: Action.await_change())
                    with own.start() as mine:
                        give_up = time.monotonic() + 20
                        while not mine.is_ready:
                            assert time.monotonic() < give_up, mine.why_not_ready
                            time.sleep(0.02)

                holds, done = threading.Event(), threading.Event()

                def hold():
                    with running._change:
                        holds.set()
                        done.wait()

                holder = threading.Thread(target=hold, daemon=True)
                holder.start()
                holds.wait()
                forked(child)
                done.set()
                holder.join()
                assert running.is_ready and running.is_leader
    """)


def test_a_manager_that_was_made_before_a_fork_runs_in_the_child_and_in_the_parent() -> None:
    program("""
        with ApiServer() as server, server.client() as client:
            maps = Api.namespaced(client, ConfigMap, "default")
            manager = Manager(client, serve=None)
            manager.add(Controller(maps), lambda obj, ctx: Action.await_change())

            def run():
                with manager.start() as running:
                    give_up = time.monotonic() + 20
                    while not running.is_ready:
                        assert time.monotonic() < give_up, running.why_not_ready
                        time.sleep(0.02)

            forked(run)
            run()
    """)


def test_replicas_of_one_program_that_forks_share_the_objects() -> None:
    program("""
        from kubectl_runtime.manager.sharding import Sharding
        with ApiServer() as server, server.client() as client:
            maps = Api.namespaced(client, ConfigMap, "default")
            sharding = Sharding("op", "default", shards=4, lease=2, renew_deadline=1.5, retry=0.2)
            manager = Manager(client, serve=None, sharding=sharding)
            manager.add(Controller(maps), lambda obj, ctx: Action.await_change())

            def until(done):
                give_up = time.monotonic() + 20
                while not done():
                    assert time.monotonic() < give_up, manager.start
                    time.sleep(0.02)

            leaves, left = os.pipe()
            child = os.fork()
            if child == 0:
                code = 1
                try:
                    with manager.start() as running:
                        until(lambda: len(running.shards) == 2)
                        os.read(leaves, 1)
                    code = 0
                finally:
                    os._exit(code)
            with manager.start() as running:
                until(lambda: len(running.shards) == 2)
                grandchild = os.fork()
                if grandchild == 0:
                    os._exit(len(running.shards))
                assert os.waitstatus_to_exitcode(os.waitpid(grandchild, 0)[1]) == 0
                os.write(left, b"x")
                assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
                until(lambda: len(running.shards) == 4)
    """)
