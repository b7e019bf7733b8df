"""A reconciler of 1 ms of pure Python, with one worker and with two: what a second core brings. Prints one JSON line.

    python tests/benchmarks/cores.py [OBJECTS] [ROUNDS]     default 1000 5; for Pythons with the GIL and without

A round runs each object once with one worker and once with two, in turns; `runs_per_s` are the medians, `times` the
median of how often the first goes into the second of the same round, `best_times` that of the quickest of each. 1 ms is
that of one worker on a quiet machine: the work is measured at the start and is the same for all rounds.
"""
from __future__ import annotations

import json
import os
import sys
import threading
import time
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).parent))
from firehose import canned_server  # a script's neighbour, not a package

from kubectl_runtime import Action, Api, Client, Config, Context, Controller
from kubectl_runtime.resources import Pod


def work(steps: int) -> int:
    """Pure Python that shares nothing with other threads."""
    total = 0
    for number in range(steps):
        total += number * number % 7
    return total


def steps_of_a_millisecond() -> int:
    """How many steps `work` does in 1 ms of CPU, at best."""
    best = float("inf")
    for _ in range(20):
        begun = time.thread_time()
        work(100_000)
        best = min(best, time.thread_time() - begun)
    return round(100_000 * 0.001 / best)


def runs_per_s(client: Client, objects: int, workers: int, steps: int) -> float:
    """From the first run to the end of the last."""
    lock, done = threading.Lock(), threading.Event()
    begun, left = 0.0, objects

    def reconcile(obj: Pod, ctx: Context[None]) -> Action:
        nonlocal begun, left
        with lock:
            begun = begun or time.perf_counter()
        work(steps)
        with lock:
            left -= 1
            if not left:
                done.set()
        return Action.await_change()

    with Controller(Api.all(client, Pod), concurrency=workers).start(reconcile):
        done.wait(300)
        return objects / (time.perf_counter() - begun)


def main(objects: int = 1000, rounds: int = 5) -> None:
    steps = steps_of_a_millisecond()
    results: dict[int, list[float]] = {1: [], 2: []}
    with canned_server(objects, 0) as url, Client(Config(cluster_url=url)) as client:
        runs_per_s(client, objects, 2, 1)  # imports
        for _ in range(rounds):
            for workers, found in results.items():
                found.append(runs_per_s(client, objects, workers, steps))
    print(json.dumps({
        "benchmark": "cores", "gil": getattr(sys, "_is_gil_enabled", lambda: True)(), "cores": os.cpu_count(),
        "objects": objects, "rounds": rounds, "steps": steps,
        "runs_per_s": {str(workers): round(median(found)) for workers, found in results.items()},
        "times": round(median(two / one for one, two in zip(results[1], results[2], strict=True)), 2),
        "best_times": round(max(results[2]) / max(results[1]), 2)}), flush=True)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
