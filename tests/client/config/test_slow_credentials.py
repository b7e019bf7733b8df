"""Credentials that take long hold nobody: callers leave at their stop token or deadline, and the plugin is killed."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kubectl_runtime import Action, Api, Client, Config, Controller, TransportError
from kubectl_runtime.client.config.auth import LONGEST_ATTEMPT, Renewal
from kubectl_runtime.core.scope import RunScope, StopToken, enter_scope, leave_scope
from kubectl_runtime.errors import AuthError
from kubectl_runtime.resources import ConfigMap
from kubectl_runtime.testing.clock import SimClock
from tests.client.config.test_credentials import V1, pids, script, wait_until_gone
from tests.client.wire_server import WireServer, answering, config_map, says

SOON = 10.0
"""Seconds: far more than stopping takes on a busy machine, and far less than the plugin does."""


def kubeconfig(server: str, command: str) -> dict[str, Any]:
    return {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
        "clusters": [{"name": "k", "cluster": {"server": server}}],
        "users": [{"name": "u", "user": {"exec": {"command": command, "apiVersion": V1, "interactiveMode": "Never"}}}],
    }


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    """Its plugin, and a child of that, sleep; nothing else would answer either."""
    command = script(tmp_path, "os.fork()\nnote()\ntime.sleep(45)")
    with Client(Config.from_kubeconfig(kubeconfig("http://127.0.0.1:1", command))) as made:
        yield made


def wait_for(condition: Callable[[], bool]) -> None:
    give_up = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < give_up
        time.sleep(0.01)


def started(call: Callable[[], object]) -> tuple[threading.Thread, list[BaseException | None]]:
    ends: list[BaseException | None] = []

    def run() -> None:
        try:
            call()
            ends.append(None)
        except BaseException as error:
            ends.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    return thread, ends


def test_a_watch_is_stopped_while_the_plugin_runs_and_the_plugin_is_killed(client: Client, tmp_path: Path) -> None:
    stop = StopToken()
    thread, ends = started(lambda: list(Api.all(client, ConfigMap).watch(stop=stop)))
    wait_for(lambda: len(pids(tmp_path)) > 1)
    begun = time.monotonic()
    stop.set("it is enough")
    thread.join(SOON)
    assert time.monotonic() - begun < SOON
    assert ends == [None] or isinstance(ends[0], TransportError)
    wait_until_gone(tmp_path)


@pytest.mark.parametrize("verb", ["get", "create", "watch"])
def test_closing_the_client_ends_calls_that_wait_for_the_plugin(client: Client, tmp_path: Path, verb: str) -> None:
    api = Api.namespaced(client, ConfigMap, "default")
    calls: dict[str, Callable[[], object]] = {
        "get": lambda: api.get("a"), "create": lambda: api.create({"metadata": {"name": "a"}}),
        "watch": lambda: list(api.watch(stop=StopToken()))}
    running = [started(calls[verb]) for _ in range(3)]
    wait_for(lambda: len(pids(tmp_path)) > 1)
    client.close()
    for thread, ends in running:
        thread.join(SOON)
        assert not thread.is_alive()
        assert ends == [None] or isinstance(ends[0], TransportError)
        assert verb == "watch" or "the client was closed" in str(ends[0])
    wait_until_gone(tmp_path)


def test_a_controller_stops_while_the_plugin_runs(client: Client, tmp_path: Path) -> None:
    with Controller(Api.all(client, ConfigMap)).start(lambda _obj, _ctx: Action.await_change()) as running:
        wait_for(lambda: len(pids(tmp_path)) > 1)
        begun = time.monotonic()
        assert running.stop(SOON) == []
        assert time.monotonic() - begun < SOON
    wait_until_gone(tmp_path)


def test_a_plugin_whose_callers_left_at_their_deadlines_is_killed_when_the_client_closes(
    client: Client, tmp_path: Path
) -> None:
    with pytest.raises(AuthError, match="within the call's deadline"):
        Api.namespaced(client, ConfigMap, "default").get("a", timeout=1.0)
    wait_for(lambda: len(pids(tmp_path)) > 1)
    client.close()
    wait_until_gone(tmp_path)


def test_one_caller_that_is_stopped_leaves_the_attempt_to_the_others(tmp_path: Path) -> None:
    command = script(tmp_path, f"""
while not os.path.exists({str(tmp_path / "go")!r}): time.sleep(0.01)
print('{{"apiVersion": "{V1}", "kind": "ExecCredential", "status": {{"token": "t"}}}}')
""")
    with WireServer(answering(says(200, config_map()))) as server:
        config = Config.from_kubeconfig(kubeconfig(server.url, command))
        with Client(config) as first, Client(config) as second:
            gone, _ = started(lambda: Api.namespaced(first, ConfigMap, "default").get("a"))
            kept, ends = started(lambda: Api.namespaced(second, ConfigMap, "default").get("a"))
            wait_for(lambda: len(pids(tmp_path)) == 1)
            first.close()
            gone.join(SOON)
            assert not gone.is_alive()
            (tmp_path / "go").touch()
            kept.join(SOON)
            assert ends == [None]
    assert len(pids(tmp_path)) == 1


def test_an_abandoned_attempt_is_no_failure_and_the_next_caller_gets_another() -> None:
    attempts: list[StopToken] = []

    def obtain(stop: StopToken) -> str:
        attempts.append(stop)
        if len(attempts) == 1:
            stop.wait(20)
            raise AuthError("killed")
        return "value"

    renewal = Renewal("it", obtain, is_due=lambda _: False, is_valid=lambda _: True)
    stop = StopToken()

    def waits() -> None:
        entered = enter_scope(RunScope(stop, stop))
        try:
            renewal.current()
        finally:
            leave_scope(entered)

    thread, ends = started(waits)
    wait_for(lambda: len(attempts) == 1)
    stop.set("enough")
    thread.join(SOON)
    assert "enough" in str(ends[0])
    assert attempts[0].is_set()
    assert renewal.current() == "value"


def test_an_attempt_that_never_returns_is_followed_by_another() -> None:
    clock, attempts, go_on = SimClock(), list[StopToken](), threading.Event()

    def obtain(stop: StopToken) -> str:
        attempts.append(stop)
        if len(attempts) == 1:
            go_on.wait(60)
            raise OSError("at last")
        return "value"

    renewal = Renewal("it", obtain, is_due=lambda _: False, is_valid=lambda _: True, clock=clock)
    for _ in range(3):
        with pytest.raises(AuthError, match="within the call's deadline"):
            renewal.current(clock.monotonic() + 0.05)
    assert len(attempts) == 1
    clock.advance(LONGEST_ATTEMPT)
    assert renewal.current(clock.monotonic() + SOON) == "value"
    assert "120 s" in attempts[0].reason
    go_on.set()
    assert renewal.current() == "value"
    assert len(attempts) == 2
