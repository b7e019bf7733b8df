"""`Family`: the name, type, labels and help of some series, and the prometheus-client family made of their values.

A module of series declares its families once; a scrape fills new ones with what is counted then. Nothing is kept in
prometheus-client's own metrics: those take a lock and some checks for each number, and a run changes eight.

`Histogram`: how many values were at most so big, for each of some bounds. Its owner's lock guards it.

prometheus-client's own takes two locks for each value, and looks through its bounds one by one. The bounds here are
controller-runtime's, client-go's or the library's own.
"""
from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from itertools import accumulate
from math import inf

from prometheus_client.core import CounterMetricFamily, Exemplar, GaugeMetricFamily, HistogramMetricFamily, Metric

RECONCILE_TIME = (.005, .01, .025, .05, .1, .15, .2, .25, .3, .35, .4, .45, .5, .6, .7, .8, .9, 1, 1.25, 1.5, 1.75, 2,
                  2.5, 3, 3.5, 4, 4.5, 5, 6, 7, 8, 9, 10, 15, 20, 25, 30, 40, 50, 60)
"""controller-runtime's, of `controller_runtime_reconcile_time_seconds`."""

WORK_QUEUE = (1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, .1, 1, 10, 100, 1000)
"""client-go's, of both durations of a work queue: powers of ten."""

RUN = tuple(sorted({*RECONCILE_TIME, *WORK_QUEUE}))
"""Both, so that how long a run took is counted once for two histograms."""

REQUEST = (.005, .025, .1, .25, .5, 1, 2, 4, 8, 15, 30, 60)
"""client-go's, of `rest_client_request_duration_seconds`."""

BACKOFF = (.01, .1, 1, 10, 60, 300, 1000)
"""From the first delay of a key's backoff, 5 ms, to the longest, 1000 s."""


class Histogram:
    """Counts values by buckets. `bounds` are upper ones, inclusive, in rising order; what is above them all counts as
    well."""

    __slots__ = ("bounds", "counts", "examples", "total")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0
        self.examples: dict[int, tuple[str, float]] = {}
        """By bucket: the trace of the last value there that has one, and the value."""

    def add(self, value: float, trace_id: str = "") -> None:
        """Count a value; `trace_id`: of the trace that it belongs to, if that can be looked up."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value
        if trace_id:
            self.show(value, trace_id)

    def add_all(self, values: list[float]) -> None:
        """As `add` of each, which for many takes a tenth of the time."""
        ordered, below = sorted(values), 0
        self.total += sum(values)
        for place, bound in enumerate(self.bounds):
            if below == len(ordered):
                return
            upto = bisect_right(ordered, bound, below)
            self.counts[place] += upto - below
            below = upto
        self.counts[-1] += len(ordered) - below

    def show(self, value: float, trace_id: str) -> None:
        """A value that was counted, as the example of its bucket."""
        self.examples[bisect_left(self.bounds, value)] = trace_id, value

    def copy(self) -> Histogram:
        """What it is now, for its owner to give away."""
        found = Histogram(self.bounds)
        found.counts, found.total, found.examples = self.counts.copy(), self.total, self.examples.copy()
        return found

    def buckets(self, bounds: tuple[float, ...]) -> list[tuple[str, float, tuple[str, float] | None]]:
        """Upper bound, cumulative count, and trace and value of an example, if there is one, of these of the bounds."""
        counts = dict(zip((*self.bounds, inf), accumulate(self.counts), strict=True))
        examples: dict[float, tuple[str, float]] = {}
        for example in self.examples.values():
            shown = bisect_left(bounds, example[1])
            examples[bounds[shown] if shown < len(bounds) else inf] = example
        return [("+Inf" if bound == inf else str(float(bound)), float(counts[bound]), examples.get(bound))
                for bound in (*bounds, inf)]


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
