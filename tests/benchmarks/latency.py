"""From a line on the wire to the reconciler, of a controller that has nothing else to do. Prints one JSON line.

    python tests/benchmarks/latency.py [ROUNDS] [EVENTS] [OBJECTS]     default 5 500 200

A server in a process of its own sends one change every 10 ms, which holds the time of its sending; what is told is the
time from then until the reconciler's first line, in milliseconds. Of each figure it is the smallest of the rounds: the
others say more about what else the machine did.
"""
from __future__ import annotations

import json
import sys
import threading
import time
from pathlib import Path
from statistics import median, quantiles

sys.path.insert(0, str(Path(__file__).parent))
from canned_server import SENT  # a script's neighbour, not a package
from firehose import canned_process

from kubectl_runtime import Action, Api, Client, Config, Context, Controller
from kubectl_runtime.resources import Pod

PAUSE = 0.01


def measure(events: int, objects: int) -> tuple[float, float]:
    """Median and 99th percentile of one round, in seconds."""
    took: list[float] = []
    done, initial = threading.Event(), threading.Semaphore(0)

    def reconcile(obj: Pod, ctx: Context[None]) -> Action:
        now = time.monotonic()  # the same clock in every process of the machine
        sent = obj.annotations.get(SENT)
        if sent is None:
            initial.release()
        else:
            took.append(now - float(sent))
            if len(took) == events:
                done.set()
        return Action.await_change()

    with canned_process(objects, 0) as (url, tell), Client(Config(cluster_url=url)) as client:
        with Controller(Api.all(client, Pod)).start(reconcile) as running:
            running.wait_until_ready(60)
            for _ in range(objects):
                initial.acquire(timeout=60)
            time.sleep(0.2)
            tell(f"drip {events} {PAUSE}")
            if not done.wait(60 + 2 * events * PAUSE):
                raise SystemExit(f"{len(took)} of {events} changes were reconciled")
    return median(took), quantiles(took, n=100)[98]


def main(rounds: int = 5, events: int = 500, objects: int = 200) -> None:
    results = [measure(events, objects) for _ in range(rounds)]
    medians, late = ([round(1000 * result[which], 3) for result in results] for which in (0, 1))
    print(json.dumps({"benchmark": "latency", "events": events, "median_ms": min(medians), "p99_ms": min(late),
                      "medians_ms": medians, "p99s_ms": late}), flush=True)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
