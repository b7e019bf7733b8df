"""What threads that a run starts do is the run's where they have a copy of its context, and only there."""
from __future__ import annotations

import contextvars
import json
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kubectl_runtime import Action, Api, Client, Context, Controller
from kubectl_runtime.core.scope import current_scope
from kubectl_runtime.resources import ConfigMap
from kubectl_runtime.runtime.queue.runs import Run
from kubectl_runtime.testing import ApiServer
from tests.inherited_contexts import inherit

LIMIT, AT_ONCE = 20, 8


def maps(client: Client) -> Api[ConfigMap]:
    return Api.namespaced(client, ConfigMap, "default")


def in_a_thread(target: Callable[..., Any], *arguments: Any) -> None:
    thread = threading.Thread(target=target, args=arguments)
    thread.start()
    thread.join(LIMIT)


def run_once(server: ApiServer, work: Callable[[Context[Any]], None], **options: Any) -> None:
    """A controller whose reconciler does `work` once."""
    done = threading.Event()

    def reconcile(obj: ConfigMap, ctx: Context[Any]) -> Action:
        if obj.name == "it" and not done.is_set():
            try:
                work(ctx)
            finally:
                done.set()
        return Action.await_change()

    with server.client() as client:
        maps(client).create(ConfigMap(name="it"))
        with Controller(maps(client), name="maps", **options).start(reconcile):
            assert done.wait(LIMIT)


@pytest.mark.parametrize("inherited", [False, True], ids=["threads begin empty", "threads have a copy of the context"])
def test_writes_and_recorded_calls_of_a_copied_context_are_the_runs(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch, inherited: bool) -> None:
    if inherited:
        inherit(monkeypatch)
    made: list[tuple[str, int]] = []

    def work(ctx: Context[Any]) -> None:
        def create(name: str) -> None:
            maps(ctx.client).create(ConfigMap(name=name))

        run = ctx._run
        in_a_thread(create, "started")
        made.append(("started", len(run.writes)))
        in_a_thread(partial(contextvars.copy_context().run, create), "copied")
        made.append(("copied", len(run.writes)))
        with ThreadPoolExecutor(AT_ONCE) as pool:
            for number in range(AT_ONCE):
                pool.submit(contextvars.copy_context().run, create, f"many-{number}")
        made.append(("many", len(run.writes)))
        assert run.writes.begun == {}

    with ApiServer() as server:
        run_once(server, work, record=tmp_path / "recording")
    assert made == [("started", 0), ("copied", 1), ("many", 1 + AT_ONCE)]
    lines = [json.loads(line) for line in (tmp_path / "recording").read_text().splitlines()]
    calls = [line["b"]["metadata"]["name"] for line in lines if line["k"] == "call"]
    assert sorted(calls) == ["copied", *(f"many-{number}" for number in range(AT_ONCE))]


def test_a_thread_that_goes_on_after_its_run_works_for_nobody() -> None:
    left: list[tuple[contextvars.Context, Run]] = []
    with ApiServer() as server:
        run_once(server, lambda ctx: left.append((contextvars.copy_context(), ctx._run)))
        (copied, run), = left
        with server.client() as client:
            copied.run(maps(client).create, ConfigMap(name="late"))
    assert (copied.run(current_scope), len(run.writes)) == (None, 0)
