"""Whatever proxy is accepted works: for calls, watches and websockets, to servers with and without TLS."""
from __future__ import annotations

import re
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from kubectl_runtime import (
    Api,
    Client,
    Config,
    KubeError,
    OutcomeUnknownError,
    RetryPolicy,
    StopToken,
    TransportError,
)
from kubectl_runtime.resources import ConfigMap
from kubectl_runtime.resources.core_v1 import Pod
from tests.client.proxies import ProxyServer
from tests.client.streaming.socket_peer import SUCCESS, SocketPeer
from tests.client.wire_server import Peer, Received, WireServer, config_map

pytest.importorskip("cryptography", reason="certificates are made with the package cryptography")
from kubectl_runtime.certificates.authority import Authority
from kubectl_runtime.certificates.bundles import server_context

OURS, THEIRS = Authority(), Authority("the proxy's")
"""Of the server, and of the proxy: none of them trusts the other."""


@pytest.fixture(autouse=True)
def trusted_proxies(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "proxy.pem").write_bytes(THEIRS.pem)
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "proxy.pem"))
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


def proxy_of(kind: str, **how: Any) -> ProxyServer:
    if kind.startswith("socks"):
        pytest.importorskip("socks", reason="PySocks is not installed")
    tls = server_context(THEIRS.server(("127.0.0.1",))) if kind == "https" else None
    return ProxyServer(kind, tls=tls, names={"cluster.example": "127.0.0.1"}, **how)


def serve(peer: Peer) -> None:
    while (request := peer.receive()) is not None:
        if "watch=" in request.target:
            peer.start_stream()
            peer.chunk(b'{"type":"ADDED","object":{"metadata":{"name":"a","resourceVersion":"1"}}}\n')
            peer.hold()
        elif "/exec" in request.target:
            websocket(peer, request)
            return
        else:
            peer.answer(200, config_map(data={"big": "x" * 100_000}))


def websocket(peer: Peer, request: Received) -> None:
    """Sends back what it reads, and more than a proxy holds."""
    opened = SocketPeer(peer, request)
    for _ in range(20):
        opened.send(1, b"y" * 60_000)
    size = 0
    while size < 300_000:
        channel, data = opened.message()
        if channel == 0:
            size += len(data)
    opened.send(1, str(size).encode())
    opened.end(SUCCESS)


@pytest.fixture(params=["http", "https"])
def server(request: pytest.FixtureRequest) -> Iterator[WireServer]:
    context = server_context(OURS.server(("127.0.0.1", "cluster.example"))) if request.param == "https" else None
    with WireServer(serve, tls=context) as running:
        yield running


KINDS = ["http", "https", "socks5", "socks5h"]


@pytest.mark.parametrize("login", [None, ("jane", "ge heim:@/")], ids=["no login", "login"])
@pytest.mark.parametrize("kind", KINDS)
def test_calls_watches_and_websockets_go_through_it(kind: str, login: tuple[str, str] | None,
                                                    server: WireServer) -> None:
    with proxy_of(kind, login=login) as proxy:
        with server.client(ca_data=OURS.pem, proxy_url=proxy.url_with_login, timeout=20,
                           client={"retry": RetryPolicy.never()}) as client:
            maps, pods = (Api.namespaced(client, kind, "default") for kind in (ConfigMap, Pod))
            for _ in range(2):
                assert len(maps.get("a").data["big"]) == 100_000
            stop = StopToken()
            names = []
            for event in maps.watch(stop=stop):
                names.append(event.obj.name if event.obj else "")
                threading.Timer(0.05, stop.set).start()  # wakes the read that waits
            done = pods.exec("web", ["cat"], stdin=True).run(b"z" * 300_000, timeout=20)
            assert maps.get("a").name == "a"
        assert names == ["a"]
        assert done.stdout == b"y" * 1_200_000 + b"300000"
        assert set(proxy.asked) == {("127.0.0.1", server.port)}
        assert len(proxy.asked) == 3  # one for calls, which is kept; one for the watch, one for the websocket


@pytest.mark.parametrize(("kind", "source"), [
    (kind, source) for kind in KINDS for source in ("Config", "kubeconfig", "HTTPS_PROXY", "all_proxy")
    if (kind, source) != ("socks5h", "kubeconfig")])  # which kubectl does not take either
def test_it_is_found_in_the_config_a_kubeconfig_and_the_environment(
        kind: str, source: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with ExitStack() as stack:
        running = stack.enter_context(
            WireServer(serve, tls=server_context(OURS.server(("127.0.0.1", "cluster.example")))))
        proxy = stack.enter_context(proxy_of(kind))
        url = f"https://cluster.example:{running.port}"  # which the proxy alone knows
        if source == "Config":
            config = Config(cluster_url=url, ca_data=OURS.pem, proxy_url=proxy.url)
        elif source == "kubeconfig":
            (tmp_path / "ca.pem").write_bytes(OURS.pem)
            path = tmp_path / "config"
            path.write_text(f"""{{"current-context": "c", "contexts": [{{"name": "c", "context": {{"cluster": "c"}}}}],
                "clusters": [{{"name": "c", "cluster": {{"server": "{url}", "proxy-url": "{proxy.url}",
                                                         "certificate-authority": "ca.pem"}}}}]}}""")
            config = Config.from_kubeconfig(path)
        else:
            monkeypatch.setenv(source, proxy.url)
            config = Config(cluster_url=url, ca_data=OURS.pem)
        with Client(config, retry=RetryPolicy.never()) as client:
            assert Api.namespaced(client, ConfigMap, "default").get("a").name == "a"
        assert proxy.asked == [("cluster.example", running.port)]


@pytest.mark.parametrize(("scheme", "asked"), [("socks5", "127.0.0.1"), ("socks5h", "localhost")])
def test_a_name_is_looked_up_here_or_by_the_proxy(scheme: str, asked: str) -> None:
    with WireServer(serve) as server, proxy_of(scheme) as proxy:
        with Client(Config(cluster_url=f"http://localhost:{server.port}", proxy_url=proxy.url)) as client:
            assert Api.namespaced(client, ConfigMap, "default").get("a").name == "a"
    assert proxy.asked[0][0] in (asked, "::1" if asked == "127.0.0.1" else asked)


def failure(server_url: str, proxy_url: str, **config: Any) -> str:
    with Client(Config(cluster_url=server_url, proxy_url=proxy_url, timeout=20, **config),
                retry=RetryPolicy.never()) as client, pytest.raises(TransportError) as caught:
        Api.namespaced(client, ConfigMap, "default").get("a")
    return str(caught.value)


def test_an_untrusted_proxy_is_explained_by_its_own_trust(server: WireServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SSL_CERT_FILE")
    with proxy_of("https") as proxy:
        said = failure(server.url, proxy.url, ca_data=OURS.pem)
    assert f"no trusted connection to the proxy {proxy.url}: [SSL: CERTIFICATE_VERIFY_FAILED]" in said
    assert "the system's CAs (SSL_CERT_FILE names others), not the cluster's" in said
    assert "the CA data of" not in said


def test_an_untrusted_server_behind_a_proxy_is_explained_by_the_clusters_trust() -> None:
    with WireServer(serve, tls=server_context(THEIRS.server(("127.0.0.1",)))) as server, proxy_of("https") as proxy:
        said = failure(server.url, proxy.url, ca_data=OURS.pem)
    assert f"no trusted connection to 127.0.0.1:{server.port}: [SSL: CERTIFICATE_VERIFY_FAILED]" in said
    assert "trusted CAs: the CA data of Config()" in said


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("fault", "words"), [
    ("no server behind it", ""), ("a wrong password", ""), ("no proxy there", "refused")])
def test_what_a_proxy_refuses_names_the_proxy(kind: str, fault: str, words: str, server: WireServer) -> None:
    login = ("jane", "geheim") if fault == "a wrong password" else None
    with proxy_of(kind, login=login) as proxy:
        url, target = proxy.url_with_login.replace("geheim", "falsch"), server.url
        if fault == "no server behind it":
            target = f"https://127.0.0.1:{unused_port()}"
        elif fault == "no proxy there":
            url = url.replace(str(proxy.port), str(unused_port()))
        if fault == "a wrong password" and server.url.startswith("http:") and not kind.startswith("socks"):
            return  # the proxy answers the request itself
        said = failure(target, url, ca_data=OURS.pem)
    assert f"the proxy {re.sub('//.*@', '//', url)} gives no connection to" in said
    assert words in said.lower()
    assert "falsch" not in said


def unused_port() -> int:

    with socket.create_server(("127.0.0.1", 0)) as listening:
        return int(listening.getsockname()[1])


def test_https_is_said_of_a_proxy_that_has_no_tls(server: WireServer) -> None:
    with WireServer(lambda peer: peer.answer(400)) as plain:
        said = failure(server.url, plain.url.replace("http", "https"), ca_data=OURS.pem)
    assert "the proxy" in said
    assert "the CA data of" not in said


@pytest.mark.parametrize("verb", ["list", "watch", "create"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_proxy_that_wants_a_login_is_asked_once(kind: str, verb: str, server: WireServer) -> None:
    with proxy_of(kind, login=("jane", "geheim")) as proxy:
        config = Config(cluster_url=server.url, proxy_url=proxy.url, ca_data=OURS.pem)
        with Client(config, retry=RetryPolicy(base=0.001, maximum=0.002)) as client:
            maps = Api.namespaced(client, ConfigMap, "default")
            calls = {"list": maps.list, "watch": lambda: next(iter(maps.watch())),
                     "create": lambda: maps.create(ConfigMap(name="a"))}
            with pytest.raises(KubeError, match=r"asks? for user and password") as caught:
                calls[verb]()
        assert proxy.accepted == 1
    assert not isinstance(caught.value, OutcomeUnknownError)


@pytest.mark.parametrize("kind", KINDS)
def test_a_proxy_that_never_answers_is_named(kind: str, server: WireServer) -> None:
    over = threading.Event()
    with WireServer(lambda _: over.wait(20) and None) as silent:
        url = silent.url.replace("http:", f"{kind}:")
        with Client(Config(cluster_url=server.url, proxy_url=url, ca_data=OURS.pem, timeout=0.3)) as client:
            with pytest.raises(TransportError) as caught:
                Api.namespaced(client, ConfigMap, "default").get("a")
        over.set()
    assert f"the proxy {url}" in str(caught.value)
