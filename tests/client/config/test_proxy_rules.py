"""Which proxy leads to a URL."""

from __future__ import annotations

import pytest

from kubectl_runtime import Config, ConfigError
from kubectl_runtime.client.config.proxies import environment_proxy, matches_no_proxy, without_password

PROXY = "http://proxy:3128"


@pytest.mark.parametrize(
    ("entry", "host", "matches"),
    [
        ("*", "anything", True),
        ("10.0.0.0/8", "10.1.2.3", True),
        ("10.0.0.0/8", "11.0.0.1", False),
        ("10.0.0.1", "10.0.0.1", True),
        ("10.0.0.1", "10.0.0.11", False),
        (".svc", "kubernetes.default.svc", True),
        (".svc", "svc", False),
        ("example.com", "api.example.com", True),
        ("example.com", "example.com", True),
        ("example.com", "badexample.com", False),
        ("*.example.com", "api.example.com", True),
        ("EXAMPLE.com", "api.Example.com", True),
        ("fd00::/8", "fd00::1", True),
        ("fd00::1", "fd00:0::1", True),
        ("example.com:6443", "example.com", True),
        ("example.com:443", "example.com", False),
        ("a, example.com ,b", "example.com", True),
        ("", "example.com", False),
        ("10.0.0.0/99", "10.0.0.1", False),
    ],
)
def test_no_proxy_entries(entry: str, host: str, matches: bool) -> None:
    assert matches_no_proxy(host, 6443, entry) == matches


@pytest.mark.parametrize(
    ("environ", "url", "expected"),
    [
        ({"HTTPS_PROXY": PROXY}, "https://h:6443", PROXY),
        ({"https_proxy": PROXY}, "https://h:6443", PROXY),
        ({"HTTPS_PROXY": PROXY}, "http://h", None),
        ({"HTTP_PROXY": PROXY}, "http://h", PROXY),
        ({"ALL_PROXY": PROXY}, "https://h", PROXY),
        ({"HTTPS_PROXY": PROXY, "NO_PROXY": "10.0.0.0/8,.svc"}, "https://10.0.0.1", None),
        ({"HTTPS_PROXY": PROXY}, "https://127.0.0.1:6443", None),
        ({"HTTPS_PROXY": PROXY}, "https://localhost", None),
        ({"HTTPS_PROXY": PROXY}, "https://[::1]", None),
        ({"HTTPS_PROXY": "proxy:1"}, "https://h", "http://proxy:1"),
        ({}, "https://h", None),
    ],
)
def test_environment_proxies(environ: dict[str, str], url: str, expected: str | None) -> None:
    assert environment_proxy(url, environ) == expected


@pytest.mark.parametrize("proxy", ["ftp://proxy", "http://", "http://:80"])
def test_what_is_no_proxy_is_refused(proxy: str) -> None:
    with pytest.raises(ConfigError, match="proxy"):
        Config(cluster_url="https://h", proxy_url=proxy)


def test_a_proxys_password_is_not_shown() -> None:
    assert without_password("http://user:geheim@proxy:1") == "http://proxy:1"
    assert "geheim" not in repr(Config(cluster_url="https://h", proxy_url="http://user:geheim@proxy:1"))
