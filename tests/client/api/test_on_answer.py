"""`Client.on_answer`: every call is told of once, after its retries, whatever came of it."""
from __future__ import annotations

from typing import Any

import pytest
import requests

from kubectl_runtime import Api, ApiError, Client, Config, TransportError
from kubectl_runtime.client.api.client import Exchanged
from kubectl_runtime.resources import ConfigMap, Secret
from kubectl_runtime.testing import ApiServer, SimClock


@pytest.fixture
def server() -> ApiServer:
    return ApiServer(clock=SimClock(self_advancing=True), seed=1)


@pytest.fixture
def client(server: ApiServer) -> Client:
    session = requests.Session()
    session.mount("http://", server.transport())
    return Client(Config(cluster_url="http://simulated"), session=session, clock=server.clock)


def test_answers_errors_and_lost_answers_are_told(server: ApiServer, client: Client) -> None:
    told: list[Exchanged] = []
    forget = client.on_answer(told.append)
    maps = Api.namespaced(client.with_layer(lambda send: send), ConfigMap, "default")  # of derived clients as well
    maps.create(ConfigMap(name="a"))
    with pytest.raises(ApiError):
        maps.get("b")
    server.faults.on("get", name="c").first(2).status(503)
    maps.get_opt("c")
    server.faults.on("get", name="d").drop()
    with pytest.raises(TransportError):
        maps.get("d")
    assert [one.status for one in told] == [201, 404, 404, 0]
    assert [one.request.verb for one in told] == ["create", "get", "get", "get"]
    assert b'"name":"a"' in told[0].body
    assert told[1].error is None
    assert isinstance(told[3].error, TransportError)
    forget()
    maps.get("a")
    assert len(told) == 4


def test_an_observer_that_fails_harms_no_call_and_nothing_is_shown_of_it(client: Client,
                                                                         caplog: pytest.LogCaptureFixture) -> None:
    def fail(_: Any) -> None:
        raise SystemExit(3)

    client.on_answer(fail)
    secrets = Api.namespaced(client, Secret, "default")
    secrets.create(Secret(name="a", data={"p": b"hunter2"}))
    assert secrets.get("a").data == {"p": b"hunter2"}
    assert "an observer, given <Exchanged <Request POST" in caplog.text
    assert "aHVudGVyMg" not in caplog.text
