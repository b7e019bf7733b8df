"""Which tracebacks the log of runs shows, how much of them, and how often."""
from __future__ import annotations

import logging
import traceback
from collections.abc import Callable
from typing import Any

import pytest

from kubectl_runtime.core.base.errors import ApiError, RequestError, TransportError
from kubectl_runtime.core.base.status import Status
from kubectl_runtime.runtime.controller.controller import Controller
from kubectl_runtime.runtime.queue.key_backoff import KeyBackoff
from kubectl_runtime.runtime.reconcile.action import Action
from kubectl_runtime.runtime.reconcile.context import Context
from kubectl_runtime.runtime.reconcile.told_traces import AGAIN, MOST_STACKS, ToldTraces
from kubectl_runtime.testing.simulation import Simulation
from tests.runtime.fake_cluster import FakeCluster, Parent


def register(service: str) -> None:
    raise ConnectionError(f"{service} does not answer")


def backup() -> None:
    raise ConnectionError("no disk")


def raised(function: Callable[..., object], *args: object) -> Exception:
    try:
        function(*args)
    except Exception as error:
        return error
    raise AssertionError(f"{function} raised nothing")


def test_a_stack_is_shown_once_in_ten_minutes_and_each_stack_by_itself() -> None:
    traces = ToldTraces()
    first = raised(register, "one")
    shown = traces.take(first, 100)
    assert isinstance(shown, tuple)
    assert shown[:2] == (ConnectionError, first)
    assert traces.take(raised(register, "two"), 130) == 30
    assert isinstance(traces.take(raised(backup), 130), tuple)
    assert traces.take(raised(register, "three"), 100 + AGAIN - 1) == AGAIN - 1
    assert isinstance(traces.take(raised(register, "four"), 100 + AGAIN), tuple)


def test_what_says_all_by_itself_has_no_traceback_and_a_mistake_of_the_caller_has_one() -> None:
    traces = ToldTraces()
    for error in (TransportError("no route"), ApiError(Status(code=403, reason="Forbidden", message="no"))):
        assert traces.take(error, 0) is None
    assert isinstance(traces.take(RequestError("no index 'team'"), 0), tuple)


def test_a_program_with_ever_new_stacks_is_remembered_in_bounds() -> None:
    traces = ToldTraces()
    for number in range(5 * MOST_STACKS):
        assert isinstance(traces.take(type(f"Error{number}", (Exception,), {})(), 0), tuple)
    assert len(traces._shown) <= MOST_STACKS


def test_a_traceback_begins_in_user_code_and_is_shown_for_one_object_of_many(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "kubectl_runtime.controller")
    simulation = Simulation(1)
    cluster = FakeCluster(simulation.clock)
    for number in range(3):
        cluster.put(Parent, f"p-{number}")

    def reconcile(obj: Parent, ctx: Context[Any]) -> Action:
        if ctx.attempt == 1:
            register("billing")
        return Action.await_change()

    simulation.start(Controller(cluster.api(Parent), backoff=KeyBackoff(jitter=0)), reconcile)
    simulation.settle(5)
    told = [record for record in caplog.records if "reconcile failed" in record.getMessage()]
    assert [bool(record.exc_info) for record in told] == [True, False, False]
    assert ["its traceback was shown" in record.getMessage() for record in told] == [False, True, True]
    assert told[0].exc_info is not None
    assert [frame.name for frame in traceback.extract_tb(told[0].exc_info[2])] == ["reconcile", "register"]


def test_an_error_that_no_user_code_is_in_keeps_its_lines(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "kubectl_runtime.controller")
    simulation = Simulation(1)
    cluster = FakeCluster(simulation.clock)
    cluster.put(Parent, "a")
    returns: Any = lambda obj, ctx: None  # noqa: E731
    simulation.start(Controller(cluster.api(Parent), backoff=KeyBackoff(jitter=0)), returns)
    simulation.settle(1)
    told = next(record for record in caplog.records if "reconcile failed" in record.getMessage())
    assert told.exc_info is not None
    assert traceback.extract_tb(told.exc_info[2])
