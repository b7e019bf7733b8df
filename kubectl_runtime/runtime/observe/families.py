"""`Family`: the name, type, labels and help of a metric family; `filled` makes the prometheus-client family. `Families`
declares the families of one subject, for example of controllers. `Numbers` and `Labelled` keep the values. `Ended`
limits how many ended controllers, watches, elections and webhooks keep their series.

`series` declares its families once; each scrape makes new prometheus-client families. prometheus-client's own metrics
are not used, since they take a lock and several checks for each number, and a run changes eight numbers.

`Histogram` counts values by buckets, under the lock of its owner.
"""
from __future__ import annotations

import threading
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from itertools import accumulate
from math import inf

from prometheus_client.core import CounterMetricFamily, Exemplar, GaugeMetricFamily, HistogramMetricFamily, Metric

RECONCILE_TIME = (.005, .01, .025, .05, .1, .15, .2, .25, .3, .35, .4, .45, .5, .6, .7, .8, .9, 1, 1.25, 1.5, 1.75, 2,
                  2.5, 3, 3.5, 4, 4.5, 5, 6, 7, 8, 9, 10, 15, 20, 25, 30, 40, 50, 60)
"""The buckets of `controller_runtime_reconcile_time_seconds` in controller-runtime."""

WORK_QUEUE = (1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, .1, 1, 10, 100, 1000)
"""The buckets of both durations of a work queue in client-go: powers of ten."""

RUN = tuple(sorted({*RECONCILE_TIME, *WORK_QUEUE}))
"""Both sets of buckets, so that the duration of a run is counted once for two histograms."""

REQUEST = (.005, .025, .1, .25, .5, 1, 2, 4, 8, 15, 30, 60)
"""The buckets of `rest_client_request_duration_seconds` in client-go."""

BACKOFF = (.01, .1, 1, 10, 60, 300, 1000)
"""The buckets of retry delays: from the first backoff delay of a key, 5 ms, to the longest, 1000 s."""


class Histogram:
    """Counts values by buckets. `bounds` are inclusive upper bounds in ascending order; larger values are counted,
    too."""

    __slots__ = ("bounds", "counts", "examples", "total")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0
        self.examples: dict[int, tuple[str, float]] = {}
        """By bucket: the trace and the value of the last traced value in the bucket."""

    def add(self, value: float, trace_id: str = "") -> None:
        """Count a value. `trace_id`: the value's trace, if the trace is sampled."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value
        if trace_id:
            self.show(value, trace_id)

    def add_all(self, values: list[float]) -> None:
        """Like `add` for each value, but in a tenth of the time if there are many."""
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
        """Use a counted value as the exemplar of its bucket."""
        self.examples[bisect_left(self.bounds, value)] = trace_id, value

    def copy(self) -> Histogram:
        """A copy, for use outside the owner's lock."""
        found = Histogram(self.bounds)
        found.counts, found.total, found.examples = self.counts.copy(), self.total, self.examples.copy()
        return found

    def buckets(self, bounds: tuple[float, ...]) -> list[tuple[str, float, tuple[str, float] | None]]:
        """For each of `bounds`: the bound, the cumulative count, and the trace and value of an exemplar, if any."""
        counts = dict(zip((*self.bounds, inf), accumulate(self.counts), strict=True))
        examples: dict[float, tuple[str, float]] = {}
        for example in self.examples.values():
            shown = bisect_left(bounds, example[1])
            examples[bounds[shown] if shown < len(bounds) else inf] = example
        return [("+Inf" if bound == inf else str(float(bound)), float(counts[bound]), examples.get(bound))
                for bound in (*bounds, inf)]


Row = tuple[tuple[str, ...], float | Histogram]
"""The values of the labels, and the value of the series."""


class Kind(StrEnum):
    """The Prometheus metric types that this library uses."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True, eq=False)  # instances are dict keys, compared by identity
class Family:
    """The metadata of all series with one name. The `name` of a counter ends in `_total`."""

    kind: Kind
    name: str
    labels: tuple[str, ...]
    help: str
    bounds: tuple[float, ...] = ()
    """The bounds of a histogram's exported buckets, a subset of the bounds that `Histogram` counts."""

    def filled(self, rows: Iterable[Row] = ()) -> Metric:
        """The prometheus-client family with these series."""
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
    """A bucket for `add_metric`. Exemplars are exported if a scraper requests OpenMetrics."""
    return (bound, count) if example is None else (bound, count, Exemplar({"trace_id": example[0]}, example[1]))


class Families(list[Family]):
    """The families of one subject. `labels` are the names of the labels, separated by blanks; `text` is the help."""

    def counter(self, name: str, labels: str, text: str) -> Family:
        """Declare a family of counters."""
        return self._add(Family(Kind.COUNTER, name, tuple(labels.split()), text))

    def gauge(self, name: str, labels: str, text: str) -> Family:
        """Declare a family of gauges."""
        return self._add(Family(Kind.GAUGE, name, tuple(labels.split()), text))

    def histogram(self, name: str, labels: str, bounds: tuple[float, ...], text: str) -> Family:
        """Declare a family of histograms."""
        return self._add(Family(Kind.HISTOGRAM, name, tuple(labels.split()), text, bounds))

    def _add(self, family: Family) -> Family:
        self.append(family)
        return family


class Numbers:
    """The counters and gauges of one controller or watch, all 0 at first. Safe to use from any thread. Access `numbers`
    only under `lock`."""

    def __init__(self, families: Families) -> None:
        self.lock = threading.Lock()
        self.numbers: dict[Family, float] = {family: 0 for family in families if family.kind is not Kind.HISTOGRAM}

    def add(self, family: Family, number: float = 1) -> None:
        """Add to the number of `family`."""
        with self.lock:
            self.numbers[family] += number

    def set(self, family: Family, number: float) -> None:
        """Set the number of `family`."""
        with self.lock:
            self.numbers[family] = number


class Labelled:
    """Series whose labels are known only when an event occurs. Safe to use from any thread."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self._counts: dict[Family, dict[tuple[str, ...], float]] = defaultdict(lambda: defaultdict(float))
        self._spreads: dict[Family, dict[tuple[str, ...], Histogram]] = defaultdict(dict)

    def count(self, family: Family, *labels: str) -> None:
        """Add 1 to the series of `family` with these labels."""
        with self.lock:
            self._counts[family][labels] += 1

    def set(self, family: Family, *labels: str, to: float) -> None:
        """Set the series of `family` with these labels to the number `to`."""
        with self.lock:
            self._counts[family][labels] = to

    def forget(self, family: Family, *labels: str) -> None:
        """Stop exporting the series of `family` with these labels."""
        with self.lock:
            self._counts[family].pop(labels, None)

    def observe(self, family: Family, *labels: str, value: float, trace_id: str = "") -> None:
        """Add a value to the histogram of `family` with these labels; `trace_id`: see `Histogram.add`."""
        with self.lock:
            spreads = self._spreads[family]
            if labels not in spreads:
                spreads[labels] = Histogram(family.bounds)
            spreads[labels].add(value, trace_id)

    def values(self) -> Iterator[tuple[Family, Row]]:
        """All series with their current values."""
        with self.lock:
            found: list[tuple[Family, Row]] = [(family, row) for family, rows in self._counts.items()
                                               for row in rows.items()]
            found += [(family, (labels, spread.copy())) for family, rows in self._spreads.items()
                      for labels, spread in rows.items()]
        yield from found


KEPT = 4
"""How many ended controllers keep their series; likewise watches, elections and webhooks. So their last values can be
scraped, and their counts continue after a restart."""


class Ended:
    """The ended controllers, watches, elections and webhooks, oldest first. Safe to use from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._names: dict[str, None] = {}

    def add(self, name: str) -> str | None:
        """Record that `name` has ended. Returns the name whose series the caller must forget; None if there is none."""
        with self._lock:
            self._names.pop(name, None)
            self._names[name] = None
            return None if len(self._names) <= KEPT else self._take_first()

    def discard(self, name: str) -> None:
        """Record that `name` is in use again."""
        if name in self._names:
            with self._lock:
                self._names.pop(name, None)

    def renew(self) -> None:
        """Make a new lock in a forked child process, where a thread of the parent may have held the old one."""
        self._lock = threading.Lock()

    def _take_first(self) -> str:
        first = next(iter(self._names))
        del self._names[first]
        return first
