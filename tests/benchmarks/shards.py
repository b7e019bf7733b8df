"""Several replicas share many objects, in a simulation: one thread, one clock, an embedded server. One JSON line.

    python tests/benchmarks/shards.py [OBJECTS] [REPLICAS] [SHARDS] [DEATHS]     default 100000 4 16 5

    list_cpu_s, store_mib each replica's first list and store, which hold all objects: CPU and resident memory
    runs_per_cpu_s        after all objects were triggered at all replicas at once, until each has run once, at its
                          owner; `alone_runs_per_cpu_s`: by one controller that shares with nobody
    shares                how many objects each replica ran
    takeover_s            simulated seconds from the death of a replica, at some moment, until each object of it has run
                          at another one; the Leases' times are the defaults, 15, 10 and 2 s
    join_s                the same from the moment in which a replica joins, until its share has run there

All replicas are worked for by one thread, one after the other: what is measured in CPU does not depend on how many
cores there are, and what is measured on the simulated clock does not depend on the machine.
"""
from __future__ import annotations

import gc
import json
import random
import sys
import time
from collections import Counter
from pathlib import Path
from statistics import mean
from typing import Any

import requests

sys.path.insert(0, str(Path(__file__).parent))
from firehose import resident_mib  # a script's neighbour, not a package
from msgspec.structs import replace

from kubectl_runtime import Action, Api, Client, Config, Context, Controller
from kubectl_runtime.manager.leases import Tick, Wait
from kubectl_runtime.manager.sharder import Sharder
from kubectl_runtime.manager.sharding import Join, Sharding, shard_of
from kubectl_runtime.resources import ConfigMap
from kubectl_runtime.testing import ApiServer, Simulation
from kubectl_runtime.testing.simulation import SimulatedController

TICK = 0.2
"""Simulated seconds between two looks at the replicas."""


class World:
    """All of it."""

    def __init__(self, objects: int) -> None:
        self.sim = Simulation(1)
        self.server = ApiServer(clock=self.sim.clock, seed=1)
        self.server.load([{"apiVersion": "v1", "kind": "ConfigMap",
                           "metadata": {"name": f"map-{n}", "namespace": f"ns-{n % 100}", "labels": {"app": "shop"}},
                           "data": {"text": "x" * 200}} for n in range(objects)])
        self.ran: dict[tuple[str, str], tuple[str, float]] = {}
        self.replicas: list[Replica] = []

    def client(self) -> Client:
        session = requests.Session()
        session.mount("http://", self.server.transport())
        return Client(Config(cluster_url="http://simulated", default_namespace="default"), session=session,
                      clock=self.sim.clock)

    def reconcile(self, obj: ConfigMap, ctx: Context[str]) -> Action:
        assert obj.namespace is not None
        assert obj.name is not None
        self.ran[obj.namespace, obj.name] = ctx.data, self.sim.clock.monotonic()
        return Action.await_change()

    def until(self, done: Any, limit: float = 300) -> None:
        """Let time pass."""
        end = self.sim.clock.monotonic() + limit
        while not done():
            assert self.sim.clock.monotonic() < end, "not in time"
            for replica in self.replicas:
                replica.turn()
                replica.work()
            self.sim.clock.advance(TICK)


class Replica:
    """A controller and its sharder, without threads."""

    def __init__(self, world: World, name: str, shards: int, seed: int) -> None:
        self.world, self.name = world, name
        client = world.client()
        sharding = Sharding("shop", "default", shards=shards, identity=name)
        self.sharder = Sharder(client, sharding, grace=25, failed=lambda error: None, rng=random.Random(seed))
        controller = Controller(Api.all(client, ConfigMap), name=name)
        controller._plan = replace(controller.plan(), partition=self.sharder, client=self.sharder.guard(client))
        self.controller = world.sim.start(controller, world.reconcile, context=name)

    def join(self) -> None:
        self.sharder.step(Join())
        self.world.replicas.append(self)

    def turn(self) -> None:
        """What its threads would do now."""
        action = self.sharder.step(Tick())
        while not isinstance(action, Wait):
            action = self.sharder.step(self.sharder.perform(action))
        self.sharder.tell()

    def work(self) -> None:
        """The rest of its threads, one after the other, until nothing is left to do now."""
        work(self.controller)

    def die(self) -> None:
        self.world.replicas.remove(self)
        self.controller.begin_stop(0)


def work(controller: SimulatedController[Any]) -> None:
    """Faster than `Simulation.step`, which draws who is next."""
    assembly, executor = controller.assembly, controller.executor
    for watch in assembly.watches.values():
        while watch.step() == 0:
            pass
    assembly.housekeeping()
    assembly.runner.step()
    while len(executor):
        executor.run()
        assembly.runner.step()


def main(objects: int = 100_000, replicas: int = 4, shards: int = 16, deaths: int = 5) -> None:
    world = World(objects)
    say("the server has all objects")
    alone = alone_runs(world, objects)
    say("one controller alone has run them all twice")
    lists: list[float] = []
    memory: list[float] = []
    made = 0

    def make() -> Replica:
        nonlocal made
        made += 1
        gc.collect()
        before, begun = resident_mib(), time.process_time()
        one = Replica(world, f"r{made}", shards, made)
        while not one.controller.is_ready:
            one.work()
            world.sim.clock.advance(TICK)
        gc.collect()
        lists.append(time.process_time() - begun)
        memory.append(resident_mib() - before)
        return one

    for _ in range(replicas):
        make().join()
    world.until(lambda: len(world.ran) == objects and balanced(world, shards))
    say("the replicas have divided them and run them once")
    world.ran.clear()
    begun = time.process_time()
    for one in world.replicas:
        one.controller.trigger_all()
    world.until(lambda: len(world.ran) == objects)
    took = time.process_time() - begun
    shares = sorted(Counter(who for who, _ in world.ran.values()).values())

    dice, takeovers, joins = random.Random(1), [], []
    for _ in range(deaths):
        for _ in range(dice.randrange(20)):
            world.until(iter([False, True]).__next__)
        victim = dice.choice(world.replicas)
        died, lost = world.sim.clock.monotonic(), {key for key, (who, _) in world.ran.items() if who == victim.name}
        victim.die()
        world.until(lambda: all(world.ran[key][0] != victim.name for key in lost))  # noqa: B023 - it is called here
        takeovers.append(max(world.ran[key][1] for key in lost) - died)
        successor = make()
        joined = world.sim.clock.monotonic()
        successor.join()
        world.until(lambda: balanced(world, shards) and settled(world))
        joins.append(world.sim.clock.monotonic() - joined)
        say("one has died, and another joined")
    print(json.dumps({
        "benchmark": "shards", "objects": objects, "replicas": replicas, "shards": shards,
        "list_cpu_s": round(mean(lists), 2), "store_mib": round(mean(memory), 1),
        "runs_per_cpu_s": round(objects / took), "alone_runs_per_cpu_s": alone, "shares": shares,
        "takeover_s": {"mean": round(mean(takeovers), 1), "max": round(max(takeovers), 1)},
        "join_s": {"mean": round(mean(joins), 1), "max": round(max(joins), 1)}}), flush=True)


def alone_runs(world: World, objects: int) -> int:
    """Runs per CPU second of one controller, which shares with nobody."""
    client = world.client()
    one = world.sim.start(Controller(Api.all(client, ConfigMap), name="alone"), world.reconcile, context="alone")
    while len(world.ran) < objects:
        work(one)
        world.sim.clock.advance(TICK)
    world.ran.clear()
    begun = time.process_time()
    one.trigger_all()
    while len(world.ran) < objects:
        work(one)
    took = time.process_time() - begun
    one.begin_stop(0)
    world.ran.clear()
    return round(objects / took)


def say(what: str) -> None:
    """How far it is: some minutes with 100,000 objects."""
    print(f"{time.process_time():7.1f} s of CPU: {what}", file=sys.stderr, flush=True)


def balanced(world: World, shards: int) -> bool:
    sizes = [len(one.sharder.shards) for one in world.replicas]
    return sum(sizes) == shards and max(sizes) - min(sizes) <= 1


def settled(world: World) -> bool:
    """Each object ran last at its owner."""
    owners = {shard: one.name for one in world.replicas for shard in one.sharder.shards}
    shards = world.replicas[0].sharder.sharding.shards
    return all(owners[shard_of(key, shards)] == who for key, (who, _) in world.ran.items())


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
