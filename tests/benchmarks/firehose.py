"""A whole controller with a no-op reconciler under a firehose of events. Prints one JSON line.

    python tests/benchmarks/firehose.py [OBJECTS] [EVENTS] [READS]     default 20000 50000 nothing

    READS      what the reconciler does
    nothing    looks at name and version
    spec       reads `spec` of every object that it gets, with all its parts
    declared   reads `spec` of a class of its own, which names the one field that it needs
    fields     gets frozen views of three fields, which is all that is kept (`WatcherConfig(fields=...)`)

`events_per_s` is EVENTS divided by the time from the complete list until every object was reconciled in its last
version; `runs_per_s` counts the runs in that time, which are fewer: changes of one object that come while it waits to
run merge. It starts its own canned server. Compare only figures of one run on one machine.
"""
from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

sys.path.insert(0, str(Path(__file__).parent))
from canned_server import last_versions  # a script's neighbour, not a package

from kubectl_runtime import Action, Api, Client, Config, Context, Controller, Resource, WatcherConfig
from kubectl_runtime.core.base.observer import NO_OBSERVER
from kubectl_runtime.objects import PartialView
from kubectl_runtime.observe import Observer
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

    def read_spec(self, obj: Pod | Placed, ctx: Context[None]) -> Action:
        assert obj.spec is not None
        return self.reconcile(obj, ctx)

    def reconcile(self, obj: Pod | Placed, ctx: Context[None]) -> Action:
        name = obj.name
        assert name is not None
        with self.lock:
            self.reconciles += 1
            if obj.resource_version == self.last[name]:
                self.left.discard(name)
                if not self.left:
                    self.done.set()
        return Action.await_change()


class Where(msgspec.Struct, frozen=True, rename="camel"):
    node_name: str = ""


class Placed(Resource, version="v1", kind="Pod", plural="pods"):
    """A Pod, as far as its node goes."""

    spec: Where | None = None


class How(msgspec.Struct, frozen=True, rename="camel"):
    phase: str = ""
    pod_ip: str = ""


class ThreeFields(PartialView, frozen=True):
    """What a program that looks after Pods may want to know."""

    spec: Where | None = None
    status: How | None = None


def measure(url: str, objects: int, events: int, observer: Observer = NO_OBSERVER,
            reads: str = "nothing") -> dict[str, object]:
    seen = Seen(objects, events)
    kind = Placed if reads == "declared" else Pod
    reconcile = seen.read_spec if reads in ("spec", "declared") else seen.reconcile
    watch = WatcherConfig(fields=ThreeFields) if reads == "fields" else WatcherConfig()
    import kubectl_runtime.client.wire.carrier  # noqa: F401 - as the first call does; no Pod adds these 10 MiB

    with Client(Config(cluster_url=url), observer=observer) as client:
        before, begun = resident_mib(), time.perf_counter()
        with Controller(Api.all(client, kind), watch=watch).start(reconcile) as running:
            running.wait_until_ready(120)
            listed, cpu = time.perf_counter(), time.process_time()
            complete = seen.done.wait(300)
            ended, cpu = time.perf_counter(), time.process_time() - cpu
            return {"benchmark": "firehose", "reads": reads, "complete": complete, "objects": len(running.store),
                    "events": events,
                    "list_per_s": round(objects / (listed - begun)), "events_per_s": round(events / (ended - listed)),
                    "cpu_us_per_event": round(cpu / events * 1e6, 2),
                    "rss_added_mib": round(resident_mib() - before), "reconciles": seen.reconciles,
                    "runs_per_s": round(seen.reconciles / (ended - listed)),
                    "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024}


@contextmanager
def canned_process(objects: int, events: int, containers: int = 2) -> Iterator[tuple[str, Callable[[str], None]]]:
    """A canned server in a process of its own: its URL, and what tells it a line."""
    server, sizes = Path(__file__).with_name("canned_server.py"), (objects, events, 0, containers)
    with subprocess.Popen([sys.executable, server, *map(str, sizes)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                          text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        told = process.stdin

        def tell(line: str) -> None:
            told.write(f"{line}\n")
            told.flush()

        yield process.stdout.readline().split()[1], tell
        process.communicate("")


@contextmanager
def canned_server(objects: int, events: int) -> Iterator[str]:
    """The URL of one that nothing has to be told."""
    with canned_process(objects, events) as (url, _):
        yield url


def main(objects: int = 20_000, events: int = 50_000, reads: str = "nothing") -> None:
    with canned_server(objects, events) as url:
        print(json.dumps(measure(url, objects, events, reads=reads)), flush=True)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:3]), *sys.argv[3:])
