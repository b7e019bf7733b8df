"""A manager is observed by default: its metrics, the program's own, routes of its own, and a line for each request."""
from __future__ import annotations

import json
import logging
import re
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from prometheus_client import REGISTRY, CollectorRegistry, Counter

from kubectl_runtime import Action, Api, Client, Controller, Manager, Patch, RequestError
from kubectl_runtime.controller import KeyBackoff
from kubectl_runtime.observe import Metrics, Observer
from kubectl_runtime.resources import ConfigMap
from kubectl_runtime.runtime.observe.debug import DebugPage, Traffic
from kubectl_runtime.testing import ApiServer, SimClock, eventually
from tests.examples.programs import environment


@pytest.fixture
def client() -> Iterator[Client]:
    with ApiServer() as server, server.client() as made:
        yield made


def get(manager: Manager, path: str, method: str = "GET", body: bytes | None = None) -> tuple[int, str]:
    port = next(server.port for server in manager._running._servers._started if hasattr(server, "application"))
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", data=body, method=method)
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def reconcile(obj: ConfigMap, ctx: Any) -> Action:
    return Action.await_change()


def work(client: Client) -> None:
    Api.namespaced(client, ConfigMap, "default").apply(ConfigMap(name="a"), field_manager="test")


class Heard(Observer):
    def __init__(self) -> None:
        self.verbs: list[str] = []

    def request_attempted(self, host: str, method: str, verb: str, resource: str, code: int, seconds: float) -> None:
        self.verbs.append(verb)


def plain(server: ApiServer) -> Client:
    return server.client()


def with_an_observer(server: ApiServer) -> Client:
    return Client(server.client().config, observer=Heard())


def with_metrics_of_its_own(server: ApiServer) -> Client:
    return Client(server.client().config, observer=Metrics(CollectorRegistry()))


@pytest.mark.parametrize("make", [plain, with_an_observer, with_metrics_of_its_own])
def test_a_manager_has_metrics_of_its_client_and_controllers(make: Callable[[ApiServer], Client]) -> None:
    with ApiServer() as server, make(server) as client:
        name = f"of-{make.__name__}"
        controller = Controller(Api.all(client, ConfigMap), name=name)  # made before the manager
        manager = Manager(client, serve="127.0.0.1:0").add(controller, reconcile)
        with manager.start() as running:
            eventually(lambda: running.is_ready, timeout=30)
            work(client)
            eventually(lambda: re.search(f'controller_runtime_reconcile_total{{controller="{name}",'
                                         'result="success"} [1-9]', get(manager, "/metrics")[1]), timeout=30)
            text = get(manager, "/metrics")[1]
            assert re.search(r'rest_client_requests_total{code="20[01]",host="[^"]*",method="PATCH"} [1-9]', text)


def test_what_the_program_counts_is_served_too(client: Client) -> None:
    counter = Counter("orders_of_the_program", "Orders.")
    try:
        counter.inc(7)
        manager = Manager(client, serve="127.0.0.1:0")
        with manager.start():
            assert "orders_of_the_program_total 7.0" in get(manager, "/metrics")[1]
    finally:
        REGISTRY.unregister(counter)


def test_two_managers_of_two_clients_share_the_default_registry(client: Client) -> None:
    with ApiServer() as other_server, other_server.client() as other:
        managers = [Manager(one, serve="127.0.0.1:0") for one in (client, other)]
        with managers[0].start(), managers[1].start():
            work(other)
            host = other.config.cluster_url.rpartition("/")[2]
            assert f'host="{host}"' in get(managers[0], "/metrics")[1]
    assert Metrics.shared() is Metrics.shared()
    with pytest.raises(RequestError, match="share one Metrics object") as error:
        Metrics()
    assert len(str(error.value)) < 400


def test_an_observer_of_the_clients_own_goes_on_hearing(client: Client) -> None:
    heard = Heard()
    with Client(client.config, observer=heard) as own:
        manager = Manager(own, serve="127.0.0.1:0")
        with manager.start():
            work(own)
    assert "apply" in heard.verbs


@pytest.mark.parametrize("arguments", [{"metrics": False}, {"serve": None}])
def test_a_manager_without_metrics_says_so_and_loads_nothing(arguments: dict[str, Any]) -> None:
    code = f"""
import sys, urllib.error, urllib.request
from kubectl_runtime import Client, Config, Manager
with Client(Config(cluster_url="http://127.0.0.1:1")) as client:
    manager = Manager(client, **{{"serve": "127.0.0.1:0", **{arguments!r}}})
    with manager.start():
        for server in manager._running._servers._started:
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{{server.port}}/metrics")
            except urllib.error.HTTPError as error:
                print(error.code, error.read().decode())
    print("prometheus_client" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], env=environment(), capture_output=True, text=True, timeout=60,
                          check=True)
    lines = done.stdout.split("\n")
    assert "False" in lines
    assert not [line for line in lines if "/metrics" in line]


def test_the_argument_is_a_flag(client: Client) -> None:
    for wrong in ("no", 1, []):
        with pytest.raises(RequestError, match="metrics"):
            Manager(client, metrics=wrong)  # type: ignore[arg-type]


# Routes


def hello(environ: Any, start_response: Any) -> list[bytes]:
    start_response("201 Created", [("Content-Type", "text/plain")])
    length = int(environ.get("CONTENT_LENGTH") or 0)
    return [f"{environ['REQUEST_METHOD']} {environ['PATH_INFO']} ".encode(), environ["wsgi.input"].read(length)]


def broken(environ: Any, start_response: Any) -> list[bytes]:
    raise ValueError("secret of the program")


def test_routes_of_the_program_are_served_beside_health(client: Client) -> None:
    manager = Manager(client, serve="127.0.0.1:0").add_route("/hello", hello).add_route("/hello/deep", broken)
    with manager.start() as running:
        eventually(lambda: running.is_ready, timeout=30)
        assert get(manager, "/hello") == (201, "GET /hello ")
        assert get(manager, "/hello/you?a=b") == (201, "GET /hello/you ")
        assert get(manager, "/hello", "POST", b"content") == (201, "POST /hello content")
        assert get(manager, "/hello/deep/er") == (500, "internal error\n")
        status, text = get(manager, "/helloo")
        assert status == 404
        assert "/hello" in text
        assert get(manager, "/readyz")[0] == 200


@pytest.mark.parametrize("path", ["", "/", "hello", "/hello/", "/metrics", "/healthz/mine", "/debug"])
def test_a_path_that_cannot_be_a_route_is_refused(path: str, client: Client) -> None:
    with pytest.raises(RequestError):
        Manager(client).add_route(path, hello)


def test_a_route_needs_a_server_an_application_and_its_time(client: Client) -> None:
    with pytest.raises(RequestError, match="serve=None"):
        Manager(client, serve=None).add_route("/hello", hello)
    with pytest.raises(RequestError, match="WSGI application"):
        Manager(client).add_route("/hello", "hello")  # type: ignore[arg-type]
    manager = Manager(client, serve="127.0.0.1:0").add_route("/hello", hello)
    with pytest.raises(RequestError, match="already"):
        manager.add_route("/hello", hello)
    with manager.start(), pytest.raises(RequestError, match="was started"):
        manager.add_route("/later", hello)


# A line for each request


def test_each_request_is_a_line_at_debug(caplog: pytest.LogCaptureFixture) -> None:
    with ApiServer() as server, server.client() as client:
        maps = Api.namespaced(client, ConfigMap, "default")
        with caplog.at_level(logging.DEBUG, "kubectl_runtime.client.api.client"):
            maps.create(ConfigMap(name="a"))
            maps.get_opt("missing")
            server.faults.on("list").first(2).status(503)
            maps.list()
            server.faults.on("get").first(1).drop()
            maps.get("a")
        lines = [record.getMessage() for record in caplog.records if record.name.endswith("client.api.client")]
    assert [re.sub(r"in \d+ ms", "in N ms", line) for line in lines] == [
        "create /api/v1/namespaces/default/configmaps: 201 in N ms",
        "get /api/v1/namespaces/default/configmaps/missing: 404 in N ms",
        "list /api/v1/namespaces/default/configmaps: 200 in N ms, 2 retries",
        "get /api/v1/namespaces/default/configmaps/a: 200 in N ms, 1 retry"]


# The status page


def state(manager: Manager) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(get(manager, "/debug/state.json")[1])
    return found


def test_the_status_page_counts_calls_and_names_failed_runs(caplog: pytest.LogCaptureFixture) -> None:
    fails = False

    def sometimes(obj: ConfigMap, ctx: Any) -> Action:
        if fails:
            raise ValueError("broken")
        return Action.requeue(300)

    with ApiServer() as server, server.client() as client, caplog.at_level(logging.INFO, "kubectl_runtime"):
        maps = Api.namespaced(client, ConfigMap, "default")
        manager = Manager(client, serve="127.0.0.1:0", debug=DebugPage(details=True))
        manager.add(Controller(maps, name="m", backoff=KeyBackoff(initial=600)), sometimes)
        with manager.start():
            maps.create(ConfigMap(name="a"))
            eventually(lambda: state(manager)["controllers"][0].get("delayed"), timeout=30)
            assert state(manager)["controllers"][0]["delayed"][0]["reason"] == "asked to run again after 300 s"
            server.faults.on("get", name="busy").first(1).throttle(0)
            server.faults.on("get", name="down").first(1).status(503)
            maps.get_opt("busy")
            maps.get_opt("down")
            fails = True
            maps.patch("a", Patch.merge({"data": {"x": "y"}}))
            failing = eventually(lambda: state(manager)["controllers"][0].get("failing"), timeout=30)[0]
            calls = state(manager)["calls"]
    assert calls["total"] >= 4
    assert (calls["throttled"], calls["failed"]) == (1, 1)
    assert calls["perSecond"] > 0
    assert failing["succeeded"] >= 0
    logged = [record for record in caplog.records if "reconcile failed" in record.getMessage()]
    assert failing["failedRun"] in map(str, vars(logged[0]).values())


def test_a_webhook_is_a_row_while_it_is_served() -> None:
    traffic = Traffic()
    traffic.webhooks_served(("/a", "/b"))
    traffic.webhook_began("/a")
    assert [(row.name, row.running, row.ago) for row in traffic.webhooks()] == [("/a", 1, None), ("/b", 0, None)]
    for code, seconds in ((200, 0.1), (500, 0.3)):
        traffic.webhook_answered("/a", code, seconds)
    (row, _) = traffic.webhooks()
    assert (row.requests, row.failed, row.running, row.latency) == (2, 1, 0, 0.2)
    traffic.webhooks_ended(("/a", "/b"))
    assert traffic.webhooks() == []


def test_rates_are_of_the_last_minute() -> None:
    clock = SimClock()
    traffic = Traffic(clock)
    for code, seconds in ((200, 1.0), (429, 0.0), (503, 2.0), (0, 5.0)):
        traffic.request_attempted("host", "GET", "get", "pods", code, seconds)
    clock.advance(10)
    found = traffic.calls()
    assert (found.total, found.throttled, found.failed, found.unanswered) == (4, 1, 1, 1)
    assert (found.per_second, found.latency, found.slowest) == (0.4, 2.0, 5.0)
    clock.advance(120)
    found = traffic.calls()
    assert (found.total, found.per_second, found.latency) == (4, 0.0, 0.0)
