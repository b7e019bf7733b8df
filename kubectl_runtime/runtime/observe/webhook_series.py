"""The series of a webhook server, as controller-runtime has them but for its panics: what a handler raises is logged,
and denies the request. `webhook` is a path of its application.

Each exists, at 0, from the start of its server on: the latency, the requests in progress, and the answers 200 and 500.
`code` is the status of the HTTP answer: a request that a webhook denies is answered with 200.
"""
from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Iterator

from kubectl_runtime.runtime.observe.families import Family, Row, counter, gauge, histogram
from kubectl_runtime.runtime.observe.histogram import Histogram

LATENCY_BOUNDS = (.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10)
"""Prometheus's default, which controller-runtime takes."""

REQUESTS = counter("controller_runtime_webhook_requests_total", "webhook code",
                   "Requests to webhooks, by the HTTP status of the answer.")
LATENCY = histogram("controller_runtime_webhook_latency_seconds", "webhook", LATENCY_BOUNDS,
                    "How long webhooks took to answer.")
IN_FLIGHT = gauge("controller_runtime_webhook_requests_in_flight", "webhook",
                  "Requests that webhooks are answering at this moment.")

FAMILIES = (REQUESTS, LATENCY, IN_FLIGHT)


class WebhookSeries:
    """What is counted of all webhooks together. Safe to use from any thread."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self._counts: dict[tuple[str, int], int] = {}
        self._latencies: dict[str, Histogram] = {}
        self.in_flight: dict[str, int] = {}
        self._servers: Counter[str] = Counter()

    def serve(self, webhooks: Iterable[str]) -> None:
        """There are these webhooks."""
        with self.lock:
            for webhook in webhooks:
                self._add(webhook)
                self._servers[webhook] += 1

    def end(self, webhooks: Iterable[str]) -> list[str]:
        """A server of these webhooks has stopped; those of them that no other server has."""
        with self.lock:
            self._servers.subtract(webhooks)
            return [webhook for webhook in webhooks if self._servers[webhook] <= 0]

    def forget(self, webhook: str) -> None:
        """Show the series of `webhook` no more."""
        with self.lock:
            self._servers.pop(webhook, None)
            self.in_flight.pop(webhook, None)
            self._latencies.pop(webhook, None)
            self._counts = {key: number for key, number in self._counts.items() if key[0] != webhook}

    def began(self, webhook: str) -> None:
        """A request to this webhook is being answered."""
        with self.lock:
            self._add(webhook)
            self.in_flight[webhook] += 1

    def answered(self, webhook: str, code: int, seconds: float) -> None:
        """It was answered after so many seconds, with this HTTP status."""
        with self.lock:
            if webhook not in self.in_flight:  # its server stopped, and it was forgotten
                return
            self.in_flight[webhook] -= 1
            self._counts[webhook, code] = self._counts.get((webhook, code), 0) + 1
            self._latencies[webhook].add(seconds)

    def renew(self) -> None:
        """In the child of a fork: the requests in progress are the parent's."""
        self.lock = threading.Lock()
        self.in_flight = dict.fromkeys(self.in_flight, 0)

    def values(self) -> Iterator[tuple[Family, Row]]:
        """All series, as they are at this moment."""
        with self.lock:
            counts, in_flight = dict(self._counts), dict(self.in_flight)
            latencies = {webhook: spread.copy() for webhook, spread in self._latencies.items()}
        for (webhook, code), number in counts.items():
            yield REQUESTS, ((webhook, str(code)), number)
        for webhook, current in in_flight.items():
            yield IN_FLIGHT, ((webhook,), current)
        for webhook, spread in latencies.items():
            yield LATENCY, ((webhook,), spread)

    def _add(self, webhook: str) -> None:
        if webhook not in self.in_flight:
            self.in_flight[webhook] = 0
            self._latencies[webhook] = Histogram(LATENCY_BOUNDS)
            self._counts |= {(webhook, 200): 0, (webhook, 500): 0}
