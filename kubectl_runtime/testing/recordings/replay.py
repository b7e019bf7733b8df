"""`replay`: the runs of a recording once more, in one thread, to one that failed.

    stores      are filled and changed by the recorded changes, in their recorded order
    time        is the recorded time, on a simulated clock
    each run    of the recording, in the order in which they began, is made with the stores as they were then, and its
                calls are answered as they were; what it asks and how it ends is compared

So what a run decides by (its object, the stores, the answers, the clock) is what it was. Not in the recording are what
a program draws at random, reads elsewhere, or remembers from before the recording begins. Runs that went on at the same
time are played one after the other: each begins with the stores as they were, and sees them change during its calls
until the next one begins.
"""
from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import requests

from kubectl_runtime.client.api.client import Client
from kubectl_runtime.client.config.config import Config
from kubectl_runtime.core.meta.metav1 import parse_time
from kubectl_runtime.core.meta.refs import ObjectRef
from kubectl_runtime.runtime.controller.arguments import functions_of
from kubectl_runtime.runtime.controller.assembly import Assembly
from kubectl_runtime.runtime.controller.controller import BoundController
from kubectl_runtime.runtime.manager.manager import Manager
from kubectl_runtime.runtime.queue.key_backoff import FailureState
from kubectl_runtime.runtime.queue.runs import Outcome, Run
from kubectl_runtime.runtime.triggers.triggers import ReconcileRequest
from kubectl_runtime.runtime.usercode import described
from kubectl_runtime.testing.clock import SimClock
from kubectl_runtime.testing.executor import SimExecutor
from kubectl_runtime.testing.muted import muted_logs
from kubectl_runtime.testing.recordings.flight_reader import RecordedRun, Recording, RecordingError
from kubectl_runtime.testing.recordings.scripted_transport import ScriptedTransport

URL = "http://recording.invalid"


@dataclass(frozen=True)
class Replayed:
    """What came out of `replay`. `runs`: how many were played; `target`: the last of them, in words; `recorded` and
    `error`: how it failed then and now, None for not; `departures`: where the program did something else than was
    recorded."""

    runs: int
    target: str
    recorded: str | None
    recorded_trace: str
    error: BaseException | None
    departures: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def same(self) -> bool:
        """Whether the target ended as it was recorded: in the same exception, with the same text, or in none."""
        return self.recorded == (None if self.error is None else _named(self.error))

    @property
    def alike(self) -> bool:
        """The same, but for the text: what a server says of a Secret is withheld, and what is said of a connection
        names another server. Not where the run departs: what is not recorded is answered by an error, too."""
        departs = any(text.startswith(f"{self.target} ") for text in self.departures)
        if self.error is None or self.recorded is None or departs:
            return self.same
        return self.recorded.partition(": ")[0] == _named(self.error).partition(": ")[0]


def replay(path: str | Path, build: Callable[[Client], BoundController[Any] | Manager], *,
           run: int | None = None) -> Replayed:
    """Play the recording in `path` up to the run of this number, by default the last that failed.

    `build(client)` makes the program that was recorded, as for `perturb`; it can make no request. Blocks, in this
    thread, and needs no real time. Raises RecordingError for a file that holds nothing to be played, OSError, and what
    `build` raises.
    """
    recording = Recording.read(Path(path))
    runs = _chosen(recording, run)
    player = _Player(recording, build)
    with muted_logs():
        for one in runs[:-1]:
            player.play(one)
    last = runs[-1]
    outcome = player.play(last)
    recorded = f"{last.end.type}: {_text(last.end.error)}" if last.end is not None and last.failed else None
    notes = [f"{recording.gaps} lines of the recording are lost"] if recording.gaps else []
    if recording.partial:
        notes.append("what was stored when the recording begins is not in it: it was too much")
    if recording.head.part > 1:
        notes.append("the recording is the end of a longer one: what the program remembered from before is not in it")
    return Replayed(len(runs), str(last), recorded, last.end.trace if last.end is not None else "", outcome.error,
                    tuple(player.transport.departures), tuple(notes))


def _chosen(recording: Recording, number: int | None) -> list[RecordedRun]:
    """All runs up to the target."""
    runs = recording.runs
    if not runs:
        raise RecordingError("there is no run in the recording")
    if number is None:
        failed = [index for index, one in enumerate(runs) if one.failed]
        return runs[:failed[-1] + 1] if failed else runs
    for index, one in enumerate(runs):
        if one.begin.run == number:
            return runs[:index + 1]
    raise RecordingError(f"there is no run {number} in the recording, whose runs are {runs[0].begin.run} to "
                         f"{runs[-1].begin.run}")


class _Player:
    """One replay."""

    def __init__(self, recording: Recording, build: Callable[[Client], BoundController[Any] | Manager]) -> None:
        self._recording = recording
        self._began = recording.head.time
        self.clock = SimClock(start=_date(recording), self_advancing=True)
        self.transport = ScriptedTransport(recording)
        self.transport.before_answer = lambda position: self._reach(min(position, self._next))
        begins = [one.position for one in recording.runs]
        self._following = dict(pairwise(begins))
        self._next = 0
        """Where the next run begins."""
        session = requests.Session()
        session.mount("http://", self.transport)
        client = Client(Config(cluster_url=URL), session=session, clock=self.clock)
        bound = _controller_of(build(client), recording.head.controller)
        plan = replace(bound.controller.plan(), clock=self.clock, record=None, partition=None, hold=None)
        reconcile, policy = functions_of(bound.reconciler, bound.error_policy)
        rng = random.Random(0)
        self._resource = plan.resource
        self._assembly: Assembly[Any] = Assembly(plan, reconcile, policy, bound.context, executor=SimExecutor(rng),
                                                 on_bug=_raise, rng=rng)
        self._assembly.subscribe()
        self.transport.feed(recording.runs[0].position)  # by then all stores were complete
        self._step()

    def play(self, run: RecordedRun) -> Outcome:
        """One run; how it ended."""
        self._reach(run.position)
        self._next = self._following.get(run.position, len(self._recording.lines) - 1)
        begin = run.begin
        ref = ObjectRef(self._resource, begin.name, begin.namespace or None)
        state = FailureState(count=begin.failures) if begin.failures else None
        made = Run(ref.key, ReconcileRequest(ref, begin.reason), state, self.clock.monotonic())
        self.transport.begin(run)
        try:
            outcome = self._assembly.execute(made)
        finally:
            self.transport.end()
        end = run.end
        if end is not None and end.result != str(outcome.result):
            self.transport.departures.append(f"{run} ended with {outcome.result}, recorded is {end.result}")
        return outcome

    def _reach(self, position: int) -> None:
        """Everything up to this position has happened."""
        self.transport.feed(position)
        now = self._recording.lines[position].time - self._began
        if now > self.clock.monotonic():
            self.clock.advance(timedelta(seconds=now - self.clock.monotonic()))
        self._step()

    def _step(self) -> None:
        """Let the watches take what there is."""
        asked, self.transport.in_run = self.transport.in_run, False
        try:
            for watch in self._assembly.watches.values():
                while watch.step() == 0:
                    pass
        finally:
            self.transport.in_run = asked


def _controller_of(made: Any, name: str) -> BoundController[Any]:
    bound = made.controllers() if isinstance(made, Manager) else [made] if isinstance(made, BoundController) else []
    for one in bound:
        if one.controller.plan().name == name:
            return one
    there = ", ".join(one.controller.plan().name for one in bound) or f"nothing but {type(made).__name__}"
    raise RecordingError(f"the recording is of a controller called {name}, and the program makes {there}")


def _date(recording: Recording) -> datetime:
    try:
        return parse_time(recording.head.at)
    except ValueError:
        raise RecordingError(f"the recording is damaged: it began at {recording.head.at!r}") from None


def _named(error: BaseException) -> str:
    kind = type(error)
    return f"{kind.__module__}.{kind.__qualname__}: {_text(described(error))}"


def _text(told: str) -> str:
    """What an exception says, without its class."""
    return told.partition(": ")[2]


def _raise(_what: str, error: BaseException) -> None:
    raise error
