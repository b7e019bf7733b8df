"""User code that raises at each call is told of a few times, however many events, runs and reads there are."""
from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

import pytest

from kubectl_runtime.core.base.observer import Observer
from kubectl_runtime.core.meta.gvk import ObjectRef
from kubectl_runtime.core.scope import StopToken
from kubectl_runtime.runtime.controller.controller import Controller
from kubectl_runtime.runtime.queue.runs import KeyBackoff
from kubectl_runtime.runtime.reconcile.reconciler import Action, Context
from kubectl_runtime.runtime.store.reflector import store
from kubectl_runtime.runtime.triggers.predicates import when
from kubectl_runtime.runtime.triggers.streams import pull
from kubectl_runtime.testing.clock import SimClock
from kubectl_runtime.testing.simulation import Simulation
from tests.runtime.scripted_cluster import Child, Cluster, Parent
from tests.runtime.watch.scripted_watch import Thing, thing

EVENTS = 400
MOST = 10
"""Lines: of 1, 2, 4, ... 256 failures, and one that a minute brings."""


class Always(Exception):
    """What the code under test raises."""


def always(*_: object) -> NoReturn:
    raise Always


class Loud(Observer):
    def keys_triggered(self, controller: str, requests: int, depth: int, now: float) -> None:
        raise Always


def satisfied(obj: Parent, ctx: Context[Any]) -> Action:
    return Action.await_change()


def failing(obj: Parent, ctx: Context[Any]) -> Action:
    raise ValueError("planned")


def with_mapper(cluster: Cluster) -> Controller[Parent]:
    return Controller(cluster.api(Parent)).watches(cluster.api(Child), always)


def with_event_mapper(cluster: Cluster) -> Controller[Parent]:
    return Controller(cluster.api(Parent)).watches(cluster.api(Child), always, on="event")


def with_predicate(cluster: Cluster) -> Controller[Parent]:
    return Controller(cluster.api(Parent), predicate=when(always))


def with_predicate_of_owned(cluster: Cluster) -> Controller[Parent]:
    return Controller(cluster.api(Parent)).owns(cluster.api(Child), predicate=when(always))


def with_modify(cluster: Cluster) -> Controller[Parent]:
    return Controller(cluster.api(Parent), modify=always)


def with_observer(cluster: Cluster) -> Controller[Parent]:
    return Controller(cluster.api(Parent), observer=Loud())


def with_result_callback(cluster: Cluster) -> Controller[Parent]:
    return Controller(cluster.api(Parent)).on_result(always)


@pytest.mark.parametrize("build", [with_mapper, with_event_mapper, with_predicate, with_predicate_of_owned, with_modify,
                                   with_observer, with_result_callback])
def test_what_always_raises_is_told_of_a_few_times(build: Callable[[Cluster], Controller[Parent]],
                                                   caplog: pytest.LogCaptureFixture) -> None:
    simulation = Simulation(1)
    cluster = Cluster(simulation.clock)
    with caplog.at_level(logging.INFO):
        simulation.start(build(cluster), satisfied)
        for number in range(EVENTS):
            cluster.put(Parent, "a", number)
            cluster.put(Child, "b", number, owner="a")
            simulation.settle()
    told = [record for record in caplog.records if "raised Always" in record.getMessage()]
    assert 5 < len(told) <= MOST
    assert [bool(record.exc_info) for record in told] == [True] + [False] * (len(told) - 1)
    assert "256 failures like it" in told[-1].getMessage()


def test_an_error_policy_that_always_raises_is_told_of_a_few_times(caplog: pytest.LogCaptureFixture) -> None:
    simulation = Simulation(1)
    cluster = Cluster(simulation.clock)
    simulation.start(Controller(cluster.api(Parent), backoff=KeyBackoff(initial=0.01, maximum=0.01, jitter=0)), failing,
                     error_policy=always)
    cluster.put(Parent, "a")
    simulation.settle(20)
    told = [record for record in caplog.records if "raised Always" in record.getMessage()]
    assert 5 < len(told) <= 12
    assert sum(bool(record.exc_info) for record in told) == 1
    assert "the default backoff" in told[0].getMessage()


def test_an_index_function_and_values_that_cannot_be_compared_are_told_of_a_few_times(
        caplog: pytest.LogCaptureFixture) -> None:
    class Touchy:
        def __hash__(self) -> int:
            return 1

        def __eq__(self, other: object) -> bool:
            raise Always

    reader, writer = store(Thing)
    reader.add_index("raises", always)
    reader.add_index("touchy", lambda obj: Touchy())
    for number in range(EVENTS):
        one = thing(f"n{number}")
        writer.commit({one.key: one})
    told = [record for record in caplog.records if "raised Always" in record.getMessage()]
    assert len(told) <= 2 * MOST
    assert sum(bool(record.exc_info) for record in told) == 2


def test_a_source_that_always_raises_and_one_of_nothing_but_rubbish_are_told_of_a_few_times(
        caplog: pytest.LogCaptureFixture) -> None:
    clock = SimClock(self_advancing=True)
    stop = StopToken(clock=clock)
    asked = 0

    class Broken:
        def __iter__(self) -> Iterator[Any]:
            return self

        def __next__(self) -> Any:
            nonlocal asked
            asked += 1
            if asked == EVENTS:
                stop.set("enough")
            raise Always

    pull(Broken(), always, always, stop, clock)
    minutes = clock.monotonic() / 60
    assert asked == EVENTS
    assert len(caplog.records) <= MOST + minutes
    assert sum(bool(record.exc_info) for record in caplog.records) == 1

    caplog.clear()
    pull(range(EVENTS), lambda item: [ObjectRef.of(Thing, "no name/", item)], always, StopToken(), clock)
    assert 0 < len(caplog.records) <= MOST


def test_an_exception_that_cannot_be_shown_costs_no_line_of_its_own(caplog: pytest.LogCaptureFixture) -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise Always

    def mute(obj: Parent, ctx: Context[Any]) -> Action:
        raise Mute

    simulation = Simulation(1)
    cluster = Cluster(simulation.clock)
    simulation.start(Controller(cluster.api(Parent), backoff=KeyBackoff(initial=0.01, maximum=0.01, jitter=0)), mute)
    cluster.put(Parent, "a")
    simulation.settle(20)
    assert 0 < len(caplog.records) < 20
