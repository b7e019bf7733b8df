"""Whole controllers that share, in a simulation: one thread, one clock, in an order that a seed decides."""
from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import pytest
import requests
from msgspec.structs import replace

from kubectl_runtime import Action, Api, Client, Config, Context, Controller, Patch
from kubectl_runtime.core.meta.gvk import ObjectRef
from kubectl_runtime.core.scope import RunScope, enter_scope, leave_scope
from kubectl_runtime.errors import NotLeaderError
from kubectl_runtime.manager.leases import Tick, Wait
from kubectl_runtime.manager.sharder import Sharder
from kubectl_runtime.manager.sharding import Join, Sharding, shard_of
from kubectl_runtime.resources import ConfigMap, Secret
from kubectl_runtime.runtime.queue.runs import Run
from kubectl_runtime.runtime.triggers.triggers import ReconcileRequest
from kubectl_runtime.testing import ApiServer, Simulation

SHARDS, OBJECTS = 6, 20


class Shared:
    """A world with several replicas of one controller."""

    def __init__(self, seed: int) -> None:
        self.sim = Simulation(seed)
        self.server = ApiServer(clock=self.sim.clock, seed=seed)
        self.clients: list[Client] = []
        self.maps = Api.namespaced(self.client(), ConfigMap, "default")
        for number in range(OBJECTS):
            self.maps.create({"metadata": {"name": f"m{number}"}})
        self.replicas: dict[str, Sharder] = {}
        self.controllers: dict[str, Any] = {}
        self.versions: dict[str, tuple[str, str]] = {}
        """Of each object: who reconciled it last, and which version."""
        self.inside: dict[str, set[str]] = defaultdict(set)

    def client(self) -> Client:
        session = requests.Session()
        session.mount("http://", self.server.transport())
        made = Client(Config(cluster_url="http://simulated"), session=session, clock=self.sim.clock)
        self.clients.append(made)
        return made

    def reconcile(self, obj: ConfigMap, ctx: Context[str]) -> Action:
        name = obj.name or ""
        shard = shard_of(("default", name), SHARDS)
        others = {who for who, sharder in self.replicas.items() if shard in sharder.shards} - {ctx.data}
        assert not others, f"{name} is reconciled by {ctx.data}, and {others} may as well (seed {self.sim.seed})"
        self.versions[name] = ctx.data, obj.resource_version or ""
        return Action.requeue(7) if self.sim.random.random() < 0.2 else Action.await_change()

    def join(self, name: str) -> None:
        client = self.client()
        sharder = self.replicas[name] = Sharder(client, Sharding("shop", "default", shards=SHARDS, identity=name),
                                                grace=25, failed=lambda error: None, rng=random.Random(name))
        controller = Controller(Api.namespaced(client, ConfigMap, "default"), name=name)
        controller._plan = replace(controller.plan(), partition=sharder, client=sharder.guard(client))
        self.controllers[name] = self.sim.start(controller, self.reconcile, context=name)
        self.sim.run_until(lambda: self.controllers[name].is_ready)
        sharder.step(Join())

    def die(self, name: str) -> None:
        del self.replicas[name]
        self.controllers.pop(name).begin_stop(0)

    def pass_time(self, seconds: float) -> None:
        end = self.sim.clock.monotonic() + seconds
        while self.sim.clock.monotonic() < end:
            for sharder in self.replicas.values():
                turn(sharder)
            self.sim.settle(0.5)

    def owner(self, name: str) -> list[str]:
        shard = shard_of(("default", name), SHARDS)
        return [who for who, sharder in self.replicas.items() if shard in sharder.shards]

    def is_right(self) -> bool:
        """Each object was last reconciled by its one owner, in its present version."""
        return all(self.owner(found.name or "") == [self.versions[found.name or ""][0]]
                   and self.versions[found.name or ""][1] == found.resource_version for found in self.maps.list())


def turn(sharder: Sharder) -> None:
    """What its threads would do now."""
    action = sharder.step(Tick())
    while not isinstance(action, Wait):
        action = sharder.step(sharder.perform(action))
    sharder.tell()


def alone(sim: Simulation) -> Sharder:
    """A replica that holds both shards, and does nothing unless it gets its turn."""
    sharder = Sharder(sim.client(sim.serve()), Sharding("shop", "default", shards=2, identity="a", lease=15,
                                                        renew_deadline=10, retry=2), grace=25, failed=lambda _: None)
    sharder.step(Join())
    turn(sharder)
    assert sharder.shards == {0, 1}
    return sharder


def test_no_run_begins_after_the_deadline_though_no_thread_has_seen_it_pass() -> None:
    with Simulation() as sim:
        sharder = alone(sim)
        sim.clock.advance(9.9)
        assert sharder.begin_in(0) is not None
        sharder.end_in(0)
        sim.clock.advance(0.2)
        assert sharder.begin_in(0) is None
        assert sharder.shards == frozenset()


def test_a_lost_shard_is_not_taken_again_while_a_run_of_before_is_left() -> None:
    with Simulation() as sim:
        sharder = alone(sim)
        lost = sharder.begin_in(0)
        assert lost is not None
        sim.clock.advance(11)
        for _ in range(10):
            turn(sharder)
            sim.clock.advance(2)
        assert lost.is_set()
        assert sharder.shards == {1}
        sharder.end_in(0)
        for _ in range(2):
            turn(sharder)
            sim.clock.advance(2)
        assert sharder.shards == {0, 1}
        again = sharder.begin_in(0)
        assert again is not None
        assert not again.is_set()


@pytest.fixture
def shared() -> Iterator[Any]:
    made: list[Shared] = []

    def make(seed: int) -> Shared:
        made.append(Shared(seed))
        return made[-1]

    yield make
    for one in made:
        for client in one.clients:
            client.close()


@pytest.mark.parametrize("seed", range(3))
def test_each_object_is_reconciled_by_its_owner_whoever_comes_and_goes(shared: Any, seed: int) -> None:
    world = shared(seed)
    world.join("a")
    world.pass_time(4)
    assert world.is_right()
    world.join("b")
    world.join("c")
    world.pass_time(6)
    assert world.is_right()
    victim = world.sim.random.choice("abc")
    world.die(victim)
    for number in range(OBJECTS):  # what changes while nobody works for it is not lost
        world.maps.patch(f"m{number}", Patch.merge({"data": {"changed": str(seed)}}))
    world.pass_time(15 + 2 + 1)
    assert world.is_right()
    world.join("d")
    world.pass_time(6)
    assert world.is_right()
    assert sorted(len(sharder.shards) for sharder in world.replicas.values()) == [2, 2, 2]


def test_what_is_lost_is_forgotten_and_what_is_dropped_is_not_run(shared: Any) -> None:
    world = shared(1)
    world.join("a")
    world.pass_time(4)
    first = world.controllers["a"].assembly.runner
    first.trigger_all(world.controllers["a"].assembly.inbox.bulk())  # past the filter, as if they had waited
    assert first.depth() >= OBJECTS
    world.join("b")
    world.pass_time(6)
    known = first._queue.keys()
    assert {key for key in known if world.owner(key[1]) == ["b"]} == set()


def test_a_machine_that_slept_beyond_the_deadline_works_for_nothing_and_its_runs_may_not_write(shared: Any) -> None:
    world = shared(1)
    world.join("a")
    world.pass_time(4)
    sharder = world.replicas["a"]
    client = sharder.guard(world.maps.client)
    maps = Api.namespaced(client, ConfigMap, "default")
    ref = ObjectRef(ConfigMap.api_resource, "m1", "default")
    run = Run(ref.key, ReconcileRequest(ref), None, 0.0)

    assert sharder.begin(run.key) is not None
    entered = enter_scope(RunScope(run=run, family=client.shared, fences=client.fences))
    try:
        maps.patch("m1", Patch.merge({"data": {"in": "time"}}))
        world.sim.clock.suspend(10.1)
        assert sharder.shards == frozenset()
        assert maps.get("m1").data == {"in": "time"}
        with pytest.raises(NotLeaderError, match=r"shard . of default/shop does not \(or no longer\) belong to a"):
            maps.patch("m1", Patch.merge({"data": {"in": "vain"}}))
    finally:
        leave_scope(entered)
        sharder.end(run.key)
    with pytest.raises(NotLeaderError, match="no Lease of its own"):  # outside of a run, too
        maps.patch("m1", Patch.merge({"data": {"in": "vain"}}))
    entered = enter_scope(RunScope(run=run))  # of a controller that is not shared
    try:
        with pytest.raises(NotLeaderError, match="no Lease of its own"):
            maps.patch("m1", Patch.merge({"data": {"in": "vain"}}))
    finally:
        leave_scope(entered)
    assert sharder.begin(("default", "m2")) is None
    world.pass_time(6)  # nobody has taken them meanwhile
    assert len(sharder.shards) == SHARDS


def test_one_that_ends_before_it_has_joined_leaves_nothing(shared: Any) -> None:
    world = shared(1)
    sharder = Sharder(world.client(), Sharding("shop", "default"), grace=1, failed=lambda error: None)
    sharder.close(1)
    assert sharder.has_left
    sharder.join()
    assert sharder._threads == []


class Reading(Shared):
    """Its runs read one Secret."""

    ran: list[tuple[str, str, str]]

    def reconcile(self, obj: ConfigMap, ctx: Context[str]) -> Action:
        ctx.read(Secret, "s")
        self.ran.append((ctx.data, obj.name or "", str(ctx.reason)))
        return Action.await_change()


def test_each_replica_keeps_the_reads_of_its_own_objects() -> None:
    world = Reading(7)
    world.ran = []
    world.join("one")
    world.pass_time(30)

    def readers(who: str) -> set[str]:
        return {key[1] for key, _ in world.controllers[who].assembly.reads.look(100)[1]}

    names = {f"m{number}" for number in range(OBJECTS)}
    assert readers("one") >= names
    world.join("two")
    world.pass_time(60)
    for who in ("one", "two"):
        assert readers(who) & names == {name for name in names if world.owner(name) == [who]} != set()
    world.ran.clear()
    Api.namespaced(world.client(), Secret, "default").create({"metadata": {"name": "s"}})
    world.pass_time(5)
    assert sorted(name for _, name, reason in world.ran if name in names) == sorted(names)
    world.die("one")
    world.pass_time(90)
    world.ran.clear()
    Api.namespaced(world.client(), Secret, "default").delete("s")
    world.pass_time(5)
    assert sorted((who, name) for who, name, _ in world.ran if name in names) == sorted(("two", name) for name in names)
