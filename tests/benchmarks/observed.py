"""What it costs to be watched: the firehose with `Metrics` and a scrape each second, against the firehose alone.

    python tests/benchmarks/observed.py [ROUNDS] [OBJECTS] [EVENTS]     default 9 20000 50000

Both are measured in turn, in one process, so that what else the machine does meets both alike; each round's order is
turned around. Prints one JSON line: the medians of CPU per event, events a second and runs a second, and by how much
the first two differ: the median of what each round's pair differs by, since the machine is another one an hour later.
"""
from __future__ import annotations

import json
import sys
import threading
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).parent))
from firehose import canned_server, measure  # a script's neighbour, not a package
from prometheus_client import CollectorRegistry, generate_latest

from kubectl_runtime import Metrics


def observed(url: str, objects: int, events: int) -> dict[str, object]:
    metrics, done = Metrics(CollectorRegistry()), threading.Event()

    def scrape() -> None:
        while not done.wait(1):
            generate_latest(metrics.registry)

    thread = threading.Thread(target=scrape, name="scraper")
    thread.start()
    try:
        return measure(url, objects, events, metrics)
    finally:
        done.set()
        thread.join()


def main(rounds: int = 9, objects: int = 20_000, events: int = 50_000) -> None:
    alone: list[dict[str, object]] = []
    watched: list[dict[str, object]] = []
    for number in range(rounds):
        both = [(alone, measure), (watched, observed)]
        for results, measured in both if number % 2 else reversed(both):
            with canned_server(objects, events) as url:  # what it has sent it does not send again
                results.append(measured(url, objects, events))

    def middle(results: list[dict[str, object]], name: str) -> float:
        return median(float(str(result[name])) for result in results)

    def ratio(name: str) -> float:
        return median(float(str(with_it[name])) / float(str(without[name]))
                      for with_it, without in zip(watched, alone, strict=True))

    cpu, rate = "cpu_us_per_event", "events_per_s"
    print(json.dumps({
        "benchmark": "observed", "rounds": rounds, "complete": all(one["complete"] for one in alone + watched),
        "cpu_us_alone": middle(alone, cpu), "cpu_us_observed": middle(watched, cpu),
        "cpu_added_percent": round(100 * (ratio(cpu) - 1), 1),
        "rate_alone": middle(alone, rate), "rate_observed": middle(watched, rate),
        "runs_alone": middle(alone, "runs_per_s"), "runs_observed": middle(watched, "runs_per_s"),
        "rate_lost_percent": round(100 * (1 - ratio(rate)), 1)}), flush=True)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
