"""Several real processes divide the objects of a server: one is killed, they come and go at random; each object is
reconciled by exactly one of them.

The processes are those of the benchmark `divided.py`.
"""
from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from kubectl_runtime import Api, Client, Config, Patch
from kubectl_runtime.core.meta.selectors import ShardSelector, part_of_hash
from kubectl_runtime.resources import ConfigMap
from tests.benchmarks import divided

SHARDS = 16
RETRY = 2
PATIENCE = 240.0
"""Seconds of real time for what has no promised time, on a machine with other work."""

WAYS = pytest.mark.parametrize("way", ["uid", "namespace", "uid-off", "namespace-off"])
"""As the benchmark's: by what objects are divided, and whether the server divides lists and watches."""


class Cluster:
    """A server with objects, and replicas as processes."""

    def __init__(self, folder: Path, way: str, objects: int) -> None:
        self.folder, self.way, self.objects = folder, way, objects
        self.server = divided.Process("server", str(objects), str(SHARDS), str(int(way != "uid-off")))
        self.url = self.server.line()
        self.client = Client(Config(cluster_url=self.url))
        self.by: Any = way.removesuffix("-off")
        self.names = (f"r{n}" for n in count())
        self.replicas: list[divided.Replica] = []
        self.former: list[divided.Replica] = []

    def close(self) -> None:
        for one in self.replicas:
            one.end()
        self.client.close()
        self.server.end()

    def join(self, number: int = 1) -> None:
        joining = [divided.Replica(self.url, next(self.names), self.way, SHARDS, self.folder) for _ in range(number)]
        for one in joining:
            one.line()
        for one in joining:
            one.say()
        self.replicas += joining

    def leave(self, one: divided.Replica) -> None:
        self.replicas.remove(one)
        self.former.append(one)
        one.end()

    def kill(self, one: divided.Replica) -> float:
        """Returns the moment before the kill, as the runs' times."""
        self.replicas.remove(one)
        self.former.append(one)
        at = divided.now()
        one.kill()
        return at

    def held(self) -> dict[int, list[str]]:
        found: dict[int, list[str]] = {n: [] for n in range(SHARDS)}
        for one in self.replicas:
            for n in one.ask()["shards"]:
                found[n].append(one.name)
        return found

    def is_divided(self) -> bool:
        held = self.held()
        sizes = [sum(one.name in names for names in held.values()) for one in self.replicas]
        return all(len(names) == 1 for names in held.values()) and max(sizes) - min(sizes) <= 1

    def shard_of(self, obj: Any) -> int:
        return part_of_hash(ShardSelector(self.by).hash_of(obj.uid, obj.namespace), SHARDS)

    def maps(self) -> list[ConfigMap]:
        return [*Api.all(self.client, ConfigMap).list()]

    def runs_since(self, at: float) -> dict[str, set[str]]:
        """The processes that have begun a run of each object since then."""
        found: dict[str, set[str]] = {}
        for one in self.replicas:
            one.read()
            for uid, begun, _ in one.runs:
                if begun > at:
                    found.setdefault(uid, set()).add(one.name)
        return found

    def check(self) -> None:
        """In a quiet moment: a change of each object is reconciled by its owner, and by nobody else."""
        until(self.is_divided)
        time.sleep(1)  # what was triggered by the last move has run
        held, at = self.held(), divided.now()
        for obj in self.maps():
            Api.namespaced(self.client, ConfigMap, obj.namespace or "").patch(
                obj, Patch.merge({"metadata": {"annotations": {"touched": str(at)}}}))
        owners = {obj.uid or "": set(held[self.shard_of(obj)]) for obj in self.maps()}
        until(lambda: self.runs_since(at).keys() >= owners.keys())
        assert self.held() == held, "nobody has come or gone, so nothing moves"
        assert self.runs_since(at) == owners
        assert divided.overlapping(self.replicas + self.former) == 0


def until(done: Callable[[], bool], limit: float = PATIENCE) -> None:
    end = time.monotonic() + limit
    while not done():
        assert time.monotonic() < end, "not in time"
        time.sleep(0.1)


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Makes clusters; `lease` seconds for the processes of the test."""
    made: list[Cluster] = []
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))

    def make(way: str, objects: int, *, lease: int = 15, run: float = 0.0) -> Cluster:
        monkeypatch.setenv("DIVIDED_LEASE", str(lease))
        monkeypatch.setenv("DIVIDED_RUN", str(run))
        made.append(Cluster(tmp_path, way, objects))
        return made[-1]

    yield make
    for one in made:
        one.close()


def kill_one(cluster: Cluster, victim: divided.Replica) -> float:
    """Kill it; returns after how many seconds each of its objects has begun to run elsewhere."""
    until(cluster.is_divided)
    until(lambda: len(cluster.runs_since(0)) == cluster.objects)
    shards = {n for n, names in cluster.held().items() if names == [victim.name]}
    its = {obj.uid or "" for obj in cluster.maps() if cluster.shard_of(obj) in shards}
    assert len(its) > cluster.objects / 8
    at = cluster.kill(victim)
    until(lambda: cluster.runs_since(at).keys() >= its)
    first: dict[str, float] = {}
    for one in cluster.replicas:
        for uid, begun, _ in one.runs:
            if uid in its and begun > at:
                first[uid] = min(first.get(uid, begun), begun)
    return max(first.values()) - at


@pytest.mark.long
@pytest.mark.alone
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("way", "objects"), [("uid", 2_000), ("uid", 20_000), ("namespace", 20_000),
                                              ("uid-off", 20_000)])
def test_the_objects_of_a_killed_process_run_elsewhere_within_lease_and_retry_and_3_s(cluster: Any, way: str,
                                                                                     objects: int) -> None:
    one = cluster(way, objects)
    one.join(4)
    took = kill_one(one, one.replicas[1])
    assert took < 15 + RETRY + 3
    one.check()


def come_and_go(one: Cluster, moves: int, seed: int) -> None:
    """Processes join, leave and are killed at random, some while others still move."""
    dice = random.Random(seed)
    one.join(3)
    one.check()
    for _ in range(moves):
        move = dice.choice(("join", "leave", "kill")) if len(one.replicas) > 1 else "join"
        if move == "join" or (len(one.replicas) == 2 and move == "kill"):
            one.join()
        elif move == "leave":
            one.leave(dice.choice(one.replicas))
        else:
            one.kill(dice.choice(one.replicas))
        if len(one.replicas) > 4:
            one.leave(one.replicas[0])
        if dice.random() < 0.5:
            one.check()
    one.check()


@pytest.mark.parametrize("replicas", [2, pytest.param(3, marks=pytest.mark.long)])
def test_of_real_processes_one_is_killed_another_leaves_and_none_is_lost(cluster: Any, replicas: int) -> None:
    one = cluster("uid", 200, lease=6, run=0.01)
    one.join(replicas)
    kill_one(one, one.replicas[1])
    one.join()
    one.leave(one.replicas[0])
    one.check()


@pytest.mark.long
@pytest.mark.timeout(1500)
@WAYS
def test_real_processes_come_and_go_twenty_times(cluster: Any, way: str) -> None:
    come_and_go(cluster(way, 1_000, lease=9, run=0.005), 20, 5)
