"""A world of candidates for one Lease, on the step function alone: no threads, no sockets, one heap of events.

Each candidate has a clock of its own, with another beginning, another date and another speed. Requests and answers take
their time and may be lost; the server may be down, and the Lease may vanish. Whoever leads is compared at each event.
"""
from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import count

from kubectl_runtime.manager.lease_machine import LeaseState, Phase, Rules, step
from kubectl_runtime.manager.leases import (
    Answer,
    Campaign,
    Conflict,
    Create,
    Failed,
    Get,
    Input,
    LeaseRecord,
    Leave,
    Now,
    Read,
    Request,
    Tick,
    Update,
    Wait,
    Written,
)
from kubectl_runtime.testing.clock import EPOCH


@dataclass
class Faults:
    """Shares of what goes wrong."""

    lost_request: float = 0.0
    lost_answer: float = 0.0
    refused: float = 0.0
    longest_delay: float = 0.05


@dataclass
class World:
    """`fastest`: how much faster than the true time a clock may go."""

    seed: int
    faults: Faults = field(default_factory=Faults)
    fastest: float = 1.0

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.time = 0.0
        self.events: list[tuple[float, int, Callable[[], None]]] = []
        self.numbers = count(1)
        self.record: LeaseRecord | None = None
        self.version = 0
        self.requests = 0
        self.writes = 0
        self.candidates: list[Candidate] = []
        self.overlaps: list[tuple[float, list[str]]] = []

    def at(self, delay: float, what: Callable[[], None]) -> None:
        heapq.heappush(self.events, (self.time + delay, next(self.numbers), what))

    def run(self, seconds: float) -> None:
        end = self.time + seconds
        while self.events and self.events[0][0] <= end:
            self.time, _, what = heapq.heappop(self.events)
            what()
            leaders = self.leaders()
            if len(leaders) > 1:
                self.overlaps.append((self.time, leaders))
        self.time = end

    def leaders(self) -> list[str]:
        return [one.rules.identity for one in self.candidates if one.leads]

    def join(self, rules: Rules) -> Candidate:
        candidate = Candidate(self, rules)
        self.candidates.append(candidate)
        self.at(0, lambda: candidate.act(Tick()))
        return candidate

    def delay(self) -> float:
        return self.random.uniform(0, self.faults.longest_delay)

    def chance(self, share: float) -> bool:
        return self.random.random() < share

    def served(self, request: Request, version: int) -> Answer:
        """What the server does, now."""
        self.requests += 1
        if isinstance(request, Get):
            return Read(self.record)
        exists = self.record is not None
        if isinstance(request, Create) == exists or (isinstance(request, Update) and version != self.version):
            return Conflict()
        self.writes += 1
        self.record, self.version = request.record, next(self.numbers)
        return Written(request.record)


class Candidate:
    """What the elector's thread does, as events."""

    def __init__(self, world: World, rules: Rules) -> None:
        self.world = world
        self.rules = rules
        self.state = LeaseState()
        self.version = 0
        self.alive = True
        self.began = world.time
        self.base = world.random.uniform(-1e6, 1e6)
        self.speed = world.random.uniform(1.0, world.fastest)
        self.skew = timedelta(days=world.random.randint(-5000, 5000))
        self.terms: list[float] = []
        self.again = True
        """Whether it campaigns again when it has lost."""

    @property
    def now(self) -> Now:
        at = self.base + self.world.time * self.speed
        return Now(at, EPOCH + self.skew + timedelta(seconds=self.world.time), self.world.random.random())

    @property
    def leads(self) -> bool:
        return self.alive and self.state.leads_at(self.now.at)

    def act(self, happened: Input) -> None:
        if not self.alive:
            return
        before = self.state.phase
        self.state, action = step(self.rules, self.state, happened, self.now)
        if self.state.phase is Phase.LEADING and before is not Phase.LEADING:
            self.terms.append(self.world.time)
        if self.state.phase is Phase.LOST:
            if self.again:
                self.act(Campaign())
        elif isinstance(action, Wait):
            if self.state.asked_at is None and self.state.phase is not Phase.ENDED:
                self.world.at(max(0.0, action.until - self.now.at) / self.speed + 1e-9, lambda: self.act(Tick()))
        else:
            self.send(action)

    def leave(self, release: bool) -> None:
        self.act(Leave(release, self.rules.renew_deadline))

    def die(self) -> None:
        self.alive = False

    def send(self, request: Request) -> None:
        """Ask the server; each request has one answer, `Failed` in the end."""
        world, answered = self.world, [False]
        version = self.version

        def answer(what: Answer, new: int | None) -> None:
            if not answered[0]:
                answered[0] = True
                if new is not None:
                    self.version = new
                self.act(what)

        def arrive() -> None:
            if world.chance(world.faults.refused):
                world.at(0, lambda: answer(Failed(), None))
                return
            what = world.served(request, version)
            new = world.version if isinstance(what, Read | Written) else None
            if not world.chance(world.faults.lost_answer):
                world.at(world.delay(), lambda: answer(what, new))

        if not world.chance(world.faults.lost_request):
            world.at(world.delay(), arrive)
        world.at(max(0.2, self.rules.renew_deadline / 2) / self.speed, lambda: answer(Failed(), None))
