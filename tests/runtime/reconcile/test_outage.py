"""Thousands of keys whose dependency is down, on simulated time: how often they are retried, what is logged, and how
soon all is well again once the dependency is back."""
from __future__ import annotations

import logging
import re
from typing import Any

import pytest

from kubectl_runtime.core.base.errors import TransportError
from kubectl_runtime.runtime.controller.controller import Controller
from kubectl_runtime.runtime.reconcile.reconciler import Action, Context
from kubectl_runtime.testing.simulation import SimulatedController, Simulation
from tests.runtime.scripted_cluster import Cluster, Parent

KEYS = 5000


class Outage:
    """A controller of so many objects, whose reconciler calls a dependency that is down until it is up."""

    def __init__(self, keys: int = KEYS, *, error: BaseException | None = None, **options: Any) -> None:
        self.simulation = Simulation(7)
        self.clock = self.simulation.clock
        self.cluster = Cluster(self.clock)
        for number in range(keys):
            self.cluster.put(Parent, f"p-{number}", number)
        self.cluster.history.clear()  # all of it is in the list
        self.down = True
        self.error = error or TransportError("post example.com: cannot connect to example.com:443 (refused)")
        self.failed: list[float] = []
        self.retried: list[float] = []
        self.seen: set[str] = set()
        self.good: set[str] = set()
        controller = Controller(self.cluster.api(Parent), name="outage", **options)
        self.running: SimulatedController[Parent] = self.simulation.start(controller, self.reconcile)

    def reconcile(self, obj: Parent, ctx: Context[Any]) -> Action:
        if obj.name in self.seen:
            self.retried.append(self.clock.monotonic())
        self.seen.add(obj.name)
        if self.down:
            self.failed.append(self.clock.monotonic())
            raise self.error
        self.good.add(obj.name)
        return Action.await_change()


@pytest.fixture(scope="module")
def minute() -> tuple[Outage, list[logging.LogRecord], list[logging.LogRecord], float]:
    """An outage of a minute: the world, the records until then, those of the recovery, and how long that took."""
    records: list[logging.LogRecord] = []

    class Keeping(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            records.append(record)

    logger = logging.getLogger("kubectl_runtime")
    handler, level = Keeping(), logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        outage = Outage()
        outage.simulation.settle(60)
        during = list(records)
        outage.down = False
        back = outage.clock.monotonic()
        outage.simulation.run_until(lambda: len(outage.good) == KEYS, limit=60)
        took = outage.clock.monotonic() - back
        outage.simulation.settle(2)
        return outage, during, records[len(during):], took
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)


def test_while_a_dependency_is_down_at_most_ten_retries_a_second_begin_once_the_burst_is_spent(
        minute: tuple[Outage, Any, Any, float]) -> None:
    outage = minute[0]
    assert len(outage.seen) == KEYS
    during = [at for at in outage.retried if at < 60]
    for second in range(59):
        begun = sum(second <= at < second + 1 for at in during)
        assert begun <= (111 if second == 0 else 11), second
    assert len(during) == pytest.approx(100 + 10 * 60, abs=5)


def test_when_the_dependency_is_back_all_keys_are_well_within_five_seconds(
        minute: tuple[Outage, Any, Any, float]) -> None:
    assert minute[3] < 5


def test_an_outage_of_thousands_of_keys_is_told_in_at_most_sixty_lines_a_minute_and_so_is_its_end(
        minute: tuple[Outage, list[logging.LogRecord], list[logging.LogRecord], float]) -> None:
    _, during, after, _ = minute
    for records in (during, after):
        assert len(records) <= 60, [record.getMessage() for record in records]
        assert not any(record.exc_info for record in records)
    failed = [record.getMessage() for record in during if "reconcile failed" in record.getMessage()]
    assert len(failed) == 10
    counts = [record.args[0] for record in during if "objects have failed" in record.getMessage()]  # type: ignore[index]
    assert counts == [20, 40, 80, 160, 320, 640, 1280, 2560]
    works = [record.getMessage() for record in after if "work again after failures" in record.getMessage()]
    assert len(works) == 8
    assert sum("works again after" in record.getMessage() for record in after) == 10
    held_back = [record.getMessage() for record in during if "retries are held back" in record.getMessage()]
    assert len(held_back) == 1
    assert held_back[0].endswith("10 retries a second begin, more when they succeed")
    recovered = [record.getMessage() for record in after if "no object fails any more" in record.getMessage()]
    assert len(recovered) == 1
    assert re.fullmatch(r"no object fails any more; the outage lasted 6\d\.\d s, with up to "
                        rf"{KEYS} failing objects at once", recovered[0])


def test_retry_rate_none_turns_the_brake_off() -> None:
    outage = Outage(500, retry_rate=None)
    outage.simulation.settle(1)
    assert len(outage.retried) > 500 * 5


def test_a_change_passes_the_brake_while_hundreds_of_retries_wait() -> None:
    outage = Outage(500)
    outage.simulation.settle(3)
    before = len(outage.failed)
    outage.cluster.put(Parent, "p-499", 1)
    outage.simulation.settle()
    assert len(outage.failed) == before + 1
    assert outage.failed[-1] == outage.clock.monotonic()


def test_a_brake_that_has_opened_closes_again_when_the_dependency_fails_anew() -> None:
    outage = Outage(1000)
    outage.simulation.settle(10)
    outage.down = False
    outage.simulation.run_until(lambda: len(outage.good) == 1000, limit=5)
    outage.down, before = True, len(outage.retried)
    outage.running.trigger_all()
    outage.simulation.settle(20)
    triggered = 1000
    assert len(outage.retried) - before - triggered <= 100 + 10 * 20 + 20


def test_one_error_of_a_stranger_has_its_traceback_and_the_library_s_own_has_none(
        caplog: pytest.LogCaptureFixture) -> None:
    for error, traced in ((ValueError("mine"), True), (TransportError("theirs"), False)):
        caplog.clear()
        outage = Outage(1, error=error)
        outage.simulation.settle(5)
        lines = [record for record in caplog.records if record.levelname == "ERROR"]
        assert [bool(record.exc_info) for record in lines] == [traced] + [False] * (len(lines) - 1)
        attempts = len(outage.failed)
        assert len(lines) == 1 + (attempts.bit_length() - 1), "one line at each doubling"
