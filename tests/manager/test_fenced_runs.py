"""Within a run of an elected controller no client of its family writes once the leadership is over."""
from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable
from typing import Any

import pytest

from kubectl_runtime import Action, Api, Client, Context, Controller, LeaderElection, Manager, elect
from kubectl_runtime.errors import NotLeaderError
from kubectl_runtime.resources import ConfigMap
from kubectl_runtime.testing import ApiServer, eventually
from tests.inherited_contexts import inherit

LIMIT = 20


def maps(client: Client) -> Api[ConfigMap]:
    return Api.namespaced(client, ConfigMap, "default")


def written(client: Client, name: str) -> str:
    """What comes of a write."""
    try:
        return maps(client).create({"metadata": {"name": name}}).name or ""
    except NotLeaderError as error:
        return str(error)


def in_thread(target: Callable[[], Any]) -> None:
    thread = threading.Thread(target=target)
    thread.start()
    thread.join(LIMIT)


@pytest.mark.parametrize("inherited", [False, True], ids=["threads begin empty", "threads have a copy of the context"])
def test_an_outer_client_writes_in_a_run_only_while_this_process_leads(
        kube_apiserver: ApiServer, kube_client: Client, monkeypatch: pytest.MonkeyPatch, inherited: bool) -> None:
    if inherited:
        inherit(monkeypatch)
    maps(kube_client).create({"metadata": {"name": "it"}})
    lock, said, done = elect(kube_client, LeaderElection("outer", identity="me")), dict[str, str](), threading.Event()

    def reconcile(obj: ConfigMap, ctx: Context[None]) -> Action:
        if obj.name == "it" and not done.is_set():
            said["leading"] = written(kube_client, "leading")
            lock.close()
            said["outer"] = written(kube_client, "outer")
            said["derived"] = written(kube_client.with_layer(lambda send: send), "derived")
            copied = contextvars.copy_context()
            in_thread(lambda: said.update(copied=copied.run(written, kube_client, "copied")))
            said["awaited"] = asyncio.run(asyncio.to_thread(written, kube_client, "awaited"))
            in_thread(lambda: said.update(started=written(kube_client, "started")))
            in_thread(lambda: said.update(guarded=written(ctx.client, "guarded")))
            said["read"] = maps(kube_client).get("it").name or ""
            with kube_apiserver.client() as another:
                said["another"] = written(another, "another")
            contextvars.Context().run(lambda: said.update(elsewhere=written(kube_client, "elsewhere")))
            done.set()
        return Action.await_change()

    with lock:
        assert lock.wait(LIMIT)
        with Controller(maps(lock.client)).start(reconcile):
            assert done.wait(LIMIT)
    refused = [name for name, text in said.items() if "not sent, because me does not lead" in text]
    assert refused == ["outer", "derived", "copied", "awaited", "guarded"]
    assert {name: said[name] for name in said.keys() - refused} == {
        "leading": "leading", "read": "it", "another": "another", "started": "started",
        "elsewhere": "elsewhere"}
    assert written(kube_client, "after") == "after", "outside of runs it is the program's own affair"


@pytest.mark.parametrize("needs_leader", [True, False])
def test_a_managers_elected_controllers_are_fenced_and_no_others(kube_client: Client, needs_leader: bool) -> None:
    maps(kube_client).create({"metadata": {"name": "it"}})
    begun, over, said = threading.Event(), threading.Event(), list[str]()

    def reconcile(obj: ConfigMap, ctx: Context[None]) -> Action:
        if obj.name == "it":
            begun.set()
            over.wait(LIMIT)
            said.append(written(kube_client, "late"))
        return Action.await_change()

    manager = Manager(kube_client, leader=LeaderElection("managed", identity="me"), serve=None)
    running = manager.add(Controller(maps(kube_client)), reconcile, needs_leader=needs_leader).start()
    assert begun.wait(LIMIT)
    lock = running._candidacy._lock
    assert lock is not None
    assert lock.wait(LIMIT)
    lock.close()
    over.set()
    eventually(lambda: said)
    running.stop()
    assert len(said) == 1
    assert ("not sent" in said[0]) is needs_leader
