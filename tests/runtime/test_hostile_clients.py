"""Layers and credentials of a client are user code: whatever they raise costs its request, and no thread."""
from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from kubectl_runtime import Action, Api, Client, Context, Controller
from kubectl_runtime.core.scope import StopToken
from kubectl_runtime.resources import ConfigMap
from kubectl_runtime.testing import ApiServer, eventually
from kubectl_runtime.watch import WatchBackoff, WatcherConfig
from kubectl_runtime.webhooks import application
from kubectl_runtime.webhooks.server import WebhookSetup
from tests.webhooks.hooks import Quota

ERRORS = [SystemExit(3), GeneratorExit(), KeyboardInterrupt(), ValueError("x")]
"""KeyboardInterrupt: in a thread of the library it is no person at the keyboard."""

Layer = Callable[[Callable[[Any], Any]], Callable[[Any], Any]]
BACKOFF = WatchBackoff(initial=0.01, maximum=0.02)


@pytest.fixture(scope="module")
def server() -> Iterator[ApiServer]:
    with ApiServer() as running, running.client() as client:
        Api.namespaced(client, ConfigMap, "default").create(ConfigMap(name="a"))
        yield running


def raising(error: BaseException, times: int) -> tuple[Layer, list[str]]:
    """A layer that raises for the first `times` requests, and the methods of those that it has seen."""
    seen: list[str] = []

    def layer(send: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def sent(call: Any) -> Any:
            seen.append(call.request.method)
            if len(seen) <= times:
                raise error
            return send(call)

        return sent

    return layer, seen


def nothing(obj: Any, ctx: Context[Any]) -> Action:
    return Action.await_change()


@pytest.mark.parametrize("error", ERRORS, ids=repr)
def test_a_layer_that_raises_anything_is_a_failure_of_its_watch(server: ApiServer, error: BaseException,
                                                                caplog: pytest.LogCaptureFixture) -> None:
    layer, seen = raising(error, 3)
    with Client(server.config(), layers=[layer]) as client:
        controller = Controller(Api.namespaced(client, ConfigMap, "default"), watch=WatcherConfig(backoff=BACKOFF))
        with controller.start(nothing) as running:
            running.wait_until_ready(10)
            assert running.error is None
    assert len(seen) > 3
    assert type(error).__name__ in caplog.text


@pytest.mark.parametrize("error", ERRORS, ids=repr)
def test_credentials_that_raise_anything_are_a_failure_of_their_watch(server: ApiServer, error: BaseException) -> None:
    token = server.config().token

    class Failing:
        asked = 0

        def header(self, deadline: float) -> str | None:
            self.asked += 1
            if self.asked <= 2:
                raise error
            return f"Bearer {token}" if token else None

        def refresh(self, rejected: str | None, deadline: float) -> bool:
            raise error

        def certificate(self) -> None:
            return None

    auth: Any = Failing()
    with Client(replace(server.config(), token=None, auth=auth)) as client:
        controller = Controller(Api.namespaced(client, ConfigMap, "default"), watch=WatcherConfig(backoff=BACKOFF))
        with controller.start(nothing) as running:
            running.wait_until_ready(10)
            assert running.error is None
    assert auth.asked > 2


@pytest.mark.parametrize("error", ERRORS, ids=repr)
def test_who_waits_for_a_store_may_raise_anything(server: ApiServer, error: BaseException,
                                                  caplog: pytest.LogCaptureFixture) -> None:
    def complete() -> None:
        raise error

    with server.client() as client:
        controller = Controller(Api.namespaced(client, ConfigMap, "default"))
        controller.store.when_ready(complete)
        with controller.start(nothing) as running:
            running.wait_until_ready(10)
            eventually(lambda: running.watch_state.phase.name == "WATCHING")
            assert (running.error, running.watch_state.consecutive_failures) == (None, 0)
    told = [record for record in caplog.records if "raised" in record.getMessage()]
    assert [record.levelno for record in told] == [logging.ERROR]


def test_a_layer_that_raises_while_webhooks_are_set_up_is_told_of_and_it_goes_on(
        server: ApiServer, caplog: pytest.LogCaptureFixture) -> None:
    layer, _ = raising(SystemExit(3), 1)
    end = StopToken()
    with Client(server.config(), layers=[layer]) as client:
        setup = WebhookSetup(client, application({"/quota": Quota()}), "hooks", service=None,
                             url="https://127.0.0.1:1", ca_bundle=lambda: b"", follows=False)
        setup.run(end)
    assert "SystemExit: 3" in caplog.text
    assert setup.why_not_ready == ""
