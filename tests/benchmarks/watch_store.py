"""A watch into a store, without subscriptions: `python tests/benchmarks/watch_store.py URL OBJECTS EVENTS` -> one JSON
line.

URL is that of a server which lists OBJECTS pods at version 1000 + OBJECTS and then sends EVENTS changes, one version
each; it should be faster than any client, so that what is timed is this library. Figures of one run on one machine
compare, no others.
"""
from __future__ import annotations

import json
import os
import resource
import sys
import time

from kubectl_runtime.client.api.api import Api
from kubectl_runtime.client.api.client import Client
from kubectl_runtime.client.config.config import Config
from kubectl_runtime.core.scope import StopToken
from kubectl_runtime.resources import Pod
from kubectl_runtime.runtime.triggers.shared_watches import Watch
from kubectl_runtime.runtime.watch.machine import Watching


def resident_mib() -> float:
    with open("/proc/self/statm", encoding="ascii") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGESIZE") / 2**20


def main(url: str, objects: int, events: int) -> None:
    stop = StopToken()
    before, begun = resident_mib(), time.perf_counter()
    with Client(Config(cluster_url=url)) as client:
        watch: Watch[Pod] = Watch(Api.all(client, Pod), stop=stop)
        while not watch.store.is_ready:
            watch.step()
        listed = time.perf_counter()
        last = str(1000 + objects + events)
        while not (isinstance(watch._driver.state, Watching) and watch._driver.state.version == last):
            watch.step()
        ended = time.perf_counter()
        stop.set("done")
        watch.step()
    print(json.dumps({
        "what": "watch into a store", "objects": len(watch.store), "list_per_s": round(objects / (listed - begun)),
        "events_per_s": round(events / (ended - listed)), "rss_added_mib": round(resident_mib() - before),
        "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
