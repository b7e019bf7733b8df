"""Stores and their watches across a fork: the parent goes on undisturbed, the child is told that nothing runs there."""
from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
ROOT = Path(__file__).parents[3]

PROGRAM = """
    import os, sys, threading, time
    from kubectl_runtime import Action, Api, Controller, Patch, RequestError, watch_store
    from kubectl_runtime.errors import ControllerError
    from kubectl_runtime.resources import ConfigMap
    from kubectl_runtime.runtime.triggers.shared_watches import SharedWatches
    from kubectl_runtime.testing import ApiServer
    from kubectl_runtime.watch import Phase

    def forked_while_held(child, *locks):
        # Forks while another thread holds these locks, and waits for the child.
        holds, done = threading.Event(), threading.Event()

        def hold():
            for lock in locks:
                lock.acquire()
            holds.set()
            done.wait()
            for lock in locks:
                lock.release()

        holder = threading.Thread(target=hold, daemon=True)
        holder.start()
        holds.wait()
        process = os.fork()
        if process == 0:
            try:
                child()
            except BaseException as error:
                print("child:", repr(error), file=sys.stderr, flush=True)
                os._exit(1)
            os._exit(0)
        done.set()
        holder.join()
        give_up = time.monotonic() + 30
        while (ended := os.waitpid(process, os.WNOHANG)) == (0, 0):
            if time.monotonic() > give_up:
                os.kill(process, 9)
                sys.exit("the child hangs")
            time.sleep(0.01)
        assert os.waitstatus_to_exitcode(ended[1]) == 0, "the child failed"

    def heard(store, name):
        arrived = threading.Event()
        store.subscribe(lambda event: arrived.set() if getattr(getattr(event, "obj", None), "name", "") == name else 0)
        return arrived

    def body(name):
        return {"metadata": {"name": name}, "data": {"k": "v"}}
"""


def program(code: str) -> None:
    # In a process without pytest's threads.
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(PROGRAM) + textwrap.dedent(code)], check=False,
                          capture_output=True, text=True, timeout=90, cwd=ROOT)
    assert done.returncode == 0, done.stderr


def test_the_child_reads_what_was_known_is_told_that_it_grows_old_and_may_watch_for_itself() -> None:
    program("""
        with ApiServer() as server, server.client() as client:
            maps = Api.namespaced(client, ConfigMap, "default")
            maps.create(body("a"))
            with watch_store(maps, indexes={"k": lambda obj: obj.data["k"]}) as store:
                store.wait_until_ready(20)
                registry = client.shared.get(SharedWatches)

                def child():
                    assert [obj.name for obj in store.by_index("k", "v")] == ["a"]
                    assert (store.is_stale(1e9), store.has_ended) == (True, True)
                    assert store.watch_state.phase is Phase.STOPPED
                    assert "forked" in store.watch_state.last_error
                    try:
                        store.subscribe(print)
                    except RequestError as error:
                        assert "forked" in str(error)
                    else:
                        raise AssertionError("nothing would ever come")
                    store.close()
                    maps.patch("a", Patch.merge({"data": {"k": "w"}}))
                    assert store.get("a", "default").data["k"] == "v", "what no watch will ever show is not kept"
                    with watch_store(maps) as own:
                        own.wait_until_ready(20)
                        assert own.get("a", "default").data["k"] == "w"
                        maps.create(body("b"))
                        assert heard(own, "b").wait(20)

                forked_while_held(child, client.shared._lock, registry.lock, store._states[0].condition)
                assert store.watch_state.phase is not Phase.STOPPED
                assert heard(store, "b").wait(20), "the watch of the parent goes on"
                assert len(registry) == 1
    """)


def test_a_controllers_store_is_no_trap_in_the_child_either() -> None:
    program("""
        with ApiServer() as server, server.client() as client:
            maps = Api.namespaced(client, ConfigMap, "default")
            maps.create(body("a"))
            ran = threading.Semaphore(0)

            def reconcile(obj, ctx):
                ran.release()
                return Action.await_change()

            with Controller(maps).start(reconcile) as running:
                running.wait_until_ready(20)
                assert ran.acquire(timeout=20)

                def child():
                    assert running.store.get("a", "default").name == "a"
                    running.store.wait_until_ready(1)
                    assert running.watch_state.phase is Phase.STOPPED
                    assert not running.is_ready and "forked" in running.why_not_ready
                    assert running.wait(1)
                    for use in (running.trigger_all, lambda: running.trigger("a"), running.wait_until_ready):
                        try:
                            use()
                        except ControllerError as error:
                            assert "forked" in str(error)
                        else:
                            raise AssertionError("it looks alive")
                    maps.create(body("b"))
                    assert len(running.store) == 1
                    assert running.stop() == []
                    with Controller(maps).start(reconcile) as own:
                        own.wait_until_ready(20)
                        assert len(own.store) == 2

                forked_while_held(child, running.store._states[0].condition, client.shared._lock)
                assert ran.acquire(timeout=20), "the controller of the parent goes on"
    """)


@pytest.mark.parametrize("user", [None, "alice"], ids=["cluster", "each"])
def test_a_set_of_namespaces_changes_in_the_child_and_the_parents_watch_goes_on(user: str | None) -> None:
    program(f"""
    from kubectl_runtime.api import NamespaceSet
    from kubectl_runtime.kinds import ApiResource

    user = {user!r}
    with ApiServer(authorization_mode="RBAC") as server, server.client() as admin, server.client(user) as client:
        rbac = "rbac.authorization.k8s.io"
        rules = [{{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list", "watch"]}}]
        bound = {{"roleRef": {{"apiGroup": rbac, "kind": "Role", "name": "maps"}},
                 "subjects": [{{"kind": "User", "name": "alice", "apiGroup": rbac}}]}}
        for kind, content in (("Role", {{"rules": rules}}), ("RoleBinding", bound)):
            Api.namespaced(admin, ApiResource(rbac, "v1", kind, kind.lower() + "s"), "default").create(
                {{"metadata": {{"name": "maps"}}, **content}})
        maps, names = Api.namespaced(admin, ConfigMap, "default"), NamespaceSet(["default"])
        with watch_store(Api.namespaces(client, ConfigMap, names)) as store:
            store.wait_until_ready(20)
            watch = store._share.watch
            forked_while_held(lambda: (names.add("kube-system"), names.discard("default")),
                              watch._driver._changed, names._lock)
            arrived = heard(store, "after")
            maps.create(body("after"))
            assert arrived.wait(20)
            assert sorted(names) == ["default"] and store.watch_state.consecutive_failures == 0
    """)
