"""Which answers are compressed, how they are framed, and that clients read them."""

from __future__ import annotations

import gzip
import http.client
import json
import random
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from urllib.parse import urlsplit

import pytest
import requests

from kubectl_runtime import Api, ApiError, Client, Config, Patch, RetryPolicy, TransportError
from kubectl_runtime.apiserver import encoding
from kubectl_runtime.resources import ConfigMap
from kubectl_runtime.runtime.triggers.watch_store import watch_store
from kubectl_runtime.testing import ApiServer
from kubectl_runtime.testing.clock import SimClock
from tests.apiserver.transport.http.http_peer import Peer

PATH = "/api/v1/namespaces/default/configmaps"
LONG = "x" * 200_000
"""Which gzip makes small."""
HEX = random.Random(1).randbytes(150_000).hex()
"""Which it makes half as long."""


@pytest.fixture(autouse=True)
def _the_limit_of_a_real_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoding, "COMPRESS_ABOVE", 128 << 10)


@pytest.fixture(scope="module")
def server() -> Iterator[ApiServer]:
    with ApiServer() as server:
        for name, text in (("long", LONG), ("hex", HEX), ("short", "x" * (100 << 10))):
            server.load({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "default"},
                         "data": {"k": text}})
        yield server


def ask(server: ApiServer, name: str, accept: str | None = "gzip", method: str = "GET"
        ) -> tuple[http.client.HTTPResponse, bytes]:
    with closing(http.client.HTTPConnection(urlsplit(server.url).netloc)) as connection:
        connection.putrequest(method, f"{PATH}/{name}" if not name.startswith("/") else name, skip_accept_encoding=True)
        if accept is not None:
            connection.putheader("Accept-Encoding", accept)
        connection.endheaders()
        answer = connection.getresponse()
        return answer, answer.read()


def test_what_gets_small_has_a_length(server: ApiServer) -> None:
    answer, body = ask(server, "long")
    assert answer.headers["Content-Encoding"] == "gzip"
    assert answer.headers["Vary"] == "Accept-Encoding"
    assert answer.headers["Content-Length"] == str(len(body))
    assert json.loads(gzip.decompress(body))["data"]["k"] == LONG


@pytest.mark.parametrize("accept", ["gzip", "deflate, gzip", "br,gzip"])
def test_what_stays_long_comes_in_chunks_of_two_kilobytes(server: ApiServer, accept: str) -> None:
    answer, body = ask(server, "hex", accept)
    assert answer.headers["Content-Encoding"] == "gzip"
    assert "Content-Length" not in answer.headers
    assert answer.headers["Transfer-Encoding"] == "chunked"
    assert gzip.decompress(body) == ask(server, "hex", None)[1]
    with Peer(server) as peer:
        peer.send(f"GET {PATH}/hex HTTP/1.1\r\nHost: x\r\nAccept-Encoding: {accept}\r\n\r\n")
        while peer.file.readline() != b"\r\n":
            pass
        assert int(peer.file.readline(), 16) == 2048


@pytest.mark.parametrize("accept", [None, "", "identity", "gzip;q=1.0", "*", "br, deflate", "GZIP"])
def test_who_does_not_name_gzip_gets_none(server: ApiServer, accept: str | None) -> None:
    answer, body = ask(server, "long", accept)
    assert "Content-Encoding" not in answer.headers
    assert answer.headers["Content-Length"] == str(len(body))
    assert json.loads(body)["data"]["k"] == LONG


def test_up_to_128_kib_nothing_is_compressed_whatever_the_client_accepts(server: ApiServer) -> None:
    def with_text(length: int) -> int:
        """Gives the object a text so long; the length of all of it."""
        with server.client() as client:
            change = Patch.merge({"data": {"k": "x" * length}})
            Api.namespaced(client, ConfigMap, "default").patch("short", change)
        return len(ask(server, "short", None)[1])

    rest = with_text(1000) - 1000
    for size, coding in ((128 << 10, None), ((128 << 10) + 1, "gzip")):
        assert with_text(size - rest) == size
        assert ask(server, "short")[0].headers.get("Content-Encoding") == coding


def test_a_head_says_what_a_get_would_and_an_old_client_gets_a_length(server: ApiServer) -> None:
    answer, body = ask(server, "/openapi/v3/api/v1", method="HEAD")
    assert (answer.status, answer.headers["Content-Encoding"], body) == (200, "gzip", b"")
    with Peer(server) as peer:
        peer.send(f"GET {PATH}/hex HTTP/1.0\r\nAccept-Encoding: gzip\r\n\r\n")
        status, headers, body = peer.answer()
    assert (status, headers["content-encoding"]) == (200, "gzip")
    assert json.loads(gzip.decompress(body))["data"]["k"] == HEX


def test_watches_and_texts_are_never_compressed() -> None:
    with ApiServer() as server, server.client() as client:
        Api.namespaced(client, ConfigMap, "default").create(ConfigMap(name="long", data={"k": LONG}))
        answer, body = ask(server, f"{PATH}?watch=1&timeoutSeconds=1&resourceVersion=0")
        assert "Content-Encoding" not in answer.headers
        assert json.loads(body.splitlines()[0])["object"]["data"]["k"] == LONG
        server.load({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web", "namespace": "default"},
                     "spec": {"containers": [{"name": "c", "image": "i"}]}})
        server.kubelet.logs("web", LONG).end()
        answer, body = ask(server, "/api/v1/namespaces/default/pods/web/log")
        assert ("Content-Encoding" in answer.headers, body.decode()) == (False, LONG)


def test_the_client_creates_reads_lists_and_watches_what_is_compressed() -> None:
    with ApiServer() as server, server.client() as client:
        api = Api.namespaced(client, ConfigMap, "default")
        texts = {"a": LONG, "b": HEX, "c": "x" * 1_000_000, "d": "x" * 600_000 + HEX}
        for name, text in texts.items():
            assert api.create(ConfigMap(name=name, data={"k": text})).data == {"k": text}
            assert api.get(name).data == {"k": text}
        assert {found.name: found.data["k"] for found in api.list()} == texts
        with watch_store(api) as store:
            store.wait_until_ready(20)
            assert {found.name: found.data["k"] for found in store.list()} == texts


@pytest.fixture
def simulated() -> ApiServer:
    server = ApiServer(clock=SimClock(self_advancing=True), controllers=())
    server.load({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "long", "namespace": "default"},
                 "data": {"k": HEX}})
    return server


def session_of(server: ApiServer) -> requests.Session:
    session = requests.Session()
    session.mount("http://", server.transport())
    return session


def test_a_simulation_compresses_too(simulated: ApiServer) -> None:
    session = session_of(simulated)
    answer = session.get(f"http://simulated{PATH}/long", headers={"Accept-Encoding": "gzip"}, stream=True)
    assert answer.headers["Content-Encoding"] == "gzip"
    packed = answer.raw.read(decode_content=False)
    assert len(packed) == int(answer.headers["Content-Length"]) < len(HEX)
    assert json.loads(gzip.decompress(packed))["data"]["k"] == HEX
    assert session.get(f"http://simulated{PATH}/long").json()["data"]["k"] == HEX
    with Client(Config(cluster_url="http://simulated"), session=session, clock=simulated.clock) as client:
        assert Api.namespaced(client, ConfigMap, "default").get("long").data == {"k": HEX}


@pytest.mark.parametrize("of", ["answer", "body"])
def test_a_fault_cuts_the_bytes_that_are_sent(simulated: ApiServer, server: ApiServer, of: str) -> None:
    simulated.faults.on("get").truncate(-1, of=of)  # type: ignore[arg-type]
    config = Config(cluster_url="http://simulated")
    with Client(config, session=session_of(simulated), clock=simulated.clock, retry=RetryPolicy.never()) as client:
        with pytest.raises(TransportError, match="get configmaps default/long"):
            Api.namespaced(client, ConfigMap, "default").get("long")
    try:
        for name, text in (("long", LONG), ("hex", HEX)):
            server.faults.on("get", name=name).first(1).truncate(-1, of=of)  # type: ignore[arg-type]
            with server.client() as client:
                assert Api.namespaced(client, ConfigMap, "default").get(name).data == {"k": text}
    finally:
        server.faults.clear()


def test_a_fault_that_changes_an_answer_sees_it_as_it_is(simulated: ApiServer) -> None:
    rule = simulated.faults.on("get")
    rule.rewrite(lambda answer: replace(answer, body=answer.body.replace(b"ConfigMap", b"Secret")))
    assert session_of(simulated).get(f"http://simulated{PATH}/long").json()["kind"] == "Secret"


def test_a_refusal_that_is_long_is_compressed_and_read() -> None:
    with ApiServer() as server, server.client() as client:
        wrong = {"metadata": {"name": "a"}, "data": {"?" * 200_000: "v"}}
        with pytest.raises(ApiError) as error:
            Api.namespaced(client, ConfigMap, "default").create(wrong)
        assert len(error.value.status.message or "") > 200_000
