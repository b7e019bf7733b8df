"""An outage with real threads: every key fails, then the dependency is back. Prints one JSON line.

    python -m tests.benchmarks.outage [KEYS] [SECONDS]     default 5000 20

The cluster is one in memory, the failures are what a reconciler raises. Told are: how many retries began in the second
that had most of them, after the burst (first second); how soon all keys were well again; and how many lines were
logged until then at INFO.
"""
from __future__ import annotations

import json
import logging
import sys
import threading
import time
from collections import Counter
from typing import Any

from kubectl_runtime import Action, Context, Controller, TransportError
from tests.runtime.scripted_cluster import Cluster, Parent


class Lines(logging.Handler):
    """Counts them."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def emit(self, _record: logging.LogRecord) -> None:
        self.count += 1


def main(keys: int = 5000, seconds: float = 20.0) -> None:
    logger, lines = logging.getLogger("kubectl_runtime"), Lines()
    logger.setLevel(logging.INFO)
    logger.addHandler(lines)
    logger.propagate = False
    cluster = Cluster(blocking=True)
    for number in range(keys):
        cluster.put(Parent, f"p-{number}")
    cluster.history.clear()  # all of it is in the list
    up, all_good = threading.Event(), threading.Event()
    seen: set[str] = set()
    good: set[str] = set()
    retried: list[float] = []

    def reconcile(obj: Parent, ctx: Context[Any]) -> Action:
        if obj.name in seen:
            retried.append(time.monotonic())
        seen.add(obj.name)
        if not up.is_set():
            raise TransportError("post example.com: cannot connect to example.com:443 (refused)")
        good.add(obj.name)
        if len(good) == keys:
            all_good.set()
        return Action.await_change()

    with Controller(cluster.api(Parent), name="outage").start(reconcile) as running:
        running.wait_until_ready(60)
        while len(seen) < keys:
            threading.Event().wait(0.01)
        down = time.monotonic()
        up.wait(seconds)
        during = lines.count
        back = time.monotonic()
        up.set()
        all_good.wait(120)
        took = time.monotonic() - back
    per_second = Counter(int(at - down) for at in retried if down + 1 <= at < back - 1)
    print(json.dumps({
        "benchmark": "outage", "keys": keys, "seconds_down": seconds,
        "most_retries_a_second": max(per_second.values(), default=0), "converged": len(good) == keys,
        "converged_in_s": round(took, 2), "lines_while_down": during, "lines_in_all": lines.count}), flush=True)


if __name__ == "__main__":
    main(*(int(argument) for argument in sys.argv[1:]))
