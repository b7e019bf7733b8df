"""`World`: plays a story together with the controllers once, in one thread, with at most one disturbance.

The *story* is the function that changes objects, as a user does. Its first request calls `build`, creates the CRDs of
the watched kinds and starts the controllers. After each write of the story the controllers run for `SETTLE` simulated
seconds. The controllers also run while the story waits, and for `REST` seconds after the story. Then the server's
objects are the end state of the run.

A *life* is one simulated process of the controllers; it begins with a call of `build`. It ends when its transport
raises `ProcessEnded`, which ends whatever was in progress. After that nothing of the life runs, and `build` is called
again for the next life. If the controllers make too many requests, the run is ended (`Runaway`). State in the program's
modules and closures survives the end of a life, so `build` must create everything again.

`Point` names one disturbance, in the form that a command line takes. Writes of the controllers and of the story are
counted from 1, as in the undisturbed run:

- crash-before-3: the process ends before its third write; a new process begins
- crash-after-3: the process ends after its third write, before it receives the response
- stale-3: the process ends during its third write. The server carries out this write only when the new process is about
  to write. Until then the new process receives old cached lists (`resourceVersion=0`) and late watch events
- missed-2: the watches are broken during the story's second and third write, so that the controllers never observe the
  state between the two writes
- down-2: no process runs while the story makes its second write
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
"""The URL of the simulated server."""


def controllers_of(made: Any, url: str = URL) -> list[BoundController[Any]]:
    """Return the controllers in the result of `build`. `url`: the cluster URL of the client that was passed to `build`.
    Raises TypeError and ValueError for a result that cannot be simulated."""
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
            raise ValueError(f"controller {plan.name} reads a stream of the program, which a simulation cannot "
                             "pull: let it watch an Api instead")
        if plan.client.config.cluster_url != url:
            raise ValueError(f"controller {plan.name} uses a client of {plan.client.config.cluster_url}, not the "
                             "client passed to `build`: make its Apis with the client passed to `build`")
    return bound


def kinds_of(bound: list[BoundController[Any]]) -> list[type[CustomResource]]:
    """Return the CustomResource classes that these controllers watch or declare to read."""
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
    """Seed Python's random number generator; the returned function restores the generator's state."""
    state = random.getstate()
    random.seed(seed)
    return lambda: random.setstate(state)


class Fault(StrEnum):
    """A kind of disturbance."""

    CRASH = "crash"
    """The process ends between two of its writes, and restarts."""
    STALE = "stale"
    """The process restarts, and at first reads older states of objects than the server has."""
    MISSED = "missed"
    """The process does not see some changes."""


CRASH, STALE, MISSED = Fault.CRASH, Fault.STALE, Fault.MISSED
ALL_FAULTS = frozenset(Fault)

_WAYS = {"crash-before": CRASH, "crash-after": CRASH, "stale": STALE, "missed": MISSED, "down": MISSED}
_TEXT = re.compile(rf"({'|'.join(_WAYS)})-([1-9][0-9]*)")


@dataclass(frozen=True)
class Point:
    """One disturbance. `way`: a word such as `crash-after`, see the module's docstring; `number`: the number of a
    write."""

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
        """Parse a text such as `crash-after-3`. Raises ValueError for any other text."""
        found = _TEXT.fullmatch(text)
        if found is None:
            raise ValueError(f"{text!r} is not a point such as crash-after-3; the words are {', '.join(_WAYS)}")
        return cls(found[1], int(found[2]))


def points_of(faults: Iterable[Fault], writes: int, story_writes: int, pairs: Iterable[int]) -> Iterator[Point]:
    """Yield all points of these faults for a run in which the controllers make `writes` writes and the story makes
    `story_writes` writes. `pairs`: the numbers of the story's writes that are followed by another write without a read
    in between."""
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
"""Seconds for which the controllers run after each write of the story. Retries after failures fit into this time."""
REST = 330.0
"""Seconds for which the controllers run after the story: enough for a five-minute resync and a restart of each
watch."""
LATE = 10.0
"""Seconds by which a restarted process's watches are delayed (`stale`). The server carries out the pending write no
later than this many seconds after the restart."""
JUMP = 120.0
"""The maximum number of seconds that time advances at once. It may be long, since no connection here can stall."""
MOST_REQUESTS = 50_000
"""The maximum number of requests that an undisturbed run may make."""
MORE = 20
"""A disturbed run may make this many times as many requests as the undisturbed run, and at least a tenth of
MOST_REQUESTS."""


class Runaway(ProcessEnded):
    """The controllers make too many requests, so the run was ended."""


class Inapplicable(ProcessEnded):
    """The story needs the controllers' work between two of its writes, so these writes cannot be missed."""


@dataclass
class Ended:
    """A finished run. `pairs`: the numbers of the story's writes that are followed by another write without a read in
    between. `trouble`: why the story did not finish, or empty. `applies`: whether the disturbance is possible in this
    story."""

    outcome: Outcome
    writes: int
    story_writes: int
    pairs: list[int]
    requests: int
    trouble: str = ""
    applies: bool = True
    error: BaseException | None = None


class World:
    """Runs a server, the controllers with their restarts, and a story in one thread. Can run once."""

    def __init__(self, build: Build, story: Story, *, seed: int, point: Point | None,
                 limit: int = MOST_REQUESTS, ignored: Ignored = ()) -> None:
        self.hidden = 0.0
        """Seconds in which the controllers reacted to the story's writes. The story's clock does not count these
        seconds."""
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
        """The server's state before the controllers reacted to the story's last write, for reads that allow a cached
        response."""
        self._late: Callable[[], None] | None = None
        self._writes = self._story_writes = self._requests = 0
        self._just_wrote = self._has_kinds = False
        self._pairs: list[int] = []
        self._seed = seed
        self._before = self.server.snapshot()

    def run(self) -> Ended:
        """Play the story. Raises what `build` raises, and RequestError for controllers that cannot be simulated."""
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
        return Ended(outcome, self._writes, self._story_writes, self._pairs, self._requests, trouble, applies, error)

    # --- requests --------------------------------------------------------------------------------------------------

    def answer(self, life: Life, request: requests.PreparedRequest, asked: Asked, server: Answer) -> requests.Response:
        """Answer a request of a life. Raises ProcessEnded if the disturbance ends the process at this request."""
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
        """Answer a request of the story."""
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
        """Let `seconds` pass while all actors of the simulation work."""
        self._just_wrote = False
        self._hear()
        self._work(seconds)

    # --- lives -----------------------------------------------------------------------------------------------------

    def _live(self) -> None:
        """Begin a life. If the disturbance ends the life while it begins, begin another."""
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
        """Let the controllers run for `seconds`, and restart them if their process ends."""
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
            if self._life.dead:  # user code caught ProcessEnded and went on
                continue
            if self.clock.monotonic() >= self._life.born + LATE:
                self._deliver_late()
            if self.clock.monotonic() >= end:
                return

    def _hear(self) -> None:
        """If the watches are being kept from delivering changes, end this: break the watches and expire their
        resourceVersions."""
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
        server.restore(self.server.snapshot())  # so that the new server has the same kinds
        server.restore(self._before, rewind=True)
        return server
