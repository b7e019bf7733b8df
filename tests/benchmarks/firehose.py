"""A whole controller with a no-op reconciler under a firehose of events. Prints one JSON line.

    python tests/benchmarks/firehose.py [OBJECTS] [EVENTS]     default 20000 50000; starts its own canned server

`events_per_s` is EVENTS divided by the time from the complete list until every object was reconciled in its last
version. Compare only figures of one run on one machine.
"""
from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from canned_server import last_versions  # a script's neighbour, not a package

from kubectl_runtime import Action, Api, Client, Config, Context, Controller, Observer
from kubectl_runtime.core.base.observer import NO_OBSERVER
from kubectl_runtime.resources import Pod


def resident_mib() -> float:
    with open("/proc/self/statm", encoding="ascii") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGESIZE") / 2**20


class Seen:
    """Which objects have not been reconciled in their last version yet."""

    def __init__(self, objects: int, events: int) -> None:
        self.last = last_versions(objects, events)
        self.left = set(self.last)
        self.reconciles = 0
        self.done = threading.Event()
        self.lock = threading.Lock()

    def reconcile(self, obj: Pod, ctx: Context[None]) -> Action:
        name = obj.name
        assert name is not None
        with self.lock:
            self.reconciles += 1
            if obj.resource_version == self.last[name]:
                self.left.discard(name)
                if not self.left:
                    self.done.set()
        return Action.await_change()


def measure(url: str, objects: int, events: int, observer: Observer = NO_OBSERVER) -> dict[str, object]:
    seen = Seen(objects, events)
    with Client(Config(cluster_url=url), observer=observer) as client:
        before, begun = resident_mib(), time.perf_counter()
        with Controller(Api.all(client, Pod)).start(seen.reconcile) as running:
            running.wait_until_ready(120)
            listed, cpu = time.perf_counter(), time.process_time()
            complete = seen.done.wait(300)
            ended, cpu = time.perf_counter(), time.process_time() - cpu
            return {"benchmark": "firehose", "complete": complete, "objects": len(running.store), "events": events,
                    "list_per_s": round(objects / (listed - begun)), "events_per_s": round(events / (ended - listed)),
                    "cpu_us_per_event": round(cpu / events * 1e6, 2),
                    "rss_added_mib": round(resident_mib() - before), "reconciles": seen.reconciles,
                    "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024}


@contextmanager
def canned_server(objects: int, events: int) -> Iterator[str]:
    """Its URL; a process of its own."""
    server = Path(__file__).with_name("canned_server.py")
    with subprocess.Popen([sys.executable, server, str(objects), str(events)], stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield process.stdout.readline().split()[1]
        process.communicate("")


def main(objects: int = 20_000, events: int = 50_000) -> None:
    with canned_server(objects, events) as url:
        print(json.dumps(measure(url, objects, events)), flush=True)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
