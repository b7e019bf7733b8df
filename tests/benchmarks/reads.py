"""What tracked reads cost: `python tests/benchmarks/reads.py [OBJECTS]` -> a few lines.

A server in its own process has OBJECTS ConfigMaps (10,000 by default) and as many Secrets of 20 KB. A controller of
the ConfigMaps runs in a fresh process for each line:

    none      it reads nothing, and watches no Secret
    metadata  it declares Secrets, and reads none
    300       300 objects read one Secret each
    all       each object reads one of 300 Secrets

The memory of the last two, less that of the first, is held against that of the metadata and the JSON of what is read:
1.3 times at most. Then one Secret that is read changes, and one that is not: the runs that follow are counted. The cost
of a read is that from memory, within a run.
"""
from __future__ import annotations

import ctypes
import gc
import json
import os
import subprocess
import sys
import threading
import time
from typing import Any

from kubectl_runtime import Action, Api, Client, Config, Context, Controller, Patch
from kubectl_runtime.resources import ConfigMap, Secret
from kubectl_runtime.testing import ApiServer

READ, SIZE, LIMIT, MICROSECONDS = 300, 20_000, 1.3, 15
ROUNDS = 5_000
WAIT = 5.0
"""Seconds for the runs that follow a change."""


def serve(objects: int) -> None:
    """The server, until its standard input ends."""
    import base64

    server = ApiServer()
    place = {"namespace": "default", "resourceVersion": "5"}
    content = base64.b64encode(os.urandom(SIZE * 3 // 4)).decode()
    server.implant([{"apiVersion": "v1", "kind": "Secret", "type": "Opaque", "data": {"x": content},
                     "metadata": {**place, "name": f"s-{at}", "uid": f"secret-{at}"}} for at in range(objects)])
    server.implant([{"apiVersion": "v1", "kind": "ConfigMap", "data": {"at": str(at)},
                     "metadata": {**place, "name": f"c-{at}", "uid": f"map-{at}"}} for at in range(objects)])
    with server:
        print(server.url, flush=True)
        sys.stdin.read()


def resident() -> int:
    """Bytes of memory, without what the allocator keeps for later."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    with open("/proc/self/statm", encoding="ascii") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGESIZE")


def measure(url: str, objects: int, mode: str) -> dict[str, Any]:
    """One controller, until each of its objects has run, and what it costs."""
    runs: list[str] = []
    done, costs = threading.Event(), list[float]()

    def reconcile(obj: ConfigMap, ctx: Context[None]) -> Action:
        at = int(obj.data["at"])
        if mode == "all" or (mode == "300" and at < READ):
            name = f"s-{at % READ}"
            assert ctx.read(Secret, name) is not None
            if costs_wanted.is_set():
                costs_wanted.clear()
                began = time.thread_time()
                for _ in range(ROUNDS):
                    ctx.read(Secret, name)
                costs.append((time.thread_time() - began) / ROUNDS * 1e6)
        runs.append(obj.name)
        if len(runs) == objects:
            done.set()
        return Action.await_change()

    costs_wanted = threading.Event()
    with Client(Config(cluster_url=url)) as client:
        controller = Controller(Api.namespaced(client, ConfigMap, "default"), concurrency=4)
        if mode != "none":
            controller.reads(Secret)
        with controller.start(reconcile) as running:
            assert done.wait(600)
            time.sleep(1)
            size = resident()
            read = sum(len(record.raw) for source in running.assembly.reads.sources.all()
                       for record in source.shelf.contents.values())
            found: dict[str, Any] = {"mode": mode, "bytes": size, "read": read}
            if mode in ("300", "all"):
                secrets = Api.namespaced(client, Secret, "default")
                for what, name in (("changed", "s-7"), ("unread", f"s-{objects - 1}")):
                    runs.clear()
                    secrets.patch(name, Patch.merge({"stringData": {"y": f"{what} for {mode}"}}))
                    time.sleep(WAIT)
                    found[what] = len(runs)
                costs_wanted.set()
                running.trigger(Api.namespaced(client, ConfigMap, "default").get("c-7"))
                time.sleep(WAIT)
                found["cost"] = costs[0]
    return found


def main(objects: int) -> int:
    """Measure, print, and say by the exit status whether the limits hold."""
    command = [sys.executable, __file__]
    with subprocess.Popen([*command, "serve", str(objects)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                          text=True) as server:
        assert server.stdout is not None
        assert server.stdin is not None
        url = server.stdout.readline().strip()
        results = {}
        for mode in ("none", "metadata", "300", "all"):
            answer = subprocess.run([*command, "measure", url, str(objects), mode], capture_output=True, text=True,
                                    check=True)
            results[mode] = json.loads(answer.stdout)
        server.stdin.close()
    none, metadata, good = results["none"]["bytes"], results["metadata"]["bytes"], True
    print(f"{objects:,} Secrets of {SIZE / 1000:g} kB: metadata {(metadata - none) / 2**20:.1f} MiB")
    for mode in ("300", "all"):
        one = results[mode]
        expected = metadata - none + one["read"]
        ratio = (one["bytes"] - none) / expected
        triggered = 1 if mode == "300" else sum(at % READ == 7 for at in range(objects))
        right = one["cost"] < MICROSECONDS and (one["changed"], one["unread"]) == (triggered, 0)
        good = good and right and ratio <= LIMIT
        print(f"{mode:>4} objects read: {(one['bytes'] - none) / 2**20:.1f} MiB, {ratio:.2f} times the metadata and "
              f"the {one['read'] / 2**20:.1f} MiB read; a change runs {one['changed']} of {triggered}, one of another "
              f"Secret {one['unread']}; {one['cost']:.1f} µs a read")
    return 0 if good else 1


if __name__ == "__main__":
    if sys.argv[1:2] == ["serve"]:
        serve(int(sys.argv[2]))
    elif sys.argv[1:2] == ["measure"]:
        print(json.dumps(measure(sys.argv[2], int(sys.argv[3]), sys.argv[4])))
    else:
        sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 10_000))
