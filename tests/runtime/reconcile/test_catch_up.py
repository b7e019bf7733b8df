"""Keys that wait for their own writes: what is remembered, for how long, and what a server that does not tell does."""
from __future__ import annotations

from typing import Any

import pytest

from kubectl_runtime.client.api.writes import Write
from kubectl_runtime.core.base.errors import TransportError
from kubectl_runtime.core.base.guard import guarded_logger
from kubectl_runtime.core.base.observer import RunResult
from kubectl_runtime.core.meta.refs import ObjectRef
from kubectl_runtime.runtime.queue.runs import SUCCEEDED, Outcome, Run
from kubectl_runtime.runtime.reconcile.invoker import PATIENCE, CatchUp
from kubectl_runtime.runtime.triggers.triggers import ReconcileRequest
from kubectl_runtime.testing.clock import SimClock
from tests.runtime.watch.watch_fakes import THING

A, B = (ObjectRef(THING, name, "default") for name in ("a", "b"))


class FakeWatch:
    """As much of a watch as is asked whether it is behind; it is its own `writes`."""

    target = "things"

    def __init__(self) -> None:
        self.writes = self
        self.behind: set[ObjectRef] = set()
        self.live: list[ObjectRef] = []
        self.down: BaseException | None = None

    def is_behind(self, ref: ObjectRef) -> bool:
        return ref in self.behind

    def read_live(self, ref: ObjectRef) -> None:
        if self.down is not None:
            raise self.down
        self.live.append(ref)


class World:
    def __init__(self) -> None:
        self.clock = SimClock()
        self.watch = FakeWatch()
        self.ran: list[ObjectRef] = []
        self.asked: list[ObjectRef] = []
        self.to_write: list[ObjectRef] = []
        watches: list[Any] = [self.watch]
        self.catch_up = CatchUp(self.execute, lambda: watches,
                                lambda requests: self.asked.extend(one.ref for one in requests), self.clock,
                                guarded_logger("test"))

    def execute(self, run: Run) -> Outcome:
        self.ran.append(run.request.ref)
        for ref in self.to_write:
            self.write(ref)
        return SUCCEEDED

    def write(self, ref: ObjectRef) -> None:
        self.catch_up.wrote(Write(ref, "patch", "7", "u"))

    def run(self, ref: ObjectRef, *writes: ObjectRef) -> Outcome:
        self.to_write = [*writes]
        return self.catch_up(Run(ref.key, ReconcileRequest(ref), None, self.clock.monotonic()))

    def seen(self, *refs: ObjectRef) -> None:
        self.watch.behind -= {*refs}
        self.catch_up.caught_up()


@pytest.fixture
def world() -> World:
    return World()


def test_a_key_that_wrote_is_skipped_until_the_stores_have_seen_it_and_then_asked_for(world: World) -> None:
    world.watch.behind = {A, B}
    assert world.run(A, A, B) is SUCCEEDED
    assert world.run(A) == Outcome(PATIENCE, RunResult.SKIPPED)
    world.seen(A)
    assert world.asked == []
    world.clock.advance(2)
    assert world.run(A) == Outcome(PATIENCE - 2, RunResult.SKIPPED), "the time counts from when it had to wait first"
    world.seen(B)
    assert world.asked == [A]
    assert world.run(A) is SUCCEEDED
    assert world.ran == [A, A]


def test_a_key_that_wrote_nothing_waits_for_nobody_elses_writes(world: World) -> None:
    world.watch.behind = {A}
    world.run(A, A)
    assert world.run(B) is SUCCEEDED
    world.write(B)  # outside of runs
    assert world.run(B) is SUCCEEDED


def test_nothing_is_remembered_of_what_was_seen_also_of_keys_that_never_run_again(world: World) -> None:
    world.run(A, B)
    assert not world.catch_up._written, "no store was behind"
    world.watch.behind = {B}
    world.run(A, B)
    world.run(A)
    world.seen(B)
    assert not world.catch_up._written
    assert world.run(A) is SUCCEEDED
    assert not world.catch_up._parked


@pytest.mark.parametrize("error", [TransportError("the server is away"), ValueError("a layer's own"), SystemExit(3)],
                         ids=repr)
def test_what_is_not_shown_in_time_is_read_and_while_the_server_is_away_the_key_waits_on(
        world: World, error: BaseException, caplog: pytest.LogCaptureFixture) -> None:
    world.watch.behind, world.watch.down = {A}, error
    world.run(A, A)
    world.run(A)
    world.clock.advance(PATIENCE)
    assert world.run(A) == Outcome(PATIENCE, RunResult.SKIPPED)
    assert str(error) in caplog.text
    world.watch.down = None
    assert world.run(A) is SUCCEEDED
    assert world.watch.live == [A]
    assert "it was read from the server" in caplog.text


def test_what_led_to_a_skipped_run_counts_for_the_one_that_follows(world: World) -> None:
    def run_of(request: ReconcileRequest, **options: Any) -> Run:
        return Run(A.key, request, None, world.clock.monotonic(), **options)

    world.watch.behind = {A}
    world.run(A, A)
    world.to_write = []
    skipped = run_of(ReconcileRequest(A), retry=True, causes=[("u", "7")])
    world.catch_up(skipped)
    world.seen(A)
    follows = run_of(ReconcileRequest(A), causes=[None])
    assert world.catch_up(follows) is SUCCEEDED
    assert (follows.retry, [*follows.causes]) == (True, [("u", "7")])
    later = run_of(ReconcileRequest(A), causes=[None])
    world.catch_up(later)
    assert (later.retry, [*later.causes]) == (False, [None])
