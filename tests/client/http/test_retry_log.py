"""What the log says of retries: one line for a client and its server, not one a call, and one when it is over."""
from __future__ import annotations

import logging
import threading
from typing import Any

import pytest

from kubectl_runtime import Api
from kubectl_runtime.client.http.middleware import RetryLog
from kubectl_runtime.core.requests import request as build
from kubectl_runtime.core.requests.request import Place
from kubectl_runtime.resources import ConfigMap
from kubectl_runtime.testing import ApiServer, SimClock


class Retried:
    """A call that is about to be sent again for the so-many-th time."""

    request = build.get(Place(ConfigMap.api_resource, "default"), "a")

    def __init__(self, attempt: int) -> None:
        self.attempt = attempt


def lines(caplog: pytest.LogCaptureFixture, level: int) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno == level]


def told(clock: SimClock) -> tuple[RetryLog, Any]:
    log = RetryLog(clock, "api.example:6443")
    return log, lambda attempt: log.retried(Retried(attempt), "get configmaps default/a: HTTP 503")  # type: ignore[arg-type]


def test_single_retries_are_told_to_who_looks_at_everything(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    log, retried = told(SimClock())
    for _ in range(50):
        for attempt in (1, 2, 3):
            retried(attempt)
    assert not log.told
    assert {record.levelno for record in caplog.records} == {logging.DEBUG}
    assert len(caplog.records) == 150


def test_calls_that_drag_on_are_one_line_and_their_answer_another(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    clock = SimClock()
    log, retried = told(clock)
    for attempt in range(1, 9):
        for _ in range(10):
            retried(attempt)
        clock.advance(1)
    assert lines(caplog, logging.WARNING) == [
        "get configmaps default/a: HTTP 503 (retry 4); other failed calls to api.example:6443 are retried without "
        "further warnings until the server answers a call"]
    log.answered()
    log.answered()
    assert lines(caplog, logging.INFO) == ["api.example:6443 answers again, 5 s after the warning and after 50 retries"]


def test_a_server_that_answers_now_and_then_is_told_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    clock = SimClock()
    log, retried = told(clock)
    for _ in range(180):
        retried(4)
        log.answered()
        clock.advance(1)
    assert len(lines(caplog, logging.WARNING)) == len(lines(caplog, logging.INFO)) == 3


def test_ten_callers_of_one_client_get_one_line(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "kubectl_runtime.client")
    with ApiServer() as server, server.client() as client:
        maps = Api.namespaced(client, ConfigMap, "default")
        maps.create(ConfigMap(name="a"))
        broken = server.faults.on("get").status(503)
        threads = [threading.Thread(target=maps.get, args=("a",)) for _ in range(10)]
        for thread in threads:
            thread.start()
        while not (found := [line for line in lines(caplog, logging.WARNING) if "(retry 4)" in line]):
            threading.Event().wait(0.02)
        broken.remove()
        for thread in threads:
            thread.join()
        assert len(found) == 1
    assert [line for line in lines(caplog, logging.WARNING) if "retry" in line] == found
    assert len([line for line in lines(caplog, logging.INFO) if "answers again" in line]) == 1
