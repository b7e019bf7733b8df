"""What `/healthz`, `/readyz` and `/metrics` answer, and what checks of the program's own may do."""
from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families

from kubectl_runtime.core.base.errors import RequestError
from kubectl_runtime.runtime.observe.health import HealthApplication
from kubectl_runtime.runtime.observe.health_checks import HealthChecks, TimedCheck
from kubectl_runtime.runtime.observe.metrics import Metrics


def well() -> None:
    pass


def broken() -> None:
    raise ValueError("the password is tiger")


def application(ready: dict[str, Callable[[], object]] | None = None, metrics: Metrics | None = None
                ) -> HealthApplication:
    return HealthApplication(HealthChecks("healthz"), HealthChecks("readyz", ready), metrics)


def ask(app: HealthApplication, target: str, method: str = "GET", **environ: str) -> tuple[int, dict[str, str], str]:
    path, _, query = target.partition("?")
    started: list[Any] = []
    body = b"".join(app({"REQUEST_METHOD": method, "PATH_INFO": path, "QUERY_STRING": query, **environ},
                        lambda status, headers, _error=None: started.extend((status, headers))))  # type: ignore[arg-type,return-value,misc]
    return int(started[0][:3]), dict(started[1]), body.decode()


def test_an_endpoint_without_checks_of_its_own_says_ok() -> None:
    for path in ("/healthz", "/readyz", "/healthz/", "/healthz/ping"):
        status, headers, body = ask(application(), path)
        assert (status, body) == (200, "ok")
        assert headers["Content-Type"] == "text/plain; charset=utf-8"
        assert headers["X-Content-Type-Options"] == "nosniff"


def test_readyz_fails_if_one_check_fails_and_the_subpath_of_another_still_succeeds() -> None:
    app = application({"well": well, "broken": broken})
    assert ask(app, "/readyz")[0] == 500
    assert ask(app, "/readyz/well")[::2] == (200, "ok")
    assert ask(app, "/readyz/broken")[0] == 500
    assert ask(app, "/healthz")[0] == 200


def test_verbose_lists_each_check_and_a_failure_lists_them_anyway() -> None:
    good = application({"well": well})
    assert ask(good, "/readyz?verbose")[2] == "[+]ping ok\n[+]well ok\nreadyz check passed\n"
    bad = application({"well": well, "broken": broken})
    text = "[+]ping ok\n[+]well ok\n[-]broken failed: reason withheld\nreadyz check failed\n"
    assert ask(bad, "/readyz")[2] == ask(bad, "/readyz?verbose=1")[2] == text


def test_excluded_checks_do_not_count_and_are_not_asked() -> None:
    asked: list[str] = []
    app = application({"broken": lambda: asked.append("broken")})
    status, _, body = ask(app, "/readyz?verbose&exclude=broken&exclude=ping")
    assert status == 200
    assert body == "[+]ping excluded: ok\n[+]broken excluded: ok\nreadyz check passed\n"
    assert not asked


def test_excluding_what_there_is_not_is_said() -> None:
    body = ask(application(), '/readyz?verbose&exclude=nobody')[2]
    assert 'warn: some health checks cannot be excluded: no matches for "nobody"' in body


@pytest.mark.parametrize("path", ["/", "/health", "/healthz/nobody", "/healthz/ping/x", "/metrics", "/readyz/%2e"])
def test_what_is_not_there_is_not_found(path: str) -> None:
    assert ask(application(), path)[0] == 404


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "TRACE", "CONNECT"])
@pytest.mark.parametrize("path", ["/healthz", "/metrics"])
def test_only_get_and_head_are_allowed(method: str, path: str) -> None:
    status, headers, _ = ask(application(metrics=Metrics(CollectorRegistry())), path, method)
    assert (status, headers["Allow"]) == (405, "GET, HEAD")


def test_head_is_get_without_the_body() -> None:
    app = application(metrics=Metrics(CollectorRegistry()))
    for path in ("/healthz", "/readyz?verbose", "/metrics"):
        got, head = ask(app, path), ask(app, path, "HEAD")
        assert head == (got[0], got[1], "")
        assert int(got[1]["Content-Length"]) == len(got[2]) > 0


def test_metrics_are_answered_by_prometheus_clients_own_application() -> None:
    metrics = Metrics(CollectorRegistry())
    metrics.controller_started("c", 3)
    app = application(metrics=metrics)
    status, headers, body = ask(app, "/metrics")
    assert status == 200
    assert headers["Content-Type"].startswith("text/plain; version=")
    assert "controller_runtime_active_workers" in {family.name for family in text_string_to_metric_families(body)}
    accept = "application/openmetrics-text; version=1.0.0"
    assert ask(app, "/metrics", HTTP_ACCEPT=accept)[2].endswith("# EOF\n")
    only = ask(app, "/metrics?name[]=workqueue_depth")[2]
    assert {family.name for family in text_string_to_metric_families(only)} == {"workqueue_depth"}


def test_a_collector_that_raises_is_an_error_of_the_scrape_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    class Broken:
        def describe(self) -> list[Any]:
            return []

        def collect(self) -> list[Any]:
            raise ValueError("no")

    registry = CollectorRegistry()
    metrics = Metrics(registry)
    registry.register(Broken())
    assert ask(application(metrics=metrics), "/metrics")[0] == 500
    assert "the answer to /metrics raised ValueError" in caplog.text


def test_reasons_stay_out_of_the_body_and_are_logged_once_at_each_change(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    state = {"reason": True}
    app = application({"database": lambda: broken() if state["reason"] else None})
    bodies = [ask(app, path)[2] for path in ("/readyz", "/readyz?verbose", "/readyz/database")]
    assert "tiger" not in "".join(bodies)
    state["reason"] = False
    assert ask(app, "/readyz")[0] == 200
    assert [record.getMessage() for record in caplog.records] == [
        "readyz: check database fails: ValueError: the password is tiger", "readyz: check database passes again"]


@pytest.mark.parametrize(("check", "status"), [(lambda: False, 500), (lambda: None, 200), (lambda: True, 200),
                                               (lambda: 0, 200), (lambda: "", 200)])
def test_a_check_fails_by_false_and_by_raising_only(check: Callable[[], object], status: int) -> None:
    assert ask(application({"check": check}), "/readyz")[0] == status


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), MemoryError()])
def test_whatever_a_check_raises_is_a_failure_and_ends_nothing(error: BaseException) -> None:
    def check() -> None:
        raise error

    answers: list[int] = []
    thread = threading.Thread(target=lambda: answers.append(ask(application({"check": check}), "/readyz")[0]))
    thread.start()
    thread.join(10)
    assert answers == [500]


def test_checks_that_never_return_hold_one_thread_each_and_fail_until_they_do(caplog: pytest.LogCaptureFixture) -> None:
    entered, release = [0, 0], threading.Event()

    def hang(number: int) -> Callable[[], None]:
        def check() -> None:
            entered[number] += 1
            release.wait(30)
        return check

    app = application({f"slow{number}": TimedCheck(f"slow{number}", hang(number), 0.2) for number in range(2)})
    began = time.monotonic()
    try:
        for _ in range(20):
            status, _, body = ask(app, "/readyz")
            assert status == 500
            assert "[-]slow0 failed" in body
            assert "[-]slow1 failed" in body
        assert ask(app, "/readyz/slow1")[0] == 500
        assert ask(app, "/readyz?exclude=slow0&exclude=slow1")[0] == 200
        assert time.monotonic() - began < 5, "they are asked at the same time, and not again"
        assert entered == [1, 1]
        assert [thread.name for thread in threading.enumerate() if thread.name.startswith("check ")] == [
            "check slow0", "check slow1"]
    finally:
        release.set()
    until_over = time.monotonic() + 10
    while ask(app, "/readyz")[0] != 200:
        assert time.monotonic() < until_over
    assert caplog.text.count("it has not answered within 0.2 s") == 2


def test_an_answer_that_comes_late_counts_and_many_who_ask_share_one_call() -> None:
    calls: list[float] = []

    def check() -> None:
        calls.append(time.monotonic())
        time.sleep(0.1)  # work, not a wait for time to pass

    app = application({"database": TimedCheck("database", check, 20)})
    answers: list[int] = []
    threads = [threading.Thread(target=lambda: answers.append(ask(app, "/readyz")[0])) for _ in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert answers == [200] * 10
    assert len(calls) < 10


@pytest.mark.parametrize("timeout", [0, -1, "2"])
def test_a_timeout_that_leaves_no_time_is_refused(timeout: Any) -> None:
    with pytest.raises(RequestError, match="check a: timeout"):
        TimedCheck("a", well, timeout)


@pytest.mark.parametrize(("name", "check"), [("", well), ("a/b", well), ("a", "no function"), ("ping", well)])
def test_a_check_that_could_not_be_asked_is_refused(name: str, check: Any) -> None:
    with pytest.raises(RequestError, match=r"a check|called ping already"):
        HealthChecks("readyz").add(name, check)
