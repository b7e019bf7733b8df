"""However a controller ends, and though nothing calls `stop`: none of its threads is left."""
from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kubectl_runtime import Action, Api, Client, Context, Controller, StopToken
from kubectl_runtime.apiserver.server import ApiServer
from kubectl_runtime.resources import ConfigMap, Namespace
from kubectl_runtime.testing import eventually

LIMIT = 20.0


class Case:
    """A controller that reconciles one ConfigMap, and what its runs do."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.controller = Controller(Api.namespaced(client, ConfigMap, "default"), name="case")
        self.token = StopToken()
        self.running: Any = None
        self.in_run: Callable[[Context[Any]], object] = lambda ctx: None
        self.ran = threading.Event()
        self.started = threading.Event()

    def reconcile(self, obj: ConfigMap, ctx: Context[Any]) -> Action:
        assert self.started.wait(LIMIT)
        ctx.record("Seen", "it was seen")
        self.ran.set()
        self.in_run(ctx)
        return Action.await_change()

    def start(self) -> Any:
        self.running = self.controller.start(self.reconcile)
        self.started.set()
        assert self.ran.wait(LIMIT)
        return self.running


def token_is_set(case: Case) -> None:
    case.controller.graceful_shutdown_on(case.token)
    case.start()
    case.token.set()


def reconciler_stops(case: Case) -> None:
    case.in_run = lambda ctx: case.running.stop()
    case.start()


def error_policy_stops(case: Case) -> None:
    def fail(ctx: Context[Any]) -> None:
        raise ValueError("planned")

    def policy(obj: Any, error: BaseException, ctx: Context[Any]) -> Action:
        case.running.stop()
        return Action.await_change()

    case.in_run = fail
    case.running = case.controller.start(case.reconcile, error_policy=policy)
    case.started.set()


def client_is_closed(case: Case) -> None:
    case.start()
    case.client.close()


def client_is_closed_in_a_run(case: Case) -> None:
    case.in_run = lambda ctx: case.client.close()
    case.start()


def callback_stops(case: Case) -> None:
    running = case.start()
    running.on_stop(running.stop)
    threading.Thread(target=running.stop).start()


def sync_times_out(case: Case) -> None:
    case.controller = Controller(Api.namespaced(case.client, ConfigMap, "default"), name="case").sync_timeout(0.01)
    case.running = case.controller.watches(Api.namespaced(case.client, ConfigMap, "other"), mapper).start(
        case.reconcile)
    case.started.set()


def mapper(obj: ConfigMap) -> None:
    threading.Event().wait(0.3)


def ctrl_c(case: Case) -> None:
    with contextlib.suppress(KeyboardInterrupt), case.start():
        raise KeyboardInterrupt


def ctrl_c_twice(case: Case) -> None:
    case.in_run = lambda ctx: ctx.stop.wait()
    with contextlib.suppress(KeyboardInterrupt), case.start():
        threading.Timer(0.2, signal.raise_signal, (signal.SIGINT,)).start()
        raise KeyboardInterrupt


def ctrl_c_twice_in_run(case: Case) -> None:
    """`Controller.run` in the main thread, without signals of its own."""
    case.in_run = lambda ctx: ctx.stop.wait()
    case.started.set()

    def press() -> None:
        assert case.ran.wait(LIMIT)
        threading.Event().wait(0.2)  # until it waits in `run`
        signal.raise_signal(signal.SIGINT)
        assert case.controller._running is not None
        assert case.controller._running.wait(LIMIT)
        threading.Event().wait(0.2)  # until it waits for the run
        signal.raise_signal(signal.SIGINT)

    threading.Thread(target=press).start()
    with contextlib.suppress(KeyboardInterrupt):
        case.controller.run(case.reconcile)


ENDS = [token_is_set, reconciler_stops, error_policy_stops, client_is_closed, client_is_closed_in_a_run, callback_stops,
        sync_times_out, ctrl_c, ctrl_c_twice, ctrl_c_twice_in_run]


@pytest.fixture(scope="module")
def server() -> Iterator[ApiServer]:
    with ApiServer() as running, running.client() as client:
        Api.all(client, Namespace).apply({"metadata": {"name": "other"}}, field_manager="test")
        for namespace in ("default", "other"):
            Api.namespaced(client, ConfigMap, namespace).apply({"metadata": {"name": "a"}}, field_manager="test")
        yield running


@pytest.mark.parametrize(("end", "refused"), [*((end, False) for end in ENDS), (token_is_set, True),
                                              (ctrl_c_twice, True)])
def test_no_thread_is_left(server: ApiServer, end: Callable[[Case], None], refused: bool) -> None:
    """`refused`: the server refuses events, which then hold the end for 2 s."""
    if refused:
        server.faults.on(resource="events").status(500)
    before = set(threading.enumerate())
    with server.client() as client:
        end(Case(client))
        eventually(lambda: [thread.name for thread in threading.enumerate() if thread not in before
                            and not thread.name.startswith(("api-server", "apiserver"))], ([]).__eq__, LIMIT)
    server.faults.clear()
