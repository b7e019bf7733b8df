"""A big cluster: many objects listed into a store, listed again beside live reads, and all changed. One JSON line.

    python tests/benchmarks/large.py [OBJECTS]     default 200000, of 3.5 KB; for Linux; about 1.2 GiB

figure                 what it is                                                                             promise
list_s                 from the start of a store to its complete list                                         60
times_the_bytes        the most memory that this added, as a multiple of the objects' bytes                   1.6
relist.read_ms         a second list beside a thread that reads, as a program does: how long a `get`          p99 10,
                       takes, with a wait of 1 ms before each that may last longer, which counts as well      worst 50
relist.times           the most memory during that list, as a multiple of the memory before                   (1.3)
change_s               from the first change until a controller with a reconciler that does nothing has       60
                       reconciled each object in its new version; `change_runs`: its runs in that time

The server is a process of its own. `read_ms_before` is the same thread while nothing else happens: what the machine
itself adds.
"""
from __future__ import annotations

import json
import random
import sys
import threading
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
from canned_server import FIRST_VERSION, pod_name  # a script's neighbour, not a package
from firehose import canned_process, resident_mib
from relist import peak_mib, reset_peak

from kubectl_runtime import Action, Api, Client, Config, Context, Controller, watch_store
from kubectl_runtime.resources import Pod

PATIENCE = 600.0
PAUSE = 0.001


class Reads:
    """A thread that reads random objects; in a `with` block."""

    def __init__(self, store: Any, objects: int) -> None:
        self._store, self._objects = store, objects
        self._took: list[float] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._read, name="reader")

    def _read(self) -> None:
        drawn = random.Random(1)
        while not self._over.is_set():
            begun = time.perf_counter()
            time.sleep(PAUSE)
            assert self._store.get(pod_name(drawn.randrange(self._objects)), "default") is not None
            self._took.append(time.perf_counter() - begun - PAUSE)

    def __enter__(self) -> Reads:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def figures(self) -> dict[str, float]:
        took = sorted(self._took)
        return {"reads": len(took), **{name: round(1000 * took[min(len(took) - 1, int(share * len(took)))], 2)
                                       for name, share in (("p50", 0.5), ("p99", 0.99), ("worst", 1.0))}}


class Changed:
    """A reconciler that does nothing, and how many objects it has seen in a version of the change."""

    def __init__(self, objects: int) -> None:
        self._first, self._left = FIRST_VERSION + objects, objects
        self.runs = 0
        self.initial, self.done = threading.Event(), threading.Event()
        self._objects, self._lock = objects, threading.Lock()

    def reconcile(self, obj: Pod, ctx: Context[None]) -> Action:
        new = int(obj.resource_version) > self._first
        with self._lock:
            self.runs += 1
            self._left -= new
            if self.runs == self._objects:
                self.initial.set()
            if not self._left:
                self.done.set()
        return Action.await_change()


def main(objects: int = 200_000) -> None:
    found: dict[str, Any] = {"benchmark": "large", "objects": objects}
    import kubectl_runtime.client.wire.carrier  # noqa: F401 - as the first call does; no object adds these 10 MiB

    with canned_process(objects, 0, 1) as (url, tell), Client(Config(cluster_url=url)) as client:
        pods = Api.all(client, Pod)
        before, begun = resident_mib(), time.perf_counter()
        with watch_store(pods) as store:
            reset_peak()
            store.wait_until_ready(PATIENCE)
            found["list_s"] = round(time.perf_counter() - begun, 2)
            mib = store.size.bytes / 2**20
            found["mib"], found["peak_mib"] = round(mib), round(peak_mib() - before)
            found["times_the_bytes"] = round((peak_mib() - before) / mib, 3)
            with Reads(store, objects) as reads:
                time.sleep(5)
            found["read_ms_before"] = reads.figures()
            level, begun = resident_mib(), time.perf_counter()
            reset_peak()
            with Reads(store, objects) as reads:
                tell("expire")
                while store.watch_state.relists < 1:
                    time.sleep(0.01)
                took = time.perf_counter() - begun
                time.sleep(1)
            found["relist"] = {"seconds": round(took, 2), "times": round(peak_mib() / level, 3),
                               "read_ms": reads.figures()}
            changed = Changed(objects)
            with Controller(pods).start(changed.reconcile):
                complete = changed.initial.wait(PATIENCE)
                time.sleep(1)
                runs, begun = changed.runs, time.perf_counter()
                tell("change")
                found["complete"] = changed.done.wait(PATIENCE) and complete
                found["change_s"] = round(time.perf_counter() - begun, 2)
                found["change_runs"] = changed.runs - runs
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
