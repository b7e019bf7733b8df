"""A world of replicas that share work, on the step function alone: no threads, no sockets, one heap of events.

Each replica has a clock of its own, makes several requests at once, and has runs in progress. Requests and answers take
their time and may be lost. Who works, and who might write, is compared at each event.
"""
from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import count
from math import inf
from typing import Any

from kubectl_runtime.manager.leases import (
    Conflict,
    Create,
    Failed,
    Get,
    LeaseRecord,
    Now,
    Read,
    Request,
    Tick,
    Update,
    Wait,
    Written,
)
from kubectl_runtime.manager.shard_machine import Phase, ShardRules, ShardState, step
from kubectl_runtime.manager.sharding import (
    OWN,
    Action,
    Answered,
    Ask,
    Delete,
    Deleted,
    Input,
    Join,
    Listed,
    ListLeases,
    Look,
    NotListed,
    Quit,
    Sharding,
    Sight,
)
from kubectl_runtime.testing.clock import EPOCH

LEASE, RENEW_DEADLINE, RETRY = 15, 10, 2
REQUESTS = 4
SLACK = 1.0
"""Seconds for the requests of a takeover."""


@dataclass
class Faults:
    """Shares of what goes wrong."""

    lost_request: float = 0.0
    lost_answer: float = 0.0
    refused: float = 0.0
    longest_delay: float = 0.05


@dataclass
class Stored:
    """A Lease at the server."""

    record: LeaseRecord
    version: int
    shard: int | None
    shards: int
    by: str = "name"


@dataclass
class World:
    """`runs`: how long runs last at most, in seconds; 0: there are none."""

    seed: int
    faults: Faults = field(default_factory=Faults)
    runs: float = 0.0

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.time = 0.0
        self.events: list[tuple[float, int, Callable[[], None]]] = []
        self.numbers = count(1)
        self.leases: dict[str, Stored] = {}
        self.replicas: list[Replica] = []
        self.requests = 0
        self.faulty: list[tuple[float, int, list[str]]] = []
        """When two worked for a shard, or one might write while another did."""

    def at(self, delay: float, what: Callable[[], None]) -> None:
        heapq.heappush(self.events, (self.time + delay, next(self.numbers), what))

    def run(self, seconds: float) -> None:
        end = self.time + seconds
        while self.events and self.events[0][0] <= end:
            self.time, _, what = heapq.heappop(self.events)
            what()
            self.compare()
        self.time = end

    def compare(self) -> None:
        active = {one.name: one.active() for one in self.replicas if one.alive}
        seen: dict[int, str] = {}
        for name, shards in active.items():
            for shard in shards:
                if shard in seen:
                    self.faulty.append((self.time, shard, [seen[shard], name]))
                seen[shard] = name
        numbers = {one.rules.division for one in self.replicas if active.get(one.name)}
        if len(numbers) > 1:
            self.faulty.append((self.time, -1, [f"divided into {sorted(numbers)}"]))

    def owners(self) -> dict[int, list[str]]:
        shards = self.replicas[0].rules.shards
        return {n: [one.name for one in self.replicas if one.works(n)] for n in range(shards)}

    def unowned(self) -> list[int]:
        return [shard for shard, names in self.owners().items() if len(names) != 1]

    def loads(self) -> list[int]:
        """How many shards each living replica has."""
        return sorted(sum(one.works(n) for n in range(one.rules.shards)) for one in self.living())

    def living(self) -> list[Replica]:
        return [one for one in self.replicas if one.alive and one.state.phase is Phase.TAKING_PART]

    def join(self, shards: int = 16, grace: float = 25, name: str | None = None, by: Any = "name") -> Replica:
        replica = Replica(self, name or f"r{len(self.replicas)}", shards, grace, by)
        self.replicas.append(replica)
        self.at(0, lambda: replica.happen(Join()))
        return replica

    def delay(self) -> float:
        return self.random.uniform(0, self.faults.longest_delay)

    def chance(self, share: float) -> bool:
        return self.random.random() < share

    def served(self, replica: Replica, action: Action, version: int) -> tuple[Input, int | None]:
        """What the server does, now; and the version that is known from it."""
        self.requests += 1
        match action:
            case ListLeases():
                sights = (Sight(name, str(one.version), one.shard, one.shards, one.record, one.by)
                          for name, one in self.leases.items())
                return Listed(tuple(sights)), None
            case Delete(name, wanted):
                if name in self.leases and wanted in (None, str(self.leases[name].version)):
                    del self.leases[name]
                return Deleted(name), None
            case Ask(which, request):
                return self._asked(replica, which, request, version)
        raise AssertionError(action)

    def _asked(self, replica: Replica, which: int, request: Request, version: int) -> tuple[Input, int | None]:
        name = replica.lease_name(which)
        found = self.leases.get(name)
        if isinstance(request, Get):
            answer = Read(None if found is None else found.record)
            return Answered(which, answer), None if found is None else found.version
        if isinstance(request, Create) == (found is not None) or (
                isinstance(request, Update) and found is not None and version != found.version):
            return Answered(which, Conflict()), None
        new = next(self.numbers)
        self.leases[name] = Stored(request.record, new, None if which == OWN else which, *replica.rules.division)
        return Answered(which, Written(request.record)), new


class Replica:
    """What the sharder's threads do, as events."""

    def __init__(self, world: World, name: str, shards: int, grace: float, by: Any = "name") -> None:
        self.world = world
        self.name = name
        sharding = Sharding("shop", shards=shards, by=by, lease=LEASE, renew_deadline=RENEW_DEADLINE, retry=RETRY)
        self.rules = ShardRules.of(sharding, name, grace)
        self.sharding = sharding
        self.state = ShardState.first(self.rules)
        self.busy = [0] * shards
        self.versions: dict[int, int] = {}
        self.threads = REQUESTS
        self.alive = True
        self.alarm = inf
        self.suspended = False
        self.base = world.random.uniform(-1e6, 1e6)
        self.skew = timedelta(days=world.random.randint(-5000, 5000))

    @property
    def now(self) -> Now:
        at = self.base + self.world.time
        return Now(at, EPOCH + self.skew + timedelta(seconds=self.world.time), self.world.random.random())

    def works(self, shard: int) -> bool:
        return self.alive and not self.suspended and self.state.works(shard, self.base + self.world.time)

    def active(self) -> list[int]:
        """The shards for which runs may begin, or one is in progress that the client would let write. One that is
        suspended is active for nobody to see; when it goes on, its clock has gone on too."""
        at = self.base + self.world.time
        return [n for n, lease in enumerate(self.state.shards) if lease.leads_at(at)
                and (self.busy[n] or n not in self.state.draining)]

    def lease_name(self, which: int) -> str:
        return self.rules.own_name if which == OWN else self.sharding.election(which).name

    def happen(self, happened: Input) -> None:
        """Something that makes no request of its own: then all free threads look for work."""
        if self.alive and not self.suspended:
            self._step(happened)
            self.wake()

    def wake(self) -> None:
        """What `notify_all` does."""
        while self.alive and not self.suspended and self.threads:
            if not self._do(self._step(Tick())):
                break

    def _step(self, happened: Input) -> Action:
        self.state, action = step(self.rules, self.state, happened, self.now, self.busy)
        if self.world.runs:
            for shard in range(self.rules.shards):
                if self.works(shard) and self.busy[shard] < 2 and self.world.chance(0.05):
                    self._begin_run(shard)
        look = step(self.rules, self.state, Look(), self.now, self.busy)[1]
        assert isinstance(look, Wait)
        self._set_alarm(look.until)
        return action

    def _set_alarm(self, until: float) -> None:
        """Look again then, if not before."""
        if until >= self.alarm or until == inf:
            return
        self.alarm = until

        def ring() -> None:
            if self.alarm == until:
                self.alarm = inf
                self.happen(Look())

        self.world.at(max(0.0, until - self.now.at) + 1e-6, ring)

    def _do(self, action: Action) -> bool:
        """Whether that was a request."""
        if isinstance(action, Wait):
            if self.state.phase is not Phase.GONE:
                self._set_alarm(action.until)
            return False
        self.threads -= 1
        self.send(action)
        return True

    def _begin_run(self, shard: int) -> None:
        self.busy[shard] += 1

        def end() -> None:
            self.busy[shard] -= 1
            self.happen(Look())

        self.world.at(self.world.random.uniform(0, self.world.runs), end)

    def quit(self, within: float = 25) -> None:
        self.happen(Quit(within))

    def die(self) -> None:
        self.alive = False

    def suspend(self) -> None:
        self.suspended = True

    def resume(self) -> None:
        """Whoever was frozen goes on: with its clock moved on, and what it was about to do still to be done."""
        self.suspended = False
        self.happen(Look())

    def send(self, action: Action) -> None:
        """Ask the server; each request has one answer, that it failed in the end."""
        world, answered = self.world, [False]
        which = action.which if isinstance(action, Ask) else OWN
        version = self.versions.get(which, 0)

        def answer(what: Input, new: int | None) -> None:
            if answered[0] or not self.alive:
                return
            if self.suspended:
                world.at(0.5, lambda: answer(what, new))
                return
            answered[0] = True
            if new is not None:
                self.versions[which] = new
            follows = self._step(what)
            self.threads += 1
            if not self._do(follows) or self.threads:
                self.wake()

        def arrive() -> None:
            if world.chance(world.faults.refused):
                world.at(0, lambda: answer(self._failure(action), None))
                return
            what, new = world.served(self, action, version)
            if not world.chance(world.faults.lost_answer):
                world.at(world.delay(), lambda: answer(what, new))

        if not world.chance(world.faults.lost_request):
            world.at(world.delay(), arrive)
        world.at(RENEW_DEADLINE / 2, lambda: answer(self._failure(action), None))

    @staticmethod
    def _failure(action: Action) -> Input:
        match action:
            case ListLeases():
                return NotListed()
            case Delete(name, _):
                return Deleted(name)
            case Ask(which, _):
                return Answered(which, Failed())
        raise AssertionError(action)
