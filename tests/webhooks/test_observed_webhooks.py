"""What an observer hears of a webhook server, and what a scrape shows of it."""
from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("cryptography", reason="certificates are made with the package cryptography")

from prometheus_client import CollectorRegistry, generate_latest

from kubectl_runtime.client.api.client import Client
from kubectl_runtime.client.config.config import Config
from kubectl_runtime.core.base.observer import NO_OBSERVER
from kubectl_runtime.core.base.threads import SYSTEM_CLOCK
from kubectl_runtime.runtime.observe.metrics import Metrics
from kubectl_runtime.testing import SimClock
from kubectl_runtime.webhooks import Admission, application
from kubectl_runtime.webhooks.server import WebhookServer, observed
from kubectl_runtime.webhooks.serving_certificates import SelfSigned
from tests.core.recording_observer import RecordingObserver
from tests.runtime.observe.scrapes import samples
from tests.webhooks.callers import LIMIT, ask, connection
from tests.webhooks.hooks import Broken, Pod, Quota
from tests.webhooks.reviews import pod, review

REQUESTS = "controller_runtime_webhook_requests_total"
IN_FLIGHT = "controller_runtime_webhook_requests_in_flight"
LATENCY = "controller_runtime_webhook_latency_seconds_count"


def made(app: Any, **more: Any) -> WebhookServer:
    return WebhookServer(app, certificates=SelfSigned(), host="127.0.0.1", port=0, **more)


def scrape(metrics: Metrics) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    return samples(generate_latest(metrics.registry).decode())


def test_requests_are_counted_by_webhook_and_status_and_what_is_no_webhook_is_not() -> None:
    metrics = Metrics(CollectorRegistry())
    app = application({"/quota": Quota(), "/broken": Broken()})
    with made(app, observer=metrics) as server:
        before = scrape(metrics)
        with connection(server) as one:
            assert ask(one)[0] == 200
            assert ask(one, body=review(pod(containers=5)))[0] == 200  # denied
            assert ask(one, "/broken/validate", review(pod("ValueError")))[0] == 200
            assert ask(one, body=b"{}")[0] == 400
            assert ask(one, "/none", b"{}")[0] == 404
        found = scrape(metrics)
    path = ("webhook", "/quota/validate")
    assert (before[REQUESTS, (("code", "200"), path)], before[REQUESTS, (("code", "500"), path)]) == (0, 0)
    assert before[IN_FLIGHT, (path,)] == before[LATENCY, (path,)] == 0
    assert (found[REQUESTS, (("code", "200"), path)], found[REQUESTS, (("code", "400"), path)]) == (2, 1)
    assert found[REQUESTS, (("code", "200"), ("webhook", "/broken/validate"))] == 1
    assert (found[IN_FLIGHT, (path,)], found[LATENCY, (path,)]) == (0, 3)
    assert {dict(labels)["webhook"] for _, labels in found if "webhook" in dict(labels)} == set(app.paths)


def test_what_is_under_way_is_in_flight() -> None:
    asked, go_on = threading.Event(), threading.Event()

    class Slow(Admission[Pod]):
        def validate(self, request: Any) -> None:
            asked.set()
            assert go_on.wait(LIMIT)

    metrics = Metrics(CollectorRegistry())
    with made(application({"/slow": Slow()}), observer=metrics) as server, connection(server) as one:
        thread = threading.Thread(target=ask, args=(one, "/slow/validate"))
        thread.start()
        assert asked.wait(LIMIT)
        assert scrape(metrics)[IN_FLIGHT, (("webhook", "/slow/validate"),)] == 1
        go_on.set()
        thread.join(LIMIT)
        assert scrape(metrics)[IN_FLIGHT, (("webhook", "/slow/validate"),)] == 0


def test_the_observer_is_the_client_s_unless_another_one_is_given() -> None:
    of_client, own = RecordingObserver(), RecordingObserver()
    app = application({"/quota": Quota()})
    with Client(Config(cluster_url="http://127.0.0.1:1"), observer=of_client) as client:
        with WebhookServer(app, certificates=SelfSigned(), host="127.0.0.1", port=0, client=client,
                           observer=own) as server, connection(server) as one:
            ask(one)
        assert of_client.of("webhooks_served") == []
        assert own.of("webhooks_served") == [(app.paths,)]
        assert own.of("webhook_began") == [("/quota/validate",)]
        ((webhook, code, seconds),) = own.of("webhook_answered")
        assert (webhook, code) == ("/quota/validate", 200)
        assert 0 < seconds < LIMIT
        with WebhookServer(app, certificates=SelfSigned(), host="127.0.0.1", port=0, client=client):
            assert of_client.of("webhooks_served") == [(app.paths,)]
    with pytest.raises(TypeError, match="an observer must be an instance"):
        made(app, observer=Metrics)


def test_an_observer_that_raises_costs_no_answer() -> None:
    with made(application({"/quota": Quota()}), observer=RecordingObserver(SystemExit(1))) as server, \
            connection(server) as one:
        assert [ask(one)[0] for _ in range(3)] == [200] * 3


class Answer:
    """What an application of somebody else's gives: parts, and something to close."""

    def __init__(self, *parts: bytes | Exception) -> None:
        self.parts, self.closed = parts, False

    def __iter__(self) -> Iterator[bytes]:
        for part in self.parts:
            if isinstance(part, Exception):
                raise part
            yield part

    def close(self) -> None:
        self.closed = True


@pytest.mark.parametrize(("answer", "code"), [(Answer(b"a", b"b"), 201), (Answer(b"a", ValueError("planned")), 500)])
def test_another_application_counts_as_one_webhook_whatever_its_paths(answer: Answer, code: int) -> None:
    clock, observer = SimClock(), RecordingObserver()

    def app(environ: Any, start_response: Any) -> Answer:
        clock.advance(2)
        start_response("201 Created", [])
        return answer

    serve: Any = observed(app, observer, clock)
    if code == 201:
        assert serve({"PATH_INFO": "/x"}, lambda *_: None) == [b"a", b"b"]
    else:
        with pytest.raises(ValueError, match="planned"):
            serve({"PATH_INFO": "/y"}, lambda *_: None)
    assert answer.closed
    assert observer.heard == [("webhook_began", "*"), ("webhook_answered", "*", code, 2.0)]
    assert observed(app, NO_OBSERVER, SYSTEM_CLOCK) is app
