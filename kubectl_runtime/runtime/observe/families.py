"""`Family`: the name, type, labels and help of some series, and the prometheus-client family made of their values.

A module of series declares its families once; a scrape fills new ones with what is counted then. Nothing is kept in
prometheus-client's own metrics: those take a lock and some checks for each number, and a run changes eight.
"""
from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from prometheus_client.core import CounterMetricFamily, Exemplar, GaugeMetricFamily, HistogramMetricFamily, Metric

from kubectl_runtime.runtime.observe.histogram import Histogram

Row = tuple[tuple[str, ...], float | Histogram]
"""The values of the labels, and of the series."""


class Kind(StrEnum):
    """The types of metrics that Prometheus knows and that are used here."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class Family:
    """What is said once of all series of a name. A counter's `name` ends in `_total`, as its series do."""

    kind: Kind
    name: str
    labels: tuple[str, ...]
    help: str
    bounds: tuple[float, ...] = ()
    """A histogram's; those that it shows may be some of those that are counted."""

    def filled(self, rows: Iterable[Row] = ()) -> Metric:
        """The family with its series, as prometheus-client takes it."""
        if self.kind is Kind.HISTOGRAM:
            histogram = HistogramMetricFamily(self.name, self.help, labels=self.labels)
            for labels, value in rows:
                assert isinstance(value, Histogram)
                histogram.add_metric(labels, [_bucket(*bucket) for bucket in value.buckets(self.bounds)], value.total)
            return histogram
        make = CounterMetricFamily if self.kind is Kind.COUNTER else GaugeMetricFamily
        family = make(self.name, self.help, labels=self.labels)
        for labels, value in rows:
            assert not isinstance(value, Histogram)
            family.add_metric(labels, value)
        return family


def _bucket(bound: str, count: float, example: tuple[str, float] | None
            ) -> tuple[str, float] | tuple[str, float, Exemplar]:
    """As `add_metric` takes it. Exemplars are written where a scraper asks for OpenMetrics."""
    return (bound, count) if example is None else (bound, count, Exemplar({"trace_id": example[0]}, example[1]))


def counter(name: str, labels: str, text: str) -> Family:
    """A family of counters; `labels` are their names, divided by blanks, `text` the help."""
    return Family(Kind.COUNTER, name, tuple(labels.split()), text)


def gauge(name: str, labels: str, text: str) -> Family:
    """A family of gauges; `labels` are their names, divided by blanks, `text` the help."""
    return Family(Kind.GAUGE, name, tuple(labels.split()), text)


def histogram(name: str, labels: str, bounds: tuple[float, ...], text: str) -> Family:
    """A family of histograms; `labels` are their names, divided by blanks, `text` the help."""
    return Family(Kind.HISTOGRAM, name, tuple(labels.split()), text, bounds)
