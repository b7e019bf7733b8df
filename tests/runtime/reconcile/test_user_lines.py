"""Which lines of user code the log of runs shows."""
from __future__ import annotations

import logging
import traceback
from typing import Any

import pytest

from kubectl_runtime.core.meta.selectors import Selector
from kubectl_runtime.runtime.controller.controller import Controller
from kubectl_runtime.runtime.queue.runs import KeyBackoff
from kubectl_runtime.runtime.reconcile.reconciler import Action, Context
from kubectl_runtime.testing.simulation import Simulation
from tests.runtime.scripted_cluster import Cluster, Parent


def register(service: str) -> None:
    raise ConnectionError(f"{service} does not answer")


def test_a_traceback_begins_in_user_code(caplog: pytest.LogCaptureFixture) -> None:
    def reconcile(obj: Parent, ctx: Context[Any]) -> Action:
        register("billing")
        return Action.await_change()

    told = first_failure(reconcile, caplog)
    assert told.exc_info is not None
    assert [frame.name for frame in traceback.extract_tb(told.exc_info[2])] == ["reconcile", "register"]


def test_a_mistake_of_the_caller_says_which_line_made_it(caplog: pytest.LogCaptureFixture) -> None:
    def reconcile(obj: Parent, ctx: Context[Any]) -> Action:
        Selector.exists("a,b")
        return Action.await_change()

    told = first_failure(reconcile, caplog)
    line = reconcile.__code__.co_firstlineno + 1
    assert told.exc_info is None
    assert told.getMessage().endswith(f" (test_user_lines.py:{line}, in reconcile)")


def test_an_error_that_no_user_code_is_in_keeps_its_lines(caplog: pytest.LogCaptureFixture) -> None:
    told = first_failure(lambda obj, ctx: None, caplog)
    assert told.exc_info is not None
    assert traceback.extract_tb(told.exc_info[2])


def first_failure(reconcile: Any, caplog: pytest.LogCaptureFixture) -> logging.LogRecord:
    caplog.set_level(logging.INFO, "kubectl_runtime.controller")
    simulation = Simulation(1)
    cluster = Cluster(simulation.clock)
    cluster.put(Parent, "a")
    simulation.start(Controller(cluster.api(Parent), backoff=KeyBackoff(jitter=0)), reconcile)
    simulation.settle(1)
    return next(record for record in caplog.records if "reconcile failed" in record.getMessage())
