"""Credentials over http: to loopback, or when asked for, and nowhere else."""

from __future__ import annotations

import logging
import threading
from typing import Any

import pytest
import requests

from kubectl_runtime import Api, Client, Config
from kubectl_runtime.client.config.auth import FixedCredentials
from kubectl_runtime.resources import ConfigMap
from tests.client.wire_server import WireServer, answering, config_map, says

FAR = "http://cluster.example.com"
GIVEN = [
    {"token": "geheim"},
    {"username": "u", "password": "geheim"},
    {"auth": FixedCredentials.token("geheim")},
    {"token_file": "/nowhere/geheim-file"},
    {"headers": {"authorization": "Bearer geheim", "X-Other": "1"}},
]


def sent(config: dict[str, Any], session: requests.Session | None = None) -> dict[str, str | None]:
    """The Authorization header and another one that a server beyond a proxy gets from a client of `FAR`."""
    with WireServer(answering(says(200, config_map()))) as proxy:
        # http through a proxy is the way to have a host that is not this one, without leaving this machine.
        made = Config(cluster_url=FAR, proxy_url=proxy.url, **config)
        with Client(made, session=session) as client:
            Api.namespaced(client, ConfigMap, "default").get("a")
    return {name: proxy.requests[0].header(name) for name in ("Authorization", "X-Other")}


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    """The warnings of this thread: that in which another test obtained credentials may still be about to log one."""
    return [record.getMessage() for record in caplog.records
            if record.levelno >= logging.WARNING and record.thread == threading.get_ident()]


@pytest.mark.parametrize("config", GIVEN)
def test_no_credentials_leave_over_http_and_one_warning_says_so(
    config: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    got = sent(config)
    assert got["Authorization"] is None
    assert got["X-Other"] == config.get("headers", {}).get("X-Other")
    assert len(warnings(caplog)) == 1
    assert "allow_plain_http_credentials=True" in warnings(caplog)[0]
    assert "https" in warnings(caplog)[0]
    assert "geheim" not in caplog.text


def test_a_sessions_own_credentials_do_not_leave_either(caplog: pytest.LogCaptureFixture) -> None:
    for with_header in (False, True):
        caplog.clear()
        session = requests.Session()
        if with_header:
            session.headers["Authorization"] = "Bearer geheim"
        else:
            session.auth = ("u", "geheim")
        assert sent({}, session)["Authorization"] is None
        assert len(warnings(caplog)) == 1


CREDENTIAL_HEADERS = ["Authorization", "cookie", "Proxy-Authorization", "X-Api-Key", "X-AUTH-TOKEN", "x-auth",
                      "Cf-Access-Client-Secret", "X-Vault-Token", "X-Goog-Iap-Jwt-Assertion", "X_Session", "Cookie2"]
OTHER_HEADERS = ["X-Other", "X-Author", "X-Request-Id", "Accept-Language", "Idempotency-Key", "X-Keyboard"]


@pytest.mark.parametrize("by_session", [False, True])
@pytest.mark.parametrize("name", [*CREDENTIAL_HEADERS, *OTHER_HEADERS])
def test_headers_that_are_credentials_do_not_leave_over_http(
    name: str, by_session: bool, caplog: pytest.LogCaptureFixture
) -> None:
    given = {name: "geheim"}
    session = requests.Session()
    session.headers.update(given if by_session else {})
    withheld = name in CREDENTIAL_HEADERS
    for allowed in (False, True):
        caplog.clear()
        with WireServer(answering(says(200, config_map()))) as proxy:
            config = Config(cluster_url=FAR, proxy_url=proxy.url, headers={} if by_session else given,
                            allow_plain_http_credentials=allowed)
            with Client(config, session=session) as client:
                Api.namespaced(client, ConfigMap, "default").get("a")
            assert proxy.requests[0].header(name) == (None if withheld and not allowed else "geheim")
        assert len(warnings(caplog)) == int(withheld and not allowed)
        assert "geheim" not in caplog.text


def test_the_switch_sends_them_without_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    got = sent({"token": "geheim", "allow_plain_http_credentials": True})
    assert got["Authorization"] == "Bearer geheim"
    assert warnings(caplog) == []


def test_loopback_gets_them(caplog: pytest.LogCaptureFixture) -> None:
    with WireServer(answering(says(200, config_map()))) as server:
        with server.client(token="t") as client:
            Api.namespaced(client, ConfigMap, "default").get("a")
        assert server.requests[0].header("Authorization") == "Bearer t"
    assert warnings(caplog) == []


@pytest.mark.parametrize(
    ("url", "withheld"),
    [
        ("http://127.0.0.1:8001", False),
        ("http://127.8.8.8", False),
        ("http://localhost:8080", False),
        ("http://[::1]:8001", False),
        ("https://cluster.example.com", False),
        ("http://10.0.0.1", True),
        ("http://localhost.example.com", True),
        ("http://127.0.0.1.example.com", True),
        ("http://0x7f000001", True),
        ("http://0.0.0.0", True),
        ("http://[::]", True),
        ("HTTP://10.0.0.1", True),
        ("HTTPS://cluster.example.com", False),
    ],
)
def test_which_servers_get_them(url: str, withheld: bool) -> None:
    config = Config(cluster_url=url, token="t")
    assert config.withholds_credentials == withheld
    assert (config.credentials() is None) == withheld


def test_loopback_by_way_of_a_proxy_is_not_near() -> None:
    assert Config(cluster_url="http://127.0.0.1", token="t", proxy_url="http://proxy:1").withholds_credentials


def test_loopback_by_way_of_a_sessions_proxy_is_not_near_either(caplog: pytest.LogCaptureFixture) -> None:
    for given in ({"token": "geheim"}, {"headers": {"Authorization": "Bearer geheim"}}, {}):
        caplog.clear()
        with WireServer(answering(says(200, config_map()))) as proxy:
            session = requests.Session()
            session.proxies = {"http": proxy.url}
            if not given:
                session.auth = ("u", "geheim")
            with Client(Config(cluster_url="http://127.0.0.1:1", **given), session=session) as client:  # type: ignore[arg-type]
                Api.namespaced(client, ConfigMap, "default").get("a")
            assert proxy.requests[0].target.startswith("http://127.0.0.1:1/")
            assert proxy.requests[0].header("Authorization") is None
        assert len(warnings(caplog)) == 1


def test_a_sessions_proxy_changes_nothing_where_credentials_are_asked_for() -> None:
    session = requests.Session()
    session.proxies = {"http": "http://proxy:1"}
    config = Config(cluster_url="http://127.0.0.1", token="t", allow_plain_http_credentials=True)
    assert Client(config, session=session).config.credentials() is not None


def test_nothing_is_said_where_there_is_nothing_to_send(caplog: pytest.LogCaptureFixture) -> None:
    Client(Config(cluster_url=FAR), session=requests.Session()).close()
    assert warnings(caplog) == []


def test_a_kubeconfigs_token_is_withheld_as_well(caplog: pytest.LogCaptureFixture) -> None:
    content = {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
        "clusters": [{"name": "k", "cluster": {"server": FAR}}],
        "users": [{"name": "u", "user": {"token": "geheim"}}],
    }
    assert Config.from_kubeconfig(content).credentials() is None
    assert len(warnings(caplog)) == 1
    assert "context 'c'" in warnings(caplog)[0]
