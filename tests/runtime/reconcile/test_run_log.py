"""When a failure is told: by numbers."""
from __future__ import annotations

import logging
from typing import Any

import pytest

from kubectl_runtime.core.base.errors import TransportError
from kubectl_runtime.runtime.controller.controller import Controller
from kubectl_runtime.runtime.queue.runs import KeyBackoff
from kubectl_runtime.runtime.reconcile import invoker
from kubectl_runtime.runtime.reconcile.invoker import SINGLY, WITHIN, FailureGroup, readable
from kubectl_runtime.runtime.reconcile.reconciler import Action, Context
from kubectl_runtime.testing.simulation import Simulation
from tests.runtime.scripted_cluster import Cluster, Parent


def test_the_first_ten_are_told_singly_then_each_doubling() -> None:
    group = FailureGroup()
    failure = [number for number in range(1, 200) if group.add(number / 10)]
    assert failure == [*range(1, 11), 20, 40, 80, 160]


def test_after_a_minute_the_count_begins_anew() -> None:
    group = FailureGroup()
    for _ in range(500):
        group.add(0)
    assert not group.add(WITHIN - 1)
    assert [group.add(WITHIN) for _ in range(SINGLY + 1)] == [True] * SINGLY + [False]


def test_what_was_told_before_is_repeated_only_while_there_is_room() -> None:
    group = FailureGroup()
    assert [group.may_repeat(0) for _ in range(12)] == [True] * 10 + [False] * 2
    assert group.may_repeat(WITHIN)


def test_a_program_in_which_each_error_is_a_class_of_its_own_does_not_flood_the_log(
        caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "kubectl_runtime.controller")
    simulation = Simulation(1)
    cluster = Cluster(simulation.clock)
    for number in range(1000):
        cluster.put(Parent, f"p-{number}")
    classes: list[type[Exception]] = []

    def reconcile(obj: Parent, ctx: Context[Any]) -> Action:
        classes.append(type(f"Error{len(classes)}", (Exception,), {}))
        raise classes[-1]

    simulation.start(Controller(cluster.api(Parent)), reconcile)
    simulation.settle(59)
    assert len(classes) > 1500
    assert len(caplog.records) <= 60
    assert "1280 objects have failed (errors of many kinds)" in caplog.text


@pytest.mark.parametrize(("seconds", "text"), [(0.0123, "12 ms"), (1.25, "1.2 s"), (119, "119.0 s"), (1200, "20 min")])
def test_durations_are_readable(seconds: float, text: str) -> None:
    assert readable(seconds) == text


def test_another_error_is_told_at_once_and_the_same_one_at_each_doubling(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "kubectl_runtime.controller")
    simulation = Simulation(1)
    cluster = Cluster(simulation.clock)
    cluster.put(Parent, "a")
    runs: list[str] = []

    def reconcile(obj: Parent, ctx: Context[Any]) -> Action:
        runs.append(obj.name)
        if len(runs) > 11:
            return Action.await_change()
        raise TransportError("first" if len(runs) <= 5 else "second")

    simulation.start(Controller(cluster.api(Parent), backoff=KeyBackoff(jitter=0)), reconcile)
    simulation.settle(60)
    lines = [record.getMessage() for record in caplog.records if record.getMessage().startswith("Parent default/a")]
    assert [line.split("(")[0].strip() for line in lines] == [
        "Parent default/a: reconcile failed",
        "Parent default/a: still fails after 2 attempts in 5 ms",
        "Parent default/a: still fails after 4 attempts in 35 ms",
        "Parent default/a: reconcile failed",
        "Parent default/a: still fails after 8 attempts in 635 ms",
        "Parent default/a: works again after 11 failed attempts in 10.2 s"]


def test_a_key_that_is_deleted_while_it_fails_leaves_nothing_to_be_told_of_its_successor(
        caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "kubectl_runtime.controller")
    simulation = Simulation(1)
    cluster = Cluster(simulation.clock)
    cluster.put(Parent, "a")
    down = [True]

    def reconcile(obj: Parent, ctx: Context[Any]) -> Action:
        if down[0]:
            raise TransportError("planned")
        return Action.await_change()

    simulation.start(Controller(cluster.api(Parent)), reconcile)
    simulation.settle(1)
    cluster.delete(Parent, "a")
    simulation.settle(1)
    down[0] = False
    cluster.put(Parent, "a")
    simulation.settle(1)
    assert "works again" not in caplog.text


@pytest.mark.parametrize(("others", "known"), [(0, True), (4, True), (8, False)])
def test_the_last_success_is_remembered_for_a_limited_number_of_keys(
        others: int, known: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(invoker, "KEPT", 8)
    simulation = Simulation(1)
    cluster = Cluster(simulation.clock)
    cluster.put(Parent, "a")
    fails = False

    def reconcile(obj: Parent, ctx: Context[Any]) -> Action:
        if fails:
            raise TransportError("the server is away")
        return Action.await_change()

    simulated = simulation.start(Controller(cluster.api(Parent)), reconcile)
    simulation.settle()
    for number in range(others):
        cluster.put(Parent, f"b-{number}")
    simulation.settle()
    fails = True
    cluster.put(Parent, "a")
    simulation.settle()
    row, = simulated.assembly.runner.look(5).failing
    assert isinstance(row.last_failure, invoker.LastFailure)
    assert (row.last_failure.succeeded is not None) is known
