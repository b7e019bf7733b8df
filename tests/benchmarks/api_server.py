"""The embedded API server under load; prints one JSON line.

    python tests/benchmarks/api_server.py [PODS] [WATCHES] [CHANGES]

==================  ================================================================================================
load_s, load_cpu_s  PODS Pods are loaded as manifests: elapsed, and the processor time of this process
pods_mib            what they hold
post_s              as many are created by HTTP POST, by another process over one connection
put_ms, …           one update of a Pod by that verb, without HTTP
fan_out_s           WATCHES watches, each over its own connection, follow CHANGES writes over HTTP; `complete` says
                    whether each saw every change once and in order
churn_mib           what the process holds after a half of many writes to ten objects and after all, where history is
                    compacted twice a second: it should not grow with their number
==================  ================================================================================================

The exit status is 1 if a watch missed something.
"""
from __future__ import annotations

import http.client
import json
import os
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

from kubectl_runtime.apiserver.wire import HttpRequest
from kubectl_runtime.testing import ApiServer

PODS = "/api/v1/namespaces/default/pods"
CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
CHURN = 20_000  # writes of 10 KB: 200 MB of history if none were dropped


def resident_mib() -> float:
    with open("/proc/self/statm", encoding="ascii") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGESIZE") / 2**20


def pods(count: int) -> Iterator[dict[str, Any]]:
    """Pods of a common size: two containers, some environment, a volume."""
    for number in range(count):
        container = {"image": "example/app:1",
                     "env": [{"name": f"E{key}", "value": "v" * 20} for key in range(10)],
                     "volumeMounts": [{"name": "v", "mountPath": "/x"}]}
        yield {"apiVersion": "v1", "kind": "Pod",
               "metadata": {"name": f"p{number:05}", "namespace": "default", "labels": {"app": "a"}},
               "spec": {"nodeName": "n1", "containers": [
                   {"name": name, "ports": [{"containerPort": port}], **container}
                   for name, port in (("main", 80), ("side", 81))],
                   "volumes": [{"name": "v", "emptyDir": {}}]}}


def post_pods(port: int, count: int) -> float:
    """Seconds that creating the Pods one after the other takes; their encoding is not counted."""
    bodies = [json.dumps(pod) for pod in pods(count)]
    connection = http.client.HTTPConnection("127.0.0.1", port)
    begun = time.perf_counter()
    for body in bodies:
        connection.request("POST", PODS, body, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        answer.read()
        if answer.status != 201:
            raise RuntimeError(f"a Pod was answered with {answer.status}")
    return time.perf_counter() - begun


def post_from_another_process(count: int) -> float:
    """Seconds that another process takes to create the Pods."""
    with ApiServer(record=False) as server, ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
        return process.submit(post_pods, port_of(server), count).result()


def updates(server: ApiServer, count: int) -> dict[str, float]:
    """Milliseconds of an update of a Pod by each verb, without HTTP; the Pods must be there."""
    def pod(number: int, text: str) -> dict[str, Any]:
        return {**next(pods(1)), "metadata": {"name": f"p{number:05}", "labels": {"app": text}}}

    def label(number: int, text: str) -> dict[str, Any]:
        return {"apiVersion": "v1", "kind": "Pod",
                "metadata": {"name": f"p{number:05}", "labels": {text: "yes"}}}

    kinds = {"put": ("PUT", "application/json", [], pod),
             "merge_patch": ("PATCH", "application/merge-patch+json", [], label),
             "apply": ("PATCH", "application/apply-patch+yaml", [("fieldManager", "bench")], label)}
    spent = {}
    for name, (method, media, query, body) in kinds.items():
        requests = [HttpRequest(method, f"{PODS}/p{number:05}", query, {"content-type": media},
                                json.dumps(body(number, name)).encode()) for number in range(count)]
        begun = time.perf_counter()
        answers = [server.handle(request).status for request in requests]
        spent[f"{name}_ms"] = round((time.perf_counter() - begun) / count * 1000, 2)
        if set(answers) != {200}:
            raise RuntimeError(f"{name} was answered with {set(answers)}")
    return spent


class Watcher:
    """One watch over a connection of its own; `versions` are those of its events."""

    def __init__(self, port: int, version: str, expected: int) -> None:
        self.versions: list[str] = []
        self._expected = expected
        self._connection = http.client.HTTPConnection("127.0.0.1", port)
        self._connection.request("GET", f"{CONFIG_MAPS}?watch=true&resourceVersion={version}")
        self._answer = self._connection.getresponse()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        while len(self.versions) < self._expected and (line := self._answer.readline()):
            self.versions.append(json.loads(line)["object"]["metadata"]["resourceVersion"])

    def join(self, timeout: float) -> None:
        self._thread.join(timeout)
        self._connection.close()


class Writer:
    """Writes ConfigMaps over one connection."""

    def __init__(self, port: int) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port)

    def write(self, method: str, name: str, text: str) -> str:
        """Create or replace; returns the resourceVersion."""
        path = CONFIG_MAPS if method == "POST" else f"{CONFIG_MAPS}/{name}"
        self._connection.request(method, path, json.dumps({"metadata": {"name": name}, "data": {"k": text}}),
                                 {"Content-Type": "application/json"})
        answer = self._connection.getresponse()
        version: str = json.loads(answer.read())["metadata"]["resourceVersion"]
        return version


def fan_out(port: int, version: str, watches: int, changes: int) -> tuple[float, bool]:
    """Seconds until all watches have all changes, and whether each had every change once and in order."""
    watchers = [Watcher(port, version, changes) for _ in range(watches)]
    writer = Writer(port)
    begun = time.perf_counter()
    expected = [writer.write("PUT" if number % 2 else "POST", f"c{number // 2}", str(number))
                for number in range(changes)]
    for watcher in watchers:
        watcher.join(120)
    return time.perf_counter() - begun, all(watcher.versions == expected for watcher in watchers)


def churn(writes: int) -> list[int]:
    """Rewrite ten objects; the resident MiB after a half of the writes, and after all."""
    held = []
    with ApiServer(record=False, compaction_interval=0.5) as server:
        writer = Writer(port_of(server))
        for number in range(writes):
            writer.write("POST" if number < 10 else "PUT", f"c{number % 10}", "x" * 10_000 + str(number))
            if number + 1 in (writes // 2, writes):
                held.append(round(resident_mib()))
    return held


def port_of(server: ApiServer) -> int:
    return int(server.url.rpartition(":")[2])


def main(count: int = 20_000, watches: int = 50, changes: int = 2_000) -> int:
    with ApiServer(record=False) as server:
        before, begun, used = resident_mib(), time.perf_counter(), time.process_time()
        server.load(pods(count))
        loaded, spent_on_load = time.perf_counter() - begun, time.process_time() - used
        held = resident_mib() - before
        spent = updates(server, min(count, 1_000))
        seconds, complete = fan_out(port_of(server), str(server.core.cluster.storage.rv), watches, changes)
    posted = post_from_another_process(count)
    print(json.dumps({
        "what": "embedded API server", "pods": count, "load_s": round(loaded, 2),
        "load_cpu_s": round(spent_on_load, 2), "pods_mib": round(held),
        "post_s": round(posted, 2), **spent,
        "watches": watches, "changes": changes, "fan_out_s": round(seconds, 2),
        "events_per_s": round(watches * changes / seconds), "complete": complete,
        "churn_writes": CHURN, "churn_mib": churn(CHURN)}))
    return 0 if complete else 1


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
