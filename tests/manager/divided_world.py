"""A world of whole controllers that divide their objects by ranges, in a simulation: one thread and one clock."""
from __future__ import annotations

import random
from typing import Any

import requests
from msgspec.structs import replace

from kubectl_runtime import Action, Api, Client, Config, Context, Controller, Patch
from kubectl_runtime.core.meta.selectors import ShardSelector, part_of_hash
from kubectl_runtime.core.requests.params import DeleteParams
from kubectl_runtime.manager.leases import Tick, Wait
from kubectl_runtime.manager.sharder import Sharder
from kubectl_runtime.manager.sharding import Join, Quit, Sharding
from kubectl_runtime.resources import ConfigMap, Secret
from kubectl_runtime.testing import ApiServer, Simulation

SHARDS = 6
NAMESPACES = ("billing", "shop", "search", "mail", "auth", "front", "data", "infra")


class World:
    """Replicas of one controller of ConfigMaps that owns Secrets. `gate`: whether the server divides."""

    def __init__(self, seed: int, by: str, *, gate: bool, on_gone: bool = False) -> None:
        self.sim = Simulation(seed)
        self.by: Any = by
        self.on_gone = on_gone
        self.server = ApiServer(clock=self.sim.clock, seed=seed, feature_gates={"ShardedListAndWatch": gate})
        self.server.load([{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}} for name in NAMESPACES])
        self.clients: list[Client] = []
        self.direct = self.client()
        self.maps = Api.all(self.direct, ConfigMap)
        self.sharders: dict[str, Sharder] = {}
        self.controllers: dict[str, Any] = {}
        self.ran: dict[str, tuple[str, str]] = {}
        """By uid: who ran it last, and which version."""
        self.look: Any = lambda obj, ctx: None
        """What a test does besides in each run."""
        self.gone: list[tuple[str, str]] = []
        self.number = 0

    def client(self) -> Client:
        session = requests.Session()
        session.mount("http://", self.server.transport())
        made = Client(Config(cluster_url="http://simulated"), session=session, clock=self.sim.clock)
        self.clients.append(made)
        return made

    def close(self) -> None:
        for client in self.clients:
            client.close()

    # Objects

    def shard_of(self, obj: Any) -> int:
        return part_of_hash(ShardSelector(self.by).hash_of(obj.uid, obj.namespace), SHARDS)

    def create(self, name: str | None = None, namespace: str | None = None) -> None:
        self.number += 1
        where = namespace or self.sim.random.choice(NAMESPACES)
        Api.namespaced(self.direct, ConfigMap, where).create({"metadata": {"name": name or f"m{self.number}"}})

    def change(self) -> None:
        found = self.maps.list().items
        if not found:
            return
        obj = self.sim.random.choice(found)
        own = Api.namespaced(self.direct, ConfigMap, obj.namespace or "")
        dice = self.sim.random.random()
        if dice < 0.5:
            own.patch(obj, Patch.merge({"data": {"n": str(self.sim.random.random())}}))
        elif dice < 0.7:
            own.delete(obj, DeleteParams())
        elif dice < 0.85:  # the name belongs to another object at once
            own.delete(obj, DeleteParams())
            self.create(obj.name, obj.namespace)
        else:
            self.create()

    # Replicas

    def reconcile(self, obj: ConfigMap, ctx: Context[str]) -> Action:
        uid = obj.uid or ""
        others = {who for who, sharder in self.sharders.items() if self.shard_of(obj) in sharder.shards} - {ctx.data}
        assert not others, f"{obj.ref} is reconciled by {ctx.data}, and {others} may as well (seed {self.sim.seed})"
        self.ran[uid] = ctx.data, obj.resource_version or ""
        self.look(obj, ctx)
        return Action.requeue(7) if self.sim.random.random() < 0.2 else Action.await_change()

    def join(self, name: str) -> None:
        client = self.client()
        sharder = self.sharders[name] = Sharder(client, Sharding("shop", "default", shards=SHARDS, by=self.by,
                                                                 identity=name),
                                                grace=25, failed=lambda error: None, rng=random.Random(name))
        controller = Controller(Api.all(client, ConfigMap), name=name).owns(Api.all(client, Secret))
        if self.on_gone:
            controller.on_gone(lambda ref, ctx: self.gone.append((ctx.data, ref.name)))
        controller._plan = replace(controller.plan(), partition=sharder, client=sharder.guard(client))
        self.controllers[name] = self.sim.start(controller, self.reconcile, context=name)
        self.sim.run_until(lambda: self.controllers[name].is_ready)
        sharder.step(Join())

    def die(self, name: str) -> None:
        del self.sharders[name]
        self.controllers.pop(name).begin_stop(0)

    def leave(self, name: str) -> None:
        """It ends in good order."""
        sharder = self.sharders[name]
        sharder.step(Quit(25))
        limit = 100
        while not sharder.has_left and (limit := limit - 1):
            self.turn()
        assert sharder.has_left
        sharder.tell()
        self.die(name)

    def turn(self) -> None:
        for sharder in self.sharders.values():
            action = sharder.step(Tick())
            while not isinstance(action, Wait):
                action = sharder.step(sharder.perform(action))
            sharder.tell()
        self.sim.settle()
        self.sim.clock.advance(0.1)

    def pass_time(self, seconds: float) -> None:
        end = self.sim.clock.monotonic() + seconds
        while self.sim.clock.monotonic() < end:
            self.turn()

    # What has to be so

    def check(self, seed: int) -> None:
        """In a quiet moment: each object is stored and was run by its owner alone; each store is a filter of all."""
        found = self.maps.list().items
        held = [shard for sharder in self.sharders.values() for shard in sharder.shards]
        assert sorted(held) == list(range(SHARDS)), f"{held} (seed {seed})"
        for name, sharder in self.sharders.items():
            controller = self.controllers[name]
            wanted = {(one.uid, one.resource_version) for one in found if self.shard_of(one) in sharder.shards}
            stored = [(one.uid, one.resource_version) for one in controller.store]
            assert set(stored) == wanted, f"the store of {name} (seed {seed})"
            assert len(stored) == len(wanted) == len(controller.store)
            for one in found:
                assert (one.ref in controller.store) == (self.shard_of(one) in sharder.shards)
        for one in found:
            who, version = self.ran.get(one.uid or "", ("nobody", ""))
            owner = next(name for name, sharder in self.sharders.items() if self.shard_of(one) in sharder.shards)
            assert (who, version) == (owner, one.resource_version), f"{one.ref} (seed {seed})"
