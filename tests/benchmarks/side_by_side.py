"""The whole pipeline against lightkube's bare watch, under the same firehose. Prints one JSON line.

    python tests/benchmarks/side_by_side.py [ROUNDS] [OBJECTS] [EVENTS]     default 5 20000 50000; needs lightkube

Each runs in a process of its own against a canned server of its own; the order turns with each round, since the machine
is another one from minute to minute. `times_…`: the median of how often lightkube's figure goes into ours of the same
round (of CPU time, the other way round, which other work on the machine disturbs least). Ours is measured until every
object was reconciled in its last version, lightkube's until its last event was read. `runs_per_s`: our runs in that
time, which are fewer than the events, since changes of one object merge.
"""
from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
from firehose import canned_server  # a script's neighbour, not a package

PEER, OURS = "lightkube", ("nothing", "spec", "declared", "fields")
"""What our reconciler reads: see `firehose.py`."""


def measured(who: str, objects: int, events: int) -> dict[str, Any]:
    """One process; what it printed."""
    sizes = [str(objects), str(events)]
    if who == PEER:
        with canned_server(objects, events) as url:
            return _printed("lightkube_watch.py", url, *sizes)
    return _printed("firehose.py", *sizes, who)


def _printed(script: str, *arguments: str) -> dict[str, Any]:
    command = [sys.executable, Path(__file__).with_name(script), *arguments]
    found: dict[str, Any] = json.loads(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout)
    return found


def main(rounds: int = 5, objects: int = 20_000, events: int = 50_000) -> None:
    names = [PEER, *OURS]
    results: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
    for number in range(rounds):
        turn = number % len(names)
        for name in names[turn:] + names[:turn]:
            results[name].append(measured(name, objects, events))

    def middle(name: str, what: str) -> float:
        return median(result[what] for result in results[name])

    def times(name: str, what: str) -> float:
        return round(median(ours[what] / theirs[what]
                            for ours, theirs in zip(results[name], results[PEER], strict=True)), 3)

    print(json.dumps({
        "benchmark": "side_by_side", "rounds": rounds, "objects": objects, "events": events,
        "complete": all(result["complete"] for found in results.values() for result in found),
        "times_the_rate": {name: times(name, "events_per_s") for name in OURS},
        "times_the_list": {name: times(name, "list_per_s") for name in OURS},
        "times_less_cpu": {name: round(1 / times(name, "cpu_us_per_event"), 2) for name in OURS},
        "events_per_s": {name: middle(name, "events_per_s") for name in names},
        "runs_per_s": {name: middle(name, "runs_per_s") for name in OURS},
        "list_per_s": {name: middle(name, "list_per_s") for name in names},
        "rss_added_mib": {name: middle(name, "rss_added_mib") for name in names}}), flush=True)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
