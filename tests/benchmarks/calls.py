"""Calls per second, one thread, a list of one Pod over loopback: `python tests/benchmarks/calls.py` -> one JSON line.

Against the canned server in a process of its own, in turns with lightkube and the official client where they are
installed. `per_s`: the median round by the wall clock. `cpu_us`: the cheapest round, which says more on a machine that
has something else to do. `times`: how often ours goes into theirs, by the wall clock and by CPU time. Figures of one
run on one machine compare, no others.
"""
from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kubectl_runtime import Api, Client, Config, ListParams
from kubectl_runtime.resources import Pod

CALLS, ROUNDS = 300, 9


def ours(url: str) -> Callable[[], object]:
    api = Api.all(Client(Config(cluster_url=url)), Pod)
    return lambda: api.list(ListParams(limit=1)).items[0].metadata.name


def lightkube_client(url: str) -> Any:
    from lightkube import Client as Other
    from lightkube.config.kubeconfig import KubeConfig

    return Other(config=KubeConfig.from_dict({
        "clusters": [{"name": "c", "cluster": {"server": url}}], "users": [{"name": "u", "user": {}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}], "current-context": "x"}))


def lightkube(url: str) -> Callable[[], object]:
    from lightkube.resources.core_v1 import Pod as OtherPod

    client = lightkube_client(url)
    return lambda: next(iter(client.list(OtherPod, namespace="*", chunk_size=1))).metadata.name


def official(url: str) -> Callable[[], object]:
    import kubernetes

    configuration = kubernetes.client.Configuration(host=url)
    core = kubernetes.client.CoreV1Api(kubernetes.client.ApiClient(configuration))
    return lambda: core.list_pod_for_all_namespaces(limit=1).items[0].metadata.name


def one_round(call: Callable[[], object]) -> tuple[float, float]:
    """Seconds a call, by the wall clock and of CPU."""
    wall, cpu = time.perf_counter(), time.process_time()
    for _ in range(CALLS):
        call()
    return (time.perf_counter() - wall) / CALLS, (time.process_time() - cpu) / CALLS


def measure(url: str) -> dict[str, object]:
    callers: dict[str, Callable[[], object]] = {}
    for make in (ours, lightkube, official):
        try:
            callers[make.__name__] = make(url)
        except ImportError:
            continue
    for call in callers.values():
        one_round(call)
    rounds: dict[str, list[tuple[float, float]]] = {who: [] for who in callers}
    for _ in range(ROUNDS):
        for who, call in callers.items():
            rounds[who].append(one_round(call))
    wall = {who: statistics.median(wall for wall, _ in found) for who, found in rounds.items()}
    cpu = {who: min(cpu for _, cpu in found) for who, found in rounds.items()}
    return {
        "per_s": {who: round(1 / seconds) for who, seconds in wall.items()},
        "cpu_us": {who: round(1e6 * seconds) for who, seconds in cpu.items()},
        "times": {who: [round(wall[who] / wall["ours"], 2), round(cpu[who] / cpu["ours"], 2)] for who in callers},
    }


def main() -> None:
    server = subprocess.Popen([sys.executable, Path(__file__).with_name("canned_server.py"), "50", "0"],
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert server.stdin is not None
    assert server.stdout is not None
    try:
        print(json.dumps(measure(server.stdout.readline().split()[-1])))
    finally:
        server.stdin.close()
        server.wait(10)


if __name__ == "__main__":
    main()
