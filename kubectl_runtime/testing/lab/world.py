"""`World`: one run of a story with the controllers beside it, in one thread, with at most one disturbance.

    the story's first request       `build` is called, the CRDs of the kinds it watches are made, its controllers run
    each write of the story         is answered, then the controllers have `SETTLE` simulated seconds
    a wait of the story             the controllers go on meanwhile
    the end of the story            they have `REST` seconds more; then the state of the server is the run's end

    a life       from `build` until its process ends, which `ProcessEnded`, raised by its transport, carries out of
                 whatever was going on; nothing of it runs after that, and `build` is called again
    in vain      a run that asks more than it can have reason to is given up (`Runaway`)

What the program keeps in modules and closures survives the end of a life, which nothing in the same process can help:
`build` has to make everything again.

What `build` returned, as it can be simulated, and Python's random numbers while it runs.

Where a disturbed run is disturbed: `Point`, which has a name that a command line can repeat.

    crash-before-3    the process ends when it is about to make its third write; a new one begins
    crash-after-3     it ends when the third write is done, before it hears of it
    stale-3           it ends while the third write is under way, which the server carries out only when the new process
                      is about to write; cached lists (`resourceVersion=0`) are from before, and watches are late
    missed-2          the watches are cut over the story's second and third write: what is between is never seen
    down-2            the process is not there while the story makes its second write

Writes are those of the controllers, and those of the story, counted from 1, as they come in the undisturbed run.
"""
from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import requests

from kubectl_runtime.apiserver.controllers.controller_catalog import CONTROLLERS
from kubectl_runtime.apiserver.server import ApiServer
from kubectl_runtime.client.api.client import Client
from kubectl_runtime.client.config.config import Config
from kubectl_runtime.core.base.guard import ProcessEnded
from kubectl_runtime.crd.customresource import CustomResource, definitions_of
from kubectl_runtime.manager.manager import Manager
from kubectl_runtime.runtime.controller.controller import BoundController
from kubectl_runtime.runtime.controller.plan import MainStream, WatchPlan
from kubectl_runtime.testing.lab.comparison import Ignored, Outcome
from kubectl_runtime.testing.lab.recordings import Asked, Journal
from kubectl_runtime.testing.lab.transports import Answer, Life, LifeTransport, StoryClock, StoryTransport
from kubectl_runtime.testing.simulation import Simulation

URL = "http://perturbation.invalid"
"""Of the simulated server."""


def controllers_of(made: Any, url: str = URL) -> list[BoundController[Any]]:
    """What `build` returned, as it can be simulated; `url` is that of the client it was called with. Raises TypeError
    and ValueError for what cannot."""
    if isinstance(made, Manager):
        bound = made.controllers()
    elif isinstance(made, BoundController):
        bound = [made]
    else:
        raise TypeError(f"build returned {type(made).__name__}: it has to return Controller(...).bind(reconciler) or a "
                        "Manager")
    for one in bound:
        plan = one.controller.plan()
        if isinstance(plan.main, MainStream) or plan.streams:
            raise ValueError(f"controller {plan.name} reads a given stream, which no simulation can pull: use one "
                             "that watches an Api")
        if plan.client.config.cluster_url != url:
            raise ValueError(f"controller {plan.name} does not use the client that build was called with, but one of "
                             f"{plan.client.config.cluster_url}: make its Apis of the client that is passed")
    return bound


def kinds_of(bound: list[BoundController[Any]]) -> list[type[CustomResource]]:
    """The classes of one's own kinds that these controllers watch and declare to read."""
    found: dict[type[CustomResource], None] = {}
    for one in bound:
        plan = one.controller.plan()
        for watch in (plan.main, *plan.related):
            kind: Any = watch.api.kind if isinstance(watch, WatchPlan) else None
            if isinstance(kind, type) and issubclass(kind, CustomResource):
                found[kind] = None
        found |= {kind: None for kind in plan.reads if isinstance(kind, type) and issubclass(kind, CustomResource)}
    return list(found)


def seeded(seed: int) -> Callable[[], None]:
    """Python's own random numbers begin at `seed`; returns what puts them back."""
    state = random.getstate()
    random.seed(seed)
    return lambda: random.setstate(state)


class Fault(StrEnum):
    """A kind of disturbance."""

    CRASH = "crash"
    """The process ends between two of its writes, and starts again."""
    STALE = "stale"
    """It starts again, and at first reads objects that are older than the server's."""
    MISSED = "missed"
    """Changes come and go without its seeing them."""


CRASH, STALE, MISSED = Fault.CRASH, Fault.STALE, Fault.MISSED
ALL_FAULTS = frozenset(Fault)

_WAYS = {"crash-before": CRASH, "crash-after": CRASH, "stale": STALE, "missed": MISSED, "down": MISSED}
_TEXT = re.compile(rf"({'|'.join(_WAYS)})-([1-9][0-9]*)")


@dataclass(frozen=True)
class Point:
    """One disturbance: `way` is a word of the module's table, `number` that of a write."""

    way: str
    number: int

    @property
    def fault(self) -> Fault:
        """The kind of disturbance."""
        return _WAYS[self.way]

    def __str__(self) -> str:
        return f"{self.way}-{self.number}"

    @classmethod
    def parse(cls, text: str) -> Point:
        """The disturbance that a text such as `crash-after-3` names. Raises ValueError for any other text."""
        found = _TEXT.fullmatch(text)
        if found is None:
            raise ValueError(f"{text!r} is not a point such as crash-after-3; the words are {', '.join(_WAYS)}")
        return cls(found[1], int(found[2]))


def points_of(faults: Iterable[Fault], writes: int, story_writes: int, pairs: Iterable[int]) -> Iterator[Point]:
    """All points of these faults, for a run in which the controllers made so many writes and the story so many; `pairs`
    are those of the story's writes that another one follows at once, without a look in between."""
    wanted = frozenset(faults)
    numbers = range(1, writes + 1)
    if CRASH in wanted:
        for number in numbers:
            yield Point("crash-before", number)
            yield Point("crash-after", number)
    if STALE in wanted:
        for number in numbers:
            yield Point("stale", number)
    if MISSED in wanted:
        for number in pairs:
            yield Point("missed", number)
        for number in range(1, story_writes + 1):
            yield Point("down", number)


Build = Callable[[Client], BoundController[Any] | Manager]
Story = Callable[[Client], object]

SETTLE = 60.0
"""Seconds that the controllers have after each write of the story; failures back off meanwhile."""
REST = 330.0
"""Seconds after the story: a resync of five minutes comes in it, and each watch starts over."""
LATE = 10.0
"""Seconds by which watches are late, and after which a late write arrives at the latest."""
JUMP = 120.0
"""Seconds that time moves at most at once: no connection here stalls on the clock, so there is little to look for."""
MOST_REQUESTS = 50_000
"""Of an undisturbed run."""
MORE = 20
"""How many times as much a disturbed run may ask."""


class Runaway(ProcessEnded):
    """A run that does not come to rest."""


class Inapplicable(ProcessEnded):
    """The story needs what the controllers do between two of its writes, so nothing can pass them by there."""


@dataclass
class Ended:
    """A run that is over. `pairs`: the story's writes that another follows without a look in between. `trouble`: why it
    did not come to its end, empty when it did. `applies`: whether its disturbance can be in this story."""

    outcome: Outcome
    writes: int
    story_writes: int
    pairs: list[int]
    requests: int
    trouble: str = ""
    applies: bool = True
    error: BaseException | None = None


class World:
    """A server, controllers that live and die, and a story, in one thread. To be run once."""

    def __init__(self, build: Build, story: Story, *, seed: int, point: Point | None,
                 limit: int = MOST_REQUESTS, ignored: Ignored = ()) -> None:
        self.hidden = 0.0
        """Seconds in which the controllers answered the story's writes: they are not time of the story."""
        self._ignored = ignored
        self._build, self._story, self._point, self._limit = build, story, point, limit
        self.sim = Simulation(seed, jump=JUMP, record=False)
        self.clock = self.sim.clock
        self.server = ApiServer(clock=self.clock, seed=seed, controllers=CONTROLLERS, record=False)
        self.journal = Journal()
        self.server.core.cluster.storage.observers.append(self.journal.see)
        self._life: Life | None = None
        self._struck = False
        self._past: ApiServer | None = None
        """The server as it was when the story last wrote, for reads that may be answered of a cache."""
        self._late: Callable[[], None] | None = None
        self._writes = self._story_writes = self._requests = 0
        self._just_wrote = self._has_kinds = False
        self._pairs: list[int] = []
        self._seed = seed
        self._before = self.server.snapshot()

    def run(self) -> Ended:
        """Play the story. Raises what `build` does, and RequestError for what cannot be simulated."""
        session = requests.Session()
        session.mount("http://", StoryTransport(self, self.server.transport()))
        trouble, error, applies = "", None, True
        with Client(Config(cluster_url=URL), session=session, clock=StoryClock(self)) as client:
            try:
                self._story(client)
                self._hear()
                self.go_on(REST)
            except Inapplicable:
                applies = False
            except Runaway:
                trouble = f"it does not come to rest: {self._requests:,} requests"
            except Exception as raised:  # noqa: BLE001 - the story is user code
                trouble, error = f"the story raised {type(raised).__name__}: {raised}", raised
        outcome = Outcome(self.journal, self.server.core.dump(), self._ignored)
        return Ended(outcome, self._writes, self._story_writes, self._pairs, self._requests, trouble, applies,
                     error)

    # --- requests --------------------------------------------------------------------------------------------------

    def answer(self, life: Life, request: requests.PreparedRequest, asked: Asked, server: Answer) -> requests.Response:
        """The answer to a request of a life. Raises ProcessEnded where the process ends."""
        self._requests += 1
        if self._requests > self._limit:
            raise Runaway
        if not asked.is_write:
            if asked.is_cached and self._past is not None:
                return self._past.transport().send(request)
            return server()
        self._deliver_late()
        self._writes += 1
        number = self._writes
        way = self._point.way if not self._struck and self._point and self._point.number == number else ""
        self._struck = self._struck or way in ("crash-before", "crash-after", "stale")
        who = "the controllers" if life.number == 1 else "the controllers, restarted"
        if way == "stale":
            self._late = lambda: self._carry_out(request, asked, number)
            self._past = self._as_the_story_left_it()
        if way in ("crash-before", "stale"):
            life.end()
            raise ProcessEnded
        with self.journal.writing(who, number, asked) as entry:
            response = server()
            entry.status = response.status_code
        if way == "crash-after":
            life.end()
            raise ProcessEnded
        return response

    def answer_story(self, asked: Asked, server: Answer) -> requests.Response:
        """The answer to a request of the story."""
        if self._life is None:
            self._live()
        if not asked.is_write:
            self._just_wrote = False
            self._hear()
            return server()
        self._story_writes += 1
        number = self._story_writes
        if self._just_wrote:
            self._pairs.append(number - 1)
        self._just_wrote = True
        way = self._point.way if self._point and self._point.number == number else ""
        assert self._life is not None
        if way == "missed":
            self._life.deaf = True
        if way == "down":
            self._life.end()
        with self.journal.writing("the story", number, asked) as entry:
            response = server()
            entry.status = response.status_code
        if way == "missed":
            return response
        if self._life.deaf and response.status_code >= 400:
            raise Inapplicable
        self._hear()
        self._before = self.server.snapshot()
        if way == "down":
            self._live()
        before = self.clock.monotonic()
        self._work(SETTLE)
        self.hidden += self.clock.monotonic() - before
        return response

    def go_on(self, seconds: float) -> None:
        """Let so many seconds pass, while everybody works."""
        self._just_wrote = False
        self._hear()
        self._work(seconds)

    # --- lives -----------------------------------------------------------------------------------------------------

    def _live(self) -> None:
        """Begin a life; as often as it ends while it begins."""
        while True:
            number = 1 if self._life is None else self._life.number + 1
            life = self._life = Life(number, self.clock.monotonic())
            self.sim.kill()
            try:
                self._begin(life)
                return
            except Runaway:
                raise
            except ProcessEnded:
                continue

    def _begin(self, life: Life) -> None:
        session = requests.Session()
        session.mount("http://", LifeTransport(self, life, self.server.transport()))
        client = Client(Config(cluster_url=URL), session=session, clock=self.clock)
        made = self._build(client)
        bound = controllers_of(made)
        if not self._has_kinds:
            self._has_kinds = True
            self.server.load(definitions_of(kinds_of(bound)))
            self._before = self.server.snapshot()
        if self._late is not None:
            life.held_until = self.clock.monotonic() + LATE
        for one in bound:
            self.sim.start(one.controller, one.reconciler, error_policy=one.error_policy, context=one.context)

    def _work(self, seconds: float) -> None:
        """Let the controllers work for so long, through the ends of their lives."""
        if self._life is None:
            self.clock.advance(seconds)
            return
        end = self.clock.monotonic() + seconds
        while True:
            if self._life.dead:
                self._live()
            now = self.clock.monotonic()
            pause = end if self._late is None else min(end, max(now, self._life.born + LATE))
            try:
                self.sim.settle(max(0.0, pause - now))
            except Runaway:
                raise
            except ProcessEnded:
                continue
            if self._life.dead:  # somebody swallowed what ended it
                continue
            if self.clock.monotonic() >= self._life.born + LATE:
                self._deliver_late()
            if self.clock.monotonic() >= end:
                return

    def _hear(self) -> None:
        """What the watches did not see is over: they break, and what they would go on from is forgotten."""
        life = self._life
        if life is not None and life.deaf:
            life.deaf = False
            self.server.expire_history()
            life.break_watches()

    def _deliver_late(self) -> None:
        late, self._late = self._late, None
        if late is not None:
            late()
            self._past = None

    def _carry_out(self, request: requests.PreparedRequest, asked: Asked, number: int) -> None:
        with self.journal.writing("the controllers, late", number, asked) as entry:
            entry.status = self.server.transport().send(request).status_code

    def _as_the_story_left_it(self) -> ApiServer:
        server = ApiServer(clock=self.clock, seed=self._seed, controllers=[], record=False)
        server.restore(self.server.snapshot())  # its kinds
        server.restore(self._before, rewind=True)
        return server
