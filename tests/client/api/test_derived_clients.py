"""`Client.with_layer`: the same client with one layer more, the last before the connection."""
from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import requests
from requests.adapters import BaseAdapter
from requests.models import PreparedRequest, Response

from kubectl_runtime import Api, Client, Config, RetryPolicy, TransportError
from kubectl_runtime.apiserver.server import ApiServer
from kubectl_runtime.client.http.middleware import Answer, Call, Layer, Send
from kubectl_runtime.resources import ConfigMap
from tests.client.wire_server import WireServer, answering, says


@pytest.fixture(scope="module")
def server() -> Iterator[ApiServer]:
    with ApiServer() as running:
        yield running


def noting(name: str, seen: list[str]) -> Layer:
    def layer(send: Send) -> Send:
        def noted(call: Call) -> Answer:
            seen.append(f"{name} {call.request.verb} {'with' if 'User-Agent' in call.headers else 'without'} headers")
            return send(call)

        return noted

    return layer


def test_the_added_layer_is_the_last_and_the_first_client_does_not_have_it(server: ApiServer) -> None:
    seen: list[str] = []
    with server.client() as plain, Client(plain.config, layers=[noting("own", seen)]) as client:
        derived = client.with_layer(noting("added", seen)).with_layer(noting("second", seen))
        derived.server_version()
        assert seen == ["own get with headers", "added get with headers", "second get with headers"]
        client.server_version()
        assert seen[3:] == ["own get with headers"]


def test_both_use_the_same_connections() -> None:
    with WireServer(answering(says(200, b'{"major": "1"}'))) as wire, wire.client() as client:
        for one in (client, client.with_layer(lambda send: send), client):
            one.server_version()
    assert [request.connection for request in wire.requests] == [wire.requests[0].connection] * 3


def test_both_share_observers_and_their_end(server: ApiServer) -> None:
    told: list[str] = []
    client = server.client()
    derived = client.with_layer(lambda send: send)
    derived.on_write(lambda write: told.append(write.ref.name))
    for name, one in (("a", client), ("b", derived)):
        Api.namespaced(one, ConfigMap, "default").create({"metadata": {"name": name}})
    assert told == ["a", "b"]
    derived.grow(50)
    derived.close()
    with pytest.raises(TransportError, match="the client was closed"):
        client.server_version()


class Recorded(BaseAdapter):
    def __init__(self) -> None:
        super().__init__()
        self.timeouts: list[Any] = []

    def send(self, request: PreparedRequest, *args: Any, timeout: Any = None, **kwargs: Any) -> Response:
        self.timeouts.append(timeout)
        raise requests.exceptions.ConnectTimeout

    def close(self) -> None:
        pass


def test_no_connection_is_made_past_the_time_by_which_a_call_has_to_be_sent() -> None:
    adapter, session = Recorded(), requests.Session()
    session.mount("http://", adapter)

    def soon(send: Send) -> Send:
        def limited(call: Call) -> Answer:
            call.send_by = client.clock.monotonic() + 0.25
            return send(call)

        return limited

    config = Config(cluster_url="http://nowhere.example", timeout=5)
    with Client(config, session=session, layers=[soon], retry=RetryPolicy.never()) as client:
        with pytest.raises(TransportError):
            client.server_version()
    (connect, answer), = adapter.timeouts
    assert connect <= 0.25 < answer
