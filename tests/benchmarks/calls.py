"""The CPU time of a call, one thread, over loopback: `python tests/benchmarks/calls.py [--profile]` -> one JSON line.

Against the canned server in a process of its own, in turns: this library; `http.client`, which sends prepared bytes on
one connection and decodes nothing; lightkube and the official client where they are installed. `list`: one Pod of 4.6
KB and its metadata, which are 1.4 KB; `names`: the same list, and the Pod's `name`, for which nothing more is decoded;
`get`, `create` and `apply`: a ConfigMap of 500 bytes and its data; an object to send is made before.
For each verb:

    cpu_us     microseconds of CPU a call: the smallest and the median of five rounds. The smallest says more on a
               machine that has something else to do.
    times      how often `http.client`'s smallest goes into each
    per_s      calls a second by the wall clock, the median round

`--profile` instead shows where this library's CPU time goes, in microseconds a call. `stages` are differences of
smallest rounds: the verb (arguments, the request, the decoded answer), the client (deadline, layers), the wire, and of
the wire a bare `sendall` and `recv`. `files`: shares by cProfile, which makes small functions look dearer than they
are. Figures of one run on one machine compare, no others.
"""
from __future__ import annotations

import argparse
import cProfile
import json
import pstats
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from kubectl_runtime import Api, Client, Config, ListParams
from kubectl_runtime.client.http.middleware import Call
from kubectl_runtime.client.http.send import Interrupt
from kubectl_runtime.core.requests import request as build
from kubectl_runtime.core.requests.params import PatchParams
from kubectl_runtime.core.requests.request import Request
from kubectl_runtime.resources import ConfigMap, Pod

CALLS, ROUNDS = 300, 5
DATA = {"color": "blue", "size": "12"}
Calls = dict[str, Callable[[], object]]
"""A function for each verb."""


def ours(url: str) -> Calls:
    client = Client(Config(cluster_url=url))
    pods, maps = Api.all(client, Pod), Api.namespaced(client, ConfigMap, "default")
    made = ConfigMap(name="settings", data=DATA)
    return {"list": lambda: pods.list(ListParams(limit=1)).items[0].metadata.name,
            "names": lambda: pods.list(ListParams(limit=1)).items[0].name,
            "get": lambda: maps.get("settings").data,
            "create": lambda: maps.create(made).data,
            "apply": lambda: maps.apply(made, field_manager="calls").data}


def prepared() -> dict[str, Request]:
    """The requests that `ours` sends."""
    with Client(Config(cluster_url="http://a")) as client:
        pods, maps = Api.all(client, Pod).place, Api.namespaced(client, ConfigMap, "default").place
    obj = ConfigMap(name="settings", data=DATA)
    listed = build.list_(pods, ListParams(limit=1))
    return {"list": listed, "names": listed, "get": build.get(maps, "settings"),
            "create": build.create(maps, obj), "apply": build.apply(maps, obj, PatchParams(field_manager="calls"))}


def http_client(url: str) -> Calls:
    connection: Any = HTTPConnection(urlsplit(url).netloc)
    connection.connect()

    def call(ready: bytes) -> bytes:
        connection.sock.sendall(ready)
        connection._HTTPConnection__state = "Request-sent"  # `getresponse` is for requests that it has made itself
        answer: HTTPResponse = connection.getresponse()
        return answer.read()

    return {verb: partial(call, as_bytes(request, url)) for verb, request in prepared().items()}


def as_bytes(request: Request, url: str) -> bytes:
    headers = {"Host": urlsplit(url).netloc, "User-Agent": "calls", "Accept-Encoding": "gzip", **dict(request.headers)}
    body = request.body or b""
    if body:
        headers["Content-Length"] = str(len(body))
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"{request.method} {request.target} HTTP/1.1\r\n{lines}\r\n".encode() + body


def lightkube_client(url: str) -> Any:
    from lightkube import Client as Other
    from lightkube.config.kubeconfig import KubeConfig

    return Other(field_manager="calls", config=KubeConfig.from_dict({
        "clusters": [{"name": "c", "cluster": {"server": url}}], "users": [{"name": "u", "user": {}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}], "current-context": "x"}))


def lightkube(url: str) -> Calls:
    from lightkube.models.meta_v1 import ObjectMeta
    from lightkube.resources.core_v1 import ConfigMap as OtherMap
    from lightkube.resources.core_v1 import Pod as OtherPod

    client = lightkube_client(url)
    made = OtherMap(metadata=ObjectMeta(name="settings", namespace="default"), data=DATA)
    return {"list": lambda: next(iter(client.list(OtherPod, namespace="*", chunk_size=1))).metadata.name,
            "get": lambda: client.get(OtherMap, "settings", namespace="default").data,
            "create": lambda: client.create(made).data, "apply": lambda: client.apply(made).data}


def official(url: str) -> Calls:
    import kubernetes.client as other

    core = other.CoreV1Api(other.ApiClient(other.Configuration(host=url)))
    made = other.V1ConfigMap(metadata=other.V1ObjectMeta(name="settings"), data=DATA)
    return {"list": lambda: core.list_pod_for_all_namespaces(limit=1).items[0].metadata.name,
            "get": lambda: core.read_namespaced_config_map("settings", "default").data,
            "create": lambda: core.create_namespaced_config_map("default", made).data}


def one_round(call: Callable[[], object]) -> tuple[float, float]:
    """Microseconds a call, by the wall clock and of CPU."""
    wall, cpu = time.perf_counter(), time.process_time()
    for _ in range(CALLS):
        call()
    return 1e6 * (time.perf_counter() - wall) / CALLS, 1e6 * (time.process_time() - cpu) / CALLS


def in_turn(calls: Calls) -> dict[str, list[tuple[float, float]]]:
    """The rounds of each call, after one round of each that does not count."""
    for call in calls.values():
        one_round(call)
    rounds: dict[str, list[tuple[float, float]]] = {who: [] for who in calls}
    for _ in range(ROUNDS):
        for who, call in calls.items():
            rounds[who].append(one_round(call))
    return rounds


def measure(url: str) -> dict[str, object]:
    callers: dict[str, Calls] = {}
    for make in (ours, http_client, lightkube, official):
        try:
            callers[make.__name__] = make(url)
        except ImportError:
            continue
    found: dict[str, object] = {}
    for verb in callers["ours"]:
        rounds = in_turn({who: calls[verb] for who, calls in callers.items() if verb in calls})
        cpu = {who: [cpu for _, cpu in measured] for who, measured in rounds.items()}
        found[verb] = {
            "cpu_us": {who: [round(min(spent), 1), round(statistics.median(spent), 1)] for who, spent in cpu.items()},
            "times": {who: round(min(spent) / min(cpu["http_client"]), 2) for who, spent in cpu.items()},
            "per_s": {who: round(1e6 / statistics.median(wall for wall, _ in measured))
                      for who, measured in rounds.items()},
        }
    return found


def profile(url: str) -> dict[str, object]:
    return {verb: {"stages": stages(url, verb, call), "files": files(call)} for verb, call in ours(url).items()}


def stages(url: str, verb: str, whole: Callable[[], object]) -> dict[str, float]:
    client, request = Client(Config(cluster_url=url)), prepared()[verb]
    client.answer(request)
    carrier, ready = client._carriers.current(), as_bytes(request, url)
    bare = HTTPConnection(urlsplit(url).netloc)
    bare.connect()

    def wire() -> None:
        headers = {"User-Agent": "calls", "Accept-Encoding": "gzip", **dict(request.headers)}
        carrier.carry(Call(request, time.monotonic() + 60, client._carriers.closing, url=url + request.target,
                           headers=headers), 30.0, 60.0, Interrupt())

    def socket() -> None:
        bare.sock.sendall(ready)
        bare.sock.recv(1 << 16)

    rounds = in_turn({"whole": whole, "client": lambda: client.answer(request), "wire": wire, "socket": socket})
    cpu = {stage: min(cpu for _, cpu in measured) for stage, measured in rounds.items()}
    client.close()
    return {"whole": round(cpu["whole"], 1), "verb": round(cpu["whole"] - cpu["client"], 1),
            "client": round(cpu["client"] - cpu["wire"], 1), "wire": round(cpu["wire"] - cpu["socket"], 1),
            "socket": round(cpu["socket"], 1)}


def files(call: Callable[[], object]) -> dict[str, float]:
    """The share of the time in each file or built-in function, the dearest first."""
    with cProfile.Profile(time.process_time) as profiler:
        for _ in range(10 * CALLS):
            call()
    spent: Counter[str] = Counter()
    for (file, _, function), (_, _, own, _, _) in pstats.Stats(profiler).stats.items():  # type: ignore[attr-defined]
        spent["/".join(Path(file).parts[-3:]) if file != "~" else function] += own
    return {name: round(share / spent.total(), 3) for name, share in spent.most_common(16)}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--profile", action="store_true")
    measured = profile if parser.parse_args().profile else measure
    server = subprocess.Popen([sys.executable, Path(__file__).with_name("canned_server.py"), "50", "0"],
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert server.stdin is not None
    assert server.stdout is not None
    try:
        print(json.dumps(measured(server.stdout.readline().split()[-1])))
    finally:
        server.stdin.close()
        server.wait(10)


if __name__ == "__main__":
    main()
