"""What the client takes from a requests.Session, one rule each, and what it does not."""

from __future__ import annotations

import functools
import threading
from pathlib import Path
from typing import Any

import pytest
import requests
import requests_mock
import responses
from requests.adapters import HTTPAdapter

import kubectl_runtime
from kubectl_runtime import (
    Api,
    ApiError,
    Client,
    Config,
    ConfigError,
    ListParams,
    OutcomeUnknownError,
    RetryPolicy,
    TransportError,
)
from kubectl_runtime.client.wire.carrier import ApiAdapter
from kubectl_runtime.resources import ConfigMap
from tests.client.wire_server import Peer, Received, WireServer, answering, config_map, says, status

URL = "https://cluster.example.com:6443"
PATH = "/api/v1/namespaces/default/configmaps"


def sent_with(session: requests.Session, **config: Any) -> Received:
    with (
        WireServer(answering(says(200, config_map()))) as server,
        server.client(client={"session": session}, **config) as client,
    ):
        Api.namespaced(client, ConfigMap, "default").get("a")
    return server.requests[0]


def test_headers_that_differ_from_requests_defaults_are_sent() -> None:
    session = requests.Session()
    session.headers["X-Mine"] = "1"
    session.headers["User-Agent"] = "my-controller/2"
    sent = sent_with(session)
    assert sent.header("X-Mine") == "1"
    assert sent.all_of("User-Agent") == ["my-controller/2"]
    assert sent.all_of("Accept") == ["application/json"]
    assert sent.header("Connection") is None


def test_without_a_session_the_server_names_the_field_manager_after_the_package() -> None:
    sent = sent_with(requests.Session())
    assert sent.all_of("User-Agent")[0].split("/")[0] == "kubectl_runtime"  # servers take what comes before the slash
    assert kubectl_runtime.__version__ in sent.all_of("User-Agent")[0]


@pytest.mark.parametrize("auth", [("u", "p"), requests.auth.HTTPBasicAuth("u", "p")])
def test_its_auth_outranks_the_configured_credentials(auth: Any) -> None:
    session = requests.Session()
    session.auth = auth
    assert sent_with(session, token="t").all_of("Authorization") == ["Basic dTpw"]


def test_so_does_its_authorization_header() -> None:
    session = requests.Session()
    session.headers["authorization"] = "Bearer mine"
    assert sent_with(session, token="t").all_of("Authorization") == ["Bearer mine"]


def test_its_response_hooks_are_called_and_may_read_the_body() -> None:
    session, seen = requests.Session(), []

    def hook(response: requests.Response, **_: Any) -> None:
        seen.append((response.status_code, response.json()["kind"], response.headers["content-type"]))

    session.hooks["response"].append(hook)
    sent_with(session)
    assert seen == [(200, "ConfigMap", "application/json")]


def test_its_proxies_outrank_all_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    session = requests.Session()
    with WireServer(answering(says(200, config_map()))) as proxy:
        session.proxies["http"] = proxy.url
        client = Client(
            Config(cluster_url="http://cluster.example.com", proxy_url="http://127.0.0.1:1"), session=session
        )
        Api.namespaced(client, ConfigMap, "default").get("a")
        client.close()
    assert proxy.requests[0].target == f"http://cluster.example.com{PATH}/a"
    assert proxy.requests[0].header("Host") == "cluster.example.com"


def test_the_kubeconfigs_proxy_outranks_the_environments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    with WireServer(answering(says(200, config_map()))) as proxy:
        with Client(Config(cluster_url="http://cluster.example.com", proxy_url=proxy.url)) as client:
            Api.namespaced(client, ConfigMap, "default").get("a")
            client.stream(proxy_request()).close()
    assert len(proxy.requests) == 2


def proxy_request() -> Any:
    from kubectl_runtime.core.requests.request import Request

    return Request("GET", "/x", "watch", None, "watch x")


@pytest.mark.parametrize("off", ["session", "config"])
def test_environment_proxies_are_used_unless_turned_off(monkeypatch: pytest.MonkeyPatch, off: str) -> None:
    with WireServer(answering(says(200, config_map()))) as proxy:
        monkeypatch.setenv("http_proxy", proxy.url)
        with Client(Config(cluster_url="http://cluster.invalid")) as client:
            Api.namespaced(client, ConfigMap, "default").get("a")
        session = requests.Session()
        session.trust_env = off != "session"
        config = Config(cluster_url="http://cluster.invalid", trust_env=off != "config")
        with Client(config, session=session, retry=RetryPolicy.never()) as client, pytest.raises(TransportError):
            Api.namespaced(client, ConfigMap, "default").get("a")
    assert len(proxy.requests) == 1


def test_an_https_server_behind_a_proxy_is_reached_by_connect() -> None:
    def refuse(peer: Peer, request: Received) -> None:
        peer.answer(403)

    with WireServer(answering(refuse)) as proxy:
        client = Client(Config(cluster_url=URL, proxy_url=proxy.url), retry=RetryPolicy.never())
        with pytest.raises(TransportError, match="proxy"):
            Api.namespaced(client, ConfigMap, "default").get("a")
        client.close()
    assert (proxy.requests[0].method, proxy.requests[0].target) == ("CONNECT", "cluster.example.com:6443")


QUICK = RetryPolicy(base=0.001, maximum=0.002)


@pytest.mark.parametrize(("code", "remedy"), [
    (407, "It asks for user and password: put them into its URL"), (403, "It must allow connections to"),
    (400, "It must allow connections to"), (404, "bypass it with NO_PROXY"), (302, "bypass it with NO_PROXY")])
@pytest.mark.parametrize("method", ["get", "create"])
def test_a_proxy_that_refuses_the_tunnel_is_asked_once(code: int, remedy: str, method: str) -> None:
    with WireServer(answering(says(code, b"<html>no</html>", kind="text/html"))) as proxy:
        named = proxy.url.replace("://", "://me:geheim@")
        with Client(Config(cluster_url=URL, proxy_url=named), retry=QUICK) as client:
            maps = Api.namespaced(client, ConfigMap, "default")
            with pytest.raises(TransportError, match=f"the proxy {proxy.url} gives no connection") as caught:
                maps.get("a") if method == "get" else maps.create(ConfigMap(name="a"))
    assert [request.method for request in proxy.requests] == ["CONNECT"]
    assert not caught.value.sent
    assert not isinstance(caught.value, OutcomeUnknownError)
    for part in (remedy, str(code), "cluster.example.com:6443", "proxy-url"):
        assert part in str(caught.value)
    assert "geheim" not in str(caught.value)
    assert "me:" not in str(caught.value)


@pytest.mark.parametrize("code", [500, 502, 503, 504])
def test_a_proxy_that_does_not_reach_the_server_is_asked_again(code: int) -> None:
    with WireServer(answering(says(code))) as proxy:
        with Client(Config(cluster_url=URL, proxy_url=proxy.url), retry=QUICK) as client:
            with pytest.raises(TransportError, match="Check the proxy settings") as caught:
                Api.namespaced(client, ConfigMap, "default").create(ConfigMap(name="a"))
    assert len(proxy.requests) == 9
    assert not isinstance(caught.value, OutcomeUnknownError), "it was never sent"


def test_a_proxy_that_asks_for_a_password_without_a_tunnel_says_so_too() -> None:
    with WireServer(answering(says(407, b"<html>no</html>", kind="text/html"))) as proxy:
        with Client(Config(cluster_url="http://cluster.invalid", proxy_url=proxy.url), retry=QUICK) as client:
            with pytest.raises(ApiError, match="A proxy asks for user and password"):
                Api.namespaced(client, ConfigMap, "default").get("a")
    assert len(proxy.requests) == 1


def test_netrc_cookies_and_params_are_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login u password p\n")
    monkeypatch.setenv("NETRC", str(netrc))
    session = requests.Session()
    session.cookies.set("a", "b")
    session.params = {"c": "d"}
    sent = sent_with(session)
    assert sent.header("Authorization") is None
    assert sent.header("Cookie") is None
    assert sent.target == f"{PATH}/a"


def test_cookies_that_the_server_sets_are_not_sent_back() -> None:
    with WireServer(answering(says(200, config_map(), headers=("Set-Cookie: a=b",)))) as server:
        with server.client(client={"session": requests.Session()}) as client:
            for _ in range(2):
                Api.namespaced(client, ConfigMap, "default").get("a")
    assert server.requests[1].header("Cookie") is None


def test_environment_ca_bundles_are_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(tmp_path / "missing.pem"))
    monkeypatch.setenv("CURL_CA_BUNDLE", str(tmp_path / "missing.pem"))
    sent_with(requests.Session())
    Client(Config(cluster_url=URL)).close()


def test_a_missing_bundle_or_certificate_of_the_session_is_named(tmp_path: Path) -> None:
    session = requests.Session()
    session.verify = str(tmp_path / "missing.pem")
    with pytest.raises(ConfigError, match=r"missing\.pem"):
        Client(Config(cluster_url=URL), session=session)
    session = requests.Session()
    session.cert = (str(tmp_path / "cert.pem"), str(tmp_path / "key.pem"))
    with pytest.raises(ConfigError, match="client certificate"):
        Client(Config(cluster_url=URL), session=session)


@pytest.mark.parametrize(("wrong", "said"), [
    ({"verify": 5}, "verify"), ({"cert": ("geheim",)}, "cert"), ({"cert": ["a", "b"]}, "cert"),
    ({"auth": "geheim"}, "auth"), ({"auth": ("u", "geheim", "x")}, "auth"), ({"adapters": {}}, "adapter")])
def test_what_requests_would_fail_on_is_refused_when_the_client_is_made(wrong: dict[str, Any], said: str) -> None:
    session = requests.Session()
    for name, value in wrong.items():
        setattr(session, name, value)
    with pytest.raises(ConfigError, match=f"session.*{said}") as error:
        Client(Config(cluster_url=URL), session=session)
    assert "geheim" not in str(error.value)


@pytest.mark.parametrize("wrong", ["x", 5, requests.Session, requests])
def test_what_is_no_session_is_refused(wrong: Any) -> None:
    with pytest.raises(ConfigError, match=r"must be a requests\.Session"):
        Client(Config(cluster_url=URL), session=wrong)


def test_requests_own_adapter_is_replaced_and_a_mounted_one_is_used() -> None:
    class Mine(HTTPAdapter):
        used = 0

        def send(self, *arguments: Any, **named: Any) -> requests.Response:
            Mine.used += 1
            return super().send(*arguments, **named)

    session = requests.Session()
    with Client(Config(cluster_url=URL), session=session) as client:
        assert isinstance(client._carriers.current().calls, ApiAdapter)
    session.mount("http://127.0.0.1", Mine())
    sent_with(session)
    assert Mine.used == 1


def test_a_mounted_adapter_survives_the_client() -> None:
    session = requests.Session()
    adapter = requests_mock.Adapter()
    session.mount(URL, adapter)
    adapter.register_uri("GET", f"{URL}{PATH}/a", json=config_map())
    for _ in range(2):
        with Client(Config(cluster_url=URL), session=session) as client:
            assert Api.namespaced(client, ConfigMap, "default").get("a").name == "a"


def test_a_mounted_requests_mock_adapter_works() -> None:
    session, adapter = requests.Session(), requests_mock.Adapter()
    session.mount("https://", adapter)
    adapter.register_uri("GET", f"{URL}{PATH}", json={"metadata": {"resourceVersion": "5"}, "items": [config_map()]})
    adapter.register_uri("POST", f"{URL}{PATH}", status_code=409, json=status(409, "AlreadyExists", "it exists"))
    with Client(Config(cluster_url=URL), session=session) as client:
        api = Api.namespaced(client, ConfigMap, "default")
        assert [found.name for found in api.list(ListParams(limit=3))] == ["a"]
        with pytest.raises(ApiError, match="it exists"):
            api.create(ConfigMap(name="a"))
    assert adapter.request_history[0].qs == {"limit": ["3"]}
    assert adapter.request_history[1].json()["metadata"] == {"name": "a", "namespace": "default"}


def test_a_request_that_requests_mock_does_not_know_fails_at_once() -> None:
    session = requests.Session()
    session.mount("https://", requests_mock.Adapter())
    with Client(Config(cluster_url=URL), session=session) as client, pytest.raises(requests_mock.NoMockAddress):
        Api.namespaced(client, ConfigMap, "default").get("a")


@responses.activate
def test_responses_works_without_a_session_and_with_streams() -> None:
    responses.get(f"{URL}{PATH}/a", json=config_map())
    event = b'{"type":"DELETED","object":{"metadata":{"name":"a","resourceVersion":"9"}}}\n'
    responses.get(
        f"{URL}{PATH}",
        body=event,
        match=[responses.matchers.query_param_matcher({"watch": "true"}, strict_match=False)],
    )
    with Client(Config(cluster_url=URL)) as client:
        api = Api.namespaced(client, ConfigMap, "default")
        assert api.get("a").name == "a"
        assert [(seen.type, seen.resource_version) for seen in api.watch()] == [("DELETED", "9")]
    assert responses.calls[0].request.headers["Accept"] == "application/json"


def test_responses_sees_the_calls_of_a_client_that_has_made_some_and_no_others() -> None:
    with WireServer(answering(says(200, config_map("real")), says(200, config_map("real")))) as server:
        with server.client() as client:
            api = Api.namespaced(client, ConfigMap, "default")
            assert api.get("a").name == "real"
            with responses.RequestsMock() as mocked:
                mocked.get(f"{server.url}{PATH}/a", json=config_map("mocked"))
                assert api.get("a").name == "mocked"
            assert api.get("a").name == "real"
    assert len(server.requests) == 2


@pytest.mark.parametrize("replaced", ["by a function", "by one that looks like it", "by a callable"])
def test_whatever_replaces_the_adapters_send_sees_each_call(replaced: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seen, real = [], HTTPAdapter.send

    def traced(adapter: HTTPAdapter, request: requests.PreparedRequest, **options: Any) -> requests.Response:
        seen.append((request.method, request.url, options["stream"]))
        return real(adapter, request, **options)

    class Traced:
        __module__ = real.__module__

        def __get__(self, adapter: Any, owner: Any) -> Any:
            return self if adapter is None else functools.partial(traced, adapter)

        def __call__(self, *arguments: Any, **options: Any) -> requests.Response:
            return traced(*arguments, **options)

    by = {"by a function": traced, "by one that looks like it": functools.wraps(real)(traced),
          "by a callable": Traced()}
    monkeypatch.setattr(HTTPAdapter, "send", by[replaced])
    with (WireServer(answering(says(200, config_map()), says(201, config_map()))) as server,
          server.client() as client):
        api = Api.namespaced(client, ConfigMap, "default")
        assert api.get("a").name == "a"
        assert api.create(ConfigMap(name="a")).name == "a"
    assert seen == [("GET", f"{server.url}{PATH}/a", True), ("POST", f"{server.url}{PATH}", True)]


def test_mocks_of_session_send_work_with_use_session_send() -> None:
    with requests_mock.Mocker() as mocker:
        mocker.get(f"{URL}{PATH}/a", json=config_map())
        mocker.get(f"{URL}{PATH}/b", status_code=302, headers={"Location": "https://elsewhere"})
        with Client(Config(cluster_url=URL, token="t"), use_session_send=True) as client:
            api = Api.namespaced(client, ConfigMap, "default")
            assert api.get("a").name == "a"
            with pytest.raises(ApiError, match="redirects"):
                api.get("b")
    assert mocker.request_history[0].headers["Authorization"] == "Bearer t"
    assert len(mocker.request_history) == 2


def test_use_session_send_reaches_a_real_server_too() -> None:
    session = requests.Session()
    session.cookies.set("a", "b")
    with WireServer(answering(says(200, config_map()))) as server:
        with server.client(client={"session": session, "use_session_send": True}) as client:
            assert Api.namespaced(client, ConfigMap, "default").get("a").name == "a"
    assert server.requests[0].header("Cookie") is None


def test_a_session_may_serve_several_clients_at_once() -> None:
    session = requests.Session()
    names: list[str] = []
    with (
        WireServer(answering(says(200, config_map("a")))) as one,
        WireServer(answering(says(200, config_map("b")))) as two,
    ):
        clients = [server.client(client={"session": session}) for server in (one, two)]
        threads = [
            threading.Thread(
                target=lambda c=client: names.append(Api.namespaced(c, ConfigMap, "default").get("x").name)
            )
            for client in clients
            for _ in range(5)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for client in clients:
            client.close()
    assert sorted(names) == ["a"] * 5 + ["b"] * 5
