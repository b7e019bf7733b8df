"""Who may see the status page, and what it is made of."""
from __future__ import annotations

import re
import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Callable
from importlib.resources import files
from typing import Any

import pytest

from kubectl_runtime.core.base.errors import RequestError
from kubectl_runtime.runtime.observe.debug import DebugPage
from kubectl_runtime.runtime.observe.health import HealthApplication, HealthServer
from kubectl_runtime.runtime.observe.health_checks import HealthChecks
from tests.runtime.observe.debug_rig import LOCAL, DebugRig
from tests.runtime.observe.test_health_application import ask

PAGE = files("kubectl_runtime.runtime.observe").joinpath("debug_page.html").read_text()
PATHS = ("/debug", "/debug/", "/debug/state.json", "/debug/schema.json")


def application(*, remote: bool = False) -> HealthApplication:
    return HealthApplication(HealthChecks("healthz"), HealthChecks("readyz"), None,
                             DebugRig().application(remote=remote))


@pytest.mark.parametrize("environ", [
    {}, {"REMOTE_ADDR": "::1", "HTTP_HOST": "[::1]:8080"}, {"REMOTE_ADDR": "::ffff:127.0.0.1"},
    {"HTTP_HOST": "localhost:8080"}, {"HTTP_HOST": "LOCALHOST"}, {"HTTP_HOST": "127.0.0.1"},
    {"HTTP_HOST": "127.0.0.2:1"}, {"HTTP_HOST": "[0:0:0:0:0:0:0:1]"}, {"HTTP_HOST": "[::FFFF:127.0.0.1]:80"}],
    ids=lambda environ: "; ".join(environ.values()) or "127.0.0.1")
def test_somebody_on_this_host_gets_the_page(environ: dict[str, str]) -> None:
    for path in PATHS:
        assert ask(application(), path, **{**LOCAL, **environ})[0] == 200, path


@pytest.mark.parametrize("environ", [
    {"REMOTE_ADDR": "10.1.2.3"}, {"REMOTE_ADDR": "::ffff:10.1.2.3"}, {"REMOTE_ADDR": "fe80::1%eth0"},
    {"REMOTE_ADDR": ""}, {"REMOTE_ADDR": "127.0.0.1.evil.example"}, {"REMOTE_ADDR": "0.0.0.0"},
    {"HTTP_HOST": "evil.example:8080"}, {"HTTP_HOST": "10.1.2.3:8080"}, {"HTTP_HOST": ""},
    {"HTTP_HOST": "127.0.0.1@evil.example"}, {"HTTP_HOST": "localhost.evil.example"}, {"HTTP_HOST": "[::1"},
    *({"HTTP_HOST": host} for host in (
        "evil.com@127.0.0.1", "evil.com@127.0.0.1:8080", "evil.com:80@localhost", "@127.0.0.1", "127.0.0.1.evil.com",
        "127.0.0.1.", "localhost.", "localhost.:80", "127.0.0.1/", "127.0.0.1?x", "127.0.0.1#x", "127.0.0.1\\@evil.com",
        "127.0.0.1:80:80", "127.0.0.1:", "127.0.0.1:x", " 127.0.0.1", "127.0.0.1\n", "127.0.0.1,evil.com", "127.1",
        "2130706433", "0x7f.0.0.1", "0177.0.0.1", "::1", "[::1", "[127.0.0.1]", "[::1].evil.com", "[::1%lo]", "[::]",
        "[::ffff:10.0.0.1]", "0.0.0.0", "\u0661\u0662\u0667.0.0.1", "localho\u017ft", "127.0.0.1:\u0661")),
    {"HTTP_X_FORWARDED_FOR": "10.1.2.3"}, {"HTTP_FORWARDED": "for=10.1.2.3"}, {"HTTP_VIA": "1.1 proxy"},
    {"HTTP_X_ENVOY_PEER_METADATA": "x"}], ids=lambda environ: "; ".join(environ.values()) or "nothing")
def test_nobody_else_does_and_is_told_how_to(environ: dict[str, str]) -> None:
    for path in PATHS:
        status, _, body = ask(application(), path, **{**LOCAL, **environ})
        assert status == 403
        assert "kubectl port-forward POD 8080:8080" in body
        assert "DebugPage(remote=True)" in body


def test_everybody_does_where_that_is_said() -> None:
    elsewhere = {"REMOTE_ADDR": "10.1.2.3", "HTTP_HOST": "operator.example"}
    assert [ask(application(remote=True), path, **elsewhere)[0] for path in PATHS] == [200] * 4


def test_without_a_page_there_is_none() -> None:
    app = HealthApplication(HealthChecks("healthz"), HealthChecks("readyz"))
    for path in PATHS:
        assert ask(app, path, **LOCAL)[0] == 404


def test_what_is_not_there_is_not_found_and_only_reading_is_allowed() -> None:
    for path in ("/debug/state", "/debug/state.json/", "/debug/../healthz", "/debug/debug_page.html", "/debugger"):
        assert ask(application(), path, **LOCAL)[0] == 404
    for method in ("POST", "PUT", "DELETE", "OPTIONS"):
        assert ask(application(), "/debug", method, **LOCAL)[0] == 405
    status, headers, body = ask(application(), "/debug", "HEAD", **LOCAL)
    assert (status, body) == (200, "")
    assert int(headers["Content-Length"]) > 10_000


def test_the_page_asks_for_nothing_from_elsewhere_and_the_browser_is_told_so() -> None:
    links = re.findall(r"""(?:src|href)\s*=\s*["']([^"']*)|url\(([^)]*)\)|@import|(?:https?:)?//[a-z]""", PAGE)
    assert {found for pair in links for found in pair if found} == {"data:,", "#"}
    assert re.findall(r"(?:innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\()", PAGE) == []
    headers = ask(application(), "/debug", **LOCAL)[1]
    policy = headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    assert (headers["Cache-Control"], headers["X-Content-Type-Options"]) == ("no-store", "nosniff")
    assert len(re.findall(r"<script|<style|\sstyle=|\son\w+=", PAGE)) == 2, "the policy allows one of each"


@pytest.mark.parametrize("wrong", [{"remote": 1}, {"details": "yes"}, {"remote": None}])
def test_a_page_takes_true_and_false(wrong: dict[str, Any]) -> None:
    with pytest.raises(RequestError, match="must be True or False"):
        DebugPage(**wrong)


def test_a_server_takes_a_page_and_nothing_else() -> None:
    with pytest.raises(RequestError, match=r"debug=True is not a DebugPage"):
        HealthServer("127.0.0.1:0", debug=True)  # type: ignore[arg-type]


def _get(url: str) -> tuple[int, str]:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(url, timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def _own_address() -> str:
    """Of this host, and not of loopback."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # sends nothing
            return str(probe.getsockname()[0])
        except OSError:
            pytest.skip("this host has no address but loopback's")


@pytest.mark.parametrize("host", ["", "0.0.0.0"])
def test_a_server_on_every_address_answers_loopback_and_nobody_who_comes_from_elsewhere(host: str) -> None:
    with HealthServer(f"{host}:0", debug=DebugPage()) as server:
        assert _get(f"http://127.0.0.1:{server.port}/debug/state.json")[0] == 200
        assert _get(f"http://localhost:{server.port}/debug")[0] == 200
        address = _own_address()
        assert _get(f"http://{address}:{server.port}/debug/state.json")[0] == 403
        assert _get(f"http://{address}:{server.port}/healthz")[0] == 200
    with HealthServer(f"{host}:0", debug=DebugPage(remote=True)) as server:
        assert _get(f"http://{address}:{server.port}/debug/state.json")[0] == 200


def test_many_who_look_at_once_are_all_answered() -> None:
    answers: list[int] = []
    with HealthServer("127.0.0.1:0", debug=DebugPage()) as server:
        look: Callable[[], None] = lambda: answers.append(_get(f"http://127.0.0.1:{server.port}/debug/state.json")[0])  # noqa: E731
        threads = [threading.Thread(target=look) for _ in range(12)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
    assert answers == [200] * 12
