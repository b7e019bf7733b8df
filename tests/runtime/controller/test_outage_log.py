"""What a controller's log says of an outage as a whole, and when."""
from __future__ import annotations

import logging
from typing import Any

import pytest

from kubectl_runtime.core.base.errors import TransportError
from kubectl_runtime.core.base.guard import guarded_logger
from kubectl_runtime.runtime.controller.controller import Controller
from kubectl_runtime.runtime.controller.housekeeping import LOOK_EVERY, MANY, WITHIN, OutageLog
from kubectl_runtime.runtime.reconcile.reconciler import Action, Context
from kubectl_runtime.testing.clock import SimClock
from kubectl_runtime.testing.simulation import Simulation
from tests.runtime.scripted_cluster import Cluster, Parent


class Looks:
    """An `OutageLog` and what it sees."""

    def __init__(self, caplog: pytest.LogCaptureFixture, rate: float | None = 10) -> None:
        caplog.set_level(logging.INFO, "kubectl_runtime")
        self.caplog = caplog
        self.clock = SimClock()
        self.failing = 0
        self.held_back = 0
        self.outage = OutageLog(guarded_logger("kubectl_runtime.controller.x"), self.clock,
                                lambda: (self.failing, self.held_back), rate)

    def look(self, failing: int, held_back: int = 0) -> tuple[float | None, list[str]]:
        """When it wants to look again, and what it says."""
        self.failing, self.held_back = failing, held_back
        self.caplog.clear()
        again = self.outage.check()
        assert all(record.levelno == logging.INFO for record in self.caplog.records)
        return again, [record.getMessage() for record in self.caplog.records]


def test_while_few_objects_fail_nothing_is_said_and_nobody_looks(caplog: pytest.LogCaptureFixture) -> None:
    looks = Looks(caplog)
    assert looks.look(0) == (None, [])
    assert looks.look(MANY) == (None, [])
    assert looks.look(0) == (None, [])


def test_the_brake_is_told_once_an_outage_and_its_end_with_its_length_and_size(
        caplog: pytest.LogCaptureFixture) -> None:
    looks = Looks(caplog)
    assert looks.look(MANY + 1) == (LOOK_EVERY, [])
    looks.clock.advance(20)
    assert looks.look(5000, 4000) == (LOOK_EVERY, [
        "retries are held back: 5000 objects fail, and 4000 of them are due; 10 retries a second begin, more when "
        "they succeed"])
    looks.clock.advance(20)
    assert looks.look(4000, 0) == (LOOK_EVERY, [])
    assert looks.look(4000, 3000) == (LOOK_EVERY, [])
    looks.clock.advance(50)
    assert looks.look(1) == (LOOK_EVERY, [])
    assert looks.look(0) == (None, ["no object fails any more; the outage lasted 90.0 s, with up to 5000 failing "
                                    "objects at once"])
    looks.clock.advance(WITHIN)
    assert looks.look(200, 100)[1] != [], "the next outage is another one"


def test_a_dependency_that_comes_and_goes_costs_two_lines_a_minute_and_one_that_stays_away_is_told(
        caplog: pytest.LogCaptureFixture) -> None:
    looks = Looks(caplog)
    said = []
    for _ in range(150):  # ten minutes
        said += looks.look(200, 100)[1]
        looks.clock.advance(2)
        said += looks.look(0)[1]
        looks.clock.advance(2)
    assert 10 <= len(said) <= 22
    looks.clock.advance(WITHIN)
    looks.look(200, 100)
    looks.look(0)
    looks.clock.advance(1)
    assert looks.look(300, 200)[1] == []
    looks.clock.advance(WITHIN)
    assert [line.split(":")[0] for line in looks.look(300, 200)[1]] == ["retries are held back"]
    assert [line.split(";")[0] for line in looks.look(0)[1]] == ["no object fails any more"]


def test_a_controller_without_a_brake_tells_the_end_alone(caplog: pytest.LogCaptureFixture) -> None:
    looks = Looks(caplog, rate=None)
    assert looks.look(5000) == (LOOK_EVERY, [])
    assert len(looks.look(0)[1]) == 1


@pytest.mark.parametrize("policy", [None, lambda obj, error, ctx: Action.await_change()])
def test_the_end_is_told_within_a_second_also_where_nothing_is_retried(
        policy: Any, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "kubectl_runtime.controller")
    simulation = Simulation(3)
    cluster = Cluster(simulation.clock)
    for number in range(40):
        cluster.put(Parent, f"p-{number}")
    down = [True]

    def reconcile(obj: Parent, ctx: Context[Any]) -> Action:
        if down[0]:
            raise TransportError("planned")
        return Action.await_change()

    simulation.start(Controller(cluster.api(Parent)), reconcile, error_policy=policy)
    simulation.settle(5)
    assert "no object fails" not in caplog.text
    down[0] = False
    for number in range(39):
        cluster.put(Parent, f"p-{number}", 1)
    simulation.settle(2)
    assert "no object fails" not in caplog.text or policy is None
    cluster.delete(Parent, "p-39")  # which was the last one
    simulation.settle(LOOK_EVERY)
    assert "no object fails any more" in caplog.text
    assert "with up to 40 failing objects at once" in caplog.text
