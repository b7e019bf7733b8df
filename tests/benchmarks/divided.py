"""Several processes divide many objects of an embedded server in a process of its own. One JSON line at the end; what
is done, and the figures of each way, go to the standard error.

    python tests/benchmarks/divided.py [OBJECTS] [REPLICAS] [SHARDS] [WAY ...]     default 100000 4 16, all ways

    WAY            objects are divided                                               the server
    whole          not at all: one replica that holds everything                     divides
    whole-owned    likewise, with the Secrets of `namespace`                         divides
    uid            by uid                                                            divides
    namespace      by namespace, with a Secret that each fifth object owns           divides
    uid-off        by uid                                                            does not
    namespace-off  by namespace, with the Secrets                                    does not

    memory_mib   resident memory of each replica above that of the idle process, when all objects have run
    received_mb  bytes that each replica received from its sockets until then, those of the shards included that it held
                 before the others had joined
    of_whole     the largest of both, as a part of what the one replica has that holds the same kinds whole
    joined_s     from the moment in which all begin until each object has run at its owner
    killed_s     from a `kill -9` of one until each of its objects has run elsewhere; the Leases' times are the
                 defaults, 15, 10 and 2 s. On a machine with other work DIVIDED_LEASE=60 keeps shards where they are
    twice        runs of one object that overlapped in time, in two processes

All ways with 100,000 objects take about ten minutes on two cores without other work.
Objects have 3 KB. The namespaces are chosen so that each shard has as many. What a process says of its runs goes to a
file of its own, without a buffer, so that nothing is lost with it.
"""
from __future__ import annotations

import contextlib
import gc
import json
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import IO, Any

HERE = Path(__file__)
SIZE = 2600
"""Characters of an object's text, which cannot be compressed."""
PATIENCE = 900.0
LEASE = int(os.environ.get("DIVIDED_LEASE", "15"))
RUN_SECONDS = float(os.environ.get("DIVIDED_RUN", "0"))
"""How long each run takes besides."""

received = [0]


def resident_mib() -> float:
    with open("/proc/self/statm", encoding="ascii") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGESIZE") / 2**20


# The server


def namespaces(shards: int) -> list[str]:
    """Some names, four in each shard."""
    from kubectl_runtime.core.meta.selectors import part_of_hash, shard_hash

    found: dict[int, list[str]] = {n: [] for n in range(shards)}
    number = 0
    while any(len(names) < 4 for names in found.values()):
        name = f"{number * 7919 % 99991:x}-team"
        names = found[part_of_hash(shard_hash(name), shards)]
        if len(names) < 4:
            names.append(name)
        number += 1
    return [name for names in zip(*found.values(), strict=True) for name in names]


GATE = "ShardedListAndWatch"


def serve(objects: int, shards: int, gate: bool) -> None:
    from kubectl_runtime.apiserver.server import ApiServer

    places = namespaces(shards)
    server = ApiServer(feature_gates={GATE: gate}, compaction_interval=0, record=False)
    texts = [random.Random(n).randbytes(SIZE * 3 // 8).hex()[:SIZE // 4] for n in range(997)]
    for first in range(0, objects, 5000):
        numbers = range(first, min(objects, first + 5000))
        server.load([{"apiVersion": "v1", "kind": "ConfigMap",
                      "metadata": {"name": f"m{n}", "namespace": places[n % len(places)], "labels": {"app": "shop"}},
                      "data": {"text": "".join(texts[n * k % 997] for k in (1, 2, 3, 5))}} for n in numbers])
        owned = [server.core.cluster.storage.get("/configmaps", places[n % len(places)], f"m{n}")
                 for n in numbers if n % 5 == 0]
        server.load([{"apiVersion": "v1", "kind": "Secret", "metadata": {
            "name": one.name, "namespace": one.namespace, "annotations": {"note": texts[one.rv % 997]},
            "ownerReferences": [{"apiVersion": "v1", "kind": "ConfigMap", "name": one.name, "uid": one.uid,
                                 "controller": True}]}}
                     for one in owned if one is not None])
    server.core.compact()
    with server:
        print(server.url, flush=True)
        for _ in sys.stdin:  # from now on it divides, or does not
            server.core.cluster.gates ^= {GATE}
            print(flush=True)


# A replica


def replica(url: str, name: str, way: str, shards: int, log: str) -> None:
    count_received()
    from kubectl_runtime import Action, Api, Client, Config, Context, Controller, Manager, Sharding
    from kubectl_runtime.resources import ConfigMap, Secret

    out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def reconcile(obj: ConfigMap, ctx: Context[None]) -> Action:
        begun = time.clock_gettime(time.CLOCK_BOOTTIME)
        if RUN_SECONDS:
            ctx.stop.wait(RUN_SECONDS)
        os.write(out, f"{obj.uid} {begun:.6f} {time.clock_gettime(time.CLOCK_BOOTTIME):.6f}\n".encode())
        return Action.await_change()

    client = Client(Config(cluster_url=url))
    by: Any = "name" if way.startswith("whole") else way.removesuffix("-off")
    sharding = Sharding("divided", "default", shards=shards, by=by, identity=name, lease=LEASE,
                        renew_deadline=LEASE * 2 / 3)
    manager = Manager(client, sharding=sharding, serve=None)
    controller = Controller(Api.all(client, ConfigMap), name="divided")
    if has_secrets(way):
        controller.owns(Api.all(client, Secret))
    manager.add(controller, reconcile)
    Api.all(client, ConfigMap).list(limit=1)
    gc.collect()
    print("ready", flush=True)
    sys.stdin.readline()
    idle, received[0] = resident_mib(), 0
    with manager.start() as running:
        for _ in sys.stdin:
            gc.collect()
            print(json.dumps({"shards": sorted(running.shards), "memory": resident_mib() - idle,
                              "received": received[0]}), flush=True)
    client.close()


def has_secrets(way: str) -> bool:
    return way.startswith("namespace") or way == "whole-owned"


def count_received() -> None:
    """Count what sockets receive."""
    plain, plain_into = socket.socket.recv, socket.socket.recv_into

    def recv(self: socket.socket, *arguments: Any) -> bytes:
        found = plain(self, *arguments)
        received[0] += len(found)
        return found

    def recv_into(self: socket.socket, *arguments: Any) -> int:
        count = plain_into(self, *arguments)
        received[0] += count
        return count

    socket.socket.recv, socket.socket.recv_into = recv, recv_into  # type: ignore[method-assign, assignment]


# All of it


class Process:
    """One process, which answers a line with a line."""

    def __init__(self, *arguments: str) -> None:
        self.process = subprocess.Popen([sys.executable, str(HERE), *arguments], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True)

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def say(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def ask(self) -> dict[str, Any]:
        self.say()
        found: dict[str, Any] = json.loads(self.line())
        return found

    def end(self) -> None:
        self._close(self.process.stdin)
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self._close(self.process.stdout)

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self._close(self.process.stdin, self.process.stdout)

    @staticmethod
    def _close(*pipes: IO[str] | None) -> None:
        for pipe in pipes:
            with contextlib.suppress(OSError):
                assert pipe is not None
                pipe.close()


class Replica(Process):
    """A replica, and what it says of its runs."""

    def __init__(self, url: str, name: str, way: str, shards: int, folder: Path) -> None:
        self.name, self.log = name, folder / f"{way}-{name}"
        super().__init__("replica", url, name, way, str(shards), str(self.log))
        self.offset = 0
        self.runs: list[tuple[str, float, float]] = []

    def read(self) -> None:
        """What is new in its file."""
        if not self.log.exists():
            return
        with self.log.open() as file:
            file.seek(self.offset)
            for line in file.read().splitlines(keepends=True):
                if line.endswith("\n"):
                    self.offset += len(line)
                    uid, begun, ended = line.split()
                    self.runs.append((uid, float(begun), float(ended)))


def main(objects: int, count: int, shards: int, ways: list[str]) -> None:
    found: dict[str, dict[str, Any]] = {}
    began = now()
    with tempfile.TemporaryDirectory() as folder:
        server = Process("server", str(objects), str(shards), "1")
        url, gate = server.line(), True
        say("the server has all objects")
        for way in sorted(ways, key=lambda way: way.endswith("-off")):
            if gate == way.endswith("-off"):
                server.say()
                server.line()
                gate = not gate
            replicas = 1 if way.startswith("whole") else count
            one = found[way] = measured(url, way, objects, replicas, shards, Path(folder))
            if (whole := found.get("whole-owned" if has_secrets(way) else "whole")) is not None:
                one["of_whole"] = {what: round(max(one[what]) / whole[what][0], 3)
                                   for what in ("memory_mib", "received_mb")}
            say(f"{way}: {json.dumps(one)}")
        server.end()
    print(json.dumps({"benchmark": "divided", "objects": objects, "replicas": count, "shards": shards, "lease_s": LEASE,
                      "took_s": round(now() - began), "ways": found}), flush=True)


def measured(url: str, way: str, objects: int, count: int, shards: int, folder: Path) -> dict[str, Any]:
    replicas = [Replica(url, f"r{n}", way, shards, folder) for n in range(count)]
    for one in replicas:
        one.line()
    begun = now()
    for one in replicas:
        one.say()
    states: list[dict[str, Any]] = []

    def settled() -> bool:
        nonlocal states
        states = [one.ask() for one in replicas]
        held = sorted(n for state in states for n in state["shards"])
        sizes = [len(state["shards"]) for state in states]
        return held == list(range(shards)) and max(sizes) - min(sizes) <= 1 and len(ran(replicas)) == objects

    until(settled, every=1.0)
    joined = now() - begun
    until(quiet(replicas), every=3.0)
    states = [one.ask() for one in replicas]
    found: dict[str, Any] = {
        "memory_mib": [round(state["memory"], 1) for state in states],
        "received_mb": [round(state["received"] / 1e6, 1) for state in states], "joined_s": round(joined, 1)}
    if count > 1:
        say(f"{way}: they have divided the objects")
        found |= killed(replicas)
    for one in replicas:
        one.end()
    found["twice"] = overlapping(replicas)
    return found


def killed(replicas: list[Replica]) -> dict[str, Any]:
    """Kill one that has objects; how long until all of them have run elsewhere."""
    victim, *others = replicas
    last: dict[str, tuple[float, Replica]] = {}
    for one in replicas:
        for uid, begun, _ in one.runs:
            if uid not in last or last[uid][0] < begun:
                last[uid] = begun, one
    mine = {uid for uid, (_, one) in last.items() if one is victim}
    at = now()
    victim.kill()
    after: dict[str, float] = {}

    def taken_over() -> bool:
        for one in others:
            before = len(one.runs)
            one.read()
            after.update({uid: begun for uid, begun, _ in one.runs[before:] if begun > at and uid not in after})
        return mine <= after.keys()

    until(taken_over, every=0.2)
    took = max(after[uid] for uid in mine) - at
    states = [one.ask() for one in others]
    return {"of_the_killed": len(mine), "killed_s": round(took, 1),
            "memory_after_mib": [round(state["memory"], 1) for state in states]}


def ran(replicas: list[Replica]) -> set[str]:
    for one in replicas:
        one.read()
    return {uid for one in replicas for uid, _, _ in one.runs}


def quiet(replicas: list[Replica]) -> Any:
    """Whether nothing has run since it was asked last."""
    before = [-1]

    def asked() -> bool:
        ran(replicas)
        count = sum(len(one.runs) for one in replicas)
        same, before[0] = count == before[0], count
        return same

    return asked


def overlapping(replicas: list[Replica]) -> int:
    """Runs of one object at the same time in two processes."""
    by_uid: dict[str, list[tuple[float, float, str]]] = {}
    for one in replicas:
        one.read()
        for uid, begun, ended in one.runs:
            by_uid.setdefault(uid, []).append((begun, ended, one.name))
    found = 0
    for runs in by_uid.values():
        runs.sort()
        found += sum(later[0] < earlier[1] and later[2] != earlier[2] for earlier, later in pairwise(runs))
    return found


def until(done: Any, every: float) -> None:
    end = time.monotonic() + PATIENCE
    while not done():
        if time.monotonic() > end:
            raise SystemExit("not in time")
        threading.Event().wait(every)


def now() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def say(what: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {what}", file=sys.stderr, flush=True)


WAYS = ["whole", "whole-owned", "uid", "namespace", "uid-off", "namespace-off"]


def numbers(arguments: list[str]) -> Iterator[int]:
    given = [int(one) for one in arguments if one.isdigit()]
    yield from (*given, *(100_000, 4, 16)[len(given):])


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["server", objects, shards, gate]:
            serve(int(objects), int(shards), gate == "1")
        case ["replica", url, name, way, shards, log]:
            replica(url, name, way, int(shards), log)
        case arguments:
            main(*numbers(arguments), [one for one in arguments if not one.isdigit()] or WAYS)
